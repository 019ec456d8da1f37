"""Bugs that torch plants for tools like this one are found and blamed on the right stage; their clean twins pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .driver import Result, run_in, write

RELU = "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY"
LOG1P = "torch._inductor.config.cpp.inject_log1p_bug_TESTING_ONLY"

FILES = {
    "backends.suite.yaml": """
        suite: planted_backends
        backends: [relu_compile_error_TESTING_ONLY, relu_accuracy_error_TESTING_ONLY, relu_runtime_error_TESTING_ONLY]
        cases:
          - name: relu
            inputs: {x: [4, 4]}
            chain: [torch.relu]
          - name: clean
            inputs: {x: [4, 4]}
            chain: [torch.neg]
        """,
    "inductor.suite.yaml": f"""
        suite: planted_inductor
        backends: [inductor]
        defaults: {{inputs: {{x: {{shape: [4, 9], init: {{uniform: [0.5, 2]}}}}}}}}
        cases:
          - name: relu_value
            chain: [F.relu]
            config: {{{RELU}: accuracy}}
          - name: relu_compile
            chain: [F.relu]
            config: {{{RELU}: compile_error}}
          - name: log1p_value
            chain: [torch.log1p]
            config: {{{LOG1P}: accuracy}}
          - name: relu_twin
            chain: [F.relu]
          - name: log1p_twin
            chain: [torch.log1p]
        """,
    "ledger.suite.yaml": """
        suite: ledger
        backends: [{name: planted, backend: relu_accuracy_error_TESTING_ONLY}]
        defaults: {inputs: {x: [4, 4]}}
        cases:
          - name: expected
            chain: [torch.relu]
            known:
              - {stage: backend, oracle: [timeout], reason: "another story"}
              - {torch: "<2", stage: backend, oracle: [value], reason: "long gone"}
              - {stage: backend, oracle: [stride, value], issue: "https://example.org/issues/7"}
          - name: repaired
            chain: [torch.neg]
            known: [{stage: backend, oracle: [value], reason: "was broken"}]
          - name: another_signature
            chain: [torch.relu]
            known: [{stage: backend, oracle: [compile-error], reason: "not what happens"}]
          - name: another_stage
            chain: [torch.relu]
            known: [{stage: inductor, oracle: [value], reason: "this backend has no such stage"}]
          - name: outside_the_range
            chain: [torch.neg]
            known: [{torch: "<=2.5", stage: backend, oracle: [value], reason: "repaired since"}]
        """,
    "trust.suite.yaml": """
        suite: trust
        backends: [eager]
        cases:
          - name: cannot_work
            inputs: {x: [3, 4], w: [5, 4]}
            chain:
              - operator.mul: [$_, 2]
              - torch.mm: [$_, $w]
              - torch.neg
          - name: saturated
            inputs: {x: [4, 4]}
            chain:
              - torch.abs
              - torch.neg
              - torch.relu
          - name: uncompiled
            inputs: {x: [4, 4]}
            module: {file: models.py, name: Uncompiled}
          - name: unsteady
            inputs: {x: [4, 4]}
            module: {file: models.py, name: Unsteady}
          - name: rightly_constant
            inputs: {x: [4, 4]}
            chain: [torch.zeros_like]
        """,
    "models.py": """
        import os

        import torch


        class Uncompiled(torch.nn.Module):
            @torch._dynamo.disable
            def forward(self, x):
                return x.relu()


        class Unsteady(torch.nn.Module):
            def forward(self, x):
                return x + int.from_bytes(os.urandom(4), "big")
        """,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    write(folder, FILES)
    return folder


@pytest.fixture(scope="module")
def ran(folder: Path) -> Result:
    result = run_in(folder, "run", ".", "--allow-python", "--no-confirm", "-j", 2)
    assert result.code == 1, result.text
    return result


@pytest.mark.parametrize(
    ("name", "verdict", "stage", "oracle", "error"),
    [
        ("relu@relu_compile_error_TESTING_ONLY", "ERROR", "backend", "compile-error", "ReluCompileError"),
        ("relu@relu_accuracy_error_TESTING_ONLY", "FAIL", "backend", "value", ""),
        ("relu@relu_runtime_error_TESTING_ONLY", "ERROR", "backend", "runtime-error", "AssertionError|RuntimeError"),
        ("relu_value@inductor", "FAIL", "inductor", "value", ""),
        ("relu_compile@inductor", "ERROR", "inductor", "compile-error", "CppCompileError"),
        ("log1p_value@inductor", "FAIL", "inductor", "value", ""),
    ],
)
def test_a_planted_bug_is_found_and_blamed(
    name: str, verdict: str, stage: str, oracle: str, error: str, ran: Result
) -> None:
    event = ran.of(name)
    assert (event["verdict"], event["stage"], event["oracles"]) == (verdict, stage, [oracle])
    assert event["findings"][0]["stage"] == stage
    if error:
        assert re.search(error, " ".join(event["findings"][0]["error"]["chain"]))
    else:
        assert event["findings"][0]["numbers"]["mismatched"] > 0
    if stage == "inductor":
        assert [*event["stages"].items()][:3] == [("dynamo", "ok"), ("aot", "ok"), ("decomposition", "ok")]
        assert event["stages"]["inductor"] == oracle


@pytest.mark.parametrize(
    "name",
    [
        "clean@relu_compile_error_TESTING_ONLY",
        "clean@relu_accuracy_error_TESTING_ONLY",
        "clean@relu_runtime_error_TESTING_ONLY",
        "relu_twin@inductor",
        "log1p_twin@inductor",
        "outside_the_range@planted",
        "rightly_constant@eager",
    ],
)
def test_its_clean_twin_passes(name: str, ran: Result) -> None:
    event = ran.of(name)
    assert event["verdict"] == "PASS", event["reason"]
    assert event["graphs"] == 1
    assert event["comparisons"] > 0


def test_an_expected_failure_is_green(ran: Result) -> None:
    event = ran.of("expected@planted")
    assert event["verdict"] == "XFAIL"
    assert event["known"] == "https://example.org/issues/7"
    assert (event["stage"], event["oracles"]) == ("backend", ["value"])
    assert re.search(r"XFAIL \[.*::expected.* - https://example.org/issues/7", ran.out)
    skipped = next(case for case in ran.junit.iter("testcase") if case.get("name", "").startswith("expected[")).find(
        "skipped"
    )
    assert skipped is not None
    assert skipped.get("type") == "xfail"


def test_an_expected_failure_that_passes_is_red(ran: Result) -> None:
    event = ran.of("repaired@planted")
    assert event["verdict"] == "XPASS"
    assert "value at stage backend" in event["reason"]
    assert re.search(r"^XPASS \S+::repaired\[float32,cpu\]@planted$", ran.out, re.MULTILINE)


def test_another_signature_is_red(ran: Result) -> None:
    event = ran.of("another_signature@planted")
    assert event["verdict"] == "FAIL"
    assert "the ledger expects compile-error at stage backend (line " in event["reason"]
    assert ran.of("another_stage@planted")["verdict"] == "FAIL"


def test_without_the_ledger_known_failures_are_failures(folder: Path) -> None:
    result = run_in(folder, "run", "ledger.suite.yaml", "--no-known", "--no-confirm")
    assert result.code == 1
    assert result.verdicts == {
        "expected@planted": "FAIL",
        "repaired@planted": "PASS",
        "another_signature@planted": "FAIL",
        "another_stage@planted": "FAIL",
        "outside_the_range@planted": "PASS",
    }
    assert "--no-known" in result.of("expected@planted")["repro"]


def test_an_invalid_case_names_the_step(ran: Result) -> None:
    event = ran.of("cannot_work@eager")
    assert event["verdict"] == "INVALID"
    assert "mat1 and mat2 shapes cannot be multiplied" in event["reason"]
    line = 1 + next(
        n for n, text in enumerate((ran.cwd / "trust.suite.yaml").read_text().splitlines()) if "torch.mm" in text
    )
    block = ran.out[re.search(r"^INVALID \S+::cannot_work", ran.out, re.MULTILINE).start() :]  # type: ignore[union-attr]
    assert f" --> trust.suite.yaml:{line}:" in block.split("\n\n")[0]
    assert f"{line:>4} |       - torch.mm: [$_, $w]" in block.split("\n\n")[0]


def test_what_proves_nothing_is_red(ran: Result) -> None:
    assert (ran.of("saturated@eager")["verdict"], ran.of("uncompiled@eager")["verdict"]) == ("VACUOUS", "VACUOUS")
    assert "constant" in ran.of("saturated@eager")["reason"]
    assert ran.of("uncompiled@eager")["reason"].startswith("no graph was compiled: Skip ")
    assert ran.of("uncompiled@eager")["graphs"] == 0


def test_eager_that_disagrees_with_itself_is_red(ran: Result) -> None:
    event = ran.of("unsteady@eager")
    assert event["verdict"] == "FLAKY"
    assert "output" in event["reason"]


def test_the_summary_counts_them(ran: Result) -> None:
    counts = {
        word: int(number)
        for number, word in re.findall(r"(\d+) (\w+)", ran.out[ran.out.rindex("\n\n") :].split(" in ")[0])
        if word != "of"  # "2 of them with graphs of earlier runs", where the user's cache has some
    }
    assert counts == {
        "passed": 7,
        "failed": 5,
        "error": 3,
        "invalid": 1,
        "xpass": 1,
        "vacuous": 2,
        "flaky": 1,
        "xfail": 1,
        "warnings": 2,  # ledger entries that nothing needed
    }
