"""How far roundings move each element: followed through operators, beside a mask, through views, in place and in sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from runner.worker.rounding.uncertainty import Uncertainties, fitting

EPS = torch.finfo(torch.float32).eps
X = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 300.0]])
THIRDS = X.bfloat16() / 3


class Following(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """A mode that follows all operators."""

    def __init__(self) -> None:
        super().__init__()
        self.uncertainties = Uncertainties()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        record = self.uncertainties.follow(func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        record(result)
        return result


def units(program: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor = X) -> list[float] | None:
    """What a program's result is uncertain by, in units of float32, flat."""
    with Following() as mode:
        result = program(x)
    amount = mode.uncertainties.of(result)
    return None if amount is None else (amount / EPS).reshape(-1).tolist()


@pytest.mark.parametrize(
    "program",
    [torch.clone, torch.t, lambda x: x[0] * 2, lambda x: x.new_zeros(2), lambda x: x.relu(), lambda x: x > 2,
     lambda x: x.new_tensor([0.1, 300.7]) / -4, lambda x: x.new_tensor([0.1, 0.2, 0.3]) / torch.tensor([0.5, 2.0, 1.0]), lambda x: x.long() / 2],
)  # fmt: skip
def test_what_rounds_nothing_is_exact(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert units(program) is None


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda x: x / 3, (X / 3).reshape(-1).tolist()),
        (lambda x: x / 3 - 100, [99.67, 99.33, 99.0, 98.67, 98.33, 100.0]),  # the last cancels to nothing
        (lambda x: (x / 3 - 100) * 0.5, [49.83, 49.67, 49.5, 49.33, 49.17, 50.0]),
        (lambda x: (x / 3).sin().mul(0).sin(), [0.0] * 6),
        (lambda x: (x / 3).round(), [0.0] * 6),
        (lambda x: (x * 1.1).floor_().clamp(0, 99), [0.0] * 6),
        (lambda x: torch.div(x * 1.1, 2, rounding_mode="trunc"), [0.0] * 6),
        (lambda x: (x / 3).t()[2], [1.0, 100.0]),
        (lambda x: (x / 3).amax(1), [1.0, 100.0]),
        (lambda x: (x / 3).sum(1), [2.0, 103.0]),
        (lambda x: (x / 3).relu().clone().view(6)[5:], [100.0]),
        (lambda x: torch.sort(x / 3, 1).values[1], [1.33, 1.67, 100.0]),
        (lambda x: (x / 3).masked_fill(x > 100, -1e9)[1], [1.33, 1.67, 0.0]),
        (lambda x: torch.cat([x, x / 3])[:2].reshape(-1), [0.0] * 6),
    ],
)
def test_how_far_a_unit_moves_each_element(
    program: Callable[[torch.Tensor], torch.Tensor], expected: list[float]
) -> None:
    assert units(program) == pytest.approx(expected, rel=0.01)


def test_a_mask_says_nothing_about_other_elements() -> None:
    mask = torch.tensor([0.0, 0.0, 1.0])
    values = units(lambda x: x + mask * -1e9)
    assert values is not None
    assert values[0] == pytest.approx(1.0) and values[4] == pytest.approx(5.0) and values[2] == pytest.approx(1e9)


ALONG: dict[str, Callable[[torch.Tensor], Any]] = {
    "logsumexp": lambda x: x.logsumexp(1),
    "kept": lambda x: x.logsumexp(-1, keepdim=True),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "var": lambda x: x.var(1),
    "std_mean": lambda x: torch.std_mean(x, 1)[0],
    "prod": lambda x: x.prod(1),
    "cumprod": lambda x: x.cumprod(1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
}


@pytest.mark.parametrize("name", ALONG)
def test_a_large_row_says_nothing_about_the_others(name: str) -> None:
    """Nobody adds the numbers of two rows: of a row that is masked, the other ones are not uncertain by 1e9 units."""
    x = torch.tensor([[-1e9, -1e9, -1e9], [1.0, 2.0, 3.0]])
    amounts = units(ALONG[name], x)
    assert amounts is not None
    half = len(amounts) // 2
    assert 0 < max(amounts[half:]) <= 6  # the sum of the row
    if name not in ("softmax", "log_softmax", "var", "std_mean"):
        assert max(amounts[:half]) >= 1e9


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.logsumexp((0, 1)),
        lambda x: x.logsumexp(0),
        lambda x: torch.renorm(x, 2, 0, 1e8),
        lambda x: x.log_softmax(0),
        lambda x: torch.linalg.vector_norm(x),
    ],
)
def test_what_is_computed_across_rows_is_as_uncertain_as_the_largest(program: Any) -> None:
    amounts = units(program, torch.tensor([[-1e9, 2e9, -1e9], [1.0, 2.0, 3.0]]))
    assert amounts is not None and max(amounts) > 1e7


