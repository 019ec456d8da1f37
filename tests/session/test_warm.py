"""Runs in processes that stay warm: when these start anew, and that no verdict depends on it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.engine.fingerprint import Fingerprint
from runner.engine.kept import keepers, stop_all
from runner.exit_codes import INTERRUPTED, OK
from runner.record.events import Event, Notice, RunFinished, RunStarted, VariantFinished, VariantPlanned
from runner.session import warm
from runner.session.collect import collect
from runner.session.run import Plan, StopRun, Ticker, plan, run
from runner.session.settings import RunSettings
from runner.session.warm import WarmSession, fingerprints_of
from tests.black_box.driver import REPOSITORY, spec, write
from tests.black_box.stand_in import FILES

CASE = "name: {name}\ninputs: {{x: [4]}}\nchain: [F.relu]"
RIGHT = "def compile_graph(graph, inputs):\n    return graph.forward\n"
WRONG = "def compile_graph(graph, inputs):\n    return lambda *inputs: [out + 1 for out in graph(*inputs)]\n"


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two cases, whose workers have a stand-in for torch."""
    write(tmp_path / "stand_in", FILES)
    folder = tmp_path / "cases"
    write(folder, {"a.spec.yaml": spec(CASE.format(name="a"), CASE.format(name="b"))})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stand_in"))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def session(stand_in: Path) -> Iterator[WarmSession]:
    with WarmSession(RunSettings(backend=("eager",), jobs=1, confirm=False)) as session:
        yield session


def plan_of(session: WarmSession, *paths: str) -> Plan:
    return plan(collect(paths or ["a.spec.yaml"], session.settings), session.settings)


def ran(
    session: WarmSession, digest: str = "one", past: Sequence[Event] = (), tick: Ticker | None = None, **fields: Any
) -> list[Event]:
    return [*session.run(plan_of(session), {"0": Fingerprint(digest, **fields)}, past, tick)]


def verdicts(events: Sequence[Event]) -> list[str]:
    return [event.verdict for event in events if isinstance(event, VariantFinished)]


def test_one_start_serves_many_runs(session: WarmSession) -> None:
    assert session.starts == 0
    for _ in range(3):
        assert verdicts(ran(session)) == ["PASS", "PASS"]
    assert session.starts == 1


def test_what_has_a_verdict_does_not_run(session: WarmSession) -> None:
    events = ran(session)
    past = [e for e in events if isinstance(e, (RunStarted, VariantPlanned)) or (isinstance(e, VariantFinished) and "::a" in e.id)]  # fmt: skip
    later = [event.id for event in ran(session, past=past) if isinstance(event, VariantFinished)]
    assert later == ["a.spec.yaml::b[float32,cpu]@eager"]


