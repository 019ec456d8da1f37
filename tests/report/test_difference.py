"""The difference of two sides on a terminal, in Markdown, as JSON and as a page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from runner.console import painted
from runner.record.events import RunFinished, VariantFinished
from runner.record.store import Log
from runner.report import difference
from runner.report.difference import SECTIONS, Comparison, compare, page, render, render_markdown, sides, to_dict
from runner.text import visible
from tests.hostile import PAYLOADS

from .events_sample import failure, finished, started, value_finding
from .test_hostile import markup

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "schema" / "diff.schema.json").read_text())
STRIDE = value_finding(oracle="stride")
COMMAND = "runner run 'specs/a.spec.yaml::{}' --no-known"


def comparison(old: list[VariantFinished], new: list[VariantFinished], **end: Any) -> Comparison:
    logs = [Log(Path(name), [started(run=name), *results, RunFinished(0, 1.0, **end)]) for name, results in (("old", old), ("new", new))]  # fmt: skip
    return compare(*sides(*logs))


def every_section() -> Comparison:
    def passed(name: str, seconds: float = 1.0, torch: str = "2.6.0") -> VariantFinished:
        return finished("PASS", name, torch=torch, spent={"torch": seconds})

    def failed(name: str, **fields: Any) -> VariantFinished:
        return failure(name=name, repro=COMMAND.format(name), **fields)

    names = ("stride", "worse", "worse_too", "slow", "lost", "noted", "fine")
    old = [*map(passed, names), failed("better", torch="2.6.0"), failed("other", torch="2.6.0")]
    new = [
        failed("stride", findings=(STRIDE,), oracles=("stride",)),
        failed("worse"),
        failed("worse_too"),
        passed("slow", 9.0, "2.13.0"),
        finished("SKIP", "lost", reason="no GPU"),
        finished("XFAIL", "noted", findings=(STRIDE,)),
        passed("fine", 1.0, "2.13.0"),
        passed("better", 1.0, "2.13.0"),
        failed("other", findings=(STRIDE,), oracles=("stride",)),
        passed("added", 1.0, "2.13.0"),
    ]
    return comparison(old, new)


def test_the_terminal_shows_each_section_broken_first() -> None:
    text = render(every_section(), 120)
    heads = re.findall(r"^(\w+): \d variants?\b", text, re.MULTILINE)
    assert heads == [*SECTIONS]
    assert text.endswith("3 broken, 1 changed, 1 expected, 1 fixed, 1 slower, 1 new, 1 gone, 1 the same")
    assert "1.00s to 9.00s in torch, 9.0 times" in text and "SKIP: no GPU" in text
    assert text.startswith("old: torch 2.6.0 (run old, old)\nnew: torch 2.13.0 (run new, new)\n")


def test_what_is_broken_is_grouped_the_worst_first_with_its_commands() -> None:
    text = render(every_section(), 120).partition("broken:")[2].partition("changed:")[0]
    places = [text.index(word) for word in ("wrong-result", COMMAND.format("worse"), COMMAND.format("worse_too"), "metadata", COMMAND.format("stride"))]  # fmt: skip
    assert places == sorted(places)
    assert text.count("wrong-result") == 1


def test_what_changed_shows_both_signatures() -> None:
    text = render(every_section(), 120).partition("changed:")[2].partition("expected:")[0]
    assert "stride at inductor" in text and re.search(r"was [0-9a-f]{8} value at inductor", text)


def test_only_ids_and_commands_pass_80_columns() -> None:
    result = every_section()
    wide = [line for line in render(result, 80).split("\n") if len(line) > 80]
    assert [line for line in wide if "runner run" not in line] == []
    ids = "".join(line.strip() for line in render(result, 80).split("\n"))
    assert all(change.id in ids for change in result.changes)


def test_a_limit_says_how_many_are_left_out() -> None:
    text = render(every_section(), 120, limit=1)
    assert text.count("PASS > FAIL") == 1 and "and 2 more, which --json FILE holds" in text
    assert "more, which" not in render(every_section(), 120, limit=3)


def test_colours_are_those_of_the_paint_alone() -> None:
    assert "\x1b" not in render(every_section(), 120)
    text = render(every_section(), 120, painted)
    assert "\x1b[31mbroken: 3 variants\x1b[0m" in text
    assert re.sub(r"\x1b\[\d+m", "", text) == render(every_section(), 120)


def test_a_run_that_did_not_end_is_told() -> None:
    result = comparison([finished(name="a"), finished(name="b")], [finished(name="a")], interrupted=True)
    for text in (render(result, 120), render_markdown(result), page(result)):
        assert "the new run did not end: 0 variants without a verdict" in text


def test_json_fits_the_published_schema() -> None:
    document = to_dict(every_section())
    jsonschema.Draft7Validator(SCHEMA).validate(document)
    assert document["counts"] == {**{name: 1 for name in SECTIONS}, "broken": 3, "same": 1}
    assert [change["section"] for change in document["changes"]] == [
        name for name in SECTIONS for _ in range(3 if name == "broken" else 1)
    ]
    first = document["changes"][0]
    assert (first["old"]["verdict"], first["new"]["verdict"], first["new"]["severity"]) == ("PASS", "FAIL", "wrong-result")  # fmt: skip
    assert first["new"]["command"] == COMMAND.format("worse")
    assert [*SCHEMA["properties"]["counts"]["required"]] == [*SECTIONS, "same"]
    assert [*SCHEMA["definitions"]["change"]["properties"]["section"]["enum"]] == [*SECTIONS]


def test_markdown_shows_each_section() -> None:
    text = render_markdown(every_section())
    assert text.startswith("## Broken: 3 variants\n")
    assert re.findall(r"^### (\w+): (\d)$", text, re.MULTILINE) == [
        (name, "3" if name == "broken" else "1") for name in SECTIONS
    ]
    assert f"$ {COMMAND.format('worse')}\n" in text
    assert render_markdown(comparison([finished()], [finished()])).startswith("## Nothing is broken\n")


class _Tags(HTMLParser):
    """Collects the tags with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[Any] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))


