from __future__ import annotations

from dataclasses import replace

import pytest

from runner.record.events import Event
from runner.report.junit import facts_of
from runner.report.table import build_grid, compared_lines, render_table, star_lines, uncompared, wrap_id
from tests.report.events_sample import every_verdict, failure, finished, planned, started


def test_rows_and_columns_are_in_plan_order_not_in_the_order_of_results() -> None:
    plan = [planned(name, backend) for name in ("b", "a") for backend in ("inductor", "eager")]
    results = [finished("PASS", name, backend) for name in ("a", "b") for backend in ("eager", "inductor")]
    grid = build_grid([started(), *plan, *results])
    assert grid.columns == ["inductor", "eager"]
    assert [row.partition("::")[2] for row in grid.sections[0].rows] == ["b[float32,cpu]", "a[float32,cpu]"]


def test_a_failing_cell_names_the_culprit() -> None:
    text = render_table([started(), planned(), failure(oracles=("value", "stride"), stage="aot")])
    assert "FAIL aot value+" in text
    assert "FAIL value\n" in render_table([planned(), failure()]) + "\n"  # the column says inductor already


def test_a_pass_with_an_excuse_has_a_star_and_one_line_names_the_labels() -> None:
    labels = ("nearer-to-float64", "slow")
    events = [
        planned("a"), planned("b"), planned("c", suites=("one", "two")),
        finished("PASS", "a", labels=labels), finished("PASS", "b", labels=("slow", "eager-varies", "order-dependent")),
        finished("PASS", "c", labels=("explained-by-fallback_random", *labels), suites=("one", "two"), cached="earlier"),
    ]  # fmt: skip
    text = render_table(events)
    cells = {
        line.partition("::")[2].partition("[")[0]: line.split("  ")[-1].strip()
        for line in text.splitlines()
        if "::" in line
    }
    assert cells == {"a": "PASS*", "b": "PASS", "c": "PASS* cached"}
    line = text.splitlines()[-1]
    assert (
        line
        == "PASS*: values lie outside the tolerance and still pass: explained-by-fallback_random (1), nearer-to-float64 (2)"
    )
    assert text.count("PASS*:") == 1
    painted = render_table(events, paint=lambda cell, verdict: f"<{cell}|{verdict}>")
    assert "<PASS*|PASS>" in painted
    assert "PASS*" not in render_table([planned(), failure(labels=labels), finished("XFAIL", "x", labels=labels)])


def test_a_pass_with_an_excuse_says_how_far_outside_it_is() -> None:
    notes = ("output: 3 of 9 elements lie outside the tolerance, the worst is off by 2.1 times what it allows: within-float64-noise",
             "value at output: 1 of 4 elements differ; passes under torch._inductor.config.emulate_precision_casts")  # fmt: skip
    labels = ("within-float64-noise", "explained-by-emulate_precision_casts")
    events = [
        finished("PASS", "a", labels=labels[:1], notes=(*notes[:1], "something else")),
        finished("PASS", "b", labels=labels[1:], notes=notes[1:]), finished("PASS", "c", notes=notes),
    ]  # fmt: skip
    _, *lines = star_lines(events)
    assert lines == [f"  {event.id}: {note}" for event, note in zip(events[:2], notes, strict=True)]
    assert "\n".join(lines) in render_table([planned("a"), planned("b"), planned("c"), *events])
    many = star_lines(replace(events[0], id=f"x{number}") for number in range(25))
    assert (len(many), many[-1]) == (22, "  and 5 more")
    (fact,) = [value for name, value in facts_of(events[0]) if name == "excess"]
    assert fact == notes[0] and "excess" not in dict(facts_of(events[2]))


def test_a_pass_of_which_a_part_is_not_compared_has_a_star_and_the_line_names_the_part() -> None:
    notes = ("output[1]: a lib.Cache cannot be compared; not compared", "something else")
    events = [
        finished("PASS", "a", labels=("not-compared",), notes=notes), finished("PASS", "b", notes=notes),
        finished("PASS", "c", labels=("not-compared", "nearer-to-float64"), notes=notes),
    ]  # fmt: skip
    table = render_table([planned("a"), planned("b"), planned("c"), *events])
    assert [line.split()[-1] for line in table.splitlines() if "::" in line] == ["PASS*", "PASS", "PASS*"]
    assert table.splitlines()[-1] == (
        "PASS*: values lie outside the tolerance and still pass: nearer-to-float64 (1); "
        "not compared: output[1]: a lib.Cache cannot be compared (2)"
    )
    assert uncompared(failure(labels=("not-compared",), notes=notes)) == ()


def test_several_environments_have_a_column_each() -> None:
    events: list[Event] = [
        started("2.6.0", "2.13.0"),
        planned(torch="2.6.0"),
        planned(torch="2.13.0"),
        finished("PASS", torch="2.13.0"),
    ]
    lines = render_table(events).splitlines()
    assert lines[0].split() == ["case", "inductor", "2.6.0", "inductor", "2.13.0"]
    assert lines[2].split()[-2:] == ["NOT-RUN", "PASS"]
    assert "2.13.0" not in render_table([started("2.13.0"), planned(), finished()])


