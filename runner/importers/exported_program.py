"""Programs of ``torch.export``: the JSON of a ``.pt2`` archive. Its weights, which are pickled, are not read."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.contract.graphs import Capture, Graph, GraphInput, Role, Tensor, UnsayableError
from runner.diagnostics import shown_path
from runner.files import open_regular
from runner.importers.arguments import Constant, Device
from runner.importers.foreign_file import LARGEST, ZIP, ForeignFile
from runner.importers.graph_builder import GraphBuilder
from runner.importers.types import STEP
from runner.text import one_line

_PROGRAM = re.compile(r"(.*/)?(models/[^/]+\.json|serialized_exported_program\.json)")
_MOST_ENTRIES = 100_000
_DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
    9: "complex32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16",
    29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz", 33: "float8_e8m0fnu",
    34: "uint32", 35: "uint64",
}  # fmt: skip
_LAYOUTS = {7: "strided", 1: "sparse_coo", 2: "sparse_csr", 3: "sparse_csc", 4: "sparse_bsr", 5: "sparse_bsc"}
_FORMATS = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}
_PLAIN = ("as_int", "as_ints", "as_float", "as_floats", "as_bool", "as_bools", "as_string", "as_strings",
          "as_int_lists", "as_float_lists")  # fmt: skip
_KEYWORDS = ("alpha", "beta", "dtype", "layout", "device", "pin_memory", "memory_format", "out", "generator",
             "rounding_mode", "non_blocking", "approximate", "scale", "enable_gqa")  # fmt: skip
"""Arguments of ATen that have no position, for programs of old versions that do not say which have one."""
_ROLES: Mapping[str, Role] = {"parameter": "parameter", "buffer": "buffer", "tensor_constant": "constant"}
_SYMBOL = re.compile(r"Symbol\('(\w+)'")
_FRAME = re.compile(r'File "([^"]*)", line (\d+), in [^\n]*\n *([^\n]*)')


def is_exported_program(file: ForeignFile) -> bool:
    """Return whether a file is an archive, or the JSON of a program."""
    return file.data.startswith(ZIP) or (file.data[:1] == b"{" and b'"graph_module"' in file.data)


def read_exported_program(file: ForeignFile) -> Capture:
    """Return the graphs of an archive, or of the JSON of one program.

    Raises:
        InputError: it is no such file, or a part is too large.
    """
    notes: list[str] = []
    graphs = []
    for name, data in _programs(file):
        try:
            graphs.append(_read(file, name, _parse(data), notes))
        except UnsayableError as error:
            raise file.error(f"{name} is no program of torch.export: {error}") from None
    if not graphs:
        raise file.error("this archive has no program of torch.export", "such as models/model.json")
    return Capture(file.name, tuple(graphs), notes=tuple(notes))


def _programs(file: ForeignFile) -> Iterator[tuple[str, bytes]]:
    if not file.data.startswith(ZIP):
        yield file.name, file.data
        return
    try:
        with open_regular(file.path) as handle, zipfile.ZipFile(handle) as archive:
            entries = archive.infolist()
            if len(entries) > _MOST_ENTRIES:
                raise file.error(f"this archive has more than {_MOST_ENTRIES} parts")
            for entry in entries:
                if _PROGRAM.fullmatch(entry.filename):
                    with archive.open(entry) as part:  # what a header says of the size need not be true
                        data = part.read(LARGEST + 1)
                    if len(data) > LARGEST:
                        raise file.error(f"{one_line(entry.filename, 80)} is larger than {LARGEST >> 20} MiB")
                    yield one_line(entry.filename, 80), data
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
        raise file.error(f"this archive cannot be read: {one_line(str(error), 100)}") from None


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnsayableError(f"it is no JSON: {one_line(str(error), 100)}") from None


def _at(data: Any, *keys: str, kind: type = dict) -> Any:
    """Return what lies at a path of keys.

    Raises:
        UnsayableError: there is no such thing.
    """
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    if not isinstance(data, kind):
        raise UnsayableError(f"there is no {'.'.join(keys) or kind.__name__}")
    return data


def _read(file: ForeignFile, name: str, program: Any, notes: list[str]) -> Graph:
    data = _at(program, "graph_module", "graph")
    reader = _GraphReader(data, GraphBuilder("forward", f"{shown_path(file.path)} {name}"))
    for item, spec in zip(_at(data, "inputs", kind=list), _specs(program), strict=False):
        reader.read_input(item, spec)
    for number, node in enumerate(_at(data, "nodes", kind=list)):
        try:
            reader.read_node(node)
        except UnsayableError as error:
            target = one_line(str(node.get("target")), 80) if isinstance(node, dict) else ""
            notes.append(f"{shown_path(file.path)} {name}: node {number} {target}: {error}")
    result = [reader.argument(item) for item in _at(data, "outputs", kind=list)]
    return reader.builder.build(result, reader.grad)


def _specs(program: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what each input is, with its own words."""
    for item in _at(program, "graph_module", "signature", "input_specs", kind=list):
        kind, spec = next(iter(_at(item).items()), ("", None))
        yield str(kind), _at(spec)


