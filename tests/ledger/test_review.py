"""Entries against a run: their states, the notices, the table and the command. Rewriting is in test_ledger_update.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from runner.cases.model import Variant
from runner.cli.known import render_ledger
from runner.cli.main import main
from runner.ledger.review import entries_of, is_due, read_run, review, stale_notices
from runner.record.events import Event, RunFinished, VariantFinished, VariantPlanned
from runner.record.journal import Journal
from runner.verdict.signature import assess
from tests.handmade import Answer, finding, loaded, played, variants, written

TWO = ("2.6.0", "2.13.0")


def told(selection: list[Variant], events: list[Event]) -> list[tuple[str, str]]:
    return [(entry.state, entry.detail) for entry in review(selection, read_run(selection, events))]


def case(folder: Path, *entries: str, keys: str = "") -> list[Variant]:
    return variants(folder, f"{keys}\nknown:" + "".join(f"\n  - {entry}" for entry in entries))


def value(variant: Variant, torch: str) -> Answer:
    return finding("value")


def passes(variant: Variant, torch: str) -> Answer:
    return "PASS"


OLD = '{torch: "<=2.6", oracle: [value], reason: r}'


@pytest.mark.parametrize(
    ("answer", "state", "detail"),
    [
        (value, "matched", ""),
        (passes, "fixed", "passes under torch 2.6.0"),
        (lambda v, t: "XPASS", "fixed", "passes under torch 2.6.0"),
        (lambda v, t: finding("stride"), "changed", "fails in another way under torch 2.6.0"),
        (lambda v, t: "SKIP", "elsewhere", "its variants came to SKIP"),
        (lambda v, t: "INVALID", "not-run", "its variants came to INVALID"),
        (lambda v, t: "FLAKY", "not-run", "its variants came to FLAKY"),
        (lambda v, t: "ERROR", "not-run", "its variants came to ERROR"),  # the harness: it has no findings
        (lambda v, t: None, "not-run", "its variants came to NOT-RUN"),
    ],
)
def test_what_has_become_of_an_entry(
    tmp_path: Path, answer: Callable[[Variant, str], Answer | None], state: str, detail: str
) -> None:
    selection = case(tmp_path, OLD)
    assert told(selection, played(selection, ["2.6.0"], answer)) == [(state, detail)]


def test_a_failure_that_shows_only_now_and_then_may_pass(tmp_path: Path) -> None:
    selection = case(tmp_path, "{oracle: [value], reason: r, sometimes: true}", keys="params: {n: [1, 2]}")
    assert told(selection, played(selection, ["2.6.0"], passes)) == [("matched", "passes this time under torch 2.6.0")]
    by_n: dict[int, Answer] = {1: finding("value"), 2: "PASS"}
    events = played(selection, ["2.6.0"], lambda v, t: by_n[v.params["n"]])
    assert told(selection, events) == [("matched", "")]
    by_n[2] = finding("stride")
    events = played(selection, ["2.6.0"], lambda v, t: by_n[v.params["n"]])
    assert told(selection, events)[0][0] == "changed"


def test_a_run_may_be_read_in_the_light_of_a_later_ledger(tmp_path: Path) -> None:
    old_variants = variants(tmp_path, "")
    events = played(old_variants, TWO, value)  # as with --no-known
    new_variants = case(
        tmp_path, '{torch: "<=2.6", oracle: [value], reason: r}', '{torch: "==2.13", oracle: [grad], reason: r}'
    )
    assert [state for state, _ in told(new_variants, events)] == ["matched", "changed"]


def test_what_calls_for_action_comes_first(tmp_path: Path) -> None:
    selection = case(tmp_path, "{oracle: [value], reason: r}", keys="params: {n: [1, 2, 3]}")
    by_n: dict[int, Answer] = {1: finding("value"), 2: "PASS", 3: finding("stride")}
    events = played(selection, ["2.13.0"], lambda v, t: by_n[v.params["n"]])
    assert told(selection, events) == [("changed", "fails in another way under torch 2.13.0 (1 of 3 variants)")]
    by_n[3] = finding("value")
    events = played(selection, ["2.13.0"], lambda v, t: by_n[v.params["n"]])
    assert told(selection, events) == [("fixed", "passes under torch 2.13.0 (1 of 3 variants)")]


def test_outside_its_range_an_entry_is_elsewhere(tmp_path: Path) -> None:
    selection = case(tmp_path, OLD)
    assert told(selection, played(selection, ["2.13.0"], value)) == [("elsewhere", "the run had torch 2.13.0")]


@pytest.mark.parametrize(
    ("entry", "state", "detail"),
    [
        ("{platform: beos, oracle: [value], reason: r}", "elsewhere", f"the run was on {sys.platform}"),
        ("{backend: toy, oracle: [value], reason: r}", "elsewhere", "the run had no backend toy"),
        ("{backend: '!inductor', oracle: [value], reason: r}", "elsewhere", "the run had no backend !inductor"),
        ("{backend: '!toy', oracle: [value], reason: r}", "fixed", "passes under torch 2.13.0"),
        ("{stage: backend, oracle: [value], reason: r}", "elsewhere", "no backend of the run has stage backend"),
        ("{device: cuda, oracle: [value], reason: r}", "elsewhere", "the run had no device cuda"),
        ("{dtype: float16, oracle: [value], reason: r}", "stale", "its selectors fit no variant"),
        ("{params: {n: 7}, oracle: [value], reason: r}", "stale", "its selectors fit no variant"),
        ("{threads: 8, oracle: [value], reason: r}", "stale", "its selectors fit no variant"),
    ],
)
def test_selectors_that_fit_nothing(tmp_path: Path, entry: str, state: str, detail: str) -> None:
    selection = case(tmp_path, entry, keys="params: {n: [1]}")
    assert told(selection, played(selection, ["2.13.0"], passes)) == [(state, detail)]
    if state == "stale":
        assert told(selection, played(selection, ["2.13.0"], passes, full=False)) == [("not-run", detail)]


def test_what_a_suite_leaves_out_of_a_case_is_elsewhere(tmp_path: Path) -> None:
    case(tmp_path, "{dtype: float16, oracle: [value], reason: r}", keys="dtypes: [float32, float16]")
    suite = written(tmp_path, "suite: s\nspecs: [a.spec.yaml]\nselect: 'not float16'\n", "s.suite.yaml")
    selection = [v for v in loaded(suite).variants if v.dtype == "float32"]
    assert told(selection, played(selection, ["2.13.0"], passes)) == [("elsewhere", "the run left out dtype float16")]


def test_an_entry_behind_another_is_stale(tmp_path: Path) -> None:
    selection = case(tmp_path, "{oracle: [value, grad], reason: r}", "{oracle: [value], reason: r}")
    events = played(selection, ["2.13.0"], value)
    assert told(selection, events) == [("matched", ""), ("stale", "another entry always matched before it")]


def test_a_failure_that_none_explains_counts_against_the_first(tmp_path: Path) -> None:
    selection = case(tmp_path, "{oracle: [grad], reason: r}", "{oracle: [stride], reason: r}")
    assert [state for state, _ in told(selection, played(selection, ["2.13.0"], value))] == ["changed", "stale"]


def test_two_entries_may_explain_two_findings_together(tmp_path: Path) -> None:
    def both(variant: Variant, torch: str) -> Answer:
        return (finding("stride"), finding("value"))

    selection = case(tmp_path, "{oracle: [stride], reason: r}", "{oracle: [value], reason: r}")
    assert told(selection, played(selection, ["2.13.0"], both)) == [("matched", ""), ("matched", "")]
    alone = case(tmp_path, "{oracle: [stride], reason: r}")
    assert told(alone, played(alone, ["2.13.0"], both)) == [("changed", "fails in another way under torch 2.13.0")]


@pytest.mark.parametrize("end", ["interrupted", "stopped", "narrowed"])
def test_only_a_whole_run_calls_an_entry_stale(tmp_path: Path, end: str) -> None:
    selection = case(tmp_path, "{dtype: float16, oracle: [value], reason: r}", keys="params: {n: [1, 2]}")
    events = played(
        selection,
        ["2.13.0"],
        lambda v, t: None if end == "stopped" and v.params["n"] == 2 else "PASS",
        full=end != "narrowed",
        interrupted=end == "interrupted",
    )
    assert [state for state, _ in told(selection, events)] == ["not-run"]
    assert stale_notices(selection, events) == []


def test_notices_of_stale_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    selection = case(tmp_path, "{oracle: [value], reason: r}", "{dtype: float16, oracle: [value], reason: r}")
    (notice,) = stale_notices(selection, played(selection, ["2.13.0"], value)[:-1])  # before the run's last event
    assert notice.severity == "warning"
    assert notice.message == "a.spec.yaml:7:9: this known: entry matched nothing: its selectors fit no variant"


def test_a_case_that_the_run_did_not_have(tmp_path: Path) -> None:
    selection = case(tmp_path, OLD)
    assert told(selection, played([], ["2.6.0"], passes)) == [("not-run", "its case was not in the run")]
    assert [entry.state for entry in review(selection)] == ["not-run"]


def test_a_run_under_a_backend_that_the_command_line_named(tmp_path: Path) -> None:
    selection = case(tmp_path, "{stage: dynamo, oracle: [value], reason: r}", keys="params: {n: [1, 2]}")
    named = [*loaded(tmp_path / "a.spec.yaml", backends=["eager"], devices=["cuda"]).variants]
    events = played(named, ["2.13.0"], lambda v, t: finding("value", "dynamo"), full=False)
    (entry,) = review(selection, read_run(selection, events))
    assert entry.state == "matched"
    assert [s.judged.variant.id.rpartition("::")[2] for s in entry.sightings] == [
        "a[n=1,float32,cuda]@eager",
        "a[n=2,float32,cuda]@eager",
    ]


def test_a_run_made_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = played(case(tmp_path, OLD), ["2.6.0"], value)
    monkeypatch.chdir(tmp_path)
    selection = [*loaded(Path("a.spec.yaml")).variants]
    assert told(selection, events) == [("matched", "")]


def test_an_entry_that_several_cases_share(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        defaults:
          known: [{oracle: [value], reason: shared}]
        cases:
          - {name: a, inputs: {x: [2]}, chain: [F.relu]}
          - {name: b, inputs: {x: [2]}, chain: [F.relu]}
        """,
    )
    selection = [*loaded(path).variants]
    (entry,) = entries_of(selection)
    assert [c.name for c in entry.cases] == ["a", "b"]
    events = played(selection, ["2.13.0"], lambda v, t: "PASS" if v.case.name == "b" else finding("value"))
    assert told(selection, events) == [("fixed", "passes under torch 2.13.0 (1 of 2 variants)")]


