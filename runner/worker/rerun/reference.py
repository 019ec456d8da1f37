"""The float64 values of eager's run, and how far roundings move them. They are only computed when a comparison asks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from runner.worker import thresholds
from runner.worker.comparison.compare import lies_within
from runner.worker.program.errors import InvalidCase
from runner.worker.program.load import Source
from runner.worker.program.observe import CallRecord, Observation, Settings, end_if_lost, observe, originals
from runner.worker.program.snapshot import Leaf, elements
from runner.worker.program.walk import flatten
from runner.worker.rounding import sensitivity
from runner.worker.rounding.shadow import NoShadow, Shadow
from runner.worker.tensors import finite_difference, finite_part, planes, tolerance_for, wide_dtype
from runner.worker.torch_private.dispatch import disable_modes


class NoReference(Exception):
    """The reference cannot be had; the text says why."""


Key = tuple[int, str]
"""A call, and the path of a leaf in it."""
Run = dict[Key, Leaf]


class Reference:
    """Gives the float64 (complex128) counterpart of a leaf of eager's run, and how far roundings move its elements.

    Without a model to run, the values are those that are given, and the movements are unknown.
    """

    overflow = ""
    """The first operator by which eager alone has NaN or an infinity."""

    def __init__(
        self,
        source: Source | None,
        settings: Settings | None,
        eager: Observation,
        enabled: bool,
        begin: Callable[[str], None],
        leaves: Run | None = None,
    ) -> None:
        """Prepare the reference of ``eager``, a run; without ``enabled`` there are no values but those of ``leaves``.

        ``begin`` is given the phase, ``float64``, when it runs, and ``judge`` afterwards.
        """
        self.notes: list[str] = []
        """Why there are no values, or no movements."""
        self._source, self._settings, self._eager = source, settings, eager
        self._enabled = enabled
        self._begin = begin
        self._leaves = None if enabled else leaves or {}
        self._originals: Run | None = None
        self._rounded: dict[Key, torch.dtype] = {}
        self._perturbed: dict[torch.dtype | None, list[list[Run]]] = {}  # pairs of runs; None for those of the shadows

    def _known(self) -> Run:
        """Return the leaves: outputs, gradients, inputs and state after the call."""
        if self._leaves is None:
            self._leaves = {}
            try:
                self._leaves = self._run()
            except NoReference as reason:
                self.notes.append(f"no float64 reference: {reason}")
        return self._leaves

    def tensor(self, call: int, path: str) -> torch.Tensor | None:
        """Return a leaf's elements, float64 or complex128; a Python number's too.

        None means that it is no floating tensor, or that there is no reference.
        """
        tensor = _elements_at(self._known(), call, path)
        return tensor if tensor is not None and tensor.dtype in sensitivity.WIDEST else None

    def rounded_in(self, call: int, path: str) -> torch.dtype | None:
        """Return the dtype of the coarsest rounding behind a leaf; None where there is no reference, or nothing was
        rounded."""
        self._known()
        return self._rounded.get((call, path))

    def measure_sensitivity(self, call: int, path: str) -> torch.Tensor | None:
        """Return how far roundings move each element: of inputs and parameters, of what operators read, of halves as
        they are stored.

        None means that there is no reference.
        """
        exact = self.tensor(call, path)
        return None if exact is None else self._response(exact, call, path, None)

    def measure_domain(self, call: int, path: str) -> sensitivity.Domain | None:
        """Return what roundings make of each element of a leaf, such as NaN; None where there is no reference."""
        exact = self.tensor(call, path)
        if exact is None or not (pairs := self._pairs(exact, call, path, None)):
            return None
        return sensitivity.domain(exact, [side for pair in pairs for side in pair])

    def _response(self, exact: torch.Tensor, call: int, path: str, dtype: torch.dtype | None) -> torch.Tensor | None:
        pairs = self._pairs(exact, call, path, dtype)
        return sensitivity.element_sensitivity(exact, pairs) if pairs else None

    def _pairs(
        self, exact: torch.Tensor, call: int, path: str, dtype: torch.dtype | None
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return a leaf of the perturbed runs, up and down; none where one has another shape."""
        if dtype not in self._perturbed:
            self._perturbed[dtype] = []
            unit = sensitivity.UNIT if dtype is None else (sensitivity.unit(dtype) or 0.0) * sensitivity.steps(dtype)
            try:
                self._perturbed[dtype] = [
                    [self._run(draw, sign, unit, dtype) for sign in (1, -1)]
                    for draw in range(thresholds.ROUNDING_DRAWS.value)
                ]
            except NoReference as reason:
                self.notes.append(f"rounding was not measured: {reason}")
        kind, pairs = (exact.shape, exact.is_complex()), []
        for runs in self._perturbed[dtype]:
            up, down = (_elements_at(run, call, path) for run in runs)
            if up is None or down is None or {(up.shape, up.is_complex()), (down.shape, down.is_complex())} != {kind}:
                return []
            pairs.append((up.to(exact.dtype), down.to(exact.dtype)))
        return pairs

    def original(self, call: int, path: str) -> Leaf | None:
        """Return an input as it was made for a call, or a part of the state as the model begins with it; None for any
        other leaf.

        The case makes them once more, from the same seed: eager's run keeps no copy of what it may have written to.
        """
        if self._originals is None and self._source is not None and self._settings is not None:
            self._originals = {}
            with contextlib.suppress(InvalidCase):
                self._originals = originals(self._source.load(self._settings.seed), self._settings)
        return (self._originals or {}).get((call, path))

    def measure_movement(self, call: int, path: str, dtype: torch.dtype) -> torch.Tensor | None:
        """Return how far each element of eager's own result moves by one rounding of the inputs in ``dtype``.

        It stands in for a reference. Inputs of a dtype that cannot hold the movement stay. None means that it cannot be
        had.
        """
        result = _elements_at(run_leaves(self._eager), call, path)
        if result is None or not self._enabled or sensitivity.unit(dtype) is None:
            return None
        response = self._response(result.to(wide_dtype(result.dtype)), call, path, dtype)
        return None if response is None else response / sensitivity.steps(dtype)

    def _run(self, draw: int = 0, sign: int = 0, unit: float = 0.0, dtype: torch.dtype | None = None) -> Run:
        """Return the shadows of a run; its own leaves where there is a dtype.

        What enters it is perturbed by ``unit``, unless the sign is 0: the shadows, or the tensors that can hold a
        movement of the ``dtype``. ``sensitivity.perturb`` explains draw and sign.

        Raises:
            NoReference: there are no shadows.
        """
        source, settings = self._source, self._settings
        if source is None or settings is None:
            raise NoReference("there is no model to run")
        if not any(_is_floating(leaf) for leaf in run_leaves(self._eager).values()):
            raise NoReference("nothing that is compared is floating")
        self._begin("float64")
        # Numbers of operators move in another way than state and arguments.
        blur = sensitivity.blur(draw + 2 * thresholds.ROUNDING_DRAWS.value, sign) if sign else None
        shadow = Shadow(settings.device, blur) if dtype is None else None

        def change(args: list[Any]) -> list[Any]:
            if sign:
                with disable_modes():
                    tensors = _movable(args, dtype, shadow)
                    sensitivity.perturb(tensors, draw + thresholds.ROUNDING_DRAWS.value, sign, unit)
            return args

        try:
            loaded = source.load(settings.seed)
            makers, cotangents = (tuple(map(_as_eager, part)) for part in (loaded.makers, loaded.cotangents))
            loaded = replace(loaded, makers=makers, cotangents=cotangents)
            if sign:
                sensitivity.perturb(_movable(_state(loaded.model), dtype, shadow), draw, sign, unit)
            with shadow.running() if shadow is not None else contextlib.nullcontext():
                observation = observe(loaded, loaded.model, settings, change_inputs=change)
            if shadow is not None and shadow.problem:
                raise NoReference(shadow.problem)
            if observation.error is not None and self._eager.error is None:
                raise NoReference(f"the run raised {observation.error.summary}")
            if shadow is not None and not sign:
                self.overflow = shadow.overflow
                self._rounded = {
                    key: dtype
                    for key, leaf in run_leaves(observation).items()
                    if isinstance(leaf.value, torch.Tensor) and (dtype := shadow.rounded_in(leaf.value)) is not None
                }
            pairs = enumerate(zip(self._eager.calls, observation.calls))  # noqa: B905  either may have raised
            matched = ((call, self._matched(eager, wide, shadow)) for call, (eager, wide) in pairs)
            return {(call, path): leaf for call, leaves in matched for path, leaf in leaves.items()}
        except NoReference:
            raise
        except InvalidCase as error:
            raise NoReference(error.reason) from error
        except Exception as error:  # a dispatch mode meets as many kinds of tensors as there are
            raise NoReference(f"the run raised {type(error).__name__}: {error}") from error
        finally:
            torch.compiler.reset()  # ``torch.cond`` compiles in eager; what it compiled under a mode fails without
            end_if_lost(settings.device)  # a probability above one, moved by a rounding
            self._begin("judge")

    def _matched(self, eager: CallRecord, wide: CallRecord, shadow: Shadow | None) -> dict[str, Leaf]:
        """Return the shadows of one call's leaves, once it is sure that they correspond to eager's.

        Raises:
            NoReference: structure or shapes differ.
        """
        if eager.error is not None or wide.error is not None:
            return {}
        if eager.outputs.structure != wide.outputs.structure:
            raise NoReference("the run returns another structure")
        eager_leaves, wide_leaves = call_leaves(eager), call_leaves(wide)
        for path, leaf in eager_leaves.items():
            metadata = wide_leaves[path].metadata if path in wide_leaves else None
            if leaf.metadata is not None and (metadata is None or metadata.shape != leaf.metadata.shape):
                raise NoReference(f"the run gives {path} another shape")
        if shadow is None:
            return wide_leaves
        shadows = {}
        for path, leaf in wide_leaves.items():
            if not isinstance(leaf.value, torch.Tensor):
                shadows[path] = leaf
                continue
            given = eager_leaves.get(path)
            try:
                if given is not None and not _agree(given.value, leaf.value, shadow.rounded_in(leaf.value)):
                    raise NoShadow("the run gives other numbers than eager's")
                shadows[path] = replace(leaf, value=shadow.of(leaf.value))
            except NoShadow as reason:
                if (note := f"no float64 reference for {path}: {reason}") not in self.notes:
                    self.notes.append(note)
        return shadows


