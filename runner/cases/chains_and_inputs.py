"""Chains and inputs from YAML nodes: steps, ``with`` blocks and ``if`` blocks, values in arguments, and how each tensor
is made.

One module reads them, because each may hold the others: a step holds values, a value may hold the chain of a function,
and the layout of an input is a chain.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from runner.cases.model import (
    Arguments,
    Arithmetic,
    Constant,
    Function,
    If,
    Initial,
    Input,
    Items,
    Literal,
    Node,
    Ref,
    Step,
    Table,
    TensorLiteral,
    Value,
    With,
)
from runner.cases.operator_names import takes_tensor
from runner.cases.problems import Problems, within
from runner.cases.python_files import NAME_HINT, OF_MODULES, RESERVED, is_name, resolve_file
from runner.cases.tensor_files import StoredTensor, find_tensor
from runner.cases.texts import (
    has_keyword,
    is_complex,
    parse_arithmetic,
    parse_complex,
    parse_index,
    parse_reference,
    plain_text,
    split,
    yaml_arguments,
)
from runner.cases.walk import with_previous
from runner.cases.yaml.values import (
    YamlMapping,
    YamlNode,
    YamlScalar,
    YamlSequence,
    describe_value,
    entries,
    fields,
    items,
    scalar,
    several,
    show_value,
    text_of,
)
from runner.diagnostics import nearest

INDEXED = ("operator.getitem", "operator.setitem", "operator.delitem")
"""Operators whose second positional may be an index text."""

STEP_KEYS = ("out", "call", "id", "train", "state")
TRAINED = re.compile(
    r"(torch|aten)\.(native_dropout|(feature_)?(alpha_)?dropout_?|_cudnn_rnn|miopen_rnn|rnn_(relu|tanh))(\.\w+)?"
)
"""Operators of torch that take an argument ``train``, which is a key of a step too; no other key of a step is one."""
_OF_ANY_NAME = ("custom.", "triton.", "builtin.dict")
"""How the names of operators begin whose arguments may have any name."""
_WEIGHT = "{weight: {init: ones}}"
_PARAMETER = re.compile(r"[A-Za-z]\w*(\.\w+)*", re.ASCII)
_FORMS = ("$tensor", "$fn", "$text")
_FUNCTION_KEYS = ("args", "chain", "return")
_OF_NN = {
    "id": "names a submodule",
    "train": "sets the mode of nn modules",
    "state": "fills parameters and buffers of nn modules",
}
"""Keys of a step that nn modules alone have."""
BLOCK_KEYS = {"with": ("with", "chain"), "if": ("if", "do", "else")}


# --- steps and blocks ---


def parse_chain(node: YamlNode | None, problems: Problems) -> tuple[Node, ...]:
    """Return every step of a chain that can be read, and report what cannot."""
    if node is None or (isinstance(node, YamlScalar) and node.value is None):
        return ()
    if not isinstance(node, YamlSequence):
        return problems.refuse(
            (), node.span, "a chain is a list of steps", "such as chain: [F.relu, {torch.add: [$_, 1]}]"
        )
    steps = [_parse(item, problems) for item in node.items]
    return tuple(step for step in steps if step is not None)


def _parse(node: YamlNode, problems: Problems) -> Node | None:
    if isinstance(node, YamlScalar) and isinstance(node.value, str):
        return Step(node.value, Arguments(bare=True), node.span)
    if not isinstance(node, YamlMapping):
        return problems.refuse(None, node.span, "a step is an operator, or a mapping of one operator to its arguments")
    for block in BLOCK_KEYS:
        head = node.get(block)
        if head is not None:
            return _block(block, head, node, problems)
    return _step(node, problems)


def _step(node: YamlMapping, problems: Problems) -> Step | None:
    dotted = [(key, value) for key, value in node.entries if "." in str(key.value) or is_placed(key.value)]
    _unknown(
        node,
        [*STEP_KEYS, *(str(key.value) for key, _ in dotted)],
        "{} is neither an operator nor a key of a step",
        problems,
        STEP_KEYS,
        f"keys of a step: one operator, {', '.join(STEP_KEYS)}",
    )
    if not dotted:
        if set(fields(node)) <= set(STEP_KEYS):
            problems.error(node.span, "a step without an operator", "such as - torch.add: [$_, 1]")
        return None
    if len(dotted) > 1:
        first, second = dotted[0][0].value, dotted[1][0]
        return problems.refuse(
            None,
            second.span,
            f"two operators in one step: {first} and {second.value}",
            "begin the second with a dash of its own",
        )
    key, value = dotted[0]
    name = str(key.value)
    _indentation(name, value, problems)
    call = node.get("call")
    if call is not None and not name.startswith(("nn.", "$")):
        problems.error(
            (node.key("call") or node).span, f"call: belongs to nn modules; {name} takes its arguments directly"
        )
    out, unpack = _out(node.get("out"), problems)
    arguments = parse_arguments(value, problems, 1 if name in INDEXED else None, name)
    return Step(
        operator=name,
        arguments=with_previous(arguments, key.span) if takes_tensor(name) else arguments,
        span=key.span,
        out=out,
        unpack=unpack,
        call=None if call is None else with_previous(parse_arguments(call, problems), key.span),
        id=_id(_of_module("id", node, name, problems), problems),
        train=_train(_of_module("train", node, name, problems), problems),
        state=_state(_of_module("state", node, name, problems), problems),
    )


def is_placed(value: object) -> bool:
    """Return whether a text is the name of a param that stands where a case holds no value, such as an operator."""
    return isinstance(value, str) and value.startswith("$")


def _indentation(name: str, value: YamlNode, problems: Problems) -> None:
    """A step key among the keywords is nearly always two spaces too many.

    References are an argument: a step's ``out`` holds names. So is what the operator may take.
    """
    if not isinstance(value, YamlMapping):
        return
    for key, inner in value.entries:
        is_taken = name.startswith(_OF_ANY_NAME) or (key.value == "train" and TRAINED.fullmatch(name))
        if is_taken and key.value != "out":
            continue
        tensors = isinstance(inner, YamlSequence) and inner.items and all(map(_is_reference, inner.items))
        if key.value in STEP_KEYS and not _is_reference(inner) and not (key.value == "out" and tensors):
            problems.error(
                key.span,
                f"{key.value!r} stands among the arguments of {name}",
                f"indentation? Put {key.value}: in line with {name}:",
            )


def _is_reference(node: YamlNode) -> bool:
    return (text_of(node) or "").startswith("$")


def _out(node: YamlNode | None, problems: Problems) -> tuple[tuple[str, ...], bool]:
    if node is None:
        return (), False
    out = []
    for item in several(node):
        text = text_of(item)
        known = OF_MODULES if str(text).startswith("self.") else RESERVED
        if text is None or not (text == "_" or is_name(text.removeprefix("self."), known)):
            problems.error(item.span, "out: is a name, self.<name>, or a list of names", "such as out: [a, _]")
        else:
            out.append(text)
    return tuple(out), isinstance(node, YamlSequence)


def _of_module(key: str, node: YamlMapping, name: str, problems: Problems) -> YamlNode | None:
    """The value of a key that only nn modules have; None without one, and at another operator, which is reported."""
    value = node.get(key)
    if value is not None and not name.startswith(("nn.", "$")):
        return problems.refuse(None, (node.key(key) or node).span, f"{key}: {_OF_NN[key]}; {name} is not one")
    return value


def _id(value: YamlNode | None, problems: Problems) -> str | None:
    text = text_of(value)
    if value is not None and (text is None or text.startswith("_") or not is_name(text, OF_MODULES)):
        return problems.refuse(
            None, value.span, "id: is a name that no attribute of nn.Module has", "such as id: first"
        )
    return text


def _train(value: YamlNode | None, problems: Problems) -> bool | None:
    if isinstance(value, YamlScalar) and isinstance(value.value, bool):
        return value.value
    return None if value is None else problems.refuse(None, value.span, "train: is true or false")


def _state(value: YamlNode | None, problems: Problems) -> tuple[Initial, ...]:
    if value is None:
        return ()
    if not isinstance(value, YamlMapping):
        return problems.refuse(
            (), value.span, "state: is a mapping of parameters and buffers", f"such as state: {_WEIGHT}"
        )
    parts = [_initial(key, item, problems) for key, item in value.entries]
    return tuple(part for part in parts if part is not None)


def _initial(key: YamlScalar, node: YamlNode, problems: Problems) -> Initial | None:
    name = str(key.value)
    if not _PARAMETER.fullmatch(name):
        return problems.refuse(
            None, key.span, f"{name!r} is no parameter or buffer", "such as weight or self_attn.in_proj_weight"
        )
    parts = node.entries if isinstance(node, YamlMapping) else ()
    if len(parts) != 1 or parts[0][0].value not in ("init", "values"):
        return problems.refuse(
            None,
            node.span,
            f"{name!r} is filled by init: or by values:, and has the module's own shape and dtype",
            f"such as state: {_WEIGHT}",
        )
    word, body = parts[0]
    if word.value == "values":
        return Initial(name, None, (parse_value(body, problems),), key.span) if check_numbers(body, problems) else None
    init, arguments = read_init(body, problems)
    if init is not None and init not in FILLS:
        problems.error(body.span, f"init {init} has no place here", f"write values:, or one of {', '.join(FILLS)}")
    return Initial(name, init, tuple(parse_value(part, problems) for part in arguments), key.span) if init else None


def _block(block: str, head: YamlNode, node: YamlMapping, problems: Problems) -> Node | None:
    keys = BLOCK_KEYS[block]
    _unknown(node, keys, f"{{}} does not belong to a {block} block", problems, keys, f"keys: {', '.join(keys)}")
    span = (node.key(block) or node).span
    if block == "if":
        return If(
            parse_value(head, problems),
            parse_chain(node.get("do"), problems),
            parse_chain(node.get("else"), problems),
            span,
        )
    if not isinstance(head, YamlSequence):
        return problems.refuse(None, head.span, "with: holds a list of contexts", "such as with: [torch.no_grad]")
    return With(parse_contexts(head, problems), parse_chain(node.get("chain"), problems), span)


def parse_contexts(node: YamlNode | None, problems: Problems) -> tuple[Step, ...]:
    """Return the steps of a list of contexts; blocks in it are left out."""
    return tuple(step for step in parse_chain(node, problems) if isinstance(step, Step))


def _unknown(
    node: YamlMapping, known: Sequence[str], message: str, problems: Problems, similar: Iterable[str], hint: str = ""
) -> None:
    """Report each key that is not among ``known``, with the nearest of ``similar``; ``message`` has a place for it."""
    for key, _ in node.entries:
        if key.value not in known:
            problems.error(key.span, message.format(repr(key.value)), nearest(str(key.value), similar) or hint)


# --- values ---


def parse_value(node: YamlNode, problems: Problems) -> Value:
    """Return the value that a YAML node stands for.

    What is wrong with it is reported, and a harmless value is returned instead.
    """
    if isinstance(node, YamlScalar):
        return _scalar(node, problems)
    if isinstance(node, YamlSequence):
        return Items(tuple(parse_value(item, problems) for item in node.items))
    special = _special(node, problems)
    if special is not None:
        return special
    return Table(
        tuple(
            (plain_text(str(key.value), key.span, problems), parse_value(value, problems))
            for key, value in node.entries
        )
    )


def parse_arguments(
    node: YamlNode, problems: Problems, index_at: int | None = None, operator: str = "call"
) -> Arguments:
    """Return the arguments of one call.

    A list is positional. A mapping holds keywords, and under ``"*"`` the positionals. Null means that the call is bare;
    any other value is the one positional argument. ``index_at`` is the positional that may be an index text.
    ``operator`` is the key before the arguments.
    """
    is_null = isinstance(node, YamlScalar) and node.value is None and not node.quoted
    if is_null or _is_python(node, operator, problems):
        return Arguments(bare=True)
    if isinstance(node, YamlSequence):
        return Arguments(positional=_positionals(node, problems, index_at))
    if isinstance(node, YamlMapping) and _special_key(node) is None:
        positional: tuple[Value, ...] = ()
        keywords = []
        for key, value in node.entries:
            if key.value == "*" and isinstance(value, YamlSequence):
                positional = _positionals(value, problems, index_at)
            elif key.value == "*":
                problems.error(value.span, '"*" holds a list of positional arguments', 'such as {"*": [$_, 2], dim: 1}')
            elif str(key.value).startswith("_") or not is_name(str(key.value), frozenset()):
                problems.error(key.span, f"{key.value!r} is no keyword argument", "keywords are Python names")
            else:
                keywords.append((str(key.value), parse_value(value, problems)))
        return Arguments(positional, tuple(keywords))
    return Arguments(positional=(parse_value(node, problems),))


def _is_python(node: YamlNode, operator: str, problems: Problems) -> bool:
    """Whether arguments are written as in Python: ``[$_, dim=-1]``, or ``$_, 1`` without brackets.

    Such are reported.
    """
    keywords = {}
    if isinstance(node, YamlMapping):
        keywords = {str(key.value): value.plain() for key, value in node.entries if key.value != "*"}
        node = node.get("*") or node
    parts = several(node)
    texts = [part for part in parts if _is_call_text(part, alone=part is node)]
    if not texts:
        return False
    words = [split(str(part.plain()), ",") if part in texts else [part.plain()] for part in parts]
    arguments = yaml_arguments(itertools.chain(*words), keywords, receiver=takes_tensor(operator))
    return problems.refuse(
        True,
        texts[0].span,
        f"{show_value(texts[0].plain())} is one text, not arguments",
        f"write {operator}: {arguments}",
    )


def _is_call_text(node: YamlNode, alone: bool) -> bool:
    text = text_of(node)
    return text is not None and (has_keyword(text) or (alone and "," in text and re.match(r"\$\w", text) is not None))


def _scalar(node: YamlScalar, problems: Problems) -> Value:
    value = node.value
    if not isinstance(value, str):
        return Literal(value)
    span = node.span
    if "${" in value:
        if not (value.startswith("${") and value.endswith("}") and value.count("${") == 1):
            return problems.refuse(
                Literal(value), span, "${...} stands alone in its value", f"split {value!r} into arguments of their own"
            )
        return parse_arithmetic(value, within(span, node.quoted, span.length), problems) or Literal(0)
    if value in ("$dtype", "$device") or value.startswith("torch."):
        return Constant(value, span)
    if value.startswith("$"):
        return parse_reference(value, span, problems) or Literal(None)
    if not node.quoted and is_complex(value):
        try:
            return Literal(parse_complex(value))
        except ValueError as error:
            return problems.refuse(
                Literal(0), span, str(error), "write inf for a part that is infinite, such as inf+0j"
            )
    return Literal(plain_text(value, span, problems), span)


def _positionals(node: YamlSequence, problems: Problems, index_at: int | None) -> tuple[Value, ...]:
    return tuple(
        parse_index(item, problems)
        if place == index_at and isinstance(item, YamlScalar) and (text_of(item) or "").startswith("[")
        else parse_value(item, problems)
        for place, item in enumerate(node.items)
    )


def _special_key(node: YamlMapping) -> str | None:
    return next((str(key.value) for key, _ in node.entries if key.value in _FORMS), None)


def _special(node: YamlMapping, problems: Problems) -> Value | None:
    key = _special_key(node)
    if key is None:
        for entry, _ in node.entries:
            if str(entry.value).startswith("$"):
                problems.error(entry.span, f"unknown form {entry.value!r}", nearest(str(entry.value), _FORMS))
        return None
    siblings = fields(node)
    body = siblings.pop(key)
    if key == "$text":
        if siblings or not isinstance(body, YamlScalar):
            return problems.refuse(Literal(""), node.span, "$text holds one text and nothing stands beside it")
        return Literal(plain_text(body.value if isinstance(body.value, str) else body.text, body.span, problems))
    if key == "$tensor":
        for name in siblings:
            if name not in ("dtype", "device", "requires_grad"):
                problems.error(node.span, f"$tensor takes dtype, device and requires_grad, not {name!r}")
        return TensorLiteral(
            parse_value(body, problems),
            tuple((name, parse_value(value, problems)) for name, value in siblings.items()),
            node.span,
        )
    if siblings:
        problems.error(node.span, "nothing stands beside $fn")
    return _function(body, problems)


def _function(node: YamlNode, problems: Problems) -> Function | Literal:
    if not isinstance(node, YamlMapping) or node.get("chain") is None:
        return problems.refuse(
            Literal(None), node.span, "$fn needs a chain", "such as {$fn: {args: [t], chain: [torch.sin], return: $_}}"
        )
    _unknown(node, _FUNCTION_KEYS, "$fn takes args, chain and return, not {}", problems, _FUNCTION_KEYS)
    args = node.get("args")
    names = [str(a.value) for a in args.items if isinstance(a, YamlScalar)] if isinstance(args, YamlSequence) else []
    if args is not None and (
        not isinstance(args, YamlSequence) or any(not is_name(n) for n in names) or len(set(names)) < len(args.items)
    ):
        problems.error(args.span, "args is a list of names", NAME_HINT)
    result = node.get("return")
    return Function(
        tuple(names),
        parse_chain(node.get("chain"), problems),
        None if result is None else parse_value(result, problems),
        node.span,
    )


# --- init: ---

INITS = (
    "normal",
    "randint",
    "uniform",
    "zeros",
    "ones",
    "full",
    "arange",
    "linspace",
    "integer",
    "special",
    "eye",
    "randperm",
    "patterns",
)
FILLS = ("zeros", "ones", "normal", "uniform", "integer", "full", "randint")
"""Ways of ``init:`` that need no shape, so that they can fill what a module has made."""
_COUNTS = {"randint": 2, "uniform": 2, "normal": 2, "full": 1, "arange": 2, "linspace": 2}
_BARE = ("uniform", "normal")
"""Ways that have numbers of their own, which may be left out."""
_EXAMPLES = {
    "normal": "{normal: [0, 1]}",
    "randint": "{randint: [0, 10]}",
    "uniform": "{uniform: [0, 1]}",
    "full": "{full: 2}",
    "arange": "{arange: [0, 1]}",
    "linspace": "{linspace: [0, 1]}",
    **{n: n for n in ("zeros", "ones", "integer", "special", "eye", "randperm", "patterns")},
}
_CONSTANTS = ("torch.e", "torch.inf", "torch.nan", "torch.pi")


def read_init(node: YamlNode, problems: Problems) -> tuple[str | None, tuple[YamlNode, ...]]:
    """Return the way in which ``init:`` makes values, and its arguments; None for one that is reported."""
    name_node: YamlNode = node
    arguments: tuple[YamlNode, ...] = ()
    if isinstance(node, YamlMapping):
        if len(node.entries) != 1:
            return problems.refuse(
                (None, ()), node.span, "init: has one way of making values", "such as init: {uniform: [0, 1]}"
            )
        name_node, body = node.entries[0]
        arguments = body.items if isinstance(body, YamlSequence) else (body,)
    name = name_node.value if isinstance(name_node, YamlScalar) else None
    if name not in INITS:
        return problems.refuse(
            (None, ()),
            name_node.span,
            f"unknown init {name!r}",
            nearest(str(name), INITS) or f"inits: {', '.join(INITS)}",
        )
    count = _COUNTS.get(str(name), 0)
    if len(arguments) != count and (arguments or name not in _BARE):
        return problems.refuse(
            (None, ()),
            name_node.span,
            f"init {name} takes {count} numbers, not {len(arguments)}",
            f"such as init: {_EXAMPLES[str(name)]}",
        )
    if not all(check_numbers(argument, problems) for argument in arguments):
        return None, ()
    deviation = arguments[1].plain() if name == "normal" and arguments else 0
    if isinstance(deviation, int | float) and not 0 <= deviation < math.inf:
        return problems.refuse(
            (None, ()), arguments[1].span, "the deviation of init normal is a number of 0 or more", "[mean, deviation]"
        )
    return str(name), arguments


def check_numbers(node: YamlNode, problems: Problems) -> bool:
    """Return whether a value is a number, true, false, a param or a nested list of these, and report one that is
    not."""
    if isinstance(node, YamlSequence):
        return all(check_numbers(item, problems) for item in node.items)
    if isinstance(node, YamlScalar) and _is_number(node):
        return True
    return problems.refuse(
        False,
        node.span,
        f"expected a number, found {describe_value(node.plain())}",
        "write numbers without quotes, true, false or ${param}, such as [1.0, -0.0, .nan]",
    )


def _is_number(node: YamlScalar) -> bool:
    if not isinstance(node.value, str):
        return node.value is not None
    is_reference = node.value.startswith("$") and node.value not in ("$dtype", "$device")
    return is_reference or node.value in _CONSTANTS or (not node.quoted and is_complex(node.value))


# --- inputs: and state: ---

MEMORY_FORMATS = ("channels_last", "channels_last_3d")
"""Names that stand for a whole layout."""
AFTER_LAYOUT = "after_layout"
"""The value of ``requires_grad:`` that makes a leaf of what the layout gives."""
_SOURCES = ("shape", "values", "view_of", "list", "dict", "python", "file")
_OF_FILES = ("shape", "dtype", "init", "values", "tile")
"""What a file says itself."""


def parse_inputs(node: YamlNode | None, problems: Problems, role: str = "an input") -> tuple[Input, ...]:
    """Read the inputs of a mapping, in order.

    ``role`` is what messages call them. With ``"state"`` they become attributes of a module.
    """
    inputs = []
    for key, value in entries(node):
        if is_name(str(key.value), RESERVED | OF_MODULES if role == "state" else RESERVED):
            inputs += _input(str(key.value), key, value, problems)
        else:
            problems.error(key.span, f"{key.value!r} cannot name {role}", NAME_HINT)
    parts = {part.name: item for item in inputs for part in _parts(item)}
    for item in inputs:
        if item.name in parts:
            problems.error(
                item.span,
                f"{item.name!r} is what an element of {parts[item.name].name!r} is called",
                "name it otherwise",
            )
    return tuple(inputs)


def _input(name: str, key: YamlScalar, node: YamlNode, problems: Problems) -> list[Input]:
    """The input of a name; ``[2, 3]`` is short for ``{shape: [2, 3]}``. Nothing for one that is reported."""
    if not isinstance(node, YamlMapping):
        return [Input(name, "tensor", key.span, shape=_shape(node, problems))]
    keys = fields(node)
    sources = [source for source in _SOURCES if source in keys]
    kinds = [source for source in sources if not (source == "shape" and "values" in sources)]
    if "file" in kinds and (own := [word for word in _OF_FILES if word in keys]):
        return problems.refuse([], keys[own[0]].span, f"a tensor of a file has its own {own[0]}", "leave it out")
    if len(kinds) != 1:
        return problems.refuse(
            [],
            key.span,
            f"input {name!r} has {' and '.join(kinds) or 'nothing that makes it'}",
            f"one of {', '.join(_SOURCES)} makes an input; shape: may reshape values:",
        )
    init, arguments = read_init(keys["init"], problems) if "init" in keys else (None, ())
    has_numbers = "values" in keys and check_numbers(keys["values"], problems)
    requires_grad = scalar(keys.get("requires_grad"), bool, str, default=False)
    table = entries(keys.get("dict"))
    inner = [*items(keys.get("list")), *(item for _, item in table)]
    parts = (_input(f"{name}_{place}", key, item, problems) for place, item in enumerate(inner))
    one = Input(
        name,
        {"shape": "tensor", "view_of": "view"}.get(kinds[0], kinds[0]),
        key.span,
        shape=_shape(keys["shape"], problems) if "shape" in keys else None,
        dtype=dtype_name(scalar(keys["dtype"], str)) if "dtype" in keys else None,
        init=init,
        init_args=tuple(parse_value(argument, problems) for argument in arguments),
        values=parse_value(keys["values"], problems) if has_numbers else None,
        tile=scalar(keys.get("tile"), int),
        view_of=scalar(keys.get("view_of"), str),
        items=tuple(itertools.chain(*parts)),
        python=parse_value(keys["python"], problems) if "python" in keys else None,
        layout=_layout(keys.get("layout"), problems),
        requires_grad=bool(requires_grad),
        grad_param=str(requires_grad)[1:] if is_placed(requires_grad) else None,
        grad_after_layout=requires_grad == AFTER_LAYOUT,
        hidden=scalar(keys.get("hidden"), bool, default=False),
        device=scalar(keys.get("device"), str),
        keys=tuple(plain_text(str(entry.value), entry.span, problems) for entry, _ in table),
        stored=_stored(keys["file"], problems) if "file" in keys else None,
    )
    return [one] if one.stored is not None or one.kind != "file" else []


def _stored(node: YamlNode, problems: Problems) -> StoredTensor | None:
    """The tensor of a file that a mapping names; None for one that is reported."""
    keys = fields(node)
    errors = problems.errors
    full = resolve_file(keys["path"], node.span.file, problems)
    path, name = scalar(keys["path"], str), scalar(keys["tensor"], str)
    if full is None or problems.errors > errors:
        return None
    try:
        return find_tensor(str(full), name)
    except (OSError, ValueError) as error:
        return problems.refuse(None, node.span, f"{path!r} gives no tensor: {error}")


def _layout(node: YamlNode | None, problems: Problems) -> tuple[Node, ...]:
    """The steps of a layout, which may be the name of a memory format."""
    word = text_of(node)
    if node is None or word not in MEMORY_FORMATS:
        return parse_chain(node, problems)
    keyword = ("memory_format", Constant(f"torch.{word}", node.span))
    return (Step("Tensor.contiguous", Arguments((Ref("_", (), node.span),), (keyword,)), node.span),)


def _parts(item: Input) -> Iterator[Input]:
    for part in item.items:
        yield part
        yield from _parts(part)


def _shape(node: YamlNode, problems: Problems) -> tuple[Value, ...]:
    """The sizes; a whole shape that is a param is a reference in their place."""

    def size(item: YamlNode) -> Value:
        value = parse_value(item, problems)
        if not isinstance(value, Arithmetic) and not (isinstance(value, Literal) and type(value.value) is int):
            problems.error(item.span, "a shape holds integers and ${...}", 'such as [2, "${n}"]')
        return value

    if not isinstance(node, YamlScalar):
        return tuple(map(size, items(node)))
    whole = parse_value(node, problems)
    if isinstance(whole, Ref) and not whole.path:
        return (whole,)
    return problems.refuse((), node.span, "a shape is a list of sizes, or a param", "such as [2, 3] or $shape")


def dtype_name(value: Any) -> str:
    """Return the name of a dtype without ``torch.``."""
    return str(value).removeprefix("torch.")
