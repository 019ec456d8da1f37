"""The mistakes of a beginner, typed: each answer is the one of ``docs/mistakes.md``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.script_modules import script_module

from .driver import run_in, write

mistakes_page = script_module("mistakes_page")
PAGE = mistakes_page.PAGE.read_text(encoding="utf-8")
ALL = [*mistakes_page.TEN, *mistakes_page.MORE]


@pytest.mark.parametrize("mistake", ALL, ids=lambda mistake: mistake.typed.strip())
def test_the_answer_is_on_the_page(mistake: mistakes_page.Mistake, tmp_path: Path) -> None:
    (tmp_path / mistakes_page.FILE).write_text(mistake.text)
    result = run_in(tmp_path, *mistake.words, limit=60)
    assert mistakes_page.row(mistake, result.err) in PAGE, f"run: python tools/mistakes_page.py\n{result.text}"
    assert result.code in (4, 5) or ": warning: " in result.err


def test_the_page_has_no_other_rows() -> None:
    assert len(re.findall(r"^\| (?!---|mistake \|)", PAGE, re.MULTILINE)) == len(ALL)
    assert f"`{mistakes_page.FILE}`:\n\n```yaml\n{mistakes_page.RIGHT}```" in PAGE


def test_the_file_of_the_page_passes(tmp_path: Path) -> None:
    write(tmp_path, {mistakes_page.FILE: mistakes_page.RIGHT})
    result = run_in(tmp_path, "run", mistakes_page.FILE, "--backend", "eager")
    assert (result.code, result.verdicts) == (0, {"scaled@eager": "PASS"}), result.text


def test_what_the_messages_offer_is_right(tmp_path: Path) -> None:
    """Each line that a message says to write takes the place of the mistake, and the file is without errors."""
    offered = 0
    for mistake in ALL:
        hint = re.search(
            rf"{re.escape(mistake.typed.strip())}` \| .*`= .*?(?:write .*as in|write) (\w+\.\w+.*)` \|$",
            PAGE,
            re.MULTILINE,
        )
        if hint is None or mistake.line not in ("      - F.relu", "      - torch.add: [$_, 1]"):
            continue
        offered += 1
        line = hint[1].replace("aten._softmax", "aten._softmax: [$_, 1, false]")
        line = line.replace("[$x, 1]", "[$_, 1]")  # here there is a value of the step before too, which must be used
        text = mistakes_page.RIGHT.replace(mistake.line, f"      - {line}")
        (tmp_path / f"m{offered}.spec.yaml").write_text(text)
    result = run_in(tmp_path, "validate", ".")
    assert offered >= 8 and (result.code, result.err) == (0, ""), result.text


def test_a_wrong_call_does_not_pass_as_the_error_that_is_expected(tmp_path: Path) -> None:
    """Eager raises for F.softmax(-1), and so would every backend."""
    text = mistakes_page.RIGHT.replace("torch.add: [$_, 1]", "F.softmax: -1")
    write(tmp_path, {"raises.spec.yaml": text + "    expect: {raises: {type: Exception}}\n"})
    result = run_in(tmp_path, "run", "raises.spec.yaml", "--backend", "eager")
    assert result.code == 4 and "F.softmax gets no tensor here\n" in result.err, result.text


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            "chain: [{torch.exp: $x, out: e}, torch.neg]\n    return: [e, $_]",
            "'e' is text\n.*= write $e; {$text: e} is text",
        ),
        ("chain: [{torch.exp: $x, out: e}, torch.neg]\n    return: {one: e, two: $_}", "'e' is text"),
        (
            "state: {k: [2]}\n    chain: [{torch.add: [$x, self.k]}, {torch.mul: [$_, $self.k]}]",
            "write $self.k, as in torch.add: [$x, $self.k]",
        ),
        ("chain: [F.softmax: dim=-1]", "write F.softmax: {dim: -1}"),
        ("chain: [Tensor.view(-1)]", "write Tensor.view: [$_, -1]"),
        (
            "chain: [F.relu]\n    compile: {mode: default, options: {epilogue_fusion: false}}",
            "torch.compile takes mode or options, and refuses both",
        ),
    ],
)
def test_answers_that_can_be_copied(tmp_path: Path, lines: str, words: str) -> None:
    write(tmp_path, {"a.spec.yaml": f"cases:\n  - name: a\n    inputs: {{x: [2]}}\n    {lines}\n"})
    err = run_in(tmp_path, "validate", "a.spec.yaml").err
    assert all(word.strip() in err for word in words.split("\n.*")), err
