"""Which folders of compiled code the workers of a run are given, and what is said of others.

What a run finds in a signed folder, whatever has happened between two runs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_jobs import finish, job, texts

from runner.engine import caches, interpreters
from runner.engine.cache_folders import cache_folder
from runner.engine.caches import KernelCaches, SignedFolder
from runner.engine.fingerprint import compilers_digest
from runner.engine.local import LocalEngine
from runner.engine.servers import Home
from runner.record.signing import key_path
from tests.handmade import Dig

NAMES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, and folders of a user who has chosen none."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


def own_folder() -> Path:
    folder = cache_folder(sys.executable)
    return folder.with_name(f"{folder.name}-{compilers_digest(os.environ)[:16]}")


def ask(tmp_path: Path) -> tuple[list[Path], list[str], list[str]]:
    """Return what workers are given, the notices and the remarks of a run whose private folder is ``private``."""
    caches = KernelCaches(tmp_path / "private")
    given = caches.prepare(sys.executable).result()
    caches.close()
    notices, remarks = ([n.message for n in caches.notices() if n.severity == word] for word in ("warning", "info"))
    return [Path(given[name]) for name in NAMES], notices, remarks


def test_usually_one_folder_holds_all(folders: Path) -> None:
    own = own_folder()
    assert ask(folders) == ([own, own / "triton"], [], []) == ask(folders)
    assert own.parent.parent == folders / "XDG_CACHE_HOME" and own.stat().st_mode & 0o777 == 0o700


def test_what_one_compiler_made_is_not_given_to_another_behind_the_same_name(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = folders / "g++"
    monkeypatch.setenv("CXX", str(compiler))
    paths = []
    for comment in ("one", "two", "one"):
        compiler.write_text(f"#!/bin/sh\n# {comment}\necho g++ 12\n")
        compiler.chmod(0o755)
        paths.append(ask(folders)[0][0])
    assert paths[0] == paths[2] != paths[1]


@pytest.mark.parametrize("name", ["", *NAMES])
def test_a_folder_that_is_another_one_by_now_is_noticed(
    name: str, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name:
        monkeypatch.setenv(name, str(folders / "mine"))
    caches = KernelCaches(folders / "private")
    path = Path(caches.prepare(sys.executable).result()[name or NAMES[0]])
    (path / "kernel.so").touch()
    assert caches.is_whole()
    path.rename(folders / "elsewhere")
    assert not caches.is_whole()
    path.mkdir()
    assert not caches.is_whole()
    path.rmdir()
    (folders / "elsewhere").rename(path)
    assert caches.is_whole()
    caches.close()


def test_how_many_files_went_is_a_remark(folders: Path) -> None:
    ask(folders)
    for name in ("a.so", "b.so"):
        (own_folder() / name).write_text("strange")
    paths, notices, (remark,) = ask(folders)
    assert paths[0] == own_folder() and not notices
    assert remark.startswith("2 files of compiled code went, for this user has not signed them")


@pytest.mark.parametrize("part", ["HOME/.cache", "HOME/.cache/torch-spec-runner", "digest"])
def test_a_folder_that_others_may_write_to_is_not_used(
    folders: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    ask(folders)
    path = own_folder() if part == "digest" else folders / part
    path.chmod(0o777)
    paths, notices, remarks = ask(folders)
    digest = own_folder().name
    assert paths[0] == folders / "private" / digest and paths[1] == paths[0] / "triton" and not remarks
    assert notices == [f"others may write to {path} (mode 0777): chmod go-w {path}; this run uses a new folder"]
    path.chmod(0o700)
    assert ask(folders)[0][0] == own_folder()


@pytest.mark.parametrize("name", NAMES)
def test_a_chosen_folder_is_used_unless_others_may_write_to_it(
    folders: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = folders / "HOME" / "mine"
    chosen.mkdir()
    (chosen / "kernel.so").write_text("the user's own")
    monkeypatch.setenv(name, str(chosen))
    number = NAMES.index(name)
    for _ in range(2):
        paths, notices, _ = ask(folders)
        assert paths[number] == chosen and (chosen / "kernel.so").exists() and not notices
    chosen.chmod(0o777)
    paths, (notice,), _ = ask(folders)
    assert (
        chosen not in paths and f"{name}: others may write to {chosen}" in notice and f"chmod go-w {chosen}" in notice
    )


@pytest.mark.parametrize("name", ["a b", "a'b", 'a"b', "a\\b"])
def test_a_folder_in_which_torch_cannot_compile_is_not_used(
    folders: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = folders / "private" / own_folder().name
    monkeypatch.setenv("XDG_CACHE_HOME", str(folders / name))
    paths, notices, (remark,) = ask(folders)
    assert paths == [private, private / "triton"] and not notices and not own_folder().exists()
    assert remark.startswith(
        "what is compiled is kept for this run alone: torch compiles nothing in a path with a blank"
    )
    for variable in NAMES:
        monkeypatch.setenv(variable, str(folders / name))
    paths, (notice,), _ = ask(folders)
    assert paths == [private, folders / name]  # Triton calls its compilers by a list
    assert notice.startswith("TORCHINDUCTOR_CACHE_DIR: torch compiles nothing in a path with a blank")
    assert notice.endswith("; this run uses a new folder")


def test_without_a_key_nothing_of_earlier_runs_is_used(folders: Path) -> None:
    ask(folders)
    key_path().chmod(0o644)
    paths, notices, (remark,) = ask(folders)
    assert paths[0].parent == folders / "private" and not notices
    assert remark.startswith("what is compiled is kept for this run alone: ") and str(key_path()) in remark


def test_a_home_that_cannot_be_written_to_leads_to_a_folder_of_the_run(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And to none of a name in the temporary folder that somebody else can have made."""
    hostile = folders / f"torch-spec-runner-{os.getuid()}"
    hostile.mkdir(mode=0o777)
    monkeypatch.setattr("tempfile.tempdir", str(folders))
    (folders / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folders / "file"))
    paths, notices, (remark,) = ask(folders)
    assert paths[0].parent == folders / "private" and not notices and "Not a directory" in remark
    assert [*hostile.iterdir()] == []


