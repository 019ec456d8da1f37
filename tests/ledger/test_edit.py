"""Edits of YAML text: what was asked for changes, and not a byte else."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import pytest

from runner.cases.canonical import format_text
from runner.cases.yaml.reader import load
from runner.diagnostics import Span
from runner.ledger.edit import Add, Change, Remove, Set, Unfit, apply_changes, entry_text

FILE = "a.spec.yaml"

FLOW = """\
# head
cases:
  - name: a   # the first
    chain: [F.relu]
    known:
      # about the first
      - {torch: "<=2.13", stage: inductor, oracle: [value], issue: "https://x/1"}  # trailing

      # about the second
      - { torch: '<=2.6' , oracle: [ grad ], reason: "a, b" }

  - name: b
    known: [{torch: "<=2.6", oracle: [value], reason: r}]  # inline
    chain: [F.relu]
# foot
"""

BLOCK = """\
cases:
  - name: a
    known:
      - torch: "<=2.13"   # range
        stage: inductor
        oracle:
          - value   # one
          - grad
        # between
        error: Bang
        issue: "https://x/1"   # link
      -   reason: >
            folded
            text

          oracle: [value]
    chain: [F.relu]
"""


def places(text: str) -> list[Span]:
    """Where the runner's own reader sees the entries."""
    node, problems = load(FILE, text)
    assert node is not None and problems == []
    spans: list[Span] = []
    for item in node.get("cases").items:  # type: ignore[union-attr]
        ledger = item.get("known")
        spans += [entry.span for entry in ledger.items] if ledger is not None else []
    return spans


def names(text: str) -> list[Span]:
    node, _ = load(FILE, text)
    return [item.get("name").span for item in node.get("cases").items]  # type: ignore[union-attr]


def made(text: str, *changes: Change) -> str:
    new, refusals = apply_changes(text, changes)
    assert refusals == []
    return new


