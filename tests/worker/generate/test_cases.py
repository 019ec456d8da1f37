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
    drawn = [cases.draw_case(0, number, Wish("layout", ("torch.sin",), (1, 3), True)) for number in range(20)]
    written = [case for case in drawn if case is not None]
    assert 5 < len(written) < 20  # in the others, chance gave other steps alone
    assert all("torch.sin" in str(case["chain"]) for case in written)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_the_first_tag_and_the_name_of_its_cases(profile: str) -> None:
    drawn = [case for number in range(12) if (case := cases.draw_case(0, number, Wish(profile, depth=(3, 5))))]
    assert {case["tags"][0] for case in drawn} == {profile}
    assert {case["name"].rpartition("_")[0] for case in drawn} == {f"{profile}_0"}
    assert {*PROFILES[profile].families} <= {*cases.FAMILIES}
    assert {tuple(case.get("devices", ["cpu"])) for case in drawn} == {(PROFILES[profile].device,)}
    share = sum("params" in case for case in drawn) / len(drawn)
    assert share > 0.5 if profile == "dynamic" else share < 0.6
    if profile == "training":
        assert {str(case["grad"]) for case in drawn} <= {"backward", "{'cotangent': 'sum'}"}


@pytest.fixture(scope="module")
def drawn() -> list[dict[str, Any]]:
    return [case for number in range(250) if (case := cases.draw_case(2, number)) is not None]


def test_every_family_is_drawn(drawn: list[dict[str, Any]]) -> None:
    tags = {tag for case in drawn for tag in case["tags"][1:]}
    assert len(cases.FAMILIES) >= 36
    assert tags == set(cases.FAMILIES)
    assert {len(case["chain"]) for case in drawn} <= set(range(3, 11))
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
    assert {name for name, _ in creations} >= {"torch.arange", "torch.eye", "torch.linspace"}
    assert [name for name, arguments in creations if arguments["device"] != "$device"] == []
    assert "cpu" not in str(steps)
