"""The oracles, one row for each way in which a compiled run can differ from eager. And the named rules for values:
``tolerance: {values: ...}`` of a case and ``--values`` of a run may ask for one.

Both halves read these tables, so it imports the standard library alone. To add an oracle, add its row here, and a
function with ``@check`` in ``runner/worker/judge/judge.py`` (``docs/extending.md``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

SEVERITIES: Mapping[str, str] = MappingProxyType(
    {
        "wrong-result": "A value, a shape, a dtype or a write is wrong, and nothing says so.",
        "crash": "The process ends: by a signal, for its memory, or for its time.",
        "wrong-error": "Eager raises. The compiled code raises another class of error, or none.",
        "exception": "The compiler or the compiled code raises where eager returns.",
        "alias": "Memory is shared in another way than in eager, so a later write shows elsewhere.",
        "other-random-numbers": "Other random numbers are drawn; with the same ones, all agrees.",
        "metadata": "Strides, offset, layout, requires_grad, identity, the generator's state or warnings differ.",
        "capture": "A bound on graphs, graph breaks, recompilations or kernels is passed.",
    }
)
"""What a finding is worth, the worst first, each with its meaning."""

WRONG, CRASH, ERROR, EXCEPTION, ALIAS, OTHER_NUMBERS, METADATA, CAPTURE = SEVERITIES


@dataclass(frozen=True, slots=True)
class Oracle:
    """One row. A row stands where its findings speak for a variant: before those of the rows below it."""

    name: str
    group: str
    """Kind of failure. A wrong error at one stage and a missing one at the next have one cause."""
    severity: str
    """What a finding is worth, unless the judge knows better: ``Finding.severity``."""
    meaning: str
    """What a finding means, in one sentence of the published schema."""
    symptom: str = ""
    """What torch.compile does, as a title says it; empty where a title names the oracle instead."""
    budget: str = ""
    """The key of ``expect:`` that bounds what it counts."""
    floor: bool = False
    """The bound is the least that is allowed, and not the most."""
    crash: bool = False
    """There is no answer: ERROR. Others say that the answer is wrong: FAIL."""
    message: bool = False
    """The exception's message tells failures apart. That of a wrong value holds its numbers alone."""
    raised: bool = False
    """The compiled side alone raised an exception."""
    compiling: bool = False
    """The failure is over before any generated code has run."""
    limit: bool = False
    """A limit of the case itself was reached: the oracle has the name of its key."""
    numeric: bool = False
    """It compares elements of tensors, or Python's numbers, so it needs an eager that agrees with itself."""
    measured: bool = False
    """Its numbers are errors that can be measured against a float64 run."""
    float64: bool = False
    """It compares otherwise when a float64 run is there."""
    casts: bool = False
    """Casts that a fused kernel leaves out may explain it."""
    random: bool = False
    """Other random numbers may explain it."""
    minified: bool = False
    """``torch._dynamo.utils.same``, with which torch's minifier compares, sees it too."""
    gradients: bool = False
    """It speaks of gradients, so it cannot show without them."""
    drawn: int = 0
    """Among findings about elements, the place in the order in which a heat map draws one; 0 for no heat map."""