@pytest.mark.parametrize(
    ("review_", "due"),
    [("2026-01-01", True), ("2026-06-01", False), ("2027-01-01", False), ("noise", False), (None, False)],
)
def test_reviews(tmp_path: Path, review_: str | None, due: bool) -> None:
    selection = case(tmp_path, f"{{oracle: [value], reason: r{f', review: {review_}' if review_ else ''}}}")
    assert is_due(selection[0].case.known[0], date(2026, 6, 1)) is due
    assert review(selection, today=date(2026, 6, 1))[0].due is due


def test_entries_stand_in_the_order_of_lines(tmp_path: Path) -> None:
    selection = case(tmp_path, OLD, OLD, OLD)
    assert [entry.known.span.line for entry in entries_of(reversed(selection))] == [6, 7, 8]


# --- the table ---


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    selection = case(
        tmp_path,
        '{torch: "<=2.13", stage: inductor, oracle: [value, grad], issue: "https://github.com/pytorch/pytorch/issues/7"}',
        '{torch: ">=2.14", error: "Bang|Boom", reason: "in\\ttime", why: noise, review: 2020-01-01}',
    )
    text = render_ledger(review(selection, read_run(selection, played(selection, ["2.13.0"], passes))), True)
    rows = [line.split() for line in text.splitlines()]
    assert rows[2] == ["fixed", "a.spec.yaml:6", "a", "<=2.13", "inductor", "value", "grad", "pytorch/pytorch#7"]
    assert rows[3] == [
        "elsewhere",
        "a.spec.yaml:7",
        "a",
        ">=2.14",
        "any",
        "any",
        "Bang|Boom",
        "noise:",
        "in",
        "time",
        "2020-01-01",
        "due",
    ]
    assert "a.spec.yaml:6:9: fixed: passes under torch 2.13.0" in text
    assert text.splitlines()[-1] == "2 entries: 1 fixed, 1 elsewhere, review due for 1"
    plain = render_ledger(review(selection), False)
    assert "state" not in plain and plain.splitlines()[-1] == "2 entries: review due for 1"


