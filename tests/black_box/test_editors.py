"""Editors: the real yaml-language-server completes, explains and underlines by the schema that ``runner schema`` prints.

The server is an npm package; where it is missing the tests are skipped.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .driver import REPOSITORY, run_in
from .language_server import Document, LanguageServer, language_server

PROGRAM = shutil.which("yaml-language-server")
PAGE = (REPOSITORY / "docs" / "editors.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="yaml-language-server (npm) is not on the PATH")

HEAD = "cases:\n  - name: a\n    inputs: {x: [2, 3]}\n    chain:\n"
NUMBERS = itertools.count()
SHIPPED = ("basics/pointwise.spec.yaml", "operators/activations.spec.yaml", "regressions/dynamic_shapes.spec.yaml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the schema, made by the command that the page shows."""
    folder = tmp_path_factory.mktemp("editors")
    for kind in ("spec", "suite"):
        assert f"$ runner schema {kind} > {kind}.schema.json" in PAGE
        result = run_in(folder, "schema", kind)
        assert result.code == 0
        (folder / f"{kind}.schema.json").write_text(result.out)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[LanguageServer]:
    assert PROGRAM is not None
    schemas = {(folder / f"{kind}.schema.json").as_uri(): f"*.{kind}.yaml" for kind in ("spec", "suite")}
    with language_server(PROGRAM, schemas) as server:
        yield server


@pytest.fixture
def opened(server: LanguageServer, folder: Path) -> Callable[..., Document]:
    """Open a text as a new file."""
    return lambda text, kind="spec": server.open(folder / f"{next(NUMBERS)}.{kind}.yaml", text)


def test_the_start_of_a_name_completes(opened: Callable[..., Document]) -> None:
    items = opened(f"{HEAD}      - F.gel\n").complete("- F.gel")
    bare, with_arguments = (item for item in items if item["label"] == "F.gelu")
    assert (bare["insertText"], with_arguments["insertText"]) == ("F.gelu", "F.gelu:\n    ")
    signature = "F.gelu(input: Tensor, *, approximate"
    assert all(item["documentation"].startswith(signature) for item in (bare, with_arguments))


def test_an_empty_place_of_a_list_in_one_line_completes(opened: Callable[..., Document]) -> None:
    labels = {item["label"] for item in opened(f"{HEAD.rstrip()} [F.relu, ]\n").complete("[F.relu, ")}
    assert {"F.gelu", "torch.add", "aten.add"} <= labels and "aten.add.Tensor" not in labels


@pytest.mark.parametrize(
    ("line", "words", "labels"),
    [
        ("- F.gelu: {app}", "{app", {"input", "approximate"}),
        ("- F.gelu: {approximate: }", "approximate: ", {"none", "tanh"}),
        ("- torch.amax: {keepdim: }", "keepdim: ", {"true", "false"}),
        ("- torch.cumsum: {dim: 0, dtype: }", "dtype: ", {"$dtype", "torch.float32", "torch.int64"}),
    ],
)
def test_arguments_and_their_values_complete(
    line: str, words: str, labels: set[str], opened: Callable[..., Document]
) -> None:
    assert labels <= {item["label"] for item in opened(f"{HEAD}      {line}\n").complete(words)}


@pytest.mark.parametrize("chain", ["\n      - F.gelu", "\n      - F.gelu: {approximate: tanh}", " [F.gelu]"], ids=repr)
def test_hovering_shows_the_signature(chain: str, opened: Callable[..., Document]) -> None:
    document = opened(f"{HEAD.rstrip()}{chain}\n")
    assert document.underlined == []
    text = document.hover("F.gelu")
    assert "F.gelu(input: Tensor, \\*, approximate: str = 'none') -> Tensor" in text
    assert "Applies the Gaussian Error Linear Units function" in text
    assert "dtypes on the CPU: bfloat16, float16, float32, float64" in text
    assert "Allowed Values" not in text and "F.glu" not in text


