"""Parameters and buffers of nn modules with the values that a case gives them."""

from __future__ import annotations

from runner.builder.render import Renderer, call
from runner.cases.chain_nodes import Initial
from runner.quote import identifier, literal

FILLS: dict[str, tuple[str, tuple[str, ...]]] = {
    "zeros": ("zero_", ()),
    "ones": ("fill_", ("1",)),
    "full": ("fill_", ()),
    "normal": ("normal_", ()),
    "uniform": ("uniform_", ()),
    "integer": ("random_", ("-8", "9")),
    "randint": ("random_", ()),
}
"""Ways of ``init:`` as methods that fill a tensor, with their arguments where the case has none."""


def fill(part: Initial, module: str, render: Renderer) -> str:
    """Return the statement that fills a parameter or a buffer of ``self.<module>``.

    Tensors of a state_dict share memory with the module's own, and ask for no gradient.
    """
    values = [render.value(argument) for argument in part.arguments]
    if part.init is None:
        method, values = "copy_", [call("torch.tensor", values, [])]
    else:
        method, defaults = FILLS[part.init]
        values = values or [*defaults]
    return call(f"self.{identifier(module)}.state_dict()[{literal(part.name)}].{method}", values, [])
