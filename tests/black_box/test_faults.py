"""Faults that a compiler or a machine may have: nothing is lost, the culprit is named, the others are unharmed.

Signals, hangs, memory and silent exits are in ``test_deaths.py``, a killed Ray worker in ``tests/engine/cluster/test_engine.py``.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import uuid
from pathlib import Path

import pytest

from .driver import KNOWN_ISA, LIMIT, STAND_IN, Result, command, environment, latest, processes_of, run_in, spec, write
from .test_deaths import wait_until

HARMFUL = """
    import ctypes
    import faulthandler
    import os
    import re
    import signal
    import subprocess
    import sys
    import threading
    import time


    def divided(module, inputs):
        os.kill(os.getpid(), signal.SIGFPE)


    def killed(module, inputs):
        os.kill(os.getpid(), signal.SIGKILL)


    def deep(module, inputs):
        sys.setrecursionlimit(1 << 30)
        threading.stack_size(1 << 20)
        compare = ctypes.CFUNCTYPE(ctypes.c_int)

        def down():
            return compare(down)()  # through C, so that Python's own counter does not stop it

        down()


    def leaves(module, inputs):
        sys.exit(0)


    def spins(module, inputs):
        while True:
            pass


    def spins_natively(module, inputs):
        re.match("(a+)+$", "a" * 64 + "b")


    def greedy(module, inputs):
        return module if bytearray(30 << 30) else None


    def talkative(module, inputs):
        sys.stdout.write("a line of output\\n" * 1_000_000)
        return module


    def closes_streams(module, inputs):
        os.close(1)
        os.close(2)
        return module


    def has_offspring(module, inputs):
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        return module


    def has_a_thread(module, inputs):
        threading.Thread(target=lambda: [time.sleep(1) for _ in iter(int, 1)]).start()
        return module
    """
FATAL = {
    "divided": (["signal"], "SIGFPE"),
    "killed": (["signal"], "SIGKILL"),
    "deep": (["signal"], "SIGSEGV"),
    "leaves": (["compile-error"], "SystemExit"),
    "spins": (["timeout"], "no answer after 6 s"),
    "spins_natively": (["timeout"], "no answer after 6 s"),
    "greedy": (["memory"], "out of memory"),
}
HARMLESS = ("talkative", "closes_streams", "has_offspring", "has_a_thread")


def cases(count: int, *texts: str) -> str:
    """A spec of small cases."""
    return spec(
        *texts, *[f"name: small_{n}\ninputs: {{x: [4]}}\nchain: [{{torch.add: [$x, {n}]}}]" for n in range(count)]
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """One run with every fault in it that a variant brings about itself, each beside survivors."""
    folder = tmp_path_factory.mktemp("faults")
    write(
        folder,
        {
            "harmful/__init__.py": HARMFUL,
            "a.spec.yaml": cases(4, "name: victim\ninputs: {x: [4]}\nchain: [torch.neg]\ntimeout: 6s"),
        },
    )
    flags = [word for name in (*FATAL, *HARMLESS) for word in ("--backend", f"harmful:{name}")]
    mark = uuid.uuid4().hex
    result = run_in(folder, "run", "a.spec.yaml", *flags, "--backend", "eager", "-j", 2, "--no-confirm",
                  "-k", "victim or backend:eager", env={"PYTHONPATH": str(folder), "FAULTS": mark})  # fmt: skip
    assert not processes_of(mark), "something outlived the run"
    return result


@pytest.mark.parametrize("name", FATAL)
def test_what_kills_a_variant_is_named(name: str, ran: Result) -> None:
    oracles, reason = FATAL[name]
    event = ran.of(f"victim@harmful:{name}")
    assert (event["verdict"], event["oracles"], event["stage"]) == ("ERROR", oracles, "backend"), event["reason"]
    assert reason in event["reason"]


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_no_harm_is_no_failure(name: str, ran: Result) -> None:
    assert ran.verdicts[f"victim@harmful:{name}"] == "PASS"


def test_the_others_are_unharmed(ran: Result) -> None:
    assert ran.code == 1
    assert {ran.verdicts[f"small_{n}@eager"] for n in range(4)} == {"PASS"}
    assert len(ran.finished) == len(FATAL) + len(HARMLESS) + 5


# --- the machine ----------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_compiler_that_sleeps_is_ended_with_its_variant(tmp_path: Path) -> None:
    compiler = tmp_path / "bin" / "g++"  # under the name of the real one, whose compiled headers then serve
    write(tmp_path, {
        "bin/g++": f"""\
            #!/bin/sh
            for word in "$@"; do case "$word" in *.cpp) grep -q 77.25 "$word" && sleep 600;; esac; done
            exec {shutil.which("g++")} "$@"
            """,
        "a.spec.yaml": cases(1, "name: slow\ninputs: {x: [4]}\nchain: [{torch.add: [$x, 77.25]}]\ntimeout: 10s"),
    })  # fmt: skip
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    mark = uuid.uuid4().hex
    result = run_in(tmp_path, "run", "a.spec.yaml", "--backend", "inductor", "--no-confirm", "-j", 2,
                  env={"PATH": f"{compiler.parent}:{os.environ['PATH']}", "FAULTS": mark, **KNOWN_ISA})  # fmt: skip
    assert result.verdicts == {"slow@inductor": "ERROR", "small_0@inductor": "PASS"}, result.text
    assert (result.of("slow@inductor")["oracles"], result.of("slow@inductor")["stage"]) == (["timeout"], "inductor")
    assert not processes_of(mark)


def in_small_disk(
    folder: Path, disk: Path, size: str, *words: object, **changes: str
) -> subprocess.CompletedProcess[str]:
    """Run the command where ``disk`` is a file system of ``size`` bytes, seen by this process alone."""
    disk.mkdir()
    mount = f'mount -t tmpfs -o size={size},mode=700 tmpfs "{disk}" && exec "$@"'
    probe = subprocess.run(["unshare", "-rm", "sh", "-c", mount, "sh", "true"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip("this machine lets nobody mount a small file system")
    return subprocess.run(["unshare", "-rm", "sh", "-c", mount, "sh", *command(*words)], cwd=folder, env=environment(changes),
                          capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)  # fmt: skip


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_full_disk_under_the_kernels_is_no_compiler_bug(tmp_path: Path) -> None:
    write(tmp_path, {"a.spec.yaml": cases(1)})
    disk = tmp_path / "disk"
    process = in_small_disk(tmp_path, disk, "64k", "run", "a.spec.yaml", "--backend", "inductor", "--backend", "aot_eager", "--no-confirm",
                         TORCHINDUCTOR_CACHE_DIR=str(disk), **KNOWN_ISA)  # fmt: skip
    result = Result(process.returncode, process.stdout, process.stderr, tmp_path, latest(tmp_path))
    assert result.code == 1, result.text
    assert "this machine cannot compile: " in result.out and "No space left on device" in result.out
    assert result.verdicts == {"small_0@aot_eager": "PASS", "small_0@inductor": "ERROR"}
    assert not result.of("small_0@inductor")["findings"]


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_full_disk_under_the_reports_loses_no_verdict(tmp_path: Path) -> None:
    """Nothing of it needs a process of its own: what counts is a report far beyond one page of the disk."""
    many = "name: many\ninputs: {x: [4]}\nparams: {n: NUMBERS}\nchain: [{torch.add: [$x, $n]}]\nrequires: {torch: '<2'}"
    write(tmp_path, {"a.spec.yaml": spec(many.replace("NUMBERS", str([*range(40)])))})
    disk = tmp_path / "disk"
    process = in_small_disk(
        tmp_path, disk, "4k", "run", "a.spec.yaml", "--backend", "eager", "--junit", disk / "report.xml"
    )
    assert process.returncode == 3, process.stdout + process.stderr
    assert "could not be written" in process.stdout and "40 skip" in process.stdout
    result = Result(process.returncode, process.stdout, process.stderr, tmp_path, latest(tmp_path))
    assert [event["verdict"] for event in result.finished.values()] == ["SKIP"] * 40


@pytest.mark.nightly
def test_a_cache_folder_that_vanishes(tmp_path: Path) -> None:
    write(tmp_path, {"a.spec.yaml": cases(3)})
    cache = tmp_path / "cache"
    words = command("run", "a.spec.yaml", "--backend", "inductor", "-j", 1, "--order", "plan")
    process = subprocess.Popen(words, cwd=tmp_path, env=environment({"TORCHINDUCTOR_CACHE_DIR": str(cache), **KNOWN_ISA}),
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
    log = tmp_path / ".runner" / "latest" / "events.jsonl"
    wait_until(lambda: process.poll() is not None or (log.exists() and '"variant-finished"' in log.read_text()), LIMIT)
    shutil.rmtree(cache, ignore_errors=True)
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0 and "3 passed" in out, out


def test_the_clock_set_back(stand_in_here: None, tmp_path: Path) -> None:
    """Every look at the clock is a minute before the last one."""
    back = """
        import datetime, time
        count, real, epoch = 0, datetime.datetime, time.time
        def seconds():
            global count
            count += 1
            return epoch() - 60 * count
        class Back(real):
            @classmethod
            def now(cls, tz=None):
                return real.fromtimestamp(seconds(), tz)
        time.time, datetime.datetime = seconds, Back
        """
    broken = "relu_accuracy_error_TESTING_ONLY"
    write(
        tmp_path,
        {"clock/sitecustomize.py": back, "a.spec.yaml": spec("name: a\ninputs: {x: [4]}\nchain: [torch.relu]")},
    )
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "clock"), *STAND_IN.values()])}
    words = ("run", "a.spec.yaml", "--backend", broken, "--backend", "eager", "-j", 1, "--no-confirm")
    first = run_in(tmp_path, *words, "--device", "cuda:99")  # nothing of it runs
    result = run_in(tmp_path, *words, env=env)
    assert (first.code, result.code) == (0, 1) and result.folder is not None and first.folder is not None, result.text
    assert result.folder.name < first.folder.name, "the clock did not go back"
    assert result.verdicts == {f"a@{broken}": "FAIL", "a@eager": "PASS"}
    assert all(0 <= event["seconds"] < LIMIT for event in result.finished.values())
    assert float(result.junit.get("time", "-1")) >= 0
    last = run_in(tmp_path, *words, "--lf", env=env)
    assert [*last.verdicts] == [f"a@{broken}"]


def children_of(pid: int) -> dict[int, str]:
    """The children of a process, with their command lines."""
    commands = {}
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and int(Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                commands[int(name)] = Path("/proc", name, "cmdline").read_bytes().decode(errors="replace")
        except (OSError, IndexError):
            continue
    return commands


def test_a_killed_server_is_replaced_and_nothing_is_lost(stand_in_here: None, tmp_path: Path) -> None:
    write(tmp_path, {"a.spec.yaml": cases(12)})
    process = subprocess.Popen(command("run", "a.spec.yaml", "--backend", "eager", "-j", 2), cwd=tmp_path,
                               env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
    log = tmp_path / ".runner" / "latest" / "events.jsonl"
    wait_until(lambda: log.exists() and log.read_text().count('"variant-finished"') >= 2, LIMIT)
    servers = [pid for pid, words in children_of(process.pid).items() if "worker/__main__.py" in words]
    assert servers
    for pid in servers:
        os.kill(pid, signal.SIGKILL)
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0 and "12 passed" in out, out
    assert log.read_text().count('"variant-finished"') == 12


def test_two_runners_in_one_folder(stand_in_here: None, tmp_path: Path) -> None:
    write(tmp_path, {"a.spec.yaml": cases(4)})
    processes = [
        subprocess.Popen(command("run", "a.spec.yaml", "--backend", "eager", "-j", 1, "--cached"), cwd=tmp_path,
                         env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]  # fmt: skip
    for process in processes:
        out, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 0 and "4 passed" in out, out
    runs = [*(tmp_path / ".runner" / "runs").iterdir()]
    assert len(runs) == 2
    assert all((run / "events.jsonl").read_text().count('"variant-finished"') == 4 for run in runs)
    assert latest(tmp_path) in [run.resolve() for run in runs]
    assert run_in(tmp_path, "run", "a.spec.yaml", "--backend", "eager", "--cached").out.count(" cached]") == 4


def test_output_that_nobody_takes(stand_in_here: None, tmp_path: Path) -> None:
    write(tmp_path, {"a.spec.yaml": cases(2)})
    words = subprocess.list2cmdline(command("run", "a.spec.yaml", "--backend", "eager"))
    process = subprocess.run(["sh", "-c", f"{words} >&- 2>&-"], cwd=tmp_path, env=environment(), timeout=LIMIT)
    assert process.returncode == 0
    result = Result(0, "", "", tmp_path, latest(tmp_path))
    assert set(result.verdicts.values()) == {"PASS"}


def test_five_thousand_variants_in_one_file(stand_in_here: None, tmp_path: Path) -> None:
    """Most need a torch that nobody has, so that no process runs for them; control still carries them."""
    many = "name: many\ninputs: {x: [4]}\nparams: {n: NUMBERS}\nchain: [{torch.add: [$x, $n]}]\nrequires: {torch: '<2'}"
    write(tmp_path, {"a.spec.yaml": cases(10, many.replace("NUMBERS", str([*range(4990)])))})
    result = run_in(tmp_path, "run", "a.spec.yaml", "--backend", "eager", "--no-confirm")
    assert result.code == 0, result.text[-2000:]
    words = [event["verdict"] for event in result.finished.values()]
    assert (len(words), words.count("PASS"), words.count("SKIP")) == (5000, 10, 4990)
    assert len([*result.junit.iter("testcase")]) == 5000
