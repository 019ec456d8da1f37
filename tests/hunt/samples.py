"""Rounds, red results and states of hunts, for the tests of this folder."""

from __future__ import annotations

from typing import Any

from runner.hunt.groups import Head, Red, Reduction, Report, Round, State

HEAD = Head(7, "wide", 10, "2.13.0+cpu")
A, B, C, D = "aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"


def red(signature_id: str = A, number: int = 0, **changes: Any) -> Red:
    values = {
        "verdict": "FAIL",
        "signature": "value of torch.sin",
        "severity": "wrong-result",
        "stage": "inductor",
        "oracle": "value",
    }
    name = f"rounds/00000.spec.yaml::case_{number}[float32,cpu]@inductor"
    return Red(name, number, signature_id=signature_id, **{**values, **changes})


def round_of(number: int, *reds: Red, drawing: float = 4.0, running: float = 36.0) -> Round:
    return Round(number, 8, 8, drawing, running, {"PASS": 8 - len(reds), "FAIL": len(reds)}, reds)


def state_of(*rounds: Round, reductions: tuple[Reduction, ...] = (), reports: tuple[Report, ...] = ()) -> State:
    return State(
        HEAD,
        [*rounds],
        {record.reduction: record for record in reductions},
        {record.report: record for record in reports},
    )
