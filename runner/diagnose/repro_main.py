"""The end of every script that ``runner repro`` prints. Control reads this file as text and never imports it.

What stands above the line ``# --- script`` is for linters alone: the real values are written in its place. A line that
ends in ``#: word`` is for scripts of which the word is true (``runner/diagnose/repro.py`` knows the words), and for all
others with ``#: not word``; at the head of a function it stands for all of it.
"""

from __future__ import annotations

import torch

SEED = 0
BACKEND: dict = {"backend": "inductor"}
GRAD, ORDER = "forward", 1
AUTOCAST, DEVICE, THREADS = torch.bfloat16, "cpu", 2
DTYPE, EPSILON = torch.float32, 2**-7
TOLERANCE: dict = {}
RAISES = None
BUDGETS: dict = {}
IGNORE: list = []
TIMEOUT = 120


def set_flags() -> None:
    """Stands for the case's own."""
    torch._inductor.config.fallback_random = True


def make_model() -> torch.nn.Module:
    """Stands for the case's own."""
    return torch.nn.ReLU()


def make_inputs() -> list:
    """Stands for the case's own."""
    return [torch.randn(3)]


make_kernel_model, KERNELS = make_model, ()


CALLS = [make_inputs]

# --- script

import contextlib
import dataclasses
import faulthandler
import importlib.util
import random
import sys
import traceback

import torch._dynamo
import torch._inductor.config
from torch._dynamo.utils import clear_compilation_metrics, counters, get_compilation_metrics, same
from torch.testing._comparison import default_tolerances
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only


def fresh():  #: module
    """This file once more, so that no run sees what another left in globals."""
    spec = importlib.util.spec_from_file_location("case", __file__)
    sys.modules["case"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seed_all(seed):  #: python
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def flatten(value, path):  #: values
    """Leaves by their paths, and each container as a key of its own."""
    if isinstance(value, dict):
        parts = {f"[{key!r}]": part for key, part in value.items()}
    elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        parts = {f"[{index}]": part for index, part in enumerate(value)}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):  #: module
        parts = {f".{name}": part for name, part in vars(value).items()}  #: module
    else:
        return {path: value}
    found = {f"{path} as {type(value).__name__}": None}
    for step, part in parts.items():
        found.update(flatten(part, path + step))
    return found


def held(model, inputs):  #: values
    """What outlives a call: inputs, parameters, buffers and plain attributes."""
    found = flatten(inputs, "input")
    found.update((f"parameter {name}", value) for name, value in model.named_parameters(remove_duplicate=False))
    found.update((f"buffer {name}", value) for name, value in model.named_buffers(remove_duplicate=False))
    plain = (torch.Tensor, bool, int, float, complex, str, type(None))  #: state
    for prefix, part in model.named_modules():  #: state
        for name, value in vars(part).items():  #: state
            if not name.startswith("_") and name != "training":  #: state
                leaves = flatten(value, f"attribute {prefix}.{name}").items()  #: state
                found.update((path, leaf) for path, leaf in leaves if isinstance(leaf, plain))  #: state
    return found


def keep(value):  #: values
    """What must be equal exactly, and a copy of the elements (None where there are none)."""
    facts = {"structure": type(value).__name__}
    if isinstance(value, (float, complex)):
        return facts, torch.tensor(value, dtype=torch.complex128 if isinstance(value, complex) else torch.float64)
    if facts["structure"] == "ndarray":  #: python
        value = torch.as_tensor(value)  #: python
    if not isinstance(value, torch.Tensor):
        return facts, str(value) if type(value).__module__ == "torch" else value  # such as a dtype
    strided = value.layout == torch.strided and not value.is_nested
    facts.update(shape=() if value.is_nested else tuple(value.shape), dtype=value.dtype, device=value.device)
    facts.update({"layout": value.layout, "requires-grad": value.requires_grad})
    if strided:  # of dimensions in which there is somewhere to step to
        steps = zip(value.shape, value.stride())
        facts["stride"] = tuple(step for size, step in steps if size > 1 and value.numel())
    dense = value.detach().dequantize() if value.is_quantized else value.detach()
    if value.is_nested:
        dense = torch.cat([part.reshape(-1) for part in dense.unbind()])
    elif not strided:
        dense = dense.to_dense()
    return facts, None if value.is_meta else dense.resolve_conj().resolve_neg().cpu().clone()


