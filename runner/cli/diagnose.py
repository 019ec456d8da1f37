"""``runner diagnose`` and ``runner run --diagnose``: the ladder, the bisector and the ablations, put together."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from runner import console, exit_codes
from runner.cases.model import Variant
from runner.cli import outputs
from runner.cli.arguments import add_variant, settings_of
from runner.cli.variants import first_variant
from runner.diagnose import ablate
from runner.diagnose import bisect as bisector
from runner.diagnose.ablate import Change
from runner.diagnose.bisect import Bisected
from runner.diagnose.diagnosis import Ablation, Diagnosis
from runner.diagnose.harness import Answer, Lab, Progress
from runner.diagnostics import InputError
from runner.exit_codes import UsageError
from runner.quote import command_words, operand, shell_words
from runner.record.events import RED, Event, Finding, VariantFinished
from runner.report.diagnosis import render
from runner.session.environments import worker_paths
from runner.session.plan import Planned
from runner.session.settings import RunSettings
from runner.verdict.policy import headline, ranked
from runner.verdict.signature import FailureSignature, main_signature
from runner.verdict.stages import stage_of

CROSSREF = "aot_eager_decomp_partition_crossref"
"""Runs every operator beside its fake twin: a kernel and its meta function that disagree show here."""

MOST = 20
"""So many failures of a run are diagnosed; each takes up to a minute."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner diagnose`` takes."""
    parser.description = (
        "The stage, the pass and the operator, by torch's own bisector, and what makes the failure go away."
    )
    add_variant(parser)
    parser.add_argument("--html", metavar="FILE", help="also a page with the error over the tensor and its histogram")
    parser.add_argument("--json", metavar="FILE", help="also as JSON; - is standard output, and then nothing else")
    parser.add_argument("--bisect", action=argparse.BooleanOptionalAction, default=True,
                        help="run CompilerBisector, which takes up to a minute (default: yes)")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """``runner diagnose``: 1 if the variant fails, else 0.

    Raises:
        UsageError, InputError: the variant cannot run, or a file cannot be written.
    """
    variant = first_variant(arguments)
    progress = Progress()
    page = None
    with Lab.of(settings_of(arguments), variant, **_slots(variant)) as lab:
        progress.say(f"running {variant.id} and what lies below its backend")
        found = diagnose(lab, arguments.bisect, lambda: progress.say(_doing(lab)))
        if arguments.html and found.signature is not None:
            from runner.diagnose.heatmap import run_heat_map
            from runner.report.html import page as write_page

            progress.say("drawing the error")
            page = write_page(found, run_heat_map(lab))
    progress.end()
    text = json.dumps(found.to_dict(), indent=2, default=str)
    if arguments.json == "-":
        console.output(text)
    else:
        console.output(render(found, _words(arguments, variant)))
    if arguments.json not in (None, "-"):
        outputs.write("--json", arguments.json, text + "\n")
    if page is not None:
        outputs.write("--html", arguments.html, page)
    elif arguments.html:
        console.message(f"runner: no failure, so no page in {arguments.html}")
    return exit_codes.FAILED if found.verdict in RED else exit_codes.OK


def diagnose(
    lab: Lab, bisect: bool = True, tick: Callable[[], None] | None = None, ablations: bool = True
) -> Diagnosis:
    """Everything that can be found out about the variant's failure; of one that does not fail its verdict alone.

    Args:
        lab: of the variant, entered.
        bisect: ask torch's bisector too, which takes up to some minutes.
        tick: called several times a second while the bisector and the ablations run.
        ablations: try changed settings too.
    """
    begun = time.monotonic()
    event = lab.verdict()
    signature = main_signature(event.findings) if event.verdict in ("FAIL", "ERROR") else None
    plain = Diagnosis(
        id=event.id,
        torch=event.torch,
        verdict=event.verdict,
        reason=event.reason,
        signature=signature,
        findings=tuple(event.findings),
        stages=_strip(event, lab.variant),
        labels=tuple(event.labels),
        notes=tuple(event.notes),
    )
    if signature is None:
        return replace(plain, seconds=round(time.monotonic() - begun, 1))
    wanted = ablate.changes(lab.variant, signature, lab.source.text) if ablations else []
    task = bisector.task(lab, signature, _seen(lab, signature)) if bisect else Bisected(note="not asked for")
    cross = lab.job(backend=CROSSREF) if stage_of(lab.variant.backend.backend) == "inductor" else None
    trials = ablate.jobs(lab, wanted)
    # The bisector first, which takes longest.
    jobs = [*([] if isinstance(task, Bisected) else [task]), *([cross] if cross else []), *filter(None, trials)]
    found = dict(zip((job.key for job in jobs), lab.ask(jobs, tick), strict=True))
    bisected = task if isinstance(task, Bisected) else bisector.read(found[task.key])
    crossed = lab.read(found[cross.key]) if cross else None
    tried = [(change, lab.read(found[job.key])) for change, job in zip(wanted, trials, strict=True) if job is not None]
    return replace(
        plain,
        stages=_with_crossref(plain.stages, crossed),
        culprit=bisected.culprit,
        bisect_note=bisected.note,
        ablations=tuple(_ablations(lab, signature, tried, tick)),
        notes=(*plain.notes, *_crossref_notes(plain.stages, crossed)),
        seconds=round(time.monotonic() - begun, 1),
    )


