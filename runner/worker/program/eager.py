"""Eager as the reference: without what a model compiles by itself, and the random numbers that compiled code takes.

Compiled code is no reference for compiled code, so that eager runs go without it.

Inductor draws other numbers than eager by itself, so that no value of such a case could be compared. Its flag
``fallback_random`` gives it eager's generator. It also changes how a graph is decomposed and which passes run, so that
it may hide a defect that a user meets: a case that draws nothing runs without it. What numpy and Python draw does not
count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from runner.contract.job import Job
from runner.contract.settings import FALLBACK_RANDOM
from runner.worker.program.errors import InvalidCase
from runner.worker.program.load import LoadedCase, Source, configured
from runner.worker.program.observe import Observation, Settings, observe, observe_again
from runner.worker.torch_private import counters

_TORCH = Path(torch.__file__).parent
_OPERATORS = tuple(str(_TORCH / folder) for folder in ("_higher_order_ops", "nn/attention"))
"""Where torch itself has Dynamo trace what it then runs eagerly: ``torch.cond`` and its like, and
``flex_attention``."""


def own_compilations() -> list[str]:
    """Return the functions that were compiled since ``start_counting``, apart from what operators of torch trace by
    themselves."""
    frames = [metrics for metrics in counters.compilations() if metrics.co_filename]
    names = [str(frame.co_name) for frame in frames if not str(frame.co_filename).startswith(_OPERATORS)]
    return list(dict.fromkeys(names)) or (["a graph"] if (counters.of("aot_autograd") or {}).get("total") else [])


def observe_further(source: Source, eager: Observation, settings: Settings) -> Observation | None:
    """Run the model in eager once more if gradients flow through what it leaves in inputs and state.

    The backward of that run begins there too, as that of a loss which a model keeps beside its result. Return None
    where nothing begins there, or not in eager.
    """
    roots = frozenset(eager.calls[-1].graphs_kept)
    if not roots or settings.cotangent == "given" or eager.error is not None or eager.calls[-1].graphs_carried:
        return None
    further = observe_again(source, replace(settings, roots=roots))
    if further.error is not None:  # such as a loss whose graph the model has used by itself
        return None
    return replace(further, roots=roots, compilations=eager.compilations)


def observe_eager(source: Source, loaded: LoadedCase, settings: Settings) -> Observation:
    """Run the model in eager. If it compiles something, run it again without, and have the source load all others so.

    ``start_counting`` comes before the case is loaded.

    Raises:
        InvalidCase: the model needs what it compiles.
    """
    eager = observe(loaded, loaded.model, settings)
    eager.compilations = own_compilations()
    if not eager.compilations:
        return eager
    names = ", ".join(eager.compilations)
    source.stance = "force_eager"
    counters.start_counting()
    plain = observe_again(source, settings)
    if plain.error is not None and eager.error is None:
        raise InvalidCase(
            f"the model compiles {names} itself, and without that raised {plain.error.summary}", plain.error
        )
    plain.compilations = own_compilations()
    if plain.compilations or _differentiable(plain) != _differentiable(
        eager
    ):  # torch.cond needs Dynamo for its closures
        source.stance = ""
        return eager
    plain.notes.append(f"the model compiles a part of itself ({names}); its eager runs do not")
    return plain


def _differentiable(run: Observation) -> list[tuple[str, bool]]:
    """Return which outputs require a gradient, and which gradients there are."""
    leaves = [leaf for call in run.calls for leaf in call.outputs.leaves if leaf.metadata is not None]
    gradients = [(path, leaf is not None) for call in run.calls for path, leaf in call.gradients.items()]
    return [(leaf.path, leaf.metadata.requires_grad) for leaf in leaves if leaf.metadata is not None] + gradients


@contextlib.contextmanager
def eagers_numbers(job: Job, eager: Observation) -> Iterator[None]:
    """Let Inductor draw eager's numbers while the block lasts, if eager drew any. The case's own ``config:`` wins."""
    given = FALLBACK_RANDOM in job.config
    with configured([(FALLBACK_RANDOM, True)] if eager.drew_random and not given else []):
        yield


@contextlib.contextmanager
def settings_of_judged_run(job: Job, source: Source) -> Iterator[None]:
    """Run eager once, and set while the block lasts what a judged run sets because of it.

    Raises:
        InvalidCase: the case cannot be loaded.
    """
    with eagers_numbers(job, observe_again(source, Settings.of(job))):
        yield
