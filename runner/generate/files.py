"""The files of generated cases: spec files of a hundred, and a suite over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.cases.suites import SPEC, SUITE
from runner.cases.yaml.emitter import emit

PER_FILE = 100


def text_of(cases: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a spec file of these cases. Raises QuoteError for what no file can hold."""
    return emit({"cases": list(cases)}, ("cases", "chain"))


def write_specs(folder: Path, name: str, cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write the cases into files of a hundred, and return their names."""
    names = []
    for start in range(0, len(cases), PER_FILE):
        names.append(f"{name}_{start // PER_FILE}{SPEC}")
        text = text_of(cases[start : start + PER_FILE])
        (folder / names[-1]).write_text(text, encoding="utf-8")
    return names


def write_suite(folder: Path, name: str, specs: Sequence[str]) -> Path:
    """Write a suite over spec files, which runs them under inductor, and return its path."""
    path = folder / f"{name}{SUITE}"
    path.write_text(emit({"suite": name, "specs": list(specs), "backends": ["inductor"]}), encoding="utf-8")
    return path
