"""A variant as a script that needs torch alone and exits non-zero while the problem is there.

It holds the case, one function that runs it, and one comparison: of the finding that a run reported, else of what the
case declares. It has only the parts and settings that this needs. Its exit code is 1 while the problem is there (or
what the process dies of), 0 once it is not, and 2 where eager itself fails or torch lacks a flag. A run of
``runner run`` compares everything.

A finding's path becomes an expression over ``output``, ``inputs`` and ``model``. A path that is not valid, such as one
of a log that somebody forged, is compared as a whole instead.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import indent
from typing import Any

from runner.builder.callers import setting_of
from runner.builder.inputs import Arrangement, arrange
from runner.builder.names_and_values import python_name
from runner.builder.source import FUTURE, Source, build, placed
from runner.builder.stored_tensors import movable
from runner.cases.model import COMPILED_LAUNCH, LAUNCH, THREADS, Variant
from runner.cases.python_files import is_name
from runner.contract.finding import Finding
from runner.contract.job import Job, defines
from runner.contract.oracles import EXCEPTIONS, TWIN, is_excuse, row_of
from runner.contract.settings import Setting
from runner.diagnose.diagnosis import Diagnosis
from runner.exit_codes import UsageError
from runner.quote import (
    QuoteError,
    decimal,
    docstring,
    dotted_name,
    identifier,
    integer,
    literal,
    torch_flag,
    torch_name,
)
from runner.record.events import VariantFinished
from runner.session.plan import TIMEOUT, Environment, Planned, job, precision_flags, variables_of
from runner.templates import template
from runner.text import one_line
from runner.verdict.explained import EMULATE_CASTS, RANDOM, label
from runner.verdict.operators import DRAWING
from runner.verdict.policy import AS_USER, ranked
from runner.verdict.stages import stage_of

NOISE = 3.0
"""How many times eager's own error a script must leave between rounding and the bug, on either side of its bound."""

_DEFAULTS = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float64": (1e-7, 1e-7), "complex128": (1e-7, 1e-7)}
"""rtol and atol of ``torch.testing.assert_close`` by dtype; ``_USUAL`` for float32 and complex64."""
_USUAL = (1.3e-6, 1e-5)

_OF_AUTOGRAD = {
    "inference tensor": "{}.is_inference()",
    "a leaf": "{}.is_leaf",
    "takes a write": "{0}._is_view() and torch._C._autograd._get_creation_meta({0}).value",
}
"""The expressions for ``requires-grad`` where the message of a finding has these words."""

_FACTS = {
    "shape": "tuple({}.shape)",
    "dtype": "{}.dtype",
    "device": "{}.device",
    "layout": "{}.layout",
    "stride": "[step for size, step in zip({0}.shape, {0}.stride()) if size > 1]",
    "offset": "{}.storage_offset()",
    "requires-grad": "{}.requires_grad",
    **_OF_AUTOGRAD,
}
"""The expressions of what the oracles of metadata compare."""

_GRAD_MODE = Setting("torch.is_grad_enabled()", writer="set_grad_enabled")
"""What a script reads where a finding of ``global-state`` names no setting, as in a log that somebody forged."""

_STEP = r"""\[(?:-?\d+|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]|\.[A-Za-z_]\w*"""
_PATH = re.compile(
    r"(?P<gradient>gradient of )?(?P<root>output|(?P<kind>input|parameter|buffer|attribute|global) (?P<name>[\w.]+)|"
    r"(?P<source>\w+))?"
    rf"(?P<steps>(?:{_STEP})*)(?:, order (?P<order>\d+))?",
    re.ASCII,
)
_CALL = re.compile(r"\Acall (\d{1,9})(?:, |$)", re.ASCII)
"""How a path of one call among several begins."""


