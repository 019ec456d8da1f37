"""The state of a model: what of it is found, and under which path."""

from __future__ import annotations

import dataclasses
import threading
from types import SimpleNamespace

import pytest
import torch
from worker_jobs import oracles, passes, run, source

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

    def forward(self, x, *extra):
        return x


def test_objects_lists_of_modules_and_namespaces_hold_state():
    _, leaves, _ = state_leaves(Model(), __name__)
    paths = [path for path, _ in leaves]
    assert "attribute cache.k" in paths and "attribute plain.v" in paths and "attribute space.t" in paths
    assert "attribute parts[0].running_mean" in paths and "attribute parts[0].weight" in paths
    assert "attribute count" in paths
    assert ("attribute act", "function torch.relu") in leaves
    assert not [path for path in paths if "lock" in path or "owner" in path]


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
def make_inputs():
    global added
    return [torch.ones(1)]
"""


def test_variables_of_the_file_and_of_its_classes_hold_state(tmp_path):
    loaded = Source(FILE, "case", str(tmp_path)).load(0)
    loaded.module.CACHE["k"], loaded.module.Model.limit = 7, 2
    loaded.module.added = loaded.module.__added = vars(loaded.module)["_1_c0/0"] = 1  # Dynamo adds the last two
    loaded.module.constant_0 = 1  # and what a function gives once
    del loaded.module.COUNT
    structure, leaves, _ = state_leaves(loaded.model, loaded.module.__name__, loaded.holders)
    assert structure.startswith(
        "modules in training mode: ['all']; global START: *; global NAME: *; global CACHE: dict(['k']: *); global WEIGHT: *; "
    )
    names = {path.split("[")[0] for path, _ in leaves}
    assert {"global CACHE", "global WEIGHT", "global Model.limit"} <= names
    assert (
        not {"global TABLE", "global name", "global __added", "global _1_c0/0", "global constant_0", "global COUNT"}
        & names
    )
    assert "global added" in names
    assert "global Model.seen: list()" in structure
    as_loaded = unchanged_paths(loaded.holders, leaves)
    functions = {
        "Model",
        "Model.forward",
        "make_model",
        "make_inputs",
        "OrderedDict",
        "Colour",
        "Colour.RED",
        "Colour.RED.value",
    }
    assert as_loaded - {f"global {name}" for name in functions} == {"global START", "global NAME", "global __own"}


def test_what_an_import_makes_anew_is_no_difference_unless_a_call_changes_it():
    """Each run imports the file anew, at another time and under another name."""
    definitions = "import time\nSTART, NAME, TIMES = time.time_ns(), __name__, {'loaded': time.time_ns()}"
    assert passes(run(source("return x * 2", definitions=definitions)))
    record = run(source("TIMES['called'] = TIMES['loaded'] + 1\nreturn x * 2", definitions=definitions))
    assert passes(record) and "global TIMES: not compared (two eager runs leave it differently)" in record["notes"]


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
    definitions = "from torch._dynamo.utils import counters"
    assert passes(run(source("return x * 2", init="self.counters = counters", definitions=definitions), "eager"))
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


@pytest.mark.parametrize("more", ["", "@torch.compiler.assume_constant_result\ndef constant_answer(): return 3"])
def test_a_constant_that_dynamo_keeps_in_the_file_is_no_state(more):
    text = source("return x * constant_answer()", definitions=more or "import another_package")
    text = text if more else text.replace("constant_answer", "another_package.constant_answer")
    assert passes(run(text, "eager"))


def test_names_of_arguments():
    assert argument_names(Model(), 3) == ["input x", "input 1", "input 2"]


STATE = """
import array, enum, itertools, numpy, random
__own = {"n": 0}
class Outer:
    class Inner:
        v = 0
class Mode(enum.Enum):
    A = 1
    B = 2
class Cache:
    __slots__ = ("a",)
def make():
    count = 0
    def step(by):
        nonlocal count
        count += by
    return step
def log(by, entries=[]):
    entries.append(by)
def numbers():
    n = 0
    while True:
        n += 1
        yield n
@torch.compiler.disable
def leave(module, by):
    if by == 2: module.register_forward_hook(log)
@torch.compiler.disable
def leave_at_step(optimizer, by):
    if by == 2: optimizer.register_step_pre_hook(log)
@torch.compiler.disable
def unsave(module, by):
    if by == 2: module.register_buffer("b", module.b, persistent=False)
@torch.compiler.disable
def draw(generator, by):
    for _ in range(by): getattr(generator, "random", getattr(generator, "rand", None))()
@torch.compiler.disable
def advance(iterator, by):
    for _ in range(by): next(iterator)
