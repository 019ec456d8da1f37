"""The reference is there for programs of every kind: another rounding passes, and a wrong value still fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from worker_jobs import oracles, passes, run, source

CANCEL = "(({0} + 4096) - 4096)"
"""Off by up to 2.4e-4 in eager."""
X = CANCEL.format("x")
HALF = {"dtype": "float16"}
SHARED = "*(lambda t: [t, t[:4, :1], t.t()[:, 0]])(torch.randn(40, 5))"

# name: body of forward, inputs, fields of the job, further arguments of ``source``
KINDS = {
    "plain": (f"return {X} * 2", "torch.randn(40, 5)", {}, {}),
    "inputs that share memory": (f"x[0] *= 2\nreturn {X} * z + y.sum()", SHARED, {}, {"signature": "x, y, z"}),
    "inputs that overlap themselves": (f"return {X} * 2", "torch.randn(40, 1).expand(40, 5)", {}, {}),
    "random numbers": (f"return torch.nn.functional.dropout({X}, 0.25) + torch.randn_like(x)", "torch.randn(40, 5)", {}, {}),
    "a parameter of another dtype": (
        f"return {X} * self.w", "torch.randn(40, 5)", {}, {"init": "self.w = torch.nn.Parameter(torch.randn(5).half(), False)"}
    ),
    "a tensor made on the way": (
        f"return torch.nn.functional.prelu({X}.half(), torch.tensor([0.3], dtype=torch.float16)).float()",
        "torch.randn(40, 5)", {}, {},
    ),
    "casts": (f"return {X}.type_as(x.double()).to(x).half().bfloat16().type(torch.float32)", "torch.randn(40, 5)", {}, {}),
    "autocast": (
        "return torch.nn.functional.linear(x, self.w).float()", "torch.randn(40, 5)", {"autocast": "bfloat16"},
        {"init": "self.w = torch.nn.Parameter(torch.randn(8, 5), False)"},
    ),
    "branches": (f"return torch.cond(x.sum() > 99, lambda x: x.sin(), lambda x: {X}, (x,))", "torch.randn(40, 5)", {}, {}),
    "a loop": (
        f"return torch.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, {X}), (torch.tensor(0), x))[1]", "torch.randn(40, 5)",
        {"grad": {"mode": "off"}}, {},
    ),
    "a module-level tensor": (f"return {X} * TABLE", "torch.randn(40, 5)", {}, {"definitions": "TABLE = torch.linspace(1, 2, 5)"}),
    "no gradient": ("return ((x + 64) - 64).sin()", "torch.randn(40, 5).half()", {**HALF, "grad": {"mode": "off"}}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_a_result_that_is_nearer_passes_and_a_wrong_one_does_not(name):
    body, inputs, fields, parts = KINDS[name]
    text = source(body, inputs, **parts)
    right = run(text, "planted:unrounded", **fields)
    assert passes(right) and right["labels"] == ["nearer-to-float64"], right
    bugs = ["last_off_by_one", "last_row_left_out"]
    if name not in ("casts", "autocast", "a tensor made on the way", "no gradient"):  # less than 11 bits hold
        bugs.append("a_thousandth_more")
    for bug in bugs:
        record = run(text, f"planted:{bug}", **fields)
        assert oracles(record) == ["value"], (bug, record)
        assert record["findings"][0]["numbers"]["reference"] is not None and not record["notes"]


@pytest.mark.parametrize("call", [0, 1])
def test_every_call_has_a_reference(call):
    """What a later call may have written into is looked at in between; that reads no shadow away."""
    text = source(f"return {X} * 2", "torch.randn(40, 5)", definitions="CALLS = [make_inputs, make_inputs]")
    right = run(text, "planted:unrounded")
    assert passes(right) and right["labels"] == ["nearer-to-float64"], right["findings"]
    record = run(text, "planted:last_off_by_one")
    assert [finding["path"] for finding in record["findings"]] == ["call 0, output", "call 1, output"]
    numbers = record["findings"][call]["numbers"]
    assert numbers["eager_error_max"] > 1e-5


BACKWARD = {"grad": {"mode": "backward"}}
LEAVES = "*(lambda t: [t, t[1]])(torch.randn(6, 5, requires_grad=True))"


@pytest.mark.parametrize(
    ("body", "inputs", "signature"),
    [
        ("return (x.half().float() * 3).sin()", "torch.randn(6, 5, requires_grad=True).t()", "x"),
        ("return (x * 2).sin()", "torch.randn(6, 5, requires_grad=True) * 2", "x"),
        ("return (x + y).sin()", LEAVES, "x, y"),
        ("return (x * 2).sin()", "torch.randn(6, 5, requires_grad=True, dtype=torch.complex64)", "x"),
        (
            "return torch.cond(x.sum() > 99, lambda x: x.sin(), lambda x: x.cos(), (x,))",
            "torch.randn(6, 5, requires_grad=True)",
            "x",
        ),
    ],
)
def test_gradients_have_one(body, inputs, signature):
    text = source(body, inputs, signature)
    assert passes(run(text, "planted:clean", **BACKWARD))
    record = run(text, "planted:scaled_gradient", **BACKWARD)
    assert set(oracles(record)) == {"grad"} and not record["notes"]
    for finding in record["findings"]:
        assert finding["numbers"]["reference"] is not None and finding["numbers"]["eager_error_max"] < 1e-2


@pytest.mark.parametrize(
    "body", ["y = x.float()\ny.add_(1)", "y = x.to(x.dtype)\ny.mul_(2)", "y = x.type_as(x)\ny[0] = 3"]
)
def test_a_cast_to_its_own_dtype_is_the_tensor_itself(body):
    """Cast to float64 it was a copy, and a write that was lost looked nearer to float64."""
    record = run(source(f"{body}\nreturn y.sum()"), "planted:dropped_mutation", grad={"mode": "off"})
    assert oracles(record) == ["mutation"]


NUMPY = source("return torch.from_numpy(x.numpy()).sum(0)", "torch.randn(4096, 8)")
DOUBLES = source(
    "return x.sum(0)",
    "(lambda t: torch.cat([t, 1 - t.sum(0, keepdim=True)]))(torch.randn(4095, 8, dtype=torch.float64) * 1e7)",
)
"""Large numbers whose sum is one."""


@pytest.mark.parametrize(("text", "fields"), [(NUMPY, {}), (DOUBLES, {"dtype": "float64"})])
def test_without_one_the_movement_of_eagers_result_stands_in(text, fields):
    right = run(text, "planted:naive_sum", **fields)
    assert passes(right) and right["labels"] == ["within-rounding-of-inputs"], right
    for bug in ("row_left_out", "a_thousandth_more", "last_off_by_one"):
        assert oracles(run(text, f"planted:{bug}", **fields)) == ["value"], bug
    named = {"by_dtype": {"": [1e-9, 1e-9]}, "exact": False}
    assert oracles(run(text, "planted:naive_sum", **fields, tolerance=named)) == ["value"]
    assert oracles(run(text, "planted:naive_sum", **fields, float64=False)) == ["value"]


ADDCDIV = source(
    "return torch.addcdiv(x, a, b, value=1.25)",
    "torch.randn(4000).half(), torch.randn(4000).half(), (torch.rand(4000) + 0.5).half()",
    "x, a, b",
)


def test_a_half_that_is_rounded_once_more_is_held_against_the_movement_too():
    """Eager rounds once, a decomposition three times: where the sum is small, its error is many times eager's."""
    record = run(ADDCDIV, "planted:rounded_thrice", **HALF)
    assert passes(record) and record["labels"] == ["within-rounding-of-inputs"], record["findings"]
    for bug in ("last_off_by_one", "wrong_element"):
        assert oracles(run(ADDCDIV, f"planted:{bug}", **HALF)) == ["value"], bug


