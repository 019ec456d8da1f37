"""The command on a real pseudo-terminal: live lines while it runs, and nothing of them afterwards."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.screen import Screen

from .driver import LIMIT, command, environment, run_in, spec, write

FILE = "\u4e2d\u6587[bold]" * 6 + ".spec.yaml"
CASES = spec("name: a\ninputs: {x: [4]}\nparams: {n: [1, 2, 3]}\nchain: [{torch.add: [$x, $n]}]")
WORDS = ("run", FILE, "--backend", "eager", "-j", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terminal")
    write(folder, {FILE: CASES})
    return folder


def on_terminal(
    folder: Path, width: int, *args: object, interrupt_at: str = "", env: Mapping[str, str] | None = None
) -> tuple[int, str, Screen]:
    """Run the command on a terminal. Return its exit code, its output as it came, and the screen at the end.

    ``interrupt_at`` is a text at whose first sight Ctrl-C is typed.
    """
    control, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    variables = {
        key: value
        for key, value in environment({"TERM": "xterm-256color"}).items()
        if key not in ("CI", "COLUMNS", "LINES")
    }
    with subprocess.Popen(
        command(*args), cwd=folder, env={**variables, **(env or {})}, stdin=terminal, stdout=terminal, stderr=terminal,
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:  # fmt: skip
        os.close(terminal)
        data = b""
        try:
            while True:
                try:
                    piece = os.read(control, 65536)
                except OSError:  # Linux says so when the last process has closed it
                    break
                data += piece
                if interrupt_at and interrupt_at.encode() in data:
                    os.write(control, b"\x03")
                    interrupt_at = ""
            code = process.wait(LIMIT)
        finally:
            process.kill()
            os.close(control)
    text = data.decode().replace("\r\n", "\n")
    return code, text, Screen(width, 24).feed(text)


def results(lines: list[str]) -> list[str]:
    """Return what a run prints from its first result to its table, without times."""
    text = "\n".join(line for line in lines if line)
    return re.sub(r" *[0-9.]+s\]", " TIME]", text[text.index("   PASS [") : text.index("3 passed")]).split("\n")


@pytest.mark.parametrize("width", [40, pytest.param(80, marks=pytest.mark.nightly)])
def test_the_live_lines_leave_nothing_behind(folder: Path, width: int) -> None:
    code, text, screen = on_terminal(folder, width, *WORDS)
    assert code == 0 and "0/3" in text and "workers start" in text
    piped = run_in(folder, *WORDS, env={"COLUMNS": str(width)})
    assert piped.code == 0 and "\x1b" not in piped.text and "\r" not in piped.text
    assert screen.cursor and screen.column == 0
    told, from_pipe = (results(lines) for lines in (screen.lines, Screen(width, 24).feed(piped.out).lines))
    assert "".join(told).replace(" ", "") == "".join(from_pipe).replace(" ", "")  # lines break at other places
    assert [link for link in screen.links if link.endswith("/events.jsonl")] and all(
        link.startswith(folder.as_uri()) for link in screen.links
    )


@pytest.mark.parametrize(
    "env", [{"TERM": "dumb"}, pytest.param({"CI": "1", "NO_COLOR": "1"}, marks=pytest.mark.nightly)]
)
def test_a_plain_terminal_gets_plain_lines(stand_in_here: None, folder: Path, env: dict[str, str]) -> None:
    code, text, _ = on_terminal(folder, 80, *WORDS, env=env)
    assert code == 0 and "\x1b" not in text and "\r" not in text and "3 passed" in text


def test_no_colour_is_no_colour(folder: Path) -> None:
    code, text, screen = on_terminal(folder, 80, *WORDS, interrupt_at="workers start", env={"NO_COLOR": "1"})
    assert code == 2 and "0/3" in text and not re.search(r"\x1b\[[0-9;]*m", text) and not screen.links


def test_quiet_has_no_live_lines(stand_in_here: None, folder: Path) -> None:
    code, text, screen = on_terminal(folder, 80, *WORDS, "-q")
    assert code == 0 and "0/3" not in text
    assert next(line for line in screen.lines if line).startswith("3 passed")


def test_ctrl_c_takes_the_live_lines_away(folder: Path) -> None:
    code, _, screen = on_terminal(folder, 80, *WORDS, interrupt_at="workers start")
    assert code == 2 and screen.cursor and not [line for line in screen.lines if "0/3" in line or "\u2501" in line]
    assert [line for line in screen.lines if re.fullmatch(r"3 not run in .*, interrupted", line)]