def test_a_write_reaches_the_other_views_of_its_memory() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        whole = x / 3
        whole[0].sub_(100)
        return whole

    def untouched_before(x: torch.Tensor) -> torch.Tensor:
        whole = x.clone()
        whole[0].div_(3)
        return whole

    assert units(program) == pytest.approx([99.67, 99.33, 99.0, 1.33, 1.67, 100.0], rel=0.01)
    assert units(untouched_before) == pytest.approx([1.0] * 6, rel=0.01)  # of the largest in that memory


def test_layers_do_not_multiply_their_roundings() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(256, 256, generator=generator) / 16 for _ in range(12)]

    def program(x: torch.Tensor) -> torch.Tensor:
        for weight in weights:
            x = x @ weight
        return x

    values = units(program, torch.randn(4, 256, generator=generator))
    assert values is not None and max(values) < 50


def test_a_cast_keeps_what_the_narrow_dtype_has_rounded() -> None:
    values = units(lambda x: (x / 3).to(torch.bfloat16).div(3).float())
    assert values is not None and values[0] == pytest.approx(65536 / 9, rel=0.05)


def test_what_another_run_knows_is_taken_where_it_fits() -> None:
    amount = torch.ones(2, 3, dtype=torch.float64)
    assert fitting(amount, X) is amount and fitting(amount, torch.ones(3)) is amount
    assert fitting(None, X) is None
    filled_amount = fitting(amount, torch.full((5,), 2.0))
    assert filled_amount is not None and filled_amount.tolist() == pytest.approx([2 * EPS] * 5)


@pytest.mark.parametrize(
    ("compared", "expected"),
    [
        (lambda s: (s, s.amax(1, keepdim=True)), [False, False, True] * 2),
        (lambda s: (s, s.t().clone().amin(0)[:, None]), [True, False, False] * 2),
        (lambda s: (s, s.gather(1, torch.zeros(2, 1, dtype=torch.int64))), [True, False, False] * 2),
        (lambda s: (s, s.sort(1, descending=True).values), [False, True, False] * 2),
        (lambda s: (s, s + 0.0), [False] * 6),
        (lambda s: (s.relu_(), s), [True] * 6),
        (lambda s: (s, s.clone().mul_(1.0)), [False] * 6),
        (lambda s: (s, torch.cat([s[:, :2], s[:, 1:2] * 1.0], 1).amax(1, keepdim=True)), [False] * 6),  # a tie
    ],
)
def test_a_number_that_is_compared_with_its_copy_has_no_amount(
    compared: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]], expected: list[bool]
) -> None:
    assert stay(compared, X) == expected


def stay(compared: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]], x: torch.Tensor) -> list[bool]:
    """Which elements of two tensors that a program makes of thirds are one number and its copy."""
    with Following() as mode:
        first, second = compared(x / 3)
    amount = mode.uncertainties.of_compared({"self": first, "other": second})
    assert amount is not None
    return amount.isnan().reshape(-1).tolist()


@pytest.mark.parametrize(
    ("compared", "expected"),
    [
        (lambda s: (s, s.float().amax(1, keepdim=True)), [False, False, True] * 2),
        (lambda s: (s.double(), s.float().amax(1, keepdim=True).bfloat16()), [False, False, True] * 2),
        (lambda s: (s, torch.zeros(2, 3).copy_(s)), [True] * 6),
        (lambda s: (s, s.to(torch.float8_e5m2).bfloat16()), [False] * 6),
        (lambda s: (s, torch.zeros(2, 3, dtype=torch.float8_e5m2).copy_(s).bfloat16()), [False] * 6),
        (lambda s: (s, torch.maximum(s, THIRDS * 0.93)), [True] * 6),  # further away than roundings
        (lambda s: (s, torch.maximum(s, THIRDS)), [False] * 6),
    ],
)
def test_a_half_stays_its_own_copy_through_casts_that_round_nothing(
    compared: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]], expected: list[bool]
) -> None:
    assert stay(compared, X.bfloat16()) == expected
