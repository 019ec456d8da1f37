"""A mutant: one change of the text of a compiler's Python, planted in the processes of one job alone.

Control draws it, and a worker compiles the changed text and gives the functions that it changes their new code. So the
installed file stays as it is.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

NOT_PLANTED = "the mutant cannot be planted: "
"""What the reason of a job begins with where its mutant has no place in the process."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """The bytes from ``start`` to ``end`` of a file are ``text`` instead.

    ``file`` is named as lines are (``lines.py``): ``_inductor/ir.py`` of torch, ``acme/compile.py`` of another package.
    ``digest`` is that of the whole file, so that a mutant of another version is never planted.
    """

    file: str
    line: int
    start: int
    end: int
    text: str
    digest: str
    kind: str = ""

    @property
    def id(self) -> str:
        """Ten digits that no other mutant has."""
        what = f"{self.file} {self.digest} {self.start} {self.end} {self.text}"
        return hashlib.sha256(what.encode(errors="surrogatepass")).hexdigest()[:10]

    def apply(self, source: bytes) -> bytes:
        """Return the file's changed text.

        Raises:
            ValueError: the file is another one.
        """
        if digest_of(source) != self.digest:
            raise ValueError(f"{self.file} is another file than the one that the mutant was drawn from")
        return source[: self.start] + self.text.encode() + source[self.end :]

    def to_json(self) -> dict[str, Any]:
        """Return the mutant as a plain dict."""
        return asdict(self)

    @staticmethod
    def from_json(data: Any) -> Mutant:
        """Return the mutant of a plain dict.

        Raises:
            TypeError: a key is missing or unknown.
        """
        return Mutant(**data)


def digest_of(source: bytes) -> str:
    """Return the digest of a file's text."""
    return hashlib.sha256(source).hexdigest()
