"""What is known before: an entry of a ledger explains little beside its own case, and earlier hunts count by id."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cases.limits import Limits
from runner.diagnostics import InputError
from runner.exit_codes import UsageError
from runner.hunt import groups
from runner.hunt.groups import TRIAGE
from runner.hunt.state import append
from tests.handmade import finding, loaded, variants, written
from tests.hunt.samples import HEAD, A, B, C, red, round_of

LEDGER = """
    cases:
      - name: crash
        inputs: {x: [4]}
        chain: [F.relu, torch.sin]
        known: [{stage: inductor, oracle: [compile-error], error: KeyError, reason: r}]
      - name: wrong
        inputs: {x: [4]}
        chain: [F.relu]
        known: [{stage: inductor, oracle: [value], torch: '>=2.12', reason: r}]
    """
DRAWN = """
    cases:
      - name: drawn
        inputs: {x: [4]}
        chain: [F.relu, torch.cos, torch.sin]
    """
CRASH = finding("compile-error", "inductor", "InductorError", "KeyError")


def test_an_entry_with_an_exception_explains_a_case_that_holds_its_operators(tmp_path: Path) -> None:
    ledger = groups.read_ledger([str(written(tmp_path, LEDGER))], Limits())
    [drawn] = loaded(written(tmp_path, DRAWN, "b.spec.yaml")).variants
    assert ledger.explain(drawn, "2.13.0", [CRASH]).endswith("a.spec.yaml:5")
    assert ledger.explain(drawn, "2.13.0", [finding("compile-error", "inductor", "TypeError")]) == ""
    assert ledger.explain(drawn, "2.13.0", [finding("compile-error", "dynamo", "KeyError")]) == ""
    [less] = variants(tmp_path, "", "c.spec.yaml")  # relu alone
    assert ledger.explain(less, "2.13.0", [CRASH]) == ""


def test_an_entry_about_values_explains_only_a_reduced_case_of_the_same_operators(tmp_path: Path) -> None:
    ledger = groups.read_ledger([str(written(tmp_path, LEDGER))], Limits())
    [drawn] = loaded(written(tmp_path, DRAWN, "b.spec.yaml")).variants
    [relu] = variants(tmp_path, "", "c.spec.yaml")
    assert ledger.explain(relu, "2.13.0", [finding()], reduced=True).endswith("a.spec.yaml:9")
    assert ledger.explain(relu, "2.11.0", [finding()], reduced=True) == "", "the entry is of later versions"
    assert ledger.explain(relu, "2.13.0", [finding()]) == "", "as drawn it may fail for another reason"
    assert ledger.explain(drawn, "2.13.0", [finding()], reduced=True) == "", "it has other operators"


def test_a_path_that_names_no_file_is_refused() -> None:
    assert groups.read_ledger([], Limits()).entries == ()
    with pytest.raises(UsageError, match="--known"):
        groups.read_ledger(["nowhere"], Limits())


def test_a_broken_ledger_is_no_ledger(tmp_path: Path) -> None:
    broken = written(tmp_path, LEDGER.replace("[compile-error]", "compile-error"))
    with pytest.raises(InputError, match="expected a list"):
        groups.read_ledger([str(broken)], Limits())


def test_groups_of_earlier_hunts_are_known_with_their_triage(tmp_path: Path) -> None:
    append(tmp_path, HEAD)
    append(tmp_path, round_of(0, red(A), red(B, 1), red(C, 2, verdict="VACUOUS")))
    (tmp_path / TRIAGE).write_text("bbbbbbbb: {triage: undefined}\n")
    assert groups.is_hunt(str(tmp_path)) and not groups.is_hunt(str(tmp_path / "none"))
    assert groups.known_groups([str(tmp_path)]) == {A: str(tmp_path), B: f"{tmp_path} (undefined)"}
