"""What other people's readers make of the JUnit of a run with every verdict: their own programs, from folders that hold them.

    python tools/junit_parsers.py --dorny FOLDER --mikepenz FOLDER --enricomi FOLDER --gitlab FILE

A FOLDER is a copy of the repository of an action; FILE is GitLab's lib/gitlab/ci/parsers/test/junit.rb. Nothing is
downloaded or built, and a reader that is not named is left out. The actions run as GitHub runs them, without a token
that works. Needs node (or what NODE names); --enricomi needs a Python with its requirements (--python), --gitlab ruby with activesupport.

Prints a line for each reader, and what it got wrong. Exits with 1 when a count, a name or a text differs from the run's log.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tabulate import tabulate

from runner.record.events import VariantFinished
from runner.record.store import read_events
from runner.report.failure import headline
from runner.report.junit import KINDS
from runner.text import in_line

FILES = {
    "verdicts.spec.yaml": """\
defaults: {inputs: {x: [4, 4]}}
cases:
  - {name: passes, chain: [torch.relu]}
  - {name: wrong_value, chain: [torch.neg]}
  - {name: cannot_compile, chain: [torch.exp]}
  - {name: crash, chain: [torch.sin]}
  - {name: timeout, chain: [torch.cos], timeout: 8s}
  - {name: expected, chain: [torch.neg], known: [{oracle: [value], reason: "planted <b>&amp;</b> here"}]}
  - {name: repaired, chain: [torch.relu], known: [{oracle: [value], reason: "was broken"}]}
  - {name: elsewhere, chain: [torch.relu], requires: {torch: ">=99"}}
  - {name: unsteady, module: {file: models.py, name: Unsteady}}
  - {name: saturated, chain: [torch.abs, torch.sub: [$_, $_], torch.relu]}
  - {name: cannot_work, inputs: {x: [3, 4], w: [5, 4]}, chain: [torch.mm: [$x, $w]]}
  - {name: cannot_load, module: {file: broken.py, name: Missing}}
""",
    "models.py": """\
import os

import torch


class Unsteady(torch.nn.Module):
    def forward(self, x):
        return x + int.from_bytes(os.urandom(4), "big")
""",
    "broken.py": "raise ImportError('no <such> \"library\" & none \\x1b[31mhere')\n",
    "verdicts.py": """\
import ctypes
import time


def backend(module, inputs):
    code = str(module.graph)
    print("last words <&> ]]> \\x1b[31mred", flush=True)
    if "exp" in code:
        raise RuntimeError("cannot <compile> & 'this'")
    if "sin" in code:
        ctypes.string_at(0)
    while "cos" in code:
        time.sleep(1)
    if "neg" in code:
        return lambda *values: tuple(v + 1 for v in module(*values))
    return module.forward
""",
}

VERDICTS = {"PASS", "FAIL", "ERROR", "XFAIL", "XPASS", "SKIP", "FLAKY", "VACUOUS", "INVALID"}

NODE = os.environ.get("NODE", "node")
"""The program that runs actions: a newer one than the system's where an action asks for it."""

_ENRICOMI = """
import json, sys
sys.path.insert(0, sys.argv[1])
from publish.junit import parse_junit_xml_files, process_junit_xml_elems
parsed = process_junit_xml_elems(parse_junit_xml_files([sys.argv[2]], False, False))
print(json.dumps({"errors": [str(e) for e in parsed.errors], "tests": parsed.suite_tests, "failures": parsed.suite_failures,
  "suite_errors": parsed.suite_errors, "skipped": parsed.suite_skipped, "cases": [[c.test_name, c.result, c.message, c.content, c.test_file, c.line, c.time] for c in parsed.cases]}))
"""

_GITLAB = """
require 'active_support'
require 'active_support/core_ext'
require 'json'
ActiveSupport::XmlMini.backend = 'Nokogiri'
module Gitlab; module Ci
  module Parsers; ParserError = Class.new(StandardError); end
  module Reports; class TestCase
    STATUS_FAILED, STATUS_ERROR, STATUS_SKIPPED, STATUS_SUCCESS = %w[failed error skipped success]
    attr_reader :values
    def initialize(**values) @values = values end
  end; end
end; end
require ARGV[0]
class Suite
  attr_reader :cases, :error
  def initialize() @cases = [] end
  def name() 'job' end
  def add_test_case(test) @cases << test.values end
  def set_suite_error(error) @error = error end
end
suite = Suite.new
Gitlab::Ci::Parsers::Test::Junit.new.parse!(File.read(ARGV[1], encoding: 'UTF-8'), suite, job: nil)
puts JSON.generate({error: suite.error, cases: suite.cases})
"""

Expected = Mapping[str, VariantFinished]
"""Results by the name of their testcase."""


