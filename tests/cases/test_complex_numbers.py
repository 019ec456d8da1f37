"""``runner.cases.texts``: which texts are complex numbers, and back."""

from __future__ import annotations

import pytest
from spec_files import Files

from runner.cases.model import Items, Literal, Step
from runner.cases.serialize import case_text
from runner.cases.texts import complex_text, is_complex, parse_complex

NUMBERS = ["1+2j", "-0.5j", ".5e-3-2.e4j", "+1-0j", "nan+1j", "-inf-infj", "0j"]


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers(text: str) -> None:
    assert is_complex(text)
    value = parse_complex(text)
    assert repr(parse_complex(complex_text(value))) == repr(value) == repr(complex(text))


@pytest.mark.parametrize(
    "text",
    ["j", "infj", "nanj", "1", "1+2", "1+j", "1+2i", "2J", "1 + 2j", "(1+2j)", "1_0j", "٣j", "ij,jk->ik", "1+2j\n"],
)
def test_texts(text: str) -> None:
    assert not is_complex(text)


def test_quotes_make_a_text_of_it(files: Files) -> None:
    case = files.case(
        "inputs: {x: {values: [1+2j, 2.5]}}\nchain: [{torch.mul: [$x, -1.0j]}, {builtin.print: ['2j', 2j, {$text: 3j}]}]"
    )
    assert isinstance(case.inputs[0].values, Items) and case.inputs[0].values.items[0] == Literal(1 + 2j)
    mul, printed = case.chain
    assert isinstance(mul, Step) and isinstance(printed, Step)
    assert mul.arguments.positional[1] == Literal(-1j)
    assert printed.arguments.positional == (Literal("2j"), Literal(2j), Literal("3j"))
    text = case_text(case)
    assert "values: [1.0+2.0j, 2.5]" in text and "[{$text: 2j}, 0.0+2.0j, {$text: 3j}]" in text


def test_beyond_the_range(files: Files) -> None:
    assert files.errors("inputs: {x: {values: [1e999j]}}") == [
        "3:27: 1e999j is beyond the range of a 64-bit float | write inf for a part that is infinite, such as inf+0j"
    ]


def test_a_size_is_no_complex_number(files: Files) -> None:
    assert files.errors("inputs: {x: [2j]}")[0].startswith("3:18: expected an integer")
