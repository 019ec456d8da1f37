"""What a run changes about the ledger, and the files with it made."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from runner.cases.limits import Limits
from runner.cases.model import Variant
from runner.cli.main import main
from runner.contract.finding import Finding
from runner.ledger.review import read_run, review
from runner.ledger.update import group_failures, plan_changes, rewrite
from runner.record.events import Event
from runner.record.journal import Journal
from tests.handmade import Answer, finding, loaded, played, variants, written

TWO = ("2.6.0", "2.13.0")
TODAY = date(2026, 11, 20)
Says = Callable[[Variant, str], Answer | None]


def case(folder: Path, *entries: str, keys: str = "") -> list[Variant]:
    return variants(folder, f"{keys}\nknown:" + "".join(f"\n  - {entry}" for entry in entries))


def updated(
    folder: Path, selection: list[Variant], events: list[Event], add: bool = False, dry: bool = False
) -> tuple[list[str], list[str]]:
    """The lines of the ledger after an update, and what was left to do by hand."""
    run = read_run(selection, events)
    plan = plan_changes(review(selection, run), selection, run, add, TODAY)
    rewrite(plan, Limits(), [folder], dry)
    text = (folder / "a.spec.yaml").read_text(encoding="utf-8")
    lines = text.partition("known:\n")[2].splitlines()
    return [line.strip().removeprefix("- ") for line in lines], plan.notes


def by_torch(**answers: Answer) -> Says:
    return lambda variant, torch: answers[f"t{torch.split('.')[1]}"]


VALUE, GRAD = finding("value"), finding("grad")
CRASH = finding("compile-error", "aot", "BackendCompilerFailed", "LoweringException", "KeyError")


# --- fixed ---


@pytest.mark.parametrize(
    ("old_range", "torches", "answer", "new_range"),
    [
        ('torch: "<=2.13", ', TWO, by_torch(t6=VALUE, t13="PASS"), 'torch: "<=2.6", '),
        ("", TWO, by_torch(t6=VALUE, t13="XPASS"), 'torch: "<=2.6", '),
        ('torch: "<=2.13", ', TWO, by_torch(t6="PASS", t13=VALUE), 'torch: "==2.13", '),
        ('torch: "<=2.13", ', ["2.13.0"], by_torch(t13="PASS"), 'torch: "<2.13", '),
        ('torch: "<=2.13", ', ["2.6.0"], by_torch(t6="PASS"), None),
        ("", ["2.13.0"], by_torch(t13="PASS"), None),
        ('torch: "==2.13", ', TWO, by_torch(t6="PASS", t13="PASS"), None),
        ('torch: "<=2.6", ', TWO, by_torch(t6=VALUE, t13="PASS"), 'torch: "<=2.6", '),  # nothing to do
    ],
)
def test_what_passes_falls_out_of_the_range(
    tmp_path: Path, old_range: str, torches: list[str], answer: Says, new_range: str | None
) -> None:
    selection = case(tmp_path, f"{{{old_range}stage: inductor, oracle: [value], reason: r}}  # c")
    lines, notes = updated(tmp_path, selection, played(selection, torches, answer))
    assert notes == []
    assert lines == ([] if new_range is None else [f"{{{new_range}stage: inductor, oracle: [value], reason: r}}  # c"])


def test_all_entries_that_speak_of_what_passes(tmp_path: Path) -> None:
    selection = case(tmp_path, "{oracle: [value], reason: r}", '{torch: "<=2.13", oracle: [grad], reason: r}')
    lines, _ = updated(tmp_path, selection, played(selection, TWO, by_torch(t6=GRAD, t13="PASS")))
    # Under 2.6 the first did not match either, but the second spoke for it.
    assert lines == ['{torch: "<=2.6", oracle: [grad], reason: r}']


def test_some_variants_pass_and_some_fail(tmp_path: Path) -> None:
    selection = case(tmp_path, "{oracle: [value], reason: r}", keys="params: {n: [1, 2]}")
    text = (tmp_path / "a.spec.yaml").read_text()
    _, notes = updated(
        tmp_path, selection, played(selection, TWO, lambda v, t: VALUE if v.params["n"] == 1 else "PASS")
    )
    assert len(notes) == 1 and "under torch 2.6.0, 2.13.0 some of its variants pass and some fail" in notes[0]
    assert (tmp_path / "a.spec.yaml").read_text() == text


@pytest.mark.parametrize("verdict", [None, "FLAKY", "INVALID", "ERROR"])
def test_a_part_of_the_variants_is_no_ground(tmp_path: Path, verdict: Answer | None) -> None:
    selection = case(tmp_path, "{oracle: [value], reason: r}", keys="params: {n: [1, 2]}")
    lines, notes = updated(
        tmp_path, selection, played(selection, ["2.13.0"], lambda v, t: "PASS" if v.params["n"] == 1 else verdict)
    )
    assert (
        lines == ["{oracle: [value], reason: r}"]
        and "a[n=2,float32,cpu]@inductor has no verdict under torch 2.13.0" in notes[0]
    )
    events = played(selection[:1], ["2.13.0"], lambda v, t: "PASS")  # as with -k
    assert "has no verdict" in updated(tmp_path, selection, events)[1][0]


def test_skipped_variants_do_not_count(tmp_path: Path) -> None:
    selection = case(tmp_path, "{oracle: [value], reason: r}", keys="devices: [cpu, cuda]")
    events = played(selection, ["2.13.0"], lambda v, t: "SKIP" if v.device == "cuda" else "PASS")
    assert updated(tmp_path, selection, events) == ([], [])


def test_versions_that_look_alike_are_left(tmp_path: Path) -> None:
    selection = case(tmp_path, "{oracle: [value], reason: r}")
    events = played(
        selection, ["2.15.0.dev20260101", "2.15.0.dev20260202"], lambda v, t: "PASS" if "0202" in t else VALUE
    )
    lines, notes = updated(tmp_path, selection, events)
    assert lines == ["{oracle: [value], reason: r}"] and "do not tell them apart" in notes[0]


# --- changed ---


@pytest.mark.parametrize(
    ("entry", "failure", "new_entry"),
    [
        ("{stage: inductor, oracle: [value], reason: r}", GRAD, "{stage: inductor, oracle: [grad], reason: r}"),
        ("{stage: inductor, oracle: [value], reason: r}", finding("value", "aot"), "{stage: aot, oracle: [value], reason: r}"),
        ("{oracle: [value], reason: r}", finding("grad", "aot"), "{oracle: [grad], reason: r}"),  # no stage was pinned
        ("{stage: inductor, oracle: [value], reason: r}", CRASH, "{stage: aot, oracle: [compile-error], error: LoweringException, reason: r}"),
        ("{stage: aot, oracle: [compile-error], error: Old, reason: r}", CRASH, "{stage: aot, oracle: [compile-error], error: LoweringException, reason: r}"),
        ("{stage: dynamo, oracle: [compile-error], error: Lower.*, reason: r}", CRASH, "{stage: aot, oracle: [compile-error], error: Lower.*, reason: r}"),
        ("{stage: inductor, oracle: [compile-error], error: Boom, reason: r}", VALUE, "{stage: inductor, oracle: [value], reason: r}"),
        ("{error: Boom, reason: r}", VALUE, "{oracle: [value], reason: r}"),
        ("{error: Boom, reason: r}", CRASH, "{error: LoweringException, reason: r}"),
        ("{stage: dynamo, reason: r}", CRASH, "{stage: aot, reason: r}"),
        ("{oracle: [grad, rng], reason: r}", VALUE, "{oracle: [value], reason: r}"),
    ],
)  # fmt: skip
def test_what_was_seen_replaces_what_was_pinned(tmp_path: Path, entry: str, failure: Finding, new_entry: str) -> None:
    selection = case(tmp_path, entry)
    lines, notes = updated(tmp_path, selection, played(selection, ["2.13.0"], lambda v, t: failure))
    assert (lines, notes) == ([new_entry], [])
    new_selection = [*loaded(tmp_path / "a.spec.yaml").variants]
    events = played(new_selection, ["2.13.0"], lambda v, t: failure)
    assert [e.state for e in review(new_selection, read_run(new_selection, events))] == ["matched"]
    assert updated(tmp_path, new_selection, events) == ([new_entry], [])


def test_what_also_matched_keeps_its_entry_and_gets_a_second(tmp_path: Path) -> None:
    selection = case(tmp_path, '{torch: "<=2.13", stage: inductor, oracle: [value], issue: "https://x/1", why: noise}')
    lines, notes = updated(tmp_path, selection, played(selection, TWO, by_torch(t6=VALUE, t13=CRASH)))
    assert notes == []
    assert lines == [
        '{torch: "<=2.6", stage: inductor, oracle: [value], issue: "https://x/1", why: noise}',
        '{torch: "==2.13", stage: aot, oracle: [compile-error], error: LoweringException, issue: "https://x/1", why: noise}',
    ]


def test_what_matches_for_some_variants_of_a_torch_gets_a_second(tmp_path: Path) -> None:
    selection = case(tmp_path, "{oracle: [value], reason: r}", keys="params: {n: [1, 2]}")
    lines, notes = updated(
        tmp_path, selection, played(selection, ["2.13.0"], lambda v, t: VALUE if v.params["n"] == 1 else GRAD)
    )
    assert (lines, notes) == (["{oracle: [value], reason: r}", "{stage: inductor, oracle: [grad], reason: r}"], [])


def test_changed_under_one_torch_and_fixed_under_another(tmp_path: Path) -> None:
    selection = case(tmp_path, '{torch: "<=2.13", oracle: [value], reason: r}')
    lines, _ = updated(tmp_path, selection, played(selection, TWO, by_torch(t6=GRAD, t13="PASS")))
    assert lines == ['{torch: "<=2.6", oracle: [grad], reason: r}']


def test_another_failure_under_each_torch(tmp_path: Path) -> None:
    selection = case(tmp_path, "{stage: inductor, oracle: [value], reason: r}")
    lines, _ = updated(tmp_path, selection, played(selection, TWO, by_torch(t6=GRAD, t13=CRASH)))
    assert lines == [
        '{torch: "<=2.6", stage: inductor, oracle: [grad], reason: r}',
        '{torch: ">=2.13", stage: aot, oracle: [compile-error], error: LoweringException, reason: r}',
    ]


def test_an_entry_names_all_that_a_variant_showed(tmp_path: Path) -> None:
    selection = case(tmp_path, "{stage: inductor, oracle: [value], reason: r}")
    lines, notes = updated(tmp_path, selection, played(selection, ["2.13.0"], lambda v, t: (VALUE, GRAD)))
    assert (lines, notes) == (["{stage: inductor, oracle: [value, grad], reason: r}"], [])
    lines, notes = updated(
        tmp_path, selection, played(selection, ["2.13.0"], lambda v, t: (VALUE, finding("grad", "aot")))
    )
    assert (lines, notes) == (["{oracle: [value, grad], reason: r}"], [])


def test_signatures() -> None:
    from runner.ledger.review import Judged

    def judged(failure: Finding) -> Judged:
        return Judged(None, "2.13.0", "failed", (failure,))  # type: ignore[arg-type]

    wrapped = finding("compile-error", "aot", "InductorError", "AssertionError")
    bare = finding("runtime-error", "aot", "InductorError")
    findings = [VALUE, GRAD, CRASH, wrapped, bare, finding("value", "aot")]
    assert [dict(s.entry_keys) for s in group_failures(map(judged, findings))] == [
        {"stage": "inductor", "oracle": ["value", "grad"]},
        {
            "stage": "aot",
            "oracle": ["compile-error", "runtime-error"],
            "error": "LoweringException|AssertionError|InductorError",
        },
        {"stage": "aot", "oracle": ["value"]},
    ]


# --- new failures ---


def new(folder: Path, selection: list[Variant], events: list[Event]) -> list[str]:
    lines, notes = updated(folder, selection, events, add=True)
    assert notes == []
    tail = 'reason: "unexplained, first seen 2026-11-20 with torch '
    assert all(line.count(tail) == 1 for line in lines)
    # What was added explains the run.
    new_selection = [*loaded(folder / "a.spec.yaml").variants]
    entries = review(new_selection, read_run(new_selection, events))
    assert {entry.state for entry in entries} == {"matched"}
    return [line.replace(tail, "SINCE ") for line in lines]


def test_entries_for_failures_without_one(tmp_path: Path) -> None:
    selection = variants(tmp_path, "")
    assert updated(tmp_path, selection, played(selection, TWO, lambda v, t: VALUE)) == ([], [])  # only when asked to
    assert new(tmp_path, selection, played(selection, TWO, by_torch(t6="PASS", t13=VALUE))) == [
        '{torch: "==2.13", stage: inductor, oracle: [value], SINCE 2.13.0"}'
    ]


def test_of_both_versions(tmp_path: Path) -> None:
    selection = variants(tmp_path, "")
    assert new(tmp_path, selection, played(selection, TWO, lambda v, t: CRASH)) == [
        '{torch: ">=2.6,<=2.13", stage: aot, oracle: [compile-error], error: LoweringException, SINCE 2.6.0"}'
    ]


def test_beside_entries_that_are_there(tmp_path: Path) -> None:
    selection = case(tmp_path, '{torch: "<=2.6", oracle: [value], reason: r}')
    lines, _ = updated(tmp_path, selection, played(selection, TWO, lambda v, t: VALUE), add=True)
    assert lines[0] == '{torch: "<=2.6", oracle: [value], reason: r}' and lines[1].startswith(
        '{torch: "==2.13", stage: inductor'
    )


@pytest.mark.parametrize(
    ("keys", "fails", "selector"),
    [
        ("dtypes: [float32, float16]", lambda v: v.dtype == "float16", "dtype: float16"),
        ("dtypes: [float32, float16, bfloat16]", lambda v: v.dtype != "float32", "dtype: [float16, bfloat16]"),
        ("devices: [cpu, cuda]", lambda v: v.device == "cuda", "device: cuda"),
        ("params: {n: [1, 2]}", lambda v: v.params["n"] == 2, "params: {n: 2}"),
        (
            "params: {s: [[1, 2], [[3], 4]]}\ncalls: [{params: {s: 5}}]",
            lambda v: v.params["s"] == ((3,), 4),
            "params: {s: [[3], 4]}",
        ),
    ],
)
def test_entries_speak_of_nothing_that_passes(
    tmp_path: Path, keys: str, fails: Callable[[Variant], bool], selector: str
) -> None:
    selection = variants(tmp_path, keys)
    events = played(selection, ["2.13.0"], lambda v, t: VALUE if fails(v) else "PASS")
    assert new(tmp_path, selection, events) == [
        f'{{torch: "==2.13", stage: inductor, oracle: [value], {selector}, SINCE 2.13.0"}}'
    ]


def test_a_device_of_the_command_line_is_no_ground_for_the_cases_own(tmp_path: Path) -> None:
    selection = variants(tmp_path, "")
    there = variants(tmp_path, "", devices=("cuda",))
    assert [v.device for v in (*selection, *there)] == ["cpu", "cuda"]
    events = played(there, ["2.13.0"], lambda v, t: VALUE)
    assert new(tmp_path, selection, events) == [
        '{torch: "==2.13", stage: inductor, oracle: [value], device: cuda, SINCE 2.13.0"}'
    ]


def test_one_by_one_where_nothing_common_tells_them_apart(tmp_path: Path) -> None:
    selection = variants(tmp_path, "params: {n: [1, 2]}\ndtypes: [float32, float16]")
    events = played(
        selection, ["2.13.0"], lambda v, t: VALUE if (v.params["n"] == 1) == (v.dtype == "float16") else "PASS"
    )
    assert new(tmp_path, selection, events) == [
        f'{{torch: "==2.13", stage: inductor, oracle: [value], backend: inductor, device: cpu, dtype: {dtype}, params: {{n: {n}}}, SINCE 2.13.0"}}'
        for n, dtype in ((1, "float16"), (2, "float32"))
    ]


def test_modes_cannot_be_selected(tmp_path: Path) -> None:
    selection = variants(tmp_path, "train: [false, true]")
    events = played(selection, ["2.13.0"], lambda v, t: VALUE if v.train else "PASS")
    lines, notes = updated(tmp_path, selection, events, add=True)
    assert lines == [] and notes[0].endswith("no entry for a: no selector tells it from variants that pass")


def test_a_ledger_from_defaults(tmp_path: Path) -> None:
    text = """\
        defaults:
          known: [{torch: "<=2.6", oracle: [value], reason: shared}]
        cases:
          - {name: a, inputs: {x: [2]}, chain: [F.relu]}
          - {name: b, inputs: {x: [2]}, chain: [F.relu]}
        """
    path = written(tmp_path, text)
    selection = [*loaded(path).variants]
    _, notes = updated(tmp_path, selection, played(selection, ["2.13.0"], lambda v, t: VALUE), add=True)
    assert len(notes) == 2 and all("comes from defaults:" in note for note in notes)
    updated(tmp_path, selection, played(selection, TWO, lambda v, t: "PASS" if v.case.name == "b" else VALUE))
    assert "<=2.6" in path.read_text()  # one of its cases matches
    updated(tmp_path, selection, played(selection, TWO, lambda v, t: "PASS"))
    assert "known: []" in path.read_text()


# --- files ---


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kept(folder: Path, events: list[Event]) -> str:
    with Journal(folder / "events.jsonl") as journal:
        for event in events:
            assert journal.write(event)
    return str(folder / "events.jsonl")


DIFF = """\
--- a/a.spec.yaml
+++ b/a.spec.yaml
@@ -3,4 +3,4 @@
     inputs: {x: [2, ]}
     chain: [F.relu]
     known:
