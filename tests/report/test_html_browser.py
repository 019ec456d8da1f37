"""The pages of a run in a browser: filters, links, keyboard, a phone, the dark, and text that means to be code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.record.events import RunFinished
from runner.report.site.folder import write_folder
from runner.report.site.results import Declared
from tests.report.browser import BROWSER, Browser, browser
from tests.report.events_sample import failure, finished, planned, started, value_finding
from tests.report.test_html import HOSTILE
from tests.report.test_html_report import many

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on this machine: the pages are not seen by a browser"),
]  # fmt: skip

CELLS = "[...document.querySelectorAll('#matrix tbody tr:not(.suite):not([hidden]) td:not(.dim)')].filter((c) => c.textContent && !c.hidden && c.checkVisibility()).length"
GROUPS = "[...document.querySelectorAll('article.group:not([hidden])')].length"
SHOWN = "document.getElementById('shown').textContent"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as instance:
        yield instance


@pytest.fixture(autouse=True)
def no_problem(page: Browser) -> Iterator[None]:
    page.problems.clear()
    page.resize(1200, 900)
    page.dark(False)
    yield
    assert page.problems == []


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two backends and two versions of torch: four wrong values, a crash, and passes."""
    crash = {"oracles": ("signal",), "findings": (value_finding(oracle="signal", severity="crash", stage="aot"),), "severity": "crash", "stage": "aot"}  # fmt: skip
    results = []
    for name in ("pad", "relu", "conv"):
        for backend in ("aot_eager", "inductor"):
            for torch in ("2.6.0", "2.13.0"):
                where = {"name": name, "backend": backend, "torch": torch}
                if name == "pad":
                    results.append(failure(**where, severity="wrong-result"))
                elif where == {"name": "conv", "backend": "inductor", "torch": "2.6.0"}:
                    results.append(failure(**where, **crash))
                else:
                    results.append(finished(**where))
    out = tmp_path_factory.mktemp("site")
    write_folder(out, [started("2.6.0", "2.13.0"), *results, planned("never"), RunFinished(1, 9.0)], Declared(), None)
    return out / "index.html"


def choose(page: Browser, name: str, value: str) -> None:
    page.run(f"(() => {{ const f = document.getElementById('filters').elements['{name}']; f.value = '{value}'; f.dispatchEvent(new Event('input', {{bubbles: true}})); }})()")  # fmt: skip


def test_filters_show_what_fits(page: Browser, index: Path) -> None:
    page.open(index)
    assert page.run(CELLS) == 13 and page.run(SHOWN) == ""
    choose(page, "verdict", "red")
    assert page.run(CELLS) == 5 and page.run(SHOWN) == "5 of 13 results"
    choose(page, "backend", "inductor")
    assert page.run(CELLS) == 3
    choose(page, "oracle", "signal")
    assert page.run(CELLS) == 1 and page.run(GROUPS) == 1
    assert page.run("location.hash") == "#verdict=red&oracle=signal&backend=inductor"
    page.click("#filters button[type=reset]")
    page.run("new Promise((done) => setTimeout(done, 50))")
    assert page.run(CELLS) == 13 and page.run("location.hash") == "" and page.run(GROUPS) == 2


@pytest.mark.parametrize(
    ("fragment", "count"),
    [("verdict=FAIL", 5), ("severity=crash", 1), ("stage=aot", 1), ("torch=2.6.0", 6), ("backend=inductor", 7),
     ("text=CONV", 4), ("text=signal+at+aot", 1), ("verdict=NOT-RUN", 1), ("oracle=value&torch=2.13.0", 2), ("verdict=none", 0)],
)  # fmt: skip
def test_a_link_brings_its_filters(page: Browser, index: Path, fragment: str, count: int) -> None:
    page.open(index, fragment)
    assert page.run(CELLS) == count and page.run(SHOWN) == f"{count} of 13 results"


def test_a_filter_that_the_page_does_not_know_shows_nothing(page: Browser, index: Path) -> None:
    page.open(index, "tag=unknown")
    assert page.run(CELLS) == 0


def test_going_back_brings_the_filter_back(page: Browser, index: Path) -> None:
    page.open(index, "verdict=PASS")
    page.click("#matrix thead th")
    page.run("location.hash = 'verdict=FAIL'")
    page.run("new Promise((done) => setTimeout(done, 100))")
    assert page.run(CELLS) == 5
    page.run(
        "new Promise((done) => { addEventListener('hashchange', () => setTimeout(done, 20), {once: true}); history.back(); })"
    )
    assert page.run(CELLS) == 7


def test_a_count_is_a_filter_and_a_cell_leads_to_its_failure(page: Browser, index: Path) -> None:
    page.open(index)
    page.click(".counts a")
    page.run("new Promise((done) => setTimeout(done, 100))")
    assert page.run(CELLS) == 5
    page.click("#matrix tr:not([hidden]) td a")
    page.wait()
    assert "pad" in page.run("document.querySelector('h1').textContent")
    assert page.run("document.querySelector('ol.ladder li.guilty strong').textContent") == "inductor"


