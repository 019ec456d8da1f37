"""Plants a mutant in this process: the functions that it changes get new code, and nothing is imported anew.

Both texts of the file are compiled, and their code objects are paired. Every function that has a code object of the
first text gets its partner, wherever it is kept: in a table of lowerings, in a closure, as a method.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from runner.contract.lines import TORCH
from runner.contract.mutant import Mutant
from runner.contract.settings import CACHE_FOLDER, TRITON_FOLDER
from runner.worker.processes import temporary_folder
from runner.worker.program.lines import spec_of

_TORCH = Path(torch.__file__).parent


_BUILDERS = tuple(
    f"_inductor/{name}"
    for name in ("async_compile.py", "codecache.py", "compile_worker/", "cpp_builder.py", "cpu_vec_isa.py", "runtime/")
)
"""What makes libraries of generated code. The key of a library is the code and the command that compiles it."""


class NotPlanted(Exception):
    """The mutant cannot be planted; the message says why."""


def plant(mutant: Mutant) -> None:
    """Let this process run the mutant from now on. The compiler's caches on disk have another key for it.

    Raises:
        NotPlanted: the file is another one, the text is no Python, or no function runs the code.
    """
    module, path = _module_of(mutant.file)
    source = path.read_bytes()
    try:
        changed = mutant.apply(source)
        importlib.import_module(module)
        pairs = dict(_pairs(_compiled(source, path), _compiled(changed, path)))
    except (ValueError, SyntaxError, ImportError) as error:
        raise NotPlanted(str(error)) from error
    functions = [function for function in _functions() if function.__code__ in pairs]
    if not functions:
        raise NotPlanted("no function of this process has the code")
    try:
        for function in functions:
            function.__code__ = pairs[function.__code__]
    except ValueError as error:  # another number of free variables
        raise NotPlanted(str(error)) from error
    config: Any = getattr(torch.compiler, "config", None)
    if hasattr(config, "cache_key_tag"):  # a worker turns the caches of older ones off
        config.cache_key_tag = mutant.id


def own_kernels(mutant: Mutant) -> contextlib.AbstractContextManager[None]:
    """Return what gives a job a kernel cache of its own, where libraries that others made would hide the mutant."""
    return _empty_caches() if mutant.file.startswith(_BUILDERS) else contextlib.nullcontext()


@contextlib.contextmanager
def _empty_caches() -> Iterator[None]:
    with (
        temporary_folder() as folder,
        mock.patch.dict(os.environ, dict.fromkeys((CACHE_FOLDER, TRITON_FOLDER), folder)),
    ):
        yield


def _module_of(file: str) -> tuple[str, Path]:
    """Return the name of a file's module, and its path. Raises NotPlanted without such a file."""
    parts = [*Path(file).with_suffix("").parts]
    if parts[0] in TORCH:
        parts, folders = ["torch", *parts], [_TORCH]
    else:
        spec = spec_of(parts[0])
        if spec is None:
            raise NotPlanted(f"no package {parts[0]} here")
        places = spec.submodule_search_locations or [spec.origin or ""]
        folders = [Path(place).parent for place in places]
    path = next((folder / file for folder in folders if (folder / file).is_file()), None)
    if path is None:
        raise NotPlanted(f"no file {file} here")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _compiled(source: bytes, path: Path) -> types.CodeType:
    code: types.CodeType = compile(source, str(path), "exec", dont_inherit=True)
    return code


def _pairs(first: types.CodeType, second: types.CodeType) -> Iterator[tuple[types.CodeType, types.CodeType]]:
    """Yield the code objects in ``first`` that differ from their partners. Raises ValueError where one has none."""
    inner = [[const for const in code.co_consts if isinstance(const, types.CodeType)] for code in (first, second)]
    if len(inner[0]) != len(inner[1]):
        raise ValueError("the change adds or removes a function")
    for one, other in zip(*inner, strict=True):
        if one != other:
            yield one, other
            yield from _pairs(one, other)


def _functions() -> list[types.FunctionType]:
    """Return all functions of the process, those that were made before it was forked too."""
    gc.unfreeze()
    return [each for each in gc.get_objects() if type(each) is types.FunctionType]
