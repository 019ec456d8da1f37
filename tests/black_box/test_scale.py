"""The measurement of long runs itself works; what it measures is for people to read."""

from __future__ import annotations

import subprocess
import sys

from tests.black_box.driver import LIMIT, REPOSITORY


def test_every_part_measures_what_it_says() -> None:
    command = [sys.executable, str(REPOSITORY / "bench" / "scale.py"), "-n", "100"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert process.returncode in (0, 1), process.stderr  # 1: a target was missed, which a busy machine may do
    rows = {line.split()[0]: line for line in process.stdout.splitlines()[2:]}
    assert {"list-wide", "list-shared", "plan-many", "journal", "junit", "live-junit", "terminal-live"} <= set(rows)
    assert rows["list-wide"].endswith("1 case: 100 lines")
    assert rows["list-select"].endswith(": 25 lines") and rows["list-shared"].endswith(": 100 lines")
    assert "longest halt" in rows["live-junit"] and "MB of file" in rows["journal"]
