"""A picture as the worker sends it, and a diagnosis, for the tests of pages and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.builder.source import build
from runner.cases.model import Variant
from runner.cases.serialize import case_text
from runner.contract.finding import Finding
from runner.diagnose.bug_report import ReportInput, ScriptRun, VersionVerdict
from runner.diagnose.diagnosis import Ablation, Culprit, Diagnosis
from runner.diagnose.repro import script
from runner.verdict.signature import main_signature

PICTURE: dict[str, Any] = {
    "path": "output[0]", "oracle": "value", "shape": [2, 3, 4], "dtype": "float32", "elements": 24, "wrong": 3,
    "rtol": 1.3e-6, "atol": 1e-5,
    "grid": {
        "width": 4, "row_span": 2, "column_span": 2,
        "absolute": [[0.0, 1e-3], [0.0, 0.0], [1.0, 0.0]],
        "relative": [[0.0, "inf"], [0.0, 0.0], [0.5, 0.0]],
        "kind": [[0, 0], [2, 0], [0, 1]],
    },
    "worst": [
        {"index": [0, 2, 1], "eager": "nan", "compiled": 0.0, "float64": "nan", "absolute": "nan", "relative": "nan"},
        {"index": [1, 2, 0], "eager": 2.0, "compiled": 3.0, "float64": 2.0, "absolute": 1.0, "relative": 0.5},
    ],
    "histogram": {
        "decades": [-7, -6], "eager": [4, 0], "compiled": [3, 2], "exact": {"eager": 9, "compiled": 8},
        "unscaled": {"eager": 0, "compiled": 1}, "left_out": 1,
    },
    "counts": {
        "eager": {"nan": 2, "inf": 0, "-inf": 0}, "compiled": {"nan": 1, "inf": 0, "-inf": 0},
        "float64": {"nan": 2, "inf": 0, "-inf": 0},
    },
}  # fmt: skip

NUMBERS: dict[str, Any] = {
    "elements": 24, "mismatched": 3, "worst_index": [1, 2, 0], "eager": 2.0, "compiled": 3.0, "reference": 2.0,
    "abs_error": 1.0, "rel_error": 0.5, "abs_error_max": 1.0, "scale": 2.0, "rtol": 1.3e-6, "atol": 1e-5,
    "eager_error_max": 1e-7, "eager_error_rmse": 1e-8, "compiled_error_max": 1.0, "compiled_error_rmse": 0.2,
    "multiplier": 1e7, "same": False,
}  # fmt: skip


def wrong(**changes: Any) -> Finding:
    """A wrong value at inductor."""
    values = {"oracle": "value", "message": "3 of 24 elements differ; eager 2.0, compiled 3.0 at [1, 2, 0]",
              "path": "output[0]", "stage": "inductor", "numbers": NUMBERS}  # fmt: skip
    return Finding(**{**values, **changes})


def crash(**changes: Any) -> Finding:
    """A compile error at inductor."""
    error = {"type": "InductorError", "message": "AssertionError: cannot lower", "chain": ["InductorError", "AssertionError"],
             "trace": '  File "case.py", line 7, in forward\n    return torch.relu(x)'}  # fmt: skip
    values = {"oracle": "compile-error", "message": "raised while compiling: InductorError: AssertionError: cannot lower",
              "stage": "inductor", "error": error}  # fmt: skip
    return Finding(**{**values, **changes})


def diagnosis(*findings: Finding, **changes: Any) -> Diagnosis:
    """A whole diagnosis; ``findings`` default to one wrong value."""
    failures = findings or (wrong(),)
    values: dict[str, Any] = {
        "id": "a.spec.yaml::a[float32,cpu]@inductor", "torch": "2.13.0", "verdict": "FAIL",
        "reason": f"{failures[0].oracle}: {failures[0].message}",
        "signature": main_signature(failures), "findings": failures,
        "stages": {"dynamo": "ok", "aot": "ok", "decomposition": "ok", "inductor": failures[0].oracle},
        "culprit": Culprit("inductor", "lowerings", 2, "relu", step="relu, the second of two", place="a.spec.yaml:14"),
        "ablations": (
            Ablation("without vectorization", "torch._inductor.config.cpp.simdlen = 1", "gone"),
            Ablation("without pattern matching", "torch._inductor.config.pattern_matcher = False", "same", "value: it differs"),
        ), "seconds": 12.5,
    }  # fmt: skip
    return Diagnosis(**{**values, **changes})


def material(variant: Variant, findings: Sequence[Finding] = (wrong(),), **changes: Any) -> ReportInput:
    """What a report is made of."""
    failures = tuple(findings)
    verdict = "FAIL" if failures[0].error is None else "ERROR"
    values: dict[str, Any] = {
        "variant": variant, "diagnosis": diagnosis(*failures, verdict=verdict), "source": build(variant).text, "fresh_findings": (failures, failures),
        "script": ScriptRun(1, "AssertionError: Tensor-likes are not close!\nInductorError: no", script(variant, diagnosis(*failures))), "versions": (VersionVerdict("2.13.0", verdict, "value: off"), VersionVerdict("2.6.0", "PASS")),
        "inputs": ({"index": 0, "dtype": "float32", "nonfinite": 0, "denormal": 0, "largest": 2.0},),
    }  # fmt: skip
    parts = {"yaml": case_text(variant), "environment": "PyTorch version: 2.13.0+cpu\n"}
    return ReportInput(**{**values, **parts, **changes})
