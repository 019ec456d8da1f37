"""An engine's folder, socket and zygotes, made before the engine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from engine_jobs import gone, job, one

from runner.engine import process_tree
from runner.engine.home import Home
from runner.engine.local import LocalEngine
from runner.exit_codes import INTERNAL, UsageError


def children() -> list[int]:
    """Living children of this process."""
    return [pid for pid, each in process_tree.processes().items() if each.parent == os.getpid() and not each.zombie]


def test_an_engine_uses_the_zygotes_of_its_home(fake: dict[str, str]) -> None:
    with Home() as home:
        home.environ.update(fake)
        home.prepare([sys.executable])
        early = children()
        with LocalEngine({"here": sys.executable}, home=home) as engine:
            outcome = one(engine, "result['ok'] = 1")
            assert outcome.result == {"ok": 1} and children() == early and len(early) == 1
        assert not home.folder.exists() and gone(early[0])


def test_a_home_without_an_engine_leaves_nothing(fake: dict[str, str]) -> None:
    Path(fake["PYTHONPATH"], "torch", "__init__.py").write_text("import time; time.sleep(100)")
    with Home() as home:
        home.environ.update(fake)
        home.prepare([sys.executable])
        early = children()
    assert len(early) == 1 and gone(early[0]) and not home.folder.exists()


def test_what_a_zygote_printed_before_it_died_is_told(fake: dict[str, str]) -> None:
    Path(fake["PYTHONPATH"], "torch", "__init__.py").write_text("import os; os.write(2, b'no libc10'); os.abort()")
    with Home() as home:
        home.environ.update(fake)
        home.prepare([sys.executable])
        with LocalEngine({"here": sys.executable}, home=home) as engine:
            outcome = one(engine, "")
    assert outcome.ended == "broken" and "SIGABRT" in outcome.detail and "no libc10" in outcome.detail


def test_a_python_that_is_none_is_left_to_its_first_job(fake: dict[str, str]) -> None:
    with Home() as home:
        home.prepare(["/nowhere/python"])
        with LocalEngine({"here": "/nowhere/python"}, home=home) as engine:
            assert one(engine, "").ended == "broken"


@pytest.mark.parametrize("part", ["", "work", "control"])
def test_outcomes_after_the_folder_was_removed_do_not_count(fake: dict[str, str], part: str) -> None:
    with Home() as home:
        home.environ.update(fake)
        path = home.folder / part
        remove = f"import os, shutil; os.remove({str(path)!r}) if {part == 'control'} else shutil.rmtree({str(path)!r})"
        with LocalEngine({"here": sys.executable}, home=home) as engine:
            engine.submit(job(remove))
            with pytest.raises(UsageError, match=f"^{home.folder}/.* is gone") as error:
                while engine.pending():
                    engine.wait(1.0)
    assert error.value.code == INTERNAL
