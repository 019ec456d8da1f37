"""Each rule refuses what it is for, and is quiet otherwise.

The parts of a report's material: the script alone, and what ends the gathering.

Reports are without names and folders of the machine that they were made on.
"""

from __future__ import annotations

import getpass
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.builder.source import build
from runner.cases.model import Variant
from runner.contract.finding import Finding
from runner.diagnose import bug_report
from runner.diagnose.bug_report import (
    RULES,
    Check,
    Package,
    ReportInput,
    ScriptRun,
    VersionVerdict,
    check,
    code_lines,
    gather,
    private_texts,
    redact,
    run_script,
)
from runner.diagnose.diagnosis import Ablation
from runner.verdict.signature import FailureSignature
from tests.handmade import loaded, written
from tests.report.pictures import NUMBERS, crash, diagnosis, wrong

Make = Callable[..., ReportInput]
ORDINARY = {"index": 0, "dtype": "float32", "nonfinite": 0, "denormal": 0, "largest": 3.5}
PROBLEM = (
    "torch 2.13.0: eager 1.0\ncompiled 2.0\nAssertionError: Tensor-likes are not close!\n\nMismatched elements: 1 / 2\n"
)
LOWERING = "torch 2.13.0: eager 1.0\nTraceback (most recent call last):\ntorch._inductor.exc.InductorError: no\n"


def variant(folder: Path, keys: str = "", chain: str = "[F.relu]", name: str = "a.spec.yaml") -> Variant:
    text = f"cases:\n  - name: a\n    inputs: {{x: [2]}}\n    chain: {chain}\n{keys}"
    return loaded(written(folder, text, name)).variants[0]


@pytest.fixture
def report(tmp_path: Path) -> Make:
    """Facts that meet every rule, changed."""

    def make(
        keys: str = "", chain: str = "[F.relu]", findings: tuple[Finding, ...] = (wrong(),), **changes: Any
    ) -> ReportInput:
        of_diagnosis = {key: changes.pop(key) for key in [*changes] if key in ("labels", "notes", "ablations", "verdict", "signature", "torch")}  # fmt: skip
        first = variant(tmp_path, keys, chain)
        values: dict[str, Any] = {
            "variant": first, "diagnosis": diagnosis(*findings, **of_diagnosis), "source": build(first).text,
            "fresh_findings": (findings, findings), "script": ScriptRun(1, PROBLEM), "inputs": (ORDINARY,),
            "versions": (VersionVerdict("2.13.0", "FAIL"), VersionVerdict("2.6.0", "PASS")), "text": "a report",
        }  # fmt: skip
        return ReportInput(**{**values, **changes})

    return make


def numbered(changes: Mapping[str, Any]) -> Finding:
    return wrong(numbers={**NUMBERS, **changes})


def unmet(report: ReportInput) -> list[Check]:
    return [result for result in check(report) if not result.met]


def only(report: ReportInput, rule: Callable[[ReportInput], Check]) -> Check:
    """The one rule that refuses."""
    refusals = unmet(report)
    assert [RULES[result.rule] for result in refusals] == [rule], refusals
    assert refusals[0].advice
    return refusals[0]


def test_a_sound_report_meets_every_rule(report: Make) -> None:
    assert unmet(report()) == []
    assert len(check(report())) == len(RULES) == len({result.rule for result in check(report())})


def test_a_report_to_another_package_meets_no_rule_of_upstreams_own(report: Make) -> None:
    worse = numbered({"eager_error_max": 2.0, "compiled_error_max": 1.0})
    other = report(
        findings=(worse,), keys="    tolerance: {rtol: 0.1, atol: 0.1, reason: x}\n", package=Package("acme")
    )
    assert [RULES[result.rule] for result in check(other)] == [*bug_report.OF_ANY_TRACKER] and not unmet(other)


