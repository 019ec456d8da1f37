"""Constructs of generated code, on kernels that Inductor writes here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config

from runner.worker.program.generated_code import CONSTRUCTS
from runner.worker.program.reach import Reach
from tests import gpus

F = torch.nn.functional
REPOSITORY = Path(__file__).resolve().parents[3]


def add_to_bins(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Bins in whole vectors of every width: with 9 of them, AVX2 writes a tail and AVX-512 no vector."""
    return torch.zeros(64, device=x.device).index_put((index,), x * 2, accumulate=True)


def constructs_in(function: Callable[..., torch.Tensor], *arguments: torch.Tensor, **flags: Any) -> set[str]:
    """The constructs of a compiled function, as a record has them."""
    reach = Reach()
    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True, **flags), reach.watch():
        torch.compile(function)(*arguments)
    return {name.removeprefix("construct ") for name in reach.names if name.startswith("construct ")}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """As many as a job has."""
    count = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(count)


def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def total(x: torch.Tensor) -> torch.Tensor:
    return x.sin().sum()


def pad(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, [3, 12]) + 1


def rows(x: torch.Tensor) -> torch.Tensor:
    return x.sin().sum(1)


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * y.t()


PARALLEL, VECTORS, TAIL = "C++ parallel loop", "C++ vectorized loop", "C++ masked tail"


@pytest.mark.parametrize(
    ("function", "sizes", "constructs"),
    [
        pytest.param(sine, [()], set(), id="one element"),
        pytest.param(sine, [(64,)], {VECTORS}, id="whole vectors"),
        pytest.param(sine, [(67,)], {VECTORS, TAIL}, id="a part of a vector behind them"),
        pytest.param(sine, [(1 << 16,)], {VECTORS, PARALLEL}, id="whole vectors on threads"),
        pytest.param(total, [(64,)], {VECTORS}, id="a reduction on one thread"),
        pytest.param(total, [(1 << 16,)], {VECTORS, PARALLEL, "C++ parallel reduction"}, id="a reduction on threads"),
        pytest.param(rows, [(128, 1024)], {VECTORS, PARALLEL}, id="rows on threads"),
        pytest.param(pad, [(64,)], {VECTORS, TAIL, "C++ masked load"}, id="a border"),
        pytest.param(product, [(16, 16), (16, 16)], {VECTORS, "C++ transposed tile"}, id="two layouts"),
    ],
)
def test_of_a_kernel_on_the_cpu(
    function: Callable[..., torch.Tensor], sizes: list[tuple[int, ...]], constructs: set[str]
) -> None:
    assert constructs_in(function, *map(torch.randn, sizes)) == constructs


def test_indices_of_elements_are_no_masked_load_and_additions_to_them_are_atomic() -> None:
    x, index = torch.randn(64), torch.randint(0, 9, (64,))
    assert constructs_in(lambda x, index: x.sin()[index] + 1, x, index) == {VECTORS}
    assert constructs_in(add_to_bins, x, index) == {VECTORS, "C++ atomic addition"}


def test_a_flag_decides_how_a_tail_is_written() -> None:
    assert constructs_in(sine, torch.randn(67), **{"cpp.enable_loop_tail_vec": False}) == {VECTORS, "C++ scalar tail"}


def test_kernels_without_vectors() -> None:
    flags = {"cpp.simdlen": 0}
    assert constructs_in(sine, torch.randn(67), **flags) == set()
    assert constructs_in(pad, torch.randn(67), **flags) == {"C++ masked load"}
    assert constructs_in(total, torch.randn(1 << 16), **flags) == {PARALLEL, "C++ parallel reduction"}


def test_torch_s_own_kernels_have_none() -> None:
    assert constructs_in(lambda x: x.mm(x), torch.randn(64, 64)) == set()


SPLIT = {"triton.force_cooperative_reductions": True}


def constructs_on_gpu() -> list[list[str]]:
    """The constructs of kernels of a GPU, in the order of ON_GPU."""

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(size, device="cuda")

    calls: list[tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...], dict[str, Any]]] = [
        (sine, (draw(1 << 16),), {}),
        (sine, (draw(1000),), {}),
        (rows, (draw(64, 64),), {}),
        (rows, (draw(1024, 9216),), {}),
        (rows, (draw(3, 90112),), SPLIT),
        (product, (draw(259, 517), draw(517, 259)), {}),
        (add_to_bins, (draw(64), torch.randint(0, 9, (64,), device="cuda")), {}),
    ]
    return [sorted(constructs_in(function, *arguments, **flags)) for function, arguments, flags in calls]


ON_GPU = [
    [],
    ["Triton masked load"],
    ["Triton masked load", "Triton persistent reduction"],
    ["Triton looped reduction", "Triton masked load"],
    ["Triton cooperative reduction", "Triton masked load"],
    ["Triton masked load", "Triton tile"],
    ["Triton atomic addition", "Triton masked load"],
]
SCRIPT = "import json; from tests.worker.program.test_generated_code import *; print(json.dumps(constructs_on_gpu()))"


@pytest.mark.skipif(not gpus.count(), reason="there is no GPU")
def test_of_kernels_on_a_gpu() -> None:
    """In a process of its own: CUDA stays closed in one that forks."""
    process = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=REPOSITORY)
    assert json.loads(process.stdout) == ON_GPU, process.stderr
    assert {name for names in ON_GPU for name in names} == {name for name in CONSTRUCTS if name.startswith("Triton")}
