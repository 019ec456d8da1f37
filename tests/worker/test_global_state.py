"""Settings of the whole process: reading, putting back, and the Python that scripts use for both."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runner.worker import global_state
from runner.worker.global_state import SETTINGS, changes, read, restore, restored

OTHER: dict[str, Any] = {
    "torch.is_grad_enabled()": False,
    "torch.get_default_dtype()": torch.float64,
    "torch.get_num_threads()": torch.get_num_threads() + 1,
    "torch.get_float32_matmul_precision()": "medium",
    "torch.get_deterministic_debug_mode()": 1,
    "torch.is_anomaly_enabled()": True,
    "torch.is_warn_always_enabled()": True,
    "torch.is_autocast_cache_enabled()": False,
    "torch.is_autocast_enabled('cpu')": True,
    "torch.get_autocast_dtype('cpu')": torch.float16,
    "torch.is_autocast_enabled('cuda')": True,
    "torch.get_autocast_dtype('cuda')": torch.bfloat16,
    "torch.backends.cudnn.benchmark": True,
    "torch.backends.cudnn.deterministic": True,
    "torch.utils.deterministic.fill_uninitialized_memory": False,
}


def test_torch_has_each_setting() -> None:
    assert read().keys() == SETTINGS.keys()


@pytest.mark.parametrize("expression", SETTINGS)
def test_the_expression_reads_what_the_table_reads(expression: str) -> None:
    assert eval(expression, {"torch": torch}) == read()[expression]


@pytest.mark.parametrize("expression", OTHER)
def test_what_a_block_changes_is_seen_and_put_back(expression: str) -> None:
    before, value = read(), OTHER[expression]
    with restored():
        SETTINGS[expression].write(value)
        assert changes(before) == {expression: (before[expression], value)}
    assert read() == before and changes(before) == {}


@pytest.mark.parametrize("expression", OTHER)
def test_the_assignment_of_a_script_sets_it(expression: str) -> None:
    with restored():
        exec(SETTINGS[expression].assignment("value"), {"torch": torch, "value": OTHER[expression]})
        assert read()[expression] == OTHER[expression]


def test_what_nothing_sets_is_read_alone() -> None:
    name = "torch.is_inference_mode_enabled()"
    before = read()
    with torch.inference_mode(), torch.enable_grad():
        assert changes(before) == {name: (False, True)}
        restore(before)
        assert read()[name] and SETTINGS[name].assignment("before") == "pass"


def test_a_setting_that_follows_another_is_put_back_and_not_compared() -> None:
    before = read()
    with restored():
        torch.set_float32_matmul_precision("high")
        assert read()["torch.backends.cuda.matmul.allow_tf32"]
        assert changes(before).keys() == {"torch.get_float32_matmul_precision()"}
    assert read() == before


def test_what_torch_refuses_to_answer_is_left_out_and_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before, written = read(), []

    class Refusing:
        expression = "torch.mixed"

        def read(self) -> None:
            raise RuntimeError("old and new functions were mixed")

        def write(self, value: object) -> None:
            written.append(value)

    monkeypatch.setattr(global_state, "SETTINGS", {**SETTINGS, "torch.mixed": Refusing()})
    assert read() == before and changes({**before, "torch.mixed": 1}) == {}
    restore({**before, "torch.mixed": 1})
    assert written == [1]


def test_settings_are_put_back_after_an_exception() -> None:
    before = read()
    with pytest.raises(ValueError, match="so"), restored():
        torch.set_default_dtype(torch.float64)
        raise ValueError("so")
    assert read() == before
