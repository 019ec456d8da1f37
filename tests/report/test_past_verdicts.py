from __future__ import annotations

from dataclasses import replace

from runner.record.events import VariantFinished
from runner.report.past_verdicts import PastVerdict, render
from runner.verdict.signature import assess
from tests.report.events_sample import FILE, NASTY, failure, finished


def past(run: str, event: VariantFinished, plan: str = "p") -> PastVerdict:
    return PastVerdict(run, plan, assess(event))


def test_a_table_and_what_it_comes_to() -> None:
    red = assess(failure())
    text = render([past("2", failure()), past("1", finished()), past("0", finished(cached="1"))], 120)
    assert text.splitlines() == [
        f"{FILE}::pad_view[float32,cpu]",
        "run  torch   backend   verdict  time    stage     signature",
        f"2    2.13.0  inductor  FAIL     1.23s   inductor  {red.signature_id} value at inductor",
        "1    2.13.0  inductor  PASS     1.23s   -         -",
        "0    2.13.0  inductor  PASS     cached  -         -",
        "",
        "inductor, torch 2.13.0: 3 runs: 2 PASS, 1 FAIL",
    ]


def test_the_rate_is_that_of_attempts_of_one_plan() -> None:
    verdicts = [
        past("4", finished()),
        past("3", finished("FLAKY", tally={"PASS": 18, "FAIL": 2}), "new"),
        past("2", finished(tally={"PASS": 20}), "new"),
        past("1", finished("FAIL", tally={"FAIL": 20}), "old"),
    ]
    text = render(verdicts, 120)
    assert "FLAKY (2 of 20 red)" in text and "FAIL (20 of 20 red)" in text
    assert text.splitlines()[-1] == (
        "  flake rate by --stress: 2 of 40 red: 5.0 %, 95% interval 1.4 % to 16.5 % (Wilson), 2 runs of one plan"
    )


def test_without_stress_the_command_that_measures_is_named_once() -> None:
    event = finished(repro="runner run 'a.spec.yaml::x[float32,cpu]@inductor' --seed 3")
    text = render([past("1", event), past("0", replace(event, torch="2.6.0"))], 120)
    assert (
        text.splitlines()[-1]
        == "flake rate: runner run 'a.spec.yaml::x[float32,cpu]@inductor' --seed 3 --stress 20 measures one"
    )
    assert text.count("--stress") == 1


def test_axes_and_backends_are_told_apart() -> None:
    text = render(
        [
            past("1", finished(name="a")),
            past("1", finished(name="b")),
            past("1", finished("FAIL", name="a", backend="eager")),
        ],
        120,
    )
    assert [line for line in text.splitlines() if line.startswith(FILE)] == [
        f"{FILE}::a[float32,cpu]",
        f"{FILE}::b[float32,cpu]",
    ]
    assert "inductor, torch 2.13.0: 1 run: 1 PASS\neager, torch 2.13.0: 1 run: 1 FAIL" in text


def test_a_signature_is_cut_and_names_are_not_obeyed() -> None:
    long = replace(finished("FAIL", name=NASTY, backend=NASTY), signature="x" * 500, signature_id="12345678")
    text = render([PastVerdict("\x1b[2J", "p", long)], 80, lambda text, verdict: f"<{text}>")
    assert not any(ord(c) < 32 and c != "\n" for c in text)
    row = text.splitlines()[2]
    assert row.endswith("...") and "<FAIL   >" in row
    assert len(render([past("1", failure())], 80).splitlines()[2]) <= 80
