"""What a person reads about an operator: signatures, a sentence of torch's documentation, dtypes and versions.

``operator_texts.json`` holds it for the oldest and the newest torch that are supported. ``tools/operator_texts.py``
writes that file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from runner.cases.operator_names import BINARY, IN_PLACE, UNARY, names_of
from runner.cases.torch_names import inventory, operator_texts

FILE = Path(__file__).with_name("operator_texts.json")
VERSIONS = ("2.6", "2.13")
"""The versions of torch that the file is of, oldest first. Reading it takes ten milliseconds."""

_REDUCTIONS = ("none", "mean", "sum")
_PADDINGS = ("zeros", "reflect", "replicate", "circular")
_SAMPLING = ("nearest", "linear", "bilinear", "bicubic", "trilinear", "area", "nearest-exact")
_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")

WORDS: Sequence[tuple[str, str, tuple[str, ...]]] = (
    ("*", "approximate", ("none", "tanh")),
    ("F.kl_div", "reduction", (*_REDUCTIONS, "batchmean")),
    ("nn.KLDivLoss", "reduction", (*_REDUCTIONS, "batchmean")),
    ("*", "reduction", _REDUCTIONS),
    ("F.interpolate", "mode", _SAMPLING),
    ("F.upsample", "mode", _SAMPLING),
    ("nn.Upsample", "mode", _SAMPLING),
    ("F.grid_sample", "mode", ("bilinear", "nearest", "bicubic")),
    ("F.grid_sample", "padding_mode", ("zeros", "border", "reflection")),
    ("F.pad", "mode", ("constant", "reflect", "replicate", "circular")),
    ("F.embedding_bag", "mode", ("sum", "mean", "max")),
    ("nn.EmbeddingBag", "mode", ("sum", "mean", "max")),
    ("nn.*ConvTranspose*", "padding_mode", ("zeros",)),
    ("nn.*Conv*", "padding_mode", _PADDINGS),
    ("nn.*Conv[123]d", "padding", ("valid", "same")),
    ("F.conv[123]d", "padding", ("valid", "same")),
    ("nn.RNN*", "nonlinearity", ("tanh", "relu")),
    ("nn.Transformer*", "activation", ("relu", "gelu")),
    ("torch.cdist", "compute_mode",
     ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")),
    ("*.meshgrid", "indexing", ("ij", "xy")),
    ("*.div*", "rounding_mode", ("trunc", "floor")),
    ("*quantile", "interpolation", _INTERPOLATIONS),
    ("torch.norm", "p", ("fro", "nuc")),
    ("Tensor.norm", "p", ("fro", "nuc")),
    ("torch.linalg.*norm", "ord", ("fro", "nuc")),
    ("*.index_reduce*", "reduce", ("prod", "mean", "amax", "amin")),
    ("*.scatter_reduce*", "reduce", ("sum", "prod", "mean", "amax", "amin")),
    ("*.searchsorted", "side", ("left", "right")),
    ("*.stft", "pad_mode", ("reflect", "constant", "replicate", "circular")),
    ("torch.vmap", "randomness", ("error", "different", "same")),
    ("torch.linalg.*", "UPLO", ("L", "U")),
    ("torch.linalg.qr", "mode", ("reduced", "complete", "r")),
    ("torch.linalg.lstsq", "driver", ("gelsy", "gels", "gelsd", "gelss")),
    ("torch.fft.*", "norm", ("backward", "ortho", "forward")),
)  # fmt: skip
"""Texts that an argument may be: a pattern of operators, the argument's name, the texts. The first row that fits holds.

