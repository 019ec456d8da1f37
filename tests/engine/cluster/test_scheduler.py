"""Which node gets which job, and what a lost node costs. No Ray: nodes get the reports that their actors would send."""

from __future__ import annotations

import dataclasses

import pytest
from engine_jobs import job

from runner.engine.cluster.engine import FRUITLESS, Node, Report, Scheduler
from runner.engine.messages import Outcome


def scheduler_of(*slots: int, limit: int | None = None) -> tuple[Scheduler, list[Node]]:
    scheduler = Scheduler(limit)
    for number, count in enumerate(slots):
        scheduler.nodes[str(number)] = Node(str(number), f"n{number}", count, ready=True)
    return scheduler, list(scheduler.nodes.values())


def add(scheduler: Scheduler, *keys: int, **options: object) -> None:
    for key in keys:
        scheduler.add(job("", str(key), **options))  # type: ignore[arg-type]


def dispatch(scheduler: Scheduler) -> dict[str, list[int]]:
    """The keys of the jobs that nodes get now."""
    return {node.id: [int(task.job.key) for task in tasks] for node, tasks in scheduler.dispatch() if tasks}


def tickets(node: Node, *keys: int) -> list[int]:
    """The tickets of jobs on a node."""
    return [ticket for ticket, task in node.tasks.items() if int(task.job.key) in keys]


def finish(scheduler: Scheduler, node: Node, *keys: int, ended: str = "result", started: bool = True) -> list[Outcome]:
    outcome = Outcome(job(""), ended, 0.1, detail="torch cannot be imported\nTraceback")
    report = Report(dict.fromkeys(tickets(node, *keys), outcome), {}, ["here"] if started else [])
    return scheduler.finish(node, report)


def run(scheduler: Scheduler, node: Node, *keys: int, phase: str = "backend") -> None:
    """Report that jobs run."""
    scheduler.finish(node, Report({}, dict.fromkeys(tickets(node, *keys), (1.5, phase)), ["here"]))


def lose(scheduler: Scheduler, node: Node, how: str = "gone", **options: bool) -> list[Outcome]:
    """Lose a node's actor, and start another."""
    outcomes = scheduler.lose(node, how, **options)
    assert not node.ready
    node.ready = True
    return outcomes


def test_jobs_go_out_evenly_and_in_order() -> None:
    scheduler, (small, _) = scheduler_of(2, 4)
    add(scheduler, *range(20))
    assert dispatch(scheduler) == {"0": [0, 3], "1": [1, 2, 4, 5]}
    assert dispatch(scheduler) == {}
    assert [outcome.job.key for outcome in finish(scheduler, small, 0, 3)] == ["0", "3"]
    assert dispatch(scheduler) == {"0": [6, 7]}


def test_jobs_that_no_node_has_room_for_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    accepts = Scheduler._accepts
    monkeypatch.setattr(Scheduler, "_accepts", lambda *about: looks.append(about) or accepts(*about))
    scheduler, (node, _) = scheduler_of(2, 2)
    add(scheduler, *range(1000))
    assert sum(map(len, dispatch(scheduler).values())) == 4 and len(looks) <= 8
    looks.clear()
    assert dispatch(scheduler) == {} and not looks
    finish(scheduler, node, 0)
    assert dispatch(scheduler) == {"0": [4]} and len(looks) == 1


def test_a_node_that_has_not_answered_gets_nothing() -> None:
    scheduler, (node,) = scheduler_of(2)
    add(scheduler, 1)
    node.call = 7
    assert dispatch(scheduler) == {}
    node.call, node.ready = 0, False
    assert dispatch(scheduler) == {}
    node.ready = True
    assert dispatch(scheduler) == {"0": [1]}


def test_a_node_with_jobs_is_asked_again() -> None:
    scheduler, (node,) = scheduler_of(2)
    assert scheduler.dispatch() == []
    add(scheduler, 1)
    assert dispatch(scheduler) == {"0": [1]}
    assert scheduler.dispatch() == [(node, [])]


