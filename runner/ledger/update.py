"""The ledger rewritten from a run: which entries change and how, and the files with those changes made.

Entries are changed, removed and added in the text of a YAML file, and not a byte else. ruamel.yaml's nodes say where
every key and value stands; the edits are cuts in the text between them. One-line entries in braces (the shipped style)
and entries of several lines are both edited as they are written.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runner.cases.limits import Limits
from runner.cases.model import Known, Variant
from runner.cases.serialize import known_of
from runner.cases.versions import narrow_range, release_of, smallest_range
from runner.cases.yaml import reader
from runner.cases.yaml.values import resolve
from runner.contract.oracles import gate_of
from runner.diagnostics import Diagnostic, InputError, Span, shown_path
from runner.files import read_bytes
from runner.ledger.review import Entry, Judged, Run, applying
from runner.quote import yaml_text
from runner.session.collect import load
from runner.verdict.policy import applies, explains, unexplained

WRAPPERS = ("BackendCompilerFailed", "InductorError", "InternalTorchDynamoError")
"""Exceptions that only say that there is another one; which of them it is differs between versions of torch."""


@dataclass(slots=True)
class Plan:
    """Changes by file, and what is left to a person."""

    changes: dict[str, list[Change]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, change: Change) -> None:
        """Add one more change."""
        self.changes.setdefault(change.span.file, []).append(change)


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
        if entry.torches("passed", "otherwise"):
            try:
                _check_whole(entry, [v for case in entry.cases for v in cases.get(id(case), ())])
                for change in _revised(entry):
                    plan.add(change)
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
    mixed = [torch for torch in entry.torches("passed") if torch in entry.torches("matched", "otherwise")]
    if mixed:
        raise Unfit(f"under torch {', '.join(mixed)} some of its variants pass and some fail: narrow it by hand")
    changed = group_failures(s.judged for s in entry.sightings if s.effect == "otherwise")
    failing_otherwise = [torch for torch in entry.torches("otherwise") if torch not in matched]
    changes: list[Change] = []
    if matched:
        changes += _narrowing(known, matched, [*passed, *failing_otherwise])
    elif changed:
        first, *changed = changed
        later = [t for s in changed for t in s.torches if t not in first.torches]
        values = _repinned(known, first)
        values.update(_range_values(known, first.torches, [*passed, *later]))
        changes.append(Set(known.span, values))
    else:
        changes += _narrowing(known, [], passed)
    for failure_group in changed:
        further = narrow_range(
            known.torch,
            failure_group.torches,
            [t for t in (*matched, *passed, *failing_otherwise) if t not in failure_group.torches],
        )
        values = {
            name: value[0] if isinstance(value, list) and len(value) == 1 and name != "oracle" else value
            for name, value in known_of(known).items()
        }
        values |= {"error": None, **failure_group.entry_keys, "torch": further}
        changes.append(Add(known.span, values))
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
        failures = [j for j in case_results if j.answer == "failed" and not applying(j)]
        for failure_group in group_failures(failures):
            first = min(failure_group.torches, key=release_of)
            reason = f"unexplained, first seen {today} with torch {first}"
            try:
                for values in _new(failure_group, case_results):
                    plan.add(Add(case.span, {**values, "reason": reason}, case=True, inherits=bool(case.known)))
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
    own = failures[0].variant.case.devices
    return {} if any(device in own for device in devices) else {"device": _one_or_all(devices)}


def _one_or_all(values: Iterable[str]) -> str | list[str]:
    """As a ledger writes it: a list only where there are several."""
    several = list(dict.fromkeys(values))
    return several if len(several) > 1 else several[0]


def _selectors(failures: Sequence[Judged]) -> list[dict[str, Any]]:
    """What these variants have in common, one thing at a time."""
    variants = [j.variant for j in failures]
    selectors: list[dict[str, Any]] = [
        {"dtype": _one_or_all(v.dtype for v in variants)},
        {"backend": _one_or_all(v.backend.name for v in variants)},
        {"device": _one_or_all(v.device for v in variants)},
    ]
    params = variants[0].params.items()
    common = {name: value for name, value in params if all(v.params[name] == value for v in variants)}
    return [*selectors, *({"params": {name: value}} for name, value in common.items())]


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
    for file, changes in sorted(plan.changes.items()):
        path = Path(file)
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
        return load([file], allow_python=True, limits=limits, any_device=True).errors
    except InputError as error:
        return [*error.diagnostics]


def _diff(name: str, old: str, new: str) -> str:
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(
            old.splitlines(True), new.splitlines(True), os.path.join("a", name), os.path.join("b", name)
        )
    )


# --- the text ---

ORDER = (
    "torch", "stage", "oracle", "error", "backend", "device", "dtype", "platform", "threads", "params", "issue",
    "reason", "why", "sometimes", "choice", "review",
)  # fmt: skip
"""The order in which people write the keys of an entry."""

_WORD = re.compile(r"[A-Za-z_][\w.|-]*")


class Unfit(Exception):
    """A change that this text does not allow; what to do by hand is said in the message."""


@dataclass(frozen=True, slots=True)
class Set:
    """Give keys of the entry at ``span`` other values; None takes a key away."""

    span: Span
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Remove:
    """Take the entry at ``span`` away."""

    span: Span


@dataclass(frozen=True, slots=True)
class Add:
    """A new entry: after the entry at ``span``, or, with ``case``, at the end of the case whose name stands there.

    A case that ``inherits`` its ledger from ``defaults:`` would lose it by having one of its own.
    """

    span: Span
    values: Mapping[str, Any]
    case: bool = False
    inherits: bool = False


Change = Set | Remove | Add


def apply_changes(text: str, changes: Sequence[Change]) -> tuple[str, list[tuple[Change, str]]]:
    """Return ``text`` with the changes made, and those that could not be, with the reason.

    Raises Unfit when the file cannot be read, or when anything but the ledger would change.
    """
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    old = body = text.removeprefix("\ufeff")
    refused: list[tuple[Change, str]] = []
    # From the end, so that the places of earlier entries stay what they are; what comes after an entry before what is
    # in it.
    for change in sorted(changes, key=lambda c: (c.span.line, c.span.column, isinstance(c, Add)), reverse=True):
        file = _File(body)
        try:
            body = file.changed(change)
        except Unfit as error:
            refused.append((change, str(error)))
    if body != old and _without_ledger(body) != _without_ledger(old):
        raise Unfit("the edit would change more than the ledger")
    return mark + body, refused


def entry_text(values: Mapping[str, Any]) -> str:
    """Return an entry on one line."""
    return "{" + ", ".join(f"{key}: {_value(values[key])}" for key in ORDER if values.get(key) is not None) + "}"


def _value(value: Any) -> str:
    match value:
        case str():
            plain = _WORD.fullmatch(value) and isinstance(resolve(value), str)
            return value if plain else yaml_text(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case dict():
            return "{" + ", ".join(f"{_value(key)}: {_value(item)}" for key, item in value.items()) + "}"
        case float():
            return repr(value)
    return json.dumps(value)


class _File:
    """A text and its nodes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        try:
            self.root = YAML(pure=True).compose(text)
        except YAMLError as error:
            raise Unfit(f"ruamel.yaml cannot read this file: {str(error).splitlines()[0]}") from None

    def changed(self, change: Change) -> str:
        """The text with one change made."""
        if isinstance(change, Add):
            return self._added(change)
        parent, key, ledger, item = self._find(change.span)
        if isinstance(change, Remove):
            return self._removed(parent, key, ledger, item)
        if not isinstance(item, MappingNode):
            raise Unfit("the entry is no mapping of its own")
        text = self.text
        for name in sorted(change.values, key=ORDER.index, reverse=True):
            file = _File(text)
            text = file._key_set(file._find(change.span)[3], name, change.values[name])
        return text

    # --- finding ---

    def _find(self, span: Span) -> tuple[MappingNode, ScalarNode, SequenceNode, Node]:
        """The entry at a place, the list that holds it, and that list's key and mapping."""
        for mapping in _mappings(self.root):
            for key, value in mapping.value:
                if key.value == "known" and isinstance(value, SequenceNode) and _inside(value, mapping):
                    for item in value.value:
                        if _inside(item, value) and _stands_at(item, span):
                            return mapping, key, value, item
        raise Unfit("the entry was not found at its place; is it an alias?")

    def _case(self, span: Span) -> MappingNode:
        for mapping in _mappings(self.root):
            for key, value in mapping.value:
                if key.value == "name" and _stands_at(value, span):
                    return mapping
        raise Unfit("the case was not found at its place")

    # --- entries ---

    def _added(self, change: Add) -> str:
        entry = entry_text(change.values)
        if not change.case:
            return self._append(*self._find(change.span)[2:], entry)
        case = self._case(change.span)
        pair = next(((k, v) for k, v in case.value if k.value == "known"), None)
        if pair is None:
            if change.inherits:
                raise Unfit("its known: comes from defaults: above it; write the entry there")
            last = _pair_end(self.text, *case.value[-1])
            if case.flow_style:
                return self._cut(last, last, f", known: [{entry}]")
            indent = " " * case.value[0][0].start_mark.column
            return self._line_after(last, f"{indent}known:{self.newline}{indent}  - {entry}")
        ledger = pair[1]
        if not isinstance(ledger, SequenceNode) or not _inside(ledger, case):
            raise Unfit("known: is no list of its own")
        if not ledger.value:
            return self._cut(ledger.start_mark.index + 1, ledger.end_mark.index - 1, entry)
        return self._append(ledger, ledger.value[-1], entry)

    def _append(self, ledger: SequenceNode, item: Node, entry: str) -> str:
        """``entry`` after ``item``."""
        end = _end(self.text, item)
        if ledger.flow_style:
            return self._cut(end, end, f", {entry}")
        return self._line_after(end, " " * ledger.start_mark.column + f"- {entry}")

    def _removed(self, parent: MappingNode, key: ScalarNode, ledger: SequenceNode, item: Node) -> str:
        place = ledger.value.index(item)
        if len(ledger.value) == 1:
            if len(parent.value) > 1:
                return self._ledger_removed(parent, key, ledger)
            return self._cut(
                ledger.start_mark.index if ledger.flow_style else key.end_mark.index + 1,
                _end(self.text, ledger),
                "[]" if ledger.flow_style else " []",
            )
        if ledger.flow_style:
            return self._item_removed([(i.start_mark.index, _end(self.text, i)) for i in ledger.value], place)
        return _without_lines(self.text, self._dash(item), _end(self.text, item))

    def _ledger_removed(self, parent: MappingNode, key: ScalarNode, ledger: SequenceNode) -> str:
        """A case without its last entry. Comments on lines between ``known:`` and the entry stay."""
        if ledger.flow_style or self._before(key.start_mark.index).strip():
            return self._key_removed(parent, key)
        item = ledger.value[0]
        return _without_lines(
            _without_lines(self.text, self._dash(item), _end(self.text, item)),
            key.start_mark.index,
            key.end_mark.index + 1,
        )

    def _dash(self, item: Node) -> int:
        dash = re.search(r"-[ \t]+$", self.text[: item.start_mark.index])
        if dash is None:
            raise Unfit("the entry does not stand beside its dash")
        return dash.start()

    def _before(self, place: int) -> str:
        """What stands on its line before a place."""
        return self.text[:place].rpartition("\n")[2]

    # --- keys ---

    def _key_set(self, entry: Node, name: str, value: Any) -> str:
        assert isinstance(entry, MappingNode)
        pair = next(((k, v) for k, v in entry.value if k.value == name), None)
        if value is None:
            return self.text if pair is None else self._key_removed(entry, pair[0])
        new = _value(value)
        if pair is not None:
            key, old = pair
            start, end = old.start_mark.index, _pair_end(self.text, key, old)
            if "\n" in self.text[key.end_mark.index : start]:  # a list on lines of its own
                start, new = key.end_mark.index, f": {new}"
            elif self.text[start:end].startswith("'") and new.startswith('"') and not set(new[1:-1]) & {"'", "\\"}:
                new = f"'{new[1:-1]}'"
            return self._cut(start, end, new)
        earlier_pairs = [
            (k, v) for k, v in entry.value if k.value in ORDER and ORDER.index(k.value) < ORDER.index(name)
        ]
        first = entry.value[0][0].start_mark
        indent = " " * first.column
        if not earlier_pairs:
            ending = ", " if entry.flow_style else self.newline + indent
            return self._cut(first.index, first.index, f"{name}: {new}{ending}")
        end = _pair_end(self.text, *earlier_pairs[-1])
        if entry.flow_style:
            return self._cut(end, end, f", {name}: {new}")
        return self._line_after(end, f"{indent}{name}: {new}")

    def _key_removed(self, mapping: MappingNode, key: ScalarNode) -> str:
        pairs = mapping.value
        place = next(i for i, (k, _) in enumerate(pairs) if k is key)
        if len(pairs) == 1:
            raise Unfit(f"nothing would be left beside {key.value}:")
        spans = [(k.start_mark.index, _pair_end(self.text, k, v)) for k, v in pairs]
        if mapping.flow_style:
            return self._item_removed(spans, place)
        if place == 0 and self._before(spans[0][0]).strip():  # behind a dash
            return self._cut(spans[0][0], spans[1][0], "")
        return _without_lines(self.text, *spans[place])

    # --- cuts ---

    def _item_removed(self, spans: Sequence[tuple[int, int]], place: int) -> str:
        """One of the things between commas."""
        start, end = (spans[place - 1][1], spans[place][1]) if place else (spans[0][0], spans[1][0])
        return self._cut(start, end, "")

    def _line_after(self, end: int, line: str) -> str:
        stop = _line_end(self.text, end)
        return self._cut(stop, stop, self.newline + line)

    def _cut(self, start: int, end: int, new: str) -> str:
        return self.text[:start] + new + self.text[end:]


