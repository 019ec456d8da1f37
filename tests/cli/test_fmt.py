"""``runner fmt`` writes files in their layout, or says which have another one, and leaves alone what it cannot keep."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from runner.cli.main import main

ODD = "cases:\n- name: a   # c\n  inputs: {x: [2]}\n  chain: ['F.relu']\n"
LAID_OUT = "cases:\n  - name: a  # c\n    inputs: {x: [2]}\n    chain: [F.relu]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_of_a_folder_are_laid_out_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.spec.yaml", "below/b.suite.yaml", "below/c.ledger.yaml", ".hidden/d.spec.yaml", "other.yaml"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(ODD)
    (folder / "e.spec.yaml").write_text(LAID_OUT)
    assert main(["fmt", "."]) == 0
    assert capsys.readouterr().out == (
        "laid out: a.spec.yaml\nlaid out: below/b.suite.yaml\nlaid out: below/c.ledger.yaml\n3 files of 4 laid out\n"
    )
    assert (folder / "a.spec.yaml").read_text() == LAID_OUT
    assert (folder / ".hidden/d.spec.yaml").read_text() == (folder / "other.yaml").read_text() == ODD
    assert main(["fmt", ".", "a.spec.yaml", "--check"]) == 0
    assert capsys.readouterr().out == "0 files of 4 would change\n"


def test_the_permissions_of_a_file_stay(folder: Path) -> None:
    (folder / "a.spec.yaml").write_text(ODD)
    for mode in (0o600, 0o640, 0o755):
        (folder / "a.spec.yaml").write_text(ODD)
        (folder / "a.spec.yaml").chmod(mode)
        assert main(["fmt", "a.spec.yaml"]) == 0
        assert (folder / "a.spec.yaml").read_text() == LAID_OUT
        assert (folder / "a.spec.yaml").stat().st_mode & 0o777 == mode
    assert [path.name for path in folder.iterdir()] == ["a.spec.yaml"]


@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_a_look_changes_nothing(option: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.spec.yaml").write_text(ODD)
    assert main(["fmt", option, "a.spec.yaml"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("would change: a.spec.yaml\n") and out.endswith("1 file of 1 would change\n")
    assert ("+  - name: a  # c\n" in out and "-- name: a   # c\n" in out) == (option == "--diff")
    assert (folder / "a.spec.yaml").read_text() == ODD


def test_broken_yaml_has_the_diagnostics_of_validate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = "cases:\n  - name: [a\n"
    (folder / "a.spec.yaml").write_text(broken)
    (folder / "b.spec.yaml").write_text(ODD)
    assert main(["validate", "a.spec.yaml"]) == 4
    diagnostics = capsys.readouterr().err
    assert main(["fmt", "a.spec.yaml", "b.spec.yaml"]) == 4
    shown = capsys.readouterr()
    assert shown.err and diagnostics.startswith(shown.err) and "a.spec.yaml:2:11: error" in shown.err
    assert "laid out: b.spec.yaml" in shown.out
    assert (folder / "a.spec.yaml").read_text() == broken


def test_what_would_be_lost_is_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "cases:\n- name: !!str a\n  chain: [F.relu]\n"
    (folder / "a.spec.yaml").write_text(text)
    for words in (["fmt", "."], ["fmt", "--check", "."]):
        assert main(words) == 1
        assert capsys.readouterr().err == "runner: a.spec.yaml: left as it is: line 2: the tag there would be lost\n"
    assert (folder / "a.spec.yaml").read_text() == text


def test_nothing_is_written_through_a_link(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "b.spec.yaml").write_text(LAID_OUT)
    (folder / "real").mkdir()
    (folder / "real" / "a.spec.yaml").write_text(ODD)
    (folder / "a.spec.yaml").symlink_to("real/a.spec.yaml")
    assert main(["fmt", "a.spec.yaml", "b.spec.yaml"]) == 4
    assert "a.spec.yaml is a link to real/a.spec.yaml; name the file that is meant" in capsys.readouterr().err.replace(
        f"{folder}/", ""
    )
    assert (folder / "real" / "a.spec.yaml").read_text() == ODD and (folder / "a.spec.yaml").is_symlink()
    assert main(["fmt", "real/a.spec.yaml"]) == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_folder_without_permission(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.spec.yaml").write_text(ODD)
    folder.chmod(0o500)
    assert main(["fmt", "a.spec.yaml"]) == 4
    assert "left as it is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["none.spec.yaml"], 4, "no such file or directory: none.spec.yaml"),
        (["a.yaml"], 4, "a.yaml: cases end in .spec.yaml, suites in .suite.yaml, ledgers in .ledger.yaml"),
        (["."], 5, ".: no file here or below ends in .spec.yaml"),
        (["-", "a.yaml"], 4, "- stands alone"),
        (["-", "--check"], 4, "- stands alone"),
        (["--check", "--diff", "a.yaml"], 4, "not allowed with argument"),
    ],
    ids=str,
)
def test_paths_that_name_nothing(
    words: list[str], code: int, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a.yaml").write_text(ODD)
    assert main(["fmt", *words]) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "code", "out", "message"),
    [
        (ODD.encode(), 0, LAID_OUT, ""),
        (ODD.replace("\n", "\r\n").encode(), 0, LAID_OUT, ""),
        (b"cases: [", 4, "", "<stdin>:1:9: error: a key or a value is missing here"),
        (b"\xff", 4, "", "<stdin>: this is not UTF-8: byte 0xff at offset 0"),
        (b"x: !!str 1", 1, "", "<stdin>: it cannot be laid out: line 1: the tag there would be lost"),
        ("x: 1 # \u202e".encode(), 1, "", "characters that a terminal obeys"),
    ],
    ids=range(6),
)
def test_standard_input_becomes_standard_output(
    data: bytes,
    code: int,
    out: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["fmt", "-"]) == code
    shown = capfdbinary.readouterr()
    assert shown.out.decode() == out
    assert message in shown.err.decode()
