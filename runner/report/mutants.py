"""The report of a mutation test: a table for the terminal, a page, and the survivors with their change."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

from tabulate import tabulate

from runner.mutants.score import Part, Score, interval
from runner.mutants.trial import Trial
from runner.templates import render_template
from runner.text import in_line, one_line, plural

_SHOWN = 20
"""Rows of a table of the terminal; the page has all."""


def render(score: Score, read: Callable[[str], bytes | None]) -> str:
    """Return the table for a terminal. ``read`` returns the text of a compiler's file."""
    whole, (low, high) = score.whole, interval(score.whole)
    lines = [
        f"{whole.killed} of {plural(whole.counted, 'mutant')} killed: {_percent(whole)} ({low:.0%} to {high:.0%})",
        f"{score.first} by the first case that ran; {score.plainly} would be seen by assert_close of the outputs too",
        f"not counted: {score.equivalent} judged equivalent, {score.invalid} that change no code of a process",
        "",
        tabulate([_row(part) for part in score.kinds], ["kind", "killed", "of", ""]),
        "",
        tabulate([_row(part) for part in score.files[:_SHOWN]], ["file", "killed", "of", ""]),
        "",
        tabulate([(one_line(name), count) for name, count in score.oracles.items()], ["killed by", "mutants"]),
    ]
    if score.survivors:
        lines += ["", f"{plural(len(score.survivors), 'survivor')}:"]
    for trial in score.survivors[:_SHOWN]:
        lines += ["", title(trial), *difference(trial, read)]
    if len(score.survivors) > _SHOWN:
        lines += ["", f"... and {len(score.survivors) - _SHOWN} more, which the page lists"]
    return "\n".join(lines)


def page(score: Score, trials: Sequence[Trial], read: Callable[[str], bytes | None]) -> str:
    """Return the page."""
    low, high = interval(score.whole)
    return render_template(
        "mutants.html.j2", score=score, low=low, high=high, percent=_percent,
        survivors=[(title(trial), difference(trial, read), trial) for trial in score.survivors],
        killed=[trial for trial in trials if trial.fate == "killed"],
    )  # fmt: skip


def title(trial: Trial) -> str:
    """Return one line about a survivor."""
    mutant = trial.mutant
    ran = f"{len(trial.tried)} of {plural(trial.reaching, 'case')} that reach it ran"
    return one_line(f"{mutant.id} {mutant.kind} at {mutant.file}:{mutant.line}; {ran}")


def difference(trial: Trial, read: Callable[[str], bytes | None]) -> list[str]:
    """Return the change as a unified diff without its head; its new text alone where the file is another one."""
    mutant, source = trial.mutant, read(trial.mutant.file)
    try:
        changed = mutant.apply(source or b"")
    except ValueError:
        return [f"+ {one_line(mutant.text)}"]
    texts = [text.decode("utf-8", "replace").splitlines() for text in (source or b"", changed)]
    around = slice(max(0, mutant.line - 4), mutant.line + 6 + mutant.text.count("\n"))
    rows = difflib.unified_diff(texts[0][around], texts[1][around], n=2, lineterm="")
    return [in_line(row)[:200] for row in rows][3:]


def _row(part: Part) -> tuple[str, int, int, str]:
    return part.name, part.killed, part.counted, _percent(part)


def _percent(part: Part) -> str:
    return f"{part.share:.0%}" if part.counted else "-"
