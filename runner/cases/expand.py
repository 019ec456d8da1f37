"""Cases times axes times backends: the variants, with their stable ids, and which of them to run.

The expressions of ``-k`` and of a suite's ``select:`` are ``not``, ``and``, ``or`` and parentheses over words.
``tag:x``, ``case:x``, ``file:x``, ``backend:x``, ``device:x``, ``dtype:x``, ``op:x`` match with ``*`` and ``?``; any
other word matches a part of the id, whatever its case. Another ``prefix:`` is an error outside quotes.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import translate
from operator import attrgetter
from typing import Any, NoReturn

from runner.cases.limits import Limits
from runner.cases.model import MODE_AXES, Backend, Case, Grad, Marks, Suite, Variant, has_forward
from runner.cases.operator_names import operators_of
from runner.cases.params import chosen, rows_of
from runner.cases.yaml.values import flow, resolve
from runner.diagnostics import Diagnostic, InputError, nearest

_PLAIN = re.compile(r"[A-Za-z0-9_.+/*<>=!$%^&|~-]+")
"""Text that stands in an id as it is."""


_CANDIDATES = 3
"""Variants that suites may select among, for each that a command may have: selecting takes 10 microseconds a word."""


def expand(
    suites: Iterable[Suite],
    backends: Sequence[str] = (),
    devices: Sequence[str] = (),
    limits: Limits | None = None,
    refused: list[Diagnostic] | None = None,
) -> list[Variant]:
    """Return every variant of every suite, each once; one that several suites ask for names them all.

    ``backends`` replaces the suites' own; a name that a suite configures keeps its configuration. ``devices`` narrows
    the axis of cases that declare one, and replaces it for the others. A case whose axes multiply beyond the limit is
    added to ``refused`` and left out.

    Raises InputError for such a case where ``refused`` is None, when all variants together pass the limit, and when two
    suites mean different things by one id.
    """
    suites = list(suites)
    limits = limits or Limits()
    file_names = _shown_files({case.file for suite in suites for case in suite.cases})
    variants: list[Variant] = []
    # Only variants of one case in several suites have one id. Their places are kept: a dict of a million ids is large.
    places: dict[tuple[str, str], list[range]] = {}
    characters = candidates = 0
    asking: dict[int, tuple[str, ...]] = {}  # the suites of the variants at these places that several ask for
    alike: set[tuple[int, int]] = set()  # pairs of case objects that mean the same
    choices: dict[tuple[int, str], Case] = {}  # cases with params put in; none goes away while ``alike`` knows its id
    for suite in suites:
        selects = parse_selection(suite.select) if suite.select else None
        suite_backends = _chosen(suite, suites, backends)
        joined = functools.cache(lambda names, name=suite.name: (*names, name))  # one tuple, not one a variant
        for case in suite.cases:
            combinations = _combinations(case)
            excess = _excess(case, combinations, limits)
            if excess is not None:
                if refused is None:
                    raise InputError([excess])
                refused.append(excess)
                continue
            candidates += combinations * len(suite_backends)  # those that are left out later take as long
            if candidates > _CANDIDATES * limits.variants:
                most = _CANDIDATES * limits.variants
                _refuse(case, f"suites select among more than {most} variants", limits.hint("variants"))
            ranges = places.setdefault((case.file, case.name), [])
            known = {variants[place].id: place for span in ranges for place in span}
            made = {name: variants[place] for name, place in known.items()}
            start = len(variants)
            # A suite without a selection takes all: filter(None, ...) leaves out nothing.
            ways = _case_variants(case, suite, suite_backends, devices, file_names[case.file], choices, made)
            for variant in filter(selects, ways):
                place = known.get(variant.id)
                if place is None:
                    variants.append(variant)
                    characters += len(variant.id)
                    if len(variants) > limits.variants:
                        _refuse(case, f"more than {limits.variants} variants", limits.hint("variants"))
                    if characters > limits.id_characters:
                        _refuse(
                            case,
                            f"the ids of the variants up to here have more than {limits.id_characters} characters",
                            limits.hint("id_characters"),
                        )
                    continue
                earlier = variants[place]
                if earlier.backend != variant.backend:
                    _refuse(
                        case,
                        f"backend {variant.backend.name!r} means one thing in {earlier.suites[0]!r} and another in "
                        f"{suite.name!r}",
                        "give one of them a name of its own",
                    )
                own = variant.case
                pair = id(earlier.case), id(own)
                if earlier.case is not own and pair not in alike and _meaning(earlier.case) != _meaning(own):
                    _refuse(
                        case,
                        f"case {case.name!r} means one thing in {earlier.suites[0]!r} and another in {suite.name!r}",
                        "their defaults: differ; run them one at a time",
                    )
                alike.add(pair)
                if more := tuple(entry for entry in case.known if entry.choice and entry not in earlier.case.known):
                    earlier = replace(earlier, case=replace(earlier.case, known=(*earlier.case.known, *more)))
                    variants[place] = earlier
                names = asking.get(place, earlier.suites)
                if suite.name not in names:
                    asking[place] = joined(names)
            ranges.append(range(start, len(variants)))
    for place, names in asking.items():
        variants[place] = replace(variants[place], suites=names)
    return variants


def _refuse(case: Case, message: str, hint: str) -> NoReturn:
    raise InputError([Diagnostic(case.span, message, hint)])


_DECISIVE = attrgetter(
    *(f.name for f in fields(Case) if f.name not in ("doc", "tags", "links", "timeout", "memory", "known"))
)


def _meaning(case: Case) -> tuple[object, ...]:
    """What decides about verdicts. Entries about a benchmark's choice may come from one suite of several."""
    return _DECISIVE(case), tuple(entry for entry in case.known if entry.choice is None)


