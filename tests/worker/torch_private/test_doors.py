"""Each name of torch's insides is there in the torch at hand, and stands in ``torch_private`` alone."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from types import ModuleType

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


def test_a_name_is_replaced_for_as_long_as_a_block_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "_absences", {})
    monkeypatch.setattr(doors, "DOORS", [])
    module = ModuleType("torch_part")
    monkeypatch.setitem(sys.modules, "torch_part", module)
    with (
        pytest.raises(ImportError, match="nothing is tallied"),
        Door("torch_part:tally", "nothing is tallied").replaced(0),
    ):
        pytest.fail("there is nothing to replace")
    assert not hasattr(module, "tally")
    module.tally = 1
    door = Door("torch_part:tally", "nothing is tallied")
    assert door.find() == 1
    module.tally = 2
    with pytest.raises(KeyError), door.replaced(3):
        assert module.tally == 3
        raise KeyError
    assert module.tally == 2
