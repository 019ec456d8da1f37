"""``docs/ci/``: the pipelines for a compiler's own repository hold against the published schemas and linters.

``check-jsonschema`` brings the schemas. ``actionlint`` and ``npm-groovy-lint`` are used where they are on the PATH.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.cli.main import build_parser

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / "docs" / "ci"
GITHUB, GITLAB, JENKINS = FOLDER / "github-compiler.yml", FOLDER / "gitlab-compiler.yml", FOLDER / "Jenkinsfile"
SCHEMAS = {GITHUB: ["vendor.github-workflows"], GITLAB: ["vendor.gitlab-ci", "--data-transform", "gitlab-ci"]}
CHECKOUT = "torch-spec-runner/"
"""Where the pipelines have this repository."""
SELECTIONS = {"--affected-by", "--coverage-lines", "--shard"}

has_schemas = pytest.mark.skipif(
    importlib.util.find_spec("check_jsonschema") is None, reason="check-jsonschema is not installed"
)


class Loader(yaml.SafeLoader):
    """Reads GitLab's ``!reference`` as a list, and ``on`` as a word."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


Loader.add_constructor("!reference", lambda loader, node: loader.construct_sequence(node))
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"true|false"), [*"tf"])


def read(text: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.load(text, Loader)
    return data


def scripts(path: Path, text: str) -> list[str]:
    """Return what the shell gets, in the order of the file. A script that an alias repeats comes once."""
    if path == JENKINS:
        return re.findall(r"\bsh '(.*)'$", text, re.MULTILINE)
    jobs = read(text)
    if path == GITHUB:
        steps = [step for job in jobs["jobs"].values() for step in job["steps"]]
        return [*dict.fromkeys(step["run"] for step in steps if "run" in step)]
    parts = [job.get(key, []) for job in jobs.values() if isinstance(job, dict) for key in ("before_script", "script")]
    return [line for part in parts for line in part if isinstance(line, str)]


def commands(path: Path, text: str) -> Iterator[list[str]]:
    """Yield the words of each of the runner's commands, with 1 for each variable."""
    for line in "\n".join(scripts(path, text)).splitlines():
        lexer = shlex.shlex(re.sub(r"\$\w+", "1", line), posix=True, punctuation_chars=True)
        lexer.wordchars += ":$"
        words: list[str] = []
        for word in [*lexer, "|"]:
            if set(word) <= set("|&;()<>"):
                if words[:1] == ["runner"]:
                    yield words[1:]
                words = []
            else:
                words.append(word)


def problems_of_commands(path: Path, text: str) -> Iterator[str]:
    """Say which command the runner refuses, and which suite is not shipped."""
    for words in commands(path, text):
        try:
            arguments = build_parser().parse_args(words)
        except SystemExit:
            yield f"refused: {' '.join(words)}"
            continue
        for name in getattr(arguments, "paths", []):
            if not name.startswith(CHECKOUT) or not (REPOSITORY / name.removeprefix(CHECKOUT)).is_file():
                yield f"not shipped: {name}"


@pytest.mark.parametrize("path", [GITHUB, GITLAB, JENKINS], ids=lambda path: path.name)
def test_the_runner_takes_each_command_and_ships_each_suite(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(re.findall(r"(?<![\w./-])runner (?:run|hunt|board|merge) ", text)) == len([*commands(path, text)]) > 5
    assert [*problems_of_commands(path, text)] == []


@pytest.mark.parametrize("path", [GITHUB, GITLAB, JENKINS], ids=lambda path: path.name)
@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("--affected-by", "--affected", "refused: run"),
        ("--budget 60m", "--budget 60x", "refused: hunt"),
        ("-o site", "--site", "refused: board"),
        ("core.suite.yaml", "kernel.suite.yaml", "not shipped"),
    ],
)
def test_a_mistake_in_a_command_is_seen(right: str, wrong: str, message: str, path: Path) -> None:
    text = re.sub(r"-o (?:public|board)\b", "-o site", path.read_text(encoding="utf-8"))
    assert right in text
    problems = [*problems_of_commands(path, text.replace(right, wrong))]
    assert problems and all(problem.startswith(message) for problem in problems)


@pytest.mark.parametrize("path", [GITHUB, GITLAB, JENKINS], ids=lambda path: path.name)
def test_each_pipeline_has_the_four_parts(path: Path) -> None:
    words = [[each for each in words if not each.startswith("acme")] for words in commands(path, path.read_text())]
    runs = {(Path(each[1]).name.partition(".")[0], *sorted(SELECTIONS & {*each})) for each in words if each[0] == "run"}
    shard = () if path == JENKINS else ("--shard",)
    assert runs >= {("core", "--affected-by"), ("core",), ("core", "--coverage-lines"), ("full", *shard)}
    assert {each[0] for each in words} >= {"run", "hunt", "board"}


def test_the_parts_of_the_workflow_fit_each_other() -> None:
    jobs = read(GITHUB.read_text(encoding="utf-8"))["jobs"]
    steps = {name: {step.get("name"): step for step in job["steps"]} for name, job in jobs.items()}
    save, restore = (
        steps["record"]["Keep the recorded lines"]["with"],
        steps["affected"]["Restore the recorded lines"]["with"],
    )
    assert save["path"] == restore["path"] and save["key"].startswith(restore["restore-keys"])
    kept, taken = steps["hunt"]["Keep the hunt"]["with"], steps["hunt"]["Restore the hunt"]["with"]
    assert kept["path"] == taken["path"] and kept["key"].startswith(taken["restore-keys"])
    shards = [str(shard) for shard in jobs["full"]["strategy"]["matrix"]["shard"]]
    (merge,) = [words for words in commands(GITHUB, GITHUB.read_text(encoding="utf-8")) if words[0] == "merge"]
    assert [word[6:-6] for word in merge if word.startswith("shard-")] == shards
    assert all(f"/{len(shards)}" in step["run"] for step in jobs["full"]["steps"] if "--shard" in step.get("run", ""))
    assert {*jobs["affected"]["container"]["options"].split()} == {"--hostname", "compiler-ci"}
    assert all("${{" not in script for script in scripts(GITHUB, GITHUB.read_text(encoding="utf-8")))


