"""bench/sweep.py: red variants grouped by signature."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from runner.record.events import Finding, VariantFinished
from runner.record.journal import Journal

SPEC = """\
cases:
- {name: long, inputs: {x: [2]}, chain: [torch.neg, torch.exp, torch.sin]}
- {name: short, inputs: {x: [2]}, chain: [torch.neg]}
- {name: green, inputs: {x: [2]}, chain: [torch.neg]}
- {name: other, inputs: {x: [2]}, chain: [torch.neg]}
"""


@pytest.fixture(scope="module")
def sweep(bench_module: Callable[[str], ModuleType]) -> ModuleType:
    return bench_module("sweep")


def _finished(file: Path, case: str, verdict: Any, *findings: Finding) -> VariantFinished:
    label = f"{file}::{case}[float32,cpu]"
    return VariantFinished(
        id=f"{label}@inductor", case=case, suite="s", suites=("s",), backend="inductor", torch="2.13.0", python="python",
        device="cpu", dtype="float32", label=label, file=str(file), line=1, verdict=verdict, seconds=1.0, findings=findings,
    )  # fmt: skip


def test_groups_are_by_signature_with_the_shortest_chain_first(
    sweep: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("a.spec.yaml")
    file.write_text(SPEC)
    wrong = Finding("value", "values differ", stage="inductor")
    raised = Finding(
        "compile-error", "it raised", stage="aot", error={"type": "RuntimeError", "message": "size 3 | 'a'"}
    )
    journal = Journal(tmp_path / "events.jsonl")
    journal.write(_finished(file, "long", "FAIL", wrong))
    journal.write(_finished(file, "green", "PASS"))
    journal.write(_finished(file, "other", "ERROR", raised))
    journal.write(_finished(file, "short", "FAIL", wrong))
    journal.close()
    assert sweep.main([str(tmp_path / "events.jsonl")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 variants: 2 FAIL, 1 PASS, 1 ERROR"
    rows = lines[4:]
    short, long = "a.spec.yaml::short[float32,cpu]", "a.spec.yaml::long[float32,cpu]"
    raising = "compile-error at aot: RuntimeError: size N \\| '…'"
    assert rows == [
        f"| 2 | FAIL | wrong-result | `value at inductor` | {short}, {long} |",
        f"| 1 | ERROR | exception | `{raising}` | a.spec.yaml::other[float32,cpu] |",
    ]


def test_of_a_variant_in_two_logs_the_last_one_counts(
    sweep: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.spec.yaml").write_text(SPEC)
    logs = []
    for name, verdict in (("first", "FAIL"), ("second", "PASS")):
        journal = Journal(tmp_path / f"{name}.jsonl")
        journal.write(_finished(Path("a.spec.yaml"), "long", verdict))
        journal.close()
        logs.append(str(tmp_path / f"{name}.jsonl"))
    sweep.main(logs)
    assert capsys.readouterr().out.startswith("1 variants: 1 PASS\n")
    sweep.main(logs[::-1])
    assert capsys.readouterr().out.startswith("1 variants: 1 FAIL\n")
