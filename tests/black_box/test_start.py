"""What control answers by itself: never with torch, never in colour when nobody watches."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from .driver import REPOSITORY, Result, run_in, spec, write
from .stand_in import no_torch

ONE = spec("name: one\ninputs: {x: [2]}\nchain: [torch.neg]\n")
SUITE = "suite: both\nspecs: ['*.spec.yaml']\nbackends: [eager]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec, a suite, a finished run, and a ``torch`` that cannot be imported."""
    folder = tmp_path_factory.mktemp("start")
    poison = "raise RuntimeError('control imported torch')\n"
    write(folder, {"one.spec.yaml": ONE, "all.suite.yaml": SUITE, "poison/torch/__init__.py": poison})
    with no_torch(folder / "stand_in"):
        result = run_in(folder, "run", ".")
    assert result.code == 0, result.text
    return folder


@pytest.fixture(scope="module")
def without_torch(folder: Path) -> Callable[..., Result]:
    return lambda *args: run_in(folder, *args, env={"PYTHONPATH": str(folder / "poison")})


def test_the_poison_works(folder: Path, tmp_path: Path) -> None:
    """Else the tests below would prove nothing: the worker, which imports torch, must fail."""
    result = run_in(tmp_path, "run", folder / "one.spec.yaml", env={"PYTHONPATH": str(folder / "poison")})
    assert result.code == 3
    assert "control imported torch" in result.text


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--version"], r"runner \d+\.\d+"),
        (["--help"], r"usage: runner"),
        (["run", "--help"], r"--junit-dialect"),
        (["list", "."], r"one\.spec\.yaml::one\[float32,cpu\]@eager"),
        (["validate", "."], r"^1 valid case, 2 variants, 0 errors, 0 warnings\n$"),
        (["show", "one.spec.yaml::one"], r"class Model"),
        (["repro", "one.spec.yaml::one"], r"class Model"),
        (["report"], r"1 passed"),
        (["history", "one"], r"1 run: 1 PASS"),
        (["report", "latest", "--junit", "-"], r"<testsuites"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_answers_without_torch(args: list[str], expected: str, without_torch: Callable[..., Result]) -> None:
    result = without_torch(*args)
    assert result.code == 0, result.text
    assert re.search(expected, result.out)
    assert "control imported torch" not in result.text


@pytest.mark.parametrize("name", ["spec", "suite", "definitions"])
def test_schemas_stand_alone(name: str, without_torch: Callable[..., Result]) -> None:
    """An editor gets one file: the repository's own, with the definitions that it refers to inside."""
    result = without_torch("schema", name)
    assert result.code == 0
    schema = json.loads(result.out)
    jsonschema.Draft7Validator.check_schema(schema)
    assert "$ref" not in result.out or set(re.findall(r'"\$ref": ?"([^"]*)#', result.out)) == {""}
    document = json.loads((REPOSITORY / "schema" / f"{name}.schema.json").read_text())
    assert {**schema.get("properties", {})}.keys() == {**document.get("properties", {})}.keys()
    if name == "spec":
        jsonschema.validate({"cases": [{"name": "a", "inputs": {"x": [2]}, "chain": ["torch.neg"]}]}, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"cases": [{"name": "a", "inputs": {"x": [2]}, "chian": ["torch.neg"]}]}, schema)


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_piped_output_is_plain(env: dict[str, str], folder: Path) -> None:
    for args in (["report"], ["--help"], ["list", "."]):
        result = run_in(folder, *args, env=env)
        assert result.code == 0
        assert "\x1b" not in result.text


def test_forced_colour_is_there(folder: Path) -> None:
    assert "\x1b[32m" in run_in(folder, "report", env={"FORCE_COLOR": "1"}).out
