"""What the variants of a suite exercise, as far as their own text says it: nothing runs. And that as tables for a
terminal, as JSON, and as a list of what is missing.

A variant under several backends counts once. What a model in Python does is unknown, and its variants are counted as
such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from runner import __version__
from runner.builder.operators import Operator, resolve
from runner.cases.model import Case, Constant, Input, Literal, Variant
from runner.cases.operator_names import SPACES, without_overload
from runner.cases.serialize import resolve_axes
from runner.cases.torch_names import inventory
from runner.cases.walk import all_steps, values_of
from runner.contract.lines import KIND as LINE
from runner.contract.lines import Lines
from runner.contract.oracles import BUDGETS, ORACLES, RULED, TWIN, Oracle
from runner.report.argument_coverage import arguments_of
from runner.report.score import Share
from runner.text import draw_table, in_line, plural

CONSTRUCT = "construct"
"""The kind of constructs of generated code."""

COMPILER = ("operator", "decomposition", "lowering", "fallback", CONSTRUCT, "pass", LINE)
"""Kinds of what a variant reaches in the compiler."""

_AXES = ("dtype", "device", "train", "dynamic", "autocast")
_EXPANDING = ("expand", "expand_as", "broadcast_to")
_CONTIGUOUS = ("contiguous", "clone", "to", "requires_grad_")
_MEMORY_FORMATS = ("torch.channels_last", "torch.channels_last_3d")


@dataclass(frozen=True, slots=True)
class Entry:
    """A name of torch's operator database: how a case may spell it, and the dtypes that torch tests, forward and
    backward."""

    spellings: tuple[str, ...]
    dtypes: tuple[str, ...]
    backward: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """What is exercised of what could be, both sorted."""

    covered: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the variants exercise. ``database`` has the parts ``names``, ``dtypes`` and ``backward``, or none without a
    database.

    ``refused`` are names of the database that no case can write. Numbers count variants; ``inputs`` counts inputs of
    variants by kind.
    """

    cases: int
    variants: int
    unknown: int  # variants of models in Python
    database: Mapping[str, Part]
    refused: tuple[str, ...]
    format: Mapping[str, Part]
    axes: Mapping[str, Mapping[str, int]]
    inputs: Mapping[str, int]
    oracles: Mapping[str, int]
    expectations: Mapping[str, int]
    compiler: Mapping[str, Part] = field(default_factory=dict)  # what a run reached, by kind; nobody knows all passes
    arguments: Mapping[str, Part] = field(
        default_factory=dict
    )  # "arguments" and "values" of the operators that are called
    constructs: Mapping[str, int] = field(default_factory=dict)  # of generated code, those that no variant has with 0


def measure(
    variants: Sequence[Variant],
    entries: Mapping[str, Entry],
    compiler: Mapping[str, Part] | None = None,
    constructs: Mapping[str, int] | None = None,
) -> Coverage:
    """Return what the variants exercise of the entries of torch's database, by name, and of the format's own names.

    ``compiler`` and ``constructs`` are what a run reached: ``reached_parts``, ``count_constructs``.
    """
    once = {variant.label: variant for variant in variants}.values()
    uses: dict[str, set[str]] = {}  # each name with its dtypes, and with "backward"
    names: dict[int, frozenset[str]] = {}
    for variant in once:
        used = names.setdefault(id(variant.case), frozenset(_names(variant.case)))
        for name in used:
            uses.setdefault(name, set()).update(_dtypes(variant), {variant.grad.mode} & {"backward"})
    writable = {name: spellings for name, entry in entries.items() if (spellings := _writable(entry))}
    possible, given, possible_values, values = arguments_of(once)
    return Coverage(
        len({(variant.case.file, variant.case.name) for variant in once}),
        len(once),
        sum(variant.case.module is not None for variant in once),
        _database(entries, writable, uses) if entries else {},
        tuple(sorted(entries.keys() - writable.keys())),
        {space: _part(format_names(space), {*uses}) for space in SPACES},
        {
            **{axis: _tally_of(str(getattr(variant, axis)) for variant in once) for axis in _AXES},
            "grad": _tally_of(variant.grad.mode for variant in once),
        },
        _tally_of(kind for variant in once for item in _inputs(resolve_axes(variant)) for kind in input_kinds(item)),
        _tally_of(row.name for variant in once for row in ORACLES if can_fire(row, variant)),
        _tally_of(word for variant in once for word in _expectations(variant)),
        compiler or {},
        {"arguments": _part(possible, given), "values": _part(possible_values, values)},
        constructs or {},
    )


