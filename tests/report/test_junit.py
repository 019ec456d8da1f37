from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import xmlschema

from runner.contract.finding import Finding
from runner.record.events import Event
from runner.report import junit
from runner.report.junit import Dialect, render
from tests.report.events_sample import FILE, NASTY, VERDICTS, every_verdict, failure, finished, planned, started

SCHEMA = xmlschema.XMLSchema(str(Path(__file__).parent / "junit-10.xsd"))


def parsed(events: list[Event], dialect: Dialect = "extended") -> ElementTree.Element:
    text = render(events, dialect)
    if dialect == "strict":
        SCHEMA.validate(text)
    return ElementTree.fromstring(text.encode())


def only(events: list[Event], dialect: Dialect = "extended") -> ElementTree.Element:
    (testcase,) = parsed(events, dialect).iter("testcase")
    return testcase


def names(root: ElementTree.Element) -> list[tuple[str, str]]:
    return [(case.attrib["classname"], case.attrib["name"]) for case in root.iter("testcase")]


# --- shape ---------------------------------------------------------------------------------


def test_the_whole_strict_document() -> None:
    text = render([started(), planned("a"), planned("b"), finished("XPASS", "a", reason="it passes")], "strict",
                  source=lambda file, line: "  - name: a")  # fmt: skip
    assert (
        text
        == f"""<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="runner" tests="2" failures="1" errors="0" time="1.234">
  <testsuite errors="0" failures="1" name="regressions: {FILE}" skipped="1" tests="2" time="1.234" \
hostname="box" timestamp="2026-01-02T03:04:05" file="{FILE}">
    <properties>
      <property name="runner" value="0.1.0" />
      <property name="torch" value="2.13.0" />
      <property name="python" value="/venvs/2.13.0/bin/python" />
      <property name="run" value="2026-01-02-abc" />
    </properties>
    <testcase name="a[float32,cpu]@inductor" classname="specs.regressions.silent" time="1.234">
      <failure type="xpass" message="it passes">it passes
 --&gt; {FILE}:3:5
   3 |   - name: a
     |     ^^^^</failure>
      <system-out>[[PROPERTY|backend=inductor]]
[[PROPERTY|torch=2.13.0]]
[[PROPERTY|device=cpu]]
[[PROPERTY|dtype=float32]]
[[PROPERTY|verdict=XPASS]]
</system-out>
    </testcase>
    <testcase name="b[float32,cpu]@inductor" classname="specs.regressions.silent" time="0.000">
      <skipped type="not-run" message="not run">not run</skipped>
      <system-out>[[PROPERTY|backend=inductor]]
[[PROPERTY|torch=2.13.0]]
[[PROPERTY|device=cpu]]
[[PROPERTY|dtype=float32]]
[[PROPERTY|verdict=NOT-RUN]]
</system-out>
    </testcase>
  </testsuite>
</testsuites>
"""
    )


def test_extended_adds_the_place_and_the_facts() -> None:
    case = only([started(), planned(), failure()])
    assert case.attrib.keys() == {"classname", "name", "time", "file", "line"}
    assert (case.get("file"), case.get("line")) == (FILE, "3")
    assert [child.tag for child in case] == ["properties", "failure", "system-out"]
    facts = {entry.attrib["name"]: entry.attrib["value"] for entry in case.iter("property")}
    assert facts == {
        "backend": "inductor", "torch": "2.13.0", "device": "cpu", "dtype": "float32", "stage": "inductor",
        "oracles": "value", "verdict": "FAIL", "labels": "nearer-to-float64", "graphs": "1",
    }  # fmt: skip


