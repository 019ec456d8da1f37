"""The material of a bug report: a diagnosis, fresh runs, the environment, the inputs, and the script run alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from runner.diagnose.diagnosis import Diagnosis
from runner.diagnose.harness import VariantEngine, result_of, run_heat_map
from runner.diagnose.procedure import diagnose
from runner.diagnose.repro import script
from runner.diagnose.rules import ReportInput, ScriptRun, VersionVerdict
from runner.diagnose.similar import Match
from runner.engine import interpreters, scratch
from runner.files import write_anew
from runner.session.plan import TIMEOUT

FRESH = 2
"""Runs in fresh processes that must fail alike."""

START = 120.0
"""Seconds that a script may take besides the case's own limit: importing torch, building Inductor's first kernel."""

Say = Callable[[str], None]
"""Takes several times a second what is being done. What it raises ends the work."""


@dataclass(frozen=True, slots=True)
class Material:
    """The content of a report, besides its checks."""

    report: ReportInput
    yaml: str
    environment: str  # as torch.utils.collect_env prints it
    matches: tuple[Match, ...] = ()
    steps: str = ""  # what reducing came to


def find_blame(engine: VariantEngine, say: Say) -> Diagnosis:
    """Return the whole diagnosis of the engine's variant."""
    say("looking for what is to blame")
    return diagnose(engine, tick=lambda part: say(f"looking for what is to blame: {part}"))


def gather(engine: VariantEngine, diagnosis: Diagnosis, yaml: str, say: Say) -> Material:
    """Return everything that a report of the engine's variant needs. ``diagnosis`` is of this very variant, ``yaml``
    its case.

    Raises:
        UsageError: torch does not describe this machine, or the case is wrong.
        InputError: the case cannot be written as a script.
    """

    def begin(text: str) -> Callable[[], None]:
        say(text)
        return lambda: say(text)

    jobs = [*(engine.job(isolation="fresh") for _ in range(FRESH)), engine.job("environment")]
    *fresh, described = engine.ask(jobs, begin("running it in fresh processes, and asking torch about this machine"))
    answers = [engine.read(outcome) for outcome in fresh]
    environment = str(result_of(described)["text"])
    inputs = run_heat_map(engine, begin("measuring its inputs")).get("inputs", ())
    ran = run_script(script(engine.variant, diagnosis, engine.seed), engine, begin("running the script alone"))
    report = ReportInput(
        variant=engine.variant,
        diagnosis=diagnosis,
        source=engine.source.text,
        fresh_findings=tuple(answer.findings if answer.sound else None for answer in answers),
        script=ran,
        inputs=tuple(inputs),
        versions=(VersionVerdict(engine.environment.torch, diagnosis.verdict, diagnosis.reason),),
    )
    return Material(report, yaml, environment)


def run_script(text: str, engine: VariantEngine, tick: Callable[[], None] | None = None) -> ScriptRun:
    """Run a script in a folder of its own, under the engine's Python, as a maintainer would.

    ``tick`` may end it by raising.
    """
    limit = (engine.variant.case.timeout or TIMEOUT) + START
    variables = scratch.compile_environment(os.environ)
    environment = {name: value for name, value in variables.items() if not name.startswith(("PYTHONPATH", "RUNNER_"))}
    if engine.paths:
        environment["PYTHONPATH"] = os.pathsep.join(engine.paths)
    with scratch.folder() as folder:
        write_anew(folder / "repro.py", text)
        try:
            done = interpreters.run_process_tree(
                [engine.environment.python, "repro.py"], cwd=folder, env=environment, timeout=limit, tick=tick,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            return ScriptRun(1, f"{_text(error.stdout)}\nTimeout ({limit:g} s)", text)
    return ScriptRun(done.returncode, _text(done.stdout), text)


def _text(output: bytes | None) -> str:
    return (output or b"").decode("utf-8", "replace")
