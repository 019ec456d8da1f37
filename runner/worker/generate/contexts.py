"""Families of what surrounds operators: modules, state, blocks, breaks, functions of functions, aliased inputs,
``out=``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from runner.worker.generate.chain import ELEMENTS, Chain, Function, Index, family, require
from runner.worker.generate.points import write_in_place


@family(7)
def _module(chain: Chain) -> None:
    """A module with parameters of its own. Of a frame with nn.GRU or nn.LSTM Dynamo compiles nothing."""
    require(chain.dtype.is_floating_point, "parameters have the dtype of the case")
    name = chain.word("Linear Linear LayerNorm BatchNorm1d Embedding PReLU Bilinear Conv1d GroupNorm RMSNorm")
    if name == "Embedding":
        chain.module(name, [7, chain.integer(1, 5)], chain.index([chain.integer(1, 5)], 7))
        return
    x = chain.pick(lambda t: t.dtype == chain.dtype and 2 <= t.ndim <= 3, 0.2) or chain.input(chain.shape(2, 3))
    width = x.shape[-1]
    settings: dict[str, Callable[[], list[Any]]] = {
        "Linear": lambda: [width, chain.integer(1, 7)],
        "LayerNorm": lambda: [width],
        "RMSNorm": lambda: [width],
        "PReLU": list,
        "Bilinear": lambda: [width, width, 3],
        "Conv1d": lambda: [x.shape[-2], chain.integer(1, 4), chain.integer(1, 2)],
        "GroupNorm": lambda: [1, x.shape[1]],
        "BatchNorm1d": lambda: [x.shape[1]],
    }
    chain.module(name, settings[name](), x, *([chain.like(x, same=True)] if name == "Bilinear" else []))


@family(5)
def _aliased_inputs(chain: Chain) -> None:
    """An input that is a view of another one, and a write into one of them."""
    bases = [v for v in chain.values if v.name in chain.inputs and not v.data.requires_grad and v.ndim]
    base = chain.one(*bases) if bases else chain.input(chain.shape(), grad=False, plain=True)
    require(base.name in chain.inputs and base.ndim, "no base")
    name, arguments = chain.one(
        ("Tensor.t", []),
        ("torch.select", [0, 0]),
        ("operator.getitem", [Index([slice(1, None)])]),
        ("torch.narrow", [-1, 0, 1]),
        ("torch.flatten", []),
        ("operator.getitem", [Index([Ellipsis, slice(None, None, 2)])]),
    )
    view = chain.view_input(base, name, arguments)
    if chain.chance(0.75):
        write_in_place(chain, chain.one(base, view))
    first, second = chain.one((base, view), (view, base))
    chain.call(chain.word("torch.mul torch.add operator.mul"), first, 2)
    if chain.chance(0.7):
        chain.call(chain.word("torch.neg torch.clone torch.sum"), second)


@family(6)
def _metadata_in_place(chain: Chain) -> None:
    """An operator that changes shape or strides in place."""
    x = chain.tensor(1)
    if x.name in chain.inputs or chain.chance(0.3):
        x = chain.call(chain.word("torch.clone torch.neg torch.abs"), x)
    name = chain.word(
        "t_ transpose_ squeeze_ unsqueeze_ swapaxes_ fill_diagonal_ cumsum_ triu_ tril_ index_fill_ sub_ resize_as_"
    )
    require(name != "resize_as_", "what it adds is undefined")
    operands: dict[str, Callable[[], list[Any]]] = {
        **dict.fromkeys(("transpose_", "swapaxes_"), lambda: [chain.dim(x), chain.dim(x)]),
        "unsqueeze_": lambda: [chain.integer(-x.ndim - 1, x.ndim)],
        **dict.fromkeys(("cumsum_", "squeeze_"), lambda: [chain.dim(x)]),
        "fill_diagonal_": lambda: [chain.integer(-2, 3)],
        "index_fill_": lambda: [chain.dim(x), chain.index([2], min(x.shape)), chain.integer(-2, 3)],
        "sub_": lambda: [chain.like(x)],
    }
    values = operands.get(name, list)()
    chain.do(f"Tensor.{name}", x, *values, **({"alpha": chain.one(2, -1)} if name == "sub_" else {}))
    if chain.chance(0.5):
        chain.call(chain.word("torch.mul torch.add torch.sub"), x, 2)


@family(5)
def _out_argument(chain: Chain) -> None:
    """An operator that writes its result into a tensor that is given."""
    require(not chain.backward, "out= takes no gradient")
    x = chain.real(1)
    y = chain.like(x, same=True)
    target = chain.call(chain.word("torch.zeros_like torch.empty_like torch.ones_like"), x)
    name = chain.word("torch.add torch.mul torch.maximum torch.exp torch.sin torch.cumsum torch.clamp torch.sub")
    operands = {"torch.exp": [], "torch.sin": [], "torch.cumsum": [0], "torch.clamp": [-1, 1]}.get(name, [y])
    chain.write_out(name, [x, *operands], target)
    if chain.chance(0.5):
        chain.call("torch.add", target, 1)


@family(5)
def _no_grad(chain: Chain) -> None:
    """A part of the chain without gradients."""
    context = chain.word("torch.no_grad torch.enable_grad")
    with chain.block([context], torch.no_grad() if context == "torch.no_grad" else torch.enable_grad()):
        x = chain.real(1)
        part = chain.call(chain.word("torch.sin torch.exp torch.neg torch.clone torch.sigmoid"), x)
        if chain.chance(0.5):
            chain.do(chain.word("Tensor.add_ Tensor.mul_"), part, 2)
    chain.call(chain.word("torch.mul torch.add"), part, chain.like(part))


@family(3)
def _break(chain: Chain) -> None:
    """A break of the graph between two steps."""
    x = chain.tensor(1)
    part = chain.call(chain.word("torch.neg torch.clone operator.neg torch.abs"), x)
    chain.split_graph()
    chain.call(chain.word("torch.mul torch.add"), part, 2)


@family(5)
def _function_gradient(chain: Chain) -> None:
    """A gradient or a product with a Jacobian inside the chain."""
    x = chain.real(1, 2)
    name = chain.word(
        "torch.func.grad torch.func.jacrev torch.func.jacfwd torch.func.hessian torch.func.grad_and_value "
        "torch.func.vmap"
    )
    squares = Function(
        ["t"], ["torch.sin", {"torch.mul": ["$_", "$t"]}, "torch.sum"], lambda t: (torch.sin(t) * t).sum()
    )
    rows = Function(["t"], ["torch.tanh", {"torch.cumsum": ["$_", 0]}], lambda t: torch.cumsum(torch.tanh(t), 0))
    most = {"torch.func.hessian": 12, "torch.func.jacrev": 40, "torch.func.jacfwd": 40}.get(name, ELEMENTS)
    require(x.data.numel() <= most, "too large")
    body = squares if name in ("torch.func.grad", "torch.func.hessian", "torch.func.grad_and_value") else rows
    chain.call("operator.call", chain.call(name, body), x, out=2 if name.endswith("value") else 1)


@family(6)
def _combination(chain: Chain) -> None:
    x = chain.real(1, 2)
    name = chain.word("block_diag cartesian_prod combinations meshgrid renorm cov corrcoef cdist outer vdot addr ger "
                      "atleast_3d ravel count trapz gradient fold take_rows")  # fmt: skip
    kind, rows = x.data.dtype, x.shape[0]
    pairs = ("block_diag", "cartesian_prod", "cdist", "vdot", "outer", "ger")

    def addr() -> None:
        y = chain.input([chain.integer(1, 5)], kind)
        chain.call("torch.addr", chain.input([rows, y.shape[0]], kind), x, y)

    steps: dict[str, Callable[[], Any]] = {
        **dict.fromkeys(pairs, lambda: chain.call(f"torch.{name}", x, chain.like(x, same=True))),
        "meshgrid": lambda: chain.call(
            "torch.mul",
            *chain.call("torch.meshgrid", x, chain.like(x, same=True), indexing=chain.word("ij xy"), out=2),
        ),
        "renorm": lambda: chain.call("torch.renorm", x, 2, 0, 1.5),
        "addr": addr,
        "fold": lambda: chain.call("F.fold", chain.input([1, 4, 9], kind), [4, 4], 2),
        **dict.fromkeys(("count", "take_rows"), lambda: chain.call("torch.index_select", x, 0, chain.index([3], rows))),
    }
    steps.get(name, lambda: chain.call(f"torch.{'trapz' if name == 'gradient' else name}", x))()


@family(5)
def _memory_format(chain: Chain) -> None:
    x = chain.pick(lambda t: t.ndim == 4, 0.3) or chain.input(
        [chain.integer(1, 2), chain.integer(2, 4), 4, chain.integer(3, 5)]
    )
    result = chain.call(chain.word("Tensor.contiguous Tensor.to torch.clone"), x, memory_format=torch.channels_last)
    chain.add_one(
        lambda: chain.call("torch.mul", result, chain.like(result)),
        lambda: chain.call("torch.sum", result, 1),
        lambda: chain.call("torch.zeros_like", result),
        lambda: chain.do("Tensor.fill_", chain.call("torch.empty_like", result), 2),
        lambda: chain.call("Tensor.reshape", result, [result.shape[0], -1]),
        lambda: chain.call("torch.relu", result),
        lambda: chain.call("torch.cat", [result, x], 1),
        lambda: chain.call("torch.flatten", result),
    )
