"""``runner merge`` on shards that somebody changed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.cli.main import main
from runner.record.events import Event
from runner.session.plan import plan
from runner.session.settings import Shard
from runner.session.shards import chosen, plan_hash
from tests.handmade import environment, finding, loaded, played
from tests.mutations import ended, signed, written

COUNT = 2
Line = dict[str, Any]


class Shards:
    """The runs of two shards, and ``merge`` of them."""

    def __init__(self, path: Path) -> None:
        cases = "".join(f"  - {{name: case{number}, inputs: {{x: [2]}}, chain: [F.relu]}}\n" for number in range(8))
        (path / "a.spec.yaml").write_text("cases:\n" + cases)
        self.everything = plan(loaded(path / "a.spec.yaml").variants, [environment()])
        self.digest = plan_hash(self.everything)
        self.folders = [self.write(path / f"r{index}", index) for index in range(1, COUNT + 1)]

    def write(self, folder: Path, index: int, **changes: Any) -> Path:
        """The run of a shard, in which the first variant fails."""
        part = [item.variant for item in chosen(self.everything, Shard(index, COUNT))]
        assert len(part) > 1
        events: list[Event] = ended(
            played(part, ["2.13.0"], lambda v, t: finding() if v.id == part[0].id else "PASS"), 1
        )
        shard = f"{index}/{COUNT}"
        start = {"run": folder.name, "host": f"box{index}", "plan": self.digest, "shard": shard, "planned": len(part),
                 "total": len(self.everything), "argv": ("runner", "run", "a.spec.yaml"), **changes}  # fmt: skip
        written(folder / "events.jsonl", signed(events, **start), plan=self.digest, shard=shard)
        return folder

    def change(self, edit: Callable[[list[Line]], list[Line]], index: int = 2) -> None:
        """Edit the lines of a shard's log."""
        log = self.folders[index - 1] / "events.jsonl"
        lines = edit([json.loads(line) for line in log.read_text().splitlines()])
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def merge(self, *words: str) -> int:
        return main(["merge", *map(str, self.folders), "-o", "joined", *words])


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shards:
    monkeypatch.chdir(tmp_path)
    return Shards(tmp_path)


def of(lines: list[Line], kind: str) -> list[Line]:
    return [line for line in lines if line["event"] == kind]


def test_shards_as_they_are_make_one_run(shards: Shards, capsys: pytest.CaptureFixture[str]) -> None:
    assert shards.merge() == 1
    captured = capsys.readouterr()
    assert "6 passed, 2 failed" in captured.out and captured.err == ""
    assert main(["report", "joined"]) == 0
    captured = capsys.readouterr()
    assert "6 passed, 2 failed" in captured.out and captured.err == ""


