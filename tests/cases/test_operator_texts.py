"""``runner.cases.operator_texts``: the file of signatures, and how it is read."""

from __future__ import annotations

import json

import pytest

from runner.cases.operator_texts import (
    FILE,
    VERSIONS,
    WORDS,
    arguments_of,
    calls_by_version,
    overloads_of,
    text_of,
    words_for,
)

DATA = json.loads(FILE.read_text(encoding="utf-8"))


def test_the_versions_are_those_of_the_file() -> None:
    assert tuple(DATA["torch"]) == VERSIONS


def test_the_texts_are_plain_lines() -> None:
    calls = [call for name in DATA["calls"] for known in calls_by_version(name).values() for call in known]
    texts = [*calls, *DATA["lines"].values(), *DATA["dtypes"].values()]
    assert len(calls) > 4000 and len(DATA["lines"]) > 900 and len(DATA["dtypes"]) > 500
    assert [text for text in texts if not text.isascii() or not text.isprintable()] == []
    assert all(call.startswith("(") for call in calls)


def test_a_text_has_signature_sentence_dtypes_and_versions() -> None:
    text = text_of("F.gelu")
    assert text.signatures == ("F.gelu(input: Tensor, *, approximate: str = 'none') -> Tensor",)
    assert text.line == "Applies the Gaussian Error Linear Units function."  # that of nn.GELU: F.gelu's has a formula
    assert text.dtypes == ("bfloat16", "float16", "float32", "float64")
    assert text.versions == VERSIONS


def test_an_operator_of_one_version_is_described_by_it() -> None:
    assert text_of("Tensor.grad_dtype").versions == ("2.13",)
    assert (
        text_of("torch.max", "2.6").signatures
        != text_of("torch.max").signatures
        == text_of("torch.max", "2.13").signatures
    )
    assert text_of("F.linear_cross_entropy", "2.6").signatures == ()


def test_an_operator_of_aten_has_those_of_its_overloads() -> None:
    assert text_of("aten.gelu").signatures == (
        *text_of("aten.gelu.default").signatures,
        *text_of("aten.gelu.out").signatures,
    )
    assert overloads_of("aten.add")[-1].endswith("out") and overloads_of("torch.add") == []
    assert all("Tensor" in signature for signature in text_of("aten.add").signatures)


@pytest.mark.parametrize(
    ("name", "signature"),
    [("operator.mul", "a * b"), ("operator.iadd", "a += b"), ("operator.neg", "-a"), ("operator.getitem", "a[b]")],
)
def test_operators_of_python_are_written_as_python_does(name: str, signature: str) -> None:
    assert text_of(name).signatures == (signature,)


@pytest.mark.parametrize(
    ("signature", "arguments"),
    [
        ("F.gelu(input: Tensor, *, approximate: str = 'none') -> Tensor", {"input": "", "approximate": "'none'"}),
        ("torch.sum(input: Tensor, dim: Optional[List[int]], keepdim: bool = False) -> Tensor", {"input": "", "dim": "", "keepdim": "False"}),
        ("torch.einsum(*args)", {}),
        ("nn.X(a, b=(1, 2), **kwargs)", {"a": "", "b": "(1, 2)"}),
        ('aten.x(Tensor(a!) self, int[2] stride=[], Tensor? b=None, *, str mode="a", ScalarType? dtype=None) -> Tensor(a!)',
         {"self": "", "stride": "[]", "b": "None", "mode": '"a"', "dtype": "None"}),
        ("torch.empty(*size, *, out=None) -> Tensor", {}),
        ("a + b", {}),
    ],
)  # fmt: skip
def test_the_arguments_of_a_signature(signature: str, arguments: dict[str, str]) -> None:
    assert arguments_of([signature]) == arguments


def test_later_signatures_add_arguments() -> None:
    assert arguments_of(["f(a, b=1)", "f(a, c)"]) == {"a": "", "b": "1", "c": ""}


def test_words_are_of_the_first_row_that_fits() -> None:
    assert words_for("F.kl_div", "reduction") == ("none", "mean", "sum", "batchmean")
    assert words_for("F.l1_loss", "reduction") == ("none", "mean", "sum")
    assert words_for("nn.ConvTranspose2d", "padding_mode") == ("zeros",)
    assert words_for("aten.mse_loss", "reduction") == ()  # a number there
    assert words_for("aten.gelu", "approximate") == ("none", "tanh")
    assert words_for("F.relu", "input") == ()


@pytest.mark.parametrize("row", WORDS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_each_row_of_words_is_of_an_argument_that_an_operator_has(row: tuple[str, str, tuple[str, ...]]) -> None:
    names = [name for name in DATA["calls"] if words_for(name, row[1]) == row[2]]
    assert [name for name in names if row[1] in arguments_of(text_of(name).signatures)]
