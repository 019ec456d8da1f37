"""Every oracle has a planted bug that fires it and a clean twin that stays quiet."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from worker_jobs import oracles, passes, run, source

from runner.contract.settings import FLUSHES
from runner.worker.judge import judge

PLUS = source("return x * 2 + 1")
ROW = source("return x * 2", inputs="torch.randn(1, 5)")
BACKWARD = source("return (x * x).sum(0)", inputs="torch.randn(4, 5, requires_grad=True)")
INPLACE = source("x.add_(1)\nreturn x * 2")
INDEX = source("return x[i]", signature="x, i", inputs="torch.randn(3), torch.tensor([7])")
GATHER = source("return x.gather(0, i)", signature="x, i", inputs="torch.randn(3), torch.tensor([7])")
RAISES_RUNTIME = {"expect": {"raises": {"type": "RuntimeError", "match": "out of bounds"}}}
RANDOM = source("return x + torch.rand(4, 5)")
RAISES = {"expect": {"raises": {"type": "IndexError"}}}
OFF = {"grad": {"mode": "off"}}
FULL = {"grad": {"mode": "backward"}}
SPOILT = source("y = x.exp()\nz = y * 1\ny.add_(1)\nreturn z", inputs="torch.randn(4, requires_grad=True)")
"""Its backward alone raises: what the forward saved was written to."""
SPOILT_RAISES = {**FULL, "expect": {"raises": {"type": "RuntimeError", "match": "inplace operation"}}}

# name: (source, backend, fields of the job, the oracles expected)
CASES: dict[str, tuple[str, str, dict[str, Any], list[str]]] = {
    "value": (PLUS, "wrong_element", {}, ["value"]),
    "value in the last bits": (PLUS, "tiny_noise", {}, ["value"]),
    "exact": (PLUS, "tiny_noise", {"tolerance": {"exact": True}}, ["value"]),
    "large": (source("return x * 2", inputs="torch.randn(1000, 1000)"), "wrong_element", {}, ["value"]),
    "swapped": (source("return x + 1, x - 1"), "swapped", {}, ["value", "value"]),
    "nonfinite": (source("return x.log()"), "nan_to_zero", {}, ["nonfinite"]),
    "sign of zero": (
        source("return x * 0.0"),
        "unsigned_zero",
        {"tolerance": {"exact": True}},
        ["sign-of-zero"],
    ),
    "integers": (source("return x + 1", inputs="torch.arange(2**24, 2**24 + 6)"), "off_by_one", {}, ["value"]),
    "shape": (PLUS, "extra_dimension", {}, ["shape"]),
    "dtype": (PLUS, "to_double", {}, ["dtype"]),
    "layout": (PLUS, "to_sparse", {}, ["layout"]),
    "conjugate bit": (
        source("return x.sin()", inputs="torch.randn(4, dtype=torch.complex64)"),
        "conjugated_lazily",
        {},
        ["layout"],
    ),
    "negative bit": (PLUS, "negated_lazily", {}, ["layout"]),
    "device": (PLUS, "to_meta", {}, ["device"]),
    "stride": (PLUS, "column_major", {}, ["stride"]),
    "stride, exactly": (ROW, "ones_for_strides", {"strides": "exact"}, ["stride"]),
    "structure": (PLUS, "as_parameter", {}, ["structure"]),
    "requires-grad": (BACKWARD, "no_gradient", {}, ["requires-grad"]),
    "offset": (source("return x[2:4]", inputs="torch.ones(4)"), "start_of_input", OFF, ["offset"]),
    "alias": (source("return x.view(-1)"), "copied", OFF, ["alias"]),
    "alias of outputs": (
        source("return x + 1, x * 0 + 2", inputs="torch.ones(3)"),
        "first_twice",
        {"ignore": ["value"]},
        ["alias"],
    ),
    "dropped mutation": (source("x.add_(1)\nreturn x.sin()"), "dropped_mutation", OFF, ["mutation"]),
    "extra mutation": (PLUS, "extra_mutation", OFF, ["mutation"]),
    "mutation within the tolerance": (PLUS, "scribbled_input", OFF, ["mutation"]),
    "below the absolute tolerance": (source("return x * 1e-6"), "zeros", {}, ["value"]),
    "a percent below the absolute tolerance": (
        source("return torch.softmax(x, 0)", inputs="torch.rand(100000)"),
        "percent_off",
        {},
        ["value"],
    ),
    "float64 in float32": (source("return x.sin()", inputs="torch.randn(4, 5).double()"), "in_single", {}, ["value"]),
    "small in bfloat16": (source("return (x * 1e-6).bfloat16()"), "zeros", {}, ["value"]),
    "state in an object": (
        source(
            "self.cache.k.add_(x)\nreturn x * 2",
            init="self.cache = Cache()",
            definitions="class Cache:\n    def __init__(self):\n        self.k = torch.zeros(4, 5)",
        ),
        "dropped_mutation",
        OFF,
        ["mutation"],
    ),
    "output of an own class": (
        source("return Box(x * 2)", definitions="class Box:\n    def __init__(self, t):\n        self.t = t"),
        "zeros",
        {},
        ["value"],
    ),
    "variable of the file": (
        source("return x * 2", definitions="SEEN = []"),
        "appends_to_a_variable",
        {},
        ["mutation"],
    ),
    "tensor in a variable of the file": (
        source("TOTAL.add_(x.sum())\nreturn x * 2", definitions="TOTAL = torch.zeros(1)"),
        "adds_to_a_total",
        OFF,
        ["mutation"],
    ),
    "gradient of a variable of the file": (
        source("return (x * WEIGHT).sum(0)", definitions="WEIGHT = torch.ones(5, requires_grad=True)"),
        "scaled_gradient",
        FULL,
        ["grad"],
    ),
    "rng": (RANDOM, "draws_again", {}, ["rng"]),
    "global-state": (PLUS, "leaves_gradients_off", {}, ["global-state"]),
    "global-state, in training": (BACKWARD, "leaves_gradients_off", FULL, ["global-state"]),
    "global-state, where eager raises": (INDEX, "changes_the_default_dtype", RAISES, ["global-state"]),
    "the nesting of autocast": (PLUS, "stays_in_autocast", {}, ["global-state"]),
    "the nesting of autocast, where eager raises": (INDEX, "stays_in_autocast", RAISES, ["global-state"]),
    "a private setting and a seed": (PLUS, "leaves_traces", {}, ["global-state"] * 2),
    "a setting of the case's own": (
        source("torch._dynamo.graph_break()\ntorch.set_default_dtype(torch.float64)\nreturn x * 2"),
        "keeps_the_default_dtype",
        {},
        ["global-state"],
    ),
    "grad": (BACKWARD, "scaled_gradient", FULL, ["grad"]),
    "no grad": (
        source("return x.sin() + y.cos()", ", ".join(["torch.randn(3, requires_grad=True)"] * 2), "x, y"),
        "dropped_gradient",
        FULL,
        ["grad"],
    ),
    "missing-error": (INDEX, "swallowed", RAISES, ["missing-error"]),
    "error-type": (INDEX, "other_error", RAISES, ["error-type"]),
    "an error of the backward in the forward": (SPOILT, "raises_early", SPOILT_RAISES, ["runtime-error"]),
    "an error of the backward in the compiler": (SPOILT, "raises_at_compile", SPOILT_RAISES, ["compile-error"]),
    "an error of the forward in the backward": (
        source("return x[i]", signature="x, i", inputs="torch.randn(3, requires_grad=True), torch.tensor([7])"),
        "raises_late",
        {**RAISES, **FULL},
        ["missing-error"],
    ),
    # BackendCompilerFailed is a RuntimeError, and yet no answer to eager's
    "crash where eager raises": (GATHER, "raises_at_compile", RAISES_RUNTIME, ["error-type"]),
    "compile-error": (PLUS, "raises_at_compile", {}, ["compile-error"]),
    "runtime-error": (PLUS, "raises_at_run", {}, ["runtime-error"]),
    "exit": (PLUS, "exits", {}, ["runtime-error"]),
    "memory": (PLUS, "no_memory", {}, ["memory"]),
    "memory, where eager raises": (GATHER, "no_memory", RAISES_RUNTIME, ["memory"]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_planted_bug_fires_its_oracle(name):
    text, backend, fields, expected = CASES[name]
    record = run(text, f"planted:{backend}", **fields)
    assert oracles(record) == expected, record
    assert record["trust"] is None


def test_an_error_of_a_backward_may_come_while_the_forward_compiles():
    record = run(SPOILT, "aot_eager", **SPOILT_RAISES)
    assert oracles(record) == ["error-type"], record  # of the compiler's own class
    assert record["notes"] == ["the call: torch.compile raises while it compiles the forward, eager in the backward"]
    assert passes(run(SPOILT, "planted:clean", **SPOILT_RAISES))


@pytest.mark.parametrize("name", CASES)
def test_its_clean_twin_stays_quiet(name):
    text, _, fields, _ = CASES[name]
    record = run(text, "planted:clean", **fields)
    assert passes(record), record
    assert record["comparisons"] > 0 and record["graphs"] == 1


@pytest.mark.parametrize("name", ["bits8", "float4_e2m1fn_x2"])
def test_bytes_without_numbers_are_compared(name: str) -> None:
    if not hasattr(torch, name):
        pytest.skip("this torch has no such dtype")
    body = f"y = x + 1\ntorch._dynamo.graph_break()\nreturn y.view(torch.{name})"
    text = source(body, inputs="torch.ones(4, dtype=torch.uint8)")
    assert oracles(run(text, "planted:zeros")) == ["value"] and passes(run(text, "planted:clean"))


def test_other_draws_from_a_generator_that_eager_draws_from_are_other_random_numbers() -> None:
    text = source("torch._dynamo.graph_break()\nreturn x + random.random() * 0", definitions="import random")
    record = run(text, "planted:leaves_traces")
    findings = [(finding["oracle"], finding["path"]) for finding in record["findings"]]
    assert findings == [("rng", "random.getstate()"), ("global-state", "os.environ.get('LEFT_BY_A_BACKEND')")]
    assert passes(run(text))


def test_what_dynamo_draws_in_place_of_numpy_has_a_note() -> None:
    text = source("numbers = numpy.random.rand(2)\nreturn x * 2", definitions="import numpy")
    record = run(text, "aot_eager")
    assert passes(record) and "Dynamo draws NumPy's numbers" in " ".join(record["notes"])
    body = "by = 2 if torch.compiler.is_compiling() else 1\ndraw(by)\nreturn x * 2"
    definitions = "import numpy\n@torch.compiler.disable\ndef draw(by): numpy.random.rand(by)"
    assert oracles(run(source(body, definitions=definitions), "eager")) == ["rng"]


LEFT = {
    "torch.set_flush_denormal(by == 2)": FLUSHES,
    "torch.backends.cuda.enable_flash_sdp(by == 2)": "torch.backends.cuda.flash_sdp_enabled()",
    "torch.backends.cuda.enable_mem_efficient_sdp(by == 2)": "torch.backends.cuda.mem_efficient_sdp_enabled()",
    "torch.backends.cuda.enable_math_sdp(by == 2)": "torch.backends.cuda.math_sdp_enabled()",
    "os.environ['LEFT_BY_A_CALL'] = str(by)": "os.environ.get('LEFT_BY_A_CALL')",
    "by == 2 and random.seed(5)": "random.getstate()",
    "by == 2 and numpy.random.seed(5)": "str(numpy.random.get_state())",
    "numpy.seterr(divide='ignore' if by == 2 else 'warn')": "numpy.geterr().get('divide')",
}


@pytest.mark.parametrize("statement", LEFT)
def test_a_setting_that_compiled_code_alone_leaves(statement: str) -> None:
    """The same statement in both is no finding."""
    definitions = f"import numpy, os, random\n@torch.compiler.disable\ndef leave(by):\n    {statement}"
    for by in ("2 if torch.compiler.is_compiling() else 1", "1", "2"):
        record = run(source(f"leave({by})\nreturn x * 2", definitions=definitions), "eager")
        findings = [(finding["oracle"], finding["path"]) for finding in record["findings"]]
        assert findings == ([("global-state", LEFT[statement])] if "if" in by else []), record


def test_a_setting_that_eager_leaves_differently_each_time_is_not_compared() -> None:
    body = "torch._dynamo.graph_break(); os.environ['WHEN'] = str(time.time_ns()); random.seed()\nreturn x * 2"
    record = run(source(body, definitions="import os, random, time"))
    assert passes(record)
    assert "random.getstate(): not compared (two eager runs leave it differently)" in record["notes"]


@pytest.mark.parametrize(
    ("write", "is_written"),
    [("x.add_(0)", True), ("self.p.add_(0)", True), ("torch.autograd.graph.increment_version(self.b)", True), ("x.add(0)", False)],
)  # fmt: skip
def test_a_needless_write_that_changes_no_bit_is_seen(write: str, is_written: bool) -> None:
    definitions = f"@torch.compiler.disable\ndef leave(self, x):\n    with torch.no_grad(): {write}"
    init = "self.p = torch.nn.Parameter(torch.ones(5)); self.register_buffer('b', torch.ones(5))"
    for condition in ("torch.compiler.is_compiling()", "True"):
        body = f"if {condition}: leave(self, x)\nreturn x * self.p + self.b"
        record = run(source(body, init=init, definitions=definitions))
        expected = [("mutation", "metadata")] if is_written and condition != "True" else []
        assert [(finding["oracle"], finding["severity"]) for finding in record["findings"]] == expected, record


NOISE = (
    "return (x.sin() ** 2 + x.cos() ** 2 - 1)",
    "return ((x * 3 / 3) - x).square().mean()",
    "return torch.full((5, 4), 0.3).var(1) * x.sum()",
    "return (x - x.mean()).sum()",
)


@pytest.mark.parametrize("body", NOISE)
def test_small_numbers_that_are_noise_are_not_asked_about(body):
    """Larger numbers cancelled. Eager's own are off by as much as they are large."""
    assert passes(run(source(body, inputs="torch.randn(4, 5)"), "planted:zeros"))


