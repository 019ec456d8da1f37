"""Completion: real shells complete ``runner`` by the lines that ``docs/editors.md`` gives for them."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .driver import REPOSITORY

pytest.importorskip("argcomplete")

BIN = Path(sys.executable).parent
PAGE = (REPOSITORY / "docs" / "editors.md").read_text(encoding="utf-8")
SETUP = {
    "bash": 'eval "$(register-python-argcomplete runner)"',
    "zsh": 'autoload -Uz compinit && compinit -u && eval "$(register-python-argcomplete runner)"',
    "fish": "register-python-argcomplete --shell fish runner | source",
}
START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
PATIENCE = 60.0
"""Seconds for a shell to complete; it takes one or two."""

SPEC = "cases:\n  - {name: first_case, inputs: {x: [2]}, chain: [F.relu]}\n  - {name: other, inputs: {x: [2]}, chain: [F.relu]}\n"
LINES = {
    "a command": ("runner sche", "runner schema "),
    "a choice": ("runner run --isolation liv", "runner run --isolation living "),
    "a file": ("runner run case", "runner run cases.spec.yaml "),
    "a case": ("runner run cases.spec.yaml::fi", "runner run cases.spec.yaml::first_case "),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cases.spec.yaml").write_text(SPEC)
    (tmp_path / "cases.txt").touch()
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ENV", "BASH_ENV")}
    return {**kept, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb", "PS1": "$ "}


def typed_into(shell: str, folder: Path, line: str, expected: str) -> str:
    """Type a line and TAB into a shell with a terminal. Return what it shows, at the latest when it shows ``expected``."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe(START[shell][0], START[shell], environment(folder))
    shown = ""
    end = time.monotonic() + PATIENCE
    try:
        os.write(terminal, f"{SETUP[shell]}; echo set''up\n".encode())
        for words, wish in (("", "setup"), (f"{line}\t", expected)):
            os.write(terminal, words.encode())
            shown = ""
            while wish not in shown and time.monotonic() < end:
                if select.select([terminal], [], [], 1.0)[0]:
                    shown += os.read(terminal, 65536).decode(errors="replace")
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(terminal)
    return shown


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_a_line(shell: str, line: str, folder: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    typed, expected = LINES[line]
    shown = typed_into(shell, folder, typed, expected)
    assert expected in shown


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_fish_completes_a_line(line: str, folder: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("there is no fish")
    typed, expected = LINES[line]
    words = [*START["fish"][:-1], "-c", f"{SETUP['fish']}; complete -C '{typed}'"]
    result = subprocess.run(
        words, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=PATIENCE
    )
    offered = [row.partition("\t")[0] for row in result.stdout.splitlines()]
    assert expected.split()[-1] in offered, result


def test_the_page_has_the_lines() -> None:
    assert SETUP["bash"] in PAGE and SETUP["fish"] in PAGE and "autoload -Uz compinit && compinit\n" in PAGE


def completions(line: str, folder: Path) -> list[str]:
    """Return what ``runner`` offers a shell for a line, by argcomplete's protocol."""
    target = folder / "offered"
    variables = {
        "_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(target),
    }  # fmt: skip
    words = [str(BIN / "runner")]
    subprocess.run(
        words, cwd=folder, env={**environment(folder), **variables}, check=True, capture_output=True, timeout=PATIENCE
    )
    return sorted(target.read_text().split())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("runner schema --torch ", ["2.13", "2.6"]),
        ("runner run --isol", ["--isolation"]),
        ("runner run --backend induc", ["inductor"]),
        ("runner mini", []),  # a form of reduce, and no command
        ("runner reduce --minif", ["--minifier"]),
        ("runner reduce --minifier --lev", ["--level"]),
        ("runner nonsense --b", []),
        ("runner run --nonsense c", ["cases.spec.yaml"]),
        ("runner run cases.spec.yaml::", ["cases.spec.yaml::first_case", "cases.spec.yaml::other"]),
        ("runner run absent.spec.yaml::", []),
        ("runner run broken.spec.yaml::", []),
        ("runner run -k ", []),  # an expression: no file completes it
        ("runner report late", ["latest"]),
        ("runner operators F.gel", ["F.gelu"]),
        ("runner new nn.GEL", ["nn.GELU"]),
    ],
)
def test_what_is_offered(line: str, offered: list[str], folder: Path) -> None:
    (folder / "broken.spec.yaml").write_text("cases: [{name: ")
    assert completions(line, folder) == offered
