"""How many examples the fuzzer tries, and the process that forks for each of their commands."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import resource_tracker

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS

from tests.fuzz.forks import Commands

# Hypothesis' own provider under another name: under its own, five of six examples repeat parts of earlier ones.
AVAILABLE_PROVIDERS["anew"] = "hypothesis.internal.conjecture.providers.HypothesisProvider"

settings.register_profile("quick", backend="anew", derandomize=True, database=None, deadline=None,
    suppress_health_check=[*HealthCheck])  # fmt: skip
settings.register_profile("nightly", settings.get_profile("quick"), derandomize=False, print_blob=True)


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    """A process that forks for each command. Neither it nor its helper outlasts the module: other tests count processes."""
    process = Commands()
    yield process
    process.close()
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]
