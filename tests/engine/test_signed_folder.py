"""A folder of compiled code: what a run finds in it, whatever has happened between two runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.engine import kernel_caches
from runner.engine.kernel_caches import SignedFolder
from tests.handmade import Dig

FILES = (
    "fxgraph/ab/key/graph",
    "ab/kernel.so",
    "ab/kernel.py",
    "triton/hash/kernel.cubin",
    "headers/x.h",
    "locks/x.lock",
)


def compile_into(path: Path, *names: str) -> None:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"compiled {name}")


def files(path: Path) -> set[str]:
    return {str(each.relative_to(path)) for each in path.rglob("*") if not each.is_dir() or each.is_symlink()}


def run(path: Path, *names: str) -> int:
    """What a run does that compiles some files: the number of files that it has removed."""
    folder = SignedFolder(path)
    count = folder.enter()
    compile_into(path, *names)
    folder.leave()
    return count


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder that a run has filled."""
    path = tmp_path / "digest"
    path.mkdir()
    assert run(path, *FILES) == 0
    return path


def test_later_runs_find_what_earlier_ones_have_compiled(path: Path) -> None:
    assert run(path, "more/kernel.so") == 0
    assert run(path) == 0 and files(path) == {*FILES, "more/kernel.so"}


def test_a_manifest_is_written_only_where_something_has_changed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.engine.contents._GRAIN", -(10**12))
    run(path)
    before = path.with_suffix(".manifest").stat().st_ino
    run(path)
    assert path.with_suffix(".manifest").stat().st_ino == before


def test_a_cache_that_was_copied_is_the_same(path: Path, tmp_path: Path) -> None:
    """As a job restores it: other inodes and times."""
    shutil.copytree(path, tmp_path / "kept")
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "kept", path, copy_function=shutil.copyfile)
    assert run(path) == 0 and files(path) == {*FILES}


def same_size_and_time(path: Path) -> None:
    file = path / "ab/kernel.so"
    status, content = file.stat(), file.read_bytes()
    file.write_bytes(content[::-1])
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def linked(path: Path) -> None:
    (path / "ab/kernel.so").rename(path.parent / "kernel.so")
    (path / "ab/kernel.so").symlink_to(path.parent / "kernel.so")


def linked_folder(path: Path) -> None:
    (path / "ab").rename(path.parent / "ab")
    (path / "ab").symlink_to(path.parent / "ab")


def folder_for_file(path: Path) -> None:
    (path / "ab/kernel.so").unlink()
    (path / "ab/kernel.so/deep").mkdir(parents=True)