Result = VariantFinished | Diagnosis
"""What a run, or a diagnosis, says of a variant."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What a script compares, and how.

    ``kind`` decides on its end: ``values`` and ``facts`` compare what ``run`` returns, ``float64`` with a float64 run,
    ``raises`` the exceptions, ``count`` and ``seconds`` a number with ``bound``; ``died``, ``exited``, ``hung`` and
    ``memory`` wait for it.
    """

    kind: str
    oracle: str  # empty for what the case declares
    title: str
    returned: str = "output"  # the expression that run() returns
    calls: int | None = None  # how many calls it takes; None for all
    backward: bool = False
    sources: tuple[str, ...] = ()  # tensors that keep their gradients although they are no leaves
    tolerance: str = ""  # arguments of assert_close
    bound: float = 0
    own_error: bool = False  # the compiler's own exception, which never counts as the model's
    flags: tuple[str, ...] = ()
    defaults: bool = False  # it shows under torch's own settings
    keeps: bool = False  # outputs and inputs of all calls, as ``outputs`` and ``all_inputs``
    setting: Setting | None = None  # what is read after each call, as ``setting``
    hears: str = ""  # the context of a call that keeps what the program says, as ``text``

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the modules beside torch that it needs."""
        if self.hears:
            return ("warnings",) if self.hears.startswith("warnings") else ("contextlib", "io")
        return tuple(self.setting.modules) if self.setting else ()


def aim_at(variant: Variant, job: Job, text: str, result: Result | None) -> Aim:
    """Return what the script of a variant compares; ``text`` is its source, ``result`` what a run said of it."""
    finding = _lead(result)
    if finding is None or result is None:
        return _declared(variant, job, text, result)
    place = _Place.of(finding.path, variant, job)
    about = finding
    if finding.oracle == TWIN:  # as one about a model, which the script compiles in place of the model
        oracle, _, message = finding.message.partition(": ")
        about = replace(finding, oracle=oracle, message=message)
    aim = _at_finding(about, place, variant, job, text)
    return replace(
        aim,
        defaults=finding.oracle in result.stages.get(AS_USER, "").split(),
        calls=None if aim.keeps or place.call is None else place.call + 1,
        kind="raises" if job.expect["raises"] and aim.kind in ("died", "hung") else aim.kind,  # where eager raises
        title=_title(finding, result.torch),
    )


def _lead(result: Result | None) -> Finding | None:
    """Return the finding that speaks for a result; None where it has none."""
    return ranked(result.findings)[0] if result is not None and result.findings else None


def _title(finding: Finding, torch: str) -> str:
    """Return the finding in a line: where it is, and its numbers or the exception's class."""
    where = f" at {finding.path}" if finding.path else ""
    error = finding.error or {}
    what = str(error.get("type", "")) if error or row_of(finding.oracle).group == "behaviour" else finding.message
    version = f" (torch {torch})" if torch else ""
    return f"{finding.oracle}{where}{version}{': ' if what else ''}{what}"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a finding is: its call and an expression; empty where the path is not one of a run."""

    text: str
    call: int | None = None
    gradient: bool = False
    tensor: str = ""  # whose gradient it is

    @staticmethod
    def of(path: str, variant: Variant, job: Job) -> _Place:
        several = _CALL.match(path)
        call = int(several[1]) if several else None
        match = _PATH.fullmatch(_CALL.sub("", path))
        if match is None:
            return _Place("", call)
        try:
            text = _expression(match, variant) + "".join(map(_step, re.findall(_STEP, match["steps"])))
        except (QuoteError, ValueError):
            return _Place("", call)
        if not match["gradient"]:
            return _Place(text, call)
        if job.grad["order"] > 1:
            return _Place("", call, True)
        return _Place(f"{text}.grad" if int(match["order"] or 1) == 1 else "", call, True, text)


def _arrangement(variant: Variant) -> Arrangement:
    """How the inputs go to the model."""
    hidden = {*variant.grad.given, *(item.name for item in variant.case.inputs if item.hidden)}
    return arrange(variant.case.module, [item.name for item in variant.case.inputs if item.name not in hidden])


def _arguments(arrangement: Arrangement) -> str:
    """Return the arguments of a call, of which ``inputs`` has the last ones for keywords."""
    if not arrangement.keywords:
        return "*inputs"
    count = len(arrangement.inputs) - len(arrangement.keywords)
    keywords = [f"{identifier(name)}=inputs[{place}]" for place, name in enumerate(arrangement.keywords, count)]
    return ", ".join([f"*inputs[:{count}]"] * bool(count) + keywords)


def _expression(match: re.Match[str], variant: Variant) -> str:
    """Return the root of a path as an expression. Raises ValueError for one that has none."""
    kind, name = match["kind"], match["name"]
    if match["source"]:
        kind, name = "input", match["source"]
    if match["root"] == "output":
        return "output"
    match kind:
        case "input":
            arrangement = _arrangement(variant)
            names = [*map(python_name, arrangement.parameters), *arrangement.keywords]
            return f"inputs[{int(name) if name.isdigit() else names.index(name)}]"
        case "parameter" | "buffer":
            return f"model.get_{kind}({literal(name)})"
        case "attribute":
            owner, _, last = str(name).rpartition(".")
            return f"model.get_submodule({literal(owner)}).{identifier(last)}" if owner else f"model.{identifier(last)}"
        case "global" if variant.case.module is not None:
            return ".".join(["case", *map(identifier, str(name).split("."))])
    raise ValueError("no place")


def _step(step: str) -> str:
    return f".{identifier(step[1:])}" if step.startswith(".") else f"[{literal(ast.literal_eval(step[1:-1]))}]"


# --- findings ---------------------------------------------------------------------------------


def _at_finding(finding: Finding, place: _Place, variant: Variant, job: Job, text: str) -> Aim:
    """Return the aim at a finding, without its title."""
    oracle, trained = finding.oracle, job.grad["mode"] == "backward"
    row, error = row_of(oracle), finding.error or {}
    base = Aim("died", oracle, "", backward=trained)
    if oracle == "timeout":
        if job.compile_timeout is not None and "limit for compiling" in finding.message:
            return replace(base, kind="seconds", bound=job.compile_timeout)
        return replace(base, kind="hung")
    if oracle == "memory" and error.get("type") == "Memory" and job.memory:
        return replace(base, kind="memory", bound=job.memory)
    if error.get("type") in ("NoResult", "SystemExit"):
        return replace(base, kind="exited")
    if oracle in ("missing-error", "error-type"):
        name = str((job.expect["raises"] or {}).get("type", "")).rpartition(".")[2]
        return replace(base, kind="raises", own_error=name in error.get("bases", ()))
    if oracle == "signal" or error:
        return base
    if oracle == "delegated":
        raise UsageError("a script cannot say who computed a graph; runner score counts it")
    if row.budget:
        return replace(base, kind="count", bound=finding.numbers.get("bound", job.expect.get(row.budget) or 0))
    if row.group == "memory-of-kernels":
        return replace(base, kind="launch")
    match oracle:
        case "global-state" | "rng" if oracle == "global-state" or Setting.of(_CALL.sub("", finding.path)):
            setting = Setting.of(_CALL.sub("", finding.path)) or _GRAD_MODE
            return replace(base, kind="facts", returned="setting", setting=setting, backward=False)
        case "print":
            hears = f"contextlib.redirect_{'stderr' if finding.path.endswith('stderr') else 'stdout'}(text)"
            return replace(base, kind="facts", returned="text.getvalue()", backward=False, hears=hears)
        case "warning":
            returned, hears = "[str(one.message) for one in text]", "warnings.catch_warnings(record=True) as text"
            return replace(base, kind="facts", returned=returned, backward=False, hears=hears)
        case "rng":
            return replace(base, kind="values", returned="torch.get_rng_state()")
        case "alias":
            returned = _shared(finding.message, place, variant, job)
            return replace(base, kind="facts", returned=returned, backward=False, keeps="outputs[" in returned)
        case "mutation" if place.text and finding.message.startswith("holds other values"):  # after the call
            keeps = place.call is not None and not place.text.startswith("model")
            returned, sources = (_kept(place) if keeps else place.text), ((place.tensor,) if place.gradient else ())
            return replace(base, kind="values", returned=returned, keeps=keeps, sources=sources)
        case "mutation" if place.text and ": in the memory behind it" in finding.message:
            returned = f"torch.empty(0, dtype={place.text}.dtype).set_({place.text}.untyped_storage())"
            return replace(base, kind="values", returned=returned)
    base = replace(base, backward=trained and not place.text.startswith("output"))
    kind = finding.message.partition(": ")[0] if oracle in ("grad", "mutation") else oracle
    if kind == "requires-grad":
        kind = next((words for words in _OF_AUTOGRAD if words in finding.message), kind)
    if kind in _FACTS:
        leaves = f"[{_fact(kind, 't', job)} for t in {_whole(oracle, job)} if isinstance(t, torch.Tensor)]"
        return replace(base, kind="facts", returned=_fact(kind, place.text, job) if place.text else leaves)
    if oracle == "structure" or kind not in ("value", "nonfinite", "sign-of-zero", "shape"):
        return _of_presence(base, finding, place, job)
    return _of_values(replace(base, sources=(place.tensor,) if place.gradient else ()), kind, finding, place, job, text)


def _kept(place: _Place) -> str:
    """Return the expression of an output, or of an input or its gradient, of one call of several."""
    root = "outputs" if place.text.startswith("output") else "all_inputs"
    return f"{root}[{place.call}]{place.text.removeprefix('output').removeprefix('inputs')}"


def _fact(kind: str, leaf: str, job: Job) -> str:
    return (f"{leaf}.stride()" if kind == "stride" and job.strides == "exact" else _FACTS[kind]).format(leaf)


def _of_presence(base: Aim, finding: Finding, place: _Place, job: Job) -> Aim:
    """Return the aim at the classes of leaves and containers, and at whether there is a gradient."""
    if finding.oracle == "grad":
        returned = f"{place.text} is None" if place.text else f"[t is None for t in {_whole('grad', job)}]"
    elif place.text in ("", "output") or finding.message.startswith("after the call"):
        returned = f"tree_flatten(tree_map(type, {place.text or '(output, inputs)'}))"
    else:
        returned = f"type({place.text}).__name__"
    return replace(base, kind="facts", returned=returned)


_GRADIENTS = "[t.grad for t in tree_leaves((inputs, list(model.parameters()))) if isinstance(t, torch.Tensor)]"
_STATE = "model.state_dict()"


def _whole(oracle: str, job: Job) -> str:
    """Return the leaves among which a finding is whose place is unknown."""
    if oracle == "grad":
        return "gradients" if job.grad["order"] > 1 else _GRADIENTS
    return f"tree_leaves((inputs, {_STATE}))" if oracle == "mutation" else "tree_leaves(output)"


def _of_values(base: Aim, kind: str, finding: Finding, place: _Place, job: Job, text: str) -> Aim:
    """Return the aim at elements, or at a Python value, beyond the tolerance of the run."""
    whole = _whole(finding.oracle, job)
    leaf = (f"list({place.text}.unbind())" if place.text and _NESTED.search(text) else place.text) or (
        whole if finding.oracle == "grad" else f"[t for t in {whole} if isinstance(t, {_NUMBERS})]"
    )
    numbers = finding.numbers
    if "elements" not in numbers and "eager" in numbers:
        return replace(base, kind="facts", returned=leaf)
    if kind == "sign-of-zero":
        return replace(base, kind="values", returned=f"1 / {leaf}", tolerance="rtol=0, atol=0, ")
    base = replace(base, kind="values", returned=leaf)
    if job.tolerance["exact"] and not numbers.get("atol"):
        return replace(base, tolerance="rtol=0, atol=0, ")
    if kind == "nonfinite":
        return replace(base, tolerance=_widest(job, text))
    eager_error, largest = _number(numbers, "eager_error_max"), _number(numbers, "abs_error_max")
    rtol, atol = _number(numbers, "rtol"), _number(numbers, "atol")
    if eager_error is not None and largest is not None and eager_error * NOISE > (atol or 0.0) and not _is_named(job):
        if largest > eager_error * NOISE**2:  # a bound between rounding and the bug
            return replace(base, tolerance=f"rtol=0, atol={_short(math.sqrt(largest * eager_error))}, ")
        compiled_error = _number(numbers, "compiled_error_max") or math.inf
        return replace(
            base, kind="float64", bound=float(f"{min(2.0, math.sqrt(max(compiled_error / eager_error, 1.1))):.2g}")
        )
    if rtol is None or atol is None or not (_is_named(job) or _GIVES_NUMBERS.search(text)):
        return base  # torch's defaults
    return replace(base, tolerance=f"rtol={_short(rtol)}, atol={_short(atol)}, ")


_GIVES_NUMBERS = re.compile(r"\.(item|tolist)\b")
_NESTED = re.compile(r"nested|jagged")
_PARTS = "[part for t in {} for part in (t.unbind() if getattr(t, 'is_nested', False) else [t])]"
_NUMBERS = "(torch.Tensor, int, float, complex)"
_LEAVES = f"[t for t in tree_leaves(output) if isinstance(t, {_NUMBERS})]"


def _is_named(job: Job) -> bool:
    """Whether the case has a tolerance of its own."""
    return bool(job.tolerance["by_dtype"] or job.tolerance.get("by_place"))


def _number(numbers: Mapping[str, Any], name: str) -> float | None:
    value = numbers.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _short(value: float) -> str:
    return decimal(float(f"{value:.2g}"))


_RELATION = re.compile(r"(is|shares memory with) (.+)")
_OF_CALL = re.compile(r"(.+) of call (\d{1,9})", re.ASCII)
_MEMORY = ".untyped_storage().data_ptr()"


def _shared(message: str, place: _Place, variant: Variant, job: Job) -> str:
    """Return whether an output is, or shares memory with, what the message says of one side alone."""
    sides = re.fullmatch(r"eager: (.*); compiled: (.*)", message)
    leaf = place.text or "output"
    apart = set(sides[1].split(", ")) ^ set(sides[2].split(", ")) if sides else set()
    for relation in sorted(apart):
        match = _RELATION.fullmatch(relation)
        earlier = _OF_CALL.fullmatch(match[2]) if match else None
        if earlier:  # what an earlier call gave, or was given
            same = _Place.of(f"call {earlier[2]}, {earlier[1]}", variant, job)
            if same.text and place.call is not None:
                return f"{_kept(place)}{_MEMORY} == {_kept(same)}{_MEMORY}"
        target = _Place.of(match[2], variant, job).text if match else ""
        if match and target:
            return f"{leaf} is {target}" if match[1] == "is" else f"{leaf}{_MEMORY} == {target}{_MEMORY}"
    return (
        "[[a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for a in tree_leaves(output)] for b in "
        "inputs]"
    )


# --- what the case declares -------------------------------------------------------------------

_MUTATES = re.compile(r"\w_\(|\bout=|\]\s*=[^=]|\.copy_|[-+*/]=|setitem|_\.default")


def _declared(variant: Variant, job: Job, text: str, result: Result | None) -> Aim:
    """Return the aim of a variant without a finding: the exception, or outputs, what may be written to, and
    gradients."""
    torch = f" (torch {result.torch})" if result is not None and result.torch else ""
    seen = f"it passes{torch}" if result is not None else "no run of it is recorded"
    labels = result.labels if result is not None else ()
    flags = tuple(flag for flag in (EMULATE_CASTS, RANDOM) if label(flag) in labels)
    trained = job.grad["mode"] == "backward"
    aim = Aim("values", "", "", backward=trained, flags=flags)
    if job.expect["raises"]:
        return replace(aim, kind="raises", title=f"{seen}; compares what it raises")
    excuses = [name for name in labels if is_excuse(name) and name not in map(label, flags)]
    if excuses or {"value", "nonfinite", "shape"} & set(job.ignore):
        why = f", since values differ ({', '.join(excuses)})" if excuses else ""
        names = [name for name in ("shape", "dtype") if name not in job.ignore] or ["ndim"]
        facts = ", ".join(f"t.{name}" for name in names)
        returned = f"[({facts},) for t in tree_leaves(output) if isinstance(t, torch.Tensor)]"
        return replace(aim, kind="facts", returned=returned, title=f"{seen}; compares {' and '.join(names)} alone{why}")
    model = text.partition("def make_inputs")[0]
    own = variant.case.module is not None
    parts = {"outputs": _PARTS.format(_LEAVES) if _NESTED.search(text) else _LEAVES}
    if "mutation" not in job.ignore and (own or _MUTATES.search(model.partition("def forward")[2])):
        parts["inputs"] = "[t for t in tree_leaves(inputs) if isinstance(t, torch.Tensor)]"
    if "mutation" not in job.ignore and (own or variant.case.state or (variant.train and "nn." in model)):
        parts["state"] = _STATE
    if trained and "grad" not in job.ignore:
        parts["gradients"] = _whole("grad", job)
    returned = next(iter(parts.values())) if len(parts) == 1 else f"({', '.join(parts.values())})"
    words = f"{', '.join([*parts][:-1])} and {[*parts][-1]}" if len(parts) > 1 else "outputs"
    tolerance = _widest(job, text) + "".join(f"check_{name}=False, " for name in _CHECKED if name in job.ignore)
    return replace(aim, returned=returned, tolerance=tolerance, title=f"{seen}; compares {words}")


_CHECKED = ("dtype", "device", "layout")
"""Oracles whose comparison assert_close can leave out."""


def _widest(job: Job, text: str) -> str:
    """Return the arguments of assert_close for all that a case compares: the widest of its tolerances, or none for
    torch's own."""
    if job.tolerance["exact"] and not _is_named(job):
        return "rtol=0, atol=0, "
    default = _DEFAULTS.get(job.dtype, _USUAL)
    if not _is_named(job):
        return f"rtol={_short(default[0])}, atol={_short(default[1])}, " if _GIVES_NUMBERS.search(text) else ""
    named: Sequence[Sequence[float | None]] = [
        *job.tolerance["by_dtype"].values(),
        *job.tolerance.get("by_place", {}).values(),
    ]
    pairs = [[given if given is not None else own for given, own in zip(pair, default, strict=True)] for pair in named]
    rtol, atol = (max(values) for values in zip(*pairs, strict=True))
    return f"rtol={_short(rtol)}, atol={_short(atol)}, "


