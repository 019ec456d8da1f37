"""Which operator a finding speaks of, by the text of its case."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from runner.cases.model import Items
from runner.cases.suites import Reader
from runner.contract.finding import Finding
from runner.verdict.operators import first_operator, named_part, observed_case, plain_form, written_input
from tests.handmade import loaded, written

CHAIN = """\
- torch.abs: $x, out: a
- {torch.mul: [$a, $y], out: b}
- {torch.sort: $b, out: [c, d]}
- {operator.iadd: [$a, 1]}
- {Tensor.add_: [$y, 2]}
- {torch.neg: $c, out: e}
- {torch.stack: [[$d, $e]], out: f}
"""


def operator(folder: Path, returned: str, *paths: str, chain: str = CHAIN, place: str | None = None) -> str:
    """The operator of findings at these paths."""
    body = indent(chain, "      ") + (f"    return: {returned}\n" if returned else "")
    text = f"cases:\n  - name: a\n    inputs: {{x: [3], y: [3]}}\n    chain:\n{body}"
    (variant, *_) = loaded(
        written(folder, text.replace("- torch.abs: $x, out: a", "- {torch.abs: $x, out: a}"))
    ).variants
    findings = [Finding("value", "", path, place=place and f"{variant.case.file}:{place}") for path in paths]
    return first_operator(variant.case, findings)


@pytest.mark.parametrize(
    ("returned", "path", "name"),
    [
        ("", "output", "torch.stack"),
        ("", "call 2, output", "torch.stack"),
        ("[$b, $f]", "output[0]", "torch.mul"),
        ("[$b, $d, $e, $f]", "output[1]", "torch.sort"),
        ("[$b, $d, $e, $f]", "call 1, output[2]", "torch.neg"),
        ("{k0: $f, k1: [$e, $c]}", "output['k1'][1]", "torch.sort"),
        ("[$a, $f]", "output[0]", "operator.iadd"),  # the last that wrote into it
        ("[$y, $f]", "output[0]", "Tensor.add_"),
        ("[$x, $f]", "output[0]", ""),  # nothing made it
        ("[$b, $f]", "output[7]", ""),
        ("$f", "gradient of x", "torch.abs"),
        ("$f", "gradient of y, order 2", "torch.mul"),
        ("$f", "call 0, input y", "Tensor.add_"),
        ("$f", "input x", "torch.abs"),
        ("$f", "state", ""),
        ("$f", "", ""),
    ],
)
def test_the_step_of_a_path(tmp_path: Path, returned: str, path: str, name: str) -> None:
    assert operator(tmp_path, returned, path) == name


def test_of_several_findings_the_first_step_counts(tmp_path: Path) -> None:
    assert operator(tmp_path, "[$e, $b, $d, $f]", "output[0]", "output[2]") == "torch.sort"
    assert operator(tmp_path, "[$e, $b, $d, $f]", "output[2]", "state") == "torch.sort"


def test_a_place_in_the_chain_comes_before_the_path(tmp_path: Path) -> None:
    assert operator(tmp_path, "$f", "output", place="6:9") == "torch.mul"
    assert operator(tmp_path, "$f", "output", place="3:9") == "torch.stack"


def test_the_only_step_is_meant_whatever_the_path(tmp_path: Path) -> None:
    assert operator(tmp_path, "", "", chain="- torch.neg: [$x]\n- torch.add: [$_, $y]\n") == ""
    assert operator(tmp_path, "", "", chain="- torch.add: [$x, $y]\n") == "torch.add"


def test_the_first_step_takes_the_first_input_without_a_name(tmp_path: Path) -> None:
    chain = "- F.relu\n- torch.add: [$_, $y]\n"
    assert operator(tmp_path, "", "gradient of x", chain=chain) == "F.relu"
    assert operator(tmp_path, "", "gradient of y", chain=chain) == "torch.add"


def test_a_layer_takes_the_first_input_without_a_call(tmp_path: Path) -> None:
    assert operator(tmp_path, "", "gradient of x", chain="- nn.Linear: [3, 3]\n- torch.add: [$_, $y]\n") == "nn.Linear"
    called = "- {nn.Linear: [3, 3], call: [$y]}\n- {torch.add: [$_, $x]}\n"
    assert operator(tmp_path, "", "gradient of x", chain=called) == "torch.add"


def test_a_write_is_looked_at_where_it_is_made(tmp_path: Path) -> None:
    """A graph may give the right product, and leave the tensor as it was."""
    chain = "- {torch.sin: $x, out: s}\n- {Tensor.mul_: [$s, 2]}\n- {F.relu: {input: $y, inplace: true}}\n- {torch.exp: $s}\n"
    text = f"cases:\n  - name: a\n    inputs: {{x: [3], y: [3]}}\n    chain:\n{indent(chain, '      ')}"
    (variant, *_) = loaded(written(tmp_path, text)).variants
    observed = observed_case(variant.case)
    assert observed is not None and isinstance(observed.result, Items)
    names = [[item.name for item in getattr(value, "items", [value])] for value in observed.result.items]
    assert names == [["s"], ["value_0", "s"], ["value_1", "y"], ["value_2"]]


def test_blocks_count(tmp_path: Path) -> None:
    chain = "- {torch.neg: $x, out: a}\n- with: [torch.no_grad]\n  chain:\n    - {torch.mul: [$a, $y], out: b}\n"
    assert operator(tmp_path, "[$a, $b]", "output[1]", chain=chain) == "torch.mul"


@pytest.mark.parametrize(
    ("chain", "name"),
    [
        ("- {Tensor.add_: [$y, 1]}", "y"),
        ("- Tensor.relu_", "x"),
        ("- {Tensor.add_: [$_, 1]}", "x"),
        ("- torch.abs\n- Tensor.relu_", ""),
        ("- {Tensor.add_: ['$x[0]', 1]}", "x"),
        ("- {operator.setitem: [$y, 0, 1]}", "y"),
        ("- {operator.iadd: [$y, 1]}", "y"),
        ("- {operator.and_: [$x, $y]}", ""),
        ("- {operator.not_: [$x]}", ""),
        ("- {torch.add: [$x, 1], out: y}", ""),
        ("- {torch.add: {input: $x, other: 1, out: $y}}", "y"),
        ("- {F.relu: {input: $y, inplace: true}}", "y"),
        ("- {F.relu: {input: $y, inplace: false}}", ""),
        ("- {nn.ReLU: {inplace: true}}", "x"),
        ("- {nn.ReLU: {inplace: true}, call: [$y]}", "y"),
        ("- {aten.add_.Tensor: [$y, $x]}", "y"),
        ("- {torch.abs: [$x], out: a}\n- {Tensor.add_: [$a, 1]}", ""),
        ("- {torch.abs: [$x], out: x}\n- {Tensor.add_: [$x, 1]}", ""),
        ("- if: '${x.shape[0] > 2}'\n  do: [{Tensor.add_: [$y, 1]}]", "y"),
        ("- torch.abs\n- {torch.add: [$_, $y]}", ""),
    ],
)
def test_the_input_that_a_chain_writes_into(tmp_path: Path, chain: str, name: str) -> None:
    text = f"cases:\n  - name: a\n    inputs: {{x: [3], y: [3]}}\n    chain:\n{indent(chain, '      ')}\n"
    path = written(tmp_path, text)
    (case,) = Reader().spec(path, None)
    assert written_input(case) == name


MODELS = """import torch
class counter(torch.nn.Module):
    def forward(self, x):
        return x
