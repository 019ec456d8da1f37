"""Shadow execution: eager runs as it is, and beside each tensor stands the value that it would have in float64.

Casting a model and its inputs to float64 makes another program: ``x.float()`` is ``x`` in float32 and a copy in
float64, a generator draws other numbers, autocast casts otherwise, autograd meets dtypes that it did not record. Here
the program stays. Each operator runs twice, on the tensors and on their shadows. Shadow values are computed from shadow
values alone, so that no rounding to a smaller dtype enters them. This is how Herbgrind finds rounding errors in
binaries (A. Sanchez-Stern and others, "Finding Root Causes of Floating Point Error", 2018).
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.attention
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary

from runner.worker.operators.choices import overlaps_itself
from runner.worker.operators.table import is_exact, map_arguments, names_of_written, row_of
from runner.worker.tensors import wide_dtype
from runner.worker.torch_private.dispatch import HigherOrderOperator, current_mode, disable_modes, run_branches

aten = torch.ops.aten


class Blur(Protocol):
    """Gives a tensor that is perturbed as by a rounding to a dtype."""

    def __call__(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of the same shape and dtype as ``tensor``."""
        ...


SWEEP = 256
"""Storages that are remembered before those that died are looked for."""


@dataclass(slots=True)
class _Memory:
    """What is known of one memory of the program."""

    storage: StorageWeakRef
    dtype: torch.dtype
    """As which it is read."""
    shadows: torch.UntypedStorage | str
    """Of all that lies in it, or why it has no shadows."""
    rounded: torch.dtype | None = None
    """The dtype of the coarsest rounding behind its numbers; None where there was no arithmetic."""


class NoShadow(Exception):
    """An operator has no float64 form; the text says which."""


