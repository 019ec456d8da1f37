"""``runner`` as a library: what its three functions give, and that the page about it tells the truth."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import runner
from runner.exit_codes import UsageError
from runner.session.settings import Shard

ROOT = Path(__file__).resolve().parents[1]
SPEC = "cases:\n  - {name: a, inputs: {x: [2]}, chain: [F.relu]}\n  - {name: b, inputs: {x: [2]}, chain: [torch.sin]}\n"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "a.spec.yaml"
    path.write_text(SPEC)
    return path


@pytest.mark.slow
def test_a_run_yields_its_events_in_order(spec: Path) -> None:
    settings = runner.RunSettings(backend=("eager",), confirm=False, jobs=1)
    plan = runner.plan(runner.collect([spec], settings), settings)
    assert [entry.variant.case.name for entry in plan.planned] == ["a", "b"] and plan.whole is False
    events = [*runner.run(plan, settings)]
    assert [type(event).__name__ for event in events] == [
        "RunStarted", "VariantPlanned", "VariantPlanned", "VariantStarted", "VariantStarted", "VariantFinished", "VariantFinished",
        "RunFinished",
    ]  # fmt: skip
    finished = [event for event in events if isinstance(event, runner.VariantFinished)]
    assert sorted((event.case.rpartition("::")[2], event.verdict) for event in finished) == [
        ("a", "PASS"),
        ("b", "PASS"),
    ]
    last = events[-1]
    assert isinstance(last, runner.RunFinished) and (last.exit_code, last.interrupted) == (0, False)


def test_leaving_early_ends_the_processes(spec: Path) -> None:
    settings = runner.RunSettings(backend=("eager",), jobs=1)
    events = runner.run(runner.plan(runner.collect([spec], settings), settings), settings)
    for event in events:
        if isinstance(event, runner.VariantStarted):
            break
    events.close()
    children = subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    assert "runner/worker/__main__.py" not in children.stdout


def test_an_interruption_ends_in_order(spec: Path) -> None:
    def tick(running: object) -> None:
        raise KeyboardInterrupt

    settings = runner.RunSettings(backend=("eager",), jobs=1)
    events = [*runner.run(runner.plan(runner.collect([spec], settings), settings), settings, tick=tick)]
    last = events[-1]
    assert isinstance(last, runner.RunFinished) and (last.exit_code, last.interrupted) == (2, True)


def test_a_defect_of_the_runner_is_raised_after_the_last_event(spec: Path) -> None:
    def tick(running: object) -> None:
        raise ZeroDivisionError

    settings = runner.RunSettings(backend=("eager",), jobs=1)
    events = runner.run(runner.plan(runner.collect([spec], settings), settings), settings, tick=tick)
    received = []
    with pytest.raises(ZeroDivisionError):
        for event in events:
            received.append(event)
    assert isinstance(received[-1], runner.RunFinished) and received[-1].exit_code == 3


def test_select_narrows(spec: Path) -> None:
    loaded = runner.collect([spec], runner.RunSettings(select="b"))
    assert [variant.case.name for variant in loaded.variants] == ["b"]


@pytest.mark.parametrize(
    "values",
    [
        {"retries": -1},
        {"retries": 1.5},
        {"stress": 0},
        {"jobs": 0},
        {"jobs": 2000},
        {"order": "x"},
        {"budget": 0},
        {"slow": 1e12},
        {"seed": 1 << 63},
        {"shard": "3/2"},
        {"shard": 2},
        {"backend": "eager"},
        {"imports": (3,)},
        {"select": 3},
        {"confirm": 1},
        {"budget": "1m"},
    ],
)
def test_values_have_bounds(values: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(values))):
        runner.RunSettings(**values)  # type: ignore[arg-type]


def test_a_shard_may_be_written_as_on_the_command_line(spec: Path) -> None:
    """Which variants it has depends on their ids, and so on the folder of the test."""
    loaded = runner.collect([spec])
    texts, shards = (
        [runner.plan(loaded, runner.RunSettings(shard=shard)).planned for shard in shards]
        for shards in (("1/2", "2/2"), (Shard(1, 2), Shard(2, 2)))
    )
    assert texts == shards and texts[0] != texts[1]
    assert sorted(each.variant.id for part in texts for each in part) == sorted(each.id for each in loaded.variants)


def test_a_selection_that_cannot_be_read_is_refused(spec: Path) -> None:
    with pytest.raises(UsageError, match=r"select: .*: a word is missing"):
        runner.collect([spec], runner.RunSettings(select="("))


def test_settings_are_flags_again() -> None:
    settings = runner.RunSettings(
        allow_python=True, no_known=True, seed=-3, imports=("m", "n"), limit=("nodes=9",), jobs=3
    )
    words = ("--allow-python", "--no-known", "--seed", "-3", "--import", "m", "--import", "n", "--limit", "nodes=9")
    assert settings.flags() == words and runner.RunSettings().flags() == ()


def test_contradictions_are_refused(spec: Path) -> None:
    with pytest.raises(UsageError, match="--durations"):
        runner.plan(runner.collect([spec]), runner.RunSettings(durations="latest"))


@pytest.mark.slow
def test_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    for code, text in zip(
        re.findall(r"```python\n(.*?)```", page, re.S),
        ("PASS specs/basics/layout", "sequential[float32,cpu]@aot_eager", "all agree: values 1"),
        strict=True,
    ):
        run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert run.returncode == 0 and text in run.stdout, run.stderr
    fields = {field.name for field in dataclasses.fields(runner.RunSettings)}
    assert {"select", "imports", "last_failed", "failed_first", "limit"} <= fields
    assert all(hasattr(runner, name) for name in runner.__all__)


@pytest.mark.slow
def test_a_block_and_a_function_are_captured(tmp_path: Path) -> None:
    """``torch.compile`` records within them alone, what was recorded before an exception is kept, and a folder grows."""
    import torch

    compile_before, folder = torch.compile, tmp_path / "mine"
    with pytest.raises(KeyError, match="of the user"), runner.capture(folder) as captured:
        torch.compile(torch.nn.Linear(3, 2))(torch.ones(1, 3))
        raise KeyError("of the user")
    assert torch.compile is compile_before and captured.inventory[0]["model"] == "Linear"
    assert [path.name for path in captured.paths] == [
        "linear.spec.yaml", "captured.suite.yaml", "inventory.json", "inventory.md",
    ]  # fmt: skip

    capture = runner.capture(folder, by="operator")

    @capture
    def double(count: int) -> torch.Tensor:
        return torch.compile(lambda x: x * 2)(torch.ones(count))

    assert double(3).tolist() == [2.0] * 3 and torch.compile is compile_before
    assert [path.name for path in capture.paths if path.name.endswith(".spec.yaml")] != []
    names = [case.name for case in {v.case.name: v.case for v in runner.collect([folder]).variants}.values()]
    assert sorted(names) == ["linear", "operator_mul"]
    torch.compiler.reset()


def test_a_grain_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected one of graph, module, operator"):
        runner.capture(tmp_path, by="layer")  # type: ignore[arg-type]


def test_the_package_imports_little() -> None:
    code = "import sys, runner; print(sorted(n for n in sys.modules if n.startswith('runner.')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout == "[]\n"


def test_a_misspelt_device_is_no_green_run(spec: Path) -> None:
    with pytest.raises(UsageError, match="torch has no such device; did you mean 'cuda'"):
        runner.collect([spec], runner.RunSettings(device=("cuad",)))
