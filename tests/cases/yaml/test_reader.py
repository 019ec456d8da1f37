"""``runner.cases.yaml.reader``: what is read, what is refused, and where that is said to be."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.cases.limits import Limits
from runner.cases.yaml import reader
from runner.cases.yaml.reader import load, read_text
from runner.cases.yaml.values import YamlMapping, YamlNode, YamlScalar, YamlSequence, find, resolve

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture(params=["c", "python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything holds under libyaml and without it."""
    if request.param == "python":
        monkeypatch.setattr(reader, "C_PARSER", None)
    elif reader.C_PARSER is None:
        pytest.skip("this PyYAML has no libyaml")
    return str(request.param)


def read(text: str, limits: Limits | None = None) -> Any:
    node, diagnostics = load("x.yaml", text, limits)
    assert diagnostics == [], [d.render() for d in diagnostics]
    assert node is not None
    return node.plain()


def errors(text: str, limits: Limits | None = None) -> list[str]:
    _, diagnostics = load("x.yaml", text, limits)
    for diagnostic in diagnostics:
        assert diagnostic.render()  # a caret can always be drawn
    return [f"{d.span.line}:{d.span.column}: {d.message}" + (f" | {d.hint}" if d.hint else "") for d in diagnostics]


def nodes(node: YamlNode) -> Iterator[YamlNode]:
    yield node
    if isinstance(node, YamlSequence):
        for item in node.items:
            yield from nodes(item)
    elif isinstance(node, YamlMapping):
        for key, value in node.entries:
            yield key
            yield from nodes(value)


# --- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~", None), ("null", None), ("Null", None), ("NULL", None), ("", None),
        ("true", True), ("True", True), ("TRUE", True), ("false", False), ("False", False), ("FALSE", False),
        ("0", 0), ("-17", -17), ("+1", 1), ("010", 10), ("0o10", 8), ("0x1F", 31), ("-0", 0),
        ("1e-3", 1e-3), ("1E3", 1000.0), (".5", 0.5), ("1.", 1.0), ("-1.5e+2", -150.0), ("+.5", 0.5), ("5e-324", 5e-324),
        (".inf", math.inf), ("+.INF", math.inf), ("-.inf", -math.inf), ("-.Inf", -math.inf),
        ("no", "no"), ("on", "on"), ("off", "off"), ("yes", "yes"), ("y", "y"), ("1:30", "1:30"), ("2027-01-01", "2027-01-01"),
        ("1_000", "1_000"), ("0b1", "0b1"), ("0o8", "0o8"), ("-0x1", "-0x1"), ("nan", "nan"), ("inf", "inf"), ("tRue", "tRue"),
        (".", "."), ("-", "-"), ("1e", "1e"), ("1.2.3", "1.2.3"), ("2.6.0", "2.6.0"), ("$_", "$_"), ("=", "="), ("nulL", "nulL"),
        ("\u0661", "\u0661"), ("1\n", "1\n"),
    ],
)  # fmt: skip
def test_core_resolution(text: str, value: object) -> None:
    result = resolve(text)
    assert result == value
    assert type(result) is type(value)


def test_nan_and_negative_zero() -> None:
    for text in (".nan", ".NaN", ".NAN"):
        number = resolve(text)
        assert isinstance(number, float) and math.isnan(number)
    zero = resolve("-0.0")
    assert isinstance(zero, float) and math.copysign(1, zero) == -1


def test_a_file_of_every_form(parser: str) -> None:
    text = """\
a: [1e-3, no, 'no', "1", 1:30, ~]
b:
- x: {y: z, "*": [$_]}
- |
  two
  lines
c: >-
  folded
  text
d:
"e f": 'it''s'
"""
    assert read(text) == {
        "a": [1e-3, "no", "no", "1", "1:30", None],
        "b": [{"x": {"y": "z", "*": ["$_"]}}, "two\nlines\n"],
        "c": "folded text",
        "d": None,
        "e f": "it's",
    }


