"""Folders for what commands write."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.exits import UsageError
from runner.runs import output_folder


def test_a_folder_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(UsageError, match="there is something in it"):
        output_folder(str(tmp_path), "x")
    for taken in ("mine.txt", "mine.txt/below"):
        with pytest.raises(UsageError, match=r"--output .*mine\.txt"):
            output_folder(str(tmp_path / taken), "x")
    assert output_folder(str(tmp_path / "new" / "one"), "x").is_dir()


def test_without_a_name_it_is_in_a_new_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = output_folder(None, "debug")
    assert folder.parent.parent == tmp_path / ".runner" / "runs" and folder.name == "debug" and folder.is_dir()


def test_where_no_run_can_be_kept_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".runner").write_text("somebody's own file")
    assert output_folder(None, "debug").is_dir()
    assert "cannot keep runs here" in capsys.readouterr().err
