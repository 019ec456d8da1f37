"""From what the command line names to checked variants: paths and node ids, reading, selecting, and the checks of all.

A node is ``FILE::CASE``, ``FOLDER::CASE``, or an id that a command prints. A printed id says more than its file does:
the backend and the device, which a suite or an option may have brought. What the file itself does not expand to is
added for such an id alone (``added_variants``).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.builder.source import check
from runner.cases.expand import Predicate, SelectError, expand, parse_selection, values_of
from runner.cases.limits import Limits
from runner.cases.model import DEVICES, Backend, Case, Suite, Tolerance, Variant
from runner.cases.operator_names import operators_of
from runner.cases.problems import limited
from runner.cases.suites import LEDGER, SPEC, SUITE, PathError, Reader
from runner.cases.torch_names import file_refusal, hint_for, name_fault, own_names
from runner.cases.yaml.reader import without_collector
from runner.cases.yaml.values import split_lines
from runner.diagnostics import Diagnostic, InputError, Span, nearest, shown_path, source_line
from runner.exit_codes import UsageError
from runner.files import read_text
from runner.record.store import latest_options
from runner.session.ledgers import ledgers_of, with_ledgers
from runner.session.nodes import Node, rebased, split_paths
from runner.session.settings import RunSettings
from runner.text import plural

_COMPARED = 5000
"""Ids that a misspelt one is compared with: each takes 20 microseconds."""

_NAMED = 8
"""Cases that an error names."""

_NEARBY = 100
"""Suite files in which a backend of an id is looked for."""


def _sources(suites: Sequence[Suite]) -> Callable[[Variant], frozenset[str]]:
    """Says which files bring a variant: that of its case, and its suites'."""

    @functools.cache
    def files_of(names: tuple[str, ...], file: str) -> frozenset[str]:
        return frozenset(suite.file for suite in suites if suite.name in names) | {file}

    return lambda variant: files_of(variant.suites, variant.case.file)


def node_predicate(nodes: Sequence[Node], suites: Sequence[Suite]) -> Predicate:
    """Return whether a variant is asked for.

    A file's names add up; with the file itself among them they leave nothing out.
    """
    if all(node.name is None for node in nodes):
        return lambda _: True
    sources = _sources(suites)
    groups: dict[frozenset[str], set[str | None]] = defaultdict(set)
    for node in nodes:
        groups[node.narrowed].add(node.name)

    @functools.cache
    def names_in(files: frozenset[str]) -> list[set[str | None]]:
        return [names for group, names in groups.items() if group & files]

    def chooses(variant: Variant) -> bool:
        lists = names_in(sources(variant))
        # None: it came with a folder.
        return not lists or any(None in names or any(name in names for name in _names(variant)) for names in lists)

    return chooses


def _own(variant: Variant) -> str:
    """The id after its file. A param's value may hold a ``::`` of its own."""
    return variant.id[len(variant.where) + 2 :]


def _names(variant: Variant) -> Iterator[str]:
    """Every node id that names this variant: the case, with or without its axes, its backend, and its own file."""
    own = _own(variant)
    names = [
        own,
        f"{variant.case.name}@{variant.backend.name}",
        *(own[: m.start()] for m in re.finditer(r"[\[@]", own)),
    ]
    for name in names:
        yield name
        yield f"{variant.where}::{name}"


