"""``runner why``: from a failure to a script that shows it, in one command, within its time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .driver import Result, environment, run_in, spec, write

PLANTED = "relu_accuracy_error_TESTING_ONLY"
LINK = "https://github.com/pytorch/pytorch/issues/1"
CASES = spec(
    f"""
    name: wrong
    inputs: {{x: [4, 8], y: [4, 8]}}
    grad: off
    chain: [torch.tanh, {{torch.add: [$_, $y]}}, torch.relu, torch.sin]
    known: [{{oracle: [value], issue: "{LINK}"}}]
    """,
    "name: fine\ninputs: {x: [4]}\ngrad: off\nchain: [torch.tanh]",
)
VENDOR = """
def compile(graph, inputs):
    return lambda *args: tuple(out + 1 for out in graph(*args))
"""
PROFILE = "suite: acme\nspecs: []\nbackends: [{name: acme, backend: 'acme_code:compile', fullgraph: true}]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("why")
    write(path, {"a.spec.yaml": CASES, "vendor/acme_code.py": VENDOR, "vendor/acme.suite.yaml": PROFILE})
    return path


@pytest.fixture(scope="module")
def result(folder: Path) -> Result:
    return run_in(folder, "why", "a.spec.yaml::wrong", "--backend", PLANTED, "-j", 2)


def kept(folder: Path, name: str) -> Path:
    (own,) = (folder / ".runner" / "why").glob(f"{name}-*")
    return own


def test_the_end_is_one_screen(result: Result, folder: Path) -> None:
    assert result.code == 1, result.text
    own = kept(folder, "wrong").relative_to(folder)
    lines = result.out.splitlines()
    assert lines[0] == f"FAIL a.spec.yaml::wrong[float32,cpu]@{PLANTED} on torch {lines[0].rpartition(' ')[2]}"
    assert len(lines) <= 24 and all(len(line) <= 80 or "runner " in line or "python " in line for line in lines[1:])
    for text in ("stage     backend (dynamo ok", "operator  torch.relu", f"known     {LINK}", "4 -> 1 operators",
                 "      chain: [torch.relu]",
                 f"next      runner issue 'a.spec.yaml::wrong[float32,cpu]@{PLANTED}'"):  # fmt: skip
        assert text in result.out, result.out
    assert "which was run once: exit status 1, the failure" in " ".join(result.out.split())
    assert f"kept in   {own}" in result.out and "not done" not in result.out


def test_each_step_is_said_once_where_no_line_is_live(result: Result) -> None:
    steps = ("the verdict", "what is to blame", "the smallest case", "the script")
    assert result.err.splitlines() == [f"runner: {number} of 4, {step}" for number, step in enumerate(steps, 1)]


def test_the_folder_holds_what_each_step_found(result: Result, folder: Path) -> None:
    own = kept(folder, "wrong")
    assert (own / "verdict.txt").read_text().startswith("value at output")
    assert json.loads((own / "diagnosis.json").read_text())["stage"] == "backend"
    assert (own / "why.txt").read_text() == result.out.rpartition("kept in")[0]
    script = subprocess.run([sys.executable, own / "repro.py"], cwd=folder, env=environment(), capture_output=True, text=True, check=False)  # fmt: skip
    assert script.returncode == 1 and "AssertionError" in script.stderr


TAKEN = "runner: taken over from runner why: the smallest case, which fails alike once more"


@pytest.mark.nightly
def test_a_report_takes_the_smallest_case_over(result: Result, folder: Path) -> None:
    words = ("issue", "a.spec.yaml::wrong", "--backend", PLANTED, "-j", 2)
    taken = run_in(folder, *words)
    assert taken.code == 0 and TAKEN in taken.err and "after" not in taken.err, taken.text
    smallest = (kept(folder, "wrong") / "case.spec.yaml").read_text()
    assert smallest.strip() in taken.out and "Reduced by a machine (" in taken.out
    other = run_in(folder, *words, "--seed", 5, "--budget", "1s")  # other numbers: another failure
    assert TAKEN not in other.err, other.text


def test_what_passes_is_said_and_ends_it(folder: Path) -> None:
    result = run_in(folder, "why", "a.spec.yaml::fine", "--backend", PLANTED, "-j", 1)
    assert result.code == 0 and result.out.startswith("PASS a.spec.yaml::fine"), result.text
    assert len(result.out.splitlines()) == 1 and result.err == "runner: 1 of 4, the verdict\n"


def test_a_verdict_that_does_not_fit_is_said(folder: Path) -> None:
    result = run_in(folder, "why", "a.spec.yaml::wrong", "--backend", PLANTED, "-o", "none", "--budget", "0.1s")
    assert result.code == 1 and "no verdict within 0.10s: give" in result.err and "runner run 'a.spec" in result.err


def test_a_folder_of_something_else_is_left_alone(result: Result, folder: Path) -> None:
    write(folder, {"mine/notes.txt": "keep"})
    words = ("why", "a.spec.yaml::fine", "--backend", PLANTED, "-o")
    other = run_in(folder, *words, "mine")
    assert other.code == 4 and "there is something in it" in other.err
    other = run_in(folder, *words, str(kept(folder, "wrong")))
    assert other.code == 4 and "it holds the explanation of another variant" in other.err
    case = kept(folder, "wrong") / "case.spec.yaml"
    text = case.read_text()
    case.write_text(f"{text}# mine\n")
    other = run_in(folder, "why", "a.spec.yaml::wrong", "--backend", PLANTED)
    case.write_text(text)
    assert other.code == 4 and "case.spec.yaml there is not as runner reduce wrote it" in other.err


@pytest.mark.nightly
def test_commands_of_a_profile_in_another_folder_work(folder: Path) -> None:
    case = "vendor/acme.suite.yaml::a.spec.yaml::fine[float32,cpu]@acme"
    result = run_in(folder, "why", case, "--allow-python", "-o", "profiled", "-j", 2)
    assert result.code == 1 and "the failure" in result.out, result.text
    lines = result.out.partition("next      ")[2].splitlines()[:3]
    for line in (each.partition("  #")[0].strip() for each in lines[1:]):
        line = line.replace("runner ", f"{sys.executable} -m runner ").replace(" python ", f" {sys.executable} ")
        ended = subprocess.run(line, shell=True, cwd=folder, env=environment(), capture_output=True, text=True, check=False)  # fmt: skip
        assert ended.returncode == 1 and ("1 failed" in ended.stdout or "AssertionError" in ended.stderr), (line, ended)