def test_a_named_absolute_tolerance_says_what_is_small():
    text = source("return x * 1e-6")
    assert run(text, "planted:zeros", tolerance={"by_dtype": {"": [0.0, 1e-5]}})["trust"]["verdict"] == "VACUOUS"
    assert oracles(run(text, "planted:zeros", tolerance={"by_dtype": {"": [0.0, 1e-9]}})) == ["value"]


@pytest.mark.parametrize(("exact", "expected"), [(True, ["sign-of-zero"]), (False, [])])
def test_the_sign_of_a_python_zero_counts_where_bits_do(exact, expected):
    text = source("return x + 1, 0.0 if torch.compiler.is_compiling() else -0.0")
    record = run(text, tolerance={"exact": exact})
    assert [finding["oracle"] for finding in record["findings"]] == expected, record


def test_a_conjugate_that_only_eager_leaves_to_its_readers_is_none():
    text = source("return x.sin().conj()", inputs="torch.randn(4, dtype=torch.complex64)")
    assert passes(run(text, "planted:not_conjugated"))


def test_what_eager_computes_in_float32_may_be_rounded_to_it():
    body = "return x.float().sin().double() * 1.1"
    assert passes(run(source(body, inputs="torch.randn(4, 5).double()"), "planted:in_single"))


TWO = source("return x * 2, x + 1")
LOOSE = [0.0, 1.0]


def place(name, by_dtype=None):
    return {"tolerance": {"by_dtype": by_dtype or {}, "exact": False, "by_place": {name: LOOSE}}}


def test_the_tolerance_of_an_output_excuses_that_output_alone():
    def paths(**fields):
        return [finding["path"] for finding in run(TWO, "planted:tiny_noise", **fields)["findings"]]

    assert paths() == ["output[0]", "output[1]"]
    assert paths(**place("output[0]")) == ["output[1]"]
    assert paths(**place("output")) == []
    assert paths(**place("output[1]", {"": LOOSE})) == []
    assert paths(tolerance={"by_dtype": {"": LOOSE}, "by_place": {"output[0]": [0.0, 0.0]}}) == ["output[0]"]


def test_the_tolerance_of_gradients_excuses_gradients_alone():
    fields = {"tolerance": {"by_dtype": {}, "by_place": {"gradients": [0.6, 0.0]}}}
    assert passes(run(BACKWARD, "planted:scaled_gradient", **FULL, **fields))
    assert oracles(run(PLUS, "planted:tiny_noise", **fields)) == ["value"]


def test_a_tolerance_for_an_output_that_is_not_there():
    record = run(TWO, "planted:clean", **place("output[2]"))
    assert record["trust"]["verdict"] == "INVALID"
    assert record["trust"]["reason"] == "tolerance: the model returns no output[2]; it returns output[0], output[1]"


def given(*tensors):
    """A model of two outputs, the second of which requires no gradient, and its cotangents."""
    definitions = f"COTANGENTS = [lambda: [{', '.join(tensors)}]]"
    return source(
        "return x * x, x.detach() + 1", "torch.tensor([1.0, 2.0, 3.0], requires_grad=True)", definitions=definitions
    )


GIVEN = {"grad": {"mode": "backward", "cotangent": "given"}}


def test_gradients_are_taken_of_the_given_cotangents():
    (finding,) = run(given("torch.tensor([0.0, 5.0, 0.0])"), "planted:scaled_gradient", **GIVEN)["findings"]
    assert finding["oracle"] == "grad"
    numbers = finding["numbers"]
    assert (numbers["mismatched"], numbers["eager"], numbers["compiled"]) == (1, 20.0, 30.0)
    half = run(given("torch.tensor([0, 5, 0], dtype=torch.int8)", "None"), "planted:clean", **GIVEN)
    assert passes(half)