def test_a_locked_folder_and_one_that_cannot_be_cleaned_are_left_alone(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(folders)
    (own_folder() / "new").write_text("")

    def fail(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "unlink", fail)
    paths, _, (remark,) = ask(folders)
    assert paths[0].parent == folders / "private" and "Permission denied" in remark


def test_workers_get_the_folders_and_the_last_engine_signs_what_they_write(fake: dict[str, str]) -> None:
    del fake["TORCHINDUCTOR_CACHE_DIR"]
    write = """
        import os, pathlib
        result["folder"] = os.environ["TORCHINDUCTOR_CACHE_DIR"]
        result["triton"] = os.environ["TRITON_CACHE_DIR"]
        path = pathlib.Path(result["folder"], "kernel.so")
        result["found"] = path.exists()
        path.write_text("")
    """
    flags = []
    for _ in range(2):
        with Home() as home:
            home.environ.update(fake)
            home.prepare([sys.executable])
            with LocalEngine({"here": sys.executable}, warm={"here": "none"}, home=home) as engine:
                result = finish(engine, job(write))["k"].result
                assert texts(engine) == []
        assert result["folder"] == str(own_folder()) and result["triton"] == result["folder"] + "/triton"
        flags.append(result["found"])
    assert flags == [False, True]
    Path(result["folder"], "planted.so").write_text("")
    with LocalEngine({"here": sys.executable}, warm={"here": "none"}, environ=fake) as engine:
        look = "import os; result['files'] = os.listdir(os.environ['TORCHINDUCTOR_CACHE_DIR'])"
        assert finish(engine, job(look))["k"].result["files"] == ["kernel.so"]
        assert "1 file of compiled code went" in texts(engine)[0]


def test_a_zygote_that_imports_early_sees_no_folder_of_earlier_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, str]] = []

    def start(python: str, address: str, token: str, log: Path, environment: dict[str, str]) -> None:
        started.append(environment)
        raise OSError

    monkeypatch.setattr(interpreters, "start_worker", start)
    with Home() as home:
        home.prepare([sys.executable])
        assert started[0]["TORCHINDUCTOR_CACHE_DIR"] == str(home.caches.private)


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
    return {str(entry.relative_to(path)) for entry in path.rglob("*") if not entry.is_dir() or entry.is_symlink()}


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
    monkeypatch.setattr("runner.engine.fingerprint._GRAIN", -(10**12))
    run(path)
    inode = path.with_suffix(".manifest").stat().st_ino
    run(path)
    assert path.with_suffix(".manifest").stat().st_ino == inode


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
    outside = {entry for entry in path.parent.rglob("*") if path not in entry.parents and entry.suffix != ".manifest"}
    assert run(path) == count and files(path) == {*FILES} - lost
    assert not [entry for entry in path.rglob("*") if entry.is_dir() and not [*entry.iterdir()]], (
        "torch may want a file there"
    )
    assert all(entry.exists() for entry in outside), "what is behind a link stays"
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
    new_path = tmp_path / "moved"
    shutil.copytree(path, new_path)
    shutil.copy(path.with_suffix(".manifest"), new_path.with_suffix(".manifest"))
    assert run(new_path) == 6 and files(new_path) == set()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert run(path) == 6 and files(path) == set()


def test_two_runs_at_once_use_one_folder_and_the_last_one_signs(path: Path) -> None:
    first, second = SignedFolder(path), SignedFolder(path)
    assert first.enter() == 0
    compile_into(path, "first/kernel.so")
    assert second.enter() == 0
    compile_into(path, "second/kernel.so")
    manifest = path.with_suffix(".manifest").read_bytes()
    first.leave()
    assert path.with_suffix(".manifest").read_bytes() == manifest, "the second may be writing"
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
    monkeypatch.setattr(caches, "PATIENCE", 0.2)
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
    monkeypatch.setattr(caches, "GRAPHS_SIZE", 500)
    folder = SignedFolder(path)
    folder.enter()
    for name in caches.GRAPHS:
        for number in range(10):
            file = path / name / "ab" / f"key{number}" / "graph"
            file.parent.mkdir(parents=True)
            file.write_bytes(b"x" * 100)
            os.utime(file, (1000 + number, 1000 + number))
    folder.leave()
    for name in caches.GRAPHS:
        keys = sorted(entry.parent.name for entry in path.glob(f"{name}/ab/key?/graph"))
        assert keys == [f"key{number}" for number in range(6, 10)]
    assert (path / "ab/kernel.so").exists()
