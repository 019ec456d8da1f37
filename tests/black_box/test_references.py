"""``bench/references.py`` on two programs of a sweep, found to have no reference, and on cases of each answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .driver import LIMIT, REPOSITORY

CHAINS = """\
cases:
- name: floats_beside_halves
  inputs: {x0: [19, 2], x1: [1, 4, 6]}
  chain:
  - {torch.chunk: [$x0, 2, -2], out: [v1, v2]}
  - {F.log_softmax: {'*': [$v1], dim: 1}, out: v3}
  - {operator.getitem: [$v3, '[..., :1]'], out: v4}
  - {Tensor.neg_: $v4}
  - {F.max_pool1d: {'*': [$x1, 2], padding: 1}, out: v5}
  - {F.prelu: [$v5, {$tensor: [0.3], dtype: torch.float16}], out: v6}
  - {torch.minimum: [$v6, $v5], out: v7}
  return: {k0: $v6, k1: $v4, k2: $v3, k3: $v7, k4: $v2}
  dtypes: [float16]
  grad: 'off'
- name: views_that_require_gradients
  params: {n: [14]}
  inputs:
    x0: {shape: [16, 32, '${n}'], layout: [{Tensor.transpose: [$_, 0, 2]}]}
    x1: {shape: ['${n}', 32, 16], requires_grad: true, layout: [{torch.permute: [$_, [0, 2, 1]]}]}
    x2: {shape: [2], requires_grad: true, layout: [{operator.getitem: [$_, '[..., ::2]']}]}
    i3: {shape: ['${n}', 32, 6], dtype: int64, init: {randint: [0, 32]}}
    x4: {shape: [1, 4, 7, 6], requires_grad: true}
  chain:
  - {operator.getitem: [$x0, '[..., ::3]'], out: v1}
  - torch.vmap: [{$fn: {args: [row], chain: [{torch.softmax: {'*': [$_], dim: -1}}]}}]
    out: f3
  - {operator.call: [$f3, $v1], out: v2}
  - {torch.floor: $v2, out: v4}
  - {torch.scatter_add: [$v4, 1, $i3, $v4], out: v5}
  - {F.logsigmoid: $v5, out: v6}
  - {F.max_pool2d: {'*': [$x4, 2], ceil_mode: true}, out: v7}
  - {Tensor.repeat: [$v7, 2, 1, 1, 1], out: v8}
  - {torch.atan2: [$x1, $x2], out: v9}
  return: [$v9, $v6, $v8]
  dtypes: [float32]
  grad: backward
  calls: [{params: {n: 11}}, {params: {n: 31}}]
  dynamic: true
"""

NEITHER = """\
- name: doubles
  inputs: {x: [3]}
  dtypes: [float64]
  chain: [torch.sin]
- name: integers
  inputs: {x: {shape: [3], dtype: int64, init: {randint: [0, 9]}}}
  chain: [torch.neg]
- name: drawn_and_computed
  inputs: {x: [3]}
  chain: [{F.rrelu: {'*': [$_], training: true}}, {Tensor.to: [$_, torch.float8_e4m3fn]}]
"""


def references(folder: Path, text: str) -> tuple[int, str]:
    (folder / "a.spec.yaml").write_text(text)
    command = [sys.executable, "-W", "ignore", str(REPOSITORY / "bench" / "references.py"), "a.spec.yaml"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False)
    return result.returncode, result.stdout + result.stderr


def test_two_chains_that_had_none(tmp_path: Path) -> None:
    code, text = references(tmp_path, CHAINS)
    assert code == 0 and "2 float variants: 2 reference, 0 stand-in, 0 neither" in text, text


def test_every_answer(tmp_path: Path) -> None:
    code, text = references(tmp_path, CHAINS + NEITHER)
    assert code == 1 and "4 float variants: 2 reference, 1 stand-in, 1 neither\n1 no float" in text, text
    assert (
        "neither: no float64 reference: aten.rrelu_with_noise.default draws random numbers and computes in one" in text
    )
