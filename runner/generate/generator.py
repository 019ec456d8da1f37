"""Asks workers for cases and for what is wrong with them, a batch at a time; reads and writes the files of cases.

A worker draws cases as plain data. Control reads each as any case is read, and a worker tries it out. A batch whose
process dies is asked again case by case, so that a crash of eager PyTorch loses one case.

Generated cases lie in spec files of a hundred and a suite over them. Mutants are made of the cases of other files.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from runner.builder.operators import Operator, resolve
from runner.builder.source import build, has_twin
from runner.cases.limits import Limits
from runner.cases.serialize import KERNELS, emit, plain
from runner.cases.suites import SPEC, SUITE
from runner.cases.twins import REWRITES
from runner.contract.job import Job
from runner.contract.settings import HASH_SEED
from runner.diagnose.harness import result_of
from runner.diagnostics import nearest
from runner.engine import scratch
from runner.engine.messages import Engine, Outcome
from runner.exit_codes import UsageError
from runner.files import read_bytes, replace_file, replace_text, write_anew
from runner.generate.mutations import Case, mutant_of
from runner.quote import QuoteError, shell_words
from runner.session.collect import load, read_cases
from runner.session.plan import Environment, Planned, job
from runner.session.scheduler import drive, with_reference
from runner.text import one_line

PER_FILE = 100
LONGEST = 60
"""Letters of a model's file that the name of its copy keeps. Names of files end at 255 bytes."""
CONTENT = "content"
"""The key of a mutant's ``module:`` that holds its Python. No file has it."""


