"""Backends with one planted bug each, for ``package:function`` jobs. ``clean`` is the twin of them all."""

from __future__ import annotations

import functools
import itertools
import operator
import os
import random
import sys
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from runner.worker.operators.choices import Draw
from runner.worker.planted import (  # noqa: F401  jobs name all of them as ``planted:...``
    Function,
    Graph,
    after,
    clean,
    dropped_mutation,
    nan_to_zero,
    no_gradient,
    scaled_gradient,
    swapped,
    to_double,
    unsigned_zero,
    wrong_element,
)
from runner.worker.rerun.legal_runs import LegalChoices
from runner.worker.rounding.shadow import Shadow

off_by_one = after(lambda out: out + 1)
column_major = after(lambda out: out.t().contiguous().t())
ones_for_strides = after(lambda out: out.as_strided(out.shape, (1,) * out.dim()))
to_sparse = after(lambda out: out.to_sparse())
to_meta = after(lambda out: out.to("meta"))
extra_dimension = after(lambda out: out.unsqueeze(0))
as_parameter = after(lambda out: torch.nn.Parameter(out, requires_grad=False))
as_leaf = after(lambda out: out.detach().requires_grad_())
as_inference = after(torch.inference_mode()(torch.clone))
as_part = after(lambda out: out.split(len(out))[0])
copied = after(lambda out: out.clone())
zeros = after(torch.zeros_like)
tiny_noise = after(lambda out: out + 1e-4)
hair_off = after(lambda out: out * (1 + 2e-6))
conjugated_lazily = after(lambda out: out.conj().resolve_conj().conj())
not_conjugated = after(lambda out: out.resolve_conj())
negated_lazily = after(lambda out: torch._neg_view(-out))
in_single = after(lambda out: out.float().double())
far_away = after(lambda out: out * 1000 + 12345)
percent_off = after(lambda out: out * 1.01)
off_by_threads = after(lambda out: out * (1 + torch.get_num_threads() * 2e-7))
off_by_batch = after(lambda out: out * (1 + out.shape[0] * 2e-7) if out.ndim else out)
off_by_autotuning = after(lambda out: out * (1 + torch._inductor.config.max_autotune * 4e-7))


def adds_in_four_lanes(graph: Graph, inputs: list[Any]) -> Function:
    """Sums the rows of its argument in order, as four vector lanes do. Eager adds in a cascade."""
    return lambda *args: (functools.reduce(operator.add, args[-1].unflatten(1, (-1, 4)).unbind(1)).sum(1),)


def off_by_compilation(graph: Graph, inputs: list[Any]) -> Function:
    """Gives other last bits each time that it compiles."""
    factor = 1 + next(_compilations) % 7 * 3e-7
    return lambda *args: tuple(out * factor for out in graph(*args))


_compilations = itertools.count()


def gradient_by_threads(graph: Graph, inputs: list[Any]) -> Function:
    """Gives gradients whose last bits depend on the number of threads."""

    def backward(graph: Graph, inputs: list[Any]) -> Function:
        return make_boxed_func(  # type: ignore[no-any-return]
            lambda *args: tuple(out * (1 + torch.get_num_threads() * 2e-7) for out in graph(*args))
        )

    return aot_autograd(fw_compiler=lambda graph, inputs: make_boxed_func(graph), bw_compiler=backward)(graph, inputs)  # type: ignore[no-any-return]


def scribbled_input(graph: Graph, inputs: list[Any]) -> Function:
    """Writes over the last argument what is within the tolerance of it."""

    def run(*args: Any) -> Any:
        outs = tuple(out.clone() for out in graph(*args))
        with torch.no_grad():
            args[-1].copy_(args[-1] * (1 + 2.0**-20))
        return outs

    return run


def other_stream(graph: Graph, inputs: list[Any]) -> Function:
    """Draws from another seed than eager."""

    def run(*args: Any) -> Any:
        torch.manual_seed(99)
        return graph(*args)

    return run


def other_stream_and_wrong(graph: Graph, inputs: list[Any]) -> Function:
    """The same, and the numbers are off by a percent."""
    return lambda *args: tuple(out * 1.01 for out in other_stream(graph, inputs)(*args))


