"""Captured cases as the text of a spec file, with the model's own lines as comments above the steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from runner.cases.serialize import emit
from runner.graphs.cases import WrittenGraph
from runner.text import in_line

_MARK = re.compile(r"_line_(\d+)_(?=[A-Za-z])")
_BLOCKS = ("cases", "chain", "inputs", "state")
LONGEST = 100
"""Letters of a model's line that a comment keeps."""


def text_of(graphs: Sequence[WrittenGraph]) -> str:
    """Return the text of a spec file of these graphs, of which each has a case.

    Raises:
        QuoteError: no file can hold one.
    """
    comments: list[str] = []
    cases = [{**case, "chain": _marked(case["chain"], iter(graph.sources), comments)} for graph in graphs
             if (case := graph.case) is not None]  # fmt: skip
    lines = []
    said = ""
    for line in emit({"cases": cases}, _BLOCKS).split("\n"):
        match = re.match(r"\s*- " + _MARK.pattern, line)
        comment = comments[int(match[1])] if match else ""
        said = "" if line.startswith("  - name: ") else said  # each case names its first line
        if comment and comment != said:
            lines.append(f"{line[: len(line) - len(line.lstrip())]}# {comment}")
        said = comment or said
        lines.append(_MARK.sub("", line))
    return "\n".join(lines)


def _marked(chain: Iterable[Any], sources: Iterable[str], comments: list[str]) -> list[Any]:
    """Return a chain whose operators begin with the number of their comment. Blocks hold further steps."""
    steps: list[Any] = []
    sources = iter(sources)
    for step in chain:
        if isinstance(step, dict) and "chain" in step:
            steps.append({**step, "chain": _marked(step["chain"], sources, comments)})
            continue
        comments.append(in_line(next(sources, ""))[:LONGEST].rstrip())
        mark = f"_line_{len(comments) - 1}_"
        if isinstance(step, str):
            steps.append(mark + step)
        else:
            key = next(iter(step))
            steps.append({f"{mark}{key}": step[key], **{k: v for k, v in step.items() if k != key}})
    return steps
