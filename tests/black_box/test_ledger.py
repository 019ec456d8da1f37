"""The ledger around a real run: the warning about a stale entry, the table, the update."""

from __future__ import annotations

from pathlib import Path

import pytest

from .driver import Result, run_in, spec, write

SPEC = spec(
    """
    name: fixed
    inputs: {x: [4]}
    chain: [F.silu]
    known:
      - {stage: dynamo, oracle: [value], reason: "was wrong once"}
    """,
    """
    name: broken
    inputs: {x: [4]}
    chain: [torch.relu]
    known:
      - {stage: backend, oracle: [compile-error], error: AssertionError, reason: "the toy backend raises"}  # as it is
      - {dtype: float16, oracle: [value], reason: "fits nothing"}
    """,
)
SUITE = """
suite: toys
specs: [a.spec.yaml]
backends: [{name: toy, backend: "runner.worker.planted:toy_compiler"}]
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("ledger")
    write(folder, {"a.spec.yaml": SPEC, "s.suite.yaml": SUITE})
    return run_in(folder, "run", "s.suite.yaml", "-j", 2)


def test_a_whole_run_warns_of_a_stale_entry(ran: Result) -> None:
    assert ran.verdicts == {"fixed@toy": "XPASS", "broken@toy": "XFAIL"}
    warnings = [line for line in ran.out.splitlines() if line.startswith("warning:")]
    assert warnings == ["warning: a.spec.yaml:12:9: this known: entry matched nothing: its selectors fit no variant"]
    assert "1 warning" in ran.out
    assert ran.of("broken@toy")["entry"] == f"{ran.cwd / 'a.spec.yaml'}:11:9"
    assert ran.of("fixed@toy")["entry"] == f"{ran.cwd / 'a.spec.yaml'}:6:9"
    assert ran.events[0]["full"] is True


def test_the_states_of_the_latest_run(ran: Result) -> None:
    result = run_in(ran.cwd, "ledger", "s.suite.yaml")
    assert result.code == 1
    assert [line.split()[:2] for line in result.out.splitlines()[2:5]] == [
        ["fixed", "a.spec.yaml:6"], ["stale", "a.spec.yaml:12"], ["matched", "a.spec.yaml:11"],
    ]  # fmt: skip


def test_an_update_from_it(ran: Result) -> None:
    path: Path = ran.cwd / "a.spec.yaml"
    old = path.read_text()
    result = run_in(ran.cwd, "ledger", "s.suite.yaml", "--update", "latest")
    known, entry = old.splitlines(keepends=True)[4:6]
    assert path.read_text() == old.replace(known + entry, "", 1)
    assert f"-{known}-{entry}" in result.out
    assert result.code == 1 and "a.spec.yaml:10:9: stale" in result.err  # which is left to the person
    path.write_text(old)


def test_a_narrowed_run_calls_nothing_stale(ran: Result) -> None:
    result = run_in(ran.cwd, "run", "s.suite.yaml", "-k", "broken", "-j", 1)
    assert result.code == 0 and "warning" not in result.out and result.events[0]["full"] is False
