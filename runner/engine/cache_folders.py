"""Folders that code is loaded from: where the runner's own are, and whether anybody else may put something there.

A path is looked at part by part, from the root down. Whoever cannot write to a folder cannot change what is looked at
in it next, so nothing has to be opened to be sure of it. Parts above the home are left to the system: who can replace
the home needs no cache. A folder of everybody with the sticky bit, such as ``/tmp``, may lie on the way, since others
cannot rename there.

Only root and the user may own a part. Others must not write to it. As in the ``sshd`` of Debian and Fedora, the user's
private group does not count as others: the group of the same name, which has no other member. Links are followed, if
root or the user made them, and the parts of their targets are looked at too: ``~/.cache`` is often a link to a larger
disk.
"""

from __future__ import annotations

import errno
import functools
import grp
import hashlib
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from runner.engine.interpreters import find_python
from runner.text import one_line

NAME = "torch-spec-runner"
_MOST_LINKS = 40


def cache_folder(python: str) -> Path:
    """Return the path of the runner's own folder for what this Python compiles; a relative one where there is no home.

    Files about the folder lie beside it.
    """
    digest = hashlib.sha256((find_python(python) or python).encode(errors="surrogateescape")).hexdigest()[:16]
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return Path(chosen if os.path.isabs(chosen) else os.path.expanduser("~/.cache"), NAME, digest)


def make_own_folder(folder: Path) -> str:
    """Make a folder of the runner for this user alone, and return why it cannot be used; empty if it can. Raises
    OSError.

    Neither it nor the folder around it may be a link: such a link may come with a cache, and files behind it would be
    removed.
    """
    if not folder.is_absolute():
        raise FileNotFoundError(errno.ENOENT, "this user has no home", str(folder))
    weakness = make_folder(folder)
    link = next((part for part in (folder.parent, folder) if part.is_symlink()), None)
    if weakness or link:
        return weakness or f"{one_line(str(link), 500)} is a link: remove it"
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        folder.chmod(0o700)  # files in it may be writable for a group, by the user's umask
    return ""


def make_folder(folder: Path) -> str:
    """Make a folder if it is not there, and return how others may write to it and what mends that; else an empty text.

    Raises:
        OSError: it is not there, and cannot be made.
    """
    home = os.path.expanduser("~")
    above = {*Path(home).parents, *Path(os.path.realpath(home)).parents}
    for part, status in _walk(folder):
        if part in above:
            continue
        if status.st_uid not in (0, os.getuid()):
            return f"{one_line(str(part), 500)} belongs to another user ({status.st_uid})"
        if not status.st_mode & stat.S_ISVTX and (weakness := _weakness(part, status)):
            return weakness
    return _weakness(part, status)  # the sticky bit lets others add files


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield each folder and link on the way to a folder; what is not there is made once all before it was taken."""
    names, current, links = [*reversed(Path(os.path.abspath(folder)).parts)], Path("/"), 0
    while names:
        name = names.pop()
        part = current.parent if name == ".." else current / name
        try:
            status = os.lstat(part)
        except FileNotFoundError:
            os.mkdir(part, 0o700)
            status = os.lstat(part)
        yield part, status
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
            names += reversed(Path(os.readlink(part)).parts)
        elif stat.S_ISDIR(status.st_mode):
            current = part
        else:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(part))


def _weakness(part: Path, status: os.stat_result) -> str:
    """Return how others may write to a folder and what mends it. A link has no mode of its own."""
    is_group = status.st_mode & 0o020 and not _is_private(status.st_gid)
    if stat.S_ISLNK(status.st_mode) or not (status.st_mode & 0o002 or is_group):
        return ""
    mode = stat.S_IMODE(status.st_mode)
    return f"others may write to {one_line(str(part), 500)} (mode {mode:04o}): chmod go-w {shlex.quote(str(part))}"


@functools.cache
def _is_private(group: int) -> bool:
    """Return whether a group is the user's own: of the same name, and without another member."""
    try:
        user, entry = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return user.pw_gid == group and entry.gr_name == user.pw_name and {*entry.gr_mem} <= {user.pw_name}
