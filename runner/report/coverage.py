"""What a suite exercises, as tables for a terminal, as JSON, and as a list of what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from runner import __version__
from runner.contract.lines import KIND, Lines
from runner.session.coverage import Coverage, Part
from runner.text import draw_table, in_line, plural
from runner.verdict.score import Share

SCHEMA = 1
"""The version of what ``--json`` writes."""

_COMPILER = {
    "operator": "operators in AOTAutograd's graphs",
    "decomposition": "decompositions",
    "lowering": "lowerings",
    "fallback": "kernels that Inductor calls",
    "pass": "passes that changed something",
    "line": "lines of torch/_inductor and torch/_functorch",
}
_COUNTABLE = ("decomposition", "lowering", "line")
"""What torch has tables of."""

_PARTS = {
    "names": "names of torch's operator database",
    "dtypes": "each of these with each of its dtypes",
    "backward": "those with gradients, in a backward",
}


def render(coverage: Coverage) -> str:
    """Return the tables."""
    unknown = (
        f", {coverage.unknown} of them of models in Python, whose operators are unknown" if coverage.unknown else ""
    )
    parts = [
        f"{plural(coverage.cases, 'case')}, {plural(coverage.variants, 'variant')} without their backends{unknown}"
    ]
    rows = [(_PARTS[name], part) for name, part in coverage.database.items()]
    rows += [(f"names of the format: {space}", part) for space, part in coverage.format.items()]
    parts.append(draw_table([(name, *_counts(part)) for name, part in rows], ("exercised", "", "of", ""), right=True))
    if coverage.compiler:
        kinds = [(_COMPILER[kind], *_counts(part, kind in _COUNTABLE)) for kind, part in coverage.compiler.items()]
        parts.append(draw_table(kinds, ("reached by the run", "", "of", ""), right=True))
    if coverage.refused:
        parts.append(
            f"{plural(len(coverage.refused), 'name')} of the database cannot be written in a case; runner coverage "
            "--missing lists them"
        )
    tallies = {
        **coverage.axes,
        "inputs": coverage.inputs,
        "oracles": coverage.oracles,
        "expectations": coverage.expectations,
    }
    parts += [
        draw_table(_tally(counts), _TITLES.get(name, (name, "variants")), right=True)
        for name, counts in tallies.items()
        if counts
    ]
    return "\n\n".join(parts)


_TITLES = {
    "inputs": ("kind of input", "inputs"),
    "oracles": ("oracle that can fire", "variants"),
    "expectations": ("what a case asks for", "variants"),
}


def _counts(part: Part, is_countable: bool = True) -> tuple[str, str, str]:
    """Return what is covered, of how many, and the share; the first alone where nobody knows how many there are."""
    if not is_countable:
        return str(len(part.covered)), "", ""
    share = Share(len(part.covered), len(part.covered) + len(part.missing))
    return str(share.part), str(share.whole), str(share)


def _tally(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(in_line(name), str(count)) for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def missing_lines(coverage: Coverage) -> list[str]:
    """Return a line for each name of torch's database that is not wholly exercised: whether at all, which dtypes,
    whether in a backward."""
    if not coverage.database:
        return []
    names, dtypes, backward = (coverage.database[name].missing for name in _PARTS)
    lacking: dict[str, list[str]] = {}
    for pair in dtypes:
        name, _, dtype = pair.rpartition(" ")
        lacking.setdefault(name, []).append(dtype)
    lines = [f"{name}: not exercised" for name in names]
    for name in sorted({*lacking, *backward} - {*names}):
        parts = [" ".join(["without", *lacking[name]])] if name in lacking else []
        lines.append(f"{name}: {', '.join([*parts, *['without a backward'] * (name in backward)])}")
    lines += [f"{name}: cannot be written in a case" for name in coverage.refused]
    for kind, part in coverage.compiler.items():
        missing = [f"{kind} {name}" for name in part.missing]
        lines += [f"{name}: not reached" for name in (Lines(missing).texts() if kind == KIND else missing)]
    return [in_line(line) for line in lines]


def to_dict(coverage: Coverage) -> dict[str, Any]:
    """Return it as JSON: of each part the names that are covered and those that are missing."""
    return {"schema": SCHEMA, "runner": __version__, **asdict(coverage)}
