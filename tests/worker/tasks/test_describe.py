"""torch's operator database as a task: names, spellings that a case takes, and dtypes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

from worker_jobs import job

from runner.builder.operators import Operator, resolve
from runner.worker.tasks import describe
from runner.worker.tasks.describe import run_database
from runner.worker.torch_private.operator_database import entries

METADATA = """Metadata-Version: 2.1
Name: acme-compiler
Version: 1.2
Project-URL: Homepage, https://acme.example
Project-URL: Source Code, https://acme.example/code
Project-URL: Bug Tracker, https://acme.example/bugs
"""


@pytest.mark.parametrize(
    ("lost", "url"),
    [("nothing", "https://acme.example/bugs"), ("Bug", "https://acme.example/code"), ("Project-URL", "")],
)
def test_a_package_says_where_its_bugs_go(lost: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "acme_compiler-1.2.dist-info"
    folder.mkdir()
    lines = [line for line in METADATA.splitlines() if lost not in line]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    (folder / "top_level.txt").write_text("acme\n")
    monkeypatch.syspath_prepend(tmp_path)
    expected = {"name": "acme-compiler", "version": "1.2", "url": url}
    assert describe._package("acme.backends:compile") == expected
    assert describe._package("nowhere:f") == {"name": "nowhere", "version": "", "url": ""}


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    record = run_database(job(), lambda _: None)
    assert (record["missing"], record["error"]) == ("", None)
    return dict(record["names"])


def test_every_name_of_the_database_is_there(names: dict[str, Any]) -> None:
    assert {*names} == {entry.name for entry in entries()} and len(names) > 500


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        ("add", {"torch.add", "Tensor.add", "Tensor.add_", "operator.add", "operator.iadd", "aten.add"}),
        ("abs", {"torch.abs", "torch.absolute", "Tensor.absolute", "Tensor.abs_"}),
        ("nn.functional.conv2d", {"F.conv2d", "aten.conv2d"}),
        ("linalg.det", {"torch.linalg.det", "aten.linalg_det"}),
        ("__radd__", {"operator.add of a number"}),
        ("__rand__", {"operator.and_ of a number"}),
        ("__rdiv__", {"operator.truediv of a number"}),
        ("torch.ops.aten._safe_softmax.default", {"aten._safe_softmax"}),
    ],
)
def test_how_a_case_may_spell_a_name(names: dict[str, Any], name: str, spellings: set[str]) -> None:
    assert spellings <= {*names[name]["spellings"]}


def test_most_names_can_be_written_in_a_case(names: dict[str, Any]) -> None:
    refusals = [
        name
        for name, facts in names.items()
        if not any(isinstance(resolve(s.removesuffix(" of a number")), Operator) for s in facts["spellings"])
    ]
    assert len(refusals) <= 0.03 * len(names), refusals


def test_dtypes_are_those_of_the_database(names: dict[str, Any]) -> None:
    assert {"float32", "complex64", "bool"} <= {*names["add"]["dtypes"]}
    assert "bool" not in names["add"]["backward"] and "float32" in names["add"]["backward"]
    assert names["argmax"]["backward"] == []


def test_a_torch_without_the_database_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> list[Any]:
        raise ImportError("No module named 'numpy'")

    monkeypatch.setattr(describe, "entries", absent)
    assert run_database(job(), lambda _: None) == {
        "names": {},
        "tables": {},
        "missing": "No module named 'numpy'",
        "error": None,
    }
