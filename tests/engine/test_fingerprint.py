"""What a fingerprint notices, what it ignores, and what it says no fingerprint covers. The torch here is a stand-in.

What is noticed of a compiler: its files, those of the programs that it starts, and what it says.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from engine_jobs import take_fingerprint

from runner.engine import fingerprint
from runner.engine.fingerprint import Fingerprint, Places, compilers_digest, describe_compiler, take_fingerprints
from runner.record.signing import key_path

POINTS = (
    "[console_scripts]\nx = other:main\n\n[torch_dynamo_backends]\nmine = mine.code:compile\nplug=plug:compile [x]\n"
)


@dataclass
class World:
    """A folder with a torch that may not be imported, a worker's code, and programs in front of the PATH."""

    site: Path
    worker: Path
    programs: Path
    patch: pytest.MonkeyPatch

    def facts(self) -> Fingerprint:
        return take_fingerprint(sys.executable, {"PYTHONPATH": str(self.site)})

    def program(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in [*fingerprint.disturbing_variables(os.environ), *fingerprint.keyed_variables(os.environ)]:
        monkeypatch.delenv(name)
    site, worker, programs = (tmp_path / name for name in ("site", "worker", "programs"))
    for folder in (site / "torch" / "lib", site / "torch" / "include", site / "triton", worker, programs):
        folder.mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    (site / "torch" / "lib" / "libtorch.so").write_bytes(b"\x7fELF")
    (site / "torch" / "include" / "vec.h").write_text("// one\n")
    (site / "triton" / "__init__.py").write_text("raise SystemExit('triton was imported')\n")
    (site / "torch-9.9.9.dist-info").mkdir()
    (site / "other-1.0.dist-info").mkdir()
    (site / "plugin-1.0.dist-info").mkdir()
    (site / "plugin-1.0.dist-info" / "entry_points.txt").write_text(POINTS)
    (site / "mine").mkdir()
    (site / "mine" / "__init__.py").write_text("raise SystemExit('a backend was imported')\n")
    (site / "plug.py").write_text("raise SystemExit('a backend was imported')\n")
    (site / "other").mkdir()
    (site / "sitecustomize.py").write_text("import early\n")
    (site / "early.py").write_text("pass\n")
    (site / "needed_one.py").write_text("raise SystemExit('what torch requires was imported')\n")
    (site / "torch-9.9.9.dist-info" / "METADATA").write_text("Requires-Dist: Needed-One (>=1)\n")
    (worker / "__main__.py").write_text("one\n")
    (worker / "judge.py").write_text("two\n")
    monkeypatch.setattr(fingerprint, "WORKER", worker / "__main__.py")
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    machine = World(site, worker, programs, monkeypatch)
    machine.program("g++", "echo g++ 12.2.0")
    machine.program("gcc", "echo gcc 12.2.0")
    return machine


def test_nothing_changed_nothing_said(world: World) -> None:
    first = world.facts()
    assert (first.dirty, first.devices, len(first.digest)) == ("", ("cpu", "meta"), 64)
    assert world.facts() == first


def edited(path: str) -> Callable[[World], None]:
    """Change a file, and neither its size nor its time: images and packages may have one time for all files."""

    def change(world: World) -> None:
        file = world.site / path
        stat, content = file.stat(), file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    return change


def touched(world: World) -> None:
    os.utime(world.site / "torch" / "__init__.py", (1, 1))


def put(path: str, text: str = "new\n") -> Callable[[World], None]:
    def change(world: World) -> None:
        (world.site / path).parent.mkdir(exist_ok=True)
        (world.site / path).write_text(text)

    return change


def program(name: str, says: str) -> Callable[[World], None]:
    return lambda world: world.program(name, f"echo '{says}'")


def variable(name: str, value: str) -> Callable[[World], None]:
    return lambda world: world.patch.setenv(name, value)


def removed(world: World) -> None:
    (world.site / "torch" / "include" / "vec.h").unlink()


def upgraded(world: World) -> None:
    (world.site / "other-1.0.dist-info").rename(world.site / "other-1.1.dist-info")


def another_compiler(world: World) -> None:
    world.program("clang++", "echo clang++ 17")
    world.patch.setenv("CXX", "clang++")


def moved_compiler(world: World) -> None:
    folder = world.programs.parent / "other"
    folder.mkdir()
    shutil.copy(world.programs / "g++", folder / "g++")
    world.patch.setenv("PATH", str(folder), prepend=os.pathsep)


def another_processor(world: World) -> None:
    world.patch.setattr(fingerprint, "processor", lambda: {"model name": "another"})


def worker_edited(world: World) -> None:
    (world.worker / "judge.py").write_text("TWO\n")


def worker_grown(world: World) -> None:
    (world.worker / "more.py").write_text("")


def worker_line_moved(world: World) -> None:
    (world.worker / "__main__.py").write_text("one\ntwo\n")
    (world.worker / "judge.py").write_text("")


CHANGES: dict[str, Callable[[World], None]] = {
    "a file of torch": edited("torch/__init__.py"),
    "a library of torch": edited("torch/lib/libtorch.so"),
    "a header of torch": edited("torch/include/vec.h"),
    "a file of triton": edited("triton/__init__.py"),
    "a file of functorch": put("functorch/__init__.py"),
    "a module without source": put("torch/x.pyc"),
    "a backend": edited("mine/__init__.py"),
    "a backend of one file": edited("plug.py"),
    "a backend's entry": put("plugin-1.0.dist-info/entry_points.txt", POINTS.replace("code:compile", "code:other")),
    "what is imported at the start": edited("early.py"),
    "what torch requires": edited("needed_one.py"),
    "a module in front of an installed one": put("sympy.py"),
    "a new file": put("torch/new.py"),
    "a new file, deep": put("torch/_inductor/kernel.jinja"),
    "a file gone": removed,
    "a package installed": put("third-1.0.dist-info/METADATA"),
    "a package upgraded": upgraded,
    "code at the start": put("sitecustomize.py", "pass\n"),
    "a path at the start": put("more.pth", "/elsewhere\n"),
    "the worker": worker_edited,
    "a new file of the worker": worker_grown,
    "the worker's lines": worker_line_moved,
    "the C++ compiler's version": program("g++", "g++ 13.1.0"),
    "the C compiler's version": program("gcc", "gcc 13.1.0"),
    "the C++ compiler's file": lambda world: world.program("g++", "true\necho g++ 12.2.0"),
    "another compiler": another_compiler,
    "the compiler elsewhere": moved_compiler,
    "the processor": another_processor,
    "a card": program("nvidia-smi", "GPU 0: NVIDIA H200 (UUID: GPU-1)"),
    "threads": variable("OMP_NUM_THREADS", "1"),
    "MKL's threads": variable("MKL_NUM_THREADS", "1"),
    "the seed of hashes": variable("PYTHONHASHSEED", "1"),
    "libraries": variable("LD_LIBRARY_PATH", "/no/such"),
    "a variable of a pass of torch": variable("TENSORIFY_PYTHON_SCALARS", "1"),
    "a variable of a backend": variable("MINE_OPTIMIZE", "3"),
    "visible cards": variable("CUDA_VISIBLE_DEVICES", "1"),
    "a user's pool of compilers": variable("TORCHINDUCTOR_COMPILE_THREADS", "8"),
    "a user's cache of graphs": variable("TORCHINDUCTOR_FX_GRAPH_CACHE", "0"),
    "cores": lambda world: world.patch.setattr(os, "sched_getaffinity", lambda pid: range(77)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_may_change_an_outcome_is_noticed(world: World, name: str) -> None:
    old_facts = world.facts()
    CHANGES[name](world)
    new_facts = world.facts()
    assert new_facts.digest != old_facts.digest and new_facts.dirty == ""


@pytest.mark.parametrize(
    "change",
    [
        put("torch/__pycache__/x.pyc"), touched, put("other/code.py"), variable("LANG", "C"), variable("HOME", "/tmp"),
        variable("TORCHINDUCTOR_CACHE_DIR", "/tmp/x"), variable("TRITON_CACHE_DIR", "/tmp/x"),
    ],
)  # fmt: skip
def test_what_cannot_is_not(world: World, change: Callable[[World], None]) -> None:
    old_facts = world.facts()
    change(world)
    assert world.facts() == old_facts


def test_a_file_is_read_once_where_there_is_a_key(world: World, tmp_path: Path) -> None:
    read, paths = fingerprint._read, []
    world.patch.setattr(fingerprint, "_read", lambda path, stamp: paths.append(path) or read(path, stamp))
    world.patch.setattr(fingerprint, "_GRAIN", -(10**12))
    world.patch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = world.facts()
    assert len(paths) == len(set(paths)) > 5
    paths.clear()
    edited("torch/include/vec.h")(world)
    assert world.facts() != first and paths == [str(world.site / "torch/include/vec.h")]
    paths.clear()
    key_path().chmod(0o644)
    try:
        assert world.facts() != first and len(paths) > 5
    finally:
        key_path().chmod(0o600)


def test_an_archive_on_the_path_is_noticed(world: World) -> None:
    archive, digests = world.site.with_name("more.zip"), []
    for text in ("one", "two"):
        archive.write_text(text)
        digests.append(take_fingerprint(sys.executable, {"PYTHONPATH": f"{archive}:{world.site}"}).digest)
    assert digests[0] != digests[1]


def test_python_s_own_library_is_read(world: World) -> None:
    library = fingerprint.ask(sys.executable, os.environ, Places())["places"]["library"]
    assert len(library) == len({*library}) > 100


def test_the_same_torch_in_another_folder_is_the_same(world: World) -> None:
    def files(site: Path) -> object:
        return fingerprint.ask(sys.executable, {**os.environ, "PYTHONPATH": str(site)}, Places())["places"]

    old_files = files(world.site)
    world.site.rename(world.site.with_name("moved"))
    assert files(world.site.with_name("moved")) == old_files != files(world.site)


def test_a_path_from_here_is_followed_from_here(world: World) -> None:
    world.patch.chdir(world.site)
    for path, is_here in (("../site", True), (".", True), (os.pathsep + "/no/such", False)):
        answer = fingerprint.ask(sys.executable, {**os.environ, "PYTHONPATH": path}, Places())
        assert (answer["torch"] == str(world.site / "torch")) is is_here, path


# --- what no digest covers ---


@pytest.mark.parametrize(
    "name",
    [
        "TORCH_LOGS", "TORCH_COMPILE_DEBUG", "TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHDYNAMO_DISABLE", "TRITON_INTERPRET", "INDUCTOR_POST_FUSION_SVG",
        "AOT_PARTITIONER_DEBUG", "OMP_SCHEDULE", "MKL_CBWR", "KMP_AFFINITY", "ATEN_CPU_CAPABILITY", "CUDA_LAUNCH_BLOCKING", "PYTORCH_JIT",
        "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "FX_PATCH_GETITEM", "GLIBC_TUNABLES",
    ],
)  # fmt: skip
def test_variables_that_change_torch_are_named(world: World, name: str) -> None:
    world.patch.setenv(name, "1")
    assert (world.facts().dirty, world.facts().gaps) == (f"{name} set", "")
    world.patch.setenv(name, "")
    assert world.facts().dirty == ""


_READS = (
    r"environ(?:\.get|\.pop|\.setdefault)?\s*[\(\[]\s*[\"'](\w+)",
    r"getenv\(\s*[\"'](\w+)",
    r"env_name_\w+\s*=\s*[\"'](\w+)",
    r"[\"'](\w+)[\"']\s+(?:not\s+)?in\s+os\.environ",
    r"\benv_(?:bool|int|str|opt_str|opt_bool|class|nvidia_tool)\(\s*\"(\w+)",
)


def test_nothing_that_torch_or_triton_reads_counts_as_a_session_s() -> None:
    """What is read in a session is where things lie, and what their tests and their reports are given."""
    names = set()
    for package in ("torch", "triton"):
        spec = importlib.util.find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            texts = [path.read_text(errors="replace") for path in Path(folder).rglob("*.py")]
            names |= {name for text in texts for pattern in _READS for name in re.findall(pattern, text)}
    assert {"TENSORIFY_PYTHON_SCALARS", "TORCHINDUCTOR_MAX_AUTOTUNE", "TRITON_INTERPRET"} <= names
    covered = {*fingerprint.keyed_variables(dict.fromkeys(names, "1")), *fingerprint.HARMLESS}
    places = {"HOME", "PATH", "USER", "USERNAME", "VIRTUAL_ENV", "XDG_CACHE_HOME", "XDG_CONFIG_DIRS", "XDG_CONFIG_HOME"}
    reports = {"NO_COLOR", "PYTEST_CURRENT_TEST", "XDG_DATA_DIRS", "XDG_DATA_HOME", "XDG_STATE_HOME", "TEMP"}
    assert names - covered <= places | reports


def test_a_preloaded_library_is_named(world: World) -> None:
    assert fingerprint.disturbing_variables({"LD_PRELOAD": "/x.so", "LD_PRELOADED": "no", "PATH": "/bin"}) == [
        "LD_PRELOAD"
    ]


def test_what_the_engine_itself_gives_to_workers_is_in_the_digest_instead(world: World) -> None:
    given = {"PYTHONPATH": str(world.site), "TORCHDYNAMO_VERBOSE": "1"}
    world.patch.setenv("TORCHDYNAMO_VERBOSE", "0")  # the engine's wins
    with_it = take_fingerprint(sys.executable, given)
    assert (
        with_it.dirty == ""
        and with_it.digest != take_fingerprint(sys.executable, {**given, "TORCHDYNAMO_VERBOSE": "2"}).digest
    )


def test_a_torch_that_nobody_installed(world: World) -> None:
    (world.site / "torch-9.9.9.dist-info").rename(world.site / "torch.egg-info")  # as a development install has it
    facts = world.facts()
    assert "not an installed one" in facts.dirty and str(world.site / "torch") in facts.dirty
    assert facts.gaps == facts.dirty


def test_backends_of_an_editable_install(world: World) -> None:
    info = world.site / "other-1.0.dist-info"
    (info / "entry_points.txt").write_text("[torch_dynamo_backends]\nmine = other:compile\n")
    assert world.facts().dirty == ""
    (info / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": True}, "url": "file:///x"}))
    assert world.facts().dirty == "backends from editable installs: other-1.0.dist-info"
    (info / "entry_points.txt").write_text("[console_scripts]\nmine = other:main\n")
    assert world.facts().dirty == ""


def test_an_interpreter_that_cannot_say(world: World, tmp_path: Path) -> None:
    world.program("silent", "exit 3")
    world.program("chatty", "echo '[1]'")
    for python, says in (
        ("/no/such/python", "no such"),
        ("silent", "could not be asked"),
        ("chatty", "something else"),
    ):
        assert says in take_fingerprint(python).dirty
    shutil.rmtree(world.site / "torch")
    bare = {"PYTHONPATH": str(world.site), "PYTHONNOUSERSITE": "1"}
    world.program("bare", f'exec {sys.executable} -S "$@"')
    assert take_fingerprint("bare", bare).dirty == "it has no torch"


def test_chatter_at_the_start_is_no_answer(world: World) -> None:
    (world.site / "sitecustomize.py").write_text("print('hello')\n")
    assert world.facts().dirty == ""


def test_several_interpreters_have_facts_of_their_own(world: World) -> None:
    world.program("second", f'PYTHONHASHSEED=0 exec {sys.executable} "$@"')
    world.program("third", "exit 1")
    facts = take_fingerprints([sys.executable, "second", "third", "second"], {"PYTHONPATH": str(world.site)})
    assert list(facts) == [sys.executable, "second", "third"]
    assert facts[sys.executable] == world.facts() == facts["second"]
    assert facts["third"].dirty


# --- the machine ---


def cards(world: World, text: str, driver: str = "570.1") -> None:
    world.program("nvidia-smi", f'if [ "$1" = -L ]; then printf "{text}"; else echo {driver}; fi')


def test_cards_are_told_by_model_and_driver_not_by_number(world: World) -> None:
    cards(world, "GPU 0: NVIDIA H200 (UUID: GPU-11)\\n  MIG 1g.18gb Device 0: (UUID: MIG-22)\\n")
    models = fingerprint.gpus()
    assert models[:2] == ["GPU 0: NVIDIA H200", "MIG 1g.18gb Device 0:"]
    assert world.facts().devices == ("cpu", "meta", "cuda")
    cards(world, "GPU 0: NVIDIA H200 (UUID: GPU-99)\\n  MIG 1g.18gb Device 0: (UUID: MIG-77)\\n")
    assert fingerprint.gpus() == models
    cards(world, "GPU 0: NVIDIA H100 (UUID: GPU-99)\\n")
    assert fingerprint.gpus() != models
    driver = world.programs / "version"
    driver.write_text("NVRM version: 580.2\nGCC version: 12\n")
    assert fingerprint.gpus(str(driver)) == ["GPU 0: NVIDIA H100", "NVRM version: 580.2"]
    assert fingerprint.gpus("/no/such") == ["GPU 0: NVIDIA H100", "570.1"]
    cards(world, "No devices were found\\n")
    assert fingerprint.gpus() == []


def test_a_processor_is_its_model_and_its_abilities(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    text = "processor\t: 0\nmodel name\t: EPYC\ncpu MHz\t\t: 2596.1\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nmodel name\t: no\n"
    file.write_text(text)
    assert fingerprint.processor(str(file)) == {"model name": "EPYC", "flags": "fpu avx2"}
    assert list(fingerprint.processor("/no/such")) == ["model name"]


def test_this_project_s_own_worker_is_what_is_hashed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old_digest = fingerprint.worker_code()
    copies = [tmp_path / name for name in ("worker", "contract")]
    for copied in copies:
        shutil.copytree(fingerprint.WORKER.parent.with_name(copied.name), copied)
    monkeypatch.setattr(fingerprint, "WORKER", copies[0] / "__main__.py")
    digests = [old_digest, fingerprint.worker_code()]
    assert digests[0] == digests[1]
    for copied in copies:
        (copied / "more.py").write_text("#")
        digests.append(fingerprint.worker_code())
    assert len({*digests}) == 3


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of the PATH, with a compiler that starts ``cc1plus`` beside it."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CXX", "mine++ -O1")
    put_program(
        tmp_path / "mine++", f'case "$2" in -print-prog-name=cc1plus) echo {tmp_path}/cc1plus;; *) echo mine 1;; esac'
    )
    put_program(tmp_path / "cc1plus", "echo compiles")
    return tmp_path


def put_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def describe(command: str, folder: Path) -> list[str]:
    return describe_compiler(command, Places(folder / "memo"))


@pytest.mark.parametrize("name", ["mine++", "cc1plus"])
def test_another_file_behind_the_same_path_is_noticed(programs: Path, name: str) -> None:
    old_digest = compilers_digest(os.environ)
    assert compilers_digest(os.environ) == old_digest
    path, status = programs / name, (programs / name).stat()
    path.write_text(path.read_text() + "# patched\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert compilers_digest(os.environ) != old_digest


def test_the_shared_objects_of_a_compiler_are_part_of_it(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = programs / "libcompiler.so"
    put_program(programs / "ldd", f"echo '\tlibcompiler.so => {library} (0x1)'; exit 1")
    library.write_text("one")
    old_digest = compilers_digest(os.environ)
    library.write_text("two")
    assert compilers_digest(os.environ) != old_digest


def test_a_compiler_may_have_arguments_and_may_be_missing(programs: Path) -> None:
    put_program(programs / "ccache", 'echo "$@"')
    path, version, *digests = describe("ccache mine++", programs)
    assert (path, version, len(digests)) == (str(programs / "ccache"), "mine++ --version\n", 2)
    assert describe("no-such-compiler", programs) == ["", ""] == describe("", programs)
    assert describe("mine++ 'unclosed", programs) == ["", ""]
