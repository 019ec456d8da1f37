"""A green run of a package's backend says how few operators it tried, and names the run that tries all."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from .driver import run_in, spec, write

pytestmark = pytest.mark.usefixtures("stand_in")

FILES = {
    "acme.py": "def compile_graph(graph, inputs):\n    return graph\n\n\nwrong_element = compile_graph\n",
    "acme.suite.yaml": "suite: acme\nbackends: [{name: acme, backend: 'acme:compile_graph', unclaimed: {operators: [torch.erf]}}]\n",
    "cases/a.spec.yaml": spec(
        "name: one\ninputs: {x: [4]}\nchain: [F.relu, torch.sin]", "name: two\ninputs: {x: [4]}\nchain: [torch.erf]"
    ),
    "cases/b.spec.yaml": spec("name: three\ninputs: {x: [4]}\nchain: [torch.cos, nn.ReLU, torch.tan]"),
    "suites/smoke.suite.yaml": "suite: smoke\nspecs: [../cases/a.spec.yaml]\nbackends: [aot_eager]\n",
    "suites/core.suite.yaml": "suite: core\nspecs: [../cases/*.spec.yaml]\nbackends: [aot_eager]\nmanual: true\n",
}
LINE = "tried 2 of the 5 operators of suites/core.suite.yaml\nnext: "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("breadth")
    write(path, FILES)
    return path


def test_a_green_run_names_the_run_that_tries_more(folder: Path) -> None:
    words = ("suites/smoke.suite.yaml", "acme.suite.yaml", "--backend", "acme", "--allow-python", "-j", 1)
    result = run_in(folder, "run", *words)
    assert result.code == 0 and f"\nacme {LINE}" in result.out, result.text
    command = result.out.partition(LINE)[2].partition("\n")[0]
    assert command == "runner run suites/core.suite.yaml acme.suite.yaml --backend acme --allow-python"
    broader = run_in(folder, *shlex.split(command)[1:])
    assert broader.code == 0 and len(broader.finished) == 3 and "operators of" not in broader.out, broader.text


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("suites/smoke.suite.yaml", "--backend", "eager"), 0),  # torch's own
        (("suites/smoke.suite.yaml", "--backend", "acme:compile_graph", "-q"), 0),
        (("suites/smoke.suite.yaml", "--backend", "acme:wrong_element"), 1),  # red: other commands come next
        (("cases/a.spec.yaml", "--backend", "acme:compile_graph"), 0),  # no suite beside it
    ],
)
def test_other_runs_do_not(folder: Path, words: tuple[str, ...], code: int) -> None:
    result = run_in(folder, "run", *words, "-j", 1, "--no-confirm")
    assert result.code == code and "operators of" not in result.out, result.text
