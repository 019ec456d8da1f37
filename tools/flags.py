"""Drafts the tables of torch's flags and backends that a file may name, checks them against a torch, and tries every flag.

    old/bin/python tools/flags.py; new/bin/python tools/flags.py      # adds what that torch has to both tables
    python tools/flags.py --check                                     # exits with 1 where the tables do not fit this torch
    python tools/flags.py --try [--report FILE] [-k WORD]             # what each allowed value does besides compiling

A flag that the table does not hold yet is added as refused, because nobody has reviewed it. A person then allows it: the type is
corrected, and ``refused`` is taken away. ``--try`` needs Linux and ``/proc``; it is described in ``flags_tried.py``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CASES = HERE.parent / "runner" / "cases"
FLAGS, BACKENDS = CASES / "flags.json", CASES / "backends.json"
sys.path.insert(0, str(HERE.parent))

MODULES = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config", "torch.fx.experimental._config",
           "torch._export.config")  # fmt: skip
"""As in runner.cases.torch_names, which an old torch's Python may be unable to import."""
UNREVIEWED = "unreviewed"


def release() -> str:
    """This torch's version as the tables have it, such as ``2.13``."""
    import torch

    return ".".join(str(torch.__version__).split(".")[:2])


def entries_of_torch() -> dict[str, Any]:
    """Every flag of this torch by full name, with torch's own entry for it."""
    flags = {}
    for module in MODULES:
        try:
            entries = importlib.import_module(module)._config
        except ImportError:
            continue  # torch 2.6 has no torch._export.config
        flags.update({f"{module}.{name}": entry for name, entry in sorted(entries.items())})
    return flags


def drafted_type(entry: Any) -> str:
    """The notation of the table for what torch says of a flag; ``object`` for what is no plain value."""
    kind, default = entry.value_type, getattr(entry, "default", None)
    text = kind.__name__ if isinstance(kind, type) else str(kind)
    parts = []
    for part in re.sub(r"typing\.(Union|Optional|Literal)|[\[\],]", " ", text).replace("|", " ").split():
        name = {"None": "null", "NoneType": "null"}.get(part, part)
        parts.append(name if name in ("bool", "int", "float", "null") or name[0] in "'\"" else "object")
    if "Optional" in text or default is None:
        parts.append("null")
    return " | ".join(dict.fromkeys(parts))


def draft() -> None:
    """Add this torch's names to both tables."""
    from torch._dynamo.backends import registry

    version = release()
    table = (
        json.loads(FLAGS.read_text())
        if FLAGS.exists()
        else {"reasons": {UNREVIEWED: "nobody has reviewed it"}, "flags": {}}
    )
    for name, entry in entries_of_torch().items():
        row = table["flags"].setdefault(name, {"type": drafted_type(entry), "torch": [], "refused": UNREVIEWED})
        row["torch"] = _with(row["torch"], version)
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(table["flags"].items())]
    text = f'{{"reasons": {json.dumps(table["reasons"], indent=0)},\n"flags": {{\n' + ",\n".join(lines) + "\n}}\n"
    FLAGS.write_text(text)
    backends = json.loads(BACKENDS.read_text()) if BACKENDS.exists() else {}
    for name in registry.list_backends(exclude_tags=()):
        backends[name] = _with(backends.get(name, []), version)
    BACKENDS.write_text(json.dumps(dict(sorted(backends.items())), indent=0) + "\n")
    waiting = sum(row.get("refused") == UNREVIEWED for row in table["flags"].values())
    print(f"torch {version}: {len(lines)} flags, {waiting} of them not reviewed; {len(backends)} backends")


def _with(versions: list[str], version: str) -> list[str]:
    return sorted({*versions, version}, key=lambda text: [int(part) for part in text.split(".")])


def misfits() -> list[str]:
    """Where the tables and this torch disagree: flags that are missing, and aliases that open what is refused."""
    from torch._dynamo.backends import registry

    from runner.cases.torch_names import flag_table

    rows, problems = flag_table(), []
    for name, entry in entries_of_torch().items():
        if name not in rows:
            problems.append(f"{name} is not in {FLAGS.name}")
        elif release() not in rows[name].torch:
            problems.append(f"{name} is not marked as one of torch {release()}")
        target = getattr(entry, "alias", None)
        if name in rows and not rows[name].refused and target in rows and rows[target].refused:
            problems.append(f"{name} is allowed, and is another name of {target}, which is refused")
        if target and not target.startswith(tuple(MODULES)) and target != "torch.compiler.config.force_disable_caches":
            problems.append(f"{name} is another name of {target}, outside the modules of flags")
    known = json.loads(BACKENDS.read_text())
    problems += [
        f"backend {n} is not in {BACKENDS.name}" for n in registry.list_backends(exclude_tags=()) if n not in known
    ]
    return problems


def main() -> int:
    """Draft, check or try; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say where the tables do not fit this torch")
    parser.add_argument(
        "--try", action="store_true", dest="trial", help="set every allowed value during one compilation"
    )
    parser.add_argument("--report", type=Path, help="where --try writes its findings as JSON")
    parser.add_argument("-k", default="", metavar="WORD", help="only flags whose name has this in it")
    parser.add_argument(
        "--also", action="append", default=[], metavar="NAME=JSON", help="with --try: this one too, refused or not"
    )
    arguments = parser.parse_args()
    if arguments.check:
        problems = misfits()
        print("\n".join(problems) or f"the tables fit torch {release()}")
        return bool(problems)
    if arguments.trial:
        sys.path.insert(0, str(HERE))
        from flags_tried import try_all

        return try_all(arguments.k, arguments.also, arguments.report)
    draft()
    return 0


if __name__ == "__main__":
    sys.exit(main())
