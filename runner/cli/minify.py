"""``runner reduce --minifier``: torch's own minifier, driven from a case to a script that was seen to fail again."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import console, exit_codes
from runner.cli.arguments import add_variant, settings_of
from runner.cli.variants import first_variant
from runner.contract.job import Isolation
from runner.contract.oracles import EXCEPTIONS, ORACLES
from runner.diagnose.harness import Progress, VariantEngine, refuse_kernels
from runner.diagnose.minified import graph_of, operators_of, standalone
from runner.diagnostics import shown_path
from runner.engine.messages import Outcome
from runner.exit_codes import UsageError
from runner.files import read_text, remove_irregular, write_anew
from runner.quote import operand, shell_word, shell_words
from runner.record.events import VariantFinished
from runner.record.store import output_folder
from runner.text import plural
from runner.verdict import outcomes
from runner.verdict.policy import ranked
from runner.verdict.signature import signature_of

VALUES = frozenset(row.name for row in ORACLES if row.minified)
"""Oracles that the minifier at level 4 can see: it compares with ``torch._dynamo.utils.same``, so values alone."""

TOLERANCES = (1e-3, 1e-5, 1e-7)
"""For ``repro_tolerance``, torch's default first. A difference that only a small one shows is still beyond float64's:
``same`` lets pass what is at most a small multiple of eager's error against float64."""

CUT_SECONDS = 600.0
"""How long the cutting may take; then the smallest graph so far is taken."""

WRAPPERS = frozenset({"BackendCompilerFailed", "InductorError", "LoweringException"})
"""Exceptions in which torch wraps what failed, and which differ with the way that a graph is compiled."""

_CHECKPOINT = re.compile(r"(?:minified_)?(\d+)(?:_nodes)?\.py")


@dataclass(frozen=True, slots=True)
class Failure:
    """What the minifier is to keep.

    ``kind`` is the class of the exception, or the signal's name; ``text`` is for people.
    """

    kind: str
    text: str
    stage: str | None
    accuracy: bool = False
    signal: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to have a launcher written: ``after`` dynamo or aot, at a level, with a tolerance at level 4."""

    after: str
    level: int
    tolerance: float | None = None

    def __str__(self) -> str:
        """For people: ``after aot, level 4, tolerance 1e-05``."""
        text = f"after {self.after}, level {self.level}"
        return text if self.tolerance in (None, TOLERANCES[0]) else f"{text}, tolerance {self.tolerance:g}"


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner reduce --minifier`` takes."""
    parser.description = "Drives torch's minifier and runs its repro.py again."
    add_variant(parser)
    parser.add_argument("--after", choices=("dynamo", "aot"), default="aot", help="which graph it cuts (default: aot)")
    parser.add_argument("--accuracy", action="store_true", help="minify a wrong answer instead of an error (level 4)")
    parser.add_argument("--level", type=int, choices=(2, 3), default=2, help="as TORCHDYNAMO_REPRO_LEVEL (default: 2)")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="where repro.py and the checkpoints are kept")


def run(arguments: argparse.Namespace) -> int:
    """Minify; 0 when a script was made and fails again alike, else 1.

    Raises:
        UsageError: the variant does not fail, or not in a way that the minifier can see.
    """
    variant = first_variant(arguments)
    refuse_kernels(variant, "minify")
    with Progress() as progress, VariantEngine.of(settings_of(arguments), variant) as engine:
        progress.say(f"running {variant.id}")
        failure = failure_of(engine.verdict())
        folder = output_folder(arguments.output, "minify")
        minifier = _Minifier(engine, failure, folder, progress)
        if arguments.accuracy and not failure.accuracy:
            minifier.notes.append("it gives no answer that --accuracy could compare, so the error is minified")
        return minifier.go(list(attempts(failure, arguments.after, arguments.level)))


