"""What a public report must not hold: names and folders of this machine and of its user."""

from __future__ import annotations

import getpass
import os
import re
import socket
import tempfile
from pathlib import Path

_FOLDERS = (
    (re.compile(r"(?:/[\w.+@-]+)+/(?:site|dist)-packages/"), ""),
    (re.compile(r"(?:/[\w.+@-]+)+/lib/python3\.\d+/"), ""),
    (re.compile(r"/tmp/(?:[\w.+@-]+/)*"), ""),
)
"""Folders that say nothing about the bug, and what replaces them."""

_COMMON_NAMES = frozenset({"root", "user", "runner", "localhost", "ubuntu", "admin", "main", "torch", "python"})
"""Names of users and machines that are words of any report."""


def redact(text: str) -> str:
    """Return ``text`` without the folders of this machine: packages, temporary files, home, the working folder."""
    for pattern, replacement in _FOLDERS:
        text = pattern.sub(replacement, text)
    for folder in (os.getcwd(), str(Path.home()), tempfile.gettempdir()):
        if folder not in ("", "/"):
            text = re.sub(rf"(?<![\w.-]){re.escape(folder)}(?:/|\b)", "", text)
    return text


def private_texts() -> list[tuple[str, str]]:
    """Return (what it is, the text) of everything that would tell where a report was made."""
    texts = [("the home folder", str(Path.home())), ("the working folder", os.getcwd())]
    try:
        names = [("the user's name", getpass.getuser())]
    except (OSError, KeyError):  # a user without a name
        names = []
    names.append(("the machine's name", socket.gethostname()))
    texts += [(kind, name) for kind, name in names if len(name) > 2 and name.lower() not in _COMMON_NAMES]
    return [(kind, text) for kind, text in texts if text not in ("", "/")]
