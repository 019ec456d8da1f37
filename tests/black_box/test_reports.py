"""``runner run`` with every report that can be asked for: what stands on the disk afterwards, and what the log of a job shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.record.store import lock_file
from tests.report.test_html import Read

from .driver import Result, run_in, spec, write

BROKEN = "relu_accuracy_error_TESTING_ONLY"
CASES = f"suite: a\nbackends: [{BROKEN}]\n" + spec(
    "name: good\ninputs: {x: [4]}\nchain: [torch.neg]\nknown: [{dtype: [float64], oracle: [value], reason: needless}]",
    "name: bad\ninputs: {x: [4]}\nchain: [torch.relu]",
    "name: expected\ninputs: {x: [4]}\nchain: [torch.relu]\nknown: [{oracle: [value], reason: 'known <b>well</b>'}]",
)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("reports")
    write(folder, {"repo/a.suite.yaml": CASES})
    words = ("--html", "site", "--ctrf", "ctrf.json", "--junit", "junit.xml", "--github", "--no-confirm", "-j", "1")
    places = {
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "GITHUB_WORKSPACE": str(folder),
        "GITHUB_ACTIONS": "true",
    }
    result = run_in(folder / "repo", "run", "a.suite.yaml", *words, env=places)
    assert result.code == 1, result.text
    return result


def test_the_pages_of_a_run_are_whole(result: Result) -> None:
    site = result.cwd / "site"
    index = Read((site / "index.html").read_text())
    assert index.text.startswith("a: 1 FAIL, 1 PASS, 1 XFAIL")
    for words in (
        "stale: its selectors fit no variant",
        "known <b>well</b>",
        "matched",
        "a.suite.yaml::bad[float32,cpu]",
    ):
        assert words in index.text, words
    links = {value for name, value in index.attributes if name in ("href", "src") and "#" not in str(value)}
    assert {"times.html", "page.css", "report.css", "report.js"} <= links
    assert all((site / str(link)).is_file() for link in links)
    pages = {page.name: Read(page.read_text()).text for page in (site / "failures").glob("*.html")}
    assert len(pages) == 3 and any("torch.relu" in text and "mismatched" in text for text in pages.values())
    assert "site/index.html" in result.out.split("reports: ")[1]


def test_a_report_makes_the_pages_again(result: Result) -> None:
    again = run_in(result.cwd, "report", "latest", "--html", "again")
    assert again.code == 0
    assert (result.cwd / "again" / "index.html").read_text() == (result.cwd / "site" / "index.html").read_text()


def test_the_job_shows_a_summary_and_the_line(result: Result) -> None:
    commands = [line for line in result.out.split("\n") if line.startswith("::")]
    failure, stale = commands
    assert failure.startswith("::error file=repo/a.suite.yaml,line=") and "title=FAIL bad[float32%2Ccpu]" in failure
    assert stale.startswith("::warning file=repo/a.suite.yaml,line=7,") and "matched nothing" in stale
    summary = (result.cwd.parent / "summary.md").read_text()
    assert "<h3>runner: 1 red result of 3</h3>" in summary and "a.suite.yaml::bad[float32,cpu]" in summary


def test_the_other_files_count_alike(result: Result) -> None:
    summary = json.loads((result.cwd / "ctrf.json").read_text())["results"]["summary"]
    assert [summary[key] for key in ("tests", "passed", "failed", "skipped")] == [3, 1, 1, 1]
    assert result.junit.get("tests") == "3" and (result.cwd / "junit.xml").is_file()


def test_merged_shards_have_pages_too(tmp_path: Path) -> None:
    write(tmp_path, {"a.suite.yaml": CASES})
    for shard in ("1/2", "2/2"):
        words = ("--shard", shard, "--events", f"{shard[0]}.jsonl", "--no-confirm", "-j", "1")
        assert run_in(tmp_path, "run", "a.suite.yaml", *words).code in (0, 1)
    result = run_in(tmp_path, "merge", "1.jsonl", "2.jsonl", "-o", "joined", "--html", "site", "--ctrf", "ctrf.json")
    assert result.code == 1, result.text
    text = Read((tmp_path / "site" / "index.html").read_text()).text
    assert all(f"a.suite.yaml::{name}[float32,cpu]" in text for name in ("good", "bad", "expected"))
    assert json.loads((tmp_path / "ctrf.json").read_text())["results"]["summary"]["tests"] == 3


@pytest.mark.parametrize(
    "words", [("--events", "log.jsonl"), ("--report", "events=log.jsonl")], ids=["events", "report"]
)
def test_two_runs_do_not_write_one_log(words: tuple[str, str], tmp_path: Path) -> None:
    write(tmp_path, {"a.suite.yaml": CASES})
    with lock_file(str(tmp_path / "log.jsonl")):
        result = run_in(tmp_path, "run", "a.suite.yaml", *words)
    assert result.code == 4 and f"{words[0]} log.jsonl: another run writes this file" in result.err
    assert not (tmp_path / "log.jsonl").read_text() and not (tmp_path / ".runner").exists()
