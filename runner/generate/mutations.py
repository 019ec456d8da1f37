"""Small changes of a case: the same program with another dtype, size, layout, view, write or backward, or with a second
one behind it.

Cases are plain data, as ``runner/cases/serialize.py`` makes it. Most changes know nothing of what an operator takes: a
worker tries the case out afterwards, and eager PyTorch refuses what does not fit. A mutant is one variant, and says
nothing of itself that a change can make wrong.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from runner.builder.chain import STATEMENTS
from runner.builder.operators import is_plain
from runner.contract.oracles import BUDGETS

AXES = ("dtypes", "train", "grad", "dynamic", "autocast", "threads")
"""Keys of a case that may hold several values, of which each variant has one; ``params`` holds such lists by name."""

GRAPHS = frozenset({"change_layout", "call_again", "change_dtype"})
"""Changes of a chain after which Dynamo makes the same graphs."""
GRAPHS_OF_PYTHON = frozenset({"change_layout"})
"""The same of a model in Python. It may count its calls, and may branch by a dtype."""
RECOMPILES = "torch._dynamo.config.error_on_recompile"
"""A flag that says the same as ``expect: {recompiles: 0}``."""
VALUES = frozenset({"change_layout", "call_again", "insert_view"})
"""Changes after which a tolerance still holds."""


def one_variant(parent: Mapping[str, Any], numbers: random.Random) -> dict[str, Any]:
    """Return a copy of a parent with one value of each axis. A mutant is one variant, since only one is tried out."""
    case = copy.deepcopy(dict(parent))
    if "params" in case:
        case["params"] = {name: [numbers.choice(values)] for name, values in case["params"].items()}
    for axis in AXES:
        if isinstance(case.get(axis), list):
            value = numbers.choice(case[axis])
            case[axis] = [value] if axis == "dtypes" else value
    return case


def expects_no_graph(case: Mapping[str, Any]) -> bool:
    """Return whether a case says that nothing of it is compiled."""
    return (case.get("expect") or {}).get("graphs") == 0


def without_outdated(case: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any] | None:
    """Return a changed case without the expectations that may no longer hold.

    None if the parent expects that nothing is compiled: without that expectation the mutant could be VACUOUS. An
    exception stays expected, because trying the mutant out shows whether eager still raises it. ``changes`` are names
    of functions of this module.
    """
    kept = dict(case)
    if not VALUES.issuperset(changes):
        kept.pop("tolerance", None)
    # A change may make one call of a case differ from another: by inputs of its own, or by a state that was changed.
    may_differ = "state" in case or any("inputs" in call for call in case.get("calls", ()))
    if not may_differ and (GRAPHS_OF_PYTHON if "module" in case else GRAPHS).issuperset(changes):
        return kept
    if expects_no_graph(case):
        return None
    for key, stale in (
        ("expect", (*BUDGETS, "constant")),
        ("compile", ("fullgraph",)),
        ("config", (RECOMPILES,)),
    ):
        if key in kept:
            kept[key] = {name: value for name, value in kept[key].items() if name not in stale}
            if not kept[key]:
                del kept[key]
    return kept


Case = dict[str, Any]

MOST = 3
"""Changes of one mutant, at most. Many changes at once are seldom valid."""
TRIES = 20
"""Changes that are tried for one mutant: some fit no place of a case."""
STEPS = 24
"""Steps of a mutant, at most: mutants of mutants would grow without end."""

_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33)
_FLOATS = ("float32", "float64", "float16", "bfloat16")
_DTYPES = (*_FLOATS, "int64", "int32", "complex64")
_VIEWS: tuple[tuple[Any, ...], ...] = (
    ({"Tensor.view_as": ["$V", "$V"]},),
    ({"Tensor.expand_as": ["$V", "$V"]},),
    ({"operator.getitem": ["$V", "[...]"]},),
    ({"operator.getitem": ["$V", "[1:]"]},),
    ({"operator.getitem": ["$V", "[..., ::2]"]},),
    ({"torch.unsqueeze": ["$V", 0]},),
    ({"torch.unsqueeze": ["$V", -1]}, {"torch.squeeze": ["$_", -1]}),
    ({"torch.transpose": ["$V", 0, -1]},),
    ({"torch.transpose": ["$V", 0, -1]}, {"Tensor.contiguous": "$_"}, {"torch.transpose": ["$_", 0, -1]}),
    ({"torch.movedim": ["$V", 0, -1]},),
    ({"torch.flatten": "$V"},),
    ({"torch.select": ["$V", 0, 0]},),
    ({"torch.diagonal": "$V"},),
    ({"torch.clone": "$V"},),
    ({"Tensor.contiguous": "$V"},),
)  # fmt: skip
_WRITES: tuple[tuple[Any, ...], ...] = (
    ({"Tensor.add_": ["$V", 1]},),
    ({"Tensor.mul_": ["$V", 2]},),
    ({"Tensor.neg_": "$V"},),
    ({"Tensor.zero_": "$V"},),
    ({"operator.getitem": ["$V", "[:1]"]}, {"Tensor.fill_": ["$_", 2]}),
    ({"torch.select": ["$V", -1, 0]}, {"Tensor.mul_": ["$_", 3]}),
    ({"torch.transpose": ["$V", 0, -1]}, {"Tensor.add_": ["$_", 1]}),
    ({"torch.flatten": "$V"}, {"Tensor.sub_": ["$_", 1]}),
)  # fmt: skip


class UnfitError(Exception):
    """A change that has no place in a case."""


Change = Callable[[Case, Mapping[str, Any], random.Random], None]


def mutant_of(
    parent: Mapping[str, Any], donor: Mapping[str, Any], numbers: random.Random, name: str, again: str
) -> Case | None:
    """Return a parent with one to three changes; None where none of those that were tried fits."""
    case = one_variant(parent, numbers)
    wanted, names = numbers.randint(1, MOST), list[str]()
    for _ in range(TRIES):
        change = numbers.choice(CHANGES)
        changed = copy.deepcopy(case)
        try:
            change(changed, donor, numbers)
        except UnfitError:
            continue
        if len(changed.get("chain", ())) <= STEPS:
            case, names = changed, [*names, change.__name__]
        if len(names) == wanted:
            break
    kept = without_outdated(case, names) if names else None
    if kept is None:
        return None
    _name_dropped(kept)
    doc = f"{again} ({parent['name']}: {', '.join(name.replace('_', ' ') for name in names)})"
    return {**kept, "name": name, "doc": doc, "tags": ["mutant", *dict.fromkeys(names)]}


# --- dtypes, sizes, layouts, modes ----------------------------------------------------------


def change_dtype(case: Case, donor: Mapping[str, Any], numbers: random.Random) -> None:
    """Another dtype; one with gradients where the case takes them."""
    current = case.get("dtypes", ["float32"])
    learns = case.get("grad", "forward") not in ("forward", "off") or "requires_grad" in str(case["inputs"])
    case["dtypes"] = [_choice([kind for kind in (_FLOATS if learns else _DTYPES) if kind not in current], numbers)]


def change_size(case: Case, donor: Mapping[str, Any], numbers: random.Random) -> None:
    """Another number for one size of the inputs, everywhere; in half of the mutants also in the arguments of
    operators."""
    size = _size(case, numbers)
    _replace_size(case, size, _choice([each for each in _SIZES if each != size], numbers), numbers.random() < 0.5)


def change_layout(case: Case, donor: Mapping[str, Any], numbers: random.Random) -> None:
    """An input of the same shape that is transposed, expanded, has gaps, or begins within its memory."""
    name, spec = _choice(
        [(name, spec) for name, spec in _tensors(case) if spec["shape"] and "layout" not in spec], numbers
    )
    shape = list(spec["shape"])
    kind, last = numbers.choice(("transposed", "expanded", "gaps", "offset")), len(shape) - 1
    place = numbers.randint(0, last)
    if not all(isinstance(size, int) for size in shape):
        raise UnfitError
    match kind:
        case "transposed":
            if not last:
                raise UnfitError
            layout = {"torch.transpose": ["$_", place, (place + 1) % len(shape)]}
            shape[place], shape[(place + 1) % len(shape)] = shape[(place + 1) % len(shape)], shape[place]
        case "expanded":
            layout = {"Tensor.expand": ["$_", list(shape)]}
            shape[place] = 1
        case "gaps":
            layout = {"operator.getitem": ["$_", "[..., ::2]"]}
            shape[-1] *= 2
        case _:
            layout = {"operator.getitem": ["$_", "[1:]"]}
            shape[0] += 1
    case["inputs"][name] = {**spec, "shape": shape, "layout": [layout]}


def take_backward(case: Case, donor: Mapping[str, Any], numbers: random.Random) -> None:
    """A backward, and gradients of the floating inputs; or none, where there was one."""
    if case.pop("grad", "forward") == "backward":
        return
    if any(kind not in _FLOATS for kind in case.get("dtypes", ["float32"])):
        raise UnfitError
    for name, spec in _tensors(case):
        if spec.get("dtype", "float32") in _FLOATS and not isinstance(spec.get("init"), dict):
            case["inputs"][name] = {**spec, "requires_grad": True}
    case["grad"] = "backward"


def make_dynamic(case: Case, donor: Mapping[str, Any], numbers: random.Random) -> None:
    """Further calls with other numbers for one size of the inputs."""
    if {"params", "calls"} & case.keys():
        raise UnfitError
    size = _size(case, numbers)
    _replace_size(case, size, "${n}", numbers.random() < 0.3)
    case["params"] = {"n": [size]}
    case["calls"] = [{"params": {"n": numbers.choice(_SIZES)}} for _ in range(numbers.randint(1, 2))]
    if numbers.random() < 0.6:
        case["dynamic"] = True


def call_again(case: Case, donor: Mapping[str, Any], numbers: random.Random) -> None:
    """A second call with the same sizes."""
    if "calls" in case:
        raise UnfitError
    case["calls"] = [{}]


def use_autocast(case: Case, donor: Mapping[str, Any], numbers: random.Random) -> None:
    """Autocast to bfloat16, or none where there was one."""
    if case.pop("autocast", None) is None:
        case["autocast"] = "bfloat16"


# --- the chain ------------------------------------------------------------------------------


def insert_view(case: Case, donor: Mapping[str, Any], numbers: random.Random) -> None:
    """A view or a copy of a value, which takes the value's place."""
    _refuse_unused_error(case)
    place, value = _value(case, numbers)
    steps = _of(numbers.choice(_VIEWS), value)
    if value != "$_":
        steps[-1]["out"] = value[1:]
    case["chain"][place:place] = steps


