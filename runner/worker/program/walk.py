"""The walk over a value: from containers down to leaves, under paths that are the same in every run.

Objects of a case may run code of their own when they are read. The walk reads tables of attributes and the storage of
builtin containers instead. Where it must call such code, an error or an endless call makes an ``Unread`` leaf.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import re
import sys
import types
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from runner.worker.guarded import Refusal, ask, describe
from runner.worker.program import modules as torch_modules
from runner.worker.torch_private.dispatch import CONTAINERS

PYTHON = (bool, int, float, complex, str, bytes, type(None))
PLAIN = (*PYTHON, torch.dtype, torch.device, torch.layout, torch.memory_format)

LARGEST = 1 << 19
"""Values in one root beyond which none of them is compared: a walk takes about a second for so many."""
_ALL = 1 << 21
"""The same for all roots of a walk; beyond it each root is walked up to the number of ``_LEAST``."""
_LEAST = 1 << 10
_DEEPEST = 64
"""Containers within each other beyond which paths begin anew with a number: those of a linked list would fill the
memory."""

_LEAVES = (*PLAIN, torch.Size, enum.Enum, type, types.ModuleType, set, frozenset, bytearray, BaseException)
_NAMED = (type, types.ModuleType, BaseException)
"""Leaves that have no value beside their name, whatever they hold."""
_BOUND = (types.BuiltinMethodType, types.MethodWrapperType)
_VIEWS = tuple(
    type(view())
    for mapping in (dict[Any, Any](), collections.OrderedDict[Any, Any]())
    for view in (mapping.keys, mapping.values, mapping.items)
)
_FIXED = (tuple, slice, functools.partial, types.MethodType, *_BOUND, *_VIEWS)
_SEARCHED = 1 << 12
"""Objects below one of another package's class that are looked through for a tensor; a model may hold a whole
tokenizer."""
_UNOPENED = frozenset({"torch", "triton", "numpy", "runner"}) | (
    sys.stdlib_module_names - {"argparse", "collections", "queue"}
)
"""Packages whose objects are part of what runs, and not of a result: loggers, kernels, graphs."""
_OPENED = ("torch.nn.", "torch.distributions.")
"""Modules of torch whose objects are opened like those of other packages."""
_TABLE: tuple[Any, ...] = (dict[str, int](), dict[str, int]().values(), dict[str, int]().items())
_COPIED: tuple[type, ...] = (
    *map(type, map(iter, ((), [], "", b"", set(), range(0), range(1 << 70)))),
    *(type(make(view)) for view in _TABLE for make in (iter, reversed)),
    *(reversed, type(reversed([]))),
)
"""Classes of iterators over Python's own containers. A copy of one gives the elements that it has left."""
_ITERATORS: tuple[type, ...] = (
    *(enumerate, filter, map, zip),
    *(cls for cls in vars(itertools).values() if isinstance(cls, type) and hasattr(cls, "__next__")),
)
"""Classes of iterators that are made of others."""

_MARKS_OF_TORCH = re.compile(r"__|_(?:\w+_)?dynamo_|_specialize_on")
"""How attributes begin that compilers give tensors."""

