"""Which backends a suite may name, and which a person may type.

A suite comes from a stranger. It may name torch's own backends (``backends.json``, written by ``tools/flags.py``), the
runner's own, and backends that an installed package registers under a plain name. ``package:function`` calls any
function, so it is for the command line, or for files whose Python is allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path

from runner.cases.model import KERNEL_BACKENDS
from runner.diagnostics import nearest

GROUP = "torch_dynamo_backends"
"""The group of entry points by which a package registers backends of torch."""

WRITING = frozenset({"dynamo_minifier_backend", "dynamo_accuracy_minifier_backend"})
"""Backends of torch that write files where the run stands."""

PLANTED = tuple(
    f"runner.worker.planted:{name}"
    for name in ("aborts", "alias_lost", "clean", "default_dtype_changed", "draws_twice", "dropped_mutation",
        "error_swallowed", "exits_silently", "hangs",
                 "nan_to_zero", "no_gradient", "recompiles_always", "scaled_gradient", "segfaults",
                 "stride_off_by_one", "swapped", "to_double", "toy_compiler", "unsigned_zero", "wrong_element")
)  # fmt: skip
"""The runner's own broken backends."""

_WORDS = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
_FUNCTION = re.compile(rf"{_WORDS}:{_WORDS}", re.ASCII)
_LONGEST = 80


@cache
def own_names() -> tuple[str, ...]:
    """Return plain names of backends that need no package: torch's and the runner's own."""
    names = json.loads((Path(__file__).parent / "backends.json").read_text(encoding="utf-8"))
    return (*names, *(name for name in KERNEL_BACKENDS if name not in names))


def name_fault(name: str) -> str:
    """Return why ``name`` cannot name any backend; empty if it can. A name is plain, or ``package:function``."""
    if not name:
        return "the name is empty"
    is_sound = ":" not in name or _FUNCTION.fullmatch(name)
    return "" if is_sound else "it is no package:function, such as my_package:my_backend"


def file_refusal(name: str, typed_names: Collection[str], allow_python: bool) -> tuple[str, str]:
    """Return why a file may not name backend ``name``, and what to do instead; empty if it may.

    Args:
        typed_names: the backends of the command line, which a file may name too.
        allow_python: whether the person allows Python that files bring.
    """
    excerpt = name if len(name) <= _LONGEST else name[:_LONGEST] + "..."
    reason = name_fault(name)
    if name in typed_names or name in PLANTED or (allow_python and not reason):
        return "", ""
    if reason:
        return f"backend {excerpt!r} is refused: {reason}", "a backend of torch, such as inductor"
    if name in WRITING:
        return f"backend {name!r} is refused: it writes files", "runner reduce --minifier drives torch's minifier"
    if ":" in name:
        return (
            f"backend {excerpt!r} is refused: in a file it could call any function",
            f"read that code, then type --backend {excerpt}, or add --allow-python",
        )
    return "", ""


def hint_for(name: str, registered: Collection[str] = ()) -> str:
    """Return a hint: the nearest known name, or where backends come from."""
    if len(name) <= _LONGEST and (near := nearest(name, dict.fromkeys((*own_names(), *registered)))):
        return near
    return (
        f"torch's own are {', '.join(n for n in own_names() if not n.endswith('_TESTING_ONLY'))}; a package that "
        "registers another is installed, or imported with --import"
    )
