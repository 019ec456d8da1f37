"""The score on a terminal, in Markdown, as JSON and as a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from runner.record.events import RunFinished, VariantFinished
from runner.report import score as report
from runner.report.score import OUTCOMES, Score, badge, names, render, render_markdown, score, to_dict
from runner.text import visible
from tests.hostile import PAYLOADS

from .events_sample import failure, finished, started, value_finding
from .test_hostile import markup

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "schema" / "score.schema.json").read_text())
STRIDE = value_finding(oracle="stride")


def results(backend: str, torch: str = "2.13.0") -> list[VariantFinished]:
    """Two passes of five judged variants, one unclaimed and one skipped."""

    def one(verdict: str, name: str, **fields: Any) -> VariantFinished:
        return finished(verdict, name, backend, torch, **fields)

    return [
        one("PASS", "a"), one("PASS", "b"), one("FAIL", "c", findings=(STRIDE,), oracles=("stride",)),
        one("XFAIL", "d", findings=(value_finding(),), oracles=("value",)), one("VACUOUS", "e"),
        one("SKIP", "f", unclaimed="gradients"), one("SKIP", "g"),
    ]  # fmt: skip


def scored(*backends: str, torches: tuple[str, ...] = ("2.13.0",), runs: int = 1, **end: Any) -> Score:
    events = [event for torch in torches for backend in backends for event in results(backend, torch)]
    logs = [(f"log{n}", [started(*torches, run=f"r{n}"), *events, RunFinished(1, 1.0, **end)]) for n in range(runs)]
    return score(logs)


def cells(text: str, row: str) -> list[list[str]]:
    """The cells of each row of that name; without headings and lines of prose."""
    rows = [line.split() for line in text.split("\n")]
    return [line[1:] for line in rows if line[:1] == [row] and any(any(map(str.isdigit, cell)) for cell in line[1:])]


def test_the_terminal_shows_shares_counts_and_ways_to_fail() -> None:
    text = render(scored("inductor", "openvino"), 80)
    assert cells(text, "conformance")[0] == ["40.0%"] * 2
    assert cells(text, "weighed")[0] == ["54.2%"] * 2  # (2 * 7 + 5) / 35
    assert cells(text, "claim")[0] == ["85.7%"] * 2  # 6 of 7
    assert cells(text, "overall")[0] == ["33.3%"] * 2  # 2 of 6
    for outcome, count in {"PASS": 2, "FAIL": 1, "XFAIL": 1, "VACUOUS": 1, "unclaimed": 1, "SKIP": 1, "planned": 7}.items():  # fmt: skip
        assert cells(text, outcome) == [[str(count)] * 2]
    assert cells(text, "gradients") == [["1", "1"]]
    assert cells(text, "ERROR") == [] and "by device" not in text
    assert "failures by kind of difference" in text and "oracle" not in text
    assert cells(text, "silent") == [["40.0%", "2/5", "of", "6"] * 2]
    assert cells(text, "value") == [["1", "(1", "known)"] * 2] and cells(text, "stride") == [["1", "1"]]
    assert cells(text, "metadata") == [["5/7", "1", "1"]]


def test_it_fits_80_columns_whatever_the_number_of_backends() -> None:
    text = render(scored("eager", "aot_eager", "inductor", "runner.worker.planted:to_double", "openvino"), 80)
    assert [line for line in text.split("\n") if len(line) > 80] == []
    assert [len(row) for row in cells(text, "conformance")] == [5]
    assert len(cells(text, "float32")) > 1 and sum(row.count("2/5") for row in cells(text, "float32")) == 5


def test_what_tells_columns_apart() -> None:
    assert names(scored("inductor")) == ["inductor"]
    assert names(scored("inductor", torches=("2.6.0", "2.13.0"))) == ["inductor 2.6.0", "inductor 2.13.0"]
    assert names(scored("inductor", runs=2)) == ["inductor (1)", "inductor (2)"]


def test_a_run_that_is_not_complete_says_so_everywhere() -> None:
    whole = scored("inductor", interrupted=True)
    for text in (render(whole, 200), render_markdown(whole)):
        assert "the run is not complete: 0 variants without a verdict" in text
    assert "40.0% of 85.7% claimed, incomplete" in badge(whole)
    assert "incomplete" not in badge(scored("inductor"))
    shard = score([("log", [started(shard="2/4"), finished(), RunFinished(0, 1.0)])])
    assert "shard 2/4" in render(shard, 80) and "incomplete" in badge(shard)


def test_columns_of_different_variants_say_so() -> None:
    events = [
        started(),
        finished(name="a"),
        finished(name="b"),
        finished(name="a", backend="eager"),
        RunFinished(0, 1.0),
    ]
    assert "do not have the same variants: all have 1 of 2" in render(score([("log", events)]), 200)
    assert "do not have" not in render(scored("eager", "inductor"), 200)


def test_json_fits_the_published_schema() -> None:
    document = json.loads(json.dumps(to_dict(scored("eager", "inductor", runs=2))))
    jsonschema.Draft7Validator(SCHEMA).validate(document)
    assert [(c["backend"], c["run"]) for c in document["columns"]] == [("eager", 1), ("eager", 2), ("inductor", 1), ("inductor", 2)]  # fmt: skip
    total = document["columns"][0]["total"]
    assert total["conformance"] == {"part": 2, "whole": 5, "percent": 40.0}
    assert SCHEMA["definitions"]["tally"]["properties"]["outcomes"]["propertyNames"]["enum"] == [*OUTCOMES]
    nothing = to_dict(score([("log", [started(), finished("SKIP"), RunFinished(0, 1.0)])]))
    jsonschema.Draft7Validator(SCHEMA).validate(json.loads(json.dumps(nothing)))


def test_markdown_has_the_same_tables() -> None:
    text = render_markdown(scored("eager", "inductor"))
    assert "| | eager | inductor |\n| --- | ---: | ---: |\n| conformance | 40.0% | 40.0% |" in text
    assert "`runner run specs`" in text


def test_markdown_shows_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_ROWS", 2)
    assert "and 2 more rows" in render_markdown(scored("inductor"))


def test_the_badge_draws_what_passes_what_was_judged_and_the_rest() -> None:
    picture = ElementTree.fromstring(badge(scored("inductor", "openvino")))
    rects = [r for r in picture.iter("{http://www.w3.org/2000/svg}rect") if r.get("height") == "4"]
    assert [(r.get("class"), float(r.get("width") or 0)) for r in rects[:3]] == [
        ("unclaimed", 260), ("judged", pytest.approx(260 * 5 / 6, abs=0.1)), ("passed", pytest.approx(260 * 2 / 6, abs=0.1)),
    ]  # fmt: skip
    assert len(rects) == 6


def hostile(word: str) -> Score:
    """A run with a text at each place that a log fills."""
    stranger = failure(name=word, backend=word, torch=word, file=word + ".spec.yaml", oracles=(word,), findings=(value_finding(oracle=word),))  # fmt: skip
    events = [started(word, run=word, argv=("runner", word), started=word, version=word, shard=word), stranger]
    events.append(finished("SKIP", name=word + "2", backend=word, torch=word, file=word + ".spec.yaml", unclaimed=word))
    return score([(word, events), (word, events)])


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_log_brings_markup_or_control_characters(payload: str) -> None:
    score, plain = hostile(PAYLOADS[payload]), hostile("x")
    text = render(score, 80)
    assert visible(text) == text and text.count("\nconformance by family\n") == 1
    markdown = render_markdown(score)
    assert visible(markdown) == markdown
    assert markup(markdown) == markup(render_markdown(plain))
    picture = badge(score)
    assert visible(picture) == picture
    tags = [[(e.tag, sorted(e.attrib)) for e in ElementTree.fromstring(p).iter()] for p in (picture, badge(plain))]
    assert tags[0] == tags[1]
    json.dumps(to_dict(score)).encode()
