"""A graph that somebody else made: what Dynamo hands to a backend, or what a text in a foreign format says.

A worker captures graphs, and importers read them. Control writes both as cases. Arguments are plain data as the YAML
format writes them, such as ``$x``, ``"[:, 0]"`` or ``torch.float16``, so that nobody translates them twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

Role = Literal["input", "parameter", "buffer", "constant"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's metadata. ``shape`` and ``stride`` are in elements, ``dtype`` goes without ``torch.``.

    Tensors of one graph with the same ``storage`` share memory. ``dynamic`` are the dimensions whose sizes vary from
    call to call. ``leaf`` is False where an operator made the tensor, so that it may be written in place although it
    requires a gradient.
    """

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...] | None = None  # None is contiguous
    offset: int = 0
    device: str = "cpu"
    requires_grad: bool = False
    storage: int | None = None
    dynamic: tuple[int, ...] = ()
    leaf: bool = True


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of the elements of a real tensor. ``zeros`` is the share of zeros, from 0 to 1; ``distinct`` says whether every
    element is another one, ``ascending`` whether along the last dimension none is less than the one before. ``init`` is
    how elements are drawn where the other numbers say too little, as the format writes it.

    NaN and infinities are left out, and ``finite`` is False where there are any. A tensor without elements has none.
    """

    least: float
    largest: float
    mean: float
    deviation: float
    zeros: float = 0.0
    finite: bool = True
    distinct: bool = False
    ascending: bool = False
    init: str = ""


@dataclass(frozen=True, slots=True)
class GraphInput:
    """What a graph is called with. It has a ``tensor``, or a Python value as plain data.

    ``origin`` is how the model names it, such as ``self.layer.weight``. ``values`` are those of a small tensor that
    decides, such as a constant or an index. ``file`` names a safetensors file that holds its values, with the key
    ``key``. ``fault`` says why the format cannot make it.
    """

    name: str
    tensor: Tensor | None = None
    python: Any = None
    role: Role = "input"
    origin: str = ""
    statistics: Statistics | None = None
    values: Any = None
    file: str = ""
    key: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that a call takes: the name of the value, what it is there, and its elements' statistics.

    ``values`` are those of a small tensor that decides.
    """

    name: str
    tensor: Tensor
    statistics: Statistics | None = None
    values: Any = None


@dataclass(frozen=True, slots=True)
class Call:
    """One operator with its arguments, under its name in the YAML format.

    ``positional`` and ``keywords`` are plain data of the format. ``operands`` are the tensors among them, in order.
    ``results`` are the tensors that it gives, ``several`` in a list or tuple. ``numbers`` has the values, in this run,
    of the names among the arguments that are numbers. ``contexts`` are those that are entered around it, from the
    outside, as entries of ``with:``. ``fault`` says why the format cannot write it; ``operator`` is then as torch names
    it.
    """

    name: str
    operator: str
    positional: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    operands: tuple[Operand, ...] = ()
    results: tuple[Tensor, ...] = ()
    several: bool = False
    numbers: Mapping[str, Any] = field(default_factory=dict)
    contexts: tuple[Any, ...] = ()
    module: tuple[str, ...] = ()  # the submodules around it, from the outside: "encoder.layer.0 BertLayer"
    source: str = ""  # where the model calls it: "modeling_bert.py:251: x = self.dense(x)"
    count: int = 1  # how often the graph, or the log, has this call
    fault: str = ""


LOST = "not kept: "
"""How a note begins that tells of a setting of the model's compiler which no case has."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Calls in order over inputs. ``result`` is plain data of the format, over names.

    ``grad`` says whether the graph ran with gradients: its outputs were then differentiated, or could have been.
    ``compile`` and ``config`` are what the model's compiler was told, as a case has them: its mode, and torch's flags.
    """

    name: str
    origin: str  # the model, or the file and line
    inputs: tuple[GraphInput, ...] = ()
    calls: tuple[Call, ...] = ()
    result: Any = None
    train: bool = False
    grad: bool = False
    autocast: str | None = None  # around the whole graph
    dynamic: bool | None = None
    compile: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the graph as a plain dict."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Graph:
        """Return the graph of a plain dict.

        Raises:
            TypeError: a key is unknown, or one without a default is missing.
        """
        values = _known(Graph, data)
        values["inputs"] = tuple(_input(item) for item in data.get("inputs", ()))
        values["calls"] = tuple(_call(item) for item in data.get("calls", ()))
        return Graph(**values)


