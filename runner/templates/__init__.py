"""The templates of reports and scripts, all read in one way: an unknown name is an error, and pages escape what they
are given."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from runner.text import number, one_line, visible


def render_template(name: str, **values: Any) -> str:
    """Return the page or picture of a template: what its values hold is text, never markup."""
    return visible(template(name).render(values))  # names that nothing has cleaned before may hold half a character


def template(name: str, **filters: Callable[..., Any]) -> Template:
    """The template of that name in this folder, with these filters. Pages and pictures escape.

    Markdown and Python (``.md.j2``, ``.py.j2``) do not; in Python a tag leaves its line break.
    """
    environment = _environment(name)
    environment.filters.update(filters)
    return environment.get_template(name)


@cache
def _environment(name: str) -> Environment:
    """One a template, because each has filters of its own; it keeps the template compiled."""
    page, python = name.endswith((".html.j2", ".svg.j2")), name.endswith(".py.j2")
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=page,
        undefined=StrictUndefined,
        trim_blocks=not python,
        lstrip_blocks=not python,
        keep_trailing_newline=not page,
    )
    environment.filters |= {"number": number, "line": one_line, "px": lambda value: f"{value:.1f}"}
    return environment


def read_file(name: str) -> str:
    """Return a file of this folder that is no template: a style sheet or a script of pages."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
