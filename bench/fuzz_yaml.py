"""Changed copies of the shipped YAML files, for ``bench/fuzz.py``: trees of nodes, from the file to be changed to its bytes and those of its twin.

``fuzz_edits`` changes the trees; what changes bytes is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

import yaml
from fuzz_payloads import filled, has_token
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

ROOT = Path(__file__).resolve().parent.parent
SPECS = (
    *sorted((ROOT / "specs").rglob("*.spec.yaml")),
    ROOT / "runner" / "selftest" / "planted.spec.yaml",
    ROOT / "bench" / "fuzz_seed.spec.yaml",
)
SUITES = tuple(sorted((ROOT / "suites").glob("*.suite.yaml")))

TEXT = "tag:yaml.org,2002:str"


@dataclass
class Document:
    """A tree under change, and the numbers of the edits that its bytes get afterwards."""

    root: Node
    folder: str
    """Where the file lies, relative to the working folder: its kernels' Python is there too."""
    own_python: bool = False
    byte_edits: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """A node below another one; ``keys`` lead to it."""

    parent: MappingNode | SequenceNode
    slot: int
    keys: tuple[str, ...]

    @property
    def node(self) -> Node:
        """What stands there."""
        value = self.parent.value[self.slot]
        return value[1] if isinstance(self.parent, MappingNode) else value

    def put(self, node: Node) -> None:
        """Put another node there."""
        if isinstance(self.parent, MappingNode):
            self.parent.value[self.slot] = (self.parent.value[self.slot][0], node)
        else:
            self.parent.value[self.slot] = node


# --- nodes -----------------------------------------------------------------------------------


def scalar(value: str, style: str | None = None) -> ScalarNode:
    """A scalar as PyYAML would read the plain text; a text with a payload in double quotes."""
    if has_token(value) or style:
        return ScalarNode(TEXT, value, style=style or '"')
    return ScalarNode(yaml.resolver.Resolver().resolve(ScalarNode, value, (True, False)), value)


def parsed(text: str) -> Node:
    """The tree of a piece of YAML, without the places of its nodes."""
    return copied(yaml.compose(text, Loader=yaml.CSafeLoader))


def copied(node: Node, copies: dict[int, Node] | None = None) -> Node:
    """A copy that shares nothing with ``node``; what is shared within it stays shared."""
    copies = {} if copies is None else copies
    if id(node) in copies:
        return copies[id(node)]
    if isinstance(node, ScalarNode):
        copies[id(node)] = (
            scalar(node.value, '"') if has_token(node.value) else ScalarNode(node.tag, node.value, style=node.style)
        )
        return copies[id(node)]
    copy = type(node)(node.tag, [], flow_style=node.flow_style)
    copies[id(node)] = copy
    if isinstance(node, MappingNode):
        copy.value = [(copied(key, copies), copied(value, copies)) for key, value in node.value]
    else:
        copy.value = [copied(item, copies) for item in node.value]
    return copy


