"""The walk over values: what is opened, how often, under which paths, and what cannot be read."""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import types
from collections import OrderedDict, UserDict, deque
from collections.abc import Mapping

import numpy
import pytest
import torch
from another_package import Cache, Layer, Lazy, Linked, Rows, Shelf, Table, Vector
from torch.utils import _pytree as pytree
from worker_jobs import oracles, passes, run, source

from runner.worker.judge.comparison import compare
from runner.worker.program import walk as walking
from runner.worker.program.walk import Unread, Walk, flatten


class Node:
    def __init__(self, value, *others):
        self.value, self.others = value, list(others)


class Slots:
    __slots__ = ("a", "unset")

    def __init__(self):
        self.a = 1


@dataclasses.dataclass
class Config:
    a: int = 1
    b: int = dataclasses.field(init=False)


class Failing(Mapping):
    def __iter__(self):
        raise SystemExit("not connected")

    def __getitem__(self, key):
        return key

    def __len__(self):
        return 3


class Endless(Failing):
    def __iter__(self):
        return itertools.count()


class Loud(dict):
    def items(self):
        raise RuntimeError

    __iter__ = __len__ = __eq__ = __repr__ = items
    __hash__ = None


class Key:
    def __repr__(self):
        raise RuntimeError


def function():
    """A key."""


def leaves(value):
    return flatten(value, "output", __name__)[1]


def test_an_object_is_opened_at_its_first_place():
    node = Node(0)
    for value in range(40):
        node = Node(value, node, node)
    assert len(leaves(node)) == 41
    first, second = Node(1), Node(2)
    first.others, second.others = [second], [first]
    text, paths = flatten([first, second], "output", __name__)
    assert [path for path, _ in paths] == ["output[0].value", "output[0].others[0].value"]
    assert text.endswith("[1]: ^output[0].others[0])")


def test_a_tuple_is_opened_at_each_place():
    """Equal tuples may be one object in eager and two in compiled code."""
    pair = (1, [2])
    assert (
        flatten([pair, pair], "o")[0]
        == "list([0]: tuple([0]: *, [1]: list([0]: *)), [1]: tuple([0]: *, [1]: ^o[0][1]))"
    )


def test_a_walk_opens_a_root_once():
    walk = Walk(known=[("part", node := Node(1))])
    table = {"k": 1}
    assert walk.flatten([table], "a")[0] == walk.flatten(table, "b")[0].join(["list([0]: ", ")"])
    assert walk.flatten([table, node], "c") == ("list([0]: ^b, [1]: ^part)", [])
    assert Walk(__name__, [("part", node)]).flatten([node], "c") == ("list([0]: ^part)", [])


def test_depth_neither_recurses_nor_fills_the_memory():
    node, nest = None, []
    for value in range(5000):
        node, nest = Node(value, node), [nest]
    paths = [path for path, _ in leaves(node)]
    assert len(set(paths)) == len(paths) == 5001 and max(map(len, paths)) < 2000
    assert all(path.startswith("output.") for path in paths)
    assert leaves(nest) == []


def test_a_part_that_is_too_large_is_not_compared(monkeypatch):
    monkeypatch.setattr(walking, "LARGEST", 100)
    ((path, leaf),) = leaves([list(range(200)), 1])
    assert path == "output" and leaf == Unread("list", "it holds more than 100 values")
    assert isinstance(leaves(Endless())[0][1], Unread) and len(leaves(list(range(90)))) == 90
    pair = (1, 2)
    for _ in range(40):
        pair = (pair, pair)
    assert isinstance(leaves(pair)[0][1], Unread)


def test_what_is_small_is_compared_beside_what_is_too_large(monkeypatch):
    monkeypatch.setattr(walking, "LARGEST", 2000)
    monkeypatch.setattr(walking, "_ALL", 4000)
    walk = Walk()
    for _ in range(3):
        assert isinstance(walk.flatten(list(range(3000)), "root")[1][0][1], Unread)
    assert walk.flatten({"n": 1}, "root")[1] == [("root['n']", 1)]
    ((_, leaf),) = walk.flatten(list(range(1500)), "root")[1]
    assert leaf == Unread("list", "it holds more than 1024 values")


def test_what_raises_is_a_leaf_that_says_so():
    assert leaves([Failing(), 1]) == [
        (
            "output[0]",
            Unread(f"{__name__}.Failing".replace(__name__, "source"), "reading it raises SystemExit: not connected"),
        ),
        ("output[1]", 1),
    ]
    assert leaves(Loud(a=1)) == [("output['a']", 1)]
    assert leaves(Config()) == [("output.a", 1)]
    assert leaves({Key(): 1}) == [("output[source.Key]", 1)]


