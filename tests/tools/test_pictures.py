"""The pictures of a run: what the terminal's picture shows is what the README claims, and neither loads anything."""

from __future__ import annotations

import html
import re
import struct
from pathlib import Path

from tests.script_modules import script_module

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
pictures = script_module("pictures")


def lines(picture: str) -> list[str]:
    """Return the lines of text of a picture of a terminal: its words, from left to right, by their heights."""
    words = re.findall(r'<text class="terminal-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', picture)
    rows: dict[float, list[str]] = {}
    for _, y, text in words:
        rows.setdefault(float(y), []).append(html.unescape(text).replace("\N{NO-BREAK SPACE}", " "))
    return ["".join(rows[y]).rstrip() for y in sorted(rows)]


def test_the_readme_shows_both() -> None:
    assert {*re.findall(r"!\[[^\]]*\]\((docs/(?:terminal|html)\.\w+)\)", README)} == {
        "docs/terminal.svg",
        "docs/html.png",
    }


def test_the_picture_of_the_terminal_has_what_the_readme_says() -> None:
    shown = lines(pictures.TERMINAL.read_text(encoding="utf-8"))
    (block,) = re.findall(r"^```\n(FAIL first.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert shown[0] == f"$ {pictures.COMMAND}"
    assert [line for line in block.splitlines() if line.strip() != "..." and line not in shown] == []


def test_the_page_has_the_size_of_its_window() -> None:
    data = pictures.REPORT.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == pictures.WINDOW


def test_a_picture_loads_nothing_and_has_no_line_that_differs_from_run_to_run() -> None:
    output = "runner 0.1.0, run 1 on vm\n   PASS [  0.2s] a\n\x1b[31mFAIL\x1b[0m b & <c>\n\n1 failed in 2.5s\nrun folder: x\n"
    picture = pictures.terminal(output)
    for text in (picture, pictures.TERMINAL.read_text(encoding="utf-8")):
        assert re.match(r'<svg width="\d+(\.\d+)?" height="\d+(\.\d+)?" ', text)
        assert re.findall(r"url\((?!#)|@font-face|href|<image", text) == []
    assert lines(picture) == [f"$ {pictures.COMMAND}", "FAIL b & <c>", "1 failed"]
