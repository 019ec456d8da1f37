"""The table, the words under it, and the bars."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree

import pytest

from runner.benchmark.measure import Traffic
from runner.report.benchmark import bars, page, render, significant, size, svg, time
from tests.benchmark.samples import missing, report, row, side

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(7.891, "7.89 s"), (123.4, "123 s"), (0.99996, "1.00 s"), (4.56e-3, "4.56 ms"), (12.34e-6, "12.3 µs"), (853e-9, "853 ns"), (0.0, "0 ns")],
)  # fmt: skip
def test_times_have_three_digits(seconds: float, text: str) -> None:
    assert time(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "0.999 KiB"), (512, "512 B"), (5 << 20, "5 MiB"), (1288490, "1.23 MiB"), (1 << 50, "1024 TiB")])  # fmt: skip
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(("value", "text"), [(0.012345, "0.0123"), (9.999, "10.0"), (1234.5, "1234"), (99.96, "100")])
def test_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert significant(value) == text


def test_a_row_has_its_figures() -> None:
    text = render(report(row()))
    for figure in ("12.0 s", "500 ms", "2.00 ms ±1%", "1.00 ms ±1%", "2.00", "1 MiB", "1.05", "10%"):
        assert figure in text, figure
    for absent in ("not timed", "notes", "~2.00", ">="):
        assert absent not in text, absent
    assert "A processor, 2 threads" in text and "not judged" in text


def test_doubts_are_marked() -> None:
    unclear = row(
        "close",
        eager=1.01e-3,
        compiled=1e-3,
        half=0.1,
        traffic=Traffic(1 << 20, "inputs+outputs"),
        notes=("it writes",),
    )
    text = render(report(unclear, missing("timeout", "no answer after 5 s", cold=unclear.cold)))
    assert "~1.01" in text and ">=1 MiB" in text and "is a lower bound" in text
    assert "gone[float32,cpu]@inductor: timeout: no answer after 5 s (compiled cold in 12.0 s)" in text
    assert "close[float32,cpu]@inductor: it writes" in text


def test_a_machine_that_others_use_is_told() -> None:
    assert "others were at work" not in render(report(row()))
    assert "load 0.80 a processor" in render(dataclasses.replace(report(row()), load=0.8))


def test_launches_stand_beside_the_kernels_that_were_made() -> None:
    assert "3 (" not in render(report(row()))
    timing = dataclasses.replace(row(), eager=side(2e-3, launches=7), compiled=side(1e-3, launches=2))
    assert "3 (7 to 2)" in render(report(timing))


def test_nothing_timed_is_no_table() -> None:
    text = render(report(missing()))
    assert text.startswith("not timed\n") and "speed-up" not in text and "no device cuda here" in text


def test_bars_have_one_scale_and_say_who_is_faster() -> None:
    drawing, ticks = bars(report(row("fast", 2e-3, 1e-3), row("slow", 1e-3, 2e-3), row("same", 1e-3, 1e-3), missing()))
    assert [bar.kind for bar in drawing] == ["faster", "slower", "unclear", "missing"]
    assert drawing[0].x == pytest.approx(4 * drawing[1].x) and drawing[0].low < drawing[0].x < drawing[0].high
    unit = next(x for x, text in ticks if text == "1")
    assert drawing[2].x == pytest.approx(unit)
    assert ticks[0] == (0.0, "0") and len(ticks) <= 8 and ticks[-1][0] >= drawing[0].x


def test_noise_does_not_set_the_scale() -> None:
    noisy, ticks = bars(report(row("noisy", 1e-3, 1e-3, half=0.99)))
    assert noisy[0].high <= ticks[-1][0] and float(ticks[-1][1]) < 3


@pytest.mark.parametrize("rows", [[row("<b>&", 3e-3), missing("crash", "x < y & \x00")], [missing()], []])
def test_the_picture_is_xml_without_scripts(rows: list[object]) -> None:
    text = svg(report(*rows))  # type: ignore[arg-type]
    root = ElementTree.fromstring(text.encode())
    assert root.tag == f"{SVG}svg" and not root.findall(f".//{SVG}script")
    assert len(
        [item for item in root.iter(f"{SVG}rect") if item.get("class") in ("faster", "slower", "unclear")]
    ) == sum(
        item.status == "timed"  # type: ignore[attr-defined]
        for item in rows
    )
    if rows and rows[0].status == "timed":  # type: ignore[attr-defined]
        assert "&lt;b&gt;&amp;" in text


def test_the_page_holds_the_picture_and_the_table() -> None:
    text = page(report(row("<i>")))
    assert text.startswith("<!DOCTYPE html>") and "<svg" in text and "<?xml" not in text
    assert "2.00 ms ±1%" in text and "<script" not in text and "&lt;i&gt;" in text and "<i>" not in text
