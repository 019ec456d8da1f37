"""The files of generated cases: spec files of a hundred, and a suite over them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.cases.suites import SPEC, SUITE
from runner.cases.yaml.emitter import emit
from runner.files import read_bytes, replace_file, replace_text

PER_FILE = 100
LONGEST = 60
"""Letters of a model's file that the name of its copy keeps. Names of files end at 255 bytes."""
CONTENT = "content"
"""The key of a mutant's ``module:`` that holds its Python. No file has it."""


def text_of(cases: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a spec file of these cases. Raises QuoteError for what no file can hold."""
    return emit({"cases": list(cases)}, ("cases", "chain"))


def with_content(module: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return a ``module:`` that holds its Python file, under the name of a copy. Whoever edits or removes the file changes no mutant.

    The name holds a digest, since two models may be called alike.

    Raises:
        OSError: the file cannot be read.
    """
    content = read_bytes(file)
    suffix = f"_{hashlib.sha256(content).hexdigest()[:8]}"
    return {**module, "file": f"{file.stem.removesuffix(suffix)[:LONGEST]}{suffix}.py", CONTENT: content}


def with_python_beside(cases: Sequence[Mapping[str, Any]], folder: Path) -> list[Mapping[str, Any]]:
    """Write models in Python into the folder of a spec file to be, and return its cases without their content.

    A spec file may name Python of its own folder alone.

    Raises:
        OSError: a file cannot be written.
    """
    modules = [case["module"] for case in cases if "module" in case]
    for name, content in {module["file"]: module[CONTENT] for module in modules}.items():
        replace_file(folder / name, [content])
    return [{**case, "module": _without_content(case["module"])} if "module" in case else case for case in cases]


def _without_content(module: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in module.items() if key != CONTENT}


def write_specs(folder: Path, name: str, cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write the cases into files of a hundred, and return their names."""
    names = []
    for start in range(0, len(cases), PER_FILE):
        names.append(f"{name}_{start // PER_FILE}{SPEC}")
        text = text_of(with_python_beside(cases[start : start + PER_FILE], folder))
        replace_text(folder / names[-1], text)
    return names


def write_suite(folder: Path, name: str, specs: Sequence[str]) -> Path:
    """Write a suite over spec files, which runs them under inductor, and return its path."""
    path = folder / f"{name}{SUITE}"
    replace_text(path, emit({"suite": name, "specs": list(specs), "backends": ["inductor"]}))
    return path
