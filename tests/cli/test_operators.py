"""``runner operators``: signatures, reasons and shipped cases."""

from __future__ import annotations

import shlex

import pytest

from runner.cli.main import main


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["operators", *words]) == code
    out, err = capsys.readouterr()
    assert not (out and err)
    return out or err


def test_one_operator_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "F.gelu")
    assert text.startswith("F.gelu(input: Tensor, *, approximate: str = 'none') -> Tensor\n")
    assert "\n  about      Applies the Gaussian Error Linear Units function.\n" in text
    assert "\n  values     approximate: none, tanh\n" in text
    assert "\n  dtypes     bfloat16, float16, float32, float64 on the CPU\n" in text
    assert "\n  torch      2.6, 2.13\n" in text and "\n  names      nn.GELU, aten.gelu\n" in text
    assert max(len(line) for line in text.splitlines() if "::" not in line) < 80


def test_the_command_that_is_printed_lists_the_cases(capsys: pytest.CaptureFixture[str]) -> None:
    *_, last = printed(capsys, "F.gelu").splitlines()
    program, *words = shlex.split(last)
    assert program == "runner" and main(words) == 0
    cases = {line.partition("[")[0] for line in capsys.readouterr().out.splitlines()}
    text = printed(capsys, "F.gelu")
    assert f"\n  cases      {len(cases)} shipped cases\n" in text
    ids = [line.strip() for line in text.splitlines() if "::" in line]
    assert len(ids) == 5 and {*ids} < cases


def test_an_operator_without_a_case_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\n  cases      no shipped case calls it" in printed(capsys, "torch.distributions.Gumbel")


def test_a_pattern_prints_a_signature_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "F.relu*").splitlines()
    assert [line.partition("(")[0] for line in lines] == ["F.relu", "F.relu6", "F.relu_"]
    assert printed(capsys, "operator.*add").splitlines() == ["operator.add: a + b", "operator.iadd: a += b"]
    assert printed(capsys, "Tensor.[TH]").splitlines() == ["Tensor.H", "Tensor.T", "Tensor.t(self: Tensor) -> Tensor"]


def test_all_operators_and_all_refused_names(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys).splitlines()
    assert len(lines) > 3500 and all(line.isprintable() for line in lines)
    assert any(line.startswith("'aten._cummax_helper' is refused: nothing is known") for line in lines)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("torch.save", "'torch.save' is refused: it reads or writes files\n  a model in Python goes in with"),
        ("aten._cummax_helper", "tensor's end where these are wrong\n  write torch.cummax\n"),
        ("torch.no_grad", "'torch.no_grad' is a context\n  write it in a block: - with: [{torch.no_grad: ...}]"),
    ],
)  # fmt: skip
def test_a_refused_name_has_its_reason(name: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert reason in printed(capsys, name)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["F.rellu"], "unknown operator 'F.rellu': did you mean 'F.relu'?"),
        (["F.rellu*"], "no operator is like 'F.rellu*': did you mean 'F.relu'?"),
        (["custom.a.b"], "no operator is like 'custom.a.b': a package or a file has it"),
        ([""], "no operator is like ''"),
        (["F." + "x" * 300], "no operator is like 'F." + "x" * 198 + "'"),
        (["a\x1b[31m*"], "no operator is like 'a\\x1b[31m*'"),
        (["Tensor.grad_dtype", "--torch", "2.6"], "torch 2.6 has no operator Tensor.grad_dtype: 2.13 has"),
    ],
    ids=repr,
)
def test_what_matches_nothing_is_an_error(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *words, code=5)
    assert text.startswith(f"runner: {reason}") and "\x1b" not in text


def test_a_version_has_its_own_signature(capsys: pytest.CaptureFixture[str]) -> None:
    assert "dim: str" in printed(capsys, "torch.max", "--torch", "2.6")
    assert "dim: str" not in printed(capsys, "torch.max", "--torch", "2.13")