_HEAD = re.compile(
    r'"""(?P<title>[^\n]*)\n\n(?P<doc>.*?\n\n)?Written from [^\n]*\n"""\n\n(?P<imports>.*?)\n\n\n(?P<body>.*)', re.S
)
_LOOPED = {"CALLS": "make_inputs", "STEPS": "steps", "CHANGES": "change", "CONTEXTS": "around", "THREADS": "is_thread"}
"""Lists of a source, an entry for each call, and what the script calls an entry."""
_MAKE_MODEL = re.compile(r"\n\n\ndef make_model\(\):\n(?P<lines>.*?)\n    return model\n", re.S)

_LAYOUTS = re.compile(r"sparse|nested|jagged|_(coo|csr|csc|bsr|bsc)\b|mkldnn")

_COTANGENTS = {
    "seeded": "cotangent(t, {}index)",
    "ones": "torch.ones_like(t)",
    "given": "COTANGENTS[{}]()[index].to(t)",
    "sum": "",
}
"""The expression of the gradient that the backward starts from at output ``index``; a sum has none."""


def script(variant: Variant, result: Result | None = None, seed: int = 0, imports: Sequence[str] = ()) -> str:
    """The text of the script: the source that workers run, and a comparison aimed at what ``result`` says of the
    variant.

    ``seed`` is the run's, for cases without one of their own, and ``imports`` are the modules that it imports first.
    Raises InputError for a value that has no place in Python text.
    """
    with placed(variant.case):
        return _script(variant, result, seed, imports)


