"""An empty torchvision, so that timm can be imported beside a torch that torchvision is not built for."""

from __future__ import annotations

import contextlib
import enum
import sys
import types
from collections.abc import Iterator
from typing import Any

_MODULES = ("", ".transforms", ".transforms.functional", ".ops", ".ops.misc", ".datasets", ".models",
            ".models.feature_extraction")  # fmt: skip


InterpolationMode = enum.Enum(
    "InterpolationMode",
    {name.upper(): name for name in ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")},
)


class _Empty(types.ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        own = InterpolationMode if name == "InterpolationMode" else type(name, (), {})
        return sys.modules.get(full, own)


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Put the empty modules where an import finds them while the block lasts: packages ask whether it is there."""
    modules = {f"torchvision{name}": _Empty(f"torchvision{name}") for name in _MODULES}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
