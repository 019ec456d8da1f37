"""A report is complete and holds nothing private."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from runner.builder.source import build
from runner.cases.model import Variant
from runner.diagnose.bug_report import Package, ScriptRun
from runner.diagnose.similar import Entry, FailureProfile, Match
from runner.report.issue import environment_parts, sentences, title, write
from tests.handmade import loaded, written
from tests.report.pictures import crash, diagnosis, material, wrong

CASE = """
    defaults: {devices: [cpu]}
    cases:
      - name: before
        inputs: {x: [2]}
        chain: [torch.neg]
      - name: a  # the one
        doc: Says ```something```.
        inputs: {x: [2, 3, 4]}
        chain:
          - nn.Linear: [4, 4]
          - F.relu

      - name: after
        inputs: {x: [2]}
        chain: [torch.neg]
    """
SECTIONS = ["# [", "### 🐛 Describe the bug", "#### Ablation", "#### Bisection", "### Error logs", "### Versions",
            "### Rules for reports that a machine has found"]  # fmt: skip


@pytest.fixture
def relu_variant(tmp_path: Path) -> Variant:
    return next(v for v in loaded(written(tmp_path, CASE)).variants if v.case.name == "a")


def test_a_report_has_every_section_in_order(relu_variant: Variant) -> None:
    text, checks = write(material(relu_variant, steps="Reduced in 4 steps."))
    assert all(check.met for check in checks), checks
    places = [text.index(section) for section in SECTIONS]
    assert places == sorted(places)
    for words in (
        "| inductor | `inductor` | value |", "| decomposition | `aot_eager_decomp_partition` | ok |", "Reduced in 4 steps.",
        "| without vectorization | `torch._inductor.config.cpp.simdlen = 1` | gone |", "subsystem `lowerings`, the 3rd application, `relu`, of the step relu, the second of two.",
        "| 2.6.0 | PASS |", "PyTorch version: 2.13.0+cpu", "mismatched 3 of 24", "- [x] default rtol and atol", "topic: fuzzer",
    ):  # fmt: skip
        assert words in text, words
    assert text.count("- [x]") == len(checks) and "- [ ]" not in text


def test_a_report_to_another_package_has_nothing_of_upstreams_form(relu_variant: Variant) -> None:
    package = Package("acme-compiler", "1.2", "https://acme.example/issues")
    text, _ = write(material(relu_variant, package=package))
    for words in ("# [acme-compiler] ", "### What happens", "The script needs torch and acme-compiler, and its",
                  "acme-compiler 1.2, https://acme.example/issues", "### What was looked at"):  # fmt: skip
        assert words in text, words
    for words in ("🐛", "topic: fuzzer", "#### Bisection", "CompilerBisector`: backend", "default rtol"):
        assert words not in text, words


def test_what_a_package_does_not_implement_is_called_so(relu_variant: Variant) -> None:
    origin = {"type": "NotImplementedError", "message": "no gelu", "raised_by": "acme"}
    declined = crash(error={"type": "BackendCompilerFailed", "message": "no", "chain": [], "origin": origin})
    report = material(relu_variant, [declined], package=Package("acme"))
    assert title(report) == "[acme] nn.Linear, F.relu: torch.compile does not implement it"
    assert sentences(report).endswith("`acme` raised `NotImplementedError` itself: it says that it does not do this.")


MACHINE = (
    "PyTorch version: 2.13.0\n\nCPU:\nArchitecture: x86_64\nFlags: fpu vme\n\nVersions of relevant libraries:\n[pip3] x"
)


def test_what_lscpu_prints_is_folded_by_itself(relu_variant: Variant) -> None:
    main, processor = environment_parts(MACHINE)
    assert main == "PyTorch version: 2.13.0\n\nVersions of relevant libraries:\n[pip3] x"
    assert processor == "Architecture: x86_64\nFlags: fpu vme" and environment_parts(main) == (main, "")
    assert environment_parts("a\n\nCPU:\nb") == ("a\n\n", "b")
    text, _ = write(material(relu_variant, environment=MACHINE))
    assert re.search(r"<details>\n<summary>The processor, as lscpu prints it</summary>\n\n```\nArchitecture", text)


def test_two_sentences_say_what_happened(relu_variant: Variant) -> None:
    text = sentences(material(relu_variant))
    assert text == (
        '`torch.compile(model, backend="inductor")` gives wrong values for a model of `nn.Linear`, `F.relu` in float32 on the '
        "CPU at `output[0]`: 3 of 24 elements differ; eager 2.0, compiled 3.0 at \\[1, 2, 0\\]. "
        "It first shows at the stage `inductor`, torch's `CompilerBisector` blames the subsystem `lowerings`, the 3rd application, "
        "`relu`, of the step relu, the second of two, and it goes away with `torch._inductor.config.cpp.simdlen = 1`."
    )
    assert title(material(relu_variant)) == "[inductor] nn.Linear, F.relu: torch.compile gives wrong values"
    assert title(material(relu_variant, [crash()])).endswith("torch.compile fails to compile with InductorError")


def test_little_is_known_of_the_cause(relu_variant: Variant) -> None:
    bare = diagnosis(wrong(stage=None), culprit=None, ablations=(), stages={}, bisect_note="no time left")
    text, _ = write(material(relu_variant, diagnosis=bare))
    assert "What is to blame could not be told." in text
    assert "No answer: no time left." in text


def test_the_script_is_python_and_names_no_file(relu_variant: Variant) -> None:
    text, _ = write(material(relu_variant))
    (code,) = re.findall(r"(?<=`{3}python\n).*?(?=\n`{3})", text, re.DOTALL)
    assert code == material(relu_variant).script.text.rstrip()
    assert {"run", "make_inputs"} <= {n.name for n in ast.parse(code).body if isinstance(n, ast.FunctionDef)}
    assert "Written from" not in code and "a.spec.yaml" not in code
    assert "import torch.nn.functional as F" in code and "assert_close(" in code


def test_the_report_is_short_and_its_environment_folded(relu_variant: Variant) -> None:
    text, _ = write(material(relu_variant))
    assert len(re.sub(r"(?s)<details>.*?</details>", "", text).splitlines()) < 120
    assert "<summary>Environment</summary>\n\n```\nPyTorch version" in text


def test_the_case_is_quoted_in_a_fence_that_holds_it(relu_variant: Variant, tmp_path: Path) -> None:
    text, _ = write(material(relu_variant))
    (yaml,) = re.findall(r"````yaml\n(.*?)\n````\n", text, re.DOTALL)
    assert "```something```" in yaml and "before" not in yaml
    assert build(loaded(written(tmp_path, yaml, "again.spec.yaml")).variants[0]).text.count("nn.Linear(4, 4)") == 1


def test_a_crash_has_its_trace_without_folders(relu_variant: Variant) -> None:
    error = {
        "type": "InductorError", "message": "no", "chain": ["InductorError"],
        "trace": '  File "/opt/venv/lib/python3.11/site-packages/torch/_inductor/graph.py", line 1, in run\n'
        '  File "/tmp/torchinductor_someone/ab/cab.py", line 2, in call',
    }  # fmt: skip
    text, checks = write(material(relu_variant, [crash(error=error)]))
    assert all(check.met for check in checks), checks
    assert 'File "torch/_inductor/graph.py", line 1' in text and 'File "cab.py", line 2' in text
    assert "someone" not in text and "/opt" not in text


def test_a_private_name_in_the_report_is_found(relu_variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.diagnose.bug_report.socket.gethostname", lambda: "wonderbox")
    unmet = [
        check
        for check in write(material(relu_variant, script=ScriptRun(1, "AssertionError: on wonderbox")))[1]
        if not check.met
    ]
    assert [check.fact for check in unmet] == ["it holds the machine's name"]


def test_similar_reports_are_named(relu_variant: Variant) -> None:
    matches = (Match(Entry(FailureProfile(frozenset(), frozenset()), "t", "f:1", "https://x.org/1"), 0.5, ("relu",)),)
    assert "- https://x.org/1 (relu)" in write(material(relu_variant, matches=matches))[0]
    assert "Looked at before" not in write(material(relu_variant))[0]


def test_a_draft_names_unmet_rules_at_its_top_as_plain_text(relu_variant: Variant) -> None:
    hostile = "<b>@maintainer</b>\n# no"
    unmet = material(relu_variant, script=ScriptRun(0, hostile, "import torch"))
    text, _ = write(unmet, draft=True)
    head, _, remainder = text.partition("\n\n")
    assert head.startswith("> **A draft**: 1 of 14 rules") and all(line.startswith(">") for line in head.splitlines())
    assert "> * not met: the script alone shows it; why: exit status 0: " in head and "<b>" not in head
    assert remainder == write(unmet)[0], "nothing else differs"
    assert write(material(relu_variant), draft=True) == write(material(relu_variant))
