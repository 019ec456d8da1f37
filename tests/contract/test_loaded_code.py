"""Where code came from: each kind of place, asked of a process of its own."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from runner.contract import loaded_code


def ask(folder: Path, imports: str, names: str = "") -> list[str]:
    """Return the places in a folder that a process names once it has imported modules from there."""
    text = Path(loaded_code.__file__).read_text(encoding="utf-8")
    script = f"{text}\nimport json, {imports}\nprint(json.dumps(find_loaded_code([{names!r}])))"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, folder / "archive.egg")))}
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, env=environ)
    places = json.loads(process.stdout)
    return [place.removeprefix(f"{folder}/") for place in places if place.startswith(f"{folder}/")]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a package, a module that it imports, one without source, a namespace and an archive."""
    (tmp_path / "package" / "part").mkdir(parents=True)
    (tmp_path / "package" / "__init__.py").write_text("import inner\n")
    (tmp_path / "package" / "part" / "__init__.py").write_text("")
    (tmp_path / "inner.py").write_text("")
    (tmp_path / "source.py").write_text("")
    py_compile.compile(str(tmp_path / "source.py"), str(tmp_path / "bare.pyc"), doraise=True)
    (tmp_path / "space").mkdir()
    (tmp_path / "space" / "module.py").write_text("")
    with zipfile.ZipFile(tmp_path / "archive.egg", "w") as archive:
        archive.writestr("zipped/__init__.py", "")
    return tmp_path


@pytest.mark.parametrize(
    ("imports", "places"),
    [
        ("package.part", ["inner.py", "package"]), ("bare", ["bare.pyc"]), ("space.module", ["space/module.py"]), ("zipped", ["archive.egg"]),
        ("inner as other", ["inner.py"]),
    ],
)  # fmt: skip
def test_each_kind_of_place_is_named(site: Path, imports: str, places: list[str]) -> None:
    assert ask(site, imports) == places


def test_what_lies_in_a_known_folder_is_not_named(site: Path) -> None:
    assert ask(site, "package, bare", names=str(site / "package")) == ["bare.pyc", "inner.py", "package"]
    assert ask(site, "package, bare", names=str(site)) == []


def test_odd_modules_are_passed_over(site: Path) -> None:
    (site / "odd.py").write_text(
        "import sys, types\n"
        "class Late(types.ModuleType):\n"
        "    def __getattribute__(self, name): raise SystemExit('it was asked')\n"
        "sys.modules |= {'a': None, 'b': Late('b'), 'c': types.ModuleType('c')}\n"
        "sys.modules['c'].__file__ = '_ops.py'\n"
    )
    assert ask(site, "odd") == ["odd.py"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which")
def test_the_interpreter_and_its_shared_objects_are_named_by_their_own_names() -> None:
    places = loaded_code.find_loaded_code()
    assert sys.executable in places
    assert any(Path(place).name.startswith("libc.") for place in places)
    assert not [place for place in places if not os.path.exists(place)]


LOADER = """
import _ctypes, sys, threading, time
end = time.monotonic() + 1

def load():
    while time.monotonic() < end:
        _ctypes.dlclose(_ctypes.dlopen(sys.argv[1], 0))

threading.Thread(target=load, daemon=True).start()
while time.monotonic() < end:
    shared_objects()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there shared objects are listed")
def test_a_thread_that_loads_a_shared_object_meanwhile_is_not_waited_for(tmp_path: Path) -> None:
    """It holds the interpreter while it waits for the linker's lock."""
    own = next(path for path in loaded_code.shared_objects() if path.endswith(".so"))
    copy = shutil.copy(own, tmp_path / "copy.so")
    script = Path(loaded_code.__file__).read_text(encoding="utf-8") + LOADER
    subprocess.run([sys.executable, "-c", script, str(copy)], check=True, timeout=30)
