"""Runs the installed command as a person would: a process of its own, in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from runner.engine.interpreters import worker_environment
from runner.record.event_schema import event_checks

from .forks import IMPORT, READING, SCRIPT, Forks

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT = 240
"""Seconds after which a command counts as hung."""
FORKS = Forks()
TORCH_FORKS = Forks(IMPORT, environ=lambda: environment(dict(worker_environment().items() - os.environ.items())))
STAND_IN: dict[str, str] = {}
"""Variables of each command while the tests of a module have a stand-in for torch."""
KNOWN_ISA = {"TORCHINDUCTOR_VEC_ISA_OK": "1"}
"""For a new kernel cache: without it the compiler is asked about the processor, which takes ten seconds."""


@dataclass
class Result:
    """What a command did. ``folder`` is the run's, where there was one."""

    code: int
    out: str
    err: str
    cwd: Path
    folder: Path | None = None
    text: str = field(init=False)

    def __post_init__(self) -> None:
        self.text = self.out + self.err

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """The run's journal, each line of which fits the published schema."""
        assert self.folder is not None, self.text
        events = [json.loads(line) for line in (self.folder / "events.jsonl").read_text().splitlines()]
        for event in events:
            event_checks()[event["event"]](event)
        return events

    @cached_property
    def finished(self) -> dict[str, dict[str, Any]]:
        """Finished variants by the part of their id after the file: ``relu[float32,cpu]@inductor``."""
        events = [e for e in self.events if e["event"] == "variant-finished"]
        named = {e["id"].partition("::")[2]: e for e in events}
        assert len(named) == len(events), "two variants have one name; look at events instead"
        return named

    @cached_property
    def verdicts(self) -> dict[str, str]:
        """``case@backend`` to verdict, for cases with one set of axes."""
        return {brief(name): event["verdict"] for name, event in self.finished.items()}

    def of(self, name: str) -> dict[str, Any]:
        """The finished variant ``case@backend``."""
        matches = [event for key, event in self.finished.items() if brief(key) == name]
        assert len(matches) == 1, f"{name} is not among {[*self.finished]}\n{self.text}"
        return matches[0]

    @cached_property
    def junit(self) -> ElementTree.Element:
        """The run's own JUnit file."""
        assert self.folder is not None, self.text
        return ElementTree.parse(self.folder / "junit.xml").getroot()


def brief(name: str) -> str:
    """``relu[float32,cpu]@inductor`` without its axes."""
    case, _, tail = name.partition("[")
    return case + tail.rpartition("]")[2]


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what would change the output, and with ``changes``.

    Inductor, where another test has imported it, writes the folder of its cache there.
    """
    left_out = ("NO_COLOR", "FORCE_COLOR", "PYTHONPATH", "RUNNER_", "TORCHINDUCTOR_CACHE_DIR")
    return {k: v for k, v in os.environ.items() if not k.startswith(left_out)} | STAND_IN | dict(changes or {})


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "runner", *map(str, args)]


def run_in(cwd: Path, *args: object, env: Mapping[str, str] | None = None, limit: float = LIMIT) -> Result:
    """Run ``runner ARGS`` in ``cwd``. A traceback of the control half fails the test at once.

    It is a fork, and its first worker is one with torch, unless ``env`` says how Python starts. ``/proc`` has the variables
    of ``env`` only where it does.
    """
    old_folder = latest(cwd)
    words, variables = [*map(str, args)], environment(env)
    reads = bool(words) and words[0] in (*READING, "ledger") and "--build" not in words  # which starts processes
    if not any(key.startswith(("PYTHON", "LC_", "LANG")) for key in {**(env or {}), **({} if reads else STAND_IN)}):
        process = (FORKS if reads else TORCH_FORKS).run(words, cwd, variables, limit)
    else:
        process = subprocess.run(
            command(*words),
            cwd=cwd,
            env=variables,
            capture_output=True,
            text=True,
            timeout=limit,
            stdin=subprocess.DEVNULL,
        )
    new_folder = latest(cwd)
    result = Result(
        process.returncode, process.stdout, process.stderr, cwd, new_folder if new_folder != old_folder else None
    )
    assert "Traceback (most recent call last)" not in process.stderr, process.stderr
    return result


def run_script(cwd: Path, name: str, limit: float = LIMIT) -> subprocess.CompletedProcess[str]:
    """Run a script of ``cwd`` that imports torch. ``test_repro.py`` also runs one in a new process, as people do."""
    return TORCH_FORKS.run((SCRIPT, str(cwd / name)), cwd, environment(), limit)


def latest(cwd: Path) -> Path | None:
    """The folder of the last run in ``cwd``."""
    link = cwd / ".runner" / "latest"
    return link.resolve() if link.exists() else None


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write ``name: text`` files, the text dedented."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")


def spec(*cases: str) -> str:
    """A spec file of dedented case bodies (each starts with ``name:``)."""
    bodies = (textwrap.indent(textwrap.dedent(case).strip(), "    ") for case in cases)
    return "cases:\n" + "".join("  - " + body.lstrip() + "\n" for body in bodies)


def processes_of(marker: str) -> list[int]:
    """Processes whose environment or command line holds ``marker``; zombies have neither."""
    pids = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            content = Path("/proc", entry, "environ").read_bytes() + Path("/proc", entry, "cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in content:
            pids.append(int(entry))
    return pids
