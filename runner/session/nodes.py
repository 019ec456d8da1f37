"""What paths and ids of a command line name: files to read, and cases or variants of them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.cases.model import Suite
from runner.cases.suites import SPEC, SUITE, PathError, discover
from runner.cases.yaml.reader import similar_file
from runner.diagnostics import shown_path
from runner.record.store import latest_suites

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


def named_axes(paths: Sequence[str]) -> dict[str, set[str]]:
    """Return the backends and the devices that ids among paths name, by ``backend`` and ``device``."""
    nodes = [Node("", frozenset(), cut_path(path)[1], frozenset()) for path in paths if path]
    return {"backend": {node.backend for node in nodes} - {""}, "device": {node.device for node in nodes} - {""}}


def names_nodes(paths: Sequence[str]) -> bool:
    """Whether a path names cases of its file or folder, and so leaves others out."""
    return any(cut_path(path)[1] is not None for path in paths)


def split_paths(paths: Sequence[str]) -> tuple[list[str], list[Node]]:
    """Return files and folders to read, and what is asked of each.

    A folder named as a whole leaves nothing out because of a name in a folder around it; a name in one of its files
    does. An id that the latest run planned means what it meant there: it is read from that run's suite.

    Raises:
        PathError: a path is empty, or a folder with a name holds nothing.
    """
    pairs = [cut_path(path) for path in paths]
    suites = latest_suites(paths)
    pairs = [(suites[path], path) if path in suites else pair for path, pair in zip(paths, pairs, strict=True)]
    whole = [_resolved(path) for path, name in pairs if name is None and os.path.isdir(path)]
    reading: dict[str, None] = {}
    nodes = []
    for path, name in pairs:
        if name is not None and not os.path.lexists(path):
            raise PathError(f"no such file or directory: {path}; {_from_where(path)}")
        if not os.path.isdir(path):
            file = frozenset({_resolved(path)})
            reading[path] = None
            inner, rest = cut_path(name) if name else ("", None)
            if inner.endswith(SUITE) and rest is not None:  # PROFILE::SUITE::FILE::CASE
                file |= {_resolved(inner)}
                reading[inner] = None
                path, name = inner, rest
            nodes.append(Node(path, file | {_resolved(inner)} if inner.endswith(SPEC) else file, name, file))
        elif name is None:
            reading[path] = None
        else:
            files = frozenset(map(str, discover([path])))
            apart = frozenset(file for file in files if not any(Path(file).is_relative_to(folder) for folder in whole))
            nodes.append(Node(path, files, name, apart))
            reading.update(dict.fromkeys(sorted(files)))
    return [*reading], nodes


def _from_where(path: str) -> str:
    """Return where the file of an id that is not here may lie."""
    here = Path(os.getcwd())
    if near := similar_file(Path(path)):
        return near
    above = (os.path.join(*[os.pardir] * (height + 1), path) for height in range(len(here.parents)))
    if not os.path.isabs(path) and (file := next(filter(os.path.exists, above), "")):
        return f"did you mean {file!r}?"
    return f"the folder is {here}, and an id has its path from the folder in which its run began"


def rebased(node: Node, suites: Sequence[Suite]) -> Node:
    """Return ``SUITE::FILE::CASE`` of another folder as it is written in this one; any other node as it is.

    ``FILE`` then means the one file of the suite whose path ends so. Raises PathError where there are more or none.
    """
    inner, name = cut_path(node.name) if node.name else ("", None)
    if name is None or not inner.endswith(SPEC) or "[" in inner or os.path.lexists(inner):
        return node
    end = tuple(part for part in Path(inner).parts if part != os.pardir)
    files = {c.file for suite in suites for c in suite.cases if {suite.file, c.file} & node.files}
    matches = sorted(file for file in files if Path(file).parts[-len(end) :] == end)
    if len(matches) == 1:
        shown = os.path.relpath(matches[0], os.path.realpath(os.getcwd()))
        return replace(node, files=node.files | {matches[0]}, name=f"{shown}::{name}")
    found = f"several files of it end so: {', '.join(map(shown_path, matches))}" if matches else "no file of it ends so"
    raise PathError(f"{node.path}::{node.name}: no file {inner} in {os.getcwd()}, and {found}")


def cut_path(path: str) -> tuple[str, str | None]:
    """Return the file or folder that a path of the command line names, and what follows its ``::``.

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
