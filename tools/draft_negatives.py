"""Draft cases of what eager rejects, from the error inputs of torch's own operator database, a spec file for each family.

    python tools/draft_negatives.py specs/negative --python OLD/bin/python

Each draft is read and built as a run would do it, and is called in eager: under this torch, and under each other one that
``--python`` names. A draft that raises nothing is dropped, and so is one whose class and message another one of its operator has.
The text that ``match:`` asks for stands in the message of every torch. Where an older torch raises nothing or another class, the
case requires this release. What the format cannot write is counted by its reason.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from runner.builder.source import build
from runner.cases.canonical import format_text
from runner.cases.serialize import emit
from runner.session.collect import load
from runner.worker.generate import database

HEAD = "# yaml-language-server: $schema=../../schema/spec.schema.json\n"
KINDS = (torch.float32, torch.int64, torch.bool)  # the first that an operator takes
MOST = 2  # cases of one operator
SMALL = 12  # elements of a tensor whose values are written out
REFLECTED = re.compile(r"__r(\w+)__")
PYTHON_NAMES = {"div": "truediv", "and": "and_", "or": "or_"}

FAMILIES = (
    ("windows", r"signal\.windows"),
    ("fourier", r"fft\."),
    ("linear_algebra", r"linalg|dot|ormqr|trace|cov\b|cross\b"),
    ("pooling", r"pool"),
    ("convolutions", r"conv\d"),
    ("losses", r"loss"),
    ("layers", r"nn\.functional|native_layer_norm"),
    ("random", r"cauchy|exponential$|geometric|normal|uniform|multinomial|bernoulli"),
    ("indexing", r"gather|scatter|index_|take|narrow|masked|diag|where|bucketize|kthvalue|tril|triu|histogram"),
    ("shapes", r"view|reshape|split|cat|stack|movedim|unbind|\bt$|t_copy|flip|rot90|roll|sum_to_size|eye|empty|arange|"
               r"space|item|diff|gradient"),
    ("special", r"special"),
    ("reductions", r"amax|amin|aminmax|mean|renorm|logcumsumexp|median"),
    ("binary", r""),
)  # fmt: skip
"""Names of files, and what the operators' names hold. The first that fits counts."""

CALL = """
import json, sys, warnings
warnings.simplefilter("ignore")
answers = []
for source in json.load(sys.stdin):
    space = {"__name__": "draft"}
    try:
        exec(source, space)
        space["make_model"]()(*space["make_inputs"]())
    except Exception as error:
        answers.append([type(error).__name__, str(error)])
    else:
        answers.append(None)
json.dump(answers, sys.stdout)
"""
"""What calls each source and says how it refuses."""


class UnfitError(Exception):
    """The format cannot write this error input."""


@dataclass(frozen=True)
class Draft:
    """A case on its way into a file, with its operator's name in the database and its Python source."""

    operator: str
    case: dict[str, Any]
    source: str