_SEMICOLON = "\\x3b "
"""How a key has what separates the parts of a state, as ``repr`` would write it."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

Child = tuple[str, Any]
"""What a container holds, with its step of the path."""
Leaves = list[tuple[str, Any]]
"""Leaves with their paths."""


@dataclasses.dataclass(frozen=True)
class Unread:
    """A leaf in place of an object that cannot be read: the name of its class, and why."""

    type: str
    problem: str


class _Kind(NamedTuple):
    """How objects of a class are opened: ``read`` returns None for a leaf. One that ``is_leaf`` stays so whatever else
    it holds.

    One that is ``mutable`` is opened once. Equal tuples may be one object in eager and two in compiled code, so these
    are opened at each place.
    """

    name: str
    read: Callable[[Any], list[Child] | None]
    mutable: bool
    is_leaf: bool


_UNKNOWN = _Kind("", lambda value: None, False, False)


class _TooLarge(Exception):
    """A root holds more values than this number, and no more are walked."""


class Walk:
    """Walks over roots, one after the other. An object that is a root is opened once in all of them."""

    def __init__(self, module: str = "", known: Iterable[tuple[str, Any]] = ()) -> None:
        """Prepare a walk.

        Args:
            module: the name that the case's source was loaded under. Objects of its classes are opened.
            known: paths of objects that are not opened, since they are compared in another way.
        """
        self._module = module
        self._kinds: dict[type, _Kind | None] = {}
        self._roots = {id(value): (value, f"^{path}") for path, value in known}
        self._remaining = _ALL
        self._bare: dict[int, Any] = {}  # objects in which no tensor lies, by their ids
        self.containers: dict[str, Any] = {}
        """The containers that were opened and can change, by their paths."""

    def flatten(self, value: Any, root: str) -> tuple[str, Leaves]:
        """Return the structure as a text, and the leaves with their paths, in order. See ``flatten``."""
        kind = self._kinds.get(type(value), _UNKNOWN)
        if kind is None or (kind is not _UNKNOWN and kind.is_leaf and not kind.read(value)):  # as most roots are
            return "*", [(root, value)]
        name = root
        try:
            name = class_name(type(value), self._module)
            structure, leaves = self._flatten(value, root)
        except _TooLarge as error:
            return "*", [(root, Unread(name, f"it holds more than {error} values"))]
        except Exception as error:  # noqa: BLE001  a class or metaclass of the case may raise anything
            return "*", [(root, Unread(name, f"reading it raises {describe(error)}"))]
        kind = self._kinds.get(type(value))
        if kind is not None and kind.mutable and structure.endswith(")") and not kind.is_leaf:
            self._roots.setdefault(id(value), (value, f"^{root}"))
        return structure, leaves

    def _flatten(self, value: Any, root: str) -> tuple[str, Leaves]:
        pieces: list[str] = []
        leaves: Leaves = []
        seen: dict[int, tuple[Any, str]] = {}
        frames: list[tuple[str, Iterator[Child]]] = [(root, iter([("", value)]))]
        limit = min(LARGEST, max(self._remaining, _LEAST))
        count = 0
        while frames:
            above, children = frames[-1]
            for step, child in children:
                count += 1
                if count > limit:
                    self._remaining -= limit
                    raise _TooLarge(limit)
                if step:
                    pieces.append(f"{step}: " if pieces[-1].endswith("(") else f", {step}: ")
                path = above + step
                kind = self._kinds.get(type(child), _UNKNOWN)
                if kind is _UNKNOWN:
                    kind = self._kind(type(child))
                if kind is None:
                    pieces.append("*")
                    leaves.append((path, child))
                    continue
                known = None
                if kind.mutable:
                    known = seen.get(id(child)) or self._roots.get(id(child))
                below, remark = (None, None) if known else _read(kind, child)
                if known and not kind.is_leaf:
                    pieces.append(known[1])
                    continue
                if below is None or kind.is_leaf:
                    pieces.append("*")
                    leaves.append((path, remark or child))
                    if not below:
                        continue
                if kind.mutable:
                    seen[id(child)] = (child, f"^{path}")
                    if not kind.is_leaf:
                        self.containers[path] = child
                pieces.append("(" if kind.is_leaf else f"{kind.name}(")
                frames.append((path if len(frames) < _DEEPEST else f"{root}.({count})", iter(below)))
                break
            else:
                frames.pop()
                if frames:
                    pieces.append(")")
        self._remaining -= count
        return "".join(pieces), leaves

    def _kind(self, cls: type) -> _Kind | None:
        """Return how objects of a class are opened; None for leaves."""
        if cls not in self._kinds:
            read = self._reader(cls)
            frozen = issubclass(cls, _FIXED) or getattr(vars(cls).get("__dataclass_params__"), "frozen", False)
            name = "iterator" if cls in _COPIED else class_name(cls, self._module)
            is_leaf = issubclass(cls, torch.Tensor) or read is _attributes
            self._kinds[cls] = None if read is None else _Kind(name, read, not frozen, is_leaf)
        return self._kinds[cls]

    def _reader(self, cls: type) -> Callable[[Any], list[Child] | None] | None:
        if issubclass(cls, _LEAVES):
            return _attributes if self._is_own(cls) and not issubclass(cls, _NAMED) else None
        if issubclass(cls, torch.Tensor):
            computes = (
                getattr(cls, "__torch_dispatch__", None) is not torch.Tensor.__torch_dispatch__
            )  # its parts are among its elements
            return None if computes else self._marks
        if issubclass(cls, (dict, tuple, list)):
            elements = self._items if issubclass(cls, dict) else _named if hasattr(cls, "_fields") else _elements
            is_plain = cls.__module__ in ("builtins", "collections")
            if is_plain:
                return elements
            return self._with_tensors(cls, lambda value: self._extended(elements(value), value))
        if is_array(cls):
            read_array = _array if self._is_own(cls) else _inside_array
            return read_array if is_array(cls, scalars=False) else None
        for base, read in _READERS.items():
            if issubclass(cls, base):
                return self._with_attributes(cls, read)
        if dataclasses.is_dataclass(cls):
            return self._with_tensors(cls, self._with_attributes(cls, _fields))
        if issubclass(cls, Mapping):
            return self._with_tensors(cls, self._mapping)
        if cls in CONTAINERS:
            return self._with_tensors(cls, self._registered)
        if cls in (types.FunctionType, types.MethodType, types.GeneratorType):
            return self._generator if cls is types.GeneratorType else self._function
        if cls in _EXACT:
            return _EXACT[cls]
        if self._is_own(cls) or issubclass(cls, types.SimpleNamespace):
            return _object
        return self._holder if _may_hold(cls) else None

    def _is_own(self, cls: type) -> bool:
        return bool(self._module) and cls.__module__ == self._module

    def _marks(self, value: torch.Tensor) -> list[Child]:
        """Return the attributes that a user has given a tensor."""
        held = object.__getattribute__(value, "__dict__")
        return [(f".{name}", child) for name, child in held.items() if not _MARKS_OF_TORCH.match(name)] if held else []

    def _extended(self, children: list[Child], value: Any, known: Collection[str] = ()) -> list[Child]:
        """Return the elements of a builtin container and the attributes that its subclass adds, unless these are
        elements or ``known``."""
        elements = {id(child) for _, child in children if type(child) not in PYTHON}  # equal ones may be one object
        is_own = self._is_own(type(value))
        added = [(f".{name}", child) for name, child in _members(value).items() if id(child) not in elements
                 and name not in known and (is_own or not (name.startswith("_") or child is None))]  # fmt: skip
        return children + added

    def _with_attributes(self, cls: type, read: Callable[[Any], list[Child]]) -> Callable[[Any], list[Child]]:
        """Return how objects of a class are opened: those of the case's own have attributes beside what ``read``
        returns."""
        if not self._is_own(cls):
            return read

        def read_all(value: Any) -> list[Child]:
            children = read(value)
            steps = {step for step, _ in children}
            return children + [child for child in _attributes(value) if child[0] not in steps]

        return read_all

    # --- objects of other packages' classes ---

    def _holder(self, value: Any) -> list[Child] | None:
        """Return what an object of another package's class holds: tensors, what they lie in, and plain values; None for
        one that holds no tensor.

        Private attributes without tensors are the package's own affair.
        """
        if id(value) in self._bare or next(self._tensors(value), None) is None:
            return None
        children = _foreign_members(value) or _elements_of_protocols(value)
        held = {step for step, child in children if next(self._tensors(child), None) is not None}
        kept = [(step, child) for step, child in children
                if step in held or not (step.startswith("._") or not _is_plain(child))]  # fmt: skip
        return kept if held else None

    def _with_tensors(self, cls: type, read: Callable[[Any], list[Child]]) -> Callable[[Any], list[Child]]:
        """Return how objects of a class are opened: those of other packages have attributes with further tensors beside
        what ``read`` returns."""
        if self._is_own(cls) or not _may_hold(cls):
            return read

        def read_all(value: Any) -> list[Child]:
            children, attributes = read(value), _foreign_members(value)
            steps = {step for step, _ in children} if attributes else set()
            if all(step in steps for step, _ in attributes):
                return children
            reached = {id(tensor) for _, child in children for tensor in self._tensors(child)}
            added = [(step, child) for step, child in attributes if step not in steps
                     and any(id(tensor) not in reached for tensor in self._tensors(child))]  # fmt: skip
            return children + added

        return read_all

    def _tensors(self, value: Any) -> Iterator[Any]:
        """Yield the tensors and arrays in a value, at any depth, as far as ``_SEARCHED`` objects hold them.

        What is compared in another way has none.
        """
        waiting, seen, is_bare = [value], dict[int, Any](), True
        while waiting and len(seen) < _SEARCHED:
            part = waiting.pop()
            cls = type(part)
            if cls in PYTHON or id(part) in seen or id(part) in self._bare or id(part) in self._roots:
                continue
            if issubclass(cls, torch.Tensor) or is_array(cls, scalars=False):
                is_bare = False
                yield part
                continue
            seen[id(part)] = part
            waiting += [child for child in self._parts(part) if type(child) not in PYTHON]
        if is_bare and not waiting:
            self._bare |= seen

    def _parts(self, value: Any) -> list[Any]:
        """Return what an object holds, the last first, without code of its class where it has attributes."""
        cls, kind = type(value), self._kind(type(value))
        if kind is None:
            return []
        members = list(_members(value).values())
        if issubclass(cls, dict):
            members += [*dict.keys(value), *dict.values(value)]
        elif issubclass(cls, (list, tuple)):
            members += (tuple if issubclass(cls, tuple) else list).__iter__(value)
        elif not members:
            children = _elements_of_protocols(value) if kind.read == self._holder else _read(kind, value)[0]
            members = [child for _, child in children or ()]
        return members[::-1]

    def _mapping(self, value: Any) -> list[Child]:
        """Return the values of a mapping, and its attributes except for the dictionary that holds these values."""
        items = ask(lambda: _limited(value.items()))
        children = self._keyed(items)
        if not (self._is_own(type(value)) or issubclass(type(value), collections.UserDict)):
            return children
        stored = _ids(items)
        stores = {name for name, held in _members(value).items()
                  if issubclass(type(held), dict) and _ids(dict.items(held)) == stored}  # fmt: skip
        return self._extended(children, value, stores)

    def _registered(self, value: Any) -> list[Child]:
        """Return what torch takes apart: the children of a container, and the context from which it makes another."""
        children, context = ask(lambda: CONTAINERS[type(value)].flatten_fn(value))
        elements = _numbered(ask(lambda: _limited(children))) + ([(".context", context)] if context is not None else [])
        return self._extended(elements, value) if self._is_own(type(value)) else elements

    def _function(self, value: Any) -> list[Child] | None:
        """Return what a function of the case's source keeps from call to call; None for one that keeps nothing."""
        if isinstance(value, types.MethodType):
            own = self._function(value.__func__) is not None or self._kind(type(value.__self__)) is not None
            return [(".__self__", value.__self__), (".__func__", value.__func__)] if own else None
        if not self._module or value.__globals__.get("__name__") != self._module:
            return None
        children = [(f".__defaults__[{index}]", child) for index, child in enumerate(value.__defaults__ or ())]
        children += [(f".__kwdefaults__[{name!r}]", child) for name, child in (value.__kwdefaults__ or {}).items()]
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # nothing was assigned
                children.append((f".__closure__[{name!r}]", cell.cell_contents))
        children += [(f".{name}", child) for name, child in vars(value).items() if not name.startswith("_")]
        return children or None

    def _generator(self, value: types.GeneratorType[Any, Any, Any]) -> list[Child] | None:
        """Return the line at which a generator of the case's source stands, and its variables; None for another one."""
        frame = value.gi_frame
        if not self._module or value.gi_code.co_filename != getattr(sys.modules.get(self._module), "__file__", None):
            return None
        if frame is None:
            return []
        variables = [(f".gi_frame.f_locals[{name!r}]", child) for name, child in frame.f_locals.items()]
        return [(".gi_frame.f_lineno", frame.f_lineno), *variables]

    def _items(self, value: dict[Any, Any]) -> list[Child]:
        ordered = isinstance(value, collections.OrderedDict)
        return self._keyed(_limited((collections.OrderedDict if ordered else dict).items(value)))

    def _keyed(self, items: list[tuple[Any, Any]]) -> list[Child]:
        """Return the values of a mapping, and keys that no text can stand for.

        Keys that read alike, as objects of one class, are told apart by their order.
        """
        children, counts = [], collections.Counter[str]()
        for key, child in items:
            is_plain = type(key) in (str, int)
            is_opened = not is_plain and self._is_opened(key)
            text = (repr(key) if is_plain else self._key(key, is_opened)).replace("; ", _SEMICOLON)
            counts[text] += 1
            step = f"[{text}]" if counts[text] == 1 else f"[{text} {counts[text]}]"
            if is_opened:
                children.append((f".keys(){step}", key))
            children.append((step, child))
        return children

    def _is_opened(self, key: Any) -> bool:
        """Return whether a key is, or holds, a tensor, a module or an object of the case's own class."""
        cls = type(key)
        if cls in PYTHON:
            return False
        if issubclass(cls, (tuple, frozenset)):
            base = tuple if issubclass(cls, tuple) else frozenset
            return any(map(self._is_opened, base.__iter__(key)))
        return issubclass(cls, (torch.Tensor, torch.nn.Module)) or (self._is_own(cls) and not issubclass(cls, _LEAVES))

    def _key(self, key: Any, is_opened: bool) -> str:
        """Return a text for a key that is the same in every run."""
        cls = type(key)
        if is_opened and cls is tuple:
            return f"({', '.join(self._key(part, self._is_opened(part)) for part in key)})"
        if is_opened or getattr(cls, "__repr__", None) is object.__repr__:
            return class_name(cls, self._module)
        try:
            return stable_text(ask(lambda: repr(key)), self._module)
        except Refusal:
            return class_name(cls, self._module)


