"""The store of runs: folders for what commands write, rules of keeping, one writer a run, and what the latest one said."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.cli.main import main
from runner.contract.finding import Finding
from runner.exit_codes import UsageError
from runner.record.events import Event, RunStarted, VariantFinished, VariantPlanned, VariantStarted, to_json
from runner.record.signing import signature_of
from runner.record.store import (
    USUAL_KEEP,
    Keep,
    is_locked,
    keep_from_environment,
    latest_options,
    latest_result,
    latest_seed,
    latest_suites,
    lock,
    lock_file,
    new_folder,
    output_folder,
    parse_keep,
    read_events,
)
from tests.mutations import written
from tests.report.events_sample import finished, planned, started


def test_a_folder_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(UsageError, match="there is something in it"):
        output_folder(str(tmp_path), "x")
    for name in ("mine.txt", "mine.txt/below"):
        with pytest.raises(UsageError, match=r"--output .*mine\.txt"):
            output_folder(str(tmp_path / name), "x")
    assert output_folder(str(tmp_path / "new"), "x").is_dir()
    with pytest.raises(UsageError, match="No such file or directory"):  # parents are never made unasked
        output_folder(str(tmp_path / "typo" / "one"), "x")


def test_without_a_name_it_is_in_a_new_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = output_folder(None, "debug")
    assert folder.parent.parent == tmp_path / ".runner" / "runs" and folder.name == "debug" and folder.is_dir()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the name of the run is empty"),
        (".", r"no event log in /.+: a run's folder holds events\.jsonl"),
        ("nowhere", "no event log at nowhere: there is no such file"),
        ("x" * 5000, "File name too long"),
        ("loop", "no event log at loop"),
        ("pipe", "no event log at pipe: it is no regular file"),
        ("wrong", "no event log in /.+/wrong: a run's folder"),
        ("mine.txt/below", "no event log at mine.txt/below"),
        ("latest", r"no event log at \.runner/latest"),
    ],
)
def test_what_is_no_event_log_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "wrong" / "events.jsonl").mkdir(parents=True)
    with pytest.raises(UsageError, match=reason) as error:
        read_events(name)
    assert error.value.code == 4


@pytest.mark.parametrize(
    ("link", "target"), [("latest", "../out"), ("latest", "runs"), ("runs", "../out"), ("", "out")]
)
def test_latest_means_a_run_that_is_kept_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "out", tmp_path / "out" / "one", tmp_path / "out" / "latest"):
        written(folder / "events.jsonl", [started()])
    if link:
        written(tmp_path / ".runner" / "runs" / "one" / "events.jsonl", [started()])
        (tmp_path / ".runner" / "latest").symlink_to("runs/one")
        assert read_events("latest")
        (tmp_path / ".runner" / link).rename(tmp_path / "away")
    if link == "latest":
        written(tmp_path / ".runner" / "runs" / "events.jsonl", [started()])
    (tmp_path / ".runner" / link).symlink_to(target)
    with pytest.raises(UsageError, match=r"^\.runner/latest leads to /.+, which is not among the runs kept here; name"):
        read_events("latest")


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"text", b"\x7fELF\x02\x01\n\x00", b'{"event": "run-started"}', b"[]\n" * 99]
)
def test_a_file_that_is_no_log_is_refused_with_its_first_problem(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"x is no event log: (it has no line|line \d+)"):
        read_events(str(path))


def test_a_short_log_does_not_fill_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A thousand variants, each with a backend of its own, are a million cells, which took 19 s."""
    many = [str(number) for number in range(1001)]
    log = tmp_path / "events.jsonl"
    written(log, [started(), *(planned("a", suites=(name,)) for name in many)])
    with pytest.raises(UsageError, match="of 1,001 suites; at most 1,000 are read"):
        read_events(str(log))
    log.unlink()
    written(log, [started(), *(planned(name, suites=tuple(many[:100])) for name in many)])
    with pytest.raises(UsageError, match="1,001 variants are in 100,100 places"):
        read_events(str(log))
    log.unlink()
    variants = [(f"case{name}", f"backend{name}") for name in many]
    written(
        log, [started(), *(planned(*names) for names in variants), *(finished("PASS", *names) for names in variants)]
    )
    begin = time.process_time()
    assert main(["report", str(log)]) == 0
    assert time.process_time() - begin < 5
    assert "the table is left out: 1,002,001 cells, of which 1,001 hold something" in capsys.readouterr().out


def test_a_bad_limit_in_the_environment_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_text("{}\n")
    monkeypatch.setenv("RUNNER_LIMIT_LOG_BYTES", "many")
    with pytest.raises(UsageError, match="RUNNER_LIMIT_LOG_BYTES: 'many' is not a size"):
        read_events(str(tmp_path / "x"))


