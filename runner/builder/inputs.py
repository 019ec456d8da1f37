"""Inputs and state as Python statements, and which input goes to which parameter of a Python model's ``forward``."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.builder.chain import ChainWriter, Line
from runner.builder.names_and_values import READ_TENSOR, Renderer, Scope
from runner.cases.limits import Limits, show_size
from runner.cases.model import FLOATING, Input, Items, Literal, PythonModule, Value
from runner.cases.python_files import Signature, read_forward, read_function
from runner.cases.tensor_files import StoredTensor, digest_of
from runner.diagnostics import Span, nearest
from runner.files import read_text
from runner.quote import integer, literal, torch_name

BYTES = {
    "float64": 8, "complex64": 8, "complex128": 16, "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2, "int16": 2,
    "uint16": 2,
    "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
"""Bytes of an element; 4 for dtypes not listed."""

COUNTED = {
    "uint8": 256, "int8": 128, "uint16": 1 << 16, "int16": 1 << 15, "bfloat16": 257, "float16": 2049,
    "float32": (1 << 24) + 1,
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "float64"), 1 << 31),
}  # fmt: skip
"""How many numbers from 0 on each dtype holds exactly, as far as a tensor has so many elements."""

SPECIAL = (
    'float("nan")',
    'float("inf")',
    'float("-inf")',
    "-0.0",
    "0.0",
    "{info}.smallest_normal / 2",
    "{info}.max",
    "{info}.min",
    "{info}.tiny",
)
"""What ``init: special`` plants, from the front of the tensor, every second element."""


class TensorWriter:
    """Writes the statements that make inputs, in one function's scope."""

    def __init__(self, scope: Scope, dtype: str, device: str, limits: Limits, indent: int = 1) -> None:
        self.scope, self.dtype, self.device, self.limits, self.indent = scope, dtype, device, limits, indent
        self.lines: list[Line] = []
        self.render = Renderer(
            scope, dtype, device,
            lambda function: scope.problems.refuse("None", function.span, "a function has no place in an input"),
        )  # fmt: skip

    def make(self, item: Input) -> str:
        """Write the statements that make an input, and return the variable that holds it."""
        variable = self.scope.define(item.name)
        if item.kind in ("list", "dict", "python"):
            self._line(f"{variable} = {self._nest(item)}", item.span)
            return variable
        is_view = item.kind == "view"
        text = self._base(item) if is_view else self.expression(item)
        early = item.requires_grad and not item.grad_after_layout
        if is_view and item.layout and not early:
            self._layout(item, variable, text)
        else:
            self._line(f"{variable} = {text}", item.span)
            if is_view and early:
                self._line(f"{variable}.requires_grad_()", item.span)
            if item.layout:
                self._layout(item, variable, variable)
        if item.grad_after_layout:
            self._line(f"{f'{variable} = {variable}.detach()' if is_view else variable}.requires_grad_()", item.span)
        return variable

    def _nest(self, item: Input) -> str:
        """Return a list or dict of inputs, which it writes before, or a plain value."""
        if item.kind == "python":
            return self.render.value(item.python or Literal(None))
        parts = list(map(self.make, item.items))
        if item.kind == "list":
            return f"[{', '.join(parts)}]"
        pairs = zip(item.keys, parts, strict=False)  # an element may be missing that is reported
        return f"{{{', '.join(f'{literal(key)}: {part}' for key, part in pairs)}}}"

    def expression(self, item: Input) -> str:
        """Return the tensor before its layout, as one expression."""
        if item.stored is not None:
            text = self._read(item, item.stored)
        elif item.kind == "values":
            text = self._values(item, item.dtype)
        else:
            text = self._filled(item, item.dtype or self.dtype)
        device = item.device or self.device
        moved = text if device == "cpu" else f"{text}.to({literal(device)})"
        return moved + (".requires_grad_()" if item.requires_grad and not item.grad_after_layout else "")

    def shape(self, item: Input) -> list[int]:
        """Return the sizes, over params; report a size that is known only at run time, and a tensor that is too
        large."""
        sizes = []
        for value in item.shape or ():
            text = self.render.value(value)
            is_integer = text.lstrip("-").isdigit()
            if not is_integer or int(text) < 0:
                fault = "is negative" if is_integer else "is no integer over params alone"
                return self.scope.problems.refuse([], item.span, f"size {text} of {item.name!r} {fault}")
            sizes.append(int(text))
        return self._checked(item, sizes)

    def _read(self, item: Input, stored: StoredTensor) -> str:
        """Return the call that reads a tensor of a file. When the file changes, the digest makes it another text."""
        self._checked(item, [*stored.shape], stored.dtype)
        try:
            digest = digest_of(stored)
        except OSError as error:
            return self.scope.problems.refuse(
                "torch.empty(0)", item.span, f"the file of {item.name!r} cannot be read: {error.strerror}"
            )
        place = f"{literal(stored.file)}, {integer(stored.start)}, {integer(stored.size)}, {literal(digest)}"
        return f"{READ_TENSOR}({place}, {torch_name(stored.dtype)}, {tuple(stored.shape)})"

    def _checked(self, item: Input, sizes: list[int], dtype: str = "") -> list[int]:
        needed = math.prod(sizes) * BYTES.get(dtype or item.dtype or self.dtype, 4)
        limit = self.limits.tensor_bytes
        if needed <= limit:
            return sizes
        message = f"input {item.name!r} of shape {sizes} takes {show_size(min(needed, 1 << 100))}, more than "
        return self.scope.problems.refuse(
            [1] * len(sizes), item.span, message + show_size(limit), "raise the limit with --limit tensor_bytes=SIZE"
        )

    def _base(self, item: Input) -> str:
        name, variables = item.view_of or "", self.scope.variables
        if name not in variables:
            return self.scope.problems.refuse(
                "None", item.span, f"{item.name!r} is a view of {name!r}, which is not an input before it"
            )
        self.scope.used |= {name, variables[name]}
        return variables[name]

    def _layout(self, item: Input, variable: str, start: str) -> None:
        inner = self.scope.nested(())
        inner.temporary, inner.previous, inner.in_forward = variable, start, False
        writer = ChainWriter(inner, self.dtype, self.device, None, self.indent)
        writer.write(item.layout, None, returns=False)
        self.lines += writer.lines
        if inner.previous != variable:
            self._line(f"{variable} = {inner.previous}", item.span)

    def _values(self, item: Input, dtype: str | None) -> str:
        assert item.values is not None
        has_floats = _holds(item.values, float)
        if dtype is None and _holds(item.values, complex):
            dtype = self.dtype if self.dtype.startswith("complex") else "complex64"
        elif has_floats:
            dtype = dtype or self.dtype
        is_implied = dtype is None or (dtype == "float32" and has_floats)
        text = f"torch.tensor({self.render.value(item.values)}{'' if is_implied else f', dtype={torch_name(dtype)}'})"
        if item.tile is not None:
            count = max(1, _count(item.values))
            self._checked(item, [item.tile])
            text += f".repeat({integer(-(-item.tile // count))})"
            text += f"[:{integer(item.tile)}]" if item.tile % count else ""
        return text if item.shape is None else f"{text}.reshape({_sizes(self.shape(item))})"

    def _filled(self, item: Input, dtype: str) -> str:
        sizes, init = self.shape(item), item.init or "normal"
        arguments = [self.render.value(v) for v in item.init_args]
        if item.init is not None and not _makes(init, dtype, arguments):
            message = f"init {init} makes no {dtype} of {item.name!r}"
            return self.scope.problems.refuse(
                "torch.empty(0)", item.span, message, "leave init: out, and every dtype has values of its own"
            )
        kind = torch_name(dtype)  # first of all: the name may be hostile
        if init == "randperm":
            return self._permutation(item, sizes, dtype)
        if init == "patterns":
            return self._patterns(sizes, dtype)
        if dtype.startswith("float8") or dtype == "complex32":  # no generator of their own
            return f"{self._filled(item, 'complex64' if dtype == 'complex32' else 'float32')}.to({kind})"
        of, shape, count = f", dtype={kind}" if dtype != "float32" else "", str(tuple(sizes)), math.prod(sizes)
        match init:
            case "zeros" | "ones":
                return f"torch.{init}({shape}{of})"
            case "full":
                return f"torch.full({shape}, {arguments[0]}, dtype={kind})"
            case "eye":
                if len(sizes) == 2:
                    return f"torch.eye({sizes[0]}, {sizes[1]}{of})"
                message = "init eye makes a matrix: the shape has two sizes"
                return self.scope.problems.refuse("torch.eye(1)", item.span, message)
            case "arange":
                return _shaped(_ramp(f"torch.arange({count}, dtype={kind})", *arguments), sizes)
            case "linspace":
                return _shaped(f"torch.linspace({arguments[0]}, {arguments[1]}, {count}{of})", sizes)
            case "integer":
                return f"torch.randint(-8, 9, {shape}).to({kind})"
            case "uniform" if arguments in ([], ["0", "1"]):
                return f"torch.rand({shape}{of})"
            case "uniform" | "normal" if arguments:
                return f"torch.empty({shape}{of}).{init}_({arguments[0]}, {arguments[1]})"
        if init == "randint" or not (dtype in FLOATING or dtype.startswith("complex")):
            low, high = arguments if init == "randint" else ["0", "2" if dtype == "bool" else "10"]
            drawn = f"torch.randint({low}, {high}, {shape}"
            if dtype in ("uint16", "uint32", "uint64"):
                return f"{drawn}).to({kind})"
            return f"{drawn})" if dtype == "int64" else f"{drawn}, dtype={kind})"
        return _special(sizes, dtype) if init == "special" else f"torch.randn({', '.join(map(str, sizes)) or '()'}{of})"

    def _permutation(self, item: Input, sizes: list[int], dtype: str) -> str:
        """The numbers from 0 on in a random order, in a dtype that holds all of them."""
        count = math.prod(sizes)
        if count > COUNTED.get(dtype, 0):
            message = f"init randperm makes the numbers 0 to {count - 1}, which {dtype} does not hold"
            return self.scope.problems.refuse("torch.zeros(())", item.span, message, "such as dtype: int64")
        return _shaped(f"torch.randperm({count})" + ("" if dtype == "int64" else f".to({torch_name(dtype)})"), sizes)

    def _patterns(self, sizes: list[int], dtype: str) -> str:
        """Bit patterns of a dtype: each as often as the others where there are few enough of them, else drawn."""
        count, size = math.prod(sizes), 1 if dtype.startswith("float8") else BYTES.get(dtype, 4)
        whole, end = f"torch.int{8 * size}", 1 << (8 * size - 1)
        drawn = f"torch.randint({-end}, {end - 1}, ({count},), dtype={whole})"
        permuted = f"torch.randperm({max(count, 2 * end)})[:{count}].to({whole})"  # the conversion keeps the lower bits
        view = "" if torch_name(dtype) == whole else f".view({torch_name(dtype)})"
        return _shaped((drawn if size > 2 else permuted) + view, sizes)

    def _line(self, text: str, span: Span | None) -> None:
        self.lines.append(Line("    " * self.indent + text, span))


