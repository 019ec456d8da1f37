"""``pytest suites/``: the verdicts and the words of ``runner run``, alone and under pytest-xdist; and nothing that stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .driver import LIMIT, REPOSITORY, Result, environment, latest, processes_of, run_in, spec, write

pytestmark = pytest.mark.usefixtures("stand_in")

FILES = {
    "specs/a.spec.yaml": """
        cases:
          - name: relu
            tags: [fast]
            inputs: {x: [4]}
            chain: [F.relu]
          - name: elsewhere
            inputs: {x: [4]}
            chain: [F.relu]
            requires: {torch: "<2"}
          - name: expected
            inputs: {x: [4]}
            chain: [torch.neg]
            known: [{backend: wrong, stage: backend, oracle: [value], reason: planted}]
          - name: repaired
            inputs: {x: [4]}
            chain: [torch.neg]
            known:
              - {backend: right, stage: backend, oracle: [value], reason: "was broken"}
              - {backend: wrong, stage: backend, oracle: [value], reason: planted}
          - name: odd
            inputs: {x: [4]}
            chain: [{F.gelu: [$x, $n]}]
            params: {n: ["a::b"]}
        """,
    "suites/planted.suite.yaml": """
        suite: planted
        specs: [../specs/*.spec.yaml]
        backends:
          - {name: right, backend: "runner.worker.planted:clean"}
          - {name: wrong, backend: "runner.worker.planted:wrong_element"}
        """,
}
RELU = "cases: [{name: a, inputs: {x: [2]}, chain: [F.relu]}]"
OUTCOMES = {"PASS": "passed", "XFAIL": "skipped", "SKIP": "skipped"}
COMMAND = (sys.executable, "-m", "pytest", "-p", "runner.pytest_plugin", "-p", "xdist.plugin")


def variables(**changes: str) -> dict[str, str]:
    return environment({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **changes})


def run_pytest(cwd: Path, *words: str) -> Result:
    """Run pytest as a person does. ``folder`` is that of the run behind it."""
    old_folder = latest(cwd)
    process = subprocess.run(
        [*COMMAND, *words],
        cwd=cwd,
        env=variables(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        stdin=subprocess.DEVNULL,
    )
    new_folder = latest(cwd)
    return Result(
        process.returncode, process.stdout, process.stderr, cwd, new_folder if new_folder != old_folder else None
    )


@pytest.fixture(scope="module")
def folder(stand_in: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugin")
    write(folder, FILES)
    return folder


@pytest.fixture(scope="module")
def plain(folder: Path) -> Result:
    """``runner run`` on the same files."""
    return run_in(folder, "run", "suites")


@pytest.fixture(scope="module", params=[(), ("-n", "2")], ids=["alone", "xdist"])
def result(request: pytest.FixtureRequest, folder: Path, plain: Result) -> Result:
    return run_pytest(folder, "suites", "-rA", "--junitxml", "j.xml", *request.param)


@pytest.mark.parametrize(
    "options", [pytest.param((), id="alone"), pytest.param(("-n", "2"), id="xdist", marks=pytest.mark.nightly)]
)
def test_the_page_s_command_line_loads_nothing_of_a_folder(options: tuple[str, ...], tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "pytest.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if "pytest -c /dev/null" in line]
    variable, _, words = line.removeprefix("$ ").partition(" pytest ")
    if options and sys.version_info < (3, 11):
        pytest.skip("this Python does not know PYTHONSAFEPATH")
    mark = f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__ + ' ')"
    names = [
        *sys.stdlib_module_names,
        "conftest",
        "hostile",
        "iniconfig",
        "pluggy",
        "pytest",
        "runner",
        "test_a",
        "torch",
        "yaml",
    ]
    write(tmp_path, {f"{folder}{name}.py": mark for name in names for folder in ("", "suites/")})
    write(tmp_path, {"pytest.ini": "[pytest]\naddopts = -p hostile\npythonpath = .\n", "suites/a.spec.yaml": RELU})
    write(tmp_path, {"suites/test_a.txt": f">>> {mark}\n"})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in (".pytest_cache", ".runner"):
        (tmp_path / name).symlink_to(elsewhere)
    command = [Path(sys.executable).with_name("pytest"), *words.split(), *options, "-q"]
    env = {**os.environ, **dict([variable.split("=")])}
    process = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LIMIT)
    assert "1 passed" in process.stdout, process.stdout + process.stderr
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert not [*elsewhere.rglob("*")]
    subprocess.run([*command[:1], "suites/"], cwd=tmp_path, capture_output=True, timeout=LIMIT)
    assert (tmp_path / "ran").exists(), "without these options code runs"


def outcomes(folder: Path) -> dict[str, tuple[str, str]]:
    """Each variant's verdict and outcome, from pytest's own JUnit file."""
    table = {}
    for case in ElementTree.parse(folder / "j.xml").iter("testcase"):
        values = {entry.get("name", ""): entry.get("value", "") for entry in case.iter("property")}
        kinds = [child.tag for child in case if child.tag in ("failure", "skipped", "error")]
        table[values["id"]] = values["verdict"], {"failure": "failed"}.get(*kinds, *kinds) if kinds else "passed"
    return table


def test_every_verdict_is_that_of_runner_run(folder: Path, plain: Result, result: Result) -> None:
    verdicts = {event["id"]: event["verdict"] for event in plain.events if event["event"] == "variant-finished"}
    assert {*verdicts.values()} == {"PASS", "FAIL", "XFAIL", "XPASS", "SKIP", "INVALID"}
    assert {name: verdict for name, (verdict, _) in outcomes(folder).items()} == verdicts
    assert {name: word for name, (_, word) in outcomes(folder).items()} == {
        name: OUTCOMES.get(verdict, "failed") for name, verdict in verdicts.items()
    }
    assert result.code == plain.code == 1


def test_a_failure_prints_the_same_text(plain: Result, result: Result) -> None:
    words = ("FAIL ", "XPASS ", "INVALID ")
    blocks = [block for block in plain.out.split("\n\n") if block.startswith(words)]
    assert len(blocks) == 3
    for block in blocks:
        text = block.partition("\n")[2].partition("\n  1 more of this signature")[0]
        assert "reproduce: runner run" in text and text in result.out


def test_the_run_is_kept_as_that_of_runner_run(folder: Path, plain: Result, result: Result) -> None:
    assert result.folder is not None and f"run folder: .runner/runs/{result.folder.name}\n" in result.out
    start = result.events[0]
    assert start["argv"][:2] == ["runner", "run"] and start["argv"][-1] == "suites" and start["full"]
    verdicts = {event["id"]: event["verdict"] for event in result.events if event["event"] == "variant-finished"}
    assert verdicts == {event["id"]: event["verdict"] for event in plain.events if event["event"] == "variant-finished"}
    assert result.events[-1]["event"] == "run-finished" and not result.events[-1]["interrupted"]
    identifier = next(name for name, verdict in verdicts.items() if verdict == "FAIL")
    assert run_in(folder, "show", identifier).code == 0
    assert "nothing is left to do" in run_in(folder, "resume").text


def many(folder: Path, count: int) -> None:
    """Write a case of many variants."""
    numbers = ", ".join(map(str, range(count)))
    text = spec(f"name: a\ninputs: {{x: [4]}}\nparams: {{n: [{numbers}]}}\nchain: [{{torch.add: [$x, $n]}}]")
    write(folder, {"many.spec.yaml": text})


def test_the_first_failure_ends_the_run_too(tmp_path: Path) -> None:
    many(tmp_path, 60)
    result = run_pytest(tmp_path, "many.spec.yaml", "--runner-backend", "runner.worker.planted:wrong_element", "-x")
    assert result.code == 1 and "1 failed in" in result.out
    assert sum(event["event"] == "variant-finished" for event in result.events) < 30
    assert result.events[-1]["event"] == "run-finished" and result.events[-1]["interrupted"]


@contextlib.contextmanager
def running(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """pytest on a case of many variants, until the first has a verdict."""
    many(folder, 300)
    process = subprocess.Popen(
        [*COMMAND, "many.spec.yaml", "--runner-backend", "eager", "-v", *words], cwd=folder, env=variables(TMPDIR=str(folder)),
        text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            assert process.stdout is not None
            assert any("PASSED" in line for line in process.stdout)
            yield process
        finally:
            process.kill()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short path: in one with a long path no temporary folder is made."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as name:
        yield Path(name)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        pytest.param((), signal.SIGINT, id="alone-ctrl-c"),
        pytest.param((), signal.SIGKILL, id="alone-killed", marks=pytest.mark.nightly),
        pytest.param(("-n", "2"), signal.SIGINT, id="xdist-ctrl-c", marks=pytest.mark.nightly),
        pytest.param(("-n", "2"), signal.SIGKILL, id="xdist-killed"),
    ],
)
def test_nothing_stays_behind(short_folder: Path, number: signal.Signals, words: tuple[str, ...]) -> None:
    with running(short_folder, *words) as process:
        assert [*short_folder.glob("runner-scratch-*")] != []
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
            text = process.stdout.read() if process.stdout else ""
            assert process.wait(60) == 2, text
            assert "KeyboardInterrupt" in text
        else:
            process.kill()
            process.wait(10)
        end = time.monotonic() + 40
        while processes_of(str(short_folder)) and time.monotonic() < end:
            time.sleep(0.1)
        assert processes_of(str(short_folder)) == []
    folder = latest(short_folder)
    assert folder is not None
    last = json.loads((folder / "events.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "run-finished" and last["interrupted"] and last["exit_code"] == 2
    if number == signal.SIGINT:
        assert [*short_folder.glob("runner-scratch-*")] == []


@pytest.mark.nightly
def test_a_module_that_registers_a_backend_is_imported(tmp_path: Path, real_torch: None) -> None:
    code = (
        "from torch._dynamo import register_backend\n@register_backend\ndef mine(graph, inputs): return graph.forward\n"
    )
    case = spec("name: a\ninputs: {x: [4]}\nchain: [torch.tanh]")
    write(tmp_path, {"vendor_code.py": code, "a.spec.yaml": case, "broken.py": "import x_\n"})
    words = ("a.spec.yaml", "--runner-backend", "mine", "--runner-import")
    assert "1 passed" in run_pytest(tmp_path, *words, "vendor_code").out
    result = run_pytest(tmp_path, *words, "broken")
    assert result.code == 1 and "importing broken raised ModuleNotFoundError: No module named 'x_'" in result.out
