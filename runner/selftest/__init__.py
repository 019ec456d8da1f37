"""``runner selftest``: plants bugs that are known and sees whether they are found, named and staged right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.cases.expand import expand
from runner.cases.limits import Limits
from runner.cases.model import Backend, Variant
from runner.cases.suites import Reader
from runner.record.events import Event, VariantFinished

SPEC = Path(__file__).parent / "planted.spec.yaml"

_CPP = "torch._inductor.config.cpp."
_OWN = "runner.worker.planted:"


@dataclass(frozen=True, slots=True)
class Planted:
    """A planted bug: its case, the backend that has it, and how it must be reported.

    ``oracles`` are the words that would be right, one of them is enough. ``twin`` is the backend without the bug.
    """

    bug: str
    case: str
    backend: str
    oracles: tuple[str, ...]
    stage: str = "backend"
    config: Mapping[str, Any] = field(default_factory=dict)
    twin: str = _OWN + "clean"


def _own(bug: str, case: str, *oracles: str) -> Planted:
    return Planted(bug, case, _OWN + bug, oracles)


def _inductor(bug: str, case: str, oracle: str, flag: str, value: str) -> Planted:
    return Planted(bug, case, "inductor", (oracle,), "inductor", {_CPP + flag: value}, "inductor")


def _flag(bug: str, case: str, backend: str, oracle: str, flag: str, value: Any) -> Planted:
    return Planted(bug, case, backend, (oracle,), "dynamo" if backend == "eager" else backend, {flag: value}, backend)


def _torch(bug: str, case: str, oracle: str) -> Planted:
    return Planted(bug, case, bug, (oracle,))


BUGS: tuple[Planted, ...] = (
    _own("wrong_element", "large_sum", "value"),
    _own("stride_off_by_one", "two_outputs", "stride"),
    _own("dropped_mutation", "in_place", "mutation"),
    _own("swapped", "two_outputs", "value"),
    _own("alias_lost", "view_of_input", "alias"),
    _own("scaled_gradient", "gradient", "grad"),
    _own("no_gradient", "gradient", "requires-grad"),
    _own("to_double", "two_outputs", "dtype"),
    _own("error_swallowed", "refused", "missing-error"),
    _own("recompiles_always", "repeated", "graphs", "recompile"),
    _own("draws_twice", "random", "rng"),
    _own("default_dtype_changed", "two_outputs", "global-state"),
    _own("nan_to_zero", "not_a_number", "nonfinite"),
    _own("unsigned_zero", "negative_zero", "sign-of-zero"),
    _own("hangs", "two_outputs", "timeout"),
    _own("aborts", "two_outputs", "signal"),
    _own("segfaults", "two_outputs", "signal"),
    _own("exits_silently", "two_outputs", "runtime-error"),
    _own("toy_compiler", "relu", "compile-error"),
    _torch("relu_compile_error_TESTING_ONLY", "relu", "compile-error"),
    _torch("relu_runtime_error_TESTING_ONLY", "relu", "runtime-error"),
    _torch("relu_accuracy_error_TESTING_ONLY", "relu", "value"),
    _inductor("inductor_relu_accuracy", "relu", "value", "inject_relu_bug_TESTING_ONLY", "accuracy"),
    _inductor("inductor_relu_compile_error", "relu", "compile-error", "inject_relu_bug_TESTING_ONLY", "compile_error"),
    _inductor("inductor_relu_runtime_error", "relu", "runtime-error", "inject_relu_bug_TESTING_ONLY", "runtime_error"),
    _inductor("inductor_log1p_accuracy", "log1p", "value", "inject_log1p_bug_TESTING_ONLY", "accuracy"),
    Planted("inductor_no_lowering", "foobar", "inductor", ("compile-error",), "inductor", twin="aot_eager"),
    _flag(
        "inductor_compile_sleeps",
        "two_outputs",
        "inductor",
        "timeout",
        "torch._inductor.config.sleep_sec_TESTING_ONLY",
        3600,
    ),
    _flag(
        "dynamo_no_sets",
        "set_of_sizes",
        "eager",
        "graph-break",
        "torch._dynamo.config.inject_BUILD_SET_unimplemented_TESTING_ONLY",
        True,
    ),
    _flag(
        "guards_flip_equality",
        "shape_branch",
        "eager",
        "compile-error",
        "torch.fx.experimental._config.inject_EVALUATE_EXPR_flip_equality_TESTING_ONLY",
        True,
    ),
    _torch("non_leaf_compile_error_TESTING_ONLY", "not_a_leaf", "compile-error"),
)
"""Every bug that torch offers to testers on a CPU, and the project's own broken backends."""

TIMEOUT = 10.0
"""Seconds for a planted hang."""


@dataclass(frozen=True, slots=True)
class Result:
    """The results of one planted bug: ``finished`` with the bug, ``twin`` without it."""

    planted: Planted
    finished: VariantFinished
    twin: VariantFinished

    @property
    def caught(self) -> bool:
        """Return whether it is reported as a failure by a right oracle at the right stage."""
        event = self.finished
        right = bool(set(event.oracles) & set(self.planted.oracles)) and event.stage == self.planted.stage
        return event.verdict in ("FAIL", "ERROR") and right

    @property
    def quiet(self) -> bool:
        """Return whether the twin without the bug passes."""
        return self.twin.verdict == "PASS"


def variants(bugs: Sequence[Planted] = BUGS) -> list[Variant]:
    """Return the variants to run: each planted bug, and each twin once."""
    reader = Reader(Limits())
    suite = reader.spec_as_suite(SPEC)
    assert not reader.problems, reader.problems
    plain = {v.case.name: v for v in expand([suite])}
    by_id: dict[str, Variant] = {}
    for bug in bugs:
        base = plain[bug.case]
        limited = replace(base, case=replace(base.case, timeout=TIMEOUT)) if "timeout" in bug.oracles else base
        for variant, backend in (
            (limited, Backend(bug.bug, bug.backend, config=bug.config)),
            (base, Backend(bug.twin, bug.twin)),
        ):
            id_ = f"selftest::{bug.case}@{backend.name}"
            by_id.setdefault(id_, replace(variant, id=id_, backend=backend, where="selftest"))
    return list(by_id.values())


def judge(events: Sequence[Event], bugs: Sequence[Planted] = BUGS) -> list[Result]:
    """Return the planted bugs with their results.

    Raises:
        KeyError: a variant did not finish.
    """
    finished = {e.id: e for e in events if isinstance(e, VariantFinished)}
    return [Result(b, finished[f"selftest::{b.case}@{b.bug}"], finished[f"selftest::{b.case}@{b.twin}"]) for b in bugs]


def table(results: Sequence[Result]) -> str:
    """Return one row a bug, and the mutation score."""
    from tabulate import tabulate

    rows = [
        (
            r.planted.bug,
            "caught" if r.caught else "MISSED",
            ", ".join(r.finished.oracles) or r.finished.verdict,
            r.finished.stage or "-",
            " or ".join(r.planted.oracles) + " at " + r.planted.stage if not r.caught else "",
            "quiet" if r.quiet else f"{r.twin.verdict}: {r.twin.reason}",
        )
        for r in results
    ]
    text = tabulate(rows, headers=["planted bug", "", "difference", "stage", "expected", "twin without it"])
    caught, quiet = sum(r.caught for r in results), sum(r.quiet for r in results)
    return f"{text}\n\nmutation score: {caught} of {len(results)} caught; {quiet} of {len(results)} twins quiet"
