"""Undefined values pass with their label; a real bug beside them fails."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import pytest
import torch
from worker_jobs import oracles, passes, run, source

from runner.worker import thresholds
from runner.worker.operators.choices import Call, Draw, compare_rounded, overlaps_itself, share_elements, targets
from runner.worker.operators.freedoms import FREEDOMS, OVERLAP, ROUNDED, SHARED
from runner.worker.rerun.agreement import Agreement

aten = torch.ops.aten

TIES = "torch.tensor([3., 1., 3., 2., 1., 3., 3., 1.])"
INTEGERS = "torch.tensor([3, 1, 3, 2, 1, 3, 3, 1])"
NO_GRADIENT = {"grad": {"mode": "off"}, "config": {"torch._dynamo.config.capture_dynamic_output_shape_ops": True}}
TWICE = "torch.tensor([0, 2, 0, 2, 0])"
SYMMETRIC = "torch.tensor([[2., 1., 0.], [1., 2., 0.], [0., 0., 5.]])"
WRITES = f"torch.zeros(4), {TWICE}, torch.arange(1., 6.)"

# name: (source, what torch calls it)
OPEN: dict[str, tuple[str, str]] = {
    "sort": (source("return torch.sort(x)", TIES), "torch.sort"),
    "sort, downwards, of integers": (source("return torch.sort(x, 0, True)", INTEGERS), "torch.sort"),
    "argsort": (source("return torch.argsort(x), x + 1", TIES), "torch.sort"),
    "argsort, not stable": (source("return torch.argsort(x, stable=False), x + 1", TIES), "torch.sort"),
    "indices that flow on": (source("return torch.sort(x).indices * 2 + 1, x + 1", TIES), "torch.sort"),
    "topk": (source("return torch.topk(x, 3)", TIES), "torch.topk"),
    "topk, unsorted": (source("return torch.topk(x, 6, sorted=False)", TIES), "torch.topk"),
    "kthvalue": (source("return torch.kthvalue(x, 7)", TIES), "torch.kthvalue"),
    "median": (source("return torch.median(x, 0)", "torch.tensor([2., 1., 2., 3., 2.])"), "torch.median"),
    "mode": (source("return torch.mode(x)", TIES), "torch.mode"),
    "cummax": (source("return torch.cummax(x, 0)", TIES), "torch.cummax"),
    "cummin": (source("return torch.cummin(x, 0)", TIES), "torch.cummax"),
    "unique": (source("return torch.unique(x, sorted=False)", TIES), "torch.unique"),
    "scatter": (source("return x.scatter(0, i, y)", WRITES, "x, i, y"), "Tensor.scatter_"),
    "index_put": (source("return x.index_put((i,), y)", WRITES, "x, i, y"), "Tensor.index_put_"),
    "index_put along": (
        source("x[:, i] = y\nreturn x", f"torch.zeros(2, 4), {TWICE}, torch.arange(10.).view(2, 5)", "x, i, y"),
        "Tensor.index_put_",
    ),
    "index_copy": (source("return x.index_copy(0, i, y)", WRITES, "x, i, y"), "Tensor.index_copy_"),
    "put": (source("return x.put(i, y)", WRITES, "x, i, y"), "Tensor.put_"),
    "empty": (source("y = x.new_empty(3)\nreturn torch.cat([x, y])", TIES), "torch.empty"),
    "resize": (source("y = x + 1\ny.resize_(12)\nreturn y", TIES), "Tensor.resize_"),
    "cast": (source("return x.to(torch.int32)", "torch.tensor([1., float('nan'), 3e10])"), "Tensor.to"),
    "byte": (source("return x.byte()", "torch.tensor([1., -3., 300., -0.5])"), "Tensor.to"),
    "bucketize": (source("return torch.bucketize(x, x), x + 1", TIES), "torch.bucketize"),
    "svd": (source("return torch.linalg.svd(x)", "torch.arange(12.).view(3, 4).sin()"), "torch.linalg.svd"),
    "eigh": (source("return torch.linalg.eigh(x)", SYMMETRIC), "torch.linalg.eigh"),
    "eig": (source("return torch.linalg.eig(x)", SYMMETRIC), "torch.linalg.eig"),
    "qr": (source("return torch.linalg.qr(x)", "torch.arange(12.).view(4, 3).sin()"), "torch.linalg.qr"),
}

# name: (source, a backend with one bug)
BROKEN: dict[str, tuple[str, str]] = {
    "an index out of range": (OPEN["sort"][0], "out_of_range"),
    "an index below the range": (OPEN["topk"][0], "below_range"),
    "an index that stands twice": (OPEN["sort"][0], "index_twice"),
    "an argsort that names other elements": (OPEN["argsort"][0], "swapped_ends"),
    "an extreme that lies ahead": (OPEN["cummax"][0], "swapped_ends"),
    "a sort that loses an element": (OPEN["sort"][0], "lost_element"),
    "a set that loses an element": (OPEN["unique"][0], "lost_element"),
    "a value that nobody wrote": (OPEN["scatter"][0], "foreign_value"),
    "a value that nobody put": (OPEN["index_put"][0], "foreign_value"),
    "a wrong value beside a tie": (
        source("return torch.sort(x).indices * 2 + 1", "torch.tensor([3., 3., 7., 9.])"),
        "last_wrong",
    ),
    "a wrong value beside other memory": (
        source("y = x.new_empty(3)\nreturn torch.cat([y, x])", TIES),
        "last_wrong",
    ),
    "a wrong cast beside one that does not fit": (
        source("return x.to(torch.int32)", "torch.tensor([float('nan'), 3e10, 4.])"),
        "last_wrong",
    ),
    "a wrong byte beside floats that do not fit": (
        source("return x.to(torch.uint8)", "torch.tensor([-1.5, 300., 255.])"),
        "first_zero_last_wrong",
    ),
    "vectors of another matrix": (OPEN["eigh"][0], "skewed"),
    "a wrong decomposition": (OPEN["svd"][0], "skewed"),
    "a Q that is not orthogonal": (OPEN["qr"][0], "skewed"),
    "an index beside a mask of large numbers": (
        source("return (x * 1.1).masked_fill(x == 9, -1e9).argmax(0)", "torch.tensor([1., 5., 2., 9.])"),
        "next_index",
    ),
    "a place outside of a set": (
        source("return torch.unique(x, sorted=False, return_inverse=True)", "torch.tensor([3., 1., 3., 2.])"),
        "below_range",
    ),
    "a wrong count": (
        source("return torch.unique(x, sorted=False, return_counts=True)", "torch.tensor([3., 1., 3., 2.])"),
        "out_of_range",
    ),
    "an index of all elements": (source("return (x * 1.1).argmax()", "torch.tensor([1., 3., 3., 0.5])"), "below_range"),
}


@pytest.mark.parametrize("name", OPEN)
def test_other_legal_choices_pass_with_their_label(name: str) -> None:
    text, operator = OPEN[name]
    records = [run(text, f"planted:{backend}", **NO_GRADIENT) for backend in ("legal", "last_of_equals")]
    for record in records:
        assert (oracles(record), record["trust"]) == ([], None), record["findings"]
    unspecified = [record for record in records if "unspecified" in record["labels"]]
    assert unspecified
    assert any(operator in note for record in unspecified for note in record["notes"]), unspecified


@pytest.mark.parametrize("name", OPEN)
def test_torchs_own_choice_has_no_label(name: str) -> None:
    record = run(OPEN[name][0], "planted:clean", **NO_GRADIENT)
    assert (oracles(record), record["trust"]) == ([], None)
    if name not in ("empty", "resize"):  # memory holds what it likes
        assert "unspecified" not in record["labels"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_bug_beside_an_undefined_value_fails(name: str) -> None:
    text, backend = BROKEN[name]
    record = run(text, f"planted:{backend}", **NO_GRADIENT)
    assert {"value"} == set(oracles(record)), record


@pytest.mark.parametrize(
    ("backend", "expected"),
    [("clean", []), ("far_away", ["value"]), ("to_double", ["dtype"]), ("extra_dimension", ["shape"])],
)
def test_a_selection_of_nobody_knows_how_many(backend: str, expected: list[str]) -> None:
    """0.11 and what is computed as 0.11: how many there are is not defined. Rank, dtype and the range of the numbers are."""
    text = source("y = x * 1.1\nreturn y[y > 0.11]", "torch.tensor([0.1, 0.5, -1.0, 2.0, 3.0, 0.05])")
    record = run(text, f"planted:{backend}", **NO_GRADIENT)
    assert oracles(record) == expected, record["findings"]


def test_a_sort_of_a_backends_own_passes() -> None:
    record = run(source("return torch.sort(x, 0)", TIES), "planted:stable_sorts", **NO_GRADIENT)
    assert oracles(record) == []
    assert record["labels"] == ["unspecified"]


def test_a_case_without_a_defined_value_proves_nothing() -> None:
    text = source("return torch.sort(x).indices * 2", "torch.ones(5)")
    record = run(text, "planted:stable_sorts", **NO_GRADIENT)
    assert oracles(record) == []
    assert record["trust"]["verdict"] == "VACUOUS"
    assert "torch.sort" in record["trust"]["reason"]


def test_a_stable_sort_has_no_choice() -> None:
    text = source("return torch.sort(x, stable=True).indices", TIES)
    assert oracles(run(text, "planted:swapped_ends", **NO_GRADIENT)) == ["value"]


def test_the_first_maximum_is_defined() -> None:
    """``torch.max`` and ``torch.argmax`` name the first of equals, as their documentation says."""
    sentence = "then the indices of the first maximal value are returned."
    assert sentence in " ".join(inspect.getdoc(torch.max).split())  # type: ignore[union-attr]
    assert sentence in " ".join(inspect.getdoc(torch.argmax).split())  # type: ignore[union-attr]
    text = source("return x.argmax(0, keepdim=True)", "torch.ones(5)")
    assert oracles(run(text, "planted:off_by_one", **NO_GRADIENT)) == ["value"]


NEAR = "torch.tensor([1., 2., 3., 4.]) + 2.0**-13, torch.tensor([1., 1., 1., 1.])"
"""Sums of these are exact, and have so many bits that others beside them would be rounded."""


@pytest.mark.parametrize(
    "operator",
    ["sort(v).indices", "argmin(v, 0, True)", "min(v, 0, True).indices", "topk(v, 2, largest=False).indices"],
)
def test_the_order_of_computed_values_is_known_up_to_a_rounding(operator: str) -> None:
    """The sum is 1 in eager, and 1 and some in a backend that rounds in another way; so another element is the largest."""
    body = f"v = (x * 2.4e-7 + y).neg()\nreturn torch.{operator}, v"
    text = source(body, NEAR, "x, y")
    record = run(text, "planted:added_otherwise", **NO_GRADIENT)
    assert (oracles(record), record["labels"]) == ([], ["unspecified"]), record["findings"]
    exact = source(f"v = y.clone()\nreturn torch.{operator}", "torch.ones(1), torch.tensor([2., 3., 1., 4.])", "x, y")
    wrong = "planted:off_by_one" if "min" in operator else "planted:swapped_ends"
    assert oracles(run(exact, wrong, **NO_GRADIENT)) == ["value"]


def test_a_comparison_of_computed_values_is_known_up_to_a_rounding() -> None:
    body = "v = x * 2.4e-7 + y\nreturn v < 1.0000009, v"
    record = run(source(body, NEAR, "x, y"), "planted:added_otherwise", **NO_GRADIENT)
    assert (oracles(record), record["labels"]) == ([], ["unspecified"]), record["findings"]
    far = source("v = x * 2.4e-7 + y\nreturn v < 1.5", NEAR, "x, y")
    exact = source("return x < 3, x + 1", "torch.tensor([1., 2., 3., 4.])")
    for text in (far, exact):
        assert oracles(run(text, "planted:negated", **NO_GRADIENT)) == ["value"]


QUANTIZED = [
    "torch.round(s * 30).clamp(-128, 127).to(torch.int8)",
    "torch.floor(s * 1e8)",
    "torch.round(s * 3) == 3.0",
    "torch.round(s * 30).to(torch.int32) / 30.0",
    "torch.floor_divide(s, 0.1).to(torch.int32)",
    "torch.sign(s).to(torch.int32) + 1",
]


@pytest.mark.parametrize("body", QUANTIZED)
def test_whole_numbers_of_computed_values_are_compared(body: str) -> None:
    """A rounding decides about those beside a step alone, and each is held against its own legal values."""
    text = source(f"s = x * 1.1\nreturn {body}, x + 1", "torch.linspace(0.91, 1, 8)")
    wrong = run(text, "planted:zeros", **NO_GRADIENT)
    assert [(finding["oracle"], finding["path"]) for finding in wrong["findings"]][:1] == [("value", "output[0]")]
    record = run(text, **NO_GRADIENT)
    assert (oracles(record), record["labels"]) == ([], [])


@pytest.mark.parametrize("step", ["round", "floor", "ceil"])
def test_a_whole_number_far_from_a_step_is_no_other_one(step: str) -> None:
    text = source(f"return torch.{step}(x * 1.1 * 30).to(torch.int32)", "torch.linspace(0.91, 1, 8)")
    assert oracles(run(text, "planted:off_by_one", **NO_GRADIENT)) == ["value"]


OWN_EXTREMES = [
    "torch.where(s == s.amax(0), s, 0)",
    "torch.where(s >= s.amax(0), s, 0)",
    "torch.where(s < s.amax(0), 0, s)",
    "torch.where(s != s[s.argmax(0)], 0, s)",
    "torch.where(s == s.sort().values[-1], s, 0)",
]


@pytest.mark.parametrize("body", OWN_EXTREMES)
def test_a_computed_number_equals_its_own_copy(body: str) -> None:
    text = source(f"s = x * 1.1\nreturn {body}", "torch.tensor([3.0, 5.0, 2.0])")
    assert oracles(run(text, "planted:zeros", **NO_GRADIENT)) == ["value"]
    record = run(text, **NO_GRADIENT)
    assert (oracles(record), record["labels"]) == ([], [])


HALVES = [
    "s == s.max()",
    "s >= s.sort().values[-1]",
    "s.float() == s.amax(0)",
    "s == s.float().amax(0)",
    "s == s.float().amax(0).bfloat16()",
    "(z := s * s + x) == z.amax(-1, keepdim=True)",
    "-s == (-s).min()",
    "s == s.gather(0, s.argmax(0, keepdim=True))",
    "s == s[s.argmax()]",
    "s == torch.maximum(s, x)",
    "s == s.clamp(min=4)",
    "s == torch.where(x > 4, s, 0)",
    "s[None] == torch.nn.functional.unfold(s.view(1, 1, 1, 3), 1)[0]",
    "s == torch.segment_reduce(s.float(), 'max', lengths=torch.tensor([3]))",
]


@pytest.mark.parametrize("body", HALVES)
def test_a_half_equals_what_was_selected_from_its_own_values(body: str) -> None:
    """Compiled code may keep more bits of one side, and then finds no equal ones."""
    largest = f"({body}).view(-1)[1:2]"
    text = source(f"s = x * 1.1\nreturn {largest}", "torch.tensor([3.0, 5.0, 2.0]).bfloat16()")
    fields = {"dtype": "bfloat16", **NO_GRADIENT}
    assert oracles(run(text, "planted:negated", **fields)) == ["value"]
    record = run(text, **fields)
    assert (oracles(record), record["labels"]) == ([], [])


@pytest.mark.parametrize(
    "selected",
    [
        "x.unique()[1:2]",
        "x.unique_consecutive()[:1]",
        "x.view(3, 1).unique(dim=0)[1]",
        "x.view(3, 1).unique_consecutive(dim=0)[0]",
        "torch.segment_reduce(x, 'min', lengths=torch.tensor([2, 1]))[:1]",
        "torch.nn.functional.unfold(x.view(1, 1, 1, 3), 1)[0, 0, :1]",
    ],
)
def test_what_is_selected_from_inputs_does_not_move(selected: str) -> None:
    text = source(f"return {selected} > 3", "torch.tensor([3.0, 5.0, 2.0])")
    assert oracles(run(text, "planted:negated", **NO_GRADIENT)) == ["value"]


def test_the_sign_of_a_sum_that_cancels_is_known_up_to_a_rounding() -> None:
    """Eager gives zero, and a backend that rounds in another way gives less than that: it takes the other branch."""
    body = "v = ((x + y) - x).sum() - 4\nreturn torch.where(v >= 0, x, -x), v"
    record = run(source(body, NEAR, "x, y"), "planted:added_otherwise", **NO_GRADIENT)
    assert (oracles(record), record["labels"]) == ([], ["unspecified"]), record["findings"]
    far = source("v = ((x + y) - x).sum() - 3\nreturn v >= 0", NEAR, "x, y")
    assert oracles(run(far, "planted:negated", **NO_GRADIENT)) == ["value"]


@pytest.mark.parametrize(
    "edges", ["torch.linspace(0.3, 1.5, 5)", "torch.logspace(0, 1, 4)", "torch.arange(0.3, 2, 0.3)"]
)
@pytest.mark.parametrize("compare", ["torch.bucketize(x, e)", "torch.searchsorted(e, x)", "x[:2] <= e[:2]"])
def test_the_elements_of_a_range_are_computed(edges: str, compare: str) -> None:
    """A kernel and a decomposition may round them otherwise: where an input equals one, either side is right."""
    inputs = f"torch.cat([{edges}[:2], torch.tensor([-4., 9.])])"
    text = source(f"e = {edges}\nreturn {compare}, x + 1", inputs)
    record = run(text, "planted:stepped_otherwise", **NO_GRADIENT)
    assert (oracles(record), record["labels"]) == ([], ["unspecified"]), record["findings"]
    if "<=" not in compare:
        wrong = source(f"e = {edges}\nreturn {compare}", inputs)
        assert oracles(run(wrong, "planted:last_wrong", **NO_GRADIENT)) == ["value"]


STEPS = [
    "torch.floor(y)",
    "y.clone().floor_()",
    "torch.div(y, 1.0, rounding_mode='floor')",
    "y.to(torch.int32)",
    "torch.sign(y - 1) + 2",
    "torch.logical_not(y - 1)",
    "torch.any(y - 1, 0, keepdim=True)",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_computed_value_at_a_step_is_on_either_side(step: str) -> None:
    """Eager divides and gets one; a backend that rounds in another way gets less."""
    record = run(source(f"y = x / x\nreturn {step}", "torch.tensor([3.0, 5.0])"), "planted:each_rounded", **NO_GRADIENT)
    assert (oracles(record), record["labels"]) == ([], ["unspecified"]), record["findings"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("y", ["x", "x / x + 0.3"])
def test_an_input_and_a_value_far_from_a_step_are_on_their_side(step: str, y: str) -> None:
    backend = "negated" if "not" in step or "any" in step else "last_wrong"
    record = run(source(f"y = {y}\nreturn {step}", "torch.tensor([3.0, 5.0])"), f"planted:{backend}", **NO_GRADIENT)
    assert oracles(record) == ["value"]


def test_a_cast_to_a_floating_dtype_and_a_quotient_move_by_no_step() -> None:
    """What is left of two numbers that nearly cancel would be excused from everything."""
    for step in ("(x / 3).to(torch.float64)", "torch.div(x / 3, 1.0, rounding_mode=None)", "z.copy_(x / 3)"):
        text = source(f"y = {step}\nreturn (y - y.round()).abs() + 1", "torch.ones(4) * 3.001, torch.zeros(4)", "x, z")
        assert oracles(run(text, "planted:a_thousandth_more", **NO_GRADIENT)) == ["value"], step


def test_a_coin_of_a_computed_probability_is_on_either_side_and_is_tossed_once() -> None:
    toss = FREEDOMS["torch.bernoulli"]
    call = Call(
        aten.bernoulli.default, {"self": torch.full((4000,), 0.5).bfloat16(), "generator": None}, torch.zeros(())
    )
    torch.manual_seed(0)
    own = call.run()
    state = torch.get_rng_state()
    for number, count in ((3, own.sum()), (4, -own.sum())):
        torch.manual_seed(0)
        second_toss, free = compare_rounded(toss.choose, call, Draw(number))
        assert free and torch.equal(torch.get_rng_state(), state)
        assert second_toss.sum() * (1 if count > 0 else -1) > count and int((second_toss != own).sum()) < 100
    certain = replace(call, arguments={"self": torch.ones(9), "generator": None})
    assert bool(compare_rounded(toss.choose, certain, Draw(3))[0].all())


@pytest.mark.parametrize("edges", ["torch.arange(1., 5.)", "torch.full((4,), 2.5)", "x.clone()"])
def test_what_is_not_computed_is_exact(edges: str) -> None:
    text = source(f"e = {edges}\nreturn torch.bucketize(x, e)", "torch.tensor([1., 2., 2.5, 3.])")
    assert oracles(run(text, "planted:off_by_one", **NO_GRADIENT)) == ["value"]


def test_a_write_through_memory_that_overlaps_itself_is_undefined() -> None:
    body = "y = x.expand(5)\ny[i] = 3\nreturn y, y + 0, z * 2"
    text = source(body, "torch.ones(1), torch.tensor([1, 2]), torch.ones(4)", "x, i, z")
    assert overlaps_itself(torch.ones(1).expand(5))
    assert overlaps_itself(torch.ones(9).unfold(0, 3, 1))
    assert overlaps_itself(torch.ones(9).as_strided((2, 2, 2), (1, 1, 4)))
    assert not overlaps_itself(torch.ones(9).unfold(0, 3, 3))
    assert not overlaps_itself(torch.ones(9).as_strided((2, 3), (3, 2)))
    assert not overlaps_itself(torch.ones(4, 6).t()[::2])
    record = run(text, "planted:writes_apart", ignore=["stride", "alias"], **NO_GRADIENT)
    assert oracles(record) == []
    assert any(OVERLAP in note for note in record["notes"])


MATRICES = "torch.randn(2, 3, 3), torch.randn(2, 3, 3)"


@pytest.mark.parametrize(
    "body",
    [
        "x.baddbmm_(y, x)\nreturn x + 0, y * 2",
        "x[:, :, 1:].copy_(x[:, :, :-1])\nreturn x + 0, y * 2",
    ],
)
def test_a_write_into_memory_that_the_operator_reads_is_undefined(body: str) -> None:
    """Eager writes while it reads; a functional graph reads first."""
    record = run(source(body, MATRICES, "x, y"), "aot_eager", **NO_GRADIENT)
    assert (oracles(record), record["labels"]) == ([], ["unspecified"]), record["findings"]
    assert any(SHARED in note for note in record["notes"])


@pytest.mark.parametrize(
    "body",
    [
        "x.baddbmm_(y, x.clone())\nreturn x + 0",
        "x.baddbmm_(y, y)\nreturn x + 0",
        "x[:1].baddbmm_(y[:1], x[1:])\nreturn x + 0",
        "x.add_(x)\nreturn x + 0",
        "x[:, :, 1:].mul_(x[:, :, 1:])\nreturn x + 0",
        "x.copy_(x)\nreturn x + 0",
    ],
)
def test_a_write_beside_what_is_read_is_defined(body: str) -> None:
    """A pointwise operator reads each element before it writes it."""
    assert oracles(run(source(body, MATRICES, "x, y"), "planted:last_wrong", **NO_GRADIENT)) == ["value"]


NORM = "torch.nn.functional.batch_norm(x, {}, training=True)"


@pytest.mark.parametrize("arguments", ["m, m", "m, v, v", "m, v, m + 1, m"])
def test_statistics_that_share_memory_are_undefined(arguments: str) -> None:
    """A batch norm in training writes to its statistics, also where its schema does not say so."""
    inputs = "torch.randn(6, 3), torch.zeros(3), torch.ones(3)"
    record = run(
        source(f"y = {NORM.format(arguments)}\nreturn y, m + 0, v + 0", inputs, "x, m, v"), "aot_eager", **NO_GRADIENT
    )
    assert (oracles(record), record["labels"]) == ([], ["unspecified"]), record["findings"]


@pytest.mark.parametrize("arguments", ["m, v", "m, v, m + 0, v + 0"])
def test_statistics_of_their_own_are_defined(arguments: str) -> None:
    inputs = "torch.randn(6, 3), torch.zeros(3), torch.ones(3)"
    text = source(f"{NORM.format(arguments)}\nreturn m + 0, v + 0", inputs, "x, m, v")
    assert set(oracles(run(text, "planted:last_wrong", **NO_GRADIENT))) == {"value"}


def test_elements_in_common() -> None:
    x = torch.zeros(4, 4)
    assert share_elements(x, x.t()) and share_elements(x[:, 1:], x[:, :2]) and share_elements(x[1], x[:, 3])
    assert not share_elements(x[:, :2], x[:, 2:]) and not share_elements(x[:2], x[2:]) and not share_elements(x, x[:0])


@pytest.mark.parametrize(
    "body, expected",
    [
        ("y = x.expand(5)\ny[i] = 3\nreturn y + 0", []),
        ("y = x.expand(5)\ny[-1].fill_(3)\nreturn y + 0", []),
        ("y = x.repeat(5)\ny[i] = 3\nreturn y + 0", ["runtime-error"]),
        ("y = x.expand(5)\nx.add_(1)\nreturn y + 0", ["runtime-error"]),
    ],
)
def test_a_refusal_to_write_there_is_no_bug(body: str, expected: list[str]) -> None:
    text = source(body, "torch.ones(1), torch.tensor([1, 2])", "x, i")
    record = run(text, "planted:refuses_writes", **NO_GRADIENT)
    assert oracles(record) == expected
    assert ((record["trust"] or {}).get("verdict") == "VACUOUS") == (not expected)


@pytest.mark.parametrize("body, verdict", [("torch.cat([x, x.new_empty(3)])", None), ("x + 1", "FLAKY")])
def test_memory_that_nobody_wrote_is_not_flaky(body: str, verdict: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What eager found in memory is not there when it runs again; with the same in memory it agrees with itself."""
    answers = iter(["output", None])
    monkeypatch.setattr("runner.worker.run.job.find_disagreement", lambda *args: next(answers))
    record = run(source(f"return {body}", TIES), "planted:legal", **NO_GRADIENT)
    assert oracles(record) == []
    assert (record["trust"] or {}).get("verdict") == verdict


