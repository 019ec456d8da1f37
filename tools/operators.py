"""Writes runner/cases/operators.json: the public tensor operators, by namespace; and arguments.json: their signatures.

The control half knows names and arguments of operators without torch, so it needs these lists. Run this under each
supported torch, oldest first; a run adds what that version has to what the file already holds:

    old/bin/python tools/operators.py; new/bin/python tools/operators.py
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
from pathlib import Path

import torch
import torch._numpy
import torch.distributions
from signatures import REQUIRED, Signature, function_of, signatures

TARGET = Path(__file__).parent.parent / "runner" / "cases" / "operators.json"
ARGUMENTS = TARGET.with_name("arguments.json")
SPACES = ("F", "Tensor", "nn", "torch", "special", "linalg", "fft", "sparse", "signal.windows", "masked")
"""Namespaces whose signatures are written."""

NAMESPACES = ("special", "linalg", "fft", "sparse", "signal.windows", "nested", "masked", "func", "nn.utils.rnn",
              "distributions", "nn.attention.flex_attention")  # fmt: skip

# Names at torch's top level that are not generated from native functions, and still compute on tensors.
TOP = ("Tensor", "tensor", "vmap", "cond", "while_loop", "Size", "finfo", "iinfo", "sym_int", "sym_float", "sym_max",
       "sym_min", "sym_not", "is_tensor", "is_storage", "complex", "FloatTensor", "LongTensor")  # fmt: skip

NOT_OPERATORS = re.compile(
    r"from_file|^(save|load|seed|initial_seed|manual_seed|set_.*|_assert.*|read_vitals|.*vital.*)$"
)


def callables(module: object, names: list[str] | None = None) -> set[str]:
    """Public callables of a module that are its own or torch's, no submodules and no typing helpers."""
    callables = set()
    for name in names or dir(module):
        member = getattr(module, name, None)
        home = getattr(member, "__module__", None) or "torch"
        if name.startswith("_") or not callable(member) or inspect.ismodule(member) or not home.startswith("torch"):
            continue
        callables.add(name)
    return callables


def with_tensors(packet: object) -> bool:
    """Whether some overload takes or gives a tensor (torch.ops.aten also holds TorchScript's save and open)."""
    for overload in packet.overloads():
        schema = getattr(packet, overload)._schema
        kinds = [str(a.type) for a in schema.arguments] + [str(r.type) for r in schema.returns]
        if any("Tensor" in kind for kind in kinds):
            return True
    return False


def packets(namespace: str) -> dict[str, list[str]]:
    """Operator packets of torch.ops.<namespace> with their overloads."""
    names = {
        n.split("::")[1].split(".")[0] for n in torch._C._dispatch_get_all_op_names() if n.startswith(namespace + "::")
    }
    overloads = {}
    for name in sorted(names):
        packet = getattr(getattr(torch.ops, namespace), name, None)
        if packet is not None and with_tensors(packet):
            overloads[name] = sorted(packet.overloads())
    return overloads


def structured() -> set[str]:
    """Operators of ATen that are structured kernels, or delegate to one: a function of their own checks shapes first."""
    table = (
        Path(importlib.util.find_spec("torchgen").origin).parent
        / "packaged"
        / "ATen"
        / "native"
        / "native_functions.yaml"
    )
    entries = re.split(r"^- func: ", table.read_text(), flags=re.MULTILINE)[1:]
    pattern = re.compile(r"^  structured(: True|_delegate:)", re.MULTILINE)
    return {re.match(r"\w+", entry)[0] for entry in entries if pattern.search(entry)}


def codes(namespace: str) -> dict[str, list[int]]:
    """Positions at which an operator takes a dtype, a layout or a memory format: for ``torch.ops`` these are numbers."""
    positions = {}
    for name in packets(namespace):
        packet = getattr(getattr(torch.ops, namespace), name)
        arguments = [a for o in packet.overloads() for a in enumerate(getattr(packet, o)._schema.arguments)]
        places = {
            i
            for i, a in arguments
            if not a.kwarg_only and re.search("ScalarType|Layout|MemoryFormat", str(a.real_type))
        }
        if places:
            positions[f"{namespace}.{name}"] = sorted(places)
    return positions


