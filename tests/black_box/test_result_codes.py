"""One rule for the exit codes of the commands about one failure, in the help of each, and kept by each.

The tests of each command see 0, and those of diagnose, reduce, minify and issue see 1 where nothing fails.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .driver import run_in, spec, write

COMMANDS = ("diagnose", "reduce", "minify", "issue", "explain", "debug", "replay", "repro")
RULE = "exit codes: 0 the result was made, 1 it was not (the failure did not show,\nor does not allow it), "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("codes")
    write(path, {"a.spec.yaml": spec("name: fine\ninputs: {x: [4]}\ngrad: off\nchain: [torch.tanh]")})
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_says_the_rule(command: str, folder: Path) -> None:
    result = run_in(folder, command, "--help")
    assert result.code == 0 and f"\n{RULE}" in result.out, result.text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_not_there_is_an_argument(command: str, folder: Path) -> None:
    result = run_in(folder, command, "absent.spec.yaml::fine" if command != "replay" else "absent.rec")
    assert result.code == 4 and "absent" in result.err, result.text
