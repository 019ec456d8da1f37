"""A run that ended early goes on; what failed is run again; parts are joined; nothing that stands is lost or run twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.record.events import RunStarted, from_json, to_json
from runner.record.signing import signature_of

from .driver import Result, command, environment, latest, run_in, spec, write

pytestmark = pytest.mark.usefixtures("stand_in")

BROKEN = "relu_accuracy_error_TESTING_ONLY"
CASES = spec(
    "name: good\ninputs: {x: [4]}\nparams: {n: [1, 2]}\nchain: [{torch.add: [$x, $n]}]",
    "name: bad\ninputs: {x: [4]}\nchain: [torch.relu]",
)
PLAIN = ("run", "a.spec.yaml", "--backend", "eager", "--backend", BROKEN, "--no-confirm", "-j", "1")
GATE = """
    import pathlib
    import time

    def waits(graph, inputs):
        while not pathlib.Path("open").exists():
            time.sleep(0.05)
        return graph
    """
BAD = f"a.spec.yaml::bad[float32,cpu]@{BROKEN}"


@pytest.fixture(scope="module")
def whole(stand_in: None, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """One whole run; its folder is copied from where later runs are to know it."""
    folder = tmp_path_factory.mktemp("again")
    write(folder, {"a.spec.yaml": CASES})
    result = run_in(folder, *PLAIN)
    assert result.code == 1 and "5 passed, 1 failed" in result.out, result.text
    return result


def ran(result: Result) -> set[str]:
    return {event["id"] for event in result.events if event["event"] == "variant-finished"}


def cut(result: Result, target: Path, finished: int) -> Path:
    """The run's folder as a runner killed after ``finished`` verdicts leaves it, in a folder of its own."""
    assert result.folder is not None
    write(target, {"a.spec.yaml": CASES})
    folder = target / ".runner" / "runs" / result.folder.name
    folder.mkdir(parents=True)
    lines, count = [], 0
    for line in (result.folder / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        count += event["event"] == "variant-finished"
        if count > finished:
            break
        if event["event"] == "run-started":
            start = from_json(json.loads(line.replace(str(result.cwd), str(target))))
            assert isinstance(start, RunStarted)
            line = json.dumps({**event, **to_json(replace(start, signature=signature_of(start)))})
        lines.append(line)
    (folder / "events.jsonl").write_text("\n".join([*lines, lines[-1][:20]]))  # the last line is torn
    (target / ".runner" / "latest").symlink_to(Path("runs") / result.folder.name)
    return folder


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's log."""
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines() if line.endswith("}")]


