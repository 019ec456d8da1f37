"""Kills a small run again and again, and looks at what each leaves behind.

After each kill the JUnit files must parse and hold every planned case, the journal must be readable to its last whole line and give
a report, and no process of the run may be left. It starts from the file of a whole run, so that "always" holds from the first moment.
"""

from __future__ import annotations

import json
import random
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.script_modules import script_module

kill = script_module("kill")
CASES = 8
SPEC = "cases:\n" + "".join(
    f"  - name: case_{number}\n    inputs: {{x: [4, 8]}}\n    chain:\n      - nn.Linear: [8, 8]\n      - torch.relu\n"
    for number in range(CASES)
)
REPORT, LOG = "report.xml", "log.jsonl"


def kill_often(folder: Path, times: int, backends: Sequence[str]) -> tuple[int, list[str]]:
    """Kill ``times`` runs in ``folder``; return how many had not ended, and what was wrong, one line each."""
    (folder / "kill.spec.yaml").write_text(SPEC)
    flags = [word for name in backends for word in ("--backend", name)]
    words = ["run", "kill.spec.yaml", *flags, "-j", "2", "--junit", REPORT, "--events", LOG]
    duration = kill.measure_command([*kill.RUNNER, *words], cwd=folder).seconds
    whole = names(folder / REPORT)
    if len(whole) != CASES * len(backends):
        return 0, [f"the whole run reports {len(whole)} cases instead of {CASES * len(backends)}"]
    kills, problems = 0, []
    for number in range(times):
        mark = uuid.uuid4().hex
        moment = random.uniform(0.0, 1.05 * duration)
        kills += kill.kill_after(kill.start(words, folder, mark), moment)
        faults = [*report_problems(folder / REPORT, whole), *journal_problems(folder), *kill.leftovers(mark)]
        for own in folder.glob(".runner/runs/*/junit.xml"):  # it is there as a whole or not at all
            faults += report_problems(own, whole)
            own.unlink()
        problems += [f"run {number + 1}, killed after {moment:.2f} s: {fault}" for fault in faults]
    return kills, problems


def names(report: Path) -> set[tuple[str, str]]:
    """Return the test cases of a JUnit file. Raises ParseError when it is not whole."""
    root = ElementTree.parse(report).getroot()
    return {(case.get("classname", ""), case.get("name", "")) for case in root.iter("testcase")}


def report_problems(report: Path, whole: set[tuple[str, str]]) -> list[str]:
    """Return what is wrong with a JUnit file that is to have these cases."""
    try:
        cases = names(report)
    except (OSError, ElementTree.ParseError) as error:
        return [f"{report.name} cannot be read: {error}"]
    text = f"{report.name} lacks {sorted(whole - cases)} and has {sorted(cases - whole)} too many"
    return [text] if cases != whole else []


def journal_problems(folder: Path) -> list[str]:
    """Return what is wrong with the journal: a broken line before its last one, or a report that fails."""
    *lines, _ = (folder / LOG).read_text().split("\n")
    for line in lines:
        try:
            json.loads(line)
        except ValueError:
            return [f"{LOG} has a broken line before its end: {line[:80]!r}"]
    if any('"run-started"' in line for line in lines):  # else it was killed before the run began
        words = [*kill.RUNNER, "report", LOG, "--junit", "again.xml"]
        again = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        if again.returncode != 0 or "Traceback" in again.stderr:
            return [f"runner report fails on what is left of {LOG}: {again.stderr.strip()[-200:]}"]
    return []
