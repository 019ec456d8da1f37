"""Each operator of torch's own database that is no plain arithmetic has a row, and each row is true of its operator."""

from __future__ import annotations

import itertools
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from runner.verdict.operators import DRAWING, INDICES, INDICES_BY_DIMENSION
from runner.worker.operators.freedoms import FREEDOMS
from runner.worker.operators.table import ARITHMETIC, TABLE, Operator, freedom_of, is_exact, kink_of, row_of
from runner.worker.tensors import finite_difference, planes
from runner.worker.torch_private.operator_database import entries

aten = torch.ops.aten
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Calls = dict[Any, list[Arguments]]

SAMPLES = 6
"""Of an entry of the database, and calls of one overload."""

ENOUGH = 30
"""Elements that must agree before an operator counts as exact: a rounding leaves none of them by chance."""

BY_CHANCE = {
    "_cdist_backward", "_cdist_forward", "_histogramdd_bin_edges", "_segment_reduce_backward", "native_dropout_backward",
    "adaptive_max_pool3d_backward", "max_pool2d_with_indices_backward", "softshrink",
}  # fmt: skip
"""They are exact in their samples alone: distances that count, bins of whole numbers, powers of two, windows that do not overlap."""

JUMPS: dict[str, str] = {
    name: reason
    for reason, names in {
        "smooth beside its jumps: what nearly cancels would be excused there": "angle atan2 copysign fmod frac remainder",
        "it counts what is no zero, where its order is zero": "_cdist_forward _pdist_forward _pdist_backward"
        " linalg_vector_norm",
        "the matrix is singular, and any pivot is as good": "_linalg_det _linalg_slogdet geqrf linalg_inv_ex"
        " linalg_ldl_factor_ex linalg_lstsq linalg_lu linalg_lu_factor_ex linalg_pinv",
        "places of maxima in a window, whose other choice is not written": "adaptive_max_pool2d adaptive_max_pool3d"
        " fractional_max_pool2d fractional_max_pool3d max_pool2d_with_indices max_pool3d_with_indices",
        "an argument is a number of terms, or of derivatives": "polygamma special_chebyshev_polynomial_t"
        " special_chebyshev_polynomial_u special_chebyshev_polynomial_v special_chebyshev_polynomial_w"
        " special_hermite_polynomial_h special_hermite_polynomial_he special_laguerre_polynomial_l"
        " special_legendre_polynomial_p special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u"
        " special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w",
        "kinks of gradients at which no run looks": "_ctc_loss _segment_reduce_backward binary_cross_entropy_backward"
        " grid_sampler_2d_backward grid_sampler_3d_backward multi_margin_loss_backward",
        "it compares sets, or bits": "hash_tensor isin",
    }.items()
    for name in names.split()
}
"""Operators that jump at whole numbers, and whose argument no legal run moves, with the reason."""

COMPUTING = re.compile(r"dropout|rrelu|attention|fused|rnn|sobol|ctc|cudnn|miopen|lstm|gru|nested")
"""In names of operators that draw random numbers and compute in one: there is no reference then."""


def detached(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


class Recorder(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Keeps the arguments of the first calls of each overload."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        strided = func.namespace == "aten" and all(leaf.layout == torch.strided for leaf in leaves)
        if strided and len(self.calls[func]) < SAMPLES:
            self.calls[func].append(tree_map(detached, (args, kwargs or {})))
        return func(*args, **(kwargs or {}))


def record(calls: Calls, entry: Any, variant: Callable[..., Any], sample: Any) -> None:
    """Run a sample and its backward."""
    gradient = variant is entry.op and entry.supports_autograd

    def own(value: Any) -> Any:
        copy = detached(value)
        return copy.requires_grad_(gradient and value.requires_grad) if isinstance(value, torch.Tensor) else copy

    first, args, kwargs = tree_map(own, (sample.input, tuple(sample.args), dict(sample.kwargs)))
    with Recorder(calls):
        result = variant(first, *args, **kwargs)
        roots = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if roots:
            torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])


