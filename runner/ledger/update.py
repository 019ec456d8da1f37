"""The ledger rewritten from a run: which entries change and how, and the files with those changes made."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from runner.cases.limits import Limits
from runner.cases.model import Known, Variant
from runner.cases.serialize import known_of
from runner.cases.suites import LEDGER
from runner.cases.versions import narrow_range, release_of, smallest_range
from runner.contract.oracles import gate_of
from runner.diagnostics import Diagnostic, InputError, shown_path
from runner.files import read_bytes
from runner.ledger.edit import Add, Change, Remove, Set, Unfit, apply_changes
from runner.ledger.review import Entry, Judged, Run
from runner.session.collect import load
from runner.verdict.policy import applies, applying, explains, unexplained

WRAPPERS = ("BackendCompilerFailed", "InductorError", "InternalTorchDynamoError")
"""Exceptions that only say that there is another one; which of them it is differs between versions of torch."""


@dataclass(slots=True)
class Plan:
    """Changes, and what is left to a person."""

    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """How several failures look alike, as an entry pins it, and where they were."""

    entry_keys: Mapping[str, Any]  # stage, oracle, error
    judged: tuple[Judged, ...]

    @property
    def torches(self) -> list[str]:
        """The versions that show it."""
        return list(dict.fromkeys(j.torch for j in self.judged))


def plan_changes(
    entries: Sequence[Entry], variants: Sequence[Variant], run: Run, new: bool = False, today: date | None = None
) -> Plan:
    """Return what the run changes about the entries of ``variants``; with ``new`` also entries for failures that none
    speaks of."""
    plan = Plan()
    cases: dict[int, list[Variant]] = {}
    for variant in variants:
        cases.setdefault(id(variant.case), []).append(variant)
    for entry in entries:
        if entry.torches("passed", "otherwise") and not (entry.shared and entry.state == "matched"):
            try:
                _check_whole(entry, [v for case in entry.cases for v in cases.get(id(case), ())])
                plan.changes += _revised(entry)
            except (Unfit, ValueError) as error:
                plan.notes.append(f"{entry.known.span}: left as it is: {error}")
    if new:
        _add_new(plan, run, (today or date.today()).isoformat())
    return plan


def group_failures(failures: Iterable[Judged]) -> list[FailureGroup]:
    """Group failures by stage, and by whether they have an exception."""
    groups: dict[tuple[str | None, bool], list[Judged]] = {}
    for judged in failures:
        groups.setdefault((judged.lead.stage, bool(judged.lead.error)), []).append(judged)
    failure_groups = []
    for (stage, _), group in groups.items():
        findings = [finding for j in group for finding in j.findings]
        errors = [finding.error for finding in findings]
        names = list(dict.fromkeys(_telling(error) for error in errors if error)) if all(errors) else []
        keys = {
            "stage": stage if all(finding.stage == stage for finding in findings) else None,
            "oracle": sorted({finding.oracle for finding in findings}, key=gate_of),
            "error": "|".join(map(re.escape, names)) or None,
        }
        failure_groups.append(FailureGroup({key: value for key, value in keys.items() if value}, tuple(group)))
    return failure_groups


def _telling(error: Mapping[str, Any]) -> str:
    """The class that says most: the first that is no wrapper."""
    chain = [*(error.get("chain") or (error.get("type", "Exception"),))]
    return str(next((name for name in chain if name not in WRAPPERS), chain[0]))


# --- entries that did not come true ---


def _check_whole(entry: Entry, variants: Sequence[Variant]) -> None:
    """A part of the variants that an entry speaks of is no ground for changing it."""
    answered = {
        (s.judged.variant.id, s.judged.torch)
        for s in entry.sightings
        if s.effect != "none" or s.judged.verdict == "SKIP"
    }
    for torch in entry.torches("passed", "otherwise"):
        for variant in variants:
            if applies(entry.known, variant, torch) and (variant.id, torch) not in answered:
                raise Unfit(f"{variant.id} has no verdict under torch {torch} in this run")


def _revised(entry: Entry) -> list[Change]:
    """The changes of an entry that passed, or failed in another way, somewhere."""
    known = entry.known
    matched, passed = entry.torches("matched"), entry.torches("passed")
    if mixed := [torch for torch in passed if torch in entry.torches("matched", "otherwise")]:
        raise Unfit(f"under torch {', '.join(mixed)} some of its variants pass and some fail: narrow it by hand")
    changed = group_failures(s.judged for s in entry.sightings if s.effect == "otherwise")
    failing_otherwise = [torch for torch in entry.torches("otherwise") if torch not in matched]
    changes: list[Change] = []
    if matched:
        changes += _narrowing(known, matched, [*passed, *failing_otherwise])
    elif changed:
        first, *changed = changed
        later = [t for s in changed for t in s.torches if t not in first.torches]
        values = {**_repinned(known, first), **_range_values(known, first.torches, [*passed, *later])}
        changes.append(Set(known.span, values))
    else:
        changes += _narrowing(known, [], passed)
    for failure_group in changed:
        further = narrow_range(
            known.torch,
            failure_group.torches,
            [t for t in (*matched, *passed, *failing_otherwise) if t not in failure_group.torches],
        )
        own = {
            name: value[0] if isinstance(value, list) and len(value) == 1 and name != "oracle" else value
            for name, value in known_of(known).items()
        }
        changes.append(Add(known.span, {**own, "error": None, **failure_group.entry_keys, "torch": further}))
    return changes


def _narrowing(known: Known, keep: Sequence[str], out: Sequence[str]) -> list[Change]:
    values = _range_values(known, keep, out)
    change = Remove(known.span) if values.get("torch") == "" else Set(known.span, values)
    return [change] if values else []


def _range_values(known: Known, keep: Sequence[str], out: Sequence[str]) -> dict[str, Any]:
    text = narrow_range(known.torch, keep, out)
    return {} if text == known.torch else {"torch": text}


def _repinned(known: Known, failure_group: FailureGroup) -> dict[str, Any]:
    """The keys that an entry pins, with what was seen instead.

    What it left open stays open, unless nothing else would be pinned.
    """
    keys, values = failure_group.entry_keys, dict[str, Any]()
    if known.stage is not None and known.stage != keys.get("stage"):
        values["stage"] = keys.get("stage")
    error = keys.get("error")
    holds = (
        known.error is not None
        and error
        and all(explains(Known(known.span, error=known.error), j.lead) for j in failure_group.judged)
    )
    if not holds and (known.error is not None or (known.oracle and error)):
        values["error"] = error
    if known.oracle:
        if not {finding.oracle for j in failure_group.judged for finding in j.findings} <= {*known.oracle}:
            values["oracle"] = keys["oracle"]
    elif known.error is not None and error is None:
        values["oracle"] = keys["oracle"]
    then = replace(known, **{**values, "torch": None, "oracle": tuple(values.get("oracle", known.oracle))})
    if any(unexplained([then], j.findings) for j in failure_group.judged):
        raise Unfit("what it pins cannot be replaced by what was seen: write it by hand")
    return values


# --- failures without an entry ---


def _add_new(plan: Plan, run: Run, today: str) -> None:
    """Entries for what failed where no entry speaks."""
    cases: dict[tuple[str, str], list[Judged]] = {}
    for judged in run.judged:
        cases.setdefault((judged.variant.case.file, judged.variant.case.name), []).append(judged)
    for case_results in cases.values():
        case = case_results[0].variant.case
        for failure_group in group_failures(
            j for j in case_results if j.answer == "failed" and not applying(j.variant, j.torch)
        ):
            reason = f"unexplained, first seen {today} with torch {min(failure_group.torches, key=release_of)}"
            try:
                for values in _new(failure_group, case_results):
                    entry = {**values, "reason": reason}
                    plan.changes.append(Add(case.span, entry, case=True, inherits=bool(case.known)))
            except ValueError as error:
                plan.notes.append(f"{case.span}: no entry for {case.name}: {error}")


def _new(failure_group: FailureGroup, case_results: Sequence[Judged]) -> list[dict[str, Any]]:
    """Entries that speak of these failures and of nothing that passes."""
    away = [j.torch for j in case_results if j.answer != "none" and j.torch not in failure_group.torches]
    for selectors in ({}, *_selectors(failure_group.judged)):
        values = {
            "torch": smallest_range(failure_group.torches, away),
            **failure_group.entry_keys,
            **_elsewhere(failure_group.judged),
            **selectors,
        }
        if not _speaks_of_passing(values, failure_group, case_results):
            return [values]
    entries = []
    for variant in {j.variant.id: j.variant for j in failure_group.judged}.values():
        own = [j for j in failure_group.judged if j.variant.id == variant.id]
        away = [j.torch for j in case_results if j.variant.id == variant.id and j.answer != "none" and j not in own]
        values = {
            "torch": smallest_range([j.torch for j in own], away), **group_failures(own)[0].entry_keys,
            "backend": variant.backend.name,
            "device": variant.device, "dtype": variant.dtype,
            **({"params": {**variant.params}} if variant.params else {}),
        }  # fmt: skip
        if _speaks_of_passing(values, failure_group, case_results):
            raise ValueError("no selector tells it from variants that pass")
        entries.append(values)
    return entries


def _elsewhere(failures: Sequence[Judged]) -> dict[str, Any]:
    """The devices, where the case names none of them and a command line did: of its own devices nothing is known
    then."""
    devices = [j.variant.device for j in failures]
    return {"device": _one_or_all(devices)} if {*devices}.isdisjoint(failures[0].variant.case.devices) else {}


def _one_or_all(values: Iterable[str]) -> str | list[str]:
    """As a ledger writes it: a list only where there are several."""
    several = list(dict.fromkeys(values))
    return several if len(several) > 1 else several[0]


def _selectors(failures: Sequence[Judged]) -> list[dict[str, Any]]:
    """What these variants have in common, one thing at a time."""
    variants = [j.variant for j in failures]
    return [
        {"dtype": _one_or_all(v.dtype for v in variants)},
        {"backend": _one_or_all(v.backend.name for v in variants)},
        {"device": _one_or_all(v.device for v in variants)},
        *(
            {"params": {name: value}}
            for name, value in variants[0].params.items()
            if all(v.params[name] == value for v in variants)
        ),
    ]


def _speaks_of_passing(values: Mapping[str, Any], failure_group: FailureGroup, case_results: Sequence[Judged]) -> bool:
    several = {k: (v,) if isinstance(v, str) else tuple(v) for k, v in values.items() if k != "params"}
    entry = Known(
        failure_group.judged[0].variant.case.span,
        stage=values.get("stage"),
        torch=values["torch"],
        backend=several.get("backend", ()),
        device=several.get("device", ()),
        dtype=several.get("dtype", ()),
        params=values.get("params", {}),
    )
    return any(j.answer == "passed" and applies(entry, j.variant, j.torch) for j in case_results)


# --- files ---


def rewrite(plan: Plan, limits: Limits, folders: Collection[Path], dry: bool = False) -> str:
    """Make the changes, and return the diff.

    A file that is read-only or lies below none of ``folders``, which have no links, is left as it is. One that no
    longer loads as well as before is restored. Notes say so.
    """
    diffs: list[str] = []
    for file in sorted({change.span.file for change in plan.changes}):
        path, changes = Path(file), [change for change in plan.changes if change.span.file == file]
        try:
            _check_place(path, folders)
            data = read_bytes(path)
            old = data.decode("utf-8")
            new, refused = apply_changes(old, changes)
            plan.notes += [f"{change.span}: left as it is: {reason}" for change, reason in refused]
            errors_before = 0 if dry else len(_errors(file, limits))
            if not dry:
                path.write_bytes(new.encode("utf-8"))
        except (Unfit, OSError, UnicodeDecodeError) as error:
            plan.notes.append(f"{shown_path(file)}: left as it is: {error}")
            continue
        if not dry:
            errors = _errors(file, limits)
            if len(errors) > errors_before:
                path.write_bytes(data)
                plan.notes.append(f"{shown_path(file)}: left as it is, the edit would break it: {errors[0].message}")
                continue
        diffs.append(_diff(shown_path(file), old, new))
    return "".join(diffs)


def _check_place(path: Path, folders: Collection[Path]) -> None:
    """Raise Unfit for a file that may not be written: a suite may name any file of this machine."""
    whole = path.resolve()
    if not any(whole.is_relative_to(folder) for folder in folders):
        raise Unfit(f"it lies outside of this folder and of what was named; run this in {whole.parent}, or above it")
    if not whole.stat().st_mode & 0o222:  # root could write it
        raise Unfit("it is read-only")


def _errors(file: str, limits: Limits) -> list[Diagnostic]:
    try:
        everything = file.endswith(LEDGER)
        return load([file], allow_python=True, limits=limits, any_device=True, everything=everything).errors
    except InputError as error:
        return [*error.diagnostics]


def _diff(name: str, old: str, new: str) -> str:
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(
            old.splitlines(True), new.splitlines(True), os.path.join("a", name), os.path.join("b", name)
        )
    )