A test has torch take each of them, and refuse another text.
"""

_IN_PYTHON = {
    "getitem": "a[b]", "setitem": "a[b] = c", "delitem": "del a[b]", "contains": "b in a", "call": "a(...)",
    "abs": "abs(a)", "truth": "bool(a)", "index": "a.__index__()", "assert_": "assert a",
    **{name: f"a {sign} b" for name, sign in {**BINARY, **IN_PLACE}.items()},
    **{name: f"{sign}a" for name, sign in UNARY.items()},
}  # fmt: skip
"""How Python writes its own operators."""

_NEAR = ("torch.", "F.", "nn.", "Tensor.")
"""Of which names a sentence is taken where an operator has none, in this order."""


@dataclass(frozen=True, slots=True)
class OperatorText:
    """``signatures`` begin with the operator's name, but for Python's own. ``line`` and ``dtypes`` may be empty.

    ``dtypes`` are those that torch's operator database has for it on the CPU, ``versions`` those of torch that have it.
    """

    signatures: tuple[str, ...]
    line: str
    dtypes: tuple[str, ...]
    versions: tuple[str, ...]


def calls_by_version(name: str) -> dict[str, list[str]]:
    """Return the signatures of a name without the name itself, by the version of torch. Empty for an unknown name."""
    rows = operator_texts()["calls"].get(name, {})
    groups = rows if isinstance(rows, dict) else {" ".join(VERSIONS): rows}
    return {version: calls for group, calls in groups.items() for version in group.split()}


def text_of(name: str, version: str | None = None) -> OperatorText:
    """Return the text of an operator in one version of torch, or in the newest that has it."""
    by_version = calls_by_version(name)
    present = tuple(version for version in VERSIONS if version in by_version)
    chosen = present[-1] if version is None and present else version
    space, _, member = name.partition(".")
    if space == "operator":
        signatures = [_IN_PYTHON[member]]
    elif overloads := overloads_of(name):
        every = [call for overload in overloads for call in text_of(f"{name}.{overload}", version).signatures]
        signatures = [call for call in every if "Tensor" in call] or every  # those of numbers alone are TorchScript's
    else:
        signatures = [f"{name}{call}" for call in by_version.get(chosen or "", [])]
    return OperatorText(tuple(signatures), _shared("lines", name), tuple(_shared("dtypes", name).split()), present)


def _shared(key: str, name: str) -> str:
    """Return a text of an operator, or of another name of the same one."""
    texts: Mapping[str, str] = operator_texts()[key]
    if name in texts or name.startswith(("numpy.", "builtin.", "operator.")):
        return texts.get(name, "")
    alike = sorted(
        (each for each in names_of(name) if each in texts),
        key=lambda each: next((place for place, start in enumerate(_NEAR) if each.startswith(start)), len(_NEAR)),
    )
    return texts[alike[0]] if alike else ""


def overloads_of(name: str) -> list[str]:
    """Return the overloads of an operator of ATen or of prims, those that write into ``out`` last; empty for others."""
    space, _, packet = name.partition(".")
    known: list[str] = inventory()[space].get(packet, []) if space in ("aten", "prims") else []
    return sorted(known, key=lambda overload: (overload.endswith("out"), overload != "default"))


def is_overload(name: str) -> bool:
    """Return whether a name is that of one overload, such as ``aten.add.Tensor``."""
    return name.startswith(("aten.", "prims.")) and name.count(".") == 2


# --- arguments ---


def arguments_of(signatures: Sequence[str]) -> dict[str, str]:
    """Return the names of what signatures take, each with its default as text, which is empty without one.

    What ``*`` and ``**`` collect is left out, and so is a signature that cannot be read.
    """
    names: dict[str, str] = {}
    for signature in signatures:
        parameters = signature[signature.find("(") :].partition(" -> ")[0]
        for name, default in _of_python(parameters) or _of_schema(parameters):
            names.setdefault(name, default)
    return names


def _of_python(parameters: str) -> list[tuple[str, str]]:
    try:
        arguments = ast.parse(f"def f{parameters}: ...").body[0].args  # type: ignore[attr-defined]
    except SyntaxError:
        return []
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults + arguments.kw_defaults
    named = zip([*positional, *arguments.kwonlyargs], defaults, strict=True)
    return [(each.arg, "" if default is None else ast.unparse(default)) for each, default in named]


def _of_schema(parameters: str) -> Iterator[tuple[str, str]]:
    """Yield the arguments of ``(Tensor self, int[2] stride=[], *, str mode="x")``."""
    for match in re.finditer(r"[\w?\])] (\w+)(?:=(\[.*?\]|\"[^\"]*\"|[^,)]+))?(?=[,)])", parameters):
        yield match[1], match[2] or ""


def words_for(name: str, argument: str) -> tuple[str, ...]:
    """Return the texts that an argument of an operator may be; empty where none are known."""
    if name.startswith(("aten.", "prims.", "numpy.")) and argument not in ("approximate", "rounding_mode", "reduce"):
        return ()  # reductions and modes are numbers there
    return next((words for pattern, key, words in WORDS if key == argument and fnmatchcase(name, pattern)), ())
