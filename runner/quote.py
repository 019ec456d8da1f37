"""The one door from data into text that something else reads: Python, a shell, Markdown.

Names, YAML values and logs come from strangers. Each function here takes one checked type and returns text in which the
value cannot end the place that it stands in. Generated text is put together from such pieces and from constants alone.
Text for terminals and XML goes through ``runner.text``; what a command prints goes through ``runner.console``.
"""

from __future__ import annotations

import functools
import json
import keyword
import math
import re
import shlex
from collections.abc import Iterable, Mapping

from runner.text import in_line, visible

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


class QuoteError(ValueError):
    """A value that has no place in the text that was to hold it. Nothing of it is written."""


def literal(value: object) -> str:
    """Return a plain value as a Python expression: text in double quotes, NaN and infinities as ``float(...)``.

    Takes None, booleans, numbers (complex ones too), text, and lists, tuples and mappings of them. Raises QuoteError
    for another type: the ``repr`` of an object is no literal.
    """
    match value:
        case str():
            # repr where JSON would write escapes that Python reads otherwise (lone surrogates, control characters)
            return json.dumps(value, ensure_ascii=False) if value.isprintable() else repr(str(value))
        case list() | tuple():
            return "[" + ", ".join(map(literal, value)) + "]"
        case Mapping():
            return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
        case None | bool():
            return repr(value)
        case int():
            return repr(int(value))
        case float():
            return repr(float(value)) if math.isfinite(value) else f'float("{float(value)!r}")'
        case complex():
            return _complex(complex(value))
    raise QuoteError(f"{type(value).__name__} is no plain value")


def _complex(value: complex) -> str:
    """A sum, which Python makes a constant; where a sum would lose the sign of a zero or be no number, what reads the
    text."""
    parts = value.real, value.imag
    if all(math.isfinite(part) and (part or math.copysign(1.0, part) > 0) for part in parts):
        return f"({value.real!r}{'-' if value.imag < 0 else '+'}{abs(value.imag)!r}j)"
    return f'complex("{value!r}")'


def integer(value: object) -> str:
    """Return an integer as a Python expression. Raises QuoteError for anything else, booleans included."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise QuoteError(f"{_excerpt(value)} is no integer")
    return repr(int(value))


def decimal(value: object) -> str:
    """Return a finite number in at most six digits, as ``:g`` writes it.

    Raises QuoteError for anything else, booleans included.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise QuoteError(f"{_excerpt(value)} is no finite number")
    return f"{float(value):g}"


def dotted_name(name: object) -> str:
    """Return ``name`` as it is: ASCII identifiers with dots between them, none a keyword.

    Raises QuoteError for anything else.
    """
    if not isinstance(name, str) or not _is_dotted(name):
        raise QuoteError(f"{_excerpt(name)} is no Python name")
    return name


@functools.lru_cache(10_000)  # a case writes each of its names many times
def _is_dotted(name: str) -> bool:
    return _DOTTED.fullmatch(name) is not None and not any(map(keyword.iskeyword, name.split(".")))


def torch_name(name: object) -> str:
    """Return ``torch.<name>`` for a dtype or a constant of torch, named without ``torch.``.

    Raises QuoteError for no Python name.
    """
    return f"torch.{dotted_name(name)}"


def torch_flag(name: object) -> str:
    """Return a setting or a module of torch by its full name, as it is. Raises QuoteError for any other name."""
    if not dotted_name(name).startswith("torch."):
        raise QuoteError(f"{_excerpt(name)} is no name in torch")
    return str(name)


def identifier(name: object) -> str:
    """Return ``name`` as it is: one ASCII identifier, no keyword. Raises QuoteError for anything else."""
    if not isinstance(name, str) or "." in name:
        raise QuoteError(f"{_excerpt(name)} is no Python identifier")
    return dotted_name(name)


def _excerpt(value: object) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def docstring(text: str) -> str:
    """Return prose for a string in three double quotes: nothing in it ends the string, escapes a letter or breaks a
    line but a newline."""
    text = text.replace("\\", "\\\\").replace('"', "'")
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else " " if c in "\t\r" else ascii(c)[1:-1].replace("\\", "\\\\")
        for c in text
    )


