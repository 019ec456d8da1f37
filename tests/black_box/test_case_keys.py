"""What a case can say, typed: each key read by the command, and seen to do something in a run."""

from __future__ import annotations

import re

import pytest

from .driver import Result, run_in, spec, write

BACKEND = """
import time

import torch


def off(graph, inputs):
    \"\"\"Return a function whose floating results are a little off.\"\"\"
    return lambda *args: tuple(out + 0.01 if out.is_floating_point() else out for out in graph(*args))


def slow(graph, inputs):
    \"\"\"Return the graph, late.\"\"\"
    time.sleep(3)
    return graph.forward
"""

OFF: list[str] = []
"""Cases that run under ``nearly:off``, which shows that their results are compared. Each stands above its test."""
SLOW: list[str] = []
"""Cases that run under ``nearly:slow``."""
RIGHT: list[str] = []
"""Cases that run under ``aot_eager``."""
WRONG: dict[str, str] = {}
"""Files that ``runner validate`` refuses."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """One run of all cases, each file of them under its backend."""
    folder = tmp_path_factory.mktemp("keys")
    files = {"off": OFF, "slow": SLOW, "right": RIGHT}
    write(folder, {f"{name}.spec.yaml": spec(*cases) for name, cases in files.items()} | {"nearly.py": BACKEND})
    words = "off.spec and backend:nearly:off or slow.spec and backend:nearly:slow or right.spec and backend:aot_eager"
    backends = ("--backend", "nearly:off", "--backend", "nearly:slow", "--backend", "aot_eager")
    return run_in(folder, "run", ".", *backends, "-k", words, "--no-confirm", "-j", 2)


@pytest.fixture(scope="module")
def programs(ran: Result) -> dict[str, str]:
    """What ``runner show`` prints of each case."""
    result = run_in(ran.cwd, "show", ".")
    assert result.code == 0, result.text
    texts = re.split(r"^(?=# id: )", result.out, flags=re.MULTILINE)[1:]
    return {text.partition("::")[2].partition("[")[0]: text for text in texts}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What ``runner validate`` says of all files that it refuses."""
    folder = tmp_path_factory.mktemp("wrong")
    write(folder, WRONG)
    result = run_in(folder, "validate", ".")
    assert result.code == 4 and "0 valid cases" in result.text, result.text
    return result.text


# --- tolerance ------------------------------------------------------------------------------

TWO = """
    name: {}
    inputs: {{x: [4]}}
    chain:
      - {{torch.sin: $x, out: a}}
      - {{torch.cos: $x, out: b}}
    return: [$a, $b]
    tolerance: {{"output[0]": {{atol: 0.1, reason: it is loose}}, {}}}
    """
OFF += [TWO.format("one", "exact: false"), TWO.format("both", "'output[1]': {atol: 0.1, reason: it is loose}")]


def test_a_tolerance_for_one_output(ran: Result) -> None:
    assert (ran.verdicts["one@nearly:off"], ran.verdicts["both@nearly:off"]) == ("FAIL", "PASS")
    assert [finding["path"] for finding in ran.of("one@nearly:off")["findings"]] == ["output[1]"]


WRONG["no_output.spec.yaml"] = spec(
    "name: a\ninputs: {x: [4]}\nchain: [F.relu]\nreturn: [$_]\ntolerance: {'output[1]': {rtol: 1, reason: x}}"
)


def test_a_tolerance_for_an_output_that_is_not_returned(refused: str) -> None:
    assert "no_output.spec.yaml:6:17: error: the case returns no output[1]" in refused


# --- out ------------------------------------------------------------------------------------

OUT = """
    name: given
    inputs: {x: [4, 3], a: [4], b: {shape: [4], dtype: int64}}
    grad: off
    chain:
      - torch.max:
          "*": [$x, 1]
          out: [$a, $b]
    return: [$a, $b]
    """
RIGHT += [OUT]
WRONG["names.spec.yaml"] = spec(OUT.replace("out: [$a, $b]", "out: [a, b]"))