def test_a_key_without_a_value_before_a_comma(parser: str) -> None:
    # libyaml alone refuses this; YAML 1.2 allows it, and people write it.
    assert read("{Tensor.abs:, out: z, dense_dim:}") == {"Tensor.abs": None, "out": "z", "dense_dim": None}


def test_core_tags(parser: str) -> None:
    text = "[!!str 5, !!int '5', !!float 1, !!bool 'true', !!null '', !!seq [1], !!map {a: 1}, ! 5, ! 'x']"
    value = read(text)
    assert value == ["5", 5, 1.0, True, None, [1], {"a": 1}, "5", "x"]
    assert type(value[2]) is float


def test_quoted_and_text() -> None:
    node, _ = load("x.yaml", "[1, '1', \"1\", !!str 1, |\n x]\n".replace("|\n x", "x"))
    assert isinstance(node, YamlSequence)
    assert [(n.text, n.quoted) for n in node.items if isinstance(n, YamlScalar)] == [
        ("1", False), ("1", True), ("1", True), ("1", False), ("x", False)]  # fmt: skip


# --- places ------------------------------------------------------------------------------------


def test_places(parser: str) -> None:
    text = "# é\ncases:\n  - name: é\n    'k': \"a b\"\n    f: [10, {x: -1.5}]\n    anchored: &n !!str tag\n"
    node, _ = load("f.yaml", text)
    assert isinstance(node, YamlMapping)

    def place(*path: str | int) -> tuple[str, int, int, int]:
        span = find(node, path).span
        return span.file, span.line, span.column, span.length

    assert place() == ("f.yaml", 2, 1, 5)
    assert place("cases") == ("f.yaml", 3, 3, 1)
    assert place("cases", 0) == ("f.yaml", 3, 5, 4)
    assert place("cases", 0, "name") == ("f.yaml", 3, 11, 1)
    assert place("cases", 0, "k") == ("f.yaml", 4, 10, 5)
    assert place("cases", 0, "f") == ("f.yaml", 5, 8, 15)
    assert place("cases", 0, "f", 0) == ("f.yaml", 5, 9, 2)
    assert place("cases", 0, "f", 1) == ("f.yaml", 5, 13, 9)
    assert place("cases", 0, "f", 1, "x") == ("f.yaml", 5, 17, 4)
    assert place("cases", 0, "anchored") == ("f.yaml", 6, 24, 3)
    case = find(node, ["cases", 0])
    assert isinstance(case, YamlMapping)
    key = case.key("k")
    assert key is not None and (key.span.line, key.span.column, key.span.length) == (4, 5, 3)


def test_places_after_other_line_breaks_and_a_byte_order_mark(parser: str) -> None:
    node, _ = load("x.yaml", "\ufeffa: 1\r\nb: 2\rc: 3\n")
    assert node is not None
    assert [(n.span.line, n.span.column) for n in nodes(node) if isinstance(n, YamlScalar)] == [
        (1, 1), (1, 4), (2, 1), (2, 4), (3, 1), (3, 4)]  # fmt: skip


def test_places_of_block_scalars_and_of_text_on_several_lines(parser: str) -> None:
    node, _ = load("x.yaml", 'a: |\n  x\nb: "one\n  two"\nc: \n')
    assert node is not None
    spans = [(n.span.line, n.span.column, n.span.length) for n in nodes(node) if isinstance(n, YamlScalar)]
    assert spans[1] == (1, 4, 1)
    assert spans[3] == (3, 4, 4)
    assert spans[5][0] == 5 and spans[5][2] == 1


def test_helpers() -> None:
    node, _ = load("x.yaml", "{a: [1, {b: 2}], c: 3}")
    assert isinstance(node, YamlMapping)
    assert list(node.keys()) == ["a", "c"]
    assert node.get("z") is None and node.key("z") is None
    value = node.get("c")
    assert value is not None and value.plain() == 3
    assert find(node, ["a", 1, "b"]).plain() == 2
    assert find(node, []) is node
    assert find(node, ["a", 7, "b"]).plain() == [1, {"b": 2}]  # the deepest that is there
    assert find(node, ["c", "d"]).plain() == 3


