"""Two bugs of torch 2.6 that 2.13 no longer has. RUNNER_OLD_PYTHON names an interpreter with torch 2.6."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from .driver import REPOSITORY, Result, run_in

OLD = os.environ.get("RUNNER_OLD_PYTHON", "")
pytestmark = pytest.mark.skipif(not OLD, reason="RUNNER_OLD_PYTHON names no interpreter with torch 2.6")
SEEDS = REPOSITORY / "specs" / "seeds"
SPECS = REPOSITORY / "specs" / "regressions"


@pytest.fixture(scope="module")
def without_ledger(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run_in(tmp_path_factory.mktemp("old"), "run", SEEDS, "--python", OLD, "--no-known", limit=500)


@pytest.fixture(scope="module")
def with_ledger(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The default python and the old one in one table, with the ledger."""
    return run_in(
        tmp_path_factory.mktemp("both"),
        "run",
        SEEDS / "history.spec.yaml",
        "--python",
        OLD,
        "--python",
        sys.executable,
        limit=500,
    )


def test_frexp_is_a_compile_crash(without_ledger: Result) -> None:
    event = without_ledger.of("frexp_times_parts@inductor")
    assert event["torch"].startswith("2.6")
    assert (event["verdict"], event["stage"], event["oracles"]) == ("ERROR", "inductor", ["compile-error"])
    assert "CppCompileError" in event["findings"][0]["error"]["chain"]


def test_the_padding_is_a_wrong_value(without_ledger: Result) -> None:
    event = without_ledger.of("pad_view_chunk_distance@inductor")
    assert (event["verdict"], event["stage"], event["oracles"]) == ("FAIL", "inductor", ["value"])
    assert without_ledger.code == 1


def test_no_other_seed_changes(without_ledger: Result) -> None:
    verdicts = {
        name: event["verdict"]
        for name, event in without_ledger.finished.items()
        if not name.startswith(("frexp_times_parts", "pad_view_chunk_distance"))
    }
    assert len(verdicts) >= 9
    assert {name for name, verdict in verdicts.items() if verdict != "PASS"} == {
        "linears_around_foobar[float32,cpu]@inductor",
        "mm_add_cannot_work[float32,cpu]@inductor",
    }
    assert without_ledger.of("mm_add_cannot_work@inductor")["verdict"] == "INVALID"


def test_with_the_ledger_one_column_is_green_for_another_reason(with_ledger: Result) -> None:
    assert with_ledger.code == 0, with_ledger.text
    outcomes = {
        (e["case"].rpartition("::")[2], e["torch"][:4].rstrip(".")): e["verdict"]
        for e in with_ledger.events
        if e["event"] == "variant-finished"
    }
    new = next(torch for _, torch in outcomes if torch != "2.6")
    assert outcomes == {
        ("frexp_times_parts", "2.6"): "XFAIL",
        ("frexp_times_parts", new): "PASS",
        ("pad_view_chunk_distance", "2.6"): "XFAIL",
        ("pad_view_chunk_distance", new): "PASS",
    }
    assert re.search(r"^case +inductor 2\.6\.\d +inductor 2\.\d+\.\d *$", with_ledger.out, re.MULTILINE)
    names = [case.get("name", "") for case in with_ledger.junit.iter("testcase")]
    assert len(names) == 4
    assert all(re.search(r" \(torch 2\.\d+\.\d\)$", name) for name in names)


def test_a_bug_of_both_has_one_signature(tmp_path: Path) -> None:
    # Torch wraps the exception in another class of its own in each version, and its lines have moved.
    words = [SPECS / "lowering.spec.yaml", "-k", "case:cummin_of_no_window or case:log_softmax_of_a_scalar"]
    pythons = ["--python", OLD, "--python", sys.executable]
    ran = run_in(tmp_path, "run", *words, *pythons, "--no-known", "--no-confirm", "--allow-python", limit=500)
    results = [event for event in ran.events if event["event"] == "variant-finished"]
    assert {(event["case"].rpartition("::")[2], event["signature"]) for event in results} == {
        (
            "cummin_of_no_window",
            "compile-error at inductor: AssertionError in _inductor/lowering.py:_validate_dim",
        ),
        (
            "log_softmax_of_a_scalar",
            "compile-error at inductor: IndexError: list index out of range"
            " in _inductor/fx_passes/joint_graph.py:_other_is_broadcasted_in_dim",
        ),
    }
    assert len(results) == 4 and len({event["findings"][0]["error"]["type"] for event in results}) > 2
    assert ran.out.count("  1 more of this signature:\n") == 2
