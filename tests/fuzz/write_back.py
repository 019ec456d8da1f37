"""Variants of a file are written as YAML and read again: the programs must be the same."""

from __future__ import annotations

import ast
import os
from pathlib import Path

WRITTEN = "zq_written.spec.yaml"
_VARIANTS = 3


def write_back(file: str) -> int:
    """Write variants of a file, read them again, and print a line for each whose source is another."""
    from runner.builder.source import build
    from runner.cases.expand import SelectError
    from runner.cases.serialize import case_text
    from runner.cases.suites import PathError
    from runner.diagnostics import InputError
    from runner.exit_codes import UsageError
    from runner.session.collect import load

    try:
        loaded = load([file], allow_python=True)
    except (InputError, UsageError, PathError, SelectError):
        return 0
    if loaded.errors or not loaded.variants:
        return 0
    print("LOADED")
    for variant in loaded.variants[:_VARIANTS]:
        path = Path(variant.case.file).parent / WRITTEN
        path.write_text(case_text(variant, path.parent), encoding="utf-8")
        again = load([str(path)], allow_python=True, backends=[variant.backend.name])
        if again.errors or len(again.variants) != 1:
            messages = [diagnostic.message for diagnostic in again.errors][:3]
            print(ascii(f"WRITTEN refused: {variant.id}: {messages}, {len(again.variants)} variants")[1:400])
        elif _program(build(again.variants[0]).text) != _program(build(variant).text):
            print(ascii(f"WRITTEN another program: {variant.id}")[1:400])
        os.unlink(path)
    return 0


def _program(source: str) -> str:
    return ast.dump(ast.Module(ast.parse(source).body[1:], []))