-      - {torch: "<=2.13", oracle: [value], reason: r}  # why
+      - {torch: "<=2.6", oracle: [value], reason: r}  # why
"""


def test_the_command_prints_the_diff(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    selection = case(here, '{torch: "<=2.13", oracle: [value], reason: r}  # why')
    old = (here / "a.spec.yaml").read_text()
    run = kept(here, played(selection, TWO, by_torch(t6=VALUE, t13="PASS")))
    assert main(["ledger", "a.spec.yaml", "--update", run, "--dry-run"]) == 1
    assert capsys.readouterr().out == DIFF and (here / "a.spec.yaml").read_text() == old
    assert main(["ledger", "a.spec.yaml", "--update", run]) == 0
    assert capsys.readouterr().out == DIFF
    assert (here / "a.spec.yaml").read_text() == old.replace("<=2.13", "<=2.6")
    assert main(["ledger", "a.spec.yaml", "--update", run]) == 0  # nothing more to do
    assert capsys.readouterr().out == ""


def test_add_and_what_is_left_by_hand(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    selection = case(here, "{dtype: float16, oracle: [value], reason: r}")
    run = kept(here, played(selection, ["2.13.0"], lambda v, t: GRAD))
    assert main(["ledger", "a.spec.yaml", "--update", run, "--add"]) == 1
    captured = capsys.readouterr()
    assert '+      - {torch: "==2.13", stage: inductor, oracle: [grad], reason: "unexplained' in captured.out
    assert captured.err == "runner: a.spec.yaml:6:9: stale, take it away by hand: its selectors fit no variant\n"


def test_a_file_that_would_no_longer_load_is_restored(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    selection = case(here, '{torch: "<=2.13", oracle: [value], reason: r}')
    old = (here / "a.spec.yaml").read_bytes()
    run = kept(here, played(selection, ["2.13.0"], lambda v, t: "PASS"))
    monkeypatch.setattr(
        "runner.ledger.update.apply_changes", lambda text, changes: (text.replace("F.relu", "F.rleu"), [])
    )
    assert main(["ledger", "a.spec.yaml", "--update", run]) == 1
    assert "left as it is, the edit would break it" in capsys.readouterr().err
    assert (here / "a.spec.yaml").read_bytes() == old


def test_a_file_that_cannot_be_written(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    selection = case(here, '{torch: "<=2.13", oracle: [value], reason: r}')
    run = kept(here, played(selection, ["2.13.0"], lambda v, t: "PASS"))

    def refuse(path: Path, data: bytes) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert main(["ledger", "a.spec.yaml", "--update", run]) == 1
    assert "Permission denied" in capsys.readouterr().err


def test_a_suite_from_elsewhere_names_no_file_to_write(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case(here, '{torch: "<=2.13", oracle: [value], reason: r}')
    old = (here / "a.spec.yaml").read_text()
    (here / "strange").mkdir()
    (here / "strange" / "link.spec.yaml").symlink_to(here / "a.spec.yaml")
    for specs in ("../a.spec.yaml", "link.spec.yaml"):
        suite = written(here / "strange", f"suite: s\nspecs: [{specs}]\n", "s.suite.yaml")
        run = kept(here, played([*loaded(suite).variants], TWO, by_torch(t6=VALUE, t13="PASS")))
        monkeypatch.chdir(here / "strange")
        assert main(["known", "s.suite.yaml", "--update", run]) == 1
        captured = capsys.readouterr()
        assert (
            captured.out == ""
            and f"it lies outside of this folder and of what was named; run this in {here}" in captured.err
        )
        assert (here / "a.spec.yaml").read_text() == old
        monkeypatch.chdir(here)
    assert main(["known", "strange/s.suite.yaml", "--update", run]) == 0
    assert (here / "a.spec.yaml").read_text() == old.replace("<=2.13", "<=2.6")


def test_a_read_only_file_stays(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = case(here, '{torch: "<=2.13", oracle: [value], reason: r}')
    old = (here / "a.spec.yaml").read_text()
    run = kept(here, played(chosen, TWO, by_torch(t6=VALUE, t13="PASS")))
    (here / "a.spec.yaml").chmod(0o444)
    assert main(["known", "a.spec.yaml", "--update", run]) == 1
    assert "a.spec.yaml: left as it is: it is read-only" in capsys.readouterr().err
    assert (here / "a.spec.yaml").read_text() == old


def test_a_diff_names_a_file_elsewhere_by_its_path(
    here: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = case(here, '{torch: "<=2.13", oracle: [value], reason: r}')
    run = kept(here, played(chosen, TWO, by_torch(t6=VALUE, t13="PASS")))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert main(["known", str(here), "--update", str(here / run)]) == 0
    file = here / "a.spec.yaml"
    assert capsys.readouterr().out.startswith(f"--- {file}\n+++ {file}\n")


def test_every_file_of_a_suite(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variants(here, "known: [{oracle: [value], reason: r}]", "one.spec.yaml")
    variants(here, "known: [{oracle: [value], reason: r}]", "two.spec.yaml")
    suite = "suite: s\nspecs: ['*.spec.yaml']\ncases:\n  - {name: c, inputs: {x: [2]}, chain: [F.relu], known: [{oracle: [grad], reason: r}]}\n"
    path = written(here, suite, "s.suite.yaml")
    selection = [*loaded(path).variants]
    run = kept(here, played(selection, ["2.13.0"], lambda v, t: "PASS"))
    assert main(["ledger", "s.suite.yaml", "--update", run]) == 0
    assert capsys.readouterr().out.count("+++ ") == 3
    assert all("known" not in file.read_text() for file in here.glob("*.yaml"))
