"""The guide to the format and its reference: complete, true to the schemas and the runner's own lists, and every example works."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.builder import operators
from runner.cases import case, expand, expressions, limits, python_files
from runner.cases.model import DTYPES
from runner.cases.yaml import reader, schema
from runner.contract.oracles import GATES
from runner.session.collect import load
from tests.script_modules import script_module

REPOSITORY = Path(__file__).resolve().parents[1]
DEFINITIONS = schema.load_schema("definitions")["definitions"]

format_page = script_module("format_page")
PAGE = format_page.PAGE.read_text(encoding="utf-8")
GUIDE = format_page.GUIDE.read_text(encoding="utf-8")
TEMPLATE = format_page.TEMPLATE.read_text(encoding="utf-8")
EXAMPLES = format_page.examples(GUIDE + PAGE)
YAML = [example for example in EXAMPLES if example.name.endswith(".yaml")]
RIGHT = [example for example in YAML if not example.is_refused]
REFUSED = [example for example in YAML if example.is_refused]
WITHOUT_CASES = ("tvm.suite.yaml", "acme.ledger.yaml")
"""Examples without a case."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with every file of both pages."""
    format_page.write(EXAMPLES, tmp_path)
    return tmp_path


# --- the generated parts ---------------------------------------------------------------------


def test_the_reference_is_fresh() -> None:
    assert format_page.page() == PAGE, "run: python tools/format_page.py"


def test_tables_and_messages_are_made_from_the_template() -> None:
    for made in ("* `name` (text; required): The case's name", "did you mean 'F.relu'?"):
        assert made in PAGE and made not in TEMPLATE
    changed = format_page.filled(TEMPLATE.replace("F.rellu", "F.gellu"))
    assert "did you mean 'F.gelu'?" in changed


def test_an_item_that_stands_again_is_a_link_to_the_first_one() -> None:
    long, short = "* `mode` (text): " + "word " * format_page.SHORT + "end.\n", "* `name` (text): A name.\n"
    again = format_page._once(f"## Cases, all\n{long}{short}## Suites\n{long}{short}{long.replace('end', 'stop')}")
    link = "* `mode`: as in [Cases, all](#cases-all)\n"
    assert again == f"## Cases, all\n{long}{short}## Suites\n{link}{short}{long.replace('end', 'stop')}"


def rows(part: str) -> list[str]:
    """The names that a generated list is about, without their code marks."""
    assert part in format_page.parts(TEMPLATE), f"the page has no part {part}"
    items = (re.match(r"\* ((?:`[^`]*`|[^`(:])+?)(?: \(|: )", line) for line in format_page.table(part).splitlines())
    return [item[1].strip("`") for item in items if item]


def key_tables() -> dict[str, set[str]]:
    parts = [part.removeprefix("keys ") for part in format_page.parts(TEMPLATE) if part.startswith("keys ")]
    return {part: set(rows(f"keys {part}")) for part in parts}


def mappings(part: Any, path: str, paths: set[str]) -> Iterator[tuple[str, set[str]]]:
    """Every mapping with named keys that a file may hold: where it is defined, and its keys."""
    if isinstance(part, list):
        for item in part:
            yield from mappings(item, path, paths)
    if not isinstance(part, dict):
        return
    if "$ref" in part:
        path = part["$ref"].rpartition("/")[2]
        if path in paths:
            return
        paths.add(path)
        part = DEFINITIONS[path]
    if part.get("properties"):
        yield path, set(part["properties"])
    for word, inner in part.items():
        if word == "properties":
            for name, value in inner.items():
                yield from mappings(value, f"{path}/{name}", paths)
        elif word in ("items", "additionalProperties"):
            yield from mappings(inner, f"{path}/{'items' if word == 'items' else '*'}", paths)
        elif word in ("then", "else"):
            yield from mappings(inner, path, paths)


def test_every_key_of_the_schemas_is_on_the_page_and_every_key_of_the_page_in_a_schema() -> None:
    tables = key_tables()
    elsewhere = {
        "defaults": tables["case"] - {"name"},
        "case.ignore": set(rows("values oracle")),
        "bound": {"rtol", "atol", "reason"},
        "unclaimed/precision": set[str](),  # dtypes alone
        **{
            name: {match[1] for row in rows(f"values {name}") if (match := re.match(r"\{(\w+):", row))}
            for name in ("init", "values")
        },
    }
    tables["case.tolerance"] -= {"a dtype", "output`, `output[1]`, ..."}
    paths = set()
    for kind in schema.KINDS:
        for path, keys in mappings(schema.load_schema(kind), kind, set()):
            expected = without_dtypes(keys) if path in ("case.tolerance", "unclaimed/precision") else keys
            assert elsewhere.get(path, tables.get(path)) == expected, f"the keys of {path}"
            paths.add(path)
    assert set(tables) <= paths, "a table of no schema"


