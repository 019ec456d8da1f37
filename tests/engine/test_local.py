"""The local engine when nothing dies: results, slots, cancelling, which server runs a job, logs.

Which jobs run beside which: slots, jobs that must be alone, GPUs. An engine's home, made before the engine.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from engine_jobs import Make, finish, gone, job, one, texts

from runner.contract.job import Job
from runner.engine import process_tree
from runner.engine.local import LocalEngine
from runner.engine.messages import Outcome
from runner.engine.servers import Home
from runner.exit_codes import INTERNAL, UsageError


def test_a_result_comes_back_with_its_phase(make: Make) -> None:
    outcome = one(make(), "send({'phase': 'eager'}); result['sum'] = job['seed'] + 1; print('hello')", seed=41)
    assert (outcome.ended, outcome.result, outcome.phase) == ("result", {"sum": 42}, "eager")
    assert outcome.output == "hello\n" and outcome.exit_status == 0 and outcome.signal is None
    assert 0 < outcome.seconds < 10


def test_what_json_lacks_comes_as_text(make: Make) -> None:
    outcome = one(make(), "result.update(a=float('nan'), b=[float('inf'), 1.5], c={1, 1}, d={2: None}, e='\\udc80')")
    assert outcome.result == {"a": "nan", "b": ["inf", 1.5], "c": "{1}", "d": {"2": None}, "e": "\udc80"}


def test_twenty_quick_jobs_over_two_slots(make: Make) -> None:
    engine = make(2)
    most = 0
    for number in range(20):
        engine.submit(job(f"result['number'] = {number}", str(number)))
    outcomes: list[Outcome] = []
    while engine.pending():
        outcomes += engine.wait(1.0)
        most = max(most, len(engine.running()))
    assert sorted(outcome.result["number"] for outcome in outcomes) == list(range(20))
    assert most <= 2


def test_what_runs_can_be_shown_and_cancelled(make: Make) -> None:
    engine = make(1)
    engine.submit(job("import os, time\nsend({'phase': 'eager'}); print(os.getpid()); time.sleep(100)", "first"))
    engine.submit(job("", "second"))
    end = time.monotonic() + 10
    while [phase for _, _, phase in engine.running()] != ["eager"] and time.monotonic() < end:
        assert engine.wait(0.05) == []
    ((running, seconds, _),) = engine.running()
    assert running.key == "first" and seconds < 10
    assert [dropped.key for dropped in engine.cancel_all()] == ["first", "second"]
    assert (engine.pending(), engine.wait()) == (0, [])
    assert one(engine, "result['ok'] = 1").result == {"ok": 1}


def test_accelerator_jobs_have_a_server_of_their_own(make: Make) -> None:
    source = "import os; result['parent'] = os.getppid()"
    outcomes = finish(
        make(), job(source, "cpu"), job(source, "cuda", device="cuda"), job(source, "cuda1", device="cuda:1")
    )
    parents = {key: outcome.result["parent"] for key, outcome in outcomes.items()}
    assert parents["cpu"] != parents["cuda"] == parents["cuda1"]


def test_closed_streams_do_no_harm(make: Make) -> None:
    outcome = one(make(), "import os, sys\nsys.stdout.close(); os.close(1); os.close(2); os.close(0)\nresult['ok'] = 1")
    assert outcome.result == {"ok": 1}


def test_a_log_folder_that_cannot_be_made(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = one(make(log_folder=tmp_path / "file" / "logs"), "print('x' * 100_000); result['ok'] = 1")
    assert (outcome.result, outcome.output) == ({"ok": 1}, "")


def test_logs_are_kept_where_something_was_printed(make: Make, tmp_path: Path) -> None:
    finish(make(log_folder=tmp_path), job("print('a')", "loud"), job("", "quiet"))
    assert [path.name for path in tmp_path.glob("*.log")] == ["00001-m_loud.log"]


def test_the_engine_imports_no_torch() -> None:
    code = "import sys, json, runner.engine.local; print(json.dumps('torch' in sys.modules))"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, check=True
    )
    assert json.loads(process.stdout) is False


def test_a_fresh_job_comes_from_a_cold_server(make: Make) -> None:
    source = """
        import os
        result.update(parent=os.getppid(), pid=os.getpid())
    """
    engine = make(1, warm="aot")
    jobs = [job(source, "fork"), *(job(source, key, isolation="fresh") for key in ("fresh", "again"))]
    jobs += [job(source, "cuda", device="cuda"), job(source, "fresh cuda", device="cuda", isolation="fresh")]
    results = {key: outcome.result for key, outcome in finish(engine, *jobs).items()}
    warm = {server.hello["pid"]: server.warm for server in engine._servers.values()}
    assert {key: warm[result["parent"]] for key, result in results.items()} == {
        "fork": "aot",
        "fresh": "capture",
        "again": "capture",
        "cuda": "import",
        "fresh cuda": "capture",
    }
    assert (
        results["fresh"]["parent"] == results["again"]["parent"] and results["fresh"]["pid"] != results["again"]["pid"]
    )


@pytest.mark.parametrize(("warm", "words"), [("aot", "every job is slow, since no warm-up was possible"), ("none", "")])
def test_a_warm_up_that_failed_is_said(make: Make, warm: str, words: str) -> None:
    """The fake torch has no compiler, so that nothing can be warmed up."""
    engine = make(1, warm=warm)
    assert one(engine, "").ended == "result"
    assert len(texts(engine)) == bool(words) and all(words in notice for notice in texts(engine))


def test_the_cold_server_starts_when_it_is_needed(make: Make, children: Callable[[], list[int]]) -> None:
    engine = make(1, warm="aot")
    zygotes, servers = [], []
    for isolation in ("fork", "living", "fresh", "fresh"):
        one(engine, "", isolation=isolation)
        zygotes.append(children())
        servers.append(sum(process.parent in zygotes[0] for process in process_tree.processes().values()))
    assert servers == [1, 1, 2, 2]
    assert zygotes == [zygotes[0]] * 4 and len(zygotes[0]) == 1, "torch is imported once"


def test_a_private_kernel_cache_goes_with_the_engine(make: Make, fake: dict[str, str]) -> None:
    source = """
        import os, pathlib
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            result[name] = os.environ.get(name)
        folder = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernel.so").write_text("")
    """
    engine = make(1, kernel_cache="private", environments=("here", "there"))
    outcomes = finish(engine, job(source, "a"), job(source, "b"), job(source, "c", environment="there"))
    folders = {key: outcome.result["TORCHINDUCTOR_CACHE_DIR"] for key, outcome in outcomes.items()}
    assert folders["a"] == folders["b"] != folders["c"] and fake["TORCHINDUCTOR_CACHE_DIR"] not in folders.values()
    assert outcomes["a"].result["TRITON_CACHE_DIR"].startswith(folders["a"])
    assert all(Path(folder, "kernel.so").exists() for folder in folders.values())
    engine.close()
    assert not any(Path(folder).exists() for folder in folders.values())


def test_a_shared_kernel_cache_is_left_alone(make: Make, fake: dict[str, str]) -> None:
    outcome = one(make(1), "import os; result['folder'] = os.environ['TORCHINDUCTOR_CACHE_DIR']")
    assert outcome.result["folder"] == fake["TORCHINDUCTOR_CACHE_DIR"]


@pytest.mark.parametrize("isolation", ["fork", "fresh", "living"])
def test_a_slot_is_busy_longer_than_its_job_runs(make: Make, isolation: str) -> None:
    engine = make(1)
    one(engine, "", isolation=isolation)  # the server starts
    source = "import time; begin = time.monotonic(); time.sleep(0.1); result['inside'] = time.monotonic() - begin"
    outcome = one(engine, source, isolation=isolation)
    assert 0 < outcome.seconds <= outcome.busy and outcome.result["inside"] <= outcome.busy


def test_variables_reach_the_jobs_that_ask_for_them_and_no_others(make: Make) -> None:
    engine = make(2, warm="none")
    asks = "import os; result['outcome'] = os.environ.get('TRITON_INTERPRET', 'none')"
    jobs = [
        job(asks, "plain"),
        job(asks, "with", variables={"TRITON_INTERPRET": "1"}),
        job(asks, "fresh", variables={"TRITON_INTERPRET": "1"}, isolation="fresh"),
        job(asks, "after"),
    ]
    outcomes = finish(engine, *jobs)
    assert {key: outcome.result["outcome"] for key, outcome in outcomes.items()} == {
        "plain": "none",
        "with": "1",
        "fresh": "1",
        "after": "none",
    }
    assert len(engine._servers) == 2


def test_a_server_that_was_prepared_is_the_one_of_later_jobs(make: Make) -> None:
    engine = make(2, warm="aot")
    engine.prepare("here", "fresh", {"RUNNER_X": "1"})
    (prepared,) = engine._servers.values()
    assert (prepared.warm, prepared.environ["RUNNER_X"], engine.pending()) == ("capture", "1", 0)
    asks = "import os; result['parent'] = os.getppid()"
    outcome = one(engine, asks, isolation="fresh", variables={"RUNNER_X": "1"})
    assert len(engine._servers) == 1 and outcome.result["parent"] == prepared.hello["pid"]


def test_living_processes_with_code_of_a_persons_own_can_be_dismissed(make: Make) -> None:
    engine = make(2)
    plain = job("import os; result['pid'] = os.getpid()", isolation="living")
    own = replace(plain, backend={"backend": "acme:compile_graph"}, foreign=True)

    def pids() -> list[int]:
        return [finish(engine, each)["k"].result["pid"] for each in (own, plain)]

    before = pids()
    assert pids() == before, "each rests until its next job"
    engine.dismiss_foreign()
    after = pids()
    assert after[0] != before[0] and after[1] == before[1]


SPAN = """
import os, time
result.update(begin=time.monotonic(), slot=int(os.environ["RUNNER_SLOT"]), pid=os.getpid())
result["gpu"] = os.environ.get("CUDA_VISIBLE_DEVICES")
time.sleep(0.15)
result["end"] = time.monotonic()
"""
GPUS = """
import types
__version__ = "9.9.9+fake"
version = types.SimpleNamespace(git_version="abc")
shares = []
cuda = types.SimpleNamespace(
    is_available=lambda: True, device_count=lambda: {count}, set_per_process_memory_fraction=shares.append
)
def get_num_threads(): return 2
def set_num_threads(count): pass
"""


def overlap(first: Outcome, second: Outcome) -> bool:
    a, b = first.result, second.result
    return bool(a["begin"] < b["end"] and b["begin"] < a["end"])


def overlapping(outcomes: dict[str, Outcome]) -> list[tuple[Outcome, Outcome]]:
    return [pair for pair in itertools.combinations(outcomes.values(), 2) if overlap(*pair)]


@pytest.mark.parametrize("isolation", ["fork", "fresh", "living"])
def test_jobs_that_run_at_once_have_different_slots(make: Make, isolation: str) -> None:
    outcomes = finish(make(3), *(job(SPAN, str(number), isolation=isolation) for number in range(9)))
    pairs = overlapping(outcomes)
    assert pairs and all(first.result["slot"] != second.result["slot"] for first, second in pairs)
    assert {outcome.result["slot"] for outcome in outcomes.values()} == {0, 1, 2}


@pytest.mark.parametrize("isolation", ["fork", "living"])
def test_alone_is_alone(make: Make, isolation: str) -> None:
    jobs = [job(SPAN, f"{number}", isolation=isolation) for number in range(6)]
    jobs[2:2] = [job(SPAN, "alone", isolation=isolation, alone=True), job(SPAN, "too", alone=True)]
    jobs.append(job(SPAN, "elsewhere", environment="there"))
    outcomes = finish(make(3, environments=("here", "there")), *jobs)
    pairs = [{first.job.key, second.job.key} for first, second in overlapping(outcomes)]
    assert pairs and not any(pair & {"alone", "too"} for pair in pairs)


def test_what_is_alone_does_not_wait_for_ever(make: Make) -> None:
    """Younger jobs do not pass it, though a slot is free while the older ones end."""
    jobs = [job(SPAN, "0"), job(SPAN, "1"), job(SPAN, "alone", alone=True), *(job(SPAN, f"{n}") for n in range(2, 8))]
    outcomes = finish(make(2), *jobs)
    younger = [outcomes[f"{n}"].result["begin"] for n in range(2, 8)]
    assert outcomes["alone"].result["end"] <= min(younger)


def leased(make: Make, fake: dict[str, str], count: int, slots: int, *jobs: Job, given: str | None = None):  # type: ignore[no-untyped-def]
    Path(fake["PYTHONPATH"], "torch", "__init__.py").write_text(GPUS.format(count=count))
    return finish(make(slots, {"CUDA_VISIBLE_DEVICES": given} if given is not None else None), *jobs)


def test_each_job_gets_a_gpu_of_its_own(make: Make, fake: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    share = "import torch; result['shares'] = torch.shares\n"
    jobs = [job(share + SPAN, str(number), device="cuda") for number in range(8)]
    outcomes = leased(make, fake, 3, 3, *jobs)
    pairs = overlapping(outcomes)
    assert pairs and all(first.result["gpu"] != second.result["gpu"] for first, second in pairs)
    assert {outcome.result["gpu"] for outcome in outcomes.values()} == {"0", "1", "2"}
    assert all(outcome.result["shares"] == [] for outcome in outcomes.values())


def test_more_slots_than_gpus_share_their_memory(make: Make, fake: dict[str, str]) -> None:
    share = "import torch; result['shares'] = torch.shares\n"
    jobs = [job(share + SPAN, str(number), device="cuda") for number in range(6)]
    outcomes = leased(make, fake, 2, 4, *jobs, given="GPU-a,7")
    assert {outcome.result["gpu"] for outcome in outcomes.values()} == {"GPU-a", "7"}
    assert all(outcome.result["shares"] == [0.5] for outcome in outcomes.values())
    for outcome in outcomes.values():
        beside = [
            neighbour for neighbour in outcomes.values() if neighbour is not outcome and overlap(outcome, neighbour)
        ]
        assert sum(neighbour.result["gpu"] == outcome.result["gpu"] for neighbour in beside) <= 2


def test_an_index_is_left_as_written_and_a_cpu_job_sees_no_gpu(make: Make, fake: dict[str, str]) -> None:
    jobs = [job(SPAN, "cuda:1", device="cuda:1"), job(SPAN, "cpu"), job(SPAN, "cuda", device="cuda")]
    outcomes = leased(make, fake, 2, 3, *jobs, given="4,5")
    assert {key: outcome.result["gpu"] for key, outcome in outcomes.items()} == {
        "cuda:1": "4,5",
        "cpu": "",
        "cuda": "4",
    }


def test_without_a_gpu_nothing_is_leased(make: Make) -> None:
    outcome = finish(make(1, {"CUDA_VISIBLE_DEVICES": ""}), job(SPAN, "k", device="cuda"))["k"]
    assert outcome.result["gpu"] == ""


def test_a_living_worker_keeps_its_gpu(make: Make, fake: dict[str, str]) -> None:
    jobs = [job(SPAN, str(number), device="cuda", isolation="living") for number in range(6)]
    outcomes = leased(make, fake, 2, 2, *jobs, given="4,5")
    assert len({outcome.result["pid"] for outcome in outcomes.values()}) == 2
    assert len({(outcome.result["pid"], outcome.result["gpu"]) for outcome in outcomes.values()}) == 2
    assert {outcome.result["gpu"] for outcome in outcomes.values()} == {"4", "5"}


def test_an_engine_uses_the_zygotes_of_its_home(fake: dict[str, str], children: Callable[[], list[int]]) -> None:
    with Home() as home:
        home.environ.update(fake)
        home.prepare([sys.executable])
        home.caches.prepare(sys.executable).result()  # a compiler that is asked about itself is a child too
        early = children()
        with LocalEngine({"here": sys.executable}, home=home) as engine:
            outcome = one(engine, "result['ok'] = 1")
            assert outcome.result == {"ok": 1} and children() == early and len(early) == 1
        assert not home.folder.exists() and gone(early[0])


def test_a_home_without_an_engine_leaves_nothing(fake: dict[str, str], children: Callable[[], list[int]]) -> None:
    Path(fake["PYTHONPATH"], "torch", "__init__.py").write_text("import time; time.sleep(100)")
    with Home() as home:
        home.environ.update(fake)
        home.prepare([sys.executable])
        home.caches.prepare(sys.executable).result()  # a compiler that is asked about itself is a child too
        early = children()
    assert len(early) == 1 and gone(early[0]) and not home.folder.exists()


def test_temporary_files_of_jobs_go_with_the_home(fake: dict[str, str]) -> None:
    with Home() as home:
        home.environ.update(fake)
        with LocalEngine({"here": sys.executable}, home=home) as engine:
            folder = Path(one(engine, "import tempfile; result['folder'] = tempfile.mkdtemp()").result["folder"])
            assert folder.exists() and folder.is_relative_to(home.folder)
        assert not folder.exists()


def test_what_a_zygote_printed_before_it_died_is_told(fake: dict[str, str]) -> None:
    Path(fake["PYTHONPATH"], "torch", "__init__.py").write_text("import os; os.write(2, b'no libc10'); os.abort()")
    with Home() as home:
        home.environ.update(fake)
        home.prepare([sys.executable])
        with LocalEngine({"here": sys.executable}, home=home) as engine:
            outcome = one(engine, "")
    assert outcome.ended == "broken" and "SIGABRT" in outcome.detail and "no libc10" in outcome.detail


def test_a_python_that_is_none_is_left_to_its_first_job(fake: dict[str, str]) -> None:
    with Home() as home:
        home.prepare(["/nowhere/python"])
        with LocalEngine({"here": "/nowhere/python"}, home=home) as engine:
            assert one(engine, "").ended == "broken"


FOLDER = """
scratch = pathlib.Path(os.environ["RUNNER_SCRATCH"])
folder = next(path for path in (scratch, *scratch.parents) if path.name.startswith("runner-scratch-"))
"""  # by its name: a mistake here must not remove what lies around it


def act(part: str, how: str = "remove") -> str:
    """Return a snippet that does something to a part of the engine's folder, also after that was made anew."""
    does = {
        # A job beside this one may make or remove a file meanwhile.
        "remove": "while path.is_dir(): shutil.rmtree(path, ignore_errors=True)\nif path.exists(): path.unlink()",
        "replace": "shutil.rmtree(path); path.mkdir()",
        "link": "shutil.rmtree(path); path.symlink_to('.')",
        "lock": "path.chmod(0)",
    }[how]
    return f"import os, pathlib, shutil\n{FOLDER}\npath = folder / {part!r}\n{does}\n"