def added_variants(
    nodes: Sequence[Node],
    suites: Sequence[Suite],
    variants: Sequence[Variant],
    backends: Sequence[str],
    devices: Sequence[str],
    allow_python: bool,
    limits: Limits,
) -> list[Variant]:
    """Return the variants of ids whose backend or device their files do not name themselves.

    Args:
        nodes: what the command line names.
        suites: what was read for them.
        variants: those that the files expand to.
        backends: of ``--backend``, beside which an id's own has no say.
        devices: of ``--device``, likewise.
        allow_python: whether files may name a backend as ``package:function``.
        limits: on what files may ask for.

    Raises:
        UsageError: several suites define the backend, each in its own way; or the backend is code that nobody typed.
        InputError: as of ``expand``.
    """
    asked = {node.name for node in nodes} - {None}
    # Only what is asked for is kept: all names of a million variants take half a gigabyte.
    known = {name for variant in variants for name in _names(variant) if name in asked} if asked else set()
    added: dict[str, Variant] = {}
    owners_of: dict[tuple[frozenset[str], str], list[Suite]] = {}
    for node in nodes:
        if node.name is None or node.name in known or not (node.backend or node.device):
            continue
        if (backends and node.backend) or (devices and node.device not in ("", *devices)):
            continue
        key = node.files, node.backend
        if key not in owners_of:
            owners_of[key] = _owners(node, suites, limits) if node.backend else []
        owners = owners_of[key]
        held = _holders(node, owners) or _holders(node, suites)
        for suite, cases in held or _holders(node, _beside(node, limits, allow_python)):
            chosen = (_backend(node, owners, allow_python),) if node.backend else suite.backends
            narrowed = replace(suite, cases=cases, backends=tuple(filter(None, chosen)))
            expanded = expand([narrowed], backends, devices or tuple(filter(None, [node.device])), limits)
            added.update({v.id: v for v in expanded if node.name in _names(v)})
    return [*added.values()]


def _holders(node: Node, suites: Sequence[Suite]) -> list[tuple[Suite, tuple[Case, ...]]]:
    """The suites with the case of an id, and that case."""
    held = [(suite, tuple(case for case in suite.cases if case.name == node.case)) for suite in suites]
    return [(suite, cases) for suite, cases in held if cases and ({suite.file} | {c.file for c in cases}) & node.files]


def _beside(node: Node, limits: Limits, allow_python: bool) -> list[Suite]:
    """The spec file of ``SUITE::FILE::CASE`` as a suite, where the suite that defines the backend leaves it out.

    Raises InputError where the file is wrong, or its case brings Python that nobody allows.
    """
    reader = Reader(limits)
    suites = reader.suites(sorted(file for file in node.files if file.endswith(SPEC) and os.path.isfile(file)))
    cases = [case for suite in suites for case in suite.cases if case.name == node.case and case.has_python]
    errors = [problem for problem in reader.problems if problem.severity == "error"]
    errors += [] if allow_python else _python(cases, _lines)
    if errors:
        raise InputError(errors)
    return suites


def _owners(node: Node, suites: Sequence[Suite], limits: Limits) -> list[Suite]:
    """The suites that define an id's backend: of these, else of the nearby files.

    Raises UsageError where they differ.
    """
    defining = [suite for suite in suites if _defined(suite, node.backend)]
    if defining or node.backend in own_names():
        return defining
    nearby = [suite for suite in _nearby(node, limits) if _defined(suite, node.backend)]
    if any(_defined(suite, node.backend) != _defined(nearby[0], node.backend) for suite in nearby):
        ids = [node.name if _holders(node, [suite]) else f"{node.path}::{node.name}" for suite in nearby]
        choices = "".join(f"\n  {shown_path(suite.file)}::{name}" for suite, name in zip(nearby, ids, strict=True))
        raise UsageError(f"backend {node.backend!r} means another thing in each of several suites; name one:{choices}")
    return [suite for suite in nearby if any(case.file in node.files for case in suite.cases)] or nearby


def _defined(suite: Suite, name: str) -> Backend | None:
    return next((backend for backend in suite.backends if backend.name == name), None)


def _backend(node: Node, owners: Sequence[Suite], allow_python: bool) -> Backend | None:
    """The backend that an id names; None for what looks like a misspelt one.

    Raises UsageError for code that nobody typed.
    """
    name = node.backend
    backend = _defined(owners[0], name) if owners else Backend(name, name)
    assert backend is not None
    reason, hint = file_refusal(backend.backend, latest_options("--backend"), allow_python)
    if reason:
        raise UsageError(f"{node.path}::{node.name}: {reason}; {hint}")
    return None if not owners and name not in own_names() and nearest(name, own_names()) else backend


