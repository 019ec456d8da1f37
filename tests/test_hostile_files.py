"""Nothing in a file becomes code, markup or a command in what is written of it: 20 payloads at every place of every form."""

from __future__ import annotations

import ast
import dataclasses
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

import runner.templates
from runner.builder.source import build
from runner.cases.model import Variant
from runner.cases.serialize import case_text, plain, resolve_axes
from runner.cases.yaml import reader as yaml
from runner.cli.cases import describe
from runner.diagnose.repro import script
from runner.diagnostics import Diagnostic, InputError
from runner.quote import QuoteError, command_words
from runner.record.events import RunFinished, VariantFinished, VariantPlanned
from runner.report import junit
from runner.report.issue import write
from runner.report.terminal import Reporter
from runner.session.collect import load
from runner.session.plan import Planned, RunContext, planned_event, repro
from runner.session.settings import RunSettings
from runner.text import in_line, visible
from tests.handmade import environment
from tests.hostile import PAYLOADS, Shape, model_mutations, mutations, shape
from tests.report.pictures import material, wrong

MODEL = "import torch\n\n\nclass Model(torch.nn.Module):\n    def __init__(self, size):\n        super().__init__()\n\n    def forward(self, x):\n        return x\n"
KERNEL = "import triton\n\n\n@triton.jit\ndef kernel(x, y, n, BLOCK):\n    pass\n"
X: dict[str, Any] = {"inputs": {"x": [2]}, "chain": ["F.relu"]}


def case(**keys: Any) -> dict[str, Any]:
    return {"cases": [{"name": "a", **X, **keys}]}


