"""What pages show of a run: its results in the order of the plan, by signature, and which have a page of their own. And
what the files of cases say about its variants: tags, YAML, inputs and source. The events hold none of it.

Files are read within the limits of every file, and nothing of them runs. A file may have changed since the run.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from runner.builder.source import build
from runner.cases.limits import Limits
from runner.cases.model import Case, Variant
from runner.cases.serialize import case_text
from runner.cases.suites import PathError
from runner.diagnostics import InputError, Span, source_lines
from runner.exit_codes import UsageError
from runner.record.events import (
    GREEN,
    RED,
    Event,
    Key,
    RunStarted,
    VariantFinished,
    VariantPlanned,
    finished_of,
    planned_of,
)
from runner.record.signing import why_foreign
from runner.record.store import started_of
from runner.report.failure import Group, groups_of, span
from runner.session.collect import load
from runner.text import in_line
from runner.verdict.signature import assess

PAGES = 500
"""Results that have a page of their own."""


GROUPS = 200
"""Groups that the first page shows, the worst."""

_ID = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Results:
    """What a run made of its plan.

    ``variants`` holds the result of each variant, or its plan where it has no result. ``groups`` are the red results,
    the worst first. ``pages`` maps the variants that have a page to its address from the index.
    """

    variants: Mapping[Key, VariantFinished | VariantPlanned]
    groups: Sequence[Group]
    pages: dict[Key, str] = field(default_factory=dict)
    by_signature: dict[str, Group] = field(default_factory=dict)

    @property
    def counts(self) -> list[tuple[str, int]]:
        """Return how many variants each verdict has: those that are not green first, then the largest."""
        counts = Counter(getattr(event, "verdict", "NOT-RUN") for event in self.variants.values())
        ordered = sorted(counts.items(), key=lambda item: (item[0] in GREEN, -item[1]))
        return [(in_line(verdict), count) for verdict, count in ordered]

    @property
    def finished(self) -> list[VariantFinished]:
        """The results alone."""
        return [event for event in self.variants.values() if isinstance(event, VariantFinished)]

    def group(self, event: VariantFinished) -> Group | None:
        """Return the group of a red result."""
        return self.by_signature.get(event.signature) if event.verdict in RED else None

    def anchor(self, event: VariantFinished) -> str:
        """Return the name of its group's place on the first page; empty if it has none."""
        group = self.group(event)
        shown = any(group is each for each in self.groups[:GROUPS])
        return f"group-{event.signature_id}" if shown and _ID.fullmatch(event.signature_id) else ""


def results_of(events: Sequence[Event]) -> Results:
    """Return the results of a run, with signatures where its log is older than these."""
    finished = {
        key: assess(event) if event.verdict in RED and not event.signature else event
        for key, event in finished_of(events).items()
    }
    variants: dict[Key, VariantFinished | VariantPlanned] = {**planned_of(events), **finished}
    groups = groups_of(
        event for event in variants.values() if isinstance(event, VariantFinished) and event.verdict in RED
    )
    results = Results(variants, groups, by_signature={group.members[0].signature: group for group in groups})
    places = {key: place for place, key in enumerate(variants, 1)}
    # Of each group the first member has a page, then the second ones, and so on; then known failures, and passes, those
    # with an excuse first.
    rounds = itertools.zip_longest(*(group.members for group in groups))
    red = (event for members in rounds for event in members if event is not None)
    known = (event for event in results.finished if event.verdict == "XFAIL")
    passes = sorted(
        (result for result in results.finished if result.verdict == "PASS"), key=lambda each: not each.labels
    )
    for event in itertools.islice(itertools.chain(red, known, passes), PAGES):
        results.pages[event.key] = f"failures/{places[event.key]:05d}.html"
    return results


FILES = 400
"""Suite and spec files that are read for one report."""

_LINES = 80  # of a case in YAML
_WIDTH = 400  # characters of one of them


