"""A run with failures ends with commands that can be typed as they stand. One without ends as ``test_run.py`` says."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from .driver import Result, run_in, spec, write

PLANTED = "relu_accuracy_error_TESTING_ONLY"
CASES = spec(
    "name: fine\ninputs: {x: [4]}\ngrad: off\nchain: [torch.tanh]",
    "name: wrong\ninputs: {x: [4, 8]}\ngrad: off\nchain: [torch.tanh, torch.relu]",
    "name: wrong_too\ninputs: {x: [4]}\ngrad: off\nchain: [torch.relu]",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("next")
    write(path, {"a.spec.yaml": CASES})
    return path


@pytest.fixture(scope="module")
def result(folder: Path) -> Result:
    words = ("--seed", 3, "-j", 2, "--no-confirm")
    return run_in(folder, "run", "a.spec.yaml", "--backend", PLANTED, *words, env={"COLUMNS": "80"})


def commands_of(result: Result) -> list[str]:
    lines = result.out.rstrip("\n").split("\n")
    first = next(place for place, line in enumerate(lines) if line.startswith("next: "))
    return [line.removeprefix("next:").strip() for line in lines[first:]]


def test_the_end_of_a_run_with_failures(result: Result) -> None:
    assert result.code == 1, result.text
    case = f"'a.spec.yaml::wrong[float32,cpu]@{PLANTED}'"
    assert commands_of(result) == [
        f"runner why {case} --seed 3",
        f"runner issue {case} --seed 3",
    ]


def test_a_wide_terminal_also_shows_what_the_group_is(result: Result, folder: Path) -> None:
    again = run_in(folder, "report", env={"COLUMNS": "160"})
    assert commands_of(again)[0] == f"{commands_of(result)[0]}  # 2 failures alike: value of torch.relu at backend"
    assert commands_of(again)[1:] == commands_of(result)[1:]


@pytest.mark.nightly
def test_what_it_names_can_be_typed(result: Result, folder: Path) -> None:
    why, _ = (shlex.split(command, comments=True)[1:] for command in commands_of(result))
    explained = run_in(folder, *why, "-j", 2)
    assert explained.code == 1 and "stage     backend" in explained.out, explained.text
