"""Makes the pictures of a run for the pages: docs/terminal.svg and docs/html.png, of the README's case with its planted bug.

    python tools/pictures.py                        # both
    python tools/pictures.py --chromium PROGRAM     # by another Chromium than the one in the path

The first is the output of ``runner run``, the second its page in Chromium. Look at both before you commit them.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import format_page
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parent.parent / "docs"
TERMINAL, REPORT = DOCS / "terminal.svg", DOCS / "html.png"

README = DOCS.parent / "README.md"
FILE = "first.spec.yaml"
COMMAND = f"runner run {FILE} --backend aot_eager --backend inductor"
COLUMNS = 106
WINDOW = (1000, 720)
"""Width and height of the page's picture."""

_FONTS = re.compile(r"@font-face \{\{.*?\}\}", re.DOTALL)
"""What rich's picture would load from a foreign server."""
_SIZE = re.compile(r"(?<=<svg )")
"""Where a picture has its size: without one a browser draws it as small as it likes."""
_PASSING = re.compile(r"runner \d|reports: |run folder: | *(?:PASS|FAIL) \[")
"""Beginnings of lines with a run's name, its folder, and the time of a variant."""

_TIME = re.compile(r" in [\d.]+s$")
"""How long a run took."""


def main() -> None:
    """Make both pictures. Exit with a message where a command fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chromium", default="chromium", metavar="PROGRAM", help="(default: %(default)s)")
    program = parser.parse_args().chromium
    with tempfile.TemporaryDirectory() as folder:
        output = run(Path(folder))
        TERMINAL.write_text(terminal(output), encoding="utf-8")
        photograph(program, Path(folder, "site", "index.html"), REPORT)


def run(folder: Path) -> str:
    """Run the README's case with its bug and with colours, and return what it prints. Its pages are in ``site``."""
    text = README.read_text(encoding="utf-8")
    case = next(file for file in format_page.examples(text) if file.name == FILE)
    (bug,) = re.findall(r"^    config: .*\n", text, re.MULTILINE)
    (folder / FILE).write_text(case.text + bug, encoding="utf-8")
    words = [sys.executable, "-m", *COMMAND.split(), "--html", "site"]
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    process = subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    if process.returncode != 1:
        sys.exit(f"{COMMAND}: exit code {process.returncode}, not 1\n{process.stdout}")
    return process.stdout


def terminal(output: str) -> str:
    """Return the picture of a terminal with an output, without what differs from run to run. It loads nothing."""
    lines = [_TIME.sub("", line) for line in output.splitlines() if not _PASSING.match(Text.from_ansi(line).plain)]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("\n".join([f"$ {COMMAND}", *lines, " "])))
    code_format = _SIZE.sub('width="{width}" height="{height}" ', _FONTS.sub("", CONSOLE_SVG_FORMAT))
    return console.export_svg(title="runner run", code_format=code_format, unique_id="terminal")


def photograph(program: str, page: Path, target: Path) -> None:
    """Have Chromium open a page and write its picture."""
    with tempfile.TemporaryDirectory() as profile:
        flags = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
            "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
            f"--user-data-dir={profile}", f"--window-size={WINDOW[0]},{WINDOW[1]}", f"--screenshot={target.resolve()}",
        ]  # fmt: skip
        process = subprocess.run(
            [program, *flags, page.resolve().as_uri()], capture_output=True, text=True, timeout=120
        )
    if process.returncode != 0:
        sys.exit(f"{program}: exit code {process.returncode}\n{process.stderr}")


if __name__ == "__main__":
    main()