def insert_write(case: Case, donor: Mapping[str, Any], numbers: random.Random) -> None:
    """A write into a value, or through a view of it."""
    place, value = _value(case, numbers)
    case["chain"][place:place] = _of(numbers.choice(_WRITES), value)


def return_more(case: Case, donor: Mapping[str, Any], numbers: random.Random) -> None:
    """One more value is returned: of the middle of the chain, or an input."""
    values = [f"${name}" for name in (*case["inputs"], *_names(_chain(case)))]
    returned = _returned(case)
    returned.insert(
        numbers.randint(0, len(returned)), _choice([value for value in values if value not in returned], numbers)
    )
    case["return"] = returned


def change_number(case: Case, donor: Mapping[str, Any], numbers: random.Random) -> None:
    """Another number as an argument of an operator."""
    holder, key = _choice([(holder, key) for step in _chain(case) for holder, key in _numbers_in(step)], numbers)
    number = holder[key]
    near = [number + 1, number - 1, -number, 0] if isinstance(number, int) else [number * 2, -number, 0.0, 1.0]
    holder[key] = numbers.choice(near)


def change_operator(case: Case, donor: Mapping[str, Any], numbers: random.Random) -> None:
    """An operator of the other case in place of one that is called alike."""
    theirs = [operator for operator, _ in _calls(_steps_of(donor))]
    step, operator = _choice([(step, operator) for operator, step in _calls(_chain(case))], numbers)
    is_module = operator.startswith("nn.")
    new = _choice([name for name in theirs if name != operator and name.startswith("nn.") == is_module], numbers)
    changed = {new if key == operator else key: value for key, value in step.items()}
    step.clear()
    step.update(changed)


