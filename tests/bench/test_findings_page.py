"""The table of ``specs/found``: it is up to date, and its cases are as small as it says."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType


def test_the_page_has_a_row_for_each_case(bench_module: Callable[[str], ModuleType]) -> None:
    findings = bench_module("findings_page")
    text = findings.PAGE.read_text(encoding="utf-8")
    assert findings.page(text) == text, "run: python bench/findings_page.py"
    assert findings.page(text.replace("[`addbmm_into_a_scalar`]", "[`old`]")) == text


def test_no_case_has_more_than_five_operators(bench_module: Callable[[str], ModuleType]) -> None:
    cases = bench_module("findings_page").cases()
    assert len(cases) == len({case.name for case in cases}) >= 40
    assert [case.name for case in cases if len(case.chain) > 5] == []
    assert all(len(case.known) == 1 and case.known[0].stage and case.known[0].oracle for case in cases)
