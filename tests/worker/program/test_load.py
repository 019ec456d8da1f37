"""Loading, seeding, settings."""

from __future__ import annotations

import random
import sys

import pytest
import torch
from worker_jobs import job, passes, run, source

from runner.worker.program.errors import InvalidCase
from runner.worker.program.load import Source, configured, environment
from runner.worker.program.observe import Settings, observe

TEXT = source(
    "return x + self.w", init="self.w = torch.nn.Parameter(torch.randn(5))", definitions="VARIABLE = torch.randn(5)"
)


def test_every_load_is_fresh_and_seeded(tmp_path):
    source_file = Source(TEXT, "pad view/1", str(tmp_path))
    first, second = source_file.load(3), source_file.load(3)
    assert first.module is not second.module and type(first.model) is not type(second.model)
    assert torch.equal(first.model.w, second.model.w) and torch.equal(first.module.VARIABLE, second.module.VARIABLE)
    assert torch.equal(first.make_inputs(0, 3)[0], second.make_inputs(0, 3)[0])
    assert not torch.equal(first.make_inputs(0, 4)[0], second.make_inputs(0, 3)[0])
    assert first.module.__name__ in sys.modules and first.path.endswith("pad_view_1.py")
    source_file.close()
    assert first.module.__name__ not in sys.modules


def test_the_generators_are_reset_before_each_call(tmp_path):
    text = source(
        "import random\nreturn torch.rand(2), random.random()", definitions="CALLS = [make_inputs, make_inputs]"
    )
    loaded = Source(text, "case", str(tmp_path)).load(0)
    observation = observe(loaded, loaded.model, Settings.of(job(seed=7)))
    for call in (0, 1):
        torch.manual_seed(7 + call)
        random.seed(7 + call)
        numbers = [leaf.value for leaf in observation.calls[call].outputs.leaves]
        assert torch.equal(numbers[0], torch.rand(2)) and numbers[1] == random.random()


def test_the_mode_is_the_source_s_own(tmp_path):
    assert not Source(TEXT, "a", str(tmp_path)).load(0).model.training
    text = TEXT + "\ntraining = make_model\ndef make_model():\n    return training().train()\n"
    assert Source(text, "b", str(tmp_path)).load(0).model.training


def test_flags_are_set_and_put_back():
    import torch._dynamo.config
    import torch._inductor.config as inductor

    values = (inductor.cpp.simdlen, inductor.fallback_random, torch._dynamo.config.cache_size_limit)
    flags = {"torch._inductor.config.cpp.simdlen": 1, "torch._dynamo.config.cache_size_limit": 3}
    with environment(job(config=flags, threads=1, paths=["/nowhere"])):
        assert (inductor.cpp.simdlen, inductor.fallback_random, torch._dynamo.config.cache_size_limit) == (1, False, 3)
        assert torch.get_num_threads() == 1 and sys.path[-1] == "/nowhere"
    assert values == (inductor.cpp.simdlen, inductor.fallback_random, torch._dynamo.config.cache_size_limit)
    assert "/nowhere" not in sys.path
    with environment(job(config={"torch._inductor.config.fallback_random": True})):
        assert inductor.fallback_random is True


def test_no_number_of_threads_means_torchs_own(monkeypatch):
    threads = torch.get_num_threads()
    monkeypatch.setenv("RUNNER_DEFAULT_THREADS", str(threads + 1))
    for number, expected in ((0, threads + 1), (3, 3)):
        with environment(job(threads=number)):
            assert torch.get_num_threads() == expected
    monkeypatch.delenv("RUNNER_DEFAULT_THREADS")
    with environment(job(threads=0)):
        assert torch.get_num_threads() == threads


def test_an_unknown_flag_puts_back_those_set_before_it():
    import torch._inductor.config as inductor

    simdlen = inductor.cpp.simdlen
    flags = [("torch._inductor.config.cpp.simdlen", 1), ("torch._inductor.config.nothing", 1)]
    with pytest.raises(InvalidCase, match="has no flag"), configured(flags):
        pass
    assert inductor.cpp.simdlen == simdlen


def test_nothing_is_left_behind():
    path, modules = list(sys.path), set(sys.modules)
    assert passes(run(TEXT))
    assert sys.path == path
    assert not [name for name in set(sys.modules) - modules if name.startswith("runner_case_")]


