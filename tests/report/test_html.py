"""The page of a diagnosis: whole, without JavaScript, and safe whatever a worker said."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from runner.diagnose.diagnosis import Diagnosis
from runner.report.diagnosis import bars, heat_map, page
from tests.report.events_sample import NASTY
from tests.report.pictures import PICTURE, crash, diagnosis, wrong

VOID = {"meta", "br", "hr", "img", "link", "input"}
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror='alert(2)'> & \"quoted\""


class Read(HTMLParser):
    """Elements, attributes and text; an element that is not closed in order fails the test."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += 1
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += 1
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(result: Diagnosis, picture: Any = None) -> Read:
    return Read(page(result, picture))


def test_everything_of_a_wrong_value_is_on_the_page() -> None:
    html = read(diagnosis(), {"picture": PICTURE, "reason": ""})
    assert html.count["svg"] >= 2 and html.count["html"] == 1
    for words in (
        "a.spec.yaml::a[float32,cpu]@inductor", "first shown here", "lowerings", "the 3rd", "relu, the second of two, a.spec.yaml:14", "without vectorization",
        "torch._inductor.config.cpp.simdlen = 1", "gone", "output[0]", "3 of 24 elements lie beyond the tolerance",
        "mismatched 3 of 24", "would pass at 10000000 times eager's error", "runner issue", "12.5s",
    ):  # fmt: skip
        assert words in html.text, words


def test_each_command_on_the_page_is_told_what_it_takes() -> None:
    text = Read(
        page(diagnosis(), None, ["PYTHONHASHSEED=7", "runner", "run", "a", "--allow-python", "--seed", "3"])
    ).text
    assert "PYTHONHASHSEED=7 runner reduce a --allow-python --seed 3" in text
    assert "PYTHONHASHSEED=7 runner repro a --allow-python" in text and "repro a --allow-python --seed" not in text


def test_the_page_needs_no_javascript_and_no_network() -> None:
    html = read(diagnosis(), {"picture": PICTURE, "reason": ""})
    assert not html.count["script"] and not html.count["link"] and not html.count["iframe"] and not html.count["img"]
    names = {name for name, _ in html.attributes}
    assert not {name for name in names if name.startswith("on")} and not names & {"src", "href"}


@pytest.mark.parametrize("bad", [HOSTILE, NASTY])
def test_a_hostile_message_stays_text(bad: str) -> None:
    error = {"type": bad, "message": bad, "chain": [bad, bad], "trace": bad}
    hostile = diagnosis(
        wrong(message=bad, path=bad, error=error, numbers={bad: bad}),
        id=bad, reason=bad, bisect_note=bad, labels=(bad,), notes=(bad,), stages={bad: bad}, verdict=bad, torch=bad,
    )  # fmt: skip
    picture = {**copy.deepcopy(PICTURE), "path": bad, "dtype": bad}
    html = read(hostile, {"picture": picture, "reason": bad})
    assert not html.count["script"] and not html.count["img"]
    assert "onerror" not in {name for name, _ in html.attributes}
    page(hostile, {"picture": None, "reason": bad}).encode("utf-8")  # no half of a character is left


def test_a_crash_shows_its_error_and_its_trace() -> None:
    html = read(diagnosis(crash(), verdict="ERROR"), {"picture": None, "reason": "the compiled run raised"})
    assert "InductorError: AssertionError: cannot lower" in html.text
    assert "Caused by AssertionError" in html.text
    assert "return torch.relu(x)" in html.text
    assert "No picture of the error: the compiled run raised." in html.text
    assert not html.count["svg"]


def test_who_raised_is_on_the_page() -> None:
    finding = crash()
    error = {**finding.error, "origin": {"raised_by": "torch", "called_by": "<b>"}}
    html = read(diagnosis(replace(finding, error=error), verdict="ERROR"), {"picture": None, "reason": "x"})
    assert "Raised by torch, called by <b>." in html.text and "Raised by" not in read(diagnosis(finding)).text


def test_little_is_known() -> None:
    bare = Diagnosis("a", "2.13.0", "PASS")
    html = read(bare)
    assert "Nothing was bisected" in html.text
    assert "No picture" not in html.text


def test_no_float64_run_is_said() -> None:
    html = read(diagnosis(), {"picture": {**PICTURE, "histogram": None}, "reason": ""})
    assert "no float64 run" in html.text


def test_the_heat_map_says_where_and_how_much() -> None:
    picture = heat_map(PICTURE)
    cells = {(cell.x, cell.y): cell for cell in picture.cells}
    assert (picture.columns, picture.rows) == (2, 3)
    assert set(cells) == {(1, 0), (0, 1), (0, 2), (1, 2)}
    assert cells[1, 0].shade == "h1" and cells[0, 2].shade == "h7"
    assert cells[0, 2].text == "[1, 1, 0] to [1, 2, 1]: error 1, relative 0.5"
    assert cells[1, 0].text == "[0, 0, 2] to [0, 1, 3]: error 0.001, relative inf"
    assert "first 2 dimensions, flattened" in picture.layout and "2 x 2 elements" in picture.layout


def test_nan_positions_are_marked_and_named() -> None:
    cells = {(cell.x, cell.y): cell for cell in heat_map(PICTURE).cells}
    assert cells[0, 1].shade == "misplaced"
    assert cells[0, 1].text == "[0, 2, 0] to [1, 0, 1]: NaN or infinite on one side alone"
    assert cells[1, 2].shade == "alike"
    html = read(diagnosis(), {"picture": PICTURE, "reason": ""})
    assert "NaN or infinite on one side alone" in html.text
    assert "[0, 2, 1] nan 0 nan" in html.text


@pytest.mark.parametrize(
    ("shape", "grid", "text"),
    [
        ([3], {"width": 3, "row_span": 1, "column_span": 1, "cells": (1, 3)}, "[2]"),
        ([130], {"width": 64, "row_span": 1, "column_span": 1, "cells": (3, 64)}, "[63]"),
        ([], {"width": 1, "row_span": 1, "column_span": 1, "cells": (1, 1)}, "[]"),
        ([4, 300], {"width": 300, "row_span": 1, "column_span": 5, "cells": (4, 60)}, "[0, 295:300]"),
    ],
)
def test_a_cell_names_its_indices(shape: list[int], grid: dict[str, Any], text: str) -> None:
    rows, columns = grid.pop("cells")
    errors = [[0.0] * columns for _ in range(rows)]
    errors[0][-1] = 2.0
    kinds = [[0] * columns for _ in range(rows)]
    (cell,) = heat_map({"shape": shape, "grid": {**grid, "absolute": errors, "relative": errors, "kind": kinds}}).cells
    assert cell.text.partition(":" if text.count(":") == 0 else ": ")[0] == text


def test_bars_share_one_scale() -> None:
    histogram = bars(PICTURE["histogram"])
    assert [(bar.label, bar.eager, bar.compiled) for bar in histogram] == [
        ("exact", 9, 8), ("1e-7", 4, 3), ("1e-6", 0, 2), ("of 0", 0, 1),
    ]  # fmt: skip
    assert histogram[0].eager_height == 1.0 and histogram[2].eager_height == 0.0
    assert 0 < histogram[3].compiled_height < histogram[2].compiled_height < 1


def test_equal_errors_have_one_shade() -> None:
    grid = {**PICTURE["grid"], "absolute": [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]], "kind": [[0, 0], [0, 0], [0, 0]]}
    picture = heat_map({**PICTURE, "grid": grid})
    assert {cell.shade for cell in picture.cells} == {"h7"} and picture.legend == (("h7", "1"),)
