"""Each oracle of the fuzzer sees its fault, and none sees one where there is none."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import fuzz_payloads
import fuzz_trial
import fuzz_yaml
import pytest
from fuzz_oracles import CODES, check, diagnostics, kinds, skeleton, twin_problems
from fuzz_process import Outcome
from fuzz_trial import Recipe, Trial, default_lines

from tests.fuzz import faults
from tests.fuzz import trials as calls

TEXT = """\
defaults: {tags: [a]}
cases:
  - name: a
    doc: "DOC"
    inputs: {x: [2]}
    chain:
      - F.relu
      - builtin.print: [{$text: "TEXT"}]
"""


def spec(command: str, payload: str = "plain", text: str = TEXT, twin: bool = False) -> Trial:
    def filled(value: str) -> bytes:
        return text.replace("TEXT", fuzz_payloads.escaped(value)).replace("DOC", "a doc").encode()

    name = "specs/basics/fuzz.spec.yaml"
    return Trial(
        "spec",
        {name: filled(payload)},
        (command, name),
        {name: filled(fuzz_payloads.harmless(payload))} if twin else None,
    )


def oracles(
    trials: ProcessPoolExecutor, trial: Trial, fault: Callable[[], None] | None, again: bool = False
) -> set[str]:
    result = trials.submit(calls.of_files, trial, fault, again).result()
    return {problem.oracle for problem in result.problems}


@pytest.mark.parametrize("command", ["validate", "list", "show", "repro", "ledger", "write"])
def test_a_sound_file_shows_nothing(trials: ProcessPoolExecutor, command: str) -> None:
    assert oracles(trials, spec(command, 'a text\nof "two" lines', twin=True), None, again=True) == set()


@pytest.mark.parametrize(
    "words", ["report LOG", "report LOG --junit -", "ledger a.spec.yaml --run LOG", "resume LOG", "rerun LOG"]
)
def test_a_sound_log_shows_nothing(trials: ProcessPoolExecutor, words: str) -> None:
    logs = trials.submit(calls.logs).result()
    files = {"zq/events.jsonl": logs[0], "a.spec.yaml": calls.fuzz_logs.SPEC.encode()}
    assert oracles(trials, Trial("log", files, tuple(words.replace("LOG", "zq").split())), None) == set()


@pytest.mark.parametrize(
    ("oracle", "command", "fault"),
    [
        ("traceback", "validate", faults.raise_in_reader),
        ("traceback", "show", faults.raise_in_reader),
        ("exit-code", "validate", faults.end_with_internal),
        ("silent", "validate", faults.end_without_word),
        ("signal", "list", faults.kill_itself),
        ("text", "validate", faults.print_much),
        ("control-character", "list", faults.print_raw),
        ("utf-8", "list", faults.print_bytes),
        ("place", "validate", faults.print_no_place),
        ("act", "show", faults.run_program),
        ("act", "show", faults.write_file),
        ("wrote", "show", faults.write_file),
        ("canary", "list", faults.run_payload),
        ("python", "show", faults.print_no_python),
        ("python-name", "show", faults.import_by_payload),
        ("repeatable", "show", faults.answer_by_the_clock),
        ("write-back", "write", faults.write_another_case),
    ],
)
def test_a_planted_fault_is_seen(
    trials: ProcessPoolExecutor, oracle: str, command: str, fault: Callable[[], None]
) -> None:
    assert oracle in oracles(trials, spec(command), fault, again=oracle == "repeatable")


def test_time_and_memory_are_measured(trials: ProcessPoolExecutor) -> None:
    result = trials.submit(calls.of_files, spec("list"), faults.burn_time).result()
    assert 0.3 <= result.seconds < 5 and result.memory < 64 << 20
    assert trials.submit(calls.of_files, spec("list"), faults.hold_memory).result().memory > 80 << 20
    outcome = trials.submit(calls.hanging).result()
    assert outcome.hung and outcome.code is None


@pytest.mark.parametrize(
    ("oracle", "changes"),
    [
        ("time", {"seconds": 5.1}),
        ("memory", {"memory": (1 << 30) + 1}),
        ("hang", {"hung": True, "code": None, "signal": 9}),
        ("signal", {"code": None, "signal": 11}),
        ("time", {"code": None, "signal": 24, "seconds": 11.0}),
    ],
)
def test_bounds(oracle: str, changes: dict[str, Any]) -> None:
    assert [problem.oracle for problem in check("list", ended("list", **changes))] == [oracle]


def test_text_that_becomes_code_is_seen(trials: ProcessPoolExecutor) -> None:
    payload = 'zq"); torch.neg("'
    assert oracles(trials, spec("show", payload, twin=True), faults.paste_text) == {"twin"}
    assert oracles(trials, spec("show", 'zq"); zq_call("', twin=True), faults.paste_text) == {"twin", "python-name"}
    assert oracles(trials, spec("show", 'zq"', twin=True), faults.paste_text) == {"python"}


def test_a_refused_file_that_goes_on_is_seen(trials: ProcessPoolExecutor) -> None:
    refused = spec("show", text=TEXT.replace("tags: [a]", "threads: none"))
    assert "refused" in oracles(trials, refused, faults.go_on)
    assert "refused" not in oracles(trials, spec("show"), faults.go_on)


def test_a_report_that_is_no_xml_is_seen(trials: ProcessPoolExecutor) -> None:
    logs = trials.submit(calls.logs).result()
    trial = Trial("log", {"zq/events.jsonl": logs[0]}, ("report", "zq", "--junit", "-"))
    assert oracles(trials, trial, faults.break_xml) == {"junit"}


def test_a_log_that_is_obeyed_is_seen(trials: ProcessPoolExecutor) -> None:
    outcome = ended("rerun", acts=("run-python ['./zq.sh']",))
    assert [problem.oracle for problem in check("rerun", outcome)] == ["act"]


def ended(command: str, **changes: Any) -> Outcome:
    values: dict[str, Any] = {
        "argv": ("runner", command), "code": 0, "signal": None, "out": b"", "err": b"", "seconds": 0.1, "wall": 0.1, "memory": 1 << 20,
    }  # fmt: skip
    return Outcome(**{**values, **changes})


@pytest.mark.parametrize("command", CODES)
def test_every_command_has_its_exit_codes(command: str) -> None:
    for code in range(6):
        problems = [
            p.oracle for p in check(command, ended(command, code=code, out=b"import torch\n", err=b"runner: a word\n"))
        ]
        assert problems == ([] if code in CODES[command] else ["exit-code"]), code


@pytest.mark.parametrize(
    "character", ["\x00", "\r", "\x1b", "\x7f", "\x9b", "\u202e", "\u2066", "\u2028", "\ufeff", "\u200f"]
)
def test_control_characters(character: str) -> None:
    for stream in ("out", "err"):
        outcome = ended("list", **{stream: f"runner: a{character}b\n".encode()})
        assert [problem.oracle for problem in check("list", outcome)][:1] == ["control-character"]
    assert [*check("list", ended("list", out="a\té\U0001f600\n".encode()))] == []


@pytest.mark.parametrize(
    ("line", "fits"),
    [
        ("a.spec.yaml:1:2: error: no", True),
        ("   1 | name: a", True),
        ("     |       ^", True),
        ("     = did you mean 'b'?", True),
        ("runner: nothing selected", True),
        ("2 errors in 1 file: these cases cannot run", True),
        ("a.spec.yaml: error: no", False),
        ("a.spec.yaml:1: error: no", False),
        ("error: no", False),
        ("the second line of a message", False),
    ],
)
def test_places(line: str, fits: bool) -> None:
    outcome = ended("validate", code=4, err=f"{line}\n".encode())
    assert [problem.oracle for problem in check("validate", outcome)] == ([] if fits else ["place"])


def test_programs_are_compared_without_their_constants() -> None:
    assert skeleton("f('a', 1)") == skeleton("f('b', 'c')") != skeleton("f('a', g())")
    pair = [ended("show", out=f'"""a[float32]"""\nf({text})\n'.encode()) for text in ("'x'", "'y'", "g()")]
    assert [*twin_problems("show", pair[0], pair[1])] == []
    assert [problem.oracle for problem in twin_problems("show", pair[0], pair[2])] == ["twin"]
    another = ended("show", out=b'"""b[float32]"""\ng()\n')
    assert [*twin_problems("show", pair[0], another)] == []


def test_messages_are_counted_by_kind() -> None:
    text = "a.yaml:1:2: error: no operator 'torch.x', 3 times\n   1 | x\na.yaml:5:6: error: no operator 'torch.y', 4 times\n"
    outcome = ended("validate", code=4, err=text.encode())
    assert len(diagnostics(outcome)) == 2
    assert kinds(outcome) == {"no operator '...', N times"}


def test_lines_of_defaults() -> None:
    assert default_lines(b"defaults:\n  a: 1\n  b: 2\ncases: []\n") == range(1, 4)
    assert default_lines(b"defaults: {a: 1}\ncases: []\n") == range(1, 2)
    assert default_lines(b"{defaults: {a: 1}, cases: []}\n") == range(0)
    assert default_lines(b"cases: []\n") == range(0) == default_lines(b"[")


# --- what is changed ---------------------------------------------------------------------------


def test_a_recipe_is_a_line_of_text() -> None:
    recipe = Recipe.numbered("spec", 7, 3)
    assert Recipe.parse(str(recipe)) == recipe
    assert Recipe.parse("log:1::2") == Recipe("log", 1, (), 2)
    with pytest.raises(ValueError, match="none of"):
        Recipe.parse("zq:1::2")


def test_the_same_recipe_makes_the_same_file() -> None:
    for number in range(40):
        documents = [fuzz_yaml.spec_document(number), fuzz_yaml.spec_document(number)]
        for document in documents:
            for edit in (number, number + 1):
                fuzz_trial.edit(document, edit)
        assert fuzz_yaml.rendered(documents[0]) == fuzz_yaml.rendered(documents[1])


@pytest.mark.parametrize("payload", fuzz_payloads.PAYLOADS, ids=ascii)
def test_payloads_are_read_as_they_are(payload: str) -> None:
    from runner.cases.yaml.reader import load

    number = fuzz_payloads.PAYLOADS.index(payload)
    tree = fuzz_yaml.parsed(f"[{fuzz_payloads.token(number)}]")
    text = fuzz_payloads.filled(fuzz_yaml.written(tree))
    node, problems = load("a.yaml", text)
    if "\ud800" not in payload:  # half a character is refused
        assert not problems and node is not None and node.plain() == [payload]
    twin, _ = load("a.yaml", fuzz_payloads.filled(fuzz_yaml.written(tree), twin=True))
    assert twin is not None and str(twin.plain()[0]).replace("@", "").isalnum()  # type: ignore[index]


def test_shipped_files_together_have_every_key() -> None:
    import json

    schema = json.loads((Path(fuzz_yaml.ROOT) / "schema" / "definitions.schema.json").read_text())["definitions"]
    keys = {name.removeprefix("case.") for name in schema if name.startswith("case.")}
    assert keys - fuzz_yaml.by_key().keys() == set()
    assert set(schema["knownEntry"]["properties"]) - fuzz_yaml.by_key().keys() == set()
