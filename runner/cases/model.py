"""Cases, suites and variants, and the nodes of their chains: the frozen dataclasses that the builder and the plan read.

A value in an argument is a small expression node (``Literal``, ``Ref``, ...). The builder writes these nodes out, so
that nobody reads YAML twice. Names of classes and fields are hashed into a plan's hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from runner.cases.tensor_files import StoredTensor
from runner.diagnostics import Span

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "complex32", "bool", "uint8", "int8",
    "int16", "int32", "int64", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
"""Dtypes that an input can have, without ``torch.``; one spelling each."""

FLOATING = ("float16", "bfloat16", "float32", "float64")
"""Dtypes that parameters of modules can have."""

DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "xla", "meta", "ipu", "maia", "privateuseone", "vulkan")
"""Types of device that torch names itself. A module of ``--import`` may add others."""

LAUNCH, COMPILED_LAUNCH = "triton", "triton-compiled"
KERNEL_BACKENDS = (LAUNCH, COMPILED_LAUNCH)
"""Backends of cases that launch Triton kernels: a plain launch, and one inside a graph that Inductor compiles."""

THREADS = 2
"""Intra-op threads of a run that names none: parallel code is generated as for users, and alike on every machine."""

MODE_AXES = ("train", "grad", "dynamic", "autocast", "threads")
"""Keys of a case that are axes where they hold a list."""

GIVEN = "given"
"""The cotangent of a case that names inputs for it."""

# --- values in arguments -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal:
    """A plain scalar: None, bool, int, float, complex or text.

    ``span`` is where a text stands that is not marked as ``$text``.
    """

    value: Any
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a dict in the path of a reference."""

    name: str


RefPath: TypeAlias = tuple[str | int | Key, ...]
"""Attribute names (str), items (int) and keys, in order."""


@dataclass(frozen=True, slots=True)
class Ref:
    """``$name``, ``$name.attr``, ``$name[0]``, ``$name[key]``, ``$self.c``; ``name`` is ``_`` for the previous
    value."""

    name: str
    path: RefPath
    span: Span

    @property
    def text(self) -> str:
        """Return it as a case writes it, without the dollar."""
        parts = (f".{p}" if isinstance(p, str) else f"[{p.name if isinstance(p, Key) else p}]" for p in self.path)
        return self.name + "".join(parts)


@dataclass(frozen=True, slots=True)
class Constant:
    """``torch.float16``, ``torch.channels_last``; ``$dtype`` and ``$device`` keep their dollar."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``${...}``: the text between the braces, checked by ``expressions.parse``."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Index:
    """``"[:, 0]"``: one entry a dimension. An entry is an int, None, Ellipsis, a ``Ref``, an
    ``Arithmetic``, a list of ints, or a slice as a 3-tuple of those."""

    entries: tuple[Any, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class TensorLiteral:
    """``{$tensor: [1, 2], dtype: torch.int64}``."""

    value: Value
    options: tuple[tuple[str, Value], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Function:
    """``{$fn: {args, chain, return}}``."""

    args: tuple[str, ...]
    chain: tuple[Node, ...]
    result: Value | None
    span: Span


@dataclass(frozen=True, slots=True)
class Items:
    """A plain list."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A plain mapping."""

    items: tuple[tuple[str, Value], ...]


Value = Literal | Ref | Constant | Arithmetic | Index | TensorLiteral | Function | Items | Table

