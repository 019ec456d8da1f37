"""A variant as a script that needs torch alone and exits non-zero while the problem is there.

Upstream's rules for reports from fuzzers: default tolerances, a float64 reference through ``torch._dynamo.utils.same``,
``fallback_random``, and the generator seeded anew before every run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner.builder.launchers import FUTURE
from runner.builder.render import literal
from runner.builder.source import build
from runner.plan import TIMEOUT, job, variables_of
from runner.spec.model import KERNEL_BACKENDS, Variant
from runner.spec.values import is_name

_MARK = "# --- script\n"
LAUNCH, COMPILED_LAUNCH = KERNEL_BACKENDS
_OPERATORS = '''def become_operators():
    """Each function that launches a kernel becomes an operator of the graph."""
    global launch

    def launch(kernel, grid, arguments, new):
        torch.library.wrap_triton(kernel)[grid](**arguments)

    for name in KERNELS:
        globals()[name] = torch.library.triton_op(f"repro::{name}", globals()[name], mutates_args=())'''


def script(variant: Variant) -> str:
    """The text of the script: the source that workers run, the variant's settings, and a ``main``."""
    source = build(variant)
    made = job_settings(variant, source.text)
    template = (Path(__file__).parent.parent / "worker" / "repro_main.py").read_text(encoding="utf-8")
    imports, body = template.split(_MARK, 1)[1].strip("\n").split("\n\n\n", 1)
    if variant.case.kernels:
        body = _launching(body, variant.backend.backend == LAUNCH)
    settings = "\n".join(f"{name} = {value}" for name, value in made.items())
    if variant.case.module is not None:  # a person's own file: its imports stay where they are
        calls = "" if "\nCALLS = [" in source.text else "\nCALLS = [make_inputs]\n"
        return f"{source.text}\n\n{imports}\n\n{settings}\n{calls}\n\n{body}\n"
    head, model = source.text.rstrip("\n").split("\n\n\n", 1)
    if "\nCALLS = [" not in source.text:
        model += "\n\n\nCALLS = [make_inputs]"
    title, own = head.rsplit('"""\n\n', 1)
    merged = _merge(imports, own)
    if variables := variables_of(variant):
        first = FUTURE if FUTURE in merged else ""
        early = f"import os\n\nos.environ.update({literal(variables)})  # read while triton is imported\n\n"
        merged = f"{first}\n\n{early}{merged.replace(FUTURE, '').lstrip()}".lstrip()
    return f'{title}"""\n\n{merged}\n\n{settings}\n\n\n{model}\n\n\n{body}\n'


def _launching(body: str, plainly: bool) -> str:
    """The script's main for a case with kernels: the model that launches them is held against the one that does not."""
    compiled = "call = torch.compile(model, **BACKEND) if compiled else model"
    assert body.count("model = make_model()") == body.count(compiled) == 1
    body = body.replace("model = make_model()", "model = make_kernel_model() if compiled else make_model()")
    if plainly:
        return body.replace(compiled, "call = model")
    before = "    if compiled:\n        become_operators()\n    " + compiled
    return f"{_OPERATORS}\n\n\n{body.replace('    ' + compiled, before)}"


def job_settings(variant: Variant, text: str) -> dict[str, str]:
    """The script's constants as source."""
    from runner.builder.source import Source
    from runner.plan import Environment, Planned

    nowhere = Environment("", "", "", "", "")
    made = job(Planned(variant, nowhere), Source(text, ()))
    backend = {key: value for key, value in made.backend.items() if value not in (None, False, {})}
    if backend["backend"] == COMPILED_LAUNCH:
        backend |= {"backend": "inductor", "fullgraph": True}
    raises = (made.expect.get("raises") or {}).get("type")
    tolerance = {key: tuple(value) for key, value in made.tolerance["by_dtype"].items()}
    pairs = ", ".join(f"{literal(k)}: ({literal(a)}, {literal(b)})" for k, (a, b) in tolerance.items())
    return {
        "SEED": str(made.seed),
        "BACKEND": _backend(backend),
        "FLAGS": literal(dict(made.config)),
        "GRAD, COTANGENT, ORDER": f"{literal(made.grad['mode'])}, {literal(made.grad['cotangent'])}, {made.grad['order']}",
        "AUTOCAST, DEVICE, THREADS": f"{'torch.' + made.autocast if made.autocast else None}, {literal(made.device)}, {made.threads}",
        "TOLERANCE": "{" + pairs + "}",
        "EXACT": str(made.tolerance["exact"]),
        "RAISES": literal(raises),
        "IGNORE": literal(list(made.ignore)),
        "BUDGETS": literal({k: made.expect[k] for k in ("graphs", "graph_breaks") if made.expect[k] is not None}),
        "TIMEOUT": f"{made.timeout or TIMEOUT:g}",
    }


def _backend(arguments: dict[str, Any]) -> str:
    """The arguments of torch.compile; a ``package:function`` is imported by the script."""
    package, colon, function = str(arguments["backend"]).partition(":")
    if not colon:
        return literal(arguments)
    rest = {key: value for key, value in arguments.items() if key != "backend"}
    found = f"importlib.import_module({literal(package)})"
    for part in function.split("."):
        found = f"{found}.{part}" if is_name(part, frozenset()) else f"getattr({found}, {literal(part)})"
    return f'{{"backend": {found}, **{literal(rest)}}}'


def _merge(imports: str, own: str) -> str:
    """Both blocks of imports as one: the standard library, then torch, each line once."""
    lines = dict.fromkeys(line for line in f"{imports}\n{own}".split("\n") if line.strip())
    standard = sorted(line for line in lines if "torch" not in line and "numpy" not in line)
    others = sorted((line for line in lines if line not in standard), key=lambda line: (line.startswith("from"), line))
    return "\n".join([*standard, "", *others])
