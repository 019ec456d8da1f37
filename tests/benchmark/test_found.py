"""The figures that are made of other figures, and the JSON with its schema."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from runner.benchmark.measure import STATUSES
from tests.benchmark.samples import COPY, missing, report, row

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "schema" / "bench.schema.json").read_text())


def test_speedup_is_eager_by_compiled() -> None:
    assert row(eager=3e-3, compiled=2e-3).speedup == pytest.approx(1.5)
    assert row(eager=2e-3, compiled=3e-3).speedup == pytest.approx(2 / 3)
    assert missing().speedup is None


def test_the_mean_of_speedups_is_geometric() -> None:
    rows = [row(eager=4e-3, compiled=1e-3), row(eager=1e-3, compiled=4e-3), missing()]
    assert report(*rows).speedup == pytest.approx(1.0)
    assert report(row(eager=4e-3, compiled=1e-3), row(eager=9e-3, compiled=1e-3)).speedup == pytest.approx(6.0)
    assert report(missing()).speedup is None


@pytest.mark.parametrize(("eager", "half", "unclear"), [(1.05e-3, 0.1, True), (1.05e-3, 0.01, False), (0.9e-3, 0.01, False)])  # fmt: skip
def test_overlapping_quartiles_are_unclear(eager: float, half: float, unclear: bool) -> None:
    timed_row = row(eager=eager, compiled=1e-3, half=half)
    assert timed_row.unclear is unclear
    low, high = timed_row.speedup_range or (0, 0)
    assert low < (timed_row.speedup or 0) < high
    assert (low, high) == pytest.approx((eager * (1 - half) / (1e-3 * (1 + half)), eager * (1 + half) / (1e-3 * (1 - half))))  # fmt: skip


def test_bandwidth_is_held_against_the_copy() -> None:
    timed_row = row(compiled=1e-3)
    assert COPY.bandwidth == pytest.approx((512 << 20) / 0.05)
    assert timed_row.bandwidth == pytest.approx((1 << 20) / 1e-3)
    assert timed_row.of_copy == pytest.approx(((1 << 20) / 1e-3) / ((512 << 20) / 0.05))
    assert row(copy=None).of_copy is None and row(traffic=None).bandwidth is None


def test_the_schema_is_draft_07_and_knows_every_status() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["definitions"]["row"]["properties"]["status"]["enum"] == [*STATUSES]


def test_reports_fit_the_schema() -> None:
    full_report = report(row(), missing(), missing("timeout", "no answer after 5 s", cold=row().cold), interrupted=True)
    jsonschema.Draft7Validator(SCHEMA).validate(json.loads(json.dumps(full_report.to_dict(), allow_nan=False)))


def spoilt(path: list[Any], value: Any) -> dict[str, Any]:
    document = copy.deepcopy(report(row(), missing()).to_dict())
    at: Any = document
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["rows", 0, "status"], "PASS"),
        (["rows", 0, "eager", "seconds", "median"], "fast"),
        (["rows", 0, "eager", "seconds", "range"], None),
        (["rows", 1, "verdict"], "PASS"),
        (["schema"], 2),
        (["copies", 0, "threads"], 0),
    ],
)
def test_other_documents_do_not(path: list[Any], value: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(SCHEMA).validate(spoilt(path, value))
