"""One run, seen from every side: terminal, JUnit, journal, reports made again, selection, exit codes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema

from .driver import REPOSITORY, Result, brief, environment, run_in, spec, write
from .stand_in import no_torch

SCHEMA = REPOSITORY / "tests" / "report" / "junit-10.xsd"
WRONG = "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY"

CHAINS = spec(
    """
    name: scaled
    tags: [quick]
    params: {n: [2, 5]}
    inputs: {x: ["${n}", 8]}
    chain:
      - nn.Linear: [8, 4]
      - operator.mul: [$_, 2]
    """,
    f"""
    name: wrong
    inputs: {{x: [4, 8]}}
    chain: [F.relu]
    config: {{{WRONG}: accuracy}}
    """,
    """
    name: raises
    inputs: {x: [4]}
    chain:
      - operator.getitem: [$_, 7]
    expect: {raises: {type: IndexError}}
    """,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write(folder, {"chains.spec.yaml": CHAINS})
    return folder


@pytest.fixture(scope="module")
def ran(folder: Path) -> Result:
    return run_in(folder, "run", "chains.spec.yaml", "--backend", "aot_eager", "--backend", "inductor", "-j", 2,
                  "--junit", "strict.xml", "--junit-dialect", "strict", "--events", "log.jsonl")  # fmt: skip


def test_verdicts_and_exit_code(ran: Result) -> None:
    assert ran.code == 1
    verdicts = {name: event["verdict"] for name, event in ran.finished.items()}
    assert verdicts.pop("wrong[float32,cpu]@inductor") == "FAIL"
    assert len(verdicts) == 7
    assert set(verdicts.values()) == {"PASS"}
    assert ran.events[-1]["exit_code"] == 1


def test_a_live_line_for_each(ran: Result) -> None:
    lines = re.findall(r"^ *(PASS|FAIL) \[ *\d+\.\d\ds\] (\S+) \((\d)/8\)(?: - (.*))?$", ran.out, re.MULTILINE)
    assert {(name.partition("::")[2], word) for word, name, _, _ in lines} == {
        (n, e["verdict"]) for n, e in ran.finished.items()
    }
    assert [int(number) for _, _, number, _ in lines] == [*range(1, 9)]
    assert [bool(why) for word, _, _, why in lines] == [word == "FAIL" for word, _, _, _ in lines]
    assert "\x1b" not in ran.text and "\r" not in ran.text


def test_the_table(ran: Result) -> None:
    table = re.search(r"^case +aot_eager +inductor *\n[- ]+\n((?:.+\n)+)", ran.out, re.MULTILINE)
    assert table is not None, ran.out
    rows = [re.split(r"  +", row.strip()) for row in table[1].splitlines()]
    assert rows == [
        ["chains.spec.yaml::scaled[n=2,float32,cpu]", "PASS", "PASS"],
        ["chains.spec.yaml::scaled[n=5,float32,cpu]", "PASS", "PASS"],
        ["chains.spec.yaml::wrong[float32,cpu]", "PASS", "FAIL value"],
        ["chains.spec.yaml::raises[float32,cpu]", "PASS", "PASS"],
    ]


def test_the_failure_says_what_a_person_needs(ran: Result) -> None:
    block = ran.out[ran.out.index("\nFAIL chains.spec.yaml::wrong[float32,cpu]@inductor\n") :]
    for words in (
        " --> chains.spec.yaml:9:11\n", "|   - name: wrong\n", "severity  wrong-result\n", "oracle    value\n", "stage     inductor\n", "of 32", "worst at [", "float64",
        "dynamo ok · aot ok · decomposition ok · inductor value", "torch._dynamo.utils.same says: different", "reproduce: runner run ",
    ):  # fmt: skip
        assert words in block
    numbers = ran.of("wrong@inductor")["findings"][0]["numbers"]
    assert numbers["elements"] == 32
    assert 0 < numbers["mismatched"] <= 32
    assert abs(numbers["compiled"] - numbers["eager"]) == pytest.approx(numbers["abs_error"])
    assert numbers["compiled_error_max"] > 1000 * numbers["eager_error_max"]
    assert re.search(r"7 passed, 1 failed(, \d of them with graphs of earlier runs)? in [\d.m ]+s", block)


def test_every_finished_variant_has_the_agreed_keys(ran: Result) -> None:
    for event in ran.finished.values():
        assert event["id"].startswith(event["case"] + "[")
        assert event["id"].endswith("@" + event["backend"])
        assert re.fullmatch(r"chains\.spec\.yaml::\w+", event["case"])
        assert event["suite"] == "chains"
        assert re.match(r"2\.\d+", event["torch"])
        assert (event["device"], event["dtype"]) == ("cpu", "float32")
        assert isinstance(event["oracles"], list)
        assert isinstance(event["findings"], list)
        assert event["seconds"] > 0
        assert (
            (event["stage"] == "inductor")
            == (event["verdict"] == "FAIL")
            == bool(event["findings"])
            == bool(event["oracles"])
        )
    assert ran.of("wrong@inductor")["oracles"] == ["value"]


def test_the_journal_is_whole_and_in_order(ran: Result, folder: Path) -> None:
    kinds = [event["event"] for event in ran.events]
    assert kinds[0] == "run-started"
    assert kinds[-1] == "run-finished"
    assert kinds[1:9] == ["variant-planned"] * 8
    assert kinds.count("variant-started") == kinds.count("variant-finished") == 8
    assert ran.folder is not None
    assert (folder / "log.jsonl").read_bytes() == (ran.folder / "events.jsonl").read_bytes()


def test_strict_junit_passes_the_schema(ran: Result, folder: Path) -> None:
    xmlschema.XMLSchema(str(SCHEMA)).validate(str(folder / "strict.xml"))
    root = ElementTree.parse(folder / "strict.xml").getroot()
    assert [root.get(key) for key in ("tests", "failures", "errors")] == ["8", "1", "0"]
    assert not [case for case in root.iter("testcase") if case.get("file") or case.find("properties") is not None]


def test_extended_junit_has_file_line_and_properties(ran: Result, folder: Path) -> None:
    again = run_in(folder, "report", ran.folder, "--junit", "-")
    root = ElementTree.fromstring(again.out)
    cases = {brief(case.get("name", "")): case for case in root.iter("testcase") if "n=" not in case.get("name", "")}
    assert {(case.get("file"), case.get("line")) for case in cases.values()} == {
        ("chains.spec.yaml", "9"),
        ("chains.spec.yaml", "13"),
    }
    properties = {p.get("name"): p.get("value") for p in cases["wrong@inductor"].iter("property")}
    assert properties["verdict"] == "FAIL"
    assert properties["stage"] == "inductor"
    assert properties["oracles"] == "value"
    failure = cases["wrong@inductor"].find("failure")
    assert failure is not None
    assert "reproduce: runner run" in (failure.text or "")
    assert cases["wrong@aot_eager"].find("failure") is None


def test_reports_are_made_again_from_the_journal(ran: Result, folder: Path) -> None:
    again = run_in(folder, "report", ran.folder, "--junit", "again.xml", "--junit-dialect", "strict")
    assert again.code == 0
    assert (folder / "again.xml").read_bytes() == (folder / "strict.xml").read_bytes()
    # All but the lines of progress, and that of the files which only the run itself wrote.
    assert again.out == re.sub(r"^(reports:| *[A-Z]+ \[ ).*\n", "", ran.out, flags=re.MULTILINE)
    from_file = run_in(folder, "report", folder / "log.jsonl")
    assert from_file.out == again.out


def test_the_printed_command_runs_that_variant_alone(ran: Result, folder: Path) -> None:
    printed = re.findall(r"^  reproduce: (.*)$", ran.out, re.MULTILINE)
    assert len(printed) == 1
    words = shlex.split(printed[0])
    assert words[0] == "runner"
    result = run_in(folder, *words[1:], "--no-confirm")
    assert result.verdicts == {"wrong@inductor": "FAIL"}
    assert result.code == 1
    assert [f["oracle"] for f in result.of("wrong@inductor")["findings"]] == ["value"]


# --- selection: `list` shows what a run would run ---------------------------------------------------


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], "scaled scaled wrong raises"),
        (["-k", "wrong or raises"], "wrong raises"),
        (["-k", "not (wrong or raises) and n=5"], "scaled"),
        (["-k", "tag:quick"], "scaled scaled"),
        (["-k", "case:wr*"], "wrong"),
        (["-k", "WRONG"], "wrong"),
        (["-k", "backend:aot_eager and raises", "--backend", "eager", "--backend", "aot_eager"], "raises@aot_eager"),
        (["--backend", "eager", "-k", "wrong"], "wrong@eager"),
        (["--device", "cuda", "-k", "raises"], "raises"),
    ],
    ids=str,
)
def test_selection(args: list[str], expected: str, folder: Path) -> None:
    result = run_in(folder, "list", "chains.spec.yaml", *args)
    names = [brief(line.partition("::")[2]) for line in result.out.splitlines()]
    assert [n if "@" in expected else n.partition("@")[0] for n in names] == expected.split()
    if "--device" in args:
        assert "[float32,cuda]" in result.out


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (["::scaled"], ["scaled[n=2,float32,cpu]", "scaled[n=5,float32,cpu]"]),
        (["::scaled[n=5,float32,cpu]"], ["scaled[n=5,float32,cpu]"]),
        (["::scaled[n=5,float32,cpu]@inductor"], ["scaled[n=5,float32,cpu]"]),
        (["::raises", "::wrong"], ["wrong[float32,cpu]", "raises[float32,cpu]"]),
        (
            ["::raises", ""],
            ["scaled[n=2,float32,cpu]", "scaled[n=5,float32,cpu]", "wrong[float32,cpu]", "raises[float32,cpu]"],
        ),
    ],
    ids=str,
)
def test_node_ids(nodes: list[str], expected: list[str], folder: Path) -> None:
    result = run_in(folder, "list", *[f"chains.spec.yaml{node}" for node in nodes])
    assert result.code == 0
    assert result.out.splitlines() == [f"chains.spec.yaml::{name}@inductor" for name in expected]


def test_a_node_that_is_not_there_beside_one_that_is(folder: Path) -> None:
    result = run_in(folder, "list", "chains.spec.yaml::raises", "chains.spec.yaml::rises")
    assert result.code == 4
    assert "no case matches 'rises'" in result.err


# --- suites ---------------------------------------------------------------------------------------------

SUITES = {
    "specs/one.spec.yaml": spec(
        "name: quick\ntags: [quick]\ninputs: {x: [3]}\nchain: [torch.neg]\ndtypes: [float32, float64]",
        "name: slow\ntags: [slow]\ninputs: {x: [3]}\nchain: [torch.neg]",
        "name: broken_branch\ninputs: {x: [3]}\nchain: [{operator.mul: [$_, 2]}, torch.relu]",
    ),
    "suites/first.suite.yaml": """
        suite: first
        specs: ["../specs/*.spec.yaml"]
        select: "not tag:slow"
        backends:
          - eager
          - {name: made_dynamic, backend: aot_eager, dynamic: true}
        defaults: {tags: [first], timeout: 77s}
        dtypes: [float32]
        cases:
          - name: inline
            inputs: {x: [2]}
            chain: [torch.abs]
        """,
    "suites/second.suite.yaml": """
        suite: second
        specs: ["../specs/one.spec.yaml"]
        select: "case:quick"
        backends: [eager]
        """,
    "suites/hand.suite.yaml": """
        suite: hand
        manual: true
        specs: ["../specs/one.spec.yaml"]
        select: "tag:slow"
        backends: [eager]
        """,
}  # fmt: skip


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suites")
    write(folder, SUITES)
    return folder


@pytest.fixture(scope="module")
def suites_result(suites: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    with no_torch(tmp_path_factory.mktemp("stand_in")):
        return run_in(suites, "run", "suites", "-j", 2)


def test_suites_select_and_name_their_backends(suites_result: Result) -> None:
    assert suites_result.code == 0
    assert {name: (event["verdict"], event["suites"]) for name, event in suites_result.finished.items()} == {
        "quick[float32,cpu]@eager": ("PASS", ["first", "second"]),
        "quick[float32,cpu]@made_dynamic": ("PASS", ["first"]),
        "quick[float64,cpu]@eager": ("PASS", ["second"]),
        "broken_branch[float32,cpu]@eager": ("PASS", ["first"]),
        "broken_branch[float32,cpu]@made_dynamic": ("PASS", ["first"]),
        "inline[float32,cpu]@eager": ("PASS", ["first"]),
        "inline[float32,cpu]@made_dynamic": ("PASS", ["first"]),
    }
    declared = {e["id"].partition("::")[0] for e in suites_result.finished.values()}
    assert declared == {"specs/one.spec.yaml", "suites/first.suite.yaml"}


def test_a_run_without_a_failure_has_no_next_step(suites_result: Result) -> None:
    assert "next: " not in suites_result.out and "runner diagnose" not in suites_result.out


def test_a_variant_of_two_suites_runs_once_and_is_reported_in_both(suites_result: Result) -> None:
    assert suites_result.out.count("::quick[float32,cpu]@eager (") == 1
    shared = [case for case in suites_result.junit.iter("testcase") if case.get("name") == "quick[float32,cpu]@eager"]
    assert len(shared) == 2
    assert len({case.get("classname") for case in shared}) == 2
    table = suites_result.out[suites_result.out.index("\n\nfirst\n") :]
    first, second = table.split("\n\nsecond\n")
    assert "::quick[float32,cpu]" in first
    assert "::quick[float32,cpu]" in second
    assert "::quick[float64,cpu]" in second
    assert "::quick[float64,cpu]" not in first
    assert "made_dynamic" not in second


def test_a_manual_suite_runs_only_when_named(suites_result: Result, suites: Path) -> None:
    assert "slow" not in suites_result.verdicts
    assert "::slow" not in run_in(suites, "list", "suites").out
    named = run_in(suites, "list", "suites/hand.suite.yaml").out
    assert re.fullmatch(r"(specs/)?one\.spec\.yaml::slow\[float32,cpu\]@eager\n", named)


def test_a_suites_backend_can_be_asked_for_by_its_name(suites: Path) -> None:
    result = run_in(suites, "list", "suites/first.suite.yaml", "--backend", "made_dynamic")
    assert {line.rpartition("@")[2] for line in result.out.splitlines()} == {"made_dynamic"}
    program = run_in(suites, "show", "suites/first.suite.yaml::quick[float32,cpu]@made_dynamic").out
    assert "backend=aot_eager" in program
    assert "dynamic=True" in program
    assert "77 s" in program


def test_a_backend_that_only_one_of_the_suites_configures(suites: Path) -> None:
    result = run_in(suites, "list", "suites", "--backend", "made_dynamic", "-k", "quick")
    assert result.code == 0, result.err
    assert {line.rpartition("@")[2] for line in result.out.splitlines()} == {"made_dynamic"}


def test_a_suite_cannot_widen_a_cases_axes(suites: Path) -> None:
    text = "suite: wide\nspecs: ['../specs/one.spec.yaml']\nselect: 'case:slow'\ndtypes: [float16, bfloat16]\nbackends: [eager]\n"
    write(suites, {"more/wide.suite.yaml": text})
    assert run_in(suites, "list", "more/wide.suite.yaml").code == 5


@pytest.fixture(scope="module")
def stopped(suites: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run that stops at its first failure, which shows under a configuration that only the suite knows."""
    text = """
        suite: strictly
        specs: ["../specs/one.spec.yaml", later.spec.yaml]
        select: "case:broken_branch or case:later"
        backends: [{name: planted, backend: relu_accuracy_error_TESTING_ONLY}, eager]
        """
    later = "name: later\nparams: {n: [1, 2, 3, 4]}\ninputs: {x: [3]}\nchain: [{torch.add: [$x, $n]}]"
    write(suites, {"strict/strictly.suite.yaml": text, "strict/later.spec.yaml": spec(later)})
    with no_torch(tmp_path_factory.mktemp("stand_in")):
        return run_in(suites, "run", "strict/strictly.suite.yaml", "-x", "-j", 1, "--no-confirm", "--order", "plan")


