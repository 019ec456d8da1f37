"""Commands that read event logs, on logs that somebody edited at random: no exception, and only documented exit codes."""

from __future__ import annotations

import platform
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from runner.cli import run
from runner.cli.main import main
from runner.record.events import Event, VariantFinished, VariantPlanned
from runner.session.plan import plan
from runner.session.settings import Shard
from runner.session.shards import chosen, plan_hash
from tests.handmade import environment, finding, loaded, played
from tests.mutations import edit_lines, ended, signed, written

CASES = """\
cases:
  - name: a
    inputs: {x: ['${n}']}
    params: {n: [1, 2, 3]}
    chain: [F.relu]
    known: [{oracle: [grad], reason: r}]
"""
ALLOWED = {0, 1, 4, 5}
"""2 is for interruptions and 3 for errors of runner's own."""


class Folder:
    """A folder with cases, one whole run of them, and the same run as two shards."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "a.spec.yaml").write_text(CASES)
        variants = loaded(path / "a.spec.yaml", backends=["inductor", "eager"]).variants
        everything = plan(variants, [environment()])
        digest = plan_hash(everything)
        fields: dict[str, Any] = {
            "argv": ("runner", "run", "a.spec.yaml"),
            "cwd": str(path),
            "plan": digest,
            "total": len(everything),
        }

        def log(name: str, events: Sequence[Event], **changes: Any) -> list[bytes]:
            planned = sum(isinstance(event, VariantPlanned) for event in events)
            start = signed(
                events, run=name, host=platform.node(), folder=f"runs/{name}", planned=planned, **fields, **changes
            )
            stamp = {"plan": digest, **({"shard": changes["shard"]} if "shard" in changes else {})}
            return written(path / "runs" / name / "events.jsonl", start, **stamp)

        def answer(variant: Any, torch: str) -> Any:
            return (
                finding(numbers={"mismatched": 1, "elements": 2, "eager": 1.5}) if variant.params["n"] == 2 else "PASS"
            )

        self.whole = log("whole", ended(played(variants, ["2.13.0"], answer), 1))
        self.shards = []
        for index in (1, 2):
            part = [entry.variant for entry in chosen(everything, Shard(index, 2))]
            events = played(part, ["2.13.0"], answer)
            red = any(isinstance(event, VariantFinished) and event.verdict == "FAIL" for event in events)
            self.shards.append(log(f"shard{index}", ended(events, int(red)), shard=f"{index}/2"))

    def put(self, name: str, lines: Sequence[bytes]) -> str:
        """A run's folder with this log, new each time: what commands leave there is gone."""
        folder = self.path / "runs" / name
        for file in folder.glob("*"):
            file.unlink()
        (folder / "events.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
        return str(folder)

    def commands(self, rng: random.Random) -> list[list[str]]:
        """Every command that reads logs, on edited ones."""
        whole = self.put("whole", edit_lines(rng, self.whole))
        shards = [*self.shards]
        place = rng.randrange(2)
        shards[place] = edit_lines(rng, shards[place])
        parts = [self.put(f"shard{index}", lines) for index, lines in enumerate(shards, 1)]
        output = self.path / f"joined{rng.random()}"
        return [
            ["report", whole],
            ["report", whole, "--junit", "-"],
            ["resume", whole, "--yes"],
            ["rerun", whole, "--yes"],
            ["rerun", whole, "--yes", "--failed", "--", "--stress", "2"],
            ["ledger", "a.spec.yaml", "--run", whole],
            ["ledger", "a.spec.yaml", "--update", whole, "--add", "--dry-run"],
            ["merge", *parts, "-o", str(output)],
            ["report", parts[place]],
        ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The folder, which is the current one; nothing is run in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "run_variants", lambda *_: 0)
    return Folder(tmp_path)


def test_commands_work_on_the_logs_as_they_are(folder: Folder) -> None:
    rng = random.Random(0)
    rng.random = lambda: 0.99  # type: ignore[method-assign]  # no edit
    whole = str(folder.path / "runs" / "whole")
    shards = [str(folder.path / "runs" / f"shard{index}") for index in (1, 2)]
    for words, code in (
        (["report", whole], 0),
        (["resume", whole], 1),
        (["rerun", whole], 0),
        (["rerun", whole, "--failed"], 0),
        (["ledger", "a.spec.yaml", "--run", whole], 1),
        (["merge", *shards, "-o", "joined"], 1),
    ):
        assert main(words) == code, words


@pytest.mark.parametrize("logs", [50, pytest.param(150, marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_edited_logs(folder: Folder, capsys: pytest.CaptureFixture[str], logs: int) -> None:
    rng = random.Random(3)
    codes: dict[str, set[int]] = {}
    for _ in range(logs):
        for words in folder.commands(rng):
            code = main(words)
            captured = capsys.readouterr()
            assert code in ALLOWED and "Traceback" not in captured.err, (words, captured.err)
            text = (captured.out + captured.err).replace("\n", "")
            assert all(ord(letter) > 0x1F and letter not in "\x7f\u202e" for letter in text), (words, text)
            codes.setdefault(words[0], set()).add(code)
    assert (
        codes["report"] == {0, 4} and {0, 4} <= codes["rerun"] and {1, 4} <= codes["merge"]
    )  # else edits show nothing