def test_what_disagrees_under_the_same_choices_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scatter that picks one of several values disagrees first; what makes the case flaky is the sum behind it."""
    answers = iter(["output[0]", "output[2]"])
    monkeypatch.setattr("runner.worker.run.job.find_disagreement", lambda *args: next(answers))
    record = run(source("return torch.cat([x, x.new_empty(3)])", TIES), "planted:legal", **NO_GRADIENT)
    assert (record["trust"]["verdict"], record["trust"]["reason"]) == (
        "FLAKY",
        "two eager runs, made alike, disagree: output[2]",
    )


def test_runs_with_the_same_choices_agree_by_the_rules_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that adds in another order each time differs by a rounding then, and that is no disagreement."""
    calls: list[tuple[Any, ...]] = []

    def find(*args: Any) -> str | None:
        calls.append(args[2:])
        return "output" if len(calls) == 1 else None

    monkeypatch.setattr("runner.worker.run.job.find_disagreement", find)
    record = run(source("return torch.cat([x, x.new_empty(3)])", TIES), "planted:legal", **NO_GRADIENT)
    assert record["trust"] is None
    first, second = calls
    assert first == second and isinstance(first[1], Agreement)


def test_every_sentence_is_torchs() -> None:
    """A sentence that torch no longer says is no reason any more."""
    for name, freedom in FREEDOMS.items():
        if freedom.sentence == ROUNDED or name == SHARED:
            continue
        holder: Any = torch
        for part in name.replace("Tensor.", "torch.Tensor.").split(".")[1:]:
            holder = getattr(holder, part)
        sources = [holder, torch.argsort] if name == "torch.sort" else [holder]
        texts = [" ".join((source.__doc__ or "").split()) for source in sources]
        assert any(" ".join(freedom.sentence.split()) in text for text in texts), name