class Writer:
    """Writes the arguments of one error input as those of a step, and its tensors as inputs."""

    def __init__(self) -> None:
        self.inputs: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def argument(self, value: Any) -> Any:
        """Return a value of YAML for one argument. Raises UnfitError."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self._names:
                name = "xyzabcdefghijk"[len(self._names) % 14] + str(len(self._names) // 14 or "")
                self._names[id(value)] = name
                self.inputs[name] = written_tensor(value)
            return f"${self._names[id(value)]}"
        if isinstance(value, list | tuple):
            return [self.argument(item) for item in value]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return str(value)
        raise UnfitError(f"an argument is a {type(value).__name__}")


def written_tensor(tensor: torch.Tensor) -> Any:
    """Return the YAML of an input like ``tensor``: its values where they are few and special, else its shape."""
    if tensor.layout != torch.strided:
        raise UnfitError(f"a tensor is {tensor.layout}")
    shape = list(tensor.shape)
    keys: dict[str, Any] = {"shape": shape}
    if tensor.dtype != torch.float32:
        keys["dtype"] = str(tensor.dtype).removeprefix("torch.")
    if tensor.device.type == "meta":
        return {**keys, "device": "meta"}
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), shape, strict=True)):
        keys["shape"] = [1 if stride == 0 else n for stride, n in zip(tensor.stride(), shape, strict=True)]
        keys["layout"] = [{"Tensor.expand": ["$_", *shape]}]
    elif 0 < tensor.numel() <= SMALL and is_special(tensor):
        keys = {"values": tensor.tolist(), **{key: keys[key] for key in keys if key == "dtype"}}
        if tensor.dtype == torch.int64:
            del keys["dtype"]
    elif tensor.dtype == torch.int64 and tensor.numel():
        keys["init"] = {"randint": [int(tensor.min()), int(tensor.max()) + 1]}
    return keys["shape"] if list(keys) == ["shape"] else keys


def is_special(tensor: torch.Tensor) -> bool:
    """Whether the values may be why the operator refuses: integers, and floats that no normal draw gives."""
    if tensor.is_complex() or tensor.dtype == torch.bool or tensor.dim() > 8:  # pointwise operators take 64 at most
        return False
    if not tensor.is_floating_point():
        return True
    return bool(((tensor == tensor.round()) | ~tensor.isfinite()).any()) and not bool(
        (tensor == 0).all() or (tensor == 1).all()
    )


def spelling(name: str) -> str:
    """Return how the format writes an operator of the database; the name of a variant stands behind a blank."""
    operator, _, variant = name.partition(" ")
    reflected = REFLECTED.fullmatch(operator)
    if reflected:
        return f"operator.{PYTHON_NAMES.get(reflected[1], reflected[1])}"
    space, _, member = operator.rpartition(".")
    if space:
        return f"F.{member}" if space == "nn.functional" else f"torch.{operator}"
    if member.startswith("_"):
        return f"aten.{member}"
    if variant != "in_place" and callable(getattr(torch, member, None)):
        return f"torch.{member}"
    in_place = variant == "in_place" or not hasattr(torch.Tensor, member)
    return f"Tensor.{member}_" if in_place else f"Tensor.{member}"


def step_of(name: str, sample: Any, writer: Writer) -> dict[str, Any]:
    """Return the step that calls an operator of the database with an error input. Raises UnfitError."""
    args = [writer.argument(arg) for arg in (sample.input, *sample.args)]
    kwargs = {key: writer.argument(arg) for key, arg in sample.kwargs.items() if key != "device"}
    if name.startswith("__r"):
        return {spelling(name): args[::-1]}
    return {spelling(name): {"*": args, **kwargs} if kwargs else args}


def entries() -> list[Any]:
    """Return the entries of torch's operator database that have error inputs on some device."""
    database.operators()  # makes the database importable
    internal = sys.modules["torch.testing._internal.common_methods_invocations"]
    return [entry for entry in internal.op_db if entry.error_inputs_func is not None]


def name_of(entry: Any) -> str:
    """Return the name of an entry of the database, with that of its variant behind a blank."""
    return f"{entry.name} {entry.variant_test_name}".strip()


def samples() -> Iterator[tuple[str, Any]]:
    """Yield each error input with its operator's name in the database; a variant's name stands behind a blank.

    Some operators of two operands have none for the CPU, or calls without a tensor alone. They get sizes that do not broadcast.
    """
    for entry in entries():
        for error in entry.error_inputs("cpu"):
            yield name_of(entry), error.sample_input
        if type(entry).__name__ == "BinaryUfuncInfo":
            kind = next(kind for kind in KINDS if kind in entry.supported_dtypes("cpu"))
            sample = next(iter(entry.sample_inputs("cpu", kind)))
            sample.input, sample.args = torch.ones(3, dtype=kind), (torch.ones(4, dtype=kind),)
            yield name_of(entry), sample


def drafted(folder: Path, dropped: collections.Counter[str]) -> Iterator[Draft]:
    """Yield the drafts that the format takes, each read from a file of its own; ``dropped`` counts the others by reason."""
    for number, (name, sample) in enumerate(samples()):
        writer = Writer()
        try:
            step = step_of(name, sample, writer)
        except UnfitError as error:
            dropped[f"{name}: {error}"] += 1
            continue
        case: dict[str, Any] = {"name": f"draft_{number}"}
        if writer.inputs:
            case["inputs"] = writer.inputs
        case |= {"chain": [step], "expect": {"raises": {"type": "RuntimeError"}}}
        file = folder / f"{number}.spec.yaml"
        file.write_text(emit({"cases": [case]}), encoding="utf-8")
        loaded = load([str(file)])
        if loaded.errors:
            dropped[f"{name}: {loaded.errors[0].message}"] += 1
            continue
        yield Draft(name, case, build(loaded.variants[0]).text)


