"""The fingerprint of an interpreter: all that decides about outcomes besides the job.

It covers torch's files, the compilers, the processor and the worker's own code. Two runs with equal fingerprints would answer
the same job alike. A fingerprint is ``dirty`` where something has no digest: then the cache of results is neither read nor written.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.contract import settings
from runner.engine.cache_folders import cache_folder, make_own_folder
from runner.engine.contents import Stamp, read_memo, stamp_of, take_contents, write_memo
from runner.engine.interpreters import WORKER, find_python, run_script
from runner.engine.processors import usable_processors
from runner.files import read_bytes
from runner.record.signing import NoKey

_ASK = """
import importlib.util, json, os, re, sys
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

def text(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""

installed, startup, editable, code = [], [], [], ["torch", "torchgen", "functorch", "triton"]
for folder in sys.path:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        continue
    for name in names:
        if name.endswith((".dist-info", ".egg-info", ".egg-link")):
            installed.append(name)
            points = text(folder, name, "entry_points.txt")
            groups = re.split(r"^\\s*\\[(.*)\\]\\s*$", points, flags=re.M)
            backends = "".join(part for group, part in zip(groups[1::2], groups[2::2]) if group.strip() in GROUPS)
            if backends:
                code += re.findall(r"=\\s*(\\w+)", backends)
                if name.endswith(".egg-link") or '"editable"' in text(folder, name, "direct_url.json"):
                    editable.append(name)
        elif name.endswith(".pth") or name in ("sitecustomize.py", "usercustomize.py"):
            startup.append([name, text(folder, name)])
torch = places("torch")
beside = os.listdir(os.path.dirname(torch[0])) if torch else []
conda = os.path.join(sys.prefix, "conda-meta")
print(json.dumps({
    "python": sys.version,
    "places": {name: places(name) for name in code},
    "torch": torch[0] if torch else None,
    "recorded": any(n.startswith("torch-") and n.endswith((".dist-info", ".egg-info")) for n in beside),
    "installed": sorted(installed),
    "startup": startup,
    "conda": sorted(os.listdir(conda)) if os.path.isdir(conda) else [],
    "editable": editable,
    "libc": getattr(os, "confstr", lambda name: "")("CS_GNU_LIBC_VERSION") if sys.platform == "linux" else "",
}))
"""
"""Its places are those of code that decides: torch, what it is made of, and the packages of registered backends."""

_PURPOSE = "contents of packages"
"""Of the memo of what their files hold (``contents.py``)."""

KEYED = (
    "CC", "CI", "CPATH", "CPLUS_INCLUDE_PATH", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_MODULE_LOADING", "CUDA_PATH", "CUDA_VERSION",
    "CUDA_VISIBLE_DEVICES", "CXX", "C_INCLUDE_PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "MKL_NUM_THREADS", "OMP_NUM_THREADS",
    "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS", *settings.VARIABLES,
)  # fmt: skip
"""Variables that may change an outcome and do nothing else: their values are part of the digest. So is PYTHON*."""

HARMLESS = frozenset({
    "CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE", "CUDA_CACHE_PATH", "PYTORCH_KERNEL_CACHE_PATH", "PYTORCH_NVML_BASED_CUDA_CHECK",
    "PYTORCH_VERSION", "TORCHINDUCTOR_CACHE_DIR", "TORCH_CUDA_ARCH_LIST", "TORCH_EXTENSIONS_DIR", "TORCH_HOME", "TORCH_VERSION",
    "TRITON_CACHE_DIR", "TRITON_HOME",
})  # fmt: skip
"""Variables that look like torch's and change nothing here: where caches lie, what workers are given anyway."""

_TORCHS = re.compile(
    r"TORCH|PYTORCH|TRITON|INDUCTOR|AOT|DYNAMO|FUNCTORCH|FX_|PARTITIONER|HALIDE|OMP_|GOMP_|MKL_|KMP_|ATEN_|DNNL_|ONEDNN_|OPENBLAS_|"
    r"CUDA_|CUBLAS|CUDNN|NVIDIA_TF32|HIP_|ROC|ENABLE_\w*TMA|LD_PRELOAD$|LD_AUDIT$|GLIBC_TUNABLES$|DYLD_"
)
"""Variables that change what torch does, or make it write what a person wants to see; any but those above."""

_PROCESSOR = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU implementer", "CPU architecture",
    "CPU variant", "CPU part", "CPU revision",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The digest of all that decides about the answers of one interpreter on this machine.

    ``dirty`` names, for people, what the digest does not cover; it is empty when there is no such thing. ``devices`` are the
    kinds of device whose hardware is in the digest.
    """

    digest: str
    dirty: str = ""
    devices: tuple[str, ...] = ("cpu", "meta")


def take_fingerprints(pythons: Iterable[str], environ: Mapping[str, str] | None = None) -> dict[str, Fingerprint]:
    """Return the fingerprints of several interpreters, asked in parallel. Never raises: ``dirty`` says what cannot be found out.

    One takes about 0.5 s, most of it to look at torch's 14 000 files. The first time it reads them, which takes seconds.

    Args:
        pythons: executables, by name or path.
        environ: variables that the workers get over control's own; their values are part of the digest.
    """
    pythons = list(dict.fromkeys(pythons))
    given = dict(environ or {})
    variables = {**os.environ, **given}
    with ThreadPoolExecutor(max_workers=len(pythons) + 1) as pool:
        machine_future = pool.submit(machine, variables)
        answers = dict(zip(pythons, pool.map(lambda python: ask(python, variables), pythons), strict=True))
        hardware = machine_future.result()
    shared = {"machine": hardware, "worker": worker_code(), "variables": keyed_variables(variables), "given": given}
    own = {name: value for name, value in os.environ.items() if name not in given}
    return {python: _fingerprint(answer, shared, own) for python, answer in answers.items()}


def _fingerprint(answer: Mapping[str, Any], shared: Mapping[str, Any], environ: Mapping[str, str]) -> Fingerprint:
    torch, editable = answer.get("torch"), answer.get("editable")
    reasons = [
        str(answer.get("error") or ""),
        "it has no torch" if not torch and "error" not in answer else "",
        f"the torch in {torch} is not an installed one" if torch and not answer.get("recorded") else "",
        f"backends from editable installs: {', '.join(editable)}" if editable else "",
        f"{', '.join(names)} set" if (names := disturbing_variables(environ)) else "",
    ]
    own_answer = {key: value for key, value in answer.items() if key != "torch"}  # its path decides nothing
    text = json.dumps({"interpreter": own_answer, **shared}, sort_keys=True)
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
    devices = ("cpu", "meta", "cuda") if shared["machine"]["gpus"] else ("cpu", "meta")
    return Fingerprint(digest, "; ".join(filter(None, reasons)), devices)


def ask(python: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Ask an interpreter about itself, without importing torch, and return its answer; or ``error``, one line."""
    path = find_python(python)
    if path is None:
        return {"error": f"{python}: no such Python interpreter"}
    if environ.get("PYTHONPATH"):  # workers look from here
        folders = [os.path.abspath(folder) for folder in environ["PYTHONPATH"].split(os.pathsep) if folder]
        environ = {**environ, "PYTHONPATH": os.pathsep.join(folders)}
    try:
        answer = json.loads(run_script(path, _ASK, environ=environ).stdout.strip().rpartition(b"\n")[2])
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return {"error": f"{python} could not be asked: {error}"}
    if not isinstance(answer, dict):
        return {"error": f"{python} answered something else than it was asked"}
    return {**answer, "places": _take_code(python, answer.get("places") or {})}


def _take_code(python: str, places: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return for each package the digests of its folders, or of its one file. What is known of files is kept for later runs."""
    files = {place: dict(_files(place)) for paths in places.values() for place in paths}
    folder = cache_folder(python)
    memo_path = folder.with_suffix(".contents")
    memo = read_memo(memo_path, _PURPOSE)
    contents = take_contents({path: (path, stamp) for tree in files.values() for path, stamp in tree.items()}, memo)
    if contents != memo:
        with contextlib.suppress(OSError, NoKey):  # then all is read the next time too
            if not make_own_folder(folder):
                write_memo(memo_path, _PURPOSE, contents)

    def digest(place: str) -> str:
        lines = [f"{path[len(place) :]} {contents[path].digest if path in contents else '?'}" for path in files[place]]
        return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()

    return {name: [digest(place) for place in paths] for name, paths in places.items()}


def _files(place: str) -> Iterator[tuple[str, Stamp]]:
    """Yield the files below a folder, or one file, by path. Links are followed: installers link files into an environment."""
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


def disturbing_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the variables of ``environ`` that change what torch does in ways that no digest covers."""
    return sorted(
        name
        for name, value in environ.items()
        if value and name not in HARMLESS and name not in KEYED and _TORCHS.match(name)
    )


def keyed_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``environ`` whose values are part of the digest."""
    return {name: value for name, value in environ.items() if name in KEYED or name.startswith("PYTHON")}


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
    """Return the processor, the graphics cards with their driver, and the compilers that Inductor and Triton would call."""
    return {
        "system": [platform.system(), platform.machine()],
        "cores": usable_processors(),  # default threads
        "processor": processor(),
        "gpus": gpus(),
        "compilers": [compiler(environ.get("CXX") or "g++"), compiler(environ.get("CC") or "gcc")],
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
    """Return NVIDIA's cards and their parts by model, without serial numbers, then the driver; empty where there are none."""
    listed = _output_of(["nvidia-smi", "-L"])
    names = [re.sub(r"\s*\(UUID: [^)]*\)", "", line).strip() for line in listed.splitlines() if "UUID" in line]
    if not names:
        return []
    try:
        driver = Path(driver_file).read_text(errors="replace").partition("\n")[0]
    except OSError:
        driver = _output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return [*names, driver.strip()]


def compiler(command: str) -> list[str]:
    """Return where a compiler is, and what it says of its version."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = [command]
    path = shutil.which(words[0]) if words else None
    return [path or "", _output_of([path, *words[1:], "--version"]) if path else ""]


def _output_of(command: list[str]) -> str:
    """What a program prints; nothing when it is not there or fails."""
    try:
        process = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.decode(errors="replace") if process.returncode == 0 else ""
