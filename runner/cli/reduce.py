"""``runner reduce``: a failing case made smaller, and the folder that holds what came of it.

``case.spec.yaml`` is the best so far at every instant, ``repro.py`` its script, ``steps.jsonl`` the accepted steps, and
``tried.jsonl`` and ``reduce.json`` are what ``--resume`` goes on from. ``--minifier`` is torch's own minifier instead.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import console, exit_codes
from runner.cases.model import Variant
from runner.cases.suites import SPEC
from runner.cli.arguments import FAILURE, RESULT_CODES, argument, command, seconds, settings_of
from runner.cli.variants import first_variant
from runner.diagnose.diagnosis import Diagnosis, find_kept
from runner.diagnose.harness import Progress, VariantEngine, refuse_kernels
from runner.diagnose.repro import script
from runner.diagnostics import shown_path
from runner.files import (
    append_regular,
    entries_below,
    link_problem,
    read_bytes,
    read_text,
    replace_file,
    replace_text,
)
from runner.quote import operand, shell_word, shell_words
from runner.record.journal import lines, parse_line
from runner.record.store import FOLDER, output_folder
from runner.reduce.minifier import Minifier, attempts, failure_of
from runner.reduce.reducer import Candidate, Memory, Reduced, Step, candidate_path, failing, reduce_variant
from runner.reduce.state import Size, digest
from runner.report.diagnosis import taken_over
from runner.session.plan import order_words
from runner.session.settings import RunSettings
from runner.session.shards import plan_hash
from runner.text import one_line
from runner.verdict.signature import FailureSignature

CASE, SCRIPT, STEPS, TRIED, HEAD = f"case{SPEC}", "repro.py", "steps.jsonl", "tried.jsonl", "reduce.json"
FILES = (CASE, SCRIPT, STEPS, TRIED, HEAD)


@command(
    "Drops steps, inputs, sizes and settings as long as stage, kind of difference and exception stay. "
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
        end = time.monotonic() + arguments.budget
        diagnosis = kept.diagnosis if kept else None
        with graph_or_case(engine, diagnosis, folder, progress.say) as (smaller, known):
            reduced = reduce_into(journal, smaller, end - time.monotonic(), progress.say, known)
    notes = [f"note: {note}" for note in reduced.notes]
    console.output("\n".join([reduced.text, summary(reduced), *notes, f"signature: {reduced.signature}"]))
    _print_commands(folder, reduced, arguments, engine.paths)
    return exit_codes.INTERRUPTED if reduced.interrupted else exit_codes.OK


@contextlib.contextmanager
def graph_or_case(
    engine: VariantEngine, diagnosis: Diagnosis | None, folder: Path, tick: Callable[[str], None]
) -> Iterator[tuple[VariantEngine, Diagnosis | None]]:
    """Yield the engine under which a variant is reduced, and what is known of the failure there.

    Of a case with ``module:`` it is that of the captured graph that fails alike. Its Python is the last resort.
    """
    if engine.variant.case.module is None:
        yield engine, diagnosis
        return
    from runner.graphs.stand_in import failing_graph

    findings = (
        diagnosis.findings
        if diagnosis
        else failing(engine.verdict(lambda: tick("running the case"), names_operator=False)).findings
    )
    graph = failing_graph(engine, findings, folder, tick)
    if graph is None:
        console.message("runner: no captured graph of the model fails alike, so its inputs and sizes are reduced")
        yield engine, diagnosis
        return
    variant, known = graph
    console.message(f"runner: reducing {shown_path(variant.case.file)}, a captured graph of the model that fails alike")
    with VariantEngine(
        variant, engine.environment, slots=engine.slots, seed=engine.seed, imports=engine.imports, paths=engine.paths,
        limits=engine.limits,
    ) as own:  # fmt: skip
        yield own, known


def reduce_into(
    journal: Journal, engine: VariantEngine, budget: float, tick: Callable[[str], None], diagnosis: Diagnosis | None
) -> Reduced:
    """Reduce the engine's variant within ``budget`` seconds, and keep each step in the folder of the journal."""
    try:
        reduced = reduce_variant(
            engine, budget=budget, tick=tick, folder=journal.folder, memory=journal.memory, diagnosis=diagnosis
        )
        journal.end(reduced, engine)
    finally:
        candidate_path(journal.folder).unlink(missing_ok=True)
    return reduced


def summary(reduced: Reduced) -> str:
    """``23 -> 2 operators, 4096 -> 8 elements, 41 runs, 12.3 s``, and what kept it from its end."""
    before, after = reduced.size_before, reduced.size_after
    line = (
        f"{before.operators} -> {after.operators} operators, {before.elements} -> {after.elements} elements, "
        f"{reduced.runs} runs, {reduced.seconds:.1f} s"
    )
    if reduced.interrupted:
        return line + "; interrupted, this is the best so far"
    return line if reduced.complete else line + "; stopped before the end, this is the best so far: --resume goes on"


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
    if problem := foreign_files(folder, variant):
        raise exit_codes.UsageError(f"--output {folder}: {problem}; name another folder")
    return folder


def foreign_files(folder: Path, variant: Variant) -> str:
    """Return what in the folder of a reduction this command did not write for the variant, and would replace; empty if
    nothing."""
    name = HEAD
    try:
        head = dict(parse_line(read_bytes(folder / HEAD)))
        if head.get("variant") != variant.id:
            return f"it holds a reduction of {one_line(str(head.get('variant')), 200)}, not of {variant.id}"
        for name in (CASE, SCRIPT):
            written = dict(head.get("written", {})).get(name, [])
            if (folder / name).exists() and hashlib.sha256(read_bytes(folder / name)).hexdigest() not in written:
                return f"{name} there is not as runner reduce wrote it"
        for name in (STEPS, TRIED):
            if not all("what" in record for record in _records(folder / name)):
                return f"{name} there was not written by runner reduce"
    except (OSError, ValueError, TypeError) as error:
        return f"{name} there is damaged ({type(error).__name__})"
    return ""


