"""What a planned variant is called."""

from __future__ import annotations

from pathlib import Path

from runner.session.identity import planned_event
from runner.session.plan import plan
from tests.handmade import environment, variants


def test_announcements_of_one_case_share_its_name(tmp_path: Path) -> None:
    first, second = map(planned_event, plan(variants(tmp_path, "params: {n: [1, 2]}"), [environment()]))
    assert first.case.endswith("a.spec.yaml::a") and first.case is second.case
