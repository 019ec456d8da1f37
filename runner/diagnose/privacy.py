"""What a public report must not hold: names and folders of this machine and of its user."""

from __future__ import annotations

import getpass
import os
import re
import socket
import tempfile

_NAME = r"[\w.+@-]"
_START = rf"(?<!{_NAME})(?<!:/)"
"""A place where a path may begin. The host of an address is no such place."""
_FOLDERS = re.compile(
    rf"{_START}(?:/|(?<!/))(?:{_NAME}+/)+(?:(?:site|dist)-packages|lib/python3\.\d+)/|"
    rf"{_START}(?:/var)?/tmp/(?:{_NAME}+/)*"
)
"""Folders that say nothing about the bug. Those of packages may be written from the current folder."""

_COMMON_NAMES = frozenset({"root", "user", "runner", "localhost", "ubuntu", "admin", "main", "torch", "python"})
"""Names of users and machines that are words of any report."""


def redact(text: str) -> str:
    """Return ``text`` without the folders of this machine: packages, temporary files, home, the working folder."""
    folders = {os.getcwd(), _home(), tempfile.gettempdir()} - {"", "/", "/tmp", "/var/tmp"}  # the last with all below
    for folder in sorted(folders, key=len, reverse=True):  # one may lie in another
        # A dot may end the sentence.
        text = re.sub(rf"{_START}{re.escape(folder)}(?:/|(?![\w+@-]|\.\w))", "", text)
    return _FOLDERS.sub("", text)


def _home() -> str:
    """Return the home folder; empty for a user who has no home."""
    home = os.path.expanduser("~")
    return home if os.path.isabs(home) else ""


def private_texts() -> list[tuple[str, str]]:
    """Return (what it is, the text) of everything that would tell where a report was made."""
    texts = [("the home folder", _home()), ("the working folder", os.getcwd())]
    try:
        names = [("the user's name", getpass.getuser())]
    except (OSError, KeyError):  # a user without a name
        names = []
    names.append(("the machine's name", socket.gethostname()))
    texts += [(kind, name) for kind, name in names if len(name) > 2 and name.lower() not in _COMMON_NAMES]
    return [(kind, text) for kind, text in texts if text not in ("", "/")]
