"""The packages of runner stand one above the other: no import climbs, and no two modules import each other."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

LAYERS = (
    ("pytest_plugin",),
    ("cli",),
    ("hunt",),
    ("selftest", "report"),
    ("graphs", "importers"),
    ("reduce", "benchmark", "generate", "mutants"),
    ("diagnose",),
    ("ledger",),
    ("session",),
    ("verdict",),
    ("engine",),
    ("record",),
    ("builder",),
    ("cases",),
    ("templates",),
    ("worker",),
    ("interrupts",),
    ("console", "quote", "diagnostics"),
    ("text", "exit_codes", "files"),
    ("contract",),
)
"""From the top of the house to its ground. A package imports from those below it, never from one beside or above it.

``worker`` is the exception: it runs where nothing of control is installed. It imports ``contract`` alone, and nobody imports it.
"""

FLOORS = (
    ("__main__",),
    ("server",),
    ("tasks",),
    ("generate", "capture"),
    ("run",),
    ("judge",),
    ("rerun",),
    ("program", "comparison"),
    ("rounding",),
    ("operators",),
    ("tensors", "kernels"),
    ("torch_private", "processes", "planted", "guarded", "thresholds"),
)
"""The same within ``worker``, for its packages and single modules."""

DOORS = {"", "__main__", "api", "checks", "library"}
"""The package itself, its command, what extensions import, and what needs both halves in one process: they reach every layer, and no module imports them."""

RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FLOOR = {name: rank for rank, names in enumerate(FLOORS) for name in names}


def modules() -> dict[str, ast.Module]:
    """Every module of runner, by its dotted name."""
    files = {path: path.relative_to(ROOT).with_suffix("") for path in (ROOT / "runner").rglob("*.py")}
    return {
        ".".join(name.parts).removesuffix(".__init__"): ast.parse(path.read_text(encoding="utf-8"))
        for path, name in sorted(files.items())
    }


MODULES = modules()


def imports(tree: ast.Module) -> Iterator[str]:
    """The modules of runner that one imports anywhere: late, and for types alone, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] == "runner")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "runner":
            for name in node.names:
                full = f"{node.module}.{name.name}"
                yield full if full in MODULES else str(node.module)


def room(module: str) -> str:
    """The package of a module, or the module itself where it lies in none."""
    return module.split(".")[1] if "." in module else ""


def floor(module: str) -> str:
    """The package of the worker that a module lies in, or the module itself where it lies in none."""
    return ".".join(module.split(".")[2:3])


def test_each_module_has_a_layer() -> None:
    assert {room(name) for name in MODULES} - DOORS == RANK.keys()
    assert {floor(name) for name in MODULES if room(name) == "worker"} - {""} == FLOOR.keys()


@pytest.mark.parametrize("module", MODULES)
def test_no_import_climbs(module: str) -> None:
    own = room(module)
    if own in DOORS:
        return
    assert [name for name in imports(MODULES[module]) if not descends(module, name)] == []


def descends(module: str, name: str) -> bool:
    """Whether a module may import one of this name: one of its own package, or of a lower one of its half."""
    own, target = room(module), room(name)
    if own == target == "worker":
        return floor(module) == floor(name) or FLOOR.get(floor(name), -1) > FLOOR[floor(module)]
    return target in ("", own) or (
        RANK.get(target, -1) > RANK[own] and target != "worker" and (own != "worker" or target == "contract")
    )


@pytest.mark.parametrize("module", [name for name in MODULES if room(name) == "contract"])
def test_the_contract_needs_the_standard_library_alone(module: str) -> None:
    own = {
        name.split(".")[0]
        for node in ast.walk(MODULES[module])
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert own - {"runner"} <= sys.stdlib_module_names


def test_no_two_modules_import_each_other() -> None:
    # The door imports nothing until a part of the library is asked for.
    graph = {name: {*imports(tree)} - {name, "runner"} for name, tree in MODULES.items() if name != "runner"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_only_the_plugin_imports_pytest() -> None:
    """pytest is no dependency: whoever runs the command may not have it."""
    users = {
        room(name)
        for name, tree in MODULES.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Import) and any(part.name.split(".")[0] == "pytest" for part in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("pytest", "_pytest"))
    }
    assert users == {"pytest_plugin"}


def test_a_climbing_import_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ast.parse("def f():\n    from runner.session import plan\n")
    for module in ("runner.cases.bad", "runner.contract.bad", "runner.worker.bad"):
        monkeypatch.setitem(MODULES, module, tree)
        with pytest.raises(AssertionError):
            test_no_import_climbs(module)
    for module, name in (
        ("program", "runner.worker.judge"),
        ("program", "runner.worker.comparison.compare"),
        ("server", "runner.worker"),
    ):
        monkeypatch.setitem(MODULES, f"runner.worker.{module}.bad", ast.parse(f"def f():\n    import {name}"))
        with pytest.raises(AssertionError):
            test_no_import_climbs(f"runner.worker.{module}.bad")
    monkeypatch.setitem(MODULES, "runner.cases.bad", ast.parse("import runner.api"))
    monkeypatch.setitem(MODULES, "runner.api", ast.parse(""))
    with pytest.raises(AssertionError):
        test_no_import_climbs("runner.cases.bad")
    monkeypatch.setitem(MODULES, "runner.cases.bad", tree)
    monkeypatch.setitem(MODULES, "runner.session.plan", ast.parse("import runner.cases.bad"))
    with pytest.raises(pytest.fail.Exception):
        test_no_two_modules_import_each_other()
