"""``runner mutate``: how many faults of the compiler a suite finds, by faults that are planted one at a time."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from runner import console, exit_codes
from runner.cli.arguments import (
    ENVIRONMENT,
    JSON,
    PATHS,
    SELECTION,
    argument,
    command,
    integer,
    setting,
    settings_of,
)
from runner.cli.outputs import show
from runner.cli.variants import run_valid
from runner.contract.lines import TORCH, Lines
from runner.contract.mutant import Mutant
from runner.diagnose.harness import Progress
from runner.diagnostics import shown_path
from runner.engine.interpreters import package_folders
from runner.exit_codes import UsageError
from runner.files import append_regular, read_bytes, read_text, replace_text
from runner.mutants.campaign import Passed, affected_cases, choose_cases, run_trials
from runner.mutants.draw import draw
from runner.mutants.score import read_equivalent, score
from runner.mutants.trial import Trial
from runner.quote import operand
from runner.record.events import VariantFinished
from runner.record.store import FOLDER, read_log
from runner.report.mutants import page, render
from runner.session.collect import Loaded
from runner.session.history import key_of, slot_seconds
from runner.session.plan import RunContext, worker_paths
from runner.session.run import Plan, open_engine, plan
from runner.session.settings import RunSettings, parse_shard
from runner.text import plural

_AFFECTED = "affected"
TRIALS, PAGE, DATA = "trials.jsonl", "mutants.html", "mutants.json"

_EPILOG = """\
  runner run suites/core.suite.yaml --coverage-lines      first: which lines each case reaches
  runner mutate suites/core.suite.yaml --count 100 -o mutants/
  runner mutate suites/core.suite.yaml --package acme_backend --backend acme_backend:compile
  runner mutate new.spec.yaml --survivors mutants/trials.jsonl -o again/

A mutant is one change of the compiler's Python: another comparison, constant,
argument or operand, a statement left out, another fragment of generated code.
It is planted in the worker processes alone; nothing that is installed changes.
The cases that passed and reached its line run, the fastest first. The first
other verdict kills it. The folder has a page of all survivors, and a run with
the same folder goes on from it.

exit codes: 0 there is a score, 2 interrupted, 3 internal error,
4 bad arguments or files, 5 nothing selected
"""


def _cases(text: str) -> int | str:
    """Read ``--cases``. Raises ArgumentTypeError."""
    return text if text == _AFFECTED else integer(1, 10_000)(text)


@command(
    "Change the compiler, one mutant at a time, and count how many changes a suite finds.",
    *PATHS,
    SELECTION,
    ENVIRONMENT,
    argument(
        "--package", action="append", metavar="NAME",
        help="whose files are changed, such as torch._inductor.codegen (default: torch._inductor)",
    ),
    argument("--count", type=integer(1, 100_000), default=100, metavar="N", help="how many mutants (default: 100)"),
    argument("--survivors", metavar="FILE", help="instead of drawn mutants those that survived in this trials.jsonl"),
    argument(
        "--cases", type=_cases, default=16, metavar="N",
        help="cases for each mutant, at most (default: 16), or affected: those that run --affected-by selects",
    ),
    setting("seed"),
    setting("shard", help="every N-th mutant, from the M-th on"),
    setting("budget", help="end after this long, such as 10m, with exit code 2; the same command goes on"),
    setting("engine"),
    setting("address"),
    argument("--run", metavar="RUN", default="latest", help="the run that has the lines (default: latest)"),
    argument("--equivalent", metavar="FILE", help="mutants that change nothing: lines with ten digits and a reason"),
    argument("-o", "--output", metavar="FOLDER", help="for trials and page; what it holds is gone on from"),
    JSON,
    epilog=_EPILOG,
)  # fmt: skip
def run(arguments: argparse.Namespace) -> int:
    """Try mutants, write the folder, and print the score.

    Raises UsageError where no case has lines, or a file cannot be used.
    """
    return run_valid(arguments, lambda loaded: _mutate(arguments, loaded))


def _mutate(arguments: argparse.Namespace, loaded: Loaded) -> int:
    settings = settings_of(arguments)
    planned = plan(loaded, replace(settings, shard=None))
    passes = _passes(planned, arguments)
    files = _Files.of(planned, settings, arguments.package or ["torch._inductor"])
    if arguments.survivors:
        mutants = _survivors(arguments.survivors)
    else:
        mutants = draw(files.reached(passes), files.read, arguments.count, settings.seed)
        if not mutants:
            raise UsageError(
                f"no line of {', '.join(files.names)} that these cases reach can be changed", exit_codes.NOTHING
            )
    if settings.shard:
        part = parse_shard(str(settings.shard))
        mutants = mutants[part.index - 1 :: part.count]
    equivalent = _equivalent(arguments.equivalent)
    folder = Path(arguments.output or Path(FOLDER, "mutants"))
    trials = _Trials(folder / TRIALS)
    _run(arguments, planned, passes, [mutant for mutant in mutants if trials.of(mutant) is None], trials)
    shown = [trial for mutant in mutants if (trial := trials.of(mutant)) is not None]
    result = score(shown, equivalent)
    data = {**result.to_json(), "drawn": len(mutants), "trials": [trial.to_json() for trial in shown]}
    replace_text(folder / DATA, json.dumps(data, indent=1) + "\n")
    replace_text(folder / PAGE, page(result, shown, files.read))
    show(arguments, json.dumps(data, indent=1), render(result, files.read))
    rest = len(mutants) - len(shown)
    left = f"; {rest} are left, and the same command with -o {operand(str(folder))} goes on" if rest else ""
    console.message(f"runner: {shown_path(str(folder / PAGE))} has all{left}")
    return exit_codes.OK if len(shown) == len(mutants) else exit_codes.INTERRUPTED


def _passes(planned: Plan, arguments: argparse.Namespace) -> list[Passed]:
    """Return the cases of the run with lines that passed with nothing to be excused."""
    log = read_log(arguments.run)
    finished = {
        (event.id, event.torch): event for event in log.events if isinstance(event, VariantFinished) and event.reached
    }
    passes = []
    for each in planned.planned:
        event = finished.get(key_of(each))
        if event is not None and event.verdict == "PASS" and not event.findings and not event.labels:
            passes.append(Passed(each, event.seconds, slot_seconds(event), Lines(event.reached)))
    passes = [candidate for candidate in passes if len(candidate.lines)]
    if not passes:
        raise UsageError(
            f"{log.path}: no passing case of these files has lines of the compiler; "
            "runner run --coverage-lines with the same files records them"
        )
    return passes


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of the packages that are mutated."""

    names: Sequence[str]
    prefixes: Sequence[str]
    read: Callable[[str], bytes | None]

    @staticmethod
    def of(planned: Plan, settings: RunSettings, names: Sequence[str]) -> _Files:
        """Look for packages in the first environment. Raises UsageError where one is missing."""
        python = planned.environments[0].python
        tops = sorted({"torch", *(name.partition(".")[0] for name in names)})
        paths = worker_paths(settings, [item.variant for item in planned.planned])
        try:
            folders = package_folders(python, tops, paths)
        except OSError as error:
            raise UsageError(str(error)) from None
        for name in names:
            if name.partition(".")[0] not in folders:
                raise UsageError(f"--package {name}: {python} has no such package")

        @cache
        def read(file: str) -> bytes | None:
            first, *rest = Path(file).parts
            folder = folders["torch"] if first in TORCH else folders.get(first.removesuffix(".py"), "")
            path = Path(folder, file) if first in TORCH else Path(folder, *rest)
            is_source = bool(folder) and path.suffix == ".py" and ".." not in path.parts and path.is_file()
            return read_bytes(path) if is_source else None

        return _Files(names, [name.removeprefix("torch.").replace(".", "/") for name in names], read)

    def reached(self, passes: Sequence[Passed]) -> Lines:
        """Return the lines of the packages that the cases reach."""
        whole = Lines()
        for case in passes:
            whole.update(case.lines)
        folders = tuple(f"{prefix}/" for prefix in self.prefixes)
        modules = {f"{prefix}.py" for prefix in self.prefixes}
        return whole.of_files(lambda file: file in modules or file.startswith(folders))


