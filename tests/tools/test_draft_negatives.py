"""What the tool writes of torch's error inputs, and what text of a message a case asks for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.script_modules import script_module

draft = script_module("draft_negatives")


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.ones(3, 4), [3, 4]),
        (torch.ones(2, dtype=torch.float64), {"shape": [2], "dtype": "float64"}),
        (torch.tensor([4, 0]), {"values": [4, 0]}),
        (torch.tensor([0.5, float("inf")]), {"values": [0.5, float("inf")]}),
        (torch.ones(1, 1).expand(2, 3), {"shape": [1, 1], "layout": [{"Tensor.expand": ["$_", 2, 3]}]}),
        (torch.ones(2, device="meta"), {"shape": [2], "device": "meta"}),
        (torch.full((5, 5), 3), {"shape": [5, 5], "dtype": "int64", "init": {"randint": [3, 4]}}),
    ],
)
def test_a_tensor_becomes_an_input(tensor: torch.Tensor, expected: Any) -> None:
    assert draft.written_tensor(tensor) == expected


def test_a_tensor_of_another_layout_is_refused() -> None:
    with pytest.raises(draft.UnfitError):
        draft.written_tensor(torch.eye(2).to_sparse())


def test_one_tensor_that_stands_twice_is_one_input() -> None:
    writer, tensor = draft.Writer(), torch.ones(2)
    assert writer.argument([tensor, torch.float16, (tensor, 2)]) == ["$x", "torch.float16", ["$x", 2]]
    assert writer.inputs == {"x": [2]}


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (["size 3 must match, but got 4"], "must match, but got"),
        (["lambda must be in range [0, 1)", "lambda must be greater or equal to 0"], "lambda must be"),
        (["one text", "nothing shared"], ""),
        (["first line\nsecond line that is longer"], "first line"),
    ],
)
def test_the_text_asked_for_stands_in_every_message(messages: list[str], text: str) -> None:
    assert draft.common_text(messages) == text


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("add", "torch.add"),
        ("nn.functional.softshrink", "F.softshrink"),
        ("linalg.cross", "torch.linalg.cross"),
        ("__rand__", "operator.and_"),
        ("__rsub__", "operator.sub"),
        ("_chunk_cat", "aten._chunk_cat"),
        ("view_as", "Tensor.view_as"),
        ("exponential", "Tensor.exponential_"),
        ("normal in_place", "Tensor.normal_"),
    ],
)
def test_an_operator_of_the_database_is_spelled_as_the_format_does(name: str, spelled: str) -> None:
    assert draft.spelling(name) == spelled


@pytest.mark.parametrize(
    ("operator", "family"),
    [("signal.windows.hann", "windows"), ("nn.functional.max_pool2d", "pooling"), ("add", "binary")],
)
def test_an_operator_has_a_family(operator: str, family: str) -> None:
    assert draft.family_of(operator) == family
