"""Which files a plan is made of, when they change, and which variants mean another thing then."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.diagnostics import shown_path
from runner.engine.fingerprint import Fingerprint
from runner.record.events import Key
from runner.session.collect import collect
from runner.session.run import Plan, plan
from runner.session.settings import RunSettings
from runner.session.watched import Code, Watcher, contents_of, files_of, find_code, folders_of
from tests.handmade import written

# --- changes ---


def no_sleep(seconds: float) -> None:
    pass


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, "one")


def watcher_of(*paths: Path) -> Watcher:
    watcher = Watcher()
    watcher.add([str(path) for path in paths if not path.is_dir()], [str(path) for path in paths if path.is_dir()])
    return watcher


def write_anew(file: Path) -> None:
    file.write_text("two, which is longer")


def write_alike(file: Path) -> None:
    status = file.stat()
    file.write_text("eno")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace(file: Path) -> None:
    file.with_suffix(".new").write_text("one")
    file.with_suffix(".new").replace(file)


def replace_by_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("edit", [write_anew, write_alike, replace, replace_by_a_folder, Path.unlink])
def test_each_way_to_write_a_file_is_a_change(edit: Callable[[Path], None], file: Path) -> None:
    watcher = watcher_of(file)
    assert not watcher.has_changes()
    edit(file)
    assert watcher.has_changes() and watcher.wait(no_sleep) == {str(file)}
    assert not watcher.has_changes(), "it is told once"


def test_a_file_counts_once_it_is_whole(file: Path) -> None:
    parts = ["tw", "two, which", "two, which is longer"]

    def sleep(seconds: float) -> None:
        if parts:
            file.write_text(parts.pop(0))

    watcher = watcher_of(file)
    assert watcher.wait(sleep) == {str(file)}
    assert parts == [] and file.read_text() == "two, which is longer"


def test_a_file_that_is_away_for_a_moment_has_only_changed(file: Path) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            file.write_text("two, which is longer")

    watcher = watcher_of(file)
    file.unlink()
    assert watcher.wait(sleep) == {str(file)}
    assert file.exists() and slept[0] > slept[1], "the absence gets more patience"


def test_a_file_that_never_rests_is_read_all_the_same(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = iter(range(1, 10**6))
    watcher = watcher_of(file)
    monkeypatch.setattr("runner.session.watched._PATIENCE", 0.2)
    assert watcher.wait(lambda seconds: file.write_text("x" * next(lengths)) and None) == {str(file)}


def test_names_of_a_folder_count_and_other_files_do_not(tmp_path: Path) -> None:
    watcher = watcher_of(tmp_path)
    for name in (".b.spec.yaml", ".#b.spec.yaml", "b.spec.yaml~", "4913", "notes.txt", ".b.spec.yaml.swp"):
        (tmp_path / name).touch()
    (tmp_path / "__pycache__").mkdir()
    assert not watcher.has_changes()
    (tmp_path / "b.spec.yaml").touch()
    assert watcher.wait(no_sleep) == {str(tmp_path)}
    (tmp_path / "below").mkdir()
    assert watcher.has_changes()


def test_what_is_new_is_to_be_read_once_more(file: Path) -> None:
    watcher = Watcher()
    assert watcher.add([str(file)], []) and not watcher.add([str(file)], [])
    assert watcher.add([str(file.parent / "absent.spec.yaml")], [])
    assert watcher.count == 1, "one of them is there"


# --- files ---

SPEC = """
    cases:
      - name: a
        inputs: {x: [2, 3]}
        chain: [F.relu]
      - name: b
        inputs: {x: {file: {path: t.safetensors, tensor: w}}}
        chain: [F.relu]
      - name: c
        inputs: {x: [2, 3]}
        module: {file: model.py, name: Net}
"""
MODULE = (
    "import torch\nfrom part import f\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return f(x)\n"
)
SUITE = """
    suite: s
    specs: [a.spec.yaml]
    backends: [eager, {name: acme, backend: "acme:compile_graph"}]
    ledger: known.ledger.yaml
"""
LEDGER = """
    known:
      - {case: a, backend: acme, oracle: [value], reason: slow sums}