def call_leaves(record: CallRecord) -> dict[str, Leaf]:
    """Return every leaf of a call by its path; paths of outputs, inputs, state and gradients never collide."""
    leaves = {leaf.path: leaf for tree in (record.outputs, record.inputs, record.state) for leaf in tree.leaves}
    leaves.update((path, leaf) for path, leaf in record.gradients.items() if leaf is not None)
    return leaves


def run_leaves(run: Observation) -> Run:
    """Return every leaf of a run. A run that raised says nothing from that call on."""
    calls = enumerate(record for record in run.calls if record.error is None)
    return {(call, path): leaf for call, record in calls for path, leaf in call_leaves(record).items()}


def _movable(values: Sequence[Any], dtype: torch.dtype | None, shadow: Shadow | None) -> list[torch.Tensor]:
    """Return the tensors among values that can hold a rounding of ``dtype``, or the shadows of all."""
    tensors = [leaf for _, leaf in flatten(list(values), "")[1] if isinstance(leaf, torch.Tensor)]
    tensors = [tensor for tensor in tensors if dtype is None or sensitivity.holds(tensor.dtype, dtype)]
    return tensors if shadow is None else [shadow.of(tensor) for tensor in tensors]


def _state(model: torch.nn.Module) -> list[Any]:
    """Return parameters, buffers and what other attributes hold."""
    attributes = [value for part in model.modules() for name, value in vars(part).items() if not name.startswith("_")]
    return [*model.parameters(), *model.buffers(), *attributes]


