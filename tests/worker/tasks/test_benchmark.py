"""The task ``bench`` in this process: what it counts, what it says of a model that raises, and what it leaves alone."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from worker_jobs import run, source

from runner.worker.program.errors import InvalidCase
from runner.worker.program.load import Source
from runner.worker.program.observe import Settings
from runner.worker.tasks import benchmark
from runner.worker.tasks.benchmark import RepeatedCall

PLAIN = source("return torch.relu(x) + 1")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "ROUND", 0.005)


def bench(text: str, folder: Path, part: str = "warm", backend: str = "eager", **fields: Any) -> dict[str, Any]:
    arguments = {"part": part, "folder": str(folder), "repeat": 6, "bytes": 1 << 20}
    return run(text, backend, task="bench", arguments=arguments, **fields)


def test_the_warm_part_times_both_sides(tmp_path):
    record = bench(PLAIN, tmp_path, backend="aot_eager", threads=1)
    assert record["compile"]["seconds"] > 0 and (record["graphs"], record["graph_breaks"], record["recompiles"]) == (
        1,
        0,
        0,
    )
    for side in ("eager", "compiled"):
        seconds = record[side]["seconds"]
        assert 0 < seconds["best"] <= seconds["low"] <= seconds["median"] <= seconds["high"]
        assert seconds["count"] >= 6 and record[side]["launches"] is None
    assert record["phases"] == ["eager", "backend", "timing"]
    assert record["threads"] == 1 and record["device"]
    assert record["notes"] == []


def test_times_of_eager_that_hold_compiled_code_are_noted(tmp_path):
    definitions = "@torch.compile(backend='eager')\ndef relu(x):\n    return torch.relu(x)\n"
    record = bench(source("return relu(x) + 1", definitions=definitions), tmp_path)
    assert record["notes"] == ["the model compiles a part of itself (relu): the times of eager hold compiled code"]


def test_the_cold_part_compiles_and_counts_bytes(tmp_path):
    record = bench(PLAIN, tmp_path, "cold")
    assert record["compile"]["seconds"] > 0 and "eager" not in record
    assert (record["bytes"], record["bytes_source"]) == (2 * 4 * 5 * 4, "inputs+outputs")
    assert record["generated"] is None, "nothing of Inductor's ran"


def test_memory_that_tensors_share_or_repeat_is_counted_once(tmp_path):
    shared = source("return x, x[0], y", "torch.ones(1, 5).expand(400, 5), torch.ones(3, dtype=torch.float64)", "x, y")
    assert bench(shared, tmp_path, "cold")["bytes"] == 5 * 4 + 3 * 8


def test_inductors_own_count_is_taken_where_there_is_one(tmp_path, monkeypatch):
    from torch._inductor import metrics

    monkeypatch.setattr(metrics, "reset", lambda: None)
    monkeypatch.setattr(metrics, "num_bytes_accessed", 12345)
    monkeypatch.setattr(metrics, "generated_kernel_count", 2)
    monkeypatch.setattr(metrics, "ir_nodes_pre_fusion", 3)
    record = bench(PLAIN, tmp_path, "cold")
    assert (record["bytes"], record["bytes_source"], record["generated"]) == (12345, "inductor", 2)


def test_kernels_go_to_the_folder_and_the_environment_is_put_back(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/before")
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    text = source("return torch.relu(x)", init="""
        import os
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == FOLDER""".strip(), definitions=f"FOLDER = {str(tmp_path)!r}")  # fmt: skip
    assert "compile" in bench(text, tmp_path, "cold")
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "/before" and "TRITON_CACHE_DIR" not in os.environ


COUNTS = """self.count += 1
if self.count > {limit}:
    raise ValueError("enough")