# --- the command ---


def kept(folder: Path, events: list[Event]) -> Path:
    path = folder / "run" / "events.jsonl"
    path.unlink(missing_ok=True)
    with Journal(path) as journal:
        for event in events:
            assert journal.write(event)
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("answer", "code"), [(value, 0), (passes, 1), (lambda v, t: finding("grad"), 1)])
def test_the_exit_code(
    here: Path, answer: Callable[[Variant, str], Answer], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    selection = case(here, OLD)
    path = kept(here, played(selection, ["2.6.0"], answer))
    assert main(["ledger", "a.spec.yaml", "--run", str(path)]) == code
    assert main(["ledger", "a.spec.yaml::a", "--run", str(path.parent)]) == code
    assert "1 entry: 1 " in capsys.readouterr().out


def test_without_a_run_entries_are_listed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case(here, OLD)
    assert main(["ledger", "."]) == 0
    out = capsys.readouterr().out
    assert out.startswith("where") and out.endswith("\n1 entry\n")


def test_the_latest_run_is_taken(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept(here / ".runner" / "runs", played(case(here, OLD), ["2.6.0"], passes))
    (here / ".runner" / "latest").symlink_to(path.parent)
    assert main(["ledger", "a.spec.yaml"]) == 1
    assert "1 entry: 1 fixed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nowhere.spec.yaml"], 4, "no such file or directory: nowhere.spec.yaml"),
        (["empty"], 5, "no .suite.yaml and no .spec.yaml file here or below"),
        (["plain.spec.yaml"], 5, "nothing found: no known: entry here"),
        (["plain.spec.yaml", "--run", "latest"], 4, "no event log at .runner/latest"),
        (["plain.spec.yaml", "--run", "plain.spec.yaml"], 4, "is no event log"),
        (["plain.spec.yaml", "--add"], 4, "--add and --dry-run go with --update RUN"),
        (["plain.spec.yaml", "--run", "x", "--update", "x"], 4, "not allowed with argument"),
        (["bad.spec.yaml"], 4, "1 error in 1 file"),
        (["plain.spec.yaml::b"], 4, "no case matches 'b'"),
    ],
)
def test_what_cannot_be_done(
    here: Path, words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "empty").mkdir()
    variants(here, "", "plain.spec.yaml")
    written(here, "cases:\n  - name: a\n    chian: [F.relu]\n", "bad.spec.yaml")
    assert main(["ledger", *words]) == code
    assert message in capsys.readouterr().err