def _combinations(case: Case) -> int:
    """The product of a case's own axes."""
    axes = (case.devices, case.dtypes, *(getattr(case, axis) for axis in MODE_AXES))
    return math.prod(map(len, axes)) * _rows(case)


def _rows(case: Case) -> int:
    """How many combinations its params have."""
    return math.prod(len(rows) for _, rows in rows_of(case))


def _excess(case: Case, count: int, limits: Limits) -> Diagnostic | None:
    """What is wrong with a case of too many variants, or for which leaving combinations out would take too long."""
    if count > limits.variants:
        return Diagnostic(
            case.span,
            f"the axes of case {case.name!r} multiply to {count} variants, more than {limits.variants}",
            limits.hint("variants"),
        )
    count = _rows(case) * len({tuple(out) for out in case.exclude})
    if count > limits.exclusions:
        return Diagnostic(
            case.span,
            f"exclude: of case {case.name!r} takes {count} comparisons, more than {limits.exclusions}",
            limits.hint("exclusions"),
        )
    return None


def _chosen(suite: Suite, suites: Sequence[Suite], names: Sequence[str]) -> tuple[Backend, ...]:
    """The backends of a suite, or those named: as it configures them, else as another suite does, else torch's own."""
    if not names:
        return suite.backends
    known = {backend.name: backend for owner in (*suites, suite) for backend in owner.backends}
    return tuple(known.get(name, Backend(name, name)) for name in dict.fromkeys(names))


def _case_variants(
    case: Case,
    suite: Suite,
    backends: Sequence[Backend],
    devices: Sequence[str],
    where: str,
    choices: dict[tuple[int, str], Case],
    made: Mapping[str, Variant],
) -> Iterable[Variant]:
    """Yield the variants of a case in a suite; one of ``made`` where it differs in its suites alone."""
    own_devices = case.devices
    if devices:
        declared = "devices" in case.axes
        own_devices = tuple(d for d in own_devices if d in devices) if declared else tuple(dict.fromkeys(devices))
    if suite.devices:
        own_devices = tuple(d for d in own_devices if d in suite.devices)
    dtypes = tuple(d for d in case.dtypes if d in suite.dtypes) if suite.dtypes else case.dtypes
    names = [axis for axis in case.axes if axis != "devices"]
    names = [*dict.fromkeys((*names, *case.params, *MODE_AXES))]
    suites = (suite.name,)
    start = f"{where}::{case.name}["
    # What a combination is called is put together from words that are made once: there may be 100,000 of them.
    ends = [
        (f"{dtype},{device}]@{backend.name}", backend, dtype, device)
        for dtype, device, backend in itertools.product(dict.fromkeys(dtypes), dict.fromkeys(own_devices), backends)
    ]
    excluded: dict[tuple[str, ...], set[tuple[Any, ...]]] = {}  # for each set of params the values left out
    for out in case.exclude:
        excluded.setdefault(tuple(out), set()).add(tuple(out.values()))
    claims_less = any(backend.unclaimed.gradients for backend in backends) and has_forward(case)
    for combination in _combined(case, names):
        axes = {name: value for name, (value, _) in zip(names, combination, strict=True)}
        params = {name: axes[name] for name in case.params}
        if any(tuple([params.get(key) for key in keys]) in values for keys, values in excluded.items()):
            continue
        modes = {name: axes[name] for name in MODE_AXES}
        forward = replace(axes["grad"], mode="forward") if claims_less else None
        label = start + "".join([word for _, word in combination])
        placed = "".join([word for name, (_, word) in zip(names, combination, strict=True) if name in case.placed])
        whole = choices.get((id(case), placed)) or choices.setdefault((id(case), placed), chosen(case, params))
        for end, backend, dtype, device in ends:
            name = label + end
            earlier = made.get(name)
            if earlier is not None and earlier.case is whole and earlier.backend == backend:
                yield earlier
                continue
            own = {**modes, "grad": forward} if backend.unclaimed.gradients and forward else modes
            yield Variant(name, whole, where, backend, dtype, device, params, suites=suites, **own)


