"""Checks a tree against the published JSON Schemas and says what is wrong in words, at the place.

The schemas are draft-07 and the same that editors read. Keywords of our own start with ``x-``: ``x-expected`` is what a
value should be, in words; ``x-namespaces`` are operators' first parts; ``x-refused`` says why a key is not taken;
``x-finite`` refuses NaN and infinity; ``x-devices`` are the types of device that torch names itself: others are taken
only where a module from the command line may add them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cases.limits import Limits
from runner.cases.texts import REFERENCE, yaml_call
from runner.cases.torch_names import with_namespace
from runner.cases.yaml.acceptance import Check, compile_schema
from runner.cases.yaml.values import (
    YamlMapping,
    YamlNode,
    YamlSequence,
    describe_value,
    find,
    flow,
    show_value,
)
from runner.diagnostics import Diagnostic, Span, nearest, nth_line, source_lines
from runner.files import shipped

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

KINDS = ("spec", "suite", "ledger")
"""Kinds of YAML files."""
NAMES = (*KINDS, "definitions")
"""Schemas of the YAML format."""
_ALONE = ("events", "project")
"""Schemas of a run's log and of project files, which share nothing with them."""
_ERRORS_EACH = 5
"""Errors of jsonschema that are explained for each diagnostic: some fall together. A file may hold 100,000."""
_UNKNOWN = 500
"""Unknown keys of one mapping that are reported."""
_SHARED = "definitions.schema.json"


def validate(
    node: YamlNode,
    kind: str,
    text_lines: list[str] | None = None,
    limits: Limits | None = None,
    any_device: bool = False,
) -> tuple[list[Diagnostic], set[int | None]]:
    """Return what a schema refuses in ``node``, a whole file of one of the ``KINDS`` or ``"project"``, sorted by place,
    and the numbers of the refused cases.

    Among the numbers is None where something outside of the cases is refused, or where not all was looked at: then no
    part of the file may be used.

    ``text_lines`` are the file's lines, for the carets; left out, they are read from the file. ``any_device`` takes
    devices that torch does not name. Raises ValueError for another ``kind``.
    """
    if kind not in (*KINDS, "project"):
        raise ValueError(f"there is no kind of file {kind!r}: {', '.join(KINDS)}, project")
    value = node.plain()
    if _acceptance(kind, any_device)(value):
        return [], set()
    limit = (limits or Limits()).diagnostics
    by_place: dict[tuple[str, int, int, str], tuple[int, Diagnostic]] = {}
    refused: set[int | None] = set()
    for number, error in enumerate(_validator(kind, any_device).iter_errors(value)):
        if number == _ERRORS_EACH * limit:
            refused.add(None)  # what comes behind has not been looked at
            break
        # By path, never by place: an alias has the place of its anchor, in another case or outside of all.
        path = [*error.absolute_path]
        refused.add(path[1] if len(path) > 1 and path[0] == "cases" else None)
        for span, group, message, hint in _explain(error, node):
            place = (span.file, span.line, span.column, group)
            rank = 0 if error.validator == "type" else 1  # of what is wrong with one value, its type comes first
            if place not in by_place or rank < by_place[place][0]:
                lines = source_lines(span.file) if text_lines is None else text_lines
                by_place[place] = (rank, Diagnostic(span, message, hint, text=nth_line(lines, span.line)))
    diagnostics = [diagnostic for _, diagnostic in by_place.values()]
    diagnostics.sort(key=lambda d: (d.span.line, d.span.column, d.message))
    return diagnostics, refused


def load_schema(name: str) -> dict[str, Any]:
    """Return one of the ``NAMES``, ``events`` or ``project``, with the definitions that it shares with others.

    Raises ValueError for another name.
    """
    schema = _read(name)
    if name in ("definitions", *_ALONE):
        return schema
    return {
        **json.loads(json.dumps(schema).replace(f'"{_SHARED}#', '"#')),
        "definitions": _read("definitions")["definitions"],
    }


def schema_text(name: str) -> str:
    """Return ``load_schema`` as JSON for people and editors. Raises ValueError for an unknown name."""
    return json.dumps(load_schema(name), indent=2, ensure_ascii=False) + "\n"


