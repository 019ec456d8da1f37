"""What is written is read back as the same case."""

from __future__ import annotations

import dataclasses
import os
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from spec_files import Files, short

from runner.builder.source import build
from runner.cases.expand import expand
from runner.cases.model import Backend, Case, Raises, Suite, Unclaimed, Variant
from runner.cases.serialize import case_text, emit, resolve_axes
from runner.cases.suites import Reader
from runner.cases.yaml.reader import load as load_tree
from runner.diagnostics import Span
from runner.session.collect import load

REPOSITORY = Path(__file__).resolve().parents[2]
SHIPPED = sorted((REPOSITORY / "specs").rglob("*.spec.yaml")) + sorted((REPOSITORY / "runner").rglob("*.spec.yaml"))
NOWHERE = Span("", 0, 0)

EVERYTHING = """
    doc: "Says \\"no\\": one, two."
    tags: [a, "1"]
    links: ["https://example.org/1"]
    params: {n: [2, 5], k: [3]}
    exclude: [{n: 5, k: 3}]
    inputs:
      x: ["${n}", 4]
      y: {values: [[1.0, .nan], [-.inf, -0.0]], shape: [4], tile: 6, dtype: float64}
      i: {shape: [3], dtype: int64, init: {randint: [0, "${n}"]}}
      u: {shape: [4], init: uniform}
      nm: {shape: [4], init: {normal: [0.5, "${k}"]}}
      z: {values: [1+2j, -0.0-.5j, nan-infj, 3]}
      f: {shape: [2, 2], init: {full: -1.5}, requires_grad: true}
      v: {view_of: f, layout: [{Tensor.transpose: [$_, 0, 1]}], hidden: true}
      g: {shape: [4], hidden: true}
      leaf: {shape: [4], layout: [Tensor.half], requires_grad: after_layout}
      several: {list: [[2], {shape: [3], init: ones}]}
      table: {dict: {a: [2], "b c": {list: [{dict: {d: [3]}}]}}}
      flag: {python: {a: [1, null], b: "no"}}
    state:
      c: {shape: [2], init: zeros}
      count: {python: 0}
    dtypes: [float32, bfloat16]
    devices: [cpu, meta]
    param_dtype: float64
    seed: 0
    dynamic: [null, true]
    grad: [off, {cotangent: sum, order: 2}, backward, {cotangent: $g}, {cotangent: [null, $g], order: 2}]
    autocast: [null, bfloat16]
    threads: 1
    train: true
    chain:
      - F.relu
      - torch.add: {"*": [$_, 1e-5], alpha: 2}
      - nn.Linear: {in_features: 4, out_features: "${k + 1}", bias: false}
        call: $x
        id: first
        train: false
        out: h
      - self.first: $h
      - torch.chunk: [$_, 2, 1]
        out: [a, _]
      - nn.LSTM: [2, 2]
        out: [only]
        state: {weight_hh_l0: {values: [[1.0, "${k}"]]}, bias_hh_l0: {init: ones}, weight_ih_l0: {init: {uniform: [0, "${k}"]}}, "a.0.b": {init: {full: -1}}}
      - operator.getitem: [$x, "[..., None, $i, 1:${n}, ::2, [0, 1], true]"]
        out: part
      - operator.setitem: [$a, {$text: "$0"}, 1]
      - Tensor.type: [$x, {$text: torch.FloatTensor}]
      - torch.einsum: ["i,j->ij", $y, $y]
      - torch.cat: [[$a, $only]]
      - torch.cat: [[[$a, $only]]]
      - builtin.print: [null]
      - torch.mul: [$z, -2.5j]
      - torch.mul: [$_, {$tensor: [1, 2], dtype: torch.int64}]
      - torch.full: {size: [2], fill_value: .inf, dtype: $dtype, device: $device}
      - torch.func.grad: [{$fn: {args: [t], chain: [{torch.mul: [$t, "${n}"]}, torch.sum], return: $_}}]
      - with: [torch.no_grad, {torch.autocast: {device_type: cpu, dtype: torch.bfloat16}}]
        chain: [F.relu]
      - if: "${x.shape[0] > 1}"
        do: [torch.neg]
        else: []
      - if: $flag
        do: [torch.neg]
        else: [torch.abs]
      - operator.iadd: [$self.count, 1]
        out: self.count
      - torch.clone: []
    return: {z: $_, parts: [$part, "$several[0]", $self.c, "${u.numel() * 2}", "$f.grad", {}], text: {$text: "$5"}}
    calls: [{}, {params: {n: 7}}, {inputs: {u: {shape: [4], init: eye}}},
            {step: {torch.optim.SGD: {lr: 0.5}}, load: assign, set: {self.count: 2, self.lin.p: {$text: "$5"}, torch.set_default_dtype: torch.float64}, train: false,
             hook: {self.lin: null, self: {$fn: {args: [t], chain: [torch.sin]}}},
             with: [torch.no_grad, {torch.autocast: {device_type: $device}}], thread: true}]
    requires: {torch: ">=2.6", device: [cpu], package: [numpy]}
    compile: {fullgraph: true, mode: max-autotune, options: {max_fusion_size: 3}, timeout: 1m}
    config: {torch._inductor.config.epilogue_fusion: false}
    expect: {raises: {type: IndexError, match: "of \\"x\\""}, graphs: 3, graph_breaks: 0, recompiles: 1, kernels: 2, vectorized: 1, delegated: all, constant: true}
    tolerance: {rtol: 1e-3, float64: {atol: 0.0}, exact: true, values: deterministic, gradients: {rtol: 0.5}, "output['z']": {rtol: 1, atol: 0}, reason: a test}
    strides: exact
    twin: [mask, split]
    ignore: {stride: not of interest}
    timeout: 90s
    memory: 2GiB
    known:
      - {stage: inductor, oracle: [value, stride], error: a|b, torch: "<=2.6", backend: [inductor], device: [cpu], dtype: [float32],
         platform: [linux], threads: [1, 2], params: {n: 2}, issue: "https://example.org/2", why: noise, sometimes: true, review: "2999-01-01"}
      - {reason: none}
    """


