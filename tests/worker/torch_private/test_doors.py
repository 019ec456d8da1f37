"""Each name of torch's insides is there in the torch at hand, and stands in ``torch_private`` alone."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
import torch

from runner.worker import torch_private
from runner.worker.torch_private import doors
from runner.worker.torch_private.doors import DOORS, Door
from runner.worker.torch_private.operator_database import entries

for module in pkgutil.iter_modules(torch_private.__path__):
    importlib.import_module(f"{torch_private.__name__}.{module.name}")


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_each_door_opens(door: Door) -> None:
    if door.module.startswith("torch.testing._internal"):
        entries()  # its module imports a package that users do not have
    assert not door.is_expected() or door.now() is not None


def test_a_name_that_is_gone_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "_absences", {})
    monkeypatch.setattr(doors, "DOORS", [])
    for name in ("torch._dynamo.utils:tally", "torch._no_such_part:tally", "torch._no_such_part"):
        door = Door(name, "nothing is tallied")
        assert door.find() is None and door.find() is None
    assert doors.absences() == tuple(
        f"torch {torch.__version__} has no {name}: nothing is tallied"
        for name in ("torch._dynamo.utils.tally", "torch._no_such_part.tally", "torch._no_such_part")
    )


def test_a_module_that_is_not_loaded_is_neither_loaded_nor_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "_absences", {})
    monkeypatch.setattr(doors, "DOORS", [])
    assert Door("torch._no_such_part:tally", "").loaded() is None and doors.absences() == ()