_Told = tuple[Any, str]
"""A value of an axis, and what ids say of it."""


def _combined(case: Case, names: Sequence[str]) -> Iterator[Sequence[_Told]]:
    """Yield the values of these axes in all combinations, in their order; params that go together move as one."""
    if not case.zip:
        yield from itertools.product(*(_told(case, name) for name in names))
        return
    groups = {group[0]: (group, rows) for group, rows in rows_of(case) if len(group) > 1}
    followers = {name for group, _ in groups.values() for name in group[1:]}
    units: list[list[tuple[tuple[str, _Told], ...]]] = []
    for name in names:
        if name in groups:
            group, rows = groups[name]
            units.append([tuple((n, (v, _said(case, n, v))) for n, v in zip(group, row, strict=True)) for row in rows])
        elif name not in followers:
            units.append([((name, told),) for told in _told(case, name)])
    for parts in itertools.product(*units):
        values = dict(itertools.chain.from_iterable(parts))
        yield [values[name] for name in names]


def _told(case: Case, axis: str) -> list[_Told]:
    """The values of an axis, each once."""
    values = _values(case, axis)
    if len(values) == 1:
        return [(values[0], "")]
    words: dict[str, Any] = {}
    for value in values:
        words.setdefault(_said(case, axis, value) or _word(value), value)  # of two spellings of one value the first
    return [(value, _said(case, axis, value)) for value in words.values()]


def _said(case: Case, axis: str, value: Any) -> str:
    """What ids say of a value: nothing where the axis has no other."""
    return f"{axis}={_word(value)}," if len(_values(case, axis)) > 1 else ""


def _values(case: Case, axis: str) -> tuple[Any, ...]:
    return case.params[axis] if axis in case.params else getattr(case, axis)


def _word(value: Any) -> str:
    """An axis value as ids show it."""
    if isinstance(value, Grad):
        if value.mode != "backward" or value == Grad("backward"):
            return value.mode
        names = "".join(f"-{name or ''}" for name in value.given)
        return f"{value.cotangent}{names}{value.order}"
    if isinstance(value, Marks):
        return str(value)
    if isinstance(value, tuple):
        return f"[{','.join(map(_word, value))}]"
    if not isinstance(value, str):
        return flow(value)
    return value if _PLAIN.fullmatch(value) and _is_text(value) else json.dumps(value)


def _is_text(word: str) -> bool:
    """Whether YAML reads it as text, so that ``1`` and ``"1"`` have ids of their own."""
    try:
        return isinstance(resolve(word), str)
    except ValueError:
        return False


def _shown_files(files: Iterable[str]) -> dict[str, str]:
    """How ids name each file: by its path from this folder, so that every id can be typed here."""
    here = os.getcwd() if os.path.isdir(os.curdir) else "/"
    return {file: os.path.relpath(file, os.path.realpath(here)) for file in files}


Predicate = Callable[[Variant], bool]

_TOKEN = re.compile(r"\s*(\(|\)|\"[^\"]*\"|'[^']*'|[^\s()]+)")
_FIELDS: dict[str, Callable[[Variant], tuple[str, ...]]] = {
    "tag": lambda v: v.case.tags,
    "case": lambda v: (v.case.name,),
    "file": lambda v: (v.where,),
    "backend": lambda v: (v.backend.name,),
    "device": lambda v: (v.device,),
    "dtype": lambda v: (v.dtype,),
    "op": lambda v: operators_of(v.case),
}


