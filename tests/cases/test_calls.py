"""``calls:``: what the caller does between calls."""

from __future__ import annotations

import pytest
from spec_files import Files

from runner.cases.case import FUNCTIONS
from runner.cases.model import Call, Change, Constant, Literal, Ref


def test_what_a_caller_does(files: Files) -> None:
    (call,) = files.case("""
        state: {scale: {python: 1.0}}
        chain: [{operator.mul: [$x, $self.scale]}]
        params: {k: [2]}
        calls:
          - set: {self.scale: $k, torch.set_default_dtype: torch.float64, torch.set_flush_denormal: true}
            train: false
            load: initial
            with: [torch.no_grad, {torch.autocast: {device_type: cpu}}]
            thread: true
    """).calls
    scale, dtype, denormal = call.changes
    assert scale.target == "self.scale" and isinstance(scale.value, Ref) and scale.span.column == 15
    assert isinstance(dtype.value, Constant) and dtype.value.name == "torch.float64"
    assert denormal == Change("torch.set_flush_denormal", Literal(True), denormal.span)
    assert (call.load, call.train, call.thread) == ("initial", False, True)
    assert [step.operator for step in call.contexts] == ["torch.no_grad", "torch.autocast"]


def test_a_call_that_says_nothing_is_as_before(files: Files) -> None:
    (call,) = files.case("calls: [{}]").calls
    assert call == Call({}, (), call.span)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("set: {self._parameters: 1}", "3:20: '_parameters' is nothing that a call may set | such as self.scale: 2.0"),
        ("set: {self.forward: 1}", "3:20: 'forward' is nothing that a call may set | such as self.scale: 2.0"),
        ("set: {self.a.__class__: 1}", "3:20: '__class__' is nothing that a call may set | such as self.scale: 2.0"),
        ("set: {self.lin.train: true}", "3:20: 'train' is nothing that a call may set | train: sets the mode of a module"),
        ("set: {global.a.b: 1}", "3:20: 'global.a.b' is no variable of a file | such as global.SCALE: 2.0"),
        ("set: {self.act: {$fn: {args: [t], chain: [torch.sin]}}}", "3:30: self.act is set to a value, and $fn is a function"),
        ("set: {self.w.requires_grad: 1}", "3:42: self.w.requires_grad is true or false"),
        ("set: {torch.set_default_dtype: float64}", "3:20: a call may not set torch.set_default_dtype: its value must be 'torch.float16', 'torch.bfloat16', 'torch.float32' or 'torch.float64'"),
        ("set: {torch.set_flush_denormal: [true]}", "3:20: a call may not set torch.set_flush_denormal: its value must be true or false"),
        ("set: {torch.set_flush_denorm: true}", "3:20: 'torch.set_flush_denorm' is no setting that a call may change | did you mean 'torch.set_flush_denormal'?"),
        ("set: {torch._inductor.config.fallback_random: true}", "3:20: 'torch._inductor.config.fallback_random' is no setting that a call may change | settings: torch.set_default_dtype, "),
        ("set: {torch._dynamo.config.replay_record_enabled: true}", "3:20: a call may not set torch._dynamo.config.replay_record_enabled: it writes files, or says where they are"),
        ("set: {os.environ: 1}", "3:20: the key 'os.environ' does not fit: expected self.<attribute>, global.<variable> or a setting of torch, such as self.scale"),
        ("set: {scale: 1}", "3:20: the key 'scale' does not fit: "),
        ("step: {torch.optim.LBFGS: {}}", "3:21: 'torch.optim.LBFGS' is no optimizer that a call may step | "),
        ("hook: {self.first: 1}", "3:33: a hook is a function of the output, or null | such as {$fn: {args: [y], chain: "),
        ("hook: {self._first: null}", "3:21: 'self._first' is no module | such as self or self.first"),
        ("hook: {self.first: {$fn: {args: [a, b], chain: [torch.sin]}}}", "3:33: a hook is a function of the output, or null"),
        ("load: first", "3:20: 'first' is not one of initial, current, assign"),
        ("train: 1", "3:21: expected true or false"),
    ],
)  # fmt: skip
def test_what_is_refused(files: Files, call: str, message: str) -> None:
    problems = files.errors(f"calls: [{{{call}}}]")
    assert len(problems) == 1 and problems[0].startswith(message), problems


def test_a_case_that_calls_numpy_sets_no_text(files: Files) -> None:
    keys = "inputs: {x: [3]}\nstate: {a: {python: 1}}\nchain: [Tensor.numpy, {numpy.add: [$_, $self.a]}]\n"
    hook = "{$fn: {args: [y], chain: [Tensor.numpy, {numpy.add: [$_, f8]}]}}"
    for call in ("set: {self.a: f8}", f"hook: {{self: {hook}}}"):
        (problem,) = files.errors(keys + f"calls: [{{{call}}}]")
        assert "a case that calls numpy may hold no text, such as 'f8'" in problem


def test_every_function_that_sets_has_one_that_reads() -> None:
    assert all(reader for _, reader in FUNCTIONS.values())