def test_entries_beside_broken_files_are_listed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case(here, OLD)
    written(here, "cases:\n  - name: a\n    chian: [F.relu]\n", "bad.spec.yaml")
    assert main(["ledger", "."]) == 4
    assert "1 entry" in capsys.readouterr().out


def test_a_case_in_python_needs_no_permission_to_be_listed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "m.py").write_text("import torch\nclass Model(torch.nn.Module):\n    pass\n")
    written(
        here,
        """
        cases:
          - name: a
            inputs: {x: [2]}
            module: {file: m.py, name: Model}
            known: [{oracle: [value], reason: r}]
        """,
    )
    assert main(["ledger", "a.spec.yaml"]) == 0
    assert "1 entry" in capsys.readouterr().out


def test_planned_and_finished_events_are_enough(tmp_path: Path) -> None:
    selection = case(tmp_path, OLD)
    events = [e for e in played(selection, ["2.6.0"], value) if not isinstance(e, RunFinished)]
    run = read_run(selection, events)
    assert run.complete and run.torches == ("2.6.0",)
    assert not read_run(selection, [e for e in events if isinstance(e, VariantPlanned)]).complete


# --- the backends in question ---

OF_BACKENDS = (
    "{stage: inductor, oracle: [value], reason: r}",
    "{backend: toy, oracle: [value], reason: r}",
    "{stage: dynamo, oracle: [value], reason: r}",
)


