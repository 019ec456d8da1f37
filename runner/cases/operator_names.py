"""The names of operators: which there are, which of them mean one operator, and which a case calls.

A claim of a backend and a word of ``-k`` are patterns of such names. ``F.gelu``, ``nn.GELU`` and ``aten.gelu`` mean one
operator: torch calls function, method, module and operator of ATen alike, but for the exceptions of a table here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from fnmatch import translate
from functools import cache, lru_cache

from runner.cases.model import Case, PythonModule
from runner.cases.python_files import read_calls
from runner.cases.torch_names import inventory, with_namespace
from runner.cases.walk import all_steps
from runner.diagnostics import nearest
from runner.files import read_text

# Python's own operators: how many operands, and how it is written.
BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and_": "&", "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "is_": "is", "is_not": "is not",
}  # fmt: skip
UNARY = {"neg": "-", "pos": "+", "invert": "~", "inv": "~", "not_": "not "}
IN_PLACE = {
    "iadd": "+=", "isub": "-=", "imul": "*=", "itruediv": "/=", "ifloordiv": "//=", "imod": "%=", "ipow": "**=",
    "imatmul": "@=", "iand": "&=", "ior": "|=", "ixor": "^=", "ilshift": "<<=", "irshift": ">>=",
}  # fmt: skip
SPECIAL = {"getitem": 2, "setitem": 3, "delitem": 2, "contains": 2, "call": None, "abs": 1, "truth": 1, "index": 1,
           "assert_": 1}  # fmt: skip

BUILTINS = ("int", "float", "bool", "len", "tuple", "list", "print", "abs", "min", "max", "sum", "range", "round",
            "isinstance", "complex", "slice", "zip", "enumerate", "dict")  # fmt: skip

CONTEXTS = ("torch.no_grad", "torch.enable_grad", "torch.inference_mode", "torch.set_grad_enabled", "torch.autocast",
            "torch.amp.autocast", "torch.device")  # fmt: skip

CHECKS = tuple(f"torch._check{kind}" for kind in
               ("", "_index", "_is_size", "_not_implemented", "_tensor_all", "_type", "_value"))  # fmt: skip
"""Functions of torch that raise unless a condition holds."""

EXTRA = (*CHECKS, "torch._higher_order_ops.associative_scan", "torch._higher_order_ops.scan", "torch.autograd.grad",
         "torch.utils.checkpoint.checkpoint", "torch._dynamo.graph_break",
         "torch.autograd.functional.jacobian", "torch.autograd.functional.hessian", "torch.autograd.functional.vjp",
         "torch.autograd.functional.jvp")  # fmt: skip

TENSOR_NOT_FIRST = frozenset({
    "FloatTensor", "LongTensor", "Size", "Tensor", "arange", "as_tensor", "asarray", "bartlett_window",
    "blackman_window", "broadcast_shapes", "can_cast", "cond", "einsum", "empty", "empty_permuted", "empty_quantized",
    "empty_strided", "eye", "fft.fftfreq", "fft.rfftfreq", "finfo", "from_numpy", "full", "hamming_window",
    "hann_window", "iinfo", "is_tensor", "is_vulkan_available", "kaiser_window", "linspace", "logspace", "normal",
    "ones", "polygamma", "promote_types", "rand", "randint", "randn", "randperm", "range", "result_type",
    "scalar_tensor", "special.polygamma", "sparse_bsc_tensor", "sparse_bsr_tensor", "sparse_compressed_tensor",
    "sparse_coo_tensor", "sparse_csc_tensor", "sparse_csr_tensor", "sym_constrain_range",
    "sym_constrain_range_for_size", "sym_float", "sym_int", "sym_max", "sym_min", "sym_not", "tensor", "tril_indices",
    "triu_indices", "vmap", "while_loop", "zeros",
})  # fmt: skip
"""Functions of torch whose first argument need not be a tensor."""

SUBNAMESPACES = ("special", "linalg", "fft", "sparse", "signal.windows", "nested", "masked", "func", "nn.utils.rnn",
                 "distributions", "nn.attention.flex_attention")  # fmt: skip

SPACES: Mapping[str, str] = {
    **{name: name for name in ("torch", "Tensor", "F", "nn")},
    **{name: f"torch.{name}" for name in SUBNAMESPACES},
    **{name: name for name in ("aten", "prims", "numpy")},
}
"""The lists of operators' names, and how a case writes each of them."""

