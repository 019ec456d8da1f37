"""Twins of drawn cases: eager gives the same for both programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from runner.builder.source import build, has_twin
from runner.cases.suites import SPEC
from runner.cases.twins import REWRITES
from runner.generate.generator import text_of
from runner.session.collect import load
from runner.session.plan import Environment, Planned, job
from runner.worker.comparison.compare import compare_values
from runner.worker.generate import cases
from runner.worker.generate.cases import Wish
from runner.worker.program.load import open_source
from runner.worker.program.observe import Observation, Settings, observe
from runner.worker.program.snapshot import Leaf
from runner.worker.rerun.agreement import find_disagreement
from runner.worker.tensors import tolerance_for

HERE = Environment("0", "python", torch.__version__, torch.__version__, "3")
DTYPES = ("float16", "int8", "uint8", "int64", "bool", "complex64")
PROFILES = ("wide", "mutation", "training", "layout", "dynamic")


def disagreements(folder: Path, drawn: list[Mapping[str, Any]]) -> tuple[dict[str, str], int]:
    """Where eager's runs of a case and its twin disagree, by the case's name; and how many twins ran."""
    path = folder / f"a{SPEC}"
    path.write_text(text_of(drawn), encoding="utf-8")
    places, count = {}, 0
    for variant in load([str(path)], everything=True).variants:
        source = build(variant)
        if not has_twin(source):
            continue
        request = job(Planned(variant, HERE), source)
        first, second = (_run(request, twin) for twin in (False, True))
        count += first.error is None
        if first.error is None and (place := find_disagreement(first, second, agree=_agree)):
            places[variant.case.name] = f"{place} {second.error and second.error.summary}"
    return places, count


def _agree(first: torch.Tensor, second: torch.Tensor, path: str) -> bool:
    """Bit for bit, but for gradients: a copy lays them out in another way, in which a product rounds in another way."""
    bounds = tolerance_for(first.dtype, {"exact": not path.startswith("gradient")}, path)
    return not compare_values(first, second, bounds).differences


def _run(request: Any, twin: bool) -> Observation:
    settings = Settings.of(request)
    with open_source(request) as source:
        loaded = source.load(settings.seed, twin=twin)
        run = observe(loaded, loaded.model, settings)
    for call in run.calls:
        for name in ("outputs", "inputs", "state"):
            tree = getattr(call, name)
            setattr(call, name, replace(tree, leaves=tuple(map(_with_significant_strides, tree.leaves))))
        call.gradients = {path: leaf and _with_significant_strides(leaf) for path, leaf in call.gradients.items()}
    return run


def _with_significant_strides(leaf: Leaf) -> Leaf:
    """A leaf without the strides that the judge passes over: of dimensions of one element, and of empty tensors."""
    metadata = leaf.metadata
    if metadata is None or metadata.stride is None:
        return leaf
    is_empty = 0 in metadata.shape
    pairs = zip(metadata.stride, metadata.shape, strict=True)
    stride = tuple(step if size > 1 and not is_empty else 0 for step, size in pairs)
    return replace(leaf, metadata=replace(metadata, stride=stride))


def draw(seed: int, count: int, twin: list[str]) -> list[Mapping[str, Any]]:
    """Cases of all profiles on the CPU, each with this twin."""
    wishes = [Wish(name, depth=(2, 8)) for name in PROFILES]
    drawn = [cases.draw_case(seed, number, wishes[number % len(wishes)]) for number in range(count)]
    return [{**case, "twin": twin} for case in drawn if case is not None]


@pytest.mark.parametrize("name", REWRITES)
def test_a_rewrite_leaves_special_values_and_layouts(tmp_path: Path, name: str) -> None:
    special = {"values": [[float("nan"), -0.0, 1e-45], [float("-inf"), 0.0, 3e38]]}
    inputs: list[dict[str, Any]] = [
        special,
        {**special, "layout": [{"Tensor.t": ["$_"]}]},
        {"shape": [2, 3, 4, 5], "layout": [{"torch.permute": ["$_", [0, 3, 1, 2]]}]},
        *({"shape": shape, "dtype": dtype} for shape in ([], [0], [1, 3], [2, 0, 3]) for dtype in DTYPES),
    ]
    chain = [
        {"torch.mul": ["$x", 2], "out": "a"},
        {"operator.add": ["$x", "$x"], "out": "b"},
        {"torch.eq": ["$x", "$x"]},
    ]
    drawn: list[Mapping[str, Any]] = [
        {"name": f"c{place}", "inputs": {"x": one}, "chain": chain, "return": ["$a", "$b", "$_"], "twin": [name]}
        for place, one in enumerate(inputs)
    ]
    assert disagreements(tmp_path, drawn) == ({}, len(inputs))


@pytest.mark.slow
@pytest.mark.parametrize("name", REWRITES)
def test_a_rewrite_leaves_what_eager_gives(tmp_path: Path, name: str) -> None:
    is_rare = name in ("double", "reorder")
    places, count = disagreements(tmp_path, draw(REWRITES.index(name), 300 if is_rare else 60, [name]))
    assert places == {}
    assert count >= (3 if is_rare else 15)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(20, 26))
def test_all_rewrites_together_leave_what_eager_gives(tmp_path: Path, seed: int) -> None:
    places, count = disagreements(tmp_path, draw(seed, 100, [*REWRITES]))
    assert places == {}
    assert count > 40
