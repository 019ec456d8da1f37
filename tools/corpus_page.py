"""Joins runs of the regression suite with the corpus of public bugs: what is found, by which oracle, at which stage.

    runner run suites/regressions.suite.yaml --no-known --allow-python --python OLD --python NEW --events log.jsonl
    python tools/corpus_page.py log.jsonl [more.jsonl ...] [--write docs/lab/2026-11-detection.md]

Rows are those of ``../shared/corpus/known_bugs.jsonl``; a case says by its tag ``row-<id>`` which row it is, and by
the tag ``control`` that it is the control of that number. Exits 1 when a row that diverges was not found as it should
be, or one that does not was flagged.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.cases.suites import Reader
from runner.record.events import VariantFinished
from runner.record.journal import Weight, read_journal

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT.parent / "shared" / "corpus" / "known_bugs.jsonl"
SUITE = ROOT / "suites" / "regressions.suite.yaml"

ORACLES = {
    "numeric": ("value", "nonfinite"),
    "nan-inf": ("nonfinite", "value"),
    "compile-crash": ("compile-error",),
    "segfault": ("signal",),
    "hang": ("timeout",),
    "runtime-crash": ("runtime-error",),
    "missing-error": ("missing-error", "error-type"),
    "error-type": ("error-type", "missing-error"),
    "grad": ("grad",),
    "mutation": ("mutation", "alias", "value"),
    "alias": ("alias", "value"),
    "dtype": ("dtype",),
    "shape": ("shape",),
    "stride": ("stride",),
    "rng": ("rng", "value"),
    "graph-break": ("graph-break",),
    "recompile": ("recompile",),
}
"""The corpus's class of a bug, and the oracles that name it. Nothing else counts."""

OWN_GRADIENTS = ("136662", "176854", "188084")
"""Rows of class ``grad`` whose program itself returns a gradient, or whether it has one. The runner calls that a value."""

STAGES = {"inductor": ("inductor", "decomposition")}
"""The corpus's stage, and the runner's stages that are it, where that is more than the same word."""

STAGE_NOTES = {
    "150083": "The row's harness calls `logging.disable`. torch 2.6 then prints each graph for its structured trace and fails over "
    "the strides there, in Dynamo. Without that, Dynamo, AOT autograd and the decompositions succeed, and Inductor fails, as the "
    "report's title says.",
}
"""Rows whose stage is their harness's and not the bug's: what the runner says instead counts."""
STAGE_NOTES["170686"] = STAGE_NOTES["150083"]

UNDEFINED = frozenset({"156788"})
"""Rows whose values torch leaves open (131910): a negative float as uint8. They pass with ``unspecified``."""

ERRORS = ("missing-error", "error-type")


Key = tuple[str, bool]
"""A row's number, and whether it is a control: the number may stand twice, for a bug and for a control."""


class CorpusError(Exception):
    """Files that do not fit together, in one line."""


@dataclass(frozen=True)
class Expected:
    """What a row says of one torch version: whether it diverges, as which class, at which stage."""

    diverges: bool
    kind: str
    stage: str | None


@dataclass(frozen=True)
class Row:
    """A row of the corpus."""

    id: str
    url: str
    kind: str
    cls: str
    data: Mapping[str, Any]

    @property
    def is_control(self) -> bool:
        """Return whether it is a program without a bug."""
        return self.kind == "control"

    @property
    def is_refused(self) -> bool:
        """Return whether eager raises: a control only in so far as it must give no silent wrong answer."""
        return self.is_control and "raise" in self.data.get("diff_kinds", ())

    @property
    def key(self) -> Key:
        """Return what a case's tags say of it."""
        return self.id, self.is_control

    def expected(self, version: str) -> Expected | None:
        """Return what this row says of ``version``; None if it says nothing."""
        full = next((name for name in self.data["expect_diverge"] if release(name) == release(version)), None)
        if full is None:
            return None
        result = self.data.get(f"result_{full}")
        detail = result if isinstance(result, dict) else {}
        stage = detail.get("stage") or self.data.get(f"stage_{full}") or self.data["stage"]
        return Expected(bool(self.data["expect_diverge"][full]), detail.get("kind") or self.cls, stage)


@dataclass
class Judged:
    """A row under one torch: what should be, what the run says, and the words for the table."""

    row: Row
    expected: Expected
    result: VariantFinished | None
    oracle_right: bool = False
    stage_right: bool = False
    ok: bool = False
    remark: str = ""

    @property
    def is_flagged(self) -> bool:
        """Return whether the run calls the compiler wrong."""
        return self.result is not None and bool(self.result.findings)

    @property
    def oracles(self) -> list[str]:
        """Return the oracles that found something, without repetition."""
        return [*dict.fromkeys(finding.oracle for finding in (self.result.findings if self.result else ()))]


Columns = Mapping[str, Sequence[Judged]]
"""Torch version to its rows."""


def release(version: str) -> str:
    """Return ``2.13`` of ``2.13.0+cpu``."""
    return ".".join(version.split("+")[0].split(".")[:2])


