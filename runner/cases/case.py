"""One case: a checked YAML mapping (with the file's defaults under it) to a frozen ``Case``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from runner.cases.chains_and_inputs import (
    dtype_name,
    parse_arguments,
    parse_chain,
    parse_contexts,
    parse_inputs,
    parse_value,
)
from runner.cases.kernels import constant_axes, launched_kernels
from runner.cases.limits import parse_size, show_size
from runner.cases.marks import check_marks, parse_dynamic
from runner.cases.model import (
    GIVEN,
    MODE_AXES,
    Call,
    Case,
    Change,
    Compile,
    Constant,
    Expect,
    Function,
    Grad,
    Input,
    Kernel,
    Known,
    Literal,
    Node,
    PythonModule,
    Raises,
    Requires,
    Step,
    TensorLiteral,
    Tolerance,
)
from runner.cases.operator_names import pattern_hint
from runner.cases.params import (
    check_exclude,
    check_param_dtype,
    parse_groups,
    parse_params,
    placed_params,
    samples,
    with_groups,
)
from runner.cases.patterns import PatternError, check_pattern, check_python_pattern, misspelt_exception
from runner.cases.problems import Problems
from runner.cases.python_files import OF_MODULES, is_name, resolve_python_file
from runner.cases.texts import check_numpy
from runner.cases.torch_names import SWITCHES, Flag, check_flags, flag_refusal
from runner.cases.twins import has_place
from runner.cases.walk import all_steps, values_of
from runner.cases.yaml.values import (
    NUMBERS,
    SCALARS,
    YamlMapping,
    YamlNode,
    YamlScalar,
    YamlSequence,
    count_nodes,
    entries,
    fields,
    items,
    listed,
    nested_table,
    scalar,
    several,
    table,
)
from runner.contract.oracles import BUDGETS
from runner.contract.settings import FLUSHES
from runner.diagnostics import Span, nearest

_LONGEST_RANGE = 200
BOTH = "torch.compile takes mode or options, and refuses both"
LONGEST_TIMEOUT = 7 * 86400.0
"""Seconds that a case may ask for: a week."""
MOST_MEMORY = 64 << 40
"""Bytes that a case may ask for."""
_REQUIRES, _COMPILE, _EXPECT, _TOLERANCE = Requires(), Compile(), Expect(), Tolerance()
"""What most cases have."""
_SECONDS = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(ms|s|m|min|h)?")
_UNIT = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_case(
    node: YamlMapping, file: str, problems: Problems, kernels: Mapping[str, Kernel | None] | None = None
) -> Case:
    """Read a case from a mapping that passed its schema, and report to ``problems`` what a schema cannot say.

    ``kernels`` are those that the file declares. Raises Mistyped where a value has another type than its field.
    """
    keys = fields(node)
    name = keys["name"]
    title: str = scalar(name, str)
    errors_before = problems.errors
    own, groups = parse_params(keys.get("params"), problems), parse_groups(keys.get("zip"), problems)
    declared = with_groups(own, groups, keys.get("zip"), problems)
    groups = () if problems.errors > errors_before else groups
    chain = parse_chain(keys.get("chain"), problems)
    steps = [*all_steps(chain)]
    used = launched_kernels(steps, kernels or {}, problems)
    params = constant_axes(declared, used, keys.get("params"), problems)
    check_exclude(keys.get("exclude"), params, problems)
    module = _module(keys["module"], file, problems) if "module" in keys else None
    if module is None and "chain" not in keys:
        problems.error(name.span, f"case {title!r} has neither a chain nor a module", "such as chain: [F.relu]")
    if module is not None and "chain" in keys:
        problems.error(keys["chain"].span, "a case has a chain or a module, not both")
    case = Case(
        name=title,
        file=file,
        span=name.span,
        doc=scalar(keys.get("doc"), str, default=""),
        tags=listed(keys.get("tags"), str),
        links=listed(keys.get("links"), str),
        params=params,
        exclude=tuple(nested_table(item, *SCALARS) for item in items(keys.get("exclude"))),
        inputs=parse_inputs(keys.get("inputs"), problems),
        state=parse_inputs(keys.get("state"), problems, "state"),
        chain=chain,
        result=parse_value(keys["return"], problems) if "return" in keys else None,
        module=module,
        kernels=used,
        calls=parse_calls(keys.get("calls"), keys.get("inputs"), problems),
        dtypes=tuple(map(dtype_name, listed(keys.get("dtypes"), str, default=("float32",)))),
        devices=listed(keys.get("devices"), str, default=("cpu",)),
        param_dtype=dtype_name(scalar(keys["param_dtype"], str)) if "param_dtype" in keys else None,
        train=listed(keys.get("train"), bool, default=(False,)),
        grad=tuple(map(_grad, several(keys["grad"]))) if "grad" in keys else (Grad(),),
        dynamic=tuple(map(parse_dynamic, several(keys["dynamic"]))) if "dynamic" in keys else (None,),
        autocast=tuple(
            None if v is None else dtype_name(v) for v in listed(keys.get("autocast"), str, type(None), default=(None,))
        ),
        threads=listed(keys.get("threads"), int, type(None), default=(None,)),
        requires=_requires(keys.get("requires"), problems),
        compile=_compile(keys.get("compile"), problems),
        config=check_flags(keys.get("config"), problems),
        expect=_expect(keys.get("expect"), problems, "module" in keys),
        tolerance=parse_tolerance(keys.get("tolerance"), keys.get("return"), problems),
        strides=scalar(keys.get("strides"), str, default="significant"),
        ignore=table(keys.get("ignore"), str),
        **parse_limits(keys, problems),
        known=tuple(parse_entry(item, problems) for item in items(keys.get("known"))),
        axes=tuple(
            axis
            for key in keys
            for axis in (own if key == "params" else itertools.chain(*groups) if key == "zip" else [key])
            if key in ("params", "zip", "devices", *MODE_AXES)
        ),
        twin=tuple(dict.fromkeys(listed(keys.get("twin"), str))),
        zip=groups,
    )
    steps = [*all_steps((case.inputs, case.state)), *steps, *all_steps((case.result, case.module, case.calls))]
    # A file's defaults alone have neither, and go with cases that have.
    has_model = bool(case.chain) or case.module is not None
    if has_model and (placed := placed_params(case, node, steps, problems)):
        case = replace(case, placed=placed)
    if case.twin:
        _check_twin(case, keys["twin"].span, problems)
    may_call_numpy = any(step.operator.startswith(("numpy.", "Tensor.numpy", "$")) for step in steps)
    for sample in samples(case):
        if may_call_numpy:
            check_numpy(sample, problems)
        if "grad" in keys:
            check_leaves(sample, keys["grad"].span, problems)
        if has_model:
            check_marks(sample, problems)
    for item in case.inputs:
        if item.name in params:
            problems.error(
                item.span,
                f"a param and an input are called {item.name!r}, and ${item.name} is the input",
                "give one of them another name",
            )
    check_cotangents(case, keys.get("grad"), problems)
    if has_model and case.param_dtype is not None and case.param_dtype.startswith("$"):
        check_param_dtype(case.param_dtype[1:], params, keys["param_dtype"].span, problems)
    if has_model and GRADIENTS in case.tolerance.by_place and all(grad.mode != "backward" for grad in case.grad):
        problems.warning(keys["tolerance"].span, "no gradients are compared here", "grad: backward compares them")
    return case


def _check_twin(case: Case, place: Span, problems: Problems) -> None:
    """Report a twin that would be the same program, or none. ``place`` is where ``twin:`` stands."""
    if case.has_python:
        problems.error(place, "a twin is made of a chain of torch's operators alone", "take twin: out")
    elif not any(map(has_place, samples(case))):
        problems.warning(place, "no step of the chain can be rewritten, so there is no twin", "take twin: out")


def with_defaults(node: YamlMapping, *defaults: YamlNode | None) -> YamlMapping:
    """Return the mapping with every key of ``defaults`` that it lacks; earlier defaults win.

    Entries of a ledger about a choice of torch's benchmarks hold beside the case's own: they are about any case.
    """
    merged: dict[str, tuple[YamlScalar, YamlNode]] = {}
    for mapping in (node, *defaults):
        for key, value in entries(mapping):
            earlier = merged.setdefault(str(key.value), (key, value))[1]
            if key.value == "known" and earlier is not value:
                more = tuple(item for item in items(value) if "choice" in fields(item))
                both = YamlSequence((*items(earlier), *more), earlier.span)
                merged["known"] = (merged["known"][0], both)
    return YamlMapping(tuple(merged.values()), node.span)


def duration(value: Any) -> float | None:
    """Return seconds of ``60s``, ``2m``, ``90``; None stays None. Raises ValueError for anything else."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = _SECONDS.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"{value!r} is no duration, such as 60s or 2m")
    return float(match[1]) * _UNIT[match[2]]


