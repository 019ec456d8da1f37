"""``triage.yaml`` of a hunt's folder: what people say of its groups.

A hunt reads it, and writes only the first, empty one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.cases.yaml.reader import load, read_text
from runner.cases.yaml.values import Mistyped, YamlNode, entries, fields, scalar
from runner.diagnostics import Diagnostic, InputError, nearest
from runner.files import naming
from runner.hunt.state import SIGNATURE_ID

FILE = "triage.yaml"

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

EMPTY = f"""\
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


def write_empty(folder: Path) -> None:
    """Write the file for people to edit, unless there is one."""
    path = folder / FILE
    with contextlib.suppress(FileExistsError), naming(path), open(path, "x", encoding="utf-8") as file:
        file.write(EMPTY)


def read(folder: Path) -> dict[str, Triage]:
    """Return what people say of a hunt's groups, by the ids of signatures; nothing where there is no file.

    Raises:
        InputError: the file is wrong; the diagnostics have its places.
    """
    path = folder / FILE
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
    for name in values.keys() - {"triage", "reason", "link"}:
        errors.append(Diagnostic(values[name].span, f"no key {name[:40]!r} of a group: triage, reason, link"))
    word, reason, link = (str(scalar(values.get(name), str, default="")) for name in ("triage", "reason", "link"))
    if word not in WORDS:
        near = nearest(word, WORDS) or ", ".join(WORDS)
        errors.append(Diagnostic(node.span, f"triage is {word[:40]!r}, which is not one of its words", near))
        return None
    if word in EXPLAINED and not (reason or link):
        errors.append(Diagnostic(node.span, f"{word} needs a reason or a link: {WORDS[word]}"))
        return None
    return Triage(word, reason, link)
