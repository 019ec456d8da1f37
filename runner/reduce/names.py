"""Chains with a name for every value, and back: what is removed from a chain must not change what ``$_`` means."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.builder import operators
from runner.builder.chain import STATEMENTS
from runner.cases import expressions
from runner.cases.chain_nodes import Arguments, Arithmetic, Function, If, Index, Literal, Node, Ref, Step, Value, With
from runner.cases.model import Case
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
    """The same case without ``$_``, as far as that can be said: after an ``if`` whose branches end unlike, it stays."""
    return _Namer(case).case()


def is_statement(step: Step) -> bool:
    """Whether a step leaves ``$_`` as it was, having no value."""
    word = step.operator.partition(".")[2] if step.operator.startswith("operator.") else ""
    return step.operator in STATEMENTS or word in ("setitem", "delitem")


def is_in_place(step: Step) -> bool:
    """Whether it is an operator such as ``a += b``, whose value is its first operand."""
    return step.operator.startswith("operator.") and step.operator.partition(".")[2] in operators.IN_PLACE


def substitute(value: Value, names: Names) -> Value:
    """The value with ``$name`` replaced wherever ``names`` says so. A function keeps its own names, and its own ``$_``."""
    if isinstance(value, Ref):
        return _referred(value, names)
    if isinstance(value, Arithmetic):
        return _arithmetic(value, names)
    if isinstance(value, Index):
        return replace(
            value, entries=tuple(change_entry(entry, lambda part: _entry(part, names)) for entry in value.entries)
        )
    if isinstance(value, Function):
        own = {PREVIOUS, *value.args, *names_made(value.chain)}
        names = {name: other for name, other in names.items() if name not in own}
    return map_value(value, lambda part: substitute(part, names))


def substitute_step(step: Step, names: Names) -> Step:
    """As ``substitute``, in all arguments of a step."""
    return map_step(step, lambda value: substitute(value, names))


def substitute_nodes(nodes: Iterable[Node], names: Names) -> tuple[Node, ...]:
    """As ``substitute``, in a whole chain."""
    return map_nodes(nodes, lambda value: substitute(value, names))


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
    """What stands for an entry of an index, which is an integer or nothing where a value is a literal."""
    found = substitute(entry, names)
    if isinstance(found, Literal):
        return found.value if found.value is None or isinstance(found.value, int) else entry
    return found if isinstance(found, Ref | Arithmetic) else entry


class _Namer:
    """Walks a chain once, with what ``$_`` is so far and what names became."""

    def __init__(self, start: Case) -> None:
        self.start = start
        self.names: dict[str, Value] = {}
        self.bound = {item.name for item in start.inputs if not item.hidden}
        made = {*names_made(start.chain), *start.params, *(item.name for item in start.inputs), *RESERVED}
        self.free = (name for name in (f"v{n}" for n in itertools.count(1)) if name not in made)
        self.own: set[str] = set()  # names that nobody but we gave

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
        made: list[Node] = []
        for node in nodes:
            names = self._all(previous)
            if isinstance(node, Step):
                step, previous = self._step(node, previous, branch)
                made.append(step)
            elif isinstance(node, With):
                contexts = tuple(substitute_step(step, names) for step in node.contexts)
                inner, previous = self._chain(node.chain, previous, branch)
                made.append(replace(node, contexts=contexts, chain=inner))
            else:
                block, previous = self._if(replace(node, condition=substitute(node.condition, names)), previous)
                made.append(block)
        return tuple(made), previous

    def _if(self, node: If, previous: Ref | None) -> tuple[If, Ref | None]:
        do, after_do = self._chain(node.do, previous, True)
        otherwise, after_else = self._chain(node.otherwise, previous, True)
        if after_do is not None and after_do == after_else:
            return replace(node, do=do, otherwise=otherwise), after_do
        mine, theirs = (self._last(nodes, after) for nodes, after in ((do, after_do), (otherwise, after_else)))
        if mine is None or theirs is None or after_else is None:
            return replace(node, do=do, otherwise=otherwise), None
        renamed = substitute_nodes(otherwise, {theirs: Ref(mine, (), node.span)})
        last = renamed[-1]
        assert isinstance(last, Step)
        renamed = (*renamed[:-1], replace(last, out=(mine, *last.out[1:])))
        return replace(node, do=do, otherwise=renamed), after_do

    def _last(self, nodes: Sequence[Node], after: Ref | None) -> str | None:
        """The name that the last step of a branch got from us, if that is the branch's value."""
        last = nodes[-1] if nodes else None
        if after is None or after.path or not isinstance(last, Step) or last.out[:1] != (after.name,):
            return None
        return after.name if after.name in self.own else None

    def _step(self, step: Step, previous: Ref | None, branch: bool) -> tuple[Step, Ref | None]:
        step = substitute_step(_explicit(step, previous), self._all(previous))
        if is_statement(step):
            return step, previous
        out = [*step.out]
        if is_in_place(step):
            target = step.arguments.positional[0] if step.arguments.positional else None
            if not out:
                return step, target if isinstance(target, Ref) else None
            return step, self._bound(out[0], step, branch)
        if not out or out[0] == PREVIOUS:
            out[:1] = [next(self.free)]
            self.own.add(out[0])
        for place, name in enumerate(out):
            if name in self.bound and not branch:
                out[place] = next(self.free)
                self.names[name] = Ref(out[place], (), step.span)
        self.bound.update(name for name in out if name != PREVIOUS)
        return replace(step, out=tuple(out)), self._bound(out[0], step, branch)

    def _bound(self, name: str, step: Step, branch: bool) -> Ref:
        if name.startswith("self."):
            return Ref("self", (name.removeprefix("self."),), step.span)
        return Ref(name, (), step.span)


