"""Values in arguments: ``$x``, ``${...}``, ``torch.float16``, indices, ``{$tensor: ...}``, ``{$fn: ...}``, plain data."""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING, Any

from runner.cases import expressions
from runner.cases.chain_nodes import (
    Arguments,
    Arithmetic,
    Constant,
    Index,
    Items,
    Literal,
    Ref,
    Table,
    TensorLiteral,
    Value,
)
from runner.cases.problems import Problems, within
from runner.cases.yaml.tree import YamlMapping, YamlNode, YamlScalar, YamlSequence
from runner.cases.yaml.wording import show_value
from runner.diagnostics import Span, nearest

if TYPE_CHECKING:
    from runner.cases.chain_nodes import Function

_INDEX_DIGITS = len(str(1 << expressions.MAX_BITS))
"""Of an integer in an index: as many as the result of an expression may have."""

RESERVED = frozenset({"self", "torch", "nn", "F", "numpy", "operator", "dtype", "device", "super", "_"})
"""Names that the written source uses itself."""

OF_MODULES = frozenset({
    "T_destination", "add_module", "apply", "bfloat16", "buffers", "call_super_init", "children", "compile", "cpu", "cuda", "double",
    "dump_patches", "eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state", "get_parameter", "get_submodule", "half",
    "ipu", "load_state_dict", "modules", "mtia", "named_buffers", "named_children", "named_modules", "named_parameters", "parameters",
    "register_backward_hook", "register_buffer", "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
    "register_full_backward_pre_hook", "register_load_state_dict_post_hook", "register_load_state_dict_pre_hook", "register_module",
    "register_parameter", "register_state_dict_post_hook", "register_state_dict_pre_hook", "requires_grad_", "set_extra_state",
    "set_submodule", "share_memory", "state_dict", "to", "to_empty", "train", "training", "type", "xpu", "zero_grad",
})  # fmt: skip
"""Attributes that every ``nn.Module`` has: state or a submodule of such a name would not be reached, the attribute would."""

MAX_NESTING = 8
"""How deep the brackets of an index may be nested."""

MAX_INDEX = 1000
"""Characters in one index."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # not \w: Python reads many other letters as these
_REF = re.compile(r"\$(?P<name>[A-Za-z_]\w*)(?P<path>(?:\.[A-Za-z_]\w*|\[-?\d{1,18}\])*)", re.ASCII)
_PART = re.compile(r"\.([A-Za-z_]\w*)|\[(-?\d+)\]", re.ASCII)


def is_name(text: str, reserved: frozenset[str] = RESERVED) -> bool:
    """Whether ``text`` can be a variable of the written source, or with other ``reserved`` names an attribute or a keyword."""
    return (
        bool(_NAME.fullmatch(text))
        and not keyword.iskeyword(text)
        and not text.startswith("__")
        and text not in reserved
    )


def parse_value(node: YamlNode, problems: Problems) -> Value:
    """The value that a YAML node stands for. Problems are reported; something harmless is returned for them."""
    if isinstance(node, YamlScalar):
        return _scalar(node, problems)
    if isinstance(node, YamlSequence):
        return Items(tuple(parse_value(item, problems) for item in node.items))
    special = _special(node, problems)
    if special is not None:
        return special
    return Table(
        tuple(
            (plain_text(str(key.value), key.span, problems), parse_value(value, problems))
            for key, value in node.entries
        )
    )


def parse_arguments(node: YamlNode, problems: Problems, index_at: int | None = None) -> Arguments:
    """Arguments of one call: a list is positional, a mapping holds keywords (``"*"``: positionals), other values are
    the one positional, nothing is bare. ``index_at`` is the positional that may be an index text."""
    if isinstance(node, YamlScalar) and node.value is None and not node.quoted:
        return Arguments(bare=True)
    if isinstance(node, YamlSequence):
        return Arguments(positional=_positionals(node, problems, index_at))
    if isinstance(node, YamlMapping) and _special_key(node) is None:
        positional: tuple[Value, ...] = ()
        keywords = []
        for key, value in node.entries:
            if key.value == "*":
                if not isinstance(value, YamlSequence):
                    problems.error(
                        value.span, '"*" holds a list of positional arguments', 'such as {"*": [$_, 2], dim: 1}'
                    )
                    continue
                positional = _positionals(value, problems, index_at)
            elif str(key.value).startswith("_") or not is_name(str(key.value), frozenset()):
                problems.error(key.span, f"{key.value!r} is no keyword argument", "keywords are Python names")
            else:
                keywords.append((str(key.value), parse_value(value, problems)))
        return Arguments(positional, tuple(keywords))
    return Arguments(positional=(parse_value(node, problems),))


def parse_reference(text: str, span: Span, problems: Problems) -> Ref | None:
    """``$name.attr[0]``; None, with a problem reported, when it is not one."""
    match = _REF.fullmatch(text)
    if match is None:
        problems.error(
            span,
            f"{show_value(text)} is no reference",
            "write $name, $name.attr, $name[0] or ${...}; plain text is {$text: ...}",
        )
        return None
    path = tuple(attr or int(item) for attr, item in _PART.findall(match["path"]))
    return Ref(match["name"], path, span)


def arithmetic(text: str, span: Span, problems: Problems) -> Arithmetic | None:
    """``${...}`` as a whole, checked."""
    inner = text[2:-1]
    try:
        expressions.parse(inner)
    except expressions.ExpressionError as error:
        problems.error(within(span, 2 + error.offset), f"in {text}: {error}")
        return None
    return Arithmetic(inner, span)


_STRAY = re.compile(r"[^\w .,:>$-]", re.ASCII)
"""What a text may not hold that reaches an operator: all that ends a text of Python or C++, and all that makes a call.

