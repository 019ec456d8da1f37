"""The GPU corpus: every program of its record is a case that mirrors it, and the ledger says what was recorded, and no more."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from runner.builder.source import build
from runner.cases.model import Known, Variant
from runner.contract.finding import Finding
from runner.session.collect import Loaded, load
from runner.verdict.policy import decide

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "specs" / "regressions" / "gpu"
SUITE = REPOSITORY / "suites" / "gpu.suite.yaml"
CORPUS = REPOSITORY.parent / "shared" / "corpus"
RECORD = CORPUS / "gpu_known_bugs.jsonl"

PREFIX = "gpu-row-"
RELEASE = "2.11"
ORACLES = {
    "numeric": {"value"},
    "nan-inf": {"nonfinite"},
    "numeric/nan-inf": {"nonfinite", "value"},
    "grad": {"grad"},
    "index-order": {"value"},
    "rng": {"value"},
    "compile-crash": {"compile-error"},
    "runtime-crash": {"runtime-error"},
    "hang": {"timeout"},
    "slow-compile": {"timeout"},
}
"""The record's class of a failure, and the oracles that are that."""

DECOMPOSED = {"172064", "188074"}
"""Rows of stage inductor that the record's own run of the decompositions shows as well: to the runner that is their stage."""

OTHER_DRAWS = {"163876", "164186", "183250"}
"""Rows whose leaves are made by a cast or a product. A case's leaf comes straight from the generator, as other numbers."""

WITHOUT_A_GPU = {"aten._cudnn_rnn.default": 5, "aten.cudnn_batch_norm_backward.default": 3}
"""Operators that the CPU has not, and how many results each has."""


def rows() -> list[dict[str, Any]]:
    """The record, a program a row; empty where the corpus is not beside the repository."""
    return [json.loads(line) for line in RECORD.read_text().splitlines()] if RECORD.is_file() else []


ROWS = rows()
recorded = pytest.mark.skipif(not ROWS, reason="the corpus is not beside the repository")
each_row = pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])


def is_undefined(row: dict[str, Any]) -> bool:
    """Return whether torch leaves open what the two sides differ in: the judge passes that."""
    return bool(row["quality"] == "unspecified-order")


FAILURES = [row for row in ROWS if row["diverges"] and not is_undefined(row)]
each_failure = pytest.mark.parametrize("row", FAILURES, ids=[row["id"] for row in FAILURES])


@cache
def found() -> Loaded:
    """Every variant of the folder, on all devices."""
    return load([str(FOLDER)], allow_python=True, everything=True)


@cache
def variants() -> dict[str, list[Variant]]:
    """The variants of each row, by its id."""
    by_row: dict[str, list[Variant]] = {}
    for variant in found().variants:
        for tag in variant.case.tags:
            if tag.startswith(PREFIX):
                by_row.setdefault(tag.removeprefix(PREFIX), []).append(variant)
    return by_row


def on_cuda(row: dict[str, Any]) -> Variant:
    [variant] = [variant for variant in variants()[row["id"]] if variant.device == "cuda"]
    return variant


def the_entry(row: dict[str, Any]) -> Known:
    [entry] = on_cuda(row).case.known
    return entry


def stage_of(row: dict[str, Any]) -> str:
    return "decomposition" if row["id"] in DECOMPOSED else str(row["stage"])


# --- the suite ---


@pytest.fixture(scope="module")
def suite() -> Loaded:
    return load([str(SUITE)], allow_python=True)


def test_the_suite_loads_and_is_of_cuda_alone(suite: Loaded) -> None:
    assert suite.diagnostics == ()
    assert [item.manual for item in suite.suites] == [True]
    assert {variant.device for variant in suite.variants} == {"cuda"}


def test_the_suite_leaves_out_what_ends_a_process_for_cuda_and_nothing_else(suite: Loaded) -> None:
    names = {variant.case.name for variant in suite.variants}
    out = {variant.case.name for variant in found().variants if "device-assert" in variant.case.tags}
    assert out == {"scatter_to_index_minus_one"}
    assert names == {variant.case.name for variant in found().variants} - out


