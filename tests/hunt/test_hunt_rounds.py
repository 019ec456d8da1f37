"""A round over a generator and a run that start no process: what is kept of red results, and what is drawn next."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.cases.limits import Limits
from runner.contract.lines import Lines
from runner.files import replace_text
from runner.generate.generator import text_of
from runner.generate.mutations import Case
from runner.hunt import hunt
from runner.hunt.groups import CASE, SCRIPT, Ledger, Round, folder_of, spec_of
from runner.hunt.hunt import Guidance, Rounds, adapted, is_rare, parents_in, reached_by_text
from runner.record.events import Event, VariantFinished
from runner.session.plan import Planned
from runner.session.settings import RunSettings
from tests.handmade import Answer, environment, finding, played
from tests.hunt.samples import HEAD

Answers = Mapping[str, Answer | None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Round]:
    """Run round 3 with these answers by the names of cases; the other cases pass."""

    def run_round(
        answers: Answers, is_known: Callable[[str], bool] = lambda key: False, guidance: Guidance | None = None,
        reached: Mapping[str, tuple[str, ...]] = {}, seconds: float = math.inf, **end: Any,
    ) -> Round:  # fmt: skip
        class Generator:
            def __init__(self, *arguments: Any) -> None: ...

            def find_operators(self, tick: Callable[[], None]) -> list[str]:
                tick()
                return ["F.relu", "torch.sin"]

            def draw(
                self,
                numbers: range,
                tick: Callable[[], None],
                operators: list[str] | None = None,
                again: str = "",
                mutants: Mapping[int, Any] = {},
            ) -> dict[int, Case]:
                tick()
                assert again == ("round 3 of a guided hunt" if guidance else "")
                data = {"inputs": {"x": [4]}, "chain": ["F.relu", "torch.sin"]}
                drawn = {number: {"name": f"case_{number}", **data} for number in numbers if number % 2}
                return {**drawn, **mutants}

        def run_plan(planned: Any, settings: RunSettings, tick: Any) -> Iterator[Event]:
            chosen = [entry.variant for entry in planned.planned]
            assert settings.coverage == (guidance is not None) and not settings.coverage_lines
            tick([])
            assert settings.budget == (None if seconds == math.inf else pytest.approx(max(0.1, seconds), abs=1))
            for event in played(
                chosen, ["2.13.0"], lambda variant, torch: answers.get(variant.case.name, "PASS"), **end
            ):
                if isinstance(event, VariantFinished):
                    event = replace(event, reached=reached.get(event.case.rpartition("::")[2], ()))
                yield event

        monkeypatch.setattr(hunt, "LocalEngine", lambda *arguments, **options: SimpleNamespace(close=lambda: None))
        monkeypatch.setattr(hunt, "CaseGenerator", Generator)
        monkeypatch.setattr(
            hunt, "plan", lambda loaded, settings: SimpleNamespace(planned=[Planned(v, environment()) for v in loaded.variants])
        )  # fmt: skip
        monkeypatch.setattr(hunt, "run_plan", run_plan)
        with Rounds(
            tmp_path, HEAD, environment(), RunSettings(jobs=1), Ledger(), lambda text: None, guidance
        ) as runner:
            return runner.run(3, is_known, time.monotonic() + seconds)

    return run_round


def test_the_first_case_of_a_new_group_is_kept_with_its_script(run: Callable[..., Round], tmp_path: Path) -> None:
    wrong = finding("value")
    result = run({"case_33": wrong, "case_37": wrong, "case_39": finding("stride")})
    assert (result.round, result.cases, result.variants, result.verdicts) == (3, 5, 5, {"PASS": 2, "FAIL": 3})
    assert [(red.number, red.oracle, red.stage) for red in result.red] == [
        (33, "value", "inductor"), (37, "value", "inductor"), (39, "stride", "inductor"),
    ]  # fmt: skip
    first, second, third = result.red
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
    result = run({"case_33": finding("value")}, lambda key: True)
    assert len(result.red) == 1 and not folder_of(tmp_path, result.red[0].signature_id).exists()


def test_a_result_without_a_failure_keeps_its_case_and_has_no_script(run: Callable[..., Round], tmp_path: Path) -> None:
    [red] = run({"case_31": "VACUOUS"}).red
    own = folder_of(tmp_path, red.signature_id)
    assert [path.name for path in own.iterdir()] == [CASE]


def test_an_interrupted_round_does_not_count(run: Callable[..., Round]) -> None:
    with pytest.raises(KeyboardInterrupt):
        run({"case_33": finding("value")}, exit_code=2, interrupted=True)


def test_what_ended_before_the_deadline_counts(run: Callable[..., Round], tmp_path: Path) -> None:
    answers: dict[str, Answer | None] = {"case_31": finding("value")}
    answers |= dict.fromkeys(f"case_{number}" for number in (33, 35, 37, 39))
    done = run(answers, seconds=-1.0, interrupted=True)
    assert (done.cases, done.variants, done.unfinished, len(done.red)) == (5, 1, 4, 1)
    assert run({}, seconds=60.0).unfinished == 0


def test_a_guided_round_keeps_the_cases_that_reached_something_first(run: Callable[..., Round], tmp_path: Path) -> None:
    guided = Guidance(7, (), {"step F.relu", "step torch.sin", "lowering aten.sin"})
    reached = {
        "case_31": ("lowering aten.sin",),
        "case_33": ("lowering aten.sin", "lowering aten.relu"),
        "case_35": ("lowering aten.relu",),
    }
    result = run({"case_37": finding("value"), "case_39": finding("value")}, guidance=guided, reached=reached)
    assert result.reached == ("lowering aten.relu", "pair F.relu torch.sin")
    assert result.parents == (33, 37), "case_31 has nothing but a new pair, and case_39 fails as case_37 does"
    text = spec_of(tmp_path, 3).read_text(encoding="utf-8")
    assert [number for number in range(30, 40) if f"case_{number}" in text] == [33, 37, 39]
    assert [case["name"] for case in guided.own] == ["case_33", "case_37"]
    assert guided.reached >= {"lowering aten.relu", "pair F.relu torch.sin"}
    later = guided.plan(4, range(40, 50), [])
    assert len(later.mutants) == 5


def test_a_line_of_the_compiler_that_no_case_had_makes_a_parent(run: Callable[..., Round]) -> None:
    guided = Guidance(7, (), {"step F.relu", "step torch.sin"}, Lines(["line a.py:1-5"]))
    reached = {
        "case_31": ("line a.py:2-5",),
        "case_33": ("line a.py:4-7", "line b.py:1"),
        "case_35": ("line a.py:6", "line b.py:1"),
    }
    result = run({}, guidance=guided, reached=reached)
    assert result.reached == ("line a.py:6-7", "line b.py:1", "pair F.relu torch.sin")
    assert result.parents == (33,)
    assert guided.lines.texts() == ["line a.py:1-7", "line b.py:1"]
    resumed = Guidance(7, ())
    resumed.learn(result.reached, [])
    assert resumed.lines.texts() == ["line a.py:6-7", "line b.py:1"] and resumed.reached == {"pair F.relu torch.sin"}


def test_a_hunt_without_guidance_keeps_no_parents(run: Callable[..., Round]) -> None:
    result = run({"case_37": finding("value")}, reached={"case_33": ("lowering aten.relu",)})
    assert (result.reached, result.parents) == ((), ())


def test_a_hunt_bounds_the_time_of_its_cases_but_for_those_that_have_a_bound() -> None:
    case: Case = {"name": "one", "chain": ["torch.sin"]}
    assert adapted(case, 0.0, ()) == case
    assert adapted(case, 10.0, ()) == {**case, "timeout": 10.0}
    assert adapted({**case, "timeout": "5s"}, 10.0, ())["timeout"] == "5s"


OPERATORS = ["torch.abs", "torch.cos", "torch.exp", "torch.neg", "torch.sin"]
SMALL: Case = {
    "name": "wide_7_00003",
    "inputs": {"x": [4]},
    "chain": [{"torch.sin": "$x", "out": "y"}, {"torch.mul": ["$y", 2]}],
}


def round_of(number: int, reached: tuple[str, ...], parents: tuple[int, ...]) -> Round:
    return Round(number, 8, 8, 1.0, 1.0, reached=reached, parents=parents)


def test_the_text_of_a_case_says_its_operators_and_which_reads_which() -> None:
    chain = [
        "torch.sin",
        {"torch.sort": "$_", "out": ["low", "_"]},
        {"with": [{"torch.no_grad": []}], "chain": [{"torch.add": ["$low", "$x"], "out": "sum"}]},
        "torch.neg",
        {"torch.mul": ["$low", "$low"]},
    ]
    assert reached_by_text({"chain": chain}) == {
        "step torch.sin", "step torch.sort", "step torch.add", "step torch.neg", "step torch.mul",
        "pair torch.sin torch.sort", "pair torch.sort torch.add", "pair torch.add torch.neg", "pair torch.sort torch.mul",
    }  # fmt: skip


def test_without_a_parent_every_case_is_new_and_any_operator_may_be_drawn() -> None:
    plan = Guidance(7, ()).plan(0, range(10), OPERATORS)
    assert (list(plan.numbers), plan.operators, plan.mutants) == (list(range(10)), OPERATORS, {})


def test_operators_that_no_case_had_come_as_often_as_all_others_together() -> None:
    guided = Guidance(7, (), {"step torch.sin", "step torch.cos", "step torch.abs"})
    for number in range(5):
        operators = guided.plan(number, range(4), OPERATORS).operators
        assert {"torch.exp", "torch.neg"} < set(operators) and len(operators) == 4
    everything = Guidance(7, (), {f"step {name}" for name in OPERATORS})
    assert everything.plan(0, range(4), OPERATORS).operators == OPERATORS


def test_half_of_a_round_are_mutants_of_the_parents() -> None:
    plan = Guidance(7, (SMALL,)).plan(2, range(20, 30), OPERATORS)
    assert list(plan.numbers) == [20, 21, 22, 23, 24]
    assert [*plan.mutants] == [25, 26, 27, 28, 29]
    assert plan.mutants[25]["name"] == "mutant_7_00025"
    assert plan.mutants[25]["doc"].startswith("round 2 of a guided hunt")


def test_a_round_s_plan_depends_on_what_was_learned_alone() -> None:
    first, second = (Guidance(7, (SMALL,), {"step torch.sin"}) for _ in range(2))
    first.plan(0, range(6), OPERATORS)
    assert first.plan(1, range(6, 12), OPERATORS) == second.plan(1, range(6, 12), OPERATORS)
    second.learn(["step torch.neg"], [{**SMALL, "chain": ["torch.neg"]}])
    assert first.plan(1, range(6, 12), OPERATORS) != second.plan(1, range(6, 12), OPERATORS)


def test_of_several_mutants_the_one_with_the_most_pairs_that_no_case_had_is_taken() -> None:
    longer = {**SMALL, "name": "other", "chain": ["torch.cos", "torch.tan", "torch.sinh"]}
    features = reached_by_text(SMALL) | reached_by_text(longer)

    def new_pairs(candidates: int) -> int:
        old_limit, hunt.CANDIDATES = hunt.CANDIDATES, candidates
        try:
            plan = Guidance(7, (), set(features), own=[SMALL, longer]).plan(0, range(200), [])
        finally:
            hunt.CANDIDATES = old_limit
        return sum(len(reached_by_text(mutant) - features) for mutant in plan.mutants.values())

    assert new_pairs(4) > 1.5 * new_pairs(1)


def test_the_cases_that_a_person_names_stay_parents_of_half_the_mutants() -> None:
    own = [{**SMALL, "name": f"own_{number}"} for number in range(100)]
    guided = Guidance(7, ({**SMALL, "name": "given"},), own=own)
    docs = [mutant["doc"] for mutant in guided.plan(0, range(400), []).mutants.values()]
    assert 0.4 < sum("(given: " in doc for doc in docs) / len(docs) < 0.6


def test_a_pair_alone_makes_no_parent() -> None:
    assert not is_rare("pair torch.sin torch.cos")
    assert is_rare("step torch.sin") and is_rare("lowering aten.sin") and is_rare("pass binary_folding")


def test_a_hunt_that_goes_on_knows_what_it_knew(tmp_path: Path) -> None:
    mutant = {**SMALL, "name": "mutant_7_00004", "chain": ["torch.tan"]}
    replace_text(
        spec_of(tmp_path, 0), text_of([SMALL, mutant, {**SMALL, "name": "wide_7_00005"}, {**SMALL, "name": "by_hand"}])
    )
    history = [round_of(0, ("step torch.sin",), (3, 4)), round_of(1, ("step torch.tan",), ())]
    old_guidance = Guidance(7, ())
    old_guidance.learn(["step torch.sin"], parents_in(spec_of(tmp_path, 0), (3, 4), Limits()))
    old_guidance.learn(["step torch.tan"], [])
    new_guidance = Guidance(7, ())
    new_guidance.learn_again(tmp_path, history, Limits())
    assert new_guidance == old_guidance
    assert [case["name"] for case in new_guidance.own] == ["wide_7_00003", "mutant_7_00004"]


def test_the_last_parents_are_kept(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(hunt, "PARENTS", 3)
    for number in range(4):
        cases = [{**SMALL, "name": f"wide_7_{2 * number + place:05}"} for place in range(2)]
        replace_text(spec_of(tmp_path, number), text_of(cases))
    history = [round_of(number, (), (2 * number, 2 * number + 1)) for number in range(4)]
    spec_of(tmp_path, 0).unlink()  # its parents are too old to be read
    guided = Guidance(7, ())
    guided.learn_again(tmp_path, history, Limits())
    assert [case["name"] for case in guided.own] == ["wide_7_00005", "wide_7_00006", "wide_7_00007"]


@pytest.mark.parametrize(
    ("backends", "keeps"),
    [((), True), (("inductor", "aot_eager"), True), (("inductor", "pkg:mine"), False), (("openvino",), False)],
)
def test_modes_are_for_torch_s_own_backends(backends: tuple[str, ...], keeps: bool) -> None:
    assert ("compile" in adapted({"name": "a", "compile": {"mode": "default"}}, 0.0, backends)) is keeps


def test_a_mode_is_left_out_and_the_rest_of_compile_stays() -> None:
    case = {"name": "a", "compile": {"mode": "default", "fullgraph": True}}
    assert adapted(case, 0.0, ()) == case
    assert adapted(case, 0.0, ("openvino",)) == {"name": "a", "compile": {"fullgraph": True}}
    assert adapted({"name": "a", "compile": {"mode": "default"}}, 0.0, ("openvino",)) == {"name": "a"}
    assert adapted({"name": "a"}, 0.0, ("openvino",)) == {"name": "a"}
