"""Which jobs run beside which: slots, jobs that must be alone, GPUs."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from engine_jobs import Make, finish, job

from runner.contract.job import Job
from runner.engine.messages import Outcome

SPAN = """
import os, time
result.update(begin=time.monotonic(), slot=int(os.environ["RUNNER_SLOT"]), pid=os.getpid())
result["gpu"] = os.environ.get("CUDA_VISIBLE_DEVICES")
time.sleep(0.15)
result["end"] = time.monotonic()
"""
GPUS = """
import types
__version__ = "9.9.9+fake"
version = types.SimpleNamespace(git_version="abc")
shares = []
cuda = types.SimpleNamespace(
    is_available=lambda: True, device_count=lambda: {count}, set_per_process_memory_fraction=shares.append
)
def get_num_threads(): return 2
def set_num_threads(count): pass
"""


def overlap(one: Outcome, other: Outcome) -> bool:
    a, b = one.result, other.result
    return bool(a["begin"] < b["end"] and b["begin"] < a["end"])


def overlapping(outcomes: dict[str, Outcome]) -> list[tuple[Outcome, Outcome]]:
    return [pair for pair in itertools.combinations(outcomes.values(), 2) if overlap(*pair)]


@pytest.mark.parametrize("isolation", ["fork", "fresh", "living"])
def test_jobs_that_run_at_once_have_different_slots(make: Make, isolation: str) -> None:
    outcomes = finish(make(3), *(job(SPAN, str(number), isolation=isolation) for number in range(9)))
    pairs = overlapping(outcomes)
    assert pairs and all(one.result["slot"] != other.result["slot"] for one, other in pairs)
    assert {outcome.result["slot"] for outcome in outcomes.values()} == {0, 1, 2}


@pytest.mark.parametrize("isolation", ["fork", "living"])
def test_alone_is_alone(make: Make, isolation: str) -> None:
    jobs = [job(SPAN, f"{number}", isolation=isolation) for number in range(6)]
    jobs[2:2] = [job(SPAN, "alone", isolation=isolation, alone=True), job(SPAN, "too", alone=True)]
    jobs.append(job(SPAN, "elsewhere", environment="there"))
    outcomes = finish(make(3, environments=("here", "there")), *jobs)
    pairs = [{one.job.key, other.job.key} for one, other in overlapping(outcomes)]
    assert pairs and not any(pair & {"alone", "too"} for pair in pairs)


def test_what_is_alone_does_not_wait_for_ever(make: Make) -> None:
    """Younger jobs do not pass it, though a slot is free while the older ones end."""
    jobs = [job(SPAN, "0"), job(SPAN, "1"), job(SPAN, "alone", alone=True), *(job(SPAN, f"{n}") for n in range(2, 8))]
    outcomes = finish(make(2), *jobs)
    younger = [outcomes[f"{n}"].result["begin"] for n in range(2, 8)]
    assert outcomes["alone"].result["end"] <= min(younger)


def leased(make: Make, fake: dict[str, str], count: int, slots: int, *jobs: Job, given: str | None = None):  # type: ignore[no-untyped-def]
    Path(fake["PYTHONPATH"], "torch", "__init__.py").write_text(GPUS.format(count=count))
    return finish(make(slots, {"CUDA_VISIBLE_DEVICES": given} if given is not None else None), *jobs)


def test_each_job_gets_a_gpu_of_its_own(make: Make, fake: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    share = "import torch; result['shares'] = torch.shares\n"
    jobs = [job(share + SPAN, str(number), device="cuda") for number in range(8)]
    outcomes = leased(make, fake, 3, 3, *jobs)
    pairs = overlapping(outcomes)
    assert pairs and all(one.result["gpu"] != other.result["gpu"] for one, other in pairs)
    assert {outcome.result["gpu"] for outcome in outcomes.values()} == {"0", "1", "2"}
    assert all(outcome.result["shares"] == [] for outcome in outcomes.values())


def test_more_slots_than_gpus_share_their_memory(make: Make, fake: dict[str, str]) -> None:
    share = "import torch; result['shares'] = torch.shares\n"
    jobs = [job(share + SPAN, str(number), device="cuda") for number in range(6)]
    outcomes = leased(make, fake, 2, 4, *jobs, given="GPU-a,7")
    assert {outcome.result["gpu"] for outcome in outcomes.values()} == {"GPU-a", "7"}
    assert all(outcome.result["shares"] == [0.5] for outcome in outcomes.values())
    for one in outcomes.values():
        beside = [other for other in outcomes.values() if other is not one and overlap(one, other)]
        assert sum(other.result["gpu"] == one.result["gpu"] for other in beside) <= 2


def test_an_index_is_left_as_written_and_a_cpu_job_sees_no_gpu(make: Make, fake: dict[str, str]) -> None:
    jobs = [job(SPAN, "cuda:1", device="cuda:1"), job(SPAN, "cpu"), job(SPAN, "cuda", device="cuda")]
    outcomes = leased(make, fake, 2, 3, *jobs, given="4,5")
    assert {key: outcome.result["gpu"] for key, outcome in outcomes.items()} == {
        "cuda:1": "4,5",
        "cpu": "",
        "cuda": "4",
    }


def test_without_a_gpu_nothing_is_leased(make: Make) -> None:
    outcome = finish(make(1, {"CUDA_VISIBLE_DEVICES": ""}), job(SPAN, "k", device="cuda"))["k"]
    assert outcome.result["gpu"] == ""


def test_a_living_worker_keeps_its_gpu(make: Make, fake: dict[str, str]) -> None:
    jobs = [job(SPAN, str(number), device="cuda", isolation="living") for number in range(6)]
    outcomes = leased(make, fake, 2, 2, *jobs, given="4,5")
    assert len({outcome.result["pid"] for outcome in outcomes.values()}) == 2
    assert len({(outcome.result["pid"], outcome.result["gpu"]) for outcome in outcomes.values()}) == 2
    assert {outcome.result["gpu"] for outcome in outcomes.values()} == {"4", "5"}