@pytest.fixture(scope="module")
def calls() -> Calls:
    """Calls of every overload that the database's samples reach, in float32."""
    torch.manual_seed(0)
    recorded: Calls = defaultdict(list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for entry in entries():
            if torch.float32 not in entry.supported_dtypes("cpu"):
                continue
            for variant in filter(None, (entry.op, entry.inplace_variant)):
                try:
                    samples = entry.sample_inputs("cpu", torch.float32, requires_grad=entry.supports_autograd)
                    for sample in itertools.islice(samples, SAMPLES):
                        record(recorded, entry, variant, sample)
                except Exception:  # noqa: BLE001  an entry of the database raises what it likes
                    continue
    assert len(recorded) > 600
    return {func: items for func, items in recorded.items() if torch.Tag.nondeterministic_seeded not in func.tags}


WIDE = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(WIDE.get(value.dtype, value.dtype), copy=True)
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def is_number(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def results(func: Any, call: Arguments) -> list[torch.Tensor]:
    """Return the tensors that a call gives; it may write into its arguments."""
    args, kwargs = tree_map(detached, call)
    leaves = tree_leaves(func(*args, **kwargs))
    strided = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided]
    return [leaf.resolve_conj() for leaf in strided]


def pairs(func: Any, first: Arguments, second: Arguments) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield what two calls give, side by side; nothing where one raises."""
    try:
        yield from zip(results(func, first), results(func, second), strict=True)
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
        return


def full_of_bits(value: Any) -> Any:
    """Return numbers with all bits in use."""
    return value * (0.5 + torch.rand(value.shape) / 2) if is_number(value) else value


def agreement(func: Any, call: Arguments) -> int | None:
    """Return how many floating elements float32 and float64 have alike; None where some differ: then it rounds."""
    call = tree_map(full_of_bits, call)
    count = 0
    for narrow, wide in pairs(func, call, tree_map(widened, call)):
        if is_number(narrow):
            same = narrow.to(wide.dtype) == wide if narrow.shape == wide.shape else torch.tensor(False)
            if not bool((same | ~narrow.isfinite()).all()):
                return None
            count += int(narrow.isfinite().sum())
    return count


def reads_numbers(call: Arguments) -> bool:
    return any(is_number(leaf) and leaf.numel() for leaf in tree_leaves(call))


def whole_numbers(value: Any) -> Any:
    return widened(value).round().clamp(-3, 3) if is_number(value) and not value.is_complex() else widened(value)


def moved(value: Any) -> Any:
    """Return whole numbers moved up or down by less than any tolerance."""
    if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
        return value + (torch.randint(0, 2, value.shape) * 2 - 1) * 2.0**-48
    return value


def jumps(func: Any, call: Arguments) -> bool:
    """Return whether a finite element of a result moves far where whole numbers move by less than any tolerance."""
    call = tree_map(whole_numbers, call)
    for own, neighbour in itertools.chain.from_iterable(pairs(func, call, tree_map(moved, call)) for _ in range(3)):
        if own.shape != neighbour.shape:
            return True
        gaps, sizes = finite_difference(planes(own), planes(neighbour)).abs(), planes(own).nan_to_num().abs()
        if bool((gaps > 1e-6 * (1 + sizes)).any()):
            return True
    return False


@pytest.mark.slow
def test_who_gives_exact_results_has_a_row_and_whose_row_says_so_gives_them(calls: Calls) -> None:
    torch.manual_seed(0)
    missing, wrong = set(), set()
    for func, samples in calls.items():
        samples = [call for call in samples if reads_numbers(call)]
        counts = [agreement(func, call) for call in samples]
        name = func.overloadpacket.__name__
        if row_of(func) is ARITHMETIC and None not in counts and sum(filter(None, counts)) >= ENOUGH:
            missing.update({name} if not all(is_exact(func, *call) for call in samples) else ())
        scalars = any(isinstance(leaf, float) for leaf in tree_leaves(samples))  # rounded to the dtype as they are read
        wrong.update(
            name
            for call, count in zip(samples, counts, strict=True)
            if count is None and is_exact(func, *call) and not scalars
        )
    assert (missing - BY_CHANCE, wrong) == (set(), set())


@pytest.mark.slow
def test_who_makes_a_step_has_a_row(calls: Calls) -> None:
    torch.manual_seed(0)
    stepped = {
        func.overloadpacket.__name__.removesuffix("_")
        for func, samples in calls.items()
        if not row_of(func).freedom and not kink_of(func) and any(jumps(func, call) for call in samples)
    }
    assert stepped - JUMPS.keys() == set()
    assert len(stepped) > 30  # else nothing jumps


def overloads() -> Iterator[Any]:
    """Yield every overload of torch's own operators."""
    for name in sorted({schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")}):
        packet = getattr(aten, name.removeprefix("aten::"), None)
        for overload in packet.overloads() if packet is not None else ():
            yield getattr(packet, overload)


def test_who_draws_random_numbers_has_a_row() -> None:
    names = {func.overloadpacket.__name__ for func in overloads() if torch.Tag.nondeterministic_seeded in func.tags}
    rows = {name for name, row in TABLE.items() if row.draws}
    assert {name for name in names if name not in rows and name.removesuffix("_") not in rows} == {
        name for name in names if COMPUTING.search(name)
    }
    assert [name for name in rows if not {name, f"{name}_"} & names] == []
    assert [name for name in rows if not name.startswith("_") and not DRAWING.search(name)] == []


def test_who_leaves_memory_unwritten_has_a_row() -> None:
    names = {func.overloadpacket.__name__ for func in overloads()}
    empty = {name for name in names if re.match(r"(new_)?empty(?!_quantized)", name)}
    assert len(empty) > 5
    assert empty == {name for name, row in TABLE.items() if row.freedom == "torch.empty" and row.no_values}


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_a_row_is_about_an_operator_of_torch_and_says_something(row: Operator) -> None:
    packets = [getattr(aten, name) for name in (row.name, f"{row.name}_") if hasattr(aten, name)]
    assert packets[0].__name__ == row.name
    assert replace(row, name="", overloads="default") != ARITHMETIC
    assert not row.freedom or row.freedom in FREEDOMS
    for overload in f"{row.overloads} {row.whole}".split() if row.freedom or row.kink or row.whole else ():
        func = next(getattr(packet, overload) for packet in packets if overload in packet.overloads())
        assert not row.kink or row.kink in [argument.name for argument in func._schema.arguments]


def test_control_knows_who_gives_indices() -> None:
    rows = {name for name, row in TABLE.items() if row.freedom and FREEDOMS[row.freedom].definition == "indices"}
    assert rows == INDICES | INDICES_BY_DIMENSION


def test_what_is_accumulated_is_rounded() -> None:
    x, index = torch.ones(3), torch.tensor([0, 0])
    assert is_exact(aten.index_put_.default, (x, [index], x[:2]), {})
    assert not is_exact(aten.index_put_.default, (x, [index], x[:2], True), {})
    assert not is_exact(aten.put.default, (x, index, x[:2]), {"accumulate": True})
    for reduce, exact in (("sum", False), ("mean", False), ("amax", True)):
        assert is_exact(aten.scatter_reduce.two, (x, 0, index, x[:2], reduce), {}) is exact
    assert not is_exact(aten.scatter.reduce, (x, 0, index, x[:2]), {"reduce": "add"})


def test_a_row_holds_in_place_and_for_torchs_own_operators_alone() -> None:
    assert freedom_of(aten.eq_.Scalar) is freedom_of(aten.eq.Scalar) is not None
    assert (kink_of(aten.eq.Scalar), kink_of(aten.eq_.Scalar)) == ("self", "")  # a backward writes into nothing
    assert row_of(aten.abs_.default).exact and not row_of(aten.threshold.default).by_result
    library = torch.library.Library("tables", "DEF")
    library.define("relu(Tensor x) -> Tensor")
    assert row_of(torch.ops.tables.relu.default) is ARITHMETIC
