"""Draws a chain of operators step by step. Each step runs on real tensors at once, so that what comes next knows shapes
and dtypes.

A family of operators is a function that takes a ``Chain`` and adds a step or two. A step that raises, or that leaves
the numbers that are wanted, is taken back, and another one is drawn.

What steps are made of (values, indices, sizes, functions) stands first, each as the format writes it and as Python
takes it.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from runner.worker.torch_private.dispatch import is_said_to_overlap

LARGEST = {torch.float16: 500.0, torch.bfloat16: 1e4, torch.float32: 1e5, torch.float64: 1e6, torch.complex64: 1e5,
           torch.complex128: 1e6}  # fmt: skip
"""The largest absolute value of a result, by dtype: what is larger drowns the rest in rounding, or overflows soon."""

WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

DTYPES = (*LARGEST, *WHOLE, torch.bool)
"""Of the values of a chain."""

ELEMENTS = 40_000  # of a result: chains are small, so that compiling costs more than running

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 33)


class RefusedStepError(Exception):
    """The step cannot be part of the chain."""


def require(condition: object, reason: str) -> None:
    """Raise RefusedStepError unless a condition of the step holds."""
    if not condition:
        raise RefusedStepError(reason)


@dataclass(eq=False)
class Value:
    """A name of the chain, and what it holds now: a tensor, or a number."""

    name: str
    data: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return tuple(self.data.shape)

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return int(self.data.ndim)

    @property
    def floating(self) -> bool:
        """Whether it is a tensor of floats."""
        return isinstance(self.data, torch.Tensor) and self.data.is_floating_point()

    def shares_memory(self, other: Value) -> bool:
        """Whether another value lies in the storage of this one, which is a tensor."""
        return isinstance(other.data, torch.Tensor) and (
            other.data.untyped_storage().data_ptr() == self.data.untyped_storage().data_ptr()
        )


@dataclass
class Index:
    """What stands in brackets: integers, slices, ``...``, None, and values."""

    parts: list[Any]

    def text(self) -> str:
        """As the format writes it."""
        return f"[{', '.join(map(self._part, self.parts))}]"

    @property
    def data(self) -> tuple[Any, ...]:
        """As Python takes it."""
        return tuple(part.data if isinstance(part, (Value, Size)) else part for part in self.parts)

    @staticmethod
    def _part(part: Any) -> str:
        if isinstance(part, slice):
            bounds = [part.start, part.stop, *([] if part.step is None else [part.step])]
            return ":".join("" if bound is None else str(bound) for bound in bounds)
        return "..." if part is Ellipsis else str(text_of(part))


@dataclass
class Size:
    """The length of a dimension of a value, which stays an expression where sizes change from call to call."""

    value: Value
    dim: int
    plus: int = 0

    @property
    def data(self) -> int:
        """The length now."""
        return int(self.value.data.shape[self.dim]) + self.plus

    def text(self) -> str:
        """As the format writes it."""
        more = f" {'+' if self.plus > 0 else '-'} {abs(self.plus)}" if self.plus else ""
        return f"${{{self.value.name}.shape[{self.dim}]{more}}}"


@dataclass
class Function:
    """A function of one or more tensors: the format's text, and the same in Python."""

    args: list[str]
    chain: list[Any]
    data: Callable[..., Any]


@dataclass
class Literal:
    """A tensor that is written out in the chain."""

    values: list[Any] | float
    dtype: torch.dtype

    @property
    def data(self) -> torch.Tensor:
        """The tensor."""
        return torch.tensor(self.values, dtype=self.dtype)


def find(name: str) -> Callable[..., Any]:
    """Return the function that an operator's name of the format means."""
    space, _, rest = name.partition(".")
    roots = {"torch": torch, "F": torch.nn.functional, "Tensor": torch.Tensor, "aten": torch.ops.aten,
             "operator": operator}  # fmt: skip
    member: Any = functools.reduce(getattr, rest.split("."), roots[space])
    return member if callable(member) else lambda tensor: getattr(tensor, rest)


