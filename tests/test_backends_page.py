"""``docs/backends.md`` against the repository: its commands parse, its files are there, and its versions are the pinned ones."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from runner.cases.suites import SUITE
from runner.cli.main import build_parser, main
from tests.script_modules import script_module

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = (REPOSITORY / "docs" / "backends.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (?:\.\w+/bin/)?(runner .*)$", PAGE, re.MULTILINE)
FILES = {example.name: example.text for example in script_module("format_page").examples(PAGE)}
PROFILES = sorted((REPOSITORY / "profiles").glob(f"*{SUITE}"))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_runner_takes_each_command(command: str) -> None:
    arguments = vars(build_parser().parse_args(shlex.split(command)[1:]))
    assert all(path in FILES or (REPOSITORY / path).exists() for path in arguments.get("paths", ()))
    modules = [name.replace(".", "/") + ".py" for name in arguments.get("imports", ())]
    assert all((REPOSITORY / module).is_file() for module in modules)


@pytest.mark.parametrize("name", re.findall(r"`(requirements/[\w.]+)`", PAGE))
def test_the_files_are_there(name: str) -> None:
    assert (REPOSITORY / name).is_file()


@pytest.mark.parametrize(("file", "package", "name"), [("openvino", "openvino", "OpenVINO"), ("thunder", "lightning-thunder", "Thunder")])  # fmt: skip
def test_the_versions_are_the_pinned_ones(file: str, package: str, name: str) -> None:
    pins = dict(
        re.findall(r"^([\w-]+)==(\S+)$", (REPOSITORY / "requirements" / f"{file}.txt").read_text(), re.MULTILINE)
    )
    assert f"{name} {pins[package]}" in PAGE
    assert f"torch {pins.get('torch', '2.13.0')} " in PAGE


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.name)
def test_the_profiles_are_valid(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(path)]) == 0, capsys.readouterr()
    assert path.name.split(".")[0] in PAGE.lower()


def test_the_page_begins_with_a_profile_that_is_the_readmes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert FILES["acme.suite.yaml"] in (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (tmp_path / "acme.suite.yaml").write_text(FILES["acme.suite.yaml"])
    monkeypatch.chdir(tmp_path)
    assert main(["validate", "acme.suite.yaml", "--allow-python"]) == 0, capsys.readouterr()
