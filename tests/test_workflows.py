"""``action.yml`` and the workflows: the rules of GitHub, no input within a script, and scripts that do what they say.

Where ACTION_SCHEMA and WORKFLOW_SCHEMA name the schemas of SchemaStore, the files are held against these too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from runner.cli.main import build_parser
from runner.record.journal import Journal
from runner.worker.torch_private.doors import BOTH
from tests.handmade import played, variants

REPOSITORY = Path(__file__).resolve().parents[1]
ACTION = REPOSITORY / "action.yml"
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
OFFICIAL = re.compile(r"actions/[\w-]+@v\d+|\./")


def read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return data


def steps_of(path: Path) -> Iterator[dict[str, Any]]:
    data = read(path)
    jobs = [data["runs"]] if "runs" in data else data["jobs"].values()
    for job in jobs:
        yield from job["steps"]


@pytest.mark.parametrize("path", [ACTION, *WORKFLOWS], ids=lambda path: path.name)
def test_the_published_schema_holds(path: Path) -> None:
    variable = "ACTION_SCHEMA" if path == ACTION else "WORKFLOW_SCHEMA"
    if variable not in os.environ:
        pytest.skip(f"{variable} names no schema")
    data = read(path)
    if True in data:  # YAML 1.1 reads the key "on" so
        data["on"] = data.pop(True)  # type: ignore[call-overload]
    schema = json.loads(Path(os.environ[variable]).read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(schema).validate(data)


@pytest.mark.parametrize("path", [ACTION, *WORKFLOWS], ids=lambda path: path.name)
def test_each_step_is_one_that_github_takes(path: Path) -> None:
    for step in steps_of(path):
        assert ("run" in step) is not ("uses" in step), step
        assert "shell" in step or "run" not in step or path != ACTION, "a composite action has no shell of its own"
        assert OFFICIAL.fullmatch(step.get("uses", "./")), step
        assert "${{" not in step.get("run", ""), "an input within a script is run as a part of it"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_and_nothing_else_and_its_jobs_end(path: Path) -> None:
    data = read(path)
    assert data["permissions"] == {"contents": "read"}
    for job in data["jobs"].values():
        assert job["timeout-minutes"] <= 60 and {*filter(None, [job.get("needs")])} <= data["jobs"].keys()
    declared = read(ACTION)["inputs"]
    used = [step["with"] for step in steps_of(path) if step.get("uses") == "./"]
    assert all(names.keys() <= declared.keys() for names in used)
    assert used or path.name == "nightly.yml", "the bench does not run cases by the action"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_runner_takes_each_command(path: Path) -> None:
    commands = [step["run"] for step in steps_of(path) if step.get("run", "").startswith("runner ")]
    assert commands or path.name == "nightly.yml"
    for command in commands:
        build_parser().parse_args(shlex.split(command)[1:])


def test_the_workflow_merges_as_many_shards_as_it_runs() -> None:
    jobs = read(REPOSITORY / ".github" / "workflows" / "torch-compile.yml")["jobs"]
    shards = jobs["run"]["strategy"]["matrix"]["shard"]
    (merge,) = [step["run"] for step in jobs["merge"]["steps"] if "runner merge" in step.get("run", "")]
    assert re.findall(r"shard-(\d)/events.jsonl", merge) == [str(shard) for shard in shards]
    (used,) = [step["with"] for step in jobs["run"]["steps"] if step["uses"] == "./"]
    assert used["shard"].endswith(f"/{len(shards)}") and used["artifact"].startswith("shard-")


def test_each_night_tries_the_oldest_torch_that_is_supported() -> None:
    steps = read(REPOSITORY / ".github" / "workflows" / "nightly.yml")["jobs"]["oldest"]["steps"]
    commands = [step.get("run", "") for step in steps]
    (version,) = re.findall(r"\btorch==([\d.]+)\.\d+ ", " ".join(commands))
    assert version == BOTH[0] and f'"torch>={version}"' in (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert "pytest -q tests/worker/torch_private tests/worker/capture" in commands
    assert any(command.startswith("runner run suites/regressions.suite.yaml") for command in commands)


def test_inputs_and_outputs_are_described_and_used() -> None:
    data, text = read(ACTION), ACTION.read_text(encoding="utf-8")
    for name, entry in data["inputs"].items():
        assert entry["description"] and isinstance(entry["default"], str) and f"inputs.{name}" in text
    identities = {step["id"] for step in steps_of(ACTION) if "id" in step}
    for entry in data["outputs"].values():
        assert entry["description"] and re.fullmatch(r"\$\{\{ steps\.(\w+)\.outputs\.[\w-]+ \}\}", entry["value"])
        assert entry["value"].split(".")[1] in identities


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with a ``runner`` that writes down its words and ends as RUNNER_CODE says."""
    stub = tmp_path / "bin" / "runner"
    stub.parent.mkdir()
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$RUNNER_TEMP/words"\nexit "${CODE:-0}"\n')
    stub.chmod(0o755)
    return tmp_path


