"""A variant as a script that needs torch alone and exits non-zero while the problem is there.

Upstream's rules for reports from fuzzers: default tolerances, a float64 reference through ``torch._dynamo.utils.same``,
``fallback_random``, and the generator seeded anew before every run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner.builder.render import literal
from runner.builder.source import build
from runner.plan import TIMEOUT, job
from runner.spec.model import Variant
from runner.spec.values import is_name

_MARK = "# --- script\n"


def script(variant: Variant) -> str:
    """The text of the script: the source that workers run, the variant's settings, and a ``main``."""
    source = build(variant)
    made = job_settings(variant, source.text)
    template = (Path(__file__).parent.parent / "worker" / "repro_main.py").read_text(encoding="utf-8")
    imports, body = template.split(_MARK, 1)[1].strip("\n").split("\n\n\n", 1)
    settings = "\n".join(f"{name} = {value}" for name, value in made.items())
    if variant.case.module is not None:  # a person's own file: its imports stay where they are
        calls = "" if "\nCALLS = [" in source.text else "\nCALLS = [make_inputs]\n"
        return f"{source.text}\n\n{imports}\n\n{settings}\n{calls}\n\n{body}\n"
    head, model = source.text.rstrip("\n").split("\n\n\n", 1)
    if "\nCALLS = [" not in source.text:
        model += "\n\n\nCALLS = [make_inputs]"
    title, own = head.rsplit('"""\n\n', 1)
    return f'{title}"""\n\n{_merge(imports, own)}\n\n{settings}\n\n\n{model}\n\n\n{body}\n'


def job_settings(variant: Variant, text: str) -> dict[str, str]:
    """The script's constants as source."""
    from runner.builder.source import Source
    from runner.plan import Environment, Planned

    nowhere = Environment("", "", "", "", "")
    made = job(Planned(variant, nowhere), Source(text, ()))
    backend = {key: value for key, value in made.backend.items() if value not in (None, False, {})}
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
