"""Joins runs of the regression suite with the corpus of public bugs: what is found, by which oracle, at which stage.

    runner run suites/regressions.suite.yaml --no-known --allow-python --python OLD --python NEW --events log.jsonl
    python bench/corpus.py log.jsonl [more.jsonl ...] [--write docs/lab/2026-11-detection.md]

Rows are those of ``../shared/corpus/known_bugs.jsonl``; a case says by its tag ``row-<id>`` which row it is, and by the tag ``control`` that it is the
control of that number. Exits 1 when a row that diverges was not found as it should be, or one that does not was flagged.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from runner.cases.suites import Reader  # noqa: E402

CORPUS = HERE.parent.parent / "shared" / "corpus" / "known_bugs.jsonl"
SUITE = HERE.parent / "suites" / "regressions.suite.yaml"

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
"""Rows of class ``grad`` whose program itself returns a gradient, or whether it has one: to the runner that is a value."""

STAGES = {"inductor": ("inductor", "decomposition")}
"""The corpus's stage, and the runner's stages that are it, where that is more than the same word."""

STAGE_NOTES = {
    "150083": "The row's harness calls `logging.disable`. torch 2.6 then prints each graph for its structured trace and fails over the strides there, "
    "in Dynamo. Without that, Dynamo, AOT autograd and the decompositions succeed, and Inductor fails, as the report's title says.",
}
"""Rows whose stage is their harness's and not the bug's: what the runner says instead counts."""
STAGE_NOTES["170686"] = STAGE_NOTES["150083"]

UNDEFINED = frozenset({"156788"})
"""Rows whose values are open by torch's own word (131910): a negative float as uint8. They pass with ``unspecified``."""

ERRORS = ("missing-error", "error-type")


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
    """A row of the corpus. ``refused`` marks a control that eager itself refuses, so that there is nothing to compare."""

    id: str
    url: str
    kind: str
    cls: str
    data: Mapping[str, Any]

    @property
    def refused(self) -> bool:
        """Whether eager raises: a control only in so far as it must give no silent wrong answer."""
        return self.kind == "control" and "raise" in self.data.get("diff_kinds", ())

    @property
    def key(self) -> tuple[str, bool]:
        """The number may stand twice, for a bug and for a control."""
        return self.id, self.kind == "control"

    def expected(self, version: str) -> Expected | None:
        """What this row says of ``version``; None if it says nothing."""
        full = next((v for v in self.data["expect_diverge"] if release(v) == release(version)), None)
        if full is None:
            return None
        result = self.data.get(f"result_{full}")
        detail = result if isinstance(result, dict) else {}
        return Expected(
            diverges=bool(self.data["expect_diverge"][full]),
            kind=detail.get("kind") or self.cls,
            stage=detail.get("stage") or self.data.get(f"stage_{full}") or self.data["stage"],
        )