def test_a_suites_failure_prints_a_command_that_runs_it(stand_in_here: None, suites: Path, stopped: Result) -> None:
    failed = stopped.of("broken_branch@planted")
    assert failed["verdict"] == "FAIL"
    assert failed["stage"] == "backend"
    again = run_in(suites, *shlex.split(failed["repro"])[1:], "--no-confirm")
    assert again.verdicts == {"broken_branch@planted": "FAIL"}


def test_exitfirst_stops_and_says_what_did_not_run(stopped: Result) -> None:
    assert stopped.code == 1
    assert next(iter(stopped.verdicts)) == "broken_branch@planted"
    count = len(stopped.finished)
    assert count < 10, "everything ran"
    assert re.search(rf"{10 - count} not run", stopped.out)
    skipped = stopped.junit.findall(".//testcase/skipped[@type='not-run']")
    assert len(skipped) == 10 - count
    assert len([*stopped.junit.iter("testcase")]) == 10


def test_a_reader_that_goes_away_is_no_trouble(folder: Path) -> None:
    piped = f"{shlex.quote(sys.executable)} -m runner list chains.spec.yaml {'chains.spec.yaml::wrong ' * 3}| true; exit ${{PIPESTATUS[0]}}"
    process = subprocess.run(
        ["bash", "-c", piped], cwd=folder, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert process.returncode == 0
    assert process.stderr == ""
