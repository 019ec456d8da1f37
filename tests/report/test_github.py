"""The summary and the remarks of GitHub Actions: what they say, how much, and that no text from outside is obeyed."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from runner.cli.main import main
from runner.diagnostics import Diagnostic, Span
from runner.record.events import Event, Notice, RunFinished
from runner.record.journal import Journal
from runner.report import github
from runner.report.github import SUMMARY, append_summary, diagnostic_remarks, remarks_of, render_summary, report_run
from runner.report.site.results import results_of
from tests.report.events_sample import NASTY, every_verdict, failure, finished, planned, started

# What would be a command, Markdown, HTML, a mention, an issue, or the end of the place where it stands.
HOSTILE = f"::error::x%0A::y,z=1 | `a` **b** <script>alert(1)</script> </code></td> @octocat #1 ![i](https://x.y) $a$ {NASTY}\n\n# head"
COMMAND = re.compile(r"::(error|warning)(?: ((?:\w+=[^,:\n\r]*,?)+))?::([^\n\r]*)")


def remarks(events: list[Event]) -> list[tuple[str, dict[str, str], str]]:
    """Each remark as GitHub reads it: kind, properties, message."""
    parsed = []
    for line in remarks_of(events, results_of(events)):
        match = COMMAND.fullmatch(line)
        assert match, line
        pairs = dict(pair.split("=", 1) for pair in (match[2] or "").split(",") if pair)
        parsed.append((match[1], {key: _read(value) for key, value in pairs.items()}, _read(match[3])))
    return parsed


def _read(value: str) -> str:
    """As the runner of GitHub takes escapes back, ``%25`` last."""
    for escape, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        value = value.replace(escape, character)
    return value


class Summary(HTMLParser):
    """The tags of a summary, and the text that stands outside ``code``."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.bare = self.code = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "code" in self.open:
            self.code += data
        else:
            self.bare += data


def summary(events: list[Event], groups: int = 50, members: int = 300) -> str:
    return render_summary(events, results_of(events), groups, members)


def hostile_events(count: int = 1) -> list[Event]:
    fields = {"reason": HOSTILE, "labels": (HOSTILE,), "repro": HOSTILE, "findings": ()}
    results = [
        failure(name=f"{n}{HOSTILE}", backend=HOSTILE, torch=HOSTILE, signature=f"{n}{HOSTILE}", signature_id=f"{n:08x}", severity=HOSTILE, **fields)
        for n in range(count)
    ]  # fmt: skip
    return [started(HOSTILE, run=HOSTILE), *results, Notice(HOSTILE), RunFinished(1, 2.0)]


# --- remarks -----------------------------------------------------------------------------------


def test_a_remark_stands_at_the_line_of_its_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    ((kind, properties, message),) = remarks([started(), failure(), failure(name="other")])
    assert kind == "error"
    assert properties == {
        "file": "specs/regressions/silent.spec.yaml", "line": "5", "endLine": "5", "col": "9", "endColumn": "10",
        "title": "FAIL pad_view[float32,cpu]@inductor 2.13.0",
    }  # fmt: skip
    assert message.split("\n")[:2] == ["value: output 1 differs", "and 1 more of this signature"]


def test_files_are_named_from_the_root_of_the_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    ((_, properties, _),) = remarks([finished("INVALID", file=str(tmp_path / "below" / "a.spec.yaml"))])
    assert properties["file"] == "below/a.spec.yaml"
    ((_, properties, _),) = remarks([finished("INVALID", file="/elsewhere/a.spec.yaml")])
    assert "file" not in properties


def test_an_entry_that_is_not_needed_any_more_is_marked_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    stale = Notice("a.spec.yaml:9:3: this known: entry matched nothing: its selectors fit no variant")
    events = [finished("XPASS", entry=str(tmp_path / "b.spec.yaml") + ":7:5"), stale]
    (_, first, _), (kind, second, text) = remarks(events)
    assert (first["file"], first["line"]) == ("b.spec.yaml", "7")
    assert (kind, second["file"], second["line"]) == ("warning", "a.spec.yaml", "9") and "matched nothing" in text


def test_there_are_at_most_ten_of_a_kind_and_the_last_says_how_many_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "x")
    events = [failure(name=f"c{n}", signature=f"s{n}", severity="wrong-result") for n in range(10)]
    assert len(remarks(events)) == 10
    events += [failure(name="c", signature="s", severity="wrong-result"), *(Notice(f"n{n}") for n in range(30))]
    lines = remarks(events)
    assert [kind for kind, _, _ in lines] == ["error"] * 10 + ["warning"] * 10
    assert lines[9][2] == "2 more signatures stand in the summary and the log of this step"
    assert lines[19][2].startswith("21 more warnings stand")


