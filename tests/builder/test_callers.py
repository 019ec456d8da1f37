"""What the caller does between calls, as Python."""

from __future__ import annotations

import pytest
from built import Built

STATE = "state: {scale: {python: 1.0}, w: {shape: [2, 3], requires_grad: true}}\n"
CHAIN = "chain: [{nn.Dropout: 0.5}, {nn.Linear: [3, 3], id: lin, train: true}, {operator.mul: [$_, $self.w]}, {operator.mul: [$_, $self.scale]}]\n"


def test_what_is_set_before_a_call(built: Built) -> None:
    keys = STATE + CHAIN + "params: {k: [4]}\ncalls:\n"
    keys += "  - set: {self.scale: $k, self.w: {$tensor: [1.0]}, self.w.requires_grad: false, self.dropout.p: 0.1}\n"
    keys += "  - {set: {self.lin.training: false, torch.set_default_dtype: torch.float64, torch.backends.cudnn.enabled: false}}"
    assert built.part(keys, "change_1") == [
        "model.scale = 4",
        "model.w = torch.nn.Parameter(torch.tensor([1.0]))",
        "model.w.requires_grad_(False)",
        """assert hasattr(model.dropout, "p"), "self.dropout has no 'p'\"""",
        "model.dropout.p = 0.1",
    ]
    assert built.part(keys, "change_2") == [
        "model.lin.train(False)",
        "torch.set_default_dtype(torch.float64)",
        "torch.backends.cudnn.enabled = False",
    ]
    assert "CHANGES = [None, change_1, change_2]" in built.source(keys)
    assert "CONTEXTS" not in built.source(keys) and "THREADS" not in built.source(keys)


def test_a_module_keeps_a_mode_of_its_own(built: Built) -> None:
    keys = STATE + CHAIN + "calls: [{train: true}, {train: false}]"
    assert built.part(keys, "change_1") == ["model.train()", "model.lin.train()"]
    assert built.part(keys, "change_2") == ["model.eval()", "model.lin.train()"]


def test_state_dicts(built: Built) -> None:
    keys = STATE + CHAIN + "calls: [{load: current}, {load: assign}, {load: initial}]"
    copy = "{name: tensor.clone() for name, tensor in model.state_dict().items()}"
    assert built.part(keys, "save_state") == [f"save_state.state = {copy}"]
    assert built.part(keys, "change_1") == [f"model.load_state_dict({copy})"]
    assert built.part(keys, "change_2") == [f"model.load_state_dict({copy}, assign=True)"]
    assert built.part(keys, "change_3") == ["model.load_state_dict(save_state.state)"]
    assert "CHANGES = [save_state, change_1, change_2, change_3]" in built.source(keys)


def test_contexts_and_threads(built: Built) -> None:
    text = built.source(
        "calls:\n  - with: [torch.no_grad, {torch.autocast: {device_type: $device, dtype: torch.bfloat16}}]\n"
        "  - {}\n  - {thread: true, with: [torch.no_grad, {torch.autocast: {device_type: cpu, dtype: torch.bfloat16}}]}"
    )
    assert (
        "@contextlib.contextmanager\ndef around_1():\n"
        '    with torch.no_grad(), torch.autocast(device_type="cpu", dtype=torch.bfloat16):\n        yield\n'
    ) in text
    assert "CONTEXTS = [contextlib.nullcontext, around_1, contextlib.nullcontext, around_1]" in text
    assert "THREADS = [False, False, False, True]" in text
    assert "import contextlib\n\nimport torch\n" in text


def test_hooks(built: Built) -> None:
    hook = "{$fn: {args: [t], chain: [{torch.mul: [$t, '${k}']}]}}"
    keys = (
        STATE
        + CHAIN
        + f"params: {{k: [4]}}\ncalls: [{{hook: {{self.lin: {hook}, self: {hook}}}}}, {{hook: {{self.lin: null}}}}]"
    )
    assert built.part(keys, "change_1") == [
        "def fn1(t):",
        "    return torch.mul(t, 4)",
        "model.lin.register_forward_hook(lambda module, args, output: fn1(output))",
        "def fn2(t):",
        "    return torch.mul(t, 4)",
        "model.register_forward_hook(lambda module, args, output: fn2(output))",
    ]
    assert built.part(keys, "change_2") == ["model.lin._forward_hooks.clear()"]


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ("{self.lim: null}", "self has no module 'lim' | did you mean 'lin'?"),
        ("{self.scale: null}", "self has no module 'scale'"),
        ("{self: {$fn: {args: [y], chain: [{torch.add: [$y, $x]}]}}}", "nothing is called 'x'"),
        (
            "{self: {$fn: {args: [y], chain: [{nn.Linear: [2, 2]}]}}}",
            "nn.Linear is a module; only functions stand here",
        ),
    ],
)
def test_hooks_that_are_refused(built: Built, hook: str, message: str) -> None:
    (problem,) = built.problems(STATE + CHAIN + f"calls: [{{hook: {hook}}}]")
    assert problem.partition(": ")[2].startswith(message)


