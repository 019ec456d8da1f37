"""``runner import``: files of other tools become cases that run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .driver import Result, run_in

LOG = """\
Operator: aten.addmm.default
cnt: 49, ((T([6], f32), T([5, 4], f32), T([4, 6], f32, stride=(1, 4))), {})
Operator: aten.embedding.default
cnt: 2, ((T([10, 4], f32), T([2, 3], i64)), {})
Operator: aten.max_pool2d_with_indices_backward.default
cnt: 1, ((T([1, 2, 2, 2], f32), T([1, 2, 4, 4], f32), [2, 2], [2, 2], [0, 0], [1, 1], False, T([1, 2, 2, 2], i64)), {})
Operator: aten.native_batch_norm.default
cnt: 1, ((T([2, 3, 4, 4], f32), T([3], f32), T([3], f32), T([3], f32), T([3], f32), True, 0.1, 1e-05), {})
"""
ORDERED = """\
Operator: aten._embedding_bag.default
cnt: 2, ((T([96, 24], f32), T([5482], i64), T([102], i64), False, 0, True, T([5482], f32)), {})
cnt: 1, ((T([96, 24], f32), T([5482], i64), T([103], i64), False, 1, False, None, True), {})
Operator: aten._embedding_bag_per_sample_weights_backward.default
cnt: 2, ((T([102, 24], f32), T([96, 24], f32), T([5482], i64), T([102], i64), T([5482], i64), 0), {})
Operator: aten.searchsorted.Tensor
cnt: 1, ((T([3, 96], f32), T([3, 24], f32)), {})
Operator: aten._grouped_mm.default
cnt: 1, ((T([33, 16], bf16), T([4, 16, 32], bf16), T([4], i32)), {})
"""
BROKEN = "Operator: aten._cudnn_rnn_backward.default\ncnt: 1, ((T([2], f32),), {})\ncnt: 1, ((T([2,\n"
SPYRE = """\
tests:
  - name: torch.getitem
    sample_inputs_func:
      args:
        - tensor: {shape: [2, 3], stride: [1, 2], dtype: torch.float32, init: rand}
        - py: (slice(None, None, None), None)
    description: 'https://h/model.py#L84 in f, code: y = x[:, None]'
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("import")


@pytest.fixture(scope="module")
def imported(folder: Path) -> Result:
    (folder / "log.txt").write_text(LOG)
    (folder / "again.txt").write_text(LOG)
    (folder / "spyre.yaml").write_text(SPYRE)
    return run_in(folder, "import", "log.txt", "again.txt", "spyre.yaml", "-o", "cases", "--strict")


def test_all_of_the_files_are_cases(imported: Result, folder: Path) -> None:
    assert imported.code == 0, imported.text
    assert "log: 53 of 53 calls; 4 cases" in imported.text
    assert "5 cases in cases" in imported.text
    assert "next: runner run cases/captured.suite.yaml" in imported.text
    specs = sorted((folder / "cases").glob("*.spec.yaml"))
    cases = [case for spec in specs for case in yaml.safe_load(spec.read_text())["cases"]]
    assert [case["name"] for case in cases] == [
        "aten_addmm_default", "aten_embedding_default", "f_batch_norm", "f_max_pool2d", "operator_getitem",
    ]  # fmt: skip
    assert cases[0]["doc"].startswith("log.txt:2, ")
    assert cases[3]["grad"] == "backward"


def test_calls_of_all_files_are_counted(imported: Result, folder: Path) -> None:
    inventory = json.loads((folder / "cases" / "inventory.json").read_text())
    counts = {case["name"]: case["count"] for case in inventory["cases"].values()}
    assert (counts["aten_addmm_default"], counts["operator_getitem"]) == (98, 1)


def test_the_cases_pass(imported: Result, folder: Path) -> None:
    pytest.importorskip("torch")
    run = run_in(folder, "run", "cases/captured.suite.yaml", "--backend", "aot_eager", "--no-confirm")
    assert run.code == 0 and "5 passed" in run.text, run.text


def test_offsets_and_boundaries_are_ones_that_eager_takes(folder: Path) -> None:
    pytest.importorskip("torch")
    (folder / "ordered.txt").write_text(ORDERED)
    result = run_in(folder, "import", "ordered.txt", "-o", "ordered", "--shrink")
    assert result.code == 0 and "7 of 7 calls" in result.text, result.text
    run = run_in(folder, "run", "ordered", "--backend", "eager", "--no-confirm")
    assert run.code == 0, run.text


