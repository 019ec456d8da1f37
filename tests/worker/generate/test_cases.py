"""bench/chains.py: what it draws, what it refuses, and what a crash costs it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from runner.session.collect import load

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def chains(bench_module: Callable[[str], ModuleType]) -> ModuleType:
    return bench_module("chains")


@pytest.fixture(scope="module")
def cases(bench_module: Callable[[str], ModuleType]) -> ModuleType:
    return bench_module("chain_cases")


def test_a_case_is_the_same_for_the_same_seed_and_number_alone(cases: ModuleType) -> None:
    first = [cases.draw_case(3, number) for number in range(12)]
    assert [cases.draw_case(3, number) for number in reversed(range(12))] == first[::-1]
    assert [cases.draw_case(4, number) for number in range(12)] != first


@pytest.fixture(scope="module")
def drawn(cases: ModuleType) -> list[dict[str, Any]]:
    return [case for number in range(250) if (case := cases.draw_case(1, number)) is not None]


def test_every_family_is_drawn(cases: ModuleType, drawn: list[dict[str, Any]]) -> None:
    tags = {tag for case in drawn for tag in case["tags"]}
    assert len(cases.FAMILIES) >= 36
    assert tags == set(cases.FAMILIES)
    assert {len(case["chain"]) for case in drawn} <= set(range(3, 10))
    assert (
        0.1
        < sum("cotangent" in case.get("grad", "") or case.get("grad") == "backward" for case in drawn) / len(drawn)
        < 0.35
    )
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


def test_what_is_written_is_valid_and_is_found_through_the_suite(chains: ModuleType, tmp_path: Path) -> None:
    kept, _ = chains.make_cases(2, 25)
    suite = chains.write_files(tmp_path, kept, 2)
    loaded = load([str(suite)], everything=True)
    assert [diagnostic.render() for diagnostic in loaded.diagnostics] == []
    assert [variant.case.name for variant in loaded.variants] == [case["name"] for case in kept]
    assert {variant.backend.name for variant in loaded.variants} == {"inductor"}
    fewer, _ = chains.make_cases(2, 5)
    assert fewer == kept[:5]


def test_cases_of_another_device_say_so(chains: ModuleType, cases: ModuleType, tmp_path: Path) -> None:
    suite = chains.write_files(tmp_path, [_case([{"torch.neg": "$x"}])], 2, "cuda")
    assert [variant.device for variant in load([str(suite)], everything=True).variants] == ["cuda"]


def _case(chain: list[Any], **more: Any) -> dict[str, Any]:
    return {"name": "planted", "inputs": {"x": [4]}, "chain": chain, **more}


@pytest.mark.parametrize(
    ("chain", "fault"),
    [
        ([{"torch.neg": "$x"}], ""),
        ([{"torch.zeros_like": "$x"}], "constant"),
        ([{"operator.getitem": ["$x", 7]}], "raises"),
        ([{"torch.square": "$x"}, {"torch.sub": [-1, "$_"]}, {"torch.log": "$_"}], "not a number"),
        ([{"torch.no_such_operator": "$x"}], "refused"),
    ],
)
def test_a_case_stays_only_if_eager_takes_it(cases: ModuleType, tmp_path: Path, chain: list[Any], fault: str) -> None:
    assert cases.fault_of(_case(chain), tmp_path).startswith(fault)
    assert bool(cases.fault_of(_case(chain), tmp_path)) == bool(fault)


def test_a_later_call_that_eager_refuses_and_a_missing_gradient_are_faults(cases: ModuleType, tmp_path: Path) -> None:
    sizes = {"params": {"n": [4]}, "inputs": {"x": ["${n}"]}}
    chain = [{"operator.getitem": ["$x", 3]}]
    assert cases.fault_of({**_case(chain), **sizes, "calls": [{"params": {"n": 5}}]}, tmp_path) == ""
    other = tmp_path / "other"  # Python's cache of a source does not tell two of one size and one second apart
    other.mkdir()
    assert cases.fault_of({**_case(chain), **sizes, "calls": [{"params": {"n": 2}}]}, other).startswith("raises")
    leaf = {"inputs": {"x": {"shape": [4], "requires_grad": True}}, "grad": "backward"}
    assert cases.fault_of({**_case([{"torch.neg": "$x"}]), **leaf}, tmp_path) == ""
    assert cases.fault_of({**_case(["torch.detach", "torch.neg"]), **leaf}, tmp_path) == "no gradient"


def test_what_varies_between_two_runs_of_one_seed_is_a_fault(
    cases: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    seeds = iter(range(100))
    monkeypatch.setattr(cases, "_run", _with_seed(cases._run, seeds, torch))
    assert cases.fault_of(_case([{"torch.neg": "$x"}]), tmp_path) == "varies"


def _with_seed(run: Callable[..., Any], seeds: Any, torch: Any) -> Callable[..., Any]:
    """Run every time with another seed, as an operator that ignores the seed does."""

    def changed(source: Any, settings: Any) -> Any:
        import dataclasses

        return run(source, dataclasses.replace(settings, seed=next(seeds)))

    return changed


def test_a_crash_and_a_hang_lose_one_case_each(chains: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    def draw(seed: int, number: int) -> dict[str, Any]:
        if number == 1:
            os._exit(3)
        if number == 3:
            time.sleep(600)
        return {**_case([{"torch.neg": "$x"}]), "name": f"planted_{number}", "tags": []}

    monkeypatch.setattr(chains, "draw_case", draw)
    monkeypatch.setattr(chains, "fault_of", lambda case, folder: "")
    kept, faults = chains.make_cases(0, 4, limit=2.0)
    assert [case["name"] for case in kept] == ["planted_0", "planted_2", "planted_4", "planted_5"]
    assert faults == {"crash": 1, "too long": 1}
