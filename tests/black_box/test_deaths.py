"""Whatever dies, hangs or is killed costs itself alone: one variant, or this run's end, and never a report."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .driver import Result, command, environment, processes_of, run_in, spec, write
from .kills import LOG, journal_problems, kill, kill_often, report_problems

DEADLY = """
    import ctypes
    import os
    import subprocess
    import time


    def _say(what):
        print(f"last words: {what}", flush=True)


    def segfault(module, inputs):
        _say("segfault")
        ctypes.string_at(0)


    def segfault_later(module, inputs):
        def run(*args):
            _say("segfault_later")
            ctypes.string_at(0)
        return run


    def abort(module, inputs):
        _say("abort")
        os.abort()


    def hang(module, inputs):
        _say("hang")
        subprocess.Popen(["sleep", "600"])
        while True:
            time.sleep(1)


    def silent(module, inputs):
        _say("silent")
        os._exit(0)


    def memory(module, inputs):
        _say("memory")
        kept = []
        for _ in range(60):
            kept.append(b"x" * (50 << 20))
        return module.forward


    def one_huge_piece(module, inputs):
        _say("one_huge_piece")
        kept = b"x" * (3 << 30)
        return module.forward


    def slow(module, inputs):
        time.sleep(300)
    """
BACKENDS = ("segfault", "segfault_later", "abort", "hang", "silent", "memory", "one_huge_piece")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of deadly backends."""
    folder = tmp_path_factory.mktemp("library")
    write(folder, {"deadly/__init__.py": DEADLY})
    return folder


