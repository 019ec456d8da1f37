"""What files and places hold: what a memo of it is worth, what changes a digest, and of which nobody can tell."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.engine import fingerprint
from runner.engine.fingerprint import Entry, Places, Stamp, read_memo, stamp_of, take_contents, write_memo


def looked_at(*paths: Path) -> dict[str, tuple[str, Stamp]]:
    return {path.name: (str(path), stamp_of(path.stat())) for path in paths}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that counts as old."""
    monkeypatch.setattr(fingerprint, "_GRAIN", -(10**12))
    path = tmp_path / "file"
    path.write_text("one")
    return path


def test_a_file_that_has_not_changed_is_not_read_again(file: Path) -> None:
    memo = {"file": Entry("what was known", stamp_of(file.stat()))}
    assert take_contents(looked_at(file), memo) == memo
    assert take_contents(looked_at(file), {"other": memo["file"]})["file"].digest != "what was known"


def test_a_change_that_keeps_size_and_time_is_read(file: Path) -> None:
    memo, status = take_contents(looked_at(file), {}), file.stat()
    file.write_text("two")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    again = take_contents(looked_at(file), memo)
    assert again["file"].digest != memo["file"].digest and take_contents(looked_at(file), again) == again


def test_a_file_that_has_just_changed_is_read_again(tmp_path: Path) -> None:
    """It may change once more within the grain of the clock."""
    file = tmp_path / "file"
    file.write_text("one")
    entry = take_contents(looked_at(file), {})["file"]
    assert entry.stamp == (3,)
    wrong = {"file": Entry("what was known", entry.stamp)}
    assert take_contents(looked_at(file), wrong) == {"file": entry}


def test_what_cannot_be_read_or_changes_meanwhile_is_left_out(file: Path, tmp_path: Path) -> None:
    files = looked_at(file)
    file.write_text("other")
    os.mkfifo(tmp_path / "pipe")
    assert take_contents({**files, **looked_at(tmp_path / "pipe"), "gone": ("/no/such", ())}, {}) == {}


def test_a_memo_is_this_user_s_own_for_one_purpose_and_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, memo = tmp_path / "memo", {"a/\udcff": Entry("x", (1, 2, 3, 4, 5)), "b": Entry("y", (1,))}
    write_memo(path, "purpose", memo)
    assert read_memo(path, "purpose") == memo and [*tmp_path.iterdir()] == [path]
    text = path.read_bytes()
    assert read_memo(path, "another") == read_memo(tmp_path / "none", "purpose") == {}
    for spoilt in (
        text.replace(b'"x"', b'"z"'),
        text[:-1],
        text + b" ",
        b"",
        b"\n{}",
        b"[1]",
        text.partition(b"\n")[2],
    ):
        path.write_bytes(spoilt)
        assert read_memo(path, "purpose") == {}
    (tmp_path / "moved").write_bytes(text)
    assert read_memo(tmp_path / "moved", "purpose") == {}
    path.write_bytes(text)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert read_memo(path, "purpose") == {}, "of another key"


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "memo"
    target.write_text("precious")
    path.symlink_to(target)
    write_memo(path, "purpose", {})
    assert target.read_text() == "precious" and not path.is_symlink()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that counts as older than what looks at it."""
    monkeypatch.setattr(fingerprint, "_TICK", -(10**10))
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
    old_digest = digest(package)
    assert len(old_digest) == 64 and digest(package) == old_digest
    CHANGES[name](package)
    assert digest(package) != old_digest


def test_compiled_modules_beside_their_source_do_not_count(package: Path) -> None:
    old_digest = digest(package)
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").write_text("")
    assert digest(package) == old_digest


def test_the_order_and_the_folder_around_do_not_count(package: Path, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("one")
    assert digest(package, module) == digest(module, package) != digest(package)
    old_digests = Places().digests([str(package)])
    package.parent.joinpath("elsewhere").mkdir()
    assert Places().digests([str(package.rename(tmp_path / "elsewhere" / "package"))]) == old_digests


def test_nobody_can_tell_of_a_place_that_is_gone_or_is_newer_than_the_process(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert digest(package, tmp_path / "gone") == ""
    monkeypatch.setattr(fingerprint, "_TICK", 0)
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
    read, paths = fingerprint._read, []
    monkeypatch.setattr(fingerprint, "_read", lambda path, stamp: paths.append(path) or read(path, stamp))
    monkeypatch.setattr(fingerprint, "_GRAIN", -(10**12))
    monkeypatch.setenv("HOME", str(tmp_path))
    for _ in range(2):
        looking = Places(tmp_path / ".cache" / "memo")
        looking.digest([str(package)])
        looking.save()
    assert len(paths) == 2
    looking = Places(tmp_path / ".cache" / "memo")  # what it is not asked of stays known
    looking.digests([os.devnull])
    looking.save()
    Places(tmp_path / ".cache" / "memo").digest([str(package)])
    assert [path for path in paths if path != os.devnull] == paths[:2]
