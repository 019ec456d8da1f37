from __future__ import annotations

from pathlib import Path

import pytest

from runner.contract.finding import Finding
from runner.report.failure import headline, layout, properties_of, render_failure, span, stage_outcomes
from runner.text import number
from tests.report.events_sample import FILE, NASTY, failure, finished, value_finding


def line_of_the_sample(file: str, line: int) -> str:
    return "      - nn.PairwiseDistance: {p: 2}" if (file, line) == (FILE, 5) else ""


def test_the_whole_block() -> None:
    assert render_failure(failure(), line_of_the_sample) == (
        "value: output 1 differs\n"
        f" --> {FILE}:5:9\n"
        "   5 |       - nn.PairwiseDistance: {p: 2}\n"
        "     |         ^^^^^^^^^^^^^^^^^^^\n"
        "  oracle    value\n"
        "  stage     inductor\n"
        "  stages    dynamo ok · aot ok · decomposition ok · inductor value\n"
        "  labels    nearer-to-float64\n"
        "  graphs    1 graph, 0 breaks\n"
        "  kernels   2 kernels, 1 vectorized\n"
        "  value at call 0, output[1]\n"
        "      mismatched 3 of 1000 (0.3 %)\n"
        "      worst at [1, 2]: eager 1.5 · compiled 1.25 · float64 1.50000001\n"
        "      difference there: absolute 0.25 · relative 0.16 (allowed: atol 1e-05, rtol 1.3e-06)\n"
        "      error against float64, worst element: eager 1e-07 · compiled 0.25\n"
        "      error against float64, RMSE: eager 1e-08 · compiled 0.0125\n"
        "      would pass at 12.5 times eager's error\n"
        "      torch._dynamo.utils.same says: equal\n"
        "  last output\n"
        "    first line\n"
        "    last words\n"
        f"  reproduce: runner repro '{FILE}::pad_view[float32,cpu]@inductor'"
    )


def test_kernels_and_replays() -> None:
    assert "  kernels   2 kernels, 1 vectorized, 3 graph replays\n" in render_failure(failure(replays=3))
    assert "  kernels   1 kernel, 1 graph replay\n" in render_failure(failure(kernels=1, vectorized=0, replays=1))


def test_a_crash() -> None:
    error = {
        "type": "InductorError", "message": "LoweringException: no\n\nwhile\n" + "deep\n" * 50,
        "chain": ["InductorError", "LoweringException", "KeyError"],
    }  # fmt: skip
    event = finished(
        "ERROR", reason="the backend raised", signal="SIGSEGV", stack="Fatal Python error\n" + "  File x\n" * 99,
        findings=(Finding("compile-error", "the backend raised", error=error),),
    )  # fmt: skip
    block = render_failure(event).splitlines()
    assert "      raised InductorError: LoweringException: no" in block
    assert "      caused by LoweringException, by KeyError" in block
    assert "  signal   SIGSEGV" in block
    assert "    Fatal Python error" in block
    assert "    [... 85 more lines]" in block
    assert len(block) < 45


def test_a_compilers_diagnosis_is_shown_behind_its_warnings() -> None:
    warnings = "".join(f"vec256_int.h:{line}: warning: overflow\n" for line in range(50))
    message = f"C++ compile error\n\nCommand:\ng++ a.cpp\n\nOutput:\n{warnings}a.cpp:9:1: error: no matching function\n  9 | x\n"
    event = finished("ERROR", reason="r", findings=(Finding("compile-error", "m", error={"message": message}),))
    block = [line.strip() for line in render_failure(event).splitlines()]
    assert block.index("a.cpp:9:1: error: no matching function") == block.index("[...]") + 1
    assert "raised exception: C++ compile error" in block and "9 | x" in block
    assert sum("overflow" in line for line in block) < 12


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        ({"raised_by": "openvino", "called_by": "openvino"}, "raised by openvino, the backend's own package"),
        ({"raised_by": "torch", "called_by": "openvino"}, "raised by torch, called by openvino"),
        ({"raised_by": "torch"}, "raised by torch, outside the backend"),
        ({"raised_by": "a\x1b[31m\nb"}, "raised by a b, outside the backend"),
        ({"type": "KeyError"}, None),
        (None, None),
    ],
)
def test_who_raised_it(origin: dict[str, str] | None, line: str | None) -> None:
    """A stranger's log may hold anything there."""
    error = {"type": "KeyError", "message": "x", "chain": ["KeyError"], "origin": origin}
    block = render_failure(finished("ERROR", findings=(Finding("compile-error", "no", error=error),))).splitlines()
    assert [text.strip() for text in block if "raised by" in text] == ([line] if line else [])


