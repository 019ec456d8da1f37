"""A vendor's ledger in a file of its own: drafted from a red run, written, and told when the backend is mended."""

from __future__ import annotations

from pathlib import Path

import pytest

from .driver import Result, run_in, spec, write

FILES = {
    "a.spec.yaml": spec(
        """
        name: one
        inputs: {x: [4]}
        chain: [F.gelu]
        """,
        """
        name: two
        inputs: {x: [3, 4]}
        dtypes: [float32, float64]
        chain: [F.gelu]
        """,
        """
        name: other
        inputs: {x: [4]}
        chain: [torch.sin]
        """,
    ),
    "acme.suite.yaml": "suite: acme\nspecs: [a.spec.yaml]\nbackends: [acme]\n",
    "acme.py": """
        import torch
        from torch._dynamo.backends.registry import register_backend


        @register_backend
        def acme(graph, inputs):
            for node in graph.graph.nodes:
                if "gelu" in str(node.target):
                    node.target = torch.nn.functional.silu
            graph.recompile()
            return graph.forward
        """,
}
MENDED = FILES["acme.py"].replace("functional.silu", "functional.gelu")
RUN = ("run", "acme.suite.yaml", "--import", "acme", "-j", 2, "--no-confirm")
OF_GELU = ("one[float32,cpu]@acme", "two[float32,cpu]@acme", "two[float64,cpu]@acme")