_OTHER_NAMES = {
    "F.unfold": "im2col", "F.fold": "col2im", "F.cross_entropy": "cross_entropy_loss", "F.grid_sample": "grid_sampler",
    "F.logsigmoid": "log_sigmoid", "operator.truediv": "div", "operator.floordiv": "floor_divide",
    "operator.mod": "remainder", "operator.pos": "positive", "operator.and_": "bitwise_and",
    "operator.or_": "bitwise_or", "operator.xor": "bitwise_xor", "operator.invert": "bitwise_not",
    "operator.inv": "bitwise_not", "operator.lshift": "bitwise_left_shift", "operator.rshift": "bitwise_right_shift",
    "nn.BCELoss": "binary_cross_entropy", "nn.BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    **{f"nn.{kind}Pad{n}d": "pad" for n in (1, 2, 3) for kind in ("Circular", "Constant", "Reflection", "Replication",
       "Zero")},
}  # fmt: skip
"""What ATen calls by another name."""

_OF_MODULES = re.compile(r"^lazy|(\dd|loss(2d)?)$")
"""What the name of a module has and that of its function may lack."""


_SHORT = {"torch.nn.functional.": "F.", "torch.nn.": "nn.", "torch.ops.aten.": "aten.", "torch.ops.prims.": "prims.",
          "torch.ops.": "custom.", "torch.": "torch.", "operator.": "operator."}  # fmt: skip
"""How a case writes what Python has by longer names; the first that fits."""


@lru_cache(10_000)
def takes_tensor(operator: str) -> bool:
    """Return whether the first argument of a function, a method or a submodule of this name is a tensor or holds
    some."""
    space, _, member = operator.partition(".")
    return space in ("F", "Tensor", "self") or (
        space == "torch"
        and member.rpartition(".")[0] in ("", "special", "linalg", "fft")
        and member not in TENSOR_NOT_FIRST
        and operator not in (*CONTEXTS, *CHECKS)
    )


def without_overload(operator: str) -> str:
    """Return ``aten.add`` for ``aten.add.Tensor``; other names stay."""
    return ".".join(operator.split(".")[:2]) if operator.startswith(("aten.", "prims.")) else operator


@cache
def names_of(operator: str) -> tuple[str, ...]:
    """Return every name of an operator, the given one first; of one in place those of its plain form too."""
    shared = shared_name(operator)
    groups = (_groups().get(name, ()) for name in (shared, shared.removesuffix("_")))
    return tuple(dict.fromkeys([operator, without_overload(operator), *(name for group in groups for name in group)]))


@cache
def _groups() -> dict[str, list[str]]:
    """Return the names that a case may write, by what they share."""
    lists = inventory()
    names = [f"{prefix}.{name}" for space, prefix in SPACES.items() for name in lists[space]]
    names += [f"Tensor.{name}" for name in lists["attributes"]] + [f"builtin.{name}" for name in BUILTINS]
    names += [f"operator.{name}" for name in (*BINARY, *UNARY, *IN_PLACE, *SPECIAL)]
    groups: dict[str, list[str]] = {}
    for name in (*names, *CONTEXTS, *EXTRA):
        groups.setdefault(shared_name(name), []).append(name)
    return groups


def shared_name(operator: str) -> str:
    """Return what the names of one operator share: its name in ATen if there is one."""
    space, _, member = without_overload(operator).partition(".")
    if space == "operator" and member in IN_PLACE:
        plain = member[1:] if member[1:] in BINARY else f"{member[1:]}_"
        return f"{shared_name(f'operator.{plain}')}_"
    if operator in _OTHER_NAMES:
        return _OTHER_NAMES[operator]
    if space == "nn":
        function = _function_of(member)
        return shared_name(function) if function else operator
    part, _, function = member.partition(".")
    if space == "torch" and part in ("special", "linalg", "fft"):
        return f"{part}_{function}"
    is_joined = space in ("aten", "F", "Tensor", "torch") or (space == "operator" and member in inventory()["aten"])
    return member if is_joined and not function else operator


