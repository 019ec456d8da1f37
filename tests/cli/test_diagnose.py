"""What ``runner diagnose`` says while it works: all of it in a terminal, and a line for each part elsewhere."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from runner.cli.diagnose import _doing
from runner.diagnose.diagnosis import PARTS


def engine(*running: tuple[str, str]) -> Any:
    """An engine whose jobs have these backends and phases."""
    jobs = [(SimpleNamespace(backend={"backend": backend}), 1.0, phase) for backend, phase in running]
    return SimpleNamespace(local_engine=SimpleNamespace(running=lambda: jobs))


BISECTING = ("inductor", "bisecting inductor, run 7: lowerings")


@pytest.mark.parametrize(
    ("part", "running", "live", "log"),
    [
        (0, [], "part 1 of 2, the stages", "part 1 of 2, the stages"),
        (0, [("aot_eager", "eager"), ("eager", "load")], "part 1 of 2, the stages: aot_eager, eager", "part 1 of 2, the stages"),
        (
            1,
            [BISECTING, ("inductor", "backend")],
            f"part 2 of 2, {PARTS[1]}: {BISECTING[1]} · 1 run under changed settings",
            f"part 2 of 2, {PARTS[1]}: lowerings",
        ),
        (1, [("inductor", "")] * 2, f"part 2 of 2, {PARTS[1]}: 2 runs under changed settings", f"part 2 of 2, {PARTS[1]}"),
    ],
)  # fmt: skip
def test_what_is_said(
    part: int, running: list[tuple[str, str]], live: str, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = []
    for terminal in (True, False):
        monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda answer=terminal: answer))
        messages.append(_doing(engine(*running), PARTS[part]))
    assert messages == [live, log]
