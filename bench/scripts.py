"""Does the exported script of every corpus row say what the run says? Each is run alone with torch, in an empty folder.

    runner run suites/regressions.suite.yaml --no-known --allow-python --events log.jsonl
    python bench/scripts.py log.jsonl --results scripts.json [--python OTHER/bin/python] [-j 2] [--sample N] [-k EXPR]

A script is aimed at the leading finding of the run. It must fail for that reason where the run failed: by its comparison, the
exception's class, a signal or a hang. It must exit with 0 where the run passed. Prints the scripts' lengths, what disagrees and the
counts; exits with 1 if anything disagrees, 2 if files do not fit. Results are kept by script text, so that only scripts that changed
run again.
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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from corpus import CORPUS, SUITE, CorpusError, read_rows, read_tags, release  # noqa: E402

from runner.cases.expand import SelectError, parse_selection  # noqa: E402
from runner.cases.model import Variant  # noqa: E402
from runner.diagnose.bug_report import script_shows  # noqa: E402
from runner.diagnose.repro import script  # noqa: E402
from runner.record.events import VariantFinished  # noqa: E402
from runner.record.journal import read_journal  # noqa: E402
from runner.session.collect import load  # noqa: E402
from runner.verdict.policy import headline  # noqa: E402

LIMIT = 300
"""Seconds after which a script is ended; its own limit is the case's, 120 unless the case says otherwise."""

TAIL = 50_000  # characters of the output that are kept: messages of Inductor hold whole graphs


@dataclass(frozen=True)
class Ran:
    """One script: the hash of its text, its exit code (minus a signal's number; None if it was ended here), what it said."""

    text: str
    code: int | None
    seconds: float
    output: str


def read_results(path: Path) -> dict[str, dict[str, VariantFinished]]:
    """Torch release to variant id to what the run says of it; of several runs the last."""
    try:
        events, problems = read_journal(path)
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}") from error
    if problems.count:
        raise CorpusError(f"{path}: {problems.lines()[0]}")
    results: dict[str, dict[str, VariantFinished]] = {}
    for event in events:
        if isinstance(event, VariantFinished):
            results.setdefault(release(event.torch), {})[_known(event.id)] = event
    return results


def _known(variant: str) -> str:
    """An id without the folder that the run was started from."""
    return variant.rpartition("/")[2]


