"""Files to suites: reads everything that the given paths name, and reports all errors of all files in one go."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from pathlib import Path, PurePath
from typing import TypeVar

from runner.cases.case import (
    BOTH,
    check_operators,
    parse_case,
    parse_entry,
    parse_limits,
    with_defaults,
    with_limits,
)
from runner.cases.chains_and_inputs import dtype_name
from runner.cases.expand import parse_selection
from runner.cases.kernels import launches_broken_kernel, parse_kernels
from runner.cases.limits import Limits, show_size
from runner.cases.model import KERNEL_BACKENDS, Backend, Case, Kernel, Known, Suite, Unclaimed
from runner.cases.problems import Problems, TooManyProblems
from runner.cases.torch_names import check_flags
from runner.cases.yaml import schema
from runner.cases.yaml.reader import load, read_text, similar_file
from runner.cases.yaml.values import (
    Mistyped,
    YamlMapping,
    YamlNode,
    YamlScalar,
    YamlSequence,
    count_nodes,
    entries,
    fields,
    items,
    listed,
    scalar,
    split_lines,
)
from runner.diagnostics import Diagnostic, Span

SPEC, SUITE, LEDGER = ".spec.yaml", ".suite.yaml", ".ledger.yaml"
DRAFT = "TODO"
"""How the reason of a drafted entry begins until somebody writes one."""
T = TypeVar("T")
_MAX_WORDS = 100
"""Words of a suite's selection."""
_WITH_THE_CASE = ("name", "params", "zip", "exclude", "module", "chain", "grad")
"""Keys of defaults that are checked with each case: they speak of its other keys, or of files beside it."""

_WITHOUT_PLACE = {"timeout", "memory", "seed"}
"""Keys of defaults that are checked without the case, and whose places no case keeps."""


class PathError(Exception):
    """A path on the command line that names nothing to run. ``empty`` means it is there, and holds nothing."""

    def __init__(self, message: str, empty: bool = False) -> None:
        super().__init__(message)
        self.empty = empty


