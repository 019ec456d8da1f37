"""Temporary folders that go with their process, whatever ends it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_jobs import Make, one

from runner.engine import scratch
from runner.exit_codes import UsageError
from tests.handmade import Dig

HOLDER = "from runner.engine import scratch; print(scratch.make(), flush=True); input()"


@pytest.fixture(autouse=True)
def base(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A temporary folder with a short path: a long one is not used."""
    tmp_path_factory.getbasetemp()  # pytest's own, before the temporary folder is another one
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setattr(scratch, "_locks", {})
        yield Path(folder)


def test_a_folder_lasts_as_long_as_its_with(base: Path) -> None:
    with scratch.folder() as path:
        (path / "file").write_text("")
        assert path.parent == base
        scratch.sweep(base)
        assert (path / "file").exists()
    assert not path.exists()


def test_a_folder_goes_however_deep_a_case_has_made_it(base: Path, dig: Dig) -> None:
    with scratch.folder() as path:
        dig(path)
    assert not [*base.iterdir()]


def test_a_killed_process_leaves_nothing_for_long(base: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], env={**os.environ, "TMPDIR": str(base)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None
        path = Path(holder.stdout.readline().strip())
        assert path.parent == base
        scratch.sweep(base)
        assert path.is_dir()  # it lives
        holder.kill()
    (path / "below").mkdir()
    own_folder = scratch.make()  # sweeps first
    assert [*base.iterdir()] == [own_folder]
    scratch.remove(own_folder)


def test_a_sweep_between_the_making_of_a_folder_and_its_lock(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, swept = tempfile.mkdtemp, []

    def swept_at_once(prefix: str, dir: str) -> str:
        path = make(prefix=prefix, dir=dir)
        if not swept:
            swept.append(path)
            scratch.sweep(base)  # as by another process that starts now
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", swept_at_once)
    path = scratch.make()
    assert swept and [*base.iterdir()] == [path] and str(path) not in swept
    scratch.remove(path)


def test_folders_of_another_prefix(base: Path) -> None:
    path = scratch.make("runner-other-", len(os.fsencode(base)))
    assert path.parent == base and path.name.startswith("runner-other-")
    (base / "runner-other-old").mkdir()
    scratch.sweep(base)
    assert (base / "runner-other-old").is_dir()  # the sweep is for another prefix
    scratch.sweep(base, "runner-other-")
    assert [*base.iterdir()] == [path]
    scratch.remove(path)
    path = scratch.make("runner-other-", len(os.fsencode(base)) - 1)
    assert path.parent == Path("/tmp")
    scratch.remove(path)


@pytest.mark.parametrize("name", ["a b", "a'b", 'a"b', "a\\b", "a\nb"])
def test_a_folder_in_which_torch_could_not_compile_is_not_used(
    base: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(base / name))
    path = scratch.make()
    assert path.parent == Path("/tmp") and path.stat().st_mode & 0o777 == 0o700
    scratch.remove(path)
    chosen = str(base / "chosen")
    environ = {
        "TMPDIR": str(base / name),
        "TORCHINDUCTOR_CACHE_DIR": str(base / name),
        "TRITON_CACHE_DIR": str(base / name),
    }
    compiled = scratch.compile_environment(environ)
    assert compiled == {"TMPDIR": "/tmp", "TRITON_CACHE_DIR": str(base / name)}
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    environ = {"TMPDIR": str(base), "TORCHINDUCTOR_CACHE_DIR": chosen}
    assert scratch.compile_environment(environ) == environ
    for fine in ("a$HOME", "a;b", "ü", "a%sb", "a#b"):
        assert scratch.compile_problem(f"/{fine}") == ""


def test_what_is_not_ours_stays(base: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("")
    (base / "runner-abcdefgh").mkdir()  # a run that was kept here, since its own folder could not be written
    (base / f"{scratch.PREFIX}link").symlink_to(elsewhere)
    (base / f"{scratch.PREFIX}file").write_text("")
    inner = base / f"{scratch.PREFIX}old"
    inner.mkdir()
    (inner / "link").symlink_to(elsewhere)
    scratch.sweep(base)
    assert not inner.exists()
    assert (elsewhere / "kept").exists()
    assert {path.name.removeprefix(scratch.PREFIX) for path in base.iterdir()} == {"runner-abcdefgh", "link", "file"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a folder away")
def test_another_users_folder_stays(base: Path) -> None:
    foreign_folder = base / f"{scratch.PREFIX}theirs"
    foreign_folder.mkdir()
    os.chown(foreign_folder, 12345, 12345)
    scratch.sweep(base)
    assert foreign_folder.exists()


def test_no_place_at_all_is_said(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(base / "none"))
    with pytest.raises(UsageError, match=r"no temporary folder can be made: No such file.*TMPDIR") as caught:
        scratch.make()
    assert caught.value.code == 3


def test_what_a_killed_job_wrote_goes_with_the_engine(make: Make, base: Path) -> None:
    engine = make()
    source = """
        import os, signal
        from runner.worker.processes import temporary_folder
        with temporary_folder() as folder:
            print(folder, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    outcome = one(engine, source)
    path = Path(outcome.output.strip())
    assert outcome.signal == "SIGKILL" and path.is_relative_to(base) and path.is_dir()
    engine.close()
    assert [*base.iterdir()] == []


def test_a_folder_that_a_case_has_locked_or_replaced_is_removed(base: Path) -> None:
    locked, replaced = scratch.make(), scratch.make()
    (locked / "a" / "b").mkdir(parents=True)
    (locked / "link").symlink_to(base)
    for path in (locked / "a" / "b", locked / "a", locked):
        path.chmod(0)
    (base / "own").mkdir(mode=0o500)
    replaced.rmdir()
    replaced.symlink_to(base / "own")
    for path in (locked, replaced):
        scratch.remove(path)
    assert [path.name for path in base.iterdir()] == ["own"] and (base / "own").stat().st_mode & 0o777 == 0o500