@dataclass
class Seen:
    """What the runner says of a row under one torch: verdict, oracles with their stages, labels."""

    verdict: str
    findings: tuple[tuple[str, str | None], ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def flagged(self) -> bool:
        """Whether it calls the compiler wrong."""
        return bool(self.findings)

    @property
    def oracles(self) -> tuple[str, ...]:
        """Without repetition."""
        return tuple(dict.fromkeys(oracle for oracle, _ in self.findings))

    @property
    def stages(self) -> tuple[str, ...]:
        """Without repetition."""
        return tuple(dict.fromkeys(stage for _, stage in self.findings if stage))


@dataclass
class Judged:
    """A row under one torch: what should be, what was, and the words for the table."""

    row: Row
    expected: Expected
    seen: Seen | None
    oracle_right: bool = False
    stage_right: bool = False
    ok: bool = False
    remark: str = ""


@dataclass
class Column:
    """One torch version."""

    version: str
    rows: list[Judged] = field(default_factory=list)


def release(version: str) -> str:
    """``2.13`` of ``2.13.0+cpu``."""
    return ".".join(version.split("+")[0].split(".")[:2])


def read_rows(path: Path) -> list[Row]:
    """The corpus."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}; the corpus lies beside the repository, in shared/") from error
    rows = [json.loads(line) for line in lines if line.strip()]
    return [Row(r["id"], r["url"], r["kind"], r["class"], r) for r in rows]


def read_tags(suite: Path) -> dict[str, tuple[str, bool]]:
    """Of each case in the suite the row that it says it is: ``file name::case`` to the row's key. No two say the same."""
    reader = Reader()
    found: dict[str, tuple[str, bool]] = {}
    for read in reader.suites([suite]):
        for case in read.cases:
            for tag in case.tags:
                if tag.startswith("row-"):
                    name, key = (
                        f"{Path(case.file).name}::{case.name}",
                        (tag.removeprefix("row-"), "control" in case.tags),
                    )
                    if key in found.values():
                        raise CorpusError(f"{name}: another case has the tag {tag} too")
                    found[name] = key
    errors = [d for d in reader.problems if d.severity == "error"]
    if errors:
        raise CorpusError(f"{suite}: {len(errors)} errors; runner validate shows them")
    return found


def read_events(paths: Iterable[Path], tags: Mapping[str, tuple[str, bool]]) -> dict[str, dict[tuple[str, bool], Seen]]:
    """Torch version to row to what was seen; of a case that ran several times, the last time."""
    seen: dict[str, dict[tuple[str, bool], Seen]] = {}
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise CorpusError(f"{path}: {error.strerror}") from error
        for number, line in enumerate(lines, 1):
            try:
                event = json.loads(line)
            except ValueError as error:
                raise CorpusError(f"{path}:{number}: no event log: {error}") from error
            if event.get("event") != "variant-finished":
                continue
            file, _, name = event["case"].partition("::")
            key = tags.get(f"{Path(file).name}::{name}")
            if key is None:
                continue
            found = tuple((f["oracle"], f.get("stage")) for f in event["findings"])
            seen.setdefault(event["torch"], {})[key] = Seen(event["verdict"], found, tuple(event.get("labels", ())))
    return seen


def judge(row: Row, expected: Expected, seen: Seen | None) -> Judged:
    """Whether what was seen is what the row says.

    A bug that diverges: an oracle of its class, at its stage. A control: no finding; one that eager refuses may be told that
    compiled code does not. Any other: no finding.
    """
    judged = Judged(row, expected, seen)
    if seen is None:
        judged.remark = "not run"
        return judged
    if seen.verdict in ("VACUOUS", "INVALID", "FLAKY", "SKIP", "NOT-RUN"):
        judged.remark = seen.verdict
        return judged
    if row.kind == "control":
        judged.ok = not seen.flagged or (row.refused and set(seen.oracles) <= set(ERRORS))
        return judged
    if row.id in UNDEFINED and expected.diverges:
        judged.ok = not seen.flagged and "unspecified" in seen.labels
        return judged
    if not expected.diverges:
        judged.ok = not seen.flagged
        return judged
    wanted = ORACLES[expected.kind] + (("value",) if expected.kind == "grad" and row.id in OWN_GRADIENTS else ())
    stages = STAGES.get(expected.stage or "", (expected.stage,))
    right = [(oracle, stage) for oracle, stage in seen.findings if oracle in wanted]
    judged.oracle_right = bool(right)
    judged.stage_right = any(stage in stages for _, stage in right)
    if right and not judged.stage_right and row.id in STAGE_NOTES:
        judged.stage_right, judged.remark = True, "note"
    judged.ok = judged.oracle_right and judged.stage_right
    return judged


def compare(rows: Sequence[Row], seen: Mapping[str, Mapping[tuple[str, bool], Seen]]) -> list[Column]:
    """A column for each torch version that the corpus knows, oldest first."""
    columns = []
    for version in sorted(seen, key=lambda v: [int(n) for n in release(v).split(".")]):
        column = Column(version)
        for row in rows:
            expected = row.expected(version)
            if expected is not None:
                column.rows.append(judge(row, expected, seen[version].get(row.key)))
        if column.rows:
            columns.append(column)
    if not columns:
        raise CorpusError("no event is of a case of the suite under a torch version of the corpus (2.6.0, 2.13.0)")
    return columns


# --- the page ---------------------------------------------------------------------------------


def page(columns: Sequence[Column]) -> str:
    """The Markdown page."""
    parts = [
        "# What is found of the corpus, row by row",
        "`bench/corpus.py` makes this page from a run of `suites/regressions.suite.yaml` with `--no-known`; do not edit it. "
        "The rows are the visible part of the corpus of public torch.compile bugs. Each is a case in `specs/regressions/` (tag `row-<id>`).",
        "## Totals",
        totals(columns),
        "## Terms",
        "**Right oracle.** The oracles of a row's class are right:",
        _grid(("class", "right oracles"), [(name, ", ".join(oracles)) for name, oracles in ORACLES.items()]),
        "* Where a row gives a class for each torch version, that one counts.\n"
        "* A missing error and a wrong error count for each other.\n"
        f"* Of class grad, {', '.join(OWN_GRADIENTS)} return a gradient, or whether there is one (176854). The runner compares that as a value.",
        "**Right stage.** The stage is the row's, and comes from the finding of the right oracle. The rows' own ladder had no stage `decomposition`, "
        "so `decomposition` counts as `inductor`. Rows marked ¹ are explained below the table.",
        "**ok.** These are ok:",
        "* a bug that diverges, with the right oracle at the right stage;\n"
        "* a control without a finding;\n"
        "* a row that does not diverge on that version, without a finding.",
        "Controls that eager itself refuses (²) hold nothing to compare. Compiled code that answers them, or refuses them in another way, is reported like a "
        "bug of the same kind. 169779 and 194501 are in the corpus as both. The ledger calls these findings by-design. Such a control must have no other finding.",
        "## Rows",
        table(columns),
        *notes(columns),
    ]
    return "\n\n".join(parts) + "\n"


def totals(columns: Sequence[Column]) -> str:
    """The counts, a column each."""
    lines: list[tuple[str, list[str]]] = []

    def count(title: str, wanted: Any, good: Any) -> None:
        lines.append((title, [_share([j for j in c.rows if wanted(j)], good) for c in columns]))

    def bug(j: Judged) -> bool:
        return j.row.kind != "control" and j.expected.diverges

    count("bugs that diverge: found", bug, lambda j: j.seen is not None and j.seen.flagged)
    count("with the right oracle", bug, lambda j: j.oracle_right)
    count("and at the right stage", bug, lambda j: j.ok)
    count(
        "bugs that do not diverge: quiet", lambda j: j.row.kind != "control" and not j.expected.diverges, lambda j: j.ok
    )
    count("controls: quiet", lambda j: j.row.kind == "control" and not j.row.refused, lambda j: j.ok)
    count("controls that eager refuses: no more than that", lambda j: j.row.refused, lambda j: j.ok)
    lines.append(
        ("rows without a verdict", [str(sum(bool(j.remark) and j.remark != "note" for j in c.rows)) for c in columns])
    )
    head = ["", *(f"torch {c.version}" for c in columns)]
    return _grid(head, [[title, *cells] for title, cells in lines])


def _share(rows: Sequence[Judged], good: Any) -> str:
    return f"{sum(bool(good(j)) for j in rows)} of {len(rows)}"


def table(columns: Sequence[Column]) -> str:
    """Row by row, in the corpus's order."""
    head = ["row", "kind", "class"]
    for column in columns:
        version = release(column.version)
        head += [f"{version}: diverges", "verdict", "oracles", "stage", "row's stage", "ok"]
    body = []
    by_row: dict[tuple[str, bool], list[Judged | None]] = {}
    for place, column in enumerate(columns):
        for judged in column.rows:
            by_row.setdefault(judged.row.key, [None] * len(columns))[place] = judged
    for cells in by_row.values():
        first = next(j for j in cells if j is not None)
        mark = "²" if first.row.refused else ""
        line = [f"[{first.row.id}]({first.row.url}){mark}", first.row.kind, first.row.cls]
        for judged in cells:
            line += _cells(judged)
        body.append(line)
    return _grid(head, body)


def _cells(judged: Judged | None) -> list[str]:
    if judged is None:
        return ["", "", "", "", "", ""]
    seen, expected = judged.seen, judged.expected
    kind = "" if expected.kind == judged.row.cls or not expected.diverges else f" ({expected.kind})"
    said = ", ".join((*seen.oracles, *(f"*{label}*" for label in seen.labels))) if seen else ""
    ok = "yes" if judged.ok else f"**no**{': ' + judged.remark if judged.remark else ''}"
    return [
        ("yes" if expected.diverges else "no") + kind,
        seen.verdict if seen else "",
        said,
        (", ".join(seen.stages) if seen else "") + ("¹" if judged.remark == "note" else ""),
        (expected.stage or "") if expected.diverges else "",
        ok,
    ]


def notes(columns: Sequence[Column]) -> list[str]:
    """The footnotes of rows whose stage is not taken at its word."""
    noted: dict[str, list[str]] = {}
    for row in dict.fromkeys(j.row.id for c in columns for j in c.rows if j.remark == "note"):
        noted.setdefault(STAGE_NOTES[row], []).append(row)
    return [f"¹ {', '.join(rows)}: {text}" for text, rows in noted.items()]


def _grid(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print or write the page; 1 if some row is not ok, 2 if the files do not fit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "events", nargs="+", type=Path, metavar="EVENTS.jsonl", help="event logs of the suite, run with --no-known"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there and print the totals only")
    arguments = parser.parse_args(argv)
    try:
        rows = read_rows(CORPUS)
        tags = read_tags(SUITE)
        columns = compare(rows, read_events(arguments.events, tags))
    except CorpusError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = page(columns)
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")
        print(totals(columns))
    else:
        print(text, end="")
    for column in columns:
        for judged in column.rows:
            if not judged.ok:
                said = f"{judged.seen.verdict} {', '.join(judged.seen.oracles)}" if judged.seen else "not run"
                print(f"not ok on {column.version}: {judged.row.kind} {judged.row.id}: {said}", file=sys.stderr)
    return int(any(not j.ok for c in columns for j in c.rows))


if __name__ == "__main__":
    sys.exit(main())
