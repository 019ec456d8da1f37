"""What is drawn: the same for the same seed and number, every family, and nothing that a device would miss."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from runner.contract.profiles import PROFILES
from runner.worker.generate import cases
from runner.worker.generate.cases import Wish
from runner.worker.generate.chain import Chain


def test_a_case_is_the_same_for_the_same_seed_and_number_alone() -> None:
    first = [cases.draw_case(3, number) for number in range(12)]
    assert [cases.draw_case(3, number) for number in reversed(range(12))] == first[::-1]
    assert [cases.draw_case(4, number) for number in range(12)] != first


def test_depth_and_profile_decide_on_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    for wish, low, high in ((Wish("deep"), 15, 42), (Wish(depth=(2, 2)), 2, 4)):
        lengths = {len(case["chain"]) for number in range(8) if (case := cases.draw_case(0, number, wish))}
        assert lengths
        assert lengths <= set(range(low, high + 1))


def test_a_required_operator_is_in_each_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def add_step(chain: Chain, name: str) -> bool:
        return chain.attempt(lambda: chain.call(name, chain.real()) and None)

    monkeypatch.setattr(cases, "add_step", add_step)
    sample = [cases.draw_case(0, number, Wish("layout", ("torch.sin",), (1, 3), True)) for number in range(20)]
    valid_cases = [case for case in sample if case is not None]
    assert 5 < len(valid_cases) < 20  # in the others, chance gave other steps alone
    assert all("torch.sin" in str(case["chain"]) for case in valid_cases)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_the_first_tag_and_the_name_of_its_cases(profile: str) -> None:
    sample = [case for number in range(12) if (case := cases.draw_case(0, number, Wish(profile, depth=(3, 5))))]
    assert {case["tags"][0] for case in sample} == {profile}
    assert {case["name"].rpartition("_")[0] for case in sample} == {f"{profile}_0"}
    assert {*PROFILES[profile].families} <= {*cases.FAMILIES}
    assert {tuple(case.get("devices", ["cpu"])) for case in sample} == {(PROFILES[profile].device,)}
    share = sum("params" in case for case in sample) / len(sample)
    assert share > 0.5 if profile == "dynamic" else share < 0.6
    if profile == "training":
        assert {str(case["grad"]) for case in sample} <= {"backward", "{'cotangent': 'sum'}"}


@pytest.fixture(scope="module")
def sample() -> list[dict[str, Any]]:
    return [case for number in range(250) if (case := cases.draw_case(2, number)) is not None]


def test_every_family_is_drawn(sample: list[dict[str, Any]]) -> None:
    tags = {tag for case in sample for tag in case["tags"][1:]}
    assert len(cases.FAMILIES) >= 36
    assert tags == set(cases.FAMILIES)
    assert {len(case["chain"]) for case in sample} <= set(range(3, 11))
    backward = ["cotangent" in case.get("grad", "") or case.get("grad") == "backward" for case in sample]
    assert 0.1 < sum(backward) / len(sample) < 0.35
    assert any(case.get("dynamic") for case in sample)
    assert any("layout" in str(case["inputs"]) for case in sample)


def test_whatever_makes_a_tensor_of_numbers_alone_names_the_device_of_the_case(sample: list[dict[str, Any]]) -> None:
    from torch.utils._device import _device_constructors

    makers = {f"torch.{function.__name__}" for function in _device_constructors()}
    steps = [step for case in sample for step in case["chain"]]
    steps += [inner for step in steps if "with" in step for inner in step["chain"]]
    creations = [(name, arguments) for step in steps for name, arguments in step.items() if name in makers]
    assert {name for name, _ in creations} >= {"torch.arange", "torch.eye", "torch.linspace"}
    assert [name for name, arguments in creations if arguments["device"] != "$device"] == []
    assert "cpu" not in str(steps)
