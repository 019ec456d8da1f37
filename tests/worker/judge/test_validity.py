"""FLAKY, VACUOUS, INVALID: when a comparison is not to be believed."""

from __future__ import annotations

import pytest
import torch
from worker_jobs import oracles, passes, run, source

from runner.worker.judge import validity
from runner.worker.rerun import agreement
from runner.worker.run import job

UNSTEADY_INPUTS = source(
    "return x * 2", inputs="torch.frombuffer(bytearray(os.urandom(8)), dtype=torch.uint8)", definitions="import os"
)
UNSTEADY_DTYPE = source(
    "return x.to(torch.float64 if sys.runner_test_flips % 2 else torch.float32)",
    definitions="import sys\nsys.runner_test_flips = getattr(sys, 'runner_test_flips', 0) + 1",
)


def verdict(record):
    return record["trust"] and record["trust"]["verdict"]


def test_eager_that_disagrees_with_itself_is_flaky():
    record = run(UNSTEADY_INPUTS, "eager")
    assert verdict(record) == "FLAKY" and "output" in record["trust"]["reason"]
    assert record["findings"] == []


def test_what_differs_in_dtype_is_flaky_even_when_values_are_ignored():
    assert verdict(run(UNSTEADY_DTYPE, "eager", ignore=["value"])) == "FLAKY"


def test_random_values_that_the_case_ignores_are_not_flaky():
    record = run(UNSTEADY_INPUTS, "eager", ignore=["value", "mutation"])
    assert verdict(record) is None and record["findings"] == []


def test_flaky_keeps_behaviour_and_structure():
    record = run(UNSTEADY_INPUTS, "planted:raises_at_run")
    assert verdict(record) == "FLAKY" and oracles(record) == ["runtime-error"]
    record = run(UNSTEADY_INPUTS, "planted:to_double")
    assert verdict(record) == "FLAKY" and oracles(record) == ["dtype"]


# Off by so much of a float32 in every further run of the process.
VARYING = """import sys
sys.runner_test_turns = getattr(sys, 'runner_test_turns', 0) + 1
def off():
    return 1 + {step} * (sys.runner_test_turns % 2)
"""


def varying(step, body="return x * off()"):
    return source(body, definitions=VARYING.format(step=step))


@pytest.fixture
def elsewhere(monkeypatch):
    """Jobs believe that eager ran on a GPU."""
    monkeypatch.setattr(job, "Agreement", lambda device, tolerances: agreement.Agreement("cuda", tolerances))


def test_on_the_cpu_one_bit_is_too_much():
    assert verdict(run(varying(1e-7), "eager")) == "FLAKY"


def test_a_device_may_add_in_another_order(elsewhere):
    record = run(varying(1e-7), "eager")
    assert passes(record) and record["labels"] == ["eager-varies"]
    assert run(source("return x * 2"), "eager")["labels"] == []


def test_a_device_may_not_be_off_by_more_than_the_tolerance(elsewhere):
    record = run(varying(1e-3), "eager")
    assert verdict(record) == "FLAKY" and "output" in record["trust"]["reason"]
    assert verdict(run(varying(1e-7), "eager", tolerance={"exact": True})) == "FLAKY"
    assert verdict(run(varying(1, "return (x * 8).int() * off()"), "eager")) == "FLAKY"


def test_a_wrong_backend_is_seen_where_eager_varies(elsewhere):
    assert oracles(run(varying(1e-7), "planted:tiny_noise")) == ["value"]


def test_where_bits_count():
    exact, near = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0000002])
    for device, agreed in (("cpu", False), ("meta", False), ("cuda", True), ("xpu", True)):
        agreed_on = agreement.Agreement(device, None)
        assert agreed_on(exact, exact.clone()) and not agreed_on.varied
        assert (agreed_on(exact, near), agreed_on.varied) == (agreed, agreed)
    assert not agreement.Agreement("cuda", None)(exact, torch.tensor([1.0, float("nan")]))


def test_nothing_compiled_is_vacuous():
    record = run(source("return x"), "inductor")
    assert verdict(record) == "VACUOUS" and "no graph" in record["trust"]["reason"]


def bounds(rtol=None, atol=None, **places):
    return {"by_dtype": {"": [rtol, atol]} if (rtol, atol) != (None, None) else {}, "by_place": places}


