"""``runner.worker.kernels.launches``, ``guards`` and ``interpreter``: what a launch does to memory is seen, and nothing else is.

Kernels without Triton stand for those that a GPU runs: a function of the arguments, which knows no mask and no watcher.
What needs Triton's interpreter runs in a process of its own, since the variable that asks for it is read once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from runner.worker.kernels.launches import Launches, launch_plainly
from runner.worker.kernels.redzones import RED_ZONE, copy_with_red_zones, pattern

DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int8,
    torch.bool,
    torch.complex64,
]


class Kernel:
    """Looks like a kernel: ``kernel[grid](**arguments)`` calls a function."""

    __name__ = "kernel"

    def __init__(self, body: Callable[..., None]) -> None:
        self.body = body
        self.calls = 0

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        self.calls += 1
        return self.body


def launch(body: Callable[..., None], new: list[str], **arguments: Any) -> tuple[Launches, Kernel]:
    module = ModuleType("case")
    module.__file__ = "case.py"
    launches, kernel = launch_plainly(module), Kernel(body)
    module.launch(kernel, (1,), arguments, new)
    return launches, kernel


def oracles(launches: Launches) -> list[str]:
    return [trespass.oracle for trespass in launches.trespasses]


def past(tensor: torch.Tensor, first: int, count: int = 1) -> torch.Tensor:
    """Memory beside a tensor, as a kernel's pointer arithmetic reaches it; counted in elements from its first."""
    return tensor.as_strided((count,), (1,), tensor.storage_offset() + first)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_kernel_that_writes_its_output_is_let_alone(dtype: torch.dtype) -> None:
    x = torch.ones(5, 7).to(dtype)
    out = torch.empty_like(x)
    launches, kernel = launch(lambda x, out: out.copy_(x), ["out"], x=x, out=out)
    assert (launches.count, kernel.calls, launches.trespasses) == (1, 1, [])
    assert torch.equal(out, x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_that_are_not_written_show(dtype: torch.dtype) -> None:
    x, out = torch.ones(9).to(dtype), torch.empty(9, dtype=dtype)
    launches, _ = launch(lambda x, out: out[:7].copy_(x[:7]), ["out"], x=x, out=out)
    assert oracles(launches) == ["unwritten"]
    assert launches.trespasses[0].message.startswith("2 of 9 elements")
    assert launches.trespasses[0].numbers["first"] == [7]
    assert torch.equal(out[:7], x[:7])


def test_a_value_that_happens_to_be_the_poison_is_no_finding() -> None:
    poison = int.from_bytes(bytes(pattern(torch.int8, 1)), "little")
    out = torch.empty(4, dtype=torch.int8)
    launches, kernel = launch(lambda out: out.fill_(poison), ["out"], out=out)
    assert launches.trespasses == [] and kernel.calls == 2  # the second time with other poison
    assert out.tolist() == [poison] * 4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("place", [-1, 9, 9 + 200, -RED_ZONE // 16], ids=["before", "after", "far", "farther"])
def test_a_write_beside_a_tensor_shows(dtype: torch.dtype, place: int) -> None:
    out = torch.empty(9, dtype=dtype)

    def body(out: torch.Tensor) -> None:
        past(out, place).fill_(True)
        out.fill_(True)

    launches, _ = launch(body, ["out"], out=out)
    assert oracles(launches) == ["out-of-bounds"]
    assert launches.trespasses[0].numbers["first"] // out.element_size() == place


def test_a_write_between_strided_elements_shows() -> None:
    wide = torch.zeros(4, 8)
    launches, _ = launch(lambda x: past(x, 3).fill_(1), [], x=wide[:, :3])
    assert oracles(launches) == ["out-of-bounds"] and "between its elements" in launches.trespasses[0].message
    assert wide.sum() == 0  # the case's own memory was out of reach


def test_what_is_read_beside_an_input_is_not_a_number() -> None:
    x, out = torch.ones(4), torch.empty(5)
    launch(lambda x, out: out.copy_(past(x, 0, 5)), ["out"], x=x, out=out)
    assert out[:4].tolist() == [1] * 4 and out[4].isnan()


def test_copied_poison_counts_as_written() -> None:
    x, out = torch.ones(4), torch.empty(4)
    launches, _ = launch(lambda x, out: past(out, 0, 5).copy_(past(x, 0, 5)), ["out"], x=x, out=out)
    assert oracles(launches) == ["out-of-bounds"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(12.0).reshape(3, 4).t(),
        lambda: torch.arange(24.0).reshape(4, 6)[1::2, 2:5],
        lambda: torch.arange(3.0).expand(4, 3),
        lambda: torch.arange(9.0)[1:],
        lambda: torch.empty(0, 3),
        lambda: torch.tensor(2.0),
        lambda: torch.arange(9.0).unfold(0, 3, 1),
    ],
)
def test_copies_keep_everything_that_a_kernel_sees(make: Callable[[], torch.Tensor]) -> None:
    tensor = make()
    copy = copy_with_red_zones({"x": tensor}, []).views["x"]
    assert torch.equal(copy, tensor) and copy.stride() == tensor.stride() and copy.dtype == tensor.dtype
    assert copy.data_ptr() != tensor.data_ptr() or not tensor.numel()
    if tensor.numel():
        assert copy.data_ptr() % 256 == tensor.data_ptr() % 256


def test_tensors_that_share_memory_still_do() -> None:
    x = torch.zeros(6)
    launches, _ = launch(lambda a, b: a.fill_(3), [], a=x[:4], b=x[2:])
    assert x.tolist() == [3, 3, 3, 3, 0, 0] and launches.trespasses == []


def test_an_input_that_is_written_changes_and_says_so() -> None:
    x = torch.zeros(3)
    version = x._version
    launch(lambda x: x.add_(1), [], x=x)
    assert x.tolist() == [1, 1, 1] and x._version > version


def test_what_a_kernel_raises_goes_through() -> None:
    def body(**arguments: Any) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        launch(body, [], x=torch.ones(2))


# --- in Triton's interpreter ---------------------------------------------------------------------

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)

@triton.jit
def reads_past(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, x, mask=at < n)

@triton.jit
def writes_far(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 1.0, mask=at < n)
    tl.store(out_ptr + 100000000000 + at, 1.0)

@triton.jit
def adds(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.load(out_ptr) + 1)

@triton.jit
def adds_atomically(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.atomic_add(out_ptr, 1.0)

@triton.jit
def writes_the_same(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.store(out_ptr, 5.0)

@triton.jit
def locks(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    while tl.atomic_cas(x_ptr, 0, 1) == 1:
        pass
    tl.store(out_ptr, tl.load(out_ptr) + 1)
    tl.atomic_xchg(x_ptr, 0)

@triton.jit
def sums(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n), axis=0))

@triton.jit
def sums_with_other(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0), axis=0))