Compilers write the texts of a graph into the code that they generate. Inductor's C++ wrapper does not quote them (torch 2.13,
``codegen/cpp_wrapper_cpu.py``), nor do its Triton templates (``select_algorithm.py``): a text became a call of ``system``.
"""


def plain_text(text: str, span: Span, problems: Problems) -> str:
    """``text``, for an operator; empty, with a problem reported, when it holds a character that generated code might not quote."""
    stray = _STRAY.search(text)
    if stray is None:
        return text
    problems.error(
        span,
        f"a text for an operator may not hold {show_value(stray[0])}: compilers write it into the code that they generate",
        "it may hold ASCII letters, digits, blanks and . , : - > $ _",
    )
    return ""


def _scalar(node: YamlScalar, problems: Problems) -> Value:
    value = node.value
    if not isinstance(value, str):
        return Literal(value)
    span = node.span
    if "${" in value:
        if not (value.startswith("${") and value.endswith("}") and value.count("${") == 1):
            problems.error(span, "${...} stands alone in its value", f"split {value!r} into arguments of their own")
            return Literal(value)
        return arithmetic(value, within(span, node.quoted, span.length), problems) or Literal(0)
    if value in ("$dtype", "$device") or value.startswith("torch."):
        return Constant(value, span)
    if value.startswith("$"):
        return parse_reference(value, span, problems) or Literal(None)
    return Literal(plain_text(value, span, problems))


def _positionals(node: YamlSequence, problems: Problems, index_at: int | None) -> tuple[Value, ...]:
    values: list[Value] = []
    for place, item in enumerate(node.items):
        is_index = isinstance(item, YamlScalar) and isinstance(item.value, str) and item.value.startswith("[")
        if place == index_at and is_index:
            values.append(parse_index(item, problems))  # type: ignore[arg-type]
        else:
            values.append(parse_value(item, problems))
    return tuple(values)


def parse_index(node: YamlScalar, problems: Problems) -> Value:
    """``"[..., None, $i, 1:3]"``."""
    text = str(node.value)
    if len(text) > MAX_INDEX:
        problems.error(node.span, f"an index has at most {MAX_INDEX} characters, this one has {len(text)}")
        return Literal(0)
    if not text.endswith("]") or _nesting(text) > MAX_NESTING:
        problems.error(node.span, f"{show_value(text)} is no index", 'such as "[:, 0]" or "[..., $i, 1:3]"')
        return Literal(0)
    parts = [part.strip() for part in _split(text[1:-1], ",")]
    entries = [_entry(part, within(node.span, node.quoted + text.find(part), len(part)), problems) for part in parts]
    return Index(tuple(entries), node.span)


def _nesting(text: str) -> int:
    depth = deepest = 0
    for char in text:
        depth += (char == "[") - (char == "]")
        deepest = max(deepest, depth)
    return deepest


def _split(text: str, separator: str) -> list[str]:
    """Split outside brackets and braces; a trailing separator adds nothing (``[0,]``)."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char in "[{(") - (char in ")}]")
        if char == separator and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    return [*parts, current] if current.strip() or not parts else parts


