"""torch's operator database as a source of steps: how many names it reaches, and how a sample becomes a step."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

import torch
from worker_jobs import job

from runner.builder.operators import Operator, resolve
from runner.worker.generate import database
from runner.worker.generate.chain import Chain
from runner.worker.tasks import generate


def chain_of(seed: int = 0, dtype: Any = None) -> Chain:
    """An empty chain."""
    torch.manual_seed(seed)
    return Chain(random.Random(seed), dtype or torch.float32, False, False, False, False)


@pytest.fixture(scope="module")
def names() -> list[str]:
    return [name for name in database.operators() if isinstance(resolve(name), Operator)]


@pytest.mark.slow
def test_more_than_a_thousand_names_are_known_and_the_format_takes_nearly_all(names: list[str]) -> None:
    assert len(names) > 1000
    assert len(names) > 0.98 * len(database.operators())
    spaces = {name.partition(".")[0] for name in names}
    assert spaces == {"torch", "F", "Tensor", "aten"}
    assert not any(part in name for name in names for part in ("empty", "resize", "sparse", "__", "ldl_solve"))
    assert names == sorted(names)


@pytest.mark.slow
def test_a_function_has_all_its_public_names(names: list[str]) -> None:
    assert {
        "torch.relu", "torch.relu_", "F.relu", "F.relu_", "Tensor.relu", "Tensor.relu_", "aten.relu",
        "torch.absolute", "Tensor.absolute_", "torch.special.expit", "torch.conv1d", "F.sigmoid", "torch.clip",
    } <= {*names}  # fmt: skip


@pytest.mark.slow
def test_a_function_in_place_writes_into_its_first_argument() -> None:
    chain = chain_of()
    value = chain.input([5])
    assert database.add_step(chain, "torch.relu_")
    (name,) = chain.steps[-1].keys() - {"out"}
    assert name == "torch.relu_" and value.name in str(chain.steps)


@pytest.mark.slow
def test_nearly_every_name_can_be_drawn(names: list[str]) -> None:
    every_20th = names[::20]
    reached = [name for name in every_20th if any(database.add_step(chain_of(seed), name) for seed in range(6))]
    assert len(reached) > 0.9 * len(every_20th), set(every_20th) - {*reached}


@pytest.mark.slow
def test_a_step_takes_a_value_of_the_chain_and_keeps_sizes_that_are_equal() -> None:
    chains = [chain_of(seed) for seed in range(20)]
    for chain in chains:
        chain.input([7, 3])
        assert database.add_step(chain, "torch.mm")
    steps = [chain.steps[0]["torch.mm"] for chain in chains]
    bound = [chain for chain, step in zip(chains, steps, strict=True) if step[0] == "$x1"]
    assert len(bound) > 10
    assert all(chain.values[1].shape[0] == 3 for chain in bound)


def sample(value: Any, *args: Any, **kwargs: Any) -> SimpleNamespace:
    return SimpleNamespace(input=value, args=args, kwargs=kwargs)


def planted(monkeypatch: pytest.MonkeyPatch, name: str, *samples: Any) -> None:
    """Let the database hold one operator with these samples."""
    entry = SimpleNamespace(
        supported_dtypes=lambda device: {torch.float32}, sample_inputs=lambda device, dtype: samples
    )
    monkeypatch.setattr(database, "operators", lambda: {name: (entry,)})


def test_numbers_of_new_inputs_lie_within_those_of_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, "torch.log", sample(torch.tensor([2.0, 3.0])))
    chain = chain_of()
    assert database.add_step(chain, "torch.log")
    assert chain.inputs == {"x1": {"shape": [2], "init": {"uniform": [2.0, 3.0]}}}
    chain = chain_of()
    chain.input([2, 2])
    planted(monkeypatch, "torch.index_select", sample(torch.ones(3, 3), 0, torch.tensor([0, 2])))
    assert database.add_step(chain, "torch.index_select")
    [index] = [spec for name, spec in chain.inputs.items() if name.startswith("i")]
    assert index["init"] == {"randint": [0, 2]}  # a value of the chain is smaller than the sample's
    chain = chain_of()
    chain.input([7])
    planted(monkeypatch, "torch.log", sample(torch.tensor([2.0, 3.0])))
    assert database.add_step(chain, "torch.log")
    assert [*chain.steps[0]] == ["torch.clamp", "out"]  # a value of the chain is brought into the sample's numbers
    rows = sample(torch.ones(3, 3), 0, torch.tensor([0, 2]))
    planted(monkeypatch, "torch.index_select", rows)
    chain = chain_of()
    assert database.add_step(chain, "torch.index_select")
    assert chain.inputs["i2"] == {"shape": [2], "dtype": "int64", "init": {"randint": [0, 3]}}


def test_tensors_of_an_operator_that_trusts_sizes_have_those_of_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aten.batch_norm", "torch.native_batch_norm"):
        planted(monkeypatch, name, sample(torch.ones(2, 3), torch.ones(3), torch.ones(3), None, None, True, 0.1, 1e-3))
        for seed in range(10):
            chain = chain_of(seed)
            chain.input([4, 7])
            database.add_step(chain, name)
            assert "$x1" not in str(chain.steps)


def test_only_a_pointwise_operator_writes_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    for pointwise in (False, True):
        planted(monkeypatch, "Tensor.copysign_", sample(torch.ones(3, 3), torch.ones(3, 3)))
        monkeypatch.setattr(database, "_POINTWISE", ("SimpleNamespace",) if pointwise else ())
        steps = []
        for seed in range(20):
            chain = chain_of(seed)
            chain.input([3, 3])
            assert database.add_step(chain, "Tensor.copysign_")
            steps.append(chain.steps[-1]["Tensor.copysign_"])
        assert any(target == source for target, source in steps) == pointwise


def test_a_value_of_another_rank_is_viewed(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, "torch.mm", sample(torch.ones(3, 3), torch.ones(3, 2)))
    for shape in ([4], [2, 3, 5], [2, 2, 2, 2]):
        chains = [chain_of(seed) for seed in range(10)]
        for chain in chains:
            chain.input(shape)
            assert database.add_step(chain, "torch.mm")
        assert any("$x1" in str(chain.steps) for chain in chains)


def test_a_step_that_eager_refuses_on_the_values_of_the_chain_has_inputs_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted(monkeypatch, "torch.linalg.cholesky", sample(torch.eye(2) * 2))
    for seed in range(10):
        chain = chain_of(seed)
        chain.input([2, 3])
        database.add_step(chain, "torch.linalg.cholesky")
        assert "$x1" not in str(chain.steps)


@pytest.mark.parametrize(
    "argument", [1j, object(), torch.ones(2).to_sparse(), torch.ones(2, dtype=torch.complex32), lambda: 0]
)
def test_what_the_format_cannot_write_is_no_step(monkeypatch: pytest.MonkeyPatch, argument: Any) -> None:
    planted(monkeypatch, "torch.add", sample(torch.ones(2), argument))
    chain = chain_of()
    assert not database.add_step(chain, "torch.add")
    assert (chain.steps, chain.inputs, chain.values) == ([], {}, [])


def test_a_sample_that_cannot_be_made_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, "torch.add")
    assert not database.add_step(chain_of(), "torch.add")


def test_without_numpy_there_is_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.testing._internal.common_methods_invocations", None)
    monkeypatch.setattr(generate, "operators", database.operators.__wrapped__)
    record = generate.run_operators(job(), lambda message: None)
    assert record["operators"] == []
    assert "common_methods_invocations" in record["missing"]


def test_the_database_leaves_flags_of_torch_free() -> None:
    """Its module forbids to set them from then on; a case's ``config:`` may want to."""
    database.operators()
    assert not torch.backends.flags_frozen()
    torch.backends.mkldnn.enabled = torch.backends.mkldnn.enabled
