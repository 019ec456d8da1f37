"""``resume`` and ``rerun`` by logs of one's own and of strangers; nothing is run here but the commands' own reading."""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.cli import run as running
from runner.cli.main import build_parser, main
from runner.cli.run import HARMLESS, Past, run_parser, taken_words
from runner.record.events import RunStarted
from runner.record.store import lock
from tests.handmade import loaded, played
from tests.mutations import ended, signed, written

CASES = "cases:\n  - {name: a, inputs: {x: [2]}, chain: [F.relu]}\n  - {name: b, inputs: {x: [2]}, chain: [F.relu]}\n"
TORCH = "2.13.0"


class Runs:
    """Past runs in a folder, and what the commands would have run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls: list[tuple[argparse.Namespace, list[str], Any, Past | None, Path]] = []
        (path / "a.spec.yaml").write_text(CASES)

    def run_variants(self, arguments: argparse.Namespace, loaded: Any, only: Any, past: Any) -> int:
        """In place of the real one."""
        self.calls.append((arguments, [*arguments.words], only, past, Path.cwd()))
        return 0

    def log(self, *words: str, name: str = "r", own: bool = True, killed: bool = False, **changes: Any) -> str:
        """The folder of a run by these words, whose first variant passed; the second did too, unless it was killed."""
        variants = loaded(self.path / "a.spec.yaml").variants
        events = ended(played(variants, [TORCH], lambda v, t: "PASS" if v is variants[0] or not killed else None), 0)
        events = events[:-1] if killed else events
        start = {
            "argv": ("runner", "run", *words),
            "cwd": str(self.path),
            "host": platform.node(),
            "planned": 2,
            **changes,
        }
        events = signed(events, **start)
        if not own:
            assert isinstance(events[0], RunStarted)
            events = [replace(events[0], signature=""), *events[1:]]
        written(self.path / name / "events.jsonl", events)
        return str(self.path / name)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.chdir(tmp_path)
    past_runs = Runs(tmp_path)
    monkeypatch.setattr(running, "run_variants", past_runs.run_variants)
    return past_runs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# --- one's own ---


def test_one_s_own_run_is_repeated_as_it_was(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "a.spec.yaml",
        "--allow-python",
        "--python",
        "p",
        "--import",
        "m",
        "--junit",
        "j.xml",
        "--limit",
        "depth=9",
    ]
    run = runs.log(*words)
    elsewhere = runs.path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert main(["rerun", run, "--", "--stress", "3"]) == 0
    arguments, command, only, past, folder = runs.calls[0]
    assert command == ["run", *words, "--stress", "3"] and (arguments.stress, arguments.junit) == (3, "j.xml")
    assert (only, past, folder) == (None, None, runs.path)
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == f"runner: in {runs.path}"
    assert last == f"runner: the paths and commands above hold in another folder: cd {runs.path}"


def test_options_after_two_dashes_stay_options_where_the_run_had_paths_after_them(runs: Runs) -> None:
    assert main(["rerun", runs.log("-x", "--", "a.spec.yaml"), "--", "--stress", "3"]) == 0
    assert runs.calls[0][1] == ["run", "-x", "--stress", "3", "--", "a.spec.yaml"]


def test_a_project_file_has_no_part_in_a_run_that_is_taken_up(runs: Runs) -> None:
    """What is printed must then leave it out too."""
    assert main(["rerun", runs.log("a.spec.yaml")]) == 0
    (runs.path / "runner.toml").write_text('seed = 7\nimport = ["nowhere"]\n')
    for number, command in enumerate(("rerun", "resume"), 1):
        assert main([command, runs.log("a.spec.yaml", name=command, killed=True)]) == 0
        arguments = runs.calls[number][0]
        assert (arguments.seed, arguments.imports, arguments.no_project) == (0, [], True)
    assert not runs.calls[0][0].no_project


def test_one_s_own_run_goes_on_in_its_folder(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs.log("a.spec.yaml", killed=True)
    assert main(["resume", run]) == 0 and not capsys.readouterr().err
    _, _, only, past, _ = runs.calls[0]
    assert past is not None and past.folder == Path("r") and len(only) == 2
    whole = runs.log("a.spec.yaml", name="whole")
    assert main(["resume", whole]) == 0 and len(runs.calls) == 1


@pytest.mark.parametrize(
    ("words", "options", "reason"),
    [
        (("a.spec.yaml",), ("--nope",), "unrecognized arguments: --nope"),
        (("a.spec.yaml",), ("-j", "x"), "argument -j/--jobs"),
        (("a.spec.yaml", "-j", "x"), (), "argument -j/--jobs"),
        (("a.spec.yaml", "--\x1b[2J"), (), "unrecognized arguments: --"),
        (("--help",), (), "it asks for help, and runs nothing"),
        (("a.spec.yaml", "-h"), (), "it asks for help"),
        ((), (), "the following arguments are required: PATH"),
    ],
)
def test_a_command_line_that_is_none_is_exit_4(
    runs: Runs, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], options: tuple[str, ...], reason: str
) -> None:
    run = runs.log(*words, killed=True)
    assert main(["rerun", run, *(["--", *options] if options else [])]) == 4
    captured = capsys.readouterr()
    assert captured.err.startswith("runner: cannot run runner run") and reason in captured.err
    assert captured.out == "" and "\x1b" not in captured.err
    if not options:
        assert main(["resume", run]) == 4
        assert reason in capsys.readouterr().err
    assert not runs.calls


@pytest.mark.parametrize(
    "argv", [(), ("runner",), ("runner", "merge", "x"), ("runner", "--version"), ("\x1b[2J", "runner", "run")]
)
def test_only_runner_run_can_be_taken_up(runs: Runs, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]) -> None:
    for command in ("rerun", "resume"):
        assert main([command, runs.log(name=command, killed=True, argv=argv)]) == 4
        error = capsys.readouterr().err
        assert "only what runner run began can go on" in error and "\x1b" not in error


# --- strangers' ---


def test_a_stranger_s_command_line_is_shown_and_not_run_unasked(
    runs: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs.log("a.spec.yaml", "-k", "\x1b[2J or not x", own=False, killed=True)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    for command in ("rerun", "resume"):
        assert main([command, run]) == 4
        error = capsys.readouterr().err
        assert "this log was not written by you on this machine: it is not signed" in error
        assert "  runner run a.spec.yaml -k $'\\u001b[2J or not x'\n" in error and "pass --yes" in error
    monkeypatch.setattr("sys.stdin", None)
    assert main(["rerun", run]) == 4 and not runs.calls


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("Yes\n", 0), ("\n", 4), ("", 4), ("n\n", 4), ("yep\n", 4)])
def test_the_answer_counts(runs: Runs, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert main(["rerun", runs.log("a.spec.yaml", own=False)]) == code
    assert len(runs.calls) == (code == 0)


DANGEROUS = [
    ["--allow-python"], ["--allow-py"], ["--python", "x.sh"], ["--python=x.sh"], ["--pyt", "x.sh"], ["--import", "m"], ["--import=m"],
    ["--junit", "x"], ["--junit=x"], ["--events", "x"], ["--eve=x"], ["--engine", "ray"], ["--engine", "ray", "--address", "host:1"],
    ["--limit", "depth=9"], ["--durations", "/x"], ["--backend", "os:system"], ["--backend=m:f"], ["--back", "m:f"],
]  # fmt: skip


@pytest.mark.parametrize("words", DANGEROUS, ids=" ".join)
def test_what_is_dangerous_is_never_taken_from_a_stranger(
    runs: Runs, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    run = runs.log("-x", *words, "a.spec.yaml", own=False, killed=True)
    assert main(["rerun", run, "--yes"]) == 0
    error = capsys.readouterr().err
    assert f"left out: {' '.join(words)}; pass them after -- to have them" in error
    assert main(["resume", run, "--yes"]) == 0
    for arguments, command, *_ in runs.calls:
        assert command == ["run", "-x", "a.spec.yaml"]
        assert vars(arguments) == {
            **vars(build_parser().parse_args(command)),
            "words": command,
            "shell": str(runs.path),
        }


def test_what_the_person_types_is_taken(runs: Runs) -> None:
    run = runs.log("a.spec.yaml", "--junit", "theirs.xml", own=False)
    assert main(["rerun", run, "--yes", "--", "--junit", "mine.xml", "--allow-python"]) == 0
    arguments, command, *_ = runs.calls[0]
    assert command == ["run", "a.spec.yaml", "--junit", "mine.xml", "--allow-python"]
    assert arguments.junit == "mine.xml" and arguments.allow_python


def test_a_stranger_s_folder_is_not_entered(runs: Runs) -> None:
    (runs.path / "theirs").mkdir()
    run = runs.log("a.spec.yaml", own=False, cwd=str(runs.path / "theirs"))
    assert main(["rerun", run, "--yes"]) == 0
    assert runs.calls[0][4] == runs.path


@pytest.mark.parametrize("changes", [{"host": "other"}, {"cwd": "/"}, {"run": "s"}, {"argv": ("runner", "run", "b")}])
def test_an_own_log_that_was_changed_is_a_stranger_s(runs: Runs, changes: dict[str, Any]) -> None:
    log = Path(runs.log("a.spec.yaml"), "events.jsonl")
    first, *results = log.read_text().splitlines()
    log.write_text("\n".join([json.dumps({**json.loads(first), **changes}), *results]) + "\n")
    assert main(["rerun", str(log)]) == 4 and not runs.calls


def test_options_of_a_stranger_that_do_not_exist_are_refused(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("--nope",), ("--j",), ("--",)):
        assert main(["rerun", runs.log("a.spec.yaml", *words, name=words[0][2:] or "x", own=False), "--yes"]) in (0, 4)
    assert [call[1] for call in runs.calls] == [["run", "a.spec.yaml", "--"]]
    assert "--nope, which is no option of runner run" in capsys.readouterr().err


def test_every_option_of_run_is_known_as_harmless_or_is_left_out() -> None:
    """A new option is left out until somebody has thought about it; what is listed exists."""
    parser = run_parser()
    options = {name: action.nargs != 0 for action in parser._actions for name in action.option_strings}
    assert options.keys() >= HARMLESS
    left_out = {name for name in options if name.startswith("--")} - HARMLESS - {"--help"}
    assert left_out == {
        "--allow-python", "--python", "--import", "--junit", "--junitxml", "--events", "--html", "--ctrf", "--github", "--report", "--limit", "--durations", "--engine", "--address",
        "--keep", "--keep-warm", "--trust-project", "--affected-by",
    }  # fmt: skip
    assert taken_words(["run", "--", "--junit", "x"], options) == (["run", "--", "--junit", "x"], [])


# --- what cannot be taken up ---


def test_changed_lines_stop_resume_and_rerun_and_not_report(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs.log("a.spec.yaml", killed=True)
    with open(f"{run}/events.jsonl", "a") as file:
        file.write('{"event": "variant-finished", "seconds": "x"}\n')
    for command in ("resume", "rerun"):
        assert main([command, run]) == 4
        error = capsys.readouterr().err
        assert "events.jsonl: line 5: 'id' is missing" in error and "was changed after it was written" in error
    assert main(["report", run]) == 0
    captured = capsys.readouterr()
    assert "line 5: 'id' is missing" in captured.err and "1 passed" in captured.out and not runs.calls


def test_a_torn_end_stops_nothing(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs.log("a.spec.yaml", killed=True)
    with open(f"{run}/events.jsonl", "a") as file:
        file.write('{"event": "variant-fin')
    assert main(["resume", run]) == 0 and main(["rerun", run]) == 0 and len(runs.calls) == 2
    assert "line 5: cut short, as a killed runner leaves it" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["latest", ".runner/latest", ".runner/latest/events.jsonl", "run", ".runner/runs/run"])
def test_a_run_behind_a_link_of_a_checkout_does_not_go_on(
    runs: Runs, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    away = tmp_path_factory.mktemp("away") / "run"
    Path(runs.log("a.spec.yaml", killed=True)).rename(away)
    (runs.path / ".runner" / "runs").mkdir(parents=True)
    for link in ("latest", "runs/run"):
        (runs.path / ".runner" / link).symlink_to(away)
    assert main(["resume", name]) == 4
    assert not runs.calls and f" to {away}" in capsys.readouterr().err
    (runs.path / ".runner" / "runs" / "run").unlink()
    away.rename(runs.path / ".runner" / "runs" / "run")
    (runs.path / ".runner" / "latest").unlink()
    (runs.path / ".runner" / "latest").symlink_to("runs/run")
    assert main(["resume", name]) == 0 and runs.calls


@pytest.mark.parametrize("name", ["events.jsonl", "junit.xml", "lock", "logs/worker.log"])
def test_a_run_with_links_in_it_does_not_go_on(runs: Runs, capsys: pytest.CaptureFixture[str], name: str) -> None:
    run = Path(runs.log("a.spec.yaml", killed=True))
    (run / "logs").mkdir()
    target = runs.path / "target"
    if (run / name).exists():
        (run / name).rename(target)
    else:
        target.write_text("kept")
    content = target.read_bytes()
    (run / name).symlink_to(target)
    assert main(["resume", str(run)]) == 4
    assert f"{name} is a link to somewhere else" in capsys.readouterr().err
    assert target.read_bytes() == content and not runs.calls


def test_a_log_beside_its_folder_does_not_go_on(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(runs.log("a.spec.yaml", killed=True))
    (run / "events.jsonl").rename(run / "copy.jsonl")
    assert main(["resume", str(run / "copy.jsonl")]) == 4
    assert "a run goes on in its own folder" in capsys.readouterr().err


def test_two_do_not_take_up_one_run(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs.log("a.spec.yaml", killed=True)
    with lock(Path(run)):
        assert main(["resume", run]) == 4
        assert f"another process writes to {run}: process {os.getpid()} on " in capsys.readouterr().err
        assert main(["rerun", run]) == 0  # a new run
    assert main(["resume", run]) == 0


def test_a_complete_run_ends_with_its_code_again_where_that_is_one_of_a_run(runs: Runs) -> None:
    run = runs.log("a.spec.yaml")
    log = Path(run, "events.jsonl")
    text = log.read_text()
    for code, expected in ((0, 0), (1, 1), (2, 0), (3, 3), (4, 4), (5, 5), (77, 0)):
        log.write_text(text.replace('"exit_code": 0', f'"exit_code": {code}'))
        assert main(["resume", run]) == expected
    for code, expected in ((0, 1), (1, 1), (3, 3), (4, 4)):
        log.write_text(text.replace('"PASS"', '"ERROR"').replace('"exit_code": 0', f'"exit_code": {code}'))
        assert main(["resume", run]) == expected
    assert not runs.calls


def test_a_run_whose_verdicts_lost_their_plan_does_not_go_on(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs.log("a.spec.yaml")
    log = Path(run, "events.jsonl")
    lines = log.read_text().splitlines(keepends=True)
    plan = next(number for number, line in enumerate(lines) if '"variant-planned"' in line)
    log.write_text("".join(lines[:plan] + lines[plan + 1 :]))
    assert main(["resume", run]) == 4
    assert "its log lacks the plan of what has a verdict" in capsys.readouterr().err and not runs.calls
