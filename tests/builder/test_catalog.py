"""``runner.builder.catalog``: what a step may call, and what a pattern of it matches."""

from __future__ import annotations

import pytest

from runner.builder.catalog import callable_names, find_operators, refused_names
from runner.builder.operators import Operator, Refusal, resolve
from runner.cases.operator_texts import VERSIONS


def test_every_name_is_one_that_a_step_may_call_and_no_other_is() -> None:
    assert len(callable_names()) > 6000 and list(callable_names()) == sorted({*callable_names()})
    assert all(isinstance(resolve(name), Operator) for name in callable_names())
    assert all(isinstance(resolve(name), Refusal) for name in refused_names())
    assert "torch.no_grad" in refused_names() and "aten._cummax_helper" in refused_names()


def test_a_version_has_its_own_names_alone() -> None:
    old, new = (set(callable_names(version)) for version in VERSIONS)
    assert old | new == set(callable_names())
    assert "Tensor.grad_dtype" in new - old
    assert "F.gelu" in old & new


@pytest.mark.parametrize(
    ("pattern", "callable_", "refused"),
    [
        ("F.gelu", ["F.gelu"], []),
        ("Tensor.t", ["Tensor.t"], []),  # not Tensor.T, which the same letters are
        ("gelu", ["F.gelu", "aten.gelu", "nn.GELU"], []),
        ("f.GEL*", ["F.gelu"], []),
        ("aten.gelu.*", ["aten.gelu.default", "aten.gelu.out"], []),
        ("torch.save", [], ["torch.save"]),  # torch's inventory does not hold it, and a rule refuses it
        ("aten._cummax_helper", [], ["aten._cummax_helper"]),
        ("*.no_grad", [], ["torch.no_grad"]),
        ("F.rellu", [], []),
        ("zyzzyva*", [], []),
        ("torch.a[", [], []),
    ],
)
def test_what_a_pattern_matches(pattern: str, callable_: list[str], refused: list[str]) -> None:
    match = find_operators(pattern)
    assert ([*match.callable], [*match.refused]) == (callable_, refused)


def test_a_pattern_of_all_names_has_no_overloads() -> None:
    names = find_operators("*").callable
    assert "aten.add" in names and "aten.add.Tensor" not in names and "torch.linalg.det" in names
    assert "aten.add.Tensor" in find_operators("aten.add.*").callable


def test_a_version_without_the_operator_matches_nothing() -> None:
    assert find_operators("Tensor.grad_dtype", "2.6").callable == ()
    assert find_operators("Tensor.grad_dtype", "2.13").callable == ("Tensor.grad_dtype",)
