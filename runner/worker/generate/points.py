"""Families of pointwise operators: arithmetic, comparisons, casts, creation, complex and random numbers, in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from runner.worker.generate.chain import Chain, Literal, Value, family, require

SMOOTH = (
    "torch.sin", "torch.cos", "torch.tanh", "torch.sigmoid", "torch.atan", "torch.erf", "torch.asinh", "torch.neg",
    "torch.square", "torch.exp2", "torch.expm1", "torch.sinc", "torch.special.i0e", "torch.special.erfcx",
    "torch.special.entr", "torch.deg2rad", "torch.rad2deg", "torch.positive", "torch.special.expit", "torch.exp",
    "torch.special.ndtr", "torch.erfc", "torch.special.bessel_j0", "torch.special.i1e", "Tensor.clone",
)  # fmt: skip
STEPPED = (
    "torch.floor",
    "torch.ceil",
    "torch.round",
    "torch.trunc",
    "torch.sign",
    "torch.frac",
    "torch.abs",
    "torch.signbit",
)
ACTIVATIONS = (
    "F.gelu", "F.silu", "F.softplus", "F.elu", "F.mish", "F.logsigmoid", "F.hardswish", "F.softsign", "F.leaky_relu",
    "F.relu", "F.relu6", "F.selu", "F.celu", "F.hardtanh", "F.hardsigmoid", "F.tanhshrink", "F.softshrink",
    "F.hardshrink",
)  # fmt: skip
GUARDED = (
    ("torch.log", 0.1, 9.0), ("torch.sqrt", 0.01, 9.0), ("torch.rsqrt", 0.1, 9.0), ("torch.reciprocal", 0.2, 9.0),
    ("torch.log1p", -0.5, 9.0), ("torch.log2", 0.1, 9.0), ("torch.log10", 0.1, 9.0), ("torch.asin", -0.9, 0.9),
    ("torch.acos", -0.9, 0.9), ("torch.atanh", -0.9, 0.9), ("torch.acosh", 1.1, 9.0), ("torch.lgamma", 0.5, 9.0),
    ("torch.digamma", 0.5, 9.0), ("torch.logit", 0.1, 0.9), ("torch.erfinv", -0.9, 0.9), ("torch.tan", -1.2, 1.2),
    ("torch.sinh", -4.0, 4.0), ("torch.cosh", -4.0, 4.0), ("torch.special.ndtri", 0.1, 0.9), ("torch.special.log_ndtr",
        -4.0, 4.0),
)  # fmt: skip


@family(14)
def _unary(chain: Chain) -> None:
    chain.call(chain.one(*SMOOTH, *STEPPED), chain.real())


@family(6)
def _activation(chain: Chain) -> None:
    x = chain.real()
    if not chain.chance(0.2):
        chain.call(chain.one(*ACTIVATIONS), x)
        return
    chain.add_one(
        lambda: chain.call("F.prelu", x, Literal([chain.one(0.25, 0.5)], x.data.dtype)),
        lambda: chain.call("F.threshold", x, 0.25, -1.5),
        lambda: chain.call("F.glu", x, chain.dim(x)),
        lambda: chain.call("F.gelu", x, approximate="tanh"),
        lambda: chain.call("F.leaky_relu", x, 0.3),
        lambda: chain.call("F.softplus", x, 2, 3),
        lambda: chain.call("F.rrelu", x),
    )


@family(8)
def _guarded(chain: Chain) -> None:
    name, low, high = chain.one(*GUARDED)
    chain.call(name, chain.call("torch.clamp", chain.real(), low, high))


@family(16)
def _binary(chain: Chain) -> None:
    x = chain.tensor()
    y = chain.like(x)
    x, y = (y, x) if chain.chance(0.3) else (x, y)
    name = chain.word(
        "torch.add torch.sub torch.mul torch.maximum torch.minimum operator.add operator.mul operator.sub "
        "torch.atan2 torch.hypot torch.fmax torch.fmin torch.copysign torch.rsub torch.logaddexp torch.ldexp "
        "torch.heaviside torch.nextafter torch.xlogy torch.float_power torch.fmod torch.remainder "
        "torch.true_divide operator.truediv torch.dist torch.polar"
    )
    scales = name in ("torch.add", "torch.sub", "torch.rsub") and chain.chance(0.3)
    chain.call(name, x, y, **({"alpha": chain.one(2, -1, 3)} if scales else {}))


@family(8)
def _scalar(chain: Chain) -> None:
    x = chain.tensor()
    number = chain.number() if x.floating and chain.chance(0.8) else chain.integer(-3, 3)
    name = chain.word(
        "operator.add operator.mul operator.sub torch.mul torch.add operator.truediv torch.pow "
        "torch.remainder torch.fmod torch.clamp_min torch.clamp_max operator.floordiv operator.mod"
    )
    if name == "torch.pow":
        number = chain.one(2, 3, 0, 1)
    is_reflected = chain.chance(0.15) and name.startswith("operator")
    chain.call(name, *((number, x) if is_reflected else (x, number)))


@family(6)
def _ternary(chain: Chain) -> None:
    x = chain.tensor()
    y, z = chain.like(x), chain.like(x)
    name = chain.word("torch.addcmul torch.addcdiv torch.lerp torch.clamp torch.where torch.addcmul")
    steps: dict[str, Callable[[], Any]] = {
        "torch.addcdiv": lambda: chain.call(
            name, x, z, chain.call("torch.clamp", chain.like(x), 0.5, 4), value=chain.number()
        ),
        "torch.addcmul": lambda: chain.call(
            name, x, y, z, value=chain.number() if x.floating else chain.integer(-2, 3)
        ),
        "torch.where": lambda: chain.call(name, chain.mask(x), y, z),
        "torch.clamp": lambda: chain.call(
            name, x, chain.one(-1.5, -0.25, 0.5) if x.floating else chain.integer(-4, 1), chain.number() + 4
        ),
        "torch.lerp": lambda: chain.call(name, x, y, z if chain.chance(0.4) else chain.one(0.25, 0.5, 2.0)),
    }
    steps[name]()


@family(9)
def _integer(chain: Chain) -> None:
    x = chain.whole()
    name = chain.word(
        "torch.floor_divide torch.remainder torch.fmod operator.mod operator.floordiv torch.gcd torch.lcm "
        "torch.mul torch.sub torch.square torch.neg torch.abs torch.sign torch.div torch.bitwise_not "
        "torch.clamp torch.pow torch.floor_divide"
    )
    unary = ("torch.square", "torch.neg", "torch.abs", "torch.sign", "torch.bitwise_not")
    operands: dict[str, Callable[[], tuple[Any, ...]]] = {
        **dict.fromkeys(unary, tuple),
        **dict.fromkeys(("torch.gcd", "torch.lcm", "torch.mul", "torch.sub"), lambda: (chain.like(x),)),
        "torch.clamp": lambda: (chain.integer(-5, 0), chain.integer(1, 6)),
        "torch.pow": lambda: (chain.integer(0, 3),),
        "torch.div": lambda: (chain.one(2, 3, -3),),
    }
    more = operands.get(name, lambda: (chain.one(2, 3, -2, -3, 5, 7),))()
    chain.call(name, x, *more, **({"rounding_mode": chain.one("floor", "trunc")} if name == "torch.div" else {}))


@family(6)
def _bitwise(chain: Chain) -> None:
    x = chain.whole() if chain.chance(0.7) else chain.mask(chain.tensor(1, 3))
    name = chain.word("torch.bitwise_and torch.bitwise_or torch.bitwise_xor operator.and_ operator.xor shift")
    if name == "shift":
        name = chain.one("torch.bitwise_left_shift", "torch.bitwise_right_shift", "operator.lshift", "operator.rshift")
        chain.call(name, x, chain.integer(0, 4))
    elif chain.chance(0.6):
        chain.call(name, x, chain.like(x))
    else:
        chain.call(name, x, 1 if x.data.dtype == torch.bool else chain.integer(1, 9))


@family(7)
def _comparison(chain: Chain) -> None:
    x = chain.tensor()
    name = chain.word(
        "torch.gt torch.lt torch.ge torch.le torch.eq torch.ne operator.gt operator.eq torch.isclose "
        "torch.isfinite torch.isnan torch.logical_not torch.logical_and torch.logical_xor torch.isposinf "
        "torch.signbit"
    )
    if name in ("torch.isfinite", "torch.isnan", "torch.logical_not", "torch.isposinf", "torch.signbit"):
        chain.call(name, x)
    else:
        other = chain.like(x) if chain.chance(0.6) or "logical" in name or "close" in name else chain.integer(-1, 2)
        chain.call(name, x, other)


@family(8)
def _where(chain: Chain) -> None:
    x = chain.tensor(1)
    mask = chain.mask(x)
    chain.add_one(
        lambda: chain.call("torch.where", mask, x, chain.like(x)),
        lambda: chain.call("torch.where", mask, x, chain.number() if x.floating else chain.integer(-3, 3)),
        lambda: chain.call("torch.masked_fill", x, mask, chain.integer(-2, 2)),
        lambda: (
            chain.call("torch.nan_to_num", x)
            if x.floating
            else chain.call("torch.where", mask, chain.integer(-3, 3), x)
        ),
        lambda: chain.call("operator.mul", x, mask),
    )


@family(10)
def _cast(chain: Chain) -> None:
    x = chain.tensor()
    kind = chain.one(
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.int64,
        torch.int32,
        torch.bool,
        torch.uint8,
        torch.int8,
    )
    if kind == torch.uint8 and x.data.dtype != torch.bool:
        x = chain.call("torch.abs", x)
    if chain.chance(0.35):  # there and back
        lowered = chain.call("Tensor.to", x, chain.one(torch.float16, torch.bfloat16, torch.float32, torch.int32))
        if chain.chance(0.5) and lowered.floating:
            lowered = chain.call(chain.one("torch.mul", "torch.add"), lowered, chain.number())
        chain.call("Tensor.to", lowered, x.data.dtype)
    elif chain.chance(0.2):
        chain.call(
            chain.word("Tensor.half Tensor.float Tensor.double Tensor.long Tensor.bfloat16 Tensor.int Tensor.bool"), x
        )
    elif chain.chance(0.8):
        chain.call(chain.one("Tensor.to", "Tensor.type"), x, kind)
    else:
        chain.call("Tensor.type_as", x, chain.tensor())


@family(5)
def _cast_reduce(chain: Chain) -> None:
    x = chain.real(1)
    lowered = chain.call("Tensor.to", x, chain.one(torch.float16, torch.bfloat16, torch.float64, torch.float32))
    name = chain.word("torch.sum torch.mean torch.amax torch.softmax torch.cumsum torch.prod")
    over = chain.dim(x)
    if name != "torch.amax" and chain.chance(0.5):
        chain.call(name, lowered, over, dtype=chain.one(torch.float32, torch.float64))
    else:
        chain.call("Tensor.to", chain.call(name, lowered, over), x.data.dtype)


@family(8)
def _creation(chain: Chain) -> None:
    x = chain.tensor(1)
    sizes, kind = chain.sizes(x), x.data.dtype

    def last_sizes() -> list[Any]:
        return sizes[-chain.integer(1, len(sizes)) :]

    result = chain.add_one(
        lambda: chain.call("torch.zeros_like", x),
        lambda: chain.call("torch.ones_like", x),
        lambda: chain.call("torch.full_like", x, chain.integer(-2, 3)),
        lambda: chain.call("Tensor.new_zeros", x, last_sizes()),
        lambda: chain.call("Tensor.new_ones", x, last_sizes()),
        lambda: chain.call("Tensor.new_full", x, last_sizes(), chain.integer(-2, 3)),
        lambda: chain.call("torch.arange", sizes[-1], dtype=torch.int64 if kind == torch.bool else kind),
        lambda: chain.call("torch.linspace", -1, 1, sizes[-1]),
        lambda: chain.call("torch.eye", sizes[-1], dtype=kind),
        lambda: chain.do("Tensor.fill_", chain.call("torch.empty_like", x), chain.integer(-2, 3)),
        lambda: chain.call("torch.full", sizes, chain.number()),
        lambda: chain.call("torch.scalar_tensor", chain.number()),
    )
    if chain.chance(0.8):
        chain.call(chain.word("torch.add torch.mul operator.mul operator.sub torch.maximum"), x, result)


@family(5)
def _complex(chain: Chain) -> None:
    z = chain.pick(lambda t: t.is_complex(), 0.3) or chain.input(
        chain.shape(), torch.complex64, plain=chain.chance(0.7)
    )
    name = chain.word(
        "torch.view_as_real torch.abs torch.angle torch.conj Tensor.real Tensor.imag torch.mul torch.add "
        "torch.exp torch.sum torch.conj_physical torch.sin torch.resolve_conj torch.complex torch.sgn "
        "Tensor.adjoint Tensor.mH torch.square"
    )
    z = chain.real(fresh=0.4) if name == "torch.complex" else z
    result = chain.call(name, z, *([chain.like(z)] if name in ("torch.mul", "torch.add", "torch.complex") else []))
    if name == "torch.conj" and chain.chance(0.5):
        chain.call(chain.one("torch.mul", "Tensor.imag", "torch.add"), result, *([2] if chain.chance(0.5) else []))


@family(5)
def _random(chain: Chain) -> None:
    x = chain.real()
    name = chain.word(
        "F.dropout torch.rand_like torch.bernoulli torch.randn_like F.alpha_dropout Tensor.normal_ "
        "torch.randint_like F.dropout Tensor.uniform_ F.dropout1d Tensor.bernoulli_"
    )
    if "dropout" in name:
        chain.call(name, x, p=chain.one(0.5, 0.2, 0.0), training=chain.chance(0.9))
    elif name == "torch.bernoulli":
        chain.call(name, chain.call("torch.sigmoid", x))
    elif name.startswith("Tensor."):
        chain.call("torch.add", chain.do(name, chain.call("torch.clone", x)), x)
    elif name == "torch.randint_like":
        chain.call("torch.add", chain.call(name, x, 0, 10), x)
    else:
        chain.call("torch.mul", chain.call(name, x), x)


IN_PLACE = (
    "Tensor.add_",
    "Tensor.mul_",
    "Tensor.sub_",
    "operator.iadd",
    "operator.imul",
    "operator.isub",
    "Tensor.copy_",
    "Tensor.clamp_",
    "Tensor.fill_",
    "Tensor.neg_",
    "Tensor.abs_",
    "Tensor.zero_",
    "Tensor.relu_",
    "Tensor.sigmoid_",
    "Tensor.div_",
    "Tensor.addcmul_",
    "Tensor.masked_fill_",
    "Tensor.floor_",
    "Tensor.tanh_",
    "Tensor.lerp_",
    "Tensor.pow_",
    "Tensor.remainder_",
    "Tensor.where",
    "Tensor.square_",
    "Tensor.exp2_",
    "Tensor.cos_",
    "Tensor.clamp_min_",
)

ARITHMETIC = ("Tensor.add_", "Tensor.mul_", "Tensor.sub_", "operator.iadd", "operator.imul", "operator.isub",
              "Tensor.copy_")  # fmt: skip
"""Those that take a tensor or a number; ``copy_`` a tensor alone."""


def write_in_place(chain: Chain, x: Value) -> Value:
    """Change ``x`` by an operator that works in place."""
    name = chain.one(*IN_PLACE)
    number = chain.number() if x.floating else chain.integer(-3, 3)
    require(name != "Tensor.where", "not in place")
    if name in ARITHMETIC:
        return chain.do(name, x, chain.like(x) if chain.chance(0.6) or name == "Tensor.copy_" else number)
    others: dict[str, Callable[[], tuple[Any, ...]]] = {
        "Tensor.clamp_": lambda: (-1, 2),
        "Tensor.fill_": lambda: (number,),
        "Tensor.clamp_min_": lambda: (number,),
        "Tensor.div_": lambda: (2 if x.floating else 3,),
        "Tensor.remainder_": lambda: (2 if x.floating else 3,),
        "Tensor.pow_": lambda: (2,),
        "Tensor.addcmul_": lambda: (chain.like(x), chain.like(x)),
        "Tensor.masked_fill_": lambda: (chain.mask(x), number),
        "Tensor.lerp_": lambda: (chain.like(x), 0.25),
    }
    options = {"value": number} if name == "Tensor.addcmul_" else {}
    return chain.do(name, x, *others.get(name, tuple)(), **options)


@family(10)
def _in_place(chain: Chain) -> None:
    x = chain.pick(lambda t: True, 0.0) or chain.tensor()
    if (x.data.requires_grad and x.data.is_leaf) or (chain.backward and chain.chance(0.3)):
        x = chain.call("torch.clone", x)
    write_in_place(chain, x)


@family(5)
def _input_mutation(chain: Chain) -> None:
    inputs = [value for value in chain.values if value.name in chain.inputs and not value.data.requires_grad]
    require(inputs, "no input may be changed")
    x = write_in_place(chain, chain.one(*inputs))
    if chain.chance(0.4):
        chain.call(chain.one("operator.mul", "torch.add"), x, 2)
