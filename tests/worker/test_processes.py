"""``runner.worker.processes``: any message becomes one line of JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.worker.processes import encode


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
