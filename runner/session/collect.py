"""From what the command line names to checked variants: reading, selecting, and the checks that need both."""

from __future__ import annotations

import functools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.builder.source import check
from runner.cases.backends import file_refusal, hint_for, name_fault, own_names
from runner.cases.expand import expand
from runner.cases.limits import Limits
from runner.cases.model import DEVICES, Backend, Kernel, PythonModule, Suite, Variant
from runner.cases.problems import limited
from runner.cases.select import Predicate, parse_selection
from runner.cases.suites import PathError, Reader, discover
from runner.cases.yaml.scalars import split_lines
from runner.diagnostics import Diagnostic, InputError, Span, nearest, source_line
from runner.exit_codes import UsageError
from runner.session.settings import RunSettings

_COMPARED = 5000
"""Ids that a misspelt one is compared with: each takes 20 microseconds."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Suites, their variants, and what is wrong. With errors among the diagnostics the variants are those beside them."""

    suites: tuple[Suite, ...]
    variants: tuple[Variant, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def errors(self) -> list[Diagnostic]:
        """Diagnostics that make a run impossible."""
        return [d for d in self.diagnostics if d.severity == "error"]

    def selected(self, expression: str | None) -> Loaded:
        """Return it with the variants that ``-k`` keeps. Raises SelectError."""
        if not expression:
            return self
        return replace(self, variants=tuple(filter(parse_selection(expression), self.variants)))


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
    Raises PathError, InputError for axes that multiply beyond the limit, and UsageError for a typed name that can be no backend's.
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
                f"--device {device}: torch has no such device; {nearest(device, DEVICES) or 'such as ' + ', '.join(DEVICES[:4])}"
            )
    limits = limits or Limits()
    lines_of = functools.cache(_lines)
    reader = Reader(limits, any_device=any_device)
    files, nodes = _split(paths)
    suites = reader.files(files) if everything else reader.suites(files)
    diagnostics = list(reader.problems)
    diagnostics += _python(suites, allow_python, backends, lines_of)
    if everything:
        diagnostics += _unknown(suites, backends)
    try:
        variants = expand(suites, backends, devices, limits, diagnostics)
    except InputError as error:
        raise InputError(limited(error.diagnostics, limits)) from None
    bad = _check(variants, limits, everything, diagnostics, lines_of)
    chooses = _chooser(nodes, suites)
    refused = {id(b) for suite in suites for b in suite.backends if file_refusal(b.backend, backends, allow_python)[0]}
    # Refused means that it does not run, even beside cases that do.
    good = [
        v
        for v in variants
        if id(v.case) not in bad
        and chooses(v)
        and (allow_python or not (v.case.module or v.case.kernels))
        and id(v.backend) not in refused
    ]
    _all_named(nodes, suites, good, variants, diagnostics)
    return Loaded(tuple(suites), tuple(good), tuple(limited(diagnostics, limits)))


def names_nodes(paths: Sequence[str]) -> bool:
    """Whether a path names cases of its file or folder, and so leaves others out."""
    return any(node.name is not None for node in _split(paths)[1])


@dataclass(frozen=True, slots=True)
class _Node:
    """A ``PATH::NAME`` of the command line: the files that it means, and a case or variant in one of them (None: all).

    ``narrowed`` are those files of which nothing runs but what is named.
    """

    path: str
    files: frozenset[str]
    name: str | None
    narrowed: frozenset[str]


def _split(paths: Sequence[str]) -> tuple[list[str], list[_Node]]:
    """Files and folders to read, and what is asked of each.

    A folder named as a whole leaves nothing out because of a name in a folder around it; a name in one of its files does.

    Raises:
        PathError: a path is empty, or a folder with a name holds nothing.
    """
    pairs = [_cut(path) for path in paths]
    whole = [_resolved(path) for path, name in pairs if name is None and os.path.isdir(path)]
    reading: dict[str, None] = {}
    nodes = []
    for path, name in pairs:
        if not os.path.isdir(path):
            file = frozenset({_resolved(path)})
            nodes.append(_Node(path, file, name, file))
            reading[path] = None
        elif name is None:
            reading[path] = None
        else:
            files = frozenset(map(str, discover([path])))
            apart = frozenset(file for file in files if not any(Path(file).is_relative_to(folder) for folder in whole))
            nodes.append(_Node(path, files, name, apart))
            reading.update(dict.fromkeys(sorted(files)))
    return [*reading], nodes


