"""Writes docs/format-reference.md from tools/format_reference.md, the schemas and the runner's own lists.

    python tools/format_page.py            # writes it
    python tools/format_page.py --check    # exit code 1 when that would change the page

``<!-- generated: NAME -->`` stands for a table or a list. Behind each example whose file begins with ``refused_`` come the
messages of ``runner validate`` for it. The guide, docs/format.md, is written by hand.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.builder import callers, operators
from runner.cases import case, expressions, operator_names, torch_names
from runner.cases.model import DTYPES
from runner.cases.yaml.schema import KINDS, load_schema
from runner.session.collect import load

TEMPLATE = Path(__file__).with_name("format_reference.md")
PAGE = TEMPLATE.parent.parent / "docs" / "format-reference.md"
GUIDE = PAGE.with_name("format.md")

DEFINITIONS: dict[str, Any] = load_schema("definitions")["definitions"]

TYPES = {"string": "text", "array": "list", "object": "mapping"}
"""JSON's words for types that the page has another word for. `boolean` is true or false."""

REFUSED_NAMES = (
    "torch.save", "torch.hub.load", "torch.compile", "torch.ops.aten.add", "torch.distributed.all_reduce", "torch.manual_seed", "Tensor.data_ptr", "Tensor.resize",
    "nn.Sequential", "os.system", "builtin.eval", "operator.attrgetter", "numpy.random.rand", "Tensor.__class__",
    "aten._unsafe_index", "aten._cummax_helper", "torch.quantized_lstm_cell", "torch.FloatTensor", "aten.sparse_coo_tensor", "builtin.str", "aten.add.str",
)  # fmt: skip
"""A name for each reason that ``operators.REFUSED`` gives."""

FLAG_EXAMPLES: tuple[tuple[str, object], ...] = (
    ("torch._dynamo.config.capture_scalar_outputs", True),
    ("torch._inductor.config.cpp.simdlen", 1),
    ("torch.backends.cuda.matmul.allow_tf32", True),
    ("torch.backends.cudnn.benchmark", True),
    ("torch.backends.mkldnn.enabled", False),
    ("torch._inductor.config.cpp.cxx", "g++"),
    ("torch._inductor.config.trace.enabled", True),
)
"""Flags, each with a value that a case might give it."""

SWITCH = "true or false"
"""What most settings of torch take."""

SHORT = 12
"""Words of an item that stands again wherever it belongs."""

_PART = re.compile(r"<!-- generated: (?P<name>[^>]*?) -->\n")
_KEY = re.compile(r"\* `[^`]*`(?= \()")
_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(
    r"\$\{[^}]*\}|\$[\w.]*(?:<\w+>)?|--[a-z][a-z-]*|(?:\w+\.)?<[\w<>.]+>|[A-Za-z_]+_[a-z_0-9]+|\{\}|\*\*?"
)
_NAME = re.compile(r"# (?P<name>[\w./-]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Example:
    """One example of the page: the file's name, its text, and for one that is refused the messages that the page shows."""

    name: str
    text: str
    messages: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether the page says that this file has errors."""
        return self.name.startswith("refused_")


def main() -> None:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when the page would change")
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit(int(PAGE.read_text(encoding="utf-8") != page()))
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the whole page. Raise KeyError for a part that no function makes."""
    return filled(TEMPLATE.read_text(encoding="utf-8"))


def filled(template: str) -> str:
    """Return a template with its tables, and with the messages behind the examples that are refused."""
    text = _once(_PART.sub(lambda part: table(part["name"]), template))
    with tempfile.TemporaryDirectory() as folder:
        files = examples(text)
        write(files, Path(folder))
        for example in files:
            if example.is_refused:
                shown = f"{example.text}```\n"
                text = text.replace(shown, f"{shown}\n```text\n{messages(Path(folder), example.name)}```\n")
    return text


def _once(text: str) -> str:
    """Return a page whose repeated items of many words have a link to the section in which they stand first."""
    section, first, lines = "", dict[str, str](), []
    for line in text.splitlines(keepends=True):
        if line.startswith("#"):
            section = line.strip("# \n")
        item = _KEY.match(line) if len(line.split()) > SHORT else None
        if item and (before := first.setdefault(line, section)) != section:
            line = f"{item[0]}: as in [{before}](#{_anchor(before)})\n"
        lines.append(line)
    return "".join(lines)


def _anchor(heading: str) -> str:
    """Return GitHub's anchor of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def parts(template: str) -> list[str]:
    """Return the names of a template's parts, such as ``keys case``."""
    return [match["name"] for match in _PART.finditer(template)]


def examples(page: str) -> list[Example]:
    """The page's files, in order: blocks of YAML and Python whose first line is a comment with the file's name."""
    blocks = list(_BLOCK.finditer(page))
    files = []
    for place, block in enumerate(blocks):
        name = _NAME.match(block["text"])
        if block["language"] not in ("yaml", "python") or name is None:
            continue
        next_block = blocks[place + 1] if place + 1 < len(blocks) else None
        output = next_block["text"] if next_block and next_block["language"] == "text" else ""
        files.append(Example(name["name"], block["text"], output))
    return files


STORED = "model.safetensors"
"""The file of tensors that an example names: a page holds texts alone."""


def write(files: Iterable[Example], folder: Path) -> None:
    """Write the files below ``folder``, and the tensor that an example takes from a file."""
    header = b'{"layer.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}'
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STORED).write_bytes(len(header).to_bytes(8, "little") + header + bytes(24))
    for example in files:
        path = folder / example.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(example.text, encoding="utf-8")


