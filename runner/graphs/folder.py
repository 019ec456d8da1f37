"""A folder of captured cases: spec files, a suite over them, and an inventory of what was captured.

A folder may be written into again: a case that it already has is counted, and written once.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.cases.serialize import emit
from runner.cases.suites import SPEC, SUITE
from runner.cases.tensor_files import ENDING
from runner.contract.graphs import Capture, Graph, Tensor
from runner.engine import scratch
from runner.exit_codes import UsageError
from runner.files import link_problem, read_text, replace_text, write_anew
from runner.graphs.cases import WrittenGraph, fault_of, lost_flags, write_graph
from runner.graphs.grains import Grain, digest_of, parts_of
from runner.graphs.text import text_of
from runner.quote import QuoteError, markdown_text
from runner.session.collect import load
from runner.text import in_line, one_line

INVENTORY = "inventory.json"
PAGE = "inventory.md"
VERSION = 1
PER_FILE = 100
ORIGINAL = "original"
"""The tag of cases that the suite leaves out, since smaller ones stand for them."""
LONGEST = 60
"""Letters of a model's name that the name of a case keeps."""


Shrink = Callable[[Sequence[Graph]], Sequence[Graph]]
_Parts = Sequence[tuple[Graph, Sequence[tuple[str, Graph]]]]


@dataclass(slots=True)
class _Written:
    """A part as a case of a name. ``problem`` says why the format refuses it."""

    name: str
    graph: WrittenGraph
    problem: str = ""


