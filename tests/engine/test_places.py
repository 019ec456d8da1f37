"""What lies at places: what changes their digest, and of which nobody can tell."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.engine import contents
from runner.engine.contents import Places


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that counts as older than what looks at it."""
    monkeypatch.setattr(contents, "_TICK", -(10**10))
    path = tmp_path / "package"
    (path / "part").mkdir(parents=True)
    (path / "__init__.py").write_text("one")
    (path / "part" / "data.json").write_text("{}")
    return path


def digest(*paths: Path) -> str:
    return Places().digest(map(str, paths))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file": lambda path: (path / "__init__.py").write_text("two"),
    "data": lambda path: (path / "part" / "data.json").write_text("[]"),
    "a new file": lambda path: (path / "part" / "new.py").write_text(""),
    "a file gone": lambda path: (path / "__init__.py").unlink(),
    "a name": lambda path: (path / "__init__.py").rename(path / "other.py"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_below_a_place_is_noticed(package: Path, name: str) -> None:
    before = digest(package)
    assert len(before) == 64 and digest(package) == before
    CHANGES[name](package)
    assert digest(package) != before


def test_compiled_modules_beside_their_source_do_not_count(package: Path) -> None:
    before = digest(package)
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").write_text("")
    assert digest(package) == before


def test_the_order_and_the_folder_around_do_not_count(package: Path, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("one")
    assert digest(package, module) == digest(module, package) != digest(package)
    before = Places().digests([str(package)])
    package.parent.joinpath("elsewhere").mkdir()
    assert Places().digests([str(package.rename(tmp_path / "elsewhere" / "package"))]) == before


def test_nobody_can_tell_of_a_place_that_is_gone_or_is_newer_than_the_process(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert digest(package, tmp_path / "gone") == ""
    monkeypatch.setattr(contents, "_TICK", 0)
    looking = Places()
    (package / "part" / "new.py").write_text("a process may have loaded what was here before")
    assert looking.digest([str(package)]) == ""


def test_a_link_that_is_turned_is_noticed(package: Path, tmp_path: Path) -> None:
    link = tmp_path / "libx.so.1"
    digests = []
    for version in ("1.1", "1.2"):
        (tmp_path / f"libx.so.{version}").write_text(version)
        link.unlink(missing_ok=True)
        link.symlink_to(f"libx.so.{version}")
        digests.append(digest(link))
    assert digests[0] != digests[1]


def test_files_are_read_once_by_a_memo(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, seen = contents._read, []
    monkeypatch.setattr(contents, "_read", lambda path, stamp: seen.append(path) or read(path, stamp))
    monkeypatch.setattr(contents, "_GRAIN", -(10**12))
    monkeypatch.setenv("HOME", str(tmp_path))
    for _ in range(2):
        looking = Places(tmp_path / ".cache" / "memo")
        looking.digest([str(package)])
        looking.save()
    assert len(seen) == 2
    looking = Places(tmp_path / ".cache" / "memo")  # what it is not asked of stays known
    looking.digests([os.devnull])
    looking.save()
    Places(tmp_path / ".cache" / "memo").digest([str(package)])
    assert [path for path in seen if path != os.devnull] == seen[:2]
