"""Which names are operators beside those of torch's own inventory."""

from __future__ import annotations

# Python's own operators: how many operands, and how it is written.
BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and_": "&", "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "is_": "is", "is_not": "is not",
}  # fmt: skip
UNARY = {"neg": "-", "pos": "+", "invert": "~", "inv": "~", "not_": "not "}
IN_PLACE = {
    "iadd": "+=", "isub": "-=", "imul": "*=", "itruediv": "/=", "ifloordiv": "//=", "imod": "%=", "ipow": "**=",
    "imatmul": "@=", "iand": "&=", "ior": "|=", "ixor": "^=", "ilshift": "<<=", "irshift": ">>=",
}  # fmt: skip
SPECIAL = {"getitem": 2, "setitem": 3, "delitem": 2, "contains": 2, "call": None, "abs": 1, "truth": 1, "index": 1}

BUILTINS = ("int", "float", "bool", "len", "tuple", "list", "print", "abs", "min", "max", "sum", "range", "round",
            "isinstance", "complex", "slice", "zip", "enumerate", "dict")  # fmt: skip

CONTEXTS = ("torch.no_grad", "torch.enable_grad", "torch.inference_mode", "torch.set_grad_enabled", "torch.autocast",
            "torch.amp.autocast", "torch.device")  # fmt: skip

EXTRA = ("torch.autograd.grad", "torch.utils.checkpoint.checkpoint", "torch._dynamo.graph_break",
         "torch.autograd.functional.jacobian", "torch.autograd.functional.hessian", "torch.autograd.functional.vjp",
         "torch.autograd.functional.jvp")  # fmt: skip

SUBNAMESPACES = ("special", "linalg", "fft", "sparse", "signal.windows", "nested", "masked", "func", "nn.utils.rnn",
                 "distributions", "nn.attention.flex_attention")  # fmt: skip