def append_case(case: Case, donor: Mapping[str, Any], numbers: random.Random) -> None:
    """The steps of the other case behind those of this one; a value of this one stands for its first input."""
    if {"params", "state", "calls"} & donor.keys() or not donor["inputs"]:
        raise UnfitError
    _refuse_unused_error(case)
    first = next(iter(donor["inputs"]))
    steps, added = _chain(case), _steps_of(donor)
    taken = {*case["inputs"], *_names(steps)}
    values = _names(steps) or [*case["inputs"]]
    names = {name: _free(name, taken) for name in (*donor["inputs"], *_names(added))}
    names[first] = numbers.choice(values)
    returned = _returned(case)
    case["inputs"] |= {names[name]: copy.deepcopy(spec) for name, spec in donor["inputs"].items() if name != first}
    # A first step without arguments takes the value of the step before, and one of a chain takes the first input.
    steps += [{"operator.getitem": [f"${names[first]}", "[...]"]}, *_renamed(copy.deepcopy(added), names)]
    theirs = [_renamed(value, names) for value in _returned(donor)]
    case["return"] = [*(value for value in returned if value != "$_"), *theirs]


CHANGES: tuple[Change, ...] = (
    change_dtype, change_size, change_layout, change_layout, take_backward, make_dynamic, call_again, use_autocast,
    insert_view, insert_view, insert_write, insert_write, return_more, change_number, change_operator, append_case,
    append_case,
)  # fmt: skip
"""What may be done with a case. What makes compilers fail stands there twice."""


