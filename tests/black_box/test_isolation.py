"""Where a variant runs changes nothing about its verdict; and what does depend on the order is found and said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .driver import REPOSITORY, Result, run_in, spec, write

LEAKY = """
    import torch

    seen = []


    def remembers(module, inputs):
        "Right once in a process, and wrong from then on."
        seen.append(1)
        return module if len(seen) == 1 else lambda *args: [value + 1 for value in module(*args)]


    def knows_its_parent(module, inputs):
        "Wrong where the process that it was forked from was prepared: guards are not timed there."
        warm = hasattr(__import__("sys").modules["torch._dynamo.guards"].profile_guard_manager, "quick")
        return (lambda *args: [value + 1 for value in module(*args)]) if warm else module


    def forgives(module, inputs):
        "Right for the case that adds nothing, and for all others of a process that has run it."
        numbers = [arg for node in module.graph.nodes for arg in node.args if isinstance(arg, int)]
        if 0 in numbers:
            seen.append(1)
        return module if seen else lambda *args: [value + 1 for value in module(*args)]
    """


def smoke(folder: Path, *flags: str) -> dict[str, str]:
    """Verdicts of the smoke suite."""
    for name in ("suites", "specs"):  # so that ids, which decide about shards, do not hold the path of this folder
        shutil.copytree(REPOSITORY / name, folder / name, dirs_exist_ok=True)
    result = run_in(folder, "run", "suites/smoke.suite.yaml", *flags, limit=900)
    assert result.code == 0, result.text
    return {name: event["verdict"] for name, event in result.finished.items()}


# Forked processes are the default. Exit code 0 says that each variant has the verdict that its file expects, so that
# the processes below agree with them: one that is known to fail is XFAIL, and every other one is PASS.


@pytest.mark.parametrize("part", ["1/8", pytest.param("1/1", marks=pytest.mark.nightly)])
def test_processes_that_live_on_give_the_expected_verdicts(tmp_path: Path, part: str) -> None:
    verdicts = smoke(tmp_path, "--isolation", "living", "--shard", part)
    assert len(verdicts) >= (7 if part == "1/8" else 70) and {*verdicts.values()} <= {"PASS", "XFAIL"}


def test_fresh_processes_give_the_expected_verdicts(tmp_path: Path) -> None:
    """For a part of the suite, since each takes some seconds."""
    verdicts = smoke(tmp_path, "--isolation", "fresh", "--shard", "1/2", "-k", "mutation or refused or foobar")
    assert len(verdicts) >= 3 and {*verdicts.values()} <= {"PASS", "XFAIL"}


@pytest.fixture
def leaky(tmp_path: Path) -> Path:
    cases = [f"name: case_{n}\ninputs: {{x: [4]}}\nchain: [{{torch.add: [$x, {n}]}}]" for n in range(3)]
    write(tmp_path, {"leaky/__init__.py": LEAKY, "a.spec.yaml": spec(*cases)})
    return tmp_path


def run_leaky(folder: Path, backend: str, *flags: str) -> Result:
    words = ("run", "a.spec.yaml", "--backend", f"leaky:{backend}", "-j", "1", *flags)
    return run_in(folder, *words)


def test_what_an_earlier_variant_left_behind_is_not_the_next_ones_fault(leaky: Path) -> None:
    result = run_leaky(leaky, "remembers", "--isolation", "living")
    assert (result.code, set(result.verdicts.values())) == (0, {"PASS"}), result.text
    marked = [event for event in result.finished.values() if "order-dependent" in event["labels"]]
    assert marked, "the backend leaks into the next variant of its process, and nothing says so"
    (note,) = marked[0]["notes"]
    assert "in one process after a.spec.yaml::case_" in note and note.endswith("alone in a fresh process: passes")


def test_a_pass_by_what_an_earlier_variant_left_behind_is_an_error_of_the_runner(leaky: Path) -> None:
    result = run_leaky(leaky, "forgives", "--isolation", "living")
    assert result.code == 3, result.text
    assert result.verdicts["case_0@leaky:forgives"] == "PASS"
    event = result.of("case_1@leaky:forgives")
    assert (event["verdict"], event["labels"]) == ("FAIL", ["order-dependent"])
    assert "case_1[float32,cpu]@leaky:forgives: the harness failed" in result.text
    assert "in one process after a.spec.yaml::case_0[float32,cpu]@leaky:forgives: passes; alone" in result.text


def test_a_failure_that_only_a_warm_process_shows_is_flaky(leaky: Path) -> None:
    flags = ("--isolation", "fork", "--backend", "eager", "-k", "case_0")
    result = run_leaky(leaky, "knows_its_parent", *flags)
    assert result.code == 1
    event = result.of("case_0@leaky:knows_its_parent")
    assert (event["verdict"], event["labels"]) == ("FLAKY", ["order-dependent"]), event["reason"]
    assert event["reason"].startswith("run again in a fresh process: passes; at first:")
    assert result.verdicts["case_0@eager"] == "PASS"
