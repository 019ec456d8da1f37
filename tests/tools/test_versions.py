"""The table of Pythons and versions of torch: what each step prints, and what a failure of one leaves empty."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.record.events import to_json
from tests.report.events_sample import finished
from tests.script_modules import script_module

versions = script_module("versions")

PYTHON = """\
#!/bin/sh
# a Python: -c prints what the probe would; -m venv FOLDER makes one whose pip and runner end with these exit codes
[ "$1" = -c ] && {{ echo '["3.14.0", "{torch}"]'; exit; }}
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho pip says no; exit {pip}\\n' > "$3/bin/python"
printf '#!/bin/sh\\necho "runner $1"; case $1 in {fails}) exit 4;; esac\\n' > "$3/bin/runner"
chmod +x "$3/bin/python" "$3/bin/runner"
"""


def stand_in(folder: Path, torch: str = "", pip: int = 0, fails: str = "none") -> str:
    """Write a program that answers as a Python would. Return its path."""
    path = folder / "python"
    path.write_text(PYTHON.format(torch=torch, pip=pip, fails=fails))
    path.chmod(0o755)
    return str(path)


def cells(folder: Path, python: str, jobs: int = 1) -> list[str]:
    work = folder / "work"
    work.mkdir()
    return versions.row(Path("a.whl"), python, work, jobs)


def test_each_step_has_a_cell(tmp_path: Path) -> None:
    assert cells(tmp_path, stand_in(tmp_path)) == ["3.14.0", "", "ok", "ok", "ok", "ok"]


def test_a_command_that_fails_has_its_exit_code_and_last_line(tmp_path: Path) -> None:
    assert cells(tmp_path, stand_in(tmp_path, fails="validate"))[2:] == [
        "ok",
        "ok",
        "exit code 4: runner validate",
        "ok",
    ]


def test_a_wheel_that_does_not_install_leaves_the_commands_empty(tmp_path: Path) -> None:
    assert cells(tmp_path, stand_in(tmp_path, torch="2.6.0", pip=1)) == ["3.14.0", "2.6.0", "exit code 1: pip says no"]


@pytest.mark.parametrize(("torch", "jobs", "count"), [("2.6.0", 1, 7), ("2.6.0", 0, 6), ("", 1, 6)])
def test_the_suite_runs_only_with_torch_and_jobs(tmp_path: Path, torch: str, jobs: int, count: int) -> None:
    assert len(cells(tmp_path, stand_in(tmp_path, torch=torch), jobs)) == count


def test_a_run_without_a_log_has_its_exit_code(tmp_path: Path) -> None:
    assert cells(tmp_path, stand_in(tmp_path, torch="2.6.0", fails="run"))[-1] == "exit code 4: runner run"


def test_verdicts_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    log.write_text(
        "".join(
            json.dumps(to_json(finished(verdict, str(n)))) + "\n" for n, verdict in enumerate(["PASS", "FAIL", "PASS"])
        )
    )
    assert versions.counted(log) == "2 PASS, 1 FAIL"


def test_a_python_that_does_not_exist_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert versions.main(["a.whl", str(tmp_path / "nothing"), "--no-smoke"]) == 1
    assert "exit code 127: [Errno 2]" in capsys.readouterr().out
    assert str(versions.Outcome(0, "anything")) == "ok"
