"""``runner reduce``: a failing case made smaller, and the folder that holds what came of it.

``case.spec.yaml`` is the best so far at every instant, ``repro.py`` its script, ``steps.jsonl`` the accepted steps, and
``tried.jsonl`` and ``reduce.json`` are what ``--resume`` goes on from.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner import console, exit_codes
from runner.cases.model import Variant
from runner.cases.suites import SPEC
from runner.cli.arguments import add_variant, seconds, settings_of
from runner.cli.variants import first_variant
from runner.diagnose.diagnosis import Diagnosis
from runner.diagnose.harness import Progress, VariantEngine
from runner.diagnose.kept import find
from runner.diagnose.repro import script
from runner.diagnostics import shown_path
from runner.exit_codes import UsageError
from runner.files import append_regular, read_text, replace_text
from runner.quote import operand, shell_words
from runner.record.store import output_folder
from runner.reduce.reducer import Memory, Reduced, Step, reduce_variant
from runner.reduce.search import Candidate, digest
from runner.reduce.state import Size
from runner.report.diagnosis import taken_over
from runner.verdict.signature import FailureSignature

CASE, SCRIPT, STEPS, TRIED, HEAD = f"case{SPEC}", "repro.py", "steps.jsonl", "tried.jsonl", "reduce.json"


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner reduce`` takes."""
    parser.description = (
        "Drops steps, inputs, sizes and settings as long as stage, oracle and exception stay. "
        "Prints the smallest case; writes it, its script and the log of the steps into a folder."
    )
    add_variant(parser)
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="default: reduced/ in the run folder, which is printed"
    )
    parser.add_argument("--budget", type=seconds, default=120.0, metavar="TIME",
                        help="stop after this long with the best so far (default: 2m)")  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="go on from what --output holds")
    parser.add_argument(
        "--minifier", action="store_true", help="by torch's own minifier instead; runner reduce --minifier --help"
    )


def run(arguments: argparse.Namespace) -> int:
    """Reduce the variant, write the folder, print the case and one line about it.

    Raises:
        UsageError: the variant does not fail, or the folder cannot be used.
    """
    variant = first_variant(arguments)
    folder = _folder(arguments)
    progress = Progress()
    try:
        with VariantEngine.of(settings_of(arguments), variant) as engine:
            journal = Journal(folder, variant, arguments.resume)
            if journal.done:
                progress.end()
                console.output(read_text(folder / CASE))
                console.output(f"{shown_path(str(folder / CASE))}: reduced to the end before; nothing is left to try")
                return exit_codes.OK
            kept = find(engine)
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
        progress.end()
        (folder / f"candidate{SPEC}").unlink(missing_ok=True)
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


def _folder(arguments: argparse.Namespace) -> Path:
    """The output folder, made if need be.

    Raises:
        UsageError: there is no folder to resume from, or it cannot be made.
    """
    if arguments.output is None:
        if arguments.resume:
            raise UsageError("--resume goes with --output FOLDER, the folder of the reduction to go on with")
        folder = output_folder(None, "reduced")
        console.message(f"runner: writing to {shown_path(str(folder))}")
        return folder
    folder = Path(arguments.output)
    if arguments.resume and not (folder / HEAD).is_file():
        raise UsageError(f"--resume: {arguments.output} holds no reduction")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output {arguments.output}: {error.strerror}") from None
    return folder


class Journal:
    """What a reduction leaves in its folder as it goes."""

    def __init__(self, folder: Path, variant: Variant, resume: bool) -> None:
        """Read what is there with ``resume``, otherwise begin anew.

        Raises:
            UsageError: the folder holds a reduction of something else.
        """
        self.folder, self.variant = folder, variant
        self.head: dict[str, Any] = {"variant": variant.id, "complete": False}
        self.memory = Memory(on_start=self._begun, on_step=self._stepped, on_verdict=self._told)
        if resume:
            self._load()
        else:
            for name in (CASE, SCRIPT, STEPS, TRIED, HEAD):
                (folder / name).unlink(missing_ok=True)
        (folder / STEPS).touch()

    @property
    def done(self) -> bool:
        """Whether an earlier reduction came to its end."""
        return bool(self.head.get("complete"))

    def end(self, reduced: Reduced, engine: VariantEngine) -> None:
        """Write the result. The case itself is there already."""
        diagnosis = Diagnosis(reduced.variant.id, engine.environment.torch, "FAIL", findings=reduced.findings)
        replace_text(self.folder / SCRIPT, script(reduced.variant, diagnosis, engine.seed))
        self.head |= {
            "complete": reduced.complete and reduced.confirmed,
            "before": reduced.size_before.summary(),
            "after": reduced.size_after.summary(),
            "runs": reduced.runs,
            "seconds": reduced.seconds,
        }
        self._write_head()

    def _load(self) -> None:
        self.head = json.loads(read_text(self.folder / HEAD))
        if self.head.get("variant") != self.variant.id:
            raise UsageError(
                f"--resume: {self.folder} holds a reduction of {self.head.get('variant')}, not of {self.variant.id}"
            )
        for line in _lines(self.folder / TRIED):
            self.memory.verdicts[line["text"]] = line["same"]
        if (self.folder / CASE).is_file():
            self.memory.best = read_text(self.folder / CASE)

    def _begun(self, signature: FailureSignature, text: str, size: Size) -> None:
        known = {"text": digest(text), "signature": dataclasses.asdict(signature)}
        if self.memory.best is not None and any(self.head.get(key) != value for key, value in known.items()):
            # Another case or another failure by that name: what was tried says nothing about it.
            console.message("runner: the case has changed since; beginning anew")
            self.memory.best = None
            self.memory.verdicts.clear()
        self.head |= known
        self._write_head()
        if self.memory.best is None:
            replace_text(self.folder / CASE, text)

    def _stepped(self, step: Step) -> None:
        replace_text(self.folder / CASE, step.text)
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

    def _write_head(self) -> None:
        replace_text(self.folder / HEAD, json.dumps(self.head, indent=1) + "\n")


def _append(path: Path, record: Mapping[str, Any]) -> None:
    with append_regular(path) as log:
        log.write(json.dumps(record).encode() + b"\n")


def _lines(path: Path) -> list[Mapping[str, Any]]:
    """The records of a log; a last line that was cut off is left out."""
    found = []
    for line in read_text(path).splitlines() if path.is_file() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def _print_commands(folder: Path, reduced: Reduced, arguments: argparse.Namespace) -> None:
    case = reduced.variant.case
    words = ["runner", "run", operand(shown_path(str(folder / CASE))), "--backend", reduced.variant.backend.backend]
    words += settings_of(arguments).flags("imports")
    words += ["--allow-python"] if case.has_python else []
    console.output(f"case:      {shell_words(words)}")
    console.output(f"script:    {shell_words(['python', operand(shown_path(str(folder / SCRIPT)))])}")
    console.output(f"steps:     {shown_path(str(folder / STEPS))}")
