"""Zygotes that outlive a run: when one fits, what its servers are given, its end, and what strangers can do."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from engine_jobs import ENTRY, TORCH, finish, gone, job, one, texts

from runner.contract.peers import Peer
from runner.engine import kept, process_tree
from runner.engine.kept import Keep, digest_of, keepers, stop_all, warm_folder
from runner.engine.local import LocalEngine
from runner.engine.servers import Home

ASKS = """
import os, tempfile
result.update(parent=os.getppid(), folder=os.getcwd(), scratch=tempfile.gettempdir())
result.update(pwd=os.environ["PWD"], threads=os.environ["RUNNER_DEFAULT_THREADS"])
"""


@pytest.fixture(autouse=True)
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with a short path, and a stand-in for torch. What stays warm ends with the test."""
    with tempfile.TemporaryDirectory(prefix="k-", dir="/tmp") as folder:
        base = Path(folder)
        # As torch's warm-up does, its import looks for the temporary folder, which Python remembers.
        torch = "import tempfile\ntempfile.gettempdir()\n" + TORCH
        for name, text in {"torch/__init__.py": torch, "entry.py": ENTRY}.items():
            (base / "fake" / name).parent.mkdir(parents=True, exist_ok=True)
            (base / "fake" / name).write_text(text)
        (base / "code").mkdir(mode=0o700)
        (base / "home").mkdir(mode=0o700)
        for name, value in {
            "PYTHONPATH": base / "fake", "TORCHINDUCTOR_CACHE_DIR": base / "code", "XDG_CACHE_HOME": base / "home",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, str(value))
        try:
            yield base
        finally:
            pids = [*keepers().values()]
            stop_all()
            assert all(map(gone, pids))


@contextlib.contextmanager
def run(digest: str = "one", keep: bool = True, warm: str = "none") -> Iterator[LocalEngine]:
    """An engine as a run with ``--keep-warm`` has it."""
    home = Home()
    home.keep = Keep({sys.executable: digest} if keep else {})
    entry = {"RUNNER_WORKER_ENTRY": "entry:run_job"}
    with LocalEngine({"here": sys.executable}, 1, warm={"here": warm}, environ=entry, home=home) as engine:
        yield engine


def server_of(engine: LocalEngine) -> int:
    """The process of the server that answers."""
    outcome = one(engine, ASKS)
    assert outcome.ended == "result", outcome
    return int(outcome.result["parent"])


def parent_of(pid: int) -> int:
    return process_tree.processes()[pid].parent


def test_one_zygote_serves_run_after_run_and_each_has_its_own_server() -> None:
    servers = []
    for _ in range(3):
        with run() as engine:
            servers.append(server_of(engine))
            (warm,) = keepers().values()
            assert parent_of(servers[-1]) == warm
            assert texts(engine) == ["1 process stays warm for 10 minutes; runner warm --stop ends it"]
        assert gone(servers[-1]) and [*keepers().values()] == [warm], "a run ends its servers, and no more"
    assert len({*servers}) == 3


def test_runs_at_the_same_time_share_it() -> None:
    with run() as first, run() as second:
        servers = server_of(first), server_of(second)
        assert {parent_of(server) for server in servers} == {*keepers().values()} and len(keepers()) == 1
        first.close()
        assert gone(servers[0]) and server_of(second) == servers[1]


def test_without_the_option_nothing_stays(base: Path) -> None:
    with run(keep=False) as engine:
        server_of(engine)
    assert keepers() == {} and texts(engine) == []


def test_a_later_run_has_its_own_variables_and_folders(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for name in ("a", "b"):
        (base / name).mkdir()
        monkeypatch.chdir(base / name)
        monkeypatch.setenv("PWD", str(base / name))
        with run() as engine:
            result = one(engine, ASKS).result
            assert result["folder"] == result["pwd"] == str(base / name) and result["threads"] == "2"
            assert result["scratch"].startswith(str(engine._home.folder))
            seen.append(result["scratch"])
        shutil.rmtree(base / name)
    assert seen[0] != seen[1] and len(keepers()) == 1


# --- what makes another one ---


def ignore_hangups(patch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def limit_files(patch: pytest.MonkeyPatch) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))


def mask_files(patch: pytest.MonkeyPatch) -> None:
    os.umask(0o027)


def take_one_processor(patch: pytest.MonkeyPatch) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def set_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("OLDPWD", "/elsewhere")
    patch.chdir("/")


def in_a_fork(act: Callable[[pytest.MonkeyPatch], None], ask: Callable[[], str]) -> str:
    """What ``ask`` returns in a process in which ``act`` has happened."""
    read_end, write_end = os.pipe()
    if not os.fork():
        try:
            act(pytest.MonkeyPatch())
            os.write(write_end, ask().encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read_end) as answer:
        text = answer.read()
    os.wait()
    return text


@pytest.mark.parametrize("act", [ignore_hangups, limit_files, mask_files, take_one_processor, lambda patch: os.nice(1)])
def test_what_a_process_inherits_is_part_of_the_digest(act: Callable[[pytest.MonkeyPatch], None]) -> None:
    def ask() -> str:
        return digest_of(sys.executable, "one", "none", {**os.environ})

    if act is take_one_processor and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor alone")
    assert in_a_fork(act, ask) != ask() == in_a_fork(set_nothing, ask) != ""


