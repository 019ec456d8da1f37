"""Python files that a spec file names: which may be named, and what they define. None is imported here.

Names of the written source are here too: which a case may take, and which belong to the source or to ``nn.Module``.
"""

from __future__ import annotations

import ast
import functools
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from runner.cases.limits import show_size
from runner.cases.problems import Problems
from runner.cases.yaml.values import YamlNode, scalar
from runner.diagnostics import Span
from runner.files import open_regular, read_text

_MOST_IMPORTS = 500
_LARGEST_IMPORT = 4 << 20
"""Bytes of an imported file that are read."""


def resolve_python_file(node: YamlNode, file: str, problems: Problems) -> Path | None:
    """Return the path of the Python file that ``node`` names, in the folder of the spec file ``file`` or below.

    Anything else is reported. Returns None where the file cannot even be read. Raises Mistyped for no text.
    """
    errors = problems.errors
    full = resolve_file(node, file, problems)
    if full is None or problems.errors > errors:
        return full
    path = str(node.plain())
    try:
        if full.stat().st_size > problems.limits.file_bytes:
            return problems.refuse(
                None,
                node.span,
                f"{path!r} is larger than {show_size(problems.limits.file_bytes)}",
                problems.limits.hint("file_bytes"),
            )
        read_text(full)
    except (OSError, ValueError) as error:  # no UTF-8
        return problems.refuse(None, node.span, f"{path!r} cannot be read: {error}")
    return full


def resolve_file(node: YamlNode, file: str, problems: Problems) -> Path | None:
    """Return the path of the file that ``node`` names, in the folder of the spec file ``file`` or below.

    Anything else is reported. Returns None where its place cannot be told. Raises Mistyped for no text.
    """
    path: str = scalar(node, str)
    try:
        named = Path(file).parent / path
        full = named.resolve()
        if not full.exists():
            is_link = named.is_symlink()
            problems.error(
                node.span, f"{path!r} is a link to no file" if is_link else f"no file {path!r} beside this one"
            )
        elif not full.is_file():
            problems.error(node.span, f"{path!r} is no regular file")
        elif Path(file).resolve().parent not in full.parents:
            hint = "a spec file reaches its own folder and those below: one further up reaches both"
            problems.error(node.span, f"{path!r} lies outside this file's folder", hint)
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name, a circle of links
        return problems.refuse(None, node.span, f"{path!r} cannot be read: {error}")
    return full


def own_imports(file: Path) -> dict[str, str]:
    """Return the files of a file's own folder that it imports, and those that they import: path from the folder to
    text.

    Imports are found in the text, so those by a computed name are not. At most ``_MOST_IMPORTS`` files are looked at.
    """
    root, waiting = file.parent, [file]
    texts: dict[str, str] = {}
    while waiting and len(texts) < _MOST_IMPORTS:
        place = waiting.pop()
        name = place.relative_to(root).as_posix()
        if name in texts:
            continue
        try:
            with open_regular(place) as handle:
                texts[name] = handle.read(_LARGEST_IMPORT).decode()
        except (OSError, ValueError):  # none there, a folder, or no UTF-8
            continue
        for level, words in _imports(texts[name]):
            base = [root, *place.parents][level] if level <= len(place.parents) else Path("/")
            if base == root or root in base.parents:
                paths = [base.joinpath(*words[:depth]) for depth in range(len(words) + 1)]
                waiting += [path / "__init__.py" for path in paths[0 if level else 1 :]]
                waiting += [path.with_name(f"{path.name}.py") for path in paths[1:]]
    texts.pop(file.name, None)
    return texts


