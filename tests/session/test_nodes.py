"""``runner.session.nodes``: ids that are typed in another folder than the one in which their run began."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cases.suites import PathError
from runner.session.collect import load
from tests.handmade import written

CASES = "cases:\n  - {name: relu, inputs: {x: [2]}, chain: [F.relu]}\n"
OWN = "relu[float32,cpu]@mine"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a suite of two folders, beside another folder with a case of the same name; the current one."""
    for folder in ("project/specs", "project/more", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
        written(tmp_path / folder, CASES)
    written(tmp_path / "project" / "more", CASES, "only.spec.yaml")
    suite = "suite: s\nspecs: ['*/*.spec.yaml']\nbackends: [eager, {name: mine, backend: eager}]\n"
    written(tmp_path / "project", suite, "s.suite.yaml")
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "project"


def ids(path: str) -> list[str]:
    return [variant.id for variant in load([path]).variants]


@pytest.mark.parametrize("start", ["../project/s.suite.yaml", "../project"])
@pytest.mark.parametrize("file", ["specs/a.spec.yaml", "more/only.spec.yaml", "only.spec.yaml"])
def test_the_file_of_a_suite_s_id_is_found_from_any_folder(project: Path, start: str, file: str) -> None:
    folder = "more" if "only" in file else "specs"
    assert ids(f"{start}::{file}::{OWN}") == [f"../project/{folder}/{Path(file).name}::{OWN}"]
    assert len(ids(f"{start}::{file}::relu")) == 2


def test_a_file_of_another_folder_is_none_of_the_suite(project: Path) -> None:
    with pytest.raises(PathError, match="no file of it ends so"):
        ids(f"../project/s.suite.yaml::../other/specs/a.spec.yaml::{OWN}")


def test_an_id_of_a_folder_above_its_run_is_found(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.parent)
    assert ids(f"project/s.suite.yaml::../project/specs/a.spec.yaml::{OWN}") == [f"project/specs/a.spec.yaml::{OWN}"]


def test_a_name_that_several_files_have_is_refused_with_their_names(project: Path) -> None:
    (project.parent / "elsewhere" / "a.spec.yaml").unlink()
    with pytest.raises(PathError, match=r"several files of it end so: .*more/a.spec.yaml, .*specs/a.spec.yaml"):
        ids(f"../project/s.suite.yaml::a.spec.yaml::{OWN}")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (f"specs/a.spec.yaml::{OWN}", "the folder is {here}, and an id has its path from the folder in which its run began"),
        (f"s.suite.yaml::specs/a.spec.yaml::{OWN}", "the folder is {here}"),  # a.spec.yaml is nothing like it
        ("a.spec.yml::relu", "did you mean 'a.spec.yaml'?"),
        (f"project/specs/a.spec.yaml::{OWN}", "did you mean '../project/specs/a.spec.yaml'?"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_here_is_named_with_the_folder(project: Path, path: str, says: str) -> None:
    with pytest.raises(PathError) as error:
        ids(path)
    assert str(error.value).startswith(f"no such file or directory: {path.partition('::')[0]}; ")
    assert says.format(here=Path.cwd()) in str(error.value)


def test_a_param_that_looks_like_a_file_is_none(tmp_path: Path) -> None:
    keys = "params: {s: ['b.spec.yaml::x', 'y']}, inputs: {x: [2]}, chain: [{torch.einsum: [$s, $x]}]"
    path = written(tmp_path, f"cases:\n  - {{name: a, {keys}}}\n")
    (own, _) = [variant.id for variant in load([str(path)]).variants]
    assert ids(f"{path}::{own.partition('::')[2]}") == [own]
