"""A script sees what the run sees: each planted difference makes it exit with 1 and the run's own word, and its twin with 0.

The scripts run in this process, each as a module of its own; tests/black_box/test_repro.py runs some as people do.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dataclasses
import functools
import io
import json
import os
import re
import runpy
import symtable
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest

from runner.cases.model import Backend, Variant
from runner.contract.finding import Finding
from runner.diagnose.bug_report import script_shows
from runner.diagnose.diagnosis import Diagnosis
from runner.diagnose.repro import script
from runner.session.plan import Environment, Planned, job
from runner.verdict.outcomes import finding
from runner.verdict.policy import ranked
from tests.handmade import loaded, written

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
import torch._inductor.config
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters

from runner.builder.source import Source, build
from runner.worker.planted import after, instead
from runner.worker.program import global_state
from runner.worker.tasks.registry import run_job
from runner.worker.torch_private.registry import backend_of

REPOSITORY = Path(__file__).resolve().parents[2]
CLEAN = "runner.worker.planted:clean"


class _Cut(torch.autograd.Function):
    """The identity, whose gradient cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.detach()


def _cut(graph: Any, inputs: Any) -> Any:
    return lambda *args: graph(*(_Cut.apply(arg) for arg in args))


def _keyed(graph: Any, inputs: Any) -> Any:
    """Right in the first call only."""
    calls: list[int] = []

    def run(*args: Any) -> Any:
        calls.append(1)
        return tuple(out + (len(calls) > 1) for out in graph(*args))

    return run


def _off_in_later_calls(graph: Any, inputs: Any) -> Any:
    calls: list[int] = []

    def run(*args: Any) -> Any:
        calls.append(1)
        outs = graph(*args)
        torch.set_warn_always(len(calls) > 1)
        return outs

    return run


FIRST: list[Any] = []


def _stale(compile_graph: Any) -> Any:
    """Return a backend that gives a frame's first code again where a guard of it has failed."""

    def compile_once(graph: Any, inputs: Any) -> Any:
        names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        if torch._guards.CompileContext.current_compile_id().frame_compile_id == 0:
            FIRST[:] = [names, compile_graph(graph, inputs)]
        wanted, function = FIRST

        def run(*args: Any) -> Any:
            given = dict(zip(names, args, strict=True))
            return function(*(given[name] for name in wanted))

        return run

    return compile_once


