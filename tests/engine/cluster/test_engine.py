"""The Ray engine: on a Ray of its own, on a cluster of two nodes, and what happens when parts of either die."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_jobs import ENTRY, TORCH, finish, job, texts
from ray_cluster import RayCluster

from runner.engine.cluster import engine as cluster_engine
from runner.engine.cluster.engine import STEP, SUSPECT_STEP, RayEngine, Report
from runner.engine.interpreters import probe
from runner.engine.local import LocalEngine
from runner.engine.messages import Outcome
from runner.exit_codes import UsageError

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
# Not importorskip: Ray takes over signals of whoever imports it.

MARK = f"runner-test-{os.getpid()}-{time.monotonic_ns()}"
"""In the environment of every process that these tests start."""
Row = tuple[str, str, int, int]
"""A node as the driver reports it: id, host, free CPUs and GPUs."""
KILL_HOST = """
import os, signal
host = os.getppid()
for _ in ("the server's zygote", "its host"):
    host = int(open(f"/proc/{host}/stat").read().rpartition(")")[2].split()[1])
os.kill(host, signal.SIGKILL)
"""


def pause(path: Path) -> str:
    """Lines of a job that wait for ``path``."""
    return f"import os, time\nsend({{'phase': 'backend'}})\nwhile not os.path.exists({str(path)!r}): time.sleep(0.01)\n"


def count(path: Path) -> str:
    """A line of a job that leaves a line in ``path`` each time that it runs."""
    return f"open({str(path)!r}, 'a').write('ran\\n')\n"


def until(condition: Callable[[], bool], engine: RayEngine | None = None, limit: float = 60.0) -> bool:
    """Whether it comes true in time. Outcomes that arrive meanwhile stay with the engine."""
    end = time.monotonic() + limit
    while not condition() and time.monotonic() < end:
        if engine is not None:
            assert engine.wait(0.02) == []
        else:
            time.sleep(0.05)
    return condition()


def left(mark: str = MARK) -> list[str]:
    """Processes, zombies left out, whose environment holds the mark."""
    commands = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes():
                    commands.append((entry / "cmdline").read_text().replace("\0", " ")[:80])
    return commands


@pytest.fixture(scope="module")
def fake() -> Iterator[dict[str, str]]:
    """As in conftest.py, but for all tests here: a Ray takes seconds to start."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "torch").mkdir()
        (Path(folder) / "torch" / "__init__.py").write_text(TORCH)
        (Path(folder) / "entry.py").write_text(ENTRY)
        os.environ["RUNNER_TEST_MARK"] = MARK
        yield {"PYTHONPATH": folder, "RUNNER_WORKER_ENTRY": "entry:run_job", "TORCHINDUCTOR_CACHE_DIR": folder}
        del os.environ["RUNNER_TEST_MARK"]
        assert left() == []  # every engine is closed by now


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def engine(fake: dict[str, str], logs: Path) -> Iterator[RayEngine]:
    with RayEngine({"here": sys.executable}, 2, warm={"here": "none"}, environ=fake, log_folder=logs) as instance:
        yield instance


class ScriptedDriver:
    """The connection to a driver that is not there. It answers ``start`` itself; other answers are put in by tests."""

    def __init__(self, nodes: Sequence[Row], starts: Mapping[str, str | None]) -> None:
        self.commands: list[tuple[Any, ...]] = []
        self.nodes = nodes
        self.messages: list[tuple[Any, ...]] = [("nodes", nodes)]
        self.starts = dict(starts)
        """What a node says when its actor starts: nothing, why it cannot be used, or None: its CPUs are not free."""

    def send(self, message: tuple[Any, ...]) -> None:
        self.commands.append(message)
        if message[0] == "start" and (reason := self.starts.get(message[2], "")) is not None:
            self.messages.append(("answer", message[1], reason, "", False))

    def poll(self, timeout: float) -> bool:
        return bool(self.messages)

    def recv(self) -> tuple[Any, ...]:
        return self.messages.pop(0)

    def close(self) -> None:
        pass

    def newest(self, node: str) -> tuple[Any, ...]:
        """The last command that the node's actor got."""
        return next(command for command in reversed(self.commands) if command[2:3] == (node,))

    def answer(self, node: str, answer: object) -> None:
        self.messages.append(("answer", self.newest(node)[1], answer, "", False))

    def lose(self, node: str, how: str) -> None:
        self.messages += [("answer", self.newest(node)[1], None, how, True), ("nodes", self.nodes)]


