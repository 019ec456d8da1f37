"""JUnit XML, in two dialects, and a file of it that is complete and valid at every instant.

``strict`` passes junit-10.xsd, by which the Jenkins xunit plugin judges. ``extended`` adds to each testcase its file,
line and properties, which GitLab, EnricoMi, mikepenz, CircleCI and the Jenkins junit plugin read. Behind every rule
here (one flat level of suites, unique names, messages said twice, facts as ``[[PROPERTY|k=v]]``) some consumer failed.

The XML is built with junit-xml and then put right where that falls short: it writes times with exponents, leaves out
those that are zero, adds ``disabled``, and has no type for what is skipped and no properties for a testcase.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from runner.diagnostics import source_line
from runner.engine.events import Event, RunFinished, RunStarted, VariantFinished, VariantPlanned, VariantStarted
from runner.report.failure import Source, headline, render_failure
from runner.report.live_file import LiveFile
from runner.report.table import several_environments
from runner.report.text import cap, clean, in_line, one_line, seconds, shown_file

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

Dialect = Literal["extended", "strict"]

KINDS = {
    "FAIL": "failure", "XPASS": "failure", "VACUOUS": "failure", "FLAKY": "failure",
    "ERROR": "error", "INVALID": "error",
    "XFAIL": "skipped", "SKIP": "skipped", "NOT-RUN": "skipped",
}  # fmt: skip
"""Which child of its testcase a verdict becomes: ``failure`` is a wrong answer, ``error`` none. PASS has no child."""

_TYPES = {"XPASS": "xpass", "VACUOUS": "vacuous", "FLAKY": "flaky", "INVALID": "invalid", "XFAIL": "xfail",
          "SKIP": "requires", "NOT-RUN": "not-run"}  # fmt: skip
# Never yaml, symbol, array, file, integer, float, decimal, boolean, date, datetime or binary: GitLab casts by them.

_Key = tuple[str, str]  # (variant id, torch)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a testcase says, rendered once: a file is rewritten many times."""

    kind: str = "skipped"
    type: str = "not-run"
    message: str = "not run"
    body: str = "not run"
    output: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0


@dataclass(slots=True)
class _Group:
    """One testsuite: what one suite runs from one file."""

    file: str
    name: str
    classname: str
    cases: list[VariantPlanned | VariantFinished]