def _script(variant: Variant, result: Result | None, seed: int, first: Sequence[str]) -> str:
    lead = _lead(result)
    has_twin = lead is not None and lead.oracle == TWIN
    if not has_twin:
        variant = replace(variant, case=replace(variant.case, twin=()))
    text = movable(build(variant).text, variant.case)
    request = job(Planned(variant, Environment("", "", "", "", "")), Source(text, ()), seed=seed)
    aim = aim_at(variant, request, text, result)
    aim = replace(aim, backward=aim.backward or defines(text, "STEPS"))
    own = variant.case.module is not None
    title = docstring(one_line(f"{variant.id.partition('::')[2]}: {aim.title}", 300)).replace("\n", " ")
    doc = imports = early = ""
    body, make = (_without_main(text), "case.make_model") if own else (text, "make_model")
    if variant.case.kernels:
        make = "(make_kernel_model if compiled else make_model)"
    if has_twin:
        make = "(make_twin if compiled else make_model)"
    construction = f"model = {make}()"
    if not own:
        head = _HEAD.fullmatch(text)
        assert head is not None
        doc, imports, body = (head["doc"] or "").strip(), head["imports"], head["body"]
        if variables := variables_of(variant):
            early = f"import os\n\nos.environ.update({literal(variables)})  # read while triton is imported\n\n"
            if FUTURE in imports:
                early, imports = f"{FUTURE}\n\n{early}", imports.replace(FUTURE, "")
        made = None if variant.case.kernels or has_twin else _MAKE_MODEL.search(body)
        if made is not None:
            construction, body = (
                made["lines"].strip().replace("Model()\n    model.", "Model()."),
                body[: made.start()] + "\n" + body[made.end() :],
            )
    flags = _flags(variant, request, text, aim)
    rendered = template("repro.py.j2", **_FILTERS).render(
        features(variant, request, text, aim),
        aim=aim,
        job=request,
        first=[literal(name) for name in first],
        construction=construction,
        flags=flags,
        compile_arguments=_backend(request.backend),
        timeout=request.timeout or TIMEOUT,
        body=body.strip("\n"),
        expected=_expected(request),
    )
    head_text, functions, main = rendered.split("# ---\n")
    if own:  # this file is read anew for each run
        main = f'if __name__ == "__main__":\n{indent(main, "    ")}'
    tail = _spaced(f"{functions}\n{main}")
    modules = (f"import {name}" for name in (*_modules(request, flags), *aim.modules))
    imports = _import_block("\n".join([imports, head_text, *modules]))
    if own:  # a person's own file: it stays as it is, and its names go before ours
        return f"# {title}\n{body.rstrip()}\n\n\n{imports}\n\n\n{_renamed(tail, text)}"
    doc = f"\n\n{doc}\n" if doc else ""
    return f'"""{title}{doc}"""\n\n{early}{imports}\n\n\n{body.strip()}\n\n\n{tail}'


