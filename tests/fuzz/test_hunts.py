"""Faults in the program that changed files must find, each within a few hundred examples and by its oracle."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, find, settings

from tests.fuzz.faults import HUNTS
from tests.fuzz.files import Trial, file_trials
from tests.fuzz.forks import Commands
from tests.fuzz.logs import log_trials
from tests.fuzz.oracles import judge

EXAMPLES = 2000
"""At most. Which one shows a fault depends on the shipped files, so a bound that is just met breaks with the next of them."""


LATE = ("a marked text is written bare", "any text is code", "JSON of any depth", "control characters are printed")
"""Faults that take hundreds of examples."""


def _marks(name: str, oracle: str) -> tuple[pytest.MarkDecorator, ...]:
    is_long = oracle == "time" or name in LATE  # what takes too long takes 11 seconds each time
    return (pytest.mark.nightly,) if is_long else ()


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name, row[2])) for name, row in HUNTS.items()])
def test_a_planted_fault_is_found(commands: Commands, name: str) -> None:
    edits, words, oracle, fault = HUNTS[name]

    def shows(trial: Trial) -> bool:
        trial = replace(trial, words=(*words.split(), "zq" if edits is None else trial.name))
        return any(problem.startswith(f"{oracle}: ") for problem in judge(trial, commands, fault)[1])

    trials = log_trials(commands.logs()) if edits is None else file_trials("spec", edits)
    find(
        trials, shows, settings=settings(settings.get_profile("quick"), max_examples=EXAMPLES, phases=[Phase.generate])
    )