def _read(kind: _Kind, value: Any) -> tuple[list[Child] | None, Unread | None]:
    """Return what is in a container, or why it cannot be read."""
    try:
        return kind.read(value), None
    except Refusal as refusal:
        return None, Unread(kind.name, str(refusal))
    except Exception as error:  # noqa: BLE001  a class of the case may raise anything
        return None, Unread(kind.name, f"reading it raises {describe(error)}")


def flatten(value: Any, root: str, module: str = "") -> tuple[str, Leaves]:
    """Return the structure of one value as a text, and the leaves with their paths, in order.

    Containers are what ``torch.utils._pytree`` registers, dataclasses, subclasses of dict, list and tuple, namespaces,
    objects of the case's own classes, those of other packages that hold tensors, modules and optimizers.
    Models return and hold such things, and a tensor inside an opaque leaf would not be compared. An object that stands
    in several places is opened at the first, and has its path elsewhere.
    """
    return Walk(module).flatten(value, root)


def class_name(cls: type, module: str = "") -> str:
    """Return a class's name, the same in every run: ``int``, ``torch.Tensor``, ``source.Point``."""
    where = "source" if module and cls.__module__ == module else cls.__module__
    return cls.__qualname__ if where == "builtins" else f"{where}.{cls.__qualname__}"


