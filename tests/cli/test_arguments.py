"""Values on the command line: their bounds, and what is said of those beyond."""

from __future__ import annotations

import argparse

import pytest

from runner.cli.arguments import integer, seconds
from runner.cli.main import build_parser
from runner.session.settings import COUNT, JOBS

BEYOND = ["\u00b2", "\u0663", "1_000", "1e3", "", " ", "0x10", "9" * 5000, "-" + "9" * 5000, "1.0"]


@pytest.mark.parametrize("text", BEYOND)
def test_only_plain_digits_are_a_number(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no whole number from 1 to 1024") as error:
        integer(1, 1024)(text)
    assert len(str(error.value)) < 100


@pytest.mark.parametrize(
    ("option", "least", "most"),
    [
        ("-j", 1, JOBS),
        ("--seed", -(2**63), 2**63 - 1),
        ("--retries", 0, COUNT),
        ("--stress", 1, COUNT),
        ("--max-fail", 1, 10**9),
    ],
)
def test_numbers_have_bounds(option: str, least: int, most: int, capsys: pytest.CaptureFixture[str]) -> None:
    parser = build_parser()
    for number in (least, most):
        arguments = parser.parse_args(["run", "a", f"{option}={number}" if option[1] == "-" else f"{option}{number}"])
        assert number in vars(arguments).values()
    for number in (least - 1, most + 1):
        with pytest.raises(SystemExit):
            parser.parse_args(["run", "a", f"{option}={number}" if option[1] == "-" else f"{option}{number}"])
        assert f"{number!r:.37}"[:10] in (message := capsys.readouterr().err) and f"from {least} to {most}" in message


@pytest.mark.parametrize(
    "text", ["-5s", "0", "0s", "9" * 400, "9" * 5000, "\u00b2s", "400d", "1e9", "", "inf", "9000h"]
)
def test_a_time_is_longer_than_0_and_at_most_a_year(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no time such as 90s, 10m or 2h, longer than 0"):
        seconds(text)
    assert seconds("2h") == 7200.0


def test_what_was_typed_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["run", "a", "--\x1b[2J\u202e"])
    assert "\x1b" not in (message := capsys.readouterr().err) and "u202e" in message


def test_a_value_that_looks_like_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["run", "a", "--budget", "-5s"])
    assert "(a value that begins with - is written --budget=VALUE)" in capsys.readouterr().err
