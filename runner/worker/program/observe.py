"""Run one model over all its calls and record everything that a user can see of it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from runner.contract.job import Job
from runner.worker.kernels.launches import Launches
from runner.worker.program import global_state, modules
from runner.worker.program.delegation import Delegation
from runner.worker.program.errors import ErrorRecord, describe
from runner.worker.program.load import LoadedCase, Source, in_stance, seed_all
from runner.worker.program.memory import (
    BEFORE,
    Gaps,
    GapWatch,
    KeptTensors,
    Places,
    add_writes,
    find_common,
    find_relations,
    find_sharing,
    source_of,
)
from runner.worker.program.messages import Message, Messages, heard
from runner.worker.program.snapshot import Leaf, Tree, owner, snapshot, snapshot_leaf, storage_key
from runner.worker.program.state import State, unchanged_paths
from runner.worker.program.walk import Leaves, Walk
from runner.worker.torch_private import counters
from runner.worker.torch_private.dispatch import carried_modes

Change = Callable[[list[Any]], list[Any]]
"""What may replace the inputs of a call."""
REASON_LENGTH = 300  # characters of one graph break's reason
global_state.read()  # a server looks for all settings before it forks


@dataclass(frozen=True)
class Settings:
    """How a run is made; the same for every run of a job."""

    seed: int
    grad: str  # off, forward or backward
    cotangent: str  # seeded, ones, sum or given
    order: int
    autocast: torch.dtype | None
    device: str  # its type, such as cpu
    # Results of the last call in inputs and state, at which its backward begins too.
    roots: frozenset[str] = frozenset()

    @staticmethod
    def of(job: Job) -> Settings:
        """Return the settings that a job asks for."""
        grad = job.grad
        name = job.autocast
        return Settings(
            seed=job.seed,
            grad=str(grad.get("mode", "forward")),
            cotangent=str(grad.get("cotangent", "seeded")),
            order=int(grad.get("order", 1)),
            autocast=getattr(torch, name.removeprefix("torch.")) if name else None,
            device=job.device.partition(":")[0],
        )


@dataclass
class CallRecord:
    """One call. After an error only ``error`` counts."""

    error: ErrorRecord | None = None
    phase: str = "forward"  # or backward: in which it is, or was when it raised
    outputs: Tree = field(default_factory=lambda: Tree("", ()))
    inputs: Tree = field(default_factory=lambda: Tree("", ()))  # after the call
    state: Tree = field(default_factory=lambda: Tree("", ()))  # parameters, buffers, attributes and variables after it
    aliases: dict[str, frozenset[str]] = field(default_factory=dict)  # per output path
    sharing: dict[str, frozenset[str]] = field(default_factory=dict)  # of what the call puts into inputs and state
    shared_gradients: dict[str, frozenset[str]] = field(default_factory=dict)  # per gradient
    gaps: dict[str, Gaps] = field(default_factory=dict)  # by the first of the inputs and state in front of them
    gradients: dict[str, Leaf | None] = field(default_factory=dict)
    generator: torch.Tensor | None = None  # the CPU generator's state after the call
    drew_random: bool = False  # from torch's generators, before it returned or raised
    written: frozenset[str] = frozenset()  # inputs and state that the call wrote to, as torch's versions say
    unfit: str = ""  # which given cotangent does not fit its output
    overwritten: dict[str, torch.Tensor] = field(default_factory=dict)  # outputs, gradients, inputs: their later values
    # Paths, each with an earlier call and a path of the same memory there.
    repeated: frozenset[tuple[str, int, str]] = frozenset()
    graphs_kept: tuple[str, ...] = ()  # results of the call in inputs and state at which no backward begins
    graphs_carried: bool = False  # state holds results of what was before the call
    settings: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # that the call changed: before, after
    messages: tuple[Message, ...] = ()  # of the program itself
    varying: frozenset[str] = frozenset()  # settings, and MESSAGES, that another eager run leaves differently

    @property
    def mutated(self) -> bool:
        """Return whether the call wrote to inputs or state."""
        return bool(self.written)

    def without_state(self, names: Collection[str]) -> CallRecord:
        """Return the call without parts of the state after it."""
        aliases, sharing = (
            {
                path: frozenset(
                    relation for relation in relations if not owner(source_of(relation).removesuffix(BEFORE), names)
                )
                for path, relations in table.items()
                if not owner(path, names)
            }
            for table in (self.aliases, self.sharing)
        )
        return replace(self, state=self.state.without(names), aliases=aliases, sharing=sharing)

    def leaves(self) -> Iterator[Leaf]:
        """Yield what the caller has of the call: outputs, inputs and gradients."""
        yield from (*self.outputs.leaves, *self.inputs.leaves)
        yield from (leaf for leaf in self.gradients.values() if leaf is not None)


@dataclass
class Observation:
    """A run: its calls up to the first error, and what torch's compiler counted meanwhile."""

    calls: list[CallRecord] = field(default_factory=list)
    graphs: int | None = 0  # each count is None where torch does not have it
    uncompiled: str = ""  # why there is no graph, where torch says so
    suppressed: list[str] = field(default_factory=list)  # compile errors that nobody saw, each with its frame
    graph_breaks: int | None = 0
    recompiles: int | None = 0
    break_reasons: list[str] = field(default_factory=list)
    kernels: int | None = 0  # that Inductor generated: C++ on the CPU, Triton on a GPU
    vectorized: int | None = 0  # those of them with vector instructions, of C++
    replays: int = 0  # of CUDA graphs
    delegation: Delegation | None = None  # of a backend that is not torch's own
    notes: list[str] = field(default_factory=list)
    launches: Launches | None = None  # where Triton kernels were launched plainly
    compilations: list[str] = field(default_factory=list)  # of an eager run
    roots: frozenset[str] = frozenset()  # of an eager run: those of its settings

    @property
    def drew_random(self) -> bool:
        """Return whether torch's generators moved in a call, its backward included."""
        return any(call.drew_random for call in self.calls)

    @property
    def error(self) -> ErrorRecord | None:
        """Return the error that ended the run."""
        return self.calls[-1].error if self.calls else None

    def without_state(self, names: Collection[str]) -> Observation:
        """Return the run without parts of the state after each call."""
        return replace(self, calls=[call.without_state(names) for call in self.calls])


