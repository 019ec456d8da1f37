"""A script sees what the run sees: each planted difference makes it exit with 1 and the run's own word, and its twin with 0.

The scripts run in this process, each as a module of its own; tests/black_box/test_repro.py runs some as people do.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dataclasses
import functools
import importlib.util
import io
import json
import os
import re
import symtable
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runner.cases.model import Backend, Variant
from runner.diagnose.repro import features, script
from runner.session.plan import Environment, Planned, job
from tests.handmade import loaded, written

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
import torch._inductor.config

from runner.builder.source import build
from runner.worker.job import run_job
from runner.worker.planted import after, instead

REPOSITORY = Path(__file__).resolve().parents[2]
CLEAN = "runner.worker.planted:clean"


class _Cut(torch.autograd.Function):
    """The identity, whose gradient cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.detach()


def _cut(graph: Any, inputs: Any) -> Any:
    return lambda *args: graph(*(_Cut.apply(arg) for arg in args))


def _keyed(graph: Any, inputs: Any) -> Any:
    """Right in the first call only."""
    calls: list[int] = []

    def run(*args: Any) -> Any:
        calls.append(1)
        return tuple(out + (len(calls) > 1) for out in graph(*args))

    return run


HERE = ModuleType("planted_for_scripts")
HERE.cut, HERE.keyed = _cut, _keyed  # type: ignore[attr-defined]
HERE.nan_for_large = after(lambda out: torch.where(out > 1e30, torch.nan, out))  # type: ignore[attr-defined]
HERE.imaginary = after(lambda out: out + 1j)  # type: ignore[attr-defined]
HERE.conjugate_zero = after(lambda out: out.conj().resolve_conj())  # type: ignore[attr-defined]
HERE.halved = after(lambda out: (out.float() / 2).to(out.dtype))  # type: ignore[attr-defined]
HERE.naive_sum = lambda graph, inputs: lambda *args: (functools.reduce(torch.add, args[-1].unbind(0)),)  # type: ignore[attr-defined]
HERE.row_left_out = lambda graph, inputs: lambda *args: (functools.reduce(torch.add, args[-1][1:].unbind(0)),)  # type: ignore[attr-defined]
HERE.last_off_by_one = after(lambda out: out - torch.arange(4000.0).eq(2.0) * 1.0)  # type: ignore[attr-defined]
HERE.slow_to_compile = lambda graph, inputs: time.sleep(0.1) or graph.forward  # type: ignore[attr-defined]
HERE.hidden_by_eagers_numbers = after(  # type: ignore[attr-defined]
    lambda out: out if torch._inductor.config.fallback_random else out + 1
)
HERE.exits = instead(lambda: sys.exit(0))  # type: ignore[attr-defined]
sys.modules[HERE.__name__] = HERE

X = "inputs: {x: [4, 5]}\ngrad: off\n"
SUM = "inputs: {x: {values: [1.0, 2.0]}}\ngrad: off\nchain: [torch.sum, Tensor.item]"
GRADIENT = "inputs: {x: {shape: [4, 3], requires_grad: true}}\nchain: [{nn.Linear: [3, 2]}, torch.tanh]\n"