def features(variant: Variant, request: Job, text: str, aim: Aim) -> dict[str, Any]:
    """Return what decides on the parts of a script: by name whether it needs them, and some expressions."""
    case, grad = variant.case, request.grad
    model, _, inputs = text.partition("def make_inputs")
    own, kernels = case.module is not None, bool(case.kernels)
    launched = variant.backend.backend == LAUNCH
    cotangent = grad["cotangent"]
    if cotangent not in _COTANGENTS:
        raise QuoteError("a cotangent is seeded, ones, sum or given")
    settings = [one.target for call in case.calls for one in call.changes if one.target.startswith("torch.")]
    lists = [name for name in _LOOPED if defines(text, name)]
    several, first = "CALLS" in lists, integer(request.seed)
    number = first if not several else f"{first} + number" if request.seed else "number"
    draws = own or bool(DRAWING.search(model))
    contexts = [*(["torch.no_grad()"] if grad["mode"] == "off" else []), *([aim.hears] if aim.hears else [])]
    if request.autocast:
        dtype = torch_name(request.autocast.removeprefix("torch."))
        contexts.append(f"torch.autocast({literal(request.device.partition(':')[0])}, {dtype})")
    contexts += ["around()"] if "CONTEXTS" in lists else []
    second = grad["order"] > 1
    make_inputs = "case.make_inputs()" if own and not several else "make_inputs()"
    seeds_call = draws or "get_rng_state" in aim.returned
    plain = not several and not aim.backward and re.fullmatch(r"output[^\s,]*", aim.returned) is not None
    arguments = _arguments(_arrangement(variant))
    direct = plain and not seeds_call and aim.kind != "float64" and arguments == "*inputs"
    returned_call = f"return {aim.returned.replace('output', f'call({arguments})', 1)}" if plain else ""
    if direct:
        returned_call = returned_call.replace("inputs", make_inputs, 1)
    return {
        "module": own,
        "several": several,
        "loop": _loop(lists, "case." if own else "", aim.calls) if several else "",
        "settings": [setting_of(name) for name in dict.fromkeys(settings)],
        "make_optimizer": "case.make_optimizer" if own else "make_optimizer",
        "callers": [name for name in lists if name != "CALLS"],
        "python": own and re.search(r"\brandom\b|numpy", text) is not None,
        "seed": "seed_all" if own and re.search(r"\brandom\b|numpy", text) else "torch.manual_seed",
        "seeds_model": own or "def __init__" in model or draws,
        "seeds_inputs": own or "rand" in inputs or draws,
        "seeds_call": seeds_call,
        "direct": direct,
        "make_inputs": make_inputs,
        "arguments": arguments,
        "returned_call": returned_call,
        "number": number,
        "contexts": ", ".join(contexts),
        "backward": aim.backward,
        "keeps": [name for name in ("outputs", "all_inputs") if aim.keeps and f"{name}[" in aim.returned],
        "cotangents": aim.backward and (cotangent == "seeded" or second),
        "cotangent": _COTANGENTS[cotangent].format(
            f"{number} + " * (number != "0") if cotangent == "seeded" else "number" if several else "0"
        ),
        "order": second,
        "complex": "complex" in text,
        "layouts": bool(_LAYOUTS.search(text)),
        "retained": any(item.layout or item.view_of for item in case.inputs),
        "operators": kernels and not launched,
        "launched": launched,
        "launch": aim.kind == "launch",
        "inductor": any(name.startswith("torch._inductor.config.") for name in request.config) or draws,
        "leaves": aim.backward or "tree_leaves" in aim.returned,
        "flattened": "tree_flatten" in aim.returned,
        "mapped": "tree_map(" in aim.returned,
        "dynamo": aim.own_error or aim.kind in ("count", "seconds"),
        "bounds": aim.kind == "count",
        "counts": aim.kind == "count" and aim.oracle in ("graphs", "graph-break"),
        "recompiles": aim.kind == "count" and aim.oracle == "recompile",
        "generates": aim.kind == "count" and aim.oracle in _GENERATED,
        "generated": _GENERATED.get(aim.oracle, ""),
        "counted": _COUNTED.get(aim.oracle, ""),
        "relation": ">=" if row_of(aim.oracle).floor else "<=",
        "hangs": aim.oracle == "timeout",
        "exits": aim.kind == "exited",
        "ignored": not aim.oracle and bool(EXCEPTIONS & set(request.ignore)),
        "raises": aim.kind == "raises",
        "refused": bool(request.expect["raises"]),
        "own_error": aim.own_error,
        "imports_backend": ":" in str(request.backend["backend"]),
        "alike": _alike(request, aim),
        **{kind: aim.kind == kind for kind in ("seconds", "memory", "values", "facts", "float64")},
    }