def observe(
    loaded: LoadedCase,
    target: Callable[..., Any],
    settings: Settings,
    change_inputs: Change | None = None,
    packages: Collection[str] = (),
    around_backward: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    compile_step: Callable[[Any], Callable[..., Any]] | None = None,
) -> Observation:
    """Run ``target`` (the model or its compiled form) over every call of the case; stop after the first error.

    Inputs are made anew for each call; state carries on, and so do torch's settings until the run has ended.
    ``change_inputs`` may replace the inputs (float64, probes).
    By ``packages``, those of the backend's code, an error is put down to it or to torch. Each backward runs in a
    context that ``around_backward`` gives. ``compile_step`` compiles the step of the case's optimizer.

    Raises:
        InvalidCase: making the inputs raised.
    """
    with heard(loaded.module.__name__, packages) as messages:
        steps = Steps(loaded, compile_step)
        runner = _Runner(loaded, target, settings, packages, around_backward, steps, messages)
        try:
            return runner.run(change_inputs)
        finally:
            runner.restore_settings()


def observe_again(
    source: Source,
    settings: Settings,
    change_inputs: Change | None = None,
    twin: bool = False,
) -> Observation:
    """Load the case, or its ``twin``, anew and run it in eager; see ``observe``."""
    loaded = source.load(settings.seed, twin=twin)
    return observe(loaded, loaded.model, settings, change_inputs)