# The case, a backend with one bug, and the oracles that must speak. A backend without a module is runner.worker.planted's.
PLANTED = {
    "value, a row left out": (
        "inputs: {x: [4096, 8]}\ngrad: off\nchain: [{torch.sum: [$x, 0]}]",
        "planted_for_scripts:row_left_out",
        {"value"},
    ),
    "value, across a step": (
        "inputs: {x: {shape: [1, 4000], init: {linspace: [0, 3999]}}}\ngrad: off\nchain: [{torch.floor: $x}, "
        "{F.max_pool1d: {'*': [$_], kernel_size: 1}}]",
        "planted_for_scripts:last_off_by_one",
        {"value"},
    ),
    "value, Python's, a row left out": (
        "inputs: {x: [4096, 8]}\ngrad: off\nchain: [{torch.sum: [$x, 0]}, Tensor.tolist]",
        "planted_for_scripts:row_left_out",
        {"value"},
    ),
    "value": (X + "chain: [torch.sin]", "planted:off_by_one", {"value"}),
    "value, by little": (X + "chain: [torch.sin]", "planted:tiny_noise", {"value"}),
    "value, one of many": ("inputs: {x: [1000, 100]}\nchain: [torch.sin]", "wrong_element", {"value"}),
    "value, of a dict": (X + "chain: [{torch.sin: $x, out: y}]\nreturn: {a: $x, b: $y}", "planted:off_by_one", {"value"}),
    "value, tolerance": (X + "chain: [torch.sin]\ntolerance: {rtol: 0, atol: 1.0e-5, reason: so}", "planted:tiny_noise", {"value"}),
    "value, tolerance of another output": (
        X + "chain: [{torch.sin: $x, out: a}, {torch.cos: $x, out: b}]\nreturn: [$a, $b]\n"
        "tolerance: {'output[0]': {atol: 1, reason: so}, rtol: 0, reason: so}",
        "planted:tiny_noise",
        {"value"},
    ),
    "value, exact but for another output": (
        X + "chain: [{torch.sin: $x, out: a}, {torch.cos: $x, out: b}]\nreturn: [$a, $b]\n"
        "tolerance: {exact: true, 'output[0]': {atol: 1, reason: so}}",
        "planted:tiny_noise",
        {"value"},
    ),
    "value, exact": (X + "chain: [torch.sin]\ntolerance: {exact: true, reason: so}", "planted:tiny_noise", {"value"}),
    "value, integers": (
        "inputs: {x: {values: [1152921504606846976]}}\ndtypes: [int64]\nchain: [{torch.clone: $x}]",
        "planted:off_by_one",
        {"value"},
    ),
    "value, complex": ("inputs: {x: [4]}\ndtypes: [complex64]\nchain: [torch.exp]", "planted_for_scripts:imaginary", {"value"}),
    "value, float8": (
        "inputs: {x: {shape: [4], init: ones}}\ndtypes: [float8_e5m2]\nchain: [torch.clone]",
        "planted_for_scripts:halved",
        {"value"},
    ),
    "value, complex zero": (
        "inputs: {x: {values: [0.0, 1.0]}}\ngrad: off\nchain: [{torch.complex: [$x, $x]}, {operator.mul: [$_, 1.0]}]\n"
        "tolerance: {exact: true, reason: so}",
        "planted_for_scripts:conjugate_zero",
        {"value", "sign-of-zero"},
    ),
    "value, Python's": (SUM, "planted:off_by_one", {"value"}),
    "value, drawn in less": (
        "inputs: {x: [4, 5]}\ndtypes: [bfloat16]\ngrad: off\nchain: [{torch.sin: $x}]",
        "planted:off_by_one",
        {"value"},
    ),
    "value, autocast": (
        "inputs: {x: [4, 3]}\ngrad: off\nautocast: bfloat16\nchain: [{nn.Linear: [3, 2]}]",
        "planted:off_by_one",
        {"value"},
    ),
    "value, sparse": (
        X + "chain: [torch.sin, Tensor.to_sparse, {Tensor.coalesce: $_}]",
        "planted:off_by_one",
        {"value"},
    ),
    "value, second call": (X + "chain: [torch.sin]\ncalls: [{}]", "planted_for_scripts:keyed", {"value"}),
    "nonfinite": ("inputs: {x: {values: [1.0, -1.0, 4.0]}}\ngrad: off\nchain: [torch.sqrt]", "nan_to_zero", {"nonfinite"}),
    "nonfinite, overflow": (
        "inputs: {x: {values: [1.0e35, 1.0]}}\ngrad: off\nchain: [{operator.mul: [$_, 1.0]}]",
        "planted_for_scripts:nan_for_large",
        {"nonfinite"},
    ),
    "sign-of-zero": (
        "inputs: {x: {values: [-0.0, 2.0]}}\ngrad: off\nchain: [torch.trunc]\ntolerance: {exact: true, reason: so}",
        "unsigned_zero",
        {"sign-of-zero"},
    ),
    "shape": (X + "chain: [torch.sin]", "planted:extra_dimension", {"shape"}),
    "dtype": (X + "chain: [torch.sin]", "to_double", {"dtype"}),
    "device": (X + "chain: [torch.sin]", "planted:to_meta", {"device"}),
    "layout": (X + "chain: [torch.sin]", "planted:to_sparse", {"layout"}),
    "stride": (X + "chain: [torch.sin]", "planted:column_major", {"stride"}),
    "stride, exactly": ("inputs: {x: [1, 5]}\ngrad: off\nstrides: exact\nchain: [torch.sin]", "planted:ones_for_strides", {"stride"}),
    "structure": (X + "chain: [torch.sin]", "planted:as_parameter", {"structure"}),
    "requires-grad": (GRADIENT + "grad: forward", "no_gradient", {"requires-grad"}),
    "alias": (X + "chain: [{Tensor.view: [$_, 20]}]", "alias_lost", {"alias"}),
    "alias, of outputs": (
        X + "chain: [{torch.sin: $x, out: a}, {torch.sin: $a, out: b}]\nreturn: [$a, $b]",
        "planted:first_twice",
        {"alias", "value"},
    ),
    "offset": (X + 'chain: [{operator.getitem: [$x, "[2:]"]}]', "planted:start_of_input", {"offset", "value"}),
    "mutation": (X + "chain: [{Tensor.add_: [$x, 1]}, torch.sum]", "dropped_mutation", {"mutation"}),
    "mutation, unasked": (X + "chain: [torch.sin]", "planted:extra_mutation", {"mutation"}),
    "mutation, of state": (
        X + "state: {total: {shape: [], init: zeros}}\nchain: [{Tensor.add_: [$self.total, 1]}, {operator.add: [$x, $_]}]",
        "dropped_mutation",
        {"mutation"},
    ),
    "mutation, of an attribute": (
        X + "state: {last: {shape: [4, 5], init: zeros}}\nchain: [{torch.sin: $x, out: self.last}, torch.cos]",
        "planted:off_by_one",
        {"mutation", "value"},
    ),
    "grad": (GRADIENT + "grad: backward", "scaled_gradient", {"grad"}),
    "grad, of a given cotangent": (
        "inputs: {x: {shape: [4], requires_grad: true}, g: {values: [0.0, 5.0, 0.0, 1.0], hidden: true}}\n"
        "chain: [torch.tanh]\ngrad: {cotangent: $g}",
        "scaled_gradient",
        {"grad"},
    ),
    "grad, of given cotangents, second order": (
        "inputs: {x: {shape: [4], requires_grad: true}, g: {shape: [4], hidden: true}}\ncalls: [{}]\n"
        "chain: [{operator.pow: [$x, 3], out: a}, {torch.gt: [$x, 0], out: b}]\nreturn: [$a, $b]\ngrad: {cotangent: [$g, null], order: 2}",
        "planted_for_scripts:cut",
        {"grad"},
    ),
    "grad, of a sum": (GRADIENT + "grad: {cotangent: sum}", "scaled_gradient", {"grad"}),
    "grad, from ones": (GRADIENT + "grad: {cotangent: ones}", "scaled_gradient", {"grad"}),
    "grad, none": (
        "inputs: {x: {shape: [4], requires_grad: true}}\nstate: {w: {shape: [4], requires_grad: true}}\n"
        "chain: [{operator.mul: [$x, $self.w]}]\ngrad: backward",
        "planted:dropped_gradient",
        {"grad"},
    ),
    "grad, second order": (
        "inputs: {x: {shape: [4], requires_grad: true}}\nchain: [{operator.pow: [$x, 3]}]\n"
        "grad: {order: 2}",
        "planted_for_scripts:cut",
        {"grad"},
    ),
    "rng": ("inputs: {x: [50]}\ntrain: true\ngrad: off\nchain: [{nn.Dropout: 0.5}]", "planted:draws_again", {"rng"}),
    "missing-error": (
        "inputs: {x: [4]}\nchain: [{operator.getitem: [$x, {$tensor: [9]}]}]\nexpect: {raises: {type: IndexError}}",
        "planted:swallowed",
        {"missing-error"},
    ),
    "error-type": (
        "inputs: {x: [4]}\nchain: [{operator.getitem: [$x, {$tensor: [9]}]}]\nexpect: {raises: {type: IndexError}}",
        "planted:other_error",
        {"error-type"},
    ),
    "error, compiling": (X + "chain: [torch.sin]", "planted:raises_at_compile", {"error"}),
    "error, running": (X + "chain: [torch.sin]", "planted:raises_at_run", {"error"}),
    "error, exit": (X + "chain: [torch.sin]", "planted_for_scripts:exits", {"error"}),
    "error, in a later call": (
        "params: {n: [2]}\ninputs: {x: [\"${n}\"]}\nchain: [{operator.getitem: [$x, {$tensor: [1]}]}]\ncalls: [{params: {n: 1}}]\n"
        "expect: {raises: {type: IndexError}}",
        "error_swallowed",
        {"missing-error"},
    ),
    "recompile": (
        X + "chain: [torch.sin]\ncalls: [{}, {}]\nexpect: {graphs: 1, recompiles: 0}",
        "recompiles_always",
        {"graphs"},
    ),
    "graph-break": (SUM + "\nexpect: {graph_breaks: 0}", CLEAN, {"graph-break"}),
}  # fmt: skip