def stable_text(text: str, module: str) -> str:
    """Return a text without addresses of objects and without the name that the case's source was loaded under."""
    text = _ADDRESS.sub("", text)
    return text.replace(module, "source") if module else text


def _limited(values: Iterable[Any]) -> list[Any]:
    """Return as many values as a walk may see, and one more."""
    return list(itertools.islice(values, LARGEST + 1))


def _ids(items: Iterable[tuple[Any, Any]]) -> list[int]:
    return [id(part) for item in items for part in item]


def _numbered(values: Iterable[Any]) -> list[Child]:
    return [(f"[{index}]", child) for index, child in enumerate(values)]


def _elements(value: Any) -> list[Child]:
    return _numbered(_limited((tuple if isinstance(value, tuple) else list).__iter__(value)))


def _slice(value: slice) -> list[Child] | None:
    """Return the bounds of a slice; None where these are plain, as they mostly are."""
    bounds = [(f".{name}", getattr(value, name)) for name in ("start", "stop", "step")]
    return None if all(type(bound) in PYTHON for _, bound in bounds) else bounds


def _elements_left(value: Any) -> list[Child] | None:
    """Return what an iterator has left; None where its container has changed, so that it gives nothing more."""
    try:
        return _numbered(ask(lambda: _limited(copy.copy(value))))
    except Refusal:
        return None