@pytest.mark.parametrize(
    ("cotangents", "reason"),
    [
        (["torch.ones(4)"], "grad: output[0] has the shape [3], its cotangent [4]"),
        (["None"], "grad: output[0] requires a gradient and has no cotangent"),
        ([], "grad: output[0] requires a gradient and has no cotangent"),
        (["torch.ones(3)"] * 2, "grad: output[1] requires no gradient and has a cotangent"),
        (["torch.ones(3)", "None", "None"], "grad: 3 cotangents for 2 tensor outputs"),
        (["1 / 0"], "making the cotangents of call 0 raised ZeroDivisionError: division by zero"),
    ],
)
def test_cotangents_that_fit_no_output(cotangents, reason):
    trust = run(given(*cotangents), "planted:clean", **GIVEN)["trust"]
    assert (trust["verdict"], trust["reason"]) == ("INVALID", reason)


def test_a_compiled_output_of_another_shape_is_no_fault_of_the_cotangent():
    text = source(
        "return x * x",
        "torch.tensor([1.0, 2.0], requires_grad=True)",
        definitions="COTANGENTS = [lambda: [torch.ones(2)]]",
    )
    assert oracles(run(text, "planted:extra_dimension", **GIVEN)) == ["shape", "grad"]


@pytest.mark.parametrize("name", ["value", "stride", "rng", "compile-error"])
def test_what_is_ignored_is_left_out(name):
    text, backend, fields, expected = CASES[name]
    assert oracles(run(text, f"planted:{backend}", **fields, ignore=expected)) == []


def test_strides_of_size_one_are_noted_unless_they_are_ignored():
    steps = "eager [5, 1], compiled [1, 1] for shape [1, 5]"
    record = run(ROW, "planted:ones_for_strides")
    assert passes(record) and record["notes"] == [f"output: strides of dimensions of size one differ: {steps}"]
    assert run(ROW, "planted:ones_for_strides", ignore=["stride"])["notes"] == []
    (finding,) = run(ROW, "planted:ones_for_strides", strides="exact")["findings"]
    assert (finding["oracle"], finding["path"], finding["message"]) == ("stride", "output", steps)


def test_strides_of_empty_tensors_count_where_all_do():
    empty = source("return x * 2", inputs="torch.randn(0, 5)")
    assert passes(record := run(empty, "planted:ones_for_strides")) and record["notes"] == []
    assert oracles(run(empty, "planted:ones_for_strides", strides="exact")) == ["stride"]


def test_a_record_says_what_was_compared():
    counts = run(BACKWARD, **FULL)["compared"]  # elements of the output, the input and its gradient
    assert counts == {"outputs": 1, "strides": 1, "aliases": 1, "gradients": 1, "elements": 5 + 20 + 20}
    ignored = ("stride", "alias", "grad", "value")
    assert run(BACKWARD, **FULL, ignore=ignored)["compared"] == {"outputs": 1, "elements": 20}
    assert run(INDEX, **RAISES)["compared"] == {"exceptions": 1}
    assert run(source("return x.sum().item()"), **OFF)["compared"]["elements"] == 1 + 20


def test_a_value_finding_has_its_numbers():
    (finding,) = run(PLUS, "planted:wrong_element")["findings"]
    numbers = finding["numbers"]
    assert finding["path"] == "output"
    assert (numbers["elements"], numbers["mismatched"], numbers["worst_index"]) == (20, 1, [1, 1])
    assert numbers["abs_error"] == pytest.approx(1e-2, rel=1e-3)
    assert numbers["compiled"] == pytest.approx(numbers["reference"] + 1e-2, abs=1e-6)
    assert numbers["compiled_error_max"] > numbers["eager_error_max"]
    assert (numbers["rtol"], numbers["atol"]) == (1.3e-6, 1e-5)
    assert numbers["multiplier"] == "inf" or numbers["multiplier"] > 3
    assert numbers["same"] is False


def test_the_float64_run_happens_only_when_it_is_needed():
    assert run(PLUS)["phases"] == ["load", "eager", "eager-again", "backend", "judge"]
    record = run(PLUS, "planted:far_away")
    float64 = ["float64", "judge"]  # the legal runs, then the reference
    assert record["phases"] == ["load", "eager", "eager-again", "backend", "judge", *float64, *float64]
    assert set(record["seconds"]) == {"load", "eager", "eager-again", "backend", "judge", "float64"}


def test_errors_carry_their_class_chain_trace_and_line():
    (finding,) = run(PLUS, "planted:raises_at_compile")["findings"]
    error = finding["error"]
    assert error["type"] == "BackendCompilerFailed"
    assert error["chain"][:2] == ["BackendCompilerFailed", "AssertionError"]
    assert "RuntimeError" in error["bases"]
    assert "planted: cannot lower" in error["message"] and "planted: cannot lower" in finding["message"]
    record = run(INDEX, **RAISES)
    assert record["eager_error"]["type"] == "IndexError"
    assert record["eager_error"]["line"] == 4
    assert 'File "case_1.py", line 4' in record["eager_error"]["trace"]  # without the temporary folder


def test_every_call_is_judged_and_named():
    calls = "CALLS = [make_inputs, lambda: [torch.randn(2, 5)], lambda: [torch.randn(3, 5)]]"
    record = run(source("return x * 2", definitions=calls), "planted:wrong_element")
    assert [finding["path"] for finding in record["findings"]] == ["call 0, output", "call 1, output", "call 2, output"]
    assert passes(run(source("return x * 2", definitions=calls)))


def test_an_error_ends_the_calls_but_not_the_comparison_before_it():
    text = source(
        "return x[i]",
        signature="x, i",
        inputs="torch.randn(3), torch.tensor([1])",
        definitions="CALLS = [make_inputs, lambda: [torch.randn(3), torch.tensor([9])], make_inputs]",
    )
    assert passes(run(text, **RAISES))
    record = run(text, "planted:other_error", **RAISES)
    assert [(finding["oracle"], finding["path"]) for finding in record["findings"]] == [("error-type", "call 1")]


def test_state_carries_on_from_call_to_call_and_is_compared():
    text = source(
        "self.total += x.sum()\nself.count += 1\nreturn self.total * 2",
        init="self.register_buffer('total', torch.zeros(())); self.count = 0",
        definitions="CALLS = [make_inputs, make_inputs]",
    )
    assert passes(run(text, **OFF))
    record = run(text, "planted:extra_mutation", **OFF)
    assert "mutation" in oracles(record)


def test_a_kept_result_that_a_later_call_writes_into():
    """A user who keeps what a call returned would find what the last call returned."""
    calls = "CALLS = [make_inputs, lambda: [torch.ones(4, 5)], make_inputs]"
    record = run(source("return x * 2, x.sum()", definitions=calls), "planted:results_reused", **OFF)
    assert [(finding["oracle"], finding["path"]) for finding in record["findings"]] == [
        ("mutation", f"call {call}, output[{index}]") for call in (0, 1) for index in (0, 1)
    ]
    assert passes(run(source("return x * 2, x.sum()", definitions=calls), **OFF))
    assert passes(run(source("return x * 2, x.sum()"), "planted:results_reused", **OFF)), "one call overwrites nothing"


def test_a_result_that_is_an_earlier_calls():
    """Whoever writes into the one changes the other."""
    text = source("return torch.ones_like(x), x.sin()", definitions="CALLS = [make_inputs] * 3")
    record = run(text, "planted:constants_reused", **OFF)
    places = [(finding["oracle"], finding["path"], finding["message"]) for finding in record["findings"]]
    own = "eager: memory of its own; compiled: shares memory with output[0] of call 0"
    assert places == [
        ("alias", "call 1, output[0]", own),
        ("alias", "call 2, output[0]", f"{own}, shares memory with output[0] of call 1"),
    ]
    assert passes(run(text, **OFF))


def test_results_of_one_memory_without_a_common_element():
    text = source("return x.sin()", "torch.randn(20)", definitions="CALLS = [make_inputs] * 3")
    assert passes(run(text, "planted:columns_of_one_memory", **OFF, ignore=["stride"]))


@pytest.mark.parametrize(
    ("body", "definitions"),
    [
        ("return self.w, x + 1", ""),
        ("return self.w[1:], x + 1", ""),
        ("return torch.tensor([1.0, 2.0]), torch.empty(0), x + 1", ""),
    ],
)
@pytest.mark.parametrize("backend", ["planted:clean", "inductor"])
def test_what_eager_gives_again_may_be_given_again(body, definitions, backend):
    text = source(
        body, init="self.w = torch.nn.Parameter(torch.ones(5))", definitions=f"{definitions}CALLS = [make_inputs] * 2"
    )
    assert passes(run(text, backend, **OFF))


