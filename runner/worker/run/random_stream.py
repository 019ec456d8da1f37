"""Whether only the stream of random numbers differs: both sides run again with numbers that depend on their place."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from runner.contract.finding import Finding
from runner.contract.oracles import OTHER_NUMBERS, row_of
from runner.worker.judge.evidence import Evidence
from runner.worker.judge.judge import judge
from runner.worker.program.backends import Compile
from runner.worker.program.load import Source
from runner.worker.program.observe import Observation, Settings, observe
from runner.worker.rerun.reference import Reference
from runner.worker.torch_private.dispatch import kernels_replaced

NOTE = "where each random number depends on its place alone, both agree: only the stream of random numbers differs"

Run = Callable[[Compile], Observation]
"""Runs the case under its backend, by a function that compiles a module."""

_DEVICES = ("cpu", "cuda")


def weigh_random(
    evidence: Evidence, findings: list[Finding], source: Source, settings: Settings, compile_module: Compile, run: Run,
    begin: Callable[[str], None],
) -> list[Finding]:  # fmt: skip
    """Return the findings; those that come of other random numbers alone have that severity, and a note says so.

    Both sides must make as many draws of each size: two draws that were joined to one are a wrong result. So are
    gradients alone where outputs are made of draws: they belong to other numbers than the outputs, which agree. A
    process that dies meanwhile is asked again without, as in ``judge_defined``.

    Raises:
        InvalidCase: the case cannot be loaded again.
    """
    random = [finding for finding in findings if _may_come_of_draws(finding)]
    is_drawn = evidence.eager.drew_random and settings.device.partition(":")[0] in _DEVICES
    if not random or not is_drawn or not evidence.job.float64:
        return findings
    begin("float64")
    oracles = [finding.oracle for finding in random]
    try:
        agree = any(
            _agree(evidence, source, settings, compile_module, run, begin, counted, {*oracles} == {"grad"})
            for counted in (True, False)
        )
    except ImportError:  # a torch whose kernels cannot be replaced
        agree = False
    begin("judge")
    if not agree:
        return findings
    evidence.note(NOTE)
    return [replace(finding, severity=OTHER_NUMBERS) if finding in random else finding for finding in findings]


def _may_come_of_draws(finding: Finding) -> bool:
    row = row_of(finding.oracle)
    return row.random and row.numeric and finding.severity is None


def _agree(
    evidence: Evidence, source: Source, settings: Settings, compile_module: Compile, run: Run,
    begin: Callable[[str], None], counted: bool, gradients_alone: bool,
) -> bool:  # fmt: skip
    """Return whether both sides make the same draws, and agree on all that random numbers may change.

    With ``gradients_alone`` the outputs, which agree, may not be made of draws.
    """
    eagers, others = Draws(counted), Draws(counted)

    def pinned(target: Callable[..., Any], draws: Draws) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            with pinned_numbers(settings.device, draws):
                return target(*args, **keywords)

        return call

    loaded = source.load(settings.seed)
    eager = observe(loaded, pinned(loaded.model, eagers), settings)
    compiled = run(lambda model: pinned(compile_module(model), others))
    if eager.error is not None or eagers.counts != others.counts:
        return False
    reference = Reference(source, settings, eager, False, begin)
    again = judge(Evidence(evidence.job, eager, compiled, reference))
    moved = judge(Evidence(evidence.job, evidence.eager, eager, reference)) if gradients_alone else ()
    return not any(map(_may_come_of_draws, again)) and not any(
        _may_come_of_draws(finding) and finding.oracle != "grad" for finding in moved
    )


# --- random numbers by their place ---

_STEP, _SHIFT = 0.6180339887498949, 0.4142135623730951
"""Multiples of either, without their whole parts, lie evenly between zero and one."""

_PARTS = 2**20
"""Numbers are odd multiples of half a part: float32 holds them too, so that comparisons with them agree."""

Kernel = Callable[..., Any]


class Draws:
    """Which draws were made, by their number of elements.

    Args:
        counted: each draw of so many elements has other numbers than the one before it; else all have the same.
    """

    def __init__(self, counted: bool) -> None:
        """Begin with none."""
        self._counted = counted
        self.counts: Counter[int] = Counter()

    def uniform(self, like: torch.Tensor) -> torch.Tensor:
        """Return a draw for a tensor: numbers of float64 between zero and one, by their place."""
        size = like.numel()
        shift = 1.0 + self.counts[size] * self._counted
        self.counts[size] += 1
        places = torch.arange(1, size + 1, dtype=torch.float64, device=like.device)
        fractions = (places * _STEP + shift * _SHIFT).frac()
        return (((fractions * _PARTS).floor() + 0.5) / _PARTS).reshape(like.shape)

    def normal(self, like: torch.Tensor) -> torch.Tensor:
        """Return a draw from the standard normal distribution."""
        return (2 * self.uniform(like) - 1).erfinv() * math.sqrt(2)


def _write(target: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    return target.copy_(numbers)


def _kernels(draws: Draws) -> dict[str, Kernel]:
    """Return what stands for operators of ATen that draw; ``generator`` and the like are not looked at."""

    def normal(x: torch.Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> torch.Tensor:
        parts = torch.view_as_real(x) if x.is_complex() else x  # whose parts share the variance
        _write(parts, mean + draws.normal(parts) * (std * (math.sqrt(0.5) if x.is_complex() else 1.0)))
        return x

    def normal_of_tensors(mean: Any, std: Any, **_: Any) -> torch.Tensor:
        like: torch.Tensor = mean + std  # broadcast, and of the result's dtype
        return (mean + std * draws.normal(like)).to(like.dtype)

    def integers(x: torch.Tensor, low: int, high: int | None) -> torch.Tensor:
        end = 2**24 if high is None else high
        return _write(x, (low + draws.uniform(x) * (end - low)).floor())

    def slopes(
        x: torch.Tensor, noise: torch.Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False,
        *_: Any, **__: Any,
    ) -> torch.Tensor:  # fmt: skip
        if not training:
            return torch.nn.functional.leaky_relu(x, (lower + upper) / 2)
        drawn = torch.where(x <= 0, lower + draws.uniform(x) * (upper - lower), 1.0)
        return x * noise.copy_(drawn)

    def dropout(x: torch.Tensor, p: float, train: bool | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        if train is False or p == 0:
            return x.clone(), torch.ones_like(x, dtype=torch.bool)
        mask = draws.uniform(x) > p
        return x * mask * (1 / (1 - p) if p < 1 else 0.0), mask

    def permutation(n: int, generator: Any, *, out: torch.Tensor) -> torch.Tensor:
        return _write(out.resize_(n), draws.uniform(torch.empty(n, device=out.device)).argsort())

    return {
        "uniform_": lambda x, low=0.0, high=1.0, **_: _write(x, low + draws.uniform(x) * (high - low)),
        "normal_": normal,
        "normal.Tensor_Tensor": normal_of_tensors,
        "normal.Tensor_float": lambda mean, std=1.0, **_: normal_of_tensors(mean, std),
        "normal.float_Tensor": normal_of_tensors,
        "log_normal_": lambda x, mean=1.0, std=2.0, **_: _write(x, (mean + std * draws.normal(x)).exp()),
        "bernoulli_.float": lambda x, p=0.5, **_: _write(x, draws.uniform(x) < p),
        "bernoulli_.Tensor": lambda x, p, **_: _write(x, draws.uniform(x) < p),
        "bernoulli.out": lambda p, *, out, **_: _write(out.resize_(p.shape), draws.uniform(p) < p),
        "exponential_": lambda x, rate=1.0, **_: _write(x, -(1 - draws.uniform(x)).log() / rate),
        "geometric_": lambda x, p, **_: _write(x, ((1 - draws.uniform(x)).log() / math.log1p(-p)).ceil()),
        "cauchy_": lambda x, middle=0.0, width=1.0, **_: _write(
            x, middle + width * ((draws.uniform(x) - 0.5) * math.pi).tan()
        ),
        "random_": lambda x, **_: integers(x, 0, None),
        "random_.to": lambda x, high, **_: integers(x, 0, high),
        "random_.from": lambda x, low, high, **_: integers(x, low, high),
        "randperm.generator_out": permutation,
        "rrelu_with_noise": slopes,
        "rrelu_with_noise_": lambda x, *args, **kwargs: _write(x, slopes(x, *args, **kwargs)),
        "native_dropout": dropout,
    }


@contextlib.contextmanager
def pinned_numbers(device: str, draws: Draws) -> Iterator[None]:
    """Let torch's operators draw numbers by their place while the block lasts, and count the draws.

    A number depends on which element of a draw it is, and not on the generator. Two programs that draw for the same
    tensors then get the same numbers, whatever the order of memory or of the draws and whichever operator draws:
    ``bernoulli(p)`` is ``rand() < p`` here. Operators without a kernel above draw as ever.

    Raises:
        ImportError: torch cannot replace kernels.
    """
    with kernels_replaced(_kernels(draws), device.partition(":")[0].upper()):
        yield
