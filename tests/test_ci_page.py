"""``docs/ci.md``, the README and the recipes: every command is one that the runner takes, and the workflow is YAML."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.cli.main import build_parser

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
PAGES = (
    DOCS / "ci.md",
    DOCS / "recipes.md",
    DOCS / "kernels.md",
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
)


def commands(text: str) -> Iterator[str]:
    """Yield the runner's commands of a page's console blocks and workflows, without comments."""
    for block in re.findall(r"^```(?:console|yaml)$(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in re.findall(r"^(?:\$| *-(?: run:)?) (runner .*)$", block, re.MULTILINE):
            yield re.split(r"\s+# |\s>\s", line)[0]


def all_commands() -> list[Any]:
    return [
        pytest.param(command, id=f"{page.name}-{command}")
        for page in PAGES
        for command in dict.fromkeys(commands(page.read_text(encoding="utf-8")))
        if not re.search(r"\[-|\||\.\.\.", command)
    ]


@pytest.mark.parametrize("command", all_commands())
def test_the_runner_takes_the_command(command: str) -> None:
    words = shlex.split(
        re.sub(r"\$\{\{.*?\}\}|\"\$\w+/\$\w+\"", lambda match: "1/4" if "/" in match[0] else "1", command)
    )
    words = words[: words.index("--")] if "--" in words else words
    build_parser().parse_args(words[1:])


def test_there_are_commands_of_every_page() -> None:
    assert all(list(commands(page.read_text(encoding="utf-8"))) for page in PAGES)


def test_the_recipes_are_yaml_and_keep_the_junit_file_that_they_write() -> None:
    text = (DOCS / "ci.md").read_text(encoding="utf-8")
    recipes = map(yaml.safe_load, re.findall(r"^```yaml$(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    github, gitlab, (diff, affected), (step,) = recipes
    assert diff["run"].endswith("> change.diff") and "--affected-by change.diff " in affected["run"]
    inputs = yaml.safe_load((REPOSITORY / "action.yml").read_text(encoding="utf-8"))["inputs"]
    assert "OWNER" in step["uses"] and step["with"].keys() <= inputs.keys()
    *_, install, run, upload = github["jobs"]["run"]["steps"]
    assert f"--junit {upload['with']['path']} " in run["run"] and "cancelled" in upload["if"]
    assert all(f"| `{name}` |" in text for name in inputs)
    job = gitlab["torch.compile"]
    assert job["script"][0] == install["run"]
    name = re.search(r'^name = "(.*)"$', (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert name and f'"{name[1]}[torch] @ git+https://' in install["run"]
    assert (
        f"--junit {job['artifacts']['reports']['junit']} " in job["script"][-1] and job["artifacts"]["when"] == "always"
    )
    (jenkins,) = re.findall(r"^```groovy$(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert jenkins.count("{") == jenkins.count("}") and jenkins.count("'report.xml'") == 1
    assert "--junit report.xml" in jenkins
