"""``tools/numerics_page.py``: the table of errors, from event logs."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.report.events_sample import finished
from tests.script_modules import script_module

page = script_module("numerics_page")


def errors(*ulps: int, largest: float = 0.5, other_class: int = 0, other_zero: int = 0) -> dict[str, Any]:
    return {"ulps": [*ulps], "largest": largest, "other_class": other_class, "other_zero": other_zero, "sqnr": 60.0}


def event(name: str, backend: str, different: int, compiled: dict[str, Any], **fields: Any) -> Any:
    entry = {"path": "output", "different": different, "eager": errors(9, 1, 0, 0, 0, 0, 0), "compiled": compiled}
    return dataclasses.replace(
        finished(), id=f"{name}@{backend}", case=f"a.spec.yaml::{name}", dtype="float16", backend=backend, accuracy=(entry,), **fields
    )  # fmt: skip


def test_a_backend_with_other_bits_has_a_row() -> None:
    worse = errors(5, 1, 0, 0, 1, 1, 1, largest=300.25, other_class=1, other_zero=2)
    events = [event("sin", "inductor", 4, worse), event("sin", "aot_eager", 0, errors(9, 1, 0, 0, 0, 0, 0))]
    lines = page.table(page.measured(events)).splitlines()
    assert lines[2:4] == [
        "| `sin` | float16 | patterns | eager | 9 | 1 |  |  |  | 0.5 |  |  |  |",
        "|  |  |  | inductor | 5 | 1 |  |  | 3 | 300 | 1 | 2 | 4 |",
    ]
    assert page.summary(events, page.measured(events)).splitlines()[3].startswith("| inductor | 1 | 1 PASS | 1 | 0 |")


def test_what_is_rounded_right_everywhere_is_named_alone() -> None:
    events = [event("neg", "inductor", 0, errors(10, 0, 0, 0, 0, 0, 0))]
    events[0].accuracy[0]["eager"] = errors(10, 0, 0, 0, 0, 0, 0)
    assert page.table(page.measured(events)).splitlines()[-1] == "| float16 | patterns | `neg` |"
