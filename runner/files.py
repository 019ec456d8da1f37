"""Files that are replaced whole, and files from strangers: a reader sees the old content or the new one, and waits for
no pipe.

A case's own Python may put anything in the place of a file or folder that it can write to. So control opens files here
alone (``tests/test_opens.py``).
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

PIPE = "this is a pipe, whose reader may never come; name a file"
"""Why nothing is written to a pipe."""
_DEEPEST = 10
"""How deep folders may lie in one that a worker has written."""
_OPEN_FILE = re.compile(r"/dev/(?:std(?P<name>in|out|err)|fd/(?P<own>\d{1,9}))|/proc/(?:self|thread-self|\d+)/fd/\d+")
_STREAMS = {"in": 0, "out": 1, "err": 2}


def shipped(name: str) -> Path:
    """Return a folder that comes with the package: inside it where it is installed, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / f"_{name}"
    return installed if installed.is_dir() else package.parent / name


def open_regular(path: str | os.PathLike[str], links: bool = True) -> IO[bytes]:
    """Open a file to read its bytes. Raises OSError for what cannot be opened, or is no regular file.

    Without ``links`` the path itself must be no link.
    """
    return open(_regular(path, os.O_RDONLY | (0 if links else os.O_NOFOLLOW)), "rb")


def append_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a log to append to it; it is made.

    Raises OSError for what cannot be opened, is a link or no regular file.
    """
    return open(_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW), "ab")


def cut_regular(path: str | os.PathLike[str], size: int) -> None:
    """Empty a log of more than ``size`` bytes.

    Raises OSError for what cannot be opened, is a link or no regular file.
    """
    with open(_regular(path, os.O_WRONLY | os.O_NOFOLLOW), "wb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > size:
            file.truncate(0)


def _regular(path: str | os.PathLike[str], flags: int) -> int:
    # Without O_NONBLOCK a pipe of that name would hold up the command.
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, "it is no regular file", os.fspath(path))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a regular file. Raises OSError as ``open_regular`` does."""
    with open_regular(path) as file:
        return file.read()


def read_text(path: str | os.PathLike[str], errors: str = "strict") -> str:
    """Return the text of a regular file in UTF-8, each line with its newline as ``\\n``.

    Raises:
        OSError: as ``open_regular`` does.
        UnicodeDecodeError: it is no UTF-8, and ``errors`` is ``strict``.
    """
    with io.TextIOWrapper(open_regular(path), "utf-8", errors) as file:
        return file.read()


def entries_below(folder: str | os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
    """Yield what lies below a folder, however deep; what cannot be listed is left out. No link is followed.

    ``os.walk`` calls itself for each level, up to Python 3.11, and so does ``Path.rglob``.
    """
    waiting = [os.fspath(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def remove_tree(folder: str | os.PathLike[str]) -> None:
    """Remove a folder or file as far as possible, whatever modes its folders have, and however deep they are. No link
    is followed.

    What lies deep is moved up first: neither a path nor a stack of calls grows with the depth.
    """
    top, token, numbers = os.fspath(folder), secrets.token_hex(4), itertools.count()
    if os.path.islink(top) or not os.path.isdir(top):
        with contextlib.suppress(OSError):
            os.unlink(top)
        return
    folders, waiting = [], [top]
    while waiting:
        place = waiting.pop()
        folders.append(place)
        with contextlib.suppress(OSError), os.scandir(_opened_up(place)) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)
                elif place == top:
                    waiting.append(entry.path)
                else:
                    target = os.path.join(top, f"{token}-{next(numbers)}")
                    with contextlib.suppress(OSError):
                        os.rename(_opened_up(entry.path), target)
                        waiting.append(target)
    for place in reversed(folders):
        with contextlib.suppress(OSError):
            os.rmdir(place)


def remove_whole_tree(folder: str | os.PathLike[str]) -> None:
    """Remove a folder as ``remove_tree`` does. Raises OSError where something stays."""
    remove_tree(folder)
    if os.path.lexists(folder):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), os.fspath(folder))


def _opened_up(folder: str) -> str:
    """Let this user list, change and move a folder; return it."""
    with contextlib.suppress(OSError):
        os.chmod(folder, 0o700)
    return folder


