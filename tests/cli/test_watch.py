"""``runner watch`` in this process: what it keeps over many saves. ``tests/black_box/test_watch.py`` has the rest."""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

import pytest

from runner.cli.arguments import settings_of
from runner.cli.main import build_parser
from runner.cli.watch import Watch
from runner.engine.fingerprint import Fingerprint
from runner.session.run import Plan
from runner.session.warm import WarmSession
from runner.session.watched import Watcher
from tests.handmade import written

CASES = "cases:\n" + "".join(
    f"  - {{name: case_{number}, inputs: {{x: [4]}}, chain: [F.relu]}}\n" for number in range(100)
)


def parsed(*words: str) -> argparse.Namespace:
    return build_parser().parse_args(["watch", *words])


def test_what_many_saves_have_read_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path, CASES)
    sizes: list[int] = []

    class Saves(Watcher):
        def wait(self, sleep: object = None) -> set[str]:
            sizes.append(len(gc.get_objects()) + gc.get_freeze_count())
            if len(sizes) == 8:
                raise KeyboardInterrupt
            return {str(file)}

    def take(planned: Plan) -> dict[str, Fingerprint]:
        return {each.key: Fingerprint("digest") for each in planned.environments}

    monkeypatch.setattr("runner.cli.watch.fingerprints_of", take)
    arguments = parsed("a.spec.yaml", "--device", "cuda", "-q")  # skipped here: no process starts
    settings = settings_of(arguments)
    with WarmSession(settings) as session, pytest.raises(KeyboardInterrupt):
        Watch(arguments, settings, session, Saves()).run()
    assert sizes[-1] - sizes[2] < 1000, sizes