def run_script(python: str, text: str, cache: Path) -> Ran:
    """Run a script alone: an empty folder, nothing of this environment, no import but torch, numpy and the standard library."""
    imported = {name.partition(".")[0] for node in ast.walk(ast.parse(text)) for name in _imports(node)}
    others = imported - sys.stdlib_module_names - {"torch", "numpy"}
    assert not others, f"the script imports {others}"
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "script.py"
        place.write_text(text, encoding="utf-8")
        process = subprocess.Popen(
            [python, "-s", place],  # -I would ignore the hash seed, too
            cwd=folder,
            env={**kept, "TORCHINDUCTOR_CACHE_DIR": str(cache), "PYTHONHASHSEED": "0"},  # which a run has too
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        code: int | None = None
        try:
            output, _ = process.communicate(timeout=LIMIT)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Ran(digest, code, round(time.monotonic() - began, 1), output[-TAIL:])


def _imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield node.module or ""


def disagreement(result: VariantFinished, ran: Ran) -> str:
    """Why a script does not say what the run says; empty if it does."""
    if result.verdict in ("PASS", "VACUOUS"):
        return "" if ran.code == 0 else f"the run passes, the script exits with {ran.code}: {_last_line(ran)}"
    if result.verdict == "INVALID":
        return "" if ran.code == 2 else f"the case is invalid, the script exits with {ran.code}"
    if result.verdict not in ("FAIL", "ERROR"):
        return f"the run says {result.verdict}"
    finding = result.findings[0]
    if not script_shows(finding, ran.code, ran.output):
        return f"the run says {headline(finding)}, the script exits with {ran.code}: {_last_line(ran)}"
    return ""


def _last_line(ran: Ran) -> str:
    return next(iter(reversed(ran.output.strip().splitlines())), "nothing was printed")[:200]


def variants(select: str | None, sample: int | None) -> list[Variant]:
    """The variants of the corpus's rows."""
    tags, keys = read_tags(SUITE), {row.key for row in read_rows(CORPUS)}
    loaded = load([str(SUITE)], allow_python=True)
    if loaded.errors:
        raise CorpusError(f"{SUITE}: {len(loaded.errors)} errors; runner validate shows them")
    found = [v for v in loaded.variants if tags.get(_known(v.id).partition("[")[0]) in keys]
    missing = keys - {tags[_known(v.id).partition("[")[0]] for v in found}
    if missing:
        raise CorpusError(f"{len(missing)} rows have no case: {sorted(missing)[:5]}")
    predicate = parse_selection(select) if select else None
    chosen = [v for v in found if predicate is None or predicate(v)]
    return chosen if not sample else chosen[:: max(1, len(chosen) // sample)][:sample]


def main(argv: Sequence[str] | None = None) -> int:
    """Run what has no result yet, and compare all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("events", type=Path, metavar="EVENTS.jsonl", help="event log of the suite, run with --no-known")
    parser.add_argument(
        "--results", type=Path, required=True, metavar="FILE", help="read and written: what scripts did"
    )
    parser.add_argument("--python", default=sys.executable, help="the interpreter that holds torch (default: this one)")
    parser.add_argument("-j", type=int, default=2, metavar="N", help="scripts at a time (default: 2)")
    parser.add_argument("--sample", type=int, metavar="N", help="only about N variants, evenly spread")
    parser.add_argument("-k", dest="select", metavar="EXPR", help="only variants that match, as for runner run")
    arguments = parser.parse_args(argv)
    arguments.events, arguments.results = arguments.events.resolve(), arguments.results.resolve()
    if os.sep in arguments.python:
        arguments.python = os.path.abspath(arguments.python)  # not resolved: an environment's python is a link
    os.chdir(HERE.parent)  # a script names its case's file as seen from here
    try:
        chosen = variants(arguments.select, arguments.sample)
        runs = read_results(arguments.events)
    except (CorpusError, SelectError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    command = [arguments.python, "-Ic", "import torch; print(torch.__version__)"]
    version = release(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    if version not in runs:
        print(f"error: {arguments.events} has nothing of torch {version}", file=sys.stderr)
        return 2
    results = {_known(v.id): runs[version].get(_known(v.id)) for v in chosen}
    texts = {_known(v.id): script(v, results[_known(v.id)]) for v in chosen}
    counts = sorted(text.count("\n") for text in texts.values())
    print(f"torch {version}: scripts have {statistics.median(counts):g} lines in the median, {counts[-1]} at most")
    return report(version, results, _run_all(arguments, version, texts))


def _run_all(arguments: argparse.Namespace, version: str, texts: Mapping[str, str]) -> dict[str, Ran]:
    """What every script did, from the results file or by running it; the file is complete after each."""
    kept: dict[str, dict[str, Any]] = {}
    if arguments.results.exists():
        kept = json.loads(arguments.results.read_text(encoding="utf-8"))
    of_torch = kept.setdefault(version, {})
    fresh = {
        name: text
        for name, text in texts.items()
        if of_torch.get(name, {}).get("text") != hashlib.sha256(text.encode()).hexdigest()
    }
    cache = arguments.results.resolve().with_suffix(f".{version}.cache")
    cache.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(arguments.j) as pool:
        running = pool.map(lambda text: run_script(arguments.python, text, cache), fresh.values())
        for number, (name, ran) in enumerate(zip(fresh, running, strict=True), 1):
            of_torch[name] = asdict(ran)
            written = arguments.results.with_suffix(".new")
            written.write_text(json.dumps(kept, indent=1), encoding="utf-8")
            written.replace(arguments.results)
            print(f"[{number}/{len(fresh)}] {name}: {ran.code}", file=sys.stderr)
    with contextlib.suppress(OSError):
        cache.rmdir()  # if nothing was compiled
    return {name: Ran(**of_torch[name]) for name in texts}


def report(version: str, results: Mapping[str, VariantFinished | None], done: Mapping[str, Ran]) -> int:
    """Print what disagrees, and the counts."""
    counts: Counter[tuple[str, bool]] = Counter()
    for name, ran in done.items():
        result = results[name]
        why = disagreement(result, ran) if result else "not in the event log"
        failing = "failing" if result and result.verdict in ("FAIL", "ERROR") else "passing"
        counts[failing, not why] += 1
        if why:
            print(f"{name}: {why}")
    for kind, ends in (("failing", "exit non-zero for the stated reason"), ("passing", "exit zero")):
        print(f"torch {version}: {counts[kind, True]} of {counts[kind, True] + counts[kind, False]} {kind} {ends}")
    return int(any(not agreed for (_, agreed), count in counts.items() if count))


if __name__ == "__main__":
    sys.exit(main())