# --- steps ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of one call. ``bare`` means none were written: apply it to the previous value."""

    positional: tuple[Value, ...] = ()
    keywords: tuple[tuple[str, Value], ...] = ()
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Initial:
    """How a parameter or buffer of an nn module is filled: by a way of ``init:``, or, where that is None, with one
    value."""

    name: str
    init: str | None
    arguments: tuple[Value, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Step:
    """One operator with its arguments; for ``nn.X`` these go to the constructor and ``call`` to the call."""

    operator: str
    arguments: Arguments
    span: Span
    out: tuple[str, ...] = ()  # () unnamed; one name; or several to unpack; "self.x" writes state
    unpack: bool = False
    call: Arguments | None = None
    id: str | None = None
    train: bool | None = None
    state: tuple[Initial, ...] = ()


@dataclass(frozen=True, slots=True)
class With:
    """``with: [contexts]`` around a chain."""

    contexts: tuple[Step, ...]
    chain: tuple[Node, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class If:
    """``if: condition`` with ``do:`` and ``else:``."""

    condition: Value
    do: tuple[Node, ...]
    otherwise: tuple[Node, ...]
    span: Span


Node = Step | With | If


# --- inputs, state -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Input:
    """One input or one piece of state. ``kind`` says which of the fields counts.

    ``tensor`` (shape, init), ``values`` (values, tile), ``view`` (view_of), ``list`` (items), ``dict`` (keys, items),
    ``python`` (python), ``file`` (stored).
    """

    name: str
    kind: str
    span: Span
    shape: tuple[Value, ...] | None = None
    dtype: str | None = None  # without "torch."; None means the dtypes axis, and $name a param
    init: str | None = None
    init_args: tuple[Value, ...] = ()
    values: Value | None = None
    tile: int | None = None
    view_of: str | None = None
    items: tuple[Input, ...] = ()
    python: Value | None = None
    layout: tuple[Node, ...] = ()
    requires_grad: bool = False
    grad_after_layout: bool = False  # what the layout makes is the leaf
    hidden: bool = False
    device: str | None = None  # or $name of a param
    keys: tuple[str, ...] = ()
    grad_param: str | None = None  # that says whether a gradient is asked for
    stored: StoredTensor | None = None  # of the file that holds its values, with its shape and its dtype


@dataclass(frozen=True, slots=True)
class Change:
    """What the caller sets: ``self.<attribute>``, ``global.<variable>`` or a setting of torch by its full name."""

    target: str
    value: Value
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    """A further call of the compiled object: other params and inputs, fresh data, and what the caller does.

    ``step`` is an optimizer that steps before it, ``load`` says which state dict is loaded, and ``thread`` that a new
    thread makes it.
    """

    params: Mapping[str, Any]
    inputs: tuple[Input, ...]
    span: Span
    step: Step | None = None
    load: str | None = None  # initial, current or assign
    changes: tuple[Change, ...] = ()
    hooks: tuple[Change, ...] = ()  # of modules: a function of the output, or None
    train: bool | None = None
    contexts: tuple[Step, ...] = ()
    thread: bool = False


@dataclass(frozen=True, slots=True)
class PythonModule:
    """``module: {file, name, args}``; ``file`` is absolute. ``positional`` inputs go by their order, others by name."""

    file: str
    name: str
    args: tuple[tuple[str, Value], ...]
    span: Span
    positional: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """What a kernel writes: made like an input, or with a shape and dtype of its own; ``fill`` is what it holds
    before."""

    name: str
    span: Span
    like: str | None = None
    shape: tuple[Value, ...] | None = None
    dtype: str | None = None  # without "torch."; "$dtype" is the variant's
    fill: int | float | bool | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """``kernels: {name: ...}``: a Triton kernel as an operator, and what it is held against.

    ``arguments`` go by the kernel function's own parameters. ``constants`` hold each constant's alternatives: several
    make an axis. ``reference`` is a chain over the inputs, or ``reference_function`` a function of the kernel's file.
    """

    name: str
    span: Span
    file: str  # absolute
    function: str
    inputs: tuple[str, ...]
    arguments: tuple[tuple[str, Value], ...]
    outputs: tuple[Output, ...]
    grid: tuple[Value, ...]
    constants: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    scalars: Mapping[str, str] = field(default_factory=dict)  # inputs that are Python numbers: int, float or bool
    reference: tuple[Node, ...] = ()
    reference_function: str | None = None
    result: Value | None = None


# --- expectations --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Known:
    """One ledger entry. Empty selectors match everything."""

    span: Span
    stage: str | None = None
    oracle: tuple[str, ...] = ()
    error: str | None = None
    signature: str | None = None  # of the whole failure, or the id of that
    case: tuple[str, ...] = ()  # patterns
    operators: tuple[str, ...] = ()  # patterns
    torch: str | None = None
    backend: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    platform: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    issue: str | None = None
    reason: str | None = None
    why: str = "bug"
    sometimes: bool = False  # it shows only now and then
    choice: str | None = None  # of a benchmark of torch, which brings the failure about; then too it shows now and then
    review: str | None = None


@dataclass(frozen=True, slots=True)
class Raises:
    """What eager must raise: a class name as the case writes it, and a pattern."""

    type: str
    match: str | None = None


@dataclass(frozen=True, slots=True)
class Expect:
    """Expectations besides equality. The numbers are upper bounds, but ``vectorized`` is a lower one.

    So is ``delegated``: the backend's own code computes all operators of the graphs, or some.
    """

    raises: Raises | None = None
    graphs: int | None = None
    graph_breaks: int | None = None
    recompiles: int | None = None
    constant: bool = False
    kernels: int | None = None
    vectorized: int | None = None
    delegated: str | None = None  # all or some


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Per dtype (``""`` is every dtype): rtol, atol, either may be None for torch's default.

    ``by_place`` has the same for single outputs (``output[1]``) and for ``gradients``. ``values`` is a rule of
    ``runner/contract/oracles.py``, or empty, and ``bound`` the number that goes with it.
    """

    by_dtype: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    exact: bool = False
    reason: str | None = None
    by_place: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    values: str = ""
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class Grad:
    """``mode``: off, forward or backward.

    A given cotangent is a hidden input for each tensor output, in order, or None.
    """

    mode: str = "forward"
    cotangent: str = "seeded"  # or ones, sum, given
    order: int = 1
    given: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """Dimensions of an input that the caller marks before each call: as dynamic, or as what ``maybe`` is."""

    name: str
    dimensions: tuple[int, ...]
    span: Span
    maybe: bool = False


@dataclass(frozen=True, slots=True)
class Marks:
    """A value of ``dynamic:`` that names dimensions; torch.compile has its own choice of all others."""

    items: tuple[Mark, ...]

    def __str__(self) -> str:
        """Return what ids say: ``{x:[0],y:maybe[0,1]}``."""
        words = (f"{m.name}:{'maybe' if m.maybe else ''}[{','.join(map(str, m.dimensions))}]" for m in self.items)
        return f"{{{','.join(words)}}}"


@dataclass(frozen=True, slots=True)
class Compile:
    """Arguments of torch.compile that a case fixes, and how long compiling may take."""

    fullgraph: bool = False
    mode: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None  # seconds for compiling alone


@dataclass(frozen=True, slots=True)
class Requires:
    """What must be there, or the variant is skipped."""

    torch: str | None = None
    device: tuple[str, ...] = ()
    package: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A model and its inputs, declared. The axes (params, dtypes, devices, modes) are not yet chosen."""

    name: str
    file: str  # absolute
    span: Span
    doc: str = ""
    tags: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    params: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    exclude: tuple[Mapping[str, Any], ...] = ()
    inputs: tuple[Input, ...] = ()
    state: tuple[Input, ...] = ()
    chain: tuple[Node, ...] = ()
    result: Value | None = None
    module: PythonModule | None = None
    kernels: tuple[Kernel, ...] = ()  # those of its file that the chain launches
    calls: tuple[Call, ...] = ()
    dtypes: tuple[str, ...] = ("float32",)
    devices: tuple[str, ...] = ("cpu",)
    param_dtype: str | None = None  # or $dtype, or $name of a param
    train: tuple[bool, ...] = (False,)
    grad: tuple[Grad, ...] = (Grad(),)
    dynamic: tuple[bool | Marks | None, ...] = (None,)
    autocast: tuple[str | None, ...] = (None,)
    threads: tuple[int | None, ...] = (None,)
    seed: int | None = None  # None means the run's
    requires: Requires = Requires()
    compile: Compile = Compile()
    config: Mapping[str, Any] = field(default_factory=dict)
    expect: Expect = Expect()
    tolerance: Tolerance = Tolerance()
    strides: str = "significant"
    ignore: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None  # seconds
    memory: int | None = None  # bytes
    known: tuple[Known, ...] = ()
    axes: tuple[str, ...] = ()  # the axes in the order declared: params' names, train, grad, ..., devices
    twin: tuple[str, ...] = ()  # the rewrites that make an equal program of the chain
    zip: tuple[Mapping[str, tuple[Any, ...]], ...] = ()  # params that go together: each has a value in each row
    placed: tuple[str, ...] = ()  # the params that ``runner/cases/params.py`` puts in where a case holds no value

    @property
    def has_python(self) -> bool:
        """Return whether it brings Python of its own: a module or kernels."""
        return self.module is not None or bool(self.kernels)

    @property
    def files(self) -> set[str]:
        """Return the paths of the files that it is made of: its spec file, and its Python."""
        return {self.file, *([self.module.file] if self.module else ()), *(kernel.file for kernel in self.kernels)}


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """What a backend does not claim. ``devices`` are types or single ones, and dtypes go without ``torch.``."""

    gradients: bool = False
    dynamic: bool = False
    mutation: bool = False  # of inputs
    dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    random: bool = False  # eager's random numbers
    precision: Mapping[str, str] = field(default_factory=dict)  # dtype to the one whose tolerance its values keep
    operators: tuple[str, ...] = ()  # patterns of their names


@dataclass(frozen=True, slots=True)
class Backend:
    """A column of the table: ``name`` is what people read, ``backend`` what torch.compile is given."""

    name: str
    backend: str
    dynamic: bool | None = None
    fullgraph: bool | None = None
    mode: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    unclaimed: Unclaimed = Unclaimed()
    span: Span | None = field(default=None, compare=False)  # where a suite names it; None for one that was typed


@dataclass(frozen=True, slots=True)
class Suite:
    """What to run: cases, backends, devices. A spec file named on the command line is one too."""

    name: str
    file: str
    doc: str = ""
    cases: tuple[Case, ...] = ()
    backends: tuple[Backend, ...] = (Backend("inductor", "inductor"),)
    devices: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    select: str | None = None
    manual: bool = False
    select_span: Span | None = field(default=None, compare=False)
    ledger: tuple[Known, ...] = ()  # of the file that it names
    has_defaults: bool = False  # its cases mean another thing than in their own files


def has_forward(case: Case) -> bool:
    """Return whether a case that always asks for gradients says as much of its forward alone.

    One that names the forward as an axis has it anyway. What raises may do so in the backward, and a cotangent of its
    own is an input of the case.
    """
    return case.expect.raises is None and all(g.mode == "backward" and not g.given for g in case.grad)


@dataclass(frozen=True, slots=True)
class Variant:
    """A case with every axis chosen, under one backend: the thing that runs."""

    id: str
    case: Case
    where: str  # the declaring file as ids show it
    backend: Backend
    dtype: str
    device: str
    params: Mapping[str, Any]
    train: bool
    grad: Grad
    dynamic: bool | Marks | None
    autocast: str | None
    threads: int | None
    suites: tuple[str, ...] = ()
    ledger: tuple[Known, ...] = ()  # of files of their own: what they say of any case

    @property
    def forward_alone(self) -> bool:
        """Whether its case asks for gradients, and its backend claims none, so that its forward is judged alone."""
        return self.backend.unclaimed.gradients and self.grad.mode == "forward" and has_forward(self.case)

    @property
    def known(self) -> tuple[Known, ...]:
        """The entries of the case, and then those of files of their own."""
        return (*self.case.known, *self.ledger)

    @property
    def case_id(self) -> str:
        """``file::name``, as ids show it."""
        return f"{self.where}::{self.case.name}"

    @property
    def config(self) -> dict[str, Any]:
        """torch's flags by full name: the case's, and over them the backend's."""
        return {**self.case.config, **self.backend.config}

    @property
    def param_dtype(self) -> str | None:
        """The dtype of modules' parameters that the case names, with its ``$dtype`` or ``$param`` resolved."""
        name = self.case.param_dtype
        if name is None or not name.startswith("$"):
            return name
        return self.dtype if name == "$dtype" else str(self.params[name[1:]]).removeprefix("torch.")

    @property
    def label(self) -> str:
        """The id without its backend: one row of the table."""
        return self.id.rpartition("@")[0]