def _makes(init: str, dtype: str, arguments: list[str]) -> bool:
    """Whether an ``init`` has values of a dtype."""
    if init == "patterns":
        return dtype != "bool" and not dtype.startswith("complex")
    if dtype.startswith("float8") or dtype in FLOATING:
        return True
    if dtype.startswith("complex"):
        return init not in ("randint", "arange")
    if init == "full":
        return _is_whole(arguments[0])
    # The product of a ramp with a fraction is a float.
    is_broken_ramp = init == "arange" and not all(argument.lstrip("-").isdigit() for argument in arguments)
    if init in ("normal", "uniform", "special") or is_broken_ramp:
        return False
    if dtype == "bool":
        return init not in ("arange", "linspace") and not (init == "randint" and arguments not in _BOOL_RANGES)
    return init not in ("eye", "arange", "linspace") or dtype not in ("uint16", "uint32", "uint64")


def _is_whole(text: str) -> bool:
    try:
        return text in ("True", "False") or float(text).is_integer()
    except ValueError:  # float("inf")
        return False


_BOOL_RANGES = (["0", "2"], ["0", "1"], ["1", "2"])


def _sizes(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes)) if sizes else "()"


def _shaped(text: str, sizes: list[int]) -> str:
    """A vector in the shape that is asked for."""
    return text if len(sizes) == 1 else f"{text}.reshape({_sizes(sizes)})"


