"""The pages of a run: what they show, how large they become, and that nothing in a log becomes markup."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from runner.cli.main import main
from runner.cli.run import taken_words
from runner.exit_codes import UsageError
from runner.record.events import Event, Notice, RunFinished, VariantFinished, to_json
from runner.report.site import folder as site
from runner.report.site import results as site_results
from runner.report.site.folder import check_folder, write_folder
from runner.report.site.results import Declared, read_declared
from runner.session.collect import Loaded
from runner.templates import read_file
from tests.handmade import finding as found
from tests.handmade import loaded, played, written
from tests.hostile import PAYLOADS
from tests.report.events_sample import NASTY, every_verdict, failure, finished, planned, started, value_finding
from tests.report.pictures import PICTURE, diagnosis
from tests.report.test_html import HOSTILE, Read

SPEC = """
cases:
  - name: doubled
    tags: [cheap, shapes]
    inputs: {x: [2, 3]}
    chain:
      - torch.mul: [$_, 2]

  - name: after
    inputs: {x: [2]}
    chain: [F.relu]
"""


def run(*results: VariantFinished, notices: Iterable[Event] = ()) -> list[Event]:
    return [started(), *notices, *results, RunFinished(1, 12.5)]


def site_of(tmp_path: Path, events: Sequence[Event], declared: Declared | None = None, run_folder: Path | None = None) -> Path:  # fmt: skip
    out = tmp_path / "out"
    write_folder(out, events, declared or Declared(), run_folder)
    check_links(out)
    return out


def check_links(out: Path) -> None:
    """Every link leads to a file of the folder, and to an element of it where it names one."""
    pages = {page: Read(page.read_text()).attributes for page in out.resolve().rglob("*.html")}
    places = {page: {value for name, value in attributes if name == "id"} for page, attributes in pages.items()}
    for page, attributes in pages.items():
        for name, value in attributes:
            if name not in ("href", "src") or not value or value.startswith("https://") or "=" in value:
                continue
            file, _, anchor = value.partition("#")
            target = Path(os.path.normpath(page.parent / file)) if file else page
            assert target in pages or (target.is_file() and target.is_relative_to(out.resolve())), value
            assert not anchor or unquote(anchor) in places[target], value


def text_of(page: Path) -> str:
    return Read(page.read_text()).text


def test_a_pass_outside_the_tolerance_says_how_far_it_is(tmp_path: Path) -> None:
    note = "output: 3 of 9 elements lie outside the tolerance: within-float64-noise"
    event = finished("PASS", "a", labels=("within-float64-noise",), notes=(note,))
    assert f"{event.id}: {note}" in text_of(site_of(tmp_path, run(event)) / "index.html")


def many(count: int, red: int) -> list[Event]:
    """A run of ``count`` variants of two backends, the first ``red`` of which fail."""
    plan, results = [], []
    for number in range(count // 2):
        for backend in ("aot_eager", "inductor"):
            axes = {"name": f"case_with_a_name_of_usual_length_{number}", "backend": backend, "file": f"specs/part_{number % 40}.spec.yaml"}  # fmt: skip
            plan.append(planned(**axes))
            bad = len(results) < red
            results.append(failure(**axes, operator=f"torch.op_{number % 300}") if bad else finished(**axes))
    return [started(), *plan, *results, RunFinished(1, 600.0)]


def test_the_first_page_shows_verdicts_groups_and_a_table(tmp_path: Path) -> None:
    out = site_of(tmp_path, every_verdict())
    words = text_of(out / "index.html")
    for verdict in ("FAIL", "ERROR", "XPASS", "FLAKY", "VACUOUS", "INVALID", "XFAIL", "SKIP", "PASS"):
        assert f"1 {verdict}" in words
    assert "2 NOT-RUN" in words and "value at inductor" in words and "took 12.3s" in words
    html = Read((out / "index.html").read_text())
    assert html.count["tr"] == 2 + 11  # a heading, a suite, and a row for each variant
    assert html.count["article"] == 6


def test_the_worst_signature_comes_first(tmp_path: Path) -> None:
    slow = failure(name="b", oracles=("recompile",), findings=(value_finding(oracle="recompile", severity="performance"),), severity="performance")  # fmt: skip
    wrong = failure(name="a", severity="wrong-result")
    text = (site_of(tmp_path, run(slow, wrong)) / "index.html").read_text()
    assert text.index("value at inductor") < text.index("recompile (performance) at inductor")


def test_a_failure_has_all_of_it_on_its_page(tmp_path: Path) -> None:
    file = written(tmp_path, SPEC)
    case = loaded(file).variants
    at = f"{file}:6:9"
    events = played(case, ["2.13.0"], lambda v, _: dataclasses.replace(found(), place=at) if v.case.name == "doubled" else "PASS")  # fmt: skip
    out = site_of(tmp_path, events, Declared.of(case))
    html = (out / "failures" / "00001.html").read_text()
    assert "torch.mul(" in html and "shape: [2, 3]" in html.replace("x: [2, 3]", "shape: [2, 3]")
    (highlight,) = re.findall(r"<mark>(.*?)</mark>", html)
    assert Read(highlight).text == "6 - torch.mul: [$_, 2]"
    assert "name: after" not in html, "the next case is another one"
    assert 'data-t="cheap shapes"' in (out / "index.html").read_text()


def test_a_report_of_a_log_reads_the_files_of_its_cases(tmp_path: Path) -> None:
    file = written(tmp_path, SPEC)
    events = played(loaded(file).variants, ["2.13.0"], lambda *_: found())
    out = site_of(tmp_path, events, read_declared(events, foreign=False))
    pages = sorted((out / "failures").glob("*.html"))
    assert len(pages) == 2 and "torch.mul(" in pages[0].read_text() and "F.relu" in pages[1].read_text()


def test_the_log_of_a_stranger_opens_no_file_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, SPEC)
    events = played(loaded(file).variants, ["2.13.0"], lambda *_: found())
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    out = site_of(tmp_path, events, read_declared(events, foreign=True))
    assert all("torch.mul" not in page.read_text() for page in out.rglob("*.html"))
    assert "are not here" in text_of(out / "index.html")
    monkeypatch.chdir(tmp_path)
    out = site_of(tmp_path, events, read_declared(events, foreign=True))
    assert any("torch.mul" in page.read_text() for page in out.rglob("*.html"))


def test_files_that_changed_or_went_are_no_error(tmp_path: Path) -> None:
    file = written(tmp_path, SPEC)
    events = played(loaded(file).variants, ["2.13.0"], lambda *_: found())
    file.write_text("cases: [")
    site_of(tmp_path, events, read_declared(events, foreign=False))
    file.unlink()
    out = site_of(tmp_path, events, read_declared(events, foreign=False))
    assert "could not be read" in text_of(next((out / "failures").glob("*.html")))


def test_a_diagnosis_of_the_run_is_on_the_page(tmp_path: Path) -> None:
    event = failure(name="a")
    sample = diagnosis(id=event.id, torch=event.torch)
    data = {**json.loads(json.dumps(sample.to_dict(), default=str)), "heat_map": {"picture": PICTURE, "reason": ""}}
    (tmp_path / "diagnosis-1.json").write_text(json.dumps(data))
    (tmp_path / "diagnosis-2.json").write_text('{"id": 3, "findings": [7]}')
    (tmp_path / "diagnosis-3.json").write_text("[" * 100_000)
    words = text_of(next((site_of(tmp_path, run(event), run_folder=tmp_path) / "failures").glob("*.html")))
    assert "lowerings" in words and "without vectorization" in words and "elements lie beyond the tolerance" in words


def test_a_damaged_heat_map_spoils_no_page(tmp_path: Path) -> None:
    event = failure(name="a")
    data = {**json.loads(json.dumps(diagnosis(id=event.id, torch=event.torch).to_dict(), default=str)), "heat_map": {"picture": {"grid": 3}}}  # fmt: skip
    (tmp_path / "diagnosis-1.json").write_text(json.dumps(data))
    words = text_of(next((site_of(tmp_path, run(event), run_folder=tmp_path) / "failures").glob("*.html")))
    assert "mismatched 3 of 1000" in words and "beyond the tolerance" not in words


def test_the_ledger_lists_each_entry_once(tmp_path: Path) -> None:
    issue = "https://github.com/pytorch/pytorch/issues/1"
    met = [finished("XFAIL", f"c{n}", known=issue, entry="a.spec.yaml:4:9") for n in range(8)]
    fixed = finished("XPASS", "gone", known="javascript:alert(1)", entry="b.spec.yaml:4:9")
    out = site_of(tmp_path, run(*met, fixed))
    html = Read((out / "index.html").read_text())
    assert "8 XFAIL" in html.text and "and 3 more" in html.text and "a.spec.yaml:4:9" in html.text
    assert ("href", issue) in html.attributes and "javascript:alert(1)" in html.text
    assert not [value for name, value in html.attributes if name == "href" and "javascript" in str(value)]


LEDGER = """
cases:
  - name: a
    inputs: {x: [2]}
    chain: [F.relu]
    known:
      - {torch: "<=2.6", oracle: [value], reason: "met <b>here</b>"}
      - {torch: ">=2.13", oracle: [value], reason: was broken}
      - {dtype: [float64], oracle: [value], reason: never}
      - {torch: ">=99", oracle: [value], reason: later}