class gate(counter):
    pass
"""


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("output", "models.py:{}"),
        ("call 1, output[0]", "models.py:{}"),
        ("call 1, attribute seen.sizes[2]", "models.py:{}, attribute seen.sizes"),
        ("buffer inner.total", "models.py:{}, buffer inner.total"),
        ("", "models.py:{}"),
    ],
)
def test_a_model_in_python_is_named_with_the_part_that_differs(tmp_path: Path, path: str, name: str) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    cases = [
        f"  - {{name: {n}, inputs: {{x: [2]}}, module: {{file: models.py, name: {n}}}}}" for n in ("counter", "gate")
    ]
    suite = loaded(written(tmp_path, "cases:\n" + "\n".join(cases)), allow_python=True)
    names = [named_part(variant.case, [Finding("value", "", path)]) for variant in suite.variants]
    assert names == [name.format("counter"), name.format("gate")]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("Tensor.log1p_", "torch.log1p"),
        ("torch.relu_", "torch.relu"),
        ("F.elu_", "F.elu"),
        ("Tensor.uniform_", "Tensor.uniform_"),  # it has no other form
        ("torch.log1p", "torch.log1p"),
        ("operator.iadd", "operator.iadd"),
        ("Tensor.__ior__", "Tensor.__ior__"),
        ("models.py:Net_", "models.py:Net_"),
        ("", ""),
    ],
)
def test_an_operator_in_place_is_named_as_its_plain_form(name: str, plain: str) -> None:
    assert plain_form(name) == plain
