"""Values that torch leaves undefined: eager runs again, and each operator that has a choice makes another one.

What differs between legal eager runs has no defined value. A compiled result that differs from eager only there is
right.

Gradients have kinks: of relu, abs, clamp and their like, where a rounding decides on which side a computed argument
lies. Eager's backward runs again, and each such operator sees its argument moved by a rounding. Elements of gradients
that move with it are open between the gradients of these runs.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary

from runner.worker import thresholds
from runner.worker.comparison.compare import compare_values, equal_bits
from runner.worker.operators.choices import (
    FIRST_MOVED,
    Call,
    Draw,
    aten,
    compare_rounded,
    overlaps_itself,
    share_elements,
)
from runner.worker.operators.freedoms import FREEDOMS, OVERLAP, ROUNDED, SHARED, Freedom
from runner.worker.operators.table import freedom_of, kink_of, map_arguments, names_of_written, row_of
from runner.worker.program.load import Source
from runner.worker.program.observe import Observation, Settings, end_if_lost, observe
from runner.worker.program.snapshot import storage_key
from runner.worker.program.walk import flatten
from runner.worker.rerun.reference import Key
from runner.worker.rerun.undefined import (
    Picks,
    Range,
    Result,
    Spread,
    Undefined,
    Use,
    elements_of,
    is_pick,
    mark,
    spread_of,
    spreads_of,
)
from runner.worker.rounding.uncertainty import Uncertainties, fitting, is_plain, layout
from runner.worker.tensors import tolerance_for

M = TypeVar("M", "LegalChoices", "Kinks")


class LegalChoices(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Has each operator that torch leaves a choice make it as ``draw`` says; draw 0 records what torch itself makes."""

    supports_higher_order_operators = True  # of torch 2.7 and later

    def __init__(self, draw: Draw, uses: list[Use]) -> None:
        """Keep the draw, and the list of ``uses``, which draw 0 fills and every other holds its calls against."""
        super().__init__()
        self.free: dict[str, str] = {}
        """Operators that had a choice, each with the sentence of torch's documentation."""
        self.has_moved = False
        """Whether an operator saw computed elements moved by a rounding."""
        self._draw, self._uses, self._count = draw, uses, 0
        self._uncertainties = Uncertainties()  # of draw 0; the others take those of its uses
        self._parts = WeakIdKeyDictionary()  # views of tensors that overlap themselves

    def backward(self) -> contextlib.AbstractContextManager[None]:
        """Leave the operators of a backward as they are."""
        return contextlib.nullcontext()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``func``, or make its choice."""
        kwargs = kwargs or {}
        record = self._uncertainties.follow(func, args, kwargs) if self._draw.number == 0 else None
        written = _written(func, args, kwargs)
        apart = _read_first(func, written, args, kwargs) if written else None
        if apart is not None:
            self.free[SHARED] = FREEDOMS[SHARED].sentence
            if self._draw.number % 2:  # every other time all is read before anything is written
                args, kwargs = apart
        overlapping = [tensor for tensor in written if self._overlaps(tensor)]
        memory = [tensor.untyped_storage().clone() for tensor in overlapping]
        freedom = freedom_of(func)
        result = (
            func(*args, **kwargs)
            if freedom is None
            else self._choose(freedom, Call.bind(func, args, kwargs), not overlapping)
        )
        if overlapping:
            self.free[OVERLAP] = FREEDOMS[OVERLAP].sentence
        for tensor, before in zip(overlapping, memory, strict=True):
            if self._draw.number % 2:  # every other time the write is lost
                tensor.untyped_storage().copy_(before)
        self._remember_views(_tensors(result), args)
        if record is not None:
            record(result)
        return result

    def _overlaps(self, tensor: torch.Tensor) -> bool:
        return tensor in self._parts or overlaps_itself(tensor)

    def _remember_views(self, results: Sequence[torch.Tensor], args: tuple[Any, ...]) -> None:
        """Remember results that are views of an argument that overlaps itself, or of a part of one."""
        keys = {storage_key(source) for source in args if isinstance(source, torch.Tensor) and self._overlaps(source)}
        for view in results if keys else ():
            if storage_key(view) in keys - {None}:
                self._parts[view] = True

    def _choose(self, freedom: Freedom, call: Call, certain: bool) -> Any:
        if self._draw.number == 0:
            arguments = tree_map(_copy, dict(call.arguments))
            result = call.run()
            made = Call(call.func, arguments, _copy(self._uncertainties.of_compared(call.arguments)))
            given = _tensors(result)
            self._uses.append(Use(freedom, made, [_copy(tensor) for tensor in given], given, certain))
            return result
        if self._count < len(self._uses):
            use = self._uses[self._count]
            arguments = tree_map(_copy, dict(call.arguments))
            use.certain &= use.call.func == call.func and _agree(use.call.arguments, arguments)
            call = replace(call, uncertainty=fitting(use.call.uncertainty, call.arguments.get("self")))
        self._count += 1
        blurred = freedom.compares and call.uncertainty is not None and self._draw.number >= FIRST_MOVED
        self.has_moved |= blurred
        result, free = (
            compare_rounded(freedom.choose, call, self._draw) if blurred else freedom.choose(call, self._draw)
        )
        if free:
            self.free.setdefault(freedom.name, ROUNDED if blurred else freedom.sentence)
        return result


class Kinks(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Follows in a forward how large the numbers behind each tensor are, and moves arguments of kinks in its
    ``backward``."""

    supports_higher_order_operators = True  # of torch 2.7 and later

    def __init__(self, draw: Draw, amounts: list[torch.Tensor | None] | None = None) -> None:
        """Keep the draw, which says where arguments are moved to, and the ``amounts`` of an earlier run; None for the
        first."""
        super().__init__()
        self.has_kinks = False
        """Whether a gradient depends on the side of a kink on which a computed argument lies."""
        self.kink_names: set[str] = set()
        """Operators whose result was another one for the moved argument."""
        self.amounts: list[torch.Tensor | None] = []
        """What a unit roundoff moves the argument of each kink by, in their order; None where it is exact."""
        self._draw, self._known = draw, amounts
        self._in_backward = False
        self._results: set[int] = set()  # memory of the results that their backward asks for
        self._uncertainties = Uncertainties()

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """Move arguments of what runs meanwhile."""
        self._in_backward = True
        try:
            with self:
                yield
        finally:
            self._in_backward = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``func``, of a moved argument if it asks for the side of a kink."""
        kwargs = kwargs or {}
        if self._in_backward and kink_of(func):
            return self._cross(Call.bind(func, args, kwargs))
        record = self._uncertainties.follow(func, args, kwargs) if self._known is None else None
        by_result = row_of(func).by_result
        is_moved = by_result == "moves" and not kwargs and is_plain(args[0])
        result = self._relu(func, *args) if is_moved else func(*args, **kwargs)
        if by_result and is_plain(result):
            self._results.add(result.untyped_storage()._cdata)
        if record is not None:
            record(result)
        return result

    def _amount(self, x: Any, other: Any = None) -> torch.Tensor | None:
        """Return what a unit roundoff moves the argument of the next kink by; None where it is exact."""
        amount = self._uncertainties.of_compared({"self": x, "other": other}) if self._known is None else None
        if self._known is not None and len(self.amounts) < len(self._known):
            amount = fitting(self._known[len(self.amounts)], x)
        self.amounts.append(amount)
        return amount

    def _cross(self, call: Call) -> Any:
        own, name = call.run(), kink_of(call.func)
        x, other = call.arguments[name], call.arguments.get("other", call.arguments.get("threshold", 0))
        amount = self._amount(x, other)
        if amount is None or not is_plain(x) or x.is_complex() or isinstance(other, complex):
            return own
        if x.untyped_storage()._cdata in self._results:  # a result that its backward asks for
            return own
        self.has_kinks = True
        reach = _reach(x, amount)
        moved = (
            self._equal(call, own, reach)
            if call.func.overloadpacket in (aten.eq, aten.ne)
            else call.run(**{name: self._draw.move(x, other, reach)})
        )
        if not all(map(torch.equal, tree_leaves(own), tree_leaves(moved))):
            self.kink_names.add(call.func.overloadpacket.__name__)
        return moved

    def _relu(self, func: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the result for the moved argument, where it may lie on either side of zero."""
        amount = self._amount(x)
        if amount is None:
            return func(x)
        self.has_kinks = True
        reach = _reach(x, amount)
        moved, near = self._draw.move(x, 0, reach).clamp_min(0), x.abs() <= reach
        result: torch.Tensor = func(x)
        if bool((near & ((moved > 0) != (result > 0))).any()):
            self.kink_names.add("relu")
        return result.copy_(torch.where(near, moved, result))

    def _equal(self, call: Call, own: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
        """Return which elements may equal what they are compared with: all, none, or some at random.

        No moved one would.
        """
        equal = (call.arguments["self"] - call.arguments["other"]).abs() <= amount
        if self._draw.number != 5:
            equal &= self._draw.move(torch.zeros(own.shape), 0, torch.ones(own.shape)).to(own.device) > 0
        return torch.where(amount.isnan(), own, equal if call.func.overloadpacket is aten.eq else ~equal)


def _reach(x: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    """Return by how much each element is moved, given what a unit roundoff moves it by."""
    amount = amount.to(x.device, x.dtype)
    return thresholds.KINK_FACTOR.value * torch.maximum(torch.finfo(x.dtype).eps * x.abs(), amount)


def find_undefined(source: Source, settings: Settings, eager: Observation, gradients: bool = True) -> Undefined:
    """Run eager under other legal choices, and return what they change.

    With ``gradients``, those at a kink are asked about too.

    Raises:
        InvalidCase: the case cannot be loaded again.
    """
    undefined = _find_choices(source, settings, eager)
    if not gradients or settings.grad != "backward":
        return undefined
    spreads, names = _find_kinks(source, settings, eager)
    if not spreads:
        return undefined
    known = undefined.spreads
    joined = (key for key in spreads if key in known or key not in undefined.masks)
    return replace(
        undefined,
        masks={key: spread.open_elements() for key, spread in spreads.items()} | dict(undefined.masks),
        operators={**undefined.operators, **dict.fromkeys(names, ROUNDED)},
        spreads={**known, **{key: spreads[key].joined(known.get(key)) for key in joined}},
    )


def _find_choices(source: Source, settings: Settings, eager: Observation) -> Undefined:
    """Return what other choices of the forward's operators change."""
    uses: list[Use] = []
    outputs: list[dict[str, Any]] = []
    operators = dict(_run(source, settings, LegalChoices(Draw(0), uses), outputs)[1].free)
    masks: dict[Key, torch.Tensor | None] = {}
    ranges: defaultdict[Key, Range] = defaultdict(Range)
    spreads: dict[Key, Spread] = {}
    has_moved, largest = False, 0

    def widen(legal: Observation) -> None:
        for key, values in elements_of(legal).items():
            ranges[key].extend(values)
            spreads[key] = spread_of(values).joined(spreads.get(key))

    widen(eager)
    # Legal runs are held against each other: eager itself may have run before a function of torch was replaced.
    whole: list[Observation] = []  # the first that did not raise, and the latest
    for number in range(1, thresholds.LEGAL_RUNS.value + 1):
        draw = Draw(number)
        observation, mode = _run(source, settings, LegalChoices(draw, uses), [])
        operators.update(mode.free)
        has_moved, largest = has_moved or mode.has_moved, max(largest, draw.largest)
        if not uses and not operators:
            return Undefined()  # nobody had a choice
        widen(observation)
        if observation.error is None or eager.error is not None:
            whole = [*whole[:1], observation]
        if whole:
            mark(masks, whole[0], observation)
    if not operators:
        return Undefined()
    if len(whole) == 1:
        mark(masks, eager, whole[0])
    results = {
        (call, path): Result(use, place)
        for call, leaves in enumerate(outputs)
        for path, leaf in leaves.items()
        for use in uses
        for place, given in enumerate(use.given)
        if given is leaf and equal_bits(use.results[place], _copy(given))
    }
    if any(FREEDOMS[name].anything and sentence != ROUNDED for name, sentence in operators.items()):
        ranges.clear()
    if not all(FREEDOMS[name].two_sided and sentence == ROUNDED for name, sentence in operators.items()):
        spreads.clear()
    picks = None
    if not has_moved and all(map(is_pick, operators, operators.values())):
        picks = Picks(lambda draw: _run(source, settings, LegalChoices(draw, uses), [])[0], largest)
    return Undefined(
        masks, results, operators, ranges, {key: spread for key, spread in spreads.items() if key in masks}, picks
    )


def _find_kinks(source: Source, settings: Settings, eager: Observation) -> tuple[dict[Key, Spread], list[str]]:
    """Return between which elements gradients move with the arguments of kinks, and the operators whose gradients these
    are."""
    runs: list[Observation] = []
    names: set[str] = set()
    amounts: list[torch.Tensor | None] | None = None
    for number in range(FIRST_MOVED, FIRST_MOVED + thresholds.KINK_RUNS.value):
        observation, mode = _run(source, settings, Kinks(Draw(number), amounts), [])
        amounts = mode.amounts if amounts is None else amounts
        if not mode.has_kinks:
            return {}, []
        names.update(mode.kink_names)
        runs.append(observation)
    return spreads_of(eager, runs) if names else {}, sorted(names)


def disagreement_of_same_choices(
    source: Source,
    settings: Settings,
    place: str,
    find: Callable[[Observation, Observation], str | None],
) -> str | None:
    """Return where eager disagrees with itself though every operator makes the same choices; None if nowhere.

    Two plain runs disagreed at ``place``, which stays the answer where these choices make eager raise. ``find`` returns
    the place where two runs disagree.
    """
    first, second = (_run(source, settings, LegalChoices(Draw(1), []), [])[0] for _ in range(2))
    return place if first.error is not None else find(first, second)


def _run(source: Source, settings: Settings, mode: M, outputs: list[dict[str, Any]]) -> tuple[Observation, M]:
    """Run eager under a mode. ``outputs`` is given the tensors that each call returned."""
    loaded = source.load(settings.seed)

    def target(*args: Any, **keywords: Any) -> Any:
        with mode:
            result = loaded.model(*args, **keywords)
        outputs.append(dict(flatten(result, "output", loaded.module.__name__)[1]))
        return result

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eager gave them before
        observation = observe(loaded, target, settings, around_backward=mode.backward)
    end_if_lost(settings.device)  # an index that nobody wrote
    torch.compiler.reset()  # ``torch.cond`` compiles in eager; what it compiled under a mode fails without
    return observation, mode


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that an operator writes to."""
    names = names_of_written(func)
    given = Call.bind(func, tuple(args), kwargs).arguments if names else {}
    return [value for name, value in given.items() if name in names and isinstance(value, torch.Tensor)]


def _read_first(
    func: Any, written: Sequence[torch.Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return arguments with copies of what an operator reads or writes where it writes besides; None where there is no
    such place.

    Eager's result then depends on the order of the operator's loops. A pointwise operator may read the very elements
    that it writes: it reads each before. Of two arguments that it writes to, the second gets a copy.
    """
    if row_of(func).no_values:
        return None
    pointwise = torch.Tag.pointwise in func.tags or func is aten.copy_.default
    writes = names_of_written(func)
    earlier: list[torch.Tensor] = []
    copies: list[torch.Tensor] = []

    def separate(name: str, value: Any) -> Any:
        is_written = name in writes

        def copy(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided:
                return leaf
            targets = earlier if is_written else written
            shared = [target for target in targets if storage_key(target) == storage_key(leaf) is not None]
            may_share = pointwise and not is_written
            if any(
                share_elements(target, leaf) and not (may_share and layout(target) == layout(leaf)) for target in shared
            ):
                copies.append(leaf.clone())
                return copies[-1]
            if is_written:
                earlier.append(leaf)
            return leaf

        return value if is_written and not isinstance(value, torch.Tensor) else tree_map(copy, value)

    apart = map_arguments(func, args, kwargs, separate)
    return apart if copies else None


def _tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _copy(value: Any) -> Any:
    """Return a copy of a tensor on the CPU, without gradients; anything else as it is."""
    if not isinstance(value, torch.Tensor) or value.device.type == "meta":
        return value
    return value.detach().clone().cpu() if value.layout == torch.strided else value.detach().clone()


def _agree(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether the tensors among two calls' arguments are the same within the tolerance."""
    for one, other in zip(tree_leaves(dict(first)), tree_leaves(dict(second)), strict=False):
        if isinstance(one, torch.Tensor) != isinstance(other, torch.Tensor):
            return False
        if not isinstance(one, torch.Tensor) or one.layout != torch.strided or one.device.type == "meta":
            continue
        is_alike = (one.shape, one.dtype) == (other.shape, other.dtype)
        if not is_alike or compare_values(one, other, tolerance_for(one.dtype)).differences:
            return False
    return True
