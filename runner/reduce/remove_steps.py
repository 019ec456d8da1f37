"""Steps taken out of a named chain, with something else in the place of what they made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from runner.builder.scope import python_name
from runner.cases.model import Call, Case, Input, Items, Node, Ref, Step, Table, Value, With
from runner.cases.walk import change_nodes, map_steps, names_made, names_used, parts_of, values_of
from runner.reduce.facts import Fact, made_like, part, references
from runner.reduce.names import PREVIOUS, is_in_place, is_statement, substitute, substitute_nodes

INPUT_NAMES = ("x", "y", "z", "a", "b", "c", "p", "q", "r", "s", "u", "w")
"""What a new input is called, whichever is free."""

Facts = Mapping[str, Fact]


def steps_of(nodes: Iterable[Node]) -> Iterator[Step]:
    """Every step of a chain and its blocks, in order; those of functions are not."""
    for node in nodes:
        if isinstance(node, Step):
            yield node
        elif isinstance(node, With):
            yield from steps_of(node.chain)
        else:
            yield from steps_of(node.do)
            yield from steps_of(node.otherwise)


def remove_steps(
    case: Case, kept: Collection[int], facts: Facts, bypass: bool = False, grad: bool = True
) -> Case | None:
    """The named case with the steps of these numbers alone; None where that cannot be written.

    What the others made, and a kept step needs, becomes a new input like it; with ``bypass``, rather an operand of the
    step that made it, or another value of that shape. What is no longer used by a step is returned. Without ``grad`` no new
    input requires a gradient, though the value did.
    """
    every = list(steps_of(case.chain))
    gone = {id(step) for number, step in enumerate(every) if number not in kept}
    chain = _without(case.chain, gone)
    missing = {name for step in every if id(step) in gone for name in step.out} - set(names_made(chain)) - {PREVIOUS}
    if any(name.startswith("self.") for name in missing):
        missing = {name for name in missing if not name.startswith("self.")}
    lost_modules = {step.id or "" for step in every if id(step) in gone} - {""}
    used = names_used(values_of(chain))
    if any(step.operator.removeprefix("self.") in lost_modules for step in steps_of(chain)) or used & {
        f"self.{name}" for name in lost_modules
    }:
        return None
    result = _result(case, chain, missing)
    chain, facts, fields = _apart(chain, facts, missing)
    missing |= fields
    needed = names_used(values_of(chain)) | names_used(parts_of(result) if result is not None else ())
    filler = _Filler(case, chain, facts, every, gone, missing, bypass, grad)
    names: dict[str, Value] = {}
    for name in sorted(needed & missing):
        value = filler.fill(name)
        if value is None:
            return None
        names[name] = value
    chain = substitute_nodes(chain, names)
    result = None if result is None else substitute(result, names)
    return tidy(replace(case, chain=chain, result=result, inputs=(*case.inputs, *filler.inputs)))


class _Filler:
    """Finds what stands in for values that are gone."""

    def __init__(
        self,
        case: Case,
        chain: tuple[Node, ...],
        facts: Facts,
        every: list[Step],
        gone: set[int],
        missing: set[str],
        bypass: bool,
        grad: bool,
    ) -> None:
        self.case, self.facts, self.bypass, self.missing = case, facts, bypass, missing
        self.grad = grad and case.grad[0].mode != "off"
        self.makers = {name: step for step in every if id(step) in gone for name in step.out}
        self.inputs: list[Input] = []
        taken = {item.name for item in (*case.inputs, *case.state)} | set(names_made(case.chain)) | set(case.params)
        self.free = iter(
            [n for n in INPUT_NAMES if n not in taken]
            + [n for n in (f"in{k}" for k in range(1, 999)) if n not in taken]
        )
        self.kept = [name for step in steps_of(chain) for name in step.out if name != PREVIOUS]

    def fact(self, name: str) -> Fact | None:
        return self.facts.get(python_name(name))

    def fill(self, name: str) -> Value | None:
        if self.bypass:
            stand_in = self._operand(name, 0) or self._other(name)
            if stand_in is not None:
                return stand_in
        return self._input(name)

    def _input(self, name: str) -> Value | None:
        """A new input; for a named tuple a list, which ``$name[0]`` reaches into."""
        fact = self.fact(name)
        if fact is None:
            return self._operand(name, 0)
        made = made_like(fact, next(self.free), self.case.span, self.case.dtypes[0], self.grad)
        if made is None:
            return None
        self.inputs.append(made)
        return Ref(made.name, (), self.case.span)

    def _operand(self, name: str, depth: int) -> Ref | None:
        """An operand of the step that made it, or of the step that made that: one of its shape, if shapes are known."""
        step, fact = self.makers.get(name), self.fact(name)
        if step is None or depth > len(self.makers):
            return None
        refs = [ref for ref in _operands(step) if ref.name not in (PREVIOUS, "self")]
        for ref in refs:
            if fact is not None:
                found = part(self.fact(ref.name), ref.path)
                if found is None or found[1] or not fact.is_like(found[0]):
                    continue
            if ref.name not in self.missing:
                return ref
            deeper = self._operand(ref.name, depth + 1)
            if deeper is not None:
                return replace(deeper, path=(*deeper.path, *ref.path))
        return None

    def _other(self, name: str) -> Ref | None:
        """An input of its shape."""
        fact = self.fact(name)
        for item in self.case.inputs:
            if fact is not None and not item.hidden and fact.is_like(self.fact(item.name)):
                return Ref(item.name, (), self.case.span)
        return None


def _apart(chain: tuple[Node, ...], facts: Facts, missing: set[str]) -> tuple[tuple[Node, ...], Facts, set[str]]:
    """Fields of named tuples that are gone, as values of their own: no input is such a tuple."""
    more: dict[str, Fact] = {}

    def change(value: Value) -> Value:
        if not isinstance(value, Ref) or value.name not in missing or not value.path:
            return value
        fact = facts.get(python_name(value.name))
        found = part(fact, value.path[:1]) if fact is not None and fact.kind == "fields" else None
        if found is None:
            return value
        name = f"{value.name}_{value.path[0]}"
        more[name] = found[0]
        return replace(value, name=name, path=value.path[1:])

    changed = change_nodes(chain, change)
    return changed, {**facts, **more}, set(more)


def _operands(step: Step) -> list[Ref]:
    arguments = step.call if step.call is not None else step.arguments
    values = [*arguments.positional, *(value for _, value in arguments.keywords)]
    return [ref for value in values for ref in references(value)]


def _without(nodes: Iterable[Node], gone: set[int]) -> tuple[Node, ...]:
    made: list[Node] = []
    for node in nodes:
        if isinstance(node, Step):
            made += [] if id(node) in gone else [node]
        elif isinstance(node, With):
            inner = _without(node.chain, gone)
            made += [replace(node, chain=inner)] if inner else []
        else:
            do, otherwise = _without(node.do, gone), _without(node.otherwise, gone)
            made += [replace(node, do=do, otherwise=otherwise)] if do or otherwise else []
    return tuple(made)


def _result(case: Case, chain: tuple[Node, ...], missing: set[str]) -> Value | None:
    """What is left of the returned value, and what steps that are left make and nobody uses any more."""
    left = _kept_result(case.result, missing)
    before = names_used(values_of(case.chain))
    spoken = names_used(values_of(chain)) | (names_used(parts_of(left)) if left is not None else set())
    loose = [
        Ref(name, (), step.span)
        for step in steps_of(chain)
        for name in step.out[:1]
        if name not in spoken and name != PREVIOUS and not name.startswith("self.")
        if name in before or left is None
    ]
    if not loose:
        return left if left is not None else _target(chain, missing)
    if left is None:
        return loose[0] if len(loose) == 1 else Items(tuple(loose))
    parts = left.items if isinstance(left, Items) else (left,)
    return Items((*parts, *loose))


def _kept_result(value: Value | None, missing: set[str]) -> Value | None:
    """The returned value without what is gone."""
    if isinstance(value, Items):
        kept = [part for part in (_kept_result(item, missing) for item in value.items) if part is not None]
        return Items(tuple(kept)) if kept else None
    if isinstance(value, Table):
        pairs = [
            (key, part) for key, part in ((k, _kept_result(v, missing)) for k, v in value.items) if part is not None
        ]
        return Table(tuple(pairs)) if pairs else None
    return None if value is None or names_used(parts_of(value)) & missing else value


def _target(chain: tuple[Node, ...], missing: set[str]) -> Value | None:
    """What the last statement writes to, when no step has a value to return."""
    for step in reversed(list(steps_of(chain))):
        if (is_statement(step) or is_in_place(step)) and step.arguments.positional:
            target = step.arguments.positional[0]
            if isinstance(target, Ref) and target.name not in ("self", PREVIOUS):
                return replace(target, path=())
    return None


def with_first_names(case: Case, own: Collection[str]) -> Case:
    """The case with its new inputs (those not among ``own``) called x, y, z, ... as far as these are free by now."""
    taken = {item.name for item in (*case.inputs, *case.state)} | set(names_made(case.chain)) | set(case.params)
    names: dict[str, Value] = {}
    inputs: list[Input] = []
    for item in case.inputs:
        free = [name for name in INPUT_NAMES if name not in taken]
        movable = (
            item.name in INPUT_NAMES and item.name not in own and item.kind in ("tensor", "python") and not case.calls
        )
        if movable and free and INPUT_NAMES.index(free[0]) < INPUT_NAMES.index(item.name):
            names[item.name] = Ref(free[0], (), item.span)
            taken = taken - {item.name} | {free[0]}
            item = replace(item, name=free[0])
        inputs.append(item)
    result = None if case.result is None else substitute(case.result, names)
    return replace(case, inputs=tuple(inputs), chain=substitute_nodes(case.chain, names), result=result)


# --- what is left over ----------------------------------------------------------------------


def tidy(case: Case) -> Case:
    """The case without inputs, state, params and names that nothing uses."""
    while True:
        cleaned = _tidy_once(case)
        if cleaned == case:
            return case
        case = cleaned


def _tidy_once(case: Case) -> Case:
    result = case.result
    used = names_used(values_of(case.chain)) | (names_used(parts_of(result)) if result is not None else set())
    written = {name for step in steps_of(case.chain) for name in step.out if name.startswith("self.")}
    based = {item.view_of for item in (*case.inputs, *case.state) if item.view_of}
    called = {step.operator for step in steps_of(case.chain) if step.operator.startswith("self.")}
    inputs = tuple(item for item in case.inputs if item.name in used | based)
    if case.module is not None or PREVIOUS in used:
        inputs = case.inputs
    there = {item.name for item in inputs}
    calls = tuple(
        Call(call.params, tuple(item for item in call.inputs if item.name in there), call.span) for call in case.calls
    )
    state = tuple(item for item in case.state if f"self.{item.name}" in used | written or item.name in based)
    return replace(
        case,
        inputs=inputs,
        calls=calls,
        state=state,
        chain=map_steps(case.chain, lambda step: _named_if_used(step, used, used | called)),
    )


def _named_if_used(step: Step, used: Collection[str], referred: Collection[str]) -> Step:
    """The step without the names that nobody speaks of; ``referred`` are those that references or calls speak of."""
    out = tuple(name if name in used or name.startswith("self.") else PREVIOUS for name in step.out)
    named = any(name != PREVIOUS for name in out)
    step = replace(step, out=out) if named else replace(step, out=(), unpack=False)
    return replace(step, id=None) if step.id is not None and f"self.{step.id}" not in referred else step
