"""What a planned variant is called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.diagnostics import shown_path
from runner.quote import command_words
from runner.session.plan import RunContext, plan, planned_event, repro
from tests.handmade import environment, loaded, variants, written


def test_announcements_of_one_case_share_its_name(tmp_path: Path) -> None:
    first, second = map(planned_event, plan(variants(tmp_path, "params: {n: [1, 2]}"), [environment()]))
    assert first.case.endswith("a.spec.yaml::a") and first.case is second.case


@pytest.mark.parametrize(
    ("backend", "command"),
    [
        ("{name: eager, backend: eager, unclaimed: {dtypes: [int8]}}", "runner run '{file}::a[float32,cpu]@eager'"),
        *(
            (
                f"{{name: eager, backend: eager, unclaimed: {{{judged}}}}}",
                "runner run '{suite}::{file}::a[float32,cpu]@eager'",
            )
            for judged in ("gradients: true", "precision: {float32: bfloat16}")
        ),
        ("{name: eager, backend: eager, dynamic: true}", "runner run '{suite}::{file}::a[float32,cpu]@eager'"),
    ],
)
def test_a_command_needs_the_suite_where_it_says_how_a_variant_runs(tmp_path: Path, backend: str, command: str) -> None:
    spec = written(tmp_path, "cases:\n  - {name: a, inputs: {x: [2]}, chain: [F.relu]}\n")
    suite = written(tmp_path, f"suite: s\nspecs: [a.spec.yaml]\nbackends: [{backend}]\n", "s.suite.yaml")
    selection = loaded(suite)
    context = RunContext(suites={entry.name: entry for entry in selection.suites}, default_python=environment().python)
    (entry,) = plan(selection.variants, [environment()])
    names = {"file": os.path.relpath(spec), "suite": shown_path(str(suite))}
    assert repro(entry, context).replace("--seed 0", "").strip() == command.format(**names)


def test_a_command_names_the_order_of_sets_that_somebody_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (entry,) = plan(variants(tmp_path, ""), [environment()])
    context = RunContext(default_python=environment().python)
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert repro(entry, context).startswith("runner run ")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    command = repro(entry, context)
    assert command.startswith("PYTHONHASHSEED=7 runner run ") and " ".join(command_words(command)) == command
