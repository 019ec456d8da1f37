"""State that a persistent worker restores between jobs, and reasons to end it instead.

A job restores what it sets itself (``environment`` in ``load.py``). This module restores what a case may leave behind:
compiled code, flags, modes, the process's own state. A process in which a case has replaced a function of torch ends,
for a wrong result could pass there. Some state is not known here. That is why control runs a failure of such a process
again elsewhere.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import warnings
from typing import Any

from runner.contract.job import Job
from runner.worker.program import global_state
from runner.worker.program.definitions import Definitions
from runner.worker.server.warm_up import forget
from runner.worker.torch_private.settings import is_compiler_loaded

_NO_PACKAGE = ("threading", "runner", "")
"""First words of the modules whose threads are a case's: the standard library's and those that we make of a source."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MANY_MODULES = 20
"""So many new modules are worth setting their objects aside.

Each time what the caches of torch hold is set aside too, for good.
"""


def resident() -> int:
    """Return the bytes of memory that this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE


class Base:
    """The state that this process restores: the one in which this object is made."""

    def __init__(self, job: Job, share: float = 1.0) -> None:
        """Remember the state. What torch has is remembered only if its compiler is loaded.

        Args:
            job: the first one. What it imports may replace what it likes, as in any other process.
            share: which part of a GPU's memory this process may use.
        """
        self._resident: int | None = None  # after the first job: what is loaded once is no leak
        self._modules = 0  # that were loaded when objects were last set aside for the collector
        self._environ = dict(os.environ)
        self._folder = _folder()
        self._path = list(sys.path)
        self._recursion = sys.getrecursionlimit()
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        self._torch = _Torch(sys.modules["torch"], job, share) if is_compiler_loaded() else None

    def restore(self, growth: int) -> str:
        """Restore the state as far as possible.

        Args:
            growth: bytes that the process may hold beyond what it held after its first job.

        Returns:
            Why no other job should run here; empty if one may.
        """
        if has_children():
            return "processes are left"
        if threads := _threads():
            return f"threads are left: {', '.join(threads)}"
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if _folder() != self._folder:
                os.chdir(self._folder)
            for name in os.environ.keys() - self._environ.keys():
                del os.environ[name]
            os.environ.update({name: value for name, value in self._environ.items() if os.environ.get(name) != value})
            sys.path[:] = self._path
            sys.setrecursionlimit(self._recursion)
            self._warnings.__exit__(None, None, None)
            self._warnings = warnings.catch_warnings()
            self._warnings.__enter__()
            reason = self._torch.restore() if self._torch else ""
            self._collect()
            if self._torch:
                reason = reason or self._torch.clear_device()
        except Exception as error:  # noqa: BLE001 (whatever it is, a new process has not got it)
            return f"{type(error).__name__}: {error}"
        if self._resident is None:
            self._resident = resident()
        grown = resident() - self._resident
        return reason or (f"{grown >> 20} MiB more than at first" if grown > growth else "")

    def _collect(self) -> None:
        """Collect what the job left: what is compiled lies in cycles and holds some of the device's memory.

        What its imports made stays for good. It is set aside, because the collector takes 0.3 s to look at all of
        Inductor.
        """
        gc.collect()
        if len(sys.modules) > self._modules + _MANY_MODULES:
            self._modules = len(sys.modules)
            gc.freeze()


def _folder() -> str:
    """Return the current directory; empty if it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _threads() -> list[str]:
    """Return the names of threads that are left, without those that a package keeps for itself (such as tqdm's
    monitor)."""
    native = threading._DummyThread  # started by native code, such as autograd's for a device
    return [
        thread.name
        for thread in threading.enumerate()
        if thread is not threading.main_thread()
        and not isinstance(thread, native)
        and type(thread).__module__.partition("_")[0] in _NO_PACKAGE
    ]


def has_children() -> bool:
    """Return whether a child of this process still runs; ended ones are collected."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


class _Torch:
    """torch's part of the state."""

    def __init__(self, torch: Any, job: Job, share: float) -> None:
        self._torch, self._share = torch, share
        _settle(torch, job)
        self._definitions = Definitions()
        self._settings = global_state.read()
        self._random = torch.get_rng_state()

    def restore(self) -> str:
        """Restore all but the device's memory. Return why that is not enough, or nothing."""
        torch = self._torch
        forget()
        torch.set_default_device(None)
        global_state.restore(self._settings)
        torch.clear_autocast_cache()
        torch.set_rng_state(self._random)
        for setting in global_state.differences(self._settings):
            return f"{setting} stays changed"
        name = self._definitions.replaced()
        return f"{name} was replaced" if name else ""

    def clear_device(self) -> str:
        """Give cached memory back to the GPU. An error there (a poisoned process) goes to the caller.

        Returns:
            Why the process should end: a quarter of the memory that it may use is still taken.
        """
        cuda = self._torch.cuda
        if not cuda.is_initialized():
            return ""
        cuda.synchronize()
        cuda.empty_cache()
        for device in range(cuda.device_count()):
            reserved = cuda.memory_reserved(device)
            if reserved > cuda.get_device_properties(device).total_memory * self._share / 4:
                return f"{reserved >> 20} MiB of GPU memory stay taken"
        return ""


def _settle(torch: Any, job: Job) -> None:
    """Import what ``job`` imports, and compile once: torch's first compilation replaces functions of its own."""
    from runner.worker.program.load import environment

    with contextlib.suppress(Exception), environment(job):  # the job will meet an error itself, and report it
        torch.compile(torch.neg, backend="eager")(torch.ones(1))
    forget()
