"""Kills the runner with SIGKILL at random moments, and looks at what it leaves behind.

    python bench/kill_loop.py -n 30

After each kill the JUnit files must parse and hold every planned case, the journal must be readable to its last whole line
and give a report, and no process of the run may be left. The loop starts from the file of a whole run, so that "always"
holds from the first moment on. Exits non-zero when anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

CASES = 8
SPEC = "cases:\n" + "".join(
    f"  - name: case_{number}\n    inputs: {{x: [4, 8]}}\n    chain:\n      - nn.Linear: [8, 8]\n      - torch.relu\n"
    for number in range(CASES)
)
REPORT, LOG, MARK = "report.xml", "log.jsonl", "RUNNER_KILL_LOOP"


def kill_loop(
    folder: Path, times: int, backends: Sequence[str] = ("aot_eager",), say: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Kill ``times`` runs in ``folder``; what was wrong, one line each. ``say`` gets a line for each kill."""
    (folder / "kill.spec.yaml").write_text(SPEC)
    flags = [word for name in backends for word in ("--backend", name)]
    command = [
        sys.executable,
        "-m",
        "runner",
        "run",
        "kill.spec.yaml",
        *flags,
        "-j",
        "2",
        "--junit",
        REPORT,
        "--events",
        LOG,
    ]
    began = time.monotonic()
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    duration = time.monotonic() - began
    whole = names(folder / REPORT)
    if len(whole) != CASES * len(backends):
        return [f"the whole run reports {len(whole)} cases instead of {CASES * len(backends)}"]
    problems = []
    for number in range(times):
        mark = uuid.uuid4().hex
        moment = random.uniform(0.0, 1.05 * duration)
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, env={**os.environ, MARK: mark})
        try:
            process.wait(moment)
            ended = "had ended"
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            ended = "was killed"
        found = [*_report_problems(folder / REPORT, whole), *_journal_problems(folder), *_leftovers(mark)]
        # The run's own file is not there at first, then whole at once.
        for own in folder.glob(".runner/runs/*/junit.xml"):
            found += _report_problems(own, whole)
            own.unlink()
        when = f"run {number + 1} {ended} after {moment:.2f} s"
        say(f"{when}: {'; '.join(found) or _state(folder / REPORT)}")
        problems += [f"{when}: {problem}" for problem in found]
    return problems


def names(report: Path) -> set[tuple[str, str]]:
    """The test cases of a JUnit file. Raises ParseError when it is not whole."""
    root = ElementTree.parse(report).getroot()
    return {(case.get("classname", ""), case.get("name", "")) for case in root.iter("testcase")}


def _report_problems(report: Path, whole: set[tuple[str, str]]) -> list[str]:
    try:
        found = names(report)
    except (OSError, ElementTree.ParseError) as error:
        return [f"{report.name} cannot be read: {error}"]
    return (
        [f"{report.name} lacks {sorted(whole - found)} and has {sorted(found - whole)} too many"]
        if found != whole
        else []
    )


def _state(report: Path) -> str:
    waiting = len(ElementTree.parse(report).getroot().findall(".//skipped[@type='not-run']"))
    return f"sound, {waiting} not run"


def _journal_problems(folder: Path) -> list[str]:
    text = (folder / LOG).read_text()
    *lines, _torn = text.split("\n")
    for line in lines:
        try:
            json.loads(line)
        except ValueError:
            return [f"{LOG} has a broken line before its end: {line[:80]!r}"]
    if not any('"run-started"' in line for line in lines):
        return []  # killed before the run began
    again = subprocess.run(
        [sys.executable, "-m", "runner", "report", LOG, "--junit", "again.xml"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    if again.returncode != 0 or "Traceback" in again.stderr:
        return [f"runner report fails on what is left of {LOG}: {again.stderr.strip()[-200:]}"]
    return []


def _leftovers(mark: str, patience: float = 10.0) -> list[str]:
    """Processes of the run that are still there after ``patience`` seconds."""
    until = time.monotonic() + patience
    while left := _marked(mark):
        if time.monotonic() > until:
            return [f"left behind: {', '.join(left)}"]
        time.sleep(0.1)
    return []


def _marked(mark: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append(
                    f"{entry.name} {(entry / 'cmdline').read_bytes().replace(bytes(1), b' ').decode(errors='replace')[:80]}"
                )
        except OSError:
            continue  # gone meanwhile, or a zombie
    return found


def main() -> int:
    """Loop as often as the command line says; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=30, help="how often (default: 30)")
    parser.add_argument("--backend", action="append", help="default: aot_eager and inductor")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        problems = kill_loop(Path(folder), options.n, options.backend or ("aot_eager", "inductor"), print)
    print("\n".join(["", *problems]) if problems else f"{options.n} kills, nothing wrong")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