class ScriptedEngine(RayEngine):
    def __init__(self, *nodes: Row, starts: Mapping[str, str | None] | None = None, **options: Any) -> None:
        self.driver = ScriptedDriver(nodes, starts or {})
        super().__init__({"here": sys.executable}, address="auto", **options)

    def _start(self, package: str, own: bool) -> Any:
        return SimpleNamespace(pid=0, poll=lambda: 0, wait=lambda timeout: 0), self.driver

    def run_all(self, node: str) -> None:
        """Report that the jobs run that a node got last."""
        tickets = [ticket for ticket, _ in self.driver.newest(node)[4]]
        self.driver.answer(node, Report({}, dict.fromkeys(tickets, (1.0, "eager")), ["here"]))
        assert self.wait(0) == []

    def finish_all(self, node: str) -> list[Outcome]:
        """The outcomes of the jobs that a node got last."""
        jobs = self.driver.newest(node)[4]
        self.driver.answer(node, Report({ticket: Outcome(job, "result", 0.1) for ticket, job in jobs}, {}, ["here"]))
        return self.wait(0)


ONE, TWO = ("1", "left", 2, 1), ("2", "right", 3, 0)


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin="ray"))


@pytest.mark.usefixtures("without_ray")
class TestControl:
    """What control asks of the driver, and what it makes of the answers. No Ray."""

    def test_cpus_and_gpus_of_each_node_are_reserved(self) -> None:
        for options, slots, reserved in (
            ({"gpus": True}, 5, [("1", 2, 1), ("2", 3, 0)]),
            ({}, 5, [("1", 2, 0), ("2", 3, 0)]),
            ({"slots": 1, "gpus": True}, 1, [("1", 1, 1), ("2", 1, 0)]),
        ):
            with ScriptedEngine(ONE, TWO, **options) as engine:
                assert [command[2:] for command in engine.driver.commands if command[0] == "start"] == reserved
                assert engine.slots == slots

    def test_jobs_go_to_nodes_and_outcomes_come_back(self) -> None:
        with ScriptedEngine(ONE) as engine:
            for key in "abc":
                engine.submit(job("", key))
            assert engine.wait(0) == []
            assert [job.key for _, job in engine.driver.newest("1")[4]] == ["a", "b"]
            assert [(outcome.job.key, outcome.host, outcome.lost) for outcome in engine.finish_all("1")] == [
                ("a", "left", 0), ("b", "left", 0)
            ]  # fmt: skip
            assert engine.pending() == 1
            assert [job.key for _, job in engine.driver.newest("1")[4]] == ["c"]  # before the caller asks again

    def test_a_lost_node_gets_an_actor_again_and_no_job_is_lost(self) -> None:
        with ScriptedEngine(ONE) as engine:
            engine.submit(job("", "a"))
            engine.wait(0)
            engine.run_all("1")
            engine.driver.lose("1", "power cut")
            assert engine.wait(0) == []
            assert [command[0] for command in engine.driver.commands[-3:]] == ["kill", "start", "call"]
            assert texts(engine) == ["node left was lost: power cut; it was running 1 job"]
            engine.wait(0)
            assert [(outcome.job.key, outcome.lost) for outcome in engine.finish_all("1")] == [("a", 1)]

    def test_an_answer_to_an_earlier_call_is_ignored(self) -> None:
        with ScriptedEngine(ONE) as engine:
            engine.submit(job("", "a"))
            engine.wait(0)
            engine.driver.lose("1", "stale")
            assert [job.key for job in engine.cancel_all()] == ["a"]
            assert engine.driver.newest("1")[3:] == ("cancel",)
            engine.submit(job("", "b"))
            engine.wait(0)
            assert texts(engine) == [] and engine.pending() == 1
            assert engine.driver.newest("1")[3] == "cancel"  # which has not been answered
            engine.driver.answer("1", None)
            engine.wait(0)
            assert [job.key for _, job in engine.driver.newest("1")[4]] == ["b"]

    def test_a_suspect_reports_often(self) -> None:
        with ScriptedEngine(ONE) as engine:
            engine.submit(job("", "a"))
            engine.wait(0)
            assert engine.driver.newest("1")[5] == STEP
            engine.run_all("1")
            engine.driver.lose("1", "gone")
            engine.wait(0)
            engine.wait(0)
            assert engine.driver.newest("1")[5] == SUSPECT_STEP

    def test_a_node_that_leaves_is_not_used_and_one_that_joins_is(self) -> None:
        with ScriptedEngine(ONE) as engine:
            engine.submit(job("", "a"))
            engine.driver.messages.append(("nodes", [TWO]))
            engine.wait(0)
            assert texts(engine) == ["node left was lost: it left the cluster"]
            engine.wait(0)
            assert [(outcome.job.key, outcome.host) for outcome in engine.finish_all("2")] == [("a", "right")]
            assert [command[2] for command in engine.driver.commands if command[0] == "start"] == ["1", "2"]

    def test_nodes_of_one_host_have_names_of_their_own(self) -> None:
        with ScriptedEngine(("1", "left", 1, 0), ("2222222222", "left", 1, 0)) as engine:
            engine.driver.messages.append(("nodes", [("1", "left", 1, 0)]))
            engine.wait(0)
            assert texts(engine) == ["node left (222222) was lost: it left the cluster"]

    def test_a_node_without_the_right_torch_is_not_used(self) -> None:
        with ScriptedEngine(ONE, TWO, starts={"2": "torch is too old"}) as engine:
            assert engine.slots == 2
            assert texts(engine) == ["node right is not used: torch is too old"]
            assert engine.driver.commands[-1] == ("kill", "2")
        with pytest.raises(UsageError, match="no Ray cluster at auto: no node can run jobs; node left: torch is"):
            ScriptedEngine(ONE, starts={"1": "torch is too old"})
        with pytest.raises(UsageError, match="no Ray cluster at auto: no node can run jobs; none has a CPU"):
            ScriptedEngine()

    def test_a_node_whose_workers_do_not_start_is_not_used(self) -> None:
        with ScriptedEngine(ONE, TWO) as engine:
            engine.submit(job("", "a"))
            engine.wait(0)
            ((ticket, request),) = engine.driver.newest("1")[4]
            engine.driver.answer("1", Report({ticket: Outcome(request, "broken", 0.1, detail="no torch\n")}, {}))
            assert engine.wait(0) == []
            assert texts(engine) == ["node left is not used: no torch"]
            assert [(outcome.job.key, outcome.lost) for outcome in engine.finish_all("2")] == [("a", 0)]

    def test_cpus_that_are_not_free_are_waited_for_with_a_notice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cluster_engine, "SLOW", 0.0)
        with ScriptedEngine(ONE, starts={"1": None}) as engine:
            assert engine.slots == 2
            for _ in range(2):
                engine.driver.messages.append(("nodes", [ONE]))
                engine.wait(0)
            assert texts(engine) == ["node left: its 2 CPUs are not free yet"]

    def test_jobs_end_when_no_node_is_left_and_none_joins(self) -> None:
        with ScriptedEngine(ONE, patience=0.2) as engine:
            engine.submit(job("", "a"))
            engine.driver.messages.append(("nodes", []))
            assert engine.wait(0) == []
            (outcome,) = engine.wait(5)
            assert (outcome.job.key, outcome.ended) == ("a", "broken")
            assert outcome.detail == "no node can run jobs; node left: it left the cluster"

    def test_jobs_end_when_ray_ends(self) -> None:
        with ScriptedEngine(ONE) as engine:
            engine.submit(job("", "a"))
            engine.wait(0)
            engine.driver.messages.append(("failed", "no head"))
            (outcome,) = engine.wait(5)
            assert (outcome.job.key, outcome.ended, outcome.detail) == ("a", "broken", "Ray: no head")
            engine.submit(job("", "b"))
            assert [end.job.key for end in engine.wait(5)] == ["b"]

    def test_a_closed_engine_takes_no_job(self) -> None:
        with ScriptedEngine(ONE) as engine:
            pass
        engine.close()
        assert not engine._folder.exists()
        with pytest.raises(RuntimeError):
            engine.submit(job(""))


