"""Which arguments and values of operators the text of variants gives."""

from __future__ import annotations

from pathlib import Path

from runner.report.argument_coverage import arguments_of
from runner.report.coverage import Entry, measure, missing_lines, render
from tests.handmade import loaded, written

CASES = """\
cases:
  - name: several
    params: {keep: [true, false]}
    inputs: {x: [2, 3]}
    chain:
      - {F.gelu: {'*': [$x], approximate: tanh}}
      - {torch.sum: [$_, [1], $keep]}
      - {Tensor.flatten: [$_, 0]}
      - nn.Hardtanh: {min_val: -0.5}
"""


def given(folder: Path, text: str = CASES) -> tuple[set[str], set[str], set[str], set[str]]:
    return arguments_of(loaded(written(folder, text)).variants)


def test_arguments_count_by_position_and_by_keyword(tmp_path: Path) -> None:
    possible, known, _, _ = given(tmp_path)
    assert known == {
        "F.gelu approximate",
        "torch.sum keepdim",
        "Tensor.flatten start_dim",
        "nn.Hardtanh min_val",
    }
    assert {"Tensor.flatten end_dim", "nn.Hardtanh max_val", "torch.sum dtype"} <= possible - known


def test_values_of_true_false_and_text_count_as_the_axes_give_them(tmp_path: Path) -> None:
    _, _, possible, values = given(tmp_path)
    assert values == {"F.gelu approximate=tanh", "torch.sum keepdim=true", "torch.sum keepdim=false"}
    assert possible - values == {"nn.Hardtanh inplace=true", "nn.Hardtanh inplace=false"}


def test_the_signature_is_the_one_that_the_values_fit(tmp_path: Path) -> None:
    text = CASES.split("    params")[0] + "    inputs: {x: [2, 3]}\n    chain: [{torch.max: [$x, 1, true]}]\n"
    assert given(tmp_path, text)[1] == {"torch.max keepdim"}


def test_the_table_and_the_list_of_what_is_missing_have_them(tmp_path: Path) -> None:
    entries = {"sum": Entry(("torch.sum",), ("float32",), ())}
    coverage = measure(loaded(written(tmp_path, CASES)).variants, entries)
    assert "optional arguments of the operators called" in render(coverage)
    assert "argument Tensor.flatten end_dim: not given" in missing_lines(coverage)
