"""``--cached`` beside a backend of an installed package, which has its code in a module that is registered nowhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .driver import run_in, spec, write

CASE = spec("name: good\ninputs: {x: [8, 4]}\nchain: [F.relu]")
INNER = "def compile(graph):\n    return graph.forward\n"


@pytest.mark.nightly
def test_a_change_of_a_backend_in_another_module_is_no_hit(tmp_path: Path) -> None:
    write(tmp_path, {
        "a.spec.yaml": CASE,
        "site/front.py": "import inner\ndef backend(graph, inputs):\n    return inner.compile(graph)\n",
        "site/inner.py": INNER,
        "site/front-1.0.dist-info/METADATA": "Name: front\nVersion: 1.0\n",
        "site/front-1.0.dist-info/entry_points.txt": "[torch_dynamo_backends]\nmine = front:backend\n",
    })  # fmt: skip
    path = os.pathsep.join(filter(None, (str(tmp_path / "site"), os.environ.get("PYTHONPATH"))))

    def run() -> tuple[str, bool]:
        result = run_in(
            tmp_path, "run", "a.spec.yaml", "--backend", "mine", "--cached", "--no-confirm", env={"PYTHONPATH": path}
        )
        event = result.of("good@mine")
        return event["verdict"], bool(event.get("cached"))

    assert [run(), run()] == [("PASS", False), ("PASS", True)]
    wrong = INNER.replace("graph.forward", "lambda *inputs: [7 + output for output in graph.forward(*inputs)]")
    write(tmp_path, {"site/inner.py": wrong})
    assert run() == ("FAIL", False)
