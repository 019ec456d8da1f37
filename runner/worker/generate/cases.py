"""One case of a seed and a number: what it is like, and its chain. Cases are plain data in the form of spec files."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from runner.contract.profiles import PROFILES, Profile
from runner.worker.generate import contexts, indexing, layers, points, views  # noqa: F401  each registers its families
from runner.worker.generate.chain import FAMILIES, Chain
from runner.worker.generate.database import add_step
from runner.worker.program.load import seed_all

VERSION = 15
"""Of the generator. A case is the same for the same version, wish, seed and number, on the same torch."""

Case = dict[str, Any]

LENGTHS = (0, 1, 1, 2, 2, 3, 5, 7, 8, 13, 16, 17, 20, 31)  # of the dimension that changes from call to call
ATTEMPTS = 6  # to draw each step of a chain
ATEN = 0.15  # of the steps from the database, by ATen's own names


@dataclass(frozen=True)
class Wish:
    """What a case is to be like.

    Args:
        profile: a name of PROFILES.
        operators: names of the database that may be drawn.
        depth: the steps, at least and at most; the profile's if None.
        required: whether one of the operators must be in the chain.
    """

    profile: str = "wide"
    operators: tuple[str, ...] = ()
    depth: tuple[int, int] | None = None
    required: bool = False

    @staticmethod
    def of(arguments: Mapping[str, Any]) -> Wish:
        """Return the wish of a job's arguments, plain data."""
        depth = arguments["depth"]
        return Wish(
            arguments["profile"],
            tuple(arguments["operators"]),
            (depth[0], depth[1]) if depth else None,
            arguments["required"],
        )


def draw_case(seed: int, number: int, wish: Wish | None = None) -> Case | None:
    """Draw the case of this number; None where too few steps fit together."""
    wish = wish or Wish()
    profile = PROFILES[wish.profile]
    numbers = random.Random(f"{VERSION} {seed} {number} {wish.profile}")
    seed_all(numbers.randrange(2**31))
    [name] = numbers.choices([*profile.dtypes], [*profile.dtypes.values()])
    dtype = getattr(torch, name)
    backward = dtype.is_floating_point and numbers.random() < profile.backward
    dynamic, odd, wild = (numbers.random() < share for share in (profile.dynamic, profile.odd, profile.wild))
    autocast = torch.bfloat16 if dtype == torch.float32 and numbers.random() < profile.autocast else None
    mode = "backward" if backward else "off" if numbers.random() < 0.08 else None
    chain = Chain(numbers, dtype, backward, dynamic, odd, wild)
    low, high = wish.depth or profile.length
    length = numbers.randint(low, high)
    with (
        torch.set_grad_enabled(mode != "off"),
        torch.autocast("cpu", autocast) if autocast else contextlib.nullcontext(),
    ):
        count = _draw_steps(chain, wish, profile, length)
    if not low <= len(chain.steps) <= high + 2 or (wish.required and not count):
        return None
    return _write(chain, f"{wish.profile}_{seed}_{number:05d}", profile, mode, autocast)


def _draw_steps(chain: Chain, wish: Wish, profile: Profile, length: int) -> int:
    """Draw steps until there are as many. Return how many are of the database."""
    families = {name: weight * profile.families.get(name, 1) for name, (weight, _) in FAMILIES.items()}
    spaces = _spaces(wish.operators, profile.in_place)
    count = 0
    for _ in range(ATTEMPTS * length):
        if len(chain.steps) >= length:
            break
        if spaces and chain.chance(profile.database):
            [names] = chain.numbers.choices([names for names, _ in spaces], [weight for _, weight in spaces])
            count += add_step(chain, chain.one(*names))
        else:
            chain.draw(*chain.numbers.choices([*families], [*families.values()]))
    return count


def _spaces(operators: Sequence[str], in_place: float) -> list[tuple[list[str], float]]:
    """Return the operators in three parts, each with how often it is drawn from: ATen's names, those in place, the
    others."""
    parts: dict[str, list[str]] = {"aten": [], "in place": [], "": []}
    for name in operators:
        parts["aten" if name.startswith("aten.") else "in place" if name.endswith("_") else ""].append(name)
    weights = {"aten": ATEN, "in place": in_place, "": 1 - in_place - ATEN}
    return [(names, weights[key]) for key, names in parts.items() if names]


def _write(chain: Chain, name: str, profile: Profile, mode: str | None, autocast: torch.dtype | None) -> Case | None:
    """Write a chain as a case of the format."""
    results = [f"${value.name}" for value in chain.returned()]
    used = {*chain.used, *(result[1:] for result in results)}
    inputs = {key: value for key, value in chain.inputs.items() if key in used}
    learns = "requires_grad" in str(inputs) or "nn." in str(chain.steps)
    if not inputs or not results or (mode == "backward" and not learns):
        return None
    sizes = "${" in str([spec if isinstance(spec, list) else spec.get("shape", ()) for spec in inputs.values()])
    parts = {
        "name": name,
        "tags": [name.partition("_")[0], *chain.tags],
        "params": {"n": [chain.n]} if chain.dynamic and sizes else None,
        "inputs": inputs,
        "chain": chain.steps,
        "return": {f"k{place}": result for place, result in enumerate(results)} if chain.chance(0.1) else results,
        "devices": [profile.device] if profile.device != "cpu" else None,
        "dtypes": [str(chain.dtype).removeprefix("torch.")] if chain.dtype != torch.float32 else None,
        "grad": {"cotangent": "sum"} if mode == "backward" and chain.chance(0.1) else mode,
        "train": chain.chance(profile.train) or None,
        "autocast": str(autocast) if autocast else None,
        "compile": {"mode": chain.one(*profile.modes)} if chain.chance(profile.compile) else None,
    }
    case: Case = {key: part for key, part in parts.items() if part is not None}
    if "params" in case:
        case["calls"] = [{"params": {"n": chain.one(*LENGTHS)}} for _ in range(chain.integer(1, 3))]
        if chain.chance(0.6):
            case["dynamic"] = True
    elif chain.chance(0.06):
        case["calls"] = [{}]
    return case
