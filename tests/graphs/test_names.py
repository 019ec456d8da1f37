"""References in plain data."""

from __future__ import annotations

from typing import Any

import pytest

from runner.graphs.names import references, renamed, replaced


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ("$x", ["x"]), ("x", []), ("$_", []), ("$dtype", []), ("$x.values", ["x"]), ("$x[0]", ["x"]),
        ("[$i, :, ${x.shape[0] - 1}]", ["i", "x"]), ("[:$n, None]", ["n"]), ("${max(a, b.shape[0])}", ["a", "b"]),
        ({"$text": "$x"}, []), (["$a", {"k": ("$b", 1)}, None, 2.5], ["a", "b"]), ("[$a, $b]", ["a", "b"]), ("ij->$x", []),
        ({"$fn": {"args": ["t"], "chain": [{"torch.add": ["$t", "$x"]}]}}, ["t", "x"]),
    ],
)  # fmt: skip
def test_references_are_found(data: Any, names: list[str]) -> None:
    assert [*references(data)] == names


def test_names_change_wherever_they_stand() -> None:
    data = [
        "$w",
        "[$w, 1:]",
        "[$w, ${w.shape[0]}]",
        "${w.shape[0] * max(w.shape[1], 2)}",
        {"$text": "$w"},
        "w",
        "$w_2",
        {"k": "$w.T"},
    ]
    assert renamed(data, {"w": "self.w"}) == [
        "$self.w", "[$self.w, 1:]", "[$self.w, ${self.w.shape[0]}]", "${self.w.shape[0] * max(self.w.shape[1], 2)}", {"$text": "$w"}, "w", "$w_2",
        {"k": "$self.w.T"},
    ]  # fmt: skip


def test_a_value_takes_the_place_of_a_reference_outside_of_functions() -> None:
    function = {"$fn": {"args": ["t"], "chain": [{"torch.add": ["$t", "$x"]}]}}
    assert replaced(["$x", ["$x", "[$x]"], function, {"$text": "$x"}], "$x", "$_") == [
        "$_", ["$_", "[$x]"], function, {"$text": "$x"},
    ]  # fmt: skip
