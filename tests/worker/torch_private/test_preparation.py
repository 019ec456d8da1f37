"""What a server sets up for the compilations of its children."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch._dynamo import guards
from torch._inductor import codecache
from torch._inductor.runtime import runtime_utils

from runner.worker.program.load import configured
from runner.worker.torch_private import doors, preparation
from runner.worker.torch_private.doors import Door
from runner.worker.torch_private.preparation import CACHE_DIR


def test_guards_are_evaluated_but_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[Any, ...]] = []

    def original(*arguments: Any) -> float:
        called.append(arguments)
        return 7.0

    monkeypatch.setattr(guards, "profile_guard_manager", original)
    preparation.skip_guard_timing()
    preparation.skip_guard_timing()  # twice is as good as once
    assert guards.profile_guard_manager("root", "scope", 1) == 0.0
    assert guards.profile_guard_manager("root", "scope") == 7.0
    assert called == [("root", "scope", 0), ("root", "scope")]


def test_a_header_that_was_removed_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headers: list[Path] = []

    @functools.cache
    def precompile(name: str) -> str:
        path = tmp_path / name
        path.touch()
        headers.append(path)
        return str(path)

    monkeypatch.setattr(codecache, "_precompile_header", precompile, raising=False)
    preparation.load_inductor()
    preparation.load_inductor()  # twice is as good as once
    for _ in range(2):
        assert codecache._precompile_header("header") == str(tmp_path / "header")
    assert len(headers) == 1
    headers[0].unlink()
    codecache._precompile_header("header")
    assert len(headers) == 2 and headers[0].exists()


def test_headers_lie_with_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_utils, "default_cache_dir", lambda: "/tmp/taken")
    preparation.keep_headers_with_kernels()
    assert runtime_utils.default_cache_dir is CACHE_DIR.find()


def test_what_a_torch_lacks_is_said_and_the_server_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "_absences", {})
    monkeypatch.setattr(doors, "DOORS", [])
    for name in ("_GUARD_TIMING", "_HEADER_DIR", "_FORGET_FAKES"):
        monkeypatch.setattr(preparation, name, Door("torch._no_such_part:gone", name))
    preparation.skip_guard_timing()
    preparation.keep_headers_with_kernels()
    preparation.forget_fakes()
    assert [line.rpartition(": ")[2] for line in doors.absences()] == ["_GUARD_TIMING", "_HEADER_DIR", "_FORGET_FAKES"]


@pytest.fixture
def torchs() -> Iterator[Any]:
    """Yield torch's module of the instruction sets, and let it forget what it was told."""
    yield pytest.importorskip("torch._inductor.cpu_vec_isa")
    preparation.forget_answers()


@pytest.fixture
def isa(torchs: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the only instruction set of this processor, not yet probed."""
    preparation.forget_answers()
    avx2 = next(isa for isa in torchs.supported_vec_isa_list if str(isa) == "avx2")
    monkeypatch.setattr(preparation, "candidates", lambda: [avx2])
    monkeypatch.setattr(torchs, "supported_vec_isa_list", [avx2])
    monkeypatch.setattr(torchs, "x86_isa_checker", lambda: ["avx2"])
    return avx2


def test_one_probe_is_enough(isa: Any, torchs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    probed: list[str] = []
    monkeypatch.setattr(torchs.VecISA, "check_build", lambda isa, code: bool(probed.append(str(isa))) or True)
    preparation.probe()
    assert probed == ["avx2"] and torchs.valid_vec_isa_list() == [isa] and probed == ["avx2"]


def test_a_probe_that_says_no_is_asked_again_by_each_process(
    isa: Any, torchs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, True])
    monkeypatch.setattr(torchs.VecISA, "check_build", lambda isa, code: next(answers))
    preparation.probe()
    assert torchs.valid_vec_isa_list() == [isa]


def test_the_flag_counts_in_a_process_that_has_picked_already(
    isa: Any, torchs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchs.VecISA, "check_build", lambda isa, code: True)
    assert torchs.valid_vec_isa_list() == [isa]
    with configured([(preparation.VECTORS_OK, False)]):
        assert torchs.valid_vec_isa_list() == []
    assert torchs.valid_vec_isa_list() == [isa]
    with configured([("torch._inductor.config.cpp.simdlen", 0)]):
        assert torchs.valid_vec_isa_list.cache_info().currsize == 1


def test_nothing_is_forgotten_where_torch_has_not_loaded_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(__import__("sys").modules, "torch._inductor.cpu_vec_isa", raising=False)
    preparation.forget_answers()


def test_a_kernel_is_compiled_for_the_given_set_and_torch_picks_for_itself_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codecache = pytest.importorskip("torch._inductor.codecache")
    own, picked = codecache.pick_vec_isa, []
    compiled = SimpleNamespace(need=lambda: lambda types, code: picked.append(codecache.pick_vec_isa()))
    monkeypatch.setattr(preparation, "_COMPILE", compiled)
    preparation.compile_a_kernel("mine")
    assert picked == ["mine"] and codecache.pick_vec_isa is own


def test_a_torch_without_a_list_of_sets_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "_absences", {})
    monkeypatch.setattr(doors, "DOORS", [])
    for name in ("_KNOWN", "_VALID", "_PICK"):
        monkeypatch.setattr(preparation, name, Door("torch._no_such_part:gone", name))
    assert preparation.candidates() == [] and not preparation.has_picked_none()
    with pytest.raises(ImportError, match="gone: _PICK"):
        preparation.compile_a_kernel("mine")
    assert [line.rpartition(": ")[2] for line in doors.absences()] == ["_KNOWN", "_VALID", "_PICK"]
