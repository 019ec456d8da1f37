"""What the compiler made of a case: ``runner debug`` and ``runner explain``.

``debug`` makes a folder with everything that the compiler did in one run, and a page that lists it. ``--replay FILE``
is Dynamo again over a frame that ``--record`` recorded. ``--sanitizer`` is the script under NVIDIA's
compute-sanitizer, which sees what guards cannot.

``explain`` says what torch.compile made of a case over its calls, as tables or as one JSON object.

The object's keys (``null`` where torch does not say; ``at`` is ``file:line:column`` in the YAML, ``code`` the
statement):

``id``, ``torch``, ``backend``
    what was explained.
``calls``
    ``call`` (from 0), ``graphs_run`` (numbers of graphs), ``compiled`` and ``recompiled`` (compile ids: ``1/0`` is
    frame 1, first compilation), ``graph_breaks`` (how many), ``eager`` (frames past the recompile limit that ran
    uncompiled).
``compilations``
    ``compile_id``, ``call``, ``frame``, ``at``, ``seconds``, ``guards``, ``operators``, ``restarts``, ``failed`` (why
    Dynamo gave the frame up).
``graphs``
    ``graph`` (number), ``call``, ``compile_id``, ``frame``, ``operators`` (name to count), ``compiled``, ``runs``
    (calls).
``graph_breaks``
    ``call``, ``compile_id``, ``reason``, ``at``, ``code``.
``recompiles``
    ``call``, ``compile_id``, ``reasons`` (for each older compilation the guard that failed), ``compiled`` (false past
    the limit).
``limits``
    ``call``, ``frame``, ``at``, ``limit`` (the flag), ``value``, ``reason``: a frame was compiled too often.
``guards``
    compile id to a list of expressions.
``first_call``
    what ``torch._dynamo.explain`` says of the first call alone: ``graphs``, ``graph_breaks``, ``operators``,
    ``guards``.
``counters``
    ``torch._dynamo.utils.counters``.
``raised``
    ``type``, ``message``, ``at``, ``code``, ...: what ended the run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner import console, exit_codes
from runner.builder.source import Source
from runner.cases.model import Variant
from runner.cli.arguments import CASE, ENVIRONMENT, FAILURE, RESULT_CODES, SELECTION, argument, command, settings_of
from runner.cli.variants import first_variant, matching_variants
from runner.contract.job import Job
from runner.contract.settings import SAFE_PATH
from runner.diagnose.bundle import ARTIFACTS, GROUPS, drop_empty, extract_kernels, file_records, write_index
from runner.diagnose.harness import Progress, VariantEngine, refuse_kernels, refuse_launches, result_of, telling_line
from runner.diagnose.repro import script
from runner.diagnostics import shown_path
from runner.engine import interpreters, scratch
from runner.engine.local import LocalEngine
from runner.engine.messages import Outcome
from runner.files import remove_irregular, remove_tree, write_anew
from runner.quote import operand, shell_words
from runner.record.store import latest_result, latest_seed, output_folder
from runner.session.plan import TIMEOUT, find_environments, worker_paths
from runner.session.scheduler import drive, with_reference
from runner.text import clean, draw_table, duration, one_line, plural
from runner.verdict import outcomes

WITHOUT_CACHES = 120.0
"""Seconds that a run may take beyond the case's own limit: every kernel is built anew, and every log is written."""

_TLPARSE_LIMIT = 120.0
_PHASES = 8  # shown on the terminal


