"""A planted mutant changes every function that has the code, and nothing on disk."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from runner.contract.mutant import Mutant, digest_of
from runner.worker.program.mutant import NotPlanted, own_kernels, plant

SOURCE = textwrap.dedent("""
    TABLE = {}

    def register(function):
        def inner(value):
            return function(value) + 1
        TABLE[function.__name__] = inner
        return inner

    @register
    def double(value):
        return value * 2

    class Pair:
        @staticmethod
        def total(value):
            return value + value

        @property
        def size(self):
            return 2
""")


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package whose functions lie in a table, a closure, a class and a property."""
    folder = tmp_path / "victim_of_mutants"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "parts.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    tag = torch.compiler.config.cache_key_tag
    yield importlib.import_module("victim_of_mutants.parts")
    torch.compiler.config.cache_key_tag = tag
    for name in [name for name in sys.modules if name.startswith("victim_of_mutants")]:
        del sys.modules[name]


def mutant(old: str, new: str, digest: str = "") -> Mutant:
    """The change of the first place of a text."""
    start = SOURCE.index(old)
    line = SOURCE[:start].count("\n") + 1
    return Mutant(
        "victim_of_mutants/parts.py", line, start, start + len(old), new, digest or digest_of(SOURCE.encode())
    )


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ("value * 2", "value * 3", [10, 6, 2]),
        ("function(value) + 1", "function(value) - 1", [5, 6, 2]),
        ("value + value", "value - value", [7, 0, 2]),
        ("return 2", "return 5", [7, 6, 5]),
    ],
)
def test_the_functions_of_the_line_change(victim: ModuleType, old: str, new: str, values: list[int]) -> None:
    pair = victim.Pair()
    assert [victim.TABLE["double"](3), pair.total(3), pair.size] == [7, 6, 2]
    plant(mutant(old, new))
    assert [victim.TABLE["double"](3), pair.total(3), pair.size] == values
    assert Path(victim.__file__ or "").read_text() == SOURCE


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (mutant("value * 2", "value * 3", digest="another"), "is another file than the one"),
        (mutant("value * 2", "value * ("), "was never closed"),
        (mutant("value * 2", "lambda: 3"), "adds or removes a function"),
        (mutant("TABLE = {}", "TABLE = []"), "no function of this process has the code"),
        (Mutant("victim_of_mutants/gone.py", 1, 0, 1, "", ""), "no file"),
        (Mutant("nobody_has_this/gone.py", 1, 0, 1, "", ""), "no package nobody_has_this"),
    ],
)
def test_what_cannot_be_planted_says_why(victim: ModuleType, change: Mutant, reason: str) -> None:
    with pytest.raises(NotPlanted, match=reason):
        plant(change)
    assert victim.TABLE["double"](3) == 7


def test_libraries_that_others_made_hide_no_mutant_of_what_makes_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    for file, is_own in (
        ("_inductor/cpp_builder.py", True),
        ("_inductor/runtime/hints.py", True),
        ("_inductor/ir.py", False),
    ):
        with own_kernels(Mutant(file, 1, 0, 1, "", "")):
            folder = os.environ["TORCHINDUCTOR_CACHE_DIR"]
            assert (folder != str(tmp_path)) == is_own and os.listdir(folder) == []
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path)


_COMPILED = """
import sys, torch
import torch._inductor.codegen.cpp as cpp
from pathlib import Path
from runner.contract.mutant import Mutant, digest_of
from runner.worker.program.mutant import plant

source = Path(cpp.__file__).read_bytes()
start = source.index(b'f"std::exp({x})"')
if sys.argv[1] != "plain":
    plant(Mutant("_inductor/codegen/cpp.py", 1, start, start + 16, 'f"std::sin({x})"', digest_of(source)))
if sys.argv[1] == "without a key":
    torch.compiler.config.cache_key_tag = ""
x = torch.tensor([0.5])
same = torch.equal(torch.compile(torch.exp)(x), torch.exp(x))
print("exp" if same else "other")
"""


@pytest.mark.slow
def test_the_caches_of_the_compiler_cannot_hide_a_mutant(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    environ = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
               "TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTHONPATH": str(root)}  # fmt: skip

    def answer(word: str) -> str:
        words = [sys.executable, "-c", _COMPILED, word]
        return subprocess.run(words, env=environ, capture_output=True, text=True, check=True).stdout.strip()

    assert answer("plain") == "exp"
    assert answer("without a key") == "exp", "the cache would hide it"
    assert answer("planted") == "other"
