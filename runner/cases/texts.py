"""Texts that reach operators: which characters they may hold, and why a case that calls numpy holds none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from runner.cases.model import Case, Input, Literal, Node, Step, Table, Value
from runner.cases.problems import Problems
from runner.cases.walk import all_steps, parts_of, values_of
from runner.cases.yaml.scalars import show_value
from runner.diagnostics import Span

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
    steps = (step for chain in _chains(case) for step in all_steps(chain))
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
    values = [value for chain in chains for value in values_of(chain)]
    values += [part for item in _inputs(case) if item.python is not None for part in parts_of(item.python)]
    values += parts_of(case.result) if case.result is not None else []
    texts = [*_texts(values), *(value for axis in case.params.values() for value in axis if isinstance(value, str))]
    texts += [step.operator for chain in chains for step in all_steps(chain) if step.operator == "Tensor.type"]
    if texts:
        problems.error(
            first.span,
            f"a case that calls numpy may hold no text, such as {texts[0][:60]!r}",
            "numpy makes any text of numbers with one; torch's own functions take texts",
        )


def _inputs(case: Case) -> list[Input]:
    return [*case.inputs, *case.state, *(item for call in case.calls for item in call.inputs)]


def _chains(case: Case) -> list[tuple[Node, ...]]:
    return [case.chain, *(item.layout for item in _inputs(case))]


def _texts(values: list[Value]) -> Iterator[str]:
    for value in values:
        if isinstance(value, Literal) and isinstance(value.value, str):
            yield value.value
        elif isinstance(value, Table):
            yield from (key for key, _ in value.items)
