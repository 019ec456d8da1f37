"""``runner.pytest_plugin``: what pytest collects, and what it makes of each verdict. The verdicts are written by the tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from runner.record.events import RED, Event, Notice, VariantFinished
from tests.black_box.driver import REPOSITORY, run_in, write
from tests.handmade import finding, played
from tests.pytest_plugin.scripted_run import ScriptedRun, Session, lastfailed, reports, scripted

pytest_plugins = ["pytester"]

CASES = """
    cases:
      - name: relu
        tags: [good, skip]
        inputs: {x: [4]}
        chain: [F.relu]
        dtypes: [float32, bfloat16]
      - name: neg
        tags: [xfail, timeout, "_own"]
        inputs: {x: [4]}
        chain: [torch.neg]
    """
OTHER = """
    cases:
      - name: exp
        inputs: {x: [4]}
        params: {n: ["a::b", "c, d: $x->", "none"]}
        chain: [torch.exp, {F.gelu: [$_, $n]}]
    """
SUITE = """
    suite: two
    specs: ["../specs/*.spec.yaml"]
    backends: [eager, {name: other, backend: aot_eager}]
    """
HOSTILE = """
    cases:
      - name: left
        doc: "a doc\\n::error::x ##[error] \\e[31m"
        tags: [add-mask]
        inputs: {x: [4]}
        chain: [torch.neg]
      - name: red
        known: [{oracle: [value], reason: "a reason\\n::error::x ##[error]", issue: "https://example.org/#[error]"}]
        inputs: {x: [4]}
        params: {n: ["::error::x", "none"]}
        chain: [{F.gelu: [$x, $n]}]
    """
FILES = {"specs/a.spec.yaml": CASES, "specs/b.spec.yaml": OTHER, "suites/two.suite.yaml": SUITE}


@pytest.fixture
def start(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Session]:
    """``start(name=answer, ...)`` returns a function that runs pytest on ``FILES``."""
    write(pytester.path, FILES)
    return lambda **answers: scripted(pytester, monkeypatch, answers)


def listed(folder: Path, *words: str) -> list[str]:
    return run_in(folder, "list", *words).out.splitlines()


@pytest.mark.parametrize(
    "words",
    [("specs",), ("suites",), ("specs", "suites"), ("specs/a.spec.yaml::relu",), ("suites/two.suite.yaml::exp", "specs/a.spec.yaml")],
    ids=" ".join,
)  # fmt: skip
def test_the_ids_are_those_of_runner_list(
    pytester: pytest.Pytester, start: Callable[..., Session], words: tuple[str, ...]
) -> None:
    ids = listed(pytester.path, *words)
    result = start()("-q", "--collect-only", *words)
    assert [line for line in result.outlines if "::" in line] == ids and len(ids) > 1


def test_each_id_chooses_its_variant(pytester: pytest.Pytester, start: Callable[..., Session]) -> None:
    run = start()
    for words in (("suites/two.suite.yaml",), ("specs",)):
        for identifier in listed(pytester.path, *words):
            assert [line for line in run("-q", "--collect-only", identifier).outlines if "::" in line] == [identifier]


def test_the_tree_is_file_case_variant(start: Callable[..., Session]) -> None:
    result = start()("--collect-only", "specs/a.spec.yaml")
    result.stdout.fnmatch_lines(
        ["*<FileNode a.spec.yaml>", "*  <CaseNode relu>", "*    <VariantItem relu?float32,cpu?@inductor>", "*    <VariantItem relu?bf*", "*  <CaseNode neg>"],
        consecutive=True,
    )  # fmt: skip
    tree = start()("--collect-only", "suites")
    tree.stdout.fnmatch_lines(
        ["*<FileNode two.suite.yaml>", "*  <FileNode a.spec.yaml>", "*    <CaseNode relu>"], consecutive=True
    )
    assert ScriptedRun.started == []  # nothing runs


def test_the_place_of_a_variant_is_the_line_of_its_case(
    pytester: pytest.Pytester, start: Callable[..., Session]
) -> None:
    places: list[tuple[str, int | None, str]] = []

    class Places:
        def pytest_collection_finish(self, session: pytest.Session) -> None:
            places.extend(item.location for item in session.items)

    start()
    pytester.inline_run("-p", "runner.pytest_plugin", "suites", "-k", "neg and other", plugins=[Places()])
    assert places == [("specs/a.spec.yaml", 6, "neg[float32,cpu]@other")]


@pytest.mark.parametrize("verdict", RED)
def test_a_red_verdict_fails(start: Callable[..., Session], verdict: str) -> None:
    result = start(neg=verdict)("specs/a.spec.yaml", "-rA", "-v")
    assert result.ret == 1
    result.assert_outcomes(passed=2, failed=1)
    word = "FAILED" if verdict == "FAIL" else verdict
    assert reports(result)["specs/a.spec.yaml::neg[float32,cpu]@inductor"] == word


def test_green_verdicts(start: Callable[..., Session]) -> None:
    result = start(neg="XFAIL", relu="SKIP")("specs/a.spec.yaml", "-rA")
    assert result.ret == 0
    result.assert_outcomes(xfailed=1, skipped=2)
    result.stdout.fnmatch_lines(
        ["SKIPPED ?2? specs/a.spec.yaml:2: skip", "XFAIL specs/a.spec.yaml::neg?float32,cpu?@inductor - *xfail"]
    )
    assert "Traceback" not in result.stdout.str() and "def xfail" not in result.stdout.str()
    assert start(neg="XFAIL")("specs/a.spec.yaml", "--runxfail").ret == 1


@pytest.mark.parametrize("answer", ["NOT-RUN", "nothing"])
def test_a_variant_without_a_verdict_fails(start: Callable[..., Session], answer: str) -> None:
    result = start(neg=answer)("specs/a.spec.yaml")
    assert result.ret == 1
    result.assert_outcomes(passed=2, failed=1)
    if answer == "nothing":
        result.stdout.fnmatch_lines(["*no verdict: the run has ended with exit code 3", "what it printed"])


def test_the_text_of_a_failure_and_the_next_commands(start: Callable[..., Session]) -> None:
    run = start(neg=finding("value", message="one \x1b[31mtwo"))
    result = run("specs/a.spec.yaml")
    text = "\n".join(result.outlines)
    assert (
        "value at call 0, output: one two\n --> specs/a.spec.yaml:7:11\n   7 |   - name: neg\n" in text
        and "\x1b" not in text
    )
    assert "\nrun folder: runs/r\n" in text and "Traceback" not in text
    result.stdout.fnmatch_lines(["FAILED specs/a.spec.yaml::neg?float32,cpu?@inductor*"])


def test_selection_by_words_and_tags(start: Callable[..., Session]) -> None:
    run = start()
    run("specs/a.spec.yaml", "-k", "bfloat16").assert_outcomes(passed=1, deselected=2)
    run("specs/a.spec.yaml", "-m", "good and not timeout").assert_outcomes(passed=2, deselected=1)
    run("specs/a.spec.yaml", "--strict-markers", "-m", "xfail or _own").assert_outcomes(passed=1, deselected=2)
    assert [started.ids for started in ScriptedRun.started] == [
        ["specs/a.spec.yaml::relu[bfloat16,cpu]@inductor"],
        ["specs/a.spec.yaml::relu[float32,cpu]@inductor", "specs/a.spec.yaml::relu[bfloat16,cpu]@inductor"],
        ["specs/a.spec.yaml::neg[float32,cpu]@inductor"],
    ]


def test_a_tag_has_no_effect(start: Callable[..., Session]) -> None:
    """``skip``, ``xfail`` and ``timeout`` are markers with a meaning: as tags they must not make anything green."""
    result = start(relu="FAIL", neg="FAIL")("specs/a.spec.yaml")
    result.assert_outcomes(failed=3)


def test_first_failure_and_last_failed(pytester: pytest.Pytester, start: Callable[..., Session]) -> None:
    start(relu="FAIL")("suites", "-x").assert_outcomes(failed=1)
    first = "specs/a.spec.yaml::relu[float32,cpu]@eager"
    assert lastfailed(pytester.path) == [first]
    pytester.makepyfile("def test_one(): assert False")
    run = start(exp="FAIL")
    run("suites", "-k", "exp or test_one", "test_first_failure_and_last_failed.py").assert_outcomes(
        failed=7, deselected=6
    )
    again = run("suites", "test_first_failure_and_last_failed.py", "--lf")
    again.assert_outcomes(failed=7, passed=1, deselected=5)
    assert ScriptedRun.started[-1].ids is not None and first in ScriptedRun.started[-1].ids
    assert first not in lastfailed(pytester.path)


def test_all_that_is_collected_runs_as_runner_run_would(start: Callable[..., Session]) -> None:
    start()("suites", "--runner-seed", "7")
    assert [(started.words, started.ids) for started in ScriptedRun.started] == [
        (["run", "--seed", "7", "suites"], None)
    ]


def test_a_project_file_is_left_out(pytester: pytest.Pytester, start: Callable[..., Session]) -> None:
    (pytester.path / "runner.toml").write_text('seed = 7\nimport = ["nowhere"]\n')
    start()("suites")
    assert [started.words for started in ScriptedRun.started] == [["run", "--no-project", "suites"]]


def test_properties_and_seconds_in_pytests_own_junit(pytester: pytest.Pytester, start: Callable[..., Session]) -> None:
    start(neg=finding("value", severity="wrong-result"))(
        "specs/a.spec.yaml", "--junitxml", "j.xml", "-o", "junit_duration_report=call"
    )
    case = ElementTree.parse(pytester.path / "j.xml").findall(".//testcase")[-1]
    properties = {element.get("name"): element.get("value") for element in case.iter("property")}
    assert properties == {"id": "specs/a.spec.yaml::neg[float32,cpu]@inductor", "verdict": "FAIL"}
    assert case.get("time") == "1.000"


def test_errors_of_files_are_errors_of_the_collection(pytester: pytest.Pytester, start: Callable[..., Session]) -> None:
    write(pytester.path, {"specs/a.spec.yaml": CASES + "  - {name: bad, inputs: {x: [1]}, chain: [F.relux]}\n"})
    for words in (("specs",), ("suites",), ("specs/a.spec.yaml::relu",)):
        result = start()(*words)
        assert result.ret == 2 and ScriptedRun.started == []
        text = "\n".join(result.outlines)
        assert (
            "ERROR collecting specs/a.spec.yaml" in text
            and "a.spec.yaml:11:43" in text
            and "did you mean 'F.relu'?" in text
        )
        assert "^^^^^^^" in text and "Traceback" not in text
    result = start()("specs/a.spec.yaml", "--continue-on-collection-errors")
    assert result.ret == 1
    result.assert_outcomes(passed=3, errors=1)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("specs/a.spec.yaml::relo",), "no case matches 'relo'"),
        (("specs/a.spec.yaml", "--runner-backend", "inductr"), "did you mean 'inductor'?"),
        (("specs/a.spec.yaml", "--runner-device", "gpu"), "did you mean 'cuda'?"),
        (("specs/a.spec.yaml", "--runner-python", "/bin/false"), "does not work as a Python interpreter"),
        (("specs/absent.spec.yaml",), "no such file or directory"),
        (("specs/a.spec.yaml", "--runner-backend", "a b:c"), "--runner-backend 'a b:c': it is no package:function"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_a_usage_error(start: Callable[..., Session], words: tuple[str, ...], text: str) -> None:
    result = start()(*words)
    assert result.ret == 4
    assert text in result.stderr.str() + result.stdout.str()
    assert "Traceback" not in result.stderr.str() + result.stdout.str()


def test_python_is_refused_unless_allowed(pytester: pytest.Pytester, start: Callable[..., Session]) -> None:
    write(
        pytester.path,
        {"m/m.py": "", "m/m.spec.yaml": "cases:\n  - {name: own, module: {file: m.py, name: M}, inputs: {x: [1]}}\n"},
    )
    result = start()("m")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*case 'own' brings Python of its own*", "*--runner-allow-python*"])
    start()("m", "--runner-allow-python", "--collect-only").assert_outcomes()
    assert [line for line in start()("m", "--runner-allow-python", "--collect-only", "-q").outlines if "::" in line]


def test_ids_are_seen_from_the_root_folder(pytester: pytest.Pytester, start: Callable[..., Session]) -> None:
    pytester.makeini("[pytest]")
    run = start(neg="FAIL")
    os.chdir("specs")
    lines = run("a.spec.yaml::neg", "-q", "--collect-only").outlines
    assert [line for line in lines if "::" in line] == ["specs/a.spec.yaml::neg[float32,cpu]@inductor"]
    run("a.spec.yaml", "../suites").assert_outcomes(passed=12, failed=3)
    os.chdir("..")
    run("specs/a.spec.yaml", "suites", "--lf").assert_outcomes(failed=3, deselected=12)


def test_suites_that_want_to_be_named_are_left_alone(pytester: pytest.Pytester, start: Callable[..., Session]) -> None:
    pytester.makepyfile("def test_one(): pass")
    write(pytester.path, {"m/m.suite.yaml": "suite: m\nmanual: true\nspecs: [../specs/*.spec.yaml]\n"})
    start()(".", "-k", "test_one or two").assert_outcomes(passed=13)
    start()("m").assert_outcomes()
    start()("m/m.suite.yaml").assert_outcomes(passed=6)


def test_a_file_that_nobody_named_is_left_alone(pytester: pytest.Pytester, start: Callable[..., Session]) -> None:
    pytester.makepyfile("def test_one(): pass")
    write(pytester.path, {"specs/bad.spec.yaml": "openapi: 3.1.0\n", "node_modules/x.spec.yaml": "no: cases\n"})
    run = start()
    run().assert_outcomes(passed=1)
    run(f"{test_a_file_that_nobody_named_is_left_alone.__name__}.py").assert_outcomes(passed=1)
    assert run("specs").ret == 2
    (pytester.path / "specs" / "bad.spec.yaml").unlink()
    run(".", "-k", "test_one").assert_outcomes(passed=1, deselected=12)
    pytester.makeini("[pytest]\ntestpaths = specs")
    assert run().ret == 0 and ScriptedRun.started != []
    assert run("-p", "no:runner.pytest_plugin", "specs").ret == 5


def test_each_worker_of_xdist_collects_what_the_controller_has_read(
    pytester: pytest.Pytester, start: Callable[..., Session]
) -> None:
    ids = listed(pytester.path, "suites")
    result = start(exp="FAIL")("-p", "xdist.plugin", "-n", "2", "suites", "-rA", "--max-worker-restart=0")
    result.assert_outcomes(passed=6, failed=6)
    assert reports(result) == {identifier: "FAILED" if "exp" in identifier else "PASSED" for identifier in ids}
    assert [started.words for started in ScriptedRun.started] == [["run", "--jobs", "2", "suites"]]


def test_a_hostile_file_name_and_text(pytester: pytest.Pytester, start: Callable[..., Session]) -> None:
    name = "a\x1b\x07\n$(touch owned)<b>.spec.yaml"
    write(pytester.path, {name: CASES})
    result = start(neg=finding("value", message="\x1b]0;owned\x07"))(name, "-v", "--junitxml", "j.xml")
    result.assert_outcomes(passed=2, failed=1)
    text = result.stdout.str()
    assert (
        "\x1b" not in text.replace(name, "")
        and "\x07" not in text.replace(name, "")
        and "a\\x1b\\x07\\n$(touch owned)<b>.spec.yaml::neg" in text
    )
    assert ElementTree.parse(pytester.path / "j.xml").getroot() is not None
    assert not (pytester.path / "owned").exists()


def test_pytest_loads_it_by_its_entry_point(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a name that no other plugin has: pytest leaves out an entry point that is called as one of its own."""
    section = REPOSITORY.joinpath("pyproject.toml").read_text().partition("[project.entry-points.pytest11]\n")[2]
    name, module = re.findall(r'^(\w+) = "([\w.]+)"', section.partition("\n\n")[0], re.MULTILINE)[0]
    write(pytester.path, FILES)
    info = {"METADATA": "Name: installed\nVersion: 0\n", "entry_points.txt": f"[pytest11]\n{name} = {module}\n"}
    write(pytester.path, {f"site/installed-0.dist-info/{file}": text for file, text in info.items()})
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(pytester.path / "site"))
    words = ("suites", "--collect-only", "-q")
    assert len([line for line in pytester.runpytest_subprocess(*words).outlines if "::" in line]) == 12
    assert pytester.runpytest_subprocess(*words, "-p", f"no:{name}").ret == 5


