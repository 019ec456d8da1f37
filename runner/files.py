"""Files that are replaced whole, and files from strangers: a reader sees the old content or the new one, and waits for no pipe."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO

_OPEN_FILE = re.compile(r"/dev/(?:std(?:in|out|err)|fd/\d+)|/proc/(?:self|thread-self|\d+)/fd/\d+")


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file to read its bytes. Raises OSError for what cannot be opened, or is no regular file."""
    # Without O_NONBLOCK a pipe of that name would hold up the command.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, "it is no regular file", os.fspath(path))


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Give an error in writing an open file its path: that of a full disk has none."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or os.fspath(path)
        raise


def foreign_link(path: str | os.PathLike[str]) -> str:
    """Return the part of an output path that is a link, empty without one.

    A checkout or a shared folder may bring links: what is written through one replaces a file that nobody named. The path itself
    counts, and so does each part of it that lies in the current folder, by whatever name that is reached. Links elsewhere are the
    machine's own, and so are those to open files such as ``/dev/stdout``.
    """
    whole, here = os.path.join(os.getcwd(), path), os.path.realpath(os.getcwd())
    if _OPEN_FILE.fullmatch(whole):
        return ""
    *folders, name = [part for part in whole.split(os.sep) if part not in ("", ".")] or [""]
    place = os.sep
    for part in folders:  # not normalized: behind a link, .. is another folder than it seems
        is_here = here != os.sep and (os.path.realpath(place) + os.sep).startswith(here + os.sep)
        place = os.path.join(place, part)
        if is_here and os.path.islink(place):
            return place
    place = os.path.join(place, name)
    return place if os.path.islink(place) else ""


def link_problem(path: str | os.PathLike[str]) -> str:
    """Return why nothing is written to an output path that leads through a link, and what to do; empty without a link."""
    link = foreign_link(path)
    return f"{link} is a link to {os.readlink(link)}; name the file that is meant, or remove the link" if link else ""


def replace_file(path: str | os.PathLike[str], pieces: Iterable[bytes]) -> int:
    """Write ``pieces`` as the whole content of a file, in one step, and return its size in bytes. Its folder is made.

    A link at that path is replaced; the file behind it stays as it is.

    Raises:
        OSError: it cannot be written, or is no regular file. What was there before stays.
        ValueError: a piece cannot be made.
    """
    target = os.path.abspath(path)
    if os.path.exists(target) and not (os.path.isfile(target) or os.path.islink(target)):
        raise OSError(errno.EINVAL, "not a regular file", target)  # /dev/null must stay a device
    folder, name = os.path.split(target)
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        # Not tempfile: its files are for the owner's eyes only, and reports are read by others. A link that has the name stays unread.
        with naming(target), open(temporary, "xb") as handle:
            handle.writelines(pieces)
            handle.flush()
            os.fsync(handle.fileno())
            size = handle.tell()
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return size


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text as the whole content of a file, in one step. Its folder is made. Raises OSError as ``replace_file`` does."""
    replace_file(path, [_encoded(text)])


def replace_private(path: str | os.PathLike[str], text: str) -> None:
    """Write an ASCII text as the whole content of a file that only its owner can read, in one step. A link there is replaced.

    Nothing waits for the disk: this is for what a later run can make again. Raises OSError; what was there before stays then.
    """
    descriptor, beside = tempfile.mkstemp(dir=os.path.dirname(path), suffix=".tmp")
    try:
        with open(descriptor, "w", encoding="ascii") as handle:
            handle.write(text)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text into a device or a pipe; else as ``replace_text`` does. Raises OSError."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as handle:
            handle.write(_encoded(text))
    else:
        replace_text(path, text)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
