"""Graphs with smaller sizes: the same operators, arguments and layouts, in a fraction of the time.

Equal sizes stay equal. A size that is a product, a sum or a multiple of others stays so: 768 = 12 * 64, 197 = 196 + 1.
Integers among the arguments follow. Nothing here knows what an operator asks of its sizes, so each graph is only a
candidate, and a worker tries it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.contract.graphs import Call, Graph, GraphInput, Statistics, Tensor

BOUND = 16
"""Sizes up to this one stay as they are."""
_LARGEST = 1 << 31
_MOST_SIZES = 200
"""Different sizes of one graph, beyond which it is not shrunk."""
_FACTORS = (4, 2, 3, 5, 7)
_ADDED = 8
"""What a size may be larger than a multiple of another one, as 197 = 196 + 1."""
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])", re.ASCII)
_IMAGE = 4
"""Dimensions of tensors whose last two are those of an image."""


def candidates(graph: Graph, bound: int = BOUND) -> Iterator[Graph]:
    """Yield graphs like this one with smaller sizes, the smallest first; none where nothing can be smaller.

    The milder ones keep the sizes of images, or change the first dimensions alone.
    """
    tensors = [*_tensors(graph)]
    numbers = sorted({*(n for t in tensors for n in t.shape), *_integers(graph)} - {0, 1})
    free = {n for n in numbers if bound < n < _LARGEST} - _pinned(graph)
    if not free or len(numbers) > _MOST_SIZES or _shares_storage(graph):
        return
    images = {n for t in tensors if len(t.shape) >= _IMAGE for n in t.shape[-2:]}
    firsts = {t.shape[0] for t in tensors if t.shape} - {n for t in tensors for n in t.shape[1:]}
    sums = {sum(values): values for values in _lists(graph) if len(values) > 1}
    seen: list[dict[int, int]] = []
    for some in (free, free - images, free & firsts):
        mapping = _mapping(numbers, some, sums)
        if mapping not in seen and any(mapping[n] < n for n in some):
            seen.append(mapping)
            yield _with_sizes(graph, mapping)


# --- which sizes there are ---


def _tensors(graph: Graph) -> Iterator[Tensor]:
    yield from (item.tensor for item in graph.inputs if item.tensor is not None)
    for call in graph.calls:
        yield from (operand.tensor for operand in call.operands)
        yield from call.results


def _integers(graph: Graph) -> Iterator[int]:
    """Yield the integers among arguments, those in texts of indices and of arithmetic too."""
    waiting: list[Any] = [[call.positional, call.keywords, call.numbers] for call in graph.calls]
    waiting += [graph.result, [item.python for item in graph.inputs]]
    while waiting:
        value = waiting.pop()
        match value:
            case bool():
                continue
            case int():
                yield value
            case str() if value.startswith(("[", "${")):
                yield from map(int, _NUMBER.findall(value)[:_MOST_SIZES])
            case list() | tuple():
                waiting += value
            case Mapping():
                waiting += value.values()


def _lists(graph: Graph) -> Iterator[list[int]]:
    for call in graph.calls:
        for value in (*call.positional, *call.keywords.values()):
            if isinstance(value, list | tuple) and all(type(item) is int and item > 0 for item in value):
                yield list(value)


def _pinned(graph: Graph) -> set[int]:
    """Return the sizes of tensors whose values are given."""
    given = (item.tensor for item in graph.inputs if item.values is not None or item.file)
    return {size for tensor in given if tensor is not None for size in tensor.shape}


def _shares_storage(graph: Graph) -> bool:
    storages = [i.tensor.storage for i in graph.inputs if i.tensor is not None and i.tensor.storage is not None]
    return len(set(storages)) < len(storages)


# --- what becomes of each size ---


def _mapping(numbers: Sequence[int], free: set[int], sums: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Return the new size of each number, in ascending order, so that a size knows those that it is made of."""
    mapping: dict[int, int] = {}
    for number in numbers:
        mapping[number] = _new_size(number, mapping, sums.get(number)) if number in free else number
    return mapping


def _new_size(number: int, mapping: Mapping[int, int], parts: Sequence[int] | None) -> int:
    proposals = (_product, _multiplied, _shifted) if parts is None else (_of_parts(parts), _multiplied, _shifted)
    for propose in proposals:
        size = propose(number, mapping)
        if size is not None and size < number:
            return size
    return _fresh(number, mapping)


def _of_parts(parts: Sequence[int]) -> Callable[[int, Mapping[int, int]], int | None]:
    return lambda number, mapping: sum(mapping.get(part, part) for part in parts)


