"""Ranges made narrower by what was seen."""

from __future__ import annotations

import itertools

import pytest

from runner.cases.versions import matches, narrow_range, smallest_range


@pytest.mark.parametrize(
    ("text", "keep", "out", "expected"),
    [
        # matched under the older, passes under the newer
        ("<=2.13", ["2.6.0"], ["2.13.0"], "<=2.6"),
        ("<2.14", ["2.6.0"], ["2.13.0"], "<=2.6"),
        (None, ["2.6.0"], ["2.13.0"], "<=2.6"),
        (">=2.6,<=2.13", ["2.6.0"], ["2.13.0"], "==2.6"),
        ("<=2.13", ["2.6.0", "2.9.1"], ["2.13.0"], "<=2.9"),
        # passes under the older
        ("<=2.13", ["2.13.0"], ["2.6.0"], "==2.13"),
        (None, ["2.13.0"], ["2.6.0"], ">=2.13"),
        (">=2.6", ["2.13.0"], ["2.6.0"], ">=2.13"),
        # in the middle
        ("<=2.13", ["2.6.0", "2.13.0"], ["2.9.0"], "<=2.13,!=2.9"),
        (None, ["2.6.0", "2.13.0"], ["2.9.0"], "!=2.9"),
        (None, ["2.9.0"], ["2.6.0", "2.13.0"], "==2.9"),
        # three numbers where two do not tell them apart
        ("<=2.13", ["2.13.0"], ["2.13.1"], "<=2.13.0"),
        ("==2.13", ["2.13.0"], ["2.13.1"], "==2.13,<=2.13.0"),
        # nothing matched
        ("<=2.13", [], ["2.13.0"], "<2.13"),
        ("<=2.13", [], ["2.9.0", "2.13.0"], "<2.9"),
        (">=2.7,<=2.13", [], ["2.13.0"], ">=2.7,<2.13"),
        (">=2.7", [], ["2.13.0"], ">=2.7,<2.13"),
        ("!=2.9", [], ["2.13.0"], "!=2.9,<2.13"),
        # nothing remains
        (None, [], ["2.13.0"], ""),
        ("==2.13", [], ["2.13.0"], ""),
        (">=2.13", [], ["2.13.0"], ""),
        (">=2.13,<2.14", [], ["2.13.1"], ""),
        ("<=2.6", [], ["2.6.0"], ""),  # older ones are not supported
        ("<=2.13", [], ["2.6.0", "2.13.0"], ""),
        # as it was
        ("<=2.6", ["2.6.0"], ["2.13.0"], "<=2.6"),
        ("<= 2.6", [], ["2.13.0"], "<= 2.6"),
        (None, ["2.6.0"], [], None),
    ],
)
def test_a_range_is_narrowed(text: str | None, keep: list[str], out: list[str], expected: str | None) -> None:
    assert narrow_range(text, keep, out) == expected


def test_nightlies_of_one_release_cannot_be_told_apart() -> None:
    with pytest.raises(ValueError, match="do not tell them apart"):
        narrow_range("<=2.15", ["2.15.0.dev20260101"], ["2.15.0.dev20260102"])
    with pytest.raises(ValueError, match="do not tell them apart"):
        smallest_range(["2.15.0.dev20260101"], ["2.15.0.dev20260102"])


def test_a_narrowed_range_holds_what_stays_and_nothing_that_falls_out() -> None:
    versions = ["2.6.0", "2.7.1", "2.9.0", "2.13.0", "2.13.1"]
    ranges = [None, "<=2.13", ">=2.6", ">=2.7,<=2.13", "!=2.8", "<2.14,!=2.10"]
    for marks in itertools.product("ko ", repeat=len(versions)):
        for text in ranges:
            keep = [v for v, mark in zip(versions, marks, strict=True) if mark == "k" and matches(text, v)]
            out = [v for v, mark in zip(versions, marks, strict=True) if mark == "o"]
            narrowed_range = narrow_range(text, keep, out)
            if narrowed_range:
                assert all(matches(narrowed_range, v) for v in keep) and not any(
                    matches(narrowed_range, v) for v in out
                ), (text, keep, out)
            elif narrowed_range == "":
                assert not keep


@pytest.mark.parametrize(
    ("keep", "out", "expected"),
    [
        (["2.13.0"], [], "==2.13"),
        (["2.13.0", "2.6.0"], [], ">=2.6,<=2.13"),
        (["2.13.0", "2.6.0"], ["2.9.0"], ">=2.6,<=2.13,!=2.9"),
        (["2.13.1"], ["2.13.0", "2.6.0"], "==2.13.1"),
    ],
)
def test_only_what_was_seen_is_claimed(keep: list[str], out: list[str], expected: str) -> None:
    assert smallest_range(keep, out) == expected
