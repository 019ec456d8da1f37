"""Two observations to findings: one function an oracle, in the order of the gates.

A finding is a fact with its numbers. Whether it is expected or known is decided elsewhere.
``judge_defined`` leaves out findings about values that torch leaves undefined.
To add an oracle, write a function with ``@check`` here, at its gate, and a row in ``runner/contract/oracles.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest

import torch

from runner.contract.finding import Finding
from runner.contract.oracles import BUDGETS, METADATA, ROWS, is_plugin, row_of
from runner.worker.judge.evidence import Evidence
from runner.worker.judge.leaves import (
    fixed_strides,
    gap_findings,
    hidden_writes,
    late_writes,
    leaf_findings,
    metadata_differences,
    needless_writes,
    place_findings,
    spoilt_paths,
    value_findings,
)
from runner.worker.operators.freedoms import OVERLAP
from runner.worker.program.errors import ErrorRecord, counts_as
from runner.worker.program.global_state import is_generator, is_independent
from runner.worker.program.load import Source
from runner.worker.program.memory import memory_of
from runner.worker.program.messages import MESSAGES, WARNING
from runner.worker.program.observe import Observation, Settings
from runner.worker.program.snapshot import Leaf
from runner.worker.rerun.legal_runs import find_undefined
from runner.worker.torch_private.preparation import has_picked_none

_SHOWN = 200
"""Characters of a text that a finding shows."""

Look = Callable[[Evidence], Iterable[Finding]]

CHECKS: dict[Look, frozenset[str]] = {}
"""The functions that look for findings, in the order in which they run, each with the oracles that it may name."""


def check(*oracles: str) -> Callable[[Look], Look]:
    """Let a function of ``Evidence`` look for these oracles, after all that stand above it.

    Each oracle has a row in ``oracles.py``. A module that ``--import`` brings names its own as ``package.word``.

    Raises:
        ValueError: an oracle is neither.
    """
    for name in oracles:
        if name not in ROWS and not is_plugin(name):
            raise ValueError(f"{name!r} is no oracle: it has no row, and is no package.word")

    def register(look: Look) -> Look:
        CHECKS[look] = frozenset(oracles)
        return look

    return register


def judge(evidence: Evidence) -> list[Finding]:
    """Return every finding that the job does not ignore. From the call on in which either raised, nothing is compared.

    Raises:
        ValueError: a function names an oracle that it is not registered for.
    """
    findings = []
    for look, oracles in CHECKS.items():
        for finding in look(evidence):
            if finding.oracle not in oracles:
                raise ValueError(
                    f"{look.__module__}.{look.__qualname__} is registered for no oracle {finding.oracle!r}"
                )
            findings.append(finding)
    return [finding for finding in findings if finding.oracle not in evidence.job.ignore]


def _refuses_overlap(finding: Finding) -> bool:
    """Return whether a finding is torch's refusal to write through memory that overlaps itself, which eager let
    pass."""
    # So eager itself refuses most such writes. Some it lets pass, with a warning.
    refusal = "more than one element of the written-to tensor refers to a single memory location"
    return row_of(finding.oracle).crash and refusal in str((finding.error or {}).get("message", ""))


def judge_defined(
    evidence: Evidence,
    source: Source,
    settings: Settings,
    begin: Callable[[str], None],
    varies: bool = False,
) -> tuple[Evidence, list[Finding]]:
    """Return all findings, and the evidence to which they belong: findings about undefined values are left out.

    Eager runs under other choices only if a finding may speak of such values, or eager ``varies``. It does not run
    without the float64 reference, since a process that dies in these runs is asked again without both: ``begin`` is
    given that reference's phase when they run, and ``judge`` afterwards.

    Raises:
        InvalidCase: the case cannot be loaded again.
    """
    findings = judge(evidence)
    # Findings about numbers, or about a shape that depends on them, may speak of undefined values.
    may_be_undefined = varies or any(
        row_of(finding.oracle).numeric or finding.oracle == "shape" or _refuses_overlap(finding) for finding in findings
    )
    if not evidence.job.float64 or not may_be_undefined:
        return evidence, findings
    begin("float64")
    exact = bool(evidence.job.tolerance.get("exact"))  # who says so means each side of a kink
    undefined = find_undefined(source, settings, evidence.eager, gradients=not exact)
    begin("judge")
    if not undefined.operators:
        return evidence, findings
    again = replace(
        evidence, labels=[], notes=[], comparisons=0, compared=Counter(), accuracy=[], defined=0, undefined=undefined
    )
    findings = judge(again)
    refused = [finding for finding in findings if OVERLAP in undefined.operators and _refuses_overlap(finding)]
    for finding in refused:
        again.excuse(finding.path or "the call", 0, 0)
    return again, [finding for finding in findings if finding not in refused]


# --- gate 1: behaviour ----------------------------------------------------------------------


@check("missing-error", "error-type", "graph-break", "recompile", "memory", "compile-error", "runtime-error")
def behaviour(evidence: Evidence) -> Iterator[Finding]:
    """Compare the errors of each call. One side's error alone, or two unlike errors, are findings."""
    for call, (eager, compiled) in enumerate(zip(evidence.eager.calls, evidence.compiled.calls)):  # noqa: B905
        where = evidence.where(call)
        evidence.comparisons += 1
        expected, actual = _errors_of_one_phase(evidence, where, eager.error, compiled.error)
        if actual is None and expected is not None:
            message = f"eager raised {expected.summary}; compiled returned"
            yield Finding("missing-error", message, where, line=expected.info["line"])
        elif actual is not None and expected is None:
            oracle, message = _classify(actual, evidence.compiled.launches is not None)
            yield Finding(oracle, f"{message}: {actual.summary}", where, error=actual.info)
        elif actual is not None and expected is not None and actual.memory and not expected.memory:
            yield Finding(
                "memory", f"eager raised {expected.summary}; compiled {actual.summary}", where, error=actual.info
            )
        elif actual is not None and expected is not None and not counts_as(actual, expected):
            message = f"eager raised {expected.summary}; compiled raised {actual.summary}"
            yield Finding("error-type", message, where, error=actual.info)
        if eager.error is not None or compiled.error is not None:
            evidence.count("exceptions")