@dataclass(frozen=True, slots=True)
class _Read:
    """A file's characters, its tree (None without one), what is wrong so far, and the numbers of refused cases."""

    characters: int
    lines: list[str]
    node: YamlNode | None
    diagnostics: list[Diagnostic]
    refused: set[int | None]


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A file whose schema accepts everything around its cases.

    ``refused`` are the numbers of cases that it does not accept.
    """

    path: Path
    node: YamlMapping
    problems: Problems
    refused: set[int | None]


@dataclass(slots=True)
class Reader:
    """Reads files once, however many suites name them. ``problems`` gathers diagnostics of all files.

    Suites without defaults share cases, and so do those whose defaults are the same values without places.

    ``any_device`` takes devices that torch does not name, which a module from the command line may add.
    """

    limits: Limits = field(default_factory=Limits)
    problems: list[Diagnostic] = field(default_factory=list)
    any_device: bool = False
    _specs: dict[tuple[Path, str], tuple[Case, ...]] = field(default_factory=dict)  # by the defaults
    drafts: bool = False  # whether reasons of a ledger may be missing yet
    _ledgers: dict[Path, tuple[Known, ...]] = field(default_factory=dict)
    _read: int = 0  # characters
    _files: dict[Path, _Read] = field(default_factory=dict)
    _kept: set[Diagnostic] = field(default_factory=set)
    _walk: Walk = field(init=False)

    def __post_init__(self) -> None:
        self._walk = Walk(self.limits)

    def suites(self, paths: Iterable[str | Path]) -> list[Suite]:
        """Read the suites of ``paths``, in order; a spec file is a suite of itself.

        Raises PathError for a path with nothing.
        """
        read = (
            self.suite(file) if file.name.endswith(SUITE) else self.spec_as_suite(file)
            for file in discover(paths, self._walk)
        )
        suites = [suite for suite in read if suite is not None]
        self._duplicates(suites)
        return suites

    def files(self, paths: Iterable[str | Path]) -> list[Suite]:
        """Read every file below a directory as ``suites`` does, manual suites and specs too: for validating."""
        return self.suites(
            file
            for path in map(Path, paths)
            for file in (self._walk.below(path, (SPEC, SUITE)) if os.path.isdir(path) else [path])
        )

    def spec_as_suite(self, path: Path) -> Suite:
        """Return a spec file as a suite under the default backend; cases that launch kernels run under the kernels'
        backends."""
        cases = self.spec(path, None)
        launching = [case for case in cases if case.kernels]
        names = (*(() if len(launching) == len(cases) > 0 else ("inductor",)), *(KERNEL_BACKENDS if launching else ()))
        return Suite(
            name=path.name.removesuffix(SPEC),
            file=str(path),
            cases=cases,
            backends=tuple(Backend(name, name) for name in names),
        )

    def spec(self, path: Path, defaults: YamlNode | None) -> tuple[Case, ...]:
        """Read the cases of a spec file, and report what cannot be read.

        ``defaults`` are those of a suite that was accepted.
        """
        key = path, _same_defaults(defaults)
        if key not in self._specs and key[1] and fields(defaults).keys() <= _WITHOUT_PLACE:
            limits = parse_limits(fields(defaults), Problems([], self.limits))
            self._specs[key] = tuple(with_limits(case, limits) for case in self.spec(path, None))
        elif key not in self._specs:
            self._specs[key] = self._made(path, "spec", lambda file: self._spec(file, defaults)) or ()
        return self._specs[key]

    def _made(self, path: Path, kind: str, make: Callable[[_Accepted], T]) -> T | None:
        """What ``make`` makes of a file that its schema accepts.

        It ends where a value has a wrong type, and where more is wrong than is reported.
        """
        file = self._accepted(path, kind)
        if file is None:
            return None
        result = None
        with contextlib.suppress(TooManyProblems):
            try:
                result = make(file)
            except Mistyped as error:
                file.problems.error(error.span, str(error))
        self._keep(file.problems)
        return result

    def _spec(self, file: _Accepted, defaults: YamlNode | None) -> tuple[Case, ...]:
        kernels = parse_kernels(file.node.get("kernels"), str(file.path), file.problems)
        holds = self._defaults_hold(file, kernels)
        return self._cases(file, kernels, file.node.get("defaults"), defaults) if holds else ()

    def suite(self, path: Path) -> Suite | None:
        """Read a suite file with the cases it names; None where its schema, defaults, selection or backends are
        refused."""
        return self._made(path, "suite", self._suite)

    def _suite(self, file: _Accepted) -> Suite | None:
        node, problems, path, selecting = file.node, file.problems, file.path, file.node.get("select")
        select = None if selecting is None else _selection(selecting, problems)
        if selecting is not None and select is None:  # without it the suite would be another one
            return None
        defaults = node.get("defaults")
        kernels = parse_kernels(node.get("kernels"), str(path), problems)
        if not self._defaults_hold(file, kernels):
            return None
        cases = [*self._cases(file, kernels, defaults)]
        errors_before = problems.errors
        backends = self._backends(node.get("backends"), problems)
        if problems.errors > errors_before:
            return None
        for pattern in items(node.get("specs")):
            for spec in self._named(pattern, path, problems):
                cases += self.spec(spec.resolve(), defaults)
        return Suite(
            name=scalar(node.get("suite"), str, default=path.name.removesuffix(SUITE)),
            file=str(path),
            doc=scalar(node.get("doc"), str, default=""),
            cases=tuple(cases),
            backends=backends,
            devices=listed(node.get("devices"), str),
            dtypes=tuple(map(dtype_name, listed(node.get("dtypes"), str))),
            select=select,
            manual=scalar(node.get("manual"), bool, default=False),
            ledger=self._ledger_of_suite(node.get("ledger"), path, problems),
            select_span=None if selecting is None else selecting.span,
            has_defaults=any(key.value != "known" for key, _ in entries(defaults)),
        )

    def ledger(self, path: str | Path) -> tuple[Known, ...]:
        """Read the entries of a ledger's file, and report what is wrong with them. Raises PathError where none is."""
        if not os.path.isfile(path):
            near = similar_file(Path(path))
            raise PathError(f"no such file: {path}{near and f'; {near}'}")
        if not str(path).endswith(LEDGER) or not _is_own(path):
            raise PathError(f"{path}: ledgers end in {LEDGER}")
        file = Path(path).resolve()
        if file not in self._ledgers:
            self._ledgers[file] = self._made(file, "ledger", self._ledger) or ()
        return self._ledgers[file]

    def _ledger_of_suite(self, node: YamlNode | None, path: Path, problems: Problems) -> tuple[Known, ...]:
        files = [] if node is None else self._named(node, path, problems, LEDGER)
        return tuple(entry for file in files for entry in self.ledger(file))

    def _ledger(self, file: _Accepted) -> tuple[Known, ...]:
        report = file.problems.warning if self.drafts else file.problems.error
        listed_entries = items(file.node.get("known"))
        for item in listed_entries:
            reason = fields(item).get("reason")
            if reason is not None and scalar(reason, str).startswith(DRAFT):
                report(reason.span, "this reason is still to be written", "say why it fails; issue: names a report")
        return tuple(parse_entry(item, file.problems) for item in listed_entries)

    def _named(self, pattern: YamlNode, path: Path, problems: Problems, ending: str = SPEC) -> list[Path]:
        """The files that an entry of ``specs:``, or ``ledger:``, names."""
        text = scalar(pattern, str)
        try:
            files = self._walk.matching(path.parent, text, ending)
        except FolderLimit as error:
            return problems.refuse([], pattern.span, f"{text!r}: {error}", error.hint)
        if not files:
            problems.error(pattern.span, f"no file matches {text!r}", f"it is looked up from {path.parent}")
        return files

    def _backends(self, node: YamlNode | None, problems: Problems) -> tuple[Backend, ...]:
        backends: dict[str, Backend] = {}
        for item in items(node):
            keys = {"name": item, "backend": item} if isinstance(item, YamlScalar) else fields(item)
            backend = Backend(
                name=scalar(keys.get("name"), str, default="inductor"),
                backend=scalar(keys.get("backend"), str, default="inductor"),
                dynamic=scalar(keys.get("dynamic"), bool, type(None)),
                fullgraph=scalar(keys.get("fullgraph"), bool),
                mode=scalar(keys.get("mode"), str),
                options=check_flags(keys.get("options"), problems, "torch._inductor.config."),
                config=check_flags(keys.get("config"), problems),
                unclaimed=_unclaimed(keys.get("unclaimed"), problems),
                span=keys.get("backend", item).span,
            )
            if backend.mode is not None and backend.options:
                problems.warning(item.span, BOTH, "set the options in config:, by their full names")
            if backend.name in backends:
                problems.error(item.span, f"two backends are called {backend.name!r}", "give one a name: of its own")
            backends[backend.name] = backend
        return tuple(backends.values()) or (Backend("inductor", "inductor"),)

    def _cases(
        self, file: _Accepted, kernels: dict[str, Kernel | None], *defaults: YamlNode | None
    ) -> tuple[Case, ...]:
        """The cases of a file that are sound, under defaults that hold."""
        problems, path = file.problems, str(file.path)
        sizes = {id(value): count_nodes(value) for default in defaults for value in fields(default).values()}
        repeated = 0
        cases: list[Case] = []
        names: dict[str, Span] = {}
        for number, item in enumerate(items(file.node.get("cases"))):
            if not isinstance(item, YamlMapping) or number in file.refused:
                continue
            errors_before = problems.errors
            merged = with_defaults(item, *defaults)
            own = {id(value) for _, value in item.entries}
            added = (value for _, value in merged.entries if id(value) not in own)
            repeated += sum(sizes.get(id(value)) or count_nodes(value) for value in added)
            if repeated > self.limits.expanded_nodes:
                return problems.refuse(
                    (),
                    item.span,
                    f"the defaults up to this case stand for more than {self.limits.expanded_nodes} nodes",
                    self.limits.hint("expanded_nodes"),
                )
            case = self._case(merged, path, problems, kernels)
            if case is None or launches_broken_kernel(case.chain, kernels):
                continue
            if case.name in names:
                problems.error(
                    case.span, f"two cases are called {case.name!r}", f"the first is in line {names[case.name].line}"
                )
            names.setdefault(case.name, case.span)
            if problems.errors == errors_before:
                cases.append(case)
        return tuple(cases)

    def _case(self, node: YamlMapping, path: str, problems: Problems, kernels: dict[str, Kernel | None]) -> Case | None:
        try:
            return parse_case(node, path, problems, kernels)
        except Mistyped as error:
            return problems.refuse(None, error.span, str(error))

    def _defaults_hold(self, file: _Accepted, kernels: dict[str, Kernel | None]) -> bool:
        """Whether the file's own defaults pass the checks of a case, as far as these do not ask for the case's own
        keys."""
        defaults = file.node.get("defaults")
        if defaults is None:
            return True
        errors_before = file.problems.errors
        span = defaults.span
        own = [(key, value) for key, value in entries(defaults) if key.value not in _WITH_THE_CASE]
        rest: dict[str, YamlNode] = {"name": YamlScalar("defaults", span, "defaults"), "chain": YamlSequence((), span)}
        self._case(
            YamlMapping((*own, *((YamlScalar(key, span, key), value) for key, value in rest.items())), span),
            str(file.path),
            file.problems,
            kernels,
        )
        return file.problems.errors == errors_before

    def _accepted(self, path: Path, kind: str) -> _Accepted | None:
        """A file that its schema accepts, but for some of its cases.

        For any other one the reasons go into ``problems``.
        """
        file = self._files.get(path) or self._checked(path, kind)
        if not file.diagnostics:  # its cases take more memory than its tree
            self._files[path] = file
        problems = Problems(file.lines, self.limits, str(path))
        self._read += file.characters
        if self._read > self.limits.total_bytes:
            message = f"up to this file more than {show_size(self.limits.total_bytes)} of YAML were read"
            problems.take([Diagnostic(Span(str(path), 1, 1), message, self.limits.hint("total_bytes"))])
        else:
            problems.take(file.diagnostics)
            if isinstance(file.node, YamlMapping) and None not in file.refused:
                return _Accepted(path, file.node, problems, file.refused)
        self._keep(problems)
        return None

    def _checked(self, path: Path, kind: str) -> _Read:
        """What a file holds, and what its schema says of it."""
        text, findings = read_text(path, self.limits)
        lines = split_lines(text or "")
        if text is None or self._read + len(text) > self.limits.total_bytes:
            return _Read(len(text or ""), lines, None, findings, set())
        node, findings = load(path, text, self.limits)
        if node is None:
            return _Read(len(text), lines, None, findings, set())
        violations, refused = schema.validate(node, kind, lines, self.limits, self.any_device)
        # What is no clean YAML may mean anything: no part of the file is used.
        unclean: set[int | None] = {None} if any(d.severity == "error" for d in findings) else set()
        return _Read(len(text), lines, node, [*findings, *violations], refused | unclean)

    def _keep(self, problems: Problems) -> None:
        fresh = [d for d in problems.diagnostics if d not in self._kept]
        self._kept.update(fresh)
        self.problems += fresh

    def _duplicates(self, suites: Sequence[Suite]) -> None:
        first: dict[str, Suite] = {}
        for place, suite in enumerate(suites):
            namesake = first.setdefault(suite.name, suite)
            if namesake is not suite and suite.file.endswith(SUITE) and namesake.file.endswith(SUITE):
                self.problems.append(
                    Diagnostic(
                        Span(suite.file, 1, 1), f"two suites are called {suite.name!r}", f"the other is {namesake.file}"
                    )
                )
            elif suite.file != namesake.file:  # two spec files of one name in two folders
                suites[place] = replace(suite, name=suite.file)  # type: ignore[index]


