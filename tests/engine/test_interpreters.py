"""Python interpreters: what they are asked, and the environment that a worker gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engine_jobs import gone, one

from runner.benchmark.measure import ENVIRON
from runner.contract.settings import AS_USER, VARIABLES, WAIT_POLICY
from runner.engine import interpreters
from runner.engine.local import LocalEngine


def test_only_our_interpreter_is_asked(tmp_path: Path) -> None:
    answer = interpreters.probe(sys.executable)
    assert answer["python"] == ".".join(map(str, sys.version_info[:3])) and "error" not in answer
    assert interpreters.probe("/no/such/python")["error"] == "/no/such/python: no such Python interpreter"
    (tmp_path / "text").write_text("")
    assert "not an executable" in interpreters.probe(str(tmp_path / "text"))["error"]
    assert "does not work as a Python" in interpreters.probe("true")["error"]


def test_a_probe_that_somebody_kills_is_asked_once_more(tmp_path: Path) -> None:
    """Otherwise a run that is resumed on a busy machine could end before it has begun."""
    often, log = tmp_path / "python", tmp_path / "asked"
    for times, word in ((1, "torch"), (2, "error")):
        often.write_text(
            f'#!/bin/sh\necho >> {log}\n[ $(wc -l < {log}) -gt {times} ] || kill -9 $$\nexec {sys.executable} "$@"\n'
        )
        often.chmod(0o755)
        log.unlink(missing_ok=True)
        assert word in interpreters.probe(str(often)), times
        assert log.read_text().count("\n") == 2


def test_a_probe_of_a_python_without_torch(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    assert "has no torch" in interpreters.probe(str(bare))["error"]


def test_a_worker_environment_keeps_what_the_user_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/mine")
    environment = interpreters.worker_environment({"TORCHINDUCTOR_FX_GRAPH_CACHE": "1"})
    assert environment["TORCHINDUCTOR_FX_GRAPH_CACHE"] == "1" and environment["TORCHINDUCTOR_COMPILE_THREADS"] == "1"
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == "/mine"


def test_sets_are_ordered_alike_in_each_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    for env in ({}, {AS_USER: "1"}):
        assert interpreters.worker_environment(env)["PYTHONHASHSEED"] == "0"
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert interpreters.worker_environment()["PYTHONHASHSEED"] == "7"


def test_threads_spin_only_where_the_user_or_a_benchmark_lets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WAIT_POLICY, raising=False)
    assert {interpreters.worker_environment(env)[WAIT_POLICY] for env in ({}, {AS_USER: "1"})} == {"PASSIVE"}
    assert WAIT_POLICY not in interpreters.worker_environment(ENVIRON)
    monkeypatch.setenv(WAIT_POLICY, "ACTIVE")
    assert interpreters.worker_environment()[WAIT_POLICY] == "ACTIVE"


def test_no_python_that_torch_starts_looks_into_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    assert all(interpreters.worker_environment(env)["PYTHONSAFEPATH"] == "1" for env in ({}, {AS_USER: "1"}))


def test_warnings_of_torch_itself_are_no_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    assert not any("PYTHONWARNINGS" in interpreters.worker_environment(env) for env in ({}, {AS_USER: "1"}))


def test_a_worker_that_runs_jobs_as_a_user_has_the_user_s_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/mine")
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "7")
    monkeypatch.delenv("TORCHINDUCTOR_FX_GRAPH_CACHE", raising=False)
    own_variables, users = (interpreters.worker_environment(env) for env in ({}, {AS_USER: "1"}))
    assert {name: own_variables[name] for name in VARIABLES} == VARIABLES
    assert (users["TORCHINDUCTOR_COMPILE_THREADS"], users.get("TORCHINDUCTOR_FX_GRAPH_CACHE")) == ("7", None)
    monkeypatch.setenv(AS_USER, "1")
    assert AS_USER not in interpreters.worker_environment(), "only the engine says so"


def test_a_job_runs_another_function_only_if_the_engine_is_told(
    fake: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(interpreters.ENTRY_SWITCH, fake.pop(interpreters.ENTRY_SWITCH))
    assert interpreters.ENTRY_SWITCH not in interpreters.worker_environment()
    with LocalEngine({"here": sys.executable}, warm={"here": "none"}, environ=fake) as engine:
        outcome = one(engine, "result['ran'] = 'the wrong function'")
    # The real function was imported and cannot do with the stand-in for torch.
    assert outcome.ended == "worker-error" and "runner/worker/" in outcome.detail and "<job>" not in outcome.detail


def test_a_pipe_in_the_place_of_a_worker_s_log_holds_up_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    (tmp_path / "link").symlink_to("/etc/passwd")
    popen = interpreters.start_worker(sys.executable, str(tmp_path / "none"), "", tmp_path / "log", {"PATH": "/bin"})
    assert popen.wait(60) != 0
    assert interpreters.tail(tmp_path / "log") == interpreters.tail(tmp_path / "link") == ""


def test_what_is_waited_for_in_vain_ends_with_all_that_it_started() -> None:
    begun = time.monotonic()
    script = "sleep 100 & echo $!; setsid sleep 100 & echo $!; wait"
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        interpreters.run_process_tree(["bash", "-c", script], timeout=1, stdout=subprocess.PIPE)
    assert time.monotonic() - begun < 50
    pids = caught.value.output.split()
    assert len(pids) == 2 and all(gone(int(pid)) for pid in pids)
    assert (
        interpreters.run_process_tree(["bash", "-c", "echo whole; exit 3"], stdout=subprocess.PIPE).stdout == b"whole\n"
    )


def test_a_tick_may_end_the_wait_and_loses_no_output() -> None:
    ticks: list[None] = []
    script = ["bash", "-c", "echo first; sleep 1; echo last"]
    process = interpreters.run_process_tree(script, timeout=60, tick=lambda: ticks.append(None), stdout=subprocess.PIPE)
    assert process.stdout == b"first\nlast\n" and ticks

    def end() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interpreters.run_process_tree(["sleep", "100"], tick=end)
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        interpreters.run_process_tree(
            ["bash", "-c", "echo so; sleep 100"], timeout=1, tick=lambda: None, stdout=subprocess.PIPE
        )
    assert caught.value.output == b"so\n"


@pytest.mark.parametrize(
    ("given", "path"), [("a::/b:", "a:/b"), (":a", "a"), (":", ""), ("", ""), (".", "."), (None, None)], ids=repr
)
def test_no_entry_of_the_path_is_the_current_folder_unasked(given: str | None, path: str | None) -> None:
    environ = {"A": "1"} if given is None else {"A": "1", "PYTHONPATH": given}
    assert interpreters.without_current_folder(environ) == {"A": "1"} | ({} if path is None else {"PYTHONPATH": path})


def test_no_python_of_ours_looks_into_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, here = tmp_path / "a" / "show.py", tmp_path / "here"
    for folder in (script.parent, here):
        folder.mkdir()
    script.write_text("import json, sys; print(json.dumps(sys.path))")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", "/no/such:")
    log = tmp_path / "log"
    monkeypatch.setattr(interpreters, "WORKER", script)
    assert interpreters.start_worker(sys.executable, "", "", log, interpreters.worker_environment()).wait(60) == 0
    answer = interpreters.run_script(sys.executable, f"exec(open({str(script)!r}).read())")
    for text in (log.read_bytes(), answer.stdout):
        folders = json.loads(text)
        assert "/no/such" in folders and not {str(here), "/"} & {*folders}


def test_the_end_of_a_pipe_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    (tmp_path / "file").write_text("the end")
    assert (interpreters.tail(tmp_path / "log"), interpreters.tail(tmp_path / "file", 3)) == ("", "end")