@pytest.mark.parametrize(
    ("origin", "by"),
    [
        ({"type": "NotImplementedError", "raised_by": "acme"}, "acme"),
        ({"type": "NotImplementedError", "raised_by": "torch", "called_by": "acme"}, ""),
        ({"type": "ValueError", "raised_by": "acme"}, ""),
        ({"type": "NotImplementedError"}, ""),
    ],
)
def test_a_package_that_says_that_it_does_not_do_this(report: Make, origin: Mapping[str, str], by: str) -> None:
    error = {"type": "BackendCompilerFailed", "message": "no", "chain": [], "origin": origin}
    assert report(findings=(crash(error=error),), verdict="ERROR").declined_by == by
    assert report().declined_by == ""


def test_a_crash_meets_every_rule(report: Make) -> None:
    script = ScriptRun(1, LOWERING)
    assert (
        unmet(report(findings=(crash(),), script=script, verdict="ERROR", inputs=({**ORDINARY, "largest": 1e30},)))
        == []
    )


def test_it_fails_every_time(report: Make) -> None:
    assert "1 of 2 runs" in only(report(fresh_findings=((wrong(),), ())), bug_report.fails_alike).fact
    only(report(fresh_findings=((wrong(),), (wrong(oracle="stride"),))), bug_report.fails_alike)
    only(report(fresh_findings=((wrong(),),)), bug_report.fails_alike)
    assert "PASS" in bug_report.fails_alike(report(verdict="PASS", signature=None)).fact


def test_eager_is_deterministic(report: Make) -> None:
    assert not bug_report.deterministic(report(fresh_findings=((wrong(),), None))).met
    assert not bug_report.deterministic(report(verdict="FLAKY")).met
    assert bug_report.deterministic(report()).met


@pytest.mark.parametrize("tolerance", ["{rtol: 0.1, atol: 0.1, reason: it is loose}", "{float16: {rtol: 0.5}, reason: x}", "{exact: true}", "{output: {rtol: 0.1}, reason: x}"])  # fmt: skip
def test_tolerances_are_torchs_own(tolerance: str, report: Make) -> None:
    keys = f"    tolerance: {tolerance}\n"
    only(report(keys), bug_report.default_tolerances)
    script = ScriptRun(1, LOWERING)
    assert unmet(report(keys, findings=(crash(),), verdict="ERROR", script=script)) == []


def test_eager_may_not_be_the_worse_one(report: Make) -> None:
    worse = numbered({"eager_error_max": 2.0, "compiled_error_max": 1.0})
    check = only(report(findings=(worse,)), bug_report.worse_than_eager)
    assert "eager 2, compiled 1" in check.fact


def test_what_same_calls_equal_is_not_reported(report: Make) -> None:
    assert "calls them equal" in only(report(findings=(numbered({"same": True}),)), bug_report.worse_than_eager).fact


def test_integers_and_nan_need_no_float64_run(report: Make) -> None:
    bare = {"eager_error_max": None, "compiled_error_max": None, "same": True}
    assert unmet(report(findings=(numbered({**bare, "eager": 3, "compiled": 4}),))) == []
    assert unmet(report(findings=(NAN,), script=LOST)) == []


def test_without_a_float64_run_only_a_gross_difference_counts(report: Make) -> None:
    none = {"eager_error_max": None, "compiled_error_max": None}
    gross = report(findings=(numbered(none),), notes=("no float64 reference: autocast chooses the dtypes",))
    assert unmet(gross) == []
    assert "autocast chooses" in bug_report.worse_than_eager(gross).fact
    only(report(findings=(numbered({**none, "abs_error_max": 1e-3}),)), bug_report.worse_than_eager)
    # 16 units in the last place of bfloat16 are an eighth
    half = "[{Tensor.to: [$_, torch.bfloat16]}]"
    only(report(chain=half, findings=(numbered({**none, "abs_error_max": 0.2}),)), bug_report.worse_than_eager)
    assert unmet(report(chain=half, findings=(numbered({**none, "abs_error_max": 0.3}),))) == []


def test_random_numbers_are_eagers(report: Make) -> None:
    flag = "torch._inductor.config.fallback_random"
    only(report(f"    config: {{{flag}: false}}\n"), bug_report.seeded)
    assert bug_report.seeded(report(f"    config: {{{flag}: true}}\n")).met


