"""Arguments of a graph's calls as plain data of the YAML format."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from runner.contract.graphs import UnsayableError, index_text

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
        return index_text(value, lambda part: str(self._write_node(part)) if isinstance(part, Node) else None)

    def _text(self, text: str) -> Any:
        is_special = text.startswith(("$", "torch.", "[")) or "${" in text or _COMPLEX.fullmatch(text)
        is_name = text in _PYTHON or text in self._names() or not callable(getattr(torch, text, print))
        return {"$text": text} if is_special or is_name else text
