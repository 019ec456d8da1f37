"""That a case may replace what it likes, and is judged by the original functions."""

from __future__ import annotations

import builtins
import json
import time
import types

import pytest
import torch
from worker_jobs import oracles, passes, run, source

from runner.worker.program import definitions
from runner.worker.program.definitions import Replacement
from runner.worker.program.replacements import Additions, Replacements

WRONG = "{}\nreturn x + 1 if torch.compiler.is_compiling() else x + 2"
HOOK = """
import builtins, json, time
@torch._dynamo.disable
def replace():
    {}
"""

REPLACED = {
    "torch.equal": "torch.equal = torch.allclose = lambda *a, **k: True",
    "torch.Tensor.equal": "torch.Tensor.equal = lambda *a: True",  # hides an inherited one
    "torch.Tensor.__ne__": "torch.Tensor.__ne__ = lambda a, b: torch.zeros(a.shape, dtype=torch.bool)",
    "torch.ne": "torch.ne = lambda a, b: torch.zeros(a.shape, dtype=torch.bool); torch.isclose = torch.eq = torch.ones_like",
    "builtins.all": "builtins.all = lambda *_: True",
    "json.dumps": "json.dumps = lambda *_, **__: '{}'",
    "time.monotonic": "time.monotonic = time.perf_counter = lambda: 0.0",
    "torch.mode": "torch.overrides._push_mode(Always())",
    "runner.worker.run.job.judge_defined": "import runner.worker.run.job as job; job.judge_defined = lambda evidence, *_: (evidence, [])",
}
MODE = """
class Always(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return True if function is torch.equal else function(*args, **(kwargs or {}))
"""


@pytest.mark.parametrize("name", REPLACED)
def test_a_case_is_judged_by_the_original_functions(name: str) -> None:
    start = torch.equal, vars(torch.Tensor).get("equal"), torch.Tensor.__ne__, builtins.all, json.dumps, time.monotonic
    depth = torch._C._len_torch_function_stack()
    body = WRONG.format("if torch.compiler.is_compiling(): replace()")
    record = run(source(body, definitions=MODE + HOOK.format(REPLACED[name])), "eager", foreign=True)
    assert [finding["oracle"] for finding in record["findings"]] == ["value"], record
    assert min(record["seconds"].values()) >= 0
    end = torch.equal, vars(torch.Tensor).get("equal"), torch.Tensor.__ne__, builtins.all, json.dumps, time.monotonic
    assert (start, depth) == (end, torch._C._len_torch_function_stack())


def test_what_a_case_replaces_for_eager_and_compiled_code_alike_stays_in_force_for_both() -> None:
    original = torch.sin
    text = source("return torch.sin(x)", definitions="torch.sin = lambda x: x * 2")
    record = run(text, "aot_eager", foreign=True)
    assert (record["findings"], record["trust"], torch.sin) == ([], None, original)
    wrong = source("return torch.sin(x) + (1 if torch.compiler.is_compiling() else 2)", definitions="torch.sin = abs")
    assert [finding["oracle"] for finding in run(wrong, "aot_eager", foreign=True)["findings"]] == ["value"]


def test_a_default_device_of_a_case_holds_for_its_code_alone() -> None:
    definitions = "torch.set_default_device('meta')\nseen = []"
    text = source(
        "seen.append(torch.ones(2).device.type)\nreturn x + len(seen[-1])",
        "torch.randn(2, device='cpu')",
        definitions=definitions,
    )
    try:
        record = run(text, "eager", foreign=True)
        assert record["findings"] == [] and torch.ones(1).device.type == "cpu"
    finally:
        torch.set_default_device(None)


def test_a_pass_with_a_kernel_of_the_case_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = iter([frozenset[str]()])
    monkeypatch.setattr(definitions, "python_kernels", lambda: next(kernels, frozenset({"aten/equal/CPU"})))
    trust = run(source("return torch.relu(x) + 0.5"), "eager", foreign=True)["trust"]
    reason = "the case registers a kernel for aten/equal/CPU, which the judge may call"
    assert (trust["verdict"], trust["reason"]) == ("VACUOUS", reason)


def test_what_cannot_be_put_back_is_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    replacements = Replacements()
    assert replacements.doubt() == ""
    stuck = Replacement("torch.equal", types.MappingProxyType({}), "equal", 1, 2)
    monkeypatch.setattr(replacements._definitions, "replacements", lambda: iter([stuck]))
    with replacements:
        pass
    assert replacements.doubt() == "the case replaces torch.equal, which cannot be put back: TypeError"


def test_what_is_replaced_twice_or_removed_comes_back() -> None:
    replacements, original = Replacements(), torch.equal
    for value in ("one", "two"):
        with replacements:
            torch.equal = value  # type: ignore[assignment]
        assert torch.equal is original
    with replacements:
        assert torch.equal == "two"
        del torch.equal
    assert torch.equal is original
    with replacements:
        assert not hasattr(torch, "equal")
        torch.equal = original
    with replacements:
        assert torch.equal is original


BODY = """cache = getattr({0}, "cached_table", None)
if cache is None:
    cache = torch.ones(5) * (3.0 if torch.compiler.is_compiling() else 2.0)
    {0}.cached_table = cache
return x * cache"""


@pytest.mark.parametrize("holder", ["torch.nn.Linear", "torch", "torch.Tensor"])
def test_compiled_code_computes_what_eager_has_kept_in_torch(holder):
    assert oracles(run(source(BODY.format(holder)), "eager", foreign=True)) == ["value"]
    right = BODY.format(holder).replace("3.0 if torch.compiler.is_compiling() else ", "")
    assert passes(run(source(right), "eager", foreign=True))
    assert not hasattr(torch.nn.Linear, "cached_table")


def test_functions_and_what_was_there_stay(monkeypatch):
    monkeypatch.setattr(torch.nn.Linear, "earlier", [1], raising=False)
    additions = Additions()
    for name, value in {"helper": len, "__note__": 1}.items():
        monkeypatch.setattr(torch.nn.Linear, name, value, raising=False)
    torch.nn.Linear.table = {}
    additions.remove()
    assert [hasattr(torch.nn.Linear, name) for name in ("earlier", "helper", "__note__", "table")] == [
        True,
        True,
        True,
        False,
    ]
