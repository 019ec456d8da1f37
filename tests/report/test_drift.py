"""Drift as a table."""

from __future__ import annotations

import math

from runner.graphs.drift import Drift, DriftRow
from runner.report.drift import bar, render

ROWS = (
    DriftRow("s", "torch.sin", "", 4, 0, 0.5, 0.5, math.inf),
    DriftRow("r", "F.relu", "net.py:3: x = F.relu(x)", 4, 2, 0.5, 4096.0, 60.0),
)


def test_a_table_marks_where_the_error_enters_and_says_it() -> None:
    lines = render([Drift("graph_0", ROWS)]).splitlines()
    assert lines[0] == "graph_0"
    assert lines[-2].split() == ["->", "F.relu", "r", "2/4", "0.5", "4.1e+03", "#" * 12]
    assert lines[-1] == (
        "The error enters at F.relu (net.py:3: x = F.relu(x)); the last result is off by 4.1e+03 ulp compiled, 0.5 in eager."
    )
    assert "No error enters at one call" in render([Drift("graph_0", ROWS[:1])])


def test_a_narrow_terminal_has_no_bars() -> None:
    assert "#" not in render([Drift("graph_0", ROWS)], width=80)


def test_bars_are_as_long_as_logarithms() -> None:
    lengths = [len(bar(error)) for error in (None, 0.5, 1.0, 256.0, 1e6, 1e300, math.inf)]
    assert lengths == [0, 0, 1, 9, 20, 24, 24]


def test_a_graph_that_gives_nothing_says_so() -> None:
    assert render([Drift("graph_0", ())]) == "graph_0: it gives no floating result that could be measured"
