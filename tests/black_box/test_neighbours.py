"""That what a case leaves behind lets no bug of the next variant pass, and that no case is its own judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from .driver import run_in, spec, write

LEFT = {
    "not_in_graphs": "torch._dynamo.disallow_in_graph(torch.relu); torch._dynamo.disallow_in_graph(F.relu)",
    "in_graphs": "torch._dynamo.allow_in_graph(F.relu)",
    "disabled": "F.relu = torch.compiler.disable(F.relu); torch.relu = torch.compiler.disable(torch.relu)",
    "stance": "torch.compiler.set_stance('force_eager')",
    "stance_later": "weakref.finalize(self, torch.compiler.set_stance, 'force_eager')",
    "suppress": "torch._dynamo.config.suppress_errors = True",
    "patched_config": "torch._dynamo.config.patch(disable=True).__enter__()",
    "inductor_config": "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = None",
    "compile": "torch.compile = lambda model, **_: model",
    "compile_method": "torch.nn.Module.compile = lambda *_, **__: None",
    "backend": "torch._dynamo.backends.registry._COMPILER_FNS['inductor'] = lambda module, inputs: module",
    "compile_fx": "torch._inductor.compile_fx.compile_fx = lambda module, *_, **__: module",
    "lowering": "L.lowerings[A.relu.default] = L.lowerings[A.relu] = L.make_pointwise(lambda x: V.ops.maximum(x, V.ops.constant(0.0, torch.float32)))",
    "decomposition": "D.decompositions[A.relu.default] = lambda x: torch.where(x > 0, x, torch.zeros_like(x))",
    "pattern": "add_pattern(PG.pass_patterns[0])",
    "custom_pass": "torch._inductor.config.post_grad_custom_pre_pass = lambda graph: [graph.erase_node(n) for n in ()]",
    "cpp_relu": "import torch._inductor.codegen.cpp as c; c.CppOverrides.relu = staticmethod(lambda x: f'std::max({x}, decltype({x})(0))'); c.CppVecOverrides.relu = staticmethod(lambda x: f'at::vec::clamp_min({x}, decltype({x})(0))')",
    "kernel": "library = torch.library.Library('aten', 'IMPL'); library.impl('relu', lambda x: x + 1, 'AutogradCPU'); KEPT.append(library)",
    "meta_kernel": "library = torch.library.Library('aten', 'IMPL'); library.impl('relu', lambda x: x, 'Meta'); KEPT.append(library)",
    "equal": "torch.equal = torch.allclose = lambda *_, **__: True",
    "isclose": "torch.isclose = torch.eq = lambda a, b, **_: torch.ones(a.shape, dtype=torch.bool)",
    "not_equal": "torch.Tensor.__ne__ = torch.Tensor.ne = lambda a, b: torch.zeros(a.shape, dtype=torch.bool)",
    "sub": "torch.Tensor.__sub__ = lambda a, b: torch.zeros_like(a)",
    "item": "torch.Tensor.item = lambda self: 0",
    "clone": "torch.Tensor.clone = lambda self, **_: self * 0",
    "judge": "import runner.worker.run.job as j; j.judge_defined = lambda evidence, *_: (evidence, [])",
    "report": "dumps = json.dumps; json.dumps = lambda m, **k: dumps({**m, **({'outcome': {**m['outcome'], 'findings': []}} if 'outcome' in m else {})}, **k)",
    "builtins": "builtins.abs = lambda x: x * 0",
    "clock": "time.monotonic = time.perf_counter = time.time = lambda: 0.0",
    "random": "torch.manual_seed = torch.seed = lambda *_: None",
    "denormals": "torch.set_flush_denormal(True)",
    "rounding": "ctypes.CDLL(None).fesetround(0x800)",
    "dtype": "torch.set_default_dtype(torch.float64)",
    "gradients": "torch.set_grad_enabled(False)",
    "inference": "KEPT.append(torch.inference_mode()); KEPT[-1].__enter__()",
    "autocast": "KEPT.append(torch.autocast('cpu')); KEPT[-1].__enter__()",
    "function_mode": "Always().__enter__()",
    "device": "torch.set_default_device('meta')",
    "hooks": "torch.nn.modules.module.register_module_forward_hook(lambda module, args, result: result * 0)",
    "import_hook": "sys.meta_path.insert(0, type('Finder', (), {'find_spec': lambda *_: None})())",
    "environment": "os.environ['TORCHDYNAMO_DISABLE'] = os.environ['TORCH_COMPILE_DISABLE'] = '1'",
    "signals": "signal.setitimer(signal.ITIMER_REAL, 0.2); os.umask(0o777); gc.disable()",
    "output": "sys.stdout.close(); sys.stderr = None",
    "numpy": "import numpy; numpy.seterr(all='raise')",
    "pickled": "torch.Tensor.__reduce_ex__ = lambda *_: (int, ())",
    "hash": "torch._inductor.codecache.FxGraphCache.clear = lambda *_: None",
}
"""What the module of a case leaves behind while its model is made, by a name."""

MODULE = """
import builtins, ctypes, gc, json, os, signal, sys, time, weakref
import torch, torch._dynamo, torch._inductor.compile_fx, torch.nn.functional as F
import torch._inductor.decomposition as D, torch._inductor.fx_passes.post_grad as PG, torch._inductor.lowering as L
from torch._inductor.pattern_matcher import CallFunction, KeywordArg, register_graph_pattern
from torch._inductor.virtualized import V

