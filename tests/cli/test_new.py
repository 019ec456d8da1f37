"""``runner new`` prints a valid case in the canonical layout, or writes it to a file that was not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cases.canonical import format_text
from runner.cli.main import main

GELU = """\
cases:
  - name: gelu
    inputs: {x: {shape: [4, 8], requires_grad: true}}
    chain: [F.gelu]
    grad: backward
    dtypes: [bfloat16]
"""
WORDS = ["new", "F.gelu", "--shape", "4,8", "--dtype", "bfloat16", "--grad"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_case_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(WORDS) == 0
    assert capsys.readouterr().out == GELU
    assert format_text(GELU) == GELU
    assert [*folder.iterdir()] == []


def test_a_file_is_written_and_never_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "-o", "gelu.spec.yaml"]) == 0
    assert capsys.readouterr().out == "next: runner run gelu.spec.yaml\n"
    assert (folder / "gelu.spec.yaml").read_text() == GELU
    assert main(["validate", "gelu.spec.yaml"]) == 0
    (folder / "gelu.spec.yaml").write_text("mine")
    (folder / "link.spec.yaml").symlink_to("elsewhere.spec.yaml")
    for path, reason in (
        ("gelu.spec.yaml", "it is there already; name a new file"),
        ("gelu.yaml", "cases end in .spec.yaml"),
        ("none/gelu.spec.yaml", "there is no folder none"),
        ("link.spec.yaml", "is a link to elsewhere.spec.yaml"),
    ):
        capsys.readouterr()
        assert main([*WORDS, "-o", path]) == 4
        assert reason in capsys.readouterr().err
    assert (folder / "gelu.spec.yaml").read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["gelu.spec.yaml", "link.spec.yaml"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nn.Linear", "F.relu", "--arg", "in_features=8", "--arg", "out_features=3"],
         "    chain: [{nn.Linear: {in_features: 8, out_features: 3}}, F.relu]\n"),
        (["F.conv2d", "--shape", "1,3,8,8", "--shape", "4,3,3,3", "--arg", "stride=[2, 2]"],
         '    chain: [{F.conv2d: {"*": [$x, $y], stride: [2, 2]}}]\n'),
        (["torch.add", "--shape", "[]"], "    inputs: {x: [], y: []}\n"),
        (["F.cross_entropy", "--shape", "4,8", "--shape", "4:int64"], "    inputs: {x: [4, 8], y: {shape: [4], dtype: int64}}\n"),
        (["F.gelu", "--name", "mine", "--arg", "approximate=tanh"], "  - name: mine\n"),
        (["Tensor.to", "--arg", "dtype=torch.float16"], "    chain: [{Tensor.to: {dtype: torch.float16}}]\n"),
    ],
    ids=str,
)  # fmt: skip
def test_options(words: list[str], line: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", *words]) == 0
    out = capsys.readouterr().out
    assert line in out
    assert format_text(out) == out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["F.rellu"], "error: unknown operator 'F.rellu'"),
        (["F.rellu"], "did you mean 'F.relu'?"),
        (["F.gelu", "--dtype", "foat"], "expected a dtype such as float32"),
        (["F.gelu", "--name", "A b"], "expected small letters, digits and _"),
        (["torch.index_select"], "torch.index_select needs dim, an integer: --arg dim=VALUE"),
        (["F.gelu", "--shape", "4x8"], "--shape 4x8: sizes are such as 4,8"),
        (["F.gelu", "--arg", "dim"], "--arg dim: it is NAME=VALUE, such as dim=1"),
        (["F.softmax", "--arg", "dim=1", "--arg", "dim=0"], "--arg dim is given twice"),
        (["F.softmax", "--arg", "dim=["], "--arg dim=[: a key or a value is missing here"),
        (["F.gelu", "--shape", "99999,99999"], "bytes"),
        ([], "the following arguments are required: OPERATOR"),
    ],
    ids=str,
)
def test_what_makes_no_case_is_said(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", *words]) == 4
    shown = capsys.readouterr()
    assert message in shown.err and not shown.out