@command(
    "Kernels, graphs, IR, logs, trace, compile times: one run without caches, and a page that lists them.",
    *FAILURE,
    argument("-o", "--output", metavar="FOLDER", help="default: debug/ in the run folder, which is printed"),
    argument("--function", metavar="NAME", help="let Dynamo compile frames of this name alone"),
    argument("--record", action="store_true", help="record an internal error of Dynamo, for runner debug --replay"),
    argument(
        "--replay",
        action="store_true",
        help="run Dynamo again over FILE, which --record wrote; runner debug --replay --help",
    ),
    argument(
        "--sanitizer",
        action="store_true",
        help="run the case on CUDA under compute-sanitizer; runner debug --sanitizer --help",
    ),
    epilog=RESULT_CODES,
)
def run(arguments: argparse.Namespace) -> int:
    """Make the bundle (or, with ``--record``, a recording) and print what is in it.

    Returns:
        0 if the bundle was made, even if the case failed in it.

    Raises:
        UsageError: the folder is in use, the variant cannot run here, or the case is wrong.
        InputError: the case is wrong.
    """
    variant = first_variant(arguments)
    if arguments.record:
        return _record(arguments, variant)
    refuse_launches(variant, "debug")
    folder = output_folder(arguments.output, "debug")
    said = f"compiling {variant.id} without caches"
    with Progress() as progress, VariantEngine.of(settings_of(arguments), variant, slots=1) as engine:
        asked = {"folder": str(folder), "function": arguments.function, "artifacts": list(ARTIFACTS)}
        job = engine.job("debug", asked, timeout=(variant.case.timeout or TIMEOUT) + WITHOUT_CACHES)
        job = dataclasses.replace(job, name="case")  # the worker writes FOLDER/case.py
        outcome = engine.ask([job], lambda: progress.say(said))[0]
        document = {
            "id": variant.id,
            "torch": engine.environment.build,
            "backend": variant.backend.backend,
            "function": arguments.function,
        }
        try:
            document |= _gather(folder, outcome, variant, engine.environment.python)
            write_index(folder, document)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise exit_codes.UsageError(f"debug: the case has changed the folder of its results: {error}") from None
    console.output(render(document, folder))
    return exit_codes.OK


def _record(arguments: argparse.Namespace, variant: Variant) -> int:
    """Run the variant while Dynamo records the frame in which it fails, for ``runner debug --replay``; 0 when it did,
    else 1.

    Raises:
        UsageError: the case cannot run, or dill, with which torch records, is not there.
    """
    refuse_kernels(variant, "debug --record")
    with Progress() as progress, VariantEngine.of(settings_of(arguments), variant) as engine:
        progress.say(f"running {variant.id} with recording on")
        folder = output_folder(arguments.output, "record")
        recording = result_of(engine.ask([engine.job("record", {"folder": str(folder)})])[0])
    raised = recording["raised"]
    console.output(f"{variant.id}\nraises {telling_line(raised) if raised else 'nothing'}")
    settings = dataclasses.replace(settings_of(arguments), python=tuple(arguments.python[:1]))
    for file in recording["files"]:
        words = ["runner", "debug", "--replay", operand(shown_path(file)), *settings.flags("python", "imports")]
        console.output(f"recorded: {shown_path(file)}\nreplay it: {shell_words(words)}")
    if not recording["files"]:
        console.output(
            "nothing recorded: Dynamo records its own internal errors, not graph breaks and not what a backend raises"
        )
    return exit_codes.OK if recording["files"] else exit_codes.NO_RESULT


def _gather(folder: Path, outcome: Outcome, variant: Variant, python: str) -> dict[str, Any]:
    """Add what the worker did not write, and say what came of it. A process that died has left what it wrote before.

    Raises:
        UsageError: the case is wrong.
    """
    remove_irregular(folder)
    record: Mapping[str, Any] = {}
    if outcome.ended == "result":
        record = result_of(outcome)
    failed = []
    error = _error(outcome, record)
    if error:
        write_anew(folder / "error.txt", error + "\n")
    if outcome.output.strip():
        write_anew(folder / "output.txt", clean(outcome.output))
    write_anew(folder / "repro.py", script(variant, latest_result(variant.id), latest_seed()))
    if record:
        _write_json(folder / "times.json", {"phases": record["times"], "compilations": record["compilations"]})
        _write_json(folder / "counters.json", {"counters": record["counters"], "inductor": record["kernels"]})
    else:
        failed.append("times and counts: the process ended before it could say them")
    remove_tree(folder / "__pycache__")
    drop_empty(folder)
    made = extract_kernels(folder)
    failed += [line for line in (_tlparse(folder, python), _nothing_compiled(record, outcome)) if line]
    return {
        "error": error,
        "frames": record.get("frames", []),
        "graphs": record.get("graphs"),
        "kernel_files": len(made),
        "times": record.get("times", []),
        "kernels": {name: value for name, value in record.get("kernels", {}).items() if value},
        "failed": failed,
        "missing_artifacts": record.get("missing", []),
        "files": file_records(folder),
    }


def _error(outcome: Outcome, record: Mapping[str, Any]) -> str | None:
    """What ended the run, with its stack; None where nothing did."""
    if not record:
        stack = f"\n\n{outcome.stack.strip()}" if outcome.stack.strip() else ""
        return clean(outcomes.describe(outcome) + stack)
    raised = record["raised"]
    if raised is None:
        return None
    return clean(f"{raised['type']}: {raised['message'].strip()}\n\n{raised['trace']}".strip())