@pytest.fixture
def engine(fake: dict[str, str]) -> Iterator[LocalEngine]:
    """An engine of three slots, whose home is made before it."""
    with Home() as home:
        home.environ.update(fake)
        with LocalEngine({"here": sys.executable}, 3, home=home) as engine:
            yield engine
        assert not home.folder.exists()


BLAMED = "the case removed or changed the temporary folder of the run"


@pytest.mark.parametrize(
    ("part", "how"),
    [
        ("", "remove"), ("work", "remove"), ("work/0", "remove"), ("control", "remove"), ("work", "replace"), ("work", "link"),
        ("", "lock"), ("work", "lock"), ("control", "lock"),
    ],
)  # fmt: skip
def test_a_job_that_damages_the_folder_costs_its_own_outcome_alone(engine: LocalEngine, part: str, how: str) -> None:
    folders = {engine._home.folder}
    first = finish(engine, job(act(part, how), "bad"), *(job(f"result['n'] = {n}", str(n)) for n in range(4)))
    folders.add(engine._home.folder)
    second = finish(engine, job("result['n'] = 4", "4"))
    bad = first.pop("bad")
    assert (bad.ended, bad.result) == ("damage", {}) and bad.detail.startswith(BLAMED)
    assert [outcome.result["n"] for _, outcome in sorted((first | second).items())] == [0, 1, 2, 3, 4]
    assert engine._home.folder.is_dir() and not any(folder.exists() for folder in folders - {engine._home.folder})
    assert "was made anew 2 times" in texts(engine)[-1]


