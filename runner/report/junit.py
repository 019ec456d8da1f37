"""JUnit XML, in two dialects, and a file of it that is complete and valid at every instant.

``strict`` passes junit-10.xsd, by which the Jenkins xunit plugin judges. ``extended`` adds to each testcase its file,
line and properties, which GitLab, EnricoMi, mikepenz, CircleCI and the Jenkins junit plugin read. Behind every rule
here (one flat level of suites, unique names, messages said twice, facts as ``[[PROPERTY|k=v]]``) some consumer failed.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from runner.diagnostics import shown_file, source_line
from runner.record.events import Event, RunFinished, RunStarted, VariantFinished, VariantPlanned, VariantStarted
from runner.report.failure import Source
from runner.report.live_file import LiveFile
from runner.report.table import several_environments
from runner.report.testcase import Shown, facts_of, show, title_of
from runner.text import TEXT_LIMIT, cap, in_line, one_line

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

Dialect = Literal["extended", "strict"]

SIZE = 19_500_000
"""Bytes of a file. Readers refuse or cut larger ones; 20 MB is the least of what they take."""

_LEVELS = ((TEXT_LIMIT, TEXT_LIMIT), (16 << 10, 16 << 10), (4 << 10, 4 << 10), (1 << 10, 1 << 10), (512, 0), (0, 0))
"""Bytes of a failure's text and of an output. All go down a level when the file would pass ``SIZE``.