@triton.jit
def block_pointer(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK
    x = tl.make_block_ptr(x_ptr, (n,), (1,), (at,), (BLOCK,), (0,))
    out = tl.make_block_ptr(out_ptr, (n,), (1,), (at,), (BLOCK,), (0,))
    tl.store(out, tl.load(x, boundary_check=(0,), padding_option="zero"), boundary_check=(0,))

@triton.jit
def asm(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    y = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out_ptr + tl.arange(0, BLOCK), y)

@triton.jit
def raises(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK == 7, "seven")

def launch(kernel, grid, arguments, new):
    raise AssertionError("not replaced")
"""

SCRIPT = """
import json, os, sys
os.environ["TRITON_INTERPRET"] = "1"
import importlib.util, torch
spec = importlib.util.spec_from_file_location("case", sys.argv[1])
case = importlib.util.module_from_spec(spec)
sys.modules["case"] = case
spec.loader.exec_module(case)
from runner.worker.kernels.launches import launch_plainly
def run(name, n=10, block=8, programs=2, x=None, out=None, new=("out_ptr",)):
    seen = launch_plainly(case)
    x = torch.ones(n) if x is None else x
    out = torch.empty(n) if out is None else out
    error = None
    try:
        case.launch(getattr(case, name), (programs,), {"x_ptr": x, "out_ptr": out, "n": n, "BLOCK": block}, list(new))
    except Exception as raised:
        error = type(raised).__name__
    found = [[f.oracle, f.path, f.message, f.line] for f in seen.trespasses]
    return {"found": found, "unable": seen.unable, "error": error, "out": out.tolist(), "notes": seen.notes}
zero = lambda: {"out": torch.zeros(1), "new": ()}
print(json.dumps({
    "copy": run("copy"),
    "block_pointer": run("block_pointer"),
    "reads_past": run("reads_past"),
    "writes_far": run("writes_far"),
    "adds": run("adds", **zero()),
    "adds_alone": run("adds", programs=1, **zero()),
    "adds_atomically": run("adds_atomically", **zero()),
    "writes_the_same": run("writes_the_same", **zero()),
    "locks": run("locks", x=torch.zeros(1, dtype=torch.int32), **zero()),
    "sums": run("sums", n=5, programs=1, **zero()),
    "sums_with_other": run("sums_with_other", n=5, programs=1, **zero()),
    "asm": run("asm", n=8, programs=1),
    "raises": run("raises"),
    "bfloat16": run("copy", x=torch.ones(10, dtype=torch.bfloat16), out=torch.empty(10, dtype=torch.bfloat16)),
}))
"""


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each kernel did in the interpreter: one process for all."""
    pytest.importorskip("triton")
    path = tmp_path_factory.mktemp("interpreted") / "case.py"
    path.write_text(KERNELS, encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.run([sys.executable, "-c", SCRIPT, str(path)], env=environ, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "name", ["copy", "block_pointer", "adds_alone", "adds_atomically", "writes_the_same", "locks", "sums_with_other"]
)
def test_a_sound_kernel_is_let_alone(interpreted: dict[str, Any], name: str) -> None:
    record = interpreted[name]
    assert (record["found"], record["unable"], record["error"], record["notes"]) == ([], "", None, [])


def test_results_are_those_of_the_kernel(interpreted: dict[str, Any]) -> None:
    assert interpreted["copy"]["out"] == [1.0] * 10 == interpreted["block_pointer"]["out"]
    assert (interpreted["adds_atomically"]["out"], interpreted["locks"]["out"]) == ([2.0], [2.0])


def test_a_read_out_of_bounds_is_seen_though_nothing_comes_of_it(interpreted: dict[str, Any]) -> None:
    ((oracle, path, message, line),) = interpreted["reads_past"]["found"]
    assert (oracle, path) == ("out-of-bounds", "reads_past, x_ptr")
    assert (
        message
        == "6 loads outside all arguments, the first at element 10 of x_ptr, which has elements 0 to 9, in program (1, 0, 0)"
    )
    assert KERNELS.splitlines()[line - 1].strip() == "x = tl.load(x_ptr + at)"


def test_a_write_far_away_is_seen_and_not_made(interpreted: dict[str, Any]) -> None:
    assert [trespass[0] for trespass in interpreted["writes_far"]["found"]] == ["out-of-bounds"]
    assert interpreted["writes_far"]["out"] == [1.0] * 10


def test_a_race_is_seen_though_the_interpreter_has_one_program_after_the_other(interpreted: dict[str, Any]) -> None:
    ((oracle, path, _, line),) = interpreted["adds"]["found"]
    assert (oracle, path, interpreted["adds"]["out"]) == ("race", "adds, out_ptr", [2.0])
    assert "tl.load(out_ptr) + 1" in KERNELS.splitlines()[line - 1]


def test_lanes_that_a_mask_leaves_out_are_not_zero(interpreted: dict[str, Any]) -> None:
    assert interpreted["sums"]["out"][0] != interpreted["sums"]["out"][0]
    assert interpreted["sums_with_other"]["out"] == [5.0]


def test_what_the_interpreter_cannot_do_says_nothing_about_the_kernel(interpreted: dict[str, Any]) -> None:
    assert "inline_asm" in interpreted["asm"]["unable"]
    assert "bfloat16" in interpreted["bfloat16"]["unable"]


def test_an_error_of_the_kernel_is_its_own(interpreted: dict[str, Any]) -> None:
    assert (interpreted["raises"]["error"], interpreted["raises"]["unable"]) == ("InterpreterError", "")
