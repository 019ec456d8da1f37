"""Which files a Python file imports from its own folder. None is imported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.cases import python_files
from runner.cases.python_files import own_imports


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "model.py"


FILES = {
    "helper.py": "from tools import sub\nimport model\n",
    "tools/__init__.py": "",
    "tools/sub.py": "from . import near\nfrom .deep.low import f\nfrom ...outside import x\n",
    "tools/near.py": "",
    "tools/deep/low.py": "from .. import up\nfrom .... import far\n",
    "tools/up.py": "",
    "unused.py": "",
}


@pytest.mark.parametrize(
    "text",
    [
        "import torch, helper",
        "from helper import f",
        "def f():\n    import helper as h\n",
        "try:\n    from helper import *\nexcept ImportError:\n    pass\n",
    ],
)
def test_what_is_imported_from_the_folder_is_found_however_deep(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "own"
    file = write(folder, {"model.py": text, **FILES})
    write(tmp_path, {"outside.py": "", "torch.py": ""})
    assert own_imports(file) == {name: content for name, content in FILES.items() if name != "unused.py"}


@pytest.mark.parametrize(
    "text", ["import os", "import a b", "x = 1", "\0", "from .. import helper", "(" * 5000, "from . import *"]
)
def test_without_imports_of_its_own_nothing_is_found(tmp_path: Path, text: str) -> None:
    file = write(tmp_path / "own", {"model.py": text, "other.py": ""})
    write(tmp_path, {"helper.py": ""})
    assert own_imports(file) == {}


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    file = write(tmp_path, {"model.py": "import pipe, folder, bytes_, broken"})
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "bytes_.py").write_bytes(b"\xff")
    (tmp_path / "broken.py").write_text("import")
    assert own_imports(file) == {"broken.py": "import"}
    assert own_imports(tmp_path / "none.py") == {}


def test_so_many_files_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_files, "_MOST_IMPORTS", 10)
    file = write(tmp_path, {"model.py": "import m0", **{f"m{i}.py": f"import m{i + 1}" for i in range(50)}})
    assert len(own_imports(file)) == 9
