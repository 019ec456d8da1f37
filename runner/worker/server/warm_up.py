"""The warm-up of a worker server before its first fork: imports, and tiny jobs from end to end.

A warm-up job loads what torch and this project load lazily. It fills pages that every child would otherwise fill again.
It leaves no trace that a job could see. What torch compiled and counted is forgotten, and no thread stays behind (a
child forked from a process with OpenMP threads hangs).

The C++ compiler is prepared in parallel. With an empty cache torch compiles and loads a file for each vector
instruction set that the processor knows. Only then it precompiles its header. This is most of the 20 to 30 seconds that
the first kernel takes. The parts are independent, so they can use all cores. The results lie where torch looks for
them; what fails here torch does again by itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from runner.contract.job import Job
from runner.worker.torch_private import preparation
from runner.worker.torch_private.preparation import candidates, compile_a_kernel, forget_answers, has_picked_none, probe
from runner.worker.torch_private.registry import backend_names

LEVELS = ("none", "capture", "compilers", "dynamo", "aot", "backward", "import", "inductor")
"""How far a server goes: torch alone; Dynamo imported; Inductor too, and the processor's vector instructions probed;
Dynamo prepared; a graph compiled under ``aot_eager``; one with a backward too; all compilers prepared and nothing
compiled; everything. Each level costs up to a second more, so that a run asks for what its variants need. Where an
accelerator is in sight nothing is compiled or probed, and ``import`` stands for all levels from ``aot`` on."""

_SOURCE = """import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
    def forward(self, x):
        return torch.relu(self.linear(x)) + 1
def make_model():
    return Model().eval()
def make_inputs():
    return [torch.randn(2, 4)]
