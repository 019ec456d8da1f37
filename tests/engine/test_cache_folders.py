"""Folders that code is loaded from, and who else may write to them."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner.engine import cache_folders
from runner.engine.cache_folders import cache_folder, make_folder, make_own_folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o755)
    monkeypatch.setenv("HOME", str(path))
    return path


def test_folders_are_made_for_the_user_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    folder = cache_folder("python3")
    assert folder.parent == home / ".cache" / "torch-spec-runner" and cache_folder("python3.999") != folder
    assert make_own_folder(folder) == ""
    assert {path.stat().st_mode & 0o777 for path in (folder, folder.parent, folder.parent.parent)} == {0o700}
    folder.chmod(0o755)
    assert make_own_folder(folder) == "" and folder.stat().st_mode & 0o777 == 0o700


def test_without_a_home_no_folder_is_made(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder("python3").is_relative_to(home)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user that the system does not know
    monkeypatch.chdir(home)
    with pytest.raises(FileNotFoundError, match="no home"):
        make_own_folder(cache_folder("python3"))
    assert [*home.iterdir()] == []


@pytest.mark.parametrize("part", ["", "cache", "cache/mine", "cache/mine/folder"])
@pytest.mark.parametrize("mode", [0o777, 0o757, 0o775])
def test_a_part_that_others_may_write_to_is_named(
    home: Path, part: str, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_folders, "_is_private", lambda group: False)
    folder = home / "cache" / "mine" / "folder"
    folder.mkdir(parents=True)
    (home / part).chmod(mode)
    says = f"others may write to {(home / part)} (mode {mode:04o}): chmod go-w {home / part}".replace("/ ", " ")
    assert make_folder(folder) == says
    os.system(says.partition("): ")[2])
    assert make_folder(folder) == ""


def test_a_private_group_is_nobody_else(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home / "cache"
    folder.mkdir()
    folder.chmod(0o775)
    user = SimpleNamespace(pw_name="me", pw_gid=folder.stat().st_gid)
    monkeypatch.setattr(pwd, "getpwuid", lambda number: user)
    for name, members, is_private in (
        ("me", [], True),
        ("me", ["me"], True),
        ("me", ["you"], False),
        ("users", [], False),
    ):
        cache_folders._is_private.cache_clear()
        monkeypatch.setattr(grp, "getgrgid", lambda number: SimpleNamespace(gr_name=name, gr_mem=members))  # noqa: B023
        assert (make_folder(folder) == "") == is_private
    cache_folders._is_private.cache_clear()


def test_what_lies_above_the_home_is_the_system_s(home: Path) -> None:
    home.parent.chmod(0o777)
    assert make_folder(home / "cache") == ""


def test_a_folder_of_everybody_may_lie_on_the_way(home: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    assert make_folder(shared / "mine") == "" and (shared / "mine").stat().st_mode & 0o777 == 0o700
    assert "mode 1777" in make_folder(shared)
    shared.chmod(0o777)
    assert "mode 0777" in make_folder(shared / "mine")


def test_a_part_of_another_user_is_refused(home: Path, tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("only root can give a folder away")
    shared = tmp_path / "shared"
    (shared / "mine").mkdir(parents=True)
    shared.chmod(0o1777)
    os.chown(shared / "mine", 1234, -1)
    assert make_folder(shared / "mine" / "folder") == f"{shared / 'mine'} belongs to another user (1234)"
    (shared / "link").symlink_to(home)
    os.lchown(shared / "link", 1234, -1)
    assert make_folder(shared / "link" / "folder") == f"{shared / 'link'} belongs to another user (1234)"


def test_a_link_is_followed_and_its_target_s_parts_count(home: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (disk / "me").mkdir(parents=True)
    (home / ".cache").symlink_to("../disk/me")
    assert make_own_folder(home / ".cache" / "torch-spec-runner" / "digest") == ""
    assert (disk / "me" / "torch-spec-runner" / "digest").is_dir()
    disk.chmod(0o777)
    assert f"others may write to {disk} " in make_folder(home / ".cache" / "more")
    (home / "loop").symlink_to("loop")
    with pytest.raises(OSError):
        make_folder(home / "loop")


@pytest.mark.parametrize("name", ["torch-spec-runner", "torch-spec-runner/digest"])
def test_a_link_in_place_of_the_runner_s_own_folder_is_refused(home: Path, name: str) -> None:
    """What lies behind it would be removed."""
    (home / "documents" / "digest").mkdir(parents=True)
    (home / "torch-spec-runner").mkdir() if "/" in name else None
    (home / name).symlink_to(home / "documents")
    assert make_own_folder(home / "torch-spec-runner" / "digest") == f"{home / name} is a link: remove it"
