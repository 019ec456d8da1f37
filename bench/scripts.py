"""Does the exported script of every corpus row say what the run says? Each is run alone with torch, in an empty folder.

    runner run suites/regressions.suite.yaml --no-known --allow-python --events log.jsonl
    python bench/scripts.py log.jsonl --results scripts.json [--python OTHER/bin/python] [-j 2] [--sample N] [-k EXPR]

A script is aimed at the leading finding of the run. It must fail for that reason where the run failed: by its
comparison, the exception's class, a signal or a hang. It must exit with 0 where the run passed. Prints the scripts'
lengths, what disagrees and the counts; exits with 1 if anything disagrees, 2 if files do not fit. Results are kept by
script text, so that only scripts that changed run again.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from commands import ROOT, command_line, measure_command, name_of, option, write_json
from corpus_page import CORPUS, SUITE, CorpusError, read_logs, read_rows, read_tags, release

from runner.cases.expand import SelectError, parse_selection
from runner.cases.model import Variant
from runner.diagnose.bug_report import script_shows
from runner.diagnose.repro import script
from runner.record.events import VariantFinished
from runner.session.collect import load
from runner.verdict.policy import headline

LIMIT = 300
"""Seconds after which a script is ended; its own limit is the case's, 120 unless the case says otherwise."""

TAIL = 50_000  # characters of the output that are kept: messages of Inductor hold whole graphs


@dataclass(frozen=True)
class ScriptRun:
    """One script: the hash of its text, its exit code, and what it printed.

    The code of a signal is minus its number, and None if the script was ended here.
    """

    text: str
    code: int | None
    seconds: float
    output: str


def digest_of(text: str) -> str:
    """Return the hash of a script."""
    return hashlib.sha256(text.encode()).hexdigest()


def run_script(python: str, text: str, cache: Path) -> ScriptRun:
    """Run a script alone: in an empty folder, without this environment, with torch, numpy and the standard library."""
    nodes = [*ast.walk(ast.parse(text))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    foreign = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"torch", "numpy"}
    assert not foreign, f"the script imports {foreign}"
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    environ |= {"TORCHINDUCTOR_CACHE_DIR": str(cache), "PYTHONHASHSEED": "0"}  # a run has this hash seed too
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "script.py").write_text(text, encoding="utf-8")
        process = subprocess.Popen(
            [python, "-s", "script.py"],  # -I would ignore the hash seed, too
            cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=LIMIT)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, code = process.communicate()[0], None
    return ScriptRun(digest_of(text), code, round(time.monotonic() - began, 1), output[-TAIL:])


def disagreement(result: VariantFinished, run: ScriptRun) -> str:
    """Return why a script does not say what the run says; nothing if it does."""
    ending = f"the script exits with {run.code}: {_last_line(run)}"
    if result.verdict in ("PASS", "VACUOUS"):
        return "" if run.code == 0 else f"the run passes, {ending}"
    if result.verdict == "INVALID":
        return "" if run.code == 2 else f"the case is invalid, {ending}"
    if result.verdict not in ("FAIL", "ERROR"):
        return f"the run says {result.verdict}"
    finding = result.findings[0]
    is_shown = script_shows(finding, run.code, run.output)
    return "" if is_shown else f"the run says {headline(finding)}, {ending}"


def _last_line(run: ScriptRun) -> str:
    return next(iter(reversed(run.output.strip().splitlines())), "nothing was printed")[:200]


