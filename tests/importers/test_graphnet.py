"""Samples of GraphNet: a graph, and beside it what its inputs are."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.contract.graphs import Graph, Statistics, Tensor
from runner.diagnostics import InputError
from runner.importers.foreign_file import read_file
from runner.importers.printed_graph import read_printed_graph

MODEL = """\
import torch


class GraphModule(torch.nn.Module):
    def forward(self, L_w_: torch.nn.parameter.Parameter, s0: torch.SymInt, L_ids_: torch.Tensor, L_mask_: torch.Tensor):
        l_w_ = L_w_
        r = torch.nn.functional.embedding(L_ids_, l_w_)
        v = r.view(s0, -1)
        m = v.masked_fill(L_mask_, 0.0)
        return (m,)
"""
METAS = """\
class Program_weight_tensor_meta_L_w_:
    name = "L_w_"
    shape = [8, 4]
    dtype = "torch.float16"
    device = "cuda:0"
    mean = 0.5
    std = 0.1
    data = None


class Program_weight_tensor_meta_s0:
    name = "s0"
    shape = []
    dtype = "torch.int64"
    device = "cpu"
    mean = None
    std = None
    data = [2]


class Program_weight_tensor_meta_L_ids_:
    name = "L_ids_"
    shape = [1, 2]
    dtype = "torch.int64"
    data = [3, 5]


class Program_weight_tensor_meta_L_mask_:
    name = "L_mask_"
    shape = open("x")
    dtype = "torch.bool"
"""


def read(folder: Path, metas: str) -> Graph:
    (folder / "model.py").write_text(MODEL)
    (folder / "weight_meta.py").write_text(metas)
    (graph,) = read_printed_graph(read_file(str(folder / "model.py"))).graphs
    return graph


def test_inputs_are_as_the_file_beside_says(tmp_path: Path) -> None:
    graph = read(tmp_path, METAS)
    weight, ids, mask = graph.inputs
    assert (weight.role, weight.tensor) == ("parameter", Tensor((8, 4), "float16"))
    assert weight.statistics == Statistics(pytest.approx(0.2), pytest.approx(0.8), 0.5, 0.1)
    assert (ids.tensor, ids.values) == (Tensor((1, 2), "int64"), [[3, 5]])
    assert "not known" in mask.fault
    assert graph.calls[1].positional == ("$r", 2, -1)


def test_many_values_are_a_range(tmp_path: Path) -> None:
    values = ", ".join(map(str, range(5000)))
    metas = METAS.replace("shape = [1, 2]", "shape = [5000]").replace("[3, 5]", f"[{values}]")
    ids = read(tmp_path, metas.replace("[8, 4]", "[9000, 4]")).inputs[1]
    assert ids.values is None and ids.statistics is not None
    assert (ids.statistics.least, ids.statistics.largest) == (0, 4999)


def test_a_broken_file_beside_is_an_error_at_its_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"weight_meta\.py:1:"):
        read(tmp_path, "class (:\n")
