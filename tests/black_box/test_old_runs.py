"""Old runs: which are removed at the end of a run, and what ``runner history`` says of those that are kept."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from runner.record.store import start_order

from .driver import Result, run_in, spec, write

pytestmark = pytest.mark.usefixtures("stand_in")

GOOD = "name: good\ninputs: {x: [4]}\nchain: [torch.neg]"
BAD = "name: bad\ninputs: {x: [4]}\nchain: [{Tensor.view: [$_, 3]}]"


FILES = {
    "good.spec.yaml": spec(GOOD), "bad.spec.yaml": spec(BAD),
    "both.suite.yaml": "suite: both\nspecs: ['*.spec.yaml']\nbackends: [eager]\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(stand_in: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Result]:
    """A red run of both cases, and a green one of the good case alone."""
    folder = tmp_path_factory.mktemp("old")
    write(folder, FILES)
    assert "no run is kept" in run_in(folder, "history", "good").err
    first = run_in(folder, "run", "both.suite.yaml")
    flags = ("--backend", "eager", "--backend", "aot_eager", "--stress", "3", "-k", "good")
    second = run_in(folder, "run", "both.suite.yaml", *flags)
    assert (first.code, second.code) == (1, 0)
    return first, second


def kept(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / ".runner" / "runs"), key=start_order)


def test_old_runs_are_removed_by_the_rule(runs: tuple[Result, Result], tmp_path: Path) -> None:
    red, green = (run.folder for run in runs)
    assert red is not None and green is not None
    folder = tmp_path / "copy"
    shutil.copytree(runs[0].cwd, folder, symlinks=True)
    log = folder / ".runner" / "runs" / red.name / "events.jsonl"
    log.write_text(log.read_text().replace(str(runs[0].cwd), str(folder)))  # a suite is known by its whole path
    place = folder / ".runner" / "runs"
    older = [f"2026010{number}-000000-1" for number in (1, 2, 3)]
    for name in older:
        shutil.copytree(green, place / name)
    (place / "mine").mkdir()
    assert kept(folder) == [*older, red.name, green.name, "mine"]
    with open(place / older[1] / "lock") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)  # as a resume in another process
        last = run_in(folder, "run", "good.spec.yaml", "--backend", "eager", "--keep", "2 runs", "-v")
    assert last.folder is not None and last.code == 0, last.text
    assert kept(folder) == [older[1], red.name, last.folder.name, "mine"]
    words = f"): {older[0]} to {green.name}; kept are 2 runs (--keep); more stay: "
    assert "runner: removed 3 old runs (" in last.err and words in last.err
    newer = run_in(folder, "run", "both.suite.yaml", env={"RUNNER_KEEP": "1 run"})
    assert newer.folder is not None and newer.code == 1 and "removed" not in newer.text
    assert kept(folder) == [newer.folder.name, "mine"]


def test_a_rule_that_is_none(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    result = run_in(tmp_path, "run", "good.spec.yaml", "--keep", "50")
    assert result.code == 4 and "'50' is no rule such as '50 runs, 2 GiB'" in result.err
    result = run_in(tmp_path, "run", "good.spec.yaml", env={"RUNNER_KEEP": "some"})
    assert result.code == 4 and "environment variable RUNNER_KEEP: 'some' is no rule" in result.err
    assert not (tmp_path / ".runner").exists()


def test_the_history_of_a_case(runs: tuple[Result, Result]) -> None:
    first, second = runs
    folder = first.cwd
    assert first.folder is not None and second.folder is not None
    assert "  0 of 3  0.0 %  (0.0 % to 56.1 %)  2 variants" in second.out
    result = run_in(folder, "history", "./good.spec.yaml::good")
    lines = result.out.splitlines()
    assert result.code == 0 and lines[0] == "good.spec.yaml::good[float32,cpu]"
    rows = [line.split()[::2] for line in lines[2:5]]
    assert rows[0][:2] == [second.folder.name, "aot_eager"] and rows[1][:2] == [second.folder.name, "eager"]
    assert rows[2][:2] == [first.folder.name, "eager"]
    assert (
        "  flake rate by --stress: 0 of 3 red: 0.0 %, 95% interval 0.0 % to 56.1 % (Wilson), 1 run of one plan" in lines
    )
    bad = run_in(folder, "history", "bad")
    assert "INVALID" in bad.out and "--stress 20 measures one" in bad.out
    nothing = run_in(folder, "history", "absent")
    assert nothing.code == 5 and nothing.out == "" and "no verdict of absent in the 2 runs kept here" in nothing.err
