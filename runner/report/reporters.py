"""Reporters by name: those of the runner, and those of other packages.

``--report NAME=PATH`` chooses one (``docs/extending.md``); ``--junit FILE`` is short for ``--report junit=FILE``. All
are loaded in one way, when they are asked for. Another package adds one by an entry point of the group
``runner.reporters``, or a person names ``package:function``.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from runner.exit_codes import UsageError
from runner.record.events import Event
from runner.report.handlers import Handler, Opener, Options, Running
from runner.text import one_line

GROUP = "runner.reporters"
"""The group of entry points by which a package adds reporters: functions of a ``Path`` that return a ``Handler``."""

BUILT_IN = {
    "events": "runner.report.handlers:LogFile",
    "junit": "runner.report.junit:reporter",
    "ctrf": "runner.report.ctrf:reporter",
    "html": "runner.report.site.folder:reporter",
    "github": "runner.report.github:reporter",
}
"""The runner's own. Each is a function of a ``Path`` and of ``Options`` that returns a ``FileHandler``."""


class PluginFile:
    """A handler of another package. What it raises spoils its own report and nothing else."""

    _handler: Handler

    def __init__(self, name: str, make: Callable[[Path], Handler], path: Path, options: Options) -> None:
        self.path, self.problem = path, ""
        self._name, self._tell = name, options.tell
        self._try(lambda: setattr(self, "_handler", make(path)))

    def _try(self, act: Callable[[], object]) -> None:
        if self.problem:  # it has missed something, so nothing more of it can be right
            return
        try:
            act()
        except Exception as error:  # noqa: BLE001  whatever somebody else's code does
            self.problem = f"--report {self._name}={self.path}: {type(error).__name__}: {one_line(str(error), 500)}"
            self._tell(self.problem)

    def handle(self, event: Event) -> None:
        """Hand one event on."""
        self._try(lambda: self._handler.handle(event))

    def tick(self, running: Running) -> None:
        """Hand on what runs."""
        self._try(lambda: self._handler.tick(running))

    def close(self) -> None:
        """Let it end."""
        self._try(lambda: self._handler.close())


def built_in(name: str, path: str | Path) -> Opener:
    """Return a reporter of ``BUILT_IN`` that is to write there."""
    return partial(_load(EntryPoint(name, BUILT_IN[name], GROUP)), Path(path))


def choose(request: str) -> Opener:
    """Return the reporter that a ``NAME=PATH`` of the command line asks for.

    Only this one is imported. Raises UsageError for another form, an unknown name, and a package that fails.
    """
    name, equals, path = request.partition("=")
    if not (name and equals and path):
        raise UsageError(f"--report {one_line(request, 200)}: write NAME=PATH; {_installed_words()}")
    if name in BUILT_IN:
        return built_in(name, path)
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points and ":" not in name:
        raise UsageError(f"--report {one_line(request, 200)}: no reporter {one_line(name, 80)!r}; {_installed_words()}")
    try:
        make = _load(points.get(name) or EntryPoint(name, name, GROUP))
    except Exception as error:  # noqa: BLE001  whatever the package does while it is imported
        reason = f"{type(error).__name__}: {one_line(str(error), 500)}"
        raise UsageError(f"--report {one_line(request, 200)}: {reason}") from None
    return partial(PluginFile, name, make, Path(path))


def _load(point: EntryPoint) -> Callable[..., Any]:
    """Import a reporter. For ``package:function`` the current folder is looked at last, as for backends."""
    here = os.getcwd()
    with contextlib.ExitStack() as stack:
        if point.name == point.value and here not in sys.path:
            sys.path.append(here)
            stack.callback(sys.path.remove, here)
        constructor: Any = point.load()
    if not callable(constructor):
        raise TypeError(f"{point.value} cannot be called")
    return constructor  # type: ignore[no-any-return]


def _installed_words() -> str:
    names = sorted({point.name for point in entry_points(group=GROUP)})
    listed = f"installed are {', '.join(names)}" if names else f"no package installs one (entry points of {GROUP})"
    return f"{listed}; package:function names one that is not installed; the runner has {', '.join(BUILT_IN)}"