def test_an_optimizer(built: Built) -> None:
    keys = (
        STATE
        + CHAIN
        + "grad: backward\ncalls: [{step: {torch.optim.SGD: {lr: 0.5}}}, {}, {step: {torch.optim.SGD: {lr: 0.5}}}]"
    )
    assert built.part(keys, "make_optimizer") == ["return torch.optim.SGD(model.parameters(), lr=0.5)"]
    assert "STEPS = [False, True, False, True]" in built.source(keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("grad: backward\ncalls: [{step: {torch.optim.SGD: {lr: 1}}}, {step: {torch.optim.SGD: {lr: 2}}}]", "the calls step with two optimizers | a case has one, with the same arguments"),
        ("calls: [{step: {torch.optim.SGD: {}}}]", "a step needs gradients | grad: backward computes them"),
    ],
)  # fmt: skip
def test_optimizers_that_are_refused(built: Built, keys: str, message: str) -> None:
    (problem,) = built.problems(STATE + CHAIN + keys)
    assert problem.partition(": ")[2] == message


def test_a_param_of_the_call_itself(built: Built) -> None:
    keys = STATE + CHAIN + "params: {k: [4]}\ncalls: [{params: {k: 5}, set: {self.scale: '${k + 1}'}}]"
    assert built.part(keys, "change_1") == ["model.scale = 6"]


def test_a_variable_of_a_file(built: Built) -> None:
    built.write("own.py", "import torch\nSCALE = 1.0\nclass Own(torch.nn.Module):\n    act = 'relu'\n")
    keys = "module: {file: own.py, name: Own}\ncalls: [{set: {global.SCALE: 2.0, self.act: tanh}}]"
    assert built.part(keys, "change_1") == [
        "global SCALE",
        "SCALE = 2.0",
        """assert hasattr(model, "act"), "self has no 'act'\"""",
        'model.act = "tanh"',
    ]


@pytest.mark.parametrize("name", ["torch", "Own", "help_", "SCALES"])
def test_what_is_no_variable_of_a_file(built: Built, name: str) -> None:
    built.write("own.py", "import torch\nSCALE = 1.0\ndef help_(): pass\nclass Own(torch.nn.Module): pass\n")
    keys = f"module: {{file: own.py, name: Own}}\ncalls: [{{set: {{global.{name}: 2.0}}}}]"
    (problem,) = built.problems(keys)
    assert problem.startswith(f"4:20: the file of the model has no variable {name!r}")


def test_flags_are_imported_behind_a_persons_file(built: Built) -> None:
    built.write("own.py", "import torch\nclass Own(torch.nn.Module): pass\n")
    keys = "module: {file: own.py, name: Own}\ncalls: [{set: {torch._dynamo.config.assume_static_by_default: false}}]"
    assert "\nimport torch._dynamo.config\n" in built.source(keys)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("set: {self.scael: 1}", "5:20: self has no 'scael' | did you mean 'scale'?"),
        ("set: {self.scale.real: 1}", "5:20: a call may not set self.scale.real"),
        ("set: {self.w: 1.0}", "5:20: self.w is a tensor | such as {$tensor: [1.0]}"),
        ("set: {self.scale: {$tensor: [1.0]}}", "5:20: self.scale is no tensor | such as 2.0"),
        ("set: {self.lin: 1}", "5:20: a call may not set self.lin | attributes: alpha, "),
        ("set: {self.lin.weight: 1}", "5:20: a call may not set self.lin.weight | attributes: alpha, "),
        ("set: {self.lin.in_features: 9}", "5:20: a call may not set self.lin.in_features"),
        ("set: {global.SCALE: 1}", "5:20: global.SCALE is a variable of a Python file, and the case has none"),
        ("set: {self.scale: $x}", "5:32: nothing is called 'x'"),
        ("with: [torch.device]", "5:21: 'torch.device' is no context that a call may be made in | contexts: torch.no_grad, "),
        ("with: [torch.nograd]", "5:21: 'torch.nograd' is no context that a call may be made in | did you mean 'torch.no_grad'?"),
        ("with: [torch.save]", "5:21: 'torch.save' is no context that a call may be made in"),
    ],
)  # fmt: skip
def test_what_is_refused(built: Built, call: str, message: str) -> None:
    problems = built.problems(STATE + CHAIN + f"calls: [{{{call}}}]")
    assert len(problems) == 1 and problems[0].startswith(message), problems
