"""Bounds on what a file may ask for, so that no file can hang the runner or fill its memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from runner.diagnostics import nearest

_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = re.compile(r"([0-9][0-9_]*)(\.[0-9]+)?\s*([A-Za-z]*)")
_PREFIX = "RUNNER_LIMIT_"


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds, with their defaults. A file that passes one is refused with the name and the value of the limit."""

    file_bytes: int = 1 << 20  # one YAML file, and a Python file that it names
    total_bytes: int = 32 << 20  # the text of all YAML files that one command reads; a file counts each time it is read
    folder_entries: int = 200_000  # entries of folders that one command looks at: for ``specs:`` and below folders
    files: int = 5_000  # that the folders and patterns of one command name
    depth: int = 40  # of lists and mappings within each other, aliases followed
    nodes: int = 100_000  # values, lists and mappings that a file writes out
    # Nodes that aliases stand for, that each case repeats of its defaults, each call of its inputs, or each value of a
    # param of its case.
    expanded_nodes: int = 200_000
    expanded_characters: int = 4_000_000  # that the aliases of a file stand for
    text_characters: int = 20_000  # of one text
    value_characters: int = 1_000  # of a param's value, which ids show
    pattern_characters: int = 1_000  # of a regular expression
    total_pattern_characters: int = 10_000  # of the different regular expressions of a file together
    axes: int = 32  # params of a case
    variants: int = 100_000  # the product of the axes of one case, and all variants of a command
    id_characters: int = 20_000_000  # of the ids of all variants of a command together
    exclusions: int = 5_000_000  # combinations of a case's params times kinds of entries in its ``exclude:``
    source_characters: int = 10_000_000  # that are written to check the variants of a command
    diagnostics: int = 100  # errors and warnings of one file that are reported
    total_diagnostics: int = 1_000  # errors and warnings of one command that are reported
    message_characters: int = 500  # of one message
    tensor_bytes: int = 4 << 30  # one input tensor
    log_bytes: int = 1 << 30  # an event log that is read
    log_line_bytes: int = 16 << 20  # one line of such a log

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Limits:
        """Return the defaults, changed by ``RUNNER_LIMIT_<NAME>`` variables such as ``RUNNER_LIMIT_TENSOR_BYTES=8GiB``.

        Raises ValueError when a variable names no limit or holds no size.
        """
        environment = os.environ if environment is None else environment
        limits = cls()
        for variable, value in sorted(environment.items()):
            if variable.startswith(_PREFIX):
                name = variable.removeprefix(_PREFIX).lower()
                try:
                    limits = limits.with_overrides([f"{name}={value}"])
                except ValueError as error:
                    raise ValueError(f"environment variable {variable}: {error}") from None
        return limits

    def with_overrides(self, overrides: Iterable[str]) -> Limits:
        """Return a copy with each ``name=value`` applied, a later one over an earlier one.

        A value is a whole number above 0, with a size suffix (``KiB``, ``MiB``, ``GiB``, ``TiB``) for limits in bytes.
        Raises ValueError for anything else.
        """
        names = [field.name for field in fields(self)]
        changes: dict[str, int] = {}
        for override in overrides:
            name, equals, value = override.partition("=")
            name = name.strip()
            if not equals:
                raise ValueError(f"{override!r} is not name=value, such as 'tensor_bytes=8GiB'")
            if name not in names:
                hint = nearest(name, names) or f"there are {', '.join(names)}"
                raise ValueError(f"there is no limit {name!r}: {hint}")
            changes[name] = parse_size(value) if name.endswith("_bytes") else _parse_count(name, value)
        return replace(self, **changes)

    def hint(self, name: str) -> str:
        """Return what a message about the limit ``name`` ends with: its value, and how it is changed."""
        return f"the limit is {name}={getattr(self, name)}; change it with --limit {name}=N"


def parse_size(text: str) -> int:
    """Return bytes of ``'2GiB'``, ``'1.5 MiB'``, ``'4096'``. Raises ValueError when it is not a size above 0."""
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match[3].lower()) if match else None
    if match is None or unit is None:
        raise ValueError(f"{text.strip()!r} is not a size: write a number and B, KiB, MiB, GiB or TiB, such as '8GiB'")
    # In integers: a float of many bytes would lose its last digits.
    size = int(match[1]) * unit + (int(float(match[2]) * unit) if match[2] else 0)
    if size <= 0:
        raise ValueError(f"{text.strip()!r} is no size: it must be above 0")
    return size


def show_size(size: int) -> str:
    """Return ``size`` bytes as a person would write it: ``4 MiB``, ``1.5 GiB``, ``100 bytes``."""
    units = ((name, _UNITS[name.lower()]) for name in ("TiB", "GiB", "MiB", "KiB"))
    return next((f"{size / unit:.4g} {name}" for name, unit in units if size >= unit), f"{size} bytes")


def _parse_count(name: str, value: str) -> int:
    text = value.strip()
    if not re.fullmatch(r"[0-9][0-9_]*", text) or int(text) <= 0:
        raise ValueError(f"{text!r} is no value for {name}: a whole number above 0 is needed")
    return int(text)