def test_nodes_are_frozen() -> None:
    node, _ = load("x.yaml", "{a: 1}")
    with pytest.raises(AttributeError):
        node.entries = ()  # type: ignore[union-attr,misc]


# --- what is refused, and where ------------------------------------------------------------------

REFUSED = {
    "duplicate key": ("a: 1\nb: 2\na: 3\n", "3:1: the key 'a' is here twice | the first one is on line 1, column 1"),
    "duplicate key, quoted": ("{a: 1, 'a': 2}", "1:8: the key 'a' is here twice | the first one is on line 1, column 2"),
    "duplicate key, an alias": ("{&k a: 1, *k : 2}", "1:5: the key 'a' is here twice"),
    "python tag": ("a: !!python/object:os.system [1]\n", "1:4: the tag !!python/object:os.system has no place here: tags construct nothing"),
    "python tag on text": ("- !!python/name:os.system ''\n", "1:3: the tag !!python/name:os.system"),
    "set tag": ("a: !!set {x}\n", "1:4: the tag !!set"),
    "own tag": ("a: !thing x\n", "1:4: the tag !thing"),
    "tag on a mapping": ("!!omap\na: 1\n", "1:1: the tag !!omap"),
    "undeclared tag": ("a: !foo!bar 1\n", "1:4: this tag is not declared: tags construct nothing here"),
    "str tag on a list": ("a: !!str [1]\n", "1:4: the tag !!str"),
    "map tag on text": ("a: !!map x\n", "1:4: the tag !!map"),
    "wrong int": ("a: !!int x\n", "1:10: 'x' is tagged !!int and is not one"),
    "bool as int": ("a: !!int true\n", "1:10: 'true' is tagged !!int"),
    "tab": ("a:\n\tb: 1\n", "2:1: a tab is used for indentation: YAML takes spaces only | replace each tab by spaces"),
    "tab in a later line": ("a:\n  b: 1\n\tc: 2\n", "3:1: a tab is used for indentation"),
    "tab behind spaces": ("a:\n  b:\n  \tc: 1\n", "3:3: a tab is used for indentation"),
    "no-break space": ("- a: 1\n \xa0b: 2\n  c: [1]\n", "2:2: the character U+00A0 (NO-BREAK SPACE) is used for indentation: YAML takes spaces only | "),
    "wide blank": ("- a: 1\n \u3000b: 2\n  c: 3\n", "2:2: the character U+3000 (IDEOGRAPHIC SPACE) is used for indentation"),
    "zero width": ("- a: 1\n \u200bb: 2\n  c: 3\n", "2:2: the character U+200B (ZERO WIDTH SPACE) is used for indentation"),
    "unquoted arithmetic": ("a: [${n}, 2]\n", '1:5: ${n} has brackets and no quotes | quote it: "${n}"'),
    "unquoted arithmetic behind": ("a: {b: [2, ${n + 1}]}\n", "1:12: ${n + 1} has brackets and no quotes"),
    "unquoted arithmetic in a mapping": ("a: {b: ${n}}\n", "1:8: ${n} has brackets and no quotes"),
    "unquoted index": ("a: [1, $x.shape[0]]\n", '1:8: $x.shape[0] has brackets and no quotes | quote it: "$x.shape[0]"'),
    "curly quotes around arithmetic": ("a: [\u201c${n}\u201d]\n", '1:5: curly quotes are text in YAML | write straight quotes: "${n}"'),
    "merge key": ("a: &x {b: 1}\nc:\n  <<: *x\n", "3:3: the merge key `<<` is not part of YAML 1.2 | put what cases share under `defaults:`"),
    "int key": ("a: {1: b}\n", '1:5: the key 1 is not text | keys are text: write "1"'),
    "bool key": ("true: b\n", "1:1: the key true is not text"),
    "null key": ("{~: b}\n", "1:2: the key ~ is not text"),
    "missing key": ("? \n: b\n", "1:2: a key is missing before the colon"),
    "list key": ("? [a]\n: b\n", "1:3: a list cannot be a key: keys are text"),
    "mapping key": ("{{a: 1}: b}\n", "1:2: a mapping cannot be a key"),
    "second document": ("a: 1\n---\nb: 2\n", "2:1: a second document starts here; a file holds one"),
    "empty": ("", "1:1: this file is empty: there is nothing in it"),
    "only comments": ("# a\n\n# b\n", "1:1: this file is empty"),
    "only a marker": ("---\n", "1:1: this file is empty"),
    "unknown alias": ("a: &one 1\nb: *onr\n", "2:4: there is no anchor &onr | did you mean 'one'?"),
    "alias within itself": ("a: &a [1, *a]\n", "1:11: *a stands inside &a: a value cannot contain itself"),
    "control character": ("a: 1\nb: \x01\n", '2:4: the character U+0001 cannot stand in YAML | write "\\x01" in double quotes'),
    "escape character": ("a: \x1b[0m\n", "1:4: the character U+001B"),
    "line separator": ("a: x\u2028y\n", '1:5: the character U+2028 cannot stand in YAML | write "\\u2028"'),
    "lone surrogate": ("a: \ud800\n", "1:4: the character U+D800"),
    "float out of range": ("a: [1e999]\n", "1:5: 1e999 is beyond the range of a 64-bit float; write .inf"),
    "endless integer": (f"a: {'9' * 5000}\n", "1:4: an integer of 5000 digits is too long"),
    "list not closed": ("a: [1, 2\nb: 3\n", "1:4: this list is not closed, or a comma is missing"),
    "key with a bracket": ("a: {output[1]: {b: 1}}\n", "1:5: this mapping is not closed, or a comma is missing | quote a key that has a bracket: \"output[1]\""),
    "mapping not closed": ("a: {b: 1\nc: 2\n", "1:4: this mapping is not closed, or a comma is missing"),
    "quote not closed": ("a: 1\nb: 'x\n", "2:4: this quote is never closed"),
    "colon in a text": ("a: b: c\n", "1:5: a colon cannot stand here | quote a text that holds"),
    "reserved character": ("a: @x\n", "1:4: a value cannot start with '@' | quote the text"),
    "wrong indentation": ("a:\n  b: 1\n c: 2\n", "3:2: this line does not fit the mapping around it"),
    "key in a list": ("- a\nb: 1\n", "2:1: this line does not fit the list around it"),
    "text after a quote": ('a: "b" c\n', "1:8: this line does not fit the mapping around it"),
    "unknown escape": ('a: "\\q"\n', "1:5: an unknown escape in double quotes"),
    "text beside a key": ("a: 1\nb\n", "2:"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, parser: str) -> None:
    text, start = REFUSED[name]
    messages = errors(text)
    assert messages and messages[0].startswith(start), messages


def test_half_a_surrogate_pair_in_an_escape(parser: str) -> None:
    assert len(errors('a: "\\ud800"\n')) == 1


def test_an_escape_beyond_unicode(parser: str) -> None:
    assert len(errors('a: "\\U00110000"\n')) == 1


def test_many_errors_in_one_go(parser: str) -> None:
    text = "a: 1\na: 2\n<<: {}\n7: x\nb: *nothing\nc: !!set {d}\ne: 1e999\n"
    assert [line.split(" | ")[0] for line in errors(text)] == [
        "2:1: the key 'a' is here twice",
        "3:1: the merge key `<<` is not part of YAML 1.2",
        "4:1: the key 7 is not text",
        "5:4: there is no anchor &nothing",
        "6:4: the tag !!set has no place here: tags construct nothing here",
        "7:4: 1e999 is beyond the range of a 64-bit float; write .inf or -.inf where infinity is meant",
    ]


def test_what_remains_beside_an_error() -> None:
    node, diagnostics = load("x.yaml", "a: 1\na: 2\nb: !!python/tuple [3]\n")
    assert len(diagnostics) == 2
    assert node is not None and node.plain() == {"a": 1, "b": [3]}


def test_errors_have_an_end() -> None:
    assert len(errors("a: 1\n" * 5000)) == Limits().diagnostics + 1


def test_every_tab_is_named_at_once(parser: str) -> None:
    assert errors("a:\n\tb: 1\n\tc: 2\nd: |\n  x\n")[0].endswith("lines with tabs too: 3")


@pytest.mark.skipif(reader.C_PARSER is None, reason="PyYAML's own parser takes no tab for a space")
def test_a_tab_that_indents_nothing_is_no_error() -> None:
    assert read("a:\t1\nb: [1,\n\t2]\nc: |\n  x\n  \ty\n") == {"a": 1, "b": [1, 2], "c": "x\n\ty\n"}


def test_an_older_version_is_a_warning(parser: str) -> None:
    node, diagnostics = load("x.yaml", "%YAML 1.1\n---\na: no\n")
    assert node is not None and node.plain() == {"a": "no"}
    assert [(d.severity, d.span.line, d.message) for d in diagnostics] == [
        ("warning", 1, "this file says YAML 1.1 and is read as YAML 1.2")
    ]


def test_escape_sequences_do_not_reach_the_terminal() -> None:
    _, diagnostics = load("x.yaml", "a: \x1b[31m\n")
    assert "\x1b" not in diagnostics[0].render()


# --- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["[" * 50, "- " * 50 + "x", "{a: " * 50, "? " * 50, "[" * 5000])
def test_nested_too_deep(text: str, parser: str) -> None:
    messages = errors(text)
    assert re.match(r"1:\d+: nested deeper than 40 levels \| the limit is depth=40", messages[-1])


def test_nested_as_deep_as_allowed(parser: str) -> None:
    read("[" * 40 + "]" * 40)
    read("a: &a [[1]]\nb: [*a]\n", Limits(depth=4))
    assert errors("a: &a [[1]]\nb: [*a]\n", Limits(depth=3)) == [
        "2:5: nested deeper than 3 levels | the limit is depth=3; change it with --limit depth=N"
    ]


def test_deep_nesting_by_aliases(parser: str) -> None:
    text = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 60))
    assert errors(text)[-1].startswith("40:")


