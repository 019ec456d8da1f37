"""What only other random numbers explain is worth less than a wrong result."""

from __future__ import annotations

import pytest
import torch
from worker_jobs import run, source

from runner.worker.run.random_stream import NOTE

TWO = source("return x + torch.rand_like(x) - 2 * torch.rand_like(x)", inputs="torch.arange(40.0)")


def severities(record: dict) -> dict[str, str | None]:  # type: ignore[type-arg]
    return {finding["oracle"]: finding["severity"] for finding in record["findings"]}


@pytest.mark.parametrize(
    "body",
    ["return torch.nn.functional.dropout(x, 0.5, True)", "return x + torch.randn_like(x)", "return x.uniform_()"],
)
def test_another_stream_alone_is_its_own_severity(body: str) -> None:
    record = run(source(body, inputs="torch.arange(40.0)"), "planted:other_stream")
    numbers = {name: severity for name, severity in severities(record).items() if name != "rng"}
    assert numbers and set(numbers.values()) == {"other-random-numbers"}
    assert NOTE in record["notes"]


@pytest.mark.parametrize("backend", ["planted:other_stream_and_wrong", "planted:one_draw_for_all"])
def test_a_wrong_result_beside_another_stream_stays_one(backend: str) -> None:
    record = run(TWO, backend)
    assert severities(record)["value"] is None and NOTE not in record["notes"]


def test_what_draws_nothing_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.worker.run.random_stream.pinned_numbers", None)
    assert severities(run(source("return x + 1"), "planted:off_by_one")) == {"value": None}


def test_draws_in_the_order_of_memory_are_another_stream() -> None:
    text = source(
        "return torch.nn.functional.alpha_dropout(x, 0.5, True)", inputs="torch.arange(35.0).reshape(5, 7).t()"
    )
    assert severities(run(text, "aot_eager")) == {"value": "other-random-numbers"}


def test_the_generator_and_the_kernels_are_torch_s_own_afterwards() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    assert severities(run(source("return x + torch.rand_like(x)"), "planted:other_stream"))
    torch.manual_seed(3)
    assert torch.equal(torch.rand(4), expected)