FORMS: dict[str, dict[str, Any]] = {
    "words": case(doc="A text.", tags=["slow"], links=["https://x.org/1"], return_={}, requires={"torch": ">=2", "device": "cpu", "package": "torch"}),
    "axes": case(params={"n": [2, "t"]}, exclude=[{"n": "t"}], inputs={"x": {"shape": ["${n}", 3], "requires_grad": True}}, dtypes=["float32"], devices=["cpu"],
                 param_dtype="bfloat16", train=False, grad={"cotangent": "ones", "order": 1}, dynamic=True, threads=2, autocast="torch.bfloat16"),
    "settings": case(compile={"fullgraph": True, "mode": "default", "options": {"cpp.simdlen": 1}},
                     config={"torch._inductor.config.cpp.simdlen": 1, "torch._dynamo.config.assume_static_by_default": False}, timeout="60s", memory="1GiB"),
    "expect": case(expect={"raises": {"type": "IndexError", "match": "out"}, "graphs": 1, "graph_breaks": 0, "recompiles": 0, "kernels": 2, "vectorized": 1, "delegated": "all"},
                   tolerance={"rtol": 0.1, "atol": 0.1, "reason": "noise"}, ignore={"stride": "known"}),
    "tolerance": case(tolerance={"float32": {"rtol": 0.1}, "exact": False, "reason": "noise"}),
    "ledger": case(known=[{"torch": "<=2.6", "stage": "inductor", "oracle": ["value"], "error": "a|b", "backend": "inductor", "device": "cpu",
                           "dtype": "float32", "platform": "linux", "threads": 2, "issue": "https://x.org/1", "reason": "r", "why": "bug",
                           "review": "2027-01-01"}]),
    "inputs": {"cases": [{"name": "a", "inputs": {
        "a": {"shape": [2, 2], "dtype": "float64", "init": {"uniform": [0, 1]}, "requires_grad": True},
        "b": {"values": [1.5, 2], "tile": 4, "shape": [4]},
        "c": {"view_of": "a", "layout": [{"Tensor.transpose": ["$_", 0, 1]}]},
        "d": {"list": [[2], {"shape": [1], "init": {"randint": [0, 3]}, "dtype": "int64"}]},
        "e": {"python": [1, "text"]}, "h": {"dict": {"key": [2]}},
        "f": {"shape": [2], "init": "special", "hidden": True, "device": "cpu"}, "g": {"view_of": "f"}},
        "chain": [{"builtin.tuple": [["$a", "$b", "$c", "$d", "$e", "$g", "$h[key]"]]}]}]},
    "state": {"cases": [{"name": "a", "inputs": {"x": [2]}, "state": {"s": [2], "p": {"shape": [2], "requires_grad": True}, "q": {"python": "text"}},
                         "chain": [{"torch.add": ["$x", "$self.s"]}, {"operator.mul": ["$_", "$self.p"], "out": "self.s"},
                                   {"builtin.print": ["$self.q"]}]}]},
    "steps": {"cases": [{"name": "a", "inputs": {"x": [2, 2], "i": {"values": [0, 1]}}, "chain": [
        {"nn.Linear": [2, 2], "id": "lin", "call": ["$x"], "train": True},
        {"torch.split": ["$_", 1], "out": ["a", "b"]},
        {"torch.add": {"*": ["$a", "$b"], "alpha": 2}},
        {"Tensor.to": ["$_", "torch.float16"]},
        {"operator.getitem": ["$_", "[:, None, 0:1]"], "out": "c"},
        {"operator.iadd": ["$c", "${x.shape[0] + 1}"]},
        {"torch.add": ["$_", {"$tensor": [1, 2.5], "dtype": "torch.float32"}], "out": "_"},
        {"builtin.print": [{"$text": "$5"}, "text", {"k": "v"}, "torch.float64"]},
        {"operator.setitem": ["$x", 0, "$i"]},
        {"self.lin": "$x"}],
        "return": {"r": "$_"}}]},
    "blocks": {"cases": [{"name": "a", "inputs": {"x": [2]}, "chain": [
        {"with": [{"torch.autocast": {"device_type": "cpu", "dtype": "torch.bfloat16"}}], "chain": ["F.relu"]},
        {"if": "$x", "do": ["torch.neg"], "else": []},
        {"torch.vmap": [{"$fn": {"args": ["t"], "chain": [{"torch.sin": "$t"}, "torch.cos"], "return": "$_"}}], "out": "f"},
        {"operator.call": ["$f", "$x"]}, {"Tensor.to": ["$_", "torch.float64"]}]}]},
    "values": {"cases": [{"name": "a", "seed": 3, "inputs": {
        "x": {"shape": [2, 2], "layout": ["Tensor.t"], "requires_grad": "after_layout"}, "i": {"shape": [2], "dtype": "int64", "init": "randperm"},
        "g": {"values": [[1.5, 2.5], [3, 4]], "hidden": True}, "y": [2, 2]},
        "grad": {"cotangent": ["$g"]}, "compile": {"timeout": "9s"},
        "chain": [{"nn.Linear": [2, 2], "state": {"weight": {"values": [[1, 2.5], [0, 1]]}, "bias": {"init": {"uniform": [0, 1]}}}},
                  {"torch.index_select": ["$_", 0, "$i"], "out": "z"}, {"torch.sin": {"*": ["$y"], "out": "$y"}}],
        "return": {"r": "$z"}, "tolerance": {"gradients": {"rtol": 0.1}, "output['r']": {"atol": 0.1}, "reason": "noise"}}]},
    "calls": {"cases": [{"name": "a", "params": {"n": [2]}, "inputs": {"x": ["${n}"]}, "chain": ["F.relu"],
                         "calls": [{"params": {"n": 3}, "inputs": {"x": {"values": [1.5], "layout": ["Tensor.t"]}}}, {}]}]},
    "params": {"cases": [{"name": "a", "params": {"shape": [[2, 3]], "next": [[2, 3]], "dims": [[0, [1]]], "words": [["mean", 1.5]], "f": ["F.relu"], "d": ["float64"], "g": [True], "p": ["cpu"]},
                          "inputs": {"x": "$shape", "y": {"shape": "$next", "init": "ones"}, "v": {"values": "$shape", "dtype": "$d"}, "w": {"python": "$words"},
                                     "z": {"list": [{"shape": "$next", "requires_grad": "$g", "device": "$p", "layout": ["$f"]}]}},
                          "chain": ["$f", {"torch.add": ["$_", "$z[0]"]}, {"torch.add": ["$_", "$y"]}, {"torch.sum": ["$_", "$dims"]}, {"torch.mul": ["$_", "${shape[0] + x.shape[0]}"]},
                                    {"torch.add": ["$_", "$v"]}, {"builtin.print": ["$w", "$words[0]", "$a", "$b"]}],
                          "calls": [{"params": {"next": [2, 3]}}], "exclude": [{"shape": [5]}], "zip": {"a": [1], "b": [["text"]]},
                          "dynamic": {"x": [0], "y": {"maybe": [0], "dynamic": [1]}}}]},
    "callers": {"cases": [{"name": "a", "inputs": {"x": {"shape": [2], "requires_grad": True}}, "grad": "backward", "state": {"c": {"python": 1}, "b": [2]}, "chain": [
        {"nn.GELU": []}, {"operator.mul": ["$_", "$self.c"]}, {"operator.mul": ["$_", "$self.b"]}],
                           "calls": [{"hook": {"self.gelu": {"$fn": {"args": ["y"], "chain": [{"torch.mul": ["$y", 2]}]}}}, "step": {"torch.optim.SGD": {"lr": 0.5}}, "load": "initial", "train": True, "thread": True, "with": [{"torch.autocast": {"device_type": "cpu"}}],
                                      "set": {"self.c": ["text"], "self.gelu.approximate": "tanh", "torch.set_flush_denormal": True}}, {"train": False}]}]},
    "module": {"cases": [{"name": "a", "inputs": {"x": [2]}, "module": {"file": "model.py", "name": "Model", "args": {"size": "big"}}}]},
    "kernels": {"kernels": {"k": {"file": "kernel.py", "function": "kernel", "arguments": ["$x", "$y", "${x.numel()}"], "outputs": {"y": {"like": "x"}},
                                  "grid": ["${cdiv(x.numel(), BLOCK)}"], "constants": {"BLOCK": [16]}, "reference": [{"torch.mul": ["$x", 2]}]}},
                "cases": [{"name": "a", "inputs": {"x": [2]}, "chain": ["triton.k"]}]},
    "defaults": {"defaults": {"threads": 2, "autocast": "torch.bfloat16", "grad": {"order": 1}, "devices": ["cpu"], "dtypes": ["float32"], "tags": ["t"],
                              "links": ["https://x.org/1"], "config": {"torch._dynamo.config.assume_static_by_default": False}}, "cases": [{"name": "a", **X, "inputs": {"x": {"shape": [2], "requires_grad": True}}}]},
    "suite": {"suite": "s", "doc": "d", "select": "not tag:slow", "backends": [
        "inductor", {"name": "mine", "backend": "inductor", "dynamic": True, "mode": "default", "fullgraph": False,
                     "options": {"cpp.simdlen": 1}, "config": {"torch._dynamo.config.assume_static_by_default": False}}],
        "devices": ["cpu"], "dtypes": ["float32"], "defaults": {"timeout": "9s"}, "cases": [{"name": "a", **X}], "manual": False},
    "suite of files": {"suite": "s", "specs": ["a.spec.yaml"]},
}  # fmt: skip
del FORMS["words"]["cases"][0]["return_"]

