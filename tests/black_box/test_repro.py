"""What is exported: valid Python that needs torch alone and exits non-zero while, and only while, the problem is there."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .driver import environment, run_in, spec, write

RELU = "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY"
PLANTED = "relu_accuracy_error_TESTING_ONLY"

CASES = spec(
    f"name: wrong\ninputs: {{x: [4, 8]}}\nchain: [{{nn.Linear: [8, 8]}}, F.relu]\nconfig: {{{RELU}: accuracy}}",
    "name: twin\ninputs: {x: [4, 8]}\nchain: [{nn.Linear: [8, 8]}, F.relu]",
    "name: raising\ninputs: {x: [4]}\nchain: [{operator.getitem: [$_, 9]}]\nexpect: {raises: {type: IndexError}}",
    "name: not_raising\ninputs: {x: [4]}\nchain: [torch.neg]\nexpect: {raises: {type: IndexError}}",
    """
    name: trained
    inputs: {x: {shape: [4, 8], requires_grad: true}}
    grad: backward
    train: true
    chain: [{nn.Linear: [8, 8]}, torch.tanh]
    """,
    "name: own\ninputs: {x: [4]}\nmodule: {file: models.py, name: Scaled, args: {factor: 3}}",
    "name: short\ninputs: {x: [4]}\nchain: [torch.neg]\ntimeout: 8s",
    """
    name: called
    params: {n: [3]}
    inputs: {x: ["${n}", 4]}
    chain: [torch.relu, {operator.mul: [$_, "${x.shape[0]}"]}]
    calls: [{params: {n: 5}}, {}]
    """,
)
MODELS = """
    import torch


    class Scaled(torch.nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return torch.relu(x) * self.factor
    """
# Right forwards, wrong backwards: only a script that compares gradients can see it. And no answer at all.
BACKEND = """
    import os
    import time

    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd


    def _backward(module, inputs):
        return make_boxed_func(lambda *args: [None if out is None else out * 2 for out in module.forward(*args)])


    doubled = aot_autograd(fw_compiler=lambda module, inputs: make_boxed_func(module.forward), bw_compiler=_backward)


    def hangs(module, inputs):
        return lambda *args: time.sleep(3600)


    def aborts(module, inputs):
        return lambda *args: os.abort()
    """
# case@backend -> exit code, and what is printed
SCRIPTS = {
    "wrong@inductor": (1, "AssertionError: Tensor-likes are not close!"),
    "twin@inductor": (0, "compiled "),
    "raising@aot_eager": (0, "compiled IndexError("),
    "not_raising@aot_eager": (2, "eager tensor("),
    "trained@aot_eager": (0, "compiled "),
    "trained@wrong_backward:doubled": (1, "AssertionError: Tensor-likes are not close!"),
    f"own@{PLANTED}": (1, "AssertionError: Tensor-likes are not close!"),
    f"called@{PLANTED}": (1, "AssertionError: Tensor-likes are not close!"),
    "short@wrong_backward:hangs": (1, "Timeout (0:00:08)!"),
    "short@wrong_backward:aborts": (-signal.SIGABRT, ": eager tensor("),
}
RUN = {"wrong": "inductor", "trained": "doubled", "own": PLANTED, "called": PLANTED, "short": "hangs"}
"""What is run before; others have no record."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repro")
    write(folder, {"all.spec.yaml": CASES, "models.py": MODELS, "wrong_backward.py": BACKEND})
    (folder / "elsewhere").mkdir()
    backends = ["inductor", PLANTED, *(f"wrong_backward:{name}" for name in ("doubled", "hangs", "aborts"))]
    some = " or ".join(f"({case} and {backend})" for case, backend in [*RUN.items(), ("short", "aborts")])
    words = [word for backend in backends for word in ("--backend", backend)]
    result = run_in(folder, "run", "all.spec.yaml", "--allow-python", "--no-confirm", "-j", 2, "-k", some, *words)
    assert len(result.verdicts) == len(RUN) + 1 and not {"PASS", "INVALID"} & {*result.verdicts.values()}, result.text
    return folder


def exported(folder: Path, command: str, name: str) -> str:
    case, _, backend = name.partition("@")
    result = run_in(folder, command, f"all.spec.yaml::{case}", "--backend", backend, "--allow-python")
    assert result.code == 0, result.text
    return result.out


# Runs scripts, two at a time, each in a fork of a process that has imported torch: an import takes longer than most scripts.
FORKS = """
import os, runpy, sys
import torch, torch._dynamo, torch._inductor.compile_fx

running = {}


def wait():
    pid, status = os.wait()
    print(running.pop(pid), os.waitstatus_to_exitcode(status), flush=True)


for script in sys.argv[1:]:
    if len(running) == 2:
        wait()
    pid = os.fork()
    if pid == 0:
        output = os.open(script + ".out", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.argv = [script]
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    running[pid] = script
while running:
    wait()
"""
AS_PEOPLE_DO = "wrong@inductor"
"""The script that runs in a process of its own."""