def test_no_text_ends_a_remark_or_begins_another() -> None:
    error, warning = remarks(hostile_events())
    assert error[1].keys() <= {"file", "line", "endLine", "col", "endColumn", "title"} and error[1]["title"].startswith(
        "FAIL 0::error"
    )
    assert error[2].startswith("::error::x%0A::y,z=1 |") and warning[2].startswith("::error::x%0A::y")


def test_diagnostics_are_marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    diagnostics = [Diagnostic(Span("a.spec.yaml", 3, 7, 4), "unknown key", "did you mean 'x'?"), Diagnostic(Span(f"{HOSTILE}.yaml", 1, 1), HOSTILE, severity="warning")]  # fmt: skip
    first, second = diagnostic_remarks(diagnostics)
    assert (
        first
        == "::error file=a.spec.yaml,line=3,endLine=3,col=7,endColumn=11,title=runner validate::unknown key%0Adid you mean 'x'?"
    )
    assert COMMAND.fullmatch(second)
    marks = diagnostic_remarks([diagnostics[0]] * 14)
    assert len(marks) == 10 and "5 more errors stand" in marks[-1]


# --- the summary -------------------------------------------------------------------------------


def test_a_summary_counts_and_names_the_worst_first() -> None:
    text = summary(
        [*every_verdict(), failure(name="worst", severity="wrong-result", signature="s", signature_id="0badbad0")]
    )
    page = Summary(text)
    assert "7 red results of 12" in page.bare
    assert page.code.index("worst[float32,cpu]@inductor") < page.code.index("case_invalid")
    assert "specs/regressions/silent.spec.yaml:5" in page.code and "interrupted" not in page.bare


def test_no_text_of_a_summary_is_obeyed() -> None:
    text = summary(hostile_events())
    page = Summary(text)
    assert (
        page.tags <= {"h3", "h4", "table", "tr", "th", "td", "p", "code", "details", "summary", "br"} and not page.open
    )
    assert "<script>alert(1)</script>" in page.code and "octocat" not in page.bare and "![i]" not in page.bare
    # GitHub reads Markdown again after an empty line, and where a line begins with no block of HTML.
    for line in text.split("\n"):
        assert re.match(r"</?(h3|h4|table|tr|p|details|summary)\b", line), line


def test_a_summary_is_bounded_also_where_others_wrote_before(tmp_path: Path) -> None:
    events = hostile_events(400)
    path = tmp_path / "summary.md"
    sizes = []
    for _ in range(6):
        append_summary(events, results_of(events), path)
        sizes.append(path.stat().st_size)
    assert sizes[0] > 100_000 and sizes[-1] <= SUMMARY
    assert (
        "350 more signatures are left out" in path.read_text() and "100 more are in the event log" in path.read_text()
    )
    path.write_bytes(b"x" * (SUMMARY - 100))
    append_summary(events, results_of(events), path)
    assert path.stat().st_size == SUMMARY - 100


def test_a_summary_of_a_step_is_added_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before")
    report_run(every_verdict(), path)
    assert path.read_text().startswith("before\n\n<h3>runner: 6 red results of 11</h3>\n")
    assert capsys.readouterr().out.count("::error ") == 6


def test_a_summary_is_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="this is a pipe"):
        report_run(every_verdict(), tmp_path / "pipe")
    report_run(every_verdict(), Path("/dev/null"))


# --- commands ----------------------------------------------------------------------------------


def test_report_tells_github(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with Journal(tmp_path / "log.jsonl") as journal:
        for event in [
            started(),
            planned(),
            failure(output="::add-mask::secret\n##[add-mask]secret"),
            RunFinished(1, 1.0),
        ]:
            journal.write(event)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert main(["report", "log.jsonl", "--github"]) == 4
    assert "GITHUB_STEP_SUMMARY names no file" in capsys.readouterr().err
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert main(["report", "log.jsonl", "--github", "-v"]) == 0
    printed = capsys.readouterr().out
    commands = [line for line in printed.split("\n") if line.lstrip().startswith("::")]
    assert len(commands) == 1 and commands[0].startswith("::error file=specs/") and "##[" not in printed
    assert "# #[add-mask]" in printed and "1 red result of 1" in (tmp_path / "summary.md").read_text()


def test_a_summary_that_cannot_be_written_is_said_and_is_exit_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Journal(tmp_path / "log.jsonl") as journal:
        for event in every_verdict():
            journal.write(event)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "summary.md"))
    assert main(["report", str(tmp_path / "log.jsonl"), "--github"]) == 3
    assert "--github" in capsys.readouterr().out
    assert github.REMARKS == 10
