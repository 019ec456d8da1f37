"""Parts of the library that need both halves: they record in the user's own process, and write files as control does.

No module imports this one but the package itself.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from runner.graphs.folder import Folder, open_folder
from runner.graphs.grains import GRAINS, Grain
from runner.worker.capture.session import Session


class capture(contextlib.ContextDecorator):
    """Writes what is compiled in a ``with`` block, or in a function, as cases into a folder.

    ``torch.compile`` records there instead of compiling; nothing else changes. When the block ends, ``paths`` has the
    files, and ``inventory`` an entry for each model::

        with runner.capture("captured") as captured:
            torch.compile(model)(x)
    """

    def __init__(self, folder: str | Path, by: Grain = "graph") -> None:
        """Open the folder.

        Args:
            folder: new, empty, or one of captured cases.
            by: one case for each ``"graph"``, or for each kind of ``"module"`` or of ``"operator"`` call.

        Raises:
            ValueError: ``by`` is another word.
            runner.exit_codes.UsageError: the folder holds something else, or cannot be used.
        """
        if by not in GRAINS:
            raise ValueError(f"by={by!r}: expected one of {', '.join(GRAINS)}")
        self.paths: list[Path] = []
        self.inventory: list[dict[str, object]] = []
        self._folder: Folder = open_folder(Path(folder))
        self._by = by
        self._session = Session()

    def __enter__(self) -> capture:
        """Begin to record."""
        self._session = Session()
        self._session.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        """Write the files, also where the block raised."""
        self._session.__exit__(*raised)
        captures = self._session.captures()
        self.inventory = [self._folder.add(each, self._by) for each in captures]
        self.paths = self._folder.save() if captures else []
