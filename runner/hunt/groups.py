"""What a hunt has done, and its groups: red results by their signature, with what is known and what became of each.

``hunt.jsonl`` in a hunt's folder has a first line for the hunt, then one for each round, reduction and report. A line
is written once its round, reduction or report is over. A round that was cut short has none: its seed draws it again.
Groups and tables are made from these lines alone.

``groups/<id>/`` in a hunt's folder holds the files of a group: a case, a script, a report and ``group.json``.
``triage.yaml`` there holds what people say. A hunt reads it, and writes only the first, empty one.

Known before a hunt begins are the groups of earlier hunts, and the ledgers of spec files. An entry of a ledger speaks
of one case, and a drawn case is another one. So more than its signature must agree before it explains a failure.
Nothing new is to hide behind an entry that pins little.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

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
from runner.exit_codes import UsageError
from runner.files import naming, open_regular, read_bytes, replace_text, shipped
from runner.generate.generator import Request
from runner.record.journal import lines, parse_line
from runner.record.store import is_locked
from runner.session.collect import read_cases
from runner.session.ledgers import read_ledgers
from runner.text import draw_table, duration, one_line, plural
from runner.verdict.policy import applies, explains

HUNT_FILE = "hunt.jsonl"
LAYOUT = 1
"""The version of the file's form."""

SIGNATURE_ID = re.compile(r"[0-9a-f]{8}")
"""What may be the id of a signature. It names a folder, and the file may come from a stranger."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Head:
    """What a hunt draws and runs. It stays the same when the hunt goes on, or its results would not belong together."""

    seed: int
    profile: str
    batch: int  # cases drawn in a round
    torch: str  # the build that draws and is judged
    ops: str = ""
    depth: tuple[int, ...] = ()
    backend: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    shard: tuple[int, ...] = ()  # which of how many: every such round is this hunt's, and others do the rest
    guided: bool = False  # what was reached steers what is drawn
    mutate: tuple[str, ...] = ()  # spec files whose cases a guided hunt changes
    lines: bool = False  # lines of the compiler count among what was reached
    timeout: float = 0.0  # seconds that a variant may take; 0 for what variants have otherwise
    allow_python: bool = False  # models in Python are changed too
    twins: bool = False  # a part of the cases has a twin
    imports: tuple[str, ...] = ()  # modules that every worker imports first
    layout: int = LAYOUT


@dataclass(frozen=True, slots=True)
class Red:
    """A red result. ``id`` names the file of its round, ``number`` is its case's, ``known`` the place of an entry that
    explains it."""

    id: str
    number: int
    verdict: str
    signature_id: str
    signature: str
    severity: str = ""
    stage: str = ""
    oracle: str = ""
    reason: str = ""
    known: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """A finished round: how many cases were valid, how many variants ran, seconds of drawing and of running, and what
    was red."""

    round: int
    cases: int
    variants: int
    drawing: float
    running: float
    verdicts: Mapping[str, int] = field(default_factory=dict)
    red: tuple[Red, ...] = ()
    reached: tuple[str, ...] = ()  # of a guided hunt: what no earlier round reached
    parents: tuple[int, ...] = ()  # the numbers of the cases that are worth a change
    unfinished: int = 0  # variants for which the budget left no time


@dataclass(frozen=True, slots=True)
class Reduction:
    """A finished reduction of the first case of a group.

    ``problem`` says why there is no smaller case; else it is empty.
    """

    reduction: str  # the id of the signature
    seconds: float
    problem: str = ""
    before: int = 0  # operators
    after: int = 0
    elements: int = 0
    complete: bool = False
    known: str = ""  # the place of an entry that explains the smaller case
    case: str = ""  # a hash of the smaller case without its name: groups that come to one case often have one cause

    def __str__(self) -> str:
        """Return what came of it on one line."""
        return self.problem or f"{self.before} -> {self.after} operators"


@dataclass(frozen=True, slots=True)
class Report:
    """A report of a group's reduced case. ``problem`` says why it was not written; else it is empty."""

    report: str  # the id of the signature
    seconds: float
    problem: str = ""
    unmet: int = 0  # rules for reports that are not met
    culprit: str = ""  # as torch's bisector names it
    cause: str = ""  # a hash of the culprit and the smaller case's operators, stage and oracle; empty for a vague one

    def __str__(self) -> str:
        """Return what came of it on one line."""
        rules = f"; {plural(self.unmet, 'rule')} not met" if self.unmet else ""
        return f"no report: {self.problem}" if self.problem else f"report written{rules}"


