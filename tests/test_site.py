"""The site of ``docs/``: it builds strictly and needs no network, shows what GitHub shows, and its search has no logs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.script_modules import script_module

pytest.importorskip("material", reason="mkdocs-material is not installed")

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
PAGES = [path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))]
BLOCKS = ("h1", "h2", "h3", "h4", "ul", "ol", "li", "table", "tr", "img", "a")
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements for which a browser loads a file, each with the attribute that names it."""

hooks = script_module("site_hooks")


def build(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as ``make site`` does. With ``--quiet`` no warning would count."""
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", config, "--site-dir", folder]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    process = build(REPOSITORY / "mkdocs.yml", folder)
    assert process.returncode == 0, process.stdout + process.stderr
    return folder


class Elements(HTMLParser):
    """Counts the elements of a page's text, and collects what the page loads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.blocks: Counter[str] = Counter()
        self.loaded: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        if tag in BLOCKS and values.get("class") != "headerlink":
            self.blocks[tag] += 1
        if tag in LOADING and values.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(values.get(LOADING[tag]) or "")


def built(site: Path, page: str) -> str:
    """Return the HTML of a page of ``docs/``."""
    return (site / re.sub(r"README\.md$|index\.md$", "index.md", page)).with_suffix(".html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_lists_tables_and_links_that_github_shows(page: str, site: Path) -> None:
    markdown = MarkdownIt("commonmark").enable("table").render((DOCS / page).read_text(encoding="utf-8"))
    article = built(site, page).partition("<article")[2].partition("</article>")[0]
    assert Elements(article).blocks == Elements(markdown).blocks


@pytest.mark.slow
def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = [*{*site.rglob("*.html")} - {site / "404.html"}]  # that one is for servers
    loaded = {(page, link) for page in pages for link in Elements(page.read_text(encoding="utf-8")).loaded if link}
    assert len(loaded) > len(pages)
    assert {link for _, link in loaded if re.match(r"(?:[a-z]+:)?//", link)} == set()
    files = {page.parent / link.partition("#")[0] for page, link in loaded if not link.startswith("data:")}
    assert [str(file) for file in files if not file.exists()] == []


def test_what_a_page_loads_is_seen() -> None:
    html = '<link rel="stylesheet" href="//fonts.example/a.css"><script src="https://example.com/a.js"></script>'
    assert Elements(html).loaded == ["//fonts.example/a.css", "https://example.com/a.js"]


@pytest.mark.slow
def test_the_search_and_the_navigation_have_every_page_but_those_of_logs(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    searched = {entry["location"].partition("#")[0] for entry in index["docs"]}
    expected = {re.sub(r"README\.md$", "index.md", page) for page in PAGES if not page.startswith("lab/")}
    expected = {page.removesuffix(".md") + ".html" for page in expected} | {"repository/CONTRIBUTING.html"}
    assert searched == expected
    assert (site / "search" / "search_index.js").exists(), "a page that is opened as a file cannot load JSON"
    navigation = built(site, "index.md").partition('<nav class="md-nav md-nav--primary')[2].partition("<article")[0]
    assert "judging.html" in navigation and "lab/" not in navigation
    assert (site / "lab" / "2026-11-gpu.html").exists(), "pages link to it"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a](limits.md#no-such-heading)", "no-such-heading"),
        ("[a](no-such-page.md)", "no-such-page"),
        ("[a](../runner)", "runner"),
    ],
    ids=["heading", "page", "folder"],
)
def test_a_link_that_leads_nowhere_ends_the_build(text: str, message: str, tmp_path: Path) -> None:
    shutil.copytree(DOCS, tmp_path / "docs")
    with (tmp_path / "docs" / "limits.md").open("a", encoding="utf-8") as page:
        page.write(f"\n{text}\n")
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {REPOSITORY}/mkdocs.yml\ndocs_dir: {tmp_path}/docs\nhooks: [{REPOSITORY}/tools/site_hooks.py]\n"
    )
    process = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert process.returncode != 0 and message in process.stdout + process.stderr


def test_the_navigation_is_that_of_the_index() -> None:
    index = "# Top\n\n* text\n\n## One\n\n* [A](a.md): `x`\n\n## Two\n\n### In\n\n* [`b` c](b.md)\n\n### On\n\n* [C](../CONTRIBUTING.md)\n"
    assert hooks.navigation(index) == [
        {"One": [{"A": "a.md"}]},
        {"Two": [{"In": [{"b c": "b.md"}]}, {"On": [{"C": "repository/CONTRIBUTING.md"}]}]},
    ]
    ((title, decisions),) = hooks.navigation("* [Decisions](decisions/README.md)\n")[0].items()
    assert title == "Decisions" and decisions[:2] == ["decisions/README.md", "decisions/001-two-halves.md"]


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("docs/a.md", "[x](../schema/diff.schema.json)", "[x](repository/schema/diff.schema.json.md)"),
        ("docs/lab/a.md", "[`x`](../../specs/found/README.md#y)", "[`x`](../repository/specs/found/README.md#y)"),
        ("docs/a.md", "[x](../.github/workflows/a.yml)", "[x](repository/github/workflows/a.yml.md)"),
        ("docs/a.md", "[x](b.md#c) [y](#d) [z](https://a.example/b)", "[x](b.md#c) [y](#d) [z](https://a.example/b)"),
        ("docs/a.md", "`[x](../README.md)`\n```\n[x](../README.md)\n```\n", "`[x](../README.md)`\n```\n[x](../README.md)\n```\n"),
        ("README.md", "![x](docs/a.svg) [y](CONTRIBUTING.md)", "![x](../a.svg) [y](CONTRIBUTING.md)"),
    ],
)  # fmt: skip
def test_a_link_that_leaves_docs_leads_to_a_page_of_the_site(page: str, text: str, expected: str) -> None:
    assert hooks.with_links_of_the_site(text, page) == expected


def test_a_file_that_is_no_markdown_is_one_block_of_code() -> None:
    assert hooks.page_of("schema/diff.schema.json").startswith("# schema/diff.schema.json\n\n~~~~~~~~json\n{\n")
    assert "schema/diff.schema.json" in hooks.linked() and "docs/limits.md" not in hooks.linked()
