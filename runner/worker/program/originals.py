"""Inputs as they are made, and state as a model begins with it: what a call that writes to neither leaves behind."""

from __future__ import annotations

from runner.worker.program.load import LoadedCase
from runner.worker.program.observe import Settings
from runner.worker.program.snapshot import Leaf, snapshot, snapshot_leaf


def originals(loaded: LoadedCase, settings: Settings) -> dict[tuple[int, str], Leaf]:
    """Return the leaves before they meet the model, by call and path: inputs of each call, and the state of the first.

    Raises:
        InvalidCase: making the inputs raised.
    """
    module = loaded.module.__name__
    leaves = {(0, path): snapshot_leaf(leaf, path, module) for path, leaf in loaded.state_leaves().leaves}
    for call in range(len(loaded.makers)):
        args = loaded.make_inputs(call, settings.seed + call)
        for name, arg in zip(loaded.argument_names(len(args)), args, strict=True):
            leaves.update({(call, leaf.path): leaf for leaf in snapshot(arg, name, module).leaves})
    return leaves
