"""Each oracle of the fuzzer sees its fault, and says nothing of a sound file."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft7Validator

from runner.cases.yaml.reader import load
from tests.fuzz import faults
from tests.fuzz.engine import SPEC, SPEC_NAME
from tests.fuzz.files import SEED, Trial, file_trials, filled
from tests.fuzz.forks import Commands, Outcome, Plant
from tests.fuzz.oracles import CODES, check, default_lines, diagnostics, judge, kinds, skeleton, twin_problems
from tests.fuzz.schemas import definition, schema
from tests.fuzz.texts import TEXTS, harmless

TEXT = """\
defaults: {tags: [a]}
cases:
  - name: a
    doc: "a doc"
    inputs: {x: [2]}
    chain:
      - F.relu
      - builtin.print: [{$text: "zqtoken0end"}]
"""
NAME = "specs/basics/fuzz.spec.yaml"
LOG = "zq/events.jsonl"
DEFINITIONS = schema("definitions")["definitions"]


def spec(command: str, payload: str = "plain", text: str = TEXT, again: bool = False) -> Trial:
    own, twin = (
        {NAME: filled(text, [value]).encode("utf-8", "surrogatepass")} for value in (payload, harmless(payload))
    )
    return Trial("spec", own, (command, NAME), twin, again)


def log(commands: Commands, words: str) -> Trial:
    files = {LOG: commands.logs()[0], SPEC_NAME: SPEC.encode()}
    return Trial("log", files, tuple(words.split()))


def oracles(commands: Commands, trial: Trial, fault: Plant | None = None) -> set[str]:
    return {problem.partition(":")[0] for problem in judge(trial, commands, fault)[1]}


@pytest.mark.parametrize("command", ["validate", "list", "show", "repro", "ledger", "write"])
def test_a_sound_file_shows_nothing(commands: Commands, command: str) -> None:
    assert oracles(commands, spec(command, 'a text\nof "two" lines', again=True)) == set()


def test_the_seed_is_a_sound_file_and_has_every_key(commands: Commands) -> None:
    text = SEED.read_text()
    outcome, problems = judge(Trial("spec", {NAME: text.encode()}, ("write", NAME)), commands)
    assert not problems and outcome.out == b"LOADED\n"
    keys = {*DEFINITIONS["case"]["properties"], *DEFINITIONS["knownEntry"]["properties"]} - {"module"}
    assert [key for key in sorted(keys) if f"{key}: " not in text and f"{key}:\n" not in text] == []


@pytest.mark.parametrize(
    "words", [f"report {LOG}", "report zq --junit -", f"ledger {SPEC_NAME} --run zq", "resume zq", "rerun zq"]
)
def test_a_sound_log_shows_nothing(commands: Commands, words: str) -> None:
    assert oracles(commands, log(commands, words)) == set()


@pytest.mark.parametrize(("oracle", "command", "fault"), faults.FAULTS)
def test_a_planted_fault_is_seen(commands: Commands, oracle: str, command: str, fault: Plant) -> None:
    assert oracle in oracles(commands, spec(command, again=oracle == "repeatable"), fault)


def test_time_and_memory_are_measured(commands: Commands) -> None:
    files = spec("list").files
    outcome = commands.run(files, ("list", NAME), faults.burn_time)
    assert 0.3 <= outcome.seconds < 5 and outcome.memory < 64 << 20
    assert commands.run(files, ("list", NAME), faults.hold_memory).memory > 80 << 20
    outcome = commands.run(files, ("list", NAME), faults.hang, wall=0.5)
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
    assert [*seen(ended("list", **changes))] == [oracle]


def test_text_that_becomes_code_is_seen(commands: Commands) -> None:
    assert oracles(commands, spec("show", 'zq"); torch.neg("'), faults.paste_text) == {"twin"}
    assert oracles(commands, spec("show", 'zq"); zq_call("'), faults.paste_text) == {"twin", "python-name"}
    assert oracles(commands, spec("show", 'zq"'), faults.paste_text) == {"python"}


def test_a_refused_file_that_goes_on_is_seen(commands: Commands) -> None:
    refused = spec("show", text=TEXT.replace("tags: [a]", "threads: none"))
    assert "refused" in oracles(commands, refused, faults.go_on)
    assert "refused" not in oracles(commands, spec("show"), faults.go_on)


def test_a_report_that_is_no_xml_is_seen(commands: Commands) -> None:
    assert oracles(commands, log(commands, "report zq --junit -"), faults.break_xml) == {"junit"}


def test_a_log_that_is_obeyed_is_seen() -> None:
    assert seen(ended("rerun", acts=("run-python ['./zq.sh']",))) == ["act"]


def seen(outcome: Outcome) -> list[str]:
    return [problem.partition(":")[0] for problem in check(outcome)]


def ended(command: str, **changes: Any) -> Outcome:
    return Outcome(**{"words": (command,), "code": 0, **changes})


@pytest.mark.parametrize("command", CODES)
def test_every_command_has_its_exit_codes(command: str) -> None:
    for code in range(6):
        outcome = ended(command, code=code, out=b"import torch\n", err=b"runner: a word\n")
        assert seen(outcome) == ([] if code in CODES[command] else ["exit-code"]), code


@pytest.mark.parametrize(
    "character", ["\x00", "\r", "\x1b", "\x7f", "\x9b", "\u202e", "\u2066", "\u2028", "\ufeff", "\u200f"]
)
def test_control_characters(character: str) -> None:
    for stream in ("out", "err"):
        outcome = ended("list", **{stream: f"runner: a{character}b\n".encode()})
        assert seen(outcome)[:1] == ["control-character"]
    assert seen(ended("list", out="a\té\U0001f600\n".encode())) == []


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
    assert seen(outcome) == ([] if fits else ["place"])


def test_programs_are_compared_without_their_constants() -> None:
    assert skeleton("f('a', 1)") == skeleton("f('b', 'c')") != skeleton("f('a', g())")
    pair = [ended("show", out=f'"""a[float32]"""\nf({text})\n'.encode()) for text in ("'x'", "'y'", "g()")]
    assert [*twin_problems(pair[0], pair[1])] == []
    assert len([*twin_problems(pair[0], pair[2])]) == 1
    other_program = ended("show", out=b'"""b[float32]"""\ng()\n')
    assert [*twin_problems(pair[0], other_program)] == []


def test_messages_are_counted_by_kind() -> None:
    text = "a.yaml:1:2: error: no operator 'x', 3 times\n   1 | x\na.yaml:5:6: error: no operator 'y', 4 times\n"
    outcome = ended("validate", code=4, err=text.encode())
    assert len(diagnostics(outcome)) == 2
    assert kinds(outcome) == {"no operator '...', N times"}


def test_lines_of_defaults() -> None:
    assert default_lines(b"defaults:\n  a: 1\n  chain:\n  - b\n  b: 2\ncases: []\n") == {1, 2, 5}
    assert default_lines(b"defaults: {a: 1}\ncases: []\n") == {1}
    assert default_lines(b"{defaults: {a: 1}, cases: []}\n") == set()
    assert default_lines(b"cases: []\n") == set() == default_lines(b"[")


# --- what is changed ---------------------------------------------------------------------------


@settings(settings.get_profile("quick"), max_examples=100)
@given(TEXTS)
def test_hostile_texts_are_read_as_they_are(text: str) -> None:
    node, problems = load("a.yaml", filled('["zqtoken0end"]', [text]))
    if not any("\ud800" <= character <= "\udfff" for character in text):  # half a character is refused
        assert not problems and node is not None and node.plain() == [text]
    assert harmless(text).replace("@", "").isalnum() or harmless(text) == "@"


@pytest.mark.parametrize("key", DEFINITIONS["case"]["properties"])
def test_the_schema_accepts_most_of_what_is_made_of_it(key: str) -> None:
    validator = Draft7Validator({"$ref": f"#/definitions/case.{key}", "definitions": DEFINITIONS})
    fits = []

    @settings(settings.get_profile("quick"), max_examples=30)
    @given(definition(f"case.{key}"))
    def draw(value: Any) -> None:
        fits.append(validator.is_valid(value))

    draw()
    assert sum(fits) > len(fits) / 2


@settings(settings.get_profile("quick"), max_examples=60)
@given(file_trials())
def test_a_twin_has_the_lines_of_its_file(trial: Trial) -> None:
    if trial.twin:
        assert len(trial.twin[trial.name].splitlines()) == len(trial.files[trial.name].splitlines())
