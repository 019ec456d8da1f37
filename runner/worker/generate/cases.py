"""One case of a seed and a number: what it is like, its chain, and whether eager PyTorch takes it.

A case stays if eager runs it under two seeds, if its outputs differ between the two, if no output is NaN alone, and if two
runs with one seed agree bit by bit.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import chain_contexts  # noqa: F401
import chain_indexing  # noqa: F401  registers its families
import chain_layers  # noqa: F401
import chain_points  # noqa: F401
import chain_views  # noqa: F401
import torch
import yaml
from chain_draw import FAMILIES, Chain
from chain_values import RefusedStepError

from runner.builder.source import build
from runner.cases.model import THREADS
from runner.session.collect import load
from runner.worker.case.errors import InvalidCase
from runner.worker.case.load import Source
from runner.worker.case.observe import Observation, Settings, observe
from runner.worker.case.snapshot import Leaf

VERSION = 3
"""Of the generator. A case is the same for the same version, seed and number, on the same torch."""

Case = dict[str, Any]

DTYPES = {
    torch.float32: 62, torch.float64: 8, torch.float16: 7, torch.bfloat16: 8, torch.int64: 8, torch.int32: 7,
}  # fmt: skip
LENGTHS = (0, 1, 1, 2, 2, 3, 5, 7, 8, 13, 16, 17, 20, 31)  # of the dimension that changes from call to call
SEEDS = (0, 1)
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


def text_of(cases: list[Case], device: str = "cpu") -> str:
    """Return the text of a spec file of these cases."""
    content = {**({"defaults": {"devices": [device]}} if device != "cpu" else {}), "cases": cases}
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120)


class _Dumper(yaml.SafeDumper):
    """Writes a list that stands twice out twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def fault_of(case: Case, folder: Path) -> str:
    """Say why a case does not stay; nothing if it does. ``folder`` holds what is written meanwhile."""
    file = folder / "case.spec.yaml"
    file.write_text(text_of([case]), encoding="utf-8")
    loaded = load([str(file)], everything=True)
    if loaded.diagnostics:
        return f"refused: {loaded.diagnostics[0].message}"
    [variant] = loaded.variants
    written = build(variant)
    if written.diagnostics:
        return f"refused: {written.diagnostics[0].message}"
    autocast = torch.bfloat16 if variant.autocast else None
    torch.set_num_threads(1 if variant.threads is None else THREADS)
    source = Source(written.text, "case", str(folder))
    try:
        runs = [
            _run(source, Settings(seed, variant.grad.mode, variant.grad.cotangent, 1, autocast, "cpu"))
            for seed in (SEEDS[0], *SEEDS)
        ]
    except InvalidCase as error:
        return f"invalid: {error}"
    finally:
        source.close()
    return _fault_of_runs(variant.grad.mode == "backward", *runs)


def _run(source: Source, settings: Settings) -> Observation:
    loaded = source.load(settings.seed)
    return observe(loaded, loaded.model, settings)


def _fault_of_runs(backward: bool, first: Observation, again: Observation, other: Observation) -> str:
    """Say what is wrong with two runs of one seed and one of another; with ``backward`` there must be a gradient."""
    for run in (first, again, other):
        if run.error is not None:
            return f"raises {run.error.summary}"
    for one, two, three in zip(first.calls, again.calls, other.calls, strict=True):
        leaves = [*one.outputs.leaves, *one.inputs.leaves, *filter(None, one.gradients.values())]
        same = [*two.outputs.leaves, *two.inputs.leaves, *filter(None, two.gradients.values())]
        if len(leaves) != len(same) or any(_bits(a) != _bits(b) for a, b in zip(leaves, same, strict=True)):
            return "varies"
        if any(_is_nan(leaf) for leaf in one.outputs.leaves):
            return "not a number"
        pairs = zip(one.outputs.leaves, three.outputs.leaves, strict=False)
        if one is first.calls[0] and all(_bits(a) == _bits(b) for a, b in pairs):
            return "constant"
    if backward and not any(first.calls[0].gradients.values()):
        return "no gradient"
    return ""


def _bits(leaf: Leaf) -> Any:
    """What two leaves are compared by: the bytes of a tensor."""
    if not isinstance(leaf.value, torch.Tensor):
        return repr(leaf.value)
    flat = leaf.value.clone(memory_format=torch.contiguous_format).reshape(-1)
    return leaf.value.shape, flat.view(torch.uint8).numpy().tobytes()


def _is_nan(leaf: Leaf) -> bool:
    value = leaf.value
    if (
        not isinstance(value, torch.Tensor)
        or not (value.is_floating_point() or value.is_complex())
        or not value.numel()
    ):
        return False
    return bool(value.isnan().all())
