"""The processors of this machine. It imports nothing else, since every command asks for them."""

from __future__ import annotations

import os


def usable_processors() -> int:
    """Return how many processors this process may use: those of ``taskset`` or a container, where the system says
    them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
