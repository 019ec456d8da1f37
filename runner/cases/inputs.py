"""``inputs:`` and ``state:``: how each tensor is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runner.cases.chain_reader import check_numbers, parse_chain, parse_value, read_init
from runner.cases.model import DTYPES, Arithmetic, Input, Literal, Ref, Value
from runner.cases.problems import Problems
from runner.cases.python_names import NAME_HINT, OF_MODULES, RESERVED, is_name
from runner.cases.yaml.tree import YamlMapping, YamlNode, YamlScalar, YamlSequence
from runner.diagnostics import Span, nearest

AFTER_LAYOUT = "after_layout"
"""The value of ``requires_grad:`` that makes a leaf of what the layout gives."""
_SOURCES = ("shape", "values", "view_of", "list", "python")


def parse_inputs(node: YamlNode | None, problems: Problems, role: str = "an input") -> tuple[Input, ...]:
    """Read the inputs of a mapping, in order.

    ``role`` is what messages call them. With ``"state"`` they become attributes of a module.
    """
    if not isinstance(node, YamlMapping):
        return ()
    inputs = []
    for key, value in node.entries:
        name = str(key.value)
        if not is_name(name, RESERVED | OF_MODULES if role == "state" else RESERVED):
            problems.error(key.span, f"{name!r} cannot name {role}", NAME_HINT)
            continue
        parsed = parse_input(name, key, value, problems)
        if parsed is not None:
            inputs.append(parsed)
    parts = {part.name: item for item in inputs for part in _parts(item)}
    for item in inputs:
        if item.name in parts:
            problems.error(
                item.span,
                f"{item.name!r} is what an element of the list {parts[item.name].name!r} is called",
                "name it otherwise",
            )
    return tuple(inputs)


def parse_input(name: str, key: YamlScalar, node: YamlNode, problems: Problems) -> Input | None:
    """Read one input; ``[2, 3]`` is short for ``{shape: [2, 3]}``. Returns None for one that is reported."""
    if isinstance(node, YamlSequence):
        return Input(name, "tensor", key.span, shape=_shape(node, problems))
    if not isinstance(node, YamlMapping):
        return problems.refuse(None, node.span, "an input is a shape or a mapping", "such as x: [2, 3]")
    sources = [source for source in _SOURCES if node.key(source) is not None]
    kinds = [source for source in sources if not (source == "shape" and "values" in sources)]
    if len(kinds) != 1:
        hint = f"one of {', '.join(_SOURCES)} makes an input; shape: may reshape values:"
        return problems.refuse(
            None, key.span, f"input {name!r} has {' and '.join(kinds) or 'nothing that makes it'}", hint
        )
    kind = {"shape": "tensor", "view_of": "view"}.get(kinds[0], kinds[0])
    init, init_args = _init(node.get("init"), problems)
    values, python, tile = node.get("values"), node.get("python"), node.get("tile")
    items = node.get("list")
    shape = node.get("shape")
    return Input(
        name,
        kind,
        key.span,
        shape=_shape(shape, problems) if isinstance(shape, YamlSequence) else None,
        dtype=_dtype(node.get("dtype"), problems),
        init=init,
        init_args=init_args,
        values=parse_value(values, problems) if values is not None and check_numbers(values, problems) else None,
        tile=tile.value if isinstance(tile, YamlScalar) and isinstance(tile.value, int) else None,
        view_of=_text(node.get("view_of")),
        items=_items(name, key, items, problems) if isinstance(items, YamlSequence) else (),
        python=None if python is None else parse_value(python, problems),
        layout=parse_chain(node.get("layout"), problems),
        requires_grad=_flag(node, "requires_grad") or _text(node.get("requires_grad")) == AFTER_LAYOUT,
        grad_after_layout=_text(node.get("requires_grad")) == AFTER_LAYOUT,
        hidden=_flag(node, "hidden"),
        device=_text(node.get("device")),
    )


def _items(name: str, key: YamlScalar, node: YamlSequence, problems: Problems) -> tuple[Input, ...]:
    parsed = [parse_input(f"{name}_{i}", key, item, problems) for i, item in enumerate(node.items)]
    return tuple(item for item in parsed if item is not None)


def _parts(item: Input) -> Iterator[Input]:
    for part in item.items:
        yield part
        yield from _parts(part)


def _shape(node: YamlSequence, problems: Problems) -> tuple[Value, ...]:
    sizes = []
    for item in node.items:
        value = parse_value(item, problems)
        size = value.value if isinstance(value, Literal) else None
        if isinstance(size, int) and not isinstance(size, bool):
            if size < 0:
                problems.error(item.span, "a size is not negative")
                value = Literal(1)
        elif not isinstance(value, Arithmetic):
            hint = f'write "${{{value.name}}}"' if isinstance(value, Ref) and not value.path else 'such as [2, "${n}"]'
            problems.error(item.span, "a shape holds integers and ${...}", hint)
            value = Literal(1)
        sizes.append(value)
    return tuple(sizes)


def _init(node: YamlNode | None, problems: Problems) -> tuple[str | None, tuple[Value, ...]]:
    name, arguments = (None, ()) if node is None else read_init(node, problems)
    return name, tuple(parse_value(argument, problems) for argument in arguments)


def _dtype(node: YamlNode | None, problems: Problems) -> str | None:
    if node is None:
        return None
    name = dtype_name(node.value if isinstance(node, YamlScalar) else None)
    return name if name != "$dtype" and check_dtype(name, node.span, problems) else None


def check_dtype(name: str, span: Span, problems: Problems, hint: str = "such as float32, int64, bool") -> bool:
    """Return whether torch has a dtype ``name``, and report one that it has not; ``hint`` is for a name like none of
    them."""
    if name not in DTYPES:
        problems.error(span, f"torch has no dtype {name!r}", nearest(name, DTYPES) or hint)
    return name in DTYPES


def dtype_name(value: Any) -> str:
    """Return the name of a dtype without ``torch.``."""
    return str(value).removeprefix("torch.")


def _flag(node: YamlMapping, name: str) -> bool:
    value = node.get(name)
    return isinstance(value, YamlScalar) and value.value is True


def _text(node: YamlNode | None) -> str | None:
    return node.value if isinstance(node, YamlScalar) and isinstance(node.value, str) else None
