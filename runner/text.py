"""Text for reports: made safe for terminals and XML, cut to size, and put in words.

What a worker prints is anything at all: escape sequences, NUL bytes, half a UTF-8 character. ElementTree writes such
text without complaint and no parser reads it again, and a terminal obeys it. So everything that comes from outside
goes through ``clean`` once, before any report sees it.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

TEXT_LIMIT = 64 * 1024
"""Bytes in one text node: libxml2 refuses 10 MB, dorny cuts at 65 535, and people stop reading long before."""

MESSAGE_LIMIT = 300
"""Characters in a message, which is one line."""

_ANSI = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles and links, ended by BEL or ST
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours and cursor
    r"|\x1b[#%()*+./-][0-~]"  # character sets; not after a blank, for a stray ESC before a word is no sequence
    r"|\x1b[@-Z\\^_=>78c]"  # two characters
)

# Not XML 1.0 at all: C0 but tab and newline, surrogates, U+FFFE and U+FFFF. Allowed there but dropped without a word by
# some tools, or obeyed by terminals: DEL, C1, and the other noncharacters. What changes the direction or the lines of
# text (bidirectional controls, U+2028, U+2029) or hides in it (byte order marks, tags) can make one text look like
# another. All are shown instead.
_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f"
    + "".join(chr(plane * 0x10000 + low) for plane in range(1, 17) for low in (0xFFFE, 0xFFFF))
    + "]"
)


def describe_character(character: str) -> str:
    """Return the number and the name of a character, for one that looks like another or like nothing."""
    name = unicodedata.name(character, "")
    return f"U+{ord(character):04X}" + (f" ({name})" if name else "")


def visible(text: str) -> str:
    """Return ``text`` with each character that XML or a terminal cannot take as Python writes it: ``\\x00``,
    ``\\udc80``."""
    return text if _is_plain(text) else _UNFIT.sub(_escape, text)


def _is_plain(text: str) -> bool:
    """Whether ``text`` is printable ASCII, tabs and newlines: true of nearly all text, and known fast."""
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def in_line(text: str) -> str:
    """Return an id, a file or a suite's name as it is, but for what would break a line or an attribute: that is
    shown."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def clean(text: str) -> str:
    """Return ``text`` for any report: no escape sequences, one kind of newline, nothing illegal."""
    # A stray ESC is no sequence, and stays for ``visible`` to show.
    return text if _is_plain(text) else visible(_ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


def cap(text: str, limit: int = TEXT_LIMIT, where: str = "") -> str:
    """Return ``text`` in at most ``limit`` bytes of UTF-8: its head and its tail, and between them how much is missing.

    The tail gets the larger part, because that is where a dying process says why. ``where`` says who has the whole
    text.
    """
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return text
    pointer = f"; {where}" if where else ""
    room = limit - len(f"\n[... {len(data)} bytes cut{pointer} ...]\n".encode())
    if room <= 0:
        return data[:limit].decode("utf-8", "ignore")
    head = room // 4
    tail = room - head
    # "ignore" drops the halves of a character that either cut may leave.
    return (
        data[:head].decode("utf-8", "ignore")
        + f"\n[... {len(data) - room} bytes cut{pointer} ...]\n"
        + data[len(data) - tail :].decode("utf-8", "ignore")
    )


def one_line(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """Return ``text``, cleaned, on one line of at most ``limit`` characters."""
    # Nobody reads past the limit, so a megabyte of output is not cleaned for the sake of one line.
    line = " ".join(clean(text[: limit * 8].replace("\u2028", " ").replace("\u2029", " ")).split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."


def head_lines(text: str, count: int) -> list[str]:
    """Return the first ``count`` lines that are not blank, and how many more there are."""
    lines = _lines(text)
    return lines if len(lines) <= count else [*lines[:count], f"[... {len(lines) - count} more lines]"]


def tail_lines(text: str, count: int) -> list[str]:
    """Return the last ``count`` lines that are not blank, after how many there were before."""
    lines = _lines(text)
    return lines if len(lines) <= count else [f"[... {len(lines) - count} lines before]", *lines[-count:]]


def _lines(text: str, width: int = 400) -> list[str]:
    # Split at newlines only: str.splitlines also splits at form feeds and at U+2028, which are content here.
    lines = (line.rstrip() for line in clean(text).split("\n"))
    return [line if len(line) <= width else line[: width - 3] + "..." for line in lines if line]


def indent(lines: Iterable[str], by: int) -> list[str]:
    """Return ``lines``, each moved ``by`` columns to the right."""
    return [" " * by + line for line in lines]


def seconds(value: float) -> float:
    """Return ``value`` as a time can be: NaN, infinities and negative times are 0."""
    return value if math.isfinite(value) and value > 0 else 0.0


def duration(value: float) -> str:
    """Return ``0.42s``, ``12.3s``, ``2m 05s``, ``1h 02m``: as precise as anybody wants to know."""
    value = seconds(value)
    if value < 10:
        return f"{value:.2f}s"
    if value < 99.95:
        return f"{value:.1f}s"
    minutes, remainder = divmod(round(value), 60)
    return f"{minutes}m {remainder:02d}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60:02d}m"


def number(value: Any) -> str:
    """Return a value for people: floats with nine digits, which tell any two float32 apart; lists in brackets."""
    match value:
        case float():
            return f"{value:.9g}"
        case Mapping():
            return "{" + ", ".join(f"{name}: {number(item)}" for name, item in value.items()) + "}"
        case Sequence() if not isinstance(value, str | bytes):
            return "[" + ", ".join(map(number, value)) + "]"
    return str(value)


def draw_table(rows: Iterable[Sequence[object]], headers: Sequence[str], right: bool = False) -> str:
    """Return a table under its headers, each cell as it is: a case named 1e5 is not a number, and 2.6 is not to be
    aligned at its dot. With ``right`` all columns but the first end in one line."""
    from tabulate import tabulate  # late: most commands draw none

    return tabulate(
        [*rows],
        headers=headers,
        tablefmt="simple",
        disable_numparse=True,
        colalign=("left", *["right"] * (len(headers) - 1)) if right else None,
    )


def plural(count: int, noun: str, several: str = "") -> str:
    """Return ``1 warning``, ``2 warnings``. ``several`` is the plural of a noun to which no ``s`` is added."""
    return f"{count} {noun if count == 1 else several or noun + 's'}"


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``11th``."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def of_several(number: int, count: int) -> str:
    """Return ``the second of three``; beyond ten ``the 12th of 15``."""
    is_small = count <= len(_WORDS)
    return f"the {_ORDINALS[number - 1]} of {_WORDS[count - 1]}" if is_small else f"the {ordinal(number)} of {count}"
