"""The groups of a hunt: red results by their signature, with what is known of each and what became of it.

``groups/<id>/`` in a hunt's folder holds the files of a group: a case, a script, a report and ``group.json``.
``triage.yaml`` there holds what people say. A hunt reads it, and writes only the first, empty one.

Known before a hunt begins are the groups of earlier hunts, and the ledgers of spec files. An entry of a ledger speaks
of one case, and a drawn case is another one. So more than its signature must agree before it explains a failure.
Nothing new is to hide behind an entry that pins little.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.cases.limits import Limits
from runner.cases.model import Known as LedgerEntry
from runner.cases.model import Variant
from runner.cases.yaml.reader import load, read_text
from runner.cases.yaml.values import Mistyped, YamlNode, entries, fields, scalar
from runner.contract.finding import Finding
from runner.contract.lines import KIND, Lines, is_text
from runner.contract.oracles import rank_of
from runner.diagnose.similar import operators_of
from runner.diagnostics import Diagnostic, InputError, nearest, shown_path
from runner.files import naming, read_bytes, replace_text
from runner.generate.generator import Request
from runner.hunt import state as states
from runner.hunt.state import SIGNATURE_ID, Head, Red, Reduction, Report, State
from runner.session.collect import read_cases
from runner.text import draw_table, duration, one_line, plural
from runner.verdict.policy import applies, explains

TRIAGE = "triage.yaml"

WORDS: Mapping[str, str] = {
    "bug": "the compiler is wrong",
    "by-design": "torch means it so; reason or link says where",
    "undefined": "eager's own result is undefined: a false alarm",
    "duplicate": "of a public report or of another group; reason or link says which",
}
"""What a group may be, each with its meaning."""

EXPLAINED = ("by-design", "duplicate")
"""Those that need a reason or a link."""

_COMMENT = re.compile(r"(?m)^[ \t]*(?:#.*|---|\.\.\.)[ \t\r]*$")
"""A line that gives nothing to YAML."""

_EMPTY_TRIAGE = f"""\
# What each group is. runner hunt reads this file and never changes it.
# "1a2b3c4d": {{triage: bug, reason: the second write is lost, link: https://github.com/pytorch/pytorch/issues/1}}
# triage is {", ".join(WORDS)}.
{{}}
"""


@dataclass(frozen=True, slots=True)
class Triage:
    """What a person says of a group: a word of ``WORDS``, and why."""

    word: str
    reason: str = ""
    link: str = ""

    def __str__(self) -> str:
        """Return it on one line."""
        return " ".join(filter(None, (self.word, self.link or self.reason)))


def write_empty_triage(folder: Path) -> None:
    """Write the file for people to edit, unless there is one."""
    path = folder / TRIAGE
    with contextlib.suppress(FileExistsError), naming(path), open(path, "x", encoding="utf-8") as file:
        file.write(_EMPTY_TRIAGE)


def read_triage(folder: Path) -> dict[str, Triage]:
    """Return what people say of a hunt's groups, by the ids of signatures; nothing where there is no file.

    Raises:
        InputError: the file is wrong; the diagnostics have its places.
    """
    path = folder / TRIAGE
    if not path.exists():
        return {}
    text, diagnostics = read_text(path)
    if text is not None and not _COMMENT.sub("", text).strip():  # the last entry was taken away
        return {}
    root, more = load(path, text) if text is not None else (None, [])
    errors = [diagnostic for diagnostic in (*diagnostics, *more) if diagnostic.severity == "error"]
    found: dict[str, Triage] = {}
    with _noted(errors):
        for key, node in entries(root) if root is not None else ():
            if not SIGNATURE_ID.fullmatch(key.text):
                errors.append(Diagnostic(key.span, f'{key.text[:40]!r} is no id of a signature, such as "1a2b3c4d"'))
                continue
            with _noted(errors):
                if (triage := _triage(node, errors)) is not None:
                    found[key.text] = triage
    if errors:
        raise InputError(errors)
    return found


@contextlib.contextmanager
def _noted(errors: list[Diagnostic]) -> Iterator[None]:
    try:
        yield
    except Mistyped as error:
        errors.append(Diagnostic(error.span, str(error)))


def _triage(node: YamlNode, errors: list[Diagnostic]) -> Triage | None:
    """Return what one entry says; None for one that is wrong."""
    values = fields(node)
    errors += [
        Diagnostic(values[name].span, f"no key {name[:40]!r} of a group: triage, reason, link")
        for name in values.keys() - {"triage", "reason", "link"}
    ]
    word, reason, link = (str(scalar(values.get(name), str, default="")) for name in ("triage", "reason", "link"))
    if word not in WORDS:
        near = nearest(word, WORDS) or ", ".join(WORDS)
        errors.append(Diagnostic(node.span, f"triage is {word[:40]!r}, which is not one of its words", near))
        return None
    if word in EXPLAINED and not (reason or link):
        errors.append(Diagnostic(node.span, f"{word} needs a reason or a link: {WORDS[word]}"))
        return None
    return Triage(word, reason, link)


FAILURES = ("FAIL", "ERROR")
"""Verdicts about the compiler. The groups of others, such as VACUOUS, are listed, and nothing of them is reduced."""


@dataclass(frozen=True, slots=True)
class Known:
    """What earlier hunts and people know: places by the ids of signatures, and the triage of this hunt."""

    places: Mapping[str, str] = field(default_factory=dict)
    triage: Mapping[str, Triage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """Red results with one signature.

    ``known`` is where it was known from before; empty for one that is new. ``alike`` is the id of a group that was seen
    earlier, and that was reduced to the same case or has the same cause.
    """

    reds: tuple[Red, ...]
    round: int  # that saw it first
    known: str = ""
    triage: Triage | None = None
    reduction: Reduction | None = None
    alike: str = ""
    report: Report | None = None

    @property
    def first(self) -> Red:
        """Return the first result, which speaks for all."""
        return self.reds[0]

    @property
    def id(self) -> str:
        """Return the id of the signature."""
        return self.first.signature_id

    @property
    def fails(self) -> bool:
        """Return whether it is about the compiler."""
        return self.first.verdict in FAILURES

    @property
    def is_new(self) -> bool:
        """Return whether it is about the compiler, and nobody has said anything of it."""
        return self.fails and not self.known and self.triage is None

    @property
    def is_pending(self) -> bool:
        """Return whether its first case should be reduced."""
        return self.is_new and self.reduction is None

    @property
    def is_unreported(self) -> bool:
        """Return whether its reduced case should be reported. One report serves all groups with the same case."""
        reduced = self.reduction is not None and not self.reduction.problem
        return self.is_new and reduced and not self.alike and self.report is None


def groups_of(state: State, known: Known | None = None) -> list[Group]:
    """Return the groups of a hunt: the worst severity first, then the largest.

    A group is known to a ledger where an entry explains its reduced case, or each of its results.
    """
    known = known or Known()
    reds: dict[str, list[Red]] = defaultdict(list)
    rounds: dict[str, int] = {}
    for record in state.rounds:
        for red in record.red:
            reds[red.signature_id].append(red)
            rounds.setdefault(red.signature_id, record.round)
    groups = []
    cases: dict[str, str] = {}
    causes: dict[str, str] = {}
    for key, members in reds.items():
        reduction = state.reductions.get(key)
        entry = (reduction.known if reduction else "") or (members[0].known if all(m.known for m in members) else "")
        place = known.places.get(key, "") or entry
        report = state.reports.get(key)
        same_case = cases.setdefault(reduction.case, key) if reduction and reduction.case else key
        same_cause = causes.setdefault(report.cause, key) if report and report.cause else key
        alike = next((first for first in (same_case, same_cause) if first != key), "")
        groups.append(Group(tuple(members), rounds[key], place, known.triage.get(key), reduction, alike, report))
    return sorted(groups, key=lambda group: (not group.fails, rank_of(group.first.severity), -len(group.reds)))


CASE, REDUCED, SCRIPT, REPORT, GROUP = "case.spec.yaml", "reduced.spec.yaml", "repro.py", "report.md", "group.json"
IDS = 1000
"""Ids that ``group.json`` names, so that a hunt of a day stays small; all are counted."""
REDRAWN = 10
"""Results that it has the command for."""


def folder_of(folder: Path, signature_id: str) -> Path:
    """Return the folder of a group."""
    return folder / "groups" / signature_id


def spec_of(folder: Path, number: int) -> Path:
    """Return the spec file of a round."""
    return folder / "rounds" / f"{number:05}.spec.yaml"


def request_of(head: Head) -> Request:
    """Return what the hunt asks the generator for."""
    depth = (head.depth[0], head.depth[1]) if len(head.depth) == 2 else None
    return Request(
        head.seed, head.batch, 0, head.profile, head.ops, depth, allow_python=head.allow_python, twins=head.twins
    )


def write_groups(folder: Path, head: Head, groups: Iterable[Group]) -> None:
    """Write ``group.json`` of each group that has a folder."""
    command = request_of(head).command
    for group in groups:
        own = folder_of(folder, group.id)
        if not own.is_dir():
            continue
        first = dataclasses.asdict(group.first)
        data = {
            **{name: first[name] for name in ("signature_id", "signature", "severity", "verdict", "stage", "oracle",
                "reason")},
            "torch": head.torch,
            "count": len(group.reds),
            "first": group.first.id,
            "round": group.round,
            "known": group.known,
            "triage": dataclasses.asdict(group.triage) if group.triage else None,
            "alike": group.alike,
            "reduction": dataclasses.asdict(group.reduction) if group.reduction else None,
            "report": dataclasses.asdict(group.report) if group.report else None,
            # What a guided hunt draws depends on its earlier rounds: the files of its rounds keep the cases.
            "redraw": []
            if head.guided
            else [f"{command} --first {red.number} --count 1" for red in group.reds[:REDRAWN]],
            "variants": [red.id for red in group.reds[:IDS]],
        }  # fmt: skip
        text = json.dumps(data, indent=1) + "\n"
        if not (own / GROUP).is_file() or read_bytes(own / GROUP) != text.encode():
            replace_text(own / GROUP, text)


_HEADERS = ("severity", "signature", "count", "first", "triage", "operators", "culprit")
_WIDTH = 90
_KINDS = {"step": "", "pair": "", "operator": "", "decomposition": "", "lowering": "", "fallback": "", "pass": "passes",
          KIND: ""}  # fmt: skip
"""What a guided hunt counts, with its plural where that is not regular."""


def render(state: State, groups: Sequence[Group]) -> str:
    """Return the table and the lines below it."""
    rows = [
        (group.first.severity or group.first.verdict, one_line(f"{group.id} {group.first.signature}", _WIDTH),
        len(group.reds),
         group.first.id.partition("::")[2].partition("[")[0], _said(group), _size(group),
         one_line(group.report.culprit, 60) if group.report else "")
        for group in groups
    ]  # fmt: skip
    lines = [draw_table(rows, _HEADERS)] if rows else ["no group: nothing was red"]
    variants = sum(record.variants for record in state.rounds)
    verdicts: Counter[str] = Counter()
    for record in state.rounds:
        verdicts.update(record.verdicts)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    lines += ["", f"{plural(len(state.rounds), 'round')}, {plural(variants, 'variant')}: {counted or 'none'}"]
    if state.hunting:
        drawing = sum(record.drawing for record in state.rounds)
        lines.append(
            f"{variants / state.hunting:.2f} variants a second; {duration(drawing)} of drawing, "
            f"{duration(state.hunting - drawing)} of running, {duration(state.reducing)} of reducing and reporting"
        )
    lines.append(_yield(state, groups))
    reached = [name for record in state.rounds for name in record.reached]
    kinds = Counter(name.partition(" ")[0] for name in reached if not is_text(name))
    kinds += Counter({KIND: len(Lines(reached))})  # none where none was recorded
    if kinds:
        lines.append(
            "reached: "
            f"{', '.join(plural(kinds[kind], kind, several) for kind, several in _KINDS.items() if kinds[kind])}"
        )
    pending, unreported = sum(group.is_pending for group in groups), sum(group.is_unreported for group in groups)
    remaining = [f"{plural(pending, 'group')} to reduce"] if pending else []
    remaining += [f"{plural(unreported, 'report')} to write"] if unreported else []
    lines.append(f"remaining: {', '.join(remaining) or 'nothing'}")
    return "\n".join(lines)


def _yield(state: State, groups: Sequence[Group]) -> str:
    """Return how many groups are new, and how many of them an hour gives."""
    new = sum(group.is_new for group in groups)
    known = sum(bool(group.known) for group in groups)
    judged = sum(group.triage is not None for group in groups)
    hours = (state.hunting + state.reducing) / 3600
    rate = f", {new / hours:.1f} an hour" if hours else ""
    return f"{plural(new, 'new group')}{rate}; {known} known, {judged} with a triage"


def _said(group: Group) -> str:
    """Return what is said of a group: by its triage, else by what was known before, else by its reduced case."""
    if group.triage is not None:
        return one_line(str(group.triage), 60)
    if group.known:
        return one_line(f"known: {group.known}", 60)
    return f"new{', as ' * bool(group.alike)}{group.alike}" if group.fails else ""


def _size(group: Group) -> str:
    """Return ``12 -> 2``, or why there is no smaller case."""
    done = group.reduction
    if done is None:
        return "waits" if group.is_pending else ""
    return one_line(done.problem, 40) if done.problem else f"{done.before} -> {done.after}" + "?" * (not done.complete)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a ledger, and the operators of its case."""

    known: LedgerEntry
    operators: frozenset[str]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The entries of all files that ``--known`` names."""

    entries: tuple[Entry, ...] = ()

    def explain(self, variant: Variant, torch: str, findings: Sequence[Finding], reduced: bool = False) -> str:
        """Return the place of an entry that explains one of the findings; empty without one.

        The case has all operators of the entry's. One that is not reduced may fail for another reason, so there the
        entry must name an exception. A reduced one must have no operator besides.
        """
        operators = operators_of(variant.case.chain)
        for entry in self.entries:
            agree = operators == entry.operators if reduced else entry.known.error and entry.operators <= operators
            if not (entry.operators and agree and applies(entry.known, variant, torch)):
                continue
            if any(explains(entry.known, finding) for finding in findings):
                return f"{shown_path(entry.known.span.file)}:{entry.known.span.line}"
        return ""


def known_groups(paths: Sequence[str]) -> dict[str, str]:
    """Return the ids of the signatures that hunts in these folders have seen, each with the folder and its triage
    there.

    Raises:
        UsageError, InputError: a folder's files are wrong.
    """
    places: dict[str, str] = {}
    for path in paths:
        state = states.read(Path(path))
        triage = read_triage(Path(path)) if state is not None else {}
        for red in (red for record in state.rounds for red in record.red) if state is not None else ():
            if red.verdict in FAILURES:
                word = f" ({triage[red.signature_id].word})" if red.signature_id in triage else ""
                places.setdefault(red.signature_id, f"{path}{word}")
    return places


def read_ledger(paths: Sequence[str], limits: Limits) -> Ledger:
    """Return the ledgers of spec files and folders of them.

    Raises:
        UsageError: a path names none.
        InputError: a file is wrong. What it knows would come up as new.
    """
    if not paths:
        return Ledger()
    entries: dict[tuple[str, int, int], Entry] = {}  # a suite with defaults has copies of a case
    for case in read_cases(paths, limits, "--known"):
        for known in case.known:
            place = known.span.file, known.span.line, known.span.column
            entries.setdefault(place, Entry(known, operators_of(case.chain)))
    return Ledger(tuple(entries.values()))


def is_hunt(path: str) -> bool:
    """Return whether a path is the folder of a hunt."""
    return (Path(path) / states.FILE).is_file()
