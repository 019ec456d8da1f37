"""``runner list`` prints every id once, in the order of reports; ``runner validate`` tells what is wrong."""

from __future__ import annotations

import re
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


PYTHON = "cases:\n  - {name: own, module: {file: m.py, name: M}, inputs: {x: [1]}}\n"


@pytest.mark.parametrize(
    ("words", "errors"),
    [
        (["."], 0),
        (["specs", "own.suite.yaml"], 1),
        (["own.suite.yaml"], 1),
        (["specs/own.spec.yaml"], 1),
        ([".", "specs/own.spec.yaml"], 1),
        (["specs::own"], 1),
        (["--allow-python", "specs/own.spec.yaml"], 0),
    ],
    ids=str,
)
def test_python_of_a_folder_is_counted_and_that_of_a_named_file_an_error(
    words: list[str], errors: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "own.spec.yaml").write_text(PYTHON)
    (tmp_path / "specs" / "a.spec.yaml").write_text(CASES)
    (tmp_path / "specs" / "m.py").touch()
    (tmp_path / "own.suite.yaml").write_text("suite: own\nspecs: [specs/own.spec.yaml]\n")
    monkeypatch.chdir(tmp_path)
    assert main(["validate", *words]) == (4 if errors else 0)
    out, err = capsys.readouterr()
    assert err.count("error: case 'own' brings Python of its own") == errors
    notice = "left out: 1 case with Python (module:, kernels:); read that code, then add --allow-python"
    assert (notice in out.splitlines()) == (words == ["."])


def test_the_caret_stands_below_its_place_on_a_narrow_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"  - {{name: a, doc: {'many words ' * 8}, inputs: {{x: [1]}}, chain: [F.rleu]}}"
    (tmp_path / "a.spec.yaml").write_text(f"cases:\n{line}\n")
    monkeypatch.chdir(tmp_path)
    for columns, length in (("80", 80), ("120", 118), ("300", 118)):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["validate", "a.spec.yaml"]) == 4
        _, excerpt, caret, *_ = capsys.readouterr().err.splitlines()
        assert len(excerpt) < length and excerpt[caret.index("^") :].startswith("F.rleu")


WRONG = """\
cases:
  - {name: a, inputs: {x: [1]}, chain: [F.rleu]}
  - {name: b, inputs: {x: [1]}, chian: [F.relu], chain: [F.relu]}
  - {name: c, inputs: {x: [1]}, chain: [F.rleu, F.rleu]}
  - {name: d, inputs: {x: [1]}, chain: [F.relu], dtypes: [float33]}
"""


def test_errors_are_told_in_the_order_of_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.spec.yaml").write_text(WRONG)
    (tmp_path / "a.spec.yaml").write_text("cases:\n  - {name: late, inputs: {x: [1]}, chain: [F.rleu]}\n")
    monkeypatch.chdir(tmp_path)
    for command in ("validate", "list"):
        assert main([command, "b.spec.yaml", "a.spec.yaml"]) == 4
        places = re.findall(r"^(\w)\.spec\.yaml:(\d+):(\d+): error", capsys.readouterr().err, re.MULTILINE)
        assert [(file, int(line)) for file, line, _ in places] == [*(("b", n) for n in (2, 3, 4, 4, 5)), ("a", 2)]
        assert int(places[2][2]) < int(places[3][2])