@functools.lru_cache(maxsize=256)
def _imports(text: str) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Return what a text imports, each with its level: the dots before it.

    A name that is taken from a module may be one itself.
    """
    try:
        nodes = [*ast.walk(ast.parse(text))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a run will say so
        return ()
    absolute = [(0, alias.name) for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    relative = [
        (node.level, f"{node.module or ''}.{alias.name}")
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    return tuple(
        (level, tuple(filter(None, name.replace("*", "").split("."))))
        for level, name in dict.fromkeys(absolute + relative)
    )


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function: those that take positions, in order, and those that take names alone.

    ``tuned``: other decorators than jit may give it constants of their own.
    """

    name: str
    positional: tuple[str, ...]
    keywords: tuple[str, ...]
    required: frozenset[str]  # without a default
    unnamed: int  # how many of the positional ones have no name for a caller
    takes_more: bool  # *args
    takes_any: bool  # **kwargs
    constexpr: frozenset[str]
    jit: bool
    tuned: bool

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return all that have a name of their own, in order."""
        return (*self.positional, *self.keywords)


def read_signatures(path: Path, span: Span, problems: Problems) -> dict[str, Signature] | None:
    """Return the functions at the top of a file by name; None for a file that is no Python, which is reported at
    ``span``."""
    try:
        return {
            node.name: _signature(node) for node in ast.parse(read_text(path)).body if isinstance(node, ast.FunctionDef)
        }
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else error
        return problems.refuse(None, span, f"{path.name} is no Python{line}: {reason}")


@functools.lru_cache(maxsize=256)
def read_forward(text: str, name: str) -> Signature | None:
    """Return the parameters of ``forward``, without ``self``, of a class of a file or of its bases in the same file.

    None where the file does not tell: the class or its base is imported, a decorator may change them, or it is no
    Python.
    """
    try:
        top = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a run will say so
        return None
    classes = {node.name: node for node in top if isinstance(node, ast.ClassDef)}
    changed = set[str]().union(*map(assigned_names, top))
    waiting, seen = [name], set[str]()
    while waiting:
        node = classes.get(title := waiting.pop(0))
        if node is None or title in seen or title in changed:
            return None
        seen.add(title)
        if any("forward" in names for names in map(assigned_names, node.body)):
            return None
        methods = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "forward"]
        if methods:
            return _forward(methods[-1])
        waiting += [base.id if isinstance(base, ast.Name) else "" for base in node.bases]
    return None


@functools.lru_cache(maxsize=256)
def read_function(text: str, name: str) -> Signature | None:
    """Return the parameters of a function at the top of a file.

    None for a class, and where the file does not tell: the name is imported or made anew, a decorator may change the
    parameters, or it is no Python.
    """
    try:
        top = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a run will say so
        return None
    functions = [node for node in top if isinstance(node, ast.FunctionDef) and node.name == name]
    is_made_anew = any(name in assigned_names(node) for node in top) or len(functions) != 1
    return None if is_made_anew or not _keeps_parameters(functions[0]) else _signature(functions[0])


@functools.lru_cache(maxsize=256)
def read_calls(text: str, name: str) -> tuple[str, ...]:
    """Return the functions and classes that one of a file calls, and those of the file that it uses, by full names.

    Those of values are not among them. A file that is no Python calls nothing.
    """
    try:
        tree = ast.parse(text)
        nodes = [*ast.walk(tree)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a run will say so
        return ()
    full_names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            full_names.update((alias.asname, alias.name) for alias in node.names if alias.asname)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            full_names.update((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
    own = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    waiting, seen, calls = [name], set[str](), dict[str, None]()
    while waiting:
        title = waiting.pop()
        if title in seen or title not in own:
            continue
        seen.add(title)
        for node in ast.walk(own[title]):
            if isinstance(node, ast.Name):
                waiting.append(node.id)
            elif isinstance(node, ast.Call) and (words := _words(node.func)):
                calls[".".join([full_names.get(words[0], words[0]), *words[1:]])] = None
    return tuple(calls)


def _words(node: ast.expr) -> list[str]:
    """Return the words of a name such as ``torch.nn.Linear``; nothing for another expression."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.insert(0, node.attr)
        node = node.value
    return [node.id, *words] if isinstance(node, ast.Name) else []


