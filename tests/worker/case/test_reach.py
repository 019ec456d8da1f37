"""What a compiled run reaches of the compiler."""

from __future__ import annotations

import torch
import torch._inductor.config
from torch.fx.experimental import proxy_tensor

from runner.worker.case.observe import start_counting
from runner.worker.case.reach import Reach, tables


def silu_and_product(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(x) @ torch.cumprod(x, 0)


def names_of(backend: str) -> set[str]:
    start_counting()
    reach = Reach()
    # A graph of torch's caches on disk was decomposed by another process.
    with torch._inductor.config.patch(force_disable_caches=True), reach.watch():
        torch.compile(silu_and_product, backend=backend)(torch.ones(3, 3))
    return reach.names


def test_under_inductor_decompositions_lowerings_kernels_of_torch_and_passes_are_named():
    names = names_of("inductor")
    assert {
        "decomposition aten.silu",
        "lowering aten.cumprod",
        "fallback aten.cumprod",
        "fallback extern_kernels.mm",
    } <= names
    assert "decomposition aten.cumprod" not in names
    assert "lowering aten.silu" not in names, "it was decomposed"
    assert "pass extern_calls" in names


def test_without_inductor_there_are_operators_alone():
    assert names_of("aot_eager") == {"operator aten.silu", "operator aten.cumprod", "operator aten.mm"}
    assert "decomposition aten.silu" in names_of("aot_eager_decomp_partition")
    assert names_of("eager") == set()


def test_what_runs_afterwards_is_not_watched():
    before = proxy_tensor.maybe_handle_decomp
    reach = Reach()
    with reach.watch():
        pass
    assert proxy_tensor.maybe_handle_decomp is before
    torch.compile(silu_and_product, backend="aot_eager")(torch.ones(2, 2))
    assert reach.names == set()


def test_the_tables_hold_what_can_be_reached():
    known = tables()
    assert "aten.silu" in known["decomposition"] and "aten.cumprod" in known["lowering"]
    reached = {name.partition(" ")[2] for name in names_of("inductor") if name.startswith("lowering")}
    assert reached <= set(known["lowering"])