def without_dtypes(keys: set[str]) -> set[str]:
    return {key for key in keys if key.removeprefix("torch.") not in DTYPES}


def test_every_value_of_a_schema_is_on_the_page() -> None:
    for path in (
        "oracle",
        "init",
        "values",
        "gradMode",
        "gradMode/cotangent",
        "compileMode",
        "knownEntry/stage",
        "knownEntry/why",
    ):
        part = format_page.schema_at(path)
        assert set(part["enum"] if "enum" in part else part["then"]["enum"]) <= set(rows(f"values {path}"))
    assert set(rows("values oracle")) == set(GATES)
    assert "dtypes" in format_page.parts(TEMPLATE) and set(DTYPES) == set(
        re.findall(r"\w+", format_page.table("dtypes"))
    ) - {"text"}


# --- what is written by hand -----------------------------------------------------------------


def table_below(text: str) -> list[str]:
    """The first cells of the first table after a line."""
    lines = PAGE[PAGE.index(text) :].split("\n")
    start = next(place for place, line in enumerate(lines) if line.startswith("| --- "))
    end = next(place for place in range(start, len(lines)) if not lines[place].startswith("|"))
    return [line.split(" | ")[0].strip("| ") for line in lines[start + 1 : end]]


def test_every_namespace_of_operators_has_a_row() -> None:
    cells = table_below("An operator has one spelling.")
    assert [cell.strip("`").partition(".")[0] for cell in cells] == DEFINITIONS["operatorName"]["x-namespaces"]


def test_every_reason_to_refuse_an_operator_is_on_the_page() -> None:
    reasons = {reason for _, reason in operators.REFUSED}
    part = format_page.table("refused operators")
    assert {reason for reason in reasons if reason not in part} == set()


def test_every_field_of_a_selection_has_a_row() -> None:
    cells = table_below("`-k` and `select:` take words")
    assert [cell.strip("`").removesuffix(":x") for cell in cells[:-1]] == list(expand._FIELDS)


def test_operators_of_arithmetic_are_those_that_are_taken() -> None:
    row = {
        cell: line
        for line in PAGE.split("\n")
        for cell in ("operators", "comparisons")
        if line.startswith(f"| {cell} ")
    }
    signs = re.findall(r"`([^`]+)`", row["operators"].partition("unary")[0] + row["comparisons"])
    for sign in signs:
        expressions.parse(f"a {sign} b")
    assert len(signs) == len(expressions._BINARY) + len(expressions._COMPARE)


def test_names_that_the_source_takes_are_all_there() -> None:
    line = next(line for line in PAGE.split("\n") if line.startswith("These names are taken"))
    assert {*re.findall(r"`(\w+)`", line), "_"} == python_files.RESERVED


def test_units_of_time_and_memory_are_units() -> None:
    times, sizes = (
        re.findall(r"`(\w+)`", re.search(rf"^`{key}` has a unit \((.*?)\)", PAGE, re.MULTILINE)[1])  # type: ignore[index]
        for key in ("timeout", "memory")
    )
    assert set(times) == {unit for unit in case._UNIT if unit}
    assert {size.lower() for size in sizes} == {unit for unit in limits._UNITS if unit}


# --- the examples ----------------------------------------------------------------------------


def test_there_are_examples_of_each_kind() -> None:
    assert len(RIGHT) > 20 and len(REFUSED) > 1
    assert len({example.name for example in EXAMPLES}) == len(EXAMPLES)
    blocks = re.findall(r"^```(?:yaml|python)$", GUIDE + PAGE, re.MULTILINE)
    assert len(EXAMPLES) == len(blocks), "a block without a file name"


def test_the_guide_is_short_and_has_an_example_for_each_of_its_parts() -> None:
    assert len(GUIDE.splitlines()) <= 340
    *parts, kernels, refused = GUIDE.split("\n## ")[1:]
    assert [part.partition("\n")[0] for part in parts if not format_page.examples(part)] == []
    assert "format-reference.md#kernels" in kernels and "format-reference.md#what-is-refused" in refused


