"""The compact file of a run's lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.contract.lines import Lines
from runner.session import recorded_lines
from runner.session.affected import LineMap
from runner.session.recorded_lines import Recorded, _pack, _unpack, find_recorded

RECORDED = Recorded("one", LineMap.of([("a", Lines(["line fx/graph.py:1-3"])), ("b", Lines(["line fx/graph.py:1-3,9"]))]), {"a": 1.5, "b": 0.0})  # fmt: skip


def test_a_map_comes_back_from_its_compact_form():
    assert _unpack("one", _pack(RECORDED)) == RECORDED


def test_the_run_with_most_of_the_variants_counts_then_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines = {"1": "ab", "2": "ab", "3": "a", "4": ""}
    for name in lines:
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "events.jsonl").write_text("")

    def recorded(journal: Path) -> Recorded:
        name = journal.parent.name
        return Recorded(name, LineMap.of((variant, Lines(["line fx/graph.py:1"])) for variant in lines[name]))

    monkeypatch.setattr(recorded_lines, "_recorded", recorded)
    assert [found.run for ids in ("ab", "a") if (found := find_recorded([*ids], tmp_path))] == ["2", "3"]
    assert find_recorded(["c"], tmp_path) is None


def test_a_log_that_another_user_wrote_does_not_count(tmp_path: Path):
    folder = tmp_path / "runs" / "1"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text('{"event": "notice", "message": "line x"}\n')
    (folder / "lines.signed").write_text("0000\nAAAA")
    assert find_recorded(["a"], tmp_path) is None
