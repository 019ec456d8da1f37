"""Writes specs/numerics/unary.spec.yaml and binary.spec.yaml: operators of torch's database over bit patterns.

python tools/draft_numerics.py           # writes both files
python tools/draft_numerics.py --check   # exit code 1 when that would change them

A case is an operator; its dtypes are those of float16 and bfloat16 that eager takes, or else float32. The ledger of a
case that is there already stays.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

import torch  # noqa: E402

from runner.cases.canonical import format_text  # noqa: E402
from runner.worker.generate.database import names_of  # noqa: E402
from runner.worker.torch_private.operator_database import entries  # noqa: E402

TARGETS = {
    1: REPOSITORY / "specs" / "numerics" / "unary.spec.yaml",
    2: REPOSITORY / "specs" / "numerics" / "binary.spec.yaml",
}
CLASSES = {"UnaryUfuncInfo": 1, "BinaryUfuncInfo": 2}
BESIDE = {"nn.functional.gelu": 1, "nn.functional.hardswish": 1, "nn.functional.leaky_relu": 1, "logaddexp2": 2}
"""Pointwise operators whose entries have no class of their own, and how many tensors they take."""
LEFT_OUT = re.compile(r"jiterator|rrelu|complex|polynomial")
"""What compiles a text for CUDA, draws random numbers, makes a dtype that eager cannot compute in, or counts up to a degree."""
STEPS = {
    "fill": "{torch.fill: [$x, 3]}",
    "nn.functional.prelu": "{F.prelu: [$x, {$tensor: [0.25], dtype: $dtype}]}",
    "nn.functional.threshold": "{F.threshold: [$x, 0.25, -9]}",
    **{f"{name}.{variant}": f"{{torch.{space}polygamma: [{n}, $x]}}"
       for name, space in (("polygamma", ""), ("special.polygamma", "special."))
       for n, variant in enumerate([f"{name.replace('.', '_')}_n_{n}" for n in range(5)])},
    "div.floor_rounding": '{torch.div: {"*": [$x, $y], rounding_mode: floor}}',
    "div.trunc_rounding": '{torch.div: {"*": [$x, $y], rounding_mode: trunc}}',
}  # fmt: skip
"""Steps whose arguments are not those that the entry samples."""
HALVES = ("float16", "bfloat16")
TOLERANCE = "{values: {ulp: 1}, reason: eager computes in float32 and rounds once}"
WIDE = "{values: {ulp: 16}, reason: special functions of float32 are sums of many terms}"
FLOAT32 = "{{shape: [65536], dtype: bfloat16, init: patterns, layout: [{{Tensor.to: [$_, {}]}}]}}"
PAIRS = "{{shape: {}, dtype: float8_e5m2, init: patterns, layout: [{{Tensor.to: [$_, $dtype]}}]}}"
HEAD = """\
# yaml-language-server: $schema=../../schema/spec.schema.json
# Written by tools/draft_numerics.py; ledgers are kept.
"""
DEFAULTS = {
    1: f"""\
defaults:
  tags: [numerics]
  grad: off
  inputs: {{x: {{shape: [65536], init: patterns}}}}
  dtypes: [float16, bfloat16]
  tolerance: {TOLERANCE}
cases:
""",
    2: f"""\
# a: all pairs of the 256 numbers of float8_e5m2, which both dtypes hold. b: 65,536 pairs of their own numbers.
defaults:
  tags: [numerics]
  grad: off
  inputs:
    x: {PAIRS.format("[256, 1]")}
    y: {PAIRS.format("[256]")}
    z: {{shape: [65536], init: patterns}}
    w: {{shape: [65536], init: patterns}}
  dtypes: [float16, bfloat16]
  tolerance: {TOLERANCE}
  return: [$a, $b]
