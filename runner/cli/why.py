"""``runner why``: from a failure to the script that shows it, in one command.

The verdict, the stage and the operator, the reduced case and its script, each by the function of the command that does
it alone. The folder holds what each step found before the next begins: ``verdict.txt``, ``diagnosis.json``, the files
of ``runner reduce``, ``repro.py``, and last ``why.txt``, which is also printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from runner import console, exit_codes
from runner.cases.model import LAUNCH, Variant
from runner.cli.arguments import FAILURE, argument, command, seconds, settings_of
from runner.cli.diagnose import known_report, run_words, slots_of
from runner.cli.reduce import (
    FILES,
    HEAD,
    SCRIPT,
    Journal,
    commands_about,
    foreign_files,
    graph_or_case,
    reduce_into,
    summary,
    why_folder,
)
from runner.cli.variants import first_variant
from runner.diagnose.bug_report import run_script, script_shows
from runner.diagnose.diagnosis import Diagnosis, diagnose, find_kept, keep, of_verdict, path_of
from runner.diagnose.harness import Progress, VariantEngine
from runner.diagnose.kept import INTERRUPTED, OutOfTime
from runner.diagnose.repro import script
from runner.diagnostics import InputError, shown_path
from runner.exit_codes import UsageError
from runner.files import link_problem, read_text, remove_tree, replace_text
from runner.quote import shell_word
from runner.record.events import VariantFinished
from runner.record.store import FOLDER, output_folder
from runner.report.failure import command_of, headline, render_failure
from runner.report.why import Explanation, render
from runner.text import duration, one_line
from runner.verdict.policy import ranked
from runner.verdict.signature import main_signature

WHY, VERDICT, DIAGNOSIS, TEXT = "why.json", "verdict.txt", "diagnosis.json", "why.txt"

STEPS = ("the verdict", "what is to blame", "the smallest case", "the script")

DIAGNOSING = 0.4
"""Part of the time after the verdict that the diagnosis may take."""
BISECTING = 0.7
"""Part of that which torch's bisector may take: what it then knows is its answer."""
LEAST = 8.0
"""Seconds without which a step is not begun."""

_EPILOG = """\
exit codes: 0 the case passes, 1 it does not, and what the time allowed is explained,
2 interrupted, 3 internal error, 4 bad arguments or files, 5 nothing selected.
"""


@command(
    "From a failure to its script: the verdict, the stage and the operator, the smallest case that fails alike, and "
    "the script that shows it, which is run once. Each step is kept in a folder as soon as it is done.",
    *FAILURE,
    argument("-o", "--output", metavar="FOLDER", help=f"default: {FOLDER}/why/ and a name made of the id"),
    argument(
        "--budget",
        type=seconds,
        default=300.0,
        metavar="TIME",
        help="of all steps; what does not fit is named with the command that goes on (default: 5m)",
    ),
    epilog=_EPILOG,
)
def run(arguments: argparse.Namespace) -> int:
    """Explain a variant; 0 if it passes.

    Raises:
        UsageError, InputError: the variant cannot run, or the folder cannot be used.
    """
    variant = first_variant(arguments)
    folder = _folder(arguments.output, variant)
    with Progress() as progress, VariantEngine.of(settings_of(arguments), variant, **slots_of(variant)) as engine:
        return _Explainer(arguments, engine, folder, progress).run()


def _folder(output: str | None, variant: Variant) -> Path:
    """Return the folder, made if need be: a new or empty one, or that of an earlier ``runner why`` of the variant.

    Raises:
        UsageError: it holds something else, or it cannot be made.
    """
    if output is not None and not Path(output, WHY).is_file():
        folder = output_folder(output, "")
    else:
        folder = Path(output or why_folder(variant))
        option = f"--output {folder}" if output else str(folder)
        try:
            for path in (folder, *(folder.iterdir() if folder.is_dir() else ())):
                if problem := link_problem(path):
                    raise UsageError(f"{option}: {problem}")
            if problem := _foreign(folder, variant):
                raise UsageError(f"{option}: {problem}; name another folder")
            _begin_anew(folder, output is None)
        except OSError as error:
            raise UsageError(f"{option}: {error.strerror}") from None
    replace_text(folder / WHY, json.dumps({"id": variant.id}) + "\n")
    return folder.resolve()


