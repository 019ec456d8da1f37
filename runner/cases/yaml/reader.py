"""YAML 1.2 core text to a tree of nodes that know their place.

PyYAML's parser gives the events: the C one, ten times faster, where it is installed. This package decides which scalar
is a number, what a tag may do and what an alias may cost. PyYAML would decide as YAML 1.1 does: ``1e-3`` text, ``no``
false, ``1:30`` ninety. No constructor is ever involved.
"""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path

from runner.cases.limits import Limits, show_size
from runner.cases.yaml.composer import Builder
from runner.cases.yaml.scalars import excerpt, split_lines
from runner.cases.yaml.tree import YamlNode
from runner.diagnostics import Diagnostic, Span, nearest
from runner.files import open_regular


def load(
    path: str | Path, text: str | None = None, limits: Limits | None = None
) -> tuple[YamlNode | None, list[Diagnostic]]:
    """Return the tree in ``text`` (in the file ``path`` when None), and the diagnostics of it.

    A bad file raises nothing. The tree is None where none could be built. Beside errors that leave one (a duplicate
    key, a tag) it is what remains, so that later checks can report more.
    """
    limits = limits or Limits()
    file = str(path)
    if text is None:
        text, diagnostics = read_text(path, limits)
        if text is None:
            return None, diagnostics
    elif len(text.encode("utf-8", "surrogatepass")) > limits.file_bytes:
        return None, [_too_large(file, limits)]
    text = text.removeprefix("\ufeff")
    builder = Builder(file, text, limits)
    # The tree has no cycles, and the collector's walks over it would take half of the time of a large file.
    collecting = gc.isenabled()
    gc.disable()
    try:
        root = builder.build()
    finally:
        if collecting:
            gc.enable()
    return root, builder.diagnostics


def read_text(path: str | Path, limits: Limits | None = None) -> tuple[str | None, list[Diagnostic]]:
    """Return the characters of a file, without a byte order mark, or None and the reason why it cannot be read."""
    limits = limits or Limits()
    file = str(path)
    try:
        with open_regular(path) as handle:
            data = handle.read(limits.file_bytes + 1)
    except IsADirectoryError:
        return None, [Diagnostic(Span(file, 1, 1), "this is a folder, not a file")]
    except FileNotFoundError:
        return None, [Diagnostic(Span(file, 1, 1), "there is no such file", similar_file(Path(path)))]
    except PermissionError:
        return None, [Diagnostic(Span(file, 1, 1), "there is no permission to read this file")]
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        return None, [Diagnostic(Span(file, 1, 1), f"this file cannot be read: {reason}")]
    if len(data) > limits.file_bytes:
        return None, [_too_large(file, limits)]
    try:
        return data.decode("utf-8").removeprefix("\ufeff"), []
    except UnicodeDecodeError as error:
        valid_text = data[: error.start].decode("utf-8").removeprefix("\ufeff")
        lines = split_lines(valid_text)
        column = len(lines[-1]) + 1
        broken_text = re.split(rb"[\r\n]", data[error.start : error.start + 80])[0].decode("utf-8", "replace")
        hint = (
            "it looks like UTF-16; save it as UTF-8" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "save it as UTF-8"
        )
        message = f"this file is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}"
        return None, [Diagnostic(Span(file, len(lines), column), message, hint, text=excerpt(lines[-1] + broken_text))]


def _too_large(file: str, limits: Limits) -> Diagnostic:
    message = f"this file is larger than {show_size(limits.file_bytes)}"
    return Diagnostic(Span(file, 1, 1), message, limits.hint("file_bytes"))


def similar_file(path: Path) -> str:
    """Return ``did you mean 'first.spec.yaml'?`` for a name that is like one in its folder; else an empty string."""
    try:
        return nearest(path.name, os.listdir(path.parent))
    except (OSError, ValueError):
        return ""
