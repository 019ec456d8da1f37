"""What commands about the compiler say of cases that launch kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.cases.model import Backend, Variant
from runner.diagnose import diagnosis
from runner.diagnose.diagnosis import Bisected, Diagnosis, bisection_job
from runner.diagnose.harness import VariantEngine, refuse_kernels, refuse_launches
from runner.exit_codes import UsageError
from runner.report.diagnosis import render
from runner.verdict.signature import FailureSignature
from tests.handmade import environment, loaded, variants

SPEC = Path(__file__).resolve().parents[2] / "specs" / "kernels" / "pointwise.spec.yaml"


@pytest.fixture(scope="module")
def launched() -> Variant:
    return next(
        v for v in loaded(SPEC, allow_python=True).variants if (v.backend.backend, v.device) == ("triton", "cpu")
    )


@pytest.fixture
def engine(launched: Variant) -> Iterator[VariantEngine]:
    with VariantEngine(launched, environment()) as instance:
        yield instance


def test_a_launch_is_refused(launched: Variant) -> None:
    for refuse in (refuse_launches, refuse_kernels):
        with pytest.raises(
            UsageError, match=r"^explain: backend triton launches kernels and compiles nothing; .*triton-compiled"
        ):
            refuse(launched, "explain")


def test_kernels_in_a_graph_are_refused_where_torch_writes_scripts(launched: Variant) -> None:
    compiled = replace(launched, backend=Backend("inductor", "inductor"))
    refuse_launches(compiled, "explain")
    with pytest.raises(UsageError, match=r"^minify: .* launches Triton kernels as operators"):
        refuse_kernels(compiled, "minify")


def test_other_cases_are_not_refused(tmp_path: Path) -> None:
    for variant in variants(tmp_path, ""):
        refuse_kernels(variant, "minify")


def test_a_launch_has_nothing_to_bisect_and_no_compiler_to_change(engine: VariantEngine) -> None:
    signature = FailureSignature("value", "backend")
    result = bisection_job(engine, signature, {})
    assert isinstance(result, Bisected) and "compiles nothing" in result.note
    changes = diagnosis.changes_for(engine.variant, signature, engine.source.text)
    assert {change.setting for change in changes} <= {"device: cuda", "grad: off"}


@pytest.mark.parametrize(("backend", "expected"), [("triton", {"reduce"}), ("inductor", {"reduce", "debug", "issue"})])
def test_what_a_diagnosis_suggests(backend: str, expected: set[str]) -> None:
    diagnosed = Diagnosis(
        id=f"a.spec.yaml::a@{backend}", torch="2.13.0", verdict="FAIL", signature=FailureSignature("value", "backend")
    )
    text = render(diagnosed)
    assert {name for name in ("reduce", "debug", "issue") if f"runner {name} " in text} == expected