def shares_memory(one, other):  #: values
    """Whether the storages overlap, be they one object or two."""
    if any(t.layout != torch.strided or t.is_nested or t.is_meta or not t.numel() for t in (one, other)):
        return False
    one, other = one.untyped_storage(), other.untyped_storage()
    end = min(one.data_ptr() + one.nbytes(), other.data_ptr() + other.nbytes())
    return max(one.data_ptr(), other.data_ptr()) < end


def gradients(outputs, sources, seed):  #: backward
    """Differentiate the outputs; the gradients of the sources."""
    found, roots = {}, [(index, t) for index, t in enumerate(outputs) if t.requires_grad]
    for order in range(1, ORDER + 1):
        if not roots:
            break
        heads = [t for _, t in roots]  #: not sum
        given = [cotangent(t, seed + index) for index, t in roots]  #: seeded
        given = [torch.ones_like(t) for t in heads]  #: ones
        heads = [(torch.view_as_real(t) if t.is_complex() else t).sum() for _, t in roots]  #: sum
        given = [None for _ in heads]  #: sum
        torch.autograd.backward(heads, given, create_graph=order < ORDER)
        roots = []
        for index, (path, t) in enumerate(sources.items()):
            found[f"gradient{f' {order}' if order > 1 else ''} of {path}"] = keep(t.grad)
            if t.grad is not None and t.grad.requires_grad:
                roots.append((index, t.grad))
            t.grad = None
    return found


def cotangent(t, seed):  #: seeded
    """Multiples of 1/128, which bfloat16 holds as float64 does."""
    if t.layout != torch.strided or t.is_nested:
        return torch.ones_like(t)
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randint(1, 129, t.shape, generator=generator) / 128 for _ in range(1 + t.is_complex())]
    return (torch.complex(*parts) if t.is_complex() else parts[0]).to(t)


def run(model, call, inputs, seed):
    """One call: all that a user can see of it, by path."""
    seen = {}
    before = {path: t for path, t in held(model, inputs).items() if isinstance(t, torch.Tensor)}  #: values
    sources = {path: t for path, t in before.items() if t.requires_grad and path[:4] != "attr"}  #: backward
    for t in sources.values():  #: backward
        t.grad = None  #: backward
        _ = None if t.is_leaf else t.retain_grad()  #: backward
    with torch.set_grad_enabled(GRAD != "off"):
        with torch.autocast(DEVICE.split(":")[0], AUTOCAST):  #: autocast
            result = call(*inputs)  #: autocast
        result = call(*inputs)  #: not autocast
    outputs = flatten(result, "output")  #: values
    for path, value in outputs.items():  #: values
        facts, _ = seen[path] = keep(value)  #: values
        if isinstance(value, torch.Tensor):  #: values
            shared = [other for other, t in before.items() if shares_memory(t, value)]  #: values
            facts["alias"] = [("is " if before[o] is value else "shares memory with ") + o for o in shared]  #: values
            if any(other.startswith("input") for other in shared):  #: values
                facts["offset"] = value.storage_offset()  #: values
            before[path] = value  #: values
    seen.update(gradients([t for t in outputs.values() if isinstance(t, torch.Tensor)], sources, seed))  #: backward
    seen["generator"] = keep(torch.get_rng_state())  #: values
    seen.update((path, keep(value)) for path, value in held(model, inputs).items())  #: values
    return seen


def become_operators():  #: operators
    """Each function that launches a kernel becomes an operator of the graph."""
    global launch

    def launch(kernel, grid, arguments, new):
        torch.library.wrap_triton(kernel)[grid](**arguments)

    for name in KERNELS:
        globals()[name] = torch.library.triton_op(f"repro::{name}", globals()[name], mutates_args=())