@needs_ray
class TestOnItsOwn:
    """A Ray of the run's own, on this machine. One for all of these tests."""

    def test_results_come_back(self, engine: RayEngine, logs: Path) -> None:
        source = "send({'phase': 'eager'}); result['n'] = job['seed']; print('hello', job['seed'])"
        outcomes = finish(engine, *(job(source, str(n), seed=n) for n in range(12)))
        assert {key: outcome.result for key, outcome in outcomes.items()} == {str(n): {"n": n} for n in range(12)}
        end = outcomes["7"]
        assert (end.ended, end.phase, end.output, end.host, end.lost) == ("result", "eager", "hello 7\n", "", 0)
        assert end.job.key == "7" and end.job.source == source
        assert [path.read_text() for path in logs.glob("*-m_7.log")] == ["hello 7\n"]
        assert texts(engine) == []

    def test_jobs_run_as_they_would_without_ray(self, engine: RayEngine, fake: dict[str, str]) -> None:
        source = """
            import os, signal
            result["mask"] = [int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, [])]
            result["nice"], result["cwd"], result["environ"] = os.nice(0), os.getcwd(), dict(os.environ)
        """
        with LocalEngine({"here": sys.executable}, 2, warm={"here": "none"}, environ=fake) as local:
            expected = finish(local, job(source))["k"].result
        result = finish(engine, job(source))["k"].result
        for answer in (expected, result):
            answer["environ"].pop("PYTEST_CURRENT_TEST", None)  # differs by the moment
            for name in ("RUNNER_SCRATCH", "TMPDIR"):  # each engine has its own
                assert "work" in Path(answer["environ"].pop(name)).parts[-2:]
        assert result == expected

    def test_a_crash_happens_once(self, engine: RayEngine, tmp_path: Path) -> None:
        source = count(tmp_path / "runs") + "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
        outcome = finish(engine, job(source))["k"]
        assert (outcome.ended, outcome.signal, outcome.lost) == ("signal", "SIGSEGV", 0)
        assert (tmp_path / "runs").read_text() == "ran\n"

    def test_unknown_environment(self, engine: RayEngine) -> None:
        with pytest.raises(KeyError):
            engine.submit(job("", environment="there"))
        assert engine.pending() == 0

    def test_what_runs_can_be_shown_and_cancelled(self, engine: RayEngine, tmp_path: Path) -> None:
        for key in ("a", "b", "c"):
            engine.submit(job(pause(tmp_path / "never"), key))
        assert until(lambda: [phase for _, _, phase in engine.running()] == ["backend", "backend"], engine)
        assert sorted(job.key for job, _, _ in engine.running()) == ["a", "b"]
        assert [job.key for job in engine.cancel_all()] == ["a", "b", "c"]
        assert (engine.pending(), engine.running(), engine.wait()) == (0, [], [])
        assert finish(engine, job("result['ok'] = 1"))["k"].result == {"ok": 1}
        assert engine.running() == []

    def test_a_dead_host_costs_only_what_it_ran(self, engine: RayEngine, tmp_path: Path) -> None:
        go, again, ran = tmp_path / "go", tmp_path / "again", tmp_path / "ran"
        kill = textwrap.indent(KILL_HOST, "    ")
        killer = (
            f"{count(ran)}{pause(go)}if open({str(ran)!r}).read().count('ran') < 3:{kill}\nopen({str(again)!r}, 'w')"
        )
        jobs = [
            job(killer, "killer"),
            job(count(ran) + pause(again), "beside"),  # which only the second run of the killer lets go
            *(job("result['ok'] = 1", f"after{n}") for n in range(4)),
        ]
        for request in jobs:
            engine.submit(request)
        assert until(lambda: len(engine.running()) == 2, engine)
        assert sorted(job.key for job, _, _ in engine.running()) == ["beside", "killer"]
        go.touch()
        outcomes = finish(engine)
        assert {key: outcome.ended for key, outcome in outcomes.items()} == {job.key: "result" for job in jobs}
        assert {key: outcome.lost for key, outcome in outcomes.items()} == {
            "killer": 1, "beside": 1, "after0": 0, "after1": 0, "after2": 0, "after3": 0
        }  # fmt: skip
        assert ran.read_text() == "ran\n" * 4  # each of the two once more
        (notice,) = texts(engine)
        assert notice == "the Ray worker on this machine was lost: its worker process has died; it was running 2 jobs"

    def test_a_job_that_kills_its_host_twice_is_named(self, engine: RayEngine, tmp_path: Path) -> None:
        go, again, ran = tmp_path / "go", tmp_path / "again", tmp_path / "ran"
        twice = f"if open({str(ran)!r}).read().count('ran') == 2: open({str(again)!r}, 'w')\n"
        jobs = [
            job(count(ran) + pause(go) + twice + KILL_HOST, "killer"),
            job(pause(again) + "result['ok'] = 1", "beside"),
            job("result['ok'] = 1", "after"),
        ]
        for request in jobs:
            engine.submit(request)
        assert until(lambda: len(engine.running()) == 2, engine)
        go.touch()
        outcomes = finish(engine)
        killer = outcomes["killer"]
        assert (killer.ended, killer.lost, killer.phase) == ("no-result", 2, "backend")
        assert killer.detail == "the node that ran it was lost twice while it did so (its worker process has died)"
        assert ran.read_text() == "ran\n" * 2
        assert {key: (outcome.result, outcome.lost) for key, outcome in outcomes.items() if key != "killer"} == {
            "beside": ({"ok": 1}, 1), "after": ({"ok": 1}, 0)
        }  # fmt: skip
        assert len(texts(engine)) == 2


