"""A judge that runs nothing, and cases from YAML text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runner.builder.source import Source, build
from runner.cases.expand import expand
from runner.cases.model import Case, Suite, Variant
from runner.cases.serialize import resolve_axes, text_of_plain
from runner.cases.suites import Reader
from runner.cases.walk import steps_of
from runner.reduce.chains import ValueInfos
from runner.reduce.state import State
from runner.reduce.value_info import ValueInfo
from runner.session.collect import load
from runner.verdict.signature import FailureSignature

SIGNATURE = FailureSignature("value", "inductor")


def variant(folder: Path, keys: str) -> Variant:
    """The only variant of a case ``a`` with these keys."""
    path = folder / "a.spec.yaml"
    path.write_text("cases:\n  - name: a\n" + textwrap.indent(textwrap.dedent(keys).strip("\n"), "    ") + "\n")
    loaded = load([str(path)])
    assert not loaded.errors, [d.render() for d in loaded.errors]
    (single,) = loaded.variants
    return single


def case(folder: Path, keys: str) -> Case:
    return resolve_axes(variant(folder, keys))


def tensor(*shape: int, **fields: Any) -> ValueInfo:
    return ValueInfo("tensor", shape, **{"dtype": "float32", "low": -1.0, "high": 1.0, **fields})


def state(folder: Path, keys: str, value_infos: Mapping[str, ValueInfo] | None = None, **fields: Any) -> State:
    infos: ValueInfos = value_infos or {}
    return State(case(folder, keys), SIGNATURE, lambda named: infos, **fields)


def operators(text_or_case: Case) -> list[str]:
    return [step.operator for step in steps_of(text_or_case.chain)]


class FakeJudge:
    """Says at once what ``fails`` says of a case. ``slots`` candidates are started before the first is asked about."""

    def __init__(self, fails: Callable[[Case], bool], slots: int = 2) -> None:
        self.fails, self.slots = fails, slots
        self.started: list[Case] = []
        self.waiting: dict[int, Case] = {}
        self.stopped = 0

    def start(self, number: int, variant: Variant, source: Source) -> None:
        assert "never used" not in str(source.diagnostics)
        self.started.append(variant.case)
        self.waiting[number] = variant.case
        assert len(self.waiting) <= self.slots

    def finished(self, timeout: float) -> list[tuple[int, bool]]:
        """The last one started comes back first, as a quick one would."""
        number = max(self.waiting)
        return [(number, self.fails(self.waiting.pop(number)))]

    def stop(self) -> None:
        self.stopped += 1
        self.waiting.clear()


def reader(folder: Path) -> Callable[[str], tuple[Variant, Source] | None]:
    """Reads candidates as the reducer does, without an engine."""

    def read(text: str) -> tuple[Variant, Source] | None:
        path = folder / "candidate.spec.yaml"
        path.write_text(text)
        spec_reader = Reader()
        cases = spec_reader.spec(path, None)
        if len(cases) != 1 or spec_reader.problems:
            return None
        (single,) = expand([Suite("s", str(path), cases=cases)])
        source = build(single)
        return None if any(d.severity == "error" for d in source.diagnostics) else (single, source)

    return read


def texts(attempts: Any) -> list[str]:
    return [text_of_plain(attempt.data) for attempt in attempts]
