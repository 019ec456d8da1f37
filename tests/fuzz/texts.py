"""Hostile texts, which try to leave their place, and scalars that a reader may trip over."""

from __future__ import annotations

import re

from hypothesis import strategies as st

from tests.hostile import PAYLOADS

CANARY = "zq_canary"
"""The file that a hostile text makes in the working folder if it runs."""

_RUN = f"os.system('touch {CANARY}')"
_LEAVES = (
    "\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", '"', "'", '"""', "'''", "\\", '\\"', ")",
    "]", "}", '"); ', "'); ", '"""\n', "\n\n\n\n",
    "\n# --- script\n", "  #: values", "${", "{{", "{%", "%(zq)s %n", "\\g<1> \\1 \\N{BULLET}", "$(", "`", "; ",
    " && ", "'; ", " --zq", "<script>", "]]><zq/>&zq;", "<!--", "[",
    "[zq](javascript:", "@zq #1 | ", "::", "::error::", "##[error]", ".spec.yaml::", "\x1b[2J\x1b]0;", "\x9b2J",
    "\u202e\u2066", "\ufeff\u200f", "\x00", "\ud800", "\U000e0041\U0010ffff",
    "\t\x7f\x08\x08", ", ", ".", " or ", "@",
)  # fmt: skip
_DEEDS = (
    f"import os; {_RUN}",
    "import zq_module",
    "zq_call()",
    f"__import__('os').system('touch {CANARY}')",
    f"touch {CANARY}",
    "class zq_class: pass",
    "zq.__class__",
)
_WHOLE = (
    *PAYLOADS.values(),
    'zq"); zq_call("',
    "zq'); zq_call('",
    'zq" + zq_call() + "',
    'zq""" + zq_call() + """',
    'zq"',
    'zq"""\nimport zq_module\n"""',
    'zq\\"; import zq_module #',
    "zq\n\n\n\nclass zq_class:\n    pass",
    "((zq|zq)*)*$",
    "../../../../../../etc/passwd",
    "/dev/zero",
    "~zq",
    "z" + "q" * 5000,
    "{zq.__class__.__init__.__globals__}",
    "zq::zq[float32,cpu]@eager",
)

_built = st.tuples(
    st.sampled_from(("zq", "", "1", "cpu")),
    st.sampled_from(_LEAVES),
    st.sampled_from(_DEEDS),
    st.sampled_from(("", " #", *_LEAVES)),
)
TEXTS: st.SearchStrategy[str] = st.one_of(_built.map("".join), st.sampled_from(_WHOLE), st.text(max_size=8))
"""Line breaks, quotes, brackets, markup or escapes, and behind them what nobody may do."""


def harmless(text: str) -> str:
    """Return a text for the place of a hostile one: the same letters, and ``x`` for all else.

    ``@`` stays, which is a product of matrices: a script with one in its text has the parts that judge rounding.
    """
    return re.sub(r"[^a-z0-9@]", "x", text.lower()) or "x"


def escaped(text: str) -> str:
    """Return text for the inside of a double-quoted YAML scalar."""
    return "".join(map(_escape, text))


def _escape(character: str) -> str:
    code = ord(character)
    if character in '"\\':
        return "\\" + character
    return character if 0x20 <= code < 0x7F else f"\\U{code:08x}"


NUMBERS = (
    "0", "1", "-1", "2", "3", "7", "64", "1000", "2147483648", "9223372036854775807", "9223372036854775808",
    "-9223372036854775809",
    "0.5", "1e-5", "-0.0", "1e16", "1e308", "1e400", "-1e400", "5e-324", ".nan", ".inf", "-.inf", "0x1F", "0o17",
    "1_000", "1e5",
)  # fmt: skip
"""Numbers as a person could write them; most files still load with one in the place of another number."""

SCALARS = (
    *NUMBERS, "9" * 400, "9" * 5000, "-" + "9" * 40, "1e999999999", "0." + "0" * 400 + "1", "true", "false", "null",
    "~", "yes", "no", "on", "",
    "NaN", "inf", "0b1", "1:30", "2026-01-01", "12:30:45", "0x" + "f" * 300, "<<", "=", "!", "*", "&a",
    "torch.float32", "torch.float128",
    "float32", "int64", "complex64", "bool", "quint8", "cuda", "meta", "cuda:99", "cpu:-1", "nn", "sys", "off",
    "backward", "inductor", "self", "self.x",
    "60s", "-1s", "1e9h", "2GiB", "-2GiB", "99999999999999TiB", "torch", "triton.add", "print", "eval", "__class__",
    "__import__",
)  # fmt: skip
_ATOMS = ("1", "0", "-1", "2.5", "99999", "10**10000", "1e400", "1e308", "0x1F", "1j", "n", "x", "_", "x.shape",
    "x.shape[0]", "x.shape[99]", "x.numel()", "x.size(0)", "x.__class__", "'zq'",
          "b'zq'", "True", "None", "...", "[]", "[zq for zq in [1]]", "f'{zq}'",
          f"__import__('os').system('touch {CANARY}')", "x.__class__.__base__.__subclasses__()", "*x", "x := 1", "\n1",
          "1 # zq\n")  # fmt: skip