def test_a_killed_run_goes_on_where_it_ended_and_one_process_at_a_time_writes_to_it(
    whole: Result, tmp_path: Path
) -> None:
    folder = cut(whole, tmp_path, 2)
    write(tmp_path, {"a.spec.yaml": "# a comment changes nothing\n" + CASES})
    processes = [
        subprocess.Popen(command("resume"), cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]  # fmt: skip
    outputs = {process.pid: (*process.communicate(timeout=240), process.returncode) for process in processes}
    assert sorted(code for _, _, code in outputs.values()) == [1, 4], outputs
    holder, out = next((pid, out) for pid, (out, _, code) in outputs.items() if code == 1)
    error = next(error for _, error, code in outputs.values() if code == 4)
    assert "another process writes to" in error and f"process {holder} on " in error
    assert "5 passed, 1 failed" in out
    assert latest(tmp_path) == folder.resolve()
    finished = [line["id"] for line in lines_of(folder) if line["event"] == "variant-finished"]
    assert len(finished) == len(set(finished)) == 6
    assert sum(line["event"] == "run-resumed" for line in lines_of(folder)) == 1
    again = run_in(tmp_path, "resume")
    assert again.code == 1 and "nothing is left to do" in again.err
    report = run_in(tmp_path, "report")
    assert "5 passed, 1 failed" in report.out and "interrupted" not in report.out


def test_a_run_killed_while_it_said_its_plan(whole: Result, tmp_path: Path) -> None:
    folder = cut(whole, tmp_path, 0)
    text = (folder / "events.jsonl").read_text().splitlines()
    (folder / "events.jsonl").write_text("\n".join(text[:3]) + "\n")  # the start and two of six variants
    result = run_in(tmp_path, "resume")
    assert "5 passed, 1 failed" in result.out, result.text


def test_changed_cases_are_no_part_of_an_old_run(whole: Result, tmp_path: Path) -> None:
    cut(whole, tmp_path, 2)
    write(tmp_path, {"a.spec.yaml": CASES.replace("torch.relu", "F.relu")})
    result = run_in(tmp_path, "resume")
    assert result.code == 4 and "have changed since" in result.err


def test_what_failed_is_run_again(whole: Result) -> None:
    result = run_in(whole.cwd, "rerun", whole.folder, "--failed", "--", "--stress", "3")
    assert (result.code, ran(result)) == (1, {BAD})
    assert result.of(f"bad@{BROKEN}")["attempts"] == 3


def test_last_failed_and_failed_first(whole: Result) -> None:
    good = run_in(whole.cwd, *PLAIN, "--lf", "-k", "good and backend:eager")  # does not make the failure forgotten
    assert good.code == 0 and len(ran(good)) == 2  # none of them failed: all run
    result = run_in(whole.cwd, *PLAIN, "--lf")
    assert (result.code, ran(result)) == (1, {BAD})
    assert "--lf: 1 of 6 variants" in result.out
    for flags in (["--ff"], ["--order", "smart"]):
        first = run_in(whole.cwd, *PLAIN, *flags, "-x")
        assert (first.code, ran(first)) == (1, {BAD}), first.text


def test_a_log_of_somebody_else_hides_no_failure(whole: Result, tmp_path: Path) -> None:
    folder = cut(whole, tmp_path, 6)
    start, *events = (folder / "events.jsonl").read_text().splitlines()
    strange = tmp_path / ".runner" / "runs" / "99990101-000000-1" / "events.jsonl"
    strange.parent.mkdir()
    turned = [
        line.replace('"FAIL"', '"PASS"') if BAD in line else line for line in events if "PASS" in line or BAD in line
    ]
    strange.write_text("\n".join([start.replace('"argv": [', '"argv": ["x", '), *turned]) + "\n")
    (tmp_path / ".runner" / "history.json").write_text(json.dumps({"version": 3, "runs": {}, "last": []}))
    result = run_in(tmp_path, *PLAIN, "--lf")
    assert BAD in ran(result), result.text
    assert "6 verdicts of logs that you did not write here do not count" in result.out


def test_shards_are_joined(whole: Result, tmp_path: Path) -> None:
    parts = []
    for index in (1, 2):
        folder = tmp_path / str(index)
        write(folder, {"a.spec.yaml": CASES})
        part = run_in(folder, *PLAIN, "--shard", f"{index}/2")
        assert part.folder is not None, part.text
        assert all(event["plan"] and event["shard"] == f"{index}/2" for event in part.events)
        parts.append(part)
    assert ran(parts[0]) | ran(parts[1]) == ran(whole) and not ran(parts[0]) & ran(parts[1])
    write(tmp_path, {"a.spec.yaml": CASES})
    result = run_in(tmp_path, "merge", parts[1].folder, parts[0].folder, "-o", "joined", "--junit", "j.xml")
    assert result.code == 1 and "5 passed, 1 failed" in result.out, result.text
    cases = [name for name in result.out.split() if name.startswith("a.spec.yaml::good[n=")]
    places = [cases.index(f"a.spec.yaml::good[n={n},float32,cpu]") for n in (1, 2)]
    assert places == sorted(places)
    assert (tmp_path / "j.xml").read_text() == (tmp_path / "joined" / "junit.xml").read_text()
    for runs, why in (
        ((parts[0].folder,), "2/2"),
        ((parts[0].folder, parts[0].folder), "same shard"),
        ((parts[0].folder, whole.folder), "is no shard"),
    ):
        refused = run_in(tmp_path, "merge", *runs)
        assert refused.code == 4 and why in refused.err, refused.text


def test_a_budget_ends_the_run_and_resume_goes_on(tmp_path: Path) -> None:
    write(tmp_path, {"a.spec.yaml": CASES, "gate.py": GATE})
    words = ("--backend", "eager", "--backend", "gate:waits", "--budget", "4s", "-j", "1", "--order", "plan")
    result = run_in(tmp_path, "run", "a.spec.yaml", *words)
    assert result.code == 2, result.text
    assert "the budget of 4 s is used up" in result.out and "not run" in result.out
    assert "a.spec.yaml::good[n=1,float32,cpu]@eager" in ran(result) and len(ran(result)) < 6
    (tmp_path / "open").touch()
    again = run_in(tmp_path, "resume")
    assert again.code == 0 and "6 passed" in again.out, again.text
    assert (tmp_path / ".runner" / "latest").resolve() == result.folder


def test_results_are_taken_from_the_cache(tmp_path: Path, run_runner: Callable[..., Result]) -> None:
    case = "name: excused\ninputs: {x: [4]}\nchain: [torch.relu, torch.neg]\n"
    excused = spec(case + f"known:\n  - {{backend: {BROKEN}, oracle: [value], reason: planted}}")
    files = {"a.spec.yaml": CASES, "b.spec.yaml": excused}
    words = ("run", *files, *PLAIN[2:])
    write(tmp_path, files)
    first = run_runner(*words, "--cached")
    assert first.code == 1 and not any(event.get("cached") for event in first.events)
    assert (first.verdicts[f"bad@{BROKEN}"], first.verdicts[f"excused@{BROKEN}"]) == ("FAIL", "XFAIL")
    second = run_runner(*(word for word in words if word != "--no-confirm"), "--cached")
    assert (second.code, second.verdicts) == (1, first.verdicts)
    cached = {event["id"] for event in second.events if event.get("cached")}
    assert cached == ran(first) - {BAD}  # what is red is never an old result
    assert first.folder is not None
    assert second.of("bad@eager")["cached"] == first.folder.name
    assert second.out.count("cached") >= 7
    assert (
        second.junit.findall(".//property[@name='cached']")
        or "cached=" in (second.folder or tmp_path).joinpath("junit.xml").read_text()
    )
    # Another source has no result yet, and a stored one does not outlive the ledger that excused it.
    write(tmp_path, {"a.spec.yaml": CASES.replace("torch.relu", "F.relu"), "b.spec.yaml": spec(case)})
    third = run_runner(*words, "--cached")
    assert {event["id"] for event in third.events if event["event"] == "variant-finished" and not event.get("cached")} == {
        BAD, "a.spec.yaml::bad[float32,cpu]@eager", f"b.spec.yaml::excused[float32,cpu]@{BROKEN}",
    }  # fmt: skip
    assert (third.code, third.verdicts[f"excused@{BROKEN}"]) == (1, "FAIL")
    assert not any(event.get("cached") for event in run_runner(*words, "-k", "good and backend:eager").events)


def test_runs_that_go_on_or_are_killed_or_interrupted(tmp_path: Path) -> None:
    """A run that goes on is not resumed; one that was killed and then interrupted is, to its end."""
    write(tmp_path, {"a.spec.yaml": CASES, "gate.py": GATE})
    log = tmp_path / ".runner" / "latest" / "events.jsonl"

    def count_starts() -> int:
        return log.read_text().count('"variant-started"') if log.exists() else 0

    def begin(*words: object, variants: int) -> subprocess.Popen[bytes]:
        """Start a command and wait until it has begun so many variants."""
        target = count_starts() + variants
        process = subprocess.Popen(command(*words), cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL)
        until = time.monotonic() + 120
        while count_starts() < target:
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.05)
        return process

    flags = ("--backend", "eager", "--backend", "gate:waits", "-j", 1, "--order", "plan")
    process = begin("run", "a.spec.yaml", *flags, variants=2)
    try:
        refused = run_in(tmp_path, "resume")
        assert refused.code == 4 and f"process {process.pid} on " in refused.err
    finally:
        process.kill()
        process.wait()
    process = begin("resume", variants=1)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) == 2
    (tmp_path / "open").touch()
    result = run_in(tmp_path, "resume")
    assert result.code == 0 and "6 passed" in result.out, result.text
    finished = [line["id"] for line in lines_of(log.parent) if line["event"] == "variant-finished"]
    assert len(finished) == len(set(finished)) == 6


