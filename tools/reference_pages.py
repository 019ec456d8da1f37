"""Writes three pages of reference: docs/events.md, docs/oracles.md and docs/library-reference.md.

    python tools/reference_pages.py            # writes them
    python tools/reference_pages.py --check    # exit code 1 when that would change one

They come from the schema of events, the table of oracles, and the signatures and docstrings of ``runner`` and ``runner.api``.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import format_page

import runner
import runner.api
from runner.cases.yaml.schema import load_schema
from runner.contract.oracles import NUMERIC, ORACLES, SEVERITIES

DOCS = Path(__file__).parent.parent / "docs"

EDIT = "`python tools/reference_pages.py` writes this page; do not edit it."

EVENTS = f"""\
# Events

{EDIT}
A run writes one JSON object a line into `.runner/latest/events.jsonl`, and [reports](html.md) are made of these lines alone.
`runner schema events` prints the JSON Schema from which the lists come. [The library](library.md#events) yields the same events.

```console
$ runner schema events > events.schema.json
$ runner report latest --junit report.xml
```

* A reader leaves out kinds and keys that it does not know. Kinds and keys may be added, and keep their meaning.
* NaN and infinities are the texts `nan`, `inf` and `-inf`, or stand as Python's `json` writes them.
* Texts may hold control characters, which whoever shows them must escape.
"""

ORACLES_HEAD = f"""\
# Oracles

{EDIT}
An *oracle* is one way in which a compiled run can differ from eager. `ignore:` and `known:` of a case, and the events of a run, name them so.
[How a verdict is reached](judging.md#the-gates) says what each looks at, and [extending](extending.md#add-an-oracle) how to add one.

The order is that in which findings speak for a variant: its verdict and its signature are those of the first.
"""

LIBRARY = f"""\
# Names of the library

{EDIT}
[The library](library.md) has examples, and says [which of these are stable](library.md#what-is-stable).
The keys of events are [explained](events.md), and so are [the settings of a run](library.md#settings).
"""


WIDTH = 100
"""Characters of a signature in one line."""


def main() -> None:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a page would change")
    if parser.parse_args().check:
        sys.exit(int(any((DOCS / name).read_text(encoding="utf-8") != write() for name, write in PAGES.items())))
    for name, write in PAGES.items():
        (DOCS / name).write_text(write(), encoding="utf-8")


# --- events ------------------------------------------------------------------------------------


def events() -> str:
    """Return the page of events."""
    schema = load_schema("events")
    kinds = [rule["then"]["$ref"].rpartition("/")[2] for rule in schema["allOf"]]
    parts = [name for name, part in schema["definitions"].items() if name not in kinds and "properties" in part]
    text = [EVENTS, "\nEvery line has these keys:\n\n", _generated(_keys(schema, schema["definitions"]))]
    text += ["\n## Kinds\n", *(_section(name, schema["definitions"]) for name in kinds)]
    text += ["\n## Parts\n", *(_section(name, schema["definitions"]) for name in parts)]
    return "".join(text)


def _section(name: str, definitions: dict[str, Any]) -> str:
    part = definitions[name]
    return f"\n### {name}\n\n" + _generated(f"{part['description']}\n\n{_keys(part, definitions)}")


def _keys(part: dict[str, Any], definitions: dict[str, Any]) -> str:
    required = part.get("required", [])
    rows = []
    for name, key in part["properties"].items():
        words = [_kind(key, definitions), *(["required"] if name in required else [])]
        meaning = key.get("description") or _resolved(key, definitions)[0].get("description", "")
        rows.append(format_page.item(f"`{name}`", meaning, f" ({'; '.join(words)})"))
    return "".join(rows)


def _kind(key: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Return what a value is, in words; a part with keys of its own is a link to them."""
    part, name = _resolved(key, definitions)
    if "properties" in part and name:
        return f"[{name}](#{name})"
    types = part.get("type", "any")
    words = [format_page.TYPES.get(word, word) for word in ([types] if isinstance(types, str) else types)]
    if "items" in part and "list" in words:
        words[words.index("list")] = f"list of {_kind(part['items'], definitions)}"
    return " or ".join(words)


def _resolved(key: dict[str, Any], definitions: dict[str, Any]) -> tuple[dict[str, Any], str]:
    name = key.get("$ref", "").rpartition("/")[2]
    return (definitions[name] if name else key), name


# --- oracles -----------------------------------------------------------------------------------


def oracles() -> str:
    """Return the page of oracles."""
    text = [ORACLES_HEAD, "\n| oracle | verdict | worth | meaning |\n| --- | --- | --- | --- |\n"]
    for row in ORACLES:
        meaning = row.meaning + (f" Bounded by `expect: {{{row.budget}: ...}}`." if row.budget else "")
        text.append(
            f"| `{row.name}` | {'`ERROR`' if row.crash else '`FAIL`'} | {row.severity} | {format_page.inline(meaning)} |\n"
        )
    text.append(
        "\nA finding may be [worth something else](judging.md#what-a-finding-is-worth), which its event says.\n"
    )
    text.append("\n## What a finding is worth\n\nThe worst first:\n\n| severity | meaning |\n| --- | --- |\n")
    text += [f"| `{name}` | {format_page.inline(meaning)} |\n" for name, meaning in SEVERITIES.items()]
    numeric = [f"`{row.name}`" for row in ORACLES if row.name in NUMERIC]
    text.append(
        f"\n## Oracles of numbers\n\n{', '.join(numeric)} compare numbers, so they need an eager that agrees with itself.\n"
    )
    text.append("[Oracles of other packages](extending.md#add-an-oracle) are called `package.word`. They come last.\n")
    return "".join(text)


# --- the library -------------------------------------------------------------------------------


def library() -> str:
    """Return the page of the library's names."""
    text = [LIBRARY]
    for module in (runner, runner.api):
        known = {name for name in runner.__all__ if module is runner.api and _is_shared(name)}
        text.append(f"\n## {module.__name__}\n")
        text += [_name(module.__name__, name, getattr(module, name)) for name in module.__all__ if name not in known]
        if shared := sorted(set(module.__all__) & known):
            text.append(f"\nThe same as in `runner`: {', '.join(f'`{name}`' for name in shared)}.\n")
    return "".join(text)


def _is_shared(name: str) -> bool:
    return name in runner.api.__all__ and getattr(runner, name) is getattr(runner.api, name)


def _name(module: str, name: str, value: Any) -> str:
    if isinstance(value, str):
        return f"\n### {name}\n\nThe version, a text.\n"
    if not callable(value) or not hasattr(value, "__name__"):
        members = " ".join(str(value).split())
        return f"\n### {name}\n\n" + _generated(f"`{re.sub(r'[a-z_]+[.](?=[A-Za-z])', '', members)}`\n")
    if isinstance(value, type):
        text = f"A class. {_summary(value)}\n\n{''.join([*_fields(value), *_members(value)])}"
    else:
        text = f"```python\n{module}.{name}{_signature(value)}\n```\n\n{_summary(value)}\n"
    return f"\n### {name}\n\n" + _generated(text)


def _signature(value: Callable[..., Any]) -> str:
    """Return a signature with its annotations as the source has them, so that it is the same under every Python."""
    signature, words = inspect.signature(value), []
    for parameter in signature.parameters.values():
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        annotation = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        words.append(f"{star}{parameter.name}{annotation}{default}")
    returned = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    text = f"({', '.join(words)}){returned}"
    return text if len(text) < WIDTH else "(\n    " + ",\n    ".join(words) + f",\n){returned}"


def _fields(value: type) -> Iterator[str]:
    """Yield an item for each field of a dataclass, with its type."""
    for field in dataclasses.fields(value) if dataclasses.is_dataclass(value) else ():
        if not field.name.startswith("_") and not str(field.type).startswith("_"):
            yield f"* `{field.name}: {field.type}`\n"


def _members(value: type) -> Iterator[str]:
    """Yield an item for each method and property that the class itself defines."""
    for name, member in vars(value).items():
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        written = (
            name
            if isinstance(member, property)
            else f"{name}{_signature(member)}".replace("(self, ", "(").replace("(self)", "()")
        )
        yield f"* `{' '.join(written.split())}`: {_summary(member)}\n"


def _summary(value: Any) -> str:
    """Return the first paragraph of a docstring. Its code marks are those of Markdown."""
    paragraph = (inspect.getdoc(value) or "").partition("\n\n")[0]
    return format_page.inline(" ".join(paragraph.split()).replace("``", "`").removesuffix("::"))


def _generated(text: str) -> str:
    return f"<!-- generated -->\n\n{text.rstrip()}\n\n<!-- end -->\n"


PAGES: dict[str, Callable[[], str]] = {"events.md": events, "oracles.md": oracles, "library-reference.md": library}
"""The name of each page, and what makes its text."""


if __name__ == "__main__":
    main()
