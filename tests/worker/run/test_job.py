"""What a record says beside the verdict."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from worker_jobs import job, oracles, passes, run, source

from runner.builder.source import build, has_twin
from runner.session.collect import load
from runner.worker.run.job import is_installed, reason_against


@pytest.mark.parametrize("listing", [True, False])
def test_the_places_of_loaded_code_are_listed_where_the_job_asks(listing: bool) -> None:
    record = run(source("return x + 1"), "eager", lists_code=listing)
    assert (os.path.dirname(torch.__file__) in record["code"]) is listing


@pytest.mark.parametrize(
    ("body", "message", "frame"),
    [
        ("nothing_of_the_kind", "NameError: name 'nothing_of_the_kind' is not defined", "_inductor/ir.py:<module>"),
        ("from math import nothing", "ImportError: cannot import name 'nothing'", "_inductor/ir.py:<module>"),
    ],
)
def test_a_compiler_that_cannot_be_imported_is_told_with_its_frame(
    monkeypatch: pytest.MonkeyPatch, body: str, message: str, frame: str
) -> None:
    module = compile(body, f"{os.path.dirname(torch.__file__)}/_inductor/ir.py", "exec")
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: exec(module, {}))
    record = run(source("return x + 1"), "aot_eager")
    (finding,) = record["findings"]
    assert (record["trust"], finding["oracle"], finding["error"]["origin"]["frame"]) == (None, "compile-error", frame)
    assert f"the compiler cannot be imported: {message}" in finding["message"]


def test_a_model_on_which_torch_compile_itself_fails_is_a_compile_error() -> None:
    endless = "def find(self, name):\n    return self.missing\nModel.__getattr__ = find"
    record = run(source("return x + 1", definitions=endless), "aot_eager")
    (finding,) = record["findings"]
    assert (record["trust"], finding["oracle"]) == (None, "compile-error")
    assert "torch.compile fails on the model: RecursionError" in finding["message"]
    assert finding["error"]["origin"]["type"] == "RecursionError"


def test_eager_s_own_error_does_not_excuse_a_compiler_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: exec(compile("nothing", "ir.py", "exec"), {}))
    record = run(source("raise Exception('no')"), "aot_eager", expect={"raises": {"type": "Exception"}})
    assert [finding["oracle"] for finding in record["findings"]] == ["error-type"]


TEXT = source("return x + 1")


def ask(name: str) -> bool:
    """``is_installed``, proved to import none of what it is asked for; metadata are read with ``email`` and ``csv``."""
    is_installed.cache_clear()
    modules = {*sys.modules}
    answer = is_installed(name)
    assert {module.partition(".")[0] for module in {*sys.modules} - modules} <= {"email", "csv", "_csv", "zipfile"}
    return answer


@pytest.fixture
def traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with metadata and one without, whose import leaves a mark; the first is called otherwise by pip."""
    for name in ("trapped", "untold"):
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\n")
        (package / "part.py").write_text("")
    metadata = tmp_path / "trap_of_pip-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: trap-of.pip\nVersion: 1\n")
    (metadata / "top_level.txt").write_text("trapped\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "imported"


@pytest.mark.parametrize(
    "name", ["torch", "torch.nn", "trapped", "trapped.part", "trap-of.pip", "trap_of_pip", "Trap.Of-Pip", "yaml"]
)
def test_names_of_pip_and_of_import_are_known(name: str, traps: Path) -> None:
    assert ask(name) and not traps.exists()


@pytest.mark.parametrize(
    "name", ["torchvision_of_nobody.ops", "antigravity.x", "this", "unittest.__main__.x", "untold", "untold.part"]
)
def test_what_no_metadata_know_is_not_installed(name: str, traps: Path) -> None:
    assert not ask(name) and not traps.exists()


def test_a_case_is_skipped_for_what_is_not_installed() -> None:
    assert run(TEXT, packages=["torch", "yaml"])["trust"] is None
    trust = run(TEXT, packages=["torch", "torchvision_of_nobody.ops"])["trust"]
    assert (trust["verdict"], trust["reason"]) == ("SKIP", "no package torchvision_of_nobody.ops here")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc/passwd", "a\0b", "\ud800", "*"])
def test_what_is_no_name_at_all_is_not_installed(name: str) -> None:
    """The schema refuses these; a worker must still not fail on them."""
    assert not is_installed(name)


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
