"""The journal under full disks, torn lines and killed writers; what the events of a log cannot say together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from runner.cases.limits import Limits
from runner.contract.finding import Finding
from runner.record import journal
from runner.record.events import Event, Notice, RunFinished, RunResumed, RunStarted, VariantFinished, VariantPlanned
from runner.record.journal import Journal, Problems, Weight, audit, lines, read_journal, stream_journal
from tests.handmade import finding, played, variants
from tests.mutations import ended

STARTED = RunStarted(
    "r1", "1", ("run", "suites"), "2026-01-01T00:00:00", "host", "/w", ({"python": "3.11", "torch": "2.6"},)
)
FINISHED = VariantFinished(
    id="a/b",
    case="b",
    suite="a",
    suites=("a",),
    backend="inductor",
    torch="2.6.0",
    python="3.11.7",
    device="cpu",
    dtype="float32",
    label="a/b",
    file="a.yaml",
    line=3,
    verdict="FAIL",
    seconds=1.5,
    oracles=("value",),
    findings=(Finding("value", "off by \udc80 one\n", numbers={"max": float("nan")}),),
)
EVENTS: list[Event] = [STARTED, FINISHED, Notice("héllo"), RunFinished(1, 2.0)]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "journal.jsonl"
    with Journal(path) as log:
        assert all(log.write(event) for event in EVENTS)
        assert len(path.read_bytes().splitlines()) == 4  # at once, not at the end
    events, problems = read_journal(path)
    assert repr(events) == repr(EVENTS) and not problems  # by repr: NaN is not equal to itself


def test_a_stream_holds_one_event(tmp_path: Path) -> None:
    problems = Problems()
    with Journal(tmp_path / "journal.jsonl") as log:
        log.write(Notice("first"))
        stream = stream_journal(tmp_path / "journal.jsonl", problems)
        assert next(stream) == Notice("first")
        os.write(log._descriptor, b"no event\n")  # nothing was read ahead
        log.write(Notice("last"))
        assert not problems and list(stream) == [Notice("last")] and len(problems) == 1


def test_what_many_lines_say_is_one_object(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as log:
        for number in range(2):
            log.write(replace(FINISHED, params={"some_name": number}, labels=("some-label",)))
    (first, second), _ = read_journal(tmp_path / "journal.jsonl")
    assert isinstance(first, VariantFinished) and isinstance(second, VariantFinished)
    for value, twin in ((first.id, second.id), (first.labels[0], second.labels[0]), (first.spent, second.spent)):
        assert value is twin
    assert next(iter(first.params)) is next(iter(second.params)) and [*first.params.values()] == [0]


def test_limits_of_the_environment_hold_for_every_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as log:
        log.write(Notice("first"))
    monkeypatch.setenv("RUNNER_LIMIT_LOG_BYTES", "10")
    for read in (lambda: list(lines(path)), lambda: list(stream_journal(path, Problems()))):
        with pytest.raises(OSError, match="log_bytes is 10 bytes"):
            read()
    monkeypatch.setenv("RUNNER_LIMIT_LOG_BYTES", "no size")
    assert len(list(lines(path))) == 1


def test_every_line_is_stamped_and_the_events_stay_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    stamp = {"plan": "abc", "shard": "2/4", "message": "not this", "event": "nor this"}
    with Journal(path, stamp=stamp) as log:
        assert all(log.write(event) for event in EVENTS)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["plan"], line["shard"]) for line in lines] == [("", "")] + [("abc", "2/4")] * 3  # a run says its own
    assert repr(read_journal(path)[0]) == repr(EVENTS)


def test_a_journal_is_continued_after_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"event": "notice", "message": "whole"}\n{"event": "noti')
    torn = ["line 2: cut short, as a killed runner leaves it"]
    assert read_journal(path) == ([Notice("whole")], Problems(torn, 1, Weight.USUAL))
    with Journal(path) as log:
        log.write(Notice("next"))
    assert read_journal(path) == ([Notice("whole"), Notice("next")], Problems(torn, 1, Weight.USUAL))


NO_EVENTS = [
    (b"\xff\xfe", "decode"),
    (b"\xc3\x28", "can't decode"),
    (b"[1, 2]", "expected a mapping"),
    (b"3", "expected a mapping"),
    (b'{"events": "notice"}', "expected a mapping with a text under event"),
    (b'{"event": ["notice"]}', "expected a mapping with a text under event"),
    (b'{"event": "run-finished"}', "'exit_code' is missing"),
    (b'{"event": "run-finished", "exit_code": 0, "seconds": "x"}', "seconds: expected a number, found 'x'"),
    (b'{"event": "run-finished", "exit_code": 0, "seconds": NaN}', "seconds: nan is not finite"),
    (b'{"event": "run-finished", "exit_code": true, "seconds": 1}', "exit_code: expected an integer, found True"),
    (b'{"event": "run-finished", "exit_code": -1, "seconds": 1}', "exit_code: -1 is not between 0 and 255"),
    (
        b'{"event": "notice", "message": "m", "severity": "\\u001b[2J"}',
        "severity: expected one of info, warning, error",
    ),
    (b'{"event": "notice", "message": "m", "plan": []}', "plan: expected a text, found a list of 0"),
    (b'{"event": "notice" "message": "m"}', "column 20: no JSON: Expecting ',' delimiter"),
    (b'{"event": "run-finished", "exit_code": 1%s}' % (b"0" * 5000), "Exceeds the limit"),
    (b"[" * 100_000 + b"]" * 100_000, "nested deeper than 100"),
    (b'{"event": "notice", "message": "m", "more": ' + b"[" * 101 + b"]" * 101 + b"}", "nested deeper than 100"),
]


@pytest.mark.parametrize(("line", "reason"), NO_EVENTS, ids=range(len(NO_EVENTS)))
def test_a_line_that_is_no_event_is_named_and_left_out(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(
        b"\n" + line + b'\n\n{"event": "notice", "message": "m", "later": 1}\n{"event": "of-a-later-version"}\n'
    )
    events, problems = read_journal(path)
    assert events == [Notice("m")] and (problems.count, problems.worst) == (1, Weight.REFUSED)
    assert problems.named[0].startswith("line 2") and reason in problems.named[0] and len(problems.named[0]) <= 300


def test_every_beginning_of_a_line_is_a_torn_one(tmp_path: Path) -> None:
    data = {
        "event": "notice",
        "message": 'h\u00e9 \\ {[}]"}',
        "more": [1, {"b": None, "c": -2.5e3, "d": {}}, True, "\ud800"],
    }
    whole = json.dumps(data)
    path = tmp_path / "journal.jsonl"
    for size in range(1, len(whole)):
        path.write_text(whole[:size])
        events, problems = read_journal(path)
        assert events == [] and (problems.count, problems.worst) == (1, Weight.USUAL), (whole[:size], problems)


def test_zeros_at_the_end_are_what_a_power_failure_leaves(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"event": "notice", "message": "m"}\n' + b"\0" * 4096)
    events, problems = read_journal(path)
    assert events == [Notice("m")] and (problems.count, problems.worst) == (1, Weight.USUAL)


def test_ten_problems_are_named_and_the_others_counted(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"[]\n" * 1000)
    problems = read_journal(path)[1]
    assert len(problems.lines()) == 11 and problems.lines()[-1] == "and 990 more" and len(problems) == 1000


def test_a_long_line_is_passed_over_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    limits = Limits(log_line_bytes=100)
    message = json.dumps({"event": "notice", "message": "x" * 65}).encode()
    assert len(message) == 99
    path.write_bytes(message + b"\n" + b"y" * 1000 + b"\n" + message + b"\n" + b"z" * 100)
    events, problems = read_journal(path, limits)
    assert len(events) == 2 and problems.count == 2
    assert problems.named[0] == "line 2: it has more than 100 bytes (log_line_bytes)"
    assert problems.named[1].startswith("line 4, column 1: no JSON")


def test_a_log_that_is_too_large_or_no_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"{}\n" * 100)
    with pytest.raises(OSError, match="it has 300 bytes, and log_bytes is 299 bytes"):
        read_journal(path, Limits(log_bytes=299))
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "/dev/zero"):
        with pytest.raises(OSError, match=r"regular file|directory"):
            read_journal(tmp_path / name)


@pytest.mark.slow
def test_a_gigabyte_on_one_line_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with path.open("wb") as file:
        file.write(b'{"event": "notice", "message": "')
        file.truncate(1 << 30)  # the rest is a hole, which reads as zeros
    tracemalloc.start()
    try:
        events, problems = read_journal(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert events == [] and "more than 16 MiB" in problems.named[0] and peak < 100 << 20


def test_what_is_written_can_be_read_however_long_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    huge = replace(
        FINISHED, output="é" * (8 << 20), params={"n": [["x" * 5000] * 200] * 3}, findings=FINISHED.findings * 3
    )
    nested: list[object] = ["x" * 4096] * 100
    hopeless = replace(FINISHED, params={"n": [nested] * 100})
    with Journal(path, stamp={"plan": "abc"}) as log:
        assert log.write(huge) and log.write(hopeless)
    events, problems = read_journal(path)
    assert not problems and len(events) == 2
    assert isinstance(events[0], VariantFinished) and events[0].id == "a/b" and len(events[0].findings) == 3
    assert "bytes cut" in events[0].output
    assert events[1] == Notice("an event of a/b was too long for the log (39.1 MiB)", "error")


def test_a_full_disk_warns_once_and_the_run_goes_on(tmp_path: Path) -> None:
    problems: list[str] = []
    path = tmp_path / "journal.jsonl"
    path.symlink_to("/dev/full")
    with Journal(path, problems.append) as log:
        assert [log.write(event) for event in EVENTS] == [False] * 4
    (problem,) = problems
    assert "No space left on device" in problem and "journal.jsonl" in problem and log.lost == 4


def test_a_write_cut_short_spoils_only_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[str] = []
    path = tmp_path / "journal.jsonl"
    room = [90]
    write = os.write

    def until_full(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        count = write(descriptor, data[: room[0]])
        room[0] -= count
        return count

    log = Journal(path, problems.append)
    monkeypatch.setattr(journal.os, "write", until_full)
    assert [log.write(Notice("one")), log.write(Notice("two")), log.write(Notice("three"))] == [True, False, False]
    room[0] = 1000  # somebody made room
    assert log.write(Notice("four")) and log.write(Notice("five"))
    log.close()
    events, faults = read_journal(path)
    assert events == [Notice("one"), Notice("four"), Notice("five")]
    assert (faults.count, faults.worst) == (1, Weight.USUAL) and "line 2: cut short" in faults.named[0]
    assert len(problems) == 1


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    problems: list[str] = []
    (tmp_path / "file").write_text("")
    log = Journal(tmp_path / "file" / "journal.jsonl", problems.append)
    assert not log.write(Notice("lost"))
    (tmp_path / "file").unlink()
    assert log.write(Notice("kept"))
    log.close()
    log.close()
    assert read_journal(log.path) == ([Notice("kept")], Problems()) and len(problems) == 1


def test_a_missing_journal_is_the_callers_to_explain(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_journal(tmp_path / "none.jsonl")


def test_a_killed_writer_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    script = f"""
from runner.record.events import Notice
from runner.record.journal import Journal
log = Journal({str(path)!r})
for number in range(10**9):
    log.write(Notice("x" * 1000 + str(number)))
    if number == 100:
        print("up", flush=True)
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"up\n"
        writer.kill()
    events, problems = read_journal(path)
    assert len(events) > 100 and problems.count <= 1 and problems.worst == Weight.USUAL


