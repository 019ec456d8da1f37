"""``runner issue`` and ``runner reduce`` take over what ``runner diagnose`` found, until anything has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from .driver import Result, run_in, spec, write

PLANTED = "config: {torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY: accuracy}"
CASE = spec(f"name: wrong\ninputs: {{x: [4, 8]}}\ngrad: off\n{PLANTED}\nchain:\n  - torch.tanh\n  - torch.relu")
WORDS = ("a.spec.yaml::wrong", "--backend", "inductor", "-j", 2)
TAKEN = "runner: taken over from runner diagnose at "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("taken")
    write(path, {"a.spec.yaml": CASE})
    result = run_in(path, "diagnose", *WORDS)
    assert result.code == 0 and TAKEN not in result.text, result.text
    return path


def taken(result: Result) -> str:
    (line,) = [line for line in result.err.splitlines() if line.startswith(TAKEN)]
    return line.partition(": ")[2].partition(": ")[2]


@pytest.mark.nightly
def test_reduce_takes_it_over(folder: Path) -> None:
    result = run_in(folder, "reduce", *WORDS)
    assert result.code == 0 and "2 -> 1 operators" in result.out, result.text
    assert taken(result).startswith("inductor, subsystem lowerings, the 2nd application: relu")
    assert "running the case as it is" not in result.err


@pytest.mark.nightly
def test_issue_takes_it_over_whole(folder: Path) -> None:
    result = run_in(folder, "issue", *WORDS, "--no-reduce")
    assert result.code == 0 and result.out.startswith("# [inductor] torch.tanh, torch.relu"), result.text
    assert taken(result) and "looking for what is to blame" not in result.err and "running it with" not in result.err
    assert TAKEN not in result.out and "#### Bisection" in result.out


def test_a_changed_file_is_diagnosed_anew(folder: Path, tmp_path: Path) -> None:
    (folder / "a.spec.yaml").write_text(f"# changed\n{CASE}")
    try:
        result = run_in(folder, "reduce", *WORDS, "--budget", "1s")  # as far as the question what the failure is
    finally:
        (folder / "a.spec.yaml").write_text(CASE)
    assert result.code == 0 and TAKEN not in result.text and "running the case as it is" in result.err, result.text
