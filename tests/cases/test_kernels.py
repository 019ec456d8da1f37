"""``runner.cases.kernels`` and ``signature``: what ``kernels:`` says, and what is wrong with it, at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cases.limits import Limits
from runner.cases.model import Kernel, Suite
from runner.cases.python_files import top_names
from runner.cases.suites import Reader
from runner.session.collect import load

PYTHON = """
import triton
import triton.language as tl
from triton import jit

SIZE: tl.constexpr = 4
LEFT, right = 1, 2

@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, scale=1.0, BLOCK: tl.constexpr = 16):
    pass

@triton.autotune(configs=[], key=[])
@jit(noinline=True)
def tuned(x_ptr, out_ptr, BLOCK: tl.constexpr, num: "tl.constexpr"):
    pass

def plain(x):
    return x

class Helper:
    pass
"""

KEYS = {
    "file": "add.py",
    "function": "add_kernel",
    "arguments": '[$x, $y, $out, "${x.numel()}"]',
    "outputs": "{out: {like: x}}",
    "grid": '["${cdiv(x.numel(), BLOCK)}"]',
    "constants": "{BLOCK: [64, 128], num_warps: 4}",
    "reference": "[{torch.add: [$_, $y]}]",
}
CASE = "  - {name: a, inputs: {x: [3], y: [3]}, chain: [{triton.add: [$_, $y]}]}"


def written(tmp_path: Path, case: str = CASE, **changes: str | None) -> Path:
    """A spec file with one kernel: ``file:`` is in line 3, the other keys follow."""
    (tmp_path / "add.py").write_text(PYTHON, encoding="utf-8")
    keys = {**KEYS, **changes}
    body = "".join(f"    {key.rstrip('_')}: {value}\n" for key, value in keys.items() if value is not None)
    path = tmp_path / "a.spec.yaml"
    path.write_text(f"kernels:\n  add:\n{body}cases:\n{case}\n", encoding="utf-8")
    return path


def read(path: Path) -> tuple[Suite, list[str]]:
    reader = Reader(Limits())
    suite = reader.suites([path])[0]
    problems = [
        f"{d.span.line}:{d.span.column}: {d.message}" + (f" | {d.hint}" if d.hint else "") for d in reader.problems
    ]
    return suite, problems


def kernel(tmp_path: Path, **changes: str | None) -> Kernel:
    suite, problems = read(written(tmp_path, **changes))
    assert problems == []
    return suite.cases[0].kernels[0]


def test_a_kernel_is_read(tmp_path: Path) -> None:
    call = kernel(tmp_path)
    assert (call.name, call.function, call.file) == ("add", "add_kernel", str(tmp_path.resolve() / "add.py"))
    assert call.inputs == ("x", "y") and [output.name for output in call.outputs] == ["out"]
    assert [name for name, _ in call.arguments] == ["x_ptr", "y_ptr", "out_ptr", "n"]
    assert set(call.constants) == {"BLOCK", "num_warps"}


def test_inputs_come_in_the_order_of_their_first_appearance(tmp_path: Path) -> None:
    changes = {
        "arguments": '{n: "${b.numel() + a.dim()}", x_ptr: $x, y_ptr: $y, out_ptr: $out}',
        "scalars": "{c: float}",
    }
    chain = "  - {name: a, inputs: {x: [3]}, chain: [{triton.add: [$x, $x, $x, $x, 1]}]}"
    suite, problems = read(written(tmp_path, chain, **changes, grid='["${c}"]'))
    assert problems == [] and suite.cases[0].kernels[0].inputs == ("b", "a", "x", "y", "c")


def test_constants_with_alternatives_are_axes(tmp_path: Path) -> None:
    loaded = load([str(written(tmp_path))], allow_python=True, backends=["triton"])
    assert [v.id.partition("::")[2] for v in loaded.variants] == [
        "a[add.BLOCK=64,float32,cpu]@triton",
        "a[add.BLOCK=128,float32,cpu]@triton",
    ]


@pytest.mark.parametrize(
    ("params", "count"), [("{add.BLOCK: [32]}", 1), ("{add.BLOCK: [1, 2, 3]}", 3), ("{add.num_warps: [1, 2]}", 4)]
)
def test_a_case_may_say_otherwise(tmp_path: Path, params: str, count: int) -> None:
    case = CASE.replace("chain:", f"params: {params}, chain:")
    loaded = load([str(written(tmp_path, case))], allow_python=True, backends=["triton"])
    assert loaded.diagnostics == () and len(loaded.variants) == count


def test_combinations_of_constants_can_be_left_out(tmp_path: Path) -> None:
    case = CASE.replace("chain:", "exclude: [{add.BLOCK: 64}], chain:")
    loaded = load([str(written(tmp_path, case))], allow_python=True, backends=["triton"])
    assert loaded.diagnostics == () and len(loaded.variants) == 1


def test_a_file_with_kernels_runs_under_what_launches_them(tmp_path: Path) -> None:
    suite, _ = read(written(tmp_path))
    assert [backend.name for backend in suite.backends] == ["triton", "triton-compiled"]
    suite, _ = read(written(tmp_path, CASE + "\n  - {name: b, inputs: {x: [3]}, chain: [F.relu]}"))
    assert [backend.name for backend in suite.backends] == ["inductor", "triton", "triton-compiled"]


def test_kernels_need_the_persons_word(tmp_path: Path) -> None:
    loaded = load([str(written(tmp_path))])
    assert loaded.variants == ()
    assert [(d.message, d.hint) for d in loaded.errors] == [
        ("kernel 'add' is Python, which brings code of its own", "read that file, then add --allow-python")
    ]


WRONG = {
    "file: other.py": ({"file": "other.py"}, ["3:11: no file 'other.py' beside this one"]),
    "file: outside": ({"file": "../a.py"}, ["3:11: no file '../a.py' beside this one"]),
    "file: no Python": ({"file": "bad.py"}, ["3:11: bad.py is no Python in line 1: invalid syntax"]),
    "function: unknown": ({"function": "ad_kernel"}, ["4:15: add.py defines no function 'ad_kernel' | did you mean 'add_kernel'?"]),
    "function: plain": ({"function": "plain"}, ["4:15: 'plain' in add.py is no kernel: it lacks @triton.jit | its kernels: add_kernel, tuned"]),
    "too many arguments": (
        {"arguments": "[$x, $y, $out, 1, 2, 3]"},
        ["5:37: add_kernel takes 5 arguments, not 6 | besides constants it takes x_ptr, y_ptr, out_ptr, n, scale"],
    ),
    "too few arguments": ({"arguments": "[$x, $y, $out]"}, ["5:16: add_kernel is not given n"]),
    "unknown argument": (
        {"arguments": "{x_ptr: $x, y_ptr: $y, out: $out, n: 1}"},
        [
            "5:39: 'out' is no parameter of it | did you mean 'out_ptr'?",
            "5:16: add_kernel is not given out_ptr",
        ],
    ),
    "an argument that is a constant": (
        {"arguments": "{x_ptr: $x, y_ptr: $y, out_ptr: $out, n: 1, BLOCK: 2}"},
        ["5:60: 'BLOCK' is a constant already | it takes x_ptr, y_ptr, out_ptr, n, scale"],
    ),
    "an attribute": (
        {"arguments": "[$x, $y, $out, $x.ndim]"},
        ["5:31: arguments name inputs, outputs and constants: $x | sizes are ${x.shape[0]}"],
    ),
    "the previous value": (
        {"arguments": "[$_, $y, $out, 1]", "outputs": "{out: {like: y}}", "grid": "[1]"},
        [
            "5:17: arguments name inputs, outputs and constants: $x | sizes are ${x.shape[0]}",
            "5:17: '_' cannot name an input | names are Python names that the source does not use itself",
        ],
    ),
    "an expression": ({"grid": '["${log(x.numel())}"]'}, ["7:15: in ${log(x.numel())}: no function 'log' here; there are min, max, len, abs, cdiv, next_power_of_2"]),
    "a grid of text": ({"grid": "[many]"}, ['7:12: a grid holds integers and ${...} | such as ["${cdiv(x.numel(), BLOCK)}"]']),
    "an unused output": (
        {"outputs": "{out: {like: x}, more: {like: x}}", "return": "[$x, $y]"},
        ["6:31: output 'more' is passed to no argument | write $more among the arguments"],
    ),
    "an output like nothing": ({"outputs": "{out: {like: z}}", "scalars": "{z: int}"}, ["6:15: output 'out' is like 'z', which is no tensor input"]),
    "an output of no size": ({"outputs": "{out: {dtype: float32}}"}, ["6:15: output 'out' has neither like: nor shape: | such as {like: x}"]),
    "an output of no dtype": (
        {"outputs": "{out: {like: x, dtype: float31}}"},
        ["6:37: torch has no dtype 'float31' | did you mean 'float32'?"],
    ),
    "an unknown constant": (
        {"constants": "{BLOK: 64}", "grid": "[1]"},
        ["8:17: kernel function 'add_kernel' has no parameter 'BLOK' | did you mean 'BLOCK'?"],
    ),
    "alternatives that are computed": (
        {"constants": '{BLOCK: [64, "${x.numel()}"]}'},
        ["8:29: a constant is a number, text or ${...}; alternatives are plain values"],
    ),
    "an unknown scalar": ({"scalars": "{z: int}"}, ["10:15: 'z' is no input of kernel 'add'"]),
    "no reference function": ({"reference": "plan"}, ["9:16: the kernel's file defines no plain function 'plan' | did you mean 'plain'?"]),
    "results that are too few": (
        {"outputs": "{out: {like: x}, more: {like: x}}", "arguments": "[$x, $out, $more, 1]"},
        ["2:3: the kernel has 2 outputs, its reference gives 1 | return: [$a, $b] lists them"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_at_its_place(tmp_path: Path, name: str) -> None:
    changes, expected = WRONG[name]
    (tmp_path / "bad.py").write_text("def f(:\n", encoding="utf-8")
    suite, problems = read(written(tmp_path, **changes))
    assert problems == expected
    assert suite.cases == ()  # and nothing more is said about the cases that launch it


def test_a_dotted_param_is_a_constant(tmp_path: Path) -> None:
    _, problems = read(written(tmp_path, CASE.replace("chain:", "params: {add.BLOK: [1]}, chain:")))
    assert problems == [
        "11:50: 'add.BLOK' is no constant of a kernel that the chain launches | did you mean 'add.BLOCK'?"
    ]


def test_a_tuned_kernel_may_get_its_constants_from_the_tuner(tmp_path: Path) -> None:
    assert kernel(
        tmp_path, function="tuned", arguments="[$x, $out]", grid="[1]", constants="{}", reference="plain"
    ).inputs == ("x",)


def test_a_constant_without_a_value_is_missed(tmp_path: Path) -> None:
    python = PYTHON.replace("@triton.autotune(configs=[], key=[])\n", "")
    path = written(tmp_path, function="tuned", arguments="[$x, $out]", grid="[1]", constants="{}", reference="plain")
    (tmp_path / "add.py").write_text(python, encoding="utf-8")
    assert read(path)[1] == ["5:16: tuned is not given BLOCK, num | constants: gives those that are tl.constexpr"]


def test_what_a_file_defines() -> None:
    assert top_names(PYTHON) == {
        "SIZE": 6,
        "LEFT": 7,
        "right": 7,
        "add_kernel": 10,
        "tuned": 15,
        "plain": 18,
        "Helper": 21,
    }


def test_the_example_of_the_docs_reads(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    text = (root / "docs" / "kernels.md").read_text(encoding="utf-8")
    (tmp_path / "a.spec.yaml").write_text(text.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    (tmp_path / "add.py").write_text(
        (root / "specs" / "kernels" / "add.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    loaded = load([str(tmp_path / "a.spec.yaml")], allow_python=True, devices=["cpu"])
    assert loaded.diagnostics == () and len(loaded.variants) == 24


def test_the_shipped_kernels_read() -> None:
    suite = Path(__file__).resolve().parents[2] / "suites" / "kernels.suite.yaml"
    loaded = load([str(suite)], allow_python=True, everything=True)
    assert loaded.diagnostics == ()
    kernels = {kernel.name for variant in loaded.variants for kernel in variant.case.kernels}
    assert len(kernels) == 14 and {variant.backend.name for variant in loaded.variants} == {"triton", "triton-compiled"}


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ('"${next_power_of_2(1.5)}"', "in ${next_power_of_2(1.5)}: cdiv and next_power_of_2 take integers"),
        ('"${abs((-8) ** 0.5)}"', "a grid has 0 to 2147483647 programs each way, not 2.8284271247461903"),
        ('"${1e400}"', "a grid has 0 to 2147483647 programs each way, not .inf"),
        ('"${1 < 2}"', "a grid has 0 to 2147483647 programs each way, not true"),
        ('"${0 - BLOCK}"', "a grid has 0 to 2147483647 programs each way, not -64"),
        ("2147483648", "a grid has 0 to 2147483647 programs each way, not 2147483648"),
        ("-1", "a grid has 0 to 2147483647 programs each way, not -1"),
        ('"${1 // 0}"', "in ${1 // 0}: division by zero"),
        ('"${2 ** 99999999}"', "in ${2 ** 99999999}: the power has more than 128 bits"),
    ],
)
def test_a_grid_that_cannot_be_launched(tmp_path: Path, size: str, message: str) -> None:
    loaded = load([str(written(tmp_path, grid=f"[{size}]", constants="{BLOCK: 64}"))], allow_python=True)
    assert loaded.variants == ()
    assert [d.message for d in loaded.errors] == [message]
    assert {d.span.line for d in loaded.errors} <= {2, 7}


@pytest.mark.parametrize("size", ["0", "2147483647", '"${cdiv(100, BLOCK)}"', '"${x.numel() - 5}"'])
def test_a_grid_that_can_be_launched(tmp_path: Path, size: str) -> None:
    loaded = load([str(written(tmp_path, grid=f"[{size}]", constants="{BLOCK: 64}"))], allow_python=True)
    assert not loaded.errors and loaded.variants


@pytest.mark.parametrize(
    "text", ["(" * 300, "x = " + "-" * 20_000 + "1", "def f(x: " + "+".join("a" * 5000) + "): pass", "\0"]
)
def test_python_that_troubles_the_parser(tmp_path: Path, text: str) -> None:
    path = written(tmp_path)
    (tmp_path / "add.py").write_text(text)
    _, problems = read(path)
    assert len(problems) == 1 and problems[0].startswith("3:11: add.py is no Python")


def test_python_that_is_too_large(tmp_path: Path) -> None:
    path = written(tmp_path)
    (tmp_path / "add.py").write_text("#" * 2_000_000)
    _, problems = read(path)
    assert problems == [
        "3:11: 'add.py' is larger than 1 MiB | the limit is file_bytes=1048576; change it with --limit file_bytes=N"
    ]
