"""The canonical layout keeps values, comments and ids, is the same whatever the text was like, and has no second one."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.cases.canonical import format_text
from runner.cases.expand import expand
from runner.cases.keys import AXES, CASE
from runner.cases.serialize import case_text, plain
from runner.cases.suites import Reader
from runner.cases.yaml import reader, tree
from runner.cases.yaml.tree import Unfit
from runner.diagnostics import InputError
from tests.cases.yaml_writer import Writer
from tests.hostile import PAYLOADS, mutations

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(
    path
    for folder in ("specs", "suites", "profiles", "runner", "tools")
    for ending in ("spec", "suite", "ledger")
    for path in (ROOT / folder).rglob(f"*.{ending}.yaml")
)
LONG = "word " * 40


def test_every_shipped_file_has_it() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in SHIPPED}
    assert len(texts) > 150
    unlike = [str(path.relative_to(ROOT)) for path, text in texts.items() if format_text(text) != text]
    assert unlike == [], "runner fmt lays them out"


# --- whatever the text was like ---

_KEYS = st.sampled_from([*CASE, "F.relu", "out", "x", "shape", "dtype", "*", "cases", "kernels", "$text"])
_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 99), st.text(max_size=5),
    st.sampled_from([
        "$_", "<=2.6", "a b", "x: y", "# no", " a", "a\nb", "a\nb\n", "1e3", "null", "-", "'\"", LONG, LONG.strip(), "", "\\d", "a\n", "é",
        "...", "---", "torch.add", "long-" * 30, "1+2j", "-1j",
    ]),
)  # fmt: skip
_DATA = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4), max_leaves=12
)
_CASES = st.lists(st.dictionaries(_KEYS, _DATA, min_size=1, max_size=5), min_size=1, max_size=3)
FILES = st.builds(
    lambda top, cases: {**top, "cases": cases},
    st.dictionaries(st.sampled_from(["defaults", "suite", "x"]), _DATA, max_size=2),
    _CASES,
)


def _check(data: st.DataObject) -> None:
    content = data.draw(FILES)

    def number(least: int, most: int) -> int:
        return data.draw(st.integers(least, most))

    writer = Writer(number)
    text = writer.text(content)
    node, problems = reader.load("", text)
    assert node is not None and not problems and node.plain() == content, text
    laid_out = format_text(text)
    assert format_text(laid_out) == laid_out
    assert sorted(tree.comments_of(tree.parse(laid_out))) == sorted(writer.comments)
    assert all(laid_out.count(comment) == 1 for comment in writer.comments)
    after, problems = reader.load("", laid_out)
    assert after is not None and not problems and after.plain() == content
    assert format_text(Writer(number, False).text(content)) == format_text(Writer(number, False).text(content))


@settings(max_examples=25, deadline=None, suppress_health_check=[*HealthCheck])
@given(st.data())
def test_any_text_of_the_same_data_gets_the_same_layout(data: st.DataObject) -> None:
    _check(data)


@pytest.mark.nightly
@settings(max_examples=1000, deadline=None, suppress_health_check=[*HealthCheck])
@given(st.data())
def test_any_text_of_the_same_data_gets_the_same_layout_for_long(data: st.DataObject) -> None:
    _check(data)


def _content(path: Path) -> Any:
    node, problems = reader.load(path)
    assert node is not None and not problems
    return node.plain()


def _shuffled(data: Any, draw: random.Random) -> Any:
    """The data with the keys of cases in another order. Axes stay in their own order, which ids show."""
    cases = []
    for case in data.get("cases", ()):
        keys = [*case]
        draw.shuffle(keys)
        axes = iter(key for key in case if key in AXES)
        cases.append({key: case[key] for key in (next(axes) if key in AXES else key for key in keys)})
    return {**data, "cases": cases} if cases else data


@pytest.mark.parametrize("name", [
    "operators/comparisons.spec.yaml", "models/transformers.spec.yaml", "kernels/rows.spec.yaml", "basics/layout.spec.yaml",
    "found/aot.spec.yaml", "negative/reductions.spec.yaml", "regressions/numerics.spec.yaml", "seeds/models.spec.yaml",
])  # fmt: skip
def test_the_cases_of_a_shipped_file_stay_the_same(name: str, tmp_path: Path) -> None:
    path = ROOT / "specs" / name
    draw = random.Random(name)
    if name.startswith("operators/"):  # quotes mean something there: -1j is a number, and "-1j" a text
        text = path.read_text(encoding="utf-8").replace("    chain:", "    # a comment\n\n    chain:   ")
    else:
        text = Writer(draw.randint).text(_shuffled(_content(path), draw))
    laid_out = format_text(text)
    assert laid_out != text
    folders = []
    for folder, content in (("before", text), ("after", laid_out)):
        (tmp_path / folder).mkdir()
        for beside in path.parent.glob("*.py"):
            (tmp_path / folder / beside.name).write_bytes(beside.read_bytes())
        (tmp_path / folder / "a.spec.yaml").write_text(content, encoding="utf-8")
        own = Reader()
        suites = own.suites([tmp_path / folder / "a.spec.yaml"])
        assert not [problem.message for problem in own.problems if problem.severity == "error"]
        variants = expand(suites)
        folders.append([(v.id.rpartition("::")[2], repr(plain(v.case)), repr([*v.case.axes])) for v in variants])
    assert folders[0] == folders[1] and folders[0]


@pytest.mark.parametrize("payload", [name for name in PAYLOADS if name != "surrogate"])
def test_hostile_texts_stay_what_they_are(payload: str) -> None:
    data = {
        "suite": "s",
        "defaults": {"tags": ["a"]},
        "cases": [{"name": "a", "inputs": {"x": [2]}, "chain": [{"F.relu": {"k": "v"}, "out": "y"}]}],
    }
    for _, changed in mutations(data, PAYLOADS[payload]):
        text = Writer(random.Random(payload).randint).text(changed)
        node, problems = reader.load("", text)
        assert node is not None
        if problems:
            with pytest.raises(InputError):
                format_text(text)
            continue
        after, problems = reader.load("", laid_out := format_text(text))
        assert after is not None and not problems and after.plain() == node.plain()
        assert format_text(laid_out) == laid_out


@pytest.mark.parametrize("folder", ["models", "found", "chains", "numerics"])
def test_cases_that_commands_write_have_the_layout(folder: str) -> None:
    variants = expand(Reader().suites(sorted((ROOT / "specs" / folder).glob("*.spec.yaml"))))
    assert variants
    for variant in variants:
        text = case_text(variant)
        assert format_text(text) == text


# --- what it is like ---

WRITTEN = """\
# above all
#and again