MAX_NESTING = 100


class SelectError(ValueError):
    """An expression that cannot be read."""


@dataclass(frozen=True, slots=True)
class Selection:
    """An expression: call it with a variant. ``terms`` are its fields, each with its pattern."""

    predicate: Predicate
    terms: tuple[tuple[str, str], ...]

    def __call__(self, variant: Variant) -> bool:
        """Return whether the variant is selected."""
        return self.predicate(variant)

    def idle_terms(self, values: Mapping[str, Iterable[str]]) -> list[str]:
        """Return a message for each term that matches none of the ``values`` of its field; fields without values are
        not looked at."""
        messages = []
        for field, pattern in dict.fromkeys(self.terms):
            present = dict.fromkeys(values.get(field, ()))
            if field not in values or any(map(re.compile(translate(pattern)).match, present)):
                continue
            near = nearest(pattern, present)
            messages.append(f"{field}:{pattern} matches no {field} here{'; ' + near if near else ''}")
        return messages


def values_of(variants: Iterable[Variant]) -> dict[str, dict[str, None]]:
    """Return what these variants have in each field."""
    values: dict[str, dict[tuple[str, ...], None]] = {field: {} for field in _FIELDS}
    for variant in variants:
        for field, read in _FIELDS.items():
            values[field][read(variant)] = None
    return {field: dict.fromkeys(itertools.chain.from_iterable(texts)) for field, texts in values.items()}


def parse_selection(text: str) -> Selection:
    """Return the selection of an expression. Raises SelectError, which says where the expression is wrong."""
    tokens = _TOKEN.findall(text)
    if not tokens:
        raise SelectError("the expression is empty")
    if tokens.count("(") + tokens.count("not") > MAX_NESTING:
        raise SelectError(f"more than {MAX_NESTING} parentheses and nots in one expression")
    parser = _Parser(tokens, text)
    predicate = parser.alternatives()
    if parser.tokens:
        raise SelectError(f"{text!r}: unexpected {parser.tokens[0]!r}; join words with and, or")
    return Selection(predicate, tuple(parser.terms))


class _Parser:
    def __init__(self, tokens: list[str], text: str) -> None:
        self.tokens, self.text = deque(tokens), text
        self.terms: list[tuple[str, str]] = []

    def take(self, *words: str) -> bool:
        """Whether the next token is one of ``words``, which it then passes."""
        is_next = bool(self.tokens) and self.tokens[0] in words
        if is_next:
            self.tokens.popleft()
        return is_next

    def alternatives(self) -> Predicate:
        return self.joined("or", any, lambda: self.joined("and", all, self.term))

    def joined(self, word: str, joins: Callable[[Iterable[bool]], bool], part: Callable[[], Predicate]) -> Predicate:
        parts = [part()]
        while self.take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else lambda v: joins(p(v) for p in parts)

    def term(self) -> Predicate:
        if self.take("not"):
            inner = self.term()
            return lambda v: not inner(v)
        if self.take("("):
            inner = self.alternatives()
            if not self.take(")"):
                raise SelectError(f"{self.text!r}: a parenthesis is not closed")
            return inner
        if not self.tokens or self.take("and", "or", ")"):
            raise SelectError(f"{self.text!r}: a word is missing")
        token = self.tokens.popleft()
        if token[0] in "\"'" and (len(token) == 1 or token[-1] != token[0]):
            raise SelectError(f"{self.text!r}: a quote is not closed")
        return self.word(token.strip("\"'"), quoted=token[0] in "\"'")

    def word(self, word: str, quoted: bool) -> Predicate:
        field, colon, pattern = word.partition(":")
        if colon and field in _FIELDS and not pattern.startswith(":"):
            self.terms.append((field, pattern))
            read, match = _FIELDS[field], re.compile(translate(pattern)).match
            matches = functools.lru_cache(1000)(lambda texts: any(map(match, texts)))  # many variants have the same
            return lambda v: matches(read(v))
        # cuda:1 is a part of ids.
        if field.isidentifier() and colon and not quoted and not pattern.startswith(":") and not pattern.isdigit():
            hint = nearest(field, _FIELDS) or f"there are {', '.join(_FIELDS)}; quote text that has a colon"
            raise SelectError(f"unknown field {field!r}: {hint}")
        lowered = word.lower()
        return lambda v: lowered in v.id.lower()
