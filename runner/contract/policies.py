"""Named rules for values: what ``tolerance: {values: ...}`` of a case and ``--values`` of a run may ask for.

Both halves read this table, so it imports the standard library alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

INDUCTOR = "torch._inductor.config."
_SINCE = (2, 13)
"""The first torch that is known to have the flags of ``newer``."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One rule. ``flags`` are those that upstream has for it; a torch before 2.13 may lack those of ``newer``."""

    name: str
    flags: Mapping[str, bool] = field(default_factory=dict)
    newer: Mapping[str, bool] = field(default_factory=dict)
    bounded: bool = False  # a number goes with it
    oracle: str = ""  # that speaks under it alone

    def flags_of(self, torch: str) -> dict[str, bool]:
        """Return the flags that a version of torch has, such as ``2.13.0``, by full name."""
        parts = torch.split(".")[:2]
        version = tuple(int(part) for part in parts if part.isdecimal())
        flags = {**self.flags, **(self.newer if version >= _SINCE else {})}
        return {INDUCTOR + name: value for name, value in flags.items()}


_EAGER = dict.fromkeys(("division_rounding", "disable_ftz", "use_pytorch_libdevice"), True)

POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        row.name: row
        for row in (
            Policy(
                "bitwise",
                {"emulate_precision_casts": True},
                {"deterministic": True, **{f"eager_numerics.{name}": value for name, value in _EAGER.items()}},
            ),
            Policy("deterministic", newer={"deterministic": True}, oracle="determinism"),
            Policy("batch-invariant", newer={"batch_invariant": True}, oracle="batch-invariance"),
            Policy("sqnr", bounded=True),
            Policy("ulp", bounded=True),
        )
    }
)
"""The flags are those of torch's ``test/inductor/test_torchinductor_opinfo_properties.py``."""

RULED: Mapping[str, str] = MappingProxyType({row.oracle: row.name for row in POLICIES.values() if row.oracle})
"""An oracle to the rule under which alone it speaks."""

STRICT = tuple(row.name for row in POLICIES.values() if not row.bounded)
"""Rules that allow less than the tolerance does, or as much: a whole run may ask for them."""