def _explicit(step: Step, previous: Ref | None) -> Step:
    """The step with its operand written out, where it is applied to the previous value."""
    if previous is None:
        return step
    operand = Arguments((Ref(PREVIOUS, (), step.span),))
    if step.operator.startswith("nn."):
        return step if step.call is not None else replace(step, call=operand)
    return replace(step, arguments=operand) if step.arguments.bare else step


# --- and back -------------------------------------------------------------------------------


def unnamed(case: Case) -> Case:
    """The case as a person writes it: ``$_`` for what the step before gave, bare operators, no names for nothing."""
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
    """The chain, and the name that its last value lost if what is returned may call it ``$_``.

    ``total`` counts how often each name is spoken of anywhere, ``by_result`` how often by what follows the chain.
    """
    made = [
        replace(node, chain=_unnamed_chain(node.chain, total, Counter())[0]) if isinstance(node, With) else node
        for node in nodes
    ]
    lost: str | None = None
    for place, node in enumerate(made):
        if not isinstance(node, Step) or len(node.out) != 1 or node.unpack or is_statement(node) or is_in_place(node):
            continue
        name = node.out[0]
        if name == PREVIOUS or name.startswith("self."):
            continue
        near = _reach(made, place)
        uses = Counter(_mentions(values_of(tuple(made[place + 1 : near]))))[name]
        # What follows the chain may say $_ too, if no step in between has a value.
        last = near == len(made) and all(is_statement(n) for n in made[place + 1 :] if isinstance(n, Step))
        uses += by_result[name] if last else 0
        if uses != total[name] or _in_functions(made[place + 1 : near], name):
            continue
        made[place] = replace(node, out=())
        made[place + 1 : near] = substitute_nodes(made[place + 1 : near], {name: Ref(PREVIOUS, (), node.span)})
        lost = name if last and by_result[name] else lost
    return tuple(made), lost


def _reach(nodes: Sequence[Node], place: int) -> int:
    """The end of the steps after ``place`` to which its value is still ``$_``."""
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
    """``$_`` for the only input, where it still has that name."""
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
    """Whether a function speaks of the name: ``$_`` is another value in it."""
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
