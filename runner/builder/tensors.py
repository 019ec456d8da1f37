"""How an input or a piece of state is made, as Python statements."""

from __future__ import annotations

import math

from runner.builder.chain import ChainWriter, Line
from runner.builder.names_and_values import Renderer, Scope
from runner.cases.limits import Limits, show_size
from runner.cases.model import FLOATING, Input, Items, Literal, Value
from runner.diagnostics import Span
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
        text = self._base(item) if item.kind == "view" else self.expression(item)
        early = item.requires_grad and not item.grad_after_layout
        if item.kind == "view" and item.layout and not early:
            self._layout(item, variable, text)
        else:
            self._line(f"{variable} = {text}", item.span)
            if item.kind == "view" and early:
                self._line(f"{variable}.requires_grad_()", item.span)
            if item.layout:
                self._layout(item, variable, variable)
        if item.grad_after_layout:
            leaf = f"{variable} = {variable}.detach()" if item.kind == "view" else variable
            self._line(f"{leaf}.requires_grad_()", item.span)
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
        text = self._values(item, item.dtype) if item.kind == "values" else self._filled(item, item.dtype or self.dtype)
        device = item.device or self.device
        if device != "cpu":
            text += f".to({literal(device)})"
        return text + (".requires_grad_()" if item.requires_grad and not item.grad_after_layout else "")

    def shape(self, item: Input) -> list[int]:
        """Return the sizes, over params; report a size that is known only at run time, and a tensor that is too
        large."""
        sizes = []
        for value in item.shape or ():
            text = self.render.value(value)
            if not text.lstrip("-").isdigit():
                return self.scope.problems.refuse(
                    [], item.span, f"size {text} of {item.name!r} is no integer over params alone"
                )
            if int(text) < 0:
                return self.scope.problems.refuse([], item.span, f"size {text} of {item.name!r} is negative")
            sizes.append(int(text))
        return self._checked(item, sizes)

    def _checked(self, item: Input, sizes: list[int]) -> list[int]:
        needed = math.prod(sizes) * BYTES.get(item.dtype or self.dtype, 4)
        if needed > self.limits.tensor_bytes:
            return self.scope.problems.refuse(
                [1] * len(sizes),
                item.span,
                f"input {item.name!r} of shape {sizes} takes {show_size(min(needed, 1 << 100))}, more than "
                f"{show_size(self.limits.tensor_bytes)}",
                "raise the limit with --limit tensor_bytes=SIZE",
            )
        return sizes

    def _base(self, item: Input) -> str:
        name = item.view_of or ""
        if name not in self.scope.variables:
            return self.scope.problems.refuse(
                "None", item.span, f"{item.name!r} is a view of {name!r}, which is not an input before it"
            )
        self.scope.used |= {name, self.scope.variables[name]}
        return self.scope.variables[name]

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
        elif dtype is None and has_floats:
            dtype = self.dtype
        is_implied = dtype is None or (dtype == "float32" and has_floats)
        suffix = "" if is_implied else f", dtype={torch_name(dtype)}"
        text = f"torch.tensor({self.render.value(item.values)}{suffix})"
        if item.tile is not None:
            count = max(1, _count(item.values))
            self._checked(item, [item.tile])
            text += f".repeat({integer(-(-item.tile // count))})"
            if item.tile % count:
                text += f"[:{integer(item.tile)}]"
        if item.shape is not None:
            text += f".reshape({_sizes(self.shape(item))})"
        return text

    def _filled(self, item: Input, dtype: str) -> str:
        sizes, init = self.shape(item), item.init or "normal"
        arguments = [self.render.value(v) for v in item.init_args]
        if item.init is not None and not _makes(init, dtype, arguments):
            return self.scope.problems.refuse(
                "torch.empty(0)",
                item.span,
                f"init {init} makes no {dtype} of {item.name!r}",
                "leave init: out, and every dtype has values of its own",
            )
        of = f", dtype={torch_name(dtype)}" if dtype != "float32" else ""
        shape = str(tuple(sizes))
        floating = dtype in FLOATING or dtype.startswith("complex")
        if init == "randperm":
            return self._permutation(item, sizes, dtype)
        if init == "patterns":
            return self._patterns(sizes, dtype)
        if dtype.startswith("float8") or dtype == "complex32":  # no generator of their own
            wide = "complex64" if dtype == "complex32" else "float32"
            return f"{self._filled(item, wide)}.to({torch_name(dtype)})"
        match init:
            case "zeros" | "ones":
                return f"torch.{init}({shape}{of})"
            case "full":
                return f"torch.full({shape}, {arguments[0]}, dtype={torch_name(dtype)})"
            case "eye":
                if len(sizes) != 2:
                    return self.scope.problems.refuse(
                        "torch.eye(1)", item.span, "init eye makes a matrix: the shape has two sizes"
                    )
                return f"torch.eye({sizes[0]}, {sizes[1]}{of})"
            case "arange":
                return self._ramp(sizes, f"torch.arange({math.prod(sizes)}, dtype={torch_name(dtype)})", arguments)
            case "linspace":
                text = f"torch.linspace({arguments[0]}, {arguments[1]}, {math.prod(sizes)}{of})"
                return text if len(sizes) == 1 else f"{text}.reshape({_sizes(sizes)})"
            case "integer":
                return f"torch.randint(-8, 9, {shape}).to({torch_name(dtype)})"
            case "uniform":
                low, high = arguments or ["0", "1"]
                if (low, high) == ("0", "1"):
                    return f"torch.rand({shape}{of})"
                return f"torch.empty({shape}{of}).uniform_({low}, {high})"
        if init == "randint" or not floating:
            low, high = arguments if init == "randint" else ["0", "2" if dtype == "bool" else "10"]
            if dtype in ("uint16", "uint32", "uint64"):
                return f"torch.randint({low}, {high}, {shape}).to({torch_name(dtype)})"
            option = "" if dtype == "int64" else f", dtype={torch_name(dtype)}"
            return f"torch.randint({low}, {high}, {shape}{option})"
        normal = f"torch.randn({', '.join(map(str, sizes)) or '()'}{of})"
        return self._special(sizes, shape, dtype) if init == "special" else normal

    def _permutation(self, item: Input, sizes: list[int], dtype: str) -> str:
        """The numbers from 0 on in a random order, in a dtype that holds all of them."""
        count = math.prod(sizes)
        if count > COUNTED.get(dtype, 0):
            return self.scope.problems.refuse(
                "torch.zeros(())",
                item.span,
                f"init randperm makes the numbers 0 to {count - 1}, which {dtype} does not hold",
                "such as dtype: int64",
            )
        made = f"torch.randperm({count})" + ("" if dtype == "int64" else f".to({torch_name(dtype)})")
        return made if len(sizes) == 1 else f"{made}.reshape({_sizes(sizes)})"

    def _patterns(self, sizes: list[int], dtype: str) -> str:
        """Bit patterns of a dtype: each as often as the others where there are few enough of them, else drawn."""
        count, size = math.prod(sizes), 1 if dtype.startswith("float8") else BYTES.get(dtype, 4)
        integer = f"torch.int{8 * size}"
        if size > 2:
            end = 1 << (8 * size - 1)
            text = f"torch.randint({-end}, {end - 1}, ({count},), dtype={integer})"
        else:  # a conversion to fewer bits keeps the lower ones
            text = f"torch.randperm({max(count, 1 << (8 * size))})[:{count}].to({integer})"
        text += "" if torch_name(dtype) == integer else f".view({torch_name(dtype)})"
        return text if len(sizes) == 1 else f"{text}.reshape({_sizes(sizes)})"

    def _special(self, sizes: list[int], shape: str, dtype: str) -> str:
        """Normal values with the special ones planted at every second place."""
        count = math.prod(sizes)
        real = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
        planted = ", ".join(v.format(info=f"torch.finfo({torch_name(real)})") for v in SPECIAL[: (count + 1) // 2])
        places = ", ".join(str(2 * i) for i in range(min(len(SPECIAL), (count + 1) // 2)))
        flat = f"torch.randn({count}, dtype={torch_name(dtype)})"
        filled = (
            f"{flat}.index_put((torch.tensor([{places}], dtype=torch.int64),), torch.tensor([{planted}], "
            f"dtype={torch_name(dtype)}))"
        )
        return f"{filled}.reshape({_sizes(sizes)})"

    def _ramp(self, sizes: list[int], text: str, arguments: list[str]) -> str:
        start, step = arguments
        text += ("" if step == "1" else f" * {step}") + ("" if start == "0" else f" + {start}")
        if (start, step) != ("0", "1"):
            text = f"({text})"
        return text if len(sizes) == 1 else f"{text}.reshape({_sizes(sizes)})"

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
    if init in ("normal", "uniform", "special"):
        return False
    if init == "full":
        return _is_whole(arguments[0])
    if init == "arange" and not all(argument.lstrip("-").isdigit() for argument in arguments):
        return False  # the product with a fraction is a float
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


def _holds(value: Value, kind: type) -> bool:
    """Whether there is a number of a kind among the values. An empty list holds floats, as in torch."""
    if isinstance(value, Items):
        return any(_holds(v, kind) for v in value.items) or (kind is float and not value.items)
    return isinstance(value, Literal) and isinstance(value.value, kind)


def _count(value: Value) -> int:
    return sum(_count(v) for v in value.items) if isinstance(value, Items) else 1
