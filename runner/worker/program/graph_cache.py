"""Graphs that an earlier run compiled, for jobs that may load them: torch's own graph caches, under a key of ours.

torch's keys hold the graph, its inputs and most settings. ``torch.compiler.config.cache_key_tag`` adds what they lack,
such as the compiler's version, and the job's own flags. A torch without that tag compiles every graph.

Only a job that passed leaves graphs to later ones. One that compiles its second graph otherwise when it has loaded the
first one could fail in one run and pass in the next.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from runner.contract.job import Job
from runner.contract.settings import PASSED
from runner.worker.program.load import configured
from runner.worker.torch_private import counters
from runner.worker.torch_private.preparation import CACHE_DIR
from runner.worker.torch_private.settings import entry_of_flag

TAG = "torch.compiler.config.cache_key_tag"
CACHES = ("torch._inductor.config.fx_graph_cache", "torch._functorch.config.enable_autograd_cache")
_KEYS = ("graphs", "threads", "config", "backend")
FORCED = "env_value_force"
"""Attribute of a flag's entry in ``torch.utils._config_module``. A worker's environment turns both caches off, and no
other way to set these flags counts as long as a variable is set."""


class GraphStore:
    """The graphs of a job: those of its last run that passed, or new ones that no other job can load yet."""

    def __init__(self, job: Job) -> None:
        """Look for graphs of a job with this digest and these settings."""
        parts = json.dumps([getattr(job, key) for key in _KEYS], sort_keys=True, default=repr)
        digest = hashlib.sha256(parts.encode(errors="surrogateescape")).hexdigest()
        self._path = Path(CACHE_DIR.need()(), PASSED, digest)
        try:
            self.tag = self._path.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            self.tag = f"{digest}-{os.urandom(8).hex()}"

    def keep(self) -> None:
        """Let later jobs load the graphs: this one passed.

        Where the folder cannot be written to, they compile theirs.
        """
        own = self._path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            own.write_text(self.tag, encoding="ascii")
            own.replace(self._path)


@contextlib.contextmanager
def stored_graphs(job: Job) -> Iterator[GraphStore | None]:
    """Let torch load graphs that were compiled before, and store new ones, while the block lasts, if the job has
    ``graphs``.

    ``graphs`` is a digest of all that decides what is compiled, beside the job.
    """
    if not job.graphs or CACHE_DIR.find() is None:
        yield None
        return
    store = GraphStore(job)
    with graph_caches(store.tag) as on:
        yield store if on else None


@contextlib.contextmanager
def graph_caches(tag: str) -> Iterator[bool]:
    """Let torch store graphs under a tag, and load those of that tag, while the block lasts; give whether it can."""
    entries = _entries()
    if not entries:
        yield False
        return
    with configured([(TAG, tag)]), contextlib.ExitStack() as stack:
        for entry in entries:
            stack.enter_context(mock.patch.object(entry, FORCED, True))
        yield True


def count_loaded() -> int:
    """Return how many graphs were loaded and not compiled since torch's counters were cleared.

    A forward and its backward are one graph of AOTAutograd's cache, and two of Inductor's.
    """
    autograd, inductor = (counters.of(kind) or {} for kind in ("aot_autograd", "inductor"))
    return max(autograd.get("autograd_cache_hit", 0), inductor.get("fxgraph_cache_hit", 0))


def _entries() -> list[Any]:
    """Return the entries of the flags of both caches; none in a torch that has them, or the tag, in another form."""
    try:
        entry_of_flag(TAG)
        entries = [entry_of_flag(name) for name in CACHES]
    except (ImportError, AttributeError, KeyError):
        return []
    return entries if all(hasattr(entry, FORCED) for entry in entries) else []
