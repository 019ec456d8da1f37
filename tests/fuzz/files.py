"""Strategies of changed YAML files: shipped ones with one to four changes, and ones that a schema makes.

Soft changes leave most files loadable: texts in free places, other numbers, keys of other cases, steps moved.
Hard ones are anything.
A hostile text stands in a tree as a token, so that a twin file can have a harmless text in its place.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tests.fuzz.forks import ROOT, SEED
from tests.fuzz.schemas import definition, schema, values
from tests.fuzz.texts import EXPRESSIONS, KEYS, NUMBERS, OPERATORS, REFERENCES, SCALARS, TEXTS, escaped, harmless

SPECS, SUITES = (
    sorted(paths, key=lambda path: (path.stat().st_size, path))  # what is found is shown in the smallest
    for paths in (
        (*(ROOT / "specs").rglob("*.spec.yaml"), *(ROOT / "runner").rglob("*.spec.yaml"), SEED),
        (ROOT / "suites").glob("*.suite.yaml"),
    )
)
_TAG = "tag:yaml.org,2002:"
_TOKEN = re.compile(r"zqtoken(\d+)end")


@dataclass(frozen=True)
class Trial:
    """Files, the changed one first, and the words of a command. ``twin`` has harmless texts for the hostile ones."""

    kind: str
    files: dict[str, bytes]
    words: tuple[str, ...]
    twin: dict[str, bytes] | None = None
    again: bool = False

    @property
    def name(self) -> str:
        """The changed file."""
        return next(iter(self.files))


@dataclass
class Document:
    """A tree under change. Its file lies in ``folder``, where its kernels' Python is too."""

    root: Node
    folder: str
    own_python: bool = False
    texts: list[tuple[str, str]] = field(default_factory=list)
    """Each text with what stands for it in the twin."""
    damage: list[Callable[[bytes], bytes]] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """A node below another one; ``keys`` lead to it."""

    parent: MappingNode | SequenceNode
    slot: int
    keys: tuple[str, ...]

    @property
    def node(self) -> Any:
        """What stands there."""
        value = self.parent.value[self.slot]
        return value[1] if isinstance(self.parent, MappingNode) else value

    def put(self, node: Node) -> None:
        """Put another node there."""
        if isinstance(self.parent, MappingNode):
            node = (self.parent.value[self.slot][0], node)  # type: ignore[assignment]
        self.parent.value[self.slot] = node


# --- nodes -----------------------------------------------------------------------------------


def scalar(text: str, style: str | None = None) -> ScalarNode:
    """Return a scalar as PyYAML would read the plain text; a text with a hostile one in double quotes."""
    if style or _TOKEN.search(text):
        return ScalarNode(_TAG + "str", text, style=style or '"')
    return ScalarNode(yaml.resolver.Resolver().resolve(ScalarNode, text, (True, False)), text)


def sequence(nodes: Sequence[Node]) -> SequenceNode:
    return SequenceNode(_TAG + "seq", [*nodes], flow_style=True)


def mapping(*pairs: tuple[Node, Node]) -> MappingNode:
    return MappingNode(_TAG + "map", [*pairs])


def parsed(text: str) -> Any:
    """Return the tree of a piece of YAML, whose nodes have no marks: these would be copied too."""
    root = yaml.compose(text, Loader=yaml.CSafeLoader)
    for node in (root, *(node for place in places(root) for node in (place.node, _key(place)) if node)):
        node.start_mark = node.end_mark = None
        if isinstance(node, ScalarNode) and _TOKEN.search(node.value):
            node.tag, node.style = _TAG + "str", '"'
    return root


def _key(place: Place) -> Any:
    return place.parent.value[place.slot][0] if isinstance(place.parent, MappingNode) else None


def node_of(value: Any) -> Node:
    """Return the tree of plain data."""
    if isinstance(value, dict):
        return mapping(*((node_of(key), node_of(item)) for key, item in value.items()))
    if isinstance(value, list):
        return sequence([node_of(item) for item in value])
    return scalar(value, '"') if isinstance(value, str) else scalar(json.dumps(value))