def _errors_of_one_phase(
    evidence: Evidence, where: str, eager: ErrorRecord | None, compiled: ErrorRecord | None
) -> tuple[ErrorRecord | None, ErrorRecord | None]:
    """Return what both sides raise in the first phase in which either does: the forward, or else the backward.

    torch traces the backward of a graph with its forward. What eager's backward raises may come as early.
    """
    if eager is None or compiled is None or eager.during == compiled.during:
        return eager, compiled
    if compiled.during == "backward":
        return eager, None
    if not compiled.ahead:
        return None, compiled
    evidence.note(f"{where or 'the call'}: torch.compile raises while it compiles the forward, eager in the backward")
    return eager, compiled


def _classify(error: ErrorRecord, launched: bool = False) -> tuple[str, str]:
    """Return the oracle of an error that only the compiled side raised, and the message's beginning."""
    kinds = (
        (error.unsupported, "graph-break", "the graph broke where it may not"),
        (error.recompiled, "recompile", "recompiled where it may not"),
        (error.memory, "memory", "out of memory"),
        (error.compiling, "compile-error", "raised while compiling"),
        (launched, "runtime-error", "launching the kernels raised"),
        (True, "runtime-error", "the compiled code raised"),
    )
    oracle, message = next((oracle, message) for is_one, oracle, message in kinds if is_one)
    return oracle, message + (" in the backward" if error.during == "backward" else "")


@check("out-of-bounds", "race", "unwritten")
def launches(evidence: Evidence) -> Iterator[Finding]:
    """Report writes of launched kernels outside their arguments, and elements that they did not write."""
    report = evidence.compiled.launches
    if report is not None:
        evidence.comparisons += report.count
        yield from report.trespasses


# --- gate 2: structure and metadata ---------------------------------------------------------


