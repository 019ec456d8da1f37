"""The process table, or the part of it that begins at some processes, and how much of what they hold counts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from runner.engine import process_tree
from runner.engine.process_tree import ALLOWANCE, Meter, Process, is_compiler, machine_memory, over_limit


def test_a_tree_holds_descendants_and_no_others() -> None:
    script = "import subprocess, sys; p = subprocess.Popen(['sleep', '100']); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as below:
        assert below.stdout is not None
        grandchild = int(below.stdout.readline())
        tree = process_tree.trees([below.pid])
        whole = process_tree.processes()
        os.kill(grandchild, 9)
    assert set(tree) == {below.pid, grandchild} and tree[grandchild].parent == below.pid
    assert tree[grandchild].name == "sleep" and set(tree) <= set(whole)


@pytest.mark.parametrize("numbers", [(8, 9, 16), (16, 9, 8), (9, 16, 8), (100, 7, 99)], ids=str)
def test_parents_come_before_their_children(numbers: tuple[int, int, int]) -> None:
    """A server that sees its job end by our signal, and not yet its own, reports the signal as the job's fault."""
    zygote, server, job = numbers
    parents = {zygote: 1, server: zygote, job: server}
    table = {number: _process(number, parents[number]) for number in sorted(numbers)}
    assert [process.pid for process in process_tree.tree_members(zygote, table)] == [zygote, server, job]


def test_a_circle_of_parents_has_an_end() -> None:
    table = {7: _process(7, 1), 8: _process(8, 9, group=7), 9: _process(9, 8, group=7)}
    assert {process.pid for process in process_tree.tree_members(7, table)} == {7, 8, 9}


def _process(number: int, parent: int, group: int = 0) -> process_tree.Process:
    return process_tree.Process(
        pid=number, parent=parent, group=group or number, session=number, zombie=False, resident=1, copy=False, name="x"
    )


def test_children_of_every_thread_are_found() -> None:
    started: list[subprocess.Popen[bytes]] = []
    go = threading.Event()

    def start() -> None:
        started.append(subprocess.Popen(["sleep", "100"]))
        go.wait()

    thread = threading.Thread(target=start)
    thread.start()
    try:
        while not started:
            pass
        assert started[0].pid in process_tree.trees([os.getpid()])
    finally:
        go.set()
        thread.join()
        started[0].kill()
        started[0].wait()


def test_where_the_kernel_lists_no_children_the_whole_table_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "_children", lambda pid: None)
    assert os.getppid() in process_tree.trees([os.getpid()])


def test_a_process_that_is_gone() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert process_tree.stat(ended.pid) is None and process_tree.trees([ended.pid]) == {}


SERVER, JOB = 900_000_001, 900_000_002  # beyond what Linux gives out, so that nothing is read from a real process
MIB = 1 << 20


def table(*lines: tuple[int, int, str, int, bool]) -> dict[int, Process]:
    """A server of 500 MiB, and ``lines`` of pid, parent, name, MiB, copy."""
    everyone = [(SERVER, 1, "python3", 500, False), *lines]
    return {
        pid: Process(pid, parent, JOB, JOB, False, size * MIB, copy, name)
        for pid, parent, name, size, copy in everyone
        if pid != SERVER
    } | {SERVER: Process(SERVER, 1, SERVER, SERVER, False, 500 * MIB, False, "python3")}


def test_what_the_server_held_does_not_count() -> None:
    assert Meter(JOB).read(table((JOB, SERVER, "python3", 600, True))) == (100 * MIB, 0)
    assert Meter(JOB).read(table((JOB, SERVER, "python3", 400, True))) == (0, 0)


def test_what_a_living_worker_held_before_its_job_does_not_count() -> None:
    meter = Meter(JOB, 650 * MIB)
    assert meter.read(table((JOB, SERVER, "python3", 600, True))) == (0, 0)
    assert meter.read(table((JOB, SERVER, "python3", 700, True), (3, JOB, "sort", 5, False))) == (55 * MIB, 0)


def test_what_a_copy_shared_at_first_sight_does_not_count() -> None:
    meter = Meter(JOB)
    job = (JOB, SERVER, "python3", 700, True)
    assert meter.read(table(job, (3, JOB, "python3", 700, True)))[0] == 200 * MIB  # on its way to another program
    assert meter.read(table((JOB, SERVER, "python3", 900, True), (3, JOB, "python3", 800, True)))[0] == 500 * MIB
    assert meter.read(table(job, (3, JOB, "python3", 30, False)))[0] == 230 * MIB  # now it has started one


def test_compilers_and_what_they_start_are_apart() -> None:
    memory = Meter(JOB).read(
        table(
            (JOB, SERVER, "python3", 600, True),
            (3, JOB, "sh", 1, False),
            (4, 3, "g++", 2, False),
            (5, 4, "cc1plus", 700, False),
            (6, JOB, "nvcc", 3, False),
            (7, 6, "sh", 1, False),
            (8, 7, "no-such-pass", 40, False),
            (9, JOB, "sort", 5, False),
        )
    )
    assert memory == (106 * MIB, 746 * MIB)


def test_a_job_that_calls_itself_a_compiler_is_none() -> None:
    assert Meter(JOB).read(table((JOB, SERVER, "cc1plus", 600, True))) == (100 * MIB, 0)


def test_only_what_passes_the_limit_is_reported() -> None:
    assert over_limit(512 * MIB, ALLOWANCE, 512 * MIB) == ""
    assert over_limit(1024 * MIB, 0, 512 * MIB) == "resident set 1.0 GiB passed the limit of 512 MiB"
    assert over_limit(256 * MIB, ALLOWANCE + 512 * MIB, 512 * MIB) == (
        "resident set 256 MiB and compilers 512 MiB beyond their 2.0 GiB passed the limit of 512 MiB"
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, True) for name in ("cc1plus", "clang++-17", "aarch64-linux-gnu-g++-12", "ld.lld", "ptxas")),
        *((name, False) for name in ("python3.11", "python3", "world", "cat", "", "g++-wrapper")),
    ],
)
def test_names_of_compilers(name: str, expected: bool) -> None:
    assert is_compiler(Process(JOB, 1, 1, 1, False, 0, False, name)) is expected


def test_this_machine_has_memory() -> None:
    assert machine_memory() > 64 * MIB
