"""One trial of ``bench/fuzz.py``: a recipe becomes files and a command, the command runs, and the oracles judge it.

A recipe is written ``kind:source:edit,edit:command``, four parts of numbers but for the first. Everything follows from it.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from random import Random

import fuzz_logs
import yaml
from fuzz_edits import edit
from fuzz_oracles import Problem, check, diagnostics, kinds, twin_problems, written_problems
from fuzz_process import Folder, Outcome, command, forked, preload, resident, run, watched
from fuzz_yaml import ROOT, Document, case_names, rendered, spec_document, suite_document

KINDS = ("spec", "suite", "log")
_AGAIN = 8  # one trial of so many runs twice, and must say the same
_VARIANTS = 3  # of a file that are written and read again
_SPECS = 4  # of a folder that changed suites can name


@dataclass(frozen=True)
class Recipe:
    """What a trial is made of."""

    kind: str
    source: int
    edits: tuple[int, ...]
    command: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.source}:{','.join(map(str, self.edits))}:{self.command}"

    @classmethod
    def parse(cls, text: str) -> Recipe:
        """The recipe of a text as ``str`` writes it. Raises ValueError."""
        kind, source, edits, words = text.split(":")
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
        return cls(kind, int(source), tuple(int(number) for number in edits.split(",") if number), int(words))

    @classmethod
    def numbered(cls, kind: str, number: int, seed: int) -> Recipe:
        """The recipe of that number in the sequence of a seed."""
        random = Random(f"{kind} {number} {seed}")
        edits = tuple(random.randrange(1 << 32) for _ in range(random.choice((1, 1, 2, 2, 3, 4))))
        return cls(kind, random.randrange(1 << 20), edits, random.randrange(1 << 20))


@dataclass(frozen=True)
class Trial:
    """Files in a working folder, a command on them, and the same files with harmless texts for payloads."""

    kind: str
    files: Mapping[str, bytes]
    words: tuple[str, ...]
    twin: Mapping[str, bytes] | None = None

    @property
    def name(self) -> str:
        """The changed file."""
        return next(iter(self.files))


@dataclass(frozen=True)
class Result:
    """A trial's outcome in brief, and what is wrong with it."""

    recipe: Recipe
    command: str
    code: int | None
    seconds: float
    wall: float
    memory: int
    text: int
    loads: bool
    kinds: frozenset[str]
    problems: tuple[Problem, ...]


class Fuzzer:
    """Makes and runs trials, in forks of this process or by an installed command.

    Args:
        words: of the command; empty for forks, which ``fuzz_process.preload`` prepares.
        plant: what a fork does before the command: a fault that the oracles should see.
    """

    def __init__(self, words: Sequence[str] = (), plant: Callable[[], None] | None = None) -> None:
        self.words, self.plant = tuple(words), plant
        preload()  # logs are made in forks in any case
        self.trees, self.bare = Folder(_template()), Folder({})
        # Where a run keeps what tells this user's logs from others'.
        os.environ["XDG_STATE_HOME"] = str(self.bare.path.parent / "state")
        self.logs = fuzz_logs.base_logs(self.bare)
        self.asks = b"--yes" in self._run(["rerun", "--help"], self.bare).out

    def run(self, recipe: Recipe) -> Result:
        """Make the recipe's trial and run it."""
        return self.judge(recipe, self.trial(recipe))

    # --- making ---

    def trial(self, recipe: Recipe) -> Trial:
        """The files and the command of a recipe."""
        random = Random(recipe.command)
        if recipe.kind == "log":
            base = recipe.source % len(self.logs)
            words = fuzz_logs.commands(random, base, self.asks)
            # An installed command has a real engine: there, what is taken up again finds no file to run.
            with_spec = not (self.words and words[0] in ("resume", "rerun"))
            data = fuzz_logs.changed(self.logs[base], recipe.edits)
            return Trial("log", {"zq/events.jsonl": data, **fuzz_logs.beside(self.logs, base, with_spec)}, tuple(words))
        document = spec_document(recipe.source) if recipe.kind == "spec" else suite_document(recipe.source)
        for number in recipe.edits:
            edit(document, number)
        data, twin = rendered(document)
        name = f"{document.folder}/fuzz.{recipe.kind}.yaml"
        words = self._words(random, name, document)
        return Trial(recipe.kind, {name: data}, tuple(words), None if twin is None else {name: twin})

    def _words(self, random: Random, name: str, document: Document) -> list[str]:
        commands = ["validate", "validate", "list", "show", "show", "repro", "repro", "ledger"] + (
            [] if self.words else ["write"]
        )
        words = [random.choice(commands), name]
        if words[0] == "write":
            return words
        if words[0] in ("show", "repro", "list") and random.random() < 0.6:
            words[1] += f"::{random.choice(case_names(document) or ['a'])}"
        if (document.own_python and random.random() < 0.8) or random.random() < 0.1:
            words.append("--allow-python")
        if words[0] in ("list", "show", "repro") and random.random() < 0.2:
            words += random.choice(
                (
                    ["--backend", "eager"],
                    ["--backend", "my_package:my_backend"],
                    ["--device", "meta"],
                    ["-k", "relu or not add"],
                    ["-k", "zq\x1b["],
                    ["--limit", "variants=9"],
                )
            )
        return words

    # --- running ---

    def judge(self, recipe: Recipe, trial: Trial) -> Result:
        """Run a trial; its problems are those of all oracles."""
        folder = self.bare if trial.kind == "log" else self.trees
        folder.clear()
        folder.write(trial.files)
        before = folder.listing()
        name = trial.words[0]
        outcome = self._run(trial.words, folder)
        problems = [*check(name, outcome, _claimed(trial)), *written_problems(folder.listing(), before, name)]
        problems += self._further(recipe, trial, folder, outcome)
        loads = (
            b"LOADED" in outcome.out if name == "write" else outcome.code in ((0, 1, 5) if name == "ledger" else (0,))
        )
        return Result(
            recipe, name, outcome.code, outcome.seconds, outcome.wall, outcome.memory, len(outcome.out) + len(outcome.err), loads,
            frozenset(kinds(outcome)), tuple({problem.key: problem for problem in problems}.values()),
        )  # fmt: skip

    def _run(self, words: Sequence[str], folder: Folder) -> Outcome:
        if words[0] == "write":
            return run(
                lambda acts: watched(lambda: write_back(words[1]), acts, self.plant, None),
                folder.path,
                words,
                resident(),
            )
        if self.words:
            return command([*self.words, *words], folder.path)
        return forked(words, folder.path, self.plant)

    def _further(self, recipe: Recipe, trial: Trial, folder: Folder, outcome: Outcome) -> Iterator[Problem]:
        """What takes a second run to tell."""
        name = trial.words[0]
        if name == "write":
            lines = [line for line in outcome.out.decode("utf-8", "replace").split("\n") if line.startswith("WRITTEN ")]
            yield from (Problem("write-back", line, line.split(":")[0]) for line in lines)
        if recipe.command % _AGAIN == 0 and name in ("validate", "list", "show", "repro", "report", "ledger"):
            again = self._run(trial.words, folder)
            if (again.code, again.out, again.err) != (outcome.code, outcome.out, outcome.err):
                yield Problem("repeatable", f"{name} says something else the second time", name)
        goes_on = name in ("show", "repro", "list") and trial.kind == "spec" and outcome.out
        if goes_on and not self.words and (line := self._refused_defaults(trial, folder)):
            yield Problem("refused", f"{name} goes on although line {line} of defaults is refused", name)
        if name in ("show", "repro") and trial.twin is not None and outcome.code == 0:
            folder.write(trial.twin)
            twin = self._run(trial.words, folder)
            if twin.code == 0:
                yield from twin_problems(name, outcome, twin)

    def _refused_defaults(self, trial: Trial, folder: Folder) -> int:
        """The line of an error in ``defaults:``; 0 when there is none. What a case does not use is an error of that case alone."""
        lines = default_lines(trial.files[trial.name])
        if not lines:
            return 0
        validated = self._run(["validate", trial.name, "--allow-python"], folder)
        errors = (
            int(match["line"])
            for match in diagnostics(validated)
            if match["severity"] == "error" and match["file"] == trial.name and "is never used" not in match["message"]
        )
        return next((line for line in errors if line in lines), 0)


