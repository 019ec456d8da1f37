from __future__ import annotations

import io
import re
import string
from pathlib import Path

import pytest

from runner.record.events import Event, Notice, RunFinished, VariantFinished, VariantStarted
from runner.report import terminal
from runner.report.terminal import Reporter, modes
from runner.verdict.signature import id_of
from tests.report.events_sample import FILE, NASTY, every_verdict, failure, finished, planned, started, value_finding

LETTERS = string.ascii_lowercase


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def printed(
    events: list[Event], stream: io.StringIO | None = None, environ: dict[str, str] | None = None, **options: object
) -> str:
    stream = stream or io.StringIO()
    reporter = Reporter(stream, environ=environ or {}, **{"width": 120, **options})  # type: ignore[arg-type]
    for event in events:
        reporter.handle(event)
    reporter.close()
    return stream.getvalue()


def test_a_line_a_result() -> None:
    lines = printed([started(), planned("a"), planned("b"), finished(name="b")]).splitlines()
    assert lines[0] == "runner 0.1.0, torch 2.13.0, run 2026-01-02-abc on box"
    assert lines[1] == f"   PASS [  1.23s] {FILE}::b[float32,cpu]@inductor (1/2)"


def test_the_line_of_a_pass_says_what_was_not_compared() -> None:
    notes = ("output[1]: a lib.Cache cannot be compared; not compared", "slow")
    lines = printed([started(), planned(), finished("PASS", labels=("not-compared",), notes=notes)]).splitlines()
    assert lines[1].endswith("@inductor (1/1) - not compared: output[1]: a lib.Cache cannot be compared")


def test_verbose_says_below_a_result_what_was_compared() -> None:
    counts = {"outputs": 2, "strides": 1, "aliases": 2, "gradients": 1, "elements": 1}
    event = finished(compared=counts, labels=("within-float64-noise",), notes=("a note",))
    below = [line.strip() for line in printed([started(), planned(), event], verbose=True).splitlines()[2:]]
    assert below == [
        "compared 2 outputs (strides of 1, aliases of 2), 1 gradient, 1 element", "label within-float64-noise", "note a note",
    ]  # fmt: skip
    exceptions = finished(compared={"exceptions": 2})
    assert printed([planned(), exceptions], verbose=True).splitlines()[1].strip() == "compared 2 exceptions"
    assert (
        len(printed([planned(), finished()], verbose=True).splitlines()) == 1
    )  # a log of a version that counted nothing
    assert len(printed([planned(), event]).splitlines()) == 1


def test_the_torch_version_is_named_when_there_are_several() -> None:
    text = printed(
        [started("2.6.0", "2.13.0"), planned(torch="2.6.0"), planned(torch="2.13.0"), failure(torch="2.6.0")]
    )
    assert text.splitlines()[0].startswith("runner 0.1.0, torch 2.6.0 and 2.13.0,")
    assert "   FAIL [  1.23s] " in text and "@inductor torch 2.6.0 (1/2) - value: output 1 differs" in text


def test_the_end() -> None:
    text = printed(every_verdict(), reports=["junit.xml"])
    *_, summary, reports, folder = text.splitlines()[:-2]
    assert text.splitlines()[-2].startswith(f"next: runner why '{FILE}::pad_view[float32,cpu]@inductor'")
    assert text.splitlines()[-1] == f"      runner issue '{FILE}::pad_view[float32,cpu]@inductor'"
    assert summary == (
        "1 passed, 1 failed, 1 error, 1 invalid, 1 xpass, 1 vacuous, 1 flaky, 1 xfail, 1 skip, 2 not run in 12.3s"
    )
    assert (reports, folder) == ("reports: junit.xml", "run folder: runs/2026-01-02-abc")
    table, first = (
        text.index("\ncase "),
        text.index(f"\nFAIL {FILE}::case_fail[float32,cpu]@inductor\nvalue: output 1 differs\n"),
    )
    assert table < first
    titles = [line.split()[0] for line in text.splitlines() if f" {FILE}" in line and line.endswith("@inductor")]
    assert titles == ["FAIL", "ERROR", "INVALID", "XPASS", "VACUOUS", "FLAKY"]
    assert "XFAIL [  1.23s]" in text and "(8/11) - because of XFAIL" in text


