"""``runner.worker.tasks.registry``: each name leads to a task, each task has a name, and no module is loaded before it is asked for."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner.worker.tasks import registry

FOLDER = Path(registry.__file__).parent


def tasks_in(path: Path) -> set[str]:
    """Return the public functions of a module that take a job and ``send``, as the registry writes them."""
    functions = (node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef))
    return {
        f"runner.worker.tasks.{path.stem}:{function.name}"
        for function in functions
        if [argument.arg for argument in function.args.args] == ["job", "send"] and function.name[0] != "_"
    }


@pytest.mark.parametrize("name", registry.TASKS)
def test_each_name_leads_to_a_task(name: str) -> None:
    assert callable(pkgutil.resolve_name(registry.TASKS[name]))


def test_each_task_has_one_name() -> None:
    names = sorted(name for path in FOLDER.glob("*.py") for name in tasks_in(path))
    assert names == sorted(registry.TASKS.values())


def test_a_worker_loads_no_task_before_it_is_asked_for() -> None:
    program = (
        "import sys; from runner.worker.tasks import registry; print([n for n in sys.modules if '.worker.tasks.' in n])"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert process.stdout.strip() == "['runner.worker.tasks.registry']"