def _equivalent(path: str | None) -> dict[str, str]:
    try:
        return read_equivalent(read_text(path)) if path else {}
    except (OSError, ValueError) as error:
        raise UsageError(f"--equivalent {path}: {error}") from None


def _survivors(path: str) -> list[Mutant]:
    """Return the mutants that survived in a file of trials. Raises UsageError without one."""
    if not Path(path).is_file():
        raise UsageError(f"--survivors {path}: there is no such file")
    mutants = [trial.mutant for trial in _Trials(Path(path)).found.values() if trial.fate == "survived"]
    if not mutants:
        raise UsageError(f"--survivors {path}: no mutant survived", exit_codes.NOTHING)
    return mutants


class _Trials:
    """The trials of a folder, one a line."""

    def __init__(self, path: Path) -> None:
        """Read what is there. Raises UsageError for a line that is no trial."""
        self.path, self.found = path, dict[str, Trial]()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            for number, line in enumerate(read_text(path).splitlines(), 1) if path.exists() else ():
                try:
                    trial = Trial.from_json(json.loads(line))
                    self.found[trial.mutant.id] = trial
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    raise UsageError(f"{path}:{number}: this is no trial of a mutant ({error})") from None
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None

    def of(self, mutant: Mutant) -> Trial | None:
        """Return the trial of just this mutant; None without one."""
        trial = self.found.get(mutant.id)
        return trial if trial is not None and trial.mutant == mutant else None

    def add(self, trial: Trial) -> None:
        """Keep a trial."""
        self.found[trial.mutant.id] = trial
        with append_regular(self.path) as file:
            file.write(json.dumps(trial.to_json()).encode() + b"\n")


def _run(
    arguments: argparse.Namespace, planned: Plan, passes: Sequence[Passed], mutants: Sequence[Mutant], trials: _Trials
) -> None:
    """Try the mutants until the budget ends or somebody interrupts."""
    settings = replace(settings_of(arguments), no_known=True, confirm=False, isolation="fork", cached=False)
    begun = time.monotonic()
    context = RunContext(
        settings, slots=settings.slots(), paths=worker_paths(settings, [c.planned.variant for c in passes]),
        default_python=planned.environments[0].python, limits=settings.limits(),
        deadline=begun + settings.budget if settings.budget else None,
    )  # fmt: skip
    engine = open_engine(settings, planned, None)
    most, done = arguments.cases, 0
    choose = affected_cases(passes) if most == _AFFECTED else partial(choose_cases, passes=passes, most=most)
    with Progress() as progress:

        def tick(counts: Mapping[str, int]) -> None:
            progress.say(f"{done} of {plural(len(mutants), 'mutant')} tried, {counts['running']} running")

        try:
            for trial in run_trials(mutants, choose, engine, context, tick):
                trials.add(trial)
                done += 1
        except KeyboardInterrupt:
            pass  # what is known is shown, and the same command goes on
        finally:
            engine.close()