def test_the_page_links_each_section() -> None:
    text = page(every_section())
    for name in SECTIONS:
        assert f'href="#{name}"' in text and f'<h2 id="{name}"' in text
    assert "<script" not in text and "http" not in text


def test_markdown_and_the_page_name_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "_ROWS", 2)
    result = every_section()
    assert "* and 1 more" in render_markdown(result) and "and 1 more" in page(result)
    assert (
        render_markdown(result).count("* PASS to FAIL") == 2 and page(result).count("<td>PASS</td><td>FAIL</td>") == 2
    )


def hostile(word: str) -> Comparison:
    """The same sections with a text at each place that a log fills."""
    finding = value_finding(message=word, path=word, stage=word)

    def bad(name: str, **fields: Any) -> VariantFinished:
        return failure(name=name + word, reason=word, stage=word, operator=word, findings=(finding,), repro=f"runner run {word} ; id", **fields)  # fmt: skip

    old = [finished(name="a" + word, torch=word), finished(name="b" + word, torch=word), bad("c", torch=word), bad("d", torch=word)]  # fmt: skip
    new = [
        bad("a", torch=word + "2"),
        finished("SKIP", "b" + word, torch=word + "2", reason=word),
        finished("FLAKY", "c" + word, torch=word + "2", reason=word * 2),
        finished(name="d" + word, torch=word + "2"),
    ]
    logs = [Log(Path(word + name), [started(run=word), *results]) for name, results in (("1", old), ("2", new))]
    return compare(*sides(*logs))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_log_brings_markup_or_control_characters(payload: str) -> None:
    result = hostile(PAYLOADS[payload])
    text = render(result, 80)
    assert visible(text) == text
    assert len(text.split("\n- ")) == 1 and text.count("\nbroken: 1 variant") == 1
    markdown = render_markdown(result)
    assert visible(markdown) == markdown
    assert markup(markdown) == markup(render_markdown(hostile("x")))
    html = page(result)
    assert visible(html) == html
    assert _Tags(html).tags == _Tags(page(hostile("x"))).tags
    json.dumps(to_dict(result)).encode()
