"""What an unclaimed operator costs: the variants, and the operators that are tried nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from runner.record.events import VariantFinished
from runner.report.price import MOST, price_lines, prices, tried_operators

from .events_sample import finished


def result(*operators: str, unclaimed: str = "", **fields: Any) -> VariantFinished:
    verdict = "SKIP" if unclaimed else "PASS"
    return finished(verdict, name="-".join(operators), operators=operators, unclaimed=unclaimed, **fields)


def left_out(*operators: str, **fields: Any) -> VariantFinished:
    return result(*operators, unclaimed=f"operator {operators[0]}", **fields)


def test_a_chain_takes_its_other_operators_with_it() -> None:
    events = [result("F.relu"), left_out("nn.Conv2d", "F.relu", "torch.sin"), left_out("nn.Conv2d", "torch.erf")]
    (price,) = prices(events)
    assert (price.variants, price.combined, price.lost) == (2, 2, ("torch.erf", "torch.sin"))
    assert str(price) == (
        "nn.Conv2d: 2 variants left out, 2 of them with other operators; nothing else tries 2 of these: torch.erf, "
        "torch.sin"
    )


@pytest.mark.parametrize("spelling", ["Tensor.sin", "aten.sin.default", "torch.sin_"])
def test_another_spelling_of_an_operator_tries_it_too(spelling: str) -> None:
    (price,) = prices([result(spelling), left_out("nn.Conv2d", "torch.sin")])
    assert price.lost == (("torch.sin",) if spelling.endswith("_") else ())


def test_an_operator_by_itself_costs_itself_alone() -> None:
    (price,) = prices([left_out("nn.Conv2d"), left_out("nn.Conv2d")])
    assert str(price) == "nn.Conv2d: 2 variants left out" and price_lines([left_out("nn.Conv2d")]) == []


def test_what_is_skipped_for_another_reason_is_no_price_and_tries_nothing() -> None:
    events = [result("torch.sin", unclaimed="gradients"), left_out("nn.Conv2d", "torch.sin")]
    assert [price.lost for price in prices(events)] == [("torch.sin",)] and tried_operators(events) == {}


def test_the_dearest_operators_of_each_backend_are_named_first_and_few_of_them() -> None:
    events = [left_out(f"torch.x{n}", "torch.sin", backend="acme") for n in range(MOST) for _ in range(n + 1)]
    events += [left_out("torch.y", "torch.sin", backend="acme"), result("torch.sin", backend="eager")]
    lines = price_lines(events)
    assert len(lines) == MOST and lines[0].startswith(f"acme claims no torch.x{MOST - 1}: {MOST} variants left out")


def test_no_log_brings_control_characters() -> None:
    (line,) = price_lines([left_out("torch.\x1b[2J", "torch.\n\x07", backend="a\nb")])
    assert line.isprintable()
