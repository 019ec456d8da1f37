"""What to try on the chain, the biggest cuts first. Each pass gives attempts on one state; the search takes the first that holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from runner.cases.chain_nodes import Function, If, Items, Node, Ref, Step, Table, Value, With
from runner.cases.model import Case, Input
from runner.cases.serialize import plain
from runner.cases.walk import change_nodes, names_used, values_of
from runner.reduce.facts import made_like, references
from runner.reduce.names import named, substitute, substitute_nodes, unnamed
from runner.reduce.remove_steps import remove_steps, steps_of, tidy
from runner.reduce.state import Attempt, State

Pass = Callable[[State], Iterator[Attempt]]


def attempt(what: str, case: Case | None) -> Iterator[Attempt]:
    """The attempt to go on with a named case, tidied and as people write it; none where there is none."""
    if case is not None:
        yield Attempt(what, plain(unnamed(tidy(case))))


def calls(state: State) -> Iterator[Attempt]:
    """Fewer further calls: none, the first half, all but one."""
    case = state.named
    count = len(case.calls)
    if not count:
        return
    yield from attempt("drop the further calls", replace(case, calls=()))
    size = count // 2
    while size:
        for start in range(0, count, size):
            left = (*case.calls[:start], *case.calls[start + size :])
            if left:
                yield from attempt(f"drop {size} of {count} calls", replace(case, calls=left))
        size //= 2


def chunks(state: State) -> Iterator[Attempt]:
    """Delta debugging over steps (Zeller and Hildebrandt, 2002): keep a part, then drop a part, in ever smaller parts.

    Before that, the step that the error names alone, and with what it depends on.
    """
    case, facts = state.named, state.facts
    every = list(steps_of(case.chain))
    count = len(every)
    # Where nobody asks for gradients, tracing them matters to the stages above code generation: which is tried first.
    choices = [True] if case.grad[0].mode != "forward" else [True, False]
    if state.signature.stage in ("inductor", "backend"):
        choices.reverse()

    def keep(numbers: Sequence[int], bypass: bool = False, thorough: bool = False) -> Iterator[Attempt]:
        if 0 < len(numbers) < count:
            how = " past them" if bypass else ""
            cases = [
                remove_steps(case, set(numbers), facts, bypass, grad) for grad in (choices if thorough else choices[:1])
            ]
            for one in cases if cases[0] != cases[-1] else cases[:1]:
                yield from attempt(f"{count} -> {len(numbers)} steps{how}", one)

    for suspect in state.suspects:
        yield from keep([suspect], thorough=True)
    for suspect in state.suspects:
        yield from keep(cone(every, [suspect]))
    parts = 2
    while parts <= count:
        bounds = [round(count * n / parts) for n in range(parts + 1)]
        pieces = [range(low, high) for low, high in itertools.pairwise(bounds) if high > low]
        # Single steps alone are the last resort of a long chain: pieces of two have failed by then.
        if parts < count or count <= 6:
            for piece in reversed(pieces):
                yield from keep(piece, thorough=parts == 2)
        if parts > 2:
            for piece in reversed(pieces):
                left = [number for number in range(count) if number not in piece]
                yield from keep(left, thorough=count <= 4)
                yield from keep(left, bypass=True)
        if parts == count:
            break
        parts = min(count, parts * 2)
    if count == 2:
        for number in range(count):
            yield from keep([number], bypass=True)


def cone(every: Sequence[Step], wanted: Sequence[int]) -> list[int]:
    """The numbers of the steps that those of ``wanted`` depend on, with them; a write to a value counts as making it."""
    chosen = set(wanted)
    needed = names_used(values_of(tuple(every[number] for number in wanted)))
    for number in range(max(wanted, default=-1), -1, -1):
        step = every[number]
        targets = {ref.name for ref in references(step.arguments.positional[0])} if step.arguments.positional else set()
        writes = step.operator.endswith("_") or step.operator.startswith(("operator.i", "operator.setitem"))
        if number in chosen or set(step.out) & needed or (writes and targets & needed):
            chosen.add(number)
            needed |= names_used(values_of((step,)))
    return sorted(chosen)


def blocks(state: State) -> Iterator[Attempt]:
    """Contents of blocks without the block, and one branch without the other."""
    case = state.named
    for number, node in enumerate(_blocks(case.chain)):
        for what, instead in _instead(node):
            chain = _replaced(case.chain, node, instead)
            # In the form that people write, so that $_ flows as it would.
            yield from attempt(what, named(replace(case, chain=chain)))
        if isinstance(node, With) and len(node.contexts) > 1:
            for context in node.contexts:
                fewer = replace(node, contexts=tuple(c for c in node.contexts if c is not context))
                yield from attempt(
                    f"block {number}: drop {context.operator}",
                    replace(case, chain=_replaced(case.chain, node, (fewer,))),
                )


def _blocks(nodes: Sequence[Node]) -> Iterator[With | If]:
    for node in nodes:
        if isinstance(node, With):
            yield node
            yield from _blocks(node.chain)
        elif isinstance(node, If):
            yield node
            yield from _blocks((*node.do, *node.otherwise))


def _instead(node: With | If) -> list[tuple[str, tuple[Node, ...]]]:
    if isinstance(node, With):
        return [("drop the contexts around a block", node.chain)]
    return [("take the first branch", node.do), ("take the other branch", node.otherwise)]


def _replaced(nodes: Sequence[Node], what: Node, instead: tuple[Node, ...]) -> tuple[Node, ...]:
    made: list[Node] = []
    for node in nodes:
        if node is what:
            made += instead
        elif isinstance(node, With):
            made.append(replace(node, chain=_replaced(node.chain, what, instead)))
        elif isinstance(node, If):
            do, otherwise = _replaced(node.do, what, instead), _replaced(node.otherwise, what, instead)
            made.append(replace(node, do=do, otherwise=otherwise))
        else:
            made.append(node)
    return tuple(made)


def outputs(state: State) -> Iterator[Attempt]:
    """One output alone, then all but one. The last step's value first, which needs no ``return:``."""
    case = state.named
    refs = references(case.result)
    if len(refs) < 2 and not isinstance(case.result, Items | Table):
        return
    for ref in reversed(refs):
        yield from attempt(f"return ${ref.name} alone", replace(case, result=ref))
    if len(refs) > 2:
        for ref in refs:
            left: tuple[Value, ...] = tuple(other for other in refs if other is not ref)
            yield from attempt(f"do not return ${ref.name}", replace(case, result=Items(left)))


