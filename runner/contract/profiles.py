"""What kinds of cases may be drawn: how long, of which dtypes and families, and how often each setting.

Needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_FLOATS = {"float32": 60, "float64": 10, "float16": 14, "bfloat16": 16}
_MODES = ("default", "reduce-overhead", "max-autotune-no-cudagraphs")

_WRITES = ("in_place", "input_mutation", "write_view", "setitem", "aliased_inputs", "metadata_in_place", "out_argument",
           "index_write", "scatter", "mask")  # fmt: skip
_VIEWS = ("view", "reshape", "memory_format", "as_strided", "split", "cat", "write_view", "repeat", "roll", "triangle",
          "scatter_view", "getitem")  # fmt: skip
_LEARNING = ("module", "loss", "norm", "convolution", "pool", "attention", "embedding", "matmul", "softmax",
    "activation",
             "no_grad", "cast_reduce", "autocast")  # fmt: skip
_SIZES = ("unknown_size", "number", "reshape", "split", "creation", "pad", "repeat", "cat", "interpolate", "reduction")
_KERNELS = ("matmul", "convolution", "norm", "softmax", "attention", "reduction", "cumulative", "sort", "scatter",
            "index_write", "cast_reduce", "pool", "random", "embedding", "autocast")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of case. Shares are from 0 to 1; what sizes, layouts and operators a case has is drawn besides."""

    summary: str
    length: tuple[int, int] = (3, 8)  # steps, at least and at most
    database: float = 0.55  # of the steps, from torch's operator database
    in_place: float = 0.2  # of these, in place
    families: Mapping[str, int] = field(default_factory=dict)  # how much more often these are drawn
    dtypes: Mapping[str, int] = field(default_factory=lambda: {**_FLOATS, "int64": 8, "int32": 7, "complex64": 4})
    backward: float = 0.24
    dynamic: float = 0.14
    odd: float = 0.35  # with inputs that are transposed, expanded or have gaps more often
    wild: float = 0.02  # where values that are not finite may stay
    train: float = 0.0
    autocast: float = 0.03
    compile: float = 0.02  # with a mode of torch.compile
    modes: tuple[str, ...] = _MODES
    device: str = "cpu"


PROFILES: Mapping[str, Profile] = {
    "wide": Profile("many operators, a little of everything"),
    "deep": Profile("15 to 40 operators", length=(15, 40), dtypes={**_FLOATS, "float64": 30, "int64": 8}, wild=0.0),
    "mutation": Profile(
        "writes: in place, through views, into inputs and into inputs that share memory",
        families=dict.fromkeys(_WRITES, 5), database=0.35, in_place=0.7, backward=0.15,
    ),
    "dynamic": Profile(
        "sizes that change from call to call, also to 0 and 1, and sizes that depend on values",
        families=dict.fromkeys(_SIZES, 4), database=0.3, dynamic=1.0,
    ),
    "training": Profile(
        "layers and losses with a backward, in which some inputs ask for a gradient",
        families=dict.fromkeys(_LEARNING, 4), database=0.35, dtypes=_FLOATS, backward=1.0, train=0.5, autocast=0.1,
    ),
    "layout": Profile(
        "views, strides and memory formats",
        families=dict.fromkeys(_VIEWS, 4), database=0.4, odd=0.95,
    ),
    "gpu": Profile(
        "cases of device cuda: products, reductions, scatters, halves, modes of torch.compile",
        families=dict.fromkeys(_KERNELS, 4), database=0.4, dtypes={**_FLOATS, "float16": 40, "bfloat16": 40,
        "int64": 10},
        compile=0.3, device="cuda",
    ),
}  # fmt: skip
