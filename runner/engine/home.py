"""What a local engine has before it has jobs. A command makes it early, so that torch is imported while it reads its files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from runner import interrupts
from runner.engine import interpreters, scratch
from runner.engine.connections import Connections
from runner.engine.kernel_caches import KernelCaches
from runner.engine.zygotes import Zygotes


class Home(contextlib.AbstractContextManager["Home"]):
    """A temporary folder, a socket in it, and the zygotes that connect there.

    Attributes:
        folder: goes with ``close``.
        environ: variables of every worker.
        caches: the folders of compiled code.
    """

    def __init__(self) -> None:
        """Make the folder and the socket. Raises UsageError if no temporary folder can be made."""
        self.environ: dict[str, str] = {}
        self._watched: dict[Path, tuple[int, int]] = {}  # descriptor, so that no other file gets its inode, and mode
        self._open()

    def _open(self) -> None:
        self.folder = scratch.make()
        self._work = self.folder / "work"  # for what jobs write
        self._work.mkdir()
        self.environ |= {
            scratch.VARIABLE: str(self._work),
            "TMPDIR": str(self._work),
        }  # compilers that are killed leave files
        self.connections = Connections(self.folder)
        self.caches = KernelCaches(self.folder / "kernels")
        self.zygotes = Zygotes(self.connections.address, self.caches)
        self._is_closed = False
        for path in (self.folder, self._work, Path(self.connections.address)):
            self._watch(path)

    def __exit__(self, *exception: object) -> None:
        self.close()

    def prepare(self, pythons: Iterable[str]) -> None:
        """Let interpreters import torch. What is wrong with one shows when a job needs it."""
        for number, python in enumerate(pythons):
            with contextlib.suppress(OSError):
                path = interpreters.find_python(python) or python
                self.zygotes.prepare(path, self.environ, self.folder / f"zygote-{number}.log")

    def work_folder(self, slot: int) -> Path:
        """Return the folder for what the jobs of a slot write. It is made for the first one."""
        path = self._work / str(slot)
        if path not in self._watched:
            with contextlib.suppress(OSError):  # then ``damage`` is not empty
                path.mkdir()
                self._watch(path)
        return path

    def _watch(self, path: Path) -> None:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW)
        self._watched[path] = descriptor, os.fstat(descriptor).st_mode

    def damage(self) -> str:
        """Return what somebody has removed or changed, so that processes cannot write or connect; empty if nothing."""
        for path, (descriptor, mode) in self._watched.items():
            try:
                status = os.lstat(path)
            except OSError:
                return f"{path} is gone"
            if not os.path.samestat(status, os.fstat(descriptor)) or status.st_mode != mode:
                return f"{path} is not what it was"
        return ""

    def renew(self) -> None:
        """Begin anew, with another folder. Raises UsageError if none can be made."""
        self.close()
        self._open()

    def close(self) -> None:
        """End the zygotes, and remove the folder. Can be called twice."""
        with interrupts.held():
            if self._is_closed:
                return
            self._is_closed = True
            self.zygotes.close()
            self.connections.close()
            while self._watched:
                os.close(self._watched.popitem()[1][0])
            self.caches.close()
            scratch.remove(self.folder)
