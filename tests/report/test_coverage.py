"""What variants exercise by their text."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from runner.contract.oracles import ORACLES, ROWS
from runner.report.coverage import (
    SPACES,
    Coverage,
    Entry,
    Part,
    can_fire,
    count_constructs,
    format_names,
    input_kinds,
    measure,
    missing_lines,
    reached_parts,
    render,
    to_dict,
)
from tests.handmade import loaded, written

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "schema" / "coverage.schema.json").read_text())

ENTRIES = {
    "add": Entry(("aten.add", "operator.add", "torch.add"), ("float32", "float64"), ("float32",)),
    "__radd__": Entry(("operator.add of a number",), ("float32",), ("float32",)),
    "abs": Entry(("Tensor.abs", "torch.abs"), ("float32", "int64"), ("float32",)),
    "sign": Entry(("torch.sign",), ("float32",), ()),
    "secret": Entry(("torch.no_such",), ("float32",), ()),
}

CASES = """\
cases:
  - name: added
    inputs: {x: {shape: [2], requires_grad: true}}
    chain: [{aten.add.Tensor: [$x, $x]}]
    dtypes: [float32, float64]
    grad: [forward, backward]
  - name: within
    inputs: {x: {shape: [2], dtype: int64}}
    chain:
      - if: "${x.shape[0] > 1}"
        do: [torch.abs]
