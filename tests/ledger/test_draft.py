"""A ledger drafted from a run: its entries, and the file that they are added to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runner.cases.model import Variant
from runner.ledger.draft import draft_entries, with_entries
from runner.ledger.edit import Unfit
from runner.ledger.review import read_run, review
from runner.record.events import Event, VariantFinished
from runner.verdict.signature import assess
from tests.handmade import Answer, finding, loaded, played, variants, written


def signed(events: list[Event], operator: str = "F.relu") -> list[Event]:
    """The events as a run has them: with operators and signatures."""
    return [
        assess(replace(event, operator=operator)) if isinstance(event, VariantFinished) else event for event in events
    ]


def value(variant: Variant, torch: str) -> Answer:
    return finding("value", severity="wrong-result")


def chosen(folder: Path, *entries: str) -> list[Variant]:
    variants(folder, "dtypes: [float32, float64]")
    path = written(folder, "known:\n" + "".join(f"  - {entry}\n" for entry in entries), "acme.ledger.yaml")
    return [*loaded(folder / "a.spec.yaml", ledgers=[str(path)], drafts=True).variants]


def test_one_entry_for_each_signature(tmp_path: Path) -> None:
    selection = variants(tmp_path, "dtypes: [float32, float64, float16]")
    crash = finding("compile-error", "inductor", "KeyError", severity="crash")
    by_dtype: dict[str, Answer] = {"float64": crash}
    events = played(selection, ["2.13.0"], lambda v, t: by_dtype.get(v.dtype) or value(v, t))
    first, second = draft_entries(read_run(selection, signed(events)))
    assert first["operators"] == ["F.relu"] and first["case"] is None
    assert (first["stage"], first["oracle"], first["backend"]) == ("inductor", ["value"], "inductor")
    assert first["dtype"] == ["float32", "float16"] and first["signature"].startswith("value of F.relu at inductor")
    assert first["reason"].startswith("TODO: 2 variants, such as ") and second["oracle"] == ["compile-error"]


def test_cases_are_named_where_no_operator_tells(tmp_path: Path) -> None:
    selection = variants(tmp_path, "")
    events = signed(played(selection, ["2.13.0"], value), "model.py:Net")
    (entry,) = draft_entries(read_run(selection, events))
    assert (entry["case"], entry["operators"]) == (["a.spec.yaml::a"], None)


def test_the_draft_explains_what_it_was_made_from(tmp_path: Path) -> None:
    selection = variants(tmp_path, "dtypes: [float32, float64]")
    events = signed(played(selection, ["2.13.0"], value))
    path = tmp_path / "acme.ledger.yaml"
    path.write_text(with_entries("", draft_entries(read_run(selection, events)), selection))
    known = [*loaded(tmp_path / "a.spec.yaml", ledgers=[str(path)], drafts=True).variants]
    run = read_run(known, events)
    assert draft_entries(run) == []
    assert [(entry.state, len(entry.sightings)) for entry in review(known, run)] == [("matched", 2)]


def test_entries_that_are_there_stay(tmp_path: Path) -> None:
    own = "{dtype: float64, reason: own}  # as it was"
    selection = chosen(tmp_path, own)
    entries = draft_entries(read_run(selection, signed(played(selection, ["2.13.0"], value))))
    assert [entry["dtype"] for entry in entries] == [["float32"]]
    path = tmp_path / "acme.ledger.yaml"
    text = with_entries(str(path), entries, selection)
    assert text.startswith(f"known:\n  - {own}\n  - operators: [F.relu]\n    stage: inductor\n")
    path.write_text(text)
    assert len(loaded(tmp_path / "a.spec.yaml", ledgers=[str(path)], drafts=True).variants[0].ledger) == 2


def test_a_list_in_brackets_gets_them_in_brackets(tmp_path: Path) -> None:
    variants(tmp_path, "")
    path = written(tmp_path, "known: [{reason: own, case: b}]\ndoc: d\n", "acme.ledger.yaml")
    selection = [*loaded(tmp_path / "a.spec.yaml", ledgers=[str(path)]).variants]
    text = with_entries(str(path), [{"case": ["c"], "reason": "TODO"}, {"case": ["d"], "reason": "TODO"}], selection)
    assert text == "known: [{reason: own, case: b}, {case: [c], reason: TODO}, {case: [d], reason: TODO}]\ndoc: d\n"


def test_a_file_without_entries_gets_its_first(tmp_path: Path) -> None:
    selection = variants(tmp_path, "")
    path = written(tmp_path, "doc: d\nknown: []\n", "acme.ledger.yaml")
    text = with_entries(str(path), [{"case": ["c"], "reason": "TODO"}], selection)
    assert text == "doc: d\nknown:\n  - case: [c]\n    reason: TODO\n"
    path.write_text("known: [\n]\n")
    with pytest.raises(Unfit, match=r"write known: \[\] there"):
        with_entries(str(path), [{"reason": "TODO"}], selection)


@pytest.mark.parametrize(
    ("failing", "state"), [({"float32"}, "matched"), (set(), "fixed"), ({"float32", "float64"}, "matched")]
)
def test_an_entry_of_its_own_file_is_fixed_when_none_fails(tmp_path: Path, failing: set[str], state: str) -> None:
    selection = chosen(tmp_path, "{oracle: [value], reason: r}")
    events = played(selection, ["2.13.0"], lambda v, t: value(v, t) if v.dtype in failing else "PASS")
    (entry,) = review(selection, read_run(selection, events))
    assert (entry.state, entry.shared) == (state, True)


def test_another_failure_beside_those_that_it_names_does_not_change_it(tmp_path: Path) -> None:
    selection = chosen(tmp_path, "{oracle: [value], reason: r}")
    by_dtype: dict[str, Answer] = {"float32": finding("value"), "float64": finding("stride")}
    (entry,) = review(selection, read_run(selection, played(selection, ["2.13.0"], lambda v, t: by_dtype[v.dtype])))
    assert entry.state == "matched"
    by_dtype["float32"] = "PASS"
    (entry,) = review(selection, read_run(selection, played(selection, ["2.13.0"], lambda v, t: by_dtype[v.dtype])))
    assert entry.state == "changed"


def test_one_that_means_no_case_here_did_not_run(tmp_path: Path) -> None:
    selection = chosen(tmp_path, "{case: other*, reason: r}")
    (entry,) = review(selection, read_run(selection, played(selection, ["2.13.0"], value)))
    assert (entry.state, entry.detail, entry.cases) == ("not-run", "no case here is meant by it: case: 'other*'", [])