def test_jobs_that_ran_beside_the_one_that_damages_run_again(engine: LocalEngine, tmp_path: Path) -> None:
    started = tmp_path / "started"
    wait = "import os, time\nopen({0!r}, 'a').write('x')\nwhile os.stat({0!r}).st_size < 3: time.sleep(0.01)\n".format(
        str(started)
    )
    innocent = f"{wait}time.sleep(0.3); result['files'] = os.listdir(os.environ['RUNNER_SCRATCH'])"
    jobs = job(innocent, "a"), job(wait + act("work"), "bad"), job(innocent, "b")
    outcomes = finish(engine, *jobs)
    assert {key: outcome.ended for key, outcome in outcomes.items()} == {"a": "result", "bad": "damage", "b": "result"}
    assert outcomes["a"].result == {"files": []}


def test_a_folder_that_another_program_removes_once_costs_nothing(engine: LocalEngine, tmp_path: Path) -> None:
    mark = str(tmp_path / "mark")
    once = f"import os\nif not os.path.exists({mark!r}):\n" + textwrap.indent(f"open({mark!r}, 'w')\n{act('')}", "    ")
    outcomes = finish(engine, job(f"{once}\nresult['ok'] = 1", "a"), job("result['ok'] = 1", "b"))
    assert [outcome.result for outcome in outcomes.values()] == [{"ok": 1}] * 2


def test_a_folder_that_goes_while_no_job_runs_ends_the_run(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Home, "work_folder", lambda home, slot: shutil.rmtree(home.folder) or home.folder)
    engine.submit(job(""))
    with pytest.raises(UsageError, match="another program removes the temporary folder again and again") as error:
        while engine.pending():
            engine.wait(1.0)
    assert error.value.code == INTERNAL


def test_a_log_folder_that_a_case_removes_is_made_again(make: Make, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    engine = make(1, log_folder=logs)
    finish(engine, job(f"import shutil; shutil.rmtree({str(logs)!r}); print('lost')", "1"))
    outcome = finish(engine, job("print('here')", "2"))["2"]
    assert outcome.output == "here\n" and [path.read_text() for path in logs.iterdir()] == ["here\n"]
