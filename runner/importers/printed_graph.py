"""Graphs that torch prints as Python: scripts of the minifier, ``print_readable``, and artifacts of tlparse.

The text is parsed. Each statement of a ``forward`` becomes a call, and no statement is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.contract.graphs import Capture, Graph, GraphInput, Role, Tensor, UnsayableError
from runner.importers.arguments import Name
from runner.importers.foreign_file import ForeignFile
from runner.importers.graph_builder import GraphBuilder
from runner.importers.graphnet import read_metas
from runner.importers.load_args import Argument, read_arguments
from runner.importers.python_text import Literals, PythonError, dotted, is_sizes, parse
from runner.importers.types import Symbols
from runner.text import one_line

_CLASS = re.compile(r"^( *)class +(<lambda>|\w+)\((?:torch\.)?(?:nn\.|fx\.)?(?:Module|GraphModule)\):", re.MULTILINE)
_PREFIX = re.compile(r"^(?:\[rank\d+\]:)?[VIWE]\d{4} .*?\[__\w+\] ?", re.MULTILINE)
_SOURCE = re.compile(r"\s*# File: (\S+):(\d+) in [^,]*, code: (.*)")
_PLACES = (("_parameters", "parameter"), ("_buffers", "buffer"))
_SYMBOLS = {"Add": "add", "Sub": "sub", "Mult": "mul", "Div": "truediv", "FloorDiv": "floordiv", "Mod": "mod",
            "Pow": "pow", "MatMult": "matmul", "BitAnd": "and_", "BitOr": "or_", "BitXor": "xor", "LShift": "lshift",
            "RShift": "rshift", "Lt": "lt", "LtE": "le", "Gt": "gt", "GtE": "ge", "Eq": "eq", "NotEq": "ne",
            "USub": "neg", "UAdd": "pos", "Invert": "invert", "Is": "is_", "IsNot": "is_not"}  # fmt: skip
"""Python's operators by the names of their nodes, as ``operator`` calls them."""
_ROOTS = ("torch", "operator", "_operator", "math", "builtins", "fx_pytree", "pytree")
_FUNCTIONS = ("getattr", "max", "min", "abs", "int", "float", "bool", "round", "len", "sum")
_MADE = ("randn", "rand", "zeros", "ones", "empty", "randint")
_UNKNOWN = "the text does not say what it is"


def is_printed_graph(text: str) -> bool:
    """Return whether a text holds a class of a graph with its ``forward``."""
    return _CLASS.search(_PREFIX.sub("", text)) is not None and "def forward(" in text


def read_printed_graph(file: ForeignFile) -> Capture:
    """Return the graphs of a text.

    Raises:
        InputError: it is no Python, or has no graph.
    """
    text = _module_text(file.text)
    try:
        tree = parse(text)
    except PythonError as error:
        raise file.error(str(error), line=error.line, column=error.column) from None
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    forwards = [(node, function) for node in classes if (function := _method(node, "forward"))]
    if not forwards:
        raise file.error("this file has no class with a forward that is a graph")
    notes: list[str] = []
    graphs = tuple(_read(file, text, tree, node, function, notes) for node, function in forwards)
    return Capture(file.name, tuple(filter(None, graphs)), notes=tuple(notes))


def _module_text(text: str) -> str:
    """Return a text without what stands around its classes in a log, each line at its place."""
    text = _PREFIX.sub("", text)
    text = _CLASS.sub(lambda match: f"{match[1]}class {match[2].strip('<>')}(torch.nn.Module):", text)
    text = text.replace("class lambda(", "class Graph(")
    if re.search(r"^(import|from|class) ", text, re.MULTILINE) and not _is_indented(text):
        return text if _is_script(text) else _classes_alone(text)
    return _classes_alone(text)


def _is_indented(text: str) -> bool:
    match = _CLASS.search(text)
    return match is not None and bool(match[1])


def _is_script(text: str) -> bool:
    return re.search(r"^(import torch|from torch)", text, re.MULTILINE) is not None


def _classes_alone(text: str) -> str:
    """Return the lines of classes, at the margin; others become blank."""
    lines, margin = [], -1
    for line in text.split("\n"):
        match = _CLASS.match(line)
        if match and (margin < 0 or len(match[1]) <= margin):
            margin = len(match[1])
        elif margin >= 0 and line.strip() and len(line) - len(line.lstrip()) <= margin:
            margin = -1
        lines.append(line[margin:] if margin >= 0 else "")
    return "\n".join(lines)


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == name), None)


