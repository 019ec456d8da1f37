"""Passes over the chain. Each proposes attempts on one state, the largest removals first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from runner.cases.model import Case, Function, If, Input, Items, Node, Ref, Step, Table, Value, With
from runner.cases.serialize import plain
from runner.cases.walk import change_nodes, names_used, values_of
from runner.reduce.names import named, substitute_case, unnamed
from runner.reduce.remove_steps import nodes_of, remove_steps, replace_nodes, steps_of, tidy, with_result
from runner.reduce.state import Attempt, State
from runner.reduce.value_info import input_like, references


def attempt(change: str, case: Case | None) -> Iterator[Attempt]:
    """Yield the attempt to go on with a named case, tidied and as people write it; nothing for None."""
    if case is not None:
        yield Attempt(change, plain(unnamed(tidy(case))))


def calls(state: State) -> Iterator[Attempt]:
    """Propose fewer further calls: none, then without each half, quarter and so on."""
    case = state.named
    count = len(case.calls)
    if not count:
        return
    yield from attempt("drop the further calls", replace(case, calls=()))
    size = count // 2
    while size:
        for start in range(0, count, size):
            remaining = (*case.calls[:start], *case.calls[start + size :])
            if remaining:
                yield from attempt(f"drop {size} of {count} calls", replace(case, calls=remaining))
        size //= 2


def chunks(state: State) -> Iterator[Attempt]:
    """Propose parts of the chain: delta debugging (Zeller and Hildebrandt, 2002).

    First comes the step that the error names, alone and with the steps that it depends on. Then the chain is divided
    into two parts, four, and so on: each part is kept alone, or dropped.
    """
    case, value_infos = state.named, state.value_infos
    steps = list(steps_of(case.chain))
    count = len(steps)
    # Without a backward pass, gradients that are tracked still matter to the stages above code generation.
    choices = [True] if case.grad[0].mode != "forward" else [True, False]
    if state.signature.stage in ("inductor", "backend"):
        choices.reverse()

    def keep(numbers: Sequence[int], bypass: bool = False, thorough: bool = False) -> Iterator[Attempt]:
        if 0 < len(numbers) < count:
            ending = " past them" if bypass else ""
            cases = [
                remove_steps(case, set(numbers), value_infos, bypass, grad)
                for grad in (choices if thorough else choices[:1])
            ]
            for shorter in cases if cases[0] != cases[-1] else cases[:1]:
                yield from attempt(f"{count} -> {len(numbers)} steps{ending}", shorter)

    for suspect in state.suspects:
        yield from keep([suspect], thorough=True)
    for suspect in state.suspects:
        yield from keep(cone(steps, [suspect]))
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
                remaining = [number for number in range(count) if number not in piece]
                yield from keep(remaining, thorough=count <= 4)
                yield from keep(remaining, bypass=True)
        if parts == count:
            break
        parts = min(count, parts * 2)
    if count == 2:
        for number in range(count):
            yield from keep([number], bypass=True)


def cone(steps: Sequence[Step], numbers: Sequence[int]) -> list[int]:
    """Return the numbers of these steps and of all they depend on. A write to a value counts as making it."""
    chosen = set(numbers)
    needed = names_used(values_of(tuple(steps[number] for number in numbers)))
    for number in range(max(numbers, default=-1), -1, -1):
        step = steps[number]
        targets = {ref.name for ref in references(step.arguments.positional[0])} if step.arguments.positional else set()
        writes = step.operator.endswith("_") or step.operator.startswith(("operator.i", "operator.setitem"))
        written = {ref.name for key, value in step.arguments.keywords if key == "out" for ref in references(value)}
        if number in chosen or (set(step.out) | written) & needed or (writes and targets & needed):
            chosen.add(number)
            needed |= names_used(values_of((step,)))
    return sorted(chosen)


def blocks(state: State) -> Iterator[Attempt]:
    """Propose the contents of blocks without the block, and one branch without the other."""
    case = state.named
    for number, node in enumerate(node for node in nodes_of(case.chain) if not isinstance(node, Step)):
        for change, replacement in _unwrapped(node):
            chain = replace_nodes(case.chain, {id(node): replacement})
            # In the form that people write, so that $_ flows as it would.
            yield from attempt(change, named(replace(case, chain=chain)))
        if isinstance(node, With) and len(node.contexts) > 1:
            for context in node.contexts:
                fewer = replace(node, contexts=tuple(c for c in node.contexts if c is not context))
                yield from attempt(
                    f"block {number}: drop {context.operator}",
                    replace(case, chain=replace_nodes(case.chain, {id(node): (fewer,)})),
                )


def _unwrapped(node: With | If) -> list[tuple[str, tuple[Node, ...]]]:
    if isinstance(node, With):
        return [("drop the contexts around a block", node.chain)]
    return [("take the first branch", node.do), ("take the other branch", node.otherwise)]


def outputs(state: State) -> Iterator[Attempt]:
    """Propose one output alone, then all but one. The last step's value comes first, since it needs no ``return:``."""
    case = state.named
    refs = references(case.result)
    if len(refs) < 2 and not isinstance(case.result, Items | Table):
        return
    for ref in reversed(refs):
        yield from attempt(f"return ${ref.name} alone", with_result(case, ref))
    if len(refs) > 2:
        for ref in refs:
            remaining: tuple[Value, ...] = tuple(output for output in refs if output is not ref)
            yield from attempt(f"do not return ${ref.name}", with_result(case, Items(remaining)))


def merged_inputs(state: State) -> Iterator[Attempt]:
    """Propose one input in the place of another of its shape and dtype."""
    case = state.named
    visible = [item for item in case.inputs if not item.hidden]
    for place, item in enumerate(visible):
        for earlier in visible[:place]:
            info, earlier_info = state.value_infos.get(item.name), state.value_infos.get(earlier.name)
            alike = (info is not None and info.is_like(earlier_info)) or (item.shape, item.dtype, item.kind) == (
                earlier.shape, earlier.dtype, earlier.kind,
            )  # fmt: skip
            if alike and item.kind != "view":
                names = {item.name: Ref(earlier.name, (), item.span)}
                yield from attempt(f"${earlier.name} for ${item.name}", substitute_case(case, names))


def plain_inputs(state: State) -> Iterator[Attempt]:
    """Propose a plain tensor for a view, for literal values, and for a tensor with a layout."""
    case = state.named
    for place, item in enumerate(case.inputs):
        info = state.value_infos.get(item.name)
        if info is None or item.hidden or (item.kind == "tensor" and not item.layout):
            continue
        grad = case.grad[0].mode == "backward"
        plain_input = input_like(info, item.name, item.span, case.dtypes[0], grad)
        if plain_input is not None and plain_input != item:
            inputs: tuple[Input, ...] = (*case.inputs[:place], plain_input, *case.inputs[place + 1 :])
            yield from attempt(f"plain ${item.name}", replace(case, inputs=inputs))


def functions(state: State) -> Iterator[Attempt]:
    """Propose functions (``$fn``) with fewer steps."""
    case = state.named
    function_values = [value for value in values_of(case.chain) if isinstance(value, Function)]
    for function in function_values:
        for number in reversed(range(len(function.chain))):
            shorter = replace(function, chain=(*function.chain[:number], *function.chain[number + 1 :]))

            def change(value: Value, old: Function = function, new: Function = shorter) -> Value:
                return new if value == old else value

            yield from attempt("drop a step of a function", replace(case, chain=change_nodes(case.chain, change)))
