"""Shipped kernels with one fault each are caught by their own cases, in Triton's interpreter and on a GPU; as shipped they pass."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import gpus

from .driver import REPOSITORY, Result, run_in, write

SHIPPED = REPOSITORY / "specs" / "kernels"


@dataclass(frozen=True)
class Fault:
    """``old`` becomes ``new`` in a kernel's file; the variant of the shipped spec that shows it, and as what, here and on CUDA."""

    file: str
    old: str
    new: str
    spec: str
    variant: str  # without its last axis, the device
    oracles: tuple[str, ...]
    on_cuda: tuple[str, ...]

    def id(self, folder: str, device: str) -> str:
        """The variant's id, the specs being in ``folder``."""
        return f"{folder}/{self.spec}.spec.yaml::{self.variant.removesuffix(']')},{device}]@triton"


FAULTS = {
    "off_by_one_mask": Fault(
        "add.py",
        "inside = offsets < n",
        "inside = offsets <= n",
        "pointwise",
        "add[n=300,add.BLOCK=64,float32]",
        ("out-of-bounds",),
        ("out-of-bounds",),
    ),
    "missing_mask": Fault(
        "dropout.py",
        "0.0), mask=inside)",
        "0.0))",
        "pointwise",
        "dropout[n=100,p=0.25,seed=0,float32]",
        ("out-of-bounds",),
        ("out-of-bounds",),
    ),
    "wrong_stride": Fault(
        "softmax.py",
        "x_ptr + row * x_stride",
        "x_ptr + row * columns",
        "rows",
        "softmax_sliced[softmax.num_warps=4,float32]",
        ("out-of-bounds", "nonfinite"),
        ("nonfinite",),
    ),
    "race_on_accumulation": Fault(
        "histogram.py",
        "tl.atomic_add(counts_ptr + x, 1, mask=inside & (x >= 0) & (x < bins))",
        "tl.store(counts_ptr + x, tl.load(counts_ptr + x, mask=inside) + 1, mask=inside)",
        "indexing",
        "histogram[n=100,histogram.BLOCK=16,int64]",
        ("race",),
        ("value",),
    ),
    "unwritten_tail": Fault(
        "add.py",
        "inside = offsets < n",
        "inside = offsets < n // 16 * 16",
        "pointwise",
        "add[n=300,add.BLOCK=64,float32]",
        ("unwritten",),
        ("unwritten",),
    ),
    "wrong_accumulator": Fault(
        "rms_norm.py",
        "other=0.0).to(tl.float32)\n    w =",
        "other=0.0)\n    w =",
        "rows",
        "rms_norm[columns=21,eps=1e-06,float16]",
        ("value",),
        ("value",),
    ),
    "int32_offset": Fault(
        "segment_sum.py",
        "tl.cast(row, tl.int64) * stride",
        "row * stride",
        "indexing",
        "segment_sum_far[int8]",
        ("out-of-bounds",),
        ("runtime-error",),
    ),
    "missing_other": Fault(
        "softmax.py",
        ', other=-float("inf")',
        "",
        "rows",
        "softmax[rows=3,columns=13,float32]",
        ("nonfinite",),
        ("value",),
    ),
    "swapped_grid": Fault(
        "matmul.py",
        "row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)\n    column = tl.program_id(1)",
        "row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)\n    column = tl.program_id(0)",
        "products",
        "matmul[m=37,n=21,k=40,matmul.BLOCK_N=32,float32]",
        ("unwritten",),
        ("unwritten",),
    ),
    "constant_baked_in": Fault(
        "add.py",
        "tl.program_id(0) * BLOCK",
        "tl.program_id(0) * 64",
        "pointwise",
        "add[n=300,add.BLOCK=128,float32]",
        ("unwritten",),
        ("unwritten",),
    ),
}


TRANSPOSED = """
    kernels:
      add:
        file: add.py
        function: add_kernel
        arguments: [$x, $y, $out, "${{x.numel()}}"]
        outputs: {{out: {{like: x}}}}
        grid: ["${{cdiv(x.numel(), BLOCK)}}"]
        constants: {{BLOCK: 64}}
        reference: [{{torch.add: [$_, $y]}}, {chain}]
    cases:
      - name: a
        inputs: {{x: [3, 3], y: [3, 3]}}
        chain: [{{triton.add: [$x, $y]}}]
    """
REFERENCES = {"strides": "Tensor.t, Tensor.contiguous, Tensor.t", "values": "Tensor.t, Tensor.contiguous"}
"""What a reference does besides, by what of it then differs from the kernel's result."""


