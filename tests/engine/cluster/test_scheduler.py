"""Which node gets which job, and what a lost node costs. No Ray: nodes are told what their hosts would say."""

from __future__ import annotations

import dataclasses

from engine_jobs import job

from runner.engine.cluster.actor import Report
from runner.engine.cluster.scheduler import FRUITLESS, UNSEEN, Node, Spread
from runner.engine.messages import Outcome


def spread_of(*slots: int, limit: int | None = None) -> tuple[Spread, list[Node]]:
    spread = Spread(limit)
    for number, count in enumerate(slots):
        spread.nodes[str(number)] = Node(str(number), f"n{number}", count, ready=True)
    return spread, list(spread.nodes.values())


def add(spread: Spread, *tickets: int, **more: object) -> None:
    for ticket in tickets:
        spread.add(ticket, job("", str(ticket), **more))  # type: ignore[arg-type]


def deal(spread: Spread) -> dict[str, list[int]]:
    return {node: [task.ticket for task in tasks] for node, tasks in spread.deal().items()}


def report(done: tuple[int, ...] = (), running: tuple[int, ...] = (), ended: str = "result", up: bool = True) -> Report:
    outcomes = [(ticket, Outcome(job(""), ended, 0.1, detail="torch cannot be imported\nTraceback")) for ticket in done]
    return Report(outcomes, {ticket: (1.5, "backend") for ticket in running}, {"here": {"torch": "2"}} if up else {})


def revive(node: Node) -> None:
    node.ready = True


def test_jobs_go_out_evenly_and_in_order() -> None:
    spread, (small, _) = spread_of(2, 4)
    add(spread, *range(20))
    assert deal(spread) == {"0": [0, 3, 6, 9], "1": [1, 2, 4, 5, 7, 8]}
    assert deal(spread) == {}
    assert [ticket for ticket, _ in spread.take(small, report(done=(0, 3)))] == [0, 3]
    assert deal(spread) == {"0": [10, 11]}


def test_a_node_that_has_not_answered_gets_nothing() -> None:
    spread, (node,) = spread_of(2)
    add(spread, 1)
    node.call = object()
    assert deal(spread) == {}
    node.call, node.ready = None, False
    assert deal(spread) == {} and spread.waiting()


def test_the_limit_is_of_all_nodes_together() -> None:
    spread, (first, _) = spread_of(4, 4, limit=3)
    add(spread, *range(8))
    assert deal(spread) == {"0": [0, 2], "1": [1]}
    spread.take(first, report(done=(0,)))
    assert deal(spread) == {"0": [3]}


def test_cuda_goes_where_gpus_are() -> None:
    spread, (_, big) = spread_of(8, 2)
    big.gpus = 1
    add(spread, 1, device="cuda")
    add(spread, 2, device="cuda:0")
    add(spread, 3, device="cuda:1")  # nowhere: any node may say so
    add(spread, 4)
    assert deal(spread) == {"1": [1, 2], "0": [3, 4]}


def test_jobs_that_only_waited_run_elsewhere_unmarked_and_first() -> None:
    spread, (first, second) = spread_of(1, 1)
    second.ready = False
    add(spread, 1, 2, 3, 4)
    assert deal(spread) == {"0": [1, 2, 3]}
    spread.take(first, report(running=(1,)))
    assert spread.lose(first, "gone") == []
    second.ready = True
    third = spread.nodes["2"] = Node("2", "n2", 2, ready=True)
    add(spread, 5)
    assert deal(spread) == {"1": [1], "2": [2, 3, 4, 5]}
    outcomes = dict(spread.take(second, report(done=(1,))) + spread.take(third, report(done=(2, 3, 4))))
    assert {ticket: (one.lost, one.host) for ticket, one in outcomes.items()} == {
        1: (1, "n1"), 2: (0, "n2"), 3: (0, "n2"), 4: (0, "n2")
    }  # fmt: skip


def test_what_was_running_runs_alone_and_the_second_loss_names_the_culprit() -> None:
    spread, (node,) = spread_of(2)
    add(spread, 1, 2, 3)
    assert deal(spread) == {"0": [1, 2, 3]}
    spread.take(node, report(running=(1, 2)))
    assert spread.lose(node, "power cut") == []
    revive(node)
    assert deal(spread) == {"0": [1]}
    assert deal(spread) == {}
    spread.take(node, report(running=(1,)))
    ((ticket, outcome),) = spread.lose(node, "power cut")
    assert (ticket, outcome.ended, outcome.lost, outcome.host) == (1, "no-result", 2, "n0")
    assert (outcome.phase, outcome.seconds) == ("backend", 1.5)
    assert outcome.detail == "the node that ran it was lost twice while it did so, the last time n0 (power cut)"
    revive(node)
    assert deal(spread) == {"0": [2]}
    assert spread.take(node, report(done=(2,)))[0][1].lost == 1
    assert deal(spread) == {"0": [3]}
    assert spread.take(node, report(done=(3,)))[0][1].lost == 0


