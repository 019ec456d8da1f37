"""``runner list``: every id once, in the order of reports, however many are printed at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cli import cases
from runner.cli.main import main

CASES = """\
cases:
  - {name: c, params: {n: [1, 2, 3, 4, 5]}, inputs: {x: ["${n}"]}, chain: [torch.relu]}
"""


@pytest.mark.parametrize("at_once", [1, 2, 5, 100])
def test_all_ids_in_order(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.spec.yaml").write_text(CASES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cases, "_AT_ONCE", at_once)
    assert main(["list", "a.spec.yaml"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"a.spec.yaml::c[n={n},float32,cpu]@inductor" for n in range(1, 6)]