@pytest.mark.parametrize("step", ["F.rellu", "F.rellu: {inplace: false}", "aten.add.Tenso", "torch.save", "F.qq"])
def test_an_unknown_operator_is_underlined(step: str, opened: Callable[..., Document]) -> None:
    document = opened(f"{HEAD}      - F.relu\n      - {step}\n      - torch.neg: $_\n")
    [(line, words, message)] = document.underlined
    assert (line, words) == (6, step.partition(":")[0])
    starts = {"F.rellu": 'Value must be "F.relu" | ', "F.qq": "no operator that a case may call begins like this"}
    assert message.startswith(starts.get(step, ""))


def test_what_files_and_packages_make_is_not_underlined(opened: Callable[..., Document]) -> None:
    steps = ["custom.mine.op", "self.a: $_", "triton.scale: [$_]", "$f", "F.gelu: {approximate: other, more: 1}"]
    assert opened(HEAD + "".join(f"      - {step}\n" for step in steps)).underlined == []


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_file_is_clean_and_a_broken_one_is_underlined(name: str, opened: Callable[..., Document]) -> None:
    text = (REPOSITORY / "specs" / name).read_text(encoding="utf-8")
    text = re.sub(r"^# yaml-language-server:.*\n", "", text, flags=re.MULTILINE)
    assert opened(text).underlined == []
    match = re.search(r"(?<=[ \[{-])(?:F|torch)\.[a-z0-9_]+(?=[\n,\]:])", text)
    assert match is not None
    broken = f"{text[: match.end()]}_qq{text[match.end() :]}"
    [(line, words, _)] = opened(broken).underlined
    assert (line, words) == (broken[: match.end()].count("\n") + 1, f"{match[0]}_qq")


@pytest.mark.nightly
def test_no_shipped_file_has_anything_underlined(opened: Callable[..., Document]) -> None:
    for kind in ("spec", "suite"):
        paths = sorted(
            path for top in ("specs", "suites", "profiles") for path in (REPOSITORY / top).rglob(f"*.{kind}.yaml")
        )
        assert paths
        for path in paths:
            text = re.sub(r"^# yaml-language-server:.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert (path, opened(text, kind).underlined) == (path, [])


def test_a_suite_has_its_cases_checked_too(opened: Callable[..., Document]) -> None:
    head = f"suite: s\nspecs: [a.spec.yaml]\n{HEAD}"
    assert opened(f"{head}      - F.relu\n", "suite").underlined == []
    assert [words for _, words, _ in opened(f"{head}      - F.rellu\n", "suite").underlined] == ["F.rellu"]


def test_the_first_line_of_a_file_may_name_the_schema(folder: Path) -> None:
    assert PROGRAM is not None and "# yaml-language-server: $schema=spec.schema.json" in PAGE
    text = f"{HEAD}      - F.rellu\n"
    with language_server(PROGRAM, {}) as server:
        assert server.open(folder / "without.yaml", text).underlined == []
        document = server.open(folder / "with.yaml", f"# yaml-language-server: $schema=spec.schema.json\n{text}")
        [(line, words, _)] = document.underlined
    assert (line, words) == (6, "F.rellu")


def test_the_settings_of_a_project_name_its_schemas_by_relative_paths(folder: Path) -> None:
    assert PROGRAM is not None
    settings = json.loads(PAGE.partition("```json\n")[2].partition("```")[0])["yaml.schemas"]
    with language_server(PROGRAM, settings, folder) as server:
        assert [
            words for _, words, _ in server.open(folder / "c.spec.yaml", f"{HEAD}      - F.rellu\n").underlined
        ] == ["F.rellu"]
        assert server.open(folder / "c.suite.yaml", "suites: s\n").underlined
    toml = PAGE.partition("```toml\n")[2].partition("```")[0]
    assert dict(re.findall(r'^"(.*)" = "(.*)"$', toml, re.MULTILINE)) == settings