def test_what_eager_gives_again_must_be_given_again():
    """Dynamo traces what a cache holds in eager, and warns about it."""
    more = "import functools\n@functools.cache\ndef table():\n    return torch.ones(3)\nCALLS = [make_inputs] * 2"
    (finding,) = run(source("return table(), x + 1", definitions=more), "eager", **OFF)["findings"]
    assert (finding["oracle"], finding["path"]) == ("alias", "call 1, output[0]")
    assert finding["message"] == "eager: shares memory with output[0] of call 0; compiled: memory of its own"


HIDDEN = """
from types import ModuleType
HIDDEN = ModuleType("hidden")  # its variables are not read
@torch.compiler.disable
def hide(y, is_kept):
    if hasattr(HIDDEN, "kept"): HIDDEN.kept.add_({change})
    HIDDEN.kept = y if is_kept else y.clone()
    return y
CALLS = [make_inputs] * 2
"""


@pytest.mark.parametrize(("change", "paths"), [("1.0", ["call 0, output"]), ("1e-7", [])])
def test_a_kept_result_that_a_later_call_writes_into_in_eager_alone(change, paths):
    def places(is_kept, **fields):
        text = source(
            f"return hide(x * 2, {is_kept})", "torch.full((3,), 2.0)", definitions=HIDDEN.format(change=change)
        )
        return [(found["oracle"], found["path"]) for found in run(text, "eager", **OFF, **fields)["findings"]]

    assert places("True") == places("False") == []
    assert places("not torch.compiler.is_compiling()") == [("mutation", path) for path in paths]
    assert places("not torch.compiler.is_compiling()", ignore=["alias"]) == []


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "bool", "complex64", "float8_e5m2"])
@pytest.mark.parametrize("view", ["[::2]", "[3:7]", "[:, 1]", ".t()[1:]"])
def test_a_write_between_the_elements_of_an_input(view, dtype):
    text = source("return x.clone()", f"torch.zeros(8, 8).to(torch.{dtype}){view}")
    record = run(text, "planted:storage_filled", **OFF)
    assert [(finding["oracle"], finding["path"]) for finding in record["findings"]] == [("mutation", "input x")]
    assert "in the memory behind it" in record["findings"][0]["message"]
    assert passes(run(text, **OFF))


def test_a_write_behind_a_part_of_the_state():
    text = source("return x + self.w", init="self.w = torch.zeros(4, 10)[:, ::2]")
    record = run(text, "planted:storage_filled", **OFF)
    assert [(finding["oracle"], finding["path"]) for finding in record["findings"]] == [("mutation", "attribute w")]
    assert passes(run(text, **OFF))


@pytest.mark.parametrize(
    ("body", "inputs", "signature"),
    [
        ("return x.mul_(2).sin()", "torch.randn(20)[::2]", "x"),
        ("x.add_(1)\ny.mul_(2)\nreturn x + y", "*(lambda t: [t[::4], t[2::4]])(torch.randn(20))", "x, y"),
        ("return x.sin()", "torch.empty(20)[::2].fill_(1)", "x"),
        ("x.resize_(2)\nreturn x + 1", "torch.randn(20)[::2]", "x"),
    ],
)
@pytest.mark.parametrize("backend", ["planted:clean", "aot_eager", "inductor"])
def test_what_eager_writes_behind_an_input_may_be_written(body, inputs, signature, backend):
    assert passes(run(source(body, inputs, signature), backend, **OFF))


def test_what_eager_writes_behind_an_input_must_be_written():
    """AOTAutograd does not compile such a write, so that a planted backend stands for others."""
    text = source("x.as_strided((20,), (1,), 0).mul_(1.1)\nreturn x.sin()", "torch.randn(20)[::2]")
    assert passes(run(text, **OFF))
    record = run(text, "planted:storage_filled", **OFF)
    assert [(finding["oracle"], finding["path"]) for finding in record["findings"]] == [("mutation", "input x")]


def test_a_kept_input_that_a_later_call_writes_into():
    """A user who keeps what a call was given would find what a later call was given."""
    calls = "CALLS = [make_inputs, lambda: [torch.ones(4, 5)], make_inputs]"
    text = source("return x * 2", definitions=calls)
    record = run(text, "planted:inputs_reused", **OFF)
    places = [(finding["oracle"], finding["path"]) for finding in record["findings"]]
    assert places == [("mutation", "call 0, input x")]
    assert passes(run(text, **OFF))
    assert passes(run(source("return x * 2"), "planted:inputs_reused", **OFF))


def test_a_model_may_write_into_an_input_of_an_earlier_call():
    body = "last = getattr(self, 'last', None)\nif last is not None: last.add_(1)\nself.last = x\nreturn x * 2"
    assert passes(run(source(body, definitions="CALLS = [make_inputs] * 3"), **OFF))


def test_a_kept_gradient_that_a_later_call_writes_into():
    calls = "CALLS = [make_inputs, lambda: [torch.ones(5, 4, requires_grad=True)]]"
    text = source("return x.sin()", "torch.randn(5, 4, requires_grad=True)", definitions=calls)
    fields = {"grad": {"mode": "backward"}}
    record = run(text, "planted:gradients_reused", **fields)
    places = [(finding["oracle"], finding["path"]) for finding in record["findings"]]
    assert places == [("mutation", "call 0, gradient of x")]
    assert passes(run(text, **fields))


def test_a_gradient_that_is_written_into_an_input_is_one_finding():
    record = run(source("return x.sin()", "torch.randn(4, 5, requires_grad=True)"), "planted:gradient_in_input", **FULL)
    assert oracles(record) == ["mutation"], record


BOTH = ", ".join(["torch.randn(4, 5, requires_grad=True)"] * 2)


@pytest.mark.parametrize(
    ("body", "backend", "path", "message"),
    [
        ("return x * y", "gradient_is_saved", "gradient of x", "compiled: shares memory with input x"),
        (
            "return x.sin() + y.sin()",
            "gradients_are_one",
            "gradient of y",
            "compiled: shares memory with gradient of x",
        ),
    ],
)
def test_a_gradient_has_memory_of_its_own(body, backend, path, message):
    """Whoever sets a gradient to zero would set an input or another gradient to zero."""
    inputs = "*(lambda x: (x.requires_grad_(), x.detach().clone().requires_grad_()))(torch.randn(4, 5))"
    text, fields = source(body, inputs, "x, y"), {"grad": {"mode": "backward", "cotangent": "ones"}}
    (finding,) = [found for found in run(text, f"planted:{backend}", **fields)["findings"] if path in found["path"]]
    assert finding["oracle"] == "alias" and message in finding["message"]
    assert passes(run(text, **fields))


@pytest.mark.parametrize(
    "body",
    [
        "return x + y",
        "return x.view(5, 4) + y.view(5, 4)",
        "return x.t() + y.t(), x",
        "return torch.cat([x, y]), x * 1",
        "return x.view(-1), y.t()",
        "return (x + y).exp(), x.detach()",
        "return x * y",
    ],
)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_gradients_that_autograd_does_not_copy(body, backend):
    text = source(body, BOTH, "x, y", definitions="CALLS = [make_inputs] * 2")
    assert passes(run(text, backend, **FULL)) and passes(
        run(text, backend, grad={"mode": "backward", "cotangent": "ones"})
    )


def test_a_result_that_the_backward_writes_into():
    fields = {"grad": {"mode": "backward"}}
    text = source("return x.sigmoid()", "torch.randn(4, 5, requires_grad=True)")
    record = run(text, "planted:result_cleared_in_backward", **fields)
    assert [(finding["oracle"], finding["path"]) for finding in record["findings"]] == [("mutation", "output")]
    assert passes(run(text, **fields))
    assert passes(run(text, "planted:result_cleared_in_backward", **OFF)), "there is no backward"


def test_private_attributes_are_state():
    text = source("self._kept = x * 3\nreturn self._kept + 1")
    assert passes(run(text, **OFF))
    record = run(text, "planted:factor_of_its_own", **OFF)
    assert ("mutation", "attribute _kept") in [(finding["oracle"], finding["path"]) for finding in record["findings"]]


def test_a_tensor_that_a_module_holds_twice_has_one_gradient():
    text = source("return x * self.w", init="self.w = torch.nn.Parameter(torch.ones(5)); self._same = [self.w]")
    record = run(text, **FULL)
    assert passes(record) and record["compared"]["gradients"] == 1, record["compared"]


def test_gradients_of_parameters_that_the_first_call_makes():
    text = source("return self.norm(x) * x", init="self.norm = torch.nn.LazyBatchNorm1d()").replace(".eval()", "")
    record = run(text, **FULL)
    assert passes(record) and record["compared"]["gradients"] == 2, record["compared"]
    assert {finding["path"] for finding in run(text, "planted:scaled_gradient", **FULL)["findings"]} == {
        "gradient of parameter norm.weight",
        "gradient of parameter norm.bias",
    }


