"""``runner.worker.run.variations``: other caches, threads, autotuning and batches, under the rules that ask for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from worker_jobs import oracles, passes, run, source

from runner.worker.program.graph_cache import _entries
from runner.worker.run.variations import AUTOTUNED, batch, cut, variations

DETERMINISTIC = {"tolerance": {"values": "deterministic"}}
BATCH = {"tolerance": {"values": "batch-invariant"}}
ROWS = source("return x * 2", inputs="torch.randn(8, 5)")


def messages(record: dict[str, Any]) -> list[str]:
    return [finding["message"].partition(":")[0] for finding in record["findings"]]


@pytest.mark.parametrize("backend", ["planted:clean", "eager", "inductor"])
@pytest.mark.parametrize("rule", [DETERMINISTIC, BATCH])
def test_a_healthy_backend_passes(backend: str, rule: dict[str, Any]) -> None:
    record = run(ROWS, backend, **rule)
    assert passes(record), record
    assert record["notes"] == []


def test_bits_that_depend_on_threads_are_found() -> None:
    record = run(ROWS, "planted:off_by_threads", **DETERMINISTIC)
    assert oracles(record) == ["determinism", "determinism"]
    assert messages(record) == ["with 1 thread", "with 4 threads"]
    assert passes(run(ROWS, "planted:off_by_threads"))  # within the tolerance


def test_bits_that_autotuning_changes_are_found() -> None:
    assert messages(run(ROWS, "planted:off_by_autotuning", **DETERMINISTIC)) == ["autotuned"]


def test_bits_that_each_compilation_changes_are_found() -> None:
    record = run(ROWS, "planted:off_by_compilation", **DETERMINISTIC)
    assert {*oracles(record)} == {"determinism"}
    stores = ["compiled again, into empty caches", "from the graphs that were stored"] if _entries() else []
    assert messages(record) == [*stores, "with 1 thread", "with 4 threads", "autotuned"]


def test_a_row_that_depends_on_its_batch_is_found() -> None:
    record = run(ROWS, "planted:off_by_batch", **BATCH)
    assert oracles(record) == ["batch-invariance", "batch-invariance"]
    assert messages(record) == ["in a batch of 1", "in a batch of 4"]
    assert record["findings"][0]["numbers"]["elements"] == 5
    assert passes(run(ROWS, "planted:off_by_batch"))


def test_what_eager_does_not_keep_is_not_asked() -> None:
    """A mean over the batch has other bits in another one, and so have threads that the model itself asks for."""
    record = run(source("return x - x.mean(0), x * 2", inputs="torch.randn(8, 5)"), "planted:off_by_batch", **BATCH)
    assert {finding["path"] for finding in record["findings"]} == {"output[1]"}
    assert record["notes"] == ["values: batch-invariant: eager has other bits in a batch of 1, at output[0]"]
    threads = source("return x * torch.get_num_threads()")
    record = run(threads, "eager", **DETERMINISTIC)
    assert passes(record) and record["notes"] == [
        "values: deterministic: eager has other bits with 1 thread, at output"
    ]
    assert torch.get_num_threads() > 0


def test_where_nothing_can_be_smaller_a_note_says_so() -> None:
    record = run(source("return x * 2", inputs="torch.randn(1, 5)"), **BATCH)
    assert record["notes"] == ["values: batch-invariant: no input has a batch of two rows or more"]
    record = run(source("return x.view(8, 5) * 2", inputs="torch.randn(8, 5)"), **BATCH)
    assert record["notes"][0].startswith("values: batch-invariant: in a batch of 1, eager raises RuntimeError")


def test_gradients_count_for_bits_and_not_for_batches() -> None:
    text = source("return x * 2", inputs="torch.randn(8, 5, requires_grad=True)")
    full = {"grad": {"mode": "backward"}}
    record = run(text, "planted:gradient_by_threads", **DETERMINISTIC, **full)
    assert {finding["path"] for finding in record["findings"]} == {"gradient of x"}
    assert passes(run(text, "planted:gradient_by_threads", **BATCH, **full))


def test_inputs_keep_what_does_not_belong_to_the_batch() -> None:
    x, w, y = torch.randn(8, 5, requires_grad=True), torch.randn(5), torch.randn(8)
    short = cut(3)([x, w, [y], 7])
    assert [batch([x, w]), batch([7]), batch([torch.tensor(1.0), w])] == [8, 0, 5]
    assert (short[0].shape, short[1] is w, short[2][0].shape, short[3]) == ((3, 5), True, (3,), 7)
    assert short[0].is_leaf and short[0].requires_grad and torch.equal(short[0], x[:3])


def test_what_is_varied() -> None:
    assert [way.rows for way in variations("batch-invariant", [8, 6])] == [1, 3]
    assert [way.rows for way in variations("batch-invariant", [2])] == [1]
    assert variations("batch-invariant", [8, 0]) == [] and variations("batch-invariant", []) == []
    assert [way.flags for way in variations("deterministic", []) if way.flags] == [{AUTOTUNED: True}]
