"""The state of a model: what of it is found, and under which path."""

from __future__ import annotations

import dataclasses
import threading
from types import SimpleNamespace

import torch
from worker_jobs import passes, run, source

from runner.worker.program.load import Source
from runner.worker.program.state import argument_names, state_leaves, unchanged_paths


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


FILE = """
import enum, torch

import time

TABLE = list(range(2000))
START, NAME = time.time(), __name__
COUNT, CACHE, WEIGHT, name, __own = 1, {}, torch.ones(2), torch.nn.functional, 5

class Colour(enum.Enum):
    RED = 1

class Model(torch.nn.Module):
    seen: list = []
    limit = None
    def forward(self, x): return x

from collections import OrderedDict
def make_model(): return Model()
def make_inputs(): return [torch.ones(1)]
"""


def test_variables_of_the_file_and_of_its_classes_hold_state(tmp_path):
    loaded = Source(FILE, "case", str(tmp_path)).load(0)
    loaded.module.CACHE["k"], loaded.module.Model.limit = 7, 2
    loaded.module.added = 1  # as Dynamo adds names
    del loaded.module.COUNT
    structure, leaves = state_leaves(loaded.model, loaded.module.__name__, loaded.variables)
    assert structure.startswith(
        "modules in training mode: ['all']; global START: *; global NAME: *; global CACHE: dict(['k']: *); global WEIGHT: *; "
    )
    names = {path.split("[")[0] for path, _ in leaves}
    assert {"global CACHE", "global WEIGHT", "global Model.limit"} <= names
    assert not {"global TABLE", "global name", "global added", "global COUNT", "global OrderedDict"} & names
    assert "global Model.seen: list()" in structure
    as_loaded = unchanged_paths(loaded.variables, leaves)
    assert as_loaded == {"global START", "global NAME"}


def test_what_an_import_makes_anew_is_no_difference_unless_a_call_changes_it():
    """Each run imports the file anew, at another time and under another name."""
    more = "import time\nSTART, NAME, TIMES = time.time_ns(), __name__, {'loaded': time.time_ns()}"
    assert passes(run(source("return x * 2", more=more)))
    changed = run(source("TIMES['called'] = TIMES['loaded'] + 1\nreturn x * 2", more=more))
    assert passes(changed) and "global TIMES: not compared (two eager runs leave it differently)" in changed["notes"]


def test_the_mode_of_each_module_is_a_part_of_the_structure():
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Dropout())
    texts = [state_leaves(model, "")[0]]
    model[1].eval()
    texts.append(state_leaves(model, "")[0])
    texts.append(state_leaves(model.eval(), "")[0])
    assert [text.partition("; ")[0] for text in texts] == [
        f"modules in training mode: {names}" for names in (["all", "0", "1"], ["all", "0"], [])
    ]


def test_what_belongs_to_torch_is_no_state():
    more = "from torch._dynamo.utils import counters"
    assert passes(run(source("return x * 2", init="self.counters = counters", more=more), "eager"))
    compiled = torch.compile(torch.nn.Linear(2, 2), backend="eager")
    paths = {path for path, _ in state_leaves(torch.nn.Sequential(compiled), "")[1]}
    names = {"weight", "bias", "in_features", "out_features"}
    assert {path.partition(" ")[2] for path in paths} == {f"0._orig_mod.{name}" for name in names}


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
