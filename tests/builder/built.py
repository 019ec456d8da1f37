"""Cases in, Python out: what the tests of this folder share."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from spec_files import Files, short

from runner.builder.operators import inventory
from runner.builder.source import Source, build
from runner.cases.limits import Limits
from runner.cases.operator_names import CHECKS
from runner.cases.yaml.values import split_lines


class Built(Files):
    """A folder of cases that are written out."""

    def sources(self, keys: str, limits: Limits | None = None) -> list[Source]:
        """Every variant of a case that reads without a problem."""
        variants = self.variants(keys)
        lines = split_lines((self.folder / "a.spec.yaml").read_text(encoding="utf-8"))
        return [build(variant, lines, limits) for variant in variants]

    def problems(self, keys: str, limits: Limits | None = None) -> list[str]:
        """What writing the case finds, as ``line:column: message | hint``, whichever variant says it."""
        texts = [
            short(d).removeprefix("a.spec.yaml:") for source in self.sources(keys, limits) for d in source.diagnostics
        ]
        return list(dict.fromkeys(texts))

    def source(self, keys: str) -> str:
        """The text of the first variant, which must be without a problem."""
        source = self.sources(keys)[0]
        assert [short(d) for d in source.diagnostics] == []
        compile(source.text, "case.py", "exec")
        return source.text

    def part(self, keys: str, function: str = "forward") -> list[str]:
        """The lines of a function's body, without the common indentation."""
        text = self.source(keys)
        (node,) = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == function)
        lines = text.split("\n")[node.lineno : node.end_lineno]
        indent = len(lines[0]) - len(lines[0].lstrip())
        return [line[indent:] for line in lines]


# --- what may stand in a source -----------------------------------------------------------------

IMPORTS = {
    "import math", "import torch", "import torch.nn.functional as F", "from torch import nn", "import numpy", "import torch.nn.utils.rnn", "import torch.distributions",
    "import torch.nn.attention.flex_attention", "import torch.signal.windows", "import torch.utils.checkpoint", "import torch.autograd.functional",
}  # fmt: skip
BUILTINS = {
    "int", "float", "bool", "len", "tuple", "list", "print", "abs", "min", "max", "sum", "range", "round", "isinstance", "complex", "slice", "zip",
    "enumerate", "dict", "str",
}  # fmt: skip
NEVER = {
    "eval",
    "exec",
    "open",
    "compile",
    "getattr",
    "setattr",
    "globals",
    "locals",
    "vars",
    "os",
    "sys",
    "subprocess",
    "breakpoint",
    "input",
    "type",
    "object",
}
MODEL_METHODS = {"register_buffer", "train", "eval", "to", "requires_grad_"}


def audit(text: str) -> None:
    """Asserts that a source holds nothing but imports, a model, its inputs, and calls of operators."""
    tree = ast.parse(text)
    assert isinstance(tree.body[0], ast.Expr) and isinstance(tree.body[0].value, ast.Constant)  # the docstring
    for node in tree.body[1:]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert ast.unparse(node) in IMPORTS
        elif isinstance(node, ast.ClassDef):
            assert node.name == "Model" and [f.name for f in node.body if isinstance(f, ast.FunctionDef)] in (
                ["forward"],
                ["__init__", "forward"],
            )
        elif isinstance(node, ast.FunctionDef):
            assert node.name == "make_model" or node.name.startswith(("make_inputs", "make_cotangents"))
        else:
            assert isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("CALLS", "COTANGENTS")
    for node in ast.walk(tree):
        assert not isinstance(
            node,
            ast.Lambda
            | ast.Global
            | ast.Nonlocal
            | ast.Try
            | ast.While
            | ast.For
            | ast.Raise
            | ast.JoinedStr
            | ast.NamedExpr
            | ast.Await,
        )
        assert not isinstance(node, ast.Import | ast.ImportFrom) or node in tree.body
        if isinstance(node, ast.Name):
            assert node.id not in NEVER and not node.id.startswith("__") and node.id.isascii()
        if isinstance(node, ast.Attribute):
            assert node.attr.isascii() and (not node.attr.startswith("__") or node.attr in ("__init__", "__index__"))
        if isinstance(node, ast.Call):
            assert _known(node.func), ast.unparse(node)


def _known(function: ast.expr) -> bool:
    """Whether a called expression is an operator, a submodule, a function of the case or a method of tensors."""
    names = ast.unparse(function)
    root = names.split(".")[0]
    if names == "super().__init__" or isinstance(function, ast.Name):
        return True  # audit looks at the name itself
    if root in ("torch", "nn", "F", "numpy") and names.replace(".", "").replace("_", "").isalnum():
        custom = names.startswith("torch.ops.") and names.split(".")[2] not in ("aten", "prims")
        return custom or set(names.split(".")[1:]) <= _operator_words()
    assert isinstance(function, ast.Attribute | ast.Subscript | ast.Call), names
    if isinstance(function, ast.Attribute):
        return (
            function.attr in inventory()["Tensor"]
            or function.attr in MODEL_METHODS
            or root == "self"
            or function.attr in ("__index__", "sample", "name")
        )
    return True


@cache
def _operator_words() -> frozenset[str]:
    words = {"ops", "aten", "prims", "nn", "Module", "Parameter", "functional", "utils", "rnn", "special", "linalg", "fft", "sparse", "signal", "windows",
             "nested", "masked", "func", "distributions", "attention", "flex_attention", "autograd", "checkpoint", "_dynamo", "graph_break", "grad",
             "jacobian", "hessian", "vjp", "jvp", "_higher_order_ops", "scan", "associative_scan", *(name.removeprefix("torch.") for name in CHECKS), "autocast", "no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "device", "amp", "default"}  # fmt: skip
    lists = inventory()
    return (
        frozenset(words)
        | {w for name in lists for w in lists[name]}
        | {o for space in ("aten", "prims") for overloads in lists[space].values() for o in overloads}
    )


def strings(text: str) -> Iterator[str]:
    """Every text literal of a source."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def folder(path: str) -> Path:
    """A folder beside the repository's own, such as the corpus."""
    return Path(__file__).resolve().parents[3] / path