def places(root: Node) -> list[Place]:
    """Every place below ``root``, each once though aliases may lead there by several ways."""
    visited: set[int] = set()

    def below(node: Node, keys: tuple[str, ...]) -> Iterator[Place]:
        if id(node) in visited or isinstance(node, ScalarNode):
            return
        visited.add(id(node))
        for slot, item in enumerate(node.value):
            value, path = (item[1], (*keys, str(item[0].value))) if isinstance(node, MappingNode) else (item, keys)
            yield Place(node, slot, path)  # type: ignore[arg-type]
            yield from below(value, path)

    return list(below(root, ()))


def child(node: Any, key: str) -> Any:
    """Return the value of a mapping's key; None without one."""
    pairs = node.value if isinstance(node, MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def put(node: Any, key: str, value: Node) -> None:
    """Set a mapping's key, its own first entry or a new one."""
    if isinstance(node, MappingNode):
        slot = next((n for n, (name, _) in enumerate(node.value) if name.value == key), len(node.value))
        node.value[slot : slot + 1] = [(scalar(key), value)]


@cache
def trees() -> dict[Path, Any]:
    """The shipped files."""
    return {path: parsed(path.read_text(encoding="utf-8")) for path in (*SPECS, *SUITES)}


@cache
def shipped_values() -> dict[str, list[Node]]:
    """The values that shipped files give to each key, wherever it stands; alike ones once."""
    by_key: dict[str, dict[str, Node]] = {}
    for path in SPECS:
        for place in places(trees()[path]):
            if isinstance(place.parent, MappingNode):
                text = place.node.value if isinstance(place.node, ScalarNode) else written(place.node)
                by_key.setdefault(place.keys[-1], {}).setdefault(text, place.node)
    return {key: [*nodes.values()] for key, nodes in by_key.items()}


def written(root: Node) -> str:
    """Return the tree as YAML text, its hostile texts still tokens."""
    return str(yaml.serialize(root, Dumper=yaml.CSafeDumper, allow_unicode=True, width=1 << 20))


# --- documents -------------------------------------------------------------------------------


@st.composite
def spec_documents(draw: st.DrawFn) -> Document:
    """One to three cases of one shipped file with what stands above them, or a file that the schema accepts."""
    if draw(st.integers(0, 19)) == 19:
        return Document(node_of(draw(values(schema("spec"), "spec"))), "specs/basics")
    path = draw(st.sampled_from(SPECS))
    root = trees()[path]
    all_cases = child(root, "cases").value
    numbers = draw(st.lists(st.integers(0, len(all_cases) - 1), min_size=1, max_size=3, unique=True))
    keys = [key for key in ("defaults", "kernels") if child(root, key)]
    if "defaults" in keys and draw(st.integers(0, 4)) == 4:
        keys.remove("defaults")
    top = mapping(*((scalar(key), child(root, key)) for key in keys),
        (scalar("cases"), sequence([all_cases[n] for n in sorted(numbers)])))  # fmt: skip
    child(top, "cases").flow_style = False
    folder = path.parent.relative_to(ROOT) if path.is_relative_to(ROOT / "specs") else Path("specs")
    own_python = child(root, "kernels") is not None or any(child(case, "module") for case in all_cases)
    return Document(copy.deepcopy(top), folder.as_posix(), own_python)


@st.composite
def suite_documents(draw: st.DrawFn) -> Document:
    """A shipped suite, sometimes with cases of its own, or one that the schema accepts."""
    if draw(st.integers(0, 19)) == 19:
        return Document(node_of(draw(values(schema("suite"), "suite"))), "suites", True)
    root = copy.deepcopy(trees()[draw(st.sampled_from(SUITES))])
    if draw(st.booleans()):
        put(root, "cases", child(draw(spec_documents()).root, "cases") or parsed("[]"))
    if draw(st.integers(0, 2)) == 2:
        put(root, "specs", parsed("[]"))
    return Document(root, "suites", True)


# --- soft changes ----------------------------------------------------------------------------

Edit = Callable[[st.DrawFn, Document], None]
_FREE = {"doc", "reason", "error", "match", "ignore", "python", "$text"}
_FREE_PIECES = (
    "doc: T", "known: [{reason: T}]", "known: [{error: T, reason: T, stage: inductor}]", "ignore: {stride: T}",
    "tolerance: {rtol: 1e-3, reason: T}", "expect: {raises: {type: ValueError, match: T}}",
)  # fmt: skip
_PLAIN_PIECES = (
    "links: ['https://zq.example/T']", "known: [{issue: 'https://zq.example/T', torch: '<1'}]", "calls: [{}]",
    "return: {T: $_}", "return: [$_, {$text: T}]", "return: {a: $_, T: [T]}",
    "{inputs: {zq: {python: T}}, chain: [{builtin.print: [$zq]}]}", "chain: [{torch.neg: {input: $_, zq: T}}]",
    "{params: {zq: [T, 1]}, chain: [{builtin.print: [$zq]}]}", "{params: {zq: [T]}, chain: [{builtin.print: [$zq]}]}",
    "{state: {zq: {python: T}}, chain: [{builtin.print: [$self.zq]}]}", "chain: [{torch.einsum: [T, $_]}]",
    "{state: {zq: {python: {T: [T]}}}, chain: [{builtin.print: [$self.zq]}]}",
    "chain: [{builtin.print: [{$text: T}]}]", "chain: [{builtin.print: [T, {T: T}]}]",
)  # fmt: skip
"""Where a text T may stand: any text, or one that operators may have. Lists are added to, mappings joined."""

_PLAIN = st.one_of(
    st.from_regex(r"\A[A-Za-z0-9.,:>$_ -]{0,9}\Z"),
    st.sampled_from(("null", "true", "1", "1e5", "torch.float32", "$x", "$5", "off", "-", "a: b", "1:2", "~", "x")),
)


def token(draw: st.DrawFn, document: Document, texts: st.SearchStrategy[str] = TEXTS) -> str:
    """A text's place in a tree, a hostile one's. It goes into double quotes, where anything can be escaped."""
    text = draw(texts)
    document.texts.append((text, harmless(text) if texts is TEXTS else text))
    return f"zqtoken{len(document.texts) - 1}end"


def some_place(draw: st.DrawFn, document: Document, fits: Callable[[Place], object] = bool) -> Place | None:
    choices = [place for place in places(document.root) if fits(place)]
    nearest = [place for place in choices if len(place.keys) <= 2]  # of a deep tree the few upper places too
    if nearest and draw(st.integers(0, 2)) == 2:
        choices = nearest
    return draw(st.sampled_from(choices)) if choices else None


def some_case(draw: st.DrawFn, document: Document) -> Any:
    """A case, or for one draw in five ``defaults:``."""
    cases = getattr(child(document.root, "cases"), "value", None)
    if isinstance(cases, list) and cases and draw(st.integers(0, 4)) < 4:
        return draw(st.sampled_from(cases))
    if not isinstance(child(document.root, "defaults"), MappingNode):
        put(document.root, "defaults", mapping())
    return child(document.root, "defaults")


def join(draw: st.DrawFn, node: Any, piece: Any) -> None:
    """Put the keys of ``piece`` into ``node``."""
    if not isinstance(node, MappingNode):
        return
    for key, value in piece.value:
        own = child(node, key.value)
        if isinstance(own, MappingNode) and isinstance(value, MappingNode):
            join(draw, own, value)
        elif isinstance(own, SequenceNode) and isinstance(value, SequenceNode) and key.value != "devices":
            at = draw(st.integers(0, len(own.value)))
            own.value[at:at] = value.value
        else:
            put(node, key.value, value)


def plant_text(draw: st.DrawFn, document: Document) -> None:
    """A text at a place for it, in a case or under ``defaults``."""
    pieces, texts = draw(st.sampled_from(((_FREE_PIECES, TEXTS), (_PLAIN_PIECES, _PLAIN), (_PLAIN_PIECES, TEXTS))))
    piece = draw(st.sampled_from(pieces)).replace("T", token(draw, document, texts))
    join(draw, some_case(draw, document), parsed(piece))


def change_text(draw: st.DrawFn, document: Document) -> None:
    """A hostile text in a text that is there."""
    if place := some_place(draw, document, lambda p: isinstance(p.node, ScalarNode) and _FREE & {*p.keys[-1:]}):
        place.put(scalar(draw(st.sampled_from(("", f"{place.node.value} "))) + token(draw, document)))


def change_number(draw: st.DrawFn, document: Document) -> None:
    """Another number in the place of one."""
    if place := some_place(draw, document, lambda p: p.node.tag in (_TAG + "int", _TAG + "float")):
        place.put(scalar(draw(st.sampled_from(NUMBERS))))


def copy_key(draw: st.DrawFn, document: Document) -> None:
    """A key of a case with a value of another file, or with one that the schema accepts."""
    key = draw(st.sampled_from(_CASE_KEYS))
    known = shipped_values().get(key, [])
    shipped = st.sampled_from(known).map(copy.deepcopy) if known else st.nothing()
    put(some_case(draw, document), key, draw(st.one_of(shipped, definition(f"case.{key}").map(node_of))))


def move_step(draw: st.DrawFn, document: Document) -> None:
    """A step, or any item of a list, moved, doubled or taken away."""
    if place := some_place(draw, document, lambda p: isinstance(p.node, SequenceNode) and p.node.value):
        items = place.node.value
        slot, target, way = (draw(st.integers(0, most)) for most in (len(items) - 1, len(items) - 1, 2))
        item = items[slot]
        items[slot : slot + 1] = ([], [item, copy.deepcopy(item)], [] if len(items) > 1 else [item])[way]
        if way == 0:
            items.insert(target, item)


def double_case(draw: st.DrawFn, document: Document) -> None:
    """A case once more, under another name."""
    cases = child(document.root, "cases")
    if isinstance(cases, SequenceNode) and cases.value:
        twin = copy.deepcopy(draw(st.sampled_from(cases.value)))
        put(twin, "name", scalar(draw(st.sampled_from(("zq_1", "zq_2")))))
        cases.value.append(twin)


def restyle(draw: st.DrawFn, document: Document) -> None:
    """Another way to write a text: quoted, literal, folded."""
    if place := some_place(draw, document, lambda p: isinstance(p.node,
        ScalarNode) and not _TOKEN.search(p.node.value)):  # fmt: skip
        place.node.style, place.node.tag = draw(st.sampled_from(("'", '"', "|", ">"))), _TAG + "str"


# --- hard changes ----------------------------------------------------------------------------

_CASE_KEYS = sorted(schema("definitions")["definitions"]["case"]["properties"])
_SUITE_VALUES: dict[str, tuple[Any, ...]] = {
    "backends": ("torch:os.system", "os:system", "subprocess:run",
    "torch._inductor.debug:save_args_for_compile_fx_inner", "zq:zq", "zq_module:zq.zq", "torch:zq[0]",
    "torch:zq\nimport os", "eager"),
    "specs": ("../../../../../../**", "/etc/*.spec.yaml", "**/**/**/**/*.spec.yaml", "[", "~/*", "", ".", "/", "{a,b}",
    "../suites/*.suite.yaml", "fuzz.suite.yaml", "\0", "/dev/zero",
              "/dev/stdin", "../specs/**/*.yaml", "$(touch zq_canary)/*", 1, None),
    "select": ("(", "not not not tag:a", "tag:a and", "a or or b", "file:**", "", [], "x[0] == 1", "__import__(1)",
    *(part * depth + "a" + end * depth for depth in (10, 90, 900, 9000)
               for part, end in (("(", ")"), ("not ", ""), ("a or ", ""), ("a and (", ""), ("a", ""), ("*", "")))),
    "devices": ("nn", "sys", "cpu"), "requires": ({"package": ["zq.zq", "antigravity.zq", "unittest.__main__.zq"]},),
}  # fmt: skip


def hostile_node(draw: st.DrawFn, document: Document) -> Node:
    """A hostile text, an odd scalar, an expression, a reference, an operator, or another type."""
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return scalar(token(draw, document))
    if kind == 6:
        kinds: tuple[Any, ...] = ([], {}, [[]], {"": ""}, [None], [1, 2], {"a": 1}, None)
        return node_of(draw(st.sampled_from(kinds)))
    pool = (st.sampled_from(SCALARS), EXPRESSIONS, EXPRESSIONS, st.sampled_from(REFERENCES), st.sampled_from(OPERATORS))
    return scalar(draw(pool[kind - 1]), draw(st.sampled_from((None, '"', "'"))) if kind in (1, 4, 5) else '"')


def spoil_key(draw: st.DrawFn, document: Document) -> None:
    """A key with a value that its schema accepts but for one place in it."""
    if document.folder == "suites" and draw(st.booleans()):
        node, own = document.root, schema("suite")["properties"]
        key = draw(st.sampled_from(sorted(own)))
        value = node_of(draw(values(own[key], "suite")))
    else:
        node, key = some_case(draw, document), draw(st.sampled_from(_CASE_KEYS))
        value = node_of(draw(definition(f"case.{key}")))
    if key in _SUITE_VALUES and draw(st.booleans()):
        hostile = node_of(draw(st.sampled_from(_SUITE_VALUES[key])))
        value = hostile if key in ("select", "requires") else sequence([hostile])
    elif (choices := places(value)) and draw(st.integers(0, 4)):
        place = draw(st.sampled_from(choices))
        if isinstance(place.parent, MappingNode) and draw(st.integers(0, 3)) == 3:
            place.parent.value[place.slot] = (hostile_node(draw, document), place.node)
        else:
            place.put(hostile_node(draw, document))
    else:
        value = hostile_node(draw, document)
    put(node, key, value)


def replace(draw: st.DrawFn, document: Document) -> None:
    """Anything at any place, mostly within what becomes a program."""
    inner = {"chain", "inputs", "grid", "reference", "calls", "state", "return", "arguments"}
    fits = draw(st.sampled_from((lambda p: inner & {*p.keys} and isinstance(p.node, ScalarNode), bool)))
    if place := some_place(draw, document, fits):
        place.put(hostile_node(draw, document))


def change_operator(draw: st.DrawFn, document: Document) -> None:
    """Another operator, real or not, for a step."""
    if place := some_place(draw, document, lambda p: {*p.keys[-1:]} & {"chain", "do", "else",
        "reference"} and isinstance(p.parent, SequenceNode)):  # fmt: skip
        operator = scalar(draw(st.sampled_from(OPERATORS)))
        if isinstance(place.node, MappingNode) and place.node.value:
            place.node.value[0] = (operator, place.node.value[0][1])
        else:
            place.put(operator)


def double(draw: st.DrawFn, document: Document) -> None:
    """A key or item twice: the second is an alias of the first."""
    if place := some_place(draw, document):
        place.parent.value.insert(place.slot, place.parent.value[place.slot])  # type: ignore[arg-type]


def shuffle(draw: st.DrawFn, document: Document) -> None:
    """A key or item less; another file's or place's value for it; or the same node at two places."""
    place, way = some_place(draw, document), draw(st.integers(0, 3))
    if place is None:
        return
    if way == 0:
        del place.parent.value[place.slot]
    elif way == 1:
        key = draw(st.sampled_from(sorted(shipped_values())))
        place.put(copy.deepcopy(draw(st.sampled_from(shipped_values()[key]))))
    elif source := some_place(draw, document):
        place.put(source.node if way == 2 else copy.deepcopy(source.node))


def rename(draw: st.DrawFn, document: Document) -> None:
    """Another key, misspelt, foreign or no text at all."""
    if place := some_place(draw, document, lambda p: isinstance(p.parent, MappingNode)):
        key, value = place.parent.value[place.slot]
        near = st.sampled_from((str(key.value)[::-1], str(key.value)[1:] + str(key.value)[:1], *KEYS, *_CASE_KEYS))
        odd = st.sampled_from(("[a, b]", "{a: b}", "[]", "[[]]")).map(parsed)
        foreign = st.one_of(near.map(scalar), near.map(scalar), near.map(scalar), odd,
            st.sampled_from(SCALARS).map(scalar))  # fmt: skip
        place.parent.value[place.slot] = (scalar(token(draw, document)) if draw(st.integers(0,
            5)) == 5 else draw(foreign), value)  # fmt: skip


def wrap(draw: st.DrawFn, document: Document) -> None:
    """A value within lists or mappings, once or many times; or the first item of a list for the list."""
    if place := some_place(draw, document):
        node, key = place.node, draw(st.sampled_from(("", "", "torch.neg", "if", "$fn", "a")))
        depth = draw(st.sampled_from((1, 1, 3, 20, 30, 37, 60, 200, 0)))
        if depth == 0 and isinstance(node, SequenceNode) and node.value:
            node = node.value[0]
        for _ in range(depth):
            node = mapping((scalar(key), node)) if key else sequence([node])
        place.put(node)


def retag(draw: st.DrawFn, document: Document) -> None:
    """A tag, most of which would make objects; or YAML 1.1's merge key."""
    tags = ("!zq", "tag:zq\x01", *(_TAG + name for name in ("python/object/apply:os.system", "python/name:zq",
        "binary", "set", "str", "int", "null", "float", "timestamp")))  # fmt: skip
    if place := some_place(draw, document):
        if isinstance(place.node, MappingNode) and draw(st.booleans()):
            place.node.value.append((scalar("<<"), draw(st.sampled_from((place.node, scalar("1"),
                parsed("[{a: 1}]"))))))  # fmt: skip
        else:
            place.node.tag = draw(st.sampled_from(tags))


def repeat(draw: st.DrawFn, document: Document) -> None:
    """Something many times over: items, keys, cases, letters."""
    place = some_place(draw, document)
    if place is None:
        return
    times, node = draw(st.sampled_from((20, 500, 10_000))), place.node
    if isinstance(node, ScalarNode):
        text = ("9" if node.tag.endswith("int") else node.value or "a") * times
        place.put(scalar(text) if draw(st.booleans()) else sequence([copy.copy(node) for _ in range(times)]))
    elif node.value:
        entry = draw(st.sampled_from(node.value))
        key, item = entry if isinstance(node, MappingNode) else (None, entry)
        copies = [copy.deepcopy(item) for _ in range(max(2, times // (1 + len(places(item)))))]
        node.value += [(scalar(f"{key.value}_{n}"), twin) for n, twin in enumerate(copies)] if key else copies


def bomb(draw: st.DrawFn, document: Document) -> None:
    """Lists of aliases of lists of aliases."""
    if place := some_place(draw, document):
        node: Node = scalar("zq")
        for _ in range(draw(st.sampled_from((4, 9, 30)))):
            node = sequence([node] * draw(st.sampled_from((2, 9))))
        place.put(node)


def multiply(draw: st.DrawFn, document: Document) -> None:
    """Axes of long values that multiply. The chain uses them, so that they are not refused for that."""
    case, size = some_case(draw, document), draw(st.sampled_from((1, 10, 3000)))
    axis: list[Any] = [f"{'z' * size}{n}" for n in range(draw(st.sampled_from((5, 50, 300))))]
    if draw(st.integers(0, 2)) == 2:
        axis = [*range(draw(st.sampled_from((500, 20_000))))]
    params = {f"zq{n}": axis for n in range(draw(st.integers(1, 3)))}
    if draw(st.booleans()):  # a long value beside them: each id has it
        params["zq_long"] = ["z" * draw(st.sampled_from((5000, 100_000)))]
    join(draw, case, node_of({"params": params, "chain": [{"builtin.print": [f"${name}" for name in params]}]}))
    if draw(st.booleans()):
        put(case, "exclude", node_of([{"zq0": value} for value in axis]))


def damage(draw: st.DrawFn, document: Document) -> None:
    """The bytes of the file spoilt in one way."""
    document.damage.append(draw(damages()))


@st.composite
def damages(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """Ways to spoil the bytes of a file: at a place, at a line, or everywhere."""
    share, way = draw(st.integers(0, 999)), draw(st.integers(0, 3))
    inserted = draw(st.one_of(st.binary(max_size=3), st.sampled_from((
        b"\0", b"\xef\xbb\xbf", b"\xff", b"\xe2\x80\xa8", b"\x1b[2J\xff", b"\xed\xa0\x80", b"\xc2\x85", b"\t", b"\r",
            b"[" * 3000, b"{" * 3000, b"- " * 3000, b"? " * 3000,
        b"\"" + b"\\x1b" * 300, b"!" * 300, b"&a " * 300, b"[" * 900 + b"]" * 900))))  # fmt: skip
    line = draw(st.sampled_from((b"", b"---\n", b"...\n", b"%YAML 9.9\n", b"%YAML 1.1\n---\n", b"? a\n", b"- \n",
        b"&a\n", b"*a\n", b"# \x1b[2J\n", b"zq: \xe9\n")))  # fmt: skip
    old, new = draw(st.sampled_from(((b"\n", b"\r\n"), (b"\n", b"\r"), (b"\n", b"\n\n"), (b"\n", b"\x0b"),
        (b"\n", b"\xe2\x80\xa8"), (b"  ", b"\t"), (b":", b""))))  # fmt: skip
    encoding = draw(st.sampled_from(("utf-8", "utf-8", "utf-16", "utf-16-le", "utf-32", "utf-7")))
    cut, count = draw(st.sampled_from((0, 1, 1 << 30))), draw(st.sampled_from((-1, 1)))
    tail = draw(st.sampled_from((b"", b"caf\xe9\x1b[2J", *(b"\n# " + b"z" * size for size in (100_000, 5_000_000)))))

    def spoilt(data: bytes) -> bytes:
        at, lines = len(data) * share // 1000, data.splitlines(keepends=True)
        row = len(lines) * share // 1000
        if way == 0:
            return data[:at] + inserted + data[at + cut :]
        if way == 1:
            return b"".join([*lines[:row], line, *lines[row : row + 1] * (1 + cut % 50), *lines[row + 1 :]])
        if way == 2:
            return data.replace(old, new, count) if encoding == "utf-8" else data.decode("utf-8",
                "replace").encode(encoding)  # fmt: skip
        return data + tail

    return spoilt


_SOFT: tuple[Edit, ...] = (
    *(plant_text,) * 7,
    *(change_text,) * 4,
    *(change_number,) * 4,
    *(copy_key,) * 6,
    *(move_step,) * 3,
    *(double_case,) * 2,
    restyle,
)
_HARD: tuple[Edit, ...] = (
    *(spoil_key,) * 10, *(replace,) * 10, *(change_operator,) * 3, *(double,) * 2, *(shuffle,) * 9, *(rename,) * 4,
    *(wrap,) * 6, *(retag,) * 3, *(damage,) * 7, repeat, multiply, bomb,
)  # fmt: skip
_LARGE: tuple[Edit, ...] = (wrap, repeat, repeat, multiply, multiply, bomb)


@st.composite
def file_trials(draw: st.DrawFn, kind: str = "spec", edits: Sequence[Edit] = ()) -> Trial:
    """A changed spec file or suite, and a command on it. ``edits``: no other changes than these."""
    document = draw(spec_documents() if kind == "spec" else suite_documents())
    for _ in range(draw(st.sampled_from((1, 1, 2, 2, 3, 4)))):
        level = draw(st.integers(0, 99))  # large files take most of the time
        table = edits or (_SOFT if level < 74 else _HARD if level < 97 else _LARGE)
        edit = spoil_key if kind == "suite" and level < 40 else draw(st.sampled_from(table))
        edit(draw, document)
    text = written(document.root)
    data = filled(text, [own for own, _ in document.texts]).encode("utf-8", "surrogatepass")
    for spoilt in document.damage:
        data = spoilt(data)
    name = f"{document.folder}/fuzz.{kind}.yaml"
    words = draw(file_words(name, document))
    twin = None
    if _TOKEN.search(text) and not document.damage:
        twin = {name: filled(text, [twin for _, twin in document.texts]).encode()}
    return Trial(kind, {name: data}, words, twin, draw(st.integers(0, 7)) == 7)


def filled(text: str, texts: Sequence[str]) -> str:
    """Return YAML text with each token's text in its place."""
    return _TOKEN.sub(lambda match: escaped(texts[int(match[1])]), text)


@st.composite
def file_words(draw: st.DrawFn, name: str, document: Document) -> tuple[str, ...]:
    """A command on the file, sometimes on one case, sometimes with options."""
    command = draw(st.sampled_from(("validate", "validate", "list", "show", "show", "repro", "repro", "ledger",
        "write")))  # fmt: skip
    if command == "write":
        return command, name
    cases = getattr(child(document.root, "cases"), "value", ())
    names = [node.value for node in (child(case, "name") for case in cases) if isinstance(node,
        ScalarNode) and re.fullmatch(r"[a-z]\w*", node.value, re.ASCII)]  # fmt: skip
    options: list[str] = []
    if command in ("show", "repro", "list"):
        name += draw(st.sampled_from(("", *(f"::{case}" for case in names or ["a"]))))
        options = draw(st.sampled_from((*([],) * 12, ["--backend", "eager"], ["--backend", "my_package:my_backend"],
            ["--device", "meta"], ["-k", "relu or not add"], ["-k", "zq\x1b["],
            ["--limit", "variants=9"])))  # fmt: skip
    if draw(st.integers(0, 9)) < (8 if document.own_python else 1):
        options = [*options, "--allow-python"]
    return command, name, *options
