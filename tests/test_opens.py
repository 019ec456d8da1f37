"""Control opens files by ``runner.files`` alone: a case may put a pipe, a link or a device in the place of any file."""

from __future__ import annotations

import ast

from tests.test_layers import MODULES

METHODS = {"open", "read_text", "read_bytes", "write_text", "write_bytes"}
OWN = {
    "runner.cases.torch_names": "installed with the package",
    "runner.cases.yaml.schema": "installed with the package",
    "runner.templates": "installed with the package",
    "runner.console": "the null device",
    "runner.engine.process_tree": "in /proc and /sys",
    "runner.engine.fingerprint": "in /proc, and of installed packages",
    "runner.engine.cluster.engine": "in /proc, and in a new folder of its own",
    "runner.importers.exported_program": "parts of an archive that was opened as a regular file",
    "runner.pytest_plugin.session": "in a new folder of its own",
    "runner.ledger.update": "written after it was read as a regular file, by a person's command",
    "runner.files": "here it is looked at",
}
"""Modules that open files themselves, and which."""


def opens(tree: ast.Module) -> set[str]:
    """The lines on which a module opens a file by its path."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {f"line {call.lineno}" for call in calls if is_opening(call)}


def is_opening(call: ast.Call) -> bool:
    """Whether a call opens a path. ``os.open`` has flags, a descriptor is open already, and mode ``x`` makes the file."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in METHODS and ast.unparse(call.func.value) not in ("os", "webbrowser")
    if not isinstance(call.func, ast.Name) or call.func.id != "open":
        return False
    place, *mode = map(ast.unparse, call.args)
    return "x" not in "".join(mode) and place != "descriptor" and not place.startswith("open_output(")


def test_control_opens_files_by_one_module() -> None:
    control = {
        name: tree for name, tree in MODULES.items() if not name.startswith(("runner.worker", "runner.contract"))
    }
    offenders = {name: lines for name, tree in control.items() if (lines := opens(tree))}
    assert {name: lines for name, lines in offenders.items() if name not in OWN} == {}
    assert offenders.keys() >= OWN.keys(), "a reason for a module that opens nothing any more"
