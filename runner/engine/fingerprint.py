"""The fingerprint of an interpreter: all that decides about outcomes besides the job.

It covers the files of torch and of what torch requires, Python's library, what resolves names, the compilers, the
processor, the variables and the worker's own code. What a job's process loads beyond these is in its record. Two runs
with equal fingerprints would answer the same job alike, if it loads nothing else. A fingerprint is ``dirty`` where
something has no digest: then the cache of results is neither read nor written.

The compilers are those that Inductor and Triton would call. Another program may lie behind the same path and say the
same of its version. So the files themselves are hashed, as ccache does under ``compiler_check = content``: the
compiler, the programs that it starts, and the shared objects of all these.

Each file is read once for its sha256. A signed memo says what a file held whose stamp is still the same. A stamp is a
file's size, both times, inode and device. Any program can set the time of the last writing (``mtime``); an image or a
package may have the same one for all files. No program can set the time of the last change (``ctime``).

A file may change twice within one grain of the clock and keep its stamp. So a file that changed within two seconds
before it was read has no stamp in the memo, and is read again the next time. A memo without this user's signature
counts as empty.

A place is a file, or a folder with all that lies below it. It is looked at once, by the first that asks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from runner.contract import loaded_code, settings
from runner.engine.cache_folders import cache_folder, make_own_folder
from runner.engine.interpreters import WORKER, find_python, run_script
from runner.engine.processors import usable_processors
from runner.files import open_regular, read_bytes
from runner.record.signing import NoKey, read_signed, write_signed

VERSION = 1
"""Of a memo. Another one counts as empty."""

_GRAIN = 2 * 10**9
"""Nanoseconds; the coarsest file systems count in two seconds."""
_LONGEST = 256 << 20
"""Bytes of a memo. A file takes about 200."""
_BLOCK = 1 << 20

Stamp = tuple[int, ...]


class Entry(NamedTuple):
    """What a file held. ``stamp`` is its size alone where the file was too new to be told by its times."""

    digest: str
    stamp: Stamp


def stamp_of(status: os.stat_result) -> Stamp:
    """Return what cannot stay the same when the file's content changes."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev


