"""What control reads and cuts of a running job: files that the job may have replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_jobs import Make, finish, job, one

from runner.engine import workers

PIPES = """
    import glob, os
    folder = os.path.dirname(os.path.dirname(os.environ["RUNNER_SCRATCH"]))
    os.write(1, b"before")
    for path in {paths}:
        if os.path.lexists(path):
            os.unlink(path)
        os.mkfifo(path)
"""


@pytest.mark.parametrize("end", ["", "time.sleep(9)", "os.kill(os.getppid(), 9); time.sleep(9)"])
def test_pipes_in_the_place_of_logs_hold_up_nothing(make: Make, end: str, tmp_path: Path) -> None:
    """The log of the job, its stacks, the logs of servers, and the logs of jobs that are yet to come."""
    every = (
        'glob.glob(f"{folder}/*.log") + glob.glob(f"{folder}/*.stack") + [os.readlink("/proc/self/fd/1")]'
        ' + [f"{folder}/0000{n}-m_next{end}" for n in range(1, 9) for end in (".log", ".stack")]'
    )
    engine = make(slots=1, log_folder=tmp_path / "logs")
    guilty = PIPES.format(paths=f"dict.fromkeys({every})") + f"    import time; {end}\n"
    outcomes = finish(engine, job(guilty, "guilty", timeout=1), job("result['ok'] = 1", "next"))
    assert outcomes["guilty"].output == "" and outcomes["next"].result == {"ok": 1}
    engine.close()


def test_a_link_in_the_place_of_a_log_is_not_followed(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MAX_LOG", 3)
    precious = tmp_path / "precious"
    precious.write_text("kept")
    source = f"""
        import os, time
        path = os.readlink("/proc/self/fd/1")
        os.unlink(path)
        os.symlink({str(precious)!r}, path)
        time.sleep(0.5)
    """
    outcome = one(make(), source)
    assert (outcome.ended, outcome.output, precious.read_text()) == ("result", "", "kept")
