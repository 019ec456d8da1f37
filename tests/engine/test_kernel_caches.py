"""Which folders of compiled code the workers of a run are given, and what is said of others."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from engine_jobs import finish, job

from runner.engine import interpreters
from runner.engine.cache_folders import cache_folder
from runner.engine.fingerprint import compilers_digest
from runner.engine.kernel_caches import KernelCaches
from runner.engine.local import Home, LocalEngine
from runner.record.signing import key_path

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
    given = caches.variables(sys.executable)
    caches.close()
    return [Path(given[name]) for name in NAMES], caches.notices(), caches.remarks()


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
    found = []
    for _ in range(2):
        with Home() as home:
            home.environ.update(fake)
            home.prepare([sys.executable])
            with LocalEngine({"here": sys.executable}, warm={"here": "none"}, home=home) as engine:
                result = finish(engine, job(write))["k"].result
                assert engine.notices() == engine.remarks() == []
        assert result["folder"] == str(own_folder()) and result["triton"] == result["folder"] + "/triton"
        found.append(result["found"])
    assert found == [False, True]
    Path(result["folder"], "planted.so").write_text("")
    with LocalEngine({"here": sys.executable}, warm={"here": "none"}, environ=fake) as engine:
        look = "import os; result['files'] = os.listdir(os.environ['TORCHINDUCTOR_CACHE_DIR'])"
        assert finish(engine, job(look))["k"].result["files"] == ["kernel.so"]
        assert "1 file of compiled code went" in engine.remarks()[0]


def test_a_zygote_that_imports_early_sees_no_folder_of_earlier_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, str]] = []

    def start(python: str, address: str, token: str, log: Path, environment: dict[str, str]) -> None:
        started.append(environment)
        raise OSError

    monkeypatch.setattr(interpreters, "start_worker", start)
    with Home() as home:
        home.prepare([sys.executable])
        assert started[0]["TORCHINDUCTOR_CACHE_DIR"] == str(home.caches.private)