def test_other_nodes_work_on_while_one_is_the_ward() -> None:
    spread, (first, second, third) = spread_of(1, 1, 1)
    add(spread, *range(9))
    deal(spread)
    spread.take(first, report(running=(0,)))
    spread.lose(first, "gone")
    add(spread, *range(9, 20))
    spread.take(second, report(done=tuple(second.tasks)))
    spread.take(third, report(done=tuple(third.tasks)[:2]))
    dealt = deal(spread)
    assert dealt["1"] == [0]
    assert len(dealt["2"]) == 2


def test_a_job_too_quick_to_be_seen_running_is_found_too() -> None:
    spread, (node,) = spread_of(2)
    add(spread, 1, 2)
    for _ in range(UNSEEN):
        assert deal(spread) == {"0": [1, 2]}
        assert spread.lose(node, "gone") == []
        revive(node)
    assert deal(spread) == {"0": [1]}
    assert spread.lose(node, "gone") == []
    revive(node)
    assert deal(spread) == {"0": [2]}
    assert [ticket for ticket, _ in spread.take(node, report(done=(2,)))] == [2]
    assert deal(spread) == {"0": [1]}
    assert [(ticket, one.ended, one.lost) for ticket, one in spread.lose(node, "gone")] == [(1, "no-result", 2)]
    assert not node.refused and node.fruitless == 0  # a culprit found is a result


def test_the_furthest_phase_is_kept() -> None:
    spread, (node,) = spread_of(1)
    add(spread, 1)
    for phase in ("judge", "eager"):
        deal(spread)
        spread.take(node, Report([], {1: (2.0, phase)}, {}))
        outcomes = spread.lose(node, "gone")
        revive(node)
    assert [(one.phase, one.seconds) for _, one in outcomes] == [("judge", 2.0)]


def test_our_own_failure_blames_no_job() -> None:
    spread, (node,) = spread_of(1)
    add(spread, 1)
    for _ in range(3):
        deal(spread)
        spread.take(node, report(running=(1,)))
        assert spread.lose(node, "ValueError", blame=False) == []
        revive(node)
    deal(spread)
    assert spread.take(node, report(done=(1,)))[0][1].lost == 0


def test_a_node_lost_again_and_again_is_left_alone() -> None:
    spread, (node,) = spread_of(1)
    for number in range(FRUITLESS):
        assert not node.refused
        revive(node)
        spread.lose(node, f"loss {number}")
    assert f"lost {FRUITLESS} times in a row" in node.refused and f"loss {FRUITLESS - 1}" in node.refused
    add(spread, 1)
    ((ticket, outcome),) = spread.give_up("no node")
    assert (ticket, outcome.ended, outcome.detail) == (1, "broken", "no node")
    assert not spread.waiting()


def test_a_result_forgives_losses() -> None:
    spread, (node,) = spread_of(1)
    for number in range(FRUITLESS * 2):
        add(spread, number)
        deal(spread)
        spread.take(node, report(done=(number,)))
        spread.lose(node, "gone")
        revive(node)
    assert not node.refused


def test_a_node_where_torch_does_not_start_swallows_nothing() -> None:
    spread, (bad, good) = spread_of(2, 2)
    add(spread, 1, 2)
    deal(spread)
    assert spread.take(bad, report(done=(1,), ended="broken", up=False)) == []
    assert bad.refused == "torch cannot be imported"
    spread.lose(bad, bad.refused, blame=False)
    assert deal(spread) == {"1": [1]}
    (broken,) = spread.take(good, report(done=(1,), ended="broken", up=False))
    assert broken[1].ended == "broken"  # no other node is left to try


def test_broken_where_torch_has_worked_is_the_outcome() -> None:
    spread, (first, _) = spread_of(2, 2)
    add(spread, 1)
    deal(spread)
    ((_, outcome),) = spread.take(first, report(done=(1,), ended="broken"))
    assert outcome.ended == "broken" and not first.refused


def test_cancelled_jobs_have_no_outcome() -> None:
    spread, (node,) = spread_of(1)
    add(spread, *range(5))
    deal(spread)
    spread.cancel()
    assert not spread.waiting()
    assert spread.take(node, report(done=(0,), running=(1,))) == []
    assert node.running == {}
    add(spread, 9)
    assert deal(spread) == {"0": [9]}


def test_outcomes_keep_what_the_host_said() -> None:
    spread, (node,) = spread_of(1)
    add(spread, 1)
    deal(spread)
    said = Outcome(job(""), "signal", 2.0, "backend", signal="SIGSEGV", stack="s", output="o", earlier_jobs=("a",))
    ((_, outcome),) = spread.take(node, Report([(1, said)], {}, {}))
    assert outcome == dataclasses.replace(said, host="n0")