def messages(folder: Path, name: str) -> str:
    """What ``runner validate`` says of a file in ``folder``, with the file's name as it is there."""
    folder_before = os.getcwd()
    os.chdir(folder)  # messages name files from here
    try:
        loaded = load([name], everything=True)
    finally:
        os.chdir(folder_before)
    return "".join(f"{diagnostic.render()}\n" for diagnostic in loaded.diagnostics).replace(f"{folder}/", "")


# --- the tables ------------------------------------------------------------------------------


def table(name: str) -> str:
    """The part of a name, such as ``keys case`` or ``operators``. Raises KeyError for another one."""
    word, _, path = name.partition(" ")
    if word == "keys":
        return keys(path)
    if word == "values":
        return values(path)
    return _OTHERS[name]()


def keys(path: str) -> str:
    """An item for each key of a schema: type, what holds where it is left out, and its meaning."""
    schema = schema_at(path)
    required = schema.get("required", ())
    items = []
    for key, part in schema["properties"].items():
        if _is_dtype(key) or (path, key) == ("case.tolerance", "gradients"):
            continue
        meaning, default = _split(_resolved(part)["description"])
        default = "required" if key in required else f"left out: {default}" if default else ""
        items.append(item(f"`{key}`", meaning, f" ({'; '.join(filter(None, (kind(part), default)))})"))
    if path == "case.tolerance":
        places = (
            ("a dtype", "this dtype"),
            ("`gradients`", "gradients"),
            ("`output`, `output[1]`, ...", "this output"),
        )
        items += [item(key, f"`rtol`, `atol` and `reason` for {place} alone.", " (mapping)") for key, place in places]
    return "".join(items)


def values(path: str) -> str:
    """An item for each value of a schema's enum, with its description; forms that are mappings too."""
    schema = schema_at(path)
    part = schema if "enum" in schema else schema["then"]
    items = [item(f"`{value}`", text) for value, text in zip(part["enum"], part["enumDescriptions"], strict=True)]
    if path in ("init", "values"):
        for name, part in schema["properties"].items():
            example = part.get("examples", [2])[0]
            items.append(item(f"`{{{name}: {example}}}`", part["description"]))
    return "".join(items)


def schema_at(path: str) -> dict[str, Any]:
    """The schema of ``spec``, ``suite``, ``ledger``, a definition, or what a ``/`` after it names: ``case.expect/raises``, ``case.calls/items``.

    ``*`` names every other key of a mapping.
    """
    name, *steps = path.split("/")
    schema: dict[str, Any] = load_schema(name) if name in KINDS else DEFINITIONS[name]
    for step in steps:
        inner = schema["additionalProperties"] if step == "*" else schema[step] if step == "items" else None
        schema = _resolved(inner or schema["properties"][step])
    return schema


def kind(part: dict[str, Any]) -> str:
    """The types of a value in words; where there are few values, these."""
    schema = _resolved(part)
    if "enum" in schema and len(schema["enum"]) <= 5:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "then" in schema and "else" in schema and "type" not in schema:  # a value, or a list of values, which is an axis
        return f"{kind(schema['else'])} or list"
    types = schema.get("type", "any")
    return " or ".join(TYPES.get(word, word) for word in ([types] if isinstance(types, str) else types))


def _resolved(part: dict[str, Any]) -> dict[str, Any]:
    return DEFINITIONS[part["$ref"].rpartition("/")[2]] if "$ref" in part else part