def data_of(argument: Any) -> Any:
    """An argument as Python takes it."""
    if isinstance(argument, (list, tuple)):
        return [data_of(item) for item in argument]
    return argument.data if isinstance(argument, (Index, Value, Size, Function, Literal)) else argument


def text_of(argument: Any) -> Any:
    """An argument as the format writes it."""
    match argument:
        case torch.device():
            return "$device"
        case Value():
            return f"${argument.name}"
        case Size() | Index():
            return argument.text()
        case Function():
            return {"$fn": {"args": argument.args, "chain": argument.chain}}
        case Literal():
            return {"$tensor": argument.values, "dtype": str(argument.dtype)}
        case list() | tuple():
            return [text_of(item) for item in argument]
        case torch.dtype() | torch.memory_format():
            return str(argument)
        case _:
            return argument


def values_of(argument: Any) -> Iterator[Value]:
    """Every value that an argument reads."""
    match argument:
        case Value():
            yield argument
        case Size():
            yield argument.value
        case list() | tuple():
            for item in argument:
                yield from values_of(item)
        case Index():
            yield from values_of(argument.parts)


def run(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call an operator. Raises RefusedStepError for whatever it raises."""
    try:
        return find(name)(*data_of(args), **{key: data_of(value) for key, value in kwargs.items()})
    except Exception as error:
        raise RefusedStepError(f"{name}: {type(error).__name__}: {error}") from error


# --- the chain ---

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


class Chain:
    """A chain that is being drawn: inputs, steps, the values so far, and every choice that is made for it.

    Args:
        numbers: the generator of every choice.
        dtype: the dtype of the case.
        backward: whether some inputs ask for a gradient.
        dynamic: whether sizes change from call to call; ``n`` is their value in the first one.
        odd: whether inputs are laid out oddly more often.
        wild: whether results that are not finite may stay.
    """

    def __init__(
        self, numbers: random.Random, dtype: torch.dtype, backward: bool, dynamic: bool, odd: bool, wild: bool
    ) -> None:
        self.numbers, self.dtype = numbers, dtype
        self.backward, self.dynamic, self.odd, self.wild = backward, dynamic, odd, wild
        self.n = numbers.choice((6, 10, 11, 12, 14, 19)) if dynamic else -1
        self.inputs: dict[str, Any] = {}
        self.values: list[Value] = []
        self.used: set[str] = set()
        self.steps: list[Step] = []
        self.tags: list[str] = []
        self._into = self.steps
        self._count = 0

    # --- choices ---

    def one(self, *choices: Any) -> Any:
        """One of the choices."""
        return self.numbers.choice(choices)

    def add_one(self, *steps: Callable[[], Any]) -> Any:
        """Add one of the steps, each of which is added by a call. Gives what that call gives."""
        return self.numbers.choice(steps)()

    def chance(self, share: float) -> bool:
        """True in this share of all draws."""
        return self.numbers.random() < share

    def word(self, words: str) -> str:
        """One of the words of a text."""
        return self.numbers.choice(words.split())

    def integer(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        return self.numbers.randint(low, high)

    def integers(self, low: int, high: int, count: int) -> list[int]:
        """So many integers, each as ``integer`` gives it."""
        return [self.integer(low, high) for _ in range(count)]

    def divisor(self, size: int, *choices: int) -> int:
        """One of the choices that divide the size; 1 without one."""
        return self.numbers.choice([part for part in choices if size % part == 0] or [1])

    def number(self) -> float:
        """A float that every dtype holds exactly."""
        return self.numbers.choice((-2.5, -1.5, -0.75, -0.25, 0.125, 0.5, 1.25, 2.0, 3.0))

    def dim(self, value: Value) -> int:
        """One of the dimensions, counted from either end."""
        return self.integer(-value.ndim, value.ndim - 1)

    def dims(self, value: Value) -> Any:
        """One dimension or several."""
        if value.ndim > 1 and self.chance(0.4):
            return sorted(self.numbers.sample(range(value.ndim), self.integer(1, value.ndim)))
        return self.dim(value)

    def shape(self, low: int = 1, high: int = 3) -> list[Any]:
        """Sizes of a new input; some are ``n`` where the case is dynamic, and a few are 0."""
        sizes: list[Any] = [self.one(*SIZES) for _ in range(self.integer(low, high))]
        if self.chance(0.02) and sizes:
            sizes[self.integer(0, len(sizes) - 1)] = 0
        while len(sizes) > 1 and math.prod(max(1, size) for size in sizes) > 4000:
            sizes[sizes.index(max(sizes))] = self.integer(1, 6)
        if self.dynamic and sizes and self.chance(0.85):
            sizes[0 if self.chance(0.7) else -1] = self.n
        return sizes

    # --- values ---

    def input(
        self,
        shape: Sequence[int],
        dtype: torch.dtype | None = None,
        init: Any = None,
        grad: bool | None = None,
        plain: bool = False,
    ) -> Value:
        """Add an input of this shape. A ``plain`` one is contiguous."""
        kind = dtype or self.dtype
        letter = "x" if kind.is_floating_point or kind.is_complex else "b" if kind == torch.bool else "i"
        spec: dict[str, Any] = {"shape": [self._size(size) for size in shape]}
        if kind != self.dtype:
            spec["dtype"] = str(kind).removeprefix("torch.")
        if init is None and kind in WHOLE:
            init = {"randint": [0, 10] if kind == torch.uint8 else [-9, 10]}
        if init is not None:
            spec["init"] = init
        value = Value(f"{letter}{self._next()}", self._fill(list(shape), kind, init))
        if self.backward and kind.is_floating_point and (self.chance(0.7) if grad is None else grad):
            spec["requires_grad"] = True
            value.data.requires_grad_()
        if not plain and len(shape) and self.chance(0.5 if self.odd else 0.06):
            value.data = self._lay_out(spec, list(shape), value.data, kind)
        self.inputs[value.name] = spec["shape"] if len(spec) == 1 else spec
        self.values.append(value)
        return value

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _size(self, size: int) -> Any:
        if self.dynamic and size and not isinstance(size, bool):
            texts = {self.n: "${n}", self.n + 1: "${n + 1}", self.n - 1: "${n - 1}", 2 * self.n: "${2 * n}"}
            return texts.get(size, size)
        return size

    @staticmethod
    def _fill(shape: list[int], dtype: torch.dtype, init: Any) -> torch.Tensor:
        if init is None:
            return torch.rand(shape) > 0.5 if dtype == torch.bool else torch.randn(shape).to(dtype)
        [(word, arguments)] = init.items()
        if word == "full":
            return torch.full(shape, arguments, dtype=dtype)
        low, high = arguments
        if word == "randint":
            return torch.randint(low, high, shape).to(dtype)
        return (torch.rand(shape) * (high - low) + low).to(dtype)

    def _lay_out(self, spec: dict[str, Any], shape: list[int], data: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Give the input strides of another kind: transposed, with gaps, or expanded. Its shape stays."""
        rank, base = len(shape), [*shape]
        name, arguments = "operator.getitem", list[Any]()
        match self.one("permute", "permute", "step", "expand", "offset"):
            case "permute" if rank > 1:
                order = self.numbers.sample(range(rank), rank)
                base = [shape[order.index(dim)] for dim in range(rank)]
                name, arguments = ("torch.permute", [order]) if rank > 2 or order != [1, 0] else ("Tensor.t", [])
            case "step" if not self.dynamic:
                base[-1] = 2 * shape[-1]
                arguments = [Index([Ellipsis, slice(None, None, 2)])]
            case "offset" if not self.dynamic:
                base[0] = shape[0] + 1
                arguments = [Index([slice(1, None)])]
            case "expand" if not self.dynamic and max(shape) > 1:
                base[self.one(*(dim for dim, size in enumerate(shape) if size > 1))] = 1
                name, arguments = "Tensor.expand", [list(shape)]
            case _:
                return data
        filled = self._fill(base, dtype, spec.get("init")).requires_grad_(data.requires_grad)
        spec.update(shape=[self._size(size) for size in base], layout=_layout(name, arguments))
        return run(name, [filled, *arguments], {})

    def pick(self, fits: Callable[[torch.Tensor], bool], fresh: float = 0.12) -> Value | None:
        """A value that fits, a late one rather than an early one; None without one, or by chance."""
        if self.chance(fresh):
            return None
        choices = [v for v in self.values if isinstance(v.data, torch.Tensor) and fits(v.data)]
        weights = [3 if v.name not in self.used else 1 for v in choices]
        weights = [weight * (1 + place) for place, weight in enumerate(weights)]
        return self.numbers.choices(choices, weights)[0] if choices else None

    def tensor(self, low: int = 0, high: int = 4, fresh: float = 0.12) -> Value:
        """A tensor with ``low`` to ``high`` dimensions, of any dtype."""
        return self.pick(lambda t: low <= t.ndim <= high, fresh) or self.input(
            self.shape(max(low, 1), max(1, min(high, 3)))
        )

    def real(self, low: int = 0, high: int = 4, fresh: float = 0.12) -> Value:
        """A floating tensor with ``low`` to ``high`` dimensions."""
        value = self.pick(lambda t: t.is_floating_point() and low <= t.ndim <= high, fresh)
        kind = self.dtype if self.dtype.is_floating_point else torch.float32
        return value or self.input(self.shape(max(low, 1), max(1, min(high, max(low, 3)))), kind)

    def whole(self, low: int = 0, high: int = 4, fresh: float = 0.12) -> Value:
        """An integer tensor."""
        kinds = (self.dtype,) if self.dtype in (torch.int32, torch.int64) else None
        kind = kinds[0] if kinds else self.one(torch.int64, torch.int32, torch.uint8)
        value = self.pick(lambda t: t.dtype in WHOLE and low <= t.ndim <= high, fresh)
        return value or self.input(self.shape(max(low, 1), max(1, min(high, 3))), kind)

    def like(self, value: Value, dtype: torch.dtype | None = None, same: bool = False) -> Value:
        """A tensor that broadcasts with ``value`` and has its dtype; of the ``same`` shape if asked for."""
        kind, sizes, alone = dtype or value.data.dtype, list(value.shape), self.chance(0.85)

        def fits(t: torch.Tensor) -> bool:
            return (
                not (t is value.data and alone)
                and t.dtype == kind
                and (not same or list(t.shape) == sizes)
                and t.ndim <= len(sizes)
                and all(a in (1, b) for a, b in zip(reversed(t.shape), reversed(value.shape), strict=False))
            )

        if other := self.pick(fits, 0.3):
            return other
        if not same and sizes and self.chance(0.35):
            sizes = [1 if self.chance(0.4) else size for size in sizes][self.integer(0, len(sizes) - 1) :]
        return self.input(sizes, kind)

    def index(self, shape: Sequence[int], high: int, dtype: torch.dtype = torch.int64) -> Value:
        """An input of integers from 0 up to ``high``, without it."""
        require(high > 0, "nothing to index")
        return self.input(shape, dtype, {"randint": [0, high]}, plain=self.chance(0.8))

    def sizes(self, value: Value) -> list[Any]:
        """The sizes of a value as arguments: expressions where they change from call to call."""
        return [Size(value, dim) if self.dynamic else size for dim, size in enumerate(value.shape)]

    def view_input(self, base: Value, name: str, arguments: list[Any]) -> Value:
        """Add an input that is a view of the input ``base``."""
        value = Value(f"x{self._next()}", run(name, [base, *arguments], {}))
        self.inputs[value.name] = {"view_of": base.name, "layout": _layout(name, arguments)}
        self.values.append(value)
        self.used.add(base.name)
        return value

    def mask(self, value: Value) -> Value:
        """A bool tensor that broadcasts with ``value``."""
        if self.chance(0.5):
            return self.like(value, torch.bool)
        name = self.one("torch.gt", "torch.le", "operator.ge", "operator.lt", "torch.ne")
        return self.call(name, value, self.one(0, 1, -1))  # type: ignore[no-any-return]

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
        require(out == 1 or len(result) == out, f"{operator_name} gave another number of values")
        values = self._add(self._write(operator_name, args, kwargs), result, several=out > 1)
        return values if out > 1 else values[0]

    def call_any(self, operator_name: str, *args: Any, **kwargs: Any) -> None:
        """Add a step that makes one value or several, as many as there are, and run it. Raises RefusedStepError."""
        result = run(operator_name, args, kwargs)
        several = isinstance(result, (list, tuple))
        require(not several or 1 <= len(result) <= PARTS, "too many values, or none")
        self._add(self._write(operator_name, args, kwargs), result, several)

    def _add(self, step: Step, result: Any, several: bool) -> tuple[Value, ...]:
        """Add a step that makes a value, or ``several`` under a name each. Raises RefusedStepError."""
        values = tuple(Value(f"v{self._next()}", part) for part in (result if several else [result]))
        for value in values:
            if not any("empty" in word for word in step):  # it holds no numbers yet
                self._check(value.data)
        self._into.append({**step, "out": [value.name for value in values] if several else values[0].name})
        self.values += values
        return values

    def do(self, operator_name: str, target: Value, *args: Any, **kwargs: Any) -> Value:
        """Add a step that writes into ``target``, and run it. Raises RefusedStepError."""
        # Whether a value that shares the target's storage holds an element twice.
        overlaps = any(target.shares_memory(value) and is_said_to_overlap(value.data) for value in self.values)
        require(not (overlaps and self.chance(0.8)), "what a write through overlapping memory leaves is undefined")
        return self._do(operator_name, (target, *args), kwargs, target)

    def _do(self, operator_name: str, args: Sequence[Any], kwargs: dict[str, Any], target: Value) -> Value:
        run(operator_name, args, kwargs)
        self._check(target.data)
        self._into.append(self._write(operator_name, args, kwargs))
        return target

    def write_out(self, operator_name: str, args: Sequence[Any], target: Value) -> None:
        """Add a step that writes its result into ``target`` by ``out=``, and run it. Raises RefusedStepError."""
        self._do(operator_name, args, {"out": target}, target)

    def module(self, name: str, settings: list[Any], *args: Value) -> None:
        """Add a step that makes a module of ``torch.nn`` and calls it, and run it. Raises RefusedStepError."""
        try:
            result = getattr(torch.nn, name)(*settings).to(self.dtype).eval()(*[arg.data for arg in args])
        except Exception as error:
            raise RefusedStepError(f"{name}: {error}") from error
        self.used |= {arg.name for arg in args}
        self._add({f"nn.{name}": settings, "id": f"m{self._next()}", "call": text_of(args)}, result, several=False)

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
            require(isinstance(result, (bool, int, float, complex)) or callable(result), "no tensor and no number")
            return
        require(result.layout == torch.strided and result.dtype in DTYPES, "another layout or dtype")
        require(result.numel() <= ELEMENTS and result.ndim <= 5, "too large")
        data = result.detach()
        if self.wild or not data.numel() or data.dtype == torch.bool:
            return
        require(data.dtype in WHOLE or data.isfinite().all(), "not finite")
        require(not (data.abs() > LARGEST.get(data.dtype, 2**24)).any(), "too large a value")

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
            ends.append(self.one(*tensors))
        self.numbers.shuffle(ends)
        return ends


def _layout(name: str, arguments: list[Any]) -> list[Any]:
    return [{name: ["$_", *text_of(arguments)]} if arguments else name]
