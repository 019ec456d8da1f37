"""What readers of JUnit ask of a file, each rule from the code of one that would get it wrong.

GitLab: ``lib/gitlab/ci/parsers/test/junit.rb``. Jenkins: ``SuiteResult`` and ``CaseResult`` of its junit plugin. The others
are read by ``tools/junit_parsers.py``, with their own programs.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from xml.etree import ElementTree

import pytest

from runner.contract.finding import Finding
from runner.record.events import Event
from runner.report.junit import Dialect, render
from tests.report.events_sample import FILE, NASTY, every_verdict, failure, finished, planned

ATTACHMENT = "[[ATTACHMENT|/etc/passwd]]"
DIALECTS = ("extended", "strict")


def whole_run() -> list[Event]:
    """Every verdict, a crash, a timeout, a case that cannot be loaded, two suites, and hostile text."""
    load = Finding("load-error", "raised ImportError", error={"type": "ImportError", "message": NASTY})
    results = [
        finished("ERROR", "crash", oracles=("signal",), signal="SIGSEGV", output=f"last words\n{ATTACHMENT}\n{NASTY}"),
        finished("ERROR", "timeout", oracles=("timeout",), reason="no answer after 8 s", seconds=8.0004),
        finished("INVALID", "load", findings=(load,), reason=f"loading raised ImportError: {NASTY}"),
        failure(name=f" <{NASTY}> ", suites=("other", "regressions"), labels=(ATTACHMENT, "[[PROPERTY|verdict=PASS]]")),
    ]
    *events, end = every_verdict()
    return [*events, planned("of_another_file", file="specs/b.spec.yaml"), *results, end]


@pytest.fixture(scope="module", params=DIALECTS)
def root(request: pytest.FixtureRequest) -> ElementTree.Element:
    dialect: Dialect = request.param
    return ElementTree.fromstring(render(whole_run(), dialect, source=lambda file, line: "").encode())


def gitlab_status(case: ElementTree.Element) -> str:
    """The first of these children decides."""
    return next((tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None), "success")


def test_counts_are_those_of_the_testcases(root: ElementTree.Element) -> None:
    """EnricoMi's action adds up the suites' attributes and the testcases, and warns where they differ."""
    totals: Counter[str] = Counter()
    for suite in root:
        statuses = Counter(map(gitlab_status, suite.iter("testcase")))
        counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
        assert {key: int(suite.attrib[key]) for key in counted} == {
            key: statuses[word] for key, word in counted.items()
        }
        assert int(suite.attrib["tests"]) == statuses.total() > 0
        assert float(suite.attrib["time"]) == pytest.approx(
            sum(float(c.attrib["time"]) for c in suite.iter("testcase"))
        )
        totals += statuses
    assert [root.get(key) for key in ("tests", "failures", "errors")] == [
        str(number) for number in (totals.total(), totals["failure"], totals["error"])
    ]
    assert totals == {"success": 1, "failure": 6, "error": 5, "skipped": 5}


def test_there_is_one_level_of_suites_and_none_is_empty(root: ElementTree.Element) -> None:
    """Jenkins leaves out an empty suite, and makes a testcase of an ``error`` that a suite itself has."""
    assert root.tag == "testsuites" and {suite.tag for suite in root} == {"testsuite"}
    for suite in root:
        assert {child.tag for child in suite} <= {"properties", "testcase"} and suite.find("testcase") is not None


def test_an_outcome_is_one_child_with_a_message_and_a_text(root: ElementTree.Element) -> None:
    """GitLab takes the text, Jenkins both, and a ``type`` of YAML or of numbers would make GitLab read the text as such."""
    casts = {"symbol", "date", "datetime", "integer", "float", "decimal", "boolean", "string", "yaml", "base64Binary",
             "file", "array", "duration", "hexBinary"}  # fmt: skip
    for case in root.iter("testcase"):
        outcomes = [child for child in case if child.tag in ("failure", "error", "skipped")]
        assert len(outcomes) <= 1
        for outcome in outcomes:
            assert outcome.attrib["message"].strip() and (outcome.text or "").strip()
            assert outcome.attrib["type"] not in casts and not len(outcome)


def test_names_identify_a_testcase_and_survive_trimming(root: ElementTree.Element) -> None:
    """Jenkins and GitLab follow a testcase from run to run by its class and its name; others trim both."""
    names = [(case.attrib["classname"].strip(), case.attrib["name"].strip()) for case in root.iter("testcase")]
    assert len(set(names)) == len(names)
    for classname, name in names:
        assert re.fullmatch(r"[\w.-]+", classname) and name.isprintable()


def test_times_are_plain_numbers_and_stamps_are_times(root: ElementTree.Element) -> None:
    for element in (root, *root.iter("testsuite"), *root.iter("testcase")):
        assert re.fullmatch(r"\d+\.\d{3}", element.attrib["time"])
    for suite in root:
        assert datetime.fromisoformat(suite.attrib["timestamp"]).tzinfo is None


def test_no_output_is_obeyed(root: ElementTree.Element) -> None:
    """An attachment in an output makes Jenkins copy a file of its machine, and GitLab link to one."""
    for element in root.iter("system-out"):
        text = element.text or ""
        assert "[[ATTACHMENT|" not in text
        for mark in re.findall(r"^.*\[\[PROPERTY\|.*$", text, re.MULTILINE):
            assert mark.startswith("[[PROPERTY|") and mark.count("[[") == mark.count("]]") == 1
    outputs = [
        case.findtext("system-out") or "" for case in root.iter("testcase") if case.get("name", "").startswith("crash")
    ]
    assert "[ [ATTACHMENT|/etc/passwd]]" in outputs[0]


def test_places_are_relative_files_and_lines() -> None:
    """mikepenz's action, EnricoMi's and GitLab mark the line of a testcase."""
    root = ElementTree.fromstring(render(whole_run(), source=lambda file, line: "").encode())
    for case in root.iter("testcase"):
        assert case.attrib["file"] in (FILE, "specs/b.spec.yaml") and int(case.attrib["line"]) >= 1
        facts = [entry.attrib["name"] for entry in case.iter("property")]
        assert len(set(facts)) == len(facts) and {"backend", "torch", "device", "dtype", "verdict"} <= {*facts}
