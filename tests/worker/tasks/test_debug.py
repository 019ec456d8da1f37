"""The folder that a debugging run writes, under backends that need no C++ compiler."""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import pytest
from worker_jobs import run, source

from runner.worker.tasks.debug import FILTER, is_graph
from runner.worker.torch_private.logs import LogFiles, _names

ARTIFACTS = ["graph_breaks", "guards", "aot_graphs", "aot_joint_graph", "recompiles", "perf_hints", "no_such_artifact"]
TRAINED = source('x = torch.relu(x)\nprint("seen")\nreturn x * 2', inputs="torch.randn(4, 5, requires_grad=True)")


def debug(folder: Path, text: str, backend: str = "aot_eager", function: str | None = None, **fields: Any) -> dict[str, Any]:  # fmt: skip
    arguments = {"folder": str(folder), "function": function, "artifacts": ARTIFACTS}
    return run(text, backend, task="debug", arguments=arguments, **fields)


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    environment = {name: os.environ.get(name) for name in ("TORCHINDUCTOR_CACHE_DIR", FILTER, "TORCH_LOGS")}
    handlers = list(logging.getLogger("torch._dynamo").handlers)
    os.environ["TORCH_LOGS"] = "guards"  # a person's own wish does not keep the bundle from being made
    try:
        record = debug(folder, TRAINED, grad={"mode": "backward"})
        assert os.environ.pop("TORCH_LOGS") == "guards"
    finally:
        os.environ.pop("TORCH_LOGS", None)
    assert {name: os.environ.get(name) for name in environment} == environment
    assert len(logging.getLogger("torch._dynamo").handlers) == len(handlers)
    return folder, record


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_logs_are_in_files_by_artifact(output):
    folder, record = output
    text = {path.name: path.read_text() for path in (folder / "logs").iterdir()}
    assert "Graph break in user code" in text["graph_breaks.log"]
    assert "TREE_GUARD_MANAGER" in text["guards.log"]
    assert "===== Joint graph" in text["aot_joint_graph.log"] and "tangents" in text["aot_joint_graph.log"]
    assert f'File "{folder}/case_1.py", line ' in text["graph_breaks.log"], "and that file is there"
    assert (folder / "case_1.py").read_text() == TRAINED
    assert "recompiles.log" not in text and "perf_hints.log" not in text, "nothing to say, no file"
    assert record["missing"] == ["no_such_artifact"]


def test_each_part_has_an_info_and_a_debug_log(output):
    info, debugging = ((output[0] / "logs" / f"dynamo.{level}.log").read_text() for level in ("info", "debug"))
    assert 0 < len(info) < len(debugging)
    assert (output[0] / "logs" / "aot.debug.log").exists()
    assert re.match(r"[VDI] \d\d:\d\d:\d\d\.\d{3} torch\._dynamo[.\w]*:\d+ ", info)


def test_graphs_are_files_of_their_own(output):
    graphs = {name.partition(".")[2] for name in names(output[0]) if name.startswith("graphs/")}
    assert {"dynamo_output_graph.py", "aot_joint_graph.py", "aot_forward_graph.py", "aot_backward_graph.py"} <= graphs
    first = (output[0] / "graphs" / "0_0.dynamo_output_graph.py").read_text()
    assert "torch.relu" in first


def test_the_trace_is_the_one_that_tlparse_reads(output):
    (log,) = (output[0] / "trace").iterdir()
    assert '"dynamo_output_graph"' in log.read_text()


def test_times_counts_and_frames_are_in_the_record(output):
    record = output[1]
    phases = {row["phase"]: row for row in record["times"]}
    assert phases["backend_compile" if "backend_compile" in phases else "OutputGraph.call_user_compiler"]["count"] >= 1
    assert [row["seconds"] for row in record["times"]] == sorted((r["seconds"] for r in record["times"]), reverse=True)
    assert record["frames"][0] == "forward"
    assert (record["graphs"], record["raised"]) == (2, None)
    assert record["counters"]["stats"]["unique_graphs"] == 2
    assert record["kernels"]["generated_kernel_count"] == 0
    assert {compilation.get("co_name") for compilation in record["compilations"]} >= {"forward"}
    json.dumps(record, allow_nan=False)


def test_what_the_compiler_wrote_before_it_failed_is_there(tmp_path):
    record = debug(tmp_path, TRAINED, "relu_compile_error_TESTING_ONLY")
    assert record["raised"]["type"] == "BackendCompilerFailed" and "ReluCompileError" in record["raised"]["message"]
    assert "graphs/0_0.dynamo_output_graph.py" in names(tmp_path)
    assert "logs/dynamo.debug.log" in names(tmp_path)


@pytest.mark.parametrize(("function", "frames"), [("forward", ["forward"]), ("elsewhere", []), (None, ["forward"])])
def test_the_function_filter_chooses_frames(tmp_path, function, frames):
    record = debug(tmp_path, source("return torch.relu(x)"), "eager", function)
    assert record["frames"] == frames
    assert record["graphs"] == len(frames)
    assert FILTER not in os.environ


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aot_forward_graph", True),
        ("dynamo_output_graph", True),
        ("inductor_output_code", True),
        ("dynamo_graph_break_reason", False),
        ("fx_graph_cache_miss", False),
        ("aot_forward_graph_fw_metadata", False),
        ("chromium_event", False),
    ],
)
def test_graphs_are_told_from_the_rest_of_the_trace(name, expected):
    assert is_graph(name) is expected


def test_a_record_goes_to_the_file_of_its_artifact_or_its_part():
    def named(logger: str, level: int = logging.DEBUG) -> list[str]:
        return _names(logging.LogRecord(logger, level, "", 0, "", (), None))

    assert named("torch._dynamo.guards") == ["dynamo.debug"]
    assert named("torch._functorch._aot_autograd.x", logging.WARNING) == ["aot.debug", "aot.info"]
    assert named("torch.fx") == ["other.debug"]
    assert named("torch._dynamo.guards.__guards") == ["guards"]


def test_logging_to_a_folder_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    handler = LogFiles(tmp_path / "file" / "logs")
    handler.emit(logging.LogRecord("torch._dynamo.x", logging.INFO, "", 0, "said", (), None))
    handler.close()