def arguments_of(positional: Iterable[Any], keywords: Mapping[str, Any]) -> Any:
    """Return the arguments of a call as a step of the format holds them: a list, or a mapping with ``"*"``."""
    values = list(positional)
    return ({"*": values} if values else {}) | dict(keywords) if keywords else values


class UnsayableError(Exception):
    """What the format cannot write, and why."""


def index_text(value: Any, reference: Callable[[Any], str | None]) -> str:
    """Return an index as the text in brackets of the format, such as ``[:, $i, -1]``.

    Args:
        value: an entry, or a tuple of them; an empty tuple takes all of the tensor.
        reference: returns how a value of the graph is written, and None for anything else.

    Raises:
        UnsayableError: the format has no such index.
    """

    def entry(part: Any) -> str:
        written = reference(part)
        if written is not None:
            return written
        match part:
            case slice():
                parts = ["" if bound is None else entry(bound) for bound in (part.start, part.stop, part.step)]
                return ":".join(parts if parts[2] else parts[:2])
            case list() if all(type(item) is int for item in part):
                return str(part)
            case None | bool() | int():
                return str(part)
        if part is ...:
            return "..."
        raise UnsayableError(f"an index holds a {type(part).__name__}")

    entries = value if isinstance(value, tuple) else (value,)
    return f"[{', '.join(map(entry, entries))}]" if entries else "[...]"


@dataclass(frozen=True, slots=True)
class Break:
    """A graph break: why Dynamo stopped, and where in the model."""

    reason: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Capture:
    """All that was captured of one model, or read from one file. ``seconds`` is what it took."""

    model: str
    graphs: tuple[Graph, ...] = ()
    breaks: tuple[Break, ...] = ()
    notes: tuple[str, ...] = ()  # what could not be captured, for people
    torch: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the capture as a plain dict."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Capture:
        """Return the capture of a plain dict.

        Raises:
            TypeError: a key is unknown, or one without a default is missing.
        """
        values = _known(Capture, data)
        values["graphs"] = tuple(Graph.from_json(item) for item in data.get("graphs", ()))
        values["breaks"] = tuple(Break(**item) for item in data.get("breaks", ()))
        values["notes"] = tuple(data.get("notes", ()))
        return Capture(**values)


def _known(of: type, data: Mapping[str, Any]) -> dict[str, Any]:
    unknown = data.keys() - {item.name for item in fields(of)}
    if unknown:
        raise TypeError(f"{of.__name__} has no {min(unknown)!r}")
    return dict(data)


def _with_tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if type(value) is list else value for name, value in data.items()}


def _tensor(data: Mapping[str, Any] | None) -> Tensor | None:
    if data is None:
        return None
    return Tensor(**_with_tuples(_known(Tensor, data)))


def _tensors(data: Iterable[Mapping[str, Any]]) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in map(_tensor, data) if tensor is not None)


def _statistics(data: Mapping[str, Any] | None) -> Statistics | None:
    return None if data is None else Statistics(**data)


def _input(data: Mapping[str, Any]) -> GraphInput:
    values = _known(GraphInput, data)
    values.update(tensor=_tensor(data.get("tensor")), statistics=_statistics(data.get("statistics")))
    return GraphInput(**values)


def _operand(data: Mapping[str, Any]) -> Operand:
    (tensor,) = _tensors([_known(Operand, data)["tensor"]])
    return Operand(data["name"], tensor, _statistics(data.get("statistics")), data.get("values"))


def _call(data: Mapping[str, Any]) -> Call:
    values = _with_tuples(_known(Call, data))
    values["operands"] = tuple(map(_operand, data.get("operands", ())))
    values["results"] = _tensors(data.get("results", ()))
    return Call(**values)
