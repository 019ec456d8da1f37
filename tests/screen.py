"""A terminal in memory: what a person sees after a program's output. Knows what rich's live lines use, and fails on anything else."""

from __future__ import annotations

import re
import unicodedata

_PIECE = re.compile(
    r"\x1b\[(?P<private>\?)?(?P<numbers>[0-9;]*)(?P<letter>[A-Za-z])|\x1b\]8;[^;]*;(?P<link>[^\x07\x1b]*)\x1b\\|(?P<text>[^\x1b])"
)


class Screen:
    """``width`` columns and ``height`` rows; what scrolls out at the top is kept, and can no longer be changed."""

    def __init__(self, width: int = 80, height: int = 24) -> None:
        self.width, self.height = width, height
        self.rows: list[list[str]] = [[]]
        self.row = self.column = 0
        self.cursor = True
        self.links: list[str] = []

    def feed(self, text: str) -> Screen:
        """Take output. Raises AssertionError for a sequence that it does not know."""
        place = 0
        while place < len(text):
            match = _PIECE.match(text, place)
            assert match, f"unknown sequence {text[place : place + 20]!r}"
            place = match.end()
            if match["text"] is not None:
                self._put(match["text"])
            elif match["letter"]:
                self._obey(match["letter"], match["numbers"], bool(match["private"]))
            elif match["link"]:
                self.links.append(match["link"])
        return self

    @property
    def lines(self) -> list[str]:
        """What stands there, without blanks at the ends of lines and blank lines at the end."""
        return "\n".join("".join(row).rstrip() for row in self.rows).rstrip("\n").split("\n")

    def _obey(self, letter: str, numbers: str, private: bool) -> None:
        if private:
            assert numbers == "25", numbers
            self.cursor = letter == "h"
        elif letter == "A":
            self.row = max(self.row - int(numbers or 1), len(self.rows) - self.height, 0)
        elif letter == "K":
            assert numbers == "2", numbers
            self.rows[self.row] = []
        else:
            assert letter == "m", letter

    def _put(self, sign: str) -> None:
        if sign == "\r":
            self.column = 0
        elif sign == "\n":  # a terminal driver makes \r\n of it
            self.column = 0
            self._down()
        else:
            assert sign == "\t" or unicodedata.category(sign) != "Cc", repr(sign)
            columns = 0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
            if self.column + columns > self.width:
                self.column = 0
                self._down()
            row = self.rows[self.row]
            row += [" "] * (self.column + columns - len(row))
            row[self.column : self.column + columns] = [sign, *[""] * (columns - 1)]
            self.column += columns

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append([])