def text_of(cases: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a spec file of these cases. Raises QuoteError for what no file can hold."""
    return emit({"cases": list(cases)})


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
    modules = (case["module"] for case in cases if "module" in case)
    for name, content in {module["file"]: module[CONTENT] for module in modules}.items():
        replace_file(folder / name, [content])
    return [
        {**case, "module": {key: value for key, value in case["module"].items() if key != CONTENT}}
        if "module" in case
        else case
        for case in cases
    ]


TWINS = 0.5
"""Part of the cases that have a twin, where they are to have any."""
MOST_REWRITES = 3


def with_twin(case: Mapping[str, Any], seed: int, number: int) -> dict[str, Any]:
    """Return a case with the rewrites of a twin, or as it is. The seed and its number decide.

    A model in Python has no twin.
    """
    numbers = random.Random(f"twin {seed} {number}")
    if "chain" not in case or numbers.random() >= TWINS:
        return {**case}
    return {**case, "twin": sorted(numbers.sample(REWRITES, numbers.randint(1, MOST_REWRITES)))}


def write_specs(folder: Path, name: str, cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write the cases into files of a hundred, and return their names."""
    names = []
    for start in range(0, len(cases), PER_FILE):
        names.append(f"{name}_{start // PER_FILE}{SPEC}")
        replace_text(folder / names[-1], text_of(with_python_beside(cases[start : start + PER_FILE], folder)))
    return names


def write_suite(folder: Path, name: str, specs: Sequence[str]) -> Path:
    """Write a suite over spec files, which runs them under inductor, and return its path."""
    path = folder / f"{name}{SUITE}"
    replace_text(path, emit({"suite": name, "specs": list(specs), "backends": ["inductor"]}))
    return path


_KEPT = ("name", "params", "inputs", "state", "module", "chain", "return", "dtypes", "param_dtype", "grad", "calls",
    "dynamic", "train", "autocast", "threads",
         "compile", "config", "expect", "tolerance")  # fmt: skip


Parents = tuple[Case, ...]
"""Cases that may be changed. Another one of them may be joined to each."""


def numbered_mutant(parents: Parents, seed: int, number: int, again: str) -> Case | None:
    """Return the mutant of this number; None where no change fits. ``again`` is the command that makes it again."""
    numbers = random.Random(f"mutant {seed} {number}")
    parent, donor = numbers.choice(parents), numbers.choice(parents)
    return mutant_of(parent, donor, numbers, f"mutant_{seed}_{number:05d}", f"{again} --first {number} --count 1")


def named_parents(paths: Sequence[str], limits: Limits, allow_python: bool) -> Parents:
    """Return the cases of the files that ``--mutate`` names; models in Python only with ``allow_python``.

    Raises:
        UsageError: a path names no file, or no case can be changed.
        InputError: a file is wrong.
    """
    parents = read_parents(paths, limits)
    allowed = tuple(parent for parent in parents if allow_python or "module" not in parent)
    if not allowed:
        hint = ": read the models in Python there, then add --allow-python" if parents else ""
        raise UsageError(f"--mutate {' '.join(paths)}: no case there can be changed{hint}")
    return allowed


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
        if case.placed or case.zip:  # changes know shapes and operators alone, and each param by itself
            continue
        data = plain(case, Path(case.file).parent)
        if case.module is not None:  # a mutant lies in another folder
            data["module"] = with_content(data["module"], Path(case.module.file))
        if KERNELS not in data and data.get("inputs"):  # a chain of operators, or a model in Python
            parents.append({key: data[key] for key in _KEPT if key in data})
    return tuple(parents)


T = TypeVar("T")
Items = Mapping[int, T]
"""Something of each case, by the case's number."""

BATCH = 20
"""Cases of one job, at most."""
LIMIT = 30.0
"""Seconds that drawing or trying one case may take."""
LOADING = 120.0
"""Seconds more for a batch, whose process may import torch's operator database first; half as many for one case."""
MEMORY = 4 << 30
"""Bytes that a process may hold on top of what torch itself takes."""

HASHES = {HASH_SEED: "0"}
"""Of the processes that draw.

Torch's samples of ``meshgrid`` come in the order of a set, which is another in each process otherwise.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be drawn: the first ``count`` valid cases of a seed, from the number ``first`` on."""

    seed: int
    count: int
    first: int = 0
    profile: str = "wide"
    ops: str = ""  # a pattern of operators' names; empty for all
    depth: tuple[int, int] | None = None
    mutate: tuple[str, ...] = ()  # spec files whose cases are changed, instead of new ones
    allow_python: bool = False  # change models in Python too
    twins: bool = False  # a part of the cases has a twin

    @property
    def command(self) -> str:
        """The command that draws the same cases, but for which and how many."""
        words = [
            "runner", "generate", *(["--profile", self.profile] if not self.mutate else []), "--seed", self.seed,
            *(word for path in self.mutate for word in ("--mutate", path)),
            *(["--allow-python"] if self.mutate and self.allow_python else []),
            *(["--ops", self.ops] if self.ops else []),
            *(["--depth", f"{self.depth[0]}..{self.depth[1]}"] if self.depth else []),
            *(["--twins"] if self.twins else []),
        ]  # fmt: skip
        return shell_words(words)

    @property
    def name(self) -> str:
        """How its files are called."""
        return f"{'mutant' if self.mutate else self.profile}_{self.seed}"


class CaseGenerator:
    """Draws the cases of a request on an engine. ``faults`` counts why others were lost.

    Valid cases are returned by their numbers: the seed and its number give a case again.
    """

    def __init__(
        self, engine: Engine, environment: Environment, request: Request, slots: int = 1, parents: Parents | None = None
    ) -> None:
        """Start nothing yet. With ``parents`` it changes these cases, and draws none."""
        self.faults: Counter[str] = Counter()
        self.drawn = 0
        self.missing = ""
        self._operators: list[str] = []
        self._engine, self._environment, self._request = engine, environment, request
        self._slots, self._parents = slots, parents
        self._jobs = 0

    def find_operators(self, tick: Callable[[], None] | None = None) -> list[str]:
        """Ask a worker for the operators that may be drawn from torch's operator database, and return those of the
        request.

        Without the database the result is empty, and ``missing`` says why.

        Raises:
            UsageError: the worker died, or no operator has such a name.
        """
        [outcome] = drive(self._engine, with_reference([self._job("operators", BATCH, {})]), tick)
        result, pattern = result_of(outcome), self._request.ops
        self.missing = str(result["missing"])
        known = [name for name in result["operators"] if isinstance(resolve(name), Operator)]
        self._operators = [name for name in known if fnmatchcase(name, pattern or "*")]
        if pattern and not self._operators:
            near = [name for name in known if name.partition(".")[0] == pattern.partition(".")[0]]
            hint = self.missing or nearest(pattern, near) or "a pattern such as 'torch.scatter*'"
            raise UsageError(f"--ops {pattern}: none of {len(known)} operators has such a name; {hint}")
        return self._operators

    def next_cases(self, missing: int, tick: Callable[[], None] | None = None) -> dict[int, Case]:
        """Draw one batch for each slot, or fewer where ``missing`` cases need no more, and return the valid cases in
        order."""
        count = min(BATCH * self._slots, missing + missing // 3 + 1)
        first = self._request.first + self.drawn
        return self.draw(range(first, first + count), tick)

    def draw(
        self, numbers: Sequence[int], tick: Callable[[], None] | None = None, operators: Sequence[str] | None = None,
        again: str = "", mutants: Items[Case] | None = None,
    ) -> dict[int, Case]:  # fmt: skip
        """Draw the cases of these numbers, and return the valid ones in order. They do not depend on the slots.

        Args:
            numbers: of the cases.
            tick: called several times a second.
            operators: what is drawn from; the request's if None.
            again: what the cases' docs say where no command draws them.
            mutants: cases that are tried too.
        """
        self.drawn += len(numbers) + len(mutants or ())
        return drive(self._engine, self._draw(numbers, operators, again, mutants or {}), tick)

    def _draw(
        self, numbers: Sequence[int], operators: Sequence[str] | None, again: str, mutants: Items[Case]
    ) -> Generator[Sequence[Job], Sequence[Outcome], dict[int, Case]]:
        request = self._request
        if self._parents is not None:
            changed = {n: numbered_mutant(self._parents, request.seed, n, request.command) for n in numbers}
            cases = {number: case for number, case in changed.items() if case is not None}
            self.faults["nothing drawn"] += len(changed) - len(cases)
        else:
            drawing = partial(self._drawing, operators, again)
            texts: Items[str] = yield from self._ask(dict.fromkeys(numbers, 0), drawing, "cases")
            cases = {number: json.loads(text) for number, text in texts.items() if text}
            self.faults["nothing drawn"] += len(texts) - len(cases)
        cases |= mutants
        if request.twins:
            cases = {number: with_twin(case, request.seed, number) for number, case in cases.items()}
        faults: Items[str] = yield from self._ask(self._read(cases), self._trying, "faults")
        self.faults.update(fault.partition(":")[0] for fault in faults.values() if fault)
        return {number: cases[number] for number in sorted(faults) if not faults[number]}

    def _ask(
        self, items: Items[T], make: Callable[[Items[T]], Job], key: str
    ) -> Generator[Sequence[Job], Sequence[Outcome], Items[str]]:
        """Ask about items, in a batch for each slot. What dies alone is counted among the faults, and has no answer."""
        numbers = list(items)
        size = min(BATCH, -(-len(numbers) // self._slots)) or 1
        batches = [numbers[start : start + size] for start in range(0, len(numbers), size)]
        answers: dict[int, str] = {}
        while batches:
            outcomes = yield [make({number: items[number] for number in batch}) for batch in batches]
            again: list[list[int]] = []
            for batch, outcome in zip(batches, outcomes, strict=True):
                if outcome.ended == "result":
                    answers.update(zip(batch, outcome.result[key], strict=True))
                elif len(batch) > 1:
                    again += [[number] for number in batch]
                else:
                    detail = one_line(outcome.detail.strip().rpartition("\n")[2], 200)
                    is_ours = outcome.ended in ("broken", "worker-error")
                    self.faults[f"the harness failed ({detail})" if is_ours else outcome.ended] += 1
            batches = again
        return answers

    def _read(self, cases: Items[dict[str, Any]]) -> Items[Job]:
        """Return the judging job, on the CPU, of each case that is read without an error."""
        with scratch.folder() as folder:
            files = {}
            for number, data in cases.items():
                try:
                    own = {key: value for key, value in data.items() if key != "devices"}
                    text = text_of(with_python_beside([own], folder))
                except QuoteError:
                    self.faults["refused"] += 1
                    continue
                path = folder / f"{number}{SPEC}"
                write_anew(path, text)
                files[str(path)] = number
            python = self._request.allow_python
            variants = load([*files], everything=True, allow_python=python).variants if files else ()
            self.faults["refused"] += len(files) - len(variants)
            jobs = {}
            for variant in variants:
                number, source = files[variant.case.file], build(variant)
                jobs[number] = job(Planned(variant, self._environment), source)
                if not has_twin(source):
                    cases[number].pop("twin", None)
            return jobs

    def _drawing(self, operators: Sequence[str] | None, again: str, numbers: Items[int]) -> Job:
        request = self._request
        arguments = {
            "seed": request.seed,
            "numbers": list(numbers),
            "docs": [again or f"{request.command} --first {number} --count 1" for number in numbers],
            "profile": request.profile,
            "operators": self._operators if operators is None else list(operators),
            "depth": request.depth,
            "required": bool(request.ops),
        }
        return self._job("draw", len(numbers), arguments)

    def _trying(self, jobs: Items[Job]) -> Job:
        return self._job("try", len(jobs), {"jobs": [each.to_json() for each in jobs.values()]})

    def _job(self, task: str, count: int, arguments: Mapping[str, Any]) -> Job:
        self._jobs += 1
        key = f"{task} {self._jobs}"
        return Job(
            key=key, id=key, environment=self._environment.key, name=task, source="", backend={"backend": "eager"},
            timeout=LIMIT + (LOADING if count > 1 else LOADING / 2), memory=MEMORY, task=task, arguments=arguments,
            isolation="living", cacheable=False, variables=HASHES,
        )  # fmt: skip
