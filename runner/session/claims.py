"""What a variant needs that its backend does not claim, as far as the case's own text says so: nothing runs, and
nothing is guessed.

Dtypes and devices that a value comes to have on the way, dynamic shapes that torch chooses by itself, and writes
through views are not known before a run. Such variants run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from runner.cases.model import Case, Constant, Input, Node, Variant
from runner.cases.walk import values_of
from runner.contract.record import Record
from runner.verdict.operators import written_input


def unclaimed_need(variant: Variant) -> str:
    """Return the first thing that a variant needs and its backend does not claim, such as ``gradients``; empty without
    one."""
    unclaimed, case = variant.backend.unclaimed, variant.case
    dynamic = variant.backend.dynamic if variant.dynamic is None else variant.dynamic
    if unclaimed.gradients and variant.grad.mode == "backward":
        return "gradients"
    if unclaimed.dynamic and dynamic:
        return "dynamic shapes"
    if unclaimed.mutation and written_input(case):
        return "mutation of inputs"
    if unclaimed.dtypes and (dtype := _first(_dtypes(variant), unclaimed.dtypes)):
        return dtype
    devices = (variant.device, *(item.device for item in _inputs(case) if item.device))
    kinds = (name for device in devices for name in (device, device.partition(":")[0]))
    return f"device {device}" if unclaimed.devices and (device := _first(kinds, unclaimed.devices)) else ""


def unclaimed_by_run(variant: Variant, record: Record) -> str:
    """Return what only a run's record tells that the variant needs and its backend does not claim; empty if there is
    nothing.

    Precision is such a need if every finding is a value that lies within the tolerance of the dtype that is claimed.
    """
    if variant.backend.unclaimed.random and record.drew_random:
        return "random numbers of eager"
    is_certain = variant.backend.unclaimed.precision and record.trust is None
    needs = [finding.numbers.get("precision") for finding in record.findings] if is_certain else []
    return f"precision of {needs[0]}" if needs and all(needs) else ""


def _first(needs: Iterable[str], unclaimed: tuple[str, ...]) -> str:
    return next((need for need in needs if need in unclaimed), "")


def _inputs(case: Case) -> Iterator[Input]:
    """The inputs and the state of a case, those of further calls and the items of lists included."""
    pending = [*case.inputs, *case.state, *(item for call in case.calls for item in call.inputs)]
    while pending:
        item = pending.pop()
        yield item
        pending += item.items


def _dtypes(variant: Variant) -> Iterator[str]:
    """The dtype of a variant, and those that its case names: of inputs, state, parameters, autocast and casts."""
    case = variant.case
    yield variant.dtype
    yield from filter(None, (case.param_dtype, variant.autocast))
    layouts: list[Iterable[Node]] = []
    for item in _inputs(case):
        yield from filter(None, [item.dtype])
        layouts.append(item.layout)
    for value in itertools.chain.from_iterable(map(values_of, (case.chain, *layouts))):
        if isinstance(value, Constant):
            yield value.name.removeprefix("torch.")