def schema_path(name: str) -> Path:
    """Return the file of a schema: in the installed package, or beside it in a checkout.

    Raises ValueError for an unknown name.
    """
    if name not in (*NAMES, *_ALONE):
        raise ValueError(f"there is no schema {name!r}: {', '.join((*NAMES, *_ALONE))}")
    return shipped("schema") / f"{name}.schema.json"


def _read(name: str) -> dict[str, Any]:
    return json.loads(schema_path(name).read_text(encoding="utf-8"))  # type: ignore[no-any-return]


# --- the validator ---------------------------------------------------------------------------


@cache
def _validator(kind: str, any_device: bool) -> Any:
    from jsonschema import Draft7Validator, validators  # costs 0.1 s, which `runner --version` need not pay
    from jsonschema.exceptions import ValidationError as Invalid

    def finite(_validator: Any, is_required: Any, value: Any, _schema: Any) -> Iterator[Invalid]:
        if is_required and isinstance(value, float) and not math.isfinite(value):
            yield Invalid("is not finite")

    def unique(_validator: Any, is_required: Any, value: Any, _schema: Any) -> Iterator[Invalid]:
        # jsonschema compares every pair of a mixed list, which 100,000 values would make last for hours.
        if is_required and isinstance(value, list) and len({repr(item) for item in value}) < len(value):
            yield Invalid("has repeated items")

    def devices(_validator: Any, torch_devices: Any, value: Any, _schema: Any) -> Iterator[Invalid]:
        if isinstance(value, str) and not any_device and value.partition(":")[0] not in torch_devices:
            yield Invalid("is no device of torch")

    # Draft 7 takes 2.0 for an integer; Python, which runs what is written here, does not.
    types = Draft7Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, v: isinstance(v, int) and not isinstance(v, bool)
    )
    extend: Any = validators.extend
    rules = {"x-finite": finite, "x-devices": devices, "uniqueItems": unique}
    return extend(Draft7Validator, rules, type_checker=types)(_whole(kind))


@cache
def _acceptance(kind: str, any_device: bool) -> Check:
    """What the validator says of files that are right, without its import and in a tenth of its time."""
    return compile_schema(_whole(kind), any_device)


@cache
def _whole(kind: str) -> Any:
    schema = load_schema(kind)
    return _resolved(schema, schema["definitions"], {})


