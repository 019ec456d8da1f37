"""The shares of a score: what counts as a pass, what counts at all, and what is only shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.contract.oracles import METADATA, OTHER_NUMBERS, SEVERITIES
from runner.exit_codes import UsageError
from runner.record.events import GREEN, RED, Event, RunFinished, VariantFinished
from runner.report.score import CREDITS, FORWARD, JUDGED, OUTCOMES, UNIT, Column, Failures, Score, Share, score
from tests.report.events_sample import failure, finished, planned, started, value_finding

VALUE = {"findings": (value_finding(),), "oracles": ("value",)}
STRIDE = {"findings": (value_finding(oracle="stride"),), "oracles": ("stride",)}


def of(*results: VariantFinished, extra: Sequence[Event] = (), **start: Any) -> Score:
    """The score of a run with these results, each under a name of its own."""
    named = [event if event.label != NAMELESS else renamed(event, n) for n, event in enumerate(results)]
    return score([("log", [started(**start), *extra, *named, RunFinished(0, 1.0)])])


NAMELESS = finished().label


def renamed(event: VariantFinished, number: int) -> VariantFinished:
    label = event.label.replace("pad_view", f"case_{number}")
    return replace(event, label=label, id=f"{label}@{event.backend}", case=label.partition("[")[0])


def only(result: Score) -> Column:
    (column,) = result.columns
    return column


def test_a_pass_is_all_that_conforms_and_all_that_was_judged_counts() -> None:
    results = [finished()] * 3 + [finished("XPASS"), finished("XFAIL", **VALUE), failure(), finished("ERROR", **VALUE)]
    results += [finished(word) for word in ("VACUOUS", "FLAKY", "INVALID")]
    total = only(of(*results)).total
    assert (total.judged, total.planned) == (10, 10)
    assert total.conformance == Share(4, 10) and total.overall == Share(4, 10) and total.claim == Share(10, 10)


@pytest.mark.parametrize("word", ["VACUOUS", "FLAKY", "INVALID", "FAIL", "ERROR", "XFAIL"])
def test_whatever_is_no_pass_lowers_every_share_of_passes(word: Any) -> None:
    total = only(of(finished(), finished(word))).total
    assert total.conformance.percent == total.weighed.percent == total.overall.percent == 50.0


@pytest.mark.parametrize("word", ["SKIP", "NOT-RUN"])
def test_what_did_not_run_is_in_no_share_of_passes_and_is_counted(word: Any) -> None:
    total = only(of(finished(), finished(word, reason="no GPU"))).total
    assert total.conformance == total.overall == Share(1, 1) and total.claim == Share(2, 2)
    assert total.count(word) == 1 and total.planned == 2


def test_what_is_not_claimed_lowers_claim_and_overall_alone() -> None:
    column = only(of(finished(), failure(), finished("SKIP", unclaimed="gradients"), finished("SKIP")))
    total = column.total
    assert column.unclaimed == {"gradients": 1}
    assert total.conformance == Share(1, 2)
    assert total.claim == Share(3, 4)
    assert total.overall == Share(1, 3)
    assert total.outcomes == {"PASS": 1, "FAIL": 1, "unclaimed": 1, "SKIP": 1}


def test_only_a_skip_can_be_unclaimed() -> None:
    column = only(of(finished(), finished("FAIL", unclaimed="gradients", **VALUE)))
    total = column.total
    assert column.unclaimed == {} and total.conformance == Share(1, 2) and total.claim == Share(2, 2)


def test_a_failure_keeps_the_credit_of_its_worst_severity() -> None:
    stride = only(of(finished(), finished("FAIL", **STRIDE))).total
    assert CREDITS["metadata"] == 5 and UNIT == 7
    assert stride.conformance == Share(1, 2) and stride.weighed == Share(7 + 5, 14)
    assert only(of(finished(), finished("XFAIL", **STRIDE))).total.weighed == stride.weighed
    findings = (value_finding(oracle="stride"), value_finding())
    assert only(of(finished(), finished("FAIL", findings=findings))).total.weighed == Share(7, 14)


def test_credits_descend_from_just_under_a_pass_to_nothing() -> None:
    others = [severity for severity in SEVERITIES if severity != OTHER_NUMBERS]
    assert [CREDITS[severity] for severity in others] == list(range(UNIT))
    assert CREDITS[OTHER_NUMBERS] == CREDITS[METADATA]


def test_a_severity_that_nobody_knows_and_a_doubt_earn_nothing() -> None:
    odd = value_finding(severity="harmless")
    for event in (finished("FAIL", findings=(odd,)), finished("FAIL"), finished("VACUOUS", **STRIDE)):
        assert only(of(event)).total.weighed == Share(0, 7)


def test_shares_are_rounded_down_so_that_only_all_is_100() -> None:
    assert (Share(9999, 10000).percent, str(Share(9999, 10000))) == (99.9, "99.9%")
    assert str(Share(10, 10)) == "100.0%" and str(Share(2, 3)) == "66.6%"
    assert Share(0, 0).percent is None and str(Share(0, 0)) == "-"


def test_a_variant_without_a_result_is_missing_and_not_judged() -> None:
    result = of(finished(name="a"), extra=[planned("a"), planned("never")], planned=3)
    assert only(result).total.count("NOT-RUN") == 1 and only(result).total.conformance == Share(1, 1)
    assert (result.runs[0].missing, result.runs[0].unannounced, result.runs[0].whole) == (1, 1, True)
    cut = score([("log", [started(), finished()])])
    assert not cut.runs[0].whole


def test_the_later_of_two_results_counts() -> None:
    event = finished()
    events = [started(), event, replace(event, verdict="FAIL"), RunFinished(0, 1.0)]
    assert only(score([("log", events)])).total.conformance == Share(0, 1)


def test_parts_are_by_family_dtype_device_oracle_and_severity() -> None:
    column = only(
        of(
            finished(name="a", file="specs/ops/conv.spec.yaml"),
            replace(finished("FAIL", "b", file="specs/ops/conv.spec.yaml", **VALUE), dtype="float16"),
            finished("XFAIL", "c", file="specs/models/vit.spec.yaml", findings=(value_finding(oracle="stride"), value_finding()), oracles=("stride", "value")),
            replace(finished("VACUOUS", "d", file="specs/models/vit.spec.yaml"), device="cuda"),
        )
    )  # fmt: skip
    assert {name: tally.conformance for name, tally in column.families.items()} == {
        "ops/conv": Share(1, 2),
        "models/vit": Share(0, 2),
    }
    assert {name: tally.conformance for name, tally in column.dtypes.items()} == {
        "float32": Share(1, 3),
        "float16": Share(0, 1),
    }
    assert {name: tally.judged for name, tally in column.devices.items()} == {"cpu": 3, "cuda": 1}
    assert column.oracles == {"value": Failures(2, 1), "stride": Failures(1, 1)}
    assert column.severities == {"wrong-result": Failures(2, 1)}


@pytest.mark.parametrize(
    ("files", "families"),
    [
        (["a.spec.yaml"], ["a"]),
        (["x/y/a.spec.yaml"], ["a"]),
        (["x/a.spec.yaml", "x/b.suite.yaml"], ["a", "b"]),
        (["../x/a.spec.yaml", "y/a.spec.yaml"], ["../x/a", "y/a"]),
        (["/x/a.spec.yaml", "y/a.spec.yaml"], ["/x/a", "y/a"]),
        (["/a.spec.yaml", "/b/a.spec.yaml"], ["a", "b/a"]),
    ],
)
def test_a_family_is_a_file_below_the_folder_that_all_share(files: list[str], families: list[str]) -> None:
    assert [*only(of(*(finished(file=file, name="n") for file in files))).families] == families


def test_the_backends_of_two_runs_stand_in_pairs() -> None:
    runs = [
        (name, [started(run=name), *(finished(backend=b) for b in backends), RunFinished(0, 1.0)])
        for name, backends in (("one", ["eager", "inductor"]), ("two", ["inductor", "openvino"]))
    ]
    assert [(c.backend, c.run) for c in score(runs).columns] == [
        ("eager", 1),
        ("inductor", 1),
        ("inductor", 2),
        ("openvino", 2),
    ]
    assert [(c.backend, c.run) for c in score(runs, ["inductor"]).columns] == [("inductor", 1), ("inductor", 2)]
    with pytest.raises(UsageError, match="no such backend here: eager, inductor, openvino"):
        score(runs, ["tvm"])


def test_a_chosen_backend_leaves_the_others_announced() -> None:
    events = [started(planned=2), planned("pad_view"), planned("pad_view", "eager"), finished(), RunFinished(0, 1.0)]
    result = score([("log", events)], ["inductor"])
    assert (result.runs[0].missing, result.runs[0].unannounced) == (0, 0)


def test_how_many_variants_all_columns_have() -> None:
    result = of(finished(name="a"), finished(name="b"), finished(name="a", backend="eager"))
    assert result.shared == Share(1, 2)
    assert score([("log", [started()])]).shared == Share(0, 0)


def test_every_verdict_is_an_outcome() -> None:
    assert {*GREEN, *RED, "NOT-RUN"} <= {*OUTCOMES}
    assert {*JUDGED} == {*GREEN, *RED, FORWARD} - {"SKIP"}


def test_the_page_has_every_credit() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "score.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \| (\d)/7 \|$", text, re.MULTILINE) == [
        (name, str(credit)) for name, credit in CREDITS.items()
    ]


def test_each_run_has_its_own_missing_variants() -> None:
    runs = [("one", [started(), planned("a"), finished(name="b"), RunFinished(0, 1.0)]), ("two", [started(), finished(name="b"), RunFinished(0, 1.0)])]  # fmt: skip
    assert [run.missing for run in score(runs).runs] == [1, 0]
