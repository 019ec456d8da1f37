"""Cases for ``throughput.py``: chains of three to eight operators on small tensors, drawn from templates by a seed.

Sizes and operators are drawn, so that no two cases compile to the same kernels. Functions are bounded or grow slowly:
another rounding of the backend must stay within the default tolerances, since only green runs are measured.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from runner.cases.model import Variant
from runner.session.collect import load

Case = dict[str, Any]

SEED = 20
"""Seed of the cases that are measured unless another is asked for."""

_PLAIN = (
    "F.gelu", "F.silu", "F.softplus", "F.elu", "F.mish", "F.logsigmoid", "F.hardswish", "F.softsign", "F.leaky_relu",
    "torch.sin", "torch.cos", "torch.tanh", "torch.sigmoid", "torch.atan", "torch.erf", "torch.abs", "torch.asinh",
)  # fmt: skip


class _Draw(random.Random):
    """Draws the parts of one case."""

    def size(self, low: int = 3, high: int = 24) -> int:
        return self.randint(low, high)

    def chance(self, share: float) -> bool:
        return self.random() < share

    def one(self, *choices: Any) -> Any:
        return self.choice(choices)

    def number(self) -> float:
        return self.randint(11, 99) / 50

    def point(self) -> Any:
        """A pointwise operator of one tensor."""
        place = self.randrange(len(_PLAIN) + 3)
        if place < len(_PLAIN):
            return _PLAIN[place]
        return {self.one("operator.mul", "operator.add", "operator.sub"): ["$_", self.number()]}

    def points(self, low: int, high: int) -> list[Any]:
        return [self.point() for _ in range(self.randint(low, high))]

    def tensor(self, *shape: int, share: float = 0.3) -> Any:
        """An input; with a chance of ``share`` one that wants a gradient."""
        return {"shape": [*shape], "requires_grad": True} if self.chance(share) else [*shape]


def _pointwise(draw: _Draw) -> Case:
    rows, columns = draw.size(), draw.size()
    y = draw.one([columns], [rows, 1], [rows, columns])
    meet = {draw.one("torch.add", "torch.maximum", "torch.hypot", "operator.mul", "operator.sub"): ["$_", "$y"]}
    chain = [*draw.points(1, 3), meet, *draw.points(1, 3)]
    return {"inputs": {"x": draw.tensor(rows, columns), "y": y}, "chain": chain}


def _reduction(draw: _Draw) -> Case:
    shape = draw.size(), draw.size(), draw.size(2, 6)
    over = {"dim": draw.one(0, 1, 2, -1, [0, 1], [1, 2]), "keepdim": True}
    name = draw.one("torch.mean", "torch.sum", "torch.amax", "torch.amin", "torch.std")
    # Inductor's backward makes the values again and looks for the extreme among them; rounded otherwise, it finds none.
    smooth = name not in ("torch.amax", "torch.amin")
    chain = [*draw.points(1, 3), {name: {"*": ["$_"], **over}}, draw.point(), {"operator.mul": ["$_", "$x"]}]
    if draw.chance(0.4):
        chain.append({"torch.cumsum": ["$_", draw.one(0, 1)]})
    return {"inputs": {"x": draw.tensor(*shape, share=0.3 * smooth)}, "chain": chain}


def _linear(draw: _Draw) -> Case:
    rows, inner, hidden, outer = draw.size(), draw.size(), draw.size(), draw.size()
    chain = [{"nn.Linear": [inner, hidden]}, *draw.points(1, 3), {"nn.Linear": [hidden, outer]}, *draw.points(0, 2)]
    return {"inputs": {"x": draw.tensor(rows, inner)}, "chain": chain}


def _matmul(draw: _Draw) -> Case:
    batch, rows, inner, columns = draw.size(2, 5), draw.size(), draw.size(), draw.size()
    inputs = {"x": draw.tensor(batch, rows, inner), "y": [batch, inner, columns]}
    meet = draw.one(
        {"torch.bmm": ["$_", "$y"]},
        {"torch.matmul": ["$_", "$y"]},
        {"torch.einsum": ["bij,bjk->bik", "$_", "$y"]},
        {"torch.baddbmm": ["$bias", "$_", "$y"]},
    )
    if "torch.baddbmm" in meet:
        inputs["bias"] = [batch, rows, columns]
    return {
        "inputs": inputs,
        "chain": [*draw.points(1, 2), meet, {"operator.truediv": ["$_", inner]}, *draw.points(1, 3)],
    }


def _convolution(draw: _Draw) -> Case:
    batch, channels, filters, side = draw.size(1, 3), draw.size(2, 5), draw.size(2, 7), draw.size(8, 14)
    inputs = {"x": draw.tensor(batch, channels, side, side)}
    kernel = {"*": [channels, filters, draw.one(1, 3)], "padding": draw.one(0, 1), "bias": draw.one(True, False)}
    pool = draw.one({"F.avg_pool2d": ["$_", 2]}, {"F.max_pool2d": ["$_", 2]}, {"F.adaptive_avg_pool2d": ["$_", 3]})
    return {"inputs": inputs, "chain": [{"nn.Conv2d": kernel}, *draw.points(1, 3), pool, *draw.points(0, 2)]}


def _view(draw: _Draw) -> Case:
    shape = draw.size(), draw.size(2, 8) * 2, draw.size(2, 6)
    turn = draw.one(
        {"torch.flip": ["$_", [draw.one(0, 1)]]},
        {"torch.roll": ["$_", draw.size(1, 3), draw.one(0, 1)]},
        {"operator.getitem": ["$_", draw.one("[1:]", "[:, 1:]", "[..., ::2, :]")]},
    )
    chain: list[Any] = [*draw.points(1, 2), {"torch.permute": ["$_", draw.one([2, 0, 1], [1, 0, 2], [1, 2, 0])]}, turn]
    chain += [draw.one("Tensor.contiguous", "torch.clone"), draw.point()]
    if draw.chance(0.5):
        chain.append({"torch.flatten": ["$_", *draw.one((0, 1), (1, 2))]})
    chain.append({"torch.cat": [["$_", "$_"], draw.one(0, 1)]})
    return {"inputs": {"x": draw.tensor(*shape)}, "chain": chain}


def _normalization(draw: _Draw) -> Case:
    batch, groups, width, length = draw.size(2, 6), draw.size(2, 4), draw.size(2, 4), draw.size(6, 20)
    channels = groups * width
    layer = draw.one(
        {"nn.LayerNorm": length},
        {"nn.GroupNorm": [groups, channels]},
        {"nn.BatchNorm1d": channels},
        {"nn.RMSNorm": length},
        {"nn.InstanceNorm1d": channels},
    )
    train = {"train": True} if "nn.BatchNorm1d" in layer else {}
    chain = [*draw.points(1, 2), layer, *draw.points(1, 3), {"torch.mean": {"*": ["$_"], "dim": draw.one(0, 1, 2)}}]
    return {"inputs": {"x": draw.tensor(batch, channels, length)}, **train, "chain": chain}


def _softmax(draw: _Draw) -> Case:
    batch, rows, columns = draw.size(2, 5), draw.size(), draw.size()
    weights = {draw.one("torch.softmax", "torch.log_softmax", "F.softmin"): {"*": ["$_"], "dim": draw.one(0, 1, 2)}}
    inputs = {"q": draw.tensor(batch, rows, columns), "v": [batch, columns, draw.size()]}
    chain = [{"operator.mul": ["$_", draw.number()]}, *draw.points(0, 2), weights, {"torch.bmm": ["$_", "$v"]}]
    return {"inputs": inputs, "chain": [*chain, *draw.points(1, 2)]}


def _indexing(draw: _Draw) -> Case:
    rows, columns, count = draw.size(), draw.size(), draw.size()
    name = draw.one("torch.index_select", "operator.getitem", "torch.gather")
    step = {name: ["$_", "$i"] if name == "operator.getitem" else ["$_", 0, "$i"]}
    ids = {
        "shape": [count, columns] if name == "torch.gather" else [count],
        "dtype": "int64",
        "init": {"randint": [0, rows]},
    }
    choose = {"torch.where": ["$flag", "$_", draw.number()]}
    inputs = {"x": draw.tensor(rows, columns), "i": ids, "flag": {"shape": [columns], "dtype": "bool"}}
    return {"inputs": inputs, "chain": [*draw.points(1, 2), step, *draw.points(1, 2), choose, *draw.points(0, 2)]}


def _loss(draw: _Draw) -> Case:
    rows, inner, classes = draw.size(), draw.size(), draw.size(3, 12)
    chain = [{"nn.Linear": [inner, classes]}, *draw.points(1, 3)]
    if draw.chance(0.5):
        target: Case = {"shape": [rows, classes]}
        name = draw.one("F.mse_loss", "F.smooth_l1_loss", "F.l1_loss", "F.huber_loss")
    else:
        target, name = {"shape": [rows], "dtype": "int64", "init": {"randint": [0, classes]}}, "F.cross_entropy"
    chain += [{name: ["$_", "$target"]}, {"operator.mul": ["$_", draw.number()]}]
    return {"inputs": {"x": draw.tensor(rows, inner), "target": target}, "grad": "backward", "chain": chain}


_TEMPLATES: dict[str, Callable[[_Draw], Case]] = {
    template.__name__.strip("_"): template
    for template in (
        _pointwise, _reduction, _linear, _matmul, _convolution, _view, _normalization, _softmax, _indexing, _loss,
    )
}  # fmt: skip


def make_cases(count: int, seed: int = SEED) -> list[Case]:
    """Return ``count`` distinct cases, the templates in turn; the first ones are the same whatever the count."""
    cases: dict[str, Case] = {}
    for attempt in itertools.count():
        if len(cases) == count:
            break
        name, template = [*_TEMPLATES.items()][len(cases) % len(_TEMPLATES)]
        draw = _Draw(f"{seed} {attempt}")
        case = template(draw)
        if "requires_grad" in json.dumps(case["inputs"]) or (name == "linear" and draw.chance(0.3)):
            case["grad"] = "backward"
        if 3 <= len(case["chain"]) <= 8:
            cases.setdefault(json.dumps(case), {"name": f"{name}_{len(cases):03d}", **case})
    return [*cases.values()]


def write_cases(folder: Path, count: int, seed: int = SEED) -> tuple[Path, list[Variant]]:
    """Write the cases as a spec file into ``folder`` and read it back. Return the file and one variant a case.

    Raises:
        ValueError: see ``write_spec``.
    """
    file = folder / "throughput.spec.yaml"
    return file, write_spec(file, make_cases(count, seed))


def write_spec(file: Path, cases: Sequence[Case], **settings: Any) -> list[Variant]:
    """Write cases as a spec file and read it back, as ``settings`` of ``load`` say. Return one variant a case.

    Raises:
        ValueError: the runner finds the file wrong, or reads another number of variants from it.
    """
    text = yaml.safe_dump({"cases": [*cases]}, sort_keys=False, default_flow_style=None, width=120)
    file.write_text(text, encoding="utf-8")
    loaded = load([str(file)], everything=True, **settings)
    if loaded.diagnostics or len(loaded.variants) != len(cases):
        faults = "\n".join(diagnostic.render() for diagnostic in loaded.diagnostics[:5])
        raise ValueError(f"{file}: {len(loaded.variants)} variants instead of {len(cases)}\n{faults}")
    return [*loaded.variants]
