"""``runner.cases.yaml.schema`` and the published schemas."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.cases import model
from runner.cases.limits import Limits
from runner.cases.yaml.reader import load
from runner.cases.yaml.schema import KINDS, NAMES, load_schema, schema_path, schema_text, validate
from runner.cases.yaml.values import split_lines

ROOT = Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared"
DRAFTS = sorted((SHARED / "corpus" / "yaml").glob("*.spec.yaml"))
DEFINITIONS: dict[str, Any] = load_schema("definitions")["definitions"]


def errors(text: str, kind: str = "spec") -> list[str]:
    node, problems = load("x.yaml", text)
    assert node is not None and not problems, problems
    diagnostics = validate(node, kind, split_lines(text))[0]
    for diagnostic in diagnostics:
        assert diagnostic.render() and diagnostic.severity == "error"
    return [f"{d.span.line}:{d.span.column}: {d.message}" + (f" | {d.hint}" if d.hint else "") for d in diagnostics]


def case_errors(lines: str) -> list[str]:
    """What is wrong with a case: its keys start in line 3, column 5."""
    return errors("cases:\n  - name: a\n" + "".join(f"    {line}\n" for line in lines.splitlines()))


# --- messages ------------------------------------------------------------------------------------

WRONG_FILES = {
    "casess: []": ["1:1: unknown key 'casess' | did you mean 'cases'?"],
    "[]": ["1:1: expected a mapping with the key cases, found an empty list"],
    "just text": ["1:1: expected a mapping with the key cases, found the text 'just text'"],
    "defaults: {}": ["1:1: 'cases' is missing | such as cases: [{name: relu_of_empty, inputs: {x: [0, 3]}, chain: [F.relu]}]"],
    "cases:\n": ["1:7: expected a list, found nothing (null) | such as [{name: relu_of_empty, inputs: {x: [0, 3]}, chain: [F.relu]}]"],
    "cases: [5]": ["1:9: expected a mapping, found the integer 5 | such as {name: relu_of_empty, inputs: {x: [0, 3]}, chain: [F.relu]}"],
    "cases: [{nam: x}]": ["1:10: unknown key 'nam' | did you mean 'name'?"],
    "cases:\n  - doc: x\n": ["2:5: 'name' is missing | such as name: pad_view_chunk_distance"],
    "cases: [{name: Pad-View}]": ["1:16: expected small letters, digits and _, such as relu_of_empty, found the text 'Pad-View'"],
    'cases: [{name: "a\\n"}]': ["1:16: expected small letters, digits and _, such as relu_of_empty, found the text 'a\\n'"],
    "defaults: {name: x}\ncases: []": ["1:12: the key 'name' is not taken here: each case has a name of its own"],
    "defaults: {dtype: [float32]}\ncases: []": ["1:12: unknown key 'dtype' | did you mean 'dtypes'?"],
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG_FILES)
def test_wrong_files(text: str) -> None:
    assert errors(text) == WRONG_FILES[text]


WRONG_CASES = {
    "chian: [F.relu]": ["3:5: unknown key 'chian' | did you mean 'chain'?"],
    "kernels: {}": ["3:5: unknown key 'kernels' | the keys here: name, doc, tags, links"],
    "inputs: {x: 5}": ["3:17: expected a shape such as [2, 3], or a mapping such as {shape: [2, 3], dtype: int64} or {python: 0.5}, found the integer 5"],
    "inputs: {x: {shap: [2]}}": ["3:18: unknown key 'shap' | did you mean 'shape'?"],
    "inputs: {1z: [2]}": ["3:14: the key '1z' does not fit: expected a Python name"],
    "inputs: {x: [2.0, -1, n]}": [
        "3:18: expected an integer of 0 or more, or \"${...}\", found the number 2.0",
        "3:23: -1 is too small: expected an integer of 0 or more, or \"${...}\"",
        "3:27: expected an integer of 0 or more, or \"${...}\", found the text 'n'",
    ],
    "inputs: {x: {init: one}}": ["3:24: 'one' is not one of normal, uniform, zeros, ones, integer, special, eye, randperm, patterns | did you mean 'ones'?"],
    "inputs: {x: {init: {uniform: [0, 1], ones: 1}}}": ["3:42: expected one key, found uniform, ones"],
    "inputs: {x: {init: {randint: [0]}}}": ["3:34: expected exactly 2 entries, found 1 | such as [0, 10]"],
    "inputs: {x: {shape: [2], dtype: float31}}": ["3:37: expected a dtype such as float32, bfloat16 or torch.int64, found the text 'float31' | did you mean 'float32'?"],
    "inputs: {x: {shape: [2], layout: channel_last}}": ["3:38: expected channels_last, channels_last_3d or a list of steps, found the text 'channel_last'"],
    "inputs: {x: {shape: [2], layout: {torch.t: }}}": ["3:38: expected channels_last, channels_last_3d or a list of steps, found a mapping"],
    "inputs: {x: {shape: [2], requires_grad: yes}}": ["3:45: expected true, false, after_layout or $name of a param, found the text 'yes' | in YAML 1.2 yes is text: write true or false"],
    "chain: F.relu": ["3:12: expected a list, found the text 'F.relu' | such as [F.relu, {torch.add: [$_, 1]}]"],
    "chain: []": ["3:12: expected at least one entry, found none"],
    "chain: [relu]": ["3:13: 'relu' is no operator | did you mean 'F.relu'?"],
    "chain: [rellu]": ["3:13: 'rellu' is no operator | did you mean 'F.relu'?"],
    "chain: [{add: [$x, 1]}]": ["3:14: 'add' is neither an operator nor a key of a step | did you mean 'torch.add'?"],
    "chain: [Linear]": ["3:13: 'Linear' is no operator | did you mean 'nn.Linear'?"],
    "chain: [np.tanh]": ["3:13: 'np.tanh' is no operator | did you mean 'numpy.tanh'?"],
    "chain: [xyzzyx]": ["3:13: 'xyzzyx' is no operator | operators are written nn.X, F.x, torch.x"],
    "chain: ['$x[0]']": ["3:13: '$x[0]' is no operator | an index is written operator.getitem: [$x, \"[0]\"]"],
    "chain: ['x[0][:, 1]']": ["3:13: 'x[0][:, 1]' is no operator | operators are written nn.X"],
    "chain: ['$y.a[0][:, 1]']": ["3:13: '$y.a[0][:, 1]' is no operator | an index is written operator.getitem: [$y.a[0], \"[:, 1]\"]"],
    "chain: [{'x[..., 0]': }]": ["3:14: 'x[..., 0]' is neither an operator nor a key of a step | an index is written operator.getitem: [$x, \"[..., 0]\"]"],
    "chain: [$x.a]": ["3:13: '$x.a' is no operator | a reference is an argument of a step, such as {torch.add: [$_, $x]}"],
    "chain: ['torch.add($x, 1)']": ["3:13: 'torch.add($x, 1)' is no operator | a step is no call of Python: write torch.add: [$x, 1]"],
    "chain: ['F.softmax(x, dim=-1)']": ["3:13: 'F.softmax(x, dim=-1)' is no operator | a step is no call of Python: write F.softmax: {\"*\": [$x], dim: -1}"],
    "dtypes: [float]": ["3:14: expected a dtype such as float32, bfloat16 or torch.int64, found the text 'float' | did you mean 'float32'?"],
    "inputs: {x: {shape: [2], dtype: fp32}}": ["3:37: expected a dtype such as float32, bfloat16 or torch.int64, found the text 'fp32' | did you mean 'float32'?"],
    "devices: [gpu]": ["3:15: torch has no device 'gpu' | did you mean 'cuda'?"],
    "chain: [tensor.view]": ["3:13: 'tensor.view' is no operator | did you mean 'Tensor.view'?"],
    "chain: [{tensor.view: 1}]": ["3:14: 'tensor.view' is neither an operator nor a key of a step | did you mean 'Tensor.view'?"],
    "chain: [torhc.add]": ["3:13: 'torhc.add' is no operator | did you mean 'torch.add'?"],
    "chain:\n  - torch.add: [$_, 1]\n    cal: 2": ["5:9: 'cal' is neither an operator nor a key of a step | did you mean 'call'?"],
    "chain: [5]": ["3:13: expected an operator such as F.relu, or a mapping such as {torch.add: [$_, 1]}, found the integer 5"],
    "chain: [{}]": ["3:13: this mapping is empty"],
    "chain: [{with: [torch.no_grad]}]": ["3:14: with: needs chain: beside it"],
    "chain: [{with: torch.no_grad, chain: [F.relu]}]": ["3:20: expected a list, found the text 'torch.no_grad' | such as [torch.no_grad]"],
    "chain: [{with: [{torch.no_grad: , torch.enable_grad: }], chain: [F.relu]}]": ["3:39: expected one key, found torch.no_grad, torch.enable_grad"],
    "chain: [{if: $x, else: []}]": ["3:14: if: needs do: beside it"],
    "chain: [{F.relu: , out: [1]}]": ["3:30: expected a name, such as a or self.a, or _, found the integer 1"],
    "chain: [{if: $x, do: [{if: $x, do: [rel]}]}]": ["3:41: 'rel' is no operator"],
    "strides: exactly": ["3:14: 'exactly' is not one of significant, exact | did you mean 'exact'?"],
    "grad: backwards": ["3:11: 'backwards' is not one of off, forward, backward | did you mean 'backward'?"],
    "grad: false": ["3:11: expected off, forward, backward, or a mapping such as {cotangent: sum}, found false"],
    "grad: [off, {cotangent: one}]": ["3:29: 'one' is not one of seeded, ones, sum | did you mean 'ones'?"],
    "train: [true, 1]": ["3:19: expected true or false, found the integer 1"],
    "dynamic: auto": ["3:14: expected true, false, null, or dimensions of inputs such as {x: [0]}, found the text 'auto'"],
    "autocast: fp16": ["3:15: 'fp16' is not one of float16, bfloat16"],
    "threads: 0": ["3:14: 0 is too small: expected a number of threads from 1 to 4096, or null"],
    "dtypes: [float32, float32]": ["3:23: 'float32' is listed twice"],
    "dtypes: []": ["3:13: expected at least one entry, found none | such as [float32, bfloat16]"],
    "devices: cpu": ["3:14: expected a list, found the text 'cpu' | such as [cpu, cuda]"],
    "devices: [CUDA]": ["3:15: expected a device such as cpu, cuda or cuda:1, found the text 'CUDA'"],
    "params: {n: 5}": ["3:17: expected a list, found the integer 5 | such as [2, 5]"],
    "params: {n: [1, true, 1.0, 1]}": ["3:32: 1 is listed twice"],
    "exclude: [{}]": ["3:15: this mapping is empty"],
    "calls: [{param: {}}]": ["3:14: unknown key 'param' | did you mean 'params'?"],
    "module: {file: m.py}": ["3:13: 'name' is missing"],
    "module: {}": ["3:13: 'file' and 'name' are missing"],
    "return: a": ["3:13: expected a reference such as $a, or a list of them such as [$a, $x], found the text 'a'"],
    "requires: {torch: 2.7}": ['3:23: expected a range of torch versions in quotes, such as "<=2.6", ">=2.7,<2.9" or "==2.6", found the number 2.7'],
    "requires: {package: ../x}": ["3:25: expected a package such as triton, or a list of them, found the text '../x'"],
    "requires: {package: [triton, '']}": ["3:34: expected a package such as triton, found the text ''"],
    "requires: {package: [a b]}": ["3:26: expected a package such as triton, found the text 'a b'"],
    "compile: {mode: fast}": ["3:21: 'fast' is not one of default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs, lite"],
    "compile: {fullgraph: 1}": ["3:26: expected true or false, found the integer 1"],
    "config: {epilogue: 1}": ["3:14: the key 'epilogue' does not fit: expected a flag by its full name"],
    "expect: {raises: Index Error}": ["3:22: expected the name of an exception class, such as IndexError, or a mapping such as {type: IndexError}, found the text 'Index Error'"],
    "expect: {raises: 7}": ["3:22: expected the name of an exception class, such as IndexError, or a mapping such as {type: IndexError}, found the integer 7"],
    "expect: {raises: {match: x}}": ["3:22: 'type' is missing | such as type: IndexError"],
    "expect: {graphs: 1.0}": ["3:22: expected an integer, found the number 1.0"],
    "tolerance: {rtol: .nan}": ["3:23: .nan has no place here: expected a finite number"],
    "tolerance: {atol: -1}": ["3:23: -1 is too small: expected 0 or more"],
    "tolerance: {rtol: 1e-3x}": ["3:23: expected a number, found the text '1e-3x'"],
    "tolerance: {foo: 1}": ["3:17: unknown key 'foo' | the keys here: rtol, atol, reason, exact"],
    "tolerance: {flaot32: {}}": ["3:17: unknown key 'flaot32' | did you mean 'float32'?"],
    "tolerance: {float16: {rtl: 1}}": ["3:27: unknown key 'rtl' | did you mean 'rtol'?"],
    "ignore: {valeu: x}": ["3:14: unknown key 'valeu' | did you mean 'value'?"],
    "ignore: {value: ''}": ["3:21: this text is empty"],
    "ignore: {value: }": ["3:21: expected a reason in words, found nothing (null)"],
    "timeout: 60 sec": ["3:14: expected a time above 0 with its unit, such as 60s or 2m, found the text '60 sec'"],
    "timeout: 0": ["3:14: 0 is too small"],
    "timeout: .inf": ["3:14: .inf has no place here: expected a finite number"],
    "memory: 2GB": ["3:13: expected a number and a unit, such as 2GiB or 512MiB, found the text '2GB'"],
    "links: [x]": ["3:13: expected a link, such as https://"],
    "known: [{stage: inducter, reason: x}]": ["3:21: 'inducter' is not one of dynamo, aot, decomposition, inductor, backend | did you mean 'inductor'?"],
    "known: [{stage: inductor}]": ["3:13: issue: or reason: is missing"],
    "known: [{isue: x}]": ["3:14: unknown key 'isue' | did you mean 'issue'?"],
    "known: [{oracle: value, reason: x}]": ["3:22: expected a list, found the text 'value' | such as [value]"],
    "known: [{oracle: [valu], reason: x}]": ["3:23: 'valu' is not known here | did you mean 'value'?"],
    "known: [{oracle: [banana], reason: x}]": ["3:23: 'banana' is not known here | there are compile-error, runtime-error"],
    "known: [{torch: 2.6, reason: x}]": ['3:21: expected a range of torch versions in quotes, such as "<=2.6", ">=2.7,<2.9" or "==2.6", found the number 2.6'],
    "known: [{torch: '2.6', reason: x}]": ["3:21: expected a range of torch versions"],
    "known: [{why: nois, reason: x}]": ["3:19: 'nois' is not one of bug, by-design, noise | did you mean 'noise'?"],
    "known: [{dtype: float31, reason: x}]": ["3:21: expected a dtype such as float32"],
    "known: [{issue: '151198'}]": ["3:21: expected a link, such as https://github.com/pytorch/pytorch/issues/151198, found the text '151198'"],
}  # fmt: skip


@pytest.mark.parametrize("lines", WRONG_CASES)
def test_wrong_cases(lines: str) -> None:
    messages = case_errors(lines)
    expected = WRONG_CASES[lines]
    assert len(messages) == len(expected), messages
    for line, start in zip(messages, expected, strict=True):
        assert line.startswith(start)


WRONG_SUITES = {
    "specs: []": ["1:1: 'suite' is missing | such as suite: regressions"],
    "suite: x\nspec: []": ["2:1: unknown key 'spec' | did you mean 'specs'?"],
    "suite: x\nspecs: a": ["2:8: expected a list, found the text 'a' | such as [../specs/regressions/*.spec.yaml]"],
    "suite: x\nbackends: [inductor, {name: x}]": ["2:22: 'backend' is missing | such as backend: inductor"],
    "suite: x\nbackends: [inductor, inductor]": ["2:22: 'inductor' is listed twice"],
    "suite: x\nspecs: [&a z, *a]": ["2:12: 'z' is listed twice"],
    "suite: x\nmanual: on": [
        "2:9: expected true or false, found the text 'on' | in YAML 1.2 on is text: write true or false"
    ],
    "suite: x\ncases: [{name: a, chian: []}]": ["2:19: unknown key 'chian' | did you mean 'chain'?"],
}


@pytest.mark.parametrize("text", WRONG_SUITES)
def test_wrong_suites(text: str) -> None:
    assert errors(text, "suite") == WRONG_SUITES[text]


def test_errors_are_sorted_and_there_once() -> None:
    text = "cases:\n  - &c {name: a, grad: 7, dtypes: [x]}\n  - *c\n  - {name: B, grad: 7}\n"
    messages = errors(text)
    assert [line.split(": ")[0] for line in messages] == ["2:24", "2:36", "4:12", "4:21"]


def test_errors_have_an_end() -> None:
    start = time.process_time()
    assert len(errors("cases:\n" + "".join(f"  - {{nam{n}: 5, grad: 7}}\n" for n in range(5000)))) <= 500
    assert len(errors("cases: []\n" + "".join(f"case{n}: 5\n" for n in range(5000)))) <= 500
    assert time.process_time() - start < 20


def test_a_long_mixed_list_is_checked_fast() -> None:
    items = ", ".join(f"{n}, a{n}" for n in range(20_000))
    start = time.process_time()
    assert case_errors(f"params: {{n: [{items}, null]}}") == []
    assert time.process_time() - start < 20


def test_deep_blocks_do_not_exhaust_the_stack() -> None:
    deep = "F.relu"
    for _ in range(17):
        deep = f"{{if: $x, do: [{deep}]}}"
    assert case_errors(f"chain: [{deep}]") == []
    assert "'relu' is no operator" in case_errors(f"chain: [{deep.replace('F.relu', 'relu')}]")[0]


def test_the_line_is_read_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.spec.yaml"
    path.write_text("cases: 5\n")
    node, _ = load(path)
    assert node is not None
    (diagnostic,) = validate(node, "spec")[0]
    assert diagnostic.text == "cases: 5" and "cases: 5" in diagnostic.render()


def test_another_kind_is_refused() -> None:
    node, _ = load("x.yaml", "{}")
    assert node is not None
    with pytest.raises(ValueError, match="spec, suite, ledger, project"):
        validate(node, "spce")


# --- what fits -----------------------------------------------------------------------------------

FINE = """\
defaults: {devices: [cpu, "cuda:1"], tags: [x], grad: [off, {cotangent: sum, order: 2}, {cotangent: $x}, {cotangent: [$x, null]}]}
cases:
  - name: everything
    doc: ""
    tags: [regression]
    links: ["https://example.org/1"]
    params: {n: [1, true, a, null, 1.5, [1, [b]]]}
    zip: {k: [1, 1], l: [[2], 3]}
    exclude: [{n: 1}]
    inputs:
      a: ["${n}", 3]
      b: {shape: [], dtype: torch.int64, init: {randint: [0, "${n}"]}, layout: [Tensor.t], requires_grad: true, hidden: true}
      c: {values: [[1, .nan], [-0.0, true]], tile: 3, shape: [6]}
      d: {view_of: b, layout: [{Tensor.view: [$_, -1]}], requires_grad: after_layout}
      e: {list: [[2], {python: 3}]}
      f: {python: {any: [thing, null]}}
      g: {shape: [1], device: meta, init: {full: true}}
    state: {s: {shape: [2], init: uniform}}
    chain:
      - F.relu
      - torch.add: {"*": [$_, $b], alpha: 2}
        out: [x, _]
      - nn.Linear:
        call: [$x]
        id: first
        train: false
        state: {weight: {init: {full: 1}}, "layers.0.bias": {values: [1, 2.0]}}
        out: self.s
      - with: [torch.no_grad, {torch.autocast: {device_type: cpu}}]
        chain: [torch.special.erf]
      - if: $x
        do: [aten.add.Tensor]
        else: []
      - custom.mine.op: {$fn: {args: [t], chain: [torch.neg]}}
    return: {a: $x, b: [$x, {c: $self.s}]}
    calls: [{}, {params: {n: 2}, inputs: {a: [1]}}]
    dtypes: [float32, torch.bfloat16, float8_e4m3fn]
    devices: [cpu]
    param_dtype: float32
    train: [true, false]
    dynamic: [true, false, null]
    autocast: [null, torch.bfloat16]
    threads: [1, null]
    seed: -1
    requires: {torch: ">=2.7, <2.9", device: cuda, package: [triton]}
    compile: {fullgraph: true, mode: max-autotune, options: {max_autotune: true}, timeout: 500ms}
    config: {torch._inductor.config.triton.cudagraphs: true}
    expect: {raises: {type: torch.linalg.LinAlgError, match: x}, graphs: 0, graph_breaks: 0, recompiles: 1}
    tolerance: {rtol: 1e-3, atol: 0, reason: because, float16: {rtol: 1}, exact: false, gradients: {atol: 1}, "output[0]['a'].b": {rtol: 1}}
    strides: exact
    twin: [split]
    ignore: {value: random, sign-of-zero: irrelevant}
    timeout: 1.5m
    memory: 512 MiB
    known:
      - {stage: inductor, oracle: [value, grad], error: x, torch: "==2.6", backend: inductor, device: [cuda], dtype: float16,
         params: {n: 1}, platform: linux, threads: [1, 2], reason: x, why: by-design, sometimes: true, review: 2027-01-01}
  - {name: short, module: {file: m.py, name: M, args: {a: 1}}, timeout: 90, memory: 1000000}