WRITERS = {"show": describe, "repro": script}
"""What is shown ends with the source that runs."""
TEMPLATES = sorted(Path(runner.templates.__file__).parent.glob("repro*.py.j2"))
STATEMENTS = [kind.__name__ for kind in ast.stmt.__subclasses__()]
OWN = {
    f"Attribute.attr {name}"
    for name in (
        "to",
        "train",
        "requires_grad_",
        "empty",
        "uniform_",
        "normal_",
        "enable_grad",
        "full_like",
        "new_full",
        "new_empty",
    )
} | {
    "Name.id h",
    "Name.id y",
    "Name.id BLOCK",
    "Attribute.attr Parameter",
    "Attribute.attr state_dict",
    "Attribute.attr detach",
}
OWN |= {f"keyword.arg {name}" for name in ("fullgraph", "dynamic", "mode", "options", "rtol", "atol")}
"""What the builder and the script add where a value is refused or a switch is anything but false."""
MARKDOWN = MarkdownIt("commonmark").enable("table")
REFUSALS = (
    InputError,
    QuoteError,
    TypeError,
    ValueError,
    AttributeError,
    KeyError,
    IndexError,
    OSError,
    AssertionError,
)
"""What a writer may raise for a model that no reader makes."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "model.py", MODEL)
    write_text(tmp_path / "kernel.py", KERNEL)
    write_text(tmp_path / "a.spec.yaml", json.dumps(case()))
    return tmp_path


def write_text(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def as_yaml(data: Any) -> str:
    """One line of YAML, by other code than the runner's: JSON, in which all that JSON leaves as it is is escaped."""
    return visible(json.dumps(data, ensure_ascii=False))


