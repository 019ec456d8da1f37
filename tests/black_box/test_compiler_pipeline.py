"""``docs/ci/github-compiler.yml``: the scripts of its jobs, run for the repository of a small compiler.

The night records and shards, a pull request runs what it affects, and the board has the night. Left out are pip, the
actions of GitHub, and the hunt; two suites of four cases take the place of ``core`` and ``full``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from .driver import REPOSITORY, environment, write

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("git") and shutil.which("openssl")), reason="git or openssl is not installed"),
]

CASES = """\
cases:
  - {name: relu, inputs: {x: [4]}, chain: [F.relu]}
  - {name: sine, inputs: {x: [4]}, chain: [torch.sin]}
  - {name: cosine, inputs: {x: [4]}, chain: [torch.cos]}
  - {name: tangent, inputs: {x: [4]}, chain: [torch.tan]}
"""
BACKEND = """\
import torch


def compile_graph(graph, inputs):
    if any("sin" in str(node.target) for node in graph.graph.nodes):
        return compile_sine(graph)
    return graph.forward


def compile_sine(graph):
    factor = 1
    return lambda *inputs: [each * factor for each in graph.forward(*inputs)]
"""
JOBS: dict[str, Any] = yaml.safe_load((REPOSITORY / "docs/ci/github-compiler.yml").read_text(encoding="utf-8"))["jobs"]
LEFT_OUT = re.compile(r"^python -I -m pip ")


class Repository:
    """The compiler's repository, with an ``origin`` beside it, and jobs that run in clones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.origin, self.work, self.kept = folder / "origin.git", folder / "work", folder / "kept"
        self.git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(self.origin))
        self.git(folder, "clone", "--quiet", str(self.origin), str(self.work))
        self.git(self.work, "checkout", "--quiet", "--orphan", "results")
        self.commit("results", {"README": "results\n"})
        self.git(self.work, "checkout", "--quiet", "--orphan", "main")
        self.git(self.work, "rm", "-rfq", ".")
        self.commit("main", {"acme/__init__.py": BACKEND, "README.md": "acme\n"})

    def git(self, cwd: Path, *words: str) -> None:
        subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True, env=self.environment())

    def environment(self, **variables: str) -> dict[str, str]:
        own = {"HOME": str(self.folder), "RUNNER_KEY": "a secret", "TORCH": "2.13.0", "GIT_CONFIG_NOSYSTEM": "1"}
        own["GITHUB_STEP_SUMMARY"] = str(self.folder / "summary.md")
        own |= {f"GIT_{who}_{what}": "a@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        own["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {key: value for key, value in environment(own | variables).items() if key != "XDG_STATE_HOME"}

    def commit(self, branch: str, files: dict[str, str]) -> None:
        write(self.work, files)
        self.git(self.work, "add", ".")
        self.git(self.work, "commit", "--quiet", "--message", "change")
        self.git(self.work, "push", "--quiet", "--force", "origin", f"HEAD:{branch}")

    def job(self, name: str, branch: str = "main", code: int = 0, **variables: str) -> tuple[Path, str]:
        """Run the scripts of a job in a clone, as GitHub's bash does; return the clone and the output."""
        clone = self.folder / f"{name}-{branch}{''.join(variables.values())}"
        self.git(
            self.folder, "clone", "--quiet", "--depth=1", f"--branch={branch}", f"file://{self.origin}", str(clone)
        )
        suite = "suite: own\nspecs: [a.spec.yaml]\nbackends: [aot_eager]\n"
        write(
            clone / "torch-spec-runner/suites",
            {"a.spec.yaml": CASES, "core.suite.yaml": suite, "full.suite.yaml": suite},
        )
        for part in self.kept.iterdir() if self.kept.exists() else ():
            (shutil.copytree if part.is_dir() else shutil.copy)(part, clone / part.name)
        if name == "board":
            self.git(self.folder, "clone", "--quiet", "--branch=results", str(self.origin), str(clone / "results"))
        text, end = "", 0
        for step in JOBS[name]["steps"]:
            if "run" not in step or LEFT_OUT.match(step["run"]):
                continue
            if end:
                break
            process = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=clone,
                env=self.environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240,
            )  # fmt: skip
            text, end = text + process.stdout, process.returncode
        assert end == code, text
        return clone, text


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository whose night has recorded lines; the cache of the jobs has them."""
    repository = Repository(tmp_path_factory.mktemp("compiler"))
    clone, _ = repository.job("record")
    for part in JOBS["record"]["steps"][-1]["with"]["path"].split():
        target = repository.kept / part
        target.parent.mkdir(exist_ok=True)
        (shutil.copytree if (clone / part).is_dir() else shutil.copy)(clone / part, target)
    return repository


def test_a_pull_request_with_a_fault_is_red_and_runs_what_it_affects(repository: Repository) -> None:
    repository.commit("fault", {"acme/__init__.py": BACKEND.replace("factor = 1", "factor = 2")})
    _, text = repository.job("affected", "fault", code=1)
    assert "--affected-by: 1 of 4 variants run" in text and "FAIL " in text and "::sine[" in text


def test_a_pull_request_without_a_fault_is_green(repository: Repository) -> None:
    repository.commit("good", {"acme/__init__.py": BACKEND.replace("factor = 1", "factor = 1.0")})
    _, text = repository.job("affected", "good")
    assert "--affected-by: 1 of 4 variants run" in text and "1 passed" in text


def test_a_pull_request_of_documents_is_green_and_runs_nothing(repository: Repository) -> None:
    repository.commit("documents", {"acme/__init__.py": BACKEND, "README.md": "acme, a compiler\n"})
    _, text = repository.job("affected", "documents")
    assert "only tests and documents change" in text


def test_a_job_with_another_key_takes_no_recorded_lines(repository: Repository) -> None:
    repository.commit("other", {"acme/__init__.py": BACKEND.replace("factor = 1", "factor = 3")})
    _, text = repository.job("affected", "other", code=1, RUNNER_KEY="another")
    assert "no run that is kept here recorded lines" in text
    _, text = repository.job("affected", "main", code=1, RUNNER_KEY="")
    assert "the secret RUNNER_KEY is not set" in text


def test_the_shards_of_a_night_become_a_board_and_a_result_of_the_branch(repository: Repository) -> None:
    shards = JOBS["full"]["strategy"]["matrix"]["shard"]
    for shard in map(str, shards):
        clone, _ = repository.job("full", SHARD=shard)
        shutil.copy(clone / f"shard-{shard}.jsonl", repository.kept)
    clone, text = repository.job("board")
    assert "4 passed" in text and "acme:compile_graph" in (clone / "site" / "index.html").read_text(encoding="utf-8")
    names = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "results"], cwd=repository.origin, capture_output=True, text=True, check=True
    ).stdout.split()  # fmt: skip
    assert any(re.fullmatch(r"acme:compile_graph/2\.13\.0/[\d-]+/events\.jsonl", name) for name in names), names
    checked = subprocess.run(
        ["runner", "board", "results", "--check", "torch-spec-runner/suites/full.suite.yaml"],
        cwd=clone, env=repository.environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert "its folder says" not in checked.stdout, checked.stdout
