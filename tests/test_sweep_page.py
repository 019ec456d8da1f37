"""``docs/sweep.md``: every defect has a smallest case, which fails as the page says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from runner.session.collect import load

REPOSITORY = Path(__file__).resolve().parents[1]
TEXT = (REPOSITORY / "docs" / "sweep.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| \[(\d+)\]\(#defect-\d+\) \| ([\w-]+) \| (\w+) \| `(.+)` \| (\d+) \| (\w+) \| .+ \|$", re.MULTILINE
)
ROWS = {number: rest for number, *rest in ROW.findall(TEXT)}
SECTIONS = dict(re.findall(r"^### Defect (\d+)\n(.*?)(?=^##)", TEXT, re.MULTILINE | re.DOTALL))
LISTS = dict(re.findall(r"^\| (\d+) \| (\d{3}_\d{5}.*) \|$", TEXT, re.MULTILINE))


def test_every_row_has_a_section_and_every_section_a_row() -> None:
    assert [*ROWS] == [*SECTIONS] == [str(number) for number in range(1, len(ROWS) + 1)]
    assert len(ROWS) == len(re.findall(r"^\| \[\d+\]\(#defect-", TEXT, re.MULTILINE))  # none of another form


@pytest.mark.parametrize("number", SECTIONS)
def test_a_row_counts_the_cases_of_its_section(number: str) -> None:
    assert len(re.findall(r"`chain_\d{3}_\d{5}`", SECTIONS[number])) == int(ROWS[number][3])


def test_a_case_is_listed_once_and_below_a_defect() -> None:
    assert {*LISTS} <= {*ROWS}
    listed = [name for names in LISTS.values() for name in names.split(", ")]
    assert sorted({*listed}) == sorted(listed)


def test_the_smallest_cases_of_the_gpu_are_valid_and_named_in_its_table(tmp_path: Path) -> None:
    part = TEXT.partition("## What the GPU shows\n")[2]
    [block] = re.findall(r"^```yaml\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    (tmp_path / "gpu.spec.yaml").write_text(block, encoding="utf-8")
    loaded = load([str(tmp_path / "gpu.spec.yaml")])
    assert [diagnostic.render() for diagnostic in loaded.diagnostics] == []
    names = {variant.case.name for variant in loaded.variants}
    assert names == set(
        re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| ((?:`\w+`(?:, )?)+):", part, re.MULTILINE)))
    ) - {"assert_functional_graph"}


def write_case(number: str, folder: Path) -> Path:
    """Write a section's smallest case, and return its file."""
    [block] = re.findall(r"^```yaml\n(.*?)^```$", SECTIONS[number], re.MULTILINE | re.DOTALL)
    path = folder / f"defect_{number}.spec.yaml"
    path.write_text(block, encoding="utf-8")
    return path


@pytest.mark.parametrize("number", SECTIONS)
def test_a_section_holds_one_valid_case(number: str, tmp_path: Path) -> None:
    loaded = load([str(write_case(number, tmp_path))])
    assert [diagnostic.render() for diagnostic in loaded.diagnostics] == []
    assert len(loaded.variants) == 1


FIRST = [*{severity: number for number, (severity, *_) in reversed(ROWS.items())}.values()]
"""The first row of each severity."""


@pytest.mark.slow
@pytest.mark.skipif(not version("torch").startswith("2.13.0"), reason="the page is about torch 2.13.0")
@pytest.mark.parametrize("numbers", [FIRST, pytest.param([*ROWS], marks=pytest.mark.nightly)], ids=["first", "all"])
def test_every_smallest_case_fails_as_its_row_says(numbers: list[str], tmp_path: Path) -> None:
    for number in numbers:
        write_case(number, tmp_path)
    command = [sys.executable, "-m", "runner", "run", ".", "--backend", "inductor", "--no-known", "--no-confirm"]
    command += ["-j", "2", "--events", "events.jsonl"]
    paths = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=1800
    )
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    finished = [event for event in events if event["event"] == "variant-finished"]
    seen = {re.findall(r"defect_(\d+)", event["id"])[0]: _row(event) for event in finished}
    rows = {number: ROWS[number] for number in numbers}
    said = {number: [severity, signature, verdict] for number, (severity, _, signature, _, verdict) in rows.items()}
    assert seen == said, done.stdout + done.stderr


def _row(event: dict[str, Any]) -> list[str]:
    """Return what the page's table says of a variant."""
    return [event["severity"], event["signature"], event["verdict"]]
