"""The float64 run: the same model and inputs, cast, in eager. It only runs when a comparison asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from runner.worker.case.errors import InvalidCase
from runner.worker.case.load import Source
from runner.worker.case.observe import CallRecord, Observation, Settings, observe
from runner.worker.case.snapshot import Leaf, elements, flatten, map_tensors, storage_key
from runner.worker.judge import sensitivity

WIDE = {torch.complex32: torch.complex128, torch.complex64: torch.complex128}


NARROW = frozenset({torch.float16, torch.bfloat16, torch.float32})
REINTERPRETING = (torch.ops.aten.view.dtype,)
"""Operators whose dtype says how to read bits: it stays."""


class Wide(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Keeps a float64 run in float64 where the case casts or creates in less.

    Without it the reference of ``x.to(float16).to(float32)`` would round as eager does. A compiler that fuses the round
    trip away (by design: it keeps more precision) would then look wrong instead of nearer.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``func`` with every narrow floating dtype among its arguments replaced."""
        if func not in REINTERPRETING:
            args, kwargs = tree_map(_wide_dtype, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def _wide_dtype(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value in NARROW else WIDE.get(value, value)
    return value


class NoReference(Exception):
    """The reference cannot be had; the text says why."""


@dataclass(frozen=True)
class Perturbation:
    """Perturbs what enters a float64 run by a rounding of float32 (see ``sensitivity.perturb``); sign 0 leaves it."""

    draw: int = 0
    sign: int = 0

    def model(self, model: torch.nn.Module) -> None:
        """Perturb parameters, buffers and tensor attributes, in place."""
        if self.sign:
            plain = [
                value for part in model.modules() for name, value in vars(part).items() if not name.startswith("_")
            ]
            sensitivity.perturb([*model.parameters(), *model.buffers(), *_tensors(plain)], self.draw, self.sign)

    def inputs(self, args: Sequence[Any]) -> list[Any]:
        """Return the inputs of a call in float64, perturbed.

        Raises:
            NoReference: see ``cast_inputs``.
        """
        cast = cast_inputs(args)
        if self.sign:
            sensitivity.perturb(_tensors(cast), self.draw + sensitivity.PAIRS, self.sign)
        return cast


class Reference:
    """Gives the float64 counterpart of a leaf of eager's run, or None, with the reason in ``notes``.

    ``begin`` is given the phase, ``float64``, when it runs, and ``judge`` afterwards.
    """

    def __init__(
        self,
        source: Source,
        settings: Settings,
        eager: Observation,
        enabled: bool,
        begin: Callable[[str], None],
    ) -> None:
        """Prepare the reference of ``eager``, a run; without ``enabled`` every answer is None."""
        self.notes: list[str] = []
        self._source, self._settings, self._eager = source, settings, eager
        self._begin = begin
        self._leaves: list[dict[str, Leaf]] | None = None if enabled else []
        self._perturbed: list[list[list[dict[str, Leaf]]]] | None = None  # pairs of runs, calls, leaves by path

    def leaf(self, call: int, path: str) -> Leaf | None:
        """Return the reference's leaf of that path (an output, a gradient, an input or state after the call)."""
        if self._leaves is None:
            self._leaves = []
            try:
                self._leaves = self._run_exactly()
            except NoReference as reason:
                self.notes.append(f"no float64 reference: {reason}")
        return _leaf_at(self._leaves, call, path)

    def tensor(self, call: int, path: str) -> torch.Tensor | None:
        """Return the leaf's elements, float64 or complex128; a Python number's too.

        None means that the run did not compute it in float64, or that there is no reference.
        """
        leaf = self.leaf(call, path)
        tensor = elements(leaf) if leaf is not None else None
        if tensor is None:
            return None
        if tensor.dtype not in (torch.float64, torch.complex128):
            dtype = str(tensor.dtype).removeprefix("torch.")
            note = f"no float64 reference for {path}: the float64 run gives {dtype}"
            if note not in self.notes:
                self.notes.append(note)
            return None
        return tensor

    def measure_sensitivity(self, call: int, path: str) -> torch.Tensor | None:
        """Return how far each element moves if all inputs and parameters are perturbed by a rounding of float32.

        None means that there is no reference.
        """
        exact = self.tensor(call, path)
        if exact is None:
            return None
        if self._perturbed is None:
            self._perturbed = []
            try:
                self._perturbed = [
                    [self._run_perturbed(Perturbation(n, sign)) for sign in (1, -1)] for n in range(sensitivity.PAIRS)
                ]
            except NoReference as reason:
                self.notes.append(f"rounding was not measured: {reason}")
        leaves = [[_leaf_at(run, call, path) for run in pair] for pair in self._perturbed]
        pairs = [tuple(elements(leaf) if leaf is not None else None for leaf in pair) for pair in leaves]
        kind = exact.shape, exact.dtype
        if not pairs or any(value is None or (value.shape, value.dtype) != kind for pair in pairs for value in pair):
            return None
        return sensitivity.element_sensitivity(exact, pairs)  # type: ignore[arg-type]

    def _run_exactly(self) -> list[dict[str, Leaf]]:
        if self._settings.autocast is not None:
            raise NoReference("autocast chooses the dtypes")
        if any(call.drew_random for call in self._eager.calls):
            raise NoReference("random numbers are drawn, and in float64 they would be others")
        if not any(_is_floating(leaf) for call in self._eager.calls for leaf in call_leaves(call).values()):
            raise NoReference("nothing that is compared is floating")
        return self._run_perturbed(Perturbation())

    def _run_perturbed(self, perturbation: Perturbation) -> list[dict[str, Leaf]]:
        self._begin("float64")
        try:
            loaded = self._source.load(self._settings.seed)
            makers, cotangents = (tuple(map(_as_eager, part)) for part in (loaded.makers, loaded.cotangents))
            loaded = replace(loaded, makers=makers, cotangents=cotangents)
            cast_model(loaded.model)
            perturbation.model(loaded.model)
            with Wide():
                observation = observe(loaded, loaded.model, self._settings, change_inputs=perturbation.inputs)
        except NoReference:
            raise
        except InvalidCase as error:
            raise NoReference(error.reason) from error
        except Exception as error:  # casting may fail in as many ways as there are modules
            raise NoReference(f"the cast raised {type(error).__name__}: {error}") from error
        finally:
            self._begin("judge")
        if observation.error is not None and self._eager.error is None:
            raise NoReference(f"the float64 run raised {observation.error.summary}")
        return [self._matched(eager, wide) for eager, wide in zip(self._eager.calls, observation.calls)]  # noqa: B905

    def _matched(self, eager: CallRecord, wide: CallRecord) -> dict[str, Leaf]:
        """Return the leaves of one float64 call, once it is sure that they correspond to eager's.

        Raises:
            NoReference: structure or shapes differ.
        """
        if eager.error is not None or wide.error is not None:
            return {}
        if eager.outputs.structure != wide.outputs.structure:
            raise NoReference("the float64 run returns another structure")
        eager_leaves, wide_leaves = call_leaves(eager), call_leaves(wide)
        for path, leaf in eager_leaves.items():
            metadata = wide_leaves[path].metadata if path in wide_leaves else None
            if leaf.metadata is not None and (metadata is None or metadata.shape != leaf.metadata.shape):
                raise NoReference(f"the float64 run gives {path} another shape")
        return wide_leaves


def call_leaves(record: CallRecord) -> dict[str, Leaf]:
    """Return every leaf of a call by its path; paths of outputs, inputs, state and gradients never collide."""
    leaves = {leaf.path: leaf for tree in (record.outputs, record.inputs, record.state) for leaf in tree.leaves}
    leaves.update((path, leaf) for path, leaf in record.gradients.items() if leaf is not None)
    return leaves


def cast_model(model: torch.nn.Module) -> None:
    """Cast every floating parameter, buffer and tensor attribute to float64, complex ones to complex128, in place.

    ``Module.to(torch.float64)`` would also turn complex parameters real.
    """
    model._apply(widen)  # type: ignore[no-untyped-call,unused-ignore]
    for part in model.modules():
        for name, value in list(vars(part).items()):
            if not name.startswith("_") and isinstance(value, (torch.Tensor, list, tuple, dict)):
                setattr(part, name, map_tensors(widen, value))


def cast_inputs(args: Sequence[Any]) -> list[Any]:
    """Return the inputs in float64, as ``torch._dynamo.utils.cast_to_fp64`` casts them; leaves stay leaves.

    Raises:
        NoReference: a cast would tear apart inputs that share storage, or an input's layout cannot be cast.
    """
    tensors = _tensors(list(args))
    keys = [storage_key(tensor) for tensor in tensors]
    shared = [key for key in keys if key is not None]
    if len(set(shared)) < len(shared):
        raise NoReference("inputs share storage, which a cast would tear apart")
    if any(tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized for tensor in tensors):
        raise NoReference("an input is not strided")
    return list(map_tensors(widen, list(args)))


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in float64 or complex128; itself if it is neither floating nor complex. A leaf gives a leaf."""
    dtype = WIDE.get(tensor.dtype, tensor.dtype if tensor.is_complex() else torch.float64)
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.dtype == dtype:
        return tensor
    if tensor.is_leaf:
        return tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)
    return tensor.to(dtype)


def _leaf_at(run: list[dict[str, Leaf]], call: int, path: str) -> Leaf | None:
    return run[call].get(path) if call < len(run) else None


def _tensors(values: list[Any]) -> list[torch.Tensor]:
    return [leaf for _, leaf in flatten(values, "")[1] if isinstance(leaf, torch.Tensor)]


def _as_eager(maker: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
    """Return a maker that draws eager's inputs: in float64 a generator would give other numbers."""

    def make() -> list[Any]:
        with _disable_current_modes():
            return maker()

    return make


def _is_floating(leaf: Leaf) -> bool:
    if leaf.metadata is None:
        return isinstance(leaf.value, (float, complex)) and not isinstance(leaf.value, bool)
    return bool(leaf.metadata.dtype.is_floating_point or leaf.metadata.dtype.is_complex)
