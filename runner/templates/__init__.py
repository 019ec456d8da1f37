"""The templates of reports, all read in one way: an unknown name is an error, and pages escape what they are given."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template


def template(name: str, **filters: Callable[..., Any]) -> Template:
    """The template of that name in this folder, with these filters. Markdown (``.md.j2``) is not escaped, all else is."""
    environment = _environment(name)
    environment.filters.update(filters)
    return environment.get_template(name)


@cache
def _environment(name: str) -> Environment:
    """One a template, because each has filters of its own; it keeps the template compiled."""
    markdown = name.endswith(".md.j2")
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=not markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=markdown,
    )
