"""What every command is held to. An oracle takes an outcome and says what is wrong: its name, a colon, and words."""

from __future__ import annotations

import ast
import re
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import yaml

from tests.fuzz.files import Trial
from tests.fuzz.forks import CHANGES, MARK, MEMORY, ROOT, SECONDS, Commands, Outcome, Plant
from tests.fuzz.texts import CANARY
from tests.fuzz.write_back import WRITTEN

CODES = {
    "validate": {0, 4, 5}, "list": {0, 4, 5}, "show": {0, 4, 5}, "repro": {0, 4, 5}, "ledger": {0, 1, 4, 5},
    "report": {0, 4}, "merge": {0, 1, 4},
    "resume": {0, 1, 4, 5}, "rerun": {0, 1, 4, 5}, "write": {0},
}  # fmt: skip
"""The exit codes that each command may have. ``write`` is the fuzzer's own: it loads, writes and loads again."""

READING = ("validate", "list", "show", "repro", "report", "ledger")
"""Commands that write no file as they are called here."""

DIAGNOSTICS = 1 << 20
"""Bytes on standard error."""

_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_HEADER = re.compile(r"(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): (?P<severity>error|warning): (?P<message>.+)")
_OTHER_LINES = re.compile(
    r" *\d+ \| | +\| |     = |runner: |\d+ errors? in \d+ files?: |\s*\.\.\.|\s*(and )?\d+ more|usage: runner|\[cut\]|$"
)
_OWN_FILES = re.compile(r"\.runner\b|['/]zq\b['/]|['/]out\b['/]|/state/runner/|/(torch-spec-)?runner-")
"""What commands write that go on with a run, repeat it or join runs."""

_NO_PROGRAM = (SyntaxError, ValueError, RecursionError, MemoryError)
_CALLS = {"exec", "eval", "compile", "__import__", "open", "input", "breakpoint"}
_PROGRAMS = {"system", "popen", "Popen", "check_output", "execv", "spawnl"}


def judge(trial: Trial, commands: Commands, plant: Plant | None = None) -> tuple[Outcome, list[str]]:
    """Run a trial; return what became of it and all that is wrong with it."""
    outcome = commands.run(trial.files, trial.words, plant)
    problems = [*check(outcome, _claimed(trial)), *_further(trial, outcome, commands, plant)]
    return outcome, problems


def check(outcome: Outcome, allowed: frozenset[int] = frozenset()) -> Iterator[str]:
    """Everything that can be said of one outcome alone. ``allowed`` are further exit codes."""
    command = outcome.words[0]
    yield from _ended(outcome, CODES[command] | allowed)
    yield from _bounds(outcome)
    yield from _streams(outcome)
    yield from _acts(outcome)
    if command in ("validate", "list", "show", "repro"):
        yield from _placed(outcome)
    if command in ("show", "repro") and outcome.code == 0:
        yield from _python(outcome)
    if command == "write":
        yield from (f"write-back: {line}" for line in _text(outcome.out).split("\n") if line.startswith("WRITTEN "))
    if command == "report" and "--junit" in outcome.words and outcome.code == 0:
        try:
            ElementTree.fromstring(outcome.out)
        except ElementTree.ParseError as error:
            yield f"junit: what report prints is no XML: {error}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _ended(outcome: Outcome, codes: set[int] | frozenset[int]) -> Iterator[str]:
    text = _text(outcome.err + outcome.out)
    if outcome.hung:
        yield "hang: it does not end"
    elif outcome.code is None and outcome.signal != signal.SIGXCPU:  # which ``time`` tells
        yield f"signal: it died of signal {outcome.signal}"
    elif "Traceback (most recent call last)" in text or "internal error" in text:
        yield f"traceback: {text[-1500:]}"
    elif outcome.code is not None and outcome.code not in codes:
        yield f"exit-code: {outcome.code}: {text.strip()[-200:]}"
    elif outcome.code in (4, 5) and not outcome.err.strip():
        yield f"silent: it ended with {outcome.code} and said nothing"