def why_folder(variant: Variant) -> Path:
    """Return the folder in which ``runner why`` keeps what it finds: the start of the case's name, and a hash of the
    id."""
    digest = hashlib.sha256(variant.id.encode("utf-8", "backslashreplace")).hexdigest()
    return Path(FOLDER, "why", f"{variant.case.name[:40]}-{digest[:8]}")


@dataclass(frozen=True, slots=True)
class Earlier:
    """A reduction that came to its end: its smallest case, and the number of changes that led to it."""

    text: str
    changes: int


def earlier_reduction(engine: VariantEngine, signature: FailureSignature) -> Earlier | None:
    """Return what ``runner why`` left of this failure of the engine's variant; None unless case, torch and seed are the
    same.

    The code of a backend may have changed since, so that a run has to confirm it.
    """
    folder = why_folder(engine.variant)
    if not (folder / HEAD).is_file() or foreign_files(folder, engine.variant):
        return None
    try:
        head = dict(parse_line(read_bytes(folder / HEAD)))
        text, changes = read_text(folder / CASE), len(_records(folder / STEPS))
    except (OSError, ValueError):
        return None
    wanted = {"complete": True, "plan": _plan(engine), "signature": dataclasses.asdict(signature)}
    return Earlier(text, changes) if {key: head.get(key) for key in wanted} == wanted else None


def _plan(engine: VariantEngine) -> str:
    return plan_hash([engine.planned], str(engine.seed))


class Journal:
    """What a reduction leaves in its folder as it goes."""

    def __init__(self, folder: Path, engine: VariantEngine, resume: bool) -> None:
        """Read what is there with ``resume``, if it is of the same case, torch and seed; otherwise begin anew.

        Raises:
            UsageError: a file of the folder is damaged.
        """
        self.folder = folder
        self.head: dict[str, Any] = {
            "variant": engine.variant.id,
            "plan": _plan(engine),
            "complete": False,
            "written": {},
        }
        self.memory = Memory(
            on_start=self._begun,
            on_step=self._stepped,
            on_verdict=self._told,
            on_case=lambda text: self._note(CASE, text),
        )
        if not (resume and self._load()):
            for name in FILES[:-1]:
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
        self.write(SCRIPT, script(reduced.variant, diagnosis, engine.seed, engine.imports))
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
            self.write(CASE, text)

    def _stepped(self, step: Step) -> None:
        self.write(CASE, step.text)
        self._append(STEPS, {"what": step.change, **step.size.summary(), "seconds": step.seconds, "runs": step.runs})

    def _told(self, candidate: Candidate, same: bool) -> None:
        size = candidate.size.summary()
        self._append(TRIED, {"text": digest(candidate.text), "same": same, "what": candidate.attempt.change, **size})

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        with append_regular(self.folder / name) as log:
            log.write(json.dumps(record).encode() + b"\n")

    def write(self, name: str, text: str) -> None:
        """Write a file of the folder, and note that it is the reduction's own."""
        self._note(name, text)
        replace_text(self.folder / name, text)

    def _note(self, name: str, text: str) -> None:
        """Write down, before a file is replaced, what it is to hold: the text before may stay if this process is
        killed."""
        written = self.head.setdefault("written", {})
        new = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
        written[name] = [*written.get(name, [])[-1:], new]
        self._write_head()

    def _write_head(self) -> None:
        replace_text(self.folder / HEAD, json.dumps(self.head, indent=1) + "\n")


def _whole_lines(path: Path) -> list[bytes]:
    """The lines of a log without a last one that was cut off."""
    found = [*lines(path)] if path.exists() else []
    return found[:-1] if found and found[-1].startswith(b"{") and not found[-1].endswith(b"\n") else found


def _records(path: Path) -> list[Mapping[str, Any]]:
    """The records of a log. Raises ValueError for any other line."""
    return [parse_line(line) for line in _whole_lines(path)]


def _print_commands(folder: Path, reduced: Reduced, arguments: argparse.Namespace, paths: Sequence[str] = ()) -> None:
    case, script = commands_about(folder, reduced.variant, settings_of(arguments), paths)
    console.output(f"case:      {case}\nscript:    {script}\nsteps:     {shown_path(str(folder / STEPS))}")


def commands_about(folder: Path, variant: Variant, settings: RunSettings, paths: Sequence[str]) -> tuple[str, str]:
    """Return the commands that run the reduced case of a folder, and its script.

    ``paths`` are those of the workers. The folders of suites among them stand before the commands.
    """
    case, text = (operand(shown_path(str(folder / name))) for name in (CASE, SCRIPT))
    words = [*order_words(), "runner", "run", case, "--backend", variant.backend.backend]
    words += settings.flags("python", "imports", "limit", "seed", "values", "no_project")
    words += ["--allow-python"] if variant.case.has_python else []
    python = shown_path(settings.python[0]) if settings.python else "python"
    known = [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    folders = [path for path in paths if path not in known]
    folders += filter(None, known[1:]) if folders else []
    before = f"PYTHONPATH={shell_word(os.pathsep.join(folders))} " if folders else ""
    return f"{before}{shell_words(words)}", f"{before}{shell_words([python, text])}"


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
        minifier = Minifier(engine, failure, output_folder(arguments.output, "minify"), progress)
        if arguments.accuracy and not failure.accuracy:
            minifier.notes.append("it gives no answer that --accuracy could compare, so the error is minified")
        return minifier.minify(list(attempts(failure, arguments.after, arguments.level)))
