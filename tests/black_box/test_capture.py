"""``runner capture``: models of one's own become cases that pass as the models do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from .driver import Result, run_in

pytest.importorskip("torch")

MODELS = (Path(__file__).parent / "user_models.py").read_text(encoding="utf-8")

BROKEN = '''
"""A backend that takes another gelu."""

import torch
import torch.nn.functional as F


def compile_graph(graph, examples):
    for node in graph.graph.nodes:
        if node.target is F.gelu:
            node.kwargs = {"approximate": "tanh"}
    graph.recompile()
    return graph.forward
'''

MODULE = """
cases:
  - {name: mine, inputs: {x: [2, 8]}, module: {file: models.py, name: Perceptron}, grad: backward}
"""

TRANSFORMER = '''
"""A causal transformer of two layers, trained for three steps with batches of two sizes."""

import torch
import torch.nn.functional as F


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(16), torch.nn.LayerNorm(16)
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x):
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(20, 16)
        self.place = torch.nn.Parameter(torch.randn(6, 16))
        self.blocks = torch.nn.Sequential(Block(), Block())
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, ids):
        return F.linear(self.norm(self.blocks(self.embed(ids) + self.place)), self.embed.weight)


torch.manual_seed(0)
model = Transformer()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
compiled = torch.compile(model)
for batch in (2, 3, 3):
    ids = torch.randint(0, 20, (batch, 6))
    F.cross_entropy(compiled(ids).flatten(0, 1), ids.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
'''

NAMES = ("attention", "broken", "checkpointed", "convolution", "dynamic", "mixed", "perceptron", "scale_in_place", "tied",
         "write_a_view")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a user's models, which ``capture`` has turned into cases."""
    here = tmp_path_factory.mktemp("capture")
    (here / "models.py").write_text(MODELS, encoding="utf-8")
    (here / "broken.py").write_text(BROKEN, encoding="utf-8")
    (here / "module.spec.yaml").write_text(MODULE, encoding="utf-8")
    result = run_in(here, "capture", "models.py", "--", "--size", "2")
    assert result.code == 0, result.out + result.err
    return here


def case_of(folder: Path, name: str) -> dict[str, Any]:
    """Return a captured case as plain data."""
    data = yaml.safe_load((folder / "captured" / f"{name}.spec.yaml").read_text(encoding="utf-8"))
    return data["cases"][0]


@pytest.mark.slow
def test_a_graph_becomes_a_readable_case(folder: Path) -> None:
    case = case_of(folder, "perceptron")
    assert [step if isinstance(step, str) else next(iter(step)) for step in case["chain"]] == [
        "F.linear", "F.gelu", "F.layer_norm",
    ]  # fmt: skip
    assert case["grad"] == "backward"
    assert case["state"]["first_weight"]["shape"] == [16, 8] and case["state"]["first_weight"]["requires_grad"]
    assert case["state"]["norm_weight"]["init"] == "ones"


@pytest.mark.slow
def test_each_model_is_captured_whole(folder: Path) -> None:
    inventory = json.loads((folder / "captured" / "inventory.json").read_text(encoding="utf-8"))
    assert sorted(path.name for path in (folder / "captured").glob("*.spec.yaml")) == [f"{n}.spec.yaml" for n in NAMES]
    for model in inventory["models"]:
        assert model["faults"] == [] and model["sayable"] == model["calls"] and all(g["whole"] for g in model["graphs"])
    breaks = {model["model"]: model["breaks"] for model in inventory["models"] if model["breaks"]}
    assert [*breaks] == ["Broken"] and "models.py" in breaks["Broken"][0]["source"]
    page = (folder / "captured" / "inventory.md").read_text(encoding="utf-8")
    assert "| Perceptron | 1 | 1 | 3 | 100.0 % | 0 |" in page and "graph break: " in page


