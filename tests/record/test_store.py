"""Folders for what commands write."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from runner.cli.main import main
from runner.exit_codes import UsageError
from runner.record.store import new_folder, output_folder, read_events
from tests.mutations import written
from tests.report.events_sample import finished, planned, started


def test_a_folder_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(UsageError, match="there is something in it"):
        output_folder(str(tmp_path), "x")
    for taken in ("mine.txt", "mine.txt/below"):
        with pytest.raises(UsageError, match=r"--output .*mine\.txt"):
            output_folder(str(tmp_path / taken), "x")
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

    before, name, after = name_under("UTC"), name_under("UTC-14"), name_under("UTC")
    monkeypatch.undo()
    time.tzset()
    assert before[:15] <= name[:15] <= after[:15]


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
