"""The GPU of a job on plain ``cuda``: the visible one with the fewest jobs, and a share of its memory."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence

_NAME = re.compile(r"((?:GPU|MIG)-.+)|\+?0*(\d+)")
VARIABLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable by which CUDA is told the devices that a process may see: indices or UUIDs."""


def visible_gpus(given: str | None, count: int) -> tuple[str, ...]:
    """Return the GPUs that jobs may use, each as CUDA_VISIBLE_DEVICES names it.

    Its value is read as CUDA reads it (``torch.cuda._parse_visible_devices``). The list ends before the first entry
    that names no GPU, such as ``-1``. If one stands before that twice, no GPU is seen.

    Args:
        given: the value of CUDA_VISIBLE_DEVICES, None where it is not set.
        count: how many GPUs a process sees under that value.
    """
    if given is None:
        return tuple(str(index) for index in range(count))
    matches = itertools.takewhile(bool, (_NAME.match(entry.strip()) for entry in given.split(",")))
    names = [match[1] or match[2] for match in matches if match]
    return tuple(names[:count]) if len({*names}) == len(names) else ()


def count_gpus(listing: str = "/proc/driver/nvidia/gpus") -> int:
    """Return how many of NVIDIA's GPUs a process sees here, 0 where the driver says nothing. torch is not asked."""
    try:
        present = len(os.listdir(listing))
    except OSError:
        return 0
    indices = {str(index) for index in range(present)}
    names = visible_gpus(os.environ.get(VARIABLE), present)
    return len([*itertools.takewhile(lambda name: name in indices or not name.isdecimal(), names)])


def choose_gpu(gpus: Sequence[str], assigned: Iterable[str]) -> str:
    """Return the GPU of the next job: the first of those with the fewest jobs; empty without a GPU."""
    counts = Counter(assigned)
    return min(gpus, key=lambda gpu: counts[gpu], default="")


def memory_share(slots: int, gpus: int) -> float:
    """Return the part of a GPU's memory that each of ``slots`` jobs may use, when ``choose_gpu`` spreads them over
    ``gpus``."""
    return 1 / -(-slots // gpus) if gpus else 1.0