def test_targets_of_a_write() -> None:
    x, index, values = torch.zeros(2, 3), torch.tensor([2, 0]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    call = Call.bind(aten.index_put.default, (x, [None, index], values), {})
    indices = targets(call)
    assert indices is not None
    assert indices[0].tolist() == [2, 0, 5, 3]
    assert indices[1].tolist() == [1, 2, 3, 4]
    assert targets(Call.bind(aten.index_put.default, (x, [None, index], values, True), {})) is None


def test_each_element_of_a_tie_moves() -> None:
    """Over all draws every element of a tie has stood at another place than torch's, unless by a rare chance."""
    x = torch.tensor([1.0, 1.0, 1.0, 0.0, 2.0, 2.0])
    call = Call.bind(aten.sort.default, (x,), {})
    own = call.run()[1]
    choices = [
        FREEDOMS["torch.sort"].choose(call, Draw(number))[0][1] for number in range(1, thresholds.LEGAL_RUNS.value + 1)
    ]
    differs = torch.stack([choice != own for choice in choices]).any(0)
    assert differs.tolist() == [False, True, True, True, True, True]
    assert all(torch.equal(x[choice], x.sort().values) for choice in choices)


WHOLE = "torch.arange(-10., 11., 2.)"
"""The last of them stands where each step below is made."""


@pytest.mark.parametrize(
    "body", ["(x * 0.5).floor()", "(x * 3).long()", "(x + 1) > 11", "(x - 10).sign()", "(x * 0.25).round()"]
)
def test_steps_of_exact_arithmetic_are_defined(body: str) -> None:
    """No rounding decides on which side small whole numbers lie."""
    text = source(f"return ({body}) + 1", WHOLE)
    assert oracles(run(text, "planted:last_wrong", **NO_GRADIENT)) == ["value"]
    assert passes(run(text, "planted:clean", **NO_GRADIENT))


def test_a_mean_of_whole_numbers_is_defined_where_it_divides_by_a_power_of_two() -> None:
    for inputs, expected in (("torch.tensor([1., 2., 3., 2.])", ["value"]), ("torch.tensor([1., 3., 2.])", [])):
        record = run(source("return x + 1, x.mean() > 2", inputs), "planted:last_output_negated", **NO_GRADIENT)
        assert oracles(record) == expected, record


def test_a_step_of_rounded_numbers_is_not() -> None:
    text = source("return (x * 0.1 * 10).floor()", "torch.cat([torch.arange(9.) + 0.3, torch.tensor([10.])])")
    record = run(text, "planted:last_stepped", **NO_GRADIENT)
    assert (oracles(record), record["labels"]) == ([], ["unspecified"]), record["findings"]
    assert oracles(run(text, "planted:last_wrong", **NO_GRADIENT)) == ["value"]  # the other way no rounding leads


def test_sums_that_should_be_one_may_be_equal_to_it() -> None:
    """Eager says no where its sum is a rounding above one, and compiled code may say yes."""
    body = "s = torch.softmax(x, -1).sum(-1)\nreturn s == 1.0, x + 1"
    record = run(source(body, "torch.randn(64, 37)"), "planted:each_rounded", **NO_GRADIENT)
    assert (oracles(record), record["labels"]) == ([], ["unspecified"]), record["findings"]


UNDEFINED = (
    "v, w = torch.linalg.eigh(x @ x.T)\nreturn x.T @ w",
    "i = torch.zeros(4, dtype=torch.long)\nreturn torch.zeros(4, 5).scatter(0, i[:, None].expand(4, 5), x) * 2",
)


@pytest.mark.parametrize("body", UNDEFINED)
@pytest.mark.parametrize("backend", ["first_far_away", "first_nan"])
def test_undefined_elements_lie_near_legal_ones(body: str, backend: str) -> None:
    text = source(f"{body}, x + 1", "torch.randn(4, 5)")
    messages = [finding["message"] for finding in run(text, f"planted:{backend}", **NO_GRADIENT)["findings"]]
    assert any(message.startswith("an element that may hold several values is") for message in messages), messages
    assert passes(run(text, "planted:clean", **NO_GRADIENT))


ORDER = "torch.tensor([3, 1, 3, 2, 1, 3]), torch.tensor([5., -1., 2., 0.5, 7., -4.])"
PICKED = {
    "elements in the order of others": source("return x + 1, y[torch.argsort(x)]", ORDER, "x, y"),
    "elements beside their order": source("i = torch.argsort(x)\nreturn i, y[i]", ORDER, "x, y"),
    "computed from picked ones": source("return x + 1, (y[torch.topk(x, 2).indices] + 0.1).exp()", ORDER, "x, y"),
    "integers": source("return x + 1, torch.sort(x).indices * 10", ORDER, "x, y"),
    "one of several writes": source("return x + 1, torch.zeros(3).scatter(0, x % 3, y)[:2] * 2", ORDER, "x, y"),
}


@pytest.mark.parametrize("name", PICKED)
def test_an_operator_that_picks_has_a_finite_number_of_values(name: str) -> None:
    record = run(PICKED[name], "planted:last_wrong_result", **NO_GRADIENT)
    messages = [finding["message"] for finding in record["findings"]]
    assert any("may hold several values is" in message and "; legal ones are " in message for message in messages)
    for backend in ("clean", "legal", "last_of_equals"):
        assert passes(run(PICKED[name], f"planted:{backend}", **NO_GRADIENT))


def test_elements_of_many_picks_have_values_that_no_run_shows() -> None:
    """A sum of one of each of eight pairs."""
    body = "i = torch.arange(8).repeat_interleave(2)\nreturn torch.zeros(8).scatter(0, i, 2 ** y).sum(), x + 1"
    text = source(body, "torch.zeros(1), torch.arange(16.) - 8", "x, y")
    for number in range(100, 110):
        assert passes(run(text, f"planted:legal_{number}", **NO_GRADIENT))


def test_memory_that_nobody_wrote_may_hold_anything() -> None:
    record = run(source("return torch.empty(4, 5), x + 1"), "planted:first_far_away", **NO_GRADIENT)
    assert (oracles(record), record["labels"]) == ([], ["unspecified"]), record["findings"]


@pytest.mark.parametrize(
    "body",
    [
        "y = x[:, :1].expand(64, 37) + 2\nreturn ((y * y).mean(-1) - y.mean(-1) ** 2).sqrt()",
        "n = torch.nn.functional.normalize(x, dim=-1)\nreturn (n * n).sum(-1).acos()",
    ],
)
def test_a_rounding_decides_whether_a_number_lies_in_a_domain(body: str) -> None:
    text = source(body, "torch.randn(64, 37)")
    record = run(text, "planted:each_rounded", **NO_GRADIENT)
    assert (oracles(record), record["labels"]) == ([], ["within-rounding-of-inputs"]), record["findings"]
    assert oracles(run(text, "planted:far_away", **NO_GRADIENT))


def test_eigenvalues_are_off_by_a_rounding_of_the_largest() -> None:
    text = source("return torch.linalg.eigh(x @ x.T)", "torch.randn(12, 3) * 100")
    assert passes(run(text, "planted:hair_off", **NO_GRADIENT))
    assert oracles(run(text, "planted:far_away", **NO_GRADIENT))


# name: (source, backends that change one part alone, backends that make another choice)
TOGETHER: dict[str, tuple[str, str, str]] = {
    "qr": (source("return torch.linalg.qr(x)", "torch.randn(4, 3)"), "negated_0 negated_1", "negated_01"),
    "qr, the whole Q": (
        source("return torch.linalg.qr(x, mode='complete')", "torch.randn(4, 3)"),
        "negated_0 negated_1",
        "negated_01",
    ),
    "svd": (source("return torch.linalg.svd(x)", "torch.randn(3, 4)"), "negated_0 negated_2", "negated_02"),
    "svd, of vectors alone": (
        source("u, _, v = torch.linalg.svd(x)\nreturn u, v", "torch.randn(4, 3)"),
        "negated_0 negated_1",
        "negated_01",
    ),
    "eigh": (source("return torch.linalg.eigh(x)", SYMMETRIC), "reversed_0 reversed_1", "negated_1"),
    "eig": (source("return torch.linalg.eig(x)", "torch.randn(4, 4)"), "reversed_0 reversed_1", "reversed_01"),
    "topk": (
        source("return torch.topk(x, 4, sorted=False)", "torch.randn(2, 6)"),
        "reversed_0 reversed_1",
        "reversed_01",
    ),
    "places of a set": (
        source("return torch.unique(x, sorted=False, return_inverse=True)", TIES),
        "reversed_0 mirrored_1",
        "reversed_0_mirrored_1",
    ),
    "counts of a set": (
        source("return torch.unique(x, sorted=False, return_counts=True)", TIES),
        "reversed_0 reversed_1",
        "reversed_01",
    ),
    "places and counts of a set": (
        source("return torch.unique(x, sorted=False, return_inverse=True, return_counts=True)", TIES),
        "reversed_0 mirrored_1 reversed_2 reversed_02 reversed_2_mirrored_1 reversed_0_mirrored_1",
        "reversed_02_mirrored_1",
    ),
    "columns": (
        source("return torch.unique(x, False, True, True, dim=1)", f"{TIES}.view(1, 8).repeat(2, 1)"),
        "reversed_0 mirrored_1 reversed_2 reversed_02 reversed_2_mirrored_1 reversed_0_mirrored_1",
        "reversed_02_mirrored_1",
    ),
    "counts of columns": (
        source("return torch.unique(x, False, False, True, dim=1)", f"{TIES}.view(1, 8).repeat(2, 1)"),
        "reversed_0 reversed_1",
        "reversed_01",
    ),
    "either zero and NaN": (
        source("return torch.unique(x, False, True)", "torch.tensor([-0.0, 1., 0., float('nan'), -0.0])"),
        "reversed_0 mirrored_1",
        "reversed_0_mirrored_1",
    ),
    "a row of computed elements": (
        source("return torch.unique_consecutive(x / 3, return_inverse=True)", "torch.tensor([3., 3., 1.])"),
        "reversed_0 mirrored_1 split_0",
        "split_01",
    ),
    "a mantissa and an exponent": (
        source("return *torch.frexp(x / 3), x + 1", "torch.tensor([3., 6., 12.])"),
        "doubled_0 less_1",
        "doubled_0_less_1",
    ),
}


@pytest.mark.parametrize("name, backend", [(name, part) for name in TOGETHER for part in TOGETHER[name][1].split()])
def test_the_results_of_one_call_hold_together(name: str, backend: str) -> None:
    record = run(TOGETHER[name][0], f"planted:{backend}", **NO_GRADIENT)
    assert {"value"} == set(oracles(record)), record


@pytest.mark.parametrize("name", TOGETHER)
def test_another_choice_of_all_results_together_passes(name: str) -> None:
    for backend in ("clean", *TOGETHER[name][2].split()):
        record = run(TOGETHER[name][0], f"planted:{backend}", **NO_GRADIENT)
        assert passes(record), record
    assert record["labels"] == ["unspecified"]


@pytest.mark.parametrize("body", ["torch.linalg.qr(x)[0]", "torch.linalg.svd(x)[0]", "torch.linalg.eig(x)[1]"])
def test_a_result_without_the_others_has_its_own_definition(body: str) -> None:
    record = run(source(f"return {body}", "torch.randn(4, 4)"), "planted:negated_0", **NO_GRADIENT)
    assert (passes(record), record["labels"]) == (True, ["unspecified"]), record