WRITTEN = source("return x[:-1].lerp_(y, 0.25)", "torch.randn(3).bfloat16(), torch.ones(1).bfloat16()", "x, y")
"""The result lies in the input, which is tried by a write that is put back. The input keeps its float64 values."""


@pytest.mark.parametrize("seed", [0, 14])
def test_an_input_whose_memory_is_returned_has_its_reference(seed):
    record = run(WRITTEN, "aot_eager_decomp_partition", dtype="bfloat16", seed=seed)
    assert passes(record) and record["labels"] == ["within-rounding-of-inputs"], record["findings"]
    assert "mutation" in oracles(run(WRITTEN, "planted:dropped_mutation", dtype="bfloat16", seed=seed))


WIDENED = source(
    "return torch.lerp(x, y, 0.4).to(torch.float64)", "torch.randn(3).bfloat16(), torch.zeros(()).bfloat16()", "x, y"
)


def test_a_cast_to_a_wider_dtype_makes_no_rounding_smaller():
    """Eager rounds to bfloat16 once, a decomposition three times; the tolerance of float64 knows neither."""
    record = run(WIDENED, "aot_eager_decomp_partition", dtype="bfloat16")
    assert passes(record) and record["labels"] == ["within-rounding-of-inputs"], record["findings"]
    for bug in ("last_off_by_one", "wrong_element"):
        assert oracles(run(WIDENED, f"planted:{bug}", dtype="bfloat16")) == ["value"], bug


