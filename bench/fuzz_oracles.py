"""What ``bench/fuzz.py`` holds every command to. Each oracle takes a trial and its outcome and says what is wrong."""

from __future__ import annotations

import ast
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from fuzz_payloads import CANARY, MARK
from fuzz_process import CHANGES, MEMORY, SECONDS, Outcome
from fuzz_yaml import ROOT

CODES = {
    "validate": {0, 4, 5}, "list": {0, 4, 5}, "show": {0, 4, 5}, "repro": {0, 4, 5}, "ledger": {0, 1, 4, 5}, "report": {0, 4}, "merge": {0, 1, 4},
    "resume": {0, 1, 4, 5}, "rerun": {0, 1, 4, 5}, "write": {0},
}  # fmt: skip
"""The exit codes that each command may have. ``write`` is the fuzzer's own: it loads, writes and loads again."""

READING = ("validate", "list", "show", "repro", "report", "ledger")
"""Commands that write no file as they are called here."""

DIAGNOSTICS = 1 << 20
"""Bytes on standard error."""

_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_HEADER = re.compile(r"(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): (?P<severity>error|warning): (?P<message>.+)")
_NAMED = re.compile(r"(?:^|: )(?:error|warning): ")
_OTHER_LINES = re.compile(
    r" *\d+ \| | +\| |     = |runner: |\d+ errors? in \d+ files?: |\s*\.\.\.|\s*and \d+ more|\s*\d+ more|usage: runner|\[cut\]|$"
)
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_OWN_FILES = re.compile(r"\.runner\b|['/]zq\b['/]|['/]out\b['/]|/state/runner/|/(torch-spec-)?runner-")
"""What commands write that go on with a run, repeat it or join runs."""

_PROGRAMS = {"system", "popen", "Popen", "check_output", "execv", "spawnl"}
_CALLS = {"exec", "eval", "compile", "__import__", "open", "input", "breakpoint"}


@dataclass(frozen=True)
class Problem:
    """A finding: which oracle, in words, and what makes it one with others of the same cause."""

    oracle: str
    detail: str
    cause: str = ""

    @property
    def key(self) -> str:
        """Alike for findings that are probably the same."""
        return f"{self.oracle} {self.cause or re.sub(r'[0-9]+', 'N', self.detail)[:80]}"


def check(command: str, outcome: Outcome, allowed: frozenset[int] = frozenset()) -> Iterator[Problem]:
    """Everything that can be said of one outcome alone. ``allowed`` are further exit codes."""
    yield from _ended(command, outcome, allowed)
    yield from _bounds(command, outcome)
    yield from _streams(command, outcome)
    yield from _acts(command, outcome)
    if command in ("validate", "list", "show", "repro"):
        yield from _places(command, outcome)
    if command in ("show", "repro") and outcome.code == 0:
        yield from python_problems(command, outcome)
    if command == "report" and "--junit" in outcome.argv and outcome.code == 0:
        try:
            ElementTree.fromstring(outcome.out)
        except ElementTree.ParseError as error:
            yield Problem("junit", f"what report prints is no XML: {error}", "no XML")


def _ended(command: str, outcome: Outcome, allowed: frozenset[int]) -> Iterator[Problem]:
    text = (outcome.err + outcome.out).decode("utf-8", "replace")
    if outcome.hung:
        yield Problem("hang", f"{command} was still there after {outcome.wall:.0f} s", command)
    elif outcome.code is None and outcome.signal != signal.SIGXCPU:  # which ``time`` tells
        yield Problem("signal", f"{command} died of signal {outcome.signal}", f"{command} {outcome.signal}")
    elif "Traceback (most recent call last)" in text or "internal error" in text:
        frames = [f"{Path(m['file']).name}:{m['function']}" for m in _FRAME.finditer(text)]
        last = [
            line for line in text.splitlines() if re.match(r"[\w.]+(Error|Exception|Exit|Interrupt|Warning)\b", line)
        ]
        raised = last[-1].split(":")[0].strip() if last else "?"
        yield Problem(
            "traceback",
            f"{command}: {' > '.join(frames[-3:])}: {last[-1][:200] if last else ''}",
            f"{' > '.join(frames[-2:])} {raised}",
        )
    elif outcome.code is not None and outcome.code not in CODES[command] | allowed:
        yield Problem(
            "exit-code",
            f"{command} ended with {outcome.code}: {text.strip()[-200:]}",
            f"{command} {outcome.code} {_blank(text.strip().split(chr(10))[-1])[:60]}",
        )
    elif outcome.code in (4, 5) and not outcome.err.strip():
        yield Problem("silent", f"{command} ended with {outcome.code} and said nothing", f"{command} {outcome.code}")


