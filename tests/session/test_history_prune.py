"""Which runs are removed, and what never is: the runs are real folders with logs made by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from runner.record.events import Event, RunFinished, RunResumed
from runner.record.journal import Journal
from runner.record.signing import write_signed
from runner.record.store import Keep, lock, parse_keep
from runner.session import history
from runner.session.history import Pruned, prune
from tests.handmade import Dig
from tests.report.events_sample import failure, finished, planned, started

ONE = Keep(1)
Make = Callable[..., Path]
END = RunFinished(0, 1.0)


def name_of(number: int) -> str:
    return f"20260102-0000{number:02}-77"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / ".runner"


@pytest.fixture
def run(base: Path) -> Make:
    """Makes the run of this number: green, unless told otherwise, and as large as its extra bytes make it."""

    def make(
        number: int, *, red: Iterable[str] = (), end: Event | None = END, extra: int = 0,
        files: dict[str, str] | None = None,
    ) -> Path:  # fmt: skip
        folder = base / "runs" / name_of(number)
        (folder / "logs").mkdir(parents=True)
        (folder / "logs" / "00001-good_float32_cpu.log").write_text("x" * extra)
        (folder / "junit.xml").write_text("<testsuites/>")
        suites = files if files is not None else {suite: f"{suite}.suite.yaml" for suite in ("a", "b")}
        events: list[Event] = [started(run=folder.name, suites=suites), planned()]
        events += [failure(name=f"bad_{suite}", suites=(suite,)) for suite in red] or [finished()]
        with Journal(folder / "events.jsonl") as journal:
            for event in [*events, *([end] if end else [])]:
                journal.write(event)
        return folder

    return make


def numbers(base: Path) -> list[int]:
    return [int(name[13:15]) for name in sorted(os.listdir(base / "runs")) if name.startswith("20260102-")]


def test_the_oldest_go(base: Path, run: Make) -> None:
    for number in range(5):
        run(number)
    assert prune(Keep(3), base=base).names == (name_of(0), name_of(1))
    assert numbers(base) == [2, 3, 4]
    assert prune(Keep(3), base=base) == Pruned()


def test_size_counts_the_logs_of_jobs(base: Path, run: Make) -> None:
    for number in range(4):
        run(number, extra=100_000)
    pruned = prune(parse_keep("250 KiB"), base=base)
    assert numbers(base) == [2, 3] and pruned.enough and 200_000 < pruned.size < 220_000


def test_nothing_goes_while_the_rule_holds(base: Path, run: Make) -> None:
    for number in range(3):
        run(number)
    for keep in (Keep(), Keep(3), Keep(None, 1 << 30), Keep(3, 1 << 30)):
        assert prune(keep, base=base) == Pruned()
    assert numbers(base) == [0, 1, 2]


def test_the_last_red_run_of_each_suite_stays(base: Path, run: Make) -> None:
    run(0, red="a")
    run(1, red=("a", "b"))
    run(2, red="a")
    run(3)
    run(4)
    pruned = prune(ONE, base=base)
    assert numbers(base) == [1, 2] and not pruned.enough


def test_suites_of_one_name_are_told_apart_by_their_files(base: Path, run: Make) -> None:
    run(0, red="a", files={"a": "x/a.suite.yaml"})
    run(1, red="a", files={"a": "y/a.suite.yaml"})
    run(2, red="a", files={"a": "y/a.suite.yaml"})
    prune(ONE, base=base)
    assert numbers(base) == [0, 2]


@pytest.mark.parametrize(
    "end",
    [None, RunFinished(2, 1.0, interrupted=True), RunResumed("r", "2026-01-02T03:04:05", 0)],
    ids=["killed", "interrupted", "goes on"],
)
def test_a_run_that_resume_may_need_stays(base: Path, run: Make, end: Event | None) -> None:
    run(0, end=end)
    run(1)
    run(2)
    prune(ONE, base=base)
    assert numbers(base) == [0]


def test_a_run_that_was_resumed_and_ended_may_go(base: Path, run: Make) -> None:
    folder = run(0, end=RunFinished(2, 1.0, interrupted=True))
    history.update(base)
    with Journal(folder / "events.jsonl") as journal:
        for event in (RunResumed("r", "2026-01-02T03:04:05", 1), RunFinished(0, 1.0)):
            journal.write(event)
    run(1)
    prune(ONE, base=base)
    assert numbers(base) == [1]


def test_the_own_run_and_the_latest_stay(base: Path, run: Make) -> None:
    own = run(0)
    run(1)
    run(2)
    (base / "latest").symlink_to(Path("runs") / name_of(1))
    prune(ONE, own, base)
    assert numbers(base) == [0, 1]


def test_a_run_that_is_being_written_stays(base: Path, run: Make) -> None:
    """The lock is another open file's, as another process holds it."""
    folder = run(0)
    run(1)
    with lock(folder):
        prune(ONE, base=base)
        assert numbers(base) == [0]
    run(1)
    prune(ONE, base=base)
    assert numbers(base) == [1]


