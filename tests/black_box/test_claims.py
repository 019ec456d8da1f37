"""A backend's claims: what is not claimed is skipped, counted and scored."""

from __future__ import annotations

from pathlib import Path

import pytest

from .driver import Result, run_in, write

PROFILE = """\
suite: profile
backends:
  - {name: careful, backend: eager, unclaimed: {gradients: true, mutation: true, dtypes: [float64], operators: [F.conv*]}}
"""
CASES = """\
cases:
  - name: relu
    inputs: {x: {shape: [2, 3], requires_grad: true}}
    chain: [F.relu]
    dtypes: [float32, float64]
    grad: [forward, backward]
  - name: written
    inputs: {x: [3]}
    chain: [{Tensor.add_: [$x, 1]}]
  - name: convolved
    inputs: {x: [1, 2, 3]}
    chain: [F.relu, {nn.Conv1d: [2, 2, 1]}, torch.sin]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("claims")
    write(place, {"profile.suite.yaml": PROFILE, "a.spec.yaml": CASES})
    return place


@pytest.fixture(scope="module")
def result(folder: Path) -> Result:
    """A run of the cases under a backend that another file configures, beside one that claims all."""
    return run_in(folder, "run", "a.spec.yaml", "profile.suite.yaml", "--backend", "careful", "--backend", "eager", "-j", 1)  # fmt: skip


def test_what_is_not_claimed_is_skipped_with_that_reason(result: Result) -> None:
    assert result.code == 0, result.text
    skipped = {name: (e["unclaimed"], e["reason"]) for name, e in result.finished.items() if e["verdict"] == "SKIP"}
    assert skipped == {
        "relu[grad=backward,float32,cpu]@careful": ("gradients", "careful claims no gradients"),
        "relu[grad=backward,float64,cpu]@careful": ("gradients", "careful claims no gradients"),
        "relu[grad=forward,float64,cpu]@careful": ("float64", "careful claims no float64"),
        "written[float32,cpu]@careful": ("mutation of inputs", "careful claims no mutation of inputs"),
        "convolved[float32,cpu]@careful": ("operator nn.Conv1d", "careful claims no operator nn.Conv1d"),
    }
    assert {e["verdict"] for name, e in result.finished.items() if name not in skipped} == {"PASS"}
    assert {e["unclaimed"] for name, e in result.finished.items() if name not in skipped} == {""}
    assert "careful claims no gradients" in result.out


PRICE = "careful claims no nn.Conv1d: 1 variant left out, 1 of them with other operators; nothing else tries 1 of these: torch.sin"


def test_the_price_of_an_operator_is_said(folder: Path, result: Result) -> None:
    assert PRICE in result.out
    assert PRICE in " ".join(run_in(folder, "score").out.split())


def test_the_score_says_what_share_is_claimed(folder: Path, result: Result) -> None:
    score_result = run_in(folder, "score")
    rows = {
        words[0]: words[1:]
        for words in map(str.split, score_result.out.split("\n"))
        if len(words) == 3 and words[1][:1].isdigit()
    }
    assert rows["conformance"] == ["100.0%", "100.0%"]
    assert rows["claim"] == ["16.6%", "100.0%"] and rows["overall"] == ["16.6%", "100.0%"]
    assert rows["gradients"] == ["2", "0"] and rows["unclaimed"] == ["5", "0"]
    assert "operator nn.Conv1d" in score_result.out


def test_a_profile_is_read_as_strictly_as_any_suite(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, {"bad.suite.yaml": PROFILE.replace("gradients: true", "gradient: true"), "a.spec.yaml": CASES})
    result = run_in(tmp_path, "run", "a.spec.yaml", "bad.suite.yaml", "--backend", "eager", "-k", "written", "-j", 1)
    assert result.code == 4
    assert "bad.suite.yaml:3:" in result.err and "did you mean 'gradients'?" in result.err and "^^^^^^^^" in result.err


RANDOM = """\
cases:
  - name: dropped
    inputs: {x: [50]}
    train: true
    chain: [{nn.Dropout: 0.5}]
  - name: relu
    inputs: {x: {shape: [3], requires_grad: true}}
    chain: [F.relu]
"""


@pytest.mark.parametrize(
    ("backend", "claim", "case", "reason"),
    [
        ("draws_twice", "random: true", "dropped", "odd claims no random numbers of eager"),
        ("no_gradient", "gradients: true", "relu", None),
    ],
)
def test_what_is_not_claimed_is_no_failure_and_without_the_claim_it_is(
    tmp_path: Path, backend: str, claim: str, case: str, reason: str | None
) -> None:
    suite = "suite: s\nspecs: [a.spec.yaml]\nbackends:\n  - {name: odd, backend: 'runner.worker.planted:%s'%s}\n"
    write(tmp_path, {"a.spec.yaml": RANDOM, "with.suite.yaml": suite % (backend, f", unclaimed: {{{claim}}}"), "without.suite.yaml": suite % (backend, "")})  # fmt: skip
    claimed = run_in(tmp_path, "run", "with.suite.yaml", "-k", f"case:{case}", "-j", 1)
    assert claimed.code == 0, claimed.text
    [event] = claimed.finished.values()
    assert (event["verdict"], event["reason"] or None) == (("SKIP", reason) if reason else ("PASS", None))
    assert event["unclaimed"] == (reason or "").removeprefix("odd claims no ")
    assert run_in(tmp_path, "run", "without.suite.yaml", "-k", f"case:{case}", "-j", 1).code == 1


ROUNDING = """\
import torch

def compiler(graph, example_inputs):
    def call(*args):
        wrong = 2.0 if args[0].shape[0] == 7 else 1.0
        return tuple(out.bfloat16().float() * wrong for out in graph(*args))
    return call
"""
PRECISE = """\
cases:
  - {name: rounded, inputs: {x: [50]}, chain: [torch.exp]}
  - {name: doubled, inputs: {x: [7]}, chain: [torch.exp]}
"""


def test_values_of_less_precision_are_skipped_where_that_is_the_claim_and_wrong_ones_fail(tmp_path: Path) -> None:
    path = {"PYTHONPATH": str(tmp_path)}
    claim = ", unclaimed: {precision: {float32: bfloat16}}"
    suite = "suite: s\nspecs: [a.spec.yaml]\nbackends:\n  - {name: coarse, backend: 'rounding:compiler'%s}\n"
    write(tmp_path, {"rounding.py": ROUNDING, "a.spec.yaml": PRECISE, "with.suite.yaml": suite % claim, "without.suite.yaml": suite % ""})  # fmt: skip
    claimed = run_in(tmp_path, "run", "with.suite.yaml", "--allow-python", "-j", 1, env=path)
    verdicts = {name.partition("[")[0]: (e["verdict"], e["unclaimed"]) for name, e in claimed.finished.items()}
    assert verdicts == {"rounded": ("SKIP", "precision of float32 beyond bfloat16"), "doubled": ("FAIL", "")}, (
        claimed.text
    )
    assert "coarse claims no precision of float32 beyond bfloat16" in claimed.out
    plain = run_in(tmp_path, "run", "without.suite.yaml", "--allow-python", "-j", 1, env=path)
    assert {e["verdict"] for e in plain.finished.values()} == {"FAIL"}