CLAMPED = source("return torch.logit(torch.clamp(x, 0.1, 0.9)).to(torch.float32).amax(0)", "torch.rand(20, 20).half()")


def test_a_widened_result_has_the_tolerance_of_its_coarsest_rounding():
    """Eager rounds inside logit to a half. That is one unit of a half, and hundreds of float32's tolerance."""
    assert passes(run(CLAMPED, "aot_eager_decomp_partition", dtype="float16"))
    for bug in ("last_off_by_one", "wrong_element"):
        assert oracles(run(CLAMPED, f"planted:{bug}", dtype="float16")) == ["value"], bug
    single = CLAMPED.replace(".half()", "")
    assert oracles(run(single, "planted:a_thousandth_more")) == ["value"]


def test_what_was_never_rounded_to_a_half_has_its_own_precision():
    """The first output was, the second was not, though it is returned beside."""
    text = source("return (x.bfloat16() * 3).float(), x * 3", "torch.randn(300)")
    record = run(text, "planted:a_thousandth_more")
    assert [finding["path"] for finding in record["findings"]] == ["output[1]"], record["findings"]


def test_why_there_is_none_is_noted():
    record = run(NUMPY, "planted:row_left_out")
    assert "no float64 reference: Tensor.numpy gives memory away" in record["notes"]
    shapes = source("return x[x.half() == x.half().float()]", "torch.randn(40)")
    assert run(shapes, "planted:off_by_one")["notes"] == []
    shapes = source("return torch.unique_consecutive(x.half())", "torch.linspace(0, 1, 4000)")
    record = run(shapes, "planted:last_off_by_one", **HALF)
    assert "gives the shape [4000]" in " ".join(record["notes"])


@pytest.mark.parametrize("body", ["(x * 60000) / 60000", "x * 60000 * 0 + x"])
def test_an_overflow_of_eagers_has_a_label(body):
    text = source(f"return {body}", "torch.full((4, 5), 3.0).half()")
    record = run(text, "planted:unrounded", **HALF)
    assert passes(record) and record["labels"] == ["eager-overflowed"]
    assert oracles(run(text, "planted:zeros", **HALF)) == ["nonfinite"]
    assert passes(run(text, "planted:clean", **HALF)) and not run(text, "planted:clean", **HALF)["labels"]


def test_an_overflow_on_the_way_to_a_finite_result_has_it_too():
    text = source("return 6000 / (x * 60000)", "torch.full((4, 5), 3.0).half()")
    record = run(text, "planted:unrounded", **HALF)
    assert passes(record) and record["labels"] == ["eager-overflowed"]
    assert record["notes"][:1] == ["eager overflows in aten.mul.Tensor, where float64 has numbers"]
    assert record["notes"][1].startswith("output: 20 of 20 elements lie outside the tolerance")
    assert oracles(run(text, "planted:off_by_one", **HALF)) == ["value"]
    assert run(text, "planted:clean", **HALF)["labels"] == []


def cosine(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., tuple[torch.Tensor, ...]]:
    """A backend that replaces a function of torch at its first compilation, as packages of vendors do, and computes with it."""
    torch.sin = torch.cos
    return lambda x: (torch.cos(x), *graph(x)[1:])


@pytest.mark.parametrize("outputs", ["", ", x.argmin()", ", torch.empty(3).fill_(2)"])
def test_a_backend_that_replaces_a_function_has_no_reference_by_it(
    monkeypatch: pytest.MonkeyPatch, outputs: str
) -> None:
    monkeypatch.setattr(torch, "sin", torch.sin)
    record = run(source(f"return torch.sin(x){outputs}", "torch.randn(4)"), f"{__name__}:cosine", grad={"mode": "off"})
    assert oracles(record)[:1] == ["value"] and record["labels"] == []
    assert any("the run gives other numbers than eager's" in note for note in record["notes"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_attention_in_half_precision_has_a_reference_by_another_kernel(dtype: str) -> None:
    body = "return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)"
    inputs = f"torch.randn(2, 2, 16, 8, dtype=torch.{dtype})"
    record = run(source(body, inputs), "planted:zeros", grad={"mode": "off"}, dtype=dtype)
    assert oracles(record) == ["value"] and record["findings"][0]["numbers"]["reference"] is not None
