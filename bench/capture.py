"""How far real models are captured, whether their cases get the verdict of the models, and what capturing costs.

``python bench/capture.py --python MODELS/bin/python -o FOLDER`` needs a Python with what ``bench/capture_models.py``
names. It captures each model into FOLDER/captured/NAME, and writes FOLDER/modules with the same models as ``module:``
cases. ``runner run FOLDER/captured/*/captured.suite.yaml FOLDER/modules/models.spec.yaml --allow-python`` judges both;
``--compare`` reads its log.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from commands import ROOT, RUNNER, command_line, option, read_results, write_json
from tabulate import tabulate

from runner.cases.serialize import emit

MODELS = Path(__file__).parent / "capture_models.py"
STUB = Path(__file__).parent / "torchvision_stub.py"

TIMES = """
import sys, time, json
sys.path[:0] = {folders!r}
import torch
import capture_models
from runner.worker.capture.session import Session

name = {name!r}
def seconds(compiled):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, args, kwargs = getattr(capture_models, f"make_{{name}}")()
    function = compiled(model)
    start = time.perf_counter()
    function(*args, **kwargs)
    return time.perf_counter() - start

def captured(model):
    with Session() as session:
        return torch.compile(model)

seconds(lambda model: torch.compile(model, backend="eager"))  # imports what Dynamo needs
times = {{backend: seconds(lambda model: torch.compile(model, backend=backend)) for backend in {backends!r}}}
print(json.dumps({{"capture": seconds(captured), **times}}))
"""
"""Measures, in a process of its own, the first call of a model under each backend and under the recorder."""


def read_inputs(python: str) -> dict[str, Any]:
    """Return the models that there are, each with its inputs as a case writes them."""
    code = "import capture_models, json; print(json.dumps({k: v[1] for k, v in capture_models.MODELS.items()}))"
    return dict(json.loads(_run(python, code)))


def times(python: str, name: str, backends: Sequence[str]) -> dict[str, float] | str:
    """Return the seconds of a model's first call, by recorder and backend; or the error's last line."""
    code = TIMES.format(folders=[str(MODELS.parent), str(ROOT)], name=name, backends=[*backends])
    try:
        return dict(json.loads(_run(python, code)))
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip().rpartition("\n")[2][:200]


def _run(python: str, code: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(MODELS.parent)}
    output = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, env=environ).stdout
    return output.strip().rpartition("\n")[2]


def capture(python: str, names: Sequence[str], folder: Path) -> None:
    """Capture each model by ``runner capture``, in a process and into a folder of its own."""
    folder.mkdir(exist_ok=True)
    for name in names:
        words = [*RUNNER, "capture", f"capture_models:make_{name}", "--python", python, "-o", str(folder / name)]
        subprocess.run(words, check=False, cwd=MODELS.parent, env={**os.environ, "PYTHONPATH": str(ROOT)})


def write_modules(python: str, folder: Path) -> None:
    """Write each model as a ``module:`` case over the same inputs."""
    folder.mkdir(exist_ok=True)
    for file in (MODELS, STUB):
        shutil.copy(file, folder / file.name)
    inputs = read_inputs(python)
    text = ["from capture_models import MODELS"]
    text += [f'\n\ndef {name}():\n    return MODELS["{name}"][0]()' for name in inputs]
    (folder / "models.py").write_text("\n".join(text) + "\n", encoding="utf-8")
    cases = [
        {"name": name, "grad": "backward", "inputs": values, "module": {"file": "models.py", "name": name}}
        for name, values in inputs.items()
    ]
    (folder / "models.spec.yaml").write_text(emit({"cases": cases}, ("cases",)), encoding="utf-8")


def verdicts(log: Path) -> dict[tuple[str, str], dict[str, list[str]]]:
    """Return by model and backend what the graphs (``captured``) and the model (``module``) are, with oracles."""
    models: dict[tuple[str, str], dict[str, list[str]]] = {}
    for result in read_results(log):
        folder = Path(result.file).parent
        is_captured = folder.parent.name == "captured"
        model = folder.name if is_captured else result.case.rpartition("::")[2]
        words = [result.verdict, *sorted({finding.oracle for finding in result.findings})]
        kinds = models.setdefault((model, result.backend), {"captured": [], "module": []})
        kinds["captured" if is_captured else "module"].append(" ".join(words))
    return models


def compare(logs: Sequence[Path]) -> Iterator[str]:
    """Yield for each model and backend whether one of its graphs fails where the model does, and the verdicts."""
    for log in logs:
        for (model, backend), kinds in sorted(verdicts(log).items()):
            greens = [{text.startswith("PASS") for text in texts} for texts in kinds.values()]
            if all(greens):
                word = "same" if all(greens[0]) == all(greens[1]) else "DIFFERENT"
                texts = (f"{kind} {', '.join(dict.fromkeys(texts))}" for kind, texts in kinds.items())
                yield f"{word} {model} {backend}: {'; '.join(texts)}"


def report(folder: Path, measurements: Mapping[str, Any]) -> str:
    """Return the table of what was captured and what it cost, in Markdown."""
    rows = []
    calls = sayable = whole = 0
    for name, times in measurements.items():
        file = folder / "captured" / name / "inventory.json"
        models = json.loads(file.read_text(encoding="utf-8"))["models"] if file.is_file() else []
        graphs = [graph for model in models for graph in model["graphs"]]
        counts = [sum(model[key] for model in models) for key in ("calls", "sayable")]
        calls, sayable = calls + counts[0], sayable + counts[1]
        own = sum(graph["whole"] for graph in graphs)
        whole += bool(graphs) and own == len(graphs)
        breaks = sum(len(model["breaks"]) for model in models)
        seconds = {key: f"{value:.2f} s" for key, value in times.items()} if isinstance(times, dict) else {}
        cost = seconds.pop("capture", "")
        backends = ", ".join(f"{key} {value}" for key, value in seconds.items()) or times
        rows.append([name, len(graphs), own, *counts, breaks, cost, backends])
    share = 100 * sayable / calls if calls else 0.0
    head = f"{len(measurements)} models, {whole} of them whole; {sayable} of {calls} calls ({share:.2f} %)"
    columns = ["model", "graphs", "whole", "calls", "expressible", "breaks", "capture", "others"]
    return f"{head}\n\n{tabulate(rows, columns, tablefmt='github')}\n"


def main() -> None:
    """Measure what the command line names."""
    parser = command_line(
        __doc__,
        option("models", nargs="*", help="names of bench/capture_models.py (default: all)"),
        option("--python", help="a Python that has them"),
        option("-o", "--output", type=Path, help="a folder"),
        option("--backend", action="append", default=[], help="what else is timed (default: eager)"),
        option("--compare", nargs="+", type=Path, metavar="LOG", help="compare verdicts by model, and end"),
    )
    arguments = parser.parse_args()
    if arguments.compare:
        print("\n".join(compare(arguments.compare)))
        return
    python, folder = arguments.python, arguments.output
    if not python or not folder:
        parser.error("--python and -o are needed, or --compare")
    folder.mkdir(exist_ok=True)
    chosen = arguments.models or [*read_inputs(python)]
    capture(python, chosen, folder.resolve() / "captured")
    write_modules(python, folder / "modules")
    measurements = {name: times(python, name, arguments.backend or ["eager"]) for name in chosen}
    write_json(folder / "times.json", measurements)
    text = report(folder, measurements)
    (folder / "report.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
