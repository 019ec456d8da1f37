"""The command line of a log that this user did not write on this machine: shown, asked about, and never taken whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from runner import console, quote
from runner.exit_codes import UsageError
from runner.text import one_line

HARMLESS = frozenset({
    "--backend", "--budget", "--cached", "--confirm", "--coverage", "--coverage-lines", "--device", "--diagnose", "--exitfirst", "--fail-on-skip", "--failed-first", "--ff", "--isolation",
    "--jobs", "--junit-dialect", "--kernel-cache", "--last-failed", "--lf", "--max-fail", "--maxfail", "--no-confirm", "--no-known", "--numprocesses",
    "--order", "--quiet", "--recompile", "--retries", "--seed", "--shard", "--slow", "--stress", "--verbose",
})  # fmt: skip
"""Long options that are taken from anybody: they run no code, name no file and open no connection. So are all short ones."""

SHOWN = 10_000
"""Characters of a command line that a person can be expected to look at."""


def taken_words(words: Sequence[str], options: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """The words of a ``runner run`` command line that are taken from a stranger, and those that are left out.

    ``options`` says of each option of ``runner run`` whether it takes a value. Raises UsageError for an unknown option.
    """
    accepted: list[str] = []
    withheld: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word == "--":  # what follows are paths
            accepted += [word, *remaining]
        elif not word.startswith("--"):
            accepted.append(word)
        else:
            name, equals, value = word.partition("=")
            option = _full_name(name, options)
            group = [word]
            if options[option] and not equals:
                value = next(remaining, "")
                group.append(value)
            # A backend of the form package:function is code to import.
            harmless = option in HARMLESS and not (option == "--backend" and ":" in value)
            (accepted if harmless else withheld).extend(group)
    return accepted, withheld


def _full_name(name: str, options: Mapping[str, bool]) -> str:
    """The option that a name or its beginning means. Raises UsageError."""
    names = [name] if name in options else [option for option in options if option.startswith(name)]
    if len(names) != 1:
        raise UsageError(f"its command line has {quote.shell_word(name)}, which is no option of runner run")
    return names[0]


def agree(reason: str, words: Sequence[str], withheld: Sequence[str], yes: bool, advice: str) -> None:
    """Show what is about to run, and go on only when the person says so. ``advice`` says how to add what is left out.

    Raises UsageError when nobody can be asked, or the answer is no.
    """
    command = quote.shell_words(["runner", *words])
    if len(command) > SHOWN:
        raise UsageError(
            f"nothing was run: the command line of this log has {len(command):,} characters, too many to look at"
        )
    console.message(f"runner: this log was not written by you on this machine: {reason}. Its command line:")
    console.message(f"  {command}")
    if withheld:
        console.message(f"left out: {one_line(quote.shell_words(withheld), SHOWN)}; {advice}")
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            "nothing was run: there is no terminal to ask at; look at the command line above and pass --yes"
        )
    console.message(f"run it in {os.getcwd()}? [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was run")
