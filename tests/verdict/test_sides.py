"""What pairs with what: two runs, two versions of torch, two backends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from runner.exit_codes import UsageError
from runner.record.events import Event, RunFinished
from runner.record.store import Log
from runner.verdict.difference import Pairing, Side, sides
from tests.report.events_sample import FILE, finished, planned, started


def log(path: str, *results: tuple[str, str, str], end: Sequence[Event] = (RunFinished(0, 1.0),)) -> Log:
    """A run of (name, backend, torch)."""
    events = [finished("PASS", name, backend, torch) for name, backend, torch in results]
    return Log(Path(path), [started(run=path), *events, *end])


OLD = log("old", ("a", "inductor", "2.6.0"), ("b", "inductor", "2.6.0"))
NEW = log("new", ("b", "inductor", "2.13.0"), ("c", "inductor", "2.13.0"))
BOTH = log(
    "both",
    *((name, backend, torch) for name in "ab" for backend in ("eager", "inductor") for torch in ("2.6.0", "2.13.0")),
)


def paired(old: Side, new: Side) -> set[Pairing]:
    return old.results.keys() & new.results.keys()


def variant(name: str, backend: str = "inductor") -> str:
    return f"{FILE}::{name}[float32,cpu]@{backend}"


def test_two_runs_of_a_version_each_pair_by_id() -> None:
    old, new, names = sides(OLD, NEW)
    assert paired(old, new) == {(variant("b"), "")}
    assert [*names.values()] == [variant("b"), variant("c"), variant("a")]
    assert (old.torches, new.torches, old.run, new.log) == (("2.6.0",), ("2.13.0",), "old", "new")


def test_two_versions_of_one_run_pair_by_id() -> None:
    old, new, names = sides(BOTH, BOTH, ("2.6.0", "2.13.0"))
    assert len(names) == len(paired(old, new)) == 4
    assert {e.torch for e in old.results.values()} == {"2.6.0"} and {e.torch for e in new.results.values()} == {"2.13.0"}  # fmt: skip


def test_two_backends_of_one_run_pair_by_label_and_version() -> None:
    old, new, names = sides(BOTH, BOTH, backend=("eager", "inductor"))
    assert len(paired(old, new)) == 4
    assert f"{FILE}::a[float32,cpu] torch 2.6.0" in names.values()
    assert (old.backends, new.backends) == (("eager",), ("inductor",))


def test_a_version_and_a_backend_together() -> None:
    _, new, names = sides(BOTH, BOTH, ("2.6", "2.13"), ("eager", "inductor"))
    assert [*names.values()] == [f"{FILE}::a[float32,cpu]", f"{FILE}::b[float32,cpu]"]
    assert {(e.torch, e.backend) for e in new.results.values()} == {("2.13.0", "inductor")}


def test_two_runs_of_the_same_versions_pair_version_by_version() -> None:
    old, new, names = sides(BOTH, Log(Path("again"), BOTH.events))
    assert len(paired(old, new)) == 8
    assert f"{variant('a')} torch 2.6.0" in names.values()


def test_a_version_picks_a_side_of_a_run_with_several() -> None:
    old, new, _ = sides(BOTH, NEW, ("2.6", "2.13"))
    assert paired(old, new) == {(variant("b"), "")}


@pytest.mark.parametrize(
    ("old", "new", "torch", "backend", "message"),
    [
        (BOTH, BOTH, None, None, "both sides are one.*torch 2.6.0, 2.13.0 and backend eager, inductor"),
        (BOTH, BOTH, ("2.6", "2.6.0"), None, "both sides are one"),
        (BOTH, NEW, None, None, "nothing says which torch pairs with which.*both has.*new has"),
        (OLD, NEW, ("2.6", "2.6"), None, "--torch 2.6: no such version here: new has torch 2.13.0"),
        (BOTH, BOTH, ("2", "2.13.0"), None, "2.6.0 and 2.13.0 both fit"),
        (BOTH, BOTH, ("old", "2.13.0"), None, "--torch old: no such version"),
        (OLD, NEW, None, ("inductor", "eager"), "--backend eager: no such backend here: new has"),
        (OLD, Log(Path("new"), [started()]), None, ("inductor", "inductor"), "new has no variant"),
    ],
)
def test_what_does_not_pair_is_refused(
    old: Log, new: Log, torch: tuple[str, str] | None, backend: tuple[str, str] | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        sides(old, new, torch, backend)
    assert caught.value.code == 4


def test_what_a_run_left_undone_is_counted() -> None:
    undone = Log(Path("new"), [started(), planned("a"), planned("b"), finished("PASS", "a"), RunFinished(2, 1.0, True)])
    _, new, names = sides(OLD, undone)
    assert (new.unfinished, new.whole, len(new.results)) == (1, False, 1)
    assert variant("b") in names.values()
    assert not sides(OLD, log("new", ("a", "inductor", "2.13.0"), end=()))[1].whole
    assert sides(OLD, NEW)[1].whole