def _bounds(outcome: Outcome) -> Iterator[str]:
    if outcome.seconds > SECONDS:
        yield f"time: {outcome.seconds:.1f} s"
    if outcome.memory > MEMORY:
        yield f"memory: {outcome.memory >> 20} MiB"
    if len(outcome.err) > DIAGNOSTICS:
        yield f"text: {len(outcome.err)} bytes of diagnostics"


def _streams(outcome: Outcome) -> Iterator[str]:
    for name, data in (("stdout", outcome.out), ("stderr", outcome.err)):
        try:
            text = data.removesuffix(b"\n[cut]").decode("utf-8")
        except UnicodeDecodeError as error:
            if error.start < len(data) - 10:  # else the cut went through a character
                yield f"utf-8: {name} is not UTF-8: {data[max(0, error.start - 20) : error.start + 20]!r}"
            continue
        if match := _UNFIT.search(text):
            yield f"control-character: {name} has {text[max(0, match.start() - 30) : match.end() + 30]!r}"


def _acts(outcome: Outcome) -> Iterator[str]:
    command = outcome.words[0]
    for act in dict.fromkeys(outcome.acts):
        kind = act.split(" ")[0]
        changes = kind == "open" or kind in CHANGES
        if command == "write" and changes and WRITTEN.partition(".")[0] in act:
            continue
        if not changes or command in (*READING, "write") or not _OWN_FILES.search(act):
            yield f"act: {command} did {act}"
    if CANARY in {Path(name).name for name in outcome.changes}:
        yield f"canary: {command} ran a hostile text"
    if command in READING and outcome.changes:
        yield f"wrote: {command} changed {outcome.changes[:5]}"


def _placed(outcome: Outcome) -> Iterator[str]:
    """Every diagnostic begins a line with its place; nothing else is on standard error."""
    for line in _text(outcome.err).split("\n"):
        if not _HEADER.fullmatch(line) and not _OTHER_LINES.match(line):
            yield f"place: {line[:120]!r} is no line of a diagnostic with a place"
            return


def diagnostics(outcome: Outcome) -> list[re.Match[str]]:
    """The first lines of diagnostics: ``file``, ``line``, ``column``, ``severity``, ``message``."""
    return [match for match in map(_HEADER.fullmatch, _text(outcome.err).split("\n")) if match]


def kinds(outcome: Outcome) -> set[str]:
    """The messages of an outcome without the values that they name: how far into the program a file came."""
    lines = [line[8:] for line in _text(outcome.err).split("\n") if line.startswith("runner: ")]
    return {_blank(text)[:90] for text in (*lines, *(match["message"] for match in diagnostics(outcome)))}


def _blank(text: str) -> str:
    text = text[:300]  # a line may be a megabyte long, and one of these patterns takes the square of that
    text = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\$\{.*\}", "'...'", text)
    return re.sub(r"\S*[/\\]\S*|\S*zq\S*", "...", re.sub(r"\d+(\.\d+)?", "N", text))


# --- generated Python ------------------------------------------------------------------------


@cache
def _modules() -> frozenset[str]:
    """What a program may import: what the script's template, the shipped Python files and the builder do."""
    template = (ROOT / "runner" / "templates" / "repro.py.j2").read_text(encoding="utf-8")
    template = re.sub(r"(?s)\{[%#].*?[%#]\}", "", template)
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "specs").rglob("*.py")]
    texts.append("\n".join(re.findall(r"^(?:import|from) .*$", template, re.MULTILINE)))
    own = {"torch", "numpy", "triton", "os", "importlib", "sys", "random", "__future__"}
    return frozenset(own.union(*(_imports(ast.parse(text)) for text in texts)))


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def _python(outcome: Outcome) -> Iterator[str]:
    """What ``show`` and ``repro`` print is Python. It imports, calls and reaches into no name of a hostile text."""
    try:
        tree = ast.parse(_text(outcome.out))
    except _NO_PROGRAM as error:
        yield f"python: what it prints is no Python: {error}: {getattr(error, 'text', '')!r:.80}"
        return
    # With --allow-python a file may name the module of its backend, and that module's function.
    allowed = "--allow-python" in outcome.words
    yield from (f"python-name: it imports {name!r}" for name in {*_imports(tree)} - _modules() if not allowed)
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            own = allowed or owner == "self" or owner.startswith(("self.", "torch.ops"))
            program = node.attr in _PROGRAMS and owner in ("os", "subprocess")
            if program or (node.attr.startswith(MARK) and not own):
                yield f"python-name: it has {owner[:40]}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name in _CALLS or (name.startswith(MARK) and name not in defined):
                yield f"python-name: it has {name}()"