def _nearby(node: Node, limits: Limits) -> Iterator[Suite]:
    """The suites beside a file, in the folders above it up to this one, and in their ``suites``."""
    here = Path(os.getcwd()).resolve()
    folders: dict[Path, None] = {}
    for file in sorted(node.files):
        for folder in Path(file).parents:
            folders |= {folder: None, folder / "suites": None}
            if folder == here or not folder.is_relative_to(here):
                break
    reader = Reader(limits)
    paths = [path for folder in folders for path in sorted(folder.glob(f"*{SUITE}"))]
    for path in paths[:_NEARBY]:
        with contextlib.suppress(OSError):
            if node.backend in read_text(path, "replace") and (suite := reader.suite(path)) is not None:
                yield suite


def demand_all(
    nodes: Sequence[Node],
    suites: Sequence[Suite],
    good: Sequence[Variant],
    variants: Sequence[Variant],
    diagnostics: Sequence[Diagnostic],
    devices: Sequence[str],
) -> None:
    """Raise InputError, with all errors of the files, for a node that names none of the variants.

    One whose case is there and has an error is not missing: that error is said. ``devices`` are those of ``--device``.
    """
    errors = [d for d in diagnostics if d.severity == "error"]
    names = {node.name for node in nodes} - {None}
    if not names:
        return
    sources = _sources(suites)
    # With errors a case that is there is one that cannot run; else only what runs counts.
    present = {
        (file, name)
        for variant in (variants if errors else good)
        for name in _names(variant)
        if name in names
        for file in sources(variant)
    }
    for node in nodes:
        name = node.name
        if name is None or any((file, name) in present for file in node.files):
            continue
        if not variants and errors:
            raise InputError(errors)
        if (absence := _absence(node, suites, variants, devices)) is not None:
            raise InputError([*errors, absence])
        if not variants:
            raise PathError(f"{node.path}: no case here, so none matches {name!r}")
        ids = [_own(v) for v in variants if v.case.name == node.case] or [_own(v) for v in variants]
        there = [v.case for v in variants if not node.files.isdisjoint(sources(v))] or [v.case for v in variants]
        cases = {case.name: case for case in there}
        near = nearest(name, dict.fromkeys(v.case.name for v in variants)) or nearest(name, ids[:_COMPARED])
        message = f"no case{' that can be read' if errors else ''} matches {name!r}"
        meant = next((case for known, case in cases.items() if repr(known) in near), there[0])
        hint = near or f"cases there: {', '.join([*cases][:_NAMED])}{', ...' if len(cases) > _NAMED else ''}"
        raise InputError([*errors, Diagnostic(meant.span, message, hint)])


def _absence(
    node: Node, suites: Sequence[Suite], variants: Sequence[Variant], devices: Sequence[str]
) -> Diagnostic | None:
    """Why a case that is there has no variant."""
    if any(variant.case.name == node.case for variant in variants):
        return None
    for suite, case in ((owner, case) for owner in suites for case in owner.cases):
        if case.name == node.case and {suite.file, case.file} & node.files:
            reason = device_reason(suite, case, devices) or f"suite {suite.name!r} does not select it"
            return Diagnostic(case.span, f"case {case.name!r} has no variant here: {reason}")
    return None


def device_reason(suite: Suite, case: Case, devices: Sequence[str]) -> str:
    """Return why a case runs on none of the devices that ``--device`` and its suite leave; empty if it does on one."""
    declared = case.devices if "devices" in case.axes or not devices else devices
    left = [device for device in declared if not devices or device in devices]
    if not left:
        return f"it runs on {' and '.join(case.devices)} alone (devices:), and --device is {' and '.join(devices)}"
    if suite.devices and not set(left) & set(suite.devices):
        return (
            f"suite {suite.name!r} runs on {' and '.join(suite.devices)} alone (devices:), and the case on "
            f"{' and '.join(left)}"
        )
    return ""


def read_cases(paths: Sequence[str], limits: Limits, source: str) -> list[Case]:
    """Return the cases of spec files, suites and folders, without any variant of them. ``source`` is the option that
    names them.

    Raises:
        UsageError: a path names none.
        InputError: a file is wrong.
    """
    reader = Reader(limits, any_device=True)
    try:
        suites = reader.files([*paths])
    except PathError as error:
        raise UsageError(f"{source} {error}") from None
    if any(problem.severity == "error" for problem in reader.problems):
        raise InputError(reader.problems)
    return [case for suite in suites for case in suite.cases]


