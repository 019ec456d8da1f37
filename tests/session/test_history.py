"""What variants did the last time, from journals of whole runs, killed ones, and ones that go on."""

from __future__ import annotations

import os
import platform
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from runner.record.events import Event, RunFinished, RunStarted, VariantFinished
from runner.record.journal import Journal
from runner.record.signing import signature_of, write_signed
from runner.session import history
from runner.session.plan import plan
from tests.handmade import environment, played, variants

TORCH = "2.13.0"


@pytest.fixture
def chosen(tmp_path: Path) -> list:  # type: ignore[type-arg]
    return variants(tmp_path, "params: {n: [1, 2, 3]}")


def kept(base: Path, name: str, events: list[Event]) -> Path:
    path = base / "runs" / name / "events.jsonl"
    with Journal(path) as journal:
        for event in events:
            journal.write(event)
    return path


def words(base: Path) -> list[str]:
    return [last.verdict for _, last in sorted(history.read(base).items())]


def test_the_last_word_counts(chosen: list, tmp_path: Path) -> None:  # type: ignore[type-arg]
    kept(tmp_path, "1", played(chosen, [TORCH], lambda v, t: "FAIL"))
    kept(tmp_path, "2", played(chosen[:1], [TORCH], lambda v, t: "PASS"))
    assert words(tmp_path) == ["PASS", "FAIL", "FAIL"]
    history.update(tmp_path)
    (tmp_path / "runs" / "1" / "events.jsonl").write_text("")  # read no more
    assert words(tmp_path)[1:] == ["FAIL", "FAIL"]


def test_a_killed_run_counts_as_far_as_it_came(chosen: list, tmp_path: Path) -> None:  # type: ignore[type-arg]
    events = played(chosen, [TORCH], lambda v, t: "FAIL" if v is chosen[0] else None)
    kept(tmp_path, "1", [e for e in events if not isinstance(e, RunFinished)])
    history.update(tmp_path)
    assert words(tmp_path) == ["FAIL"]


def test_a_run_that_goes_on_is_read_again(chosen: list, tmp_path: Path) -> None:  # type: ignore[type-arg]
    events = played(chosen, [TORCH], lambda v, t: "PASS")
    finished = [e for e in events if isinstance(e, VariantFinished)]
    kept(tmp_path, "1", [e for e in events if e not in finished[1:]])
    history.update(tmp_path)
    kept(tmp_path, "1", [*finished[1:]])
    assert words(tmp_path) == ["PASS"] * 3


def test_what_stood_in_a_run_before_it_went_on_is_older_than_later_runs(chosen: list, tmp_path: Path) -> None:  # type: ignore[type-arg]
    first = played(chosen, [TORCH], lambda v, t: "FAIL")
    finished = [e for e in first if isinstance(e, VariantFinished)]
    kept(tmp_path, "1", [e for e in first if e not in finished[1:]])
    history.update(tmp_path)
    kept(tmp_path, "2", played(chosen[:2], [TORCH], lambda v, t: "PASS"))
    history.update(tmp_path)
    kept(tmp_path, "1", finished[1:])
    assert words(tmp_path) == ["PASS", "FAIL", "FAIL"]
    history.update(tmp_path)
    assert words(tmp_path) == ["PASS", "FAIL", "FAIL"]


def test_runs_of_one_second_are_ordered_by_the_numbers_of_their_processes(chosen: list, tmp_path: Path) -> None:  # type: ignore[type-arg]
    kept(tmp_path, "20260101-000000-10001", played(chosen[:1], [TORCH], lambda v, t: "PASS"))
    kept(tmp_path, "20260101-000000-9999", played(chosen[:1], [TORCH], lambda v, t: "FAIL"))
    kept(tmp_path, "20260101-000000-9999-2", played(chosen[1:2], [TORCH], lambda v, t: "FAIL"))
    assert words(tmp_path) == ["PASS", "FAIL"]


TORN = [
    "", "{", "[]", "\0", "[" * 100_000, '{"version": 99}', '{"version": 3, "last": 3, "runs": {}}', '{"version": 3, "last": [], "runs": 3}',
    '{"version": 3, "last": [], "runs": {"1": [5, true, [], "1"]}}', '{"version": 3, "last": [], "runs": {"1": [5, true, [], 1, 1]}}',
    *('{"version": 3, "runs": {}, "last": [' + entry + "]}" for entry in (
        "3", "[]", '["a", "2", "PASS"]', '["a", "2", "PASS", "x", true]', '["a", "2", "PASS", NaN, true]', '["a", "2", "\\u001b[2J", 1, true]', '["a", [], "PASS", 1, true]',
        '["a", "2", [], 1, true]', '["a", "2", "PASS", 1, 1]', '["a", "2", "PASS", 1' + "0" * 400 + ", true]",
    )),
]  # fmt: skip


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_file_is_made_again(chosen: list, tmp_path: Path, torn: str) -> None:  # type: ignore[type-arg]
    kept(tmp_path, "1", played(chosen, [TORCH], lambda v, t: "FAIL"))
    write_signed(tmp_path / "history.json", torn, "history", str(tmp_path))
    assert words(tmp_path) == ["FAIL"] * 3