"""


def covered(folder: Path, text: str = CASES, backends: tuple[str, ...] = ("eager", "inductor")) -> Coverage:
    return measure(loaded(written(folder, text), backends=[*backends]).variants, ENTRIES)


def test_a_name_counts_in_any_of_its_spellings_with_its_dtypes_and_in_a_backward(tmp_path: Path) -> None:
    coverage = covered(tmp_path)
    assert coverage.database == {
        "names": Part(("abs", "add"), ("__radd__", "sign")),
        "dtypes": Part(
            ("abs int64", "add float32", "add float64"), ("__radd__ float32", "abs float32", "sign float32")
        ),
        "backward": Part(("add",), ("__radd__", "abs")),
    }
    assert coverage.refused == ("secret",)


def test_a_variant_counts_once_whatever_its_backends(tmp_path: Path) -> None:
    coverage = covered(tmp_path)
    assert (coverage.cases, coverage.variants, coverage.unknown) == (2, 5, 0)
    assert coverage == covered(tmp_path, backends=("eager",))
    assert coverage.axes["dtype"] == {"float32": 3, "float64": 2} and coverage.axes["grad"] == {"forward": 3, "backward": 2}  # fmt: skip


def test_a_number_before_a_tensor_is_a_name_of_its_own(tmp_path: Path) -> None:
    text = "cases:\n  - {name: a, inputs: {x: [2]}, chain: [{operator.add: [%s, $x]}]}\n"
    assert covered(tmp_path, text % "2").database["names"].covered == ("__radd__", "add")
    assert covered(tmp_path, text % "$x").database["names"].covered == ("add",)


def test_names_of_the_format(tmp_path: Path) -> None:
    parts = covered(tmp_path).format
    assert parts["aten"].covered == ("aten.add",) and parts["torch"].covered == ("torch.abs",)
    assert len(parts["torch"].missing) == len(format_names("torch")) - 1 > 500
    assert "torch.save" not in parts["torch"].missing
    assert all(format_names(space) for space in SPACES)


def test_a_model_in_python_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("")
    text = "cases:\n  - {name: a, inputs: {x: [2]}, module: {file: m.py, name: M}}\n"
    coverage = measure(loaded(written(tmp_path, text), allow_python=True).variants, ENTRIES)
    assert coverage.unknown == 1 and coverage.database["names"].covered == ()
    assert "1 of them of models in Python" in render(coverage)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("[]", {"rank 0"}),
        ("[0, 3]", {"rank 2", "empty"}),
        ("[1, 3]", {"rank 2", "with a size of 1"}),
        ("['${n}']", {"rank 1", "with a size of 1"}),
        ("['${n + 4}']", {"rank 1"}),
        ("{shape: [2, 3], layout: [{Tensor.transpose: [$_, 0, 1]}]}", {"rank 2", "other strides"}),
        ("{shape: [2, 3], layout: [{Tensor.transpose: [$_, 0, 1]}, Tensor.clone]}", {"rank 2", "other strides"}),
        ("{shape: [2, 3], layout: [Tensor.clone]}", {"rank 2"}),
        ("{shape: [2, 1], layout: [{Tensor.expand: [$_, 2, 4]}]}", {"rank 2", "with a size of 1", "expanded"}),
        ("{shape: [1, 2, 3, 3], layout: [{Tensor.contiguous: {'*': [$_], memory_format: torch.channels_last}}]}", {"rank 4", "with a size of 1", "channels_last"}),
        ("{shape: [2, 3], layout: [{Tensor.transpose: [$_, 0, 1]}, Tensor.contiguous]}", {"rank 2"}),
        ("{values: [1.0, 2.0]}", set()),
    ],
)  # fmt: skip
def test_kinds_of_inputs(tmp_path: Path, text: str, kinds: set[str]) -> None:
    params = "    params: {n: [1]}\n" if "${n" in text else ""
    case = f"cases:\n  - name: a\n{params}    inputs: {{x: {text}}}\n    chain: [torch.abs]\n"
    assert {*covered(tmp_path, case).inputs} == kinds


ALWAYS = {row.name for row in ORACLES} - {
    "missing-error", "error-type", "graph-break", "graphs", "recompile", "kernels", "vectorized", "delegated", "out-of-bounds", "race",
    "unwritten", "sign-of-zero", "grad", "determinism", "batch-invariance", "twin",
}  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "oracles"),
    [
        ("", ALWAYS),
        ("grad: backward", ALWAYS | {"grad"}),
        ('grad: "off"', ALWAYS - {"requires-grad"}),
        ('ignore: {stride: "a reason"}', ALWAYS - {"stride"}),
        ("expect: {graphs: 1, recompiles: 0}", ALWAYS | {"graphs", "recompile"}),
        ("expect: {kernels: 1, vectorized: 1}", ALWAYS | {"kernels", "vectorized"}),
        ("tolerance: {exact: true}", ALWAYS | {"sign-of-zero"}),
        ("twin: [mask]", ALWAYS | {"twin"}),
        ("tolerance: {values: bitwise}", ALWAYS | {"sign-of-zero"}),
        ("tolerance: {values: deterministic}", ALWAYS | {"determinism"}),
        ("tolerance: {values: batch-invariant}", ALWAYS | {"batch-invariance"}),
        (
            "expect: {raises: {type: RuntimeError}}",
            {row.name for row in ORACLES if row.crash} | {"missing-error", "error-type"},
        ),
    ],
)
def test_oracles_that_can_fire(tmp_path: Path, keys: str, oracles: set[str]) -> None:
    text = f"cases:\n  - name: a\n    inputs: {{x: {{shape: [2], requires_grad: true}}}}\n    chain: [torch.abs]\n    {keys}\n"
    (variant,) = loaded(written(tmp_path, text)).variants
    assert {row.name for row in ORACLES if can_fire(row, variant)} == oracles


def test_what_cases_ask_for_is_counted(tmp_path: Path) -> None:
    text = "cases:\n  - name: a\n    inputs: {x: [2]}\n    chain: [torch.abs]\n    dtypes: [float32, float64]\n    expect: {graphs: 1}\n    ignore: {stride: why}\n"
    coverage = covered(tmp_path, text)
    assert coverage.expectations == {"expect: graphs": 2, "ignore": 2}
    assert coverage.oracles["graphs"] == 2 and "stride" not in coverage.oracles


# --- how it is shown ---


def test_the_tables_have_every_figure(tmp_path: Path) -> None:
    text = render(covered(tmp_path))
    rows = [line.split() for line in text.split("\n")]
    lines = [" ".join(row) for row in rows]
    assert text.startswith("2 cases, 5 variants without their backends\n")
    assert "names of torch's operator database 2 4 50.0%" in lines
    assert "each of these with each of its dtypes 3 6 50.0%" in lines
    assert "those with gradients, in a backward 1 3 33.3%" in lines
    assert "1 name of the database cannot be written" in text
    assert ["backward", "2"] in rows and ["grad", "2"] in rows


def test_what_is_missing_is_a_line_a_name(tmp_path: Path) -> None:
    assert missing_lines(covered(tmp_path)) == [
        "__radd__: not exercised",
        "sign: not exercised",
        "abs: without float32, without a backward",
        "secret: cannot be written in a case",
    ]


def test_without_a_database_the_rest_is_measured(tmp_path: Path) -> None:
    coverage = measure(loaded(written(tmp_path, CASES)).variants, {})
    assert coverage.database == {} and missing_lines(coverage) == []
    assert "operator database" not in render(coverage) and "names of the format: torch " in render(coverage)


def test_json_fits_the_published_schema(tmp_path: Path) -> None:
    document = json.loads(json.dumps(to_dict(covered(tmp_path))))
    jsonschema.Draft7Validator(SCHEMA).validate(document)
    assert document["database"]["names"]["missing"] == ["__radd__", "sign"]
    assert {*document["oracles"]} <= {*ROWS}


def test_a_kind_is_known_for_every_input(tmp_path: Path) -> None:
    text = "cases:\n  - name: a\n    inputs: {x: [4], y: {view_of: x, layout: [{Tensor.narrow: [$_, 0, 0, 2]}]}}\n    chain: [{torch.dot: [$x, $x]}, {torch.add: [$_, $y]}]\n"
    (variant,) = loaded(written(tmp_path, text)).variants
    assert [{*input_kinds(item)} for item in variant.case.inputs] == [{"rank 1"}, {"view of another input", "other strides"}]  # fmt: skip


def test_what_a_run_reached_is_a_part_of_the_compiler_s_tables() -> None:
    tables = {"decomposition": ["aten.silu", "aten.gelu"], "lowering": ["aten.relu"]}
    reached = [
        "decomposition aten.silu",
        "lowering aten.own",
        "fallback aten.sort",
        "pass binary_folding",
        "step torch.sin",
    ]
    parts = reached_parts(reached, tables)
    assert parts["decomposition"] == Part(("aten.silu",), ("aten.gelu",))
    assert parts["lowering"] == Part(("aten.own",), ("aten.relu",)), "a lowering that a package registered"
    assert parts["fallback"] == Part(("aten.sort",), ()) and parts["pass"] == Part(("binary_folding",), ())
    assert parts["operator"] == Part((), ()) and "line" not in parts


def test_of_lines_only_those_of_the_compiler_s_source_count() -> None:
    reached = ["line _inductor/ir.py:1-3", "line _inductor/ir.py:9", "line elsewhere.py:1-60000", "line nonsense"]
    parts = reached_parts(reached, {"line": ["line _inductor/ir.py:2-5,9"]})
    assert parts["line"].covered == ("_inductor/ir.py:2", "_inductor/ir.py:3", "_inductor/ir.py:9")
    assert parts["line"].missing == ("_inductor/ir.py:4", "_inductor/ir.py:5")
    coverage = measure([], {"sin": Entry(("torch.sin",), ("float32",), ())}, parts)
    assert "lines of the compiler 3 5 60.0%" in [" ".join(row.split()) for row in render(coverage).split("\n")]
    assert "line _inductor/ir.py:4-5: not reached" in missing_lines(coverage)


def test_a_construct_of_generated_code_counts_the_variants_that_have_it() -> None:
    tables = {"construct": ["C++ masked load", "C++ parallel loop"]}
    reached = [{"construct C++ parallel loop", "lowering aten.sin"}, {"construct C++ parallel loop"}, {"pass x"}]
    constructs = count_constructs(reached, tables)
    assert constructs == {"C++ parallel loop": 2, "C++ masked load": 0}
    coverage = measure([], {}, reached_parts(set().union(*reached), tables), constructs)
    rows = [" ".join(row.split()) for row in render(coverage).split("\n")]
    assert {"C++ parallel loop 2", "C++ masked load 0"} <= {*rows}
    assert "constructs of the code that Inductor writes 1 2 50.0%" in rows
    with_database = measure([], ENTRIES, reached_parts(set().union(*reached), tables), constructs)
    assert "construct C++ masked load: not reached" in missing_lines(with_database)
    jsonschema.Draft7Validator(SCHEMA).validate(json.loads(json.dumps(to_dict(coverage))))
