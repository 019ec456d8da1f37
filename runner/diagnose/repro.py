"""A variant as a script that needs torch alone and exits non-zero while the problem is there.

It keeps upstream's rules for reports from fuzzers: default tolerances, a float64 reference (what ``torch._dynamo.utils.same`` says
with it is printed beside each wrong value), ``fallback_random`` where eager draws, and the generator seeded anew before every run. Beyond what
``same`` sees it holds to the oracles of the run, so that its exit code is the run's verdict: 0 nothing differs, 1 something does,
2 the case says nothing here (eager itself fails, or this torch lacks a flag). A script has only the parts that its variant needs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from runner.builder.launchers import FUTURE
from runner.builder.source import Source, build, placed
from runner.cases.model import COMPILED_LAUNCH, LAUNCH, Case, Variant
from runner.cases.python_names import is_name
from runner.engine.messages import Job
from runner.quote import QuoteError, decimal, integer, literal, torch_flag, torch_name
from runner.session.plan import TIMEOUT, Environment, Planned, job, variables_of
from runner.templates import template
from runner.verdict.explained import DRAWS, EMULATE_CASTS, RANDOM, low_precision
from runner.verdict.stages import stage_of
from runner.worker.oracles import BUDGETS, EXCEPTIONS

_GAP = "\n\n\n"

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
    title = imports = model = early = ""
    if not own:
        head, model = text.rstrip("\n").split(_GAP, 1)
        title, imports = head.rsplit('"""\n\n', 1)
        if variables := variables_of(variant):
            early = f"import os\n\nos.environ.update({literal(variables)})  # read while triton is imported\n\n"
            if FUTURE in imports:
                early, imports = f"{FUTURE}\n\n{early}", imports.replace(FUTURE, "")
    budgets = {name: (BUDGETS[name], bound) for name, bound in made.expect.items() if name in BUDGETS}
    body = template("repro.py.j2", **_FILTERS).render(
        features(variant, made, text),
        job=made,
        early=early,
        imports="\n".join([imports, *(f"import {module}" for module in _modules(made))]),
        backend_arguments=_backend(made.backend),
        # A script calls both "error": to tell when it was raised takes more than a script should hold.
        ignored=[*made.ignore, *(["error"] if EXCEPTIONS & set(made.ignore) else [])],
        bounds={name: pair for name, pair in budgets.items() if pair[1] is not None and pair[0] not in made.ignore},
        timeout=made.timeout or TIMEOUT,
        model=model and f"{_GAP}{model}",
    )
    body = body.lstrip("\n")
    if own:  # a person's own file: it stays as it is, and its names go before ours
        return _without_main(text) + _renamed(f"\n\n{body}", text)
    return f'{title}"""\n\n{body}'


def features(variant: Variant, made: Job, text: str) -> dict[str, Any]:
    """Return what decides on the parts of a script: by name whether the variant needs it, and two values."""
    case, exact = variant.case, bool(made.tolerance["exact"])
    backward = made.grad["mode"] == "backward"
    own = case.module is not None
    epsilon = low_precision(text, made.dtype)
    cotangent = made.grad["cotangent"]
    if cotangent not in ("seeded", "ones", "sum", "given"):
        raise QuoteError("a cotangent is seeded, ones, sum or given")
    values = backward or bool(case.calls) or not made.expect["raises"]  # else eager raises, and nothing is compared
    places = bool(made.tolerance.get("by_place"))
    wide = (places or not exact) and not made.autocast and not _tears(case, text)
    return {
        "values": values,
        "backward": backward,
        "cotangent": cotangent,
        "given": backward and cotangent == "given",
        "exact": exact,
        "strides": made.strides == "exact",
        "bounded": places or not exact,
        "places": places,
        "tolerance": not exact and bool(made.tolerance["by_dtype"]),
        "float64": values and wide,
        "rounding": values
        and wide
        and not made.tolerance["by_dtype"]
        and bool(own or backward or (made.dtype == "float32" and _SUMS.search(text))),
        "casts": values and wide and bool(own or _CASTS.search(text)),
        "state": own or bool(case.state),
        "tensors": wide and (own or any(item.kind in ("view", "list") for item in case.state)),
        "watched": made.compile_timeout is not None,
        "budgets": any(made.expect[name] is not None for name in BUDGETS),
        "autocast": bool(made.autocast),
        "python": own or "numpy" in text or "random." in text,
        "module": own,
        "kernels": bool(case.kernels),
        "launched": variant.backend.backend == LAUNCH,
        "operators": bool(case.kernels) and variant.backend.backend != LAUNCH,
        "config": bool(made.config),
        "draws": _may_draw(variant, made, text),
        "cuda": made.device.startswith("cuda"),
        "epsilon": epsilon,
        "low": values
        and not exact
        and stage_of(variant.backend.backend) == "inductor"
        and epsilon > 0
        and EMULATE_CASTS not in made.config,
    }


def _may_draw(variant: Variant, made: Job, text: str) -> bool:
    """Whether Inductor may have to draw the numbers of eager. The script asks eager, as a run does; here a word is enough."""
    own = variant.case.module is not None
    inductor = stage_of(variant.backend.backend) not in ("dynamo", "aot") and variant.backend.backend != LAUNCH
    return inductor and RANDOM not in made.config and bool(own or DRAWS.search(text.partition("def make_inputs")[0]))


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


def _renamed(ours: str, theirs: str) -> str:
    """Our text with another name for each function and constant whose name the person's file uses too."""
    contract = {"make_model", "make_inputs", "make_cotangents", "CALLS", "COTANGENTS"}
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


def _modules(made: Job) -> list[str]:
    """What the settings need and the template does not import: modules of flags, and importlib for a backend of one's own."""
    found = {
        torch_flag(str(name).partition("config.")[0] + "config"): None for name in made.config if "config." in name
    }
    own = ["importlib"] if ":" in str(made.backend["backend"]) else []
    return own + [module for module in found if not module.startswith(("torch._dynamo", "torch._inductor"))]


def _backend(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of torch.compile that are not its defaults; a ``package:function`` is imported by the script."""
    defaults: dict[str, Any] = {"dynamic": None, "fullgraph": False, "mode": None, "options": {}}
    arguments = {key: value for key, value in arguments.items() if key == "backend" or value != defaults[key]}
    if arguments["backend"] == COMPILED_LAUNCH:
        arguments |= {"backend": "inductor", "fullgraph": True}
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


def _import_block(text: str) -> str:
    """Return lines of imports, each once: the standard library, then torch. A filter of the template."""
    lines = {line for line in text.split("\n") if line.strip()}
    others = {line for line in lines if "torch" in line or "numpy" in line}
    return "\n".join([*sorted(lines - others), "", *sorted(others, key=lambda line: (line.startswith("from"), line))])


def _spaced(text: str) -> str:
    """Return the code without blank lines but for two before each function. A filter of the template."""
    lines = [line for line in text.split("\n") if line.strip()]
    return "\n".join(f"\n\n{line}" if line.startswith(("def ", "class ", "if ")) else line for line in lines)


_FILTERS = {"literal": literal, "integer": integer, "decimal": decimal, "torch_name": torch_name, "torch_flag": torch_flag,
            "import_block": _import_block, "spaced": _spaced}  # fmt: skip