def _iterator(value: Any) -> list[Child] | None:
    """Return what an iterator is made of, as pickle has it; None where this Python does not say it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            _, *parts = ask(value.__reduce__)
        except Refusal:
            return None
    return [(f".__reduce__()[{index}]", part) for index, part in enumerate(parts, 1) if part is not None]


def _bound(value: Any) -> list[Child] | None:
    """Return what a method of a builtin class is bound to, and its name; None for a function of a module."""
    owner = value.__self__
    is_function = owner is None or isinstance(owner, (type, types.ModuleType))
    return None if is_function else [(".__self__", owner), (".__name__", value.__name__)]


def _named(value: Any) -> list[Child]:
    # A namedtuple's own.
    return [(f".{name}", child) for name, child in zip(value._fields, tuple.__iter__(value))]  # noqa: B905


def _object(value: Any) -> list[Child]:
    return [(f".{name}", child) for name, child in _members(value).items()]


def _members(value: Any) -> dict[str, Any]:
    """Return the attributes that an object itself holds, in its slots and its ``__dict__``."""
    members = {}
    for base in reversed(type(value).__mro__):
        for name, slot in vars(base).items() if "__slots__" in vars(base) else ():
            if type(slot) is types.MemberDescriptorType:
                with contextlib.suppress(AttributeError):  # nothing was assigned
                    members[name] = slot.__get__(value)
    with contextlib.suppress(AttributeError):
        members.update(object.__getattribute__(value, "__dict__"))
    return members


def _may_hold(cls: type) -> bool:
    """Return whether objects of another package's class may be parts of a result."""
    home = str(cls.__module__)
    return home.partition(".")[0] not in _UNOPENED or home.startswith(_OPENED)