@pytest.mark.parametrize(
    "changes",
    [{"python": "/x"}, {"fingerprint": "two"}, {"warm": "import"}, {"HOME": "/x"}, {"TORCH_LOGS": "dynamo"}, {"LANG": "x"}],
    ids=str,
)  # fmt: skip
def test_what_a_run_asks_for_is_part_of_the_digest(changes: Mapping[str, str]) -> None:
    own = {name: value for name, value in changes.items() if name.islower()}
    variables = {name: value for name, value in changes.items() if not name.islower()}
    usual = {"python": sys.executable, "fingerprint": "one", "warm": "none"}
    before = digest_of(**usual, variables=os.environ)
    assert before != digest_of(**{**usual, **own}, variables={**os.environ, **variables})
    assert before == digest_of(**usual, variables={**os.environ, "TMPDIR": "/y", "RUNNER_SCRATCH": "/y", "SHLVL": "9"})


def test_another_folder_of_compiled_code_is_part_of_the_digest(base: Path) -> None:
    before = digest_of("p", "one", "none", os.environ)
    (base / "code").rename(base / "old")
    (base / "code").mkdir()
    assert digest_of("p", "one", "none", os.environ) != before


def test_a_relative_path_of_python_ties_it_to_the_folder(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = []
    for folder in (base, base / "home"):
        monkeypatch.chdir(folder)
        digests.append([digest_of("p", "one", "none", {**os.environ, "PYTHONPATH": path}) for path in ("/x", "/x:y")])
    assert digests[0][0] == digests[1][0] and digests[0][1] != digests[1][1]


def test_another_fingerprint_has_another_zygote() -> None:
    for digest in ("one", "two", "one"):
        with run(digest) as engine:
            server_of(engine)
    assert len(keepers()) == 2


def test_no_more_than_a_few_are_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST", 1)
    for digest, count in (("one", 1), ("two", 1)):
        with run(digest) as engine:
            server_of(engine)
            notices = texts(engine)
        assert len(keepers()) == count
    assert notices == ["--keep-warm: 1 processes are warm already; runner warm --stop ends them"]


@pytest.mark.parametrize("edit", [Path.unlink, lambda path: path.write_text("another one"), lambda path: path.touch()])
def test_compiled_code_that_has_changed_is_never_remembered(edit: Callable[[Path], object], base: Path) -> None:
    (base / "code" / "kernel.so").write_text("one")
    (base / "code" / "fxgraph").mkdir()
    (base / "code" / "fxgraph" / "graph").write_text("one")
    with run() as engine:
        server_of(engine)
    (warm,) = keepers().values()
    (base / "code" / "fxgraph" / "graph").unlink()
    with run() as engine:
        assert parent_of(server_of(engine)) == warm, "graphs come and go"
    edit(base / "code" / "kernel.so")
    with run() as engine:
        assert parent_of(server_of(engine)) != warm
        assert keepers() == {}, "no other run gets it"
        assert not any("no warm-up was possible" in text for text in texts(engine))
    assert gone(warm)


def test_where_the_warm_up_fails_the_run_goes_on_as_usual() -> None:
    with run(warm="aot") as engine:  # the stand-in has no compiler
        server_of(engine)
        assert any("no warm-up was possible" in text for text in texts(engine))
        assert not any("warm for" in text for text in texts(engine)) and keepers() == {}


# --- ends ---


def test_it_ends_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "REST", 0.3)
    with run() as engine:
        server_of(engine)
        (warm,) = keepers().values()
        time.sleep(0.6)
        assert server_of(engine), "a run is no rest"
    assert gone(warm) and keepers() == {} and os.listdir(warm_folder()) == []


def test_stop_ends_all_and_a_run_that_uses_it_starts_another_server() -> None:
    with run() as engine:
        server = server_of(engine)
        (warm,) = keepers().values()
        assert stop_all() == [warm] and gone(warm) and gone(server)
        assert server_of(engine) != server and keepers() == {}
    assert stop_all() == []


@pytest.mark.parametrize("victim", ["zygote", "server"])
def test_a_kill_under_a_job_costs_no_answer(victim: str) -> None:
    with run() as engine:
        server = server_of(engine)
        (warm,) = keepers().values()
        engine.submit(job("import time; time.sleep(1); result['done'] = True"))
        while not engine.running():
            engine.wait(0.02)
        os.kill(warm if victim == "zygote" else server, signal.SIGKILL)
        (outcome,) = engine.wait(30)
        assert outcome.ended == "result" and outcome.result["done"]
    with run() as engine:
        assert server_of(engine) and len(keepers()) == 1


