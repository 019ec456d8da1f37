"""A reader of spec and suite files, written from ``docs/reading-the-files.md`` with PyYAML alone: nothing of ``runner`` is used.

It yields the variants of a file: their ids, dtypes, devices and backends, the tensors of their inputs, and their tolerance.
It compares nothing. ``op:`` in a selection and tensors of files are not supported.
"""

from __future__ import annotations

import ast
import fnmatch
import itertools
import json
import math
import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Keys = dict[str, Any]

# --- YAML 1.2, core schema ---------------------------------------------------------------------

INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + word: math.inf for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}


def scalar(text: str) -> Any:
    """Return the value of a plain scalar."""
    if text in WORDS:
        return WORDS[text]
    if INT.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    return float(text) if FLOAT.fullmatch(text) else text


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML with these scalars in place of those of YAML 1.1."""

    yaml_implicit_resolvers: dict[str, Any] = {}


def _scalar(loader: Loader, node: yaml.ScalarNode) -> Any:
    return node.value if node.style else scalar(node.value)


Loader.add_constructor("tag:yaml.org,2002:str", _scalar)


def load(path: Path) -> Keys:
    """Return a file's mapping."""
    data: Keys = yaml.load(path.read_text(encoding="utf-8"), Loader)
    return data


# --- expansion ---------------------------------------------------------------------------------

MODES: Keys = {"train": False, "grad": "forward", "dynamic": None, "autocast": None, "threads": None}


@dataclass(frozen=True)
class Variant:
    """One case with every axis chosen. ``axes`` has the params too; ``keys`` are those of the case, with its defaults."""

    id: str
    keys: Keys
    axes: Keys
    dtype: str
    device: str
    backend: str

    def inputs(self) -> dict[str, Tensor]:
        """Return the tensors among the inputs, before their layouts."""
        return dict(_tensors(self.keys.get("inputs") or {}, self.axes, self.dtype))

    def tolerance(self, place: str = "output") -> tuple[float, float, bool]:
        """Return rtol, atol and whether bits must be equal, for values of the variant's dtype."""
        return tolerance(self.keys.get("tolerance") or {}, self.dtype, place)


def read(path: Path) -> list[Variant]:
    """Return the variants of a spec file or a suite, in order."""
    data = load(path)
    if path.name.endswith(".spec.yaml"):
        cases = list(_cases(data, path))
        launching = [any(text.startswith("triton.") for text in _texts(case.get("chain"))) for case, _, _ in cases]
        backends = ["triton", "triton-compiled"] if launching and all(launching) else ["inductor"]
        return [variant for case in cases for variant in _variants(*case, backends, {})]
    cases = list(_cases(data, path))
    for pattern in data.get("specs") or []:
        for spec in sorted(path.parent.glob(pattern)):
            cases += _cases(load(spec), spec, data.get("defaults") or {})
    backends = [
        item if isinstance(item, str) else item["name"] for item in _several(data.get("backends", ["inductor"]))
    ]
    selects = selection(data["select"], cases) if "select" in data else lambda variant: True
    return [variant for case in cases for variant in _variants(*case, backends, data) if selects(variant)]


Placed = tuple[Keys, Keys, Path]
"""A case with its defaults, the kernels of its file, and the file."""


def _cases(data: Keys, path: Path, *more: Keys) -> Iterator[Placed]:
    for case in data.get("cases") or []:
        merged: Keys = {}
        for keys in (case, data.get("defaults") or {}, *more):
            for key, value in keys.items():
                if key == "known" and key in merged:
                    merged[key] = [*merged[key], *(entry for entry in value if "choice" in entry)]
                merged.setdefault(key, value)
        yield merged, data.get("kernels") or {}, path


def _variants(case: Keys, kernels: Keys, path: Path, backends: list[str], suite: Keys) -> Iterator[Variant]:
    dtypes = [_dtype(name) for name in _several(case.get("dtypes", ["float32"]))]
    dtypes = [name for name in dtypes if name in map(_dtype, _several(suite.get("dtypes") or dtypes))]
    devices = _several(case.get("devices", ["cpu"]))
    devices = [name for name in devices if name in _several(suite.get("devices") or devices)]
    file = os.path.relpath(path.resolve(), Path.cwd())
    for axes, words in _combinations(case, kernels):
        if any(all(axes.get(key) == value for key, value in out.items()) for out in case.get("exclude") or []):
            continue
        for dtype, device, backend in itertools.product(dict.fromkeys(dtypes), dict.fromkeys(devices), backends):
            name = f"{file}::{case['name']}[{','.join([*words, dtype, device])}]@{backend}"
            yield Variant(name, case, axes, dtype, device, backend)


