"""Chains with a name for every value, and back.

Without ``$_``, removing a step does not change what others refer to.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.builder import operators
from runner.builder.chain import STATEMENTS
from runner.builder.operators import has_only_a_value
from runner.cases import expressions
from runner.cases.model import Arguments, Arithmetic, Case, Function, If, Index, Literal, Node, Ref, Step, Value, With
from runner.cases.python_names import RESERVED
from runner.cases.walk import (
    change_entry,
    map_nodes,
    map_step,
    map_steps,
    map_value,
    names_made,
    names_used,
    parts_of,
    values_of,
)
from runner.diagnostics import Span

Names = Mapping[str, Value]
PREVIOUS = "_"


def named(case: Case) -> Case:
    """Return the same case without ``$_``. It stays after an ``if`` whose branches end in values of different names."""
    return _Namer(case).case()


def is_statement(step: Step) -> bool:
    """Return whether a step has no value and so leaves ``$_`` as it was."""
    word = step.operator.partition(".")[2] if step.operator.startswith("operator.") else ""
    return step.operator in STATEMENTS or word in ("setitem", "delitem")


def is_in_place(step: Step) -> bool:
    """Return whether it is an operator such as ``a += b``, whose value is its first operand."""
    return step.operator.startswith("operator.") and step.operator.partition(".")[2] in operators.IN_PLACE


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
            entries = tuple(change_entry(entry, lambda part: _entry(part, names)) for entry in value.entries)
            return replace(value, entries=entries)
        case Function():
            local = {PREVIOUS, *value.args, *names_made(value.chain)}
            names = {name: target for name, target in names.items() if name not in local}
    return map_value(value, lambda part: substitute(part, names))


def substitute_step(step: Step, names: Names) -> Step:
    """Apply ``substitute`` to all arguments of a step."""
    return map_step(step, lambda value: substitute(value, names))


def substitute_nodes(nodes: Iterable[Node], names: Names) -> tuple[Node, ...]:
    """Apply ``substitute`` to a whole chain."""
    return map_nodes(nodes, lambda value: substitute(value, names))


def substitute_case(case: Case, names: Names) -> Case:
    """Apply ``substitute`` to the chain and the returned value of a case."""
    result = None if case.result is None else substitute(case.result, names)
    return replace(case, chain=substitute_nodes(case.chain, names), result=result)


def _referred(ref: Ref, names: Names) -> Value:
    target = names.get(ref.name)
    if isinstance(target, Ref):
        return replace(ref, name=target.name, path=(*target.path, *ref.path))
    if target is None or ref.path:
        return ref
    return target


def _arithmetic(value: Arithmetic, names: Names) -> Value:
    tree = expressions.parse(value.text)
    known = {name: names[name] for name in expressions.names(tree) if name in names}
    if not known:
        return value
    texts = {name: _text(target) or name for name, target in known.items()}
    return replace(value, text=expressions.render(tree, {}, lambda name: texts.get(name, name)))


def _text(value: Value) -> str:
    if isinstance(value, Ref):
        return value.name + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in value.path)
    return repr(value.value) if isinstance(value, Literal) and isinstance(value.value, int | float) else ""


def _entry(entry: Ref | Arithmetic, names: Names) -> Any:
    """Return the replacement of an index entry: an integer or None where a value is a literal."""
    substituted = substitute(entry, names)
    if isinstance(substituted, Literal):
        return substituted.value if substituted.value is None or isinstance(substituted.value, int) else entry
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
        passed = [item for item in case.inputs if not item.hidden]
        previous: Ref | None = Ref(passed[0].name, (), case.span) if passed else None
        chain, previous = self._chain(case.chain, previous, False)
        result = case.result or Ref(PREVIOUS, (), case.span)
        return replace(case, chain=chain, result=substitute(result, self._all(previous)))

    def _all(self, previous: Ref | None) -> Names:
        return self.names if previous is None else {**self.names, PREVIOUS: previous}

    def _chain(self, nodes: Sequence[Node], previous: Ref | None, branch: bool) -> tuple[tuple[Node, ...], Ref | None]:
        renamed_nodes: list[Node] = []
        for node in nodes:
            names = self._all(previous)
            if isinstance(node, Step):
                step, previous = self._step(node, previous, branch)
                renamed_nodes.append(step)
            elif isinstance(node, With):
                contexts = tuple(substitute_step(step, names) for step in node.contexts)
                inner, previous = self._chain(node.chain, previous, branch)
                renamed_nodes.append(replace(node, contexts=contexts, chain=inner))
            else:
                block, previous = self._if(replace(node, condition=substitute(node.condition, names)), previous)
                renamed_nodes.append(block)
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
        if value is None or value.path or not isinstance(last, Step) or last.out[:1] != (value.name,):
            return None
        return value.name if value.name in self.generated else None

    def _step(self, step: Step, previous: Ref | None, branch: bool) -> tuple[Step, Ref | None]:
        step = substitute_step(_explicit(step, previous), self._all(previous))
        if is_statement(step):
            return step, previous
        out = [*step.out]
        if is_in_place(step):
            target = step.arguments.positional[0] if step.arguments.positional else None
            if not out:
                return step, target if isinstance(target, Ref) else None
            return step, _reference(out[0], step)
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
    if name.startswith("self."):
        return Ref("self", (name.removeprefix("self."),), step.span)
    return Ref(name, (), step.span)


def _explicit(step: Step, previous: Ref | None) -> Step:
    """Return the step with its operand written out, where it is applied to the previous value."""
    if previous is None:
        return step
    operand = Arguments((Ref(PREVIOUS, (), step.span),))
    if step.operator.startswith("nn."):
        return step if step.call is not None else replace(step, call=operand)
    return replace(step, arguments=operand) if step.arguments.bare else step


# --- and back -------------------------------------------------------------------------------


def unnamed(case: Case) -> Case:
    """Return the case as a person writes it: ``$_`` for the previous value, bare operators, no unused names."""
    result = case.result
    total = Counter(_mentions(values_of(case.chain)))
    by_result = Counter(_mentions(parts_of(result)) if result is not None else ())
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
    for later in range(place + 1, len(nodes)):
        node = nodes[later]
        if not isinstance(node, Step):
            return later
        if not is_statement(node):
            return later + 1
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
    return any(name in names_used(parts_of(value)) for value in values_of(tuple(nodes)) if isinstance(value, Function))


def _bare_step(step: Step) -> Step:
    arguments = step.arguments
    if step.operator.startswith("nn."):
        if step.call is not None and _is_previous(step.call):
            step = replace(step, call=None)
        empty = not arguments.positional and not arguments.keywords
        return replace(step, arguments=Arguments(bare=True)) if empty else step
    return replace(step, arguments=Arguments(bare=True)) if _is_previous(arguments) else step


def _is_previous(arguments: Arguments) -> bool:
    alone = arguments.positional[0] if len(arguments.positional) == 1 and not arguments.keywords else None
    return isinstance(alone, Ref) and alone.name == PREVIOUS and not alone.path