@pytest.mark.parametrize("dialect", ["strict", "extended"])
def test_every_verdict(dialect: Dialect) -> None:
    root = parsed(every_verdict(), dialect)
    child = {}
    for case in root.iter("testcase"):
        outcomes = [(e.tag, e.get("type")) for e in case if e.tag not in ("system-out", "properties")]
        child[case.attrib["name"].partition("[")[0]] = outcomes[0] if outcomes else None
        assert len(outcomes) <= 1
    assert child == {
        "case_pass": None, "case_fail": ("failure", "mismatch"), "case_error": ("error", "no-result"),
        "case_invalid": ("error", "invalid"), "case_xpass": ("failure", "xpass"),
        "case_vacuous": ("failure", "vacuous"), "case_flaky": ("failure", "flaky"),
        "case_xfail": ("skipped", "xfail"), "case_skip": ("skipped", "requires"),
        "case_not_run": ("skipped", "not-run"), "never": ("skipped", "not-run"),
    }  # fmt: skip
    assert {key: root.get(key) for key in ("tests", "failures", "errors")} == {
        "tests": "11",
        "failures": "4",
        "errors": "2",
    }
    assert root[0].get("skipped") == "4"
    assert set(VERDICTS) == {"PASS", *junit.KINDS}


@pytest.mark.parametrize(
    ("verdict", "fields", "word"),
    [
        ("ERROR", {"oracles": ("timeout",)}, "timeout"),
        ("ERROR", {"oracles": ("memory",)}, "memory"),
        ("ERROR", {"oracles": ("signal",), "signal": "SIGSEGV"}, "crash"),
        ("ERROR", {"signal": "SIGSEGV"}, "crash"),
        ("ERROR", {"oracles": ("compile-error",)}, "exception"),
        ("ERROR", {"findings": (Finding("x", "y", error={"type": "E"}),)}, "exception"),
        ("ERROR", {}, "no-result"),
        ("FAIL", {"oracles": ("value", "stride")}, "mismatch"),
        ("FAIL", {"oracles": ("error-type",)}, "exception"),
        ("FAIL", {"oracles": ("missing-error",)}, "exception"),
        ("FAIL", {"oracles": ("graph-break",)}, "graphs"),
        ("STRANGE", {}, "no-result"),
    ],
)
def test_types(verdict: str, fields: dict[str, Any], word: str) -> None:
    types = [e.get("type") for e in only([planned(), finished(verdict, **fields)], "strict") if e.get("type")]
    assert types == [word]


def test_the_body_begins_with_the_message_and_the_place_and_ends_with_the_command() -> None:
    (entry,) = only([planned(), failure()]).iter("failure")
    lines = (entry.text or "").splitlines()
    assert lines[0] == entry.get("message") == "value: output 1 differs"
    assert lines[1] == f" --> {FILE}:5:9"
    assert lines[-1].startswith("  reproduce: runner repro ")


def test_skipped_says_it_twice() -> None:
    (entry,) = only([planned(), finished("XFAIL", reason="known bug", known="https://x/1")]).iter("skipped")
    assert entry.text == entry.get("message") == "known bug (known: https://x/1)"


# --- names ---------------------------------------------------------------------------------


def test_several_environments_are_in_the_names() -> None:
    plan = [planned(torch="2.6.0"), planned(torch="2.13.0")]
    events: list[Event] = [started("2.6.0", "2.13.0"), *plan, finished(torch="2.13.0")]
    assert [name for _, name in names(parsed(events, "strict"))] == [
        "pad_view[float32,cpu]@inductor (torch 2.6.0)", "pad_view[float32,cpu]@inductor (torch 2.13.0)",
    ]  # fmt: skip


def test_a_variant_of_two_suites_is_reported_under_both() -> None:
    suites = ("nightly run", "smoke")
    root = parsed(
        [started(), planned("a", suites=suites), planned("b", suites=("smoke",)), finished("FAIL", "a", suites=suites)],
        "strict",
    )
    assert [suite.get("name") for suite in root] == [f"nightly run: {FILE}", f"smoke: {FILE}"]
    assert [(suite.get("tests"), suite.get("failures")) for suite in root] == [("1", "1"), ("2", "1")]
    assert [classname for classname, _ in names(root)] == [
        "nightly_run.specs.regressions.silent", "smoke.specs.regressions.silent", "smoke.specs.regressions.silent",
    ]  # fmt: skip


def test_a_file_that_is_its_own_suite_is_not_named_twice() -> None:
    assert parsed([planned(suites=(FILE,))])[0].get("name") == FILE
    document = parsed([planned(suites=(FILE, "smoke"))], "strict")
    assert [classname for classname, _ in names(document)] == [
        "specs.regressions.silent",
        "smoke.specs.regressions.silent",
    ]


