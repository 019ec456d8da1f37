"""Hostile values for ``bench/fuzz.py``: texts that try to leave their place, and scalars that a reader may trip over.

A payload stands in a tree as a token (``token(number)``). ``filled`` writes the payload in its place or, for a twin file, a
harmless text of the same letters, so that the programs that come of both files can be compared.
"""

from __future__ import annotations

import re

MARK = "zq"
"""What every name of a payload begins with. No generated program may import, call or reach into such a name."""

CANARY = "zq_canary"
"""The file that a payload makes in the working folder if it runs."""

_RUN = f"os.system('touch {CANARY}')"

PAYLOADS: tuple[str, ...] = (
    # line breaks of every kind, each before a statement
    f"zq\nimport os; {_RUN}",
    f"zq\r\nimport os; {_RUN}",
    "zq\rimport zq_module",
    "zq\x0bimport zq_module",
    "zq\x0cimport zq_module",
    "zq\x1cimport zq_module",
    "zq\x85import zq_module",
    "zq\u2028import zq_module",
    "zq\u2029import zq_module",
    "\nimport zq_module\n",
    # quotes of Python and what may end a literal
    f'zq"; __import__("os").system("touch {CANARY}"); "',
    f"zq'; __import__('os').system('touch {CANARY}'); '",
    'zq"""\nimport zq_module\n"""',
    "zq'''\nimport zq_module\n'''",
    'zq""" + zq_call() + """',
    "zq\\",
    'zq\\"; import zq_module #',
    "zq\\\nimport zq_module",
    "zq)\nimport zq_module\n(",
    "zq]; zq_call(); [",
    "zq}; zq_call(); {",
    "1\nzq_call()",
    "float32, zq_call()",
    "cpu') or zq_call('",
    # what formatting and regular expressions obey
    "{zq.__class__.__init__.__globals__}",
    "%(zq)s %n %s",
    "{{zq}} {% zq %} {# zq #}",
    "zq \\g<1> \\1 \\N{BULLET} \\x41",
    "((zq|zq)*)*$",
    "zq[",
    # the seams of the script's template
    "zq\n# --- script\nimport zq_module",
    "zq\n\n\n\nclass zq_class:\n    pass",
    'zq\n"""\n\nimport zq_module',
    "zq  #: values",
    # terminals
    "zq\x1b[2J\x1b]0;zq\x07",
    "zq\x9b2J",
    "\u202ezq\u2066",
    "\ufeffzq\u200f",
    "zq\x00zq",
    "zq\ud800zq\udfff",
    "zq\U000e0041\U0010ffff",
    "zq\tzq\x7f\x08\x08",
    # shells, markup, paths
    f"$(touch {CANARY})",
    f"`touch {CANARY}`",
    f"zq; touch {CANARY} #",
    f"zq && touch {CANARY}",
    f"'; touch {CANARY}; '",
    "--zq",
    "<script>zq</script><!--",
    "]]><zq/>&zq;",
    "[zq](javascript:zq) ![zq](http://127.0.0.1:9/zq) @zq #1 | zq",
    "../../../../../../etc/passwd",
    "/dev/zero",
    "~zq",
    "zq::zq[float32,cpu]@eager",
    "zq.spec.yaml::zq",
    "z" + "q" * 5000,
)

NUMBERS: tuple[str, ...] = (
    "0", "1", "-1", "2", "3", "7", "64", "1000", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "0.5", "1e-5", "-0.0", "1e16", "1e308", "1e400", "-1e400", "5e-324", ".nan", ".inf", "-.inf", "0x1F", "0o17", "1_000", "1e5",
)  # fmt: skip
"""Numbers as a person could write them; most files still load with one in the place of another number."""

SCALARS: tuple[str, ...] = (
    *NUMBERS, "9" * 400, "9" * 5000, "-" + "9" * 40, "1e999999999", "0." + "0" * 400 + "1", "true", "false", "null", "~", "yes", "no", "on", "",
    "NaN", "inf", "0b1", "1:30", "2026-01-01", "12:30:45", "0x" + "f" * 300, "<<", "=", "!", "*", "&a", "torch.float32", "torch.float128",
    "float32", "int64", "complex64", "bool", "quint8", "cuda", "meta", "cuda:99", "cpu:-1", "nn", "sys", "off", "backward", "inductor", "self", "self.x",
    "60s", "-1s", "1e9h", "2GiB", "-2GiB", "99999999999999TiB", "torch", "triton.add", "print", "eval", "__class__", "__import__",
)  # fmt: skip
"""Scalars for any place, written plainly."""

EXPRESSIONS: tuple[str, ...] = (
    "${1 + 2}", "${2**99999}", "${9**9**9**9}", "${1 << 99999}", "${10**10000 % 7}", "${1/0}", "${0**-1}", "${1 // 0.0}", "${-1 ** 0.5}", "${(-8) ** (1/3)}",
    "${abs(1j)}", "${min()}", "${max([])}", "${len('zq')}", "${x.shape[99]}", "${x.shape[0] // 0}", "${x.__class__}", "${x.__class__.__base__.__subclasses__()}",
    "${\"x\".join([1])}", "${'%s' * 10**9}", "${[0] * 10**9}", "${next_power_of_2(1.5)}", "${cdiv(1, 0)}", "${cdiv(x.shape[0], 2)}", "${print(1)}",
    "${__import__('os').system('touch zq_canary')}", "${(lambda: zq_call())()}", "${[zq for zq in [1]]}", "${zq_call()}", "${x}", "${_}", "${n}", "${}",
    "${", "${1", "${ 1 }}", "${1}${2}", "a${1}b", "${" + "(" * 200 + "1" + ")" * 200 + "}", "${" + "-" * 3000 + "1}", "${" + "1+" * 3000 + "1}",
    "${1 if 2 else 3}", "${not 1}", "${1 < 2 < 3}", "${1 == 1}", "${x.size(0)}", "${x.numel() * 10**400}", "${1e400}", "${1e308 * 10}", "${0x1F}", "${f'{zq}'}",
    "${x[0]}", "${x.shape}", "${True}", "${None}", "${'zq'}", "${b'zq'}", "${...}", "${*x}", "${x := 1}", "${await x}", "${\n1}", "${1 # zq\n}",
)  # fmt: skip

