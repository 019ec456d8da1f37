"""``docs/recipes.md``: every recipe is a whole file that is valid and passes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.session.collect import load
from tests.script_modules import script_module

REPOSITORY = Path(__file__).resolve().parents[1]
TEXT = (REPOSITORY / "docs" / "recipes.md").read_text(encoding="utf-8")
RECIPES = (
    "kv_cache",
    "channels_last",
    "random",
    "in_place",
    "custom_operator",
    "decoder",
)

OWN_PYTHON = {"decoder"}

format_page = script_module("format_page")
FILES = {example.name: example.text for example in format_page.examples(TEXT)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with every file of the page."""
    path = tmp_path_factory.mktemp("recipes")
    format_page.write(format_page.examples(TEXT), path)
    return path


def test_every_recipe_has_a_file_and_every_block_a_name() -> None:
    assert [name.removesuffix(".spec.yaml") for name in FILES if name.endswith(".yaml")] == [*RECIPES]
    assert len(FILES) == len(re.findall(r"^```(?:yaml|python)$", TEXT, re.MULTILINE))


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_is_valid(recipe: str, folder: Path) -> None:
    loaded = load([str(folder / f"{recipe}.spec.yaml")], allow_python=True)
    assert [diagnostic.render() for diagnostic in loaded.diagnostics] == []
    assert loaded.variants


def finished(folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    """Run recipes as the page says, and return the finished variants by their ids."""
    command = [sys.executable, "-m", "runner", "run", *options, "-j", "2", "--events", str(folder / "events.jsonl")]
    paths = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    process = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=900
    )
    assert process.returncode == 0, process.stdout + process.stderr
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    return {event["id"]: event for event in events if event["event"] == "variant-finished"}


@pytest.mark.slow
def test_every_recipe_passes_under_aot_eager(folder: Path) -> None:
    names = [f"{recipe}.spec.yaml" for recipe in RECIPES if recipe not in OWN_PYTHON]
    events = finished(folder, *names, "--import", "my_operators", "--backend", "aot_eager")
    assert {name.partition(".")[0] for name in events} == {*RECIPES} - OWN_PYTHON
    assert {name: event["verdict"] for name, event in events.items() if event["verdict"] != "PASS"} == {}


@pytest.mark.slow
def test_the_decoder_is_skipped_where_its_package_is_missing(folder: Path) -> None:
    events = finished(folder, "decoder.spec.yaml", "--allow-python", "--backend", "aot_eager")
    installed = importlib.util.find_spec("transformers") is not None
    assert {event["verdict"] for event in events.values()} == {"PASS" if installed else "SKIP"}