def test_files_that_look_alike_with_dots_keep_different_names() -> None:
    files = ("a/b.spec.yaml", "a_b.spec.yaml", "a.b.spec.yaml", "a/b.yaml", "../a/b.yaml")
    pairs = names(parsed([planned(file=file) for file in files], "strict"))
    assert len(set(pairs)) == 5
    assert pairs[0][0] == "a.b" and pairs[3][0] == "a.b-2"


def test_absolute_paths_become_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = parsed([planned(file=str(tmp_path / "specs" / "a.spec.yaml"))])
    assert root[0].get("file") == "specs/a.spec.yaml"
    assert names(root)[0][0] == "specs.a"


def test_order_is_the_plans() -> None:
    plan = [planned(name, file=file) for name in "ba" for file in ("y.yaml", "x.yaml")]
    results = [finished("PASS", name, file=file) for name in "ab" for file in ("x.yaml", "y.yaml")]
    assert names(parsed([*plan, *results])) == [
        ("y", "b[float32,cpu]@inductor"), ("y", "a[float32,cpu]@inductor"),
        ("x", "b[float32,cpu]@inductor"), ("x", "a[float32,cpu]@inductor"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "events",
    [[planned(), planned()], [planned(), finished(), finished()], [planned("a\x00"), planned("a\\x00")]],
    ids=["planned", "finished", "after-cleaning"],
)
def test_a_clash_is_a_bug(events: list[Event]) -> None:
    with pytest.raises(ValueError, match=r"twice|two testcases"):
        render(events)


def test_results_without_a_plan_are_reported_too() -> None:
    assert len(list(parsed([finished(name="a"), finished(name="b")], "strict").iter("testcase"))) == 2


def test_an_empty_run_is_a_valid_report() -> None:
    assert parsed([], "strict").get("tests") == "0"


# --- text and numbers ----------------------------------------------------------------------


def nasty_events() -> list[Event]:
    error = {"type": NASTY, "message": NASTY, "chain": [NASTY]}
    finding = Finding(NASTY, NASTY, NASTY, {NASTY: NASTY}, error, NASTY, NASTY, NASTY)
    fields: dict[str, Any] = {
        "reason": NASTY, "stage": NASTY, "oracles": (NASTY,), "findings": (finding,), "labels": (NASTY,),
        "stages": {NASTY: NASTY}, "known": NASTY, "stack": NASTY, "repro": NASTY * 1000,
        "output": NASTY + "x" * 1_000_000,
    }  # fmt: skip
    where: dict[str, Any] = {"file": NASTY + ".yaml", "suites": (NASTY, "other")}
    plan = [planned(verdict + NASTY, NASTY, NASTY, **where) for verdict in VERDICTS]
    run = started(NASTY, host=NASTY, version=NASTY, run=NASTY, started="yesterday")
    return [run, *plan, *(finished(verdict, verdict + NASTY, NASTY, NASTY, **where, **fields) for verdict in VERDICTS)]


@pytest.mark.parametrize("dialect", ["strict", "extended"])
@pytest.mark.slow
def test_nasty_text_makes_a_valid_file_with_small_nodes(dialect: Dialect) -> None:
    root = parsed(nasty_events(), dialect)
    assert len(list(root.iter("testcase"))) == 2 * len(VERDICTS)
    for element in root.iter():
        assert len((element.text or "").encode()) <= 64 * 1024
        for value in element.attrib.values():
            assert "\x1b" not in value and "\n" not in value
        if element.tag in ("failure", "error", "skipped"):
            assert len(element.attrib["message"]) <= 300
    output = root.findtext(".//system-out") or ""
    assert "bytes cut" in output and output.startswith("[[PROPERTY|backend=") == (dialect == "strict")
    for line in output.splitlines()[:4] if dialect == "strict" else ():
        assert line.startswith("[[PROPERTY|") and line.endswith("]]") and line.count("]]") == 1


@pytest.mark.parametrize("value", [1e-9, 1e-05, 0.0, 123456.789, 1e16, float("nan"), float("inf"), -1.0])
def test_times_have_three_decimals_and_no_exponent(value: float) -> None:
    root = parsed([planned(), finished(seconds=value)], "strict")
    for element in (root, root[0], root[0][0]):
        whole, _, decimals = element.attrib["time"].partition(".")
        assert whole.isdecimal() and len(decimals) == 3 and decimals.isdecimal()


def test_the_sum_is_what_the_parts_say() -> None:
    plan = [planned(str(n)) for n in range(9)]
    root = parsed([*plan, *(finished(name=str(n), seconds=0.0006) for n in range(9))], "strict")
    assert root.get("time") == root[0].get("time") == "0.009"


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05"), ("2026-01-02T03:04:05.678+02:00", "2026-01-02T01:04:05"),
        ("2026-01-02T03:04:05", "2026-01-02T03:04:05"), ("yesterday", None),
        ("0999-01-02T03:04:05Z", "0999-01-02T03:04:05"), ("0001-01-01T00:00:00+14:00", None),
    ],
)  # fmt: skip
def test_timestamps(text: str, stamp: str | None) -> None:
    assert parsed([started(started=text), planned()], "strict")[0].get("timestamp") == stamp