def failure_of(finished: VariantFinished) -> Failure:
    """What is to be kept of a failing variant.

    Raises:
        UsageError: it does not fail, or torch's minifier cannot see how.
    """
    if not finished.findings:
        reason = f": {finished.reason}" if finished.reason else ""
        raise UsageError(f"{finished.id} does not fail: {finished.verdict}{reason}", exit_codes.NO_RESULT)
    instead = f"runner reduce {shell_word(operand(finished.id))} shrinks it"
    order = ranked(finished.findings)
    found = next((f for f in order if f.oracle in EXCEPTIONS | VALUES | {"signal"}), None)
    if found is None:
        raise UsageError(
            f"{finished.id} fails by {order[0].oracle}, and torch's minifier sees errors and values alone: {instead}",
            exit_codes.NO_RESULT,
        )
    if found.stage == "dynamo":
        raise UsageError(
            f"{finished.id} fails in Dynamo, and torch's minifier cuts graphs that Dynamo has made already: {instead}",
            exit_codes.NO_RESULT,
        )
    text = str(signature_of(found))
    if found.oracle in VALUES:
        return Failure("AccuracyError", text, found.stage, accuracy=True)
    if found.oracle == "signal":
        name = str((found.error or {}).get("type", ""))
        return Failure(name, text, found.stage, signal=name)
    return Failure(kind_of(found.error), text, found.stage)


def kind_of(error: Mapping[str, Any] | None) -> str:
    """The class of exception that tells a failure: the outermost of its chain that is no wrapper of torch's."""
    chain = [str(name) for name in (error or {}).get("chain") or ()]
    return next((name for name in chain if name not in WRAPPERS), chain[-1] if chain else "")


def attempts(failure: Failure, after: str, level: int) -> Iterator[Attempt]:
    """What to try, in order, until a launcher is written: what was asked for, then what may work instead.

    The graph after AOT comes too late for what fails in AOT or in decompositions, and not at all for a backend without
    Inductor.
    """
    places = ["dynamo"] if after == "dynamo" or failure.stage in ("aot", "decomposition") else ["aot", "dynamo"]
    for place in places:
        if failure.accuracy:
            for tolerance in TOLERANCES:
                yield Attempt(place, 4, tolerance)
        elif failure.signal:
            yield Attempt(place, 3)  # the launcher is written before the graph runs
        else:
            for number in dict.fromkeys((level, 3)):  # level 2 may keep shapes and no values, and the values may matter
                yield Attempt(place, number)


