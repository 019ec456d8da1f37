"""One command in a process of its own, with bounds, for ``bench/fuzz.py``: the installed one, or a fork of this process.

A fork calls ``runner.cli.main.main`` and takes 10 ms instead of 200. It also says what the process did by Python's audit events:
programs started, files opened for writing, connections, foreign modules imported.
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
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import fuzz_engine
from fuzz_payloads import MARK
from fuzz_yaml import ROOT

SECONDS = 5.0
"""What one command may take of a processor."""

MEMORY = 1 << 30
"""Bytes that one command may hold."""

_WALL = 90.0  # seconds; a machine with much else to do is no finding
_ROOM = MEMORY + (512 << 20)  # address space: libraries and stacks take some that is never used
_KEPT = 8 << 20  # bytes of each stream
_PROGRAMS = {
    "os.system",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "pty.spawn",
    "os.startfile",
}
CHANGES = frozenset({
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.chown", "os.truncate", "shutil.rmtree",
})  # fmt: skip
"""Audit events of changes to files."""
_FOREIGN = ("antigravity", "this", "webbrowser", "torch", "ctypes", MARK)


@dataclass(frozen=True)
class Outcome:
    """What became of a command. ``code`` is None for one that a signal ended; ``acts`` are its audit events, where they were watched."""

    argv: tuple[str, ...]
    code: int | None
    signal: int | None
    out: bytes
    err: bytes
    seconds: float  # of a processor
    wall: float
    memory: int
    hung: bool = False
    acts: tuple[str, ...] = ()


def run(action: Callable[[int], int], cwd: Path, argv: Sequence[str], base: int = 0, wall: float = _WALL) -> Outcome:
    """Run ``action`` in a forked process, in ``cwd``; it gets a file descriptor for its acts and returns an exit code, or execs.

    ``base`` is what the process holds before it begins, in bytes; after ``wall`` seconds it is ended.
    """
    streams = [os.memfd_create(name) for name in ("out", "err", "acts")]
    began = time.perf_counter()
    child = os.fork()
    if child == 0:
        _be_child(action, cwd, streams)
    descriptor = os.pidfd_open(child)
    ready, _, _ = select.select([descriptor], [], [], wall)
    with contextlib.suppress(ProcessLookupError):  # with all that it has left behind
        os.killpg(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    os.close(descriptor)
    seconds = time.perf_counter() - began
    out, err, acts = map(_content, streams)
    return Outcome(
        tuple(argv),
        os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        out,
        err,
        usage.ru_utime + usage.ru_stime,
        seconds,
        max(0, usage.ru_maxrss * 1024 - base),
        not ready,
        tuple(acts.decode("utf-8", "replace").splitlines()),
    )


def resident() -> int:
    """Bytes that a fork of this process begins with and has not asked for."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _content(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, _KEPT, 0) + (b"\n[cut]" if size > _KEPT else b"")
    os.close(descriptor)
    return data


def _be_child(action: Callable[[int], int], cwd: Path, streams: Sequence[int]) -> NoReturn:
    code = 70
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(streams[0], 1)
        os.dup2(streams[1], 2)
        os.chdir(cwd)
        address_space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        for kind, bound in (
            (resource.RLIMIT_AS, address_space + _ROOM),
            (resource.RLIMIT_CPU, int(2 * SECONDS) + 1),  # SIGXCPU, and a second later SIGKILL
            (resource.RLIMIT_FSIZE, 256 << 20),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(kind, (bound, bound + (kind == resource.RLIMIT_CPU)))
        code = action(streams[2])
    except BaseException:  # noqa: BLE001  (whatever it is, this process must end here)
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(code)


def command(words: Sequence[str], cwd: Path) -> Outcome:
    """Run the installed command with everything that a person's shell gives it, but for variables that change its output."""

    def execute(_: int) -> int:
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("RUNNER_", "PYTHON", "NO_COLOR", "FORCE_COLOR"))
        }
        os.execvpe(words[0], [*words], kept)

    return run(execute, cwd, words)


def preload() -> None:
    """Import all that the commands use, so that forks need not."""
    from runner.cli import merge, report, rerun, resume  # noqa: F401  main imports the others below
    from runner.cli.main import main

    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        file = os.path.join(folder, "a.spec.yaml")
        shutil.copy(ROOT / "bench" / "fuzz_seed.spec.yaml", file)
        for words in ("validate", "list", "show", "repro", "ledger"):
            handler = signal.getsignal(signal.SIGTERM)
            main([words, file])
            signal.signal(signal.SIGTERM, handler)
    gc.collect()
    gc.freeze()


def forked(
    words: Sequence[str], cwd: Path, plant: Callable[[], None] | None = None, most: int | None = None
) -> Outcome:
    """Call ``runner.cli.main.main`` in a fork. ``plant`` is called before; ``most`` is for ``fuzz_engine``."""

    def call(acts: int) -> int:
        from runner.cli.main import main

        return watched(lambda: main(words), acts, plant, most)

    return run(call, cwd, ("runner", *words), resident())


def watched(action: Callable[[], int], acts: int, plant: Callable[[], None] | None, most: int | None) -> int:
    """Do it with streams as Python makes them at its start, under an audit hook and the scripted engine."""

    def report(text: str) -> None:
        os.write(acts, (text.replace("\n", "\\n")[:300] + "\n").encode("utf-8", "backslashreplace"))

    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    fuzz_engine.install(report, most)
    if plant is not None:
        plant()
    sys.addaudithook(_hook(report))
    try:
        code = action()
    except SystemExit as end:  # which ends a program with its code
        code = end.code if isinstance(end.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _hook(report: Callable[[str], None]) -> Callable[[str, tuple[Any, ...]], None]:
    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES and isinstance(arguments[0], int):
            return  # a descriptor is of a file that was opened, and reported then
        if event in _PROGRAMS | CHANGES | {"os.kill"} or event.startswith(
            ("socket.connect", "socket.bind", "webbrowser.")
        ):
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

    def __init__(self, template: Mapping[str, bytes]) -> None:
        self._holder = tempfile.TemporaryDirectory(prefix="runner-fuzz-")
        self.path = Path(self._holder.name, "work").resolve()
        self._template = dict(template)
        self._fill()

    def _fill(self) -> None:
        self.path.mkdir()
        self.write(self._template)
        self._clean = self.listing()

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write files; ``@WORK@`` in them is this folder."""
        for name, data in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.replace(b"@WORK@", os.fsencode(self.path)))

    def listing(self) -> dict[str, tuple[int, int]]:
        """Every file and folder with its time of change and size."""
        entries = {}
        for folder, folders, files in os.walk(self.path):
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                status = os.lstat(path)
                entries[os.path.relpath(path, self.path)] = (
                    status.st_mtime_ns if name in files else 0,
                    status.st_size if name in files else 0,
                )
        return entries

    def clear(self) -> None:
        """Only the template's files are left, unchanged."""
        entries = self.listing()
        for name in sorted(entries.keys() - self._clean.keys()):
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)  # its folder may be gone already
        if any(entries.get(name) != state for name, state in self._clean.items()):
            shutil.rmtree(self.path)
            self._fill()
