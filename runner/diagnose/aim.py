"""What a script about a variant compares: the finding that a run reported, else what the case declares.

A finding's path becomes an expression over ``output``, ``inputs`` and ``model``. A path that is not valid, such as one
of a log that somebody forged, is compared as a whole instead.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.builder.inputs import Arrangement, arrange
from runner.builder.names_and_values import python_name
from runner.cases.model import Variant
from runner.contract.finding import Finding
from runner.contract.job import Job
from runner.contract.oracles import TWIN, is_excuse, row_of
from runner.contract.settings import Setting
from runner.diagnose.diagnosis import Diagnosis
from runner.quote import (
    QuoteError,
    decimal,
    identifier,
    literal,
)
from runner.record.events import VariantFinished
from runner.verdict.explained import EMULATE_CASTS, RANDOM, label
from runner.verdict.policy import AS_USER, ranked

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
    ``raises`` the exceptions, ``count`` and ``seconds`` a number with ``bound``, ``delegation`` what torch runs for the
    backend; ``died``, ``exited``, ``hung`` and ``memory`` wait for it.
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
    names: tuple[str, ...] = ()  # the operators that torch runs in the backend's place
    hears: str = ""  # the context of a call that keeps what the program says, as ``text``

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the modules beside torch that it needs."""
        if self.hears:
            return ("warnings",) if self.hears.startswith("warnings") else ("contextlib", "io")
        return tuple(self.setting.modules) if self.setting else ()


def aim_at(variant: Variant, job: Job, text: str, result: Result | None) -> Aim:
    """Return what the script of a variant compares; ``text`` is its source, ``result`` what a run said of it."""
    finding = leading_finding(result)
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


def leading_finding(result: Result | None) -> Finding | None:
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


def arrangement_of(variant: Variant) -> Arrangement:
    """How the inputs go to the model."""
    hidden = {*variant.grad.given, *(item.name for item in variant.case.inputs if item.hidden)}
    return arrange(variant.case.module, [item.name for item in variant.case.inputs if item.name not in hidden])


def arguments_text(arrangement: Arrangement) -> str:
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
            arrangement = arrangement_of(variant)
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
        names = str(finding.numbers.get("torch_ran", "")).split(", ")
        return replace(base, kind="delegation", names=tuple(filter(None, names)))
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
