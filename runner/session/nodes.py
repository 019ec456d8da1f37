"""The node ids of a command line: ``FILE::CASE``, ``FOLDER::CASE``, and every id that a command prints.

A printed id says more than its file does: the backend and the device, which a suite or an option may have brought. What
the file itself does not expand to is added for such an id alone (``added_variants``).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.cases.backends import file_refusal, own_names
from runner.cases.expand import Predicate, expand
from runner.cases.limits import Limits
from runner.cases.model import Backend, Case, Suite, Variant
from runner.cases.suites import SUITE, PathError, Reader, discover
from runner.diagnostics import Diagnostic, InputError, nearest, shown_path
from runner.exit_codes import UsageError
from runner.files import read_text
from runner.record.store import latest_backends, latest_suites

_COMPARED = 5000
"""Ids that a misspelt one is compared with: each takes 20 microseconds."""

_NAMED = 8
"""Cases that an error names."""

_NEARBY = 100
"""Suite files in which a backend of an id is looked for."""

_END = re.compile(r"(?:[\[,](?P<device>\w+(?::[0-9]{1,2})?)\])?(?:@(?P<backend>[^@,\[\]\s]+))?$", re.ASCII)
"""How an id ends: ``...,cuda:1]@backend``."""


@dataclass(frozen=True, slots=True)
class Node:
    """A ``PATH::NAME`` of the command line: the files that it means, and a case or variant in one of them (None: all).

    ``narrowed`` are those files of which nothing runs but what is named.
    """

    path: str
    files: frozenset[str]
    name: str | None
    narrowed: frozenset[str]

    @property
    def case(self) -> str:
        """The name of the case."""
        text = re.split(r"[\[@]", self.name or "", maxsplit=1)[0]
        return text.rpartition(".yaml::")[2]

    @property
    def backend(self) -> str:
        """The backend that the id names; empty if it names none."""
        return self._end("backend")

    @property
    def device(self) -> str:
        """The device that the id names; empty if it names none."""
        return self._end("device")

    def _end(self, part: str) -> str:
        match = _END.search(self.name or "")
        return (match and match[part]) or ""


def names_nodes(paths: Sequence[str]) -> bool:
    """Whether a path names cases of its file or folder, and so leaves others out."""
    return any(_cut(path)[1] is not None for path in paths)


def split_paths(paths: Sequence[str]) -> tuple[list[str], list[Node]]:
    """Return files and folders to read, and what is asked of each.

    A folder named as a whole leaves nothing out because of a name in a folder around it; a name in one of its files
    does. An id that the latest run planned means what it meant there: it is read from that run's suite.

    Raises:
        PathError: a path is empty, or a folder with a name holds nothing.
    """
    pairs = [_cut(path) for path in paths]
    suites = latest_suites(paths)
    pairs = [(suites[path], path) if path in suites else pair for path, pair in zip(paths, pairs, strict=True)]
    whole = [_resolved(path) for path, name in pairs if name is None and os.path.isdir(path)]
    reading: dict[str, None] = {}
    nodes = []
    for path, name in pairs:
        if not os.path.isdir(path):
            file = frozenset({_resolved(path)})
            nodes.append(Node(path, file, name, file))
            reading[path] = None
        elif name is None:
            reading[path] = None
        else:
            files = frozenset(map(str, discover([path])))
            apart = frozenset(file for file in files if not any(Path(file).is_relative_to(folder) for folder in whole))
            nodes.append(Node(path, files, name, apart))
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


def node_predicate(nodes: Sequence[Node], suites: Sequence[Suite]) -> Predicate:
    """Return whether a variant is asked for.

    A file's names add up; with the file itself among them they leave nothing out.
    """
    if all(node.name is None for node in nodes):
        return lambda _: True
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
        for suite in owners or suites:
            cases = tuple(case for case in suite.cases if case.name == node.case)
            if not ({suite.file} | {case.file for case in cases}) & node.files:
                continue
            chosen = (_backend(node, owners, allow_python),) if node.backend else suite.backends
            narrowed = replace(suite, cases=cases, backends=tuple(filter(None, chosen)))
            expanded = expand([narrowed], backends, devices or ((node.device,) if node.device else ()), limits)
            added.update({v.id: v for v in expanded if node.name in _names(v)})
    return [*added.values()]


def _owners(node: Node, suites: Sequence[Suite], limits: Limits) -> list[Suite]:
    """The suites that define an id's backend: of these, else of the nearby files.

    Raises UsageError where they differ.
    """
    defining = [suite for suite in suites if _defined(suite, node.backend)]
    if defining or node.backend in own_names():
        return defining
    nearby = [suite for suite in _nearby(node, limits) if _defined(suite, node.backend)]
    if any(_defined(suite, node.backend) != _defined(nearby[0], node.backend) for suite in nearby):
        choices = "".join(f"\n  {shown_path(suite.file)}::{node.name}" for suite in nearby)
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
    reason, hint = file_refusal(backend.backend, latest_backends(), allow_python)
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
            named = node.backend in read_text(path, "replace")
            suite = reader.suite(path) if named else None
            if suite is not None:
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
        among = " that can be read" if errors else ""
        meant = next((case for known, case in cases.items() if repr(known) in near), there[0])
        hint = near or f"cases there: {', '.join([*cases][:_NAMED])}{', ...' if len(cases) > _NAMED else ''}"
        raise InputError([*errors, Diagnostic(meant.span, f"no case{among} matches {name!r}", hint)])


def _absence(
    node: Node, suites: Sequence[Suite], variants: Sequence[Variant], devices: Sequence[str]
) -> Diagnostic | None:
    """Why a case that is there has no variant."""
    if any(variant.case.name == node.case for variant in variants):
        return None
    for suite in suites:
        for case in suite.cases:
            if case.name == node.case and {suite.file, case.file} & node.files:
                reason = device_reason(suite, case, devices) or f"suite {suite.name!r} does not select it"
                return Diagnostic(case.span, f"case {case.name!r} has no variant here: {reason}")
    return None


def device_reason(suite: Suite, case: Case, devices: Sequence[str]) -> str:
    """Return why a case runs on none of the devices that ``--device`` and its suite leave; empty if it does on one."""
    declared = "devices" in case.axes or not devices
    left = [device for device in (case.devices if declared else devices) if not devices or device in devices]
    if not left:
        return f"it runs on {' and '.join(case.devices)} alone (devices:), and --device is {' and '.join(devices)}"
    if suite.devices and not set(left) & set(suite.devices):
        return (
            f"suite {suite.name!r} runs on {' and '.join(suite.devices)} alone (devices:), and the case on "
            f"{' and '.join(left)}"
        )
    return ""