@dataclass
class _Runner:
    """A model or its compiled form, with all that its calls have in common."""

    loaded: LoadedCase
    target: Callable[..., Any]
    settings: Settings
    packages: Collection[str]
    around_backward: Callable[[], contextlib.AbstractContextManager[None]]
    steps: Steps
    messages: Messages
    _kept: list[tuple[CallRecord, KeptTensors]] = field(default_factory=list)
    _original: dict[str, Any] = field(default_factory=dict)  # torch's settings before the first call

    def run(self, change_inputs: Change | None) -> Observation:
        """Make all calls, up to the first that raises."""
        observation = Observation()
        for call in range(len(self.loaded.makers)):
            args = self.loaded.make_inputs(call, self.settings.seed + call)
            cotangents = self.loaded.make_cotangents(call)
            if change_inputs is not None:
                args = change_inputs(args)
            record = CallRecord()
            observation.calls.append(record)
            self._observe(record, call, args, cotangents)
            if record.error is not None:
                break
        for record, kept in self._kept:
            record.overwritten = kept.overwritten()
        return observation

    def restore_settings(self) -> None:
        """Put back what the calls have set: else the next run would begin with it."""
        if self._original:
            with in_stance(self.loaded.stance), modes(self.settings):
                global_state.restore(self._original)

    def _observe(
        self, record: CallRecord, call: int, args: list[Any], cotangents: Sequence[torch.Tensor | None]
    ) -> None:
        """Make one call with the generators seeded, and fill ``record``, also where it raises."""
        loaded, settings = self.loaded, self.settings
        self.messages.take()  # of making the inputs
        seed_all(settings.seed + call)
        generators = _generators(settings.device)
        try:
            with in_stance(loaded.stance):
                with modes(settings):
                    original = global_state.read()
                self._original = self._original or original
                tensors = self._call(record, call, args, cotangents, original)
            record.messages = self.messages.take()
            if len(loaded.makers) > 1 or settings.grad == "backward":
                kept = KeptTensors.of(tensors, record.leaves())
                record.repeated = kept.repeated([earlier for _, earlier in self._kept])
                self._kept.append((record, kept))
            record.drew_random = _have_moved(generators, settings.device)
        except BaseException as error:  # noqa: BLE001  a panic of Rust code and CancelledError are no Exception
            record.error = describe(error, loaded.path, loaded.module.__name__, record.phase, self.packages)
            with contextlib.suppress(RuntimeError):  # of a device that the error has spoilt
                record.drew_random = _have_moved(generators, settings.device)

    def _call(
        self,
        record: CallRecord,
        call: int,
        args: list[Any],
        given: Sequence[torch.Tensor | None],
        before_changes: Mapping[str, Any],
    ) -> Leaves:
        """Call once, fill ``record``, return the values that the caller has then.

        ``before_changes`` are torch's settings before the caller changes any.
        """
        loaded, settings, is_last = self.loaded, self.settings, call == len(self.loaded.makers) - 1
        module, wanted = loaded.module.__name__, settings.roots if is_last else frozenset()
        earlier = [pair for number, (_, kept) in enumerate(self._kept) for pair in kept.named(number)]
        self.steps.take(call)
        loaded.change(call)
        names = loaded.argument_names(len(args))
        given_inputs, state = _open(names, args, module), loaded.state_leaves()
        input_places, state_places = _places(given_inputs), _places(state)
        inputs = _tensors(given_inputs.leaves)
        tensors = inputs + _tensors(state.leaves)
        candidates = tensors if settings.grad == "backward" else []
        first_names = {
            id(tensor): (path, tensor) for path, tensor in reversed(candidates)
        }  # a module may hold a tensor twice
        sources = [
            (path, tensor)
            for path, tensor in reversed(first_names.values())
            # What attributes and variables hold beside leaves are results of earlier calls.
            if tensor.requires_grad and (tensor.is_leaf or path.startswith(("input ", "parameter ", "buffer ")))
        ]
        for _, tensor in sources:
            tensor.grad = None
            if not tensor.is_leaf:
                tensor.retain_grad()
        record.graphs_carried = any(tensor.grad_fn is not None for _, tensor in tensors[len(inputs) :])
        versions = [_version(tensor) for _, tensor in tensors]
        gaps = GapWatch(tensors)

        def forward() -> Any:
            with modes(settings), loaded.around(call):
                settings_before = global_state.read() if loaded.has_changes else before_changes
                try:
                    with loaded.python:
                        return loaded.call(self.target, args)
                finally:
                    record.settings = global_state.changes(settings_before)

        result = in_new_thread(forward) if loaded.in_thread(call) else forward()
        synchronize(settings.device)
        opened = _open(["output"], [result], module)
        outputs, record.outputs = _tensors(opened.leaves), _copy(opened, module)
        record.aliases = find_relations(opened.leaves, [*given_inputs.leaves, *state.leaves])
        gradients: list[tuple[str, torch.Tensor]] = []
        roots: list[tuple[str, torch.Tensor]] = []
        if settings.grad == "backward":
            record.phase = "backward"
            record.unfit = unfit_cotangent(outputs, given) if settings.cotangent == "given" else ""
            sources += _late_sources(loaded, tensors, sources)
            if wanted:
                roots = _roots([*_open(names, args, module).leaves, *loaded.state_leaves().leaves], wanted)
            with self.around_backward(), loaded.around(call):
                record.gradients, gradients = _backward(
                    outputs + roots, sources, settings, settings.seed + call, given, loaded.python
                )
            self.steps.keep(gradients)
            record.shared_gradients = find_common(gradients, [*tensors, *opened.leaves])
            synchronize(settings.device)
        else:
            known = {id(tensor) for _, tensor in tensors}
            record.gradients = _kept_gradients([*tensors, *(pair for pair in outputs if id(pair[1]) not in known)])
        record.gaps = gaps.read()
        record.generator = torch.get_rng_state()
        record.written = frozenset(
            path for (path, tensor), version in zip(tensors, versions, strict=True) if _version(tensor) != version
        )
        # After the only call nobody writes to inputs and state any more. Copies would double what large cases need.
        copy = len(loaded.makers) > 1
        record.aliases = add_writes(record.aliases, outputs, tensors)
        inputs_after, state_after = _open(names, args, module), loaded.state_leaves()
        inputs_now, state_now = _places(inputs_after), _places(state_after)
        record.inputs = replace(_copy(inputs_after, module, copy), replaced=input_places.replaced(inputs_now))
        record.state = replace(snapshot_state(loaded, state_after, copy), replaced=state_places.replaced(state_now))
        record.aliases |= _places(opened).relations(input_places, state_places, inputs_now, state_now)
        before, after = input_places.joined(state_places), inputs_now.joined(state_now)
        record.sharing = find_sharing(before, [*opened.leaves, *earlier], after, settings.device == "cpu")
        if settings.grad == "backward":
            ends, changed = {id(tensor) for _, tensor in outputs}, {*record.written, *after.changed(before)}
            record.graphs_kept = tuple(
                path
                for path, tensor in _tensors([*inputs_after.leaves, *state_after.leaves])
                if path in changed and tensor.grad_fn is not None and id(tensor) not in ends
                if path not in wanted
            )
        # A CUDA graph may reuse what a call returned. Of a lone call nothing but its result can change afterwards.
        results = outputs + (gradients if copy else [])
        return (results if settings.device == "cpu" else []) + (inputs if copy else [])


