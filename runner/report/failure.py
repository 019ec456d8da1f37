"""A failure as text, failures by what they have in common, and what to type about them.

The terminal and JUnit print the text of a failure word for word. A block answers, in this order: what is wrong, where
it is written, which stage is to blame, the numbers, what was raised or killed, what was printed last, and the one line
that shows it again. There is one group for each signature, the worst first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.cases.model import LAUNCH
from runner.contract.finding import Finding, telling_line
from runner.contract.oracles import rank_of
from runner.diagnostics import Span, caret, shown_file, source_line
from runner.quote import command_words
from runner.record.events import VariantFinished, grouped
from runner.report.delegation import delegation_of
from runner.text import MESSAGE_LIMIT, clean, head_lines, indent, number, one_line, plural, tail_lines
from runner.verdict.policy import AS_USER
from runner.verdict.signature import assess
from runner.verdict.stages import in_order

Source = Callable[[str, int], str]
"""How a line of a file is read: (path, line number) to its text, empty when it cannot be had."""


class Disagreement(AssertionError):
    """A verdict is red, where Python asks for one that is not."""


_FINDINGS = 8  # shown in full; a case that disagrees in fifty outputs is not clearer with all fifty
_STACK = 15
_OUTPUT = 15
_ERROR = 12


def headline(event: VariantFinished, limit: int = MESSAGE_LIMIT) -> str:
    """Return the failure in one line of at most ``limit`` characters; never empty."""
    text = event.reason
    if not text and event.findings:
        first = event.findings[0]
        place = f"{first.oracle} at {first.path}" if first.path else first.oracle
        text = f"{place}: {first.message}" if first.message else place
        if len(event.findings) > 1:
            text += f" (and {plural(len(event.findings) - 1, 'more finding')})"
    if not text:
        text = event.signal or ", ".join(event.oracles) or event.verdict.lower()
    if event.known and event.known not in text:
        text += f" (known: {event.known})"
    return one_line(text, limit)


def span(event: VariantFinished) -> Span:
    """Return the place to look at: the line of the first finding that has one, the cause of INVALID, else the case."""
    for place in (*(finding.place for finding in event.findings), event.place):
        if place:
            # From the right, because a Windows path has a colon of its own.
            file, line, column = [*place.rsplit(":", 2), "", ""][:3]
            if line.isdecimal() and column.isdecimal():
                return Span(file, int(line), int(column))
    return Span(event.file, event.line, event.column)


def location(place: Span, source: Source = source_line) -> list[str]:
    """Return `` --> file:line:column``, the source line and a caret under it.

    The blank before the arrow's path is what mikepenz/action-junit-report looks for.
    """
    lines = [f" --> {shown_file(place.file)}:{place.line}:{place.column}"]
    try:
        text = source(place.file, place.line)
    except ValueError:  # a NUL or a lone surrogate in the name
        text = ""
    if text.strip():
        width = len(text) - len(text.lstrip())
        start = max(place.column - 1, 0)
        # A place is a point; underline from there to the end of the word, so that the eye finds it.
        word = len(text[start:].split(" ", 1)[0].rstrip(":,")) if start >= width else 1
        lines += caret(Span(place.file, place.line, place.column, max(word, 1)), text)
    return lines


def stage_outcomes(stages: Mapping[str, str]) -> str:
    """Return ``dynamo ok · aot ok · decomposition ok · inductor value``; empty when no stage was tried by itself."""
    return one_line(" · ".join(f"{stage_words(stage)} {said}" for stage, said in stages.items()))


def stage_words(stage: str) -> str:
    """Return the name of a row of ``stages`` as people read it."""
    return "with torch's own settings" if stage == AS_USER else stage


def render_failure(event: VariantFinished, source: Source = source_line) -> str:
    """Return the block as plain text, without escape sequences and without a newline at its end."""
    title = headline(event)
    properties = [f"  {name:<9} {value}" for name, value in properties_of(event)]
    lines = [title, *location(span(event), source), *properties]
    for finding in event.findings[:_FINDINGS]:
        lines += _finding(finding, event.stage, title)
    if len(event.findings) > _FINDINGS:
        lines.append(f"  and {plural(len(event.findings) - _FINDINGS, 'more finding')}")
    if event.signal:
        lines.append(f"  signal   {one_line(event.signal)}")
    if event.stack.strip():
        lines += ["  stack", *indent(head_lines(event.stack, _STACK), 4)]
    if event.output.strip():
        lines += ["  last output", *indent(tail_lines(event.output, _OUTPUT), 4)]
    if command_words(event.repro):  # else a log holds something that is not to be pasted into a shell
        # Never cut: a command that lost its end is worse than a long line.
        lines.append(f"  reproduce: {event.repro}")
    return "\n".join(lines)


def properties_of(event: VariantFinished) -> list[tuple[str, str]]:
    """Return severity, oracle, stage, the counts and the remarks that there are: name and one line of text."""
    graphs = [
        plural(count, noun)
        for count, noun in ((event.graphs, "graph"), (event.graph_breaks, "break"), (event.recompiles, "recompile"))
        if count is not None
    ]
    kernels = "" if event.kernels is None else plural(event.kernels, "kernel")
    kernels += f", {event.vectorized} vectorized" if event.vectorized else ""
    kernels += f", {plural(event.replays, 'graph replay')}" if event.replays else ""
    return shown_rows(
        ("severity", event.severity or ""),
        ("signature", f"{event.signature_id} {event.signature}" if event.signature else ""),
        ("oracle", ", ".join(event.oracles)),
        ("stage", event.stage or ""),
        ("stages", stage_outcomes(in_order(event.stages))),
        ("labels", ", ".join(event.labels)),
        ("graphs", ", ".join(graphs)),
        ("kernels", kernels),
        ("delegated", delegation_of(event)),
        *(("break", reason) for reason in event.break_reasons[:3]),
        *(("note", note) for note in event.notes),
    )


def shown_rows(*rows: tuple[str, str], limit: int = MESSAGE_LIMIT) -> list[tuple[str, str]]:
    """Return the rows of a name and a value that say something, each value on one line of at most ``limit``
    characters."""
    return [(name, one_line(value, limit)) for name, value in rows if value]


def _finding(finding: Finding, stage: str | None, summary: str) -> list[str]:
    title = finding.oracle
    if finding.path:
        title += f" at {finding.path}"
    if finding.stage and finding.stage != stage:
        title += f" ({finding.stage})"
    if finding.choice:
        title += f" (a benchmark chose: {finding.choice})"
    # The headline often is this message; twice on one screen is noise.
    message = one_line(finding.message, 400)
    if message and message not in summary:
        title += f": {message}"
    return ["  " + one_line(title, 600), *indent(layout(finding.numbers), 6), *indent(_error(finding.error), 6)]


def _error(error: Mapping[str, Any] | None) -> list[str]:
    """Return ``raised InductorError: message``, the rest of the message, and the exceptions that caused it."""
    if not error:
        return []
    head, *continuation = _message_lines(str(error.get("message") or "")) or [""]
    kind = str(error.get("type") or "exception")
    lines = [f"raised {kind}: {head}" if head else f"raised {kind}", *indent(continuation, 2)]
    causes = [str(name) for name in error.get("chain") or ()][1:]  # the first is the exception itself
    if causes:
        lines.append("caused by " + ", by ".join(causes))
    who = raiser_of(error)
    if who:
        lines.append(who)
    return [clean(line) for line in lines]


def _message_lines(message: str) -> list[str]:
    """Return the first lines of a message, and those from a C++ compiler's diagnosis on where warnings fill the first
    ones."""
    lines = head_lines(message, _ERROR)
    diagnosis = telling_line(message)
    if len(lines) <= _ERROR or any(diagnosis in line for line in lines):
        return lines
    before, _, after = message.partition(diagnosis)
    rest = before.rpartition("\n")[2] + diagnosis + after
    return [*head_lines(message, _ERROR // 2)[:-1], "[...]", *head_lines(rest, _ERROR // 2)]


def raiser_of(error: Mapping[str, Any]) -> str:
    """Return whether a backend's own package raised, or torch within it or around it; empty for torch's own
    backends."""
    origin = error.get("origin") or {}
    by, caller = str(origin.get("raised_by") or ""), str(origin.get("called_by") or "")
    if not by:
        return ""
    if by == caller:
        return one_line(f"raised by {by}, the backend's own package")
    return one_line(f"raised by {by}, called by {caller}" if caller else f"raised by {by}, outside the backend")


# --- numbers -------------------------------------------------------------------------------


def layout(numbers: Mapping[str, Any]) -> list[str]:
    """Return a finding's numbers as sentences; numbers without a sentence here follow as ``name value``.

    The names are those of the worker's comparison: ``mismatched`` of ``elements``; at ``worst_index`` the values
    ``eager``, ``compiled`` and ``reference`` (float64); ``abs_error`` and ``rel_error`` there, with ``atol`` and
    ``rtol``; ``abs_error_max`` anywhere and eager's largest element, ``scale``; errors against float64,
    ``eager_error_max``, ``compiled_error_max``, ``eager_error_rmse``, ``compiled_error_rmse``; the ``multiplier`` that
    would pass; and what ``same`` says.
    """
    remaining = {name: value for name, value in numbers.items() if value is not None}

    def take(name: str) -> Any:
        return remaining.pop(name, None)

    lines = [
        _mismatched(take("mismatched"), take("elements")),
        _worst(take("worst_index"), take("eager"), take("compiled"), take("reference")),
        _difference(take("abs_error"), take("rel_error"), take("atol"), take("rtol")),
        _largest(take("abs_error_max"), take("scale")),
        _errors("worst element", take("eager_error_max"), take("compiled_error_max")),
        _errors("RMSE", take("eager_error_rmse"), take("compiled_error_rmse")),
        _multiplier(take("multiplier")),
        _same(take("same")),
        " · ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in remaining.items()),
    ]
    return [one_line(line, 400) for line in lines if line]


def _mismatched(count: Any, total: Any) -> str:
    if count is None:
        return ""
    if not isinstance(count, int) or not isinstance(total, int) or total <= 0:
        return f"mismatched {number(count)}" + (f" of {number(total)}" if total is not None else "")
    return f"mismatched {count} of {total} ({100 * count / total:.3g} %)"


def _worst(index: Any, eager: Any, compiled: Any, reference: Any) -> str:
    values = {"eager": eager, "compiled": compiled, "float64": reference}
    present = {name: value for name, value in values.items() if value is not None}
    digits = _distinct([*present.values()])
    text = " · ".join(f"{name} {value}" for name, value in zip(present, digits, strict=True))
    if not index:  # none, or [] for a tensor without dimensions
        return text
    return f"worst at {number(index)}" + (f": {text}" if text else "")


def _difference(absolute: Any, relative: Any, atol: Any, rtol: Any) -> str:
    parts = _named(absolute=absolute, relative=relative)
    bounds = _named(atol=atol, rtol=rtol)
    allowed = f" (allowed: {', '.join(bounds)})" if bounds else ""
    return f"difference there: {' · '.join(parts)}{allowed}" if parts else allowed[2:-1]


def _named(**values: Any) -> list[str]:
    """Return ``name value`` for each value that is there."""
    return [f"{name} {number(value)}" for name, value in values.items() if value is not None]


def _largest(difference: Any, scale: Any) -> str:
    if difference is None or scale is None:
        return ""
    return f"largest difference anywhere: {number(difference)}, in a tensor that reaches {number(scale)}"


def _errors(kind: str, eager: Any, compiled: Any) -> str:
    parts = _named(eager=eager, compiled=compiled)
    return f"error against float64, {kind}: " + " · ".join(parts) if parts else ""


def _multiplier(needed: Any) -> str:
    if needed is None:
        return ""
    if str(needed) in ("inf", "nan"):  # a float, or the word that JSON had to carry instead
        return "no multiple of eager's error would pass"
    return f"would pass at {number(needed)} times eager's error"


def _same(verdict: Any) -> str:
    if verdict is None:
        return ""
    words = {True: "equal", False: "different"}.get(verdict) if isinstance(verdict, bool) else None
    return f"torch._dynamo.utils.same says: {words or number(verdict)}"


def _distinct(values: list[Any]) -> list[str]:
    """Return the values as ``number`` writes them, with all digits where nine would make two of them look alike."""
    short = [number(value) for value in values]
    full = [repr(value) if isinstance(value, float) else text for value, text in zip(values, short, strict=True)]
    return short if len(set(short)) == len(set(full)) else full


_HEADERS = ("results", "severity", "signature")


@dataclass(frozen=True, slots=True)
class Group:
    """Results that fail alike. The first member speaks for all."""

    members: tuple[VariantFinished, ...]

    @property
    def severity(self) -> str:
        """Return what the findings are worth; empty for results that rest on none, such as INVALID."""
        return self.members[0].severity or ""

    @property
    def title(self) -> str:
        """Return the signature with its id."""
        first = self.members[0]
        return one_line(f"{first.signature_id} {first.signature}", 400)


def groups_of(results: Iterable[VariantFinished]) -> list[Group]:
    """Return the groups: the worst severity first, then the largest, then the one that came first.

    A result of a log without signatures gets its own.
    """
    signed = (result if result.signature else assess(result) for result in results)
    groups = grouped(signed, lambda result: result.signature)
    return sorted(
        (Group(tuple(members)) for members in groups.values()),
        key=lambda group: (rank_of(group.severity), -len(group.members)),
    )


def render_groups(groups: Iterable[Group], width: int) -> str:
    """Return a table with a line for each group. Signatures are cut where they pass ``width`` columns."""
    rows = [(str(len(group.members)), group.severity or "-", group.title) for group in groups]
    counts, severities = (max(len(row[column]) for row in [_HEADERS, *rows]) for column in (0, 1))
    room = max(24, width - counts - severities - 4)
    lines = [
        f"{count:>{counts}}  {severity:<{severities}}  {one_line(title, room)}"
        for count, severity, title in [_HEADERS, *rows]
    ]
    return "\n".join(lines)


COMMANDS = ("why", "diagnose", "reduce", "repro", "issue")
"""What a person does with a failure, in that order. The first does what the next three do."""

_NEXT = ("why", "issue")
"""Those that the end of a run names."""

_OF_A_LAUNCH = frozenset({"why", "diagnose", "reduce", "repro"})
"""Commands that apply to a plain launch of kernels, which compiles nothing."""

_OF_RUNS = frozenset({"--ledger"})
"""Options with a value that commands about one failure do not take: to them no failure is expected."""

_NOT_OF_REPRO = frozenset({"--seed", "--python"})
"""Those that ``runner repro`` does not take either: it runs nothing."""


def command_of(name: str, run: Sequence[str]) -> str:
    """Return the command ``name`` about a variant, as a shell reads it.

    Args:
        run: the words of the command that runs the variant, of ``command_words``.
    """
    start = run.index("runner")
    words = [word for word in run[start + 2 :] if word != "--no-known"]
    left_out = _OF_RUNS | _NOT_OF_REPRO if name == "repro" else _OF_RUNS
    values = {place + 1 for place, word in enumerate(words) if word in left_out}
    words = [word for place, word in enumerate(words) if place not in values and word not in left_out]
    return " ".join([*run[:start], "runner", name, *words])


def commands_of(event: VariantFinished) -> dict[str, str]:
    """Return what a person may type about a failure, by the names of ``COMMANDS``; empty where its log names no
    command."""
    run = command_words(event.repro)
    names = [name for name in COMMANDS if event.backend != LAUNCH or name in _OF_A_LAUNCH]
    return {name: command_of(name, run) for name in names} if run else {}


def next_lines(groups: Sequence[Group], width: int) -> list[str]:
    """Return at most two lines, one command each; none without a failure. Where nothing was compared, explain says
    why.

    They are about the first group, the worst, with a member that can be named. A command is never cut. What the group
    is stands beside the first command where ``width`` columns have room for it.
    """
    results = [event for group in groups for event in group.members]
    event = next((e for e in results if e.verdict in ("FAIL", "ERROR") and e.findings and commands_of(e)), None)
    if event is None:
        runs = (command_words(result.repro) for result in results if result.verdict == "VACUOUS")
        return [f"next: {command_of('explain', run)}" for run in runs if run][:1]
    commands = [command for name, command in commands_of(event).items() if name in _NEXT]
    lines = [f"{'      ' if number else 'next: '}{command}" for number, command in enumerate(commands)]
    count = next(len(group.members) for group in groups if event in group.members)
    alike = f"  # {plural(count, 'failure')}{' alike' * (count > 1)}: {one_line(event.signature, 120)}"
    if len(lines[0] + alike) <= width:
        lines[0] += alike
    return lines