"""


def write_tensor(file: Path, byte: bytes) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + byte * 8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "a.spec.yaml": SPEC, "s.suite.yaml": SUITE, "known.ledger.yaml": LEDGER, "model.py": MODULE,
        "part.py": "def f(x):\n    return x\n", "acme.py": "import helper\n", "helper.py": "", "notes.txt": "",
        "alone.spec.yaml": "cases: [", "below/d.spec.yaml": "", ".hidden/e.spec.yaml": "",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(tmp_path, text, name)
    write_tensor(tmp_path / "t.safetensors", b"\0")
    return tmp_path


SETTINGS = RunSettings(allow_python=True)


def plan_here() -> tuple[Plan, Code]:
    loaded = collect(["s.suite.yaml"], SETTINGS)
    assert not loaded.errors, [each.render() for each in loaded.errors]
    planned = plan(loaded, SETTINGS)
    return planned, find_code(planned, SETTINGS)


def test_all_files_of_a_suite_are_looked_at(folder: Path) -> None:
    _, code = plan_here()
    files = files_of(collect(["s.suite.yaml"], SETTINGS), ["s.suite.yaml"], SETTINGS) | code.edited
    assert {shown_path(file) for file in files} == {
        "a.spec.yaml", "s.suite.yaml", "known.ledger.yaml", "model.py", "part.py", "t.safetensors", "acme.py", "helper.py",
    }  # fmt: skip


def test_files_that_are_wrong_and_files_that_are_not_there_are_looked_at(folder: Path) -> None:
    paths = ["alone.spec.yaml", "absent.spec.yaml::a"]
    files = files_of(collect(paths[:1]), paths, RunSettings(ledger=("absent.ledger.yaml",)))
    assert files == {str(folder / name) for name in ("alone.spec.yaml", "absent.spec.yaml", "absent.ledger.yaml")}


def test_folders_below_a_named_one_are_looked_at_and_hidden_ones_are_not(folder: Path) -> None:
    assert folders_of(["/x/a.spec.yaml"], ["."]) == {"/x", str(folder), str(folder / "below")}
    assert folders_of([], ["a.spec.yaml"]) == set()


def test_an_installed_package_is_no_file_that_somebody_edits() -> None:
    site = "/venv/lib/python3.11/site-packages/acme/__init__.py"
    assert Code({"acme": (site, "/home/me/acme.py")}).edited == {"/home/me/acme.py"}


# --- contents ---


def contents_here(digest: str = "one") -> dict[Key, str]:
    planned, code = plan_here()
    return contents_of(planned, {each.key: Fingerprint(digest) for each in planned.environments}, code)


def edited(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("edit", "changed"),
    [
        (lambda folder: edited(folder / "a.spec.yaml", "[2, 3]", "[2, 4]"), "a@eager a@acme"),
        (lambda folder: edited(folder / "a.spec.yaml", "cases:", "# moved\n\ncases:"), ""),
        (lambda folder: write_tensor(folder / "t.safetensors", b"\1"), "b@eager b@acme"),
        (lambda folder: edited(folder / "model.py", "f(x)", "f(x) + 1"), "c@eager c@acme"),
        (lambda folder: edited(folder / "part.py", "return x", "return x + 1"), "c@eager c@acme"),
        (lambda folder: edited(folder / "acme.py", "helper", "helper, sys"), "a@acme b@acme c@acme"),
        (lambda folder: (folder / "helper.py").write_text("x = 1"), "a@acme b@acme c@acme"),
        (lambda folder: edited(folder / "s.suite.yaml", '"acme:', '"acme:my_'), "a@acme b@acme c@acme"),
        (lambda folder: edited(folder / "known.ledger.yaml", "value", "dtype"), "a@eager a@acme b@eager b@acme c@eager c@acme"),
        (lambda folder: (folder / "notes.txt").write_text("x"), ""),
    ],
    ids=["case", "lines", "tensor", "module", "import of the module", "backend", "import of the backend", "suite", "ledger", "no file of it"],
)  # fmt: skip
def test_a_digest_changes_with_what_a_verdict_depends_on(
    edit: Callable[[Path], object], changed: str, folder: Path
) -> None:
    before = contents_here()
    edit(folder)
    after = contents_here()
    assert before.keys() == after.keys() and len(before) == 6
    names = {key: key[0].rpartition("::")[2].partition("[")[0] + key[0][key[0].rindex("@") :] for key in before}
    assert {names[key] for key in before if before[key] != after[key]} == {*changed.split()}


def test_a_digest_changes_with_the_interpreter(folder: Path) -> None:
    before, after = contents_here(), contents_here("two")
    assert all(before[key] != after[key] for key in before)


def test_the_code_of_an_import_is_that_of_each_variant(folder: Path) -> None:
    settings = RunSettings(imports=("helper",), python=(sys.executable,))
    written(folder, "cases: [{name: a, inputs: {x: [2]}, chain: [F.relu]}]", "below/x.spec.yaml")
    planned = plan(collect(["below/x.spec.yaml"], settings), settings)
    code = find_code(planned, settings)
    (variant,) = (each.variant for each in planned.planned)
    assert [file for file, _ in code.stamps(variant.backend)] == [str(folder / "helper.py")]