_CALLS = ("min", "max", "abs", "len", "cdiv", "next_power_of_2", "print", "zq_call", "not ", "-", "lambda: ", "await ")
_OPERATIONS = (
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "<<",
    ">>",
    "@",
    "<",
    "==",
    " and ",
    " or ",
    " if 1 else ",
    ",",
    "9**9**",
    "*10**9*",
    "\"'%s'*",
)
_formula = st.recursive(st.sampled_from(_ATOMS), lambda inner: st.one_of(
    st.tuples(inner, st.sampled_from(_OPERATIONS), inner).map("".join),
        st.tuples(st.sampled_from(_CALLS), inner).map(lambda parts: "{}({})".format(*parts))),
        max_leaves=4)  # fmt: skip
EXPRESSIONS = st.one_of(_formula.map("${{{}}}".format), st.sampled_from(("${", "${1", "${ 1 }}", "${1}${2}", "a${1}b",
    "${}", "${" + "(" * 200 + "1" + ")" * 200 + "}", "${" + "-" * 3000 + "1}",
                                                                         "${" + "1+" * 3000 + "1}", "${2**99999}",
                                                                         "${9**9**9**9}", "${1 << 99999}",
                                                                         "${x.numel() * 10**400}")))  # fmt: skip
REFERENCES = (
    "$_", "$x", "$zq", "$self.zq", "$self", "$", "$$", "$x.shape", "$x.T", "$x.grad", "$x.data", "$x.__class__",
    "$x.__class__.__mro__", "$x.zq", "$x[0]",
    "$x[-1]", "$x[99999999999999999999]", "$x[zq]", "$x[", "$x.", "$dtype", "$device", "$torch",
    "$x.shape[0].real.imag", "$x" + ".T" * 500, "$x" + "[0]" * 500,
    "$import", "$None", "$__builtins__", "$x; zq_call()", "$x\nzq_call()", "torch.float16", "torch.load", "torch.os",
    "torch.zq", "torch.channels_last",
    "[:, 0]", "[..., None, 1:3]", "[::0]", "[" + "0, " * 999 + "0]", "[zq_call()]", "[:${2**99999}]", "[", "[]",
    "[1:2:3:4]", "[$x]", "[${1/0}]", "[None, ...]",
)  # fmt: skip
OPERATORS = (
    "F.relu", "torch.neg", "torch.add", "Tensor.view", "nn.Linear", "operator.getitem", "operator.setitem",
    "builtin.print", "aten.relu.default", "prims.neg",
    "torch.load", "torch.save", "torch.hub.load", "torch.ops.zq.zq", "torch.utils.cpp_extension.load", "builtin.eval",
    "builtin.exec", "builtin.open",
    "builtin.__import__", "builtin.getattr", "operator.attrgetter", "operator.methodcaller", "numpy.load",
    "numpy.fromfile", "torch.from_file", "Tensor.share_memory_",
    "Tensor.__reduce_ex__", "Tensor.__class__", "self.zq", "self.forward", "self.__class__", "triton.zq",
    "custom.zq.zq", "nn.Module", "nn.modules.zq", "os.system",
    "F.zq", "F", "torch", ".", "..", "torch..neg", "torch.neg.", "TORCH.NEG", "torch.nn.functional.relu",
    "aten._sparse_coo_tensor_unsafe.default",
    "with", "if", "torch.neg\nzq_call()", "torch.neg()", "torch.neg; zq", "\u0442orch.neg", "import", "lambda", "None",
    "torch._C._zq", "torch.classes.zq.zq",
)  # fmt: skip
KEYS = ("<<", "=", "", "null", "1", "1.5", "true", "class", "None", "self", "_", "__init__", "forward", "x-y", "a.b",
    "zq zq", "\u00e9", "\uff4f\uff53", "Name", "nmae", "$fn", "$tensor", "$text", "*",
        "output[0]", "cases", "defaults", "kernels", "suite", "specs", "with", "if", "do", "else", "out", "call",
        "id")  # fmt: skip