def test_failures_of_one_severity_are_in_plan_order() -> None:
    results = [failure(name="b", stage="aot", findings=(value_finding(stage="aot"),)), failure(name="a")]
    text = printed([planned("a"), planned("b"), *results, RunFinished(1, 1.0)])
    assert text.index(f"\nFAIL {FILE}::a[") < text.index(f"\nFAIL {FILE}::b[")


def alike(*names: str, **changes: object) -> list[VariantFinished]:
    """Failures of one signature, each with its own command."""
    return [failure(name=name, repro=f"runner run {name}", **changes) for name in names]


def test_failures_of_one_signature_are_shown_once_the_worst_severity_first() -> None:
    strides = alike("c", "d", "e", findings=(value_finding(oracle="stride"),))
    results = [*strides, *alike("a"), *alike("g", "h", findings=(value_finding(oracle="dtype"),))]
    end = printed([*map(planned, "cdeagh"), *results, RunFinished(1, 1.0)])
    end = end[end.index("\ncase ") :]
    blocks = re.findall(rf"^FAIL {re.escape(FILE)}::(\w)\[", end, re.MULTILINE)
    assert blocks == ["g", "a", "c"]
    assert "  reproduce: runner run c\n  2 more of this signature:\n    runner run d\n    runner run e\n" in end
    table = end[end.index("\nresults  severity") :].splitlines()[1:5]
    ids = [id_of(f"{oracle} at inductor") for oracle in ("dtype", "value", "stride")]
    assert table == [
        "results  severity      signature",
        f"      2  wrong-result  {ids[0]} dtype at inductor",
        f"      1  wrong-result  {ids[1]} value at inductor",
        f"      3  metadata      {ids[2]} stride at inductor",
    ]
    assert end.splitlines()[-2].endswith(" runner why g  # 2 failures alike: dtype at inductor")


def test_one_group_needs_no_table_of_signatures() -> None:
    assert "results  severity" not in printed([*map(planned, "ab"), *alike("a", "b"), RunFinished(1, 1.0)])


def test_a_large_group_is_bounded_unless_asked() -> None:
    events = [started(), *map(planned, LETTERS), *alike(*LETTERS), RunFinished(1, 1.0)]
    text = printed(events)
    assert "  25 more of this signature:\n    runner run b\n" in text
    assert "    runner run k\n    and 15 more; runner report runs/2026-01-02-abc > FILE writes them all\n" in text
    for whole in (printed(events, whole=True), printed(events, verbose=True)):
        assert "    runner run z\n" in whole and "and 15 more" not in whole


def test_a_member_without_a_command_is_named_by_its_id() -> None:
    text = printed([*map(planned, "ab"), failure(name="a"), failure(name="b", repro=""), RunFinished(1, 1.0)])
    assert f"  1 more of this signature:\n    {FILE}::b[float32,cpu]@inductor\n" in text


def test_the_table_of_signatures_fits_the_terminal() -> None:
    error = {"type": "KeyError", "message": "a very long message " * 20}
    finding = value_finding(oracle="compile-error", error=error)
    events = [*map(planned, "ab"), *alike("a"), *alike("b", findings=(finding,)), RunFinished(1, 1.0)]
    for width in (80, 100):
        text = printed(events, width=width)
        lines = text[text.index("\nresults  severity") :].splitlines()[1:4]
        assert all(len(line) <= width for line in lines) and lines[-1].endswith("...")


def test_plain_output_has_no_escape_sequences() -> None:
    events = every_verdict()
    nasty: list[Event] = [finished("FAIL", NASTY, reason=NASTY, output=NASTY), Notice(NASTY), RunFinished(1, 1.0)]
    for environ in ({}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"TERM": "dumb"}):
        stream = Terminal() if environ else io.StringIO()
        text = printed([*events[:-1], *nasty], stream, environ)
        assert "\x1b" not in text and "\r" not in text and "\x00" not in text