def _module(node: YamlNode, file: str, problems: Problems) -> PythonModule | None:
    keys = fields(node)
    title: str = scalar(keys["name"], str)
    if not is_name(title, frozenset()):
        problems.error(keys["name"].span, f"{title!r} is no name of a class")
    arguments = entries(keys.get("args"))
    for key, _ in arguments:
        if not is_name(str(key.value), frozenset()):
            problems.error(key.span, f"{key.value!r} is no keyword argument", "keywords are Python names")
    pairs = tuple((str(key.value), parse_value(value, problems)) for key, value in arguments)
    full = resolve_python_file(keys["file"], file, problems)
    positional = scalar(keys.get("positional"), bool, default=False)
    return None if full is None else PythonModule(str(full), title, pairs, node.span, positional)


def _requires(node: YamlNode | None, problems: Problems) -> Requires:
    if node is None:
        return _REQUIRES
    keys = fields(node)
    return Requires(
        _range(keys.get("torch"), problems), listed(keys.get("device"), str), listed(keys.get("package"), str)
    )


def _compile(node: YamlNode | None, problems: Problems) -> Compile:
    if node is None:
        return _COMPILE
    keys = fields(node)
    options = check_flags(keys.get("options"), problems, "torch._inductor.config.")
    fullgraph, mode = scalar(keys.get("fullgraph"), bool, default=False), scalar(keys.get("mode"), str)
    if mode is not None and options:
        problems.warning(node.span, BOTH, "set the options in config:, by their full names")
    return Compile(fullgraph, mode, options, _timeout(keys["timeout"], problems) if "timeout" in keys else None)


