"""torch's bisector: its subsystems as plain data, and what a torch without it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.worker.torch_private import bisector, doors
from runner.worker.torch_private.bisector import Question, Setting
from runner.worker.torch_private.doors import Door


def test_a_subsystem_is_a_setting_or_a_part() -> None:
    assert bisector.setting_of("inductor", "lowerings") is None
    setting = bisector.setting_of("inductor", "inductor_fallback_random")
    assert setting == Setting("inductor", "fallback_random", True)


def test_without_a_bisection_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    assert bisector.current_question() == Question(None, None, None)


def test_names_of_applications_are_kept_where_torch_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    bisector.add_applied({1: "a"})  # a torch that has files for them
    names: dict[int, str] = {}
    monkeypatch.setattr("torch._inductor.compiler_bisector.call_counter_debug_info", names, raising=False)
    bisector.add_applied({2: "b"})
    assert bisector.applied() is names == {2: "b"}


def test_a_torch_without_a_bisector_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "_absences", {})
    monkeypatch.setattr(doors, "DOORS", [])
    monkeypatch.setattr(bisector, "_BISECTOR", Door("torch._no_such_part:Bisector", "it cannot be asked"))
    with pytest.raises(ImportError, match="Bisector: it cannot be asked"):
        bisector.bisect(lambda: True)