class _Model:
    """The report so far. Takes events, gives XML."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._started: RunStarted | None = None
        self._planned: dict[_Key, VariantPlanned | VariantFinished] = {}
        self._shown: dict[_Key, _Shown] = {}

    def add(self, event: Event) -> bool:
        """Take one event in; whether it changes the report."""
        if isinstance(event, RunStarted):
            self._started = event
        elif isinstance(event, VariantPlanned):
            if (event.id, event.torch) in self._planned:
                raise ValueError(f"planned twice: {event.id} (torch {event.torch})")
            self._planned[event.id, event.torch] = event
            self._shown[event.id, event.torch] = _Shown(properties=_properties(event))
        elif isinstance(event, VariantFinished):
            key = (event.id, event.torch)
            if key in self._shown and self._shown[key].type != "not-run":
                raise ValueError(f"finished twice: {event.id} (torch {event.torch})")
            self._planned.setdefault(key, event)
            self._shown[key] = _show(event, self._source)
        else:
            return False
        return True

    def xml(self, dialect: Dialect) -> str:
        """The whole document."""
        from xml.etree import ElementTree

        from junit_xml import to_xml_report_string  # type: ignore[import-untyped, unused-ignore]

        run = (self._started,) if self._started else ()
        several = several_environments([*run, *self._planned.values()])
        groups = list(self._groups())
        text = to_xml_report_string(
            [self._suite(group, several) for group in groups], prettyprint=False, encoding="utf-8"
        )
        root = ElementTree.fromstring(text.encode("utf-8"))
        for suite, group in zip(root, groups, strict=True):
            for testcase, case in zip(suite.findall("testcase"), group.cases, strict=True):
                self._finish_case(testcase, case, group, dialect)
            _finish_suite(suite)
        titles = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
        if len(set(titles)) != len(titles):
            twice = next(title for index, title in enumerate(titles) if title in titles[:index])
            raise ValueError(f"two testcases have the name {twice[0]} {twice[1]}")
        totals = {key: str(sum(int(suite.get(key, "0")) for suite in root)) for key in ("tests", "failures", "errors")}
        spent = sum(float(suite.get("time", "0")) for suite in root)
        root.attrib = {"name": "runner", **totals, "time": f"{spent:.3f}"}
        ElementTree.indent(root)
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"

    def _groups(self) -> Iterator[_Group]:
        """The testsuites: suites as the plan first names them, in each its files likewise, in each the plan's order."""
        members: dict[str, dict[str, list[VariantPlanned | VariantFinished]]] = {}
        runs: dict[str, set[str]] = {}  # file to the suites that run it
        for case in self._planned.values():
            file = shown_file(case.file)
            for suite in dict.fromkeys(case.suites or (case.suite,)):
                members.setdefault(suite, {}).setdefault(file, []).append(case)
                runs.setdefault(file, set()).add(suite)
        taken: dict[str, int] = {}
        for suite, files in members.items():
            for file, cases in files.items():
                # A spec file named on the command line is a suite of its own, and its name would only be said twice.
                itself = shown_file(suite) == file or suite == cases[0].id.partition("::")[0]
                classname = _dotted(file)
                if not itself and len(runs[file]) > 1:
                    classname = f"{_word(suite)}.{classname}"
                # Two files may differ in nothing but separators (a/b.yaml, a_b.yaml); number the later one.
                taken[classname] = taken.get(classname, 0) + 1
                classname += f"-{taken[classname]}" if taken[classname] > 1 else ""
                yield _Group(file, file if itself else f"{in_line(suite)}: {file}", classname, cases)

    def _suite(self, group: _Group, several: bool) -> Any:
        from junit_xml import TestCase, TestSuite

        cases = []
        for case in group.cases:
            shown = self._shown[case.id, case.torch]
            title = case.id.partition("::")[2] or case.id
            title += f" (torch {case.torch})" if several else ""
            # The facts come first: what is long is cut in the middle, and readers look at the start of each line.
            facts = "".join(f"[[PROPERTY|{key}={value}]]\n" for key, value in shown.properties)
            entry = TestCase(in_line(title), group.classname, shown.seconds, stdout=cap(facts + shown.output))
            if shown.kind == "failure":
                entry.add_failure_info(shown.message, shown.body, shown.type)
            elif shown.kind == "error":
                entry.add_error_info(shown.message, shown.body, shown.type)
            elif shown.kind == "skipped":
                entry.add_skipped_info(shown.message, shown.body)
            cases.append(entry)
        run = self._started
        return TestSuite(
            group.name,
            cases,
            hostname=in_line(run.host) if run else None,
            timestamp=_timestamp(run.started) if run else None,
            properties=_run_properties(run) if run else None,
            file=group.file,
        )

    def _finish_case(
        self, testcase: Element, case: VariantPlanned | VariantFinished, group: _Group, dialect: Dialect
    ) -> None:
        """Attributes in one order, the types junit-xml has no word for, and what only the extended dialect says."""
        from xml.etree.ElementTree import Element, SubElement

        shown = self._shown[case.id, case.torch]
        words = testcase.attrib
        testcase.attrib = {"classname": words["classname"], "name": words["name"], "time": f"{shown.seconds:.3f}"}
        skipped = testcase.find("skipped")
        if skipped is not None:
            skipped.set("type", shown.type)
        if dialect == "extended":
            testcase.attrib |= {"file": group.file, "line": str(case.line)}
            properties = Element("properties")
            for key, value in shown.properties:
                SubElement(properties, "property", {"name": key, "value": value})
            testcase.insert(0, properties)


def _finish_suite(suite: Element) -> None:
    """Drop what junit-10.xsd refuses, write the time as a plain number, keep one order of attributes."""
    spent = sum(float(testcase.get("time", "0")) for testcase in suite.findall("testcase"))
    values = {**suite.attrib, "time": f"{spent:.3f}"}
    order = ("name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname", "file")
    suite.attrib = {key: values[key] for key in order if key in values}


