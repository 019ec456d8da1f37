"""Files to suites: reads everything that the given paths name, and reports all errors of all files in one go."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.diagnostics import Diagnostic, Span
from runner.spec import schema
from runner.spec.cases import parse_case, with_defaults
from runner.spec.flags import check_flags
from runner.spec.inputs import dtype_name
from runner.spec.kernels import broken, parse_kernels
from runner.spec.limits import Limits
from runner.spec.model import KERNEL_BACKENDS, Backend, Case, Suite
from runner.spec.problems import Problems
from runner.spec.select import SelectError
from runner.spec.select import parse as parse_selection
from runner.spec.source import Mapping, Node, Scalar, load, read_text, split_lines
from runner.spec.source import Sequence as SequenceNode

SPEC, SUITE = ".spec.yaml", ".suite.yaml"


class PathError(Exception):
    """A path on the command line that names nothing to run. ``empty`` means it is there, and holds nothing."""

    def __init__(self, message: str, empty: bool = False) -> None:
        super().__init__(message)
        self.empty = empty


@dataclass(slots=True)
class Reader:
    """Reads files once, however many suites name them. ``problems`` gathers diagnostics of all files."""

    limits: Limits = field(default_factory=Limits)
    problems: list[Diagnostic] = field(default_factory=list)
    _specs: dict[tuple[Path, int], tuple[Case, ...]] = field(default_factory=dict)

    def suites(self, paths: Iterable[str | Path]) -> list[Suite]:
        """The suites of ``paths`` in order; a spec file is a suite of itself. Raises PathError for a path with nothing."""
        found: list[Suite] = []
        for file in discover(paths):
            suite = self.suite(file) if file.name.endswith(SUITE) else self.spec_as_suite(file)
            if suite is not None:
                found.append(suite)
        self._duplicates(found)
        return found

    def files(self, paths: Iterable[str | Path]) -> list[Suite]:
        """Like ``suites``, but with every file below a directory, manual suites and specs too: for validating."""
        return self.suites(
            file for path in paths for file in (_below(Path(path), (SPEC, SUITE)) if Path(path).is_dir() else [path])
        )

    def spec_as_suite(self, path: Path) -> Suite:
        """A spec file, run under the default backend; cases that launch kernels under those that launch them."""
        cases = self.spec(path, None)
        backends: tuple[Backend, ...] = ()
        if not cases or not all(case.kernels for case in cases):
            backends = (Backend("inductor", "inductor"),)
        if any(case.kernels for case in cases):
            backends += tuple(Backend(name, name) for name in KERNEL_BACKENDS)
        return Suite(name=path.name.removesuffix(SPEC), file=str(path), cases=cases, backends=backends)

    def spec(self, path: Path, defaults: Node | None) -> tuple[Case, ...]:
        """The cases of a spec file that can be read; the rest is in ``problems``. Suites without defaults share them."""
        key = path, id(defaults) if defaults is not None else 0
        if key not in self._specs:
            node, problems, bad = self._checked(path, "spec")
            cases: tuple[Case, ...] = ()
            if isinstance(node, Mapping):
                cases = self._cases(node, path, problems, bad, node.get("defaults"), defaults)
            self._keep(problems)
            self._specs[key] = cases
        return self._specs[key]

    def suite(self, path: Path) -> Suite | None:
        """A suite file with the cases it names."""
        node, problems, bad = self._checked(path, "suite")
        if not isinstance(node, Mapping) or None in bad:
            return None
        select = _selection(node.get("select"), problems)
        if node.get("select") is not None and select is None:  # without it the suite would be another one
            self._keep(problems)
            return None
        defaults = node.get("defaults")
        cases = list(self._cases(node, path, problems, bad, defaults))
        specs = node.get("specs")
        for pattern in specs.items if isinstance(specs, SequenceNode) else ():
            assert isinstance(pattern, Scalar)
            named = _matching(path.parent, str(pattern.value))
            if not named:
                problems.error(
                    pattern.span, f"no file matches {pattern.value!r}", f"it is looked up from {path.parent}"
                )
            for spec in named:
                cases += self.spec(spec.resolve(), defaults)
        suite = Suite(
            name=str(_scalar(node, "suite", path.name.removesuffix(SUITE))),
            file=str(path),
            doc=str(_scalar(node, "doc", "")),
            cases=tuple(cases),
            backends=self._backends(node.get("backends"), problems),
            devices=_words(node.get("devices")),
            dtypes=tuple(dtype_name(d) for d in _words(node.get("dtypes"))),
            select=select,
            manual=bool(_scalar(node, "manual", False)),
        )
        self._keep(problems)
        return suite

    def _backends(self, node: Node | None, problems: Problems) -> tuple[Backend, ...]:
        if not isinstance(node, SequenceNode):
            return (Backend("inductor", "inductor"),)
        found: dict[str, Backend] = {}
        for item in node.items:
            if isinstance(item, Scalar):
                backend = Backend(str(item.value), str(item.value))
            else:
                assert isinstance(item, Mapping)
                backend = Backend(
                    name=str(_scalar(item, "name", _scalar(item, "backend", "inductor"))),
                    backend=str(_scalar(item, "backend", _scalar(item, "name", "inductor"))),
                    dynamic=_scalar(item, "dynamic", None),  # type: ignore[arg-type]
                    fullgraph=_scalar(item, "fullgraph", None),  # type: ignore[arg-type]
                    mode=_scalar(item, "mode", None),  # type: ignore[arg-type]
                    options=check_flags(item.get("options"), problems, "torch._inductor.config."),
                    config=check_flags(item.get("config"), problems),
                )
            if backend.name in found:
                problems.error(item.span, f"two backends are called {backend.name!r}", "give one a name: of its own")
            found[backend.name] = backend
        return tuple(found.values())

    def _cases(
        self, node: Mapping, path: Path, problems: Problems, bad: set[int | None], *defaults: Node | None
    ) -> tuple[Case, ...]:
        body = node.get("cases")
        if not isinstance(body, SequenceNode):
            return ()
        kernels = parse_kernels(node.get("kernels"), str(path), problems)
        cases: list[Case] = []
        names: dict[str, Span] = {}
        for place, item in enumerate(body.items):
            if not isinstance(item, Mapping) or place in bad:
                continue
            before = problems.errors
            case = parse_case(with_defaults(item, *defaults), str(path), problems, kernels)
            if broken(case.chain, kernels):
                continue
            if case.name in names:
                problems.error(
                    case.span, f"two cases are called {case.name!r}", f"the first is in line {names[case.name].line}"
                )
            names.setdefault(case.name, case.span)
            if problems.errors == before:
                cases.append(case)
        return tuple(cases)

    def _checked(self, path: Path, kind: str) -> tuple[Node | None, Problems, set[int | None]]:
        """The node tree, and which cases its schema refuses; None among them is the file around the cases."""
        text, found = read_text(path, self.limits)
        lines = split_lines(text) if text is not None else []
        problems = Problems(lines)
        node = None
        if text is not None:
            node, found = load(path, text, self.limits)
        problems.take(found)
        bad: set[int | None] = set()
        if node is not None:
            violations = schema.validate(node, kind, lines)
            problems.take(violations)
            bad = {_case_at(node, d.span) for d in (*found, *violations) if d.severity == "error"}
        if node is None or problems.errors:
            self._keep(problems)
        return node, problems, bad

    def _keep(self, problems: Problems) -> None:
        known = set(self.problems)
        self.problems += [d for d in problems.found if d not in known]

    def _duplicates(self, suites: Sequence[Suite]) -> None:
        first: dict[str, Suite] = {}
        for place, suite in enumerate(suites):
            other = first.setdefault(suite.name, suite)
            if other is suite:
                continue
            if suite.file.endswith(SUITE) and other.file.endswith(SUITE):
                span = Span(suite.file, 1, 1)
                self.problems.append(
                    Diagnostic(span, f"two suites are called {suite.name!r}", f"the other is {other.file}")
                )
            elif suite.file != other.file:  # two spec files of one name in two folders
                suites[place] = replace(suite, name=suite.file)  # type: ignore[index]


def discover(paths: Iterable[str | Path]) -> list[Path]:
    """The files that ``paths`` name: suites of a directory (its specs if it has none), or the file itself."""
    found: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        if path.is_dir():
            files = _directory(path)
        elif not path.exists():
            raise PathError(f"no such file or directory: {given}")
        elif not path.name.endswith((SPEC, SUITE)):
            raise PathError(f"{given}: cases end in {SPEC}, suites in {SUITE}")
        elif not path.is_file():
            raise PathError(f"{given} is no regular file")
        else:
            files = [path]
        found.update((file.resolve(), None) for file in files)
    return list(found)


def _directory(path: Path) -> list[Path]:
    suites = _below(path, (SUITE,))
    chosen = [file for file in suites if not _is_manual(file)]
    if chosen:
        return chosen
    if suites:
        raise PathError(f"{path}: every suite here says manual: true; name the one to run", empty=True)
    specs = _below(path, (SPEC,))
    if not specs:
        raise PathError(f"{path}: no {SUITE} and no {SPEC} file here or below", empty=True)
    return specs


def _matching(folder: Path, pattern: str) -> list[Path]:
    """The spec files that a suite's pattern names; none for a pattern that is no relative one."""
    try:
        return sorted(f for f in folder.glob(pattern) if f.name.endswith(SPEC) and f.is_file())
    except (ValueError, NotImplementedError, OSError, IndexError):
        return []


