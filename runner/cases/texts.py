"""Texts in arguments: what they stand for, how YAML has calls of Python, and which characters reach operators.

A text may be a reference ``$x``, arithmetic ``${...}``, an index ``"[:, 0]"`` or a complex number ``1+2j``.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runner.cases import expressions
from runner.cases.model import Arithmetic, Case, Function, Index, Input, Key, Literal, Node, Ref, Step, Table, Value
from runner.cases.operator_names import takes_tensor
from runner.cases.problems import Problems, within
from runner.cases.walk import all_steps, values_of
from runner.cases.yaml.values import YamlScalar, flow, resolve, scalars_of, show_value
from runner.diagnostics import Span

REFERENCE = "a reference is an argument of a step, such as {torch.add: [$_, $x]}, or stands in return:"
"""The hint where a reference stands alone as a step."""

_INDEX_DIGITS = len(str(1 << expressions.MAX_BITS))
"""Of an integer in an index: as many as the result of an expression may have."""

MAX_NESTING = 8
"""How deep the brackets of an index may be nested."""

MAX_INDEX = 1000
"""Characters in one index."""

_REF = re.compile(r"\$(?P<name>[A-Za-z_]\w*)(?P<path>(?:\.[A-Za-z_]\w*|\[-?\d{1,18}\]|\[[A-Za-z_]\w*\])*)", re.ASCII)
_PART = re.compile(r"\.([A-Za-z_]\w*)|\[(-?\d+)\]|\[(\w+)\]", re.ASCII)


def parse_reference(text: str, span: Span, problems: Problems) -> Ref | None:
    """Return the reference ``$name.attr[0]`` or ``$name[key]``; None for any other text, which is reported."""
    match = _REF.fullmatch(text)
    if match is None:
        return problems.refuse(
            None,
            span,
            f"{show_value(text)} is no reference",
            "write $name, $name.attr, $name[0], $name[key] or ${...}; plain text is {$text: ...}",
        )
    parts = _PART.findall(match["path"])
    return Ref(match["name"], tuple(attr or (Key(key) if key else int(item)) for attr, item, key in parts), span)


def parse_arithmetic(text: str, span: Span, problems: Problems, launch: bool = False) -> Arithmetic | None:
    """Return ``${...}`` as a whole, checked; None for one that is wrong, which is reported.

    With ``launch`` it may call the functions of a kernel's launch too.
    """
    inner = text[2:-1]
    try:
        expressions.parse(inner, launch)
    except expressions.ExpressionError as error:
        return problems.refuse(None, within(span, 2 + error.offset), f"in {text}: {error}")
    return Arithmetic(inner, span)


def parse_index(node: YamlScalar, problems: Problems) -> Value:
    """Return an index such as ``"[..., None, $i, 1:3]"``; a harmless value for any other text, which is reported."""
    text = str(node.value)
    if len(text) > MAX_INDEX:
        return problems.refuse(
            Literal(0), node.span, f"an index has at most {MAX_INDEX} characters, this one has {len(text)}"
        )
    if not text.endswith("]") or _nesting(text) > MAX_NESTING:
        return problems.refuse(
            Literal(0), node.span, f"{show_value(text)} is no index", 'such as "[:, 0]" or "[..., $i, 1:3]"'
        )
    parts = _items(text)
    return Index(
        tuple(_entry(part, within(node.span, node.quoted + text.find(part), len(part)), problems) for part in parts),
        node.span,
    )


def _nesting(text: str) -> int:
    return max(itertools.accumulate((char == "[") - (char == "]") for char in text))


def _items(text: str) -> list[str]:
    """What stands between brackets; a trailing comma adds nothing (``[0,]``)."""
    *items, last = split(text[1:-1], ",")
    return [*items, last] if last or not items else items


def split(text: str, separator: str) -> list[str]:
    """Return the parts of a text outside brackets and braces, without blanks around them."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char in "[{(") - (char in ")}]")
        if char == separator and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += char
    return [*parts, current.strip()]