Without room for outputs no property is said twice, and without room for texts a testcase that is not red has none.
"""

_COUNTED = (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))

_Key = tuple[str, str]  # (variant id, torch)


@dataclass(slots=True)
class _Suite:
    """One testsuite: what one suite runs from one file. What is written of a testcase is kept until it changes."""

    file: str
    name: str
    classname: str
    cases: list[VariantPlanned | VariantFinished]
    texts: list[bytes]
    kinds: list[str]
    seconds: list[float]
    changed: set[int]  # places of testcases whose text is out of date


class _Model:
    """The report so far. Takes events, gives XML.

    A run of 100,000 variants rewrites its file again and again, so nothing is rendered twice: a rewrite renders the
    testcases that have changed and puts the texts together.
    """

    def __init__(self, dialect: Dialect, source: Source) -> None:
        self._dialect = dialect
        self._source = source
        self._started: RunStarted | None = None
        self._cases: dict[_Key, VariantPlanned | VariantFinished] = {}  # in the plan's order
        self._results: dict[_Key, VariantFinished] = {}
        self._suites: list[_Suite] | None = None  # None when the plan has changed since
        self._places: dict[_Key, list[tuple[_Suite, int]]] = {}
        self._several = False
        self._level = 0
        self._size = 0  # of all testcases

    def add(self, event: Event) -> bool:
        """Take one event in; whether it changes the report."""
        if isinstance(event, RunStarted):
            self._started, self._suites = event, None
        elif isinstance(event, VariantPlanned):
            if (event.id, event.torch) in self._cases:
                raise ValueError(f"planned twice: {event.id} (torch {event.torch})")
            self._cases[event.id, event.torch], self._suites = event, None
        elif isinstance(event, VariantFinished):
            key = (event.id, event.torch)
            if key in self._results and self._results[key].verdict != "NOT-RUN":
                raise ValueError(f"finished twice: {event.id} (torch {event.torch})")
            self._results[key] = event
            if key not in self._cases:
                self._cases[key], self._suites = event, None
            elif self._suites is not None:
                for suite, place in self._places[key]:
                    suite.changed.add(place)
        else:
            return False
        return True

    def xml(self) -> list[bytes]:
        """The whole document, in pieces of UTF-8. ValueError when two testcases would have one name."""
        if self._suites is None:
            self._arrange()
        suites = self._suites or []
        for suite in suites:
            for place in sorted(suite.changed):
                self._render(suite, place)
                while self._size > SIZE and self._level < len(_LEVELS) - 1:
                    self._shorten()
            suite.changed.clear()
        totals = {key: str(sum(s.kinds.count(kind) for s in suites)) for key, kind in _COUNTED[:2]}
        spent = sum(float(f"{sum(suite.seconds):.3f}") for suite in suites)
        root = _element("testsuites", {"name": "runner", "tests": str(sum(len(s.cases) for s in suites)), **totals,
                                       "time": f"{spent:.3f}"})  # fmt: skip
        head, tail = _around(root, "testsuite" if suites else "", 0)
        pieces = [b'<?xml version="1.0" encoding="UTF-8"?>\n', head]
        for number, suite in enumerate(suites):
            start, end = self._around_suite(suite)
            pieces += [b"\n  " if number else b"", start]
            pieces += [piece for text in suite.texts for piece in (text, b"\n    ")]
            pieces[-1] = end
        return [*pieces, tail, b"\n"]

    def _arrange(self) -> None:
        """Sort the plan into suites, all of whose testcases are then to be rendered."""
        self._level = self._size = 0
        run = (self._started,) if self._started else ()
        self._several = several_environments([*run, *self._cases.values()])
        suites = list(self._groups())
        titles: set[tuple[str, str]] = set()
        places: dict[_Key, list[tuple[_Suite, int]]] = {}
        for suite in suites:
            for place, case in enumerate(suite.cases):
                title = suite.classname, title_of(case, self._several)
                if title in titles:
                    raise ValueError(f"two testcases have the name {title[0]} {title[1]}")
                titles.add(title)
                places.setdefault((case.id, case.torch), []).append((suite, place))
        self._suites, self._places = suites, places

    def _groups(self) -> Iterator[_Suite]:
        """The testsuites: suites as the plan first names them, in each its files likewise, in each the plan's order."""
        members: dict[str, dict[str, list[VariantPlanned | VariantFinished]]] = {}
        runs: dict[str, set[str]] = {}  # file to the suites that run it
        shown = functools.cache(shown_file)
        for case in self._cases.values():
            file = shown(case.file)
            for suite in dict.fromkeys(case.suites or (case.suite,)):
                members.setdefault(suite, {}).setdefault(file, []).append(case)
                runs.setdefault(file, set()).add(suite)
        taken: dict[str, int] = {}
        for suite, files in members.items():
            for file, cases in files.items():
                # A spec file named on the command line is a suite of its own, and its name would only be said twice.
                itself = shown(suite) == file or suite == cases[0].id.partition("::")[0]
                classname = _dotted(file)
                if not itself and len(runs[file]) > 1:
                    classname = f"{_word(suite)}.{classname}"
                # Two files may differ in nothing but separators (a/b.yaml, a_b.yaml); number the later one.
                taken[classname] = taken.get(classname, 0) + 1
                classname += f"-{taken[classname]}" if taken[classname] > 1 else ""
                name = file if itself else f"{in_line(suite)}: {file}"
                count = len(cases)
                yield _Suite(
                    file, name, classname, cases, [b""] * count, [""] * count, [0.0] * count, set(range(count))
                )

    def _render(self, suite: _Suite, place: int) -> None:
        """Bring a testcase's text up to date."""
        case = suite.cases[place]
        result = self._results.get((case.id, case.torch))
        shown = show(result, self._source) if result else Shown(properties=facts_of(case))
        text = self._testcase(case, shown, suite)
        self._size += len(text) - len(suite.texts[place])
        suite.texts[place], suite.kinds[place], suite.seconds[place] = text, shown.kind, shown.seconds

    def _shorten(self) -> None:
        """Go down a level, and render again what is too long for it."""
        self._level += 1
        limit = sum(_LEVELS[self._level])
        for suite in self._suites or ():
            for place, text in enumerate(suite.texts):
                if len(text) > limit:
                    self._render(suite, place)

    def _around_suite(self, suite: _Suite) -> tuple[bytes, bytes]:
        """Return what stands before and after the testcases of a suite."""
        run = self._started
        attributes = {
            "name": suite.name,
            "tests": str(len(suite.cases)),
            **{key: str(suite.kinds.count(kind)) for key, kind in _COUNTED},
            "time": f"{sum(suite.seconds):.3f}",
            **({"timestamp": _timestamp(run.started), "hostname": in_line(run.host)} if run else {}),
            "file": suite.file,
        }
        element = _element("testsuite", {key: value for key, value in attributes.items() if value})
        facts = [*_run_properties(run)] if run else []
        if self._level:
            texts, outputs = _LEVELS[self._level]
            facts.append(("cut", f"texts to {texts} bytes, outputs to {outputs}; {self._pointer()}"))
        if facts:
            element.append(_properties_element(facts))
        return _around(element, "testcase", 1)

    def _pointer(self) -> str:
        return one_line(
            f"whole in the event log of run {self._started.run}" if self._started else "whole in the event log", 120
        )

    def _testcase(self, case: VariantPlanned | VariantFinished, shown: Shown, suite: _Suite) -> bytes:
        texts, outputs = _LEVELS[self._level]
        attributes = {
            "classname": suite.classname,
            "name": title_of(case, self._several),
            "time": f"{shown.seconds:.3f}",
        }
        element = _element("testcase", attributes)
        described = texts > 0 or shown.kind in ("failure", "error")
        if self._dialect == "extended":
            element.attrib |= {"file": suite.file, "line": str(case.line)}
            if described:
                element.append(_properties_element(shown.properties))
        if shown.kind:
            body = cap(shown.body, texts, self._pointer()) if texts else f"{shown.message}\n[... {self._pointer()} ...]"
            element.append(_element(shown.kind, {"type": shown.type, "message": shown.message}, body))
        if outputs or (described and self._dialect == "strict"):
            # The facts come first: what is long is cut in the middle, and readers look at the start of each line.
            facts = "".join(f"[[PROPERTY|{key}={value}]]\n" for key, value in shown.properties)
            output = cap(facts + shown.output, outputs, self._pointer()) if outputs else facts
            element.append(_element("system-out", {}, output))
        return _written(element, 2)