def test_a_policy_explains_it(report: Make) -> None:
    only(report(labels=("explained-by-emulate_precision_casts",)), bug_report.not_explained)
    random = Ablation("with eager's random numbers", "torch._inductor.config.fallback_random = True", "gone")
    only(report(ablations=(random,)), bug_report.not_explained)
    assert bug_report.not_explained(report(ablations=(replace(random, outcome="same"),))).met


def test_a_gross_difference_is_not_explained_by_roundings(report: Make) -> None:
    casts = Ablation("with eager's roundings", "torch._inductor.config.emulate_precision_casts = True", "gone")
    half = "[{Tensor.to: [$_, torch.float16]}]"
    assert unmet(report(chain=half, ablations=(casts,))) == []
    only(
        report(chain=half, findings=(numbered({"abs_error_max": 1e-3}),), ablations=(casts,)), bug_report.not_explained
    )


NAN = Finding(
    "nonfinite", "another NaN", "output[0]", {"elements": 4, "eager": "nan", "compiled": 0.0}, stage="inductor"
)
LOST = ScriptRun(1, PROBLEM)
INTEGERS = {"eager": 3, "compiled": 4, "eager_error_max": None, "compiled_error_max": None}


@pytest.mark.parametrize(
    ("chain", "met"),
    [
        ("[{torch.argmax: [$_, 0]}]", False),
        ("[{torch.sort: [$_]}]", False),
        ("[{torch.max: [$_, 0]}]", False),
        ("[{torch.max: [$_]}]", True),
        ("[{operator.add: [$_, 1]}]", True),
    ],
)
def test_indices_are_not_compared(chain: str, met: bool, report: Make) -> None:
    assert bug_report.no_indices(report(chain=chain, findings=(numbered(INTEGERS),))).met is met
    assert bug_report.no_indices(report(chain=chain)).met  # floats differ


@pytest.mark.parametrize(
    ("entry", "fact"),
    [({"nonfinite": 2}, "2 NaN"), ({"denormal": 1}, "1 denormal"), ({"largest": 1e30}, "up to 1e+30")],
)
def test_extreme_inputs_are_refused_for_values(entry: dict[str, Any], fact: str, report: Make) -> None:
    assert fact in only(report(inputs=({**ORDINARY, **entry},)), bug_report.ordinary_inputs).fact
    stride = Finding("stride", "eager [1], compiled [2]", "output[0]", stage="inductor")
    script = ScriptRun(1, "AssertionError: compiled differs from eager")
    assert unmet(report(findings=(stride,), inputs=({**ORDINARY, **entry},), script=script)) == []


def test_a_report_about_nan_may_have_some(report: Make) -> None:
    assert unmet(report(findings=(NAN,), script=LOST, inputs=({**ORDINARY, "nonfinite": 1},))) == []
    only(report(findings=(NAN,), script=LOST, inputs=({**ORDINARY, "largest": 1e38},)), bug_report.ordinary_inputs)


def test_one_report_one_cause(report: Make) -> None:
    only(report(findings=(wrong(), wrong(oracle="stride", stage="aot"))), bug_report.one_cause)
    assert unmet(report(findings=(wrong(), wrong(oracle="grad")))) == []


@pytest.mark.parametrize(
    ("code", "output"),
    [
        (0, "compiled 1.0"),
        (2, "eager itself raises ValueError"),
        (1, "compiled 1.0\ntorch._inductor.exc.InductorError: AssertionError"),
        (1, "Traceback\nModuleNotFoundError: no module"),
        (-11, ""),
    ],
)
def test_the_script_must_show_the_same(code: int, output: str, report: Make) -> None:
    assert f"exit status {code}" in only(report(script=ScriptRun(code, output)), bug_report.script_alone).fact