def _expect(node: YamlNode | None, problems: Problems, has_module: bool) -> Expect:
    if node is None:
        return _EXPECT
    keys = fields(node)
    return Expect(
        _raises(keys["raises"], problems, has_module) if "raises" in keys else None,
        **{key: scalar(keys.get(key), str if key == "delegated" else int) for key in BUDGETS},
        constant=scalar(keys.get("constant"), bool, default=False),
    )


def _raises(node: YamlNode, problems: Problems, has_module: bool) -> Raises:
    keys = {"type": node} if isinstance(node, YamlScalar) else fields(node)
    name = scalar(keys.get("type"), str, default="Exception")
    if name and (hint := misspelt_exception(name)):
        report = problems.warning if has_module else problems.error  # a module may have a class of its own
        report(keys["type"].span, f"neither Python nor torch has an exception {name!r}", hint)
    # Python's own engine matches it, in the worker, in the time that the case has.
    return Raises(name, _pattern(keys.get("match"), problems, check_python_pattern))


def _pattern(node: YamlNode | None, problems: Problems, check: Callable[[str], None], prefix: str = "") -> str | None:
    """Report a regular expression that ``check`` does not take, and more of them than a file may have."""
    text: str | None = scalar(node, str)
    limits = problems.limits
    if node is None or text is None:
        return None
    if len(text) > limits.pattern_characters:
        return problems.refuse(
            text,
            node.span,
            f"a regular expression has at most {limits.pattern_characters} characters, this one has {len(text)}",
            limits.hint("pattern_characters"),
        )
    problems.patterns.add(text)
    if sum(map(len, problems.patterns)) > limits.total_pattern_characters:
        return problems.refuse(
            text,
            node.span,
            f"the regular expressions up to here have more than {limits.total_pattern_characters} characters",
            limits.hint("total_pattern_characters"),
        )
    try:
        check(text)
    except PatternError as error:
        problems.error(node.span, f"{prefix}{error}", error.hint)
    return text


def parse_limits(keys: Mapping[str, YamlNode], problems: Problems) -> dict[str, Any]:
    """Return the seed, the timeout and the memory of a case or of defaults, each None where it is left out.

    Raises Mistyped.
    """
    return {
        "seed": scalar(keys.get("seed"), int),
        "timeout": _timeout(keys["timeout"], problems) if "timeout" in keys else None,
        "memory": _memory(keys["memory"], problems) if "memory" in keys else None,
    }


