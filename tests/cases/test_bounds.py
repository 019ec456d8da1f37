"""Bounds on what a file may ask of the process that reads it: each with its limit, its place and its message."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from spec_files import Files, short

from runner.cases.expand import expand
from runner.cases.limits import Limits
from runner.cases.problems import Problems, TooManyProblems, limited
from runner.cases.suites import FolderLimit, PathError, Reader, Walk, discover
from runner.diagnostics import Diagnostic, InputError, Span, nearest
from runner.session.collect import load

ROOT = Path(__file__).resolve().parents[2]
CASE = "name: a, inputs: {x: [2]}, chain: [F.relu]"


def messages(files: Files, text: str, limits: Limits) -> list[str]:
    """What is wrong with a file, with the place; its cases must not go on."""
    try:
        loaded = load([str(files.write("a.spec.yaml", text))], limits=limits, everything=True, allow_python=True)
    except InputError as error:
        return [short(d).removeprefix("a.spec.yaml:") for d in error.diagnostics]
    assert loaded.variants == () or not loaded.errors
    return [short(d).removeprefix("a.spec.yaml:") for d in loaded.diagnostics]


@pytest.mark.parametrize(
    ("name", "fitting", "text", "message"),
    [
        ("file_bytes", 100, f"cases: [{{{CASE}}}]" + " " * 100, "1:1: this file is larger than 100 bytes"),
        ("total_bytes", 60, f"cases: [{{{CASE}}}]" + " " * 100, "1:1: up to this file more than 60 bytes of YAML were read"),
        ("depth", 4, f"cases: [{{{CASE}, exclude: [{{n: [[1]]}}]}}]", "1:31: nested deeper than 4 levels"),
        ("nodes", 9, f"cases: [{{{CASE}}}]", "1:31: this file has more than 9 values"),
        ("expanded_nodes", 3, f"cases: [{{{CASE}, params: {{n: &n [1, 2], k: *n, l: *n}}}}]", "1:87: the aliases up to here stand for more than 3 nodes"),
        ("expanded_nodes", 3, f"defaults: {{tags: [a]}}\ncases: [{{{CASE}}}, {{name: b, inputs: {{x: [2]}}, chain: [F.relu]}}]", "2:55: the defaults up to this case stand for more than 3 nodes"),
        ("expanded_nodes", 8, f"cases: [{{{CASE}, calls: [{{}}, {{}}, {{}}]}}]", "1:61: these calls make inputs of more than 8 nodes"),
        ("expanded_characters", 4, f"cases: [{{{CASE}, links: [&x abc, *x, *x]}}]", "1:74: the aliases up to here stand for more than 4 characters"),
        ("text_characters", 30, f"cases: [{{{CASE}, doc: {'d' * 31}}}]", "1:59: this text has 31 characters, more than 30"),
        ("value_characters", 3, f"cases: [{{{CASE}, params: {{n: [abcd]}}}}]", "1:67: a value of a param has at most 3 characters, since ids show it"),
        ("pattern_characters", 3, f"cases: [{{{CASE}, known: [{{reason: r, error: abcd}}]}}]", "1:81: a regular expression has at most 3 characters, this one has 4"),
        ("pattern_characters", 3, f"cases: [{{{CASE}, expect: {{raises: {{type: E, match: abcd}}}}}}]", "1:88: a regular expression has at most 3 characters, this one has 4"),
        ("total_pattern_characters", 5, f"cases: [{{{CASE}, known: [{{reason: r, error: abc}}, {{reason: r, error: abc}}, {{reason: r, error: abd}}]}}]", "1:131: the regular expressions up to here have more than 5 characters"),
        ("axes", 1, f"cases: [{{{CASE}, params: {{n: [1], k: [1]}}}}]", "1:62: a case has at most 1 params, not 2"),
        ("variants", 3, f"cases: [{{{CASE}, params: {{n: [1, 2], k: [1, 2]}}}}]", "1:16: the axes of case 'a' multiply to 4 variants, more than 3"),
        ("id_characters", 20, f"cases: [{{{CASE}}}]", "1:16: the ids of the variants up to here have more than 20 characters"),
        ("exclusions", 3, f"cases: [{{{CASE}, params: {{n: [1, 2], k: [1, 2]}}, exclude: [{{n: 1}}]}}]", "1:16: exclude: of case 'a' takes 4 comparisons, more than 3"),
        ("tensor_bytes", 4, f"cases: [{{{CASE}}}]", "1:28: input 'x' of shape [2] takes 8 bytes, more than 4 bytes"),
    ],
)  # fmt: skip
def test_each_bound(files: Files, name: str, fitting: int, text: str, message: str) -> None:
    texts = messages(files, text, Limits().with_overrides([f"{name}={fitting}"]))
    assert [f for f in texts if f.partition(" | ")[0] == message], texts
    if name != "tensor_bytes":
        assert [f for f in texts if f"the limit is {name}={fitting}" in f]
    assert not [f for f in messages(files, text, Limits()) if f"the limit is {name}=" in f]


def test_every_limit_has_its_row_in_the_docs() -> None:
    text = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    rows = {row[0]: int(row[1]) for row in re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE)}
    assert rows == {field.name: field.default for field in fields(Limits)}


# --- diagnostics ---


def test_a_file_with_many_errors_says_how_many_are_left_out(files: Files) -> None:
    bad = "".join(f"  - {{name: w{n}, grad: 7}}\n" for n in range(30))
    texts = messages(files, f"cases:\n{bad}", Limits(diagnostics=20))
    assert len(texts) == 21
    assert (
        texts[-1]
        == "21:23: at least 10 more are not shown | the limit is diagnostics=20; change it with --limit diagnostics=N"
    )


def test_all_files_together_have_an_end(files: Files) -> None:
    for name in "abc":
        files.write(f"{name}.spec.yaml", "cases:\n" + "".join(f"  - {{name: w{n}, grad: 7}}\n" for n in range(5)))
    diagnostics = load([str(files.folder)], limits=Limits(diagnostics=4, total_diagnostics=6)).diagnostics
    texts = [d.message for d in diagnostics if "not shown" in d.message]
    last = "at least 7 more in this and in other files are not shown"
    assert texts == ["at least 1 more are not shown", "at least 1 more are not shown", last]
    assert sum("not shown" not in d.message for d in diagnostics) == 6 and all(
        d.severity == "error" for d in diagnostics
    )


def test_reading_stops_at_as_many_errors_as_are_shown() -> None:
    problems = Problems(["x"], Limits(diagnostics=2))
    for number in range(2):
        problems.error(Span("a", 1, 1), f"wrong {number}")
        problems.error(Span("a", 1, 1), f"wrong {number}")
    for number in range(9):
        problems.warning(Span("a", 1, 1), f"odd {number}")
    with pytest.raises(TooManyProblems):
        problems.error(Span("a", 1, 1), "wrong again")
    assert len(problems.diagnostics) <= 4


def test_a_case_with_more_warnings_than_are_shown_runs(files: Files) -> None:
    entries = ", ".join(f"{{reason: r, torch: '<1', review: 2020-01-0{n}}}" for n in range(1, 10))
    path = files.write("a.spec.yaml", f"cases: [{{{CASE}, known: [{entries}]}}]")
    loaded = load([str(path)], limits=Limits(diagnostics=3))
    assert len(loaded.variants) == 1 and not loaded.errors and len(loaded.diagnostics) == 4


def test_messages_are_cut_and_have_no_control_characters() -> None:
    long = Diagnostic(Span("a", 1, 1), "m\x1b[2J" + "x" * 1000, "h\n\u202e" + "y" * 1000, text="a\x1b\u202eb")
    (diagnostic,) = limited([long], Limits(message_characters=50))
    assert len(diagnostic.message) == len(diagnostic.hint) == 50
    assert diagnostic.message.startswith("m\\x1b[2Jxx") and diagnostic.message.endswith("xx...")
    assert diagnostic.hint.startswith("h\\n\\u202eyy") and diagnostic.text == "a\ufffd\ufffdb"


def test_the_message_of_a_command_that_cannot_go_on_is_cut(files: Files) -> None:
    files.write("a.spec.yaml", f"cases: [{{name: {'a' * 9000}, inputs: {{x: [2]}}, chain: [F.relu]}}]")
    suites = [
        str(files.write(f"s{n}.suite.yaml", f"suite: s{n}\nspecs: [a.spec.yaml]\ndefaults: {{threads: {n}}}\n"))
        for n in (1, 2)
    ]
    with pytest.raises(InputError, match="'aaaa") as error:
        load(suites)
    assert [len(d.message) for d in error.value.diagnostics] == [500]


def test_hints_compare_so_many_words() -> None:
    assert nearest("word9999", (f"word{n}x" for n in range(1000))) != ""
    words = []
    names = (words.append(n) or f"a{n:05}" for n in range(1_000_000))  # type: ignore[func-returns-value]
    nearest("a" * 100, names)
    assert len(words) < 1000
    assert nearest("x" * 100_000, ["x" * 99_999]) == ""


# --- checking variants ---


def test_so_much_source_is_written_to_check_variants(files: Files) -> None:
    text = "cases: [{name: a, params: {n: [1, 2, 3, 4, 0]}, inputs: {x: ['${n}']}, chain: [{torch.mul: [$x, '${1 // n}']}]}]"
    assert messages(files, text, Limits()) == ["1:98: in ${1 // n}: division by zero"]
    texts = messages(files, text, Limits(source_characters=1000))
    assert len(texts) == 1 and re.match(
        r"1:16: warning: \d of the 5 variants of case 'a' were written out and checked \| the limit is source_",
        texts[0],
    )


def test_params_that_are_left_out(files: Files) -> None:
    files.write(
        "a.spec.yaml",
        f"cases: [{{{CASE}, params: {{n: [1, 2, 3], k: [1, true, x]}}, exclude: [{{n: 1}}, {{k: x, n: 2}}, {{n: 3, k: 5}}]}}]",
    )
    pairs = [(v.params["n"], v.params["k"]) for v in expand(files.suites("a.spec.yaml"))]
    assert pairs == [(2, 1), (2, True), (3, 1), (3, True), (3, "x")]


# --- folders ---


def folders(files: Files, *names: str) -> Path:
    for name in names:
        files.write(name, "cases: []\n")
    return files.folder


def test_patterns(files: Files) -> None:
    folder = folders(files, "a/b/c.spec.yaml", "a/d.spec.yaml", "e.spec.yaml", "a/b/f.yaml", "a/.g/h.spec.yaml")
    names = {
        "**/*.spec.yaml": ["h.spec.yaml", "c.spec.yaml", "d.spec.yaml", "e.spec.yaml"],
        "a/*.spec.yaml": ["d.spec.yaml"],
        "a/../e.spec.yaml": ["e.spec.yaml"],
        "a/**/b/*": ["c.spec.yaml"],
        "**/**/?.spec.yaml": ["h.spec.yaml", "c.spec.yaml", "d.spec.yaml", "e.spec.yaml"],
        "[ae].spec.yaml": ["e.spec.yaml"],
        "**": [],
        "/**/*.spec.yaml": [],
        "none/*.spec.yaml": [],
        "e.spec.yaml/*": [],
        "": [],
        "a\0b": [],
        "a" * 300 + ".spec.yaml": [],
        "*/" * 300 + "x": [],
    }
    for pattern, expected in names.items():
        assert [path.name for path in Walk().matching(folder, pattern, ".spec.yaml")] == expected, pattern


def test_a_circle_of_links_has_an_end(files: Files) -> None:
    folder = folders(files, "a/b.spec.yaml")
    (folder / "a" / "again").symlink_to(folder)
    assert len(Walk().matching(folder, "**/*.spec.yaml", ".spec.yaml")) == 1
    assert len(Walk().below(folder, (".spec.yaml",))) == 1


def test_so_many_entries_are_looked_at(files: Files) -> None:
    folder = folders(files, *(f"a/{n}.spec.yaml" for n in range(5)), "b/x.spec.yaml")
    with pytest.raises(FolderLimit, match="more than 6 entries"):
        Walk(Limits(folder_entries=6)).matching(folder, "**/*.spec.yaml", ".spec.yaml")
    with pytest.raises(PathError, match="more than 6 entries"):
        Walk(Limits(folder_entries=6)).below(folder, (".spec.yaml",))
    with pytest.raises(PathError, match="more than 5 files"):
        Walk(Limits(files=5)).below(folder, (".spec.yaml",))
    with pytest.raises(PathError, match="more than 5 files; the limit is files=5"):
        discover([folder], Walk(Limits(files=5)))
    with pytest.raises(PathError, match="the limit is folder_entries=6"):
        Reader(Limits(folder_entries=6)).files([folder])


def test_a_pattern_that_walks_the_disk(files: Files) -> None:
    folders(files, *(f"a/{n}.spec.yaml" for n in range(5)))
    files.write("s/t/s.suite.yaml", "suite: s\nspecs: ['../../../**/*.spec.yaml']\n")
    assert files.suites("s/t/s.suite.yaml", limits=Limits(folder_entries=4))[0].cases == ()
    (error,) = files.found()
    assert error.startswith(
        "s.suite.yaml:2:9: '../../../**/*.spec.yaml': there are more than 4 entries in the folders to look through | the limit is folder_entries=4"
    )