@pytest.mark.slow
def test_what_a_case_says_is_what_the_model_does(folder: Path) -> None:
    dynamic, mixed, tied = (case_of(folder, name) for name in ("dynamic", "mixed", "tied"))
    assert dynamic["dynamic"] is True and "${x.shape[0]}" in str(dynamic["chain"])
    assert [step["with"] for step in mixed["chain"] if "with" in step] == [
        [{"torch.autocast": {"device_type": "$device", "dtype": "torch.bfloat16"}}],
        [{"torch.set_grad_enabled": [False]}],
    ]
    assert tied["inputs"]["ids"]["init"]["randint"][0] == 0 and [*tied["state"]] == ["steps", "embed_weight"]
    assert case_of(folder, "convolution")["inputs"]["x"]["layout"] == [{"Tensor.permute": ["$_", [0, 3, 1, 2]]}]
    assert case_of(folder, "attention")["inputs"]["mask"]["values"][0] == [False, True, True, True, True]
    views = case_of(folder, "write_a_view")["inputs"]
    assert [item.get("view_of") for item in views.values()] == [None, "storage_0", "storage_0"]
    text = (folder / "captured" / "perceptron.spec.yaml").read_text(encoding="utf-8")
    assert "      # models.py:17: return self.norm(F.gelu(self.first(x)))\n      - F.linear: " in text


@pytest.mark.slow
def test_captured_cases_are_valid_and_pass(folder: Path) -> None:
    assert "0 errors, 0 warnings" in run_in(folder, "validate", "captured", "--build").out
    judged = run_in(
        folder, "run", "captured", "--backend", "eager", "--backend", "aot_eager", "--no-confirm", limit=600
    )
    assert judged.code == 0 and "22 passed" in judged.out, judged.out


@pytest.mark.nightly
def test_captured_cases_pass_under_inductor(folder: Path) -> None:
    judged = run_in(folder, "run", "captured", "--backend", "inductor", limit=1200)
    assert judged.code == 0 and "11 passed" in judged.out, judged.out


@pytest.mark.nightly
def test_a_trained_transformer_passes_under_inductor_and_fails_under_a_wrong_backend(tmp_path: Path) -> None:
    """Its second batch has another size, so that Dynamo makes a second graph, in which that one size varies."""
    (tmp_path / "train.py").write_text(TRANSFORMER, encoding="utf-8")
    (tmp_path / "broken.py").write_text(BROKEN, encoding="utf-8")
    captured = run_in(tmp_path, "capture", "train.py")
    assert captured.code == 0 and "76 of 76 calls (100.0 %); 2 cases" in captured.out, captured.out + captured.err
    text = (tmp_path / "captured" / "transformer.spec.yaml").read_text(encoding="utf-8")
    fixed, varying = yaml.safe_load(text)["cases"]
    assert fixed["grad"] == varying["grad"] == "backward"
    assert "dynamic" not in fixed and varying["dynamic"] == {"ids": {"maybe": [0]}}
    assert text.count(": return F.linear(self.norm(") == 4  # above the embedding, and the head, of each
    words = ("--backend", "inductor", "--backend", "broken:compile_graph", "--allow-python", "--no-confirm")
    judged = run_in(tmp_path, "run", "captured", *words, limit=1200)
    assert judged.verdicts == {
        f"{name}@{backend}": verdict
        for name in ("transformer", "transformer_2")
        for backend, verdict in (("inductor", "PASS"), ("broken:compile_graph", "FAIL"))
    }, judged.out


@pytest.mark.nightly
def test_a_backend_that_fails_on_the_model_fails_on_its_case(folder: Path) -> None:
    words = ("--backend", "broken:compile_graph", "--allow-python", "--no-confirm")
    case = run_in(folder, "run", "captured/perceptron.spec.yaml", *words, limit=600)
    module = run_in(folder, "run", "module.spec.yaml", *words, limit=600)
    for judged in (case, module):
        assert judged.code == 1 and "FAIL" in judged.out and "value at output" in judged.out, judged.out


@pytest.mark.nightly
def test_parts_and_a_model_that_a_function_makes(folder: Path) -> None:
    """A folder grows; a case that it has is counted."""
    before = {path.name for path in (folder / "captured").iterdir()}
    result: Result = run_in(folder, "capture", "models:make")
    assert result.code == 0, result.out + result.err
    inventory = json.loads((folder / "captured" / "inventory.json").read_text(encoding="utf-8"))
    assert {case["name"]: case["count"] for case in inventory["cases"].values()}["perceptron"] == 2
    assert {path.name for path in (folder / "captured").iterdir()} == before
    for by, names in (("operator", ["f_linear", "f_gelu", "f_layer_norm"]), ("module", ["linear", "layer_norm"])):
        result = run_in(folder, "capture", "models:make", "--by", by, "-o", by)
        assert result.code == 0, result.out + result.err
        data = yaml.safe_load((folder / by / f"perceptron_{by}s.spec.yaml").read_text(encoding="utf-8"))
        assert {case["name"] for case in data["cases"]} >= {*names}
    assert run_in(folder, "validate", "operator", "module", "--build").code == 0