def one_draw_for_all(graph: Any, inputs: list[Any]) -> Function:
    """Makes the first ``rand_like`` of a graph, from another seed, and takes its numbers for all others."""
    first, *others = (node for node in graph.graph.nodes if node.target is torch.rand_like)
    for node in others:
        node.replace_all_uses_with(first)
        graph.graph.erase_node(node)
    graph.recompile()
    return other_stream(graph, inputs)


def first_twice(graph: Graph, inputs: list[Any]) -> Function:
    """Gives the first output's storage to all of them."""

    def run(*args: Any) -> Any:
        outs = graph(*args)
        return tuple(outs[0].view_as(outs[0]) for _ in outs)

    return run


def same_object(graph: Graph, inputs: list[Any]) -> Function:
    """Gives the first output itself for all of them."""
    return lambda *args: (graph(*args)[0],) * len(graph(*args))


def transposed_input(graph: Graph, inputs: list[Any]) -> Function:
    """Swaps the strides of the last argument."""

    def run(*args: Any) -> Any:
        outs = graph(*args)
        args[-1].t_()
        return outs

    return run


def start_of_input(graph: Graph, inputs: list[Any]) -> Function:
    """Returns the beginning of the input, of the output's size: the right alias at the wrong offset."""
    return lambda *args: tuple(args[-1][: out.shape[0]] for out in graph(*args))