def answers(python: str, sources: list[str]) -> list[list[str] | None]:
    """Return how each source refuses under a Python: the class and the message, or None where it raises nothing."""
    process = subprocess.run(
        [python, "-c", CALL], input=json.dumps(sources), capture_output=True, text=True, check=True
    )
    decoded: list[list[str] | None] = json.loads(
        process.stdout[process.stdout.rindex("[[" if "[[" in process.stdout else "[") :]
    )
    return decoded


def common_text(messages: list[str]) -> str:
    """Return the longest run of words that all messages hold; it needs no escapes of a regular expression."""
    runs = re.findall(r"[A-Za-z_][A-Za-z_ ,']*[a-z_]", re.split(r"\n|\(Could", messages[0])[0])
    heads = [run[:end] for run in runs for end in [*(blank.start() for blank in re.finditer(" ", run)), len(run)]]
    shared = [head.rstrip(" ,'") for head in heads if all(head in message for message in messages)]
    longest = max(shared, key=len, default="")
    return longest if len(longest) <= 60 else longest[:60].rpartition(" ")[0].rstrip(" ,'")


def slug(operator: str, text: str) -> str:
    """Return the name of a case: the operator and the first words of what it says."""
    words = re.findall(r"[a-z0-9]+", text.lower())[:6]
    head = re.sub(r"\W+", "_", operator.removeprefix("nn.functional.")).strip("_")
    return "_".join([head, *words])


def judged(drafts: list[Draft], pythons: list[str]) -> Iterator[Draft]:
    """Yield the drafts that this torch refuses, with class, text and releases, at most MOST of an operator."""
    release = ">=" + ".".join(torch.__version__.split(".")[:2])
    by_python = [answers(python, [draft.source for draft in drafts]) for python in (sys.executable, *pythons)]
    known_words: set[tuple[str, ...]] = set()
    count: collections.Counter[str] = collections.Counter()
    names: set[str] = set()
    for draft, answer, *older in zip(drafts, *by_python, strict=True):
        if answer is None or count[draft.operator] == MOST:
            continue
        kind, message = answer
        same = [old[1] for old in older if old is not None and old[0] == kind]
        text = common_text([message, *same])
        name = slug(draft.operator, text)
        alike = {(draft.operator, kind, text), (emit({**draft.case, "name": ""}),)}
        if alike & known_words or not text:
            continue
        known_words |= alike
        while name in names:
            name += "_too"
        names.add(name)
        count[draft.operator] += 1
        limits = {} if len(same) == len(older) else {"requires": {"torch": release}}
        expect = {"raises": {"type": kind, "match": text}}
        yield Draft(draft.operator, {**draft.case, **limits, "name": name, "expect": expect}, draft.source)


def family_of(operator: str) -> str:
    """Return the name of the file that an operator's cases stand in."""
    return next(family for family, pattern in FAMILIES if re.search(pattern, operator))


def main() -> None:
    """Write the files, and print what was dropped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", action="append", default=[], help="a Python with an older torch")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    dropped: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stderr(sys.stdout):
        drafts = list(drafted(Path(scratch), dropped))
    files: dict[str, list[Draft]] = {}
    for draft in judged(drafts, options.python):
        files.setdefault(family_of(draft.operator), []).append(draft)
    for family, drafts in files.items():
        text = emit({"defaults": {"tags": ["negative", family]}, "cases": [draft.case for draft in drafts]})
        text = text.replace("\n  - name:", "\n\n  - name:").replace("cases:\n\n", "cases:\n")
        (options.folder / f"{family}.spec.yaml").write_text(format_text(HEAD + text), encoding="utf-8")
    operators = {draft.operator for drafts in files.values() for draft in drafts}
    for reason, times in dropped.items():
        print(f"dropped {times} of {reason}")
    every = {name for name, _ in samples()}
    print(
        f"{sum(map(len, files.values()))} cases of {len(operators)} operators; without one: {sorted(every - operators)}"
    )


if __name__ == "__main__":
    main()
