"""``tools/flags.py --try``: an allowed flag compiles and does nothing else, and one that does more is caught."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.script_modules import script_module

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="its limits are those of Linux")
def test_what_happens_besides_compiling_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way in which a flag is caught, in place of a compiler: Python's events, programs of the shell, files."""
    trial = script_module("flags_tried")
    for name in ("home", "tmp", "work", "cache", "bin", "nothing"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    trial.stand_in(tmp_path / "bin", tmp_path / "programs.log")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))

    def compile_something(device: str) -> None:
        (tmp_path / "cache" / "kernel.cpp").write_text("expected")

    monkeypatch.setattr(trial, "compile_something", compile_something)
    quiet = trial.in_child("", None, "cpu")
    assert quiet == {"flag": "", "value": None, "end": "compiled", "events": []}
    assert trial.left_behind(tmp_path) == []

    def do_more(device: str) -> None:
        compile_something(device)
        (tmp_path / "tmp" / "of.profile").write_text("a file of a known name")
        subprocess.run(["gprof2dot", "-f", "pstats"], check=False)
        subprocess.run(["/bin/sh", "-c", "dot -Tsvg"], check=False)
        raise RuntimeError("the compiler does not take the value")

    monkeypatch.setattr(trial, "compile_something", do_more)
    loud = trial.in_child("", None, "cpu")
    assert loud["end"] == "RuntimeError"
    assert loud["events"] == [
        "open /tmp/of.profile", "subprocess.Popen gprof2dot -f pstats", "subprocess.Popen sh -c dot -Tsvg",
    ]  # fmt: skip
    assert trial.left_behind(tmp_path) == ["program dot", "program gprof2dot", "file tmp/of.profile"]
    assert trial.left_behind(tmp_path) == [], "both are taken away again"


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.nightly
def test_a_flag_that_does_more_than_compile_is_caught(tmp_path: Path) -> None:
    """``cprofile`` starts gprof2dot and dot from PATH, and writes a file of a known name."""
    refused = "torch._dynamo.config.cprofile"
    command = [
        sys.executable,
        REPOSITORY / "tools" / "flags.py",
        "--try",
        "-k",
        "config.use_dce",
        "--report",
        tmp_path / "report",
    ]
    process = subprocess.run([*command, "--also", f"{refused}=true"], capture_output=True, text=True, timeout=600)
    assert process.returncode == 1, process.stdout + process.stderr
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
