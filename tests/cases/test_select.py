"""``runner.cases.expand``."""

from __future__ import annotations

import dataclasses
import time

import pytest

from runner.cases.expand import SelectError, parse_selection, values_of
from runner.cases.model import Arguments, Backend, Case, Grad, Step, Variant
from runner.diagnostics import Span

SPAN = Span("specs/silent.spec.yaml", 1, 1)
VARIANT = Variant(
    id="specs/silent.spec.yaml::Pad_view[n=2,float32,cuda:1]@inductor-dynamic",
    case=Case("pad_view", "/x/specs/silent.spec.yaml", SPAN, tags=("regression", "slow")),
    where="specs/silent.spec.yaml",
    backend=Backend("inductor-dynamic", "inductor"),
    dtype="float32",
    device="cuda:1",
    params={"n": 2},
    train=False,
    grad=Grad(),
    dynamic=None,
    autocast=None,
    threads=None,
)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("tag:regression", True), ("tag:regress", False), ("tag:reg*", True), ("tag:s?ow", True), ("tag:fast", False),
        ("case:pad_view", True), ("case:pad", False), ("case:pad*", True),
        ("file:specs/*.spec.yaml", True), ("file:silent*", False), ("backend:inductor", False), ("backend:inductor*", True),
        ("device:cuda:1", True), ("device:cuda*", True), ("device:cpu", False), ("dtype:float32", True), ("dtype:float", False),
        ("pad_VIEW", True), ("n=2", True), ("n=3", False), ("cuda:1", True), ("silent.spec.yaml::pad_view", True), ("'n=2,float32'", True),
        ("not tag:slow", False), ("not tag:fast", True), ("not not tag:slow", True),
        ("tag:slow and n=3", False), ("tag:slow or n=3", True), ("tag:slow and not n=3", True),
        ("n=3 and n=3 or tag:slow", True), ("n=3 and (n=3 or tag:slow)", False), ("tag:slow or n=3 and n=3", True),
        ("(tag:slow)and(n=2)", True), ('"tag:slow"', True), ("((((n=2))))", True),
    ],
)  # fmt: skip
def test_expressions(text: str, matches: bool) -> None:
    assert parse_selection(text)(VARIANT) is matches


def calling(*operators: str) -> Variant:
    """The variant, whose chain calls these."""
    chain = tuple(Step(name, Arguments(bare=True), SPAN) for name in operators)
    return dataclasses.replace(VARIANT, case=dataclasses.replace(VARIANT.case, chain=chain))


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("op:F.gelu", True), ("op:aten.gelu", True), ("op:F.conv*", True), ("op:nn.Conv?d", True), ("op:aten.addmm", False),
        ("op:gelu", False), ("op:F.conv", False), ("not op:torch.relu", True), ("op:*", True),
    ],
)  # fmt: skip
def test_operators(text: str, matches: bool) -> None:
    assert parse_selection(text)(calling("nn.GELU", "torch.conv2d")) is matches
    assert parse_selection(text)(VARIANT) is text.startswith("not")


def test_an_operator_that_no_case_calls_is_told_with_the_nearest_one() -> None:
    [message] = parse_selection("op:F.gleu").idle_terms(values_of([VARIANT, calling("nn.GELU")]))
    assert message == "op:F.gleu matches no op here; did you mean 'F.gelu'?"


def test_the_id_is_matched_whatever_its_case_and_fields_are_not() -> None:
    assert parse_selection("INDUCTOR")(VARIANT) and not parse_selection("backend:INDUCTOR*")(VARIANT)


def test_a_case_without_tags() -> None:
    plain = dataclasses.replace(VARIANT, case=dataclasses.replace(VARIANT.case, tags=()))
    assert not parse_selection("tag:*")(plain) and parse_selection("not tag:*")(plain)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the expression is empty"),
        ("   ", "the expression is empty"),
        ("tag:a tag:b", "'tag:a tag:b': unexpected 'tag:b'; join words with and, or"),
        ("tag:a and", "'tag:a and': a word is missing"),
        ("and tag:a", "'and tag:a': a word is missing"),
        ("tag:a or or tag:b", "a word is missing"),
        ("not", "'not': a word is missing"),
        ("(tag:a", "'(tag:a': a parenthesis is not closed"),
        ("tag:a)", "unexpected ')'"),
        ("()", "a word is missing"),
        ('"a', "a quote is not closed"),
        ("tag:a and 'b c", "a quote is not closed"),
        ('"', "a quote is not closed"),
        ("\"a'", "a quote is not closed"),
        ("tags:regression", "unknown field 'tags': did you mean 'tag'?"),
        ("not devices:cpu", "unknown field 'devices': did you mean 'device'?"),
        (
            "oracle:value",
            "unknown field 'oracle': there are tag, case, file, backend, device, dtype, op; quote text that has a colon",
        ),
    ],
)
def test_errors(text: str, words: str) -> None:
    with pytest.raises(SelectError) as error:
        parse_selection(text)
    assert words in str(error.value)


@pytest.mark.parametrize("text", ["(" * 5000 + "a" + ")" * 5000, "not " * 5000 + "a"])
def test_no_expression_exhausts_the_stack(text: str) -> None:
    with pytest.raises(SelectError, match="more than 100 parentheses and nots"):
        parse_selection(text)


def test_text_with_a_colon_is_quoted() -> None:
    assert not parse_selection("'oracle:value'")(VARIANT) and parse_selection("'yaml::pad'")(VARIANT)


def test_fields_that_match_nothing() -> None:
    selection = parse_selection("not tag:regresion and case:* or tag:slow or dtype:int8 or word")
    assert selection.idle_terms(values_of([VARIANT])) == [
        "tag:regresion matches no tag here; did you mean 'regression'?", "dtype:int8 matches no dtype here",
    ]  # fmt: skip
    assert selection.idle_terms({"tag": ["regresion", "slow"], "case": []}) == ["case:* matches no case here"]
    assert parse_selection("word").idle_terms(values_of([])) == []


def test_many_words_are_no_problem() -> None:
    start = time.process_time()
    assert parse_selection(" or ".join(["n=3"] * 20_000 + ["n=2"]))(VARIANT)
    assert time.process_time() - start < 2
