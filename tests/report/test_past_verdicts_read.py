from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from runner.record.events import Event, RunFinished
from runner.record.journal import Journal
from runner.report.past_verdicts import past_verdicts
from tests.report.events_sample import FILE, failure, finished, planned, started


def write(base: Path, name: str, *events: Event, plan: str = "p") -> Path:
    path = base / "runs" / name / "events.jsonl"
    with Journal(path) as journal:
        for event in (started(run=name, plan=plan), planned(), *events, RunFinished(0, 1.0)):
            journal.write(event)
    return path


def words(base: Path, case: str) -> list[tuple[str, str, str]]:
    return [(past.run, past.event.id.partition("::")[2], past.event.verdict) for past in past_verdicts(case, base)[0]]


def test_the_newest_run_comes_first(tmp_path: Path) -> None:
    write(tmp_path, "1", finished(name="a"))
    write(tmp_path, "2", failure(name="a"), finished(name="b"))
    assert words(tmp_path, "a") == [("2", "a[float32,cpu]@inductor", "FAIL"), ("1", "a[float32,cpu]@inductor", "PASS")]
    assert past_verdicts("a", tmp_path)[1] == 2


@pytest.mark.parametrize(
    ("case", "ids"),
    [
        ("a", ["a[float32,cpu]@eager", "a[float32,cpu]@inductor"]),
        ("a@eager", ["a[float32,cpu]@eager"]),
        (f"{FILE}::a", ["a[float32,cpu]@eager", "a[float32,cpu]@inductor"]),
        (f"./{FILE}::a@eager", ["a[float32,cpu]@eager"]),
        (f"{FILE}::a[float32,cpu]", ["a[float32,cpu]@eager", "a[float32,cpu]@inductor"]),
        (f"{FILE}::a[float32,cpu]@inductor", ["a[float32,cpu]@inductor"]),
        (os.path.abspath(FILE) + "::a@eager", ["a[float32,cpu]@eager"]),
        (FILE, ["a[float32,cpu]@eager", "a[float32,cpu]@inductor", "ab[float32,cpu]@eager"]),
        ("other.spec.yaml::a", []),
        ("ab@inductor", []),
        ("[", []),
    ],
)
def test_what_a_case_names(tmp_path: Path, case: str, ids: list[str]) -> None:
    write(
        tmp_path, "1", *(finished(name=n, backend=b) for n, b in (("a", "eager"), ("a", "inductor"), ("ab", "eager")))
    )
    assert [id_ for _, id_, _ in words(tmp_path, case)] == ids


@pytest.mark.parametrize("folder", ["", "./", "other/../"])
def test_a_file_is_found_by_each_of_its_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """Events name files by their absolute paths."""
    for name, file in (("a", tmp_path / "a.spec.yaml"), ("b", tmp_path.parent / "b.spec.yaml")):
        event = replace(finished(name=name, file=file.name), file=str(file))
        write(tmp_path, name, event)
    monkeypatch.chdir(tmp_path)
    paths = [
        f"{folder}a.spec.yaml",
        str(tmp_path / "a.spec.yaml"),
        f"{folder}../b.spec.yaml",
        str(tmp_path.parent / "b.spec.yaml"),
    ]
    assert [[run for run, *_ in words(tmp_path, path)] for path in paths] == [["a"], ["a"], ["b"], ["b"]]


def test_an_id_above_this_folder_is_found_as_it_was_printed(tmp_path: Path) -> None:
    write(tmp_path, "1", finished(name="a", file="../a.spec.yaml"))
    assert [run for run, *_ in words(tmp_path, "../a.spec.yaml::a")] == ["1"]


def test_of_a_variant_that_ran_twice_the_later_verdict_counts(tmp_path: Path) -> None:
    write(tmp_path, "1", failure(name="a"), finished(name="a"))
    assert [verdict for _, _, verdict in words(tmp_path, "a")] == ["PASS"]


def test_the_order_within_a_run_is_not_that_of_their_ends(tmp_path: Path) -> None:
    old, new, eager = failure(name="a", torch="2.6.0"), finished(name="a"), finished(name="a", backend="eager")
    for number, events in enumerate(((old, new, eager), (eager, new, old))):
        write(tmp_path / str(number), "1", *events)
    orders = [
        [(past.event.backend, past.event.torch) for past in past_verdicts("a", tmp_path / str(n))[0]] for n in (0, 1)
    ]
    assert orders == [[("eager", "2.13.0"), ("inductor", "2.6.0"), ("inductor", "2.13.0")]] * 2


def test_logs_that_are_none_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "1", finished(name="a"))
    torn = write(tmp_path, "2", finished(name="a"), failure(name="a"))
    text = torn.read_bytes()
    torn.write_bytes(
        text[: text.rindex(b'"verdict": "FAIL"')] + b"\n\xff\n[1]\n" + b'{"event": "variant-finished", "id": "a"}\n'
    )
    (tmp_path / "runs" / "3").mkdir()
    os.mkfifo(tmp_path / "runs" / "3" / "events.jsonl")
    (tmp_path / "runs" / "4" / "events.jsonl").mkdir(parents=True)
    assert [(run, verdict) for run, _, verdict in words(tmp_path, "a")] == [("2", "PASS"), ("1", "PASS")]


def test_names_that_json_escapes_are_found(tmp_path: Path) -> None:
    name = 'ü"\\\u4e2d'
    write(tmp_path, "1", finished(name=name))
    assert len(words(tmp_path, name)) == 1


def test_without_runs_there_is_nothing(tmp_path: Path) -> None:
    assert past_verdicts("a", tmp_path) == ([], 0)