def make_run(folder: Path) -> Path:
    """Run a case for each verdict in a folder; return the folder of the run."""
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    words = ["run", "verdicts.spec.yaml", "--backend", "verdicts:backend", "--allow-python", "-q"]
    subprocess.run([sys.executable, "-m", "runner", *words], cwd=folder, stdout=subprocess.DEVNULL, check=False)
    return (folder / ".runner" / "latest").resolve()


def expected_of(run: Path) -> Expected:
    """Return the results of a run's log."""
    results = [event for event in read_events(str(run)) if isinstance(event, VariantFinished)]
    return {in_line(event.id.partition("::")[2]): event for event in results}


def kinds_of(expected: Expected) -> Counter[str]:
    """Return how many testcases have each child: ``failure``, ``error``, ``skipped``, or ``""``."""
    return Counter(KINDS.get(event.verdict, "") for event in expected.values())


def _act(folder: Path, run: Path, inputs: Mapping[str, str]) -> tuple[dict[str, str], str, str]:
    """Run an action: its outputs, its summary, and what it printed. Its inputs are those of its action.yml, and ``inputs``."""
    import yaml

    declared = yaml.safe_load((folder / "action.yml").read_text(encoding="utf-8"))["inputs"]
    values = {name: str(entry.get("default") or "") for name, entry in declared.items()} | dict(inputs)
    with tempfile.TemporaryDirectory() as temporary:
        output, summary = Path(temporary, "output"), Path(temporary, "summary")
        output.touch()
        summary.touch()
        event = Path(temporary, "event.json")
        event.write_text("{}", encoding="utf-8")
        environment = {
            **{key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ},
            **{f"INPUT_{name.replace(' ', '_').upper()}": value for name, value in values.items()},
            "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_EVENT_PATH": str(event),
            "GITHUB_WORKSPACE": str(run.parents[2]), "GITHUB_REPOSITORY": "some/body", "GITHUB_SHA": "0" * 40,
            "GITHUB_EVENT_NAME": "push", "GITHUB_REF": "refs/heads/main", "GITHUB_API_URL": "http://127.0.0.1:9",
            "GITHUB_SERVER_URL": "http://127.0.0.1:9", "RUNNER_TEMP": temporary,
        }  # fmt: skip
        process = subprocess.run([NODE, str(folder / "dist" / "index.js")], cwd=run.parents[2], env=environment,
                              capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
        pairs = re.findall(r"^([\w-]+)<<(\S+)\n(.*?)\n?\2$", output.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        return {name: value for name, _, value in pairs}, summary.read_text("utf-8"), process.stdout + process.stderr


def _counts(counts: Mapping[str, Any], expected: Mapping[str, int]) -> Iterator[str]:
    for name, count in expected.items():
        if str(counts.get(name)) != str(count):
            yield f"{name}: {counts.get(name)}, not {count}"


def check_dorny(folder: Path, run: Path, expected: Expected) -> Iterator[str]:
    """Yield what dorny/test-reporter gets wrong: counts, and names in its summary."""
    kinds = kinds_of(expected)
    subprocess.run(["git", "init", "-q"], cwd=run.parents[2], check=True)
    counts = {"passed": kinds[""], "failed": kinds["failure"] + kinds["error"], "skipped": kinds["skipped"]}
    inputs = {
        "name": "runner",
        "path": "junit.xml",
        "reporter": "java-junit",
        "token": "none",
        "fail-on-error": "false",
    }
    outputs, summary, _ = _act(folder, run, inputs)
    yield from _counts(outputs, counts)
    text = summary.replace("\\", "")
    yield from (f"{name} is not in the summary" for name in expected if name not in text)
    for event in expected.values():
        if KINDS.get(event.verdict) in ("failure", "error") and _plain(headline(event)) not in _plain(text):
            yield f"the summary does not say: {headline(event)}"


def check_mikepenz(folder: Path, run: Path, expected: Expected) -> Iterator[str]:
    """Yield what mikepenz/action-junit-report gets wrong: counts, and the place and text of each annotation."""
    kinds = kinds_of(expected)
    red = [event for event in expected.values() if KINDS.get(event.verdict) in ("failure", "error")]
    counts = {"total": len(expected), "passed": kinds[""], "failed": len(red), "skipped": kinds["skipped"]}
    outputs, _, printed = _act(folder, run, {"report_paths": "junit.xml", "token": "none", "annotate_only": "true", "detailed_summary": "true"})  # fmt: skip
    yield from _counts(outputs, counts)
    notes = re.findall(r"^::error (.*?)::(.*)$", printed, re.MULTILINE)
    for event in red:
        place = f"file=verdicts.spec.yaml,line={event.line},"
        if not any(place in f"{head}," and _plain(headline(event)) in _plain(text) for head, text in notes):
            yield f"no annotation at {place} says: {headline(event)}"
    if len(notes) != len(red):
        yield f"{len(notes)} annotations, not {len(red)}"


def check_enricomi(folder: Path, run: Path, expected: Expected, python: str) -> Iterator[str]:
    """Yield what EnricoMi/publish-unit-test-result-action gets wrong: counts of suites and of cases, places, texts."""
    kinds = kinds_of(expected)
    parsed = _json([python, "-c", _ENRICOMI, str(folder / "python"), str(run / "junit.xml")])
    totals = {"errors": [], "tests": len(expected), "failures": kinds["failure"], "suite_errors": kinds["error"], "skipped": kinds["skipped"]}  # fmt: skip
    yield from (f"{name}: {parsed[name]}, not {value}" for name, value in totals.items() if parsed[name] != value)
    results = {name: values for name, *values in parsed["cases"]}
    yield from _same_names(results, expected)
    for name, (result, message, content, file, line, seconds) in results.items():
        if (event := expected.get(name)) is None:
            continue
        kind = KINDS.get(event.verdict, "")
        if result != (kind or "success") or (file, line) != ("verdicts.spec.yaml", event.line):
            yield f"{name}: {result} at {file}:{line}"
        if kind and (message != headline(event) or not (content or "").startswith(message)):
            yield f"{name}: {message!r}, {content!r}"
        if abs(seconds - event.seconds) > 0.001:
            yield f"{name}: {seconds} seconds, not {event.seconds}"


def check_gitlab(file: Path, run: Path, expected: Expected) -> Iterator[str]:
    """Yield what GitLab gets wrong: the status, place and text of each case."""
    parsed = _json(["ruby", "-e", _GITLAB, str(file.resolve()), str(run / "junit.xml")])
    if parsed["error"]:
        yield parsed["error"]
    cases = {case["name"]: case for case in parsed["cases"]}
    yield from _same_names(cases, expected)
    statuses = {"failure": "failed", "error": "error", "skipped": "skipped", "": "success"}
    for name, case in cases.items():
        if (event := expected.get(name)) is None:
            continue
        kind = KINDS.get(event.verdict, "")
        if (case["status"], case["file"]) != (statuses[kind], "verdicts.spec.yaml") or not case["classname"]:
            yield f"{name}: {case['status']} in {case['file']}"
        if kind and headline(event) not in str(case["system_output"]):
            yield f"{name}: {case['system_output']!r}"
        if abs(float(case["execution_time"]) - event.seconds) > 0.001:
            yield f"{name}: {case['execution_time']} seconds"


def _same_names(names: Mapping[str, Any], expected: Expected) -> Iterator[str]:
    if names.keys() != expected.keys():
        yield f"names: {sorted(names.keys() ^ expected.keys())}"


def _json(words: list[str]) -> Any:
    process = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if process.returncode:
        raise SystemExit(f"{words[0]} failed: {process.stderr[-2000:]}")
    return json.loads(process.stdout)


def _plain(text: str) -> str:
    """Text without what Markdown and workflow commands add, for a search."""
    return re.sub(
        r"[^\w]+", " ", text.replace("%25", "%").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    )


def main() -> int:
    """Check every reader that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("dorny", "mikepenz", "enricomi"):
        parser.add_argument(f"--{name}", metavar="FOLDER", type=Path)
    parser.add_argument("--gitlab", metavar="FILE", type=Path)
    parser.add_argument("--python", default=sys.executable, help="a Python that has what --enricomi needs")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="make the run here, and take one that is here")
    arguments = parser.parse_args()
    readers: dict[str, Callable[[Path, Path, Expected], Iterator[str]]] = {
        "dorny": check_dorny, "mikepenz": check_mikepenz, "gitlab": check_gitlab,
        "enricomi": lambda folder, run, expected: check_enricomi(folder, run, expected, arguments.python),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        home = (arguments.keep or Path(temporary)).resolve()
        home.mkdir(exist_ok=True)
        run = (home / ".runner" / "latest").resolve() if (home / ".runner" / "latest").exists() else make_run(home)
        (home / "junit.xml").write_bytes((run / "junit.xml").read_bytes())
        expected = expected_of(run)
        missing = VERDICTS - {event.verdict for event in expected.values()}
        print(tabulate([(name, event.verdict, headline(event, 60)) for name, event in expected.items()]))
        if missing:
            print(f"the run has no {', '.join(sorted(missing))}")
        problems = {}
        for name, check in readers.items():
            if folder := getattr(arguments, name):
                problems[name] = [*check(folder.resolve(), run, expected)]
    for name, wrong in problems.items():
        print(f"{name}: {len(expected)} testcases, {len(wrong) or 'no'} problems", *wrong, sep="\n  ")
    return 1 if missing or any(problems.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
