"""``runner selftest``: every planted bug is caught, under the right word and at the right stage, and every twin is quiet."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from runner.selftest import BUGS

from .driver import Result


@pytest.mark.nightly
def test_every_planted_bug_is_caught_and_every_twin_is_quiet(run_runner: Callable[..., Result]) -> None:
    ran = run_runner("selftest", "-j", "2", limit=400)
    assert ran.code == 0, ran.text
    assert f"mutation score: {len(BUGS)} of {len(BUGS)} caught; {len(BUGS)} of {len(BUGS)} twins quiet" in ran.out
    assert "MISSED" not in ran.out
    for bug in BUGS:
        assert re.search(rf"^{bug.bug} +caught +.*{'|'.join(bug.oracles)}", ran.out, re.MULTILINE), bug