"""
ITERATORS = {
    "iter([1, 2, 3])": "attribute d",
    "iter((1, 2, 3))": "attribute d",
    "iter({1: 2, 3: 4, 5: 6}.items())": "attribute d",
    "iter({1, 2, 3})": "attribute d",
    "iter(range(3))": "attribute d",
    "reversed([1, 2, 3])": "attribute d",
    "iter('abc')": "attribute d",
    "itertools.count()": "attribute d.__reduce__()[1][0]",
    "itertools.cycle([1, 2, 3])": "attribute d",
    "itertools.chain([1], [2, 3])": "attribute d",
    "zip([1, 2, 3])": "attribute d",
    "map(str, [1, 2, 3])": "attribute d",
    "filter(None, [1, 2, 3])": "attribute d",
    "numbers()": "attribute d.gi_frame.f_locals['n']",
}


@pytest.mark.parametrize(
    ("init", "body", "path"),
    [
        ("self.d = numpy.zeros(3)", "self.d = numpy.full(3, by)", "attribute d"),
        ("self.d = set()", "self.d.add(by)", "attribute d"),
        ("self.d = bytearray(1)", "self.d[0] = by", "attribute d"),
        ("self.d = Cache()", "self.d.a = x * by", "attribute d.a"),
        ("self.d = Mode.A", "self.d = Mode(by)", "attribute d"),
        ("self.d = make()", "self.d(by)", "attribute d.__closure__['count']"),
        ("pass", "log(by)", "global log.__defaults__[0][0]"),
        ("pass", "log.count = by", "global log.count"),
        ("self.d = torch.nn.ReLU()", "leave(self.d, by)", "hooks d._forward_hooks"),
        ("pass", "global new; new = by", "global new"),
        ("pass", "global new; new = x * by", "global new"),
        ("pass", "Cache.new = by", "global Cache.new"),
        ("pass", "Outer.Inner.v = by", "global Outer.Inner.v"),
        ("pass", "globals()['__own']['n'] = by", "global __own['n']"),
        ("pass", "Mode.A.note = by", "global Mode.A.note"),
        ("self.d = torch.relu", "self.d = torch.tanh if by == 2 else torch.sigmoid", "attribute d"),
        ("self.d = int", "self.d = float if by == 2 else str", "attribute d"),
        ("self.d = torch.nn.ReLU()", "self.d = torch.nn.Tanh() if by == 2 else torch.nn.Sigmoid()", "module d"),
        ("self.d = array.array('i', [0])", "self.d[0] = by", "attribute d"),
        ("self.d = torch.optim.SGD([torch.ones(1)], lr=0.5)", "leave_at_step(self.d, by)", "attribute d"),
        ("self.d = torch.Generator()", "torch.rand(by, generator=self.d)", "attribute d"),
        ("self.d = random.Random(1)", "draw(self.d, by)", "attribute d"),
        ("self.d = numpy.random.RandomState(1)", "draw(self.d, by)", "attribute d"),
        ("self.d = numpy.random.default_rng(1)", "draw(self.d, by)", "attribute d"),
        ("self.d = numpy.random.PCG64(1)", "self.d.advance(by)", "attribute d"),
        ("self.register_buffer('b', torch.ones(3))", "unsave(self, by)", "buffers outside state_dict"),
        ("self.d = torch.ones(3)", "self.d._mark = by", "attribute d._mark"),
        ("pass", "x._mark = by", "input x._mark"),
        *((f"self.d = {iterator}", "advance(self.d, by)", path) for iterator, path in ITERATORS.items()),
    ],
)
def test_a_wrong_write_is_seen(init, body, path):
    """The same write in both is no finding."""
    for by in ("2 if torch.compiler.is_compiling() else 1", "1", "2"):
        record = run(source(f"by = {by}\n{body}\nreturn x * 2", init=init, definitions=STATE), "eager")
        findings = [(finding["oracle"], finding["path"]) for finding in record["findings"]]
        assert findings == ([("mutation", path)] if "if" in by else []), record


@pytest.mark.parametrize(
    "result",
    ["iter([x, x + 1])", "zip([x], [1])", "map(torch.relu, [x])", "filter(None, [1])", "itertools.count(3)", "reversed([x])"],
)  # fmt: skip
def test_an_iterator_that_dynamo_makes_again_is_the_same(result):
    assert passes(run(source(f"return x * 2, {result}", definitions=STATE), "eager"))


@pytest.mark.parametrize("draw", ["random.random()", "self.d.random()", "torch.rand(2, generator=self.g)"])
def test_draws_in_traced_code_leave_generators_as_eager_does(draw):
    init = "self.d = random.Random(1); self.g = torch.Generator()"
    for backend in ("eager", "aot_eager"):
        assert passes(run(source(f"y = {draw}\nreturn x * y", "torch.randn(2)", init=init, definitions=STATE), backend))


@pytest.mark.parametrize(
    "hook",
    ["x.register_hook(torch.neg)", "self.p.register_hook(torch.neg)", "self.p.register_post_accumulate_grad_hook(print)"],
)  # fmt: skip
def test_hooks_of_tensors_are_counted(hook):
    definitions = f"@torch.compiler.disable\ndef leave(self, x): {hook}"
    init = "self.p = torch.nn.Parameter(torch.ones(3))"
    for condition, expected in (("torch.compiler.is_compiling()", ["mutation"]), ("True", []), ("False", [])):
        body = f"if {condition}: leave(self, x)\nreturn x * 2"
        record = run(source(body, "torch.ones(3, requires_grad=True)", init=init, definitions=definitions), "eager")
        assert oracles(record) == expected, record


def test_the_name_of_the_module_is_the_same_in_every_run():
    init = "self.name, self.names = __name__, {type(self): {__name__}}; self.where = repr(type(self))"
    record = run(source("return x * 2", init=init))
    assert passes(record) and not record["notes"]


def test_hooks_are_counted_and_opened():
    model = torch.nn.Sequential(torch.nn.ReLU())
    entries: list[float] = [1.0]

    def note(*args, entries=entries):
        entries.append(1.0)

    model[0].register_forward_hook(note)
    model[0].register_forward_hook(print)
    structure, leaves, _ = state_leaves(model, __name__)
    assert "; hooks 0._forward_hooks: list([0]: function(" in structure and "[1]: *); module 0: " in structure
    assert ("hooks 0._forward_hooks[0].__kwdefaults__['entries'][0]", 1.0) in leaves
