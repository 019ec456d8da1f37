"""A variant as a script that needs torch alone and exits non-zero while the problem is there.

It holds the case, one function that runs it, and one comparison: of the finding that a run reported, else of what the
case declares. It has only the parts and settings that this needs. Its exit code is 1 while the problem is there (or
what the process dies of), 0 once it is not, and 2 where eager itself fails or torch lacks a flag. A run of
``runner run`` compares everything.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import indent
from typing import Any

from runner.builder.callers import setting_of
from runner.builder.source import FUTURE, Source, build, placed
from runner.builder.stored_tensors import movable
from runner.cases.model import COMPILED_LAUNCH, LAUNCH, THREADS, Variant
from runner.cases.python_files import is_name
from runner.contract.job import Job, defines
from runner.contract.oracles import EXCEPTIONS, TWIN, row_of
from runner.diagnose.aim import Aim, Result, aim_at, arguments_text, arrangement_of, leading_finding
from runner.quote import (
    QuoteError,
    decimal,
    docstring,
    dotted_name,
    integer,
    literal,
    torch_flag,
    torch_name,
)
from runner.session.plan import TIMEOUT, Environment, Planned, job, precision_flags, variables_of
from runner.templates import template
from runner.text import one_line
from runner.verdict.explained import RANDOM
from runner.verdict.operators import DRAWING
from runner.verdict.stages import stage_of

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
    lead = leading_finding(result)
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
        compile_arguments=_backend(request.backend, watched=aim.kind == "delegation"),
        backend_function=_backend_function(str(request.backend["backend"])),
        fallbacks=f"[{', '.join(map(literal, aim.names))}]",
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
    settings = [change.target for call in case.calls for change in call.changes if change.target.startswith("torch.")]
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
    arguments = arguments_text(arrangement_of(variant))
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
        "dynamo": aim.own_error or aim.kind in ("count", "seconds", "delegation"),
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
        **{kind: aim.kind == kind for kind in ("seconds", "memory", "values", "facts", "float64", "delegation")},
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


def _backend(arguments: Mapping[str, Any], watched: bool = False) -> str:
    """Return the arguments of torch.compile that are not its defaults; a ``package:function`` is imported by the
    script, which may watch the backend."""
    defaults: dict[str, Any] = {"dynamic": None, "fullgraph": False, "mode": None, "options": {}}
    arguments = {key: value for key, value in arguments.items() if key == "backend" or value != defaults[key]}
    if arguments["backend"] == COMPILED_LAUNCH:
        arguments |= {"backend": "inductor", "fullgraph": True}
    texts = {key: literal(value) for key, value in arguments.items()}
    if watched:
        texts["backend"] = "watched"
    elif ":" in str(arguments["backend"]):
        texts["backend"] = _backend_function(str(arguments["backend"]))
    return ", ".join(f"{key}={value}" for key, value in texts.items())


def _backend_function(backend: str) -> str:
    """Return the expression of a backend's function."""
    package, colon, function = backend.partition(":")
    return imported(package, function) if colon else f"torch._dynamo.lookup_backend({literal(backend)})"


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
