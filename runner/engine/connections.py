"""The engine's socket, and the connections that servers and jobs open to it. They carry JSON objects, one a line."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.engine.wire import read_message

MAX_LINE = 64 << 20
"""Bytes of one message at which a connection is given up."""

_SOCKET = "control"


class Channel:
    """One connection; ``owner`` is whoever is at the other end, once that is known."""

    def __init__(self, connection: socket.socket, selector: selectors.BaseSelector) -> None:
        """Watch ``connection`` by means of ``selector``, until ``close``."""
        connection.setblocking(False)
        self.owner: Any = None
        self._socket = connection
        self._selector = selector
        self._buffer = bytearray()
        selector.register(connection, selectors.EVENT_READ, self)

    @property
    def closed(self) -> bool:
        """Whether this end was closed."""
        return self._socket.fileno() < 0

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """Return every complete message that has arrived, and whether there will be no other.

        The last one is ``{"unreadable": reason}`` if the other end sent anything else.
        """
        if self.closed:
            return [], True
        hung_up = False
        while len(self._buffer) <= MAX_LINE:
            try:
                data = self._socket.recv(1 << 18)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                hung_up = True
                break
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        messages: list[dict[str, Any]] = []
        try:
            for line in lines:
                messages.append(read_message(bytes(line)))
            if len(self._buffer) > MAX_LINE:
                raise ValueError(f"it has more than {MAX_LINE >> 20} MiB")
        except ValueError as error:
            return [*messages, {"unreadable": f"a message of the worker is refused: {error}"}], True
        return messages, hung_up

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message. An end that is gone, or reads nothing for 5 s, is left to be noticed by its silence."""
        line = json.dumps(message, default=_plain).encode() + b"\n"
        with contextlib.suppress(OSError):
            self._socket.settimeout(5)
            self._socket.sendall(line)
            self._socket.setblocking(False)

    def close(self) -> None:
        """Hang up. Can be called twice."""
        if not self.closed:
            self._selector.unregister(self._socket)
            self._socket.close()


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


class Connections:
    """A socket in ``folder`` that accepts connections, and all that are open."""

    def __init__(self, folder: Path) -> None:
        """Listen at once.

        Raises:
            OSError: the socket cannot be made.
        """
        self.address = str(folder / _SOCKET)
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind(self.address)
        self._listener.listen(1024)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def wait(self, timeout: float) -> list[Channel]:
        """Wait up to ``timeout`` seconds; the connections on which something arrived. New ones are taken in."""
        ready = [key.data for key, _ in self._selector.select(timeout)]
        if None in ready:
            self._accept()
        return [channel for channel in ready if channel is not None]

    def strangers(self) -> list[Channel]:
        """Return the connections, also those not accepted before this call, that have not said whose they are."""
        self._accept()
        channels = [key.data for key in self._selector.get_map().values()]
        return [channel for channel in channels if channel is not None and channel.owner is None]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                Channel(connection, self._selector)

    def close(self) -> None:
        """Close the socket and every connection."""
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