def differing(old: str, new: str) -> list[str]:
    """Lines taken away (-) and put in (+)."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    return [f"{line[0]} {line[1:]}" for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]


def ledger(text: str) -> list[list[dict[str, Any]]]:
    node, problems = load(FILE, text)
    assert node is not None and problems == []
    return [item.get("known") or [] for item in node.plain()["cases"]]  # type: ignore[union-attr]


# --- keys ---


@pytest.mark.parametrize(
    ("place", "values", "old", "new"),
    [
        (0, {"torch": "<=2.6"}, '"<=2.13"', '"<=2.6"'),
        (0, {"torch": None}, '{torch: "<=2.13", stage', "{stage"),
        (0, {"oracle": ["grad", "rng"]}, "[value]", "[grad, rng]"),
        (0, {"stage": "aot", "oracle": ["rng"]}, "stage: inductor, oracle: [value]", "stage: aot, oracle: [rng]"),
        (0, {"stage": None}, "stage: inductor, ", ""),
        (0, {"error": "Bang|Boom"}, "oracle: [value],", "oracle: [value], error: Bang|Boom,"),
        (0, {"error": "a, b"}, "oracle: [value],", 'oracle: [value], error: "a, b",'),
        (0, {"review": "2027-01-01"}, '/1"}', '/1", review: 2027-01-01}'),
        (1, {"torch": "<2.6"}, "'<=2.6'", "'<2.6'"),  # in the quotes that were there
        (1, {"oracle": None}, " , oracle: [ grad ],", ","),
        (1, {"stage": "aot"}, " , oracle", ", stage: aot , oracle"),
        (1, {"torch": None}, "torch: '<=2.6' , oracle", "oracle"),
        (2, {"torch": None, "error": "E"}, 'torch: "<=2.6", oracle: [value]', "oracle: [value], error: E"),
    ],
)
def test_keys_of_entries_on_one_line(place: int, values: dict[str, Any], old: str, new: str) -> None:
    line = places(FLOW)[place].line - 1
    lines = FLOW.split("\n")
    assert lines[line].count(old) == 1
    lines[line] = lines[line].replace(old, new)
    assert made(FLOW, Set(places(FLOW)[place], values)) == "\n".join(lines)


@pytest.mark.parametrize(
    ("place", "values", "lines"),
    [
        (0, {"torch": "<=2.6"}, ['-       - torch: "<=2.13"   # range', '+       - torch: "<=2.6"   # range']),
        (0, {"stage": "aot"}, ["-         stage: inductor", "+         stage: aot"]),
        (0, {"stage": None}, ["-         stage: inductor"]),
        (0, {"error": None}, ["-         error: Bang"]),
        (0, {"review": "2027-01-01"}, ["+         review: 2027-01-01"]),
        (0, {"backend": ["a", "b"]}, ["+         backend: [a, b]"]),
        (
            0, {"oracle": ["rng"]},
            ["-         oracle:", "-           - value   # one", "-           - grad", "+         oracle: [rng]"],
        ),
        (0, {"torch": None}, ['-       - torch: "<=2.13"   # range', "-         stage: inductor", "+       - stage: inductor"]),
        (1, {"oracle": ["grad"]}, ["-           oracle: [value]", "+           oracle: [grad]"]),
        (1, {"torch": "==2.6"}, ["-       -   reason: >", '+       -   torch: "==2.6"', "+           reason: >"]),
    ],
)  # fmt: skip
def test_keys_of_entries_of_several_lines(place: int, values: dict[str, Any], lines: list[str]) -> None:
    new = made(BLOCK, Set(places(BLOCK)[place], values))
    assert sorted(line for line in differing(BLOCK, new)) == sorted(lines)


# --- entries ---


def test_an_entry_is_removed_with_its_line_and_its_comment_above_stays() -> None:
    new = made(FLOW, Remove(places(FLOW)[0]))
    assert differing(FLOW, new) == [f"- {FLOW.splitlines()[6]}"]
    new = made(BLOCK, Remove(places(BLOCK)[0]))
    assert new.startswith(
        "cases:\n  - name: a\n    known:\n        # between\n"
        if False
        else "cases:\n  - name: a\n    known:\n      -   reason"
    )
    new = made(BLOCK, Remove(places(BLOCK)[1]))
    assert [[e["issue"]] for e in ledger(new)[0]] == [["https://x/1"]] and new.endswith("# link\n    chain: [F.relu]\n")


def test_the_last_entry_takes_the_ledger_with_it() -> None:
    new = made(FLOW, Remove(places(FLOW)[0]), Remove(places(FLOW)[1]))
    assert differing(FLOW, new) == [f"- {FLOW.splitlines()[n]}" for n in (4, 6, 9)]
    assert made(FLOW, Remove(places(FLOW)[2])).endswith("  - name: b\n    chain: [F.relu]\n# foot\n")
    text = made(BLOCK, *map(Remove, places(BLOCK)))
    assert text == "cases:\n  - name: a\n    chain: [F.relu]\n"


def test_of_a_list_in_brackets() -> None:
    text = "cases:\n  - {name: a, known: [{reason: one}, {reason: two}, {reason: three}], chain: [F.relu]}  # c\n"
    spans = places(text)
    for place, pair in (
        (0, "{reason: two}, {reason: three}"),
        (1, "{reason: one}, {reason: three}"),
        (2, "{reason: one}, {reason: two}"),
    ):
        assert made(text, Remove(spans[place])) == text.replace("{reason: one}, {reason: two}, {reason: three}", pair)
    assert made(text, Remove(spans[0]), Remove(spans[2])) == text.replace(
        "{reason: one}, {reason: two}, {reason: three}", "{reason: two}"
    )
    assert made(text, *map(Remove, spans)) == "cases:\n  - {name: a, chain: [F.relu]}  # c\n"
    new = made(text, Add(spans[1], {"reason": "new"}), Set(spans[1], {"stage": "aot"}))
    assert new == text.replace("{reason: two}", "{stage: aot, reason: two}, {reason: new}")
    new = made(text, Add(names(text)[0], {"reason": "new"}, case=True))
    assert new == text.replace("{reason: three}", "{reason: three}, {reason: new}")


def test_defaults_keep_an_empty_ledger() -> None:
    text = "defaults:\n  known:\n    - {reason: one}\ncases: []\n"
    assert made(text, Remove(Span(FILE, 3, 7))) == "defaults:\n  known: []\ncases: []\n"


def test_an_entry_is_added_after_another() -> None:
    new = made(FLOW, Add(places(FLOW)[0], {"reason": "new", "torch": "<=2.6", "error": None}))
    assert differing(FLOW, new) == ['+       - {torch: "<=2.6", reason: new}']
    assert new.splitlines()[7] == '      - {torch: "<=2.6", reason: new}'
    new = made(BLOCK, Add(places(BLOCK)[0], {"reason": "new"}))
    assert new.splitlines()[10:12] == ['        issue: "https://x/1"   # link', "      - {reason: new}"]


def test_an_entry_is_added_to_a_case() -> None:
    first, second = names(FLOW)
    new = made(FLOW, Add(first, {"reason": "new"}, case=True), Add(second, {"reason": "new"}, case=True))
    assert [len(entries) for entries in ledger(new)] == [3, 2]
    assert new.splitlines()[10] == "      - {reason: new}"
    text = "cases:\n  - name: a\n    chain:\n      - F.relu  # c\n# foot\n\n  - name: b\n    doc: |\n      text\n\n"
    new = made(text, *(Add(span, {"reason": "new"}, case=True) for span in names(text)))
    assert new == (
        "cases:\n  - name: a\n    chain:\n      - F.relu  # c\n    known:\n      - {reason: new}\n# foot\n\n"
        "  - name: b\n    doc: |\n      text\n    known:\n      - {reason: new}\n\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cases: [{name: a, chain: [F.relu]}]", "cases: [{name: a, chain: [F.relu], known: [{reason: new}]}]"),
        ("cases:\n- name: a", "cases:\n- name: a\n  known:\n    - {reason: new}"),
        ("cases:\n- name: a\n  known: []\n", "cases:\n- name: a\n  known: [{reason: new}]\n"),
        (
            "cases:\n- known:\n  - {reason: r}\n  name: a\n",
            "cases:\n- known:\n  - {reason: r}\n  - {reason: new}\n  name: a\n",
        ),
    ],
)
def test_wherever_the_case_stands(text: str, expected: str) -> None:
    assert made(text, Add(names(text)[0], {"reason": "new"}, case=True)) == expected


def test_a_ledger_that_comes_first_in_its_case() -> None:
    text = "cases:\n- known:\n  - {reason: r}\n  name: a\n"
    assert made(text, Remove(places(text)[0])) == "cases:\n- name: a\n"


# --- bytes ---


@pytest.mark.parametrize("text", [FLOW, BLOCK])
def test_line_ends_and_marks_stay(text: str) -> None:
    changes: list[Change] = [
        Set(places(text)[0], {"torch": "==2.6", "error": None, "review": "x"}),
        Add(places(text)[1], {"reason": "n"}),
    ]
    plain = made(text, *changes)
    assert made(text.replace("\n", "\r\n"), *changes) == plain.replace("\n", "\r\n")
    assert made("\ufeff" + text, *changes) == "\ufeff" + plain
    bare = text.rstrip("\n")
    assert made(bare, *changes) == plain.rstrip("\n")


def test_the_last_line_of_a_file_without_a_newline() -> None:
    text = "cases:\n- name: a\n  known:\n  - {reason: r}\n  - {reason: s}"
    assert made(text, Remove(places(text)[1])) == text.removesuffix("\n  - {reason: s}")
    assert made(text, *map(Remove, places(text))) == "cases:\n- name: a"


def test_nothing_changes_without_a_change() -> None:
    assert made(FLOW) == FLOW


# --- what is refused ---


def test_what_does_not_fit_is_left_and_told() -> None:
    text = (
        "cases:\n- name: a\n  known: &k [{reason: r}]\n- name: b\n  known: *k\n- {name: c, known: [&e {reason: s}]}\n"
    )
    second = places(text)[-1]
    new, refusals = apply_changes(
        text,
        [Add(names(text)[1], {"reason": "n"}, case=True), Set(Span(FILE, 1, 1), {}), Set(second, {"stage": "aot"})],
    )
    assert [reason for _, reason in refusals] == [
        "known: is no list of its own",
        "the entry was not found at its place; is it an alias?",
    ]
    assert new == text.replace("{reason: s}", "{stage: aot, reason: s}")


def test_a_case_that_inherits_its_ledger_gets_none_of_its_own() -> None:
    text = "cases:\n- name: a\n"
    ((change, reason),) = apply_changes(text, [Add(names(text)[0], {"reason": "n"}, case=True, inherits=True)])[1]
    assert isinstance(change, Add) and "defaults" in reason


def test_an_aliased_value_is_not_cut() -> None:
    text = "cases:\n- name: a\n  known:\n  - {oracle: &o [value], reason: r}\n  - {oracle: *o, reason: s}\n"
    new, refusals = apply_changes(text, [Set(places(text)[1], {"oracle": ["grad"]})])
    assert (new, [reason for _, reason in refusals]) == (text, ["oracle: is an alias"])


def test_an_edit_that_would_break_the_file() -> None:
    text = "cases:\n- name: a\n  known: [&e {reason: r}]\n- name: b\n  known: [*e]\n"
    with pytest.raises(Unfit, match=r"would break the file|cannot read"):
        apply_changes(text, [Remove(places(text)[0])])
    with pytest.raises(Unfit, match="cannot read"):
        apply_changes("a: [", [Remove(Span(FILE, 1, 1))])


# --- entries as text ---


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"reason": "a, b: c", "torch": "<=2.6"}, '{torch: "<=2.6", reason: "a, b: c"}'),
        ({"reason": 'say "x" \\ y'}, r"""{reason: 'say "x" \ y'}"""),
        ({"reason": "ünï"}, '{reason: "ünï"}'),
        ({"reason": "null", "backend": "true"}, '{backend: "true", reason: "null"}'),
        (
            {"params": {"n": 2, "s": "a b", "t": None, "f": 1.5, "l": [1, "x"]}},
            "{params: {n: 2, s: a b, t: null, f: 1.5, l: [1, x]}}",
        ),
        ({"oracle": ["value", "sign-of-zero"], "error": r"a\.b"}, r"{oracle: [value, sign-of-zero], error: a\.b}"),
    ],
)
def test_an_entry_as_it_is_written(values: dict[str, Any], text: str) -> None:
    assert entry_text(values) == text
    assert load(FILE, text)[0].plain() == values  # type: ignore[union-attr]


SHIPPED = sorted(Path(__file__).parents[2].glob("specs/**/*.spec.yaml"))


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.stat().st_size < 6000], ids=lambda path: path.stem)
def test_shipped_files_can_be_edited(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if spans := places(text):
        new = made(text, Set(spans[0], {"torch": "==2.6"}))
        assert len([line for line in differing(text, new) if line[0] == "+"]) == 1
        new = made(text, Remove(spans[-1]))
        assert {line[0] for line in differing(text, new)} == {"-"}
    new = made(text, Add(names(text)[-1], {"reason": "new"}, case=True))
    assert {line[0] for line in differing(text, new)} == {"+"}


@pytest.mark.parametrize(
    "values",
    [
        {"torch": "<=2.6", "reason": "two words"},
        {"error": r"a\.b \"c\"", "reason": "a: b"},
        {"params": {"n": 2, "s": "a b"}, "oracle": ["value", "grad"], "issue": "https://a.b/c", "review": "2027-01-01"},
    ],
    ids=str,
)
def test_an_added_entry_has_the_canonical_layout(values: dict[str, Any]) -> None:
    text = "cases:\n  - name: a\n    chain: [F.relu]\n"
    span = Span(FILE, 2, 11)
    new, refused = apply_changes(text, [Add(span, values, case=True)])
    assert not refused and format_text(new) == new