class Strange(type):
    def __getattribute__(cls, name):
        raise RuntimeError(name)


def test_a_strange_class_is_a_leaf():
    class Odd(metaclass=Strange):
        pass

    assert isinstance(leaves([object.__new__(Odd)])[0][1], Unread)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("a", "'a'"), ("a; b", "'a\\x3b b'"), (1, "1"), ((1, "a"), "(1, 'a')"), (torch.float32, "torch.float32"), (None, "None"),
        (Node, "<class 'source.Node'>"), (function, "<function function>"), ((Node,), "(<class 'source.Node'>,)"),
    ],
)  # fmt: skip
def test_keys_have_no_addresses(key, text):
    assert leaves({key: 1})[-1] == (f"output[{text}]", 1)


def test_keys_that_differ_in_a_space_have_names_of_their_own():
    assert [path for path, _ in leaves({"a; b": 1, "a;b": 2})] == ["output['a\\x3b b']", "output['a;b']"]


@pytest.mark.parametrize(
    ("expected", "wrong", "path"),
    [
        ("{'a': x * 2}.items()", "{'a': x * 3}.items()", "[0][1]"),
        ("{'a': x * 2}.keys()", "{'b': x * 2}.keys()", "[0]"),
        ("OrderedDict(a=x * 2).values()", "OrderedDict(a=x * 3).values()", "[0]"),
        ("slice(x * 2, None)", "slice(x * 3, None)", ".start"),
        ("slice(2, None)", "slice(3, None)", ""),
        ("(x * 2).add", "(x * 3).add", ".__self__"),
        ("x.add", "x.sub", ".__name__"),
    ],
)
def test_what_holds_tensors_and_compares_by_identity_is_opened(expected, wrong, path):
    """Two runs of eager never hold the same tensor."""
    give = "@torch.compiler.disable\ndef give(x, is_wrong):\n    return {} if is_wrong else {}"
    for text, paths in ((expected, []), (wrong, [f"output[0]{path}"])):
        more = f"from collections import OrderedDict\n{give.format(text, expected)}"
        record = run(source("y = x + 1\nreturn give(x, torch.compiler.is_compiling()), y", definitions=more), "eager")
        assert record["trust"] is None and [finding["path"] for finding in record["findings"]] == paths, record


@dataclasses.dataclass(frozen=True)
class Named:
    value: object

    def __repr__(self):
        return "Named"


@pytest.mark.parametrize(
    ("make", "text", "below"),
    [
        (lambda x: x, "torch.Tensor", ""),
        (lambda x: (x, 3), "(torch.Tensor, 3)", "[0]"),
        (lambda x: ((Named(x),), 3), "((source.Named), 3)", "[0][0].value"),
        (Named, "source.Named", ".value"),
        (lambda x: hold(torch.nn.ReLU(), x), "torch.nn.modules.activation.ReLU", ".extra"),
    ],
)
def test_keys_that_hold_tensors_are_opened(make, text, below):
    values = dict(leaves({make(x := torch.zeros(3000)): 1}))
    assert values[f"output.keys()[{text}]{below}"] is x and values[f"output[{text}]"] == 1


def hold(module, x):
    module.extra = x
    return module


def test_keys_are_no_agreement():
    first, second = ({torch.tensor([value]): 1} for value in (1.0, 2.0))
    assert not compare(first, second) and compare(first, {torch.tensor([1.0]): 1}).values == 2
    tensors = {frozenset({torch.ones(1)}): 1}
    assert compare(tensors, tensors).notes == (
        "output.keys()[frozenset]: a frozenset cannot be compared; not compared",
    )
    body = "return {x.sum() + (1 if torch.compiler.is_compiling() else 0): x}"
    assert {finding["path"] for finding in run(source(body), "eager")["findings"]} == {"output.keys()[torch.Tensor]"}


def test_objects_of_one_class_are_keys_by_their_order():
    assert [path for path, _ in leaves({object(): 1, object(): 2})] == ["output[object]", "output[object 2]"]


def test_containers_have_the_paths_that_a_user_writes():
    ordered = OrderedDict(a=1, b=2)
    ordered.move_to_end("a")
    assert [path for path, _ in leaves(ordered)] == ["output['b']", "output['a']"]
    for value in ({"a": 1}, UserDict(a=1), types.MappingProxyType({"a": 1})):
        assert leaves(value) == [("output['a']", 1)]
    assert leaves(Slots()) == [("output.a", 1)]


