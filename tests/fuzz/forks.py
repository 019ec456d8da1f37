"""Commands on the files of one trial, each in a fork with bounds: what it printed, took, did and left behind.

A fork calls ``runner.cli.main.main`` in 10 ms, not 200. A hang, a signal or too much memory costs that fork alone.
Python's audit events tell what it did: programs, files opened for writing, connections, imports of foreign modules.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn

from tests.fuzz import engine
from tests.fuzz.write_back import write_back

ROOT = Path(__file__).resolve().parents[2]
SEED = Path(__file__).parents[2] / "tools" / "fuzz_seed.spec.yaml"  # not below tests/, where pytest would collect it
SECONDS = 5.0
"""What one command may take of a processor."""

MEMORY = 1 << 30
"""Bytes that one command may hold."""

MARK = "zq"
"""What every name of a hostile text begins with. No module of that name may be imported."""

Plant = Callable[[], None]
_WALL = 90.0  # seconds; a machine with much else to do is no finding
_ROOM = MEMORY + (512 << 20)  # address space: libraries and stacks take some that is never used
_PRINTED = 8 << 20  # bytes of each stream
_SPECS = 4  # of each folder that changed suites can name
_FOREIGN = ("antigravity", "this", "webbrowser", "torch", "ctypes", MARK)
_PROGRAMS = ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.kill",
    "subprocess.Popen", "pty.spawn",
             "socket.connect", "socket.bind", "webbrowser.open")  # fmt: skip
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.chown",
    "os.truncate", "shutil.rmtree")  # fmt: skip
"""Audit events of changes to files."""

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Outcome:
    """What became of a command. ``code`` is None after a signal; ``changes`` are the files that it left changed."""

    words: tuple[str, ...]
    code: int | None
    out: bytes = b""
    err: bytes = b""
    signal: int | None = None
    seconds: float = 0.1  # of a processor
    memory: int = 1 << 20
    hung: bool = False
    acts: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


class Commands:
    """A process that has imported what commands use, and forks for each. Pytest's own may have threads, and torch."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), _start)

    def run(self, files: Files, words: Sequence[str], plant: Plant | None = None, wall: float = _WALL) -> Outcome:
        """Run ``runner WORDS`` beside ``files``, after ``plant``; or ``write_back`` for the word ``write``."""
        return self._pool.submit(_run, files, tuple(words), plant, wall).result()

    def logs(self) -> tuple[bytes, ...]:
        """The event logs of a few runs under the scripted engine."""
        return self._pool.submit(_logs).result()

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown()


# --- in that process -------------------------------------------------------------------------

_folders: list[Folder] = []


def _start() -> None:
    """Import all that the commands use, so that forks need not."""
    from runner.cli import logs, run  # noqa: F401  main imports the others below
    from runner.cli.main import main

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for command in ("validate", "list", "show", "repro", "ledger"):
            handler = signal.getsignal(signal.SIGTERM)
            main([command, str(SEED)])
            signal.signal(signal.SIGTERM, handler)
    _folders.append(Folder(_template()))
    os.environ["XDG_STATE_HOME"] = str(_folders[0].path.parent / "state")  # what tells this user's logs from others'
    gc.collect()
    gc.freeze()


def _template() -> dict[str, bytes]:
    """Shipped files that changed ones name: the smallest specs of each folder, the Python of kernels and models."""
    specs = sorted((ROOT / "specs").rglob("*.spec.yaml"), key=lambda path: (path.parent, path.stat().st_size))
    folders = groupby(specs, key=lambda path: path.parent)
    paths = [*(ROOT / "specs").rglob("*.py"), *(path for _, files in folders for path in islice(files, _SPECS))]
    return {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in sorted(paths)}


def _run(files: Files, words: tuple[str, ...], plant: Plant | None, wall: float) -> Outcome:
    folder = _folders[0]
    folder.write(files)
    old_listing = folder.listing()
    try:
        outcome = _forked(partial(_watched, words, plant, None), folder.path, words, wall)
        new_listing = folder.listing()
    finally:
        folder.clear()
    changes = sorted(
        name for name in new_listing.keys() | old_listing.keys() if new_listing.get(name) != old_listing.get(name)
    )
    return replace(outcome, changes=tuple(changes))


def _logs() -> tuple[bytes, ...]:
    folder, logs = _folders[0], []
    for words, most in engine.RUNS:
        folder.write({engine.SPEC_NAME: engine.SPEC.encode()})
        outcome = _forked(partial(_watched, words, None, most), folder.path, words, _WALL)
        journals = [*folder.path.glob(".runner/runs/*/events.jsonl")]
        if len(journals) != 1:
            raise RuntimeError(f"runner {' '.join(words)} left {len(journals)} logs: {outcome}")
        logs.append(journals[0].read_bytes().replace(bytes(folder.path), b"@WORK@"))
        folder.clear()
    return tuple(logs)


