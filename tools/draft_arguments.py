"""Drafts cases of the arguments of operators, from the samples of torch's database, for ``specs/operators``.

python tools/draft_arguments.py FOLDER                 # writes FAMILY_arguments.spec.yaml for each family
python tools/draft_arguments.py FOLDER --only pool --print

A sample is taken for each kind of each argument: a keyword that is given, a value of an enumeration, the sign of a number, the length
of a shape, an optional tensor. First come the samples whose result is another one when an argument has its default. Where no
sample of the database shows an argument, one is made. Eager has run each call that is drafted.
"""

from __future__ import annotations

import itertools
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

import operator_families as families
import torch
from draft_operators import ALONE, Draft, begin_drafting, database, faults_of, text_of
from draft_samples import ELEMENTS, CallDraft, UnfitSampleError, call_of, matrix_call
from signatures import REQUIRED, Signature, bound, function_of
from torch.utils._pytree import tree_leaves

SAMPLES = 250
"""Of one operator, at most."""
STEPS, MORE = 12, 8
"""Of a case, and of the kinds of one operator that show no argument, at most."""
TAGS = ("operator", "arguments")
KINDS = ("_arguments", "_more_arguments")
"""What the names of cases end in: of calls that show an argument, and of others."""
SILENT = frozenset({"out", "layout", "pin_memory", "requires_grad", "generator", "device", "names", "size_average", "reduce",
                    "_stacklevel", "_random_samples", "inplace", "driver", "non_blocking", "check_errors", "abs", "sparse"})  # fmt: skip
"""Arguments that change no value, or that a case cannot give."""
UNFIT = re.compile(r"jiterator.*|.*empty.*|resize.*|item|equal|allclose|is_.*|broadcast_shapes|.*_scaled_mm.*|to_sparse|.*max_unpool.*|sparse\..*|__r.*|new_.*"
                   r"|(linalg\.)?(ldl|lu|eig|svd|qr).*|svd.*|geqrf|ormqr|pca_lowrank|lu_unpack|triangular_solve")  # fmt: skip
"""Memory that nobody wrote, results of Python, other layouts, factors that are not unique, and places that are drawn twice."""
TRACED = {"torch._dynamo.config.capture_dynamic_output_shape_ops": True}
"""With what Dynamo traces operators whose sizes depend on values."""
WORDS = {
    "approximate": ("tanh",), "reduction": ("sum", "none", "mean"), "norm": ("ortho", "forward"), "mode": ("bilinear", "nearest", "replicate"),
    "padding_mode": ("border", "reflection"), "indexing": ("xy",), "side": ("right",), "rounding_mode": ("floor", "trunc"),
    "interpolation": ("lower", "nearest"), "UPLO": ("U",), "pad_mode": ("constant",), "ord": (1, 2),
}  # fmt: skip
"""Values that a text may have, by the argument's name."""


@dataclass(frozen=True, eq=False)
class Sample:
    """A call in eager, of a function whose signature is known."""

    function: Any
    signature: Signature
    given: Mapping[str, Any]

    def without(self, name: str) -> Sample:
        """Return the call with an argument left out."""
        return replace(self, given={key: value for key, value in self.given.items() if key != name})

    @cached_property
    def call(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional arguments, as many as follow each other, and the others by keyword."""
        names = [each.name for each in self.signature if not each.keyword_only]
        leading = list(itertools.takewhile(self.given.__contains__, names))
        return [self.given[name] for name in leading], {
            key: value for key, value in self.given.items() if key not in leading
        }

    @cached_property
    def result(self) -> list[Any] | None:
        """Return the tensors and numbers of the result; None where eager raises."""
        args, kwargs = _copied(self.call)
        torch.manual_seed(0)
        try:
            with torch.no_grad():
                outputs = self.function(*args, **kwargs)
        except Exception:  # noqa: BLE001  a wrong argument raises what the operator likes
            return None
        return tree_leaves(outputs)

    @cached_property
    def proofs(self) -> frozenset[str]:
        """Return the arguments without which eager gives another result."""
        optional = [each.name for each in self.signature if each.default is not REQUIRED and each.name not in SILENT]
        return frozenset(
            name for name in optional if name in self.given and differ(self.without(name).result, self.result)
        )

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Return what the arguments are like, a text for each."""
        first = next((value for value in self.given.values() if isinstance(value, torch.Tensor)), None)
        return frozenset(
            f"{each.name} {word}"
            for each in self.signature
            if each.name in self.given and each.name not in SILENT and not same(self.given[each.name], each.default)
            for word in words(self.given[each.name], first)
        )


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (list, tuple)):
        return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value
    return {key: _copied(item) for key, item in value.items()} if isinstance(value, dict) else value


def same(value: Any, default: Any) -> bool:
    """Return whether an argument is its default."""
    return not isinstance(value, torch.Tensor) and type(value) is type(default) and bool(value == default)


