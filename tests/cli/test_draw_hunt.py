"""``runner hunt``: its arguments, its folder and its exit codes, over rounds that start no process."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.cases.limits import Limits
from runner.cli import draw
from runner.cli.main import main
from runner.diagnose.harness import Progress
from runner.exit_codes import UsageError
from runner.hunt.groups import HUNT_FILE, Head, Ledger, Line, Reduction, Report, Round, append_line, read_ledger
from runner.record.store import lock
from runner.session.plan import Environment
from tests.handmade import Dig
from tests.hunt.samples import HEAD, A, B, red, round_of


@pytest.fixture(scope="module", autouse=True)
def shipped_ledger() -> Iterator[None]:
    """Let the shipped ledger be read once: each hunt takes two seconds for it."""
    read = functools.cache(read_ledger)

    def read_once(paths: Sequence[str], limits: Limits, files: Sequence[str] = ()) -> Ledger:
        return read(tuple(paths), limits, tuple(files))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw, "read_ledger", read_once)
        yield


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Head]]:
    """Let rounds give this; the heads of their hunts are in the list."""

    def planned(*outcomes: Round | BaseException | type[BaseException]) -> list[Head]:
        heads: list[Head] = []
        rounds = [*outcomes]

        class Scripted:
            def __init__(
                self, folder: Path, head: Head, environment: Any, settings: Any, ledger: Any, say: Any, guidance: Any
            ) -> None:
                heads.append(head)
                assert (guidance is not None) == head.guided and not settings.coverage
                places = [known.span.file for known, _ in ledger.entries]
                assert any(place.endswith("specs/found/dynamo.spec.yaml") for place in places), "the shipped ledger"
                self.settings, self.ledger, self.say = settings, ledger, say
                assert (settings.seed, settings.budget, settings.shard) == (0, None, None), (
                    "those of the hunt are not those of its runs"
                )

            def __enter__(self) -> Scripted:
                return self

            def __exit__(self, *about: object) -> None: ...

            def run(self, number: int, has_group: Any, deadline: float) -> Round:
                outcome = rounds.pop(0)
                if not isinstance(outcome, Round):
                    raise outcome
                return outcome

        monkeypatch.setattr(draw, "Rounds", Scripted)
        monkeypatch.setattr(
            draw, "find_environments", lambda names: [Environment("0", "p", "2.13.0", "2.13.0+cpu", "3")]
        )
        monkeypatch.setattr(
            "runner.hunt.hunt.reduce_group",
            lambda folder, settings, ledger, group, *options: Reduction(group.id, 1.0, before=3, after=1),
        )
        monkeypatch.setattr(
            "runner.hunt.hunt.report_group", lambda folder, settings, group, *options: Report(group.id, 1.0)
        )
        return heads

    return planned


def test_a_new_group_ends_with_1_and_its_triage_with_0(
    plan: Callable[..., list[Head]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heads = plan(round_of(0, red(A)))
    words = ["hunt", "--rounds", "1", "--seed", "7", "--batch", "10", "-o", str(tmp_path / "h")]
    assert main(words) == 1
    assert heads == [HEAD]
    output = capsys.readouterr()
    assert "aaaaaaaa value of torch.sin" in output.out and "3 -> 1?" in output.out
    assert "round 0: 8 variants, 1 red, 1 new group\n" in output.err
    assert main(["hunt", "--status", str(tmp_path / "h")]) == 1
    (tmp_path / "h" / "triage.yaml").write_text("aaaaaaaa: {triage: bug}\n", encoding="utf-8")
    assert main(["hunt", "--status", str(tmp_path / "h")]) == 0
    assert main(words) == 0, "nothing is left to do, and somebody has looked at it"


def test_what_an_earlier_hunt_knows_is_not_new(plan: Callable[..., list[Head]], tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    append_line(tmp_path / "old", HEAD)
    append_line(tmp_path / "old", round_of(0, red(A)))
    plan(round_of(0, red(A)))
    assert main(["hunt", "--rounds", "1", "--known", str(tmp_path / "old"), "-o", str(tmp_path / "h")]) == 0


def test_what_is_done_is_told_again_every_few_seconds_and_by_status_while_the_hunt_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 2.0, 7.0, 8.0])
    monkeypatch.setattr(draw, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    append_line(tmp_path, HEAD)
    say = draw._Sayer(tmp_path, Progress()).say
    with lock(tmp_path):
        for ended in range(3):
            say(f"round 0: running; {ended} ended")
        say("reducing 1 group")
        said = capsys.readouterr().err.splitlines()
        assert [line.partition("] ")[2] for line in said] == [
            "round 0: running; 0 ended", "round 0: running; 2 ended", "reducing 1 group"
        ]  # fmt: skip
        assert main(["hunt", "--status", str(tmp_path)]) == 0
        status = capsys.readouterr().out
        assert "no group: no round has ended" in status and "running: reducing 1 group" in status
    assert main(["hunt", "--status", str(tmp_path)]) == 0
    assert "running" not in capsys.readouterr().out, "it has ended"


DRAWN = "h/groups/aaaaaaaa/case.spec.yaml::case_0[float32,cpu]@mine:compile"
OPTIONS = "--backend mine:compile --import mine"


@pytest.mark.parametrize(
    ("lines", "command"),
    [
        ((), f"runner reduce '{DRAWN}' {OPTIONS}"),
        ((Reduction(A, 1.0, "no case fails alike"),), f"runner run '{DRAWN}' {OPTIONS}"),
        ((Reduction(A, 1.0),), f"runner issue h/groups/aaaaaaaa/reduced.spec.yaml {OPTIONS}"),
        ((Reduction(A, 1.0), Report(A, 1.0)), "cat h/groups/aaaaaaaa/report.md"),
    ],
)
def test_the_end_names_the_folder_of_the_worst_group_and_the_next_command(
    lines: tuple[Line, ...], command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h").mkdir()
    worst = replace(red(A), id="rounds/00000.spec.yaml::case_0[float32,cpu]@mine:compile")
    head = replace(HEAD, backend=("inductor", "mine:compile"), imports=("mine",))
    for line in (head, round_of(0, red(B, severity="alias"), worst), *lines):
        append_line(tmp_path / "h", line)
    assert main(["hunt", "--status", "h"]) == 1
    assert capsys.readouterr().out.endswith(f"\nworst: h/groups/aaaaaaaa\nnext: {command}\n")


def test_an_interrupted_hunt_ends_with_2_and_goes_on(
    plan: Callable[..., list[Head]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["hunt", "--rounds", "2", "-o", str(tmp_path / "h")]
    plan(round_of(0), KeyboardInterrupt)
    assert main(words) == 2
    assert "the same command goes on" in capsys.readouterr().err
    plan(round_of(1))
    assert main(words) == 0
    assert "2 rounds, 16 variants" in capsys.readouterr().out


def test_a_hunt_keeps_its_shard(plan: Callable[..., list[Head]], tmp_path: Path) -> None:
    heads = plan(round_of(1), round_of(4))
    assert main(["hunt", "--rounds", "2", "--shard", "2/3", "-o", str(tmp_path / "h")]) == 0
    assert heads[0].shard == (2, 3)


def test_a_hunt_whose_first_round_failed_takes_another_command(plan: Callable[..., list[Head]], tmp_path: Path) -> None:
    plan(UsageError("no such backend"))
    words = ["hunt", "--rounds", "1", "-o", str(tmp_path / "h")]
    assert main([*words, "--backend", "aot_eager"]) == 4
    heads = plan(round_of(0))
    assert main([*words, "--backend", "inductor"]) == 0
    assert main([*words, "--backend", "inductor"]) == 0
    assert [head.backend for head in heads] == [("inductor",)] * 2
    assert main([*words, "--backend", "aot_eager"]) == 4


def test_a_misspelt_backend_is_said_before_anything_is_drawn(
    plan: Callable[..., list[Head]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heads = plan(round_of(0))
    assert main(["hunt", "--rounds", "1", "-o", str(tmp_path / "h"), "--backend", "inductr"]) == 4
    assert "--backend inductr: no such backend; did you mean 'inductor'?" in capsys.readouterr().err and heads == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--budget or --rounds says when the hunt ends"),
        (["--rounds", "1", "--python", "a", "--python", "b"], "one Python"),
        (["--rounds", "1", "--known", "nowhere"], "--known"),
        (["--rounds", "1", "--seed", "8"], "seed was 7"),
        (["--rounds", "1", "--seed", "7", "--batch", "11"], "batch was 10"),
        (["--rounds", "1", "--seed", "7", "--backend", "aot_eager"], "backend was ()"),
        (["--rounds", "1", "--seed", "7", "--shard", "2/3"], "shard was ()"),
        (["--rounds", "1", "--seed", "7", "--allow-python"], "allow_python was False"),
        (["--rounds", "1", "--seed", "7", "--twins"], "twins was False"),
        (["--rounds", "1", "--seed", "7", "--import", "mine"], "imports was ()"),
    ],
)
def test_wrong_arguments_are_refused(
    words: list[str], message: str, plan: Callable[..., list[Head]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan()
    append_line(tmp_path, HEAD)
    append_line(tmp_path, round_of(0))
    assert main(["hunt", *words, "-o", str(tmp_path)]) == 4
    assert message in capsys.readouterr().err


def test_a_folder_of_something_else_is_left_alone(
    plan: Callable[..., list[Head]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan()
    (tmp_path / "mine").write_text("", encoding="utf-8")
    assert main(["hunt", "--rounds", "1", "-o", str(tmp_path)]) == 4
    assert "there is something in it, and no hunt" in capsys.readouterr().err
    assert main(["hunt", "--status", str(tmp_path)]) == 4
    assert main(["hunt", "--rounds", "1", "-o", str(tmp_path / "no" / "such")]) == 4
    assert main(["hunt", "--rounds", "1"]) == 4


def test_a_foreign_folder_with_a_link_is_refused(
    plan: Callable[..., list[Head]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan()
    (tmp_path / "h").mkdir()
    append_line(tmp_path / "h", HEAD)
    (tmp_path / "h" / "groups").symlink_to(tmp_path)
    assert main(["hunt", "--rounds", "1", "-o", str(tmp_path / "h")]) == 4
    assert "is a link" in capsys.readouterr().err
    assert (tmp_path / "h" / HUNT_FILE).is_file()


def test_a_deep_foreign_folder_is_looked_through(tmp_path: Path, dig: Dig) -> None:
    append_line(tmp_path, HEAD)
    dig(tmp_path)
    assert draw._folder(str(tmp_path)) == tmp_path


def test_a_pipe_in_a_foreign_folder_is_refused(
    plan: Callable[..., list[Head]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan()
    append_line(tmp_path, HEAD)
    os.mkfifo(tmp_path / "triage.yaml")
    for words in (["--rounds", "1", "-o"], ["--status"]):
        assert main(["hunt", *words, str(tmp_path)]) == 4
        message = capsys.readouterr().err
        assert "triage.yaml" in message and "is no regular file" in message


def test_a_wrong_triage_is_told_with_its_place(
    plan: Callable[..., list[Head]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan()
    append_line(tmp_path, HEAD)
    (tmp_path / "triage.yaml").write_text("aaaaaaaa: {triage: bugg}\n", encoding="utf-8")
    assert main(["hunt", "--status", str(tmp_path)]) == 4
    assert "triage.yaml:1:11: error: triage is 'bugg'" in capsys.readouterr().err
