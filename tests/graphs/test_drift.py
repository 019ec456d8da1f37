"""Which results a graph gives for its drift, and what is made of their numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.cases.model import Variant
from runner.contract.graphs import Call, Graph, GraphInput, Tensor
from runner.exit_codes import UsageError
from runner.graphs.cases import write_graph
from runner.graphs.drift import Drift, DriftRow, drift_of, exposed, write_exposed
from runner.graphs.stand_in import graph_variant
from tests.handmade import variants

X = Tensor((4,), "float32")


def graph(*calls: Call) -> Graph:
    return Graph("g", "model", (GraphInput("x", X),), calls, ["$last"], grad=True)


THREE = graph(
    Call("first", "torch.sin", ("$x",), results=(X,), source="a.py:1: y = x.sin()"),
    Call("mask", "torch.gt", ("$first", 0), results=(Tensor((4,), "bool"),)),
    Call("last", "torch.where", ("$mask", "$first", "$x"), results=(X,)),
)


def model(folder: Path, keys: str = "") -> Variant:
    return variants(folder, keys)[0]


def row(eager: float | None, compiled: float | None, name: str = "a") -> DriftRow:
    return DriftRow(name, f"torch.{name}", "", 4, 1, eager, compiled, 90.0)


def test_floating_results_are_given_without_gradients() -> None:
    assert (exposed(THREE).result, exposed(THREE).grad) == (["$first", "$last"], False)


def test_each_result_has_its_numbers(tmp_path: Path) -> None:
    written, variant = write_exposed(THREE, tmp_path / "graph.spec.yaml", model(tmp_path))
    assert variant.backend.name == "inductor"
    side = {"largest": 2.5, "other_class": 0}
    accuracy: list[dict[str, Any]] = [
        {
            "path": "output[1]",
            "elements": 4,
            "different": 3,
            "sqnr": "inf",
            "eager": side,
            "compiled": {**side, "other_class": 1},
        },
        {"path": "gradient of x", "elements": 4},
        {"path": "output[0]", "elements": 4, "different": 0, "sqnr": 80},
    ]
    drift = drift_of(THREE, written, accuracy)
    assert drift.rows == (
        DriftRow("first", "torch.sin", "a.py:1: y = x.sin()", 4, 0, None, None, 80.0),
        DriftRow("last", "torch.where", "", 4, 3, 2.5, math.inf, math.inf),
    )
    assert drift.to_json()["rows"][1]["compiled"] == "inf"


@pytest.mark.parametrize(
    ("rows", "place"),
    [
        ([row(0.5, 0.5), row(0.5, 2.0)], None),
        ([row(0.5, 0.5), row(0.5, 5.0), row(0.5, 100.0)], 1),
        ([row(0.5, 3.0), row(0.5, 11.0), row(0.5, 30.0)], None),  # it grows, and enters nowhere
        ([row(0.5, 0.5), row(900.0, 1000.0), row(1.0, math.inf)], 2),
        ([row(None, None), row(0.5, math.inf)], 1),
    ],
)
def test_an_error_enters_where_it_leaps_over_eagers_and_over_what_came_before(
    rows: list[DriftRow], place: int | None
) -> None:
    assert Drift("g", tuple(rows)).enters == place


def test_a_graph_of_no_step_is_refused(tmp_path: Path) -> None:
    lost = graph(Call("last", "mylib.op", ("$x",), results=(X,), fault="no such operator"))
    with pytest.raises(UsageError, match="no call of the graph"):
        write_exposed(lost, tmp_path / "graph.spec.yaml", model(tmp_path))


def test_a_graph_runs_with_the_settings_of_its_case(tmp_path: Path) -> None:
    flag = "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY"
    _, variant = write_exposed(THREE, tmp_path / "graph.spec.yaml", model(tmp_path, f"config: {{{flag}: accuracy}}"))
    assert variant.config == {flag: "accuracy"}


def test_what_a_graph_itself_needs_stays(tmp_path: Path) -> None:
    by_data = graph(Call("last", "torch.nonzero", ("$x",), results=(Tensor((4, 1), "int64"),)))
    many = replace(
        THREE, calls=(*THREE.calls[:2], *(replace(THREE.calls[0], name=f"s{n}") for n in range(70)), THREE.calls[2])
    )
    flag = "torch._dynamo.config.capture_dynamic_output_shape_ops"
    variant = graph_variant(model(tmp_path, "seed: 3"), write_graph(by_data, "a"), tmp_path / "one.spec.yaml")
    assert variant is not None and (variant.config, variant.case.seed) == ({flag: True}, 3)
    _, slow = write_exposed(many, tmp_path / "many.spec.yaml", model(tmp_path))
    assert slow.case.timeout == 2 * 73
    _, slow = write_exposed(many, tmp_path / "many.spec.yaml", model(tmp_path, "timeout: 9s"))
    assert slow.case.timeout == 9