def read_counts(observation: Observation) -> None:
    """Write into ``observation`` what torch counted since ``start_counting``."""
    observation.graphs = counters.graphs()
    observation.uncompiled = "" if observation.graphs else counters.why_uncompiled()
    breaks = counters.of("graph_break")
    observation.graph_breaks = None if breaks is None else sum(breaks.values())
    observation.break_reasons = [reason.strip().split("\n\n")[0][:REASON_LENGTH] for reason in breaks or ()]
    observation.recompiles = counters.recompiles()
    observation.kernels, observation.vectorized = counters.kernels()
    observation.suppressed, notes = counters.find_fallbacks(observation.error is not None)
    observation.notes += notes


def doubt_counts(observation: Observation, bounded: Iterable[str]) -> None:
    """Make zeros None where torch counts under another name: of graphs, and of what the case bounds."""
    if observation.error is None:
        zeros = [name for name in {"graphs", *bounded}.intersection(counters.COUNTS) if getattr(observation, name) == 0]
        for name in counters.lost(zeros) if zeros else ():
            setattr(observation, name, None)


def snapshot_state(loaded: LoadedCase, held: State, copy: bool = True) -> Tree:
    """Copy what the model and its file hold; see ``snapshot``."""
    tree, as_loaded = _copy(held, loaded.module.__name__, copy), unchanged_paths(loaded.holders, held.leaves)
    return replace(tree, leaves=tuple(replace(leaf, as_loaded=leaf.path in as_loaded) for leaf in tree.leaves))


