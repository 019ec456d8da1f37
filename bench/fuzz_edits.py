"""What ``bench/fuzz.py`` changes in the tree of a YAML file.

Soft edits leave most files loadable: texts in free places, other numbers, keys from other cases, steps moved. Hard edits are anything.
Each edit has a number, from which all of its choices follow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

from fuzz_payloads import EXPRESSIONS, KEYS, NUMBERS, OPERATORS, PAYLOADS, REFERENCES, SCALARS, has_token, token
from fuzz_yaml import TEXT, Document, Place, by_key, case_keys, child, copied, parsed, places, put, scalar
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

SOFT_SHARE = 0.8
"""Of the edits."""

_FREE = {"doc", "reason", "error", "match", "ignore", "python", "$text"}
"""Keys whose texts may be any text, or nearly."""

# --- soft edits ------------------------------------------------------------------------------

_FREE_SLOTS = (
    "doc: T", "links: ['https://zq.example/T']", "known: [{reason: T}]", "known: [{issue: 'https://zq.example/T', torch: '<1'}]", "known: [{error: T, reason: T, stage: inductor}]",
    "ignore: {stride: T}", "tolerance: {rtol: 1e-3, reason: T}", "expect: {raises: {type: ValueError, match: T}}", "calls: [{}]", "return: {T: $_}", "return: [$_, {$text: T}]",
    "{inputs: {zq: {python: T}}, chain: [{builtin.print: [$zq]}]}", "{params: {zq: [T, 1]}, chain: [{builtin.print: [$zq]}]}", "{params: {zq: [T]}, chain: [{builtin.print: [$zq]}]}",
    "{state: {zq: {python: T}}, chain: [{builtin.print: [$self.zq]}]}", "{state: {zq: {python: {T: [T]}}}, chain: [{builtin.print: [$self.zq]}]}",
    "chain: [{builtin.print: [{$text: T}]}]", "chain: [{builtin.print: [T, {T: T}]}]", "chain: [{torch.einsum: [T, $_]}]", "chain: [{torch.neg: {input: $_, zq: T}}]",
)  # fmt: skip
"""Where a text may stand. T is the payload; lists are added to, mappings joined."""

_OTHER_SLOTS = (
    "name: T", "tags: [T]", "tags: [a, T]", "links: [T]", "compile: {mode: T}", "config: {torch._inductor.config.comment_origin: T}", "threads: T", "autocast: T", "autocast: [null, T]", "timeout: T", "memory: T", "dtypes: [T]", "devices: [T]", "devices: T", "param_dtype: T", "grad: T",
    "grad: {order: T}", "grad: {cotangent: T}", "dynamic: T", "train: T", "train: [T]", "module: {file: T, name: T}", "module: {file: add.py, name: T, args: {T: T}}",
    "exclude: [{n: T}]", "exclude: T", "params: {T: [1]}", "inputs: {T: [2]}", "inputs: {zq: [T]}", "inputs: {zq: {shape: [2], dtype: T}}", "inputs: {zq: {shape: [2], init: T}}",
    "inputs: {zq: {shape: [2], device: T}}", "inputs: {zq: {view_of: T}}", "inputs: {zq: {values: [T]}}", "inputs: {zq: {shape: [2], init: {full: T}}}", "state: {T: {python: 1}}",
    "requires: {package: T}", "requires: {package: [T]}", "requires: {torch: T}", "requires: {device: T}", "requires: {package: [zq.zq, antigravity.zq, unittest.__main__.zq]}",
    "config: {torch._inductor.config.T: true}", "config: {torch.zq.T: true}", "config: {T: T}", "config: {torch._dynamo.config.cprofile: true}", "config: {torch._inductor.config.max_fusion_size: T}",
    "compile: {options: {T: T}}", "compile: {T: 1}", "expect: {raises: {type: T}}", "expect: {raises: T}", "expect: {graphs: T}", "expect: {T: 1}", "tolerance: {T: {rtol: 1}}",
    "tolerance: {rtol: T}", "ignore: {T: T}", "ignore: T", "tags: T", "tags: [T, 1, null]", "links: T", "known: T", "known: [{T: T}]", "known: [{reason: T, torch: T}]",
    "known: [{reason: T, stage: T}]", "known: [{reason: T, oracle: [T]}]", "known: [{reason: T, backend: [T], platform: [T]}]", "known: [{reason: T, review: T}]",
    "known: [{reason: T, why: T}]", "known: [{reason: T, params: {n: T}, threads: [T]}]", "calls: [{params: T}]", "calls: [{params: {n: T}}]", "calls: [{inputs: {x: T}}]", "calls: T",
    "chain: [T]", "chain: [{T: []}]", "chain: [{torch.add: {'*': [$_, 1], T: 1}}]", "chain: [{torch.neg: $_, out: T}]", "chain: [{nn.ReLU: [], id: T}]", "chain: [{nn.ReLU: [], call: [T]}]",
    "chain: [{with: [{torch.autocast: {device_type: T}}], chain: []}]", "chain: [{with: [T], chain: [torch.neg]}]", "chain: [{if: T, do: [torch.neg]}]",
    "chain: [{torch.func.grad: [{$fn: {args: [T], chain: [torch.neg]}}]}]", "chain: [{torch.full: {size: [2], dtype: T}}]", "chain: [{operator.getitem: [$_, T]}]", "chain: [{triton.T: []}]",
    "chain: [{torch.mul: [$_, '${T}']}]", "chain: [{torch.mul: [$_, '${x.T}']}]", "return: T", "return: [T]", "T: 1", "doc: [T]", "doc: {T: T}",
    "grad: [[1]]", "calls: [{params: x}]", "timeout: x", "defaults: {threads: T}",
)  # fmt: skip
"""Where a text mostly may not stand."""


def plant_text(document: Document, random: Random, slots: tuple[str, ...] = _FREE_SLOTS) -> None:
    """A payload at a place for texts, in a case or under ``defaults``."""
    piece = random.choice(slots).replace("T", token(random.randrange(len(PAYLOADS))))
    _join(_case(document, random, defaults=0.2), parsed(piece), random)


def _case(document: Document, random: Random, defaults: float) -> Node:
    root = document.root
    cases_node = child(root, "cases")
    if random.random() < defaults or not isinstance(cases_node, SequenceNode) or not cases_node.value:
        if not isinstance(root, MappingNode):
            return root
        if not isinstance(child(root, "defaults"), MappingNode):
            put(root, "defaults", parsed("{}"))
        return child(root, "defaults") or root
    return random.choice(cases_node.value)


def _join(node: Node, piece: Node, random: Random) -> None:
    """Put the keys of ``piece`` into ``node``."""
    if not isinstance(node, MappingNode) or not isinstance(piece, MappingNode):
        return
    for key, value in piece.value:
        own = child(node, key.value)
        if isinstance(own, MappingNode) and isinstance(value, MappingNode):
            _join(own, value, random)
        elif isinstance(own, SequenceNode) and isinstance(value, SequenceNode) and key.value != "devices":
            for item in value.value:
                own.value.insert(random.randint(0, len(own.value)), item)
        else:
            put(node, key.value, value)


def change_text(document: Document, random: Random) -> None:
    """A payload in a text that is there."""
    choices = [p for p in places(document.root) if isinstance(p.node, ScalarNode) and p.keys and p.keys[-1] in _FREE]
    if choices:
        place = random.choice(choices)
        place.put(scalar(random.choice(("", place.node.value + " ")) + token(random.randrange(len(PAYLOADS)))))


def change_number(document: Document, random: Random) -> None:
    """Another number in the place of one."""
    choices = [
        p for p in places(document.root) if isinstance(p.node, ScalarNode) and p.node.tag.endswith((":int", ":float"))
    ]
    if choices:
        random.choice(choices).put(scalar(random.choice(NUMBERS)))


def copy_key(document: Document, random: Random) -> None:
    """A key of another case, or its value."""
    case = _case(document, random, defaults=0.15)
    if isinstance(case, MappingNode):
        key = random.choice(case_keys())
        put(case, key, copied(random.choice(by_key()[key])))


def move_steps(document: Document, random: Random) -> None:
    """A step (or any item of a list) taken away, doubled or moved."""
    choices = [p.node for p in places(document.root) if isinstance(p.node, SequenceNode) and p.node.value]
    if choices:
        items = random.choice(choices).value
        slot, way = random.randrange(len(items)), random.random()
        if way < 0.3:
            items.insert(random.randrange(len(items)), items.pop(slot))
        elif way < 0.6:
            items.insert(slot, copied(items[slot]))
        elif len(items) > 1:
            del items[slot]


def double_case(document: Document, random: Random) -> None:
    """A case once more, under another name."""
    cases_node = child(document.root, "cases")
    if isinstance(cases_node, SequenceNode) and cases_node.value and isinstance(cases_node.value[0], MappingNode):
        copy = copied(random.choice(cases_node.value))
        if isinstance(copy, MappingNode):
            put(copy, "name", scalar(f"zq_{random.randrange(1000)}"))
        cases_node.value.append(copy)


# --- hard edits ------------------------------------------------------------------------------


def _place(document: Document, random: Random) -> Place | None:
    choices = places(document.root)
    if not choices:
        return None
    nearest = [p for p in choices if len(p.keys) <= 2]  # of a deep tree the few upper places too
    return random.choice(nearest if nearest and random.random() < 0.3 else choices)


def plant_anywhere(document: Document, random: Random) -> None:
    """A payload where texts mostly may not stand."""
    if random.random() < 0.7:
        plant_text(document, random, _OTHER_SLOTS)
    elif place := _place(document, random):
        place.put(scalar(token(random.randrange(len(PAYLOADS)))))


def replace_scalar(document: Document, random: Random) -> None:
    """Any scalar, expression, reference or operator at any place."""
    if place := _place(document, random):
        pool = random.choice((SCALARS, SCALARS, EXPRESSIONS, EXPRESSIONS, REFERENCES, OPERATORS))
        place.put(scalar(random.choice(pool), random.choice((None, None, "'", '"'))))


def replace_argument(document: Document, random: Random) -> None:
    """Any expression or reference within a chain, a shape or a grid."""
    inner = {"chain", "inputs", "grid", "reference", "calls", "state", "return", "arguments"}
    choices = [p for p in places(document.root) if inner & set(p.keys) and isinstance(p.node, ScalarNode)]
    if choices:
        random.choice(choices).put(scalar(random.choice(random.choice((EXPRESSIONS, REFERENCES))), '"'))


def change_operator(document: Document, random: Random) -> None:
    """Another operator, real or not, for a step."""
    choices = [
        p
        for p in places(document.root)
        if p.keys and p.keys[-1] in ("chain", "do", "else", "reference") and isinstance(p.parent, SequenceNode)
    ]
    if not choices:
        return
    place, operator = random.choice(choices), scalar(random.choice(OPERATORS))
    if isinstance(place.node, MappingNode) and place.node.value:
        place.node.value[0] = (operator, place.node.value[0][1])
    else:
        place.put(operator)


def delete(document: Document, random: Random) -> None:
    """A key or item less."""
    if place := _place(document, random):
        del place.parent.value[place.slot]


def double(document: Document, random: Random) -> None:
    """A key or item twice."""
    if place := _place(document, random):
        place.parent.value.insert(place.slot, place.parent.value[place.slot])


def rename(document: Document, random: Random) -> None:
    """Another key, misspelt, foreign or no text at all."""
    choices = [p for p in places(document.root) if isinstance(p.parent, MappingNode)]
    if not choices:
        return
    place = random.choice(choices)
    key, value = place.parent.value[place.slot]
    near = str(key.value)[::-1] if random.random() < 0.2 else str(key.value)[1:] + str(key.value)[:1]
    foreign: Node = scalar(
        random.choice((random.choice(KEYS), near, token(random.randrange(len(PAYLOADS))), random.choice(SCALARS)))
    )
    if random.random() < 0.1:
        foreign = parsed(random.choice(("[a, b]", "{a: b}", "[]", "[[]]")))
    place.parent.value[place.slot] = (foreign, value)


def swap(document: Document, random: Random) -> None:
    """Two places changed for each other."""
    first, second = _place(document, random), _place(document, random)
    if first and second and id(first.node) not in {id(p.node) for p in places(second.node)}:
        one_node, other_node = first.node, second.node
        if id(other_node) not in {id(p.node) for p in places(one_node)}:
            first.put(other_node)
            second.put(one_node)


def splice(document: Document, random: Random) -> None:
    """A piece of another file."""
    if place := _place(document, random):
        values = by_key()
        place.put(copied(random.choice(values[random.choice(sorted(values))])))


def change_type(document: Document, random: Random) -> None:
    """A list for a value, a value for a list, and the like."""
    place = _place(document, random)
    if place is None:
        return
    node = place.node
    pool = ["[]", "{}", "[[]]", "{'': ''}", "[null]", "1", "text", "null", "[1, 2]", "{a: 1}"]
    if isinstance(node, SequenceNode) and node.value and random.random() < 0.5:
        place.put(node.value[0])
    elif random.random() < 0.4:
        place.put(SequenceNode("tag:yaml.org,2002:seq", [node], flow_style=True))
    elif random.random() < 0.3:
        place.put(MappingNode("tag:yaml.org,2002:map", [(scalar(random.choice(KEYS)), node)], flow_style=True))
    else:
        place.put(parsed(random.choice(pool)))


def nest(document: Document, random: Random) -> None:
    """A value within many lists or mappings."""
    if place := _place(document, random):
        node, depth, key = (
            place.node,
            random.choice((3, 20, 30, 37, 60, 200)),
            random.choice(("", "", "torch.neg", "if", "$fn", "a")),
        )
        for _ in range(depth):
            node = (
                MappingNode("tag:yaml.org,2002:map", [(scalar(key), node)], flow_style=True)
                if key
                else SequenceNode("tag:yaml.org,2002:seq", [node], flow_style=True)
            )
        place.put(node)


def alias(document: Document, random: Random) -> None:
    """The same node at two places, sometimes within itself."""
    first, second = _place(document, random), _place(document, random)
    if first and second:
        second.put(first.node)


def alias_bomb(document: Document, random: Random) -> None:
    """Lists of aliases of lists of aliases."""
    if place := _place(document, random):
        node: Node = scalar("zq")
        for _ in range(random.choice((4, 9, 30))):
            node = SequenceNode("tag:yaml.org,2002:seq", [node] * random.choice((2, 9)), flow_style=True)
        place.put(node)


def tag(document: Document, random: Random) -> None:
    """A tag, most of which would make objects."""
    if place := _place(document, random):
        names = ("!zq", "tag:yaml.org,2002:python/object/apply:os.system", "tag:yaml.org,2002:python/name:zq", "tag:yaml.org,2002:binary", "tag:yaml.org,2002:set",
                 TEXT, "tag:yaml.org,2002:int", "tag:yaml.org,2002:null", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp", "tag:zq\x01")  # fmt: skip
        place.node.tag = random.choice(names)


def merge_key(document: Document, random: Random) -> None:
    """YAML 1.1's merge key."""
    choices = [p.node for p in places(document.root) if isinstance(p.node, MappingNode)]
    if choices:
        random.choice(choices).value.append((scalar("<<"), random.choice((*choices, scalar("1"), parsed("[{a: 1}]")))))


