"""``runner.worker.processes``: any message becomes one line of JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.worker.processes import encode


def test_encode_needs_no_number_that_python_cannot_write() -> None:
    line = encode({"a": [10**5000, -(10**4000), 2**64, True]})
    assert json.loads(line) == {"a": ["an integer of 16610 bits", "an integer of 13288 bits", 2**64, True]}


def test_encode_falls_back_to_text() -> None:
    assert json.loads(encode({"a": [float("-inf"), (1, None)], 3: {True}})) == {
        "a": ["-inf", [1, None]],
        "3": "{True}",
    }
    assert encode({"a": "\udc80\n"}).count(b"\n") == 1
    circle: dict[str, Any] = {}
    circle["self"] = circle
    with pytest.raises((ValueError, RecursionError)):
        encode(circle)
