"""The drafts of the arguments of operators: which samples are taken, and what eager says of them."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.script_modules import script_module


def samples(name: str) -> list[object]:
    draft = script_module("draft_arguments")
    function = script_module("signatures").function_of(script_module("operator_families").spellings(name)[0])
    found = list(draft.samples_of(function, draft.database()[name]))
    return [*found, *draft.made(found)]


def test_an_argument_that_has_its_default_shows_nothing() -> None:
    draft, signatures = script_module("draft_arguments"), script_module("signatures")
    x = torch.linspace(-2, 2, 9)
    signature = signatures.signatures(torch.nn.functional.gelu)[0]
    by_word = {
        word: draft.Sample(torch.nn.functional.gelu, signature, {"input": x, "approximate": word})
        for word in ("none", "tanh")
    }
    assert by_word["none"].proofs == frozenset() and not any("approximate" in kind for kind in by_word["none"].kinds)
    assert "approximate tanh" in by_word["tanh"].kinds


def test_signatures_are_those_of_python_and_of_aten() -> None:
    signatures = script_module("signatures")
    [pool] = signatures.signatures(signatures.function_of("F.max_pool2d"))
    assert [each.name for each in pool][:4] == ["input", "kernel_size", "stride", "padding"]
    _, given = signatures.bound(torch.Tensor.permute, (torch.ones(2, 3), 1, 0), {})
    assert given["dims"] == [1, 0]
    _, given = signatures.bound(torch.max, (torch.ones(2, 3), 1, True), {})
    assert [*given] == ["input", "dim", "keepdim"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nn.functional.interpolate", "cumsum", "addmm"])
def test_each_argument_that_a_sample_shows_is_shown_by_a_chosen_one(name: str) -> None:
    every = samples(name)
    showing, others = script_module("draft_arguments").chosen(every, lambda sample: True)
    shown = set(itertools.chain.from_iterable(sample.proofs for sample in showing))
    assert shown == set(itertools.chain.from_iterable(sample.proofs for sample in every)) != set()
    assert len(others) <= script_module("draft_arguments").MORE