@pytest.fixture
def events(tmp_path: Path) -> list[Event]:
    """Three variants, of which the second fails."""
    chosen = variants(tmp_path, "params: {n: [1, 2, 3]}")
    log = played(chosen, ["2.13.0"], lambda v, t: finding() if v.params["n"] == 2 else "PASS")
    return [replace(event, planned=3) if isinstance(event, RunStarted) else event for event in ended(log, 1)]


def problems_of(events: list[Event]) -> tuple[list[Event], list[str], Weight]:
    problems = Problems()
    return audit(events, problems), problems.lines(), problems.worst


def results(events: list[Event]) -> list[VariantFinished]:
    return [event for event in events if isinstance(event, VariantFinished)]


def test_a_run_as_it_is_has_no_problem(events: list[Event]) -> None:
    assert problems_of(events) == (events, [], Weight.USUAL)
    cut = events[:-2]  # killed
    assert problems_of(cut) == (cut, [], Weight.USUAL)
    resumed = [*cut, RunFinished(2, 1.0, True), RunResumed("r", "later", 2), *events[-2:]]
    assert problems_of(resumed) == (resumed, [], Weight.USUAL)
    assert problems_of(events[:3]) == (events[:3], [], Weight.USUAL)  # killed while it announced its plan
    early = [*events[:-2], RunFinished(1, 1.0)]  # --max-fail
    assert problems_of(early) == (early, [], Weight.USUAL)