def _bounds(command: str, outcome: Outcome) -> Iterator[Problem]:
    if outcome.seconds > SECONDS:
        yield Problem("time", f"{command} took {outcome.seconds:.1f} s", command)
    if outcome.memory > MEMORY:
        yield Problem("memory", f"{command} took {outcome.memory >> 20} MiB", command)
    if len(outcome.err) > DIAGNOSTICS:
        yield Problem("text", f"{command} wrote {len(outcome.err)} bytes of diagnostics", command)


def _streams(command: str, outcome: Outcome) -> Iterator[Problem]:
    for name, data in (("stdout", outcome.out), ("stderr", outcome.err)):
        try:
            text = data.removesuffix(b"\n[cut]").decode("utf-8")
        except UnicodeDecodeError as error:
            if error.start < len(data) - 10:  # else the cut went through a character
                yield Problem(
                    "utf-8",
                    f"{name} of {command} is not UTF-8 at byte {error.start}: {data[error.start - 20 : error.start + 20]!r}",
                    f"{command} {name}",
                )
            continue
        if match := _UNFIT.search(text):
            around = text[max(0, match.start() - 30) : match.end() + 30]
            yield Problem(
                "control-character",
                f"{name} of {command} holds {match.group()!r}: {around!r}",
                f"{command} {name} {_blank(text[text.rfind(chr(10), 0, match.start()) + 1 : match.start()])[:40]}",
            )


def _acts(command: str, outcome: Outcome) -> Iterator[Problem]:
    for act in dict.fromkeys(outcome.acts):
        kind = act.split(" ")[0]
        changes = kind == "open" or kind in CHANGES
        if command == "write" and changes and "zq_written" in act:
            continue
        if not changes or command in (*READING, "write") or not _OWN_FILES.search(act):
            yield Problem("act", f"{command} did {act}", f"{command} {_blank(act)[:60]}")


def _places(command: str, outcome: Outcome) -> Iterator[Problem]:
    """Every diagnostic begins a line with its place; nothing else is on standard error."""
    for line in outcome.err.decode("utf-8", "replace").split("\n"):
        if _HEADER.fullmatch(line) or _OTHER_LINES.match(line):
            continue
        if not (outcome.code == 3 and "Traceback" in outcome.err.decode("utf-8", "replace")):
            kind = "is a diagnostic without a place" if _NAMED.search(line) else "is no line of a diagnostic"
            yield Problem("place", f"{command}: {line[:120]!r} {kind}", f"{kind} {_blank(line)[:50]}")
            return


def diagnostics(outcome: Outcome) -> list[re.Match[str]]:
    """The first lines of diagnostics: ``file``, ``line``, ``column``, ``severity``, ``message``."""
    lines = outcome.err.decode("utf-8", "replace").split("\n")
    return [match for match in map(_HEADER.fullmatch, lines) if match]


def kinds(outcome: Outcome) -> set[str]:
    """The messages of an outcome without the values that they name: how far into the program a file came."""
    lines = [line[8:] for line in outcome.err.decode("utf-8", "replace").split("\n") if line.startswith("runner: ")]
    return {_blank(text)[:90] for text in (*lines, *(match["message"] for match in diagnostics(outcome)))}


def _blank(text: str) -> str:
    text = text[:300]  # a line may be a megabyte long, and one of these patterns takes the square of that
    text = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\$\{.*\}", "'...'", text)
    return re.sub(r"\S*[/\\]\S*|\S*zq\S*", "...", re.sub(r"\d+(\.\d+)?", "N", text))


