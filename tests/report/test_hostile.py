"""Logs and results that mean to become markup or commands, in every report."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from runner.builder.source import build
from runner.cases.serialize import emit
from runner.diagnose.bug_report import ScriptRun, VersionVerdict
from runner.diagnose.bundle import write_index
from runner.diagnose.diagnosis import Ablation, Culprit
from runner.diagnose.repro import script
from runner.diagnose.similar import Entry, FailureProfile, Match
from runner.diagnostics import Diagnostic, Span
from runner.ledger.edit import entry_text
from runner.quote import QuoteError
from runner.record.events import Notice, RunFinished, RunResumed
from runner.reduce.minifier import standalone
from runner.report.failure import render_failure
from runner.report.issue import write
from runner.report.terminal import Reporter
from runner.text import visible
from tests.handmade import variants
from tests.hostile import PAYLOADS
from tests.report.events_sample import finished, started
from tests.report.pictures import diagnosis, material, wrong

MARKDOWN = MarkdownIt("commonmark").enable("table")


def markup(text: str) -> list[str]:
    """Everything in a Markdown text but words and code."""
    tokens = [inner for token in MARKDOWN.parse(text) for inner in (token, *(token.children or ()))]
    return [
        f"{t.type} {t.tag} {t.attrs}"
        for t in tokens
        if t.type not in ("text", "text_special", "softbreak", "code_inline")
    ]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_report_in_markdown_keeps_its_markup(payload: str, tmp_path: Path) -> None:
    (variant,) = variants(tmp_path, "")

    def report(word: str) -> str:
        hostile_diagnosis = diagnosis(
            wrong(message=word, path=word), verdict=word, reason=word, stages={"dynamo": word, word: word},
            culprit=Culprit(word, word, 2, word, word, word, word), ablations=(Ablation(word, word, "other", word),), bisect_note=word,
        )  # fmt: skip
        matches = (Match(Entry(FailureProfile(frozenset(), frozenset()), "t", "f:1", word), 0.5, (word,)),)
        return write(
            material(
                variant,
                diagnosis=hostile_diagnosis,
                matches=matches,
                steps=word,
                versions=(VersionVerdict(word, word, word), VersionVerdict("2.6.0", "PASS")),
                script=ScriptRun(1, word, script(variant, hostile_diagnosis)),
            )
        )[0]

    text = report(PAYLOADS[payload])
    assert markup(text) == markup(report("plain"))
    assert visible(text) == text


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_terminal_obeys_no_event(payload: str) -> None:
    text = PAYLOADS[payload]
    result = finished(text, text, text, text, reason=text, oracles=(text,), stage=text, signal=text, stages={text: text},
                     labels=(text,), notes=(text,), stack=text, output=text, known=text, host=text, findings=(wrong(message=text),))  # fmt: skip
    events = [started(run=text, host=text, version=text, folder=text), RunResumed(run=text, finished=1, started="x"),
              Notice(text, severity=text), result, RunFinished(1, 1.0)]  # fmt: skip
    stream = io.StringIO()
    reporter = Reporter(stream, width=100, environ={"FORCE_COLOR": "1"}, reports=[text])
    for event in events:
        reporter.handle(event)
    reporter.tick([(text, 100.0, text)])
    printed = re.sub(r"\x1b\[(0|1|2|31|32|33)m", "", stream.getvalue())
    assert visible(printed) == printed


def test_a_line_of_the_terminal_obeys_our_colours_alone() -> None:
    stream = io.StringIO()
    Reporter(stream, environ={"FORCE_COLOR": "1"})._line("\x1b[31mred\x1b[0m \x1b[2J \x1b]0;t\x07\u202e")
    assert stream.getvalue() == "\x1b[31mred\x1b[0m \\x1b[2J \\x1b]0;t\\x07\\u202e\n"


@pytest.mark.parametrize(
    "command",
    ["runner run x; id", "id", "runner run $(id)", "runner run 'a\nb'", "runner run a\u202e", "runner run a' 'b; `id`"],
)
def test_a_log_gives_no_line_for_a_shell(command: str) -> None:
    assert "reproduce" not in render_failure(finished("FAIL", repro=command))
    assert render_failure(finished("FAIL", repro="runner run 'a  b.spec.yaml::c'")).endswith(
        "  reproduce: runner run 'a  b.spec.yaml::c'"
    )


@pytest.mark.parametrize(
    ("text", "column", "length", "excerpt", "marks"),
    [
        ("name: a \x1b[2J\xff", 13, 1, "name: a \\x1b[2Jÿ", 16),
        ("\x00\x00name", 3, 4, "\\x00\\x00name", 9),
        ("\tx\u202ey", 3, 1, " x\\u202ey", 3),
        ("name: x\r\n", 7, 1, "name: x", 7),
    ],
)
def test_a_caret_stands_below_its_character(text: str, column: int, length: int, excerpt: str, marks: int) -> None:
    diagnostic = Diagnostic(Span("f\x1b\n.yaml", 3, column, length), "bad \x1b[2J\nnews", "use\x07 this", text=text)
    head, line, caret, hint = diagnostic.render().split("\n")
    assert head == f"f\\x1b\\n.yaml:3:{column}: error: bad \\x1b[2J\\nnews" and hint == "     = use\\x07 this"
    assert line == f"   3 | {excerpt}"
    assert caret.index("^") - len("   3 | ") == marks - 1
    if text[column - 1] == "\u202e":
        assert caret.count("^") == len("\\u202e")


@pytest.mark.parametrize("payload", [payload for payload in PAYLOADS if payload != "surrogate"])
def test_yaml_holds_the_text_and_nothing_else(payload: str) -> None:
    text = PAYLOADS[payload]
    entry = entry_text({"reason": text, "params": {text: text}, "oracle": [text]})
    assert yaml.safe_load(entry) == {"reason": text, "params": {text: text}, "oracle": [text]}
    data = {"cases": [{"doc": text, text: [text, {"k": text}]}]}
    assert yaml.safe_load(emit(data)) == data
    for yaml_text in (entry, emit(data)):
        assert visible(yaml_text) == yaml_text


def test_yaml_of_an_object_is_refused() -> None:
    class Word(str):
        pass

    for value in (object(), b"x", Word("x")):
        with pytest.raises(QuoteError, match="no plain value"):
            emit({"a": value})


@pytest.mark.parametrize("payload", PAYLOADS)
def test_the_page_of_a_bundle_has_no_markup_of_others(payload: str, tmp_path: Path) -> None:
    def page(word: str) -> str:
        document: dict[str, Any] = {
            "id": word, "torch": word, "backend": word, "function": word, "error": word, "failed": [word], "kernels": {word: word},
            "times": [{"phase": word, "count": 1, "seconds": 0.5}], "files": [{"path": word, "group": "other", "about": word, "bytes": 1}],
        }  # fmt: skip
        write_index(tmp_path, document)
        return (tmp_path / "index.html").read_text(encoding="utf-8")

    text = page(PAYLOADS[payload])
    assert re.findall(r"</?\w+", text) == re.findall(r"</?\w+", page("plain"))
    assert visible(text) == text and 'href="javascript:' not in page("javascript:id")


def test_a_minified_script_imports_what_it_should(tmp_path: Path) -> None:
    text = "if __name__ == '__main__':\n    run_repro(mod, load_args, save_dir='/x', backend='mine_copied')\n"
    backend = {"backend": "package:f', x); import os; ('", "options": {"o": "'); import os"}}
    script = standalone(text, tmp_path, backend, "mine_copied", (), ("/p'); import os; ('",))
    assert [line for line in script.split("\n") if line.startswith("import ")] == [
        f"import {m}" for m in ("os", "sys", "functools", "importlib")
    ]
    compile(script, "repro.py", "exec")
    with pytest.raises(QuoteError):
        standalone(text, tmp_path, {"backend": "inductor"}, "x", ("os; import sys",), ())


def test_the_source_is_the_same_text_as_shown(tmp_path: Path) -> None:
    from runner.cli.cases import describe

    (variant,) = variants(tmp_path, "doc: |\n  a\n  b")
    assert describe(variant).endswith(build(variant).text.rstrip())