def _split(description: str) -> tuple[str, str]:
    """The meaning, and what a last sentence says after ``Left out:``."""
    meaning, _, default = description.partition(" Left out: ")
    return meaning, default.removesuffix(".")


def _is_dtype(key: str) -> bool:
    return key.removeprefix("torch.") in DTYPES


def _markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    def lines() -> Iterator[str]:
        yield _row(head)
        yield _row("---" for _ in head)
        for row in rows:
            yield _row(row)

    return "".join(lines())


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |\n"


def _cell(text: str) -> str:
    return inline(text.replace("|", "\\|"))


def item(name: str, meaning: str, kind: str = "") -> str:
    """Return an item of a list: a name, what it takes, and its meaning."""
    return f"* {name}{inline(kind)}: {inline(meaning)}\n"


def inline(text: str) -> str:
    """Text as Markdown takes it: what it would read as a formula or a tag stands in code."""
    parts = text.split("`")  # every second one is code already
    return "`".join(part if place % 2 else _CODE.sub(r"`\g<0>`", part) for place, part in enumerate(parts))


def _words(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _block(names: Iterable[str]) -> str:
    """Return names as a block of text, in lines of a page's width."""
    lines = textwrap.fill(", ".join(names), 118, break_long_words=False, break_on_hyphens=False)
    return f"```text\n{lines}\n```\n"


def _python_operators() -> str:
    def signs(words: dict[str, str]) -> str:
        return ", ".join(f"`{word}` `{sign.strip()}`" for word, sign in words.items())

    rows = [
        ("two operands", "`operator.mul: [$_, 2]`", signs(operator_names.BINARY)),
        ("one operand", "`operator.neg`", signs(operator_names.UNARY)),
        ("in place", "`operator.iadd: [$x, 1]`", signs(operator_names.IN_PLACE)),
        ("others", "`operator.getitem: [$x, 0]`", _words(operator_names.SPECIAL)),
    ]
    return _markdown(("kind", "such as", "words"), rows)


def _refused_operators() -> str:
    items = []
    for name in REFUSED_NAMES:
        answer = operators.resolve(name)
        assert isinstance(answer, operators.Refusal), name
        items.append(item(f"`{name}`", answer.message.partition(" is refused: ")[2]))
    return "".join(items)


def _flags() -> str:
    return "".join(
        item(f"`{name}: {value if isinstance(value, str) else str(value).lower()}`", torch_names.flag_refusal(name, value) or "accepted")
        for name, value in FLAG_EXAMPLES
    )  # fmt: skip


def _settings() -> str:
    """An item for each setting that takes more than true or false, and a block of the names of all others."""
    flags = {name: flag.expected for name, (flag, _) in case.FUNCTIONS.items()}
    switches = [*(name for name, expected in flags.items() if expected == SWITCH), *torch_names.SWITCHES]
    items = [item(f"`{name}`", expected) for name, expected in flags.items() if expected != SWITCH]
    return "".join([*items, f"\nThese are {SWITCH}:\n\n", _block(switches)])


_OTHERS: dict[str, Callable[[], str]] = {
    "dtypes": lambda: _block(DTYPES),
    "constants": lambda: _block(f"torch.{name}" for name in sorted(operators.constants() - set(DTYPES))),
    "subnamespaces": lambda: _block(f"torch.{name}" for name in operator_names.SUBNAMESPACES),
    "extra operators": lambda: _block(operator_names.EXTRA),
    "attributes of values": lambda: _block(sorted(operators.ATTRIBUTES_OF_VALUES)),
    "builtins": lambda: _block(f"builtin.{name}" for name in operator_names.BUILTINS),
    "contexts": lambda: _block(operator_names.CONTEXTS),
    "attributes of callers": lambda: _block(sorted(case.OF_SUBMODULES)),
    "optimizers": lambda: _block(case.OPTIMIZERS),
    "contexts of callers": lambda: _block(callers.CONTEXTS),
    "settings of callers": _settings,
    "python operators": _python_operators,
    "refused operators": _refused_operators,
    "flags": _flags,
    "cudnn": lambda: _block(torch_names.CUDNN),
    "precision": lambda: _block(torch_names.PRECISION),
    "functions": lambda: _block([*expressions.FUNCTIONS, *(f"math.{name}" for name in expressions.MATH)]),
    "launch functions": lambda: _block(expressions.LAUNCH_FUNCTIONS),
    "methods": lambda: _block(sorted(expressions.METHODS)),
    "attributes": lambda: _block(sorted(expressions.ATTRIBUTES)),
}


if __name__ == "__main__":
    main()
