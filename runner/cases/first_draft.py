"""A case from the names of its operators and the shapes of its inputs, as plain data.

Signatures say which arguments an operator needs. A tensor that it needs becomes an input of the case; any other
argument must be given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.cases.operator_names import takes_tensor
from runner.cases.signatures import Argument, Signature, signatures_of
from runner.text import plural

_NAMES = "xyzwvutsrq"
_FLOATS = ("float", "bfloat", "complex")
_EXPECTED = {
    "int": "an integer", "ints": "integers such as [2, 2]", "float": "a number", "floats": "numbers such as [0.5, 2.0]",
    "number": "a number", "bool": "true or false", "text": "a text", "dtype": "a dtype such as torch.float16",
}  # fmt: skip


class DraftError(ValueError):
    """What was asked for makes no case; the message says what to add."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of an input, and its dtype where it is not that of the variant."""

    sizes: tuple[int, ...]
    dtype: str = ""


@dataclass(slots=True)
class _Inputs:
    """The inputs of a case, made as they are asked for. The last shape is that of all further ones."""

    shapes: Sequence[Shape]
    has_gradients: bool
    data: dict[str, Any] = field(default_factory=dict)

    def take(self) -> str:
        """A new input; a reference to it."""
        if len(self.data) == len(_NAMES):
            raise DraftError(f"a case from the command line has at most {len(_NAMES)} inputs")
        shape, name = self.shapes[min(len(self.data), len(self.shapes) - 1)], _NAMES[len(self.data)]
        is_leaf = self.has_gradients and (not shape.dtype or shape.dtype.startswith(_FLOATS))
        options: dict[str, Any] = {"dtype": shape.dtype} if shape.dtype else {}
        options |= {"requires_grad": True} if is_leaf else {}
        self.data[name] = {"shape": [*shape.sizes], **options} if options else [*shape.sizes]
        return f"${name}"

    @property
    def unused(self) -> int:
        """How many shapes no input has yet."""
        return max(len(self.shapes) - len(self.data), 0)


def draft_case(
    operators: Sequence[str],
    shapes: Sequence[Shape],
    arguments: Mapping[str, Any],
    dtypes: Sequence[str] = (),
    grad: bool = False,
    name: str = "",
) -> dict[str, Any]:
    """Return a case whose chain calls the operators one after the other.

    Args:
        operators: names as cases have them, at least one.
        shapes: of the inputs, in their order, at least one. Further inputs have the last one's.
        arguments: values by the names of arguments. Each goes to every operator that takes one so named.
        dtypes: of the case; none for its default.
        grad: whether gradients of all inputs of floats are compared.
        name: of the case; made of the operators if it is empty.

    Raises:
        DraftError: an operator needs an argument that is not given, or nothing takes one that is.
    """
    whole = [dtype for dtype in dtypes if not dtype.removeprefix("torch.").startswith(_FLOATS)]
    if grad and whole:
        raise DraftError(f"{whole[0]} has no gradients: leave --grad out, or give a dtype of floats")
    inputs = _Inputs(shapes, grad)
    used: set[str] = set()
    chain = [_step(operator, not number, inputs, arguments, used) for number, operator in enumerate(operators)]
    if idle := [name for name in arguments if name not in used]:
        raise DraftError(f"{' and '.join(operators)}: no argument {idle[0]!r}{_known(operators)}")
    if inputs.unused and inputs.data:
        raise DraftError(f"{len(shapes)} shapes are given, and the operators take {plural(len(inputs.data), 'tensor')}")
    return {
        "name": name or _name_of(operators),
        **({"inputs": inputs.data} if inputs.data else {}),
        "chain": chain,
        **({"grad": "backward"} if grad else {}),
        **({"dtypes": [*dtypes]} if dtypes else {}),
    }


def _name_of(operators: Sequence[str]) -> str:
    """The name of the case: the last words of the operators, in small letters."""
    words = (operator.removesuffix(".default").rpartition(".")[2] for operator in operators)
    name = "_".join(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word) for word in words)
    name = re.sub(r"[^a-z0-9]+", "_", name.lower())[:60].strip("_")
    return name if name[:1].isalpha() else f"case_{name}".rstrip("_")


