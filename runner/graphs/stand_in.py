"""The graph of a case with ``module:`` that fails as the case does, as a case of its own.

What a search can take away of a model in Python is little: its steps are in no chain. Those of its captured graphs are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from runner.cases.model import Variant
from runner.cases.suites import SPEC
from runner.contract.finding import Finding
from runner.contract.graphs import Capture
from runner.contract.oracles import row_of
from runner.diagnose.diagnosis import Diagnosis
from runner.diagnose.harness import VariantEngine, result_of
from runner.diagnostics import InputError
from runner.files import replace_text
from runner.graphs.cases import WrittenGraph, write_graph
from runner.graphs.text import text_of
from runner.quote import QuoteError
from runner.session.collect import load
from runner.verdict.policy import ranked
from runner.verdict.signature import signature_of


def failing_graph(
    engine: VariantEngine, findings: Sequence[Finding], folder: Path, tick: Callable[[str], None]
) -> tuple[Variant, Diagnosis] | None:
    """Return the first captured graph of the engine's variant that fails alike, under its backend; None without one.

    Beside it stands what its run says, so that it need not run once more. What fails alike has the stage of the model.

    The graphs are written to ``folder``, as ``graph_0.spec.yaml`` and so on. Their weights and inputs are drawn with
    the statistics of the model's own.

    Raises:
        UsageError: the graphs cannot be recorded.
    """
    (outcome,) = engine.ask([engine.job("capture", backend="eager")], lambda: tick("recording its graphs"))
    recorded = result_of(outcome)["capture"]
    variants = list(_variants(engine, Capture.from_json(recorded), folder)) if recorded else []
    kind = signature_of(findings[0]).kind
    outcomes = engine.ask([engine.job(variant=variant) for variant in variants], lambda: tick("running its graphs"))
    for variant, outcome in zip(variants, outcomes, strict=True):
        answer = engine.read(outcome)
        own = tuple(replace(each, stage=findings[0].stage) for each in ranked(answer.findings))
        if not answer.trust and own and signature_of(own[0]).kind == kind:
            verdict = "ERROR" if row_of(own[0].oracle).crash else "FAIL"
            torch = engine.environment.torch
            return variant, Diagnosis(variant.id, torch, verdict, findings=own, run_seconds=outcome.seconds)
    return None


def _variants(engine: VariantEngine, capture: Capture, folder: Path) -> Iterator[Variant]:
    """Yield the graphs that the format can write as variants under the engine's backend."""
    for number, graph in enumerate(capture.graphs):
        written = write_graph(graph, f"graph_{number}")
        try:
            variant = graph_variant(engine.variant, written, folder / f"graph_{number}{SPEC}")
            if variant is not None:
                engine.write(variant)
                yield variant
        except (QuoteError, InputError):  # what no case can hold
            continue


def graph_variant(model: Variant, written: WrittenGraph, path: Path) -> Variant | None:
    """Write a graph into a spec file, and return its variant with the backend and the settings of the model's.

    None where the file has no case that can run. Raises QuoteError for what no file can hold.
    """
    replace_text(path, text_of([written] if written.case is not None else []))
    kept = {
        name: getattr(model.case, name) for name in ("seed", "requires", "compile", "tolerance", "strides", "memory")
    }
    for graph in load([str(path)], everything=True).variants[:1]:
        case = replace(
            graph.case, **kept, config={**graph.case.config, **model.case.config},
            ignore={**graph.case.ignore, **model.case.ignore}, timeout=model.case.timeout or graph.case.timeout,
        )  # fmt: skip
        return replace(
            graph, case=case, backend=model.backend, device=model.device, threads=model.threads,
            dynamic=model.dynamic if graph.dynamic is None else graph.dynamic,
        )  # fmt: skip
    return None