def discover(paths: Iterable[str | Path], walk: Walk | None = None) -> list[Path]:
    """Return the files that ``paths`` name.

    A directory stands for its suites, or for its specs if it has none; a file stands for itself. Raises PathError for a
    path with nothing, and for folders with more entries than the limits of ``walk`` allow.
    """
    walk = walk or Walk()
    files: dict[Path, None] = {}
    for name in paths:
        path = Path(name)
        if os.path.isdir(path):  # unlike Path's own, no error for a name that is too long
            matches = _directory(path, walk)
        elif not os.path.exists(path) and os.path.islink(path):
            raise PathError(f"{name} is a link to {os.readlink(path)}, which does not exist or leads in a circle")
        elif not os.path.exists(path):
            near = similar_file(path)
            raise PathError(f"no such file or directory: {name}{near and f'; {near}'}")
        elif not path.name.endswith((SPEC, SUITE)):
            advice = f"; --ledger {name} takes a ledger" if path.name.endswith(LEDGER) else ""
            raise PathError(f"{name}: cases end in {SPEC}, suites in {SUITE}{advice}")
        elif not os.path.isfile(path):
            raise PathError(f"{name} is no regular file")
        elif not os.path.realpath(path).endswith((SPEC, SUITE)):
            raise PathError(f"{name} is a link to {os.path.realpath(path)}: cases end in {SPEC}, suites in {SUITE}")
        else:
            matches = [path]
        files.update((file.resolve(), None) for file in matches)
    return list(files)


