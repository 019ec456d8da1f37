"""What an extension imports: every name is there, and brings nothing of the other half."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import runner
from runner import api

WORKER = {"Evidence", "Finding", "check", "equal_bits"}


def loaded_by(names: set[str]) -> set[str]:
    """The modules that a fresh process has after an import of these names."""
    code = f"import sys\nfrom runner.api import {', '.join(sorted(names))}\nprint(*sys.modules)"
    return {*subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()}


def test_types_are_those_of_what_is_imported() -> None:
    (block,) = [node for node in ast.parse(Path(api.__file__).read_text()).body if isinstance(node, ast.If)]
    homes = {
        name.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assert homes.keys() == {*api.__all__}
    assert homes == {name: api._HOMES.get(name, "runner.record.events") for name in api.__all__}
    assert Path(runner.__file__).with_name("py.typed").is_file()


def test_a_reporter_imports_no_torch_and_nothing_of_a_judge() -> None:
    modules = loaded_by({*api.__all__} - WORKER)
    assert "runner.report.handlers" in modules
    assert not {name for name in modules if name == "torch" or name.startswith("runner.worker.judge")}


@pytest.mark.slow
def test_an_oracle_imports_nothing_of_control() -> None:
    modules = loaded_by(WORKER)
    assert "torch" in modules
    own = {name for name in modules if name.startswith("runner.") and name != "runner.api"}
    assert {name for name in own if name.split(".")[1] not in ("worker", "contract")} == set()
    assert not modules & {"ruamel", "rich", "jinja2", "tabulate", "junit_xml", "jsonschema"}


def test_another_name_is_no_part_of_it() -> None:
    with pytest.raises(AttributeError, match=r"module 'runner\.api' has no attribute 'judge'"):
        api.judge  # noqa: B018
