"""A variant as a script that needs torch alone and exits non-zero while the problem is there.

It keeps upstream's rules for reports from fuzzers: default tolerances, a float64 reference (what ``torch._dynamo.utils.same`` says
with it is printed beside each wrong value), ``fallback_random``, and the generator seeded anew before every run. Beyond what
``same`` sees it holds to the oracles of the run, so that its exit code is the run's verdict: 0 nothing differs, 1 something does,
2 the case says nothing here (eager itself fails, or this torch lacks a flag). A script has only the parts that its variant needs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from runner.builder.launchers import FUTURE
from runner.builder.source import Source, build, placed
from runner.cases.model import COMPILED_LAUNCH, LAUNCH, Case, Variant
from runner.cases.python_names import is_name
from runner.engine.messages import Job
from runner.quote import decimal, integer, literal, torch_flag, torch_name
from runner.session.plan import TIMEOUT, Environment, Planned, job, variables_of
from runner.verdict.explained import EMULATE_CASTS, low_precision
from runner.verdict.stages import stage_of
from runner.worker.oracles import BUDGETS, EXCEPTIONS

_MARK = "# --- script\n"
_GAP = "\n\n\n"
_TAG = re.compile(r"  #: (not )?(\w+)$")

_CASTS = re.compile(r"\btorch\.(b?float|half|double|complex|cfloat)|\.(half|bfloat16|float|double|type|type_as|to)\(")
"""What may leave float64 in a run that was begun in it."""
_SUMS = re.compile(
    r"sum|mean|mm\b|mv\b|matmul|@|dot|einsum|linear|conv|norm|softmax|loss|pool|var|std|prod|attention|fft|trace|cov|corr|hist|count|"
    r"rnn|lstm|gru|similarity|distance|dist\b|bmm|inv|solve|det|qr|svd|eig|cholesky|interpolate|scatter|index_add|embedding_bag", re.I
)  # fmt: skip
"""What may add up many numbers, so that another order of theirs is another result."""
_LAYOUTS = re.compile(r"sparse|nested|jagged|_(coo|csr|csc|bsr|bsc)\b|mkldnn")


def script(variant: Variant) -> str:
    """The text of the script: the source that workers run, the variant's settings, and a ``main``.

    Raises InputError for a value that has no place in Python text.
    """
    with placed(variant.case):
        return _script(variant)


def _script(variant: Variant) -> str:
    text = build(variant).text
    made = job(Planned(variant, Environment("", "", "", "", "")), Source(text, ()))
    own = variant.case.module is not None
    if not (re.search(r"^CALLS = \[", text, re.MULTILINE) if own else variant.case.calls):
        text += "\n\nCALLS = [make_inputs]\n"
    template = Path(__file__).with_name("repro_main.py").read_text(encoding="utf-8")
    imports, body = template.split(_MARK, 1)[1].strip("\n").split(_GAP, 1)
    body = _needed(body, {word for word, holds in words(variant, made, text).items() if holds})
    body = f"{_flags(made.config)}{_GAP}{body}"
    given = "\n".join(f"{name} = {value}" for name, value in settings(made).items() if _uses(body, name))
    imports = "\n".join([_used(imports, body), *(f"import {module}" for module in _modules(made))])
    if own:  # a person's own file: it stays as it is, and its names go before ours
        return _without_main(text) + _renamed(f"\n\n{imports}\n\n{given}{_GAP}{body}\n", text)
    head, model = text.rstrip("\n").split(_GAP, 1)
    title, before = head.rsplit('"""\n\n', 1)
    merged = _merge(imports, before)
    if variables := variables_of(variant):
        first = FUTURE if FUTURE in merged else ""
        early = f"import os\n\nos.environ.update({literal(variables)})  # read while triton is imported\n\n"
        merged = f"{first}\n\n{early}{merged.replace(FUTURE, '').lstrip()}".lstrip()
    return f'{title}"""\n\n{merged}\n\n{given}{_GAP}{model}{_GAP}{body}\n'


