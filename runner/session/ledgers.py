"""Ledgers in files of their own: which a command line names, and for which variants they and those of suites are."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runner.cases.limits import Limits
from runner.cases.model import Known, Suite, Variant
from runner.cases.suites import LEDGER, PathError, Reader, Walk
from runner.diagnostics import InputError
from runner.exit_codes import UsageError


def read_ledgers(paths: Sequence[str], limits: Limits) -> list[Known]:
    """Return the entries of ledgers in files of their own.

    Raises:
        UsageError: a path names no ledger.
        InputError: a file is wrong.
    """
    reader = Reader(limits, any_device=True)
    try:
        entries = [entry for path in dict.fromkeys(paths) for entry in reader.ledger(path)]
    except PathError as error:
        raise UsageError(f"--ledger {error}") from None
    if any(problem.severity == "error" for problem in reader.problems):
        raise InputError(reader.problems)
    return entries


def ledgers_of(paths: Sequence[str]) -> list[str]:
    """Return the ledgers among what is to be validated: those that are named, and those in folders."""
    folders = [Path(path) for path in paths if os.path.isdir(path)]
    files = [str(file) for folder in folders for file in Walk().below(folder, (LEDGER,))]
    return [path for path in paths if path.endswith(LEDGER)] + files


def with_ledgers(variants: Sequence[Variant], typed: Sequence[Known], suites: Sequence[Suite]) -> tuple[Variant, ...]:
    """Return the variants with the entries of ledgers in files of their own.

    What is ``typed`` speaks of each variant. A suite's ledger speaks of its own, and of the backends that it lists.
    """

    @functools.cache
    def entries(names: tuple[str, ...], backend: int) -> tuple[Known, ...]:
        own = (s for s in suites if s.name in names or any(id(b) == backend and b.span for b in s.backends))
        return tuple({id(entry): entry for entry in itertools.chain(typed, *(s.ledger for s in own))}.values())

    return tuple(replace(v, ledger=entries(v.suites, id(v.backend))) for v in variants)
