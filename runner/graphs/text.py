"""Captured cases as the text of a spec file, with the model's own lines as comments above the steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runner.cases.yaml.layout import render
from runner.cases.yaml.tree import Collection, Entry, Node, Scalar, tree_of
from runner.graphs.cases import WrittenGraph
from runner.text import in_line

LONGEST = 100
"""Letters of a model's line that a comment keeps."""


def text_of(graphs: Sequence[WrittenGraph]) -> str:
    """Return the text of a spec file of these graphs, of which each has a case.

    Raises:
        QuoteError: no file can hold one.
    """
    of_cases = [graph for graph in graphs if graph.case is not None]
    root = tree_of({"cases": [graph.case for graph in of_cases]})
    assert isinstance(root, Collection)
    for case, graph in zip(_part(root, "cases").entries, of_cases, strict=True):
        line = ""
        for step, source in zip(_steps(_part(case.value, "chain")), graph.sources, strict=False):
            comment = in_line(source)[:LONGEST].rstrip()
            if comment and comment != line:
                step.before.append(f"# {comment}")
            line = comment or line
    return render(root)


def _part(node: Node, key: str) -> Collection:
    """Return the list or the mapping under a key; it is empty if the key is missing."""
    for entry in node.entries if isinstance(node, Collection) else ():
        if isinstance(entry.key, Scalar) and entry.key.text == key and isinstance(entry.value, Collection):
            return entry.value
    return Collection(False)


def _steps(chain: Collection) -> Iterator[Entry]:
    """Yield the entries of the steps, also of those within blocks."""
    for entry in chain.entries:
        inner = _part(entry.value, "chain")
        if inner.entries:
            yield from _steps(inner)
        else:
            yield entry