def child(node: Node, key: str) -> Node | None:
    """The value of a mapping's key."""
    pairs = node.value if isinstance(node, MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def put(node: MappingNode, key: str, value: Node) -> None:
    """Set a mapping's key, its own first entry or a new one."""
    for slot, (name, _) in enumerate(node.value):
        if name.value == key:
            node.value[slot] = (name, value)
            return
    node.value.append((scalar(key), value))


def places(root: Node) -> list[Place]:
    """Every place below ``root``, each once though aliases may lead there by several ways."""
    visited: set[int] = set()

    def below(node: Node, keys: tuple[str, ...]) -> Iterator[Place]:
        if id(node) in visited or isinstance(node, ScalarNode):
            return
        visited.add(id(node))
        for slot, item in enumerate(node.value):
            value, name = (item[1], str(item[0].value)) if isinstance(node, MappingNode) else (item, "")
            path = (*keys, name) if name else keys
            yield Place(node, slot, path)
            yield from below(value, path)

    return list(below(root, ()))


def written(root: Node) -> str:
    """The tree as YAML text, its payloads still tokens."""
    return str(yaml.serialize(root, Dumper=yaml.CSafeDumper, allow_unicode=True, width=1 << 20))


# --- what is changed -------------------------------------------------------------------------


@cache
def trees() -> tuple[tuple[Path, Node], ...]:
    """The shipped spec files."""
    return tuple((path, parsed(path.read_text(encoding="utf-8"))) for path in SPECS)


@cache
def cases() -> tuple[tuple[int, int], ...]:
    """Every shipped case: the number of its file and its own in it."""
    return tuple(
        (number, place) for number, (_, root) in enumerate(trees()) for place in range(len(child(root, "cases").value))
    )


@cache
def by_key() -> dict[str, list[Node]]:
    """The values that shipped cases give to each key, wherever it stands; alike ones once."""
    values: dict[str, dict[str, Node]] = {}
    for _, root in trees():
        for place in places(root):
            if isinstance(place.parent, MappingNode):
                node = place.node
                text = node.value if isinstance(node, ScalarNode) else written(node)
                values.setdefault(place.keys[-1], {}).setdefault(text, node)
    return {key: list(nodes.values()) for key, nodes in values.items()}


@cache
def case_keys() -> tuple[str, ...]:
    """The keys of shipped cases that can go from one case to another."""
    keys = {name.value for _, root in trees() for case in child(root, "cases").value for name, _ in case.value}
    return tuple(sorted(keys - {"name", "inputs", "state", "chain", "return", "calls", "module", "params", "exclude"}))


def spec_document(source: int) -> Document:
    """One to three cases of one shipped file, with what stands above them."""
    number, place = cases()[source % len(cases())]
    random = Random(source)
    path, root = trees()[number]
    all_cases = child(root, "cases").value
    chosen = {place, *random.sample(range(len(all_cases)), min(len(all_cases), random.choice((0, 0, 1, 2))))}
    top = MappingNode("tag:yaml.org,2002:map", [], flow_style=False)
    for name, value in root.value:
        if name.value != "cases" and (name.value != "defaults" or random.random() < 0.8):
            top.value.append((copied(name), copied(value)))
    top.value.append(
        (
            scalar("cases"),
            SequenceNode("tag:yaml.org,2002:seq", [copied(all_cases[n]) for n in sorted(chosen)], flow_style=False),
        )
    )
    folder = path.parent.relative_to(ROOT) if path.is_relative_to(ROOT / "specs") else Path("specs")
    own_python = child(root, "kernels") is not None or any(child(case, "module") for case in all_cases)
    return Document(top, folder.as_posix(), own_python)


def suite_document(source: int) -> Document:
    """A shipped suite, sometimes with cases of its own."""
    random = Random(source)
    root = copied(_suites()[source % len(SUITES)])
    if random.random() < 0.6:
        cases_node = child(spec_document(source).root, "cases")
        put(root, "cases", cases_node)
    if random.random() < 0.3:
        put(root, "specs", parsed("[]"))
    return Document(root, "suites", True)


@cache
def _suites() -> tuple[Node, ...]:
    return tuple(parsed(path.read_text(encoding="utf-8")) for path in SUITES)


def case_names(document: Document) -> list[str]:
    """The names of a document's cases that can stand in a command line."""
    names = [child(case, "name") for case in getattr(child(document.root, "cases"), "value", [])]
    return [
        name.value
        for name in names
        if isinstance(name, ScalarNode) and name.value.isidentifier() and name.value.isascii()
    ]


# --- bytes ---------------------------------------------------------------------------------


def rendered(document: Document) -> tuple[bytes, bytes | None]:
    """The file, and its twin with harmless texts for payloads (None where there is nothing to compare)."""
    text = written(document.root)
    data = filled(text).encode("utf-8", "surrogatepass")
    for number in document.byte_edits:
        data = changed_bytes(data, Random(number))
    twin = filled(text, twin=True).encode() if has_token(text) and not document.byte_edits else None
    return data, twin


def changed_bytes(data: bytes, random: Random) -> bytes:
    """The bytes of a file spoilt in one way."""
    at = random.randint(0, len(data))
    line = data.splitlines(keepends=True)
    row = random.randrange(len(line)) if line else 0
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: data[:at] + bytes([random.randrange(256)]) + data[at + 1 :],
        lambda: data[:at],
        lambda: data[:at] + random.choice((b"\0", b"\xef\xbb\xbf", b"\xff", b"\xe2\x80\xa8", b"\x1b[2J\xff", b"\xed\xa0\x80", b"\xc2\x85", b"\t", b"\r")) + data[at:],
        lambda: data.decode("utf-8", "replace").encode(random.choice(("utf-16", "utf-16-le", "utf-32", "utf-7"))),
        lambda: data + "caf\u00e9\x1b[2J".encode("latin-1"),
        lambda: data.replace(b"\n", random.choice((b"\r\n", b"\r", b"\n\n", b"\x0b", b"\xe2\x80\xa8"))),
        lambda: data.replace(b"  ", b"\t", random.choice((1, -1))),
        lambda: b"".join([*line[:row], *line[row : row + 1] * random.choice((2, 50)), *line[row:]]),
        lambda: b"".join([*line[:row], *line[row + 1 :]]),
        lambda: b"".join([*line[:row], random.choice((b"---\n", b"...\n", b"%YAML 9.9\n", b"%YAML 1.1\n---\n", b"? a\n", b"- \n", b"&a\n", b"*a\n", b"# \x1b[2J\n")), *line[row:]]),
        lambda: data[:at] + random.choice((b"[" * 3000, b"{" * 3000, b"- " * 3000, b"? " * 3000, b"\"" + b"\\x1b" * 300, b"!" * 300, b"&a " * 300)) + data[at:],
        lambda: data[:at] + data[at:].replace(b":", b"", 1),
        lambda: b"" if random.random() < 0.3 else random.randbytes(200),
        lambda: data + b"\n" + b"# " + b"z" * random.choice((100, 100_000, 5_000_000)),
    )  # fmt: skip
    return random.choice(ways)()
