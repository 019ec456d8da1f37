"""A model that a person has in hand, checked from Python: in a notebook, or in a function of pytest.

The model is recorded as cases, and these run as every case does, in processes of their own. So it needs both halves;
no module imports this one but the package itself.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from runner import console
from runner.cases.model import Variant
from runner.cases.suites import SPEC
from runner.cli.project import has_project
from runner.contract.finding import Finding
from runner.contract.graphs import Role
from runner.contract.oracles import rank_of
from runner.diagnose.repro import script
from runner.diagnostics import InputError
from runner.files import read_text
from runner.graphs.folder import open_folder
from runner.record.events import RED, Notice, RunFinished, VariantFinished
from runner.record.store import output_folder
from runner.report.failure import Disagreement, headline, render_failure
from runner.report.table import uncompared
from runner.session.collect import collect
from runner.session.run import plan, run
from runner.session.settings import RunSettings
from runner.text import in_line, one_line, plural
from runner.worker.capture.session import Session, name_of
from runner.worker.capture.stored import TensorFile
from runner.worker.judge.comparison import compare
from runner.worker.torch_private import counters

_ROLES: tuple[Role, ...] = ("parameter", "buffer", "constant", "input")
_MOST_KEPT = 1 << 30
"""Bytes of tensors up to which a case keeps them; those of larger models are drawn with their statistics."""
_INDUCTOR = {"fallback_random": True}
"""As in a run, Inductor draws eager's random numbers in this process."""
_SHOWN = 5
"""What was left out, in the printed line."""