@dataclass(frozen=True, slots=True)
class Loaded:
    """Suites, their variants, and what is wrong. With errors among the diagnostics the variants are those beside them.

    ``remarks`` say which fields of ``select:`` and ``-k`` match nothing. ``python`` counts the cases that bring Python
    of their own and were left out without an error. ``left_out`` are the other variants of the files, of which ledgers
    in files of their own may speak too; without such a ledger it is empty.
    ``entries`` counts those of ledgers that were named; None where none was.
    """

    suites: tuple[Suite, ...]
    variants: tuple[Variant, ...]
    diagnostics: tuple[Diagnostic, ...]
    remarks: tuple[str, ...] = ()
    python: int = 0
    left_out: tuple[Variant, ...] = ()
    entries: int | None = None

    @property
    def errors(self) -> list[Diagnostic]:
        """Diagnostics that make a run impossible."""
        return [d for d in self.diagnostics if d.severity == "error"]

    def selected(self, expression: str | None) -> Loaded:
        """Return it with the variants that ``-k`` keeps. Raises SelectError."""
        if not expression:
            return self
        selection = parse_selection(expression)
        idle = selection.idle_terms(values_of(self.variants)) if selection.terms else ()
        aside = "; cases with errors do not count" if self.errors else ""
        remarks = (*self.remarks, *(f"-k: {text}{aside}" for text in idle))
        kept = tuple(filter(selection, self.variants))
        others = itertools.filterfalse(selection, self.variants) if any(v.ledger for v in self.variants) else ()
        return replace(self, variants=kept, remarks=remarks, left_out=(*self.left_out, *others))

    def ruled(self, rule: str | None) -> Loaded:
        """Return it with a rule for values in each case that names none; ``bitwise`` replaces its bounds."""
        if not rule:
            return self
        cases: dict[int, Case] = {}
        for case in {id(v.case): v.case for v in self.variants}.values():
            kept = Tolerance() if rule == "bitwise" else case.tolerance
            named = case.tolerance if case.tolerance.values else replace(kept, values=rule)
            cases[id(case)] = replace(case, tolerance=named)
        return replace(self, variants=tuple(replace(v, case=cases[id(v.case)]) for v in self.variants))


def collect(
    paths: Sequence[str | os.PathLike[str]],
    settings: RunSettings | None = None,
    everything: bool = False,
    drafts: bool = False,
) -> Loaded:
    """Read files and folders, and expand their cases into variants.

    Args:
        paths: suite files, spec files, folders, ``FILE::CASE`` or ``FOLDER::CASE``.
        settings: of these ``backend``, ``device``, ``select``, ``values``, ``allow_python``, ``imports``, ``limit`` and
            ``ledger``.
        everything: cases that no suite selects, too.
        drafts: entries of ledgers whose reasons are still to be written, too.

    Returns:
        Variants that can run, and diagnostics of what cannot.

    Raises:
        PathError: a path names nothing.
        InputError: the files contradict each other, or name no such case.
        UsageError: a setting is wrong, such as a ``select`` that is no expression.
    """
    settings = settings or RunSettings()
    loaded = load(
        [os.fspath(path) for path in paths],
        backends=settings.backend,
        devices=settings.device,
        allow_python=settings.allow_python,
        limits=settings.limits(),
        everything=everything,
        any_device=bool(settings.imports),
        ledgers=settings.ledger,
        drafts=drafts,
    )
    try:
        return loaded.selected(settings.select).ruled(settings.values)
    except SelectError as error:
        raise UsageError(f"select: {error}") from None


