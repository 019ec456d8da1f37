"""The mends of torch's minifiers, each against what it mends."""

from __future__ import annotations

from inspect import signature

import pytest
import torch
from torch._dynamo.debug_utils import InputWriter
from torch._dynamo.metrics_context import MetricsContext

from runner.worker.torch_private import minifier


@pytest.mark.skipif(
    "overwrite" not in signature(MetricsContext.update).parameters,
    reason="torch 2.6 sets no metric for the second time",
)
def test_a_backward_may_be_compiled_within_a_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetricsContext, "update", MetricsContext.update)  # so that it is put back
    with MetricsContext(lambda *args: None) as context:
        context.update({"is_forward": True})
        with pytest.raises(RuntimeError, match="already been set"):
            context.update({"is_forward": False})
        minifier.allow_backward()
        context.update({"is_forward": False})


def test_a_script_without_inputs_is_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InputWriter, "lines", InputWriter.lines)  # so that it is put back
    with pytest.raises(IndentationError):
        compile("\n".join(InputWriter(None).lines()), "launcher.py", "exec")
    minifier.write_bodies()
    compile("\n".join(InputWriter(None).lines()), "launcher.py", "exec")
    writer = InputWriter(None)
    writer.symint("n", 3)
    assert "pass" not in "".join(writer.lines())


def test_mode_and_options_become_flags_of_inductor() -> None:
    flags = torch._inductor.config
    with flags.patch(max_autotune=False, shape_padding=True):
        minifier.set_inductor(None, {"max_autotune": True, "shape_padding": False}, None)
        assert (flags.max_autotune, flags.shape_padding) == (True, False)