def _resolved(schema: Any, definitions: dict[str, Any], targets: dict[str, Any]) -> Any:
    """``schema`` with each reference replaced by its target, in a graph that may be cyclic: looking them up is what
    takes time.

    ``$`` becomes ``\\Z``, as it means in an editor: Python's also matches before a last line break.
    """
    if isinstance(schema, list):
        return [_resolved(part, definitions, targets) for part in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        name = reference.rpartition("/")[2]
        if name not in targets:
            targets[name] = target = {}
            target.update(_resolved(definitions[name], definitions, targets))
        return targets[name]
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("definitions", "defaultSnippets"):
            continue
        match key:
            case "pattern":
                result[key] = _python_pattern(value)
            case "properties" | "patternProperties":
                result[key] = {_python_pattern(name): _resolved(v, definitions, targets) for name, v in value.items()}
            case _:
                result[key] = _resolved(value, definitions, targets)
    return result


def _python_pattern(pattern: str) -> str:
    return pattern[:-1] + r"\Z" if pattern.endswith("$") and not pattern.endswith(r"\$") else pattern


# --- errors to words -------------------------------------------------------------------------

_TYPES = {
    "string": "text",
    "array": "a list",
    "object": "a mapping",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def expected(schema: dict[str, Any]) -> str:
    """Return what a value under ``schema`` should be."""
    if "x-expected" in schema:
        return str(schema["x-expected"])
    types = schema.get("type", [])
    words = [_TYPES[name] for name in ([types] if isinstance(types, str) else types)]
    return " or ".join(words) or "something else"


def such_as(schema: dict[str, Any]) -> str:
    """Return the schema's first example as a hint, or an empty string."""
    examples = schema.get("examples")
    return f"such as {flow(examples[0])}" if examples else ""


def count(number: int, singular: str, plural: str) -> str:
    """Return ``one key``, ``2 keys``."""
    return f"one {singular}" if number == 1 else f"{number} {plural}"


_Finding = tuple[Span, str, str, str]  # where, which kind (one is kept for each place and kind), message, hint


def _explain(error: ValidationError, root: YamlNode) -> Iterator[_Finding]:
    node = find(root, error.absolute_path)
    instance: Any = error.instance
    rule_value: Any = error.validator_value
    rule = str(error.validator)
    schema = error.schema if isinstance(error.schema, dict) else {}
    if "propertyNames" in list(error.absolute_schema_path)[-2:] and isinstance(node, YamlMapping):
        key = node.key(str(instance))
        yield (key or node).span, "key", f"the key {show_value(instance)} does not fit: expected {expected(schema)}", ""
    else:
        match rule:
            case "additionalProperties" if isinstance(node, YamlMapping):
                yield from _unknown_keys(node, schema)
            case "required":
                yield from _missing(node, schema, rule_value)
            case "dependencies" if isinstance(node, YamlMapping):
                for name, needed in rule_value.items():
                    for partner in needed:
                        if name in instance and partner not in instance:
                            key = node.key(name)
                            yield key.span, "key", f"{name}: needs {partner}: beside it", ""  # type: ignore[union-attr]
            case "anyOf" | "oneOf":
                yield from _alternatives(error, node, root)
            case "uniqueItems" if isinstance(node, YamlSequence):
                first: dict[str, int] = {}  # numbers, for an alias is the very node that it stands for
                items = enumerate(node.items)
                repeat = next(item for i, item in items if first.setdefault(repr(item.plain()), i) != i)
                yield repeat.span, "value", f"{show_value(repeat.plain())} is listed twice", ""
            case "maxProperties" if isinstance(node, YamlMapping):
                message = f"expected {count(rule_value, 'key', 'keys')}, found {', '.join(node.keys())}"
                yield node.entries[rule_value][0].span, "key", message, such_as(schema)
            case "pattern" if "x-namespaces" in schema:
                yield (
                    node.span,
                    "value",
                    f"{show_value(instance)} is no operator",
                    _operator_hint(str(instance), schema),
                )
            case _:
                message, hint = _about_value(rule, rule_value, instance, schema)
                yield node.span, "value", message, hint


def _about_value(rule: str, rule_value: Any, value: Any, schema: dict[str, Any]) -> tuple[str, str]:
    """Message and hint for a value that is wrong by itself."""
    match rule:
        case "type" | "pattern":
            hint = "" if "x-expected" in schema else such_as(schema)
            if value in ("yes", "no", "on", "off", "y", "n") and "boolean" in schema.get("type", ""):
                hint = f"in YAML 1.2 {value} is text: write true or false"
            if "${" in schema.get("x-expected", "") and re.fullmatch(r"\$[A-Za-z_]\w*", str(value)):
                hint = f'write "${{{value[1:]}}}"'
            return f"expected {expected(schema)}, found {describe_value(value)}", hint
        case "enum":
            return _not_listed(value, [str(word) for word in rule_value if word is not None], schema)
        case "minimum" | "exclusiveMinimum":
            wish = f"{rule_value} or more" if rule == "minimum" else f"more than {rule_value}"
            return f"{show_value(value)} is too small: expected {schema.get('x-expected', wish)}", ""
        case "maximum":
            return f"{show_value(value)} is too large: expected {rule_value} or less", ""
        case "x-devices":
            close = nearest(str(value).partition(":")[0], rule_value) or f"torch has {', '.join(rule_value)}"
            return f"torch has no device {show_value(value)}", f"{close} (--import brings others)"
        case "x-finite":
            return f"{show_value(value)} has no place here: expected a finite number", ""
        case "minItems" | "maxItems":
            exact = schema.get("minItems") == schema.get("maxItems")
            bound = "exactly" if exact else "at least" if rule == "minItems" else "at most"
            message = f"expected {bound} {count(rule_value, 'entry', 'entries')}, found {len(value) or 'none'}"
        case "minProperties":
            keys = count(rule_value, "key", "keys")
            message = f"expected at least {keys}, found {', '.join(value)}" if value else "this mapping is empty"
        case "minLength":
            message = "this text is empty"
        case _:
            message = f"does not fit: {rule} {rule_value!r}"
    return message, such_as(schema)


def _not_listed(value: Any, words: list[str], schema: dict[str, Any]) -> tuple[str, str]:
    close = nearest(value, words) if isinstance(value, str) else ""
    if len(words) <= 12:
        return f"{show_value(value)} is not one of {', '.join(words)}", close
    if "x-expected" in schema:
        return f"expected {expected(schema)}, found {describe_value(value)}", close
    return f"{show_value(value)} is not known here", close or f"there are {', '.join(words)}"


def _unknown_keys(node: YamlMapping, schema: dict[str, Any]) -> Iterator[_Finding]:
    known = list(schema.get("properties", {}))
    patterns = list(schema.get("patternProperties", {}))
    present = set(node.keys())
    unknown = (
        (key, str(key.value))
        for key, _ in node.entries
        if key.value not in known and not any(re.search(pattern, str(key.value)) for pattern in patterns)
    )
    for key, name in islice(unknown, _UNKNOWN):
        quoted = show_value(name)
        refused = schema.get("x-refused", {}).get(name)
        if refused:
            yield key.span, "key", f"the key {quoted} is not taken here: {refused}", ""
        elif "x-namespaces" in schema:
            yield (
                key.span,
                "key",
                f"{quoted} is neither an operator nor a key of a step" if known else f"{quoted} is no operator",
                nearest(name, known) or _operator_hint(name, schema),
            )
        else:
            yield (
                key.span,
                "key",
                f"unknown key {quoted}",
                nearest(name, (k for k in known if k not in present)) or f"the keys here: {', '.join(_listed(known))}",
            )


def _listed(keys: list[str]) -> list[str]:
    """The keys without those that are dtypes, which are too many to list."""
    return [key for key in keys if not re.match(r"(torch\.)?(b?float|complex|u?int|bool)\d*", key)]


def _missing(node: YamlNode, schema: dict[str, Any], required_keys: Iterable[str]) -> Iterator[_Finding]:
    have = set(node.keys()) if isinstance(node, YamlMapping) else set()
    missing = [key for key in required_keys if key not in have and not _misspelt([key], have, schema)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        properties = schema["properties"]
        hints = [f"{key}: {flow(properties[key]['examples'][0])}" for key in missing if properties[key].get("examples")]
        names = " and ".join(repr(key) for key in missing)
        yield node.span, "required", f"{names} {verb} missing", f"such as {', '.join(hints)}" if hints else ""


def _misspelt(expected_keys: list[str], have: Any, schema: dict[str, Any]) -> bool:
    """Whether a key is there that looks like one of ``expected_keys``: it is reported as unknown, and once is
    enough."""
    known = schema.get("properties", {})
    return any(nearest(key, expected_keys) for key in islice((key for key in have if key not in known), 20))


def _alternatives(error: ValidationError, node: YamlNode, root: YamlNode) -> Iterator[_Finding]:
    branches: Any = error.validator_value
    if all(set(branch) == {"required"} for branch in branches):
        names = " or ".join(f"{key}:" for branch in branches for key in branch["required"])
        if not _misspelt(
            [key for branch in branches for key in branch["required"]],
            error.instance,
            error.schema if isinstance(error.schema, dict) else {},
        ):
            yield node.span, "required", f"{names} is missing", ""
        return
    from jsonschema.exceptions import best_match

    best = best_match(error.context or ())
    if best is not None:
        yield from _explain(best, root)


_INDEXED = re.compile(r"(\$[\w.\[\]-]+?|[A-Za-z_]\w*)(\[[^\[\]]*\])", re.ASCII)


def _operator_hint(name: str, schema: dict[str, Any]) -> str:
    if match := _INDEXED.fullmatch(name):
        return f'an index is written operator.getitem: [${match[1].removeprefix("$")}, "{match[2]}"]'
    if name.startswith("$"):
        return REFERENCE
    call = yaml_call(name)
    if call:
        return f"a step is no call of Python: write {call}"
    head, _, tail = name.partition(".")
    namespaces = schema["x-namespaces"]
    if not tail and (hint := with_namespace(name)):
        return hint
    same = [space for space in namespaces if space.lower() == head.lower()]
    close = same or ["numpy"] * (head == "np") or get_close_matches(head, namespaces, 1)
    if tail and close and close[0] != head:
        return f"did you mean '{close[0]}.{tail}'?"
    return "operators are written nn.X, F.x, torch.x, Tensor.x, aten.x, operator.x, ..."
