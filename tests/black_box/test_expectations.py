"""What a case expects beyond equal values, and what a pass says: the format's keys through the installed command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .driver import Result, spec, write

NO_LEAF = "name: a\ninputs: {x: [2]}\ngrad: backward\nchain: [F.relu]"
LEAF = "name: a\ninputs: {x: {shape: [2], requires_grad: true}}\ngrad: backward\nchain: [F.relu]"


def test_backward_without_a_leaf_is_an_error_of_validate(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    write(tmp_path, {"no.spec.yaml": spec(NO_LEAF), "leaf.spec.yaml": spec(LEAF)})
    done = run_runner("validate", "no.spec.yaml")
    assert done.code == 4
    assert "no.spec.yaml:4:11: error: nothing in case 'a' requires a gradient" in done.err
    assert (
        "     |           ^^^^^^^^\n     = write requires_grad: true for an input, such as x: {shape: [2, 3],"
        in done.err
    )
    assert run_runner("validate", "leaf.spec.yaml").code == 0
