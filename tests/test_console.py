from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from runner import console
from runner.diagnose.harness import Progress
from runner.exit_codes import UsageError

CONTROL_HALF = [
    path
    for path in sorted((Path(__file__).parent.parent / "runner").rglob("*.py"))
    if "worker" not in path.parts and path.name not in ("console.py", "build_set.py")
]


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("red \x1b[31m", "red \\x1b[31m"),
        ("a\rb\x00\x07", "a\\x0db\\x00\\x07"),
        ("abc\u202edcba\u2066", "abc\\u202edcba\\u2066"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("ünïcode שלום", "ünïcode שלום"),
    ],
)
def test_what_is_printed_obeys_nobody(given: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    console.output(given)
    console.message(given)
    assert capsys.readouterr() == (printed + "\n", printed + "\n")


def test_our_own_colours_alone_are_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    console.output(console.painted("red", "red") + "\x1b[2J\x1b[35m", colours=True)
    console.output(console.painted("red", "red"))
    assert capsys.readouterr().out == "\x1b[31mred\x1b[0m\\x1b[2J\\x1b[35m\n\\x1b[31mred\\x1b[0m\n"


def test_what_follows_goes_nowhere_once_the_reader_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else Python would try it again when it ends, and end with a code of its own."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        for _ in range(3):
            console.output("x" * 100_000)
        console.flush()
        assert os.path.samestat(os.fstat(writer), os.stat(os.devnull))


def test_a_full_disk_is_said_once_and_a_remark_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as stream, open("/dev/full", "w") as remarks:
        monkeypatch.setattr("sys.stdout", stream)
        monkeypatch.setattr("sys.stderr", remarks)
        console.message("lost")
        console.status("lost too")
        console.output("short")
        with pytest.raises(UsageError, match="standard output cannot be written: No space left on device") as caught:
            console.flush()
        assert caught.value.code == 3
        console.flush()


@pytest.mark.parametrize("path", CONTROL_HALF, ids=lambda path: path.stem)
def test_the_control_half_prints_through_the_console_alone(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    assert [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"] == []


STREAMS = ("stdout", "stderr")
QUERIES = ("isatty", "fileno", "encoding", "flush")
"""What may be asked of a stream by anybody."""
WRITERS = {"report/terminal.py": 1, "cli/arguments.py": 1, "cli/logs.py": 2}
"""Files that write in a terminal themselves, or let ``modes`` ask it, and how often they name a stream for that."""


def named_streams(text: str) -> list[int]:
    """The lines that name a standard stream, but those that only ask it something."""
    tree = ast.parse(text)
    queries = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in QUERIES}
    named = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in STREAMS and id(n) not in queries]
    named = [n for n in named if isinstance(n.value, ast.Name) and n.value.id == "sys"]
    imported = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.ImportFrom) and n.module == "sys" and {a.name for a in n.names} & {*STREAMS}
    ]
    return [node.lineno for node in (*named, *imported)]


@pytest.mark.parametrize("path", CONTROL_HALF, ids=lambda path: path.stem)
def test_the_control_half_writes_to_no_stream_itself(path: Path) -> None:
    assert len(named_streams(path.read_text())) == WRITERS.get("/".join(path.parts[-2:]), 0)


def test_a_stream_by_any_name_is_seen() -> None:
    for text in (
        "import sys\nsys.stdout.write('x')",
        "import sys\nf = sys.stderr",
        "from sys import stdout",
        "import sys\nsys.stdout.buffer.write(b'')",
    ):
        assert named_streams(text), text
    assert named_streams("import sys\nsys.stdout.isatty()\nsubprocess.run(x).stdout") == []


def test_progress_in_a_terminal_obeys_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress._live = True
    progress.say("case \x1b[2J\nnext\u202e")
    assert capsys.readouterr().err.removeprefix("\r\x1b[K") == "[0:00] case \\x1b[2J\\nnext\\u202e"


# --- commands of the system that shows the log -------------------------------------------------

COMMANDS = ["::error file=a::x", "  ::add-mask::x", "a\n\t::stop-commands::x", "\u2003::x", "a ##[error]x", "##vso[task.complete]x",
            "x ##teamcity[buildStop]", ":::error::x"]  # fmt: skip


@pytest.mark.parametrize("text", COMMANDS)
@pytest.mark.parametrize("variable", ["GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION"])
def test_nothing_that_is_printed_is_a_command_to_a_system_of_jobs(
    text: str, variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """GitHub looks for ``::`` after blanks at the beginning of a line, and all of them for ``##[`` and the like anywhere."""
    monkeypatch.setenv(variable, "true")
    console.output(text)
    console.message(text)
    for printed in capsys.readouterr():
        assert not any(line.lstrip().startswith("::") for line in printed.split("\n"))
        assert not any(mark in printed for mark in ("##[", "##vso[", "##teamcity["))


@pytest.mark.parametrize("hidden", ["\u200b", "\u00ad", "\u200c\u2060", "\ufe0f"])
@pytest.mark.parametrize(
    "text", ["{}::error::x", ":{}:error::x", "#{}#[error]x", "##{}[error]x", "##vs{}o[task.complete]x"]
)
def test_nor_with_characters_that_net_passes_over(
    text: str, hidden: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    console.output(text.format(hidden))
    printed = capsys.readouterr().out.replace(hidden, "")
    assert not printed.startswith("::") and "##[" not in printed and "##vso[" not in printed


def test_elsewhere_and_in_files_text_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION"):
        monkeypatch.delenv(name, raising=False)
    console.output(COMMANDS[0])
    assert capsys.readouterr().out == COMMANDS[0] + "\n"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    with open(tmp_path / "file", "w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        console.output(COMMANDS[0])
    assert (tmp_path / "file").read_text() == COMMANDS[0] + "\n"


def test_a_command_of_our_own_is_printed_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    console.command("::error title=a::b\x1b")
    assert capsys.readouterr().out == "::error title=a::b\\x1b\n"