def read_rows(path: Path) -> list[Row]:
    """Return the corpus."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}; the corpus lies beside the repository, in shared/") from error
    rows = [json.loads(line) for line in lines if line.strip()]
    return [Row(row["id"], row["url"], row["kind"], row["class"], row) for row in rows]


def read_tags(suite: Path) -> dict[str, Key]:
    """Return the row that each case of the suite says it is: ``file name::case`` to the row's key. No two say the same."""
    reader = Reader()
    keys: dict[str, Key] = {}
    pairs = [(case, tag) for parsed in reader.suites([suite]) for case in parsed.cases for tag in case.tags]
    for case, tag in pairs:
        if not tag.startswith("row-"):
            continue
        name, key = f"{Path(case.file).name}::{case.name}", (tag.removeprefix("row-"), "control" in case.tags)
        if key in keys.values():
            raise CorpusError(f"{name}: another case has the tag {tag} too")
        keys[name] = key
    errors = sum(problem.severity == "error" for problem in reader.problems)
    if errors:
        raise CorpusError(f"{suite}: {errors} errors; runner validate shows them")
    return keys


def read_logs(paths: Iterable[Path]) -> list[VariantFinished]:
    """Return the verdicts of several logs."""
    results: list[VariantFinished] = []
    for path in paths:
        try:
            events, problems = read_journal(path)
        except OSError as error:
            raise CorpusError(f"{path}: {error.strerror}") from error
        if problems.worst > Weight.USUAL:
            raise CorpusError(f"{path}: {problems.lines()[0]}")
        results += [event for event in events if isinstance(event, VariantFinished)]
    return results


def judge(row: Row, expected: Expected, result: VariantFinished | None) -> Judged:
    """Return whether the result is what the row says.

    A bug that diverges: an oracle of its class, at its stage. A control: no finding; one that eager refuses may be told
    that compiled code does not. Any other: no finding.
    """
    judged = Judged(row, expected, result)
    if result is None or result.verdict in ("VACUOUS", "INVALID", "FLAKY", "SKIP", "NOT-RUN"):
        judged.remark = result.verdict if result else "not run"
    elif row.is_control:
        judged.ok = not result.findings or (row.is_refused and {*judged.oracles} <= {*ERRORS})
    elif not expected.diverges:
        judged.ok = not result.findings
    elif row.id in UNDEFINED:
        judged.ok = not result.findings and "unspecified" in result.labels
    else:
        names = ORACLES[expected.kind] + (("value",) if expected.kind == "grad" and row.id in OWN_GRADIENTS else ())
        right = [finding for finding in result.findings if finding.oracle in names]
        stages = STAGES.get(expected.stage or "", (expected.stage,))
        judged.oracle_right, judged.stage_right = bool(right), any(finding.stage in stages for finding in right)
        if right and not judged.stage_right and row.id in STAGE_NOTES:
            judged.stage_right, judged.remark = True, "note"
        judged.ok = judged.oracle_right and judged.stage_right
    return judged


def compare(rows: Sequence[Row], tags: Mapping[str, Key], results: Iterable[VariantFinished]) -> Columns:
    """Return a column for each torch version of the corpus, oldest first; of a case that ran several times, the last."""
    runs: dict[str, dict[Key, VariantFinished]] = {}
    for result in results:
        file, _, name = result.case.partition("::")
        key = tags.get(f"{Path(file).name}::{name}")
        if key is not None:
            runs.setdefault(result.torch, {})[key] = result
    columns = {}
    for version in sorted(runs, key=lambda name: [int(part) for part in release(name).split(".")]):
        pairs = [(row, row.expected(version)) for row in rows]
        judged = [judge(row, expected, runs[version].get(row.key)) for row, expected in pairs if expected is not None]
        if judged:
            columns[version] = judged
    if not columns:
        raise CorpusError("no event is of a case of the suite under a torch version of the corpus (2.6.0, 2.13.0)")
    return columns


# --- the page ---------------------------------------------------------------------------------


def page(columns: Columns) -> str:
    """Return the Markdown page."""
    parts = [
        "# What is found of the corpus, row by row",
        "`tools/corpus_page.py` makes this page from a run of `suites/regressions.suite.yaml` with `--no-known`; do not edit it. "
        "The rows are the visible part of the corpus of public torch.compile bugs. Each is a case in `specs/regressions/` "
        "(tag `row-<id>`).",
        "## Totals",
        totals(columns),
        "## Terms",
        "**Right oracle.** The oracles of a row's class are right:",
        grid(("class", "right oracles"), [(name, ", ".join(oracles)) for name, oracles in ORACLES.items()]),
        "* Where a row gives a class for each torch version, that one counts.\n"
        "* A missing error and a wrong error count for each other.\n"
        f"* Of class grad, {', '.join(OWN_GRADIENTS)} return a gradient, or whether there is one (176854). The runner compares "
        "that as a value.",
        "**Right stage.** The stage is the row's, and comes from the finding of the right oracle. The rows' own ladder had no "
        "stage `decomposition`, so `decomposition` counts as `inductor`. Rows marked ¹ are explained below the table.",
        "**ok.** These are ok:",
        "* a bug that diverges, with the right oracle at the right stage;\n"
        "* a control without a finding;\n"
        "* a row that does not diverge on that version, without a finding.",
        "Controls that eager itself refuses (²) hold nothing to compare. Compiled code that answers them, or refuses them in "
        "another way, is reported like a bug of the same kind. 169779 and 194501 are in the corpus as both. The ledger calls "
        "these findings by-design. Such a control must have no other finding.",
        "## Rows",
        table(columns),
        *notes(columns),
    ]
    return "\n\n".join(parts) + "\n"