def _copy(held: State, module: str, copy: bool = True) -> Tree:
    return Tree(held.structure, tuple(snapshot_leaf(leaf, path, module, copy) for path, leaf in held.leaves))


def _places(held: State) -> Places:
    return Places.of(held.leaves, held.containers)


def _open(names: Sequence[str], values: Sequence[Any], module: str) -> State:
    """Return what inputs or a result hold."""
    structures: list[str] = []
    leaves: Leaves = []
    containers: dict[str, Any] = {}
    for name, value in zip(names, values):  # noqa: B905
        walk = Walk(module)
        structure, own = walk.flatten(value, name)
        structures.append(structure)
        leaves += own
        containers |= walk.containers
    return State("; ".join(structures), leaves, containers)


def _tensors(leaves: Iterable[tuple[str, Any]]) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors among leaves, without the parameters of lazy modules that have not run yet."""
    return [(path, leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor) and not is_lazy(leaf)]


def _late_sources(
    loaded: LoadedCase, earlier: Sequence[tuple[str, torch.Tensor]], sources: Sequence[tuple[str, torch.Tensor]]
) -> list[tuple[str, torch.Tensor]]:
    """Return the leaves that require a gradient since the call alone, each by one path.

    These are ``earlier`` tensors that it has unfrozen, and parameters that it has made, as a lazy module does.
    """
    parameters = modules.parameters(modules.named_modules(loaded.model))
    late = _tensors([*earlier, *((f"parameter {name}", value) for name, value in parameters)])
    known = {id(tensor) for _, tensor in sources}
    by_id = {id(tensor): (path, tensor) for path, tensor in reversed(late) if id(tensor) not in known}
    return [(path, tensor) for path, tensor in by_id.values() if tensor.requires_grad and tensor.is_leaf]


def _roots(leaves: Leaves, paths: Collection[str]) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors at some paths, in their order; without one, a tensor that requires no gradient."""
    tensors = dict(_tensors(leaf for leaf in leaves if leaf[0] in paths))
    return [(path, tensors.get(path, torch.empty(0))) for path in sorted(paths)]


def _version(tensor: torch.Tensor) -> tuple[int, int | None]:
    return (tensor._version if not tensor.is_inference() else 0, storage_key(tensor))


def _kept_gradients(tensors: list[tuple[str, torch.Tensor]]) -> dict[str, Leaf | None]:
    """Return the gradients that the model itself computed, and left at inputs, parameters and results."""
    gradients = (
        (f"gradient of {path.removeprefix('input ')}", tensor.grad) for path, tensor in tensors if tensor.is_leaf
    )
    return {name: snapshot_leaf(gradient, name) for name, gradient in gradients if gradient is not None}