def bare(value: Any) -> Any:
    """The same without places in files."""
    if isinstance(value, Span):
        return NOWHERE
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = {f.name: bare(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return type(value)(**pairs)
    if isinstance(value, float | complex):
        return repr(value)  # NaN is itself here
    if isinstance(value, tuple):
        return tuple(map(bare, value))
    return {key: bare(item) for key, item in value.items()} if isinstance(value, dict) else value


def read(path: Path) -> Case:
    reader = Reader()
    (suite,) = reader.suites([path])
    assert [short(d) for d in reader.problems if d.severity == "error"] == [], path.read_text()
    (case,) = suite.cases
    return case


def body(variant: Variant) -> str:
    """The source without its docstring, which names the file and the axes."""
    return build(variant).text.partition('"""\n\nimport')[2] or build(variant).text


def compared(case: Case) -> Case:
    """What two readings of a case must have in common: not its file, and no axis that only says its default."""
    axes = {name for name, values in case.params.items() if len(values) > 1}
    axes |= {axis for axis in case.axes if axis not in case.params and len(getattr(case, axis)) > 1}
    return bare(dataclasses.replace(case, file="", axes=tuple(a for a in case.axes if a in axes), doc=case.doc.strip()))


def test_every_part_of_the_model_is_written(files: Files) -> None:
    # Only a warning: torch.compile refuses mode beside options.
    case = read(files.write("a.spec.yaml", files.case_text(EVERYTHING)))
    copy = files.folder / "b.spec.yaml"
    copy.write_text(case_text(case), encoding="utf-8")
    result = read(copy)
    assert compared(result) == compared(case)
    assert case_text(result) == case_text(case)


def corpus() -> list[Path]:
    shared = REPOSITORY.parent / "shared" / "corpus" / "yaml"
    return sorted(shared.glob("*.spec.yaml"))


@pytest.mark.parametrize("path", [*SHIPPED, *corpus()], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_shipped_cases_survive(path: Path, tmp_path: Path) -> None:
    cases = Reader().spec(path, None)
    assert cases
    for case in cases:
        copy = _beside(case, tmp_path)
        copy.write_text(case_text(case, tmp_path), encoding="utf-8")
        result = read(copy)
        without = dataclasses.replace(result, module=case.module)  # it names the copied file
        assert [Path(kernel.file).parent for kernel in result.kernels] == [tmp_path] * len(case.kernels)
        assert compared(without) == compared(case), copy.read_text()


@pytest.mark.parametrize("path", [*SHIPPED, *corpus()], ids=lambda path: f"{path.parent.name}/{path.name}")
@pytest.mark.parametrize("every_variant", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["ends", "each"])
@pytest.mark.slow
def test_pinned_variants_have_the_same_source(path: Path, every_variant: bool, tmp_path: Path) -> None:
    """``ends``: the first and the last variant of each case. They differ in every axis that has several values."""
    variants = load([str(path)], allow_python=True).variants
    if not every_variant:
        by_case = [[*group] for _, group in groupby(variants, key=lambda variant: id(variant.case))]
        variants = tuple(
            variant for group in by_case for variant in {id(end): end for end in (group[0], group[-1])}.values()
        )
    for variant in variants:
        copy = _beside(variant.case, tmp_path)
        case = resolve_axes(variant)
        copy.write_text(case_text(variant, tmp_path), encoding="utf-8")
        result = read(copy)
        backend = Backend(variant.backend.backend, variant.backend.backend)
        (single,) = expand([Suite("s", str(copy), cases=(result,), backends=(backend,))])
        assert body(single) == body(variant), copy.read_text()
        assert (single.dtype, single.device, single.train, single.grad, single.autocast, single.threads) == (
            variant.dtype, variant.device, variant.train, variant.grad, variant.autocast, variant.threads,
        )  # fmt: skip
        assert not case.known and all(len(values) == 1 for values in case.params.values())


def _beside(case: Case, folder: Path) -> Path:
    """Where to write a case; the Python that it brings is put there."""
    if case.module is not None:
        source = Path(case.module.file)
        (folder / os.path.basename(source)).write_text(source.read_text())
        object.__setattr__(case.module, "file", str(folder / source.name))
    for kernel in case.kernels:
        source = Path(kernel.file)
        (folder / source.name).write_text(source.read_text())
        object.__setattr__(kernel, "file", str(folder / source.name))
    return folder / "w.spec.yaml"


def test_a_class_alone_is_written_as_its_name(files: Files) -> None:
    for raises in ("IndexError", "{type: IndexError}"):
        case = read(files.write("a.spec.yaml", files.case_text(f"expect: {{raises: {raises}}}")))
        assert "expect: {raises: IndexError}" in case_text(case) and case.expect.raises == Raises("IndexError")


def test_a_memory_format_is_written_as_its_name(files: Files) -> None:
    steps = "[{Tensor.contiguous: {'*': [$_], memory_format: torch.channels_last_3d}}]"
    for layout in ("channels_last_3d", steps):
        case = read(files.write("a.spec.yaml", files.case_text(f"inputs: {{x: {{shape: [2], layout: {layout}}}}}")))
        assert "layout: channels_last_3d}" in case_text(case)


def test_params_are_put_in(files: Files) -> None:
    (variant,) = files.variants("""
        params: {n: [4], scale: [0.5]}
        inputs: {x: ["${n}", "${n * 2}"]}
        chain:
          - operator.getitem: [$_, "[:${n - 1}, ${n}]"]
          - torch.mul: [$_, $scale]
          - Tensor.expand: [$_, "${n + x.shape[0]}", -1]
        calls: [{params: {n: 6}}]
        """)
    case = resolve_axes(variant)
    assert not case.params
    data = case_text(case)
    assert "inputs: {x: [4, 8]}" in data and '"[:3, 4]"' in data and "0.5]" in data, data
    assert "${4 + x.shape[0]}" in data and "{x: [6, 12]}" in data, data


@pytest.mark.parametrize("value", ["true", '"two"', "null", ".inf"])
def test_params_that_are_no_plain_numbers_stay(files: Files, value: str) -> None:
    (variant,) = files.variants(f"params: {{n: [{value}]}}\nchain: [{{torch.mul: [$_, $n]}}]")
    assert list(resolve_axes(variant).params) == ["n"]


def test_what_a_backend_sets_goes_into_the_case(files: Files) -> None:
    (variant,) = files.variants("compile: {options: {max_fusion_size: 3}}")
    flag = "torch._inductor.config.epilogue_fusion"
    backend = Backend(
        "mine",
        "inductor",
        dynamic=True,
        fullgraph=True,
        mode="max-autotune",
        options={"debug": False},
        config={flag: False},
    )
    case = resolve_axes(dataclasses.replace(variant, backend=backend))
    assert case.dynamic == (True,) and case.config == {flag: False}
    assert (case.compile.fullgraph, case.compile.mode) == (True, "max-autotune")
    assert case.compile.options == {"max_fusion_size": 3, "debug": False}


def test_a_case_need_not_know_that_a_backend_claims_no_gradients(files: Files) -> None:
    (variant,) = files.variants("ignore: {stride: they vary}")
    for claims, ignored in (
        (Unclaimed(gradients=True), ["requires-grad", "stride"]),
        (Unclaimed(dynamic=True), ["stride"]),
    ):
        case = resolve_axes(dataclasses.replace(variant, backend=Backend("mine", "mine", unclaimed=claims)))
        assert sorted(case.ignore) == ignored and ("requires-grad" in case_text(case)) == claims.gradients


@pytest.mark.parametrize(
    "value",
    ["no", "off", "1e-3", "1:30", "~", "null", "0x1F", "1_000", "a: b", "a\nb", " a", "", "#", "é→", "\x85\u2028\x7f", "'", '"', "*", "[0]", 1e-5,
     1e16, float("inf"), -0.0, True, None, 12, ["1", 1, 1.0], {"a b": {"1": []}}, list(range(300)), [["a" * 60] * 4]],
)  # fmt: skip
def test_plain_data_survives(value: Any) -> None:
    text = emit({"key": value})
    node, problems = load_tree("x.yaml", text)
    assert not problems, text
    assert node is not None
    assert repr(node.plain()) == repr({"key": value}), text


def test_it_reads_like_a_persons_file(files: Files) -> None:
    case = files.case("""
        inputs: {x: [2, 4]}
        grad: off
        chain:
          - torch.chunk: [$_, 2, 1]
            out: [a, b]
          - torch.add: {"*": [$a, $b], alpha: 2}
          - F.relu
        """)
    assert case_text(case) == (
        "cases:\n"
        "  - name: a\n"
        "    inputs: {x: [2, 4]}\n"
        "    chain:\n"
        "      - {torch.chunk: [$_, 2, 1], out: [a, b]}\n"
        '      - torch.add: {"*": [$a, $b], alpha: 2}\n'
        "      - F.relu\n"
        "    grad: off\n"
    )


def test_a_marked_text_stays_marked(files: Files) -> None:
    """Without the mark the text of this case would be the name of an input."""
    case = files.case("inputs: {x: [2], y: [2]}\nchain: [{torch.norm: [$x, {$text: y}]}, {torch.add: [$_, $y]}]")
    text = case_text(case)
    files.write("b.spec.yaml", text)
    assert "{$text: y}" in text and case_text(files.suites("b.spec.yaml")[0].cases[0]) == text


@pytest.mark.parametrize("seconds", ["0.1", "90", "1.1m", "3e-10", "5.382586560656451e-277"])
def test_a_timeout_keeps_every_digit(files: Files, seconds: str) -> None:
    case = files.case(f"timeout: {seconds}\ncompile: {{timeout: {seconds}}}")
    files.write("b.spec.yaml", case_text(case))
    copy = files.suites("b.spec.yaml")[0].cases[0]
    assert (copy.timeout, copy.compile.timeout) == (case.timeout, case.compile.timeout)