def test_no_link_is_followed_in_a_folder_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".runner").mkdir()
    (tmp_path / ".runner" / ".gitignore").symlink_to(tmp_path / "elsewhere")
    folder, warning = new_folder()
    assert folder.is_dir() and not warning and not (tmp_path / "elsewhere").exists()
    assert new_folder()[0] != folder


def test_names_order_runs_by_their_start_in_any_time_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def name_under(zone: str) -> str:
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        return new_folder()[0].name

    first, name, last = name_under("UTC"), name_under("UTC-14"), name_under("UTC")
    monkeypatch.undo()
    time.tzset()
    assert first[:15] <= name[:15] <= last[:15]


@pytest.mark.parametrize("place", [".runner", ".runner/runs"])
def test_no_run_is_kept_behind_a_link(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "elsewhere" / "runs").mkdir(parents=True)
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).symlink_to(tmp_path / "elsewhere")
    folder, warning = new_folder()
    assert f"{place} is a link to" in warning and folder.parent == tmp_path
    assert [path.name for path in (tmp_path / "elsewhere").rglob("*")] == ["runs"]


def test_where_no_run_can_be_kept_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".runner").write_text("somebody's own file")
    assert output_folder(None, "debug").is_dir()
    assert "cannot keep runs here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("50 runs, 2 GiB", USUAL_KEEP), ("2GiB,50 runs", USUAL_KEEP), ("50 runs", Keep(50, None)), ("1 run", Keep(1, None)), ("1.5 MiB", Keep(None, 3 << 19)),
        ("all", Keep()), (" all ", Keep()),
    ],
)  # fmt: skip
def test_rules(text: str, keep: Keep) -> None:
    assert parse_keep(text) == keep
    assert parse_keep(str(keep)) == keep


@pytest.mark.parametrize(
    "text", ["", "0 runs", "-1 runs", "50", "50 runs, 3 runs", "1 GiB, 2 GiB", "1e9 runs", "0 GiB", "50 runs,", "none", "9" * 5000 + " runs"]
)  # fmt: skip
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(ValueError, match="is no rule such as '50 runs, 2 GiB'"):
        parse_keep(text)


def test_holds() -> None:
    assert Keep(2, 10).holds(2, 10) and not Keep(2, 10).holds(3, 1) and not Keep(2, 10).holds(1, 11)
    assert Keep().holds(10**9, 10**18)


def test_the_environment_has_the_rule() -> None:
    assert keep_from_environment({}) == USUAL_KEEP and keep_from_environment({"RUNNER_KEEP": "3 runs"}) == Keep(3, None)
    with pytest.raises(UsageError, match="environment variable RUNNER_KEEP: 'x' is no rule"):
        keep_from_environment({"RUNNER_KEEP": "x"})