# What differs and is no problem: another rounding, memory that nobody wrote, what the case ignores.
HARMLESS = {
    "a sum in another order": (
        "inputs: {x: [4096, 8]}\ngrad: off\nchain: [{torch.sum: [$x, 0]}]",
        "planted_for_scripts:naive_sum",
    ),
    "another order of addition, of Python's numbers": (
        "inputs: {x: [4096, 8]}\ngrad: off\nchain: [{torch.sum: [$x, 0]}, Tensor.tolist]",
        "planted_for_scripts:naive_sum",
    ),
    "a cast left out": (
        "inputs: {x: [40]}\ngrad: off\nchain: [{operator.mul: [$x, 1.001]}, {Tensor.to: [$_, torch.float16]}, "
        "{Tensor.to: [$_, torch.float32]}, {operator.mul: [$_, 3.0]}]",
        "planted:without_casts",
    ),
    "tolerance of an output": (
        X + "chain: [torch.sin]\ntolerance: {exact: true, output: {atol: 1, reason: so}}",
        "planted:tiny_noise",
    ),
    "tolerance of gradients": (
        GRADIENT + "grad: backward\ntolerance: {gradients: {rtol: 1, reason: so}}",
        "scaled_gradient",
    ),
    "ignored": (X + "chain: [torch.sin]\nignore: {value: so}", "planted:off_by_one"),
    "ignored error": (X + "chain: [torch.sin]\nignore: {runtime-error: so}", "planted:raises_at_run"),
    "random": ("inputs: {x: [50]}\ntrain: true\nchain: [{nn.Dropout: 0.5}]", CLEAN),
    "inputs of one memory": (
        "inputs: {base: {shape: [8], hidden: true}, a: {view_of: base, layout: [{operator.getitem: [$_, '[:6]']}]}, "
        "b: {view_of: base, layout: [{operator.getitem: [$_, '[2:]']}]}}\ngrad: off\nchain: [{Tensor.mul_: [$a, 2]}, "
        "{operator.add: [$_, $b]}]",
        CLEAN,
    ),
    "meta": ("inputs: {x: {shape: [3], device: meta}}\ngrad: off\nchain: [{operator.mul: [$_, 2]}]", CLEAN),
    "nested": (
        "inputs: {x: [4, 5]}\ngrad: off\nchain: [{torch.nested.nested_tensor: [[$x, $x]]}, {operator.mul: [$_, 2]}]",
        CLEAN,
    ),
}


