"""Which cases are written, and why others are not."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from runner.builder.source import build
from runner.generate.generator import text_of
from runner.session.collect import load
from runner.session.plan import Environment, Planned, job
from runner.worker.generate import check

HERE = Environment("0", "python", "2.13.0", "2.13.0", "3.11")


def fault(folder: Path, chain: list[Any], inputs: Any = None, **fields: Any) -> str:
    """What is wrong with a case of this chain."""
    file = folder / "case.spec.yaml"
    file.write_text(
        text_of([{"name": "planted", "inputs": inputs or {"x": [4]}, "chain": chain, **fields}]), encoding="utf-8"
    )
    loaded = load([str(file)], everything=True)
    assert loaded.diagnostics == ()
    [variant] = loaded.variants
    return check.fault_of(job(Planned(variant, HERE), build(variant)))


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        ([{"torch.neg": "$x"}], ""),
        ([{"torch.zeros_like": "$x"}], "constant"),
        ([{"operator.getitem": ["$x", 7]}], "raises IndexError"),
        ([{"torch.square": "$x"}, {"torch.sub": [-1, "$_"]}, {"torch.log": "$_"}], "not a number"),
        ([{"torch.mul": ["$x", 1e30]}, {"torch.mul": ["$_", 1e30]}], "overflow: "),
        ([{"torch.add": ["$x", 1e7]}, {"torch.sub": ["$_", 1e7]}], "ill-conditioned: output"),
        ([{"torch.add": ["$x", 1e5]}, {"torch.sub": ["$_", 1e5]}], ""),
        ([{"torch.gt": ["$x", 0]}, "torch.argsort"], "undefined: "),
        ([{"Tensor.expand": ["$x", [2, 4]], "out": "y"}, {"Tensor.add_": ["$y", "$x"]}], "raises RuntimeError"),
    ],
)
def test_a_case_is_written_only_if_its_results_say_something(tmp_path: Path, chain: list[Any], reason: str) -> None:
    assert fault(tmp_path, chain).startswith(reason)
    assert bool(fault(tmp_path, chain)) == bool(reason)


def test_a_result_in_which_all_numbers_cancel_is_not_written(tmp_path: Path) -> None:
    """Rows of equal numbers, normalised: eager's mean is exact, and that of another order of addition need not be."""
    inputs = {"x": {"shape": [1, 2, 1], "layout": [{"Tensor.expand": ["$_", [1, 2, 33]]}]}, "m": [2], "v": [2]}
    chain = [{"F.batch_norm": {"*": ["$x", "$m", "$v"], "training": True}}]
    assert fault(tmp_path, chain, inputs).startswith("ill-conditioned: ")
    assert fault(tmp_path, chain, {**inputs, "x": [1, 2, 33]}) == ""


def test_a_write_into_expanded_memory_is_not_written_though_it_changes_nothing(tmp_path: Path) -> None:
    """Eager copies a tensor onto itself without a word. Whether a compiled program refuses that has no defined value."""
    inputs = {"x": {"shape": [1], "layout": [{"Tensor.expand": ["$_", [5]]}]}, "y": [5]}
    copy = {"Tensor.copy_": ["$x", "$x"]}
    assert fault(tmp_path, [copy, {"torch.add": ["$x", "$y"]}], inputs).startswith("undefined: ")
    assert fault(tmp_path, [{"torch.add": ["$x", "$y"]}], inputs) == ""


def test_a_result_that_is_the_same_for_two_seeds_is_written_if_the_case_gives_all_values(tmp_path: Path) -> None:
    values = {"values": [-0.0, 2.0, -3.0]}
    assert fault(tmp_path, ["torch.sin"], {"x": values}) == ""
    chain = [{"torch.zeros_like": "$y"}, {"torch.add": ["$_", "$x"]}]
    assert fault(tmp_path, chain, {"x": values, "y": [3]}) == "constant"
    assert fault(tmp_path, ["torch.sin"], {"x": [0]}) == "constant"


def test_a_case_of_which_nothing_is_traced_is_not_written(tmp_path: Path) -> None:
    inputs = {"x": [4], "b": {"shape": [4], "dtype": "bool"}}
    select = {"torch.masked_select": ["$x", "$b"]}
    assert fault(tmp_path, [select], inputs) == "compiles no graph"
    named = [{**select, "out": "z"}, {"torch.sin": "$x", "out": "y"}]
    assert fault(tmp_path, named, inputs, **{"return": ["$z", "$y"]}) == ""
    assert fault(tmp_path, [{"torch.take": ["$x", {"$tensor": [0, 2]}]}]) == ""


