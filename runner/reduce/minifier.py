"""torch's own minifier, driven from a case to a script that was seen to fail again.

The scripts that it writes are read, and made to run alone in any folder.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runner import console, exit_codes
from runner.contract.job import Isolation
from runner.contract.oracles import EXCEPTIONS, ORACLES
from runner.diagnose.harness import Progress, VariantEngine, telling_line
from runner.diagnose.repro import imported
from runner.diagnostics import shown_path
from runner.engine.messages import Outcome
from runner.files import read_text, remove_irregular, write_anew
from runner.quote import dotted_name, literal, operand, shell_word, shell_words
from runner.record.events import VariantFinished
from runner.reduce.reducer import failing
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


def failure_of(finished: VariantFinished) -> Failure:
    """What is to be kept of a failing variant.

    Raises:
        UsageError: it does not fail, or torch's minifier cannot see how.
    """
    order = ranked(failing(finished).findings)
    found = next((f for f in order if f.oracle in EXCEPTIONS | VALUES | {"signal"}), None)
    if found is None or found.stage == "dynamo":
        why = f"by {order[0].oracle}, and torch's minifier sees errors and values alone"
        if found is not None:
            why = "in Dynamo, and torch's minifier cuts graphs that Dynamo has made already"
        instead = f"runner reduce {shell_word(operand(finished.id))} shrinks it"
        raise exit_codes.UsageError(f"{finished.id} fails {why}: {instead}", exit_codes.NO_RESULT)
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


class Minifier:
    """The steps, each a process of its own, in one folder."""

    def __init__(self, engine: VariantEngine, failure: Failure, folder: Path, progress: Progress) -> None:
        self.engine, self.failure, self.folder, self.progress = engine, failure, folder, progress
        self.backend = engine.job("minify").backend
        name = str(self.backend["backend"])
        self.alias = re.sub(r"\W+", "_", name) + ("" if ":" in name else "_copied")
        self.notes: list[str] = []

    def minify(self, tries: Sequence[Attempt]) -> int:
        """Try until a script is written, and print what came of it; 0 when the script fails alike, else 1."""
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
            **asdict(attempt),
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
            raise exit_codes.UsageError(f"minify: the case has changed the folder of its results: {error}") from None
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
        text = standalone(read_text(script), self.folder, self.backend, self.alias, job.imports, job.paths)
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
            f"minified {attempt}: {plural(operators_of(read_text(launcher)), 'operator')} -> "
            f"{plural(operators_of(text), 'operator')}\n\n{graph_of(text)}"
        )
        again = kind == self.failure.kind
        how = f"fails alike: {detail}" if again else f"fails in another way: {detail}" if kind else "does not fail"
        words = [self.engine.environment.python, operand(shown_path(str(script)))]
        console.output(f"\nrepro.py in a fresh process {how}\nrun it: {shell_words(words)}")
        return exit_codes.OK if again else exit_codes.NO_RESULT


def ended(outcome: Outcome) -> tuple[str, str]:
    """What a step ended with: its kind, as in ``Failure``, and a line about it; both empty when nothing was raised.

    Raises:
        UsageError: the case is wrong, or the harness failed.
    """
    if outcome.ended in ("broken", "worker-error") or outcome.result.get("error"):
        error = outcome.result.get("error") or {}
        raise exit_codes.UsageError(f"minify: {error.get('message') or outcome.detail.strip().rpartition(chr(10))[2]}")
    if outcome.ended != "result":
        return (outcome.signal or outcome.ended), outcomes.describe(outcome)
    raised = outcome.result.get("raised")
    return (kind_of(raised), telling_line(raised)) if raised else ("", "")


# --- its scripts ---

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
        nodes = ast.walk(ast.parse(text))
    except SyntaxError:
        return None
    graph = next((node for node in nodes if isinstance(node, ast.ClassDef) and node.name == "Repro"), None)
    functions = (node for node in (graph.body if graph else ()) if isinstance(node, ast.FunctionDef))
    return next((function for function in functions if function.name == "forward"), None)


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
        lines += _registration(backend, alias)
        if not _registration(backend, alias):
            text = text.replace(backend_argument, f"backend={literal(backend['backend'])}")
    place = _MAIN.search(text)
    position = place.start() if place else len(text)
    return text[:position] + "\n".join(lines) + f"\n\n{text[position:]}"


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
