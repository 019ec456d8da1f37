"""An engine's folder, socket and zygotes, made before the engine."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_jobs import Make, finish, gone, job, one

from runner.engine import process_tree
from runner.engine.local import Home, LocalEngine
from runner.exit_codes import INTERNAL, UsageError


def children() -> list[int]:
    """Living children of this process."""
    return [pid for pid, each in process_tree.processes().items() if each.parent == os.getpid() and not each.zombie]


def test_an_engine_uses_the_zygotes_of_its_home(fake: dict[str, str]) -> None:
    with Home() as home:
        home.environ.update(fake)
        home.prepare([sys.executable])
        home.caches.variables(sys.executable)  # a compiler that is asked about itself is a child too
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
        home.caches.variables(sys.executable)  # a compiler that is asked about itself is a child too
        early = children()
    assert len(early) == 1 and gone(early[0]) and not home.folder.exists()


def test_temporary_files_of_jobs_go_with_the_home(fake: dict[str, str]) -> None:
    with Home() as home:
        home.environ.update(fake)
        with LocalEngine({"here": sys.executable}, home=home) as engine:
            left = Path(one(engine, "import tempfile; result['folder'] = tempfile.mkdtemp()").result["folder"])
            assert left.exists() and left.is_relative_to(home.folder)
        assert not left.exists()


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


FOLDER = """
scratch = pathlib.Path(os.environ["RUNNER_SCRATCH"])
folder = next(path for path in (scratch, *scratch.parents) if path.name.startswith("runner-scratch-"))
"""  # by its name: a mistake here must not remove what lies around it


def act(part: str, how: str = "remove") -> str:
    """Return a snippet that does something to a part of the engine's folder, also after that was made anew."""
    does = {
        "remove": "shutil.rmtree(path) if path.is_dir() else path.unlink()",
        "replace": "shutil.rmtree(path); path.mkdir()",
        "link": "shutil.rmtree(path); path.symlink_to('.')",
        "lock": "path.chmod(0)",
    }[how]
    return f"import os, pathlib, shutil\n{FOLDER}\npath = folder / {part!r}\n{does}\n"


@pytest.fixture
def engine(fake: dict[str, str]) -> Iterator[LocalEngine]:
    """An engine of three slots, whose home is made before it."""
    with Home() as home:
        home.environ.update(fake)
        with LocalEngine({"here": sys.executable}, 3, home=home) as engine:
            yield engine
        assert not home.folder.exists()


BLAMED = "the case removed or changed the temporary folder of the run"


@pytest.mark.parametrize(
    ("part", "how"),
    [
        ("", "remove"), ("work", "remove"), ("work/0", "remove"), ("control", "remove"), ("work", "replace"), ("work", "link"),
        ("", "lock"), ("work", "lock"), ("control", "lock"),
    ],
)  # fmt: skip
def test_a_job_that_damages_the_folder_costs_its_own_outcome_alone(engine: LocalEngine, part: str, how: str) -> None:
    folders = {engine._home.folder}
    first = finish(engine, job(act(part, how), "bad"), *(job(f"result['n'] = {n}", str(n)) for n in range(4)))
    folders.add(engine._home.folder)
    second = finish(engine, job("result['n'] = 4", "4"))
    bad = first.pop("bad")
    assert (bad.ended, bad.result) == ("damage", {}) and bad.detail.startswith(BLAMED)
    assert [outcome.result["n"] for _, outcome in sorted((first | second).items())] == [0, 1, 2, 3, 4]
    assert engine._home.folder.is_dir() and not any(folder.exists() for folder in folders - {engine._home.folder})
    assert "was made anew 2 times" in engine.notices()[-1]


def test_jobs_that_ran_beside_the_one_that_damages_run_again(engine: LocalEngine, tmp_path: Path) -> None:
    started = tmp_path / "started"
    wait = "import os, time\nopen({0!r}, 'a').write('x')\nwhile os.stat({0!r}).st_size < 3: time.sleep(0.01)\n".format(
        str(started)
    )
    innocent = f"{wait}time.sleep(0.3); result['files'] = os.listdir(os.environ['RUNNER_SCRATCH'])"
    jobs = job(innocent, "a"), job(wait + act("work"), "bad"), job(innocent, "b")
    outcomes = finish(engine, *jobs)
    assert {key: outcome.ended for key, outcome in outcomes.items()} == {"a": "result", "bad": "damage", "b": "result"}
    assert outcomes["a"].result == {"files": []}


def test_a_folder_that_another_program_removes_once_costs_nothing(engine: LocalEngine, tmp_path: Path) -> None:
    mark = str(tmp_path / "mark")
    once = f"import os\nif not os.path.exists({mark!r}):\n" + textwrap.indent(f"open({mark!r}, 'w')\n{act('')}", "    ")
    outcomes = finish(engine, job(f"{once}\nresult['ok'] = 1", "a"), job("result['ok'] = 1", "b"))
    assert [outcome.result for outcome in outcomes.values()] == [{"ok": 1}] * 2


def test_a_folder_that_goes_while_no_job_runs_ends_the_run(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Home, "work_folder", lambda home, slot: shutil.rmtree(home.folder) or home.folder)
    engine.submit(job(""))
    with pytest.raises(UsageError, match="another program removes the temporary folder again and again") as error:
        while engine.pending():
            engine.wait(1.0)
    assert error.value.code == INTERNAL


def test_a_log_folder_that_a_case_removes_is_made_again(make: Make, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    engine = make(1, log_folder=logs)
    finish(engine, job(f"import shutil; shutil.rmtree({str(logs)!r}); print('lost')", "1"))
    outcome = finish(engine, job("print('here')", "2"))["2"]
    assert outcome.output == "here\n" and [path.read_text() for path in logs.iterdir()] == ["here\n"]