HOLD = """
import sys, time
from pathlib import Path
from runner.record.store import lock
held = lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        with pytest.raises(
            UsageError, match=rf"process {process.pid} on .+, since 2\d{{3}}-.+ UTC; wait until"
        ) as error:
            lock(tmp_path)
        assert error.value.code == 4
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with lock(tmp_path):  # a holder that was killed holds nothing
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_the_lock_is_given_back(tmp_path: Path) -> None:
    for _ in range(3):
        assert not is_locked(tmp_path)
        with lock(tmp_path), pytest.raises(UsageError):
            assert is_locked(tmp_path)
            lock(tmp_path)


def test_a_child_that_lives_on_holds_nothing(tmp_path: Path) -> None:
    with lock(tmp_path):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        lock(tmp_path).close()
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "[" * 100_000, '{"pid": "\\u001b[2J"}'])
def test_a_lock_that_does_not_say_whose_it_is(tmp_path: Path, text: str) -> None:
    with lock(tmp_path):
        (tmp_path / "lock").write_text(text)
        with pytest.raises(UsageError, match="it does not say which"):
            lock(tmp_path)


def test_what_cannot_be_locked_stops_nothing_and_no_link_is_followed(tmp_path: Path) -> None:
    lock(tmp_path / "none").close()
    target = tmp_path / "target"
    target.write_text("kept")
    (tmp_path / "lock").symlink_to(target)
    lock(tmp_path).close()
    (tmp_path / "lock").unlink()
    os.mkfifo(tmp_path / "lock")
    lock(tmp_path).close()
    assert target.read_text() == "kept"


def test_a_named_log_has_one_writer(tmp_path: Path) -> None:
    log = str(tmp_path / "log.jsonl")
    with lock_file(log):
        with pytest.raises(UsageError, match=r"log\.jsonl: another run writes this file; name another one"):
            lock_file(log)
        lock_file(str(tmp_path / "other.jsonl")).close()
    lock_file(log).close()
    for device in ("/dev/null", str(tmp_path / "none" / "log.jsonl")):
        with lock_file(device):
            lock_file(device).close()


ID, OTHER, LATE = (
    "a.spec.yaml::c[float32,cpu]@mine",
    "a.spec.yaml::d[float32,cpu]@eager",
    "a.spec.yaml::e[float32,cpu]@eager",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def keep(
    folder: Path, sign: bool = True, argv: tuple[str, ...] = ("runner", "run", "s.suite.yaml"), **changes: Any
) -> None:
    values: dict[str, Any] = {
        "cwd": os.getcwd(),
        "host": platform.node(),
        "suites": {"s": "/x/s.suite.yaml", "a": "/x/a.spec.yaml"},
    }
    started = RunStarted("r", "0", argv, "2026-01-02T03:04:05", folder="f", **{**values, **changes})
    started = replace(started, signature=signature_of(started) if sign else "")
    common = ("2.13.0", "python", "cpu", "float32", ID.partition("@")[0], "/x/a.spec.yaml", 1)
    events: list[Event] = [
        started,
        VariantPlanned(ID, "c", "s", ("s",), "mine", *common),
        VariantPlanned(OTHER, "d", "a", ("a",), "eager", *common),
        VariantStarted(ID, "2.13.0"),
        VariantPlanned(LATE, "e", "s", ("s",), "eager", *common),
    ]
    journal = folder / ".runner/latest/events.jsonl"
    journal.parent.mkdir(parents=True, exist_ok=True)
    journal.write_text("".join(json.dumps(to_json(event)) + "\n" for event in events))


def test_only_what_a_suite_planned(folder: Path) -> None:
    keep(folder)
    # OTHER ran by its own file; what stands after the first start was not announced.
    assert latest_suites([ID, OTHER, LATE, "a.spec.yaml::c", "a.spec.yaml"]) == {ID: "/x/s.suite.yaml"}
    assert latest_suites([OTHER]) == latest_suites([]) == {}


def test_a_link_to_another_place_says_nothing(folder: Path) -> None:
    keep(folder)
    (folder / ".runner" / "latest").rename(folder / "away")
    (folder / ".runner" / "latest").symlink_to("../away")
    assert latest_suites([ID]) == {}
    (folder / ".runner" / "runs").mkdir()
    (folder / "away").rename(folder / ".runner" / "runs" / "r")
    (folder / ".runner" / "latest").unlink()
    (folder / ".runner" / "latest").symlink_to("runs/r")
    assert latest_suites([ID]) == {ID: "/x/s.suite.yaml"}
    row = ID.partition("@")[0]
    assert latest_suites([row, ID]) == {row: "/x/s.suite.yaml", ID: "/x/s.suite.yaml"}


@pytest.mark.parametrize("changes", [{"sign": False}, {"host": "elsewhere"}, {"cwd": "/elsewhere"}])
def test_a_run_of_somebody_or_somewhere_else_says_nothing(folder: Path, changes: dict[str, Any]) -> None:
    keep(folder, argv=("runner", "run", "--backend", "my:fn"), **changes)
    assert latest_suites([ID]) == {} and latest_options("--backend") == ()


def test_typed_backends(folder: Path) -> None:
    keep(folder, argv=("runner", "run", "s", "--backend", "my:fn", "--backend=eager"))
    assert latest_options("--backend") == ("my:fn", "eager")


@pytest.mark.parametrize("text", [None, "", "{", "[]\n", '{"event": "notice", "message": "x"}\n', "\0\0"])
def test_no_run_and_a_torn_log(folder: Path, text: str | None) -> None:
    if text is not None:
        (folder / ".runner/latest").mkdir(parents=True)
        (folder / ".runner/latest/events.jsonl").write_text(text)
    assert latest_suites([ID]) == {} and latest_options("--backend") == ()


def finished_line(torch: str, *findings: Finding) -> str:
    common = (torch, "python", "cpu", "float32", ID.partition("@")[0], "/x/a.spec.yaml", 1)
    event = VariantFinished(ID, "c", "s", ("s",), "mine", *common, verdict="PASS", seconds=1.0, findings=findings)
    return json.dumps(to_json(event)) + "\n"


def test_what_the_latest_run_says_of_a_variant(folder: Path) -> None:
    assert latest_result(ID) is None and latest_seed() == 0
    keep(folder, argv=("runner", "run", "s", "--seed", "1", "--seed=-7"))
    assert latest_result(ID) is None and latest_seed() == -7
    with (folder / ".runner/latest/events.jsonl").open("a") as log:
        log.write(
            finished_line("2.13.0") + finished_line("2.6.0", Finding("value", "it differs")) + finished_line("2.7.0")
        )
    result = latest_result(ID)
    assert result is not None and result.torch == "2.6.0"
    assert latest_result(OTHER) is None
    assert latest_result(ID.partition("@")[0]) is None


def test_somebody_elses_result_says_nothing(folder: Path) -> None:
    keep(folder, argv=("runner", "run", "s", "--seed", "1"), sign=False)
    with (folder / ".runner/latest/events.jsonl").open("a") as log:
        log.write(finished_line("2.13.0"))
    assert latest_result(ID) is None and latest_seed() == 0