def _directory(path: Path, walk: Walk) -> list[Path]:
    suites = walk.below(path, (SUITE,))
    chosen = [file for file in suites if not _is_manual(file, walk.limits)]
    if chosen:
        return chosen
    if suites:
        raise PathError(f"{path}: every suite here says manual: true; name the one to run", empty=True)
    specs = walk.below(path, (SPEC,))
    if not specs:
        raise PathError(f"{path}: no {SUITE} and no {SPEC} file here or below", empty=True)
    return specs


def _is_manual(path: Path, limits: Limits) -> bool:
    node, _ = load(path, limits=limits)
    manual = node.get("manual") if isinstance(node, YamlMapping) else None
    return isinstance(manual, YamlScalar) and manual.value is True


def _same_defaults(node: YamlNode | None) -> str:
    """What is equal for defaults that make the same cases of a file: their text where no place is kept, else their
    file."""
    if node is None:
        return ""
    return repr(node.plain()) if fields(node).keys() <= _WITHOUT_PLACE else node.span.file


def _unclaimed(node: YamlNode | None, problems: Problems) -> Unclaimed:
    keys = fields(node)
    check_operators(keys.get("operators"), problems)
    return Unclaimed(
        gradients=scalar(keys.get("gradients"), bool, default=False),
        dynamic=scalar(keys.get("dynamic"), bool, default=False),
        mutation=scalar(keys.get("mutation"), bool, default=False),
        random=scalar(keys.get("random"), bool, default=False),
        dtypes=tuple(map(dtype_name, listed(keys.get("dtypes"), str))),
        devices=listed(keys.get("devices"), str),
        precision={name: dtype_name(scalar(lower, str)) for name, lower in fields(keys.get("precision")).items()},
        operators=listed(keys.get("operators"), str),
    )


