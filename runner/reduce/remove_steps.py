"""Remove steps from a named chain, and put something else in the place of the values that they made."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from runner.builder.names_and_values import python_name
from runner.cases.model import Call, Case, If, Input, Items, Node, Ref, Step, Table, Value, With
from runner.cases.walk import change_nodes, map_steps, names_made, names_used, parts_of, values_of
from runner.reduce.names import PREVIOUS, is_in_place, is_statement, substitute_case
from runner.reduce.value_info import ValueInfo, component, input_like, references

INPUT_NAMES = ("x", "y", "z", "a", "b", "c", "p", "q", "r", "s", "u", "w")
"""Names for new inputs, in the order in which they are tried."""

ValueInfos = Mapping[str, ValueInfo]


def nodes_of(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield every node of a chain and its blocks, in order, wholes before parts, but not those of functions."""
    for node in nodes:
        yield node
        if isinstance(node, With):
            yield from nodes_of(node.chain)
        elif isinstance(node, If):
            yield from nodes_of((*node.do, *node.otherwise))


def steps_of(nodes: Iterable[Node]) -> Iterator[Step]:
    """Yield the steps among ``nodes_of``."""
    return (node for node in nodes_of(nodes) if isinstance(node, Step))


def remove_steps(
    case: Case, numbers: Collection[int], value_infos: ValueInfos, bypass: bool = False, grad: bool = True
) -> Case | None:
    """Return the named case with only the steps of these numbers; None where that cannot be written.

    A remaining step may need a value that a removed step made. A new input like that value takes its place. With
    ``bypass``, an operand of the removed step or another input of that shape does, where there is one. Values that lost
    their last user are returned. Without ``grad`` no new input requires a gradient.
    """
    steps = list(steps_of(case.chain))
    removed = [step for number, step in enumerate(steps) if number not in numbers]
    chain = replace_nodes(case.chain, {id(step): () for step in removed})
    if _uses_modules(chain, {step.id for step in removed if step.id}):
        return None
    missing = {name for step in removed for name in step.out} - set(names_made(chain)) - {PREVIOUS}
    missing = {name for name in missing if not name.startswith("self.")}
    result = _result(case, chain, missing)
    case = with_result(case, result)
    chain, value_infos, fields = _split_fields(chain, value_infos, missing)
    missing |= fields
    needed = names_used(values_of(chain)) | _names_of(result)
    replacements = _Replacements(case, removed, value_infos, missing, bypass, grad)
    names: dict[str, Value] = {}
    for name in sorted(needed & missing):
        value = replacements.value_for(name)
        if value is None:
            return None
        names[name] = value
    shorter = replace(case, chain=chain, result=result, inputs=(*case.inputs, *replacements.inputs))
    return tidy(substitute_case(shorter, names))


class _Replacements:
    """Finds values that replace ``missing`` ones; ``inputs`` are the new inputs among them."""

    def __init__(
        self, case: Case, removed: Iterable[Step], value_infos: ValueInfos, missing: set[str], bypass: bool, grad: bool
    ) -> None:
        self.case, self.value_infos, self.missing, self.bypass = case, value_infos, missing, bypass
        self.grad = grad and case.grad[0].mode != "off"
        self.makers = {name: step for step in removed for name in step.out}
        self.inputs: list[Input] = []
        used = _used_names(case)
        numbered = (f"in{number}" for number in itertools.count(1))
        self.free_names = (name for name in itertools.chain(INPUT_NAMES, numbered) if name not in used)

    def value_for(self, name: str) -> Value | None:
        if self.bypass:
            value = self._operand(name) or self._input_of_shape(name)
            if value is not None:
                return value
        return self._new_input(name)

    def _info(self, name: str) -> ValueInfo | None:
        return self.value_infos.get(python_name(name))

    def _new_input(self, name: str) -> Value | None:
        """Return a new input; for a named tuple it is a list, so that ``$name[0]`` still works."""
        info = self._info(name)
        if info is None:
            return self._operand(name)
        item = input_like(info, next(self.free_names), self.case.span, self.case.dtypes[0], self.grad)
        if item is None:
            return None
        self.inputs.append(item)
        return Ref(item.name, (), self.case.span)

    def _operand(self, name: str, depth: int = 0) -> Ref | None:
        """Return an operand of the step that made the value, or of a removed step before it; of its shape, if that is
        known."""
        maker, info = self.makers.get(name), self._info(name)
        if maker is None or depth > len(self.makers):
            return None
        for ref in _operands(maker):
            if ref.name in (PREVIOUS, "self") or not self._may_replace(ref, info):
                continue
            if ref.name not in self.missing:
                return ref
            deeper = self._operand(ref.name, depth + 1)
            if deeper is not None:
                return replace(deeper, path=(*deeper.path, *ref.path))
        return None

    def _may_replace(self, ref: Ref, info: ValueInfo | None) -> bool:
        if info is None:
            return True
        operand = component(self._info(ref.name), ref.path)
        return operand is not None and not operand[1] and info.is_like(operand[0])

    def _input_of_shape(self, name: str) -> Ref | None:
        info = self._info(name)
        for item in self.case.inputs:
            if info is not None and not item.hidden and info.is_like(self._info(item.name)):
                return Ref(item.name, (), self.case.span)
        return None