def _foreign_members(value: Any) -> list[Child]:
    """Return the attributes of an object of another package's class, in the order of their names.

    What its class computes once, such as a ``cached_property``, may be there or not.
    """
    members = _members(value)
    computed = {
        name for base in (type(value).__mro__ if members else ()) for name, held in vars(base).items()
        if name in members and hasattr(type(held), "__get__") and not hasattr(type(held), "__set__")
    }  # fmt: skip
    return [(f".{name}", members[name]) for name in sorted(members.keys() - computed)]


def _elements_of_protocols(value: Any) -> list[Child]:
    """Return what an object gives by the protocol of mappings or of sequences; nothing where it has none."""
    names = {name for base in type(value).__mro__[:-1] for name in vars(base)}
    if not {"__len__", "__getitem__"} <= names:
        return []
    with contextlib.suppress(Refusal):
        keys = ask(lambda: _limited(value.keys() if "keys" in names else range(len(value))))
        return [(f"[{key!r}]", child) for key, child in ask(lambda: [(key, value[key]) for key in keys])]
    return []


def _is_plain(value: Any, depth: int = 3) -> bool:
    """Return whether a value is a plain one, or a builtin container of such."""
    cls = type(value)
    if issubclass(cls, (*PLAIN, torch.Size, enum.Enum)):
        return True
    if not depth or cls not in (list, tuple, dict, set, frozenset) or len(value) > _SEARCHED:
        return False
    parts = itertools.chain(value, value.values()) if cls is dict else value
    return all(_is_plain(part, depth - 1) for part in parts)