ATTACKS: dict[str, tuple[Callable[[Path], object], set[str], int]] = {
    "a new file": (lambda path: compile_into(path, "zz/kernel.so"), set(), 1),
    "a new file at the top": (lambda path: compile_into(path, "memoizer_cache.json"), set(), 1),
    "another content": (lambda path: (path / "ab/kernel.so").write_text("another content"), {"ab/kernel.so"}, 1),
    "another content of the same size and time": (same_size_and_time, {"ab/kernel.so"}, 1),
    "a file cut short": (lambda path: os.truncate(path / "fxgraph/ab/key/graph", 5), {"fxgraph/ab/key/graph"}, 1),
    "an empty file": (lambda path: os.truncate(path / "triton/hash/kernel.cubin", 0), {"triton/hash/kernel.cubin"}, 1),
    "two files exchanged": (
        lambda path: shutil.copy(path / "ab/kernel.py", path / "ab/kernel.so"),
        {"ab/kernel.so"},
        1,
    ),
    "a link for a file": (linked, {"ab/kernel.so"}, 1),
    "a link for a folder": (linked_folder, {"ab/kernel.so", "ab/kernel.py"}, 1),
    "a link to nothing": (lambda path: (path / "new").symlink_to("/no/such"), set(), 1),
    "a pipe": (lambda path: os.mkfifo(path / "new"), set(), 1),
    "a folder for a file": (folder_for_file, {"ab/kernel.so"}, 0),
    "a file gone": (lambda path: (path / "ab/kernel.so").unlink(), {"ab/kernel.so"}, 0),
    "no manifest": (lambda path: path.with_suffix(".manifest").unlink(), {*FILES}, 6),
    "a spoilt manifest": (lambda path: os.truncate(path.with_suffix(".manifest"), 100), {*FILES}, 6),
    "a manifest of everybody": (lambda path: path.with_suffix(".manifest").write_text("\n{}"), {*FILES}, 6),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_was_not_signed_goes_and_nothing_else(path: Path, name: str) -> None:
    attack, lost, count = ATTACKS[name]
    attack(path)
    outside = {each for each in path.parent.rglob("*") if path not in each.parents and each.suffix != ".manifest"}
    assert run(path) == count and files(path) == {*FILES} - lost
    assert not [each for each in path.rglob("*") if each.is_dir() and not [*each.iterdir()]], (
        "torch may want a file there"
    )
    assert all(each.exists() for each in outside), "what is behind a link stays"
    assert run(path, *FILES) == 0 and files(path) == {*FILES}


def test_a_deep_folder_of_a_case_costs_no_later_run_its_cache(path: Path, dig: Dig) -> None:
    folder = SignedFolder(path)
    assert folder.enter() == 0
    dig(path)
    compile_into(path, "more/kernel.so")
    folder.leave()
    dig(path / "more")
    assert run(path) == 1 and {*FILES, "more/kernel.so"} <= files(path)
    assert run(path) == 0 and not (path / "d").exists()


def test_a_manifest_of_another_key_or_place_counts_for_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(path, moved)
    shutil.copy(path.with_suffix(".manifest"), moved.with_suffix(".manifest"))
    assert run(moved) == 6 and files(moved) == set()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert run(path) == 6 and files(path) == set()


def test_two_runs_at_once_use_one_folder_and_the_last_one_signs(path: Path) -> None:
    first, second = SignedFolder(path), SignedFolder(path)
    assert first.enter() == 0
    compile_into(path, "first/kernel.so")
    assert second.enter() == 0
    compile_into(path, "second/kernel.so")
    before = path.with_suffix(".manifest").read_bytes()
    first.leave()
    assert path.with_suffix(".manifest").read_bytes() == before, "the second may be writing"
    third = SignedFolder(path)
    assert third.enter() == 0 and files(path) == {*FILES, "first/kernel.so", "second/kernel.so"}
    compile_into(path, "third/kernel.so")
    second.leave()
    third.leave()
    assert run(path) == 0
    assert files(path) == {*FILES, "first/kernel.so", "second/kernel.so", "third/kernel.so"}


def test_a_run_waits_for_one_that_sweeps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, order = SignedFolder._sweep, []

    def slowly(self: SignedFolder) -> int:
        time.sleep(0.5)
        order.append("swept")
        return sweep(self)

    monkeypatch.setattr(SignedFolder, "_sweep", slowly)
    first, second = SignedFolder(path), SignedFolder(path)
    thread = threading.Thread(target=first.enter)
    thread.start()
    time.sleep(0.2)
    second.enter()
    order.append("entered")
    thread.join()
    assert order[0] == "swept" and order[-1] == "entered"
    first.leave()
    second.leave()


def test_a_run_that_finds_it_locked_for_long_does_without(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_caches, "PATIENCE", 0.2)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="locked"):
            SignedFolder(path).enter()


def test_files_of_a_run_that_was_killed_go(path: Path) -> None:
    child = os.fork()
    if not child:
        SignedFolder(path).enter()
        compile_into(path, "killed/kernel.so", "killed/kernel.cpp")
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert run(path) == 2 and files(path) == {*FILES}


def test_what_a_killed_compiler_has_begun_is_not_signed(path: Path) -> None:
    begun = ("ab/half.so", "ab/half.cpp", "ab/half_CxxBuild/x.o", "ab/.12.34.tmp", "ab/halfway.so")
    assert run(path, *begun) == 0
    assert run(path) == 0 and files(path) == {*FILES, "ab/halfway.so"}
    (path / "ab/other_CxxBuild").mkdir()
    run(path)
    assert not (path / "ab/other_CxxBuild").exists()


def test_the_oldest_graphs_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_caches, "SIZE", 500)
    folder = SignedFolder(path)
    folder.enter()
    for name in kernel_caches.GRAPHS:
        for number in range(10):
            file = path / name / "ab" / f"key{number}" / "graph"
            file.parent.mkdir(parents=True)
            file.write_bytes(b"x" * 100)
            os.utime(file, (1000 + number, 1000 + number))
    folder.leave()
    for name in kernel_caches.GRAPHS:
        kept = sorted(each.parent.name for each in path.glob(f"{name}/ab/key?/graph"))
        assert kept == [f"key{number}" for number in range(6, 10)]
    assert (path / "ab/kernel.so").exists()
