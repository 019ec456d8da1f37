"""Which input goes to which parameter of a Python model's ``forward``."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.builder.inputs import arrange
from runner.cases.model import PythonModule
from runner.cases.python_files import read_forward
from runner.diagnostics import Span


def module(folder: Path, signature: str, positional: bool = False, more: str = "") -> PythonModule:
    path = folder / "m.py"
    path.write_text(f"import torch\n{more}\nclass Net(torch.nn.Module):\n    def forward({signature}): ...\n")
    return PythonModule(str(path), "Net", (), Span(str(path), 1, 1), positional)


@pytest.mark.parametrize(
    ("signature", "names", "inputs", "keywords"),
    [
        ("self, x, y", "x y", "x y", ""), ("self, x, y", "y x", "x y", ""), ("self, x, y", "a b", "a b", ""),
        ("self, x, y", "b x", "x b", ""), ("self, x, y=None", "x", "x", ""), ("self, x, *, y", "y x", "x y", "y"),
        ("self, ids, mask=None, labels=None", "labels ids", "ids labels", "labels"),
        ("self, ids, mask=None, labels=None", "labels mask ids", "ids mask labels", ""),
        ("self, x=None, y=None", "y", "y", "y"), ("self, x, /, y", "y x", "x y", ""),
        ("self, x, /, y", "y a", "a y", ""), ("self, x, **more", "z x", "x z", "z"), ("self, x, *more", "z x w", "x z w", ""),
        ("self, *more", "a b", "a b", ""), ("self, **more", "a b", "a b", ""),
    ],
)  # fmt: skip
def test_inputs_go_by_name_where_forward_has_the_name(
    signature: str, names: str, inputs: str, keywords: str, tmp_path: Path
) -> None:
    arrangement = arrange(module(tmp_path, signature), names.split())
    assert arrangement.problems == {}
    assert (" ".join(arrangement.inputs), " ".join(arrangement.keywords)) == (inputs, keywords)
    given = arrange(module(tmp_path, signature, positional=True), names.split())
    assert (given.inputs, given.keywords) == (tuple(names.split()), ())


@pytest.mark.parametrize(
    ("signature", "names", "problem"),
    [
        ("self, ids, mask=None", "ids msk", ("msk", "forward of Net has no argument 'msk'", "did you mean 'mask'?")),
        ("self, x, y=1, *more", "x z", ("z", "forward of Net takes 'z' after 'y', which no input gives", "")),
        ("self, x=1, y=2, /, z=3", "z y", ("y", "forward of Net takes 'y' by position, after 'x', which no input gives", "")),
    ],
)  # fmt: skip
def test_what_forward_cannot_take_is_said(
    signature: str, names: str, problem: tuple[str, str, str], tmp_path: Path
) -> None:
    ((name, (message, hint)),) = arrange(module(tmp_path, signature), names.split()).problems.items()
    assert (name, message) == problem[:2]
    assert hint == (problem[2] or "positional: true, beside name:, passes the inputs by their order")


def test_positions_have_the_parameters_of_forward(tmp_path: Path) -> None:
    assert arrange(module(tmp_path, "self, x, y"), ["a", "b"]).parameters == ("x", "y")
    assert arrange(module(tmp_path, "self, x, y"), ["b", "x"]).parameters == ("x", "y")
    assert arrange(module(tmp_path, "self, x, *, k"), ["k", "x"]).parameters == ("x",)
    assert arrange(None, ["a"]).parameters == ("a",)


BASE = "class Net(Base): ...\nclass Base(Deep): ...\nclass Deep:\n    def forward(self, x, *, y): ..."


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (BASE, True), ("from lib import Base\nclass Net(Base): ...", False), ("import lib\nclass Net(lib.Base): ...", False),
        ("from lib import Net", False), ("class Net(Net): ...", False), ("class Net:\n    forward = f", False), ("Net =", False), (f"{BASE}\nBase = f(Base)", False),
        ("class Net:\n    @torch.no_grad()\n    def forward(self, x, *, y): ...", True),
        ("class Net:\n    @changed\n    def forward(self, x, *, y): ...", False),
        ("class Net:\n    def forward(): ...", False),
    ],
)  # fmt: skip
def test_the_file_tells_the_parameters_or_does_not(text: str, known: bool, tmp_path: Path) -> None:
    forward = read_forward(text, "Net")
    assert (forward is not None) == known
    assert forward is None or (forward.positional, forward.keywords) == (("x",), ("y",))
    path = tmp_path / "m.py"
    path.write_text(text)
    names = ["y", "x"]
    arrangement = arrange(PythonModule(str(path), "Net", (), Span("m.py", 1, 1)), names)
    assert arrangement.inputs == (("x", "y") if known else ("y", "x"))