def _read(
    file: ForeignFile, text: str, tree: ast.Module, node: ast.ClassDef, function: ast.FunctionDef, notes: list[str]
) -> Graph | None:
    symbols = Symbols()
    arguments: Sequence[Argument | None] | None = read_arguments(tree, symbols)
    if arguments is None and (metas := read_metas(file)):
        arguments = [metas.get(parameter.arg) for parameter in function.args.args[1:]]
    place = file.place(node.lineno)
    reader = _GraphReader(file, text, GraphBuilder(node.name, place), symbols, notes)
    try:
        reader.read_inputs(function, arguments)
        reader.read_attributes(_method(node, "__init__"))
        return reader.read_body(function.body)
    except UnsayableError as error:
        notes.append(f"{place}: {node.name}: {error}")
        return None


class _GraphReader(Literals):
    """Reads one ``forward``. A name stands for what the builder knows of it."""

    def __init__(self, file: ForeignFile, text: str, builder: GraphBuilder, symbols: Symbols, notes: list[str]) -> None:
        super().__init__({"inf": float("inf"), "nan": float("nan"), "Ellipsis": ...}, {})
        self.file, self.builder, self.symbols, self.notes = file, builder, symbols, notes
        self.sources = _sources(text)
        self.attributes: dict[str, GraphInput] = {}
        self.count = 0
        self.grad = False

    # --- inputs ---

    def read_inputs(self, function: ast.FunctionDef, arguments: Sequence[Argument | None] | None) -> None:
        """Add the parameters of ``forward``, with what is loaded for each, or with their types."""
        parameters = function.args.args[1:]
        pairs = list(zip(parameters, [*(arguments or ()), *([None] * len(parameters))], strict=False))
        for parameter, argument in pairs:
            kind = _annotation(parameter.annotation)
            is_number = argument is not None and (argument.tensor is None or "Sym" in kind)
            if argument is not None and is_number and not argument.fault:
                self._add_number(parameter.arg, argument.python, kind)
        numbers = []
        for parameter, argument in pairs:
            kind = _annotation(parameter.annotation)
            if self.symbols.size(kind) is not None and argument is None:
                numbers.append((parameter.arg, kind))
            elif parameter.arg not in self.builder.values:
                self._add_tensor(parameter.arg, kind, argument)
        for word, kind in numbers:
            self.builder.values[word] = self.symbols.written(kind)

    def _add_number(self, word: str, value: Any, kind: str) -> None:
        symbol = re.fullmatch(r"Sym\((s\d+)\)", kind)
        if symbol and type(value) is int:
            self.symbols.values[symbol[1]] = value
        self.builder.values[word] = value

    def _add_tensor(self, word: str, kind: str, argument: Argument | None) -> None:
        tensor = argument.tensor if argument else self.symbols.tensor(kind)
        fault = (argument.fault if argument else "") or ("" if tensor else _UNKNOWN)
        role: Role = next((role for part, role in _PLACES if part in word), "input")  # type: ignore[misc]
        role = "parameter" if "Parameter" in kind else role
        known = argument or Argument()
        item = GraphInput(
            _short(word), tensor, role=role, origin=word, fault=fault, values=known.values, statistics=known.statistics
        )
        self.builder.add_input(word, item)
        name = self.builder.values[word]
        if argument is None:
            self.symbols.note_sizes(name.text, kind)
        self.grad = self.grad or (tensor is not None and tensor.requires_grad)

    def read_attributes(self, function: ast.FunctionDef | None) -> None:
        """Keep what ``__init__`` registers: tensors that ``forward`` reads as ``self.x``."""
        for statement in function.body if function else ():
            call = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
            if not isinstance(call, ast.Call):
                continue
            if dotted(call.func) in ("self.register_buffer", "self.register_parameter") and len(call.args) > 1:
                word = call.args[0].value if isinstance(call.args[0], ast.Constant) else None
                self._keep(word, call.args[1], "buffer" if "buffer" in dotted(call.func) else "parameter")
            elif isinstance(statement, ast.Assign) and dotted(statement.targets[0]).startswith("self."):
                self._keep(dotted(statement.targets[0]).removeprefix("self."), call, "parameter")

    def _keep(self, word: Any, node: ast.expr, role: Role) -> None:
        if isinstance(word, str):
            item = self._made(node)
            self.attributes[word] = replace(item, name=word, role=role, origin=f"self.{word}")

    def _made(self, node: ast.expr) -> GraphInput:
        """Return what ``torch.randn([4], dtype=torch.float32)`` or ``tensor(1.)`` makes."""
        name = dotted(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name.endswith("Parameter") and node.args:
            return self._made(node.args[0])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("cuda", "to"):
            return self._made(node.func.value)
        try:
            positional, keywords = self.arguments(node) if isinstance(node, ast.Call) else ([], {})
        except UnsayableError as error:
            return GraphInput("x", fault=str(error))
        dtype = getattr(keywords.get("dtype"), "name", None)
        if name in ("tensor", "torch.tensor") and positional:
            value = positional[0]
            kind = dtype or _dtype_of(value)
            return GraphInput("x", Tensor(_shape_of(value), kind), values=value)
        sizes = keywords.get("size", next((item for item in reversed(positional) if is_sizes(item)), None))
        sizes = positional if sizes is None and is_sizes(positional) else sizes
        if name.removeprefix("torch.") in _MADE and sizes is not None:
            return GraphInput("x", Tensor(tuple(sizes), dtype or ("int64" if "int" in name else "float32")))
        return GraphInput("x", fault=_UNKNOWN)

    # --- statements ---

    def read_body(self, body: Iterable[ast.stmt]) -> Graph:
        """Return the graph of the statements up to ``return``.

        Raises:
            UnsayableError: there is no ``return``, or it gives what no case can.
        """
        for statement in body:
            if isinstance(statement, ast.Return):
                return self.builder.build(self._result(statement.value), self.grad)
            try:
                self._statement(statement)
            except UnsayableError as error:
                words = [dotted(target) for target in _targets(statement)]
                self._unsayable(statement, words, str(error))
        raise UnsayableError("its forward has no return")

    def _unsayable(self, statement: ast.stmt, words: Iterable[str], message: str) -> None:
        self.notes.append(f"{self.file.place(statement.lineno)}: {message}")
        for word in filter(None, words):
            self.builder.add_input(word, GraphInput(word, fault=message))

    def _result(self, node: ast.expr | None) -> Any:
        if isinstance(node, ast.Call) and node.args and dotted(node.func).endswith("tree_unflatten"):
            node = node.args[0]
        return None if node is None else self.value(node)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=ast.Constant(value=None)) if all(map(_is_plain_name, targets)):
                return  # the text frees what is not read again
            case ast.Assign(targets=[ast.Name(id=word)], value=value):
                self._assign(word, value, node.lineno, "")
            case ast.AnnAssign(target=ast.Name(id=word), annotation=annotation, value=value) if value is not None:
                self._assign(word, value, node.lineno, _annotation(annotation))
            case ast.Assign(targets=[ast.Subscript(value=base, slice=index)], value=value):
                arguments = [self.value(base), self.value(index), self.value(value)]
                self._call(self._word(), "operator.setitem", arguments, {}, node.lineno, "")
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                self._unpack(targets, value)
            case ast.AugAssign(target=ast.Name(id=word), op=op, value=value):
                name = f"operator.i{_SYMBOLS.get(type(op).__name__, '').rstrip('_')}"
                before = self.value(node.target)
                self._call(word, name, [before, self.value(value)], {}, node.lineno, "")
            case ast.Expr(value=ast.Call() as call):
                self._assign(self._word(), call, node.lineno, "")
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return
            case _:
                raise UnsayableError(f"{type(node).__name__} is no statement of a graph")

    def _word(self) -> str:
        self.count += 1
        return f"step_{self.count}"

    def _unpack(self, targets: list[ast.expr], value: ast.expr) -> None:
        """Let names stand for the parts of a value; those of a pytree are the arguments themselves."""
        words = [dotted(target) for target in targets]
        if isinstance(value, ast.Call) and dotted(value.func).endswith("tree_flatten_spec") and value.args:
            parts = self.value(value.args[0])
            flat = [*parts[0], *parts[1].values()] if isinstance(parts, list | tuple) and len(parts) == 2 else parts
        else:
            flat = self.value(value)
        if not isinstance(flat, list | tuple) or len(flat) != len(words) or "" in words:
            raise UnsayableError("several names are assigned at once")
        self.builder.values.update(zip(words, flat, strict=True))

    def _assign(self, word: str, value: ast.expr, line: int, kind: str) -> None:
        match value:
            case ast.Call():
                self._assign_call(word, value, line, kind)
            case ast.BinOp(left=left, op=op, right=right):
                self._operate(word, op, [left, right], line, kind)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                self._operate(word, op, [left, right], line, kind)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._call(word, "operator.not_", [self.value(operand)], {}, line, kind)
            case ast.UnaryOp(op=op, operand=operand) if not isinstance(operand, ast.Constant):
                self._operate(word, op, [operand], line, kind)
            case ast.Subscript(value=base, slice=index):
                self._item(word, self.value(base), self.value(index), line, kind)
            case ast.Attribute() if dotted(value).startswith("self."):
                self._attribute(word, dotted(value).removeprefix("self."), kind)
            case _:
                self.builder.values[word] = self.value(value)

    def _attribute(self, word: str, path: str, kind: str) -> None:
        """Let a name stand for a tensor of the graph's own."""
        tensor = self.symbols.tensor(kind)
        known = self.attributes.get(path) or GraphInput(path, tensor, fault="" if tensor else _UNKNOWN)
        key = f"self.{path}"
        if key not in self.builder.values:
            role: Role = known.role if path in self.attributes else "constant"
            self.builder.add_input(key, replace(known, name=path.replace(".", "_"), role=role, origin=key))
        self.builder.values[word] = self.builder.values[key]

    def _item(self, word: str, base: Any, index: Any, line: int, kind: str) -> None:
        if isinstance(base, list | tuple) and type(index) is int and -len(base) <= index < len(base):
            self.builder.values[word] = base[index]
        elif isinstance(base, Name) and base.text.endswith(".shape") and type(index) is int:
            self.builder.values[word] = Name(f"${{{base.text}[{index}]}}")
        else:
            self._call(word, "operator.getitem", [base, index], {}, line, kind)

    def _operate(self, word: str, op: ast.AST, operands: list[ast.expr], line: int, kind: str) -> None:
        name = _SYMBOLS.get(type(op).__name__)
        values = [self.value(operand) for operand in operands]
        if name is None:
            raise UnsayableError(f"{type(op).__name__} is no operator of a graph")
        self._call(word, f"operator.{name}", values, {}, line, kind)

    def _assign_call(self, word: str, node: ast.Call, line: int, kind: str) -> None:
        name = dotted(node.func)
        root = name.partition(".")[0]
        if name in self.calls:
            self.builder.values[word] = self.call(node)
            return
        positional, keywords = self.arguments(node)
        if name == "getattr" and len(positional) == 2 and isinstance(positional[0], Name):
            self.builder.values[word] = self._attribute_of(positional[0], str(positional[1]))
        elif root == "self":
            raise UnsayableError(f"{name} is called, a module that is no part of the graph")
        elif root in _ROOTS and root not in self.builder.values:
            self._call(word, name, positional, keywords, line, kind)
        elif name in _FUNCTIONS:
            self._call(word, f"builtins.{name}", positional, keywords, line, kind)
        elif isinstance(node.func, ast.Attribute):
            receiver = self.value(node.func.value)
            self._call(word, f"torch.Tensor.{node.func.attr}", [receiver, *positional], keywords, line, kind)
        else:
            raise UnsayableError(f"{name or type(node.func).__name__} is called, which is no function of torch")

    def _call(
        self, word: str, name: str, positional: list[Any], keywords: Mapping[str, Any], line: int, kind: str
    ) -> None:
        tensor = self.symbols.tensor(kind)
        source = self.sources.get(line) or self.file.place(line)
        self.builder.add_call(word, name, positional, keywords, (tensor,) if tensor else (), source)

    # --- values ---

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression, which may be a size of a tensor."""
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            base, place = self.name(node.value), super().value(node.slice)
            if isinstance(base, Name) and type(place) is int:
                return Name(f"${{{base.text}[{place}]}}")
        return super().value(node)

    def name(self, node: ast.expr) -> Any:
        """Return what a dotted name stands for: a value, an attribute of one, or a constant."""
        name = dotted(node)
        if name in self.builder.values:
            return self.builder.values[name]
        base, _, attribute = name.rpartition(".")
        if base in self.builder.values and isinstance(self.builder.values[base], Name):
            return self._attribute_of(self.builder.values[base], attribute)
        if name.startswith("self."):
            self._attribute(name, name.removeprefix("self."), "")
            return self.builder.values[name]
        return super().name(node)

    def _attribute_of(self, value: Name, attribute: str) -> Name:
        return Name(f"{value.text}.{attribute}")


def _sources(text: str) -> dict[int, str]:
    """Return the line of the model for each line of a text: the comment above it says which."""
    sources, current = {}, ""
    for number, line in enumerate(text.split("\n"), 1):
        if match := _SOURCE.match(line):
            current = one_line(f"{match[1].rpartition('/')[2]}:{match[2]}: {match[3]}")
        elif "def forward(" in line:
            current = ""
        if current:
            sources[number] = current
    return sources


def _targets(node: ast.stmt) -> Iterator[ast.expr]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    for target in targets:
        if isinstance(target, ast.Tuple):
            yield from target.elts
        elif isinstance(target, ast.expr):
            yield target


def _is_plain_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name)


def _annotation(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return dotted(node) if node is not None else ""


def _short(word: str) -> str:
    """Return a name for an input: the last parts of what the model calls it."""
    text = re.sub(r"_(modules|parameters|buffers)(?=_)", "", word.removeprefix("L_").strip("_"))
    parts = [part for part in re.sub(r"^(self|fn|s)_", "", text).split("_") if part]
    return "_".join(parts[-4:]) or "x"


def _dtype_of(value: Any) -> str:
    first = value
    while isinstance(first, list | tuple) and first:
        first = first[0]
    return "bool" if isinstance(first, bool) else "int64" if isinstance(first, int) else "float32"


def _shape_of(value: Any) -> tuple[int, ...]:
    shape = []
    while isinstance(value, list | tuple):
        shape.append(len(value))
        value = value[0] if value else None
    return tuple(shape)
