"""Sets every allowed value of every flag during one small compilation, and says what that did besides compiling.

A child of one process that has compiled before tries one value. It starts in an empty folder, with HOME and TMPDIR there too; PATH leads to a
folder of stand-ins that log their names, of which only the C++ compiler's run the real program. An audit hook sees what
Python starts, opens for writing and connects; a look at the folders afterwards sees what C++ wrote. Anything that the same
compilation does without the flag is no finding. The device is the CPU, or CUDA where torch has one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
COMPILER = ("g++", "c++", "gcc", "cc", "cc1plus", "as", "ld", "collect2", "ptxas", "ld.gold", "ld.bfd", "lto-wrapper",
            "openssl")  # fmt: skip
"""Programs that every compilation starts; ``openssl`` gives the hash of a precompiled header's text."""
INTEGERS, FLOATS = (-1, 0, 1, 2**31), (-1.0, 0.0, 0.5, 1e9)
HEADERS = "tmp/torchinductor_"
"""Where torch puts precompiled headers, whatever the cache folder is."""
LIMIT = 240
"""Seconds that one compilation may take."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
STARTS = (
    "subprocess.Popen",
    "os.exec",
    "os.posix_spawn",
    "os.system",
    "os.fork",
    "os.forkpty",
    "os.spawn",
    "os.startfile",
    "pty.spawn",
)
CHANGES = (
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.truncate",
    "shutil.rmtree",
    "shutil.move",
)

_LOGGING = """#!/bin/sh
echo "$0" >> "{log}"
{then}
"""


def values_of(flag: Any) -> list[Any]:
    """Every word, both switches, numbers at the edges."""
    values: list[Any] = [*flag.words]
    values += [True, False] * ("bool" in flag.kinds) + [*INTEGERS] * ("int" in flag.kinds)
    return values + [*FLOATS] * ("float" in flag.kinds) + [None] * ("null" in flag.kinds)


def try_all(word: str, also: list[str], report: Path | None) -> int:
    """Try the allowed flags whose name has ``word`` in it, and those of ``also`` (``NAME=JSON``) whatever they are.

    Returns the exit code: 1 if one of them does more than compile.
    """
    with tempfile.TemporaryDirectory(prefix="flags-") as text:
        root = Path(text)
        for name in ("home", "tmp", "work", "cache", "bin"):
            (root / name).mkdir()
        stand_in(root / "bin", root / "programs.log")
        environment = {
            "PATH": str(root / "bin"), "HOME": str(root / "home"), "TMPDIR": str(root / "tmp"), "LANG": "C.UTF-8",
            "TORCHINDUCTOR_CACHE_DIR": str(root / "cache"), "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0", "TRITON_CACHE_DIR": str(root / "cache/triton"),
            "OMP_NUM_THREADS": "1", "TMPDIR_FLAGS": text,
        }  # fmt: skip
        results = []
        command = [sys.executable, "-B", str(HERE), word, *also]
        with subprocess.Popen(command, env=environment, cwd=root / "work", stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for line in process.stdout:
                result = json.loads(line)
                results.append(result)
                if result["events"]:
                    print(
                        f"{result['flag']} = {result['value']!r}: {result['end']}; {'; '.join(result['events'])}",
                        flush=True,
                    )
                if report:
                    report.write_text(json.dumps(results, indent=0))
        if process.returncode:
            return 2
    findings = sum(bool(result["events"]) for result in results)
    flags = len({result["flag"] for result in results})
    ends = {
        end: sum(result["end"] == end for result in results) for end in sorted({result["end"] for result in results})
    }
    print(f"{flags} flags, {len(results)} values, {findings} that do more than compile; {ends}")
    return bool(findings)


def stand_in(folder: Path, log: Path) -> None:
    """A program for every name on PATH, which logs that it was started; those of the compiler do their work too."""
    names: dict[str, str] = {}
    for place in os.environ["PATH"].split(os.pathsep):
        with contextlib.suppress(OSError):
            for entry in os.scandir(place):
                names.setdefault(entry.name, entry.path)
    for name in (
        "gprof2dot",
        "dot",
        "nvcc",
        "clang",
        "clang++",
        "hipcc",
        "icpx",
        "ptxas",
        "cuobjdump",
        "z3",
        "cbc",
        "perf",
    ):
        names.setdefault(name, "")
    for name, real in names.items():
        then = f'exec "{real}" "$@"' if name in COMPILER and real else "exit 1"
        (folder / name).write_text(_LOGGING.format(log=log, then=then))
        (folder / name).chmod(0o755)


def compile_something(device: str) -> None:
    """Forward and backward of a few kinds of kernels."""
    import torch

    def model(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(x @ weight)
        joined = torch.cat([hidden, hidden.sin().log1p().abs()], 1)
        rows = torch.nn.functional.dropout(joined.softmax(-1), 0.1)
        picked = rows[:, torch.arange(rows.shape[1] - 1, -1, -1, device=x.device)]
        return (picked.sum(0) / picked.amax()).to(torch.float32)

    x = torch.randn(8, 16, device=device, requires_grad=True)
    weight = torch.randn(16, 16, device=device, requires_grad=True)
    torch.compile(model)(x, weight).sum().backward()


class Watch:
    """What this process does outside the cache folder, from now on."""

    def __init__(self, cache: str) -> None:
        self.events: list[str] = []
        self._cache, self._root = cache, os.path.dirname(cache)
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in STARTS:
            words = [str(word) for word in arguments[1]] if len(arguments) > 1 and arguments[1] else []
            program = os.path.basename(words[0] if words else str(arguments[:1]))
            if program not in COMPILER:
                self.events.append(self._plain(f"{event} {program} {' '.join(words[1:])[:100]}"))
        elif event.startswith("socket."):
            self.events.append(event)
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
            self._path("open", arguments[0])
        elif event in CHANGES:
            self._path(event, arguments[0])

    def _path(self, event: str, path: Any) -> None:
        if isinstance(path, int):
            return
        full = os.path.realpath(os.fsdecode(path))
        if not full.startswith((self._cache, f"{self._root}/{HEADERS}", "/dev/null")):
            self.events.append(self._plain(f"{event} {full}"))

    def _plain(self, text: str) -> str:
        return re.sub(r"tmp[a-z0-9_]{8}", "tmp*", text.replace(self._root, ""))


def attempt(flag: str, value: Any, device: str) -> dict[str, Any]:
    """In this process: set, compile, say what was seen."""
    from runner.worker.program.load import configured

    watch = Watch(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    end = "compiled"
    try:
        with configured([(flag, value)] if flag else []):
            compile_something(device)
    except BaseException as error:  # noqa: BLE001 - some values make the compiler fail, which is no finding
        end = type(error).__name__
    return {"flag": flag, "value": value, "end": end, "events": sorted(set(watch.events))}


def in_child(flag: str, value: Any, device: str) -> dict[str, Any]:
    """``attempt`` in a process of its own, with a limit of time and of memory."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.setpgid(0, 0)
            if device == "cpu":
                resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            result = attempt(flag, value, device)
            os.write(writer, json.dumps(result).encode()[:60000])
        finally:
            os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], LIMIT)
    text = os.read(reader, 65536) if ready else b""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(reader)
    if text:
        return json.loads(text)  # type: ignore[no-any-return]
    end = "ran too long" if not ready else f"died of signal {os.WTERMSIG(status)}"
    return {"flag": flag, "value": value, "end": end, "events": []}


