"""The files of generated cases, spec files of a hundred and a suite over them; and the files whose cases mutants are
made of."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.cases.limits import Limits
from runner.cases.serialize import KERNELS, emit, plain
from runner.cases.suites import SPEC, SUITE
from runner.exit_codes import UsageError
from runner.files import read_bytes, replace_file, replace_text
from runner.generate.mutations import Case, mutant_of
from runner.session.collect import read_cases

PER_FILE = 100
LONGEST = 60
"""Letters of a model's file that the name of its copy keeps. Names of files end at 255 bytes."""
CONTENT = "content"
"""The key of a mutant's ``module:`` that holds its Python. No file has it."""


def text_of(cases: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a spec file of these cases. Raises QuoteError for what no file can hold."""
    return emit({"cases": list(cases)}, ("cases", "chain"))


def with_content(module: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return a ``module:`` that holds its Python file, under the name of a copy. Whoever edits or removes the file
    changes no mutant.

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
    return [
        {**case, "module": {key: value for key, value in case["module"].items() if key != CONTENT}}
        if "module" in case
        else case
        for case in cases
    ]


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


_KEPT = ("name", "params", "inputs", "state", "module", "chain", "return", "dtypes", "param_dtype", "grad", "calls",
    "dynamic", "train", "autocast", "threads",
         "compile", "config", "expect", "tolerance")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parents:
    """Cases that may be changed. Another one of them may be joined to each."""

    cases: tuple[Case, ...]

    def mutant(self, seed: int, number: int, again: str) -> Case | None:
        """Return the mutant of this number; None where no change fits. ``again`` is the command that makes it again."""
        numbers = random.Random(f"mutant {seed} {number}")
        parent, donor = numbers.choice(self.cases), numbers.choice(self.cases)
        return mutant_of(parent, donor, numbers, f"mutant_{seed}_{number:05d}", f"{again} --first {number} --count 1")


def named_parents(paths: Sequence[str], limits: Limits, allow_python: bool) -> Parents:
    """Return the cases of the files that ``--mutate`` names; models in Python only with ``allow_python``.

    Raises:
        UsageError: a path names no file, or no case can be changed.
        InputError: a file is wrong.
    """
    parents = read_parents(paths, limits).cases
    allowed = tuple(parent for parent in parents if allow_python or "module" not in parent)
    if not allowed:
        hint = ": read the models in Python there, then add --allow-python" if parents else ""
        raise UsageError(f"--mutate {' '.join(paths)}: no case there can be changed{hint}")
    return Parents(allowed)


def read_parents(paths: Sequence[str], limits: Limits, source: str = "--mutate") -> Parents:
    """Return the cases of spec files and folders of them, as far as they can be changed. ``source`` says in messages
    what names them.

    Raises:
        UsageError: a path names none.
        InputError: a file is wrong.
    """
    cases = {(case.file, case.name): case for case in read_cases(paths, limits, source)}
    parents = []
    for case in cases.values():
        data = plain(case, Path(case.file).parent)
        if case.module is not None:  # a mutant lies in another folder
            data["module"] = with_content(data["module"], Path(case.module.file))
        if KERNELS not in data and data.get("inputs"):  # a chain of operators, or a model in Python
            parents.append({key: data[key] for key in _KEPT if key in data})
    return Parents(tuple(parents))
