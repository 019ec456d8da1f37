"""A debug bundle: what is gathered after a run, each file's group and purpose, the kernels, and the index."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runner.cases.model import Variant
from runner.diagnose.harness import result_of
from runner.diagnose.repro import script
from runner.engine.messages import Outcome
from runner.files import read_text, remove_irregular, remove_tree, write_anew
from runner.record.store import latest_result, latest_seed
from runner.templates import template
from runner.text import clean, draw_table, one_line, plural, visible
from runner.verdict import outcomes

ARTIFACTS = {
    "aot_graphs": "forward and backward graphs of AOTAutograd, as the backend gets them",
    "aot_joint_graph": "AOTAutograd's joint graph, before it is cut into forward and backward",
    "autotuning": "choices that autotuning made",
    "bytecode": "Python bytecode before and after Dynamo",
    "caching": "what Inductor's caches did (they are off)",
    "compiled_autograd": "compiled autograd",
    "cudagraph_static_inputs": "which inputs CUDA graphs take as static",
    "cudagraphs": "CUDA graphs: recorded, replayed, refused",
    "fusion": "Inductor's decisions on fusion",
    "graph": "Dynamo's graphs as tables",
    "graph_breaks": "where and why Dynamo ended a graph",
    "graph_code": "Dynamo's graphs as code",
    "graph_sizes": "sizes of the tensors in Dynamo's graphs",
    "guards": "the guards of each compilation",
    "inductor_metrics": "bytes and nodes of Inductor's graphs",
    "ir_post_fusion": "Inductor's IR after fusion",
    "ir_pre_fusion": "Inductor's IR before fusion",
    "kernel_code": "generated kernels, one by one",
    "loop_ordering": "Inductor's reordering of loops",
    "loop_tiling": "Inductor's tiling of loops",
    "output_code": "generated code: wrapper and kernels",
    "perf_hints": "Inductor's hints on what costs speed",
    "post_grad_graphs": "graphs after Inductor's post-grad passes",
    "pre_grad_graphs": "graphs before Inductor's pre-grad passes",
    "recompiles": "why a frame was compiled again",
    "recompiles_verbose": "why, against every older compilation",
    "schedule": "Inductor's scheduler",
    "side_effects": "side effects that Dynamo replays",
    "sym_node": "operations on symbolic sizes",
    "trace_bytecode": "each bytecode that Dynamo traced, with its stack",
    "trace_call": "each call that Dynamo traced",
    "trace_source": "each line of source that Dynamo traced",
    "verbose_guards": "guards with what they were made from",
}
"""Artifacts of ``TORCH_LOGS`` that are asked for, as far as a version has them. Left out are those that change what is
measured (``compiled_autograd_verbose``), or are about export, distributed training and ONNX."""

_LOGGERS = {
    "dynamo": "Dynamo",
    "aot": "AOTAutograd",
    "inductor": "Inductor",
    "other": "the rest of torch",
}

_FILES = {
    "case.py": ("case", "the case as Python, as it ran"),
    "repro.py": ("case", "a script that needs torch alone and exits 1 while the problem is there"),
    "error.txt": ("case", "what ended the run"),
    "output.txt": ("case", "what the process printed"),
    "times.json": ("times", "seconds by phase, and torch's CompilationMetrics of each compilation"),
    "counters.json": ("times", "torch._dynamo.utils.counters and the counts of torch._inductor.metrics"),
    "fx_graph_readable.py": ("inductor", "the graph that Inductor got"),
    "fx_graph_runnable.py": ("inductor", "the same as a script that compiles and runs it"),
    "fx_graph_transformed.py": ("inductor", "the graph after Inductor's passes"),
    "ir_pre_fusion.txt": ("inductor", "Inductor's IR before fusion"),
    "ir_post_fusion.txt": ("inductor", "Inductor's IR after fusion"),
    "output_code.py": ("inductor", "generated code: wrapper and kernels"),
}

_GRAPHS = {
    "dynamo_output_graph": "Dynamo's graph",
    "aot_joint_graph": "AOTAutograd's joint graph",
    "aot_forward_graph": "forward graph, as the backend gets it",
    "aot_backward_graph": "backward graph, as the backend gets it",
    "aot_inference_graph": "graph without a backward, as the backend gets it",
    "before_pre_grad_graph": "graph before Inductor's pre-grad passes",
    "after_pre_grad_graph": "graph after Inductor's pre-grad passes",
    "before_joint_graph": "joint graph before Inductor's passes",
    "after_joint_graph": "joint graph after Inductor's passes",
    "before_post_grad_graph": "graph before Inductor's post-grad passes",
    "after_post_grad_graph": "graph after Inductor's post-grad passes",
    "inductor_post_grad_graph": "graph after Inductor's post-grad passes",
    "inductor_output_code": "generated code: wrapper and kernels",
    "fx_graph_runnable": "a script that compiles and runs the graph",
}

GROUPS = {
    "case": "The case",
    "kernels": "Generated kernels",
    "inductor": "Inductor, graph by graph",
    "graphs": "Graphs, in the order of the compiler's stages; 0_1 is frame 0, compiled for the second time",
    "logs": "Logs",
    "trace": "Structured trace",
    "times": "Times and counts",
    "other": "Other files",
}
"""Groups in the order in which they are shown, and their titles."""

_TLPARSE_LIMIT = 120.0
_PHASES = 8  # shown on the terminal
_SUFFIX = {"cpp": ".cpp", "triton": ".py"}
_KERNEL_CALL = re.compile(r"async_compile\.(\w+)")


def gather(folder: Path, outcome: Outcome, variant: Variant, python: str) -> dict[str, Any]:
    """Add what the worker did not write, and say what came of it. A process that died has left what it wrote before.

    Raises:
        UsageError: the case is wrong.
    """
    remove_irregular(folder)
    record = result_of(outcome) if outcome.ended == "result" else {}
    failed = []
    error = _error(outcome, record)
    if error:
        write_anew(folder / "error.txt", error + "\n")
    if outcome.output.strip():
        write_anew(folder / "output.txt", clean(outcome.output))
    write_anew(folder / "repro.py", script(variant, latest_result(variant.id), latest_seed(), outcome.job.imports))
    if record:
        _write_json(folder / "times.json", {"phases": record["times"], "compilations": record["compilations"]})
        _write_json(folder / "counters.json", {"counters": record["counters"], "inductor": record["kernels"]})
    else:
        failed.append("times and counts: the process ended before it could say them")
    remove_tree(folder / "__pycache__")
    drop_empty(folder)
    kernel_files = len(extract_kernels(folder))
    failed += [line for line in (_tlparse(folder, python), _nothing_compiled(record, outcome)) if line]
    return {
        "error": error,
        "frames": record.get("frames", []),
        "graphs": record.get("graphs"),
        "kernel_files": kernel_files,
        "times": record.get("times", []),
        "kernels": {name: value for name, value in record.get("kernels", {}).items() if value},
        "failed": failed,
        "missing_artifacts": record.get("missing", []),
        "files": file_records(folder),
    }


def _error(outcome: Outcome, record: Mapping[str, Any]) -> str | None:
    """What ended the run, with its stack; None where nothing did."""
    if not record:
        return clean(f"{outcomes.describe(outcome)}\n\n{outcome.stack.strip()}".rstrip())
    raised = record["raised"]
    return clean(f"{raised['type']}: {raised['message'].strip()}\n\n{raised['trace']}".strip()) if raised else None


def _nothing_compiled(record: Mapping[str, Any], outcome: Outcome) -> str:
    if not record or record["frames"]:
        return ""
    if function := outcome.job.arguments["function"]:
        return f"--function {function}: no frame of that name was compiled; a case's own frame is called forward"
    return "graphs: Dynamo compiled no frame at all"


def _tlparse(folder: Path, python: str) -> str:
    """Make tlparse's pages from the trace, where tlparse is installed; what is missing otherwise."""
    logs = sorted((folder / "trace").glob("*.log"))
    if not logs:
        return "trace: torch wrote none"
    program = find_tlparse(python)
    if program is None:
        return "tlparse's pages: tlparse is not installed (pip install tlparse)"
    words = [program, str(logs[-1]), "-o", str(folder / "tlparse"), "--overwrite", "--no-browser"]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_TLPARSE_LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"tlparse's pages: {one_line(str(error))}"
    if done.returncode == 0 and (folder / "tlparse" / "index.html").is_file():
        return ""
    return f"tlparse's pages: {one_line([f'exit status {done.returncode}', *done.stderr.strip().splitlines()][-1])}"


