"""From what the command line names to checked variants: reading, selecting, and the checks that need both."""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from runner.builder.source import check
from runner.cases.backends import file_refusal, hint_for, name_fault, own_names
from runner.cases.expand import expand, parse_selection, values_of
from runner.cases.limits import Limits
from runner.cases.model import DEVICES, Backend, Case, Kernel, PythonModule, Suite, Variant
from runner.cases.problems import limited
from runner.cases.suites import PathError, Reader
from runner.cases.yaml.values import split_lines
from runner.diagnostics import Diagnostic, InputError, Span, nearest, shown_path, source_line
from runner.exit_codes import UsageError
from runner.files import read_text
from runner.session.nodes import added_variants, demand_all, node_predicate, split_paths
from runner.session.settings import RunSettings
from runner.text import plural


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

    ``remarks`` say which fields of ``select:`` and ``-k`` match nothing.
    """

    suites: tuple[Suite, ...]
    variants: tuple[Variant, ...]
    diagnostics: tuple[Diagnostic, ...]
    remarks: tuple[str, ...] = ()

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
        return replace(self, variants=tuple(filter(selection, self.variants)), remarks=remarks)


def collect(
    paths: Sequence[str | os.PathLike[str]], settings: RunSettings | None = None, everything: bool = False
) -> Loaded:
    """Read files and folders, and expand their cases into variants.

    Args:
        paths: suite files, spec files, folders, ``FILE::CASE`` or ``FOLDER::CASE``.
        settings: of these ``backend``, ``device``, ``select``, ``allow_python``, ``imports`` and ``limit``.
        everything: cases that no suite selects, too.

    Returns:
        Variants that can run, and diagnostics of what cannot.

    Raises:
        PathError: a path names nothing.
        InputError: the files contradict each other, or name no such case.
        UsageError: a setting is wrong.
        SelectError: ``select`` is no expression.
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
    )
    return loaded.selected(settings.select)


def load(
    paths: Sequence[str],
    *,
    backends: Sequence[str] = (),
    devices: Sequence[str] = (),
    allow_python: bool = False,
    limits: Limits | None = None,
    everything: bool = False,
    any_device: bool = False,
) -> Loaded:
    """Read ``paths`` (``FILE::CASE`` and ``FOLDER::CASE`` among them) and expand them.

    ``everything`` reads all files below folders and writes every variant out, where otherwise one a case is enough.
    ``any_device`` takes devices that torch does not name.
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
    reader = Reader(limits, any_device=any_device)
    files, nodes = split_paths(paths)
    suites = reader.files(files) if everything else reader.suites(files)
    diagnostics = list(reader.problems)
    diagnostics += _python(suites, allow_python, backends, lines_of)
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
    return Loaded(tuple(suites), good, tuple(limited(diagnostics, limits)), remarks)


def _python(
    suites: Sequence[Suite], allowed: bool, named: Sequence[str], lines_of: Callable[[str], list[str]]
) -> list[Diagnostic]:
    """Files that ask for Python, without the word of the person who runs them."""
    found = []
    for suite in suites:
        for case in suite.cases:
            parts: list[PythonModule | Kernel] = [*([case.module] if case.module else []), *case.kernels]
            for part in () if allowed else parts:
                hint = "read that file, then add --allow-python"
                what = f"case {case.name!r} brings Python of its own"
                if not isinstance(part, PythonModule):
                    what = f"kernel {part.name!r} is Python, which brings code of its own"
                found.append(Diagnostic(part.span, what, hint, text=_line(lines_of(case.file), part.span.line)))
        for backend in suite.backends:
            message, hint = file_refusal(backend.backend, named, allowed)
            if message:
                found.append(_of_backend(suite, backend, message, hint))
    return found


def _selection_warnings(suites: Sequence[Suite], variants: Sequence[Variant], narrowed: bool) -> list[Diagnostic]:
    """Warnings for a suite's selection that keeps nothing, or that names a tag or a case which no case has."""
    warnings = []
    kept = {name for names in {variant.suites for variant in variants} for name in names}
    for suite in suites:
        if suite.select is None or suite.select_span is None or not suite.cases:
            continue
        values = {
            "tag": [tag for case in suite.cases for tag in case.tags],
            "case": [case.name for case in suite.cases],
        }
        messages = parse_selection(suite.select).idle_terms(values)
        if suite.name not in kept and not narrowed:
            messages.append(f"suite {suite.name!r} selects none of its {plural(len(suite.cases), 'case')}")
        span = suite.select_span
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
    by_case: dict[int, list[Variant]] = {}
    for variant in variants:
        group = by_case.setdefault(id(variant.case), [])
        if thorough or not group:
            group.append(variant)
    errors: dict[str, int] = defaultdict(int)
    bad = set()
    room = limits.source_characters
    for key, group in by_case.items():
        case = group[0].case
        if errors[case.file] > limits.diagnostics:
            # As many as are shown: the rest of the file is not looked at, and does not run.
            bad.add(key)
            continue
        found, size = check(case, group, lines_of(case.file), limits, room)
        room -= size
        diagnostics += found
        wrong = sum(d.severity == "error" for d in found)
        errors[case.file] += wrong
        if wrong:
            bad.add(key)
    return bad


def _lines(file: str) -> list[str]:
    try:
        return split_lines(read_text(file, "replace"))
    except OSError:
        return []


def _line(lines: list[str], line: int) -> str:
    return lines[line - 1] if 0 < line <= len(lines) else ""
