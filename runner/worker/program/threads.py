"""A call that another thread makes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from runner.worker.torch_private.dispatch import carried_modes


def in_new_thread(function: Callable[[], Any]) -> Any:
    """Return what ``function`` gives in a new thread, or raise what it raises.

    The grad mode and its like are those that torch gives to a thread. Modes that see operators are carried over: they
    are a further run's.
    """
    carry = carried_modes()

    def work() -> Any:
        with carry:
            return function()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
