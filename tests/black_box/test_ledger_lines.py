"""The shipped ledger: taking a line out, or putting a false one in, turns the run red."""

from __future__ import annotations

from pathlib import Path

from .driver import run_in, write

SPEC = (Path(__file__).parents[2] / "specs" / "seeds" / "backends.spec.yaml").read_text()
ENTRY = "    known:\n      - {stage: backend, oracle: [compile-error]"
FALSE = '    known:\n      - {stage: dynamo, oracle: [value], reason: "there is no such bug"}\n'
SUITE = """
    suite: "{name}"
    specs: [backends.spec.yaml]
    select: case:relu_between_linears
    backends: [{{name: toy, backend: "runner.worker.planted:toy_compiler"}}, eager]
    """


def copy(folder: Path, name: str, text: str) -> None:
    """Write the toy backend's case and its suite, on their own, below ``folder``."""
    write(folder / name, {"toy.suite.yaml": SUITE.format(name=name)})
    (folder / name / "backends.spec.yaml").write_text(text)


def test_as_shipped_it_is_green(tmp_path: Path) -> None:
    copy(tmp_path, "shipped", SPEC)
    ran = run_in(tmp_path, "run", "shipped")
    assert ran.code == 0 and sorted(e["verdict"] for e in ran.finished.values()) == ["PASS", "XFAIL"]


def test_without_its_line_and_with_a_false_one_it_is_red(tmp_path: Path) -> None:
    assert ENTRY in SPEC
    head, tail = SPEC[: SPEC.index(ENTRY)], SPEC[SPEC.index(ENTRY) + len("    known:\n") :]
    copy(tmp_path, "without", head)
    copy(tmp_path, "false", head + FALSE + tail)
    ran = run_in(tmp_path, "run", ".", "--no-confirm")
    verdicts = {name: [] for name in ("without", "false")}
    for event in ran.events:
        if event["event"] == "variant-finished":
            verdicts[event["id"].partition("/")[0]].append(event["verdict"])
    assert ran.code == 1
    assert {name: sorted(words) for name, words in verdicts.items()} == {
        "without": ["ERROR", "PASS"], "false": ["XFAIL", "XPASS"],
    }  # fmt: skip
