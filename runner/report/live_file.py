"""A file that is complete at every instant, whatever happens to this process, the disk or the folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from runner.files import replace_file

_EVERY = 0.3  # least seconds between two writes
_SHARE = 10  # and at least so many times as long as the last write took
_RATE = (
    512 << 10
)  # and on average no more than so many bytes a second: a run may last for days, and its file have 100 MB


class LiveFile:
    """Keeps the content of ``path`` equal to the pieces that ``content`` returns.

    Each write goes to a second file in the same folder, which then replaces the first. A reader so sees the old text or
    the new one. Writing takes at most a tenth of the time, and 512 KiB a second. After a failure the file stays as it
    was, ``on_problem`` gets the reason once, and later writes try again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        content: Callable[[], Iterable[bytes]],
        on_problem: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = os.path.abspath(path)
        self.problem: str | None = None  # why the file is not up to date, once a write has failed
        self._content = content
        self._on_problem = on_problem or (lambda _: None)
        self._clock = clock
        self._dirty = True
        self._next = float("-inf")

    def touch(self) -> None:
        """Note that the content has changed."""
        self._dirty = True

    def write(self, *, now: bool = False) -> None:
        """Bring the file up to date, if it is time or ``now`` is set. A file that cannot be written raises nothing."""
        start = self._clock()
        if not now and (not self._dirty or start < self._next):
            return
        if not self._dirty and os.path.exists(self.path):  # up to date, and nobody has cleared the folder since
            return
        why, size = "", 0
        try:
            size = replace_file(self.path, self._content())
        except (OSError, ValueError) as error:  # ValueError: what cannot be written down, such as two cases of one name
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        end = self._clock()
        self._next = end + max(_EVERY, _SHARE * (end - start), size / _RATE)
        if why:
            self.failed(why)
        else:
            self._dirty, self.problem = False, None

    def failed(self, why: str) -> None:
        """Remember the problem, and report it unless the last attempt had the same one."""
        earlier, self.problem = self.problem, f"{self.path} could not be written: {why}"
        if self.problem != earlier:  # set first: on_problem may send an event that comes back here
            self._on_problem(self.problem)
