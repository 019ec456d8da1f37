"""One case of a seed and a number: what it is like, and its chain. Cases are plain data in the form of spec files."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import torch

from runner.worker.generate import contexts, indexing, layers, points, views  # noqa: F401  each registers its families
from runner.worker.generate.chain import FAMILIES, Chain
from runner.worker.generate.values import RefusedStepError

VERSION = 3
"""Of the generator. A case is the same for the same version, seed and number, on the same torch."""

Case = dict[str, Any]

DTYPES = {
    torch.float32: 62, torch.float64: 8, torch.float16: 7, torch.bfloat16: 8, torch.int64: 8, torch.int32: 7,
}  # fmt: skip
LENGTHS = (0, 1, 1, 2, 2, 3, 5, 7, 8, 13, 16, 17, 20, 31)  # of the dimension that changes from call to call
ATTEMPTS = 40  # steps that are tried for one chain


def draw_case(seed: int, number: int) -> Case | None:
    """Draw the case of this number; None where too few steps fit together."""
    numbers = random.Random(f"{VERSION} {seed} {number}")
    torch.manual_seed(numbers.randrange(2**31))
    [dtype] = numbers.choices([*DTYPES], [*DTYPES.values()])
    backward = dtype.is_floating_point and numbers.random() < 0.24
    dynamic, odd, wild = numbers.random() < 0.14, numbers.random() < 0.35, numbers.random() < 0.03
    autocast = torch.bfloat16 if dtype == torch.float32 and numbers.random() < 0.03 else None
    mode = "backward" if backward else "off" if numbers.random() < 0.08 else "forward"
    chain = Chain(numbers, dtype, backward, dynamic, odd, wild)
    length = numbers.randint(3, 8)
    names, weights = [*FAMILIES], [weight for weight, _ in FAMILIES.values()]
    with (
        torch.set_grad_enabled(mode != "off"),
        torch.autocast("cpu", autocast) if autocast else contextlib.nullcontext(),
    ):
        for _ in range(ATTEMPTS):
            if len(chain.steps) >= length:
                break
            with contextlib.suppress(RefusedStepError):
                chain.draw(*numbers.choices(names, weights))
    if not 3 <= len(chain.steps) <= 9:
        return None
    return _write(chain, f"chain_{seed}_{number:05d}", mode, autocast)


def _write(chain: Chain, name: str, mode: str, autocast: torch.dtype | None) -> Case | None:
    """Write a chain as a case of the format."""
    results = [f"${value.name}" for value in chain.returned()]
    used = {*chain.used, *(result[1:] for result in results)}
    inputs = {key: value for key, value in chain.inputs.items() if key in used}
    if not inputs or not results:
        return None
    case: Case = {"name": name, "tags": chain.tags}
    sizes = "${" in str([spec if isinstance(spec, list) else spec.get("shape", ()) for spec in inputs.values()])
    if chain.dynamic and sizes:
        case["params"] = {"n": [chain.n]}
    case["inputs"] = inputs
    case["chain"] = chain.steps
    case["return"] = {f"k{place}": result for place, result in enumerate(results)} if chain.chance(0.1) else results
    if chain.dtype != torch.float32:
        case["dtypes"] = [str(chain.dtype).removeprefix("torch.")]
    if mode == "backward" and ("requires_grad" in str(inputs) or "nn." in str(chain.steps)):
        case["grad"] = {"cotangent": "sum"} if chain.chance(0.1) else "backward"
    elif mode == "off":
        case["grad"] = "off"
    if autocast:
        case["autocast"] = str(autocast)
    if "params" in case:
        case["calls"] = [{"params": {"n": chain.one(*LENGTHS)}} for _ in range(chain.integer(1, 3))]
        if chain.chance(0.6):
            case["dynamic"] = True
    elif chain.chance(0.06):
        case["calls"] = [{}]
    return case
