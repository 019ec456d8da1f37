"""What ``runner minify`` decides and writes, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.contract.finding import Finding
from runner.contract.job import Job
from runner.engine.messages import Outcome
from runner.exit_codes import UsageError
from runner.record.events import VariantFinished
from runner.reduce.minifier import (
    Attempt,
    Failure,
    attempts,
    ended,
    failure_of,
    graph_of,
    kind_of,
    operators_of,
    standalone,
)

CRASH = {"type": "InductorError", "message": "no", "chain": ["InductorError", "LoweringException", "KeyError"]}

SCRIPT = """import os
os.environ['TORCHINDUCTOR_CACHE_DIR'] = '/tmp/somebody'
os.environ['TORCHINDUCTOR_COMPILE_THREADS'] = '1'
import torch
torch._dynamo.config.debug_dir_root = '/tmp/out'
torch._inductor.config.fallback_random = True
class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()



    def forward(self, x_1, y_1):
        relu = torch.ops.aten.relu.default(x_1);  x_1 = None
        split = torch.ops.aten.split.Tensor(relu, 2)
        getitem = split[0];  split = None
        constant = self._tensor_constant0
        add = getitem + y_1;  getitem = y_1 = None
        add += relu
        return (add,)

mod = Repro()
if __name__ == '__main__':
    from torch._dynamo.repro.after_aot import run_repro
    run_repro(mod, load_args, save_dir='/tmp/out/run_1/minifier/checkpoints', backend='toy')
"""


def finished(*findings: Finding, verdict: str = "ERROR", reason: str = "") -> VariantFinished:
    return VariantFinished("case.spec.yaml::c@b", "c", "s", (), "b", "2.13", "3.11", "cpu", "float32", "c", "f", 1, verdict,
                           1.0, findings=findings, reason=reason)  # fmt: skip


def outcome(**fields: Any) -> Outcome:
    job = Job("k", "i", "e", "n", "", {})
    return Outcome(**{"job": job, "ended": "result", "seconds": 1.0, **fields})


def test_the_class_that_tells_a_failure_is_no_wrapper() -> None:
    assert kind_of(CRASH) == "KeyError"
    assert kind_of({"chain": ["BackendCompilerFailed", "ReluCompileError"]}) == "ReluCompileError"
    assert kind_of({"chain": ["InductorError"]}) == "InductorError"
    assert kind_of(None) == ""


def test_what_is_to_be_kept() -> None:
    crash = failure_of(finished(Finding("compile-error", "no", stage="inductor", error=CRASH)))
    assert (crash.kind, crash.stage, crash.accuracy, crash.signal) == ("KeyError", "inductor", False, "")
    wrong = failure_of(finished(Finding("stride", "s", stage="aot"), Finding("value", "v", stage="inductor")))
    assert (wrong.kind, wrong.stage, wrong.accuracy) == ("AccuracyError", "inductor", True)
    dead = failure_of(finished(Finding("signal", "d", stage="backend", error={"type": "SIGABRT"})))
    assert (dead.kind, dead.signal) == ("SIGABRT", "SIGABRT")


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (finished(verdict="PASS"), "does not fail: PASS"),
        (finished(verdict="INVALID", reason="eager raised"), "INVALID: eager raised"),
        (finished(Finding("stride", "s", stage="inductor")), "fails by stride"),
        (finished(Finding("value", "v", stage="dynamo")), "fails in Dynamo"),
    ],
)
def test_what_the_minifier_cannot_see_is_refused(event: VariantFinished, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refusal:
        failure_of(event)
    assert ("runner reduce" in str(refusal.value)) == bool(event.findings) and refusal.value.code == 1


def test_attempts() -> None:
    error = Failure("KeyError", "", "inductor")
    assert list(attempts(error, "aot", 2)) == [Attempt(a, n) for a in ("aot", "dynamo") for n in (2, 3)]
    assert list(attempts(error, "dynamo", 3)) == [Attempt("dynamo", 3)]
    wrong = Failure("AccuracyError", "", "decomposition", accuracy=True)
    plan = list(attempts(wrong, "aot", 2))
    assert {a.after for a in plan} == {"dynamo"}, "the graph after AOT is decomposed already"
    assert [a.level for a in plan] == [4, 4, 4]
    assert [a.tolerance for a in plan] == sorted((a.tolerance or 0.0 for a in plan), reverse=True)
    assert [a.level for a in attempts(Failure("SIGSEGV", "", "inductor", signal="SIGSEGV"), "aot", 2)] == [3, 3]


def test_the_graph_of_a_script() -> None:
    assert graph_of(SCRIPT).splitlines()[0] == "def forward(self, x_1, y_1):"
    assert graph_of(SCRIPT).splitlines()[-1] == "    return (add,)"
    assert operators_of(SCRIPT) == 4, "relu, split, +, +=: neither the pick nor the constant"
    assert (graph_of("x ="), operators_of("import os")) == ("", 0)


def test_a_script_finds_its_inputs_and_loses_our_settings() -> None:
    text = standalone(SCRIPT, Path("/tmp/out"), {"backend": "toy"}, "toy_copied", (), ())
    compile(text, "repro.py", "exec")
    assert "/tmp" not in text
    assert 'os.path.abspath(__file__)), "run_1/minifier/checkpoints")' in text
    assert "COMPILE_THREADS" in text and "fallback_random = True" in text


def test_a_script_names_the_backend_or_registers_it() -> None:
    aliased = SCRIPT.replace("'toy'", "'toy_copied'")
    assert 'backend="toy"' in standalone(
        aliased, Path("/tmp/out"), {"backend": "toy"}, "toy_copied", ("plugin",), ("/p",)
    )
    custom = SCRIPT.replace("'toy'", "'package_toy'")
    backend = {"backend": "package:toy", "options": {"a": 1}}
    text = standalone(custom, Path("/tmp/out"), backend, "package_toy", (), ("/p",))
    head = text[: text.index("if __name__")]
    assert 'sys.path.append("/p")' in head
    assert 'importlib.import_module("package").toy, **{"options": {"a": 1}}), name="package_toy")' in head


def test_imports_come_before_the_graph_runs() -> None:
    text = standalone(SCRIPT, Path("/tmp/out"), {"backend": "inductor"}, "inductor_copied", ("plugin",), ("/p",))
    assert text.index("import plugin") < text.index("if __name__")
    assert "register_backend" not in text


def test_how_a_step_ended() -> None:
    assert ended(outcome(result={"raised": None})) == ("", "")
    assert ended(outcome(result={"raised": {**CRASH, "message": "no\nmore"}})) == ("KeyError", "InductorError: no")
    assert ended(outcome(ended="signal", signal="SIGSEGV"))[0] == "SIGSEGV"
    assert ended(outcome(ended="timeout"))[0] == "timeout"
    with pytest.raises(UsageError, match="no flag"):
        ended(outcome(result={"error": {"type": "InvalidCase", "message": "no flag x"}}))
    with pytest.raises(UsageError, match="last line"):
        ended(outcome(ended="broken", detail="Traceback\nlast line\n"))
