"""The passes of a reduction, over the chain and over the written case as plain data: sizes, dtypes, values, arguments,
modes and settings. Each proposes attempts on one state, the largest removals first.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from runner.cases.model import Case, Function, If, Items, Node, Ref, Step, Table, Value, With
from runner.cases.serialize import plain
from runner.cases.walk import change_parts, names_used, nodes_of, steps_of, values_of
from runner.contract.oracles import TWIN, row_of
from runner.reduce.chains import (
    named,
    remove_steps,
    replace_nodes,
    substitute_case,
    tidy,
    unnamed,
    with_result,
)
from runner.reduce.state import SIMPLE_INITS, Attempt, Path, State, init_name, tensors_of, value_rank
from runner.reduce.value_info import input_like, references

T = TypeVar("T")


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
            if remaining := (*case.calls[:start], *case.calls[start + size :]):
                yield from attempt(f"drop {size} of {count} calls", replace(case, calls=remaining))
        size //= 2


def callers(state: State) -> Iterator[Attempt]:
    """Propose further calls before which, or around which, the caller does less."""
    case = state.named
    for number, call in enumerate(case.calls):
        fields: list[tuple[str, dict[str, Any]]] = [
            *((key, {key: None}) for key in ("step", "load", "train")),
            ("thread", {"thread": False}),
            *((f"set {change.target}", {"changes": _without(call.changes, change)}) for change in call.changes),
            *((f"hook {hook.target}", {"hooks": _without(call.hooks, hook)}) for hook in call.hooks),
            *(
                (f"with {context.operator}", {"contexts": _without(call.contexts, context)})
                for context in call.contexts
            ),
        ]
        for what, values in fields:
            smaller = replace(call, **values)
            if smaller != call:
                changed = (*case.calls[:number], smaller, *case.calls[number + 1 :])
                yield from attempt(f"call {number + 1} without {what}", replace(case, calls=changed))


def _without(items: tuple[T, ...], item: T) -> tuple[T, ...]:
    return tuple(other for other in items if other is not item)


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
            # In the form that people write, so that $_ flows as it would.
            yield from attempt(change, named(replace(case, chain=replace_nodes(case.chain, {id(node): replacement}))))
        if isinstance(node, With) and len(node.contexts) > 1:
            for context in node.contexts:
                fewer = replace(node, contexts=_without(node.contexts, context))
                chain = replace_nodes(case.chain, {id(node): (fewer,)})
                yield from attempt(f"block {number}: drop {context.operator}", replace(case, chain=chain))


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
            yield from attempt(f"do not return ${ref.name}", with_result(case, Items(_without((*refs,), ref))))


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
        plain_input = input_like(info, item.name, item.span, case.dtypes[0], case.grad[0].mode == "backward")
        if plain_input is not None and plain_input != item:
            changed = (*case.inputs[:place], plain_input, *case.inputs[place + 1 :])
            yield from attempt(f"plain ${item.name}", replace(case, inputs=changed))


def functions(state: State) -> Iterator[Attempt]:
    """Propose functions (``$fn``) with fewer steps."""
    case = state.named
    for function in [value for value in values_of(case.chain) if isinstance(value, Function)]:
        for node in reversed(function.chain):

            def shorter(value: Value, old: Function = function, dropped: Node = node) -> Value:
                return replace(old, chain=_without(old.chain, dropped)) if value == old else value

            yield from attempt("drop a step of a function", replace(case, chain=change_parts(case.chain, shorter)))


Data = Mapping[str, Any]

_EASY_INITS = ("ones", "zeros", {"arange": [0, 1]})
_DIGITS = re.compile(r"(?<![\w.])\d+(?![\w.])")


# --- trees of plain data --------------------------------------------------------------------


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every value of a tree and its path, wholes before parts."""
    yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from walk(item, (*path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from walk(item, (*path, place))


def with_value(tree: Any, path: Path, value: Any) -> Any:
    """Return a copy of the tree with another value at ``path``."""
    if not path:
        return value
    changed = tree.copy()
    changed[path[0]] = with_value(tree[path[0]], path[1:], value)
    return changed


def without(tree: Any, path: Path) -> Any:
    """Return a copy without the value at ``path``; a mapping that is empty then goes too."""
    if len(path) == 1:
        changed = tree.copy()
        del changed[path[0]]
        return changed
    inner = without(tree[path[0]], path[1:])
    return without(tree, path[:1]) if inner == {} else with_value(tree, path[:1], inner)


def value_at(tree: Any, path: Path) -> Any:
    """Return the value at ``path``."""
    for part in path:
        tree = tree[part]
    return tree


def path_text(path: Path) -> str:
    """Return a path for people."""
    return ".".join(map(str, path))


# --- sizes ----------------------------------------------------------------------------------


def sizes(state: State) -> Iterator[Attempt]:
    """Propose smaller integers: all sizes at once, then each number wherever it occurs.

    A size that inputs and constructors share changes in all of them together. A multiple of it changes with it, such as
    32 in ``view`` of 4 x 8.
    """
    data = state.data
    shaped = sorted({size for _, size in _shape_sizes(data) if size > 1}, reverse=True)
    for small in (1, 2):
        if shaped and max(shaped) > small:
            yield _mapped(data, f"all sizes -> {small}", _mapping_of({size: small for size in shaped if size > small}))
    for small in (1, 2):
        for size in shaped:
            if size > small:
                yield _mapped(data, f"{size} -> {small} and multiples", _scaled(size, small))
    for number in sorted({n for _, n in _numbers(data) if n > 1}, reverse=True):
        for small in _smaller(number):
            yield _mapped(data, f"{number} -> {small}", _mapping_of({number: small}))
            if small not in (1, 2):
                yield _mapped(data, f"{number} -> {small} and multiples", _scaled(number, small))


def _mapping_of(numbers: Mapping[int, int]) -> Callable[[int], int]:
    return lambda n: numbers.get(n, n)


def single_sizes(state: State) -> Iterator[Attempt]:
    """Propose each size of each input by itself; and inputs with a dimension less."""
    data = state.data
    for path, size in _shape_sizes(data):
        for small in _smaller(size):
            yield Attempt(f"{path_text(path)}: {size} -> {small}", with_value(data, path, small))
    shapes = {tuple(shape): len(shape) for _, shape in _shapes(data) if len(shape) > 1}
    for shape, rank in sorted(shapes.items(), key=lambda item: -item[1]):
        for axis in range(rank):
            shorter = [*shape[:axis], *shape[axis + 1 :]]
            changed: Any = data
            for path, current in _shapes(data):
                if tuple(current) == shape:
                    changed = with_value(changed, path, shorter)
            yield Attempt(f"{list(shape)} -> {shorter}", changed)


def _smaller(number: int) -> list[int]:
    """Return the sizes to try for a number, the smallest first."""
    return list(dict.fromkeys(n for n in (1, 2, 3, 4, number // 2, number - 1) if 0 < n < number))


def _scaled(size: int, small: int) -> Callable[[int], int]:
    return lambda n: n // size * small if n >= size and n % size == 0 else n


def _shapes(data: Data) -> Iterator[tuple[Path, list[Any]]]:
    """Yield the shapes of inputs and state, in all calls."""
    for path, item in tensors_of(data):
        if isinstance(item, list):
            yield path, item
        elif "shape" in item:
            yield (*path, "shape"), item["shape"]


def _shape_sizes(data: Data) -> Iterator[tuple[Path, int]]:
    for path, shape in _shapes(data):
        for place, size in enumerate(shape):
            if isinstance(size, int) and size > 1:
                yield (*path, place), size


def _numbers(data: Data) -> Iterator[tuple[Path, int]]:
    """Yield integers of shapes, of initializers, and of the chain; for those in index texts the path of the text."""
    for root in ("inputs", "state", "calls", "chain", "return"):
        for path, value in walk(data.get(root), (root,)):
            if {"values", "python"} & set(path):
                continue
            if isinstance(value, int) and not isinstance(value, bool):
                yield path, value
            elif isinstance(value, str) and value.startswith(("[", "${")):
                yield from ((path, int(number)) for number in _DIGITS.findall(value))


def _mapped(data: Data, change: str, convert: Callable[[int], int]) -> Attempt:
    """Return the attempt in which ``convert`` has changed every number of ``_numbers``."""
    changed: Any = data
    for path in dict.fromkeys(path for path, _ in _numbers(data)):
        value = value_at(data, path)
        if isinstance(value, str):
            changed = with_value(changed, path, _DIGITS.sub(lambda match: str(convert(int(match[0]))), value))
        elif convert(value) != value:
            changed = with_value(changed, path, convert(value))
    return Attempt(change, changed)


# --- settings -------------------------------------------------------------------------------

_PLAIN = (
    "train",
    "grad",
    "dynamic",
    "autocast",
    "threads",
    "seed",
    "param_dtype",
    "dtypes",
    "strides",
    "twin",
    "requires",
    "timeout",
    "memory",
)
_TABLES = ("config", "compile", "expect", "ignore", "tolerance")


def settings(state: State) -> Iterator[Attempt]:
    """Propose the defaults of modes, flags and expectations: all at once, then one by one."""
    data = state.data
    paths = [*_settings(data, state.signature.oracle)]
    if len(paths) > 1:
        yield Attempt("default settings", _without_cotangents(functools.reduce(without, reversed(paths), data), data))
    for path in paths:
        yield Attempt(f"default {path_text(path)}", _without_cotangents(without(data, path), data))
    marks = data.get("dynamic")
    for name in marks if isinstance(marks, dict) and len(marks) > 1 else ():
        yield Attempt(f"${name} is not marked as dynamic", without(data, ("dynamic", name)))
    twin = data.get("twin")
    for name in twin if isinstance(twin, list) and len(twin) > 1 else ():
        yield Attempt(f"twin: [{name}]", {**data, "twin": [name]})
    grad = data.get("grad")
    if isinstance(grad, dict) or grad == "forward":
        yield Attempt("grad: backward", _without_cotangents({**data, "grad": "backward"}, data))


def _without_cotangents(data: Data, original: Data) -> Data:
    """Return the data without the inputs that were cotangents of the original, if they no longer are."""
    grad = original.get("grad")
    if not isinstance(grad, dict) or data.get("grad") == grad:
        return data
    cotangents = grad.get("cotangent")
    given = [f"{name}".removeprefix("$") for name in (cotangents if isinstance(cotangents, list) else [cotangents])]
    return {**data, "inputs": {name: item for name, item in (data.get("inputs") or {}).items() if name not in given}}


def _settings(data: Data, oracle: str) -> Iterator[Path]:
    row = row_of(oracle)
    for key in _PLAIN:
        if key in data and not ((row.limit or oracle == TWIN) and key == oracle):
            yield (key,)
    for key in _TABLES:
        table = data.get(key)
        for name, value in table.items() if isinstance(table, dict) else ():
            if key == "tolerance" and (name == "reason" or (row.numeric and name != "exact")):
                continue  # what a looser tolerance excused must not be found instead
            if key == "compile" and isinstance(value, dict):
                yield from ((key, name, option) for option in value)
            else:
                yield (key, name)


# --- inputs ---------------------------------------------------------------------------------


def inputs(state: State) -> Iterator[Attempt]:
    """Propose simpler inputs: without layout, gradient, dtype, device; shorter lists of values."""
    data = state.data
    for root in ("inputs", "state"):
        for name, item in (data.get(root) or {}).items():
            path: Path = (root, name)
            if not isinstance(item, dict):
                continue
            if "shape" in item and len(item) > 1 and "values" not in item:
                yield Attempt(f"plain ${name}", with_value(data, path, item["shape"]))
            for key in ("layout", "requires_grad", "device", "hidden", "dtype", "init", "tile"):
                if key in item:
                    yield Attempt(f"${name} without {key}", _simplified(data, path, key))
            yield from _shorter(data, path, item)


def _simplified(data: Data, path: Path, key: str) -> Any:
    remaining = {k: v for k, v in value_at(data, path).items() if k != key}
    return with_value(data, path, remaining["shape"] if list(remaining) == ["shape"] else remaining)


def _shorter(data: Data, path: Path, item: Mapping[str, Any]) -> Iterator[Attempt]:
    """Yield attempts with shorter literal values, lists of inputs and layouts."""
    for key in ("values", "list", "layout", "python"):
        entries = item.get(key)
        if not isinstance(entries, list) or not entries:
            continue
        for count in dict.fromkeys((len(entries) // 2, len(entries) - 1)):
            if count and key != "layout":
                yield Attempt(
                    f"{path_text(path)}: {count} of {len(entries)} {key}",
                    with_value(data, (*path, key), entries[:count]),
                )
        for place in range(len(entries) if len(entries) > 1 else 0):
            yield Attempt(f"{path_text(path)}: less {key}", without(data, (*path, key, place)))
        if all(isinstance(part, list) and len(part) > 1 for part in entries):
            for narrow in ([part[: len(part) // 2] for part in entries], [part[:-1] for part in entries]):
                yield Attempt(f"{path_text(path)}: narrower {key}", with_value(data, (*path, key), narrow))


def values(state: State) -> Iterator[Attempt]:
    """Propose values that are easy to read: ones, zeros, 0 1 2 ..., for all inputs and then for each."""
    data = state.data
    filled_tensors = [*_makers(data)]
    if len(filled_tensors) > 1:
        for init in _EASY_INITS:
            changed: Any = data
            for path, item in filled_tensors:
                changed = with_value(changed, path, _filled(item, init))
            yield Attempt(f"all inputs {init_name(init)}", changed)
    for path, item in filled_tensors:
        for init in _EASY_INITS:
            if SIMPLE_INITS.index(init_name(init)) < value_rank(item):
                yield Attempt(f"{path_text(path)}: {init_name(init)}", with_value(data, path, _filled(item, init)))
        if isinstance(item, dict) and isinstance(item.get("init"), dict):
            yield Attempt(f"{path_text(path)}: default values", _simplified(data, path, "init"))


def _makers(data: Data) -> Iterator[tuple[Path, Any]]:
    """Yield the tensors that an initializer fills, and their paths."""
    for path, item in tensors_of(data):
        if isinstance(item, list) or ("shape" in item and "values" not in item):
            yield path, item


def _filled(item: Any, init: Any) -> Any:
    return {**(item if isinstance(item, dict) else {"shape": item}), "init": init}


# --- arguments ------------------------------------------------------------------------------


def arguments(state: State) -> Iterator[Attempt]:
    """Propose fewer and simpler arguments of steps: no keywords, no last positionals, integers 0 to 2, floats 1.0."""
    data = state.data
    for path, value in walk(data.get("chain"), ("chain",)):
        key = path[-1]
        if (
            isinstance(key, str)
            and isinstance(value, dict)
            and not {"$tensor", "$fn", "$text"} & value.keys()
            and key not in ("if", "do", "else")
        ):
            for name in value:
                if (name != "*" and "." in key) or key in ("call", "state"):
                    yield Attempt(f"{path_text(path)}: drop {name}", without(data, (*path, name)))
        elif isinstance(value, list) and len(value) > 1 and (key in ("*", "call") or "." in str(key)):
            yield Attempt(f"{path_text(path)}: drop the last", with_value(data, path, value[:-1]))
        if isinstance(key, str) and key in ("train", "id") and not isinstance(value, dict):
            yield Attempt(f"{path_text(path)}: drop", without(data, path))
    for path, value in walk(data.get("chain"), ("chain",)):
        of_module = any(str(key).startswith("nn.") for key in path)
        for simple in _simpler(value):
            if simple != 0 or not of_module:  # no layers of nothing
                yield Attempt(f"{path_text(path)}: {value} -> {simple}", with_value(data, path, simple))


def _simpler(value: Any) -> list[Any]:
    if isinstance(value, str) and value.startswith("["):
        entries = value[1:-1].split(", ")
        shorter = ([*entries[:n], *entries[n + 1 :]] for n in range(len(entries)))
        return [f"[{', '.join(remaining)}]" for remaining in shorter if remaining]
    if isinstance(value, int) and not isinstance(value, bool):
        return [n for n in (0, 1, 2) if n < abs(value)]
    return [1.0] if isinstance(value, float) and value != 1.0 else []
