from __future__ import annotations

import pytest

from runner.engine.events import Event
from runner.report.table import build_grid, render_table, wrap_id
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
    one, two = text.split("\n\n")
    assert one.startswith("one\ncase") and two.startswith("two\ncase")
    assert "PASS" in one and "PASS" in two
    assert "eager" not in one  # a column nobody asked for in this suite
    assert two.splitlines()[-1].split()[-2:] == ["-", "NOT-RUN"]


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
