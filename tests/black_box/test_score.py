"""``runner score`` as a person runs it, on logs made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from runner.record.events import VariantFinished
from tests.report.events_sample import failure, finished

from .driver import REPOSITORY, run_in
from .test_diff import log


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with logs: ``one`` has two backends, ``two`` one of them, ``skipped`` no verdict; ``latest`` is ``one``."""
    place = tmp_path_factory.mktemp("score")

    def passed(name: str, backend: str) -> VariantFinished:
        return finished(name=name, backend=backend)

    unclaimed = finished("SKIP", "c", "openvino", unclaimed="gradients", reason="openvino claims no gradients")
    log(place / "one.jsonl", *(passed(name, "inductor") for name in "abc"), passed("a", "openvino"),
        failure(name="b", backend="openvino"), unclaimed)  # fmt: skip
    log(place / "two.jsonl", *(passed(name, "inductor") for name in "ab"), failure(name="c"))
    log(place / "skipped.jsonl", finished("SKIP", reason="no GPU"))
    (place / ".runner" / "runs" / "run").mkdir(parents=True)
    (place / ".runner" / "runs" / "run" / "events.jsonl").write_bytes((place / "one.jsonl").read_bytes())
    (place / ".runner" / "latest").symlink_to("runs/run")
    (place / "cut.jsonl").write_text((place / "one.jsonl").read_text().replace('"FAIL"', '"GONE"'))
    return place


def row(text: str, name: str) -> list[str]:
    return next(line.split()[1:] for line in text.split("\n") if line.split()[:1] == [name] and len(line.split()) > 1)


@pytest.mark.parametrize(
    ("words", "conformance", "overall"),
    [
        ((), ["100.0%", "50.0%"], ["100.0%", "33.3%"]),
        (("latest",), ["100.0%", "50.0%"], ["100.0%", "33.3%"]),
        (("run", "--backend", "openvino"), ["50.0%"], ["33.3%"]),
        (("one.jsonl", "two.jsonl"), ["100.0%", "66.6%", "50.0%"], ["100.0%", "66.6%", "33.3%"]),
    ],
)
def test_it_prints_the_shares_of_each_backend(
    folder: Path, words: tuple[str, ...], conformance: list[str], overall: list[str]
) -> None:
    result = run_in(folder, "score", *words)
    assert result.code == 0, result.text
    assert row(result.out, "conformance") == conformance and row(result.out, "overall") == overall


def test_it_writes_markdown_json_and_a_badge(folder: Path) -> None:
    result = run_in(folder, "score", "one.jsonl", "--markdown", "a.md", "--json", "a.json", "--svg", "a.svg")
    assert result.code == 0, result.text
    assert "| | inductor | openvino |" in (folder / "a.md").read_text()
    document = json.loads((folder / "a.json").read_text())
    jsonschema.Draft7Validator(json.loads((REPOSITORY / "schema" / "score.schema.json").read_text())).validate(document)
    assert document["columns"][1]["total"]["claim"] == {"part": 2, "whole": 3, "percent": 66.6}
    ElementTree.parse(folder / "a.svg")
    assert "openvino: 50.0% of 66.6% claimed" in (folder / "a.svg").read_text()


def test_standard_output_holds_one_format(folder: Path) -> None:
    assert json.loads(run_in(folder, "score", "--json", "-").out)["schema"] == 1
    assert run_in(folder, "score", "--markdown", "-").out.startswith("## Conformance\n")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("none.jsonl",), 4, "no event log at none.jsonl"),
        (("one.jsonl", "one.jsonl"), 4, "both runs are one"),
        (("run", "latest"), 4, "both runs are one"),
        (("one.jsonl", "--backend", "tvm"), 4, "--backend tvm: no such backend here: inductor, openvino"),
        (("one.jsonl", "--json", "one.jsonl"), 4, "this command reads that file"),
        (("one.jsonl", "--svg", "none/a.svg"), 4, "there is no folder"),
        (("one.jsonl", "--markdown", "-", "--json", "-"), 4, "standard output holds one of them"),
        (("cut.jsonl",), 4, "was changed after it was written"),
        (("skipped.jsonl",), 5, "no variant was judged, so there is no score: skipped.jsonl: 1 SKIP (no GPU)"),
    ],
)
def test_what_has_no_score_is_refused(folder: Path, words: tuple[str, ...], code: int, message: str) -> None:
    result = run_in(folder, "score", *words)
    assert (result.code, result.out) == (code, "")
    assert message in result.err