def observe(compiled=False, wide=False, nudged=()):
    """All calls of a fresh model on fresh inputs; the last entry is the error that ended them, if one did."""
    torch._dynamo.reset()
    counters.clear()  #: budgets
    clear_compilation_metrics()  #: budgets
    make, calls = make_model, CALLS  #: not module
    make, calls = (case := fresh()).make_model, case.CALLS  #: module
    make = make_kernel_model if compiled else make  #: kernels
    torch.manual_seed(SEED)  #: not python
    seed_all(SEED)  #: python
    model = make()
    model = model._apply(widen) if wide else model  #: float64
    for part in model.modules() if wide else ():  #: tensors
        for name, value in [*vars(part).items()]:  #: tensors
            if not name.startswith("_") and isinstance(value, (torch.Tensor, list, tuple, dict)):  #: tensors
                setattr(part, name, tree_map_only(torch.Tensor, widen, value))  #: tensors
    if compiled:  #: operators
        become_operators()  #: operators
    call = torch.compile(model, **BACKEND) if compiled else model  #: not launched
    call = model  #: launched
    seen = []
    for number, make in enumerate(calls):
        torch.manual_seed(SEED + number)  #: not python
        seed_all(SEED + number)  #: python
        inputs = make()
        inputs = tree_map_only(torch.Tensor, widen, inputs) if wide else inputs  #: float64
        if nudged:  #: rounding
            nudge((flatten(inputs, "") if number else held(model, inputs)).values(), *nudged)  #: rounding
        torch.manual_seed(SEED + number)  #: not python
        seed_all(SEED + number)  #: python
        try:
            with Wide() if wide else contextlib.nullcontext():  #: casts
                seen.append(run(model, call, inputs, SEED + number))  #: casts
            seen.append(run(model, call, inputs, SEED + number))  #: not casts
        except (Exception, SystemExit) as error:
            seen.append(error)
            break
    return seen


class Wide(TorchDispatchMode):  #: casts
    """Keeps a float64 run in float64 where the model casts to less."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is not torch.ops.aten.view.dtype:  # which reads bits
            args, kwargs = tree_map_only(torch.dtype, wider, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def wider(dtype):  #: values
    return torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else dtype


def widen(t):  #: float64
    """In float64 or complex128 if it is floating; a leaf stays a leaf."""
    wide = (t.detach() if t.is_leaf else t).to(wider(t.dtype))
    return wide.requires_grad_(t.requires_grad) if t.is_leaf else wide


def reference(eager):  #: float64
    """Eager's run in float64, or nothing if it draws random numbers, which would be others."""
    states = [torch.manual_seed(SEED + number).get_state() for number in range(len(CALLS))]
    if any(isinstance(e, dict) and not torch.equal(e["generator"][1], was) for e, was in zip(eager, states)):
        return []
    try:
        return observe(wide=True)
    except Exception:
        return []


def nudge(tensors, draw, sign):  #: rounding
    """Moves every floating element by a rounding of float32, up or down."""
    generator = torch.Generator().manual_seed(draw)
    for t in {id(t): t for t in tensors if isinstance(t, torch.Tensor)}.values():
        if t.is_floating_point() or t.is_complex():
            up = torch.randint(0, 2, t.shape, generator=generator) * 2.0 - 1
            with contextlib.suppress(RuntimeError):  # expanded
                t.detach().mul_((1 + sign * 2**-24 * up.double()).to(t.device))


def movement(wide):  #: rounding
    """By call and path: how far each element moves with the inputs; 0 where it crosses a step, such as a comparison."""
    try:
        runs = [[observe(wide=True, nudged=(draw, sign)) for sign in (1, -1)] for draw in range(6)]
        return [{p: moved(e, [[run[n][p][1] for run in pair] for pair in runs]) for p, (_, e) in seen.items()
                 if getattr(e, "dtype", None) in (torch.float64, torch.complex128)} for n, seen in enumerate(wide)]  # fmt: skip
    except Exception:
        return []


def moved(exact, pairs):  #: rounding
    smooth = [((up + down) / 2 - exact).abs() <= (up - down).abs() / 4 for up, down in pairs]
    far = torch.stack([(up - down).abs() / 2 for up, down in pairs]).square().mean(0).sqrt()
    return torch.where(torch.stack(smooth).all(0) & far.isfinite(), far, 0.0)


def kinds(t):  #: values
    """0 finite, 1 NaN, 2 infinity, 3 minus infinity; of both parts of complex elements."""
    if t.is_complex():
        return kinds(t.real) + 4 * kinds(t.imag)
    return t.isnan() * 1 + t.isposinf() * 2 + t.isneginf() * 3


def signs(t):  #: exact
    return t.real.signbit() + 2 * t.imag.signbit() if t.is_complex() else t.signbit()


def size(t):  #: values
    """Absolute values, and 0 for what is not finite."""
    return t.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs()