def take_contents(files: Mapping[str, tuple[str, Stamp]], memo: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return what files hold, by name. What cannot be read, or changes meanwhile, is left out.

    Args:
        files: by name, each file's path and stamp.
        memo: what is known of earlier times, under the same names.
    """
    contents = {name: memo[name] for name, (_, stamp) in files.items() if name in memo and memo[name].stamp == stamp}
    unknown = [name for name in files if name not in contents]
    with ThreadPoolExecutor(usable_processors()) as pool:
        entries = pool.map(lambda name: _read(*files[name]), unknown)
        contents |= {name: entry for name, entry in zip(unknown, entries, strict=True) if entry is not None}
    return contents


def _read(path: str, stamp: Stamp) -> Entry | None:
    began, digest = time.time_ns(), hashlib.sha256()
    try:
        with open_regular(path) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
            if stamp_of(os.fstat(file.fileno())) != stamp:
                return None  # another file than was looked at, or one that somebody writes
    except OSError:
        return None
    return Entry(digest.hexdigest(), stamp if stamp[2] < began - _GRAIN else stamp[:1])


def read_memo(path: Path, purpose: str) -> dict[str, Entry]:
    """Return a memo that this user has written for this purpose at this place; an empty one otherwise."""
    try:
        entries = json.loads(read_signed(path, _LONGEST, purpose, VERSION, str(path)))
        return {name: Entry(digest, tuple(stamp)) for name, (digest, *stamp) in entries.items()}
    except (OSError, ValueError, NoKey):
        return {}


def write_memo(path: Path, purpose: str, memo: Mapping[str, Entry]) -> None:
    """Write a memo, whole or not at all.

    A link there is replaced. Raises OSError, and NoKey where nothing can be signed.
    """
    text = json.dumps({name: [entry.digest, *entry.stamp] for name, entry in sorted(memo.items())})
    write_signed(path, text, purpose, VERSION, str(path))


PURPOSE = "contents of packages"
"""Of the memo."""

_TICK = 20 * 10**6
"""Nanoseconds by which a file system's clock may be behind."""


class Places:
    """Digests of places, with a memo beside ``folder``; without one, nothing is known of earlier runs."""

    def __init__(self, folder: Path | None = None) -> None:
        """Read the memo, and look at no place yet."""
        self._folder = folder
        self._known = read_memo(folder.with_suffix(".contents"), PURPOSE) if folder is not None else {}
        self._began = time.time_ns() - _TICK
        self._memo = dict(self._known)
        self._digests: dict[str, str] = {}
        self._unsure: set[str] = set()

    def digests(self, places: Iterable[str]) -> list[str]:
        """Return a digest for each place, of the names and contents of its files."""
        wanted = list(places)
        trees = {place: dict(_files(place)) for place in wanted if place not in self._digests}
        files = {path: (path, stamp) for tree in trees.values() for path, stamp in tree.items()}
        contents = take_contents(files, self._memo)
        self._memo |= contents
        for place, tree in trees.items():
            self._digests[place] = _digest(place, tree, contents)
            if not os.path.exists(place) or any(stamp[2:3] > (self._began,) for stamp in tree.values()):
                self._unsure.add(place)
        return [self._digests[place] for place in wanted]

    def digest(self, places: Iterable[str]) -> str:
        """Return one digest of all places; empty where one is not there, or has changed since this object was made.

        A process may have loaded what lay there before.
        """
        wanted = sorted(places)
        text = "\n".join(self.digests(wanted))
        return "" if self._unsure.intersection(wanted) else hashlib.sha256(text.encode()).hexdigest()

    def save(self) -> None:
        """Keep for later runs what is known of files. Where that cannot be, all is read the next time too."""
        if self._folder is None or self._memo == self._known:
            return
        with contextlib.suppress(OSError, NoKey):
            if not make_own_folder(self._folder):
                write_memo(self._folder.with_suffix(".contents"), PURPOSE, self._memo)
                self._known = dict(self._memo)


def _digest(place: str, tree: Mapping[str, Stamp], contents: Mapping[str, Entry]) -> str:
    """Return the digest of a place's files, without the folder around it. What cannot be read counts by its name."""
    cut = len(place) - len(os.path.basename(place))
    lines = [f"{path[cut:]} {contents[path].digest if path in contents else '?'}" for path in tree]
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()


def _files(place: str) -> Iterator[tuple[str, Stamp]]:
    """Yield the files below a folder, or one file, by path.

    Links are followed: installers link files into an environment.
    """
    waiting, visited = [place], set()
    while waiting:
        folder = waiting.pop()
        try:
            status = os.stat(folder)
            if not stat.S_ISDIR(status.st_mode):
                yield folder, stamp_of(status)
            elif (status.st_dev, status.st_ino) not in visited:
                visited.add((status.st_dev, status.st_ino))
                with os.scandir(folder) as entries:
                    waiting += [entry.path for entry in entries if entry.name != "__pycache__"]
        except OSError:
            yield folder, ()


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


_ASK = """
started = find_loaded_code()
import importlib.metadata, importlib.util, json, re
sys.path[:] = [entry for entry in sys.path if entry]

GROUPS = ("torch_dynamo_backends", "torch.backends")

def places(name):
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    return [*(spec.submodule_search_locations or ())] or ([spec.origin] if spec.has_location else [])

def listed(folder):
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []

def text(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""

def package(name):
    return re.sub(r"[-_.]+", "_", name).lower()

installed, startup, editable, modules, needs = [], [], [], [], {}
for folder in sys.path:
    names = listed(folder)
    importable = r"(?!__pycache__)[^\\W\\d]\\w*(\\.pyc?|(\\.[\\w-]+)?\\.so)?"
    modules.append([name for name in names if re.fullmatch(importable, name)])
    for name in names:
        if name.endswith((".dist-info", ".egg-info", ".egg-link")):
            installed.append(name)
            metadata = text(folder, name, "METADATA")
            required = re.findall(r"^Requires-Dist: ([\\w.-]+)", metadata, flags=re.M)
            needs.setdefault(package(name.partition("-")[0]), required)
            is_backend = any(f"[{group}]" in text(folder, name, "entry_points.txt") for group in GROUPS)
            if is_backend and (name.endswith(".egg-link") or '"editable"' in text(folder, name, "direct_url.json")):
                editable.append(name)
        elif name.endswith(".pth") or name in ("sitecustomize.py", "usercustomize.py"):
            startup.append([name, text(folder, name)])
points = importlib.metadata.entry_points()
select = getattr(points, "select", None) or (lambda group: points.get(group, ()))
points = [point for group in GROUPS for point in select(group=group)]
code, waiting = set(), ["torch", "torchgen", "functorch", "triton", "numpy"]
while waiting:
    name = package(waiting.pop())
    waiting += needs.get(name, ()) if name not in code else ()
    code.add(name)
code |= {re.split(r"\\W", point.value)[0] for point in points}
torch = places("torch")
beside = listed(os.path.dirname(torch[0])) if torch else []
print(json.dumps({
    "python": sys.version,
    "places": {
        **{name: places(name) for name in code},
        "as it starts": started,
        "archives": [entry for entry in sys.path if os.path.isfile(entry)],
        "library": [os.path.join(LIBRARY, name) for name in listed(LIBRARY) if not name.endswith(("-packages",
        "__pycache__"))],
    },
    "torch": torch[0] if torch else None,
    "recorded": any(n.startswith("torch-") and n.endswith((".dist-info", ".egg-info")) for n in beside),
    "installed": sorted(installed),
    "modules": modules,
    "points": sorted([point.group, point.name, point.value] for point in points),
    "startup": startup,
    "conda": listed(os.path.join(sys.prefix, "conda-meta")),
    "editable": editable,
    "libc": getattr(os, "confstr", lambda name: "")("CS_GNU_LIBC_VERSION") if sys.platform == "linux" else "",
}))
"""
"""Its places are those of code that decides whatever a job asks: Python's library, torch, what torch requires, the
packages of registered backends, and what the interpreter loads by itself. ``modules`` are the names that an import
finds on the path."""

KEYED = frozenset({
    "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_MODULE_LOADING", "CUDA_PATH", "CUDA_VERSION", "CUDA_VISIBLE_DEVICES",
    "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS",
    *settings.VARIABLES,
})  # fmt: skip
"""Variables that look like torch's and may change an outcome and nothing else: to have their values in the digest is
enough."""

_SESSION = re.compile(
    r"_|PATH|HOME|USER|USERNAME|LOGNAME|HOST|HOSTNAME|SHELL|SHLVL|PWD|OLDPWD|MAIL|MANPATH|INFOPATH|EDITOR|VISUAL|"
    r"PAGER|LS_COLORS|"
    r"TZ|LANG|LANGUAGE|TMP|TEMP|TMPDIR|COLUMNS|LINES|DISPLAY|WINDOWID|COLORTERM|NO_COLOR|STY|PS\d|VIRTUAL_ENV|"
    r"VIRTUAL_ENV_PROMPT|"
    r"INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_EXEC_PID|TERM|TMUX|HIST\w+|LESS\w*|FORCE_COLOR|FORCE_HYPERLINK|"
    r"(LC|TERM|SSH|SUDO|XDG|DBUS|GNOME|KDE|DESKTOP|WAYLAND|TMUX|VTE|WT|ITERM|KITTY|VSCODE|GPG|GIT|DIRENV|PYENV|PYTEST|"
    r"CI|GITHUB|GITLAB|RUNNER|ACTIONS|BUILD|BUILDKITE|JENKINS|CIRCLE|TRAVIS|AGENT|SYSTEM)_\w+"
)
"""Names of variables that differ between the sessions of a person or the jobs of a CI system. All others are part of
the digest: nobody can list what the libraries and the backends of others read."""

HARMLESS = frozenset({
    "CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE", "CUDA_CACHE_PATH", "PYTORCH_KERNEL_CACHE_PATH", settings.WAIT_POLICY,
    "PYTORCH_NVML_BASED_CUDA_CHECK", "PYTORCH_VERSION", "TORCHINDUCTOR_CACHE_DIR", "TORCH_CUDA_ARCH_LIST",
    "TORCH_EXTENSIONS_DIR", "TORCH_HOME", "TORCH_VERSION", "TRITON_CACHE_DIR", "TRITON_HOME",
})  # fmt: skip
"""Variables that look like torch's and change nothing here: where caches lie, how threads wait, what workers are
given anyway."""

_TORCHS = re.compile(
    r"TORCH|PYTORCH|TRITON|INDUCTOR|AOT|DYNAMO|FUNCTORCH|FX_|PARTITIONER|HALIDE|OMP_|GOMP_|MKL_|KMP_|ATEN_|DNNL_|"
    r"ONEDNN_|OPENBLAS_|"
    r"CUDA_|CUBLAS|CUDNN|NVIDIA_TF32|HIP_|ROC|ENABLE_\w*TMA|LD_PRELOAD$|LD_AUDIT$|GLIBC_TUNABLES$|DYLD_"
)
"""Variables that change what torch does, or make it write what a person wants to see; any but those above."""

_PROCESSOR = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU implementer", "CPU "
        "architecture",
    "CPU variant", "CPU part", "CPU revision",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The digest of all that decides about the answers of one interpreter on this machine.

    ``dirty`` names, for people, what the digest does not cover; it is empty when there is no such thing. ``devices``
    are the kinds of device whose hardware is in the digest. ``places`` tells what else a process has loaded. ``gaps``
    is the part of ``dirty`` that may change while a command runs: all but its variables.
    """

    digest: str
    dirty: str = ""
    devices: tuple[str, ...] = ("cpu", "meta")
    places: Places = field(default_factory=Places, compare=False, repr=False)
    gaps: str = ""


def take_fingerprints(pythons: Iterable[str], environ: Mapping[str, str] | None = None) -> dict[str, Fingerprint]:
    """Return the fingerprints of several interpreters, asked in parallel. Never raises: ``dirty`` says what cannot be
    found out.

    One takes about 0.3 s, most of it to look at 19 000 files. The first time it reads them, which takes seconds.

    Args:
        pythons: executables, by name or path.
        environ: variables that the workers get over control's own; their values are part of the digest.
    """
    places = {python: Places(cache_folder(python)) for python in pythons}
    given = dict(environ or {})
    variables = {**os.environ, **given}
    with ThreadPoolExecutor(max_workers=len(places) + 1) as pool:
        hardware = pool.submit(machine, variables)
        answers = [*pool.map(lambda item: ask(item[0], variables, item[1]), places.items())]
    shared = {
        "machine": hardware.result(),
        "worker": worker_code(),
        "variables": keyed_variables(variables),
        "given": given,
    }
    own = {name: value for name, value in os.environ.items() if name not in given}
    pairs = zip(places.items(), answers, strict=True)
    return {python: _fingerprint(answer, shared, own, looked_at) for (python, looked_at), answer in pairs}


def _fingerprint(
    answer: Mapping[str, Any], shared: Mapping[str, Any], environ: Mapping[str, str], places: Places
) -> Fingerprint:
    torch, editable = answer.get("torch"), answer.get("editable")
    gaps = [
        str(answer.get("error") or ""),
        "it has no torch" if not torch and "error" not in answer else "",
        f"the torch in {torch} is not an installed one" if torch and not answer.get("recorded") else "",
        f"backends from editable installs: {', '.join(editable)}" if editable else "",
    ]
    reasons = [*gaps, f"{', '.join(names)} set" if (names := disturbing_variables(environ)) else ""]
    own_answer = {key: value for key, value in answer.items() if key != "torch"}  # its path decides nothing
    text = json.dumps({"interpreter": own_answer, **shared}, sort_keys=True)
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
    devices = ("cpu", "meta", "cuda") if shared["machine"]["gpus"] else ("cpu", "meta")
    dirty = "; ".join(filter(None, reasons))
    return Fingerprint(digest, dirty, devices, places, gaps="; ".join(filter(None, gaps)))


def ask(python: str, environ: Mapping[str, str], places: Places) -> dict[str, Any]:
    """Ask an interpreter about itself, without importing torch, and return its answer; or ``error``, one line."""
    path = find_python(python)
    if path is None:
        return {"error": f"{python}: no such Python interpreter"}
    if environ.get("PYTHONPATH"):  # workers look from here
        folders = [os.path.abspath(folder) for folder in environ["PYTHONPATH"].split(os.pathsep) if folder]
        environ = {**environ, "PYTHONPATH": os.pathsep.join(folders)}
    try:
        code = Path(loaded_code.__file__).read_text(encoding="utf-8")  # the interpreter cannot import it
        answer = json.loads(run_script(path, code + _ASK, environ=environ).stdout.strip().rpartition(b"\n")[2])
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return {"error": f"{python} could not be asked: {error}"}
    if not isinstance(answer, dict):
        return {"error": f"{python} answered something else than it was asked"}
    digests = {name: places.digests(paths) for name, paths in (answer.get("places") or {}).items()}
    places.save()
    return {**answer, "places": digests}


def disturbing_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the variables of ``environ`` that change what torch does in ways that no digest covers."""
    return sorted(
        name
        for name, value in environ.items()
        if value and name not in HARMLESS and name not in KEYED and _TORCHS.match(name)
    )


def keyed_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``environ`` whose values are part of the digest."""
    return {name: value for name, value in environ.items() if name not in HARMLESS and not _SESSION.fullmatch(name)}


def worker_code() -> str:
    """Return a digest of the code that workers run: the worker's folder, and the contract's beside it."""
    return code_digest(WORKER.parent) + code_digest(WORKER.parent.with_name("contract"))


def code_digest(folder: Path) -> str:
    """Return a digest of the Python files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        data = read_bytes(path)
        digest.update(f"{path.relative_to(folder)} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def machine(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the processor, the graphics cards with their driver, and the compilers that Inductor and Triton would
    call."""
    return {
        "system": [platform.system(), platform.machine()],
        "cores": usable_processors(),  # default threads
        "processor": processor(),
        "gpus": gpus(),
        "compilers": describe_compilers(environ),
    }


def processor(path: str = "/proc/cpuinfo") -> dict[str, str]:
    """Return the model of the first processor and what it can do."""
    try:
        lines = Path(path).read_text(errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return {"model name": platform.processor()}
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip() in _PROCESSOR}


def gpus(driver_file: str = "/proc/driver/nvidia/version") -> list[str]:
    """Return NVIDIA's cards and their parts by model, without serial numbers, then the driver; empty without cards."""
    listed = output_of(["nvidia-smi", "-L"])
    names = [re.sub(r"\s*\(UUID: [^)]*\)", "", line).strip() for line in listed.splitlines() if "UUID" in line]
    if not names:
        return []
    try:
        driver = Path(driver_file).read_text(errors="replace").partition("\n")[0]
    except OSError:
        driver = output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return [*names, driver.strip()]