def test_the_argument_out_of_an_operator(ran: Result, programs: dict[str, str], refused: str) -> None:
    assert ran.verdicts["given@aot_eager"] == "PASS", ran.text
    assert "out=[a, b])" in programs["given"]
    assert "names.spec.yaml:8:11: error: 'out' stands among the arguments" in refused


# --- seed -----------------------------------------------------------------------------------

SEED = "name: {}\n{}inputs: {{x: [4]}}\nchain: [{{torch.mul: [$_, 2]}}]"
OFF += [SEED.format("own", "seed: 5\n"), SEED.format("own_6", "seed: 6\n"), SEED.format("none", "")]


def test_a_seed_of_the_case(ran: Result, programs: dict[str, str]) -> None:
    """It comes before that of the command."""
    cases = [f"off.spec.yaml::{name}" for name in ("own", "none")]
    second_run = run_in(ran.cwd, "run", *cases, "--backend", "nearly:off", "--no-confirm", "--seed", "6")

    def eager(result: Result, name: str) -> float:
        return float(result.of(f"{name}@nearly:off")["findings"][0]["numbers"]["eager"])

    assert eager(ran, "own") == eager(second_run, "own") != eager(ran, "none")
    assert eager(ran, "own_6") == eager(second_run, "none") != eager(ran, "own")
    script = run_in(ran.cwd, "repro", "off.spec.yaml::own", "--backend", "nearly:off").out
    assert "torch.manual_seed(5)" in script
    assert "seed:           5" in programs["own"]


RIGHT += ["name: smallest_seed\nseed: -9223372036854775808\ninputs: {x: [4]}\nchain: [torch.sin]"]
for name, seed in (("large", "18446744073709551616"), ("word", "one")):
    WRONG[f"{name}.spec.yaml"] = spec(f"name: a\nseed: {seed}\ninputs: {{x: [4]}}\nchain: [F.relu]")


def test_a_seed_is_an_integer_of_64_bits(ran: Result, refused: str) -> None:
    assert ran.verdicts["smallest_seed@aot_eager"] == "PASS"
    assert "large.spec.yaml:3:11: error: 18446744073709551616 is too large" in refused
    assert "word.spec.yaml:3:11: error: expected an integer of 64 bits" in refused


# --- inputs ---------------------------------------------------------------------------------

ORDER = """
    name: order
    inputs: {{x: [300], i: {{shape: [300], dtype: {}, init: randperm}}}}
    chain: [{{torch.index_select: [$x, 0, $i]}}]
    """
RIGHT += [ORDER.format("int64")]
WRONG["order.spec.yaml"] = spec(ORDER.format("uint8"))


def test_a_random_order(ran: Result, refused: str) -> None:
    assert ran.verdicts["order@aot_eager"] == "PASS"
    assert "order.spec.yaml:3:24: error: init randperm makes the numbers 0 to 299" in refused


COTANGENT = """
    name: {}
    inputs:
      x: {{shape: [3], requires_grad: true}}
      g: {{values: {}, hidden: true}}
    grad: {{cotangent: $g}}
    chain: [torch.tanh]
    """
RIGHT += [COTANGENT.format("fits", "[1.0, 0.0, -2.0]"), COTANGENT.format("too_long", "[1.0, 0.0, -2.0, 1.0]")]
WRONG["cotangent.spec.yaml"] = spec(COTANGENT.format("b", "[1.0]").replace(", hidden: true", ""))


def test_a_given_cotangent(ran: Result, programs: dict[str, str], refused: str) -> None:
    assert (ran.verdicts["fits@aot_eager"], ran.verdicts["too_long@aot_eager"]) == ("PASS", "INVALID")
    assert ran.of("too_long@aot_eager")["reason"] == "grad: output has the shape [3], its cotangent [4]"
    assert "def make_cotangents():\n    g = torch.tensor([1.0, 0.0, -2.0])\n    return [g]" in programs["fits"]
    assert "'g' is a cotangent, and the model gets it too" in refused