def reached_parts(reached: Iterable[str], tables: Mapping[str, Sequence[str]]) -> dict[str, Part]:
    """Return by kind what a run reached, and what else the compiler's tables have. ``reached`` is as events have it.

    Of lines only those of the tables count, and there is no part where the tables have none.
    """
    reached = list(reached)
    by_kind: dict[str, set[str]] = {kind: set() for kind in COMPILER if kind != LINE}
    for kind, _, name in (text.partition(" ") for text in reached):
        by_kind.get(kind, set()).add(name)
    parts = {kind: _part({*tables.get(kind, ()), *names}, names) for kind, names in by_kind.items()}
    if LINE in tables:
        table = Lines(tables[LINE])
        missing = table - Lines(reached)
        parts[LINE] = Part(tuple(table - missing), tuple(missing))
    return parts


def count_constructs(reached: Iterable[Collection[str]], tables: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return how many variants have each construct in their generated code, by what each variant reached.

    Those of the table that no variant has are there with 0.
    """
    names = (text.partition(" ") for texts in reached for text in texts)
    return {
        **dict.fromkeys(tables.get(CONSTRUCT, ()), 0),
        **_tally_of(name for kind, _, name in names if kind == CONSTRUCT),
    }


def _tally_of(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words))


def _database(
    entries: Mapping[str, Entry], writable: Mapping[str, set[str]], uses: Mapping[str, set[str]]
) -> dict[str, Part]:
    used = {name: set().union(*(uses.get(spelling, ()) for spelling in writable[name])) for name in writable}
    pairs = {f"{name} {dtype}": (name, dtype) for name in writable for dtype in entries[name].dtypes}
    known = {pair for pair, (name, dtype) in pairs.items() if dtype in used[name]}
    differentiable = [name for name in writable if entries[name].backward]
    return {
        "names": _part(writable, {name for name in writable if uses.keys() & writable[name]}),
        "dtypes": _part(pairs, known),
        "backward": _part(differentiable, {name for name in differentiable if "backward" in used[name]}),
    }


def _writable(entry: Entry) -> set[str]:
    """The spellings that the format takes."""
    return {name for name in entry.spellings if isinstance(resolve(name.removesuffix(_OF_NUMBER)), Operator)}


def _part(possible: Iterable[str], used: set[str]) -> Part:
    every = {*possible}
    return Part(tuple(sorted(every & used)), tuple(sorted(every - used)))


@cache
def format_names(space: str) -> tuple[str, ...]:
    """Return the names of a list of operators that a case may write; of ATen's those without their overloads."""
    names = (f"{SPACES[space]}.{name}" for name in inventory()[space])
    return tuple(name for name in names if isinstance(resolve(name), Operator))


_OF_NUMBER = " of a number"
"""What marks an operator of Python whose first operand is a number: torch tests it by a name of its own, such as
``__radd__``."""


def _names(case: Case) -> Iterator[str]:
    """The operators of a chain. Those of ATen count without their overloads too."""
    for step in all_steps(case.chain):
        yield from (step.operator, without_overload(step.operator))
        if (
            step.operator.startswith("operator.")
            and step.arguments.positional
            and isinstance(step.arguments.positional[0], Literal)
        ):
            yield step.operator + _OF_NUMBER


def _dtypes(variant: Variant) -> set[str]:
    """The dtypes of the inputs; without inputs that of the variant."""
    return {item.dtype or variant.dtype for item in _inputs(variant.case)} or {variant.dtype}


def _inputs(case: Case) -> Iterator[Input]:
    """The tensors among the inputs, those of lists included."""
    pending = [*case.inputs]
    while pending:
        item = pending.pop()
        pending += item.items
        if item.kind in ("tensor", "values", "view"):
            yield item


def input_kinds(item: Input) -> Iterator[str]:
    """Yield what is special about an input: its rank, sizes and strides, as far as the text says them."""
    if item.shape is not None:
        sizes = [size.value if isinstance(size, Literal) else None for size in item.shape]
        yield f"rank {len(sizes)}"
        yield from (kind for size, kind in ((0, "empty"), (1, "with a size of 1")) if size in sizes)
        if None in sizes:
            yield "with a size that is not in the text"
    if item.view_of:
        yield "view of another input"
    members = [step.operator.rpartition(".")[2] for step in all_steps(item.layout)]
    if "contiguous" in members:  # what came before it is undone
        members = members[len(members) - members[::-1].index("contiguous") :]
    constants = {value.name for value in values_of(item.layout) if isinstance(value, Constant)}
    if constants & {*_MEMORY_FORMATS}:
        yield "channels_last"
    elif any(member in _EXPANDING for member in members):
        yield "expanded"
    elif any(member not in _CONTIGUOUS for member in members):
        yield "other strides"


def can_fire(oracle: Oracle, variant: Variant) -> bool:
    """Return whether an oracle can find anything in a variant, by what the case asks for."""
    case, name = variant.case, oracle.name
    if name in case.ignore:
        return False
    if oracle.budget:
        return getattr(case.expect, oracle.budget) is not None
    if oracle.group == "memory-of-kernels":
        return bool(case.kernels)
    if name in ("missing-error", "error-type"):
        return case.expect.raises is not None
    if case.expect.raises is not None:
        return oracle.crash
    if oracle.gradients:
        return variant.grad.mode == "backward" or (name == "requires-grad" and variant.grad.mode == "forward")
    if name == TWIN:
        return bool(case.twin)
    if name in RULED:
        return case.tolerance.values == RULED[name]
    return case.tolerance.exact or case.tolerance.values in ("bitwise", "ulp") if name == "sign-of-zero" else True


def _expectations(variant: Variant) -> Iterator[str]:
    """What a case says of its judgement and its calls beyond equality."""
    case = variant.case
    yield from (f"expect: {key}" for key in ("raises", *BUDGETS) if getattr(case.expect, key) is not None)
    words = {
        "expect: constant": case.expect.constant,
        "calls: more than one": case.calls, "tolerance: exact": case.tolerance.exact,
        "tolerance: its own": case.tolerance.reason,
        "strides: all": case.strides != "significant",
        "twin": case.twin, "ignore": case.ignore, "known": case.known, "state": case.state,
        "requires": case.requires.torch or case.requires.device or case.requires.package,
    }  # fmt: skip
    yield from (word for word, given in words.items() if given)


SCHEMA = 1
"""The version of what ``--json`` writes."""

_COMPILER = {
    "operator": "operators in AOTAutograd's graphs",
    "decomposition": "decompositions",
    "lowering": "lowerings",
    "fallback": "kernels that Inductor calls",
    "construct": "constructs of the code that Inductor writes",
    "pass": "passes that changed something",
    "line": "lines of the compiler",
}
_COUNTABLE = ("decomposition", "lowering", CONSTRUCT, "line")
"""What has a table: torch's, or the worker's of constructs."""

_OF_DATABASE = {
    "names": "names of torch's operator database",
    "dtypes": "each of these with each of its dtypes",
    "backward": "those with gradients, in a backward",
}

_OF_ARGUMENTS = {
    "arguments": "optional arguments of the operators called",
    "values": "values of these: true, false and texts",
}


def render(coverage: Coverage) -> str:
    """Return the tables."""
    unknown = (
        f", {coverage.unknown} of them of models in Python, whose operators are unknown" if coverage.unknown else ""
    )
    parts = [
        f"{plural(coverage.cases, 'case')}, {plural(coverage.variants, 'variant')} without their backends{unknown}"
    ]
    rows = [(_OF_DATABASE[name], part) for name, part in coverage.database.items()]
    rows += [(f"names of the format: {space}", part) for space, part in coverage.format.items()]
    rows += [(_OF_ARGUMENTS[name], part) for name, part in coverage.arguments.items()]
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
        "constructs": coverage.constructs,
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
    "constructs": ("construct of generated code", "variants"),
    "inputs": ("kind of input", "inputs"),
    "oracles": ("kind of difference that can be found", "variants"),
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
    names, dtypes, backward = (coverage.database[name].missing for name in _OF_DATABASE)
    lacking: dict[str, list[str]] = {}
    for pair in dtypes:
        name, _, dtype = pair.rpartition(" ")
        lacking.setdefault(name, []).append(dtype)
    lines = [f"{name}: not exercised" for name in names]
    for name in sorted({*lacking, *backward} - {*names}):
        parts = [" ".join(["without", *lacking[name]])] if name in lacking else []
        lines.append(f"{name}: {', '.join([*parts, *['without a backward'] * (name in backward)])}")
    lines += [f"{name}: cannot be written in a case" for name in coverage.refused]
    lines += [f"argument {name}: not given" for part in coverage.arguments.values() for name in part.missing]
    for kind, part in coverage.compiler.items():
        missing = [f"{kind} {name}" for name in part.missing]
        lines += [f"{name}: not reached" for name in (Lines(missing).texts() if kind == LINE else missing)]
    return [in_line(line) for line in lines]


def to_dict(coverage: Coverage) -> dict[str, Any]:
    """Return it as JSON: of each part the names that are covered and those that are missing."""
    return {"schema": SCHEMA, "runner": __version__, **asdict(coverage)}
