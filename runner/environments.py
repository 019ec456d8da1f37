"""The Pythons that have torch, as a run names them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from runner.engine.process import find_python, probe
from runner.exits import UsageError
from runner.plan import Environment


def find_environments(pythons: Sequence[str]) -> list[Environment]:
    """The interpreters of ``--python``, or this one. Raises UsageError for one that cannot serve."""
    found: list[Environment] = []
    for number, python in enumerate(pythons or [sys.executable]):
        facts = probe(python)
        if "error" in facts:
            hint = "" if pythons else "; give one that has torch with --python PATH"
            raise UsageError(f"--python {python}: {facts['error']}{hint}" if pythons else facts["error"] + hint)
        path = find_python(python) or python
        same = [e for e in found if e.torch == facts["torch"]]
        if any(e.python == path for e in same):
            continue
        # one name a column: the build tells two of one version apart
        shown = facts["torch"] if not same else f"{facts['build']} ({python})"
        found.append(Environment(str(number), path, shown, facts["build"], facts["python"]))
    return found


def worker_paths(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Folders at the end of the workers' path: this one, when the person named a backend or a module to import."""
    named = any(":" in backend for backend in getattr(arguments, "backend", ())) or arguments.imports
    return (os.getcwd(),) if named else ()
