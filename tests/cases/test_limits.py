"""``runner.cases.limits``."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest

from runner.cases.limits import Limits, parse_size, show_size


def test_defaults() -> None:
    limits = Limits()
    assert (limits.file_bytes, limits.depth, limits.nodes, limits.expanded_nodes) == (1 << 20, 40, 100_000, 200_000)
    assert (limits.variants, limits.tensor_bytes) == (100_000, 4 << 30)
    assert (limits.log_bytes, limits.log_line_bytes) == (1 << 30, 16 << 20)


def test_every_limit_is_described() -> None:
    """By a comment behind its default, or on the line before."""
    lines = inspect.getsource(Limits).splitlines()
    for field in dataclasses.fields(Limits):
        (place,) = (number for number, line in enumerate(lines) if line.startswith(f"    {field.name}: int = "))
        described = re.search("  # .{8}", lines[place]) or re.match("    # .{8}", lines[place - 1])
        assert described, field.name


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1), ("4096", 4096), ("100 B", 100), ("2KiB", 2048), ("1.5 MiB", 3 << 19), ("8GiB", 8 << 30), ("1tib", 1 << 40),
        ("1_000", 1000), (" 3 GiB ", 3 << 30), ("9007199254740993B", 9007199254740993),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "8GB", "8 giga", "-1", "0", "0.0KiB", "0x10", "1e9", "8GiB.", "inf", "nan"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


def test_sizes_are_shown_as_people_write_them() -> None:
    assert [show_size(n) for n in (100, 2048, 4 << 20, 3 << 29, 1 << 41)] == [
        "100 bytes",
        "2 KiB",
        "4 MiB",
        "1.5 GiB",
        "2 TiB",
    ]


def test_overrides() -> None:
    limits = Limits().with_overrides(["tensor_bytes=8GiB", "depth = 12", "variants=1_000", "depth=13"])
    assert limits == Limits(tensor_bytes=8 << 30, depth=13, variants=1000)
    assert Limits().with_overrides([]) == Limits()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("tensor_bytes", "is not name=value, such as 'tensor_bytes=8GiB'"),
        ("tensor_byte=1", "there is no limit 'tensor_byte': did you mean 'tensor_bytes'?"),
        ("xyz=1", "there are file_bytes, total_bytes"),
        ("=1", "there is no limit ''"),
        ("depth=8KiB", "'8KiB' is no value for depth"),
        ("depth=0", "above 0"),
        ("depth=-3", "above 0"),
        ("depth=", "'' is no value for depth"),
        ("file_bytes=8GB", "'8GB' is not a size"),
    ],
)
def test_overrides_that_are_refused(override: str, words: str) -> None:
    with pytest.raises(ValueError) as error:
        Limits().with_overrides([override])
    assert words in str(error.value)


def test_environment() -> None:
    environment = {"RUNNER_LIMIT_TENSOR_BYTES": "1GiB", "RUNNER_LIMIT_DEPTH": "9", "PATH": "/bin"}
    assert Limits.from_environment(environment) == Limits(tensor_bytes=1 << 30, depth=9)
    assert Limits.from_environment({}) == Limits()


def test_the_environment_is_named_when_it_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"RUNNER_LIMIT_DEPT: there is no limit 'dept': did you mean 'depth'\?"):
        Limits.from_environment({"RUNNER_LIMIT_DEPT": "9"})


def test_the_environment_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_LIMIT_VARIANTS", "7")
    assert Limits.from_environment().variants == 7
