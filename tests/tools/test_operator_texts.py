"""``tools/operator_texts.py``: the file of signatures is what the installed torch says, and its words are torch's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runner.builder.catalog import callable_names
from runner.cases.operator_texts import FILE, VERSIONS, WORDS, calls_by_version
from tests.script_modules import ROOT, script_module

VERSION = ".".join(torch.__version__.split(".")[:2])
DATA = json.loads(FILE.read_text(encoding="utf-8"))
tool = script_module("operator_texts")

of_the_file = pytest.mark.skipif(VERSION not in VERSIONS, reason=f"the file says nothing of torch {VERSION}")


@pytest.mark.slow
@of_the_file
def test_the_file_is_what_the_installed_torch_says() -> None:
    """Run: python tools/operator_texts.py"""
    # In a process of its own: Inductor, which other tests import, registers more operators.
    code = "import json; from tests.script_modules import script_module as s; print(json.dumps(s('operator_texts').collect()))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    texts = json.loads(answer.stdout)
    known = {name: calls_by_version(name).get(VERSION) for name in DATA["calls"]}
    assert {name: calls for name, calls in known.items() if calls is not None} == texts["calls"]
    if VERSIONS.index(VERSION) == len(VERSIONS) - 1:  # of other versions the file has what the newest lacks
        assert texts["lines"].items() <= DATA["lines"].items() and texts["dtypes"].items() <= DATA["dtypes"].items()
    assert tool.written(tool.merge(DATA, VERSION, texts)) == FILE.read_text(encoding="utf-8")


def test_each_operator_that_a_step_may_call_has_a_row_and_no_other_has() -> None:
    assert sorted(DATA["calls"]) == list(callable_names()), "run: python tools/operator_texts.py"


def test_versions_are_merged_in_any_order() -> None:
    def texts(**calls: list[str]) -> dict[str, Any]:
        return {"calls": calls, "lines": {"same": str(calls["same"])}, "dtypes": {}}

    old, new = texts(same=["(a)"], changed=["(a)"], gone=["(a)"]), texts(same=["(a)"], changed=["(b)"])
    data = tool.merge(tool.merge({}, "2.6", old), "2.13", new)
    assert data["torch"] == ["2.6", "2.13"]
    assert data["calls"] == {"changed": {"2.6": ["(a)"], "2.13": ["(b)"]}, "gone": {"2.6": ["(a)"]}, "same": ["(a)"]}
    assert tool.merge(tool.merge({}, "2.13", new), "2.6", old) == data == tool.merge(data, "2.6", old)
    assert json.loads(tool.written(data)) == data
    without = tool.merge(data, "2.6", texts(same=["(a)"], changed=["(b)"]))
    assert without["calls"] == {"changed": ["(b)"], "same": ["(a)"]}


@pytest.mark.parametrize(
    ("operator", "calls"),
    [
        ("F.relu", ["(input, inplace=False)"]),
        ("torch.linalg.det", ["(A: Tensor) -> Tensor"]),
        ("Tensor.neg", ["(self: Tensor) -> Tensor"]),
        ("torch.neg", ["(input: Tensor) -> Tensor"]),
        ("aten.relu.default", ["(Tensor self) -> Tensor"]),
        ("nn.Sigmoid", ["()"]),
        ("Tensor.bfloat16", ["(memory_format=torch.preserve_format) -> Tensor"]),
        ("Tensor.shape", []),
        ("F.no_such_function", []),
    ],
)
def test_what_torch_says_of_an_operator(operator: str, calls: list[str]) -> None:
    assert tool.calls_of(operator) == calls


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Applies :func:`torch.relu` to ``x``. More.", "Applies relu to x."),
        ("Computes a sum over a :ref:`sparse tensor <sparse-docs>`.", "Computes a sum over a sparse tensor."),
        ("Applies a linear transformation to the data: :math:`y`.", "Applies a linear transformation to the data."),
        ("See :func:`torch.add`", ""),
        ("This module supports tf32.", ""),
        (r"Returns \frac{1}{2} of it all.", ""),
        ("Without an end", ""),
    ],
)
def test_the_first_sentence_has_no_markup(text: str, sentence: str) -> None:
    assert tool._sentence(text) == sentence


X, IMAGE, MATRIX = torch.rand(3, 3), torch.rand(1, 2, 6, 6), torch.eye(3)
SIZES = {"linear": (1, 2, 6), "bilinear": (1, 2, 6, 6), "bicubic": (1, 2, 6, 6), "trilinear": (1, 1, 4, 4, 4)}
TRIES: dict[str, Callable[[str], object]] = {
    "* approximate": lambda word: F.gelu(X, approximate=word),
    "F.kl_div reduction": lambda word: F.kl_div(X, X, reduction=word),
    "nn.KLDivLoss reduction": lambda word: nn.KLDivLoss(reduction=word)(X, X),
    "* reduction": lambda word: F.l1_loss(X, X, reduction=word),
    "F.interpolate mode": lambda word: F.interpolate(torch.rand(SIZES.get(word, (1, 2, 6))), scale_factor=2, mode=word),
    "F.upsample mode": lambda word: F.upsample(torch.rand(SIZES.get(word, (1, 2, 6))), scale_factor=2, mode=word),
    "nn.Upsample mode": lambda word: nn.Upsample(scale_factor=2, mode=word)(torch.rand(SIZES.get(word, (1, 2, 6)))),
    "F.grid_sample mode": lambda word: F.grid_sample(IMAGE, torch.rand(1, 3, 3, 2), mode=word, align_corners=False),
    "F.grid_sample padding_mode": lambda word: F.grid_sample(IMAGE, torch.rand(1, 3, 3, 2), padding_mode=word, align_corners=False),
    "F.pad mode": lambda word: F.pad(IMAGE, (1, 1, 1, 1), mode=word),
    "F.embedding_bag mode": lambda word: F.embedding_bag(torch.tensor([[0, 1]]), X, mode=word),
    "nn.EmbeddingBag mode": lambda word: nn.EmbeddingBag(3, 3, mode=word)(torch.tensor([[0, 1]])),
    "nn.*ConvTranspose* padding_mode": lambda word: nn.ConvTranspose2d(2, 2, 2, padding_mode=word)(IMAGE),
    "nn.*Conv* padding_mode": lambda word: nn.Conv2d(2, 2, 2, padding_mode=word)(IMAGE),
    "nn.*Conv[123]d padding": lambda word: nn.Conv2d(2, 2, 2, padding=word)(IMAGE),
    "F.conv[123]d padding": lambda word: F.conv2d(IMAGE, torch.rand(2, 2, 2, 2), padding=word),
    "nn.RNN* nonlinearity": lambda word: nn.RNNCell(3, 3, nonlinearity=word)(X),
    "nn.Transformer* activation": lambda word: nn.TransformerEncoderLayer(4, 2, activation=word),
    "torch.cdist compute_mode": lambda word: torch.cdist(X, X, compute_mode=word),
    "*.meshgrid indexing": lambda word: torch.meshgrid(X[0], X[0], indexing=word),
    "*.div* rounding_mode": lambda word: torch.div(X, X, rounding_mode=word),
    "*quantile interpolation": lambda word: torch.quantile(X, 0.3, interpolation=word),
    "torch.norm p": lambda word: torch.norm(X, p=word),
    "Tensor.norm p": lambda word: X.norm(p=word),
    "torch.linalg.*norm ord": lambda word: torch.linalg.norm(X, ord=word),
    "*.index_reduce* reduce": lambda word: X.index_reduce(0, torch.tensor([0]), X[:1], word),
    "*.scatter_reduce* reduce": lambda word: X.scatter_reduce(0, torch.zeros(1, 3, dtype=torch.int64), X, word),
    "*.searchsorted side": lambda word: torch.searchsorted(X[0].sort()[0], X[1], side=word),
    "*.stft pad_mode": lambda word: torch.stft(torch.rand(64), 8, window=torch.ones(8), pad_mode=word, return_complex=True),
    "torch.vmap randomness": lambda word: torch.vmap(lambda x: x + torch.rand(()) if word != "error" else x, randomness=word)(X),
    "torch.linalg.* UPLO": lambda word: torch.linalg.eigh(MATRIX, UPLO=word),
    "torch.linalg.qr mode": lambda word: torch.linalg.qr(MATRIX, mode=word),
    "torch.linalg.lstsq driver": lambda word: torch.linalg.lstsq(MATRIX, MATRIX, driver=word),
    "torch.fft.* norm": lambda word: torch.fft.fft(X, norm=word),
}  # fmt: skip
"""A call with each row's argument."""


def test_each_row_of_words_is_tried() -> None:
    assert list(TRIES) == [f"{pattern} {argument}" for pattern, argument, _ in WORDS]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", WORDS, ids=lambda row: f"{row[0]} {row[1]}")
def test_torch_takes_each_word_and_refuses_another(row: tuple[str, str, tuple[str, ...]]) -> None:
    attempt = TRIES[f"{row[0]} {row[1]}"]
    for word in row[2]:
        attempt(word)
    with pytest.raises(
        (RuntimeError, ValueError, NotImplementedError, KeyError, AttributeError, AssertionError, TypeError)
    ):
        attempt("nonsense")
