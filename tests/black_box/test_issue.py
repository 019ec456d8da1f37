"""``runner issue`` from a planted bug to a report whose script shows it."""

from __future__ import annotations

import re
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
    inputs: {{x: [4, 8]}}
    chain: [torch.tanh, torch.relu]
    known: [{{torch: "<2.6", oracle: [value], issue: "{LINK}"}}]
    """,
    "name: fine\ninputs: {x: [4]}\nchain: [torch.tanh]",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("issue")
    write(path, {"a.spec.yaml": CASES})
    return path


@pytest.fixture(scope="module")
def result(folder: Path) -> Result:
    return run_in(folder, "issue", "a.spec.yaml::wrong", "--backend", PLANTED, "--no-reduce", "--similar", "-o", "report.md", "-j", 2)  # fmt: skip


def test_a_planted_bug_gives_a_whole_report(result: Result, folder: Path) -> None:
    assert result.code == 0, result.text
    text = (folder / "report.md").read_text()
    for section in ("# [backend] torch.tanh, torch.relu", "### 🐛 Describe the bug", "#### Ablation", "### Error logs", "### Versions",
                    "PyTorch version: ", "topic: fuzzer", "AssertionError: Tensor-likes are not close!"):  # fmt: skip
        assert section in text, section
    assert "- [ ]" not in text and str(folder) not in text
    assert len(re.sub(r"(?s)<details>.*?</details>", "", text).splitlines()) < 120


def test_similar_failures_are_printed_and_named(result: Result, folder: Path) -> None:
    assert LINK in result.out and "relu, tanh" in result.out
    assert f"- {LINK} (relu, tanh)" in (folder / "report.md").read_text()


def test_the_script_in_the_report_fails_alone(result: Result, folder: Path) -> None:
    script = re.findall(r"```python\n(.*?)\n```\n", (folder / "report.md").read_text(), re.DOTALL)[-1]
    (folder / "alone.py").write_text(script)
    ran = subprocess.run([sys.executable, "-I", "alone.py"], cwd=folder, env=environment(), capture_output=True, text=True, timeout=200, check=False)  # fmt: skip
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "AssertionError: Tensor-likes are not close!" in ran.stderr


def test_what_passes_is_refused(folder: Path) -> None:
    result = run_in(folder, "issue", "a.spec.yaml::fine", "--backend", PLANTED, "-o", "none.md", "-j", 1)
    assert result.code == 1
    assert "not met: fails with the newest torch tried" in result.err and "is PASS" in result.err
    assert result.out == "" and not (folder / "none.md").exists()


def test_a_list_that_is_not_there_is_an_error_at_once(folder: Path) -> None:
    result = run_in(folder, "issue", "a.spec.yaml::wrong", "--backend", PLANTED, "--similar", "absent.jsonl")
    assert result.code == 5 and "absent.jsonl: No such file" in result.err