def test_a_few_cases_run_under_every_mode(suite: Loaded) -> None:
    modes: dict[str, set[str | None]] = {}
    for variant in suite.variants:
        modes.setdefault(variant.case.name, set()).add(variant.backend.mode)
    tagged = {variant.case.name for variant in found().variants if "modes" in variant.case.tags}
    every = {None, "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"}
    wrong = {variant.case.name for variant in found().variants if "autotuned-wrong" in variant.case.tags}
    assert 5 <= len(tagged) <= 15 and wrong == {"cumsum_of_an_input"} <= tagged
    expected = {name: every if name in tagged else {None} for name in modes}
    assert modes == expected | {name: {None, "reduce-overhead"} for name in wrong}


def test_nothing_is_expected_of_a_mode() -> None:
    for variant in found().variants:
        if "modes" in variant.case.tags:
            assert variant.case.known == (), variant.id


# --- the record ---


@recorded
def test_each_row_is_one_case_and_each_case_one_row() -> None:
    assert len(ROWS) == 51
    assert sorted(variants()) == sorted(row["id"] for row in ROWS)
    cases = {row: {(v.case.file, v.case.name) for v in members} for row, members in variants().items()}
    assert all(len(members) == 1 for members in cases.values())
    assert len(set().union(*cases.values())) == len(ROWS)
    remainder = [v for v in found().variants if v not in itertools.chain(*variants().values())]
    extra = {v.case.name for v in remainder if "regression" in v.case.tags and "operators" not in v.case.tags}
    assert extra == {"product_padded"}, "not in the record: tag it found"
    assert all(("regression" in v.case.tags) == ("found" in v.case.tags) for v in remainder)


@each_failure
def test_a_failure_has_one_entry_which_says_what_was_recorded(row: dict[str, Any]) -> None:
    entry = the_entry(row)
    assert entry.stage == stage_of(row)
    assert row["quality"] != "solid" or entry.stage == row["stage"]
    assert set(entry.oracle) == ORACLES[row["class"]]
    assert entry.issue == row["url"]
    assert entry.torch == f"=={RELEASE}"
    assert entry.device == ("cuda",)
    assert (entry.why == "by-design") == (row["quality"] == "inconsistent-input")
    assert "control" not in on_cuda(row).case.tags


@pytest.mark.parametrize(
    "row", [r for r in ROWS if not r["diverges"]], ids=[r["id"] for r in ROWS if not r["diverges"]]
)
def test_a_control_has_none(row: dict[str, Any]) -> None:
    case = on_cuda(row).case
    assert case.known == ()
    assert "control" in case.tags
    assert row["url"] in case.links


def as_recorded(row: dict[str, Any], **changed: Any) -> Finding:
    """What the judge would report, had it seen what the record says."""
    kind, _, message = row["result_2.11_h200"]["inductor"].partition(": ")
    error = {"type": kind, "message": message, "chain": (kind,)} if row["class"].endswith("crash") else None
    plain: dict[str, Any] = {"oracle": sorted(ORACLES[row["class"]])[0], "message": "seen", "stage": stage_of(row)}
    return Finding(**{**plain, "error": error, **changed})


@each_failure
def test_what_was_recorded_is_expected_and_nothing_else_is(row: dict[str, Any]) -> None:
    variant = on_cuda(row)
    wrong_stage = "aot" if stage_of(row) != "aot" else "inductor"

    def verdict(*findings: Finding, torch_version: str = "2.11.0") -> str:
        return decide(variant, torch_version, findings, None).word

    assert verdict(as_recorded(row)) == "XFAIL"
    assert verdict() == "XPASS"
    assert verdict(as_recorded(row, stage=wrong_stage)) in ("FAIL", "ERROR")
    assert verdict(as_recorded(row, oracle="stride")) in ("FAIL", "ERROR")
    assert verdict(as_recorded(row), torch_version="2.13.0") in ("FAIL", "ERROR")
    if the_entry(row).error:
        assert verdict(as_recorded(row, error={"type": "KeyError", "message": "'buf0'"})) == "ERROR"


# --- the programs ---