def test_what_a_job_leaves_behind_ends_with_its_server() -> None:
    leaves = """
    import os, time
    read_end, write_end = os.pipe()
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.write(write_end, str(os.getpid()).encode())
            time.sleep(60)
        os._exit(0)
    os.wait()
    result["pid"] = int(os.read(read_end, 20))
    os.kill(os.getppid(), 9)
    time.sleep(60)
    """
    with run() as engine:
        server_of(engine)
        (warm,) = keepers().values()
        assert one(engine, leaves, timeout=5.0).ended != "result"
        left = [p.pid for p in process_tree.processes().values() if p.parent == warm and not p.zombie]
        assert all(map(gone, left)) and keepers()


def test_a_run_that_is_killed_takes_its_servers_along() -> None:
    read_end, write_end = os.pipe()
    if not os.fork():
        with run() as engine:
            os.write(write_end, str(server_of(engine)).encode())
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(write_end)
    with open(read_end) as answer:
        server = int(answer.read())
    os.wait()
    assert gone(server, 10)
    (warm,) = keepers().values()
    with run() as engine:
        assert parent_of(server_of(engine)) == warm


# --- strangers ---


def test_a_folder_that_others_can_write_to_is_not_used(base: Path) -> None:
    warm_folder().parent.chmod(0o777)
    with run() as engine:
        server_of(engine)
        (notice,) = texts(engine)
    assert notice.startswith("--keep-warm: others may write to ") and os.listdir(warm_folder_of(base)) == []
    warm_folder_of(base).parent.chmod(0o700)


def warm_folder_of(base: Path) -> Path:
    return base / "home" / "torch-spec-runner" / "warm"


def test_the_folder_and_the_socket_are_of_this_user_alone(base: Path) -> None:
    with run() as engine:
        server_of(engine)
    (path,) = keepers()
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and Path(path).parent == warm_folder_of(base)


def put_file(path: Path) -> None:
    path.write_text("no socket")


def put_link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")


def put_deaf_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.mark.parametrize("put", [put_file, put_link, put_deaf_socket])
def test_what_lies_in_place_of_the_socket_is_replaced(put: Callable[[Path], None], base: Path) -> None:
    with run() as engine:
        server_of(engine)
    (path,) = keepers()
    stop_all()
    put(Path(path))
    for _ in range(2):
        with run() as engine:
            server_of(engine)
            assert len(keepers()) == 1


def test_a_process_of_another_user_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with run() as engine:
        server_of(engine)
    (path,) = keepers()
    with contextlib.ExitStack() as stack:
        connection = kept.connect(path)
        assert connection is not None
        stack.enter_context(connection)
        with monkeypatch.context() as patch:
            patch.setattr(kept, "peer_of", lambda connection: Peer(1, os.getuid() + 1))
            assert kept.connect(path) is None


@pytest.mark.parametrize(
    "text",
    [b"\n", b"{}\n", b"[]\n", b"nonsense\n", b'{"ticket": "x"}\n', b'{"ticket": 1}\n', b"\xff\n", b'{"ticket": 1, "log": 7}\n',
     b"x" * (5 << 20)],
    ids=["nothing", "empty", "list", "text", "ticket", "no order", "bytes", "log", "long"],
)  # fmt: skip
def test_nonsense_costs_its_sender_the_connection_and_nobody_else(text: bytes) -> None:
    with run() as engine:
        server = server_of(engine)
        (path,) = keepers()
        connection = kept.connect(path)
        assert connection is not None
        with connection, contextlib.suppress(OSError):
            connection.sendall(text)
            connection.settimeout(0.5)
            while connection.recv(1 << 16):
                pass
        assert server_of(engine) == server and len(keepers()) == 1


def test_many_silent_connections_keep_nobody_out_for_ever() -> None:
    with run() as engine:
        server_of(engine)
    (path,) = keepers()
    silent = [kept.connect(path) for _ in range(40)]
    with run("one") as engine:
        assert server_of(engine), "a run that is not let in starts its own"
    for connection in filter(None, silent):
        connection.close()
    (warm,) = keepers().values()
    with run() as engine:
        assert parent_of(server_of(engine)) == warm


def test_a_job_has_the_descriptors_that_it_has_in_any_run() -> None:
    asks = """
    import os, stat
    descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    kinds = [os.readlink(f"/proc/self/fd/{d}").partition(":")[0] for d in descriptors if os.path.lexists(f"/proc/self/fd/{d}")]
    result["sockets"] = kinds.count("socket")
    """
    counts = []
    for keep in (False, True, True):
        with run(keep=keep) as engine:
            counts.append(one(engine, asks).result["sockets"])
    assert counts == [counts[0]] * 3


def test_jobs_run_as_in_a_run_of_their_own() -> None:
    jobs = [job("result['n'] = 1 + 1", str(n), isolation=i) for n, i in enumerate(("fork", "fresh", "living"))]
    for _ in range(2):
        with run() as engine:
            assert [outcome.result for outcome in finish(engine, *jobs).values()] == [{"n": 2}] * 3


def test_the_socket_of_a_killed_zygote_goes() -> None:
    with run() as engine:
        server_of(engine)
    ((path, warm),) = keepers().items()
    os.kill(warm, signal.SIGKILL)
    assert gone(warm) and os.path.exists(path)
    assert keepers() == {} and not os.path.exists(path)
