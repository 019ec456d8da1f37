"""The end of every script that ``runner repro`` prints. Control reads this file as text and never imports it.

What stands above the line ``# --- script`` is for linters alone: the real values are written in its place.
"""

from __future__ import annotations

import torch

SEED = 0
BACKEND: dict = {"backend": "inductor"}
FLAGS: dict = {}
GRAD, COTANGENT, ORDER = "forward", "seeded", 1
AUTOCAST, DEVICE, THREADS = None, "cpu", 2
TOLERANCE: dict = {}
EXACT = False
RAISES = None
BUDGETS: dict = {}
IGNORE: tuple = ()
TIMEOUT = 120


def make_model() -> torch.nn.Module:
    """Stands for the case's own."""
    return torch.nn.ReLU()


def make_inputs() -> list:
    """Stands for the case's own."""
    return [torch.randn(3)]


CALLS = [make_inputs]

# --- script

import contextlib
import faulthandler
import importlib
import sys

import torch._dynamo
import torch._inductor.config
from torch._dynamo.utils import counters, same
from torch.utils._pytree import tree_flatten, tree_map


def set_flags():
    for name, value in {"torch._inductor.config.fallback_random": True, **FLAGS}.items():
        module, _, rest = name.partition("onfig.")
        holder = importlib.import_module(module + "onfig")
        *outer, last = rest.split(".")
        for part in outer:
            holder = getattr(holder, part)
        setattr(holder, last, value)


def widen(value):
    return (
        value.detach().double().requires_grad_(value.requires_grad)
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
    )


def facts(value):
    """What must be equal exactly."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    strides = ()
    if value.layout == torch.strided and value.numel():
        strides = tuple(step for size, step in zip(value.shape, value.stride()) if size > 1)
    found = {"shape": tuple(value.shape), "dtype": value.dtype, "device": value.device, "layout": value.layout}
    found |= {"stride": strides, "requires-grad": value.requires_grad}
    return tuple(fact for oracle, fact in found.items() if oracle not in IGNORE)


def keep(value):
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def gradients(model, inputs, leaves):
    """Gradients of inputs and parameters from a seeded cotangent (or ones, or a sum)."""
    outputs = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
    generator = torch.Generator().manual_seed(SEED)
    if COTANGENT == "seeded":
        cotangents = [torch.rand(t.shape, generator=generator).to(t.dtype).to(t.device) for t in outputs]
    else:
        cotangents = [torch.ones_like(t) for t in outputs]
    if outputs:
        torch.autograd.backward(outputs, cotangents, create_graph=ORDER > 1)
    tensors = [t for t in tree_flatten(inputs)[0] if isinstance(t, torch.Tensor)] + list(model.parameters())
    return [keep(t.grad) if t.requires_grad else None for t in tensors]


def observe(compiled=False, double=False):
    """Everything compared, of a fresh model on fresh inputs: one entry a call, the last one an error if it raised."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(SEED)
    torch.distributions.Distribution.set_default_validate_args(
        not compiled
    )  # torch.compile turns it off for the whole process
    model = make_model()
    model = model.double() if double else model
    call = torch.compile(model, **BACKEND) if compiled else model
    seen = []
    for number, make in enumerate(CALLS):
        torch.manual_seed(SEED + number)
        inputs = make()
        inputs = tree_map(widen, inputs) if double else inputs
        before = [t for t in tree_flatten(inputs)[0] if isinstance(t, torch.Tensor)]
        if GRAD == "backward":
            for tensor in before:
                if tensor.requires_grad and not tensor.is_leaf:
                    tensor.retain_grad()
        torch.manual_seed(SEED + number)
        mode = torch.no_grad() if GRAD == "off" else torch.enable_grad()
        cast = torch.autocast(DEVICE.split(":")[0], AUTOCAST) if AUTOCAST else contextlib.nullcontext()
        try:
            with mode, cast:
                result = call(*inputs)
            leaves, structure = tree_flatten(result)
            entry = {
                "structure": str(structure),
                "facts": [facts(v) for v in leaves],
                "outputs": [keep(v) for v in leaves],
            }
            entry["same objects"] = [[i for i, t in enumerate(before) if t is v] for v in leaves]
            if GRAD == "backward":
                entry["gradients"] = gradients(model, inputs, leaves)
            entry["inputs after"] = [keep(t) for t in before]
            entry["state after"] = [keep(t) for t in model.buffers()]
        except Exception as error:
            seen.append(error)
            break
        seen.append(entry)
    return seen