def _backward(
    outputs: list[tuple[str, torch.Tensor]],
    sources: list[tuple[str, torch.Tensor]],
    settings: Settings,
    seed: int,
    given: Sequence[torch.Tensor | None],
    python: contextlib.AbstractContextManager[None],
) -> tuple[dict[str, Leaf | None], list[tuple[str, torch.Tensor]]]:
    """Differentiate the outputs and other results, ``order`` times. Return copies of the gradients of inputs and
    parameters, and these themselves.

    Only floating and complex outputs that require a gradient count. Names of a later round end in ``, order 2``.
    """
    gradients: dict[str, Leaf | None] = {}
    tensors: list[tuple[str, torch.Tensor]] = []
    roots = [(index, tensor) for index, (_, tensor) in enumerate(outputs) if tensor.requires_grad]
    for order in range(1, settings.order + 1):
        if not roots:
            break
        with torch.enable_grad():
            heads, cotangents = _heads(roots, settings.cotangent, seed, given if order == 1 else ())
            with python:
                torch.autograd.backward(heads, cotangents, create_graph=order < settings.order)
        roots = []
        for index, (path, tensor) in enumerate(sources):
            gradient = tensor.grad
            name = f"gradient of {path.removeprefix('input ')}" + (f", order {order}" if order > 1 else "")
            gradients[name] = None if gradient is None else snapshot_leaf(gradient, name)
            if gradient is not None:
                tensors.append((name, gradient))
                roots += [(index, gradient)] if gradient.requires_grad else []
            tensor.grad = None
    return gradients, tensors


def _heads(
    roots: list[tuple[int, torch.Tensor]], cotangent: str, seed: int, given: Sequence[torch.Tensor | None] = ()
) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Return what to differentiate and with which cotangents: those that are ``given`` by place, where they fit.

    A seeded cotangent holds multiples of 1/128 in (0, 1]. bfloat16 (8 significant bits) and every wider dtype hold
    those exactly, so that the float64 reference gets the same one.
    """
    if cotangent == "sum":
        sums = [(torch.view_as_real(root) if root.is_complex() else root).sum() for _, root in roots]
        return sums, [None] * len(roots)
    cotangents: list[torch.Tensor | None] = []
    for index, root in roots:
        own = given[index] if index < len(given) else None
        if own is not None and own.shape == root.shape:
            cotangents.append(own.to(device=root.device, dtype=root.dtype))
            continue
        if cotangent == "ones" or root.layout != torch.strided or root.is_nested:
            cotangents.append(torch.ones_like(root))
            continue
        generator = torch.Generator().manual_seed(seed + index)
        planes = [torch.randint(1, 129, root.shape, generator=generator) / 128 for _ in range(1 + root.is_complex())]
        values = torch.complex(*planes) if root.is_complex() else planes[0]
        cotangents.append(values.to(device=root.device, dtype=root.dtype))
    return [root for _, root in roots], cotangents


def unfit_cotangent(outputs: Sequence[tuple[str, torch.Tensor]], given: Sequence[torch.Tensor | None]) -> str:
    """Return how the given cotangents do not fit the tensor outputs, each a path and a tensor; empty if they do."""
    for index, (path, output) in enumerate(outputs):
        own = given[index] if index < len(given) else None
        if own is None and output.requires_grad:
            return f"{path} requires a gradient and has no cotangent"
        if own is not None and own.shape != output.shape:
            return f"{path} has the shape {list(output.shape)}, its cotangent {list(own.shape)}"
        if own is not None and not output.requires_grad:
            return f"{path} requires no gradient and has a cotangent"
    return f"{len(given)} cotangents for {len(outputs)} tensor outputs" if len(given) > len(outputs) else ""


@contextlib.contextmanager
def modes(settings: Settings) -> Iterator[None]:
    """Set a call's modes while the block lasts: whether it records for gradients, and its autocast."""
    with torch.set_grad_enabled(settings.grad != "off"), autocast(settings):
        yield


