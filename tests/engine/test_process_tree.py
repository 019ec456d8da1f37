"""The process table, or the part of it that begins at some processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from runner.engine import process_tree


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
