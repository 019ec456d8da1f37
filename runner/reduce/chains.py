"""Chains with a name for every value, and back; and without some of their steps.

Without ``$_``, removing a step does not change what others refer to. Something else is put in the place of the values
that removed steps made.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.builder.chain import GRAPH_BREAK, STATEMENTS
from runner.builder.names_and_values import python_name
from runner.builder.operators import has_only_a_value
from runner.cases import expressions
from runner.cases.model import (
    Arguments,
    Arithmetic,
    Call,
    Case,
    Function,
    If,
    Index,
    Input,
    Items,
    Key,
    Literal,
    Marks,
    Node,
    Ref,
    Step,
    Table,
    Value,
    With,
)
from runner.cases.operator_names import IN_PLACE
from runner.cases.python_files import RESERVED
from runner.cases.walk import (
    change_entry,
    change_parts,
    map_parts,
    map_steps,
    names_made,
    names_used,
    steps_of,
    values_of,
)
from runner.diagnostics import Span
from runner.reduce.value_info import ValueInfo, component, input_like, leaves, references

Names = Mapping[str, Value]
PREVIOUS = "_"


def named(case: Case) -> Case:
    """Return the same case without ``$_``. It stays after an ``if`` whose branches end in values of different names."""
    return _Namer(case).case()


def is_statement(step: Step) -> bool:
    """Return whether a step has no value and so leaves ``$_`` as it was."""
    return step.operator in STATEMENTS


def is_in_place(step: Step) -> bool:
    """Return whether it is an operator such as ``a += b``, whose value is its first operand."""
    return step.operator.startswith("operator.") and step.operator.partition(".")[2] in IN_PLACE


def substitute(value: Value, names: Names) -> Value:
    """Return the value with ``$name`` replaced as ``names`` says.

    A function keeps its own names, and its own ``$_``.
    """
    match value:
        case Ref():
            return _referred(value, names)
        case Arithmetic():
            return _arithmetic(value, names)
        case Index():
            changed = (change_entry(entry, lambda part: _entry(part, names)) for entry in value.entries)
            return replace(value, entries=tuple(changed))
        case Function():
            local = {PREVIOUS, *value.args, *names_made(value.chain)}
            names = {name: target for name, target in names.items() if name not in local}
    return map_parts(value, lambda part: substitute(part, names))


def substitute_step(step: Step, names: Names) -> Step:
    """Apply ``substitute`` to all arguments of a step."""
    return map_parts(step, lambda value: substitute(value, names))


def substitute_nodes(nodes: Iterable[Node], names: Names) -> tuple[Node, ...]:
    """Apply ``substitute`` to a whole chain."""
    return map_parts(tuple(nodes), lambda value: substitute(value, names))


def substitute_case(case: Case, names: Names) -> Case:
    """Apply ``substitute`` to the chain and the returned value of a case."""
    result = None if case.result is None else substitute(case.result, names)
    return replace(case, chain=substitute_nodes(case.chain, names), result=result)


def _referred(ref: Ref, names: Names) -> Value:
    target = names.get(ref.name)
    if isinstance(target, Ref):
        return replace(ref, name=target.name, path=(*target.path, *ref.path))
    return ref if target is None or ref.path else target


def _arithmetic(value: Arithmetic, names: Names) -> Value:
    tree = expressions.parse(value.text)
    texts = {name: _text(names[name]) or name for name in expressions.names(tree) if name in names}
    return replace(value, text=expressions.render(tree, {}, lambda name: texts.get(name, name))) if texts else value


def _text(value: Value) -> str:
    if isinstance(value, Ref):
        return value.text
    return repr(value.value) if isinstance(value, Literal) and isinstance(value.value, int | float) else ""


def _entry(entry: Ref | Arithmetic, names: Names) -> Any:
    """Return the replacement of an index entry: an integer or None where a value is a literal."""
    substituted = substitute(entry, names)
    if isinstance(substituted, Literal) and (substituted.value is None or isinstance(substituted.value, int)):
        return substituted.value
    return substituted if isinstance(substituted, Ref | Arithmetic) else entry


class _Namer:
    """Walks a chain once. It tracks the value of ``$_``, and what each name became."""

    def __init__(self, start: Case) -> None:
        self.start = start
        self.names: dict[str, Value] = {}
        self.bound = {item.name for item in start.inputs if not item.hidden}
        used = {*names_made(start.chain), *start.params, *(item.name for item in start.inputs), *RESERVED}
        self.free = (name for name in (f"v{n}" for n in itertools.count(1)) if name not in used)
        self.generated: set[str] = set()  # names that the walk itself gave

    def case(self) -> Case:
        case = self.start
        first = next((Ref(item.name, (), case.span) for item in case.inputs if not item.hidden), None)
        chain, previous = self._chain(case.chain, first, False)
        result = case.result or Ref(PREVIOUS, (), case.span)
        return replace(case, chain=chain, result=substitute(result, self._all(previous)))

    def _all(self, previous: Ref | None) -> Names:
        return self.names if previous is None else {**self.names, PREVIOUS: previous}

    def _chain(self, nodes: Sequence[Node], previous: Ref | None, branch: bool) -> tuple[tuple[Node, ...], Ref | None]:
        renamed_nodes: list[Node] = []
        for node in nodes:
            names = self._all(previous)
            renamed: Node
            if isinstance(node, Step):
                renamed, previous = self._step(node, previous, branch)
            elif isinstance(node, With):
                contexts = tuple(substitute_step(step, names) for step in node.contexts)
                inner, previous = self._chain(node.chain, previous, branch)
                renamed = replace(node, contexts=contexts, chain=inner)
            else:
                renamed, previous = self._if(replace(node, condition=substitute(node.condition, names)), previous)
            renamed_nodes.append(renamed)
        return tuple(renamed_nodes), previous

    def _if(self, node: If, previous: Ref | None) -> tuple[If, Ref | None]:
        do, after_do = self._chain(node.do, previous, True)
        otherwise, after_else = self._chain(node.otherwise, previous, True)
        if after_do is not None and after_do == after_else:
            return replace(node, do=do, otherwise=otherwise), after_do
        do_name, else_name = (self._last(nodes, value) for nodes, value in ((do, after_do), (otherwise, after_else)))
        if do_name is None or else_name is None or after_else is None:
            return replace(node, do=do, otherwise=otherwise), None
        renamed = substitute_nodes(otherwise, {else_name: Ref(do_name, (), node.span)})
        last = renamed[-1]
        assert isinstance(last, Step)
        renamed = (*renamed[:-1], replace(last, out=(do_name, *last.out[1:])))
        return replace(node, do=do, otherwise=renamed), after_do

    def _last(self, nodes: Sequence[Node], value: Ref | None) -> str | None:
        """Return the generated name of a branch's last step, if that step is the branch's value."""
        last = nodes[-1] if nodes else None
        if value is None or value.path or value.name not in self.generated or not isinstance(last, Step):
            return None
        return value.name if last.out[:1] == (value.name,) else None

    def _step(self, step: Step, previous: Ref | None, branch: bool) -> tuple[Step, Ref | None]:
        step = substitute_step(_explicit(step, previous), self._all(previous))
        if is_statement(step):
            return step, previous
        out = [*step.out]
        if is_in_place(step):
            target = step.arguments.positional[0] if step.arguments.positional else None
            value = _reference(out[0], step) if out else target
            return step, value if isinstance(value, Ref) else None
        if not out or out[0] == PREVIOUS:
            out[:1] = [next(self.free)]
            self.generated.add(out[0])
        for place, name in enumerate(out):
            if name in self.bound and not branch:
                out[place] = next(self.free)
                self.names[name] = Ref(out[place], (), step.span)
        self.bound.update(name for name in out if name != PREVIOUS)
        return replace(step, out=tuple(out)), _reference(out[0], step)


def _reference(name: str, step: Step) -> Ref:
    owner, _, field = name.partition(".")
    return Ref("self", (field,), step.span) if owner == "self" and field else Ref(name, (), step.span)


def _explicit(step: Step, previous: Ref | None) -> Step:
    """Return the step with its operand written out, where it is applied to the previous value."""
    if previous is None:
        return step
    operand = Arguments((Ref(PREVIOUS, (), step.span),))
    if step.operator.startswith("nn."):
        return step if step.call is not None else replace(step, call=operand)
    return replace(step, arguments=operand) if step.arguments.bare and step.operator != GRAPH_BREAK else step


# --- and back -------------------------------------------------------------------------------


def unnamed(case: Case) -> Case:
    """Return the case as a person writes it: ``$_`` for the previous value, bare operators, no unused names."""
    result = case.result
    total = Counter(_mentions(values_of(case.chain)))
    by_result = Counter(_mentions(values_of(result)) if result is not None else ())
    chain, last = _unnamed_chain(case.chain, total + by_result, by_result)
    if last is not None and result is not None:
        result = substitute(result, {last: Ref(PREVIOUS, (), case.span)})
    passed = [item.name for item in case.inputs if not item.hidden]
    if len(passed) == 1:
        chain, result = _first_input(chain, result, passed[0], case.span)
    if isinstance(result, Ref) and result.name == PREVIOUS and not result.path:
        result = None
    return replace(case, chain=map_steps(chain, _bare_step), result=result)


def _mentions(values: Iterable[Value]) -> Iterator[str]:
    for value in values:
        yield from names_used((value,))


def _unnamed_chain(
    nodes: tuple[Node, ...], total: Counter[str], by_result: Counter[str]
) -> tuple[tuple[Node, ...], str | None]:
    """Return the chain, and the name that its last value lost if the result may call it ``$_``.

    ``total`` counts the uses of each name anywhere, ``by_result`` the uses after the chain.
    """
    unnamed_nodes = [
        replace(node, chain=_unnamed_chain(node.chain, total, Counter())[0]) if isinstance(node, With) else node
        for node in nodes
    ]
    lost: str | None = None
    for place, node in enumerate(unnamed_nodes):
        if not isinstance(node, Step) or len(node.out) != 1 or node.unpack or is_statement(node) or is_in_place(node):
            continue
        name = node.out[0]
        if name == PREVIOUS or name.startswith("self."):
            continue
        near = _reach(unnamed_nodes, place)
        uses = Counter(_mentions(values_of(tuple(unnamed_nodes[place + 1 : near]))))[name]
        # What follows the chain may say $_ too, if no step in between has a value.
        last = near == len(unnamed_nodes) and all(
            is_statement(n) for n in unnamed_nodes[place + 1 :] if isinstance(n, Step)
        )
        uses += by_result[name] if last else 0
        if uses != total[name] or _in_functions(unnamed_nodes[place + 1 : near], name):
            continue
        step = replace(node, out=())
        is_dropped = not total[name] and has_only_a_value(step)  # which the format asks for
        unnamed_nodes[place] = replace(node, out=(PREVIOUS,)) if is_dropped else step
        unnamed_nodes[place + 1 : near] = substitute_nodes(
            unnamed_nodes[place + 1 : near], {name: Ref(PREVIOUS, (), node.span)}
        )
        lost = name if last and by_result[name] else lost
    return tuple(unnamed_nodes), lost


def _reach(nodes: Sequence[Node], place: int) -> int:
    """Return the end of the steps after ``place`` in which ``$_`` is still its value."""
    for later, node in enumerate(nodes[place + 1 :], place + 1):
        if not isinstance(node, Step) or not is_statement(node):
            return later + isinstance(node, Step)
    return len(nodes)


def _first_input(
    chain: tuple[Node, ...], result: Value | None, name: str, span: Span
) -> tuple[tuple[Node, ...], Value | None]:
    """Write ``$_`` for the only input, as far as it is still that value."""
    end = _reach(chain, -1)
    reached = chain[:end]
    if any(name in step.out for step in reached if isinstance(step, Step)) or _in_functions(reached, name):
        return chain, result
    previous = {name: Ref(PREVIOUS, (), span)}
    chain = (*substitute_nodes(reached, previous), *chain[end:])
    if result is not None and end == len(chain) and all(is_statement(n) for n in chain if isinstance(n, Step)):
        result = substitute(result, previous)
    return chain, result


def _in_functions(nodes: Iterable[Node], name: str) -> bool:
    """Return whether a function uses the name, since ``$_`` is another value there."""
    return any(name in names_used(values_of(value)) for value in values_of(tuple(nodes)) if isinstance(value, Function))


def _bare_step(step: Step) -> Step:
    arguments = step.arguments
    is_bare = _is_previous(arguments)
    if step.operator.startswith("nn."):
        is_bare = not arguments.positional and not arguments.keywords
        step = replace(step, call=None) if step.call is not None and _is_previous(step.call) else step
    return replace(step, arguments=Arguments(bare=True)) if is_bare else step


def _is_previous(arguments: Arguments) -> bool:
    alone = arguments.positional[0] if len(arguments.positional) == 1 and not arguments.keywords else None
    return isinstance(alone, Ref) and alone.name == PREVIOUS and not alone.path


INPUT_NAMES = ("x", "y", "z", "a", "b", "c", "p", "q", "r", "s", "u", "w")
"""Names for new inputs, in the order in which they are tried."""

ValueInfos = Mapping[str, ValueInfo]


def remove_steps(
    case: Case, numbers: Collection[int], value_infos: ValueInfos, bypass: bool = False, grad: bool = True
) -> Case | None:
    """Return the named case with only the steps of these numbers; None where that cannot be written.

    A remaining step may need a value that a removed step made. A new input like that value takes its place. With
    ``bypass``, an operand of the removed step or another input of that shape does, where there is one. Values that lost
    their last user are returned. Without ``grad`` no new input requires a gradient.
    """
    removed = [step for number, step in enumerate(steps_of(case.chain)) if number not in numbers]
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
    calls = _without_changes(case, {f"self.{step.id}" for step in removed if step.id})
    inputs = (*case.inputs, *replacements.inputs)
    return tidy(substitute_case(replace(case, chain=chain, result=result, inputs=inputs, calls=calls), names))


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
        value = (self._operand(name) or self._input_of_shape(name)) if self.bypass else None
        return value if value is not None else self._new_input(name)

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
        arguments = maker.call if maker.call is not None else maker.arguments
        values = [*arguments.positional, *(value for _, value in arguments.keywords)]
        for ref in (ref for value in values for ref in references(value)):
            if ref.name in (PREVIOUS, "self") or not self._may_replace(ref, info):
                continue
            if ref.name not in self.missing:
                return ref
            if deeper := self._operand(ref.name, depth + 1):
                return replace(deeper, path=(*deeper.path, *ref.path))
        return None

    def _may_replace(self, ref: Ref, info: ValueInfo | None) -> bool:
        operand = component(self._info(ref.name), ref.path)
        return info is None or (operand is not None and not operand[1] and info.is_like(operand[0]))

    def _input_of_shape(self, name: str) -> Ref | None:
        info = self._info(name)
        alike = (i for i in self.case.inputs if info and not i.hidden and info.is_like(self._info(i.name)))
        return next((Ref(item.name, (), self.case.span) for item in alike), None)


def _split_fields(
    chain: tuple[Node, ...], value_infos: ValueInfos, missing: set[str]
) -> tuple[tuple[Node, ...], ValueInfos, set[str]]:
    """Make the used fields of missing named tuples values of their own, since no input is such a tuple.

    Returns:
        The chain, the infos with those of the fields, and the names of the fields.
    """
    fields: dict[str, ValueInfo] = {}

    def change(value: Value) -> Value:
        if not isinstance(value, Ref) or value.name not in missing or not value.path or isinstance(value.path[0], Key):
            return value
        info = value_infos.get(python_name(value.name))
        field = component(info, value.path[:1]) if info is not None and info.kind == "fields" else None
        if field is None:
            return value
        name = f"{value.name}_{value.path[0]}"
        fields[name] = field[0]
        return replace(value, name=name, path=value.path[1:])

    return change_parts(chain, change), {**value_infos, **fields}, set(fields)


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
    used = {*names_used(values_of(chain)), *(step.operator for step in steps_of(chain))}
    return not used.isdisjoint(f"self.{module}" for module in modules)


def _result(case: Case, chain: tuple[Node, ...], missing: set[str]) -> Value | None:
    """Return the remaining part of the returned value, and with it the values that lost their last user."""
    result = _remaining_result(case.result, missing)
    orphans = _orphans(case, chain, result)
    if not orphans:
        return result if result is not None else _last_target(chain)
    if result is None and len(orphans) == 1:
        return orphans[0]
    parts = result.items if isinstance(result, Items) else (result,) if result is not None else ()
    return Items((*parts, *orphans))


def _orphans(case: Case, chain: tuple[Node, ...], result: Value | None) -> list[Ref]:
    """Return the values of ``chain`` that nothing uses: those used in the whole case, or all of them without a
    result."""
    used_before = names_used(values_of(case.chain))
    used = names_used(values_of(chain)) | _names_of(result)
    return [
        ref
        for ref in (Ref(step.out[0], (), step.span) for step in steps_of(chain) if step.out)
        if ref.name not in used
        and ref.name != PREVIOUS
        and not ref.name.startswith("self.")
        and (result is None or ref.name in used_before)
    ]


def _names_of(result: Value | None) -> set[str]:
    return set() if result is None else names_used(values_of(result))


def _remaining_result(value: Value | None, missing: set[str]) -> Value | None:
    """Return the returned value without the parts that use missing names; None if nothing remains."""
    if isinstance(value, Items):
        items = [part for part in (_remaining_result(item, missing) for item in value.items) if part is not None]
        return Items(tuple(items)) if items else None
    if isinstance(value, Table):
        entries = ((key, _remaining_result(item, missing)) for key, item in value.items)
        pairs = tuple((key, part) for key, part in entries if part is not None)
        return Table(pairs) if pairs else None
    return None if value is None or names_used(values_of(value)) & missing else value


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
    new = {id(value): path for path, value in leaves(result)}
    old = sorted(leaves(case.result), key=lambda item: -len(item[0]))
    by_place = {}
    for place, bounds in case.tolerance.by_place.items():
        start, value = next(((path, value) for path, value in old if place.startswith(path)), ("", None))
        if not start or id(value) in new:
            by_place[new.get(id(value), "") + place.removeprefix(start)] = bounds
    return replace(case, result=result, tolerance=replace(case.tolerance, by_place=by_place))


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
    while (cleaned := _tidy_once(case)) != case:
        case = cleaned
    return case


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
    state = tuple(item for item in case.state if f"self.{item.name}" in used | assigned or item.name in bases)
    gone = {f"self.{item.name}" for item in case.state if item not in state}
    calls = tuple(
        replace(call, inputs=tuple(item for item in call.inputs if item.name in names))
        for call in _without_changes(case, gone)
    )
    used |= {_part(change.target) for call in calls for change in (*call.changes, *call.hooks)}
    return replace(
        case,
        inputs=inputs,
        dynamic=tuple(_marked(value, names) for value in case.dynamic),
        calls=calls,
        state=state,
        chain=map_steps(case.chain, lambda step: _named_if_used(step, used, used | called)),
    )


def _marked(value: bool | Marks | None, names: Collection[str]) -> bool | Marks | None:
    """Return a value of ``dynamic:`` without marks of inputs that have gone."""
    if not isinstance(value, Marks):
        return value
    items = tuple(mark for mark in value.items if mark.name in names)
    return Marks(items) if items else None


def _without_changes(case: Case, gone: Collection[str]) -> tuple[Call, ...]:
    """Return the calls without what they change of state and submodules that have gone."""
    return tuple(
        replace(
            call,
            changes=tuple(change for change in call.changes if _part(change.target) not in gone),
            hooks=tuple(hook for hook in call.hooks if _part(hook.target) not in gone),
        )
        for call in case.calls
    )


def _part(target: str) -> str:
    """Return the state or the submodule that a call changes: ``self.first`` of ``self.first.weight.requires_grad``."""
    return ".".join(target.split(".")[:2])


def _named_if_used(step: Step, used: Collection[str], referred: Collection[str]) -> Step:
    """Return the step without names that nothing uses; ``referred`` are names in references or calls."""
    out = tuple(name if name in used or name.startswith("self.") else PREVIOUS for name in step.out)
    step = replace(step, out=out) if any(name != PREVIOUS for name in out) else replace(step, out=(), unpack=False)
    return replace(step, id=None) if step.id is not None and f"self.{step.id}" not in referred else step