Line = Head | Round | Reduction | Report


@dataclass(slots=True)
class State:
    """All that a hunt has done so far."""

    head: Head
    rounds: list[Round] = field(default_factory=list)
    reductions: dict[str, Reduction] = field(default_factory=dict)
    reports: dict[str, Report] = field(default_factory=dict)

    @property
    def next_round(self) -> int:
        """Return the number of the next round: the first of its shard, or one shard after the last."""
        index, count = self.head.shard or (1, 1)
        return max((record.round for record in self.rounds), default=index - 1 - count) + count

    @property
    def hunting(self) -> float:
        """Return the seconds that all rounds took."""
        return sum(record.drawing + record.running for record in self.rounds)

    @property
    def reducing(self) -> float:
        """Return the seconds that all reductions and reports took."""
        done: list[Reduction | Report] = [*self.reductions.values(), *self.reports.values()]
        return sum(record.seconds for record in done)

    def add(self, line: Line) -> None:
        """Add a finished round, reduction or report."""
        match line:
            case Round():
                self.rounds.append(line)
            case Reduction():
                self.reductions[line.reduction] = line
            case Report():
                self.reports[line.report] = line


def append_line(folder: Path, line: Line) -> None:
    """Append a line to the file of a hunt, and wait until it is on the disk. Raises OSError."""
    text = json.dumps(asdict(line)).encode() + b"\n"
    descriptor = os.open(folder / HUNT_FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            text = b"\n" + text  # the line that a killed hunt left half-written spoils itself alone
        with naming(folder / HUNT_FILE):
            while text:
                text = text[os.write(descriptor, text) :]
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_state(folder: Path) -> State | None:
    """Return what the hunt of a folder has done; None where no hunt has begun. The last head before the first round
    counts.

    Raises:
        UsageError: the file cannot be read, or is of no hunt.
    """
    path = folder / HUNT_FILE
    if not path.exists():
        return None
    state: State | None = None
    try:
        for number, text in enumerate(lines(path), 1):
            line = _line(text, f"{path}:{number}")
            if isinstance(line, Head):
                state = state if state is not None and state.rounds else State(line)
            elif line is not None and state is not None:
                state.add(line)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    return state


def _line(text: bytes, place: str) -> Line | None:
    """Return a line of the file; None for one that a killed hunt left half-written."""
    try:
        data = parse_line(text)
    except json.JSONDecodeError:
        return None
    except ValueError as error:
        raise UsageError(f"{place}: {error}") from None
    if type(data) is not dict:
        raise UsageError(f"{place}: no line of a hunt")
    with contextlib.suppress(KeyError, TypeError):
        if "layout" in data and data["layout"] != LAYOUT:
            raise UsageError(f"{place}: the hunt is of another version of runner")
        if "round" in data:
            record = _typed(Round, {**data, "red": [_typed(Red, red) for red in data["red"]]})
            if all(type(count) is int for count in record.verdicts.values()):
                return record
        elif "reduction" in data:
            return _typed(Reduction, data)
        elif "report" in data:
            return _typed(Report, data)
        else:
            head = _typed(Head, data)
            if not head.shard or (len(head.shard) == 2 and 1 <= head.shard[0] <= head.shard[1]):
                return head
    raise UsageError(f"{place}: no line of a hunt: {one_line(text.decode('utf-8', 'replace'), 100)}")


_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (float, int), "bool": (bool,), "tuple[int, ...]": (list,), "tuple[str, "
        "...]": (list,),
    "tuple[Red, ...]": (list,), "Mapping[str, int]": (dict,),
}  # fmt: skip
_ITEMS = {"tuple[int, ...]": int, "tuple[str, ...]": str, "tuple[Red, ...]": Red}


