from __future__ import annotations

import pytest

from runner.exit_codes import UsageError
from runner.record.store import USUAL_KEEP, Keep, keep_from_environment, parse_keep


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("50 runs, 2 GiB", USUAL_KEEP), ("2GiB,50 runs", USUAL_KEEP), ("50 runs", Keep(50, None)), ("1 run", Keep(1, None)), ("1.5 MiB", Keep(None, 3 << 19)),
        ("all", Keep()), (" all ", Keep()),
    ],
)  # fmt: skip
def test_rules(text: str, keep: Keep) -> None:
    assert parse_keep(text) == keep
    assert parse_keep(str(keep)) == keep


@pytest.mark.parametrize(
    "text", ["", "0 runs", "-1 runs", "50", "50 runs, 3 runs", "1 GiB, 2 GiB", "1e9 runs", "0 GiB", "50 runs,", "none", "9" * 5000 + " runs"]
)  # fmt: skip
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(ValueError, match="is no rule such as '50 runs, 2 GiB'"):
        parse_keep(text)


def test_holds() -> None:
    assert Keep(2, 10).holds(2, 10) and not Keep(2, 10).holds(3, 1) and not Keep(2, 10).holds(1, 11)
    assert Keep().holds(10**9, 10**18)


def test_the_environment_has_the_rule() -> None:
    assert keep_from_environment({}) == USUAL_KEEP and keep_from_environment({"RUNNER_KEEP": "3 runs"}) == Keep(3, None)
    with pytest.raises(UsageError, match="environment variable RUNNER_KEEP: 'x' is no rule"):
        keep_from_environment({"RUNNER_KEEP": "x"})