@dataclass(frozen=True, slots=True)
class Declared:
    """Variants by file and the part of their label behind it, and cases by file and name.

    ``problem`` says what is missing.
    """

    variants: dict[tuple[str, str], Variant] = field(default_factory=dict)
    cases: dict[tuple[str, str], Case] = field(default_factory=dict)
    problem: str = ""
    roots: tuple[str, ...] | None = None  # folders below which files are read; None where any may be
    every: tuple[Variant, ...] = ()  # under each backend

    @classmethod
    def of(cls, variants: Iterable[Variant], problem: str = "", roots: tuple[str, ...] | None = None) -> Declared:
        """Return it for variants at hand."""
        every = tuple(variants)
        return cls(
            {(variant.case.file, _tail(variant.label)): variant for variant in reversed(every)},  # the first one counts
            {(variant.case.file, variant.case.name): variant.case for variant in reversed(every)},
            problem, roots, every,
        )  # fmt: skip

    def tags(self, event: VariantFinished | VariantPlanned) -> tuple[str, ...]:
        """Return the tags of a variant's case."""
        if not self.cases:
            return ()
        case = self.cases.get((self.local(event.file, event), _tail(event.case)))
        return tuple(map(str, case.tags)) if case else ()

    def source(self, event: VariantFinished) -> str:
        """Return the Python that the variant runs; empty where the files do not say."""
        variant = self._variant(event)
        try:
            return build(variant).text if variant else ""
        except InputError:
            return ""

    def resolved(self, event: VariantFinished) -> str:
        """Return the variant as a spec file in which each axis is chosen; empty where the files do not say."""
        variant = self._variant(event)
        try:
            text = case_text(variant) if variant else ""
        except (InputError, ValueError):
            return ""
        return text.partition("\n")[2] if text.startswith("#") else text

    def excerpt(self, event: VariantFinished) -> list[tuple[int, str, bool]]:
        """Return the lines of the variant's case: number, text, and whether the failure is there.

        Empty if they cannot be read.
        """
        place = span(event)
        file = self.local(place.file, event)
        lines = _read(file) if file else ()
        return _case_lines(lines, place, event.line if place.file == event.file else place.line) if lines else []

    def local(self, file: str, event: VariantFinished | VariantPlanned) -> str:
        """Return where a file that a variant's event names lies on this machine; empty if it is not here."""
        return local_file(file, event.case.partition("::")[0] if file == event.file else "", self.roots)

    def localized(self, events: Iterable[Event]) -> list[Event]:
        """Return the events of a run with the files of variants as they lie on this machine."""
        files: dict[tuple[str, str], str] = {}  # many variants are of few files
        here: list[Event] = []
        for event in events:
            if isinstance(event, VariantPlanned | VariantFinished):
                key = event.file, event.case.partition("::")[0]
                files[key] = files[key] if key in files else self.local(event.file, event)
                event = replace(event, file=files[key])
            here.append(event)
        return here

    def _variant(self, event: VariantFinished) -> Variant | None:
        return self.variants.get((self.local(event.file, event), _tail(event.label)))


def declared_of(events: Sequence[Event]) -> Declared:
    """Return what the files that a log names say now; of a log of somebody else only those below the current folder."""
    return read_declared(events, bool(why_foreign(started_of([*events]))))


def read_declared(events: Sequence[Event], foreign: bool) -> Declared:
    """Return what the files that a log names say now.

    Args:
        events: a run's.
        foreign: whether somebody else may have written the log. Then only files below the current folder are read.
    """
    roots = (os.path.realpath("."),) if foreign else None
    named = {name: file for event in events if isinstance(event, RunStarted) for name, file in event.suites.items()}
    files = dict.fromkeys(local_file(file, "", roots) for file in named.values())
    for event in events:
        if isinstance(event, VariantPlanned | VariantFinished) and not named.keys() & {*event.suites, event.suite}:
            files.setdefault(local_file(event.file, event.case.partition("::")[0], roots))
    files.pop("", None)
    variants: list[Variant] = []
    problems: list[str] = []
    for file in [*files][:FILES]:
        try:
            variants += load([file], allow_python=True, limits=Limits.from_environment()).variants  # nothing runs
        except (InputError, PathError, UsageError, OSError, ValueError) as error:
            problems.append(f"{file}: {str(error).partition(chr(10))[0]}")
    if len(files) > FILES:
        problems.append(f"{len(files) - FILES} more files are not read")
    if not files:
        problems.append("the files of the cases are not here")
    return Declared.of(variants, "; ".join(problems[:3]), roots)


def local_file(file: str, shown: str, roots: tuple[str, ...] | None) -> str:
    """Return where a file of a log lies on this machine; empty if it is not here.

    Args:
        file: as the log names it, absolute on the machine of the run.
        shown: as ids show it, relative to where the run began.
        roots: folders below which it must lie; None if anywhere.
    """
    for candidate in filter(None, (file, shown)):
        try:
            path = os.path.realpath(candidate)
            inside = roots is None or any(os.path.commonpath([root, path]) == root for root in roots)
            if inside and path.endswith((".spec.yaml", ".suite.yaml")) and os.path.isfile(path):
                return os.path.abspath(candidate) if roots is None else path
        except (OSError, ValueError):  # a NUL, another drive
            continue
    return ""


def _tail(label: str) -> str:
    """The part of an id behind its file, whose name is another one in another folder."""
    return label.partition("::")[2]


_read = functools.lru_cache(maxsize=8)(source_lines)


def _case_lines(lines: Sequence[str], place: Span, first: int) -> list[tuple[int, str, bool]]:
    """The lines from ``first`` to the end of the case there, with the line of ``place`` among them."""
    if not 0 < place.line <= len(lines):
        return []
    first = min(max(first, 1), place.line)
    if place.line - first >= _LINES:  # a long case: what is before the place in question, and what follows
        first = place.line - _LINES // 2
    depth = _depth(lines[first - 1])
    last = first
    while last < min(len(lines), first + _LINES - 1):
        text = lines[last]  # the next one
        if last >= place.line and text.strip() and _depth(text) <= depth:
            break
        last += 1
    while last > place.line and not lines[last - 1].strip():
        last -= 1
    return [(n, _short(lines[n - 1]), n == place.line) for n in range(first, last + 1)]


def _depth(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _short(text: str) -> str:
    text = text.rstrip("\r").replace("\t", " ")
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