def _typed(cls: type[T], data: Mapping[str, Any]) -> T:
    """Return an object of a class of this module from plain data. Raises TypeError, KeyError for what does not fit."""
    values = {}
    kinds: Mapping[str, str] = cls.__annotations__
    for name in kinds.keys() & data.keys():
        value, kind = data[name], kinds[name]
        is_typed = type(value) in _TYPES[kind] and (
            kind not in _ITEMS or all(type(item) is _ITEMS[kind] for item in value)
        )
        is_huge = type(value) is int and abs(value) >= 1 << 63  # it counts nothing, and may be too large for a float
        is_id = name in ("signature_id", "reduction", "report")
        if not is_typed or is_huge or (is_id and not SIGNATURE_ID.fullmatch(value)):
            raise TypeError(name)
        values[name] = tuple(value) if kind in _ITEMS else value
    return cls(**values)


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


def groups_of(
    state: State, places: Mapping[str, str] = MappingProxyType({}), triage: Mapping[str, Triage] = MappingProxyType({})
) -> list[Group]:
    """Return the groups of a hunt: the worst severity first, then the largest.

    A group is known to a ledger where an entry explains its reduced case, or each of its results. Earlier hunts know
    the ``places``, and people the ``triage`` of this one, both by the ids of signatures.
    """
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
        report = state.reports.get(key)
        same_case = cases.setdefault(reduction.case, key) if reduction and reduction.case else key
        same_cause = causes.setdefault(report.cause, key) if report and report.cause else key
        alike = next((first for first in (same_case, same_cause) if first != key), "")
        place = places.get(key, "") or entry
        groups.append(Group(tuple(members), rounds[key], place, triage.get(key), reduction, alike, report))
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
        first = asdict(group.first)
        data = {
            **{name: first[name] for name in ("signature_id", "signature", "severity", "verdict", "stage", "oracle",
                "reason")},
            "torch": head.torch,
            "count": len(group.reds),
            "first": group.first.id,
            "round": group.round,
            "known": group.known,
            "triage": asdict(group.triage) if group.triage else None,
            "alike": group.alike,
            "reduction": asdict(group.reduction) if group.reduction else None,
            "report": asdict(group.report) if group.report else None,
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
_KINDS = {"step": "", "pair": "", "operator": "", "decomposition": "", "lowering": "", "fallback": "", "construct": "",
          "pass": "passes", KIND: ""}  # fmt: skip
"""What a guided hunt counts, with its plural where that is not regular."""


NOW = "now.txt"


def activity(folder: Path) -> str:
    """Return what the hunt in a folder does now; empty where none runs."""
    if not is_locked(folder):
        return ""
    with contextlib.suppress(OSError), open_regular(folder / NOW) as file:
        return one_line(file.read(1000).decode("utf-8", "replace"), 200)
    return "it begins"


def render(state: State, groups: Sequence[Group], now: str = "") -> str:
    """Return the table and the lines below it. ``now`` is what the hunt does while it runs."""
    rows = [
        (group.first.severity or group.first.verdict, one_line(f"{group.id} {group.first.signature}", _WIDTH),
        len(group.reds),
         group.first.id.partition("::")[2].partition("[")[0], _said(group), _size(group),
         one_line(group.report.culprit, 60) if group.report else "")
        for group in groups
    ]  # fmt: skip
    empty = "no group: nothing was red" if state.rounds else "no group: no round has ended"
    lines = [draw_table(rows, _HEADERS)] if rows else [empty]
    variants = sum(record.variants for record in state.rounds)
    verdicts: Counter[str] = Counter()
    for record in state.rounds:
        verdicts.update(record.verdicts)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    unfinished = sum(record.unfinished for record in state.rounds)
    late = f"; no time for {unfinished} more" if unfinished else ""
    lines += ["", f"{plural(len(state.rounds), 'round')}, {plural(variants, 'variant')}: {counted or 'none'}{late}"]
    if state.hunting:
        drawing = sum(record.drawing for record in state.rounds)
        lines.append(
            f"{variants / state.hunting:.2f} variants a second; {duration(drawing)} of drawing, "
            f"{duration(state.hunting - drawing)} of running, {duration(state.reducing)} of reducing and reporting"
        )
    new, known = sum(group.is_new for group in groups), sum(bool(group.known) for group in groups)
    hours = (state.hunting + state.reducing) / 3600
    rate = f", {new / hours:.1f} an hour" if hours else ""
    judged = sum(group.triage is not None for group in groups)
    lines.append(f"{plural(new, 'new group')}{rate}; {known} known, {judged} with a triage")
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
    more = "; the same command with a larger --budget goes on" * bool(remaining)
    lines.append(f"remaining: {', '.join(remaining) or 'nothing'}{more}")
    lines += [f"running: {now}"] if now else []
    return "\n".join(lines)


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
class Ledger:
    """The entries of the shipped specs and of all files that ``--known`` names, each with the operators of its case.

    Those of ``--ledger`` name operators themselves, if any.
    """

    entries: tuple[tuple[LedgerEntry, frozenset[str] | None], ...] = ()

    def explain(
        self,
        variant: Variant,
        torch: str,
        findings: Sequence[Finding],
        reduced: bool = False,
        signature: Collection[str] = (),
    ) -> str:
        """Return the place of an entry that explains one of the findings; empty without one.

        The case has all operators of the entry's. One that is not reduced may fail for another reason, so there the
        entry must name an exception, or the signature, of which these are the names. A reduced one must have no
        operator besides.
        """
        operators = operators_of(variant.case.chain)
        for entry, own in self.entries:
            pinned = entry.error or entry.signature
            agree = reduced or pinned if own is None else operators == own if reduced else pinned and own <= operators
            if own == frozenset() or not agree or not applies(entry, variant, torch):
                continue
            if any(explains(entry, finding, signature) for finding in findings):
                return f"{shown_path(entry.span.file)}:{entry.span.line}"
        return ""


SHIPPED = str(shipped("specs"))
"""The folder of the cases that come with the package."""


def known_groups(paths: Sequence[str]) -> dict[str, str]:
    """Return the ids of the signatures that hunts in these folders have seen, each with the folder and its triage
    there.

    Raises:
        UsageError, InputError: a folder's files are wrong.
    """
    places: dict[str, str] = {}
    for path in paths:
        state = read_state(Path(path))
        triage = read_triage(Path(path)) if state is not None else {}
        for red in (red for record in state.rounds for red in record.red) if state is not None else ():
            if red.verdict in FAILURES:
                word = f" ({triage[red.signature_id].word})" if red.signature_id in triage else ""
                places.setdefault(red.signature_id, f"{path}{word}")
    return places


def read_ledger(paths: Sequence[str], limits: Limits, files: Sequence[str] = ()) -> Ledger:
    """Return the ledgers of spec files and folders of them, and of ``files`` of entries alone. ``SHIPPED`` has the one
    of the package.

    Raises:
        UsageError: a path names none.
        InputError: a file is wrong. What it knows would come up as new.
    """
    entries: dict[tuple[str, int, int], tuple[LedgerEntry, frozenset[str]]] = {}
    for case in read_cases(paths, limits, "--known") if paths else ():
        for known in case.known:  # a suite with defaults has copies of a case
            place = known.span.file, known.span.line, known.span.column
            entries.setdefault(place, (known, operators_of(case.chain)))
    return Ledger((*entries.values(), *((known, None) for known in read_ledgers(files, limits))))


def is_hunt(path: str) -> bool:
    """Return whether a path is the folder of a hunt."""
    return (Path(path) / HUNT_FILE).is_file()