def find_tlparse(python: str) -> str | None:
    """tlparse beside one of our Pythons (whose environment need not be active), or on the path."""
    beside = os.pathsep.join(os.path.dirname(os.path.abspath(one)) for one in (sys.executable, python))
    return shutil.which("tlparse", path=beside) or shutil.which("tlparse")


def _write_json(path: Path, value: Any) -> None:
    write_anew(path, json.dumps(value, indent=2) + "\n")


def render(document: Mapping[str, Any], folder: Path) -> str:
    """What the bundle holds, for the terminal."""
    lines = [f"{document['id']} under torch {document['torch']}"]
    if document["error"]:
        lines.append(f"raised: {one_line(document['error'].partition(chr(10))[0])}")
    if document["graphs"] is not None:
        lines.append(f"{plural(document['graphs'], 'graph')} compiled, {plural(document['kernel_files'], 'kernel')}")
    counts = Counter(file["group"] for file in document["files"])
    examples = {file["group"]: file["path"] for file in reversed(document["files"])}
    rows = [[group, counts[group], examples[group]] for group in GROUPS if counts[group]]
    lines += ["", draw_table(rows, ["files", "", "such as"])]
    times = [[row["phase"], row["count"], f"{row['seconds']:.3f}"] for row in document["times"][:_PHASES]]
    lines += ["", draw_table(times, ["phase", "times", "seconds"], right=True)] if times else []
    lines += ["", *(f"missing: {line}" for line in document["failed"])] if document["failed"] else []
    return clean("\n".join([*lines, "", str(folder / "index.html")]))


