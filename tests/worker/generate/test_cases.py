"""What is drawn: the same for the same seed and number, every family, and nothing that a device would miss."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from runner.worker.generate import cases


def test_a_case_is_the_same_for_the_same_seed_and_number_alone() -> None:
    first = [cases.draw_case(3, number) for number in range(12)]
    assert [cases.draw_case(3, number) for number in reversed(range(12))] == first[::-1]
    assert [cases.draw_case(4, number) for number in range(12)] != first


@pytest.fixture(scope="module")
def drawn() -> list[dict[str, Any]]:
    return [case for number in range(250) if (case := cases.draw_case(1, number)) is not None]


def test_every_family_is_drawn(drawn: list[dict[str, Any]]) -> None:
    tags = {tag for case in drawn for tag in case["tags"]}
    assert len(cases.FAMILIES) >= 36
    assert tags == set(cases.FAMILIES)
    assert {len(case["chain"]) for case in drawn} <= set(range(3, 10))
    backward = ["cotangent" in case.get("grad", "") or case.get("grad") == "backward" for case in drawn]
    assert 0.1 < sum(backward) / len(drawn) < 0.35
    assert any(case.get("dynamic") for case in drawn)
    assert any("layout" in str(case["inputs"]) for case in drawn)


def test_whatever_makes_a_tensor_of_numbers_alone_names_the_device_of_the_case(drawn: list[dict[str, Any]]) -> None:
    from torch.utils._device import _device_constructors

    makers = {f"torch.{function.__name__}" for function in _device_constructors()}
    steps = [step for case in drawn for step in case["chain"]]
    steps += [inner for step in steps if "with" in step for inner in step["chain"]]
    creations = [(name, arguments) for step in steps for name, arguments in step.items() if name in makers]
    assert {name for name, _ in creations} >= {"torch.arange", "torch.eye", "torch.linspace", "torch.tril_indices"}
    assert [name for name, arguments in creations if arguments["device"] != "$device"] == []
    assert "cpu" not in str(steps)
