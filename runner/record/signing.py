"""What this user wrote on this machine, told from what came from elsewhere: by a key that nobody else can read.

Whoever can write files into a folder can write an event log there, and a log holds a command line that ``rerun`` obeys.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import platform
import secrets
import tempfile
from pathlib import Path

from runner.files import open_regular, replace_private
from runner.record.events import RunStarted
from runner.text import one_line

_SIZE = 32


class NoKey(Exception):
    """There is no key, and none can be made; the text says why."""


def key_path() -> Path:
    """Return ``runner/key`` in ``$XDG_STATE_HOME``, or in ``~/.local/state`` where that is not set to an absolute
    path."""
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if os.path.isabs(state) else Path(os.path.expanduser("~"), ".local", "state")
    return folder / "runner" / "key"


def user_key() -> bytes:
    """Return the user's key on this machine; the first call makes it. Raises NoKey."""
    path = key_path()
    try:
        if not path.exists():
            _make(path)
        with open_regular(path) as file:  # a pipe there would hold up the command
            status = os.fstat(file.fileno())
            key = file.read(_SIZE + 1)
    except (OSError, ValueError) as error:
        raise NoKey(f"{path} cannot be used: {getattr(error, 'strerror', None) or error}") from None
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise NoKey(f"{path} can be read by others, or is another user's: remove it")
    if len(key) != _SIZE:
        raise NoKey(f"{path} is no key: remove it")
    return key


def _make(path: Path) -> None:
    """A new key, whole or not at all; one that another process makes meanwhile stays. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, beside = tempfile.mkstemp(dir=path.parent)  # with mode 0600
    try:
        with open(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_SIZE))
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
    finally:
        os.unlink(beside)


def sign(purpose: str, *content: object) -> str:
    """Return the signature of some JSON values for a purpose, in hexadecimal. Raises NoKey."""
    return hmac.new(user_key(), json.dumps([purpose, *content]).encode(), hashlib.sha256).hexdigest()


def write_signed(path: Path, text: str, purpose: str, *content: object) -> None:
    """Write an ASCII text as a file that only its owner can read, with a signature of a purpose, what else counts, and
    the text. Its folder is made.

    A link there is replaced. Raises OSError, and NoKey where nothing can be signed.
    """
    signed = f"{sign(purpose, *content, text)}\n{text}"
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_private(path, signed)


def read_signed(path: Path, longest: int, purpose: str, *content: object) -> str:
    """Return the text of a file that this user has written here by ``write_signed``.

    Raises OSError, NoKey, and ValueError for a file that is longer, or that anybody else has written.
    """
    with open_regular(path) as file:
        signature, _, body = file.read(longest).partition(b"\n")
    text = body.decode("ascii")
    if not hmac.compare_digest(sign(purpose, *content, text).encode(), signature):
        raise ValueError(f"{path} is not signed by this user")
    return text


def signature_of(start: RunStarted) -> str:
    """Return the signature of a run's command line; empty where there is no key."""
    try:
        return _command_line(start)
    except NoKey:
        return ""


def why_foreign(start: RunStarted) -> str:
    """Return why a log does not count as this user's own on this machine; empty when it does."""
    if start.host != platform.node():
        return (
            f"it was written on {one_line(start.host, 100) or 'a machine without a name'}, and this is "
            f"{platform.node()}"
        )
    if not start.signature:
        return "it is not signed"
    try:
        own = hmac.compare_digest(_command_line(start).encode(), start.signature.encode(errors="replace"))
    except NoKey as error:
        return f"its signature cannot be checked: {error}"
    return "" if own else "its signature is another user's, another machine's, or of another command line"


def _command_line(start: RunStarted) -> str:
    return sign("run-started", start.run, start.started, start.host, start.cwd, list(start.argv))
