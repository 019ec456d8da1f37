"""``runner diagnose --drift`` with a time limit, interrupted, and with options of a diagnosis."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner import exit_codes
from runner.cli import drift
from runner.exit_codes import UsageError
from runner.graphs.drift import Drift


def show(monkeypatch: pytest.MonkeyPatch, folder: Path, measure: Callable[..., Any], **options: Any) -> int:
    """Show the drift of a case of three graphs."""
    monkeypatch.chdir(folder)
    captures = [SimpleNamespace(graphs=("first", "second", "third"))]
    monkeypatch.setattr(drift, "record_graphs", lambda *_: captures)
    monkeypatch.setattr(drift, "_measure", measure)
    values = {"budget": 600.0, "html": None, "bisect": True, "json": None, **options}
    return drift.show_drift(SimpleNamespace(**values), None)  # type: ignore[arg-type]


def measure_slowly(_: Any, graph: str, *__: Any) -> Drift:
    time.sleep(0.05)
    return Drift(graph, ())


@pytest.mark.parametrize(("budget", "words"), [(0.01, "the time was up: 1 of 3 graphs"), (60.0, "")])
def test_out_of_time_it_prints_the_graphs_so_far(
    budget: float, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(monkeypatch, tmp_path, measure_slowly, budget=budget) == exit_codes.OK
    out, err = capsys.readouterr()
    assert [name in out for name in ("first", "second", "third")] == [True, not words, not words]
    assert words in err and ("time was up" in err) == bool(words)


def test_interrupted_it_prints_the_graphs_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(_: Any, graph: str, *__: Any) -> Drift:
        if graph == "second":
            raise KeyboardInterrupt
        return Drift(graph, ())

    assert show(monkeypatch, tmp_path, measure) == exit_codes.INTERRUPTED
    out, err = capsys.readouterr()
    assert "first" in out and "second" not in out and "interrupted: 1 of 3 graphs" in err


@pytest.mark.parametrize(("options", "word"), [({"html": "a.html"}, "--html"), ({"bisect": False}, "--no-bisect")])
def test_options_of_a_diagnosis_are_refused(
    options: dict[str, Any], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=word):
        show(monkeypatch, tmp_path, measure_slowly, **options)