LAUGHS = "a0: &a0 [lol, lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))


def test_billion_laughs(parser: str) -> None:
    start = time.process_time()
    messages = errors(LAUGHS)
    assert messages == [
        "6:50: the aliases up to here stand for more than 200000 nodes"
        " | the limit is expanded_nodes=200000; change it with --limit expanded_nodes=N"
    ]
    assert time.process_time() - start < 1


def test_aliases_share_their_node(parser: str) -> None:
    node, diagnostics = load("x.yaml", "{a: &x [1, 2], b: *x, c: *x}")
    assert isinstance(node, YamlMapping) and not diagnostics
    assert node.get("a") is node.get("b") is node.get("c")


def test_only_what_aliases_stand_for_counts() -> None:
    limits = Limits(expanded_nodes=5)
    read("[" + "1, " * 100 + "]", limits)
    read("[&a [1, 1, 1, 1], *a]", limits)
    assert errors("[&a [1, 1, 1, 1], *a, *a]", limits)[0].startswith(
        "1:23: the aliases up to here stand for more than 5 nodes"
    )


@pytest.mark.parametrize(
    "opening", ["[", "- ", "{a: ", "? ", "a: ", "&a ", "!!str ", "'x' ", '"', "|", "*a ", "\t", "%"]
)
def test_long_nonsense_is_refused_fast(opening: str) -> None:
    start = time.process_time()
    assert errors(opening * 100_000)
    assert time.process_time() - start < 5


