"""What a local engine has before it has jobs. A command makes it early, so that torch is imported while it reads its files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from runner import exit_codes, interrupts
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
        self.folder = scratch.make()
        self._work = self.folder / "work"  # for what jobs write
        self._work.mkdir()
        self.environ = {scratch.VARIABLE: str(self._work)}
        self.connections = Connections(self.folder)
        self.caches = KernelCaches(self.folder / "kernels")
        self.zygotes = Zygotes(self.connections.address, self.caches)
        self._is_closed = False

    def __exit__(self, *exception: object) -> None:
        self.close()

    def prepare(self, pythons: Iterable[str]) -> None:
        """Let interpreters import torch. What is wrong with one shows when a job needs it."""
        for number, python in enumerate(pythons):
            with contextlib.suppress(OSError):
                path = interpreters.find_python(python) or python
                self.zygotes.prepare(path, self.environ, self.folder / f"zygote-{number}.log")

    def check(self) -> None:
        """Check that processes can still write and connect.

        Raises:
            UsageError: somebody has removed the folder, or a part of it.
        """
        for path in (self._work, Path(self.connections.address)):
            if not path.exists():
                raise exit_codes.UsageError(
                    f"{path} is gone: a case or another program has removed the temporary folder, or a part of it",
                    exit_codes.INTERNAL,
                )

    def close(self) -> None:
        """End the zygotes, and remove the folder. Can be called twice."""
        with interrupts.held():
            if self._is_closed:
                return
            self._is_closed = True
            self.zygotes.close()
            self.connections.close()
            self.caches.close()
            scratch.remove(self.folder)
