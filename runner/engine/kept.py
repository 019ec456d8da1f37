"""Warm zygotes that outlive a run (``runner/worker/server/keeper.py``), seen from control: which fits, and their end.

A zygote fits by a digest of all that its processes inherit and that an answer may depend on: the interpreter with its
fingerprint, how far it has warmed up, the variables, the folders of compiled code, and what the kernel holds for a
process (limits, processors, namespaces, groups of control, rights, signals that are ignored). The digest is the name of
its socket. The socket lies in a folder that this user alone can enter (``cache_folders.py``), and the kernel says that
this user's process listens there. Where any of that cannot be known, a run starts its processes as usual.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from runner.contract.peers import peer_of
from runner.contract.settings import CACHE_FOLDER
from runner.engine import interpreters, scratch
from runner.engine.cache_folders import cache_folder, make_own_folder
from runner.engine.messages import Connections
from runner.engine.zygotes import ServerProcess, Zygote, end_process
from runner.files import read_text
from runner.record.events import Notice

REST = 600.0
"""Seconds without a run after which a zygote ends."""
MOST = 4
"""Zygotes that are warm at once; each holds half a gigabyte."""
_LONGEST = 100
"""Bytes of a socket's path."""
_END = 5.0
"""Seconds that a zygote may take to end."""

