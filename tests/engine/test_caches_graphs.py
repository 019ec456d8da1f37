"""Which jobs may load graphs of earlier runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runner.contract.job import Job
from runner.engine.caches import graphs_digest, make_cache_key
from runner.engine.fingerprint import Fingerprint

FACTS = Fingerprint("digest")
JOB = Job("v here main", "v", "here", "m", "import torch\n", {"backend": "inductor"})


def test_a_job_of_inductor_may_load_them() -> None:
    assert graphs_digest(JOB, FACTS) == make_cache_key(JOB, FACTS)
    assert graphs_digest(
        replace(JOB, backend={"backend": "inductor", "mode": "default", "options": {"debug": True}}), FACTS
    )


def test_program_and_settings_are_part_of_the_key() -> None:
    """torch's own key of a backward lacks what AOTAutograd tells Inductor beside the graph."""
    on, off = ({"torch._functorch.config.donated_buffer": value} for value in (True, False))
    options = {"backend": "inductor", "options": {"debug": True}}
    jobs = [
        JOB,
        replace(JOB, config=on),
        replace(JOB, config=off),
        replace(JOB, backend=options),
        replace(JOB, source="x"),
    ]
    keys = [graphs_digest(job, FACTS) for job in jobs]
    assert all(keys) and len(set(keys)) == len(jobs)
    assert keys[0] != graphs_digest(JOB, Fingerprint("another"))
    assert keys[1] == graphs_digest(replace(JOB, config=dict(on), seed=7), FACTS)
    twins = [replace(JOB, source=f'"""a\n\nWritten from {place}/a.spec.yaml\n"""\n') for place in ("here", "there")]
    assert len({graphs_digest(job, FACTS) for job in twins}) == 1, "a case may be checked out elsewhere"


@pytest.mark.parametrize(
    "changes",
    [
        {"backend": {"backend": "aot_eager"}},
        {"backend": {"backend": "inductor", "mode": "max-autotune"}},
        {"backend": {"backend": "inductor", "options": {"max_autotune": True}}},
        {"backend": {"backend": "package:inductor"}},
        {"config": {"torch._inductor.config.fx_graph_cache": False}},
        {"config": {"torch._inductor.config.force_disable_caches": True}},
        {"isolation": "fresh"},
        {"isolation": "living"},
        {"device": "cuda"},
        {"cacheable": False},
        {"compile_timeout": 5.0},
        {"coverage": "parts"},
        {"imports": ("mine",)},
        {"variables": {"TRITON_INTERPRET": "1"}},
        {"task": "bench"},
    ],
)
def test_another_job_compiles(changes: dict[str, Any]) -> None:
    assert graphs_digest(replace(JOB, **changes), Fingerprint("digest", devices=("cpu", "cuda"))) == ""


def test_without_a_whole_fingerprint_everything_is_compiled() -> None:
    assert graphs_digest(JOB, None) == graphs_digest(JOB, Fingerprint("digest", "TORCH_LOGS set")) == ""
