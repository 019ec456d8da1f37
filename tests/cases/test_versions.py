"""``runner.cases.versions``."""

from __future__ import annotations

import pytest

from runner.cases.versions import matches, parse_range, release_of


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("<=2.13", ["2.13.1", "2.13.0+cpu", "2.13.0.dev2026", "2.13.0.dev20260101+cu128", "2.13", "2.12.9", "1.0"], ["2.14.0", "3.0"]),
        ("<2.7", ["2.6.0", "2.6.9+cu124", "2.1"], ["2.7.0", "2.7.0.dev20250101", "2.7.1", "2.10.0"]),
        ("==2.6", ["2.6", "2.6.0", "2.6.1+cpu", "2.6.0a0+git123"], ["2.5.1", "2.7.0", "2.60.0"]),
        ("==2.6.1", ["2.6.1", "2.6.1+cpu"], ["2.6.0", "2.6"]),
        (">=2.7,<2.9", ["2.7.0", "2.8.1", "2.7.0.dev1"], ["2.6.9", "2.9.0", "2.9.0.dev1", "2.10"]),
        (">2.6", ["2.7.0"], ["2.6.0", "2.6.1"]),
        ("!=2.6", ["2.5.0", "2.7.0"], ["2.6.0", "2.6.3"]),
        (" >= 2.7 , < 2.9 ", ["2.7.0"], ["2.9.0"]),
        ("<=2", ["2.99.1", "1.13"], ["3.0.0"]),
        ("<=2.6.0", ["2.6"], ["2.6.1"]),
    ],
)  # fmt: skip
def test_a_version_compares_at_the_precision_written(text: str, inside: list[str], outside: list[str]) -> None:
    assert [v for v in inside if not matches(text, v)] == []
    assert [v for v in outside if matches(text, v)] == []


def test_no_range_holds_every_version() -> None:
    assert matches(None, "2.6.0") and matches(None, "0.0.1")


def test_ten_is_more_than_nine() -> None:
    assert matches("<=2.9", "2.8.0") and not matches("<=2.9", "2.10.0") and matches(">=2.9", "2.10.0")


@pytest.mark.parametrize(
    "text", ["", "2.6", "~=2.6", "<=2.x", "=2.6", "<=2.6 <=2.7", "<=2.6,", "<=", "<=2.6;>1", "latest", "<=2.6.dev1"]
)
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no version comparison, such as '<=2\.6'"):
        parse_range(text)


def test_the_part_that_is_wrong_is_named() -> None:
    with pytest.raises(ValueError, match=r"^'~2\.9' is no version"):
        parse_range(">=2.7, ~2.9")


@pytest.mark.parametrize(
    ("version", "release"),
    [("2.13.0+cpu", (2, 13, 0)), ("2.13.0.dev20260101", (2, 13, 0)), ("2.6", (2, 6)), ("2.7.0a0+gitabc", (2, 7, 0)), ("2.6.0-custom-5", (2, 6, 0))],
)  # fmt: skip
def test_releases(version: str, release: tuple[int, ...]) -> None:
    assert release_of(version) == release
