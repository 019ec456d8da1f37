"""What a guided hunt draws next."""

from __future__ import annotations

from pathlib import Path

from runner.cases.limits import Limits
from runner.files import replace_text
from runner.generate.generator import Parents, text_of
from runner.generate.mutations import Case
from runner.hunt import rounds
from runner.hunt.groups import spec_of
from runner.hunt.rounds import Guidance, is_rare, parents_in, reached_by_text
from runner.hunt.state import Round

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
    plan = Guidance(7, Parents(())).plan(0, range(10), OPERATORS)
    assert (list(plan.numbers), plan.operators, plan.mutants) == (list(range(10)), OPERATORS, {})


def test_operators_that_no_case_had_come_as_often_as_all_others_together() -> None:
    guided = Guidance(7, Parents(()), {"step torch.sin", "step torch.cos", "step torch.abs"})
    for number in range(5):
        operators = guided.plan(number, range(4), OPERATORS).operators
        assert {"torch.exp", "torch.neg"} < set(operators) and len(operators) == 4
    everything = Guidance(7, Parents(()), {f"step {name}" for name in OPERATORS})
    assert everything.plan(0, range(4), OPERATORS).operators == OPERATORS


def test_half_of_a_round_are_mutants_of_the_parents() -> None:
    plan = Guidance(7, Parents((SMALL,))).plan(2, range(20, 30), OPERATORS)
    assert list(plan.numbers) == [20, 21, 22, 23, 24]
    assert [*plan.mutants] == [25, 26, 27, 28, 29]
    assert plan.mutants[25]["name"] == "mutant_7_00025"
    assert plan.mutants[25]["doc"].startswith("round 2 of a guided hunt")


def test_a_round_s_plan_depends_on_what_was_learned_alone() -> None:
    one, two = (Guidance(7, Parents((SMALL,)), {"step torch.sin"}) for _ in range(2))
    one.plan(0, range(6), OPERATORS)
    assert one.plan(1, range(6, 12), OPERATORS) == two.plan(1, range(6, 12), OPERATORS)
    two.learn(["step torch.neg"], [{**SMALL, "chain": ["torch.neg"]}])
    assert one.plan(1, range(6, 12), OPERATORS) != two.plan(1, range(6, 12), OPERATORS)


def test_of_several_mutants_the_one_with_the_most_pairs_that_no_case_had_is_taken() -> None:
    longer = {**SMALL, "name": "other", "chain": ["torch.cos", "torch.tan", "torch.sinh"]}
    seen = reached_by_text(SMALL) | reached_by_text(longer)

    def new_pairs(candidates: int) -> int:
        before, rounds.CANDIDATES = rounds.CANDIDATES, candidates
        try:
            plan = Guidance(7, Parents(()), set(seen), own=[SMALL, longer]).plan(0, range(200), [])
        finally:
            rounds.CANDIDATES = before
        return sum(len(reached_by_text(mutant) - seen) for mutant in plan.mutants.values())

    assert new_pairs(4) > 1.5 * new_pairs(1)


def test_the_cases_that_a_person_names_stay_parents_of_half_the_mutants() -> None:
    own = [{**SMALL, "name": f"own_{number}"} for number in range(100)]
    guided = Guidance(7, Parents(({**SMALL, "name": "given"},)), own=own)
    docs = [mutant["doc"] for mutant in guided.plan(0, range(400), []).mutants.values()]
    assert 0.4 < sum("(given: " in doc for doc in docs) / len(docs) < 0.6


def test_a_pair_alone_makes_no_parent() -> None:
    assert not is_rare("pair torch.sin torch.cos")
    assert is_rare("step torch.sin") and is_rare("lowering aten.sin") and is_rare("pass binary_folding")


def test_a_hunt_that_goes_on_knows_what_it_knew(tmp_path: Path) -> None:
    other = {**SMALL, "name": "mutant_7_00004", "chain": ["torch.tan"]}
    replace_text(
        spec_of(tmp_path, 0), text_of([SMALL, other, {**SMALL, "name": "wide_7_00005"}, {**SMALL, "name": "by_hand"}])
    )
    done = [round_of(0, ("step torch.sin",), (3, 4)), round_of(1, ("step torch.tan",), ())]
    before = Guidance(7, Parents(()))
    before.learn(["step torch.sin"], parents_in(spec_of(tmp_path, 0), (3, 4), Limits()))
    before.learn(["step torch.tan"], [])
    after = Guidance(7, Parents(()))
    after.learn_again(tmp_path, done, Limits())
    assert after == before
    assert [case["name"] for case in after.own] == ["wide_7_00003", "mutant_7_00004"]


def test_the_last_parents_are_kept(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(rounds, "PARENTS", 3)
    for number in range(4):
        cases = [{**SMALL, "name": f"wide_7_{2 * number + place:05}"} for place in range(2)]
        replace_text(spec_of(tmp_path, number), text_of(cases))
    done = [round_of(number, (), (2 * number, 2 * number + 1)) for number in range(4)]
    spec_of(tmp_path, 0).unlink()  # its parents are too old to be read
    guided = Guidance(7, Parents(()))
    guided.learn_again(tmp_path, done, Limits())
    assert [case["name"] for case in guided.own] == ["wide_7_00005", "wide_7_00006", "wide_7_00007"]