def test_a_write_that_rounds_to_the_bits_that_were_there_is_a_write():
    text = source(
        "self.average.mul_(0.998).add_(x, alpha=0.002)\nreturn x + 1",
        "torch.full((8,), -1.5, dtype=torch.bfloat16)",
        init="self.register_buffer('average', torch.full((8,), 1.5, dtype=torch.bfloat16))",
    )
    assert passes(run(text, dtype="bfloat16", **OFF))
    assert passes(run(text, "planted:buffer_rounded_once", dtype="bfloat16", **OFF))


def test_what_a_later_call_does_not_write_to_keeps_its_bits():
    """The state before a call is what the call before left."""
    text = source(
        "return x * self.b",
        "torch.randn(4, 2)",
        init="self.register_buffer('b', torch.tensor([1.0, 1e-6]))",
        definitions="CALLS = [make_inputs, make_inputs]",
    )
    assert passes(run(text, **OFF))
    record = run(text, "planted:small_state_lost_later", **OFF)
    assert [(finding["oracle"], finding["path"]) for finding in record["findings"]] == [
        ("mutation", "call 1, buffer b")
    ]


def test_a_result_that_is_state_may_change_and_a_nan_equals_itself():
    calls = "CALLS = [make_inputs, make_inputs]"
    text = source(
        "self.total += x.sum()\nreturn self.total",
        init="self.register_buffer('total', torch.zeros(()))",
        definitions=calls,
    )
    assert passes(run(text, **OFF))
    assert passes(run(source("return x * float('nan'), x > 0, x.to(torch.complex64)", definitions=calls), **OFF))


def test_paths_name_containers_inputs_and_parameters():
    text = source(
        "self.w.grad = None\nreturn {'a': (pair[0] * self.w, pair[1]), 'n': 3}",
        signature="pair",
        inputs="[torch.randn(3, requires_grad=True), torch.ones(2)]",
        init="self.w = torch.nn.Parameter(torch.ones(3))",
    )
    assert passes(run(text, "eager", **FULL))
    record = run(
        source("return {'a': (x * self.w, 3)}", init="self.w = torch.nn.Parameter(torch.ones(5))"),
        "planted:scaled_gradient",
        **FULL,
    )
    assert [finding["path"] for finding in record["findings"]] == ["gradient of parameter w"]


@pytest.mark.parametrize("cotangent", ["seeded", "ones", "sum"])
def test_cotangents(cotangent):
    fields = {"grad": {"mode": "backward", "cotangent": cotangent}}
    assert passes(run(BACKWARD, "aot_eager", **fields))
    assert oracles(run(BACKWARD, "planted:scaled_gradient", **fields)) == ["grad"]


# name: (what the model does, where its backward begins beside the outputs)
ROOTS = {
    "an attribute": ("self.sum = (W * 2).sum()\nreturn x * 3 + V", "attribute sum"),
    "an input": ("z.copy_(W * 2)\nreturn x * 3 + V", "input z"),
    "a part of an input": ("z[0].add_(W[0])\nreturn x * 3 + V", "input z"),
    "a list": ("self.losses.append((W * 2).sum())\nreturn x * 3 + V", "attribute losses[0]"),
    "a variable of the file": ("LOSS['last'] = W * 2\nreturn x * 3 + V", "global LOSS['last']"),
}
TRAINED = "LOSS = {}\nV = W = torch.ones(4, 5, requires_grad=True)"


def with_roots(body):
    inputs = "torch.randn(4, 5, requires_grad=True), torch.zeros(4, 5)"
    return source(body, inputs=inputs, signature="x, z", init="self.sum, self.losses = None, []", definitions=TRAINED)


def notes_of(record):
    return [note for note in record["notes"] if "gradients from" in note or "a second backward" in note]


@pytest.mark.parametrize("name", ROOTS)
def test_the_backward_begins_also_at_what_a_call_leaves_in_inputs_and_state(name):
    body, path = ROOTS[name]
    for backend in ("planted:clean", "aot_eager"):
        record = run(with_roots(body), backend, **FULL)
        assert passes(record), record
        assert notes_of(record) == [f"a second backward also begins, in the last call, at {path}"]
    wrong = body.replace("W", "(W.detach() + (W - W.detach()) * (7 if torch.compiler.is_compiling() else 1))")
    record = run(with_roots(wrong), "planted:clean", **FULL)
    assert [(finding["oracle"], finding["path"]) for finding in record["findings"]] == [
        ("grad", "gradient of global V")
    ]


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ("self.sum = x * 3\nreturn self.sum", ""),
        ("self.sum = x.detach().sum()\nreturn x * 3", ""),
        ("self.sum = (W * W).sum()\nself.sum.backward()\nreturn x * 3", "attribute sum"),  # its graph is used up
    ],
)
def test_a_result_at_which_no_backward_can_begin_has_a_note(body, note):
    record = run(with_roots(body), "planted:clean", **FULL)
    assert passes(record)
    assert notes_of(record) == ([f"{note}: gradients from there on are not compared (no output)"] if note else [])


def test_the_backward_of_the_last_call_begins_at_what_it_leaves():
    """Unless earlier calls have left results there: their graphs are used up."""
    twice = "CALLS = [make_inputs, make_inputs]\n"
    record = run(with_roots("z.copy_(W * W)\nreturn x * W") + twice, "planted:clean", **FULL)
    assert passes(record), record
    assert notes_of(record) == ["a second backward also begins, in the last call, at input z"]
    record = run(with_roots("self.losses.append((W * W).sum())\nreturn x * W") + twice, "planted:clean", **FULL)
    assert passes(record), record
    assert notes_of(record) == [
        "attribute losses[0], attribute losses[1]: gradients from there on are not compared (no output)"
    ]


def test_a_gradient_at_a_leaf_that_a_model_returns():
    grow = "@torch.compiler.disable\ndef grow(x, n):\n    w = torch.ones(5, requires_grad=True)\n"
    grow += "    (x * w * n).sum().backward()\n    return w"
    assert passes(run(source("return grow(x, 2), x + 1", definitions=grow), "eager"))
    text = source("return grow(x, 3 if torch.compiler.is_compiling() else 2), x + 1", definitions=grow)
    (finding,) = run(text, "eager")["findings"]
    assert (finding["oracle"], finding["path"]) == ("grad", "gradient of output[0]")


def test_second_order_gradients():
    fields = {"grad": {"mode": "backward", "order": 2}}
    text = source("return (x * x * x).sum(0)", inputs="torch.randn(4, 5, requires_grad=True)")
    assert passes(run(text, "eager", **fields))
    paths = [finding["path"] for finding in run(text, "planted:scaled_gradient", **fields)["findings"]]
    assert paths == ["gradient of x", "gradient of x, order 2"]


def test_gradients_of_inputs_that_are_no_leaves():
    text = source("return x * 3", inputs="torch.randn(4, requires_grad=True).view(2, 2)")
    assert passes(run(text, **FULL))
    assert oracles(run(text, "planted:scaled_gradient", **FULL)) == ["grad"]


def test_complex_values_and_gradients():
    text = source("return x * x", inputs="torch.randn(4, dtype=torch.complex64, requires_grad=True)")
    assert passes(run(text, "aot_eager", **FULL))
    assert oracles(run(text, "planted:wrong_element", **FULL)) == ["value"]


def test_budgets():
    broken = source("y = x.sin()\ntorch._dynamo.graph_break()\nreturn y.cos()")
    record = run(broken, "eager", expect={"graphs": 1, "graph_breaks": 0})
    assert oracles(record) == ["graphs", "graph-break"]
    assert (record["graphs"], record["graph_breaks"], len(record["break_reasons"])) == (2, 1, 1)
    assert passes(run(broken, "eager", expect={"graphs": 2, "graph_breaks": 1, "recompiles": 0}))
    grows = source("return x * 2", definitions="CALLS = [(lambda n=n: [torch.randn(n)]) for n in (2, 3, 4)]")
    record = run(grows, "eager", expect={"recompiles": 0})
    assert oracles(record) == ["recompile"] and record["recompiles"] == 1
    assert passes(run(grows, "eager", expect={"recompiles": 1}))


def test_bounds_of_kernels_are_held_against_inductors_count():
    text, bounds = source("return x.sin() + 1", inputs="torch.randn(64)"), {"kernels": 1, "vectorized": 1}
    record = run(text, "inductor", expect=bounds)
    assert passes(record) and (record["kernels"], record["vectorized"], record["labels"]) == (1, 1, [])
    assert oracles(run(text, "inductor", expect={"kernels": 0, "vectorized": 2})) == ["kernels", "vectorized"]
    scalar = {"torch._inductor.config.cpp.simdlen": 1}
    assert oracles(run(text, "inductor", expect=bounds, config=scalar)) == ["vectorized"]


