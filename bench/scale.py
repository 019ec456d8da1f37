"""What 100,000 variants cost: seconds and peak memory of each part, every one in a process of its own.

    python bench/scale.py
    python bench/scale.py -n 5000 --only list,junit
    RUNNER_LIMIT_LOG_BYTES=4GiB python bench/scale.py -n 1000000

Prints a table, and exits with 1 when a target is missed. Targets are for 100,000 variants and grow with ``-n``, but
for the memory of commands.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from commands import command_line, measure_command, option
from tabulate import tabulate

from runner.cases.limits import Limits
from runner.contract.finding import Finding
from runner.record.events import Event, RunFinished, RunStarted, VariantFinished, VariantPlanned, VariantStarted
from runner.record.journal import Journal, Problems, read_journal, stream_journal
from runner.report.junit import JUnitFile, render
from runner.report.table import render_table
from runner.report.terminal import Reporter
from runner.session.collect import load
from runner.session.plan import Environment, plan, planned_event

TARGETS_FOR = 100_000
LIMITS = {"variants": 4_000_000, "id_characters": 400_000_000, "nodes": 2_000_000, "file_bytes": 32 << 20}
"""Limits that more variants than usual need, and that every part has."""

FILES, PER_CASE = 20, 50
_CASE = """\
  - name: {name}
    tags: [scale, t{tag}]
    params: {{n: [{n}], k: [1, 2, 3, 4, 5]}}
    inputs: {{x: [2, "${{n}}", 8]}}
    dtypes: [{dtypes}]
    chain:
      - nn.Linear: [8, "${{k}}"]
      - torch.relu
      - torch.sum: [$_, 1]