_COUNTED = {
    "graphs": "graphs",
    "graph-break": "graph breaks",
    "recompile": "recompilations",
    "kernels": "kernels",
    "vectorized": "kernels with vector instructions",
}
_GENERATED = {"kernels": "generated_kernel_count", "vectorized": "generated_cpp_vec_kernel_count"}
"""Inductor's counters of what it generates, by oracle."""


def _loop(lists: Sequence[str], prefix: str, calls: int | None) -> str:
    """Return the line that goes over the calls, and over what the caller does for each; the first ``calls`` alone."""
    values = [f"{prefix}{name}" for name in lists]
    values[0] += f"[:{calls}]" if calls else ""
    if len(values) == 1:
        return f"for number, make_inputs in enumerate({values[0]}):"
    names = ", ".join(_LOOPED[name] for name in lists)
    return f"for number, ({names}) in enumerate(zip({', '.join(values)})):"


def _alike(request: Job, aim: Aim) -> str:
    """Return the expression that says whether the compiled code raised as eager did, as far as the case asks for it."""
    ignored = () if aim.oracle else request.ignore
    parts = [] if "error-type" in ignored else ["isinstance(compiled, type(eager))"]
    parts += ["not isinstance(compiled, Exception)"] if "missing-error" in ignored else []
    return " or ".join([*parts, *["isinstance(compiled, Exception)"] * ("error-type" in ignored)])


