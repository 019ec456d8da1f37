"""The state of a model: what of it is found, and under which path."""

from __future__ import annotations

import dataclasses
import threading
from types import SimpleNamespace

import torch

from runner.worker.case.state import argument_names, state_leaves


@dataclasses.dataclass
class Cache:
    k: torch.Tensor


class Plain:
    def __init__(self, owner):
        self.v, self.owner, self.lock = torch.ones(2), owner, threading.Lock()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cache, self.plain, self.space = Cache(torch.ones(3)), Plain(self), SimpleNamespace(t=torch.ones(4))
        self.parts = [torch.nn.BatchNorm1d(2)]
        self.act, self.lock, self.count = torch.relu, threading.Lock(), 3

    def forward(self, x, *more):
        return x


def test_objects_lists_of_modules_and_namespaces_hold_state():
    _, leaves = state_leaves(Model(), __name__)
    paths = [path for path, _ in leaves]
    assert "attribute cache.k" in paths and "attribute plain.v" in paths and "attribute space.t" in paths
    assert "attribute parts[0].running_mean" in paths and "attribute parts[0].weight" in paths
    assert "attribute count" in paths
    assert not [path for path in paths if "act" in path or "lock" in path or "owner" in path]


def test_an_optimizer_has_moments():
    weight = torch.nn.Parameter(torch.ones(2))
    model = torch.nn.Module()
    model.optimizer = torch.optim.Adam([weight])
    weight.grad = torch.ones(2)
    model.optimizer.step()
    paths = [path for path, _ in state_leaves(model, "")[1]]
    assert "attribute optimizer.state[0]['exp_avg_sq']" in paths


def test_names_of_arguments():
    assert argument_names(Model(), 3) == ["input x", "input 1", "input 2"]