def test_two_verdicts_that_agree_count_once(events: list[Event]) -> None:
    passed = results(events)[0]
    clean, lines, weight = problems_of([*events[:-1], replace(passed, seconds=2.0), events[-1]])
    assert clean == events and weight == Weight.USUAL
    assert lines == [f"{passed.id} (torch 2.13.0) finished twice, both times PASS; it counts once"]


@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [
        ("PASS", "ERROR", "ERROR"),
        ("ERROR", "PASS", "ERROR"),
        ("SKIP", "XFAIL", "SKIP"),
        ("FLAKY", "INVALID", "INVALID"),
    ],
)
def test_of_two_verdicts_that_contradict_the_worse_counts(
    events: list[Event], first: str, second: str, counts: str
) -> None:
    first_result = results(events)[0]
    failure = finding()
    first_result = replace(first_result, findings=(failure,) if first == "XFAIL" else ())
    second_result = replace(first_result, verdict=second, findings=(failure,) if second == "XFAIL" else ())
    changed = [replace(first_result, verdict=first) if event is results(events)[0] else event for event in events]
    clean, lines, weight = problems_of([*changed[:-1], second_result, events[-1]])
    assert [event.verdict for event in results(clean) if event.id == first_result.id] == [counts]
    assert lines == [f"{first_result.id} (torch 2.13.0) finished twice, {first} and {second}; {counts} counts"]
    assert weight == Weight.DOUBTFUL


