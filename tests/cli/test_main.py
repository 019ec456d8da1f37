"""The commands: those about one thing share a module, which imports nothing of the others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from runner.cli.arguments import settings_of
from runner.cli.main import COMMANDS, build_parser, entrance, main


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_its_own_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"usage: runner {command}" in capsys.readouterr().out


def test_the_help_of_all_names_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(f" {name} {summary}" in text for name, summary in COMMANDS.items())


def test_one_parser_parses_twice() -> None:
    parser = build_parser()
    assert [parser.parse_args(["list", path]).paths for path in "ab"] == [["a"], ["b"]]


@pytest.mark.parametrize(("words", "expected"), [(["--help"], set()), (["list", "--help"], {"cases"})], ids=str)
def test_a_command_imports_no_other(words: list[str], expected: set[str]) -> None:
    code = f"import sys; from runner.cli import main; main.main({words})\nprint(*sys.modules, sep='\\n')"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    imported = {name.removeprefix("runner.cli.") for name in output.split() if name.startswith("runner.cli.")}
    assert imported & {entrance(name).run.__module__.rpartition(".")[2] for name in COMMANDS} == expected


def test_whether_jobs_were_given_is_known() -> None:
    parser = build_parser()
    three_jobs, default = (parser.parse_args(["run", "a", *words]) for words in (["-j", "3"], []))
    assert (settings_of(three_jobs).jobs, settings_of(three_jobs).slots()) == (3, 3)
    assert settings_of(default).jobs is None and settings_of(default).slots() >= 1


@pytest.mark.parametrize("command", COMMANDS)
def test_no_help_says_a_default_twice(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert "(default: True)" not in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "words",
    [
        "generate --count 1 -o",
        "hunt --rounds 1 -o",
        "hunt --status",
        "hunt --rounds 1 -o h --known",
        "reduce a::b --output",
        "reduce --minifier a::b --output",
        "debug a::b -o",
        "diagnose a::b --html",
        "issue a::b -o",
        "issue a::b --similar",
        "coverage a --json",
        "validate a --sarif",
        "run a --html",
        "run a --junit",
        "run a --events",
        "run a --python x --python",
    ],
)
def test_an_empty_path_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words.split(), ""]) == 4
    assert "an empty path; did a shell variable have no value?" in capsys.readouterr().err


def test_help_needs_nothing_that_plans_or_writes_cases() -> None:
    code = "import sys, runner.cli.main; print([n for n in sys.modules if n.startswith(('runner.builder', 'runner.session.plan'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
