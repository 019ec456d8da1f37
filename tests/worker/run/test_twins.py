"""``runner.worker.run.twins``: an equal program, compiled, is held against the compiled program and eager."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from worker_jobs import job, oracles, passes, run, source

from runner.builder.source import build, has_twin
from runner.session.collect import load
from runner.worker.run.twins import reason_against

NOTE = "compared with its twin"
TWIN = "class Twin(Model):\n    def forward(self, x):\n        {}\ndef make_twin():\n    return Twin().eval()"


def text_of(folder: Path, keys: str, name: str = "a") -> str:
    """The source of a case with these keys."""
    path = folder / f"{name}.spec.yaml"
    path.write_text(f"cases:\n  - name: {name}\n" + "".join(f"    {line}\n" for line in keys.split("\n")))
    (variant,) = load([str(path)], everything=True).variants
    text = build(variant)
    assert has_twin(text)
    return text.text


def case(
    twin: str, inputs: str = "{x: [5, 3]}", chain: str = "[{torch.mul: [$x, 2]}, torch.sin]", more: str = ""
) -> str:
    return f"inputs: {inputs}\nchain: {chain}\ntwin: [{twin}]{more}"


ALL = "double, mask, negate, reorder, reshape, split, transpose"


@pytest.mark.parametrize("backend", ["planted:clean", "aot_eager", "inductor"])
@pytest.mark.parametrize(
    "keys",
    [
        case(ALL),
        case(ALL, "{x: {shape: [5, 3], requires_grad: true}}", more="\ngrad: backward"),
        case(ALL, "{x: {shape: [], dtype: int64}}"),
        case(ALL, "{x: {shape: [0, 3], dtype: bfloat16}}"),
        case(ALL, "{x: {shape: [4], dtype: bool}}"),
        case(ALL, "{x: {shape: [4], dtype: complex64}}"),
        case("mask, split", chain="[{torch.add: [$x, 1]}, {Tensor.mul_: [$_, 3]}, {Tensor.t: [$_]}]"),
        case(
            "reshape",
            "{x: [4, 4]}",
            "[{torch.clone: [$x], out: a}, {Tensor.fill_diagonal_: [$a, 0]}, {torch.neg: $a}]",
        ),
        case(ALL, "{x: [5, 3]}", more="\ncalls: [{inputs: {x: [7, 2]}}, {inputs: {x: [1, 1]}}]"),
    ],
)
def test_a_healthy_backend_passes(tmp_path: Path, keys: str, backend: str) -> None:
    record = run(text_of(tmp_path, keys), backend, grad={"mode": "backward" if "backward" in keys else "forward"})
    assert passes(record), record
    assert NOTE in record["notes"]


@pytest.mark.parametrize(
    ("fault", "twin"), [("wrong_cat", "split"), ("wrong_where", "mask"), ("wrong_negation", "negate")]
)
def test_a_fault_that_only_the_twin_meets_is_found(tmp_path: Path, fault: str, twin: str) -> None:
    text = text_of(tmp_path, case(twin))
    record = run(text, f"planted:{fault}")
    assert oracles(record) == ["twin"]
    (finding,) = record["findings"]
    assert finding["message"].startswith("value: ") and finding["path"] == "output" and finding["numbers"]
    assert finding["severity"] == "wrong-result"
    assert passes(
        run(
            text.partition("def make_twin")[0] + "def make_inputs" + text.partition("def make_inputs")[2],
            f"planted:{fault}",
        )
    )
    assert passes(run(text, f"planted:{fault}", ignore=["twin"]))


def test_what_eager_and_the_compiler_share_is_found() -> None:
    """Both programs would be equal if a product with 2 were right; it has the same error in eager and compiled."""
    shared = "class Twin(Model):\n    def forward(self, x):\n        return x + x\ndef make_twin():\n    return Twin().eval()"
    for dtype in ("float32", "int64"):
        text = source("return x * 3", inputs=f"torch.arange(5, dtype=torch.{dtype})", definitions=shared)
        record = run(text)
        assert oracles(record) == ["twin"]


@pytest.mark.parametrize(("factor", "expected"), [("1.01", []), ("1.02", ["twin"])])
def test_a_twin_counts_only_if_it_is_outside_against_both(factor: str, expected: list[str]) -> None:
    """The backend is off by 1%, of 1.5% that are allowed. The first twin is off by 2% from eager, and by 1% from it."""
    text = source("return x * 2", definitions=TWIN.format(f"return x * 2 * {factor}"))
    record = run(text, "planted:percent_off", tolerance={"by_dtype": {"": [0.015, 0.0]}})
    assert oracles(record) == expected


def test_a_failure_of_the_case_itself_leaves_the_twin_out(tmp_path: Path) -> None:
    record = run(text_of(tmp_path, case(ALL)), "planted:zeros")
    assert oracles(record) == ["value"]
    assert NOTE not in record["notes"]


def test_a_twin_that_raises_counts_only_if_eager_takes_it() -> None:
    record = run(source("return x * 2", definitions=TWIN.format("return x.reshape(7)")))
    assert passes(record)
    assert "the twin raises in eager too; it is not compared" in record["notes"]
    record = run(
        source("return x * 2", definitions=TWIN.format("return torch.relu(x) * 0 + x * 2")),
        "runner.worker.planted:toy_compiler",
    )
    assert oracles(record) == ["twin"]
    assert record["findings"][0]["message"].startswith("compile-error: ")
    assert record["findings"][0]["severity"] == "exception"


def test_where_a_twin_says_nothing_a_note_gives_the_reason() -> None:
    twin = TWIN.format("return x * 3")
    for body, fields, reason in (
        ("return x * 2 + torch.rand(5)", {}, "eager draws random numbers"),
        ("return x * 2", {"tolerance": {"exact": True}}, "the case asks for more than an equal program keeps"),
        ("return x * 2", {"float64": False}, "there is no float64 reference"),
        ("raise ValueError", {"expect": {"raises": {"type": "ValueError", "match": None}}}, "eager raises"),
    ):
        settings: dict[str, Any] = fields
        record = run(source(body, definitions=twin), **settings)
        assert oracles(record) == []
        assert f"not compared with its twin: {reason}" in record["notes"]


def test_without_time_for_it_the_twin_is_left_out() -> None:
    evidence: Any = SimpleNamespace(eager=SimpleNamespace(error=None, calls=[]))
    assert reason_against(job(timeout=9.0), evidence, {"eager": 1.0, "backend": 3.0}) == "too little time is left"
    assert reason_against(job(timeout=11.0), evidence, {"eager": 1.0, "backend": 3.0}) == ""
