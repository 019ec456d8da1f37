"""One case: a checked YAML mapping (with the file's defaults under it) to a frozen ``Case``."""

from __future__ import annotations

import re
from collections.abc import Mapping as Map
from datetime import date
from typing import Any

from runner.diagnostics import nearest
from runner.spec.beside import beside
from runner.spec.flags import check_flags
from runner.spec.inputs import dtype_name, parse_inputs
from runner.spec.kernels import constant_axes, launched
from runner.spec.limits import parse_size
from runner.spec.model import (
    DTYPES,
    Call,
    Case,
    Compile,
    Expect,
    Grad,
    Kernel,
    Known,
    PythonModule,
    Raises,
    Requires,
    Tolerance,
)
from runner.spec.problems import Problems
from runner.spec.source import Mapping, Node, Scalar, Sequence
from runner.spec.steps import parse_chain
from runner.spec.values import is_name, parse_value
from runner.spec.versions import parse_range

MODE_AXES = ("train", "grad", "dynamic", "autocast", "threads")
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?")
_NO_PATTERN = (re.error, RecursionError, OverflowError)
_UNIT = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_case(node: Mapping, file: str, problems: Problems, kernels: Map[str, Kernel | None] | None = None) -> Case:
    """The case of a mapping that passed its schema. What a schema cannot say is reported to ``problems``.

    ``kernels`` are those that the file declares.
    """
    keys = dict((str(key.value), value) for key, value in node.entries)
    name = keys["name"]
    assert isinstance(name, Scalar)
    dtypes = tuple(dtype_name(v) for v in _list(keys.get("dtypes"), ("float32",)))
    for dtype in dtypes:
        if dtype not in DTYPES:
            problems.error(
                keys["dtypes"].span,
                f"torch has no dtype {dtype!r}",
                nearest(dtype, DTYPES) or "such as float32, int64, bool",
            )
    params, axes = _params(keys.get("params"), problems)
    chain = parse_chain(keys.get("chain"), problems)
    used = launched(chain, kernels or {}, problems)
    params = constant_axes(params, used, keys.get("params"), problems)
    _exclude(keys.get("exclude"), params, problems)
    module = _module(keys.get("module"), file, problems)
    if module is None and "chain" not in keys:
        problems.error(name.span, f"case {name.value!r} has neither a chain nor a module", "such as chain: [F.relu]")
    if module is not None and "chain" in keys:
        problems.error(keys["chain"].span, "a case has a chain or a module, not both")
    result = keys.get("return")
    return Case(
        name=str(name.value),
        file=file,
        span=name.span,
        doc=str(_plain(keys.get("doc"), "")),
        tags=tuple(_list(keys.get("tags"), ())),
        links=tuple(_list(keys.get("links"), ())),
        params=params,
        exclude=tuple(_list(keys.get("exclude"), ())),
        inputs=parse_inputs(keys.get("inputs"), problems),
        state=parse_inputs(keys.get("state"), problems, "state"),
        chain=chain,
        result=None if result is None else parse_value(result, problems),
        module=module,
        kernels=used,
        calls=_calls(keys.get("calls"), problems),
        dtypes=dtypes,
        devices=tuple(str(d) for d in _list(keys.get("devices"), ("cpu",))),
        param_dtype=dtype_name(_plain(keys["param_dtype"], None)) if "param_dtype" in keys else None,
        train=tuple(_list(keys.get("train"), (False,))),
        grad=tuple(_grad(v) for v in _list(keys.get("grad"), ("forward",))),
        dynamic=tuple(_list(keys.get("dynamic"), (None,))),
        autocast=tuple(None if v in (None, False) else dtype_name(v) for v in _list(keys.get("autocast"), (None,))),
        threads=tuple(_list(keys.get("threads"), (None,))),
        requires=_requires(keys.get("requires")),
        compile=_compile(keys.get("compile"), problems),
        config=check_flags(keys.get("config"), problems),
        expect=_expect(keys.get("expect"), problems),
        tolerance=_tolerance(keys.get("tolerance"), problems),
        ignore=dict(_plain(keys.get("ignore"), {})),
        timeout=duration(_plain(keys.get("timeout"), None)),
        memory=_memory(keys.get("memory"), problems),
        known=_known(keys.get("known"), problems),
        axes=tuple(
            axis
            for key in keys
            for axis in (axes if key == "params" else [key])
            if key in ("params", "devices", *MODE_AXES)
        ),
    )