_INDEX_WORDS = {"...": ..., "None": None, "null": None, "True": True, "true": True, "False": False, "false": False}


def _entry(text: str, span: Span, problems: Problems) -> Any:
    if text in _INDEX_WORDS:
        return _INDEX_WORDS[text]
    if ":" in text:
        parts = split(text, ":")
        if 1 < len(parts) <= 3:
            bounds = [_entry(part, span, problems) if part else None for part in parts]
            return tuple(bounds + [None] * (3 - len(bounds)))
    if text.startswith("["):
        return [_entry(part, span, problems) for part in _items(text)]
    if re.fullmatch(rf"-?[0-9]{{1,{_INDEX_DIGITS}}}", text):
        return int(text)
    if text.startswith("${") and text.endswith("}"):
        return parse_arithmetic(text, span, problems)
    if text.startswith("$"):
        return parse_reference(text, span, problems)
    return problems.refuse(
        0, span, f"{show_value(text)} is no part of an index", "parts are integers, a:b:c, ..., None, $name and ${...}"
    )


# --- calls that are written as in Python: torch.add(x, 1), or [$_, dim=-1] ---

_CALL = re.compile(r"(?P<name>[A-Za-z_][\w.]{0,200})\((?P<inside>.*)\)", re.ASCII)
_KEYWORD = re.compile(r"(?P<key>[A-Za-z_]\w*)\s*=(?!=)\s*(?P<value>.+)", re.ASCII)
_NAME = re.compile(r"(?!torch\.)[A-Za-z_]\w*(\.[A-Za-z_]\w*|\[\d+\])*", re.ASCII)
_WORDS = {"None": None, "True": True, "False": False}
_LONGEST = 200
"""Characters of a text that is looked at: a longer one is no call that a person typed."""


def has_keyword(text: str) -> bool:
    """Return whether the text is a keyword argument of Python, such as ``dim=-1``, or holds one behind a comma."""
    return "=" in text and len(text) <= _LONGEST and any(_KEYWORD.fullmatch(part) for part in split(text, ","))


def yaml_call(text: str) -> str:
    """Return ``F.softmax: {"*": [$x], dim: -1}`` for ``F.softmax(x, dim=-1)``; an empty string for a text that is no
    call."""
    call = _CALL.fullmatch(text) if len(text) <= _LONGEST else None
    if call is None:
        return ""
    inside = call["inside"].strip()
    name = call["name"]
    return name + (f": {yaml_arguments(split(inside, ','), names=True, receiver=takes_tensor(name))}" if inside else "")


def yaml_arguments(
    parts: Iterable[Any], others: Mapping[str, Any] | None = None, names: bool = False, receiver: bool = False
) -> str:
    """Return Python's arguments as YAML has them, with the keywords ``others``.

    ``names`` says that a name is a reference. With ``receiver`` the value of the step before comes first where no
    argument is one.
    """
    positional: list[Any] = []
    keywords: dict[str, Any] = dict(others or {})
    for part in parts:
        if part == "":  # behind a trailing comma
            continue
        keyword = _KEYWORD.fullmatch(part) if isinstance(part, str) else None
        if keyword is not None:
            keywords[keyword["key"]] = _value(keyword["value"], names)
        else:
            positional.append(_value(part, names) if isinstance(part, str) else part)
    if receiver and positional and not any("$" in str(value) for value in (*positional, *keywords.values())):
        positional.insert(0, "$_")
    return flow({"*": positional, **keywords} if positional and keywords else keywords or positional)


def _value(text: str, names: bool) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text[:1] in "([" and text[-1:] in ")]":
        return [_value(part, names) for part in split(text[1:-1], ",") if part]
    if text[:1] in "'\"" and text[-1:] == text[:1]:
        return text[1:-1]
    try:
        value = resolve(text)
    except ValueError:  # a number that Python cannot hold
        return text
    return f"${text}" if names and isinstance(value, str) and _NAME.fullmatch(text) else value