"""


def test_every_key_is_taken() -> None:
    assert errors(FINE) == []
    suite = 'suite: x\nbackends: [eager, {name: mine, backend: "a.b:c", dynamic: null, fullgraph: true, mode: lite, options: {}, config: {}}]\n'
    assert (
        errors(
            suite + 'specs: ["*.yaml"]\nselect: tag:x\ndevices: [cpu]\ndtypes: [int8]\nmanual: true\ndoc: d\n' + FINE,
            "suite",
        )
        == []
    )


def test_the_example_above_holds_every_key_of_a_case() -> None:
    node, _ = load("x.yaml", FINE)
    assert node is not None
    data: dict[str, Any] = node.plain()  # type: ignore[assignment]
    example_keys = set(data["defaults"]).union(*data["cases"])
    assert example_keys == set(DEFINITIONS["case"]["properties"])


@pytest.mark.skipif(not DRAFTS, reason="the corpus is not beside this repository")
@pytest.mark.parametrize("path", DRAFTS, ids=lambda path: path.name)
def test_every_draft_fits(path: Path) -> None:
    node, diagnostics = load(path)
    assert node is not None and not diagnostics
    assert [d.render() for d in validate(node, "spec")[0]] == []


def test_every_example_of_the_format_fits() -> None:
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("format.md", "format-reference.md")]
    blocks = re.findall(r"```yaml\n(.*?)```", "".join(pages), re.DOTALL)
    kinds = set()
    for block in blocks:
        if block.startswith("# refused_"):
            continue
        node, _ = load("x.yaml", block)
        assert node is not None
        data = node.plain()
        assert isinstance(data, dict)
        kind = "suite" if "suite" in data else "spec" if "cases" in data else "ledger"
        kinds.add(kind)
        assert errors(block, kind) == [], block
    assert kinds == {*KINDS}


# --- the schemas themselves --------------------------------------------------------------------------


def subschemas(schema: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below ``properties``, ``patternProperties`` and ``items``, with its path; references are not followed."""
    if not isinstance(schema, dict):
        return
    yield where, schema
    for group in ("properties", "patternProperties", "definitions"):
        for name, part in schema.get(group, {}).items():
            yield from subschemas(part, f"{where}/{name}")
    for key in ("items", "additionalProperties", "propertyNames", "then", "else"):
        if isinstance(schema.get(key), dict):
            yield from subschemas(schema[key], f"{where}/{key}")


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_draft_07(name: str) -> None:
    from jsonschema import Draft7Validator

    raw = json.loads(schema_path(name).read_text(encoding="utf-8"))
    assert raw["$schema"] == "http://json-schema.org/draft-07/schema#"
    Draft7Validator.check_schema(raw)
    whole = json.loads(schema_text(name))
    Draft7Validator.check_schema(whole)
    assert whole == load_schema(name)
    assert '"definitions.schema.json' not in schema_text(name)


