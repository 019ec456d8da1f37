"""The live lines of a terminal, as a person sees them: they change no word that is printed, and they go away."""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Iterable

import pytest

from runner import console
from runner.record.events import Event, Notice, RunFinished
from runner.report.terminal import Reporter, shortened
from tests.report.events_sample import FILE, failure, finished, planned, started
from tests.screen import Screen


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Watched:
    """A reporter, its terminal and its clock."""

    def __init__(self, width: int = 80, height: int = 24, **options: object) -> None:
        environ = {"TERM": "xterm", "LINES": str(height), **options.pop("environ", {})}  # type: ignore[dict-item]
        self.stream = Terminal()
        self.size = width, height
        self.now = 0.0
        self.reporter = Reporter(self.stream, environ=environ, width=width, clock=lambda: self.now, **options)  # type: ignore[arg-type]

    def handle(self, *events: Event) -> None:
        for event in events:
            self.reporter.handle(event)

    def tick(self, *running: tuple[str, float, str], delay: float = 1.0) -> list[str]:
        self.now += delay
        self.reporter.tick([*running])
        return self.lines

    @property
    def lines(self) -> list[str]:
        return Screen(*self.size).feed(self.stream.getvalue()).lines


def test_it_says_how_far_the_run_is_and_what_runs() -> None:
    watched = Watched()
    watched.handle(started(), planned("a"), planned("b"))
    assert watched.tick(delay=0.0)[1].endswith(" 0/2, 0s, workers start")
    bar = "━" * 24
    assert watched.tick(("short", 1.0, "eager"), ("long", 75.0, "backend"))[1:] == [
        f"{bar} 0/2, 1s", "     75s  long  backend", "      1s  short  eager",
    ]  # fmt: skip
    watched.handle(failure(name="a"))
    first, result, *status = watched.tick()
    assert first.startswith("runner 0.1.0") and result.startswith(f"   FAIL [  1.23s] {FILE}::a[float32,cpu]@inductor")
    assert status[-1] == f"{bar[:12]}╺{bar[:11]} 1/2, 1 red, 2s, about 1s left"


def test_remarks_and_warnings_are_wrapped_at_words() -> None:
    watched = Watched(verbose=True)
    watched.reporter.reports = [f"a/long/folder/of/runs/{name}" for name in ("junit.xml", "events.jsonl", "r.html")]
    note = "a note that has many words and so does not fit into the eighty columns of this terminal"
    watched.handle(planned("a"), planned("b"), failure(name="a"), finished("PASS", "b", notes=(note,)))
    watched.handle(Notice(note.replace("a note", "a warning")), RunFinished(1, 1.0))
    lines = watched.lines
    table = next(place for place, line in enumerate(lines) if line.startswith("case  "))
    assert all(len(line) < 80 for line in lines[:table]), lines
    result = next(place for place, line in enumerate(lines) if line.startswith("   FAIL"))
    assert lines[result].endswith("@inductor") and lines[result + 1].startswith(" " * 17 + "(1/2) - value: ")
    warning = next(place for place, line in enumerate(lines) if line.startswith("warning: a warning that has"))
    assert lines[warning + 1].startswith(" " * 9) and lines[warning + 1].endswith("this terminal")
    reports = next(place for place, line in enumerate(lines) if line.startswith("reports: "))
    assert [line.strip() for line in lines[reports + 1 : reports + 3]] == [
        *map("a/long/folder/of/runs/{}".format, ("events.jsonl,", "r.html"))
    ]


def test_a_variant_runs_since_its_first_process() -> None:
    watched = Watched()
    watched.handle(planned("a"))
    watched.tick(("a", 4.0, "backend"))
    assert watched.tick(("a", 0.0, "eager"), delay=2.0)[-1] == "      6s  a  eager"
    watched.tick()
    assert watched.tick(("a", 0.0, "eager"))[-1] == "      0s  a  eager"


def test_of_many_the_longest_are_shown() -> None:
    running = [(f"x{n}", float(n), "") for n in range(20)]
    watched = Watched(height=24)
    watched.handle(*(planned(f"x{n}") for n in range(20)))
    status = watched.tick(*running)
    assert len(status) == 10 and status[1].split() == ["19s", "x19"] and status[-1].strip() == "and 12 more"
    assert len(Watched(height=9).tick(*running)) == 5
    assert len(Watched(height=3).tick(*running)) == 3


HOSTILE = {
    "control": "\x1b[2J\x1b[H\r\n\t\x07\x00",
    "markup": "[bold]x[/bold] :smile: [link=http://a]",
    "long": "x" * 5000,
    "wide": "\u4e2d\u6587" * 200,
    "joined": "e\u0301" * 100 + "\u2764\ufe0f" * 100 + "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 50,
    "directions": "\u202eabc\u2066",
    "halves": "\ud800\udfff",
    "blank": "",
}


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_no_name_breaks_a_line(name: str, width: int) -> None:
    watched = Watched(width)
    watched.handle(*(planned(f"x{n}") for n in range(1234)))
    for _ in range(3):
        lines = watched.tick((name, 4000.0, name), ("other", 1.0, "eager"))
    assert len(lines) == 3 and lines[-1].split()[:2] == ["3s", "other"], lines
    assert lines[0].endswith("0/1234, 3s" if width >= 80 else "0/1234")
    assert all(sum(2 if unicodedata.east_asian_width(c) == "W" else 1 for c in line) < width for line in lines)
    watched.reporter.close()
    assert watched.lines == [""]


