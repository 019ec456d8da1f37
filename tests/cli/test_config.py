"""``runner config``: each setting, its value and where it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cli.arguments import KEYS
from runner.cli.main import main

from .test_project import folder, refused

__all__ = ["folder"]


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    capsys.readouterr()
    assert main(["config", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_every_setting_is_shown_with_its_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "runner.toml").write_text('# mine\njobs = 2\nimport = ["vendor"]\nhtml = "site"\nquiet = true\n')
    lines = shown(capsys)
    settings = dict(line.split(" = ", 1) for line in lines if " = " in line)
    assert settings.keys() == KEYS.keys()
    places = {key: tuple(part.strip() for part in text.rsplit("#", 1)) for key, text in settings.items()}
    assert places["jobs"] == ("2", "runner.toml:2")
    assert places["import"] == ('["vendor"]', "runner.toml:3")
    assert places["seed"] == ("0", "default") and places["confirm"] == ("true", "default")
    assert places["slow"] == ('"60s"', "default") and places["paths"] == ("(unset)", "default")
    assert places["quiet"] == ("true", "runner.toml:5") and places["verbose"] == ("false", "default")
    assert lines[-1] == "asks: import, html (not trusted: runner config --trust)"
    assert shown(capsys, "--trust")[-1] == shown(capsys)[-1] == "asks: import, html (trusted)"


def test_without_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys)[-1] == "no project file"
    assert "there is no project file" in refused(capsys, "config", "--trust")


def test_a_file_that_asks_for_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "runner.toml").write_text('slow = "2m"\n')
    assert shown(capsys)[-1] == "asks: nothing"
