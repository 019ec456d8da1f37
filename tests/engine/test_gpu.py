"""Isolation on real GPUs: leases, memory shares, poisoned processes. Skipped without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_jobs import ENTRY, finish, job

from runner.contract.job import Job
from runner.engine.local import LocalEngine
from runner.engine.messages import Outcome
from tests.gpus import count as gpus_here

CASE = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        y = torch.sin(x)
        return torch.relu(y @ y.T){tail}
def make_model():
    return Model().eval()
def make_inputs():
    return [torch.randn(8, 8, device="{device}"{more})]
"""
POISON = CASE.format(tail="[torch.tensor([99], device='cuda')]", device="cuda", more="")


@pytest.fixture(scope="module")
def gpus() -> int:
    count = gpus_here()
    if not count:
        pytest.skip("no GPU here")
    return count


@pytest.fixture
def snippets(tmp_path: Path) -> dict[str, str]:
    """Variables that make workers run snippets, with the real torch."""
    (tmp_path / "entry.py").write_text(ENTRY)
    return {"PYTHONPATH": str(tmp_path), "RUNNER_WORKER_ENTRY": "entry:run_job"}


@pytest.fixture(scope="module")
def engine(gpus: int) -> Iterator[LocalEngine]:
    with LocalEngine({"here": sys.executable}, 2 * gpus, warm={"here": "inductor"}) as instance:
        yield instance


def case(key: str, isolation: str, backend: str, device: str = "cuda", text: str = "", **options: object) -> Job:
    source = text or CASE.format(tail=f" + {len(key)}", device=device, more="")
    fields = {
        "environment": "here",
        "name": "case",
        "isolation": isolation,
        "timeout": 300.0,
        "device": device,
        **options,
    }
    return Job(key, f"id-{key}", source=source, backend={"backend": backend}, **fields)  # type: ignore[arg-type]


def passes(outcome: Outcome) -> bool:
    return outcome.ended == "result" and not outcome.result["findings"] and outcome.result["trust"] is None


def test_each_gpu_is_leased_and_its_memory_shared(gpus: int, snippets: dict[str, str]) -> None:
    source = """
        import os, time, torch
        result["count"], result["gpu"] = torch.cuda.device_count(), os.environ["CUDA_VISIBLE_DEVICES"]
        result["uuid"] = str(torch.cuda.get_device_properties(0).uuid)
        total = torch.cuda.get_device_properties(0).total_memory
        torch.empty(int(total * 0.4), dtype=torch.uint8, device="cuda")
        torch.cuda.empty_cache()
        try:
            torch.empty(int(total * 0.6), dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            result["refused"] = True
        time.sleep(2)
    """
    with LocalEngine({"here": sys.executable}, 2 * gpus, warm={"here": "none"}, environ=snippets) as engine:
        jobs = [job(source, str(number), device="cuda", timeout=120) for number in range(2 * gpus)]
        outcomes = finish(engine, *jobs, limit=240)
    results = [outcome.result for outcome in outcomes.values()]
    assert [outcome.detail for outcome in outcomes.values()] == [""] * len(jobs)
    assert all(result["count"] == 1 and result.get("refused") for result in results)
    assert len({result["gpu"] for result in results}) == len({result["uuid"] for result in results}) == gpus


def test_verdicts_are_the_same_in_every_isolation(engine: LocalEngine) -> None:
    jobs = [
        case(f"{isolation} {backend} {number}", isolation, backend)
        for isolation in ("fork", "living", "fresh")
        for backend in ("aot_eager", "inductor")
        for number in range(1 if isolation == "fresh" else 3)
    ]
    outcomes = finish(engine, *jobs, limit=500)
    assert [key for key, outcome in outcomes.items() if not passes(outcome)] == []
    assert max(len(outcome.earlier_jobs) for outcome in outcomes.values()) > 0


def test_a_poisoned_process_takes_no_other_job(engine: LocalEngine) -> None:
    keys = ["before", "poison", "after", "again"]
    outcomes = {}
    for key in keys:
        job = case(key, "living", "aot_eager", text=POISON if key == "poison" else "")
        outcomes |= finish(engine, job, limit=200)
    assert not passes(outcomes["poison"])
    assert passes(outcomes["before"]) and passes(outcomes["after"]) and passes(outcomes["again"])
    assert "id-poison" not in outcomes["after"].earlier_jobs + outcomes["again"].earlier_jobs


@pytest.mark.parametrize("isolation", ["fork", "living"])
def test_a_warm_up_beside_a_gpu_spoils_no_backward_on_the_cpu(engine: LocalEngine, isolation: str) -> None:
    text = CASE.format(tail="", device="cpu", more=", requires_grad=True")
    grad = {"mode": "backward"}
    jobs = [case(backend, isolation, backend, "cpu", text, grad=grad) for backend in ("aot_eager", "inductor")]
    outcomes = finish(engine, *jobs, limit=300)
    assert [outcome.detail for outcome in outcomes.values() if not passes(outcome)] == []
    assert [server.hello["warm_error"] for server in engine._servers.values() if server.hello.get("warm_error")] == []
