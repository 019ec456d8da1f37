"""A run whose environment changed meanwhile says so where a variant said something else when it ran again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from runner.cases.model import Variant
from runner.engine.fingerprint import Fingerprint
from runner.record.events import Notice
from runner.session import run as session_run
from runner.session.plan import plan
from runner.session.settings import RunSettings
from tests.handmade import environment, loaded, variants
from tests.scripted import FakeEngine, Script, only, passes, wrong


class Engine(FakeEngine):
    """The scripted engine, as a run opens one."""

    def notices(self) -> list[Notice]:
        return []

    def close(self) -> None:
        pass


@pytest.fixture
def batch(tmp_path: Path) -> list[Variant]:
    return variants(tmp_path, "")


def warnings(
    monkeypatch: pytest.MonkeyPatch, batch: list[Variant], script: Script, digests: Iterable[str]
) -> list[str]:
    answers = iter(digests)

    def take(pythons: Iterable[str]) -> dict[str, Fingerprint]:
        return dict.fromkeys(pythons, Fingerprint(next(answers)))

    def open_engine(*given: Any) -> Any:
        return Engine(script)

    monkeypatch.setattr(session_run, "take_fingerprints", take)
    monkeypatch.setattr(session_run, "open_engine", open_engine)
    monkeypatch.setattr(session_run, "import_code", lambda *given: [])
    monkeypatch.chdir(batch[0].case.file.rpartition("/")[0])
    here = environment("2.13.0")
    planned = tuple(plan(batch, [here]))
    whole = session_run.Plan(loaded(Path(batch[0].case.file)), (here,), planned, len(planned), "digest", whole=True)
    events = session_run.run(whole, RunSettings(cached=True, confirm=True))
    return [event.message for event in events if isinstance(event, Notice)]


def test_a_flaky_variant_asks_whether_the_environment_is_the_same(
    monkeypatch: pytest.MonkeyPatch, batch: list[Variant]
) -> None:
    (message,) = warnings(monkeypatch, batch, only("main", **wrong()), ["before", "after"])
    assert "changed during the run: what is FLAKY or order-dependent may come from that" in message


def test_an_environment_that_stays_is_no_warning(monkeypatch: pytest.MonkeyPatch, batch: list[Variant]) -> None:
    assert warnings(monkeypatch, batch, only("main", **wrong()), ["same", "same"]) == []


def test_where_all_is_clear_nobody_looks_again(monkeypatch: pytest.MonkeyPatch, batch: list[Variant]) -> None:
    assert warnings(monkeypatch, batch, passes, ["before"]) == []
