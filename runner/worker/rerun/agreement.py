"""Whether eager agrees with itself: two runs, made alike.

State that eager itself leaves differently each time, or that is written while torch traces, cannot be compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from runner.contract.finding import Finding
from runner.worker.comparison.compare import compare_values, equal_bits, same_python
from runner.worker.program import global_state
from runner.worker.program.load import Source, seed_all
from runner.worker.program.memory import Places
from runner.worker.program.messages import MESSAGES
from runner.worker.program.observe import CallRecord, Observation, Settings, modes, snapshot_state
from runner.worker.program.snapshot import Tree, map_tensors, owner
from runner.worker.tensors import tolerance_for
from runner.worker.torch_private.dispatch import FAKE_MODE

VARIES = "eager-varies"


class Agreement:
    """Whether a tensor of one eager run agrees with the same of another.

    On the CPU they must agree bit for bit. Other devices may add in another order each time
    (https://docs.pytorch.org/docs/stable/notes/randomness.html), as atomic additions under ``index_select``'s backward
    do. There the tolerance that the backend is allowed holds, unless it allows nothing.
    """

    def __init__(self, device: str, tolerance: Mapping[str, Any] | None) -> None:
        """Keep the job's ``tolerance``, see ``tolerance_for``."""
        self.varied = False
        """Whether it was off anywhere by no more than that."""
        self._strict = device in ("cpu", "meta")
        self._tolerance = tolerance

    def __call__(self, first: torch.Tensor, second: torch.Tensor, path: str = "") -> bool:
        """Return whether two dense CPU tensors of one shape and dtype agree. ``path`` says where they stand."""
        if equal_bits(first, second):
            return True
        if self._strict or compare_values(first, second, tolerance_for(first.dtype, self._tolerance, path)).differences:
            return False
        self.varied = True
        return True


Agree = Callable[[torch.Tensor, torch.Tensor, str], bool]
"""Whether two tensors at a path are the same."""
EXACTLY = Agreement("cpu", None)


def find_disagreement(
    first: Observation,
    second: Observation,
    compare_elements: bool = True,
    agree: Agree = EXACTLY,
) -> str | None:
    """Return where two eager runs, made alike, disagree; None if nowhere.

    ``compare_elements`` False leaves out the values of tensors (the case ignores them, being random); ``agree`` says
    whether two tensors are the same.
    """
    if len(first.calls) != len(second.calls):
        return "the number of calls before the first error"
    for call, records in enumerate(zip(first.calls, second.calls, strict=True)):
        where = f"call {call}, " if len(first.calls) > 1 else ""
        kinds = [record.error and record.error.bases[0] for record in records]
        if (kinds[0] is None) != (kinds[1] is None):
            return f"{where}whether it raises"
        if kinds[0] != kinds[1]:
            return f"{where}what it raises"
        for first_tree, second_tree in zip(*map(_trees, records), strict=True):
            place = tree_disagreement(first_tree, second_tree, compare_elements, agree)
            if place is not None:
                return where + place
    return None


def _trees(record: CallRecord) -> tuple[Tree, ...]:
    """Return what two calls must leave alike; nothing of one that raised."""
    gradients = {path: leaf for path, leaf in record.gradients.items() if leaf is not None}
    trees = record.outputs, record.inputs, record.state, Tree(", ".join(gradients), tuple(gradients.values()))
    return trees if record.error is None else ()


def tree_disagreement(first: Tree, second: Tree, compare_elements: bool, agree: Agree = EXACTLY) -> str | None:
    """Return where two trees disagree, as ``find_disagreement`` does; None if nowhere."""
    if first.structure != second.structure:
        return "the structure of what it gives"
    if first.replaced != second.replaced:
        return "which objects it puts in place of others"
    for first_leaf, second_leaf in zip(first.leaves, second.leaves, strict=True):
        if first_leaf.as_loaded and second_leaf.as_loaded:
            continue
        if first_leaf.type != second_leaf.type or first_leaf.metadata != second_leaf.metadata:
            return f"{first_leaf.path}, type or metadata"
        if not compare_elements or first_leaf.problem is not None:
            continue
        is_same = (
            agree(first_leaf.value, second_leaf.value, first_leaf.path)
            if first_leaf.kind == "tensor"
            else same_python(first_leaf.value, second_leaf.value)
        )
        if not is_same:
            return first_leaf.path
    return None


def note_varying(first: Observation, second: Observation) -> None:
    """Note in calls of ``first`` what another eager run sets or says in another way, such as the time."""
    for one, other in zip(first.calls, second.calls):  # noqa: B905  either may have raised
        names = one.settings.keys() | other.settings.keys()
        varying = {name for name in names if one.settings.get(name) != other.settings.get(name)}
        one.varying = frozenset(varying | ({MESSAGES} if one.messages != other.messages else set()))


Disagrees = Callable[[Tree, Tree], bool]
"""Whether two parts of a state disagree."""


def varying_state(first: Observation, second: Observation, disagrees: Disagrees) -> frozenset[str]:
    """Return the parts of the state that two runs leave differently."""
    pairs = zip(first.calls, second.calls)  # noqa: B905  either may have raised
    return frozenset(name for one, other in pairs for name in _differing(one.state, other.state, disagrees))


def _differing(first: Tree, second: Tree, disagrees: Disagrees) -> Iterable[str]:
    mine, others = first.parts(), second.parts()
    return (
        name
        for name in {**mine, **others}
        if name not in mine or name not in others or disagrees(mine[name], others[name])
    )


def traced_state(
    findings: Iterable[Finding], source: Source, settings: Settings, eager: Observation, disagrees: Disagrees
) -> frozenset[str]:
    """Return parts of the state that findings are about and that the model's Python writes only on tensors without
    elements.

    A compiler calls such code, as a fake kernel, while it traces; eager never does, and leaves them as they were
    loaded. Parts with tensors do not count.

    Raises:
        InvalidCase: the case cannot be loaded again.
    """
    if not eager.calls or eager.error is not None:
        return frozenset()
    state = eager.calls[-1].state
    plain = [name for name, part in state.parts().items() if all(leaf.metadata is None for leaf in part.leaves)]
    paths = [re.sub(r"call \d+, ", "", finding.path or "") for finding in findings if finding.oracle == "mutation"]
    suspects = {owner(path, plain) for path in paths} - {""}
    trees = _traced(source, settings) if suspects else None
    if trees is None:
        return frozenset()
    original, traced = trees
    suspects -= set(_differing(original, state, disagrees))
    return frozenset(suspects.intersection(_differing(state, traced, disagrees)))


@global_state.restored()
def _traced(source: Source, settings: Settings) -> tuple[Tree, Tree] | None:
    """Return the state as it is loaded, and after the calls on tensors without elements, in eager; None where they
    raise."""
    loaded = source.load(settings.seed)
    original = snapshot_state(loaded, loaded.state_leaves())
    mode = FAKE_MODE(allow_non_fake_inputs=True)
    before = Places({})
    try:
        for call in range(len(loaded.makers)):
            args = map_tensors(mode.from_tensor, loaded.make_inputs(call, settings.seed + call))
            loaded.change(call)
            _, leaves, containers = loaded.state_leaves()
            before = Places.of(leaves, containers)
            seed_all(settings.seed + call)
            with modes(settings), loaded.around(call), mode, loaded.python:
                loaded.call(loaded.model, args)
    except Exception:  # noqa: BLE001  a model may need the elements
        return None
    state = loaded.state_leaves()
    places = Places.of(state.leaves, state.containers)
    return original, replace(snapshot_state(loaded, state), replaced=before.replaced(places))