def _flags(variant: Variant, request: Job, text: str, aim: Aim) -> list[str]:
    """Return the settings that the failure needs, as statements: fewer where it shows under torch's own."""
    config = {**(precision_flags(variant.device) if not aim.defaults else {}), **variant.config}
    if _may_draw(variant, request, text):
        config[RANDOM] = True  # else Inductor draws other numbers than eager
    config |= dict.fromkeys(aim.flags, True)
    lines = [f"{torch_flag(name)} = {literal(value)}" for name, value in config.items()]
    if variant.threads or (aim.oracle and not aim.defaults):
        lines.append(f"torch.set_num_threads({integer(variant.threads or THREADS)})")
    return lines


def _may_draw(variant: Variant, request: Job, text: str) -> bool:
    """Whether Inductor may have to draw the numbers of eager. A run asks eager; here a word is enough."""
    if stage_of(variant.backend.backend) in ("dynamo", "aot") or variant.backend.backend == LAUNCH:
        return False
    model = text.partition("def make_inputs")[0]
    draws = DRAWING.search(model if variant.train else _RESTS.sub("", model))
    return RANDOM not in request.config and bool(variant.case.module is not None or draws)


_RESTS = re.compile(r"(?i)\b(?:nn|self)\.\w*(?:dropout|rrelu)\w*|\bF\.rrelu\((?![^\n]*training=True)")
"""What draws in training alone."""