class Shadow(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Keeps a float64 value, or complex128, for each tensor that operators meet while the mode is on.

    Values are kept by storage. Views, writes through views, and inputs that share memory are therefore as in the
    program. ``problem`` says why the shadows are worth nothing, once an operator had no float64 form. ``overflow`` is
    the first operator that gave NaN or an infinity where float64 has a number.
    """

    supports_higher_order_operators = True

    def __init__(self, device: str, blur: Blur | None = None) -> None:
        """Prepare for a run on ``device``, whose random numbers are the program's.

        ``blur`` is given each shadow that an operator with arithmetic reads, and returns what it reads instead. It is
        given float32, or the dtype of a result in float16 or bfloat16. Then it is given the shadow of the result too.
        """
        super().__init__()
        self._blur = blur
        self.problem = ""
        self.overflow = ""
        self._device = device
        self._storages: dict[int, _Memory] = {}
        self._strideless = WeakIdKeyDictionary()  # tensors without strides, by identity
        self._limit = SWEEP

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the program with shadows.

        Fused kernels that know no float64 give way to those that do. Functions that compile in eager too run as Python.
        A launch of a Triton kernel ends the run, unless an operator does it: what the kernel writes has no shadow.
        """
        holders = [(torch, name, function) for name, function in PYTHON.items() if hasattr(torch, name)]
        kernels = getattr(sys.modules.get("triton.runtime.jit"), "KernelInterface", None)
        if kernels is not None:
            holders.append((kernels, "__getitem__", self._refuse_launches(kernels.__getitem__)))
        with contextlib.ExitStack() as undo:
            undo.callback(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled())
            undo.callback(torch._C._set_cudnn_enabled, torch._C._get_cudnn_enabled())
            torch._C._set_mkldnn_enabled(False)
            torch._C._set_cudnn_enabled(False)
            for holder, name, function in holders:
                undo.callback(setattr, holder, name, getattr(holder, name))
                setattr(holder, name, function)
            with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]), self, _Numbers(self):
                yield

    def _refuse_launches(self, launch: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(kernel: Any, grid: Any) -> Any:
            if current_mode() is self:
                raise self.failure("a Triton kernel writes into memory")
            return launch(kernel, grid)

        return refuse

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the shadow of a tensor: of its shape and strides, in float64 or complex128, or in its dtype if that is
        neither.

        A write into the shadow changes it for all tensors that share the memory.

        Raises:
            NoShadow: the tensor has another shape in float64.
        """
        with disable_modes(), torch.no_grad():
            return self._of(tensor)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``func`` on tensors and on shadows; give the tensors, or the Python number of a shadow.

        Raises:
            NoShadow: ``func`` has no float64 form.
        """
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            raise self.failure(f"{func} runs functions of its own")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        row = row_of(func)
        if row.no_values or (_is_view(func) and all(map(_has_storage, tensors))):
            return func(*args, **kwargs)
        shadows, options = tree_map(self._widened, (args, kwargs))
        if row.from_half:
            shadows = (*shadows[:2], False)
        if func is aten._local_scalar_dense.default and (args[0].is_floating_point() or args[0].is_complex()):
            return func(*shadows)  # decisions by bool and int are the program's
        computes = not is_exact(func, args, kwargs)
        states = self._generators() if torch.Tag.nondeterministic_seeded in func.tags else []
        result = func(*args, **kwargs)
        dtype = _rounding(result)
        if self._blur is not None and computes and dtype is not None:
            # A comparison rounds nothing: equal numbers, as the backward of a minimum looks for, stay equal.
            shadows, options = _blurred(func, shadows, options, functools.partial(self._blur, dtype=dtype))
        if states and (kwargs.get("generator") or not all(map(torch.equal, states, self._generators()))):
            self._keep_drawn(func, args, shadows, result)
            return result
        default = torch.get_default_dtype()
        try:
            torch.set_default_dtype(torch.float64)
            wide = func(*shadows, **options)
        except Exception as error:
            raise self.failure(f"{func} raised {type(error).__name__}: {error}") from error
        finally:
            torch.set_default_dtype(default)
        rounded = [dtype for tensor in tensors if (dtype := self.rounded_in(tensor)) is not None]
        for leaf, shadow in zip(tree_leaves(result), tree_leaves(wide), strict=True):
            if isinstance(leaf, torch.Tensor):
                self._keep(func, leaf, shadow)
                if computes:
                    self._blur_stored(leaf)
                if computes or rounded:
                    self._round(leaf, rounded)
        return result

    def rounded_in(self, tensor: torch.Tensor) -> torch.dtype | None:
        """Return the dtype of the coarsest rounding behind a tensor's numbers, or None where there was no
        arithmetic."""
        memory = self._memory(tensor)
        return None if memory is None else memory.rounded

    def _memory(self, tensor: torch.Tensor) -> _Memory | None:
        return self._storages.get(tensor.untyped_storage()._cdata) if _has_storage(tensor) else None

    def _round(self, result: torch.Tensor, rounded: Sequence[torch.dtype]) -> None:
        """Note that an operator rounded a result, of arguments with these roundings behind them."""
        memory = self._memory(result)
        dtype = result.dtype.to_real()
        if memory is not None and dtype.is_floating_point:
            memory.rounded = _coarsest([dtype, memory.rounded or dtype, *rounded])

    def _blur_stored(self, result: torch.Tensor) -> None:
        """Perturb the shadow of a result that the program rounded to a dtype narrower than float32."""
        dtype = _rounding(result)
        is_narrow = dtype not in (None, torch.float32)
        if self._blur is not None and is_narrow and _has_storage(result) and not overlaps_itself(result):
            shadow = self._of(result)
            shadow.copy_(self._blur(shadow, dtype))

    def _keep_drawn(self, func: Any, args: tuple[Any, ...], shadows: tuple[Any, ...], result: Any) -> None:
        """Let the shadows have the numbers that the program drew."""
        if func is aten.native_dropout.default:
            scale = 0.0 if args[1] == 1 else 1 / (1 - args[1])
            self._keep(func, result[0], shadows[0] * result[1] * scale)
            return
        if not row_of(func).draws:
            raise self.failure(f"{func} draws random numbers and computes in one")
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._of(leaf).copy_(leaf)

    def _keep(self, func: Any, tensor: torch.Tensor, shadow: torch.Tensor) -> None:
        """Remember the shadow of a result. One that lies in memory known before has it there already."""
        if not self.overflow and _overflows(tensor, shadow):
            self.overflow = str(func)
        if not _has_storage(tensor):
            self._strideless[tensor] = shadow
        elif tensor.untyped_storage()._cdata not in self._storages:
            if tensor.shape == shadow.shape:
                self._of(tensor).copy_(shadow)
            else:  # runs of equal numbers, or what a kernel keeps for its backward: nobody may read it
                problem = f"{func} gives the shape {list(shadow.shape)}, not {list(tensor.shape)}"
                storage = tensor.untyped_storage()
                self._storages[storage._cdata] = _Memory(StorageWeakRef(storage), tensor.dtype.to_real(), problem)

    def _widened(self, value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return wide_dtype(value)
        return self._of(value) if isinstance(value, torch.Tensor) else value

    def _of(self, tensor: torch.Tensor) -> torch.Tensor:
        if not _has_storage(tensor):
            if tensor not in self._strideless:
                self._strideless[tensor] = tensor.to(wide_dtype(tensor.dtype))
            return self._strideless[tensor]
        shadow = torch.empty(0, dtype=wide_dtype(tensor.dtype), device=tensor.device)
        shadow.set_(self._storage(tensor), tensor.storage_offset(), tensor.size(), tensor.stride())
        shadow = shadow.conj() if tensor.is_conj() else shadow
        return shadow._neg_view() if tensor.is_neg() else shadow

    def _storage(self, tensor: torch.Tensor) -> torch.UntypedStorage:
        """Return the memory of the shadows of all that lies in the tensor's. Read as another dtype, it begins anew."""
        storage = tensor.untyped_storage()
        part = tensor.dtype.to_real()
        known = self._storages.get(storage._cdata)
        if known is not None and isinstance(known.shadows, str):
            raise self.failure(known.shadows)
        if known is not None and known.dtype == part:
            return known.shadows
        if len(self._storages) > self._limit:
            self._storages = {key: entry for key, entry in self._storages.items() if not entry.storage.expired()}
            self._limit = 2 * len(self._storages) + SWEEP
        own = whole(tensor, part)
        wide = torch.empty_like(own, dtype=wide_dtype(part)).copy_(own).untyped_storage()
        self._storages[storage._cdata] = _Memory(StorageWeakRef(storage), part, wide)
        return wide

    def _generators(self) -> list[torch.Tensor]:
        kind = self._device.partition(":")[0]
        own = [] if kind in ("cpu", "meta") else [getattr(torch, kind).get_rng_state(self._device)]
        return [torch.get_rng_state(), *own]

    def failure(self, problem: str) -> NoShadow:
        """Return the exception that ends the run, and keep why."""
        self.problem = self.problem or problem
        return NoShadow(problem)


def _choose(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    return (true_fn if bool(pred) else false_fn)(*operands)


def _repeat(cond_fn: Any, body_fn: Any, carried_inputs: Any, additional_inputs: Any = ()) -> Any:
    while bool(cond_fn(*carried_inputs, *additional_inputs)):
        carried_inputs = body_fn(*carried_inputs, *additional_inputs)
    return carried_inputs


PYTHON = {"cond": _choose, "while_loop": _repeat}
"""Functions of torch that run other functions: branch by branch, and operator by operator, instead of compiled."""


def _inside(function: Any) -> Any:
    """Return a function that runs an operator of a graph with the mode on. Dynamo would trace it in eager too."""

    def run(shadow: Shadow, *args: Any) -> Any:
        with shadow:
            return function(*args)

    return torch.compiler.disable(run)


run_branches(Shadow, _inside(_choose), _inside(_repeat))


class _Numbers(TorchFunctionMode):  # type: ignore[misc,unused-ignore]
    """Lets ``Tensor.tolist`` give the shadow's numbers, and no one else read memory: neither calls an operator."""

    def __init__(self, shadow: Shadow) -> None:
        super().__init__()
        self._shadow = shadow

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.tolist and (args[0].is_floating_point() or args[0].is_complex()):
            return self._shadow.of(args[0]).tolist()
        # What is read or written through these has no shadow.
        if func in (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__):
            raise self._shadow.failure(f"Tensor.{func.__name__} gives memory away")
        return func(*args, **(kwargs or {}))


def _blurred(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], blur: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments whose tensors are blurred, but for those that the operator writes to."""

    def of(leaf: Any) -> Any:
        is_number = isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())
        return blur(leaf) if is_number and _has_storage(leaf) else leaf

    written = names_of_written(func)
    return map_arguments(func, args, kwargs, lambda name, value: value if name in written else tree_map(of, value))


def _rounding(result: Any) -> torch.dtype | None:
    """Return the coarsest floating dtype of a result, float32 at the finest; None where no tensor in it is floating."""
    parts = {leaf.dtype.to_real() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)}
    floating = [dtype for dtype in parts if dtype.is_floating_point]
    return _coarsest([torch.float32, *floating]) if floating else None


def _coarsest(dtypes: Sequence[torch.dtype]) -> torch.dtype:
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)


def whole(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return all of the memory that a strided tensor lies in, as a tensor of one dimension, by default of its dtype."""
    flat = torch.empty(0, dtype=dtype or tensor.dtype, device=tensor.device)
    storage = tensor.untyped_storage()
    return flat.set_(storage, 0, (storage.nbytes() // flat.element_size(),), (1,))


def plain(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return those of the tensors that have strides and memory of their own kind."""
    return [tensor for tensor in tensors if _has_storage(tensor)]


def _has_storage(tensor: torch.Tensor) -> bool:
    strided = tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_quantized
    return strided and type(tensor) in PLAIN and not tensor._is_zerotensor()


PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})


def _overflows(tensor: torch.Tensor, shadow: torch.Tensor) -> bool:
    """Return whether an element is NaN or infinite that is finite in the shadow."""
    may_overflow = tensor.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.complex64)
    has_pairs = may_overflow and _has_storage(tensor) and not tensor.is_meta and tensor.shape == shadow.shape
    return has_pairs and bool((~tensor.isfinite() & shadow.isfinite()).any())


def _is_view(func: Any) -> bool:
    """Return whether each result lies in an argument's memory, and nothing is written."""
    returns = func._schema.returns
    return bool(returns) and all(value.alias_info is not None and not value.alias_info.is_write for value in returns)