@pytest.mark.parametrize(
    ("finding", "code", "output", "met"),
    [
        (wrong(oracle="grad"), 1, PROBLEM, True),
        (wrong(oracle="mutation"), 1, LOWERING, False),
        (wrong(oracle="missing-error"), 1, "AssertionError: another error than eager's", True),
        (wrong(oracle="missing-error"), 2, "", False),
        (wrong(oracle="error-type", error={"type": "E"}), 1, "AssertionError: another error than eager's", True),
        (wrong(oracle="graph-break"), 1, "AssertionError: 2 graph breaks", True),
        (wrong(oracle="graph-break", error={"type": "Unsupported"}), 1, "torch._dynamo.exc.Unsupported: no", True),
        (wrong(oracle="runtime-error", error={"type": "NoResult"}), 1, "AssertionError: the compiled run ended", True),
        (wrong(oracle="runtime-error", error={"type": "ValueError"}), 1, "ValueError", True),
        (wrong(oracle="signal", error={"type": "SIGSEGV"}), -11, "", True),
        (wrong(oracle="signal", error={"type": "SIGSEGV"}), 1, "SIGSEGV", False),
        (wrong(oracle="timeout", error={"type": "Timeout"}), 1, "Timeout (0:02:00)!", True),
        (wrong(oracle="timeout", error={"type": "Timeout"}), 1, "AssertionError: compiling took 3.0 s", True),
        (wrong(oracle="timeout", error={"type": "Timeout"}), 0, "compiled 1.0", False),
        (crash(), 1, LOWERING, True),
        (crash(), 1, "torch._inductor.exc.OtherInductorErrors: no", False),
        (crash(), 1, PROBLEM, False),
    ],
)
def test_how_a_script_shows_each_oracle(finding: Finding, code: int, output: str, met: bool, report: Make) -> None:
    assert bug_report.script_alone(report(findings=(finding,), script=ScriptRun(code, output))).met is met


def test_the_script_is_short(report: Make) -> None:
    long = "import torch\n" + "x = 1\n" * (bug_report.LINES + 1)
    assert f"{bug_report.LINES + 1} lines" in only(report(source=long), bug_report.short).fact
    assert bug_report.short(report(source="x = 1\n" * bug_report.LINES)).met


def test_lines_of_code() -> None:
    text = '"""A title.\n\nMore.\n"""\n\nimport torch\n\n\n# a remark\nclass Model:\n    x = 1\n'
    assert code_lines(text) == 2


def test_nothing_private_is_said(report: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "wonderbox")
    monkeypatch.setattr(getpass, "getuser", lambda: "adalove")
    monkeypatch.setenv("HOME", "/home/adalove")
    monkeypatch.chdir(tmp_path)
    assert bug_report.nothing_private(report(text="a wonderboxes report of adaloves")).met
    for text, fact in (
        ("on wonderbox", "the machine's name"), ("by adalove.", "the user's name"),
        ("/home/adalove/x.py", "the home folder"), (f"in {os.getcwd()}/x", "the working folder"),
    ):  # fmt: skip
        assert fact in only(report(text=text), bug_report.nothing_private).fact
    monkeypatch.setattr(getpass, "getuser", lambda: "root")
    assert bug_report.nothing_private(report(text="the root of it")).met


@pytest.mark.parametrize("why", ["by-design", "noise"])
def test_what_is_intended_is_not_reported(why: str, report: Make) -> None:
    keys = f"    known: [{{stage: inductor, oracle: [value], why: {why}, reason: fused}}]\n"
    assert f"{why} since fused" in only(report(keys), bug_report.not_intended).fact
    assert bug_report.not_intended(report(keys, findings=(wrong(oracle="stride"),))).met
    assert bug_report.not_intended(report(keys.replace("stage", "torch: '<=2.6', stage"))).met
    reduced = replace(report(), origin=report(keys).variant)  # which has no ledger any more
    only(reduced, bug_report.not_intended)
    assert unmet(report("    known: [{stage: inductor, oracle: [value], issue: 'https://x.org/1'}]\n")) == []


def test_the_newest_torch_fails_too(report: Make) -> None:
    assert "2.6.0" in only(report(versions=(VersionVerdict("2.6.0", "FAIL"),)), bug_report.newest).fact
    assert (
        "2.14.0"
        in only(
            report(versions=(VersionVerdict("2.13.0", "FAIL"), VersionVerdict("2.14.0", "PASS"))), bug_report.newest
        ).fact
    )
    assert bug_report.newest(report(versions=(VersionVerdict("2.14.0.dev20261101", "FAIL"),))).met


def test_values_of_findings(report: Make) -> None:
    assert report().about_values and report().about_rounding
    lost = Finding("mutation", "inputs after the call", "inputs", stage="aot")
    assert not report(findings=(lost,), signature=FailureSignature("mutation", "aot")).about_values


