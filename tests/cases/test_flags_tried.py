"""``bench/flags.py --try``: an allowed flag compiles and does nothing else, and one that does more is caught."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.slow
def test_a_flag_that_does_more_than_compile_is_caught(tmp_path: Path) -> None:
    """``cprofile`` starts gprof2dot and dot from PATH, and writes a file of a known name."""
    refused = "torch._dynamo.config.cprofile"
    command = [
        sys.executable,
        REPOSITORY / "bench" / "flags.py",
        "--try",
        "-k",
        "config.use_dce",
        "--report",
        tmp_path / "report",
    ]
    done = subprocess.run([*command, "--also", f"{refused}=true"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 1, done.stdout + done.stderr
    first, second = json.loads((tmp_path / "report").read_text())
    assert first | {"seconds": 0} == {
        "flag": "torch._inductor.config.use_dce",
        "value": False,
        "end": "compiled",
        "events": [],
        "seconds": 0,
    }
    assert second["flag"] == refused
    assert {"program gprof2dot", "program dot", "file tmp/_compile_inner_0_0.profile"} <= {*second["events"]}
