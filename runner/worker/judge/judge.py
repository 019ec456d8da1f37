"""Two observations to findings: one function an oracle, in the order of the gates.

A finding is a fact with its numbers. Whether it is expected or known is decided elsewhere.
To add an oracle, write one function and put it into ``ORACLES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.worker.case.errors import Raised, counts_as
from runner.worker.case.observe import CallRecord, Observation
from runner.worker.case.snapshot import Leaf, elements
from runner.worker.judge import sensitivity
from runner.worker.judge.compare import compare_values, number, tolerance_for
from runner.worker.judge.reference import Reference


@dataclass(frozen=True)
class Finding:
    """One disagreement. ``path`` says where, such as ``call 1, output[0]``; ``numbers`` are JSON-safe."""

    oracle: str
    message: str
    path: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    line: int | None = None  # of the case's source, where no error names it


@dataclass
class Evidence:
    """What the oracles look at, and what they note on the way."""

    job: Mapping[str, Any]
    eager: Observation
    compiled: Observation
    reference: Reference
    labels: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    comparisons: int = 0

    def pairs(self) -> Iterator[tuple[int, CallRecord, CallRecord]]:
        """(call, eager's record, compiled record) of every call in which both returned."""
        for call, (ours, theirs) in enumerate(zip(self.eager.calls, self.compiled.calls)):  # noqa: B905  either may have raised
            if ours.error is None and theirs.error is None:
                yield call, ours, theirs

    def where(self, call: int, path: str = "") -> str:
        """The path, with the call's number if there are several."""
        several = max(len(self.eager.calls), len(self.compiled.calls)) > 1
        return ", ".join(part for part in (f"call {call}" if several else "", path) if part)

    def note(self, text: str) -> None:
        """Note once."""
        if text not in self.notes:
            self.notes.append(text)


Oracle = Callable[[Evidence], Iterator[Finding]]


def judge(evidence: Evidence) -> list[Finding]:
    """Every finding that the job does not ignore. Nothing is compared in or after the call in which either raised."""
    ignored = set(evidence.job.get("ignore") or ())
    return [finding for oracle in ORACLES for finding in oracle(evidence) if finding.oracle not in ignored]


# --- gate 1: behaviour ----------------------------------------------------------------------


def behaviour(evidence: Evidence) -> Iterator[Finding]:
    """Who raised, and what. Within a call only one side's error, or two unlike ones, are findings."""
    for call, (ours, theirs) in enumerate(zip(evidence.eager.calls, evidence.compiled.calls)):  # noqa: B905
        where = evidence.where(call)
        evidence.comparisons += 1
        if theirs.error is None and ours.error is not None:
            yield Finding("missing-error", f"eager raised {ours.error.summary}; compiled returned", where)
        elif theirs.error is not None and ours.error is None:
            oracle, message = _classify(theirs.error, evidence.compiled.launches is not None)
            yield Finding(oracle, f"{message}: {theirs.error.summary}", where, error=theirs.error.info)
        elif theirs.error is not None and ours.error is not None and not counts_as(theirs.error, ours.error):
            message = f"eager raised {ours.error.summary}; compiled raised {theirs.error.summary}"
            yield Finding("error-type", message, where, error=theirs.error.info)


def _classify(error: Raised, launched: bool = False) -> tuple[str, str]:
    """The oracle of an error that only the compiled side raised, and what to say."""
    moment = " in the backward" if error.during == "backward" else ""
    if error.unsupported:
        return "graph-break", f"the graph broke where it may not{moment}"
    if error.recompiled:
        return "recompile", f"recompiled where it may not{moment}"
    if error.memory:
        return "memory", f"out of memory{moment}"
    if error.compiling:
        return "compile-error", f"raised while compiling{moment}"
    if launched:
        return "runtime-error", f"launching the kernels raised{moment}"
    return "runtime-error", f"the compiled code raised{moment}"


def launches(evidence: Evidence) -> Iterator[Finding]:
    """What launched kernels did to memory beyond what they were given, or did not do to what they were to write."""
    seen = evidence.compiled.launches
    evidence.comparisons += seen.count if seen is not None else 0
    for one in seen.found if seen is not None else ():
        yield Finding(one.oracle, one.message, one.path, one.numbers, line=one.line)


# --- gate 2: structure and metadata ---------------------------------------------------------


def structure(evidence: Evidence) -> Iterator[Finding]:
    """The containers of the outputs, and the class of each leaf."""
    for call, ours, theirs in evidence.pairs():
        evidence.comparisons += 1
        if ours.outputs.structure != theirs.outputs.structure:
            message = f"eager returns {ours.outputs.structure}, compiled {theirs.outputs.structure}"
            yield Finding("structure", message, evidence.where(call, "output"))
            continue
        for mine, other in zip(ours.outputs.leaves, theirs.outputs.leaves, strict=True):
            if mine.type != other.type:
                message = f"eager returns a {mine.type}, compiled a {other.type}"
                yield Finding("structure", message, evidence.where(call, mine.path))


def metadata(evidence: Evidence) -> Iterator[Finding]:
    """Shape, dtype, device, layout, strides, offset and requires_grad of the outputs."""
    for call, mine, other in _output_leaves(evidence):
        if mine.facts is None or other.facts is None:
            continue
        for oracle, message in _facts(evidence, mine, other):
            yield Finding(oracle, message, evidence.where(call, mine.path))
        both_alias = any("input" in text for text in evidence.eager.calls[call].aliases.get(mine.path, ())) and any(
            "input" in text for text in evidence.compiled.calls[call].aliases.get(mine.path, ())
        )
        if both_alias and mine.facts.offset != other.facts.offset:
            message = f"eager starts at element {mine.facts.offset} of the storage, compiled at {other.facts.offset}"
            yield Finding("offset", message, evidence.where(call, mine.path))


def _facts(evidence: Evidence, mine: Leaf, other: Leaf) -> Iterator[tuple[str, str]]:
    """(oracle, message) of every piece of metadata that differs."""
    ours, theirs = mine.facts, other.facts
    assert ours is not None and theirs is not None
    evidence.comparisons += 1
    for oracle, name in (("shape", "shape"), ("dtype", "dtype"), ("device", "device"), ("layout", "layout")):
        if getattr(ours, name) != getattr(theirs, name):
            more = "; its values are not compared" if oracle in ("shape", "dtype") else ""
            yield oracle, f"eager {_plain(getattr(ours, name))}, compiled {_plain(getattr(theirs, name))}{more}"
    if ours.shape == theirs.shape and _strides(mine) != _strides(other) and ours.layout == theirs.layout:
        steps = f"eager {list(ours.stride or ())}, compiled {list(theirs.stride or ())}"
        yield "stride", f"{steps} for shape {list(ours.shape)}"
    if ours.requires_grad != theirs.requires_grad:
        yield "requires-grad", f"eager {ours.requires_grad}, compiled {theirs.requires_grad}"


def _strides(leaf: Leaf) -> tuple[int, ...]:
    """Strides of the dimensions in which there is somewhere to step to."""
    facts = leaf.facts
    if facts is None or facts.stride is None or 0 in facts.shape:
        return ()
    return tuple(step for step, size in zip(facts.stride, facts.shape, strict=True) if size > 1)


# --- gate 3: side effects --------------------------------------------------------------------


def aliases(evidence: Evidence) -> Iterator[Finding]:
    """Which inputs, state and earlier outputs each output is, or shares storage with."""
    for call, ours, theirs in evidence.pairs():
        if ours.outputs.structure != theirs.outputs.structure:
            continue
        for path, relations in ours.aliases.items():
            found = theirs.aliases.get(path, frozenset())
            evidence.comparisons += 1
            if relations != found:
                message = f"eager: {_relations(relations)}; compiled: {_relations(found)}"
                yield Finding("alias", message, evidence.where(call, path))


def mutation(evidence: Evidence) -> Iterator[Finding]:
    """Inputs, parameters, buffers and attributes after the call."""
    for call, ours, theirs in evidence.pairs():
        for what, mine, other in (("inputs", ours.inputs, theirs.inputs), ("state", ours.state, theirs.state)):
            if mine.structure != other.structure:
                message = f"{what} after the call: eager {mine.structure}, compiled {other.structure}"
                yield Finding("mutation", message, evidence.where(call, what))
                continue
            for before, after in zip(mine.leaves, other.leaves, strict=True):
                yield from _leaf_findings(evidence, call, before, after, "mutation")


def generator(evidence: Evidence) -> Iterator[Finding]:
    """The state of the CPU generator after the call: what the next random number would be."""
    for call, ours, theirs in evidence.pairs():
        if not ours.drew_random and not theirs.drew_random:
            continue
        evidence.comparisons += 1
        if ours.generator is None or theirs.generator is None or torch.equal(ours.generator, theirs.generator):
            continue
        eager, compiled = ("drew" if record.drew_random else "drew none" for record in (ours, theirs))
        message = f"the generator's state after the call differs (eager {eager}, compiled {compiled})"
        yield Finding("rng", message, evidence.where(call))


# --- gates 4 and 5: values and gradients -----------------------------------------------------


def values(evidence: Evidence) -> Iterator[Finding]:
    """Elements of the outputs, and Python values among them."""
    for call, mine, other in _output_leaves(evidence):
        yield from _value_findings(evidence, call, mine, other)


def gradients(evidence: Evidence) -> Iterator[Finding]:
    """Gradients of inputs and parameters: there or not, dtype, shape, strides, values."""
    for call, ours, theirs in evidence.pairs():
        for path in dict.fromkeys([*ours.gradients, *theirs.gradients]):
            mine, other = ours.gradients.get(path), theirs.gradients.get(path)
            evidence.comparisons += 1
            if mine is None or other is None:
                if mine is not other:
                    eager, compiled = ("no gradient" if leaf is None else "a gradient" for leaf in (mine, other))
                    yield Finding("grad", f"eager gives {eager}, compiled {compiled}", evidence.where(call, path))
                continue
            yield from _leaf_findings(evidence, call, mine, other, "grad")


def _output_leaves(evidence: Evidence) -> Iterator[tuple[int, Leaf, Leaf]]:
    """Leaves that stand for one another; ``structure`` reports those that do not."""
    for call, ours, theirs in evidence.pairs():
        if ours.outputs.structure == theirs.outputs.structure:
            for mine, other in zip(ours.outputs.leaves, theirs.outputs.leaves, strict=True):
                if mine.kind == other.kind:
                    yield call, mine, other


def _leaf_findings(evidence: Evidence, call: int, mine: Leaf, other: Leaf, oracle: str) -> Iterator[Finding]:
    """Metadata and value of a leaf that is no output, all under one oracle."""
    if mine.kind != other.kind or mine.type != other.type:
        yield Finding(oracle, f"eager a {mine.type}, compiled a {other.type}", evidence.where(call, mine.path))
        return
    if mine.facts is not None and other.facts is not None:
        for name, message in _facts(evidence, mine, other):
            yield Finding(oracle, f"{name}: {message}", evidence.where(call, mine.path))
    for finding in _value_findings(evidence, call, mine, other):
        yield Finding(oracle, f"{finding.oracle}: {finding.message}", finding.path, finding.numbers)


def _value_findings(evidence: Evidence, call: int, mine: Leaf, other: Leaf) -> Iterator[Finding]:
    where = evidence.where(call, mine.path)
    if mine.problem is not None or other.problem is not None:
        evidence.note(f"{where}: {mine.problem or other.problem}; not compared")
        return
    if mine.facts is None or other.facts is None:
        yield from _python_findings(evidence, call, mine, other)
        return
    if mine.facts.shape != other.facts.shape or mine.facts.dtype != other.facts.dtype:
        return
    if mine.value.shape != other.value.shape:  # the parts of a nested tensor
        yield Finding("shape", f"eager {list(mine.value.shape)}, compiled {list(other.value.shape)}", where)
        return
    yield from _element_findings(evidence, call, mine, other, mine.facts.dtype)


def _element_findings(
    evidence: Evidence, call: int, leaf: Leaf, compiled: Leaf, dtype: torch.dtype
) -> Iterator[Finding]:
    """What differs beyond what is allowed to numbers of that dtype. A Python number's is the one of the tensor it came from."""
    mine, other = elements(leaf), elements(compiled)
    assert mine is not None and other is not None
    evidence.comparisons += int(mine.numel() > 0)
    asked = evidence.job.get("tolerance")
    kind = mine.shape, mine.is_complex()

    def reference() -> torch.Tensor | None:
        found = evidence.reference.tensor(call, leaf.path)
        return found if found is not None and (found.shape, found.is_complex()) == kind else None

    def moved() -> torch.Tensor | None:
        # Who names a tolerance has said how much may be rounded away.
        named = (asked or {}).get("by_dtype")
        return None if named or dtype not in sensitivity.DTYPES else evidence.reference.moved(call, leaf.path)

    result = compare_values(mine, other, tolerance_for(dtype, asked), reference, moved)
    if result.label is not None and result.label not in evidence.labels:
        evidence.labels.append(result.label)
    for difference in result.differences:
        path = evidence.where(call, leaf.path)
        yield Finding(difference.oracle, difference.message, path, difference.numbers)


def _python_findings(evidence: Evidence, call: int, mine: Leaf, other: Leaf) -> Iterator[Finding]:
    """Python values: equal, NaN to NaN. A float may be off by the tolerance of the job's dtype, since it usually comes
    out of a tensor of that dtype (``x.sum().item()``)."""
    evidence.comparisons += 1
    if mine.type != other.type or same_python(mine.value, other.value):
        return
    message = f"eager {str(mine.value)[:200]}, compiled {str(other.value)[:200]}"
    if not isinstance(mine.value, (float, complex)):
        numbers: dict[str, Any] = {"eager": str(mine.value)[:200], "compiled": str(other.value)[:200]}
        if type(mine.value) is int:
            numbers = {"eager": mine.value, "compiled": other.value, "abs_error": number(abs(mine.value - other.value))}
        yield Finding("value", message, evidence.where(call, mine.path), numbers)
        return
    dtype = getattr(torch, str(evidence.job.get("dtype", "float32")).removeprefix("torch."))
    yield from _element_findings(evidence, call, mine, other, dtype if dtype.is_floating_point else torch.float32)


def same_python(mine: Any, other: Any) -> bool:
    """Whether two Python values are equal; NaN equals NaN."""
    if mine is other:
        return True
    try:
        return bool(mine == other) or bool(mine != mine and other != other)
    except Exception:  # noqa: BLE001  an object of the model may refuse to be compared
        return False


# --- budgets ---------------------------------------------------------------------------------


def budgets(evidence: Evidence) -> Iterator[Finding]:
    """Upper bounds on graphs, graph breaks and recompiles. A run that raised has no final count."""
    if evidence.compiled.error is not None:
        return
    expect = evidence.job.get("expect") or {}
    for oracle, key, what in (
        ("graphs", "graphs", "graphs"),
        ("graph-break", "graph_breaks", "graph breaks"),
        ("recompile", "recompiles", "recompiles"),
    ):
        bound = expect.get(key)
        if bound is None:
            continue
        evidence.comparisons += 1
        count = getattr(evidence.compiled, key)
        if count > bound:
            reasons = "; ".join(reason.split("\n")[0] for reason in evidence.compiled.break_reasons)
            more = f": {reasons}" if reasons and key == "graph_breaks" else ""
            message = f"{count} {what}, at most {bound} allowed{more}"
            yield Finding(oracle, message, numbers={"count": count, "bound": bound})


def _plain(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value).removeprefix("torch.")


def _relations(relations: frozenset[str]) -> str:
    return ", ".join(sorted(relations)) or "shares nothing"


ORACLES: tuple[Oracle, ...] = (
    behaviour,
    launches,
    structure,
    metadata,
    aliases,
    mutation,
    generator,
    values,
    gradients,
    budgets,
)