def test_what_did_not_run_at_first_ran_later(events: list[Event]) -> None:
    first = replace(results(events)[0], verdict="NOT-RUN")
    place = events.index(results(events)[0])
    assert problems_of([*events[:place], first, *events[place:]]) == (events, [], Weight.USUAL)


def test_a_variant_planned_twice_counts_once(events: list[Event]) -> None:
    planned = next(event for event in events if isinstance(event, VariantPlanned))
    clean, lines, weight = problems_of([events[0], planned, *events[1:]])
    assert clean == events and weight == Weight.USUAL and "is planned twice; it counts once" in lines[0]
    clean, lines, weight = problems_of([*events[:-1], replace(planned, file="/elsewhere"), events[-1]])
    assert clean == events and weight == Weight.DOUBTFUL and "in different words; the first counts" in lines[0]


def edited(events: list[Event], **changes: object) -> list[Event]:
    """The failure with these changes."""
    return [
        replace(event, **changes) if isinstance(event, VariantFinished) and event.verdict == "FAIL" else event  # type: ignore[arg-type]
        for event in events
    ]


def test_edits_that_contradict_are_named(events: list[Event]) -> None:
    planned = [event for event in events if isinstance(event, VariantPlanned)]
    start = events[0]
    assert isinstance(start, RunStarted)
    failed = results(events)[1]
    cases: list[tuple[list[Event], list[str]]] = [
        (
            edited(events, verdict="PASS"),
            ["the verdict PASS, and 1 finding", "exit code 1, and none of 3 verdicts is red"],
        ),
        (edited(events, verdict="PASS", findings=(), oracles=()), ["exit code 1, and none of 3 verdicts is red"]),
        (edited(events, findings=()), ["the verdict FAIL, and no finding"]),
        (edited(events, verdict="XFAIL", findings=()), ["the verdict XFAIL, and no finding", "exit code 1, and none"]),
        (
            [event for event in events if event is not planned[1]],
            ["was never planned", "3 variants, and 2 are planned"],
        ),
        (
            [event for event in events if getattr(event, "id", "") != planned[0].id],
            ["announces 3 variants, and 2 are planned"],
        ),
        ([replace(start, planned=2), *events[1:]], ["announces 2 variants, and 3 are planned"]),
        (
            ended([event for event in events if event is not failed], 0),
            ["ended with exit code 0, and 1 of its variants have no verdict"],
        ),
    ]
    for changed, texts in cases:
        clean, lines, weight = problems_of(changed)
        assert clean == changed and weight == Weight.DOUBTFUL
        assert len(lines) == len(texts) and all(text in line for text, line in zip(texts, lines, strict=True)), lines
        assert all(line.endswith("this log was edited, or written by another program") for line in lines)


def test_a_skip_explains_the_exit_code_of_a_run_that_may_not_skip(events: list[Event]) -> None:
    skipped = edited(events, verdict="SKIP", findings=(), oracles=(), stage=None)
    assert not any("exit code" in line for line in problems_of(skipped)[1])


def test_a_start_that_is_not_the_first_or_not_the_only_one(events: list[Event]) -> None:
    clean, lines, weight = problems_of([*events[1:4], events[0], *events[4:]])
    assert weight == Weight.REFUSED and lines[0].startswith("3 events before run-started")
    assert clean == events
    clean, lines, weight = problems_of([*events, *events])
    assert sum(isinstance(event, RunStarted) for event in clean) == 1 and len(results(clean)) == 3
    assert weight == Weight.REFUSED and "run-started stands there 2 times" in lines[0]