def test_several_suites_are_sections_and_share_a_variant() -> None:
    shared = ("one", "two")
    text = render_table(
        [planned("a", suites=shared), planned("b", "eager", suites=("two",)), finished("PASS", "a", suites=shared)]
    )
    first, second = text.split("\n\n")
    assert first.startswith("one\ncase") and second.startswith("two\ncase")
    assert "PASS" in first and "PASS" in second
    assert "eager" not in first  # a column nobody asked for in this suite
    assert second.splitlines()[-1].split()[-2:] == ["-", "NOT-RUN"]


def test_long_ids_are_wrapped_and_whole() -> None:
    name = "a_very_long_name_" * 6
    text = render_table([planned(name), finished("PASS", name)], width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert name in "".join(line.split("  ")[0].strip() or line.strip().split(" ")[0] for line in text.splitlines()[2:])


@pytest.mark.parametrize("width", [3, 10, 24, 40, 200])
def test_wrap_id_loses_nothing(width: int) -> None:
    text = "specs/regressions/silent.spec.yaml::pad_view[n=2,float32,cpu]"
    lines = wrap_id(text, width)
    assert "".join(line.removeprefix("  ") for line in lines) == text
    assert all(len(line) <= width for line in lines)


def test_wrap_id_breaks_where_it_can() -> None:
    assert wrap_id("specs/a.spec.yaml::case_name[n=2,float32]", 24) == [
        "specs/a.spec.yaml::",
        "  case_name[n=2,float32]",
    ]
    assert wrap_id("", 5) == [""]


def test_numbers_and_paint() -> None:
    text = render_table([planned("1e5"), finished("PASS", "1e5")], paint=lambda cell, verdict: f"<{cell}|{verdict}>")
    assert "1e5[float32,cpu]" in text and "<PASS|PASS>" in text


def test_colour_does_not_move_the_columns() -> None:
    import re

    plain = render_table(every_verdict())
    painted = render_table(every_verdict(), paint=lambda cell, verdict: f"\x1b[31m{cell}\x1b[0m")
    assert [line.rstrip() for line in re.sub(r"\x1b\[\d+m", "", painted).splitlines()] == [
        line.rstrip() for line in plain.splitlines()
    ]


def test_nothing_planned_is_no_table() -> None:
    assert render_table([started()]) == ""


def long_run() -> list[Event]:
    """Nine rows in plan order: six that pass, one that fails, one that was skipped, one that never ran."""
    names = [f"case_{n}" for n in range(9)]
    verdicts = {"case_2": "SKIP", "case_5": "FAIL"}
    results = [finished(verdicts.get(name, "PASS"), name) for name in names[:-1]]
    return [started(), *(planned(name) for name in names), *results]


def test_a_table_beyond_its_limit_holds_what_went_wrong_and_says_so() -> None:
    text = render_table(long_run(), limit=8, hint="runner report X")
    assert [word for word in text.split() if "case_" in word] == [finished(name="case_5").label]
    assert text.splitlines()[-1] == (
        "8 of 9 rows are left out: above are those that hold something other than PASS, SKIP and NOT-RUN; runner report X"
    )
    assert text.count("case_") == 1 and "FAIL" in text


def test_a_table_within_its_limit_is_whole() -> None:
    assert render_table(long_run(), limit=9, hint="never said") == render_table(long_run())
    assert render_table([started()], limit=0) == ""


def test_a_row_is_kept_for_one_of_its_columns() -> None:
    events: list[Event] = [
        planned("a", "eager"),
        planned("a"),
        planned("b"),
        finished("XFAIL", "a"),
        finished(name="b"),
    ]
    text = render_table(events, limit=1)
    assert "a[float32,cpu]" in text and "NOT-RUN" in text and "b[float32,cpu]" not in text


def test_the_limit_holds_for_the_rows_that_are_kept_too() -> None:
    plan: list[Event] = [planned(str(n), suites=(suite,)) for suite in ("one", "two") for n in range(4)]
    results = [finished("FAIL", str(n), suites=("one",)) for n in range(4)]
    text = render_table([*plan, *results], limit=3)
    assert text.count("FAIL") == 3 and "::3[" not in text and "two" not in text
    assert "5 of 8 rows are left out" in text and "(the first 3 of them)" in text


def test_nothing_went_wrong_in_a_long_run() -> None:
    events: list[Event] = [*(planned(str(n)) for n in range(5)), *(finished(name=str(n)) for n in range(5))]
    assert render_table(events, limit=4) == (
        "the table is left out: none of its 5 rows holds anything but PASS, SKIP and NOT-RUN"
    )


def test_the_numbers_of_a_rule_for_values_have_a_line_for_each_output() -> None:
    entry = {
        "path": "output",
        "different": 3,
        "elements": 20,
        "sqnr": 41.5,
        "eager": {"largest": 0.5},
        "compiled": {"largest": 2.0},
    }
    assert compared_lines(finished(accuracy=(entry, {"path": "gradient of x"}))) == [
        "accuracy of output: 3 of 20 elements have other bits, eager off by 0.5 units, compiled off by 2 units, signal to noise 41.5 dB",
        "accuracy of gradient of x: ? of ? elements have other bits, signal to noise ? dB",
    ]
