"""Each change of a file keeps its lines and stays Python, and is made where code runs and computes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.mutants.sites import KINDS, Site, find_sites

FILES = sorted(Path(__file__).resolve().parents[2].joinpath("runner").rglob("*.py"))


def changes(source: str, kind: str, is_generator: bool = False) -> set[str]:
    """The changed texts of a function's body, without the parentheses that hold its lines."""
    data = source.encode()
    return {site.text for site in find_sites(data, is_generator) if site.kind == kind}


def body(text: str) -> str:
    """A function with this body."""
    return "def f(a, b, c, d):\n" + "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("return a < b", "comparison", {"(a <= b)", "(a >= b)"}),
        ("return a is not None", "comparison", {"(a is None)"}),
        ("return a and b", "condition", {"(a or b)"}),
        ("return not a", "condition", {"(a)"}),
        ("if a:\n    return b", "condition", {"(not a)"}),
        ("return a * b", "arithmetic", {"(a + b)"}),
        ("return -a", "arithmetic", {"(a)"}),
        ("return a - b", "operand", {"(a)", "(b)"}),
        ("return a, b", "operand", {"((b, a))"}),
        ("return 3", "constant", {"(4)"}),
        ("return True", "constant", {"(False)"}),
        ("return a(b, c)", "argument", {"(a(c, b))"}),
        ("return a(b, d=c)", "argument", {"(a(b))"}),
        ("a.append(b)", "statement", {"pass"}),
        ("a.b = c", "statement", {"pass"}),
        ("a += b", "statement", {"pass"}),
    ],
)
def test_a_change_of_each_kind(text: str, kind: str, expected: set[str]) -> None:
    assert changes(body(text), kind) == expected


@pytest.mark.parametrize(
    "text",
    [
        '"""A text: a < b."""',
        "log.debug(a, b)",
        "warnings.warn(a, b)",
        "raise ValueError(a + b)",
        "assert a < b",
        "counters[a] += 1",
        "a = b",
    ],
)
def test_what_computes_nothing_is_left_alone(text: str) -> None:
    assert find_sites(body(text).encode()) == []


def test_code_of_imports_is_left_alone() -> None:
    source = "LIMIT = 3 + 4\n\n@cache(size=1)\ndef f(a=2 + 2):\n    pass\n\nclass A:\n    b = 1 < 2\n"
    assert find_sites(source.encode()) == []


def test_texts_change_in_generators_alone() -> None:
    source = body('return f"std::max({a} + {b})"')
    assert changes(source, "text") == set()
    assert changes(source, "text", is_generator=True) == {"(f'std::min({a} + {b})')", "(f'std::max({a} - {b})')"}


def test_a_change_of_several_lines_keeps_them() -> None:
    source = body("return g(\n    a,\n    b,\n)")
    (site,) = [each for each in find_sites(source.encode()) if each.kind == "argument"]
    assert site.text == "(g(b, a)\n\n\n)"


def apply(source: bytes, site: Site) -> bytes:
    """The changed text."""
    return source[: site.start] + site.text.encode() + source[site.end :]


@settings(deadline=None)
@given(st.sampled_from(FILES), st.randoms(use_true_random=False))
def test_any_change_of_a_file_is_python_of_as_many_lines(path: Path, choice: object) -> None:
    source = path.read_bytes()
    sites = find_sites(source, is_generator=True)
    if not sites:
        return
    site = choice.choice(sites)  # type: ignore[attr-defined]
    changed = apply(source, site)
    assert site.kind in KINDS
    assert changed.count(b"\n") == source.count(b"\n")
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))


def test_equal_arguments_do_not_change_places() -> None:
    def swaps(call: str) -> list[str]:
        sites = find_sites(f"def f(a, b):\n    g({call})\n".encode(), is_generator=False)
        return [site.text for site in sites if site.kind == "argument"]

    assert swaps("a, b") == ["(g(b, a))"]
    assert swaps("a, a") == []


@pytest.mark.parametrize("name", ["builder/source.py", "session/plan.py", "cli/mutate.py"])
def test_changes_of_some_lines_are_those_of_all_that_begin_there(name: str) -> None:
    (source,) = [path.read_bytes() for path in FILES if path.as_posix().endswith(f"runner/{name}")]
    for remainder in range(3):
        some = find_sites(source, True, lambda line, remainder=remainder: line % 3 == remainder)  # type: ignore[misc]
        assert some == [site for site in find_sites(source, True) if site.line % 3 == remainder]