def test_the_limit_is_of_all_nodes_together() -> None:
    scheduler, (first, _) = scheduler_of(4, 4, limit=3)
    add(scheduler, *range(8))
    assert dispatch(scheduler) == {"0": [0, 2], "1": [1]}
    finish(scheduler, first, 0)
    assert dispatch(scheduler) == {"0": [3]}


def test_cuda_goes_where_gpus_are() -> None:
    scheduler, (_, big) = scheduler_of(8, 3)
    big.gpus = 1
    add(scheduler, 1, device="cuda")
    add(scheduler, 2, device="cuda:0")
    add(scheduler, 3, device="cuda:1")  # nowhere: any node may say so
    add(scheduler, 4)
    assert dispatch(scheduler) == {"1": [1, 2], "0": [3, 4]}


def test_a_job_that_waits_for_a_gpu_holds_up_no_other() -> None:
    scheduler, (_, big) = scheduler_of(1, 1)
    big.gpus, big.ready = 1, False
    add(scheduler, 1, device="cuda")
    add(scheduler, 2)
    assert dispatch(scheduler) == {"0": [2]}


def test_jobs_of_a_lost_node_run_again_and_those_that_waited_are_unmarked() -> None:
    scheduler, (first, second) = scheduler_of(1, 1)
    second.ready = False
    add(scheduler, 1, 2)
    assert dispatch(scheduler) == {"0": [1]}
    run(scheduler, first, 1)
    assert scheduler.lose(first, "gone") == []
    second.ready = True
    assert dispatch(scheduler) == {"1": [2]}
    assert [(end.job.key, end.lost, end.host) for end in finish(scheduler, second, 2)] == [("2", 0, "n1")]
    assert dispatch(scheduler) == {"1": [1]}
    assert [(end.job.key, end.lost, end.host) for end in finish(scheduler, second, 1)] == [("1", 1, "n1")]


def test_a_suspect_runs_last_and_alone_and_the_second_loss_names_the_culprit() -> None:
    scheduler, (node,) = scheduler_of(2)
    add(scheduler, 1, 2, 3)
    assert dispatch(scheduler) == {"0": [1, 2]}
    run(scheduler, node, 1, 2)
    assert lose(scheduler, node, "power cut") == []
    assert dispatch(scheduler) == {"0": [3]}
    assert finish(scheduler, node, 3)[0].lost == 0
    assert dispatch(scheduler) == {"0": [1]}
    add(scheduler, 4)
    assert dispatch(scheduler) == {}  # nothing beside a suspect
    run(scheduler, node, 1)
    (outcome,) = lose(scheduler, node, "power cut")
    assert (outcome.job.key, outcome.ended, outcome.lost, outcome.host) == ("1", "no-result", 2, "n0")
    assert (outcome.phase, outcome.seconds) == ("backend", 1.5)
    assert outcome.detail == "the node that ran it was lost twice while it did so, the last time n0 (power cut)"
    assert dispatch(scheduler) == {"0": [4]}
    finish(scheduler, node, 4)
    assert dispatch(scheduler) == {"0": [2]}
    assert finish(scheduler, node, 2)[0].lost == 1
    assert scheduler.tasks() == []


def test_each_node_takes_one_suspect() -> None:
    scheduler, (first, second) = scheduler_of(3, 2)
    second.ready = False
    add(scheduler, 1, 2, 3)
    dispatch(scheduler)
    run(scheduler, first, 1, 2, 3)
    lose(scheduler, first)
    second.ready = True
    assert dispatch(scheduler) == {"0": [1], "1": [2]}


def test_jobs_whose_worker_had_not_started_are_unmarked() -> None:
    scheduler, (node,) = scheduler_of(2)
    add(scheduler, 1, 2)
    assert dispatch(scheduler) == {"0": [1, 2]}
    assert lose(scheduler, node) == []
    assert dispatch(scheduler) == {"0": [1, 2]}
    assert [outcome.lost for outcome in finish(scheduler, node, 1, 2)] == [0, 0]