def test_the_source_line_is_read_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.spec.yaml").write_text("cases:\n  - name: one\n  - name: two\n")
    block = render_failure(finished("FAIL", file=str(tmp_path / "a.spec.yaml")))
    assert block == "fail\n --> a.spec.yaml:3:5\n   3 |   - name: two\n     |     ^^^^"


@pytest.mark.parametrize("place", ["x", "a:b:c", "a.yaml:1", "", "a.yaml:1:x"])
def test_a_place_that_is_none_falls_back_to_the_case(place: str) -> None:
    assert str(span(failure(findings=(value_finding(place=place),)))) == f"{FILE}:3:5"


def test_a_place_keeps_the_colon_of_a_drive() -> None:
    assert span(failure(findings=(value_finding(place="C:/a.yaml:7:2"),))).file == "C:/a.yaml"


def test_nothing_is_known_but_the_verdict() -> None:
    assert render_failure(finished("VACUOUS"), lambda file, line: "") == f"vacuous\n --> {FILE}:3:5"


def test_a_column_behind_the_line_still_gets_a_caret() -> None:
    event = failure(findings=(value_finding(place=f"{FILE}:5:900"),))
    assert "^" in render_failure(event, line_of_the_sample)


def test_headline() -> None:
    assert headline(finished("XFAIL", reason="fails", known="https://x/1")) == "fails (known: https://x/1)"
    assert headline(finished("XFAIL", reason="see https://x/1", known="https://x/1")) == "see https://x/1"
    line = headline(finished("FAIL", findings=(value_finding(), value_finding())))
    assert line == "value at call 0, output[1]: output 1 differs (and 1 more finding)"
    assert len(headline(finished("FAIL", reason=NASTY * 1000))) <= 300
    assert "\n" not in headline(finished("FAIL", reason=NASTY))


def test_stages_are_in_their_order_and_a_users_settings_last() -> None:
    event = finished("FAIL", stages={"as-user": "ok", "inductor": "value, stride", "dynamo": "ok", "mine": "ok"})
    shown = "dynamo ok · inductor value, stride · with torch's own settings ok · mine ok"
    assert dict(properties_of(event))["stages"] == shown
    assert stage_outcomes({}) == ""


def test_nasty_text_everywhere_leaves_no_control_characters() -> None:
    nasty = Finding(NASTY, NASTY, NASTY, stage=NASTY, numbers={NASTY: NASTY, "worst_index": NASTY},
                    error={"type": NASTY, "message": NASTY, "chain": [NASTY, "x"]}, place=NASTY)  # fmt: skip
    event = failure(
        reason=NASTY, stage=NASTY, oracles=(NASTY,), findings=(nasty,), labels=(NASTY,), notes=(NASTY,),
        stages={NASTY: NASTY}, known=NASTY, signal=NASTY,
        stack=NASTY, output=NASTY, repro=NASTY, break_reasons=(NASTY,), file=NASTY,
    )  # fmt: skip
    block = render_failure(event)
    assert all(character == "\n" or ord(character) >= 32 for character in block)
    block.encode("utf-8")


def test_many_findings_are_counted_not_printed() -> None:
    block = render_failure(failure(findings=(value_finding(),) * 50))
    assert block.count("mismatched") == 8
    assert "  and 42 more findings" in block


# --- numbers -------------------------------------------------------------------------------


def test_unknown_numbers_are_shown_by_name() -> None:
    assert layout({"expected_stride": [1, 2], "got": None, "ulp": 0.1}) == ["expected stride [1, 2] · ulp 0.1"]


def test_numbers_may_be_missing() -> None:
    assert layout({"worst_index": [0], "eager": 1, "reference": None}) == ["worst at [0]: eager 1"]
    assert layout({"worst_index": [], "eager": 1, "compiled": 2}) == ["eager 1 · compiled 2"]
    assert layout({"abs_error": "inf"}) == ["difference there: absolute inf"]
    assert layout({"atol": 0.0, "rtol": 0.0}) == ["allowed: atol 0, rtol 0"]
    assert layout({}) == []


def test_values_that_nine_digits_cannot_tell_apart_get_all_of_them() -> None:
    assert layout({"eager": 1.0, "compiled": 1.0000000000000002}) == ["eager 1.0 · compiled 1.0000000000000002"]


@pytest.mark.parametrize("multiplier", [float("inf"), float("nan"), "inf", "nan"])
def test_no_multiplier_would_pass(multiplier: object) -> None:
    assert layout({"multiplier": multiplier}) == ["no multiple of eager's error would pass"]


def test_numbers_of_any_kind() -> None:
    assert number({"a": [1, 0.5, True, None, "x"]}) == "{a: [1, 0.5, True, None, x]}"
    assert layout({"mismatched": 1, "elements": 0}) == ["mismatched 1 of 0"]
    assert layout({"mismatched": "many"}) == ["mismatched many"]
    assert layout({"same": "raised"}) == ["torch._dynamo.utils.same says: raised"]