@pytest.mark.nightly
def test_the_commands_for_failures_take_imported_cases(imported: Result, folder: Path) -> None:
    pytest.importorskip("torch")
    (folder / "planted.py").write_text(
        "def wrong(graph, inputs):\n    return lambda *args: tuple(o + 1 for o in graph(*args))\n"
    )
    words = ("cases::f_batch_norm", "--backend", "planted:wrong", "--allow-python")
    assert run_in(folder, "validate", "cases").code == 0
    diagnosed = run_in(folder, "diagnose", *words, limit=600)
    assert "to blame\n  planted:wrong: call 1 of 1" in diagnosed.out, diagnosed.text
    reduced = run_in(folder, "reduce", *words, "-o", "reduced", limit=600)
    assert reduced.code == 0 and "F.batch_norm" in (folder / "reduced" / "case.spec.yaml").read_text(), reduced.text
    assert run_in(folder, "validate", "reduced/case.spec.yaml").code == 0
    script = folder / "repro.py"
    script.write_text(run_in(folder, "repro", *words).out)
    done = subprocess.run([sys.executable, "repro.py"], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "AssertionError" in done.stderr, done.stderr
    report = run_in(folder, "issue", *words, "--no-reduce", limit=600)
    assert report.code == 0 and "4 of 4 are met" in report.out, report.text
    explained = run_in(folder, "why", *words, limit=600)
    assert explained.code == 1 and "operator  F.batch_norm" in explained.out, explained.text


def test_what_is_left_out_is_listed_with_its_place(folder: Path) -> None:
    (folder / "broken.txt").write_text(LOG + BROKEN)
    result = run_in(folder, "import", "broken.txt", "-o", "broken")
    assert result.code == 0
    assert "left out: broken.txt:10: aten._cudnn_rnn_backward.default: " in result.text
    assert "left out: broken.txt:11: aten._cudnn_rnn_backward.default: this is no Python" in result.text
    assert run_in(folder, "import", "broken.txt", "-o", "strict", "--strict").code == 1


def test_large_sizes_become_smaller_and_the_originals_are_kept(folder: Path) -> None:
    pytest.importorskip("torch")
    (folder / "large.txt").write_text(
        "Operator: aten.view.default\ncnt: 1, ((T([64, 128, 768], f16), [8192, 768]), {})\n"
        "Operator: aten.relu.default\ncnt: 1, ((T([3, 4], f16),), {})\n"
    )
    result = run_in(folder, "import", "large.txt", "-o", "small", "--shrink")
    assert result.code == 0, result.text
    specs = sorted((folder / "small").glob("*.spec.yaml"))
    cases = {case["name"]: case for spec in specs for case in yaml.safe_load(spec.read_text())["cases"]}
    assert cases["aten_view_default_original"]["inputs"] == {"x": [64, 128, 768]}
    assert cases["aten_view_default_original"]["tags"] == ["imported", "original"]
    assert cases["aten_view_default"]["inputs"] == {"x": [8, 16, 32]}
    assert cases["aten_view_default"]["chain"] == [{"aten.view.default": ["$x", [128, 32]]}]
    assert "64 to 8, 128 to 16, 768 to 32, 8192 to 128" in cases["aten_view_default"]["doc"]
    listed = run_in(folder, "list", "small/captured.suite.yaml", "--backend", "aot_eager").out
    assert len(listed.splitlines()) == 2 and "original" not in listed


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("unknown.txt", "hello", "unknown.txt:1:1: error: this file has no known format"),
        ("missing.txt", None, "missing.txt:1:1: error: this file cannot be read: No such file"),
        ("bad.yaml", "a: [\nsample_inputs_func: 1", "bad.yaml:1:4: error: this list is not closed"),
        ("bad.py", "import torch\nclass A(torch.nn.Module):\n    def forward(self):\n        return (", "bad.py:4:"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_at_its_place(
    folder: Path, name: str, text: str | None, words: str
) -> None:
    if text is not None:
        (folder / name).write_text(text)
    result = run_in(folder, "import", name, "-o", "none")
    assert result.code == 4 and words in result.err, result.err
    assert not list((folder / "none").glob("*.yaml"))