def test_importing_it_loads_pytest_alone() -> None:
    script = "import pytest, sys; before = {*sys.modules}; import runner.pytest_plugin; print(sorted({*sys.modules} - before))"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert [name for name in eval(process.stdout) if name.startswith(("runner", "torch", "yaml"))] == [
        "runner", "runner.pytest_plugin",
    ]  # fmt: skip


COMMANDS = f"so{75 * 'o'}::notice::w\n::add-mask::x\n  ::stop-commands::y\na ##[error]z ##vso[task.complete] -:::error::x\n\x1b[31m\x1b]0;title\x07"
NAME = "w\n::warning::##[group]\x1b[32m"
TEXTS = ("reason", "known", "stack", "output", "repro", "host", "signature", "operator", "unclaimed")
"""Fields of a verdict that hold text of anybody."""


def hostile(events: list[Event]) -> list[Event]:
    """Put commands into each text of the verdicts, and add a notice."""
    changed: list[Event] = [Notice(COMMANDS, "error")]
    for event in events:
        if isinstance(event, VariantFinished):
            texts: dict[str, Any] = dict.fromkeys(TEXTS, COMMANDS)
            event = replace(event, notes=(COMMANDS,), break_reasons=(COMMANDS,), signal="\n::error::x", **texts)
        changed.append(event)
    return [changed[1], changed[0], *changed[2:]]