"""


class ThreadsLeft(Exception):
    """This process must not fork: a child would wait for ever for threads that it does not have."""


def warm_up(level: str) -> None:
    """Load what ``level`` (one of LEVELS, and torch is imported) says.

    Raises:
        ThreadsLeft: a warm-up job left threads.
        Exception: whatever torch raises, or RuntimeError if a warm-up job fails.
    """
    if level == "none":
        return
    torch = importlib.import_module("torch")
    preparation.DYNAMO.need()
    preparation.keep_headers_with_kernels()
    if level == "compilers":
        preparation.load_inductor()
        if not _has_accelerator(torch):  # kernels for it need no vectors, and with an empty cache each probe compiles
            probe()
    if level in ("capture", "compilers"):
        return
    run_job = load_entry()
    backend_names()  # torch imports them all
    preparation.skip_guard_timing()
    stop_progress_bars()
    if level == "dynamo":
        return
    preparation.load(preparation.LAZY)
    accelerated = _has_accelerator(torch)
    if level in ("import", "inductor") or accelerated:
        preparation.load_inductor()
    if accelerated:
        load_for_devices()
        return  # compiling would open the accelerator, and every child would fail to open it again
    if level == "import":
        return
    threads, random = _threads(), torch.get_rng_state()
    gc.freeze()  # so that the collection before the first fork looks at what the jobs left, and not at all of torch
    mode = "off"
    if level in ("backward", "inductor"):
        if any(getattr(torch.version, name, None) for name in ("cuda", "hip", "xpu")):  # built for accelerators
            # With threads for devices to keep, autograd refuses to run in any child once it has run in the parent, be
            # there a device or not ("Unable to handle autograd's threading in combination with fork-based
            # multiprocessing").
            preparation.load(preparation.LAZY_FOR_BACKWARDS)
        else:
            mode = "backward"
    try:
        with preparing(hash_triton) if level == "inductor" else contextlib.nullcontext():
            _run(run_job, "aot_eager", mode)
        if level == "inductor":
            _run(run_job, "inductor", "off")  # a backward, too, would gain nothing more, and cost seconds
            _run(run_job, "inductor", "off", graphs="warm-up")  # torch hashes itself before its first look into a cache
    finally:
        forget()
        torch.set_rng_state(random)
    if _threads() > threads:
        raise ThreadsLeft(f"threads that the warm-up left: {_threads() - threads}")


def _run(run_job: Callable[..., dict[str, Any]], backend: str, mode: str, graphs: str = "") -> None:
    record = run_job(_warm_up_job(backend, mode, graphs), lambda message: None)
    if record.get("findings") or record.get("trust"):
        raise RuntimeError(f"the warm-up under {backend}: {record['findings']} {record['trust']}")


def _warm_up_job(backend: str, mode: str, graphs: str = "") -> dict[str, Any]:
    name = "warm-up"
    return Job(
        name, name, name, name, _SOURCE, {"backend": backend}, grad={"mode": mode}, threads=1, graphs=graphs
    ).to_json()


def load_for_devices() -> None:
    """Load what a first compilation for an accelerator does, and let Triton hash itself: a second of each process
    there."""
    preparation.load(preparation.LAZY_FOR_DEVICES)
    hash_triton()


def hash_triton() -> None:
    """Let Triton hash itself, if it is loaded: a second that the first matrix product under Inductor takes."""
    key = getattr(sys.modules.get("triton.runtime.cache"), "triton_key", None)
    if key is not None:
        key()  # it remembers the answer


def forget() -> None:
    """Forget what this process has compiled and counted, as far as torch can."""
    from runner.worker.torch_private.counters import start_counting

    start_counting()
    preparation.forget_fakes()


def stop_progress_bars() -> None:
    """Keep tqdm, which torch uses where it finds it, from starting a thread that redraws bars nobody sees."""
    tqdm = sys.modules.get("tqdm")
    if tqdm is not None:
        tqdm.tqdm.monitor_interval = 0


def _has_accelerator(torch: Any) -> bool:
    accelerator = getattr(torch, "accelerator", None)
    return bool(torch.cuda.is_available() or (accelerator is not None and accelerator.is_available()))


def _threads() -> int:
    """Return the number of threads of this process, native ones included, that a child would miss.

    CUDA's driver starts one of its own where somebody asks for devices, even if none is visible. No job on the CPU
    needs it.
    """
    return sum(not _thread_name(thread).startswith("cuda") for thread in os.listdir("/proc/self/task"))


def _thread_name(thread: str) -> str:
    try:
        with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # it has ended
        return ""


_LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def preparing(*more: Callable[[], object]) -> Iterator[None]:
    """Probe the vector instruction sets and precompile torch's header while the block runs, all at the same time.

    Leaves no thread. What runs in the block must compile nothing for the CPU. An instruction set that cannot be built
    is probed again after the block. What the block does to torch can fail a probe beside it: torch 2.6 raises KeyError
    if ``torch._dynamo.reset()`` runs meanwhile. Torch takes any failure for the processor's answer, and keeps it.

    Args:
        more: what else can be done beside the block.
    """
    isas = candidates()
    if (os.cpu_count() or 1) < 2:
        yield
        return
    with ThreadPoolExecutor(len(isas) + len(more) + 1) as pool:
        futures: list[Future[Any]] = [pool.submit(compile_a_kernel, isas[0])] if isas else []
        probes = [pool.submit(bool, isa) for isa in isas]
        futures += [pool.submit(call) for call in more]
        yield
        for future in [*futures, *probes]:
            try:
                future.result()
            except Exception as error:  # noqa: BLE001  torch meets it again, where a job can report it
                _LOG.warning("preparing the C++ compiler: %s: %s", type(error).__name__, error)
    if any(probe.exception() is None and not probe.result() for probe in probes):
        forget_answers()
        for isa in isas:
            _LOG.warning("%s, probed again: %s", isa, "yes" if isa else "no")


def missing_vectors() -> str:
    """Return a sentence if torch has picked no vectors on a processor that has them; else an empty text."""
    isas = candidates()
    if not isas or not has_picked_none():
        return ""
    return f"kernels for the CPU have no vectors: the C++ compiler cannot build for {', '.join(map(str, isas))}"


ENTRY = "runner.worker.tasks.registry:run_job"
"""``module:function`` that runs a job; RUNNER_WORKER_ENTRY names another (for tests: control passes on no other)."""


def load_entry() -> Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], dict[str, Any]]:
    """Import and return the function that runs a job.

    Raises:
        Exception: its module cannot be imported; whatever that raises.
    """
    return pkgutil.resolve_name(os.environ.get("RUNNER_WORKER_ENTRY", ENTRY))  # type: ignore[no-any-return]
