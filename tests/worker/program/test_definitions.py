"""Each way to replace what torch defines is seen, and compiling is not one of them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

import pytest
import torch
import torch._dynamo
from torch.nn.modules import module
from worker_jobs import run, source

from runner.worker.program.definitions import Definitions


def test_compiling_replaces_nothing() -> None:
    run(source("return torch.relu(x) + 0.5"), "aot_eager")  # a process's first compilation does
    definitions = Definitions()
    for backend in ("eager", "aot_eager"):
        record = run(source("return torch.relu(x) * 2"), backend, grad={"mode": "backward"})
        assert record["findings"] == []
    assert definitions.replaced() == ""


def other(*_: object) -> bool:
    return True


REPLACED: dict[str, Callable[[pytest.MonkeyPatch], object]] = {
    "torch.equal": lambda patch: patch.setattr(torch, "equal", other),
    "torch.nn.functional.relu": lambda patch: patch.setattr(torch.nn.functional, "relu", torch.sigmoid),
    "torch.nn.modules.linear.Linear.forward": lambda patch: patch.setattr(torch.nn.Linear, "forward", other),
    "torch.Tensor.relu": lambda patch: patch.setattr(torch.Tensor, "relu", other),  # inherited, so the name is new
    "torch._dynamo.backends.registry._COMPILER_FNS.eager": lambda patch: patch.setitem(
        torch._dynamo.backends.registry._COMPILER_FNS, "eager", other
    ),
    "torch.nn.modules.module._global_forward_hooks": lambda patch: patch.setitem(
        module._global_forward_hooks, 1, other
    ),
    "runner.worker.judge.judge.judge_defined": lambda patch: patch.setattr(
        "runner.worker.judge.judge.judge_defined", other
    ),
}


@pytest.mark.parametrize("name", REPLACED)
def test_what_is_replaced_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    definitions = Definitions()
    REPLACED[name](monkeypatch)
    assert definitions.replaced() == name


def test_a_kernel_for_an_operator_of_torch_is_seen() -> None:
    definitions = Definitions()
    library = torch.library.Library("aten", "IMPL")
    library.impl("hardshrink", lambda x, lambd=0.5: x, "CPU")
    assert definitions.replaced() == "aten/hardshrink/CPU"
    library._destroy()
    assert definitions.replaced() == ""


def test_what_a_case_adds_is_no_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    definitions = Definitions()
    monkeypatch.setattr(torch, "a_new_function", other, raising=False)
    monkeypatch.setattr(torch.nn.Linear, "a_new_method", other, raising=False)
    assert definitions.replaced() == ""


def test_the_first_kernel_for_triton_replaces_nothing() -> None:
    """Inductor then gives a class static methods that are partial functions, and hide inherited ones."""
    importlib.import_module("torch._inductor.lowering")  # which names the operators
    overrides = importlib.import_module("torch._inductor.codegen.triton").TritonKernelOverrides
    names = set(vars(overrides))
    definitions = Definitions()
    overrides._setup_libdevice_routing.__wrapped__(overrides)
    added = set(vars(overrides)) - names
    try:
        assert isinstance(vars(overrides)["sin"], staticmethod)
        assert definitions.replaced() == ""
        overrides.sin = staticmethod(functools.partial(other))
        assert definitions.replaced() == "torch._inductor.codegen.triton.TritonKernelOverrides.sin"
    finally:
        for name in added:
            delattr(overrides, name)


def test_torch_may_replace_its_own_insides(monkeypatch: pytest.MonkeyPatch) -> None:
    definitions = Definitions()
    monkeypatch.setattr(torch._dynamo.utils, "same", torch._dynamo.utils.clone_input)
    assert definitions.replaced() == ""
    monkeypatch.setattr(torch._dynamo.utils, "same", other)
    assert definitions.replaced() == "torch._dynamo.utils.same"
