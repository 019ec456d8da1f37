"""Who computed the passes of a run, in lines and in the score."""

from __future__ import annotations

import json
from pathlib import Path

from jsonschema import Draft7Validator

from runner.record.events import VariantFinished
from runner.report.delegation import delegated_passes, delegation_lines, delegation_of
from runner.report.failure import render_failure
from runner.report.score import render, score, to_dict
from runner.report.table import compared_lines
from tests.report.events_sample import failure, finished

SCHEMA = json.loads((Path(__file__).parents[2] / "schema" / "score.schema.json").read_text())


def passed(name: str, own: int | None, **fallbacks: int) -> VariantFinished:
    return finished("PASS", name, "acme", delegable=None if own is None else 3, delegated=own, fallbacks=fallbacks)


RUN = [passed("a", 3), passed("b", 1, sin=2), passed("c", 0, sin=1, cos=4), passed("d", None)]


def test_a_variant_says_how_much_and_what_torch_ran() -> None:
    assert [delegation_of(event) for event in RUN] == [
        "3 of 3 operators", "1 of 3 operators; torch ran sin", "0 of 3 operators; torch ran cos, sin", "",
    ]  # fmt: skip
    assert "delegated 1 of 3 operators; torch ran sin" in compared_lines(RUN[1])
    red = failure(delegable=1, delegated=0, fallbacks={"sin": 1})
    assert "\n  delegated 0 of 1 operator; torch ran sin\n" in render_failure(red)


def test_a_backend_that_gave_a_whole_pass_back_has_a_line() -> None:
    assert delegated_passes(RUN) == (2, 3)
    assert delegation_lines(RUN) == [
        "acme: its own code computed something in 2 of 3 passes; in the others torch computed all"
    ]
    assert delegation_lines([*RUN[:2], RUN[3]]) == []
    assert delegation_lines([failure(delegable=1, delegated=0)]) == []


def test_the_score_has_the_share() -> None:
    counted = score([("run", RUN)])
    assert ["by", "the", "backend", "66.6%", "2/3"] in [line.split() for line in render(counted, 80).splitlines()]
    data = to_dict(counted)
    Draft7Validator(SCHEMA).validate(data)
    assert data["columns"][0]["total"]["delegated"] == {"part": 2, "whole": 3}
    assert "delegated" not in to_dict(score([("run", [RUN[3]])]))["columns"][0]["total"]