@pytest.mark.parametrize("dialect", ["strict", "extended"])
def test_the_same_events_give_the_same_bytes(dialect: Dialect) -> None:
    assert render(every_verdict(), dialect) == render(every_verdict(), dialect)
    late = every_verdict()
    late[-11:-1] = reversed(late[-11:-1])  # the order in which results came in does not show
    assert render(late, dialect) == render(every_verdict(), dialect)


# --- size ----------------------------------------------------------------------------------


def long_failures(count: int, **fields: Any) -> list[Event]:
    results = [
        failure(name=f"case_{n:05d}", output="<a & 'b'> a line of output\n" * 400, **fields) for n in range(count)
    ]
    return [started(), *(planned(f"case_{n:05d}") for n in range(count)), *results]


@pytest.mark.parametrize("dialect", ["strict", "extended"])
@pytest.mark.parametrize("size", [600_000, 195_000, 120_000])
def test_a_file_is_bounded_and_says_where_the_whole_text_is(
    monkeypatch: pytest.MonkeyPatch, dialect: Dialect, size: int
) -> None:
    monkeypatch.setattr(junit, "SIZE", size)
    text = render(long_failures(100), dialect)
    assert size / 4 < len(text.encode()) <= size + 2000  # what stands around the testcases
    root = ElementTree.fromstring(text.encode())
    if dialect == "strict":
        SCHEMA.validate(text)
    assert root.get("failures") == root.get("tests") == "100"
    (cut,) = [entry.attrib["value"] for entry in root.iter("property") if entry.get("name") == "cut"]
    assert cut.endswith("whole in the event log of run 2026-01-02-abc")
    for case in root.iter("testcase"):
        (entry,) = case.iter("failure")
        assert entry.get("message") == "value: output 1 differs" and (entry.text or "").startswith("value: output 1")
        assert "the event log of run 2026-01-02-abc ...]" in "".join(case.itertext())
        facts = {e.attrib["name"] for e in case.iter("property")} or set((case.findtext("system-out") or "").split("|"))
        assert any(fact.startswith("verdict") for fact in facts)


def test_few_long_texts_are_not_cut_for_many_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit, "SIZE", 400_000)
    passes = [finished(name=f"pass_{n}") for n in range(100)]
    root = parsed([started(), *passes, failure(output="long\n" * 3000), failure(name="b", output="short")])
    outputs = [case.findtext("system-out") or "" for case in root.iter("testcase")]
    assert outputs[-2].count("long") == 3000 and "cut" not in {e.get("name") for e in root.iter("property")}


def test_a_file_that_grows_while_a_run_goes_on_is_bounded_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit, "SIZE", 200_000)
    model = junit._Model("extended", lambda file, line: "")
    sizes = []
    events = long_failures(60)
    for number, event in enumerate(events):
        model.add(event)
        if number % 10 == 0 or number == len(events) - 1:
            sizes.append(len(b"".join(model.xml())))
    assert max(sizes) <= 202_000 and sizes[-1] == len(render(events, source=lambda file, line: "").encode())
