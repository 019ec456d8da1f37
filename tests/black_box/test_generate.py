"""``runner generate``: the same files for the same seed, which are valid and pass under eager."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .driver import Result, run_in

pytest.importorskip("torch")


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}


def draw(folder: Path, slots: int) -> dict[str, str]:
    """Draw four cases into ``folder``, which is made; the files."""
    result = run_in(folder.parent, "generate", "--seed", 5, "--count", 4, "-o", folder.name, "-j", slots, limit=600)
    assert result.code == 0, result.err
    assert f"{folder.name}/wide_5.suite.yaml: 4 cases of " in result.out
    return files(folder)


@pytest.fixture(scope="module")
def drawn_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with four drawn cases."""
    folder = tmp_path_factory.mktemp("drawn") / "one"
    draw(folder, slots=1)
    return folder


@pytest.mark.slow
def test_a_seed_gives_the_same_valid_cases_again(drawn_folder: Path, tmp_path: Path) -> None:
    assert files(drawn_folder) == draw(tmp_path / "two", slots=2)
    assert run_in(drawn_folder.parent, "validate", "one").out == "4 valid cases, 4 variants, 0 errors, 0 warnings\n"
    judged = run_in(drawn_folder.parent, "run", "one", "--backend", "eager", "-j", 2, limit=600)
    assert judged.code == 0, judged.out
    assert "4 passed" in judged.out


@pytest.mark.nightly
@pytest.mark.slow
def test_a_seed_gives_the_same_cases_under_another_seed_of_hashes(
    run_runner: Callable[..., Result], tmp_path: Path
) -> None:
    """Torch's samples of this operator come in the order of a set, and these two seeds order it differently."""
    for hashes in ("3", "4"):
        words = ("--ops", "torch.meshgrid", "--depth", "1..1", "--seed", 1, "--count", 4, "-o", f"drawn_{hashes}")
        result = run_runner("generate", *words, env={"PYTHONHASHSEED": hashes}, limit=600)
        assert result.code == 0, result.out + result.err
    assert "meshgrid" in "".join(files(tmp_path / "drawn_3").values())
    assert files(tmp_path / "drawn_3") == files(tmp_path / "drawn_4")


@pytest.mark.slow
def test_the_command_in_a_doc_draws_that_case_again(
    drawn_folder: Path, run_runner: Callable[..., Result], tmp_path: Path
) -> None:
    text = (drawn_folder / "wide_5_0.spec.yaml").read_text(encoding="utf-8")
    last = text[text.rindex("  - name: ") :]
    command = last[last.index("runner generate") :].partition(" (generator")[0].split()[1:]
    assert run_runner(*command, "-o", "again", limit=600).code == 0
    assert (tmp_path / "again" / "wide_5_0.spec.yaml").read_text(encoding="utf-8") == "cases:\n" + last


@pytest.mark.slow
def test_operators_that_read_values_are_drawn(run_runner: Callable[..., Result]) -> None:
    """Their cases are compiled before they are written. That failed in the harness for each of them, and nobody saw it."""
    pytest.importorskip("numpy")
    result = run_runner("generate", "--ops", "torch.nonzero", "--depth", "2..3", "--count", 2, "-o", "drawn", limit=600)
    assert result.code == 0, result.out
    assert "the harness failed" not in result.out


@pytest.mark.slow
def test_a_pattern_selects_operators_and_says_when_none_has_such_a_name(run_runner: Callable[..., Result]) -> None:
    pytest.importorskip("numpy")
    listed = run_runner("generate", "--list-ops", "--ops", "*scatter_add*", limit=600)
    assert listed.out.split() == ["Tensor.scatter_add", "Tensor.scatter_add_", "aten.scatter_add", "torch.scatter_add"]
    wrong = run_runner("generate", "--ops", "torch.index_selec", "-o", "none", limit=600)
    assert wrong.code == 4
    assert "did you mean 'torch.index_select'?" in wrong.err


def test_a_folder_with_files_is_left_alone(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("", encoding="utf-8")
    refused = run_runner("generate", "-o", "full")
    assert refused.code == 4
    assert "there is something in it" in refused.err
