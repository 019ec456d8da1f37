"""The zygote that stays warm: who may connect, and which compiled code it may remember. ``tests/engine/test_kept.py`` has
the rest."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from runner.contract.peers import Peer, peer_of
from runner.worker.server import keeper
from runner.worker.server.keeper import Keeper, compiled_code, has_changed, listen


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="k-", dir="/tmp") as folder:
        yield Path(folder)


def never(order: dict[str, Any], parent: int) -> NoReturn:
    raise AssertionError("no server was asked for")


@pytest.mark.parametrize("user", [os.getuid(), os.getuid() + 1])
def test_another_users_process_is_not_served(user: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(folder / "socket")
    zygote = Keeper(path, listen(path), never, 60.0, {})
    with socket.socket(socket.AF_UNIX) as connection, zygote.listener:
        connection.connect(path)
        assert peer_of(connection) == Peer(os.getpid(), os.getuid())
        monkeypatch.setattr(keeper, "peer_of", lambda connection: Peer(1, user))
        zygote._accept()
        connection.settimeout(0.2)
        if user == os.getuid():
            assert len(zygote._runs) == 1
            with pytest.raises(TimeoutError):
                connection.recv(1)
            zygote._hang_up(zygote._runs[0])
        else:
            assert (zygote._runs, connection.recv(1)) == ([], b"")


def test_a_socket_takes_the_place_of_what_lies_there(folder: Path) -> None:
    (folder / "socket").write_text("old")
    with listen(str(folder / "socket")):
        status = os.lstat(folder / "socket")
        assert stat.S_ISSOCK(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o600
        assert os.listdir(folder) == ["socket"]


@pytest.mark.parametrize(
    ("edit", "changes"),
    [
        (lambda folder: None, False),
        (lambda folder: (folder / "kernels" / "new.so").touch(), False),
        (lambda folder: (folder / "fxgraph" / "graph").unlink(), False),
        (lambda folder: (folder / "a.tmp").unlink(), False),
        (lambda folder: (folder / "kernels" / "k.so").unlink(), True),
        (lambda folder: (folder / "kernels" / "k.so").write_text("two"), True),
        (lambda folder: (folder / "header.h").rename(folder / "other.h"), True),
    ],
    ids=["nothing", "a new file", "a graph", "an unfinished file", "gone", "another content", "another name"],
)
def test_compiled_code_that_may_be_remembered(edit: Callable[[Path], object], changes: bool, folder: Path) -> None:
    for name in ("kernels/k.so", "fxgraph/graph", "header.h", "a.tmp"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("one!")
    stamps = compiled_code(str(folder))
    assert {os.path.relpath(path, folder) for path in stamps} == {"kernels/k.so", "header.h"}
    edit(folder)
    assert has_changed(stamps) == changes