OBJECTS = """
import dataclasses
import functools
from collections.abc import Mapping
class Remote(Mapping):
    def __getitem__(self, key): raise RuntimeError
    def __iter__(self): raise RuntimeError("not connected")
    def __len__(self): return 3
@dataclasses.dataclass
class Config:
    a: int = 1
    b: int = dataclasses.field(init=False)
class Key: pass
class Expr:
    def __init__(self, a): self.a, self.b = a, a
def f(x): return x
def build():
    e = None
    for _ in range(60): e = Expr(e)
    return e
REMOTE, CONFIG, BY_CLASS, BY_FUNCTION, BY_OBJECT = Remote(), Config(), {Key: 1, Expr: 2}, {f: 1}, {Key(): 1}
"""


def test_healthy_models_hold_what_they_like():
    init = "self.remote, self.config, self.e, self.by = Remote(), Config(), build(), {Key(): 2, Key: 3}"
    record = run(source("return x * 2", init=init, definitions=OBJECTS))
    assert passes(record)
    assert [note for note in record["notes"] if "not compared" in note] == [
        f"{path}: reading it raises RuntimeError: not connected; not compared"
        for path in ("attribute remote", "global REMOTE")
    ]


def test_methods_that_a_model_overrides_are_not_called():
    text = "Model.named_parameters = Model.named_modules = Model.named_buffers = lambda self, prefix='': iter([])"
    init = "self.w = torch.nn.Parameter(torch.ones(5))"
    record = run(source("return x * self.w", init=init, definitions=text), grad={"mode": "backward"})
    assert passes(record) and record["compared"]["gradients"] == 1


class Attributed(dict):
    """A dict with attributes."""


class Pair(tuple):
    """A tuple with attributes."""


class Scaled(torch.Tensor):
    """A subclass of tensors."""


def test_what_a_subclass_of_a_container_adds_is_opened():
    table, pair = Attributed(a=(x := torch.ones(1))), Pair((1,))
    table.a, table.b, pair.c = x, 2, 3
    assert leaves(table) == [("output['a']", x), ("output.b", 2)]
    assert leaves(pair) == [("output[0]", 1), ("output.c", 3)]


def test_a_tensor_has_the_attributes_that_a_user_gives_it():
    x, y = torch.ones(1), torch.ones(2).as_subclass(Scaled)
    x.scale, x.twin, y.twin, y._dynamo_mark = 3, y, x, 1
    text, paths = flatten([x, torch.ones(1)], "o", __name__)
    assert text == "list([0]: *(.scale: *, .twin: *(.twin: *)), [1]: *)"
    assert [path for path, _ in paths] == ["o[0]", "o[0].scale", "o[0].twin", "o[0].twin.twin", "o[1]"]


def test_a_function_of_the_case_holds_what_it_keeps_from_call_to_call():
    count = 3

    def step(x, log=[1], *, last={"k": 2}):  # noqa: B006
        return step, count

    step.total = 4
    holder = [step, functools.partial(step, 5), staticmethod(step)]
    assert leaves(holder) == [
        ("output[0].__defaults__[0][0]", 1),
        ("output[0].__kwdefaults__['last']['k']", 2),
        ("output[0].__closure__['count']", 3),
        ("output[0].total", 4),
        ("output[1].args[0]", 5),
    ]
    assert leaves(torch.relu) == [("output", torch.relu)] and leaves(leaves) == [("output", leaves)]
    assert leaves([Node(1).__init__]) == [("output[0].__self__.value", 1), ("output[0].__func__", Node.__init__)]


def test_a_module_that_is_not_registered_has_attributes_too():
    module = torch.nn.Dropout(0.25)
    assert ("output.p", 0.25) in leaves(module)


class Model(torch.nn.Module):
    def forward(self, x):
        yield x


def test_marks_of_torch_compile_are_no_part_of_a_model():
    plain, compiled = Model(), Model()
    torch.compile(compiled, backend="eager")
    compiled.compile(backend="eager")
    assert vars(compiled).keys() != vars(plain).keys()
    assert flatten(compiled.forward(1), "output", __name__) == flatten(plain.forward(1), "output", __name__)