@pytest.mark.parametrize(
    ("body", "tolerance", "place"),
    [
        ("x * 2", bounds(1, 1e300), "output"),
        ("x * 2", bounds(0, 1e300), "output"),
        ("x * 2", bounds(1, 0), "output"),
        ("x * 2", bounds(0.5, 5), "output"),
        ("x.half() * 2", {"by_dtype": {"float16": [0, 65504.0], "float32": [0, 0]}}, "output"),
        ("x.to(torch.complex64) * 2j", bounds(0, 100), "output"),
        ("x.sum()", bounds(0, 100), "output"),
        ("float(x.shape[0]) / 3 + x * 0", bounds(0, 100), "output"),
        ("x * 2, x.abs()", bounds(0, 100), "output[1]"),
        ("x * 2, x.argmax()", bounds(0, 100), "output[0]"),
        ("x * 2, x.abs()", bounds(**{"output[1]": [0, 100]}), "output[1]"),
        ("x.mul_(2)", bounds(0, 100), "x"),
        ("torch.zeros_like(x)", bounds(0, 1e300), "output"),
        ("torch.where(x > 0, torch.inf, x)", bounds(0, 100), "output"),
    ],
)
def test_a_tolerance_that_would_pass_zeros_is_vacuous(body, tolerance, place):
    record = run(source(f"return {body}"), tolerance=tolerance)
    assert verdict(record) == "VACUOUS" and not record["findings"]
    assert (
        "would pass zeros in place of all numbers at" in record["trust"]["reason"]
        and place in record["trust"]["reason"]
    )


def test_a_note_tells_of_an_output_that_no_number_could_fail():
    """The large output shows that the bounds mean something, and any number passes in the small one."""
    text = source("return x.sin(), x * 1e6")
    record = run(text, tolerance=bounds(0, 10))
    (note,) = record["notes"]
    assert passes(record) and "at output[0], of which the largest is" in note and note.endswith("bounds of its own")
    calls = "CALLS = [lambda: [torch.full((4, 5), 1e-3)], lambda: [torch.full((4, 5), 20.0)]]"
    for silent in (
        run(text, tolerance=bounds(0, 10, **{"output[0]": [0, 1e-5]})),
        run(source("return x.sin().flatten().tolist(), x * 1e6"), tolerance=bounds(0, 10)),
        run(source("return x * 2", definitions=calls), tolerance=bounds(0, 10)),
    ):
        assert passes(silent) and not silent["notes"]


def test_a_tolerance_of_gradients_that_would_pass_zeros_is_vacuous():
    code = source("return x * 2", "torch.randn(4, requires_grad=True)")
    for tolerance in (bounds(0, 100), bounds(gradients=[0, 100])):
        record = run(code, tolerance=tolerance, grad={"mode": "backward"})
        assert verdict(record) == "VACUOUS" and record["trust"]["reason"].startswith("the tolerance ")
    assert passes(run(code, tolerance=bounds(gradients=[0.1, 0]), grad={"mode": "backward"}))


@pytest.mark.parametrize(
    ("body", "tolerance"),
    [
        ("x * 2", bounds(0.9, 0)),
        ("x * 1e6", bounds(0, 1000)),
        ("x * 2", {"exact": True}),
        ("x * 2, x * 1000", bounds(0, 20)),  # which the second number can fail
        ("x * 2", bounds(**{"output": [0.1, 0]})),
        ("(x + 1e4) - 1e4 - x", bounds(0, 0.01)),  # rounding alone: zeros are right
        ("torch.zeros_like(x)", bounds(0, 0.1)),
        ("x.argmax()", bounds(0, 100)),  # integers are equal
        ("x * 1e-9", None),  # torch's defaults are not the case's
    ],
)  # fmt: skip
def test_a_tolerance_that_can_fail_is_none_of_these(body, tolerance):
    assert passes(run(source(f"return {body}"), tolerance=tolerance))


def test_a_planted_bug_passes_under_no_tolerance_that_passes_all():
    code = source("return x * 2")
    assert oracles(run(code, "planted:wrong_element", tolerance=bounds(1e-4, 1e-4))) == ["value"]
    assert verdict(run(code, "planted:wrong_element", tolerance=bounds(1, 1e300))) == "VACUOUS"


def test_a_case_may_be_about_nothing_being_compiled():
    record = run(source("return x"), expect={"graphs": 0})
    assert passes(record) and record["graphs"] == 0
    assert verdict(run(source("return x"), expect={"graphs": 1})) == "VACUOUS"
    compiled = run(source("return x + 1"), expect={"graphs": 0})
    assert [(f["oracle"], f["message"]) for f in compiled["findings"]] == [("graphs", "1 graphs, at most 0 allowed")]
    broken = source("torch._dynamo.graph_break()\nreturn x")
    assert verdict(run(broken, "eager")) == "VACUOUS"


BATCH_OF_NAN = "torch.baddbmm(n, x[None, :, :4], x[None, :, :4])"
HALF_BY_ZERO = "x.half().abs() / 0"


def constant(results):
    return source(f"return {results}", "torch.randn(4, 5), torch.full((1, 4, 4), float('nan'))", "x, n")


