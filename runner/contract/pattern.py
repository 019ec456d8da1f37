"""What tells one failure from another by its exception: the message without what differs between two sightings.

Both halves need it, the worker when it looks for one failure among others, so it stands here and imports the table of
oracles alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from runner.contract.oracles import row_of

_VARYING = (
    (re.compile(r"0x[0-9a-fA-F]+"), "0x"),
    (re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`|\u2018[^\u2019\n]*\u2019"), "'…'"),
    (re.compile(r"(?:/[\w.+-]+){2,}"), "/…"),
    (re.compile(r"\([^()\n]*\d[^()\n]*\)|\[[^][\n]*\d[^][\n]*\]"), "(…)"),  # shapes, strides, lists of numbers
    (re.compile(r"\b[a-z]+_?\d+\b"), "name"),  # arg0_1, buf12, s77
    (re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"), "N"),
)
"""What differs between two sightings of one error: addresses, names and values quoted, paths, shapes, numbers."""


_WRAPPERS = re.compile(
    r"^(__init__|_ops|_compile|overrides|_dynamo/(eval_frame|exc|utils)|_inductor/output_code|_functorch/aot_autograd"
    r"|_functorch/_aot_autograd/(graph_capture_wrappers|runtime_wrappers|traced_function_transforms|utils)|autograd/\w+"
    r"|fx/interpreter|fx/experimental/(proxy_tensor|symbolic_shapes)|nn/modules/module|_prims_common/(__init__|"
    r"wrappers)"
    r"|_subclasses/(fake_tensor|functional_tensor)|utils/(_python_dispatch|_stats|_contextlib))\.py:"
    r"|:(inner|inner_fn|new_func|wrapped|wrapper|_fn|<(?!module>)\w+>)$"
)
"""Frames through which a call of any operator passes, as ``file:function``, and helpers that raise for their callers.

Comprehensions are among them: Python 3.12 has no frames for them. A module that is imported is not one.
Seen on torch 2.6 and 2.13."""

_DIAGNOSIS = re.compile(r"\berror: .*")
"""What a C++ compiler says, after its command line."""


def top_frame(frames: Iterable[tuple[str, str]]) -> str:
    """Return ``file:function`` of the first frame that is no wrapper; empty without one.

    Args:
        frames: (file relative to torch's folder, function), the innermost first. Line numbers differ between versions.
    """
    texts = (f"{file}:{function}" for file, function in frames if file.endswith(".py"))
    return next((text for text in texts if not _WRAPPERS.search(text)), "")


def mark_of(oracle: str, error: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """Return oracle, class of the exception, and pattern of its message: a finding's signature besides its stage."""
    facts = error or {}
    pattern = pattern_of(str(facts.get("message", ""))) if row_of(oracle).message else ""
    return oracle, str(facts.get("type", "")), pattern


def pattern_of(message: str) -> str:
    """Return the first telling line of an error message, with what varies between sightings replaced."""
    line = _first_line(message)
    for regex, replacement in _VARYING:
        line = regex.sub(replacement, line)
    return line[:200]


def telling_line(message: str) -> str:
    """Return the line of an error message that says what is wrong: a C++ compiler's diagnosis, else the first."""
    diagnosis = _DIAGNOSIS.search(message)
    return diagnosis[0] if diagnosis else _first_line(message)


def _first_line(message: str) -> str:
    """Return the first line that says something: ``backend='inductor' raised:`` says nothing by itself."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    return lines[1] if len(lines) > 1 and lines[0].endswith("raised:") else lines[0] if lines else ""