def _without_lines(text: str, start: int, end: int) -> str:
    """Without whole lines, and the comment behind the last. Comments on lines of their own stay."""
    begin = text.rfind("\n", 0, start) + 1
    if text[begin:start].strip():
        raise Unfit("something else stands on the same line")
    next_line = text.find("\n", _line_end(text, end)) + 1
    if next_line:
        return text[:begin] + text[next_line:]
    return text[:begin].removesuffix("\n").removesuffix("\r")  # the last line of a file that does not end in a newline


def _line_end(text: str, end: int) -> int:
    """Where the line of ``end`` ends; only a comment may follow there."""
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    stop -= text[end:stop].endswith("\r")
    trailing = text[end:stop].strip()
    if trailing and not trailing.startswith("#"):
        raise Unfit("something else stands on the same line")
    return stop


def _mappings(node: Node | None, visited: set[int] | None = None) -> Iterator[MappingNode]:
    """Every mapping, once each."""
    visited = set() if visited is None else visited
    if node is None or id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, MappingNode):
        yield node
        for _, value in node.value:
            yield from _mappings(value, visited)
    elif isinstance(node, SequenceNode):
        for item in node.value:
            yield from _mappings(item, visited)


def _inside(node: Node, outer: Node) -> bool:
    """Whether a node is written there, and is no alias to another place."""
    return bool(outer.start_mark.index <= node.start_mark.index <= outer.end_mark.index)