def _function_of(module: str) -> str:
    """Return the function that does what a module of ``torch.nn`` does, by its name; empty without one."""
    word = module.lower()
    words = (word, word.removeprefix("lazy"), _OF_MODULES.sub("", word))
    return next((_functions()[word] for word in words if word in _functions()), "")


@cache
def _functions() -> dict[str, str]:
    """Return the functions of ``torch`` and ``F``, by their names without underscores."""
    names = ((space, name) for space in ("torch", "F") for name in inventory()[space] if not name.endswith("_"))
    return {name.replace("_", ""): f"{space}.{name}" for space, name in names}


_LATEST: list[tuple[Case, tuple[str, ...], tuple[str, ...]]] = []
"""The case that was asked about last, what it calls, and all names of that: its variants come one after another."""


def _of_case(case: Case) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not _LATEST or _LATEST[0][0] is not case:
        calls = tuple(
            dict.fromkeys([*(step.operator for step in all_steps(case.chain)), *_calls_of_model(case.module)])
        )
        _LATEST[:] = [(case, calls, tuple(dict.fromkeys(name for call in calls for name in names_of(call))))]
    return _LATEST[0][1:]


def calls_of(case: Case) -> tuple[str, ...]:
    """Return the operators that a case calls, as it writes them, in its model in Python as far as the text says so."""
    return _of_case(case)[0]


def operators_of(case: Case) -> tuple[str, ...]:
    """Return all names of the operators that a case calls, in its model in Python as far as the text says so."""
    return _of_case(case)[1]


def operators_like(case: Case, patterns: tuple[str, ...]) -> Iterator[str]:
    """Yield the operators, as the case calls them, that have a name which one of the patterns matches."""
    return (call for call in _of_case(case)[0] if _is_like(call, patterns)) if patterns else iter(())


def _calls_of_model(module: PythonModule | None) -> Iterator[str]:
    """Yield the operators that a model in Python calls by names of torch, as cases write these."""
    try:
        calls = read_calls(read_text(module.file), module.name) if module else ()
    except (OSError, ValueError):  # the run will say what is wrong with it
        return
    for call in calls:
        names = (short + call.removeprefix(start) for start, short in _SHORT.items() if call.startswith(start))
        yield from itertools.islice(filter(_is_known, names), 1)


def _is_known(name: str) -> bool:
    return name.startswith("custom.") or without_overload(name) in _groups().get(shared_name(name), ())


@lru_cache(10_000)
def _is_like(operator: str, patterns: tuple[str, ...]) -> bool:
    return any(map(re.compile("|".join(map(translate, patterns))).match, names_of(operator)))


@cache
def known_names() -> tuple[str, ...]:
    """Return every name of an operator that a case may write, those of overloads too."""
    overloads = (
        f"{space}.{name}.{overload}"
        for space in ("aten", "prims")
        for name, every in inventory()[space].items()
        for overload in every
    )
    return (*itertools.chain(*_groups().values()), *overloads)


def pattern_hint(pattern: str) -> str | None:
    """Return None for a pattern that matches an operator, or may match one of a package; else what to write
    instead."""
    names = known_names()
    if pattern.startswith(("custom.", "triton.")) or any(map(re.compile(translate(pattern)).match, names)):
        return None
    space, _, member = re.sub("[*?]", "", pattern).rpartition(".")
    members = [name[len(space) + 1 :] for name in names if space and name.startswith(f"{space}.")]
    alike = [name for name in members if name[0] == member[:1]]  # a comparison takes long, so the likely ones first
    near = nearest(member, alike) or nearest(member, members)
    return near.replace("'", f"'{space}.", 1) or with_namespace(member) or "such as F.conv* or aten.addmm"
