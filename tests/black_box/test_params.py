"""Params that are more than a number: each form in a run, its ids typed again, and what is written of it."""

from __future__ import annotations

import pytest

from .driver import Result, run_in, run_script, spec, write

BACKEND = """
def off(graph, inputs):
    \"\"\"Return a function whose results are off where the first has less than three elements.\"\"\"
    return lambda *args: tuple(out + (out.numel() < 3) for out in graph(*args))
"""

CASES: list[str] = []
"""Cases that run under ``few:off``. Each stands above its test, which says which of them fail."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """One run of all cases."""
    folder = tmp_path_factory.mktemp("params")
    write(folder, {"a.spec.yaml": spec(*CASES), "few.py": BACKEND})
    return run_in(folder, "run", "a.spec.yaml", "--backend", "few:off", "--no-confirm", "-j", 2)


def verdicts(ran: Result, case: str) -> dict[str, str]:
    """The verdicts of a case by what its ids say of params."""
    names = {name: event["verdict"] for name, event in ran.finished.items() if name.startswith(f"{case}[")}
    return {n.partition("[")[2].rpartition("]")[0].removesuffix(",float32,cpu"): v for n, v in names.items()}


CASES.append("""
    name: lists
    params: {shape: [[2, 3], [4], [2, 2, 3]], dims: [[0], [-1]]}
    exclude: [{shape: [4], dims: [-1]}]
    inputs: {x: $shape}
    chain: [{torch.sum: [$_, $dims]}, {torch.add: [$_, "$shape[0]"]}]
    known: [{params: {shape: [4]}, reason: one element, oracle: [value]}]
    """)


def test_lists(ran: Result) -> None:
    assert verdicts(ran, "lists") == {
        "shape=[2,3],dims=[0]": "PASS", "shape=[2,3],dims=[-1]": "FAIL", "shape=[4],dims=[0]": "XFAIL",
        "shape=[2,2,3],dims=[0]": "PASS", "shape=[2,2,3],dims=[-1]": "PASS",
    }  # fmt: skip
    (failing,) = [
        event["id"] for event in ran.finished.values() if event["verdict"] == "FAIL" and "lists" in event["id"]
    ]
    assert failing == "a.spec.yaml::lists[shape=[2,3],dims=[-1],float32,cpu]@few:off"
    assert f"runner why '{failing}'" in ran.out
    assert run_in(ran.cwd, "list", failing, "--backend", "few:off").out.split() == [failing]


CASES.append("""
    name: operators
    params: {f: [F.gelu, torch.sum, nn.GELU], d: [float64, float32]}
    inputs: {x: {shape: [2, 1, 4], dtype: $d}}
    chain: [$f]
    """)


def test_operators_and_dtypes(ran: Result) -> None:
    expected = {"F.gelu": "PASS", "torch.sum": "FAIL", "nn.GELU": "PASS"}
    assert verdicts(ran, "operators") == {
        f"f={f},d={d}": v for f, v in expected.items() for d in ("float64", "float32")
    }
    signatures = {event["signature"] for event in ran.finished.values() if "::operators[f=torch.sum" in event["id"]}
    assert all("torch.sum" in signature for signature in signatures) and signatures, signatures
    selected = run_in(ran.cwd, "list", "a.spec.yaml", "-k", "op:torch.sum and case:operators").out
    assert selected.count("\n") == 2 and "f=torch.sum,d=float64" in selected
    shown = run_in(ran.cwd, "show", "a.spec.yaml::operators[f=nn.GELU,d=float64,float32,cpu]").out
    assert "self.gelu = nn.GELU()" in shown and "dtype=torch.float64" in shown


CASES.append("""
    name: together
    zip: {shape: [[2, 3], [2, 3]], dims: [[0], [1]]}
    inputs: {x: $shape}
    chain: [{torch.sum: [$_, $dims]}]
    """)


def test_params_that_go_together(ran: Result) -> None:
    assert verdicts(ran, "together") == {"dims=[0]": "PASS", "dims=[1]": "FAIL"}


CASES.append("""
    name: marked
    params: {n: [4]}
    inputs: {x: ["${n}", 3]}
    dynamic: [{x: [0]}, null]
    chain: [{torch.mul: [$x, 2]}]
    calls: [{params: {n: 7}}]
    expect: {recompiles: 0}
    """)
CASES.append("""
    name: keys
    zip: {few: [true, false], sum: [0, 1]}
    inputs: {batch: {dict: {short: [2], long: [4]}}, flag: {python: $few}}
    chain:
      - {if: $flag, do: [{torch.sin: "$batch[short]"}], else: [{torch.sin: "$batch[long]"}]}
      - torch.mul: [$_, $sum]
    """)


def test_keys_of_dicts(ran: Result) -> None:
    assert verdicts(ran, "keys") == {"few=true,sum=0": "FAIL", "few=false,sum=1": "PASS"}


CASES.append("""
    name: math_of_sizes
    params: {n: [4]}
    inputs: {x: ["${n}", 2]}
    dynamic: true
    chain: [{torch.mul: [$x, "${math.sqrt(x.shape[0]) + math.ceil(x.shape[0] / 3)}"]}]
    calls: [{params: {n: 7}}]
    """)


def test_math_of_sizes(ran: Result) -> None:
    assert verdicts(ran, "math_of_sizes") == {"float32,cpu": "PASS"}


CASES.append("""
    name: constant
    inputs: {x: [4, 3]}
    dynamic: [{x: [0]}, {x: {maybe: [0]}}]
    chain: [{Tensor.reshape: [$x, 4, 3]}, {torch.mul: [$_, 2]}]
    """)


def test_dimensions_that_are_marked(ran: Result) -> None:
    """One that is marked is no constant from the first call on, and a compiler that takes it for one fails."""
    assert verdicts(ran, "marked") == {"dynamic={x:[0]}": "PASS", "dynamic=null": "FAIL"}
    assert verdicts(ran, "constant") == {"dynamic={x:[0]}": "ERROR", "dynamic={x:maybe[0]}": "PASS"}
    (error,) = [event for event in ran.finished.values() if event["verdict"] == "ERROR"]
    assert "ConstraintViolationError" in error["findings"][0]["message"]


def test_what_is_written_runs_again(ran: Result) -> None:
    """The script shows the failure, and the case without its axes is one that the reader takes."""
    failing = [event["id"] for event in ran.finished.values() if event["verdict"] == "FAIL"]
    for name in failing:
        script = run_in(ran.cwd, "repro", name, "--backend", "few:off")
        assert script.code == 0, script.text
        (ran.cwd / "script.py").write_text(script.out)
        result = run_script(ran.cwd, "script.py")
        assert result.returncode == 1, (name, result.stdout, result.stderr)
