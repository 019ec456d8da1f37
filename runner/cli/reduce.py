"""``runner reduce``: a failing case made smaller, and the folder that holds what came of it.

``case.spec.yaml`` is the best so far at every instant, ``repro.py`` its script, ``steps.jsonl`` the accepted steps, and
``tried.jsonl`` and ``reduce.json`` are what ``--resume`` goes on from.

``--minifier`` is torch's own minifier, driven from a case to a script that was seen to fail again.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import console, exit_codes
from runner.cases.model import Variant
from runner.cases.suites import SPEC
from runner.cli.arguments import FAILURE, RESULT_CODES, argument, command, seconds, settings_of
from runner.cli.variants import first_variant
from runner.contract.job import Isolation
from runner.contract.oracles import EXCEPTIONS, ORACLES
from runner.diagnose.diagnosis import Diagnosis, find_kept
from runner.diagnose.harness import Progress, VariantEngine, refuse_kernels
from runner.diagnose.minified import graph_of, operators_of, standalone
from runner.diagnose.repro import script
from runner.diagnostics import shown_path
from runner.engine.messages import Outcome
from runner.files import (
    append_regular,
    entries_below,
    link_problem,
    open_regular,
    read_bytes,
    read_text,
    remove_irregular,
    replace_file,
    replace_text,
    write_anew,
)
from runner.quote import operand, shell_word, shell_words
from runner.record.events import VariantFinished
from runner.record.journal import lines, parse_line
from runner.record.store import output_folder
from runner.reduce.reducer import Memory, Reduced, Step, candidate_path, reduce_variant
from runner.reduce.state import Candidate, Size, digest
from runner.report.diagnosis import taken_over
from runner.session.plan import order_words
from runner.session.shards import plan_hash
from runner.text import one_line, plural
from runner.verdict import outcomes
from runner.verdict.policy import ranked
from runner.verdict.signature import FailureSignature, signature_of

CASE, SCRIPT, STEPS, TRIED, HEAD = f"case{SPEC}", "repro.py", "steps.jsonl", "tried.jsonl", "reduce.json"


@command(
    "Drops steps, inputs, sizes and settings as long as stage, oracle and exception stay. "
    "Prints the smallest case; writes it, its script and the log of the steps into a folder.",
    *FAILURE,
    argument("-o", "--output", metavar="FOLDER", help="default: reduced/ in the run folder, which is printed"),
    argument(
        "--budget",
        type=seconds,
        default=120.0,
        metavar="TIME",
        help="stop after this long with the best so far (default: 2m)",
    ),
    argument("--resume", action="store_true", help="go on from what --output holds"),
    argument(
        "--minifier", action="store_true", help="by torch's own minifier instead; runner reduce --minifier --help"
    ),
    epilog=RESULT_CODES,
)
def run(arguments: argparse.Namespace) -> int:
    """Reduce the variant, write the folder, print the case and one line about it.

    Raises:
        UsageError: the variant does not fail, or the folder cannot be used.
    """
    variant = first_variant(arguments)
    folder = _folder(arguments, variant)
    try:
        with Progress() as progress, VariantEngine.of(settings_of(arguments), variant) as engine:
            journal = Journal(folder, engine, arguments.resume)
            if journal.done:
                progress.end()
                console.output(read_text(folder / CASE))
                console.output(f"{shown_path(str(folder / CASE))}: reduced to the end before; nothing is left to try")
                return exit_codes.OK
            kept = find_kept(engine)
            if kept is not None:
                console.message(taken_over(kept))
            reduced = reduce_variant(
                engine,
                budget=arguments.budget,
                tick=progress.say,
                folder=folder,
                memory=journal.memory,
                diagnosis=kept.diagnosis if kept else None,
            )
            progress.end()
            journal.end(reduced, engine)
    finally:
        candidate_path(folder).unlink(missing_ok=True)
    console.output(reduced.text)
    console.output(summary(reduced))
    for note in reduced.notes:
        console.output(f"note: {note}")
    console.output(f"signature: {reduced.signature}")
    _print_commands(folder, reduced, arguments)
    return exit_codes.INTERRUPTED if reduced.interrupted else exit_codes.OK


def summary(reduced: Reduced) -> str:
    """``23 -> 2 operators, 4096 -> 8 elements, 41 runs, 12.3 s``, and what kept it from its end."""
    before, after = reduced.size_before, reduced.size_after
    line = (
        f"{before.operators} -> {after.operators} operators, {before.elements} -> {after.elements} elements, "
        f"{reduced.runs} runs, {reduced.seconds:.1f} s"
    )
    if reduced.interrupted:
        return line + "; interrupted, this is the best so far"
    if not reduced.complete:
        return line + "; stopped before the end, this is the best so far: --resume goes on"
    return line


def _folder(arguments: argparse.Namespace, variant: Variant) -> Path:
    """The output folder, made if need be: a new or empty one, or that of an earlier reduction of the variant.

    Raises:
        UsageError: there is no folder to resume from, it holds other files in the place of those of a reduction or
        links,
            or it cannot be made.
    """
    if arguments.resume and arguments.output is None:
        raise exit_codes.UsageError("--resume goes with --output FOLDER, the folder of the reduction to go on with")
    folder = Path(arguments.output or "reduced")
    if arguments.output is None or not (folder / HEAD).is_file():
        if arguments.resume:
            raise exit_codes.UsageError(f"--resume: {arguments.output} holds no reduction")
        folder = output_folder(arguments.output, "reduced")
        if arguments.output is None:
            console.message(f"runner: writing to {shown_path(str(folder))}")
        return folder
    if Path(variant.case.file).resolve().parent == folder.resolve():
        raise exit_codes.UsageError(f"--output {folder}: it holds the case that is reduced; name another folder")
    for path in (folder, *(entry for entry in entries_below(folder) if entry.is_symlink())):
        if problem := link_problem(path):
            raise exit_codes.UsageError(f"--output {folder}: {problem}")
    if problem := _foreign(folder, variant):
        raise exit_codes.UsageError(f"--output {folder}: {problem}; name another folder")
    return folder


def _foreign(folder: Path, variant: Variant) -> str:
    """Return what in the folder of a reduction this command did not write for the variant, and would replace; empty if
    nothing."""
    name = HEAD
    try:
        head = dict(parse_line(_content(folder / HEAD)))
        if head.get("variant") != variant.id:
            return f"it holds a reduction of {one_line(str(head.get('variant')), 200)}, not of {variant.id}"
        for name in (CASE, SCRIPT):
            texts = dict(head.get("written", {})).get(name, [])
            if (folder / name).exists() and hashlib.sha256(_content(folder / name)).hexdigest() not in texts:
                return f"{name} there is not as runner reduce wrote it"
        for name in (STEPS, TRIED):
            if not all("what" in record for record in _records(folder / name)):
                return f"{name} there was not written by runner reduce"
    except (OSError, ValueError, TypeError) as error:
        return f"{name} there is damaged ({type(error).__name__})"
    return ""


def _content(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read()


class Journal:
    """What a reduction leaves in its folder as it goes."""

    def __init__(self, folder: Path, engine: VariantEngine, resume: bool) -> None:
        """Read what is there with ``resume``, if it is of the same case, torch and seed; otherwise begin anew.

        Raises:
            UsageError: a file of the folder is damaged.
        """
        self.folder, self.variant = folder, engine.variant
        plan = plan_hash([engine.planned], str(engine.seed))
        self.head: dict[str, Any] = {"variant": self.variant.id, "plan": plan, "complete": False, "written": {}}
        self.memory = Memory(
            on_start=self._begun,
            on_step=self._stepped,
            on_verdict=self._told,
            on_case=lambda text: self._note(CASE, text),
        )
        if not (resume and self._load()):
            for name in (CASE, SCRIPT, STEPS, TRIED):
                (folder / name).unlink(missing_ok=True)
            self._write_head()
        for name in (STEPS, TRIED):  # else the next record would go on in a line that was cut off
            replace_file(folder / name, _whole_lines(folder / name))

    @property
    def done(self) -> bool:
        """Whether an earlier reduction came to its end."""
        return bool(self.head.get("complete"))

    def end(self, reduced: Reduced, engine: VariantEngine) -> None:
        """Write the result. The case itself is there already."""
        diagnosis = Diagnosis(reduced.variant.id, engine.environment.torch, "FAIL", findings=reduced.findings)
        self._write(SCRIPT, script(reduced.variant, diagnosis, engine.seed))
        self.head |= {
            "complete": reduced.complete and reduced.confirmed,
            "before": reduced.size_before.summary(),
            "after": reduced.size_after.summary(),
            "runs": reduced.runs,
            "seconds": reduced.seconds,
        }
        self._write_head()

    def _load(self) -> bool:
        """Take what an earlier reduction left; return whether it is one of the same case, torch and seed."""
        try:
            head = dict(parse_line(read_bytes(self.folder / HEAD)))
            verdicts = {str(line["text"]): bool(line["same"]) for line in _records(self.folder / TRIED)}
            best = read_text(self.folder / CASE) if (self.folder / CASE).is_file() else None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise exit_codes.UsageError(
                f"--resume: a file of {self.folder} is damaged ({type(error).__name__}); leave --resume out"
            ) from None
        if head.get("plan") != self.head["plan"]:
            console.message("runner: the case, torch or the seed has changed since; beginning anew")
            return False
        self.head = head
        self.memory.verdicts.update(verdicts)
        self.memory.best = best
        return True

    def _begun(self, signature: FailureSignature, text: str, size: Size) -> None:
        known = {"signature": dataclasses.asdict(signature)}
        if self.memory.best is not None and self.head.get("signature") != known["signature"]:
            # Another failure by that name: what was tried says nothing about it.
            console.message("runner: the failure has changed since; beginning anew")
            self.memory.best = None
            self.memory.verdicts.clear()
        self.head |= known
        self._write_head()
        if self.memory.best is None:
            self._write(CASE, text)

    def _stepped(self, step: Step) -> None:
        self._write(CASE, step.text)
        line = {"what": step.change, **step.size.summary(), "seconds": step.seconds, "runs": step.runs}
        _append(self.folder / STEPS, line)

    def _told(self, candidate: Candidate, same: bool) -> None:
        line = {
            "text": digest(candidate.text),
            "same": same,
            "what": candidate.attempt.change,
            **candidate.size.summary(),
        }
        _append(self.folder / TRIED, line)

    def _write(self, name: str, text: str) -> None:
        self._note(name, text)
        replace_text(self.folder / name, text)

    def _note(self, name: str, text: str) -> None:
        """Write down, before a file is replaced, what it is to hold: the text before may stay if this process is
        killed."""
        written = self.head.setdefault("written", {})
        written[name] = [
            *written.get(name, [])[-1:],
            hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest(),
        ]
        self._write_head()

    def _write_head(self) -> None:
        replace_text(self.folder / HEAD, json.dumps(self.head, indent=1) + "\n")


def _append(path: Path, record: Mapping[str, Any]) -> None:
    with append_regular(path) as log:
        log.write(json.dumps(record).encode() + b"\n")


def _whole_lines(path: Path) -> list[bytes]:
    """The lines of a log without a last one that was cut off."""
    found = [*lines(path)] if path.exists() else []
    return found[:-1] if found and found[-1].startswith(b"{") and not found[-1].endswith(b"\n") else found


def _records(path: Path) -> list[Mapping[str, Any]]:
    """The records of a log. Raises ValueError for any other line."""
    return [parse_line(line) for line in _whole_lines(path)]


def _print_commands(folder: Path, reduced: Reduced, arguments: argparse.Namespace) -> None:
    case = reduced.variant.case
    words = [
        *order_words(),
        "runner",
        "run",
        operand(shown_path(str(folder / CASE))),
        "--backend",
        reduced.variant.backend.backend,
    ]
    words += settings_of(arguments).flags("python", "imports", "limit", "seed", "values")
    words += ["--allow-python"] if case.has_python else []
    console.output(f"case:      {shell_words(words)}")
    python = shown_path(arguments.python[0]) if arguments.python else "python"
    console.output(f"script:    {shell_words([python, operand(shown_path(str(folder / SCRIPT)))])}")
    console.output(f"steps:     {shown_path(str(folder / STEPS))}")


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


@command(
    "Drives torch's minifier and runs its repro.py again.",
    *FAILURE,
    argument("--after", choices=("dynamo", "aot"), default="aot", help="which graph it cuts (default: aot)"),
    argument("--accuracy", action="store_true", help="minify a wrong answer instead of an error (level 4)"),
    argument("--level", type=int, choices=(2, 3), default=2, help="as TORCHDYNAMO_REPRO_LEVEL (default: 2)"),
    argument("-o", "--output", metavar="FOLDER", help="where repro.py and the checkpoints are kept"),
    epilog=RESULT_CODES,
)
def run_minify(arguments: argparse.Namespace) -> int:
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
        raise exit_codes.UsageError(f"{finished.id} does not fail: {finished.verdict}{reason}", exit_codes.NO_RESULT)
    instead = f"runner reduce {shell_word(operand(finished.id))} shrinks it"
    order = ranked(finished.findings)
    found = next((f for f in order if f.oracle in EXCEPTIONS | VALUES | {"signal"}), None)
    if found is None:
        raise exit_codes.UsageError(
            f"{finished.id} fails by {order[0].oracle}, and torch's minifier sees errors and values alone: {instead}",
            exit_codes.NO_RESULT,
        )
    if found.stage == "dynamo":
        raise exit_codes.UsageError(
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
        raise exit_codes.UsageError(f"minify: {error.get('message') or outcome.detail.strip().rpartition(chr(10))[2]}")
    if outcome.ended != "result":
        return (outcome.signal or outcome.ended), outcomes.describe(outcome)
    raised = outcome.result.get("raised")
    if not raised:
        return "", ""
    return kind_of(raised), telling_line(raised)


def telling_line(raised: Mapping[str, Any]) -> str:
    """An error's class and first telling line: ``backend='x' raised:`` says nothing by itself, so the next follows."""
    lines = str(raised["message"]).strip().split("\n")
    line = " ".join(lines[:2]) if lines[0].endswith("raised:") else lines[0]
    return f"{raised['type']}: {line}" if line else str(raised["type"])