class _Minifier:
    """The steps, each a process of its own, in one folder."""

    def __init__(self, engine: VariantEngine, failure: Failure, folder: Path, progress: Progress) -> None:
        self.engine, self.failure, self.folder, self.progress = engine, failure, folder, progress
        self.backend = engine.job("minify").backend
        name = str(self.backend["backend"])
        self.alias = re.sub(r"\W+", "_", name) + ("" if ":" in name else "_copied")
        self.notes: list[str] = []

    def go(self, tries: Sequence[Attempt]) -> int:
        for attempt in tries:
            launcher = self._provoke(attempt)
            if launcher is not None and self._cut(attempt, launcher):
                return self._confirm(attempt, launcher, asked=attempt.after == tries[0].after)
        self.progress.end()
        console.output(f"{self.engine.variant.id}\nfails: {self.failure.text}\nno graph could be minified:")
        for note in dict.fromkeys(self.notes):
            console.output(f"  {note}")
        console.output(f"runner reduce {shell_word(operand(self.engine.variant.id))} shrinks the case instead")
        return exit_codes.NO_RESULT

    def _ask(self, step: str, attempt: Attempt, isolation: Isolation = "fork", **more: Any) -> Outcome:
        given = {
            "step": step,
            "folder": str(self.folder),
            "after": attempt.after,
            "level": attempt.level,
            "tolerance": attempt.tolerance,
            "alias": self.alias,
            "signal": self.failure.signal,
            **more,
        }
        cutting = step == "cut"
        job = self.engine.job("minify", given, timeout=CUT_SECONDS if cutting else None, isolation=isolation)
        outcome = self.engine.ask([job], self._how_far if cutting else None)[0]
        try:
            remove_irregular(self.folder)
        except OSError as error:
            raise UsageError(f"minify: the case has changed the folder of its results: {error}") from None
        return outcome

    def _how_far(self) -> None:
        """Say how far the cutting is, by the checkpoints, which are named after the nodes that they hold."""
        sizes: list[int] = []
        with contextlib.suppress(OSError, RecursionError):  # what lies there changes meanwhile
            names = (_CHECKPOINT.fullmatch(path.name) for path in self.folder.rglob("checkpoints/*.py"))
            sizes = [int(name[1]) for name in names if name]
        self.progress.say(f"cutting the graph: {min(sizes)} nodes left" if sizes else "cutting the graph")

    def _provoke(self, attempt: Attempt) -> Path | None:
        """Have the launcher written; None, with a note, where torch saw nothing or something else."""
        self.progress.say(f"looking for the graph: {attempt}")
        before = self._launchers()
        outcome = self._ask("provoke", attempt)
        written = [path for path in self._launchers() if path not in before]
        kind, text = ended(outcome)
        if self.failure.signal and kind == "Died":
            kind = self.failure.kind
        if not written:
            self.notes.append(f"{attempt}: torch's minifier saw no failure" + (f", but {text}" if text else ""))
            return None
        if kind != self.failure.kind:
            self.notes.append(f"{attempt}: it fails in another way, with {text or 'nothing'}")
            return None
        return written[-1]

    def _launchers(self) -> list[Path]:
        return sorted(self.folder.glob("run_*/minifier/minifier_launcher.py"))

    def _cut(self, attempt: Attempt, launcher: Path) -> bool:
        """Run the launcher; whether it left a script."""
        for flags in self._flags(attempt):
            outcome = self._ask("cut", attempt, launcher=str(launcher), flags=flags)
            kind, text = ended(outcome)
            if (self.folder / "repro.py").is_file():
                if kind:
                    self.notes.append(f"the minifier stopped early: {text}")
                return True
            self.notes.append(f"{attempt}: cutting ended with {text or 'nothing'}")
        return False

    def _flags(self, attempt: Attempt) -> list[list[str]]:
        """Arguments for the launcher: in this process, where the backend is registered and a test takes a second."""
        if attempt.after == "dynamo":
            return [[]]
        if self.failure.accuracy:
            # The plain test leaves out whatever is not floating, which level 4 has compared.
            return [["--no-isolate"], ["--no-isolate", "--strict-accuracy"]]
        if self.failure.signal:
            # A child opens no accelerator that its parent has opened.
            return [["--no-isolate"] if self.engine.variant.device == "cpu" else []]
        return [["--no-isolate", "--check-str", self.failure.kind]]

    def _confirm(self, attempt: Attempt, launcher: Path, asked: bool) -> int:
        """Make the script run alone, run it in a fresh process, and say everything."""
        script, job = self.folder / "repro.py", self.engine.job("minify")
        whole, text = read_text(launcher), read_text(script)
        text = standalone(text, self.folder, self.backend, self.alias, job.imports, job.paths)
        write_anew(script, text)
        self.progress.say("running repro.py in a fresh process")
        kind, detail = ended(self._ask("run", attempt, isolation="fresh", script=str(script)))
        self.progress.end()
        console.output(f"{self.engine.variant.id}\nfails: {self.failure.text}")
        if not asked:
            console.output("the graph after AOT does not show it; this is the one after Dynamo")
        for note in dict.fromkeys(self.notes):
            console.output(f"note: {note}")
        console.output(
            f"minified {attempt}: {plural(operators_of(whole), 'operator')} -> "
            f"{plural(operators_of(text), 'operator')}\n"
        )
        console.output(graph_of(text))
        again = kind == self.failure.kind
        how = f"fails alike: {detail}" if again else f"fails in another way: {detail}" if kind else "does not fail"
        console.output(f"\nrepro.py in a fresh process {how}")
        console.output(f"run it: {shell_words([self.engine.environment.python, operand(shown_path(str(script)))])}")
        return exit_codes.OK if again else exit_codes.NO_RESULT


def ended(outcome: Outcome) -> tuple[str, str]:
    """What a step ended with: its kind, as in ``Failure``, and a line about it; both empty when nothing was raised.

    Raises:
        UsageError: the case is wrong, or the harness failed.
    """
    if outcome.ended in ("broken", "worker-error") or outcome.result.get("error"):
        error = outcome.result.get("error") or {}
        raise UsageError(f"minify: {error.get('message') or outcome.detail.strip().rpartition(chr(10))[2]}")
    if outcome.ended != "result":
        return (outcome.signal or outcome.ended), outcomes.describe(outcome)
    raised = outcome.result.get("raised")
    if not raised:
        return "", ""
    return kind_of(raised), summary(raised)


def summary(raised: Mapping[str, Any]) -> str:
    """An error's class and first telling line: ``backend='x' raised:`` says nothing by itself, so the next follows."""
    lines = str(raised["message"]).strip().split("\n")
    line = " ".join(lines[:2]) if lines[0].endswith("raised:") else lines[0]
    return f"{raised['type']}: {line}" if line else str(raised["type"])
