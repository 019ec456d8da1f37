"""Signatures of torch's functions and methods: of Python's functions by their own, of others by the schemas of ATen."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import torch

REQUIRED = inspect.Parameter.empty
_SPACES = {"F": "torch.nn.functional", "nn": "torch.nn", "Tensor": "torch.Tensor", "aten": "torch.ops.aten"}
_ATEN = {"linalg": "linalg_", "special": "special_", "fft": "fft_", "masked": ""}
_KINDS = (("List[Tensor", "tensors"), ("List[Optional[Tensor", "tensors"), ("List[int]", "ints"), ("List[SymInt]", "ints"),
          ("List[float]", "floats"), ("Tensor", "tensor"), ("ScalarType", "dtype"), ("bool", "bool"), ("str", "text"),
          ("SymInt", "int"), ("int", "int"), ("float", "float"), ("number", "number"), ("Scalar", "number"))  # fmt: skip
"""Parts of a type's name in a schema, the first of which decides."""


@dataclass(frozen=True)
class Argument:
    """An argument of a signature. ``kind`` is empty where nobody wrote its type."""

    name: str
    kind: str
    default: Any = REQUIRED
    keyword_only: bool = False


Signature = tuple[Argument, ...]


def function_of(operator: str) -> Callable[..., Any] | None:
    """Return what an operator of the format calls, such as ``F.gelu``; None for what is no function of torch."""
    space, _, name = operator.partition(".")
    path = f"{_SPACES.get(space, space)}.{name}".removeprefix("torch.")
    if space not in (*_SPACES, "torch"):
        return None
    function = reduce(lambda module, part: getattr(module, part, None), path.split("."), torch)
    return function if callable(function) else None


@cache
def signatures(function: Callable[..., Any] | str) -> tuple[Signature, ...]:
    """Return the signatures of a function, of an operator of ATen, or of a method by its name; none where they are unknown."""
    if isinstance(function, str):
        return _of_schemas(f"aten::{function}")
    if isinstance(function, torch._ops.OpOverloadPacket):
        return _of_schemas(f"aten::{function.__name__}")
    if inspect.isfunction(function) or inspect.isclass(function):
        own = _of_python(function)
        if own:
            return (own,)
        name = getattr(function, "__name__", "")
        hidden = getattr(torch.nn.functional, f"_{name}", None)  # a function of boolean_dispatch
        return (_of_python(hidden),) if inspect.isfunction(hidden) and _of_python(hidden) else ()
    name = torch.jit._builtins._find_builtin(function)
    known = _of_schemas(name or f"aten::{getattr(function, '__name__', '')}")
    if inspect.ismethoddescriptor(function):  # a method has its tensor first: Tensor.polygamma(x, 1)
        return tuple(tuple(sorted(each, key=lambda argument: argument.name != "input")) for each in known)
    return known


def _of_python(function: Callable[..., Any]) -> Signature:
    """Return the signature of a function of Python; an empty one where it takes what it gets."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ()
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters):
        return ()
    return tuple(
        Argument(each.name, _kind_of(each), each.default, each.kind == each.KEYWORD_ONLY) for each in parameters
    )


def _kind_of(parameter: inspect.Parameter) -> str:
    text = parameter.annotation if isinstance(parameter.annotation, str) else str(parameter.annotation)
    text = text.replace("torch.", "").replace("BroadcastingList", "List[int]")
    if isinstance(parameter.default, bool):
        return "bool"
    return next((kind for part, kind in _KINDS if part.lower() in text.lower()), "")


def _of_schemas(name: str) -> tuple[Signature, ...]:
    schemas = torch._C._jit_get_schemas_for_operator(name)
    known = dict.fromkeys(_of_schema(schema) for schema in schemas if not schema.is_mutable or name[-1] == "_")
    of_tensors = tuple(each for each in known if any(argument.kind.startswith("tensor") for argument in each))
    return of_tensors or tuple(known)  # those of numbers alone are TorchScript's


def _of_schema(schema: Any) -> Signature:
    return tuple(
        Argument(
            "input" if each.name == "self" else each.name,
            "dtype" if each.name == "dtype" else next((kind for part, kind in _KINDS if part in str(each.type)), ""),
            _hashable(each.default_value) if each.has_default_value() else REQUIRED,
            each.kwarg_only,
        )
        for each in schema.arguments
    )


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def bind(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of a call by name; None where they do not fit the signature."""
    names = [argument.name for argument in signature if not argument.keyword_only]
    kinds = {argument.name: argument.kind for argument in signature}
    if len(args) > len(names) and names and kinds[names[-1]] == "ints":  # Tensor.permute(x, 1, 0)
        args = [*args[: len(names) - 1], list(args[len(names) - 1 :])]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    needed = {argument.name for argument in signature if argument.default is REQUIRED}
    if len(args) > len(names) or not needed <= given.keys() <= kinds.keys() or set(names[: len(args)]) & kwargs.keys():
        return None
    return given if all(_fits(kinds[name], value) for name, value in given.items()) else None


def _fits(kind: str, value: Any) -> bool:
    """Return whether a value may be an argument of a kind. Annotations in Python are loose: a number may be a list."""
    if value is None or kind == "":
        return True
    if isinstance(value, torch.Tensor):
        return kind in ("tensor", "tensors", "number", "int", "float")
    if isinstance(value, (str, bool)):
        return kind == ("text" if isinstance(value, str) else "bool") or (kind == "number" and isinstance(value, bool))
    return kind not in ("tensor", "text", "bool") and (kind != "tensors" or isinstance(value, (list, tuple)))


def bound(
    function: Callable[..., Any] | str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Signature, dict[str, Any]] | None:
    """Return the first signature that a call fits, with its arguments by name."""
    fitting: Iterator[tuple[Signature, dict[str, Any] | None]] = (
        (signature, bind(signature, args, kwargs)) for signature in signatures(function)
    )
    return next(((signature, given) for signature, given in fitting if given is not None), None)
