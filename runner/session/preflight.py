"""Before the first variant: can the code that a run names be had? Else no variant could run, and none is to blame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runner.cases.model import Backend
from runner.cases.torch_names import PLANTED
from runner.contract.job import Job
from runner.diagnostics import Diagnostic, InputError, source_line
from runner.engine.messages import Engine
from runner.exit_codes import UsageError
from runner.record.events import Notice
from runner.session.plan import Environment, Planned, skip_reason, worker_paths
from runner.session.scheduler import drive, with_reference
from runner.session.settings import RunSettings
from runner.verdict.outcomes import describe

_LIMIT = 300.0
"""Seconds in which a package is imported: those of large vendors take a minute on a busy machine."""


def import_code(engine: Engine, planned: Sequence[Planned], settings: RunSettings) -> list[Notice]:
    """Have a worker of each environment import what the run names: modules of ``--import``, and backends that are code.

    Return a warning for each setting of torch that importing a backend changes.

    Raises:
        UsageError: something that was typed cannot be had, or the process died on it.
        InputError: a backend of a file cannot be had.
    """
    backends: dict[str, dict[str, Backend]] = {}
    for each in planned:
        backend = each.variant.backend
        is_code = ":" in backend.backend and backend.backend not in PLANTED
        if (is_code or settings.imports) and not skip_reason(each):
            found = backends.setdefault(each.environment.key, {})
            if is_code:
                found.setdefault(backend.backend, backend)
    return _import(engine, backends, settings, worker_paths(settings, [item.variant for item in planned]))


def import_words(engine: Engine, environments: Sequence[Environment], settings: RunSettings) -> list[Notice]:
    """Do the same where there is no variant yet, for what the command line names.

    Raises:
        UsageError: as of ``import_code``.
    """
    typed = {name: Backend(name, name) for name in settings.backend if ":" in name and name not in PLANTED}
    if not typed and not settings.imports:
        return []
    return _import(engine, {environment.key: typed for environment in environments}, settings, worker_paths(settings))


def _import(
    engine: Engine, backends: Mapping[str, Mapping[str, Backend]], settings: RunSettings, paths: tuple[str, ...]
) -> list[Notice]:
    """Have each environment import the modules of ``--import`` and its backends, by their names."""
    changes: dict[str, None] = {}
    jobs = [
        Job(
            key=f"code {key}", id="code", environment=key, name="code", source="", backend={"backend": "eager"},
            imports=settings.imports, paths=paths, timeout=_LIMIT, task="code", arguments={"backends": [*found]},
            cacheable=False, foreign=True,
        )
        for key, found in backends.items()
    ]  # fmt: skip
    for outcome in drive(engine, with_reference(jobs)) if jobs else ():
        if outcome.ended != "result":
            raise UsageError(f"importing {_named(settings.imports, outcome.job.arguments)}: {describe(outcome)}")
        _refuse(outcome.result, backends[outcome.job.environment])
        changes |= dict.fromkeys(
            f"importing {name} changes {setting} from {before} to {after}; eager runs with it too, so that no verdict "
            "shows its effect"
            for name, pairs in outcome.result["settings"].items()
            for setting, (before, after) in pairs.items()
        )
    return [*map(Notice, changes)]


def _named(imports: Iterable[str], arguments: Any) -> str:
    return ", ".join([*imports, *arguments["backends"]])


def _refuse(answer: Any, backends: Mapping[str, Backend]) -> None:
    if answer["error"]:
        raise UsageError(f"--import: {answer['error']}")
    for name, fault in answer["faults"].items():
        span, fault = backends[name].span, fault.removeprefix(f"no backend {name}: ")
        if span is None:
            raise UsageError(f"--backend {name}: {fault}")
        raise InputError([Diagnostic(span, fault, text=source_line(span.file, span.line))])
