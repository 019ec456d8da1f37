"""When torch compiles, told to control while it does, so that compiling can have a limit of its own."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import torch._dynamo


class CompileWatch:
    """While the block lasts, says when torch begins to compile and how many seconds it has compiled.

    ``torch._dynamo.reset()`` forgets the callbacks, so a block begins after it. torch 2.6 and 2.7 call them for each
    frame that is compiled within another one.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        """Keep ``send``, which is given ``{"compiling": None}`` and ``{"compiling": seconds}`` in turn."""
        self.seconds = 0.0
        self._send, self._depth, self._since = send, 0, 0.0

    def __enter__(self) -> CompileWatch:
        """Register with torch."""
        torch._dynamo.callback_handler.register_start_callback(self._start)
        torch._dynamo.callback_handler.register_end_callback(self._end)
        return self

    def __exit__(self, *raised: object) -> None:
        """Leave torch's lists, as far as it has not forgotten them."""
        handler = torch._dynamo.callback_handler
        if self._start in handler.start_callbacks:
            handler.remove_start_callback(self._start)
        if self._end in handler.end_callbacks:
            handler.remove_end_callback(self._end)

    def _start(self, *_: object) -> None:
        self._depth += 1
        if self._depth == 1:
            self._since = monotonic()  # bound early: the case may have replaced it, and its code runs now
            self._send({"compiling": None})

    def _end(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += monotonic() - self._since
            self._send({"compiling": self.seconds})