def act(job: Path, **variables: str) -> tuple[int, list[str], str]:
    """Run the script of the action's main step: exit code, words of the runner, outputs."""
    (step,) = [step for step in steps_of(ACTION) if step.get("id") == "run"]
    assert {*step["env"]} == {"PATHS", "ARGUMENTS", "SHARD", "SHOWN"}
    environment = {"PATH": f"{job / 'bin'}:{os.environ['PATH']}", "RUNNER_TEMP": str(job), "GITHUB_OUTPUT": str(job / "outputs"),
                   "PATHS": "suites/", "ARGUMENTS": "", "SHARD": "", "SHOWN": "true", **variables}  # fmt: skip
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]  # as GitHub runs "shell: bash"
    process = subprocess.run(words, cwd=job, env=environment, capture_output=True, text=True)
    return process.returncode, (job / "words").read_text().splitlines(), (job / "outputs").read_text()


def test_the_action_runs_what_it_is_told(job: Path) -> None:
    code, words, outputs = act(
        job, PATHS="a b.spec.yaml\n\nsuites/\n", ARGUMENTS="--budget=50m\n-k\nconv and not slow\n"
    )
    folder = job / "torch-spec-runner"
    assert (code, outputs) == (0, f"exit-code=0\nfolder={folder}\n") and folder.is_dir()
    assert words[:4] == ["run", "--budget=50m", "-k", "conv and not slow"]
    assert words[-4:] == ["--github", "--", "a b.spec.yaml", "suites/"]
    arguments = build_parser().parse_args(words)
    assert arguments.paths == ["a b.spec.yaml", "suites/"] and arguments.junit == f"{folder}/junit.xml"


def test_a_red_run_is_a_red_step_with_outputs(job: Path) -> None:
    code, words, outputs = act(job, CODE="1", SHARD="2/4", SHOWN="false")
    assert code == 1 and outputs.startswith("exit-code=1\n")
    assert "--shard=2/4" in words and "--github" not in words


def hostile_checkout(folder: Path) -> Path:
    """Fill a folder with a module for each name that Python, pip and this command import, which leaves a mark when it runs."""
    code = "import json, sys, pip._internal.cli.main, runner.cli.main, runner.cli.run, runner.engine.local\nprint(json.dumps([*sys.modules]))"
    listed = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, cwd="/")
    names = {name.partition(".")[0] for name in json.loads(listed.stdout)} | {
        *sys.stdlib_module_names,
        "torch",
        "triton",
    }
    for name in names - {"__main__"}:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write({name!r} + ' ')\n")
    return folder


def install(checkout: Path, pip: str) -> subprocess.CompletedProcess[str]:
    """Run the action's first step, which is to install this repository, as far as pip's own start."""
    (step,) = [step for step in steps_of(ACTION) if step.get("name") == "Install runner"]
    script = step["run"].replace(" install --quiet ", f" {pip} ")
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script], cwd=checkout, capture_output=True, text=True,
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TORCH": "", "GITHUB_ACTION_PATH": "/nowhere"},
    )  # fmt: skip


def test_no_module_of_the_checkout_runs_before_the_runner_is_installed(tmp_path: Path) -> None:
    checkout = hostile_checkout(tmp_path)
    process = install(checkout, "download --no-deps --no-index")
    assert "/nowhere" in process.stderr, "pip has not come to its work"
    assert not (checkout / "ran").exists(), (checkout / "ran").read_text()


