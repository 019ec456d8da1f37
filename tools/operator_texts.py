"""Writes runner/cases/operator_texts.json: what a person reads about each operator that a case may call.

These are its signatures, the first sentence of torch's documentation and the dtypes that torch's operator database has
for it on the CPU. Editors and ``runner operators`` show them. Run this under each supported torch, oldest first; a run
replaces what the file holds of that version:

    old/bin/python tools/operator_texts.py; new/bin/python tools/operator_texts.py
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from functools import reduce
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

import torch  # noqa: E402
import torch._higher_order_ops  # noqa: E402
import torch._numpy  # noqa: E402
import torch.distributions  # noqa: E402
import torch.nn.attention.flex_attention  # noqa: E402
import torch.signal.windows  # noqa: E402
from signatures import function_of  # noqa: E402

from runner.builder.catalog import callable_names  # noqa: E402
from runner.cases.operator_texts import FILE  # noqa: E402
from runner.worker.torch_private.operator_database import entries  # noqa: E402

_LONGEST = 160
"""Characters of a sentence and of a default."""
_DATABASE = {"nn.functional": "F", "": "torch"}
"""Namespaces of the database that a case writes in another way."""


def member_of(operator: str) -> Any:
    """Return what an operator of the format is in this torch; None where it is not there."""
    space, _, name = operator.partition(".")
    match space:
        case "numpy":
            return getattr(torch._numpy, name, None)
        case "prims":
            return _reached(torch.ops.prims, name)
        case "torch":
            return _reached(torch, name)
    return function_of(operator) or (getattr(torch.Tensor, name, None) if space == "Tensor" else None)


def _reached(holder: Any, path: str) -> Any:
    return reduce(lambda holder, name: getattr(holder, name, None), path.split("."), holder)


def calls_of(operator: str) -> list[str]:
    """Return the signatures of an operator as texts such as ``(input, dim=None) -> Tensor``; empty where torch says none."""
    member = member_of(operator)
    if isinstance(member, torch._ops.OpOverload):
        return [str(member._schema).partition("(")[1] + str(member._schema).partition("(")[2]]
    if getattr(member, "__init__", None) is torch.nn.Module.__init__:
        return ["()"]
    if inspect.isfunction(member) or inspect.isclass(member):
        parts = (member, getattr(torch.nn.functional, f"_{member.__name__}", None))  # a function of boolean_dispatch
        texts = [text for text in map(text_of, filter(None, parts)) if text and "*args, **kwargs" not in text]
        return texts[:1] or documented(member)
    if member is None or not callable(member):
        return []
    schemas = [each for each in torch._C._jit_get_schemas_for_operator(_schema_name(member)) if not _is_out(each)]
    texts = [schema_text(schema, is_method=operator.startswith("Tensor.")) for schema in schemas]
    of_tensors = [text for text in texts if "Tensor" in text]  # those of numbers alone are TorchScript's
    return list(dict.fromkeys(of_tensors)) or documented(member)


def documented(member: Any) -> list[str]:
    """Return the signature that the documentation of a function begins with; empty where it begins otherwise."""
    first = inspect.cleandoc(getattr(member, "__doc__", None) or "").partition("\n")[0]
    match = re.fullmatch(r"\w+(\([^()]*(?:\([^()]*\)[^()]*)*\)(?: -> .*)?)", first.strip())
    return [match[1]] if match and match[1].isascii() else []


def _schema_name(function: Any) -> str:
    return torch.jit._builtins._find_builtin(function) or f"aten::{getattr(function, '__name__', '')}"


def _is_out(schema: Any) -> bool:
    return any(argument.is_out for argument in schema.arguments)


def schema_text(schema: Any, is_method: bool) -> str:
    """Return the schema of an operator of ATen as Python writes signatures, with the names that Python gives."""
    words = []
    for argument in schema.arguments:
        if argument.kwarg_only and "*" not in words:
            words.append("*")
        name = "input" if argument.name == "self" and not is_method else argument.name
        default = f" = {shown(argument.default_value)}" if argument.has_default_value() else ""
        words.append(f"{name}: {str(argument.real_type).replace('number', 'Scalar')}{default}")
    results = ", ".join(str(each.real_type) for each in schema.returns)
    return f"({', '.join(words)}) -> {results if len(schema.returns) == 1 else f'({results})'}"


def text_of(function: Any) -> str:
    """Return the signature of a function or of a class without its annotations, which versions of Python spell differently."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    words = []
    for each in signature.parameters.values():
        if each.kind == each.KEYWORD_ONLY and not any(word.startswith("*") for word in words):
            words.append("*")
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        default = "" if each.default is each.empty else f"={shown(each.default)}"
        words.append(f"{star}{each.name}{default}")
    return f"({', '.join(words)})"


def shown(default: Any) -> str:
    """Return a default as Python writes it; dots for an object without such a text."""
    text = repr(default)
    return "..." if re.search(r"<|\bat 0x", text) or len(text) > _LONGEST else text


