"""What of torch is not public stands in ``torch_private`` alone, but for a few names that are public by custom."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import runner.worker

WORKER = Path(runner.worker.__file__).parent
FILES = sorted(path for path in WORKER.rglob("*.py") if "torch_private" not in path.parts)

BY_CUSTOM = (
    "torch.utils._python_dispatch.TorchDispatchMode",  # torch documents it as the way to see every operator
    "torch.utils._pytree",  # its functions on trees; other packages and torch's own examples use them
    "torch._dynamo.config",  # names of flags, which torch's pages tell users to set. One that is missing is an
    "torch._inductor.config",  # error of the job that sets it: ``program/load.py`` looks for each
    "torch._functorch.config",
    "torch._dynamo.graph_break",  # a step that cases may have
    "torch._C",  # as a part of the names of settings and definitions, which are found by walking through it
)


def names_in(text: str) -> Iterator[str]:
    """The dotted names of torch that a file imports, uses, or holds as texts."""
    tree = ast.parse(text)
    modules = {"torch": "torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (part.name for part in node.names)
            modules |= {part.asname: part.name for part in node.names if part.asname}
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{part.name}" for part in node.names)
            modules |= {part.asname or part.name: f"{node.module}.{part.name}" for part in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            parts = []
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute):
                parts.append(inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name) and inner.id in modules:
                yield ".".join([modules[inner.id], *reversed(parts)])
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"torch[\w.:]+", node.value)
        ):
            yield node.value.replace(":", ".")


def private(text: str) -> list[str]:
    """Those of the names that are neither public nor on the list."""
    names = {name for name in names_in(text) if name.startswith("torch.") and re.search(r"\._(?!_)", name)}
    names = {name for name in names if not name.startswith("torch.ops.")}
    return sorted(name for name in names if not any(f"{name}.".startswith(f"{allowed}.") for allowed in BY_CUSTOM))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(WORKER)))
def test_no_file_outside_names_what_is_private(path: Path) -> None:
    assert private(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "import torch._inductor.metrics",
        "from torch._dynamo.utils import counters",
        "import torch\ntorch._dynamo.reset()",
        "from torch.utils import _python_dispatch as modes\nmodes._disable_current_modes()",
        "import importlib\nimportlib.import_module('torch._inductor.metrics')",
        "def f():\n    from torch.testing._internal import common_utils",
        "NAME = 'torch._dynamo.utils:counters'",
    ],
)
def test_each_way_to_name_it_is_seen(text: str) -> None:
    assert private(text)
    assert not private(
        "from torch.utils._pytree import tree_map\nimport torch\ntorch.compile\ntorch.ops.aten._softmax\nx._version"
    )
