"""Names of the written source: which a case may take, and which belong to the source or to ``nn.Module``."""

from __future__ import annotations

import keyword
import re

RESERVED = frozenset({"self", "torch", "nn", "F", "numpy", "operator", "dtype", "device", "super", "_"})
"""Names that the written source uses itself."""

OF_MODULES = frozenset({
    "T_destination", "add_module", "apply", "bfloat16", "buffers", "call_super_init", "children", "compile", "cpu",
    "cuda", "double", "dump_patches", "eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state",
    "get_parameter", "get_submodule", "half", "ipu", "load_state_dict", "modules", "mtia", "named_buffers",
    "named_children", "named_modules", "named_parameters", "parameters", "register_backward_hook", "register_buffer",
    "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
    "register_full_backward_pre_hook", "register_load_state_dict_post_hook", "register_load_state_dict_pre_hook",
    "register_module", "register_parameter", "register_state_dict_post_hook", "register_state_dict_pre_hook",
    "requires_grad_", "set_extra_state", "set_submodule", "share_memory", "state_dict", "to", "to_empty", "train",
    "training", "type", "xpu", "zero_grad",
})  # fmt: skip
"""Attributes that every ``nn.Module`` has: state or a submodule of such a name would not be reached, the attribute
would."""

NAME_HINT = "names are Python names that the source does not use itself"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # not \w: Python reads many other letters as these


def is_name(text: str, reserved: frozenset[str] = RESERVED) -> bool:
    """Return whether ``text`` can be a variable of the written source.

    With other ``reserved`` names it can be an attribute or a keyword argument.
    """
    return (
        bool(_NAME.fullmatch(text))
        and not keyword.iskeyword(text)
        and not text.startswith("__")
        and text not in reserved
    )
