"""What a run records."""

from __future__ import annotations

import collections
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from worker_jobs import job, source

import runner.worker.program.observe as observing
from runner.worker.program.errors import InvalidCase
from runner.worker.program.load import Source
from runner.worker.program.observe import Settings, in_new_thread, observe, originals
from runner.worker.program.snapshot import snapshot
from runner.worker.program.walk import flatten

Pair = collections.namedtuple("Pair", "a b")


def record(tmp_path, body, inputs="torch.randn(4, 5)", grad="off", **parts):
    loaded = Source(source(body, inputs, **parts), "case", str(tmp_path)).load(0)
    observation = observe(loaded, loaded.model, Settings.of(job(grad={"mode": grad})))
    assert observation.error is None, observation.error
    return observation.calls[0]


def test_structures_are_told_apart():
    x = torch.ones(1)
    values = ((x,), [x], x, {"a": x}, {"b": x}, Pair(x, x), (x, x), torch.max(torch.ones(2, 2), 0))
    texts = {flatten(value, "output")[0] for value in values}
    assert len(texts) == 8
    assert [path for path, _ in flatten({"a": [x, 1], "b": Pair(x, None)}, "output")[1]] == [
        "output['a'][0]",
        "output['a'][1]",
        "output['b'].a",
        "output['b'].b",
    ]


def test_metadata_survives_the_copy():
    x = torch.randn(4, 6, dtype=torch.complex64).t()[1:].conj()
    (leaf,) = snapshot(x, "output").leaves
    assert leaf.metadata.stride == (1, 6) and leaf.metadata.offset == 1 and leaf.metadata.is_conj
    assert torch.equal(leaf.value, x.resolve_conj()) and not leaf.value.is_conj()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        lambda: torch.ones(3).to_mkldnn(),
        lambda: torch.ones(3).to(torch.float8_e4m3fn),
    ],
)
def test_odd_tensors_have_elements_too(make):
    (leaf,) = snapshot(make(), "output").leaves
    assert leaf.problem is None and leaf.value.layout == torch.strided and leaf.value.numel() > 0


def test_meta_tensors_and_strange_objects_say_that_they_cannot_be_compared():
    (meta, strange) = snapshot([torch.ones(3, device="meta"), object()], "output").leaves
    assert "meta" in meta.problem and meta.metadata.shape == (3,)
    assert strange.kind == "opaque" and "cannot be compared" in strange.problem


def test_aliases(tmp_path):
    call = record(
        tmp_path,
        "y = x + 1\nreturn x, x[1:], y, y.view(-1), self.w.t(), x + 0",
        init="self.w = torch.nn.Parameter(torch.ones(2, 3))",
    )
    assert {path: set(aliases) for path, aliases in call.aliases.items()} == {
        "output[0]": {"is input x"},
        "output[1]": {"shares memory with input x", "shares memory with output[0]"},
        "output[2]": set(),
        "output[3]": {"shares memory with output[2]"},
        "output[4]": {"shares memory with parameter w"},
        "output[5]": set(),
    }


def test_mutation_and_generator(tmp_path):
    unwritten_input = record(tmp_path, "return x + 1")
    assert not unwritten_input.mutated and not unwritten_input.drew_random
    written_input = record(tmp_path, "x.add_(torch.rand(5))\nreturn x + 1")
    assert written_input.mutated and written_input.drew_random
    new_shape = record(tmp_path, "x.t_()\nreturn x + 1")
    assert new_shape.inputs.leaves[0].metadata.shape == (5, 4)


def test_a_device_s_own_generator_counts_as_random(tmp_path, monkeypatch):
    states = [torch.zeros(16, dtype=torch.uint8), torch.ones(16, dtype=torch.uint8)]
    for first, second, drew in ((0, 0, False), (0, 1, True)):
        pairs = iter(([states[0], states[first]], [states[0], states[second]]))
        monkeypatch.setattr(observing, "_generators", lambda device, pairs=pairs: next(pairs))
        assert record(tmp_path, "return x + 1").drew_random is drew


@pytest.mark.parametrize(
    ("body", "error"), [("raise ValueError(x.shape)", "ValueError"), ("return x + 1", "RuntimeError")]
)
def test_a_spoilt_device_is_an_error_of_the_call(tmp_path, monkeypatch, body, error):
    """After an assertion on a GPU its generator cannot be read. The model's own exception, if there is one, says more."""
    answers = iter([[torch.zeros(16)]])

    def read(device):
        answer = next(answers, None)
        if answer is None:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return answer

    monkeypatch.setattr(observing, "_generators", read)
    loaded = Source(source(body, "torch.randn(4, 5)"), "case", str(tmp_path)).load(0)
    observation = observe(loaded, loaded.model, Settings.of(job()))
    assert observation.error.info["type"] == error and not observation.drew_random