def comment(text: object) -> str:
    """Return ``# text`` for Python, YAML and shells: always one line, with line breaks and control characters shown."""
    return f"# {in_line(str(text))}".rstrip()


def yaml_text(text: str) -> str:
    """Return text as a scalar of YAML in double quotes, on one line."""
    return visible(json.dumps(text, ensure_ascii=False))


def operand(text: object) -> str:
    """Return a path or an id that no program takes for an option: one that begins with a dash gets ``./`` before it."""
    return f"./{text}" if str(text).startswith("-") else str(text)


def shell_word(text: object) -> str:
    """Return one word of a POSIX shell command, fit to be printed: control characters as ``$'...'`` writes them.

    No quote stands inside ``$'...'``, so that a shell without that form (dash) also sees one word, if an odd one.
    """
    word = str(text)
    return shlex.quote(word) if in_line(word) == word else f"$'{''.join(map(_shell_escape, word))}'"


def shell_words(words: Iterable[object]) -> str:
    """Return words of a command line, each by ``shell_word``, with blanks between."""
    return " ".join(map(shell_word, words))


_PIECE = r"""(?:[\w@%+=:,./-]|'[^']*'|"'"|\$'(?:[^'\\]|\\.)*')"""
_WORD = re.compile(rf"{_PIECE}+", re.ASCII)
_HASH_SEED = r"PYTHONHASHSEED=(?:random|[0-9]{1,10})"
_COMMAND = re.compile(rf"(?:{_HASH_SEED} )?runner [a-z]+(?: {_PIECE}+)*", re.ASCII)


def command_words(text: str) -> list[str]:
    """Return the words of a call of ``runner`` that ``shell_words`` wrote, each as it stands there; empty for any other
    text.

    A setting of PYTHONHASHSEED may stand before it. A shell runs nothing else for such a line, wherever the line comes
    from.
    """
    return _WORD.findall(text) if _COMMAND.fullmatch(text) and in_line(text) == text else []


def _shell_escape(character: str) -> str:
    if character.isprintable():
        return {"\\": "\\\\", "'": "\\047"}.get(character, character)
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


# Besides markup: addresses, mentions and numbers of issues, of which GitHub makes links, and mathematics.
_MARKDOWN = re.compile(r"([\\`*_\[\]#|<>&~@$]|^[-+=]|:(?=//)|(?<=www)\.|(?<=gh)-)", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[\w./?=%~:#&+-]+", re.ASCII)


def markdown_text(text: object) -> str:
    """Return text within a line of Markdown, as plain text: no markup, HTML, link, mention or table column comes of
    it."""
    return _MARKDOWN.sub(r"\\\1", in_line(str(text)))


def markdown_code(text: object) -> str:
    """Return text on one line as inline code, in a fence of more backticks than it holds."""
    line = in_line(str(text))
    fence = "`" * (1 + _longest_run(line))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}" if line else ""


def markdown_cell(text: object) -> str:
    """Return inline code for a table. Text with a bar is plain text there: a bar ends a column even in code."""
    return markdown_text(text) if "|" in str(text) else markdown_code(text)


def markdown_address(text: object) -> str:
    """Return an address on the web, of which a reader makes a link; any other text as plain text."""
    return str(text) if _ADDRESS.fullmatch(str(text)) else markdown_text(text)


def markdown_fence(text: str) -> str:
    """Return a fence for a code block that no line of ``text`` can close."""
    return "`" * max(3, 1 + _longest_run(text))


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def workflow_command(name: str, message: str, **properties: object) -> str:
    """Return a command to GitHub Actions, on one line: ``::error file=a.yaml,line=3,title=FAIL::message``.

    Empty properties are left out. The escapes are those of GitHub's own actions/toolkit.
    """
    words = ",".join(
        f"{key}={_command_data(value).replace(':', '%3A').replace(',', '%2C')}"
        for key, value in properties.items()
        if value not in (None, "", 0)
    )
    return f"::{name}{' ' if words else ''}{words}::{_command_data(message)}"


def _command_data(value: object) -> str:
    return visible(str(value).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))