def autocast(settings: Settings) -> contextlib.AbstractContextManager[Any]:
    """Return the context of a call's autocast."""
    if settings.autocast is None:
        return contextlib.nullcontext()
    return torch.autocast(settings.device, dtype=settings.autocast)  # type: ignore[no-any-return]


def _generators(device: str) -> list[torch.Tensor]:
    """Return the states of the CPU's generator and of those of all devices of a kind: a case may use any of them."""
    if device in ("cpu", "meta"):
        return [torch.get_rng_state()]
    module = getattr(torch, device)
    states = module.get_rng_state_all() if hasattr(module, "get_rng_state_all") else [module.get_rng_state(device)]
    return [torch.get_rng_state(), *states]


def _have_moved(earlier: Sequence[torch.Tensor], device: str) -> bool:
    states = zip(earlier, _generators(device))  # noqa: B905  of the same devices
    return not all(torch.equal(*pair) for pair in states)


# --- steps of an optimizer between calls ---


class Steps:
    """The optimizer of a case, which steps by the gradients of the call before."""

    def __init__(self, loaded: LoadedCase, compile_step: Callable[[Any], Callable[..., Any]] | None) -> None:
        """Make the optimizer, if the case has one; ``compile_step`` compiles its step."""
        self._model, self._due, self._python = loaded.model, loaded.steps, loaded.python
        self._step: Callable[..., Any] | None = None
        self._gradients: dict[str, torch.Tensor] = {}
        if any(loaded.steps) and loaded.make_optimizer is not None:
            step = loaded.make_optimizer(loaded.model).step
            self._step = compile_step(step) if compile_step is not None else step

    def keep(self, gradients: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Keep the gradients of a call, by their names."""
        self._gradients = dict(gradients) if self._step is not None else {}

    def take(self, call: int) -> None:
        """Step, if the caller does so before a call."""
        if self._step is None or not self._due[call]:
            return
        for name, parameter in self._model.named_parameters():
            parameter.grad = self._gradients.get(f"gradient of parameter {name}")
        with self._python:
            self._step()
        for parameter in self._model.parameters():
            parameter.grad = None


# --- threads and devices of calls ---


def in_new_thread(function: Callable[[], Any]) -> Any:
    """Return what ``function`` gives in a new thread, or raise what it raises.

    The grad mode and its like are those that torch gives to a thread. Modes that see operators are carried over: they
    are a further run's.
    """
    carry = carried_modes()

    def work() -> Any:
        with carry:
            return function()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


LOST = 5
"""Exit status of a process whose device has been lost in a run of our own."""


def synchronize(device: str) -> None:
    """Wait for the device, so that its errors belong to the call that made them.

    Raises:
        RuntimeError: an earlier kernel failed.
    """
    if device not in ("cpu", "meta"):  # these have no queue
        getattr(torch, device).synchronize()


def end_if_lost(device: str) -> None:
    """End this process without a result if an assertion has spoilt its device for every later call.

    For runs beside the program's own, such as one with perturbed inputs: control asks again without them, in another
    process.
    """
    try:
        synchronize(device)
    except RuntimeError as error:
        print(f"the device {device} is lost: {error}", file=sys.stderr, flush=True)
        os._exit(LOST)


# --- inputs and state before they meet the model ---


def originals(loaded: LoadedCase, settings: Settings) -> dict[tuple[int, str], Leaf]:
    """Return the leaves before they meet the model, by call and path: inputs of each call, and the state of the first.

    Raises:
        InvalidCase: making the inputs raised.
    """
    module = loaded.module.__name__
    leaves = {(0, path): snapshot_leaf(leaf, path, module) for path, leaf in loaded.state_leaves().leaves}
    for call in range(len(loaded.makers)):
        args = loaded.make_inputs(call, settings.seed + call)
        for name, arg in zip(loaded.argument_names(len(args)), args, strict=True):
            leaves.update({(call, leaf.path): leaf for leaf in snapshot(arg, name, module).leaves})
    return leaves