def test_an_optimizer_has_hyperparameters():
    weights = [torch.nn.Parameter(torch.ones(size)) for size in (1, 2)]
    values = dict(leaves(torch.optim.Adam(weights, lr=0.25)))
    assert values["output.param_groups[0]['lr']"] == 0.25 and values["output.param_groups[0]['params'][1]"] == 1
    assert "output.param_groups[0]['capturable']" not in values  # which compilers set
    text = "def rate(model): model.optimizer.param_groups[0]['lr'] = 0.5 if torch.compiler.is_compiling() else 0.1"
    init = "self.w = torch.nn.Parameter(torch.ones(5)); self.optimizer = torch.optim.SGD([self.w], lr=0.1)"
    (finding,) = run(source("rate(self)\nreturn x * self.w", init=init, definitions=text), "eager")["findings"]
    assert finding["oracle"] == "mutation" and "param_groups[0]['lr']" in finding["path"]


def test_a_scheduler_has_a_state():
    text = "@torch.compiler.disable\ndef step(model, count):\n    for _ in range(count): model.scheduler.step()"
    init = (
        "self.w = torch.nn.Parameter(torch.ones(5)); self.optimizer = torch.optim.SGD([self.w], lr=0.1); "
        "self.scheduler = torch.optim.lr_scheduler.ConstantLR(self.optimizer, factor=1.0)"
    )

    def record(count):
        return run(source(f"step(self, {count})\nreturn x * self.w", init=init, definitions=text), "eager")

    assert not record("1")["findings"]
    paths = {finding["path"] for finding in record("2 if torch.compiler.is_compiling() else 1")["findings"]}
    assert "attribute scheduler.state['last_epoch']" in paths


class Box:
    def __init__(self, a, b):
        self.a, self.b, self.c = a, b, 0


class Constant:
    def __init__(self):
        self.a = 1


pytree.register_pytree_node(Box, lambda box: ([box.a], box.b), Box)
pytree.register_pytree_node(Constant, lambda value: ([], value), lambda children, value: value)  # as constants are


def test_a_registered_class_has_a_context_and_attributes():
    box = Box(x := torch.ones(1), 2)
    box.twin = x
    expected = [("output[0]", x), ("output.context", 2), ("output.b", 2), ("output.c", 0)]
    assert leaves(box) == expected and flatten(box, "output")[1] == expected[:2]
    assert ("output.a", 1) in leaves(Constant())
    assert leaves(deque([1], 5)) == [("output[0]", 1), ("output.context", 5)]


class View(Mapping):
    def __init__(self, values):
        self.values, self.loss = values, 3

    def __getitem__(self, key):
        return self.values[key]

    def __iter__(self):
        return iter(self.values)

    def __len__(self):
        return len(self.values)


def test_a_mapping_and_a_dataclass_have_attributes_too():
    view, user, config = View({"a": 1}), UserDict(a=1), Config()
    user.extra, config.cached = 2, 4
    assert leaves(view) == [("output['a']", 1), ("output.loss", 3)]
    assert leaves(user) == [("output['a']", 1), ("output.extra", 2)]
    assert leaves(config) == [("output.a", 1), ("output.cached", 4)]


def subclass(base):
    """A class of the case's own."""
    return type("Own", (base,), {"__module__": __name__})


class Planet(enum.Enum):
    EARTH = 1


@pytest.mark.parametrize(
    "value",
    [
        *(subclass(base)() for base in (float, int, str, bytes, set, frozenset, bytearray)),
        subclass(functools.partial)(int), subclass(torch.optim.SGD)([torch.ones(1)]),
        numpy.ones(2).view(subclass(numpy.ndarray)), numpy.ma.ones(2).view(subclass(numpy.ma.MaskedArray)),
        Planet.EARTH,
    ],
    ids=lambda value: type(value).__mro__[1].__name__,
)  # fmt: skip
def test_values_of_own_subclasses_have_attributes(value):
    old_leaves = leaves(value)
    value.extra = x = torch.ones(1)
    assert leaves([value])[-1] == ("output[0].extra", x) and len(leaves(value)) == len(old_leaves) + 1
    assert not any(name.startswith("output._") for name, _ in old_leaves)
    assert [path for path, _ in flatten(value, "output", "other")[1] if "extra" in path] == []


def test_an_attribute_that_only_compiled_code_gives_is_found():
    definitions = """
class Size(int): pass
@torch.compiler.disable
def size(x, factor):
    result = Size(3); result.extra = x * factor; return result
"""
    body = "y = x * 2\nreturn y, size(y, 2 if torch.compiler.is_compiling() else 1)"
    assert {finding["path"] for finding in run(source(body, definitions=definitions), "eager")["findings"]} >= {
        "output[1].extra"
    }
    assert passes(run(source("y = x * 2\nreturn y, size(y, 2)", definitions=definitions), "eager"))


# --- objects of another package's classes ---