def read_variants(select: str | None, sample: int | None) -> list[Variant]:
    """Return the variants of the corpus's rows."""
    tags, keys = read_tags(SUITE), {row.key for row in read_rows(CORPUS)}
    loaded = load([str(SUITE)], allow_python=True)
    if loaded.errors:
        raise CorpusError(f"{SUITE}: {len(loaded.errors)} errors; runner validate shows them")
    rows = [(variant, tags.get(name_of(variant.id).partition("[")[0])) for variant in loaded.variants]
    missing = keys - {key for _, key in rows}
    if missing:
        raise CorpusError(f"{len(missing)} rows have no case: {sorted(missing)[:5]}")
    is_selected = parse_selection(select) if select else lambda variant: True
    variants = [variant for variant, key in rows if key in keys and is_selected(variant)]
    return variants[:: max(1, len(variants) // sample)][:sample] if sample else variants


def main(words: Sequence[str] | None = None) -> int:
    """Run what has no result yet, and compare all."""
    arguments = command_line(
        __doc__,
        option("events", type=Path, metavar="EVENTS.jsonl", help="event log of the suite, run with --no-known"),
        option("--results", type=Path, required=True, metavar="FILE", help="read and written: what scripts did"),
        option("--python", default=sys.executable, help="the interpreter that holds torch (default: this one)"),
        option("-j", type=int, default=2, metavar="N", help="scripts at a time (default: 2)"),
        option("--sample", type=int, metavar="N", help="only about N variants, evenly spread"),
        option("-k", dest="select", metavar="EXPR", help="only variants that match, as for runner run"),
    ).parse_args(words)
    arguments.events, arguments.results = arguments.events.resolve(), arguments.results.resolve()
    if os.sep in arguments.python:
        arguments.python = os.path.abspath(arguments.python)  # not resolved: an environment's python is a link
    os.chdir(ROOT)  # a script names its case's file as seen from here
    version = release(
        measure_command([arguments.python, "-Ic", "import torch; print(torch.__version__)"]).output.strip()
    )
    try:
        variants = {name_of(variant.id): variant for variant in read_variants(arguments.select, arguments.sample)}
        logs = [result for result in read_logs([arguments.events]) if release(result.torch) == version]
        if not logs:
            raise CorpusError(f"{arguments.events} has nothing of torch {version}")
    except (CorpusError, SelectError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    results = {name_of(result.id): result for result in logs}
    texts = {name: script(variant, results.get(name)) for name, variant in variants.items()}
    counts = [text.count("\n") for text in texts.values()]
    print(f"torch {version}: scripts have {statistics.median(counts):g} lines in the median, {max(counts)} at most")
    return report(version, results, run_all(arguments, version, texts))


def run_all(arguments: argparse.Namespace, version: str, texts: Mapping[str, str]) -> dict[str, ScriptRun]:
    """Return what every script did, from the results file or by running it; the file is complete after each."""
    file: Path = arguments.results
    data: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    runs = data.setdefault(version, {})
    new = {name: text for name, text in texts.items() if runs.get(name, {}).get("text") != digest_of(text)}
    cache = file.with_suffix(f".{version}.cache")
    cache.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(arguments.j) as pool:
        running = pool.map(lambda text: run_script(arguments.python, text, cache), new.values())
        for number, (name, run) in enumerate(zip(new, running, strict=True), 1):
            runs[name] = asdict(run)
            write_json(file, data)
            print(f"[{number}/{len(new)}] {name}: {run.code}", file=sys.stderr)
    with contextlib.suppress(OSError):
        cache.rmdir()  # if nothing was compiled
    return {name: ScriptRun(**runs[name]) for name in texts}


def report(version: str, results: Mapping[str, VariantFinished], runs: Mapping[str, ScriptRun]) -> int:
    """Print what disagrees, and the counts."""
    counts: Counter[tuple[str, bool]] = Counter()
    for name, run in runs.items():
        result = results.get(name)
        why = disagreement(result, run) if result else "not in the event log"
        counts["failing" if result and result.verdict in ("FAIL", "ERROR") else "passing", not why] += 1
        if why:
            print(f"{name}: {why}")
    for kind, ends in (("failing", "exit non-zero for the stated reason"), ("passing", "exit zero")):
        print(f"torch {version}: {counts[kind, True]} of {counts[kind, True] + counts[kind, False]} {kind} {ends}")
    return int(any(not is_agreed for (_, is_agreed), count in counts.items() if count))


if __name__ == "__main__":
    sys.exit(main())