def with_limits(case: Case, limits: Mapping[str, Any]) -> Case:
    """Return a case with those of ``limits`` that it lacks."""
    added = {key: value for key, value in limits.items() if value is not None and getattr(case, key) is None}
    return replace(case, **added) if added else case


def _timeout(node: YamlNode, problems: Problems) -> float | None:
    hint = "such as 60s or 2m"
    seconds = problems.attempt(lambda: duration(scalar(node, str, *NUMBERS)), node.span, hint)
    if seconds is not None and not 0 < seconds <= LONGEST_TIMEOUT:
        problems.error(node.span, "a timeout is more than 0 and at most a week", hint)
    return seconds


def _memory(node: YamlNode, problems: Problems) -> int | None:
    size = problems.attempt(lambda: parse_size(str(scalar(node, str, int))), node.span, "such as 2GiB")
    if size is not None and size > MOST_MEMORY:
        problems.error(node.span, f"memory is at most {show_size(MOST_MEMORY)}", "such as 2GiB")
    return size


def parse_entry(item: YamlNode, problems: Problems) -> Known:
    """Read an entry of a ledger, and report what a schema cannot say. Raises Mistyped."""
    keys = fields(item)
    check_operators(keys.get("operators"), problems)
    return Known(
        item.span,
        case=listed(keys.get("case"), str),
        operators=listed(keys.get("operators"), str),
        torch=_range(keys.get("torch"), problems),
        error=_pattern(keys.get("error"), problems, check_pattern, "error: "),
        oracle=listed(keys.get("oracle"), str),
        backend=listed(keys.get("backend"), str),
        device=listed(keys.get("device"), str),
        dtype=tuple(dtype_name(d) for d in listed(keys.get("dtype"), str)),
        platform=listed(keys.get("platform"), str),
        threads=listed(keys.get("threads"), int),
        params=nested_table(keys.get("params"), *SCALARS),
        why=scalar(keys.get("why"), str) or "bug",
        sometimes=scalar(keys.get("sometimes"), bool, default=False),
        review=_review(keys["review"], problems) if "review" in keys else None,
        **{key: scalar(keys.get(key), str) for key in ("stage", "signature", "issue", "reason", "choice")},
    )


def check_operators(node: YamlNode | None, problems: Problems) -> None:
    """Report the patterns of a list that match no operator."""
    for item in items(node):
        hint = pattern_hint(scalar(item, str))
        if hint is not None:
            problems.error(item.span, f"{scalar(item, str)!r} matches no operator", hint)


def _range(node: YamlNode | None, problems: Problems) -> str | None:
    """Return a range of versions, in the form that its schema holds it to."""
    text: str | None = scalar(node, str)
    if node is not None and text is not None and len(text) > _LONGEST_RANGE:
        problems.error(
            node.span, f"torch: a range of versions has at most {_LONGEST_RANGE} characters", "such as >=2.7"
        )
    return text


def _review(node: YamlNode, problems: Problems) -> str:
    text: str = scalar(node, str)
    try:
        if date.fromisoformat(text) < date.today():
            problems.warning(node.span, f"this entry was to be looked at again by {text}")
    except ValueError:
        problems.warning(
            node.span,
            f"review: is a date, and {text!r} is not",
            "write review: 2027-01-01; why: bug, by-design or noise says what kind of entry it is",
        )
    return text


# --- tolerance: ---

OUTPUT, GRADIENTS = "output", "gradients"
"""Places that a tolerance may have of their own: an output is called as findings call it, such as ``output[1]``."""


