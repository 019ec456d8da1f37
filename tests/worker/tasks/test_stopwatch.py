"""Spreads, repetitions and memory, each against something whose figure is known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from runner.worker.program.errors import InvalidCase
from runner.worker.tasks import stopwatch


@pytest.mark.parametrize(
    ("found", "median", "low", "high"),
    [([5.0, 1.0, 3.0, 2.0, 4.0], 3, 2, 4), ([1.0, 2.0], 1.5, 1.25, 1.75), ([7.0], 7, 7, 7)],
)
def test_a_spread_is_the_median_and_the_quartiles(found, median, low, high):
    assert stopwatch.spread(found) == {
        "median": median,
        "low": low,
        "high": high,
        "best": min(found),
        "count": len(found),
    }


def test_a_slow_call_is_measured_as_often_as_asked(monkeypatch):
    monkeypatch.setattr(stopwatch, "ROUND", 1e-6)
    calls: list[int] = []
    found = stopwatch.times(lambda: calls.append(torch.ones(1 << 18).sum().numel()), "cpu", 7)
    assert len(found) >= 7 and len(calls) >= 7 and min(found) > 0


def test_on_cuda_the_bench_is_repeated_until_there_are_enough(monkeypatch):
    """``do_bench`` gives milliseconds, and as many as fit into its time."""
    testing = pytest.importorskip("triton.testing")
    asked: list[float] = []

    def do_bench(call, warmup, rep, return_mode):
        assert return_mode == "all"
        asked.append(rep)
        return [50.0] * max(1, int(rep / 50))

    monkeypatch.setattr(testing, "do_bench", do_bench)
    found = stopwatch.times(lambda: None, "cuda", 10)
    assert found == [0.05] * len(found) and len(found) >= 10 and len(asked) == 2
    assert len(stopwatch.times(lambda: None, "cuda:0", 1)) == 2 and len(asked) == 3, "enough at once"


def test_memory_is_what_a_call_holds_at_its_peak():
    kept: list[torch.Tensor] = []

    def hold() -> None:
        kept[:] = [torch.ones(32 << 18)]  # 32 MiB

    def drop() -> None:
        torch.ones(64 << 18)  # 64 MiB, gone at once

    nothing = stopwatch.memory(lambda: None, "cpu")
    if nothing is None:
        pytest.skip("this kernel does not let a process forget its peak")
    assert nothing < 4 << 20
    for call, wanted in ((hold, 32 << 20), (drop, 64 << 20)):
        assert stopwatch.memory(call, "cpu") == pytest.approx(wanted, abs=4 << 20)
    assert stopwatch.memory(lambda: None, "cpu") < 4 << 20, "a peak is forgotten"


def test_memory_that_cannot_be_told_is_none(monkeypatch):
    monkeypatch.setattr(stopwatch, "_forget_peak", lambda: False)
    assert stopwatch.memory(lambda: None, "cpu") is None


def test_launches_are_the_kernels_among_what_the_gpu_did(monkeypatch):
    from torch.autograd import DeviceType

    def event(name: str, device: DeviceType, annotation: bool = False) -> SimpleNamespace:
        return SimpleNamespace(name=name, device_type=device, is_user_annotation=annotation)

    seen = [
        event("triton_poi_fused_0", DeviceType.CUDA),
        event("ampere_sgemm", DeviceType.CUDA),
        event("Memcpy DtoD (Device -> Device)", DeviceType.CUDA),
        event("Memset (Device)", DeviceType.CUDA),
        event("Torch-Compiled Region", DeviceType.CUDA, annotation=True),
        event("aten::mm", DeviceType.CPU),
    ]

    class Profile:
        def __init__(self, activities: object) -> None: ...

        def __enter__(self) -> Profile:
            return self

        def __exit__(self, *_: object) -> None: ...

        def events(self) -> list[SimpleNamespace]:
            return seen

    monkeypatch.setattr(torch.profiler, "profile", Profile)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert stopwatch.launches(lambda: None, "cuda") == 2
    seen[:] = seen[-1:]
    assert stopwatch.launches(lambda: None, "cuda") is None, "a profiler that sees no device has counted nothing"
    assert stopwatch.launches(lambda: None, "cpu") is None


def test_only_what_has_a_clock_is_timed():
    stopwatch.select("cpu")
    with pytest.raises(InvalidCase, match="nothing here times device xpu"):
        stopwatch.select("xpu:0")