def _split_fields(
    chain: tuple[Node, ...], value_infos: ValueInfos, missing: set[str]
) -> tuple[tuple[Node, ...], ValueInfos, set[str]]:
    """Make the used fields of missing named tuples values of their own, since no input is such a tuple.

    Returns:
        The chain, the infos with those of the fields, and the names of the fields.
    """
    fields: dict[str, ValueInfo] = {}

    def change(value: Value) -> Value:
        if not isinstance(value, Ref) or value.name not in missing or not value.path:
            return value
        info = value_infos.get(python_name(value.name))
        field = component(info, value.path[:1]) if info is not None and info.kind == "fields" else None
        if field is None:
            return value
        name = f"{value.name}_{value.path[0]}"
        fields[name] = field[0]
        return replace(value, name=name, path=value.path[1:])

    changed = change_nodes(chain, change)
    return changed, {**value_infos, **fields}, set(fields)


def _operands(step: Step) -> list[Ref]:
    arguments = step.call if step.call is not None else step.arguments
    values = [*arguments.positional, *(value for _, value in arguments.keywords)]
    return [ref for value in values for ref in references(value)]


def replace_nodes(nodes: Iterable[Node], replacements: Mapping[int, Sequence[Node]]) -> tuple[Node, ...]:
    """Return the chain with other nodes for those of these identities, and without blocks that are empty then."""
    remaining: list[Node] = []
    for node in nodes:
        if id(node) in replacements:
            remaining += replacements[id(node)]
        elif isinstance(node, With):
            inner = replace_nodes(node.chain, replacements)
            remaining += [replace(node, chain=inner)] if inner else []
        elif isinstance(node, If):
            do, otherwise = (replace_nodes(branch, replacements) for branch in (node.do, node.otherwise))
            remaining += [replace(node, do=do, otherwise=otherwise)] if do or otherwise else []
        else:
            remaining.append(node)
    return tuple(remaining)


def _uses_modules(chain: tuple[Node, ...], modules: set[str]) -> bool:
    """Return whether the chain calls or reads one of these modules, whose steps have gone."""
    called = {step.operator.removeprefix("self.") for step in steps_of(chain)}
    used = {name.removeprefix("self.") for name in names_used(values_of(chain)) if name.startswith("self.")}
    return bool(modules & (called | used))


def _result(case: Case, chain: tuple[Node, ...], missing: set[str]) -> Value | None:
    """Return the remaining part of the returned value, and with it the values that lost their last user."""
    result = _remaining_result(case.result, missing)
    orphans = _orphans(case, chain, result)
    if not orphans:
        return result if result is not None else _last_target(chain)
    if result is None:
        return orphans[0] if len(orphans) == 1 else Items(tuple(orphans))
    parts = result.items if isinstance(result, Items) else (result,)
    return Items((*parts, *orphans))


def _orphans(case: Case, chain: tuple[Node, ...], result: Value | None) -> list[Ref]:
    """Return the values of ``chain`` that nothing uses: those used in the whole case, or all of them without a
    result."""
    used_before = names_used(values_of(case.chain))
    used = names_used(values_of(chain)) | _names_of(result)
    values = [Ref(step.out[0], (), step.span) for step in steps_of(chain) if step.out]
    return [
        ref
        for ref in values
        if ref.name not in used
        and ref.name != PREVIOUS
        and not ref.name.startswith("self.")
        and (result is None or ref.name in used_before)
    ]


def _names_of(result: Value | None) -> set[str]:
    return set() if result is None else names_used(parts_of(result))


def _remaining_result(value: Value | None, missing: set[str]) -> Value | None:
    """Return the returned value without the parts that use missing names; None if nothing remains."""
    if isinstance(value, Items):
        items = [part for part in (_remaining_result(item, missing) for item in value.items) if part is not None]
        return Items(tuple(items)) if items else None
    if isinstance(value, Table):
        entries = [(key, _remaining_result(item, missing)) for key, item in value.items]
        pairs = [(key, part) for key, part in entries if part is not None]
        return Table(tuple(pairs)) if pairs else None
    return None if value is None or names_used(parts_of(value)) & missing else value


