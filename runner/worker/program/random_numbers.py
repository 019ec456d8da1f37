"""Eager's random numbers for compiled code, in cases that draw any, and in no other.

Inductor draws other numbers than eager by itself, so that no value of such a case could be compared. Its flag
``fallback_random`` gives it eager's generator. It also changes how a graph is decomposed and which passes run, so that
it may hide a defect that a user meets: a case that draws nothing runs without it. What numpy and Python draw does not
count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from runner.contract.job import Job
from runner.contract.settings import FALLBACK_RANDOM
from runner.worker.program.load import Source, configured
from runner.worker.program.observe import Observation, Settings, observe


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
    settings = Settings.of(job)
    loaded = source.load(settings.seed)
    with eagers_numbers(job, observe(loaded, loaded.model, settings)):
        yield