def _set(flag: str) -> Any:
    """What a flag is set to already: to set that once more is what the first compilation does."""
    import torch

    holder = torch
    for part in flag.split(".")[1:]:
        holder = getattr(holder, part)
    return holder


def left_behind(root: Path) -> list[str]:
    """Programs that the stand-ins logged and files outside the cache; both are taken away again."""
    events = []
    log = root / "programs.log"
    if log.exists():
        names = {os.path.basename(line) for line in log.read_text().splitlines()}
        events += [f"program {name}" for name in sorted(names - {*COMPILER})]
        log.unlink()
    for folder in ("home", "tmp", "work"):
        for entry in sorted((root / folder).iterdir()):
            if f"{folder}/{entry.name}".startswith(HEADERS):
                continue
            if not re.fullmatch(r"cc\w{6}\.\w+", entry.name):  # of a g++ that was ended with its child
                events.append(f"file {folder}/{entry.name}")
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return events


def main() -> None:
    """The warm process: one line of JSON a value."""
    sys.path.insert(0, str(HERE.parent.parent))
    import torch
    import torch._dynamo
    import torch._inductor.compile_fx
    import torch._inductor.scheduler

    from runner.cases.torch_names import SWITCHES, flag_table

    versions = ".".join(str(torch.__version__).split(".")[:2])
    device = "cuda" if torch.cuda.device_count() else "cpu"
    root = Path(os.environ["TMPDIR_FLAGS"])
    torch.set_num_threads(1)
    result = in_child("", None, device)  # with nothing made yet, neither headers nor tests of the processor
    if result["end"] != "compiled":
        sys.exit(f"nothing can be compiled here: {result['end']}")
    usual = {*result["events"], *left_behind(root)}
    print(f"without a flag, on {device}: {sorted(usual)}", file=sys.stderr)
    compile_something(device)  # so that children need not import and probe what this has
    torch._dynamo.reset()
    left_behind(root)
    word, also = sys.argv[1], [text.partition("=") for text in sys.argv[2:]]
    here = {
        n: flag for n, flag in flag_table().items() if not flag.refused and (versions in flag.torch or n in SWITCHES)
    }
    tries = [
        (name, value)
        for name, flag in here.items()
        if word in name
        for value in values_of(flag)
        if value is not _set(name)
    ]
    for name, value in [*tries, *((name, json.loads(text)) for name, _, text in also)]:
        begun = time.monotonic()
        result = in_child(name, value, device)
        result["events"] = sorted({*result["events"], *left_behind(root)} - usual)
        result["seconds"] = round(time.monotonic() - begun, 2)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
