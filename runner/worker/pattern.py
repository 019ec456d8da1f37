"""What tells one failure from another by its exception: the message without what differs between two sightings.

Both halves need it, the worker when it looks for one failure among others, so it stands here and imports the table of oracles alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from runner.worker.oracles import row_of

_VARYING = (
    (re.compile(r"0x[0-9a-fA-F]+"), "0x"),
    (re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`"), "'…'"),
    (re.compile(r"(?:/[\w.+-]+){2,}"), "/…"),
    (re.compile(r"\([^()\n]*\d[^()\n]*\)|\[[^][\n]*\d[^][\n]*\]"), "(…)"),  # shapes, strides, lists of numbers
    (re.compile(r"\b[a-z]+_?\d+\b"), "name"),  # arg0_1, buf12, s77
    (re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"), "N"),
)
"""What differs between two sightings of one error: addresses, names and values quoted, paths, shapes, numbers."""


def mark_of(oracle: str, error: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """Return oracle, class of the exception, and pattern of its message: a finding's signature besides its stage."""
    facts = error or {}
    pattern = pattern_of(str(facts.get("message", ""))) if row_of(oracle).message else ""
    return oracle, str(facts.get("type", "")), pattern


def pattern_of(message: str) -> str:
    """Return the first telling line of an error message, with what varies between sightings replaced."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    line = lines[0]
    if line.endswith("raised:") and len(lines) > 1:  # "backend='inductor' raised:" says nothing by itself
        line = lines[1]
    for regex, replacement in _VARYING:
        line = regex.sub(replacement, line)
    return line[:200]
