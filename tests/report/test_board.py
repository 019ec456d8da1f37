"""The board: series of runs, what broke between them, and the pages that say so."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from runner.exit_codes import UsageError
from runner.record.events import Event, RunFinished, VariantFinished
from runner.record.store import Log
from runner.report.board import Board, board_of, pages

from .events_sample import NASTY, finished, planned, started, value_finding

DATES = ("2026-10-20", "2026-11-01", "2026-11-15", "2026-11-21", "2026-11-29")


def failed(name: str, **where: str) -> VariantFinished:
    return finished("FAIL", name, findings=(value_finding(),), oracles=("value",), reason="it differs", **where)


def log(date: str, *results: Event, torch: str = "2.13.0", suites: tuple[str, ...] = ("core",), **start: Any) -> Log:
    """A run of a day that ended as it should."""
    first = started(torch, run=date, started=f"{date}T10:00:00Z", suites={name: f"/{name}" for name in suites}, **start)
    return Log(Path(f"results/{torch}/{date}/events.jsonl"), [first, *results, RunFinished(0, 1.0)])


def board(*logs: Log, machine: str = "") -> Board:
    return board_of((each, machine) for each in logs)


def passes(date: str, *names: str, torch: str = "2.13.0") -> Log:
    return log(date, *(finished("PASS", name, torch=torch) for name in names), torch=torch)


def texts(logs: Board) -> dict[str, str]:
    return dict(pages(logs))


def test_a_series_is_a_backend_under_one_torch_on_one_suite_the_oldest_run_first() -> None:
    both = [finished("PASS", "a"), finished("PASS", "a", "openvino")]
    found = board(
        log(DATES[4], *both), log(DATES[0], *both), passes(DATES[1], "a", torch="2.6.0"),
        log(DATES[2], *both, suites=("smoke",)),
    )  # fmt: skip
    assert [(each.backend, each.torch, each.suites, [entry.date for entry in each.entries]) for each in found.series] == [
        ("inductor", "2.6.0", ("core",), [DATES[1]]),
        ("inductor", "2.13.0", ("core",), [DATES[0], DATES[4]]),
        ("inductor", "2.13.0", ("smoke",), [DATES[2]]),
        ("openvino", "2.13.0", ("core",), [DATES[0], DATES[4]]),
        ("openvino", "2.13.0", ("smoke",), [DATES[2]]),
    ]  # fmt: skip


def test_the_newest_run_is_compared_with_the_one_before_and_with_a_week_and_a_month_ago() -> None:
    found = board(*(passes(date, "a") for date in DATES[:4]), log(DATES[4], failed("a")))
    (series,) = found.series
    steps = found.steps(series)
    assert [(step.since, step.old.date) for step in steps] == [
        ("the run before", DATES[3]), ("a week before", DATES[3]), ("a month before", DATES[0]),
    ]  # fmt: skip
    assert [len(step.comparison.section("broken")) for step in steps] == [1, 1, 1]
    first = board(passes(DATES[0], "a")).series[0]
    assert board(passes(DATES[0], "a")).steps(first) == []


def test_the_torch_before_is_the_next_older_version_not_the_next_text() -> None:
    found = board(
        passes(DATES[0], "a", torch="2.6.0"), passes(DATES[0], "a", torch="2.11.0"), log(DATES[0], failed("a"))
    )
    (step,) = found.steps(found.series[-1])
    assert (step.since, step.old.column.torch) == ("torch 2.11.0", "2.11.0")
    assert [change.id for change in step.comparison.section("broken")] == [failed("a").label]


def test_what_broke_in_a_week_leads_to_the_report_of_the_run() -> None:
    found = texts(board(passes(DATES[3], "a", "b"), log(DATES[4], failed("a"), finished("PASS", "b"))))
    index = found["index.html"]
    part = index[index.index('id="broken"') : index.index('id="files"')]
    (address,) = re.findall(r'<a href="(runs/[^"]+)"', part)
    assert re.fullmatch(r"runs/20261129-100000-[0-9a-f]{8}/failures/00001\.html", address)
    assert "it differs" in part and "::b[" not in part
    quiet = texts(board(passes(DATES[3], "a"), passes(DATES[4], "a")))["index.html"]
    assert "No variant that passed" in quiet and 'class="broken"' not in quiet


class Links(HTMLParser):
    """The links of a page, and the names that links may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.tags.append(tag)
        self.links += [values["href"] or ""] if "href" in values else []
        self.names |= {values["id"] or ""} if "id" in values else set()


def test_every_link_leads_to_a_page_and_a_place_of_the_site() -> None:
    logs = [
        log(date, *(result for backend in ("inductor", "openvino") for result in (
            failed("a", backend=backend, torch=torch) if number % 2 else finished("PASS", "a", backend, torch),
            finished("PASS", "b", backend, torch, file="other/models.spec.yaml"),
        )), torch=torch)
        for number, date in enumerate(DATES) for torch in ("2.6.0", "2.13.0")
    ]  # fmt: skip
    found = board(*logs)
    site = {name: Links(text) for name, text in pages(found) if name.endswith(".html")}
    assert len(site) == 1 + 2 + 2, "a page a backend and a file of cases"
    for name, page in site.items():
        for link in page.links:
            target, _, place = link.partition("#")
            if target.startswith("runs/"):
                assert "/".join(target.split("/")[:2]) in found.logs
            elif target != "board.css":
                assert not place or place in site[target or name].names, (name, link)
    reached = {link.partition("#")[0] for link in site["index.html"].links}
    assert {*site} - {"index.html"} <= reached


def test_a_page_of_a_file_of_cases_has_each_date_and_what_does_not_pass() -> None:
    found = texts(board(passes(DATES[0], "a"), log(DATES[4], failed("a"), planned("b"))))
    (page,) = [text for name, text in found.items() if name.startswith("cases-")]
    assert all(date in page for date in (DATES[0], DATES[4])) and DATES[1] not in page
    assert "100.0%" in page and "0.0%" in page and "NOT-RUN" in page


@pytest.mark.parametrize("text", [NASTY, "<script>alert(1)</script>", "../../etc/passwd", '"><a href="javascript:x">'])
def test_names_of_a_stranger_stay_text_and_never_leave_the_folder(text: str) -> None:
    results = [finished("PASS", text, text, text, file=text, suites=(text,))]
    bad = [failed(text, backend=text, torch=text, file=text)]
    logs = [
        log(DATES[0], *results, torch=text, argv=(text,), version=text),
        log(DATES[4], *bad, torch=text, suites=(text,)),
    ]
    found = texts(board(*logs, machine=text))
    for name, page in found.items():
        assert re.fullmatch(r"[a-z0-9.-]+", name), name
        if name.endswith(".html"):
            links = Links(page)
            assert "script" not in links.tags
            assert all(re.match(r"(runs/|backend-|cases-|index|board\.css|#)", link) for link in links.links)


def test_a_log_without_a_date_is_refused() -> None:
    with pytest.raises(UsageError, match="does not say when its run began: 'yesterday'"):
        board(Log(Path("a/events.jsonl"), [started(started="yesterday"), finished(), RunFinished(0, 1.0)]))
