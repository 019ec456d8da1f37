"""``tolerance:``: bounds for all values, for a dtype, for one output and for gradients."""

from __future__ import annotations

from collections.abc import Mapping

from runner.cases.inputs import dtype_name
from runner.cases.model import DTYPES, Tolerance
from runner.cases.problems import Problems
from runner.cases.yaml.tree import NUMBERS, YamlMapping, YamlNode, YamlSequence, entries, fields, scalar
from runner.diagnostics import nearest

OUTPUT, GRADIENTS = "output", "gradients"
"""Places that a tolerance may have of their own: an output is called as findings call it, such as ``output[1]``."""


def parse_tolerance(node: YamlNode | None, result: YamlNode | None, problems: Problems) -> Tolerance:
    """Read a tolerance, and report what a schema cannot say.

    ``result`` is what the model returns, which says which outputs there are. Raises Mistyped.
    """
    if node is None:
        return Tolerance()
    keys = fields(node)
    by_dtype: dict[str, tuple[float | None, float | None]] = {}
    by_place: dict[str, tuple[float | None, float | None]] = {}
    if "rtol" in keys or "atol" in keys:
        by_dtype[""] = _bounds(keys)
    own = {name: fields(value) for name, value in keys.items() if isinstance(value, YamlMapping)}
    for name, bounds in own.items():
        if name == GRADIENTS or name.startswith(OUTPUT):
            by_place[name] = _bounds(bounds)
            continue
        by_dtype[dtype_name(name)] = _bounds(bounds)
        if dtype_name(name) not in DTYPES:
            problems.error(node.span, f"torch has no dtype {name!r}", nearest(name, DTYPES))
    reasons = [scalar(part.get("reason"), str) for part in (keys, *own.values())]
    reason = "; ".join(dict.fromkeys(text for text in reasons if text)) or None
    _places(node, _outputs(result), problems)
    if not reasons[0] and ("" in by_dtype or not all(reasons[1:])):
        problems.error(node.span, "a tolerance needs a reason", 'such as {rtol: 1e-4, reason: "a sum of 10^6 terms"}')
    return Tolerance(by_dtype, scalar(keys.get("exact"), bool, default=False), reason, by_place)


def _outputs(result: YamlNode | None) -> list[str]:
    """How the outputs of a model are called that ``return:`` lists; none where it lists none."""
    if isinstance(result, YamlSequence):
        return [f"{OUTPUT}[{place}]" for place in range(len(result.items))]
    return [f"{OUTPUT}[{str(key.value)!r}]" for key, _ in entries(result)] if isinstance(result, YamlMapping) else []


def _places(node: YamlNode, outputs: list[str], problems: Problems) -> None:
    """Report tolerances of outputs that are not among ``outputs``, if anything is."""
    for key, _ in entries(node):
        place = str(key.value)
        if not outputs or not place.startswith(OUTPUT) or place == OUTPUT:
            continue
        if not any(place == output or place.startswith((f"{output}[", f"{output}.")) for output in outputs):
            problems.error(key.span, f"the case returns no {place}", f"it returns {', '.join(outputs[:5])}")


def _bounds(keys: Mapping[str, YamlNode]) -> tuple[float | None, float | None]:
    return scalar(keys.get("rtol"), *NUMBERS), scalar(keys.get("atol"), *NUMBERS)
