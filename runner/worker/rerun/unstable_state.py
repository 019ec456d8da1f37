"""State that cannot be compared: what eager itself leaves differently each time, or what is written while torch
traces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from runner.contract.finding import Finding
from runner.worker.program import global_state
from runner.worker.program.load import Source, seed_all
from runner.worker.program.memory import Places
from runner.worker.program.observe import Observation, Settings, modes, snapshot_state
from runner.worker.program.snapshot import Tree, map_tensors, owner
from runner.worker.torch_private.dispatch import FAKE_MODE

CALL = re.compile(r"call \d+, ")
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
    paths = [CALL.sub("", finding.path or "") for finding in findings if finding.oracle == "mutation"]
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
    after = snapshot_state(loaded, state)
    return original, replace(after, replaced=before.replaced(Places.of(state.leaves, state.containers)))
