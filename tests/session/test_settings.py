"""What a run is asked for."""

from __future__ import annotations

import os

import pytest

from runner.session.settings import RunSettings


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this system")
def test_without_a_number_of_jobs_there_are_as_many_as_usable_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as many as the machine has: under ``taskset -c 0`` a run had a slot for each of them."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3, 5, 7})
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert RunSettings().slots() == 3
    assert RunSettings(jobs=9).slots() == 9
