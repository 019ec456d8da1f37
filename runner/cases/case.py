"""One case: a checked YAML mapping (with the file's defaults under it) to a frozen ``Case``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from runner.cases.calls import parse_calls
from runner.cases.chains_and_inputs import dtype_name, parse_chain, parse_inputs, parse_value
from runner.cases.flags import check_flags
from runner.cases.kernels import constant_axes, launched_kernels
from runner.cases.limits import parse_size, show_size
from runner.cases.model import (
    FLOATING,
    GIVEN,
    Case,
    Compile,
    Expect,
    Grad,
    Input,
    Kernel,
    Known,
    Literal,
    Node,
    PythonModule,
    Raises,
    Requires,
    TensorLiteral,
    Tolerance,
)
from runner.cases.patterns import PatternError, check_pattern, check_python_pattern, misspelt_exception
from runner.cases.problems import Problems
from runner.cases.python_files import resolve_python_file
from runner.cases.python_names import is_name
from runner.cases.texts import check_numpy
from runner.cases.twins import has_place
from runner.cases.versions import parse_range
from runner.cases.walk import all_steps, values_of
from runner.cases.yaml.values import (
    NUMBERS,
    SCALARS,
    YamlMapping,
    YamlNode,
    YamlScalar,
    YamlSequence,
    entries,
    fields,
    items,
    listed,
    scalar,
    several,
    table,
)
from runner.diagnostics import Span, nearest

_LONGEST_RANGE = 200
BOTH = "torch.compile takes mode or options, and refuses both"
MODE_AXES = ("train", "grad", "dynamic", "autocast", "threads")
LONGEST_TIMEOUT = 7 * 86400.0
"""Seconds that a case may ask for: a week."""
MOST_MEMORY = 64 << 40
"""Bytes that a case may ask for."""
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
    declared = _params(keys.get("params"), problems)
    chain = parse_chain(keys.get("chain"), problems)
    used = launched_kernels(chain, kernels or {}, problems)
    params = constant_axes(declared, used, keys.get("params"), problems)
    _exclude(keys.get("exclude"), params, problems)
    module = _module(keys.get("module"), file, problems)
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
        exclude=tuple(table(item, *SCALARS) for item in items(keys.get("exclude"))),
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
        dynamic=listed(keys.get("dynamic"), bool, type(None), default=(None,)),
        autocast=tuple(
            None if v is None else dtype_name(v) for v in listed(keys.get("autocast"), str, type(None), default=(None,))
        ),
        threads=listed(keys.get("threads"), int, type(None), default=(None,)),
        seed=scalar(keys.get("seed"), int),
        requires=_requires(keys.get("requires"), problems),
        compile=_compile(keys.get("compile"), problems),
        config=check_flags(keys.get("config"), problems),
        expect=_expect(keys.get("expect"), problems, "module" in keys),
        tolerance=parse_tolerance(keys.get("tolerance"), keys.get("return"), problems),
        strides=scalar(keys.get("strides"), str, default="significant"),
        ignore=table(keys.get("ignore"), str),
        timeout=_timeout(keys.get("timeout"), problems),
        memory=_memory(keys.get("memory"), problems),
        known=tuple(_entry(item, problems) for item in items(keys.get("known"))),
        axes=tuple(
            axis
            for key in keys
            for axis in (declared if key == "params" else [key])
            if key in ("params", "devices", *MODE_AXES)
        ),
        twin=tuple(dict.fromkeys(listed(keys.get("twin"), str))),
    )
    if case.twin:
        _check_twin(case, keys["twin"].span, problems)
    check_numpy(case, problems)
    if "grad" in keys:
        check_leaves(case, keys["grad"].span, problems)
    for item in case.inputs:
        if item.name in params:
            problems.error(
                item.span,
                f"a param and an input are called {item.name!r}, and ${item.name} is the input",
                "give one of them another name",
            )
    check_cotangents(case, keys.get("grad"), problems)
    if case.param_dtype is not None and case.param_dtype.startswith("$"):
        _check_param_dtype(case.param_dtype[1:], params, keys["param_dtype"].span, problems)
    # A file's defaults alone, which have neither, may go with cases that run backward.
    has_model = bool(case.chain) or case.module is not None
    if has_model and GRADIENTS in case.tolerance.by_place and all(grad.mode != "backward" for grad in case.grad):
        problems.warning(keys["tolerance"].span, "no gradients are compared here", "grad: backward compares them")
    return case


def _check_twin(case: Case, place: Span, problems: Problems) -> None:
    """Report a twin that would be the same program, or none. ``place`` is where ``twin:`` stands."""
    if case.has_python:
        problems.error(place, "a twin is made of a chain of torch's operators alone", "take twin: out")
    elif not has_place(case):
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


def _params(node: YamlNode | None, problems: Problems) -> dict[str, tuple[Any, ...]]:
    params: dict[str, tuple[Any, ...]] = {}
    limits = problems.limits
    for key, value in entries(node):
        name = str(key.value)
        if name in (*MODE_AXES, "devices"):
            problems.error(key.span, f"{name!r} cannot name a param", f"{name}: beside params: is an axis of its own")
            continue
        params[name] = listed(value, *SCALARS)
        for item in several(value):
            if isinstance(item, YamlScalar) and len(item.text) > limits.value_characters:
                problems.error(
                    item.span,
                    f"a value of a param has at most {limits.value_characters} characters, since ids show it",
                    limits.hint("value_characters"),
                )
    if node is not None and len(params) > limits.axes:
        problems.error(node.span, f"a case has at most {limits.axes} params, not {len(params)}", limits.hint("axes"))
    return params


def _exclude(node: YamlNode | None, params: Mapping[str, Any], problems: Problems) -> None:
    """A combination that names something else would leave nothing out."""
    for item in items(node):
        for key, _ in entries(item):
            if str(key.value) not in params:
                problems.error(
                    key.span, f"exclude: names {key.value!r}, which is no param", nearest(str(key.value), params)
                )


def _check_param_dtype(name: str, params: Mapping[str, tuple[Any, ...]], place: Span, problems: Problems) -> None:
    """Report a ``param_dtype:`` that refers to no param, or to one that holds something else than dtypes."""
    if name == "dtype":
        return
    if name not in params:
        problems.error(place, f"nothing is called {name!r}", nearest(name, [*params, "dtype"]))
    for value in params.get(name, ()):
        if dtype_name(value) not in FLOATING:
            problems.error(place, f"param {name!r} is {value!r}, and no floating dtype", "such as float32 or bfloat16")


def _module(node: YamlNode | None, file: str, problems: Problems) -> PythonModule | None:
    if node is None:
        return None
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
    keys = fields(node)
    if "torch" in keys:
        _range(keys["torch"], problems)
    return Requires(scalar(keys.get("torch"), str), listed(keys.get("device"), str), listed(keys.get("package"), str))


def _compile(node: YamlNode | None, problems: Problems) -> Compile:
    keys = fields(node)
    options = check_flags(keys.get("options"), problems, "torch._inductor.config.")
    fullgraph, mode = scalar(keys.get("fullgraph"), bool, default=False), scalar(keys.get("mode"), str)
    if node is not None and mode is not None and options:
        problems.warning(node.span, BOTH, "set the options in config:, by their full names")
    return Compile(fullgraph, mode, options, _timeout(keys.get("timeout"), problems))


def _expect(node: YamlNode | None, problems: Problems, has_module: bool) -> Expect:
    keys = fields(node)
    raises = None
    if "raises" in keys:
        raises_keys = fields(keys["raises"])
        raises = Raises(
            scalar(raises_keys.get("type"), str, default="Exception"), scalar(raises_keys.get("match"), str)
        )
        if raises.type and (hint := misspelt_exception(raises.type)):
            report = problems.warning if has_module else problems.error  # a module may have a class of its own
            report(raises_keys["type"].span, f"neither Python nor torch has an exception {raises.type!r}", hint)
        if "match" in raises_keys:
            # Python's own engine matches it, in the worker, in the time that the case has.
            _pattern(raises_keys["match"], problems, check_python_pattern)
    bounds = {key: scalar(keys.get(key), int) for key in ("graphs", "graph_breaks", "recompiles")}
    return Expect(raises, **bounds, constant=scalar(keys.get("constant"), bool, default=False))


def _pattern(node: YamlNode, problems: Problems, check: Callable[[str], None], prefix: str = "") -> None:
    """Report a regular expression that ``check`` does not take, and more of them than a file may have."""
    text: str = scalar(node, str)
    limits = problems.limits
    if len(text) > limits.pattern_characters:
        message = f"a regular expression has at most {limits.pattern_characters} characters, this one has {len(text)}"
        problems.error(node.span, message, limits.hint("pattern_characters"))
        return
    problems.patterns.add(text)
    if sum(map(len, problems.patterns)) > limits.total_pattern_characters:
        message = f"the regular expressions up to here have more than {limits.total_pattern_characters} characters"
        problems.error(node.span, message, limits.hint("total_pattern_characters"))
        return
    try:
        check(text)
    except PatternError as error:
        problems.error(node.span, f"{prefix}{error}", error.hint)


def _timeout(node: YamlNode | None, problems: Problems) -> float | None:
    if node is None:
        return None
    try:
        seconds = duration(scalar(node, str, *NUMBERS))
    except ValueError as error:
        return problems.refuse(None, node.span, str(error), "such as 60s or 2m")
    if seconds is not None and not 0 < seconds <= LONGEST_TIMEOUT:
        problems.error(node.span, "a timeout is more than 0 and at most a week", "such as 60s or 2m")
    return seconds


def _memory(node: YamlNode | None, problems: Problems) -> int | None:
    if node is None:
        return None
    try:
        size = parse_size(str(scalar(node, str, int)))
    except ValueError as error:
        return problems.refuse(None, node.span, str(error), "such as 2GiB")
    if size > MOST_MEMORY:
        problems.error(node.span, f"memory is at most {show_size(MOST_MEMORY)}", "such as 2GiB")
    return size


def _entry(item: YamlNode, problems: Problems) -> Known:
    keys = fields(item)
    texts = {
        key: scalar(keys.get(key), str)
        for key in ("stage", "error", "torch", "issue", "reason", "why", "review", "choice")
    }
    if texts["torch"] is not None:
        _range(keys["torch"], problems)
    if texts["error"] is not None:
        _pattern(keys["error"], problems, check_pattern, "error: ")
    _review(keys.get("review"), problems)
    return Known(
        item.span,
        stage=texts["stage"],
        oracle=listed(keys.get("oracle"), str),
        error=texts["error"],
        torch=texts["torch"],
        backend=listed(keys.get("backend"), str),
        device=listed(keys.get("device"), str),
        dtype=tuple(dtype_name(d) for d in listed(keys.get("dtype"), str)),
        platform=listed(keys.get("platform"), str),
        threads=listed(keys.get("threads"), int),
        params=table(keys.get("params"), *SCALARS),
        issue=texts["issue"],
        reason=texts["reason"],
        why=texts["why"] or "bug",
        sometimes=scalar(keys.get("sometimes"), bool, default=False),
        choice=texts["choice"],
        review=texts["review"],
    )


def _range(node: YamlNode, problems: Problems) -> None:
    if len(scalar(node, str)) > _LONGEST_RANGE:
        problems.error(
            node.span, f"torch: a range of versions has at most {_LONGEST_RANGE} characters", "such as >=2.7"
        )
        return
    try:
        parse_range(scalar(node, str))
    except ValueError as error:
        problems.error(node.span, f"torch: {error}")


def _review(review: YamlNode | None, problems: Problems) -> None:
    if review is None:
        return
    text = scalar(review, str)
    try:
        due = date.fromisoformat(text)
    except ValueError:
        problems.warning(
            review.span,
            f"review: is a date, and {text!r} is not",
            "write review: 2027-01-01; why: bug, by-design or noise says what kind of entry it is",
        )
        return
    if due < date.today():
        problems.warning(review.span, f"this entry was to be looked at again by {text}")


# --- tolerance: ---

OUTPUT, GRADIENTS = "output", "gradients"
"""Places that a tolerance may have of their own: an output is called as findings call it, such as ``output[1]``."""


def parse_tolerance(node: YamlNode | None, result: YamlNode | None, problems: Problems) -> Tolerance:
    """Read a tolerance, and report what a schema cannot say.

    ``result`` is what the model returns, which says which outputs there are. Raises Mistyped.
    """
    keys = fields(node)
    own = {name: fields(value) for name, value in keys.items() if isinstance(value, YamlMapping) and name != "values"}
    by_place = {name: _bounds(b) for name, b in own.items() if name == GRADIENTS or name.startswith(OUTPUT)}
    by_dtype = {"": _bounds(keys)} if "rtol" in keys or "atol" in keys else {}
    by_dtype |= {dtype_name(name): _bounds(bounds) for name, bounds in own.items() if name not in by_place}
    reasons = [scalar(part.get("reason"), str) for part in (keys, *own.values())]
    reason = "; ".join(dict.fromkeys(text for text in reasons if text)) or None
    _places(node, _outputs(result), problems)
    values, bound = _values(keys.get("values"))
    is_bounded = bound is not None or "" in by_dtype
    if node is not None and not reasons[0] and (is_bounded or not all(reasons[1:])):
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


def _outputs(result: YamlNode | None) -> list[str]:
    """How the outputs of a model are called that ``return:`` lists; none where it lists none."""
    if isinstance(result, YamlSequence):
        return [f"{OUTPUT}[{place}]" for place in range(len(result.items))]
    return [f"{OUTPUT}[{str(key.value)!r}]" for key, _ in entries(result)] if isinstance(result, YamlMapping) else []


def _places(node: YamlNode | None, outputs: list[str], problems: Problems) -> None:
    """Report tolerances of outputs that are not among ``outputs``, if anything is."""
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
    if item.kind not in ("tensor", "values"):
        return "a cotangent is a tensor with a shape: or values:"
    if not item.hidden:
        return "the model gets it too"
    if item.requires_grad:
        return "it requires a gradient itself"
    viewing = next((other.name for other in inputs if other.view_of == item.name), None)
    return "" if viewing is None else f"{viewing!r} is a view of it"


def _hint(name: str) -> str:
    return f"such as inputs: {{{name}: {{shape: [2, 3], hidden: true}}}}"