def _combinations(case: Keys, kernels: Keys) -> Iterator[tuple[Keys, list[str]]]:
    """Yield the values of all axes but the last three, and what the id says of them."""
    units: list[list[dict[str, Any]]] = []
    params = case.get("params") or {}
    for key, value in case.items():
        if key == "params":
            units += [[{name: item} for item in items] for name, items in value.items()]
        elif key == "zip":
            units += [
                [dict(zip(group, row, strict=True)) for row in zip(*group.values(), strict=True)]
                for group in _several(value)
            ]
        elif key in MODES:
            units.append([{key: _dtype(item) if key == "autocast" and item else item} for item in _several(value)])
    constants = {name: value for name, value in _launched(case, kernels).items() if name not in params}
    units += [[{name: item} for item in value] for name, value in constants.items()]
    several = {name for unit in units for name in unit[0] if len(unit) > 1}
    for parts in itertools.product(*map(_distinct, units)):
        axes = {name: value for part in parts for name, value in part.items()}
        words = [f"{name}={word(value, name)}" for name, value in axes.items() if name in several]
        yield {**MODES, **axes}, words


def _distinct(unit: list[Keys]) -> list[Keys]:
    return list(
        {json.dumps([word(value, name) for name, value in row.items()]): row for row in reversed(unit)}.values()
    )[::-1]


def _launched(case: Keys, kernels: Keys) -> Keys:
    """Return the constants with several values of the kernels that a chain launches."""
    names = dict.fromkeys(
        text.removeprefix("triton.") for text in _texts(case.get("chain")) if text.startswith("triton.")
    )
    constants = {
        f"{name}.{constant}": value
        for name in names
        for constant, value in (kernels[name].get("constants") or {}).items()
    }
    return {name: value for name, value in constants.items() if isinstance(value, list) and len(value) > 1}


def _texts(value: Any) -> Iterator[str]:
    """Yield every text of a chain, keys included."""
    if isinstance(value, str):
        yield value
    for item in value if isinstance(value, list) else [*value, *value.values()] if isinstance(value, dict) else []:
        yield from _texts(item)


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _dtype(name: str) -> str:
    return name.removeprefix("torch.")


# --- ids ---------------------------------------------------------------------------------------

PLAIN = re.compile(r"[A-Za-z0-9_.+/*<>=!$%^&|~-]+")


def word(value: Any, axis: str = "") -> str:
    """Return how an id writes a value of an axis."""
    if isinstance(value, dict):
        return _gradient(value) if axis == "grad" else _marks(value)
    if isinstance(value, list):
        return f"[{','.join(map(word, value))}]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if not isinstance(value, str):
        return str(value).replace("inf", ".inf").replace("nan", ".nan")
    return value if PLAIN.fullmatch(value) and isinstance(scalar(value), str) else json.dumps(value)


def _gradient(value: Keys) -> str:
    order, words = value.get("order", 1), _several(value.get("cotangent", "seeded"))
    if len(words) == 1 and words[0] and not words[0].startswith("$"):
        return "backward" if (words[0], order) == ("seeded", 1) else f"{words[0]}{order}"
    return f"given{''.join('-' + (name or '').removeprefix('$') for name in words)}{order}"


def _marks(value: Keys) -> str:
    parts = []
    for name, dimensions in value.items():
        ways = dimensions if isinstance(dimensions, dict) else {"dynamic": dimensions}
        for way, places in ways.items():
            parts.append(f"{name}:{'maybe' if way == 'maybe' else ''}[{','.join(map(str, _several(places)))}]")
    return f"{{{','.join(parts)}}}"


# --- selection ---------------------------------------------------------------------------------

Predicate = Callable[[Variant], bool]
TOKEN = re.compile(r"\s*(\(|\)|\"[^\"]*\"|'[^']*'|[^\s()]+)")
FIELDS: dict[str, Callable[[Variant], list[str]]] = {
    "tag": lambda variant: _several(variant.keys.get("tags") or []),
    "case": lambda variant: [variant.keys["name"]],
    "file": lambda variant: [variant.id.partition("::")[0]],
    "backend": lambda variant: [variant.backend],
    "device": lambda variant: [variant.device],
    "dtype": lambda variant: [variant.dtype],
}


def selection(text: str, cases: list[Placed]) -> Predicate:
    """Return what decides whether a variant is selected."""
    tokens = TOKEN.findall(text)

    def alternatives() -> Predicate:
        return joined("or", any, lambda: joined("and", all, term))

    def joined(name: str, joins: Callable[[Iterator[bool]], bool], part: Callable[[], Predicate]) -> Predicate:
        parts = [part()]
        while tokens and tokens[0] == name:
            tokens.pop(0)
            parts.append(part())
        return lambda variant: joins(each(variant) for each in parts)

    def term() -> Predicate:
        token = tokens.pop(0)
        if token == "not":
            inner = term()
            return lambda variant: not inner(variant)
        if token == "(":
            inner = alternatives()
            tokens.pop(0)
            return inner
        field, _, pattern = token.strip("\"'").partition(":")
        if field == "op":
            raise NotImplementedError("op: needs the names of torch's operators")
        if pattern and field in FIELDS:
            return lambda variant: any(fnmatch.fnmatchcase(value, pattern) for value in FIELDS[field](variant))
        part = token.strip("\"'").lower()
        return lambda variant: part in variant.id.lower()

    return alternatives()