def _known(operators: Sequence[str]) -> str:
    names = dict.fromkeys(
        argument.name for op in operators for signature in signatures_of(op) for argument in signature
    )
    return f"; there are {', '.join(names)}" if names else ""


def _step(operator: str, is_first: bool, inputs: _Inputs, arguments: Mapping[str, Any], used: set[str]) -> Any:
    """One step, which takes the value of the step before it, or the first inputs."""
    signature = _fitting(operator, arguments, len(inputs.shapes) if is_first else 1)
    taken = {parameter.name for parameter in signature} if signature is not None else {*arguments}
    given = {name: value for name, value in arguments.items() if name in taken}
    used |= {*given}
    if operator.startswith("nn."):
        return _module(operator, is_first, inputs, given)
    positional = [*_positional(operator, signature, is_first, inputs, given)]
    is_implied = len(positional) == 1 and positional[0] in ("$_", "$x")  # what a step takes by itself
    if is_implied and (not given or takes_tensor(operator)):
        return {operator: given} if given else operator
    if given and not positional:
        return {operator: given}
    return {operator: {"*": positional, **given} if given else positional}


def _positional(
    operator: str, signature: Signature | None, is_first: bool, inputs: _Inputs, given: dict[str, Any]
) -> Iterator[Any]:
    """The arguments by position: all that the operator needs. They are taken out of ``given``."""
    before = [] if is_first else ["$_"]

    def tensor() -> str:
        return before.pop() if before else inputs.take()

    if signature is None:  # nothing is known: it gets each shape that there is
        yield tensor()
        while is_first and inputs.unused:
            yield inputs.take()
        return
    for number, argument in enumerate(signature):
        if argument.is_optional or argument.is_keyword:
            return
        if argument.name in given:
            yield given.pop(argument.name)
        elif argument.kind == "tensors":
            yield [tensor(), *(inputs.take() for _ in range(max(inputs.unused, 1)))]
        elif _is_tensor(argument, number):
            yield tensor()


def _module(operator: str, is_first: bool, inputs: _Inputs, given: Mapping[str, Any]) -> Any:
    references = [inputs.take() for _ in inputs.shapes] if is_first else []
    call = {"call": references} if len(references) > 1 else {}
    return {operator: {**given}, **call} if given or call else operator


def _fitting(operator: str, arguments: Mapping[str, Any], tensors: int) -> Signature | None:
    """The signature that needs nothing more; of several that whose tensors are as many as there are. None if nothing is
    known of the operator.

    Raises DraftError where each needs more.
    """
    known = signatures_of(operator)
    if not known:
        return None
    is_module = operator.startswith("nn.")
    missing = {each: _missing(each, is_module, arguments) for each in known}
    fitting = [each for each in known if not missing[each]]
    if not fitting:
        first = min(missing.values(), key=len)[0]
        expected = f", {_EXPECTED[first.kind]}" if first.kind in _EXPECTED else ""
        raise DraftError(f"{operator} needs {first.name}{expected}: --arg {first.name}=VALUE")
    return min(fitting, key=lambda each: (_unknown(each, arguments), abs(_count(each, arguments) - tensors)))


def _unknown(signature: Signature, arguments: Mapping[str, Any]) -> int:
    return len({*arguments} - {argument.name for argument in signature})


def _count(signature: Signature, arguments: Mapping[str, Any]) -> int:
    needed = [a for n, a in enumerate(signature) if not a.is_optional and _is_tensor(a, n) and a.name not in arguments]
    return len(needed)


def _missing(signature: Signature, is_module: bool, arguments: Mapping[str, Any]) -> list[Argument]:
    return [
        argument
        for number, argument in enumerate(signature)
        if not argument.is_optional
        and argument.name not in arguments
        and (is_module or argument.is_keyword or not (_is_tensor(argument, number) or argument.kind == "tensors"))
    ]


def _is_tensor(argument: Argument, number: int) -> bool:
    """Whether an argument is a tensor: the first one is, where nobody wrote its kind."""
    return argument.kind == "tensor" or (argument.kind == "" and number == 0)