NAMES = ("CALLS", "COTANGENTS", "KEYWORD_INPUTS", "STEPS", "CHANGES", "CONTEXTS", "THREADS", "make_optimizer")


@pytest.mark.parametrize("name", (*NAMES, "make_kernel_model", "make_twin"))
def test_a_persons_file_may_use_any_name(name):
    record = run(f"{name} = 100\n{source('return x * 2')}")
    assert passes(record) and record["compared"]["outputs"] == 1


def test_the_last_inputs_may_go_by_keywords(tmp_path):
    text = source("return x - 2 * y, z", "torch.ones(2), 3, torch.zeros(2)", "x, *, z, y", definitions=KEYWORDS)
    loaded = Source(text, "case", str(tmp_path)).load(0)
    assert loaded.argument_names(3) == ["input x", "input z", "input y"]
    (call,) = observe(loaded, torch.compile(loaded.model, backend="eager"), Settings.of(job())).calls
    assert [leaf.path for leaf in call.inputs.leaves] == ["input x", "input z", "input y"]
    assert call.outputs.leaves[0].value.tolist() == [1.0, 1.0] and call.outputs.leaves[1].value == 3


KEYWORDS = "KEYWORD_INPUTS = ['z', 'y']"


WEIGHTS = "self.w = torch.nn.Parameter(torch.ones(5)); self.v = torch.nn.Parameter(torch.ones(5))"
IS_MAIN = "import threading\n@torch.compiler.disable\ndef is_main(): return threading.current_thread() is threading.main_thread()"
# name: (what the model reads, its value before the second call, what the caller does, the constructor)
GUARDED = {
    "an attribute": ("self.scale", "2.0", "CHANGES = [None, lambda model: setattr(model, 'scale', 3.0)]", "self.scale = 2.0"),
    "a mode": ("self.training", "False", "CHANGES = [None, torch.nn.Module.train]", ""),
    "a variable of the file": ("SCALE", "2.0", "SCALE = 2.0\ndef change(model): global SCALE; SCALE = 3.0\nCHANGES = [None, change]", ""),
    "a setting of torch": ("torch.get_default_dtype() == torch.float64", "False", "CHANGES = [None, lambda model: torch.set_default_dtype(torch.float64)]", ""),
    "requires_grad": ("self.w.requires_grad", "True", "CHANGES = [None, lambda model: setattr(model.w, 'requires_grad', False)]", WEIGHTS),
    "a state_dict": ("self.w.detach().sum()", "5.0", "CHANGES = [None, lambda model: model.load_state_dict({'w': torch.zeros(5), 'v': torch.ones(5)})]", WEIGHTS),
    "a step of an optimizer": ("self.w.detach().sum()", "5.0", "STEPS = [False, True]\ndef make_optimizer(model): return torch.optim.SGD(model.parameters(), lr=0.5)", WEIGHTS),
    "a context": ("torch.is_grad_enabled()", "True", "import contextlib\nCONTEXTS = [contextlib.nullcontext, torch.no_grad]", WEIGHTS),
    "a thread": ("is_main()", "True", f"{IS_MAIN}\nTHREADS = [False, True]", ""),
    "a number": ("n", "2", "CALLS[1] = lambda: [torch.ones(4, 5), 3]", ""),
    "a text": ("n == 2", "True", "CALLS[1] = lambda: [torch.ones(4, 5), 'a']", ""),
    "None": ("n is None", "False", "CALLS[1] = lambda: [torch.ones(4, 5), None]", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", GUARDED)
def test_a_call_after_a_change_is_compared(name):
    """Compiled code that misses a guard goes on with the value from before."""
    expression, before, caller, init = GUARDED[name]
    for value, paths in ((f"{before} if torch.compiler.is_compiling() else {expression}", True), (expression, False)):
        body = f"s = {value}\nreturn x * (s + 1){' + self.w + self.v' if init == WEIGHTS else ''}"
        text = source(body, "torch.ones(4, 5), 2", "x, n", init, f"CALLS = [make_inputs] * 2\n{caller}")
        record = run(text, "eager", grad={"mode": "backward" if init == WEIGHTS else "off"})
        found = [finding["path"] for finding in record["findings"] if finding["oracle"] == "value"]
        assert found == ["call 1, output"] * paths and record["trust"] is None, record