# --- files ---------------------------------------------------------------------------------------


def message(path: Path | str, limits: Limits | None = None) -> str:
    node, diagnostics = load(path, limits=limits)
    assert node is None
    (diagnostic,) = diagnostics
    assert diagnostic.render()
    return f"{diagnostic.span.line}:{diagnostic.span.column}: {diagnostic.message} | {diagnostic.hint}"


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.spec.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: \xc3\xa9\n")
    node, diagnostics = load(path)
    assert node is not None and node.plain() == {"a": "é"} and not diagnostics
    assert node.span.file == str(path)
    assert read_text(path) == ("a: é\n", [])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "silent.spec.yaml").write_text("a: 1\n")
    assert message(tmp_path / "silnt.spec.yaml") == "1:1: there is no such file | did you mean 'silent.spec.yaml'?"
    assert message(tmp_path / "none" / "x.yaml") == "1:1: there is no such file | "
    assert message(tmp_path) == "1:1: this is a folder, not a file | "
    assert message("a\0b").startswith("1:1: this file cannot be read: ")
    assert message(tmp_path / "silent.spec.yaml" / "x").startswith("1:1: this file cannot be read: Not a directory")


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # root may read everything
    assert message(tmp_path / "x.yaml") == "1:1: there is no permission to read this file | "


