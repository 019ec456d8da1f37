"""``config:`` and ``options:``: which of torch's flags a file may set, and to what.

Cases come from strangers, and some flags start programs, write files or load code. A flag may be set only if
``flags.json`` allows it. That table holds every flag of torch 2.6 and 2.13, each with the values it takes.
``tools/flags.py`` drafted it, and each row was reviewed. A person sets any other flag in a Python module that
``--import`` names.
"""

from __future__ import annotations

import ast
import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from runner.cases.problems import Problems
from runner.cases.yaml.values import YamlNode, YamlScalar, entries
from runner.diagnostics import Span, nearest

MODULES = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config", "torch.fx.experimental._config",
           "torch._export.config")  # fmt: skip

PRECISION = ("torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32",
             "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
             "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction")  # fmt: skip
"""Switches that let libraries of a GPU round more than a dtype does. They are off on CUDA unless a case sets them."""

CUDNN = ("torch.backends.cudnn.enabled", "torch.backends.cudnn.deterministic", "torch.backends.cudnn.benchmark")
"""Switches that say whether cuDNN is asked, and how it chooses its algorithms."""

SWITCHES = (*PRECISION, *CUDNN)
"""Switches of libraries. They are true or false, and every version of torch has them."""

BY_HAND = "a Python module that --import names can set it"
_HINTS = 20
"""Errors of a file up to which unknown names are compared with known ones: a comparison takes milliseconds."""
_LONGEST = 200
"""Characters of a name that a message repeats; the longest flag has 118."""
_KINDS = {
    "bool": "true or false",
    "int": "a whole number of at most 64 bits",
    "float": "a finite number",
    "null": "null",
}

Value = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Flag:
    """``kinds`` are ``bool``, ``int``, ``float``, ``null``; ``words`` the words it takes; ``refused`` why a file may
    not set it."""

    kinds: frozenset[str]
    words: tuple[str, ...]
    torch: tuple[str, ...]
    refused: str

    def takes(self, value: object) -> bool:
        """Return whether the flag may have this value."""
        match value:
            case bool():  # before int, which it also is
                return "bool" in self.kinds
            case int():
                return bool(self.kinds & {"int", "float"}) and -(2**63) <= value < 2**63
            case float():
                return "float" in self.kinds and math.isfinite(value)
            case str():
                return value in self.words
        return value is None and "null" in self.kinds

    @property
    def expected(self) -> str:
        """What the flag takes, in words."""
        parts = [text for kind, text in _KINDS.items() if kind in self.kinds and kind != "null"]
        parts += [repr(word) for word in self.words]
        parts += ["null"] * ("null" in self.kinds)
        return " or ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


@cache
def table() -> dict[str, Flag]:
    """Return every flag of the supported versions of torch by its full name."""
    data = json.loads((Path(__file__).parent / "flags.json").read_text(encoding="utf-8"))
    flags = {}
    for name, row in data["flags"].items():
        parts = row["type"].split(" | ")
        flags[name] = Flag(
            frozenset(part for part in parts if part in _KINDS),
            tuple(ast.literal_eval(part) for part in parts if part[0] in "'\""),
            tuple(row["torch"]),
            data["reasons"][row["refused"]] if "refused" in row else "",
        )
    flags.update((name, Flag(frozenset({"bool"}), (), (), "")) for name in SWITCHES)
    return flags


def check_flags(node: YamlNode | None, problems: Problems, prefix: str = "") -> dict[str, Value]:
    """Return the flags of a mapping as plain data, and report each one that is refused.

    ``prefix`` completes short names.
    """
    flags: dict[str, Value] = {}
    for key, item in entries(node):
        name = prefix + str(key.value)
        value: Any = item.value if isinstance(item, YamlScalar) else ...
        reason = refusal(name, value)
        if reason:
            _report(problems, key.span, name, reason)
        else:
            flags[str(key.value)] = value
    return flags


def refusal(name: str, value: object) -> str:
    """Return why a file may not set flag ``name`` to ``value``; empty if it may."""
    flag = table().get(name)
    if flag is None:
        if not name.startswith(tuple(module + "." for module in MODULES)):
            return f"flags live in {', '.join(MODULES)}"
        return f"torch {' and '.join(_versions())} have no such flag"
    return flag.refused or ("" if flag.takes(value) else f"its value must be {flag.expected}")


@cache
def _versions() -> tuple[str, ...]:
    return tuple(
        sorted(
            {version for flag in table().values() for version in flag.torch},
            key=lambda text: [int(part) for part in text.split(".")],
        )
    )


def _similar(name: str) -> str:
    """A hint with the nearest allowed flag of the same module, or the nearest switch; empty without one."""
    module = next((module for module in MODULES if name.startswith(module + ".")), None)
    if module is None:
        return nearest(name, SWITCHES)
    while name.startswith(module + "." + module):  # written whole where the module is understood
        name = name[len(module) + 1 :]
    allowed = [known[len(module) :] for known, flag in table().items() if known.startswith(module) and not flag.refused]
    return nearest(name[len(module) :], allowed).replace("'", f"'{module}", 1)


def _report(problems: Problems, span: Span, name: str, reason: str) -> None:
    flag = table().get(name)
    hint = BY_HAND if flag is None or flag.refused else ""
    if flag is None and problems.errors < _HINTS and len(name) <= _LONGEST:
        hint = _similar(name) or hint
    excerpt = name if len(name) <= _LONGEST else name[:_LONGEST] + "..."
    problems.error(span, f"flag {excerpt!r} is refused: {reason}", hint)
