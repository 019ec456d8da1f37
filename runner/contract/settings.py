"""The settings of a user that a run changes: one row for each, with the reason for it.

Both halves read this table, so it imports the standard library alone. A run "as a user" leaves out what is not
``needed``. ``docs/judging.md`` has the same rows, and ``tests/contract/test_settings.py`` holds both against the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
"""Set in a worker whose jobs run as a user runs them: only what is ``needed`` is set."""
DEFAULT_THREADS = "RUNNER_DEFAULT_THREADS"
"""Where a worker's server keeps how many intra-op threads torch takes by itself: its own process has one."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: what is set, to what, and why. ``calls`` are the functions that do it in ``runner/worker/``."""

    name: str
    value: str
    reason: str
    needed: bool = False
    """Without it nothing could be compared, or nothing could run: it is set as a user too."""
    calls: tuple[str, ...] = ()


_GRAPHS = (
    "a failure is about the compiler, not about what it once compiled; a pass may rest on graphs that the runner stored"
)

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "fallback_random",
        "on if eager drew random numbers in a call",
        "Inductor draws other numbers by itself, and no value could be compared",
        needed=True,
    ),
    Setting(
        "intra-op threads",
        "2",
        "generated code is parallel, and alike on every machine",
        calls=("set_num_threads",),
    ),
    Setting(
        "TORCHINDUCTOR_COMPILE_THREADS",
        "1",
        "a pool of compile processes would be started again for each job",
    ),
    Setting("TORCHINDUCTOR_FX_GRAPH_CACHE", "0", _GRAPHS),
    Setting("TORCHINDUCTOR_AUTOGRAD_CACHE", "0", _GRAPHS),
    Setting(
        "allow_tf32, allow_fp16_reduced_precision_reduction, allow_bf16_reduced_precision_reduction",
        "off on CUDA",
        "they round a thousand times more than the tolerance, and eager and compiled code use them in other places",
    ),
    Setting(
        "warm-up",
        "the process is forked from one that has compiled a small graph",
        "a process of its own for each job costs 0.1 s instead of seconds",
    ),
    Setting("guard timing, progress bars", "not done", "they cost 20 ms for a log line, and a thread"),
    Setting(
        "TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR",
        "a folder of the runner, unless set",
        "kernels of wrong code must not lie among a user's own, and only what the user has signed is loaded",
        needed=True,
    ),
    Setting(
        "precompiled headers",
        "beside the kernels",
        "torch keeps them below the temporary folder, under a name that any user can take",
        needed=True,
    ),
    Setting(
        HASH_SEED,
        "0, unless set",
        "what torch compiles depends here and there on the order of a set, and a failure must come back",
        needed=True,
    ),
    Setting(
        SAFE_PATH,
        "1",
        "Inductor asks about the processor by python -c, which would import ctypes.py of the current folder",
        needed=True,
    ),
    Setting(
        WARNINGS,
        "left out",
        "under error, a warning of torch itself would count as a failure of eager or of torch.compile",
        needed=True,
    ),
    Setting(
        "TMPDIR",
        "a folder that goes with the run",
        "compilers that a timeout or Ctrl-C kills leave their files in it",
        needed=True,
    ),
    Setting(
        "CUDA_VISIBLE_DEVICES",
        "none for a case on the CPU; one GPU otherwise",
        "a verdict about the CPU must not depend on a GPU, and jobs must not share one by chance",
        needed=True,
    ),
    Setting(NVML_CHECK, "1", "a forked process could not open CUDA otherwise", needed=True),
    Setting(
        "GPU memory of the process",
        "its share, where jobs share a GPU",
        "one job must not end another",
        needed=True,
        calls=("set_per_process_memory_fraction",),
    ),
    Setting(
        "torch.distributions validation",
        "on in eager, off in compiled code",
        "torch.compile turns it off for good, and eager would then no longer raise",
        needed=True,
        calls=("set_default_validate_args",),
    ),
    Setting(
        "stance of torch.compile",
        "force_eager, in eager runs of a model that compiles a part of itself",
        "compiled code is no reference for compiled code",
        needed=True,
        calls=("set_stance",),
    ),
    Setting(
        "seeds of torch, random and numpy",
        "before the case's file, the model, the inputs and each call",
        "both runs need the same numbers",
        needed=True,
        calls=("manual_seed", "seed"),
    ),
    Setting(
        "grad mode, autocast",
        "as the case says",
        "they are parts of the program",
        needed=True,
        calls=("set_grad_enabled",),
    ),
    Setting(
        "settings of the process, such as the default dtype",
        "put back after each run of a model",
        "each run must begin alike, and what a call leaves is compared",
        needed=True,
    ),
    Setting("torch._dynamo.reset, counters", "before the compiled run", "counts begin at zero", needed=True),
    Setting(
        "memory limit, core files, standard streams, faulthandler, garbage of the parent",
        "of the process",
        "a job must not harm the machine, and its death must leave a stack",
        needed=True,
    ),
)
"""Every setting that a run changes."""