@pytest.mark.parametrize(
    ("text", "code", "output"),
    [
        ("import sys; print('so'); sys.exit(3)", 3, "so\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -11, ""),
        ("import sys; sys.stdout.buffer.write(bytes([255]))", 0, "\ufffd"),
        ("print('on it', flush=True); import time; time.sleep(600)", 1, "on it\n\nTimeout (3 s)"),
    ],
)
@pytest.mark.slow
def test_the_script_runs_in_a_process_of_its_own(
    text: str, code: int, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bug_report, "START", 2.0)
    case = "cases: [{name: a, inputs: {x: [2]}, chain: [torch.neg], timeout: 1s}]"
    single = loaded(written(tmp_path, case)).variants[0]
    engine = SimpleNamespace(variant=single, paths=("/nowhere",), environment=SimpleNamespace(python=sys.executable))  # fmt: skip
    assert run_script(text, engine) == ScriptRun(code, output, text)  # type: ignore[arg-type]


def test_what_the_caller_raises_ends_the_gathering() -> None:
    phases: list[str] = []
    tasks: list[str] = []

    def say(text: str) -> None:
        phases.append(text)
        if len(phases) > 1:
            raise KeyboardInterrupt

    def ask(jobs: Sequence[str], tick: Callable[[], None]) -> None:
        tasks.extend(jobs)
        tick()

    backend = SimpleNamespace(backend="inductor")
    engine = SimpleNamespace(
        job=lambda task="judge", arguments=None, isolation="": task, ask=ask, variant=SimpleNamespace(backend=backend)
    )
    with pytest.raises(KeyboardInterrupt):
        gather(engine, diagnosis(), "cases: []", say)  # type: ignore[arg-type]
    assert tasks == ["judge", "judge", "environment"] and len(set(phases)) == 1


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("/usr/lib/python3/dist-packages/numpy/x.py", "numpy/x.py"),
        ("in /tmp/a-b/c_d/e.py.", "in e.py."),
        ("/tmperature and a/tmp", "/tmperature and a/tmp"),
        ("https://github.com/pytorch/pytorch", "https://github.com/pytorch/pytorch"),
        ("/srv/tmp/a/b.py and my/tmp/a.py", "/srv/tmp/a/b.py and my/tmp/a.py"),
        ("/var/tmp/a/b.py", "b.py"),
        ("https://x.org/tmp/a.html and file:///tmp/a/b.py", "https://x.org/tmp/a.html and file://b.py"),
        ("https://tmp/a.html", "https://tmp/a.html"),
        ("x(/opt/a b/lib/python3.11/site-packages/torch/x.py)", "x(/opt/a torch/x.py)"),
        ("venv/lib/python3.11/site-packages/torch/x.py", "torch/x.py"),
        ("https://x.org/lib/python3.11/typing.py", "https://x.org/lib/python3.11/typing.py"),
        ('File "/usr/lib/python3.11/typing.py"', 'File "typing.py"'),
    ],
)
def test_folders_are_cut(text: str, redacted: str) -> None:
    assert redact(text) == redacted


def test_home_and_working_folder_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert redact(f"/home/ada/x.py {tmp_path}/y.py /home/adam/z.py") == "x.py y.py /home/adam/z.py"
    for path in ("/home/ada-2/x.py", "/home/ada.old/x.py", "/mnt/home/ada/x.py", "https://home/ada/x"):
        assert redact(path) == path
    assert redact("It is in /home/ada. So is file:///home/ada/x.py") == "It is in . So is file://x.py"


def test_a_folder_in_another_one_is_cut_as_a_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "my work").mkdir()
    monkeypatch.chdir(tmp_path / "my work")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (
        redact(f"{tmp_path}/my work/x.py {tmp_path}/my work/.venv/lib/python3.11/site-packages/torch/y.py")
        == "x.py torch/y.py"
    )


def test_a_user_without_a_home_and_a_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert redact("/home/ada/x.py") == "/home/ada/x.py"
    assert "the home folder" not in [kind for kind, _ in private_texts()]