def run_scripts(folder: Path, *words: str, python_path: str = "") -> str:
    """Run Python in another folder without an environment of ours, and without user site unless ``python_path`` is given."""
    changes = {"TORCHINDUCTOR_COMPILE_THREADS": "1", **({"PYTHONPATH": python_path} if python_path else {})}
    process = subprocess.run(
        [sys.executable, *([] if python_path else ["-I"]), *words], cwd=folder / "elsewhere", env=environment(changes),
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    if words[0] != "-c":
        (folder / "elsewhere" / f"{words[0]}.out").write_text(process.stdout + process.stderr)
        return f"{words[0]} {process.returncode}\n"
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, tuple[int, str]]:
    """Exit code and output of each script."""
    scripts = {name: f"{name.replace(':', '.')}.py" for name in SCRIPTS}
    for name, script in scripts.items():
        (folder / "elsewhere" / script).write_text(exported(folder, "repro", name))
    own = [script for name, script in scripts.items() if ":" in name]  # such a backend must be found, which -I forbids
    plain_scripts = [script for name, script in scripts.items() if ":" not in name and name != AS_PEOPLE_DO]
    ends = run_scripts(folder, scripts[AS_PEOPLE_DO])
    ends += run_scripts(folder, "-c", FORKS, *plain_scripts)
    ends += run_scripts(folder, "-c", FORKS, *own, python_path=str(folder))
    codes = dict(line.split() for line in ends.splitlines())
    return {
        name: (int(codes[script]), (folder / "elsewhere" / f"{script}.out").read_text())
        for name, script in scripts.items()
    }


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_exit_code_says_whether_the_problem_is_there(name: str, results: dict[str, tuple[int, str]]) -> None:
    code, output = results[name]
    expected, words = SCRIPTS[name]
    assert code == expected, output
    assert words in output


def test_a_script_imports_torch_and_the_standard_library_alone(
    folder: Path, results: dict[str, tuple[int, str]]
) -> None:
    for script in (folder / "elsewhere").glob("*.py"):
        tree = ast.parse(script.read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {name.partition(".")[0] for name in imported} - sys.stdlib_module_names <= {"torch"}
        assert str(folder) not in script.read_text(), "a path of this machine"
    assert len([*(folder / "elsewhere").glob("*.py")]) == len(SCRIPTS)


def test_a_script_names_the_finding_that_it_aims_at(folder: Path, results: dict[str, tuple[int, str]]) -> None:
    titles = {
        name: (folder / "elsewhere" / f"{name.replace(':', '.')}.py").read_text().split("\n")[0] for name in results
    }
    assert titles["wrong@inductor"].startswith('"""wrong[float32,cpu]@inductor: value at output (torch ')
    assert titles["trained@wrong_backward:doubled"].startswith(
        '"""trained[float32,cpu]@wrong_backward:doubled: grad at gradient of '
    )
    assert ": timeout (torch " in titles["short@wrong_backward:hangs"]
    assert titles[f"own@{PLANTED}"].startswith('"""') and ": value at output" in titles[f"own@{PLANTED}"]
    assert titles["twin@inductor"].endswith('no run of it is recorded; compares outputs"""')


def test_the_script_of_a_model_in_python_holds_its_captured_graph(
    folder: Path, results: dict[str, tuple[int, str]]
) -> None:
    text = (folder / "elsewhere" / f"own@{PLANTED}.py").read_text()
    assert "class Model(torch.nn.Module)" in text and "Scaled" not in text
    plain = exported(folder, "repro", "own@aot_eager")
    assert plain.split("\n")[1] == "# This is the Python of the model: no run of it is recorded that failed."
    assert "class Scaled(torch.nn.Module)" in plain


@pytest.mark.parametrize("name", ["wrong", "trained", "called", "own"])
def test_show_prints_python(name: str, folder: Path) -> None:
    """It is what workers load: the facts as comments, a Model and its inputs."""
    text = exported(folder, "show", f"{name}@aot_eager")
    assert text.startswith(f"# id:             all.spec.yaml::{name}[")
    definitions = {node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert definitions >= {"Scaled" if name == "own" else "Model", "make_inputs", "make_model"}


def test_what_is_shown_runs(folder: Path) -> None:
    program = folder / "elsewhere" / "shown.txt"
    program.write_text(exported(folder, "show", "trained@aot_eager"))
    code = f"exec(open({str(program)!r}).read()); print(tuple(make_model()(*make_inputs()).shape))"
    process = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert process.stdout == "(4, 8)\n", process.stderr


def test_show_names_the_other_variants_and_settings(folder: Path) -> None:
    text = exported(folder, "show", "wrong@inductor")
    assert f"# config:         {RELU}=accuracy" in text
    assert "# declared:       all.spec.yaml:2" in text


def test_a_case_beside_a_broken_one_is_exported(folder: Path) -> None:
    write(
        folder,
        {
            "mixed.spec.yaml": spec(
                "name: good\ninputs: {x: [2]}\nchain: [torch.neg]", "name: bad\ninputs: {x: [2]}\nchain: [torch.nge]"
            )
        },
    )
    assert "torch.neg" in run_in(folder, "repro", "mixed.spec.yaml::good").out
    bad = run_in(folder, "repro", "mixed.spec.yaml::bad")
    assert bad.code == 4
    assert "unknown operator 'torch.nge'" in bad.err
    assert bad.out == ""


def test_another_folder_has_no_record(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, {"all.spec.yaml": CASES, "models.py": MODELS})
    assert "no run of it is recorded" in exported(tmp_path, "repro", "wrong@inductor")
