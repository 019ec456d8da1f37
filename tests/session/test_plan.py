"""``runner.session.plan``: what cannot run here, and what a job is told, for kernels."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from runner.builder.source import Source, build
from runner.cases.torch_names import PRECISION
from runner.contract.job import Job
from runner.exit_codes import UsageError
from runner.session.collect import collect, load
from runner.session.plan import INTERPRET, Environment, Planned, job, skip_reason, warmth
from runner.session.settings import RunSettings
from runner.worker.program.load import configured
from tests.handmade import loaded, written

SHIPPED = Path(__file__).resolve().parents[2] / "specs" / "kernels"
INTERPRETED = "on the CPU Triton kernels are interpreted, and the interpreter cannot run inside a compiled graph"
NOTHING = "this case launches no Triton kernel"


def planned(tmp_path: Path, backend: str, device: str, chain: str = "[{triton.add: [$x, $x]}]") -> Planned:
    shutil.copy(SHIPPED / "add.py", tmp_path)
    kernel = (SHIPPED / "pointwise.spec.yaml").read_text(encoding="utf-8").partition("  dropout:")[0]
    case = f"cases:\n  - {{name: a, inputs: {{x: [3]}}, params: {{}}, chain: {chain}}}\n"
    (tmp_path / "a.spec.yaml").write_text(kernel + case, encoding="utf-8")
    loaded = load([str(tmp_path / "a.spec.yaml")], allow_python=True, backends=[backend], devices=[device])
    return Planned(loaded.variants[0], Environment("0", "python", "2.13.0", "2.13.0+cu128", "3.11"))


@pytest.mark.parametrize(
    ("backend", "device", "reason", "variables"),
    [
        ("triton", "cpu", "", INTERPRET),
        ("triton", "cuda", "", {}),
        ("triton-compiled", "cpu", INTERPRETED, {}),
        ("triton-compiled", "cuda", "", {}),
        ("inductor", "cpu", INTERPRETED, {}),
        ("inductor", "cuda", "", {}),
    ],
)
def test_where_kernels_run(tmp_path: Path, backend: str, device: str, reason: str, variables: dict[str, str]) -> None:
    entry = planned(tmp_path, backend, device)
    assert skip_reason(entry) == reason
    record = job(entry, build(entry.variant))
    assert (record.variables, record.packages, record.cacheable) == (variables, ("triton",), False)
    assert record.ignore == ("stride",)


@pytest.mark.parametrize(("backend", "reason"), [("triton", NOTHING), ("triton-compiled", NOTHING), ("inductor", "")])
def test_a_case_without_kernels(tmp_path: Path, backend: str, reason: str) -> None:
    entry = planned(tmp_path, backend, "cpu", "[F.relu]")
    assert skip_reason(entry) == reason
    record = job(entry, build(entry.variant))
    assert (record.packages, record.cacheable, record.ignore) == ((), True, ())


TF32 = "torch.backends.cudnn.allow_tf32"


def test_a_gpu_rounds_as_its_dtypes_do_unless_the_case_says_otherwise(tmp_path: Path) -> None:
    assert job(planned(tmp_path, "inductor", "cpu", "[F.relu]"), Source("", ())).config == {}
    on_gpu = job(planned(tmp_path, "inductor", "cuda", "[F.relu]"), Source("", ())).config
    assert set(on_gpu) == set(PRECISION) and not any(on_gpu.values())
    own = job(planned(tmp_path, "inductor", "cuda", f"[F.relu], config: {{{TF32}: true}}"), Source("", ())).config
    assert {name for name, on in own.items() if on} == {TF32}


def ruled(tmp_path: Path, keys: str, torch: str = "2.13.0", backend: str = "inductor", rule: str = "") -> Job:
    path = written(tmp_path, f"cases:\n  - {{name: a, inputs: {{x: [2]}}, chain: [torch.sin]{keys}}}\n")
    variant = collect([path], RunSettings(backend=(backend,), values=rule or None)).variants[0]
    return job(Planned(variant, Environment("0", "python", torch, torch, "3.11")), Source("", ()))


def test_a_rule_for_values_brings_the_flags_that_torch_has_for_it(tmp_path: Path) -> None:
    bitwise = ", tolerance: {values: bitwise}"
    record = ruled(tmp_path, bitwise)
    assert record.tolerance == {"by_dtype": {}, "exact": True, "values": "bitwise", "bound": None}
    assert record.config == {} and record.backend["options"] == {
        "emulate_precision_casts": True, "deterministic": True, "eager_numerics.division_rounding": True,
        "eager_numerics.disable_ftz": True, "eager_numerics.use_pytorch_libdevice": True,
    }  # fmt: skip
    assert ruled(tmp_path, bitwise, "2.6.0").backend["options"] == {"emulate_precision_casts": True}
    assert ruled(tmp_path, bitwise, backend="aot_eager").backend["options"] == {}
    assert ruled(tmp_path, ", tolerance: {values: batch-invariant}").backend["options"] == {"batch_invariant": True}
    assert ruled(tmp_path, "").backend["options"] == {} and ruled(tmp_path, "").tolerance == {
        "by_dtype": {},
        "exact": False,
    }


def test_beside_a_mode_the_flags_are_settings_and_the_cases_own_win(tmp_path: Path) -> None:
    flag = "torch._inductor.config.emulate_precision_casts"
    mode = ruled(tmp_path, ", tolerance: {values: bitwise}, compile: {mode: max-autotune}", "2.6.0")
    assert (mode.backend["options"], mode.config) == ({}, {flag: True})
    own = ruled(tmp_path, f", tolerance: {{values: bitwise}}, config: {{{flag}: false}}", "2.6.0")
    assert (own.backend["options"], own.config) == ({}, {flag: False})


def test_a_run_may_ask_for_a_rule(tmp_path: Path) -> None:
    loose = ", tolerance: {rtol: 1, reason: x}"
    assert ruled(tmp_path, loose, rule="bitwise").tolerance["by_dtype"] == {}
    assert ruled(tmp_path, loose, rule="deterministic").tolerance["by_dtype"] == {"": [1, None]}
    own = ruled(tmp_path, ", tolerance: {values: {ulp: 1}, reason: x}", rule="bitwise")
    assert (own.tolerance["values"], own.tolerance["bound"], own.tolerance["exact"]) == ("ulp", 1, False)
    assert RunSettings(values="bitwise").flags() == ("--values", "bitwise")
    with pytest.raises(UsageError):
        RunSettings(values="sqnr")


def test_every_torch_has_these_switches() -> None:
    with configured(dict.fromkeys(PRECISION, False).items()):
        assert not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(
    ("backends", "keys", "level"),
    [
        (["eager"], "", "dynamo"),
        (["eager"], "devices: [cuda]", "dynamo"),
        (["inductor"], "devices: [cuda]", "dynamo"),
        (["eager", "aot_eager"], "", "aot"),
        (["aot_eager"], "grad: backward", "backward"),
        (["aot_eager_decomp_partition"], "", "aot"),
        (["aot_eager", "somebody:backend"], "", "import"),
        (["aot_eager", "inductor"], "grad: backward", "inductor"),
    ],
)
def test_a_server_goes_as_far_as_its_variants_on_the_cpu(
    tmp_path: Path, backends: list[str], keys: str, level: str
) -> None:
    """A server for an accelerator imports all compilers, whatever this says."""
    case = "cases:\n  - {name: a, inputs: {x: {shape: [2], requires_grad: true}}, chain: [torch.sin], %s}\n"
    path = written(tmp_path, case % (keys or "grad: off"))
    assert warmth(loaded(path, backends=backends).variants) == level
