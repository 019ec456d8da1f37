"""For all tests: nothing is written into the home of whoever runs them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.handmade import Dig


GATE = (
    "bench", "builder", "cases", "cli", "contract", "diagnose", "engine/test_", "generate", "hunt", "ledger", "record",
    "reduce", "report", "session", "test_", "verdict",
    "worker/comparison", "worker/judge", "worker/operators", "worker/rounding", "worker/run", "worker/test_",
    "black_box/test_bad_input", "black_box/test_every_verdict", "black_box/test_result_codes", "black_box/test_run",
)  # fmt: skip
"""Beginnings of the paths of tests that ``make gate`` runs, but for those that are slow, and LONG files."""
LONG = ("diagnose/test_repro.py", "engine/test_fingerprint.py", "test_hostile_files.py")
"""Files of one to two minutes of a processor each, which come after the gate."""
NIGHTLY = {
    name: int(part or 0)
    for name, _, part in (
        line.partition(" 1/")
        for line in Path(__file__).with_name("nightly.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
}
"""Files and tests of which ``make test`` runs each N-th set of parameters, or 0: ``make nightly`` runs all."""
REST = "not gate and not nightly"
"""What ``make test`` runs after it."""


def is_of_gate(place: str) -> bool:
    """Return whether the tests of a file belong to the gate, but for those that are slow."""
    return place.startswith(GATE) and place not in LONG


def lacks(place: str, text: str, expression: str) -> bool:
    """Return whether a test file can have no test that ``-m EXPRESSION`` chooses. Importing it takes longer than this.

    Args:
        place: its path from this folder.
        text: what it says.
    """
    if expression == "gate":
        return not is_of_gate(place)
    return expression == REST and is_of_gate(place) and not ("mark.slow" in text or "mark.nightly" in text)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not collection_path.name.startswith("test_") or config.option.markexpr not in ("gate", REST):
        return None
    place = collection_path.relative_to(Path(__file__).parent).as_posix()
    return lacks(place, collection_path.read_text(encoding="utf-8"), config.option.markexpr) or None


def runs_at_night(name: str, count: int) -> bool:
    """Return whether a test is left to the night.

    Args:
        name: its file and its name, as ``nightly.txt`` writes them.
        count: the sets of parameters that came before its own.
    """
    part = NIGHTLY.get(name, NIGHTLY.get(name.partition("::")[0]))
    return part is not None and (part == 0 or count % part != 0)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    counts: Counter[str] = Counter()
    for item in items:
        name = item.nodeid.partition("[")[0].removeprefix("tests/")
        if runs_at_night(name, counts[name]):
            item.add_marker("nightly")
        counts[name] += 1
        place = item.path.relative_to(here).as_posix() if item.path.is_relative_to(here) else ""
        is_long = item.get_closest_marker("slow") or item.get_closest_marker("nightly")
        if is_of_gate(place) and not is_long:
            item.add_marker("gate")


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
