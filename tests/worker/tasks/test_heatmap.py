"""A planted error is drawn where it is, and a clean run draws nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from worker_jobs import run, source

from runner.worker.tasks.heatmap import ALIKE, MISPLACED, draw
from runner.worker.tensors import tolerance_for

NAN, INF = math.nan, math.inf


def taken(body: str, backend: str, inputs: str, **fields: Any) -> dict[str, Any]:
    return run(source(body, inputs), backend, task="picture", **fields)


def drawn(eager: torch.Tensor, compiled: torch.Tensor, reference: torch.Tensor | None = None, cells: int = 64) -> Any:
    return draw(eager, compiled, reference, tolerance_for(eager.dtype), cells)


def marked(grid: dict[str, Any], key: str = "absolute") -> list[tuple[int, int]]:
    """Row and column of every cell that is not 0."""
    return [(y, x) for y, row in enumerate(grid[key]) for x, value in enumerate(row) if value != 0]


def test_one_wrong_element_is_where_the_backend_put_it() -> None:
    record = taken("return x * 2", "planted:wrong_element", "torch.randn(6, 10)")
    picture = record["picture"]
    place = 60 // 3
    assert (picture["path"], picture["oracle"], picture["wrong"]) == ("output", "value", 1)
    assert marked(picture["grid"]) == [(place // 10, place % 10)]
    first = picture["worst"][0]
    assert first["index"] == [place // 10, place % 10]
    assert first["absolute"] == pytest.approx(1e-2, rel=1e-3)
    assert first["float64"] == pytest.approx(first["eager"], rel=1e-6)
    assert record["phases"][:2] == ["eager", "backend"] and "float64" in record["phases"]


def test_eager_is_drawn_without_what_the_model_compiles_by_itself() -> None:
    backend = "relu_accuracy_error_TESTING_ONLY"
    definitions = f"@torch.compile(backend='{backend}')\ndef relu(x):\n    return torch.relu(x)\n"
    record = run(source("return relu(x)", "torch.ones(2, 3)", definitions=definitions), backend, task="picture")
    assert (record["picture"]["oracle"], record["picture"]["wrong"]) == ("value", 6)


def test_a_clean_backend_leaves_nothing_to_draw() -> None:
    record = taken("return x * 2", "planted:clean", "torch.randn(6, 10)")
    assert record["picture"] is None
    assert record["reason"] == "no tensor of equal shape and dtype differs"
    assert record["error"] is None


def test_a_crash_has_its_error_and_no_picture() -> None:
    record = taken("return x * 2", "planted:raises_at_compile", "torch.randn(3)")
    assert record["picture"] is None and record["reason"] == "the compiled run raised"
    assert "planted: cannot lower" in record["compiled_error"]["message"]


def test_a_wrong_case_is_an_error() -> None:
    record = taken("return x * 2", "planted:clean", "torch.randn(-1)")
    assert record["error"]["type"] == "RuntimeError"
    assert taken("return x", "planted:absent", "torch.ones(1)")["error"]["type"] == "InvalidCase"
    assert taken("return x", "planted:clean", "torch.ones(1)", device="hpu")["error"]["type"] == "Unavailable"


def test_a_lost_nan_is_misplaced() -> None:
    record = taken("return x + x", "planted:nan_to_zero", "torch.tensor([[1.0, 2.0], [float('nan'), 4.0]])")
    picture = record["picture"]
    assert picture["oracle"] == "nonfinite"
    assert picture["grid"]["kind"] == [[0, 0], [MISPLACED, 0]]
    assert picture["counts"]["eager"]["nan"] == 1 and picture["counts"]["compiled"]["nan"] == 0
    assert picture["worst"][0]["index"] == [1, 0]
    assert (picture["worst"][0]["eager"], picture["worst"][0]["compiled"]) == ("nan", 0.0)
    assert record["inputs"][0]["nonfinite"] == 1


def test_a_wrong_gradient_is_drawn_though_the_output_is_right() -> None:
    record = taken(
        "return x * 3", "planted:scaled_gradient", "torch.randn(4, 5, requires_grad=True)", grad={"mode": "backward"}
    )
    picture = record["picture"]
    assert (picture["path"], picture["oracle"]) == ("gradient of x", "grad")
    assert len(marked(picture["grid"])) == 20


def test_without_a_finding_the_largest_difference_is_drawn() -> None:
    record = taken("return (x, x * 2)", "planted:off_by_one", "torch.ones(2)", ignore=["value"])
    assert record["picture"]["oracle"] == ""
    assert record["picture"]["path"] == "output[1]"  # the other is the input itself


def test_inputs_are_measured() -> None:
    text = "torch.tensor([1e-40, 1e8, -2.0]), torch.arange(3)"
    record = run(source("return x + y", text, "x, y"), "planted:clean", task="picture")
    (entry,) = record["inputs"]  # integers are not
    assert (entry["index"], entry["denormal"], entry["nonfinite"]) == (0, 1, 0)
    assert entry["largest"] == pytest.approx(1e8)


def test_large_tensors_are_reduced_to_cells() -> None:
    eager = torch.zeros(3, 100, 200)
    compiled = eager.clone()
    compiled[2, 99, 199] = 0.5
    compiled[0, 0, 0] = 0.25
    picture = drawn(eager, compiled)
    grid = picture["grid"]
    assert (grid["width"], grid["row_span"], grid["column_span"]) == (200, 5, 4)
    assert (len(grid["absolute"]), len(grid["absolute"][0])) == (60, 50)
    assert marked(grid) == [(0, 0), (59, 49)]
    assert grid["absolute"][59][49] == 0.5 and grid["relative"][59][49] == "inf"
    assert [element["index"] for element in picture["worst"]] == [[2, 99, 199], [0, 0, 0]]


@pytest.mark.parametrize(
    ("shape", "width", "cells"), [((), 1, (1, 1)), ((7,), 7, (1, 7)), ((65,), 64, (2, 64)), ((10000,), 100, (50, 50))]
)
def test_vectors_are_broken_into_rows(shape: tuple[int, ...], width: int, cells: tuple[int, int]) -> None:
    eager = torch.zeros(shape)
    compiled = eager.clone()
    compiled.view(-1)[-1] = 1.0
    grid = drawn(eager, compiled)["grid"]
    assert grid["width"] == width
    assert (len(grid["absolute"]), len(grid["absolute"][0])) == cells
    assert len(marked(grid)) == 1


def test_several_pieces_give_the_same_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    eager = torch.randn(50, 33)
    compiled = eager + torch.randn(50, 33) * 1e-3
    whole = drawn(eager, compiled, eager.double(), cells=16)
    monkeypatch.setattr("runner.worker.tensors.PIECE", 100)
    assert drawn(eager, compiled, eager.double(), cells=16) == whole


def test_neighbouring_large_integers_differ() -> None:
    eager = torch.tensor([2**53, 5])
    picture = drawn(eager, eager + torch.tensor([1, 0]))
    assert marked(picture["grid"]) == [(0, 0)]
    assert picture["worst"][0]["absolute"] == 1
    assert drawn(torch.tensor([True, False]), torch.tensor([True, True]))["worst"][0]["index"] == [1]


def test_complex_numbers_and_nan_on_both_sides() -> None:
    eager = torch.tensor([1 + 1j, complex(NAN, 0)])
    picture = drawn(eager, eager + torch.tensor([3 + 4j, 0]))
    assert picture["grid"]["absolute"] == [[5.0, 0.0]]
    assert picture["grid"]["kind"] == [[0, ALIKE]]


def test_the_histogram_counts_both_sides_in_shared_decades() -> None:
    reference = torch.tensor([1.0, 1.0, 0.0, 2.0, NAN], dtype=torch.float64)
    eager = torch.tensor([1.0, 1.0 + 2**-20, 0.0, 2.0, 1.0])
    compiled = torch.tensor([1.0, 1.5, 0.1, 2.0, 1.0])
    histogram = drawn(eager, compiled, reference)["histogram"]
    assert histogram["decades"] == [*range(-7, 0)]
    assert histogram["eager"] == [1, 0, 0, 0, 0, 0, 0]
    assert histogram["compiled"] == [0, 0, 0, 0, 0, 0, 1]
    assert histogram["exact"] == {"eager": 3, "compiled": 2}
    assert histogram["unscaled"] == {"eager": 0, "compiled": 1}
    assert histogram["left_out"] == 1
    assert drawn(eager, compiled)["histogram"] is None