def _forked(action: Callable[[int], int], cwd: Path, words: Sequence[str], wall: float) -> Outcome:
    """Run ``action`` in a fork, in ``cwd``; it gets a file descriptor for its acts and returns an exit code."""
    streams = [os.memfd_create(name) for name in ("out", "err", "acts")]
    size, resident = (int(pages) * resource.getpagesize() for pages in Path("/proc/self/statm").read_text().split()[:2])
    child = os.fork()
    if child == 0:
        _be_child(action, cwd, streams, size)
    descriptor = os.pidfd_open(child)
    ready, _, _ = select.select([descriptor], [], [], wall)
    with contextlib.suppress(ProcessLookupError):  # with all that it has left behind
        os.killpg(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    os.close(descriptor)
    out, err, acts = map(_content, streams)
    return Outcome(
        tuple(words),
        os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        out,
        err,
        os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        usage.ru_utime + usage.ru_stime,
        max(0, usage.ru_maxrss * 1024 - resident),
        not ready,
        tuple(acts.decode("utf-8", "replace").splitlines()),
    )


def _content(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, _PRINTED, 0) + (b"\n[cut]" if size > _PRINTED else b"")
    os.close(descriptor)
    return data


def _be_child(action: Callable[[int], int], cwd: Path, streams: Sequence[int], size: int) -> NoReturn:
    code = 70
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(streams[0], 1)
        os.dup2(streams[1], 2)
        os.chdir(cwd)
        resource.setrlimit(resource.RLIMIT_AS, (size + _ROOM, size + _ROOM))
        resource.setrlimit(resource.RLIMIT_CPU, (int(2 * SECONDS) + 1, int(2 * SECONDS) + 2))  # SIGXCPU, then SIGKILL
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 20, 256 << 20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = action(streams[2])
    except BaseException:  # noqa: BLE001  (whatever it is, this process must end here)
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(code)


def _watched(words: Sequence[str], plant: Plant | None, most: int | None, acts: int) -> int:
    """Do it with streams as Python makes them at its start, under an audit hook and the scripted engine."""
    from runner.cli.main import main

    def report(text: str) -> None:
        os.write(acts, (text.replace("\n", "\\n")[:300] + "\n").encode("utf-8", "backslashreplace"))

    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    engine.install(report, most)
    if plant is not None:
        plant()
    sys.addaudithook(_hook(report))
    try:
        code = write_back(words[1]) if words[0] == "write" else main(words)
    except SystemExit as end:  # which ends a program with its code
        code = end.code if isinstance(end.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _hook(report: Callable[[str], None]) -> Callable[[str, tuple[Any, ...]], None]:
    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in (*CHANGES, "open") and isinstance(arguments[0], int):
            return  # a descriptor is of a file that was opened, and reported then
        if event in _PROGRAMS or event in CHANGES:
            report(f"{event} {arguments!r}")
        elif event == "open":
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC) and arguments[0] != os.devnull:
                report(f"open {arguments[0]!r}")
        elif event == "import" and str(arguments[0]).partition(".")[0].startswith(_FOREIGN):
            report(f"import {arguments[0]}")

    return hook


class Folder:
    """A working folder whose files are those of a template and of one trial."""

    def __init__(self, template: Files) -> None:
        self._holder = tempfile.TemporaryDirectory(prefix="runner-fuzz-")
        self.path = Path(self._holder.name, "work").resolve()
        self._template = dict(template)
        self.write(self._template)
        self._clean = self.listing()

    def write(self, files: Files) -> None:
        """Write files; ``@WORK@`` in them is this folder."""
        for name, data in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.replace(b"@WORK@", os.fsencode(self.path)))

    def listing(self) -> dict[str, tuple[int, int]]:
        """Every file with its time of change and size, and every folder."""
        entries = {}
        for folder, folders, files in os.walk(self.path):
            for name in (*folders, *files):
                status = os.lstat(path := os.path.join(folder, name))
                entries[os.path.relpath(path, self.path)] = (
                    (status.st_mtime_ns, status.st_size) if name in files else (0, 0)
                )
        return entries

    def clear(self) -> None:
        """Leave the template's files alone, unchanged."""
        entries = self.listing()
        for name in sorted(entries.keys() - self._clean.keys()):
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)  # its folder may be gone already
        if any(entries.get(name) != state for name, state in self._clean.items()):
            shutil.rmtree(self.path)
            self.write(self._template)
            self._clean = self.listing()
