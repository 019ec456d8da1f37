"""Options that compilers write into the kernels that they generate: which a case may give, and with which values."""

from __future__ import annotations

from runner.cases.chain_nodes import Arguments, Literal, Table, Value

KERNEL_OPTIONS: dict[str, tuple[int, ...]] = {
    "num_warps": (1, 2, 4, 8),
    "num_stages": (1, 2, 3, 4, 5),
    **dict.fromkeys(("PRESCALE_QK", "FORCE_USE_FLEX_ATTENTION"), (False, True)),
}
"""``kernel_options`` of flex_attention that change no address. Kernels trust the others: sizes of blocks, and promises of the data."""

_POSITIONALS = 8
"""Positional arguments of flex_attention before its kernel_options."""


def kernel_options_fault(operator: str, arguments: Arguments) -> tuple[str, str]:
    """Return why the ``kernel_options`` of a flex_attention are refused, and what to write instead; empty if they are not."""
    value = dict(arguments.keywords).get("kernel_options")
    by_place = len(arguments.positional) > _POSITIONALS
    if not operator.endswith(".flex_attention") or (value is None and not by_place):
        return "", ""
    if by_place or not isinstance(value, Table):
        return "kernel_options is a mapping, and stands as a keyword", "such as kernel_options: {num_warps: 4}"
    for key, option in value.items:
        allowed = KERNEL_OPTIONS.get(key)
        if allowed is None:
            reason = "Inductor writes it into a kernel, which trusts it"
            return f"kernel_options may not hold {key[:60]!r} here: {reason}", f"options: {', '.join(KERNEL_OPTIONS)}"
        if not _is_among(option, allowed):
            values = ", ".join("true" if v is True else "false" if v is False else str(v) for v in allowed)
            return f"kernel_options: {key} has another value than it may have here", f"one of {values}"
    return "", ""


def _is_among(value: Value, allowed: tuple[int, ...]) -> bool:
    number = value.value if isinstance(value, Literal) else None
    return type(number) is type(allowed[0]) and number in allowed
