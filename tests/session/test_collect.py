"""``runner.session.collect``: what node ids choose, and what it says of those that choose nothing."""

# ruff: noqa: RUF001 - letters that look alike are what is tested

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.cases.suites import PathError
from runner.cases.torch_names import PLANTED, WRITING, own_names
from runner.diagnostics import Diagnostic, InputError
from runner.exit_codes import UsageError
from runner.session import collect as module
from runner.session.collect import load
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
    selection = load([f"{path}::{node}" if node else str(path) for node in nodes], backends=["eager", "inductor"])
    assert selection.errors == []
    return [v.id.rpartition("::")[2] for v in selection.variants]


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
    first, second = written(tmp_path, TEXT, "one.spec.yaml"), written(tmp_path, TEXT, "two.spec.yaml")
    selection = loaded(Path(f"{first}::ab"), second)
    assert [v.case.file for v in selection.variants].count(str(first)) == 2
    assert [v.case.file for v in selection.variants].count(str(second)) == 6


def test_every_id_names_itself_alone_whatever_its_values_look_like(tmp_path: Path) -> None:
    keys = 'params: {s: ["x::y", "x", "x y", "x,y"]}, inputs: {x: [2]}, chain: [{torch.einsum: [$s, $x]}]'
    path = written(tmp_path, f"cases:\n  - {{name: a, {keys}}}\n")
    ids = [v.id for v in loaded(path).variants]
    assert len(ids) == 4
    for own in ids:
        assert [v.id for v in loaded(Path(f"{path}::{own.partition('::')[2]}")).variants] == [own]


