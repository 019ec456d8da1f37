"""The table of ``specs/found``: it is up to date, and its cases are as small as it says."""

from __future__ import annotations

from tests.script_modules import script_module


def test_the_page_has_a_row_for_each_case() -> None:
    findings = script_module("findings_page")
    text = findings.PAGE.read_text(encoding="utf-8")
    assert findings.page(text) == text, "run: python tools/findings_page.py"
    assert findings.page(text.replace("[`addbmm_into_a_scalar`]", "[`old`]")) == text


def test_no_case_has_more_than_five_operators() -> None:
    cases = script_module("findings_page").cases()
    assert len(cases) == len({case.name for case in cases}) >= 40
    assert [case.name for case in cases if len(case.chain) > 5] == []
    assert all(case.known and all(entry.stage and entry.oracle for entry in case.known) for case in cases)
    # The table shows the first; only a defect that shows in another way under another backend has a second,
    # or one that shows in another way on some machines.
    always = [[entry for entry in case.known if not entry.sometimes] for case in cases]
    assert all(entry.backend for entries in always if len(entries) > 1 for entry in entries)
    assert all(
        entries and case.known[0] == entries[0] for case, entries in zip(cases, always, strict=True) if case.known[1:]
    )


def test_causes_are_counted_and_not_cases() -> None:
    findings = script_module("findings_page")
    cases = {case.name: case for case in findings.cases()}
    for pair in (
        ("as_strided_after_a_write", "strides_after_scatter_add"),  # one report
        ("view_of_a_changed_base", "view_of_a_changed_input"),  # without one
    ):
        assert len({findings.cause(cases[name]) for name in pair}) == 1
        assert findings.counts([cases[name] for name in pair]).startswith("2 cases of 1 causes in torch.compile, and 0")
    assert findings.counts([cases["addbmm_into_a_scalar"]]).startswith(
        "1 cases of 0 causes in torch.compile, and 1 of eager"
    )
    assert findings.severity(cases["uniform_in_channels_last"]) == "other-random-numbers"
