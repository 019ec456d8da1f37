"""A session of pytest whose run is a log that the test has written: every verdict, and no process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from runner.cases.model import Variant
from runner.pytest_plugin import session
from runner.pytest_plugin.session import END, LOG, OUTPUT
from runner.record.journal import Journal
from runner.session.collect import collect
from tests.handmade import Answer, played

Answers = Mapping[str, Answer]
"""What becomes of a case, by its name; PASS if it says nothing."""


class ScriptedRun:
    """Stands for ``RunProcess``: its log is whole from the beginning."""

    answers: Answers = {}
    started: list[ScriptedRun] = []
    stopped: list[bool] = []
    printed = "what it printed\x1b[31m"

    def __init__(self, folder: Path, here: Path, words: Sequence[str], ids: Sequence[str] | None) -> None:
        self.words, self.ids = [*words], ids
        ScriptedRun.started.append(self)
        paths = [word for word in words[1:] if word.endswith(".yaml") or "::" in word or Path(word).is_dir()]
        variants = [v for v in collect(paths).variants if ids is None or v.id in ids]
        with Journal(folder / LOG) as journal:
            for event in played(variants, ["2.13.0"], lambda variant, _: self.answer(variant)):
                journal.write(event)
        (folder / OUTPUT).write_text(self.printed)
        (folder / END).write_text("3")

    def answer(self, variant: Variant) -> Answer | None:
        answer = self.answers.get(variant.case.name, "PASS")
        return None if answer == "nothing" else answer

    def stop(self, now: bool) -> None:
        ScriptedRun.stopped.append(now)


Session = Callable[..., pytest.RunResult]


def scripted(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, answers: Answers) -> Session:
    """A function that starts pytest here, in this process, with the plugin and without others."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(session, "RunProcess", ScriptedRun)
    monkeypatch.setattr(ScriptedRun, "answers", answers)
    monkeypatch.setattr(ScriptedRun, "started", [])
    monkeypatch.setattr(ScriptedRun, "stopped", [])
    return lambda *words: pytester.runpytest_inprocess("-p", "runner.pytest_plugin", *map(str, words))


def reports(result: pytest.RunResult) -> dict[str, str]:
    """Ids of the variants and their words, from the output of ``-rA``."""
    words = ("PASSED", "FAILED", "SKIPPED", "XFAIL", "XPASS", "ERROR", "FLAKY", "INVALID", "VACUOUS")
    lines = [line.split(" - ")[0].split(" ", 1) for line in result.outlines]
    return {line[1]: line[0] for line in lines if line[0] in words and len(line) == 2}


def lastfailed(folder: Path) -> list[str]:
    """The ids that ``--lf`` would run."""
    path = folder / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []
