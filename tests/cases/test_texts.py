"""``runner.cases.texts``: texts that numpy could make of numbers."""

from __future__ import annotations

import pytest
from spec_files import Files

NUMPY = "Tensor.numpy: [$x]"
MESSAGE = "a case that calls numpy may hold no text"


@pytest.mark.parametrize(
    "keys",
    [
        f"chain: [{{{NUMPY}}}, {{Tensor.view: [$_, U6]}}, {{Tensor.item: [$_]}}]",
        "chain: [{numpy.array: [[$x, abc]]}, {Tensor.view: [$x, $_.dtype]}]",
        f"chain: [{{{NUMPY}}}, {{builtin.list: [{{U6: 1}}]}}]",
        f"params: {{p: [U6]}}\nchain: [{{{NUMPY}}}, {{Tensor.view: [$_, $p]}}]",
        f"inputs: {{x: [2], t: {{python: [1, U6]}}}}\nchain: [{{{NUMPY}}}, {{Tensor.view: [$_, $t]}}]",
        f"chain: [{{{NUMPY}}}, {{Tensor.type: [$x]}}]",
        f"chain: [{{{NUMPY}}}]\nreturn: [$_, U6]",
        "chain: [{torch.func.vmap: [{$fn: {args: [t], chain: [{numpy.abs: [$t]}, {torch.einsum: [abc, $t]}]}}]}]",
    ],
)
def test_numpy_and_a_text(files: Files, keys: str) -> None:
    assert [message for message in files.errors(keys) if MESSAGE in message]


@pytest.mark.parametrize(
    "keys", [f"chain: [{{{NUMPY}}}]", "chain: [{numpy.abs: [$x]}]", "chain: [{torch.einsum: [ab, $x]}]"]
)
def test_one_without_the_other(files: Files, keys: str) -> None:
    assert not [message for message in files.errors(keys) if MESSAGE in message]
