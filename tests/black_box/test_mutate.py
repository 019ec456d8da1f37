"""``runner mutate`` on the Python of a small backend: what a suite finds, what it misses, and what is tried again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.contract.mutant import Mutant

from .driver import Result, run_in, write

COMPILE = """\
import torch


def compile(graph, inputs):
    for node in graph.graph.nodes:
        if node.target is torch.add:
            node.args = (node.args[1], node.args[0])
    graph.recompile()
    return graph.forward
"""
CASES = """\
cases:
  - name: subtract
    inputs: {x: [4]}
    chain: [{torch.sub: [$x, 2.0]}]
  - name: sum
    inputs: {x: [4], y: [4]}
    chain: [{torch.add: [$x, $y]}]
"""
FILES = {
    "package": "vendor_of_mutants/compile.py",
    "module": "single_of_mutants.py",
}
BACKENDS = {"package": "vendor_of_mutants.compile:compile", "module": "single_of_mutants:compile"}


@pytest.fixture(scope="module", params=["package", "module"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vendor's package, or its only file, and a run that recorded lines of it."""
    place = tmp_path_factory.mktemp("mutate")
    write(place, {"a.spec.yaml": CASES, FILES[kind]: COMPILE})
    if kind == "package":
        write(place, {"vendor_of_mutants/__init__.py": ""})
    run = run_in(place, "run", "a.spec.yaml", "--backend", BACKENDS[kind], "--coverage-lines")
    assert run.code == 0, run.text
    own = [text for event in run.finished.values() for text in event["reached"] if FILES[kind] in text]
    assert sorted(own) == [f"line {FILES[kind]}:5-6,8-9", f"line {FILES[kind]}:5-9"]
    return place


def mutate(folder: Path, kind: str, *words: object) -> Result:
    package = FILES[kind].partition("/")[0].removesuffix(".py")
    return run_in(
        folder, "mutate", "a.spec.yaml", "--backend", BACKENDS[kind], "--package", package, "--count", 50,
        "-o", "mutants", *words,
    )  # fmt: skip


def data_of(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "mutants" / "mutants.json").read_text())
    return data


@pytest.fixture(scope="module")
def result(folder: Path, kind: str) -> Result:
    return mutate(folder, kind)


def test_one_mutant_is_killed_and_one_survives(folder: Path, kind: str, result: Result) -> None:
    assert result.code == 0, result.text
    trials = data_of(folder)["trials"]
    assert {trial["mutant"]["file"] for trial in trials} == {FILES[kind]}
    assert {trial["fate"] for trial in trials} == {"killed", "survived"}, [trial["reason"] for trial in trials]
    (addition,) = [trial for trial in trials if trial["mutant"]["line"] == 7]
    assert addition["tried"] == [f"a.spec.yaml::sum[float32,cpu]@{BACKENDS[kind]}"] and addition["reaching"] == 1
    assert (folder / FILES[kind]).read_text() == COMPILE, "the file stays as it is"
    survivors = [trial["mutant"]["line"] for trial in trials if trial["fate"] == "survived"]
    assert all(f"{FILES[kind]}:{line}" in result.out for line in survivors)


def test_the_same_command_tries_nothing_again(folder: Path, kind: str, result: Result) -> None:
    before = (folder / "mutants" / "trials.jsonl").read_bytes()
    again = mutate(folder, kind)
    assert (again.code, again.out) == (0, result.out), again.text
    assert (folder / "mutants" / "trials.jsonl").read_bytes() == before


@pytest.mark.nightly
def test_mutants_run_on_ray(folder: Path, kind: str, result: Result) -> None:
    fates = {identity(trial): trial["fate"] for trial in data_of(folder)["trials"]}
    again = mutate(folder, kind, "--engine", "ray", "-j", 2, "-o", "ray", "--json", "ray.json")
    assert again.code == 0, again.text
    assert {identity(each): each["fate"] for each in json.loads((folder / "ray.json").read_text())["trials"]} == fates


def test_survivors_are_tried_again_on_other_cases(folder: Path, kind: str, result: Result) -> None:
    survived = {identity(trial) for trial in data_of(folder)["trials"] if trial["fate"] == "survived"}
    again = mutate(folder, kind, "--survivors", "mutants/trials.jsonl", "-o", "again", "--json", "again.json")
    assert again.code == 0, again.text
    assert {identity(trial) for trial in json.loads((folder / "again.json").read_text())["trials"]} == survived
    (folder / "killed.jsonl").write_text("")
    none = mutate(folder, kind, "--survivors", "killed.jsonl")
    assert none.code == 5 and "--survivors killed.jsonl: no mutant survived" in none.err
    absent = mutate(folder, kind, "--survivors", "absent.jsonl")
    assert absent.code == 4 and "--survivors absent.jsonl: there is no such file" in absent.err


def test_cases_that_a_change_can_affect_kill_the_same(folder: Path, kind: str, result: Result) -> None:
    fates = {identity(trial): trial["fate"] for trial in data_of(folder)["trials"]}
    again = mutate(folder, kind, "--cases", "affected", "-o", "affected", "--json", "affected.json")
    assert again.code == 0, again.text
    trials = json.loads((folder / "affected.json").read_text())["trials"]
    assert {identity(trial): trial["fate"] for trial in trials} == fates


def test_a_survivor_that_somebody_judged_equivalent_leaves_the_score(folder: Path, kind: str, result: Result) -> None:
    first = data_of(folder)
    survivors = [trial for trial in first["trials"] if trial["fate"] == "survived"]
    killed = [trial for trial in first["trials"] if trial["fate"] == "killed"]
    write(folder, {"judged.txt": "# by hand\n" + "".join(f"{identity(each)} both orders add alike\n" for each in survivors)})  # fmt: skip
    judged = mutate(folder, kind, "--equivalent", "judged.txt", "--json", "judged.json")
    assert judged.code == 0, judged.text
    document = json.loads((folder / "judged.json").read_text())
    assert document["equivalent"] == len(survivors) and document["killed"] == document["counted"] == len(killed)


def identity(trial: dict[str, Any]) -> str:
    return Mutant.from_json(trial["mutant"]).id


def test_a_package_that_is_not_there_is_named(folder: Path, kind: str) -> None:
    words = ("a.spec.yaml", "--backend", BACKENDS[kind], "--package", "nobody_has_this")
    refused = run_in(folder, "mutate", *words)
    assert refused.code == 4 and "--package nobody_has_this: " in refused.err and "has no such package" in refused.err


def test_without_recorded_lines_the_error_names_what_records_them(folder: Path, kind: str, result: Result) -> None:
    run = run_in(folder, "run", "a.spec.yaml", "-k", "sum", "--backend", BACKENDS[kind])
    assert run.code == 0, run.text
    refused = mutate(folder, kind)
    assert refused.code == 4
    assert "has lines of the compiler; runner run --coverage-lines with the same files records them" in refused.err
