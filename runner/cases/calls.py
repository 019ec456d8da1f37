"""``calls:``: the further calls of a compiled object, and what the caller does before each and around it.

A file is data: what it may set are attributes of the model by name, variables of its Python file, and the settings of
torch in a short list.
"""

from __future__ import annotations

from collections.abc import Mapping

from runner.cases.chains_and_inputs import parse_arguments, parse_chain, parse_inputs, parse_value
from runner.cases.flags import SWITCHES, Flag, refusal
from runner.cases.model import Call, Change, Constant, Function, Literal, Step
from runner.cases.problems import Problems
from runner.cases.python_names import OF_MODULES, is_name
from runner.cases.walk import values_of
from runner.cases.yaml.values import SCALARS, YamlNode, YamlScalar, count_nodes, entries, fields, items, scalar, table
from runner.contract.global_setting import FLUSHES
from runner.diagnostics import Span, nearest

_SWITCH = Flag(frozenset({"bool"}), (), (), "")
_DTYPES = ("torch.float16", "torch.bfloat16", "torch.float32", "torch.float64")
FUNCTIONS: Mapping[str, tuple[Flag, str]] = {
    "torch.set_default_dtype": (Flag(frozenset(), _DTYPES, (), ""), "torch.get_default_dtype()"),
    "torch.set_float32_matmul_precision": (
        Flag(frozenset(), ("highest", "high", "medium"), (), ""),
        "torch.get_float32_matmul_precision()",
    ),
    "torch.use_deterministic_algorithms": (_SWITCH, "torch.are_deterministic_algorithms_enabled()"),
    "torch.set_flush_denormal": (_SWITCH, FLUSHES),
    **{
        f"torch.backends.cuda.enable_{name}_sdp": (_SWITCH, f"torch.backends.cuda.{name}_sdp_enabled()")
        for name in ("flash", "mem_efficient", "math")
    },
}
"""Functions that set something for the whole process: what each takes, and the Python that reads it."""
GUARDED = "torch._dynamo.config."
"""The flags that compiled code looks at before each call. Others count while torch compiles: ``config:`` sets them."""

OPTIMIZERS = (
    "torch.optim.SGD", "torch.optim.Adam", "torch.optim.AdamW", "torch.optim.Adamax", "torch.optim.Adagrad",
    "torch.optim.Adadelta", "torch.optim.NAdam", "torch.optim.RAdam", "torch.optim.RMSprop",
)  # fmt: skip
"""Optimizers whose step takes nothing but gradients."""

MODES = ("requires_grad", "training")
"""What parameters, and what modules, have of their own."""
_IN_MODULES = (
    "alpha", "approximate", "beta", "dim", "dropout", "eps", "inplace", "label_smoothing", "lambd", "momentum",
    "negative_slope", "p", "reduction", "scale_factor", "threshold", "value",
)  # fmt: skip
OF_SUBMODULES = (*_IN_MODULES, *MODES)
"""Attributes of modules of torch.nn, and of their parameters, that a call may set: operators check such values."""


def parse_calls(node: YamlNode | None, inputs: YamlNode | None, problems: Problems) -> tuple[Call, ...]:
    """Return the further calls. Each makes all inputs again, so that their product is bounded."""
    limits = problems.limits
    if node is not None and inputs is not None and count_nodes(inputs) * len(items(node)) > limits.expanded_nodes:
        return problems.refuse(
            (),
            node.span,
            f"these calls make inputs of more than {limits.expanded_nodes} nodes",
            limits.hint("expanded_nodes"),
        )
    return tuple(_call(item, problems) for item in items(node))