def read(folder: Path, data: Any) -> tuple[tuple[Variant, ...], tuple[Diagnostic, ...]]:
    path = write_text(folder / ("b.suite.yaml" if "suite" in data else "b.spec.yaml"), as_yaml(data))
    try:
        result = load([str(path)], allow_python=True, backends=["inductor"] if "suite" not in data else [])
    except InputError as error:
        return (), error.diagnostics
    return result.variants, result.diagnostics


@lru_cache(maxsize=256)
def outline(text: str) -> list[str]:
    """The markup of a Markdown text: every block and span, without words and code."""
    tokens = [inner for token in MARKDOWN.parse(text) for inner in (token, *(token.children or ()))]
    return [
        f"{token.type} {token.tag} {token.attrs}"
        for token in tokens
        if token.type not in ("text", "code_inline", "text_special", "softbreak")
    ]


def report_of(variant: Variant) -> str:
    return write(material(variant))[0]


def finished(variant: Variant) -> VariantFinished:
    planned = planned_event(Planned(variant, environment()))
    values = {name: getattr(planned, name) for name in VariantPlanned.__dataclass_fields__}
    command = repro(
        Planned(variant, environment()), RunContext(RunSettings(no_known=True, backend=("b",), device=("d",)))
    )
    return VariantFinished(**values, verdict="FAIL", seconds=1.0, findings=(wrong(),), repro=command)


def terminal(event: VariantFinished) -> str:
    stream = io.StringIO()
    reporter = Reporter(stream, width=100, environ={"FORCE_COLOR": "1"})
    reporter.handle(event)
    reporter.handle(RunFinished(1, 1.0))
    return re.sub(r"\x1b\[\d+m", "", stream.getvalue())


@cache
def baseline(form: str) -> dict[str, list[Any]]:
    """What is written of the form without payload. The files lie in the current folder."""
    variants, diagnostics = read(Path(), FORMS[form])
    assert variants and not [d.render() for d in diagnostics if d.severity == "error"]
    shapes: dict[str, list[Any]] = {name: [shape(writer(v)) for v in variants] for name, writer in WRITERS.items()}
    for variant in variants:  # prose decides too which checks a script has, and a colon how it finds the backend
        wordy = dataclasses.replace(variant, case=dataclasses.replace(variant.case, doc="a @ b, numpy.random."))
        own = dataclasses.replace(variant.backend, backend="package:no name.no name")
        shapes["repro"] += [shape(script(v)) for v in (wordy, dataclasses.replace(wordy, backend=own))]
    elements = [[e.tag for e in ElementTree.fromstring(junit.render([finished(v)])).iter()] for v in variants]
    template = "".join(path.read_text(encoding="utf-8") for path in TEMPLATES)
    for pattern, instead in (
        (r"(?s)\{[%#].*?[%#]\}", ""),
        (r"(?<=metrics\.)\{\{.*?\}\}", "generated"),
        (r"(?<=assert count )\{\{.*?\}\}", "=="),
        (r"\{\{.*?\}\}", "None"),
        (r"\n\s*\n", "\n"),
    ):  # now it is Python
        template = re.sub(pattern, instead, template)
    words = shape(template).words.union(*(s.words for listed in shapes.values() for s in listed))
    words |= set[str]().union(*(shape(w(v)).words for v in read(Path(), FORMS["callers"])[0] for w in WRITERS.values()))
    anything = Shape(Counter(dict.fromkeys(STATEMENTS, 999)), words | OWN, 999)
    return {**shapes, "any": [anything], "markdown": [outline(report_of(v)) for v in variants], "junit": elements}