def test_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes("a: 1\nb: é".encode() + b"\xe9\n")
    assert message(path) == "2:5: this file is not UTF-8: byte 0xe9 at offset 10 | save it as UTF-8"
    path.write_bytes("a: 1\n".encode("utf-16"))
    assert (
        message(path) == "1:1: this file is not UTF-8: byte 0xff at offset 0 | it looks like UTF-16; save it as UTF-8"
    )


def test_an_excerpt_of_what_is_not_utf_8_has_no_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    for data in (
        b"name: a \x1b[2J\x9b\xff",
        b"\x00\x07\xff",
        "a: \u202e\x1b]0;x\x07".encode() + b"\xff",
        "a: \x1b".encode("utf-16"),
    ):
        path.write_bytes(data)
        _, (problem,) = load(path)
        assert problem.text and problem.text.replace("\ufffd", "x").isprintable()


def test_too_large(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\n" + "#" * 100)
    limits = Limits(file_bytes=64)
    too_large = (
        "1:1: this file is larger than 64 bytes | the limit is file_bytes=64; change it with --limit file_bytes=N"
    )
    assert message(path, limits) == too_large
    assert errors("é" * 33, limits) == [too_large]
    assert read("é" * 32, limits) == "é" * 32


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    """Nobody writes to the pipe: a reader that opened it would wait."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        assert message(path) == "1:1: this file cannot be read: it is no regular file | "


# --- the page that describes the format ------------------------------------------------------------


def yaml_blocks() -> list[str]:
    pages = [(DOCS / name).read_text(encoding="utf-8") for name in ("format.md", "format-reference.md")]
    blocks = re.findall(r"```yaml\n(.*?)```", "".join(pages), re.DOTALL)
    return [block for block in blocks if not block.startswith("# refused_")]


def test_every_example_of_the_format_is_read(parser: str) -> None:
    assert len(yaml_blocks()) > 20
    for block in yaml_blocks():
        assert read(block)


# --- speed -----------------------------------------------------------------------------------------


def large(cases: int) -> str:
    case = """\
  - name: case_{n}
    doc: "A distance between the halves of a padded, flattened volume."
    links: ["https://github.com/pytorch/pytorch/issues/151198"]
    inputs:
      x: {{shape: [2, 3, 4], dtype: torch.float32, init: {{uniform: [0.5, 1e-3]}}}}
    chain:
      - nn.ReflectionPad3d: {{padding: 1}}
      - Tensor.view: [$_, "${{x.shape[0]}}", -1]
      - torch.chunk: [$_, 2, 1]
        out: [a, b]
    known:
      - {{torch: "<=2.6", stage: inductor, oracle: [value], issue: "https://github.com/pytorch/pytorch/issues/151198"}}
"""
    return "cases:\n" + "".join(case.format(n=n) for n in range(cases))


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.mark.skipif(reader.C_PARSER is None, reason="this PyYAML has no libyaml")
def test_5000_cases_are_read_quickly() -> None:
    text = large(5000)
    # About 1 s on an idle core; three times that leaves room for a busy machine.
    assert min(seconds(lambda: load("x.yaml", text)) for _ in range(2)) < 3


@pytest.mark.parametrize(
    ("name", "start"),
    [("a.suite.yaml", "a suite starts with `suite:`"), ("a.spec.yaml", "a spec starts with `cases:`")],
)
def test_an_empty_file_is_told_how_its_format_starts(name: str, start: str) -> None:
    assert [problem.hint for problem in load(name, "")[1]] == [start]
