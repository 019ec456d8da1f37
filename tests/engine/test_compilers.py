"""What is noticed of a compiler: its files, those of the programs that it starts, and what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.engine.contents import Places
from runner.engine.fingerprint import compilers_digest, describe_compiler


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of the PATH, with a compiler that starts ``cc1plus`` beside it."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CXX", "mine++ -O1")
    put(tmp_path / "mine++", f'case "$2" in -print-prog-name=cc1plus) echo {tmp_path}/cc1plus;; *) echo mine 1;; esac')
    put(tmp_path / "cc1plus", "echo compiles")
    return tmp_path


def put(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def describe(command: str, folder: Path) -> list[str]:
    return describe_compiler(command, Places(folder / "memo"))


@pytest.mark.parametrize("name", ["mine++", "cc1plus"])
def test_another_file_behind_the_same_path_is_noticed(programs: Path, name: str) -> None:
    before = compilers_digest(os.environ)
    assert compilers_digest(os.environ) == before
    path, status = programs / name, (programs / name).stat()
    path.write_text(path.read_text() + "# patched\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert compilers_digest(os.environ) != before


def test_the_shared_objects_of_a_compiler_are_part_of_it(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = programs / "libcompiler.so"
    put(programs / "ldd", f"echo '\tlibcompiler.so => {library} (0x1)'; exit 1")
    library.write_text("one")
    before = compilers_digest(os.environ)
    library.write_text("two")
    assert compilers_digest(os.environ) != before


def test_a_compiler_may_have_arguments_and_may_be_missing(programs: Path) -> None:
    put(programs / "ccache", 'echo "$@"')
    path, version, *digests = describe("ccache mine++", programs)
    assert (path, version, len(digests)) == (str(programs / "ccache"), "mine++ --version\n", 2)
    assert describe("no-such-compiler", programs) == ["", ""] == describe("", programs)
    assert describe("mine++ 'unclosed", programs) == ["", ""]
