"""A call that another thread makes."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from runner.worker.program.threads import in_new_thread


def test_a_thread_has_modes_of_its_own():
    with torch.no_grad():
        assert in_new_thread(torch.is_grad_enabled) and not torch.is_grad_enabled()
    assert in_new_thread(threading.current_thread) is not threading.main_thread()


def test_an_error_comes_out():
    with pytest.raises(ZeroDivisionError):
        in_new_thread(lambda: 1 / 0)


def test_modes_that_see_operators_see_those_of_the_thread():
    seen = []

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append("dispatch")
            return function(*args, **(kwargs or {}))

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append("function")
            return function(*args, **(kwargs or {}))

    with Dispatch(), Functions():
        in_new_thread(lambda: torch.sin(torch.ones(2)))
        count = len(seen)
        torch.sin(torch.ones(2))
    assert "dispatch" in seen[:count] and "function" in seen[:count] and len(seen) == 2 * count
    torch.cos(torch.ones(2))
    assert len(seen) == 2 * count
