"""``runner generate``: its arguments, its files and its exit codes, over a generator that starts no process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.cli import draw
from runner.cli.main import main
from runner.generate.generator import Parents, Request
from runner.generate.mutations import Case
from runner.session.plan import Environment

Batches = list[list[int] | type[BaseException]]


class Engine:
    """An engine that nobody asks."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def case(number: int) -> Case:
    return {"name": f"case_{number}", "inputs": {"x": [4]}, "chain": ["torch.neg"]}


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Callable[[Batches], list[Request]]:
    """Let the generator give these batches, and then none; the requests it gets are in the list."""

    def planned(batches: Batches) -> list[Request]:
        requests: list[Request] = []

        class Scripted:
            def __init__(
                self, engine: Engine, environment: Environment, request: Request, slots: int, parents: Parents | None
            ) -> None:
                assert (parents is not None) == bool(request.mutate)
                requests.append(request)
                self.faults, self.drawn, self.missing = Counter({"constant": 2}), 9, "No module named 'numpy'"

            def find_operators(self, tick: Callable[[], None]) -> list[str]:
                tick()
                return ["torch.neg", "torch.sin"]

            def next_cases(self, missing: int, tick: Callable[[], None]) -> dict[int, Case]:
                tick()
                batch = batches.pop(0) if batches else []
                if isinstance(batch, type):
                    raise batch
                return {number: case(number) for number in batch}

        monkeypatch.setattr(draw, "CaseGenerator", Scripted)
        monkeypatch.setattr(draw, "LocalEngine", Engine)
        monkeypatch.setattr(draw, "find_environments", lambda pythons: [Environment("0", "p", "2.13", "2.13", "3")])
        return requests

    return planned


def test_as_many_cases_as_asked_for_are_written(
    plan: Callable[[Batches], list[Request]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = plan([[0], [], [2, 3]])
    words = ["--profile", "deep", "--seed", "4", "--count", "2", "--first", "7", "--depth", "2..5", "--ops", "torch.*"]
    assert main(["generate", *words, "-o", str(tmp_path / "new")]) == 0
    assert requests == [Request(4, 2, 7, "deep", "torch.*", (2, 5))]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["deep_4.suite.yaml", "deep_4_0.spec.yaml"]
    text = (tmp_path / "new" / "deep_4_0.spec.yaml").read_text(encoding="utf-8")
    assert text.count("- name: ") == 2
    printed = capsys.readouterr()
    assert "2 cases of 9 draws; not written: 2 constant" in printed.out
    assert "0 of 2 cases\n1 of 2 cases\n" in printed.err
    assert "without torch's operator database: No module named 'numpy'" in printed.err


def test_a_generator_that_gives_nothing_more_ends_the_command(
    plan: Callable[[Batches], list[Request]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan([[0]])
    assert main(["generate", "--count", "3", "-o", str(tmp_path / "few")]) == 1
    assert "2 of 3 cases are missing" in capsys.readouterr().err
    plan([])
    assert main(["generate", "-o", str(tmp_path / "none")]) == 1
    assert [*(tmp_path / "none").iterdir()] == []


def test_an_interrupt_keeps_what_there_is(plan: Callable[[Batches], list[Request]], tmp_path: Path) -> None:
    plan([[0], KeyboardInterrupt])
    assert main(["generate", "-o", str(tmp_path / "new")]) == 2
    assert len([*(tmp_path / "new").iterdir()]) == 2


def test_operators_are_listed_and_nothing_is_drawn(
    plan: Callable[[Batches], list[Request]], capsys: pytest.CaptureFixture[str]
) -> None:
    plan([KeyboardInterrupt])
    assert main(["generate", "--list-ops"]) == 0
    assert capsys.readouterr().out == "torch.neg\ntorch.sin\n"


@pytest.mark.parametrize(
    "words",
    [["--depth", "5..2"], ["--depth", "0..2"], ["--depth", "1..999"], ["--depth", "a"], ["--profile", "none"],
     ["--python", "a", "--python", "b"]],
)  # fmt: skip
def test_what_cannot_be_asked_for(plan: Callable[[Batches], list[Request]], tmp_path: Path, words: list[str]) -> None:
    plan([])
    assert main(["generate", *words, "-o", str(tmp_path / "new")]) == 4
    assert not (tmp_path / "new").exists()


def test_one_number_is_a_depth(plan: Callable[[Batches], list[Request]], tmp_path: Path) -> None:
    requests = plan([])
    main(["generate", "--depth", "3", "-o", str(tmp_path / "new")])
    assert requests[0].depth == (3, 3)


def test_cases_of_files_are_changed_instead_of_drawn(
    plan: Callable[[Batches], list[Request]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = plan([[0]])
    path = tmp_path / "a.spec.yaml"
    path.write_text("cases: [{name: a, inputs: {x: [2]}, chain: [torch.neg]}]\n", encoding="utf-8")
    assert main(["generate", "--mutate", str(path), "--seed", "4", "--count", "1", "-o", str(tmp_path / "new")]) == 0
    assert requests[0].mutate == (str(path),) and requests[0].name == "mutant_4"
    assert requests[0].command == f"runner generate --seed 4 --mutate {path}"
    assert main(["generate", "--mutate", str(path), "--ops", "torch.*", "-o", str(tmp_path / "ops")]) == 4
    assert "leave --ops, --depth and --list-ops out" in capsys.readouterr().err
    assert main(["generate", "--mutate", str(tmp_path / "none"), "-o", str(tmp_path / "none")]) == 4