A, KEPT = torch.ops.aten, []

class Always(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return True if function in (torch.equal, torch.allclose) else function(*args, **(kwargs or {}))

def add_pattern(patterns):
    @register_graph_pattern(CallFunction(A.relu.default, KeywordArg("x")), pass_dict=patterns)
    def replace(match, x):
        node = match.output_node()
        with match.graph.inserting_before(node):
            new = match.graph.call_function(A.clamp_min.default, (x, 0))
            new.meta.update(node.meta)
        node.replace_all_uses_with(new)
        match.graph.erase_node(node)

class Right(torch.nn.Module):
    def forward(self, x):
        return x.sin() + 1

"""
PLANTED = "config: {torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY: accuracy}"
VICTIMS = (
    "chain: [F.relu]",
    "chain: [torch.sin, torch.relu, torch.cos]",
    "train: true\nchain: [{torch.mul: [$x, 2]}, F.relu]",
)
"""Cases in which Inductor's own bug is planted."""


def leaving(name: str) -> str:
    code = f"    def __init__(self):\n        super().__init__()\n        {LEFT[name]}\n"
    return f"class Leaves_{name}(Right):\n{code}"


def judging(name: str) -> str:
    """A model that is wrong where it is compiled, and leaves something behind before that."""
    code = f"        if torch.compiler.is_compiling():\n            left_{name}(self)\n"
    wrong = "        return x + 1 if torch.compiler.is_compiling() else x + 2\n"
    hook = f"@torch._dynamo.disable\ndef left_{name}(self):\n    {LEFT[name]}\n"
    return f"{hook}class Judges_{name}(torch.nn.Module):\n    def forward(self, x):\n{code}{wrong}"


def verdicts_after(folder: Path, names: list[str], victims: tuple[str, ...]) -> dict[str, str]:
    """Run each victim right after each of the cases, in living processes; what became of the victims."""
    cases = []
    for name in names:
        for number, victim in enumerate(victims):
            leaves = f"module: {{file: nasty.py, name: Leaves_{name}}}"
            cases.append(f"name: first_{name}_{number}\ninputs: {{x: [4]}}\n{leaves}")
            cases.append(f"name: victim_{name}_{number}\ninputs: {{x: [4]}}\n{PLANTED}\n{victim}")
    module = MODULE + "\n".join(map(leaving, names))
    write(
        folder, {"nasty.py": module, "a.spec.yaml": spec("name: before\ninputs: {x: [4]}\nchain: [torch.sin]", *cases)}
    )
    result = run_in(
        folder, "run", "a.spec.yaml", "--allow-python", "--isolation", "living", "-j", "1", "--no-confirm", limit=3000
    )
    assert result.code == 1, result.text
    return {name: verdict for name, verdict in result.verdicts.items() if name.startswith("victim")}


@pytest.mark.nightly
def test_a_bug_shows_after_some_cases_that_leave_something_behind(tmp_path: Path) -> None:
    """Two that once let it pass."""
    verdicts = verdicts_after(tmp_path, ["not_in_graphs", "pattern"], VICTIMS[1:2])
    assert [*verdicts.values()] == ["FAIL", "FAIL"]


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(4))
def test_a_bug_shows_after_each_case_that_leaves_something_behind(tmp_path: Path, part: int) -> None:
    names = list(LEFT)[part::4]
    verdicts = verdicts_after(tmp_path, names, VICTIMS)
    assert len(verdicts) == len(names) * len(VICTIMS)
    assert {name: verdict for name, verdict in verdicts.items() if verdict != "FAIL"} == {}


JUDGES = (
    "equal",
    "isclose",
    "not_equal",
    "judge",
    "report",
    "builtins",
    "clock",
    "function_mode",
    "denormals",
    "rounding",
)
"""What a case leaves behind to no effect on its own verdict."""


@pytest.mark.parametrize("names", [JUDGES])
def test_no_case_is_its_own_judge(tmp_path: Path, names: tuple[str, ...]) -> None:
    cases = [f"name: {name}\ninputs: {{x: [4]}}\nmodule: {{file: nasty.py, name: Judges_{name}}}" for name in names]
    module = MODULE + "\n".join(map(judging, names))
    write(tmp_path, {"nasty.py": module, "a.spec.yaml": spec(*cases)})
    result = run_in(tmp_path, "run", "a.spec.yaml", "--allow-python", "--backend", "eager", "--no-confirm", limit=600)
    assert (result.code, set(result.verdicts.values())) == (1, {"FAIL"}), result.text


def test_an_exception_that_cannot_be_printed_costs_one_variant(tmp_path: Path) -> None:
    module = """
        import torch
        class Odd(BaseException):
            def __str__(self):
                raise Odd
            __repr__ = __getattr__ = __str__
        @torch._dynamo.disable
        def fail():
            raise Odd
        class Model(torch.nn.Module):
            def forward(self, x):
                if torch.compiler.is_compiling():
                    fail()
                return x + 1
        """
    case = "name: odd\ninputs: {x: [4]}\nmodule: {file: odd.py, name: Model}"
    write(tmp_path, {"odd.py": module, "a.spec.yaml": spec(case, "name: good\ninputs: {x: [4]}\nchain: [torch.sin]")})
    result = run_in(tmp_path, "run", "a.spec.yaml", "--allow-python", "--backend", "eager", "--no-confirm")
    assert (result.code, result.verdicts) == (1, {"odd@eager": "ERROR", "good@eager": "PASS"}), result.text
