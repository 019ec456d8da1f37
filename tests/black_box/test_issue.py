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


@pytest.mark.nightly
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


ACME = """
def compile(graph, inputs):
    return lambda *args: tuple(out + 1 for out in graph(*args))

def declines(graph, inputs):
    raise NotImplementedError("acme has no tanh")
"""
METADATA = """\
Metadata-Version: 2.1
Name: acme-compiler
Version: 1.2
Project-URL: Issues, https://acme.example/issues
"""


@pytest.fixture
def vendor(tmp_path: Path) -> Path:
    profile = "suite: p\nspecs: []\nbackends: [{name: mine, backend: 'acme.backends:compile', fullgraph: true}]\n"
    write(tmp_path, {"a.spec.yaml": CASES, "acme/backends.py": ACME, "acme/__init__.py": "", "p.suite.yaml": profile,
                     "acme_compiler-1.2.dist-info/METADATA": METADATA, "acme_compiler-1.2.dist-info/top_level.txt": "acme\n"})  # fmt: skip
    return tmp_path


@pytest.mark.nightly
def test_a_profiles_backend_is_reported_to_its_own_package(vendor: Path) -> None:
    case = "p.suite.yaml::a.spec.yaml::fine[float32,cpu]@mine"
    result = run_in(vendor, "issue", case, "--allow-python", "-o", "report.md", "-j", 2)
    assert result.code == 0, result.text
    assert "for the tracker of acme-compiler 1.2: https://acme.example/issues" in result.err
    assert "upstream" not in result.err
    text = (vendor / "report.md").read_text()
    assert text.startswith("# [acme-compiler] torch.tanh: torch.compile gives wrong values") and "fuzzer" not in text
    assert "acme-compiler 1.2, https://acme.example/issues" in text and str(vendor) not in text


@pytest.mark.nightly
def test_what_a_package_declines_is_no_report_to_pytorch(vendor: Path) -> None:
    backend = ("--backend", "acme.backends:declines")
    result = run_in(vendor, "issue", "a.spec.yaml::fine", *backend, "--no-reduce", "-j", 2)
    assert result.code == 0 and "does not implement it" in result.out.splitlines()[0], result.text
    assert "acme raised NotImplementedError itself, so this is no defect of PyTorch" in result.err


def test_what_fails_without_the_package_is_not_its_failure(vendor: Path) -> None:
    case = spec("name: broken\ninputs: {x: [4]}\ngrad: off\nexpect: {graphs: 0}\nchain: [torch.tanh]")
    write(vendor, {"a.spec.yaml": case})
    result = run_in(vendor, "issue", "a.spec.yaml::broken", "--backend", "acme.backends:compile", "--no-reduce")
    assert result.code == 1 and "the same command with --backend eager" in result.err, result.text