def close(eager, compiled, reference):
    """Upstream's rule: default tolerances, and where they fail the float64 run decides."""
    if not isinstance(eager, torch.Tensor):
        return eager == compiled or (eager != eager and compiled != compiled)
    if (eager.shape, eager.dtype) != (compiled.shape, compiled.dtype):
        return "shape" in IGNORE or "dtype" in IGNORE
    if eager.layout != torch.strided:
        eager, compiled = eager.to_dense(), compiled.to_dense()
    if EXACT or not (eager.is_floating_point() or eager.is_complex()):
        return bool(torch.equal(torch.nan_to_num(eager), torch.nan_to_num(compiled)))
    rtol, atol = TOLERANCE.get(str(eager.dtype).removeprefix("torch."), TOLERANCE.get("", (None, None)))
    default = torch.testing._comparison.default_tolerances(eager.dtype)
    rtol, atol = default[0] if rtol is None else rtol, default[1] if atol is None else atol
    if torch.allclose(eager, compiled, rtol=rtol, atol=atol, equal_nan=True):
        return True
    masks = all(
        torch.equal(mask(eager), mask(compiled))
        for mask in (torch.isnan, torch.isposinf, torch.isneginf)
        if not eager.is_complex()
    )
    wide = isinstance(reference, torch.Tensor) and reference.dtype == torch.float64
    return bool(masks and wide and not TOLERANCE and same(eager, compiled, reference, equal_nan=True))


def compare(eager, compiled, reference):
    """What differs, in words; None if nothing does."""
    for number, (mine, other) in enumerate(zip(eager, compiled)):
        where = f"call {number}: " if len(CALLS) > 1 else ""
        if isinstance(mine, Exception) or isinstance(other, Exception):
            if isinstance(mine, Exception) and isinstance(other, type(mine)):
                continue
            both = isinstance(mine, Exception) and isinstance(other, Exception)
            if isinstance(mine, Exception) and ("error-type" if both else "missing-error") in IGNORE:
                continue
            return f"{where}eager {told(mine)}, compiled {told(other)}"
        wide = reference[number] if len(reference) > number and not isinstance(reference[number], Exception) else {}
        for key, oracle in (("structure", "structure"), ("facts", ""), ("same objects", "alias")):
            if oracle not in IGNORE and mine[key] != other[key]:
                return f"{where}{key}: eager {mine[key]}, compiled {other[key]}"
        compared = {"outputs": "value", "gradients": "grad", "inputs after": "mutation", "state after": "mutation"}
        for key in (key for key, oracle in compared.items() if oracle not in IGNORE):
            references = wide.get(key, [])
            for place, (a, b) in enumerate(zip(mine.get(key, []), other.get(key, []))):
                if (a is None) != (b is None) or (
                    a is not None and not close(a, b, references[place] if place < len(references) else None)
                ):
                    return f"{where}{key}[{place}]: eager {a}, compiled {b}"
    if len(eager) != len(compiled):
        return f"eager made {len(eager)} calls, compiled {len(compiled)}"
    return None


def told(entry):
    return (
        f"raised {type(entry).__name__}: {str(entry).strip().splitlines()[:1]}"
        if isinstance(entry, Exception)
        else "returned"
    )


def main():
    torch.set_num_threads(THREADS)
    faulthandler.dump_traceback_later(TIMEOUT, exit=True)  # a hang is a failure too
    set_flags()
    eager = observe()
    if isinstance(eager[-1], Exception) != (RAISES is not None):
        print(f"eager itself {told(eager[-1])}: this case says nothing about a compiler")
        return 2
    compiled = observe(compiled=True)
    graphs, breaks = counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())
    for name, count in (("graphs", graphs), ("graph_breaks", breaks)):
        if BUDGETS.get(name) is not None and count > BUDGETS[name]:
            print(f"PROBLEM: {count} {name}, at most {BUDGETS[name]} expected")
            return 1
    problem = compare(eager, compiled, observe(double=True))
    print(f"PROBLEM: {problem}" if problem else f"no problem with torch {torch.__version__}")
    if isinstance(compiled[-1], Exception) and problem:
        raise compiled[-1]
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