def test_the_states_are_those_of_all_devices_of_a_kind(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: ["cuda:0", "cuda:1"])
    assert observing._generators("cuda")[1:] == ["cuda:0", "cuda:1"]
    monkeypatch.setattr(torch, "odd", SimpleNamespace(get_rng_state=lambda device: device), raising=False)
    assert observing._generators("odd")[1:] == ["odd"]
    assert [len(observing._generators(device)) for device in ("cpu", "meta")] == [1, 1]


def test_gradients(tmp_path):
    call = record(
        tmp_path,
        "return (x * self.w).sum(0), x.detach() > 0",
        "torch.randn(4, 5, requires_grad=True)",
        grad="backward",
        init="self.w = torch.nn.Parameter(torch.ones(5)); self.unused = torch.nn.Parameter(torch.ones(1))",
    )
    assert set(call.gradients) == {"gradient of x", "gradient of parameter w", "gradient of parameter unused"}
    assert call.gradients["gradient of parameter unused"] is None
    seeded = call.gradients["gradient of x"].value[0]
    assert torch.equal(seeded * 128, (seeded * 128).round()) and len(seeded.unique()) > 1


def test_gradients_that_the_model_keeps(tmp_path):
    call = record(
        tmp_path,
        "(self.w * x).sum().backward()\nreturn x + 1",
        init="self.w = torch.nn.Parameter(torch.ones(5))",
        grad="forward",
    )
    assert list(call.gradients) == ["gradient of parameter w"]


def test_a_panic_is_an_error_of_the_call(tmp_path):
    panic = "class Panic(BaseException): pass"
    loaded = Source(source("raise Panic('index out of bounds')", definitions=panic), "case", str(tmp_path)).load(0)
    error = observe(loaded, loaded.model, Settings.of(job())).error
    assert error is not None and error.summary == "Panic: index out of bounds"


def test_a_lazy_module_has_no_parameters_before_its_call(tmp_path):
    call = record(
        tmp_path, "return self.l(x)", init="self.l = torch.nn.LazyLinear(3); self.unused = torch.nn.LazyLinear(3)"
    )
    values = {leaf.path: leaf.value for leaf in call.state.leaves}
    assert values["parameter l.weight"].shape == (3, 5) and values["parameter unused.weight"] is None


class Tagged(torch.Tensor):
    """A subclass that computes as torch does."""


def test_subclasses_of_tensors_have_elements():
    (leaf,) = snapshot(torch.ones(3).as_subclass(Tagged), "output").leaves
    assert type(leaf.value) is torch.Tensor and leaf.type.endswith("Tagged")
    (leaf,) = snapshot(torch.masked.masked_tensor(torch.ones(3), torch.ones(3, dtype=torch.bool)), "output").leaves
    assert leaf.value is None and "__tensor_flatten__" in leaf.problem


class Refusing:
    def __eq__(self, other):
        raise ValueError("no")

    __hash__ = None


