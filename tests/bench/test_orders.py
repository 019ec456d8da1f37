"""``bench/orders.py``: its orders, and that it sees a verdict that depends on one."""

from __future__ import annotations

from pathlib import Path

from runner.session.plan import plan
from tests.handmade import environment, variants
from tests.script_modules import script_module

orders = script_module("orders")


def test_each_order_has_all_variants(tmp_path: Path) -> None:
    planned = plan(variants(tmp_path, "params: {n: [1, 2, 3, 4, 5]}"), [environment()])
    numbers = [[entry.number for entry in order] for order in orders.orders(planned, 0).values()]
    assert numbers[0] == [1, 2, 3, 4, 5] and numbers[1] == [5, 4, 3, 2, 1]
    assert sorted(numbers[2]) == numbers[0] and numbers[2] not in numbers[:2]


def test_a_verdict_that_depends_on_the_order_is_told() -> None:
    same = {"a": ("PASS", ()), "b": ("FAIL", ("value",))}
    assert orders.differences({"one": same, "two": dict(same)}) == []
    for outcome in (("PASS", ()), ("FAIL", ("stride",))):
        (line,) = orders.differences({"one": same, "two": {**same, "b": outcome}})
        assert line.startswith("b: ")
    assert orders.differences({"one": same, "two": {"a": same["a"]}}), "no verdict is another answer"