def test_bounds_of_kernels_that_nobody_counts_are_not_held(monkeypatch: pytest.MonkeyPatch):
    record = run(PLUS, "eager", expect={"kernels": 0, "vectorized": 9})
    assert passes(record) and record["labels"] == ["not-compared"] and len(record["notes"]) == 2
    assert run(PLUS, "eager", expect={"kernels": 0}, ignore=["kernels"])["labels"] == []
    monkeypatch.setattr("runner.worker.judge.judge.has_picked_none", lambda: True)
    record = run(PLUS, "inductor", expect={"kernels": 1, "vectorized": 1})
    assert record["notes"] == [
        "expect: vectorized: torch has found no vector instructions on this machine; not compared"
    ]


def test_a_break_under_fullgraph_is_a_graph_break():
    broken = source("y = x.sin()\ntorch._dynamo.graph_break()\nreturn y.cos()")
    assert oracles(run(broken, "eager", {"fullgraph": True})) == ["graph-break"]
    assert passes(run(PLUS, "eager", {"fullgraph": True}))


def test_past_the_recompile_limit_there_is_a_note():
    text = source("return x * 2", definitions="CALLS = [(lambda n=n: [torch.randn(n)]) for n in range(2, 8)]")
    record = run(text, "eager", {"dynamic": False}, config={"torch._dynamo.config.cache_size_limit": 3})
    assert any("recompile limit" in note for note in record["notes"])


def test_python_values_among_the_outputs():
    assert passes(run(source("return x + 1, x.shape[0], 'text', None, float('nan')"), "eager"))
    text = source("return x * 2, x.sum().item()")
    config = {"torch._dynamo.config.capture_scalar_outputs": True}
    assert passes(run(text, "eager", config=config))
    record = run(text, "planted:off_by_one", config=config)
    assert oracles(record) == ["value", "value"]
    assert record["findings"][1]["path"] == "output[1]"


def test_containers_defined_by_the_case_itself():
    definitions = "import collections, dataclasses\nPair = collections.namedtuple('Pair', 'a b')\n"
    assert passes(run(source("return Pair(x + 1, x - 1)", definitions=definitions), "eager"))
    record = run(source("return Pair(x + 1, x - 1)", definitions=definitions), "planted:wrong_element")
    assert [finding["path"] for finding in record["findings"]] == ["output.a", "output.b"]
    data = "import dataclasses\n@dataclasses.dataclass\nclass Out:\n    a: torch.Tensor\n"
    assert oracles(run(source("return Out(x + 1)", definitions=data), "planted:wrong_element")) == ["value"]


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ("relu_compile_error_TESTING_ONLY", "compile-error"),
        ("relu_runtime_error_TESTING_ONLY", "runtime-error"),
        ("relu_accuracy_error_TESTING_ONLY", "value"),
    ],
)
def test_torchs_own_broken_backends(backend, expected):
    assert oracles(run(source("return torch.relu(x)"), backend)) == [expected]
    assert passes(run(source("return x.sin()"), backend))


def test_float64_labels_what_it_excuses():
    body = "return ((x + 4096.0) - 4096.0) + 0 * x" + "\n"
    record = run(source(body), "planted:tiny_noise")
    assert record["findings"] == [] and record["labels"] == ["within-float64-noise"]
    (note,) = record["notes"]
    text = r"output: \d+ of \d+ elements lie outside the tolerance, the worst is off by \S+ times what it allows"
    assert re.fullmatch(rf"{text}: within-float64-noise", note)


def test_a_case_may_do_without_float64():
    record = run(PLUS, "planted:wrong_element", float64=False)
    assert oracles(record) == ["value"] and record["findings"][0]["numbers"]["reference"] is None
    assert record["notes"] == []


def test_a_round_trip_through_less_precision_does_not_blunt_the_reference():
    body = "return (x * 3).to(torch.float16).to(torch.float32)"
    without_casts = run(source(body), "planted:without_casts")  # more precise than eager, as fusing the casts away is
    assert without_casts["findings"] == [] and without_casts["labels"] == ["nearer-to-float64"]
    wrong = run(source(body), "planted:wrong_element")
    assert oracles(wrong) == ["value"] and wrong["findings"][0]["numbers"]["reference"] is not None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_reference_gets_the_inputs_that_eager_got(dtype):
    inputs = f"torch.randn(40, dtype=torch.{dtype})"  # drawn in float64 they would be other numbers
    record = run(source("return (x.double() * 3 / 7).to(x.dtype)", inputs=inputs), "planted:zeros", dtype=dtype)
    assert oracles(record) == ["value"], record["labels"]
    numbers = record["findings"][0]["numbers"]
    assert numbers["reference"] == pytest.approx(numbers["eager"], rel=1e-2)


def test_reading_bits_as_another_dtype_stays_so_in_the_reference():
    text = source("return x.view(torch.int32).view(torch.float32) + 0.1")
    assert passes(run(text)) and oracles(run(text, "planted:wrong_element")) == ["value"]


def test_memory_shared_below_the_storage_shows_by_a_write():
    text = source("return torch.from_numpy(x.numpy())")  # another storage over the input's memory
    assert passes(run(text, "planted:clean", grad={"mode": "off"}))
    (finding,) = run(text, "planted:copied", grad={"mode": "off"})["findings"]
    assert finding["oracle"] == "alias" and "shares memory with input x" in finding["message"]


@pytest.mark.parametrize(
    "body",
    [
        "return x.expand(3, 4, 5)",
        "return x.unfold(1, 3, 1)",
        "return x > 0",
        "return x[:0]",
        "return x.conj()",
    ],
)
def test_outputs_that_nobody_can_write_into_are_left_alone(body):
    assert passes(run(source(body), "planted:clean", grad={"mode": "off"}))


def test_a_write_is_put_back():
    text = source("y = x.view(-1)\nreturn y, y.sum()", definitions="CALLS = [make_inputs, make_inputs]")
    assert passes(run(text, "planted:clean"))
    assert oracles(run(text, "planted:dropped_mutation")) == ["alias", "alias"]


@pytest.mark.parametrize(
    ("text", "backend", "expected"),
    [
        (source("y = x + 1\nreturn y, y.view_as(y)"), "same_object", [("alias", "metadata")]),
        (source("return x + 1, x + 1"), "same_object", [("alias", None)]),
        (source("return x.view(-1)"), "copied", [("alias", None)]),
        (source("return x * 2", inputs="torch.ones(3, 3)"), "transposed_input", [("mutation", "metadata")]),
        (source("return x * 2", inputs="torch.ones(3, 3)"), "extra_mutation", [("mutation", None)]),
    ],
)
def test_what_no_later_write_shows_is_worth_less(text, backend, expected):
    findings = run(text, f"planted:{backend}", **OFF)["findings"]
    assert [(finding["oracle"], finding["severity"]) for finding in findings] == expected


def test_a_missing_error_is_at_eager_s_line():
    text = source("y = x + 1\nz = y[i]\nreturn z", signature="x, i", inputs="torch.randn(3), torch.tensor([7])")
    (finding,) = run(text, "planted:swallowed", **RAISES)["findings"]
    assert finding["oracle"] == "missing-error"
    assert text.splitlines()[finding["line"] - 1].strip() == "z = y[i]"


FILLED_ONCE = """if not self.kept:
    self.kept.append(torch.exp(x))
return x * self.kept[0]"""


def test_a_cache_that_later_calls_only_read_keeps_its_rounding():
    text = source(FILLED_ONCE, init="self.kept = []", definitions="CALLS = [make_inputs] * 2")
    assert passes(run(text, "planted:each_rounded"))
    assert "mutation" in oracles(run(text, "planted:each_wrong"))


THAWING = """
@torch.compiler.disable
def thaw(tensor):
    tensor.requires_grad_()
"""


@pytest.mark.parametrize(("tensor", "path"), [("self.w", "parameter w"), ("self.b", "buffer b"), ("x", "x")])
def test_the_gradient_of_a_leaf_that_requires_one_since_the_call_is_compared(tensor, path):
    init = "self.w = torch.nn.Parameter(torch.ones(5), False); self.register_buffer('b', torch.ones(5))"
    text = source(f"thaw({tensor})\nreturn x * self.w + self.b", init=init, definitions=THAWING)
    assert passes(run(text, "aot_eager", **FULL))
    (finding,) = run(text, "planted:scaled_gradient", **FULL)["findings"]
    assert (finding["oracle"], finding["path"]) == ("grad", f"gradient of {path}")