@pytest.mark.parametrize(
    "body",
    ["torch.relu(-x.abs())", "x > 1e9", "torch.log(-x.abs())", "torch.isnan(x)", BATCH_OF_NAN, HALF_BY_ZERO],
)
def test_outputs_that_are_constant_by_saturation_are_vacuous(body):
    record = run(constant(body))
    assert verdict(record) == "VACUOUS" and "constant" in record["trust"]["reason"]
    assert "a case whose point is a constant says so: expect: {constant: true}" in record["notes"]


@pytest.mark.parametrize(
    ("body", "backend"),
    [
        ("torch.relu(-x.abs())", "off_by_one"),
        ("torch.log(-x.abs() - 1)", "nan_to_zero"),
        ("x.abs() / 0", "nan_to_zero"),
        (BATCH_OF_NAN, "nan_to_zero"),
        (HALF_BY_ZERO, "nan_to_zero"),
    ],
)
def test_a_constant_that_is_meant_is_compared(body, backend):
    meant = {"expect": {"constant": True}}
    record = run(constant(body), **meant)
    assert passes(record) and record["compared"]["elements"]
    assert oracles(run(constant(body), f"planted:{backend}", **meant))
    assert verdict(run(constant(f"{body}, x + 1"), **meant)) == "INVALID"


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("torch.zeros_like(x)", "torch.randn(4, 5)"),
        ("torch.full((3,), float(x.shape[0]))", "torch.randn(4, 5)"),
        ("torch.full_like(x, float('nan'))", "torch.randn(4, 5)"),
        ("x * 0", "torch.ones(4)"),
        ("x.sum().reshape(1)", "torch.randn(4)"),
        ("torch.relu(-x.abs()), x.sin()", "torch.randn(4)"),
        ("x + 1", "torch.empty(0)"),
    ],
)
def test_outputs_that_are_rightly_constant_pass(body, inputs):
    assert passes(run(source(f"return {body}", inputs=inputs)))


def test_a_mutation_or_a_gradient_is_enough_to_compare():
    assert passes(run(source("x.mul_(2)\nreturn torch.relu(-x.abs())"), grad={"mode": "off"}))
    text = source("return torch.relu(-x.abs())", inputs="torch.randn(4, requires_grad=True)")
    assert passes(run(text, grad={"mode": "backward"}))


@pytest.mark.parametrize(
    ("text", "fields", "reason"),
    [
        (source("return x[9]"), {}, "eager raised IndexError"),
        (source("return x + 1"), {"expect": {"raises": {"type": "IndexError"}}}, "to raise IndexError, and returned"),
        (source("return x[9]"), {"expect": {"raises": {"type": "ValueError"}}}, "was to raise ValueError, and raised"),
        (source("return x[9]"), {"expect": {"raises": {"type": "IndexError", "match": "nonsense"}}}, "does not match"),
        (source("return x", inputs="torch.ones(-1)"), {}, "making the inputs of call 0 raised RuntimeError"),
        (source("return x", init="raise KeyError('no')"), {}, "making the model raised KeyError"),
        (
            source("return x", definitions="import nothing_of_the_kind"),
            {},
            "loading the source raised ModuleNotFoundError",
        ),
        ("x = = 1", {}, "loading the source raised SyntaxError"),
        ("x = 1", {}, "no make_model"),
        (source("raise SystemExit(0)"), {}, "eager raised SystemExit"),
        (source("return x"), {"imports": ["nothing_of_the_kind"]}, "importing nothing_of_the_kind raised"),
        (source("return x"), {"config": {"torch._inductor.config.no_such_flag": 1}}, "has no flag"),
        (source("return x"), {"config": {"torch._inductor.config.cpp.no_such_flag": 1}}, "has no flag"),
        (source("return x"), {"config": {"os.environ": 1}}, "no full name of a torch flag"),
        (source("return x"), {"backend": "inductr"}, "did you mean inductor"),
        (source("return x"), {"backend": "nowhere:f"}, "cannot import nowhere"),
        (source("return x"), {"backend": "planted:nothing"}, "planted has no nothing"),
        (source("return x"), {"backend": "planted:not_a_function"}, "cannot be called"),
        (source("return x"), {"backend": "inductor", "compile": {"options": {"nonsense": 1}}}, "torch.compile refuses"),
    ],
)
def test_a_case_that_is_wrong_is_invalid(text, fields, reason):
    record = run(text, **fields)
    assert verdict(record) == "INVALID" and reason in record["trust"]["reason"], record["trust"]
    assert record["findings"] == []


def test_an_error_of_the_case_has_its_line():
    error = run(source("y = x + 1\nreturn y[9]"))["trust"]["error"]
    assert (error["type"], error["line"]) == ("IndexError", 5)


