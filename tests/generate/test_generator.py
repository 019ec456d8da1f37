"""The generator's control half, over a scripted engine: batches, deaths of processes, and what is counted.

The files of generated cases, and the models in Python that go with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.contract.job import Job
from runner.engine.messages import Ended, Outcome
from runner.exit_codes import UsageError
from runner.generate.generator import (
    BATCH,
    LONGEST,
    CaseGenerator,
    Request,
    text_of,
    with_content,
    with_python_beside,
    with_twin,
    write_specs,
    write_suite,
)
from runner.generate.mutations import Case
from runner.session.collect import load
from runner.session.plan import Environment

HERE = Environment("0", "python", "2.13.0", "2.13.0", "3.11")


class ScriptedEngine:
    """Draws and tries by two functions of a number; one that gives how a job ends ends its batch so."""

    def __init__(self, draw: Callable[[int], str], fault: Callable[[str], str]) -> None:
        self.jobs: list[Job] = []
        self._draw, self._fault = draw, fault
        self._waiting: list[Job] = []

    def submit(self, job: Job) -> None:
        self.jobs.append(job)
        self._waiting.append(job)

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        jobs, self._waiting = self._waiting, []
        return [self._outcome(job) for job in jobs]

    def running(self) -> list[tuple[Job, float, str]]:
        return []

    def cancel_all(self) -> list[Job]:
        return []

    def _outcome(self, job: Job) -> Outcome:
        if job.task == "operators":
            names = ["torch.scatter", "torch.scatter_add", "torch.no_such", "torch.sin"]
            return Outcome(job, "result", 0.0, result={"operators": names, "missing": "", "error": None})
        if job.task == "draw":
            key, answers = "cases", [self._draw(number) for number in job.arguments["numbers"]]
        else:
            key, answers = "faults", [self._fault(case["source"]) for case in job.arguments["jobs"]]
        deaths: list[Ended] = [end for end in ("signal", "timeout") if end in answers]
        return Outcome(job, deaths[0], 0.0) if deaths else Outcome(job, "result", 0.0, result={key: answers})


def case_text(number: int, operator: str = "torch.neg") -> str:
    return json.dumps({"name": f"case_{number}", "inputs": {"x": [number + 1]}, "chain": [{operator: "$x"}]})


def numbers(cases: dict[int, Case]) -> list[int]:
    return [*cases]


def test_what_is_refused_or_faulty_is_counted_and_not_given() -> None:
    texts = {1: "", 2: case_text(2, "torch.no_such"), 4: case_text(4, "torch.exp")}
    engine = ScriptedEngine(
        lambda n: texts.get(n, case_text(n)), lambda source: "constant: x" if ".exp(" in source else ""
    )
    generator = CaseGenerator(engine, HERE, Request(7, 6))
    assert numbers(generator.next_cases(6)) == [0, 3, 5, 6, 7, 8]
    assert +generator.faults == {"nothing drawn": 1, "refused": 1, "constant": 1}
    assert numbers(generator.next_cases(1))[0] == 9


def test_a_crash_and_a_hang_lose_one_case_each() -> None:
    texts = {2: case_text(2, "torch.exp"), 3: "signal", 5: "timeout"}
    engine = ScriptedEngine(lambda n: texts.get(n, case_text(n)), lambda source: "signal" if ".exp(" in source else "")
    generator = CaseGenerator(engine, HERE, Request(0, 20))
    assert numbers(generator.next_cases(20)) == [n for n in range(BATCH) if n not in (2, 3, 5)]
    assert +generator.faults == {"signal": 2, "timeout": 1}
    assert [len(job.arguments["numbers"]) for job in engine.jobs if job.task == "draw"] == [BATCH, *[1] * BATCH]


def test_what_is_drawn_depends_on_no_number_of_slots() -> None:
    results = []
    for slots in (1, 3):
        generator = CaseGenerator(ScriptedEngine(case_text, lambda source: ""), HERE, Request(0, 50, first=5), slots)
        cases: dict[int, Case] = {}
        while len(cases) < 50:
            cases |= generator.next_cases(50 - len(cases))
        results.append(numbers(cases)[:50])
    assert results[0] == results[1] == list(range(5, 55))


def test_cases_are_drawn_by_their_numbers_whatever_was_drawn_before() -> None:
    generator = CaseGenerator(ScriptedEngine(case_text, lambda source: ""), HERE, Request(0, 50), 2)
    assert numbers(generator.draw(range(90, 150))) == list(range(90, 150))
    assert numbers(generator.draw(range(3))) == [0, 1, 2]


def test_twins_are_asked_for_and_depend_on_seed_and_number() -> None:
    """A case in which nothing can be rewritten has none. Without the option there is no twin, and nothing else changes."""

    def text(number: int) -> str:
        return case_text(number, "torch.neg" if number % 3 else "torch.squeeze")

    def cases(request: Request) -> dict[int, Case]:
        return CaseGenerator(ScriptedEngine(text, lambda source: ""), HERE, request).draw(range(BATCH))

    plain, twins = cases(Request(0, BATCH)), cases(Request(0, BATCH, twins=True))
    assert not any("twin" in case for case in plain.values())
    assert {n: {k: v for k, v in case.items() if k != "twin"} for n, case in twins.items()} == plain
    drawn = {number: case["twin"] for number, case in twins.items() if "twin" in case}
    assert 3 < len(drawn) < BATCH * 2 / 3 and all(number % 3 for number in drawn)
    assert len({tuple(rewrites) for rewrites in drawn.values()}) > 2
    assert cases(Request(0, BATCH, twins=True)) == twins != cases(Request(1, BATCH, twins=True))
    assert Request(0, 1, twins=True).command == "runner generate --profile wide --seed 0 --twins"


def test_a_model_in_python_has_no_twin() -> None:
    assert all("twin" not in with_twin({"module": {}}, 0, number) for number in range(20))


def test_operators_are_those_that_the_format_knows_and_the_pattern_selects() -> None:
    engine = ScriptedEngine(case_text, lambda source: "")
    assert CaseGenerator(engine, HERE, Request(0, 1)).find_operators() == [
        "torch.scatter",
        "torch.scatter_add",
        "torch.sin",
    ]
    generator = CaseGenerator(engine, HERE, Request(3, 1, 4, "deep", "torch.scatter*", (2, 5)))
    assert generator.find_operators() == ["torch.scatter", "torch.scatter_add"]
    generator.next_cases(1)
    [drawing] = [job for job in engine.jobs if job.task == "draw"]
    assert drawing.arguments == {
        "seed": 3,
        "numbers": [4, 5],
        "docs": [
            f"runner generate --profile deep --seed 3 --ops 'torch.scatter*' --depth 2..5 --first {number} --count 1"
            for number in (4, 5)
        ],
        "profile": "deep",
        "operators": ["torch.scatter", "torch.scatter_add"],
        "depth": (2, 5),
        "required": True,
    }
    with pytest.raises(UsageError, match=r"--ops torch\.sine: none of 3 .* did you mean 'torch\.sin'"):
        CaseGenerator(engine, HERE, Request(0, 1, ops="torch.sine")).find_operators()


def test_files_of_a_hundred_and_a_suite_hold_every_case(tmp_path: Path) -> None:
    data = [json.loads(case_text(number)) for number in range(130)]
    specs = write_specs(tmp_path, "drawn", data)
    assert specs == ["drawn_0.spec.yaml", "drawn_1.spec.yaml"]
    loaded = load([str(write_suite(tmp_path, "drawn", specs))], everything=True)
    assert loaded.diagnostics == ()
    assert [variant.case.name for variant in loaded.variants] == [case["name"] for case in data]
    assert {variant.backend.name for variant in loaded.variants} == {"inductor"}


MODEL = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"


def case_of(file: Path, name: str = "own") -> dict[str, object]:
    return {"name": name, "inputs": {"x": [4]}, "module": with_content({"file": file.name, "name": "Model"}, file)}


def test_a_model_in_python_lies_beside_the_cases(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("one", "two", "out")]
    for place in places:
        place.mkdir()
    for place, text in zip(places, (MODEL, MODEL.replace("+ 1", "+ 2")), strict=False):
        (place / "model.py").write_text(text)
    cases = [case_of(place / "model.py", place.name) for place in places[:2]]
    [spec] = write_specs(places[2], "mutant", cases)
    loaded = load([str(places[2] / spec)], everything=True, allow_python=True)
    assert loaded.diagnostics == ()
    texts = [Path(v.case.module.file).read_text() for v in loaded.variants if v.case.module is not None]
    assert texts == [MODEL, MODEL.replace("+ 1", "+ 2")], "two models that are called alike"


def test_a_copy_of_a_copy_has_the_same_name(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    [first] = with_python_beside([case_of(file)], tmp_path)
    name = first["module"]["file"]
    [second] = with_python_beside([case_of(tmp_path / name)], tmp_path)
    assert second == first
    assert name.startswith("model_") and name.endswith(".py")
    assert text_of([first])


def test_a_model_that_is_edited_or_gone_is_still_the_one_that_was_read(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    case = case_of(file)
    file.unlink()
    [copy] = with_python_beside([case], tmp_path)
    assert (tmp_path / copy["module"]["file"]).read_text() == MODEL
    with pytest.raises(FileNotFoundError):
        case_of(file)


def test_the_copy_of_a_file_with_a_long_name_has_a_shorter_one(tmp_path: Path) -> None:
    file = tmp_path / ("m" * 250 + ".py")
    file.write_text(MODEL)
    [copy] = with_python_beside([case_of(file)], tmp_path)
    assert copy["module"]["file"].startswith("m" * LONGEST + "_")