# --- generated Python ------------------------------------------------------------------------


@cache
def _modules() -> frozenset[str]:
    """What a program may import: what the script's template and the shipped Python files do, and what the builder writes."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "specs").rglob("*.py")]
    template = re.sub(
        r"(?s)\{[%#].*?[%#]\}", "", (ROOT / "runner" / "templates" / "repro.py.j2").read_text(encoding="utf-8")
    )
    texts.append("\n".join(re.findall(r"^(?:import|from) .*$", template, re.MULTILINE)))
    trees = [ast.parse(text) for text in texts]
    return frozenset(
        {"torch", "numpy", "triton", "os", "importlib", "sys", "random", "__future__"}
        | {name for tree in trees for name in _imports(tree)}
    )


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def python_problems(command: str, outcome: Outcome) -> Iterator[Problem]:
    """What ``show`` and ``repro`` print is Python, and no name that it imports, calls or reaches into is a payload's."""
    text = outcome.out.decode("utf-8", "replace")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = (getattr(error, "text", "") or "").strip()[:80]
        yield Problem(
            "python", f"what {command} prints is no Python: {error}: {where!r}", f"{command} {_blank(str(error))[:60]}"
        )
        return
    # With --allow-python a file may name the module of its backend, and that module's function.
    allowed = "--allow-python" in outcome.argv
    for name in sorted(set() if allowed else set(_imports(tree)) - _modules()):
        yield Problem("python-name", f"what {command} prints imports {name!r}", f"{command} import")
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if name := _bad_name(node, defined, "" if allowed else MARK):
            yield Problem("python-name", f"what {command} prints has {name}", f"{command} {name}")


def _bad_name(node: ast.AST, defined: set[str], mark: str) -> str:
    """What a payload may have added; ``mark`` begins the names in payloads, empty where these may be reached into."""
    if isinstance(node, ast.Attribute):
        owner = ast.unparse(node.value)
        own = owner == "self" or owner.startswith(("self.", "torch.ops"))
        if (node.attr in _PROGRAMS and owner in ("os", "subprocess")) or (
            mark and node.attr.startswith(mark) and not own
        ):
            return f"{owner[:40]}.{node.attr}"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
        if name in _CALLS or (name.startswith(MARK) and name not in defined):
            return f"{name}()"
    return ""


def skeleton(text: str) -> str:
    """The program without its constants. Raises SyntaxError and the like for what is none."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.value, node.kind = 0, None
    return ast.dump(tree)


def twin_problems(command: str, outcome: Outcome, twin: Outcome) -> Iterator[Problem]:
    """A payload and a harmless text in its place give the same program."""
    if _title(outcome) != _title(twin):
        return  # another case of the file: the first that is selected
    try:
        own, harmless = (skeleton(one.out.decode("utf-8", "replace")) for one in (outcome, twin))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # told already
    if own != harmless:
        at = next(
            (n for n, (a, b) in enumerate(zip(own, harmless, strict=False)) if a != b), min(len(own), len(harmless))
        )
        yield Problem(
            "twin",
            f"{command}: a text changes the program: {own[max(0, at - 60) : at + 100]} ... {harmless[max(0, at - 60) : at + 100]}",
            command,
        )


def _title(outcome: Outcome) -> bytes:
    """The name of the case, which begins a program's docstring."""
    return outcome.out.partition(b'"""')[2].partition(b"[")[0]


def written_problems(
    files: dict[str, tuple[int, int]], before: dict[str, tuple[int, int]], command: str
) -> Iterator[Problem]:
    """The working folder is as it was, and no payload ran."""
    if CANARY in {Path(name).name for name in files}:
        yield Problem("canary", f"{command} ran a payload", command)
    changes = sorted(name for name in files.keys() | before.keys() if files.get(name) != before.get(name))
    if command in READING and changes:
        yield Problem("wrote", f"{command} changed {', '.join(changes[:5])}", f"{command} {Path(changes[0]).suffix}")