@pytest.mark.parametrize("example", RIGHT, ids=lambda example: example.name)
def test_every_example_is_valid(example: Any, folder: Path) -> None:
    loaded = load([str(folder / example.name)], everything=True, allow_python=True)
    assert [diagnostic.render() for diagnostic in loaded.diagnostics] == []
    assert bool(loaded.variants) != (example.name in WITHOUT_CASES)


@pytest.mark.parametrize("example", REFUSED, ids=lambda example: example.name)
def test_every_refused_example_is_refused_with_the_messages_shown(example: Any, folder: Path) -> None:
    text = format_page.messages(folder, example.name)
    assert ": error: " in text and example.messages == text
    everything = example.name.endswith(".ledger.yaml")
    loaded = load([str(folder / example.name)], allow_python=True, everything=everything)
    assert not loaded.variants, "a case of a refused example would run"


def keys_of(node: Any, part: Any, path: str) -> Iterator[tuple[str, str]]:
    """The keys that a file uses, each with the place where the schema defines it."""
    if "$ref" in part:
        path = part["$ref"].rpartition("/")[2]
        part = DEFINITIONS[path]
    if isinstance(node, list):
        for branch in (part.get("items"), part.get("then", {}).get("items")):
            for item in node if branch else ():
                yield from keys_of(item, branch, f"{path}/items")
    elif isinstance(node, dict):
        for key, value in node.items():
            inner = part.get("properties", {}).get(key)
            if inner is not None:
                yield path, key
            for branch, where in ((inner, f"{path}/{key}"), (part.get("additionalProperties"), f"{path}/*")):
                if isinstance(branch, dict):
                    yield from keys_of(value, branch, where)
        if isinstance(part.get("else"), dict):
            yield from keys_of(node, part["else"], path)


def test_every_key_has_an_example(folder: Path) -> None:
    uses: set[tuple[str, str]] = set()
    for example in RIGHT:
        kind = example.name.split(".")[-2]
        node, _ = reader.load(folder / example.name)
        assert node is not None
        uses.update(keys_of(node.plain(), schema.load_schema(kind), kind))
    for kind in schema.KINDS:
        for path, keys in mappings(schema.load_schema(kind), kind, set()):
            if path not in ("defaults", "case.ignore"):
                assert without_dtypes(keys) - {key for where, key in uses if where == path} == set(), path


def test_every_init_and_every_form_of_a_value_has_an_example() -> None:
    text = "".join(example.text for example in RIGHT)
    for row in rows("values init"):
        assert re.search(rf"init: \{{?{row.strip('{').partition(':')[0]}\b", text), row
    for form in (
        "$_",
        "$dtype",
        "$device",
        "$fn",
        "$tensor",
        "$text",
        '"*"',
        "$self.",
        "${",
        "::2",
        "..., ",
        "-1, None",
    ):
        assert form in text, form


@pytest.mark.slow
def test_every_example_is_as_expected_under_aot_eager(folder: Path) -> None:
    files = [str(folder / example.name) for example in RIGHT if example.name.endswith(".spec.yaml")]
    command = [sys.executable, "-m", "runner", "run", "--backend", "aot_eager", "--allow-python", "-j", "2", *files]
    process = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=400)
    assert process.returncode == 0, process.stdout + process.stderr


# --- the glossary, and links -----------------------------------------------------------------

GLOSSARY = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")


def glossary_entries() -> dict[str, str]:
    return dict(re.findall(r"^\* \*\*(.+?)\*\*: (.+)$", GLOSSARY, re.MULTILINE))


def test_the_glossary_is_alphabetical_and_its_words_have_entries() -> None:
    entries = glossary_entries()
    assert len(entries) == len(re.findall(r"^\* ", GLOSSARY, re.MULTILINE)) > 50
    assert list(entries) == sorted(entries, key=str.lower)
    words = {word.lower() for word in entries}
    italics = {word for text in entries.values() for word in re.findall(r"(?<![*\w])\*([^*]+)\*(?!\*)", text)}
    # A word in italics may be a plural or a verb of its entry.
    for italic in italics:
        assert any(italic.lower().startswith(word[: max(len(word) - 4, 4)]) for word in words), italic
    for word, text in entries.items():
        plain = re.sub(r": \[.*?\]\(.*?\)\.$", ".", text)
        assert 1 <= len(re.findall(r"\.(?= [A-Z`*]|$)", plain)) <= 2, word


def anchors(page: Path) -> set[str]:
    """GitHub's anchors of a page's headings."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S), re.M
    )
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", ["format.md", "format-reference.md", "glossary.md"])
def test_links_lead_somewhere(name: str) -> None:
    page = REPOSITORY / "docs" / name
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 10
    for link in links:
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
