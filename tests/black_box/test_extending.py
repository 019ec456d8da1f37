"""What ``docs/extending.md`` shows, done: its files in an empty folder, its commands, through the installed command."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

import pytest

from runner.report.handlers import BUILT_IN

from .driver import REPOSITORY, Result, run_in

PAGE = (REPOSITORY / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+\n# (\S+\.(?:py|yaml))\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
POINTS = dict(re.findall(r"^```toml\n# pyproject.toml of a (\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
BACKEND, ORACLE, REPORT, INSTALLED = [
    shlex.split(line)[1:] for line in re.findall(r"^\$ runner (.*)$", PAGE.replace("$ runner", "$ runner runner"), re.M)
]
NEARLY = "my_backend:nearly"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's files."""
    path = tmp_path_factory.mktemp("extending")
    for name, text in FILES.items():
        (path / name).write_text(text, encoding="utf-8")
    return path


def installed(folder: Path, kind: str) -> dict[str, str]:
    """An environment in which the package of the page's ``pyproject.toml`` is installed."""
    name = f"example_{kind}"
    info = folder / "site" / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    toml = configparser.ConfigParser()
    toml.read_string(POINTS[kind])
    ((section, points),) = ((name, toml[name]) for name in toml.sections())
    group = section.removeprefix("project.entry-points.").strip('"')
    lines = [f"[{group}]", *(f"{key} = {value.strip(chr(34))}" for key, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for path in folder.glob("my_*.py"):
        (folder / "site" / path.name).write_text(path.read_text())
    return {"PYTHONPATH": str(folder / "site")}


def test_the_page_has_all_that_is_tested() -> None:
    assert FILES.keys() == {"halves.spec.yaml", "my_backend.py", "my_oracle.py", "my_report.py"}
    assert POINTS.keys() == {"backend", "reporter"}
    (sentence,) = re.findall(r"^The runner's own reporters (.*) take the same events", PAGE, re.MULTILINE)
    assert {*re.findall(r"`(\w+)`", sentence)} == BUILT_IN.keys()


@pytest.fixture(scope="module")
def judged(folder: Path) -> Result:
    """The run with the oracle, under the planted difference and without it."""
    return run_in(folder, *ORACLE, "-j", 1, "--no-confirm")


def test_an_oracle_fires_on_a_planted_difference_and_is_quiet_without(judged: Result) -> None:
    assert judged.verdicts == {
        f"plain@{NEARLY}": "FAIL", "plain@eager": "PASS",
        f"allowed@{NEARLY}": "PASS", "allowed@eager": "PASS",
        f"reported@{NEARLY}": "XFAIL", "reported@eager": "PASS",
    }  # fmt: skip
    assert judged.of(f"plain@{NEARLY}")["oracles"] == ["my_oracle.bits"]
    assert judged.code == 1 and "my_oracle.bits at output: bits differ" in judged.text


def test_without_the_module_the_runner_s_own_oracles_let_that_pass(folder: Path) -> None:
    ran = run_in(folder, *BACKEND, "-k", "plain", "-j", 1)
    assert ran.verdicts == {f"plain@{NEARLY}": "PASS"}


def test_a_reporter_writes_what_a_log_says(judged: Result, folder: Path) -> None:
    report = run_in(folder, "report", judged.folder, *REPORT[2:])
    assert report.code == 0, report.text
    lines = (folder / "verdicts.txt").read_text().splitlines()
    assert sorted(line.split()[0] for line in lines) == ["FAIL", "PASS", "PASS", "PASS", "PASS", "XFAIL"]
    assert f"FAIL halves.spec.yaml::plain[float32,cpu] {NEARLY}" in lines
    assert f"reports: {folder / 'verdicts.txt'}" in report.text or "verdicts.txt" in report.text


def test_an_installed_package_adds_a_reporter_and_a_backend(folder: Path, tmp_path: Path) -> None:
    for kind in POINTS:
        env = installed(folder, kind)
    (tmp_path / "a.spec.yaml").write_text(FILES["halves.spec.yaml"])
    options = ("--backend", "nearly", "-k", "plain", "-j", 1, *INSTALLED[2:])
    ran = run_in(tmp_path, "run", "a.spec.yaml", *options, env=env)
    assert ran.code == 0, ran.text
    assert (tmp_path / "verdicts.txt").read_text() == "PASS a.spec.yaml::plain[float32,cpu] nearly\n"
    quiet = run_in(tmp_path, "report", "latest", env=env)
    assert "verdicts.txt" not in quiet.text
    unknown = run_in(tmp_path, "report", "latest", "--report", "rows=x.txt", env=env)
    assert unknown.code == 4 and "no reporter 'rows'; installed are lines" in unknown.text
