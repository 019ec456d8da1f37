"""Every id that a command prints is taken by every command as it stands."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from .driver import REPOSITORY, Result, run_in, write

DIFFERENT = ("smoke", "toy_backend", "kernels", "gpu")
"""Suites whose ids differ in kind: several backends, one with a name of its own, cases in Python, devices."""
SUITES = [
    path.name
    if path.name.partition(".")[0] in DIFFERENT
    else pytest.param(path.name, marks=pytest.mark.nightly, id=path.name)
    for path in sorted((REPOSITORY / "suites").glob("*.suite.yaml"))
]
CASES = """
    cases:
      - name: relu
        tags: [fast]
        inputs: {x: [4]}
        chain: [F.relu]
      - name: odd
        inputs: {x: [4]}
        chain: [F.relu, {F.gelu: [$_, $n]}]
        params: {n: ["a::b", "c@d"]}
      - name: plain
        inputs: {x: [4]}
        chain: [F.relu]
"""
SUITE = """
    suite: strict
    specs: [../specs/a.spec.yaml]
    defaults: {tolerance: {exact: true, reason: "a test"}}
    backends:
      - {name: unfused, backend: inductor, mode: max-autotune-no-cudagraphs}
      - {name: eager, backend: aot_eager}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, {"specs/a.spec.yaml": CASES, "suites/strict.suite.yaml": SUITE})
    return tmp_path


def planned(result: Result) -> list[str]:
    """The ids that a run announced."""
    return [event["id"] for event in result.events if event["event"] == "variant-planned"]