ORACLES: tuple[Oracle, ...] = (
    Oracle("signal", "behaviour", CRASH, "The process dies of a signal.", "kills the process", crash=True),
    Oracle(
        "timeout",
        "behaviour",
        CRASH,
        "Compiling or running takes longer than the case's timeout.",
        "hangs",
        crash=True,
        limit=True,
    ),
    Oracle(
        "memory",
        "behaviour",
        CRASH,
        "The process passes the case's memory.",
        "runs out of memory",
        crash=True,
        raised=True,
        limit=True,
    ),
    Oracle(
        "compile-error",
        "behaviour",
        EXCEPTION,
        "The compiler fails although eager runs.",
        "fails to compile",
        crash=True,
        message=True,
        raised=True,
        compiling=True,
    ),
    Oracle(
        "runtime-error",
        "behaviour",
        EXCEPTION,
        "The compiled code raises although eager runs.",
        "raises at run time",
        crash=True,
        message=True,
        raised=True,
    ),
    Oracle(
        "missing-error", "behaviour", ERROR, "Eager raises, the compiled code does not.", "returns where eager raises"
    ),
    Oracle(
        "error-type",
        "behaviour",
        ERROR,
        "Both raise, but not the same class of error.",
        "raises another error than eager",
        message=True,
    ),
    Oracle("out-of-bounds", "memory-of-kernels", WRONG, "A kernel touches memory that none of its arguments holds."),
    Oracle(
        "race",
        "memory-of-kernels",
        WRONG,
        "Programs of a kernel write, or write and read, one element without an atomic operation.",
    ),
    Oracle("unwritten", "memory-of-kernels", WRONG, "A kernel leaves elements of its output as they were."),
    Oracle(
        "graph-break",
        "capture",
        CAPTURE,
        "More graph breaks than allowed.",
        "breaks the graph",
        budget="graph_breaks",
        message=True,
        raised=True,
        compiling=True,
    ),
    Oracle("graphs", "capture", CAPTURE, "More graphs than allowed.", "makes too many graphs", budget="graphs"),
    Oracle(
        "recompile",
        "capture",
        CAPTURE,
        "More recompilations than allowed.",
        "recompiles",
        budget="recompiles",
        raised=True,
    ),
    Oracle("kernels", "capture", CAPTURE, "More kernels than allowed.", "generates too many kernels", budget="kernels"),
    Oracle(
        "vectorized",
        "capture",
        CAPTURE,
        "Fewer kernels with vector instructions than expected.",
        "generates kernels without vector instructions",
        budget="vectorized",
        floor=True,
    ),
    Oracle(
        "delegated",
        "capture",
        CAPTURE,
        "The backend gives operators back to torch that it is expected to compute.",
        "gives operators back to torch",
        budget="delegated",
        floor=True,
    ),
    Oracle("structure", "structure", WRONG, "The outputs are nested differently.", "returns another structure"),
    Oracle("shape", "structure", WRONG, "An output has another shape.", "returns another shape"),
    Oracle("dtype", "structure", WRONG, "An output has another dtype.", "returns another dtype"),
    Oracle("device", "structure", WRONG, "An output lies on another device.", "returns tensors on another device"),
    Oracle(
        "layout",
        "structure",
        METADATA,
        "An output is laid out differently (strided, sparse, ...).",
        "returns another layout",
    ),
    Oracle("stride", "structure", METADATA, "An output has other strides.", "returns other strides"),
    Oracle("offset", "structure", METADATA, "An output has another storage offset.", "returns another storage offset"),
    Oracle(
        "requires-grad",
        "structure",
        METADATA,
        "An output's requires_grad differs, or what autograd lets the caller do with it.",
        "returns another requires_grad",
        gradients=True,
    ),
    Oracle(
        "mutation",
        "effects",
        WRONG,
        "An input, parameter or buffer holds something else after the call.",
        "leaves other values in inputs or state than eager",
        numeric=True,
        measured=True,
        float64=True,
        random=True,
        drawn=4,
    ),
    Oracle(
        "alias",
        "effects",
        ALIAS,
        "Outputs share storage with other tensors than in eager.",
        "returns tensors that share memory in another way than eager's",
    ),
    Oracle(
        "nonfinite",
        "values",
        WRONG,
        "NaN or infinity stands elsewhere.",
        "gives NaN or infinities where eager does not, or none where it does",
        numeric=True,
        float64=True,
        random=True,
        minified=True,
        drawn=1,
    ),
    Oracle(
        "value",
        "values",
        WRONG,
        "Values differ beyond the tolerance.",
        "gives wrong values",
        numeric=True,
        measured=True,
        float64=True,
        casts=True,
        random=True,
        minified=True,
        drawn=2,
    ),
    Oracle(
        "sign-of-zero",
        "values",
        WRONG,
        "A zero has the other sign.",
        "gives zeros of the other sign",
        numeric=True,
        drawn=5,
    ),
    Oracle(
        "determinism",
        "determinism",
        WRONG,
        "Another run of the compiled code gives other bits, where eager's stay the same.",
        "gives other bits in another run",
    ),
    Oracle(
        "batch-invariance",
        "batch-invariance",
        WRONG,
        "A row has other bits in a smaller batch, where eager's stay the same.",
        "gives a row other bits in a smaller batch",
    ),
    Oracle(
        "grad",
        "grad",
        WRONG,
        "A gradient differs.",
        "gives wrong gradients",
        numeric=True,
        measured=True,
        float64=True,
        casts=True,
        random=True,
        minified=True,
        gradients=True,
        drawn=3,
    ),
    Oracle(
        "global-state",
        "global-state",
        WRONG,
        "A call leaves another value of a setting of the process, such as the grad mode, than eager does.",
        "leaves another value of a setting than eager",
    ),
    Oracle("print", "messages", WRONG, "The program prints another text.", "prints another text than eager"),
    Oracle("warning", "messages", METADATA, "The program gives other warnings.", "gives other warnings than eager"),
    Oracle(
        "rng", "rng", METADATA, "Other random numbers are drawn.", "leaves the generator in another state", random=True
    ),
    Oracle(
        "twin",
        "twin",
        WRONG,
        "An equal program, compiled, gives something else.",
        "gives something else for an equal program",
        numeric=True,
        measured=True,
        float64=True,
    ),
)
"""The order is that of the judge's gates: a signal says more than an error, an error more than a shape, a shape more
than a value."""

