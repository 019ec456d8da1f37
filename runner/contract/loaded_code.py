"""Where the code of this process came from. The worker says it of itself, and an interpreter of itself as it starts."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

LIBRARY = os.path.dirname(os.__file__)
"""Python's own."""


class _SharedObject(ctypes.Structure):
    """The dynamic linker's ``link_map``, see ``link.h``."""


_SharedObject._fields_ = [
    ("address", ctypes.c_void_p),
    ("name", ctypes.c_char_p),
    ("section", ctypes.c_void_p),
    ("next", ctypes.POINTER(_SharedObject)),
]
_LINK_MAP = 2  # RTLD_DI_LINKMAP of dlinfo


def find_loaded_code(known: Iterable[str] = ()) -> list[str]:
    """Return the folders of packages, and the files of modules, archives and shared objects, that were loaded.

    A place that lies in the folder of a package is not named. Neither is what lies in Python's own library, or in one
    of the folders ``known``.
    """
    places = {place for module in list(sys.modules.values()) for place in _places(module)}
    places |= {sys.executable, *shared_objects()}
    places = {place if place[:1] == os.sep and ".." not in place else os.path.abspath(place) for place in places}
    left_out = tuple(folder + os.sep for folder in known if folder)
    code: list[str] = []
    # A folder comes right before what it holds, as no character of a name is smaller than this separator.
    for place in sorted(places, key=lambda place: place.replace(os.sep, "\0")):
        is_inside = bool(code) and place.startswith(code[-1] + os.sep)
        if not (is_inside or place.startswith(left_out) or _is_library(place)):
            code.append(place)
    return code


def _is_library(place: str) -> bool:
    """Return whether a place is Python's own library, which may have folders of installed packages within."""
    return place.startswith(LIBRARY + os.sep) and "-packages" not in place[len(LIBRARY) :]


def _places(module: Any) -> Iterator[str]:
    try:
        values = object.__getattribute__(module, "__dict__")  # a module that is loaded late is not asked itself
    except AttributeError:  # None, which blocks an import
        return
    spec, file = values.get("__spec__"), values.get("__file__")
    archive = getattr(getattr(spec, "loader", None), "archive", None)
    if isinstance(archive, str):
        yield archive
    elif isinstance(file, str) and (spec is not None or os.path.isabs(file)):  # torch.ops claims a relative one
        yield file
        yield from (path for path in values.get("__path__") or () if isinstance(path, str))


def shared_objects() -> list[str]:
    """Return the paths of the shared objects of this process, under the names by which they were searched.

    The list is read without the linker's lock. ``dl_iterate_phdr`` would hold it while its callback waits for the
    interpreter, and another thread may wait for the lock in ``dlopen`` and hold the interpreter.
    """
    names: list[str] = []
    if sys.platform == "linux":
        program, place = ctypes.CDLL(None), ctypes.POINTER(_SharedObject)()
        program.dlinfo(ctypes.c_void_p(program._handle), _LINK_MAP, ctypes.byref(place))
        while place:
            names.append(os.fsdecode(place.contents.name or b""))
            place = place.contents.next
    return [name for name in names if os.sep in name]
