"""The last row of the ladder: a failing variant once more, with the settings of a user and not with ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .driver import environment, run_in, spec, write

BACKEND = """
import json, os
import torch
import torch._inductor.config as config

def note(graph, inputs):
    settings = {
        "user": "RUNNER_AS_USER" in os.environ,
        "threads": torch.get_num_threads(),
        "compile threads": config.compile_threads,
        "graph cache": config.fx_graph_cache,
        "random": config.fallback_random,
    }
    with open("settings.jsonl", "a") as file:
        file.write(json.dumps(settings) + "\\n")
    return settings

def always(graph, inputs):
    note(graph, inputs)
    return lambda *args: tuple(out + 1 for out in graph(*args))

def under_our_threads(graph, inputs):
    wrong = note(graph, inputs)["compile threads"] == 1
    return lambda *args: tuple(out + wrong for out in graph(*args))
"""
ASK = """
import json, torch, torch._inductor.config as config
print(json.dumps([torch.get_num_threads(), config.compile_threads, config.fx_graph_cache, config.fallback_random]))
"""


@pytest.mark.nightly
def test_a_user_s_settings_are_torchs_own(tmp_path: Path) -> None:
    case = "name: a\ninputs: {x: [8]}\nchain: [torch.sin]"
    write(tmp_path, {"a.spec.yaml": spec(case), "noting.py": BACKEND})
    variables = {"TORCHINDUCTOR_COMPILE_THREADS": "3"}  # else the default is 1 on a machine with one core
    result = run_in(
        tmp_path, "run", "a.spec.yaml", "--backend", "noting:always", "--backend", "noting:under_our_threads", "-j", 2,
        env=variables,
    )  # fmt: skip
    assert result.code == 1, result.text
    events = {event["backend"]: event for event in result.finished.values()}
    assert {name: event["stages"]["as-user"] for name, event in events.items()} == {
        "noting:always": "value",
        "noting:under_our_threads": "ok",
    }
    assert [len(events[name]["notes"]) for name in ("noting:always", "noting:under_our_threads")] == [0, 1]
    assert {event["stage"] for event in events.values()} == {"backend"}
    assert "torch's own settings this passes" in events["noting:under_our_threads"]["notes"][0]
    plain = subprocess.run([sys.executable, "-c", ASK], env=environment(variables), capture_output=True, text=True)
    expected = dict(zip(("threads", "compile threads", "graph cache", "random"), json.loads(plain.stdout), strict=True))
    rows = [json.loads(line) for line in (tmp_path / "settings.jsonl").read_text().splitlines()]
    users = [row for row in rows if row.pop("user")]
    assert len(users) == 2 and all(row == expected for row in users)
    assert {(row["threads"], row["compile threads"], row["graph cache"]) for row in rows if row not in users} == {
        (2, 1, False)
    }
