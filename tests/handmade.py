"""Variants from YAML text, and runs of them by hand, for the tests of verdicts, sessions and the ledger."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runner.cases.model import Variant
from runner.contract.finding import Finding
from runner.record.events import Event, RunFinished, RunStarted, VariantFinished, VariantPlanned
from runner.session.collect import Loaded, load
from runner.session.plan import Environment, Planned, planned_event

Answer = str | Finding | tuple[Finding, ...]
"""A verdict, or what was found of a failure."""


def environment(torch: str = "2.13.0") -> Environment:
    return Environment(torch, f"/venvs/{torch}/bin/python", torch, f"{torch}+cpu", "3.11.2")


def written(folder: Path, text: str, name: str = "a.spec.yaml") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8", newline="")
    return path


def loaded(*paths: Path, **options: Any) -> Loaded:
    """Files that load without an error."""
    selection = load([str(path) for path in paths], **options)
    assert not selection.errors, [d.render() for d in selection.errors]
    return selection


Dig = Callable[[Path], None]
"""The type of the fixture ``dig``."""


def variants(folder: Path, keys: str, name: str = "a.spec.yaml", **options: Any) -> list[Variant]:
    """The variants of a case ``a``; ``keys`` are its further keys, from line 5 on. Params ``n`` and ``k`` may be used."""
    keys = textwrap.dedent(keys).strip("\n")
    shape = "[2, " + ", ".join(f"'${{{name}}}'" for name in "nk" if re.search(rf"\b{name}: \[", keys)) + "]"
    body = textwrap.indent(keys, "    ")
    text = f"cases:\n  - name: a\n    inputs: {{x: {shape}}}\n    chain: [F.relu]\n" + (f"{body}\n" if keys else "")
    return [*loaded(written(folder, text, name), **options).variants]


def finding(
    oracle: str = "value", stage: str | None = "inductor", *chain: str, message: str = "it differs", **fields: Any
) -> Finding:
    """A finding; ``chain`` are the classes of its exception, outermost first."""
    error = {"type": chain[0], "message": message, "chain": [*chain], "trace": ""} if chain else None
    return Finding(oracle, message, "call 0, output", stage=stage, error=error, **fields)


def played(
    chosen: Sequence[Variant], torches: Sequence[str], answer: Callable[[Variant, str], Answer | None], full: bool = True, **end: Any
) -> list[Event]:  # fmt: skip
    """The events of a run. ``answer`` says what becomes of a variant; None is a variant that never finished."""
    environments = tuple({"python": f"/venvs/{t}/bin/python", "torch": t, "version": "3.11.2"} for t in torches)
    events: list[Event] = [
        RunStarted("r", "0.1.0", ("runner",), "2026-01-02T03:04:05", "box", "runs/r", environments, full)
    ]
    plan = [planned_event(Planned(v, environment(t))) for v in chosen for t in torches]
    events += plan
    by_id = {v.id: v for v in chosen}
    for planned in plan:
        reply = answer(by_id[planned.id], planned.torch)
        if reply is not None:
            events.append(_finished(planned, reply, by_id[planned.id]))
    return [*events, RunFinished(**{"exit_code": 0, "seconds": 1.0, **end})]


def _finished(planned: VariantPlanned, reply: Answer, variant: Variant) -> VariantFinished:
    values = {name: getattr(planned, name) for name in VariantPlanned.__dataclass_fields__}
    findings = reply if isinstance(reply, tuple) else (reply,) if isinstance(reply, Finding) else ()
    verdict = reply if isinstance(reply, str) else "FAIL"
    return VariantFinished(**values, verdict=verdict, seconds=1.0, findings=findings, params=dict(variant.params))