def test_eager_may_raise_what_is_expected():
    text = source("return torch.linalg.inv(x)", inputs="torch.zeros(2, 2)")
    for name in ("torch.linalg.LinAlgError", "LinAlgError", "_LinAlgError"):
        record = run(text, expect={"raises": {"type": name, "match": "singular"}})
        assert passes(record) and record["eager_error"]["type"] == "_LinAlgError"
    assert not passes(run(text, expect={"raises": {"type": "AlgError", "match": "singular"}}))
    assert passes(run(text, expect={"raises": {"type": "RuntimeError"}}))


def test_a_process_that_compiled_before_validates_distributions_as_eager_does() -> None:
    text = source("return torch.distributions.Normal(x, -1.0).mean")
    for _ in range(2):  # the first job has compiled; the second must still see eager's own error
        record = run(text, "eager", expect={"raises": {"type": "ValueError"}})
        assert record["trust"] is None
        assert record["eager_error"]["type"] == "ValueError"
        assert oracles(record) == ["missing-error"]  # compiled code does not check, here and for users


def test_a_device_that_is_absent_and_a_package_that_is_missing_skip() -> None:
    text = source("return x + 1")
    assert run(text, "eager", device="nosuch")["trust"] == {
        "verdict": "SKIP",
        "reason": "no device nosuch here",
        "error": None,
    }
    assert run(text, "eager", packages=["no_such_package"])["trust"]["reason"] == "no package no_such_package here"
    assert run(text, "eager", packages=["torch"])["trust"] is None


HOUSEHOLDER = "return torch.linalg.householder_product(a, t)"
LEAVES = "torch.randn(4, 3, requires_grad=True), torch.randn(3, requires_grad=True)"


def differentiate(body: str, backend: str = "aot_eager", **fields):
    return run(source(body, LEAVES, "a, t"), backend, grad={"mode": "backward"}, **fields)


def test_what_torch_assumes_of_a_backward_under_autocast_is_noted() -> None:
    record = differentiate(HOUSEHOLDER, autocast="torch.bfloat16")
    assert set(oracles(record)) == {"grad"}
    assert validity.ASSUMED_AUTOCAST in record["notes"]
    traced_without = differentiate(HOUSEHOLDER, autocast="torch.bfloat16", config={validity.BACKWARD_AUTOCAST: "off"})
    assert passes(traced_without) and validity.ASSUMED_AUTOCAST not in traced_without["notes"]
    wrong = differentiate("return a.sin() * t", "planted:dropped_gradient")
    assert oracles(wrong) and validity.ASSUMED_AUTOCAST not in wrong["notes"]


def test_an_output_of_which_nothing_can_be_compared_is_vacuous():
    record = run(source("y = x + 1\nreturn {y}"))
    assert record["trust"]["verdict"] == "VACUOUS"
    assert record["trust"]["reason"] == "no output can be compared: a set cannot be compared"
    assert passes(run(source("x.add_(1)\nreturn {x}"), grad={"mode": "off"}))


def test_values_on_the_meta_device_are_no_comparison():
    record = run(source("return (x + 1).to('meta')"), "eager")
    assert verdict(record) == "VACUOUS" and "meta tensor" in record["trust"]["reason"]
    assert passes(run(source("return (x + 1).to('meta'), x"), "eager"))


def test_inputs_on_the_meta_device_have_metadata_to_compare():
    text = source("return x + 1", inputs="torch.ones(3, device='meta')")
    assert passes(run(text, "eager"))
    assert passes(run(text, "eager", device="meta"))


def test_a_default_device_of_meta_is_no_comparison():
    text = source("return x + 1", init="torch.set_default_device('meta')")
    record = run(text, "eager", foreign=True)
    assert verdict(record) == "VACUOUS" and "default device" in record["trust"]["reason"]
    assert passes(run(text.replace("'meta'", "'cpu'"), "eager", foreign=True))


LOCK = """
import threading
@torch.compiler.disable
def results(y):
    return threading.Lock()
"""


def test_what_cannot_be_compared_has_a_label_and_is_vacuous_where_it_is_all():
    record = run(source("y = x * 2\nreturn y, results(y)", definitions=LOCK), "eager")
    assert passes(record) and record["labels"] == ["not-compared"] and record["compared"]["outputs"] == 1
    assert "output[1]: a _thread.lock cannot be compared; not compared" in record["notes"]
    ignored = run(source("y = x * 2\nreturn y, results(y)", definitions=LOCK), "eager", ignore=["value"])
    assert ignored["labels"] == []
    record = run(source("return results(x * 2)", definitions=LOCK), "eager")
    assert record["trust"]["verdict"] == "VACUOUS"


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_what_has_no_elements_needs_no_label(device):
    record = run(source("return x * 2, torch.ones(2, device='meta')", f"torch.ones(3, device='{device}')"), "eager")
    assert passes(record) and record["labels"] == []
