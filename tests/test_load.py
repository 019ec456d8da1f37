"""``runner.load``: what node ids choose, and what it says of those that choose nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner import load as module
from runner.diagnostics import InputError
from runner.load import load
from tests.handmade import loaded, written

TEXT = """
    cases:
      - name: a
        params: {n: [1, 2]}
        inputs: {x: ["${n}"]}
        chain: [F.relu]
        dtypes: [float32, float64]
      - name: ab
        params: {k: [3, 4]}
        inputs: {x: [2]}
        chain: [{torch.mul: [$x, $k]}]
"""


def chosen(folder: Path, *nodes: str, text: str = TEXT) -> list[str]:
    path = written(folder, text)
    found = load([f"{path}::{node}" if node else str(path) for node in nodes], backends=["eager", "inductor"])
    assert found.errors == []
    return [v.id.rpartition("::")[2] for v in found.variants]


def test_a_case_its_axes_and_its_backend_name_variants(tmp_path: Path) -> None:
    assert len(chosen(tmp_path, "")) == 12
    assert {name.partition("[")[0] for name in chosen(tmp_path, "a")} == {"a"}  # and not ab
    assert chosen(tmp_path, "a[n=2,float64,cpu]") == ["a[n=2,float64,cpu]@eager", "a[n=2,float64,cpu]@inductor"]
    assert chosen(tmp_path, "a[n=2,float64,cpu]@eager") == ["a[n=2,float64,cpu]@eager"]


def test_several_node_ids_of_a_file_add_up_and_the_file_itself_is_all_of_it(tmp_path: Path) -> None:
    assert len(chosen(tmp_path, "ab", "a[n=1,float32,cpu]@eager")) == 5
    assert len(chosen(tmp_path, "ab", "")) == 12
    assert len(chosen(tmp_path, "", "ab")) == 12


def test_node_ids_leave_other_files_alone(tmp_path: Path) -> None:
    one, two = written(tmp_path, TEXT, "one.spec.yaml"), written(tmp_path, TEXT, "two.spec.yaml")
    found = loaded(Path(f"{one}::ab"), two)
    assert [v.case.file for v in found.variants].count(str(one)) == 2
    assert [v.case.file for v in found.variants].count(str(two)) == 6


def test_every_id_names_itself_alone_whatever_its_values_look_like(tmp_path: Path) -> None:
    keys = 'params: {s: ["x[1]@y", "x", "x[1]", "x::y"]}, inputs: {x: [2]}, chain: [{torch.einsum: [$s, $x]}]'
    path = written(tmp_path, f"cases:\n  - {{name: a, {keys}}}\n")
    ids = [v.id for v in loaded(path).variants]
    assert len(ids) == 4
    for own in ids:
        assert [v.id for v in loaded(Path(f"{path}::{own.partition('::')[2]}")).variants] == [own]


@pytest.mark.parametrize(
    ("node", "hint"),
    [
        ("abc", "did you mean 'ab'?"),
        ("a[n=3,float32,cpu]@eager", "did you mean 'a[n=2,float32,cpu]@eager'?"),
        ("zzz", ""),
        ("", ""),
        ("a[n=1", None),
        ("a[n=1,float32,cpu]@", None),
    ],
)
def test_a_node_id_that_names_nothing_is_refused(tmp_path: Path, node: str, hint: str | None) -> None:
    path = written(tmp_path, TEXT)
    with pytest.raises(InputError) as caught:
        load([f"{path}::a", f"{path}::{node}"], backends=["eager"])
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message == f"no case matches {node!r}"
    assert hint is None or diagnostic.hint == hint


def test_each_file_is_read_once_for_its_carets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = "".join(f"  - {{name: c{n}, inputs: {{x: [2]}}, chain: [F.relu]}}\n" for n in range(20))
    path = written(tmp_path, "cases:\n" + cases)
    read, lines = [], module._lines

    def counted(file: str) -> list[str]:
        read.append(file)
        return lines(file)

    monkeypatch.setattr(module, "_lines", counted)
    assert len(loaded(path).variants) == 20
    assert read == [str(path)]