def parse_tolerance(node: YamlNode | None, result: YamlNode | None, problems: Problems) -> Tolerance:
    """Read a tolerance, and report what a schema cannot say.

    ``result`` is what the model returns, which says which outputs there are. Raises Mistyped.
    """
    if node is None:
        return _TOLERANCE
    keys = fields(node)
    own = {name: fields(value) for name, value in keys.items() if isinstance(value, YamlMapping) and name != "values"}
    by_place = {name: _bounds(b) for name, b in own.items() if name == GRADIENTS or name.startswith(OUTPUT)}
    by_dtype = {"": _bounds(keys)} if "rtol" in keys or "atol" in keys else {}
    by_dtype |= {dtype_name(name): _bounds(bounds) for name, bounds in own.items() if name not in by_place}
    reasons = [scalar(part.get("reason"), str) for part in (keys, *own.values())]
    reason = "; ".join(dict.fromkeys(text for text in reasons if text)) or None
    _places(node, result, problems)
    values, bound = _values(keys.get("values"))
    is_bounded = bound is not None or "" in by_dtype
    if not reasons[0] and (is_bounded or not all(reasons[1:])):
        problems.error(node.span, "a tolerance needs a reason", 'such as {rtol: 1e-4, reason: "a sum of 10^6 terms"}')
    exact = scalar(keys.get("exact"), bool, default=False)
    if "values" in keys and values in ("bitwise", "sqnr", "ulp") and (by_dtype or exact):
        problems.error(
            keys["values"].span,
            f"values: {values} says what is compared, so nothing is left for rtol, atol and exact",
            "leave them out; bounds of an output or of gradients may stand beside it",
        )
    return Tolerance(by_dtype, exact, reason, by_place, values, bound)


def _values(node: YamlNode | None) -> tuple[str, float | None]:
    """Return the name of a rule for values, and the number that goes with it."""
    if not isinstance(node, YamlMapping):
        return scalar(node, str, default=""), None
    ((name, bound),) = entries(node)
    return str(name.value), scalar(bound, *NUMBERS)


def _places(node: YamlNode | None, result: YamlNode | None, problems: Problems) -> None:
    """Report tolerances of outputs that are not among those that ``return:`` lists, if it lists any."""
    names: Iterable[object] = range(len(result.items)) if isinstance(result, YamlSequence) else ()
    if isinstance(result, YamlMapping):
        names = result.keys()
    outputs = [f"{OUTPUT}[{name!r}]" for name in names]
    for key, _ in entries(node):
        place = str(key.value)
        known = any(place == output or place.startswith((f"{output}[", f"{output}.")) for output in outputs)
        if outputs and not known and place.startswith(OUTPUT) and place != OUTPUT:
            problems.error(key.span, f"the case returns no {place}", f"it returns {', '.join(outputs[:5])}")


def _bounds(keys: Mapping[str, YamlNode]) -> tuple[float | None, float | None]:
    return scalar(keys.get("rtol"), *NUMBERS), scalar(keys.get("atol"), *NUMBERS)


# --- grad: ---

_WITH_PARAMETERS = re.compile(
    r"nn\.(AdaptiveLogSoftmax|(Sync)?BatchNorm|Bilinear|Conv|Embedding|GRU|GroupNorm|InstanceNorm|LSTM|LayerNorm|"
    r"Lazy|Linear|"
    r"MultiheadAttention|PReLU|RMSNorm|RNN|Transformer)"
)


def holds_parameters(operator: str) -> bool:
    """Return whether the module ``nn.X`` can have parameters; some have none with certain arguments."""
    return _WITH_PARAMETERS.match(operator) is not None


def check_leaves(case: Case, place: Span, problems: Problems) -> None:
    """Report a case that runs backward although nothing in it requires a gradient: no gradient would be compared.

    ``place`` is where ``grad:`` stands. A model in Python may have parameters that nobody sees here.
    """
    if case.module is not None or all(grad.mode != "backward" for grad in case.grad):
        return
    inputs = (*case.inputs, *case.state, *(item for call in case.calls for item in call.inputs))
    if any(map(_requires_grad, inputs)) or _makes_leaf(case.chain):
        return
    name = case.inputs[0].name if case.inputs else "x"
    problems.error(
        place,
        f"nothing in case {case.name!r} requires a gradient, so backward would compare nothing",
        f"write requires_grad: true for an input, such as {name}: {{shape: [2, 3], requires_grad: true}}, or take "
        "grad: out",
    )


def _requires_grad(item: Input) -> bool:
    return item.requires_grad or any(map(_requires_grad, item.items)) or _makes_leaf(item.layout)


def _makes_leaf(chain: Sequence[Node]) -> bool:
    """Whether a chain has a module with parameters, or asks for a gradient itself."""
    return any(
        holds_parameters(step.operator)
        or step.operator == "Tensor.requires_grad_"
        or dict(step.arguments.keywords).get("requires_grad", Literal(False)) != Literal(False)
        for step in all_steps(chain)
    ) or any(isinstance(value, TensorLiteral) and "requires_grad" in dict(value.options) for value in values_of(chain))


