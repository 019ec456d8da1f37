"""A round over a generator and a run that start no process: what is kept of red results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.contract.lines import Lines
from runner.generate.generator import GeneratedCase, Parents
from runner.hunt import rounds
from runner.hunt.groups import CASE, SCRIPT, Ledger, folder_of, spec_of
from runner.hunt.rounds import Guidance, Rounds, _limited
from runner.hunt.state import Round
from runner.record.events import Event, VariantFinished
from runner.session.plan import Planned
from runner.session.settings import RunSettings
from tests.handmade import Answer, environment, finding, played
from tests.hunt.samples import HEAD

Answers = dict[str, Answer]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Round]:
    """Run round 3 with these answers by the names of cases; the other cases pass."""

    def run_round(
        answers: Answers, seen: Callable[[str], bool] = lambda key: False, guidance: Guidance | None = None,
        reached: Mapping[str, tuple[str, ...]] = {}, **end: Any,
    ) -> Round:  # fmt: skip
        class Generator:
            def __init__(self, *arguments: Any) -> None: ...

            def find_operators(self) -> list[str]:
                return ["F.relu", "torch.sin"]

            def draw_planned(
                self,
                numbers: range,
                operators: list[str],
                again: str,
                mutants: Mapping[int, Any],
                tick: Callable[[], None],
            ) -> list[GeneratedCase]:
                assert again == "round 3 of a guided hunt"
                return [*self.draw(numbers, tick), *(GeneratedCase(number, data) for number, data in mutants.items())]

            def draw(self, numbers: range, tick: Callable[[], None]) -> list[GeneratedCase]:
                tick()
                data = {"inputs": {"x": [4]}, "chain": ["F.relu", "torch.sin"]}
                return [GeneratedCase(number, {"name": f"case_{number}", **data}) for number in numbers if number % 2]

        def run_plan(planned: Any, settings: RunSettings, tick: Any) -> Iterator[Event]:
            chosen = [each.variant for each in planned.planned]
            assert settings.coverage == (guidance is not None) and not settings.coverage_lines
            tick([])
            for event in played(
                chosen, ["2.13.0"], lambda variant, torch: answers.get(variant.case.name, "PASS"), **end
            ):
                if isinstance(event, VariantFinished):
                    event = replace(event, reached=reached.get(event.case.rpartition("::")[2], ()))
                yield event

        monkeypatch.setattr(rounds, "LocalEngine", lambda *arguments, **more: SimpleNamespace(close=lambda: None))
        monkeypatch.setattr(rounds, "CaseGenerator", Generator)
        monkeypatch.setattr(
            rounds, "plan", lambda loaded, settings: SimpleNamespace(planned=[Planned(v, environment()) for v in loaded.variants])
        )  # fmt: skip
        monkeypatch.setattr(rounds, "run_plan", run_plan)
        with Rounds(tmp_path, HEAD, environment(), RunSettings(jobs=1), Ledger(), lambda text: None, guidance) as made:
            return made.run(3, seen)

    return run_round


def test_the_first_case_of_a_new_group_is_kept_with_its_script(run: Callable[..., Round], tmp_path: Path) -> None:
    wrong = finding("value")
    done = run({"case_33": wrong, "case_37": wrong, "case_39": finding("stride")})
    assert (done.round, done.cases, done.variants, done.verdicts) == (3, 5, 5, {"PASS": 2, "FAIL": 3})
    assert [(red.number, red.oracle, red.stage) for red in done.red] == [
        (33, "value", "inductor"), (37, "value", "inductor"), (39, "stride", "inductor"),
    ]  # fmt: skip
    first, second, third = done.red
    assert first.signature_id == second.signature_id != third.signature_id
    assert first.id == "rounds/00003.spec.yaml::case_33[float32,cpu]@inductor"
    own = folder_of(tmp_path, first.signature_id)
    assert "name: case_33" in (own / CASE).read_text(encoding="utf-8")
    compile((own / SCRIPT).read_text(encoding="utf-8"), SCRIPT, "exec")
    text = spec_of(tmp_path, 3).read_text(encoding="utf-8")
    assert [number for number in range(30, 40) if f"case_{number}" in text] == [33, 37, 39], (
        "a seed draws the others again"
    )


def test_a_green_round_leaves_no_file(run: Callable[..., Round], tmp_path: Path) -> None:
    assert run({}).red == ()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_group_that_is_there_or_known_gets_no_folder(run: Callable[..., Round], tmp_path: Path) -> None:
    done = run({"case_33": finding("value")}, lambda key: True)
    assert len(done.red) == 1 and not folder_of(tmp_path, done.red[0].signature_id).exists()


def test_a_result_without_a_failure_keeps_its_case_and_has_no_script(run: Callable[..., Round], tmp_path: Path) -> None:
    [red] = run({"case_31": "VACUOUS"}).red
    own = folder_of(tmp_path, red.signature_id)
    assert [path.name for path in own.iterdir()] == [CASE]


def test_an_interrupted_round_does_not_count(run: Callable[..., Round]) -> None:
    with pytest.raises(KeyboardInterrupt):
        run({"case_33": finding("value")}, exit_code=2, interrupted=True)


def test_a_guided_round_keeps_the_cases_that_reached_something_first(run: Callable[..., Round], tmp_path: Path) -> None:
    guided = Guidance(7, Parents(()), {"step F.relu", "step torch.sin", "lowering aten.sin"})
    reached = {
        "case_31": ("lowering aten.sin",),
        "case_33": ("lowering aten.sin", "lowering aten.relu"),
        "case_35": ("lowering aten.relu",),
    }
    done = run({"case_37": finding("value"), "case_39": finding("value")}, guidance=guided, reached=reached)
    assert done.reached == ("lowering aten.relu", "pair F.relu torch.sin")
    assert done.parents == (33, 37), "case_31 has nothing but a new pair, and case_39 fails as case_37 does"
    text = spec_of(tmp_path, 3).read_text(encoding="utf-8")
    assert [number for number in range(30, 40) if f"case_{number}" in text] == [33, 37, 39]
    assert [case["name"] for case in guided.own] == ["case_33", "case_37"]
    assert guided.reached >= {"lowering aten.relu", "pair F.relu torch.sin"}
    later = guided.plan(4, range(40, 50), [])
    assert len(later.mutants) == 5


def test_a_line_of_the_compiler_that_no_case_had_makes_a_parent(run: Callable[..., Round]) -> None:
    guided = Guidance(7, Parents(()), {"step F.relu", "step torch.sin"}, Lines(["line a.py:1-5"]))
    reached = {
        "case_31": ("line a.py:2-5",),
        "case_33": ("line a.py:4-7", "line b.py:1"),
        "case_35": ("line a.py:6", "line b.py:1"),
    }
    done = run({}, guidance=guided, reached=reached)
    assert done.reached == ("line a.py:6-7", "line b.py:1", "pair F.relu torch.sin")
    assert done.parents == (33,)
    assert guided.lines.texts() == ["line a.py:1-7", "line b.py:1"]
    resumed = Guidance(7, Parents(()))
    resumed.learn(done.reached, [])
    assert resumed.lines.texts() == ["line a.py:6-7", "line b.py:1"] and resumed.reached == {"pair F.relu torch.sin"}


def test_a_hunt_without_guidance_keeps_no_parents(run: Callable[..., Round]) -> None:
    done = run({"case_37": finding("value")}, reached={"case_33": ("lowering aten.relu",)})
    assert (done.reached, done.parents) == ((), ())


def test_a_hunt_bounds_the_time_of_its_cases_but_for_those_that_have_a_bound() -> None:
    case = GeneratedCase(0, {"name": "one", "chain": ["torch.sin"]})
    assert _limited(case, 0.0) is case
    assert _limited(case, 10.0).data == {**case.data, "timeout": 10.0}
    assert _limited(replace(case, data={**case.data, "timeout": "5s"}), 10.0).data["timeout"] == "5s"
