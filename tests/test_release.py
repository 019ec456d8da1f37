"""The version stands in one place, and the changelog begins with it."""

from __future__ import annotations

import re
from pathlib import Path

import runner

REPOSITORY = Path(__file__).resolve().parents[1]


def places(version: str, sources: dict[str, str]) -> list[str]:
    """Return the files that have a version as a literal of its own."""
    literal = re.compile(rf"""["']{re.escape(version)}["']""")
    return [name for name, text in sources.items() if literal.search(text)]


def test_the_version_is_a_literal_of_one_file() -> None:
    files = [REPOSITORY / "pyproject.toml", *(REPOSITORY / "runner").rglob("*.py")]
    sources = {path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8") for path in files}
    assert places(runner.__version__, sources) == ["runner/__init__.py"]
    planted = sources | {"pyproject.toml": f'version = "{runner.__version__}"'}
    assert places(runner.__version__, planted) == ["pyproject.toml", "runner/__init__.py"]


def test_the_changelog_begins_with_the_version() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (\S+)", text, re.MULTILINE)
    assert headings[0] == runner.__version__