def skeleton(text: str) -> str:
    """Return the program without its constants. Raises SyntaxError and the like for another text."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.value, node.kind = 0, None
    return ast.dump(tree)


def twin_problems(outcome: Outcome, twin: Outcome) -> Iterator[str]:
    """A hostile text and a harmless one in its place give the same program."""
    titles = {_text(run.out).partition('"""')[2].partition("[")[0] for run in (outcome, twin)}
    if len(titles) > 1:
        return  # another case of the file: the first that is selected
    try:
        own, harmless = (skeleton(_text(run.out)) for run in (outcome, twin))
    except _NO_PROGRAM:
        return  # told already
    if own != harmless:
        at = next((n for n, (a, b) in enumerate(zip(own, harmless, strict=False)) if a != b), 0)
        around = slice(max(0, at - 60), at + 100)
        yield f"twin: a text changes the program: {own[around]} ... {harmless[around]}"


# --- what takes another run ------------------------------------------------------------------


def _further(trial: Trial, outcome: Outcome, commands: Commands, plant: Plant | None) -> Iterator[str]:
    command = trial.words[0]
    if trial.again and command in READING:
        again = commands.run(trial.files, trial.words, plant)
        if (again.code, again.out, again.err) != (outcome.code, outcome.out, outcome.err):
            yield f"repeatable: {command} says something else the second time"
    if command in ("show", "repro", "list") and trial.kind == "spec" and outcome.out:
        lines = default_lines(trial.files[trial.name])
        validated = commands.run(trial.files, ("validate", trial.name, "--allow-python"), plant) if lines else outcome
        errors = [int(match["line"]) for match in diagnostics(validated) if match["severity"] == "error"
                  and match["file"] == trial.name and "is never used" not in match["message"]]  # fmt: skip
        yield from (f"refused: {command} goes on although line {line} is refused" for line in errors if line in lines)
    if command in ("show", "repro") and trial.twin is not None and outcome.code == 0:
        twin = commands.run(trial.twin, trial.words, plant)
        if twin.code == 0:
            yield from twin_problems(outcome, twin)


def default_lines(data: bytes) -> set[int]:
    """The lines of a file's ``defaults:`` alone, without those of keys that are checked with each case."""
    try:
        root = yaml.compose(data, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError):
        return set()
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    defaults = [pair for pair in pairs if pair[0].value == "defaults"]
    own = [pair for _, node in defaults if isinstance(node, yaml.MappingNode) for pair in node.value]
    elsewhere = [pair for pair in pairs if pair[0].value != "defaults"]
    elsewhere += [pair for pair in own if pair[0].value in ("params", "exclude", "module", "chain", "grad")]
    return _lines(defaults) - _lines(elsewhere) if len(defaults) == 1 else set()


def _lines(pairs: list[tuple[yaml.Node, yaml.Node]]) -> set[int]:
    lines: set[int] = set()
    for key, value in pairs:
        ends_here = value.end_mark.column and getattr(value, "flow_style", True)  # a block ends where the next begins
        lines |= {*range(key.start_mark.line + 1, value.end_mark.line + (2 if ends_here else 1))}
    return lines


def _claimed(trial: Trial) -> frozenset[int]:
    """Exit codes that a log says its run had: ``resume`` of a finished run repeats it."""
    if trial.words[0] != "resume":
        return frozenset()
    lines = [line for line in trial.files[trial.name].splitlines() if b"run-finished" in line]
    return frozenset(code for code in range(6) for line in lines if f'"exit_code": {code}'.encode() in line)
