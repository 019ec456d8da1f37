"""For all tests: nothing is written into the home of whoever runs them."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def state_home() -> Iterator[str]:
    """A folder for the user's key (``runner.record.signing``), which commands that tests start use too."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", folder)
        yield os.environ["XDG_STATE_HOME"]


@pytest.fixture(scope="session", autouse=True)
def signals_as_in_a_terminal() -> None:
    """Let no signal be ignored: ``nohup`` ignores SIGHUP, a shell's background job SIGINT, and commands would inherit that."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)
