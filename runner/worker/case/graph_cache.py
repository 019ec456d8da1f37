"""Graphs that an earlier run compiled, for jobs that may load them: torch's own graph caches, under a key of ours.

torch's keys hold the graph, its inputs and most settings. ``torch.compiler.config.cache_key_tag`` adds what they lack, such as
the compiler's version, and the job's own flags. A torch without that tag compiles every graph.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from torch._dynamo.utils import counters

from runner.worker.case.load import configured

TAG = "torch.compiler.config.cache_key_tag"
CACHES = ("torch._inductor.config.fx_graph_cache", "torch._functorch.config.enable_autograd_cache")
FORCED = "env_value_force"
"""Attribute of a flag's entry in ``torch.utils._config_module``. A worker's environment turns both caches off, and no other
way to set these flags counts as long as a variable is set."""


@contextlib.contextmanager
def stored_graphs(job: Mapping[str, Any]) -> Iterator[None]:
    """Let torch load graphs that were compiled before, and store new ones, while the block lasts, if the job has ``graphs``.

    ``graphs`` is a digest of all that decides what is compiled, beside the job.
    """
    entries = _entries() if job.get("graphs") else []
    if not entries:
        yield
        return
    parts = [job["graphs"], job.get("threads"), job.get("config"), job.get("backend")]
    originals = [getattr(entry, FORCED) for entry in entries]
    with configured([(TAG, json.dumps(parts, sort_keys=True, default=repr))]):
        try:
            for entry in entries:
                setattr(entry, FORCED, True)
            yield
        finally:
            for entry, original in zip(entries, originals):  # noqa: B905
                setattr(entry, FORCED, original)


def count_loaded() -> int:
    """Return how many graphs were loaded and not compiled since torch's counters were cleared.

    A forward and its backward are one graph of AOTAutograd's cache, and two of Inductor's.
    """
    return max(int(counters["aot_autograd"]["autograd_cache_hit"]), int(counters["inductor"]["fxgraph_cache_hit"]))


def _entries() -> list[Any]:
    """Return the entries of the flags of both caches; none in a torch that has them, or the tag, in another form."""
    try:
        _flag(TAG)
        entries = [_flag(name) for name in CACHES]
    except (ImportError, AttributeError, KeyError):
        return []
    return entries if all(hasattr(entry, FORCED) for entry in entries) else []


def _flag(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return importlib.import_module(module)._config[attribute]
