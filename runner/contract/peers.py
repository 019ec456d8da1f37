"""Whose process is at the other end of a Unix socket. Both halves ask, so this imports the standard library alone."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple


class Peer(NamedTuple):
    """A process, and the user that it belongs to."""

    pid: int
    user: int


def peer_of(connection: socket.socket) -> Peer:
    """Return the process at the other end, as the kernel knows it.

    Raises:
        OSError: the system does not say it.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        raise OSError("this system does not say who connects")
    pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return Peer(pid, user)