def assigned_names(node: ast.stmt) -> set[str]:
    """Return the names that an assignment gives a value; an empty set for another statement."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}


_TRANSPARENT = frozenset({"no_grad", "enable_grad", "inference_mode", "disable", "override", "autocast", "compile"})
"""Decorators under which a function keeps its parameters."""


def _forward(node: ast.FunctionDef) -> Signature | None:
    signature = _signature(node)
    if not signature.positional or not _keeps_parameters(node):
        return None
    return replace(signature, positional=signature.positional[1:], unnamed=max(0, signature.unnamed - 1))


def _keeps_parameters(node: ast.FunctionDef) -> bool:
    return all(_last_name(decorator) in _TRANSPARENT for decorator in node.decorator_list)


@functools.lru_cache(maxsize=256)
def top_names(text: str) -> Mapping[str, int]:
    """Return the names that a file defines at its top, without imports, each with its line.

    Raises SyntaxError for no Python.
    """
    lines: dict[str, int] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            lines[node.name] = node.lineno
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))
            lines.update((name.id, node.lineno) for name in names)
    return lines


def _signature(node: ast.FunctionDef) -> Signature:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    parameters = [*positional, *arguments.kwonlyargs]
    missing = [False] * len(arguments.defaults) + [default is None for default in arguments.kw_defaults]
    missing = [True] * (len(parameters) - len(missing)) + missing
    decorators = [_last_name(decorator) for decorator in node.decorator_list]
    return Signature(
        node.name,
        tuple(p.arg for p in positional),
        tuple(p.arg for p in arguments.kwonlyargs),
        frozenset(p.arg for p, is_required in zip(parameters, missing, strict=True) if is_required),
        len(arguments.posonlyargs),
        arguments.vararg is not None,
        arguments.kwarg is not None,
        frozenset(p.arg for p in parameters if p.annotation is not None and "constexpr" in ast.unparse(p.annotation)),
        "jit" in decorators,
        any(name != "jit" for name in decorators),
    )


def _last_name(node: ast.expr) -> str:
    """``jit`` of ``@triton.jit``, ``@jit`` and ``@triton.jit(...)``."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# --- names of the written source ---

RESERVED = frozenset({"self", "torch", "nn", "F", "numpy", "operator", "dtype", "device", "super", "_"})
"""Names that the written source uses itself."""

OF_MODULES = frozenset({
    "T_destination", "add_module", "apply", "bfloat16", "buffers", "call_super_init", "children", "compile", "cpu",
    "cuda", "double", "dump_patches", "eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state",
    "get_parameter", "get_submodule", "half", "ipu", "load_state_dict", "modules", "mtia", "named_buffers",
    "named_children", "named_modules", "named_parameters", "parameters", "register_backward_hook", "register_buffer",
    "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
    "register_full_backward_pre_hook", "register_load_state_dict_post_hook", "register_load_state_dict_pre_hook",
    "register_module", "register_parameter", "register_state_dict_post_hook", "register_state_dict_pre_hook",
    "requires_grad_", "set_extra_state", "set_submodule", "share_memory", "state_dict", "to", "to_empty", "train",
    "training", "type", "xpu", "zero_grad",
})  # fmt: skip
"""Attributes that every ``nn.Module`` has: state or a submodule of such a name would not be reached, the attribute
would."""

NAME_HINT = "names are Python names that the source does not use itself"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # not \w: Python reads many other letters as these


def is_name(text: str, reserved: frozenset[str] = RESERVED) -> bool:
    """Return whether ``text`` can be a variable of the written source.

    With other ``reserved`` names it can be an attribute or a keyword argument.
    """
    return (
        bool(_NAME.fullmatch(text))
        and not keyword.iskeyword(text)
        and not text.startswith("__")
        and text not in reserved
    )