def test_pythons_that_pip_starts_do_not_look_into_the_checkout(tmp_path: Path) -> None:
    stub = tmp_path / "bin" / "python"
    stub.parent.mkdir()
    stub.write_text('#!/bin/sh\necho "$1 $2 $3 ${PYTHONPATH-none}"\n')
    stub.chmod(0o755)
    (step,) = [step for step in steps_of(ACTION) if step.get("name") == "Install runner"]
    process = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=tmp_path, capture_output=True, text=True,
        env={"PATH": f"{stub.parent}:{os.environ['PATH']}", "TORCH": "", "GITHUB_ACTION_PATH": "/nowhere", "PYTHONPATH": "src:"},
    )  # fmt: skip
    assert process.stdout == "-I -m pip none\n"


@pytest.mark.parametrize(
    ("given", "expected"), [("", ""), (":", ""), ("/a:", "/a"), ("::/a b::$(id):", "/a b:$(id)"), ("/a:/b", "/a:/b")]
)
def test_the_command_of_the_action_does_not_look_into_the_checkout(given: str, expected: str, job: Path) -> None:
    stub = job / "bin" / "runner"
    stub.write_text(stub.read_text().replace("exit ", 'echo "$PYTHONPATH" > "$RUNNER_TEMP/path"\nexit '))
    act(job, PYTHONPATH=given)
    assert (job / "path").read_text() == f"{expected}\n"


@pytest.mark.parametrize(
    "words",
    [["--version"], ["validate", "a.spec.yaml"], ["list", "a.spec.yaml"], ["run", "a.spec.yaml", "--backend", "inductor", "--html", "site"],
     ["report", "log.jsonl", "--junit", "new.xml"]],
    ids=lambda words: words[0],
)  # fmt: skip
def test_no_module_of_the_checkout_runs_in_a_command(
    words: list[str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    checkout = hostile_checkout(tmp_path)
    (checkout / "a.spec.yaml").write_text("cases: [{name: a, inputs: {x: [2]}, chain: [F.relu]}]\n")
    events = played(variants(tmp_path_factory.mktemp("log"), ""), ["2.13.0"], lambda *_: "PASS")
    with Journal(checkout / "log.jsonl") as journal:
        for event in events:
            journal.write(event)
    command = Path(sys.executable).with_name("runner")
    process = subprocess.run([command, *words], cwd=checkout, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    assert not (checkout / "ran").exists(), (checkout / "ran").read_text()


@pytest.mark.parametrize("path", [ACTION, *WORKFLOWS], ids=lambda path: path.name)
def test_python_takes_no_module_from_the_current_folder(path: Path) -> None:
    for step in steps_of(path):
        started = re.findall(r"(?<!-)\bpython3?\b(?! -I)(?! bench/)[^\n]*", step.get("run", ""))
        assert started == [], "start it with -I, or run a file of this repository by its path"


def test_the_key_is_for_its_owner_alone_and_imports_nothing_of_the_checkout(tmp_path: Path) -> None:
    (step,) = [step for step in steps_of(ACTION) if "KEY" in step.get("env", {})]
    assert step["if"] == "${{ inputs.key != '' }}" and step["env"] == {"KEY": "${{ inputs.key }}"}
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("hashlib", "pathlib"):
        (checkout / f"{name}.py").write_text("raise SystemExit('code of the checkout')\n")
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    for variables, path in (
        ({"XDG_STATE_HOME": str(tmp_path / "state")}, tmp_path / "state" / "runner" / "key"),
        ({"HOME": str(tmp_path)}, tmp_path / ".local" / "state" / "runner" / "key"),
    ):
        for secret in ("of an earlier job", "s3cret"):
            environment = {"PATH": os.environ["PATH"], "KEY": secret, "PYTHONPATH": str(checkout), **variables}
            process = subprocess.run(words, cwd=checkout, env=environment, capture_output=True, text=True)
            assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
            assert (
                path.read_bytes() == hashlib.sha256(secret.encode()).digest() and path.stat().st_mode & 0o777 == 0o600
            )
            assert [*path.parent.iterdir()] == [path]


def test_no_input_is_run(job: Path) -> None:
    hostile = "$(touch pwned) `touch pwned`; touch pwned \"' --junit=x"
    _, words, _ = act(job, PATHS=hostile, ARGUMENTS=hostile, SHARD=hostile)
    assert not (job / "pwned").exists()
    assert words.count(hostile) == 2 and f"--shard={hostile}" in words
