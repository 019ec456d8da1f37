"""From what the command line names to checked variants: reading, selecting, and the checks that need both."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.builder.source import check
from runner.diagnostics import Diagnostic, InputError, nearest
from runner.spec.expand import expand
from runner.spec.limits import Limits
from runner.spec.model import Backend, Case, Kernel, PythonModule, Suite, Variant
from runner.spec.read import Reader
from runner.spec.select import Predicate
from runner.spec.source import split_lines

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


def load(
    paths: Sequence[str],
    *,
    backends: Sequence[str] = (),
    devices: Sequence[str] = (),
    allow_python: bool = False,
    limits: Limits | None = None,
    everything: bool = False,
) -> Loaded:
    """Read ``paths`` (``FILE::CASE`` among them) and expand them.

    ``everything`` reads all files below folders and writes every variant out, where otherwise one a case is enough.
    Raises PathError, and InputError for axes that multiply beyond the limit.
    """
    limits = limits or Limits()
    reader = Reader(limits)
    files, nodes = _split(paths)
    suites = reader.files(files) if everything else reader.suites(files)
    diagnostics = list(reader.problems)
    diagnostics += _python(suites, allow_python, backends)
    variants = expand(suites, backends, devices, limits, diagnostics)
    bad = _check(variants, limits, everything, diagnostics)
    wanted = _wanted(nodes, suites)
    refused = {id(backend) for suite in suites for backend in suite.backends if _refused(backend, backends)}
    # Refused means that it does not run, even beside cases that do.
    good = [
        v
        for v in variants
        if id(v.case) not in bad
        and wanted(v)
        and (allow_python or not (v.case.module or v.case.kernels))
        and id(v.backend) not in refused
    ]
    if not any(d.severity == "error" for d in diagnostics):  # else it may be among those
        _all_named([node for chosen in nodes.values() for node in chosen], good, variants)
    return Loaded(tuple(suites), tuple(good), tuple(dict.fromkeys(diagnostics)))


def names_nodes(paths: Sequence[str]) -> bool:
    """Whether a path names cases of its file, and so leaves others out."""
    return any(_split(paths)[1].values())


def _split(paths: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Files, and for each the node ids that follow its ``::`` (none: all of it)."""
    nodes: dict[str, list[str]] = {}
    whole = set()
    files: dict[str, None] = {}
    for path in paths:
        # The first :: that follows a file's ending: folders may have one in their names.
        file, colons, node = path.partition(".yaml::")
        if colons:
            file += ".yaml"
        elif not path.endswith(".yaml"):
            file, colons, node = path.partition("::")
        files[file] = None
        key = str(Path(file).resolve())
        nodes.setdefault(key, [])
        if colons:
            nodes[key].append(node)
        else:
            whole.add(key)
    return [*files], {file: [] if file in whole else chosen for file, chosen in nodes.items()}


def _wanted(nodes: dict[str, list[str]], suites: Sequence[Suite]) -> Predicate:
    """Whether a variant is among the node ids given for the file (or suite) that brought it."""
    chosen = {file: frozenset(names) for file, names in nodes.items()}
    asked: dict[tuple[tuple[str, ...], str], list[frozenset[str]]] = {}  # for the suites and the file of a variant

    def wanted(variant: Variant) -> bool:
        brought = variant.suites, variant.case.file
        if brought not in asked:
            sources = {suite.file for suite in suites if suite.name in variant.suites} | {variant.case.file}
            asked[brought] = [names for file, names in chosen.items() if file in sources]
        lists = asked[brought]
        # None: it came with a folder. An empty one: its file was named as a whole.
        return not lists or not all(lists) or any(name in names for name in _names(variant) for names in lists)

    return wanted


def _names(variant: Variant) -> Iterator[str]:
    """Every node id that names this variant: the case, with or without its axes and its backend."""
    own = _own(variant)
    yield own
    for match in re.finditer(r"[\[@]", own):
        yield own[: match.start()]


def _own(variant: Variant) -> str:
    """The id after its file. A param's value may hold a ``::`` of its own."""
    return variant.id[len(variant.where) + 2 :]


def _all_named(nodes: Sequence[str], good: Sequence[Variant], variants: Sequence[Variant]) -> None:
    """Raises InputError for a node id that names none of the variants."""
    missing = set(nodes)
    for variant in good if missing else ():
        missing.difference_update(_names(variant))
        if not missing:
            return
    for name in nodes:
        if name not in missing:
            continue
        case = name.partition("[")[0]
        ids = [_own(v) for v in variants if v.case.name == case] or [_own(v) for v in variants]
        near = nearest(name, dict.fromkeys(v.case.name for v in variants)) or nearest(name, ids[:_COMPARED])
        raise InputError([Diagnostic(variants[0].case.span, f"no case matches {name!r}", near)] if variants else [])


def _python(suites: Sequence[Suite], allowed: bool, named: Sequence[str]) -> list[Diagnostic]:
    """Files that ask for Python, without the word of the person who runs them."""
    found = []
    for suite in suites:
        for case in suite.cases:
            parts: list[PythonModule | Kernel] = [*([case.module] if case.module else []), *case.kernels]
            for part in parts:
                if not allowed:
                    hint = "read that file, then add --allow-python"
                    what = f"case {case.name!r} brings Python of its own"
                    if not isinstance(part, PythonModule):
                        what = f"kernel {part.name!r} is Python, which brings code of its own"
                    found.append(Diagnostic(part.span, what, hint, text=_line(case, part.span.line)))
        for backend in suite.backends:
            package = backend.backend.partition(":")[0]
            if _refused(backend, named):
                from runner.diagnostics import Span

                message = f"backend {backend.backend!r} is refused: {package} is Python's own, no backend's package"
                found.append(Diagnostic(Span(suite.file, 1, 1), message))
    return found


def _refused(backend: Backend, named: Sequence[str]) -> bool:
    """Whether a file's backend lives in Python's own library, and nobody asked for it on the command line."""
    package, colon, _ = backend.backend.partition(":")
    return bool(colon) and backend.backend not in named and package.split(".")[0] in sys.stdlib_module_names


def _check(variants: Sequence[Variant], limits: Limits, thorough: bool, diagnostics: list[Diagnostic]) -> set[int]:
    """Write cases out to find what only that can tell; the ids of the case objects with errors."""
    by_case: dict[int, list[Variant]] = {}
    for variant in variants:
        by_case.setdefault(id(variant.case), []).append(variant)
    lines: dict[str, list[str]] = {}
    bad = set()
    for key, group in by_case.items():
        case = group[0].case
        if case.file not in lines:
            lines[case.file] = _lines(case.file)
        found = check(case, group if thorough else group[:1], lines[case.file], limits)
        diagnostics += found
        if any(d.severity == "error" for d in found):
            bad.add(key)
    return bad


def _lines(file: str) -> list[str]:
    try:
        return split_lines(Path(file).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def _line(case: Case, line: int) -> str:
    lines = _lines(case.file)
    return lines[line - 1] if 0 < line <= len(lines) else ""