"""
_TRACE = (
    "Traceback (most recent call last):\n"
    + '  File "/torch/_inductor/graph.py", line 1, in run\n    return f(x)\n' * 20
)

Figures = dict[str, float]
"""Seconds of each step of one measurement, and figures of other kinds (``MB of file``)."""


# --- spec files ----------------------------------------------------------------------------


def write_wide(folder: Path, count: int) -> str:
    """Write one case whose axes multiply to ``count``."""
    (folder / "wide.spec.yaml").write_text("cases:\n" + _case("wide", count, 0))
    return "1 case"


def write_many(folder: Path, count: int) -> str:
    """Write cases of 50 variants in 20 files."""
    cases = max(1, count // PER_CASE)
    for file in range(min(FILES, cases)):
        text = "cases:\n" + "".join(_case(f"case_{number}", PER_CASE, number) for number in range(file, cases, FILES))
        (folder / f"many_{file:02}.spec.yaml").write_text(text)
    return f"{cases} cases in {min(FILES, cases)} files"


def write_single(folder: Path, count: int) -> str:
    """Write a twentieth of ``count`` as cases of one variant each, in one file."""
    cases = max(1, count // 20)
    text = "".join(
        f"  - {{name: case_{n}, inputs: {{x: [2, 8]}}, chain: [{{nn.Linear: [8, {n % 60 + 1}]}}, F.relu]}}\n"
        for n in range(cases)
    )
    (folder / "single.spec.yaml").write_text("cases:\n" + text)
    return f"{cases} cases of one variant, 1 file"


def write_shared(folder: Path, count: int) -> str:
    """Write two suites that ask for the same variants, one of them with a ``select:``."""
    for name, selection in (("all", ""), ("chosen", "select: tag:scale and not tag:t7\n")):
        (folder / f"{name}.suite.yaml").write_text(f"suite: {name}\nspecs: ['*.spec.yaml']\n{selection}")
    return f"2 suites, {write_many(folder, count)}"


def _case(name: str, count: int, number: int) -> str:
    """Return a case of ``count`` variants: 5 values of one param, 1 or 2 dtypes, the rest another param."""
    dtypes = ["float32", "float64"] if count % 10 == 0 else ["float32"]
    values = range(1, max(1, count // 5 // len(dtypes)) + 1)
    return _CASE.format(name=name, tag=number % 10, n=", ".join(map(str, values)), dtypes=", ".join(dtypes))


# --- events --------------------------------------------------------------------------------


def events_of(count: int) -> Iterator[Event]:
    """Yield a run of ``count`` variants: 95 % pass, 2 % are known, 1 % are skipped, 2 % fail in different ways."""
    environments = ({"python": "/venv/bin/python", "torch": "2.13.0", "version": "3.11.2"},)
    yield RunStarted("20260102-030405-1", "0.1.0", ("runner", "run", "specs"), "2026-01-02T03:04:05", "host",
                     "/tmp/runs/1", environments)  # fmt: skip
    yield from (VariantPlanned(**_identity(number)) for number in range(count))
    yield from (_finished(number) for number in range(count))
    yield RunFinished(1, 1234.5)


def _identity(number: int) -> dict[str, Any]:
    case, inner = divmod(number, PER_CASE)
    suite, dtype = f"many_{case % FILES:02}", ("float32", "float64")[inner % 2]
    file = f"specs/{suite}.spec.yaml"
    label = f"{file}::case_{case}[n={inner // 10 + 1},k={inner // 2 % 5 + 1},{dtype},cpu]"
    return {
        "id": f"{label}@inductor", "case": f"{file}::case_{case}", "suite": suite, "suites": (suite,),
        "backend": "inductor", "torch": "2.13.0", "python": "/venv/bin/python", "device": "cpu", "dtype": dtype,
        "label": label, "file": os.path.abspath(file), "line": case * 8 + 2, "column": 11,
    }  # fmt: skip


NUMBERS = {
    "mismatched": 3, "elements": 1000, "worst_index": [1, 2], "eager": 1.5, "compiled": 1.25, "reference": 1.50000001,
    "abs_error": 0.25, "rel_error": 0.16, "rtol": 1.3e-6, "atol": 1e-5, "eager_error_max": 1e-7,
    "compiled_error_max": 0.25, "eager_error_rmse": 1e-8, "compiled_error_rmse": 0.0125, "multiplier": 12.5,
}  # fmt: skip
ERROR = {"type": "InductorError", "message": "LoweringException: no lowering\n" * 3,
         "chain": ["InductorError", "LoweringException"], "trace": _TRACE}  # fmt: skip
STAGES = {"dynamo": "ok", "aot": "ok", "decomposition": "ok", "inductor": "value"}


def _finished(number: int) -> VariantFinished:
    verdict = {7: "FAIL", 57: "ERROR", 23: "XFAIL", 73: "XFAIL", 99: "SKIP"}.get(number % 100, "PASS")
    values = {
        **_identity(number), "verdict": verdict, "seconds": number % 977 / 100, "graphs": 1, "graph_breaks": 0,
        "recompiles": 0, "comparisons": 3, "params": {"n": number % 7, "k": number % 5},
    }  # fmt: skip
    place = f"{values['file']}:{values['line']}:11"
    if verdict in ("FAIL", "XFAIL"):
        finding = Finding("value", "3 of 1000 elements differ", "call 0, output", NUMBERS, None, "inductor", place)
    else:
        finding = Finding("compile-error", "the backend raised", "", {}, ERROR, "inductor", place)
    wrong = {"stage": "inductor", "oracles": (finding.oracle,), "findings": (finding,), "stages": STAGES,
             "reason": f"{finding.oracle}: {finding.message}"}  # fmt: skip
    red = {**wrong, "output": "W0102 03:04:05 something was printed\n" * 30, "repro": f"runner run '{values['id']}'"}
    values |= {
        "FAIL": red, "ERROR": red, "SKIP": {"reason": "needs torch <=2.6, this is 2.13.0"},
        "XFAIL": {**wrong, "known": "https://github.com/pytorch/pytorch/issues/1", "entry": place},
    }.get(verdict, {})  # fmt: skip
    return VariantFinished(**values)


# --- measurements --------------------------------------------------------------------------
# Each runs in a process of its own, and returns the seconds of its steps.


class Clock(Figures):
    """Seconds by name; a name that comes again adds up."""

    def time(self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function, add its seconds to those of ``name``, and return its result."""
        began = time.perf_counter()
        result = function(*arguments, **options)
        self[name] = self.get(name, 0.0) + time.perf_counter() - began
        return result