def test_a_log_from_elsewhere_runs_nothing_of_its_own(whole: Result, tmp_path: Path) -> None:
    """One line by hand, as an attacker would write it."""
    mark = tmp_path / "mark"
    write(tmp_path, {
        "x.sh": f"#!/bin/sh\ntouch {mark}\n",
        "mine.txt": "kept\n",
        "a.spec.yaml": CASES,
        "evil.py": f"open({str(mark)!r}, 'w')\n",
    })  # fmt: skip
    (tmp_path / "x.sh").chmod(0o755)
    words = ["run", "a.spec.yaml", "--python", str(tmp_path / "x.sh"), "--import", "evil", "--allow-python", "--junit", "mine.txt",
             "--events", "mine.txt", "--backend", "evil:backend", "-k", "good and n=1", "--device", "cpu"]  # fmt: skip
    start = {
        "event": "run-started",
        "run": "r",
        "version": "0",
        "argv": ["runner", *words],
        "started": "now",
        "host": "h",
        "folder": "f",
    }
    (tmp_path / "log.jsonl").write_text(json.dumps({**start, "cwd": "/"}) + "\n")
    refused = run_in(tmp_path, "rerun", "log.jsonl")
    assert refused.code == 4 and "pass --yes" in refused.err and "  runner run a.spec.yaml" in refused.err
    result = run_in(tmp_path, "rerun", "log.jsonl", "--yes", "--", "--backend", "eager")
    assert result.code == 0 and "1 passed" in result.out and "left out: --python" in result.err, result.text
    assert not mark.exists() and (tmp_path / "mine.txt").read_text() == "kept\n"
    start_of_new = result.events[0]
    assert start_of_new["argv"] == [
        "runner",
        "run",
        "a.spec.yaml",
        "-k",
        "good and n=1",
        "--device",
        "cpu",
        "--backend",
        "eager",
    ]
    skipped = CASES.replace("    chain:", "    requires: {torch: '<2'}\n    chain:")  # now nothing of it needs to run
    write(tmp_path, {"a.spec.yaml": skipped})
    assert run_in(tmp_path, "rerun").code == 0  # the new run is one's own


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("report", "."), "a run's folder holds events.jsonl"),
        (("report", ""), "the name of the run is empty"),
        (("report", "x" * 5000), "File name too long"),
        (("report", "/dev/zero"), "it is no regular file"),
        (("report", "a.spec.yaml"), "is no event log: line 1, column 1: no JSON"),
        (("resume",), "no event log"),
        (("rerun", "nowhere"), "no event log"),
        (("merge", "nowhere"), "no event log"),
        (("run", "a.spec.yaml", "--shard", "3/2"), "1/2 to 2/2"),
        (("run", "a.spec.yaml", "--budget", "soon"), "no time such as 90s"),
    ],
)
def test_what_cannot_be_is_said(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    write(tmp_path, {"a.spec.yaml": CASES})
    result = run_in(tmp_path, *words)
    assert result.code == 4 and why in result.err, result.text
