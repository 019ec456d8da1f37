"""``runner.cases.chains_and_inputs``: chains of steps and blocks."""

# ruff: noqa: RUF001 - letters that look alike are what is tested

from __future__ import annotations

import textwrap

import pytest
from spec_files import Files

from runner.cases.chains_and_inputs import parse_chain
from runner.cases.model import If, Literal, Node, Ref, Step, With
from runner.cases.problems import Problems
from runner.cases.yaml.reader import load


def chain(text: str) -> tuple[tuple[Node, ...], list[str]]:
    """Steps without the schema's checks, as inside a function; what is wrong with them."""
    text = textwrap.dedent(text).strip("\n")
    node, diagnostics = load("x.yaml", text)
    assert node is not None and not diagnostics
    problems = Problems(text.split("\n"))
    nodes = parse_chain(node, problems)
    return nodes, [
        f"{d.span.line}:{d.span.column}: {d.message}" + (f" | {d.hint}" if d.hint else "") for d in problems.diagnostics
    ]


def step(text: str) -> Step:
    nodes, problems = chain(text)
    assert problems == [] and len(nodes) == 1 and isinstance(nodes[0], Step)
    return nodes[0]


def test_a_bare_operator() -> None:
    node = step("- F.relu")
    assert (node.operator, node.arguments.bare, node.out, node.call, node.id, node.train) == (
        "F.relu",
        True,
        (),
        None,
        None,
        None,
    )
    assert (node.span.line, node.span.column, node.span.length) == (1, 3, 6)


def test_every_key_of_a_step() -> None:
    node = step("""
        - nn.Linear: [3, 4]
          out: a
          call: [$x]
          id: first
          train: true
    """)
    assert node.operator == "nn.Linear" and [v.value for v in node.arguments.positional if isinstance(v, Literal)] == [
        3,
        4,
    ]
    assert node.call is not None and isinstance(node.call.positional[0], Ref)
    assert (node.out, node.unpack, node.id, node.train) == (("a",), False, "first", True)


@pytest.mark.parametrize(
    ("out", "names", "unpack"),
    [("a", ("a",), False), ("[a, _]", ("a", "_"), True), ("[a]", ("a",), True), ("self.c", ("self.c",), False), ("[_, self.c, b]", ("_", "self.c", "b"), True), ("_", ("_",), False)],
)  # fmt: skip
def test_out(out: str, names: tuple[str, ...], unpack: bool) -> None:
    node = step(f"- {{torch.chunk: [$_, 2], out: {out}}}")
    assert (node.out, node.unpack) == (names, unpack)


@pytest.mark.parametrize(
    "out",
    [
        "1a", "a b", "$a", "a.b", "self.", "self.a.b", "self._a.b", "x.c", "class", "None", "True", "torch", "self", "nn", "F", "numpy", "dtype", "device",
        "__import__", "__debug__", "self.__class__", "self.class", "self.forward", "self.to", "tｏrch", "a²", "'a, b'", "'a = 1; b'", '"a\\n"', "{a: b}", "5", "null",
    ],
)  # fmt: skip
def test_what_is_no_out(out: str) -> None:
    _, problems = chain(f"- {{torch.chunk: [$_, 2], out: [b, {out}]}}")
    assert problems == ["1:35: out: is a name, self.<name>, or a list of names | such as out: [a, _]"]