class _FreeNames:
    """Gives each case a name of its own: ``linear``, ``linear_2`` and so on."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._last: Counter[str] = Counter()

    def free(self, stem: str) -> str:
        """Return a name that begins so, and take it."""
        while True:
            self._last[stem] += 1
            name = stem if self._last[stem] == 1 else f"{stem}_{self._last[stem]}"
            if name not in self._taken:
                self._taken.add(name)
                return name


@dataclass(slots=True)
class Folder:
    """What a folder of captured cases holds, and what is added to it."""

    path: Path
    models: list[dict[str, Any]] = field(default_factory=list)
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)  # by digest
    added: dict[str, list[WrittenGraph]] = field(default_factory=dict)  # by the start of a file's name

    @property
    def suite(self) -> Path:
        """The path of the suite over all cases, which ``save`` writes."""
        return self.path / f"captured{SUITE}"

    def add(self, capture: Capture, by: Grain, kind: str = "captured", shrink: Shrink | None = None) -> dict[str, Any]:
        """Add what was captured of one model, and return its entry in the inventory.

        The entry takes the place of an earlier one of the same model in the same configuration. With ``shrink`` the
        smaller graphs that it returns take the place of others, which are kept with a tag.
        """
        digest = _digest(capture)
        capture = replace(capture, model=self._name(capture.model, digest))
        parts: _Parts
        parts = [(graph, [(digest_of(part), part) for part in parts_of(graph, by)]) for graph in capture.graphs]
        if shrink is not None:
            parts = self._shrunk(parts, capture, by, kind, shrink)
        new = {digest: part for _, own in parts for digest, part in own if digest not in self.cases}
        written = self._write(new, capture, by, kind)
        graphs = [self._add_graph(graph, own, written, capture, by) for graph, own in parts]
        faults: Counter[tuple[str, str]] = Counter()
        for graph, own in parts:
            faults.update(_faults_of(graph, own, written, by))
        entry = {
            "model": capture.model,
            "digest": digest,
            "torch": capture.torch,
            "seconds": round(capture.seconds, 3),
            "graphs": graphs,
            "calls": sum(call.count for graph in capture.graphs for call in graph.calls),
            "sayable": sum(call.count for graph in capture.graphs for call in graph.calls if not fault_of(call)),
            "breaks": [{"reason": b.reason, "source": b.source} for b in capture.breaks],
            "operators": dict(_counted((c.operator, c.count) for g in capture.graphs for c in g.calls).most_common()),
            "faults": [{"what": what, "reason": why, "count": n} for (what, why), n in faults.most_common()],
            "refused": [f"{new[digest].origin}: {each.problem}" for digest, each in written.items() if each.problem],
            "notes": [*capture.notes, *lost_flags(capture.graphs)],
        }
        self.models = [model for model in self.models if model["model"] != capture.model] + [entry]
        return entry

    def _name(self, model: str, digest: str) -> str:
        """Return a model's name in the inventory: with a free number where the name is that of another configuration.

        An entry without a digest was written before entries had one.
        """
        digests = {entry["model"]: entry.get("digest", digest) for entry in self.models}
        stem = re.sub(r" \d+$", "", model)
        names = itertools.chain([model], (f"{stem} {n}" for n in itertools.count(2)))
        return next(name for name in names if digests.get(name, digest) == digest)

    def _shrunk(self, parts: _Parts, capture: Capture, by: Grain, kind: str, shrink: Shrink) -> _Parts:
        """Return the smaller parts, and write those that became smaller with a tag."""
        large = {digest: part for _, own in parts for digest, part in own}
        small = dict(zip(large, shrink([*large.values()]), strict=True))
        kept = {digest: part for digest, part in large.items() if small[digest] is not part}
        new = {digest: part for digest, part in kept.items() if digest not in self.cases}
        self._write(new, capture, by, kind, ORIGINAL)
        digests = {digest: digest_of(part) for digest, part in small.items()}
        return [
            (graph, [(digests[digest], _counted_like(small[digest], part)) for digest, part in own])
            for graph, own in parts
        ]

    def _add_graph(
        self,
        graph: Graph,
        parts: Sequence[tuple[str, Graph]],
        written: Mapping[str, _Written],
        capture: Capture,
        by: Grain,
    ) -> dict[str, Any]:
        """Count the parts of a graph, and return its entry."""
        names = []
        for digest, part in parts:
            known = self.cases.get(digest)
            if known is not None:
                uses = part.calls[0].count if by == "operator" else 1
                known["count"] += uses
                known["uses"][capture.model] = known["uses"].get(capture.model, 0) + uses
                names.append(known["name"])
        is_whole = not _faults_of(graph, parts, written, by)
        return {
            "name": graph.name, "calls": len(graph.calls), "cases": list(dict.fromkeys(names)), "whole": is_whole,
        }  # fmt: skip

    def _write(
        self, parts: Mapping[str, Graph], capture: Capture, by: Grain, kind: str, tag: str = ""
    ) -> dict[str, _Written]:
        """Write parts as cases, by their digests; what the format refuses becomes no case."""
        stem, tags = slug(f"{capture.model} {tag}"), (kind, tag) if tag else (kind,)
        written, names = {}, _FreeNames(case["name"] for case in self.cases.values())
        for digest, part in parts.items():
            name = names.free(stem if by == "graph" else slug(f"{part.name} {tag}"))
            written[digest] = _Written(name, write_graph(part, name, _doc(part, capture, kind), tags))
        graphs = {digest: each.graph for digest, each in written.items() if each.graph.case is not None}
        for digest, problem in problems_of(graphs, self.path).items():
            written[digest].problem = problem
        for digest, graph in graphs.items():
            if not written[digest].problem:
                operator = parts[digest].calls[0].operator if by == "operator" else ""
                self.cases[digest] = {
                    "name": written[digest].name, "count": 0, "model": capture.model, "uses": {},
                    "operator": operator, "call": call_text(parts[digest]), **({"tag": tag} if tag else {}),
                }  # fmt: skip
                self.added.setdefault(stem if by == "graph" else f"{stem}_{by}s", []).append(graph)
        return written

    def save(self, backends: Sequence[Any] = ("aot_eager", "inductor")) -> list[Path]:
        """Write the files, and return their paths: spec files, the suite, the inventory and its page.

        Args:
            backends: what the suite runs under, as a suite file names them.
        """
        paths = []
        for stem, graphs in self.added.items():
            for start in range(0, len(graphs), PER_FILE):
                paths.append(self.free(stem))
                replace_text(paths[-1], text_of(graphs[start : start + PER_FILE]))
        self.added.clear()
        name = slug(self.path.name)
        inventory, page = self.path / INVENTORY, self.path / PAGE
        is_original = any("tag" in case for case in self.cases.values())
        select = {"select": f"not tag:{ORIGINAL}"} if is_original else {}
        replace_text(self.suite, emit({"suite": name, "specs": [f"*{SPEC}"], **select, "backends": [*backends]}))
        data = {"version": VERSION, "models": self.models, "cases": self.cases}
        replace_text(inventory, json.dumps(data, indent=1) + "\n")
        replace_text(page, page_of(self.models, self.cases))
        return [*paths, self.suite, inventory, page]

    def free(self, stem: str, ending: str = SPEC) -> Path:
        """Return the path of a file that is not there yet, and whose name begins so."""
        names = (f"{stem}{f'_{n}' if n else ''}{ending}" for n in range(1_000_000))
        return next(path for name in names if not (path := self.path / name).exists())


def open_folder(path: Path) -> Folder:
    """Return a folder that is new or empty, or holds an inventory.

    Raises:
        UsageError: it holds something else, or cannot be used.
    """
    try:
        if problem := link_problem(str(path)):
            raise UsageError(f"--output {path}: {problem}")
        path.mkdir(exist_ok=True)
        if (path / INVENTORY).is_file():
            data = json.loads(read_text(path / INVENTORY))
            return Folder(path.resolve(), list(data["models"]), dict(data["cases"]))
        if any(path.iterdir()):
            raise UsageError(f"--output {path}: there is something in it, and no {INVENTORY}; name another folder")
    except OSError as error:
        raise UsageError(f"--output {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"--output {path}: {INVENTORY} is not runner's") from None
    return Folder(path.resolve())


def problems_of(graphs: Mapping[str, WrittenGraph], folder: Path | None = None) -> dict[str, str]:
    """Return why the format refuses the cases of graphs, each in one line, by their keys.

    ``folder`` has the files that they name.

    A file of them is read; one that has errors is halved, since most files have none.
    """
    problems: dict[str, str] = {}
    keys = list(graphs)
    waiting = [keys[start : start + PER_FILE] for start in range(0, len(keys), PER_FILE)]
    with scratch.folder() as own:
        path = own / f"cases{SPEC}"
        for file in folder.glob(f"*{ENDING}") if folder is not None else ():
            _put(file, own / file.name)
        while waiting:
            some = waiting.pop()
            problem = _problem(path, [graphs[key] for key in some])
            if problem and len(some) == 1:
                problems[some[0]] = problem
            elif problem:
                waiting += [some[: len(some) // 2], some[len(some) // 2 :]]
    return problems


def _put(file: Path, place: Path) -> None:
    """Let a file be at another place, too: a spec file follows no link out of its folder."""
    try:
        os.link(file, place)
    except OSError:  # another file system
        shutil.copyfile(file, place)


def _problem(path: Path, graphs: Sequence[WrittenGraph]) -> str:
    try:
        write_anew(path, text_of(graphs))
    except QuoteError as error:
        return str(error)
    errors = [d for d in load([str(path)], everything=True).diagnostics if d.severity == "error"]
    return one_line(errors[0].message) if errors else ""


def _digest(capture: Capture) -> str:
    """Return what is equal for captures of a model in one configuration, with inputs of the same metadata."""
    graphs = [replace(g, inputs=tuple(replace(each, values=None) for each in g.inputs)) for g in capture.graphs]
    return hashlib.sha256("".join(map(digest_of, graphs)).encode()).hexdigest()[:16]


def _faults_of(
    graph: Graph, parts: Sequence[tuple[str, Graph]], written: Mapping[str, _Written], by: Grain
) -> Counter[tuple[str, str]]:
    """Return what the cases of a graph lack, each with how often. Parts overlap, so that those of them are counted once
    for each call."""
    own = [(digest, part) for digest, part in parts if digest in written]
    faults = Counter((part.name, problem) for digest, part in own if (problem := written[digest].problem))
    if by == "graph":
        faults.update((fault.operator, fault.reason) for digest, _ in own for fault in written[digest].graph.faults)
    else:
        faults.update((call.operator, reason) for call in graph.calls if (reason := fault_of(call)))
    return faults


def _counted_like(small: Graph, part: Graph) -> Graph:
    """Return a smaller graph with the counts of one that it stands for: several may have its digest."""
    pairs = zip(small.calls, part.calls, strict=True)
    return replace(small, calls=tuple(replace(call, count=own.count) for call, own in pairs))


def call_text(part: Graph) -> str:
    """Return what a call takes, in a line: ``torch.add(float32[2, 3], 1)``, with strides where a tensor is not
    contiguous; empty for several calls."""
    if len(part.calls) != 1:
        return ""
    (call,) = part.calls
    tensors = {f"${each.name}": _tensor_text(each.tensor) for each in part.inputs if each.tensor is not None}

    def text(value: Any) -> str:
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(text, value))}]"
        return tensors.get(value, str(value)) if isinstance(value, str) else str(value)

    keywords = [f"{key}={text(value)}" for key, value in call.keywords.items()]
    return one_line(f"{call.operator}({', '.join([*map(text, call.positional), *keywords])})", 300)


def _tensor_text(tensor: Tensor) -> str:
    strides = "" if tensor.stride is None else f" strides {list(tensor.stride)}"
    return f"{tensor.dtype}{list(tensor.shape)}{strides}"


def slug(name: str) -> str:
    """Return a name for files and cases: small letters, digits and ``_``."""
    words = re.sub(r"[^A-Za-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).strip("_").lower()
    return words[:LONGEST] or "model"


def _doc(part: Graph, capture: Capture, kind: str) -> str:
    return in_line(f"{part.origin}, {part.name}, {kind}{f' with torch {capture.torch}' if capture.torch else ''}")


def _counted(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
    counter: Counter[str] = Counter()
    for key, count in pairs:
        counter[key] += count
    return counter


def page_of(models: Sequence[Mapping[str, Any]], cases: Mapping[str, Any]) -> str:
    """Return the page of an inventory, in Markdown."""
    lines = ["# Captured models", "", f"{len(cases)} cases.", ""]
    rows = ["| model | graphs | whole | calls | expressible | breaks |", "| --- | --- | --- | --- | --- | --- |"]
    for model in models:
        whole = sum(graph["whole"] for graph in model["graphs"])
        share = f"{100 * model['sayable'] / model['calls']:.1f} %" if model["calls"] else "-"
        rows.append(
            f"| {_cell(model['model'])} | {len(model['graphs'])} | {whole} | {model['calls']} | {share} "
            f"| {len(model['breaks'])} |"
        )
    lines += rows
    for model in models:
        lines += ["", f"## {_cell(model['model'])}", ""]
        lines += [f"* graph break: {_cell(b['reason'])} {_cell(b['source'])}".rstrip() for b in model["breaks"]]
        lines += [f"* left out: {_cell(f['what'])}, {f['count']} times: {_cell(f['reason'])}" for f in model["faults"]]
        lines += [f"* {_cell(note)}" for note in model["notes"]]
        lines += ["", "| operator | calls |", "| --- | --- |"]
        lines += [f"| {_cell(name)} | {count} |" for name, count in model["operators"].items()]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return markdown_text(one_line(text, 300))
