"""Places of a Python file that can be mutated, and the text that each would have instead.

Each change is of one expression or statement inside a function. It keeps the number of lines, so that all other code of
the file stays equal. The kinds are those of mutation testing (DeMillo, Lipton and Sayward 1978; Offutt et al. 1996:
relational, logical and arithmetic operators, constants, deleted statements), and fragments of generated code.
"""

from __future__ import annotations

import ast
import copy
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

KINDS = ("comparison", "condition", "arithmetic", "constant", "argument", "statement", "operand", "text")

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_FRAGMENTS = (
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "), (r" <= ", " < "), (r" >= ", " > "),
    (r" < ", " <= "), (r" > ", " >= "), (r" == ", " != "), (r" != ", " == "), (r" && ", " || "), (r" \|\| ", " && "),
    (r" & ", " | "), (r" \| ", " & "), (r"\+= ", "-= "), (r"\bmax\b", "min"), (r"\bmin\b", "max"),
    (r"\bmaximum\b", "minimum"), (r"\bminimum\b", "maximum"), (r"\bfloat\b", "double"), (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"), (r"\binfinity\b", "epsilon"), (r"\b0\b", "1"), (r"\b1\b", "2"),
)  # fmt: skip
"""What may change in the text of C++ or Triton: a pattern, and what takes its place."""

_REPORTING = re.compile(
    r"\b(log\w*|logger|\w+_log|warnings?|warn\w*|print|trace_structured|counters|metrics|perf_hint\w*|add_metadata"
    r"|CompileEventLogger|chromium\w*|record_function|dynamo_timed|format_\w+|signpost\w*)\b"
)
"""Names of calls that tell people what happens, and change nothing that is computed."""
_UNWATCHED = ("__repr__", "__str__")


@dataclass(frozen=True, slots=True)
class Site:
    """A change: the bytes from ``start`` to ``end`` become ``text``. ``line`` is where the changed code begins."""

    line: int
    start: int
    end: int
    text: str
    kind: str


def find_sites(
    source: bytes, is_generator: bool = False, counts: Callable[[int], bool] = lambda line: True
) -> list[Site]:
    """Return all changes of a file, in their order.

    Args:
        source: the file's text in UTF-8.
        is_generator: whether its strings are fragments of generated code.
        counts: returns whether a line may be changed.

    Raises:
        SyntaxError, ValueError: it is no Python of this version.
    """
    finder = _Finder(source, is_generator, counts)
    finder.visit(ast.parse(source))
    return sorted(finder.sites, key=lambda site: (site.start, site.end, site.text))


class _Finder(ast.NodeVisitor):
    """Visits what a function runs: no decorator, default, annotation, docstring or report to people."""

    def __init__(self, source: bytes, is_generator: bool, counts: Callable[[int], bool]) -> None:
        self.is_generator = is_generator
        self.counts = counts
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.sites: list[Site] = []
        self.depth = 0

    # --- where code runs ---

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in _UNWATCHED:
            return
        if self.depth:  # of a function in a function they run when the outer one does
            self._visit_all([*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)])
        self.depth += 1
        self._visit_all(_without_docstring(node.body))
        self.depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.depth += 1
        self.visit(node.body)
        self.depth -= 1

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all(_without_docstring(node.body))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        """An assertion says what is always so."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """The words of an error are nobody's result."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Parts of it have no places of their own before Python 3.12."""
        if self.depth and self.is_generator:
            self._fragments(node, [part for part in node.values if isinstance(part, ast.Constant)])

    # --- what can be changed ---

    def visit_Compare(self, node: ast.Compare) -> None:
        for number, operator in enumerate(node.ops):
            for changed in _COMPARISONS[type(operator)]:
                ops = [*node.ops[:number], changed(), *node.ops[number + 1 :]]
                self._put(node, "comparison", lambda new, ops=ops: setattr(new, "ops", ops))  # type: ignore[misc]
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        opposite = ast.Or if isinstance(node.op, ast.And) else ast.And
        self._put(node, "condition", lambda new: setattr(new, "op", opposite()))
        for value in node.values:
            self._replace(node, value, "operand")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self._replace(node, node.operand, "condition" if isinstance(node.op, ast.Not) else "arithmetic")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if changed := _ARITHMETIC.get(type(node.op)):
            self._put(node, "arithmetic", lambda new: setattr(new, "op", changed()))
            for value in (node.left, node.right):
                self._replace(node, value, "operand")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace(node, ast.Constant(not value), "constant")
        elif isinstance(value, (int, float)):
            self._replace(node, ast.Constant(value + 1), "constant")
        elif isinstance(value, str) and self.is_generator:
            self._fragments(node, [node])

    def visit_Call(self, node: ast.Call) -> None:
        if _REPORTING.search(ast.unparse(node.func)):
            return
        plain = [n for n, value in enumerate(node.args) if not isinstance(value, ast.Starred)]
        for first, second in itertools.pairwise(plain):
            self._put(node, "argument", lambda new, a=first, b=second: _swap(new.args, a, b))  # type: ignore[misc]
        for number, keyword in enumerate(node.keywords):
            if keyword.arg is not None:
                self._put(node, "argument", lambda new, n=number: new.keywords.pop(n))  # type: ignore[misc]
        self.generic_visit(node)

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if not isinstance(node.test, (ast.Compare, ast.UnaryOp, ast.BoolOp)):  # those have changes of their own
            self._replace(node.test, ast.UnaryOp(ast.Not(), node.test), "condition")
        self.generic_visit(node)

    visit_While = visit_IfExp = visit_If

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and not _REPORTING.search(ast.unparse(node.value.func)):
            self._drop(node)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if not _REPORTING.search(ast.unparse(node.target)):
            self._drop(node)
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets):
            self._drop(node)
        self.visit(node.value)

    def visit_Continue(self, node: ast.Continue | ast.Break) -> None:
        self._drop(node)

    visit_Break = visit_Continue

    def visit_Return(self, node: ast.Return) -> None:
        if isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1:
            self._put(node.value, "operand", lambda new: _swap(new.elts, 0, 1))  # type: ignore[attr-defined]
        self.generic_visit(node)

    # --- texts ---

    def _visit_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _fragments(self, node: ast.expr, parts: Sequence[ast.Constant]) -> None:
        """Change one fragment of a literal."""
        for part in parts:
            literal = str(part.value)
            if literal.isidentifier() or len(literal) < 3:  # a key or a name
                continue
            for pattern, replacement in _FRAGMENTS:
                for match in re.finditer(pattern, literal):
                    text = literal[: match.start()] + replacement + literal[match.end() :]
                    number = node.values.index(part) if isinstance(node, ast.JoinedStr) else None
                    new = ast.Constant(text) if number is None else _copy(node)
                    if number is not None:
                        new.values[number] = ast.Constant(text)  # type: ignore[attr-defined]
                    self._replace(node, new, "text")

    def _put(self, node: ast.expr, kind: str, change: Callable[[ast.expr], object]) -> None:
        """Add the site in which a copy of the expression is changed so."""
        if self.counts(node.lineno):
            new = _copy(node)
            change(new)
            if ast.dump(new) != ast.dump(node):  # two equal arguments change places
                self._replace(node, new, kind)

    def _replace(self, node: ast.expr, new: ast.expr, kind: str) -> None:
        """Add the site of an expression with another in its place, in parentheses that hold as many lines."""
        if not self.counts(node.lineno):
            return
        try:
            text = ast.unparse(new)
        except ValueError:  # an f-string that this Python cannot write
            return
        lines = (node.end_lineno or node.lineno) - node.lineno - text.count("\n")
        if lines >= 0:
            self._add(node, f"({text}{chr(10) * lines})", kind)

    def _drop(self, node: ast.stmt) -> None:
        self._add(node, "pass" + "\n" * ((node.end_lineno or node.lineno) - node.lineno), "statement")

    def _add(self, node: ast.expr | ast.stmt, text: str, kind: str) -> None:
        if self.depth and self.counts(node.lineno) and node.end_lineno is not None and node.end_col_offset is not None:
            start = self.starts[node.lineno - 1] + node.col_offset
            end = self.starts[node.end_lineno - 1] + node.end_col_offset
            self.sites.append(Site(node.lineno, start, end, text, kind))


def _without_docstring(body: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    first = body[0]
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_text else body


def _copy(node: ast.expr) -> ast.expr:
    """Return a node like this one, whose lists can be changed."""
    new = copy.copy(node)
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            setattr(new, name, [*value])
    return new


def _swap(items: list[ast.expr], first: int, second: int) -> None:
    items[first], items[second] = items[second], items[first]
