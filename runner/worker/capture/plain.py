"""Arguments of a graph's calls as plain data of the YAML format."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from runner.worker.capture.names import UnsayableError

_COMPLEX = re.compile(r"[-+0-9.einfa]*j")
_PYTHON = ("None", "inf", "-inf", "nan")


class Arguments:
    """Writes arguments. ``names`` says how a node is written; ``device`` is the graph's own."""

    def __init__(
        self, write_node: Callable[[Node], Any], names: Callable[[], Sequence[str]], device: torch.device | None
    ) -> None:
        """Keep how nodes are written, and the names that a text may be taken for."""
        self._write_node, self._names, self._device = write_node, names, device

    def value(self, value: Any) -> Any:
        """Return one value.

        Raises:
            UnsayableError: the format has no such value.
        """
        if isinstance(value, Node):
            return self._write_node(value)
        if value is None or type(value) in (bool, int, float):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return str(value)
        if isinstance(value, torch.device):
            return "$device" if value == self._device else str(value)
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {key: self.value(item) for key, item in value.items()}
        if isinstance(value, torch.SymInt):
            return int(value)
        raise UnsayableError(f"an argument is a {type(value).__name__}")

    def index(self, value: Any) -> Any:
        """Return an index, as the second argument of ``operator.getitem``.

        Raises:
            UnsayableError: the format has no such index.
        """
        if type(value) in (int, str) and not isinstance(value, bool):
            return self.value(value)
        entries = value if isinstance(value, tuple) else (value,)
        # A tuple of one is that index, but an empty one takes all of the tensor.
        return f"[{', '.join(map(self._entry, entries))}]" if entries else "[...]"

    def _entry(self, value: Any) -> str:
        if isinstance(value, slice):
            parts = ["" if part is None else self._entry(part) for part in (value.start, value.stop, value.step)]
            return ":".join(parts if parts[2] else parts[:2])
        if value is Ellipsis:
            return "..."
        if isinstance(value, Node):
            return str(self._write_node(value))
        if isinstance(value, list) and all(type(item) is int for item in value):
            return str(value)
        if value is None or type(value) in (bool, int):
            return str(value)
        raise UnsayableError(f"an index holds a {type(value).__name__}")

    def _text(self, text: str) -> Any:
        is_special = text.startswith(("$", "torch.", "[")) or "${" in text or _COMPLEX.fullmatch(text)
        is_name = text in _PYTHON or text in self._names() or not callable(getattr(torch, text, print))
        return {"$text": text} if is_special or is_name else text
