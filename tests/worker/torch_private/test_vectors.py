"""The processor's vector instructions: probed once for many processes, and asked again where a flag answers instead."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from runner.worker.program.load import configured
from runner.worker.torch_private import doors, vectors
from runner.worker.torch_private.doors import Door


@pytest.fixture
def torchs() -> Iterator[Any]:
    """Yield torch's module of the instruction sets, and let it forget what it was told."""
    yield pytest.importorskip("torch._inductor.cpu_vec_isa")
    vectors.forget_answers()


@pytest.fixture
def isa(torchs: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the only instruction set of this processor, not yet probed."""
    vectors.forget_answers()
    avx2 = next(isa for isa in torchs.supported_vec_isa_list if str(isa) == "avx2")
    monkeypatch.setattr(vectors, "candidates", lambda: [avx2])
    monkeypatch.setattr(torchs, "supported_vec_isa_list", [avx2])
    monkeypatch.setattr(torchs, "x86_isa_checker", lambda: ["avx2"])
    return avx2


def test_one_probe_is_enough(isa: Any, torchs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    probed: list[str] = []
    monkeypatch.setattr(torchs.VecISA, "check_build", lambda isa, code: bool(probed.append(str(isa))) or True)
    vectors.probe()
    assert probed == ["avx2"] and torchs.valid_vec_isa_list() == [isa] and probed == ["avx2"]


def test_a_probe_that_says_no_is_asked_again_by_each_process(
    isa: Any, torchs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, True])
    monkeypatch.setattr(torchs.VecISA, "check_build", lambda isa, code: next(answers))
    vectors.probe()
    assert torchs.valid_vec_isa_list() == [isa]


def test_the_flag_counts_in_a_process_that_has_picked_already(
    isa: Any, torchs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchs.VecISA, "check_build", lambda isa, code: True)
    assert torchs.valid_vec_isa_list() == [isa]
    with configured([(vectors.VECTORS_OK, False)]):
        assert torchs.valid_vec_isa_list() == []
    assert torchs.valid_vec_isa_list() == [isa]
    with configured([("torch._inductor.config.cpp.simdlen", 0)]):
        assert torchs.valid_vec_isa_list.cache_info().currsize == 1


def test_nothing_is_forgotten_where_torch_has_not_loaded_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(__import__("sys").modules, "torch._inductor.cpu_vec_isa", raising=False)
    vectors.forget_answers()


def test_a_kernel_is_compiled_for_the_given_set_and_torch_picks_for_itself_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codecache = pytest.importorskip("torch._inductor.codecache")
    own, picked = codecache.pick_vec_isa, []
    compiled = SimpleNamespace(need=lambda: lambda types, code: picked.append(codecache.pick_vec_isa()))
    monkeypatch.setattr(vectors, "_COMPILE", compiled)
    vectors.compile_a_kernel("mine")
    assert picked == ["mine"] and codecache.pick_vec_isa is own


def test_a_torch_without_a_list_of_sets_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "_absences", {})
    monkeypatch.setattr(doors, "DOORS", [])
    for name in ("_KNOWN", "_VALID", "_PICK"):
        monkeypatch.setattr(vectors, name, Door("torch._no_such_part:gone", name))
    assert vectors.candidates() == [] and not vectors.has_picked_none()
    with pytest.raises(ImportError, match="gone: _PICK"):
        vectors.compile_a_kernel("mine")
    assert [line.rpartition(": ")[2] for line in doors.absences()] == ["_KNOWN", "_VALID", "_PICK"]