def _module(value: torch.nn.Module) -> list[Child]:
    """Return the parameters and buffers of a module, and what else it holds."""
    every = torch_modules.named_modules(value)
    tensors = (*torch_modules.parameters(every), *torch_modules.buffers(every))
    others = torch_modules.attributes(torch_modules.distinct(every))
    return [(f".{name}", child) for name, child in (*tensors, *others)]


def _fields(value: Any) -> list[Child]:
    members = _members(value)
    return [(f".{field.name}", members[field.name]) for field in dataclasses.fields(value) if field.name in members]


def _optimizer(value: torch.optim.Optimizer) -> list[Child]:
    """Return the state of an optimizer, its groups, in which numbers stand for parameters, and its hooks.

    Compilers set ``capturable``.
    """
    saved = ask(value.state_dict)
    groups = [{name: child for name, child in group.items() if name != "capturable"} for group in saved["param_groups"]]
    tables = [(f".{name}", table) for name, table in _members(value).items() if name.endswith("_hooks") and table]
    hooks = [(step, list(table.values())) for step, table in tables if issubclass(type(table), dict)]
    return [(".state", saved["state"]), (".param_groups", groups), *hooks]


def _attributes(value: Any) -> list[Child]:
    """Return the attributes of an instance of the case's own class.

    Bases that keep their own in private ones lose those. Marks of what torch compiled are no attributes.
    """
    is_public = issubclass(type(value), (enum.Enum, torch.optim.Optimizer)) or _is_masked(type(value))
    members = {name: child for name, child in _members(value).items() if name not in torch_modules.MARKS}
    return [(f".{name}", child) for name, child in members.items() if not (is_public and name.startswith("_"))]


def is_array(cls: type, scalars: bool = True) -> bool:
    """Return whether a class is one of NumPy's arrays or, if asked for, scalars; a ``float64`` is a Python float
    too."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(cls, (numpy.ndarray, numpy.generic) if scalars else numpy.ndarray)


def _is_masked(cls: type) -> bool:
    return is_array(cls, scalars=False) and issubclass(cls, sys.modules["numpy"].ma.MaskedArray)


def _inside_array(array: Any) -> list[Child] | None:
    """Return the fields, the mask or the objects of an array; None for one of values, which counts as a leaf."""
    numpy = sys.modules["numpy"]
    if _is_masked(type(array)):
        return [(".data", numpy.ma.getdata(array)), (".mask", numpy.ma.getmaskarray(array))]
    plain = array.view(numpy.ndarray)
    if plain.dtype.names:
        return [(f"[{name!r}]", plain[name]) for name in plain.dtype.names]
    return [(f".flat[{index}]", child) for index, child in enumerate(plain.flat)] if plain.dtype.hasobject else None


def _array(value: Any) -> list[Child] | None:
    """Return what an array of the case's own class holds: its attributes, and its elements as a plain array."""
    inside, attributes = _inside_array(value), _attributes(value)
    if inside is None and not attributes:
        return None
    return [*([(".array", sys.modules["numpy"].asarray(value))] if inside is None else inside), *attributes]


_EXACT: dict[type, Callable[[Any], list[Child] | None]] = {
    **dict.fromkeys(_ITERATORS, _iterator),
    **dict.fromkeys(_COPIED, _elements_left),
    **dict.fromkeys(_BOUND, _bound),
    **dict.fromkeys(_VIEWS, lambda view: _numbered(ask(lambda: _limited(view)))),
    slice: _slice,
}
"""How objects of Python's own classes are opened, without their subclasses."""

_READERS: dict[type, Callable[[Any], list[Child]]] = {
    torch.nn.Module: _module,
    torch.optim.Optimizer: _optimizer,
    torch.optim.lr_scheduler.LRScheduler: lambda value: [(".state", ask(value.state_dict))],
    functools.partial: lambda value: [(".func", value.func), (".args", value.args), (".keywords", value.keywords)],
    staticmethod: lambda value: [(".__func__", value.__func__)],
    classmethod: lambda value: [(".__func__", value.__func__)],
}