def test_an_object_of_another_package_that_holds_tensors_is_opened():
    x, y = torch.ones(2), torch.zeros(2)
    expected = [("output.layers[0].count", 1), ("output.layers[0].keys", x), ("output.lengths", [1, 2])]
    text, paths = flatten(Cache([Layer(x)], lengths=[1, 2]), "output", __name__)
    assert text == (
        "another_package.Cache(.layers: list([0]: another_package.Layer(.count: *, .keys: *)), "
        ".lengths: list([0]: *, [1]: *))"
    )
    assert [path for path, _ in paths] == [
        *[path for path, _ in expected[:2]],
        "output.lengths[0]",
        "output.lengths[1]",
    ]
    assert leaves(Vector(x)) == [("output.values", x)]  # in slots
    assert leaves(Shelf([x, y])) == [("output[0]", x), ("output[1]", y)]  # without attributes, as of C code


def test_what_holds_no_tensor_stays_a_leaf():
    for value in (Layer(3), Cache([Layer(None)]), Shelf([1])):
        assert leaves(value) == [("output", value)]
    walk, holder = Walk(known=[("module ", model := torch.nn.ReLU())]), Layer(model)
    assert walk.flatten([holder], "a") == ("list([0]: *)", [("a[0]", holder)])


def test_an_object_of_another_package_keeps_to_itself_what_is_no_result():
    """Locks, functions, private numbers and what a property has computed may be there or not."""
    lazy = Lazy(x := torch.ones(2))
    assert lazy.total == 2 and "total" in vars(lazy)
    assert leaves(lazy) == [("output.x", x)]


def test_what_refers_to_itself_is_opened_once():
    first, second = Linked(torch.ones(1)), Linked(torch.zeros(1))
    first.next, second.next = second, first
    text, paths = flatten(first, "o")
    assert [path for path, _ in paths] == ["o.next.value", "o.value"] and ".next: ^o" in text


def test_containers_of_another_package_have_further_tensors_in_attributes():
    x, y = torch.ones(2), torch.zeros(2)
    rows = Rows([x])
    rows._hidden, rows._name = y, "rows"
    assert leaves(rows) == [("output[0]", x), ("output._hidden", y)]
    table = Table(x)
    assert leaves(table) == [("output.a", x)]
    table._spare, table._same, table.number = [y], x, 3
    assert leaves(table) == [("output.a", x), ("output._spare[0]", y)]


def test_the_search_for_a_tensor_ends(monkeypatch):
    monkeypatch.setattr(walking, "_SEARCHED", 50)
    node = None
    for _ in range(100):
        node = Linked(node)
    assert leaves(node) == [("output", node)]
    assert len(leaves([Cache([Layer(torch.ones(1))]), node])) == 3
    huge = Cache([Layer(torch.ones(1))], lengths=dict.fromkeys(range(100_000), 1))
    assert [path for path, _ in leaves(huge)] == ["output.layers[0].count", "output.layers[0].keys"]


OTHERS = "from another_package import Cache, Layer, Lazy, Linked, Rows, Shelf, Table, Vector, results"


@pytest.mark.parametrize(
    ("make", "path"),
    [
        ("Cache([Layer(y)])", ".layers[0].keys"), ("Vector(y)", ".values"), ("Rows([y])", "[0]"), ("Table(y)", ".a"),
        ("{'past': (Layer(y),)}", "['past'][0].keys"), ("Linked(Linked(y))", ".value.value"),
        ("torch.distributions.Normal(y, 1.0)", ".loc"),
    ],
)  # fmt: skip
def test_a_spoilt_tensor_in_an_object_of_another_package_is_found(make, path):
    for amount, wrong in (("0", []), ("int(torch.compiler.is_compiling())", ["value"])):
        record = run(source(f"y = x * 2 + {amount}\nreturn x.sum(), {make}", definitions=OTHERS), "eager")
        assert oracles(record) == wrong and record["trust"] is None, record
        assert not wrong or [finding["path"] for finding in record["findings"]] == [f"output[1]{path}"]
        assert record["labels"] == [] or amount != "0"


def test_state_in_objects_of_another_package_is_compared():
    init = "self.cache = Cache([Layer(torch.zeros(5))])"
    for amount, paths in (("x[0]", []), ("x[0] + int(torch.compiler.is_compiling())", [".layers[0].keys"])):
        body = f"self.cache.layers[0].keys = {amount}\nreturn x * 2"
        record = run(source(body, init=init, definitions=OTHERS), "eager")
        assert [finding["path"] for finding in record["findings"]] == [f"attribute cache{path}" for path in paths]