@pytest.mark.nightly
def test_weights_and_values_are_kept_in_a_file(folder: Path) -> None:
    result = run_in(folder, "capture", "models:make", "--weights", "keep", "--values", "keep", "-o", "kept")
    assert result.code == 0, result.out + result.err
    case = yaml.safe_load((folder / "kept" / "perceptron.spec.yaml").read_text(encoding="utf-8"))["cases"][0]
    assert case["inputs"] == {"x": {"file": {"path": "values.safetensors", "tensor": "x"}}}
    assert case["state"]["norm_bias"] == {
        "file": {"path": "values.safetensors", "tensor": "norm_bias"}, "requires_grad": True,
    }  # fmt: skip
    judged = run_in(folder, "run", "kept", "--backend", "aot_eager", "--no-confirm", limit=600)
    assert judged.code == 0 and "1 passed" in judged.out, judged.out
    script = run_in(folder, "repro", "kept::perceptron", "--backend", "eager").out
    assert '"kept/values.safetensors"' in script and str(folder) not in script
    moved = folder / "moved"
    moved.mkdir()
    (moved / "repro.py").write_text(script, encoding="utf-8")
    shutil.copy(folder / "kept" / "values.safetensors", moved)
    for words, below in ((["moved/repro.py"], folder), (["repro.py"], moved)):
        done = subprocess.run([sys.executable, *words], cwd=below, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_fault_that_the_script_s_own_settings_bring_is_found(tmp_path: Path) -> None:
    """Of the graph, and of its call alone: without the settings both would pass."""
    text = """
        import torch
        @torch.compile(options={"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"})
        def positive(x):
            return x.relu()
        positive(torch.randn(64))
    """
    (tmp_path / "train.py").write_text(dedent(text), encoding="utf-8")
    assert run_in(tmp_path, "capture", "train.py").code == 0
    result = run_in(tmp_path, "run", "captured", "--backend", "inductor", "--no-confirm")
    assert result.code == 1 and "elements differ" in result.out
    result = run_in(tmp_path, "ops", "captured", "--backend", "inductor")
    assert result.code == 1 and "1 wrong (value)" in result.out


def test_a_model_of_which_nothing_is_compiled_is_named_with_its_reason(tmp_path: Path) -> None:
    text = "import torch\ntorch.compile(torch.nn.LSTM(2, 3))(torch.ones(1, 2))\n"
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    result = run_in(tmp_path, "capture", "train.py")
    assert result.code == 1 and "LSTM: 0 graphs" in result.out and "no graph: Attempted to wrap RNN" in result.out
    assert "nothing was compiled" not in result.err and not (tmp_path / "captured" / "inventory.json").exists()


def test_code_that_raises_and_a_missing_script_are_said(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise ValueError('of the user')\n", encoding="utf-8")
    result = run_in(tmp_path, "capture", "broken.py")
    assert result.code == 1 and "ValueError: of the user" in result.err
    assert "your code raised; nothing was compiled before" in result.err
    result = run_in(tmp_path, "capture", "models/gpt.py:make")
    assert result.code == 4 and "a function is named by its module: models.gpt:make" in result.err
    (tmp_path / "note.ipynb").write_text("{}", encoding="utf-8")
    result = run_in(tmp_path, "capture", "note.ipynb")
    assert result.code == 4 and "jupyter nbconvert --to script note.ipynb makes one" in result.err
    result = run_in(tmp_path, "capture", "missing.py")
    assert result.code == 4 and "missing.py: no such script" in result.err
    (tmp_path / "captured" / "note.txt").write_text("mine", encoding="utf-8")
    result = run_in(tmp_path, "capture", "broken.py")
    assert result.code == 4 and "there is something in it" in result.err