@pytest.mark.parametrize(
    "name",
    [
        "1a",
        "a b",
        "_a",
        "__a",
        "a.b",
        "class",
        "forward",
        "to",
        "train",
        "compile",
        "register_buffer",
        "modules",
        "fｏrward",
        "é",
        "[a]",
        '"a\\n"',
    ],
)
def test_what_is_no_id(name: str) -> None:
    _, problems = chain(f"- {{nn.Linear: [2, 2], id: {name}}}")
    assert problems == ["1:27: id: is a name that no attribute of nn.Module has | such as id: first"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {torch.add: [$_, 1], torch.mul: [$_, 2]}", "1:24: two operators in one step: torch.add and torch.mul | begin the second with a dash of its own"),
        ("- {torch.add: [$_, 1], ot: a}", "1:24: 'ot' is neither an operator nor a key of a step | did you mean 'out'?"),
        ("- {relu: $_}", "1:4: 'relu' is neither an operator nor a key of a step | keys of a step: one operator, out, call, id, train, state"),
        ("- {out: a}", "1:3: a step without an operator | such as - torch.add: [$_, 1]"),
        ("- {}", "1:3: a step without an operator | such as - torch.add: [$_, 1]"),
        ("- 5", "1:3: a step is an operator, or a mapping of one operator to its arguments"),
        ("- [torch.add]", "1:3: a step is an operator, or a mapping of one operator to its arguments"),
        ("torch.add", "1:1: a chain is a list of steps | such as chain: [F.relu, {torch.add: [$_, 1]}]"),
        ("- {torch.add: [$_, 1], call: [$x]}", "1:24: call: belongs to nn modules; torch.add takes its arguments directly"),
        ("- {torch.add: [$_, 1], id: a}", "1:24: id: names a submodule; torch.add is not one"),
        ("- {torch.add: [$_, 1], train: true}", "1:24: train: sets the mode of nn modules; torch.add is not one"),
        ("- {F.relu: $_, state: {weight: {init: ones}}}", "1:16: state: fills parameters and buffers of nn modules; F.relu is not one"),
        ("- {nn.Linear: [2, 2], state: ones}", "1:30: state: is a mapping of parameters and buffers | such as state: {weight: {init: ones}}"),
        ("- {nn.Linear: [2, 2], state: {__class__: {init: ones}}}", "1:31: '__class__' is no parameter or buffer | such as weight or self_attn.in_proj_weight"),
        ("- {nn.Linear: [2, 2], state: {weight: [2, 2]}}", "1:39: 'weight' is filled by init: or by values:, and has the module's own shape and dtype | such as state: {weight: {init: ones}}"),
        ("- {nn.Linear: [2, 2], state: {weight: {shape: [2], init: ones}}}", "1:39: 'weight' is filled by init: or by values:, and has the module's own shape and dtype | such as state: {weight: {init: ones}}"),
        ("- {nn.Linear: [2, 2], state: {weight: {values: [1.0, a(]}}}", "1:54: expected a number, found the text 'a(' | write numbers without quotes, true, false or ${param}, such as [1.0, -0.0, .nan]"),
        ("- {nn.Linear: [2, 2], state: {weight: {init: eye}}}", "1:46: init eye has no place here | write values:, or one of zeros, ones, normal, uniform, integer, full, randint"),
        ("- {nn.Dropout: null, train: 1}", "1:29: train: is true or false"),
        ("- {with: [torch.no_grad], chain: [F.relu], out: a}", "1:44: 'out' does not belong to a with block | keys: with, chain"),
        ("- {with: torch.no_grad, chain: [F.relu]}", "1:10: with: holds a list of contexts | such as with: [torch.no_grad]"),
        ("- {if: $x, do: [F.relu], els: []}", "1:26: 'els' does not belong to a if block | did you mean 'else'?"),
        ("- {if: $x, do: F.relu}", "1:16: a chain is a list of steps | such as chain: [F.relu, {torch.add: [$_, 1]}]"),
        ("- {if: '${1 +}', do: [F.relu]}", "1:11: in ${1 +}: not an expression: invalid syntax"),
    ],
)  # fmt: skip
def test_problems(text: str, message: str) -> None:
    assert chain(text)[1] == [message]


@pytest.mark.parametrize("out", ["$x", "[$x, $x.T]"])
def test_references_are_the_argument_out(files: Files, out: str) -> None:
    (step,) = files.case(f'chain: [{{torch.max: {{"*": [$x, 1], out: {out}}}}}]').chain
    assert isinstance(step, Step) and [name for name, _ in step.arguments.keywords] == ["out"] and step.out == ()