def _stands_at(node: Node, span: Span) -> bool:
    """Whether a node starts at a place; behind an anchor or a tag also counts."""
    mark = (node.start_mark.line + 1, node.start_mark.column + 1)
    inner = node.value[0][0].start_mark if isinstance(node, MappingNode) and node.value else node.start_mark
    return mark <= (span.line, span.column) <= (inner.line + 1, inner.column + 1)


def _end(text: str, node: Node) -> int:
    """Where a node's text ends: ruamel.yaml lets blocks reach to the next thing."""
    if isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
        last = node.value[-1]
        if isinstance(node, MappingNode):
            return _pair_end(text, *last)
        if not _inside(last, node):
            raise Unfit("an alias stands there")
        return _end(text, last)
    start = node.start_mark.index
    return int(start + len(text[start : node.end_mark.index].rstrip()))


def _pair_end(text: str, key: Node, value: Node) -> int:
    if value.start_mark.index < key.end_mark.index:
        raise Unfit(f"{key.value}: is an alias")
    return _end(text, value)


def _without_ledger(text: str) -> str:
    """All that the file says but its ledger, to compare."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key != "known"}
        return [strip(item) for item in value] if isinstance(value, list) else value

    node, problems = reader.load("", text)
    if node is None or problems:
        raise Unfit(f"the edit would break the file: {problems[0].message if problems else 'nothing is left'}")
    return repr(strip(node.plain()))