def collect() -> dict[str, object]:
    """The inventory of this torch."""
    native = {n for n in dir(torch._C._VariableFunctions) if not n.startswith("_") or n.startswith("_foreach")}
    tensor = {n for n in dir(torch.Tensor) if not n.startswith("_")}
    attributes = {n for n in tensor if not callable(getattr(torch.Tensor, n))}
    modules = {
        n
        for n in dir(torch.nn)
        if inspect.isclass(getattr(torch.nn, n)) and issubclass(getattr(torch.nn, n), torch.nn.Module)
    }
    spaces = {space: sorted(callables(importlib.import_module(f"torch.{space}"))) for space in NAMESPACES}
    kinds = (torch.dtype, torch.memory_format, torch.layout, float)
    return {
        "torch": sorted((native | set(torch.functional.__all__) | set(TOP)) & set(dir(torch))),
        "nn": sorted(modules),
        "F": sorted(callables(torch.nn.functional)),
        "Tensor": sorted(tensor - attributes),
        "attributes": sorted(attributes),
        "constants": sorted(n for n in dir(torch) if isinstance(getattr(torch, n), kinds)),
        "numpy": sorted(
            callables(torch._numpy) | {n for n in dir(torch._numpy) if inspect.isfunction(getattr(torch._numpy, n))}
        ),
        "aten": packets("aten"),
        "prims": packets("prims"),
        "structured": sorted(structured() & set(packets("aten"))),
        "codes": {**codes("aten"), **codes("prims")},
        **spaces,
    }


def merge(old: object, new: object) -> object:
    """Union of two inventories."""
    if isinstance(old, dict) or isinstance(new, dict):
        old_tree, new_tree = old or {}, new or {}
        return {key: merge(old_tree.get(key), new_tree.get(key)) for key in sorted({*old_tree, *new_tree})}  # type: ignore
    return sorted({*(old or ()), *(new or ())})  # type: ignore[misc]


def without_refused(names: object) -> object:
    """The same without names that reach files or the process's state."""
    if isinstance(names, dict):
        return {key: without_refused(value) for key, value in names.items() if not NOT_OPERATORS.search(key)}
    return [name for name in names if not NOT_OPERATORS.search(str(name))]  # type: ignore[attr-defined]


def arguments(inventory: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the signatures of operators as texts, by the names that a case writes."""
    texts = {}
    for space in SPACES:
        for name in inventory[space]:
            operator = f"{space if space in ('F', 'Tensor', 'nn', 'torch') else f'torch.{space}'}.{name}"
            function = function_of(operator)
            known = [text_of(each) for each in signatures(function)] if function is not None else []
            # Coverage asks for optional arguments; of operators without any the signatures are for `runner new` alone.
            texts[operator] = sorted({text for text in known if "=" in text}) or sorted({*known})
    return {operator: known for operator, known in texts.items() if known}


def text_of(signature: Signature) -> str:
    """Return a signature as a text: ``input:tensor * approximate:text=``, where ``=`` marks what may be left out."""
    words = []
    for place, each in enumerate(signature):
        words += ["*"] if each.keyword_only and not signature[place - 1].keyword_only else []
        words.append(f"{each.name}:{each.kind}{'' if each.default is REQUIRED else '='}")
    return " ".join(words)


def main() -> None:
    """Merge this torch's inventory into the files. The signatures of the newest torch replace those of older ones."""
    old = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    merged = merge(old, without_refused(collect()))
    TARGET.write_text(json.dumps(merged, separators=(",", ":")).replace('],"', '],\n"') + "\n")
    known = json.loads(ARGUMENTS.read_text()) if ARGUMENTS.exists() else {}
    known |= arguments(merged)  # type: ignore[arg-type]
    ARGUMENTS.write_text(json.dumps(dict(sorted(known.items())), indent=0, separators=(",", ":")) + "\n")
    print(f"torch {torch.__version__}: {TARGET.stat().st_size} and {ARGUMENTS.stat().st_size} bytes")


if __name__ == "__main__":
    main()
