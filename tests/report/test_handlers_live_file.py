"""The JUnit file on disk: valid at every instant, and no trouble with it ends a run."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema

from runner import files
from runner.record.events import Event, Notice, RunFinished, VariantFinished, VariantStarted
from runner.report import handlers, junit
from runner.report.junit import Dialect, JUnitFile, render
from tests.report.events_sample import every_verdict, finished, planned, started

SCHEMA = xmlschema.XMLSchema(str(Path(__file__).parent / "junit-10.xsd"))


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def begin(report: JUnitFile) -> None:
    """A run with one variant, up to the moment when the plan is written."""
    for event in (started(), planned("a"), VariantStarted("a", "2.13.0")):
        report.handle(event)


def test_the_file_is_valid_after_every_event(tmp_path: Path) -> None:
    path, clock = tmp_path / "new" / "junit.xml", Clock()
    report = JUnitFile(path, "strict", clock=clock)
    events = every_verdict()
    cases = sum(type(event).__name__ == "VariantPlanned" for event in events)
    plan_done = False
    for event in events:
        clock.now += 1
        report.handle(event)
        plan_done = plan_done or type(event).__name__ in ("VariantStarted", "VariantFinished")
        assert path.exists() == plan_done  # no file before the plan is whole: half a plan would pass for a report
        if plan_done:
            SCHEMA.validate(path.read_text(encoding="utf-8"))
            assert len(list(ElementTree.parse(path).iter("testcase"))) == cases
    report.close()
    assert path.read_text(encoding="utf-8") == render(events, "strict")
    assert os.listdir(path.parent) == ["junit.xml"]
    assert report.problem is None


def test_an_old_report_stays_until_the_plan_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_text("old")
    report = JUnitFile(path, clock=Clock())
    for event in (started(), planned("a")):
        report.handle(event)
        report.tick()
        assert path.read_text() == "old"
    report.handle(VariantStarted("a", "2.13.0"))
    assert ElementTree.parse(path).getroot().get("tests") == "1"


def test_the_whole_plan_is_on_disk_before_anything_ends(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    report = JUnitFile(path, clock=Clock())  # time stands still: the throttle would hold every further write back
    for event in (started(), planned("a"), planned("b"), VariantStarted("a", "2.13.0")):
        report.handle(event)
    assert [e.get("type") for e in ElementTree.parse(path).iter("skipped")] == ["not-run", "not-run"]


def test_writes_are_throttled_and_the_end_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, writes = Clock(), []

    def replace(source: str, target: str) -> None:
        writes.append(clock.now)
        clock.now += 0.1  # a slow disk: one second has to pass before the next write
        os.rename(source, target)

    monkeypatch.setattr(os, "replace", replace)
    report = JUnitFile(tmp_path / "junit.xml", clock=clock)
    report.handle(started())
    for n in range(100):
        report.handle(planned(str(n)))
    for n in range(99):
        clock.now += 0.1
        report.handle(finished(name=str(n)))
    gaps = [b - a for a, b in pairwise(writes)]
    assert len(writes) < 15 and all(gap >= 1.0 for gap in gaps[1:])  # the first gap: the plan is written at once
    count = len(writes)
    report.tick()
    assert len(writes) == count
    clock.now += 2
    report.tick()
    assert len(writes) == count + 1
    report.handle(finished(name="99"))
    report.handle(RunFinished(0, 1.0))
    assert len(writes) == count + 2
    report.close()
    assert len(writes) == count + 2  # nothing new, nothing written


@pytest.mark.parametrize("broken", ["open", "fsync", "replace", "makedirs"])
def test_a_full_disk_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    path, clock = tmp_path / "junit.xml", Clock()
    problems: list[str] = []
    report = JUnitFile(path, "strict", on_problem=problems.append, clock=clock)
    events = every_verdict()
    for event in events[:13]:
        clock.now += 1
        report.handle(event)
    content = path.read_bytes()

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if broken == "open":
            patch.setattr(files, "open", full, raising=False)
        else:
            patch.setattr(os, broken, full)
        for event in events[13:]:
            clock.now += 1
            report.handle(event)
        assert path.read_bytes() == content
        assert os.listdir(tmp_path) == ["junit.xml"]
        assert problems == [f"{path} could not be written: No space left on device"]
        assert report.problem == problems[0]
    report.close()
    assert path.read_text(encoding="utf-8") == render(events, "strict")
    assert report.problem is None


def test_a_killed_process_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    code = (
        "import sys\n"
        "from runner.report.handlers import LiveFile\n"
        "n = 0\n"
        "file = LiveFile(sys.argv[1], lambda: [f'<a n=\"{n}\">'.encode(), b'x' * 1_000_000, b'</a>'])\n"
        "while True:\n"
        "    n += 1; file.touch(); file.write(now=True)\n"
        "    if n == 1: print('ready', flush=True)\n"
    )
    for delay in (0.0, 0.011, 0.023, 0.037):
        process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(delay)
        process.kill()
        process.wait()
        process.stdout.close()
        assert len(ElementTree.parse(path).getroot().text or "") == 1_000_000


def test_a_folder_that_vanished_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "out" / "junit.xml"
    report = JUnitFile(path)
    begin(report)
    path.unlink()
    path.parent.rmdir()
    report.close()
    assert path.exists()


def test_a_folder_that_cannot_be_made_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where the folder should be")
    problems: list[str] = []
    report = JUnitFile(tmp_path / "out" / "junit.xml", on_problem=problems.append)
    for event in every_verdict():
        report.handle(event)
    report.close()
    assert len(problems) == 1 and report.problem == problems[0]


def test_what_is_no_regular_file_is_left_alone(tmp_path: Path) -> None:
    problems: list[str] = []
    begin(JUnitFile(tmp_path, on_problem=problems.append))
    begin(JUnitFile("/dev/null", on_problem=problems.append))
    assert len(problems) == 2 and all("not a regular file" in message for message in problems)


def test_a_link_is_replaced_and_the_file_behind_it_stays(tmp_path: Path) -> None:
    (tmp_path / "real.xml").write_text("mine")
    (tmp_path / "link.xml").symlink_to(tmp_path / "real.xml")
    begin(JUnitFile(tmp_path / "link.xml"))
    assert not (tmp_path / "link.xml").is_symlink() and (tmp_path / "real.xml").read_text() == "mine"


def test_a_problem_may_become_an_event(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way")
    problems: list[str] = []

    def on_problem(message: str) -> None:
        problems.append(message)
        report.handle(Notice(message))

    report = JUnitFile(tmp_path / "out" / "junit.xml", on_problem=on_problem)
    for event in every_verdict():
        report.handle(event)
    assert len(problems) == 1


def test_an_event_that_cannot_be_is_told_and_stays_a_problem(tmp_path: Path) -> None:
    problems: list[str] = []
    report = JUnitFile(tmp_path / "junit.xml", on_problem=problems.append)
    for event in (started(), planned(), planned(), finished(), RunFinished(0, 1.0)):
        report.handle(event)
    report.close()
    assert len(problems) == 1 and "planned twice" in problems[0]
    assert report.problem is not None
    assert len(list(ElementTree.parse(tmp_path / "junit.xml").iter("testcase"))) == 1


@pytest.mark.parametrize("dialect", ["strict", "extended"])
def test_each_rewrite_says_what_a_report_made_at_once_would(tmp_path: Path, dialect: Dialect) -> None:
    path, clock = tmp_path / "junit.xml", Clock()
    report = JUnitFile(path, dialect, clock=clock)
    surprise = finished("FAIL", "not_planned", file="other.spec.yaml", suites=("regressions", "other"))
    events: list[Event] = [*every_verdict()[:-1], surprise, finished(name="never"), RunFinished(1, 2.0)]
    so_far: list[Event] = []
    count = 0
    for event in events:
        clock.now += 60
        so_far.append(event)
        report.handle(event)
        if path.exists():
            count += 1
            assert path.read_text(encoding="utf-8") == render(so_far, dialect)
    assert count == 13 and report.problem is None


def test_a_result_is_rendered_once_however_often_the_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids: list[str] = []
    show = junit.show

    def counted(event: VariantFinished, source: junit.Source) -> junit.Shown:
        ids.append(event.id)
        return show(event, source)

    monkeypatch.setattr(junit, "show", counted)
    clock = Clock()
    report = JUnitFile(tmp_path / "junit.xml", clock=clock)
    for event in every_verdict():
        clock.now += 60
        report.handle(event)
    report.close()
    assert len(ids) == len(set(ids)) == 10


def test_a_large_file_is_written_at_the_rate_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_RATE", 1000)
    clock = Clock()
    file = handlers.LiveFile(tmp_path / "large", lambda: [str(clock.now).encode(), b"x" * 4000], clock=clock)
    file.write()
    for second in range(1, 4):
        clock.now = second
        file.touch()
        file.write()
        assert file_says(tmp_path) == 0.0
    clock.now = 4.1
    file.write()
    assert file_says(tmp_path) == 4.1
    clock.now = 4.2
    file.touch()
    file.write(now=True)  # at the end nothing waits
    assert file_says(tmp_path) == 4.2


def file_says(folder: Path) -> float:
    """The time at which the file was written."""
    return float((folder / "large").read_text().rstrip("x"))
