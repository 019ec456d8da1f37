"""A finding: one disagreement between eager and compiled code. How both halves name elements and signals.

What tells one failure from another by its exception is here too: the message without what differs between two
sightings.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from runner.contract.oracles import row_of


@dataclass(frozen=True, slots=True)
class Finding:
    """One disagreement, as the worker measured it. ``stage`` and ``place`` are control's to fill.

    ``oracle`` is a word of the ledger (value, stride, compile-error, ...). ``path`` leads to the place (``call 0,
    output[1]``). ``numbers`` are JSON-safe. ``error`` holds ``type``, ``message``, ``chain`` (class names of the
    exception and its causes) and ``trace``. ``stage`` is the first stage of the ladder that shows it. ``place`` is the
    YAML ``file:line:column`` where known, the file absolute. ``severity`` is None where it is that of the oracle's row.
    ``line`` is of the generated source, where no error names it. ``choice`` is what a benchmark of torch chose, where
    the other choice does not show the finding: one of ``oracles.CHOICES``, and control's to fill.
    """

    oracle: str
    message: str
    path: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    stage: str | None = None
    place: str | None = None
    severity: str | None = None
    line: int | None = None
    choice: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the finding as a plain dict; ``line`` and ``choice`` only where there is one."""
        data = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in data.items() if value is not None or name not in ("line", "choice")}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Finding:
        """Return the finding of a plain dict. Unknown keys are dropped."""
        return Finding(**{item.name: data[item.name] for item in fields(Finding) if item.name in data})


def index_of(flat: int, shape: Sequence[int]) -> list[int]:
    """Return the index of the element that stands at place ``flat`` of a tensor of that shape."""
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return index[::-1]


def signal_name(number: int) -> str:
    """Return the name of a signal, such as ``SIGSEGV``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# --- failures by their exceptions ---

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
_PLACE = re.compile(r"^[ \t]*from user code:[ \t]*$", re.MULTILINE)
"""What Dynamo writes after a message, or in place of one: where it stood in the model's code."""


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


def without_place(message: str) -> str:
    """Return what an exception says, without where Dynamo stood in the model's code; empty for a bare ``assert``."""
    return _PLACE.split(message, maxsplit=1)[0].strip()


def _first_line(message: str) -> str:
    """Return the first line that says something: ``backend='inductor' raised:`` says nothing by itself."""
    lines = [line.strip() for line in without_place(message).splitlines() if line.strip()]
    return lines[1] if len(lines) > 1 and lines[0].endswith("raised:") else lines[0] if lines else ""