@pytest.mark.parametrize(
    ("words", "shown", "remark"),
    [
        ([], 3, ""),
        (["--backend", "acme"], 1, "2 entries left out: no variant under acme is meant by them"),
        (["--backend", "toy"], 2, "1 entry left out: no variant under toy is meant by it"),
        (["--backend", "toy", "--backend", "inductor"], 3, ""),
    ],
)
def test_entries_of_other_backends_are_counted_and_not_listed(
    here: Path, words: list[str], shown: int, remark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case(here, *OF_BACKENDS)
    assert main(["known", "a.spec.yaml", *words]) == 0
    printed = capsys.readouterr()
    assert printed.out.endswith(f"\n{shown} entr{'y' if shown == 1 else 'ies'}\n") and remark in printed.err
    assert bool(printed.err) == bool(remark)


def test_without_a_backend_the_run_says_which_are_in_question(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case(here, *OF_BACKENDS)
    selection = [*loaded(here / "a.spec.yaml", backends=["acme"]).variants]
    path = kept(here, played(selection, ["2.13.0"], lambda v, t: finding("value", "dynamo")))
    assert main(["known", "a.spec.yaml", "--run", str(path)]) == 0
    printed = capsys.readouterr()
    assert "1 entry: 1 matched" in printed.out and "2 entries left out: no variant under acme" in printed.err


def test_a_backend_narrows_what_a_run_says(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case(here, "{oracle: [value], reason: r}")
    selection = [*loaded(here / "a.spec.yaml", backends=["acme", "toy"]).variants]
    events = played(selection, ["2.13.0"], lambda v, t: finding("value") if v.backend.name == "toy" else "PASS")
    path = kept(here, events)
    assert main(["known", "a.spec.yaml", "--run", str(path), "--backend", "acme"]) == 1
    assert "1 entry: 1 fixed" in capsys.readouterr().out
    assert main(["known", "a.spec.yaml", "--run", str(path), "--backend", "toy"]) == 0
    assert "1 entry: 1 matched" in capsys.readouterr().out


def test_a_draft_holds_the_failures_of_the_backends_that_are_asked_for(here: Path) -> None:
    variants(here, "")
    selection = [*loaded(here / "a.spec.yaml", backends=["acme", "toy"]).variants]
    path = kept(here, [assessed(event) for event in played(selection, ["2.13.0"], value)])
    words = ["known", "a.spec.yaml", "--run", str(path), "--write", "acme.ledger.yaml"]
    assert main([*words, "--backend", "acme"]) == 0
    text = (here / "acme.ledger.yaml").read_text()
    assert "acme" in text and "toy" not in text


def assessed(event: Event) -> Event:
    return assess(event) if isinstance(event, VariantFinished) else event


@pytest.mark.parametrize(
    ("pattern", "remark"),
    [
        ("aa", "no case here is meant by it: case: 'aa'; did you mean 'a'?"),
        ("a.spec.yml::a", "no case here is meant by it: case: 'a.spec.yml::a'; did you mean 'a.spec.yaml::a'?"),
        ("zebra", "no case here is meant by it: case: 'zebra'\n"),
        ("a", ""),
    ],
)
@pytest.mark.parametrize("has_run", [True, False])
def test_a_pattern_that_matches_no_case_is_said(
    here: Path, pattern: str, remark: str, has_run: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    variants(here, "")
    written(here, f"known: [{{case: '{pattern}', oracle: [value], reason: r}}]\n", "acme.ledger.yaml")
    selection = [*loaded(here / "a.spec.yaml", ledgers=["acme.ledger.yaml"]).variants]
    words = ["--run", str(kept(here, played(selection, ["2.13.0"], value)))] if has_run else []
    assert main(["known", "a.spec.yaml", "--ledger", "acme.ledger.yaml", *words]) == 0
    out = capsys.readouterr().out
    assert remark in out and ("is meant by it" in out) == bool(remark)