def _expected(request: Job) -> str:
    """Return the class that eager must raise, as far as Python and torch know it by that name; else any exception's."""
    name = str((request.expect["raises"] or {}).get("type", ""))
    known = isinstance(getattr(builtins, name, None), type) or name.startswith("torch.")
    return dotted_name(name) if known else "Exception"


def _renamed(ours: str, theirs: str) -> str:
    """Our text with another name for each function and variable whose name the person's file uses too."""
    contract = {
        "make_model",
        "make_inputs",
        "make_cotangents",
        "make_optimizer",
        "COTANGENTS",
        "KEYWORD_INPUTS",
        *_LOOPED,
    }
    nodes = [*ast.walk(ast.parse(theirs))]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own = re.findall(r"^(?:    )?(?:def )?(\w+)(?= = |\()", ours, re.MULTILINE)
    for name in sorted({*own} & used - contract - vars(builtins).keys()):
        ours = re.sub(rf"(?<![\w.'\"]){name}\b", f"{name}_", ours)
    return ours


def _without_main(text: str) -> str:
    """A person's file without what it does when it is run itself."""
    mains = [n for n in ast.parse(text).body if isinstance(n, ast.If) and "__name__" in ast.dump(n.test)]
    gone = {number for node in mains for number in range(node.lineno, (node.end_lineno or 0) + 1)}
    return "\n".join(line for number, line in enumerate(text.split("\n"), 1) if number not in gone)


def _modules(request: Job, flags: Sequence[str]) -> list[str]:
    """What the settings need: modules of flags, and importlib for a backend of one's own."""
    modules = [flag.partition("config.")[0] + "config" for flag in flags if "config." in flag.partition(" = ")[0]]
    return ["importlib"] * (":" in str(request.backend["backend"])) + list(dict.fromkeys(modules))


def _backend(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of torch.compile that are not its defaults; a ``package:function`` is imported by the
    script."""
    defaults: dict[str, Any] = {"dynamic": None, "fullgraph": False, "mode": None, "options": {}}
    arguments = {key: value for key, value in arguments.items() if key == "backend" or value != defaults[key]}
    if arguments["backend"] == COMPILED_LAUNCH:
        arguments |= {"backend": "inductor", "fullgraph": True}
    texts = {key: literal(value) for key, value in arguments.items()}
    package, colon, function = str(arguments["backend"]).partition(":")
    if colon:
        texts["backend"] = imported(package, function)
    return ", ".join(f"{key}={value}" for key, value in texts.items())


def imported(package: str, function: str) -> str:
    """The expression that imports a function, perhaps of a class, from a package."""
    text = f"importlib.import_module({literal(package)})"
    for part in function.split("."):
        text = f"{text}.{part}" if is_name(part, frozenset()) else f"getattr({text}, {literal(part)})"
    return text


def _import_block(text: str) -> str:
    """Return lines of imports, each once: the standard library, then torch."""
    lines = {line for line in text.split("\n") if line.strip()}
    others = {line for line in lines if re.search("torch|numpy|triton", line)}
    return "\n".join([*sorted(lines - others), "", *sorted(others, key=lambda line: (line.startswith("from"), line))])


def _spaced(text: str) -> str:
    """Return the code without blank lines but for two around each function."""
    parts: list[str] = []
    within = False
    for line in (line for line in text.split("\n") if line.strip()):
        outside = not line.startswith(" ")
        begins = line.startswith(("def ", "@", "if __name__"))
        decorated = bool(parts) and parts[-1].lstrip().startswith("@")
        gap = "\n\n" if parts and outside and (begins or within) and not decorated else ""
        within = (within and not outside) or begins
        parts.append(gap + line)
    return "\n".join(parts) + "\n"


_FILTERS = {"integer": integer, "decimal": decimal}