SCRIPT = """
import signal, sys
from engine_jobs import job
from runner.engine.cluster import engine as cluster_engine
from runner.engine.cluster.engine import Report
from runner.engine.cluster.engine import STEP, SUSPECT_STEP, RayEngine
engine = RayEngine({"here": sys.executable}, 1, warm={"here": "none"}, environ=eval(sys.argv[1]))
engine.submit(job("import time; time.sleep(300)", timeout=400))
try:
    while True:
        engine.wait(0.05)
        if engine.running():
            print(engine._folder, flush=True)
except KeyboardInterrupt:
    engine.close()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and "ray" not in sys.modules  # Ray would handle SIGTERM
    print("closed", flush=True)
"""


@needs_ray
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_is_ended(fake: dict[str, str], how: signal.Signals) -> None:
    mark = f"{MARK}-{how.name}"
    control = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, repr(fake)],
        env={**os.environ, "RUNNER_TEST_MARK": mark, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert control.stdout is not None
    folder = Path(control.stdout.readline().strip())
    assert folder.is_dir() and len(left(mark)) > 5
    os.killpg(control.pid, how)  # as the terminal does on Ctrl-C
    output = control.stdout.read()
    control.wait()
    if how == signal.SIGINT:
        assert output.endswith("closed\n")
        assert left(mark) == []
    assert until(lambda: not left(mark), limit=20), left(mark)
    assert until(lambda: not folder.exists(), limit=5)


@pytest.fixture(scope="module")
def cluster(fake: dict[str, str]) -> Iterator[RayCluster]:
    """A head of one CPU, and a node with two CPUs and, so it says, two GPUs."""
    folder = Path(tempfile.mkdtemp(prefix="rr-", dir="/tmp"))
    with RayCluster(folder, "1", "2/2") as instance, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_engine, "SLOW", 60.0)  # on a busy machine an actor takes longer to start than 10 s
        yield instance
    shutil.rmtree(folder, ignore_errors=True)