@pytest.mark.parametrize("name", ["a.spec.yaml", "twin"])
@pytest.mark.parametrize(
    "words",
    [
        ("report", "r1", "--junit"),
        ("score", "r1", "--json"),
        ("score", "r1", "r2", "--svg"),
        ("diff", "r1", "r2", "--markdown"),
        ("merge", "r1", "r2", "-o", "joined", "--ctrf"),
    ],
    ids=lambda words: words[0],
)
def test_a_report_replaces_no_file_that_the_run_has_read(
    words: tuple[str, ...], name: str, shards: Shards, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path("a.spec.yaml").read_text()
    os.link("a.spec.yaml", "twin")
    assert main([*words, name]) == 4
    assert f"{words[-1]} {name}: this command reads that file; name another one" in capsys.readouterr().err
    assert Path("a.spec.yaml").read_text() == Path("twin").read_text() == text and not Path("joined").exists()


def contradictory(lines: list[Line]) -> list[Line]:
    failed = next(line for line in lines if line.get("verdict") == "FAIL")
    return [*lines[:-1], {**failed, "verdict": "PASS", "findings": [], "oracles": []}, lines[-1]]


def changed_verdict(lines: list[Line]) -> list[Line]:
    return [{**line, "verdict": "PASS"} if line.get("verdict") == "FAIL" else line for line in lines]


def hidden_failure(lines: list[Line]) -> list[Line]:
    return [{**line, "verdict": "PASS", "findings": []} if line.get("verdict") == "FAIL" else line for line in lines]


def removed_verdict(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line is not of(lines, "variant-finished")[-1]]


def removed_plan(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line is not of(lines, "variant-planned")[-1]]


def counted(start: Line, change: int) -> Line:
    return {**start, "planned": start["planned"] + change}


def removed_variant(lines: list[Line]) -> list[Line]:
    identifier = of(lines, "variant-planned")[-1]["id"]
    return [counted(lines[0], -1), *(line for line in lines[1:] if line.get("id") != identifier)]


def foreign_variant(lines: list[Line]) -> list[Line]:
    foreign = [
        {**line, "id": "b.spec.yaml::x[cpu]@inductor", "number": 99}
        for line in lines
        if line.get("id") == lines[1]["id"]
    ]
    return [counted(lines[0], 1), foreign[0], *lines[1:-1], *foreign[1:], lines[-1]]


def wrong_total(lines: list[Line]) -> list[Line]:
    return [{**lines[0], "total": lines[0]["total"] + 1}, *lines[1:]]


def changed_stamp(lines: list[Line]) -> list[Line]:
    return [*lines[:2], {**lines[2], "shard": "1/2"}, *lines[3:]]


def another_plan(lines: list[Line]) -> list[Line]:
    return [{**line, "plan": "feedfeedfeedfeed"} for line in lines]


def wrong_shard(lines: list[Line]) -> list[Line]:
    return [{**line, "shard": "3/2"} for line in lines]


def same_shard(lines: list[Line]) -> list[Line]:
    return [{**line, "shard": "1/2"} for line in lines]


def wrong_line(lines: list[Line]) -> list[Line]:
    return [*lines[:-1], {"event": "notice", "message": 3}, lines[-1]]


def two_runs(lines: list[Line]) -> list[Line]:
    return [*lines, *lines]


TAMPERED = [
    (contradictory, "finished twice, FAIL and PASS; FAIL counts"),
    (changed_verdict, "has the verdict PASS, and 1 finding: this log was edited"),
    (hidden_failure, "ended with exit code 1, and none of"),
    (removed_verdict, "has no verdict for 1 of its"),
    (removed_plan, "was never planned"),
    (removed_variant, "8 variants are planned, and these shards hold 7"),
    (foreign_variant, "8 variants are planned, and these shards hold 9"),
    (wrong_total, "9 variants are planned, and these shards hold 8"),
    (changed_stamp, "holds lines of several runs: shard 1/2 of plan"),
    (another_plan, "are of different plans"),
    (wrong_shard, "is no shard"),
    (same_shard, "are the same shard"),
    (wrong_line, "message: expected a text, found 3"),
    (two_runs, "run-started stands there 2 times"),
]


@pytest.mark.parametrize(("edit", "reason"), TAMPERED, ids=[edit.__name__ for edit, _ in TAMPERED])
def test_a_tampered_shard_is_refused(
    shards: Shards, capsys: pytest.CaptureFixture[str], edit: Callable[[list[Line]], list[Line]], reason: str
) -> None:
    shards.change(edit)
    assert shards.merge() == 4
    captured = capsys.readouterr()
    assert reason in captured.err and captured.out == "" and not Path("joined").exists()


def test_a_variant_of_another_shard_is_refused(shards: Shards, capsys: pytest.CaptureFixture[str]) -> None:
    """Doubled it is in two shards; moved, each shard is whole in itself and all are there."""
    first = [json.loads(line) for line in (shards.folders[0] / "events.jsonl").read_text().splitlines()]
    identifier = of(first, "variant-planned")[-1]["id"]
    lines = [{**line, "shard": "2/2"} for line in first if line.get("id") == identifier]
    shards.change(lambda own: [counted(own[0], 1), lines[0], *own[1:-1], *lines[1:], own[-1]])
    assert shards.merge() == 4
    assert "is in shard 1/2" in capsys.readouterr().err
    shards.change(lambda own: [counted(own[0], -1), *(line for line in own[1:] if line.get("id") != identifier)], 1)
    assert shards.merge() == 4
    assert f"{identifier} belongs to another shard than shard 2/2" in capsys.readouterr().err


def test_verdicts_that_stand_twice_alike_are_no_reason_to_refuse(
    shards: Shards, capsys: pytest.CaptureFixture[str]
) -> None:
    shards.change(lambda lines: [*lines[:-1], of(lines, "variant-finished")[0], lines[-1]])
    assert shards.merge() == 1
    captured = capsys.readouterr()
    assert "finished twice, both times" in captured.err and "6 passed, 2 failed" in captured.out


def test_the_same_folder_twice_and_a_shard_alone_are_refused(
    shards: Shards, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["merge", str(shards.folders[0]), str(shards.folders[0])]) == 4
    assert "the same shard" in capsys.readouterr().err
    assert main(["merge", str(shards.folders[0])]) == 4
    assert "no run of shard 2/2" in capsys.readouterr().err


def test_a_huge_log_is_refused_at_once(
    shards: Shards, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.truncate(shards.folders[1] / "events.jsonl", 1 << 40)
    begin = time.monotonic()
    assert shards.merge() == 4 and time.monotonic() - begin < 5
    assert "it has 1 TiB, and log_bytes is 1 GiB" in capsys.readouterr().err
    os.truncate(shards.folders[1] / "events.jsonl", 100)
    monkeypatch.setenv("RUNNER_LIMIT_LOG_BYTES", "99")
    assert shards.merge() == 4 and "log_bytes is 99 bytes" in capsys.readouterr().err


def test_where_it_cannot_be_written_is_said(shards: Shards, capsys: pytest.CaptureFixture[str]) -> None:
    Path("joined").write_text("mine")
    assert shards.merge() == 4
    assert (
        "--output joined: this is a file; name a folder" in capsys.readouterr().err
        and Path("joined").read_text() == "mine"
    )
    assert main(["merge", *map(str, shards.folders), "-o", "joined/below"]) == 4
    assert "--output joined/below: " in capsys.readouterr().err
    assert main(["merge", *map(str, shards.folders), "-o", "/proc/x"]) == 4
    assert "-o /proc/x: " in capsys.readouterr().err
    assert main(["merge", *map(str, shards.folders), "-o", "new", "--junit", "nowhere/x.xml"]) == 4
    assert "--junit nowhere/x.xml: " in capsys.readouterr().err
    Path("dangling").mkdir()
    Path("dangling/events.jsonl").symlink_to("elsewhere.txt")
    assert main(["merge", *map(str, shards.folders), "-o", "dangling"]) == 4
    assert "there is a run already" in capsys.readouterr().err and not Path("elsewhere.txt").exists()
