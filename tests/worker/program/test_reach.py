"""What a compiled run reaches of the compiler."""

from __future__ import annotations

import torch
import torch._dynamo.utils
import torch._inductor.config
from torch.fx.experimental import proxy_tensor

from runner.contract.lines import TORCH, Lines
from runner.worker.program.lines import line_table
from runner.worker.program.reach import Reach
from runner.worker.torch_private.counters import start_counting
from runner.worker.torch_private.operator_database import tables


def silu_and_product(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(x) @ torch.cumprod(x, 0)


def names_of(backend: str, has_lines: bool = False) -> set[str]:
    start_counting()
    reach = Reach(has_lines)
    # A graph of torch's caches on disk was decomposed by another process.
    torch._dynamo.reset()
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
    function = proxy_tensor.maybe_handle_decomp
    reach = Reach()
    with reach.watch():
        pass
    assert proxy_tensor.maybe_handle_decomp is function
    torch.compile(silu_and_product, backend="aot_eager")(torch.ones(2, 2))
    assert reach.names == set()


def test_the_tables_hold_what_can_be_reached():
    operators = tables()
    assert "aten.silu" in operators["decomposition"] and "aten.cumprod" in operators["lowering"]
    reached = {name.partition(" ")[2] for name in names_of("inductor") if name.startswith("lowering")}
    assert reached <= set(operators["lowering"])


def test_lines_are_recorded_where_asked_for():
    assert not Lines(names_of("inductor"))
    lines = Lines(names_of("inductor", has_lines=True))
    files = {name.partition(":")[0] for name in lines}
    assert {"_inductor/lowering.py", "_inductor/scheduler.py", "_functorch/aot_autograd.py"} <= files
    assert {"_dynamo/symbolic_convert.py", "_subclasses/fake_tensor.py", "fx/graph.py"} <= files
    assert all(name.partition("/")[0] in TORCH for name in files)
    assert not lines - Lines(line_table()), "lines that the table has not"
    assert not any(name.startswith("_inductor/lowering.py") for name in Lines(names_of("eager", has_lines=True)))


def test_other_names_and_what_dynamo_counts_are_the_same_with_lines():
    without = names_of("inductor"), counts()
    with_lines = {name for name in names_of("inductor", has_lines=True) if not name.startswith("line ")}, counts()
    assert with_lines == without


def counts() -> dict[str, dict[str, int]]:
    """How many frames Dynamo looked at, and what it made of them."""
    return {kind: dict(torch._dynamo.utils.counters[kind]) for kind in ("frames", "stats", "graph_break")}
