"""The compilers that Inductor and Triton would call, told by what their files hold.

Another program may lie behind the same path and say the same of its version. So the files themselves are hashed, as
ccache does under ``compiler_check = content``: the compiler, the programs that it starts, and the shared objects of all
these.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping

from runner.engine.cache_folders import cache_folder
from runner.engine.places import Places

PROGRAMS = ("cc1", "cc1plus", "collect2", "as", "ld")
"""What a compiler starts. It says itself where each lies (``-print-prog-name``)."""

_COMPILERS = (("CXX", "g++"), ("CC", "gcc"))
"""Variables that name them, and their usual names."""


def describe_compilers(environ: Mapping[str, str]) -> list[list[str]]:
    """Return for each compiler its path, what it says of its version, and digests of its files."""
    places = Places(cache_folder("compilers"))
    described = [describe_compiler(environ.get(variable) or usual, places) for variable, usual in _COMPILERS]
    places.save()
    return described


def compilers_digest(environ: Mapping[str, str]) -> str:
    """Return a digest of the compilers."""
    return hashlib.sha256(json.dumps(describe_compilers(environ)).encode(errors="surrogateescape")).hexdigest()


def describe_compiler(command: str, places: Places) -> list[str]:
    """Return where a compiler is, what it says of its version, and digests of its files; two empty texts without
    one."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = [command]
    path = shutil.which(words[0]) if words else None
    if path is None:
        return ["", ""]
    compiler = [path, *words[1:]]
    programs = [output_of([*compiler, f"-print-prog-name={name}"]).strip() for name in PROGRAMS]
    files = list(
        dict.fromkeys(filter(None, map(shutil.which, [*words, *programs])))
    )  # of ccache, the compiler behind it too
    libraries = re.findall(r"(?:=>|^)\s+(/\S+)", output_of(["ldd", *files], whatever=True), flags=re.M)
    return [path, output_of([*compiler, "--version"]), *places.digests([*files, *sorted({*libraries})])]


def output_of(command: list[str], *, whatever: bool = False) -> str:
    """Return what a program prints; nothing when it is not there, or fails and ``whatever`` is not set."""
    try:
        process = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.decode(errors="replace") if whatever or process.returncode == 0 else ""