def unlike(eager, compiled, exact, far, dtype):  #: values
    """Masks by oracle: unequal integers, misplaced NaN and infinities, and what is off by too much."""
    if not (eager.is_floating_point() or eager.is_complex()):
        return {"value": eager.to(torch.int64) != compiled.to(torch.int64)}
    a, b = eager.to(wider(eager.dtype)), compiled.to(wider(eager.dtype))
    misplaced = kinds(a) != kinds(b)
    zeros = size(a - b) == 0  #: exact
    signed = zeros & a.isfinite() & (signs(a) != signs(b))  #: exact
    return {"nonfinite": misplaced, "value": ~misplaced & ~zeros, "sign-of-zero": ~misplaced & signed}  #: exact
    rtol, atol = default_tolerances(dtype)  #: close
    asked = TOLERANCE.get(str(dtype)[len("torch.") :], TOLERANCE.get("", (None, None)))  #: tolerance
    rtol, atol = (default if own is None else own for default, own in zip((rtol, atol), asked))  #: tolerance
    beyond = ~misplaced & (size(a - b) > atol + rtol * size(a))  #: close
    if exact is not None and exact.shape == a.shape and exact.dtype == a.dtype:  #: float64
        misplaced, beyond = excused(a, b, exact, exact.to(eager.dtype), misplaced, beyond, rtol, atol)  #: float64
        narrow = dtype in (torch.float32, torch.complex64)  #: rounding
        if far is not None and narrow and exact.isfinite()[beyond].all():  #: rounding
            limit = torch.minimum(atol + rtol * size(exact) + 128 * far, 2**-10 * size(exact).max())  #: rounding
            off = [(side - exact).abs() > limit for side in (a, b)]  #: rounding
            beyond = beyond & (off[0] | off[1] | misplaced).any()  #: rounding
    return {"nonfinite": misplaced, "value": beyond}  #: close


def excused(a, b, exact, rounded, misplaced, beyond, rtol, atol):  #: float64
    """The masks without what is about as near to float64 as eager is, by root mean square and at the worst."""
    unit = (atol + rtol * size(exact)).clamp_min(1e-300)
    factor = 3 if a.numel() < 1000 or rounded.itemsize == 2 else 2  # as torch._dynamo.utils.same has it
    misplaced = misplaced & ~((kinds(rounded) == kinds(b)) & (size(b - exact) <= factor * unit))
    finite = a.isfinite() & b.isfinite() & exact.isfinite()
    ours, theirs, unit = size(a - exact)[finite], size(b - exact)[finite], unit[finite]
    if beyond.any() and not (beyond & ~finite).any():
        measures = (lambda off: off.square().mean().sqrt(), lambda off: (off / unit).max())
        if (theirs <= unit).all() or all(m(theirs) <= factor * m(ours) for m in measures):
            beyond = beyond & False
    return misplaced, beyond


def differences(mine, other, exact, far=None):  #: values
    """(oracle, words) of two leaves."""
    (facts, eager), (others, compiled) = mine, other
    for oracle in [key for key in facts if facts[key] != others.get(key, facts[key])]:
        if oracle != "stride" or facts["shape"] == others["shape"]:
            yield oracle, f"eager {facts[oracle]}, compiled {others[oracle]}"
    if any(facts.get(key) != others.get(key) for key in ("structure", "shape", "dtype")):
        return
    if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
        comparable = type(eager).__eq__ is not object.__eq__ and "shape" not in facts
        if comparable and not (eager is compiled or eager == compiled):
            yield "value", f"eager {eager}, compiled {compiled}"
        return
    if eager.shape != compiled.shape:  # the parts of nested tensors
        yield "shape", f"eager {tuple(eager.shape)}, compiled {tuple(compiled.shape)} elements"
        return
    if torch.equal(eager.reshape(-1).view(torch.uint8), compiled.reshape(-1).view(torch.uint8)):
        return
    for oracle, wrong in unlike(eager, compiled, exact, far, facts.get("dtype", DTYPE)).items():
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            words = f"{wrong.sum()} of {wrong.numel()} differ, at {at} eager {eager[at]}, compiled {compiled[at]}"
            if eager.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
                words += f" (torch._dynamo.utils.same: {same(eager, compiled, exact)})"
                off, scale = size(eager.double() - compiled.double())[wrong].max(), size(eager.double()).max()  #: low
                words += ", by some roundings" if off <= 16 * EPSILON * scale else ""  #: low
            yield oracle, words


def of_values(mine, other, wide, far):  #: values
    """(oracle, words) of a call that returned."""
    oracles = {"output": "", "gradient": "grad", "generator": "rng"}
    for path in {**mine, **other}:
        kind = next((kind for word, kind in oracles.items() if path.startswith(word)), "mutation")
        if path not in mine or path not in other:
            yield kind or "structure", f"{path}: only {'eager' if path in mine else 'compiled'} has it"
            continue
        for oracle, words in differences(mine[path], other[path], wide.get(path, ({}, None))[1], far.get(path)):
            yield kind or oracle, f"{path}: {oracle + ', ' if kind else ''}{words}"