def test_a_leaf_that_a_call_freezes_and_thaws_is_compared_in_each_call():
    more = THAWING.replace("requires_grad_()", "requires_grad_(not tensor.requires_grad)")
    init = "self.w = torch.nn.Parameter(torch.ones(5)); self.v = torch.nn.Parameter(torch.ones(5))"
    body = "thaw(self.w)\nreturn x * self.w + self.v"
    text = source(body, init=init, definitions=f"{more}CALLS = [make_inputs] * 3")
    assert passes(run(text, "aot_eager", **FULL))
    paths = {finding["path"] for finding in run(text, "planted:scaled_gradient", **FULL)["findings"]}
    assert paths == {*(f"call {n}, gradient of parameter v" for n in range(3)), "call 1, gradient of parameter w"}


DISABLED = """
@torch.compiler.disable
def give(x, wrong):
    return {give}
"""


@pytest.mark.parametrize(
    ("give", "findings"),
    [
        ("torch.nested.nested_tensor([x[:2], x[2:]] if wrong else [x[:1], x[1:]])", ["shape"]),
        (
            "torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, 4]) if wrong else torch.tensor([0, 2, 4]))",
            ["shape"],
        ),
        ("x.to_sparse(1) if wrong else x.to_sparse()", ["layout"]),
        (
            "torch.sparse_coo_tensor(x.to_sparse().indices(), x.to_sparse().values(), (4, 5), is_coalesced=not wrong)",
            ["layout"],
        ),
        ("x[:, :4].to_sparse_bsr((1, 1) if wrong else (2, 2))", ["layout"]),
        ("x[:, :4].to_sparse_bsc((2, 1) if wrong else (1, 2))", ["layout"]),
        (
            "torch.sparse_csr_tensor(*[part.to(torch.int32 if wrong else torch.int64) for part in ("
            "x.to_sparse_csr().crow_indices(), x.to_sparse_csr().col_indices())], x.to_sparse_csr().values(), (4, 5))",
            ["layout"],
        ),
        ("torch.quantize_per_tensor(x.round(), 0.5 if wrong else 0.25, 0, torch.qint8)", ["dtype"]),
        ("torch.quantize_per_tensor(x.round(), 0.5, 1 if wrong else 0, torch.qint8)", ["dtype"]),
        (
            "torch.quantize_per_channel(x.round(), torch.full((4,), 0.5 if wrong else 0.25), torch.zeros(4), 0, torch.qint8)",
            ["dtype"],
        ),
        ("torch.quantize_per_tensor(x * 1e-6 + 1e-6 * wrong, 1e-6, 0, torch.qint8)", ["value"]),
        (
            "torch.quantize_per_channel(x * 1e-6 + 1e-6 * wrong, torch.tensor([1e-6, 1.0, 1.0, 1.0]), torch.zeros(4), 0, torch.qint8)",
            ["value"],
        ),
        ("(x + 1, torch.inference_mode(wrong)(x.clone)())", ["requires-grad"]),
    ],
)
def test_metadata_that_one_layout_has(give, findings):
    text = DISABLED.format(give=give)
    assert oracles(run(source("return give(x, torch.compiler.is_compiling())", definitions=text), "eager")) == findings
    assert oracles(run(source("return give(x, False)", definitions=text), "eager")) == []


@pytest.mark.parametrize("dtype", ["float4_e2m1fn_x2", "bits8", "bits2x4", "bits16"])
def test_bits_without_arithmetic_are_compared(dtype):
    if not hasattr(torch, dtype):
        pytest.skip("this torch has no such dtype")
    integers = "int16" if dtype == "bits16" else "uint8"
    give = f"torch.full((4,), 2 if wrong else 1, dtype=torch.{integers}).view(torch.{dtype})"
    for text, kept in (("False", []), ("torch.compiler.is_compiling()", ["mutation", "value"])):
        body = f"y = x + 1\nself.t = give(x, {text})\nreturn give(x, {text}), y"
        record = run(source(body, definitions=DISABLED.format(give=give) + "CALLS = [make_inputs] * 2"), "eager", **OFF)
        assert sorted({*oracles(record)}) == kept and record["trust"] is None, record