def with_defaults(node: Mapping, *defaults: Node | None) -> Mapping:
    """The mapping with every key of ``defaults`` that it lacks; earlier defaults win."""
    have = set(node.keys())
    extra: list[tuple[Scalar, Node]] = []
    for default in defaults:
        if isinstance(default, Mapping):
            for key, value in default.entries:
                if str(key.value) not in have:
                    have.add(str(key.value))
                    extra.append((key, value))
    return Mapping((*node.entries, *extra), node.span) if extra else node


def duration(value: Any) -> float | None:
    """Seconds of ``60s``, ``2m``, ``90``; None stays None. Raises ValueError for anything else."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = _SECONDS.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"{value!r} is no duration, such as 60s or 2m")
    return float(match[1]) * _UNIT[match[2]]


def _plain(node: Node | None, otherwise: Any) -> Any:
    return otherwise if node is None else node.plain()


def _list(node: Node | None, otherwise: tuple[Any, ...]) -> list[Any]:
    """A list, or one value standing for a list of one."""
    if node is None:
        return list(otherwise)
    return node.plain() if isinstance(node, Sequence) else [node.plain()]


def _params(node: Node | None, problems: Problems) -> tuple[dict[str, tuple[Any, ...]], list[str]]:
    params: dict[str, tuple[Any, ...]] = {}
    if isinstance(node, Mapping):
        for key, value in node.entries:
            name = str(key.value)
            if name in (*MODE_AXES, "devices"):
                problems.error(
                    key.span, f"{name!r} cannot name a param", f"{name}: beside params: is an axis of its own"
                )
            else:
                params[name] = tuple(_list(value, ()))
    return params, list(params)


def _exclude(node: Node | None, params: Map[str, Any], problems: Problems) -> None:
    """A combination that names something else would leave nothing out."""
    for item in node.items if isinstance(node, Sequence) else ():
        for key, _ in item.entries if isinstance(item, Mapping) else ():
            if str(key.value) not in params:
                problems.error(
                    key.span, f"exclude: names {key.value!r}, which is no param", nearest(str(key.value), params)
                )


def _grad(value: Any) -> Grad:
    if isinstance(value, dict):
        return Grad("backward", value.get("cotangent", "seeded"), value.get("order", 1))
    return Grad({False: "off", True: "backward"}.get(value, value))


def _calls(node: Node | None, problems: Problems) -> tuple[Call, ...]:
    calls = []
    if isinstance(node, Sequence):
        for item in node.items:
            if isinstance(item, Mapping):
                calls.append(
                    Call(_plain(item.get("params"), {}), parse_inputs(item.get("inputs"), problems), item.span)
                )
    return tuple(calls)


def _module(node: Node | None, file: str, problems: Problems) -> PythonModule | None:
    if not isinstance(node, Mapping):
        return None
    name, path, args = node.get("name"), node.get("file"), node.get("args")
    if not isinstance(path, Scalar) or not isinstance(name, Scalar):
        return None
    if not is_name(str(name.value), frozenset()):
        problems.error(name.span, f"{name.value!r} is no name of a class")
    entries = args.entries if isinstance(args, Mapping) else ()
    for key, _ in entries:
        if not is_name(str(key.value), frozenset()):
            problems.error(key.span, f"{key.value!r} is no keyword argument", "keywords are Python names")
    pairs = tuple((str(k.value), parse_value(v, problems)) for k, v in entries)
    full = beside(path, file, problems)
    if full is None:
        return None
    return PythonModule(str(full), str(name.value), pairs, node.span)


def _requires(node: Node | None) -> Requires:
    if not isinstance(node, Mapping):
        return Requires()
    return Requires(
        _plain(node.get("torch"), None), tuple(_list(node.get("device"), ())), tuple(_list(node.get("package"), ()))
    )


def _compile(node: Node | None, problems: Problems) -> Compile:
    if not isinstance(node, Mapping):
        return Compile()
    options = check_flags(node.get("options"), problems, "torch._inductor.config.")
    return Compile(bool(_plain(node.get("fullgraph"), False)), _plain(node.get("mode"), None), options)


def _expect(node: Node | None, problems: Problems) -> Expect:
    if not isinstance(node, Mapping):
        return Expect()
    raises = node.get("raises")
    wanted = None
    if isinstance(raises, Scalar):
        wanted = Raises(str(raises.value))
    elif isinstance(raises, Mapping):
        match = raises.get("match")
        wanted = Raises(str(_plain(raises.get("type"), "Exception")), _plain(match, None))
        if match is not None:
            _pattern(match, problems)
    numbers = {key: _plain(node.get(key), None) for key in ("graphs", "graph_breaks", "recompiles")}
    return Expect(wanted, **numbers)


def _pattern(node: Node, problems: Problems) -> None:
    try:
        re.compile(str(node.plain()))
    except _NO_PATTERN as error:
        problems.error(node.span, f"not a regular expression: {error}")


def _tolerance(node: Node | None, problems: Problems) -> Tolerance:
    if not isinstance(node, Mapping):
        return Tolerance()
    plain = node.plain()
    by_dtype: dict[str, tuple[float | None, float | None]] = {}
    if "rtol" in plain or "atol" in plain:
        by_dtype[""] = (plain.get("rtol"), plain.get("atol"))
    for key, value in plain.items():
        if isinstance(value, Map):
            by_dtype[dtype_name(key)] = (value.get("rtol"), value.get("atol"))
            if dtype_name(key) not in DTYPES:
                problems.error(node.span, f"torch has no dtype {key!r}", nearest(key, DTYPES))
    bounds = [value for value in plain.values() if isinstance(value, Map)]
    reasons = [plain.get("reason"), *(bound.get("reason") for bound in bounds)]
    reason = "; ".join(dict.fromkeys(str(r) for r in reasons if r)) or None
    if not plain.get("reason") and ("" in by_dtype or not all(bound.get("reason") for bound in bounds)):
        problems.error(node.span, "a tolerance needs a reason", 'such as {rtol: 1e-4, reason: "a sum of 10^6 terms"}')
    return Tolerance(by_dtype, bool(plain.get("exact", False)), reason)


def _memory(node: Node | None, problems: Problems) -> int | None:
    if node is None:
        return None
    try:
        return parse_size(str(node.plain()))
    except ValueError as error:
        problems.error(node.span, str(error), "such as 2GiB")
        return None


def _known(node: Node | None, problems: Problems) -> tuple[Known, ...]:
    entries = []
    if isinstance(node, Sequence):
        for item in node.items:
            if isinstance(item, Mapping):
                entries.append(_entry(item, problems))
    return tuple(entries)


def _entry(item: Mapping, problems: Problems) -> Known:
    plain = item.plain()
    if not plain.get("issue") and not plain.get("reason"):
        problems.error(
            item.span, "a known: entry needs an issue, or a reason why there is none", "such as issue: https://..."
        )
    for key, check in (("torch", parse_range), ("error", re.compile)):
        if plain.get(key) is not None:
            try:
                check(str(plain[key]))
            except (ValueError, *_NO_PATTERN) as error:
                problems.error(item.get(key).span, f"{key}: {error}")  # type: ignore[union-attr]
    _review(item, problems)
    return Known(
        item.span,
        stage=plain.get("stage"),
        oracle=_several(item, "oracle"),
        error=plain.get("error"),
        torch=plain.get("torch"),
        backend=_several(item, "backend"),
        device=_several(item, "device"),
        dtype=tuple(dtype_name(d) for d in _several(item, "dtype")),
        platform=_several(item, "platform"),
        threads=_several(item, "threads"),
        params=plain.get("params", {}),
        issue=plain.get("issue"),
        reason=plain.get("reason"),
        why=plain.get("why", "bug"),
        review=plain.get("review"),
    )


def _several(item: Mapping, key: str) -> tuple[Any, ...]:
    return tuple(_list(item.get(key), ()))


def _review(item: Mapping, problems: Problems) -> None:
    review = item.get("review")
    if review is None:
        return
    text = str(review.plain())
    try:
        due = date.fromisoformat(text)
    except ValueError:
        hint = "write review: 2027-01-01; why: bug, by-design or noise says what kind of entry it is"
        problems.warning(review.span, f"review: is a date, {text!r} is none", hint)
        return
    if due < date.today():
        problems.warning(review.span, f"this entry was to be looked at again by {text}")
