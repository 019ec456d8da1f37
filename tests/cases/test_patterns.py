"""``runner.cases.patterns``: expressions that are matched in the control process."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cases.patterns import PatternError, check_pattern, check_python_pattern, matches_anywhere
from runner.cases.yaml.reader import load
from runner.cases.yaml.values import YamlMapping, YamlScalar, YamlSequence

ROOT = Path(__file__).resolve().parents[2]
FILES = [*ROOT.glob("specs/**/*.spec.yaml"), *(ROOT.parent / "shared" / "corpus" / "yaml").glob("*.spec.yaml")]


@pytest.mark.parametrize(
    ("pattern", "text", "matching"),
    [
        ("Assert|Value", "ValueError: no", True),
        (r"^Value.*no$", "ValueError: no", True),
        (r"size \d+", "size x", False),
        (r"((\w|\W)+)+QQ", "a" * 10_000, False),  # a backtracking engine does not come back from this one
        ("x", "half of a character: \ud800x", True),
    ],
)
def test_matching(pattern: str, text: str, matching: bool) -> None:
    assert matches_anywhere(pattern, text) is matching


@pytest.mark.parametrize(
    ("pattern", "words", "hint"),
    [
        ("a(?=b)", "invalid perl operator", "no lookahead: write the text that follows"),
        ("a(?!b)", "invalid perl operator", "no lookahead"),
        ("(?<=a)b", "invalid perl operator", "no lookbehind"),
        (r"(a)\1", "invalid escape sequence", "no back references"),
        (r"a\Z", "invalid escape sequence", r"write \z"),
        ("(?>a)", "invalid perl operator", "never backtracks"),
        ("(", "missing )", "RE2's"),
        ("a{1001}", "invalid repetition size", "at most 1000 times"),
        (r"\pL{1,50}", "more than 65536 bytes", "smaller repetitions"),
        ("\ud800", "half of a surrogate pair", "RE2's"),
    ],
)
def test_what_is_not_taken(pattern: str, words: str, hint: str) -> None:
    with pytest.raises(PatternError) as error:
        check_pattern(pattern)
    assert words in str(error.value) and hint in error.value.hint


def test_errors_go_to_nobodys_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PatternError):
        check_pattern("[a")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("pattern", [r"(?i)a\\upper\d[^\w]", "\uffff|é", "[!-~]", r"(?<=a)b(?=c)(.)\1\Z", r"\u00e9"])
def test_what_python_takes_in_a_worker(pattern: str) -> None:
    check_python_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("[!-\uffff]", "holds ASCII alone"),
        (r"(?i)[!-\uffff]", "holds ASCII alone"),
        (r"[a\U0010ffff]", "holds ASCII alone"),
        (r"[\N{BULLET}]", "holds ASCII alone"),
        ("(", "not a regular expression"),
        ("(" * 900, "not a regular expression"),
    ],
)
def test_what_python_does_not_take_in_a_worker(pattern: str, words: str) -> None:
    for _ in range(2):  # what is remembered is refused again
        with pytest.raises(PatternError, match=words):
            check_python_pattern(pattern)


def _errors(node: object) -> list[str]:
    """Every ``error:`` of a tree."""
    patterns = []
    if isinstance(node, YamlMapping):
        for key, value in node.entries:
            if key.value == "error" and isinstance(value, YamlScalar) and isinstance(value.value, str):
                patterns.append(value.value)
            patterns += _errors(value)
    elif isinstance(node, YamlSequence):
        patterns += [pattern for item in node.items for pattern in _errors(item)]
    return patterns


def test_every_shipped_pattern_is_taken() -> None:
    patterns = [pattern for file in FILES for pattern in _errors(load(file)[0])]
    assert patterns
    for pattern in patterns:
        check_pattern(pattern)