def _entry(text: str, span: Span, problems: Problems) -> Any:
    if text == "...":
        return Ellipsis
    if ":" in text:
        parts = _split_slice(text)
        if 1 < len(parts) <= 3:
            bounds = [None if not p.strip() else _entry(p.strip(), span, problems) for p in parts]
            return tuple(bounds + [None] * (3 - len(bounds)))
    if text.startswith("["):
        return [_entry(p.strip(), span, problems) for p in _split(text[1:-1], ",")]
    if text in ("None", "null"):
        return None
    if text in ("True", "true", "False", "false"):
        return text in ("True", "true")
    if re.fullmatch(rf"-?[0-9]{{1,{_INDEX_DIGITS}}}", text):
        return int(text)
    if text.startswith("${") and text.endswith("}"):
        return arithmetic(text, span, problems)
    if text.startswith("$"):
        return parse_reference(text, span, problems)
    problems.error(
        span, f"{show_value(text)} is no part of an index", "parts are integers, a:b:c, ..., None, $name and ${...}"
    )
    return 0


def _split_slice(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char in "[{(") - (char in ")}]")
        if char == ":" and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    return [*parts, current]


def _special_key(node: YamlMapping) -> str | None:
    keys = [str(key.value) for key, _ in node.entries]
    return next((key for key in keys if key in ("$tensor", "$fn", "$text")), None)


def _special(node: YamlMapping, problems: Problems) -> Value | None:
    key = _special_key(node)
    if key is None:
        for entry, _ in node.entries:
            if str(entry.value).startswith("$"):
                problems.error(
                    entry.span, f"unknown form {entry.value!r}", nearest(str(entry.value), ("$tensor", "$fn", "$text"))
                )
        return None
    siblings = [(str(k.value), v) for k, v in node.entries if k.value != key]
    body = node.get(key)
    assert body is not None
    if key == "$text":
        if siblings or not isinstance(body, YamlScalar):
            problems.error(node.span, "$text holds one text and nothing stands beside it")
            return Literal("")
        return Literal(plain_text(body.value if isinstance(body.value, str) else body.text, body.span, problems))
    if key == "$tensor":
        for name, _ in siblings:
            if name not in ("dtype", "device", "requires_grad"):
                problems.error(node.span, f"$tensor takes dtype, device and requires_grad, not {name!r}")
        options = tuple((name, parse_value(value, problems)) for name, value in siblings)
        return TensorLiteral(parse_value(body, problems), options, node.span)
    if siblings:
        problems.error(node.span, "nothing stands beside $fn")
    return _function(body, problems)


def _function(node: YamlNode, problems: Problems) -> Function | Literal:
    from runner.cases.chain_nodes import Function
    from runner.cases.steps import parse_chain  # chains hold values and values hold functions

    if not isinstance(node, YamlMapping) or node.get("chain") is None:
        problems.error(node.span, "$fn needs a chain", "such as {$fn: {args: [t], chain: [torch.sin], return: $_}}")
        return Literal(None)
    for key, _ in node.entries:
        if key.value not in ("args", "chain", "return"):
            problems.error(
                key.span,
                f"$fn takes args, chain and return, not {key.value!r}",
                nearest(str(key.value), ("args", "chain", "return")),
            )
    args = node.get("args")
    names = [str(a.value) for a in args.items if isinstance(a, YamlScalar)] if isinstance(args, YamlSequence) else []
    if args is not None and (
        not isinstance(args, YamlSequence) or any(not is_name(n) for n in names) or len(set(names)) < len(args.items)
    ):
        problems.error(
            args.span, "args is a list of names", "names are Python names that the source does not use itself"
        )
        names = []
    result = node.get("return")
    chain = parse_chain(node.get("chain"), problems)
    return Function(tuple(names), chain, None if result is None else parse_value(result, problems), node.span)