def test_a_leaf_is_told_from_what_is_computed():
    body = "y = x * self.w\nreturn y.detach().requires_grad_() if torch.compiler.is_compiling() else y"
    init = "self.w = torch.nn.Parameter(torch.ones(5))"
    record = run(source(body, init=init), "eager")
    assert oracles(record) == ["requires-grad"] and "eager's is computed" in record["findings"][0]["message"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition"])
def test_a_result_into_which_autograd_lets_nobody_write(backend):
    inputs = "torch.ones(4, requires_grad=True)"
    record = run(source("o = x * 2\no.unsqueeze_(0)\nreturn o", inputs=inputs), backend)
    assert oracles(record) == (["requires-grad"] if backend != "eager" else [])
    assert backend == "eager" or "takes a write" in record["findings"][0]["message"]
    for healthy in ("(x * 2).split(2)", "(x * 2).unbind()", "(x * 2).view(2, 2)", "x.view(2, 2)"):
        assert oracles(run(source(f"return {healthy}", inputs=inputs), backend)) == []


HOLDER = """self.register_buffer("b", torch.zeros(5)); self.t = torch.zeros(5); self.h = [1]
        self.d = {"k": torch.zeros(5)}; self.s = {1}; self.w = torch.nn.Parameter(torch.ones(5))"""
WRITES = [  # one writes into what stands there, the other puts another object in its place
    ("buffer b", "self.b.add_(1)", "self.b = self.b + 1", "Tensor"),
    ("attribute t", "self.t.add_(1)", "self.t = self.t + 1", "Tensor"),
    ("attribute h", "self.h.append(1)", "self.h = self.h + [1]", "list"),
    ("attribute d", "self.d['k'].add_(1)", "self.d = {'k': self.d['k'] + 1}", "dict"),
    ("attribute d['k']", "self.d['k'].add_(1)", "self.d['k'] = self.d['k'] + 1", "Tensor"),
    ("attribute s", "self.s.add(2)", "self.s = self.s | {2}", "set"),
    ("parameter w", "pass", "self.w = torch.nn.Parameter(self.w.detach())", "Parameter"),
    ("buffer b", "self.b.add_(1)", "self.b.data = self.b + 1", "memory"),
    ("input x[0]", "x[0].add_(1)", "x[0] = x[0] + 1", "Tensor"),
]


def unlike(eager, compiled):
    """Statements that do one thing in eager and another one in compiled code."""
    return f"if torch.compiler.is_compiling():\n    {compiled}\nelse:\n    {eager}"


@pytest.mark.parametrize(("path", "write", "replace", "name"), WRITES)
def test_who_holds_an_object_sees_what_is_written_into_it(path, write, replace, name):
    def findings(eager, compiled):
        text = source(f"{unlike(eager, compiled)}\nreturn x[0] * 2", inputs="[torch.ones(5)]", init=HOLDER)
        return [(finding["oracle"], finding["path"], finding["message"]) for finding in run(text, **OFF)["findings"]]

    replacement = f"compiled code puts {'' if name == 'memory' else 'an'}other {name} in its place"
    assert findings(write, write) == findings(replace, replace) == []
    for pair, remark in (((write, replace), replacement), ((replace, write), "compiled code keeps that")):
        ((oracle, where, message),) = findings(*pair)
        assert (oracle, where) == ("mutation", path) and message.endswith(remark)


@pytest.mark.parametrize(
    ("expression", "copy", "message"),
    [
        ("self.h", "list(self.h)", "is attribute h"),
        ("[self.d]", "[dict(self.d)]", "is attribute d"),
        ("self.s", "set(self.s)", "is attribute s"),
        ("x", "list(x)", "is input x"),
        ("x[0].numpy()", "x[0].clone().numpy()", "shares memory with input x[0]"),
        ("x[0].numpy()[::-1]", "x[0].clone().numpy()[::-1]", "shares memory with input x[0]"),
        ("self.a", "self.a.copy()", "shares memory with attribute a"),
        ("torch.from_numpy(self.a)", "torch.from_numpy(self.a.copy())", "shares memory with attribute a"),
        ("[y.numpy(), y]", "[y.clone().numpy(), y]", "shares memory with output[0]"),
    ],
)
def test_containers_and_arrays_are_shared_as_tensors_are(expression, copy, message):
    definitions = f"import numpy\n@torch.compiler.disable\ndef give(self, x, y, same):\n    return {expression} if same else {copy}\n"
    init = f"{HOLDER}; self.a = numpy.ones(3)"

    def findings(same):
        text = source(
            f"return give(self, x, x[0] * 2, {same})", inputs="[torch.ones(5)]", init=init, definitions=definitions
        )
        return [
            (finding["oracle"], finding["severity"], finding["message"]) for finding in run(text, **OFF)["findings"]
        ]

    assert findings("True") == findings("False") == []
    for same, side in (("not torch.compiler.is_compiling()", "eager"), ("torch.compiler.is_compiling()", "compiled")):
        ((oracle, severity, text),) = findings(same)
        assert (oracle, severity) == ("alias", None) and f"{side}: {message}" in text


SHARED = [  # what a call puts into inputs and state, where compiled code puts a copy
    ("attribute t", "self.t = y", "y.clone()", "shares memory with output"),
    ("attribute t", "self.t = y.view(-1)[1:]", "y[1:].clone()", "shares memory with output"),
    ("attribute t", "self.t = x[0]", "x[0].clone()", "shares memory with input x[0]"),
    ("attribute t", "self.t = self.w.detach()", "self.w.detach().clone()", "shares memory with parameter w"),
    ("attribute t", "self.t = self.b[1:]", "self.b[1:].clone()", "shares memory with buffer b"),
    ("attribute t", "self.b, self.t = self.b + 1, self.b", "self.b.clone()", "with buffer b before the call"),
    ("attribute t", "self.b = self.b + 1; self.t = self.b", "self.b.clone()", "shares memory with buffer b"),
    ("attribute a", "self.a = y.numpy()", "y.numpy().copy()", "shares memory with output"),
    ("attribute h", "self.h = x", "list(x)", "is input x"),
    ("parameter p", "self.p = self.w", "torch.nn.Parameter(self.w.detach().clone())", "is parameter w"),
    ("parameter p", "self.p = self.w", "torch.nn.Parameter(self.w.detach())", "is parameter w"),
    ("input x[0]", "x[0] = y", "y.clone()", "shares memory with output"),
    ("input x[0]", "x[0] = self.s", "set(self.s)", "is attribute s"),
    ("global TABLE['k']", "TABLE['k'] = y", "y.clone()", "shares memory with output"),
]


@pytest.mark.parametrize(("path", "shared", "copy", "message"), SHARED)
def test_who_keeps_what_a_call_puts_into_inputs_and_state_sees_later_writes(path, shared, copy, message):
    targets, _, values = shared.rpartition(" = ")
    copied = f"{targets} = {', '.join([*values.split(', ')[:-1], copy])}"
    init = f"{HOLDER}; self.a = numpy.ones(5); self.p = torch.nn.Parameter(torch.ones(5))"

    def findings(eager, compiled):
        more = (
            "import numpy\nTABLE = {'k': torch.zeros(5)}\n"
            f"@torch.compiler.disable\ndef give(self, x, y, same):\n    if same:\n        {eager}\n"
            f"    else:\n        {compiled}\n    return y"
        )
        body = "return give(self, x, x[0] * 2, not torch.compiler.is_compiling())"
        record = run(source(body, inputs="[torch.ones(5)]", init=init, definitions=more), **OFF)
        return [(found["oracle"], found["path"], found["message"]) for found in record["findings"]]

    assert findings(shared, shared) == findings(copied, copied) == []
    for pair, side in (((shared, copied), "eager"), ((copied, shared), "compiled")):
        ((oracle, where, text),) = findings(*pair)
        assert (oracle, where) == ("alias", path) and f"{side}: " in text and message in text


@pytest.mark.parametrize(
    "body",
    [
        "self.t = y.detach()\nreturn y",
        "self.t, self.h = y.split(2)\nreturn y + 1",
        "self.t = y[:, :3]\nself.h = y[:, 1:]\nreturn y + 1",
        "self.t, self.b = self.b, self.t\nreturn x + self.t",
        "self.b = self.b.detach()\nself.t = self.b.view(5, 1)\nreturn x + self.b",
        "x.add_(1)\nself.t = x\nself.h = [x.t()]\nreturn x",
        "self.t = x.expand(2, 4, 5)\nself.h = self.w.data\nreturn x.sum()",
        "self.t = x[:0]\nself.h = self.t\nreturn x + 1",
        "self.h = [y]\nself.d['k'] = self.h[0]\nreturn self.h, y",
        "self.t = y.numpy()\nreturn y",
    ],
)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_what_compilers_leave_in_state_shares_memory_as_in_eager(body, backend):
    assert passes(
        run(source(f"y = x * 2\n{body}", init=HOLDER, definitions="CALLS = [make_inputs] * 2"), backend, **OFF)
    )


def test_memory_of_state_without_a_common_element():
    parts = "self.t, self.h = (y[:2], y[2:]) if same else (y[:2].clone(), y[2:].clone())"
    more = f"@torch.compiler.disable\ndef keep(self, y, same):\n    {parts}"
    body = "keep(self, x * 2, not torch.compiler.is_compiling())\nreturn x + 1"
    assert passes(run(source(body, definitions=more), "eager", **OFF))


def test_memory_of_state_that_is_not_compared_is_not_compared():
    """Each run of eager leaves more in the list."""
    more = (
        "import sys\nTURN = sys.runner_test_sharing = getattr(sys, 'runner_test_sharing', 0) + 1\n"
        "@torch.compiler.disable\ndef keep(self, y):\n"
        "    self.log = [y.clone() for _ in range(TURN)]\n    self.t = self.log[-1]"
    )
    record = run(source("keep(self, x * 2)\nreturn x + 1", definitions=more), "eager", **OFF)
    assert passes(record) and "attribute log" in record["notes"][-1], record


@pytest.mark.parametrize(
    ("check", "raised", "findings"),
    [
        ("_check", "RuntimeError", []),
        ("_check_value", "ValueError", ["error-type"]),
        ("_check_not_implemented", "NotImplementedError", ["error-type"]),
    ],
)
def test_a_refusal_of_dynamo_is_the_runtime_error_that_an_except_catches(check, raised, findings):
    text = source(f"torch.{check}(x.shape[0] > 9, lambda: 'too few')\nreturn x + 1")
    record = run(text, "eager", {"fullgraph": True}, expect={"raises": {"type": raised}})
    assert (oracles(record), record["compared"]) == (findings, {"exceptions": 1})


def test_an_inference_tensor_that_comes_back_as_a_plain_one():
    """AOTAutograd makes a plain one, and Dynamo alone keeps it."""
    text = source("with torch.inference_mode():\n    y = x * 2\nreturn y, x + 1")
    (finding,) = run(text, "aot_eager", **OFF)["findings"]
    assert (finding["oracle"], finding["path"]) == ("requires-grad", "output[0]")
    assert finding["message"].startswith("eager has an inference tensor, compiled a plain one")
    assert passes(run(text, "eager", **OFF))


@pytest.mark.parametrize("write", ["x.mul_(1.0)", "self.n.add_(0)", "x[1:].zero_()"])
def test_a_write_that_changes_no_element_moves_a_version(write):
    """Autograd refuses what was saved before it."""
    inputs, init = "torch.zeros(3)", "self.n = torch.zeros(2)"
    for bodies, words in (((write, "pass"), "eager's write moves"), (("pass", write), "compiled code's write moves")):
        text = source(f"{unlike(*bodies)}\nreturn x * 2 + self.n.sum()", inputs, init=init)
        (finding,) = run(text, **OFF)["findings"]
        assert (finding["oracle"], finding["severity"]) == ("mutation", "metadata") and words in finding["message"]
    for backend in ("planted:clean", "aot_eager", "inductor"):
        assert passes(run(source(f"{write}\nreturn x * 2 + self.n.sum()", inputs, init=init), backend, **OFF))
    nothing = unlike("x[:0].zero_()", "pass") + "\nreturn x * 2"
    assert passes(run(source(nothing, "torch.zeros(0)"), **OFF))


def test_a_write_that_autograd_does_not_see():
    text = source(f"{unlike('x.add_(1)', 'x.data.add_(1)')}\nreturn x * 2")
    (finding,) = run(text, **OFF)["findings"]
    assert finding["oracle"] == "mutation" and "moves the version" in finding["message"]
    for body in ("x.add_(1)", "x.data.add_(1)"):
        assert passes(run(source(f"{body}\nreturn x * 2"), "aot_eager", **OFF))


def test_expected_delegation_is_held_against_what_torch_runs():
    record = run(PLUS, "runner.worker.planted:wrong_element", expect={"delegated": "some"})
    assert "delegated" in oracles(record)
    record = run(PLUS, "runner.worker.planted:wrong_element", expect={"delegated": "all"}, ignore=["delegated"])
    assert "delegated" not in oracles(record)
    assert (record["delegable"], record["delegated"]) == (2, 0) and record["fallbacks"]


def test_delegation_to_torchs_own_backends_is_not_counted():
    record = run(PLUS, "eager", expect={"delegated": "all"})
    assert passes(record) and record["labels"] == ["not-compared"] and record["delegable"] is None


def test_writes_are_searched_only_where_compiled_code_shares_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search compares all inputs and all of the state: of a large model it may not run for each gradient."""
    calls: list[Any] = []
    monkeypatch.setattr(judge, "spoilt_paths", lambda eager, compiled: calls.append(eager) or frozenset())
    assert passes(run(BACKWARD, "eager", **FULL))
    assert not calls