def _without_autocast(graph: Any, inputs: Any) -> Any:
    def run(*args: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            return graph(*args)

    return run


def _with_first_dtype(graph: Any, inputs: Any) -> Any:
    """Runs under the default dtype of every process."""

    def run(*args: Any) -> Any:
        original = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            return graph(*args)
        finally:
            torch.set_default_dtype(original)

    return run


def _own_buffers(graph: Any, inputs: Any) -> Any:
    """Goes on with what it left in buffers, whatever has been written there since."""
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    kept: dict[int, Any] = {}

    def run(*args: Any) -> Any:
        places = [place for place, name in enumerate(names) if "_buffers_" in name]
        for place in kept:
            args[place].copy_(kept[place])
        outs = graph(*args)
        kept.update((place, args[place].clone()) for place in places)
        return outs

    return run


def _first_parameters(graph: Any, inputs: Any) -> Any:
    """Computes with the parameters of the first call."""
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    places = [place for place, name in enumerate(names) if "_parameters_" in name]
    kept: dict[int, Any] = {}

    def run(*args: Any) -> Any:
        for place in places:
            kept.setdefault(place, args[place].detach().clone())
        values = [arg + (kept[n] - arg).detach() if n in kept else arg for n, arg in enumerate(args)]
        return graph(*values)

    return run


def _of_its_thread(graph: Any, inputs: Any) -> Any:
    """Right in the main thread only."""

    def run(*args: Any) -> Any:
        away = threading.current_thread() is not threading.main_thread()
        return tuple(out + away for out in graph(*args))

    return run


def _by_numpy(graph: Any, inputs: Any) -> Any:
    """Compute a sine without torch."""
    import numpy

    return lambda *args: (torch.from_numpy(numpy.sin(args[-1].numpy())),)


HERE = ModuleType("planted_for_scripts")
HERE.by_numpy = _by_numpy  # type: ignore[attr-defined]
HERE.by_inductor = lambda graph, inputs: backend_of("inductor")(graph, inputs)  # type: ignore[attr-defined]
HERE.stale = _stale(lambda graph, inputs: graph.forward)  # type: ignore[attr-defined]
HERE.stale_aot = _stale(aot_autograd(fw_compiler=lambda graph, inputs: make_boxed_func(graph.forward)))  # type: ignore[attr-defined]
HERE.own_buffers, HERE.of_its_thread, HERE.without_autocast = _own_buffers, _of_its_thread, _without_autocast  # type: ignore[attr-defined]
HERE.first_parameters = _first_parameters  # type: ignore[attr-defined]
HERE.with_first_dtype = _with_first_dtype  # type: ignore[attr-defined]
HERE.asks_for_gradients = after(lambda out: out.requires_grad_())  # type: ignore[attr-defined]
HERE.cut, HERE.keyed, HERE.off_in_later_calls = _cut, _keyed, _off_in_later_calls  # type: ignore[attr-defined]
HERE.nan_for_large = after(lambda out: torch.where(out > 1e30, torch.nan, out))  # type: ignore[attr-defined]
HERE.imaginary = after(lambda out: out + 1j)  # type: ignore[attr-defined]
HERE.conjugate_zero = after(lambda out: out.conj().resolve_conj())  # type: ignore[attr-defined]
HERE.halved = after(lambda out: (out.float() / 2).to(out.dtype))  # type: ignore[attr-defined]
HERE.naive_sum = lambda graph, inputs: lambda *args: (functools.reduce(torch.add, args[-1].unbind(0)),)  # type: ignore[attr-defined]
HERE.row_left_out = lambda graph, inputs: lambda *args: (functools.reduce(torch.add, args[-1][1:].unbind(0)),)  # type: ignore[attr-defined]
HERE.last_off_by_one = after(lambda out: out - torch.arange(4000.0).eq(2.0) * 1.0)  # type: ignore[attr-defined]
HERE.slow_to_compile = lambda graph, inputs: time.sleep(0.1) or graph.forward  # type: ignore[attr-defined]
HERE.hidden_by_eagers_numbers = after(  # type: ignore[attr-defined]
    lambda out: out if torch._inductor.config.fallback_random else out + 1
)
HERE.exits = instead(lambda: sys.exit(0))  # type: ignore[attr-defined]
sys.modules[HERE.__name__] = HERE

X = "inputs: {x: [4, 5]}\ngrad: off\n"
SUM = "inputs: {x: {values: [1.0, 2.0]}}\ngrad: off\nchain: [torch.sum, Tensor.item]"
GRADIENT = "inputs: {x: {shape: [4, 3], requires_grad: true}}\nchain: [{nn.Linear: [3, 2]}, torch.tanh]\n"

# The case, a backend with one bug, and the oracles that must speak. A backend without a module is runner.worker.planted's.
PLANTED = {
    "value, a row left out": (
        "inputs: {x: [4096, 8]}\ngrad: off\nchain: [{torch.sum: [$x, 0]}]",
        "planted_for_scripts:row_left_out",
        {"value"},
    ),
    "value, across a step": (
        "inputs: {x: {shape: [1, 4000], init: {linspace: [0, 3999]}}}\ngrad: off\nchain: [{torch.floor: $x}, "
        "{F.max_pool1d: {'*': [$_], kernel_size: 1}}]",
        "planted_for_scripts:last_off_by_one",
        {"value"},
    ),
    "value, Python's, a row left out": (
        "inputs: {x: [4096, 8]}\ngrad: off\nchain: [{torch.sum: [$x, 0]}, Tensor.tolist]",
        "planted_for_scripts:row_left_out",
        {"value"},
    ),
    "value": (X + "chain: [torch.sin]", "planted:off_by_one", {"value"}),
    "value, by little": (X + "chain: [torch.sin]", "planted:tiny_noise", {"value"}),
    "value, one of many": ("inputs: {x: [1000, 100]}\nchain: [torch.sin]", "wrong_element", {"value"}),
    "value, of a dict": (X + "chain: [{torch.sin: $x, out: y}]\nreturn: {a: $x, b: $y}", "planted:off_by_one", {"value"}),
    "value, tolerance": (X + "chain: [torch.sin]\ntolerance: {rtol: 0, atol: 1.0e-5, reason: so}", "planted:tiny_noise", {"value"}),
    "value, tolerance of another output": (
        X + "chain: [{torch.sin: $x, out: a}, {torch.cos: $x, out: b}]\nreturn: [$a, $b]\n"
        "tolerance: {'output[0]': {atol: 1, reason: so}, rtol: 0, reason: so}",
        "planted:tiny_noise",
        {"value"},
    ),
    "value, exact but for another output": (
        X + "chain: [{torch.sin: $x, out: a}, {torch.cos: $x, out: b}]\nreturn: [$a, $b]\n"
        "tolerance: {exact: true, 'output[0]': {atol: 1, reason: so}}",
        "planted:tiny_noise",
        {"value"},
    ),
    "value, exact": (X + "chain: [torch.sin]\ntolerance: {exact: true, reason: so}", "planted:tiny_noise", {"value"}),
    "value, integers": (
        "inputs: {x: {values: [1152921504606846976]}}\ndtypes: [int64]\nchain: [{torch.clone: $x}]",
        "planted:off_by_one",
        {"value"},
    ),
    "value, complex": ("inputs: {x: [4]}\ndtypes: [complex64]\nchain: [torch.exp]", "planted_for_scripts:imaginary", {"value"}),
    "value, float8": (
        "inputs: {x: {shape: [4], init: ones}}\ndtypes: [float8_e5m2]\nchain: [torch.clone]",
        "planted_for_scripts:halved",
        {"value"},
    ),
    "value, complex zero": (
        "inputs: {x: {values: [0.0, 1.0]}}\ngrad: off\nchain: [{torch.complex: [$x, $x]}, {operator.mul: [$_, 1.0]}]\n"
        "tolerance: {exact: true, reason: so}",
        "planted_for_scripts:conjugate_zero",
        {"value", "sign-of-zero"},
    ),
    "value, Python's": (SUM, "planted:off_by_one", {"value"}),
    "value, drawn in less": (
        "inputs: {x: [4, 5]}\ndtypes: [bfloat16]\ngrad: off\nchain: [{torch.sin: $x}]",
        "planted:off_by_one",
        {"value"},
    ),
    "value, autocast": (
        "inputs: {x: [4, 3]}\ngrad: off\nautocast: bfloat16\nchain: [{nn.Linear: [3, 2]}]",
        "planted:off_by_one",
        {"value"},
    ),
    "value, sparse": (
        X + "chain: [torch.sin, Tensor.to_sparse, {Tensor.coalesce: $_}]",
        "planted:off_by_one",
        {"value"},
    ),
    "value, second call": (X + "chain: [torch.sin]\ncalls: [{}]", "planted_for_scripts:keyed", {"value"}),
    "nonfinite": ("inputs: {x: {values: [1.0, -1.0, 4.0]}}\ngrad: off\nchain: [torch.sqrt]", "nan_to_zero", {"nonfinite"}),
    "nonfinite, overflow": (
        "inputs: {x: {values: [1.0e35, 1.0]}}\ngrad: off\nchain: [{operator.mul: [$_, 1.0]}]",
        "planted_for_scripts:nan_for_large",
        {"nonfinite"},
    ),
    "sign-of-zero": (
        "inputs: {x: {values: [-0.0, 2.0]}}\ngrad: off\nchain: [torch.trunc]\ntolerance: {exact: true, reason: so}",
        "unsigned_zero",
        {"sign-of-zero"},
    ),
    "shape": (X + "chain: [torch.sin]", "planted:extra_dimension", {"shape"}),
    "dtype": (X + "chain: [torch.sin]", "to_double", {"dtype"}),
    "device": (X + "chain: [torch.sin]", "planted:to_meta", {"device"}),
    "layout": (X + "chain: [torch.sin]", "planted:to_sparse", {"layout"}),
    "stride": (X + "chain: [torch.sin]", "planted:column_major", {"stride"}),
    "stride, exactly": ("inputs: {x: [1, 5]}\ngrad: off\nstrides: exact\nchain: [torch.sin]", "planted:ones_for_strides", {"stride"}),
    "structure": (X + "chain: [torch.sin]", "planted:as_parameter", {"structure"}),
    "requires-grad": (GRADIENT + "grad: forward", "no_gradient", {"requires-grad"}),
    "requires-grad, of a leaf": (GRADIENT + "grad: forward", "planted:as_leaf", {"requires-grad"}),
    "requires-grad, of an inference tensor": (X + "chain: [torch.sin]", "planted:as_inference", {"requires-grad"}),
    "requires-grad, of a view that refuses writes": (GRADIENT + "grad: forward", "planted:as_part", {"requires-grad"}),
    "alias": (X + "chain: [{Tensor.view: [$_, 20]}]", "alias_lost", {"alias"}),
    "alias, of outputs": (
        X + "chain: [{torch.sin: $x, out: a}, {torch.sin: $a, out: b}]\nreturn: [$a, $b]",
        "planted:first_twice",
        {"alias", "value"},
    ),
    "alias, of calls": (
        X + "chain: [{torch.ones_like: $x, out: a}, {torch.sin: $x, out: b}]\nreturn: [$a, $b]\ncalls: [{}]",
        "planted:constants_reused",
        {"alias"},
    ),
    "offset": (X + 'chain: [{operator.getitem: [$x, "[2:]"]}]', "planted:start_of_input", {"offset", "value"}),
    "mutation": (X + "chain: [{Tensor.add_: [$x, 1]}, torch.sum]", "dropped_mutation", {"mutation"}),
    "mutation, unasked": (X + "chain: [torch.sin]", "planted:extra_mutation", {"mutation"}),
    "mutation, of state": (
        X + "state: {total: {shape: [], init: zeros}}\nchain: [{Tensor.add_: [$self.total, 1]}, {operator.add: [$x, $_]}]",
        "dropped_mutation",
        {"mutation"},
    ),
    "mutation, of an attribute": (
        X + "state: {last: {shape: [4, 5], init: zeros}}\nchain: [{torch.sin: $x, out: self.last}, torch.cos]",
        "planted:off_by_one",
        {"mutation", "value"},
    ),
    "mutation, of a result by its backward": (
        GRADIENT + "grad: backward", "planted:result_cleared_in_backward", {"mutation"}
    ),
    "mutation, of a result by a later call": (
        X + "chain: [torch.sin]\ncalls: [{}]", "planted:results_reused", {"mutation"}
    ),
    "mutation, of an input by a later call": (X + "chain: [torch.sin]\ncalls: [{}]", "planted:inputs_reused", {"mutation"}),
    "mutation, of a gradient by a later call": (
        "inputs: {x: {shape: [4, 3], requires_grad: true}}\nchain: [torch.tanh]\ngrad: backward\ncalls: [{}]",
        "planted:gradients_reused",
        {"mutation"},
    ),
    "mutation, between the elements of an input": (
        "inputs: {base: {shape: [8], hidden: true}, x: {view_of: base, layout: [{operator.getitem: [$_, '[::2]']}]}}\ngrad: off\n"
        "chain: [torch.sin]",
        "planted:storage_filled",
        {"mutation"},
    ),
    "grad": (GRADIENT + "grad: backward", "scaled_gradient", {"grad"}),
    "grad, of a given cotangent": (
        "inputs: {x: {shape: [4], requires_grad: true}, g: {values: [0.0, 5.0, 0.0, 1.0], hidden: true}}\n"
        "chain: [torch.tanh]\ngrad: {cotangent: $g}",
        "scaled_gradient",
        {"grad"},
    ),
    "grad, of given cotangents, second order": (
        "inputs: {x: {shape: [4], requires_grad: true}, g: {shape: [4], hidden: true}}\ncalls: [{}]\n"
        "chain: [{operator.pow: [$x, 3], out: a}, {torch.gt: [$x, 0], out: b}]\nreturn: [$a, $b]\ngrad: {cotangent: [$g, null], order: 2}",
        "planted_for_scripts:cut",
        {"grad"},
    ),
    "grad, of a sum": (GRADIENT + "grad: {cotangent: sum}", "scaled_gradient", {"grad"}),
    "grad, from ones": (GRADIENT + "grad: {cotangent: ones}", "scaled_gradient", {"grad"}),
    "grad, none": (
        "inputs: {x: {shape: [4], requires_grad: true}}\nstate: {w: {shape: [4], requires_grad: true}}\n"
        "chain: [{operator.mul: [$x, $self.w]}]\ngrad: backward",
        "planted:dropped_gradient",
        {"grad"},
    ),
    "grad, second order": (
        "inputs: {x: {shape: [4], requires_grad: true}}\nchain: [{operator.pow: [$x, 3]}]\n"
        "grad: {order: 2}",
        "planted_for_scripts:cut",
        {"grad"},
    ),
    "rng": ("inputs: {x: [50]}\ntrain: true\ngrad: off\nchain: [{nn.Dropout: 0.5}]", "planted:draws_again", {"rng"}),
    "global-state": (X + "chain: [torch.sin]", "planted:changes_the_default_dtype", {"global-state"}),
    "global-state, in autocast and training": (
        "inputs: {x: {shape: [4], requires_grad: true}}\nautocast: bfloat16\ngrad: backward\nchain: [torch.sin]",
        "planted:leaves_gradients_off",
        {"global-state"},
    ),
    "global-state, in a later call": (
        X + "chain: [torch.sin]\ncalls: [{}, {}]",
        "planted_for_scripts:off_in_later_calls",
        {"global-state"},
    ),
    "global-state, where eager raises": (
        "inputs: {x: [4]}\nchain: [{operator.getitem: [$x, {$tensor: [9]}]}]\nexpect: {raises: {type: IndexError}}",
        "planted:changes_the_default_dtype",
        {"global-state"},
    ),
    "global-state, of Python": (X + "chain: [torch.sin]", "planted:leaves_traces", {"global-state"}),
    "missing-error": (
        "inputs: {x: [4]}\nchain: [{operator.getitem: [$x, {$tensor: [9]}]}]\nexpect: {raises: {type: IndexError}}",
        "planted:swallowed",
        {"missing-error"},
    ),
    "error-type": (
        "inputs: {x: [4]}\nchain: [{operator.getitem: [$x, {$tensor: [9]}]}]\nexpect: {raises: {type: IndexError}}",
        "planted:other_error",
        {"error-type"},
    ),
    "error, compiling": (X + "chain: [torch.sin]", "planted:raises_at_compile", {"compile-error"}),
    "error, running": (X + "chain: [torch.sin]", "planted:raises_at_run", {"runtime-error"}),
    "error, exit": (X + "chain: [torch.sin]", "planted_for_scripts:exits", {"runtime-error"}),
    "error, in a later call": (
        "params: {n: [2]}\ninputs: {x: [\"${n}\"]}\nchain: [{operator.getitem: [$x, {$tensor: [1]}]}]\ncalls: [{params: {n: 1}}]\n"
        "expect: {raises: {type: IndexError}}",
        "error_swallowed",
        {"missing-error"},
    ),
    "recompile": (
        X + "chain: [torch.sin]\ncalls: [{}, {}]\nexpect: {graphs: 1, recompiles: 0}",
        "recompiles_always",
        {"graphs"},
    ),
    "twin": (X + "chain: [torch.sin]\ntwin: [split]", "planted:wrong_cat", {"twin"}),
    "twin, in a backward": (
        "inputs: {x: {shape: [4], requires_grad: true}}\nchain: [torch.sin]\ngrad: backward\ntwin: [mask]",
        "planted:wrong_where",
        {"twin"},
    ),
    "graph-break": (SUM + "\nexpect: {graph_breaks: 0}", CLEAN, {"graph-break"}),
}  # fmt: skip

# What the caller does between calls, and a backend that does not see it.
CALLERS = {
    "a Python number": ("inputs: {x: [4], n: {python: 2}}\ngrad: off\nchain: [{torch.mul: [$x, $n]}]\ncalls: [{inputs: {n: {python: 3}}}]", "stale", "value"),
    "a text and None": ("inputs: {x: [4], s: {python: a}, o: {python: 1}}\ngrad: off\nchain: [{operator.eq: [$s, a], out: same}, {torch.neg: $x}, {if: $o, do: [torch.sin]}, {if: $same, do: [torch.exp]}]\ncalls: [{inputs: {s: {python: b}}}, {inputs: {o: {python: null}}}]", "stale", "value"),
    "an attribute": (X + "state: {act: {python: a}}\nchain: [{operator.eq: [$self.act, a], out: same}, {torch.sin: $x}, {if: $same, do: [torch.exp]}]\ncalls: [{set: {self.act: b}}]", "stale", "value"),
    "an attribute of a module": (X + "chain: [{nn.LeakyReLU: 0.5}]\ncalls: [{set: {self.leaky_re_lu.negative_slope: 0.1}}]", "stale", "value"),
    "a setting of torch": (X + "chain: [{torch.zeros: [5]}, {torch.add: [$x, $_]}]\ncalls: [{set: {torch.set_default_dtype: torch.float64}}]", "with_first_dtype", "dtype"),
    "requires_grad": ("inputs: {x: [4, 3]}\nchain: [{nn.Linear: [3, 2], id: lin}]\ncalls: [{set: {self.requires_grad: false}}]", "asks_for_gradients", "requires-grad"),
    "the mode": (X + "chain: [{nn.BatchNorm1d: 5}]\ncalls: [{train: true}]", "stale", "value"),
    "a context": ("inputs: {x: {shape: [4], requires_grad: true}}\nchain: [torch.sin]\ncalls: [{with: [torch.enable_grad]}]\ngrad: off", "stale_aot", "requires-grad"),
    "autocast": ("inputs: {x: [4, 3]}\ngrad: off\nchain: [{nn.Linear: [3, 2]}]\ncalls: [{with: [{torch.autocast: {device_type: cpu, dtype: torch.bfloat16}}]}]", "without_autocast", "dtype"),
    "another thread": (X + "chain: [torch.sin]\ncalls: [{thread: true, with: [torch.no_grad]}]", "of_its_thread", "value"),
    "an optimizer's step": ("inputs: {x: [4, 3]}\ngrad: backward\nchain: [{nn.Linear: [3, 2]}, torch.tanh]\ncalls: [{step: {torch.optim.SGD: {lr: 0.5}}}]", "first_parameters", "value"),
    "a hook": (X + "chain: [{nn.Identity: [], id: first}, torch.sin]\nconfig: {torch._dynamo.config.skip_nnmodule_hook_guards: false}\ncalls: [{hook: {self.first: {$fn: {args: [y], chain: [{torch.mul: [$y, 2]}]}}}}]", "stale", "value"),
    "a state dict": (X + "state: {c: {shape: [5], init: zeros}}\nchain: [{Tensor.add_: [$self.c, 1]}, {torch.add: [$x, $_]}]\ncalls: [{load: initial}]", "own_buffers", "value"),
}  # fmt: skip
PLANTED |= {
    f"caller, {name}": (keys, f"planted_for_scripts:{backend}", {oracle})
    for name, (keys, backend, oracle) in CALLERS.items()
}

# What differs and is no problem: another rounding, memory that nobody wrote, what the case ignores.
HARMLESS = {
    "a sum in another order": (
        "inputs: {x: [4096, 8]}\ngrad: off\nchain: [{torch.sum: [$x, 0]}]",
        "planted_for_scripts:naive_sum",
    ),
    "another order of addition, of Python's numbers": (
        "inputs: {x: [4096, 8]}\ngrad: off\nchain: [{torch.sum: [$x, 0]}, Tensor.tolist]",
        "planted_for_scripts:naive_sum",
    ),
    "a cast left out": (
        "inputs: {x: [40]}\ngrad: off\nchain: [{operator.mul: [$x, 1.001]}, {Tensor.to: [$_, torch.float16]}, "
        "{Tensor.to: [$_, torch.float32]}, {operator.mul: [$_, 3.0]}]",
        "planted:without_casts",
    ),
    "tolerance of an output": (
        X + "chain: [torch.sin]\ntolerance: {exact: true, output: {atol: 1, reason: so}}",
        "planted:tiny_noise",
    ),
    "tolerance of gradients": (
        GRADIENT + "grad: backward\ntolerance: {gradients: {rtol: 1, reason: so}}",
        "scaled_gradient",
    ),
    "ignored": (X + "chain: [torch.sin]\nignore: {value: so}", "planted:off_by_one"),
    "ignored class of an error": (
        "inputs: {x: [4]}\nchain: [{operator.getitem: [$x, {$tensor: [9]}]}]\nexpect: {raises: {type: IndexError}}\nignore: {error-type: so}",
        "planted:other_error",
    ),
    "ignored shape": (X + "chain: [torch.sin]\nignore: {shape: so}", "planted:extra_dimension"),
    "ignored lack of an error": (
        "inputs: {x: [4]}\nchain: [{operator.getitem: [$x, {$tensor: [9]}]}]\nexpect: {raises: {type: IndexError}}\nignore: {missing-error: so}",
        "planted:swallowed",
    ),
    "ignored error": (X + "chain: [torch.sin]\nignore: {runtime-error: so}", "planted:raises_at_run"),
    "random": ("inputs: {x: [50]}\ntrain: true\nchain: [{nn.Dropout: 0.5}]", CLEAN),
    "inputs of one memory": (
        "inputs: {base: {shape: [8], hidden: true}, a: {view_of: base, layout: [{operator.getitem: [$_, '[:6]']}]}, "
        "b: {view_of: base, layout: [{operator.getitem: [$_, '[2:]']}]}}\ngrad: off\nchain: [{Tensor.mul_: [$a, 2]}, "
        "{operator.add: [$_, $b]}]",
        CLEAN,
    ),
    "meta": ("inputs: {x: {shape: [3], device: meta}}\ngrad: off\nchain: [{operator.mul: [$_, 2]}]", CLEAN),
    "nested": (
        "inputs: {x: [4, 5]}\ngrad: off\nchain: [{torch.nested.nested_tensor: [[$x, $x]]}, {operator.mul: [$_, 2]}]",
        CLEAN,
    ),
}


def variant(folder: Path, keys: str, backend: str, **files: str) -> Variant:
    for name, text in files.items():
        written(folder, text, f"{name}.py")
    body = "\n".join(f"    {line}" for line in keys.split("\n"))
    path = written(folder, f"cases:\n  - name: a\n{body}\n")
    (plain,) = loaded(path, allow_python=True).variants
    name = backend if ":" in backend else f"runner.worker.planted:{backend}"
    return dataclasses.replace(plain, backend=Backend(name, name))


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Back to what they were: a script sets them and leaves them set."""
    names = ("fallback_random", "emulate_precision_casts")
    threads, flags = torch.get_num_threads(), {name: getattr(torch._inductor.config, name) for name in names}
    with patch.dict(os.environ):
        yield
    torch.set_num_threads(threads)
    for name, value in flags.items():
        setattr(torch._inductor.config, name, value)


def outcome(text: str, folder: Path) -> tuple[int, str]:
    """Exit code and output of a script, run in this process; of what it raises the last line of the traceback."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        return _outcome(text, folder)


def _outcome(text: str, folder: Path) -> tuple[int, str]:
    path = folder / "exported.py"
    path.write_text(text, encoding="utf-8")
    output, code, process = io.StringIO(), 0, os.getpid()
    torch._dynamo.reset()
    counters.clear()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            code = int(end.code or 0)
        except Exception as error:  # noqa: BLE001  whatever the script ends with
            code = 1
            output.write("".join(traceback.format_exception_only(error)))
    if os.getpid() != process:  # a script that forks
        os._exit(code)
    return code, output.getvalue()


def recorded(target: Variant) -> tuple[Source, dict[str, Any]]:
    """Its source, and the record of the run."""
    source = build(target)
    request = job(Planned(target, Environment("", "", "", "", "")), source)
    return source, run_job(json.loads(json.dumps(dataclasses.asdict(request))), lambda message: None)


def judged(target: Variant) -> Diagnosis:
    """What the run itself says."""
    source, record = recorded(target)
    findings = tuple(ranked([finding(Finding.from_json(data), source) for data in record["findings"]]))
    return Diagnosis(target.id, torch.__version__, "", findings=findings, labels=tuple(record["labels"]))


def aimed(target: Variant, result: Diagnosis, oracle: str) -> Diagnosis:
    """The result with the findings of one oracle alone."""
    return dataclasses.replace(result, findings=tuple(f for f in result.findings if f.oracle == oracle))


@pytest.mark.parametrize("name", PLANTED)
def test_a_script_fails_for_the_finding_and_not_without_the_bug(name: str, tmp_path: Path) -> None:
    keys, backend, expected = PLANTED[name]
    target = variant(tmp_path, keys, backend)
    result = judged(target)
    assert {f.oracle for f in result.findings} >= expected
    for oracle in sorted(expected):
        diagnosis = aimed(target, result, oracle)
        code, output = outcome(script(target, diagnosis), tmp_path)
        assert script_shows(diagnosis.findings[0], code, output), (code, output)
        if backend != CLEAN:
            clean = dataclasses.replace(target, backend=Backend(CLEAN, CLEAN))
            code, output = outcome(script(clean, diagnosis), tmp_path)
            assert code == 0, output


@pytest.mark.parametrize("name", PLANTED)
def test_a_script_without_a_finding_compares_what_the_case_declares(name: str, tmp_path: Path) -> None:
    keys, backend, _ = PLANTED[name]
    if backend != CLEAN:
        code, output = outcome(script(variant(tmp_path, keys, CLEAN)), tmp_path)
        assert code == 0, output


@pytest.mark.parametrize(
    "name", ["value", "value, autocast", "nonfinite", "mutation", "grad", "missing-error", "error, running"]
)
def test_what_a_case_declares_is_compared(name: str, tmp_path: Path) -> None:
    keys, backend, _ = PLANTED[name]
    text = script(variant(tmp_path, keys, backend))
    assert "no run of it is recorded" in text
    assert outcome(text, tmp_path)[0] == 1


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_no_problem(name: str, tmp_path: Path) -> None:
    keys, backend = HARMLESS[name]
    target = variant(tmp_path, keys, backend)
    result = judged(target)
    assert result.findings == ()
    code, output = outcome(script(target, result), tmp_path)
    assert code == 0, output


@pytest.mark.parametrize("name", CALLERS)
def test_a_healthy_backend_sees_what_the_caller_does(name: str, tmp_path: Path) -> None:
    original = global_state.read()
    target = variant(tmp_path, CALLERS[name][0], CLEAN)
    _, record = recorded(dataclasses.replace(target, backend=Backend("aot_eager", "aot_eager")))
    assert record["findings"] == [] and not record["trust"]
    assert [name for name in global_state.differences(original) if "random" not in name] == []


def test_a_backend_that_does_not_see_a_variable_of_a_file(tmp_path: Path) -> None:
    keys = X + "module: {file: own.py, name: Scaled}\ncalls: [{set: {global.SCALE: 3.0}}]"
    target = variant(tmp_path, keys, "planted_for_scripts:stale", own=SCALED)
    result = judged(target)
    code, output = outcome(script(target, result), tmp_path)
    assert result.findings and script_shows(result.findings[0], code, output), output
    clean = dataclasses.replace(target, backend=Backend("aot_eager", "aot_eager"))
    assert judged(clean).findings == ()
    code, output = outcome(script(clean, result), tmp_path)
    assert code == 0, output


SCALED = """
    import torch

    SCALE = 2.0


    class Scaled(torch.nn.Module):
        def forward(self, x):
            return x.sin() * SCALE
    """


MODULE = """
    import torch

    SEED = 5


    def run(x):
        return x + SEED


    class Counting(torch.nn.Module):
        calls: list = []

        def forward(self, x):
            Counting.calls.append(1)
            return run(x), len(Counting.calls)


    if __name__ == "__main__":
        raise SystemExit("a script of its own")
    """


def test_a_file_of_ones_own_keeps_its_names_and_starts_anew_for_each_run(tmp_path: Path) -> None:
    keys = X + "module: {file: own.py, name: Counting}\ncalls: [{}]"
    code, output = outcome(script(variant(tmp_path, keys, CLEAN, own=MODULE)), tmp_path)
    assert code == 0, output
    target = variant(tmp_path, keys, "planted:off_by_one", own=MODULE)
    result = judged(target)
    text = script(target, result)
    code, output = outcome(text, tmp_path)
    assert script_shows(result.findings[0], code, output), output
    assert "def run(x):" in text
    assert "def run_(" in text
    assert "a script of its own" not in text


KEYWORDS = """
    import torch


    class Model(torch.nn.Module):
        def forward(self, x, y=None, *, z):
            return x * 2 - z
    """


@pytest.mark.parametrize("calls", ["", "\ncalls: [{}]"])
@pytest.mark.parametrize(("bug", "oracle"), [("off_by_one", "value"), ("extra_mutation", "mutation")])
def test_inputs_that_go_by_keywords(calls: str, bug: str, oracle: str, tmp_path: Path) -> None:
    keys = f"inputs: {{z: [3], x: [3]}}\nmodule: {{file: own.py, name: Model}}{calls}"
    target = variant(tmp_path, keys, f"planted:{bug}", own=KEYWORDS)
    result = judged(target)
    assert oracle in [finding.oracle for finding in result.findings]
    text = script(target, result)
    assert "call(*inputs[:1], z=inputs[1])" in text
    code, output = outcome(text, tmp_path)
    assert script_shows(result.findings[0], code, output), output
    clean = dataclasses.replace(target, backend=Backend(CLEAN, CLEAN))
    assert judged(clean).findings == () and outcome(script(clean), tmp_path)[0] == 0


VARIABLES = """
    import torch

    SEEN: list = []
    TOTAL = torch.randn(1)


    class Model(torch.nn.Module):
        count = 0

        def forward(self, x):
            TOTAL.add_(x.sum().detach())
            return x * 2
    """


@pytest.mark.parametrize(
    ("bug", "path"),
    [
        ("appends_to_a_variable", "global SEEN"),
        ("adds_to_a_total", "global TOTAL"),
        ("counts_twice", "global Model.count"),
    ],
)
def test_a_variable_of_ones_own_file(bug: str, path: str, tmp_path: Path) -> None:
    keys = X + "module: {file: own.py, name: Model}"
    target = variant(tmp_path, keys, f"planted:{bug}", own=VARIABLES)
    result = judged(target)
    assert [(finding.oracle, finding.path) for finding in result.findings] == [("mutation", path)]
    code, output = outcome(script(target, result), tmp_path)
    assert script_shows(result.findings[0], code, output), output
    clean = dataclasses.replace(target, backend=Backend(CLEAN, CLEAN))
    assert judged(clean).findings == ()
    assert outcome(script(clean, result), tmp_path)[0] == 0


TALK = """
    import random, sys, warnings

    import torch


    class Model(torch.nn.Module):
        def forward(self, x):
            number = 2 if torch.compiler.is_compiling() else 1
            {}
            return x * 2
    """


@pytest.mark.parametrize(
    ("line", "oracle"),
    [
        ("print(number)", "print"),
        ("print(number, file=sys.stderr)", "print"),
        ("warnings.warn(str(number))", "warning"),
        ("[random.random() for _ in range(number)]", "rng"),
    ],
)
def test_what_a_file_of_ones_own_says_and_draws(line: str, oracle: str, tmp_path: Path) -> None:
    keys = X + "module: {file: own.py, name: Model}\ncalls: [{}]"
    target = variant(tmp_path, keys, CLEAN, own=TALK.format(line))
    result = judged(target)
    assert {finding.oracle for finding in result.findings} == {oracle}
    code, output = outcome(script(target, result), tmp_path)
    assert script_shows(result.findings[0], code, output), output
    clean = variant(tmp_path, keys, CLEAN, own=TALK.format(line.replace("number", "1")))
    assert judged(clean).findings == ()
    assert outcome(script(clean, result), tmp_path)[0] == 0


def test_a_bound_between_rounding_and_the_bug(tmp_path: Path) -> None:
    """Where eager itself is off by more than the tolerance, torch's default would call a right backend wrong."""
    keys = "inputs: {x: [4096, 8]}\ngrad: off\nchain: [{torch.sum: [$x, 0]}]"
    target = variant(tmp_path, keys, "planted_for_scripts:row_left_out")
    result = judged(target)
    assert re.search(r"assert_close\(compiled, eager, rtol=0, atol=0.0?\d+, ", script(target, result))
    naive = dataclasses.replace(target, backend=Backend("n", "planted_for_scripts:naive_sum"))
    assert outcome(script(naive, result), tmp_path)[0] == 0


def test_a_difference_near_eagers_own_error_is_measured_against_float64(tmp_path: Path) -> None:
    target = variant(tmp_path, PLANTED["value"][0], "planted:off_by_one")
    (first, *_) = judged(target).findings
    numbers = {**first.numbers, "eager_error_max": 0.5, "abs_error_max": 1.0, "compiled_error_max": 1.0}
    near = Diagnosis(target.id, "2.13.0", "FAIL", findings=(dataclasses.replace(first, numbers=numbers),))
    text = script(target, near)
    assert "double=True" in text
    code, output = outcome(text, tmp_path)
    assert script_shows(first, code, output), output
    clean = dataclasses.replace(target, backend=Backend(CLEAN, CLEAN))
    assert outcome(script(clean, near), tmp_path)[0] == 0


def test_a_path_that_is_none_is_compared_as_a_whole(tmp_path: Path) -> None:
    target = variant(tmp_path, PLANTED["value"][0], "planted:off_by_one")
    (first, *_) = judged(target).findings
    for path in (
        "output[__import__('os')]",
        "output\nimport os",
        "input nobody",
        "parameter x') or print('",
        "call 0, what",
    ):
        forged = Diagnosis(target.id, "2.13.0\nimport os", "FAIL", findings=(dataclasses.replace(first, path=path),))
        text = script(target, forged)
        assert "import os" not in [line.strip() for line in text.splitlines()], text
        code, output = outcome(text, tmp_path)
        assert script_shows(first, code, output), output


@pytest.mark.parametrize(("backend", "names"), [(CLEAN, ["sin"]), ("planted_for_scripts:by_inductor", ["inductor"])])
def test_what_torch_computes_for_a_backend(backend: str, names: list[str], tmp_path: Path) -> None:
    target = variant(tmp_path, f"{X}chain: [torch.sin]\nexpect: {{delegated: all}}", backend)
    diagnosis = aimed(target, judged(target), "delegated")
    code, output = outcome(script(target, diagnosis), tmp_path)
    assert (code, f"torch ran {names}" in output) == (1, True), output
    own = "planted_for_scripts:by_numpy"
    code, output = outcome(script(dataclasses.replace(target, backend=Backend(own, own)), diagnosis), tmp_path)
    assert code == 0, output


@pytest.mark.parametrize(("limit", "fails"), [("10ms", True), ("10m", False)])
def test_compiling_may_take_so_long(limit: str, fails: bool, tmp_path: Path) -> None:
    keys = f"{X}chain: [torch.sin]\ncompile: {{timeout: {limit}}}"
    target = variant(tmp_path, keys, "planted_for_scripts:slow_to_compile")
    late = Finding(
        "timeout", "compiling took more than 0.01 s, the case's limit for compiling", error={"type": "Timeout"}
    )
    text = script(target, Diagnosis(target.id, "2.13.0", "ERROR", findings=(late,)))
    assert "dump_traceback_later(120, exit=True)" in text
    code, output = outcome(
        text.replace("faulthandler.dump_traceback_later(120, exit=True)", ""), tmp_path
    )  # pytest has its own
    assert (code, script_shows(late, code, output)) == ((1, True) if fails else (0, False)), output


@pytest.mark.parametrize(
    ("finding", "line"),
    [
        (
            Finding("timeout", "no answer after 8 s", error={"type": "Timeout"}),
            "faulthandler.dump_traceback_later(8, exit=True)",
        ),
        (Finding("memory", "the memory limit was passed", error={"type": "Memory"}), "assert peak <= 1073741824, "),
        (Finding("runtime-error", "no result", error={"type": "NoResult"}), "child = os.fork()"),
        (Finding("race", "two programs", "scale, x"), "kernel[grid](**{**arguments, **copies})"),
        (Finding("signal", "ended by SIGSEGV", error={"type": "SIGSEGV"}), "compiled = run(compiled=True)"),
    ],
)
def test_ends_of_a_process(finding: Finding, line: str, tmp_path: Path) -> None:
    target = variant(tmp_path, f"{X}chain: [torch.sin]\ntimeout: 8s\nmemory: 1GiB", CLEAN)
    text = script(target, Diagnosis(target.id, "2.13.0", "ERROR", findings=(finding,)))
    compile(text, "script", "exec")
    assert line in text


def test_a_death_where_eager_raises(tmp_path: Path) -> None:
    keys = PLANTED["error-type"][0]
    target = variant(tmp_path, keys, CLEAN)
    for oracle in ("signal", "timeout"):
        end = Finding(oracle, "ended", error={"type": "SIGABRT"})
        text = script(target, Diagnosis(target.id, "2.13.0", "ERROR", findings=(end,)))
        assert ("faulthandler.dump_traceback_later(120, exit=True)\ncompiled = run(compiled=True)" in text) is (
            oracle == "timeout"
        )
        if oracle == "signal":
            assert outcome(text, tmp_path)[0] == 0


def test_settings_go_where_the_failure_shows_without_them(tmp_path: Path) -> None:
    target = variant(tmp_path, PLANTED["value"][0], "planted:off_by_one")
    result = judged(target)
    assert "torch.set_num_threads(2)" in script(target, result)
    user = dataclasses.replace(result, stages={"as-user": "value"})
    assert "set_num_threads" not in script(target, user)
    as_user = dataclasses.replace(result, stages={"as-user": "ok"})
    assert "set_num_threads" in script(target, as_user)


def test_inductor_draws_eagers_numbers_in_the_script_of_a_case_that_draws(tmp_path: Path) -> None:
    draws = f"{X}train: true\nchain: [{{F.dropout: [$_, 0.5, true]}}]"
    none = f"{X}chain: [torch.sin]"
    for keys, code in ((draws, 0), (none, 1)):
        torch._inductor.config.fallback_random = False
        target = variant(tmp_path, keys, "planted_for_scripts:hidden_by_eagers_numbers")
        result = judged(target)
        torch._inductor.config.fallback_random = False
        assert bool(result.findings) is bool(code)
        text = script(target, result)
        assert outcome(text, tmp_path)[0] == code, keys
        assert ("fallback_random" in text) is (code == 0)


@pytest.mark.parametrize(
    ("chain", "train", "draws"),
    [("F.rrelu", False, False), ("{F.rrelu: {'*': [$x], training: true}}", False, True), ("{nn.Dropout: 0.5}", False, False),
     ("{nn.Dropout: 0.5}", True, True), ("{F.dropout: [$_, 0.5, true]}", False, True)],
)  # fmt: skip
def test_what_draws_in_training_alone_needs_no_numbers_of_eager(
    tmp_path: Path, chain: str, train: bool, draws: bool
) -> None:
    """The flag changes what is compiled, and may hide the failure."""
    text = script(variant(tmp_path, f"{X}train: {str(train).lower()}\nchain: [{chain}]", CLEAN))
    assert ("fallback_random = True" in text) is draws


def test_a_script_sets_the_flag_as_the_case_does(tmp_path: Path) -> None:
    for value in (True, False):
        flag = f"torch._inductor.config.fallback_random = {value}"
        keys = f"{X}config: {{torch._inductor.config.fallback_random: {str(value).lower()}}}\nchain: [{{F.dropout: [$_, 0.5, true]}}]"
        lines = [line.strip() for line in script(variant(tmp_path, keys, CLEAN)).splitlines() if "fallback" in line]
        assert lines == [flag]


def test_what_a_policy_of_the_compiler_explains_has_its_flag(tmp_path: Path) -> None:
    target = variant(tmp_path, f"{X}chain: [torch.sin]", CLEAN)
    passing = Diagnosis(target.id, "2.13.0", "PASS", labels=("explained-by-emulate_precision_casts",))
    text = script(target, passing)
    assert "    torch._inductor.config.emulate_precision_casts = True\n" in text
    assert "assert_close" in text


def test_a_flag_that_this_torch_lacks_is_no_verdict(tmp_path: Path) -> None:
    for lines in (
        "chain: [torch.sin]",
        "chain: [{operator.getitem: [$x, {$tensor: [9]}]}]\nexpect: {raises: {type: IndexError}}",
    ):
        keys = X + lines + "\nconfig: {torch._inductor.config.force_same_precision: true}"
        code, output = outcome(script(variant(tmp_path, keys, CLEAN)), tmp_path)
        assert code == 2
        assert "force_same_precision" in output


def test_an_eager_that_fails_is_no_verdict(tmp_path: Path) -> None:
    for lines in ("chain: [{torch.mm: [$x, $x]}]", "chain: [torch.sin]\nexpect: {raises: {type: IndexError}}"):
        code, output = outcome(script(variant(tmp_path, X + lines, CLEAN)), tmp_path)
        assert code == 2, output


def test_every_script_of_the_suites_is_whole() -> None:
    """Valid Python without a tag, in which each name that is read is defined, and each import is used."""
    variants = loaded(*sorted((REPOSITORY / "suites").glob("*.suite.yaml")), allow_python=True).variants
    texts = {name: script(v) for name, v in {v.case.name: v for v in variants}.items()}
    assert len(texts) > 100
    for name, text in texts.items():
        assert "{%" not in text and "{{" not in text, name
        tree = ast.parse(text)
        table = symtable.symtable(text, name, "exec")
        defined = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
        read = {
            s.get_name() for scope in _scopes(table) for s in scope.get_symbols() if s.is_global() and s.is_referenced()
        }
        assert read - defined <= {*dir(builtins), "__file__", "__name__"}, name
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        bound = {(alias.asname or alias.name).partition(".")[0] for node in tree.body
                 if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}  # fmt: skip
        assert bound <= names, name


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _scopes(child)


def test_a_script_has_only_what_its_finding_needs(tmp_path: Path) -> None:
    for name, most, absent in (
        ("value", 40, ("seed(0)\n    model", "backward", "pytree", "raise_", "os.")),
        ("error-type", 41, ("assert_close", "backward")),
        ("grad", 58, ("except Exception as error:\n        return",)),
        ("stride", 40, ("assert_close", "set_grad")),
    ):
        target = variant(tmp_path, *PLANTED[name][:2])
        text = script(target, judged(target))
        assert len(text.splitlines()) <= most, text
        assert not [word for word in absent if word in text], text
        assert "\n\n\n\n" not in text and text.endswith("\n")


def test_what_torch_compile_is_told_stays(tmp_path: Path) -> None:
    static = script(variant(tmp_path, X + "chain: [torch.sin]\ndynamic: false\ncompile: {fullgraph: true}", "inductor"))
    assert 'planted").inductor, dynamic=False, fullgraph=True) if compiled else model\n' in static
    own = script(variant(tmp_path, PLANTED["value"][0], CLEAN))
    assert 'torch.compile(model, backend=importlib.import_module("runner.worker.planted").clean)' in own


def test_a_backend_is_looked_for_in_the_current_folder_where_the_script_is_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "backend_beside.py").write_text("def plus(graph, inputs):\n    return lambda *a: (graph(*a)[0] + 1,)\n")
    text = script(variant(tmp_path, PLANTED["value"][0], "backend_beside:plus"))
    code, output = outcome(text, tmp_path / "sub")
    assert (code, "Tensor-likes are not close" in output) == (1, True), output


def test_a_script_for_a_gpu_has_the_switches_of_the_run(tmp_path: Path) -> None:
    target = variant(tmp_path, X + "chain: [torch.sin]\ndevices: [cuda]", "inductor")
    text = script(target)
    assert "    torch.backends.cudnn.allow_tf32 = False\n" in text and "import torch.backends" not in text
    compile(text, "script", "exec")
    assert "torch.backends" not in script(variant(tmp_path, X + "chain: [torch.sin]", "inductor"))