class _GraphReader:
    """Reads one graph of the schema."""

    def __init__(self, data: Any, builder: GraphBuilder) -> None:
        self.builder = builder
        self.metas = _at(data, "tensor_values")
        self.read = set(_names_read(data))
        self.symbols: dict[str, int] = {}
        self.grad = False

    def read_input(self, item: Any, spec: tuple[str, dict[str, Any]]) -> None:
        """Add an input with its role; a number is one by its value."""
        kind, words = spec
        argument = _at(item).get("as_tensor")
        if argument is None:
            self._add_value(item)
            return
        word = str(_at(argument, "name", kind=str))
        origin = str(words.get(f"{kind}_name") or word)
        tensor = self.tensor(word)
        role: Role = _ROLES.get(kind, "input")
        fault = "" if tensor else "its sizes are not known"
        wish = origin if role != "input" else word
        self.builder.add_input(word, GraphInput(wish, tensor, role=role, origin=origin, fault=fault))
        self.grad = self.grad or (tensor is not None and tensor.requires_grad)

    def _add_value(self, item: Any) -> None:
        match item:
            case {"as_sym_int": {"as_name": str() as word}}:
                self.builder.add_input(word, GraphInput(word, python=STEP))
            case {"as_custom_obj": {"name": str() as word}} | {"as_token": {"name": str() as word}}:
                self.builder.add_input(word, GraphInput(word, fault="it is no tensor and no number"))

    def tensor(self, word: str) -> Tensor | None:
        """Return a value's metadata; None where they are not known."""
        meta = self.metas.get(word)
        if not isinstance(meta, dict):
            return None
        shape, stride = self._sizes(meta.get("sizes")), self._sizes(meta.get("strides"))
        offset = self._sizes([meta.get("storage_offset")])
        dtype = _DTYPES.get(_number(meta.get("dtype")), "")
        if shape is None or not dtype or meta.get("layout") not in (7, None):
            return None
        is_strided = stride is not None and len(stride) == len(shape)
        return Tensor(
            shape, dtype, stride if is_strided else None, offset[0] if offset else 0,
            requires_grad=meta.get("requires_grad") is True,
        )  # fmt: skip

    def _sizes(self, items: Any) -> tuple[int, ...] | None:
        sizes = [self._size(item) for item in items] if isinstance(items, list) else [None]
        known = tuple(size for size in sizes if size is not None and 0 <= size < 1 << 40)
        return known if len(known) == len(sizes) else None

    def _size(self, item: Any) -> int | None:
        match item:
            case {"as_int": int() as size} | {"as_expr": {"hint": {"as_int": int() as size}}}:
                return size
            case {"as_expr": {"expr_str": str() as text}} if match := _SYMBOL.match(text):
                return self.symbols.setdefault(match[1], STEP * (len(self.symbols) + 1))
        return None

    def read_node(self, node: Any) -> None:
        """Add a call, and what each of its results is called.

        Raises:
            UnsayableError: it is no call, or an argument is no value.
        """
        target = str(_at(node, "target", kind=str))
        positional, keywords = self._arguments(_at(node, "inputs", kind=list))
        words = list(_words(_at(node, "outputs", kind=list)))
        source = _source(node.get("metadata"))
        if len(words) == 1 and "as_tensors" not in node["outputs"][0]:
            tensor = self.tensor(words[0])
            self.builder.add_call(words[0], target, positional, keywords, (tensor,) if tensor else (), source)
            return
        whole = str(node.get("name") or target.rpartition(".")[2])
        self.builder.add_call(f"{whole} ", target, positional, keywords, (), source)
        for place, word in enumerate(words):
            if word in self.read:
                tensor = self.tensor(word)
                value = self.builder.values[f"{whole} "]
                results = (tensor,) if tensor else ()
                self.builder.add_call(word, "operator.getitem", [value, place], {}, results, source)

    def _arguments(self, inputs: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for item in inputs:
            name, kind = str(_at(item).get("name")), item.get("kind")
            value = self.argument(item.get("arg"))
            if kind == 2 or (kind != 1 and name in _KEYWORDS):
                keywords[name] = value
            else:
                positional.append(value)
        return positional, keywords

    def argument(self, data: Any) -> Any:
        """Return the value of an argument.

        Raises:
            UnsayableError: no case can hold it.
        """
        kind, value = next(iter(_at(data).items()), ("", None))
        match kind, value:
            case "as_none", _:
                return None
            case "as_tensor", {"name": str() as word}:
                return self._value(word)
            case "as_tensors", list():
                return [self._value(_at(item, "name", kind=str)) for item in value]
            case (("as_sym_int" | "as_sym_float" | "as_sym_bool"), {"as_name": str() as word}):
                return self._value(word)
            case (("as_sym_int" | "as_sym_float" | "as_sym_bool"), dict()):
                return next(iter(value.values()), None)
            case (("as_sym_ints" | "as_sym_floats" | "as_sym_bools"), list()):
                return [self.argument({kind[:-1]: item}) for item in value]
            case "as_optional_tensors", list():
                return [self.argument(item) for item in value]
            case "as_optional_tensor", dict():
                return self.argument(value)
            case "as_scalar_type", int() if value in _DTYPES:
                return Constant(_DTYPES[value])
            case "as_layout", int() if value in _LAYOUTS:
                return Constant(_LAYOUTS[value])
            case "as_memory_format", int() if value in _FORMATS:
                return Constant(_FORMATS[value])
            case "as_device", {"type": str() as device}:
                return Device(device)
        if kind in _PLAIN:
            return value
        raise UnsayableError(f"{one_line(kind, 40)} is no argument that a case can hold")

    def _value(self, word: str) -> Any:
        if word not in self.builder.values:
            raise UnsayableError(f"it takes {one_line(word, 80)}, which nothing gives")
        return self.builder.values[word]


def _words(outputs: Sequence[Any]) -> Iterator[str]:
    """Yield what the results of a call are called, in order."""
    for item in outputs:
        kind, value = next(iter(_at(item).items()), ("", None))
        for part in value if isinstance(value, list) else [value]:
            word = part.get("name") or part.get("as_name") if isinstance(part, dict) else None
            yield word if isinstance(word, str) else f"{kind} "


def _names_read(data: Any) -> Iterator[str]:
    """Yield the names among the inputs of calls and the outputs of the graph."""
    nodes = data.get("nodes") if isinstance(data.get("nodes"), list) else []
    waiting: list[Any] = [data.get("outputs"), [node.get("inputs") for node in nodes if isinstance(node, dict)]]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield from (item[key] for key in ("name", "as_name") if isinstance(item.get(key), str))
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _number(value: Any) -> int:
    return value if type(value) is int else -1


def _source(metadata: Any) -> str:
    trace = metadata.get("stack_trace") if isinstance(metadata, dict) else None
    frames = _FRAME.findall(trace) if isinstance(trace, str) else []
    return one_line(f"{frames[0][0].rpartition('/')[2]}:{frames[0][1]}: {frames[0][2]}") if frames else ""