def of_errors(mine, other):
    """(oracle, words) of a call in which either raised. A compiler's own error is never the model's."""
    words = f"eager {told(mine)}, compiled {told(other)}"
    if not isinstance(other, BaseException):
        yield "missing-error", words
    elif not isinstance(mine, BaseException):
        yield "error", words
    else:
        bases = {(base.__module__, base.__qualname__) for base in type(other).__mro__}
        own = any(name.startswith(("torch._dynamo", "torch._inductor", "torch._functorch")) for name, _ in bases)
        own = own and not isinstance(other, torch._dynamo.exc.TorchRuntimeError)
        if own or (type(mine).__module__, type(mine).__qualname__) not in bases:
            yield "error-type", words


def told(entry):
    if not isinstance(entry, BaseException):
        return "returned"
    return f"raised {type(entry).__name__}: {(str(entry).strip().splitlines() or [''])[0]}"


def compare(eager, compiled, wide=(), far=()):
    """(oracle, words) of everything that differs, but for what the case ignores."""
    for number, (mine, other) in enumerate(zip(eager, compiled)):
        raised = isinstance(mine, BaseException) or isinstance(other, BaseException)
        found = of_errors(mine, other) if raised else ()
        if not raised:  #: values
            references = (runs[number] if len(runs) > number else {} for runs in (wide, far))  #: values
            found = of_values(mine, other, *references)  #: values
        for oracle, words in found:
            if oracle not in IGNORE:
                yield oracle, f"call {number}, {words}" if len(CALLS) > 1 else words


def by_rounding(eager, wide, problems):  #: low
    """Whether small differences of a low precision are gone once Inductor rounds where eager does."""
    if any(oracle not in ("value", "grad") or "by some roundings" not in words for oracle, words in problems):
        return False
    torch._inductor.config.emulate_precision_casts = True
    return not [*compare(eager, observe(compiled=True), wide)]


def over_budget():  #: budgets
    """(oracle, words) of what torch compiled more often than the case allows."""
    ids = {str(metrics.compile_id).partition("_")[0] for metrics in get_compilation_metrics()}
    counts = {"graphs": counters["stats"]["unique_graphs"], "graph_breaks": sum(counters["graph_break"].values())}
    counts["recompiles"] = sum("/" in name and not name.endswith("/0") for name in ids)
    for name, (oracle, bound) in BUDGETS.items():
        if counts[name] > bound:
            yield oracle, f"{counts[name]} {name}, at most {bound} expected"


def main():
    torch.set_num_threads(THREADS)
    faulthandler.enable()
    faulthandler.dump_traceback_later(TIMEOUT, exit=True)  # a hang is a failure too
    set_flags()  #: not flags
    try:  #: flags
        set_flags()  #: flags
    except AttributeError as error:  #: flags
        print(f"torch {torch.__version__} lacks a flag: {error}")  #: flags
        return 2  #: flags
    eager = observe()
    if isinstance(eager[-1], BaseException) != (RAISES is not None):
        print(f"eager itself {told(eager[-1])}: this case says nothing about a compiler")
        return 2
    print(f"torch {torch.__version__}: eager {told(eager[-1])}", flush=True)  # the last word if the process dies now
    compiled = observe(compiled=True)
    error = compiled[-1] if isinstance(compiled[-1], BaseException) else None
    excess = [] if error else [*over_budget()]  #: budgets
    problems = [*compare(eager, compiled)]
    wide = []  #: low
    if any(oracle in ("value", "nonfinite", "grad", "mutation") for oracle, _ in problems):  #: float64
        wide = reference(eager)  #: float64
        problems = [*compare(eager, compiled, wide)]  #: float64
    if any(oracle in ("value", "grad", "mutation") for oracle, _ in problems):  #: rounding
        problems = [*compare(eager, compiled, wide, movement(wide))]  #: rounding
    if problems and by_rounding(eager, wide, problems):  #: low
        print("nothing differs under emulate_precision_casts: Inductor rounds less often than eager")  #: low
        problems = []  #: low
    problems += excess  #: budgets
    for oracle, words in problems:
        print(f"PROBLEM: {oracle}: {words}")
    if not problems:
        print("no problem")
    elif error:
        traceback.print_exception(type(error), error, error.__traceback__)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
