"""``runner.builder.source.check``: it finds what one variant after another would give, and writes less."""

from __future__ import annotations

from pathlib import Path

import pytest
from built import Built
from spec_files import short

from runner.builder import source
from runner.builder.source import build, check
from runner.cases.limits import Limits
from runner.cases.model import Variant
from runner.session.collect import load

COUNTED = "{init: randperm, shape: [300]}"  # uint8 does not hold the numbers up to 299
WHOLE = "dtypes: [int64, uint8]"
FAULTS = {
    "an input": [WHOLE, f"inputs: {{x: {COUNTED}}}", "chain: [torch.neg]"],
    "an element": [WHOLE, f"inputs: {{x: {{list: [{COUNTED}]}}}}", "chain: [torch.stack]"],
    "a state": [WHOLE, "inputs: {x: [300]}", f"state: {{c: {COUNTED}}}", "chain: [{torch.add: [$x, $self.c]}]"],
    "a call": [WHOLE, "inputs: {x: [3]}", f"calls: [{{inputs: {{x: {COUNTED}}}}}]", "chain: [torch.neg]"],
    "a cotangent": [
        "dtypes: [float32, complex64]",
        "inputs: {x: {shape: [2], requires_grad: true}, g: {shape: [2], hidden: true, init: {arange: [0, 1]}}}",
        "grad: {cotangent: [$g]}",
        "chain: [torch.sin]",
    ],
    "a size": ["dtypes: [float32, float64]", "inputs: {x: [1000]}", "chain: [torch.neg]"],
}
"""Cases of which the second dtype alone has a mistake."""

LIMITS = Limits(tensor_bytes=5000)


def one_by_one(variants: list[Variant], lines: list[str]) -> list[str]:
    """What writing each variant out finds."""
    return list(dict.fromkeys(short(d) for variant in variants for d in build(variant, lines, LIMITS).diagnostics))


@pytest.mark.parametrize("place", FAULTS)
def test_a_mistake_of_one_dtype_is_found(place: str, built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    variants = built.variants("\n".join(FAULTS[place]))
    lines = (built.folder / "a.spec.yaml").read_text(encoding="utf-8").split("\n")
    expected = one_by_one(variants, lines)
    assert len(expected) == 1 and not build(variants[0], lines, LIMITS).diagnostics
    found, _ = check(variants[0].case, variants, lines, LIMITS)
    assert [short(d) for d in found] == expected

    monkeypatch.setattr(source._Builder, "tensors", lambda self, dtype: dtype)
    assert check(variants[0].case, variants, lines, LIMITS)[0] == []


def test_dtypes_share_a_model(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    variants = built.variants("inputs: {x: [3]}\ndtypes: [float32, float64, float16]\nchain: [{nn.Linear: [3, 3]}]")
    written: list[str] = []
    forward = source._Builder._forward
    monkeypatch.setattr(
        source._Builder, "_forward", lambda self, *a, **k: written.append(self.variant.dtype) or forward(self, *a, **k)
    )
    assert check(variants[0].case, variants, [])[0] == []
    assert written == ["float32"]


@pytest.mark.parametrize("folder", ["operators", "basics", "numerics"])
def test_shipped_cases_have_what_one_by_one_gives(folder: str) -> None:
    variants = load([str(Path(__file__).parents[2] / "specs" / folder)], everything=True).variants
    groups: dict[int, list[Variant]] = {}
    for variant in variants[::7]:
        groups.setdefault(id(variant.case), []).append(variant)
    for group in groups.values():
        assert check(group[0].case, group, [])[0] == [d for v in group for d in build(v).diagnostics] == []