def test_a_job_too_quick_to_be_reported_as_running_is_found_too() -> None:
    scheduler, (node,) = scheduler_of(2)
    add(scheduler, 1, 2)
    for _ in range(2):
        assert dispatch(scheduler) == {"0": [1, 2]}
        assert lose(scheduler, node) == []
    assert dispatch(scheduler) == {"0": [1]}
    (outcome,) = lose(scheduler, node)
    assert (outcome.job.key, outcome.ended, outcome.lost, outcome.phase) == ("1", "no-result", 2, "load")
    assert not node.refused and node.fruitless == 0  # a culprit found is a result


def test_our_own_failure_blames_no_job() -> None:
    scheduler, (node,) = scheduler_of(1)
    add(scheduler, 1)
    for _ in range(3):
        assert dispatch(scheduler) == {"0": [1]}
        assert lose(scheduler, node, "ValueError", blame=False) == []
    dispatch(scheduler)
    assert finish(scheduler, node, 1)[0].lost == 0


def test_a_node_lost_again_and_again_is_not_used() -> None:
    scheduler, (node,) = scheduler_of(1)
    for number in range(FRUITLESS):
        assert not node.refused
        lose(scheduler, node, f"loss {number}")
    assert f"lost {FRUITLESS} times in a row" in node.refused and f"loss {FRUITLESS - 1}" in node.refused
    add(scheduler, 1)
    (outcome,) = scheduler.give_up("no node")
    assert (outcome.job.key, outcome.ended, outcome.detail) == ("1", "broken", "no node")
    assert scheduler.tasks() == []


def test_a_result_forgives_losses() -> None:
    scheduler, (node,) = scheduler_of(1)
    for number in range(FRUITLESS * 2):
        add(scheduler, number)
        dispatch(scheduler)
        finish(scheduler, node, number)
        lose(scheduler, node)
    assert not node.refused


def test_a_node_where_torch_does_not_start_ends_no_job() -> None:
    scheduler, (bad, good) = scheduler_of(1, 1)
    add(scheduler, 1, 2)
    dispatch(scheduler)
    assert finish(scheduler, bad, 1, ended="broken", started=False) == []
    assert bad.refused == "torch cannot be imported"
    scheduler.lose(bad, bad.refused, blame=False)
    finish(scheduler, good, 2)
    good.environments = set()
    assert dispatch(scheduler) == {"1": [1]}
    (broken,) = finish(scheduler, good, 1, ended="broken", started=False)
    assert (broken.ended, broken.lost) == ("broken", 0)  # no other node is left to try


def test_broken_where_torch_has_started_is_the_outcome() -> None:
    scheduler, (first, _) = scheduler_of(2, 2)
    add(scheduler, 1)
    dispatch(scheduler)
    (outcome,) = finish(scheduler, first, 1, ended="broken")
    assert outcome.ended == "broken" and not first.refused


def test_cancelled_jobs_have_no_outcome() -> None:
    scheduler, (node,) = scheduler_of(1)
    add(scheduler, *range(5))
    dispatch(scheduler)
    (ticket,) = node.tasks
    assert [task.job.key for task in scheduler.cancel()] == ["0", "1", "2", "3", "4"]
    assert scheduler.finish(node, Report({ticket: Outcome(job(""), "result", 0.1)}, {ticket: (1.0, "load")})) == []
    assert scheduler.tasks() == []
    add(scheduler, 9)
    assert dispatch(scheduler) == {"0": [9]}


def test_outcomes_keep_what_the_actor_said() -> None:
    scheduler, (node,) = scheduler_of(1)
    add(scheduler, 1)
    dispatch(scheduler)
    (ticket,) = node.tasks
    report = Outcome(job(""), "signal", 2.0, "backend", signal="SIGSEGV", stack="s", output="o", earlier_jobs=("a",))
    (outcome,) = scheduler.finish(node, Report({ticket: report}, {}))
    assert outcome == dataclasses.replace(report, job=job("", "1"), host="n0")