def about(path: str) -> tuple[str, str]:
    """Return group and purpose of the file at ``path``, relative to the bundle."""
    folder, _, name = path.rpartition("/")
    top = path.partition("/")[0]
    match top:
        case "logs":
            stem, _, level = name.removesuffix(".log").partition(".")
            if level:
                return "logs", f"log of {_LOGGERS.get(stem, stem)}, level {level}"
            return "logs", ARTIFACTS.get(stem, stem.replace("_", " "))
        case "kernels":
            return "kernels", f"kernel of {folder.rpartition('/')[2]}"
        case "graphs":
            kind = name.split(".")[1] if "." in name else name
            return "graphs", _GRAPHS.get(kind, kind.replace("_", " "))
        case "tlparse":
            return "trace", "tlparse's page on the trace: begin here" if path == "tlparse/index.html" else "of tlparse"
        case "trace":
            return "trace", "torch's structured trace, for tlparse"
    return _FILES.get(name, ("inductor" if top == "torchinductor" else "other", name))


def file_records(folder: Path) -> list[dict[str, Any]]:
    """Return everything in the bundle but its index. Of tlparse's pages only the first one is listed.

    A record has a file's ``path`` below the folder, its ``group`` of GROUPS, what it is ``about``, and its ``bytes``.
    """
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    records = [
        {"path": name, "group": about(name)[0], "about": about(name)[1], "bytes": path.stat().st_size}
        for name, path in names.items()
        if name not in ("index.html", "index.json") and not re.match("tlparse/(?!index.html$)", name)
    ]
    order = list(GROUPS)
    return sorted(records, key=lambda record: (order.index(str(record["group"])), record["path"]))


def drop_empty(folder: Path) -> None:
    """Remove empty files, and folders with nothing in them."""
    for path in sorted(folder.rglob("*"), reverse=True):  # what is inside comes before its folder
        if path.is_file() and path.stat().st_size == 0:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def extract_kernels(folder: Path) -> list[Path]:
    """Write the kernels in Inductor's generated code to files of their own, ``kernels/GRAPH/NAME.cpp`` or ``.py``."""
    paths = []
    own = sorted((folder / "torchinductor").glob("*/output_code.py"))  # of Inductor's trace, else of the structured one
    for code in own or sorted((folder / "graphs").glob("*.inductor_output_code*.py")):
        graph = code.parent.name if code.name == "output_code.py" else code.name.removesuffix(".py")
        for name, suffix, text in kernels(read_text(code, "replace")):
            path = folder / "kernels" / graph / f"{name}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_anew(path, text.strip("\n") + "\n")
            paths.append(path)
    return paths


def kernels(code: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, suffix and source of each kernel in a wrapper.
    The wrapper defines it as ``name = async_compile.cpp_pybinding(..., r'''source''')``.
    """
    try:
        nodes = ast.walk(ast.parse(code))
    except SyntaxError:  # not Python after all, such as a C++ wrapper
        return
    for node in nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        match = _KERNEL_CALL.fullmatch(ast.unparse(node.value.func))
        texts = [a.value for a in node.value.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if match and texts and isinstance(node.targets[0], ast.Name):
            suffix = next((s for kind, s in _SUFFIX.items() if match[1].startswith(kind)), ".txt")
            yield node.targets[0].id, suffix, max(texts, key=lambda text: (text.count("\n"), len(text)))


def write_index(folder: Path, document: Mapping[str, Any]) -> None:
    """Write ``index.json`` (the document as it is) and ``index.html`` (readable without JavaScript)."""
    _write_json(folder / "index.json", document)
    groups = [
        (title, [file for file in document["files"] if file["group"] == group]) for group, title in GROUPS.items()
    ]
    page = template("debug.html.j2", address=lambda path: quote(path, errors="backslashreplace"))
    text = page.render(document, groups=[(title, files) for title, files in groups if files])
    write_anew(folder / "index.html", visible(text))
