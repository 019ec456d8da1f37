"""The commands at the end of a run: for which failure, in how many lines, and what each of them is told."""

from __future__ import annotations

import pytest

from runner.record.events import VariantFinished
from runner.report import failure as failures

from .events_sample import failure, finished, value_finding


def next_lines(results: list[VariantFinished], width: int) -> list[str]:
    return failures.next_lines(failures.groups_of(results), width)


def failed(name: str, oracle: str = "value", words: str = "", **changes: object) -> VariantFinished:
    finding = value_finding(oracle=oracle)
    return failure(name=name, findings=(finding,), repro=f"runner run '{name}[float32]'{words}", **changes)


def test_the_commands_are_about_the_largest_group_of_the_worst_severity() -> None:
    crash = value_finding(oracle="signal", error={"type": "SIGSEGV"})
    crashes = [finished("ERROR", name, findings=(crash,), repro=f"runner run {name}") for name in "abc"]
    results = [*crashes, failed("d", "stride"), failed("h", "dtype"), failed("e"), failed("f")]
    assert next_lines(results, 80)[0] == "next: runner why 'e[float32]'  # 2 failures alike: value at inductor"
    assert next_lines(results[:4], 80)[0] == "next: runner why a  # 3 failures alike: signal at inductor: SIGSEGV"


def test_a_member_without_a_command_is_passed_over() -> None:
    results = [failed("a"), failed("b")]
    results[0] = failure(name="a", repro="rm -rf /")
    assert next_lines(results, 80)[0] == "next: runner why 'b[float32]'  # 2 failures alike: value at inductor"


def test_a_line_a_command() -> None:
    lines = next_lines(
        [failed("a", words=" --allow-python --no-known --seed 3 --import m --backend p:f"), failed("b")], 200
    )
    case = "'a[float32]' --allow-python"
    assert lines == [
        f"next: runner why {case} --seed 3 --import m --backend p:f  # 2 failures alike: value at inductor",
        f"      runner issue {case} --seed 3 --import m --backend p:f",
    ]


def test_a_ledger_is_for_runs_alone() -> None:
    commands = failures.commands_of(failed("a", words=" --ledger acme.ledger.yaml --seed 3"))
    assert commands["why"] == "runner why 'a[float32]' --seed 3" and commands["repro"] == "runner repro 'a[float32]'"


def test_each_command_runs_under_the_order_of_sets_of_the_run() -> None:
    event = failure(name="a", repro="PYTHONHASHSEED=7 runner run a --seed 3")
    assert [line[6:] for line in next_lines([event], 20)] == [
        "PYTHONHASHSEED=7 runner why a --seed 3",
        "PYTHONHASHSEED=7 runner issue a --seed 3",
    ]
    vacuous = finished("VACUOUS", "a", repro=event.repro)
    assert next_lines([vacuous], 80) == ["next: PYTHONHASHSEED=7 runner explain a --seed 3"]


def test_what_the_group_is_gives_way_to_the_command() -> None:
    (wide, *_), (narrow, *_) = next_lines([failed("a")], 80), next_lines([failed("a")], 40)
    assert wide == f"{narrow}  # 1 failure: value at inductor" and len(wide) <= 80
    assert narrow == "next: runner why 'a[float32]'"


def test_where_nothing_was_compared_explain_says_why() -> None:
    vacuous = finished("VACUOUS", "a", repro="runner run a")
    assert next_lines([finished("INVALID", "b"), vacuous], 80) == ["next: runner explain a"]
    assert next_lines([vacuous, failed("c")], 80)[0].startswith("next: runner why")


def test_a_launch_has_nothing_to_report_upstream() -> None:
    assert next_lines([failed("a", backend="triton")], 40) == ["next: runner why 'a[float32]'"]


def test_a_page_has_each_command_by_itself() -> None:
    commands = failures.commands_of(failed("a", words=" --allow-python --no-known --seed 3 --import m --backend p:f"))
    case = "'a[float32]' --allow-python"
    assert [*commands] == ["why", "diagnose", "reduce", "repro", "issue"]
    assert commands["reduce"] == f"runner reduce {case} --seed 3 --import m --backend p:f"
    assert commands["repro"] == f"runner repro {case} --import m --backend p:f"


@pytest.mark.parametrize(
    "event",
    [
        finished("PASS"),
        finished("XPASS", repro="runner run a"),
        finished("INVALID", findings=(value_finding(),), repro="runner run a"),
        failure(findings=()),
        failure(repro="rm -rf /"),
    ],
)
def test_nothing_is_printed_where_nothing_can_be_done(event: VariantFinished) -> None:
    assert next_lines([event], 80) == []