def settings(made: Job) -> dict[str, str]:
    """The script's constants as source; the backend comes first."""
    defaults: dict[str, Any] = {"dynamic": None, "fullgraph": False, "mode": None, "options": {}}
    backend = {key: value for key, value in made.backend.items() if key == "backend" or value != defaults[key]}
    if backend["backend"] == COMPILED_LAUNCH:
        backend |= {"backend": "inductor", "fullgraph": True}
    raises = (made.expect.get("raises") or {}).get("type")
    ignored = [
        *made.ignore,
        *(["error"] if EXCEPTIONS & set(made.ignore) else []),
    ]  # a script does not look for the moment
    pairs = ", ".join(f"{literal(k)}: ({literal(a)}, {literal(b)})" for k, (a, b) in made.tolerance["by_dtype"].items())
    bounds = {name: bound for name, bound in made.expect.items() if name in BUDGETS and bound is not None}
    budgets = {name: (BUDGETS[name], bound) for name, bound in bounds.items()}
    return {
        "BACKEND": _backend(backend),
        "SEED": integer(made.seed),
        "GRAD": literal(made.grad["mode"]),
        "ORDER": integer(made.grad["order"]),
        "AUTOCAST": torch_name(str(made.autocast).removeprefix("torch.")) if made.autocast else "None",
        "DEVICE": literal(made.device),
        "DTYPE": torch_name(_float(made.dtype)),
        "EPSILON": literal(low_precision(made.source, made.dtype)),
        "THREADS": integer(made.threads),
        "TOLERANCE": "{" + pairs + "}",
        "RAISES": literal(raises),
        "IGNORE": literal(ignored),
        "BUDGETS": literal({k: v for k, v in budgets.items() if v[0] not in made.ignore}),
        "TIMEOUT": decimal(made.timeout or TIMEOUT),
    }


def words(variant: Variant, made: Job, text: str) -> dict[str, bool]:
    """The words of the template's tags, and whether each is true of a variant."""
    case, exact = variant.case, bool(made.tolerance["exact"])
    backward = made.grad["mode"] == "backward"
    own = case.module is not None
    values = backward or bool(case.calls) or not made.expect["raises"]  # else eager raises, and nothing is compared
    wide = not exact and not made.autocast and not _tears(case, text)
    return {
        "values": values,
        "backward": backward,
        "sum": made.grad["cotangent"] == "sum",
        "seeded": backward and made.grad["cotangent"] == "seeded",
        "ones": backward and made.grad["cotangent"] == "ones",
        "exact": exact,
        "close": not exact,
        "tolerance": not exact and bool(made.tolerance["by_dtype"]),
        "float64": values and wide,
        "rounding": values
        and wide
        and not made.tolerance["by_dtype"]
        and bool(own or backward or (made.dtype == "float32" and _SUMS.search(text))),
        "casts": values and wide and bool(own or _CASTS.search(text)),
        "state": own or bool(case.state),
        "tensors": wide and (own or any(item.kind in ("view", "list") for item in case.state)),
        "budgets": any(made.expect[name] is not None for name in BUDGETS),
        "autocast": bool(made.autocast),
        "python": own or "numpy" in text or "random." in text,
        "module": own,
        "kernels": bool(case.kernels),
        "launched": variant.backend.backend == LAUNCH,
        "operators": bool(case.kernels) and variant.backend.backend != LAUNCH,
        "flags": bool(made.config),
        "low": values
        and not exact
        and stage_of(variant.backend.backend) == "inductor"
        and low_precision(text, made.dtype) > 0
        and EMULATE_CASTS not in made.config,
    }


def _tears(case: Case, text: str) -> bool:
    """Whether a cast of the inputs would make other ones: two share memory, or one has a layout of its own."""
    above = {item.name: item.view_of for item in case.inputs}
    above.update((item.name, item.view_of) for call in case.calls for item in call.inputs)
    roots = []
    for item in case.inputs:
        root = item.name
        while above.get(root):
            root = str(above[root])
        roots += [] if item.hidden else [root]
    made = text.partition("def make_inputs")[2]
    return len(set(roots)) < len(roots) or _LAYOUTS.search(made) is not None