def test_a_run_that_was_written_meanwhile_stays(base: Path, run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run(0)
    run(1)
    summaries = history.read_runs(base)[1]
    with Journal(folder / "events.jsonl") as journal:
        journal.write(RunResumed("r", "2026-01-02T03:04:05", 1))
    monkeypatch.setattr(history, "read_runs", lambda base: ({}, summaries))
    prune(ONE, base=base)
    assert numbers(base) == [0]


FOREIGN = {
    "a file": lambda folder: (folder / "notes.txt").write_text("mine"),
    "a hidden file": lambda folder: (folder / ".keep").write_text(""),
    "a folder": lambda folder: (folder / "reduced").mkdir(),
    "a file in the logs": lambda folder: (folder / "logs" / "notes.txt").write_text("mine"),
    "a log in the logs": lambda folder: (folder / "logs" / "mine.log").write_text("mine"),
    "a folder in the logs": lambda folder: (folder / "logs" / "00002-mine.log").mkdir(),
    "a link in the logs": lambda folder: (folder / "logs" / "00002-mine.log").symlink_to("/etc/passwd"),
    "a link for the log": lambda folder: ((folder / "events.jsonl").rename(folder.parent / "kept.jsonl"), (folder / "events.jsonl").symlink_to(folder.parent / "kept.jsonl")),
    "a link for the logs": lambda folder: ((folder / "logs").rename(folder.parent / "logs"), (folder / "logs").symlink_to(folder.parent / "logs")),
    "a link": lambda folder: ((folder / "junit.xml").unlink(), (folder / "junit.xml").symlink_to("/etc/passwd")),
    "a pipe": lambda folder: ((folder / "junit.xml").unlink(), os.mkfifo(folder / "junit.xml")),
    "a pipe for the log": lambda folder: ((folder / "events.jsonl").unlink(), os.mkfifo(folder / "events.jsonl")),
    "no log": lambda folder: (folder / "events.jsonl").unlink(),
    "an empty log": lambda folder: (folder / "events.jsonl").write_text(""),
    "another log": lambda folder: (folder / "events.jsonl").write_text('{"event": "bench"}\n'),
    "a log of lists": lambda folder: (folder / "events.jsonl").write_text("[]\n"),
    "another name": lambda folder: folder.rename(folder.parent / "my-run"),
}  # fmt: skip


@pytest.mark.parametrize("change", FOREIGN.values(), ids=FOREIGN)
def test_what_is_not_ours_alone_stays(base: Path, run: Make, change: Callable[[Path], object]) -> None:
    folder = run(0, extra=10)
    change(folder)
    run(1)
    run(2)
    old_files = listing(base)
    prune(ONE, base=base)
    expected = [path for path in old_files if name_of(1) not in path]
    assert listing(base) == expected and numbers(base)[-1] == 2


def listing(base: Path) -> list[str]:
    return sorted(os.path.join(parent, name) for parent, folders, files in os.walk(base) for name in (*folders, *files))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_another_users_run_stays(base: Path, run: Make) -> None:
    os.chown(run(0), 12345, 12345)
    run(1)
    run(2)
    prune(ONE, base=base)
    assert numbers(base) == [0, 2]


@pytest.mark.parametrize("part", ["", "runs"])
def test_nothing_is_removed_behind_a_link(base: Path, run: Make, tmp_path: Path, part: str) -> None:
    run(0)
    run(1)
    place = base / part
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert prune(ONE, base=base) == Pruned() and numbers(base) == [0, 1]


def test_a_linked_run_stays_and_its_target_too(base: Path, run: Make, tmp_path: Path) -> None:
    run(0).rename(tmp_path / name_of(0))
    (base / "runs" / name_of(0)).symlink_to(tmp_path / name_of(0))
    run(1)
    run(2)
    prune(ONE, base=base)
    assert numbers(base) == [0, 2] and (tmp_path / name_of(0) / "events.jsonl").is_file()


@pytest.mark.parametrize("name", [".junit.xml.77.tmp", ".diagnosis-1.json.77.0a1b2c3d.tmp", "diagnosis-1.json", "lock"])
def test_what_a_killed_run_was_writing_goes_with_it(base: Path, run: Make, name: str) -> None:
    (run(0) / name).write_text("half")
    run(1)
    assert prune(ONE, base=base).names == (name_of(0),)


def test_a_folder_that_cannot_be_emptied_keeps_its_log(base: Path, run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is a run still, and goes the next time."""

    def refuse(path: object) -> None:
        raise OSError

    folder = run(0)
    run(1)
    with monkeypatch.context() as patch:
        patch.setattr("runner.session.history.os.rmdir", refuse)
        assert prune(ONE, base=base) == Pruned((), 0, False)
    assert (folder / "events.jsonl").is_file()
    assert prune(ONE, base=base).names == (name_of(0),)


def test_a_deep_folder_of_a_case_stops_nothing(base: Path, run: Make, dig: Dig) -> None:
    place = run(0) / "logs"
    run(1)
    dig(place)
    run(2)
    assert prune(ONE, base=base).names == (name_of(1),) and numbers(base) == [0, 2]  # no run writes folders there


def stored(base: Path) -> Any:
    """What ``history.json`` holds below its signature."""
    return json.loads((base / "history.json").read_text().partition("\n")[2])


def test_verdicts_of_removed_runs_are_remembered(base: Path, run: Make) -> None:
    run(0, red="a")
    run(1, red="a")
    run(2)
    history.update(base)
    known = history.read(base)
    prune(ONE, base=base)
    history.update(base)
    assert history.read(base) == known
    assert [*stored(base)["runs"]] == [name_of(1)]


def test_without_runs_nothing_happens(base: Path) -> None:
    assert prune(ONE, base=base) == Pruned()
    base.mkdir()
    (base / "runs").write_text("a file")
    assert prune(ONE, base=base) == Pruned()


def test_a_forged_summary_is_held_against_the_log(base: Path, run: Make) -> None:
    """``history.json`` may be old: what it says of a run counts only for a log of that size."""
    folder = run(0, end=None)
    run(1)
    history.update(base)
    data = stored(base)
    data["runs"][name_of(0)] = [data["runs"][name_of(0)][0] - 1, True, []]
    write_signed(base / "history.json", json.dumps(data), "history", str(base))
    prune(ONE, base=base)
    assert folder.is_dir()
