"""What a record says beside the verdict."""

from __future__ import annotations

import os

import pytest
import torch
from worker_jobs import run, source


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