def planted(folder: Path, device: str, *options: str) -> Result:
    """One run: every fault in a folder of its own, the same variants as shipped, and ``more``."""
    nodes = []
    for name, fault in FAULTS.items():
        shutil.copytree(SHIPPED, folder / name)
        path = folder / name / fault.file
        text = path.read_text(encoding="utf-8")
        assert text.count(fault.old) == 1, f"{name}: the shipped {fault.file} has changed"
        path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
        nodes.append(fault.id(name, device))
    shutil.copytree(SHIPPED, folder / "clean")
    nodes += dict.fromkeys(fault.id("clean", device) for fault in FAULTS.values())
    return run_in(folder, "run", "-j", 2, "--allow-python", "--no-confirm", "--device", device, *nodes, *options)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """In Triton's interpreter."""
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("kernels")
    for name, chain in REFERENCES.items():
        write(folder, {f"{name}/a.spec.yaml": TRANSPOSED.format(chain=chain)})
        shutil.copy(SHIPPED / "add.py", folder / name)
    return planted(folder, "cpu", *(f"{name}/a.spec.yaml::a[float32,cpu]@triton" for name in REFERENCES))


@pytest.fixture(scope="module")
def ran_on_cuda(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """On a GPU."""
    pytest.importorskip("triton")
    if not gpus.count():
        pytest.skip("no GPU here: the faults were planted in the interpreter alone")
    return planted(tmp_path_factory.mktemp("kernels"), "cuda")


def event_of(ran: Result, identifier: str) -> dict[str, object]:
    return next(e for e in ran.events if e["event"] == "variant-finished" and e["id"] == identifier)


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_caught(ran: Result, name: str) -> None:
    event = event_of(ran, FAULTS[name].id(name, "cpu"))
    assert event["verdict"] == "FAIL", event["reason"]
    assert set(FAULTS[name].oracles) <= set(event["oracles"])  # type: ignore[call-overload]
    assert event["stage"] == "backend"


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_caught_on_a_gpu(ran_on_cuda: Result, name: str) -> None:
    event = event_of(ran_on_cuda, FAULTS[name].id(name, "cuda"))
    assert event["verdict"] == ("ERROR" if name == "int32_offset" else "FAIL"), event["reason"]
    assert set(FAULTS[name].on_cuda) <= set(event["oracles"])  # type: ignore[call-overload]
    twin = event_of(ran_on_cuda, FAULTS[name].id("clean", "cuda"))
    assert twin["verdict"] == "PASS", twin["reason"]


@pytest.mark.parametrize("name", FAULTS)
def test_its_twin_passes(ran: Result, name: str) -> None:
    event = event_of(ran, FAULTS[name].id("clean", "cpu"))
    assert event["verdict"] == "PASS", event["reason"]


@pytest.mark.parametrize(("name", "verdict", "oracles"), [("strides", "PASS", []), ("values", "FAIL", ["value"])])
def test_a_references_strides_are_its_own_matter_and_its_values_are_not(
    ran: Result, name: str, verdict: str, oracles: list[str]
) -> None:
    event = event_of(ran, f"{name}/a.spec.yaml::a[float32,cpu]@triton")
    assert (event["verdict"], event["oracles"]) == (verdict, oracles), event["reason"]


@pytest.mark.nightly
def test_a_fault_is_reduced_and_diagnosed(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    fault = FAULTS["off_by_one_mask"]
    shutil.copytree(SHIPPED, tmp_path / "k")
    path = tmp_path / "k" / fault.file
    path.write_text(path.read_text(encoding="utf-8").replace(fault.old, fault.new), encoding="utf-8")
    case = [f"k/{fault.spec}.spec.yaml::add_between", "--backend", "triton", "--device", "cpu"]
    result = run_in(tmp_path, "reduce", *case, "--allow-python", "-j", 2, "--output", "small", "--budget", 60)
    assert result.code == 0 and "4 -> 1 operators" in result.out, result.out + result.err
    assert "signature: out-of-bounds at backend" in result.out
    again = run_in(tmp_path, "diagnose", "small/case.spec.yaml", "--allow-python", "--backend", "triton", "-j", 2)
    assert again.code == 0 and "compiles nothing that could be bisected" in again.out, again.out + again.err


def test_a_finding_names_the_line_of_the_kernel(ran: Result) -> None:
    event = event_of(ran, FAULTS["off_by_one_mask"].id("off_by_one_mask", "cpu"))
    first = event["findings"][0]  # type: ignore[index]
    file, line, _ = first["place"].rsplit(":", 2)
    assert Path(file).name == "add.py"
    assert "tl.load" in Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
    assert "add.py" in ran.out
