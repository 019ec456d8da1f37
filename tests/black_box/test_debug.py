"""``runner debug`` as a person runs it. One bundle under Inductor, with a backward, serves most of the tests."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from .driver import Result, run_in, spec, write

RELU = "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY"
CASES = spec(
    """
    name: trained
    inputs: {x: {shape: [8, 4], requires_grad: true}}
    grad: backward
    chain: [{F.relu: [$x], out: y}, {builtin.print: [seen]}]
    return: $y
    """,
    f"name: crash\ninputs: {{x: [8, 4]}}\nchain: [torch.relu]\nconfig: {{{RELU}: compile_error}}",
    "name: plain\ninputs: {x: [8, 4]}\nchain: [torch.relu]",
)
RUNS = {
    "bundle": ("trained", "inductor"),
    "crash": ("crash", "inductor"),
    "filtered": ("plain", "aot_eager", "--function", "elsewhere"),
    "death": ("plain", "runner.worker.planted:aborts"),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    folder = tmp_path_factory.mktemp("debug")
    write(folder, {"a.spec.yaml": CASES})

    def run(name: str) -> Result:
        case, backend, *options = RUNS[name]
        return run_in(folder, "debug", f"a.spec.yaml::{case}", "--backend", backend, "-j", 1, "-o", name, *options)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(RUNS, pool.map(run, RUNS), strict=True))


def index(results: dict[str, Result], name: str) -> dict[str, Any]:
    assert results[name].code == 0, results[name].text
    return json.loads((results[name].cwd / name / "index.json").read_text())


@pytest.fixture(scope="module")
def bundle(results: dict[str, Result]) -> Path:
    index(results, "bundle")
    return results["bundle"].cwd / "bundle"


def only(bundle: Path, pattern: str) -> list[str]:
    paths = sorted(bundle.glob(pattern))
    assert paths, f"{pattern} in {sorted(path.relative_to(bundle).as_posix() for path in bundle.rglob('*'))}"
    return [path.read_text() for path in paths]


@pytest.mark.nightly
def test_info_and_debug_logs_of_each_part_of_the_compiler(bundle: Path) -> None:
    for part in ("dynamo", "inductor"):
        (info,), (debug,) = (only(bundle, f"logs/{part}.{level}.log") for level in ("info", "debug"))
        assert 0 < len(info) < len(debug), part
    assert only(bundle, "logs/aot.debug.log"), "AOTAutograd says nothing at level info"
    assert "Graph break" in only(bundle, "logs/graph_breaks.log")[0]
    assert only(bundle, "logs/guards.log") and only(bundle, "logs/bytecode.log")


@pytest.mark.nightly
def test_inductors_logs_hold_what_it_generated(bundle: Path) -> None:
    assert "async_compile.cpp" in only(bundle, "logs/output_code.log")[0]
    assert only(bundle, "logs/ir_pre_fusion.log") and only(bundle, "logs/fusion.log")


def test_inductors_trace_has_graphs_ir_and_code_of_every_graph(bundle: Path) -> None:
    for name in ("fx_graph_readable.py", "fx_graph_transformed.py", "fx_graph_runnable.py", "ir_pre_fusion.txt",
                 "ir_post_fusion.txt", "output_code.py"):  # fmt: skip
        texts = only(bundle, f"torchinductor/*/{name}")
        assert len(texts) >= 2 and all(texts), "a forward and a backward"
    assert not sorted(bundle.glob("**/*.svg")), "pictures need more than torch"


def test_kernels_are_cpp_files(bundle: Path) -> None:
    kernels = only(bundle, "kernels/*/*.cpp")
    assert all("kernel(" in text for text in kernels)
    assert json.loads(only(bundle, "counters.json")[0])["inductor"]["generated_kernel_count"] >= len(kernels)


def test_joint_forward_and_backward_graphs(bundle: Path) -> None:
    for name in ("dynamo_output_graph", "aot_joint_graph", "aot_forward_graph", "aot_backward_graph"):
        assert all("class " in text for text in only(bundle, f"graphs/0_0.{name}*.py")), name


def test_compile_times_by_phase(bundle: Path, results: dict[str, Result]) -> None:
    times = json.loads(only(bundle, "times.json")[0])
    phases = {row["phase"]: row["seconds"] for row in times["phases"]}
    assert any("compile_fx_inner" in name for name in phases) and all(seconds >= 0 for seconds in phases.values())
    assert {compilation.get("co_name") for compilation in times["compilations"]} >= {"forward"}
    assert "phase" in results["bundle"].out and times["phases"][0]["phase"] in results["bundle"].out


def test_the_trace_and_tlparses_pages(bundle: Path, results: dict[str, Result]) -> None:
    assert '"dynamo_output_graph"' in only(bundle, "trace/dedicated_log_torch_trace_*.log")[0]
    (page,) = only(bundle, "tlparse/index.html")
    assert "0_0" in page or "0/0" in page
    assert "missing:" not in results["bundle"].out


def test_the_index_lists_every_file_and_every_link_leads_somewhere(bundle: Path, results: dict[str, Result]) -> None:
    document, page = index(results, "bundle"), (bundle / "index.html").read_text()
    listed = {file["path"] for file in document["files"]}
    there = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}
    assert {name for name in there - listed if not name.startswith("tlparse/")} == {"index.html", "index.json"}
    assert all(file["about"] and file["bytes"] for file in document["files"])
    assert set(re.findall(r'href="([^"]+)"', page)) == listed <= there
    assert "<script" not in page
    assert {"case.py", "repro.py"} <= listed
    assert document["error"] is None
    assert str(bundle / "index.html") in results["bundle"].out


def test_a_crash_leaves_what_there_was_and_the_error(results: dict[str, Result]) -> None:
    document = index(results, "crash")
    assert "CppCompileError" in document["error"] and "CppCompileError" in results["crash"].out
    listed = {file["path"] for file in document["files"]}
    assert "error.txt" in listed and any(name.endswith("output_code.py") for name in listed)
    assert any(name.startswith("kernels/") for name in listed), "the kernel that the C++ compiler refused"


def test_a_process_that_dies_leaves_its_bundle_too(results: dict[str, Result]) -> None:
    document = index(results, "death")
    assert "SIGABRT" in document["error"]
    listed = {file["path"] for file in document["files"]}
    assert {"graphs/0_0.dynamo_output_graph.py", "logs/dynamo.debug.log", "error.txt", "case.py"} <= listed
    assert "missing: times and counts" in results["death"].out


def test_the_function_filter_leaves_other_frames_alone(results: dict[str, Result]) -> None:
    assert index(results, "filtered")["graphs"] == 0
    assert "no frame of that name was compiled" in results["filtered"].out


def test_a_folder_in_use_is_refused(results: dict[str, Result]) -> None:
    result = run_in(results["bundle"].cwd, "debug", "a.spec.yaml::plain", "--backend", "eager", "-o", "bundle")
    assert result.code == 4
    assert "there is something in it" in result.err


NASTY = """
    import os

    import torch


    class Pipes(torch.nn.Module):
        def forward(self, x):
            return x + 1


    folder = torch._dynamo.config.debug_dir_root
    if folder and os.path.isdir(folder):
        for name in ("error.txt", "output.txt", "repro.py", "times.json", "index.html", "torchinductor/a/output_code.py"):
            path = os.path.join(folder, name)
            if not os.path.lexists(path):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.mkfifo(path)
        if not os.path.lexists(f"{folder}/link.txt"):
            os.symlink("/etc/passwd", f"{folder}/link.txt")
    """


def test_what_a_case_puts_into_the_bundle_holds_up_nothing(tmp_path: Path) -> None:
    case = "name: nasty\ninputs: {x: [4]}\nmodule: {file: nasty.py, name: Pipes}"
    write(tmp_path, {"nasty.py": NASTY, "a.spec.yaml": spec(case)})
    words = ("debug", "a.spec.yaml::nasty", "--backend", "aot_eager", "--allow-python", "-o", "bundle")
    result = run_in(tmp_path, *words, limit=120)
    assert result.code == 0, result.text
    files = [path for path in (tmp_path / "bundle").rglob("*") if not path.is_dir()]
    assert all(path.is_file() and not path.is_symlink() for path in files), files
    assert (tmp_path / "bundle" / "repro.py").read_text() and not (tmp_path / "bundle" / "link.txt").exists()