LEAF = """
    name: {}
    inputs: {{x: {{shape: [3], layout: [Tensor.bfloat16], requires_grad: {}}}}}
    grad: backward
    chain: [torch.tanh]
    """
RIGHT += [LEAF.format("before", "true"), LEAF.format("after", "after_layout")]
WRONG["leaf.spec.yaml"] = spec(LEAF.format("b", "after"))


def test_a_leaf_behind_a_cast(ran: Result, programs: dict[str, str], refused: str) -> None:
    assert (ran.verdicts["before@aot_eager"], ran.verdicts["after@aot_eager"]) == ("PASS", "PASS")
    assert "    x = x.bfloat16()\n    x.requires_grad_()\n" in programs["after"]
    assert (
        "leaf.spec.yaml:3:72: error: expected true, false, after_layout or $name of a param, found the text 'after'"
        in refused
    )


COMPLEX = """
    name: complex
    inputs: {x: {values: [1+2j, -0.5j]}}
    chain: [{torch.mul: [$x, 2j]}, {torch.add: [$_, {$tensor: [1j, 2]}]}]
    """
RIGHT += [COMPLEX]
WRONG["complex.spec.yaml"] = spec(COMPLEX.replace("1+2j", "1e999j"))


def test_complex_numbers(ran: Result, programs: dict[str, str], refused: str) -> None:
    assert ran.verdicts["complex@aot_eager"] == "PASS"
    assert "torch.mul(x, (0.0+2.0j))" in programs["complex"]
    assert "complex.spec.yaml:3:27: error: 1e999j is beyond the range" in refused


# --- state ----------------------------------------------------------------------------------

STATE = """
    name: {}
    inputs: {{x: {{values: [[1.0, 10.0]]}}}}
    grad: off
    chain:
      - nn.Linear: [2, 2]
        state: {{weight: {{values: [[1.0, 2.0], [3.0, 4.0]]}}, {}: {{init: {{full: 0.5}}}}}}
    """
OFF += [STATE.format("right", "bias"), STATE.format("wrong", "bais")]


def test_what_parameters_hold_at_first(ran: Result) -> None:
    assert (ran.verdicts["right@nearly:off"], ran.verdicts["wrong@nearly:off"]) == ("FAIL", "INVALID")
    numbers = ran.of("right@nearly:off")["findings"][0]["numbers"]
    assert numbers["eager"] in (21.5, 43.5)
    assert "KeyError: 'bais'" in ran.of("wrong@nearly:off")["reason"]


WRONG["shape.spec.yaml"] = spec(
    "name: a\ninputs: {x: [2]}\nchain:\n  - nn.Linear: [2, 2]\n    state: {weight: {shape: [2, 2], init: ones}}"
)


def test_a_parameter_has_its_own_shape(refused: str) -> None:
    assert "shape.spec.yaml:6:26: error: unknown key 'shape'" in refused


# --- compile --------------------------------------------------------------------------------

LIMIT = "name: {}\ninputs: {{x: [4]}}\nchain: [torch.sin]\ncompile: {{timeout: {}}}"
SLOW += [LIMIT.format("short", "1s"), LIMIT.format("long", "100s")]
WRONG["limit.spec.yaml"] = spec(LIMIT.format("b", "1 parsec"))


def test_a_limit_for_compiling(ran: Result, programs: dict[str, str], refused: str) -> None:
    assert (ran.verdicts["short@nearly:slow"], ran.verdicts["long@nearly:slow"]) == ("ERROR", "PASS")
    event = ran.of("short@nearly:slow")
    assert event["oracles"] == ["timeout"]
    assert event["reason"] == "timeout: compiling took more than 1 s, the case's limit for compiling"
    assert "compile:        timeout=1.0" in programs["short"]
    assert "limit.spec.yaml:5:24: error: expected a time above 0 with its unit" in refused