def wrongs(variant: Variant, base: dict[str, list[Any]], sound: bool) -> Iterator[str]:
    """What is not as it must be in what is written of a variant. Beside errors in its file it need not be written at all."""
    for name, writer in WRITERS.items():
        try:
            text = writer(variant)
        except InputError as error:
            if sound:
                yield f"{name} is refused: {error}"
            continue
        try:
            if not any(shape(text).within(expected) for expected in base["any" if not sound else name]):
                yield f"{name} does something else"
        except SyntaxError as error:
            yield f"{name} is no Python: {error}"
        if visible(text) != text:
            yield f"{name} holds control characters"
    if not sound:
        return
    text = case_text(variant)
    node, problems = yaml.load("", text)
    if problems or node is None:
        yield f"it is not YAML: {problems[0].message}"
    elif json.dumps(node.plain()["cases"][0], sort_keys=True) != json.dumps(
        {k: v for k, v in plain(resolve_axes(variant)).items() if k != "kernels"}, sort_keys=True
    ):
        yield "the YAML says something else"
    if visible(text) != text:
        yield "the YAML holds control characters"
    text = report_of(variant)
    if outline(text) not in base["markdown"] or visible(text) != text:
        yield "the report has other markup"
    event = finished(variant)
    if not command_words(event.repro):
        yield f"no command: {event.repro}"
    if visible(terminal(event)) != terminal(event):
        yield "the terminal gets control characters"
    text = junit.render([event])
    if [element.tag for element in ElementTree.fromstring(text).iter()] not in base["junit"] or visible(text) != text:
        yield "JUnit has other elements or control characters"


def refusals(diagnostics: tuple[Diagnostic, ...]) -> Iterator[str]:
    """What is not as it must be in messages."""
    for diagnostic in diagnostics:
        if diagnostic.span.line < 1 or diagnostic.span.column < 1:
            yield f"no place: {diagnostic.message}"
        text = diagnostic.render()
        if in_line(text.replace("\n", "")) != text.replace("\n", "") or len(text.splitlines()) > 4:
            yield f"a message of several lines or with control characters: {text!r}"


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("form", FORMS)
def test_nothing_in_a_file_becomes_code(form: str, payload: str, folder: Path) -> None:
    base = baseline(form)
    bad = []
    turn = list(PAYLOADS).index(payload)
    for way, data in mutations(FORMS[form], PAYLOADS[payload], turn):
        variants, diagnostics = read(folder, data)
        errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"]
        if not variants and not errors and way != (("select", False),):
            bad.append((way, "neither variants nor an error"))
        bad += [(way, message) for message in refusals(diagnostics)]
        bad += [(way, message) for variant in variants[:2] for message in wrongs(variant, base, not errors)]
    assert bad == []


@pytest.mark.parametrize("payload", ["newline", "double quotes", "backslash"])
@pytest.mark.parametrize("form", [form for form in FORMS if not form.startswith("suite of")])
def test_nothing_in_the_model_becomes_code(form: str, payload: str, folder: Path) -> None:
    """What the writers are given may be anything: they hold even where a reader has failed."""
    base = baseline(form)
    bad = []
    for way, variant in model_mutations(read(folder, FORMS[form])[0][0], PAYLOADS[payload]):
        for name, writer in WRITERS.items():
            try:
                text = writer(variant)
            except REFUSALS:
                continue
            try:
                if not shape(text).within(base["any"][0]):
                    bad.append((way, name, "something else"))
            except SyntaxError as error:
                if not build(variant).diagnostics:  # else it is not to be run
                    bad.append((way, name, str(error)))
    assert bad == []


@pytest.mark.parametrize(
    ("field", "message"), [("threads", "no integer"), ("autocast", "no Python name"), ("dtype", "no Python name")]
)
def test_a_value_without_a_place_is_refused_by_name(field: str, message: str, folder: Path) -> None:
    (variant,) = read(folder, case())[0]
    with pytest.raises(
        InputError, match=rf"b\.spec\.yaml:1:\d+: error: case 'a' cannot be written as Python: .*{message}"
    ):
        script(dataclasses.replace(variant, **{field: PAYLOADS["newline"]}))


def test_the_shape_sees_what_is_added() -> None:
    base = shape("ORDER = 1\nf(x)  # y\n")
    assert shape("ORDER = 'z'\nf(x)\n").within(base)
    for text in (
        "ORDER = 1\nimport os\nf(x)",
        "ORDER = os\nf(x)",
        "ORDER = f(x)\nf(x)",
        "ORDER = 1\nf(x.y)",
    ):
        assert not shape(text).within(base), text
    assert isinstance(base, Shape)