def _last_target(chain: tuple[Node, ...]) -> Value | None:
    """Return the value that the last statement writes to, for a chain in which no step has a value to return."""
    for step in reversed(list(steps_of(chain))):
        if (is_statement(step) or is_in_place(step)) and step.arguments.positional:
            target = step.arguments.positional[0]
            if isinstance(target, Ref) and target.name not in ("self", PREVIOUS):
                return replace(target, path=())
    return None


def with_result(case: Case, result: Value | None) -> Case:
    """Return the named case with another result. The tolerance of an output goes where that output is now."""
    new = {id(value): path for path, value in _places(result)}
    old = sorted(_places(case.result), key=lambda item: -len(item[0]))
    by_place = {}
    for place, bounds in case.tolerance.by_place.items():
        start, value = next(((path, value) for path, value in old if place.startswith(path)), ("", None))
        if not start:
            by_place[place] = bounds
        elif id(value) in new:
            by_place[new[id(value)] + place.removeprefix(start)] = bounds
    return replace(case, result=result, tolerance=replace(case.tolerance, by_place=by_place))


def _places(value: Value | None, path: str = "output") -> list[tuple[str, Value]]:
    """The values of a result, each with the path that findings give it."""
    if isinstance(value, Items):
        return [place for index, item in enumerate(value.items) for place in _places(item, f"{path}[{index}]")]
    if isinstance(value, Table):
        return [place for key, item in value.items for place in _places(item, f"{path}[{key!r}]")]
    return [] if value is None else [(path, value)]


def with_first_names(case: Case, own: Collection[str]) -> Case:
    """Rename the new inputs (those not among ``own``) to x, y, z, ... as far as these names are free by now."""
    used = _used_names(case)
    names: dict[str, Value] = {}
    inputs: list[Input] = []
    for item in case.inputs:
        free = [name for name in INPUT_NAMES if name not in used]
        movable = (
            item.name in INPUT_NAMES and item.name not in own and item.kind in ("tensor", "python") and not case.calls
        )
        if movable and free and INPUT_NAMES.index(free[0]) < INPUT_NAMES.index(item.name):
            names[item.name] = Ref(free[0], (), item.span)
            used = used - {item.name} | {free[0]}
            item = replace(item, name=free[0])
        inputs.append(item)
    return substitute_case(replace(case, inputs=tuple(inputs)), names)


def _used_names(case: Case) -> set[str]:
    return {item.name for item in (*case.inputs, *case.state)} | set(names_made(case.chain)) | set(case.params)


# --- unused names ---------------------------------------------------------------------------


def tidy(case: Case) -> Case:
    """Return the case without inputs, state, params and names that nothing uses."""
    while True:
        cleaned = _tidy_once(case)
        if cleaned == case:
            return case
        case = cleaned


def _tidy_once(case: Case) -> Case:
    used = names_used(values_of(case.chain)) | _names_of(case.result)
    assigned = {name for step in steps_of(case.chain) for name in step.out if name.startswith("self.")}
    bases = {item.view_of for item in (*case.inputs, *case.state) if item.view_of}
    bases |= {name for grad in case.grad for name in grad.given if name is not None}
    called = {step.operator for step in steps_of(case.chain) if step.operator.startswith("self.")}
    inputs = tuple(item for item in case.inputs if item.name in used | bases)
    if case.module is not None or PREVIOUS in used:
        inputs = case.inputs
    names = {item.name for item in inputs}
    calls = tuple(
        Call(call.params, tuple(item for item in call.inputs if item.name in names), call.span) for call in case.calls
    )
    state = tuple(item for item in case.state if f"self.{item.name}" in used | assigned or item.name in bases)
    return replace(
        case,
        inputs=inputs,
        calls=calls,
        state=state,
        chain=map_steps(case.chain, lambda step: _named_if_used(step, used, used | called)),
    )


def _named_if_used(step: Step, used: Collection[str], referred: Collection[str]) -> Step:
    """Return the step without names that nothing uses; ``referred`` are names in references or calls."""
    out = tuple(name if name in used or name.startswith("self.") else PREVIOUS for name in step.out)
    named = any(name != PREVIOUS for name in out)
    step = replace(step, out=out) if named else replace(step, out=(), unpack=False)
    return replace(step, id=None) if step.id is not None and f"self.{step.id}" not in referred else step
