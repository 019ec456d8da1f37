"""What a schema or a check refuses goes no further: no case is made of it, in any command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from spec_files import Files

from runner.cases.yaml import schema
from runner.cli.main import main
from runner.session.collect import load

TWO = "cases: [{name: a, inputs: {x: [2]}, chain: [F.relu]}, {name: b, inputs: {x: [2]}, chain: [F.relu]}]"
CODE = "1\nimport os; os.system('true')"
REFUSED = [
    {"threads": CODE}, {"autocast": "float16\nimport os"}, {"grad": {"order": CODE}}, {"timeout": "x"}, {"ignore": "x"},
    {"exclude": "x"}, {"grad": [[1]]}, {"calls": [{"params": "x"}]}, {"tags": ["a", 1]}, {"dtyps": ["float64"]},
    {"devices": ["nn"]}, {"threads": 99999999999}, {"memory": "99999999999999TiB"}, {"timeout": "9999999h"}, {"timeout": "0s"},
    {"requires": {"device": "sys"}}, {"known": [{"reason": "x", "device": "nn"}]}, {"known": [{"reason": "x", "threads": [0]}]},
    {"tolerance": {"rtol": 1}}, {"known": [{"reason": "x", "error": "("}]}, {"config": {"os.environ": 1}},
]  # fmt: skip


def found(files: Files, text: str) -> list[str]:
    """The ids of a file's variants, none of which may be there if there is an error."""
    loaded = load([str(files.write("a.spec.yaml", text))])
    files.diagnostics = loaded.errors
    return [variant.id.partition("::")[2].partition("[")[0] for variant in loaded.variants]


@pytest.mark.parametrize("defaults", REFUSED, ids=str)
@pytest.mark.parametrize("form", ["defaults: {defaults}\n{cases}\n", "{{{cases}, defaults: {defaults}}}\n"])
def test_refused_defaults_stop_every_case(files: Files, defaults: dict[str, Any], form: str) -> None:
    assert found(files, form.format(defaults=json.dumps(defaults), cases=TWO)) == []
    assert files.diagnostics
    for diagnostic in files.diagnostics:
        assert "defaults" in diagnostic.text and diagnostic.span.column > 1


@pytest.mark.parametrize(
    "command", ["validate", "list", "show", "repro", "debug", "sanitize", "run", "bench", "ledger"]
)
def test_every_command_stops(
    files: Files, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files.folder)
    files.write("a.spec.yaml", f"defaults: {{threads: {json.dumps(CODE)}}}\n{TWO}\n")
    takes_a_variant = command in ("show", "repro", "debug", "sanitize")
    assert main([command, "a.spec.yaml::a" if takes_a_variant else "a.spec.yaml"]) == 4
    printed = capsys.readouterr()
    assert "a.spec.yaml:1:21: error: expected a number of threads" in printed.err
    assert "import os" not in printed.out
    assert sorted(path.name for path in files.folder.iterdir()) == ["a.spec.yaml"]


def test_a_case_that_overrides_a_refused_default_stops_too(files: Files) -> None:
    assert (
        found(
            files,
            "defaults: {tolerance: {rtol: 1}}\ncases: [{name: a, inputs: {x: [2]}, chain: [F.relu], tolerance: {exact: true}}]",
        )
        == []
    )


def test_a_refused_value_is_refused_wherever_an_alias_repeats_it(files: Files) -> None:
    case = "inputs: {x: [2]}, chain: [F.relu]"
    text = f"cases: [{{name: a, {case}, threads: &t {json.dumps(CODE)}}}, {{name: b, {case}, threads: *t}}, {{name: c, {case}}}]"
    assert found(files, text) == ["c"]
    text = f"cases: [{{name: a, {case}, tolerance: &t {{rtol: 1}}}}, {{name: b, {case}, tolerance: *t}}, {{name: c, {case}}}]"
    assert found(files, text) == ["c"]


def test_a_chain_of_defaults_with_an_error_spoils_each_case_that_has_it(files: Files) -> None:
    text = "defaults: {chain: [{torch.add: $x, torch.mul: $x}]}\ncases: [{name: a}, {name: b}, {name: c, inputs: {x: [2]}, chain: [F.relu]}]"
    assert found(files, text) == ["c"]
    assert len(files.diagnostics) == 1


@pytest.mark.parametrize("count", [99, 101, 600])
def test_behind_many_errors_nothing_is_used_unseen(files: Files, count: int) -> None:
    wrong = "".join(f"  - {{name: w{n}, inputs: {{x: [2]}}, chain: [F.relu], threads: 0}}\n" for n in range(count))
    last = f"  - {{name: last, inputs: {{x: [2]}}, chain: [F.relu], autocast: {json.dumps(CODE)}}}\n"
    assert found(files, f"cases:\n{wrong}{last}") == []


def test_what_is_no_clean_yaml_is_not_used(files: Files) -> None:
    assert found(files, f"{TWO}\ndefaults: {{threads: 1}}\ndefaults: {{threads: 2}}\n") == []
    assert [d.message for d in files.diagnostics] == ["the key 'defaults' is here twice"]