@pytest.mark.parametrize(
    "words", [(), ("-rA",), ("-v",), ("--tb=short",), ("--tb=line",), ("-s", "-rA", "-v")], ids=str
)
def test_no_text_of_a_case_is_a_command_to_a_system_of_jobs(
    words: tuple[str, ...], start: Callable[..., Session], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setattr(ScriptedRun, "printed", COMMANDS)
    write(
        pytester.path,
        {
            "h/::error::##[error].spec.yaml": f"{COMMANDS!r}: [",
            "h/::warning::ok.spec.yaml": OTHER,
            "h/d\n::error file=x::d/f\n::error::pwn.spec.yaml": OTHER,
        },
    )
    run = start(relu=finding("value", message=COMMANDS), neg="nothing", exp="SKIP")
    result = run("--continue-on-collection-errors", *words, "suites", "h")
    printed = result.stdout.str() + "\n" + result.stderr.str()
    assert "::add-mask" in printed.replace(": :", "::"), "nothing of it is shown at all"
    lines = [
        line for line in printed.split("\n") if line.lstrip().startswith("::") or "##[" in line or "##vso[" in line
    ]
    assert lines == []
    assert "\x1b]" not in printed


@pytest.mark.parametrize(
    "words",
    [(), ("-rA",), ("-v",), ("-vv",), ("-rA", "--tb=short"), ("-rA", "--tb=line"), ("-rA", "--runxfail"), ("--collect-only",), ("--markers",),
     ("-s", "-rA", "-v"), ("-rA", "-vv", "--durations=0", "-p", "xdist.plugin", "-n", "2")],
    ids=" ".join,
)  # fmt: skip
def test_no_text_of_a_verdict_is_a_command_to_a_system_of_jobs(
    words: tuple[str, ...], start: Callable[..., Session], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setattr(ScriptedRun, "printed", COMMANDS)
    monkeypatch.setattr("tests.pytest_plugin.scripted_run.played", lambda *given: hostile(played(*given)))
    write(pytester.path, {"::error::##[error].spec.yaml": f"{COMMANDS!r}: [", f"{NAME}/{NAME}.spec.yaml": HOSTILE})
    run = start(relu=finding("value", message=COMMANDS), neg="nothing", exp="XFAIL", left="SKIP", red="FLAKY")
    (pytester.path / "suites" / "two.suite.yaml").unlink()
    result = run("--continue-on-collection-errors", *words, ".")
    printed = result.stdout.str() + "\n" + result.stderr.str()
    if not {*words} & {"--collect-only", "--markers"}:
        expected = 0 if "--runxfail" in words else 3
        # A verdict that was lost on the way would show nothing of its text.
        result.assert_outcomes(failed=8 - expected, xfailed=expected, skipped=1, errors=1)
    lines = [
        line for line in printed.split("\n") if line.lstrip().startswith("::") or "##[" in line or "##vso[" in line
    ]
    assert lines == []
    assert "\x1b" not in printed and "\x07" not in printed
