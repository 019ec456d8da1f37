"""Which jobs may load graphs of earlier runs, and how many graphs are kept."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.engine import graphs
from runner.engine.cached import make_cache_key
from runner.engine.fingerprint import Fingerprint
from runner.engine.graphs import graphs_digest, trim
from runner.engine.messages import Job
from runner.worker.settings import CACHE_FOLDER

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
    written = [replace(JOB, source=f'"""a\n\nWritten from {place}/a.spec.yaml\n"""\n') for place in ("here", "there")]
    assert len({graphs_digest(job, FACTS) for job in written}) == 1, "a case may be checked out elsewhere"


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


@pytest.mark.parametrize("chosen", [True, False])
def test_the_oldest_graphs_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: bool) -> None:
    """Unless they lie in a folder that a person chose."""
    monkeypatch.setattr(graphs, "cache_folder", lambda python: str(tmp_path))
    monkeypatch.setenv(CACHE_FOLDER, "somewhere" if chosen else "")
    for name in graphs.FOLDERS:
        for number in range(10):
            path = tmp_path / name / "ab" / f"key{number}" / "graph"
            path.parent.mkdir(parents=True)
            path.write_bytes(b"x" * 100)
            os.utime(path, (1000 + number, 1000 + number))
    kernel = tmp_path / "ab" / "kernel.so"
    kernel.parent.mkdir()
    kernel.write_bytes(b"x" * 1000)
    trim(["python"], 500)
    for name in graphs.FOLDERS:
        kept = sorted(path.parent.name for path in tmp_path.glob(f"{name}/ab/*/graph"))
        assert kept == [f"key{number}" for number in range(0 if chosen else 6, 10)]
    assert kernel.exists()


def test_folders_that_are_not_there_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "cache_folder", lambda python: str(tmp_path / "none"))
    monkeypatch.delenv(CACHE_FOLDER, raising=False)
    trim(["python"])
    assert not (tmp_path / "none").exists()
