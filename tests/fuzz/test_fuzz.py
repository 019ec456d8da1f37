"""Changed files and event logs are refused in words or understood: no traceback, no hang, no code, nothing written.

``make test`` tries the same few files each time, ``make nightly`` thousands of others (``--hypothesis-seed``).
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.files import Trial, file_trials
from tests.fuzz.forks import Commands, Outcome
from tests.fuzz.logs import log_trials
from tests.fuzz.oracles import READING, judge, kinds

EXAMPLES = [("quick", "spec", 60, 20), ("quick", "suite", 15, 5), ("quick", "log", 20, 5)]
NIGHTLY = [("nightly", "spec", 1500, 150), ("nightly", "suite", 250, 50), ("nightly", "log", 600, 60)]
"""Profile, kind, number of examples, and how many different messages these show at least."""


def trials(kind: str, commands: Commands) -> st.SearchStrategy[Trial]:
    return log_trials(commands.logs()) if kind == "log" else file_trials(kind)


@pytest.mark.parametrize(
    ("profile", "kind", "count", "least"),
    [*EXAMPLES, *(pytest.param(*row, marks=pytest.mark.nightly) for row in NIGHTLY)],
)
def test_nothing_is_wrong(commands: Commands, profile: str, kind: str, count: int, least: int) -> None:
    messages: set[str] = set()
    loads: list[bool] = []

    @settings(settings.get_profile(profile), max_examples=count)
    @given(trials(kind, commands))
    def holds(trial: Trial) -> None:
        outcome, problems = judge(trial, commands)
        messages.update(kinds(outcome))
        loads.append(accepted(outcome))
        assert not problems

    holds()
    share = sum(loads) / len(loads)
    print(f"{len(loads)} trials, {share:.0%} of the files were accepted, {len(messages)} different messages")
    # A fuzzer whose files are all refused at the door tests nothing, and neither does one that changes nothing.
    assert kind != "spec" or 0.3 < share < 0.7
    assert len(messages) > least


def accepted(outcome: Outcome) -> bool:
    """Whether a command could do what it is for."""
    if outcome.words[0] == "write":
        return b"LOADED" in outcome.out
    return outcome.code in ((0, 1, 5) if outcome.words[0] == "ledger" else (0,))


@dataclass(frozen=True)
class Installed:
    """Instead of the fork's own program, the command as a shell starts it."""

    words: tuple[str, ...]

    def __call__(self) -> None:
        os.execv(sys.executable, [sys.executable, "-m", "runner", *self.words])


@pytest.mark.parametrize("profile", ["quick", pytest.param("nightly", marks=pytest.mark.nightly)])
def test_a_fork_does_what_the_command_does(commands: Commands, profile: str) -> None:
    @settings(settings.get_profile(profile), max_examples=5 if profile == "quick" else 100)
    @given(st.one_of(file_trials(), log_trials(commands.logs())).filter(lambda trial: trial.words[0] in READING))
    def holds(trial: Trial) -> None:
        fork = commands.run(trial.files, trial.words)
        command = commands.run(trial.files, trial.words, Installed(trial.words))
        assert (command.code, command.out, command.err) == (fork.code, fork.out, fork.err)

    holds()
