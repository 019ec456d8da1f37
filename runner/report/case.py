"""A case resolved, for ``runner show``: what was chosen, what is expected, and the source that runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from runner.builder.source import build, placed
from runner.cases.model import THREADS, Known, Variant
from runner.diagnostics import shown_path
from runner.quote import comment, decimal
from runner.session.plan import TIMEOUT


def describe(variant: Variant, others: Sequence[Variant] = ()) -> str:
    """Facts as comments, one line each, then the source, so that the whole is Python.

    Raises InputError for a value that has no place in Python text.
    """
    with placed(variant.case):
        return _described(variant, others)


def _described(variant: Variant, others: Sequence[Variant]) -> str:
    case = variant.case
    source = build(variant)
    facts = {
        "id": variant.id,
        "declared": f"{shown_path(case.file)}:{case.span.line}",
        "tags": " ".join(map(str, case.tags)),
        "links": " ".join(map(str, case.links)),
        "backend": _given(variant.backend),
        "params": ", ".join(f"{k}={v}" for k, v in variant.params.items()),
        "dtype, device": f"{variant.dtype}, {variant.device}",
        "modes": f"train={variant.train} grad={variant.grad.mode} dynamic={variant.dynamic} autocast={variant.autocast} "
        f"threads={variant.threads or THREADS}",
        "compile": _given(case.compile),
        "config": ", ".join(f"{k}={v}" for k, v in case.config.items()),
        "expect": _given(case.expect),
        "requires": _given(case.requires),
        "tolerance": _given(case.tolerance),
        "ignore": "; ".join(f"{k}: {v}" for k, v in case.ignore.items()),
        "limits": f"{decimal(case.timeout or TIMEOUT)} s" + (f", {case.memory >> 20} MiB" if case.memory else ""),
    }
    pairs = [(f"{name}:", value) for name, value in facts.items() if value]
    pairs += [("known:", _ledger(entry)) for entry in case.known]
    pairs += [("also:", other.id) for other in others[:20]]
    pairs += [("", f"and {len(others) - 20} more")] if len(others) > 20 else []
    return "\n".join([*(comment(f"{name:<15} {value}") for name, value in pairs), "", source.text.rstrip()])


def _given(thing: object) -> str:
    """The fields of a dataclass that differ from their defaults."""
    told = []
    for field in dataclasses.fields(thing):  # type: ignore[arg-type]
        value = getattr(thing, field.name)
        if value and value != field.default:
            told.append(f"{field.name}={_given(value) if dataclasses.is_dataclass(value) else value}")
    return ", ".join(told)


def _ledger(entry: Known) -> str:
    told = [f"torch {entry.torch}"] if entry.torch else []
    told += [f"stage {entry.stage}"] if entry.stage else []
    told += ["/".join(entry.oracle)] if entry.oracle else []
    return ", ".join([*told, *(text for text in (entry.error, entry.issue or entry.reason) if text)])
