"""The Pythons that have torch, as a run names them, and whether they have what the command line names."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from runner.cases.backends import GROUP, hint_for, own_names
from runner.cases.model import Backend, Variant
from runner.diagnostics import Diagnostic, InputError, source_line
from runner.engine.gpus import count_gpus
from runner.engine.interpreters import find_python, inspect_packages, probe
from runner.exit_codes import UsageError
from runner.session.plan import Environment
from runner.session.settings import RunSettings


def find_environments(pythons: Sequence[str]) -> list[Environment]:
    """The interpreters of ``--python``, or this one. Raises UsageError for one that cannot serve."""
    found: list[Environment] = []
    for number, python in enumerate(pythons or [sys.executable]):
        facts = probe(python)
        if "error" in facts:
            without = f"{facts['error']}; give one that has torch with --python PATH"
            raise UsageError(f"--python {python}: {facts['error']}" if pythons else without)
        path = find_python(python) or python
        same = [e for e in found if e.torch == facts["torch"]]
        if any(e.python == path for e in same):
            continue
        # one name a column: the build tells two of one version apart
        shown = facts["torch"] if not same else f"{facts['build']} ({python})"
        found.append(Environment(str(number), path, shown, facts["build"], facts["python"]))
    return found


def checked_environments(settings: RunSettings, variants: Sequence[Variant]) -> list[Environment]:
    """``find_environments`` of ``--python``, and each has the modules and backends that are asked for.

    Raises:
        UsageError: no such Python, or a Python without a module or backend that the command line names.
        InputError: no Python has a backend that a file names.
    """
    environments = find_environments(settings.python)
    _refuse_missing_gpus(settings)
    modules = {name: f"--import {name}" for name in settings.imports}
    modules |= {name.partition(":")[0]: f"--backend {name}" for name in settings.backend if ":" in name}
    unknown = [] if settings.imports else _unknown(variants)  # what is imported may register any name
    for name, option in modules.items():
        if not all(part.isidentifier() for part in name.split(".")):
            raise UsageError(f"{option}: {name!r} is no name of a module")
    if not modules and not unknown:
        return environments
    options = {name.partition(".")[0]: option for name, option in modules.items()}
    try:
        answers = [inspect_packages(e.python, GROUP, [*options], worker_paths(settings)) for e in environments]
    except OSError as error:
        raise UsageError(str(error)) from None
    for environment, answer in zip(environments, answers, strict=True):
        for module, near in answer.missing.items():
            hint = f"; did you mean {near!r}?" if near else ""
            raise UsageError(f"{options[module]}: {environment.python} has no module {module!r}{hint}")
    backends = [*dict.fromkeys(name for answer in answers for name in answer.backends)]
    _refuse_unknown([b for b in unknown if b.backend not in backends], backends)
    return environments


def _refuse_missing_gpus(settings: RunSettings) -> None:
    """Raise UsageError for a GPU that was typed and is not among those of this machine.

    Without any, a variant for one is SKIP.
    """
    count = count_gpus() if settings.engine == "local" else 0
    for device in settings.device if count else ():
        kind, _, index = device.partition(":")
        if kind == "cuda" and index and int(index) >= count:
            present = ", ".join(f"cuda:{number}" for number in range(count))
            raise UsageError(f"--device {device}: no such GPU here; there is {present}")


def _unknown(variants: Sequence[Variant]) -> list[Backend]:
    """Plain names that only an installed package can have registered."""
    used = {(v.backend.name, v.backend.backend): v.backend for v in variants}
    return [backend for backend in used.values() if ":" not in backend.backend and backend.backend not in own_names()]


def _refuse_unknown(unknown: Sequence[Backend], backends: Sequence[str]) -> None:
    """Raises UsageError for a name that was typed, InputError for those of files."""
    diagnostics = []
    for backend in unknown:
        hint = hint_for(backend.backend, backends)
        if backend.span is None:
            raise UsageError(f"--backend {backend.name}: no such backend; {hint}")
        message = f"no installed package registers backend {backend.backend!r}, and it is not torch's own"
        diagnostics.append(
            Diagnostic(backend.span, message, hint, text=source_line(backend.span.file, backend.span.line))
        )
    if diagnostics:
        raise InputError(diagnostics)


def worker_paths(settings: RunSettings) -> tuple[str, ...]:
    """Folders at the end of the workers' path: this one, when the person named a backend or a module to import."""
    named = any(":" in backend for backend in settings.backend) or settings.imports
    return (os.getcwd(),) if named else ()