@pytest.mark.parametrize("suite", SUITES)
def test_ids_of_shipped_suites(tmp_path: Path, suite: str) -> None:
    for name in ("suites", "specs"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    listed = run_in(tmp_path, "list", "--allow-python", f"suites/{suite}").out.splitlines()
    assert listed
    # Without a run, by the files alone.
    assert sorted(run_in(tmp_path, "list", "--allow-python", *listed).out.splitlines()) == sorted(listed)
    result = run_in(tmp_path, "run", "--allow-python", f"suites/{suite}", "--budget", "0.001s")
    assert result.code == 2 and planned(result) == listed
    assert sorted(run_in(tmp_path, "list", "--allow-python", *listed).out.splitlines()) == sorted(listed)
    some = [*{node.rpartition("@")[2]: node for node in listed}.values()]  # one of each backend
    for identifier in some:
        program = run_in(tmp_path, "show", "--allow-python", identifier)
        assert program.code == 0 and f"# id:             {identifier}\n" in program.out, program.text
    again = run_in(tmp_path, "run", "--allow-python", *some, "--budget", "0.001s")
    assert sorted(planned(again)) == sorted(some), again.text


def test_an_id_of_the_latest_run_means_what_it_meant_there(folder: Path) -> None:
    identifier = "specs/a.spec.yaml::plain[float32,cpu]@eager"
    assert "backend:" not in run_in(folder, "show", identifier).out.replace(
        "backend:        name=eager, backend=eager", ""
    )
    assert run_in(folder, "run", "suites/strict.suite.yaml", "--budget", "0.001s").code == 2
    program = run_in(folder, "show", identifier).out
    assert "backend=aot_eager" in program and "exact=True" in program
    row = identifier.partition("@")[0]
    assert run_in(folder, "list", row).out.splitlines() == [f"{row}@unfused", identifier]
    # A run that began elsewhere, or is not signed by this user, says nothing.
    journal = folder / ".runner/latest/events.jsonl"
    text = journal.read_text()
    unsigned = re.sub(r'("signature": ?")', r"\g<1>0", text, count=1)
    assert unsigned != text
    journal.write_text(unsigned)
    assert "backend=aot_eager" not in run_in(folder, "show", identifier).out


def test_a_backend_of_a_nearby_suite_brings_that_suites_defaults(folder: Path) -> None:
    program = run_in(folder, "show", "specs/a.spec.yaml::plain[float32,cpu]@unfused").out
    assert "mode=max-autotune-no-cudagraphs" in program and "exact=True" in program
    loose_suite = SUITE.replace("strict", "loose").replace("max-autotune-no-cudagraphs", "reduce-overhead")
    write(folder, {"suites/loose.suite.yaml": loose_suite})
    refused = run_in(folder, "show", "specs/a.spec.yaml::plain[float32,cpu]@unfused")
    assert refused.code == 4 and "suites/strict.suite.yaml::plain[float32,cpu]@unfused" in refused.err
    program = run_in(folder, "show", "suites/loose.suite.yaml::specs/a.spec.yaml::plain[float32,cpu]@unfused").out
    assert "mode=reduce-overhead" in program


def test_the_command_that_reproduces_a_failure_says_the_id(folder: Path) -> None:
    planted = "relu_accuracy_error_TESTING_ONLY"
    suite = SUITE.replace("backend: inductor, mode: max-autotune-no-cudagraphs", f"backend: {planted}")
    write(folder, {"specs/a.spec.yaml": CASES.replace("F.relu", "torch.relu"), "suites/strict.suite.yaml": suite})
    red = run_in(folder, "run", "specs/a.spec.yaml::relu", "--no-confirm", "--device", "cpu", "--backend", planted)
    lines = [line.strip() for line in red.out.splitlines() if "reproduce:" in line]
    assert lines == [f"reproduce: runner run 'specs/a.spec.yaml::relu[float32,cpu]@{planted}'"]
    result = run_in(folder, "run", "suites/strict.suite.yaml", "-k", "relu and unfused", "--no-confirm")
    (line,) = [line.strip() for line in result.out.splitlines() if "reproduce:" in line]
    command = "suites/strict.suite.yaml::specs/a.spec.yaml::relu[float32,cpu]@unfused"
    assert line == f"reproduce: runner run '{command}'"
    shutil.rmtree(folder / ".runner")
    assert run_in(folder, "list", command).out.strip() == command.removeprefix("suites/strict.suite.yaml::")


@pytest.mark.parametrize(
    ("identifier", "listed"),
    [
        ("plain@aot_eager", "plain[float32,cpu]@aot_eager"),
        ("plain[float32,cuda]", "plain[float32,cuda]@inductor"),
        ("plain[float32,cuda:1]@aot_eager", "plain[float32,cuda:1]@aot_eager"),
        ("plain[float32,cpu]@openvino", "plain[float32,cpu]@openvino"),
        ('odd[n="c@d",float32,cpu]@cudagraphs', 'odd[n="c@d",float32,cpu]@cudagraphs'),
    ],
)
def test_an_id_brings_its_backend_and_device(folder: Path, identifier: str, listed: str) -> None:
    result = run_in(folder, "list", f"specs/a.spec.yaml::{identifier}")
    assert result.out.splitlines() == [f"specs/a.spec.yaml::{listed}"]


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("plain[float32,cpu]@inducter", "did you mean 'plain[float32,cpu]@inductor'?"),
        ("plain[float32,cpu]@torch:os.system", "then type --backend torch:os.system"),
        ("plain[float64,cpu]@inductor", "no case matches 'plain[float64,cpu]@inductor'"),
        ("plaid@inductor", "no case matches 'plaid@inductor'"),
    ],
)
def test_an_id_that_nothing_prints(folder: Path, identifier: str, words: str) -> None:
    result = run_in(folder, "list", f"specs/a.spec.yaml::{identifier}")
    assert result.code == 4 and words in result.err, result.text


def test_ids_of_files_outside_this_folder(folder: Path) -> None:
    (folder / "work").mkdir()
    listed = run_in(folder / "work", "list", str(folder / "specs/a.spec.yaml")).out.splitlines()
    assert listed[-1] == "../specs/a.spec.yaml::plain[float32,cpu]@inductor"
    assert run_in(folder / "work", "list", *listed).out.splitlines() == listed
