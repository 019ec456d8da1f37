"""What a compiled run reaches of the compiler."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest
import torch
import torch._inductor.config
from torch.fx.experimental import proxy_tensor

from runner.contract.lines import Lines
from runner.worker.program import reach as reach_module
from runner.worker.program.reach import Reach, line_table
from runner.worker.torch_private.counters import start_counting
from runner.worker.torch_private.operator_database import tables


def silu_and_product(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(x) @ torch.cumprod(x, 0)


def names_of(backend: str, has_lines: bool = False) -> set[str]:
    start_counting()
    reach = Reach(has_lines)
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
    assert all(name.startswith(("_inductor/", "_functorch/")) for name in files)
    assert not lines - Lines(line_table()), "lines that the table has not"
    assert not any(name.startswith("_inductor/lowering.py") for name in Lines(names_of("eager", has_lines=True)))


def test_other_names_are_the_same_with_lines():
    without = names_of("inductor")
    assert {name for name in names_of("inductor", has_lines=True) if not name.startswith("line ")} == without


SOURCE = """
LEVEL = 1


@print
def add(
    x,
):
    return x


class Name:
    FIELD = 2

    def read(self):
        def inner():
            return self
        yield inner


short = lambda: 3
"""


def test_the_table_has_lines_of_functions_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.py").write_text(SOURCE)
    (tmp_path / "newer.py").write_text("match = = 1")
    monkeypatch.setattr(reach_module, "_FOLDERS", (f"{tmp_path}/",))
    monkeypatch.setattr(reach_module, "_TORCH", tmp_path)
    assert line_table() == ["line a.py:9,16-18,21"]


def test_a_debugger_stays():
    def debugger(frame: FrameType, event: str, argument: object) -> None:
        """As pdb or coverage would."""

    tracer = sys.gettrace()
    sys.settrace(debugger)
    try:
        with Reach(has_lines=True).watch():
            assert sys.gettrace() is not debugger
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(tracer)
