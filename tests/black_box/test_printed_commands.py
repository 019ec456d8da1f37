"""Each command that a run prints works when it is typed, whichever way its backend is configured."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from . import driver
from .driver import Result, run_in, spec, write

pytestmark = pytest.mark.usefixtures("stand_in")

BACKEND = """
from torch._dynamo import register_backend

@register_backend
def off_by_one(graph, inputs):
    return lambda *args: tuple(out + 1 for out in graph(*args))
"""
CASES = spec("name: wrong\ninputs: {x: [4]}\ngrad: off\nchain: [torch.tanh]")


def profile(backend: str, specs: str = "[]") -> str:
    return f"suite: vendor\nspecs: {specs}\nbackends: [{{name: vendor, backend: '{backend}', fullgraph: true}}]\n"


FILES = {
    "vendor_code.py": BACKEND,
    "specs/a.spec.yaml": CASES,
    "named.suite.yaml": profile("off_by_one"),
    "code.suite.yaml": profile("vendor_code:off_by_one"),
    "shipped/core.suite.yaml": "suite: core\nspecs: [../specs/*.spec.yaml]\nbackends: [eager]\ndefaults: {timeout: 100}\n",
    "mine/named.suite.yaml": profile("off_by_one"),
    "own.suite.yaml": profile("vendor_code:off_by_one", "[specs/*.spec.yaml]"),
}
CODE = ("--import", "vendor_code")
WAYS = {
    "typed": ("specs", "--backend", "vendor_code:off_by_one"),
    "registered": ("specs", "--backend", "off_by_one", *CODE),
    "profile": ("specs", "named.suite.yaml", "--backend", "vendor", *CODE),
    "profile of code": ("specs", "code.suite.yaml", "--backend", "vendor", "--allow-python"),
    "profile elsewhere": ("shipped/core.suite.yaml", "mine/named.suite.yaml", "--backend", "vendor", *CODE),
    "suite": ("own.suite.yaml", "--allow-python"),
    "project": ("specs",),
    "project of code": ("specs",),
    "project left out": ("specs", "--backend", "vendor_code:off_by_one", "--no-project"),
}
PROJECTS = {
    "project": 'backend = ["off_by_one"]\nimport = ["vendor_code"]\nseed = 7\n',
    "project of code": 'backend = ["vendor_code:off_by_one"]\nseed = 7\n',
    "project left out": 'backend = ["nowhere:f"]\nseed = 7\n',
}


def folder_of(tmp_path: Path, below: str) -> Path:
    write(tmp_path / below, FILES)
    return tmp_path


def from_above(words: tuple[str, ...]) -> list[str]:
    """The words of a command that is typed in the folder above: ``PYTHONPATH`` has the folder of the code."""
    return [f"vendor/{word}" if word == "specs" or word.endswith(".yaml") else word for word in words]


def typed(folder: Path, result: Result, name: str, env: dict[str, str]) -> Result:
    line = next(line for line in result.out.splitlines() if f"runner {name} '" in line)
    words = shlex.split(line.partition(f"runner {name} ")[2].partition(" > ")[0], comments=True)
    return run_in(folder, name, *words, env=env)


def numbers(result: Result) -> str:
    """What the seed decides."""
    return next(line for line in result.out.splitlines() if line.startswith("value at "))


def show_again(folder: Path, way: str, below: str) -> Result:
    """Run the case of a folder, and then the command that shows its failure again; the first of the two results."""
    folder_of(folder, below)
    env = {"PYTHONPATH": os.pathsep.join([str(folder / below), *driver.STAND_IN.values()])} if below else {}
    if way in PROJECTS:
        write(folder, {"runner.toml": PROJECTS[way]})
    if way in ("project", "project of code"):
        assert run_in(folder, "config", "--trust").code == 0
    words = (*(from_above(WAYS[way]) if below else WAYS[way]), "--no-confirm", "--html", "pages")
    result = run_in(folder, "run", *words, env=env)
    assert result.code == 1 and "1 failed" in result.out, result.text
    again = typed(folder, result, "run", env)
    assert again.code == 1 and "1 failed" in again.out, again.text
    assert numbers(again) == numbers(result)
    return result


@pytest.mark.parametrize(
    ("way", "below"),
    [
        *((way, "") for way in WAYS),
        ("registered", "vendor"),
        *(pytest.param(way, "vendor", marks=pytest.mark.nightly) for way in WAYS if way != "registered"),
    ],
)
def test_what_shows_a_failure_again(tmp_path: Path, way: str, below: str) -> None:
    """Also by the button of a page, which copies the text of its block."""
    result = show_again(tmp_path, way, below)
    command = next(line.partition("reproduce: ")[2] for line in result.out.splitlines() if "reproduce: " in line)
    (page,) = (tmp_path / "pages" / "failures").glob("*.html")
    for text in ((tmp_path / "pages" / "index.html").read_text(), page.read_text()):
        blocks = [unescape(block) for block in re.findall(r'<pre class="copy">(.*?)</pre>', text, re.DOTALL)]
        assert blocks[0] == command
    assert blocks[1] == command.replace("runner run", "runner why")


@pytest.mark.usefixtures("real_torch")
@pytest.mark.parametrize(
    ("way", "below"), [("project", ""), pytest.param("registered", "vendor", marks=pytest.mark.nightly)]
)
def test_what_shows_a_failure_again_with_torch(tmp_path: Path, way: str, below: str) -> None:
    show_again(tmp_path, way, below)


LONG = [pytest.param(way, marks=pytest.mark.nightly) for way in ("profile", "profile of code", "project left out")]


@pytest.mark.usefixtures("real_torch")
@pytest.mark.parametrize("way", ["profile elsewhere", *LONG])
def test_what_may_be_done_next(tmp_path: Path, way: str) -> None:
    folder = folder_of(tmp_path, "")
    if way in PROJECTS:
        write(folder, {"runner.toml": PROJECTS[way]})
    result = run_in(folder, "run", *WAYS[way], "--no-confirm")
    explained = typed(folder, result, "why", {})
    assert explained.code == 1 and "the failure" in explained.out, explained.text
    asked = result.out.partition("runner why '")[2].partition("'")[0]
    assert f"runner issue '{asked}'" in explained.out, explained.text
    words = shlex.split(explained.out.splitlines()[-2], comments=True)
    ended = subprocess.run([sys.executable, words[-1]], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and "AssertionError" in ended.stderr, ended.stderr


@pytest.mark.usefixtures("real_torch")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--backend", "nowhere:f"), "has no module 'nowhere'"),
        (("--backend", "vendor_code:nothing"), "--backend vendor_code:nothing: vendor_code has no nothing"),
        (("--backend", "broken:f"), "--backend broken:f: cannot import broken: ModuleNotFoundError: No module named 'x_'"),
        (("--import", "broken"), "--import: importing broken raised ModuleNotFoundError: No module named 'x_'"),
        (("bad.suite.yaml", "--backend", "vendor", "--allow-python"), "bad.suite.yaml:3:36: error: cannot import nowhere"),
    ],
)  # fmt: skip
def test_code_that_cannot_be_had_ends_the_run_before_its_first_case(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    folder = folder_of(tmp_path, "")
    write(folder, {"broken.py": "import x_\n", "bad.suite.yaml": profile("nowhere:f")})
    result = run_in(folder, "run", "specs", *words)
    assert result.code == 4 and message in result.err, result.text
    assert "INVALID" not in result.text


NO_FUNCTION = (("--backend", "vendor_code:nothing"), "--backend vendor_code:nothing: vendor_code has no nothing")
NO_MODULE = (("--import", "broken"), "--import: importing broken raised ModuleNotFoundError: No module named 'x_'")


@pytest.mark.usefixtures("real_torch")
@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("diagnose", *NO_FUNCTION), ("reduce", *NO_MODULE), ("issue", *NO_FUNCTION), ("bench", *NO_MODULE), ("hunt", *NO_FUNCTION),
        *(pytest.param(command, *fault, marks=pytest.mark.nightly) for command, fault in
          [("diagnose", NO_MODULE), ("reduce", NO_FUNCTION), ("issue", NO_MODULE), ("bench", NO_FUNCTION), ("hunt", NO_MODULE)]),
    ],
)  # fmt: skip
def test_each_command_looks_for_its_code_first(
    tmp_path: Path, command: str, words: tuple[str, ...], message: str
) -> None:
    folder = folder_of(tmp_path, "")
    write(folder, {"broken.py": "import x_\n"})
    place = ("-o", "hunted", "--rounds", "1") if command == "hunt" else ("specs/a.spec.yaml::wrong",)
    result = run_in(folder, command, *place, *words)
    assert result.code == 4 and message in result.err, result.text
    assert "INVALID" not in result.text and "round 0" not in result.text


def test_a_profile_named_before_an_id_defines_its_backend(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "")
    write(folder, {"other.suite.yaml": profile("vendor_code:off_by_one").replace("true", "false")})
    case = "specs/a.spec.yaml::wrong[float32,cpu]@vendor"
    several = run_in(folder, "run", case, *CODE)
    assert several.code == 4 and f"named.suite.yaml::{case}" in several.err, several.text
    chosen = run_in(folder, "run", f"named.suite.yaml::{case}", *CODE, "--no-confirm")
    assert chosen.code == 1 and "1 failed" in chosen.out, chosen.text