def totals(columns: Columns) -> str:
    """Return the counts, a column each."""

    def is_bug(judged: Judged) -> bool:
        return not judged.row.is_control and judged.expected.diverges

    def is_ok(judged: Judged) -> bool:
        return judged.ok

    counts: tuple[tuple[str, Callable[[Judged], bool], Callable[[Judged], bool]], ...] = (
        ("bugs that diverge: found", is_bug, lambda judged: judged.is_flagged),
        ("with the right oracle", is_bug, lambda judged: judged.oracle_right),
        ("and at the right stage", is_bug, is_ok),
        ("bugs that do not diverge: quiet", lambda judged: not judged.row.is_control and not is_bug(judged), is_ok),
        ("controls: quiet", lambda judged: judged.row.is_control and not judged.row.is_refused, is_ok),
        ("controls that eager refuses: no more than that", lambda judged: judged.row.is_refused, is_ok),
    )
    lines = [
        [title, *(_share(filter(is_meant, rows), is_good) for rows in columns.values())]
        for title, is_meant, is_good in counts
    ]
    silent = [str(sum(judged.remark not in ("", "note") for judged in rows)) for rows in columns.values()]
    return grid(["", *(f"torch {version}" for version in columns)], [*lines, ["rows without a verdict", *silent]])


def _share(rows: Iterable[Judged], is_good: Callable[[Judged], bool]) -> str:
    marks = [is_good(judged) for judged in rows]
    return f"{sum(marks)} of {len(marks)}"


def table(columns: Columns) -> str:
    """Return a table, row by row, in the corpus's order."""
    words = ["verdict", "oracles", "stage", "row's stage", "ok"]
    head = [
        "row",
        "kind",
        "class",
        *(word for version in columns for word in (f"{release(version)}: diverges", *words)),
    ]
    rows = dict.fromkeys(judged.row.key for column in columns.values() for judged in column)
    maps = [{judged.row.key: judged for judged in column} for column in columns.values()]
    body = []
    for key in rows:
        row = next(cells[key].row for cells in maps if key in cells)
        name = f"[{row.id}]({row.url})" + "²" * row.is_refused
        body.append([name, row.kind, row.cls, *(cell for cells in maps for cell in _cells(cells.get(key)))])
    return grid(head, body)


def _cells(judged: Judged | None) -> list[str]:
    if judged is None:
        return [""] * 6
    result, expected, stages = judged.result, judged.expected, ""
    kind = "" if expected.kind == judged.row.cls or not expected.diverges else f" ({expected.kind})"
    if result:
        stages = ", ".join(dict.fromkeys(finding.stage for finding in result.findings if finding.stage))
    return [
        ("yes" if expected.diverges else "no") + kind,
        result.verdict if result else "",
        ", ".join((*judged.oracles, *(f"*{label}*" for label in (result.labels if result else ())))),
        stages + "¹" * (judged.remark == "note"),
        (expected.stage or "") if expected.diverges else "",
        "yes" if judged.ok else f"**no**{': ' + judged.remark if judged.remark else ''}",
    ]


def notes(columns: Columns) -> list[str]:
    """Return the footnotes of rows whose stage is not taken at its word."""
    texts: dict[str, list[str]] = {}
    judged = [judged for column in columns.values() for judged in column if judged.remark == "note"]
    for row in dict.fromkeys(entry.row.id for entry in judged):
        texts.setdefault(STAGE_NOTES[row], []).append(row)
    return [f"¹ {', '.join(rows)}: {text}" for text, rows in texts.items()]


def grid(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main(words: Sequence[str] | None = None) -> int:
    """Print or write the page; 1 if some row is not ok, 2 if the files do not fit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    events = "event logs of the suite, run with --no-known"
    parser.add_argument("events", nargs="+", type=Path, metavar="EVENTS.jsonl", help=events)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there and print the totals only")
    arguments = parser.parse_args(words)
    try:
        columns = compare(read_rows(CORPUS), read_tags(SUITE), read_logs(arguments.events))
    except CorpusError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.write:
        arguments.write.write_text(page(columns), encoding="utf-8")
    print(totals(columns) if arguments.write else page(columns).rstrip())
    wrong = [(version, judged) for version, column in columns.items() for judged in column if not judged.ok]
    for version, judged in wrong:
        text = f"{judged.result.verdict} {', '.join(judged.oracles)}" if judged.result else "not run"
        print(f"not ok on {version}: {judged.row.kind} {judged.row.id}: {text}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
