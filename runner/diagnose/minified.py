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
_PROCESS_SETTINGS = re.compile(
    r"^(?:os\.environ\['TORCHINDUCTOR_CACHE_DIR'\] = |torch\._dynamo\.config\.debug_dir_root = ).*\n", re.MULTILINE
)
"""Settings of the process that wrote the script, which say nothing about the failure."""


def graph_of(text: str) -> str:
    """Return the ``forward`` of the script's ``Repro``; empty if it has none."""
    forward = _forward(text)
    segment = ast.get_source_segment(text, forward, padded=True) if forward else None
    return textwrap.dedent(segment) if segment else ""


def operators_of(text: str) -> int:
    """Return how many operators the graph of a script holds. Calls and arithmetic count; picking one output of several
    does not.
    """
    forward = _forward(text)
    body = forward.body if forward else []
    values = [statement.value for statement in body if isinstance(statement, ast.Assign | ast.Expr)]
    expressions = sum(isinstance(value, ast.Call | ast.BinOp | ast.Compare | ast.UnaryOp) for value in values)
    return expressions + sum(isinstance(statement, ast.AugAssign) for statement in body)


def _forward(text: str) -> ast.FunctionDef | None:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "Repro":
            functions = (statement for statement in node.body if isinstance(statement, ast.FunctionDef))
            return next((function for function in functions if function.name == "forward"), None)
    return None


def standalone(
    text: str, folder: Path, backend: Mapping[str, Any], alias: str, imports: Sequence[str], paths: Sequence[str]
) -> str:
    """Return a script of the minifier that runs alone, and finds its inputs wherever ``folder`` is moved.

    Args:
        text: what the minifier wrote.
        folder: where the script will lie; the saved inputs lie below.
        backend: as in a job: ``backend``, and perhaps ``mode`` and ``options``.
        alias: the name by which the script knows the backend.
        imports: modules that must be imported first.
        paths: folders that hold them, or the backend's package.
    """

    def beside_script(match: re.Match[str]) -> str:
        relative = os.path.relpath(match["folder"], folder)
        return f"save_dir=os.path.join(os.path.dirname(os.path.abspath(__file__)), {literal(relative)})"

    text = _SAVED.sub(beside_script, _PROCESS_SETTINGS.sub("", text))
    lines = ["import os"]
    if paths and (imports or ":" in backend["backend"]):
        lines += ["import sys", *(f"sys.path.append({literal(path)})" for path in paths)]
    lines += [f"import {dotted_name(name)}" for name in imports]
    backend_argument = f"backend={alias!r}"  # as torch writes it
    if backend_argument in text:
        register = _registration(backend, alias)
        lines += register
        if not register:
            text = text.replace(backend_argument, f"backend={literal(backend['backend'])}")
    place = _MAIN.search(text)
    position = place.start() if place else len(text)
    return f"{text[:position]}" + "\n".join(lines) + f"\n\n{text[position:]}"


def _registration(backend: Mapping[str, Any], alias: str) -> list[str]:
    """Return lines that register the backend under its alias; none where torch already knows it fully by name."""
    package, colon, function = str(backend["backend"]).partition(":")
    settings = {key: backend[key] for key in ("mode", "options") if backend.get(key)}
    if not colon and (not settings or backend["backend"] == "inductor"):
        return []
    lookup = imported(package, function) if colon else f"torch._dynamo.lookup_backend({literal(package)})"
    if settings:
        lookup = f"functools.partial({lookup}, **{literal(settings)})"
    imports = ["import functools"] * bool(settings) + ["import importlib"] * bool(colon)
    return [*imports, f"torch._dynamo.register_backend({lookup}, name={literal(alias)})"]
