"""A command in a fork does what it does in a process of its own, and its worker is a fork only where it would import the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from .driver import Result, run_in, run_script, spec, write

BACKEND = """
    import os, pathlib, sys, torch


    def told(graph, inputs):
        is_fork = "runner.cli.main" in sys.modules
        where = (is_fork, os.environ.get("NOTE"), torch._inductor.config.compile_threads, torch._functorch.config.enable_autograd_cache)
        pathlib.Path(__file__).with_name("seen").write_text(repr(where))
        return lambda *args: tuple(out + 1 for out in graph(*args))
    """
CASES = spec("name: a\ninputs: {x: [4]}\ngrad: off\nchain: [torch.neg]")
WORDS = ("run", "a.spec.yaml", "--backend", "own:told", "--no-confirm")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, {"a.spec.yaml": CASES, "own.py": BACKEND})
    return tmp_path


def run(folder: Path, env: Mapping[str, str] | None = None, *words: str) -> tuple[Result, str]:
    """The run, and what its worker was."""
    result = run_in(folder, *WORDS, *words, env=env)
    return result, (folder / "seen").read_text()


def test_a_fork_does_what_a_process_does(folder: Path) -> None:
    fork, where = run(folder, {"RUNNER_KEEP": "all"})
    process, elsewhere = run(folder, {"PYTHONPATH": str(folder)})
    assert (where, elsewhere) == ("(True, None, 1, False)", "(False, None, 1, False)")
    assert fork.code == process.code == 1
    (event,), (other_event,) = fork.finished.values(), process.finished.values()
    for key in ("verdict", "stage", "oracles", "findings", "labels", "signature"):
        assert event.get(key) == other_event.get(key), key


def test_a_variable_that_torch_may_read_makes_a_new_worker(folder: Path) -> None:
    assert run(folder, {"NOTE": "x"})[1] == "(False, 'x', 1, False)"


def test_the_exit_code_of_a_script_is_its_own(tmp_path: Path) -> None:
    write(tmp_path, {
        "fine.py": "import sys\nassert 'runner' not in sys.modules and sys.argv == [__file__]\nprint(__name__)\n",
        "ends.py": "raise SystemExit(3)\n",
        "says.py": "raise SystemExit('no')\n",
        "wrong.py": "assert False, 'wrong'\n",
    })  # fmt: skip
    ended = {name: run_script(tmp_path, f"{name}.py") for name in ("fine", "ends", "says", "wrong")}
    assert {name: process.returncode for name, process in ended.items()} == {
        "fine": 0,
        "ends": 3,
        "says": 1,
        "wrong": 1,
    }
    assert ended["fine"].stdout == "__main__\n" and ended["says"].stderr == "no\n"
    assert ended["wrong"].stderr.splitlines()[-1] == "AssertionError: wrong"