@pytest.mark.parametrize(
    ("operator", "keyword"),
    [("torch.max", "out: [a, b]"), ("torch.max", "out: [$x, b]"), ("torch.max", "out: []"), ("nn.LSTM", "call: [$x]")],
)
def test_names_and_calls_are_none(files: Files, operator: str, keyword: str) -> None:
    (error,) = files.errors(f'chain: [{{{operator}: {{"*": [4, 4], {keyword}}}}}]')
    key = keyword.partition(":")[0]
    assert f"{key!r} stands among the arguments of {operator} | indentation?" in error


@pytest.mark.parametrize("key", ["out", "call", "id", "train", "state"])
def test_a_step_key_among_the_keywords(files: Files, key: str) -> None:
    assert files.errors(f"""
        chain:
          - torch.add:
              other: 1
              {key}: a
    """) == [f"6:11: {key!r} stands among the arguments of torch.add | indentation? Put {key}: in line with torch.add:"]


def test_a_reference_among_the_keywords_is_meant(files: Files) -> None:
    case = files.case('chain:\n  - torch.add: {"*": [$x, 1], out: $x}')
    node = case.chain[0]
    assert isinstance(node, Step) and [k for k, _ in node.arguments.keywords] == ["out"] and node.out == ()


@pytest.mark.parametrize("operator", ["custom.mine.cell", "triton.cell", "builtin.dict"])
@pytest.mark.parametrize("key", ["call", "id", "train", "state", "chain", "do"])
def test_a_step_key_among_arguments_of_any_name_is_one_of_them(operator: str, key: str) -> None:
    (node,), problems = chain(f'- {operator}: {{"*": [$x], {key}: 1}}\n  out: y')
    assert isinstance(node, Step) and (node.arguments.keywords, node.out) == (((key, Literal(1)),), ("y",))
    assert problems == []
    (problem,) = chain(f'- {operator}: {{"*": [$x], out: y}}')[1]
    assert f"'out' stands among the arguments of {operator}" in problem


def test_blocks() -> None:
    nodes, problems = chain("""
        - with: [{torch.autocast: {device_type: cpu}}, torch.no_grad]
          chain: [F.relu, {nn.Linear: [8, 8]}]
        - if: $flag
          do: [torch.neg]
          else: []
        - if: "${n > 2}"
          do: [torch.neg, torch.abs]
    """)
    assert problems == []
    first, second, third = nodes
    assert (
        isinstance(first, With)
        and [c.operator for c in first.contexts] == ["torch.autocast", "torch.no_grad"]
        and len(first.chain) == 2
    )
    assert (
        isinstance(second, If) and isinstance(second.condition, Ref) and len(second.do) == 1 and second.otherwise == ()
    )
    assert isinstance(third, If) and len(third.do) == 2
    assert (first.span.line, second.span.line, third.span.column) == (1, 3, 3)


def test_nothing_is_an_empty_chain() -> None:
    assert parse_chain(None, Problems([])) == ()
    assert chain("null") == ((), [])


def test_places_in_a_case(files: Files) -> None:
    assert files.errors("""
        chain:
          - torch.add: [$_, 1]
            torch.mul: [$_, 2]
          - F.relu
          - torch.abs: $_
            id: a
    """) == [
        "5:9: two operators in one step: torch.add and torch.mul | begin the second with a dash of its own",
        "8:9: id: names a submodule; torch.abs is not one",
    ]


def test_unknown_namespaces_and_forms_are_told_by_the_schema(files: Files) -> None:
    assert files.errors("""
        chain:
          - tf.relu
          - relu
          - torhc.relu: $_
          - f.relu: $_
    """) == [
        "4:9: 'tf.relu' is no operator | operators are written nn.X, F.x, torch.x, Tensor.x, aten.x, operator.x, ...",
        "5:9: 'relu' is no operator | did you mean 'F.relu'?",
        "6:9: 'torhc.relu' is neither an operator nor a key of a step | did you mean 'torch.relu'?",
        "7:9: 'f.relu' is neither an operator nor a key of a step | did you mean 'F.relu'?",
    ]