@pytest.fixture(scope="module")
def ran(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """One run with every death in it, and survivors before, between and after. ``test_every_verdict.py`` confirms deaths."""
    folder = tmp_path_factory.mktemp("deaths")
    survivors = [f"name: survivor_{n}\ntags: [survivor]\ninputs: {{x: [4]}}\nchain: [torch.neg]" for n in range(2)]
    victim = "name: victim\ninputs: {x: [4]}\nchain: [torch.neg]\ntimeout: 8s\nmemory: 300MiB"
    write(folder, {"deaths.spec.yaml": spec(survivors[0], victim, survivors[1])})
    flags = [word for name in BACKENDS for word in ("--backend", f"deadly:{name}")]
    mark = uuid.uuid4().hex
    result = run_in(folder, "run", "deaths.spec.yaml", *flags, "--backend", "eager", "-j", 2, "--no-confirm", "-k", "victim or backend:eager",
                  env={"PYTHONPATH": str(library), "DEATHS": mark})  # fmt: skip
    assert not processes_of(mark), "something outlived the run"
    return result


def test_the_others_go_on(ran: Result) -> None:
    assert ran.code == 1
    survivors = {name: verdict for name, verdict in ran.verdicts.items() if name.endswith("@eager")}
    assert survivors == {"survivor_0@eager": "PASS", "victim@eager": "PASS", "survivor_1@eager": "PASS"}
    assert len(ran.verdicts) == 3 + len(BACKENDS)
    assert {ran.verdicts[f"victim@deadly:{name}"] for name in BACKENDS} == {"ERROR"}
    assert re.search(rf"3 passed, {len(BACKENDS)} error", ran.out)


@pytest.mark.parametrize(
    ("backend", "oracle", "signal_name", "reason", "stack"),
    [
        ("segfault", "signal", "SIGSEGV", "SIGSEGV", "in segfault"),
        ("segfault_later", "signal", "SIGSEGV", "SIGSEGV", "in forward"),
        ("abort", "signal", "SIGABRT", "SIGABRT", "in abort"),
        ("hang", "timeout", None, "no answer after 8 s", "in hang"),
        ("silent", "runtime-error", None, "exit status 0 and without a result", ""),
        ("memory", "memory", None, "passed the limit", ""),
        ("one_huge_piece", "memory", None, "out of memory", ""),
    ],
)
def test_a_death_is_reported(
    backend: str, oracle: str, signal_name: str | None, reason: str, stack: str, ran: Result
) -> None:
    event = ran.of(f"victim@deadly:{backend}")
    assert (event["oracles"], event["stage"], event["signal"]) == ([oracle], "backend", signal_name)
    assert reason in event["reason"]
    assert event["output"].strip() == f"last words: {backend}"
    block = ran.out.split(f"\nERROR deaths.spec.yaml::victim[float32,cpu]@deadly:{backend}\n")[1].split("\n\n")[0]
    assert f"last words: {backend}" in block
    assert stack in event["stack"]
    assert stack in block
    assert re.search(
        rf"reproduce: runner run .*victim\[float32,cpu\]@deadly:{backend}' --backend deadly:{backend}$",
        block,
        re.MULTILINE,
    )


REMOVER = """
    import os
    import pathlib
    import shutil

    import torch


    class Remover(torch.nn.Module):
        def forward(self, x):
            if torch.compiler.is_compiling():
                remove()
            return x + 2


    @torch._dynamo.disable
    def remove():
        scratch = pathlib.Path(os.environ["RUNNER_SCRATCH"])
        shutil.rmtree(next(path for path in scratch.parents if path.name.startswith("runner-scratch-")))
        shutil.rmtree(next(pathlib.Path(".runner/runs").glob("*/logs")))


    class Planted(torch.nn.Module):
        def forward(self, x):
            return x + (1 if torch.compiler.is_compiling() else 2)
    """


@pytest.mark.nightly
def test_a_case_that_removes_the_temporary_folder_costs_itself(tmp_path: Path) -> None:
    model = "inputs: {x: [4]}\nmodule: {file: m.py, name: "
    fine = [f"name: fine_{n}\ninputs: {{x: [4]}}\nchain: [torch.neg]" for n in range(2)]
    cases = f"name: remover\n{model}Remover}}", fine[0], f"name: planted\n{model}Planted}}", fine[1]
    write(tmp_path, {"m.py": REMOVER, "a.spec.yaml": spec(*cases)})
    result = run_in(tmp_path, "run", "a.spec.yaml", "--backend", "eager", "-j", 2, "--allow-python", "--no-confirm")
    verdicts = {"remover@eager": "ERROR", "fine_0@eager": "PASS", "planted@eager": "FAIL", "fine_1@eager": "PASS"}
    assert (result.code, result.verdicts) == (1, verdicts)
    event = result.of("remover@eager")
    assert event["reason"].startswith("the case removed or changed the temporary folder of the run")
    assert "a temporary folder was made anew 2 times" in result.out + result.err
    assert "nothing is left to do" in run_in(tmp_path, "resume").err


SPOILERS = """
    import glob
    import os
    import sys

    import torch
    from torch._subclasses import FakeTensorMode


    class Adds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.spoil()

        def spoil(self):
            pass

        def forward(self, x):
            return x + 2


    class Logs(Adds):
        def spoil(self):
            scratch = os.path.dirname(os.path.dirname(os.environ["RUNNER_SCRATCH"]))
            for path in {os.readlink("/proc/self/fd/1"), *glob.glob(f"{scratch}/*.log"), *glob.glob(f"{scratch}/*.stack")}:
                if os.path.isfile(path):
                    os.unlink(path)
                    os.mkfifo(path)


    class Deep(Adds):
        def spoil(self):
            here = os.getcwd()
            os.chdir(os.environ["RUNNER_SCRATCH"])
            for _ in range(1500):
                os.makedirs("d", exist_ok=True)
                os.chdir("d")
            os.chdir(here)


    class Modules(Adds):
        def spoil(self):
            for name in [name for name in sys.modules if name.startswith("runner")]:
                del sys.modules[name]


    class Mode(Adds):
        def spoil(self):
            FakeTensorMode().__enter__()


    class Number(Adds):
        def forward(self, x):
            return x + 2, 10**5000 + torch.compiler.is_compiling()


    class Nonsense(Adds):
        def spoil(self):
            for descriptor in range(3, 64):
                try:
                    os.write(descriptor, b"[" * 10000 + bytes([10]))
                except OSError:
                    pass


    class Own(Adds):
        def spoil(self):
            for path in glob.glob("own*.py"):
                os.unlink(path)
                os.mkfifo(path)


    class Unnamed(type):
        def __getattribute__(cls, name):
            raise RuntimeError(name)


    class Error(Adds):
        def forward(self, x):
            raise type.__call__(type.__new__(Unnamed, "Nameless", (Exception,), {}))
    """


def test_a_case_that_spoils_its_process_or_files_costs_itself(tmp_path: Path) -> None:
    names = ("Logs", "Deep", "Modules", "Mode", "Number", "Nonsense", "Error")
    cases = [f"name: {name.lower()}\ninputs: {{x: [4]}}\nmodule: {{file: m.py, name: {name}}}" for name in names]
    cases += [f"name: own_{n}\ninputs: {{x: [4]}}\nmodule: {{file: own.py, name: Own}}" for n in range(5)]
    write(tmp_path, {"m.py": SPOILERS, "own.py": SPOILERS, "a.spec.yaml": spec(*cases)})
    write(tmp_path, {"b.spec.yaml": spec("name: fine\ninputs: {x: [4]}\nchain: [torch.neg]")})
    words = ("a.spec.yaml", "b.spec.yaml", "--backend", "eager", "-j", 1, "--allow-python", "--no-confirm")
    result = run_in(tmp_path, "run", *words, "--order", "plan")
    assert result.code == 1 and "Traceback" not in result.err, result.text
    verdicts = {name.removesuffix("@eager"): verdict for name, verdict in result.verdicts.items()}
    assert verdicts.pop("fine") == verdicts.pop("logs") == verdicts.pop("deep") == "PASS", result.text
    assert verdicts.pop("error") == verdicts.pop("own_4") == "INVALID"
    assert "cannot be read any more" in result.of("own_4@eager")["reason"]
    assert {verdicts.pop(f"own_{n}") for n in range(4)} <= {"PASS", "INVALID"}  # what was written before is run
    assert verdicts.pop("number") == "FAIL"  # an integer of 5,000 digits is compared as any other
    assert verdicts == dict.fromkeys(("modules", "mode", "nonsense"), "ERROR")
    for name in verdicts:
        assert result.of(f"{name}@eager")["reason"].startswith("the worker failed while it had this case"), name


def test_a_hang_ends_at_its_own_timeout(ran: Result) -> None:
    assert ran.of("victim@deadly:hang")["seconds"] >= 8


def test_junit_tells_crash_timeout_and_memory_apart(ran: Result) -> None:
    types = {
        case.get("name", "").rpartition(":")[2]: error.get("type")
        for case in ran.junit.iter("testcase")
        for error in case.iter("error")
    }
    assert types.pop("silent") in ("no-result", "exception")
    assert types == {
        "segfault": "crash", "segfault_later": "crash", "abort": "crash", "hang": "timeout", "memory": "memory", "one_huge_piece": "memory",
    }  # fmt: skip


# --- the runner itself is stopped ------------------------------------------------------------------------


def begin(folder: Path, library: Path, mark: str) -> subprocess.Popen[str]:
    """A run that has finished a case and now is in a slow one."""
    write(
        folder, {"slow.spec.yaml": spec(*[f"name: case_{n}\ninputs: {{x: [4]}}\nchain: [torch.neg]" for n in range(4)])}
    )
    words = command(
        "run",
        "slow.spec.yaml",
        "--backend",
        "eager",
        "--backend",
        "deadly:slow",
        "-j",
        2,
        "--junit",
        "out.xml",
        "--events",
        "log.jsonl",
    )
    changes = {"PYTHONPATH": str(library), "DEATHS": mark}
    return subprocess.Popen(
        words,
        cwd=folder,
        env=environment(changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_until(condition: Callable[[], bool], limit: float = 90) -> None:
    until = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_interrupting_ends_quickly_with_reports(number: signal.Signals, library: Path, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    process = begin(tmp_path, library, mark)
    log = tmp_path / "log.jsonl"
    wait_until(
        lambda: process.poll() is not None or (log.exists() and log.read_text().count('"variant-finished"') >= 1)
    )
    time.sleep(0.5)
    # As a terminal does it, Ctrl-C goes to the whole group; a supervisor ends the runner alone.
    (os.killpg if number is signal.SIGINT else os.kill)(process.pid, number)
    began = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 8
    assert process.returncode == 2
    assert "Traceback" not in err
    assert ", interrupted" in out
    assert re.search(r"^slow\.spec\.yaml::case_3.* NOT-RUN", out, re.MULTILINE), out
    assert not processes_of(mark)
    root = ElementTree.parse(tmp_path / "out.xml").getroot()
    waiting = root.findall(".//skipped[@type='not-run']")
    assert len([*root.iter("testcase")]) == 8
    assert 4 <= len(waiting) < 8
    result = Result(2, out, err, tmp_path, (tmp_path / ".runner" / "latest").resolve())
    assert result.events[-1]["event"] == "run-finished"
    assert result.events[-1]["interrupted"] is True
    assert len(result.finished) == 8 - len(waiting)
    assert set(result.verdicts.values()) == {"PASS"}


@pytest.mark.parametrize(
    ("times", "backends"), [(4, ("eager",)), pytest.param(12, ("aot_eager", "inductor"), marks=pytest.mark.nightly)]
)
def test_killed_at_any_moment_it_leaves_a_whole_report_and_no_process(
    times: int, backends: tuple[str, ...], tmp_path: Path
) -> None:
    kills, problems = kill_often(tmp_path, times, backends)
    assert not problems, "\n".join(problems)
    assert kills >= times // 2


def test_what_a_killed_run_leaves_wrong_is_seen(tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    report = tmp_path / "report.xml"
    report.write_text('<testsuites><testsuite><testcase classname="a" name="x"/></testsuite></testsuites>')
    whole = {("a", "x"), ("a", "y")}
    assert "lacks [('a', 'y')]" in report_problems(report, whole)[0]
    report.write_text("<testsuites><testsuite>")
    assert "cannot be read" in report_problems(report, whole)[0]
    (tmp_path / LOG).write_text('{"torn\n{"event": "run-started"}\n')
    assert "broken line" in journal_problems(tmp_path)[0]
    mark = uuid.uuid4().hex
    sleeper = subprocess.Popen(["sleep", "60"], env={kill.MARK: mark})
    try:
        wait_until(lambda: bool(kill.marked(mark)), 5)
        assert "sleep" in kill.leftovers(mark, patience=0.2)[0]
    finally:
        sleeper.kill()
        sleeper.wait()
    assert kill.leftovers(mark) == []
