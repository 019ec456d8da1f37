"""Counts of CUDA graph replays, the purpose of Inductor's modes ``reduce-overhead`` and ``max-autotune``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import torch

GRAPH_MODES = ("reduce-overhead", "max-autotune")
"""Modes of torch.compile that set ``triton.cudagraphs`` (``torch._inductor.list_mode_options()``)."""


class Replays:
    """What ``count_replays`` counts."""

    count = 0


@contextlib.contextmanager
def count_replays() -> Iterator[Replays]:
    """Count while the block lasts. A graph is replayed once right after it was recorded, and at each later call.

    Inductor replays through ``torch.cuda.CUDAGraph.replay`` alone (``torch/_inductor/cudagraph_trees.py``). It counts
    the graphs that it skips, but not those that it replays.
    """
    replays = Replays()
    original = torch.cuda.CUDAGraph.replay

    def replay(self: torch.cuda.CUDAGraph) -> None:
        replays.count += 1
        original(self)

    with mock.patch.object(torch.cuda.CUDAGraph, "replay", replay):
        yield replays


def missing_note(mode: str, calls: int) -> str:
    """Return the note for a mode that replayed no graph in ``calls`` calls."""
    message = f"mode {mode} replayed no CUDA graph"
    return message if calls > 1 else f"{message}: the second call would record one, and there is one call"


def makes_graphs(backend: Mapping[str, Any], device: str) -> bool:
    """Return whether a backend is to make CUDA graphs of what it compiles for ``device``."""
    return (
        backend["backend"] == "inductor" and backend.get("mode") in GRAPH_MODES and device.partition(":")[0] == "cuda"
    )