@dataclass(frozen=True)
class Verdict:
    """What a check says: true where everything agrees, as ``runner run`` compares it.

    Attributes:
        verdict: the word, such as ``PASS``; of several graphs the worst.
        findings: the disagreements, each with its oracle, place and numbers.
        notes: what is not compared, and why nothing ran in a process of its own.
        text: what was printed.
        results: the verdict of each case; empty where the model ran in this process.
    """

    verdict: str
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    text: str = field(repr=False)
    results: tuple[VariantFinished, ...] = field(default=(), repr=False)
    _variants: tuple[Variant, ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        """Return whether everything agrees and something was compared."""
        return self.verdict == "PASS"

    def raise_if_red(self) -> Verdict:
        """Return the verdict itself if it is not red.

        Raises:
            Disagreement: it is, with the text.
        """
        if self.verdict in RED:
            raise Disagreement(self.text)
        return self

    def case(self) -> str:
        """Return the file of the worst case, as YAML.

        Raises:
            ValueError: the model ran in this process.
            OSError: the file is gone.
        """
        return read_text(self._speaker().file)

    def repro(self) -> str:
        """Return the script of the worst case, which needs torch alone.

        Raises:
            ValueError: the model ran in this process.
        """
        worst = self._speaker()
        variant = next(variant for variant in self._variants if variant.id == worst.id)
        return script(variant, worst)

    def _speaker(self) -> VariantFinished:
        if not self.results:
            raise ValueError(f"there is no case: {self.notes[0]}")
        return _worst(self.results)


def check(
    model: Callable[..., Any], *args: Any, backend: str | Callable[..., Any] = "inductor", **kwargs: Any
) -> Verdict:
    """Say whether ``torch.compile`` computes what eager does for one call of a model, and print it.

    What Dynamo makes of the call is recorded as cases, with the model's own numbers. These run under the backend as
    ``runner run`` runs them, and lie in a folder that the printed commands name. Where nothing can be recorded the
    model runs in this process, and outputs alone are compared. The model and its inputs stay as they are if they can
    be copied.

    Args:
        model: a module or a function.
        *args: what it is called with.
        backend: a name for ``torch.compile``, ``package:function``, or a function of this process.
        **kwargs: further arguments of the call.

    Raises:
        Exception: what the model itself raises in eager.
        KeyboardInterrupt: somebody ended the run.
        runner.exit_codes.UsageError: the backend is unknown, or the files cannot be written.
        runner.diagnostics.InputError: the backend's code cannot be had.
    """
    call = _Call(model, args, kwargs)
    if not isinstance(backend, str):
        return _printed(_in_process(call, backend, "the backend is a function of this process"))
    files, notes, obstacle = _record(call)
    if not files:
        return _printed(_in_process(call, backend, obstacle))
    return _printed(_isolated(files, backend, notes))


@dataclass(frozen=True)
class _Call:
    """A model with its arguments. Each run gets copies."""

    model: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def run(self, compile: Callable[[Any], Any] = lambda model: model) -> Any:
        """Return what the compiled model gives, from one seed. The generators are put back."""
        model, args, kwargs = map(_copied, (self.model, list(self.args), dict(self.kwargs)))
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(0)
            return compile(model)(*args, **kwargs)

    def size(self) -> int:
        """Return the bytes of the tensors that the model holds, as far as it is a module."""
        held = self.model.state_dict().values() if isinstance(self.model, torch.nn.Module) else ()
        return sum(value.numel() * value.element_size() for value in held if isinstance(value, torch.Tensor))


def _copied(value: Any) -> Any:
    """Return a copy; the value itself where it has none, such as an intermediate tensor of autograd."""
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001  classes of anybody refuse copies in as many ways as there are
        return value


def _record(call: _Call) -> tuple[list[Path], list[str], str]:
    """Return spec files of the call, what they leave out, and without any file the reason."""
    folder = open_folder(output_folder(None, "check"))
    is_kept = call.size() <= _MOST_KEPT
    stored = TensorFile(str(folder.path / "values.safetensors"), _ROLES if is_kept else ())
    session = Session(stored)
    try:
        with session:
            call.run(torch.compile)
    except Exception as error:  # noqa: BLE001  the model's own, or Dynamo's: the run in this process tells them apart
        return [], [], f"recording it raised {type(error).__name__}: {one_line(str(error), 200)}"
    stored.write()
    captures = session.captures()
    entries = [folder.add(capture, "graph") for capture in captures]
    faults = [f"{fault['what']}: {fault['reason']}" for entry in entries for fault in entry["faults"]]
    refused = [text for entry in entries for text in entry["refused"]]
    if not folder.cases:
        return [], [], one_line("; ".join([*refused, *faults][:_SHOWN]), 300) or "torch compiled no graph of it"
    notes = [f"left out: {text}" for text in dict.fromkeys([*faults, *refused])]
    notes += [] if is_kept else ["weights and inputs are drawn: the model has more than 1 GiB"]
    return [path for path in folder.save() if path.name.endswith(SPEC)], notes, ""


def _isolated(files: Sequence[Path], backend: str, notes: Sequence[str]) -> Verdict:
    """Run the cases of the files under a backend."""
    settings = RunSettings(backend=(backend,), no_project=has_project())
    loaded = collect(files, settings)
    if loaded.errors:
        raise InputError(loaded.errors)
    with contextlib.closing(run(plan(loaded, settings), settings)) as events:
        results = tuple(_finished(events))
    worst = _worst(results)
    lines = [_line(event) for event in results]
    lines += [f"        {note}" for note in _few(notes)]
    lines += [f"\n{render_failure(event)}" for event in results if event.verdict in RED]
    findings = tuple(finding for event in results for finding in event.findings)
    every = (*notes, *dict.fromkeys(note for event in results for note in event.notes))
    return Verdict(worst.verdict, findings, every, "\n".join(lines), results, loaded.variants)


def _finished(events: Iterator[Any]) -> Iterator[VariantFinished]:
    """Yield the verdicts among the events of a run, and print its warnings. Raises KeyboardInterrupt."""
    for event in events:
        if isinstance(event, VariantFinished):
            yield event
        elif isinstance(event, Notice) and event.severity != "info":
            console.message(f"runner: {event.message}")
        elif isinstance(event, RunFinished) and event.interrupted:
            raise KeyboardInterrupt


def _few(notes: Sequence[str]) -> list[str]:
    more = [f"and {plural(len(notes) - _SHOWN, 'more note')}"] if len(notes) > _SHOWN else []
    return [one_line(note, 200) for note in notes[:_SHOWN]] + more


def _worst(results: Sequence[VariantFinished]) -> VariantFinished:
    """Return the result that speaks for all: the first red one by what its findings are worth, else a pass."""
    return min(results, key=lambda e: (e.verdict not in RED, rank_of(e.severity or ""), e.verdict != "PASS"))


def _line(event: VariantFinished) -> str:
    """Return ``PASS [  1.23s] id``, and what a pass leaves open."""
    parts = one_line(", ".join(uncompared(event)), 100)
    remark = headline(event, 100) if event.verdict != "PASS" else f"not compared: {parts}" if parts else ""
    return f"{event.verdict:>7} [{event.seconds:6.2f}s] {in_line(event.id)}" + (f" - {remark}" if remark else "")


def _in_process(call: _Call, backend: str | Callable[..., Any], reason: str) -> Verdict:
    """Compare two runs in this process; ``reason`` says why there is no process for them."""
    note = f"compared in this process, outputs alone: {reason}"
    name = f"{name_of(call.model)}@{backend if isinstance(backend, str) else name_of(backend)}"
    eager = call.run()
    counters.start_counting()
    options = _INDUCTOR if backend == "inductor" else None
    try:
        compiled = call.run(lambda model: torch.compile(model, backend=backend, options=options))
    except Exception as error:  # noqa: BLE001  whatever the compiler or what it has compiled raises is the answer
        raised = {"type": type(error).__name__, "message": str(error)}
        finding = Finding("runtime-error", f"{raised['type']}: {one_line(str(error), 200)}", error=raised)
        return Verdict("ERROR", (finding,), (note,), _lines_of("ERROR", name, note, finding.message))
    comparison = compare(eager, compiled)
    is_compiled = counters.graphs() != 0
    word = "FAIL" if comparison.findings else "PASS" if comparison and is_compiled else "VACUOUS"
    text = "" if word == "PASS" else comparison.message if is_compiled or word == "FAIL" else "no graph was compiled"
    notes = (note, *comparison.notes)
    return Verdict(word, comparison.findings, notes, _lines_of(word, name, note, text))


def _lines_of(word: str, name: str, note: str, message: str) -> str:
    lines = [f"{word:>7} {in_line(name)} - {in_line(note)}", *([message] if message else [])]
    return "\n".join(lines)


def _printed(verdict: Verdict) -> Verdict:
    console.output(verdict.text)
    return verdict