@pytest.mark.parametrize("name", NAMES)
def test_references_lead_somewhere(name: str) -> None:
    text = schema_path(name).read_text(encoding="utf-8")
    references = re.findall(r'"\$ref": "([^"]*)"', text)
    assert references
    for reference in references:
        file, _, target = reference.rpartition("#/definitions/")
        assert target in DEFINITIONS
        assert file == ("" if name == "definitions" else "definitions.schema.json")


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_described_and_closed(name: str) -> None:
    schema = load_schema(name)
    for where, part in subschemas(schema):
        target = DEFINITIONS[part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        if where.rpartition("/")[2] not in ("then", "else"):
            assert target.get("description"), f"{name}{where} has no description"
            assert "additionalProperties" in part or "properties" not in part, f"{name}{where} is open"
        assert len(target.get("enumDescriptions", target.get("enum", []))) == len(target.get("enum", [])), where
        if "$ref" in part:
            assert set(part) == {"$ref"}, f"{name}{where}: what stands beside $ref is ignored"


def test_examples_of_the_schemas_fit() -> None:
    from jsonschema import Draft7Validator

    for _, part in subschemas(load_schema("definitions")):
        for example in part.get("examples", []):
            if part.get("description", "").startswith("The values themselves"):
                continue  # .nan cannot be written in JSON
            Draft7Validator({**part, "definitions": DEFINITIONS}).validate(example)


def fields(cls: type, *without: str, **renamed: str) -> set[str]:
    names = {field.name for field in dataclasses.fields(cls)}
    assert set(without) | set(renamed) <= names
    return {renamed.get(name, name) for name in names if name not in without}


def keys(name: str) -> set[str]:
    return set(DEFINITIONS[name]["properties"])


BOTH_SPELLINGS = {*model.DTYPES, *(f"torch.{name}" for name in model.DTYPES)}


def test_schemas_and_dataclasses_agree() -> None:
    assert keys("case") == fields(model.Case, "file", "span", "axes", "kernels", "placed", result="return")
    assert keys("defaults") == keys("case") - {"name"}
    assert keys("input") == fields(
        model.Input,
        "name",
        "kind",
        "span",
        "init_args",
        "grad_after_layout",
        "grad_param",
        items="list",
        keys="dict",
        stored="file",
    )
    assert keys("knownEntry") == fields(model.Known, "span")
    assert keys("case.expect") == fields(model.Expect)
    assert set(DEFINITIONS["case.expect"]["properties"]["raises"]["properties"]) == fields(model.Raises)
    assert keys("case.compile") == fields(model.Compile)
    assert keys("case.requires") == fields(model.Requires)
    kernel = fields(model.Kernel, "name", "span", "inputs", "reference_function", result="return")
    assert keys("kernel") == kernel
    assert keys("kernelOutput") == fields(model.Output, "name", "span")
    assert keys("case.module") == fields(model.PythonModule, "span")
    call = fields(model.Call, "span", changes="set", hooks="hook", contexts="with")
    assert set(DEFINITIONS["case.calls"]["items"]["properties"]) == call
    assert keys("gradMode") == fields(model.Grad, "mode", "given")
    assert keys("backend") == fields(model.Backend, "span")
    assert (
        keys("case.tolerance")
        == fields(model.Tolerance, "by_dtype", "bound", by_place="gradients") | {"rtol", "atol"} | BOTH_SPELLINGS
    )
    step = fields(model.Step, "operator", "arguments", "span", "unpack")
    blocks = fields(model.With, "span", contexts="with") | fields(model.If, "span", condition="if", otherwise="else")
    assert keys("step") == step | blocks
    suite = set(load_schema("suite")["properties"])
    assert suite == fields(model.Suite, "file", "select_span", "has_defaults", name="suite") | {
        "specs",
        "defaults",
        "kernels",
    }


def test_vocabularies_agree() -> None:
    assert set(DEFINITIONS["dtype"]["enum"]) == BOTH_SPELLINGS
    assert tuple(DEFINITIONS["device"]["x-devices"]) == model.DEVICES
    assert keys("case.ignore") == set(DEFINITIONS["oracle"]["enum"])


# --- loading -----------------------------------------------------------------------------------------


def test_unknown_schema() -> None:
    with pytest.raises(ValueError, match="spec, suite, ledger, definitions"):
        load_schema("../pyproject")


def test_jsonschema_is_imported_only_when_something_is_checked() -> None:
    code = "import sys, runner.cases.yaml.schema, runner.cases.yaml.reader; print('jsonschema' in sys.modules, 'torch' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False", "False"]


@pytest.mark.slow
def test_2000_cases_are_checked_quickly() -> None:
    body = FINE[FINE.index("  - name: everything") : FINE.index("  - {name: short")]
    text = "cases:\n" + body.replace("cuda:1", "cuda") * 400  # as many nodes as 2,000 common cases have
    node, diagnostics = load("x.yaml", text, Limits(file_bytes=1 << 30, nodes=1 << 30))
    assert node is not None and not diagnostics
    start = time.process_time()
    assert validate(node, "spec", split_lines(text)) == ([], set())
    assert time.process_time() - start < 5  # under 1 s on an idle core