def remove_irregular(folder: str | os.PathLike[str]) -> None:
    """Remove what is neither a regular file nor a folder, once the process has ended that wrote into a folder.

    So are folders that are deeper than ``_DEEPEST``, of which paths grow too long.

    Raises:
        OSError: the path names no folder, or something cannot be removed.
    """
    if os.path.islink(folder):
        raise NotADirectoryError(errno.ENOTDIR, "it is a link", os.fspath(folder))
    waiting = [(0, os.fspath(folder))]
    while waiting:
        depth, place = waiting.pop()
        with os.scandir(_opened_up(place)) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and depth < _DEEPEST:
                    waiting.append((depth + 1, entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    remove_tree(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    os.unlink(entry.path)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Give an error in writing an open file its path: that of a full disk has none."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or os.fspath(path)
        raise


def is_open_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names an open file, such as ``/dev/stdout``.

    That is written to as it is: never replaced, never emptied.
    """
    return _open_file(path) is not None


def _open_file(path: str | os.PathLike[str]) -> re.Match[str] | None:
    return _OPEN_FILE.fullmatch(os.path.join(os.getcwd(), path))


def is_pipe(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names a pipe, whose reader may never come.

    An open file such as ``/dev/stdout`` has its reader.
    """
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode) and not is_open_file(path)
    except (OSError, ValueError):
        return False


def open_output(path: str | os.PathLike[str], flags: int = os.O_TRUNC) -> int:
    """Open a file or a device to write to it, and return the descriptor; a file is made. Raises OSError, for a pipe
    too.

    An open file of this process goes on where it is.
    """
    if is_pipe(path):
        raise OSError(errno.EINVAL, PIPE, os.fspath(path))
    match = _open_file(path)
    if match is not None and (match["name"] or match["own"]):
        return os.dup(_STREAMS[match["name"]] if match["name"] else int(match["own"]))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if match else flags), 0o666)


def foreign_link(path: str | os.PathLike[str]) -> str:
    """Return the part of an output path that is a link, empty without one.

    A checkout or a shared folder may bring links: what is written through one replaces a file that nobody named. The
    path itself counts, and so does each part of it that lies in the current folder, by whatever name that is reached.
    Links elsewhere are the machine's own, and so are those to open files such as ``/dev/stdout``.
    """
    whole, here = os.path.join(os.getcwd(), path), os.path.realpath(os.getcwd())
    if is_open_file(path):
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
    """Return why nothing is written to an output path that leads through a link, and what to do; empty without a
    link."""
    link = foreign_link(path)
    return f"{link} is a link to {os.readlink(link)}; name the file that is meant, or remove the link" if link else ""


def replace_file(path: str | os.PathLike[str], pieces: Iterable[bytes], keeps_mode: bool = False) -> int:
    """Write ``pieces`` as the whole content of a file, in one step, and return its size in bytes. Its folder is made.

    A link or a pipe at that path is replaced; the file behind a link stays as it is. With ``keeps_mode`` the file is
    there, and its permissions stay.

    Raises:
        OSError: it cannot be written, or is a device or a folder. What was there before stays.
        ValueError: a piece cannot be made.
    """
    target = os.path.abspath(path)
    is_free = not os.path.exists(target) or os.path.isfile(target) or os.path.islink(target) or is_pipe(target)
    if is_open_file(target) or not is_free:  # /dev/null must stay a device, and /dev/stdout a link
        raise OSError(errno.EINVAL, "not a regular file", target)
    folder, name = os.path.split(target)
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        # Not tempfile: its files are for the owner's eyes only, and reports are read by others. A link that has the
        # name stays unread.
        with naming(target), open(temporary, "xb") as handle:
            if keeps_mode:
                os.fchmod(handle.fileno(), stat.S_IMODE(os.lstat(target).st_mode))
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


def replace_text(path: str | os.PathLike[str], text: str, keeps_mode: bool = False) -> None:
    """Write a text as the whole content of a file, in one step.

    Its folder is made. ``keeps_mode`` is as for ``replace_file``, and it raises OSError as that does.
    """
    replace_file(path, [_encoded(text)], keeps_mode)


def replace_private(path: str | os.PathLike[str], text: str) -> None:
    """Write an ASCII text as the whole content of a file that only its owner can read, in one step. A link there is
    replaced.

    Nothing waits for the disk: this is for what a later run can make again. Raises OSError; what was there before stays
    then.
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


def write_anew(path: str | os.PathLike[str], text: str) -> None:
    """Write a text as a new file in the place of whatever was there: no link is followed, no pipe waited for.

    Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with open(path, "xb") as handle:
        handle.write(_encoded(text))


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text into a device or an open file such as ``/dev/stdout``; else as ``replace_text`` does.

    Raises OSError.
    """
    if is_open_file(path) or (os.path.exists(path) and not os.path.isfile(path) and not is_pipe(path)):
        with open(open_output(path), "wb") as handle:
            handle.write(_encoded(text))
    else:
        replace_text(path, text)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