def differ(one: list[Any] | None, other: list[Any] | None) -> bool:
    """Return whether two results are surely different ones. A call that raises has no result."""
    if one is None or other is None:
        return False
    return len(one) != len(other) or any(_differs(*pair) for pair in zip(one, other, strict=True))


def _differs(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(one) is not type(other) or bool(one != other)
    if (one.shape, one.dtype, one.stride()) != (
        other.shape,
        other.dtype,
        other.stride(),
    ) or one.layout != torch.strided:
        return True
    return not torch.allclose(one, other, rtol=1e-4, atol=1e-4, equal_nan=True)


def words(value: Any, first: torch.Tensor | None) -> Iterator[str]:
    """Yield what an argument is like: a value of an enumeration, a sign, a rank beside that of the first tensor."""
    if isinstance(value, torch.Tensor):
        if value is not first and first is not None:
            yield f"rank {value.ndim - first.ndim:+} {value.shape == first.shape} {value.dtype}"
    elif isinstance(value, (list, tuple)):
        yield f"of {len(value)}"
        if all(isinstance(item, (int, float)) for item in value):
            yield f"{len(set(value)) > 1} {any(item < 0 for item in value)}"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield f"{type(value).__name__} {value == 0} {value < 0}"
    else:
        yield str(value)


def samples_of(function: Any, entries: Sequence[Any]) -> Iterator[Sample]:
    """Yield the samples of the entries of one name in float32, those of a moderate size, whose results are defined."""
    for entry in entries:
        kinds = entry.supported_dtypes("cpu")
        dtype = torch.float32 if torch.float32 in kinds else next(iter(kinds & {torch.int64, torch.bool}), None)
        for each in itertools.islice(entry.sample_inputs("cpu", dtype), SAMPLES) if dtype else ():
            fitting = bound(function, (each.input, *each.args), each.kwargs)
            tensors = [
                leaf for leaf in tree_leaves((each.input, each.args, each.kwargs)) if isinstance(leaf, torch.Tensor)
            ]
            is_number = any(
                not tensor.ndim and not tensor.is_floating_point() for tensor in tensors[1:]
            )  # it breaks the graph
            if fitting and not is_number and all(tensor.numel() <= ELEMENTS for tensor in tensors):
                sample = Sample(function, *fitting)
                if sample.result is not None:
                    yield sample


def made(samples: Sequence[Sample]) -> Iterator[Sample]:
    """Yield calls that show an argument which no sample shows: with another value, or unequal numbers in a list."""
    shown = frozenset(itertools.chain.from_iterable(sample.proofs for sample in samples))
    lively = sorted(samples, key=lambda sample: -min(_elements(sample), default=0))[:30]
    for signature in {sample.signature: None for sample in samples}:
        for each in signature:
            candidates = [sample for sample in lively if sample.signature == signature]
            if each.default is not REQUIRED and each.name not in shown | SILENT:
                tried = (
                    _with(sample, each.name, value)
                    for sample in candidates
                    for value in values_for(each.name, each.kind, each.default)
                )
                yield from itertools.islice((sample for sample in tried if each.name in sample.proofs), 1)
            yield from itertools.islice(_unequal(candidates, each.name), 1)


def _elements(sample: Sample) -> list[int]:
    return [value.numel() for value in sample.given.values() if isinstance(value, torch.Tensor)]


def _with(sample: Sample, name: str, value: Any) -> Sample:
    return replace(sample, given={**sample.given, name: value})


def values_for(name: str, kind: str, default: Any) -> Sequence[Any]:
    """Return values to try for an argument, beside its default."""
    if kind == "text" or isinstance(default, str) or name in WORDS:
        values: tuple[Any, ...] = WORDS.get(name, ())
    elif isinstance(default, bool) or kind == "bool":
        values = (True, False)
    elif kind == "dtype":
        values = (torch.float64,)
    elif isinstance(default, float) or kind in ("float", "number"):
        values = (0.5, 2.0, 0.1, -0.3, 3)
    elif kind in ("int", "ints") or isinstance(default, int):
        values = (1, 0, -1, 2, 3, [0], [1], [0, 1], [2, 1])
    else:
        values = ()
    return [value for value in values if not same(value, default)]


def _unequal(samples: Sequence[Sample], name: str) -> Iterator[Sample]:
    """Yield calls whose result changes where the numbers of a list change their order."""
    for sample in samples:
        numbers = sample.given.get(name)
        if not isinstance(numbers, (list, tuple)) or len(numbers) < 2 or not all(type(item) is int for item in numbers):
            continue
        for step in (0, 1, -1):
            changed = [numbers[0] + step, *numbers[1:]]
            one, other = (_with(sample, name, order) for order in (changed, changed[::-1]))
            if differ(one.result, other.result):
                yield one


def chosen(samples: Iterable[Sample], is_fit: Callable[[Sample], bool]) -> tuple[list[Sample], list[Sample]]:
    """Return the samples that show an argument, each for one that the earlier ones do not show, and others of other kinds."""
    large = sorted(samples, key=lambda sample: -min(_elements(sample), default=0))
    showing = list(_covering(large, lambda sample: sample.proofs | _tellings(sample), frozenset(), is_fit))
    kinds = frozenset(itertools.chain.from_iterable(sample.kinds for sample in showing))
    return showing, list(itertools.islice(_covering(large, lambda sample: sample.kinds, kinds, is_fit), MORE))


def _covering(
    samples: Iterable[Sample],
    marks: Callable[[Sample], frozenset[str]],
    known: frozenset[str],
    is_fit: Callable[[Sample], bool],
) -> Iterator[Sample]:
    """Yield the sample that has most marks beside the known ones, of those that are fit, and again while there is one."""
    candidates = list(samples)
    while candidates:
        best = max(candidates, key=lambda sample: len(marks(sample) - known))
        if not marks(best) - known:
            return
        candidates.remove(best)
        if is_fit(best):
            known |= marks(best)
            yield best


def _tellings(sample: Sample) -> frozenset[str]:
    """Return which lists are others from behind, and which needed numbers a backend would not take by itself."""
    needed = {each.name for each in sample.signature if each.default is REQUIRED}
    return frozenset(
        f"{name} telling"
        for name, value in sample.given.items()
        if (isinstance(value, (list, tuple)) and all(type(item) is int for item in value) and value != value[::-1])
        or (name in needed and type(value) in (int, float) and value not in (0, 1, -1))
    )


def call_for(operator: str, name: str, sample: Sample) -> CallDraft | None:
    """Return a sample as a call; None where the format lacks words for it, or eager does not take it as the format makes it."""
    args, kwargs = sample.call
    first, *others = args or [None]
    try:
        call = call_of(operator, types.SimpleNamespace(input=first, args=others, kwargs=kwargs), torch.float32)
    except UnfitSampleError:
        return None
    call = call if args else replace(call, args=[])
    call = matrix_call(call) if families.family_of(name).file == "matrices" else call
    return None if any(faults_of(Draft((name,), (call,), False, ("float32",))).values()) else call


def drafts_of(name: str, entries: Sequence[Any]) -> Iterator[Draft]:
    """Draft the arguments of an operator: those that change its result, and other kinds of them."""
    for operator in families.spellings(name)[:3]:
        function = function_of(operator)
        samples = list(samples_of(function, entries)) if function is not None else []
        samples += list(made(samples))
        if not any(sample.kinds - {kind for kind in sample.kinds if " rank " in kind} for sample in samples):
            continue
        call = cache(partial(call_for, operator, name))
        parts = chosen(samples, lambda sample, call=call: call(sample) is not None)
        if any(parts):
            for kind, part in zip(KINDS, parts, strict=True):
                calls = tuple({repr(each): each for sample in part if (each := call(sample))}.values())
                for start in range(0, len(calls), STEPS):
                    ending = f"{kind}_{start}" if start else kind
                    yield Draft((name,), calls[start : start + STEPS], False, ("float32",), ending)
            return


def joined(drafts: Iterable[Draft]) -> Iterator[Draft]:
    """Join neighbours of one kind while a case has few steps, and operators that break no graph."""
    groups: dict[Any, Draft] = {}
    for draft in drafts:
        group = groups.get(key := draft.kind)
        alone = any(
            re.fullmatch(f"{ALONE}|.*dropout.*", name) for name in (*draft.names, *(group.names if group else ()))
        )
        if group and not alone and len(group.calls) + len(draft.calls) <= STEPS:
            groups[key] = replace(
                group, names=tuple(dict.fromkeys((*group.names, *draft.names))), calls=(*group.calls, *draft.calls)
            )
            continue
        if group:
            yield group
        groups[key] = draft
    yield from groups.values()


def extras(draft: Draft) -> Mapping[str, Any]:
    """Return more keys of a case: a tag where it shows no argument, and a flag where sizes depend on values."""
    config = {"config": TRACED} if any(re.fullmatch(ALONE, name) for name in draft.names) else {}
    return {**config, **({} if draft.kind.startswith(KINDS[0]) else {"tags": [*TAGS, "kinds"]})}


def main() -> None:
    """Draft the files."""
    options = begin_drafting(__doc__.splitlines()[0])
    names = {
        name: entries for name, entries in database().items() if options.only in name and not UNFIT.fullmatch(name)
    }
    for family in families.FAMILIES:
        members = [name for name in names if families.family_of(name) == family and options.family in ("", family.file)]
        drafts = list(joined(draft for name in members for draft in drafts_of(name, names[name])))
        if not drafts:
            continue
        text = text_of(drafts, TAGS, extras)
        if options.print:
            print(text)
        else:
            (options.folder / f"{family.file}_arguments.spec.yaml").write_text(text, encoding="utf-8")
        print(
            f"{family.file}: {len(drafts)} cases, {sum(len(draft.calls) for draft in drafts)} steps",
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    main()