def merged_inputs(state: State) -> Iterator[Attempt]:
    """One input in the place of another of its shape and dtype."""
    case = state.named
    visible = [item for item in case.inputs if not item.hidden]
    for place, item in enumerate(visible):
        for other in visible[:place]:
            fact, its = state.facts.get(item.name), state.facts.get(other.name)
            alike = (fact is not None and fact.is_like(its)) or (item.shape, item.dtype, item.kind) == (
                other.shape, other.dtype, other.kind,
            )  # fmt: skip
            if alike and item.kind != "view":
                names = {item.name: Ref(other.name, (), item.span)}
                yield from attempt(f"${other.name} for ${item.name}", renamed(case, names))


def renamed(case: Case, names: Mapping[str, Value]) -> Case:
    """The case with some names standing for others."""
    result = None if case.result is None else substitute(case.result, names)
    return replace(case, chain=substitute_nodes(case.chain, names), result=result)


def plain_inputs(state: State) -> Iterator[Attempt]:
    """A plain tensor in the place of a view, of literal values, of a tensor with a layout; an input in the place of state."""
    case = state.named
    for place, item in enumerate(case.inputs):
        fact = state.facts.get(item.name)
        if fact is None or item.hidden or (item.kind == "tensor" and not item.layout):
            continue
        grad = case.grad[0].mode == "backward"
        made = made_like(fact, item.name, item.span, case.dtypes[0], grad)
        if made is not None and made != item:
            inputs: tuple[Input, ...] = (*case.inputs[:place], made, *case.inputs[place + 1 :])
            yield from attempt(f"plain ${item.name}", replace(case, inputs=inputs))


def functions(state: State) -> Iterator[Attempt]:
    """Functions (``$fn``) with fewer steps."""
    case = state.named
    found = [value for value in values_of(case.chain) if isinstance(value, Function)]
    for function in found:
        for number in reversed(range(len(function.chain))):
            shorter = replace(function, chain=(*function.chain[:number], *function.chain[number + 1 :]))

            def change(value: Value, old: Function = function, new: Function = shorter) -> Value:
                return new if value == old else value

            yield from attempt("drop a step of a function", replace(case, chain=change_nodes(case.chain, change)))
