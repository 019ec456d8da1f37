"""Preparing the compiler: everything at once, and no harm where it fails."""

from __future__ import annotations

import functools
import logging
import threading

import pytest

from runner.worker.server import toolchain
from runner.worker.torch_private import vectors as vectors_of_case


class Isa:
    def __init__(self, works: bool) -> None:
        self.works, self.probed = works, 0

    def __bool__(self) -> bool:
        self.probed += 1
        if not self.works:
            raise OSError("no compiler")
        return True


def test_candidates_are_torchs_in_torchs_order() -> None:
    vectors = pytest.importorskip("torch._inductor.cpu_vec_isa")
    found = toolchain.candidates()
    assert found == [isa for isa in vectors.supported_vec_isa_list if isa in found]
    if vectors.valid_vec_isa_list.cache_info().currsize:  # else asking would compile
        assert [str(isa) for isa in vectors.valid_vec_isa_list()] == [str(isa) for isa in found if isa]


def test_probes_and_header_at_the_same_time_and_no_thread_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=20)  # passes only if two of them run at once
    isas = [Isa(True), Isa(True)]
    compiled: list[object] = []

    def compile_a_kernel(isa: object) -> None:
        both.wait()
        compiled.append(isa)

    class Slow(Isa):
        def __bool__(self) -> bool:
            both.wait()
            return super().__bool__()

    isas[1] = Slow(True)
    monkeypatch.setattr(toolchain, "candidates", lambda: isas)
    monkeypatch.setattr(toolchain, "compile_a_kernel", compile_a_kernel)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    before = threading.active_count()
    beside = threading.Event()
    with toolchain.preparing(beside.set):
        assert beside.wait(20), "it goes on while the block runs"
    assert [isa.probed for isa in isas] == [1, 1] and compiled == [isas[0]]
    assert threading.active_count() == before


def test_what_fails_is_said_and_left_to_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(toolchain, "candidates", lambda: [Isa(False)])
    monkeypatch.setattr(toolchain, "compile_a_kernel", lambda isa: None)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with caplog.at_level(logging.WARNING), toolchain.preparing():
        pass
    assert "no compiler" in caplog.text


def test_a_probe_that_failed_beside_the_block_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Torch 2.6 raises in a probe if the block resets Dynamo, and takes it for the processor's answer."""
    vectors = pytest.importorskip("torch._inductor.cpu_vec_isa")
    isa = next(isa for isa in vectors.supported_vec_isa_list if str(isa) == "avx2")
    probed: list[str] = []

    def check_build(isa: object, code: str) -> bool:
        probed.append(str(isa))
        return len(probed) > 1 and works

    monkeypatch.setattr(vectors.VecISA, "check_build", check_build)
    monkeypatch.setattr(toolchain, "candidates", lambda: [isa])
    monkeypatch.setattr(toolchain, "compile_a_kernel", lambda isa: None)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    try:
        for works in (True, False):
            vectors_of_case.forget_answers()
            probed.clear()
            with caplog.at_level(logging.WARNING), toolchain.preparing():
                pass
            assert bool(isa) is works and probed == [str(isa)] * 2
        assert "probed again: yes" in caplog.text and "probed again: no" in caplog.text
    finally:
        vectors_of_case.forget_answers()


def test_missing_vectors_are_named_once_torch_has_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = pytest.importorskip("torch._inductor.cpu_vec_isa")
    picked = functools.cache(list)
    monkeypatch.setattr(vectors, "valid_vec_isa_list", picked)
    monkeypatch.setattr(toolchain, "candidates", lambda: ["avx2"])
    assert toolchain.missing_vectors() == ""
    picked()
    assert toolchain.missing_vectors().endswith("cannot build for avx2")
    monkeypatch.setattr(toolchain, "candidates", list)
    assert toolchain.missing_vectors() == ""


def test_on_one_processor_nothing_is_done_beside_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    isa = Isa(True)
    monkeypatch.setattr(toolchain, "candidates", lambda: [isa])
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    with toolchain.preparing(pytest.fail):
        pass
    assert isa.probed == 0
