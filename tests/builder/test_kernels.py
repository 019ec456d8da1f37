"""``runner.builder.chain`` and ``source``: kernels as source, and the two models that hold them against their references."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from runner.builder.source import Source, build
from runner.cases.model import Variant
from runner.diagnose.repro import script
from runner.session.collect import load

PYTHON = """\
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, total_ptr, n, factor, BLOCK: tl.constexpr):
    pass
"""

KERNEL = """
    file: scale.py
    function: scale_kernel
    arguments: [$x, $out, $total, "${x.numel()}", $factor]
    scalars: {factor: float}
    outputs:
      out: {like: x}
      total: {like: x, shape: ["${x.shape[0]}", 2], dtype: float32, fill: 0}
    grid: ["${cdiv(x.numel(), BLOCK)}", 3]
    constants: {BLOCK: [16, 32], num_warps: 4}
    reference:
      - torch.mul: [$x, $factor]
        out: scaled
      - torch.sum: [$_, "${BLOCK - 16}"]
    return: [$scaled, $_]
"""


def variants(tmp_path: Path, chain: str, kernel: str = KERNEL, keys: str = "", python: str = PYTHON) -> list[Variant]:
    (tmp_path / "scale.py").write_text(python, encoding="utf-8")
    path = tmp_path / "a.spec.yaml"
    case = f"cases:\n  - name: a\n    inputs: {{x: [2, 3]}}\n    chain: {chain}\n{keys}"
    path.write_text(f"kernels:\n  scale:{kernel}{case}", encoding="utf-8")
    loaded = load([str(path)], allow_python=True, backends=["triton"])
    assert [d.message for d in loaded.diagnostics] == []
    return list(loaded.variants)


def source(tmp_path: Path, chain: str = "[{triton.scale: [$x, 2.0]}]", **parts: str) -> Source:
    return build(variants(tmp_path, chain, **parts)[0])


def problems(tmp_path: Path, chain: str, **parts: Any) -> list[str]:
    (tmp_path / "scale.py").write_text(parts.pop("python", PYTHON), encoding="utf-8")
    path = tmp_path / "a.spec.yaml"
    path.write_text(
        f"kernels:\n  scale:{KERNEL}cases:\n  - name: a\n    inputs: {{x: [2, 3]}}\n    chain: {chain}\n",
        encoding="utf-8",
    )
    diagnostics = load([str(path)], allow_python=True).diagnostics
    return [d.message + (f" | {d.hint}" if d.hint else "") for d in diagnostics]


def function(text: str, name: str) -> list[str]:
    definition = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == name)
    return [ast.unparse(line) for line in definition.body]


def test_the_launch_as_source(tmp_path: Path) -> None:
    text = source(tmp_path).text
    assert "def launch_scale(x: torch.Tensor, factor: float) -> tuple[torch.Tensor, torch.Tensor]:" in text
    assert function(text, "launch_scale")[1:] == [
        "out = torch.empty_like(x)",
        "total = x.new_full((x.shape[0], 2), 0, dtype=torch.float32)",
        "launch(scale_kernel, (cdiv(x.numel(), 16), 3), {'x_ptr': x, 'out_ptr': out, 'total_ptr': total, 'n': x.numel(), "
        "'factor': factor, 'BLOCK': 16, 'num_warps': 4}, ['out_ptr'])",
        "return (out, total)",
    ]
    assert "from triton import cdiv\n" in text


def test_the_reference_as_source(tmp_path: Path) -> None:
    first, second = variants(tmp_path, "[{triton.scale: [$x, 2.0]}]")
    body = ["scaled = torch.mul(x, factor)", "y = torch.sum(scaled, 0)", "return (scaled, y)"]
    assert function(build(first).text, "reference_scale") == body
    assert "torch.sum(scaled, 16)" in build(second).text and "'BLOCK': 32" not in build(first).text


def test_two_models_differ_in_what_they_call_alone(tmp_path: Path) -> None:
    text = source(
        tmp_path,
        "[{nn.Linear: [3, 3]}, {triton.scale: {x: $_, factor: 0.5}, out: [a, b]}, {torch.neg: $a}]",
        keys="    return: [$_, $b]\n",
    ).text
    tree = {n.name: n for n in ast.parse(text).body if isinstance(n, ast.ClassDef)}
    forward = {name: ast.unparse(node.body[-1]) for name, node in tree.items()}
    assert forward["KernelModel"] == forward["Model"].replace("reference_scale", "launch_scale")
    assert [n.name for n in tree["KernelModel"].body] == ["forward"]  # type: ignore[attr-defined]
    assert function(text, "make_kernel_model") == [
        line.replace("Model()", "KernelModel()") for line in function(text, "make_model")
    ]


def test_the_kernels_file_stands_as_it_is_and_knows_its_lines(tmp_path: Path) -> None:
    code = source(tmp_path)
    lines = code.text.splitlines()
    number = lines.index("def scale_kernel(x_ptr, out_ptr, total_ptr, n, factor, BLOCK: tl.constexpr):")
    place = code.places[number]
    assert place is not None and (Path(place.file).name, place.line) == ("scale.py", 8)
    assert code.text.count("from __future__") == 1 and lines.index("from __future__ import annotations") < lines.index(
        "import torch"
    )
    compile(code.text, "case.py", "exec")


def test_a_reference_may_be_a_function_of_the_file(tmp_path: Path) -> None:
    kernel = KERNEL[: KERNEL.index("    reference:")] + "    reference: by_hand\n"
    text = source(tmp_path, kernel=kernel, python=PYTHON + "\n\ndef by_hand(x, factor):\n    return x, x\n").text
    assert function(text, "reference_scale") == ["return by_hand(x, factor)"]


def test_computed_constants_are_variables(tmp_path: Path) -> None:
    kernel = KERNEL.replace("BLOCK: [16, 32]", 'BLOCK: "${next_power_of_2(x.numel())}"').replace('"${BLOCK - 16}"', "0")
    body = function(source(tmp_path, kernel=kernel).text, "launch_scale")
    assert body[1] == "BLOCK = next_power_of_2(x.numel())" and "'BLOCK': BLOCK" in body[-2]


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ("[{triton.scale: [$x]}]", "triton.scale is not given factor | it takes x, factor"),
        ("[triton.scale]", "triton.scale is not given factor | it takes x, factor"),
        ("[{triton.scale: [$x, 1, 2]}]", "triton.scale takes 2 inputs, not 3 | it takes x, factor"),
        ('[{triton.scale: {"*": [$x, 1], x: $x}}]', "triton.scale is given 'x' twice"),
        ("[{triton.scale: {x: $x, facto: 1, factor: 1}}]", "triton.scale has no input 'facto' | did you mean 'factor'?"),
        ("[{triton.scal: [$x, 1]}]", "this file declares no kernel 'scal' | did you mean 'scale'?"),
        ("[{torch.neg: $x, out: launch_scale}, {triton.scale: [$launch_scale, 1]}]", "'launch_scale' is what a kernel's function is called | name it otherwise"),
    ],
)  # fmt: skip
def test_wrong_calls(tmp_path: Path, chain: str, expected: str) -> None:
    assert problems(tmp_path, chain) == [expected]


def test_a_layout_launches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.spec.yaml"
    path.write_text(
        "cases:\n  - {name: a, inputs: {x: {shape: [2], layout: [triton.scale]}}, chain: [F.relu]}\n", encoding="utf-8"
    )
    assert [d.message for d in load([str(path)]).diagnostics] == ["triton.scale cannot be launched here"]


def test_a_kernels_file_leaves_the_sources_names_alone(tmp_path: Path) -> None:
    texts = problems(tmp_path, "[{triton.scale: [$x, 1]}]", python=PYTHON + "\n\nModel = 1\n")
    assert texts == ["scale.py:12 defines 'Model', which the written source uses itself | call it otherwise"]


@pytest.mark.parametrize(("backend", "called"), [("triton", "call = model"), ("triton-compiled", "become_operators()")])
def test_the_script_holds_one_model_against_the_other(tmp_path: Path, backend: str, called: str) -> None:
    variants(tmp_path, "[{triton.scale: [$x, 2.0]}]")
    loaded = load([str(tmp_path / "a.spec.yaml")], allow_python=True, backends=[backend], devices=["cuda"])
    text = script(loaded.variants[0])
    compile(text, "repro.py", "exec")
    assert "model = (make_kernel_model if compiled else make_model)()\n" in text and called in text
    assert "TRITON_INTERPRET" not in text


def test_the_script_asks_for_the_interpreter_before_triton_is_imported(tmp_path: Path) -> None:
    text = script(variants(tmp_path, "[{triton.scale: [$x, 2.0]}]")[0])
    compile(text, "repro.py", "exec")
    assert text.index("from __future__") < text.index('"TRITON_INTERPRET": "1"') < text.index("from triton import cdiv")
