"""Draws a chain of operators step by step. Each step runs on real tensors at once, so that what comes next knows shapes
and dtypes.

A family of operators is a function that takes a ``Chain`` and adds a step or two. A step that raises, or that leaves
the numbers that are wanted, is taken back, and another one is drawn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from runner.worker.generate.inputs import DTYPES, ELEMENTS, LARGEST, Inputs
from runner.worker.generate.values import RefusedStepError, Value, run, text_of, values_of
from runner.worker.torch_private.dispatch import is_said_to_overlap

Step = dict[str, Any]

Family = Callable[["Chain"], None]
CREATIONS = (
    "torch.arange", "torch.eye", "torch.full", "torch.linspace", "torch.scalar_tensor", "torch.tril_indices",
)  # fmt: skip
"""Operators that make a tensor of numbers alone: on the CPU, unless they name the device of the case."""

PARTS = 6
"""Values of one step, at most."""

FAMILIES: dict[str, tuple[int, Family]] = {}


def family(weight: int = 10) -> Callable[[Family], Family]:
    """Register a function as the family of its name. ``weight`` says how often it is drawn."""

    def register(function: Family) -> Family:
        FAMILIES[function.__name__.strip("_")] = weight, function
        return function

    return register


class Chain(Inputs):
    """A chain that is being drawn: inputs, steps, and the values so far."""

    def __init__(self, *settings: Any) -> None:
        """Take the settings of ``Inputs``."""
        super().__init__(*settings)
        self.steps: list[Step] = []
        self.tags: list[str] = []
        self._into = self.steps

    def mask(self, value: Value) -> Value:
        """A bool tensor that broadcasts with ``value``."""
        if self.chance(0.5):
            return self.like(value, torch.bool)
        name = self.one("torch.gt", "torch.le", "operator.ge", "operator.lt", "torch.ne")
        mask: Value = self.call(name, value, self.one(0, 1, -1))
        return mask

    def mask_of(self, value: Value) -> Value:
        """A bool tensor of the shape of ``value``."""
        return self.input(value.shape, torch.bool, plain=True) if self.chance(0.5) else self.call("torch.gt", value, 0)

    # --- steps ---

    def call(self, operator_name: str, *args: Any, out: int = 1, **kwargs: Any) -> Any:
        """Add a step that makes ``out`` values, and run it. Gives the value, or a tuple of several.

        Raises:
            RefusedStepError: it raised, or its result is not wanted.
        """
        if operator_name in CREATIONS:
            kwargs["device"] = torch.device("cpu")
        result = run(operator_name, args, kwargs)
        parts = list(result) if out > 1 else [result]
        if len(parts) != out:
            raise RefusedStepError(f"{operator_name} gave {len(parts)} values")
        values = self._add(self._write(operator_name, args, kwargs), parts, several=out > 1)
        return values if out > 1 else values[0]

    def call_any(self, operator_name: str, *args: Any, **kwargs: Any) -> None:
        """Add a step that makes one value or several, as many as there are, and run it. Raises RefusedStepError."""
        result = run(operator_name, args, kwargs)
        parts = list(result) if isinstance(result, (list, tuple)) else [result]
        if not 1 <= len(parts) <= PARTS:
            raise RefusedStepError(f"{len(parts)} values")
        self._add(self._write(operator_name, args, kwargs), parts, several=isinstance(result, (list, tuple)))

    def _add(self, step: Step, parts: Sequence[Any], several: bool) -> tuple[Value, ...]:
        """Add a step that makes these values, ``several`` under a name each. Raises RefusedStepError."""
        values = tuple(Value(f"v{self._next()}", part) for part in parts)
        for value in values:
            if not any("empty" in word for word in step):  # it holds no numbers yet
                self._check(value.data)
        self._into.append({**step, "out": [value.name for value in values] if several else values[0].name})
        self.values += values
        return values

    def do(self, operator_name: str, target: Value, *args: Any, **kwargs: Any) -> Value:
        """Add a step that writes into ``target``, and run it. Raises RefusedStepError."""
        if self._overlaps(target) and self.chance(0.8):
            raise RefusedStepError("what a write through overlapping memory leaves is undefined")
        run(operator_name, (target, *args), kwargs)
        self._check(target.data)
        self._into.append(self._write(operator_name, (target, *args), kwargs))
        return target

    def _overlaps(self, target: Value) -> bool:
        """Whether a value that shares the target's storage holds an element twice."""
        storage = target.data.untyped_storage().data_ptr()
        tensors = [value.data for value in self.values if isinstance(value.data, torch.Tensor)]
        return any(t.untyped_storage().data_ptr() == storage and is_said_to_overlap(t) for t in tensors)

    def write_out(self, operator_name: str, args: Sequence[Any], target: Value) -> None:
        """Add a step that writes its result into ``target`` by ``out=``, and run it. Raises RefusedStepError."""
        run(operator_name, args, {"out": target})
        self._check(target.data)
        self._into.append(self._write(operator_name, args, {"out": target}))

    def module(self, name: str, settings: list[Any], *args: Value) -> None:
        """Add a step that makes a module of ``torch.nn`` and calls it, and run it. Raises RefusedStepError."""
        try:
            result = getattr(torch.nn, name)(*settings).to(self.dtype).eval()(*[arg.data for arg in args])
        except Exception as error:
            raise RefusedStepError(f"{name}: {error}") from error
        self.used |= {arg.name for arg in args}
        step = {f"nn.{name}": settings, "id": f"m{self._next()}", "call": text_of(args)}
        self._add(step, [result], several=False)

    def split_graph(self) -> None:
        """Add a break of the graph."""
        self._into.append({"torch._dynamo.graph_break": []})

    @contextlib.contextmanager
    def block(self, contexts: list[Any], entered: contextlib.AbstractContextManager[Any]) -> Iterator[None]:
        """Steps that are drawn meanwhile stand in a ``with`` block."""
        outer, inner = self._into, list[Step]()
        self._into = inner
        try:
            with entered:
                yield
        finally:
            self._into = outer
        if inner:
            outer.append({"with": contexts, "chain": inner})

    def _write(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Step:
        self.used |= {value.name for value in values_of([*args, *kwargs.values()])}
        arguments: Any = text_of(args)
        if kwargs:
            arguments = {"*": arguments, **{key: text_of(value) for key, value in kwargs.items()}}
        elif len(arguments) == 1 and isinstance(arguments[0], str):
            arguments = arguments[0]
        return {name: arguments}

    def _check(self, result: Any) -> None:
        if not isinstance(result, torch.Tensor):
            if isinstance(result, (bool, int, float, complex)) or callable(result):
                return
            raise RefusedStepError(f"a {type(result).__name__}")
        if result.layout != torch.strided or result.dtype not in DTYPES:
            raise RefusedStepError("another layout or dtype")
        if result.numel() > ELEMENTS or result.ndim > 5:
            raise RefusedStepError("too large")
        data = result.detach()
        if self.wild or not data.numel() or data.dtype == torch.bool:
            return
        if (data.is_floating_point() or data.is_complex()) and not bool(data.isfinite().all()):
            raise RefusedStepError("not finite")
        if bool((data.abs() > LARGEST.get(data.dtype, 2**24)).any()):
            raise RefusedStepError("too large a value")

    def draw(self, name: str) -> bool:
        """Let a family add its steps; what it added is taken back if one of them is refused. Gives whether it stays."""
        stays = self.attempt(lambda: FAMILIES[name][1](self))
        self.tags += [name] if stays and name not in self.tags else []
        return stays

    def attempt(self, add: Callable[[], None]) -> bool:
        """Let a function add steps; what it added is taken back if one of them is refused. Gives whether it stays."""
        before = dict(self.inputs), len(self.steps), len(self.values), set(self.used), self._count
        try:
            add()
            if len(self.steps) > before[1]:
                return True
        except (RefusedStepError, IndexError, ValueError):  # nothing to choose from: a size of 0, no dimension
            pass
        self.inputs, self.used, self._count = before[0], before[3], before[4]
        del self.steps[before[1] :], self.values[before[2] :]
        return False

    def returned(self) -> list[Value]:
        """What the chain returns: everything that no step reads, and a few of the other values."""
        results = [value for value in self.values if value.name not in self.inputs and not callable(value.data)]
        ends = [value for value in results if value.name not in self.used]
        read = [value for value in results if value.name in self.used]
        ends += self.numbers.sample(read, min(len(read), self.one(0, 0, 1, 1, 2, 3) + (not ends)))
        tensors = [v for v in self.values if v.name in self.inputs and v.name in self.used]
        if tensors and self.chance(0.05):
            ends.append(self.numbers.choice(tensors))
        self.numbers.shuffle(ends)
        return ends