@check("structure")
def structure(evidence: Evidence) -> Iterator[Finding]:
    """Compare the containers of the outputs, and the class of each leaf."""
    for call, eager, compiled in evidence.pairs():
        evidence.comparisons += 1
        if eager.outputs.structure != compiled.outputs.structure:
            sides = _where_parted(eager.outputs.structure, compiled.outputs.structure)
            yield Finding("structure", "eager returns {}, compiled {}".format(*sides), evidence.where(call, "output"))
            continue
        for eager_leaf, compiled_leaf in zip(eager.outputs.leaves, compiled.outputs.leaves, strict=True):
            if eager_leaf.type != compiled_leaf.type:
                message = f"eager returns a {eager_leaf.type}, compiled a {compiled_leaf.type}"
                yield Finding("structure", message, evidence.where(call, eager_leaf.path))


def _where_parted(*texts: str) -> list[str]:
    """Return the texts; where one is long, what stands in each around the place from which on they differ."""
    if max(map(len, texts)) <= _SHOWN:
        return list(texts)
    parted = (place for place, characters in enumerate(zip(*texts, strict=False)) if len(set(characters)) > 1)
    start = max(next(parted, min(map(len, texts))) - _SHOWN // 4, 0)
    return [f"{'...' * bool(start)}{text[start : start + _SHOWN // 2]}..." for text in texts]


@check("shape", "dtype", "device", "layout", "stride", "offset", "requires-grad")
def metadata(evidence: Evidence) -> Iterator[Finding]:
    """Compare shape, dtype, device, layout, strides, offset and requires_grad of the outputs."""
    for call, eager, compiled in _output_leaves(evidence):
        if eager.kind != "opaque":
            evidence.count("outputs")
        if eager.metadata is None or compiled.metadata is None:
            continue
        where = evidence.where(call, eager.path)
        has_shape = evidence.undefined.has_shape(call, eager.path)
        same_rank = len(eager.metadata.shape) == len(compiled.metadata.shape)
        open_oracles = () if has_shape else ("stride", "shape") if same_rank else ("stride",)
        if has_shape and fixed_strides(evidence, eager) and eager.metadata.shape == compiled.metadata.shape:
            evidence.count("strides", "stride")
        for oracle, message in metadata_differences(evidence, where, eager, compiled):
            if oracle not in open_oracles:
                yield Finding(oracle, message, where)
        offsets = eager.metadata.offset, compiled.metadata.offset
        aliases = (side.calls[call].aliases.get(eager.path, ()) for side in (evidence.eager, evidence.compiled))
        if has_shape and offsets[0] != offsets[1] and all(any("input" in text for text in texts) for texts in aliases):
            message = "eager starts at element {} of the storage, compiled at {}".format(*offsets)
            yield Finding("offset", message, where)


# --- gate 3: side effects --------------------------------------------------------------------


@check("alias")
def aliases(evidence: Evidence) -> Iterator[Finding]:
    """Compare which inputs, state and earlier outputs each output is, or shares storage with; also what earlier calls
    gave."""
    for call, eager, compiled in evidence.pairs():
        if eager.outputs.structure != compiled.outputs.structure:
            continue
        for path in {**eager.aliases, **compiled.aliases}:
            relations, compiled_relations = (side.aliases.get(path, frozenset()) for side in (eager, compiled))
            evidence.comparisons += 1
            evidence.count("aliases", "alias")
            yield from _relation_findings(evidence, call, path, relations, compiled_relations)
        for path, again in _repeated(compiled.repeated - eager.repeated, evidence.compiled).items():
            yield Finding("alias", f"eager: memory of its own; compiled: {again}", evidence.where(call, path))
        for path, again in _repeated(eager.repeated - compiled.repeated, evidence.eager).items():
            if path in eager.aliases and eager.aliases[path] == compiled.aliases.get(path):  # else that is the finding
                yield Finding("alias", f"eager: {again}; compiled: memory of its own", evidence.where(call, path))


def _repeated(places: Iterable[tuple[str, int, str]], run: Observation) -> dict[str, str]:
    """Return by path with what of earlier calls it shares memory. A write into that by a later call is a finding."""
    repeated: dict[str, list[str]] = {}
    for path, number, same in sorted(places):
        if same not in run.calls[number].overwritten:
            repeated.setdefault(path, []).append(f"shares memory with {same} of call {number}")
    return {path: ", ".join(texts) for path, texts in repeated.items()}


@check("alias")
def sharing(evidence: Evidence) -> Iterator[Finding]:
    """Compare with what else the objects share memory that a call puts into inputs and state, and gradients.

    Where one run alone puts another object there, ``mutation`` says so. Whether autograd copies a gradient is its own
    choice, so that compiled code may share less of it.
    """
    for call, eager, compiled in evidence.pairs():
        for path, relations in compiled.shared_gradients.items():
            expected = eager.shared_gradients.get(path, relations)
            more = memory_of(relations - expected)
            if more and more - spoilt_paths(eager, compiled):  # else the write is the finding
                yield from _relation_findings(evidence, call, path, expected, relations)
        for path in (path for path in eager.sharing if path in compiled.sharing):
            yield from _relation_findings(evidence, call, path, eager.sharing[path], compiled.sharing[path])


def _relation_findings(
    evidence: Evidence, call: int, path: str, eager: frozenset[str], compiled: frozenset[str]
) -> Iterator[Finding]:
    if eager != compiled:
        message = "eager: {}; compiled: {}".format(
            *(", ".join(sorted(side)) or "shares nothing" for side in (eager, compiled))
        )
        # No later write shows which object shares the same memory.
        severity = METADATA if memory_of(eager) == memory_of(compiled) else None
        yield Finding("alias", message, evidence.where(call, path), severity=severity)


@check("mutation")
def mutation(evidence: Evidence) -> Iterator[Finding]:
    """Compare inputs and state after the call; inputs, results and gradients also after the calls that follow."""
    for call, eager, compiled in evidence.pairs():
        for path in sorted(compiled.overwritten.keys() - eager.overwritten.keys()):
            message = "holds other values after the backward or a later call; eager's stays as it is"
            yield Finding("mutation", message, evidence.where(call, path))
        yield from late_writes(evidence, call, eager, compiled)
        behind = [
            finding
            for path in sorted(eager.gaps.keys() & compiled.gaps.keys())
            for finding in gap_findings(evidence, call, path, eager.gaps[path], compiled.gaps[path])
        ]
        yield from behind
        for part, eager_tree, compiled_tree in (
            ("inputs", eager.inputs, compiled.inputs),
            ("", eager.state, compiled.state),
        ):
            if eager_tree.structure != compiled_tree.structure:
                name, *sides = _first_difference(eager_tree.structure, compiled_tree.structure)
                message = "after the call: eager {}, compiled {}".format(*sides)
                yield Finding("mutation", message, evidence.where(call, part or name))
                continue
            yield from place_findings(evidence, call, eager_tree.replaced, compiled_tree.replaced)
            for eager_leaf, compiled_leaf in zip(eager_tree.leaves, compiled_tree.leaves, strict=True):
                if eager_leaf.as_loaded and compiled_leaf.as_loaded:
                    continue
                differences = list(leaf_findings(evidence, call, eager_leaf, compiled_leaf, "mutation"))
                differences = differences or list(needless_writes(evidence, call, eager_leaf, compiled_leaf))
                yield from differences
                if not (differences or behind or eager_leaf.path in compiled_tree.replaced):
                    yield from hidden_writes(evidence, call, eager_leaf)


def _first_difference(eager: str, compiled: str) -> tuple[str, str, str]:
    """Return the first part in which two structures differ: its name, and what each side has there."""
    parts, others = ({name: part for name, _, part in (piece.partition(": ") for piece in text.split("; "))}
                     for text in (eager, compiled))  # fmt: skip
    for name in {**parts, **others}:
        if parts.get(name) != others.get(name):
            return name, parts.get(name) or "none", others.get(name) or "none"
    return "", eager, compiled


@check("rng")
def generator(evidence: Evidence) -> Iterator[Finding]:
    """Compare the state of the CPU generator after the call: it decides the next random number."""
    for call, eager, compiled in evidence.pairs():
        if not eager.drew_random and not compiled.drew_random:
            continue
        evidence.comparisons += 1
        if eager.generator is None or compiled.generator is None or torch.equal(eager.generator, compiled.generator):
            continue
        sides = ("drew" if record.drew_random else "drew none" for record in (eager, compiled))
        message = "the generator's state after the call differs (eager {}, compiled {})".format(*sides)
        yield Finding("rng", message, evidence.where(call))


@check("global-state", "rng")
def settings(evidence: Evidence) -> Iterator[Finding]:
    """Compare which settings a call changes, and to what. Where one side alone raises, that is the finding.

    Where eager changes a private one of torch, compiled code may do it in another way. Where it draws from a generator
    of Python or NumPy, other draws are other random numbers.
    """
    for call, (eager, compiled) in enumerate(zip(evidence.eager.calls, evidence.compiled.calls)):  # noqa: B905
        if (eager.error is None) != (compiled.error is None):
            continue
        evidence.comparisons += len(eager.settings)
        for name in {**eager.settings, **compiled.settings}:
            where = evidence.where(call, name)
            if name in eager.varying:
                evidence.note(f"{where}: not compared (two eager runs leave it differently)")
                continue
            original = (eager.settings.get(name) or compiled.settings[name])[0]
            expected, actual = (record.settings.get(name, (original, original))[1] for record in (eager, compiled))
            if expected != actual and (expected == original or is_independent(name)):
                message = f"{original} before the call; eager leaves {expected}, compiled {actual}"
                is_drawn = expected != original and is_generator(name)
                if is_drawn and actual == original and "numpy" in name:
                    evidence.note(f"{where}: not compared (Dynamo draws NumPy's numbers from torch's generator)")
                    continue
                yield Finding("rng" if is_drawn else "global-state", message, where)


@check("print", "warning")
def messages(evidence: Evidence) -> Iterator[Finding]:
    """Compare what the program itself prints, in order, and of what it warns, each warning once."""
    for call, eager, compiled in evidence.pairs():
        if MESSAGES in eager.varying:
            evidence.note(f"{evidence.where(call, MESSAGES)}: not compared (two eager runs print or warn differently)")
            continue
        for oracle, is_warning in (("print", False), ("warning", True)):
            expected, actual = ([message for message in side.messages if (message.channel == WARNING) is is_warning]
                                for side in (eager, compiled))  # fmt: skip
            if is_warning:
                expected, actual = list(dict.fromkeys(expected)), list(dict.fromkeys(actual))
            if expected != actual:
                sides = next(pair for pair in zip_longest(expected, actual) if pair[0] != pair[1])
                eager_text, compiled_text = (repr(side.text[:_SHOWN]) if side else "nothing" for side in sides)
                place = next((side.channel for side in sides if side), "")
                message = f"in eager the program says {eager_text}, compiled {compiled_text}"
                yield Finding(oracle, message, evidence.where(call, place))


# --- gates 4 and 5: values and gradients -----------------------------------------------------


@check("shape", "nonfinite", "value", "sign-of-zero")
def values(evidence: Evidence) -> Iterator[Finding]:
    """Compare elements of the outputs, and Python values among them."""
    for call, eager, compiled in _output_leaves(evidence):
        yield from value_findings(evidence, call, eager, compiled)


@check("determinism", "batch-invariance")
def variations(evidence: Evidence) -> Iterator[Finding]:
    """Report what further compiled runs showed: other bits where eager's stay the same."""
    yield from evidence.again


@check("grad")
def gradients(evidence: Evidence) -> Iterator[Finding]:
    """Compare gradients of inputs and parameters: presence, dtype, shape, strides, values."""
    for call, eager, compiled in evidence.pairs():
        for path in dict.fromkeys([*eager.gradients, *compiled.gradients]):
            eager_leaf, compiled_leaf = eager.gradients.get(path), compiled.gradients.get(path)
            evidence.comparisons += 1
            if eager_leaf is not None and compiled_leaf is not None:
                evidence.count("gradients", "grad")
                yield from leaf_findings(evidence, call, eager_leaf, compiled_leaf, "grad")
            elif eager_leaf is not compiled_leaf:
                sides = ("no gradient" if leaf is None else "a gradient" for leaf in (eager_leaf, compiled_leaf))
                yield Finding("grad", "eager gives {}, compiled {}".format(*sides), evidence.where(call, path))


def _output_leaves(evidence: Evidence) -> Iterator[tuple[int, Leaf, Leaf]]:
    """Yield leaves at the same place of both outputs; ``structure`` reports outputs that cannot be paired."""
    for call, eager, compiled in evidence.pairs():
        if eager.outputs.structure == compiled.outputs.structure:
            for eager_leaf, compiled_leaf in zip(eager.outputs.leaves, compiled.outputs.leaves, strict=True):
                if eager_leaf.kind == compiled_leaf.kind:
                    yield call, eager_leaf, compiled_leaf


# --- budgets ---------------------------------------------------------------------------------


@check(*BUDGETS.values())
def budgets(evidence: Evidence) -> Iterator[Finding]:
    """Check bounds on graphs, graph breaks, recompilations and kernels. A run that raised has no final count."""
    if evidence.compiled.error is not None:
        return
    for key, bound in evidence.job.expect.items():
        if key not in BUDGETS or bound is None:
            continue
        if key == "delegated":
            yield from _delegation(str(bound), evidence)
            continue
        row, count, noun = ROWS[BUDGETS[key]], getattr(evidence.compiled, key), _COUNTED.get(key, key.replace("_", " "))
        if uncounted := _why_uncounted(key, evidence):
            evidence.leave_out(f"expect: {key}", uncounted, row.name)
            continue
        evidence.comparisons += 1
        if count < bound if row.floor else count > bound:
            reasons = "; ".join(reason.split("\n")[0] for reason in evidence.compiled.break_reasons)
            cause = f": {reasons}" if reasons and key == "graph_breaks" else ""
            limit = f"at least {bound} expected" if row.floor else f"at most {bound} allowed"
            yield Finding(row.name, f"{count} {noun}, {limit}{cause}", numbers={"count": count, "bound": bound})


def _delegation(bound: str, evidence: Evidence) -> Iterator[Finding]:
    """Check who computed the graphs: of a backend outside torch, whose graphs have operators that compute something."""
    counts = evidence.compiled.delegation
    if counts is None:
        reason = "only what backends outside torch compute is counted, where their graphs compute something"
        evidence.leave_out("expect: delegated", reason, "delegated")
        return
    evidence.comparisons += 1
    if counts.delegated < (counts.calls if bound == "all" else 1):
        names = ", ".join(f"{name} ({count})" for name, count in counts.fallbacks.most_common(5))
        least = counts.calls if bound == "all" else 1
        message = f"the backend computes {counts.delegated} of {counts.calls} operators, {bound} expected"
        message += f"; torch runs {names}"
        numbers = {"count": counts.delegated, "bound": least, "torch_ran": ", ".join(sorted(counts.fallbacks))}
        yield Finding("delegated", message, numbers=numbers)


_COUNTED = {"vectorized": "kernels with vector instructions"}


def _why_uncounted(key: str, evidence: Evidence) -> str:
    """Return why nothing is counted that a bound could be held against; empty where something is."""
    of_kernels, job = key in ("kernels", "vectorized"), evidence.job
    if of_kernels and job.backend["backend"] != "inductor":
        return "only inductor's kernels are counted"
    if key == "vectorized" and torch.device(job.device).type != "cpu":
        return "only the CPU's kernels are counted"
    if key == "vectorized" and has_picked_none():
        return "torch has found no vector instructions on this machine"
    return "this torch has no count of it" if getattr(evidence.compiled, key) is None else ""