def _product(number: int, mapping: Mapping[int, int]) -> int | None:
    """Return the product of two or three others where the number is one: 8192 = 64 * 128."""
    divisors = [n for n in mapping if n > 1 and number % n == 0]
    for count in (2, 3):
        for parts in itertools.combinations_with_replacement(reversed(divisors[-_MOST_SIZES // 4 :]), count):
            if math.prod(parts) == number and any(mapping[part] != part for part in parts):
                return math.prod(mapping[part] for part in parts)
    return None


def _multiplied(number: int, mapping: Mapping[int, int]) -> int | None:
    """Return a multiple of the largest other that divides the number; the factor may become smaller."""
    taken = set(mapping.values())
    for divisor in reversed([n for n in mapping if n > 2 and number % n == 0 and n != number]):
        factor = number // divisor
        if mapping[divisor] != divisor and factor <= _FACTORS[0]:
            return mapping[divisor] * factor
        sizes = [mapping[divisor] * f for f in _FACTORS if factor % f == 0]
        return next((size for size in sizes if size not in taken), None)
    return None


def _shifted(number: int, mapping: Mapping[int, int]) -> int | None:
    """Return what is a little more than a multiple of another: 197 = 196 + 1, 299 = 2 * 149 + 1."""
    for other in reversed([n for n in mapping if mapping[n] != n]):
        factor, added = divmod(number, other)
        if factor <= _FACTORS[0] and added <= _ADDED:
            return mapping[other] * factor + added
    return None


def _fresh(number: int, mapping: Mapping[int, int]) -> int:
    """Return a small size that no other has. Powers of two in the number stay in it, up to 8."""
    unit = math.gcd(number, 8)
    unit = unit if unit > 1 else 1
    least = max((size for old, size in mapping.items() if size != old), default=7) + 1
    taken = {*mapping, *mapping.values()}
    start = -(-least // unit) * unit
    return next((size for size in range(start, number, unit) if size % 2 == number % 2 and size not in taken), number)


# --- the graph with these sizes ---


def _with_sizes(graph: Graph, mapping: Mapping[int, int]) -> Graph:
    changes = ", ".join(f"{old} to {new}" for old, new in mapping.items() if old != new)
    origin = f"{graph.origin} (sizes made smaller: {changes})"
    inputs = tuple(_input(item, mapping) for item in graph.inputs)
    calls = tuple(_call(call, mapping) for call in graph.calls)
    return replace(graph, origin=origin, inputs=inputs, calls=calls, result=_value(graph.result, mapping))


def _input(item: GraphInput, mapping: Mapping[int, int]) -> GraphInput:
    if item.tensor is None:
        return replace(item, python=_value(item.python, mapping))
    tensor = _tensor(item.tensor, mapping)
    return replace(item, tensor=tensor, statistics=_statistics(item.statistics, tensor, mapping))


def _call(call: Call, mapping: Mapping[int, int]) -> Call:
    operands = []
    for operand in call.operands:
        tensor = _tensor(operand.tensor, mapping)
        statistics = _statistics(operand.statistics, tensor, mapping)
        operands.append(replace(operand, tensor=tensor, statistics=statistics))
    return replace(
        call,
        positional=tuple(_value(value, mapping) for value in call.positional),
        keywords={key: _value(value, mapping) for key, value in call.keywords.items()},
        operands=tuple(operands),
        results=tuple(_tensor(tensor, mapping) for tensor in call.results),
        numbers={key: _value(value, mapping) for key, value in call.numbers.items()},
    )


def _value(value: Any, mapping: Mapping[int, int]) -> Any:
    match value:
        case bool():
            return value
        case int():
            return mapping.get(value, value)
        case str() if value.startswith(("[", "${")):
            return _NUMBER.sub(lambda match: str(mapping.get(int(match[0]), int(match[0]))), value)
        case list() | tuple():
            return type(value)(_value(item, mapping) for item in value)
        case Mapping():
            return value if "$text" in value else {key: _value(item, mapping) for key, item in value.items()}
    return value


def _tensor(tensor: Tensor, mapping: Mapping[int, int]) -> Tensor:
    shape = tuple(mapping.get(size, size) for size in tensor.shape)
    stride = None if tensor.stride is None else _stride(tensor.shape, tensor.stride, shape, mapping)
    return replace(tensor, shape=shape, stride=stride)


def _stride(
    old: Sequence[int], strides: Sequence[int], new: Sequence[int], mapping: Mapping[int, int]
) -> tuple[int, ...]:
    """Return strides of the new sizes in the order of the old ones: gaps stay gaps, and what overlaps or repeats stays
    so."""
    result = list(strides)
    reached_old = reached_new = 1  # elements that the dimensions so far take, in order of their strides
    for place in sorted(range(len(old)), key=lambda place: (strides[place], old[place])):
        stride = strides[place]
        if stride == 0 or (old[place] > 1 and stride < reached_old):
            continue
        if stride % reached_old == 0:
            gap = stride // reached_old
            result[place] = reached_new * mapping.get(gap, gap if gap <= _ADDED else _FACTORS[1])
        else:
            result[place] = reached_new + 1
        if old[place] > 1:
            reached_old, reached_new = stride * old[place], result[place] * new[place]
    return tuple(result)


def _statistics(statistics: Statistics | None, tensor: Tensor, mapping: Mapping[int, int]) -> Statistics | None:
    """Return statistics of integers below the size that they were below. Those of floats stay."""
    if statistics is None or not tensor.dtype.startswith(("int", "uint")):
        return statistics
    count, largest = math.prod(tensor.shape), statistics.largest
    above = min((size for size in mapping if size > largest), default=0)
    if statistics.ascending and largest in mapping:  # the end of what it divides
        largest = mapping[int(largest)]
    elif statistics.distinct:
        largest = min(largest, count - 1)
    elif above and mapping[above] != above:
        largest = min(largest, mapping[above] - 1)
    least = min(statistics.least, largest)
    return replace(statistics, least=least, largest=largest, mean=(least + largest) / 2)
