"""``runner.cli.debug``: what is run, and what is said where it cannot be."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from runner.cli import debug
from runner.exit_codes import FAILED, OK, UsageError
from runner.session.plan import Environment

TOOL = """#!/bin/sh
echo "$PYTORCH_NO_CUDA_MEMORY_CACHING $@" > "$(dirname "$0")/said"
exit {code}
"""


def arguments(tmp_path: Path, *options: str) -> argparse.Namespace:
    path = tmp_path / "a.spec.yaml"
    path.write_text(
        "cases:\n  - {name: a, inputs: {x: [3]}, devices: [cpu, cuda], chain: [F.relu]}\n", encoding="utf-8"
    )
    parser = argparse.ArgumentParser()
    debug.run_sanitize.add(parser)
    return parser.parse_args([str(path), "--tool", "racecheck", *options], argparse.Namespace(command="debug"))


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for compute-sanitizer, which writes down how it was called."""
    path = tmp_path / "bin" / "compute-sanitizer"
    path.parent.mkdir()
    path.write_text(TOOL.format(code=0), encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent), prepend=":")
    monkeypatch.setattr(debug, "find_environments", lambda _: [Environment("0", "python-of-mine", "2.13", "2.13", "3")])
    return path


def test_the_script_runs_under_the_tool(tool: Path, tmp_path: Path) -> None:
    assert debug.run_sanitize(arguments(tmp_path)) == OK
    words = (tool.parent / "said").read_text().split()
    assert words[:6] == ["1", "--tool", "racecheck", "--error-exitcode", "99", "python-of-mine"]
    assert words[6].endswith("case.py")


@pytest.mark.parametrize(
    ("code", "message"), [(99, "racecheck found something"), (1, "the script ended with exit status 1")]
)
def test_what_it_finds_fails(
    tool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], code: int, message: str
) -> None:
    tool.write_text(TOOL.format(code=code), encoding="utf-8")
    assert debug.run_sanitize(arguments(tmp_path)) == FAILED
    assert message in capsys.readouterr().out


def test_without_the_tool_it_says_where_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no compute-sanitizer on the PATH"):
        debug.run_sanitize(arguments(tmp_path))


def test_a_case_on_the_cpu_is_none_for_it(tool: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs CUDA: add --device cuda"):
        debug.run_sanitize(arguments(tmp_path, "--device", "cpu"))


def test_with_record_no_bundle_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug, "first_variant", lambda arguments: None)
    monkeypatch.setattr(debug, "_record", lambda arguments, variant: 7)
    assert debug.run(argparse.Namespace(record=True)) == 7
