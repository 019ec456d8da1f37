"""Backends that ignore or mix up an argument: which bugs there are, and that the cases of the operator see them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.script_modules import script_module

REPOSITORY = Path(__file__).resolve().parents[2]


def bug(*words: str) -> object:
    return script_module("planted_arguments").Bug(*words)


def compiled(function: object, *words: str) -> object:
    torch._dynamo.reset()
    return torch.compile(function, backend=script_module("planted_arguments").backend_of(bug(*words)))


def test_a_bug_has_a_name_that_python_can_import() -> None:
    planted = script_module("planted_arguments")
    for each in (bug("nn.functional.gelu", "default", "approximate"), bug("clamp", "swapped", "min", "max")):
        assert each.name.isidentifier() and planted.Bug.named(each.name) == each


def test_the_bugs_follow_from_the_signature() -> None:
    planted, signatures = script_module("planted_arguments"), script_module("signatures")
    names = {each.name for each in planted.bugs_of("roll", signatures.signatures(torch.roll)[0], frozenset())}
    assert names == {
        "roll__default__dims",
        "roll__reversed__shifts",
        "roll__reversed__dims",
        "roll__swapped__shifts__dims",
    }


@pytest.mark.slow
def test_a_backend_has_its_bug_and_no_other() -> None:
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    assert torch.equal(
        compiled(lambda x: F.gelu(x, approximate="tanh"), "nn.functional.gelu", "default", "approximate")(x), F.gelu(x)
    )
    assert torch.equal(
        compiled(lambda x: x.flatten(1) + x.sum(), "flatten", "default", "start_dim")(x), x.flatten() + x.sum()
    )
    assert torch.equal(
        compiled(lambda x: torch.clamp(x, -1, 1), "clamp", "swapped", "min", "max")(x), torch.clamp(x, 1, -1)
    )
    assert torch.equal(
        compiled(lambda x: torch.roll(x, [1, 2], [0, 1]), "roll", "reversed", "shifts")(x),
        torch.roll(x, [2, 1], [0, 1]),
    )
    assert torch.equal(compiled(torch.sin, "clamp", "default", "min")(x), x.sin())


PLANTED = (
    ("nn.functional.gelu", "default", "approximate"),
    ("nn.functional.max_pool2d", "default", "dilation"),
    ("cumsum", "constant", "dim"),
    ("roll", "reversed", "shifts"),
    ("addmm", "swapped", "beta", "alpha"),
)


@pytest.mark.nightly
@pytest.mark.slow
def test_the_cases_of_the_operator_are_red(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = script_module("planted_arguments")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "bench"))
    plans = planted.planned_variants([bug(*words) for words in PLANTED])
    chosen = [variant for _, is_core, variant in plans.values() if is_core]
    reds = {id_.partition("@")[2] for id_ in planted.reds(chosen, jobs=2)}
    assert reds == {bug(*words).name for words in PLANTED}