def plan_variants(folder: Path, count: int) -> Figures:
    """Read, expand, plan, and make the event that announces each variant."""
    clock = Clock()
    environments = [Environment("0", sys.executable, "2.13.0", "2.13.0+cpu", "3.11.2")]
    loaded = clock.time("load", load, [str(folder)], limits=Limits(**LIMITS))
    planned = clock.time("plan", plan, loaded.variants, environments)
    keys = clock.time("plan", lambda: {entry.key for entry in planned})
    events = clock.time("announce", lambda: [planned_event(entry) for entry in planned])
    assert len(keys) == len(events) == count, (len(keys), count)
    return clock


def journal(folder: Path, count: int) -> Figures:
    """Write all events of a run, read them one at a time, and all at once."""
    clock, file = Clock(), folder / "events.jsonl"
    with Journal(file) as log:
        for event in events_of(count):
            clock.time("write", log.write, event)
    streamed = clock.time("streamed", lambda: sum(1 for _ in stream_journal(file, Problems())))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    events, unreadable = clock.time("read", read_journal, file)
    assert len(events) == streamed == 2 * count + 2 and not unreadable
    return {**clock, "MB of file": file.stat().st_size / 1e6, "MB streamed": peak}


def junit(folder: Path, count: int) -> Figures:
    """Render all results at once, as ``runner report --junit`` does."""
    clock = Clock()
    text = clock.time("render", render, [*events_of(count)])
    return {**clock, "MB of file": len(text.encode()) / 1e6}


def live_junit(folder: Path, count: int) -> Figures:
    """Keep the file of a run in progress: first the whole plan, then 50 results in each second of its clock."""
    clock, longest, now = Clock(), 0.0, 0.0
    report = JUnitFile(folder / "junit.xml", on_problem=lambda why: sys.exit(why), clock=lambda: now)
    for event in events_of(count):
        if isinstance(event, VariantFinished) and "the plan" not in clock:
            clock.time("the plan", report.handle, VariantStarted(event.id, event.torch))
        begun = clock.get("results", 0.0)
        clock.time("results", report.handle, event)
        if isinstance(event, VariantFinished):
            now, longest = now + 0.02, max(longest, clock["results"] - begun)
    report._file.touch()
    clock.time("one rewrite", report.close)
    return {**clock, "longest halt": longest}


def table(folder: Path, count: int) -> Figures:
    """Draw the table of all results."""
    clock = Clock()
    clock.time("render", render_table, [*events_of(count)])
    return clock


def log_terminal(folder: Path, count: int) -> Figures:
    """Print what a CI log gets: a line a result, then the end."""
    return _terminal(io.StringIO(), count, {})


def live_terminal(folder: Path, count: int) -> Figures:
    """Print the same where a person watches, with a tick for every fiftieth result."""
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    return _terminal(screen, count, {"TERM": "xterm"})


def _terminal(stream: io.StringIO, count: int, environ: dict[str, str]) -> Figures:
    reporter, clock = Reporter(stream, environ=environ, width=120), Clock()
    for number, event in enumerate(events_of(count)):
        clock.time("end" if isinstance(event, RunFinished) else "events", reporter.handle, event)
        if isinstance(event, VariantFinished) and not number % 50:
            clock.time("ticks", reporter.tick, [(event.id, 1.0, "")])
    return {**clock, "MB of text": len(stream.getvalue()) / 1e6}


# --- the table -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """One line of the table: a command, or a function of this file; ``write`` makes its files. Targets: seconds, MB."""

    name: str
    write: Callable[[Path, int], str] | None = None
    command: str = ""
    _: KW_ONLY
    measure: Callable[[Path, int], Figures] | None = None
    seconds: float
    memory: float
    step: str = ""  # which step the target is about, where not the sum