def _ramp(text: str, start: str, step: str) -> str:
    text += ("" if step == "1" else f" * {step}") + ("" if start == "0" else f" + {start}")
    return text if (start, step) == ("0", "1") else f"({text})"


def _special(sizes: list[int], dtype: str) -> str:
    """Normal values with the special ones planted at every second place."""
    count, kind = math.prod(sizes), torch_name(dtype)
    real = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    values = [v.format(info=f"torch.finfo({torch_name(real)})") for v in SPECIAL[: (count + 1) // 2]]
    places = ", ".join(str(2 * place) for place in range(len(values)))
    return (
        f"torch.randn({count}, dtype={kind}).index_put((torch.tensor([{places}], dtype=torch.int64),), "
        f"torch.tensor([{', '.join(values)}], dtype={kind})).reshape({_sizes(sizes)})"
    )


def _holds(value: Value, kind: type) -> bool:
    """Whether there is a number of a kind among the values. An empty list holds floats, as in torch."""
    if isinstance(value, Items):
        return any(_holds(v, kind) for v in value.items) or (kind is float and not value.items)
    return isinstance(value, Literal) and isinstance(value.value, kind)


def _count(value: Value) -> int:
    return sum(_count(v) for v in value.items) if isinstance(value, Items) else 1


_HINT = "positional: true, beside name:, passes the inputs by their order"


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Names of the inputs in the order in which they are passed.

    The last ones go by ``keywords``, the others by position; ``parameters`` are what ``forward`` calls those.
    ``problems`` say, by the input, what is wrong and how to mend it.
    """

    inputs: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    problems: dict[str, tuple[str, str]] = field(default_factory=dict)


def called_function(module: PythonModule, names: Collection[str]) -> tuple[Signature | None, list[str]]:
    """Return the function that is the model, with the parameters that inputs fill, and those that nothing fills.

    A function is the model where an input of the same name fills a parameter without a default. Where ``args:`` fill
    them all, the function makes the model. ``names`` are those of the inputs.
    """
    function = read_function(read_text(Path(module.file)), module.name)
    given = {key for key, _ in module.args}
    if function is None or function.required <= given:
        return None, []
    missing = [name for name in function.parameters if name in function.required - given - {*names}]
    left = replace(
        function,
        positional=tuple(name for name in function.positional if name not in given),
        keywords=tuple(name for name in function.keywords if name not in given),
        required=function.required - given,
    )
    return left, missing


def arrange(module: PythonModule | None, names: Sequence[str]) -> Arrangement:
    """Return how inputs of these names are passed: by name where ``forward`` of ``module`` has the name.

    Others fill the positions that must be filled. All go by position in a chain, where the case says so, where the file
    does not tell the parameters, and where ``forward`` has none of the names.
    """
    if module is None:
        return Arrangement(tuple(names), parameters=tuple(names))
    function, _ = called_function(module, names)
    forward = function or read_forward(read_text(Path(module.file)), module.name)
    if forward is None or module.positional or not {*forward.positional, *forward.keywords}.intersection(names):
        parameters = forward.positional if forward is not None else ()
        return Arrangement(tuple(names), parameters=(*parameters[: len(names)], *names[len(parameters) :]))
    return _arrange(forward, module.name, names)


def _arrange(forward: Signature, title: str, names: Sequence[str]) -> Arrangement:
    known = (*forward.positional, *forward.keywords)
    slots = {name: name for name in names if name in known}
    more: list[str] = []
    problems: dict[str, tuple[str, str]] = {}
    for name in [name for name in names if name not in slots]:
        free = [p for p in forward.positional if p in forward.required and p not in slots]
        if free:
            slots[free[0]] = name
        elif forward.takes_any:
            slots[name] = name
        elif forward.takes_more:
            more.append(name)
        else:
            problems[name] = f"forward of {title} has no argument {name!r}", nearest(name, known) or _HINT
    count = next((place for place, p in enumerate(forward.positional) if p not in slots), len(forward.positional))
    first, later = forward.positional[:count], forward.positional[count:]
    for name in more if later else ():
        problems[name] = f"forward of {title} takes {name!r} after {later[0]!r}, which no input gives", _HINT
    for parameter in later[: max(0, forward.unnamed - count)]:
        if parameter in slots:
            message = f"forward of {title} takes {parameter!r} by position, after {later[0]!r}, which no input gives"
            problems[slots[parameter]] = message, _HINT
    if problems:
        return Arrangement(tuple(names), parameters=tuple(names), problems=problems)
    keywords = [p for p in (*later, *forward.keywords, *(n for n in names if n in slots)) if p in slots]
    keywords = [p for p in dict.fromkeys(keywords) if p not in first]
    return Arrangement(
        (*(slots[p] for p in first), *more, *(slots[p] for p in keywords)), tuple(keywords), (*first, *more)
    )