def _call(node: YamlNode, problems: Problems) -> Call:
    keys = fields(node)
    changes = [_change(key, value, problems) for key, value in entries(keys.get("set"))]
    hooks = [_hook(key, value, problems) for key, value in entries(keys.get("hook"))]
    return Call(
        table(keys.get("params"), *SCALARS),
        parse_inputs(keys.get("inputs"), problems),
        node.span,
        step=_step(keys.get("step"), problems),
        load=scalar(keys.get("load"), str),
        changes=tuple(change for change in changes if change is not None),
        hooks=tuple(hook for hook in hooks if hook is not None),
        train=scalar(keys.get("train"), bool),
        contexts=tuple(step for step in parse_chain(keys.get("with"), problems) if isinstance(step, Step)),
        thread=scalar(keys.get("thread"), bool, default=False),
    )


def _step(node: YamlNode | None, problems: Problems) -> Step | None:
    for key, arguments in entries(node):
        name = str(key.value)
        if name in OPTIMIZERS:
            return Step(name, parse_arguments(arguments, problems, operator=name), key.span)
        hint = nearest(name, OPTIMIZERS) or f"optimizers: {', '.join(OPTIMIZERS)}"
        problems.error(key.span, f"{name!r} is no optimizer that a call may step", hint)
    return None


def _change(key: YamlScalar, node: YamlNode, problems: Problems) -> Change | None:
    """Return what a call sets; None for what it may not set, which is reported."""
    target = str(key.value)
    kind, _, path = target.partition(".")
    if kind == "torch":
        return _setting(target, key.span, node, problems)
    parts = path.split(".")
    if kind == "global" and len(parts) > 1:
        return problems.refuse(None, key.span, f"{target!r} is no variable of a file", "such as global.SCALE: 2.0")
    for part in parts:
        is_mode = part == parts[-1] and part in MODES
        if part.startswith("_") or not (is_mode or is_name(part, OF_MODULES)):
            return problems.refuse(
                None,
                key.span,
                f"{part!r} is nothing that a call may set",
                "train: sets the mode of a module" if part in ("train", "eval") else "such as self.scale: 2.0",
            )
    value = parse_value(node, problems)
    if any(isinstance(part, Function) for part in values_of(value)):
        return problems.refuse(None, node.span, f"{target} is set to a value, and $fn is a function")
    if parts[-1] in MODES and not (isinstance(value, Literal) and isinstance(value.value, bool)):
        return problems.refuse(None, node.span, f"{target} is true or false")
    return Change(target, value, key.span)


def _hook(key: YamlScalar, node: YamlNode, problems: Problems) -> Change | None:
    """Return the hook of a module; None for another value, which is reported."""
    target = str(key.value)
    if not all(is_name(part, OF_MODULES) and not part.startswith("_") for part in target.split(".")[1:]):
        return problems.refuse(None, key.span, f"{target!r} is no module", "such as self or self.first")
    value = parse_value(node, problems)
    is_hook = isinstance(value, Function) and len(value.args) == 1
    if not is_hook and not (isinstance(value, Literal) and value.value is None):
        hint = "such as {$fn: {args: [y], chain: [{torch.mul: [$y, 2]}]}}"
        return problems.refuse(None, node.span, "a hook is a function of the output, or null", hint)
    return Change(target, value, key.span)


def _setting(name: str, span: Span, node: YamlNode, problems: Problems) -> Change | None:
    value: object = node.value if isinstance(node, YamlScalar) else ...
    function = FUNCTIONS.get(name)
    if function is not None:
        reason = "" if function[0].takes(value) else f"its value must be {function[0].expected}"
    elif name in SWITCHES or name.startswith(GUARDED):
        reason = refusal(name, value)
    else:
        known = (*FUNCTIONS, *SWITCHES)
        hint = nearest(name, known) or f"settings: {', '.join(known)}, {GUARDED}<flag>"
        return problems.refuse(None, span, f"{name!r} is no setting that a call may change", hint)
    if reason:
        return problems.refuse(None, span, f"a call may not set {name}: {reason}")
    is_dtype = isinstance(value, str) and value.startswith("torch.")
    return Change(name, Constant(str(value), node.span) if is_dtype else Literal(value), span)
