"""Selecting never fails silently: what is misspelt, or leaves nothing, is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from .driver import run_in, write

FILES = {
    "a.spec.yaml": """
        cases:
          - name: relu
            tags: [fast, numeric]
            inputs: {x: [4]}
            chain: [F.relu]
          - name: on_gpu
            inputs: {x: [4]}
            devices: [cuda]
            chain: [F.relu]
    """,
    "gpu.suite.yaml": "suite: gpu\nspecs: [a.spec.yaml]\ndevices: [cuda]\n",
    "nothing.suite.yaml": "suite: nothing\nspecs: [a.spec.yaml]\nselect: tag:fsat and not case:rleu\n",
    "idle.suite.yaml": "suite: idle\nspecs: [a.spec.yaml]\nselect: not op:F.rleu\n",
}
RELU, ON_GPU = "a.spec.yaml::relu[float32,cpu]@inductor", "a.spec.yaml::on_gpu[float32,cuda]@inductor"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, FILES)
    return tmp_path


@pytest.mark.parametrize(
    ("expression", "code", "listed", "words"),
    [
        ("tag:fast", 0, [RELU], ""),
        ("device:cuda", 0, [ON_GPU], ""),
        ("dtype:float32 and file:a.spec.yaml and backend:inductor and case:relu", 0, [RELU], ""),
        ("not tag:fsat", 0, [RELU, ON_GPU], "runner: -k: tag:fsat matches no tag here; did you mean 'fast'?"),
        ("case:rleu or on_gpu", 0, [ON_GPU], "case:rleu matches no case here; did you mean 'relu'?"),
        ("backend:inducter", 5, [], "did you mean 'inductor'?"),
        ("oracle:value", 4, [], "unknown field 'oracle': there are tag, case, file, backend, device, dtype, op"),
        ("op:nn.ReLU and tag:fast", 0, [RELU], ""),
        ("op:aten.addm", 5, [], "-k: op:aten.addm matches no op here"),
        ("tga:fast", 4, [], "unknown field 'tga': did you mean 'tag'?"),
        ("'a:b'", 5, [], "nothing selected: none of 2 variants is left"),
    ],
)
def test_expressions(folder: Path, expression: str, code: int, listed: list[str], words: str) -> None:
    result = run_in(folder, "list", "a.spec.yaml", "-k", expression)
    assert (result.code, result.out.splitlines()) == (code, listed) and words in result.err, result.text
    assert bool(result.err) == bool(words)


def test_a_suite_that_selects_nothing(folder: Path) -> None:
    result = run_in(folder, "validate", "nothing.suite.yaml")
    assert (
        result.code == 0
        and "nothing.suite.yaml:3:9: warning: suite 'nothing' selects none of its 2 cases" in result.err
    )
    assert "warning: tag:fsat matches no tag here; did you mean 'fast'?" in result.err
    assert "warning: case:rleu matches no case here; did you mean 'relu'?" in result.err
    listed = run_in(folder, "list", "nothing.suite.yaml")
    assert "runner: nothing.suite.yaml:3: select: tag:fsat matches no tag here; did you mean 'fast'?" in listed.err
    result = run_in(folder, "run", "nothing.suite.yaml")
    assert result.code == 5 and "selects none of its 2 cases" in result.err


def test_a_suite_that_names_an_operator_which_no_case_calls(folder: Path) -> None:
    result = run_in(folder, "validate", "idle.suite.yaml")
    assert "idle.suite.yaml:3:9: warning: op:F.rleu matches no op here; did you mean 'F.relu'?" in result.err


def test_devices_that_leave_nothing(folder: Path) -> None:
    alone = "it runs on cuda alone (devices:), and --device is cpu"
    result = run_in(folder, "run", "a.spec.yaml::on_gpu", "--device", "cpu")
    assert result.code == 4 and f"case 'on_gpu' has no variant here: {alone}" in result.err
    result = run_in(folder, "run", "a.spec.yaml", "-k", "on_gpu", "--device", "cpu")
    assert result.code == 5 and f"none of 1 variant is left; case 'on_gpu': {alone}" in result.err
    result = run_in(folder, "run", "gpu.suite.yaml", "--device", "cpu")
    assert result.code == 5 and f"case 'on_gpu': {alone}" in result.err
    assert "case 'relu': suite 'gpu' runs on cuda alone (devices:), and the case on cpu" in result.err


def test_errors_of_files_come_first(folder: Path) -> None:
    write(folder, {"b.spec.yaml": "cases:\n  - name: broken\n    inputs: {x: [2]}\n    chain: [F.rleu]\n"})
    for expression in ("tag:fast", "tag:nothing"):
        result = run_in(folder, "list", "a.spec.yaml", "b.spec.yaml", "-k", expression)
        assert "b.spec.yaml:4:13: error" in result.err.splitlines()[0] and result.code == 4, result.err
    result = run_in(folder, "run", "a.spec.yaml", "b.spec.yaml", "-k", "nothing_like_this")
    assert "b.spec.yaml:4:13: error" in result.err.splitlines()[0] and result.code == 4
    assert "nothing selected" in result.err.splitlines()[-1]


def test_tags_and_backends_are_listed(folder: Path) -> None:
    assert run_in(folder, "list", "a.spec.yaml", "--tags").out.split("\n")[:2] == [
        "fast     1 variant",
        "numeric  1 variant",
    ]
    result = run_in(folder, "list", "a.spec.yaml", "--backends", "--backend", "eager", "--backend", "inductor")
    assert result.out.splitlines() == ["eager     2 variants", "inductor  2 variants"]


def test_a_misspelt_backend_is_one_error_before_anything_runs(folder: Path) -> None:
    result = run_in(folder, "run", "a.spec.yaml", "--backend", "inducter")
    assert (result.code, result.err) == (4, "runner: --backend inducter: no such backend; did you mean 'inductor'?\n")
    assert result.folder is None and result.out == ""


@pytest.mark.parametrize("command", ["run", "list", "show", "repro", "bench"])
def test_a_case_that_is_refused_is_no_empty_selection(tmp_path: Path, command: str) -> None:
    write(tmp_path, {"a.spec.yaml": """
        cases:
          - {name: good, inputs: {x: [4]}, chain: [F.relu]}
          - {name: bad, inputs: {x: [4]}, chain: [F.rleu]}
    """})  # fmt: skip
    result = run_in(tmp_path, command, "a.spec.yaml", "-k", "case:bad")
    assert result.code == 4 and "error: unknown operator 'F.rleu'" in result.err, result.text
    assert "-k: case:bad matches no case here; cases with errors do not count" in result.err
    assert not (tmp_path / ".runner").exists()


def test_a_run_beside_refused_cases_resumes_with_its_exit_code(folder: Path) -> None:
    """Its log has the code of the command, as the schema says."""
    write(folder, {"b.spec.yaml": "cases:\n  - name: broken\n    inputs: {x: [2]}\n    chain: [F.rleu]\n"})
    run = run_in(folder, "run", "a.spec.yaml", "b.spec.yaml", "-k", "on_gpu", "--backend", "eager")
    assert run.code == run.events[-1]["exit_code"] == run_in(folder, "resume", "--yes").code == 4, run.text