def _begin_anew(folder: Path, is_default: bool) -> None:
    """Remove what an earlier explanation left; of a folder that a person named what no copy of a case's Python is."""
    if is_default:
        remove_tree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), open(Path(FOLDER, ".gitignore"), "x") as ignore:
            ignore.write("*\n")
    for name in (VERDICT, DIAGNOSIS, TEXT, *FILES):
        (folder / name).unlink(missing_ok=True)


def _foreign(folder: Path, variant: Variant) -> str:
    """Return what in a folder is not of an earlier explanation of the variant; empty if nothing."""
    if Path(variant.case.file).resolve().parent == folder.resolve():
        return "it holds the case that is explained"
    if (folder / WHY).is_file():
        try:
            same = json.loads(read_text(folder / WHY)).get("id") == variant.id
        except (ValueError, AttributeError):
            same = False
        if not same:
            return "it holds the explanation of another variant"
    return foreign_files(folder, variant) if (folder / HEAD).is_file() else ""


def _json(diagnosis: Diagnosis) -> str:
    return json.dumps(diagnosis.to_dict(), indent=2, default=str) + "\n"


class _Explainer:
    """The steps of one explanation, in order."""

    def __init__(self, arguments: argparse.Namespace, engine: VariantEngine, folder: Path, progress: Progress) -> None:
        self.settings, self.budget = settings_of(arguments), float(arguments.budget)
        self.engine, self.folder, self.progress = engine, folder, progress
        self.words = run_words(arguments, engine.variant)
        self.deadline = time.monotonic() + self.budget
        self.journal: Journal | None = None
        self._said = -1

    def run(self) -> int:
        """Take the steps, print what they found, and return the exit code."""
        event = self._verdict()
        if event.verdict not in ("FAIL", "ERROR") or not event.findings:
            return self._nothing(event)
        found = Explanation(event, self.engine.variant, of_verdict(event, self.engine.variant))
        found.known = known_report(self.engine, event.findings)
        self._write(VERDICT, f"{render_failure(event)}\n")
        found.diagnosis = self._diagnosis(found)
        interrupted = found.diagnosis.stopped == INTERRUPTED
        if interrupted:
            found.rest.append((STEPS[2], self._command("reduce")))
        else:
            interrupted = self._reduce(found)
        if not interrupted:
            self._script(found)
        found.commands = self._next(found)
        self.progress.end()
        text = render(found)
        self._write(TEXT, f"{text}\n")
        console.output(f"{text}\n{'kept in':<10}{shown_path(str(self.folder))}")
        return exit_codes.INTERRUPTED if interrupted else exit_codes.FAILED

    def _say(self, step: int, text: str) -> None:
        """Say on a terminal what goes on, elsewhere which step begins."""
        title = f"{step + 1} of {len(STEPS)}, {STEPS[step]}"
        if sys.stderr.isatty():
            left = int(max(self._left(), 0.0))
            self.progress.say(f"{title}: {text} ({left // 60}:{left % 60:02} left)")
        elif step != self._said:
            self.progress.say(f"runner: {title}")
        self._said = step

    def _until(self, step: int, end: float) -> Callable[[str], None]:
        """Return what says what goes on, and ends the step when its time is up."""

        def tick(text: str) -> None:
            self._say(step, text)
            if time.monotonic() > end:
                raise OutOfTime

        return tick

    def _left(self) -> float:
        return self.deadline - time.monotonic()

    def _command(self, name: str) -> str:
        return command_of(name, self.words)

    def _write(self, name: str, text: str) -> None:
        replace_text(self.folder / name, text)

    def _verdict(self) -> VariantFinished:
        """Run the variant. Raises UsageError where the time is not enough for that."""
        tick = self._until(0, self.deadline)
        try:
            return self.engine.verdict(lambda: tick("running it"))
        except OutOfTime:
            text = f"no verdict within {duration(self.budget)}: give it more --budget; {self._command('run')}"
            raise UsageError(text, exit_codes.NO_RESULT) from None

    def _nothing(self, event: VariantFinished) -> int:
        """Say that there is no failure of a backend to explain."""
        self.progress.end()
        text = f"{event.verdict} {one_line(event.id)} on torch {event.torch}"
        text += "" if event.verdict == "PASS" else f"\n  {headline(event)}"
        if event.verdict == "VACUOUS":
            text += f"\nnext      {self._command('explain')}"
        self._write(TEXT, f"{text}\n")
        console.output(text)
        return exit_codes.OK if event.verdict == "PASS" else exit_codes.FAILED

    def _diagnosis(self, found: Explanation) -> Diagnosis:
        """Return the diagnosis; where there is no time for all of it, as much as is known."""
        kept = find_kept(self.engine)
        if kept is not None and kept.diagnosis.signature == main_signature(found.event.findings):
            self._write(DIAGNOSIS, _json(kept.diagnosis))
            return kept.diagnosis
        share = DIAGNOSING * self._left()
        diagnosis, cut = found.diagnosis, "there was no time"
        if share > LEAST:
            path, tick = path_of(self.engine), self._until(1, time.monotonic() + share)
            diagnosis = diagnose(self.engine, tick=tick, event=found.event, budget=BISECTING * share)
            is_late = re.search("the time for (bisecting|cutting) was up", diagnosis.bisect_note)
            cut = diagnosis.stopped or (diagnosis.bisect_note if is_late else "")
            if not cut:
                keep(path, diagnosis)
        if cut:
            found.rest.append((f"{STEPS[1]}: {cut}; this goes on from what is known", self._command("diagnose")))
        self._write(DIAGNOSIS, _json(diagnosis))
        return diagnosis

    def _reduce(self, found: Explanation) -> bool:
        """Reduce the case, in what time is left beside the script; return whether a person ended it."""
        reserve = min(60.0, max(LEAST, 3 * found.event.seconds))
        share = self._left() - reserve
        if share < LEAST:
            found.rest.append(("there was no time to reduce the case", self._command("reduce")))
            return False
        journal = self.journal = Journal(self.folder, self.engine, resume=False)
        tick = self._until(2, self.deadline)
        try:
            with graph_or_case(self.engine, found.diagnosis, self.folder, tick) as (engine, known):
                reduced = reduce_into(journal, engine, self._left() - reserve, tick, known)
        except OutOfTime:
            self.engine.cancel()
            found.rest.append(("reducing took too long", self._go_on()))
            return False
        except (UsageError, InputError) as error:  # such as another file in the place of a copy of the case's Python
            found.rest.append((f"reducing: {error}", self._command("reduce")))
            return False
        found.variant, found.yaml = reduced.variant, reduced.text
        found.summary = summary(reduced).partition("; ")[0]
        if not reduced.complete:
            found.rest.append(("there was no time to reduce it further", self._go_on()))
        if not reduced.confirmed and not reduced.interrupted:
            found.rest.append(("the reduced case does not fail alike in a process of its own", self._command("reduce")))
        return reduced.interrupted

    def _go_on(self) -> str:
        return f"{self._command('reduce')} -o {shell_word(shown_path(str(self.folder)))} --resume"

    def _script(self, found: Explanation) -> None:
        """Write the script, where reducing did not, and run it once."""
        path = shown_path(str(self.folder / SCRIPT))
        try:
            if not found.yaml:
                text = script(found.variant, found.event, self.engine.seed, self.engine.imports)
                (self.journal.write if self.journal else self._write)(SCRIPT, text)
            if self._left() < LEAST / 2:
                raise OutOfTime
            tick = self._until(3, self.deadline)
            done = run_script(read_text(self.folder / SCRIPT), self.engine, lambda: tick("running it"))
        except InputError as error:
            found.script = f"it cannot be written: {one_line(str(error), 200)}"
            return
        except OutOfTime:
            found.script = path
            found.rest.append(
                (
                    "there was no time to run the script",
                    commands_about(self.folder, found.variant, self.settings, self.engine.paths)[1],
                )
            )
            return
        shows = script_shows(ranked(found.event.findings)[0], done.code, done.output)
        found.script = f"{path}, which was run once: exit status {done.code}"
        end = one_line(next(filter(None, reversed(done.output.splitlines())), "nothing"), 200)
        found.script += ", the failure" if shows else f"; it does not show the failure, and its output ends with: {end}"

    def _next(self, found: Explanation) -> list[tuple[str, str]]:
        """Return the commands that come next, and their purposes."""
        case, alone = commands_about(self.folder, found.variant, self.settings, self.engine.paths)
        backend = self.engine.variant.backend.backend
        return [
            *([(self._command("issue"), "a bug report")] if backend != LAUNCH else []),
            *([(case, "the smallest case")] if found.yaml else []),
            *([(alone, "the script")] if (self.folder / SCRIPT).is_file() else []),
        ]