def test_a_file_that_somebody_else_wrote_counts_for_nothing(chosen: list, tmp_path: Path) -> None:  # type: ignore[type-arg]
    kept(tmp_path, "1", played(chosen, [TORCH], lambda v, t: "FAIL"))
    history.update(tmp_path)
    path = tmp_path / "history.json"
    assert path.stat().st_mode & 0o077 == 0
    for text in (path.read_text().replace("FAIL", "PASS"), path.read_text().partition("\n")[2]):
        path.write_text(text.replace("FAIL", "PASS"))
        assert words(tmp_path) == ["FAIL"] * 3


def test_a_log_that_somebody_else_wrote_is_told_from_others(chosen: list, tmp_path: Path) -> None:  # type: ignore[type-arg]
    start, *events = played(chosen[:2], [TORCH], lambda v, t: "FAIL")
    assert isinstance(start, RunStarted)
    own = replace(start, host=platform.node())
    kept(tmp_path, "1", [replace(own, signature=signature_of(own)), *events])
    kept(tmp_path, "2", played(chosen[:1], [TORCH], lambda v, t: "FAIL"))
    for _ in range(2):
        assert [last.own for _, last in sorted(history.read(tmp_path).items())] == [False, True]
        history.update(tmp_path)


def test_a_long_journal_takes_the_memory_of_a_line(chosen: list, tmp_path: Path) -> None:  # type: ignore[type-arg]
    events = played(chosen, [TORCH], lambda v, t: "FAIL")
    (first, *_) = (e for e in events if isinstance(e, VariantFinished))
    kept(tmp_path, "1", [*events[:4], *[replace(first, output="x" * (1 << 20))] * 40, RunFinished(1, 2.0)])
    tracemalloc.start()
    assert words(tmp_path) == ["FAIL"] and history.read_runs(tmp_path)[1]["1"].red
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_files_that_are_none_hold_up_nothing(chosen: list, tmp_path: Path) -> None:  # type: ignore[type-arg]
    kept(tmp_path, "1", played(chosen, [TORCH], lambda v, t: "FAIL"))
    os.mkfifo(tmp_path / "history.json")
    for name in ("2", "3", "4"):
        (tmp_path / "runs" / name).mkdir()
    os.mkfifo(tmp_path / "runs" / "2" / "events.jsonl")
    (tmp_path / "runs" / "3" / "events.jsonl").mkdir()
    (tmp_path / "runs" / "4" / "events.jsonl").write_bytes(b'{"event": "variant-finished", "id": 3}\n\xff\n[]\n')
    assert words(tmp_path) == ["FAIL"] * 3


def test_no_link_is_followed_where_it_is_written(chosen: list, tmp_path: Path) -> None:  # type: ignore[type-arg]
    kept(tmp_path, "1", played(chosen, [TORCH], lambda v, t: "FAIL"))
    target = tmp_path / "target"
    target.write_text("kept")
    (tmp_path / "history.json").symlink_to(target)
    history.update(tmp_path)
    assert target.read_text() == "kept" and '"FAIL"' in (tmp_path / "history.json").read_text()


def test_nothing_is_written_behind_a_linked_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere" / "runs").mkdir(parents=True)
    (tmp_path / ".runner").symlink_to("elsewhere")
    history.update()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["runs"]


def test_nothing_is_known_of_nothing(tmp_path: Path) -> None:
    history.update(tmp_path)
    assert history.read(tmp_path) == {} and not [*tmp_path.iterdir()]


def test_seconds_of_a_cached_result_are_those_of_its_run(chosen: list, tmp_path: Path) -> None:  # type: ignore[type-arg]
    events = played(chosen[:1], [TORCH], lambda v, t: "PASS")
    kept(tmp_path, "1", [replace(e, spent={"busy": 7.0}) if isinstance(e, VariantFinished) else e for e in events])
    kept(tmp_path, "2", [replace(e, cached="1", seconds=0.0) if isinstance(e, VariantFinished) else e for e in events])
    ((_, last),) = history.read(tmp_path).items()
    assert last.seconds == 7.0


def test_seconds_are_those_of_a_slot(chosen: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[type-arg]
    monkeypatch.chdir(tmp_path)
    events = played(chosen[:1], [TORCH], lambda v, t: "PASS")
    kept(
        tmp_path / ".runner",
        "1",
        [replace(e, spent={"busy": 7.0}) if isinstance(e, VariantFinished) else e for e in events],
    )
    assert [*history.seconds_by_key().values()] == [7.0]


def test_orders(chosen: list) -> None:  # type: ignore[type-arg]
    planned = plan([*chosen, *chosen[:0]], [environment()])
    key = [history.key_of(item) for item in planned]
    known = {key[0]: history.Last("PASS", 1.0), key[1]: history.Last("PASS", 5.0), key[2]: history.Last("FAIL", 0.1)}

    def numbers(how: str, known: dict[tuple[str, str], history.Last]) -> list[int]:
        return [planned.index(entry) for entry in history.ordered(planned, known, how)]

    assert numbers("plan", known) == [0, 1, 2]
    assert numbers("failed-first", known) == [2, 0, 1]
    assert numbers("smart", known) == [2, 1, 0]
    del known[key[0]]  # never run: it may take long
    assert numbers("smart", known) == [2, 0, 1]
