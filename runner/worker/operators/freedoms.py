"""What torch leaves open: each freedom with the sentence of torch's documentation, and another legal choice.

An operator without such a sentence is defined. ``torch.max`` is an example: its documentation says that the index of
the first maximum is returned. It is here for computed elements alone, where a rounding decides which is the largest.
``table`` says which operators have which freedom.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from runner.worker.operators.choices import (
    Choose,
    accumulate_otherwise,
    cast_otherwise,
    grow_otherwise,
    index_otherwise,
    leave_otherwise,
    list_otherwise,
    search_otherwise,
    sort_otherwise,
    take_own,
    toss_otherwise,
    turn_columns,
    turn_eigenvectors,
    turn_singular_vectors,
    turn_symmetric_vectors,
    write_otherwise,
)

Definition = Literal["", "indices", "set", "writes", "vectors", "pairs", "groups", "mantissas"]
"""What still holds for every legal result. Of the last two it does for several results together only. Nothing does of
memory that nobody wrote, or of a cast that does not fit."""

ROUNDED = (
    "Computed values are known up to the tolerance only, and so is which of two is larger, or whether they are equal."
)


@dataclass(frozen=True)
class Freedom:
    """What operators leave open: a public name, the sentence that says so, and the choice."""

    name: str
    sentence: str = ROUNDED
    choose: Choose = take_own
    # It steps where an element is larger than another, or crosses a number. Of computed ones a rounding decides.
    compares: bool = False
    # It chooses between the sides of a step. A maximum or a sort chooses among many, of which few runs show few.
    two_sided: bool = False
    anything: bool = False  # its undefined elements may hold any number; those of others are among few
    definition: Definition = ""


OVERLAP = "Tensor.expand"
SHARED = "a write into memory that the operator reads"

FREEDOMS: Mapping[str, Freedom] = {
    freedom.name: freedom
    for freedom in (
        Freedom(
            OVERLAP,
            "More than one element of an expanded tensor may refer to a single memory location. As a result, in-place"
            " operations (especially ones that are vectorized) may result in incorrect behavior.",
            anything=True,
        ),
        Freedom(
            SHARED,  # eager refuses most such calls by this sentence, and lets products and slices of matrices pass
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single"
            " memory location. Please clone() the tensor before performing the operation.",
            anything=True,
        ),
        Freedom("torch.max", compares=True, definition="indices"),
        Freedom("torch.eq", compares=True, two_sided=True),
        Freedom("torch.floor", compares=True, two_sided=True),
        Freedom("torch.histc", compares=True),
        Freedom("torch.frexp", compares=True, definition="mantissas"),
        Freedom("torch.sign", compares=True, two_sided=True),
        Freedom("torch.bernoulli", choose=toss_otherwise, compares=True, two_sided=True),
        Freedom("torch.unique_consecutive", compares=True, definition="groups"),
        Freedom(
            "torch.sort",
            "If ``False``, the relative order of values which compare equal is not guaranteed.",
            sort_otherwise,
            compares=True,
            definition="indices",
        ),
        Freedom(
            "torch.topk",
            "When using `torch.topk`, the indices of tied elements are not guaranteed to be stable and may vary across"
            " different invocations.",
            index_otherwise,
            compares=True,
            definition="indices",
        ),
        Freedom(
            "torch.kthvalue",
            "And ``indices`` is the index location of each element found.",
            index_otherwise,
            compares=True,
            definition="indices",
        ),
        Freedom(
            "torch.median",
            "``indices`` does not necessarily contain the first occurrence of each median value found, unless it is"
            " unique.",
            index_otherwise,
            compares=True,
            definition="indices",
        ),
        Freedom(
            "torch.mode",
            "``indices`` is the index location of each mode value found.",
            index_otherwise,
            compares=True,
            definition="indices",
        ),
        Freedom(
            "torch.cummax",
            "And ``indices`` is the index location of each maximum value found in the dimension :attr:`dim`.",
            accumulate_otherwise,
            compares=True,
            definition="indices",
        ),
        Freedom(
            "torch.unique",
            "Whether to sort the unique elements in ascending order before returning as output.",
            list_otherwise,
            compares=True,
            definition="set",
        ),
        Freedom(
            "Tensor.scatter_",
            "When indices are not unique, the behavior is non-deterministic (one of the values from ``src`` will be"
            " picked arbitrarily)",
            write_otherwise,
            definition="writes",
        ),
        Freedom(
            "Tensor.index_put_",
            "If accumulate is ``False``, the behavior is undefined if indices contain duplicate elements.",
            write_otherwise,
            definition="writes",
        ),
        Freedom(
            "Tensor.index_copy_",
            "The result is nondeterministic since it depends on which copy occurs last.",
            write_otherwise,
            definition="writes",
        ),
        Freedom(
            "Tensor.put_",
            "If accumulate is ``False``, the behavior is undefined if :attr:`index` contain duplicate elements.",
            write_otherwise,
            definition="writes",
        ),
        Freedom("torch.empty", "Returns a tensor filled with uninitialized data.", leave_otherwise, anything=True),
        Freedom(
            "Tensor.resize_",
            "Existing elements are preserved but any new memory is uninitialized.",
            grow_otherwise,
            anything=True,
        ),
        Freedom(
            "Tensor.to",
            "If the truncated value cannot fit into the target type (e.g., casting ``torch.inf`` to ``torch.long``),"
            " the behavior is undefined and the result may vary across platforms.",
            cast_otherwise,
            compares=True,
            two_sided=True,
            anything=True,
        ),
        Freedom(
            "torch.bucketize",
            "1-D tensor, must contain a strictly increasing sequence, or the return value is undefined.",
            search_otherwise,
            compares=True,
            anything=True,
        ),
        Freedom(
            "torch.linalg.svd",
            "The returned tensors `U` and `V` are not unique",
            turn_singular_vectors,
            definition="vectors",
        ),
        Freedom(
            "torch.linalg.eigh",
            "The eigenvectors of a symmetric matrix are not unique",
            turn_symmetric_vectors,
            definition="vectors",
        ),
        Freedom(
            "torch.linalg.eig",
            "The returned eigenvalues are not guaranteed to be in any specific order.",
            turn_eigenvectors,
            definition="pairs",
        ),
        Freedom(
            "torch.linalg.qr",
            "the returned QR decomposition is only unique up to the sign of the diagonal of `R`.",
            turn_columns,
            definition="vectors",
        ),
    )
}
"""By their names."""