def _below(path: Path, endings: tuple[str, ...]) -> list[Path]:
    """Regular files below a folder, hidden folders and environments left out, in a stable order."""
    files = []
    for folder, inner, names in os.walk(path):  # links to folders are not followed: they may lead in a circle
        inner[:] = [name for name in inner if not name.startswith(".")]
        files += [Path(folder, name) for name in names if name.endswith(endings) and not name.startswith(".")]
    return sorted(file for file in files if file.is_file())


def _case_at(node: Node, span: Span) -> int | None:
    """The number of the case that a place lies in; None for the rest of the file."""
    cases = node.get("cases") if isinstance(node, Mapping) else None
    if not isinstance(cases, SequenceNode) or not cases.items:
        return None
    starts = [(item.span.line, item.span.column) for item in cases.items]
    after = [k.span.line for k, _ in node.entries if k.span.line > starts[0][0] and k.span.column == 1]  # type: ignore[union-attr]
    if after and span.line >= min(after):
        return None
    return bisect.bisect_right(starts, (span.line, span.column)) - 1 if (span.line, span.column) >= starts[0] else None


def _is_manual(path: Path) -> bool:
    node, _ = load(path)
    return isinstance(node, Mapping) and _scalar(node, "manual", False) is True


def _scalar(node: Mapping, key: str, otherwise: object) -> object:
    value = node.get(key)
    return value.value if isinstance(value, Scalar) else otherwise


def _words(node: Node | None) -> tuple[str, ...]:
    return tuple(str(v) for v in node.plain()) if isinstance(node, SequenceNode) else ()


def _selection(node: Node | None, problems: Problems) -> str | None:
    if not isinstance(node, Scalar):
        return None
    try:
        parse_selection(str(node.value))
    except SelectError as error:
        problems.error(node.span, str(error), 'such as "tag:regression and not tag:slow"')
        return None
    return str(node.value)