def join(cluster: RayCluster, fake: dict[str, str], **changes: object) -> RayEngine:
    options = {
        "expected": {"here": probe(sys.executable)["build"]},
        "warm": {"here": "none"},
        "environ": fake,
        **changes,
    }
    environments = options.pop("environments", {"here": sys.executable})
    return RayEngine(environments, address=cluster.address, **options)  # type: ignore[arg-type]


@needs_ray
class TestOnACluster:
    """Two nodes on this machine. The last test kills one of them."""

    def test_jobs_run_on_every_node_with_our_package(self, cluster: RayCluster, fake: dict[str, str]) -> None:
        # The path of the interpreter exists nowhere: nodes use the one that Ray runs, since its torch is the right one.
        with join(cluster, fake, environments={"here": "/no/such/python"}, gpus=True) as engine:
            assert engine.slots == 3
            source = """
                import os, time
                result["worker"] = open(f"/proc/{os.getppid()}/cmdline").read().split("\\0")[1]
                result["gpus"] = os.environ.get("CUDA_VISIBLE_DEVICES")
                time.sleep(0.3)
            """
            outcomes = finish(engine, *(job(source, str(n), device=["cpu", "cuda"][n % 2]) for n in range(12)))
            assert {outcome.ended for outcome in outcomes.values()} == {"result"}
            assert len({outcome.host for outcome in outcomes.values()}) == 2
            assert all(socket.gethostname() in outcome.host for outcome in outcomes.values())
            assert all("py_modules" in outcome.result["worker"] for outcome in outcomes.values())
            cuda = [outcome for outcome in outcomes.values() if outcome.job.device == "cuda"]
            assert {outcome.result["gpus"] for outcome in cuda} == {"0,1"}
            assert len({outcome.host for outcome in cuda}) == 1
            assert texts(engine) == []

    def test_a_cluster_without_the_right_torch(self, cluster: RayCluster, fake: dict[str, str]) -> None:
        with pytest.raises(UsageError, match=r"has torch \S+, not 0\.1"):
            join(cluster, fake, expected={"here": "0.1"})

    def test_a_node_dies(self, cluster: RayCluster, fake: dict[str, str], tmp_path: Path) -> None:
        go = tmp_path / "go"
        with join(cluster, fake) as engine:
            for number in range(10):
                engine.submit(job(pause(go) + f"result['n'] = {number}", str(number), timeout=60))
            assert until(lambda: len(engine.running()) == 3, engine)
            cluster.kill(1)
            go.touch()
            outcomes = finish(engine, limit=90)
            assert {key: outcome.result for key, outcome in outcomes.items()} == {str(n): {"n": n} for n in range(10)}
            assert sorted(outcome.lost for outcome in outcomes.values()) == [0] * 8 + [1] * 2
            assert len({outcome.host for outcome in outcomes.values()}) == 1
            assert any("was lost" in notice and "it was running 2 jobs" in notice for notice in texts(engine))


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'torch-spec-runner\[ray\]'"):
        RayEngine({"here": sys.executable})


@needs_ray
@pytest.mark.parametrize(
    ("address", "words"),
    [("127.0.0.1:1", "refused"), ("ray://127.0.0.1:1", "refused"), ("localhost", "Invalid address format")],
)
def test_an_address_without_a_cluster(address: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"no Ray cluster at {address}: .*{words}"):
        RayEngine({"here": sys.executable}, address=address)


def test_the_engine_imports_neither_torch_nor_ray() -> None:
    code = "import sys, runner.engine.cluster.engine; print({'torch', 'ray'} & {*sys.modules})"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "set()\n"
