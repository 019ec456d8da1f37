"""``runner config``: what the project file sets, from where, and whether it is trusted."""

from __future__ import annotations

import argparse
from typing import Any

from runner import console, exit_codes
from runner.cli.arguments import KEYS, argument, command, settable
from runner.cli.project import Project, read_project, toml
from runner.cli.run import run_parser
from runner.cli.trust import is_trusted, trust
from runner.diagnostics import shown_path
from runner.text import in_line


@command(
    "Each option that a project file may set: its value, and the line or the default that it comes from. The "
    "command line is left out of it. The digest is what --trust-project takes.",
    argument("--trust", action="store_true", help="first trust the settings of the file that ask, until they change"),
)
def run(arguments: argparse.Namespace) -> int:
    """Print the settings that hold here."""
    project = read_project()
    if arguments.trust:
        if project is None:
            raise exit_codes.UsageError("--trust: there is no project file in this folder or above")
        trust(project)
    console.output("\n".join(map(in_line, [*_settings(project), *_trust(project)])))
    return exit_codes.OK


def _settings(project: Project | None) -> list[str]:
    parser = run_parser()
    actions, defaults = settable(parser), parser.parse_args(["-"])
    own = {setting.key: setting for setting in project.settings} if project else {}
    rows = []
    for key, dest in KEYS.items():
        if setting := own.get(key):
            assert project is not None
            project.words(setting, actions[key], {})  # which the option may refuse
            rows.append((setting.written(), f"{shown_path(setting.span.file)}:{setting.span.line}"))
        else:
            rows.append((f"{key} = {_default(key, getattr(defaults, dest))}", "default"))
    width = max(len(text) for text, _ in rows)
    return [f"{text:<{min(width, 60)}}  # {origin}" for text, origin in rows]


def _default(key: str, value: Any) -> str:
    if key in ("verbose", "quiet"):
        return "false"
    if value is None or key == "paths":
        return "(unset)"
    return f'"{value:g}s"' if isinstance(value, float) else toml(value)


def _trust(project: Project | None) -> list[str]:
    if project is None:
        return ["no project file"]
    keys = ", ".join(setting.key for setting in project.asking)
    state = "trusted" if is_trusted(project) else "not trusted: runner config --trust"
    asks = f"{keys} ({state})" if keys else "nothing"
    return [f"file: {shown_path(project.file)}", f"digest: {project.digest}", f"asks: {asks}"]