@without_collector()
def load(
    paths: Sequence[str],
    *,
    backends: Sequence[str] = (),
    devices: Sequence[str] = (),
    allow_python: bool = False,
    limits: Limits | None = None,
    everything: bool = False,
    any_device: bool = False,
    ledgers: Sequence[str] = (),
    drafts: bool = False,
) -> Loaded:
    """Read ``paths`` (``FILE::CASE`` and ``FOLDER::CASE`` among them) and expand them.

    ``everything`` reads all files below folders and writes every variant out, where otherwise one a case is enough.
    Cases with Python of their own are then no errors in a file that a folder brought, unnamed.
    ``any_device`` takes devices that torch does not name. ``ledgers`` are files of entries for any case, and with
    ``drafts`` their reasons may be missing.
    Raises PathError, InputError for axes that multiply beyond the limit, and UsageError for a typed name that can be no
    backend's.
    """
    for name in backends:
        if reason := name_fault(name):
            raise UsageError(f"--backend {name!r}: {reason}")
    for device in devices:
        match = re.fullmatch(r"(\w+)(:[0-9]{1,2})?", device, re.ASCII)
        if match is None:
            raise UsageError(f"--device {device!r}: expected a device as torch names it, such as cpu, cuda or cuda:1")
        # A typo must not turn every variant into a green SKIP; what an imported module adds is not known here.
        if match[1] not in DEVICES and not any_device:
            raise UsageError(
                f"--device {device}: torch has no such device; "
                f"{nearest(device, DEVICES) or 'such as ' + ', '.join(DEVICES[:4])}"
            )
    limits = limits or Limits()
    lines_of = functools.lru_cache(maxsize=4)(_lines)  # cases come file by file
    reader = Reader(limits, any_device=any_device, drafts=drafts)
    files, nodes = split_paths([path for path in paths if not (everything and path.endswith(LEDGER))])
    named_ledgers = dict.fromkeys([*ledgers, *(ledgers_of(paths) if everything else ())])
    typed = [entry for path in named_ledgers for entry in reader.ledger(path)]
    suites = reader.files(files) if everything else reader.suites(files)
    nodes = [rebased(node, suites) for node in nodes]
    diagnostics = list(reader.problems)
    if not everything and any(d.severity == "error" and d.span.file.endswith(LEDGER) for d in diagnostics):
        raise InputError(diagnostics)  # what is known would be red
    named = {file for node in nodes for file in node.files}
    asking = [] if allow_python else [(s, c) for s in suites for c in s.cases if c.has_python]
    blamed = [case for suite, case in asking if not everything or named & {suite.file, case.file}]
    diagnostics += _python(blamed, lines_of)
    diagnostics += _foreign_backends(suites, allow_python, backends)
    if everything:
        diagnostics += _unknown(suites, backends)
    try:
        expanded = expand(suites, backends, devices, limits, diagnostics)
        added = added_variants(nodes, suites, expanded, backends, devices, allow_python, limits)
    except InputError as error:
        raise InputError(limited(error.diagnostics, limits)) from None
    selecting = _selection_warnings(suites, expanded, narrowed=bool(devices))
    diagnostics += selecting
    variants = [*expanded, *added] if added else expanded
    bad = _check(variants, limits, everything, diagnostics, lines_of)
    chooses = node_predicate(nodes, suites)
    refused = {id(b) for suite in suites for b in suite.backends if file_refusal(b.backend, backends, allow_python)[0]}
    # Refused means that it does not run, even beside cases that do.
    asked = (v for v in expanded if chooses(v) and id(v.backend) not in refused)
    good = tuple(
        v for v in itertools.chain(asked, added) if id(v.case) not in bad and (allow_python or not v.case.has_python)
    )
    demand_all(nodes, suites, good, variants, diagnostics, devices)
    remarks = tuple(f"{shown_path(d.span.file)}:{d.span.line}: select: {d.message}" for d in selecting)
    left_out: tuple[Variant, ...] = ()
    if typed or any(suite.ledger for suite in suites):
        good = with_ledgers(good, typed, suites)
        ids = {variant.id for variant in good}
        left_out = with_ledgers([v for v in expanded if v.id not in ids and id(v.case) not in bad], typed, suites)
    silent = {id(case) for _, case in asking} - {id(case) for case in blamed}
    entries = len(typed) if named_ledgers else None
    return Loaded(tuple(suites), good, tuple(limited(diagnostics, limits)), remarks, len(silent), left_out, entries)