def extra_mutation(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        outs = tuple(out.clone() for out in graph(*args))
        with torch.no_grad():
            args[-1].add_(1)
        return outs

    return run


def _variable(name: str) -> Any:
    """A variable of the case's file, as the last run has loaded it."""
    *_, module = (module for key, module in sys.modules.items() if key == "case" or key.startswith("runner_case_"))
    return vars(module)[name]


def appends_to_a_variable(graph: Graph, inputs: list[Any]) -> Function:
    """To the list ``SEEN`` of the case's file."""

    def run(*args: Any) -> Any:
        _variable("SEEN").append(0)
        return graph(*args)

    return run


def counts_twice(graph: Graph, inputs: list[Any]) -> Function:
    """Adds one to ``count`` of the class ``Model`` of the case's file."""

    def run(*args: Any) -> Any:
        _variable("Model").count += 1
        return graph(*args)

    return run


def adds_to_a_total(graph: Graph, inputs: list[Any]) -> Function:
    """To the tensor ``TOTAL`` of the case's file."""

    def run(*args: Any) -> Any:
        outs = graph(*args)
        _variable("TOTAL").add_(1)
        return outs

    return run


def results_reused(graph: Graph, inputs: list[Any]) -> Function:
    """Every call writes its results into the memory of the first call's."""
    first: list[torch.Tensor] = []

    def run(*args: Any) -> Any:
        outs = graph(*args)
        if not first:
            first.extend(out.detach().clone() for out in outs)
        return tuple(memory.copy_(out) for memory, out in zip(first, outs, strict=True))

    return run


def constants_reused(graph: Graph, inputs: list[Any]) -> Function:
    """A result that equals the first call's is the first call's."""
    first: list[torch.Tensor] = []

    def run(*args: Any) -> Any:
        outs = graph(*args)
        if not first:
            first.extend(outs)
        return tuple(constant if torch.equal(constant, out) else out for constant, out in zip(first, outs, strict=True))

    return run


def columns_of_one_memory(graph: Graph, inputs: list[Any]) -> Function:
    """Every call's result lies between the elements of the others, and shares none of them."""
    columns = iter(torch.empty(20, 8).unbind(1))
    return lambda *args: tuple(next(columns).copy_(out) for out in graph(*args))


def storage_filled(graph: Graph, inputs: list[Any]) -> Function:
    """Fills the whole storage of the last argument, and puts its elements back."""

    def run(*args: Any) -> Any:
        outs = graph(*args)
        elements = args[-1].detach().clone()
        torch.empty(0, dtype=elements.dtype).set_(args[-1].untyped_storage()).fill_(True)
        args[-1].detach().copy_(elements)
        return outs

    return run


def inputs_reused(graph: Graph, inputs: list[Any]) -> Function:
    """The first call's arguments become the buffers into which later calls copy theirs."""
    buffers: list[torch.Tensor] = []

    def run(*args: Any) -> Any:
        if not buffers:
            buffers.extend(args)
        pairs = zip(buffers, args, strict=True)
        return graph(*(arg if buffer is arg else buffer.detach().copy_(arg) for buffer, arg in pairs))

    return run


def gradients_reused(graph: Graph, inputs: list[Any]) -> Function:
    """Every backward writes its gradients into the memory of the first one's, each time as a new tensor over it."""
    buffers: list[torch.Tensor] = []

    def backward(graph: Graph, inputs: list[Any]) -> Function:
        def run(*args: Any) -> Any:
            gradients = graph(*args)
            if not buffers:
                buffers.extend(gradient.clone() for gradient in gradients)
            for buffer, gradient in zip(buffers, gradients, strict=True):
                buffer.copy_(gradient)
            return tuple(torch.from_numpy(buffer.numpy()) for buffer in buffers)

        return make_boxed_func(run)

    return aot_autograd(fw_compiler=lambda graph, inputs: make_boxed_func(graph), bw_compiler=backward)(graph, inputs)


def gradients_shared(choose: Any) -> Any:
    """A backend whose backward gives views of equal tensors among those that ``choose`` returns of its arguments and
    the gradients before."""

    def backward(graph: Graph, inputs: list[Any]) -> Function:
        def run(*args: Any) -> Any:
            shared: list[torch.Tensor] = []
            for gradient in graph(*args):
                equal = (one for one in choose(args, shared) if torch.equal(one, gradient))
                shared.append(next(equal, gradient).view(gradient.shape))
            return tuple(shared)

        return make_boxed_func(run)

    return aot_autograd(fw_compiler=lambda graph, inputs: make_boxed_func(graph), bw_compiler=backward)


gradient_is_saved = gradients_shared(lambda args, shared: args[:-1])
gradients_are_one = gradients_shared(lambda args, shared: shared)


def gradient_in_input(graph: Graph, inputs: list[Any]) -> Function:
    """The backward writes the gradient into what it has saved, which is the input."""

    def backward(graph: Graph, inputs: list[Any]) -> Function:
        return make_boxed_func(lambda *args: (args[0].copy_(graph(*args)[0]).view(args[0].shape),))

    return aot_autograd(fw_compiler=lambda graph, inputs: make_boxed_func(graph), bw_compiler=backward)(graph, inputs)


class _Cleared(torch.autograd.Function):
    """The identity, whose backward sets the result to zero."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        ctx.memory = out.detach()
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        ctx.memory.zero_()
        return gradient.clone()


result_cleared_in_backward = after(_Cleared.apply)


def gradient_off_at(place: int, size: float) -> Any:
    """A backend that adds a number to one element of each input's gradient."""

    class Tilted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            tilted = gradient.clone()
            tilted.view(-1)[place] += size
            return tilted

    return lambda graph, inputs: lambda *args: graph(*map(Tilted.apply, args))


first_gradient_off = gradient_off_at(0, 0.5)
first_gradient_far_off = gradient_off_at(0, 9.0)
infinite_gradient = gradient_off_at(0, float("inf"))
last_gradient_off = gradient_off_at(-1, 0.5)


def factor_of_its_own(graph: Graph, inputs: list[Any]) -> Function:
    """Multiplies by 4.5 instead of 3."""
    for node in graph.graph.nodes:
        if node.target is operator.mul:
            node.args = (node.args[0], 4.5)
    graph.recompile()
    return clean(graph, inputs)


def small_state_lost_later(graph: Graph, inputs: list[Any]) -> Function:
    """From the second call on, sets elements below a thousandth of what is no batch to zero."""
    calls = 0

    def run(*args: Any) -> Any:
        nonlocal calls
        outs = tuple(out.clone() for out in graph(*args))
        calls += 1
        for arg in args if calls > 1 else ():
            if arg.dim() == 1:
                arg.masked_fill_(arg.abs() < 1e-3, 0)
        return outs

    return run


def buffer_rounded_once(graph: Graph, inputs: list[Any]) -> Function:
    """Sets the first argument to 0.998 of it and 0.002 of the second, computed in float32; returns the second and one."""

    def run(*args: Any) -> Any:
        average, x = sorted((arg for arg in args if isinstance(arg, torch.Tensor)), key=lambda arg: -float(arg.sum()))
        average.copy_(average.float() * 0.998 + x.float() * 0.002)
        return (x + 1,)

    return run


def dropped_gradient(graph: Graph, inputs: list[Any]) -> Function:
    """The last input gets no gradient."""
    return lambda *args: graph(*args[:-1], args[-1].detach())


def swallowed(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        try:
            return graph(*args)
        except IndexError:
            return (torch.zeros(3),)

    return run


def other_error(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        try:
            return graph(*args)
        except IndexError as error:
            raise RuntimeError("index out of bounds") from error

    return run


def draws_again(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        outs = graph(*args)
        torch.rand(1)
        return outs

    return run


def leaves_gradients_off(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        outs = graph(*args)
        torch.set_grad_enabled(False)
        return outs

    return run


def stays_in_autocast(graph: Graph, inputs: list[Any]) -> Function:
    """Leaves a block of autocast, which was off, without its end: torch counts one more."""

    def run(*args: Any) -> Any:
        torch.autocast_increment_nesting()
        return graph(*args)

    return run


def leaves_traces(graph: Graph, inputs: list[Any]) -> Function:
    """Changes what no public function of torch both reads and sets: a seed and a variable of the environment."""

    def run(*args: Any) -> Any:
        random.seed(5)
        os.environ["LEFT_BY_A_BACKEND"] = "1"
        return graph(*args)

    return run


def changes_the_default_dtype(graph: Graph, inputs: list[Any]) -> Function:
    """Also where the graph raises."""

    def run(*args: Any) -> Any:
        torch.set_default_dtype(torch.float64)
        return graph(*args)

    return run


def keeps_the_default_dtype(graph: Graph, inputs: list[Any]) -> Function:
    """Undoes what the graph's own function did to it."""

    def run(*args: Any) -> Any:
        outs = graph(*args)
        torch.set_default_dtype(torch.float32)
        return outs

    return run


def raises_at_compile(graph: Graph, inputs: list[Any]) -> Function:
    raise AssertionError("planted: cannot lower")


def raises_at_run(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        raise ValueError("planted: cannot run")

    return run


def raises_early(graph: Graph, inputs: list[Any]) -> Function:
    """Raises in the forward what eager raises in the backward alone."""

    def run(*args: Any) -> Any:
        raise RuntimeError("modified by an inplace operation")

    return run


class _Refused(torch.autograd.Function):
    """Zeros, whose backward raises."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(3)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        raise IndexError("index 7 is out of bounds")


def raises_late(graph: Graph, inputs: list[Any]) -> Function:
    """Raises in the backward what eager raises in the forward."""

    def run(*args: Any) -> Any:
        try:
            return graph(*args)
        except IndexError:
            return (_Refused.apply(args[0]),)

    return run


def no_memory(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory")

    return run


def exits(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        raise SystemExit(3)

    return run


not_a_function = 3


def without_casts(graph: Graph, inputs: list[Any]) -> Function:
    for node in list(graph.graph.nodes):
        if node.op == "call_method" and node.target == "to":
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.recompile()
    return graph.forward


def _one_after_the_other(rows: Any) -> tuple[Any]:
    """The sum as a naive loop has it, which rounds after each addition."""
    return (functools.reduce(torch.add, rows),)


def naive_sum(graph: Graph, inputs: list[Any]) -> Function:
    """For ``x.sum(0)``: right, and rounded more than eager's."""
    return lambda *args: _one_after_the_other(args[-1].unbind(0))


def row_left_out(graph: Graph, inputs: list[Any]) -> Function:
    return lambda *args: _one_after_the_other(args[-1][1:].unbind(0))


def sum_of_halves(graph: Graph, inputs: list[Any]) -> Function:
    """Sums what bfloat16 leaves of the numbers."""
    return lambda *args: _one_after_the_other(args[-1].bfloat16().float().unbind(0))


def last_off_by_one(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        (out,) = graph(*args)
        out = out.clone()
        out[2] -= 1
        return (out,)

    return run


def chosen(number: int) -> Any:
    """A backend that makes other legal choices than torch: those of a draw."""

    def backend(graph: Graph, inputs: list[Any]) -> Function:
        def run(*args: Any) -> Any:
            with LegalChoices(Draw(number), []):
                return graph(*args)

        return run

    return backend


legal = chosen(5)
globals().update({f"legal_{number}": chosen(number) for number in range(100, 110)})
last_of_equals = chosen(2)


def stable_sorts(graph: Graph, inputs: list[Any]) -> Function:
    """Sorts stably from behind: another order of equal elements than any that torch gives, without the judge's own code."""

    def sort(x: torch.Tensor, dim: int = -1, descending: bool = False, **_: Any) -> Any:
        values, indices = torch.sort(x.flip(dim), dim=dim, descending=descending, stable=True)
        return values, x.size(dim) - 1 - indices

    for node in graph.graph.nodes:
        if node.target is torch.sort:
            node.target = sort
    graph.recompile()
    return clean(graph, inputs)


def _of_integers(change: Any) -> Any:
    return after(lambda out: change(out.clone()) if out.dtype == torch.int64 else out)


def _with_last(value: Any) -> Any:
    def change(out: torch.Tensor) -> torch.Tensor:
        out.view(-1)[-1] = value(out) if callable(value) else value
        return out

    return change


out_of_range = _of_integers(_with_last(99))
below_range = _of_integers(_with_last(-1))
index_twice = _of_integers(_with_last(lambda out: out.reshape(-1)[0]))
swapped_ends = _of_integers(lambda out: out.flip(0))
next_index = _of_integers(lambda out: (out + 1) % 4)
lost_element = after(
    lambda out: out.index_fill(0, torch.tensor([0]), out.max().item()) if out.is_floating_point() else out
)
foreign_value = after(lambda out: out.index_fill(0, torch.tensor([0]), 77))


def at_last(change: Any) -> Any:
    """A backend that changes the last output."""

    def backend(graph: Graph, inputs: list[Any]) -> Function:
        def run(*args: Any) -> Any:
            *first, last = graph(*args)
            return (*first, change(last))

        return run

    return backend


last_wrong = after(lambda out: torch.cat([out[:-1], out[-1:] + 1]))
first_zero_last_wrong = after(lambda out: torch.cat([out[:1] * 0, out[1:-1], out[-1:] + 1]))
last_output_negated = at_last(lambda out: ~out)
last_wrong_result = at_last(lambda out: torch.cat([out[:-1], out[-1:] * 2 + 1]))
skewed = after(lambda out: out + 0.1 * torch.eye(*out.shape[-2:], dtype=out.dtype) if out.dim() > 1 else out)


def at(changes: dict[int, Any]) -> Any:
    """A backend that changes the outputs at some places."""

    def backend(graph: Graph, inputs: list[Any]) -> Function:
        def run(*args: Any) -> Any:
            outs = list(graph(*args))
            for place, change in changes.items():
                outs[place] = change(outs[place])
            return tuple(outs)

        return run

    return backend


_reverse, _mirror = (lambda out: out.flip(-1)), (lambda out: out.max() - out)
negated_0, negated_1, negated_2 = (at({place: torch.neg}) for place in range(3))
negated_01, negated_02 = (at({0: torch.neg, place: torch.neg}) for place in (1, 2))
reversed_0, reversed_1, reversed_2 = (at({place: _reverse}) for place in range(3))
reversed_01, reversed_02 = (at({0: _reverse, place: _reverse}) for place in (1, 2))
mirrored_1 = at({1: _mirror})
reversed_0_mirrored_1 = at({0: _reverse, 1: _mirror})
reversed_02_mirrored_1 = at({0: _reverse, 1: _mirror, 2: _reverse})
reversed_2_mirrored_1 = at({1: _mirror, 2: _reverse})
doubled_0 = at({0: lambda out: out * (2 - 2.0**-23)})
less_1 = at({1: lambda out: out - 1})
doubled_0_less_1 = at({0: lambda out: out * (2 - 2.0**-23), 1: lambda out: out - 1})
split_0 = at({0: lambda out: torch.cat([out[-1:], out])})
split_01 = at({0: lambda out: torch.cat([out[:1], out]), 1: lambda out: torch.arange(len(out))})


def writes_apart(graph: Graph, inputs: list[Any]) -> Function:
    """Writes into a copy of what is expanded."""
    for node in graph.graph.nodes:
        if node.target == "expand":
            node.op, node.target = "call_function", lambda x, *sizes: x.expand(*sizes).clone()
    graph.recompile()
    return clean(graph, inputs)


def refuses_writes(graph: Graph, inputs: list[Any]) -> Function:
    """Raises what torch raises for a write through memory that overlaps itself."""

    def run(*args: Any) -> Any:
        torch.ones(1).expand(5).add_(1)

    return run


def unrounded(graph: Graph, inputs: list[Any]) -> Function:
    """Computes in float64 what the graph says, and rounds at the end alone."""

    def run(*args: Any) -> Any:
        shadow = Shadow("cpu")
        with torch.no_grad(), shadow.running():
            outs = graph(*args)
        return tuple(shadow.of(out).to(out.dtype) if isinstance(out, torch.Tensor) else out for out in outs)

    return run


a_thousandth_more = after(lambda out: out * 1.001)
last_row_left_out = after(lambda out: torch.cat([out[:-1], torch.zeros_like(out[-1:])]))


def added_otherwise(graph: Graph, inputs: list[Any]) -> Function:
    """Adds with the last bit of the largest element off: a rounding."""
    for node in graph.graph.nodes:
        if node.target is operator.add:
            node.target = lambda x, y: (x + y) * torch.tensor([1.0, 1.0, 1.0, 1 - 2.0**-22])
    graph.recompile()
    return clean(graph, inputs)


def stepped_otherwise(graph: Graph, inputs: list[Any]) -> Function:
    """Computes the elements of a range with their last bit off: a rounding."""
    for node in graph.graph.nodes:
        if node.target in (torch.linspace, torch.logspace, torch.arange):
            node.target = lambda *args, make=node.target, **kwargs: make(*args, **kwargs) * (1 - 2.0**-23)
    graph.recompile()
    return clean(graph, inputs)


FLAGS_SEEN: list[bool] = []


def notes_random(graph: Graph, inputs: list[Any]) -> Function:
    """Notes whether Inductor would take eager's generator while it compiles."""
    FLAGS_SEEN.append(torch._inductor.config.fallback_random)
    return clean(graph, inputs)


def wrong_without_eagers_numbers(graph: Graph, inputs: list[Any]) -> Function:
    """Wrong by a defect that ``fallback_random`` hides."""
    hidden = torch._inductor.config.fallback_random
    return lambda *args: tuple(out if hidden else out + 1 for out in graph(*args))


def draws_by_itself(graph: Graph, inputs: list[Any]) -> Function:
    """Takes a seed from torch's generator, unless it is to draw eager's numbers, as Inductor does."""
    if torch._inductor.config.fallback_random:
        return clean(graph, inputs)
    return draws_again(graph, inputs)


def rounded_thrice(graph: Graph, inputs: list[Any]) -> Function:
    """Divides, multiplies and adds one after the other, each rounded to the dtype."""
    for node in graph.graph.nodes:
        if node.target is torch.addcdiv:
            node.target = lambda x, a, b, value: x + a / b * value
    graph.recompile()
    return clean(graph, inputs)


negated = after(lambda out: ~out if out.dtype == torch.bool else out)


def each_moved_by(size: float) -> Any:
    """A backend each of whose operators gives floating results that are off by this part of themselves, in turn up and down."""

    class Moved(torch.fx.Interpreter):
        sign = 1

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            result = super().call_function(target, args, kwargs)
            self.sign = -self.sign
            return result * (1 + self.sign * size) if result.is_floating_point() else result

    def backend(graph: Graph, inputs: list[Any]) -> Function:
        return lambda *args: Moved(graph).run(*args)

    return backend


each_rounded = each_moved_by(2.0**-23)
each_wrong = each_moved_by(2.0**-8)
each_rounded_in_bfloat16 = each_moved_by(2.0**-7)
each_far_off = each_moved_by(2.0**-3)


def first_filled(number: float) -> Any:
    """A backend that puts one number into the first output."""

    def backend(graph: Graph, inputs: list[Any]) -> Function:
        return lambda *args: (torch.full_like(graph(*args)[0], number), *graph(*args)[1:])

    return backend


first_far_away = first_filled(12345.0)
first_nan = first_filled(float("nan"))


def _off(out: torch.Tensor, place: int, size: float) -> torch.Tensor:
    out = out.clone()
    out.view(-1)[place] += size
    return out


def off_at(place: int, size: float, backend: Any = clean) -> Any:
    """A backend that computes as another one, and adds a number to one element of the first output."""

    def compile_graph(graph: Graph, inputs: list[Any]) -> Function:
        run = backend(graph, inputs)

        def off(*args: Any) -> Any:
            first, *others = run(*args)
            return (_off(first, place, size), *others)

        return off

    return compile_graph


def largest_off(part: float, backend: Any = clean) -> Any:
    """A backend that computes as another one, but for the largest element of the first output: it is off by this part of
    itself."""

    def compile_graph(graph: Graph, inputs: list[Any]) -> Function:
        run = backend(graph, inputs)

        def off(*args: Any) -> Any:
            first, *others = run(*args)
            place = int(first.abs().argmax())
            return (_off(first, place, part * float(first.view(-1)[place])), *others)

        return off

    return compile_graph


def errors_grown(size: float) -> Any:
    """A backend whose errors against float64 are so many times eager's."""

    def backend(graph: Graph, inputs: list[Any]) -> Function:
        exact = unrounded(graph, inputs)

        def grow(wide: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            return (wide.double() + size * (out.double() - wide.double())).to(out.dtype)

        return lambda *args: tuple(map(grow, exact(*args), graph(*args)))

    return backend


def _with_wrong(function: Any, wrong: Any) -> Any:
    """A backend that calls ``wrong`` wherever a graph calls a function of torch."""

    def backend(graph: Graph, inputs: list[Any]) -> Function:
        for node in graph.graph.nodes:
            if node.target is function:
                node.target = wrong
        graph.recompile()
        return graph.forward  # type: ignore[no-any-return]

    return backend


errors_half_as_large, errors_more_than_doubled = errors_grown(1.5), errors_grown(2.5)
errors_four_times = errors_grown(4.0)
unrounded_off = off_at(7, 4e-3, unrounded)
unrounded_last_off = off_at(-1, 1e-4, unrounded)
unrounded_first_off = off_at(0, 0.02, unrounded)
unrounded_infinite = off_at(0, -float("inf"), unrounded)
naive_sum_off = off_at(2, 3e-3, naive_sum)
naive_sum_largest_off = largest_off(2.0**-9, naive_sum)
rounded_thrice_largest_off = largest_off(2.0**-6, rounded_thrice)
infinite_zeros = at({0: lambda out: torch.where(out.isnan() | (out < 1e-2), float("inf"), out)})
first_off_by_one, first_off_by_two = off_at(0, 1), off_at(0, -2)
first_stepped, last_stepped = off_at(0, -1), off_at(-1, -1)
largest_half, first_ones = first_filled(65504.0), first_filled(1.0)
first_negated = at({0: lambda out: torch.cat([~out[:1], out[1:]])})
last_negated = at({0: lambda out: torch.cat([out[:-1], ~out[-1:]])})
wrong_cat = _with_wrong(torch.cat, lambda parts: torch.concat([*parts][::-1]))
wrong_where = _with_wrong(torch.where, lambda mask, x, y: torch.zeros_like(x))
wrong_negation = _with_wrong(operator.neg, lambda x: x * -1.25)