class Alone:
    """Equals itself alone, as no object of another run is."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other


def test_what_cannot_be_compared_says_so():
    for value in (Refusing(), {torch.ones(1)}, Alone(), weakref.ref(Alone)):
        (leaf,) = snapshot(value, "output").leaves
        assert leaf.kind == "opaque" and "cannot be compared" in leaf.problem
    assert snapshot({1, 2}, "output").leaves[0].kind == "python"


def test_a_container_may_hold_itself():
    loop = [1]
    loop.append(loop)
    assert flatten(loop, "output") == ("list([0]: *, [1]: ^output)", [("output[0]", 1)])


def test_a_run_begins_with_the_settings_of_the_one_before_it(tmp_path):
    """What a call sets holds in the next call, and is put back when the run has ended."""
    body = "before = torch.get_default_dtype()\ntorch.set_default_dtype(torch.float64)\nreturn str(before)"
    loaded = Source(source(body, definitions="CALLS = [make_inputs] * 2"), "case", str(tmp_path)).load(0)
    for _ in range(2):
        first, second = observe(loaded, loaded.model, Settings.of(job())).calls
        assert first.settings == {"torch.get_default_dtype()": (torch.float32, torch.float64)} and not second.settings
        assert [call.outputs.leaves[0].value for call in (first, second)] == ["torch.float32", "torch.float64"]
    assert torch.get_default_dtype() == torch.float32


def test_settings_are_put_back_where_the_inputs_of_a_later_call_cannot_be_made(tmp_path):
    text = source(
        "torch.set_default_dtype(torch.float64)\nreturn x", definitions="CALLS = [make_inputs, lambda: 1 / 0]"
    )
    loaded = Source(text, "case", str(tmp_path)).load(0)
    with pytest.raises(InvalidCase):
        observe(loaded, loaded.model, Settings.of(job()))
    assert torch.get_default_dtype() == torch.float32


def test_settings_are_read_where_a_call_raises(tmp_path):
    body = "torch.set_warn_always(True)\nraise ValueError"
    loaded = Source(source(body), "case", str(tmp_path)).load(0)
    (call,) = observe(loaded, loaded.model, Settings.of(job())).calls
    assert call.error is not None and call.settings == {"torch.is_warn_always_enabled()": (False, True)}
    assert not torch.is_warn_always_enabled()


def test_a_thread_has_modes_of_its_own():
    with torch.no_grad():
        assert in_new_thread(torch.is_grad_enabled) and not torch.is_grad_enabled()
    assert in_new_thread(threading.current_thread) is not threading.main_thread()


def test_an_error_comes_out():
    with pytest.raises(ZeroDivisionError):
        in_new_thread(lambda: 1 / 0)


def test_modes_that_see_operators_see_those_of_the_thread():
    seen = []

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append("dispatch")
            return function(*args, **(kwargs or {}))

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append("function")
            return function(*args, **(kwargs or {}))

    with Dispatch(), Functions():
        in_new_thread(lambda: torch.sin(torch.ones(2)))
        count = len(seen)
        torch.sin(torch.ones(2))
    assert "dispatch" in seen[:count] and "function" in seen[:count] and len(seen) == 2 * count
    torch.cos(torch.ones(2))
    assert len(seen) == 2 * count


ROOT = Path(observing.__file__).parents[3]

PROGRAM = """
import sys, types
import torch
import runner.worker.program.observe as observing
from runner.worker.program.observe import Settings, observe
from runner.worker.rerun import legal_runs, reference
from worker_jobs import run, source

lost = False
class Device:
    synchronize = staticmethod(lambda: None)
def synchronize(device):
    if lost:
        raise RuntimeError("CUDA error: device-side assert triggered")
observing.synchronize = synchronize
original = reference.observe
def observe(*args, **more):
    global lost
    lost = True
    return original(*args, **more)
setattr({"reference": reference, "legal_runs": legal_runs}[sys.argv[1]], "observe", observe)
run(source("return x.sum(0)", "torch.randn(4000, 5)"), "planted:off_by_one", {}, grad={"mode": "off"})
print("a result")
"""


@pytest.mark.parametrize("runs", ["reference", "legal_runs"])
def test_a_run_of_our_own_that_loses_the_device_ends_the_process(runs: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, runs],
        capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'worker'}", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert (process.returncode, process.stdout) == (observing.LOST, ""), process.stderr
    assert "the device cpu is lost: CUDA error: device-side assert triggered" in process.stderr


def test_a_processor_is_never_lost() -> None:
    observing.end_if_lost("cpu")
    observing.end_if_lost("meta")


def test_a_device_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    observing.synchronize("cuda")
    observing.synchronize("cpu")
    assert waits == [1]


TWO_CALLS = "CALLS = [make_inputs, make_inputs]"


def test_they_are_what_a_run_begins_with(tmp_path):
    text = source("self.w.add_(1)\nx.mul_(2)\nreturn x + self.w", init="self.w = torch.ones(5)", definitions=TWO_CALLS)
    settings = Settings.of(job(grad={"mode": "off"}))
    case = Source(text, "case", str(tmp_path))
    loaded = case.load(0)
    run = observe(loaded, loaded.model, settings)
    leaves = originals(case.load(0), settings)
    tensors = [place for place, leaf in leaves.items() if isinstance(leaf.value, torch.Tensor)]
    assert sorted(tensors) == [(0, "attribute w"), (0, "input x"), (1, "input x")]
    assert torch.equal(leaves[0, "attribute w"].value, torch.ones(5))
    for call in (0, 1):
        (leaf,) = run.calls[call].inputs.leaves
        assert torch.equal(leaf.value, leaves[call, "input x"].value * 2)
