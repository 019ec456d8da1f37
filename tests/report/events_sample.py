"""Events made by hand, for the tests of the reports."""

from __future__ import annotations

from typing import Any

from runner.contract.finding import Finding
from runner.record.events import Event, RunFinished, RunStarted, VariantFinished, VariantPlanned

FILE = "specs/regressions/silent.spec.yaml"
VERDICTS = ("PASS", "FAIL", "ERROR", "INVALID", "XPASS", "VACUOUS", "FLAKY", "XFAIL", "SKIP", "NOT-RUN")

NASTY = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 bare \x1b NUL \x00 bell \x07 half \udc80 \ud800 \ufffe \uffff \U0001fffe ]]>"
    " <a & 'b' \"c\"> \x7f \x9b2J \x85 ünïcode \u2028 \U0001f600\r\nnext\rover"
)


def started(*torch: str, **changes: Any) -> RunStarted:
    """The run's first event, with one environment a torch version."""
    environments = tuple(
        {"python": f"/venvs/{v}/bin/python", "torch": v, "version": "3.11.2"} for v in torch or ("2.13.0",)
    )
    values: dict[str, Any] = {
        "run": "2026-01-02-abc", "version": "0.1.0", "argv": ("runner", "run", "specs"), "host": "box",
        "started": "2026-01-02T03:04:05Z", "folder": "runs/2026-01-02-abc", "environments": environments,
    }  # fmt: skip
    return RunStarted(**{**values, **changes})


def _identity(name: str, backend: str, torch: str, file: str, suites: tuple[str, ...]) -> dict[str, Any]:
    label = f"{file}::{name}[float32,cpu]"
    return {
        "id": f"{label}@{backend}", "case": f"{file}::{name}", "suite": suites[0], "suites": suites, "backend": backend,
        "torch": torch, "python": f"/venvs/{torch}/bin/python", "device": "cpu", "dtype": "float32", "label": label,
        "file": file, "line": 3, "column": 5,
    }  # fmt: skip


def planned(
    name: str = "pad_view", backend: str = "inductor", torch: str = "2.13.0", file: str = FILE,
    suites: tuple[str, ...] = ("regressions",),
) -> VariantPlanned:  # fmt: skip
    """One variant of the plan."""
    return VariantPlanned(**_identity(name, backend, torch, file, suites))


def finished(
    verdict: str = "PASS", name: str = "pad_view", backend: str = "inductor", torch: str = "2.13.0", file: str = FILE,
    suites: tuple[str, ...] = ("regressions",), **fields: Any,
) -> VariantFinished:  # fmt: skip
    """One verdict."""
    return VariantFinished(
        **{"verdict": verdict, "seconds": 1.234, **_identity(name, backend, torch, file, suites), **fields}
    )


def value_finding(**changes: Any) -> Finding:
    """A wrong value with every number that the layout knows."""
    numbers = {
        "mismatched": 3, "elements": 1000, "worst_index": [1, 2], "eager": 1.5, "compiled": 1.25,
        "reference": 1.50000001, "abs_error": 0.25, "rel_error": 0.16, "rtol": 1.3e-6, "atol": 1e-5,
        "eager_error_max": 1e-7, "eager_error_rmse": 1e-8, "compiled_error_max": 0.25, "compiled_error_rmse": 0.0125,
        "multiplier": 12.5, "same": True,
    }  # fmt: skip
    values: dict[str, Any] = {
        "oracle": "value", "message": "output 1 differs", "path": "call 0, output[1]", "stage": "inductor",
        "numbers": numbers, "place": f"{FILE}:5:9",
    }  # fmt: skip
    return Finding(**{**values, **changes})


def failure(**changes: Any) -> VariantFinished:
    """A wrong answer as the engine tells it, with everything a block can show."""
    values: dict[str, Any] = {
        "reason": "value: output 1 differs", "stage": "inductor", "oracles": ("value",), "findings": (value_finding(),),
        "labels": ("nearer-to-float64",), "graphs": 1, "graph_breaks": 0, "kernels": 2, "vectorized": 1, "comparisons": 4,
        "stages": {"dynamo": "ok", "aot": "ok", "decomposition": "ok", "inductor": "value"},
        "output": "first line\nlast words\n", "repro": f"runner repro '{FILE}::pad_view[float32,cpu]@inductor'",
    }  # fmt: skip
    return finished("FAIL", **{**values, **changes})


def every_verdict() -> list[Event]:
    """A run with one variant for each verdict, and one that never finished."""
    names = {verdict: f"case_{verdict.lower().replace('-', '_')}" for verdict in VERDICTS}
    plan = [planned(name) for name in names.values()]
    results = [
        failure(name=name) if verdict == "FAIL" else finished(verdict, name, reason=f"because of {verdict}")
        for verdict, name in names.items()
    ]
    return [started(), *plan, planned("never"), *results, RunFinished(1, 12.34)]
