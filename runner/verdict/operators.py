"""The operator that findings speak of, as far as the text of the case's chain says it, or the model in Python: nothing
runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from runner.builder.operators import IN_PLACE, Operator, resolve
from runner.cases.model import Arguments, Case, Items, Literal, Ref, Step, Table, Value
from runner.cases.walk import names_used, steps_of, values_of
from runner.contract.finding import Finding

_WRITING = frozenset({*IN_PLACE, "setitem", "delitem"})
"""Operators of Python that write into their first operand."""

_CALL = re.compile(r"^call \d+(?:, |$)")
_PART = re.compile(r"\[(?:(\d+)|'([^']*)')\]")
_GRADIENT = re.compile(r"^gradient of (\w+)")
_INPUT = re.compile(r"^input (\w+)")
_STATE = re.compile(r"^(?:attribute|buffer|parameter|variable) [\w.]+")


def named_part(case: Case, findings: Sequence[Finding]) -> str:
    """Return what tells a failure from others of its oracle: the first operator, or the model in Python.

    A model is named by its file and its name there, with the attribute that the first finding is about.
    """
    if case.module is None:
        return first_operator(case, findings)
    model = f"{PurePath(case.module.file).name}:{case.module.name}"
    part = _STATE.match(_CALL.sub("", findings[0].path)) if findings else None
    return f"{model}, {part[0]}" if part else model


def plain_form(operator: str) -> str:
    """Return the name of an operator that makes a new tensor, for one in place: ``torch.log1p`` for ``Tensor.log1p_``.

    One that has no such form keeps its name.
    """
    space, _, member = operator.rpartition(".")
    if not member.endswith("_") or member.endswith("__"):
        return operator
    spaces = ("torch", "Tensor") if space == "Tensor" else (space,)
    names = [f"{each}.{member.removesuffix('_')}" for each in spaces]
    return next((name for name in names if isinstance(resolve(name), Operator)), operator)


def first_operator(case: Case, findings: Iterable[Finding]) -> str:
    """Return the operator of the first step whose result one of the findings is about; empty where the chain does not
    say.

    That is the step at a finding's place; the one that gives the output at its path, or wrote into it last; the first
    one that takes an input whose gradient or content is wrong; or the only one.
    """
    steps = [*steps_of(case.chain)]
    numbers = [number for finding in findings for number in (_number(case, steps, finding),) if number is not None]
    return steps[min(numbers)].operator if numbers else ""


def _number(case: Case, steps: Sequence[Step], finding: Finding) -> int | None:
    """Return which step a finding is about; None where nobody knows."""
    if len(steps) < 2:
        return 0 if steps else None
    file, _, line = (finding.place or "").rpartition(":")[0].rpartition(":")
    at_place = [number for number, step in enumerate(steps) if file == case.file and str(step.span.line) == line]
    if at_place:
        return at_place[0]
    path = _CALL.sub("", finding.path)
    if path.startswith("output"):
        return _giving(case, steps, path)
    if gradient := _GRADIENT.match(path):
        return _taking(case, steps, gradient[1])
    if argument := _INPUT.match(path):
        writes = [number for number, step in enumerate(steps) if _writes(step, argument[1])]
        return writes[-1] if writes else _taking(case, steps, argument[1])
    return None


def _giving(case: Case, steps: Sequence[Step], path: str) -> int | None:
    """Return the last step that made an output, or wrote into it by its name."""
    value: Value | None = case.result
    if value is None:
        return len(steps) - 1
    for index, key in _PART.findall(path):
        if isinstance(value, Items) and index and int(index) < len(value.items):
            value = value.items[int(index)]
        elif isinstance(value, Table) and key:
            value = dict(value.items).get(key)
    if not isinstance(value, Ref):
        return None
    if value.name == "_":
        return len(steps) - 1
    name = value.name
    giving = [number for number, step in enumerate(steps) if name in step.out or _writes(step, name)]
    return giving[-1] if giving else None


def _taking(case: Case, steps: Sequence[Step], name: str) -> int | None:
    """Return the first step that takes a value by its name, or as the case's first input without one."""
    is_first = bool(case.inputs) and case.inputs[0].name == name
    for number, step in enumerate(steps):
        used = names_used(values_of((step,)))
        if name in used or (number == 0 and is_first and (step.arguments.bare or "_" in used)):
            return number
    return None


def _writes(step: Step, name: str) -> bool:
    """Return whether a step writes into the value of a name."""
    return any(isinstance(target, Ref) and target.name == name for target in _targets(step))


def written_input(case: Case) -> str:
    """Return the first input that a step of the chain writes into by its name; empty where no step says so.

    A write through another name, as of a view, is not looked for, and neither is what a module in Python does.
    """
    names = {item.name for item in case.inputs}
    for number, step in enumerate(steps_of(case.chain)):
        for target in _targets(step):
            name = target.name if isinstance(target, Ref) and "grad" not in target.path else ""
            if name == "_" and number == 0:
                name = case.inputs[0].name if case.inputs else ""
            if name in names:
                return name
        names.difference_update(step.out)  # from here on it is another value
    return ""


def _targets(step: Step) -> tuple[Value, ...]:
    """Return the values that a step writes into: by an operator in place, by ``inplace: true``, or by ``out:`` among
    its keywords."""
    space, _, member = step.operator.partition(".")
    word = member.partition(".")[0] if space == "aten" else member.rpartition(".")[2]
    is_in_place = word in _WRITING if space == "operator" else word.endswith("_") and not word.endswith("__")
    keywords = dict(step.arguments.keywords)
    flag = keywords.get("inplace")
    values = []
    if is_in_place or (isinstance(flag, Literal) and flag.value is True):
        values = [_operand(step)]
    values += [keywords["out"]] if "out" in keywords else []
    return tuple(item for value in values for item in (value.items if isinstance(value, Items) else (value,)))


def _operand(step: Step) -> Value:
    """Return the first operand of a step, which is the value before where none is written."""
    arguments = (step.call or Arguments(bare=True)) if step.operator.startswith("nn.") else step.arguments
    named = [value for key, value in arguments.keywords if key in ("input", "self")]
    return (*arguments.positional, *named, Ref("_", (), step.span))[0]