def test_modes() -> None:
    tty, pipe = Terminal(), io.StringIO()
    assert modes(tty, {}) == (True, True)
    assert modes(pipe, {}) == (False, False)
    assert modes(pipe, {"FORCE_COLOR": "1"}) == (True, False)
    assert modes(pipe, {"FORCE_COLOR": "0"}) == (False, False)
    assert modes(tty, {"NO_COLOR": "1"}) == (False, True)
    assert modes(tty, {"CI": "true"}) == (True, False)
    assert modes(tty, {"NO_COLOR": ""}) == (True, True)
    assert modes(tty, {"TERM": "dumb"}) == (False, False)
    assert modes(tty, {"TERM": "dumb", "FORCE_COLOR": "1"}) == (True, False)


def test_colour_changes_nothing_but_the_colour() -> None:
    plain = printed(every_verdict())
    coloured = printed(every_verdict(), environ={"FORCE_COLOR": "1"})
    assert "\x1b[31m   FAIL\x1b[0m [" in coloured and "\x1b[32m   PASS\x1b[0m [" in coloured
    bare = re.sub(r"\x1b\[\d+m", "", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == [line.rstrip() for line in plain.splitlines()]


def test_a_log_says_now_and_then_that_something_still_runs() -> None:
    stream = io.StringIO()
    reporter = Reporter(stream, environ={})
    for time in (1, 59, 60, 61, 119, 121, 400):
        reporter.tick([("slow_case", float(time), ""), ("quick", 1.0, "")])
    assert [line.split("[")[1] for line in stream.getvalue().splitlines()] == [
        "> 60s] slow_case", "> 120s] slow_case", "> 180s] slow_case",
    ]  # fmt: skip


def test_the_summary_says_what_a_backend_does_not_claim() -> None:
    skipped = [
        finished("SKIP", name=f"{number}", unclaimed=need)
        for number, need in enumerate(("gradients", "float64", "gradients", ""))
    ]
    assert "1 passed, 4 skip (not claimed: gradients 2, float64 1) in" in printed(
        [started(), finished(), *skipped, RunFinished(0, 1.0)]
    )


def test_a_report_from_a_log_has_no_line_for_each_result() -> None:
    events = [started(), planned(), finished(), RunFinished(0, 1.0)]
    assert "(1/1)" in printed(events) and "(1/1)" not in printed(events, progress=False)


def test_quiet_prints_what_went_wrong_and_the_summary() -> None:
    notices = [Notice("by the way", "info"), Notice("disk full")]
    text = printed(
        [started(), planned("a"), planned("b"), *notices, finished(name="a"), failure(name="b"), RunFinished(1, 1.0)],
        quiet=True,
    )
    assert text.splitlines()[0] == "warning: disk full"
    assert text.splitlines()[1].startswith(f"   FAIL [  1.23s] {FILE}::b[")
    assert "by the way" not in text and "PASS" not in text and "\ncase " not in text
    assert f"\nFAIL {FILE}::b[" in text and "1 passed, 1 failed, 1 warning in 1.00s" in text


def test_quiet_says_nothing_while_it_runs() -> None:
    for stream in (Terminal(), io.StringIO()):
        reporter = Reporter(stream, environ={}, quiet=True)
        reporter.tick([("slow_case", 100.0, "")])
        assert stream.getvalue() == ""


LINK = re.compile(r"\x1b\]8;id=[0-9]+;([^\x1b]*)\x1b\\([^\x1b]*)\x1b\]8;;\x1b\\")


def test_files_are_links_where_a_terminal_takes_them() -> None:
    events = [started(folder="runs/a b\x1b[2J"), finished(), RunFinished(0, 1.0)]
    text = printed(events, Terminal(), {"TERM": "xterm"}, reports=["/x/junit.xml", "log"])
    links = LINK.findall(text)
    here = Path.cwd().as_uri()
    assert links == [
        ("file:///x/junit.xml", "/x/junit.xml"), (f"{here}/log", "log"), (f"{here}/runs/a%20b%1B%5B2J", "runs/a b\\x1b[2J"),
    ]  # fmt: skip
    assert "\x1b]" not in LINK.sub("", text)
    for stream, environ in (
        (io.StringIO(), {}), (io.StringIO(), {"FORCE_COLOR": "1"}), (Terminal(), {"TERM": "linux"}), (Terminal(), {"FORCE_HYPERLINK": "0"}),
        (Terminal(), {"NO_COLOR": "1"}),
    ):  # fmt: skip
        assert "\x1b]8" not in printed(events, stream, environ, reports=["log"])
    assert "\x1b]8" in printed(events, Terminal(), {"TERM": "linux", "FORCE_HYPERLINK": "1"})


def test_the_place_of_a_failure_is_a_link() -> None:
    events = [started(folder=""), failure(), RunFinished(1, 0.0)]
    text = printed(events, Terminal(), {"TERM": "xterm"})
    assert LINK.findall(text) == [((Path.cwd() / FILE).as_uri(), FILE)]
    assert f"\n --> {FILE}:5:9\n" in LINK.sub(r"\2", text)
    place = f"{NASTY}:5:9"
    text = printed(
        [failure(place=place, findings=(value_finding(place=place),)), RunFinished(1, 0.0)],
        Terminal(),
        {"TERM": "xterm"},
    )
    assert "\x1b]" not in LINK.sub("", text)


def test_notices_are_shown_and_counted() -> None:
    text = printed(
        [Notice("disk full"), Notice("by the way", "info"), Notice("gone", "error"), finished(), RunFinished(0, 1.0)]
    )
    assert text.startswith("warning: disk full\ninfo: by the way\nerror: gone\n")
    assert "1 passed, 2 warnings in 1.00s" in text


def test_interrupted_and_empty_runs() -> None:
    assert "nothing ran in 0.00s" in printed([started(), RunFinished(5, 0.0)])
    text = printed([started(), planned("a"), VariantStarted("a", "2.13.0"), RunFinished(2, 1.0, interrupted=True)])
    assert "\n1 not run in 1.00s, interrupted\n" in text


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("environ", [{}, {"FORCE_COLOR": "1"}])
def test_a_reader_that_went_away_does_not_end_the_run(environ: dict[str, str]) -> None:
    printed(every_verdict(), Broken(), environ)
    closed = io.StringIO()
    reporter = Reporter(closed, environ=environ)
    closed.close()
    for event in every_verdict():
        reporter.handle(event)


def test_an_ascii_stream_gets_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    reporter = Reporter(stream, environ={})
    for event in every_verdict():
        reporter.handle(event)
    assert b"dynamo ok \\xb7 aot ok" in raw.getvalue()


def test_importing_the_reports_is_cheap() -> None:
    import subprocess
    import sys

    code = (
        "import sys, runner.report.terminal, runner.report.junit, runner.report.table, runner.report.failure;"
        "print([m for m in ('torch', 'rich', 'tabulate', 'xml.etree.ElementTree') if m in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def long_run(red: int, *oracles: str) -> list[Event]:
    """Six variants, the first ``red`` of which fail, each by its oracle."""
    names = "abcdef"
    findings = [value_finding(oracle=oracle) for oracle in oracles]
    results = [
        failure(name=n, findings=(findings[place],)) if place < red else finished(name=n)
        for place, n in enumerate(names)
    ]
    return [started(), *(planned(n) for n in names), *results, RunFinished(1, 1.0)]


def test_a_long_run_ends_with_what_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_ROWS", 5)
    monkeypatch.setattr(terminal, "_BLOCKS", 2)
    text = printed(long_run(3, "value", "grad", "stride"))
    end = text[text.index("\ncase ") :]
    hint = "runner report runs/2026-01-02-abc > FILE writes them all"
    assert (
        "3 of 6 rows are left out: above are those that hold something other than PASS, SKIP and NOT-RUN; " + hint
        in end
    )
    assert end.count(f"\nFAIL {FILE}::") == 2 and "::c[float32,cpu]@inductor\nvalue" not in end
    assert f"\nand 1 more, which the reports hold; {hint}\n" in end
    assert "3 passed, 3 failed" in end


def test_a_whole_report_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = printed(long_run(3, "value", "grad", "stride"))
    monkeypatch.setattr(terminal, "_ROWS", 5)
    monkeypatch.setattr(terminal, "_BLOCKS", 2)
    assert printed(long_run(3, "value", "grad", "stride"), whole=True) == usual
    assert "left out" not in usual and "more, which" not in usual