def _needed(body: str, true: Collection[str]) -> str:
    """The template without the functions and lines that are for other variants, and without its tags."""

    def kept(line: str) -> bool:
        tag = _TAG.search(line)
        return tag is None or (tag[2] in true) != bool(tag[1])

    blocks = [block for block in body.split(_GAP) if kept(block.split("\n", 1)[0])]
    return _GAP.join("\n".join(_TAG.sub("", line) for line in block.split("\n") if kept(line)) for block in blocks)


def _renamed(ours: str, theirs: str) -> str:
    """Our text with another name for each function and constant whose name the person's file uses too."""
    contract = {"make_model", "make_inputs", "CALLS"}
    used = {node.id for node in ast.walk(ast.parse(theirs)) if isinstance(node, ast.Name)}
    used |= {node.name for node in ast.walk(ast.parse(theirs)) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for name in sorted(set(re.findall(r"^(?:def |class )?(\w+)(?= = |\()", ours, re.MULTILINE)) & used - contract):
        ours = re.sub(rf"(?<![\w.'\"]){name}\b", f"{name}_", ours)
    return ours


def _without_main(text: str) -> str:
    """A person's file without what it does when it is run itself."""
    lines: list[str | None] = [*text.split("\n")]
    for node in ast.parse(text).body:
        if isinstance(node, ast.If) and "__name__" in ast.dump(node.test):
            lines[node.lineno - 1 : node.end_lineno] = [None] * (len(lines[node.lineno - 1 : node.end_lineno]))
    return "\n".join(line for line in lines if line is not None)


def _flags(config: Mapping[str, Any]) -> str:
    """The function that sets the case's flags, and ``fallback_random`` for all, as the run does."""
    flags = {"torch._inductor.config.fallback_random": True, **config}
    lines = (f"    {torch_flag(name)} = {literal(value)}" for name, value in flags.items())
    return "\n".join(["def set_flags():", *lines])


def _modules(made: Job) -> list[str]:
    """What the settings need and the template does not import: modules of flags, and importlib for a backend of one's own."""
    found = {
        torch_flag(str(name).partition("config.")[0] + "config"): None for name in made.config if "config." in name
    }
    own = ["importlib"] if ":" in str(made.backend["backend"]) else []
    return own + [module for module in found if not module.startswith(("torch._dynamo", "torch._inductor"))]


def _backend(arguments: dict[str, Any]) -> str:
    """The arguments of torch.compile; a ``package:function`` is imported by the script."""
    package, colon, function = str(arguments["backend"]).partition(":")
    if not colon:
        return literal(arguments)
    rest = {key: value for key, value in arguments.items() if key != "backend"}
    return f'{{"backend": {imported(package, function)}, **{literal(rest)}}}'


def imported(package: str, function: str) -> str:
    """The expression that imports a function, perhaps of a class, from a package."""
    text = f"importlib.import_module({literal(package)})"
    for part in function.split("."):
        text = f"{text}.{part}" if is_name(part, frozenset()) else f"getattr({text}, {literal(part)})"
    return text


def _float(dtype: str) -> str:
    """The dtype by whose tolerance Python's floats are compared: the variant's, if it is a floating one."""
    return dtype if "float" in dtype or "complex" in dtype else "float32"


def _uses(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text) is not None


def _used(imports: str, body: str) -> str:
    """The lines of imports, and the names on them, that the body uses."""
    lines = []
    for line in imports.split("\n"):
        source, _, names = line.rpartition(" import ")
        if source.startswith("from "):
            wanted = [name for name in names.split(", ") if _uses(body, name)]
            lines += [f"{source} import {', '.join(wanted)}"] if wanted else []
        elif not line or line.startswith("import torch") or f"{line.removeprefix('import ')}." in body:
            lines.append(line)
    return "\n".join(lines)


def _merge(imports: str, own: str) -> str:
    """Both blocks of imports as one: the standard library, then torch, each line once."""
    lines = dict.fromkeys(line for line in f"{imports}\n{own}".split("\n") if line.strip())
    standard = sorted(line for line in lines if "torch" not in line and "numpy" not in line)
    others: Iterable[str] = (line for line in lines if line not in standard)
    return "\n".join([*standard, "", *sorted(others, key=lambda line: (line.startswith("from"), line))])
