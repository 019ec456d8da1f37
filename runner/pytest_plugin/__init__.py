"""Spec files and suites under pytest: ``pytest suites/`` collects what ``runner list suites/`` lists.

pytest imports this module in every project of an environment, so it imports little but pytest. The rest follows where
the arguments of pytest, or its ``testpaths``, hold a spec file or a suite. ``-p no:torch_spec_runner`` switches it off.
See ``docs/pytest.md``.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatch

import pytest

ENDINGS = (".spec.yaml", ".suite.yaml")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that ``runner run`` has by the same names, without ``runner-``."""
    add = parser.getgroup("runner", "spec files and suites").addoption
    add("--runner-backend", action="append", default=[], metavar="NAME", help="instead of the suites' own")
    add("--runner-device", action="append", default=[], metavar="NAME", help="only on this device")
    add("--runner-python", metavar="PATH", help="the Python that has the torch under test")
    add("--runner-seed", type=int, default=0, metavar="N", help="of cases without a seed of their own (default: 0)")
    add("--runner-import", action="append", default=[], metavar="MODULE", help="import this in every worker first")
    add("--runner-keep-warm", action="store_true", help="begin in processes that an earlier run has left warm")
    add("--runner-allow-python", action="store_true", help="allow cases that bring Python of their own")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Read the files where there are any. A worker of pytest-xdist gets what the controller has read."""
    config = session.config
    given = getattr(config, "workerinput", None)
    state = given.get("runner", "") if given is not None else ""
    paths = _paths(config) if given is None else []
    if state or paths:
        from runner.pytest_plugin import session as plugin

        config.pluginmanager.register(
            plugin.WorkerSession(config, state) if state else plugin.MainSession(config, paths), "runner-session"
        )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell the runs of ``runner.conformance`` which of their cases pytest has selected.

    In a worker of pytest-xdist others ask about the other cases, so that each has a run of its own.
    """
    if "runner.pytest_plugin.parameters" in sys.modules:
        from runner.pytest_plugin.parameters import ConformanceCase, note_selection

        values = (
            value
            for item in session.items
            if (spec := getattr(item, "callspec", None))
            for value in spec.params.values()
        )
        note_selection(
            [value for value in values if isinstance(value, ConformanceCase)], hasattr(session.config, "workerinput")
        )


def _paths(config: pytest.Config) -> list[str]:
    """Return the arguments that hold cases.

    Without arguments and ``testpaths`` pytest looks through a folder that nobody named.
    """
    if config.args_source == pytest.Config.ArgsSource.INVOCATION_DIR:
        return []
    return [path for path in config.args if holds_cases(path, config.getini("norecursedirs"))]


def holds_cases(path: str, left_out: Sequence[str]) -> bool:
    """Return whether a path names a file of cases or cases of it, or a folder with one at a place where pytest looks.

    ``left_out`` are the patterns of folders where it does not look.
    """
    if not os.path.isdir(path):
        return any(path.endswith(ending) or f"{ending}::" in path for ending in ENDINGS)
    waiting = [path]  # not os.walk, which up to Python 3.11 calls itself for each level
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False) and entry.name.endswith(ENDINGS):
                    return True
                if entry.is_dir(follow_symlinks=False) and not any(
                    fnmatch(entry.name, pattern) for pattern in left_out
                ):
                    waiting.append(entry.path)
    return False
