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
  - name: trained
    inputs: {x: {shape: [2, 3], requires_grad: true}}
    chain: [torch.tanh]
    grad: backward
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
    alone = {name for name, e in result.finished.items() if "forward-alone" in e["labels"]}
    assert alone == {"trained[float32,cpu]@careful"}
    assert "1 of them the forward alone" in result.out


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
    assert rows["claim"] == ["14.2%", "100.0%"] and rows["overall"] == ["14.2%", "100.0%"]
    assert rows["forward"] == ["1", "0"]
    assert rows["gradients"] == ["2", "0"] and rows["unclaimed"] == ["5", "0"]
    assert "operator nn.Conv1d" in score_result.out


def test_a_profile_is_read_as_strictly_as_any_suite(stand_in_here: None, tmp_path: Path) -> None:
    write(tmp_path, {"bad.suite.yaml": PROFILE.replace("gradients: true", "gradient: true"), "a.spec.yaml": CASES})
    result = run_in(tmp_path, "run", "a.spec.yaml", "bad.suite.yaml", "--backend", "eager", "-k", "written", "-j", 1)
    assert result.code == 4
    assert "bad.suite.yaml:3:" in result.err and "did you mean 'gradients'?" in result.err and "^^^^^^^^" in result.err


ROUNDING = """\
import torch

def compiler(graph, example_inputs):
    def call(*args):
        wrong = 2.0 if args[0].shape[0] == 7 else 1.0
        return tuple(out.bfloat16().float() * wrong for out in graph(*args))
    return call
"""
LESS = """\
cases:
  - {name: dropped, inputs: {x: [50]}, train: true, chain: [{nn.Dropout: 0.5}]}
  - {name: relu, inputs: {x: {shape: [3], requires_grad: true}}, chain: [F.relu]}
  - {name: rounded, inputs: {x: [50]}, chain: [torch.exp]}
  - {name: doubled, inputs: {x: [7]}, chain: [torch.exp]}
  - {name: trained, inputs: {x: {shape: [3], requires_grad: true}}, chain: [F.relu], grad: backward}
  - {name: trained_wrong, inputs: {x: {shape: [7], requires_grad: true}}, chain: [torch.exp], grad: backward}
"""
LESS_CLAIMED = {
    "draws": ("runner.worker.planted:draws_twice", "random: true", "case:dropped"),
    "no_gradient": ("runner.worker.planted:no_gradient", "gradients: true", "(case:relu or case:trained)"),
    "wrong": ("rounding:compiler", "gradients: true", "case:trained_wrong"),
    "coarse": ("rounding:compiler", "precision: {float32: bfloat16}", "(case:rounded or case:doubled)"),
}
"""Backends that do less than eager: each with the claim that says so, and the cases that show it."""


@pytest.fixture(scope="module")
def less(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run of each of them with its claim, and without it under the name ``plain_...``."""
    folder = tmp_path_factory.mktemp("less")
    write(folder, {"rounding.py": ROUNDING, "b.spec.yaml": LESS})
    suite = "suite: {0}\nspecs: [b.spec.yaml]\nbackends: [{{name: {0}, backend: '{1}'{2}}}]\n"
    words = []
    for name, (backend, claim, cases) in LESS_CLAIMED.items():
        for each, unclaimed in ((name, f", unclaimed: {{{claim}}}"), (f"plain_{name}", "")):
            write(folder, {f"{each}.suite.yaml": suite.format(each, backend, unclaimed)})
            words.append(f"{cases} and backend:{each}")
    return run_in(folder, "run", ".", "-k", " or ".join(words), "--allow-python", "--no-confirm", "-j", 1)


@pytest.mark.parametrize(
    ("name", "verdict", "unclaimed"),
    [
        ("dropped@draws", "SKIP", "random numbers of eager"),
        ("relu@no_gradient", "PASS", ""),
        ("rounded@coarse", "SKIP", "precision of float32 beyond bfloat16"),
        ("doubled@coarse", "FAIL", ""),
        ("trained@no_gradient", "PASS", ""),  # its forward alone
        ("trained_wrong@wrong", "FAIL", ""),
    ],
)
def test_what_is_not_claimed_is_no_failure_and_a_wrong_value_is(
    less: Result, name: str, verdict: str, unclaimed: str
) -> None:
    event, backend = less.of(name), name.partition("@")[2]
    assert (event["verdict"], event["unclaimed"]) == (verdict, unclaimed), less.text
    if unclaimed:
        assert event["reason"] == f"{backend} claims no {unclaimed}" and event["reason"] in less.out


def test_without_the_claim_it_is_a_failure(less: Result) -> None:
    plain = {name: verdict for name, verdict in less.verdicts.items() if "@plain_" in name}
    assert (len(less.verdicts), len(plain)) == (12, 6) and {*plain.values()} == {"FAIL"}, less.text
