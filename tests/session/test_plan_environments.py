"""``runner.session.plan``: what the command line and the files name is there before anything runs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from runner.cases.model import Variant
from runner.cases.torch_names import GROUP
from runner.diagnostics import InputError
from runner.engine import interpreters
from runner.exit_codes import UsageError
from runner.session import plan as planning
from runner.session.plan import Environment, checked_environments
from runner.session.settings import RunSettings
from tests.handmade import loaded, variants, written

SUITE = "suite: s\nspecs: [a.spec.yaml]\nbackends: [eager, {name: mine, backend: registered_one}]\n"


def arguments(backends: Sequence[str] = (), imports: Sequence[str] = ()) -> RunSettings:
    return RunSettings(python=("one", "two"), backend=tuple(backends), imports=tuple(imports))


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Two Pythons, the second of which has a package with a backend; the questions that each was asked."""
    questions: list[tuple[str, list[str]]] = []

    def answer(
        python: str, group: str, modules: Sequence[str], folders: Sequence[str]
    ) -> tuple[list[str], dict[str, str]]:
        assert group == "torch_dynamo_backends"
        questions.append((python, [*modules]))
        names = ("registered_one",) if python == "two" else ()
        return [*names], {name: "json" if name == "jsom" else "" for name in modules if name != "json"}

    pythons = [Environment(str(n), name, "2.13.0", "2.13.0+cpu", "3.11") for n, name in enumerate(("one", "two"))]
    monkeypatch.setattr(planning, "find_environments", lambda _: pythons)
    monkeypatch.setattr(planning, "inspect_packages", answer)
    return questions


def test_nothing_is_asked_for_what_torch_has(probes: list[tuple[str, list[str]]], tmp_path: Path) -> None:
    chosen = variants(tmp_path, "", backends=["inductor", "aot_eager_decomp_partition", "triton", "tvm"])
    assert len(checked_environments(arguments(["inductor"]), chosen)) == 2
    assert probes == []


@pytest.mark.parametrize(
    ("backends", "imports", "message"),
    [
        (["nope"], [], "--backend nope: no such backend; torch's own are aot_eager, "),
        (["indutcor"], [], "--backend indutcor: no such backend; did you mean 'inductor'?"),
        (["registered_two"], [], "--backend registered_two: no such backend; did you mean 'registered_one'?"),
        (["nowhere.part:function"], [], "--backend nowhere.part:function: one has no module 'nowhere'"),
        ([], ["jsom.decoder"], "--import jsom.decoder: one has no module 'jsom'; did you mean 'json'?"),
        ([], ["a-b"], "--import a-b: 'a-b' is no name of a module"),
        ([], [""], "--import : '' is no name of a module"),
        ([], ["json", "nosuchmod"], "--import nosuchmod: one has no module 'nosuchmod'"),
    ],
)
def test_what_is_typed_and_not_there(
    backends: list[str], imports: list[str], message: str, probes: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        checked_environments(arguments(backends, imports), variants(tmp_path, "", backends=backends))
    assert str(caught.value).startswith(message) and caught.value.code == 4
    with pytest.raises(UsageError, match=re.escape(message)):  # of cases that are still to be drawn
        checked_environments(arguments(backends, imports), None)


@pytest.mark.parametrize(
    ("backends", "imports"),
    [(["registered_one"], []), (["json:loads"], []), (["nope"], ["json"]), (["eager"], ["json.decoder"])],
)
def test_what_is_typed_and_there(
    backends: list[str], imports: list[str], probes: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    """An imported module may register any name. Of two Pythons one is enough: the other's column says INVALID."""
    assert len(checked_environments(arguments(backends, imports), variants(tmp_path, "", backends=backends))) == 2
    assert len(probes) == 2


def suite_of(folder: Path, text: str) -> tuple[Variant, ...]:
    variants(folder, "")
    return loaded(written(folder, text, "s.suite.yaml")).variants


def test_a_file_may_name_what_an_installed_package_registers(
    probes: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    assert len(checked_environments(arguments(), suite_of(tmp_path, SUITE))) == 2


def test_a_file_that_names_what_nobody_registers(probes: list[tuple[str, list[str]]], tmp_path: Path) -> None:
    chosen = suite_of(tmp_path, SUITE.replace("registered_one", "registered_onr"))
    with pytest.raises(InputError) as caught:
        checked_environments(arguments(), chosen)
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.span.line, diagnostic.span.column, diagnostic.span.length) == (3, 41, len("registered_onr"))
    assert diagnostic.message == "no installed package registers backend 'registered_onr', and it is not torch's own"
    assert diagnostic.hint == "did you mean 'registered_one'?" and "registered_onr" in diagnostic.text


# --- what an interpreter is asked ---------------------------------------------------------------


@pytest.fixture
def trapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """A folder of packages whose import leaves a mark, one of them with an entry point."""
    mark = tmp_path / "imported"
    for name in ("trap_module", "trap_backend"):
        (tmp_path / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')\n")
    metadata = tmp_path / "trap_backend-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: trap-backend\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        f"[{GROUP}]\ntrapped = trap_backend:compile\n[console_scripts]\nx = y:z\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return mark.exists


def test_an_interpreter_says_what_it_has_and_imports_nothing(trapped: Callable[[], bool]) -> None:
    backends, missing = interpreters.inspect_packages(
        sys.executable, GROUP, ["trap_module", "trap_modula", "json", "sys", "zzzzzz"]
    )
    assert "trapped" in backends and "x" not in backends
    assert missing == {"trap_modula": "trap_module", "zzzzzz": ""}
    assert not trapped()


def test_a_folder_of_the_worker_s_path_is_looked_in(tmp_path: Path) -> None:
    (tmp_path / "qqbeside.py").write_text("")
    assert interpreters.inspect_packages(sys.executable, GROUP, ["qqbeside"])[1] == {"qqbeside": ""}
    assert interpreters.inspect_packages(sys.executable, GROUP, ["qqbeside"], [str(tmp_path)])[1] == {}


def test_an_interpreter_that_gives_no_answer(tmp_path: Path) -> None:
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(0o755)
    with pytest.raises(OSError, match="does not say which packages it has"):
        interpreters.inspect_packages(str(silent), GROUP, [])
    with pytest.raises(OSError):
        interpreters.inspect_packages(os.fspath(tmp_path / "nowhere"), GROUP, [])


@pytest.mark.parametrize(
    ("device", "count", "refused"),
    [("cuda:2", 2, True), ("cuda:1", 2, False), ("cuda", 2, False), ("cuda:99", 0, False), ("cpu:9", 2, False)],
)
def test_a_gpu_that_is_typed_and_not_there_is_refused(
    device: str, count: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.session.plan.count_gpus", lambda: count)
    settings = RunSettings(device=(device,))
    if not refused:
        assert checked_environments(settings, ())
        return
    with pytest.raises(UsageError, match="--device cuda:2: no such GPU here; there is cuda:0, cuda:1"):
        checked_environments(settings, ())
