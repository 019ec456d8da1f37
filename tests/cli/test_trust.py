"""What of a project file holds only when a person has said so."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from runner.cli import trust
from runner.cli.arguments import HARMLESS, KEYS
from runner.cli.main import main
from runner.cli.project import Project, read_project
from runner.record.signing import key_path

from .test_project import folder, listed, refused

__all__ = ["folder"]

CODE = 'backend = ["code:f"]\n'


def written(folder: Path, text: str) -> Project:
    (folder / "runner.toml").write_text(text)
    project = read_project()
    assert project is not None
    return project


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let a terminal answer."""
    terminal = io.StringIO(text)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)


def test_without_a_terminal_nothing_runs_and_what_to_type_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = written(folder, CODE)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    error = refused(capsys, "list", "specs")
    assert 'backend = ["code:f"]' in error and "runner config --trust" in error
    assert f"--trust-project {project.digest}" in error and "--no-project" in error
    case = "specs/a.spec.yaml::a[float32,cpu]"
    assert listed(capsys, "specs", "--no-project") == [f"{case}@inductor"]
    assert listed(capsys, "specs", "--trust-project", project.digest) == [f"{case}@code:f"]
    assert listed(capsys, "specs", "--backend", "eager") == [f"{case}@eager"], "what is replaced need not be asked"
    assert "nothing was run" in refused(capsys, "list", "specs"), "a digest on the command line is not kept"
    assert main(["config", "--trust"]) == 0
    assert listed(capsys, "specs") == [f"{case}@code:f"]


def test_a_terminal_is_asked_once(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = written(folder, CODE)
    for text in ("", "\n", "n\n", "yess\n"):
        answer(monkeypatch, text)
        assert "nothing was run" in refused(capsys, "list", "specs")
    answer(monkeypatch, "y\n")
    assert main(["list", "specs"]) == 0
    text = capsys.readouterr().err
    assert project.file in text and 'backend = ["code:f"]' in text and project.digest in text
    answer(monkeypatch, "")
    assert len(listed(capsys, "specs")) == 1


def test_a_change_of_what_runs_code_asks_again_and_another_does_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trust.trust(written(folder, CODE))
    assert trust.is_trusted(written(folder, "jobs = 2\nseed = 1\n" + CODE))
    assert not trust.is_trusted(written(folder, 'import = ["x"]\n' + CODE))
    assert not trust.is_trusted(written(folder, CODE.replace("f", "g")))
    assert trust.is_trusted(written(folder, CODE))


def test_an_equal_file_elsewhere_is_not_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust.trust(written(folder, CODE))
    (folder / "copy").mkdir()
    monkeypatch.chdir(folder / "copy")
    assert not trust.is_trusted(written(folder / "copy", CODE))
    (folder / "link").symlink_to("copy")
    trust.trust(written(folder / "copy", CODE))
    monkeypatch.chdir(folder / "link")
    assert trust.is_trusted(written(folder / "link", CODE))


def test_what_asks_is_what_no_stranger_may_bring(folder: Path) -> None:
    values = {
        **dict.fromkeys(("import", "python", "limit", "report"), '["x"]'),
        **dict.fromkeys(("junit", "events", "ctrf", "html", "keep", "address"), '"x"'),
        **dict.fromkeys(("allow-python", "github"), "true"),
        "engine": '"ray"',
    }
    for key, value in values.items():
        assert written(folder, f"{key} = {value}\n").asking, key
    assert {key for key in KEYS if f"--{key}" not in HARMLESS} == {*values, "paths"}
    assert not written(folder, 'backend = ["inductor"]\npaths = ["/"]\njobs = 1\nno-known = true\n').asking


def test_a_file_of_another_user_asks_for_all(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not written(folder, "jobs = 2\n").asking
    if owner := os.getuid():
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    else:  # what root owns holds for everybody
        os.chown(folder / "runner.toml", 1234, 1234)
    project = read_project()
    assert project is not None and [setting.key for setting in project.asking] == ["jobs"]
    assert "another user owns it" in refused(capsys, "selftest")


def test_what_was_checked_is_what_holds(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read once: a change while the question stands has no effect."""
    written(folder, CODE)
    real = trust.demand

    def change(project: Project, digest: str | None) -> None:
        (folder / "runner.toml").write_text('backend = ["evil:f"]\n')
        real(project, digest)

    monkeypatch.setattr(trust, "demand", change)
    answer(monkeypatch, "y\n")
    assert listed(capsys, "specs") == ["specs/a.spec.yaml::a[float32,cpu]@code:f"]
    monkeypatch.setattr(trust, "demand", real)
    answer(monkeypatch, "n\n")
    refused(capsys, "list", "specs")


def test_a_digest_must_be_that_of_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = written(folder, CODE)
    assert f"is {project.digest}" in refused(capsys, "list", "specs", "--trust-project", "0" * 64)
    (folder / "runner.toml").unlink()
    assert "there is no project file" in refused(capsys, "list", "specs", "--trust-project", project.digest)


def test_nobody_else_can_write_what_is_trusted(folder: Path) -> None:
    project = written(folder, CODE)
    trust.trust(project)
    text = trust._place(project).read_text()
    assert trust._place(project).stat().st_mode & 0o077 == 0
    changed = written(folder, CODE.replace("f", "g"))
    trust._place(project).write_text(text.replace(project.digest, changed.digest))
    assert not trust.is_trusted(changed), "its signature is of another digest"
    trust._place(project).unlink()
    os.mkfifo(trust._place(project))
    assert not trust.is_trusted(changed)
    trust.trust(changed)
    assert trust.is_trusted(changed)


def test_a_key_that_others_can_read_trusts_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = written(folder, CODE)
    trust.trust(project)
    key_path().chmod(0o644)
    assert not trust.is_trusted(project)
    assert "what is trusted cannot be kept in" in refused(capsys, "config", "--trust")


def test_a_list_too_long_to_look_at_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(folder, f"import = {['m' * 1000] * 20}\n".replace("'", '"'))
    assert "too many to look at" in refused(capsys, "validate", "specs")


def test_a_question_cannot_be_forged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(folder, 'import = ["a\\n  nothing else\\u001b[2J\\u202e"]\n')
    error = refused(capsys, "validate", "specs")
    assert "\n  nothing else" not in error and not {"\x1b", "\u202e"} & {*error}