PARTS = (
    Part("list-wide", write_wide, "list FOLDER", seconds=5, memory=500),
    Part("list-many", write_many, "list FOLDER", seconds=5, memory=500),
    Part("list-shared", write_shared, "list FOLDER", seconds=5, memory=500),
    Part("list-single", write_single, "list FOLDER", seconds=5, memory=500),
    Part("list-select", write_many, "list FOLDER -k 'tag:t1 and not float64'", seconds=5, memory=500),
    Part("list-node", write_many, "list FOLDER FOLDER/many_00.spec.yaml::case_0", seconds=5, memory=500),
    Part("list-head", write_many, "list FOLDER | head -1", seconds=5, memory=500),
    Part("validate-many", write_many, "validate FOLDER", seconds=20, memory=500),
    Part("plan-many", write_many, measure=plan_variants, seconds=5, memory=500),
    Part("journal", measure=journal, seconds=30, memory=500),
    Part("junit", measure=junit, seconds=20, memory=1000),
    Part("live-junit", measure=live_junit, seconds=2, memory=1000, step="longest halt"),
    Part("table", measure=table, seconds=20, memory=500),
    Part("terminal-log", measure=log_terminal, seconds=20, memory=500),
    Part("terminal-live", measure=live_terminal, seconds=60, memory=500),
)


def run_part(part: Part, count: int) -> list[object]:
    """Return the part's line of the table."""
    print(f"{part.name} ...", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "specs"  # named as in a project: an id holds its file's path as the command line shows it
        folder.mkdir()
        text = part.write(folder, count) if part.write else ""
        words = [sys.executable, str(Path(__file__).resolve()), "-n", str(count), "--inside", part.name, str(folder)]
        if part.command:
            options = " ".join(f"--limit {limit}={size}" for limit, size in LIMITS.items())
            command = part.command.replace("FOLDER", f"{options} FOLDER", 1).replace("FOLDER", "specs")
            words = ["bash", "-c", f"{sys.executable} -m runner {command}"]
        cost = measure_command(words, cwd=name, stderr=None)
    figures: Figures = {} if part.command else json.loads(cost.output)
    if part.command and "|" not in part.command:
        text += f": {cost.output.count(chr(10))} lines"
    steps = {key: value for key, value in figures.items() if "MB" not in key}
    seconds = steps[part.step] if part.step else sum(steps.values()) if steps else cost.seconds
    scale = max(1.0, count / TARGETS_FOR)
    most, memory = part.seconds * scale, part.memory * (1 if part.command else scale)
    word = "yes" if seconds <= most and cost.memory <= memory else "NO"
    target = f"{part.step or 'all'} {most:g} s, {memory:g} MB"
    details = ", ".join(f"{key} {value:.2f}" for key, value in figures.items()) or text
    return [part.name, seconds, cost.cpu, cost.memory, target, word, details]


def main() -> int:
    """Measure every part and print the table; 1 when a target is missed."""
    options = command_line(
        __doc__,
        option("-n", type=int, default=TARGETS_FOR, help="how many variants (default: 100,000)"),
        option("--only", default="", help="parts, by the start of their names, with commas"),
        option("--inside", nargs=2, metavar=("PART", "FOLDER"), help=argparse.SUPPRESS),
    ).parse_args()
    if options.inside:
        part = next(part for part in PARTS if part.name == options.inside[0])
        assert part.measure is not None
        print(json.dumps(part.measure(Path(options.inside[1]), options.n)))
        return 0
    names = tuple(options.only.split(","))
    rows = [run_part(part, options.n) for part in PARTS if part.name.startswith(names)]
    headers = ["what", "seconds", "CPU s of all", "MB", "target", "met", "details"]
    print(tabulate(rows, headers=headers, floatfmt=("", ".2f", ".2f", ".0f")))
    return int(any("NO" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