# --- inputs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
    """What an input is before its layout."""

    shape: tuple[int, ...]
    dtype: str


def _tensors(inputs: Mapping[str, Any], axes: Keys, dtype: str) -> Iterator[tuple[str, Tensor]]:
    for name, item in inputs.items():
        keys = item if isinstance(item, dict) else {"shape": item}
        if "list" in keys or "dict" in keys:
            parts = keys["dict"].items() if "dict" in keys else enumerate(keys["list"])
            yield from _tensors({f"{name}[{place}]": part for place, part in parts}, axes, dtype)
        elif "shape" in keys or "values" in keys:
            yield name, _tensor(keys, axes, dtype)


def _tensor(keys: Keys, axes: Keys, dtype: str) -> Tensor:
    own = _dtype(evaluate(keys["dtype"], axes)) if "dtype" in keys else None
    shape: tuple[int, ...] = ()
    if "values" in keys:
        values = evaluate(keys["values"], axes)
        own = own or _dtype_of([*_numbers(values)], dtype)
        shape = (keys["tile"],) if "tile" in keys else _shape_of(values)
    if "shape" in keys:
        shape = tuple(evaluate(keys["shape"], axes))
    return Tensor(shape, own or dtype)


COMPLEX = re.compile(r"[-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|inf|nan)?(?:[-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|inf|nan))j")


def _dtype_of(numbers: list[Any], dtype: str) -> str:
    if any(isinstance(number, str) and COMPLEX.fullmatch(number) for number in numbers):
        return dtype if dtype.startswith("complex") else "complex64"
    if not numbers or any(isinstance(number, float) for number in numbers):
        return dtype
    return "bool" if all(isinstance(number, bool) for number in numbers) else "int64"


def _shape_of(values: Any) -> tuple[int, ...]:
    return (len(values), *(_shape_of(values[0]) if values else ())) if isinstance(values, list) else ()


def _numbers(values: Any) -> Iterator[Any]:
    for value in values if isinstance(values, list) else [values]:
        yield from _numbers(value) if isinstance(value, list) else [value]


OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.USub: operator.neg,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "len": len, "abs": abs}


def evaluate(value: Any, axes: Keys) -> Any:
    """Return a value with the params in it put in: ``$name``, ``$name[0]`` and ``${arithmetic}``."""
    if isinstance(value, list):
        return [evaluate(item, axes) for item in value]
    if isinstance(value, str) and value.startswith("$"):
        text = value[2:-1] if value.startswith("${") else value[1:]
        return _computed(ast.parse(text.strip(), mode="eval").body, axes)
    return value


def _computed(tree: ast.expr, axes: Keys) -> Any:
    match tree:
        case ast.Constant():
            return tree.value
        case ast.Name():
            return axes[tree.id]
        case ast.BinOp():
            return OPERATORS[type(tree.op)](_computed(tree.left, axes), _computed(tree.right, axes))
        case ast.UnaryOp():
            return OPERATORS[type(tree.op)](_computed(tree.operand, axes))
        case ast.Subscript():
            return _computed(tree.value, axes)[_computed(tree.slice, axes)]
        case ast.Call(func=ast.Name(id=name)):
            return FUNCTIONS[name](*(_computed(argument, axes) for argument in tree.args))
    raise NotImplementedError(ast.unparse(tree))


# --- tolerance ---------------------------------------------------------------------------------

DEFAULTS = {
    **dict.fromkeys(("float64", "complex128"), (1e-7, 1e-7)),
    **dict.fromkeys(("float32", "complex64"), (1.3e-6, 1e-5)),
    **dict.fromkeys(("float16", "complex32"), (1e-3, 1e-5)),
    "bfloat16": (1.6e-2, 1e-5),
}


def tolerance(keys: Keys, dtype: str, place: str) -> tuple[float, float, bool]:
    """Return rtol, atol and whether bits must be equal, of values of a dtype at a place such as ``output[1]``."""
    places = [key for key in keys if place == key or place.startswith((f"{key}[", f"{key}."))]
    dtypes = [key for key in keys if _dtype(key) == dtype]
    own = keys[max(places, key=len)] if places else keys[dtypes[0]] if dtypes else keys
    rtol, atol = DEFAULTS.get(dtype, (0.0, 0.0))
    exact = not places and (keys.get("exact", False) or keys.get("values") == "bitwise")
    return float(own.get("rtol", rtol)), float(own.get("atol", atol)), exact