def diagnose_run(settings: RunSettings, planned: Sequence[Planned], events: Sequence[Event], folder: Path) -> None:
    """Diagnose the failures of a run: print each, and keep it as ``diagnosis-1.json`` and so on in the run's folder."""
    by_key = {(one.variant.id, one.environment.torch): one for one in planned}
    # Of a variant that ran twice the later verdict stands.
    last = {(event.id, event.torch): event for event in events if isinstance(event, VariantFinished)}
    failed = [event for event in last.values() if event.verdict in ("FAIL", "ERROR") and event.findings]
    failed.sort(key=lambda event: event.number)  # as planned, not as they happened to end
    progress = Progress()
    for number, event in enumerate(failed[:MOST], 1):
        one = by_key[event.id, event.torch]
        progress.say(f"diagnosing {number} of {min(len(failed), MOST)}: {event.id}")
        try:
            with Lab(
                one.variant, one.environment, limits=settings.limits(), seed=settings.seed, imports=settings.imports,
                paths=worker_paths(settings), slots=_slots(one.variant).get("slots", settings.slots()),
            ) as lab:  # fmt: skip
                found = diagnose(lab)
        except (UsageError, InputError) as error:
            progress.end()
            console.message(f"runner: {event.id}: not diagnosed: {error}")
            continue
        except KeyboardInterrupt:
            progress.end()
            console.message(f"runner: interrupted: {len(failed) - number + 1} failures not diagnosed")
            raise
        progress.end()
        console.output(
            f"\n{render(found, ' '.join(word for word in command_words(event.repro)[2:] if word != '--no-known'))}"
        )
        _keep(folder / f"diagnosis-{number}.json", found)
    if len(failed) > MOST:
        console.message(f"\nrunner: {len(failed) - MOST} more failures are not diagnosed; runner diagnose does one")


def _keep(path: Path, found: Diagnosis) -> None:
    try:
        path.write_text(json.dumps(found.to_dict(), indent=2, default=str) + "\n", encoding="utf-8")
    except OSError as error:
        console.message(f"runner: {path}: {error.strerror}")


def _slots(variant: Variant) -> dict[str, int]:
    """On accelerators one process at a time: with more the engine opens the device in each, and then none can be copied."""
    return {} if variant.device in ("cpu", "meta") else {"slots": 1}


def _seen(lab: Lab, signature: FailureSignature) -> Mapping[str, Sequence[Finding]]:
    """What the guilty stage's own backend shows, where that is not the variant's."""
    found: dict[str, Sequence[Finding]] = {}
    for stage, backend in lab.rungs():
        if stage == signature.stage and bisector.whole_stage(signature) is None:
            found[stage] = lab.judge([lab.job(backend=backend)])[0].findings
    return found


def _ablations(
    lab: Lab, signature: FailureSignature, tried: Sequence[tuple[Change, Answer]], tick: Callable[[], None] | None
) -> list[Ablation]:
    """What became of the failure; what failed for want of a helping flag is run again without it."""
    again = [change for change, answer in tried if ablate.lacks(answer, change.helpers)]
    jobs = [job for job in ablate.jobs(lab, again, helpers=False) if job is not None]
    later = iter([lab.read(outcome) for outcome in lab.ask(jobs, tick)] if jobs else [])
    answers = [(change, next(later) if change in again else answer) for change, answer in tried]
    found = (ablate.read(signature, change, answer) for change, answer in answers)
    return [one for one in found if one is not None]


def _strip(event: VariantFinished, variant: Variant) -> Mapping[str, str]:
    """The ladder; of a backend with nothing below it, its own stage."""
    own = " ".join(event.oracles) or ("ok" if event.verdict == "PASS" else "")
    return event.stages or ({stage_of(variant.backend.backend): own} if own else {})


def _with_crossref(stages: Mapping[str, str], crossed: Answer | None) -> Mapping[str, str]:
    """The strip with what crossref says, after the stage that it repeats."""
    if crossed is None or not (crossed.findings or crossed.sound):
        return stages
    said = " ".join(dict.fromkeys(one.oracle for one in crossed.findings)) or "ok"
    strip: dict[str, str] = {}
    for stage, words in stages.items():
        strip[stage] = words
        if stage == "decomposition":
            strip["crossref"] = said
    return strip


def _crossref_notes(stages: Mapping[str, str], crossed: Answer | None) -> list[str]:
    """A failure that only crossref shows."""
    if crossed is None or not crossed.findings or stages.get("decomposition") != "ok":
        return []
    return [f"under {CROSSREF}, which runs each operator beside its fake twin: {headline(ranked(crossed.findings)[0])}"]


def _doing(lab: Lab) -> str:
    """What runs now, in one line; the details only where a line can be rewritten."""
    running = lab.engine.running()
    asked = next((phase for _, _, phase in running if phase.startswith("bisecting")), "")
    if not sys.stderr.isatty():
        return "asking torch's bisector and trying changed settings"
    others = sum(not phase.startswith("bisecting") for _, _, phase in running)
    return " · ".join(filter(None, (asked, f"{others} under changed settings" if others else "")))


def _words(arguments: argparse.Namespace, variant: Variant) -> str:
    """What a further command about this variant must be told, as words of a shell."""
    file = arguments.case.partition("::")[0]
    words = [operand(f"{file}::{variant.id.rpartition('::')[2]}"), *["--allow-python"] * arguments.allow_python]
    for flag, values in (
        ("--backend", arguments.backend),
        ("--device", arguments.device),
        ("--python", arguments.python),
        ("--import", arguments.imports),
        ("--limit", arguments.limit),
    ):
        words += [word for value in values for word in (flag, value)]
    return shell_words(words + (["--seed", str(arguments.seed)] if arguments.seed else []))