def test_an_anchor_is_no_filter(page: Browser, index: Path) -> None:
    page.open(index, "cases")
    assert page.run(CELLS) == 13 and page.run("scrollY > 0")


def test_keys_alone_suffice(page: Browser, index: Path) -> None:
    page.open(index)
    page.press("/")
    assert page.run("document.activeElement.name") == "text"
    for letter in "conv":
        page.press(letter)
    assert page.run(CELLS) == 4 and page.run("location.hash") == "#text=conv"
    page.press("Escape")
    assert page.run(CELLS) == 13
    page.open(index)
    page.press("Tab")
    assert page.run("document.activeElement.textContent") == "To the cases"
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    focused = set()
    for _ in range(40):
        page.press("Tab")
        focused.add(page.run("document.activeElement.tagName"))
    assert {"A", "SELECT", "INPUT", "BUTTON", "SUMMARY"} <= focused


def test_a_command_is_copied_or_selected(page: Browser, index: Path) -> None:
    page.open(sorted((index.parent / "failures").glob("*.html"))[0])
    command = page.run("document.querySelector('pre.copy').textContent")
    page.click(".copying button")
    page.run("new Promise((done) => setTimeout(done, 200))")
    assert page.run("document.querySelector('.copying button').textContent") in ("Copied", "Selected")
    assert command.startswith("runner ")
    page.run("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    page.click(".copying button")
    assert page.run("window.copied") == command


@pytest.mark.parametrize("name", ["index.html", "times.html", "failures"])
def test_a_phone_needs_no_scrolling_sideways(page: Browser, index: Path, name: str) -> None:
    path = next((index.parent / name).glob("*.html")) if name == "failures" else index.parent / name
    page.resize(375, 700)
    page.open(path)
    assert page.run("document.documentElement.scrollWidth") <= 375


def test_without_scripts_all_is_there(page: Browser, index: Path) -> None:
    page.scripts(False)
    try:
        page.open(index)
        assert page.run(CELLS) == 13 and page.run(GROUPS) == 2
        assert page.run("document.getElementById('filters').checkVisibility()") is False
    finally:
        page.scripts(True)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_has_the_colours_of_the_person(page: Browser, index: Path, dark: bool) -> None:
    page.dark(dark)
    page.open(index)
    colour = page.run("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(20, 24, 31)" if dark else "rgb(255, 255, 255)")
    # Every text against the nearest background behind it, by https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio.
    low = page.run("""(() => {
      const parse = (c) => c.match(/[\\d.]+/g).map(Number);
      const light = (c) => parse(c).slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
      const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if ((parse(c)[3] ?? 1) > 0) return c; } return 'rgb(255,255,255)'; };
      const found = [];
      for (const e of document.querySelectorAll('body *')) {
        if (!e.checkVisibility() || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
        const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
        if ((a + 0.05) / (b + 0.05) < 4.5) found.push(e.tagName + ' ' + e.className + ' ' + e.textContent.slice(0, 40));
      }
      return found;
    })()""")
    assert low == []


def test_hostile_names_run_nothing(page: Browser, tmp_path: Path) -> None:
    bad = failure(name=HOSTILE, backend=HOSTILE, torch=HOSTILE, reason=HOSTILE, output=HOSTILE, oracles=(HOSTILE,))
    worse = failure(name="javascript:alert(1)", file="javascript:alert(2)//", known="javascript:alert(3)")
    write_folder(tmp_path, [started(), bad, worse, RunFinished(1, 1.0)], Declared(), None)
    for path in sorted(tmp_path.rglob("*.html")):
        page.open(path)
        assert page.run("document.scripts.length") == (0 if path.name == "times.html" else 1)
        assert page.run("document.images.length") == 0
    page.open(tmp_path / "index.html", "text=%3Cimg src=x onerror=alert(1)%3E&tag=%3Cimg src=x onerror=alert(1)%3E")
    assert page.run("document.images.length") == 0 and page.run(CELLS) == 0


def test_ten_thousand_variants_can_be_filtered(page: Browser, tmp_path: Path) -> None:
    write_folder(tmp_path, many(10_000, 1000), Declared(), None)
    page.open(tmp_path / "index.html")
    choose(page, "verdict", "FAIL")
    assert page.run(SHOWN) == "1000 of 10000 results"


@pytest.mark.parametrize("width", [380, 1200])
def test_a_long_table_has_its_columns_below_their_heads(page: Browser, tmp_path: Path, width: int) -> None:
    write_folder(tmp_path, many(2000, 1000), Declared(), None)
    page.resize(width, 800)
    page.open(tmp_path / "index.html", "cases")
    page.draw()
    edges = "[...document.querySelector('{}').cells].map((cell) => Math.round(cell.getBoundingClientRect().right))"
    head = page.run(edges.format("#matrix.long thead tr"))
    assert head == page.run(edges.format("#matrix tbody tr:nth-child(2)")) and len(head) == 3
    right = page.run("document.querySelector('#matrix tbody tr:nth-child(2)').getBoundingClientRect().right")
    assert head[-1] <= right + 1, "nothing is cut off at the right of a row"
