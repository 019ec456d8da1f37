"""What a run keeps in torch's own classes and modules."""

from __future__ import annotations

import pytest
import torch
from worker_jobs import oracles, passes, run, source

from runner.worker.program.additions import Additions

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