def _agree(first: torch.Tensor, second: torch.Tensor, rounded: torch.dtype | None) -> bool:
    """Return whether a run gives eager's numbers: up to the tolerance, or by norm up to ``RUN_DISTANCE``.

    An operator may take another kernel under a mode. A run does not where something that ran since, such as a backend
    at its first compilation, has replaced a function of torch. ``rounded`` is the dtype of the coarsest rounding behind
    the numbers.
    """
    if first.dtype != second.dtype:
        return False
    if lies_within(first, second, tolerance_for(first.dtype)):
        return True
    unit = sensitivity.unit(rounded or first.dtype) or 0.0
    one, other = planes(first), planes(second)
    distance, size = finite_difference(one, other).norm(), finite_part(one, other).norm()
    return bool(distance <= thresholds.RUN_DISTANCE.value * unit * size)


def _elements_at(run: Run, call: int, path: str) -> torch.Tensor | None:
    leaf = run.get((call, path))
    return None if leaf is None else elements(leaf)


def _as_eager(maker: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
    """Return a maker that no mode looks into."""

    def make() -> list[Any]:
        with disable_modes():
            return maker()

    return make


def _is_floating(leaf: Leaf) -> bool:
    if leaf.metadata is None:
        return isinstance(leaf.value, (float, complex))
    return bool(leaf.metadata.dtype.is_floating_point or leaf.metadata.dtype.is_complex)