def test_what_gets_the_key_runs_nothing_of_a_fork() -> None:
    for name, job in read(GITHUB.read_text(encoding="utf-8"))["jobs"].items():
        keys = [step for step in job["steps"] if "secrets." in json.dumps(step)]
        assert bool(keys) == (name in ("affected", "record")), name
        assert "head.repo.full_name == github.repository" in job["if"] or name != "affected"
        assert {*job.get("permissions", {})} <= {"contents", "pages", "id-token"} and (
            name in ("board", "publish") or "permissions" not in job
        )


# --- the schemas ---


def check(path: Path, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Hold a file against the schema that its system publishes. Nothing is loaded from the network."""
    copy = folder / path.name
    copy.write_text(text, encoding="utf-8")
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", *SCHEMAS[path], str(copy)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


@has_schemas
@pytest.mark.parametrize("path", [GITHUB, GITLAB], ids=lambda path: path.name)
def test_the_published_schema_holds(path: Path, tmp_path: Path) -> None:
    process = check(path, path.read_text(encoding="utf-8"), tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr


@has_schemas
@pytest.mark.parametrize(
    ("path", "right", "wrong"),
    [(GITHUB, "runs-on: ubuntu-latest", "run-on: ubuntu-latest"), (GITHUB, "fail-fast: false", "fail-fast: [1]"),
     (GITLAB, "when: always", "when: evermore"), (GITLAB, "parallel: 4", "parallel: 0")],
)  # fmt: skip
def test_the_schema_refuses_a_mistake(path: Path, right: str, wrong: str, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert right in text
    process = check(path, text.replace(right, wrong), tmp_path)
    assert process.returncode == 1 and wrong.partition(":")[0].split("-")[0] in process.stdout, process.stderr


# --- the linters ---


def lint_workflow(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Have actionlint read a workflow, without aliases: versions before 1.7.8 know none."""
    program = shutil.which("actionlint")
    if program is None:
        pytest.skip("actionlint is not installed")
    copy = folder / ".github" / "workflows" / GITHUB.name
    copy.parent.mkdir(parents=True)
    copy.write_text(json.dumps(read(text)), encoding="utf-8")
    return subprocess.run([program, str(copy)], capture_output=True, text=True, cwd=folder, timeout=120)


def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    process = lint_workflow(GITHUB.read_text(encoding="utf-8"), tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("needs: full", "needs: fill"), ("${{ matrix.shard }}", "${{ matrix.shards }}"), ('"17 2 * * *"', '"77 2 * * *"')],
)
def test_actionlint_sees_a_mistake(right: str, wrong: str, tmp_path: Path) -> None:
    text = GITHUB.read_text(encoding="utf-8")
    assert right in text
    process = lint_workflow(text.replace(right, wrong), tmp_path)
    assert process.returncode == 1, process.stdout + process.stderr


def shape_of(text: str) -> list[str]:
    """Return the blocks of a Jenkinsfile, from the outside in. Raises ValueError where braces do not pair."""
    text = re.sub(r"//.*$", "", re.sub(r"'[^'\n]*'", "''", text), flags=re.MULTILINE)
    depth, blocks = 0, []
    for match in re.finditer(r"(\w+)[^\S\n]*(?:\([^()\n]*\)[^\S\n]*)?\{|\}|\{", text):
        if match[0] == "}":
            depth -= 1
        else:
            blocks.append(f"{depth} {match[1]}")
            depth += 1
        if depth < 0:
            raise ValueError("a brace too many")
    if depth:
        raise ValueError(f"{depth} braces are open")
    return blocks


def test_the_jenkinsfile_has_the_shape_of_a_declarative_pipeline() -> None:
    text = JENKINS.read_text(encoding="utf-8")
    blocks = shape_of(text)
    assert blocks[0] == "0 pipeline" and [block for block in blocks if block.startswith("1 ")] == [
        f"1 {name}" for name in ("agent", "triggers", "options", "environment", "stages", "post")
    ]
    assert blocks.count("2 stage") == 4 == blocks.count("3 steps")
    for wrong in (text + "}\n", text.replace("steps {", "steps", 1)):
        with pytest.raises(ValueError, match="brace"):
            shape_of(wrong)


@pytest.mark.nightly
def test_the_groovy_linter_parses_the_jenkinsfile_and_refuses_a_mistake(tmp_path: Path) -> None:
    program = shutil.which("npm-groovy-lint")
    if program is None:
        pytest.skip("npm-groovy-lint is not installed")
    text = JENKINS.read_text(encoding="utf-8")
    for content, errors in ((text, 0), (text.replace("steps {", "steps", 1), 1)):
        (tmp_path / "Jenkinsfile").write_text(content, encoding="utf-8")
        words = [program, "--noserver", "--output", "json", "Jenkinsfile"]
        process = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        summary = json.loads(process.stdout[process.stdout.index("{") :])["summary"]
        assert summary["totalFilesLinted"] == 1 and summary["totalFoundErrorNumber"] == errors, summary
