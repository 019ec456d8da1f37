"""The generated pages of reference: up to date, and complete."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import runner
import runner.api
from runner.contract.oracles import ORACLES
from tests.script_modules import script_module

ROOT = Path(__file__).resolve().parents[2]
pages = script_module("reference_pages")
TEXTS = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in pages.PAGES}


@pytest.mark.parametrize("name", TEXTS)
def test_a_page_is_fresh(name: str) -> None:
    assert pages.PAGES[name]() == TEXTS[name], "run: python tools/reference_pages.py"


def sections(name: str) -> dict[str, str]:
    """Return the text below each heading of a page."""
    parts = re.split(r"^#+ (.+)\n", TEXTS[name], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_key_of_every_event_stands_there() -> None:
    schema = json.loads((ROOT / "schema" / "events.schema.json").read_text(encoding="utf-8"))
    parts = {name: part["properties"] for name, part in schema["definitions"].items() if "properties" in part}
    assert {"run-started", "variant-finished", "finding"} <= parts.keys()
    for name, properties in parts.items():
        assert re.findall(r"^\* `(\w+)` \(", sections("events.md")[name], re.MULTILINE) == [*properties], name


def test_every_oracle_has_its_row_in_the_order_in_which_they_speak() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| `(?:ERROR|FAIL)` \|", TEXTS["oracles.md"], re.MULTILINE)
    assert rows == [row.name for row in ORACLES]


def test_every_name_of_the_library_stands_there() -> None:
    text = TEXTS["library-reference.md"]
    own, _, extensions = text.partition("\n## runner.api\n")
    assert re.findall(r"^### (\w+)$", own, re.MULTILINE) == runner.__all__
    shared = re.findall(r"`(\w+)`", extensions.rpartition("The same as in `runner`: ")[2])
    assert {*re.findall(r"^### (\w+)$", extensions, re.MULTILINE), *shared} == {*runner.api.__all__}
    assert "check" not in shared, "the two are different functions"


def test_another_description_changes_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = json.loads((ROOT / "schema" / "events.schema.json").read_text(encoding="utf-8"))
    schema["definitions"]["notice"]["properties"]["message"]["description"] = "Another text."
    monkeypatch.setattr(pages, "load_schema", lambda name: schema)
    assert "Another text." in pages.events() != TEXTS["events.md"]
