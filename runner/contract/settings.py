"""Variables and flags by which a run changes the settings of a user.

Both halves read them, so this imports the standard library alone. ``docs/judging.md`` has a row for each setting, with
the reason for it, and ``tests/contract/test_settings.py`` holds the page against the code. A run "as a user" leaves out
what is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

FALLBACK_RANDOM = "torch._inductor.config.fallback_random"

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    }
)
"""Variables of a worker that a run as a user leaves as they are."""

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
CACHE_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
TRITON_FOLDER = "TRITON_CACHE_DIR"
HASH_SEED = "PYTHONHASHSEED"
SAFE_PATH = "PYTHONSAFEPATH"
WARNINGS = "PYTHONWARNINGS"
PASSED = "runner-passed"
"""Folder below torch's cache folder: for each job that passed, the tag of its graphs, a hundred bytes."""

AS_USER = "RUNNER_AS_USER"
"""Set in a worker whose jobs run as a user runs them: only what is needed is set."""
DEFAULT_THREADS = "RUNNER_DEFAULT_THREADS"
"""Where a worker's server keeps how many intra-op threads torch takes by itself: its own process has one."""