def _cut(path: str) -> tuple[str, str | None]:
    """The file or folder that a path of the command line names, and what follows its ``::``.

    Folders may have a ``::`` in their names, and so may the values in a variant's id: what exists decides.
    """
    if not path:
        raise PathError("an empty path; did a shell variable have no value?")
    cuts = [(path[: match.start()] or ".", path[match.end() :]) for match in re.finditer("::", path)]
    if not cuts or os.path.lexists(path):
        return path, None
    files = [cut for cut in cuts if cut[0].endswith(".yaml")]
    folders = [cut for cut in cuts if os.path.isdir(cut[0])]
    existing = [cut for cut in files if os.path.lexists(cut[0])] or folders[-1:] or files
    return existing[0] if existing else (path, None) if path.endswith(".yaml") else cuts[0]


def _resolved(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # a NUL in it: no such file
        return path


def _sources(suites: Sequence[Suite]) -> Callable[[Variant], frozenset[str]]:
    """Says which files bring a variant: that of its case, and its suites'."""
    known: dict[tuple[tuple[str, ...], str], frozenset[str]] = {}

    def sources(variant: Variant) -> frozenset[str]:
        key = variant.suites, variant.case.file
        if key not in known:
            known[key] = frozenset(suite.file for suite in suites if suite.name in variant.suites) | {variant.case.file}
        return known[key]

    return sources


def _chooser(nodes: Sequence[_Node], suites: Sequence[Suite]) -> Predicate:
    """Whether a variant is asked for. A file's names add up; with the file itself among them they leave nothing out."""
    sources = _sources(suites)
    groups: dict[frozenset[str], set[str | None]] = {}
    for node in nodes:
        groups.setdefault(node.narrowed, set()).add(node.name)
    relevant: dict[frozenset[str], list[set[str | None]]] = {}

    def chooses(variant: Variant) -> bool:
        files = sources(variant)
        if files not in relevant:
            relevant[files] = [names for group, names in groups.items() if group & files]
        lists = relevant[files]
        # None: it came with a folder.
        return not lists or any(None in names or any(name in names for name in _names(variant)) for names in lists)

    return chooses


def _names(variant: Variant) -> Iterator[str]:
    """Every node id that names this variant: the case, with or without its axes and its backend."""
    own = _own(variant)
    yield own
    for match in re.finditer(r"[\[@]", own):
        yield own[: match.start()]


def _own(variant: Variant) -> str:
    """The id after its file. A param's value may hold a ``::`` of its own."""
    return variant.id[len(variant.where) + 2 :]


def _all_named(
    nodes: Sequence[_Node],
    suites: Sequence[Suite],
    good: Sequence[Variant],
    variants: Sequence[Variant],
    diagnostics: Sequence[Diagnostic],
) -> None:
    """Raises InputError, with all errors of the files, for a node that names none of the variants.

    One whose case is there and has an error is not missing: that error is said.
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
        if not variants:
            raise PathError(f"{node.path}: no case here, so none matches {name!r}")
        case = name.partition("[")[0]
        ids = [_own(v) for v in variants if v.case.name == case] or [_own(v) for v in variants]
        near = nearest(name, dict.fromkeys(v.case.name for v in variants)) or nearest(name, ids[:_COMPARED])
        among = " that can be read" if errors else ""
        raise InputError([*errors, Diagnostic(variants[0].case.span, f"no case{among} matches {name!r}", near)])


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
        by_case.setdefault(id(variant.case), []).append(variant)
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
        wrong = sum(d.severity == "error" for d in found)
        errors[case.file] += wrong
        if wrong:
            bad.add(key)
    return bad


def _lines(file: str) -> list[str]:
    try:
        return split_lines(Path(file).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def _line(lines: list[str], line: int) -> str:
    return lines[line - 1] if 0 < line <= len(lines) else ""
