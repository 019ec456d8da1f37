"""The operator that findings speak of, as far as the text of the case's chain says it, or the model in Python: nothing
runs.

What names of operators tell by themselves is here too: who gives indices, and who may draw random numbers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from runner.builder.operators import Operator, resolve
from runner.cases.model import Arguments, Case, Items, Literal, Ref, Step, Table, Value
from runner.cases.operator_names import IN_PLACE
from runner.cases.walk import names_used, steps_of, values_of
from runner.contract.finding import Finding
from runner.contract.oracles import row_of

INDICES = frozenset({"argmax", "argmin", "argsort", "sort", "topk", "mode", "kthvalue", "cummax", "cummin"})
"""Operators that return indices, which ties may order in another way."""

INDICES_BY_DIMENSION = frozenset({"max", "min", "median", "nanmedian"})
"""Those that do when they are given more than the tensor."""

DRAWING = re.compile(
    r"(?i)rand|drop|bernoulli|multinomial|normal|uniform|exponential|cauchy|geometric|poisson|binomial|rrelu|gumbel|"
    r"sample|lowrank|lobpcg|fractional|transformer|scramble|sdpa|attention"
)
"""Words of a model that may draw random numbers. What eager does decides."""

_WRITING = frozenset({*IN_PLACE, "setitem", "delitem"})
"""Operators of Python that write into their first operand."""

_CALL = re.compile(r"^call \d+(?:, |$)")
_PART = re.compile(r"\[(?:(\d+)|'([^']*)')\]")
_GRADIENT = re.compile(r"^gradient of (\w+)")
_INPUT = re.compile(r"^input (\w+)")
_STATE = re.compile(r"^(?:attribute|buffer|parameter|variable) [\w.]+")


BEFORE = "somewhere before "
BEHIND = "somewhere behind "
"""How the name of an operator begins where the difference enters at one of several: on the way to its result, or
from its argument on, for a gradient."""


def observed_case(case: Case) -> Case | None:
    """Return the case with the values of all its steps as outputs, in their order.

    None where that tells nothing: for one step, blocks, and names that are given twice.
    """
    steps = [node for node in case.chain if isinstance(node, Step)]
    names = [name for step in steps for name in step.out if name != "_"]
    is_plain = len(steps) == len(case.chain) > 1 and len(names) == len({*names})
    if not is_plain or any(name.startswith("self.") for name in names):
        return None
    free = (name for number in itertools.count() if (name := f"value_{number}") not in names)
    named = [
        replace(step, out=tuple(next(free) if name == "_" else name for name in step.out or ("_",))) for step in steps
    ]
    values = tuple(_values(step) for step in named)
    tolerance = replace(case.tolerance, by_place={})
    return replace(case, chain=tuple(named), result=Items(values), tolerance=tolerance, known=())


def _values(step: Step) -> Value:
    """Return what a step gives, and the names that it writes into: what it returns need not lie there."""
    written = [target.name for target in _targets(step) if isinstance(target, Ref) and not target.path]
    names = dict.fromkeys((*step.out, *(name for name in written if name != "_")))
    refs = tuple(Ref(name, (), step.span) for name in names)
    return Items(refs) if step.unpack or len(refs) > 1 else refs[0]


def has_writes(case: Case) -> bool:
    """Return whether a step of the chain writes, so that the value of an earlier one may be another at the end."""
    return any(_targets(step) for step in steps_of(case.chain))


def first_steps(observed: Case, count: int) -> Case:
    """Return an ``observed_case`` that ends after so many steps, with the values of the last of them as output.

    Inputs and state that later steps alone use are returned too, since a case must use them.
    """
    values = observed.result.items[count - 1 : count] if isinstance(observed.result, Items) else ()
    steps = [node for node in observed.chain[:count] if isinstance(node, Step)]
    used = names_used(values_of(steps))
    unused = names_used(values_of(observed.chain)) - used
    used |= {*steps[-1].out}
    chain = (replace(step, out=tuple(name if name in used else "_" for name in step.out)) for step in steps)
    others = [Ref(item.name, (), item.span) for item in observed.inputs if item.name in unused]
    others += [Ref("self", (item.name,), item.span) for item in observed.state if f"self.{item.name}" in unused]
    return replace(observed, chain=tuple(chain), result=Items((*values, *others)))


def entering_operator(case: Case, findings: Iterable[Finding]) -> str:
    """Return the operator of the first step whose value differs, by the findings of its ``observed_case``; else
    nothing."""
    paths = [_CALL.sub("", finding.path) for finding in findings if row_of(finding.oracle).group == "values"]
    numbers = [int(match[1]) for path in paths if (match := re.match(r"output\[(\d+)\]", path))]
    steps = [*steps_of(case.chain)]
    return steps[min(numbers)].operator if numbers and min(numbers) < len(steps) else ""


def uncertain(case: Case, findings: Sequence[Finding], operator: str) -> str:
    """Return the operator at which the main finding shows, and that the difference may enter at another one, if so."""
    steps = [*steps_of(case.chain)]
    if not operator or len(steps) < 2 or not findings:
        return operator
    if findings[0].severity not in (None, row_of(findings[0].oracle).severity):
        return operator  # which no signature names
    if findings[0].oracle == "grad":
        return f"{BEHIND}{operator}"
    is_first = 0 in [_number(case, steps, finding) for finding in findings]
    return operator if is_first or row_of(findings[0].oracle).group != "values" else f"{BEFORE}{operator}"


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
    names = [f"{space}.{member.removesuffix('_')}" for space in spaces]
    return next((name for name in names if isinstance(resolve(name), Operator)), operator)


def first_operator(case: Case, findings: Iterable[Finding]) -> str:
    """Return the operator of the first step whose result one of the findings is about; empty where the chain does not
    say.

    That is the step at a finding's place; the one that gives the output at its path, or wrote into it last; the first
    one that takes an input whose gradient or content is wrong; or the only one.
    """
    number = first_step(case, findings)
    return "" if number is None else [*steps_of(case.chain)][number].operator


def first_step(case: Case, findings: Iterable[Finding]) -> int | None:
    """Return the number of that step; None where the chain does not say."""
    steps = [*steps_of(case.chain)]
    numbers = (_number(case, steps, finding) for finding in findings)
    return min((number for number in numbers if number is not None), default=None)


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
    return max((number for number, step in enumerate(steps) if name in step.out or _writes(step, name)), default=None)


def _taking(case: Case, steps: Sequence[Step], name: str) -> int | None:
    """Return the first step that takes a value by its name, or as the case's first input without one."""
    is_first = bool(case.inputs) and case.inputs[0].name == name
    for number, step in enumerate(steps):
        used = names_used(values_of((step,)))
        is_layer = step.operator.startswith("nn.") and step.call is None  # what it has are the layer's own arguments
        if name in used or (number == 0 and is_first and (step.arguments.bare or is_layer or "_" in used)):
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
