"""The score of trials, and what is not counted."""

from __future__ import annotations

import json

import pytest

from runner.contract.mutant import Mutant
from runner.mutants.score import Part, interval, read_equivalent, score
from runner.mutants.trial import Fate, Trial


def trial(number: int, fate: Fate, oracle: str = "", kind: str = "constant", plainly: bool = False) -> Trial:
    mutant = Mutant(f"_inductor/{number % 2}.py", number, number, number + 1, "(2)", "digest", kind)
    return Trial(mutant, fate, "a case", oracle, "why", plainly, ("a case",), 3 + number, 1.5)


TRIALS = [trial(0, "killed", "value", plainly=True), trial(1, "killed", "stride"), trial(2, "survived"), trial(3, "invalid"), trial(4, "survived")]  # fmt: skip


def test_the_score_is_of_valid_mutants_that_nobody_judged_equivalent() -> None:
    result = score(TRIALS, {TRIALS[4].mutant.id: "about speed"})
    assert (result.whole.killed, result.whole.counted, result.invalid, result.equivalent) == (2, 3, 1, 1)
    assert result.plainly == 1 and result.first == 2 and result.oracles == {"value": 1, "stride": 1}
    assert [each.mutant.line for each in result.survivors] == [2]
    assert {part.name: (part.killed, part.counted) for part in result.files} == {
        "_inductor/0.py": (1, 2),
        "_inductor/1.py": (1, 1),
    }


def test_a_killed_mutant_counts_whatever_a_person_judged() -> None:
    assert score(TRIALS[:1], {TRIALS[0].mutant.id: "equivalent"}).whole == Part("all", 1, 1)


def test_nothing_counted_is_no_share() -> None:
    assert interval(Part("all", 0, 0)) == (0.0, 1.0)
    json.dumps(score([], {}).to_json())


def test_the_interval_is_wilsons() -> None:
    low, high = interval(Part("all", 44, 52))  # from statsmodels: proportion_confint(44, 52, method="wilson")
    assert (round(low, 4), round(high, 4)) == (0.7248, 0.9199)


def test_a_trial_comes_back_from_json() -> None:
    assert Trial.from_json(json.loads(json.dumps(TRIALS[0].to_json()))) == TRIALS[0]


def test_equivalent_mutants_are_lines_of_a_file() -> None:
    assert read_equivalent("# judged by hand\n\n0123456789 only a cache\n") == {"0123456789": "only a cache"}
    with pytest.raises(ValueError, match="line 2: expected a mutant's ten digits and a reason"):
        read_equivalent("0123456789 only a cache\n0123456789\n")