ROWS: Mapping[str, Oracle] = MappingProxyType({row.name: row for row in ORACLES})

GATES: Mapping[str, int] = MappingProxyType({row.name: place for place, row in enumerate(ORACLES)})

TWIN = "twin"
"""The oracle whose findings begin with the oracle that speaks of the twin."""

CRASHES = frozenset(row.name for row in ORACLES if row.crash)

NUMERIC = frozenset(row.name for row in ORACLES if row.numeric)

EXCEPTIONS = frozenset(row.name for row in ORACLES if row.crash and row.message)
"""Crashes by an exception: no process died, and no memory ran out."""

BUDGETS: Mapping[str, str] = MappingProxyType({row.budget: row.name for row in ORACLES if row.budget})
"""A key of ``expect:`` to the oracle that it bounds."""

CHOICES: Mapping[str, str] = MappingProxyType(
    {
        "padding": "Whether Inductor pads the operands of a matrix product.",
        "autotuning": "Which kernel Inductor takes for a product or a convolution.",
    }
)
"""What torch chooses by a benchmark, so that machines differ, each with its meaning."""

NEARER = "nearer-to-float64"
NOISE = "within-float64-noise"
ROUNDING = "within-rounding-of-inputs"
UNSPECIFIED = "unspecified"
OVERFLOWED = "eager-overflowed"
UNCOMPARED = "not-compared"
"""The label of a variant of which a part could not be compared."""
UNCOMPARED_NOTE = "; not compared"
"""How the note of such a part ends."""
EXPLAINED = "explained-by-"
"""How the label of a policy begins that explains a difference; the flag follows."""

_LONGEST = 100
_PLUGIN = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_-]*)+")


def is_plugin(name: str) -> bool:
    """Return whether a name can be that of another package's oracle: ``package.word``."""
    return len(name) <= _LONGEST and _PLUGIN.fullmatch(name) is not None


def is_excuse(label: str) -> bool:
    """Return whether a label says why values that lie outside the tolerance still pass."""
    return label in (NEARER, NOISE, ROUNDING, OVERFLOWED, UNSPECIFIED) or label.startswith(EXPLAINED)


def row_of(name: str) -> Oracle:
    """Return the row of an oracle.

    Another package's oracle has no row. It counts as one that compares numbers, and is a failure of its own kind.
    """
    return ROWS.get(name) or Oracle(name, name, WRONG, "", numeric=True, float64=True)


def rank_of(severity: str) -> int:
    """Return the place of a severity, the worst 0. What has none, such as an INVALID case, comes last."""
    return [*SEVERITIES, severity].index(severity)


def gate_of(name: str) -> int:
    """Return the place of an oracle among those that speak for a variant, the first 0.

    Other packages' oracles come last.
    """
    return GATES.get(name, len(GATES))


# --- rules for values ---

INDUCTOR = "torch._inductor.config."
_SINCE = (2, 13)
"""The first torch that is known to have the flags of ``newer``."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One rule. ``flags`` are those that upstream has for it; a torch before 2.13 may lack those of ``newer``."""

    name: str
    flags: Mapping[str, bool] = field(default_factory=dict)
    newer: Mapping[str, bool] = field(default_factory=dict)
    bounded: bool = False  # a number goes with it
    oracle: str = ""  # that speaks under it alone

    def flags_of(self, torch: str) -> dict[str, bool]:
        """Return the flags that a version of torch has, such as ``2.13.0``, by full name."""
        parts = torch.split(".")[:2]
        version = tuple(int(part) for part in parts if part.isdecimal())
        flags = {**self.flags, **(self.newer if version >= _SINCE else {})}
        return {INDUCTOR + name: value for name, value in flags.items()}


_EAGER = dict.fromkeys(("division_rounding", "disable_ftz", "use_pytorch_libdevice"), True)

POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        row.name: row
        for row in (
            Policy(
                "bitwise",
                {"emulate_precision_casts": True},
                {"deterministic": True, **{f"eager_numerics.{name}": value for name, value in _EAGER.items()}},
            ),
            Policy("deterministic", newer={"deterministic": True}, oracle="determinism"),
            Policy("batch-invariant", newer={"batch_invariant": True}, oracle="batch-invariance"),
            Policy("sqnr", bounded=True),
            Policy("ulp", bounded=True),
        )
    }
)
"""The flags are those of torch's ``test/inductor/test_torchinductor_opinfo_properties.py``."""

RULED: Mapping[str, str] = MappingProxyType({row.oracle: row.name for row in POLICIES.values() if row.oracle})
"""An oracle to the rule under which alone it speaks."""

STRICT = tuple(row.name for row in POLICIES.values() if not row.bounded)
"""Rules that allow less than the tolerance does, or as much: a whole run may ask for them."""
