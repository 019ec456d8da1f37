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
    made = tmp_path_factory.mktemp("taken")
    write(made, {"a.spec.yaml": CASE})
    done = run_in(made, "diagnose", *WORDS)
    assert done.code == 0 and TAKEN not in done.text, done.text
    return made


def taken(done: Result) -> str:
    (line,) = [line for line in done.err.splitlines() if line.startswith(TAKEN)]
    return line.partition(": ")[2].partition(": ")[2]


def test_reduce_takes_it_over(folder: Path) -> None:
    done = run_in(folder, "reduce", *WORDS)
    assert done.code == 0 and "2 -> 1 operators" in done.out, done.text
    assert taken(done).startswith("inductor, subsystem lowerings, the 2nd application: relu")
    assert "running the case as it is" not in done.err


def test_issue_takes_it_over_whole(folder: Path) -> None:
    done = run_in(folder, "issue", *WORDS, "--no-reduce")
    assert done.code == 0 and done.out.startswith("# [inductor] torch.tanh, torch.relu"), done.text
    assert taken(done) and "looking for what is to blame" not in done.err and "running it with" not in done.err
    assert TAKEN not in done.out and "#### Bisection" in done.out


def test_a_changed_file_is_diagnosed_anew(folder: Path, tmp_path: Path) -> None:
    (folder / "a.spec.yaml").write_text(f"# changed\n{CASE}")
    try:
        done = run_in(folder, "reduce", *WORDS, "--budget", "1s")  # as far as the question what the failure is
    finally:
        (folder / "a.spec.yaml").write_text(CASE)
    assert done.code == 0 and TAKEN not in done.text and "running the case as it is" in done.err, done.text