def fold(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with two spec files, and one below it; the current one."""
    for name in ("one.spec.yaml", "two.spec.yaml", "sub/three.spec.yaml"):
        (folder / "fold" / name).parent.mkdir(parents=True, exist_ok=True)
        case = name.rpartition("/")[2].partition(".")[0]
        cases = "".join(f"  - {{name: {case}{n}, inputs: {{x: [2]}}, chain: [F.relu]}}\n" for n in "ab")
        (folder / "fold" / name).write_text(f"cases:\n{cases}")
    monkeypatch.chdir(folder / "fold")


def names(*paths: str) -> list[str]:
    return [variant.case.name for variant in load(paths).variants]


@pytest.mark.parametrize("path", ["", ".", "./", "../fold", "../fold/"])
def test_a_folder_and_a_case_select_that_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    fold(tmp_path, monkeypatch)
    assert names(f"{path}::onea") == ["onea"]
    assert names(f"{path}::threeb[float32,cpu]@inductor") == ["threeb"]
    assert names(f"{path}::onea", f"{path}::twob") == ["onea", "twob"]
    with pytest.raises(InputError, match="no case matches 'onec'"):
        load([f"{path}::onec"])


def test_an_error_names_the_cases_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fold(tmp_path, monkeypatch)
    with pytest.raises(InputError) as caught:
        load(["two.spec.yaml::missing"])
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.hint, Path(diagnostic.span.file).name) == ("cases there: twoa, twob", "two.spec.yaml")
    with pytest.raises(InputError) as caught:
        load(["one.spec.yaml::onebb"])
    assert (caught.value.diagnostics[0].hint, caught.value.diagnostics[0].span.line) == ("did you mean 'oneb'?", 3)


def test_a_folder_as_a_whole_and_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fold(tmp_path, monkeypatch)
    assert len(names(".", "::onea")) == 6  # the folder as a whole leaves nothing out
    assert names("sub", "::onea") == ["threea", "threeb", "onea"]
    assert names("sub", "::threea") == ["threea", "threeb"]
    assert names(".", "one.spec.yaml::onea").count("oneb") == 0  # as ever: a file's names leave out its other cases
    with pytest.raises(InputError, match="no case matches 'onea'"):  # it is in another file
        load(["sub::onea", "one.spec.yaml::onea"])


def test_a_folders_suites_are_what_its_cases_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fold(tmp_path, monkeypatch)
    (tmp_path / "fold" / "s.suite.yaml").write_text("suite: s\nspecs: [one.spec.yaml]\nbackends: [eager, aot_eager]\n")
    assert [v.backend.name for v in load(["::onea"]).variants] == ["eager", "aot_eager"]
    assert names("s.suite.yaml::oneb") == ["oneb", "oneb"]
    with pytest.raises(InputError, match="no case matches 'twoa'"):
        load(["::twoa"])


def test_what_exists_decides_where_a_path_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fold(tmp_path, monkeypatch)
    (tmp_path / "fold" / "sub").rename(tmp_path / "fold" / "s::b")
    (tmp_path / "fold" / "s").mkdir()
    assert names("s::b") == ["threea", "threeb"]
    assert names("s::b::threea") == ["threea"]
    assert names("s::b/three.spec.yaml::threea") == ["threea"]
    for path in ("none::a", "none.spec.yaml::a", "./none::x.yaml::a"):
        with pytest.raises(PathError, match=r"no such file or directory: (./)?none"):
            load([path])
    with pytest.raises(PathError, match="an empty path"):
        load(["one.spec.yaml", ""])


def test_a_name_that_is_missing_beside_a_broken_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fold(tmp_path, monkeypatch)
    (tmp_path / "fold" / "bad.spec.yaml").write_text("cases: [{name: bad, inputs: {x: [2]}, chain: [torch.nge]}]\n")
    with pytest.raises(InputError) as caught:
        load(["::zzz"])
    assert [d.message.partition(" '")[0] for d in caught.value.diagnostics] == [
        "unknown operator", "no case that can be read matches",
    ]  # fmt: skip
    selection = load(["::onea", "::bad"])  # it is there, and its own error says why it does not run
    assert [v.case.name for v in selection.variants] == ["onea"] and len(selection.errors) == 1


@pytest.mark.parametrize(
    ("node", "hint"),
    [
        ("abc", "did you mean 'ab'?"),
        ("a[n=3,float32,cpu]@eager", "did you mean 'a[n=2,float32,cpu]@eager'?"),
        ("zzz", "cases there: a, ab"),
        ("", "cases there: a, ab"),
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


# --- backends of files ------------------------------------------------------------------------


def with_backend(folder: Path, backend: str, **options: Any) -> tuple[list[str], list[Diagnostic]]:
    """Names of the backends that would run, and what is wrong; the suite's other backend is eager."""
    written(folder, TEXT)
    path = written(folder, f"suite: s\nspecs: [a.spec.yaml]\nbackends:\n  - eager\n  - {backend}\n", "s.suite.yaml")
    result = load([str(path)], **options)
    return sorted({v.backend.backend for v in result.variants}), [*result.diagnostics]


@pytest.mark.parametrize(
    "name",
    ["os:system", "torch:os.system", "torch._inductor.debug:save_args_for_compile_fx_inner", "subprocess:run", "my_package:my_backend",
     "runner.worker.planted:torch.hub.load", "runner.worker.planted:os.abort", "runner.worker.planted:", "dynamo_minifier_backend",
     "dynamo_accuracy_minifier_backend", "a:b:c", ":system", "os:", "a b:c", "os.:system", "tｏrch:compile"],
)  # fmt: skip
def test_a_file_can_name_no_function(tmp_path: Path, name: str) -> None:
    for written_as in (f'"{name}"', f'{{name: mine, backend: "{name}"}}'):
        chosen, diagnostics = with_backend(tmp_path, written_as)
        assert chosen == ["eager"], "what is beside it runs"
        (diagnostic,) = diagnostics
        assert diagnostic.severity == "error" and diagnostic.message.startswith(f"backend {name!r} is refused: ")
        assert diagnostic.hint and diagnostic.span.line == 5
        assert diagnostic.span.column == diagnostic.text.index('"') + 1


@pytest.mark.parametrize("name", sorted({*own_names(), *PLANTED, "one_of_an_installed_package"} - WRITING - {"eager"}))
def test_a_file_can_name_what_torch_or_a_package_registers(tmp_path: Path, name: str) -> None:
    assert with_backend(tmp_path, name) == (sorted(["eager", name]), [])


def test_a_function_that_is_typed_or_allowed_is_the_person_s_business(tmp_path: Path) -> None:
    assert with_backend(tmp_path, "'my:own'", backends=["my:own"]) == (["my:own"], [])
    assert with_backend(tmp_path, "'my:own'", allow_python=True) == (["eager", "my:own"], [])
    assert with_backend(tmp_path, "dynamo_minifier_backend", allow_python=True)[1] == []
    assert with_backend(tmp_path, "'my own:x'", allow_python=True)[0] == ["eager"], "it is no function's name"


def test_a_name_of_the_command_line_does_not_open_another_backend_of_that_name(tmp_path: Path) -> None:
    for name in ("inductor", "mine"):
        chosen, (diagnostic,) = with_backend(tmp_path, f"{{name: '{name}', backend: 'os:system'}}", backends=[name])
        assert chosen == [] and diagnostic.message.startswith("backend 'os:system' is refused")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the name is empty"),
        ("a:b:c", "it is no package:function"),
        (":f", "it is no package:function"),
        ("os:", "it is no"),
    ],
)
def test_what_is_typed_must_be_a_name(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        load([str(written(tmp_path, TEXT))], backends=[name])


def test_validate_warns_of_a_name_that_torch_lacks(tmp_path: Path) -> None:
    _, (diagnostic,) = with_backend(tmp_path, "indutcor", everything=True)
    assert (diagnostic.severity, diagnostic.hint) == ("warning", "did you mean 'inductor'?")
    assert diagnostic.message == "torch has no backend 'indutcor' of its own"
    assert with_backend(tmp_path, "inductor", everything=True)[1] == []


def test_the_runner_s_own_broken_backends_are_functions_of_that_module() -> None:
    from runner.selftest import BUGS

    named = {bug.backend for bug in BUGS if ":" in bug.backend} | {bug.twin for bug in BUGS if ":" in bug.twin}
    assert named == set(PLANTED)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("{name: a, inputz: {x: [4]}, chain: [torch.relu]}", "unknown key 'inputz'"),
        ("{name: a, module: {file: m.py, name: M}, inputs: {x: [4]}}", "case 'a' brings Python of its own"),
    ],
)
def test_what_is_wrong_with_a_case_behind_a_profile_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.suite.yaml").write_text("suite: p\nbackends: [{name: vendor, backend: eager, fullgraph: true}]\n")
    Path("a.spec.yaml").write_text(f"cases:\n  - {case}\n")
    Path("m.py").write_text("")
    with pytest.raises(InputError) as error:
        load(["p.suite.yaml::a.spec.yaml::a@vendor"])
    assert [diagnostic.message for diagnostic in error.value.diagnostics] == [message]