def render(events: Sequence[Event], dialect: Dialect = "extended", *, source: Source = source_line) -> str:
    """The JUnit XML of a run, the same text for the same events. ValueError when two testcases would have one name."""
    model = _Model(source)
    for event in events:
        model.add(event)
    return model.xml(dialect)


class JUnitFile:
    """A JUnit file on disk that holds the whole plan from the start: what has no result yet is ``not-run``."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        dialect: Dialect = "extended",
        on_problem: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = _Model(_remembered(source_line))
        self._file = LiveFile(path, lambda: self._model.xml(dialect), on_problem, clock)
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

    def tick(self) -> None:
        """Write what the last events left, if it is time. To be called now and then while nothing happens."""
        if self._plan_written:
            self._file.write()

    def close(self) -> None:
        """Write what is left. Safe to call twice."""
        self._file.write(now=True)


def _remembered(source: Source) -> Source:
    """``source``, asked once for each line: a file may be on a slow disk, and hundreds of cases point into it."""
    return functools.lru_cache(maxsize=4096)(source)


# --- words ---------------------------------------------------------------------------------


def _show(event: VariantFinished, source: Source) -> _Shown:
    kind = KINDS.get(event.verdict, "" if event.verdict == "PASS" else "error")
    message = headline(event)
    body = render_failure(event, source) if kind in ("failure", "error") else message
    return _Shown(
        kind=kind,
        type=_type(event),
        message=message,
        body=cap(body),
        output=cap(clean(event.output)),
        properties=_properties(event),
        seconds=round(seconds(event.seconds), 3),
    )


def _type(event: VariantFinished) -> str:
    """A word of a closed set, by which people filter."""
    if event.verdict in _TYPES:
        return _TYPES[event.verdict]
    oracles = event.oracles or tuple(finding.oracle for finding in event.findings)
    for word, named in (("timeout", "timeout"), ("memory", "memory"), ("signal", "crash")):
        if word in oracles:
            return named
    if event.signal:
        return "crash"
    if any(word.endswith("-error") or word == "error-type" for word in oracles):
        return "exception"
    if event.verdict == "FAIL":
        return "graphs" if oracles and set(oracles) <= {"graphs", "graph-break", "recompile"} else "mismatch"
    return "exception" if any(finding.error for finding in event.findings) else "no-result"


def _properties(event: VariantPlanned | VariantFinished) -> tuple[tuple[str, str], ...]:
    facts: list[tuple[str, Any]] = [
        ("backend", event.backend), ("torch", event.torch), ("device", event.device), ("dtype", event.dtype),
    ]  # fmt: skip
    if isinstance(event, VariantFinished):
        facts += [
            ("stage", event.stage),
            ("oracles", ", ".join(event.oracles)),
            ("verdict", event.verdict),
            ("labels", ", ".join(event.labels)),
            ("graphs", event.graphs),
        ]
    else:
        facts.append(("verdict", "NOT-RUN"))
    # "]]" would end the line's own bracket.
    return tuple((key, one_line(str(value)).replace("]]", "] ]")) for key, value in facts if value not in (None, ""))


def _run_properties(run: RunStarted) -> dict[str, str]:
    def listed(key: str) -> str:
        return one_line(", ".join(dict.fromkeys(str(environment.get(key, "?")) for environment in run.environments)))

    facts = {"runner": run.version, "torch": listed("torch"), "python": listed("python"), "run": run.run}
    return {key: one_line(value) for key, value in facts.items() if value}


def _timestamp(started: str) -> str | None:
    """UTC without zone or fraction, which Jenkins and every schema accept; None when it is no time at all."""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError:
        return None
    if moment.tzinfo is not None:
        moment = moment.astimezone(timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


def _word(text: str) -> str:
    """One part of a class name: dots separate parts, and blanks or slashes confuse who splits at them."""
    return re.sub(r"[^\w-]+", "_", text).strip("_") or "_"


def _dotted(file: str) -> str:
    stem = re.sub(r"(\.(spec|suite))?\.ya?ml$", "", file)
    return ".".join(_word(part) for part in stem.split("/") if part not in ("", ".", "..")) or "_"