REFERENCES: tuple[str, ...] = (
    "$_", "$x", "$zq", "$self.zq", "$self", "$", "$$", "$x.shape", "$x.T", "$x.grad", "$x.data", "$x.__class__", "$x.__class__.__mro__", "$x.zq", "$x[0]",
    "$x[-1]", "$x[99999999999999999999]", "$x[zq]", "$x[", "$x.", "$dtype", "$device", "$torch", "$x.shape[0].real.imag", "$x" + ".T" * 500, "$x" + "[0]" * 500,
    "$import", "$None", "$__builtins__", "$x; zq_call()", "$x\nzq_call()", "torch.float16", "torch.load", "torch.os", "torch.zq", "torch.channels_last",
    "[:, 0]", "[..., None, 1:3]", "[::0]", "[" + "0, " * 999 + "0]", "[zq_call()]", "[:${2**99999}]", "[", "[]", "[1:2:3:4]", "[$x]", "[${1/0}]", "[None, ...]",
)  # fmt: skip

OPERATORS: tuple[str, ...] = (
    "F.relu", "torch.neg", "torch.add", "Tensor.view", "nn.Linear", "operator.getitem", "operator.setitem", "builtin.print", "aten.relu.default", "prims.neg",
    "torch.load", "torch.save", "torch.hub.load", "torch.ops.zq.zq", "torch.utils.cpp_extension.load", "builtin.eval", "builtin.exec", "builtin.open",
    "builtin.__import__", "builtin.getattr", "operator.attrgetter", "operator.methodcaller", "numpy.load", "numpy.fromfile", "torch.from_file", "Tensor.share_memory_",
    "Tensor.__reduce_ex__", "Tensor.__class__", "self.zq", "self.forward", "self.__class__", "triton.zq", "custom.zq.zq", "nn.Module", "nn.modules.zq", "os.system",
    "F.zq", "F", "torch", ".", "..", "torch..neg", "torch.neg.", "TORCH.NEG", "torch.nn.functional.relu", "aten._sparse_coo_tensor_unsafe.default",
    "with", "if", "torch.neg\nzq_call()", "torch.neg()", "torch.neg; zq", "\u0442orch.neg", "import", "lambda", "None", "torch._C._zq", "torch.classes.zq.zq",
)  # fmt: skip

KEYS: tuple[str, ...] = (
    "name", "doc", "tags", "links", "params", "exclude", "inputs", "state", "chain", "return", "module", "calls", "dtypes", "devices", "param_dtype", "train", "grad",
    "dynamic", "autocast", "threads", "requires", "compile", "config", "expect", "tolerance", "ignore", "timeout", "memory", "known", "shape", "dtype", "init", "values",
    "layout", "view_of", "requires_grad", "hidden", "device", "list", "python", "out", "call", "id", "with", "if", "do", "else", "$fn", "$tensor", "$text", "*", "args",
    "cases", "defaults", "kernels", "suite", "specs", "select", "backends", "manual", "file", "function", "arguments", "outputs", "grid", "constants", "scalars",
    "reference", "stage", "oracle", "torch", "error", "issue", "why", "reason", "review", "platform", "backend", "rtol", "atol", "exact", "raises", "type", "match",
    "graphs", "graph_breaks", "recompiles", "fullgraph", "mode", "options", "package", "cotangent", "order", "fill", "like", "tile", "seed", "gradients", "output[0]",
    "<<", "=", "", "null", "1", "1.5", "true", "class", "None", "self", "_", "__init__", "forward", "x-y", "a.b", "zq zq", "\u00e9", "\uff4f\uff53", "Name", "nmae", "naem",
)  # fmt: skip

_TOKEN = re.compile(r"zqtoken(\d+)end")


def token(number: int) -> str:
    """What stands for payload ``number`` in a tree. It goes into double quotes, where ``filled`` can escape anything."""
    return f"zqtoken{number % len(PAYLOADS)}end"


def harmless(payload: str) -> str:
    """A text for the place of a payload: the same letters, and ``x`` for all else.

    ``@`` stays, which is a product of matrices: a script with one anywhere in its text has the parts that judge rounding.
    """
    return re.sub(r"[^a-z0-9@]", "x", payload.lower()) or "x"


def filled(text: str, twin: bool = False) -> str:
    """YAML text with each token's payload in its place, or for the twin the harmless text."""

    def payload(match: re.Match[str]) -> str:
        value = PAYLOADS[int(match[1]) % len(PAYLOADS)]
        return escaped(harmless(value) if twin else value)

    return _TOKEN.sub(payload, text)


def has_token(text: str) -> bool:
    """Whether a payload is to come."""
    return _TOKEN.search(text) is not None


def escaped(value: str) -> str:
    """Text for the inside of a double-quoted YAML scalar."""
    return "".join(map(_escape, value))


def _escape(character: str) -> str:
    code = ord(character)
    if character in '"\\':
        return "\\" + character
    if 0x20 <= code < 0x7F:
        return character
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
