"""The command, for tests that only look at what a person sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from . import driver
from .driver import LIMIT, Result, run_in
from .stand_in import no_torch


@pytest.fixture(scope="module", autouse=True)
def forks() -> Iterator[None]:
    """End the process that forks commands with its module: other tests count the processes that are left."""
    with driver.FORKS:
        yield


@pytest.fixture(scope="package", autouse=True)
def torch_forks() -> Iterator[None]:
    """End the process that forks commands with torch after all modules of this folder: they share its import."""
    with driver.TORCH_FORKS:
        yield


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let workers have a stand-in for torch: for tests where it does not matter what a variant computes."""
    with no_torch(tmp_path_factory.mktemp("stand_in")):
        yield


@pytest.fixture
def stand_in_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The same for one test of a module."""
    with no_torch(tmp_path_factory.mktemp("stand_in")):
        yield


@pytest.fixture
def real_torch(stand_in: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one test of such a module have torch."""
    monkeypatch.setattr(driver, "STAND_IN", {})


@pytest.fixture
def run_runner(tmp_path: Path) -> Callable[..., Result]:
    """``run_runner(*args, env=..., cwd=...)`` runs the command, in ``tmp_path`` unless told otherwise."""

    def run(
        *args: object, env: Mapping[str, str] | None = None, cwd: Path | None = None, limit: float = LIMIT
    ) -> Result:
        return run_in(cwd or tmp_path, *args, env=env, limit=limit)

    return run