# --- complex numbers as cases write them: 1+2j, -0.5j, nan-infj, without quotes ---

_REAL = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_COMPLEX_PART = rf"(?:{_REAL}|inf|nan)"
_COMPLEX = re.compile(rf"[-+]?{_REAL}j|[-+]?{_COMPLEX_PART}[-+]{_COMPLEX_PART}j")


def is_complex(text: str) -> bool:
    """Return whether a text without quotes is a complex number."""
    return _COMPLEX.fullmatch(text) is not None


def parse_complex(text: str) -> complex:
    """Return the number. Raises ValueError, with a message for people, for one beyond the range of a 64-bit float."""
    value = complex(text)
    if "inf" not in text and math.inf in (abs(value.real), abs(value.imag)):
        raise ValueError(f"{text[:60]} is beyond the range of a 64-bit float")
    return value


def complex_text(value: complex) -> str:
    """Return the number as a case writes it, both parts with their signs."""
    sign = "-" if math.copysign(1.0, value.imag) < 0 else "+"
    return f"{value.real!r}{sign}{abs(value.imag)!r}j"


# --- texts that reach operators ---

_STRAY = re.compile(r"[^\w .,:>$-]", re.ASCII)
"""What a text may not hold that reaches an operator: all that ends a text of Python or C++, and all that makes a call.

Compilers write the texts of a graph into the code that they generate. Inductor's C++ wrapper does not quote them (torch
2.13, ``codegen/cpp_wrapper_cpu.py``), nor do its Triton templates (``select_algorithm.py``): a text became a call of
``system``.
"""


def plain_text(text: str, span: Span, problems: Problems) -> str:
    """Return ``text``, which an operator gets.

    A text with a character that generated code might not quote is reported, and an empty one is returned.
    """
    stray = _STRAY.search(text)
    if stray is None:
        return text
    return problems.refuse(
        "",
        span,
        f"a text for an operator may not hold {show_value(stray[0])}: compilers write it into the code that they "
        "generate",
        "it may hold ASCII letters, digits, blanks and . , : - > $ _",
    )


def numpy_step(case: Case) -> Step | None:
    """Return the first step that calls numpy or makes an array of it; None if there is no such step."""
    steps = all_steps(_chains(case))
    return next((s for s in steps if s.operator.startswith("numpy.") or s.operator == "Tensor.numpy"), None)


def check_numpy(case: Case, problems: Problems) -> None:
    """Report a case that calls numpy and holds a text.

    numpy reads numbers as text where it is given the name, or an example, of a text's dtype. ``plain_text`` does not
    see such a text, and compilers write texts into the code that they generate.
    """
    first = numpy_step(case)
    if first is None:
        return
    chains = _chains(case)
    changes = [change.value for call in case.calls for change in call.changes]
    params, more = case.params.values(), (value for call in case.calls for value in call.params.values())
    texts = [
        *_texts(values_of((chains, [item.python for item in _inputs(case)], changes, case.result))),
        *(value for value in scalars_of((*params, *more)) if isinstance(value, str)),
        *(step.operator for step in all_steps(chains) if step.operator == "Tensor.type"),
    ]
    if texts:
        problems.error(
            first.span,
            f"a case that calls numpy may hold no text, such as {texts[0][:60]!r}",
            "numpy makes any text of numbers with one; torch's own functions take texts",
        )


def _inputs(case: Case) -> list[Input]:
    return [*case.inputs, *case.state, *(item for call in case.calls for item in call.inputs)]


def _chains(case: Case) -> list[tuple[Node, ...]]:
    hooks = [hook.value for call in case.calls for hook in call.hooks]
    functions = [hook.chain for hook in hooks if isinstance(hook, Function)]
    return [case.chain, *(item.layout for item in _inputs(case)), *functions]


def _texts(values: Iterable[Value]) -> Iterator[str]:
    for value in values:
        if isinstance(value, Literal) and isinstance(value.value, str):
            yield value.value
        elif isinstance(value, Table):
            yield from (key for key, _ in value.items)
