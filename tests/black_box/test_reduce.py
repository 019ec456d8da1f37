"""``runner reduce``: a long chain around a planted bug becomes the operator that is wrong."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.handmade import Dig

from .driver import Result, command, environment, run_in, spec, write

BACKEND = "relu_accuracy_error_TESTING_ONLY"

CASES = spec(
    """
    name: chained
    doc: A relu in the midst of other operators, two outputs, a second call.
    params: {n: [16, 4]}
    inputs: {x: ["${n}", 16], unused_so_far: {shape: [16], init: uniform}}
    train: true
    chain:
      - nn.Linear: [16, 16]
      - torch.sin
      - torch.add: [$_, $unused_so_far]
        out: shifted
      - with: [torch.no_grad]
        chain: [torch.exp, {torch.clamp: {"*": [$_], max: 3.0}}]
      - torch.relu
      - torch.mul: [$_, $shifted]
      - torch.sum: {"*": [$_], dim: 1}
    return: [$shifted, $_]
    calls: [{params: {n: 8}}]
    """,
    "name: sound\ninputs: {x: [4]}\nchain: [torch.sin]",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reduce")
    write(folder, {"all.spec.yaml": CASES})
    return folder


def reduce(folder: Path, *args: object, case: str = "chained[n=16,float32,cpu]") -> Result:
    return run_in(folder, "reduce", f"all.spec.yaml::{case}", "--backend", BACKEND, "-j", 2, *args)


@pytest.fixture(scope="module")
def short(folder: Path) -> str:
    """The smallest case so far when a budget is used up, which is gone before the first verdict is there."""
    result = reduce(folder, "-o", "out", "--budget", "1s")
    assert result.code == 0 and "--resume goes on" in result.out, result.text
    return (folder / "out" / "case.spec.yaml").read_text()


@pytest.fixture(scope="module")
def reduced(folder: Path, short: str) -> Result:
    """What resuming it makes. ``test_kernels.py`` reduces in one go."""
    result = reduce(folder, "-o", "out", "--resume")
    assert result.code == 0, result.text
    return result


def test_a_budget_leaves_the_best_so_far(short: str, folder: Path) -> None:
    write(folder, {"short.spec.yaml": short})
    assert "torch.relu" in short and run_in(folder, "validate", "short.spec.yaml").code == 0


@pytest.mark.nightly
def test_the_operator_alone_is_left(reduced: Result, folder: Path) -> None:
    text = (folder / "out" / "case.spec.yaml").read_text()
    assert (
        text == ("cases:\n  - name: chained\n    inputs:\n      x: {shape: [1], init: ones}\n    chain: [torch.relu]\n")
        or text == "cases:\n  - name: chained\n    inputs: {x: {shape: [1], init: ones}}\n    chain: [torch.relu]\n"
    ), text
    assert text in reduced.out
    assert "8 -> 1 operators, 400 -> 1 elements, " in reduced.out
    assert "signature: value at backend" in reduced.out


def test_it_is_a_valid_case_that_fails_alike(reduced: Result, folder: Path) -> None:
    assert run_in(folder, "validate", "out/case.spec.yaml").code == 0
    run = run_in(folder, "run", "out/case.spec.yaml", "--backend", BACKEND, "--no-confirm")
    assert run.code == 1
    (event,) = run.finished.values()
    assert (event["verdict"], event["stage"], event["oracles"]) == ("FAIL", "backend", ["value"])


def test_its_script_fails(reduced: Result, folder: Path) -> None:
    script = folder / "out" / "repro.py"
    process = subprocess.run(
        [sys.executable, script], cwd=folder, env=environment(), capture_output=True, text=True, timeout=240
    )
    assert process.returncode == 1 and "AssertionError: " in process.stderr, process.stdout + process.stderr


def test_the_steps_are_written_down(reduced: Result, folder: Path) -> None:
    steps = [json.loads(line) for line in (folder / "out" / "steps.jsonl").read_text().splitlines()]
    assert steps and steps[-1]["operators"] == 1 and steps[-1]["elements"] == 1
    assert all(set(step) >= {"what", "operators", "elements", "seconds", "runs"} for step in steps)
    counts = [step["operators"] for step in steps]
    assert counts == sorted(counts, reverse=True)
    assert not (folder / "out" / "candidate.spec.yaml").exists()


def test_a_reduction_that_is_done_is_not_done_again(reduced: Result, folder: Path) -> None:
    again = reduce(folder, "-o", "out", "--resume")
    assert again.code == 0 and "nothing is left to try" in again.out, again.text
    result = reduce(folder, "-o", "out", "--resume", case="sound")
    assert result.code == 4 and "holds a reduction of" in result.err


def test_what_does_not_fail_is_not_reduced(folder: Path) -> None:
    result = reduce(folder, case="sound")
    assert result.code == 1
    assert "does not fail: PASS" in result.err


def test_there_must_be_something_to_resume(folder: Path) -> None:
    assert "--output FOLDER" in reduce(folder, "--resume").err
    assert "holds no reduction" in reduce(folder, "--resume", "-o", "nowhere").err


def test_an_interrupted_reduction_leaves_a_case(folder: Path) -> None:
    words = command("reduce", "all.spec.yaml::chained", "--backend", BACKEND, "-j", "2", "-o", "cut")
    with subprocess.Popen(
        words, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        trials = folder / "cut" / "tried.jsonl"
        until = time.monotonic() + 200
        while process.poll() is None and not (trials.is_file() and trials.read_text()) and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 2, out + err
    assert "interrupted, this is the best so far" in out, out + err
    assert run_in(folder, "validate", "cut/case.spec.yaml").code == 0
    assert (folder / "cut" / "repro.py").is_file()


def test_a_folder_with_files_of_others_is_left_alone(folder: Path) -> None:
    write(folder, {"used/case.spec.yaml": CASES, "used/repro.py": "mine", "used/reduce.txt": "mine"})
    result = reduce(folder, "-o", "used")
    assert result.code == 4 and "there is something in it" in result.err
    assert (folder / "used" / "repro.py").read_text() == "mine"


def test_the_case_that_is_reduced_is_not_replaced(short: str, folder: Path) -> None:
    write(folder, {"again/case.spec.yaml": short, "again/reduce.json": "{}"})
    result = run_in(folder, "reduce", "again/case.spec.yaml::chained", "--backend", BACKEND, "-o", "again")
    assert result.code == 4 and "it holds the case that is reduced" in result.err
    assert (folder / "again" / "case.spec.yaml").read_text() == short


@pytest.mark.parametrize("name", ["candidate.spec.yaml", "steps.jsonl", "tried.jsonl"])
def test_nothing_is_written_through_a_link_of_the_folder(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / name / "out").mkdir(parents=True)
    (tmp_path / "precious").write_text("precious")
    (folder / name / "out" / "reduce.json").write_text("{}")
    (folder / name / "out" / name).symlink_to(tmp_path / "precious")
    result = reduce(folder, "-o", f"{name}/out")
    assert result.code == 4 and "is a link to" in result.err
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_link_beside_a_deep_folder_is_found(folder: Path, dig: Dig) -> None:
    write(folder, {"deep/reduce.json": "{}"})
    (folder / "deep" / "link").symlink_to("reduce.json")
    dig(folder / "deep")
    result = reduce(folder, "-o", "deep")
    assert result.code == 4 and "is a link to" in result.err


@pytest.mark.parametrize(
    "text", ["[]", "{", '"x"', "\udcff", "[" * 100_000], ids=["list", "cut", "text", "bytes", "deep"]
)
def test_a_damaged_folder_is_no_traceback(folder: Path, text: str) -> None:
    (folder / "damaged").mkdir(exist_ok=True)
    (folder / "damaged" / "reduce.json").write_bytes(text.encode(errors="surrogateescape"))
    for words in ((), ("--resume",)):
        result = reduce(folder, "-o", "damaged", *words)
        assert result.code == 4 and "--output damaged: " in result.err


@pytest.mark.parametrize("words", [(), ("--resume",)], ids=["anew", "resume"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("repro.py", "mine"),
        ("case.spec.yaml", "mine"),
        ("steps.jsonl", '{"mine": 1}\n'),
        ("tried.jsonl", '["mine"]\n'),
        ("steps.jsonl", "mine"),
        ("tried.jsonl", 'mine\n{"what": "cut'),
    ],
)
def test_a_file_of_somebody_else_is_not_replaced(
    reduced: Result, folder: Path, tmp_path: Path, name: str, text: str, words: tuple[str, ...]
) -> None:
    write(tmp_path, {"all.spec.yaml": CASES})
    shutil.copytree(folder / "out", tmp_path / "out")
    (tmp_path / "out" / name).write_text(text)
    result = reduce(tmp_path, "-o", "out", *words)
    assert result.code == 4 and f"{name} there " in result.err and "name another folder" in result.err, result.text
    assert (tmp_path / "out" / name).read_text() == text


def test_a_folder_of_another_variant_is_left_alone(reduced: Result, folder: Path) -> None:
    old_files = {path: path.read_bytes() for path in (folder / "out").iterdir()}
    result = reduce(folder, "-o", "out", case="sound")
    assert result.code == 4 and "it holds a reduction of all.spec.yaml::chained[" in result.err
    assert {path: path.read_bytes() for path in (folder / "out").iterdir()} == old_files


@pytest.mark.nightly
def test_a_folder_of_the_same_variant_is_used_anew(reduced: Result, folder: Path, tmp_path: Path) -> None:
    write(tmp_path, {"all.spec.yaml": CASES})
    shutil.copytree(folder / "out", tmp_path / "out")
    for name in ("notes.txt", "candidate.spec.yaml"):
        (tmp_path / "out" / name).write_text("mine")
    for words in ((), ("--resume",)):
        result = reduce(tmp_path, "-o", "out", "--budget", "1s", *words)
        assert result.code == 0 and "nothing is left to try" not in result.out, result.text
    for name in ("notes.txt", "candidate.spec.yaml"):
        assert (tmp_path / "out" / name).read_text() == "mine"
    assert len([*(tmp_path / "out").glob("*.spec.yaml")]) == 2


def test_a_reduction_of_what_the_case_was_is_not_taken_for_its_own(reduced: Result, folder: Path) -> None:
    write(folder, {"other/all.spec.yaml": CASES.replace("torch.sin\n", "torch.cos\n")})
    shutil.copytree(folder / "out", folder / "other" / "out")
    again = reduce(folder / "other", "-o", "out", "--resume", "--budget", "1s")
    assert "has changed since; beginning anew" in again.err and "nothing is left to try" not in again.out


@pytest.mark.nightly  # the only whole way from a module to its operator: half a minute
def test_a_model_in_python_is_reduced_by_its_captured_graph(tmp_path: Path) -> None:
    model = "import torch\n\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    model += "        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)\n\n"
    model += "    def forward(self, x):\n        return self.last(torch.tanh(self.first(torch.relu(x)))).sin()\n"
    backend = "import torch\n\ndef compile_graph(graph, examples):\n    for node in graph.graph.nodes:\n"
    backend += "        node.target = torch.sigmoid if node.target is torch.tanh else node.target\n"
    backend += "    graph.recompile()\n    return graph.forward\n"
    case = "name: mine\ninputs: {x: [2, 4]}\nmodule: {file: model.py, name: Model}"
    write(tmp_path, {"a.spec.yaml": spec(case), "model.py": model, "acme.py": backend})
    words = ("a.spec.yaml::mine", "--backend", "acme:compile_graph", "--allow-python", "-o", "small")
    result = run_in(tmp_path, "reduce", *words)
    assert result.code == 0 and "small/graph_0.spec.yaml" in result.err
    text = (tmp_path / "small" / "case.spec.yaml").read_text()
    assert "torch.tanh" in text and "module:" not in text and "F.linear" not in text