# yaml-language-server: $schema=spec.schema.json
cases:   # the cases
# of the first
- name: 'first'
  tags: [ a,"b" ]   # tags
  known:
  - reason: "words"
    torch: '<=2.6'
  # of the inputs
  inputs: {x: {dtype: int64, shape: [2]}}
  chain: [F.relu,
     # of the second step
     {out: y, torch.add: ["$_", 1]}]
  # at the end of the first


  # the second
- chain:
    - "F.relu"
    - torch.exp
    - {torch.sum: $_}
  name: second
  doc: >
    some
    words
# at the end
"""

LAID_OUT = """\
# above all
#and again

# yaml-language-server: $schema=spec.schema.json
cases:  # the cases
  # of the first
  - name: first
    tags: [a, b]  # tags
    # of the inputs
    inputs: {x: {shape: [2], dtype: int64}}
    chain:
      - F.relu
      # of the second step
      - {torch.add: [$_, 1], out: y}
    known:
      - {torch: "<=2.6", reason: words}
    # at the end of the first

    # the second

  - name: second
    doc: >
      some words
    chain:
      - F.relu
      - torch.exp
      - torch.sum: $_
# at the end
"""


def test_an_example() -> None:
    assert format_text(WRITTEN) == LAID_OUT
    assert format_text(LAID_OUT) == LAID_OUT


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("cases: [{name: a, chain: [F.relu, F.gelu]}]", "cases:\n  - name: a\n    chain: [F.relu, F.gelu]\n"),
        ("cases: [{name: a, grad: [forward], params: {n: [1]}, dtypes: [int8], doc: d}]",
         "cases:\n  - name: a\n    doc: d\n    grad: [forward]\n    params: {n: [1]}\n    dtypes: [int8]\n"),
        ("x: [-1j, '-1j', 1e-3, 0x1F, ~, True, .NaN, '', '2.6', ]",
         'x: [-1j, "-1j", 1e-3, 0x1F, ~, True, .NaN, "", "2.6"]\n'),
        ("x: {a:, 'b': }", "x: {a: null, b: null}\n"),
        ("x: 'it''s \"so\"'\ny: \"\\\\d\"\nz: [\"\\\\d\"]", "x: it's \"so\"\ny: '\\d'\nz: ['\\d']\n"),
        ("a: &n {x: [1]}\nb: *n", "a: &n {x: [1]}\nb: *n\n"),
        ("a: &n\n- 1 # c\n- 2\n# end\nb: *n", "a: &n\n  - 1  # c\n  - 2\n# end\nb: *n\n"),
        ("---\nx: 1 # c\n...\n# end\n", "x: 1  # c\n# end\n"),
        ("# only\n{x: 1}", "# only\nx: 1\n"),
        ("x: |  # c\n    a\n     b\n\ny: 1", "x: |  # c\n  a\n   b\ny: 1\n"),
        ("\ufeffx:   1\r\ny: 2\r\n", "x: 1\r\ny: 2\r\n"),
        ("known:\n- {reason: r, torch: '>2'} # c", 'known:\n  # c\n  - torch: ">2"\n    reason: r\n'),
    ],
    ids=range(12),
)  # fmt: skip
def test_small_examples(written: str, expected: str) -> None:
    assert format_text(written) == expected
    assert format_text(expected) == expected


def test_what_is_too_long_gets_lines_of_its_own() -> None:
    numbers = ", ".join(map(str, range(60)))
    text = f"cases:\n  - {{name: a, doc: '{LONG.strip()}', inputs: {{x: {{values: [{numbers}]}}}}, known: [{{reason: '{LONG.strip()}'}}]}}\n"
    laid_out = format_text(text)
    assert laid_out == (
        f"cases:\n  - name: a\n    doc: >-\n      {('word ' * 23).strip()}\n      {('word ' * 17).strip()}\n"
        f"    inputs:\n      x:\n        values: [{', '.join(map(str, range(28)))},\n"
        f"          {', '.join(map(str, range(28, 55)))},\n          {', '.join(map(str, range(55, 60)))}]\n"
        f"    known:\n      - {{reason: {LONG.strip()}}}\n"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x: !!str 1", "line 1: the tag there would be lost"),
        ("%YAML 1.2\n---\nx: 1", "line 1: the directive there would be lost"),
        ("x: &a\n  # c\n  1\n", "an anchor does not stand on the line of its value"),
        ("x:\n  &a\n  {y: 1}\n", "line 2: an anchor does not stand on the line of its value"),
        ("cases: [{chain: [&a F.relu], doc: *a}]",
         "could not be read: there is no anchor &a"),
    ],
    ids=str,
)  # fmt: skip
def test_what_would_be_lost_is_said(text: str, reason: str) -> None:
    with pytest.raises(Unfit, match=reason.replace("(", r"\(")):
        format_text(text)


@pytest.mark.parametrize("text", ["x: [", "", "# c\n", "x: 1\nx: 2\n", "<<: {a: 1}\n"])
def test_what_is_no_yaml_has_the_diagnostics_of_the_reader(text: str) -> None:
    with pytest.raises(InputError) as caught:
        format_text(text, "a.spec.yaml")
    assert [*caught.value.diagnostics] == reader.load("a.spec.yaml", text)[1]


def test_a_layout_that_lost_something_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from runner.cases import canonical

    for lost, reason in (
        ("  # c", "other comments"),
        ("x: 1", "could not be read|other values"),
        ("y: 2", "other values"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(canonical, "render", lambda root, lost=lost: "x: 1  # c\ny: 2\n".replace(lost, ""))
            with pytest.raises(Unfit, match=reason):
                format_text("x:   1 # c\ny: 2\n")
    layouts = iter(["x: 1\n", "x:  1\n"])
    monkeypatch.setattr(canonical, "render", lambda root: next(layouts))
    with pytest.raises(Unfit, match="yet another one"):
        format_text("x:   1\n")


def test_the_example_of_the_page_has_it(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "writing.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(# laid_out.*?)```", page, re.DOTALL)
    assert format_text(example) == example
    (tmp_path / "laid_out.spec.yaml").write_text(example, encoding="utf-8")
    own = Reader()
    assert own.suites([tmp_path / "laid_out.spec.yaml"]) and not own.problems
