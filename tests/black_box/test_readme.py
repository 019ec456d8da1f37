"""The README, walked: its files, its commands as they stand there, and what it says that they print.

Its first two commands set up an environment and are those of CI. A small ``suites/smoke.suite.yaml`` stands in for the shipped one.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.script_modules import script_module

from . import stand_in
from .driver import REPOSITORY, Result, run_in, spec, write

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
EXAMPLES = script_module("format_page").examples(README)
FILES = {example.name: example.text for example in EXAMPLES}
SETS_UP = re.compile(r"python3 -m venv (\w+) && \1/bin/pip install torch==([\d.]+)")
SUITE = {
    "suites/smoke.suite.yaml": "suite: smoke\nspecs: [../specs/*.spec.yaml]\n",
    "specs/smoke.spec.yaml": spec(
        "name: relu\ninputs: {x: [4]}\nchain: [F.relu]",
        "name: gelu\ninputs: {x: [4]}\nchain: [{F.gelu: {input: $x, approximate: tanh}}]",
        "name: convolution\ninputs: {x: [1, 1, 4]}\nchain: [{nn.Conv1d: [1, 2, 3]}]",
    ),
}
ACME = """
    def compile_graph(graph, inputs):
        for node in graph.graph.nodes:
            node.kwargs = {name: value for name, value in node.kwargs.items() if name != "approximate"}
        graph.recompile()
        return graph
    """
"""A backend that drops an argument of gelu."""


def section(title: str) -> str:
    """Return the text below a heading of the README, up to the next one."""
    (text,) = re.findall(rf"^#+ {re.escape(title)}$(.*?)(?=^#|\Z)", blanked(), re.MULTILINE | re.DOTALL)
    return str(text)


def blanked() -> str:
    """Return the README with the comments of its blocks indented, so that a heading alone begins with ``#``."""
    return re.sub(r"^```\w*\n# ", lambda match: match[0].replace("\n#", "\n #"), README, flags=re.MULTILINE)


def lines(title: str) -> list[str]:
    """Return what a section says to type, in order, without comments."""
    return [line.partition("  #")[0].rstrip() for line in re.findall(r"^\$ (.*)$", section(title), re.MULTILINE)]


def walk(folder: Path, title: str, *more: object) -> Iterator[Result]:
    """Type the runner's commands of a section, each as it stands there, and ``more`` behind a run."""
    write(folder, FILES)
    for line in lines(title):
        program, *words = shlex.split(line)
        if program == "runner":
            yield run_in(folder, *words, *(more if words[0] == "run" else ()))


def test_there_is_a_screen_for_each_part() -> None:
    assert len(README.splitlines()) <= 150
    assert FILES.keys() == {"first.spec.yaml", "acme.suite.yaml", "train.py"}
    assert all(len(lines(title)) <= 5 for title in ("Upgrade torch", "Qualify my backend", "Bring my model"))


def test_the_first_case_passes_and_fails_with_the_planted_bug(tmp_path: Path) -> None:
    _, run = walk(tmp_path, "A first case")
    assert run.code == 0 and set(run.finished) == {
        f"scaled_relu[{dtype},cpu]@{backend}"
        for dtype in ("float32", "bfloat16")
        for backend in ("aot_eager", "inductor")
    }
    (planted,) = re.findall(r"^    config: .*\n", README, re.MULTILINE)
    (tmp_path / "first.spec.yaml").write_text(FILES["first.spec.yaml"] + planted)
    result = run_in(tmp_path, "run", "first.spec.yaml", "--backend", "aot_eager", "--backend", "inductor")
    assert result.code == 1, result.text
    (shown,) = re.findall(r"^```\n(FAIL first.*?)^```$", README, re.MULTILINE | re.DOTALL)
    missing = [line for line in map(str.strip, shown.splitlines()) if line != "..." and line not in result.out]
    assert [line for line in missing if not line.startswith("worst at")] == [], result.out


def environment_of(folder: Path, name: str, version: str) -> None:
    """Make ``NAME/bin/python``, whose torch is a stand-in of that version. relu is wrong in the older one."""
    files = {path.replace("2.13.0", version): text.replace("2.13.0", version) for path, text in stand_in.FILES.items()}
    if name == "old":
        files["stand_in_entry.py"] = stand_in.ENTRY.replace("wrong = ", 'wrong = "relu(" in job["source"] or ')
    write(folder / name / "site", files)
    python = folder / name / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(folder / name / "site"))} exec {sys.executable} "$@"\n')
    python.chmod(0o755)


def test_an_upgrade_shows_what_it_fixes(tmp_path: Path) -> None:
    write(tmp_path, SUITE)
    set_up = [match.groups() for line in lines("Upgrade torch") if (match := SETS_UP.fullmatch(line))]
    assert [name for name, _ in set_up] == ["old", "new"]
    for name, version in set_up:
        environment_of(tmp_path, name, version)
    run, difference = walk(tmp_path, "Upgrade torch")
    assert run.code == 1
    finished = [event for event in run.events if event["event"] == "variant-finished"]
    assert {event["torch"] for event in finished} == {version for _, version in set_up}
    assert difference.code == 0 and "fixed: 1 variant" in difference.out, difference.text


def test_a_backend_is_qualified(tmp_path: Path) -> None:
    write(tmp_path, SUITE | {"acme.py": ACME})
    run, score, known = walk(tmp_path, "Qualify my backend", "--no-confirm")
    assert run.verdicts == {
        "relu@acme": "PASS", "gelu@acme": "FAIL", "convolution@acme": "SKIP",
        "relu@inductor": "PASS", "gelu@inductor": "PASS", "convolution@inductor": "PASS",
    }, run.text  # fmt: skip
    assert "1 skip (not claimed: operator nn.Conv1d 1)" in run.out, run.text
    assert score.code == 0 and re.search(r"^conformance +50\.0%$", score.out, re.MULTILINE), score.text
    assert "50.0% of 66.6% claimed" in (tmp_path / "acme.svg").read_text()
    assert "gelu" in (tmp_path / "acme.ledger.yaml").read_text(), known.text


@pytest.mark.nightly
def test_a_model_is_brought(tmp_path: Path) -> None:
    captured, run, table = walk(tmp_path, "Bring my model")
    assert captured.code == 0 and "3 of 3 calls" in captured.out, captured.text
    assert (run.code, {*run.verdicts.values()}) == (0, {"PASS"}), run.text
    assert {name.rpartition("@")[2] for name in run.verdicts} == {"aot_eager", "inductor"}
    assert table.code == 0 and "of 3 distinct calls 3 right" in table.out, table.text
    assert re.search(r"^operator +calls +uses +inductor$", table.out, re.MULTILINE), table.text