"""


def ledger_page(tmp_path: Path, declared: Callable[[list[Event], Loaded], Declared], **options: Any) -> str:
    """The text of the page of a run in which the case fails under torch 2.6 and passes under 2.13."""
    files = loaded(written(tmp_path, LEDGER, "ledger.spec.yaml"))
    events = played(
        files.variants, ["2.6.0", "2.13.0"], lambda v, torch: found() if torch == "2.6.0" else "XPASS", **options
    )
    text: str = Read((site_of(tmp_path, events, declared(events, files)) / "index.html").read_text()).text
    return text[text.index("Known failures") :]


def test_the_ledger_says_what_became_of_entries_that_were_not_met(tmp_path: Path) -> None:
    for declared in (
        lambda events, files: Declared.of(files.variants),
        lambda events, files: read_declared(events, False),
    ):
        words = ledger_page(tmp_path, declared)
        assert "fixed: passes under torch 2.13.0" in words and "stale: its selectors fit no variant" in words
        assert "Entries that the run did not meet: 1 elsewhere, 1 matched." in words
        assert words.index("was broken") < words.index("never") and "ledger.spec.yaml:8:9" in words
        assert "later" not in words


def test_a_part_of_a_run_calls_no_entry_stale(tmp_path: Path) -> None:
    words = ledger_page(tmp_path, lambda events, files: Declared.of(files.variants), full=False)
    assert "stale" not in words and "fixed: passes under torch 2.13.0" in words and "not-run" in words


def test_without_files_the_ledger_is_what_the_log_says(tmp_path: Path) -> None:
    words = ledger_page(tmp_path, lambda events, files: Declared())
    assert "fixed" not in words and "stale" not in words


def test_a_pass_opens_and_one_with_an_excuse_has_its_page_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = "output: 1.2 times the tolerance: within-float64-noise"
    plain = finished(name="plain", compared={"outputs": 2, "elements": 1024})
    excused = finished(name="excused", labels=("within-float64-noise",), notes=(note,))
    out = site_of(tmp_path, run(plain, excused))
    words = [text_of(out / "failures" / f"0000{number}.html") for number in (1, 2)]
    assert "compared outputs 2, elements 1,024" in words[0] and note in words[1]
    monkeypatch.setattr(site_results, "PAGES", 1)
    out = site_of(tmp_path, run(plain, excused))
    assert [path.name for path in (out / "failures").glob("*.html")] == ["00002.html"]


def test_the_first_page_says_at_the_top_which_torch_ran_when_and_how(tmp_path: Path) -> None:
    head, _, _ = text_of(site_of(tmp_path, run(finished())) / "index.html").partition("About this run")
    assert "torch 2." in head and " UTC " in head and " command runner run" in head


def test_times_sum_by_backend(tmp_path: Path) -> None:
    events = run(finished(name="a", seconds=1.0, spent={"busy": 3.0}), finished(name="b", seconds=2.0, spent={"busy": 4.0}),
                 finished(name="c", seconds=50.0, cached="earlier"), finished(name="d", seconds=float("nan")))  # fmt: skip
    words = text_of(site_of(tmp_path, events) / "times.html")
    assert "3.00s" in words and "7.00s" in words and "50.0s" not in words and "nan" not in words


@pytest.mark.slow
def test_ten_thousand_variants_fit(tmp_path: Path) -> None:
    out = site_of(tmp_path, many(10_000, 4000))
    assert (out / "index.html").stat().st_size < 5_000_000
    words = text_of(out / "index.html")
    assert "cases are left out" not in words and "3,500 failures have no page" in words
    pages = [*(out / "failures").glob("*.html")]
    assert len(pages) == site_results.PAGES
    assert "operator torch.op_299" in " ".join(map(text_of, pages)), "each signature has a page before one has two"


@pytest.mark.slow
def test_a_page_has_a_bounded_size_whatever_the_run(tmp_path: Path) -> None:
    wide = "w" * 3000
    events = run(*(finished(name=f"{n}{wide}", file=f"{n % 7}.spec.yaml") for n in range(12_000)), failure(name="last"))
    out = site_of(tmp_path, events)
    assert (out / "index.html").stat().st_size < 5_000_000
    words = text_of(out / "index.html")
    assert "cases are left out" in words and "::last[" in words, "a failure is not left out for a pass"


@pytest.mark.slow
def test_hostile_text_fits_too(tmp_path: Path) -> None:
    bad = "<&\">'" * 2000
    events = run(*(finished("FAIL", f"{n}{bad}", f"{bad}{n}", f"{bad}{n}", suites=(f"{n}{bad}",), oracles=(f"{n}{bad}",) * 9,
                            stage=bad, severity=f"{n}{bad}", signature=f"{n}{bad}", signature_id=f"{n}", known=f"{n}{bad}",
                            reason=bad) for n in range(120)),
                 notices=[Notice(bad)] * 100)  # fmt: skip
    assert (site_of(tmp_path, events) / "index.html").stat().st_size < 5_000_000


def test_pages_of_failures_have_a_bounded_size_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "PAGES_SIZE", 60_000)
    events = run(*(failure(name=f"c{n}", output="x" * 10_000, operator=f"op{n}") for n in range(12)))
    out = site_of(tmp_path, events)
    assert 1 <= len([*(out / "failures").glob("*.html")]) <= 3
    assert "failures have no page" in text_of(out / "index.html")


def test_a_huge_output_is_cut_on_the_page_and_beside_it(tmp_path: Path) -> None:
    out = site_of(tmp_path, run(failure(output="y" * 3_000_000, stack="z" * 3_000_000)))
    (page,), (log,) = (out / "failures").glob("*.html"), (out / "failures").glob("*.txt")
    assert page.stat().st_size < 200_000 and log.stat().st_size <= site.LOG
    assert log.name in page.read_text()


@pytest.mark.parametrize("bad", [*PAYLOADS.values(), HOSTILE, NASTY], ids=[*PAYLOADS, "page", "nasty"])
def test_nothing_in_a_log_becomes_markup(bad: str, tmp_path: Path) -> None:
    error = {"type": bad, "message": bad, "chain": [bad, bad], "trace": bad, "line": bad}
    event = finished(
        "FAIL", bad, bad, bad, bad, (bad,), oracles=(bad,), stage=bad, severity=bad, signature=bad, signature_id=bad,
        reason=bad, labels=(bad,), notes=(bad,), stages={bad: bad}, params={bad: bad}, known=bad, entry=bad, signal=bad,
        stack=bad, output=bad, repro=bad, place=bad, host=bad, operator=bad, break_reasons=(bad,), graphs=1,
        findings=(value_finding(oracle=bad, message=bad, path=bad, error=error, numbers={bad: bad}, place=f"{bad}:1:1"),),
    )  # fmt: skip
    head = started(run=bad, host=bad, version=bad, folder=bad, argv=(bad,), suites={bad: bad})
    out = site_of(tmp_path, [head, Notice(bad, severity=bad), event, RunFinished(1, 1.0)], Declared(problem=bad))
    plain = site_of(tmp_path / "2", run(failure(name="plain")))
    for page in out.rglob("*.html"):
        html = Read(page.read_text())
        own = Read((plain / page.relative_to(out)).read_text()) if page.name in ("index.html", "times.html") else None
        assert html.count["script"] == (0 if page.name == "times.html" else 1) and not html.count["img"]
        assert own is None or set(html.count) <= {*own.count, "p", "ul", "li", "a", "strong", "br", "span", "code"}
        assert not [name for name, _ in html.attributes if name.startswith("on") or name == "style"]


def test_pages_fit_the_sandbox_of_jenkins(tmp_path: Path) -> None:
    # https://www.jenkins.io/doc/book/security/configuring-content-security-policy/: sandbox; default-src 'none';
    # img-src 'self'; style-src 'self'. No script runs, and a style counts only from a file.
    out = site_of(tmp_path, every_verdict())
    for page in out.rglob("*.html"):
        html = Read(page.read_text())
        assert not html.count["style"] and "style" not in {name for name, _ in html.attributes}
        assert "<script>" not in page.read_text()
        sheets = [value for name, value in html.attributes if name == "href" and str(value).endswith(".css")]
        assert len(sheets) == 2
    assert "@import" not in read_file("report.css") and "url(" not in read_file("report.css")
    assert "<form" in (out / "index.html").read_text() and re.search(r'<form id="filters" hidden', (out / "index.html").read_text())  # fmt: skip


def test_an_earlier_report_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    out = site_of(tmp_path, run(failure(name="a"), failure(name="b")))
    (out / "failures" / "notes.txt").write_text("mine")
    check_folder(str(out))
    site_of(tmp_path, run(failure(name="a")))
    assert sorted(file.name for file in (out / "failures").iterdir()) == ["00001.html", "00001.txt", "notes.txt"]
    foreign = tmp_path / "other"
    foreign.mkdir()
    check_folder(str(foreign))
    (foreign / "index.html").write_text("<h1>mine</h1>")
    with pytest.raises(UsageError, match="something in it that is no report"):
        check_folder(str(foreign))


def test_a_folder_whose_writing_was_cut_short_is_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr("runner.report.site.folder.read_file", full)
        site_of(tmp_path, run(failure(name="a")))
    check_folder(str(tmp_path / "out"))
    index = site_of(tmp_path, run(failure(name="a"))) / "index.html"
    assert "did not come to its end" not in index.read_text()


def test_no_link_in_the_folder_is_followed(tmp_path: Path) -> None:
    out = site_of(tmp_path, run(failure(name="a")))
    (tmp_path / "precious").write_text("mine")
    for name in ("page.css", "failures/00001.html"):
        (out / name).unlink()
        (out / name).symlink_to(tmp_path / "precious")
    site_of(tmp_path, run(failure(name="a")))
    assert (tmp_path / "precious").read_text() == "mine" and (out / "page.css").read_text() == read_file("page.css")


def test_the_command_writes_pages_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path, SPEC)
    log = [to_json(event) for event in played(loaded(file).variants, ["2.13.0"], lambda *_: found())]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    assert main(["report", "events.jsonl", "--html", "out", "-q"]) == 0
    assert "torch.mul(" in next((tmp_path / "out" / "failures").glob("*1.html")).read_text()
    assert main(["report", "events.jsonl", "--html", "out", "-q"]) == 0, "an earlier report is replaced"
    assert main(["report", "events.jsonl", "--html", ".", "-q"]) == 4


def test_a_strangers_command_line_writes_no_pages() -> None:
    words = ["run", "a.spec.yaml", "--html", "/home/me", "--seed", "1"]
    command, withheld = taken_words(words, {"--html": True, "--seed": True})
    assert command == ["run", "a.spec.yaml", "--seed", "1"] and withheld == ["--html", "/home/me"]


# --- colours ---------------------------------------------------------------------------------------


def colours(dark: bool) -> dict[str, str]:
    text = read_file("page.css") + read_file("report.css")
    values = {}
    for block in re.findall(r"(?:@media \(prefers-color-scheme: dark\) \{\s*)?:root \{[^}]*\}", text):
        if dark or "dark) {" not in block:
            values.update(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
    return values


def contrast(foreground: str, background: str) -> float:
    """The ratio of WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dim = sorted((luminance(foreground), luminance(background)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_can_be_read(dark: bool) -> None:
    values = colours(dark)
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for ink in ("ink", "faint", "guilty", "ok", "link"):
        for paper in ("paper", "soft"):
            assert contrast(values[ink], values[paper]) >= 4.5, (ink, paper)
    assert contrast(values["ink"], values["mark"]) >= 4.5 and contrast(values["faint"], values["mark"]) >= 4.5
