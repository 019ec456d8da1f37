"""Which arguments of operators the steps of variants give, and which values of true, false and text.

``runner/cases/arguments.json`` has the signatures, of the newest torch that has the operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from runner.cases.model import Literal, Ref, Step, Value, Variant
from runner.cases.signatures import signatures_of
from runner.cases.walk import all_steps


def arguments_of(variants: Iterable[Variant]) -> tuple[set[str], set[str], set[str], set[str]]:
    """Return optional arguments of the operators that the variants call, and those given; values that they may have,
    and those given.

    An argument is ``F.gelu approximate``, and a value ``F.gelu approximate=tanh``. Only of true and false it is known
    which values there may be.
    """
    possible: set[str] = set()
    given: set[str] = set()
    possible_values: set[str] = set()
    values: set[str] = set()
    for step, params in _steps(variants):
        optional = {
            parameter.name: parameter
            for signature in signatures_of(step.operator)
            for parameter in signature
            if parameter.is_optional
        }
        possible |= {f"{step.operator} {name}" for name in optional}
        possible_values |= {
            f"{step.operator} {parameter.name}={word}"
            for parameter in optional.values()
            if parameter.kind == "bool"
            for word in ("true", "false")
        }
        for name, value in _given(step).items():
            if name in optional:
                given.add(f"{step.operator} {name}")
                values |= {f"{step.operator} {name}={word}" for word in _words(value, params)}
    return possible, given, possible_values | values, values


def _steps(variants: Iterable[Variant]) -> Iterator[tuple[Step, Mapping[str, object]]]:
    once = {(id(variant.case), *map(str, variant.params.items())): variant for variant in variants}
    for variant in once.values():
        for step in all_steps(variant.case.chain):
            yield step, variant.params


def _given(step: Step) -> Mapping[str, Value]:
    """Return the arguments of a step by name, as the first signature has them that they fit."""
    keywords = dict(step.arguments.keywords)
    for signature in signatures_of(step.operator):
        known = {parameter.name: parameter for parameter in signature}
        ordered = [parameter for parameter in signature if not parameter.is_keyword]
        placed = dict(zip((parameter.name for parameter in ordered), step.arguments.positional, strict=False))
        by_name = {**placed, **keywords}
        fits = len(step.arguments.positional) <= len(ordered) and by_name.keys() <= known.keys()
        if fits and all(known[name].takes(value) for name, value in by_name.items()):
            return by_name
    return keywords


def _words(value: Value, params: Mapping[str, object]) -> Iterator[str]:
    """Yield true, false or a text, where a value is one of these."""
    plain = value.value if isinstance(value, Literal) else None
    if isinstance(value, Ref) and not value.path:
        plain = params.get(value.name)
    if isinstance(plain, bool):
        yield str(plain).lower()
    elif isinstance(plain, str):
        yield plain