return torch.relu(x)"""


@pytest.mark.parametrize(
    ("text", "backend", "during", "message"),
    [
        (source("return x.view(7)"), "aot_eager", "eager", "RuntimeError: shape '[7]'"),
        (PLAIN, "relu_compile_error_TESTING_ONLY", "compile", "ReluCompileError"),
        (source(COUNTS.format(limit=2), init="self.count = 0"), "eager", "timing", "ValueError: enough"),
    ],
)  # fmt: skip
def test_what_raises_is_told_with_its_time(tmp_path, text, backend, during, message):
    record = bench(text, tmp_path, backend=backend)
    assert record["raised"]["during"] == during and message in record["raised"]["summary"]
    assert "eager" not in record


def test_a_case_that_is_wrong_is_an_error(tmp_path):
    assert bench("import torch\n", tmp_path)["error"]["type"] == "InvalidCase"
    assert bench(PLAIN, tmp_path, backend="no_such")["error"]["message"].startswith("no backend named no_such")
    assert "nothing here times device meta" in bench(PLAIN, tmp_path, device="meta")["error"]["message"]


@pytest.mark.parametrize(
    ("text", "fields", "words"),
    [
        (source("x.add_(1)\nreturn x"), {}, "writes to its inputs"),
        (source("return torch.relu(x)", definitions="CALLS = [make_inputs, make_inputs]"), {}, "of its 2 calls the first"),
        (source("return x"), {}, "nothing was compiled"),
        (PLAIN, {"grad": {"mode": "backward"}}, "no output takes a gradient"),
        (source("return torch.sin(x)", "torch.randn(3, requires_grad=True)"), {"grad": {"mode": "backward", "order": 2}}, "higher order"),
    ],
)  # fmt: skip
def test_what_a_reader_should_know_is_noted(tmp_path, text, fields, words):
    assert any(words in note for note in bench(text, tmp_path, **fields)["notes"])


def test_a_model_that_is_compiled_again_while_it_is_repeated_is_noted(tmp_path):
    body = "self.count += 1\nif self.count < 4:\n    return torch.relu(x)\nreturn torch.sin(x)"
    record = bench(source(body, init="self.count = 0"), tmp_path)
    assert record["recompiles"] > 0 and any("compiled again" in note for note in record["notes"])


def test_the_copy_says_what_it_moved(tmp_path):
    record = bench(PLAIN, tmp_path, "copy")
    assert record["bytes"] == 2 << 20 and record["seconds"]["median"] > 0 and record["phases"] == ["timing"]


def test_users_flags_hold_while_it_runs(tmp_path):
    text = source("return torch.relu(x)", init="""
        import torch._inductor.config as config
        assert config.fallback_random is False""".strip())  # fmt: skip
    flag = "torch._inductor.config.fallback_random"
    assert "compile" in bench(text, tmp_path, "cold")
    error = bench(text, tmp_path, "cold", config={flag: True})["error"]
    assert error["message"].startswith("making the model raised AssertionError")


def test_every_round_takes_its_turn(tmp_path, monkeypatch):
    """Eager and compiled alternate, and which comes first alternates too."""
    order: list[str] = []
    names: dict[int, str] = {}

    def times(call: Any, device: str, least: int) -> list[float]:
        order.append(names.setdefault(id(call), "eager" if not names else "compiled"))
        return [1.0] * least

    monkeypatch.setattr(benchmark, "times", times)
    record = bench(PLAIN, tmp_path)
    assert order == ["eager", "compiled", "compiled", "eager", "eager", "compiled"]
    assert record["eager"]["seconds"]["count"] == record["compiled"]["seconds"]["count"] == 2 * benchmark.ROUNDS


@pytest.mark.parametrize(
    ("times", "median", "low", "high"),
    [([5.0, 1.0, 3.0, 2.0, 4.0], 3, 2, 4), ([1.0, 2.0], 1.5, 1.25, 1.75), ([7.0], 7, 7, 7)],
)
def test_a_spread_is_the_median_and_the_quartiles(times, median, low, high):
    assert benchmark.spread(times) == {
        "median": median,
        "low": low,
        "high": high,
        "best": min(times),
        "count": len(times),
    }


def test_a_slow_call_is_measured_as_often_as_asked(monkeypatch):
    monkeypatch.setattr(benchmark, "ROUND", 1e-6)
    calls: list[int] = []
    times = benchmark.times(lambda: calls.append(torch.ones(1 << 18).sum().numel()), "cpu", 7)
    assert len(times) >= 7 and len(calls) >= 7 and min(times) > 0


def test_on_cuda_the_bench_is_repeated_until_there_are_enough(monkeypatch):
    """``do_bench`` gives milliseconds, and as many as fit into its time."""
    testing = pytest.importorskip("triton.testing")
    reps: list[float] = []

    def do_bench(call, warmup, rep, return_mode):
        assert return_mode == "all"
        reps.append(rep)
        return [50.0] * max(1, int(rep / 50))

    monkeypatch.setattr(testing, "do_bench", do_bench)
    times = benchmark.times(lambda: None, "cuda", 10)
    assert times == [0.05] * len(times) and len(times) >= 10 and len(reps) == 2
    assert len(benchmark.times(lambda: None, "cuda:0", 1)) == 2 and len(reps) == 3, "enough at once"


def test_memory_is_what_a_call_holds_at_its_peak():
    tensors: list[torch.Tensor] = []

    def hold() -> None:
        tensors[:] = [torch.ones(32 << 18)]  # 32 MiB

    def drop() -> None:
        torch.ones(64 << 18)  # 64 MiB, gone at once

    nothing = benchmark.memory(lambda: None, "cpu")
    if nothing is None:
        pytest.skip("this kernel does not let a process forget its peak")
    assert nothing < 4 << 20
    for call, peak in ((hold, 32 << 20), (drop, 64 << 20)):
        assert benchmark.memory(call, "cpu") == pytest.approx(peak, abs=4 << 20)
    assert benchmark.memory(lambda: None, "cpu") < 4 << 20, "a peak is forgotten"


def test_memory_that_cannot_be_told_is_none(monkeypatch):
    def refuse(*args: Any, **options: Any) -> None:
        raise PermissionError("/proc/self/clear_refs")

    monkeypatch.setattr(Path, "write_text", refuse)
    assert benchmark.memory(lambda: None, "cpu") is None


def test_launches_are_the_kernels_among_what_the_gpu_did(monkeypatch):
    from torch.autograd import DeviceType

    def event(name: str, device: DeviceType, annotation: bool = False) -> SimpleNamespace:
        return SimpleNamespace(name=name, device_type=device, is_user_annotation=annotation)

    entries = [
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
            return entries

    monkeypatch.setattr(torch.profiler, "profile", Profile)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert benchmark.launches(lambda: None, "cuda") == 2
    entries[:] = entries[-1:]
    assert benchmark.launches(lambda: None, "cuda") is None, "a profiler that sees no device has counted nothing"
    assert benchmark.launches(lambda: None, "cpu") is None


def test_only_what_has_a_clock_is_timed():
    benchmark.select("cpu")
    with pytest.raises(InvalidCase, match="nothing here times device xpu"):
        benchmark.select("xpu:0")


BACKWARD = Settings(0, "backward", "seeded", 1, None, "cpu")


def repeated(folder: Path, text: str, settings: Settings = BACKWARD) -> tuple[RepeatedCall, torch.nn.Module]:
    loaded = Source(text, "case", str(folder)).load(0)
    return RepeatedCall(loaded, loaded.model, settings), loaded.model


LINEAR = source(
    "return self.linear(x)",
    "torch.randn(3, 4, requires_grad=True).t().contiguous().t()",
    init="self.linear = torch.nn.Linear(4, 2); self.grads = []; self.linear.weight.register_hook(self.grads.append)",
)


def test_each_call_has_its_backward_and_gradients_do_not_add_up(tmp_path):
    call, model = repeated(tmp_path, LINEAR)
    call.first()
    for _ in range(3):
        call()
    assert len(model.grads) == 4
    assert all(torch.equal(grad, model.grads[0]) for grad in model.grads)
    assert model.linear.weight.grad is None
    assert call.notes == []


def test_without_a_backward_none_is_run(tmp_path):
    call, model = repeated(tmp_path, LINEAR, Settings(0, "forward", "seeded", 1, None, "cpu"))
    call.first()
    call()
    assert model.grads == []


def test_autocast_is_around_every_call(tmp_path):
    text = source("self.seen.append((x @ x.t()).dtype)\nreturn x", init="self.seen = []")
    call, model = repeated(tmp_path, text, Settings(0, "off", "seeded", 1, torch.bfloat16, "cpu"))
    call.first()
    call()
    assert model.seen == [torch.bfloat16] * 2
