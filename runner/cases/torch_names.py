"""The names of torch that a file may use: its operators, its flags and its backends, of torch 2.6 to 2.13.

``operators.json``, ``flags.json`` and ``backends.json`` hold them, and ``arguments.json`` the signatures of operators.
``operator_texts.json`` has what people read about these. ``tools/operators.py``, ``tools/operator_texts.py`` and
``tools/flags.py`` write these lists.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from runner.cases.model import KERNEL_BACKENDS
from runner.cases.problems import Problems
from runner.cases.yaml.values import YamlNode, YamlScalar, entries
from runner.diagnostics import Span, nearest


def _listed(name: str) -> Any:
    return json.loads((Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8"))


# --- operators: those of public namespaces, and the one that a person may have meant ---

_SPACES = ("nn", "F", "torch", "Tensor", "aten")
"""Where a word without a namespace is looked for, in this order."""


@cache
def inventory() -> dict[str, Any]:
    """Return the lists of ``operators.json``: namespace to names; ``aten`` and ``prims`` map names to overloads."""
    return _listed("operators")  # type: ignore[no-any-return]


@cache
def signature_texts() -> dict[str, list[str]]:
    """Return the signatures of ``arguments.json`` by operator: ``input:tensor * approximate:text=``."""
    return _listed("arguments")  # type: ignore[no-any-return]


@cache
def operator_texts() -> dict[str, Any]:
    """Return ``operator_texts.json``: ``torch`` the versions; ``calls``, ``lines`` and ``dtypes`` by operator."""
    return _listed("operator_texts")  # type: ignore[no-any-return]


def with_namespace(word: str) -> str:
    """Return ``did you mean 'F.relu'?`` for ``relu`` and ``rellu``; an empty string for what is like no operator."""
    lists = inventory()
    spaces = {name: space for space in reversed(_SPACES) for name in lists[space]}
    close = f"did you mean {word!r}?" if word in spaces else nearest(word, spaces)
    name = close.removeprefix("did you mean ").strip("'?")
    return f"did you mean '{spaces[name]}.{name}'?" if name in spaces else ""


# --- flags: which of them a file may set, and to what ---

# Cases come from strangers, and some flags start programs, write files or load code. A flag may be set only if
# ``flags.json`` allows it. That table holds every flag of torch 2.6 and 2.13, each with the values it takes.
# ``tools/flags.py`` drafted it, and each row was reviewed. A person sets any other flag in a Python module that
# ``--import`` names.

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
def flag_table() -> dict[str, Flag]:
    """Return every flag of the supported versions of torch by its full name."""
    data = _listed("flags")
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
        reason = flag_refusal(name, value)
        if reason:
            _report(problems, key.span, name, reason)
        else:
            flags[str(key.value)] = value
    return flags


def flag_refusal(name: str, value: object) -> str:
    """Return why a file may not set flag ``name`` to ``value``; empty if it may."""
    flag = flag_table().get(name)
    if flag is None:
        if not name.startswith(tuple(module + "." for module in MODULES)):
            return f"flags live in {', '.join(MODULES)}"
        return f"torch {' and '.join(_versions())} have no such flag"
    return flag.refused or ("" if flag.takes(value) else f"its value must be {flag.expected}")


@cache
def _versions() -> tuple[str, ...]:
    return tuple(
        sorted(
            {version for flag in flag_table().values() for version in flag.torch},
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
    allowed = [
        known[len(module) :] for known, flag in flag_table().items() if known.startswith(module) and not flag.refused
    ]
    return nearest(name[len(module) :], allowed).replace("'", f"'{module}", 1)


def _report(problems: Problems, span: Span, name: str, reason: str) -> None:
    flag = flag_table().get(name)
    hint = BY_HAND if flag is None or flag.refused else ""
    if flag is None and problems.errors < _HINTS and len(name) <= _LONGEST:
        hint = _similar(name) or hint
    excerpt = name if len(name) <= _LONGEST else name[:_LONGEST] + "..."
    problems.error(span, f"flag {excerpt!r} is refused: {reason}", hint)


# --- backends: which a suite may name, and which a person may type ---

# A suite comes from a stranger. It may name torch's own backends, the runner's own, and backends that an installed
# package registers under a plain name. ``package:function`` calls any function, so it is for the command line, or for
# files whose Python is allowed.

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
_LONGEST_BACKEND = 80
"""Characters of the name of a backend that a message repeats."""


@cache
def own_names() -> tuple[str, ...]:
    """Return plain names of backends that need no package: torch's and the runner's own."""
    names = _listed("backends")
    return (*names, *(name for name in KERNEL_BACKENDS if name not in names))


def is_of_package(name: str) -> bool:
    """Return whether the code of a backend is that of a package other than torch and the runner itself."""
    return (
        name.partition(":")[0].partition(".")[0] not in ("torch", "runner") if ":" in name else name not in own_names()
    )


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
    excerpt = name if len(name) <= _LONGEST_BACKEND else name[:_LONGEST_BACKEND] + "..."
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
    if len(name) <= _LONGEST_BACKEND and (near := nearest(name, dict.fromkeys((*own_names(), *registered)))):
        return near
    return (
        f"torch's own are {', '.join(n for n in own_names() if not n.endswith('_TESTING_ONLY'))}; a package that "
        "registers another is installed, or imported with --import"
    )