def restyle(document: Document, random: Random) -> None:
    """Another way to write a text: quoted, literal, folded."""
    choices = [p.node for p in places(document.root) if isinstance(p.node, ScalarNode) and not has_token(p.node.value)]
    if choices:
        node = random.choice(choices)
        node.style, node.tag = random.choice(("'", '"', "|", ">")), TEXT


def repeat(document: Document, random: Random) -> None:
    """Something many times over: items, keys, cases, letters."""
    lists = [p for p in places(document.root) if not isinstance(p.node, ScalarNode)]
    place = random.choice(lists) if lists and random.random() < 0.6 else _place(document, random)
    if place is None:
        return
    times, node = random.choice((20, 500, 10_000)), place.node
    if isinstance(node, ScalarNode):
        if random.random() < 0.5:
            place.put(scalar("9" * times if node.tag.endswith("int") else (node.value or "a") * times))
        else:
            place.put(
                SequenceNode(
                    "tag:yaml.org,2002:seq", [node] * 1 + [copied(node) for _ in range(times)], flow_style=True
                )
            )
    elif isinstance(node, SequenceNode) and node.value:
        item = random.choice(node.value)
        size = 1 + len(places(item))
        node.value += [copied(item) for _ in range(max(2, times // size))]
    elif isinstance(node, MappingNode) and node.value:
        key, value = random.choice(node.value)
        size = 1 + len(places(value))
        node.value += [(scalar(f"{key.value}_{n}"), copied(value)) for n in range(max(2, times // size))]


def multiply(document: Document, random: Random) -> None:
    """Axes that multiply, of long values, used so that they are not refused for that."""
    case = _case(document, random, defaults=0.0)
    if not isinstance(case, MappingNode):
        return
    length, size = random.choice((5, 50, 300)), random.choice((1, 10, 3000))
    values = [f"{'z' * size}{n}" for n in range(length)]
    if random.random() < 0.3:
        values = [str(n) for n in range(random.choice((500, 20_000)))]
    params = {f"zq{n}": values for n in range(random.choice((1, 1, 2, 2, 3)))}
    if random.random() < 0.4:  # a long value beside them: each id has it
        params["zq_long"] = ["z" * random.choice((5000, 100_000))]
    _join(
        case,
        parsed(json.dumps({"params": params, "chain": [{"builtin.print": [f"${name}" for name in params]}]})),
        random,
    )
    if random.random() < 0.5:
        put(case, "exclude", parsed(json.dumps([{"zq0": value} for value in values])))
    if random.random() < 0.2:
        put(case, "dtypes", parsed("[float32, float64, float16, bfloat16]"))


# --- suites ----------------------------------------------------------------------------------

_SUITE_SLOTS = (
    "suite: T", "doc: T", "select: T", "select: 'tag:T'", "devices: [T]", "manual: T", "specs: [T]", "specs: T", "backends: [T]", "backends: T", "backends: [{name: T, backend: eager}]",
    "backends: [{name: zq, backend: T}]", "backends: [{name: zq, backend: inductor, mode: T}]", "backends: [{name: zq, backend: inductor, options: {T: T}}]",
    "backends: [{name: zq, backend: inductor, dynamic: T, fullgraph: T}]", "backends: [{T: T}]", "backends: [{name: zq, backend: inductor, config: {T: T}}]",
    "backends: ['torch:os.system']", "backends: ['os:system']", "backends: ['subprocess:run']", "backends: ['torch._inductor.debug:save_args_for_compile_fx_inner']", "backends: ['zq:zq']",
    "backends: ['zq_module:zq.zq']", "backends: [{name: zq, backend: 'torch:zq[0]'}]", "backends: [{name: zq, backend: 'torch:zq\\nimport os'}]", "backends: []", "backends: [eager, eager]",
    "specs: ['../../../../../../**']", "specs: ['/etc/*.spec.yaml']", "specs: ['**/**/**/**/*.spec.yaml']", "specs: ['[']", "specs: ['~/*']", "specs: ['']", "specs: ['.']", "specs: ['/']",
    "specs: ['{a,b}' ]", "specs: ['../suites/*.suite.yaml']", "specs: ['fuzz.suite.yaml']", "specs: [\"\\0\"]", "specs: ['/dev/zero', '/dev/stdin']", "specs: ['../specs/**/*.yaml']",
    "specs: ['$(touch zq_canary)/*']", "specs: [1, null]", "select: '('", "select: 'not not not tag:a'", "select: 'tag:a and'", "select: 'a or or b'", "select: 'file:**'", "select: ''", "select: []",
    "select: 'x[0] == 1'", "select: '__import__(1)'", "devices: [nn]", "devices: [sys]", "devices: [cpu, cpu]", "devices: []", "cases: []", "cases: {}", "manual: true", "manual: 1",
    "defaults: {threads: T}", "defaults: {autocast: T}", "defaults: {grad: {order: T}}", "defaults: {timeout: T, tags: [T, 1]}", "defaults: {chain: [T]}", "defaults: T", "defaults: {defaults: {}}",
)  # fmt: skip


def plant_in_suite(document: Document, random: Random) -> None:
    """A payload or a hostile value at a key of a suite."""
    slot = random.choice(_SUITE_SLOTS).replace("T", token(random.randrange(len(PAYLOADS))))
    _join(document.root, parsed(slot), random)


def long_selection(document: Document, random: Random) -> None:
    """A selection that is deep or long."""
    depth = random.choice((10, 90, 900, 9000))
    text = random.choice(
        (
            "(" * depth + "a" + ")" * depth,
            "not " * depth + "a",
            "a or " * depth + "a",
            "a and (" * depth,
            "a" * depth,
            "*" * depth,
        )
    )
    put(document.root, "select", scalar(text, '"')) if isinstance(document.root, MappingNode) else None


# --- together --------------------------------------------------------------------------------

Edit = Callable[[Document, Random], None]

_SOFT: tuple[tuple[Edit, int], ...] = (
    (plant_text, 8), (change_text, 4), (change_number, 5), (copy_key, 6), (move_steps, 3), (double_case, 2), (restyle, 1),
)  # fmt: skip
_HARD: tuple[tuple[Edit, int], ...] = (
    (plant_anywhere, 8), (replace_scalar, 5), (replace_argument, 6), (change_operator, 3), (delete, 3), (double, 2), (rename, 4), (swap, 2), (splice, 4),
    (change_type, 5), (nest, 2), (alias, 2), (tag, 2), (merge_key, 1), (repeat, 1), (multiply, 1),
)  # fmt: skip
_LARGE: tuple[tuple[Edit, int], ...] = ((repeat, 4), (multiply, 4), (alias_bomb, 1), (nest, 1))
_SUITE: tuple[tuple[Edit, int], ...] = ((plant_in_suite, 8), (long_selection, 1))
_BYTES = 0.12
"""Of the hard edits change bytes instead of the tree."""

_LARGE_SHARE = 0.03
"""Of the edits make much of something: these files take most of the time."""


def edit(document: Document, number: int) -> None:
    """Make the edit of that number: the same document, the same change."""
    random = Random(number)
    suite = document.folder == "suites"
    if suite and random.random() < 0.5:
        table = _SUITE
    elif random.random() < _LARGE_SHARE:
        table = _LARGE
    elif random.random() < SOFT_SHARE:
        table = _SOFT
    elif random.random() < _BYTES:
        document.byte_edits.append(number)
        return
    else:
        table = _HARD
    (change,) = random.choices([change for change, _ in table], [weight for _, weight in table])
    change(document, random)
