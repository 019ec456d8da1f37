"""Results kept for later runs: what is a hit, what must miss, what is never kept, and what a spoiled folder does."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_jobs import Make, finish, one, take_fingerprint, texts

from runner.contract.job import Job
from runner.engine import caches, fingerprint
from runner.engine.caches import (
    NOT_IN_KEY,
    CachedEngine,
    evict,
    is_cacheable,
    is_lasting,
    make_cache_key,
    read_answer,
    write_answer,
)
from runner.engine.fingerprint import Fingerprint, Places
from runner.engine.messages import Outcome
from runner.record.events import Notice
from runner.record.signing import sign
from tests.handmade import Dig

FACTS = Fingerprint("digest")
SOURCE = '"""A case.\n\nWritten from a/b.yaml:3.\n"""\n\nimport torch\n'
JOB = Job("v here main", "v", "here", "m", SOURCE, {"backend": "inductor", "options": {"b": 1, "a": 2}})
PASSED: dict[str, Any] = {"findings": [], "trust": None, "labels": ["x"], "comparisons": 3, "seconds": {"eager": 0.5}}
WRONG = {**PASSED, "findings": [{"oracle": "value", "message": "differs", "numbers": {"max": 1.0}, "error": None}]}

Answers = Callable[[Job], Outcome]


class FakeEngine:
    """Answers each job at the next ``wait`` as told."""

    hello = "hello from behind"

    def __init__(self, answers: Answers) -> None:
        self.answers, self.jobs, self.queue, self.closed = answers, [], [], 0  # type: ignore[var-annotated]
        self.waited: list[float | None] = []

    def submit(self, job: Job) -> None:
        self.jobs.append(job)
        self.queue.append(job)

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        self.waited.append(timeout)
        jobs, self.queue = self.queue, []
        return [self.answers(job) for job in jobs]

    def running(self) -> list[tuple[Job, float, str]]:
        return [(job, 1.0, "eager") for job in self.queue]

    def cancel_all(self) -> list[Job]:
        jobs, self.queue = self.queue, []
        return jobs

    def notices(self) -> list[Notice]:
        return [Notice("from behind")]

    def close(self) -> None:
        self.closed += 1


class Unwanted(FakeEngine):
    """An engine that must not be asked for anything."""

    def submit(self, job: Job) -> None:
        raise AssertionError(f"a worker would start for {job.key}")

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        raise AssertionError("nothing runs")


def result(record: dict[str, Any] = PASSED, **fields: Any) -> Answers:
    return lambda job: Outcome(job, "result", 1.5, "judge", record, **fields)


PASSES = result()


def engine(folder: Path, answers: Answers = PASSES, facts: Fingerprint = FACTS, run: str = "r1") -> CachedEngine:
    return CachedEngine(FakeEngine(answers), folder, {"here": facts}, run)


def ask(engine: CachedEngine, job: Job = JOB) -> Outcome:
    engine.submit(job)
    (outcome,) = engine.wait(5.0)
    assert outcome.job is job
    return outcome


def later(folder: Path, job: Job = JOB, facts: Fingerprint = FACTS) -> Outcome:
    """What a later run gets: a hit is marked, and anything else says ``asked``."""
    return ask(engine(folder, lambda job: Outcome(job, "asked", 0.0), facts, "r2"), job)


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/*") if path.is_file())


# --- hits ---


def test_a_later_run_gets_the_outcome_and_no_worker_starts(tmp_path: Path) -> None:
    first = ask(engine(tmp_path, result(WRONG, output="printed")))
    assert first.cached == ""
    job = replace(JOB, key="another key", id="another/place::v", environment="here", timeout=1.0, memory=5, alone=True)
    behind = Unwanted(result())
    again = CachedEngine(behind, tmp_path, {"here": FACTS}, "r2")
    assert ask(again, job) == replace(first, job=job, cached="r1")
    assert (again.pending(), again.stored) == (0, 0)
    again.close()
    assert behind.closed == 1


def test_a_run_never_answers_itself(tmp_path: Path) -> None:
    cached_engine = engine(tmp_path)
    assert ask(cached_engine).cached == "" and ask(cached_engine, replace(JOB, key="retry")).cached == ""
    assert len(cached_engine.engine.jobs) == 2  # type: ignore[attr-defined]
    assert later(tmp_path).cached == "r1"


def test_nor_does_it_once_it_goes_on_after_an_interruption(tmp_path: Path) -> None:
    ask(engine(tmp_path))
    assert ask(engine(tmp_path)).cached == ""


def test_what_another_run_found_meanwhile_is_no_second_opinion(tmp_path: Path) -> None:
    first = engine(tmp_path, DOUBTFUL["timeout"])
    assert ask(first).ended == "timeout"
    ask(engine(tmp_path, run="r2"))
    assert ask(first, replace(JOB, key="retry")).ended == "timeout"


def test_a_hit_does_not_keep_what_runs_waiting(tmp_path: Path) -> None:
    ask(engine(tmp_path))
    mixed = engine(tmp_path, run="r2")
    second_job = replace(JOB, key="other", seed=3)
    mixed.submit(JOB)
    mixed.submit(second_job)
    assert mixed.pending() == 2 and [job.key for job, _, _ in mixed.running()] == ["other"]
    assert [(outcome.job.key, outcome.cached) for outcome in mixed.wait(9.0)] == [(JOB.key, "r1"), ("other", "")]
    assert mixed.engine.waited == [0.0]  # type: ignore[attr-defined]
    mixed.submit(replace(second_job, key="third", seed=4))
    assert mixed.cancel_all() == [replace(second_job, key="third", seed=4)] and mixed.pending() == 0


def test_whatever_else_the_engine_has_is_there(tmp_path: Path) -> None:
    with engine(tmp_path) as wrapped:
        assert wrapped.hello == "hello from behind"
        with pytest.raises(AttributeError):
            wrapped.no_such_thing  # noqa: B018
    assert wrapped.engine.closed == 1  # type: ignore[attr-defined]


def test_a_job_of_an_unknown_environment_is_passed_on(tmp_path: Path) -> None:
    assert ask(engine(tmp_path), replace(JOB, environment="there")).cached == ""
    assert entries(tmp_path) == []


# --- the key ---


def different(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, tuple):
        return (*value, "x")
    if isinstance(value, dict):
        return {**value, "x": 1}
    return "x"


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Job)])
def test_every_field_of_a_job_is_in_the_key_but_names_and_limits(name: str) -> None:
    variant = replace(JOB, **{name: different(getattr(JOB, name))})
    assert variant != JOB
    assert (make_cache_key(variant, FACTS) == make_cache_key(JOB, FACTS)) == (name in NOT_IN_KEY)


@pytest.mark.parametrize(
    "changes",
    [
        {"source": SOURCE + "#"}, {"source": SOURCE.replace("A case", "B case")}, {"seed": 1}, {"device": "meta"}, {"threads": 1},
        {"backend": {"backend": "aot_eager"}}, {"backend": {**JOB.backend, "options": {"a": 2, "b": 2}}},
        {"backend": {**JOB.backend, "dynamic": False}}, {"config": {"torch._inductor.config.cpp.simdlen": 1}},
        {"tolerance": {"exact": True}}, {"float64": False}, {"isolation": "fresh"}, {"expect": {"graphs": 1}}, {"packages": ("numpy",)},
    ],
)  # fmt: skip
def test_another_question_is_a_miss(tmp_path: Path, changes: dict[str, Any]) -> None:
    ask(engine(tmp_path))
    assert later(tmp_path, replace(JOB, **changes)).ended == "asked"
    assert later(tmp_path).cached == "r1"


def test_other_facts_are_a_miss(tmp_path: Path) -> None:
    ask(engine(tmp_path))
    assert later(tmp_path, facts=Fingerprint("another")).ended == "asked"


def test_a_result_counts_only_while_what_its_process_had_loaded_is_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "_TICK", -(10**10))
    module = tmp_path / "inner.py"
    module.write_text("one")
    record = {**PASSED, "code": [str(module)]}

    def now() -> Fingerprint:
        return Fingerprint("digest", places=Places())

    ask(engine(tmp_path / "cache", result(record), now()))
    assert later(tmp_path / "cache", facts=now()).cached == "r1"
    module.write_text("two")
    assert later(tmp_path / "cache", facts=now()).ended == "asked"
    module.write_text("one")
    assert later(tmp_path / "cache", facts=now()).result == record


def test_a_result_whose_code_is_gone_is_not_kept(tmp_path: Path) -> None:
    first = engine(tmp_path, result({**PASSED, "code": [str(tmp_path / "gone.py")]}))
    assert ask(first).ended == "result" and first.stored == 0 and entries(tmp_path) == []


def test_the_order_of_options_and_the_checkout_s_folder_change_nothing(tmp_path: Path) -> None:
    ask(engine(tmp_path))
    job = replace(JOB, source=SOURCE.replace("a/b.yaml:3", "/home/x/checkout/a/b.yaml:7"))
    assert later(tmp_path, job).cached == "r1"
    assert later(tmp_path, replace(JOB, backend={"options": {"a": 2, "b": 1}, "backend": "inductor"})).cached == "r1"


def test_only_the_docstring_s_own_line_is_left_out() -> None:
    for text in (
        '"""A case.\n\nWritten from here.\n\nmore\n"""\n',
        'x = """\nWritten from one\n"""\n',
        "# Written from one\n",
    ):
        first_job, second_job = (replace(JOB, source=text.replace("from ", f"from {word} ")) for word in ("a", "b"))
        assert make_cache_key(first_job, FACTS) != make_cache_key(second_job, FACTS)


def test_isolation_that_shares_less_will_do_and_never_more(tmp_path: Path) -> None:
    ask(engine(tmp_path), replace(JOB, isolation="fork"))
    runs = {name: later(tmp_path, replace(JOB, isolation=name)).cached for name in ("living", "fork", "fresh")}
    assert runs == {"living": "r1", "fork": "r1", "fresh": ""}
    ask(engine(tmp_path / "other"), replace(JOB, isolation="living"))
    runs = {
        name: later(tmp_path / "other", replace(JOB, isolation=name)).cached for name in ("living", "fork", "fresh")
    }
    assert runs == {"living": "r1", "fork": "", "fresh": ""}


def test_a_stored_pass_is_not_believed_once_the_worker_s_code_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in fingerprint.disturbing_variables(os.environ):
        monkeypatch.delenv(name)
    copied = tmp_path / "worker"
    shutil.copytree(fingerprint.WORKER.parent, copied)
    shutil.copytree(fingerprint.WORKER.parent.with_name("contract"), tmp_path / "contract")
    monkeypatch.setattr(fingerprint, "WORKER", copied / "__main__.py")
    old_facts = take_fingerprint(sys.executable)
    ask(engine(tmp_path / "cache", facts=old_facts))  # a judge that lets everything pass
    assert later(tmp_path / "cache", facts=take_fingerprint(sys.executable)).cached == "r1"
    with (copied / "judge.py").open("a") as file:
        file.write("# now it finds what is wrong\n")
    new_facts = take_fingerprint(sys.executable)
    honest = engine(tmp_path / "cache", result(WRONG), new_facts, "r2")
    assert ask(honest).result["findings"] and ask(honest).cached == ""


# --- what is never kept ---

DOUBTFUL: dict[str, Answers] = {
    "signal": lambda job: Outcome(job, "signal", 1.0, "backend", signal="SIGSEGV"),
    "timeout": lambda job: Outcome(job, "timeout", 1.0, "backend"),
    "memory": lambda job: Outcome(job, "memory", 1.0, "backend"),
    "no-result": lambda job: Outcome(job, "no-result", 1.0, "backend"),
    "broken": lambda job: Outcome(job, "broken", 1.0, "backend"),
    "lost": result(lost=1),
    "elsewhere": result(host="node7"),
    "reused": result(cached="r0"),
    **{
        f"doubt {word}": result({**PASSED, "trust": {"verdict": word, "reason": "so"}})
        for word in ("FLAKY", "VACUOUS", "INVALID", "SKIP")
    },
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_doubtful_outcomes_are_never_kept(tmp_path: Path, name: str) -> None:
    first = engine(tmp_path, DOUBTFUL[name])
    outcome = ask(first)
    assert not is_lasting(outcome) and first.stored == 0 and entries(tmp_path) == []
    assert later(tmp_path).ended == "asked"


@pytest.mark.parametrize(
    "record",
    [
        PASSED, WRONG,
        {**PASSED, "findings": [{"oracle": "error-type", "message": "", "error": {"chain": ["IndexError"]}}]},
        {**PASSED, "findings": [{"oracle": "compile-error", "message": "", "error": {"chain": ["InductorError"]}}]},
        {**PASSED, "eager_error": {"type": "RuntimeError"}},
    ],
)  # fmt: skip
def test_right_and_wrong_answers_are(tmp_path: Path, record: dict[str, Any]) -> None:
    first = engine(tmp_path, result(record))
    assert is_lasting(ask(first)) and first.stored == 1
    assert later(tmp_path).result == record


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"imports": ("mine",)}, FACTS), ({"paths": ("/mine",)}, FACTS), ({"cacheable": False}, FACTS),
        ({"backend": {"backend": "package:function"}}, FACTS), ({"task": "build"}, FACTS), ({"device": "cuda"}, FACTS),
        ({"device": "cuda:1"}, FACTS), ({"device": "xpu"}, Fingerprint("digest", devices=("cpu", "cuda"))), ({}, Fingerprint("digest", "TORCH_LOGS set")),
    ],
)  # fmt: skip
def test_jobs_that_other_code_decides_are_neither_kept_nor_answered(
    tmp_path: Path, changes: dict[str, Any], facts: Fingerprint
) -> None:
    job = replace(JOB, **changes)
    assert not is_cacheable(job, facts)
    assert ask(engine(tmp_path, facts=facts), job).cached == "" and entries(tmp_path) == []
    for isolation in ("fork", "fresh", "living"):  # even if somebody had kept it
        digest = make_cache_key(job, facts)
        write_answer(
            engine(tmp_path)._path(digest, isolation),
            "r0",
            {"seconds": 1.0, "phase": "judge", "result": PASSED, "output": ""},
        )
    assert later(tmp_path, job, facts).ended == "asked"


def test_on_a_card_whose_facts_are_known_jobs_are_kept(tmp_path: Path) -> None:
    card = Fingerprint("digest", devices=("cpu", "meta", "cuda"))
    job = replace(JOB, device="cuda:0")
    ask(engine(tmp_path, facts=card), job)
    assert later(tmp_path, job, card).cached == "r1"


def test_what_a_process_that_others_had_used_got_wrong_is_kept_once_a_fresh_one_agrees(tmp_path: Path) -> None:
    living, apart = replace(JOB, isolation="living"), replace(JOB, key="again")
    first = engine(tmp_path, result(WRONG))
    ask(first, living)
    assert entries(tmp_path) == [] and not is_lasting(Outcome(living, "result", 1.0, result=WRONG))
    ask(first, apart)
    assert later(tmp_path, apart).cached == later(tmp_path, living).cached == "r1"


@pytest.mark.parametrize(
    "order", [(PASSED, WRONG), (WRONG, PASSED), (WRONG, PASSED, WRONG), (PASSED, PASSED, WRONG, WRONG)]
)
@pytest.mark.parametrize("again", ["fork", "fresh"])
def test_two_answers_of_one_run_leave_nothing(tmp_path: Path, order: tuple[dict[str, Any], ...], again: str) -> None:
    queue = list(order)
    retried = engine(tmp_path, lambda job: result(queue.pop(0))(job))
    for number in range(len(order)):
        ask(retried, replace(JOB, key=f"try {number}", isolation="fork" if number == 0 else again))
    assert entries(tmp_path) == [] and later(tmp_path).ended == "asked"


def test_an_answer_after_a_death_is_not_kept_either(tmp_path: Path) -> None:
    answers = [DOUBTFUL["timeout"], result()]
    retried = engine(tmp_path, lambda job: answers.pop(0)(job))
    assert [ask(retried).ended, ask(retried).ended] == ["timeout", "result"] and entries(tmp_path) == []


# --- the files ---


def spoil_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def spoil_bit(path: Path) -> None:
    data = path.read_bytes()
    at = data.index(b"comparisons") + len(b'comparisons": ')
    path.write_bytes(data[:at] + b"9" + data[at + 1 :])
    json.loads(path.read_bytes().partition(b"\n")[2])  # still a whole file


def spoil_version(path: Path) -> None:
    text = path.read_text().partition("\n")[2]
    path.write_text(f"{sign('result', caches.VERSION + 1, path.name, text)}\n{text}")


def spoil_length(path: Path) -> None:
    text = path.read_text().partition("\n")[2].ljust(caches.LONGEST)
    path.write_text(f"{sign('result', caches.VERSION, path.name, text)}\n{text}")


def spoil_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def spoil_mode(path: Path) -> None:
    path.unlink()
    path.symlink_to("/proc/self/mem")  # unreadable, to root too


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_half, spoil_bit, spoil_version, spoil_length, spoil_folder, spoil_mode,
        *(lambda path, text=text: path.write_bytes(text) for text in (b"", b"\xff", b"null", b"[]", b"{}", b"[" * 100_000)),
    ],
)  # fmt: skip
def test_a_spoiled_file_is_a_miss_and_is_written_anew(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    ask(engine(tmp_path))
    (path,) = entries(tmp_path)
    assert read_answer(path) is not None
    spoil(path)
    assert read_answer(path) is None
    second = engine(tmp_path, run="r2")
    assert ask(second).cached == ""
    if spoil is not spoil_folder:
        assert later_than(tmp_path, "r3").cached == "r2"


def later_than(folder: Path, run: str) -> Outcome:
    return ask(engine(folder, lambda job: Outcome(job, "asked", 0.0), run=run))


def test_an_answer_that_somebody_else_wrote_is_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(engine(tmp_path))
    (path,) = entries(tmp_path)
    content = path.read_text()
    signature, _, text = content.partition("\n")
    run, outcome = json.loads(text)
    for forged in (
        f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}",
        f"{signature}\n{json.dumps(['r9', outcome], sort_keys=True)}",
        f"{signature}\n{json.dumps([run, {**outcome, 'output': 'x'}], sort_keys=True)}",
        f"é\n{text}",
        text,
    ):
        path.write_text(forged)
        assert read_answer(path) is None
    path.write_text(content)
    assert read_answer(path) is not None
    other_path = path.with_name("0" * 64 + ".json")  # of another question
    other_path.write_text(content)
    assert read_answer(other_path) is None
    other_path.unlink()
    os.mkfifo(other_path)
    assert read_answer(other_path) is None
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    assert read_answer(path) is None


def test_without_a_key_nothing_is_kept_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").write_text("somebody's own file")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cached_engine = engine(tmp_path / "results")
    assert ask(cached_engine).ended == "result" and entries(tmp_path / "results") == []
    behind, notice = texts(cached_engine)
    assert behind == "from behind"
    assert "results cannot be kept" in notice and "state/runner/key cannot be used" in notice


def test_a_file_lies_where_its_name_says_and_is_a_signature_and_json(tmp_path: Path) -> None:
    ask(engine(tmp_path))
    (path,) = entries(tmp_path)
    assert path.parent.name == path.name[:2] and path.suffix == ".json" and len(path.stem) == 64
    signature, _, text = path.read_text().partition("\n")
    assert len(signature) == 64 and json.loads(text)[0] == "r1"


def test_nothing_is_parsed_before_its_signature_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(engine(tmp_path))
    (path,) = entries(tmp_path)
    path.write_text(path.read_text()[1:])
    monkeypatch.setattr(json, "loads", lambda text: pytest.fail(f"{text[:20]} was parsed"))
    assert read_answer(path) is None


def test_nothing_is_kept_behind_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".runner").symlink_to("elsewhere")
    with pytest.raises(OSError, match=r"\.runner is a link"):
        write_answer(Path(".runner", "results", "ab", "abc.json"), "run", {})
    assert not [*(tmp_path / "elsewhere").iterdir()]


@pytest.mark.parametrize("broken", ["file in the way", "full", "read-only"])
def test_a_folder_that_cannot_be_written_disturbs_nothing(
    tmp_path: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    if broken == "file in the way":
        folder.write_text("")
    elif broken == "full":
        monkeypatch.setattr(os, "replace", _no_space)
    else:
        monkeypatch.setattr(tempfile, "mkstemp", _no_space)
    first = engine(folder)
    assert ask(first).ended == "result" and first.stored == 0
    assert str(folder) in first.problem and "\n" not in first.problem
    first.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == ([folder] if broken == "file in the way" else [])


def _no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_hits_need_no_writable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(engine(tmp_path))
    monkeypatch.setattr(os, "utime", _no_space)
    assert later(tmp_path).cached == "r1"


def _write_many(folder: str, writer: int) -> None:
    for number in range(60):
        data = {"seconds": 1.0, "phase": "judge", "result": {"by": writer, "text": "x" * 20_000}, "output": str(number)}
        write_answer(Path(folder, f"{number % 3:02d}", "entry.json"), f"r{writer}", data)


def test_writers_at_once_leave_whole_files(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(str(tmp_path), writer)) for writer in range(4)]
    for writer in writers:
        writer.start()
    reads = 0
    while any(writer.is_alive() for writer in writers):
        for path in tmp_path.glob("*/entry.json"):
            assert read_answer(path) is not None  # at every instant
            reads += 1
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4 and reads
    assert [path.name for path in entries(tmp_path)] == ["entry.json"] * 3  # and nothing else


def stored_name(number: int) -> str:
    return f"{number:02x}/{number:02x}{'0' * 62}.json"


def test_the_oldest_go_when_there_are_too_many(tmp_path: Path) -> None:
    for number in range(10):
        path = tmp_path / stored_name(number)
        path.parent.mkdir()
        path.write_bytes(b"x" * 100)
        os.utime(path, (1000 + number, 1000 + number))
    (tmp_path / "00" / "tmpab_c1234.tmp").write_bytes(b"x" * 100)  # a killed writer's
    os.utime(tmp_path / "00" / "tmpab_c1234.tmp", (5, 5))
    evict(tmp_path, 1100)
    assert len(entries(tmp_path)) == 11
    evict(tmp_path, 1000)
    assert [path.parent.name for path in entries(tmp_path)] == [f"{number:02d}" for number in range(1, 10)]
    evict(tmp_path, 150)
    assert [path.parent.name for path in entries(tmp_path)] == ["09"]


def test_room_is_made_below_a_deep_folder(tmp_path: Path, dig: Dig) -> None:
    old = tmp_path / stored_name(1)
    old.parent.mkdir()
    old.write_bytes(b"x" * 100)
    dig(tmp_path)
    evict(tmp_path, 10)
    assert not old.exists()


def test_only_files_of_the_cache_go(tmp_path: Path) -> None:
    (tmp_path / "ab").mkdir()
    (tmp_path / "notes.md").write_bytes(b"x" * 100)
    for name in ("ab.json", f"cd{'0' * 62}.json", f"ab{'0' * 62}.json.old", "left.tmp"):
        (tmp_path / "ab" / name).write_bytes(b"x" * 100)
    (tmp_path / "ab" / f"ab{'1' * 62}.json").symlink_to("left.tmp")
    (tmp_path / "ab" / f"ab{'2' * 62}.json").mkdir()
    (tmp_path / "ab" / f"ab{'3' * 62}.json").write_bytes(b"x" * 100)
    old_files = {*tmp_path.rglob("*")}
    evict(tmp_path, 10)
    assert old_files - {*tmp_path.rglob("*")} == {tmp_path / "ab" / f"ab{'3' * 62}.json"}


def test_what_is_used_is_not_old(tmp_path: Path) -> None:
    second_job = replace(JOB, key="k2", seed=1)
    first = engine(tmp_path)
    ask(first)
    (used,) = entries(tmp_path)
    ask(first, second_job)
    for path in entries(tmp_path):
        os.utime(path, (1000 + (path != used), 1000 + (path != used)))
    assert later(tmp_path).cached == "r1"
    small = CachedEngine(FakeEngine(result()), tmp_path, {"here": FACTS}, "r3", size=used.stat().st_size * 5 // 2)
    ask(small, replace(JOB, key="k3", seed=2))
    small.close()
    assert used in entries(tmp_path) and later(tmp_path, second_job).ended == "asked"


# --- before the real engine ---


def test_before_the_local_engine(make: Make, tmp_path: Path) -> None:
    record = repr(PASSED)
    first = CachedEngine(make(), tmp_path / "cache", {"here": FACTS}, "r1")
    outcome = one(first, f"result.update({record})", task="judge")  # type: ignore[arg-type]
    assert outcome.ended == "result" and outcome.result["comparisons"] == 3
    behind = make()
    second = CachedEngine(behind, tmp_path / "cache", {"here": FACTS}, "r2")
    assert one(second, f"result.update({record})", task="judge").cached == "r1"  # type: ignore[arg-type]
    assert behind._servers == {}
    assert finish(second) == {}  # type: ignore[arg-type]


@pytest.mark.parametrize("link", ["results", "."])
def test_nothing_behind_a_link_is_removed(link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious = tmp_path / "victim" / "results" / stored_name(0)
    precious.parent.mkdir(parents=True)
    precious.write_bytes(b"x" * 100)
    monkeypatch.chdir(tmp_path)
    if link == ".":
        Path(".runner").symlink_to("victim")
    else:
        Path(".runner").mkdir()
        Path(".runner/results").symlink_to("../victim/results")
    evict(Path(".runner/results"), 10)
    assert precious.exists()
    evict(tmp_path / "victim" / "results", 10)
    assert not precious.exists()
