"""torch's bisector and minifiers: what they need of torch, and mends of their defects."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import pytest
import torch
from torch._dynamo.debug_utils import InputWriter
from torch._dynamo.metrics_context import MetricsContext

from runner.worker.torch_private import debuggers, doors
from runner.worker.torch_private.debuggers import Question, Setting
from runner.worker.torch_private.doors import Door


def test_a_subsystem_is_a_setting_or_a_part() -> None:
    assert debuggers.setting_of("inductor", "lowerings") is None
    setting = debuggers.setting_of("inductor", "inductor_fallback_random")
    assert setting == Setting("inductor", "fallback_random", True)


def test_without_a_bisection_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    assert debuggers.current_question() == Question(None, None, None)


def test_names_of_applications_are_kept_where_torch_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    debuggers.add_applied({1: "a"})  # a torch that has files for them
    names: dict[int, str] = {}
    monkeypatch.setattr("torch._inductor.compiler_bisector.call_counter_debug_info", names, raising=False)
    debuggers.add_applied({2: "b"})
    assert debuggers.applied() is names == {2: "b"}


def test_a_torch_without_a_bisector_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "_absences", {})
    monkeypatch.setattr(doors, "DOORS", [])
    monkeypatch.setattr(debuggers, "_BISECTOR", Door("torch._no_such_part:Bisector", "it cannot be asked"))
    with pytest.raises(ImportError, match="Bisector: it cannot be asked"):
        debuggers.bisect(lambda: True)


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
        debuggers.allow_backward()
        context.update({"is_forward": False})


def test_a_script_without_inputs_is_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InputWriter, "lines", InputWriter.lines)  # so that it is put back
    with pytest.raises(IndentationError):
        compile("\n".join(InputWriter(None).lines()), "launcher.py", "exec")
    debuggers.write_bodies()
    compile("\n".join(InputWriter(None).lines()), "launcher.py", "exec")
    writer = InputWriter(None)
    writer.symint("n", 3)
    assert "pass" not in "".join(writer.lines())


def test_mode_and_options_become_flags_of_inductor() -> None:
    flags = torch._inductor.config
    with flags.patch(max_autotune=False, shape_padding=True):
        debuggers.set_inductor(None, {"max_autotune": True, "shape_padding": False}, None)
        assert (flags.max_autotune, flags.shape_padding) == (True, False)