cases:
""",
}


def operands(entry: Any) -> int:
    """Return how many tensors a pointwise operator takes; 0 for any other entry."""
    if LEFT_OUT.search(entry.full_name) or entry.name.rpartition(".")[2].startswith("_"):
        return 0
    return CLASSES.get(type(entry).__name__, BESIDE.get(entry.full_name, 0))


def dtypes(entry: Any, count: int) -> list[str]:
    """Return the dtypes that eager takes: halves, or float32 where it takes none of them."""
    return [name for name in HALVES if _runs(entry, count, name)] or ["float32"] * _runs(entry, count, "float32")


def _runs(entry: Any, count: int, dtype: str) -> bool:
    kind = getattr(torch, dtype)
    if kind not in entry.dtypes:
        return False
    tensors = [torch.rand(3).to(kind) for _ in range(count)]
    keywords = _keywords(entry, tensors[0])
    try:
        entry.op(*tensors, **keywords)
    except RuntimeError:
        return False
    return True


def _keywords(entry: Any, tensor: torch.Tensor) -> dict[str, Any]:
    sample = getattr(entry, "sample_kwargs", None)
    return sample("cpu", tensor.dtype, tensor)[0] if sample is not None else {}


def step(entry: Any, count: int, dtype: str) -> str:
    """Return the step that calls an operator on ``$x``, or on ``$x`` and ``$y``; empty for one that no case may name."""
    if entry.full_name in STEPS:
        return STEPS[entry.full_name]
    names = [name for name in names_of(entry) if not name.startswith("aten.")]
    if not names:
        return ""
    keywords = _keywords(entry, torch.rand(3).to(getattr(torch, dtype)))
    arguments = "$x" if count == 1 else "[$x, $y]"
    if keywords:
        words = ", ".join(f"{name}: {json.dumps(value)}" for name, value in keywords.items())
        arguments = f'{{"*": [{"$x, $y"[: 4 * count - 2]}], {words}}}'
    return f"{{{names[0]}: {arguments}}}"


def cases(count: int, ledgers: dict[str, str]) -> Iterator[str]:
    """Yield the cases of operators that take so many tensors, in the order of their names."""
    chosen = {entry.full_name: entry for entry in entries() if operands(entry) == count}
    for full_name, entry in sorted(chosen.items()):
        kinds = dtypes(entry, count)
        text = step(entry, count, kinds[0]) if kinds else ""
        if not text:
            continue
        name = re.sub(r"\W", "_", full_name.removeprefix("nn.functional."))
        lines = [f"  - name: {name}"]
        if kinds == ["float32"]:
            names = "xyzw"[: 1 if count == 1 else 4]
            shapes = {"x": "[256, 1]", "y": "[256]"} if count == 2 else {}
            made = [
                f"{n}: {PAIRS.format(shapes[n]) if n in shapes else FLOAT32.format('torch.float32')}" for n in names
            ]
            lines += [f"    inputs: {{{', '.join(made)}}}", f"    tolerance: {WIDE}"]
        if kinds != [*HALVES]:
            lines.append(f"    dtypes: [{', '.join(kinds)}]")
        if count == 1:
            lines.append(f"    chain: [{text}]")
        else:
            second = text.replace("$x", "$z").replace("$y", "$w")
            lines.append(f"    chain: [{text[:-1]}, out: a}}, {second[:-1]}, out: b}}]")
        yield "\n".join(lines) + "\n" + ledgers.get(name, "")


def ledgers(path: Path) -> dict[str, str]:
    """Return what follows the chain of each case of a file, by the case's name."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    blocks = re.findall(r"(?ms)^  - name: (\w+)\n(.*?)(?=^  - name: |\Z)", text)
    kept = {
        name: re.findall(r"(?ms)^    (?:doc|known):.*?(?=^    \w|\Z)", body.rstrip() + "\n") for name, body in blocks
    }
    return {name: "".join(parts) for name, parts in kept.items()}


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a file is out of date")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    stale = False
    for count, path in TARGETS.items():
        text = format_text(HEAD + DEFAULTS[count] + "\n".join(cases(count, ledgers(path))))
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale = True
        if arguments.check:
            print(f"{path} is out of date: run python tools/draft_numerics.py")
        else:
            path.write_text(text, encoding="utf-8")
    return int(stale and arguments.check)


if __name__ == "__main__":
    sys.exit(main())