_OWN = frozenset({"_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "PYTEST_CURRENT_TEST", "TMPDIR", scratch.VARIABLE})
"""Variables that each run has for itself, and that nothing reads before a server has those of its run."""
_STATUS = re.compile(
    r"^(?:Umask|Uid|Gid|Groups|NoNewPrivs|Seccomp|Cap\w+|Cpus_allowed|Mems_allowed|Sig(?:Blk|Ign)|THP_enabled|"
    r"Speculation\w+):.*$",
    re.M,
)
_BOOT = "/proc/sys/kernel/random/boot_id"
"""Which start of which machine this is: homes may be those of several machines."""
_FILES = ("limits", "cgroup", "oom_score_adj", "personality")
"""Of ``/proc/self``: what a process inherits."""


@dataclass(slots=True, eq=False)
class KeptZygote(Zygote):
    """A zygote that outlives this run. Others may have servers of it, so that it is never killed once it is up."""

    address: str = ""
    popen: subprocess.Popen[bytes] | None = None  # where this run has started it

    outlives_run: ClassVar[bool] = True

    @property
    def pid(self) -> int:
        """No process that may be killed in place of a server."""
        return 0

    @property
    def is_alive(self) -> bool:
        """Return whether it can still fork."""
        has_ended = self.popen is not None and self.popen.poll() is not None
        return not has_ended and (self.channel is None or not self.channel.closed)

    def fork(self, order: Mapping[str, Any]) -> ServerProcess:
        """Ask for a server, which connects to this run."""
        return Zygote.fork(self, {**order, "address": self.address, "folder": os.getcwd()})

    def read(self) -> None:
        """Take in what has arrived. What it has forked lives on until this run hangs up."""
        if self.receive() and self.channel is not None:
            self.channel.close()
        if not self.is_alive:
            self.forget_ended(1)

    def close(self) -> None:
        """Hang up; end it if it is not up yet, since nobody else can know it."""
        if self.channel is not None:
            self.channel.close()
        elif self.popen is not None:
            end_process(self.popen, 0.0)
        if self.popen is not None and self.popen.poll() is None:
            self.popen.returncode = 0  # its parent ends before it, and nobody waits for it


@dataclass(slots=True)
class Keep:
    """What a run keeps warm. ``digests`` are the fingerprints by interpreter; one that is not among them is not kept.

    ``problem`` is why something is not kept.
    """

    digests: Mapping[str, str]
    problem: str = ""
    _tried: set[str] = field(default_factory=set)

    def notices(self) -> list[Notice]:
        """Return what a person should know: what stays, and why nothing does."""
        count = 0
        for path in self._tried:
            connection = connect(path)
            if connection is not None:
                connection.close()
                count += 1
        words = ("process stays", "it") if count == 1 else ("processes stay", "them")
        text = f"{count} {words[0]} warm for {REST / 60:.0f} minutes; runner warm --stop ends {words[1]}"
        notices = [Notice(text, "info")] if count else []
        return [*notices, *([Notice(f"--keep-warm: {self.problem}")] if self.problem else [])]

    def zygote(
        self, python: str, warm: str, variables: Mapping[str, str], log: Path, token: str, connections: Connections
    ) -> tuple[str, KeptZygote] | None:
        """Return a zygote that fits, with the path of its socket: one that is warm, or a new one; None without one.

        After one has failed its run starts its processes as usual.

        Args:
            python: the interpreter.
            warm: how far it warms up.
            variables: all variables of its servers.
            log: what a new one prints.
            token: what a new one says.
            connections: of this run.
        """
        if python not in self.digests:
            return None
        try:
            folder = warm_folder()
            path = str(folder / digest_of(python, self.digests[python], warm, variables))
            if len(os.fsencode(path)) > _LONGEST:
                raise OSError(f"{path} is too long for a socket")
            if path in self._tried:
                return None
            self._tried.add(path)
            connection = connect(path)
            popen = None
            if connection is None:
                if len(keepers()) >= MOST:
                    raise OSError(f"{MOST} processes are warm already; runner warm --stop ends them")
                words = ("--warm", warm, "--keep", path, "--rest", str(REST))
                popen = interpreters.start_worker(python, connections.address, token, log, variables, words)
        except OSError as error:
            self.problem = error.strerror or str(error)
            return None
        zygote = KeptZygote(python, token, log, address=connections.address, popen=popen)
        if connection is not None:
            zygote.channel = connections.adopt(connection)
            zygote.channel.owner = zygote
        return path, zygote


def warm_folder() -> Path:
    """Return the folder of sockets, which this user alone can enter.

    Raises:
        OSError: it cannot be made, or others can write to it or to one around it.
    """
    folder = cache_folder("").with_name("warm")
    if weakness := make_own_folder(folder):
        raise OSError(weakness)
    return folder


def digest_of(python: str, fingerprint: str, warm: str, variables: Mapping[str, str]) -> str:
    """Return the digest of all that must be equal, beside the job, where two processes are to give one answer.

    Raises:
        OSError: the system does not say what a process inherits.
    """
    folders = [os.stat(variables[name]) for name in (CACHE_FOLDER,)]
    facts = [
        python,
        fingerprint,
        warm,
        sorted((name, value) for name, value in variables.items() if name not in _OWN),
        [(status.st_dev, status.st_ino) for status in folders],
        _STATUS.findall(read_text("/proc/self/status")),
        [_read(name) for name in _FILES],
        sorted((name, os.readlink(f"/proc/self/ns/{name}")) for name in os.listdir("/proc/self/ns")),
        os.readlink("/proc/self/root"),
        os.getpriority(os.PRIO_PROCESS, 0),
        "" if all(map(os.path.isabs, variables.get("PYTHONPATH", "/").split(os.pathsep))) else os.getcwd(),
    ]
    return _boot() + hashlib.sha256(json.dumps(facts).encode(errors="surrogateescape")).hexdigest()[:24]


def _boot() -> str:
    return read_text(_BOOT)[:8]


def _read(name: str) -> str:
    """Return a file of ``/proc/self`` that some systems do not have or show."""
    try:
        return read_text(f"/proc/self/{name}", "replace")
    except (FileNotFoundError, PermissionError):
        return ""


def connect(path: str) -> socket.socket | None:
    """Return a connection to the zygote at a path; None if none of this user's listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(1.0)
    try:
        status = os.lstat(path)
        if stat.S_ISSOCK(status.st_mode) and status.st_uid == os.getuid():
            connection.connect(path)
            if peer_of(connection).user == os.getuid():
                return connection
    except ConnectionRefusedError:  # its process was killed
        with contextlib.suppress(OSError):
            os.unlink(path)
    except OSError:
        pass
    connection.close()
    return None


def keepers() -> dict[str, int]:
    """Return the processes of this user's zygotes that listen, by the paths of their sockets.

    Raises:
        OSError: as of ``warm_folder``.
    """
    processes: dict[str, int] = {}
    folder = warm_folder()
    names = [name for name in os.listdir(folder) if re.fullmatch(re.escape(_boot()) + r"\w{24}", name)]
    for name in sorted(names):
        connection = connect(path := str(folder / name))
        if connection is not None:
            with connection:
                processes[path] = peer_of(connection).pid
    return processes


def stop_all() -> list[int]:
    """End this user's zygotes with their servers, and return the processes that have ended.

    Raises:
        OSError: as of ``warm_folder``.
    """
    ended = []
    for path, pid in keepers().items():
        connection = connect(path)
        if connection is None:
            continue
        with connection:
            connection.sendall(b'{"end": true}\n')
            connection.settimeout(_END)
            with contextlib.suppress(OSError):
                while connection.recv(1 << 16):
                    pass
        ended.append(pid)
    return ended