@each_row
def test_a_case_is_compiled_as_its_program_was(row: dict[str, Any]) -> None:
    options, variant = row["options"], on_cuda(row)
    case, grad = variant.case, variant.grad
    assert variant.dynamic == options.get("dynamic")
    assert case.compile.fullgraph == options.get("fullgraph", False)
    assert case.compile.mode is None and not case.compile.options
    assert dict(case.config) == options.get("config", {})
    if options.get("backward"):
        assert (grad.mode, grad.cotangent, grad.order) == ("backward", "sum", 1)
    else:
        assert grad.mode == ("off" if options.get("no_grad") else "forward")


numbers = itertools.count()


def module_of(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"gpu_corpus_{next(numbers)}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def modules(row: dict[str, Any], tmp_path: Path) -> Iterator[tuple[ModuleType, ModuleType]]:
    """The row's script, and the source of its case."""
    file = tmp_path / "case.py"
    file.write_text(build(on_cuda(row)).text.replace('.to("cuda")', "").replace('"cuda"', '"cpu"'))
    loaded = module_of(CORPUS / row["script"]), module_of(file)
    yield loaded
    for module in loaded:
        sys.modules.pop(module.__name__, None)


def inputs_of(module: ModuleType) -> list[torch.Tensor]:
    torch.manual_seed(1)
    inputs: list[torch.Tensor] = module.make_inputs()
    return inputs


class Operators(TorchDispatchMode):
    """Writes down every operator that runs, with its arguments: tensors by the order in which they appeared, the rest as text."""

    def __init__(self, inputs: list[torch.Tensor]) -> None:
        super().__init__()
        self.seen: list[Any] = list(inputs)
        self.lines: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        own = name.partition(".")[0] not in ("aten", "prims")
        arguments = pytree.tree_map(self._shown, (args, kwargs or {}))
        self.lines.append(f"{'own operator' if own else name}{arguments}")
        if name in WITHOUT_A_GPU:
            return (args[0],) * WITHOUT_A_GPU[name]
        return func(*args, **(kwargs or {}))

    def _shown(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return repr(value)
        place = next((n for n, known in enumerate(self.seen) if known is value), len(self.seen))
        if place == len(self.seen):
            self.seen.append(value)
        return f"tensor {place}: {value.dtype} {tuple(value.shape)}"


def answer_of(module: ModuleType, inputs: list[torch.Tensor]) -> tuple[list[str], list[torch.Tensor] | str]:
    """The operators of the model, and the tensors that it returns, or how it refuses."""
    torch.manual_seed(0)
    model = module.make_model()
    torch.manual_seed(2)
    given = [tensor.detach().clone() for tensor in inputs]
    with torch.no_grad(), Operators([*given, *model.parameters(), *model.buffers()]) as operators:
        try:
            out = model(*given)
        except RuntimeError as error:
            return operators.lines, str(error)
    return operators.lines, [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]


@each_row
def test_a_case_has_its_programs_inputs(row: dict[str, Any], modules: tuple[ModuleType, ModuleType]) -> None:
    script, case_inputs = (inputs_of(module) for module in modules)
    assert len(case_inputs) == len(script)
    for tensor, reference in zip(case_inputs, script, strict=True):
        assert (tensor.shape, tensor.dtype, tensor.stride()) == (reference.shape, reference.dtype, reference.stride())
        assert (tensor.requires_grad, tensor.is_leaf) == (reference.requires_grad, reference.is_leaf)
    if row["id"] not in OTHER_DRAWS:
        for tensor, reference in zip(case_inputs, script, strict=True):
            assert torch.equal(tensor, reference)


@each_row
def test_a_case_does_what_its_program_does(row: dict[str, Any], modules: tuple[ModuleType, ModuleType]) -> None:
    script, case = modules
    inputs = inputs_of(script)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (wanted_operators, expected), (operators, answer) = (answer_of(module, inputs) for module in (script, case))
    assert operators == wanted_operators
    assert operators
    if isinstance(expected, str) or isinstance(answer, str):
        assert answer == expected
        return
    assert len(answer) == len(expected)
    for tensor, reference in zip(answer, expected, strict=True):
        assert (tensor.shape, tensor.dtype, tensor.stride()) == (reference.shape, reference.dtype, reference.stride())
        torch.testing.assert_close(tensor, reference, rtol=0, atol=0, equal_nan=True)
