"""Inductor's preparation of the C++ compiler before its first kernel, done in parallel.

With an empty cache torch compiles and loads a file for each vector instruction set that the processor knows. Only then
it precompiles its header. This is most of the 20 to 30 seconds that the first kernel takes. The parts are independent,
so they can use all cores. The results lie where torch looks for them; what fails here torch does again by itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from runner.worker.torch_private.vectors import candidates, compile_a_kernel, forget_answers, has_picked_none

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