def _python(cases: Sequence[Case], lines_of: Callable[[str], list[str]]) -> list[Diagnostic]:
    """Errors for cases that bring Python, without the word of the person who runs them."""
    found = []
    for case in cases:
        parts = [(case.module.span, f"case {case.name!r} brings Python of its own")] if case.module else []
        parts += [(k.span, f"kernel {k.name!r} is Python, which brings code of its own") for k in case.kernels]
        lines = lines_of(case.file)
        hint = "read that file, then add --allow-python"
        found += [Diagnostic(span, what, hint, text=_line(lines, span.line)) for span, what in parts]
    return found


def _foreign_backends(suites: Sequence[Suite], allowed: bool, named: Sequence[str]) -> list[Diagnostic]:
    """Errors for backends of suites that are code, without that word."""
    pairs = [(suite, backend) for suite in suites for backend in suite.backends]
    refusals = [(suite, backend, *file_refusal(backend.backend, named, allowed)) for suite, backend in pairs]
    return [_of_backend(suite, backend, what, hint) for suite, backend, what, hint in refusals if what]


def _selection_warnings(suites: Sequence[Suite], variants: Sequence[Variant], narrowed: bool) -> list[Diagnostic]:
    """Warnings for a suite's selection that keeps nothing, or that names a tag or a case which no case has."""
    warnings = []
    kept = {name for names in {variant.suites for variant in variants} for name in names}
    for suite in suites:
        span = suite.select_span
        if suite.select is None or span is None or not suite.cases:
            continue
        selection = parse_selection(suite.select)
        values = {
            "tag": [tag for case in suite.cases for tag in case.tags],
            "case": [case.name for case in suite.cases],
        }
        if any(field == "op" for field, _ in selection.terms):  # these take the longest
            values["op"] = [name for case in suite.cases for name in operators_of(case)]
        messages = selection.idle_terms(values)
        if suite.name not in kept and not narrowed:
            messages.append(f"suite {suite.name!r} selects none of its {plural(len(suite.cases), 'case')}")
        warnings += [Diagnostic(span, text, "", "warning", text=source_line(span.file, span.line)) for text in messages]
    return warnings


def _unknown(suites: Sequence[Suite], named: Sequence[str]) -> list[Diagnostic]:
    """Warnings for plain names that only an installed package or an imported module can register."""
    return [
        _of_backend(suite, b, f"torch has no backend {b.backend!r} of its own", hint_for(b.backend), "warning")
        for suite in suites
        for b in suite.backends
        if ":" not in b.backend and b.backend not in own_names() and b.backend not in named
    ]


def _of_backend(suite: Suite, backend: Backend, message: str, hint: str, severity: str = "error") -> Diagnostic:
    span = backend.span or Span(suite.file, 1, 1)
    return Diagnostic(span, message, hint, severity, text=source_line(span.file, span.line))


def _check(
    variants: Sequence[Variant],
    limits: Limits,
    thorough: bool,
    diagnostics: list[Diagnostic],
    lines_of: Callable[[str], list[str]],
) -> set[int]:
    """Write cases out to find what only that can tell; the ids of the case objects with errors."""
    by_case: dict[int, list[Variant]] = defaultdict(list)
    for variant in variants:
        by_case[id(variant.case)].append(variant)
    errors: dict[str, int] = defaultdict(int)
    bad = set()
    room = limits.source_characters
    for key, group in by_case.items():
        case = group[0].case
        if errors[case.file] > limits.diagnostics:
            # As many as are shown: the rest of the file is not looked at, and does not run.
            bad.add(key)
            continue
        found, size = check(case, group if thorough else group[:1], lines_of(case.file), limits, room)
        room -= size
        diagnostics += found
        if wrong := sum(d.severity == "error" for d in found):
            errors[case.file] += wrong
            bad.add(key)
    return bad


def _lines(file: str) -> list[str]:
    try:
        return split_lines(read_text(file, "replace"))
    except OSError:
        return []


def _line(lines: list[str], line: int) -> str:
    return lines[line - 1] if 0 < line <= len(lines) else ""
