"""For all tests: nothing is written into the home of whoever runs them."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def home_folders(pytestconfig: pytest.Config) -> Iterator[None]:
    """Folders for the user's key (``runner.record.signing``) and for compiled code, which commands that tests start use too.

    They stay, as pytest's cache does, so that the next tests need not compile everything anew. One needs the other.
    """
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
            patch.setenv(variable, str(pytestconfig.cache.mkdir(variable)))  # type: ignore[union-attr]
        yield


@pytest.fixture(scope="session", autouse=True)
def signals_as_in_a_terminal() -> None:
    """Let no signal be ignored: ``nohup`` ignores SIGHUP, a shell's background job SIGINT, and commands would inherit that."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)