def _selection(node: YamlNode, problems: Problems) -> str | None:
    text: str = scalar(node, str)
    if len(text.split()) > _MAX_WORDS:  # each is looked for in each id
        return problems.refuse(None, node.span, f"a selection has at most {_MAX_WORDS} words", "give the cases a tag")
    hint = 'such as "tag:regression and not tag:slow"'
    return text if problems.attempt(lambda: parse_selection(text), node.span, hint) else None


class FolderLimit(Exception):
    """More folders or files than the limits allow; ``hint`` says how to change that."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(slots=True)
class Walk:
    """One look through folders; what is looked at counts for the whole command. Links to folders are not followed."""

    limits: Limits = field(default_factory=Limits)
    _visited: int = 0
    _files: int = 0

    def below(self, folder: Path, endings: tuple[str, ...]) -> list[Path]:
        """Return the regular files below a folder, sorted, without hidden ones.

        Raises PathError for more folders or files than the limits allow.
        """
        files, stack = [], [folder]
        try:
            while stack:
                for entry in self._entries(stack.pop()):
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        stack.append(Path(entry.path))
                    elif entry.name.endswith(endings) and _is_own(entry.path):
                        files.append(self._counted(Path(entry.path)))
        except FolderLimit as error:
            raise PathError(f"{folder}: {error}; {error.hint}") from None
        return sorted(files)

    def matching(self, folder: Path, pattern: str, ending: str) -> list[Path]:
        """Return the regular files that a relative pattern names, seen from ``folder``; none for any other pattern.

        Raises FolderLimit.
        """
        path = PurePath(pattern)
        if path.is_absolute() or "\0" in pattern:
            return []
        files = set()
        stack, visited = [(folder, path.parts)], set[tuple[Path, int]]()
        while stack:
            place, parts = stack.pop()
            if (place, len(parts)) in visited:
                continue
            visited.add((place, len(parts)))
            if parts:
                stack += self._next(place, parts)
            elif place.name.endswith(ending) and _is_own(place):
                files.add(self._counted(place))
        return sorted(files)

    def _next(self, folder: Path, parts: tuple[str, ...]) -> list[tuple[Path, tuple[str, ...]]]:
        """What the first part of a pattern names in ``folder``, each with the parts that are left."""
        first, inner = parts[0], parts[1:]
        if first == "**":
            folders = [entry for entry in self._entries(folder) if entry.is_dir(follow_symlinks=False)]
            return [(folder, inner), *((Path(entry.path), parts) for entry in folders)] if inner else []
        if re.search(r"[*?\[]", first):
            matches = re.compile(translate(first)).match
            return [(Path(entry.path), inner) for entry in self._entries(folder) if matches(entry.name)]
        return [(folder / first, inner)]

    def _entries(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        limit = self.limits.folder_entries
        with contextlib.suppress(OSError, ValueError), os.scandir(folder) as listing:
            for entry in listing:
                self._visited += 1
                if self._visited > limit:
                    raise FolderLimit(
                        f"there are more than {limit} entries in the folders to look through",
                        self.limits.hint("folder_entries"),
                    )
                yield entry

    def _counted(self, path: Path) -> Path:
        self._files += 1
        if self._files > self.limits.files:
            raise FolderLimit(f"there are more than {self.limits.files} files", self.limits.hint("files"))
        return path


def _is_own(path: str | Path) -> bool:
    """Whether a path is a regular file that keeps its ending behind links.

    Messages show lines of a file that cannot be read. A stranger's link must not make them show another file.
    """
    return os.path.isfile(path) and Path(os.path.realpath(path)).suffixes[-2:] == PurePath(path).suffixes[-2:]
