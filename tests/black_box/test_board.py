"""``runner board``: the site over real runs of a suite, and the check of results that somebody sends."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from .driver import Result, run_in, write

SUITE = """\
suite: own
specs: [a.spec.yaml]
backends: [aot_eager, {name: acme, backend: "acme:compile"}]
"""
CASES = """\
cases:
  - name: sum
    inputs: {x: [4], y: [4]}
    chain: [{torch.add: [$x, $y]}]
  - name: relu
    inputs: {x: [4]}
    chain: [{torch.relu: [$x]}]
"""
RIGHT = "def compile(graph, inputs):\n    return graph.forward\n"
WRONG = """\
import torch


def compile(graph, inputs):
    for node in graph.graph.nodes:
        if node.target is torch.add:
            node.target = torch.sub
    graph.recompile()
    return graph.forward
"""
COMMAND = ("run", "own.suite.yaml", "--allow-python")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite, and results of two dates: on the later one the backend ``acme`` subtracts where it should add."""
    place = tmp_path_factory.mktemp("board")
    write(place, {"own.suite.yaml": SUITE, "a.spec.yaml": CASES})
    for date, source in (("2026-11-01", RIGHT), ("2026-11-20", WRONG)):
        write(place, {"acme.py": source})
        run = run_in(place, *COMMAND)
        assert run.folder is not None and run.code == (source == WRONG), run.text
        keep(run.folder, place / "results", date)
    return place


def keep(run: Path, results: Path, date: str) -> None:
    """Put a log into a folder of results, once for each of its backends, as a run of a date."""
    first, *rest = (run / "events.jsonl").read_text().splitlines()
    start = json.loads(first) | {"started": f"{date}T08:00:00"}
    torch = json.loads(rest[0])["torch"]
    target = results / "acme" / torch / date
    target.mkdir(parents=True)
    (target / "events.jsonl").write_text("\n".join([json.dumps(start), *rest]) + "\n")
    (target / "machine.txt").write_text("two cores of x86-64\n")


def board(folder: Path, *words: object) -> Result:
    return run_in(folder, "board", *words)


def test_the_site_says_what_broke_and_leads_to_it(folder: Path) -> None:
    made = board(folder, "results", "-o", "site")
    assert made.code == 0 and "site/index.html: 2 runs" in made.out, made.text
    index = (folder / "site/index.html").read_text()
    (address,) = set(re.findall(r'href="(runs/[^"]+/failures/[^"]+)"', index))
    assert "a.spec.yaml::sum" in (folder / "site" / address).read_text()
    backend = next(path for path in (folder / "site").glob("backend-acme-*.html")).read_text()
    assert "two cores of x86-64" in backend and "2026-11-01 to 2026-11-20" in backend
    quiet = next(path for path in (folder / "site").glob("backend-aot-eager-*.html")).read_text()
    assert "Nothing differs." in quiet


def test_a_board_is_replaced_and_another_folder_is_not(folder: Path) -> None:
    assert board(folder, "results", "-o", "twice").code == 0
    assert board(folder, "results", "-o", "twice").code == 0
    write(folder, {"precious/notes.txt": "mine"})
    refused = board(folder, "results", "-o", "precious")
    assert refused.code == 4 and "there is something in it that is no board" in refused.err
    assert [path.name for path in (folder / "precious").iterdir()] == ["notes.txt"]


def test_whole_runs_of_the_suite_are_good(folder: Path) -> None:
    checked = board(folder, "results", "--check", "own.suite.yaml")
    assert checked.code == 0 and checked.out.count(": good") == 2, checked.text


def change(folder: Path, name: str, *, old: str = "", new: str = "", drop: str = "") -> Path:
    """A copy of the results with the later log changed: a text of it, or lines with a text left out."""
    copy = folder / name
    shutil.copytree(folder / "results", copy)
    path = next(copy.rglob("2026-11-20/events.jsonl"))
    lines = [line for line in path.read_text().splitlines(keepends=True) if not (drop and drop in line)]
    text = "".join(lines)
    assert old in text
    path.write_text(text.replace(old, new))
    return copy


@pytest.mark.parametrize(
    ("name", "changes", "problem"),
    [
        ("short", {"drop": '"run-finished"'}, "its run did not come to its end"),
        ("holes", {"drop": '"variant-finished", "id": "a.spec.yaml::relu[float32,cpu]@acme"'}, "without a verdict"),
        ("aged", {"old": '"version": "0.', "new": '"version": "9.'}, "check it with that version"),
        ("dated", {"old": '"started": "2026-11-20', "new": '"started": "2026-11-19'}, "its folder says date 2026-11-20"),
        ("seeded", {"old": '"--allow-python"', "new": '"--allow-python", "--seed", "7"'}, "the content of cases differs"),
        ("foreign", {"old": '["runner", "run"', "new": '["runner", "validate"'}, "its command cannot be followed"),
    ],
)  # fmt: skip
def test_what_is_no_whole_run_of_the_suite_is_not_good(
    folder: Path, name: str, changes: dict[str, str], problem: str
) -> None:
    copy = change(folder, name, **changes)
    checked = board(folder, copy, "--check", "own.suite.yaml")
    assert checked.code == 1 and problem in checked.out, checked.text
    assert checked.out.count(": good") == 1 and checked.out.count(": not good") == 1, "the other one still is"


def test_a_run_of_changed_cases_is_not_good(folder: Path) -> None:
    write(folder, {"changed/own.suite.yaml": SUITE, "changed/acme.py": RIGHT, "changed/a.spec.yaml": CASES.replace("[4]", "[5]")})  # fmt: skip
    copy = folder / "changed" / "results"
    shutil.copytree(folder / "results", copy)
    checked = board(folder / "changed", "results", "--check", "own.suite.yaml")
    assert checked.code == 1 and checked.out.count("the content of cases differs") == 2, checked.text


def test_a_part_of_a_suite_is_not_good(folder: Path) -> None:
    run = run_in(folder, *COMMAND, "-k", "relu")
    checked = board(folder, run.folder, "--check", "own.suite.yaml")
    assert checked.code == 1 and "its command selected a part: runner run own.suite.yaml" in checked.out, checked.text


def test_a_run_of_another_backend_is_a_whole_run_of_the_suite(folder: Path) -> None:
    run = run_in(folder, *COMMAND, "--backend", "eager")
    checked = board(folder, run.folder, "--check", "own.suite.yaml")
    assert checked.code == 0 and ": good" in checked.out, checked.text


def test_a_log_of_a_stranger_brings_no_file_of_this_machine_into_the_site(folder: Path) -> None:
    write(folder, {"private/secret.spec.yaml": "# the secret of this machine\n" * 9})
    log = next((folder / "results").rglob("2026-11-20/events.jsonl")).read_text()
    events = [json.loads(line) for line in log.splitlines()]
    secret = str(folder / "private/secret.spec.yaml")
    changed = [event | ({"file": secret} if "file" in event else {}) for event in events]
    write(folder, {"stranger/events.jsonl": "".join(json.dumps(event) + "\n" for event in changed)})
    assert board(folder, "stranger", "-o", "open").code == 0
    pages = [path for path in (folder / "open").rglob("*.html")]
    assert len(pages) > 4 and not any("the secret of this machine" in path.read_text() for path in pages)


def test_a_folder_without_results_is_named(folder: Path) -> None:
    write(folder, {"empty/readme.txt": ""})
    refused = board(folder, "empty", "-o", "none")
    assert refused.code == 5 and "no events.jsonl below empty" in refused.err and not (folder / "none").exists()