def _grad(node: YamlNode) -> Grad:
    if not isinstance(node, YamlMapping):
        return Grad(scalar(node, str))
    keys = fields(node)
    order = scalar(keys.get("order"), int, default=1)
    words = (
        [scalar(item, str, type(None)) for item in several(keys["cotangent"])] if "cotangent" in keys else ["seeded"]
    )
    if len(words) == 1 and words[0] is not None and not words[0].startswith("$"):
        return Grad("backward", words[0], order)
    return Grad("backward", GIVEN, order, tuple(None if word is None else word.removeprefix("$") for word in words))


def check_cotangents(case: Case, node: YamlNode | None, problems: Problems) -> None:
    """Report cotangents that are no plain hidden inputs. ``node`` is the case's ``grad:``."""
    names = dict.fromkeys(name for grad in case.grad for name in grad.given if name is not None)
    if node is None or not names:
        return
    inputs = {item.name: item for item in case.inputs}
    for name in names:
        if name not in inputs:
            problems.error(node.span, f"the cotangent ${name} is no input", nearest(name, inputs) or _hint(name))
        elif reason := _objection(inputs[name], case.inputs):
            problems.error(inputs[name].span, f"{name!r} is a cotangent, and {reason}", _hint(name))


def _objection(item: Input, inputs: Sequence[Input]) -> str:
    """Why an input is no cotangent."""
    viewing = next((other.name for other in inputs if other.view_of == item.name), None)
    objections = (
        (item.kind not in ("tensor", "values"), "a cotangent is a tensor with a shape: or values:"),
        (not item.hidden, "the model gets it too"),
        (item.requires_grad, "it requires a gradient itself"),
        (viewing is not None, f"{viewing!r} is a view of it"),
    )
    return next((reason for holds, reason in objections if holds), "")


def _hint(name: str) -> str:
    return f"such as inputs: {{{name}: {{shape: [2, 3], hidden: true}}}}"


# --- calls: ---

# A file is data: what the caller may set are attributes of the model by name, variables of its Python file, and the
# settings of torch in a short list.

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
        nested_table(keys.get("params"), *SCALARS),
        parse_inputs(keys.get("inputs"), problems),
        node.span,
        step=_step(keys.get("step"), problems),
        load=scalar(keys.get("load"), str),
        changes=tuple(change for change in changes if change is not None),
        hooks=tuple(hook for hook in hooks if hook is not None),
        train=scalar(keys.get("train"), bool),
        contexts=parse_contexts(keys.get("with"), problems),
        thread=scalar(keys.get("thread"), bool, default=False),
    )


def _step(node: YamlNode | None, problems: Problems) -> Step | None:
    for key, arguments in entries(node):
        name = str(key.value)
        if name in OPTIMIZERS:
            return Step(name, parse_arguments(arguments, problems, operator=name), key.span)
        problems.error(
            key.span,
            f"{name!r} is no optimizer that a call may step",
            nearest(name, OPTIMIZERS) or f"optimizers: {', '.join(OPTIMIZERS)}",
        )
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
        return problems.refuse(
            None,
            node.span,
            "a hook is a function of the output, or null",
            "such as {$fn: {args: [y], chain: [{torch.mul: [$y, 2]}]}}",
        )
    return Change(target, value, key.span)


def _setting(name: str, span: Span, node: YamlNode, problems: Problems) -> Change | None:
    value: object = node.value if isinstance(node, YamlScalar) else ...
    function = FUNCTIONS.get(name)
    if function is not None:
        reason = "" if function[0].takes(value) else f"its value must be {function[0].expected}"
    elif name in SWITCHES or name.startswith(GUARDED):
        reason = flag_refusal(name, value)
    else:
        known = (*FUNCTIONS, *SWITCHES)
        return problems.refuse(
            None,
            span,
            f"{name!r} is no setting that a call may change",
            nearest(name, known) or f"settings: {', '.join(known)}, {GUARDED}<flag>",
        )
    if reason:
        return problems.refuse(None, span, f"a call may not set {name}: {reason}")
    is_dtype = isinstance(value, str) and value.startswith("torch.")
    return Change(name, Constant(str(value), node.span) if is_dtype else Literal(value), span)