def _nothing_compiled(record: Mapping[str, Any], outcome: Outcome) -> str:
    function = outcome.job.arguments["function"]
    if not record or record["frames"]:
        return ""
    if function:
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
    output = folder / "tlparse"
    try:
        done = subprocess.run(
            [program, str(logs[-1]), "-o", str(output), "--overwrite", "--no-browser"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_TLPARSE_LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"tlparse's pages: {one_line(str(error))}"
    if done.returncode or not (output / "index.html").is_file():
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return f"tlparse's pages: {one_line(said[-1])}"
    return ""


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
    if document["times"]:
        times = [[row["phase"], row["count"], f"{row['seconds']:.3f}"] for row in document["times"][:_PHASES]]
        lines += ["", draw_table(times, ["phase", "times", "seconds"], right=True)]
    if document["failed"]:
        lines += ["", *(f"missing: {line}" for line in document["failed"])]
    return clean("\n".join([*lines, "", str(folder / "index.html")]))


@command(
    "Run Dynamo again over a recorded frame, and see whether it fails.",
    argument("file", metavar="FILE", help="a .rec file"),
    ENVIRONMENT,
    epilog=RESULT_CODES,
)
def run_replay(arguments: argparse.Namespace) -> int:
    """Replay; 0 when the failure shows again, 1 when Dynamo comes to the end of the frame.

    Raises:
        UsageError: no such file, it holds no recording, or dill is not there.
    """
    file = Path(arguments.file)
    if not file.is_file():
        raise exit_codes.UsageError(f"{arguments.file}: no such file")
    with Progress() as progress:
        progress.say(f"replaying {arguments.file}")
        raised = result_of(_ask(arguments, file.resolve()))["raised"]
    if raised is None:
        console.output(f"{arguments.file}: Dynamo comes to the end of the frame without an error")
        return exit_codes.NO_RESULT
    console.output(f"{arguments.file}: Dynamo raises {raised['type']}\n\n{str(raised['message']).strip()}")
    return exit_codes.OK


def _ask(arguments: argparse.Namespace, file: Path) -> Outcome:
    environment = find_environments(arguments.python)[0]
    job = Job(key="replay", id=file.name, environment=environment.key, name="replay", source="", backend={},
              imports=tuple(arguments.imports), paths=worker_paths(settings_of(arguments)), timeout=TIMEOUT,
              task="replay",
              arguments={"file": str(file)}, cacheable=False)  # fmt: skip
    with LocalEngine({environment.key: environment.python}, 1, warm={environment.key: "import"}) as engine:
        (outcome,) = drive(engine, with_reference([job]))
    return outcome


_FOUND = 99
"""Exit code that compute-sanitizer is asked for when it finds something."""


@command(
    "The case's script (see repro) under NVIDIA's compute-sanitizer, without torch's memory cache.",
    *CASE,
    SELECTION,
    argument("--python", action="append", default=[], metavar="PATH", help="a Python that has torch"),
    argument(
        "--tool",
        choices=("memcheck", "racecheck", "initcheck", "synccheck"),
        default="memcheck",
        help="what to look for: accesses out of bounds, races within shared memory, reads of what nobody wrote, "
        "wrong barriers",
    ),
)
def run_sanitize(arguments: argparse.Namespace) -> int:
    """Run the first variant on CUDA that CASE names; FAILED when the tool or the script finds something.

    Raises UsageError when there is no compute-sanitizer here, or no variant on CUDA.
    """
    variants = matching_variants(arguments)
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        raise exit_codes.UsageError(
            "no compute-sanitizer on the PATH: it comes with the CUDA toolkit, in its bin folder"
        )
    variant = next((one for one in variants if one.device.startswith("cuda")), None)
    if variant is None:
        raise exit_codes.UsageError(
            f"{variants[0].id} is on {variants[0].device}, and compute-sanitizer needs CUDA: add --device cuda"
        )
    python = find_environments(arguments.python)[0].python
    # From a cache one block serves many tensors, and what lies beyond one of them would be another's.
    environment = interpreters.without_current_folder(
        {**scratch.compile_environment(os.environ), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", SAFE_PATH: "1"}
    )
    with scratch.folder() as folder:
        path = folder / "case.py"
        write_anew(path, script(variant))
        command = [tool, "--tool", arguments.tool, "--error-exitcode", str(_FOUND), python, str(path)]
        console.output(f"{variant.id}: compute-sanitizer --tool {arguments.tool}")
        code = interpreters.run_process_tree(command, env=environment).returncode
    if code == 0:
        console.output(f"{arguments.tool} found nothing")
        return exit_codes.OK
    console.output(
        f"{arguments.tool} found something" if code == _FOUND else f"the script ended with exit status {code}"
    )
    return exit_codes.FAILED


_WIDTH = 100  # characters of a reason in a table; the JSON has all of it
_GUARD_WIDTH = 240  # enough for what a tensor is guarded on, not for the whole of torch's global state


@command(
    "What torch.compile made of a case over its calls, as tables.",
    *FAILURE,
    argument("--json", action="store_true", help="as JSON"),
    epilog=RESULT_CODES,
)
def run_explain(arguments: argparse.Namespace) -> int:
    """Explain a variant on standard output.

    Raises:
        UsageError: the variant cannot run here, or its process died.
        InputError: the case is wrong.
    """
    variant = first_variant(arguments)
    refuse_launches(variant, "explain")
    with Progress() as progress, VariantEngine.of(settings_of(arguments), variant, slots=1) as engine:
        record = result_of(engine.ask([engine.job("explain")], lambda: progress.say(f"compiling {variant.id}"))[0])
        about = {"id": variant.id, "torch": engine.environment.build, "backend": variant.backend.backend}
        document = {**about, **placed(record, engine.source)}
    console.output(json.dumps(document, indent=2) if arguments.json else render_explained(document))
    return exit_codes.OK


def placed(record: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """The worker's record with ``at`` and ``code`` for every ``line``."""
    text = source.text.split("\n")

    def place(value: Any) -> Any:
        if isinstance(value, list):
            return [place(item) for item in value]
        if not isinstance(value, dict):
            return value
        placed_value = {key: place(item) for key, item in value.items() if key != "line"}
        if "line" in value:
            line = value["line"]
            span = source.place(line)
            known = isinstance(line, int) and 0 < line <= len(text)
            placed_value |= {"at": str(span) if span else None, "code": text[line - 1].strip() if known else None}
        return placed_value

    return {key: place(value) for key, value in record.items()}


def render_explained(document: Mapping[str, Any]) -> str:
    """The document as text: a summary, then a table for each part that is not empty."""
    parts = [_summary(document), _not_compiled(document), _raised(document), _calls(document), _graphs(document)]
    parts += [_breaks(document), _recompiles(document), _first_call(document), _guards(document)]
    return clean("\n\n".join(part for part in parts if part))


def _summary(document: Mapping[str, Any]) -> str:
    counts = [
        plural(len(document["graphs"]), "graph"),
        plural(len(document["graph_breaks"]), "graph break"),
        plural(sum(entry["compiled"] for entry in document["recompiles"]), "recompile"),
    ]
    seconds = sum(entry["seconds"] or 0 for entry in document["compilations"])
    return (
        f"{document['id']} under torch {document['torch']}\n"
        f"{', '.join(counts)} in {plural(len(document['calls']), 'call')}; compiled for {duration(seconds)}"
    )


def _not_compiled(document: Mapping[str, Any]) -> str:
    """Frames that ran eagerly without an error, which is easily overlooked."""
    lines = []
    for hit in document["limits"]:
        calls = [str(call["call"]) for call in document["calls"] if hit["frame"] in call["eager"]]
        place = f"call{'s' if len(calls) > 1 else ''} {', '.join(calls)}" if calls else f"call {hit['call']}"
        lines += [
            f"NOT COMPILED: {hit['frame']} ran eagerly in {place}, past {hit['limit']} = {hit['value']}",
            f"  last reason: {one_line(hit['reason'])}",
        ]
    for entry in document["compilations"] if document["raised"] is None else ():
        if entry["failed"]:
            lines += [
                f"NOT COMPILED: {entry['frame']} was given up in call {entry['call']} and ran eagerly",
                f"  reason: {telling(entry['failed'])}",
            ]
    return "\n".join(lines)


def _raised(document: Mapping[str, Any]) -> str:
    error = document["raised"]
    if error is None:
        return ""
    at = f"\n  at {error['at']}: {error['code']}" if error.get("at") else ""
    return f"RAISED in call {len(document['calls']) - 1}: {error['type']}: {one_line(error['message'])}{at}"


def _calls(document: Mapping[str, Any]) -> str:
    rows = [
        [
            call["call"],
            *(_list(call[key]) for key in ("graphs_run", "compiled", "recompiled")),
            call["graph_breaks"],
            _list(call["eager"]),
        ]
        for call in document["calls"]
    ]
    return _table(rows, ["call", "graphs run", "compiled", "recompiled", "breaks", "ran eagerly"])


def _graphs(document: Mapping[str, Any]) -> str:
    rows = []
    for graph in document["graphs"]:
        names = [name if count == 1 else f"{name} x{count}" for name, count in graph["operators"].items()]
        lost = "" if graph["compiled"] else " (not compiled: the backend raised)"
        operators = _wrapped(names, lost)
        rows.append([graph["graph"], graph["compile_id"], graph["call"], graph["frame"], operators])
    return _table(rows, ["graph", "compile", "call", "frame", "operators"])


def _breaks(document: Mapping[str, Any]) -> str:
    rows = [
        [
            graph_break["call"],
            graph_break["compile_id"],
            graph_break["at"] or "-",
            one_line(graph_break["code"] or "-", 60),
            telling(graph_break["reason"]),
        ]
        for graph_break in document["graph_breaks"]
    ]
    return _table(rows, ["call", "compile", "graph break at", "statement", "reason"])


def _recompiles(document: Mapping[str, Any]) -> str:
    rows = [
        [
            recompile["call"],
            recompile["compile_id"],
            "\n".join(one_line(reason, _WIDTH) for reason in recompile["reasons"][:3]) or "-",
        ]
        for recompile in document["recompiles"]
    ]
    return _table(rows, ["call", "recompile", "reason (against each older compilation)"])


def _guards(document: Mapping[str, Any]) -> str:
    """Guards by compilation; of a frame that was compiled again those that differ from the compilation before."""
    parts = []
    previous: dict[str, list[str]] = {}
    for compile_id, guards in document["guards"].items():
        frame = compile_id.partition("/")[0]
        novel = guards
        title = f"{plural(len(guards), 'guard')} of {compile_id or '-'}"
        if frame in previous:
            novel = [guard for guard in guards if guard not in previous[frame]]
            title += ", those of the compilation before but for" if novel else ", those of the compilation before"
        previous[frame] = guards
        parts.append("\n".join([title, *(f"  {one_line(guard, _GUARD_WIDTH)}" for guard in novel)]))
    return "\n".join(parts)


def _first_call(document: Mapping[str, Any]) -> str:
    explanation = document["first_call"]
    title = "torch._dynamo.explain, of the first call alone"
    if explanation["raised"]:
        return f"{title}: {explanation['raised']['type']}: {one_line(explanation['raised']['message'])}"
    lines = [
        f"{title}: {plural(explanation['graphs'], 'graph')}, "
        f"{plural(len(explanation['graph_breaks']), 'graph break')}, "
        f"{plural(explanation['operators'], 'operator')}, {plural(explanation['guards'], 'guard')}"
    ]
    reported = {(graph_break["at"], graph_break["reason"]) for graph_break in document["graph_breaks"]}
    lines += [
        f"  break at {graph_break['at'] or '-'}: {graph_break['code'] or '-'}: {telling(graph_break['reason'])}"
        for graph_break in explanation["graph_breaks"]
        if (graph_break["at"], graph_break["reason"]) not in reported and document["raised"]
    ]
    return "\n".join(lines)


def telling(reason: str) -> str:
    """One line of torch's reason for a break: what it is, and its explanation where there is one.

    Since 2.8 a reason begins with what was being traced (``... trace CALL: a function call, e.g. f(x, y):``).
    """
    lines = [line.strip() for line in reason.strip().splitlines() if line.strip()] or [""]
    if lines[0].endswith(":") and len(lines) > 1:
        lines = lines[1:]
    explained = [line.removeprefix("Explanation: ") for line in lines[1:] if line.startswith("Explanation: ")]
    return one_line(": ".join([lines[0], *explained[:1]]), _WIDTH)


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items)) or "-"


def _wrapped(names: Sequence[str], end: str, width: int = 80) -> str:
    """Names, comma separated, in lines of at most ``width`` characters."""
    lines = [""]
    for number, name in enumerate(names):
        text = name + ("," if number + 1 < len(names) else end)
        if lines[-1] and len(lines[-1]) + len(text) >= width:
            lines.append(text)
        else:
            lines[-1] = f"{lines[-1]} {text}".lstrip()
    return "\n".join(lines)


def _table(rows: Sequence[Sequence[object]], headers: Sequence[str]) -> str:
    return draw_table(rows, headers) if rows else ""
