"""Complex numbers as cases write them: ``1+2j``, ``-0.5j``, ``nan-infj``, without quotes."""

from __future__ import annotations

import math
import re

_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_PART = rf"(?:{_NUMBER}|inf|nan)"
_COMPLEX = re.compile(rf"[-+]?{_NUMBER}j|[-+]?{_PART}[-+]{_PART}j")


def is_complex(text: str) -> bool:
    """Return whether a text without quotes is a complex number."""
    return _COMPLEX.fullmatch(text) is not None


def parse_complex(text: str) -> complex:
    """Return the number. Raises ValueError, with a message for people, for one beyond the range of a 64-bit float."""
    value = complex(text)
    if "inf" not in text and math.inf in (abs(value.real), abs(value.imag)):
        raise ValueError(f"{text[:60]} is beyond the range of a 64-bit float")
    return value


def complex_text(value: complex) -> str:
    """Return the number as a case writes it, both parts with their signs."""
    sign = "-" if math.copysign(1.0, value.imag) < 0 else "+"
    return f"{value.real!r}{sign}{abs(value.imag)!r}j"