def test_a_case_that_expects_an_exception_has_to_raise_it(tmp_path: Path) -> None:
    raises = {"raises": {"type": "IndexError"}}
    assert fault(tmp_path, [{"operator.getitem": ["$x", 7]}], expect=raises) == ""
    assert fault(tmp_path, ["torch.sin"], expect=raises) == "eager was to raise IndexError, and returned"
    message = fault(tmp_path, [{"torch.reshape": ["$x", [3]]}], expect=raises)
    assert message.startswith("eager was to raise IndexError, and raised RuntimeError")


def test_a_case_that_expects_no_graph_need_not_compile_one(tmp_path: Path) -> None:
    inputs = {"x": [4], "b": {"shape": [4], "dtype": "bool"}}
    assert fault(tmp_path, [{"torch.masked_select": ["$x", "$b"]}], inputs, expect={"graphs": 0}) == ""


def test_an_input_whose_own_sizes_change_compiles_nothing(tmp_path: Path) -> None:
    assert fault(tmp_path, [{"Tensor.unsqueeze_": ["$x", 1]}], {"x": [4]}) == "compiles no graph"
    copy = {"torch.clone": "$x", "out": "y"}
    assert fault(tmp_path, [copy, {"Tensor.unsqueeze_": ["$y", 1]}], {"x": [4]}, **{"return": ["$y"]}) == ""


def test_every_call_is_tried(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"params": {"n": [4]}, "inputs": {"x": ["${n}"]}}
    chain = [{"operator.getitem": ["$x", 3]}]
    assert fault(tmp_path, chain, **sizes, calls=[{"params": {"n": 5}}]) == ""
    assert fault(tmp_path, chain, **sizes, calls=[{"params": {"n": 2}}]).startswith("raises IndexError")


def test_what_the_judge_calls_constant_is_a_fault(tmp_path: Path) -> None:
    """Seed 1 has a number below -2 here, so that the generator's two seeds differ. The judge's two seeds do not."""
    chain = [{"torch.gt": ["$x", -2], "out": "big"}, {"torch.masked_fill": ["$x", "$big", -0.25]}]
    assert fault(tmp_path, chain, {"x": [17]}) == "constant"
    assert fault(tmp_path, chain, {"x": [40]}) == ""


def test_a_mask_whose_gradient_reads_values_compiles_nothing(tmp_path: Path) -> None:
    inputs = {
        "x": {"shape": [5, 5], "requires_grad": True},
        "b": {"shape": [5], "dtype": "bool"},
        "v": {"shape": [5], "requires_grad": True},
    }
    chain = [{"torch.clone": "$x", "out": "y"}, {"torch.index_put": ["$y", ["$b"], "$v"]}]
    assert fault(tmp_path, chain, inputs, grad="backward") == "compiles no graph"
    assert fault(tmp_path, chain, inputs, grad="off") == ""


@pytest.mark.parametrize(
    ("shape", "grad", "expected"), [([], "backward", "compiles no graph"), ([], "off", ""), ([1], "backward", "")]
)
def test_an_index_without_dimensions_is_read_by_the_backward(
    tmp_path: Path, shape: list[int], grad: str, expected: str
) -> None:
    """The gradient of ``put`` takes the number out of it; an index of one dimension stays a tensor."""
    inputs = {
        "x": {"shape": [5], "requires_grad": True},
        "i": {"shape": shape, "dtype": "int64", "init": {"randint": [0, 5]}},
        "v": {"shape": shape, "requires_grad": True},
    }
    assert fault(tmp_path, [{"torch.put": ["$x", "$i", "$v", False]}], inputs, grad=grad) == expected


def test_a_backward_without_a_gradient_is_a_fault(tmp_path: Path) -> None:
    leaf = {"x": {"shape": [4], "requires_grad": True}}
    assert fault(tmp_path, [{"torch.neg": "$x"}], leaf, grad="backward") == ""
    assert fault(tmp_path, ["torch.detach", "torch.neg"], leaf, grad="backward") == "no gradient"


def test_what_varies_between_two_runs_of_one_seed_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, seeds = check._run, itertools.count()
    monkeypatch.setattr(
        check, "_run", lambda source, settings: run(source, dataclasses.replace(settings, seed=next(seeds)))
    )
    assert fault(tmp_path, [{"torch.neg": "$x"}]) == "varies"
