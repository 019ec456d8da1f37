"""The board in a browser: two clicks to what broke, on a phone and by keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.report.board import board_of, pages
from runner.report.site.folder import write_folder
from runner.report.site.results import Declared
from tests.report.browser import BROWSER, Browser, browser

from .events_sample import finished
from .test_board import DATES, failed, log

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on this machine")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A board of thirty entries: three backends, two torches and five dates. The newest run of one fails anew."""
    folder = tmp_path_factory.mktemp("board")
    logs = [
        log(date, *(
            failed("a", backend=backend, torch=torch) if (date, backend, torch) == (DATES[4], "inductor", "2.13.0")
            else finished("PASS", "a", backend, torch)
            for backend in ("aot_eager", "inductor", "openvino")
        ), torch=torch)
        for torch in ("2.6.0", "2.13.0") for date in DATES
    ]  # fmt: skip
    made = board_of((each, "") for each in logs)
    for name, each in made.logs.items():
        (folder / name).mkdir(parents=True)
        write_folder(folder / name, each.events, Declared.of(()), None)
    for name, text in pages(made):
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> object:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def test_what_broke_since_last_week_is_two_clicks_away(site: Path, page: Browser) -> None:
    page.open(site / "index.html")
    page.click("td.n a.broken")
    page.wait()
    assert page.run("location.pathname.split('/').pop().startsWith('backend-inductor-')")
    assert page.run("document.querySelector(':target').textContent").startswith("Since the run before")
    page.click(":target ~ div a[href^='runs/']")
    page.wait()
    assert "a[float32,cpu]@inductor" in page.run("document.querySelector('h1').textContent")
    assert page.problems == []


@pytest.mark.parametrize("name", ["index.html", "backend-*.html", "cases-*.html"])
@pytest.mark.parametrize("width", [360, 1280])
def test_no_page_is_wider_than_the_screen(site: Path, page: Browser, name: str, width: int) -> None:
    page.resize(width, 800)
    for path in site.glob(name):
        page.open(path)
        assert page.run("document.documentElement.scrollWidth") <= width, path.name
    page.resize(1280, 800)


def test_the_keyboard_reaches_what_broke(site: Path, page: Browser) -> None:
    page.open(site / "index.html")
    for _ in range(100):
        page.press("Tab")
        if page.run("document.activeElement.matches('a.broken')"):
            break
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") != "none", "it is seen where one is"
    page.press("Enter")
    page.wait()
    assert page.run("location.hash") != ""
