"""Inputs and state as they are before the calls."""

from __future__ import annotations

import torch
from worker_jobs import job, source

from runner.worker.program.load import Source
from runner.worker.program.observe import Settings, observe
from runner.worker.program.originals import originals

TWO_CALLS = "CALLS = [make_inputs, make_inputs]"


def test_they_are_what_a_run_begins_with(tmp_path):
    text = source("self.w.add_(1)\nx.mul_(2)\nreturn x + self.w", init="self.w = torch.ones(5)", more=TWO_CALLS)
    settings = Settings.of(job(grad={"mode": "off"}))
    case = Source(text, "case", str(tmp_path))
    loaded = case.load(0)
    run = observe(loaded, loaded.model, settings)
    leaves = originals(case.load(0), settings)
    tensors = sorted(key for key, leaf in leaves.items() if leaf.metadata is not None)
    assert tensors == [(0, "attribute w"), (0, "input x"), (1, "input x")]
    assert torch.equal(leaves[0, "attribute w"].value, torch.ones(5))
    for call in (0, 1):
        (after,) = run.calls[call].inputs.leaves
        assert torch.equal(after.value, leaves[call, "input x"].value * 2)