def line_of(operator: str) -> str:
    """Return the first sentence of torch's documentation of an operator, without markup; empty without one."""
    member = member_of(operator)
    if isinstance(member, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return ""
    text = inspect.cleandoc(getattr(member, "__doc__", None) or "")
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
    is_prose = re.compile(r"(?![\w.]+\(|\.\. |:|>>>)").match
    return next((_sentence(part) for part in paragraphs if is_prose(part)), "")


def _sentence(paragraph: str) -> str:
    """Return the first sentence of a paragraph; empty for one with formulas, and for what refers to another operator."""
    text = re.sub(r":\w+(?::\w+)?:`~?(?:torch\.)?([^`<]*?) ?(?:<[^`]*)?`", r"\1", paragraph)
    text = re.sub(r"\\(text|mathrm|operatorname|textbf)\b", "", re.sub(r"`+", "", text))
    match = re.match(r"(.{20,}?): |(.*?[^.][\w)\]])\.(?: |$)", text)
    sentence = f"{match[1] or match[2]}." if match else ""
    is_plain = sentence.isascii() and not re.search(
        r"\\|http|: |^(See|Alias (for|of)|In-place|Out-of-place) |^- |supports tf32|identity value", sentence
    )
    return sentence if is_plain and 10 < len(sentence) <= _LONGEST else ""


def dtypes() -> dict[str, str]:
    """Return the dtypes of torch's operator database on the CPU, by the names that a case writes."""
    known: dict[str, set[str]] = {}
    for entry in entries():
        for spelling in (entry.name, *(alias.name for alias in entry.aliases)):
            space, _, name = spelling.rpartition(".")
            operator = f"{_DATABASE.get(space, f'torch.{space}')}.{name}"
            known.setdefault(operator, set()).update(str(each).removeprefix("torch.") for each in entry.dtypes)
    return {name: " ".join(sorted(kinds)) for name, kinds in known.items()}


def collect() -> dict[str, Any]:
    """Return what this torch says: the signatures of all names that it has, sentences and dtypes."""
    names = [
        name for name in callable_names() if name.startswith(("operator.", "builtin.")) or member_of(name) is not None
    ]
    return {
        "calls": {name: [] if is_packet(name) else calls_of(name) for name in names},
        "lines": {name: line for name in names if (line := line_of(name))},
        "dtypes": {name: kinds for name, kinds in dtypes().items() if name in set(names)},
    }


def is_packet(name: str) -> bool:
    """Return whether a name stands for all overloads of an operator, each of which has a row of its own."""
    return name.startswith(("aten.", "prims.")) and name.count(".") == 1


def merge(data: dict[str, Any], version: str, texts: dict[str, Any]) -> dict[str, Any]:
    """Return the file's content with what ``version`` says; sentences and dtypes of a later version replace older ones."""
    versions = sorted({*data.get("torch", ()), version}, key=lambda text: [int(part) for part in text.split(".")])
    by_name: dict[str, dict[str, list[str]]] = {}
    for name, calls in data.get("calls", {}).items():
        groups = calls if isinstance(calls, dict) else {" ".join(data["torch"]): calls}
        by_name[name] = {each: known for group, known in groups.items() for each in group.split() if each != version}
    for name, calls in texts["calls"].items():
        by_name.setdefault(name, {})[version] = calls
    rows = {name: grouped(calls, versions) for name, calls in sorted(by_name.items()) if calls}
    is_newest = version == versions[-1]
    later, earlier = (texts, data) if is_newest else (data, texts)
    prose = {key: dict(sorted({**earlier.get(key, {}), **later.get(key, {})}.items())) for key in ("lines", "dtypes")}
    return {
        "torch": versions,
        "calls": rows,
        **{key: {n: t for n, t in known.items() if n in rows} for key, known in prose.items()},
    }


def grouped(calls: dict[str, list[str]], versions: list[str]) -> list[str] | dict[str, list[str]]:
    """Return the signatures that all versions share, or those of each group of versions."""
    groups: dict[str, list[str]] = {}
    for version in versions:
        if version in calls:
            key = next((key for key, known in groups.items() if known == calls[version]), "")
            groups[f"{key} {version}".strip()] = groups.pop(key, calls[version])
    return groups.get(" ".join(versions), groups)


def written(data: dict[str, Any]) -> str:
    """Return the file: a line for each operator."""
    parts = []
    for key, value in data.items():
        rows = value if isinstance(value, list) else {k: json.dumps(v, separators=(",", ":")) for k, v in value.items()}
        text = (
            json.dumps(value)
            if isinstance(rows, list)
            else "{\n" + ",\n".join(f'"{k}":{v}' for k, v in rows.items()) + "\n}"
        )
        parts.append(f'"{key}":{text}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Merge what this torch says into the file."""
    data = json.loads(FILE.read_text()) if FILE.exists() else {}
    FILE.write_text(written(merge(data, ".".join(torch.__version__.split(".")[:2]), collect())))
    print(f"torch {torch.__version__}: {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