@pytest.fixture(scope="module")
def red(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("vendor")
    write(folder, FILES)
    return run_in(folder, *RUN)


def verdicts(result: Result) -> dict[str, str]:
    return {name: event["verdict"] for name, event in result.finished.items()}


def expected(word: str) -> dict[str, str]:
    return {"other[float32,cpu]@acme": "PASS"} | dict.fromkeys(OF_GELU, word)


@pytest.fixture(scope="module")
def ledger(red: Result) -> Path:
    """The ledger as a person has written it."""
    assert red.code == 1 and verdicts(red) == expected("FAIL")
    path = red.cwd / "acme.ledger.yaml"
    draft = run_in(red.cwd, "known", "acme.suite.yaml", "--write", path.name)
    assert draft.code == 0 and "1 entry drafted in acme.ledger.yaml" in draft.err
    text = path.read_text()
    assert "  - operators: [F.gelu]\n    stage: backend\n    oracle: [value]\n" in text
    for command in (("validate", path.name), (*RUN, "--ledger", path.name)):
        refused = run_in(red.cwd, *command)
        assert refused.code == 4 and "acme.ledger.yaml:9:13: error: this reason is still to be written" in refused.err
    again = run_in(red.cwd, "known", "acme.suite.yaml", "--write", path.name)
    assert again.code == 0 and "nothing to write" in again.err and path.read_text() == text
    path.write_text(text[: text.index('"TODO')] + "gelu is an approximation here\n")
    assert run_in(red.cwd, "validate", path.name).code == 0
    return path


@pytest.fixture(scope="module")
def green(ledger: Path) -> Result:
    return run_in(ledger.parent, *RUN, "--ledger", ledger.name)


def test_a_written_ledger_makes_the_run_green(green: Result, ledger: Path) -> None:
    assert green.code == 0 and verdicts(green) == expected("XFAIL")
    assert green.of("one@acme")["entry"] == f"{ledger}:3:5"
    states = run_in(ledger.parent, "known", "acme.suite.yaml", "--ledger", ledger.name)
    assert states.code == 0 and "1 entry: 1 matched" in states.out


def test_the_command_about_a_draft_leaves_the_project_file_out(red: Result) -> None:
    project, path = red.cwd / "runner.toml", red.cwd / "other.ledger.yaml"
    project.write_text("allow-python = true\n")
    try:
        draft = run_in(
            red.cwd, "known", "acme.suite.yaml", "--no-project", "--run", str(red.folder), "--write", path.name
        )
    finally:
        project.unlink()
        path.unlink(missing_ok=True)
    assert "; runner validate other.ledger.yaml --no-project says what is left" in draft.err, draft.text


def test_the_score_counts_what_it_explains_as_known(red: Result, ledger: Path) -> None:
    plain = run_in(ledger.parent, "score", str(red.folder))
    known = run_in(ledger.parent, "score", str(red.folder), "--ledger", ledger.name)
    assert "XFAIL" not in plain.out and "3 known" not in plain.out
    words = " ".join(known.out.split())
    assert known.code == 0 and "value 3 (3 known)" in words and "weighed: a failure keeps a part of a pass" in words
    (ledger.parent / "a.spec.yaml").rename(ledger.parent / "away.yaml")
    refused = run_in(ledger.parent, "score", str(red.folder), "--ledger", ledger.name)
    (ledger.parent / "away.yaml").rename(ledger.parent / "a.spec.yaml")
    assert refused.code == 4 and "which cases an entry means is not known here" in refused.err


def test_a_suite_names_it_once(green: Result, ledger: Path) -> None:
    write(ledger.parent, {"own.suite.yaml": FILES["acme.suite.yaml"] + "ledger: acme.ledger.yaml\n"})
    states = run_in(ledger.parent, "known", "own.suite.yaml", "--run", str(green.folder))
    assert states.code == 0 and "1 entry: 1 matched" in states.out


def test_a_mended_backend_is_red_until_the_entry_goes(green: Result, ledger: Path) -> None:
    folder = ledger.parent
    write(folder, {"acme.py": MENDED})
    mended = run_in(folder, "rerun", str(green.folder))
    assert mended.code == 1 and verdicts(mended) == expected("XPASS")
    states = run_in(folder, "known", "acme.suite.yaml", "--ledger", ledger.name)
    assert states.code == 1 and "acme.ledger.yaml:3:5: fixed: passes under torch" in states.out
    update = run_in(folder, "known", "acme.suite.yaml", "--ledger", ledger.name, "--update", "latest")
    assert update.code == 0
    assert "F.gelu" not in ledger.read_text() and "-  - operators: [F.gelu]" in update.out
    rest = run_in(folder, "validate", ledger.name)
    assert rest.code == 0 and "0 entries of ledgers" in rest.out


def test_a_stored_answer_is_judged_by_the_ledger_at_hand(tmp_path: Path) -> None:
    write(tmp_path, {"a.spec.yaml": spec("name: sine\ninputs: {x: [4]}\nchain: [torch.sin]")})
    write(tmp_path, {"acme.ledger.yaml": "known: [{operators: [torch.sin], backend: eager, reason: r}]\n"})
    words = ("run", "a.spec.yaml", "--backend", "eager", "--cached", "-j", 1)
    runs = [run_in(tmp_path, *words, *more) for more in ((), ("--ledger", "acme.ledger.yaml"), ())]
    assert [run.of("sine@eager")["verdict"] for run in runs] == ["PASS", "XPASS", "PASS"]
    assert runs[1].of("sine@eager")["cached"] and runs[1].code == 1


def test_a_run_goes_on_under_its_own_ledger_alone(tmp_path: Path) -> None:
    write(tmp_path, {"a.spec.yaml": spec("name: sine\ninputs: {x: [4]}\nchain: [torch.sin]")})
    path = tmp_path / "acme.ledger.yaml"
    path.write_text("known: [{case: other, reason: r}]\n")
    words = ("run", "a.spec.yaml", "--backend", "eager", "--ledger", path.name, "-j", 1, "--budget", "0.01s")
    first = run_in(tmp_path, *words)
    assert first.code == 2 and first.folder is not None, first.text
    path.write_text("known: [{case: sine, reason: r}]\n")
    refused = run_in(tmp_path, "resume", str(first.folder))
    assert refused.code == 4 and "its cases, a ledger, or the torch under test, have changed" in refused.err