@pytest.mark.parametrize("defaults", REFUSED, ids=str)
def test_refused_defaults_of_a_suite_stop_the_suite(files: Files, defaults: dict[str, Any]) -> None:
    files.write("a.spec.yaml", TWO)
    path = files.write("s.suite.yaml", f"suite: s\nspecs: [a.spec.yaml]\ndefaults: {json.dumps(defaults)}\n")
    loaded = load([str(path)])
    assert loaded.variants == () and loaded.suites == ()
    assert {d.span.line for d in loaded.errors} == {3} and {Path(d.span.file).name for d in loaded.errors} == {
        path.name
    }


@pytest.mark.parametrize(
    "backend",
    ['{name: m, backend: inductor, config: {os.environ: 1}}', '{name: m, backend: inductor, options: {"cpp.cxx": g++}}', "{name: m, backend: inductor, mode: x}"],
)  # fmt: skip
def test_a_suite_with_a_refused_backend_does_not_run_without_it(files: Files, backend: str) -> None:
    files.write("a.spec.yaml", TWO)
    loaded = load([str(files.write("s.suite.yaml", f"suite: s\nspecs: [a.spec.yaml]\nbackends: [{backend}]\n"))])
    assert loaded.variants == () and loaded.errors


def test_a_place_in_a_suite_is_shown_with_the_suites_line(files: Files) -> None:
    files.write("a.spec.yaml", "# one\n# two\ncases: [{name: a, inputs: {x: [2]}}]\n")
    text = "suite: s\nspecs: [a.spec.yaml]\ndefaults: {chain: [{torch.add: $x, torch.mul: $x}]}\n"
    (error,) = load([str(files.write("s.suite.yaml", text))]).errors
    assert error.text == text.split("\n")[2]


MISTYPED = [
    {"doc": 5}, {"tags": ["a", 1]}, {"links": [None]}, {"exclude": "x"}, {"params": 5}, {"params": {"n": [{"a": 1}]}}, {"calls": "x"},
    {"calls": [{"params": "x"}]}, {"dtypes": [1]}, {"devices": [1]}, {"param_dtype": 5}, {"train": [1]}, {"grad": [[1]]},
    {"grad": {"order": "x"}}, {"grad": {"cotangent": 5}}, {"dynamic": "x"}, {"autocast": 5}, {"threads": "x"}, {"threads": True},
    {"requires": 5}, {"requires": {"torch": 5}}, {"compile": {"fullgraph": "x"}}, {"compile": {"mode": 5}}, {"expect": {"graphs": "x"}},
    {"expect": {"raises": 5}}, {"expect": {"raises": {"match": 5}}}, {"tolerance": {"rtol": "x"}}, {"tolerance": {"exact": 1}},
    {"tolerance": {"float32": {"atol": []}}}, {"ignore": "x"}, {"ignore": {"value": 5}}, {"timeout": []}, {"timeout": "x"}, {"memory": 1.5},
    {"known": 5}, {"known": [{"reason": "x", "threads": ["x"]}]}, {"known": [{"reason": 5}]}, {"known": [{"reason": "x", "params": 5}]},
]  # fmt: skip


@pytest.mark.parametrize("defaults", MISTYPED, ids=str)
def test_below_the_schema_types_are_checked_again(
    files: Files, defaults: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "validate", lambda *_: ([], set()))
    assert found(files, f"defaults: {json.dumps(defaults)}\n{TWO}\n") == []
    assert [d.span.line for d in files.diagnostics] == [1] * len(files.diagnostics)


@pytest.mark.parametrize("key", ["suite: 5", "doc: []", "manual: x", "devices: [1]", "dtypes: {}", "select: 5", "specs: 5", "specs: [5]",
    "backends: [5]", "backends: 5", "backends: [{name: 5}]", "backends: [{name: m, mode: 5}]", "backends: [{name: m, fullgraph: x}]"])  # fmt: skip
def test_below_the_schema_types_of_a_suite_are_checked_again(
    files: Files, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "validate", lambda *_: ([], set()))
    loaded = load([str(files.write("s.suite.yaml", f"{key}\n{TWO}\n"))])
    assert loaded.variants == () and [d.span.line for d in loaded.errors] == [1]
    assert "expected" in loaded.errors[0].message


def test_devices_that_a_module_adds(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    path = files.write("a.spec.yaml", "cases: [{name: a, inputs: {x: [2]}, chain: [F.relu], devices: [cpuu, cpu]}]")
    (error,) = load([str(path)]).errors
    assert (
        error.message == "torch has no device 'cpuu'" and error.hint == "did you mean 'cpu'? (--import brings others)"
    )
    assert error.span.column == 64
    assert [v.device for v in load([str(path)], any_device=True).variants] == ["cpuu", "cpu"]
    assert main(["list", str(path)]) == 4
    assert capsys.readouterr().out == ""
    assert main(["validate", str(path)]) == 4
    assert main(["run", str(path), "--import", "json", "-k", "nothing"]) == 5  # the file is accepted


def test_a_ledger_has_so_many_entries(files: Files) -> None:
    entries = ", ".join(["{reason: r, torch: '<1'}"] * 201)
    assert found(files, f"cases: [{{name: a, inputs: {{x: [2]}}, chain: [F.relu], known: [{entries}]}}]") == []
    assert [d.message for d in files.diagnostics] == ["expected at most 200 entries, found 201"]


def test_a_selection_has_so_many_words(files: Files) -> None:
    text = f"suite: s\nselect: {' or '.join(['x'] * 251)}\n{TWO}\n"
    loaded = load([str(files.write("s.suite.yaml", text))])
    assert loaded.suites == () and [d.message for d in loaded.errors] == ["a selection has at most 100 words"]