def variant(folder: Path, keys: str, backend: str, **more: str) -> Variant:
    for name, text in more.items():
        written(folder, text, f"{name}.py")
    body = "\n".join(f"    {line}" for line in keys.split("\n"))
    path = written(folder, f"cases:\n  - name: a\n{body}\n")
    (found,) = loaded(path, allow_python=True).variants
    name = backend if ":" in backend else f"runner.worker.planted:{backend}"
    return dataclasses.replace(found, backend=Backend(name, name))


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Back to what they were: a script sets them and leaves them set."""
    threads, random = torch.get_num_threads(), torch._inductor.config.fallback_random
    yield
    torch.set_num_threads(threads)
    torch._inductor.config.fallback_random = random


def outcome(chosen: Variant, folder: Path, backend: Any = None) -> tuple[int, set[str], str]:
    """Exit code, oracles and output of the script, run in this process, under another ``backend`` if one is given."""
    path = folder / "exported.py"
    path.write_text(script(chosen), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("exported", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["exported"] = module
    spec.loader.exec_module(module)
    quiet = SimpleNamespace(enable=lambda: None, dump_traceback_later=lambda *args, **kwargs: None)
    module.faulthandler = quiet  # type: ignore[attr-defined]  # pytest has its own
    if backend is not None:
        module.BACKEND = {"backend": backend}  # type: ignore[attr-defined]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = module.main()
    return code, set(re.findall(r"^PROBLEM: ([\w-]+): ", said.getvalue(), re.MULTILINE)), said.getvalue()


def judged(chosen: Variant) -> set[str]:
    """The oracles of the run itself, in the words of a script."""
    made = job(Planned(chosen, Environment("", "", "", "", "")), build(chosen))
    record = run_job(json.loads(json.dumps(dataclasses.asdict(made))), lambda message: None)
    raised = {f["oracle"]: "error" for f in record["findings"] if f["error"] and f["oracle"] != "error-type"}
    return {raised.get(f["oracle"], f["oracle"]) for f in record["findings"]}


@pytest.mark.parametrize("name", PLANTED)
def test_what_the_run_finds_the_script_says(name: str, tmp_path: Path) -> None:
    keys, backend, expected = PLANTED[name]
    chosen = variant(tmp_path, keys, backend)
    code, oracles, output = outcome(chosen, tmp_path)
    assert code == 1, output
    assert oracles == judged(chosen), output
    assert oracles >= expected, output


@pytest.mark.parametrize("name", [name for name, (_, backend, _) in PLANTED.items() if backend != CLEAN])
def test_without_the_bug_it_says_nothing(name: str, tmp_path: Path) -> None:
    code, oracles, output = outcome(variant(tmp_path, PLANTED[name][0], CLEAN), tmp_path)
    assert (code, oracles) == (0, set()), output
    assert output.endswith("no problem\n")


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_no_problem(name: str, tmp_path: Path) -> None:
    keys, backend = HARMLESS[name]
    chosen = variant(tmp_path, keys, backend)
    code, oracles, output = outcome(chosen, tmp_path)
    assert (code, oracles) == (0, set()), output
    assert judged(chosen) == set()


@pytest.mark.parametrize(("limit", "code", "oracles"), [("10ms", 1, {"timeout"}), ("10m", 0, set())])
def test_compiling_may_take_so_long(limit: str, code: int, oracles: set[str], tmp_path: Path) -> None:
    chosen = variant(
        tmp_path, f"{X}chain: [torch.sin]\ncompile: {{timeout: {limit}}}", "planted_for_scripts:slow_to_compile"
    )
    assert outcome(chosen, tmp_path)[:2] == (code, oracles)


def test_inductor_draws_eagers_numbers_in_the_script_of_a_case_that_draws(tmp_path: Path) -> None:
    """The backend is wrong by a defect that ``fallback_random`` hides, and notes the flag."""
    draws = f"{X}train: true\nchain: [{{F.dropout: [$_, 0.5, true]}}]"
    still = f"{X}chain: [{{F.dropout: [$_, 0.5, false]}}]"  # the word alone
    none = f"{X}chain: [torch.sin]"
    for keys, code, asks in ((draws, 0, True), (still, 1, True), (none, 1, False)):
        torch._inductor.config.fallback_random = False
        chosen = variant(tmp_path, keys, "planted_for_scripts:hidden_by_eagers_numbers")
        assert outcome(chosen, tmp_path)[0] == code, keys
        assert ("fallback_random" in script(chosen)) is asks
        assert bool(judged(chosen)) is bool(code)


def test_a_script_sets_the_flag_as_the_case_does(tmp_path: Path) -> None:
    for value in (True, False):
        flag = f"torch._inductor.config.fallback_random = {value}"
        keys = f"{X}config: {{torch._inductor.config.fallback_random: {str(value).lower()}}}\nchain: [{{F.dropout: [$_, 0.5, true]}}]"
        assert re.findall(r"^.*fallback_random.*$", script(variant(tmp_path, keys, CLEAN)), re.MULTILINE) == [
            f"    {flag}"
        ]


def test_same_is_asked_too(tmp_path: Path) -> None:
    """Upstream asks for it; it excuses one wrong element in a hundred thousand, and the script does not."""
    _, _, output = outcome(variant(tmp_path, *PLANTED["value"][:2]), tmp_path)
    assert "(torch._dynamo.utils.same: False)" in output
    _, _, output = outcome(variant(tmp_path, *PLANTED["value, one of many"][:2]), tmp_path)
    assert "1 of 100000 differ" in output


@pytest.mark.parametrize(("off", "code"), [(0.02, 0), (2.0, 1)])
def test_what_a_policy_of_the_compiler_explains(off: float, code: int, tmp_path: Path) -> None:
    """As the run has it: small differences of low precision that are gone when Inductor rounds as eager does."""

    def rounds(graph: Any, inputs: Any) -> Any:
        known = torch._inductor.config.emulate_precision_casts
        return lambda *args: tuple(out if known else out * (1 + off) for out in graph(*args))

    chosen = variant(tmp_path, "inputs: {x: [9]}\ndtypes: [bfloat16]\ngrad: off\nchain: [torch.exp]", CLEAN)
    chosen = dataclasses.replace(chosen, backend=Backend("inductor", "inductor"))
    before = torch._inductor.config.emulate_precision_casts
    try:
        found, _, output = outcome(chosen, tmp_path, rounds)
    finally:
        torch._inductor.config.emulate_precision_casts = before
    assert found == code, output
    assert ("rounds less often" in output) is (code == 0)


def test_a_flag_that_this_torch_lacks_is_no_verdict(tmp_path: Path) -> None:
    keys = X + "chain: [torch.sin]\nconfig: {torch._inductor.config.force_same_precision: true}"
    code, _, output = outcome(variant(tmp_path, keys, CLEAN), tmp_path)
    assert code == 2
    assert "force_same_precision" in output


MODULE = """
    import torch

    SEED = 5


    def compare(x):
        return x + SEED


    class Counting(torch.nn.Module):
        calls: list = []

        def forward(self, x):
            Counting.calls.append(1)
            return compare(x), len(Counting.calls)


    if __name__ == "__main__":
        raise SystemExit("a script of its own")
    """


def test_a_file_of_ones_own_keeps_its_names_and_starts_anew_for_each_run(tmp_path: Path) -> None:
    keys = X + "module: {file: own.py, name: Counting}\ncalls: [{}]"
    code, oracles, output = outcome(variant(tmp_path, keys, CLEAN, own=MODULE), tmp_path)
    assert (code, oracles) == (0, set()), output
    code, oracles, output = outcome(variant(tmp_path, keys, "planted:off_by_one", own=MODULE), tmp_path)
    assert (code, oracles) == (1, {"value"}), output
    text = (tmp_path / "exported.py").read_text()
    assert "def compare(x):" in text
    assert "def compare_(" in text
    assert "a script of its own" not in text


def test_every_script_of_the_suites_is_whole() -> None:
    """Valid Python without a tag, in which each name that is read is defined, and each import is used."""
    chosen = loaded(*sorted((REPOSITORY / "suites").glob("*.suite.yaml")), allow_python=True).variants
    texts = {v.case.name: script(v) for v in chosen}
    assert len(texts) > 100
    for name, text in texts.items():
        assert "{%" not in text and "{{" not in text, name
        tree = ast.parse(text)
        table = symtable.symtable(text, name, "exec")
        defined = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
        read = {
            s.get_name() for scope in _scopes(table) for s in scope.get_symbols() if s.is_global() and s.is_referenced()
        }
        assert read - defined <= {*dir(builtins), "__file__", "__name__"}, name
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        bound = {(alias.asname or alias.name).partition(".")[0] for node in tree.body
                 if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}  # fmt: skip
        assert bound <= used, name


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _scopes(child)


def test_the_template_uses_each_feature(tmp_path: Path) -> None:
    template = "".join(path.read_text() for path in (REPOSITORY / "runner" / "templates").glob("repro*.py.j2"))
    chosen = variant(tmp_path, PLANTED["value"][0], CLEAN)
    made = job(Planned(chosen, Environment("", "", "", "", "")), build(chosen))
    names = {name for tag in re.findall(r"\{[%{].*?[%}]\}", template) for name in re.findall(r"\w+", tag)}
    assert features(chosen, made, made.source).keys() <= names


def test_a_script_has_only_what_its_case_needs(tmp_path: Path) -> None:
    raising = script(variant(tmp_path, PLANTED["error-type"][0], CLEAN))
    plain = script(variant(tmp_path, PLANTED["value"][0], CLEAN))
    trained = script(variant(tmp_path, PLANTED["grad"][0], CLEAN))
    assert "allclose" not in raising and "def keep" not in raising and "def gradients" not in raising
    assert "def keep" in plain and "def gradients" not in plain and "TorchDispatchMode" not in plain
    assert "def gradients" in trained
    for text in (raising, plain, trained):
        assert "\n\n\ndef main():\n    torch" in text and "\n\n\n\n" not in text


def test_what_torch_compile_is_told_stays(tmp_path: Path) -> None:
    static = script(variant(tmp_path, X + "chain: [torch.sin]\ndynamic: false\ncompile: {fullgraph: true}", "inductor"))
    assert "'dynamic': False, 'fullgraph': True}" in static.replace('"', "'")
    assert "BACKEND = {'backend': importlib.import_module('runner.worker.planted').clean, **{}}" in script(
        variant(tmp_path, PLANTED["value"][0], CLEAN)
    ).replace('"', "'")


def test_a_script_for_a_gpu_has_the_switches_of_the_run(tmp_path: Path) -> None:
    one = variant(tmp_path, X + "chain: [torch.sin]\ndevices: [cuda]", "inductor")
    text = script(one)
    assert "    torch.backends.cudnn.allow_tf32 = False\n" in text and "import torch.backends" not in text
    compile(text, "script", "exec")
    assert "torch.backends" not in script(variant(tmp_path, X + "chain: [torch.sin]", "inductor"))
