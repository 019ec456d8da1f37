"""The names of torch's public tensor operators, and the one that a person may have meant.

``operators.json`` holds those of torch 2.6 to 2.13; ``tools/operators.py`` writes it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from runner.diagnostics import nearest

_SPACES = ("nn", "F", "torch", "Tensor", "aten")
"""Where a word without a namespace is looked for, in this order."""


@cache
def inventory() -> dict[str, Any]:
    """Return the lists of ``operators.json``: namespace to names; ``aten`` and ``prims`` map names to overloads."""
    text = (Path(__file__).parent / "operators.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def with_namespace(word: str) -> str:
    """Return ``did you mean 'F.relu'?`` for ``relu`` and ``rellu``; an empty string for what is like no operator."""
    lists = inventory()
    spaces = {name: space for space in reversed(_SPACES) for name in lists[space]}
    close = f"did you mean {word!r}?" if word in spaces else nearest(word, spaces)
    name = close.removeprefix("did you mean ").strip("'?")
    return f"did you mean '{spaces[name]}.{name}'?" if name in spaces else ""
