"""The scripts that torch's minifier writes: read, and made to run alone, in any folder."""

from __future__ import annotations

import ast
import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.diagnose.repro import imported
from runner.quote import dotted_name, literal

_MAIN = re.compile(r"^if __name__ == ['\"]__main__['\"]:", re.MULTILINE)
_SAVED = re.compile(r"save_dir=(['\"])(?P<folder>[^'\"\n]*)\1")
_OURS = re.compile(
    r"^(?:os\.environ\['TORCHINDUCTOR_CACHE_DIR'\] = |torch\._dynamo\.config\.debug_dir_root = ).*\n", re.MULTILINE
)
"""Settings of the process that wrote the script, which say nothing about the failure."""


def graph_of(text: str) -> str:
    """The ``forward`` of the script's ``Repro``; empty if it has none."""
    found = _forward(text)
    segment = ast.get_source_segment(text, found, padded=True) if found else None
    return textwrap.dedent(segment) if segment else ""


def operators_of(text: str) -> int:
    """How many operators the graph of a script holds: calls and arithmetic, not the picking of one output of several."""
    found = _forward(text)
    body = found.body if found else []
    values = [statement.value for statement in body if isinstance(statement, ast.Assign | ast.Expr)]
    plain = sum(isinstance(value, ast.Call | ast.BinOp | ast.Compare | ast.UnaryOp) for value in values)
    return plain + sum(isinstance(statement, ast.AugAssign) for statement in body)


def _forward(text: str) -> ast.FunctionDef | None:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    for found in ast.walk(tree):
        if isinstance(found, ast.ClassDef) and found.name == "Repro":
            return next((f for f in found.body if isinstance(f, ast.FunctionDef) and f.name == "forward"), None)
    return None


def standalone(
    text: str, folder: Path, backend: Mapping[str, Any], alias: str, imports: Sequence[str], paths: Sequence[str]
) -> str:
    """A script of the minifier so that it runs alone and finds its inputs wherever ``folder``, where it lies, is moved.

    Args:
        text: what the minifier wrote.
        folder: where the script will lie; the saved inputs lie below.
        backend: as in a job: ``backend``, and perhaps ``mode`` and ``options``.
        alias: the name by which the script knows the backend.
        imports: modules that must be imported first.
        paths: folders that hold them, or the backend's package.
    """

    def beside(found: re.Match[str]) -> str:
        inside = os.path.relpath(found["folder"], folder)
        return f"save_dir=os.path.join(os.path.dirname(os.path.abspath(__file__)), {literal(inside)})"

    text = _SAVED.sub(beside, _OURS.sub("", text))
    lines = ["import os"]
    if paths and (imports or ":" in backend["backend"]):
        lines += ["import sys", *(f"sys.path.append({literal(path)})" for path in paths)]
    lines += [f"import {dotted_name(name)}" for name in imports]
    known = f"backend={alias!r}"  # as torch writes it
    if known in text:
        register = _registration(backend, alias)
        lines += register
        if not register:
            text = text.replace(known, f"backend={literal(backend['backend'])}")
    place = _MAIN.search(text)
    at = place.start() if place else len(text)
    return f"{text[:at]}" + "\n".join(lines) + f"\n\n{text[at:]}"


def _registration(backend: Mapping[str, Any], alias: str) -> list[str]:
    """Lines that make the backend known under its alias; none where torch knows it by a name that says all."""
    package, colon, function = str(backend["backend"]).partition(":")
    more = {key: backend[key] for key in ("mode", "options") if backend.get(key)}
    if not colon and (not more or backend["backend"] == "inductor"):
        return []
    found = imported(package, function) if colon else f"torch._dynamo.lookup_backend({literal(package)})"
    if more:
        found = f"functools.partial({found}, **{literal(more)})"
    imports = ["import functools"] * bool(more) + ["import importlib"] * bool(colon)
    return [*imports, f"torch._dynamo.register_backend({found}, name={literal(alias)})"]
