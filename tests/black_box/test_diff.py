"""``runner diff`` as a person runs it, on logs made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import jsonschema
import pytest

from runner.record.events import RunFinished, VariantFinished
from runner.record.journal import Journal
from tests.report.events_sample import failure, finished, planned, started

from .driver import REPOSITORY, run_in

COMMAND = "runner run 'specs/a.spec.yaml::pad_view[float32,cpu]@inductor'"


def log(path: Path, *results: VariantFinished) -> None:
    """Write the log of a run."""
    torches = dict.fromkeys(result.torch for result in results)
    with Journal(path, lambda problem: pytest.fail(problem)) as journal:
        journal.write(started(*torches, run=path.name))
        for result in results:
            journal.write(planned(result.case.rpartition("::")[2], result.backend, result.torch))
        for result in results:
            journal.write(result)
        journal.write(RunFinished(0, 1.0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with logs: ``old`` is green, ``worse`` is not, ``both`` has two versions and two backends."""
    path = tmp_path_factory.mktemp("diff")
    old = finished("PASS", torch="2.6.0"), finished("XFAIL", "known", torch="2.6.0", findings=failure().findings)
    log(path / "old.jsonl", *old)
    log(path / "same.jsonl", finished("PASS"), finished("XFAIL", "known", findings=failure().findings))
    log(path / "worse.jsonl", failure(repro=COMMAND), finished("PASS", "known"))
    log(path / "elsewhere.jsonl", finished("PASS", file="other/a.spec.yaml"))
    log(path / "both.jsonl", *(finished("PASS", backend=b, torch=t) for b in ("eager", "aot_eager") for t in ("2.6.0", "2.13.0")),
        finished("PASS", torch="2.6.0"), failure(torch="2.13.0", repro=COMMAND))  # fmt: skip
    (path / ".runner" / "runs" / "run").mkdir(parents=True)
    (path / ".runner" / "runs" / "run" / "events.jsonl").write_bytes((path / "worse.jsonl").read_bytes())
    (path / ".runner" / "latest").symlink_to("runs/run")
    (path / "cut.jsonl").write_text((path / "worse.jsonl").read_text().replace('"FAIL"', '"GONE"'))
    return path


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("old.jsonl", "same.jsonl"), 0, "\n2 the same\n"),
        (("old.jsonl", "worse.jsonl"), 1, "\n1 broken, 1 fixed, 0 the same\n"),
        (("worse.jsonl", "old.jsonl"), 0, "\n1 fixed, 1 expected"),
        (("old.jsonl", "run"), 1, COMMAND),
        (("old.jsonl", "latest"), 1, COMMAND),
        (("both.jsonl", "--torch", "2.6.0", "2.13.0"), 1, "\n1 broken, 2 the same\n"),
        (("both.jsonl", "--torch", "2.13", "2.6"), 0, "\n1 fixed, 2 the same\n"),
        (("both.jsonl", "--backend", "eager", "inductor"), 1, "torch 2.13.0"),
        (("both.jsonl", "--backend", "eager", "aot_eager"), 0, "\n2 the same\n"),
    ],
)
def test_the_exit_code_says_whether_something_is_broken(
    folder: Path, words: tuple[str, ...], code: int, expected: str
) -> None:
    result = run_in(folder, "diff", *words)
    assert result.code == code, result.text
    assert (
        set(expected.strip().split(", ")) <= set(result.out.strip().split("\n")[-1].split(", "))
        or expected in result.out
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 4, "required: OLD"),
        (("old.jsonl",), 4, "both sides are one"),
        (("old.jsonl", "old.jsonl"), 4, "both sides are one"),
        (("old.jsonl", "none.jsonl"), 4, "no event log at none.jsonl"),
        (("old.jsonl", "both.jsonl"), 4, "nothing says which torch pairs with which"),
        (("both.jsonl", "--torch", "2.6.0"), 4, "expected 2 arguments"),
        (("both.jsonl", "--backend", "eager", "tvm"), 4, "--backend tvm: no such backend here"),
        (("old.jsonl", "worse.jsonl", "--json", "old.jsonl"), 4, "this command reads that file"),
        (("old.jsonl", "worse.jsonl", "--markdown", "none/a.md"), 4, "there is no folder"),
        (("old.jsonl", "worse.jsonl", "--markdown", "-", "--json", "-"), 4, "standard output holds one of them"),
        (("old.jsonl", "cut.jsonl"), 4, "was changed after it was written"),
        (("old.jsonl", "elsewhere.jsonl"), 5, "no variant has a verdict on both sides"),
    ],
)
def test_what_cannot_be_compared_is_refused(folder: Path, words: tuple[str, ...], code: int, message: str) -> None:
    result = run_in(folder, "diff", *words)
    assert (result.code, result.out) == (code, "")
    assert message in result.err


def test_it_writes_markdown_json_and_a_page(folder: Path) -> None:
    result = run_in(folder, "diff", "old.jsonl", "worse.jsonl", "--markdown", "a.md", "--json", "a.json", "--html", "a.html")  # fmt: skip
    assert result.code == 1 and "broken: 1 variant" in result.out
    assert COMMAND in (folder / "a.md").read_text()
    document = json.loads((folder / "a.json").read_text())
    jsonschema.Draft7Validator(json.loads((REPOSITORY / "schema" / "diff.schema.json").read_text())).validate(document)
    assert document["counts"]["broken"] == 1 and document["old"]["torch"] == ["2.6.0"]
    assert '<h2 id="broken"' in (folder / "a.html").read_text()


def test_standard_output_holds_one_format(folder: Path) -> None:
    result = run_in(folder, "diff", "old.jsonl", "worse.jsonl", "--json", "-")
    assert json.loads(result.out)["pairs"] == 2 and result.code == 1
    result = run_in(folder, "diff", "old.jsonl", "worse.jsonl", "--markdown", "-")
    assert result.out.startswith("## Broken: 1 variant\n") and result.code == 1


@pytest.mark.parametrize(
    ("environ", "coloured"), [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)]
)
def test_colours_are_for_those_who_ask(folder: Path, environ: Mapping[str, str], coloured: bool) -> None:
    result = run_in(folder, "diff", "old.jsonl", "worse.jsonl", env=environ)
    assert ("\x1b[31mbroken: 1 variant\x1b[0m" in result.out) == coloured
    assert ("\x1b" in result.out) == coloured and "\\x1b" not in result.out