def default_lines(data: bytes) -> range:
    """The lines of a file's ``defaults:``, empty when there are none or when other keys share them."""
    try:
        root = yaml.compose(data, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError):
        return range(0)
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    spans = [
        range(key.start_mark.line + 1, value.end_mark.line + (2 if value.end_mark.column else 1))
        for key, value in pairs
        if key.value == "defaults"
    ]
    others = {
        line
        for key, value in pairs
        if key.value != "defaults"
        for line in (key.start_mark.line + 1, value.start_mark.line + 1)
    }
    return spans[0] if len(spans) == 1 and not others & set(spans[0]) else range(0)


def _claimed(trial: Trial) -> frozenset[int]:
    """Exit codes that a log says its run had: ``resume`` of a finished run repeats it."""
    if trial.words[0] != "resume":
        return frozenset()
    lines = [line for line in trial.files[trial.name].splitlines() if b"run-finished" in line]
    return frozenset(code for code in range(6) for line in lines if f'"exit_code": {code}'.encode() in line)


def _template() -> dict[str, bytes]:
    """Shipped files that changed ones name: suites their specs, kernels and models their Python.

    Each folder gives its smallest specs. All of them take a suite three seconds to read, and time is what one changed file costs.
    """
    specs = sorted((ROOT / "specs").rglob("*.spec.yaml"), key=lambda path: (path.parent, path.stat().st_size))
    folders = groupby(specs, key=lambda path: path.parent)
    paths = [*(ROOT / "specs").rglob("*.py"), *(path for _, files in folders for path in islice(files, _SPECS))]
    return {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in sorted(paths)}


def write_back(file: str) -> int:
    """Write variants of a file as YAML, read them again, and say where the source is another. Prints a line for each."""
    from runner.builder.source import build
    from runner.cases.select import SelectError
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
        path = Path(variant.case.file).parent / "zq_written.spec.yaml"
        path.write_text(case_text(variant, path.parent), encoding="utf-8")
        again = load([str(path)], allow_python=True, backends=[variant.backend.name])
        if again.errors or len(again.variants) != 1:
            _complain(f"refused: {variant.id}: {[d.message for d in again.errors][:3]}, {len(again.variants)} variants")
        elif _program(build(again.variants[0]).text) != _program(build(variant).text):
            _complain(f"another program: {variant.id}")
        os.unlink(path)
    return 0


def _complain(line: str) -> None:
    print("WRITTEN", ascii(line)[:400])


def _program(source: str) -> str:
    return ast.dump(ast.Module(ast.parse(source).body[1:], []))
