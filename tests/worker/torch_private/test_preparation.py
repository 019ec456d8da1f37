"""What a server sets up for the compilations of its children."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from torch._dynamo import guards
from torch._inductor import codecache
from torch._inductor.runtime import runtime_utils

from runner.worker.torch_private import doors, preparation
from runner.worker.torch_private.caches import CACHE_DIR
from runner.worker.torch_private.doors import Door


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
