"""What a record says beside the verdict."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from worker_jobs import run, source

from runner.worker.run.job import is_installed


@pytest.mark.parametrize("listing", [True, False])
def test_the_places_of_loaded_code_are_listed_where_the_job_asks(listing: bool) -> None:
    record = run(source("return x + 1"), "eager", lists_code=listing)
    assert (os.path.dirname(torch.__file__) in record["code"]) is listing


@pytest.mark.parametrize(
    ("body", "message", "frame"),
    [
        ("nothing_of_the_kind", "NameError: name 'nothing_of_the_kind' is not defined", "_inductor/ir.py:<module>"),
        ("from math import nothing", "ImportError: cannot import name 'nothing'", "_inductor/ir.py:<module>"),
    ],
)
def test_a_compiler_that_cannot_be_imported_is_told_with_its_frame(
    monkeypatch: pytest.MonkeyPatch, body: str, message: str, frame: str
) -> None:
    module = compile(body, f"{os.path.dirname(torch.__file__)}/_inductor/ir.py", "exec")
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: exec(module, {}))
    record = run(source("return x + 1"), "aot_eager")
    (finding,) = record["findings"]
    assert (record["trust"], finding["oracle"], finding["error"]["origin"]["frame"]) == (None, "compile-error", frame)
    assert f"the compiler cannot be imported: {message}" in finding["message"]


def test_eager_s_own_error_does_not_excuse_a_compiler_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: exec(compile("nothing", "ir.py", "exec"), {}))
    record = run(source("raise Exception('no')"), "aot_eager", expect={"raises": {"type": "Exception"}})
    assert [finding["oracle"] for finding in record["findings"]] == ["error-type"]


TEXT = source("return x + 1")


def ask(name: str) -> bool:
    """``is_installed``, proved to import none of what it is asked for; metadata are read with ``email`` and ``csv``."""
    is_installed.cache_clear()
    modules = {*sys.modules}
    answer = is_installed(name)
    assert {module.partition(".")[0] for module in {*sys.modules} - modules} <= {"email", "csv", "_csv", "zipfile"}
    return answer


@pytest.fixture
def traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with metadata and one without, whose import leaves a mark; the first is called otherwise by pip."""
    for name in ("trapped", "untold"):
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\n")
        (package / "part.py").write_text("")
    metadata = tmp_path / "trap_of_pip-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: trap-of.pip\nVersion: 1\n")
    (metadata / "top_level.txt").write_text("trapped\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "imported"


@pytest.mark.parametrize(
    "name", ["torch", "torch.nn", "trapped", "trapped.part", "trap-of.pip", "trap_of_pip", "Trap.Of-Pip", "yaml"]
)
def test_names_of_pip_and_of_import_are_known(name: str, traps: Path) -> None:
    assert ask(name) and not traps.exists()


@pytest.mark.parametrize(
    "name", ["torchvision_of_nobody.ops", "antigravity.x", "this", "unittest.__main__.x", "untold", "untold.part"]
)
def test_what_no_metadata_know_is_not_installed(name: str, traps: Path) -> None:
    assert not ask(name) and not traps.exists()


def test_a_case_is_skipped_for_what_is_not_installed() -> None:
    assert run(TEXT, packages=["torch", "yaml"])["trust"] is None
    trust = run(TEXT, packages=["torch", "torchvision_of_nobody.ops"])["trust"]
    assert (trust["verdict"], trust["reason"]) == ("SKIP", "no package torchvision_of_nobody.ops here")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc/passwd", "a\0b", "\ud800", "*"])
def test_what_is_no_name_at_all_is_not_installed(name: str) -> None:
    """The schema refuses these; a worker must still not fail on them."""
    assert not is_installed(name)
