"""For all tests: nothing is written into the home of whoever runs them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.handmade import Dig


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


@pytest.fixture
def dig() -> Iterator[Dig]:
    """Nests folders ``d`` in a folder: deeper than Python calls itself, and then beyond the longest path."""
    from runner.files import remove_tree

    folders: list[Path] = []

    def nest(folder: Path) -> None:
        here = os.getcwd()
        folders.append(folder.absolute() / "d")
        os.chdir(folder)
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
        os.chdir(here)

    yield nest
    for folder in folders:
        remove_tree(folder)  # pytest itself could not
