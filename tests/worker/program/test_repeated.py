"""A call that is repeated does each time what the first did."""

from __future__ import annotations

from pathlib import Path

import torch
from worker_jobs import source

from runner.worker.program.load import Source
from runner.worker.program.observe import Settings
from runner.worker.program.repeated import RepeatedCall

BACKWARD = Settings(0, "backward", "seeded", 1, None, "cpu")


def repeated(folder: Path, text: str, settings: Settings = BACKWARD) -> tuple[RepeatedCall, torch.nn.Module]:
    loaded = Source(text, "case", str(folder)).load(0)
    return RepeatedCall(loaded, loaded.model, settings), loaded.model


LINEAR = source(
    "return self.linear(x)",
    "torch.randn(3, 4, requires_grad=True).t().contiguous().t()",
    init="self.linear = torch.nn.Linear(4, 2); self.grads = []; self.linear.weight.register_hook(self.grads.append)",
)


def test_each_call_has_its_backward_and_gradients_do_not_add_up(tmp_path):
    call, model = repeated(tmp_path, LINEAR)
    call.first()
    for _ in range(3):
        call()
    assert len(model.grads) == 4
    assert all(torch.equal(grad, model.grads[0]) for grad in model.grads)
    assert model.linear.weight.grad is None
    assert call.notes == []


def test_without_a_backward_none_is_run(tmp_path):
    call, model = repeated(tmp_path, LINEAR, Settings(0, "forward", "seeded", 1, None, "cpu"))
    call.first()
    call()
    assert model.grads == []


def test_autocast_is_around_every_call(tmp_path):
    text = source("self.seen.append((x @ x.t()).dtype)\nreturn x", init="self.seen = []")
    call, model = repeated(tmp_path, text, Settings(0, "off", "seeded", 1, torch.bfloat16, "cpu"))
    call.first()
    call()
    assert model.seen == [torch.bfloat16] * 2
