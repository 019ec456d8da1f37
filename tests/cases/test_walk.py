"""Walks over chains: every step once, however deep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from runner.cases.model import Node
from runner.cases.walk import all_steps, map_steps
from tests.handmade import loaded, written

NESTED = """
    cases:
      - name: nested
        inputs: {x: [2, 3]}
        chain:
          - with: [{torch.autocast: {device_type: cpu, dtype: torch.bfloat16}}]
            chain: [torch.sin]
          - if: "${x.shape[0] > 1}"
            do: [torch.cos]
            else: [{with: [torch.no_grad], chain: [torch.tan]}]
          - torch.vmap: [{$fn: {args: [row], chain: [{torch.func.grad: [{$fn: {args: [z], chain: [torch.exp, torch.sum]}}]}]}}]
"""


def chain(folder: Path) -> tuple[Node, ...]:
    (variant,) = loaded(written(folder, NESTED)).variants
    return variant.case.chain


def test_every_step_is_met_once_in_contexts_blocks_and_functions_of_functions(tmp_path: Path) -> None:
    assert [step.operator for step in all_steps(chain(tmp_path))] == [
        "torch.autocast", "torch.sin", "torch.cos", "torch.no_grad", "torch.tan",
        "torch.vmap", "torch.func.grad", "torch.exp", "torch.sum",
    ]  # fmt: skip


def test_a_change_of_steps_reaches_blocks_and_leaves_contexts(tmp_path: Path) -> None:
    result = map_steps(chain(tmp_path), lambda step: replace(step, operator="x"))
    assert [step.operator for step in all_steps(result)] == [
        "torch.autocast", "x", "x", "torch.no_grad", "x", "x", "torch.func.grad", "torch.exp", "torch.sum",
    ]  # fmt: skip
