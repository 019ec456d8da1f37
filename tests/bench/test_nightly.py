"""What is held against the last night, and what a target of one case is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.script_modules import script_module


def test_a_ratio_that_grew_is_worse_and_a_new_one_is_not() -> None:
    nightly = script_module("nightly")
    last = {"grew": 1.0, "shrank": 2.0, "noise": 1.0, "gone": 1.0}
    table, worse = nightly.compare(last, {"grew": 1.6, "shrank": 1.0, "noise": 1.4, "new": 9.0})
    assert worse == ["grew"] and table.count("WORSE") == 1 and "gone" not in table


@pytest.mark.parametrize(("ratio", "code"), [(1.0, 0), (1.6, 1)])
def test_the_new_ratios_take_the_place_of_the_old_ones(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ratio: float,
    code: int,
) -> None:
    nightly = script_module("nightly")
    for part in ("commands", "verdicts", "throughput"):
        monkeypatch.setattr(nightly, f"measure_{part}", lambda part=part: {part: ratio})
    file = tmp_path / "ratios.json"
    file.write_text(json.dumps({"verdicts": 1.0}))
    monkeypatch.setattr(sys, "argv", ["nightly.py", str(file)])
    assert nightly.main() == code
    assert json.loads(file.read_text()) == dict.fromkeys(("commands", "verdicts", "throughput"), ratio)


def test_the_start_is_what_a_script_does_not_need() -> None:
    verdicts = script_module("verdicts")
    seconds = {
        "import torch": 2.0,
        "script, aot_eager": 5.0,
        "script, inductor": 8.0,
        "runner run, passes, aot_eager": 5.4,
        "runner run, passes, inductor": 10.0,
        "runner run, fails, inductor": 14.0,
    }
    assert [round(target.value, 2) for target in verdicts.targets(seconds)] == [1.4, 1.2, 2.0]