def as_piped(events: Iterable[Event], width: int) -> list[str]:
    stream = io.StringIO()
    reporter = Reporter(stream, environ={}, width=width)
    for event in events:
        reporter.handle(event)
    return stream.getvalue().rstrip("\n").split("\n")


@pytest.mark.parametrize("environ", [{}, {"NO_COLOR": "1"}])
@pytest.mark.parametrize("width", [40, 60, 80])
def test_what_is_printed_is_the_same_as_in_a_pipe(width: int, environ: dict[str, str]) -> None:
    names = [f"case_{n}" * (n % 5 + 1) for n in range(40)] + ["\u4e2d" * 30]
    events: list[Event] = [
        started(), *map(planned, names), Notice("[bold]disk full[/bold]\x1b[2J"),
        *(failure(name=n) if number % 7 == 0 else finished(name=n) for number, n in enumerate(names)), RunFinished(1, 3.0),
    ]  # fmt: skip
    watched = Watched(width, environ=environ)
    for event in events:
        watched.handle(event)
        watched.tick(("a", 1.0, "eager"), ("b", 2.0, "backend"), delay=0.5)
    watched.reporter.close()
    expected = Screen(width, 24).feed("\n".join(as_piped(events, width)).replace("\x1b", "")).lines
    told, piped = ("".join(lines).replace(" ", "") for lines in (watched.lines, expected))
    assert told == piped, "only the places of line breaks differ"
    if environ:
        assert not re.search(r"\x1b\[[0-9;]*m|\x1b\]", watched.stream.getvalue())


@pytest.mark.parametrize("end", ["finished", "closed", "cleared", "last verdict"])
def test_it_goes_away_and_the_cursor_stays(end: str) -> None:
    watched = Watched()
    watched.handle(started(), planned("a"))
    watched.tick(("a", 1.0, ""))
    assert Screen().feed(watched.stream.getvalue()).cursor, "a killed process brings no cursor back"
    if end == "finished":
        watched.handle(RunFinished(2, 1.0, interrupted=True))
    elif end == "last verdict":
        watched.handle(finished(name="a"))
        assert watched.lines[-1].endswith("/1)")
    elif end == "closed":
        watched.reporter.close()
    else:
        watched.reporter.clear()
    screen = Screen().feed(watched.stream.getvalue())
    assert screen.cursor and not [line for line in screen.lines if "0/1" in line or line.endswith(" a")]
    assert screen.row == len(screen.lines) and screen.column == 0
    length = len(watched.stream.getvalue())
    watched.reporter.close()
    watched.tick(("late", 1.0, ""))
    assert len(watched.stream.getvalue()) == length


def test_a_remark_is_printed_where_the_lines_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    monkeypatch.setattr("sys.stderr", watched.stream)
    watched.handle(started(), planned("a"))
    watched.tick(("a", 1.0, ""))
    console.message("runner: ending")
    banner, remark, *status = watched.tick(("a", 2.0, ""))
    assert remark == "runner: ending" and len(status) == 2
    watched.reporter.close()
    console.message("later")
    assert watched.lines == [banner, "runner: ending", "later"]


class Disturbed(Terminal):
    """A terminal on which a remark appears in the middle of each write, as that of a signal's handler."""

    def write(self, text: str) -> int:
        console.message("remark")
        return super().write(text)


def test_a_remark_in_the_middle_of_a_line_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    stream = Disturbed()
    reporter = Reporter(stream, environ={"TERM": "xterm"}, width=80)
    for event in (started(), planned("a"), planned("b")):
        reporter.handle(event)
    reporter.tick([("a", 1.0, "")])
    reporter.handle(finished(name="a"))
    reporter.tick([("b", 1.0, "")])
    reporter.close()
    screen = Screen().feed(stream.getvalue())
    assert [line[:7] for line in screen.lines if len(line) > 9] == ["runner ", "   PASS", " " * 7] and screen.cursor


def test_it_is_not_drawn_more_often_than_anybody_reads() -> None:
    watched = Watched()
    watched.tick(("a", 1.0, ""))
    length = len(watched.stream.getvalue())
    watched.tick(("a", 1.0, ""), delay=0.05)
    assert len(watched.stream.getvalue()) == length
    watched.tick(("a", 1.0, ""), delay=0.06)
    assert len(watched.stream.getvalue()) > length


def test_a_terminal_without_unicode() -> None:
    watched = Watched(40)
    watched.stream.encoding = "ascii"  # type: ignore[misc]
    watched.handle(planned("a"))
    assert watched.tick(("a" * 50, 1.0, "")) == ["-" * 24 + " 0/1", "      1s  ..." + "a" * 26]


@pytest.mark.parametrize(
    ("text", "room", "end"),
    [("abc", 3, "abc"), ("abcd", 3, "\u2026cd"), ("\u4e2d\u4e2d\u4e2d", 4, "\u2026\u4e2d"), ("abcd", 1, "\u2026")],
)
def test_shortened(text: str, room: int, end: str) -> None:
    assert shortened(text, room, "\u2026") == end