def remove_compiled_code(folder: Path, patch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(folder.parent / "compiled")


def ask_for_more(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(warm, "warmth", lambda variants: "inductor")


@pytest.mark.parametrize("change", [remove_compiled_code, ask_for_more])
def test_processes_start_anew_where_they_no_longer_fit(
    change: Callable[[Path, pytest.MonkeyPatch], None], stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stand_in.parent / "compiled").mkdir(mode=0o700)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(stand_in.parent / "compiled"))
    with WarmSession(RunSettings(backend=("eager",), jobs=1)) as session:
        for _ in range(2):
            ran(session)
        assert session.starts == 1
        change(stand_in, monkeypatch)
        for _ in range(2):
            assert verdicts(ran(session)) == ["PASS", "PASS"]
        assert session.starts == 2


def test_another_fingerprint_is_another_start(session: WarmSession) -> None:
    for digest, starts in (("one", 1), ("two", 2), ("two", 2), ("one", 3)):
        assert verdicts(ran(session, digest)) == ["PASS", "PASS"]
        assert session.starts == starts


def test_what_no_digest_covers_is_never_kept(session: WarmSession) -> None:
    gaps = "the torch in /x is not an installed one"
    for starts in (1, 2):
        notices = [event.message for event in ran(session, dirty=gaps, gaps=gaps) if isinstance(event, Notice)]
        assert session.starts == starts
        assert f"processes start anew for each run, since nobody can tell what changes: {gaps}" in notices
    for _ in range(2):
        ran(session, "two", dirty="TORCH_LOGS set")
    assert session.starts == 3, "a variable of this process stays as it is"


def test_a_run_that_is_stopped_leaves_the_processes(session: WarmSession) -> None:
    seen: list[str] = []

    def tick(running: list[tuple[str, float, str]]) -> None:
        seen.extend(name for name, *_ in running)
        if seen:
            raise StopRun

    events = ran(session, tick=tick)
    (end,) = (event for event in events if isinstance(event, RunFinished))
    assert (end.exit_code, end.interrupted, verdicts(events)) == (INTERRUPTED, True, [])
    events = ran(session)
    assert verdicts(events) == ["PASS", "PASS"] and session.starts == 1
    assert isinstance(events[-1], RunFinished) and events[-1].exit_code == OK


def test_after_an_error_of_the_harness_all_starts_anew(session: WarmSession) -> None:
    def tick(running: list[tuple[str, float, str]]) -> None:
        raise ValueError("a defect")

    ran(session)
    with pytest.raises(ValueError, match="a defect"):
        ran(session, tick=tick)
    ran(session)
    assert session.starts == 2


# --- verdicts, with torch ---


def said(events: Sequence[Event]) -> Mapping[str, tuple[str, str, tuple[str, ...]]]:
    """The verdict, the signature and the kinds of difference of each variant."""
    finished = (event for event in events if isinstance(event, VariantFinished))
    return {event.id: (event.verdict, event.signature, event.oracles) for event in finished}


def compare(path: str, settings: RunSettings) -> None:
    """Hold a run in new processes against two in one set of warm ones, and two that begin in kept ones."""
    planned = plan(collect([path], settings), settings)
    expected = said([*run(planned, settings)])
    assert len(expected) == len(planned.planned) > 0
    with WarmSession(settings) as session:
        for _ in range(2):
            assert said([*session.run(planned, fingerprints_of(planned))]) == expected
        assert session.starts == 1
    keeping = replace(settings, keep_warm=True)
    try:
        for _ in range(2):
            assert said([*run(planned, keeping)]) == expected
            processes = {*keepers().values()}
            assert processes
        assert {*stop_all()} == processes
    finally:
        stop_all()


@pytest.fixture
def short_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder for caches with a path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="k-", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        yield


@pytest.mark.slow
def test_a_living_process_does_not_keep_code_of_a_persons_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.spec.yaml": spec(CASE.format(name="a"))})
    monkeypatch.chdir(tmp_path)
    settings = RunSettings(backend=("acme:compile_graph",), isolation="living", jobs=1, confirm=False)
    with WarmSession(settings) as session:
        for code, verdict in ((RIGHT, "PASS"), (WRONG, "FAIL"), (RIGHT, "PASS")):
            (tmp_path / "acme.py").write_text(code)
            assert verdicts(ran(session)) == [verdict]
        assert session.starts == 1


def test_warm_processes_say_what_new_ones_say(tmp_path: Path, short_home: None) -> None:
    bugs = ("runner.worker.planted:wrong_element", "runner.worker.planted:segfaults")
    linear = "name: a\ninputs: {x: [4, 8]}\nchain: [{nn.Linear: [8, 8]}, F.gelu, {F.softmax: {dim: -1}}]"
    write(tmp_path, {"a.spec.yaml": spec(linear)})
    compare(str(tmp_path / "a.spec.yaml"), RunSettings(backend=("aot_eager", *bugs), confirm=False))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["smoke", "regressions"])
def test_warm_processes_say_of_a_suite_what_new_ones_say(name: str, short_home: None) -> None:
    compare(str(REPOSITORY / "suites" / f"{name}.suite.yaml"), RunSettings(recompile=True))