def _element(tag: str, attributes: dict[str, str], text: str | None = None) -> Element:
    from xml.etree.ElementTree import Element  # late: many commands import this module and write no XML

    element = Element(tag, attributes)
    element.text = text
    return element


def _properties_element(facts: Iterable[tuple[str, str]]) -> Element:
    element = _element("properties", {})
    element.extend(_element("property", {"name": key, "value": value}) for key, value in facts)
    return element


def _written(element: Element, level: int) -> bytes:
    """Return an element as UTF-8, indented for its level in the document."""
    from xml.etree import ElementTree

    ElementTree.indent(element, level=level)
    return ElementTree.tostring(element, encoding="unicode").encode("utf-8", "backslashreplace")


def _around(element: Element, inner: str, level: int) -> tuple[bytes, bytes]:
    """Return what stands before and after the ``inner`` elements of an element; all of it and nothing if ``""``."""
    if inner:
        element.append(_element(inner, {}))
    # In attributes and texts "<" is written "&lt;", so this is found once.
    head, _, tail = _written(element, level).partition(f"<{inner} />".encode())
    return head, tail


def render(events: Sequence[Event], dialect: Dialect = "extended", *, source: Source = source_line) -> str:
    """The JUnit XML of a run, the same text for the same events. ValueError when two testcases would have one name."""
    model = _Model(dialect, source)
    for event in events:
        model.add(event)
    return b"".join(model.xml()).decode()


class JUnitFile:
    """A JUnit file on disk that holds the whole plan from the start: what has no result yet is ``not-run``."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        dialect: Dialect = "extended",
        on_problem: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = Path(path)
        # A file may be on a slow disk, and hundreds of cases point into it.
        self._model = _Model(dialect, functools.lru_cache(maxsize=4096)(source_line))
        self._file = LiveFile(path, self._model.xml, on_problem, clock)
        self._plan_written = False
        self._lost: str | None = None  # an event that could not be taken in: no later write makes up for it

    @property
    def problem(self) -> str | None:
        """Why the file does not say everything, None when it does."""
        return self._lost or self._file.problem

    def handle(self, event: Event) -> None:
        """Take one event in, and write when it is time. No file trouble and no bad event leaves this method."""
        try:
            if self._model.add(event):
                self._file.touch()
        except ValueError as error:
            self._lost = str(error)
            self._file.failed(self._lost)
            return
        # At once when the plan is whole, and at the end; never before, because a file that holds half the plan is no report.
        now = isinstance(event, RunFinished)
        if isinstance(event, VariantStarted | VariantFinished) and not self._plan_written:
            now = self._plan_written = True
        if self._plan_written or now:
            self._file.write(now=now)

    def tick(self, running: Sequence[tuple[str, float, str]] = ()) -> None:
        """Write what the last events left, if it is time. To be called now and then while nothing happens."""
        if self._plan_written:
            self._file.write()

    def close(self) -> None:
        """Write what is left. Safe to call twice."""
        self._file.write(now=True)


# --- words ---------------------------------------------------------------------------------


def _run_properties(run: RunStarted) -> tuple[tuple[str, str], ...]:
    def listed(key: str) -> str:
        return one_line(", ".join(dict.fromkeys(str(environment.get(key, "?")) for environment in run.environments)))

    facts = {"runner": run.version, "torch": listed("torch"), "python": listed("python"), "run": run.run}
    return tuple((key, one_line(value)) for key, value in facts.items() if value)


def _timestamp(started: str) -> str:
    """Return UTC without zone or fraction, which Jenkins and every schema accept; empty when it is no time at all."""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError:
        return ""
    if moment.tzinfo is not None:
        moment = moment.astimezone(timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


def _word(text: str) -> str:
    """One part of a class name: dots separate parts, and blanks or slashes confuse who splits at them."""
    return re.sub(r"[^\w-]+", "_", text).strip("_") or "_"


def _dotted(file: str) -> str:
    stem = re.sub(r"(\.(spec|suite))?\.ya?ml$", "", file)
    return ".".join(_word(part) for part in stem.split("/") if part not in ("", ".", "..")) or "_"
