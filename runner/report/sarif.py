"""What is wrong with files, as SARIF 2.1.0: https://docs.oasis-open.org/sarif/sarif/v2.1.0/."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from runner import __version__
from runner.diagnostics import Diagnostic, repository_path
from runner.text import in_line

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RESULTS = 5000
"""Results of a file: code scanning of GitHub shows no more."""

_RULES = {
    "error": ("invalid-case", "A case or a suite cannot be used as it is written."),
    "warning": ("doubtful-case", "A case or a suite is used, and probably means something else."),
}
_BASE = "%SRCROOT%"


def render(diagnostics: Iterable[Diagnostic]) -> str:
    """Return the log of one validation, errors first; results beyond the first ``RESULTS`` are counted in a
    notification."""
    ordered = sorted(diagnostics, key=lambda diagnostic: diagnostic.severity != "error")
    rules = [
        {"id": name, "shortDescription": {"text": text}, "defaultConfiguration": {"level": level}}
        for level, (name, text) in _RULES.items()
    ]
    invocation: dict[str, Any] = {"executionSuccessful": True}
    if len(ordered) > RESULTS:
        text = f"{len(ordered) - RESULTS} more results are left out; runner validate prints each."
        invocation["toolExecutionNotifications"] = [{"level": "warning", "message": {"text": text}}]
    run = {
        "tool": {"driver": {"name": "runner", "semanticVersion": __version__, "rules": rules}},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_BASE: {"description": {"text": "The root of the repository."}}},
        "results": [_result(diagnostic) for diagnostic in ordered[:RESULTS]],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, ensure_ascii=False, indent=1) + "\n"


def _result(diagnostic: Diagnostic) -> dict[str, Any]:
    line, column = max(diagnostic.span.line, 1), max(diagnostic.span.column, 1)
    ends = {"endLine": line, "endColumn": column + max(diagnostic.span.length, 1)}
    text = ". ".join(in_line(part).rstrip(".") for part in (diagnostic.message, diagnostic.hint) if part)
    return {
        "ruleId": _RULES[diagnostic.severity][0],
        "ruleIndex": [*_RULES].index(diagnostic.severity),
        "level": diagnostic.severity,
        "message": {"text": text.replace("](", "] (")},  # else a link, wherever it leads
        "locations": [{"physicalLocation": {"artifactLocation": _artifact(diagnostic.span.file),
        "region": {"startLine": line, "startColumn": column, **ends}}}],
    }  # fmt: skip


def _artifact(file: str) -> dict[str, Any]:
    """A file as a URI: relative to the repository, or else by its whole path."""
    relative = repository_path(file)
    if not relative:
        return {"uri": f"file://{_quoted(os.path.abspath(file))}"}
    return {"uri": _quoted(relative), "uriBaseId": _BASE}  # a colon is quoted, else a first part with one were a scheme


def _quoted(path: str) -> str:
    return quote(path.encode("utf-8", "surrogatepass"), safe="/")
