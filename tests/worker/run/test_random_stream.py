"""What only other random numbers explain is worth less than a wrong result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from worker_jobs import run, source

from runner.worker.run.random_stream import NOTE, Draws, pinned_numbers

TWO = source("return x + torch.rand_like(x) - 2 * torch.rand_like(x)", inputs="torch.arange(40.0)")


def severities(record: dict) -> dict[str, str | None]:  # type: ignore[type-arg]
    return {finding["oracle"]: finding["severity"] for finding in record["findings"]}


@pytest.mark.parametrize(
    "body",
    [
        "return torch.nn.functional.dropout(x, 0.5, True)",
        "return torch.nn.functional.rrelu(-x, 0.1, 0.4, True)",
        "return x + torch.randn_like(x)",
        "return x.uniform_()",
    ],
)
def test_another_stream_alone_is_its_own_severity(body: str) -> None:
    record = run(source(body, inputs="torch.arange(40.0)"), "planted:other_stream")
    numbers = {name: severity for name, severity in severities(record).items() if name != "rng"}
    assert numbers and set(numbers.values()) == {"other-random-numbers"}
    assert NOTE in record["notes"]


def test_another_stream_is_told_where_inputs_go_by_name() -> None:
    body, names = "return x + torch.randn_like(y)", "KEYWORD_INPUTS = ['y']"
    text = source(body, "torch.arange(40.0), torch.zeros(40)", "x, y", definitions=names)
    assert severities(run(text, "planted:other_stream"))["value"] == "other-random-numbers"


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


X = torch.linspace(-2, 2, 30).reshape(5, 6)
P = X.sigmoid()

DRAWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rand": torch.rand_like,
    "randn": torch.randn_like,
    "uniform": lambda x: x.clone().uniform_(-3, 5),
    "normal": lambda x: x.clone().normal_(2, 0.5),
    "normal of tensors": lambda x: torch.normal(x, x.abs()),
    "complex": lambda x: torch.randn_like(torch.complex(x, x)),
    "log_normal": lambda x: x.clone().log_normal_(0, 0.25),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "bernoulli of a number": lambda x: torch.bernoulli(x, 0.3),
    "bernoulli in place": lambda x: x.clone().bernoulli_(x.sigmoid()),
    "exponential": lambda x: x.clone().exponential_(0.5),
    "geometric": lambda x: x.clone().geometric_(0.2),
    "cauchy": lambda x: x.clone().cauchy_(0, 0.5),
    "random": lambda x: x.clone().random_(),
    "randint": lambda x: torch.randint_like(x, 2, 10),
    "random to": lambda x: x.clone().random_(10),
    "rrelu": lambda x: F.rrelu(x, 0.1, 0.4, training=True),
    "rrelu in place": lambda x: F.rrelu(x.clone(), 0.1, 0.4, training=True, inplace=True),
    "dropout": lambda x: F.dropout(x, 0.5, training=True),
    "native dropout": lambda x: torch.native_dropout(x, 0.5, True)[0],
    "permutation": lambda x: torch.randperm(30).reshape(5, 6),
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_stand_at_their_places_whatever_the_memory_and_the_generator(name: str) -> None:
    results = []
    for seed, x in ((0, X), (1, X.t().contiguous().t()), (0, X)):
        torch.manual_seed(seed)
        before, draws = torch.get_rng_state(), Draws(counted=True)
        with pinned_numbers("cpu", draws):
            results.append(DRAWS[name](x))
        assert [*draws.counts.values()] == [1] and torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(result, results[0]) for result in results)
    assert len({*map(str, results[0].flatten().tolist())}) > 1


def test_each_draw_of_a_size_has_its_own_numbers_if_they_are_counted() -> None:
    for counted in (True, False):
        with pinned_numbers("cpu", Draws(counted)):
            first, second = torch.rand(30), torch.rand(30)
        assert torch.equal(first, second) is not counted


def test_a_comparison_with_the_numbers_themselves_does_not_depend_on_their_dtype() -> None:
    results = []
    for dtype in (torch.float32, torch.float64):
        with pinned_numbers("cpu", Draws(counted=False)):
            chances = torch.rand(1000)
            results.append(torch.rand(1000, dtype=dtype) < chances)
        with pinned_numbers("cpu", Draws(counted=False)):
            results.append(torch.bernoulli(torch.rand(1000)).bool())
    assert all(torch.equal(result, results[0]) for result in results)


def test_a_decomposed_draw_is_the_draw() -> None:
    pairs = (
        (lambda: torch.bernoulli(P), lambda: (torch.rand_like(P) < P).float()),
        (lambda: torch.native_dropout(X, 0.25, True)[1], lambda: torch.rand_like(X) > 0.25),
        (
            lambda: F.rrelu(X, 0.1, 0.4, True),
            lambda: torch.where(X <= 0, X * torch.empty_like(X).uniform_(0.1, 0.4), X),
        ),
    )
    for pair in pairs:
        results = []
        for draw in pair:
            with pinned_numbers("cpu", Draws(counted=True)):
                results.append(draw())
        assert torch.equal(*results)


RECOMPUTED = (
    "import torch.utils.checkpoint as c\n"
    "block = lambda t: torch.nn.functional.dropout(t.sin(), 0.5, True).cos()\n"
    "return c.checkpoint(block, x, use_reentrant=False)"
)


def test_gradients_of_another_mask_than_the_output_s_are_wrong() -> None:
    record = run(
        source(RECOMPUTED, inputs="torch.arange(40.0, requires_grad=True)"), "eager", grad={"mode": "backward"}
    )
    assert severities(record)["grad"] is None and NOTE not in record["notes"]


def test_gradients_of_numbers_that_no_output_shows_are_another_stream() -> None:
    hidden = "y = torch.rand_like(x)\nreturn x.detach() + (x * y - (x * y).detach())"
    record = run(
        source(hidden, inputs="torch.arange(40.0, requires_grad=True)"), "planted:other_stream",
        grad={"mode": "backward"},
    )  # fmt: skip
    assert severities(record)["grad"] == "other-random-numbers" and NOTE in record["notes"]
