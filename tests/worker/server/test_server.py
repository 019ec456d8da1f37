"""The worker's side alone, spoken to over its socket, and once with the torch of this interpreter."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.contract.job import Job
from runner.engine import process_tree
from runner.engine.interpreters import probe
from runner.engine.local import LocalEngine
from runner.worker.server import child, server

MAIN = Path(server.__file__).parents[1] / "__main__.py"
TORCH = """
import types
__version__ = "9.9.9+fake"
version = types.SimpleNamespace(git_version="abc")
cuda = types.SimpleNamespace(is_available=lambda: True, device_count=lambda: 3)
def get_num_threads(): return 2
def set_num_threads(count): pass
"""
ENTRY = """
import os, resource, sys
def run_job(job, send):
    import gc, runner
    return {
        "collects": gc.isenabled(), "frozen": gc.get_freeze_count(),
        "path": sys.path, "modules": sorted(m for m in sys.modules if m.partition(".")[0] == "runner"),
        "runner": getattr(runner, "__file__", None), "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "session": os.getsid(0) == os.getpid(), "stdin": sys.stdin.read(),
    }
"""


class Control:
    """A control of a few lines: one listener, lines read one by one."""

    def __init__(
        self, folder: Path, *, torch: str = TORCH, cwd: Path | None = None, warm: tuple[str, ...] = ("--warm", "none")
    ) -> None:
        (folder / "torch").mkdir()
        (folder / "torch" / "__init__.py").write_text(torch)
        (folder / "entry.py").write_text(ENTRY)
        self.address = str(folder / "s")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.address)
        self.listener.listen()
        self.listener.settimeout(20)
        command = [sys.executable, str(MAIN), "--socket", self.address, "--token", "T", *warm]
        environment = {**os.environ, "PYTHONPATH": f"{folder}:", "RUNNER_WORKER_ENTRY": "entry:run_job"}
        self.process = subprocess.Popen(
            command, env=environment, cwd=cwd, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self.server, self.hello = self.accept()

    def accept(self) -> tuple[socket.socket, dict[str, Any]]:
        connection, _ = self.listener.accept()
        connection.settimeout(20)
        return connection, read(connection)

    def close(self) -> None:
        self.server.close()
        self.listener.close()
        try:
            self.process.wait(10)
        finally:
            self.process.kill()
            self.process.wait()


def read(connection: socket.socket) -> dict[str, Any]:
    line = b""
    while not line.endswith(b"\n"):
        data = connection.recv(1)
        assert data, f"closed after {line!r}"
        line += data
    message = json.loads(line)
    assert isinstance(message, dict)
    return message


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    instance = Control(tmp_path)
    yield instance
    instance.close()


def test_hello_says_what_there_is(control: Control) -> None:
    hello = control.hello["hello"]
    assert control.hello["token"] == "T" and hello["pid"] == control.process.pid
    assert hello["torch"] == "9.9.9+fake" and hello["git"] == "abc" and hello["executable"] == sys.executable
    assert hello["devices"] == {"cpu": True, "cuda": True} and hello["gpus"] == 3 and hello["warm_error"] == ""


def test_a_job_is_alone_and_finds_only_the_worker(control: Control, tmp_path: Path) -> None:
    message = {
        "ticket": 7,
        "job": {"key": "k"},
        "log": str(tmp_path / "log"),
        "stack": str(tmp_path / "stack"),
        "limit": None,
    }
    control.server.sendall(json.dumps(message).encode() + b"\n")
    forked = read(control.server)
    child, first = control.accept()
    assert first == {"job": "k", "ticket": 7, "pid": forked["forked"], "token": "T"}
    record = read(child)["outcome"]
    assert read(control.server) == {"exit": forked["forked"], "status": 0, "ticket": 7}
    assert record["core"] == 0 and record["session"] and record["stdin"] == ""
    assert record["collects"] and record["frozen"] > 1000
    assert str(MAIN.parent) not in record["path"] and "" not in record["path"]
    assert (
        record["runner"] is None and "runner.worker.server.server" in record["modules"]
    )  # the stub, not an installed package
    assert not any(name.startswith("runner.engine") for name in record["modules"])


def test_the_server_goes_with_control(control: Control) -> None:
    control.server.close()
    assert control.process.wait(10) == 0


@pytest.mark.parametrize("torch", ["raise ImportError('no libc10.so')", "import sys; sys.exit(3)", "1 / 0"])
def test_a_torch_that_cannot_be_imported(tmp_path: Path, torch: str) -> None:
    instance = Control(tmp_path, torch=torch)
    instance.close()
    assert "torch cannot be imported" in instance.hello["hello"]["error"] and instance.process.returncode == 1


def order(ticket: int, folder: Path, **environ: str) -> bytes:
    """What a zygote reads."""
    environment = {**os.environ, "RUNNER_WORKER_ENTRY": "entry:run_job", **environ}
    return (
        json.dumps(
            {
                "ticket": ticket,
                "environ": environment,
                "warm": "none",
                "token": f"S{ticket}",
                "log": str(folder / "log"),
            }
        ).encode()
        + b"\n"
    )


def test_a_zygote_imports_torch_once_for_its_servers(tmp_path: Path) -> None:
    count = tmp_path / "imports"
    control = Control(tmp_path, torch=f"open({str(count)!r}, 'a').write('.')\n{TORCH}", warm=())
    assert control.hello == {"zygote": control.process.pid, "token": "T"}
    hellos = []
    for ticket, backend in ((1, "a"), (2, "b")):
        control.server.sendall(order(ticket, tmp_path, OF_SERVER=backend))
        forked = read(control.server)
        server, hello = control.accept()
        assert forked == {"forked": hello["hello"]["pid"], "ticket": ticket} and hello["token"] == f"S{ticket}"
        hellos.append(hello["hello"])
        server.close()
        assert read(control.server) == {"exit": forked["forked"], "status": 0, "ticket": ticket}
    assert count.read_text() == "." and hellos[0]["torch"] == hellos[1]["torch"] == "9.9.9+fake"
    control.close()
    assert control.process.returncode == 0


def test_the_servers_of_a_zygote_go_with_it(tmp_path: Path) -> None:
    control = Control(tmp_path, warm=())
    control.server.sendall(order(1, tmp_path))
    pid = read(control.server)["forked"]
    server, _ = control.accept()
    control.process.kill()
    assert server.recv(1) == b"" and gone(pid)
    control.close()


@pytest.mark.parametrize("torch", ["raise ImportError('no libc10.so')", "import sys; sys.exit(3)", "1 / 0"])
def test_a_server_says_why_its_zygote_has_no_torch(tmp_path: Path, torch: str) -> None:
    control = Control(tmp_path, torch=torch, warm=())
    control.server.sendall(order(1, tmp_path))
    forked = read(control.server)
    _, hello = control.accept()
    assert "torch cannot be imported" in hello["hello"]["error"]
    assert read(control.server) == {"exit": forked["forked"], "status": 1 << 8, "ticket": 1}
    control.close()


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process ends within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        process = process_tree.stat(pid)
        if process is None or process.zombie:
            return True
        time.sleep(0.02)
    return False


def test_a_quiet_stream_never_fails() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    stream = child._Quiet(full)
    assert stream.write(b"abc") == 3 and stream.fileno() == full
    os.close(full)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("precious", path)], ids=["pipe", "link"])
def test_a_log_that_another_case_has_replaced_takes_nothing(make: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    make(tmp_path / "log")
    script = "import sys; from runner.worker.server import child; child.redirect(sys.argv[1]); "
    script += "child._report_crashes(sys.argv[1]); print('x', flush=True)"
    root = Path(child.__file__).parents[3]
    process = subprocess.run([sys.executable, "-c", script, tmp_path / "log"], cwd=root, timeout=60)
    assert process.returncode == 0 and (tmp_path / "precious").read_text() == ""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_forked_jobs_compute_with_two_threads(tmp_path: Path) -> None:
    (tmp_path / "entry.py").write_text(
        "import torch\n"
        "def run_job(job, send):\n"
        "    torch.set_num_threads(job['threads'])\n"
        "    x = torch.ones(300, 300)\n"
        "    return {'sum': (x @ x).sum().item(), 'threads': torch.get_num_threads()}\n"
    )
    environ = {"PYTHONPATH": str(tmp_path), "RUNNER_WORKER_ENTRY": "entry:run_job"}
    with LocalEngine({"here": sys.executable}, 2, warm={"here": "none"}, environ=environ) as engine:
        for key in "abc":
            engine.submit(Job(key, key, "here", key, "", {}, timeout=30, task="snippet"))
        outcomes = []
        while engine.pending():
            outcomes += engine.wait(1.0)
        assert [outcome.result for outcome in outcomes] == [{"sum": 300.0**3, "threads": 2}] * 3
        assert engine.hello("here")["torch"].startswith(probe(sys.executable)["torch"])