# --- parts of plain data --------------------------------------------------------------------


def _choice(values: Sequence[Any], numbers: random.Random) -> Any:
    if not values:
        raise UnfitError
    return numbers.choice(values)


def _refuse_unused_error(case: Mapping[str, Any]) -> None:
    """Raise UnfitError where what raises the expected exception could become a value that nothing uses: compiled code
    may leave that out."""
    if (case.get("expect") or {}).get("raises"):
        raise UnfitError


def _chain(case: Mapping[str, Any]) -> list[Any]:
    """Return the steps of a case; a model in Python has none, and only its inputs and its runs can be changed."""
    if "chain" not in case:
        raise UnfitError
    steps: list[Any] = case["chain"]
    return steps


def _steps_of(donor: Mapping[str, Any]) -> list[Any]:
    """Return the steps of another case.

    One of which nothing is compiled gives none: a mutant would be such a case too.
    """
    if expects_no_graph(donor):
        raise UnfitError
    return _chain(donor)


def _tensors(case: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the inputs that are tensors of a shape, each as a mapping."""
    specs = ((name, {"shape": spec} if isinstance(spec, list) else spec) for name, spec in case["inputs"].items())
    return [(name, spec) for name, spec in specs if isinstance(spec, dict) and isinstance(spec.get("shape"), list)]


def _size(case: Mapping[str, Any], numbers: random.Random) -> int:
    sizes = [size for _, spec in _tensors(case) for size in spec["shape"] if isinstance(size, int)]
    return int(_choice(sizes, numbers))


def _replace_size(case: Case, size: int, new: Any, everywhere: bool) -> None:
    for name, spec in _tensors(case):
        shape = [new if each == size else each for each in spec["shape"]]
        case["inputs"][name] = shape if isinstance(case["inputs"][name], list) else {**spec, "shape": shape}
    for holder, key in (place for step in case.get("chain", ()) for place in _numbers_in(step) if everywhere):
        if holder[key] == size and isinstance(holder[key], int):
            holder[key] = new


def _numbers_in(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the container and the key of each number in steps."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield data, key
        else:
            yield from _numbers_in(value)


def _calls(chain: Sequence[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the operators of steps with arguments, each with its step."""
    for step in chain:
        if isinstance(step, dict) and not {"with", "if"} & step.keys():
            operator = next(iter(step))
            if "." in operator:
                yield operator, step


def _names(chain: Sequence[Any]) -> list[str]:
    """Return the names that the steps give to single values, in order."""
    names = (step.get("out") for step in chain if isinstance(step, dict))
    return [*dict.fromkeys(name for name in names if isinstance(name, str) and name != "_")]


def _name_dropped(case: Case) -> None:
    """Write ``out: _`` where a change leaves a value that no step reads, which is an error without it."""
    steps: list[Any] = case.get("chain", [])
    for place, step in enumerate(steps):
        if is_plain(_operator(step)) and not (isinstance(step, dict) and "out" in step):
            later = [*steps[place + 1 :], {"return.": case.get("return", "$_")}]
            end = next(each for each in later if _reads_previous(each) or _operator(each) not in STATEMENTS)
            if not _reads_previous(end):
                steps[place] = {**(step if isinstance(step, dict) else {step: None}), "out": "_"}


def _operator(step: Any) -> str:
    return str(next((key for key in step if "." in key), "") if isinstance(step, dict) else step)


def _reads_previous(step: Any) -> bool:
    """Return whether a step may read the value before it."""
    operator = _operator(step)
    is_bare = not isinstance(step, dict) or not operator  # or a block
    return is_bare or "$_" in str(step) or step[operator] is None or (operator.startswith("nn.") and "call" not in step)


def _value(case: Mapping[str, Any], numbers: random.Random) -> tuple[int, str]:
    """Return a place in the chain and a value that is there: an input, or what the step before it gives."""
    chain = _chain(case)
    place = numbers.randint(0, len(chain))
    if place == 0 or numbers.random() < 0.3:
        return place, f"${numbers.choice([*case['inputs']])}"
    step = chain[place - 1]
    name = step.get("out") if isinstance(step, dict) else None
    if isinstance(name, list):
        name = next((each for each in name if isinstance(each, str) and each != "_"), None)
        if name is None:
            raise UnfitError
    return place, f"${name or '_'}"


def _of(steps: Sequence[Mapping[str, Any]], value: str) -> list[dict[str, Any]]:
    """Return the steps of a pattern with the value in its place."""
    return [{key: _renamed(argument, {"V": value[1:]}) for key, argument in step.items()} for step in steps]


def _returned(case: Mapping[str, Any]) -> list[Any]:
    """Return what a case returns as a list: the last value, where it does not say."""
    returned = case.get("return", "$_")
    if isinstance(returned, dict):
        return [*returned.values()]
    return [*returned] if isinstance(returned, list) else [returned]


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "b"
    taken.add(name)
    return name


def _renamed(data: Any, names: Mapping[str, str]) -> Any:
    """Return steps or values with other names, where they are read and where they are given."""
    match data:
        case str():
            return re.sub(r"\$(\w+)", lambda match: f"${names.get(match[1], match[1])}", data)
        case list():
            return [_renamed(item, names) for item in data]
        case dict():
            return {
                key: _given(value, names) if key == "out" else _renamed(value, names) for key, value in data.items()
            }
    return data


def _given(given: Any, names: Mapping[str, str]) -> Any:
    return [_given(name, names) for name in given] if isinstance(given, list) else names.get(given, given)
